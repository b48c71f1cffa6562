//! PEs that are processes (or threads that behave so) and meet at an address: the PE's side.
//!
//! Plain blocking sockets, since start-up is a straight line and a runtime would cost more than the exchange itself.
//! The connection stays open while the [`Rendezvous`] lives; when it breaks, the other PEs are told. One request is out
//! at a time and gets one answer; an error ends the connection, so that nobody can read an answer meant for an earlier
//! request.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Bootstrap;
use super::handover::{Gate, Visit, check_host};
use super::serve::{Ended, Listener, Welcome, serve};
use super::show;
use super::wire::{self, HEADER_LEN, Hello, Key, Kind, ROUND_MAX};
use crate::error::{Error, ErrorKind, Result};

/// How long a rendezvous that has begun an answer, or was asked who is missing, may take.
const ANSWER_TIME: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// One PE's place at the meeting point of its job.
///
/// Addresses are `unix:@NAME`, an abstract socket that no file system shows and only this host and user can reach, or
/// `HOST:PORT` and `tcp://HOST:PORT`. The key keeps strangers out; over TCP it travels as it is, so the network between
/// the hosts must be trusted.
pub struct Rendezvous {
    me: usize,
    n_pes: usize,
    address: String,
    limit: Option<Duration>,
    stream: Stream,
    /// How to reach the launcher that watches over the job; empty if none does.
    invitation: Vec<u8>,
    /// Last, so that it closes after this PE's own connection.
    _server: Option<Server>,
}

impl Rendezvous {
    /// Joins the job of `n_pes` PEs at `address` as PE `me`. Collective: returns when all PEs have joined.
    ///
    /// Tries again while nobody listens there, for `limit` in all (`None`: for ever); `limit` bounds each later call,
    /// too.
    ///
    /// # Errors
    /// [`ErrorKind::Rendezvous`] if the address is malformed, nobody answers or somebody is missing after `limit`, or
    /// the key is wrong; [`ErrorKind::BadJob`] if the numbers do not fit the job or another process has this PE number;
    /// [`ErrorKind::PeerLost`] if the job cannot get complete because of another PE.
    pub fn join(address: &str, key: &str, me: usize, n_pes: usize, limit: Option<Duration>) -> Result<Rendezvous> {
        let (place, hello) = check(address, key, me, n_pes)?;
        enter(place, &hello, Caller { me, n_pes, address, limit }, None)
    }

    /// As [`join`](Rendezvous::join), and serves the rendezvous from a thread of this process, for a job without a
    /// launcher. One PE hosts, usually PE 0; the others may join earlier or later. Its drop ends the rendezvous, after
    /// the last answers have left.
    ///
    /// # Errors
    /// In addition, [`ErrorKind::Rendezvous`] if the address cannot be listened at.
    pub fn host(address: &str, key: &str, me: usize, n_pes: usize, limit: Option<Duration>) -> Result<Rendezvous> {
        let (place, hello) = check(address, key, me, n_pes)?;
        let caller = Caller { me, n_pes, address, limit };
        let server =
            Server::start(&place, hello.key.clone(), n_pes).map_err(|e| caller.error(format!("listen: {e}")))?;
        enter(place, &hello, caller, Some(server))
    }

    fn caller(&self) -> Caller<'_> {
        Caller { me: self.me, n_pes: self.n_pes, address: &self.address, limit: self.limit }
    }

    fn round(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let caller = self.caller();
        let deadline = Deadline::after(self.limit);
        let payload = say(&self.stream, &wire::frame(Kind::Round, mine))
            .and_then(|()| answer(&self.stream, caller, Kind::Gathered, deadline))
            .map_err(|failure| failure.into_error(caller))?;
        wire::unpack(&payload, self.n_pes).ok_or_else(|| caller.error(FOREIGN))
    }
}

impl Bootstrap for Rendezvous {
    fn me(&self) -> usize {
        self.me
    }

    fn n_pes(&self) -> usize {
        self.n_pes
    }

    fn led(&self) -> bool {
        !self.invitation.is_empty()
    }

    fn show(&mut self, board: &OwnedFd, rows: usize) -> Result<()> {
        if self.led() { show::post(&self.invitation, board, rows, self.limit) } else { Ok(()) }
    }

    fn allgather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if mine.len() > ROUND_MAX {
            let why = format!("{} bytes are more than the {ROUND_MAX} that a round can carry", mine.len());
            return Err(self.caller().error(why));
        }
        self.round(mine).inspect_err(|_| self.stream.close())
    }

    fn hand_over(&mut self, mine: OwnedFd, host: &[usize]) -> Result<Vec<Arc<OwnedFd>>> {
        check_host(self.me, self.n_pes, host)?;
        if self.n_pes == 1 {
            return Ok(vec![Arc::new(mine)]);
        }
        let all = self.exchange_descriptors(mine, host).map_err(|e| self.confirmed(e));
        let all = all.inspect_err(|_| self.stream.close())?;
        Ok(all.into_iter().map(Arc::new).collect())
    }
}

impl Rendezvous {
    /// Where a PE was found to be gone by other means, what the rendezvous says of it: it knows who was first.
    fn confirmed(&mut self, found: Error) -> Error {
        if !matches!(found.kind(), ErrorKind::PeerLost { .. }) {
            return found;
        }
        match self.round(b"") {
            Err(told) if matches!(told.kind(), ErrorKind::PeerLost { .. }) => told,
            Ok(_) | Err(_) => found,
        }
    }

    /// Two rounds for every PE of the job: where the gates are, and that all have knocked.
    fn exchange_descriptors(&mut self, mine: OwnedFd, host: &[usize]) -> Result<Vec<OwnedFd>> {
        let leads = host[0] == self.me && host.len() > 1;
        let gate = if leads { Some(Gate::open(host.len())?) } else { None };
        let invitation = gate.as_ref().map(|gate| gate.invitation.encode()).unwrap_or_default();
        let invitations = self.allgather(&invitation)?;
        if let Some(gate) = gate {
            self.allgather(b"")?;
            return gate.exchange(mine, host, self.limit);
        }
        match host.iter().position(|&pe| pe == self.me) {
            Some(index) if index > 0 => {
                let visit = Visit::knock(&invitations[host[0]], host[0], index, mine);
                // Also where nobody opens: the gate is gone because somebody is lost, and the round says who.
                self.allgather(b"")?;
                visit?.take(host.len(), self.limit)
            }
            _ => self.allgather(b"").map(|_| vec![mine]),
        }
    }
}

/// Who asks, for the texts of errors.
#[derive(Clone, Copy)]
struct Caller<'a> {
    me: usize,
    n_pes: usize,
    address: &'a str,
    limit: Option<Duration>,
}

const FOREIGN: &str = "something answers there that is no rendezvous of this version";

impl Caller<'_> {
    #[cold]
    fn error(&self, why: impl Into<String>) -> Error {
        ErrorKind::Rendezvous { pe: self.me, address: self.address.to_owned(), why: why.into() }.into()
    }

    #[cold]
    fn too_late(&self, why: &str) -> Error {
        self.error(format!("{why} (waited {:?}; SHMEM_INIT_TIMEOUT sets the limit)", self.limit.unwrap_or_default()))
    }

    #[cold]
    fn bad_job(&self, why: impl Into<String>) -> Error {
        ErrorKind::BadJob { pe: self.me, n_pes: self.n_pes, why: why.into() }.into()
    }
}

fn check(address: &str, key: &str, me: usize, n_pes: usize) -> Result<(Place, Hello)> {
    let caller = Caller { me, n_pes, address, limit: None };
    if me >= n_pes {
        return Err(caller.bad_job("PE numbers run from 0 to the number of PEs less one"));
    }
    let (Ok(pe), Ok(n_pes)) = (u32::try_from(me), u32::try_from(n_pes)) else {
        return Err(caller.bad_job("these are more PEs than a rendezvous can number"));
    };
    let key = Key::new(key).ok_or_else(|| caller.error(format!("the key is longer than {} bytes", wire::KEY_MAX)))?;
    let place = Place::parse(address).ok_or_else(|| caller.error("an address is unix:@NAME or [tcp://]HOST:PORT"))?;
    Ok((place, Hello { pe, n_pes, key }))
}

fn enter(place: Place, hello: &Hello, caller: Caller<'_>, server: Option<Server>) -> Result<Rendezvous> {
    let deadline = Deadline::after(caller.limit);
    let mut pause = FIRST_PAUSE;
    loop {
        let attempt = place.connect(deadline).map_err(Failure::Broken).and_then(|stream| {
            say(&stream, &hello.encode())?;
            let invitation = answer(&stream, caller, Kind::Welcome, deadline)?;
            Ok((stream, invitation))
        });
        match attempt {
            Ok((stream, invitation)) => {
                let Caller { me, n_pes, address, limit } = caller;
                let address = address.to_owned();
                return Ok(Rendezvous { me, n_pes, address, limit, stream, invitation, _server: server });
            }
            // Nobody listens yet, or whoever did has just closed an earlier job.
            Err(Failure::Broken(e)) if may_pass(&e) => {
                if deadline.passed() {
                    return Err(caller.too_late(&format!("nobody answers: {e}")));
                }
                std::thread::sleep(deadline.left().map_or(pause, |left| left.min(pause)));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(Failure::Broken(e)) => return Err(caller.error(e.to_string())),
            Err(Failure::Final(e)) => return Err(e),
        }
    }
}

/// Whether an error of connecting or of the first exchange can go away by itself.
fn may_pass(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        Io::ConnectionRefused
            | Io::ConnectionReset
            | Io::ConnectionAborted
            | Io::BrokenPipe
            | Io::UnexpectedEof
            | Io::NotFound
            | Io::TimedOut
            | Io::WouldBlock
            | Io::HostUnreachable
            | Io::NetworkUnreachable
            | Io::Interrupted
    )
}

/// Why an exchange did not end: the connection broke, or there is an answer that is an error.
enum Failure {
    Broken(io::Error),
    Final(Error),
}

impl Failure {
    fn into_error(self, caller: Caller<'_>) -> Error {
        match self {
            Failure::Broken(e) => caller.error(format!("whoever served the job has closed it, or ended ({e})")),
            Failure::Final(e) => e,
        }
    }
}

fn say(mut stream: &Stream, bytes: &[u8]) -> Result<(), Failure> {
    stream.write_all(bytes).map_err(Failure::Broken)
}

/// Waits for the answer of kind `wanted`. After the deadline, asks who is missing and says so in the error.
fn answer(stream: &Stream, caller: Caller<'_>, wanted: Kind, deadline: Deadline) -> Result<Vec<u8>, Failure> {
    let frame = read_frame(stream, caller, deadline)?;
    let frame = match frame {
        Some(frame) => frame,
        None => {
            say(stream, &wire::frame(Kind::Ask, b""))?;
            read_frame(stream, caller, Deadline::after(Some(ANSWER_TIME)))?
                .ok_or_else(|| Failure::Final(caller.too_late("the rendezvous is silent")))?
        }
    };
    let (kind, payload) = frame;
    let text = || String::from_utf8_lossy(&payload).into_owned();
    Err(Failure::Final(match kind {
        // It may have come between the deadline and the question.
        kind if kind == wanted => return Ok(payload),
        Kind::Missing => caller.too_late(&text()),
        Kind::Refused => caller.error(text()),
        Kind::BadJob => caller.bad_job(text()),
        Kind::Lost => match wire::read_lost(&payload) {
            Some((pe, reason)) => ErrorKind::PeerLost { pe, reason }.into(),
            None => caller.error(FOREIGN),
        },
        _ => caller.error(FOREIGN),
    }))
}

/// `None` if nothing has come before the deadline.
fn read_frame(mut stream: &Stream, caller: Caller<'_>, deadline: Deadline) -> Result<Option<(Kind, Vec<u8>)>, Failure> {
    let mut header = [0; HEADER_LEN];
    loop {
        if deadline.passed() {
            return Ok(None);
        }
        stream.read_timeout(deadline.left()).map_err(Failure::Broken)?;
        match stream.read(&mut header[..1]) {
            Ok(0) => return Err(Failure::Broken(Io::UnexpectedEof.into())),
            Ok(_) => break,
            Err(e) if matches!(e.kind(), Io::WouldBlock | Io::TimedOut | Io::Interrupted) => {}
            Err(e) => return Err(Failure::Broken(e)),
        }
    }
    stream.read_timeout(Some(ANSWER_TIME)).map_err(Failure::Broken)?;
    stream.read_exact(&mut header[1..]).map_err(Failure::Broken)?;
    let most = wire::most_gathered(caller.n_pes);
    let (kind, len) = wire::header(&header, most).ok_or_else(|| Failure::Final(caller.error(FOREIGN)))?;
    // Grows with what really comes, whatever length was announced.
    let mut payload = Vec::new();
    stream.take(len as u64).read_to_end(&mut payload).map_err(Failure::Broken)?;
    if payload.len() < len {
        return Err(Failure::Broken(Io::UnexpectedEof.into()));
    }
    Ok(Some((kind, payload)))
}

#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    /// A limit too far to be represented is none.
    fn after(limit: Option<Duration>) -> Deadline {
        Deadline(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn passed(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// A parsed address.
enum Place {
    Abstract(SocketAddr),
    Tcp(String),
}

impl Place {
    fn parse(address: &str) -> Option<Place> {
        if let Some(path) = address.strip_prefix("unix:") {
            let name = path.strip_prefix('@').filter(|name| !name.is_empty())?;
            return SocketAddr::from_abstract_name(name).ok().map(Place::Abstract);
        }
        let address = address.strip_prefix("tcp://").unwrap_or(address);
        let (host, port) = address.rsplit_once(':')?;
        let complete = !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0);
        complete.then(|| Place::Tcp(address.to_owned()))
    }

    fn connect(&self, deadline: Deadline) -> io::Result<Stream> {
        match self {
            Place::Abstract(address) => UnixStream::connect_addr(address).map(Stream::Unix),
            Place::Tcp(address) => {
                let mut last = io::Error::from(Io::NotFound);
                for address in address.to_socket_addrs()? {
                    let time = deadline.left().unwrap_or(ANSWER_TIME).clamp(Duration::from_millis(1), ANSWER_TIME);
                    match TcpStream::connect_timeout(&address, time) {
                        // A port of this host that nobody listens at can, by chance, connect to itself.
                        Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                            last = Io::ConnectionRefused.into()
                        }
                        Ok(stream) => return stream.set_nodelay(true).map(|()| Stream::Tcp(stream)),
                        Err(e) => last = e,
                    }
                }
                Err(last)
            }
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// `None`: no time-out. Zero means the shortest that there is.
    fn read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(|time| time.max(Duration::from_micros(1)));
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(time),
            Stream::Tcp(stream) => stream.set_read_timeout(time),
        }
    }

    /// Ends the connection in both directions; later calls meet its end. It may have ended already.
    fn close(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(buf),
            Stream::Tcp(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write(buf),
            Stream::Tcp(stream) => (&mut &*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The rendezvous of a job without a launcher, in a thread of its own until it is dropped.
struct Server {
    /// Nobody reports ends of PEs here; its drop tells the thread to finish.
    ended: Option<UnboundedSender<Ended>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(place: &Place, key: Key, n_pes: usize) -> io::Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _within = runtime.enter();
            match place {
                Place::Abstract(address) => {
                    let listener = UnixListener::bind_addr(address)?;
                    listener.set_nonblocking(true)?;
                    Listener::Unix(tokio::net::UnixListener::from_std(listener)?)
                }
                Place::Tcp(address) => {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    Listener::Tcp(tokio::net::TcpListener::from_std(listener)?)
                }
            }
        };
        let (sender, ended) = unbounded_channel();
        let name = "shmem-rendezvous".to_owned();
        let serving = move || runtime.block_on(serve(listener, n_pes, key, Welcome::default(), ended));
        let thread = std::thread::Builder::new().name(name).spawn(serving)?;
        Ok(Server { ended: Some(sender), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            // It panics only by a fault of its own, which it has printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
