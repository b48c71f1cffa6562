//! Passing one descriptor of every PE of a host to every other: SCM_RIGHTS over an abstract unix socket.
//!
//! The lowest PE opens a [`Gate`] and its name travels through the bootstrap; each other PE knocks once, leaving its
//! descriptor in the socket's queue, so that after one more round of the bootstrap the gate can collect them without
//! waiting for anybody. Then it gives all of them to each. What lies in sockets unread counts against the user's limit
//! of open files, so only a window of PEs is served at a time, the next when one has said that it took its share.
//!
//! Names of abstract sockets are visible to others on the host, so a visitor must know a random token, which travels
//! with the name. That is all it needs: the system has no process number, and with it no user that rustix can show, for
//! a peer in another process namespace, as PEs in containers are to each other.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::secret;
use crate::error::{Error, ErrorKind, Result};

/// Descriptors in one message; the kernel takes at most 253 (SCM_MAX_FD).
const BATCH: usize = 250;
/// Descriptors that may lie unread in sockets at a time: well under the common limit of 1024 open files.
const IN_FLIGHT: usize = 256;
/// How long to wait for other jobs of the same user to take what they have in flight.
const PATIENCE: Duration = Duration::from_secs(10);

const TOKEN_LEN: usize = 32;
/// Bytes of a knock: the token and a number.
pub(super) const KNOCK_LEN: usize = TOKEN_LEN + 4;

/// What others need in order to knock.
#[derive(Clone)]
pub(super) struct Invitation {
    name: String,
    token: String,
}

impl Invitation {
    /// To a place that nobody knows yet.
    pub(super) fn new() -> Result<Invitation> {
        Ok(Invitation { name: format!("shmem-fd-{}", secret()?), token: secret()? })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        format!("{}{}", self.token, self.name).into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Invitation> {
        let (token, name) = std::str::from_utf8(bytes).ok()?.split_at_checked(TOKEN_LEN)?;
        Some(Invitation { name: name.to_owned(), token: token.to_owned() })
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(&self.name)
    }

    /// What an invited one says.
    pub(super) fn knock(&self, number: usize) -> Vec<u8> {
        [self.token.as_bytes(), &(number as u32).to_le_bytes()].concat()
    }

    /// The number that an invited one has said; `None` for anything that a stranger says. Looks at every byte, so that
    /// the time tells a guesser nothing.
    pub(super) fn admits(&self, said: &[u8]) -> Option<usize> {
        let (token, number) = said.split_at_checked(TOKEN_LEN)?;
        let differing = token.iter().zip(self.token.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        let number = u32::from_le_bytes(number.try_into().ok()?) as usize;
        (differing == 0).then_some(number)
    }
}

/// The lowest PE's side.
pub(super) struct Gate {
    listener: OwnedFd,
    pub(super) invitation: Invitation,
}

impl Gate {
    /// Opens a gate with room for `n` PEs in its queue.
    pub(super) fn open(n: usize) -> Result<Gate> {
        let invitation = Invitation::new()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open = || -> rustix::io::Result<OwnedFd> {
            let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let address = rustix::net::SocketAddrUnix::new_abstract_name(invitation.name.as_bytes())?;
            rustix::net::bind(&listener, &address)?;
            rustix::net::listen(&listener, i32::try_from(n).unwrap_or(i32::MAX))?;
            Ok(listener)
        };
        let listener = open().map_err(explain)?;
        Ok(Gate { listener, invitation })
    }

    /// Takes what every PE of `host` has left at the gate and gives all of it to each. To be called once all have
    /// knocked.
    pub(super) fn exchange(self, mine: OwnedFd, host: &[usize], limit: Option<Duration>) -> Result<Vec<OwnedFd>> {
        let mut visitors: Vec<Option<(UnixStream, OwnedFd)>> = host.iter().map(|_| None).collect();
        while visitors[1..].iter().any(Option::is_none) {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(visitor) => {
                    let visitor = UnixStream::from(visitor);
                    if let Some((index, descriptor)) = self.admit(&visitor)?
                        && let Some(seat) = visitors.get_mut(index)
                    {
                        *seat = Some((visitor, descriptor));
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(explain(e)),
            }
        }
        let (mut streams, mut all) = (Vec::new(), vec![mine]);
        for (&pe, visitor) in host.iter().zip(visitors).skip(1) {
            let (stream, descriptor) = visitor.ok_or_else(|| lost(pe))?;
            stream.set_read_timeout(limit).map_err(|e| ErrorKind::os("setting a time-out", e))?;
            streams.push((pe, stream));
            all.push(descriptor);
        }
        let window = (IN_FLIGHT / host.len()).max(1);
        for (i, (pe, stream)) in streams.iter().enumerate() {
            if let Some((earlier, served)) = i.checked_sub(window).and_then(|earlier| streams.get(earlier)) {
                await_taken(served, *earlier)?;
            }
            for batch in all.chunks(BATCH) {
                send(stream, b"d", batch).map_err(|e| if e == Errno::PIPE { lost(*pe) } else { explain(e) })?;
            }
        }
        for (pe, stream) in &streams[streams.len().saturating_sub(window)..] {
            await_taken(stream, *pe)?;
        }
        Ok(all)
    }

    /// The index of a visitor with the token, and its descriptor; `None` for a stranger, who is left unheard.
    fn admit(&self, visitor: &UnixStream) -> Result<Option<(usize, OwnedFd)>> {
        let mut said = [0; KNOCK_LEN];
        let (len, mut descriptors) = match receive(visitor, &mut said, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(Errno::MFILE) => return Err(explain(Errno::MFILE)),
            Err(_) => return Ok(None),
        };
        let index = self.invitation.admits(&said[..len]);
        Ok(index.and_then(|index| descriptors.pop().map(|descriptor| (index, descriptor))))
    }
}

/// The side of the other PEs.
pub(super) struct Visit {
    gate: UnixStream,
    leader: usize,
}

impl Visit {
    /// Knocks at the gate of `leader` as the `index`-th PE of the host and leaves `mine` there.
    pub(super) fn knock(invitation: &[u8], leader: usize, index: usize, mine: OwnedFd) -> Result<Visit> {
        let invitation = Invitation::decode(invitation).ok_or_else(|| ErrorKind::PeerLost {
            pe: leader,
            reason: "it did not open a socket for the descriptors of this host".into(),
        })?;
        let gate = invitation
            .address()
            .and_then(|address| UnixStream::connect_addr(&address))
            .map_err(|e| ErrorKind::os(format!("reaching PE {leader} to hand over a descriptor"), e))?;
        send(&gate, &invitation.knock(index), &[mine]).map_err(explain)?;
        Ok(Visit { gate, leader })
    }

    /// The descriptors of all `n` PEs of the host. To be called once all have knocked.
    pub(super) fn take(mut self, n: usize, limit: Option<Duration>) -> Result<Vec<OwnedFd>> {
        self.gate.set_read_timeout(limit).map_err(|e| ErrorKind::os("setting a time-out", e))?;
        let mut all = Vec::with_capacity(n);
        while all.len() < n {
            match receive(&self.gate, &mut [0], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(lost(self.leader)),
                Ok((_, descriptors)) => all.extend(descriptors),
                Err(Errno::INTR) => {}
                Err(e) => return Err(explain(e)),
            }
        }
        self.gate.write_all(b"t").map_err(|_| lost(self.leader))?;
        Ok(all)
    }
}

fn await_taken(mut stream: &UnixStream, pe: usize) -> Result<()> {
    stream.read_exact(&mut [0]).map_err(|_| lost(pe))
}

fn lost(pe: usize) -> Error {
    ErrorKind::PeerLost { pe, reason: "it ended while the PEs of this host handed over descriptors".into() }.into()
}

/// Refuses a list of this host's PEs that is not ascending, leaves the job or lacks this PE.
pub(super) fn check_host(me: usize, n_pes: usize, host: &[usize]) -> Result<()> {
    let ascending = host.windows(2).all(|pair| pair[0] < pair[1]);
    if ascending && host.contains(&me) && host.last().is_some_and(|&last| last < n_pes) {
        return Ok(());
    }
    let why = format!("the PEs of a host must be ascending and include this one, not {host:?}");
    Err(ErrorKind::BadJob { pe: me, n_pes, why }.into())
}

/// Sends one message with descriptors, which stay open here.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[impl AsFd]) -> rustix::io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let since = Instant::now();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            // Other sockets of this user hold too many descriptors in flight, and nothing tells when they are taken.
            Err(Errno::TOOMANYREFS) if since.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e),
        }
    }
}

/// One message: its bytes' number and its descriptors. `EMFILE` if this process could not hold them all.
pub(super) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    if message.flags.contains(ReturnFlags::CTRUNC) { Err(Errno::MFILE) } else { Ok((message.bytes, descriptors)) }
}

pub(super) fn explain(e: Errno) -> Error {
    let what = match e {
        Errno::MFILE => {
            let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let soft = soft.map_or("unlimited".to_owned(), |soft| soft.to_string());
            format!("holding one descriptor for each PE of this host (`ulimit -n` is {soft}; raise it)")
        }
        Errno::TOOMANYREFS => "handing over descriptors (too many are in flight for `ulimit -n`; raise it)".into(),
        _ => "handing over descriptors between the PEs of this host".into(),
    };
    ErrorKind::os(what, e)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::boot::Bootstrap;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A memory file that begins with `pe`.
    pub(in crate::boot) fn file_of(pe: usize) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.write_all_at(&(pe as u64).to_le_bytes(), 0).unwrap();
        file.into()
    }

    fn word(file: &File, index: usize) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, index as u64 * 8).unwrap();
        u64::from_le_bytes(word)
    }

    /// Writes into every peer's file through what was handed over, and reads from the own one what the peers wrote.
    pub(in crate::boot) fn descriptors_are_the_peers(pe: &mut dyn Bootstrap, host: &[usize]) {
        let me = pe.me();
        let own = file_of(me);
        let handed = own.try_clone().unwrap();
        let all = pe.hand_over(handed, host).unwrap();
        assert_eq!(all.len(), host.len());
        let files: Vec<File> = all.iter().map(|fd| File::from(fd.try_clone().unwrap())).collect();
        for (file, &peer) in files.iter().zip(host) {
            assert_eq!(word(file, 0), peer as u64);
            let flags = rustix::io::fcntl_getfd(file).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            file.write_all_at(&(100 + me as u64).to_le_bytes(), 8 + me as u64 * 8).unwrap();
        }
        pe.allgather(b"written").unwrap();
        let own = File::from(own);
        for &peer in host {
            assert_eq!(word(&own, 1 + peer), 100 + peer as u64);
        }
    }

    #[test]
    fn a_stranger_at_the_gate_is_left_unheard() {
        let gate = Gate::open(2).unwrap();
        let address = gate.invitation.address().unwrap();
        let silent = UnixStream::connect_addr(&address).unwrap();
        let mut wrong = gate.invitation.clone();
        wrong.token = "0".repeat(TOKEN_LEN);
        let liar = Visit::knock(&wrong.encode(), 0, 1, file_of(66)).unwrap();
        let peer = Visit::knock(&gate.invitation.encode(), 0, 1, file_of(1)).unwrap();
        let all = std::thread::scope(|scope| {
            let peer = scope.spawn(|| peer.take(2, None));
            let all = gate.exchange(file_of(0), &[0, 1], None).unwrap();
            assert_eq!(peer.join().unwrap().unwrap().len(), 2);
            all
        });
        let words: Vec<u64> = all.into_iter().map(|fd| word(&File::from(fd), 0)).collect();
        assert_eq!(words, [0, 1]);
        drop((silent, liar));
    }

    #[test]
    fn a_pe_that_never_knocked_is_named() {
        let gate = Gate::open(3).unwrap();
        let _peer = Visit::knock(&gate.invitation.encode(), 4, 1, file_of(5)).unwrap();
        let e = gate.exchange(file_of(4), &[4, 5, 9], None).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 9, .. }), "{e}");
    }

    #[test]
    fn a_gate_that_closes_is_named() {
        let gate = Gate::open(2).unwrap();
        let peer = Visit::knock(&gate.invitation.encode(), 7, 1, file_of(1)).unwrap();
        drop(gate);
        let e = peer.take(2, None).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 7, .. }), "{e}");
    }

    #[test]
    fn exhaustion_names_the_limit() {
        assert!(explain(Errno::MFILE).to_string().contains("ulimit -n"));
    }
}
