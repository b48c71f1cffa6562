//! n-way dissemination barrier (Hensgen, Finkel, Manber 1988; n-way: Hoefler, Mehlan, Mietke, Rehm 2006): in round r
//! every PE signals the PEs at distances k·radix^r, k = 1 … radix-1, and waits for those at the same distances on the
//! other side. ceil(log_radix n) rounds; every word has one writer and grows for ever, so nothing is ever reset.
//!
//! With each signal travels a *print*: 64 bits that say which call, with which arguments, the sender makes. A PE
//! combines the prints it hears ("equal so far" or "conflict", an idempotent operation, so the overlaps of
//! dissemination do no harm) and sends the combination on. At the end every PE knows the same verdict: all prints were
//! equal, or not. This makes a mismatched collective an error on every PE, in the same epoch, instead of a hang or
//! silent corruption.
//!
//! A slot is overwritten two epochs later at the earliest (slots alternate by the epoch's parity), and a PE that enters
//! epoch e+2 has left e+1, which every PE entered after leaving e: so a print is never overwritten before it is read.
//!
//! Knows nothing of heaps, transports or teams.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::sync::Call;
use crate::sync::words::{Idle, Why, Word, Words};

/// Bytes from one slot to the next: two cache lines, since the prefetcher takes lines in pairs.
const SLOT: usize = 128;

/// Bytes of a slot before the payload: the epoch and the print.
const HEAD: usize = 16;

/// Words that can travel with a signal.
pub const PAYLOAD: usize = (SLOT - HEAD) / 8;

/// A print that no call makes: the PEs heard so far differ.
const CONFLICT: u64 = u64::MAX;

/// What a barrier found: whether all PEs came with the same print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// All prints were equal.
    Agree,
    /// They were not; every PE of this epoch knows.
    Conflict,
}

/// How many ways a barrier disseminates: by default the whole team at once up to [`Radix::DEFAULT`], so that on one
/// host a PE depends on one hand-over, not on a chain of them; with more PEs than cores each link of a chain costs a
/// context switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Radix(Option<usize>);

impl Radix {
    /// The radix of large teams.
    pub const DEFAULT: usize = 16;

    /// This radix for every team; at least 2.
    pub fn of(radix: usize) -> Self {
        Radix(Some(radix.max(2)))
    }

    /// The radix of a team of `n`.
    pub fn for_team(self, n: usize) -> usize {
        self.0.unwrap_or(Self::DEFAULT).min(n).max(2)
    }
}

/// One PE's side of the barrier of a team.
#[derive(Debug)]
pub struct Barrier {
    me: usize,
    rounds: Box<[Round]>,
    half: usize,
    epoch: AtomicU64,
}

/// One round: to whom to send, and from whom to hear at which slot.
#[derive(Debug)]
struct Round {
    to: Box<[usize]>,
    from: Box<[usize]>,
    slots: usize,
}

impl Barrier {
    /// The barrier of `members` (world numbers in team order) as seen by the member with index `index`, with its slots
    /// at offset `at`, which hold no epoch past `epoch` to begin with. `radix` is at least 2; it and `epoch` are equal
    /// on all members.
    pub fn new(members: &[usize], index: usize, at: usize, radix: usize, epoch: u64) -> Self {
        let n = members.len();
        let mut rounds = Vec::new();
        let mut stride = 1;
        while stride < n {
            let distances = || (1..radix).map(|k| k * stride).take_while(|distance| *distance < n);
            rounds.push(Round {
                to: distances().map(|distance| members[(index + distance) % n]).collect(),
                from: distances().map(|distance| members[(index + n - distance) % n]).collect(),
                slots: at + rounds.len() * (radix - 1) * SLOT,
            });
            stride *= radix;
        }
        Barrier {
            me: members[index],
            half: rounds.len() * (radix - 1) * SLOT,
            rounds: rounds.into(),
            epoch: AtomicU64::new(epoch),
        }
    }

    /// Bytes of slots that a barrier of `n` PEs needs.
    pub fn bytes(n: usize, radix: usize) -> usize {
        let mut rounds = 0;
        let mut reach = 1;
        while reach < n {
            rounds += 1;
            reach *= radix;
        }
        2 * rounds * (radix - 1) * SLOT
    }

    /// Bytes of slots that suffice for every team of up to `n` PEs.
    pub fn bytes_up_to(n: usize, radix: Radix) -> usize {
        (1..=n).map(|members| Self::bytes(members, radix.for_team(members))).max().unwrap_or(0)
    }

    /// The epoch of the last barrier that this PE has entered.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Enters the barrier with a print and blocks until every member has entered. Collective; one thread of a PE at a
    /// time. `print` is not all ones.
    #[inline]
    pub fn arrive<W: Words>(&self, words: &W, call: Call, print: u64) -> Result<Verdict> {
        let mut arrival = self.enter(print);
        self.finish(words, call, &mut arrival)
    }

    /// Blocks until every member has entered.
    #[inline]
    pub fn finish<W: Words>(&self, words: &W, call: Call, arrival: &mut Arrival) -> Result<Verdict> {
        if let Some(verdict) = self.poll(words, arrival)? {
            return Ok(verdict);
        }
        let mut idle = Idle::default();
        let outcome = loop {
            if let Err(error) = words.pause(&mut idle, Why { call, on: self.awaited(arrival) }) {
                // The last signals may have come with the news that no more would.
                break self.poll(words, arrival).and_then(|last| last.ok_or(error));
            }
            match self.poll(words, arrival) {
                Ok(None) => {}
                Ok(Some(verdict)) => break Ok(verdict),
                Err(error) => break Err(error),
            }
        };
        words.resume(idle);
        outcome
    }

    /// Which barrier of the team an arrival is at, from 1.
    #[inline]
    pub fn number(arrival: &Arrival) -> u64 {
        arrival.epoch
    }

    /// Whether one round reaches everybody: then a few words can travel with each signal, on the same cache lines.
    pub fn is_flat(&self) -> bool {
        self.rounds.len() <= 1
    }

    /// Sends up to [`PAYLOAD`] words with the signal to the member `distance` further on, of a flat barrier. Between
    /// [`enter`](Self::enter) and the first [`poll`](Self::poll).
    #[inline]
    pub fn send<W: Words>(&self, words: &W, arrival: &Arrival, distance: usize, payload: &[u64]) -> Result<()> {
        debug_assert!(self.is_flat() && !arrival.told && payload.len() <= PAYLOAD);
        let Some(&pe) = self.rounds.first().and_then(|round| round.to.get(distance - 1)) else { return Ok(()) };
        let at = self.slot(arrival, distance) + HEAD;
        payload.iter().enumerate().try_for_each(|(i, value)| words.store(Word { pe, at: at + 8 * i }, *value))
    }

    /// Reads what came with the signal of the member `distance` back. After the barrier, before this PE enters another.
    #[inline]
    pub fn receive<W: Words>(&self, words: &W, arrival: &Arrival, distance: usize, payload: &mut [u64]) -> Result<()> {
        debug_assert!(self.is_flat() && payload.len() <= PAYLOAD);
        let at = self.slot(arrival, distance) + HEAD;
        for (i, value) in payload.iter_mut().enumerate() {
            *value = words.load(Word { pe: self.me, at: at + 8 * i })?;
        }
        Ok(())
    }

    /// The slot of a flat barrier's signal over a distance.
    #[inline]
    fn slot(&self, arrival: &Arrival, distance: usize) -> usize {
        let half = if arrival.epoch.is_multiple_of(2) { self.half } else { 0 };
        self.rounds[0].slots + half + (distance - 1) * SLOT
    }

    /// Enters the barrier with a print, without blocking: [`poll`](Self::poll) does the rest. A PE enters the next barrier only when it has left this.
    #[inline]
    pub fn enter(&self, print: u64) -> Arrival {
        debug_assert_ne!(print, CONFLICT);
        // One thread at a time: a plain increment, not a locked one.
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        self.epoch.store(epoch, Ordering::Relaxed);
        Arrival { epoch, combined: print, round: 0, told: false, heard: 0 }
    }

    /// Gets as far as is possible without waiting; the verdict once every member has entered.
    #[inline]
    pub fn poll<W: Words>(&self, words: &W, arrival: &mut Arrival) -> Result<Option<Verdict>> {
        let half = if arrival.epoch.is_multiple_of(2) { self.half } else { 0 };
        while let Some(round) = self.rounds.get(arrival.round) {
            let slots = round.slots + half;
            if !arrival.told {
                for (k, &pe) in round.to.iter().enumerate() {
                    let at = slots + k * SLOT;
                    words.store(Word { pe, at: at + 8 }, arrival.combined)?;
                    words.store(Word { pe, at }, arrival.epoch)?;
                    words.ring(pe);
                }
                arrival.told = true;
            }
            while arrival.heard < round.from.len() {
                let at = slots + arrival.heard * SLOT;
                if words.load(Word { pe: self.me, at })? < arrival.epoch {
                    return Ok(None);
                }
                if words.load(Word { pe: self.me, at: at + 8 })? != arrival.combined {
                    arrival.combined = CONFLICT;
                }
                arrival.heard += 1;
            }
            *arrival = Arrival { round: arrival.round + 1, told: false, heard: 0, ..*arrival };
        }
        Ok(Some(if arrival.combined == CONFLICT { Verdict::Conflict } else { Verdict::Agree }))
    }

    /// The PE that an arrival waits for.
    fn awaited(&self, arrival: &Arrival) -> Option<usize> {
        self.rounds.get(arrival.round)?.from.get(arrival.heard).copied()
    }
}

/// How far a PE has got in a barrier.
#[derive(Debug)]
pub struct Arrival {
    epoch: u64,
    combined: u64,
    round: usize,
    /// Whether this round's signals are sent.
    told: bool,
    /// How many of this round's signals have come.
    heard: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pe_hears_from_every_other_for_any_count_and_radix() {
        for n in 1..70 {
            let members: Vec<usize> = (0..n).map(|pe| pe * 3).collect();
            for radix in 2..18 {
                let sides: Vec<Barrier> = (0..n).map(|i| Barrier::new(&members, i, 0, radix, 0)).collect();
                let mut heard: Vec<Vec<bool>> = (0..n).map(|i| (0..n).map(|j| i == j).collect()).collect();
                for r in 0..sides[0].rounds.len() {
                    let before = heard.clone();
                    for (i, side) in sides.iter().enumerate() {
                        for (k, &pe) in side.rounds[r].from.iter().enumerate() {
                            assert_eq!(sides[pe / 3].rounds[r].to[k], members[i], "who sends is who is heard");
                            for j in 0..n {
                                heard[i][j] |= before[pe / 3][j];
                            }
                        }
                    }
                }
                assert!(heard.iter().flatten().all(|heard| *heard), "n = {n}, radix = {radix}");
                assert_eq!(Barrier::bytes(n, radix), 2 * sides[0].half);
            }
        }
    }
}
