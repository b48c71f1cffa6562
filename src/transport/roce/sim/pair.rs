//! One simulated queue pair: what may happen on it next, and what then happens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{Ordering, fence};

use crate::transport::To;
use crate::transport::amo::AmoOp;
use crate::transport::loopback;
use crate::transport::roce::nic::{Completion, Local, Outcome, Request, Verb};
use crate::transport::roce::sim::{Peer, Random};

/// Bytes that arrive at once: whole cache lines, so that no word is torn.
const PART: usize = 256;

/// What has become of a peer, or of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Gone,
}

/// The requests of a queue pair that are under way.
pub(super) struct Pair {
    pub(super) to: To,
    /// Not yet executed, in order.
    sent: VecDeque<Wire>,
    /// Reads and atomics at the peer, not yet executed, in order.
    fetching: VecDeque<Wire>,
    /// Ended, and not yet told: in the order of their numbers.
    ended: BTreeMap<u64, (bool, Outcome)>,
    /// The number of the next to be told of.
    next: u64,
    told: VecDeque<Completion>,
    /// The number of the request that has failed, with which all later ones do.
    failed: Option<u64>,
}

/// A request under way.
struct Wire {
    number: u64,
    verb: Verb,
    near: Near,
    remote: usize,
    signaled: bool,
    fenced: bool,
    /// Bytes of it that have arrived.
    arrived: usize,
}

enum Near {
    Inline(Vec<u8>),
    At { at: usize, bytes: usize },
}

impl Wire {
    fn bytes(&self) -> usize {
        match &self.near {
            Near::Inline(bytes) => bytes.len(),
            Near::At { bytes, .. } => *bytes,
        }
    }
}

impl Pair {
    pub(super) fn new(to: To) -> Self {
        let (sent, fetching, told) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Pair { to, sent, fetching, ended: BTreeMap::new(), next: 1, told, failed: None }
    }

    pub(super) fn post(&mut self, request: &Request<'_>) {
        let &Request { verb, local, remote, number, signaled, fenced } = request;
        let near = match local {
            Local::Inline(bytes) => Near::Inline(bytes.to_vec()),
            Local::At { at, bytes } => Near::At { at, bytes },
        };
        self.sent.push_back(Wire { number, verb, near, remote, signaled, fenced, arrived: 0 });
    }

    /// Whether anything can happen.
    pub(super) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.fetching.is_empty() || !self.ended.is_empty()
    }

    /// What the PE is told of.
    pub(super) fn tell(&mut self, found: &mut Vec<Completion>) {
        found.extend(self.told.drain(..));
    }

    /// One of the things that can happen.
    pub(super) fn happen(&mut self, random: &mut Random, own: &Peer, peer: &Peer, fate: Fate) {
        let can_send = self.sent.front().is_some_and(|wire| !wire.fenced || self.fetching.is_empty());
        let can_fetch = !self.fetching.is_empty();
        let can_tell = self.ended.contains_key(&self.next);
        let things = [can_send, can_fetch, can_tell];
        let those: Vec<usize> = (0..3).filter(|thing| things[*thing]).collect();
        let Some(&thing) = those.get(random.below(those.len().max(1))) else { return };
        match thing {
            2 => self.tell_next(),
            1 if fate == Fate::Gone || self.fails(self.fetching.front()) => self.fail(thing),
            1 => self.fetch(own, peer),
            // What fetches is before all that is sent, and fails before.
            _ if can_fetch && fate == Fate::Gone => self.fail(1),
            _ if fate == Fate::Gone || self.fails(self.sent.front()) => self.fail(thing),
            _ => self.send(random, own, peer),
        }
    }

    /// Whether a request comes after one that has failed.
    fn fails(&self, wire: Option<&Wire>) -> bool {
        self.failed.is_some_and(|failed| wire.is_some_and(|wire| wire.number > failed))
    }

    /// The front of what was sent gets on: a part of a write arrives, or a fetch does.
    fn send(&mut self, random: &mut Random, own: &Peer, peer: &Peer) {
        let Some(wire) = self.sent.front_mut() else { return };
        if wire.verb.fetches() {
            self.fetching.extend(self.sent.pop_front());
            return;
        }
        let (bytes, from) = (wire.bytes(), wire.arrived);
        // Up to the next boundary, or some of these.
        let boundary = (wire.remote + from + 1).next_multiple_of(PART) - wire.remote;
        let part = (boundary + PART * random.below(8)).min(bytes) - from;
        let target = peer.at(wire.remote + from, part);
        let source = match &wire.near {
            Near::Inline(bytes) => Some(bytes[from..].as_ptr()),
            Near::At { at, .. } => own.at(at + from, part).map(<*mut u8>::cast_const),
        };
        match (target, source) {
            (Some(target), Some(source)) => {
                // What arrived before is visible before.
                fence(Ordering::Release);
                // SAFETY: both sides are valid for the part, as was just seen, and of different memory, or of one PE's
                // own, of which the link hands over ranges that are apart.
                unsafe { loopback::copy(target, source, part, usize::MAX) };
                wire.arrived += part;
                if wire.arrived == bytes {
                    let wire = self.sent.pop_front();
                    self.end(wire, Outcome::Done);
                }
            }
            _ => {
                let wire = self.sent.pop_front();
                self.end(wire, Outcome::Refused("the range lies in no region".into()));
            }
        }
    }

    /// The front of what fetches is executed.
    fn fetch(&mut self, own: &Peer, peer: &Peer) {
        let Some(wire) = self.fetching.pop_front() else { return };
        let bytes = wire.bytes();
        let near = match wire.near {
            Near::At { at, bytes } => own.at(at, bytes),
            Near::Inline(_) => None,
        };
        let (Some(source), Some(target)) = (peer.at(wire.remote, bytes), near) else {
            return self.end(Some(wire), Outcome::Refused("the range lies in no region".into()));
        };
        // SAFETY: both sides are valid for the bytes, as was just seen; words of atomics are aligned, as the link checks.
        unsafe {
            match wire.verb {
                Verb::FetchAdd { add } => {
                    let held = loopback::amo(source, AmoOp::Add, add, 0);
                    target.cast::<u64>().write_unaligned(held);
                }
                Verb::CompareSwap { expected, new } => {
                    let held = loopback::amo(source, AmoOp::CompareSwap, new, expected);
                    target.cast::<u64>().write_unaligned(held);
                }
                Verb::Read | Verb::Write => {
                    loopback::copy(target, source, bytes, usize::MAX);
                    fence(Ordering::Acquire);
                }
            }
        }
        self.end(Some(wire), Outcome::Done);
    }

    /// The front of one of the two fails, and with it all that are to come.
    fn fail(&mut self, thing: usize) {
        let wire = if thing == 1 { self.fetching.pop_front() } else { self.sent.pop_front() };
        let outcome =
            if self.fails(wire.as_ref()) { Outcome::Flushed } else { Outcome::Unreachable("no answer".into()) };
        self.end(wire, outcome);
    }

    fn end(&mut self, wire: Option<Wire>, outcome: Outcome) {
        if let Some(Wire { number, signaled, .. }) = wire {
            if outcome != Outcome::Done {
                self.failed.get_or_insert(number);
            }
            self.ended.insert(number, (signaled, outcome));
        }
    }

    /// The next is told of, if it is signaled or has failed.
    fn tell_next(&mut self) {
        let Some((signaled, outcome)) = self.ended.remove(&self.next) else { return };
        if signaled || outcome != Outcome::Done {
            self.told.push_back(Completion { number: self.next, outcome });
        }
        self.next += 1;
    }
}
