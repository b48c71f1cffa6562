//! The network: one-sided transfers by a network card, from and to registered memory, without any call of the target.
//!
//! - `nic`: what is needed of a card;
//! - `seen`: what the system shows of RDMA devices; `wishes`: which of them the user wants; `select`: which are used;
//!   `refusal`: why others are not;
//! - `queue`: the requests of one queue pair, pure data;
//! - `pool`: registered pieces for what lies in memory that the card does not reach;
//! - `verbs`: a real card, over libibverbs (feature `roce`);
//! - `sim`: a card in memory, which delays, reorders and fails, by chance or replayable.
//!
//! [`Network`] brings them together: a queue pair for each lane of each peer, made when it is first used. Symmetric
//! memory travels from and to where it lies; private memory within the request, or through the pool.

pub(crate) mod nic;
mod pool;
mod queue;
pub(crate) mod refusal;
pub(crate) mod seen;
pub(crate) mod select;
pub(crate) mod sim;
#[cfg(feature = "roce")]
pub(crate) mod verbs;
pub(crate) mod wishes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::sync::signal::Signal;
use crate::transport::amo::CardAmo;
use crate::transport::private::{Early, Late, Memory};
use crate::transport::{Awaited, Endpoint, Near, Rest, Taken, To};
use nic::{Completion, Local, Nic, Outcome, Request, Verb};
pub(crate) use pool::Pool;
use queue::{Lent, Queue};

/// Lanes to each peer: the first is that of the library and of shared contexts, private contexts take turns on the rest.
pub(crate) const LANES: usize = 8;

/// Bytes up to which private memory travels within a request, where the card lets it: copying them twice costs less than
/// a piece of the pool, which has to come back.
const INLINE: usize = 256;

/// A network card with the queues of this PE.
pub(crate) struct Network<N> {
    nic: N,
    n_pes: usize,
    /// By lane and peer.
    lines: Box<[Mutex<Line>]>,
    /// Those that have a queue.
    connected: Mutex<Arc<[To]>>,
    pool: Pool,
    /// Where the pool's memory is for the processor.
    memory: Memory,
}

/// One way to a peer.
#[derive(Default)]
struct Line {
    /// Made when it is first used.
    queue: Option<Queue>,
    found: Vec<Completion>,
}

impl<N: Nic> Network<N> {
    /// Over a card that has the symmetric memory of this PE registered, with a pool in this part of it.
    pub(crate) fn new(nic: N, n_pes: usize, pool: Range<usize>, memory: Memory) -> Self {
        let lines = (0..LANES * n_pes).map(|_| Mutex::default()).collect();
        let connected = Mutex::new(Arc::default());
        Network { nic, n_pes, lines, connected, pool: Pool::new(pool), memory }
    }

    fn line(&self, to: To) -> MutexGuard<'_, Line> {
        // A line is whole between any two statements that can panic.
        self.lines[to.lane * self.n_pes + to.pe].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines that have a queue.
    fn connected(&self) -> Arc<[To]> {
        Arc::clone(&self.connected.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `use_it` on a queue that is connected, works, and has room, or does nothing.
    fn with_room<R: Default>(&self, to: To, use_it: impl FnOnce(&mut Queue, usize) -> Result<R>) -> Result<R> {
        let mut line = self.line(to);
        if line.queue.is_none() {
            self.nic.connect(to)?;
            line.queue = Some(Queue::new(self.nic.limits().depth));
            let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
            *connected = connected.iter().copied().chain([to]).collect();
        }
        if line.queue.as_ref().is_some_and(|queue| queue.room() == 0) {
            self.reap(to, &mut line)?;
        }
        let Line { queue: Some(queue), .. } = &mut *line else { return Ok(R::default()) };
        if let Some(failure) = queue.failure() {
            return Err(self.failed(to.pe, failure));
        }
        match queue.room() {
            0 => Ok(R::default()),
            room => use_it(queue, room),
        }
    }

    /// Takes note of what has ended on a line. Fails when it finds out that the line does.
    fn reap(&self, to: To, line: &mut Line) -> Result<()> {
        let Line { queue: Some(queue), found } = line else { return Ok(()) };
        if !queue.is_busy() {
            return Ok(());
        }
        let worked = queue.failure().is_none();
        self.nic.poll(to, found)?;
        for completion in found.drain(..) {
            for back in queue.complete(completion) {
                if let Some(late) = back.late {
                    self.memory.deliver(back.piece.at, late);
                }
                self.pool.give_back(back.piece);
            }
        }
        match queue.failure() {
            Some(failure) if worked => Err(self.failed(to.pe, failure)),
            _ => Ok(()),
        }
    }

    /// [`reap`](Self::reap), after which all that is under way will tell of its end. Whether nothing is any more.
    fn settle(&self, to: To, line: &mut Line) -> Result<bool> {
        if !line.queue.as_ref().is_some_and(Queue::is_busy) {
            return Ok(true);
        }
        self.reap(to, line)?;
        let Some(queue) = &mut line.queue else { return Ok(true) };
        if queue.failure().is_none()
            && let Some(close) = queue.close()
        {
            self.post(to, queue, &[close])?;
        }
        Ok(!queue.is_busy())
    }

    fn post(&self, to: To, queue: &mut Queue, chain: &[Request<'_>]) -> Result<()> {
        self.nic.post(to, chain).inspect_err(|error| {
            queue.give_up(Outcome::Refused(error.to_string())).for_each(|piece| self.pool.lose(piece));
        })
    }

    /// That a way to a peer has failed.
    #[cold]
    fn failed(&self, pe: usize, outcome: &Outcome) -> Error {
        let device = self.nic.name();
        match outcome {
            Outcome::Unreachable(what) => {
                let reason = format!("it does not answer over {device}: {what}");
                ErrorKind::PeerLost { pe, reason }.into()
            }
            Outcome::Refused(what) => ErrorKind::Fabric { pe, device, what: what.clone() }.into(),
            Outcome::Done | Outcome::Flushed => {
                ErrorKind::Fabric { pe, device, what: "the queue pair has failed".into() }.into()
            }
        }
    }

    /// Transfers between symmetric memory and a peer, where they lie.
    fn direct(&self, to: To, verb: Verb, at: usize, near: usize, bytes: usize, bell: Option<&Bell>) -> Result<Taken> {
        self.with_room(to, |queue, room| {
            let (most, mut chain) = (self.nic.limits().message, Vec::new());
            let mut done = 0;
            while done < bytes && chain.len() < room {
                let part = (bytes - done).min(most);
                let local = Local::At { at: near + done, bytes: part };
                done += part;
                chain.push(queue.request(verb, local, at + done - part, None, done == bytes));
            }
            let signaled = done == bytes && self.announce(queue, room, &mut chain, bell);
            self.post(to, queue, &chain)?;
            Ok(Taken { bytes: done, ticket: queue.made(), signaled })
        })
    }

    /// Transfers through pieces of the pool, which `fill` fills first.
    fn through_pool(
        &self,
        to: To,
        (verb, at): (Verb, usize),
        bytes: usize,
        bell: Option<&Bell>,
        late: impl Fn(usize, usize) -> Option<Late>,
        fill: impl Fn(usize, usize, usize),
    ) -> Result<Taken> {
        let pieces = self.pool.take(bytes, self.nic.limits().depth - 1);
        if pieces.is_empty() {
            if self.pool.has_lost_all(bytes) {
                let what =
                    "all registered memory for private buffers was lost with queue pairs that have failed".into();
                return Err(ErrorKind::Fabric { pe: to.pe, device: self.nic.name(), what }.into());
            }
            // They may be anywhere.
            self.connected().iter().try_for_each(|&to| self.settle(to, &mut self.line(to)).map(drop))?;
            return Ok(Taken::default());
        }
        self.pool.lend(pieces, |pieces| {
            self.with_room(to, |queue, room| {
                let (mut done, mut chain): (_, Vec<Request<'_>>) = (0, Vec::new());
                let mut pieces = pieces.by_ref().take(room).peekable();
                while let Some((piece, part)) = pieces.next() {
                    fill(piece.at, done, part);
                    let local = Local::At { at: piece.at, bytes: part };
                    let lent = Some(Lent { piece, late: late(done, part) });
                    chain.push(queue.request(verb, local, at + done, lent, pieces.peek().is_none()));
                    done += part;
                }
                let signaled = done == bytes && self.announce(queue, room, &mut chain, bell);
                self.post(to, queue, &chain)?;
                Ok(Taken { bytes: done, ticket: queue.made(), signaled })
            })
        })
    }

    /// Appends a signal to the chain that it announces, if the queue and the pool have room for it. Whether they have.
    fn announce<'a>(
        &self,
        queue: &mut Queue,
        room: usize,
        chain: &mut Vec<Request<'a>>,
        bell: Option<&'a Bell>,
    ) -> bool {
        let Some(bell) = bell.filter(|_| chain.len() < room) else { return false };
        let (verb, local, lent) = match bell.signal {
            Signal::Set(_) if self.nic.limits().inline < bell.value.len() => return false,
            Signal::Set(_) => (Verb::Write, Local::Inline(&bell.value), None),
            Signal::Add(add) => {
                let Some((piece, bytes)) = self.pool.take(8, 1).pop() else { return false };
                (Verb::FetchAdd { add }, Local::At { at: piece.at, bytes }, Some(Lent { piece, late: None }))
            }
        };
        queue.fence();
        chain.push(queue.request(verb, local, bell.at, lent, true));
        true
    }
}

/// A signal as requests want it.
struct Bell {
    at: usize,
    signal: Signal,
    value: [u8; 8],
}

impl Bell {
    fn new((at, signal): (usize, Signal)) -> Self {
        let (Signal::Set(value) | Signal::Add(value)) = signal;
        Bell { at, signal, value: value.to_ne_bytes() }
    }
}

impl<N: Nic> Endpoint for Network<N> {
    fn put(&self, to: To, at: usize, source: Near<Early>, signal: Option<(usize, Signal)>) -> Result<Taken> {
        let bell = signal.map(Bell::new);
        match source {
            Near::Symmetric { at: near, bytes } => self.direct(to, Verb::Write, at, near, bytes, bell.as_ref()),
            Near::Private(early) if early.bytes <= self.nic.limits().inline.min(INLINE) => {
                let mut buffer = [0; INLINE];
                let bytes = self.memory.take(early, &mut buffer);
                self.with_room(to, |queue, room| {
                    let mut chain = Vec::with_capacity(2);
                    chain.push(queue.request(Verb::Write, Local::Inline(bytes), at, None, true));
                    let signaled = self.announce(queue, room, &mut chain, bell.as_ref());
                    self.post(to, queue, &chain)?;
                    Ok(Taken { bytes: bytes.len(), ticket: queue.made(), signaled })
                })
            }
            Near::Private(early) => {
                let fill = |piece, from, part| self.memory.fill(piece, early.part(from, part));
                self.through_pool(to, (Verb::Write, at), early.bytes, bell.as_ref(), |_, _| None, fill)
            }
        }
    }

    fn get(&self, to: To, at: usize, target: Near<Late>) -> Result<Taken> {
        match target {
            Near::Symmetric { at: near, bytes } => self.direct(to, Verb::Read, at, near, bytes, None),
            Near::Private(late) => {
                let part = |from, bytes| Some(late.part(from, bytes));
                self.through_pool(to, (Verb::Read, at), late.bytes, None, part, |_, _, _| {})
            }
        }
    }

    fn amo(&self, to: To, at: usize, amo: CardAmo, held: Option<Late>) -> Result<Taken> {
        let verb = match amo {
            CardAmo::Add(add) => Verb::FetchAdd { add },
            CardAmo::CompareSwap { expected, new } => Verb::CompareSwap { expected, new },
        };
        self.through_pool(to, (verb, at), 8, None, |_, _| held, |_, _, _| {})
    }

    fn fence(&self, to: To) {
        if let Some(queue) = &mut self.line(to).queue {
            queue.fence();
        }
    }

    fn done(&self, to: To, ticket: u64) -> Result<bool> {
        let mut line = self.line(to);
        if line.queue.as_ref().is_some_and(|queue| !queue.is_done(ticket)) {
            self.settle(to, &mut line)?;
        }
        let Some(queue) = &line.queue else { return Ok(true) };
        match queue.failure() {
            Some(failure) if !queue.is_done(ticket) => Err(self.failed(to.pe, failure)),
            _ => Ok(queue.is_done(ticket)),
        }
    }

    fn quiet(&self, lane: Option<usize>) -> Result<bool> {
        let connected = self.connected();
        let mut those = connected.iter().filter(|to| lane.is_none_or(|lane| lane == to.lane));
        those.try_fold(true, |all, &to| {
            let mut line = self.line(to);
            let settled = self.settle(to, &mut line);
            // Another call may have found a failure before: one of another thread, that waited or wanted pieces of the pool.
            match line.queue.as_mut().and_then(Queue::owed_to_quiet) {
                Some(failure) => Err(self.failed(to.pe, failure)),
                None => Ok(settled? && all),
            }
        })
    }

    fn forget(&self, owner: usize) {
        for &to in self.connected().iter() {
            if let Some(queue) = &mut self.line(to).queue {
                queue.forget(owner);
            }
        }
    }

    fn idle(&self, awaited: Awaited) -> Result<Rest> {
        // What fails tells of it though it is not signaled, so nothing need be closed: that would be a packet for each wait.
        self.connected().iter().try_for_each(|&to| self.reap(to, &mut self.line(to)))?;
        self.nic.idle(awaited)
    }

    fn call(&self, pe: Option<usize>) -> Result<()> {
        let connected = self.connected();
        let lane = 0;
        // What lies on other lanes is asked for, too, lest the card has forgotten it.
        let is_asked = |to: &To| {
            let works = |queue: &Queue| queue.failure().is_none() && (to.lane == lane || queue.is_busy());
            self.line(*to).queue.as_ref().is_some_and(works)
        };
        let mut those: Vec<To> = connected.iter().filter(|to| is_asked(to)).copied().collect();
        those.extend(pe.map(|pe| To { lane, pe }).filter(|to| !connected.contains(to)));
        those.into_iter().try_for_each(|to| {
            self.with_room(to, |queue, _| match queue.probe() {
                Some(probe) => self.post(to, queue, &[probe]),
                None => Ok(()),
            })
        })
    }

    fn owed(&self) -> Vec<(usize, u64)> {
        let mut counts = BTreeMap::new();
        for &to in self.connected().iter() {
            *counts.entry(to.pe).or_default() += self.line(to).queue.as_ref().map_or(0, Queue::owed);
        }
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests;
