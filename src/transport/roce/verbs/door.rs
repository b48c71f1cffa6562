//! The door of a PE: a thread that listens on TCP, and makes a queue pair for each peer that asks for one.
//!
//! Who does not know the job's secret is turned away, and who says nothing is not waited for: visitors are heard side by
//! side, and each only for a while. The queue pairs live as long as the door. The same thread hears what befalls the
//! device.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::address::{self, Agreed, Answer, End, HEAD, Hello, Reads};
use super::device::{Card, Facts};
use super::draw_psn;
use super::pair::{Completions, Pair, Role, Room};
use super::visit::PATIENCE;
use crate::error::{ErrorKind, Result};

/// Visitors that are heard at a time; when more come, the first have to go.
const VISITORS: usize = 256;
/// Visitors that are let in before those that are there are heard again: so that none has to go who has just come.
const AT_ONCE: usize = VISITORS / 8;
/// How long to wait when nobody can be let in, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);
/// Stack of the thread, on which the provider of a device runs, too.
const STACK: usize = 1 << 20;

/// The door of a PE; closed when dropped.
pub(super) struct Door {
    card: Arc<Card>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Set when the device has failed.
    failed: Arc<OnceLock<()>>,
    /// Where it is.
    pub(super) addresses: Vec<SocketAddr>,
}

/// Whose door it is.
pub(super) struct Owner {
    pub(super) me: usize,
    pub(super) secret: String,
    pub(super) facts: Facts,
}

impl Door {
    /// Opens it at the address that the port's GID is, where that is one of this host; else at all of this host, which
    /// are `others`.
    pub(super) fn open(card: &Arc<Card>, owner: Owner, others: &[IpAddr]) -> Result<Door> {
        let failed = |e| ErrorKind::os("opening the port at which peers ask for queue pairs", e);
        let (listener, addresses) = listen(card.port.gid, others).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let stop = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC)
                .map_err(|e| ErrorKind::os("making the descriptor that ends a thread (ulimit -n)", e))?,
        );
        let failed = Arc::new(OnceLock::new());
        let porter = Porter {
            card: card.clone(),
            owner,
            listener,
            stop: stop.clone(),
            failed: failed.clone(),
            completions: Arc::new(Completions::new(card, 1)?),
            pairs: Vec::new(),
            visitors: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("shmem-door".into())
            .stack_size(STACK)
            .spawn(move || porter.work())
            .map_err(|e| ErrorKind::os("starting the thread that connects queue pairs", e))?;
        Ok(Door { card: card.clone(), stop, thread: Some(thread), failed, addresses })
    }

    /// Whether the device has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // A forked child has no such thread, and would stop its parent's.
        if self.card.is_own() {
            // It cannot fail: the counter is far from full.
            let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// A socket that listens, and where it can be reached.
fn listen(gid: [u8; 16], others: &[IpAddr]) -> std::io::Result<(TcpListener, Vec<SocketAddr>)> {
    let own = Ipv6Addr::from(gid).to_canonical();
    let link_local = matches!(own, IpAddr::V6(own) if own.is_unicast_link_local());
    // In a container the GIDs of the host may be seen, which are no addresses there.
    if !link_local && let Ok(listener) = TcpListener::bind((own, 0)) {
        let address = listener.local_addr()?;
        return Ok((listener, vec![address]));
    }
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let port = listener.local_addr()?.port();
    Ok((listener, others.iter().map(|&other| SocketAddr::new(other, port)).collect()))
}

/// What the thread works with.
struct Porter {
    card: Arc<Card>,
    owner: Owner,
    listener: TcpListener,
    stop: Arc<OwnedFd>,
    failed: Arc<OnceLock<()>>,
    /// For all queue pairs: they complete nothing.
    completions: Arc<Completions>,
    pairs: Vec<Pair>,
    visitors: Vec<Visitor>,
}

/// Somebody who has come and not yet said everything.
struct Visitor {
    stream: TcpStream,
    since: Instant,
    said: Vec<u8>,
}

impl Porter {
    fn work(mut self) {
        while let Some((events, knocks, ready)) = self.wait() {
            if events && self.card.has_failed() {
                // It is set once: the events are not looked at any more.
                let _ = self.failed.set(());
            }
            let now = Instant::now();
            let mut ready = ready.into_iter();
            let (mut said, mut waiting) = (Vec::new(), Vec::new());
            for mut visitor in std::mem::take(&mut self.visitors) {
                match (ready.next(), now.duration_since(visitor.since) < PATIENCE) {
                    (Some(true), _) => match visitor.listen() {
                        Heard::Hello(hello) => said.push((visitor.stream, hello)),
                        Heard::Part => waiting.push(visitor),
                        Heard::Nonsense => {}
                    },
                    (_, true) => waiting.push(visitor),
                    (_, false) => {}
                }
            }
            self.visitors = waiting;
            for (stream, hello) in said {
                self.answer(stream, &hello);
            }
            if knocks {
                self.let_in(now);
            }
        }
    }

    /// Sleeps until something happens: to the device, at the door, or that a visitor speaks. `None` if it is time to go.
    fn wait(&self) -> Option<(bool, bool, Vec<bool>)> {
        let tick = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            // Those of a device that has failed would wake for ever.
            let events = if self.failed.get().is_none() { self.card.events() } else { self.stop.as_fd() };
            let looked = [self.stop.as_fd(), self.listener.as_fd(), events];
            let visitors = self.visitors.iter().map(|visitor| visitor.stream.as_fd());
            let looked: Vec<BorrowedFd<'_>> = looked.into_iter().chain(visitors).collect();
            let mut polled: Vec<PollFd<'_>> =
                looked.iter().map(|of| PollFd::from_borrowed_fd(*of, PollFlags::IN)).collect();
            match poll(&mut polled, (!self.visitors.is_empty()).then_some(&tick)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            }
            let happened = |of: &PollFd<'_>| !of.revents().is_empty();
            let [stop, listener, events, visitors @ ..] = polled.as_slice() else { return None };
            if happened(stop) {
                return None;
            }
            return Some((happened(events), happened(listener), visitors.iter().map(happened).collect()));
        }
    }

    fn let_in(&mut self, now: Instant) {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.visitors.len() == VISITORS {
                        self.visitors.remove(0);
                    }
                    self.visitors.push(Visitor { stream, since: now, said: Vec::new() });
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), Io::Interrupted | Io::ConnectionAborted) => {}
                Err(e) if e.kind() == Io::WouldBlock => return,
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    fn answer(&mut self, mut stream: TcpStream, hello: &Hello) {
        let answer: Answer = self.connect(hello);
        if let Some(bytes) = address::encode(&answer) {
            // It fits into the buffer of a new connection. If the visitor is gone, so be it.
            let _ = stream.write_all(&bytes);
        }
    }

    fn connect(&mut self, hello: &Hello) -> Answer {
        let Owner { me, secret, facts } = &self.owner;
        if !address::matches(secret, &hello.secret) {
            return Err("it is of another job: the secret does not match".into());
        }
        if hello.to != *me {
            return Err(format!("it is PE {me}, not PE {}", hello.to));
        }
        let room = Room { requests: 1, inline: 0 };
        let pair = Pair::new(self.completions.clone(), Role::Serves, room).map_err(|e| e.to_string())?;
        let (mtu, served) = (hello.mtu.min(facts.mtu), hello.reads.min(facts.reads.served));
        let psn = draw_psn().map_err(|e| e.to_string())?;
        pair.connect(psn, &hello.end, mtu, Reads { asked: facts.reads.asked.min(1), served })
            .map_err(|e| format!("its queue pair for PE {} could not be connected: {e}", hello.from))?;
        let end = End { number: pair.number(), psn, gid: self.card.port.gid };
        self.pairs.push(pair);
        Ok(Agreed { end, mtu, reads: served })
    }
}

/// What a visitor has said.
enum Heard {
    Hello(Hello),
    Part,
    Nonsense,
}

impl Visitor {
    fn listen(&mut self) -> Heard {
        loop {
            let wanted = match self.said.first_chunk::<HEAD>() {
                None => HEAD,
                Some(head) => match address::body(head) {
                    Some(body) if self.said.len() == HEAD + body => {
                        return address::decode(&self.said[HEAD..]).map_or(Heard::Nonsense, Heard::Hello);
                    }
                    Some(body) => HEAD + body,
                    None => return Heard::Nonsense,
                },
            };
            let had = self.said.len();
            self.said.resize(wanted, 0);
            let read = self.stream.read(&mut self.said[had..]);
            self.said.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Heard::Nonsense,
                Ok(_) => {}
                Err(e) if e.kind() == Io::Interrupted => {}
                Err(e) if e.kind() == Io::WouldBlock => return Heard::Part,
                Err(_) => return Heard::Nonsense,
            }
        }
    }
}
