//! The members of a team, with the synchronisation state that is theirs alone.
//!
//! A group owns a *slot*: words at the same offset on all PEs, reserved at start-up. When a slot is used again, its
//! epochs go on from the highest that any member has seen there, so that nothing left in it can be mistaken for news.
//!
//! Every collective call passes one barrier with a print of the call and its arguments. If the prints differ, all
//! members learn it there, show each other what they called, and return the same error; the group stays in step. Knows
//! nothing of user memory.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, ErrorKind, Result, ranges};
use crate::heap::control::{Layout, RECORD_WORDS};
use crate::heap::place;
use crate::sync::barrier::{Arrival, Radix};
use crate::sync::{Barrier, Call, Verdict, Word, Words};
use crate::transport::Peer;
use crate::transport::link::Link;
use crate::watch::Begun;
use crate::watch::lookout::Open;

/// What the members of a group show each other.
pub(crate) type Record = [u64; RECORD_WORDS];

/// Bytes that each PE says of its call, where they disagree.
pub(crate) const SAID: usize = 1024;

/// Bits of a print that hold the call's argument; the call's code lies above.
const ARGUMENT_BITS: u32 = 56;

/// The largest argument of a print: stands for all that is too large, and for nonsense.
pub(crate) const HUGE: u64 = (1 << 50) - 1;

/// What stands for the offset of a block of another world, and of a block that takes no room.
pub(crate) const FOREIGN: u64 = HUGE;
pub(crate) const EMPTY: u64 = HUGE - 1;

/// In the argument of a `realloc`: what follows is the block, not the size.
pub(crate) const OF_BLOCK: u64 = 1 << 50;

/// Marks the argument of a `free` or `realloc` of a block in which the caller holds a lock.
pub(crate) const HOLDS_LOCK: u64 = 1 << 51;

/// Marks the argument of a `channel` whose capacity is 0.
pub(crate) const NO_ROOM: u64 = 1 << 50;

/// The slots of one PE: which are in use, and how far the epochs of each have got.
#[derive(Debug)]
pub(crate) struct Slots(Mutex<Vec<Slot>>);

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    used: bool,
    epoch: u64,
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        Slots(Mutex::new(vec![Slot::default(); slots]))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Takes a slot and returns its last epoch; `None` if it is in use.
    pub(crate) fn take(&self, slot: usize) -> Option<u64> {
        let slot = &mut self.lock()[slot];
        (!std::mem::replace(&mut slot.used, true)).then_some(slot.epoch)
    }

    /// Gives a slot back that no team has used.
    pub(crate) fn give_back(&self, slot: usize) {
        self.lock()[slot].used = false;
    }

    /// Gives a slot back whose last epoch is `epoch`.
    pub(crate) fn release(&self, slot: usize, epoch: u64) {
        self.lock()[slot] = Slot { used: false, epoch };
    }

    /// Takes the lowest slot that is free on all who call this together, and returns it with the last epoch that any of
    /// them has seen there. `exchange` gives what all show of a phase, 0 or 1, of an attempt, in any order. What it fails
    /// with leaves no slot taken.
    ///
    /// # Errors
    /// [`NoTeamSlot`](ErrorKind::NoTeamSlot), on all alike.
    pub(crate) fn take_common(
        &self,
        mut exchange: impl FnMut(u64, usize, [u64; 4]) -> Result<Vec<[u64; 4]>>,
    ) -> Result<(usize, u64)> {
        for attempt in 0.. {
            let maps = exchange(attempt, 0, self.free_map())?;
            let common = (0..4).find_map(|i| {
                let common = maps.iter().fold(u64::MAX, |all, map| all & map[i]);
                (common != 0).then(|| 64 * i + common.trailing_zeros() as usize)
            });
            // Another thread may be making another team, and may have been faster.
            let taken = common.and_then(|slot| self.take(slot));
            let give_back = || common.filter(|_| taken.is_some()).into_iter().for_each(|slot| self.give_back(slot));
            // Also where there is none: whoever goes on knows that all have seen the maps.
            let mine = [taken.is_some().into(), taken.unwrap_or(0), 0, 0];
            let claims = exchange(attempt, 1, mine).inspect_err(|_| give_back())?;
            let slot = common.ok_or_else(|| ErrorKind::NoTeamSlot { slots: self.lock().len() })?;
            if claims.iter().all(|claim| claim[0] == 1) {
                return Ok((slot, claims.iter().map(|claim| claim[1]).max().unwrap_or(0)));
            }
            give_back();
        }
        unreachable!("the loop has no end")
    }

    /// The slots that are free, a bit each.
    fn free_map(&self) -> [u64; 4] {
        let slots = self.lock();
        let mut free = [0_u64; 4];
        for (i, _) in slots.iter().enumerate().filter(|(_, slot)| !slot.used) {
            free[i / 64] |= 1 << (i % 64);
        }
        free
    }
}

/// The members of a team as one of them keeps them.
#[derive(Debug)]
pub(crate) struct Group {
    peers: Box<[Peer]>,
    me: usize,
    slot: usize,
    exchange: usize,
    barrier: Barrier,
    /// The epoch in which the group was made, equal on all members and never again in this slot.
    born: u64,
    /// Whether its reports name PEs by their numbers in the world.
    worldly: bool,
    /// Of whom the group's last agreement on who is left was, and how many there were of the same.
    gathered: Mutex<(Vec<usize>, u64)>,
    /// Set once a collective call of this PE has ended before the others came: it is no longer in step with them.
    out_of_step: OnceLock<()>,
}

impl Group {
    /// The team of `members` (world numbers) in `slot`, which must hold no epoch past `epoch`, as seen by its member
    /// `me`.
    #[track_caller]
    pub(crate) fn new(
        link: &Link,
        layout: &Layout,
        members: &[usize],
        me: usize,
        slot: usize,
        epoch: u64,
        radix: Radix,
    ) -> Self {
        let radix = radix.for_team(members.len());
        if let Some(check) = link.heap().check() {
            check.team_made(slot, members.to_vec(), Location::caller());
        }
        Group {
            peers: members.iter().map(|&pe| link.peers()[pe]).collect(),
            me,
            slot,
            exchange: layout.exchange(slot),
            barrier: Barrier::new(members, me, layout.barrier(slot), radix, epoch),
            born: epoch,
            worldly: false,
            gathered: Mutex::default(),
            out_of_step: OnceLock::new(),
        }
    }

    /// Its reports name PEs by their numbers in the world.
    pub(crate) fn worldly(mut self) -> Self {
        self.worldly = true;
        self
    }

    /// A key for an agreement of those that are left: of this group, of these PEs, for this time. Never 0, and equal on all
    /// that agree: they have ended equally many agreements of the same PEs, since one that another loss has ended is not
    /// one of these.
    pub(crate) fn key(&self, left: &[usize]) -> u64 {
        let gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let time = if gathered.0 == left { gathered.1 } else { 0 };
        digest([self.slot as u64, self.born, time].into_iter().chain(left.iter().map(|pe| *pe as u64))) | 1
    }

    /// An agreement of these PEs has ended, for all of them alike.
    pub(crate) fn has_gathered(&self, left: &[usize]) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.0 == left {
            gathered.1 += 1;
        } else {
            *gathered = (left.to_vec(), 1);
        }
    }

    #[inline(always)]
    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    #[inline(always)]
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// The slot, and the last epoch in it.
    pub(crate) fn slot(&self) -> (usize, u64) {
        (self.slot, self.barrier.epoch())
    }

    /// Their world numbers, in team order.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.peers.iter().map(|peer| peer.pe)
    }

    /// The member that is PE `world` of the world.
    pub(crate) fn position(&self, world: usize) -> Option<usize> {
        self.members().position(|pe| pe == world)
    }

    /// Blocks until all members have made this call with this argument. Collective.
    #[inline]
    #[track_caller]
    pub(crate) fn agree(&self, link: &Link, call: Call, argument: u64) -> Result<()> {
        let print = (call as u64) << ARGUMENT_BITS | argument;
        match self.arrive(link, call, print)? {
            Verdict::Agree => Ok(()),
            Verdict::Conflict => Err(self.disagreement_at(link, print)),
        }
    }

    /// Records that the calling thread is in a call of this group, until the result is dropped.
    #[inline]
    #[track_caller]
    pub(crate) fn begin<'l>(&self, link: &'l Link, call: Call, number: u64) -> Open<'l> {
        link.lookout().begin(Begun { call, name: "", site: Location::caller(), number, team: self.slot })
    }

    /// Begins to meet all members for a call that only its caller knows, by a digest of it and its arguments. Collective.
    pub(crate) fn enter(&self, digest: u64) -> Arrival {
        self.barrier.enter((Call::Custom as u64) << ARGUMENT_BITS | digest & ((1 << ARGUMENT_BITS) - 1))
    }

    /// The barrier itself, for what travels with it.
    pub(crate) fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// Whether all members have made the same call; `call` is its name and arguments.
    pub(crate) fn poll(&self, link: &Link, arrival: &mut Arrival, call: impl FnOnce() -> String) -> Result<bool> {
        match self.watched(self.first_poll(link, arrival))? {
            None => self.watched(link.lookout().check()).map(|()| false),
            Some(Verdict::Agree) => Ok(true),
            Some(Verdict::Conflict) => Err(self.disagreement(link, &call())),
        }
    }

    /// Blocks until all members have made the same call; `call` is its name and arguments.
    #[track_caller]
    pub(crate) fn finish(&self, link: &Link, arrival: &mut Arrival, call: impl FnOnce() -> String) -> Result<()> {
        match self.complete(link, Call::Custom, arrival)? {
            Verdict::Agree => Ok(()),
            Verdict::Conflict => Err(self.disagreement(link, &call())),
        }
    }

    /// Every member's record, in team order. Collective.
    pub(crate) fn exchange(&self, link: &Link, mine: Record) -> Result<Vec<Record>> {
        link.require_own_process()?;
        for (i, value) in mine.into_iter().enumerate() {
            link.store(Word { pe: link.me(), at: self.exchange + 8 * i }, value)?;
        }
        self.settle(link)?;
        let read = |pe| -> Result<Record> {
            let mut record = Record::default();
            for (i, value) in record.iter_mut().enumerate() {
                *value = link.load(Word { pe, at: self.exchange + 8 * i })?;
            }
            Ok(record)
        };
        let records = self.members().map(read).collect::<Result<Vec<_>>>()?;
        // Nobody replaces its record before all have read it.
        self.settle(link)?;
        Ok(records)
    }

    /// A barrier inside a collective call, where all members are known to be.
    pub(crate) fn settle(&self, link: &Link) -> Result<()> {
        self.arrive(link, Call::Exchange, (Call::Exchange as u64) << ARGUMENT_BITS).map(|_| ())
    }

    #[inline]
    #[track_caller]
    fn arrive(&self, link: &Link, call: Call, print: u64) -> Result<Verdict> {
        self.complete(link, call, &mut self.barrier.enter(print))
    }

    /// Ends a meeting. What is recorded of it is written after this PE's own signals are out, where it delays nobody.
    #[inline]
    #[track_caller]
    fn complete(&self, link: &Link, call: Call, arrival: &mut Arrival) -> Result<Verdict> {
        let number = Barrier::number(arrival);
        let first = self.watched(self.first_poll(link, arrival))?;
        let _open = self.begin(link, call, number);
        first.map_or_else(|| self.watched(self.barrier.finish(link, call, arrival)), Ok)
    }

    /// Sends this PE's signals, unless this is not its process or a member is known to be lost.
    #[inline]
    fn first_poll(&self, link: &Link, arrival: &mut Arrival) -> Result<Option<Verdict>> {
        link.require_own_process()?;
        if link.lookout().era() != 0 {
            link.lookout().require(self.members())?;
        }
        self.barrier.poll(link, arrival)
    }

    /// Remembers that a meeting has failed.
    #[inline]
    fn watched<R>(&self, outcome: Result<R>) -> Result<R> {
        outcome.inspect_err(|_| {
            let _ = self.out_of_step.set(());
        })
    }

    /// Whether a collective call of this PE ended in vain, so that the next would meet another of the others.
    pub(crate) fn is_out_of_step(&self) -> bool {
        self.out_of_step.get().is_some()
    }

    /// A disagreement on a call of this library, with its place in the program.
    #[cold]
    #[track_caller]
    fn disagreement_at(&self, link: &Link, print: u64) -> Error {
        self.disagreement(link, &format!("{} at {}", describe(print), place(Location::caller())))
    }

    /// All members made different calls, and know it: each shows its own, and all report the same.
    #[cold]
    fn disagreement(&self, link: &Link, call: &str) -> Error {
        match self.tell(link, call) {
            Ok(calls) => {
                let numbers: Vec<usize> =
                    if self.worldly { self.members().collect() } else { (0..calls.len()).collect() };
                ErrorKind::Mismatch { report: by_value_of(&numbers, &calls, "calls", "call") }.into()
            }
            Err(error) => error,
        }
    }

    /// What each member says, up to [`SAID`] bytes, in team order. Collective. Everybody's record begins with the length
    /// of its text, so all make as many exchanges as the longest needs.
    fn tell(&self, link: &Link, text: &str) -> Result<Vec<String>> {
        const PART: usize = 8 * (RECORD_WORDS - 1);
        let text = &text.as_bytes()[..text.len().min(SAID)];
        let mut said = vec![Vec::new(); self.peers.len()];
        let (mut start, mut longest) = (0, 1);
        while start < longest {
            let mut record = [0; 8 * RECORD_WORDS];
            let part = &text[start.min(text.len())..(start + PART).min(text.len())];
            record[..8].copy_from_slice(&text.len().to_ne_bytes());
            record[8..8 + part.len()].copy_from_slice(part);
            for (said, record) in said.iter_mut().zip(self.exchange(link, bytemuck::cast(record))?) {
                let len = (record[0] as usize).min(SAID);
                longest = longest.max(len);
                said.extend(&bytemuck::bytes_of(&record)[8..][..len.saturating_sub(start).min(PART)]);
            }
            start += PART;
        }
        Ok(said.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect())
    }
}

/// The ways to split a team; the codes are arguments of prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Split {
    Strided,
    List,
    Colour,
    Rows,
    Columns,
}

impl Split {
    /// The call with its arguments.
    pub(crate) fn describe(self, [a, b, c]: [u64; 3]) -> String {
        let name = Self::name(self as u64);
        match self {
            Split::Strided => format!("{name}({a}, {}, {c})", b as i64),
            Split::List => format!("{name}({a} PEs, digest {b:016x})"),
            Split::Colour => name.into(),
            Split::Rows | Split::Columns => format!("{name}({a})"),
        }
    }

    fn name(code: u64) -> &'static str {
        ["split_strided", "split_list", "split_colour", "split_2d", "split_2d"]
            .get(code as usize)
            .unwrap_or(&"team split")
    }
}

/// FNV-1a of some numbers: tells lists apart that differ by mistake.
pub(crate) fn digest(numbers: impl IntoIterator<Item = u64>) -> u64 {
    (numbers.into_iter().flat_map(u64::to_le_bytes))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A print in words.
fn describe(print: u64) -> String {
    let argument = print & ((1 << ARGUMENT_BITS) - 1);
    let call = Call::of(print >> ARGUMENT_BITS);
    let size = argument & HUGE;
    let bytes = if size == HUGE { "far too many".to_string() } else { size.to_string() };
    let block = || {
        let block = match size {
            FOREIGN => "a block of another world".to_string(),
            EMPTY => "an empty block".to_string(),
            _ => format!("offset {size}"),
        };
        block + if argument & HOLDS_LOCK == 0 { "" } else { ", in which it holds a lock" }
    };
    match call {
        Call::Alloc | Call::AllocZeroed => match argument >> 50 {
            6 => format!("{}({bytes} bytes)", call.name()),
            63 => format!("{}({bytes} bytes, with an impossible alignment)", call.name()),
            align => format!("{}({bytes} bytes, aligned to {})", call.name(), 1_u64 << align),
        },
        Call::Channel => {
            let capacity = if argument & NO_ROOM == 0 { "" } else { ", capacity 0" };
            format!("channel(from PE {} to PE {}{capacity})", size >> 25, size & ((1 << 25) - 1))
        }
        Call::Realloc if argument & OF_BLOCK != 0 => format!("realloc({})", block()),
        Call::Realloc => format!("realloc({bytes} bytes)"),
        Call::Free => format!("free({})", block()),
        Call::Split => Split::name(argument).into(),
        _ => call.name().into(),
    }
}

/// Who has what, grouped by value: `PE 2 calls x, PEs 0-1 and 3 call y`, with the verb for one and for many; the
/// smallest group first.
pub(crate) fn by_value(values: &[String], one: &str, many: &str) -> String {
    by_value_of(&(0..values.len()).collect::<Vec<_>>(), values, one, many)
}

/// [`by_value`], for PEs with these numbers.
fn by_value_of(numbers: &[usize], values: &[String], one: &str, many: &str) -> String {
    let mut groups: Vec<(&String, Vec<usize>)> = Vec::new();
    for (&pe, value) in numbers.iter().zip(values) {
        match groups.iter_mut().find(|(other, _)| *other == value) {
            Some((_, pes)) => pes.push(pe),
            None => groups.push((value, vec![pe])),
        }
    }
    groups.sort_by_key(|(_, pes)| pes.len());
    let line = |(value, pes): &(&String, Vec<usize>)| match pes.as_slice() {
        [pe] => format!("PE {pe} {one} {value}"),
        pes => format!("PEs {} {many} {value}", ranges(pes)),
    };
    groups.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_on_all_or_on_none() {
        let slots = Slots::new(3);
        assert_eq!(slots.take_common(|_, _, mine| Ok(vec![mine])).unwrap(), (0, 0));
        // Nothing stays taken where the others do not come to the second phase, or are faster.
        let lost = || ErrorKind::BadTeam("made up".into()).into();
        let alone = slots.take_common(|_, phase, mine| if phase == 0 { Ok(vec![mine]) } else { Err(lost()) });
        assert!(alone.is_err());
        let slower =
            |attempt, phase, mine| Ok(vec![mine, if (attempt, phase) == (0, 1) { [0; 4] } else { [u64::MAX; 4] }]);
        let claims = |attempt, phase, mine| {
            slower(attempt, phase, mine).map(|all: Vec<[u64; 4]>| match (attempt, phase) {
                (1.., 1) => vec![mine, [1, 77, 0, 0]],
                _ => all,
            })
        };
        assert_eq!(slots.take_common(claims).unwrap(), (1, 77));
        assert_eq!(slots.take_common(|_, _, mine| Ok(vec![mine])).unwrap(), (2, 0));
        let full = slots.take_common(|_, _, mine| Ok(vec![mine])).unwrap_err();
        assert!(matches!(full.kind(), ErrorKind::NoTeamSlot { slots: 3 }), "{full}");
    }

    #[test]
    fn a_report_groups_and_names_the_odd_one_first() {
        let said: Vec<String> = ["y", "y", "x", "y"].map(String::from).to_vec();
        assert_eq!(by_value(&said, "calls", "call"), "PE 2 calls x, PEs 0-1 and 3 call y");
    }
}
