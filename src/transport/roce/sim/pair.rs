//! One simulated queue pair: what may happen on it next, and what then happens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{Ordering, fence};

use crate::sync::atom::{accumulate, claim, observe, publish};
use crate::transport::To;
use crate::transport::loopback;
use crate::transport::roce::nic::{Completion, Local, Outcome, Request, Verb};
use crate::transport::roce::sim::{Cards, Peer, Random};

/// Bytes that arrive at once: whole cache lines, so that no word is torn.
const PART: usize = 256;

/// What has become of a peer, or of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Gone,
}

/// Where one can see what has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nowhere yet.
    Nowhere,
    /// In the memory of the PE, or of the peer.
    Here,
    There,
    /// A request of the PE has ended, well or not.
    End,
    Failure,
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
    /// How slow the way is: something happens once in so many times.
    slow: Option<usize>,
}

/// The slowest a way can be against the fastest, as a power of two.
const SLOWEST: usize = 5;

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
    /// What the word held, once an atomic operation has read it.
    held: Option<u64>,
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

    /// How many of the bytes that are left arrive next: up to the next boundary, or some of these.
    fn part(&self, random: &mut Random) -> usize {
        let from = self.remote + self.arrived;
        let boundary = (from + 1).next_multiple_of(PART) - from;
        (boundary + PART * random.below(8)).min(self.bytes() - self.arrived)
    }

    /// What an atomic operation writes over what the word held, if anything.
    fn written(&self, held: u64) -> Option<u64> {
        match self.verb {
            Verb::FetchAdd { add } => Some(held.wrapping_add(add)),
            Verb::CompareSwap { expected, new } => (held == expected).then_some(new),
            Verb::Read | Verb::Write => None,
        }
    }

    /// The second half of an atomic operation, if it has begun; what the word held.
    fn finish(&mut self, pe: usize, peer: &Peer, cards: &mut Cards) -> u64 {
        let Some(held) = self.held.take() else { return 0 };
        cards.0[pe] = false;
        if let Some(written) = self.written(held) {
            publish(peer.word(self.remote), written);
        }
        held
    }

    /// An atomic operation that the processor does, so that it is one among several processes.
    fn at_once(&self, peer: &Peer) -> u64 {
        match self.verb {
            Verb::FetchAdd { add } => accumulate(peer.word(self.remote), add),
            Verb::CompareSwap { expected, new } => claim(peer.word(self.remote), expected, new),
            Verb::Read | Verb::Write => 0,
        }
    }
}

impl Pair {
    pub(super) fn new(to: To) -> Self {
        let (sent, fetching, told) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Pair { to, sent, fetching, ended: BTreeMap::new(), next: 1, told, failed: None, slow: None }
    }

    pub(super) fn post(&mut self, request: &Request<'_>) {
        let &Request { verb, local, remote, number, signaled, fenced } = request;
        let near = match local {
            Local::Inline(bytes) => Near::Inline(bytes.to_vec()),
            Local::At { at, bytes } => Near::At { at, bytes },
        };
        self.sent.push_back(Wire { number, verb, near, remote, signaled, fenced, arrived: 0, held: None });
    }

    /// Whether anything can happen.
    pub(super) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.fetching.is_empty() || !self.ended.is_empty()
    }

    /// Whether the next is a write of nothing, by which a PE makes sure that the peer is there.
    pub(super) fn asks(&self) -> bool {
        self.sent.front().is_some_and(|wire| wire.bytes() == 0)
    }

    /// What the PE is told of.
    pub(super) fn tell(&mut self, found: &mut Vec<Completion>) {
        found.extend(self.told.drain(..));
    }

    /// One of the things that can happen, if it is not too early. Where there are `cards`, in histories, atomics take time, and
    /// some ways are slower than others.
    pub(super) fn happen(
        &mut self,
        random: &mut Random,
        own: &Peer,
        peer: &Peer,
        fate: Fate,
        mut cards: Option<&mut Cards>,
    ) -> Seen {
        let slowest = if cards.is_some() { SLOWEST } else { 0 };
        let slow = *self.slow.get_or_insert_with(|| 1 << random.below(slowest + 1));
        if random.below(slow) != 0 {
            return Seen::Nowhere;
        }
        let taken = cards.as_ref().is_some_and(|cards| cards.0[self.to.pe]);
        let waits = |wire: &Wire| taken && wire.verb.is_atomic() && wire.held.is_none();
        let can_send = self.sent.front().is_some_and(|wire| !wire.fenced || self.fetching.is_empty());
        let can_fetch = self.fetching.front().is_some_and(|wire| fate == Fate::Gone || !waits(wire));
        let can_tell = self.ended.contains_key(&self.next);
        let things = [can_send, can_fetch, can_tell];
        let those = || (0..3).filter(|thing| things[*thing]);
        let count = those().count();
        if count == 0 {
            return Seen::Nowhere;
        }
        let gone = fate == Fate::Gone;
        match those().nth(random.below(count)) {
            Some(2) => self.tell_next(),
            Some(1) if gone || self.fails(self.fetching.front()) => self.fail(1, peer, cards),
            Some(1) => self.fetch(random, own, peer, cards.take()),
            // What fetches is before all that is sent, and fails before.
            _ if gone && !self.fetching.is_empty() => self.fail(1, peer, cards),
            _ if gone || self.fails(self.sent.front()) => self.fail(0, peer, cards),
            _ => self.send(random, own, peer),
        }
    }

    /// What is under way gets lost. An atomic operation that has begun ends.
    pub(super) fn dry_up(&mut self, peer: &Peer, cards: &mut Cards) {
        if let Some(wire) = self.fetching.front_mut() {
            wire.finish(self.to.pe, peer, cards);
        }
        self.sent.clear();
        self.fetching.clear();
        self.ended.clear();
    }

    /// Whether a request comes after one that has failed.
    fn fails(&self, wire: Option<&Wire>) -> bool {
        self.failed.is_some_and(|failed| wire.is_some_and(|wire| wire.number > failed))
    }

    /// The front of what was sent gets on: a part of a write arrives, or a fetch does.
    fn send(&mut self, random: &mut Random, own: &Peer, peer: &Peer) -> Seen {
        let Some(wire) = self.sent.front_mut() else { return Seen::Nowhere };
        if wire.verb.fetches() {
            self.fetching.extend(self.sent.pop_front());
            return Seen::Nowhere;
        }
        let part = wire.part(random);
        let from = wire.arrived;
        let target = peer.at(wire.remote + from, part);
        let source = match &wire.near {
            Near::Inline(bytes) => Some(bytes[from..].as_ptr()),
            Near::At { at, .. } => own.at(at + from, part).map(<*mut u8>::cast_const),
        };
        let (Some(target), Some(source)) = (target, source) else {
            let wire = self.sent.pop_front();
            return self.end(wire, Outcome::Refused("the range lies in no region".into()));
        };
        // What arrived before is visible before.
        fence(Ordering::Release);
        // SAFETY: both sides are valid for the part, as was just seen, and of different memory, or of one PE's own, of
        // which the link hands over ranges that are apart.
        unsafe { loopback::copy(target, source, part, usize::MAX) };
        wire.arrived += part;
        if wire.arrived == wire.bytes() {
            let wire = self.sent.pop_front();
            self.end(wire, Outcome::Done);
        }
        // A write of nothing only asks whether the peer is there.
        if part == 0 { Seen::Nowhere } else { Seen::There }
    }

    /// The front of what fetches gets on: a part of a read is here, or half of an atomic operation is done.
    fn fetch(&mut self, random: &mut Random, own: &Peer, peer: &Peer, cards: Option<&mut Cards>) -> Seen {
        let Some(wire) = self.fetching.front_mut() else { return Seen::Nowhere };
        let part = wire.part(random);
        let near = match wire.near {
            Near::At { at, .. } => own.at(at + wire.arrived, part),
            Near::Inline(_) => None,
        };
        let (Some(source), Some(target)) = (peer.at(wire.remote + wire.arrived, part), near) else {
            let wire = self.fetching.pop_front();
            return self.end(wire, Outcome::Refused("the range lies in no region".into()));
        };
        if wire.verb.is_atomic() {
            let held = match cards {
                Some(cards) if wire.held.is_none() => {
                    wire.held = Some(observe(peer.word(wire.remote)));
                    cards.0[self.to.pe] = true;
                    return Seen::Nowhere;
                }
                Some(cards) => wire.finish(self.to.pe, peer, cards),
                None => wire.at_once(peer),
            };
            // SAFETY: the target is valid for 8 bytes, as was just seen.
            unsafe { target.cast::<u64>().write_unaligned(held) };
            let changed = wire.written(held).is_some_and(|written| written != held);
            let wire = self.fetching.pop_front();
            self.end(wire, Outcome::Done);
            return if changed { Seen::There } else { Seen::Nowhere };
        }
        // SAFETY: both sides are valid for the part, as was just seen, and apart, as above.
        unsafe { loopback::copy(target, source, part, usize::MAX) };
        fence(Ordering::Acquire);
        wire.arrived += part;
        if wire.arrived == wire.bytes() {
            let wire = self.fetching.pop_front();
            self.end(wire, Outcome::Done);
        }
        Seen::Here
    }

    /// The front of one of the two fails, and with it all that are to come.
    fn fail(&mut self, thing: usize, peer: &Peer, cards: Option<&mut Cards>) -> Seen {
        let mut wire = if thing == 1 { self.fetching.pop_front() } else { self.sent.pop_front() };
        let begun = wire.as_ref().is_some_and(|wire| wire.held.is_some());
        if let (Some(wire), Some(cards)) = (&mut wire, cards) {
            wire.finish(self.to.pe, peer, cards);
        }
        let outcome =
            if self.fails(wire.as_ref()) { Outcome::Flushed } else { Outcome::Unreachable("no answer".into()) };
        self.end(wire, outcome);
        if begun { Seen::There } else { Seen::Nowhere }
    }

    /// A request has ended, which nobody sees until it is told.
    fn end(&mut self, wire: Option<Wire>, outcome: Outcome) -> Seen {
        if let Some(Wire { number, signaled, .. }) = wire {
            if outcome != Outcome::Done {
                self.failed.get_or_insert(number);
            }
            self.ended.insert(number, (signaled, outcome));
        }
        Seen::Nowhere
    }

    /// The next is told of, if it is signaled or has failed.
    fn tell_next(&mut self) -> Seen {
        let Some((signaled, outcome)) = self.ended.remove(&self.next) else { return Seen::Nowhere };
        let seen = match outcome {
            Outcome::Done if !signaled => Seen::Nowhere,
            Outcome::Done => Seen::End,
            _ => Seen::Failure,
        };
        if seen != Seen::Nowhere {
            self.told.push_back(Completion { number: self.next, outcome });
        }
        self.next += 1;
        seen
    }
}
