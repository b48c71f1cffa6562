//! Checked mode (`SHMEM_CHECK=1`): what a PE remembers of its symmetric memory, to tell accesses that are wrong from
//! those that are right.
//!
//! - Every allocation has a *birth*, a number that is never used again, and in checked mode a handle carries that of the
//!   allocation it came from: a handle to what was freed is found out, also when its bytes belong to something else since.
//! - Memory that a library above works on for a while (the buffers of a started collective) is *reserved*: written in a
//!   small recorder in the control page, where the other PEs of the host look before they write there.
//! - Locks and teams are remembered with their places in the program, for the reports at the end.
//!
//! All of it is local knowledge, so checking never waits for another PE. Knows nothing of routes and of team numbers:
//! PEs are those of the world.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorKind, Result, ranges};
use crate::heap::control::{RESERVED, RESERVED_SLOTS};
use crate::heap::{Heap, Segment};
use crate::sync::atom::Atoms;
use crate::sync::recorder::{EVENT, Recorder};

/// A place in a program.
pub(crate) type Site = &'static Location<'static>;

/// The birth of memory that was not allocated: the workspaces of teams.
pub(crate) const NO_BIRTH: u64 = 0;

/// Teams that last as long as the world, by their slots.
const PERMANENT_TEAMS: usize = 2;

/// Lines of the report on what was not freed, and offsets in a line.
const MOST_LINES: usize = 20;
const MOST_OFFSETS: usize = 4;

/// The state of a reservation that has ended; before, it is the number of the call.
const ENDED: u64 = u64::MAX;

/// What one PE remembers.
pub(crate) struct Check {
    me: usize,
    /// The workspaces of the teams, by slot.
    workspaces: Vec<Range<usize>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Every allocation that ever was: birth 1 comes first.
    births: Vec<Birth>,
    /// Those that are: their births by offset.
    live: BTreeMap<usize, u64>,
    /// Where the overlay is, which is never freed.
    overlay: Option<usize>,
    /// By slot.
    teams: BTreeMap<usize, Team>,
    /// The locks that this PE holds, by offset.
    locks: BTreeMap<usize, Site>,
    reserved: Vec<Reserved>,
}

struct Birth {
    bytes: Range<usize>,
    site: Site,
    /// Where its size was changed last.
    resized: Option<Site>,
    freed: Option<Site>,
}

struct Team {
    members: Vec<usize>,
    site: Site,
    destroyed: Option<Site>,
}

struct Reserved {
    /// Its number in the recorder at first, and now.
    number: u64,
    shown: u64,
    bytes: Range<usize>,
    user: User,
    /// Whether this PE's program may write there.
    lent: bool,
}

/// For what memory is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) call: &'static str,
    /// Its number among the calls of its kind; 0 where these are not counted.
    pub(crate) number: u64,
    pub(crate) site: Site,
}

/// Symmetric memory of this PE on which a library above this one works by itself, until this is dropped. Made by
/// [`World::reserve`](crate::World::reserve).
#[derive(Debug)]
#[must_use = "the reservation ends when this is dropped"]
pub struct Reservation<'w>(Option<(&'w Heap, u64)>);

impl<'w> Reservation<'w> {
    /// In checked mode, of the bytes of a handle of `heap` on this PE.
    pub(crate) fn new(heap: &'w Heap, of: &Heap, bytes: Range<usize>, user: User) -> Self {
        let possible = !bytes.is_empty() && heap.is_same(of) && heap.require_own_process().is_ok();
        let reserve = |check: &Check| (heap, check.reserve(heap.segment(), bytes, user));
        Reservation(heap.check().filter(|_| possible).map(reserve))
    }

    /// Lets this PE's program write to the memory, too, or no longer: where it has its part in what the library does.
    pub fn lend(&self, lent: bool) {
        if let Some((heap, number)) = self.0
            && let Some(check) = heap.check()
            && heap.require_own_process().is_ok()
        {
            check.lend(number, lent);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some((heap, number)) = self.0
            && let Some(check) = heap.check()
            && heap.require_own_process().is_ok()
        {
            check.release(heap.segment(), number);
        }
    }
}

impl Check {
    /// For PE `me`, of whose segment teams have these parts.
    pub(crate) fn new(me: usize, workspaces: Vec<Range<usize>>) -> Check {
        Check { me, workspaces, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes are allocated; returns their birth.
    pub(crate) fn allocated(&self, bytes: Range<usize>, site: Site) -> u64 {
        let mut state = self.state();
        let offset = bytes.start;
        state.births.push(Birth { bytes, site, resized: None, freed: None });
        let birth = state.births.len() as u64;
        state.live.insert(offset, birth);
        birth
    }

    /// The allocation at an offset has another size.
    pub(crate) fn resized(&self, bytes: Range<usize>, site: Site) {
        let mut state = self.state();
        if let Some(birth) = state.live.get(&bytes.start).copied().and_then(|birth| state.birth(birth)) {
            (birth.bytes, birth.resized) = (bytes, Some(site));
        }
    }

    /// The allocation at an offset is given back.
    pub(crate) fn freed(&self, offset: usize, site: Site) {
        let mut state = self.state();
        if let Some(birth) = state.live.remove(&offset).and_then(|birth| state.birth(birth)) {
            birth.freed = Some(site);
        }
    }

    /// The birth of the allocation that covers an offset.
    pub(crate) fn birth_at(&self, offset: usize) -> u64 {
        self.state().live.range(..=offset).next_back().map_or(NO_BIRTH, |(_, birth)| *birth)
    }

    /// Fails if the bytes, which a handle of this birth reaches, are no longer its own.
    pub(crate) fn reach(&self, birth: u64, bytes: &Range<usize>, site: Site) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        let history = match state.birth(birth) {
            None => self.of_a_team(&state, bytes),
            Some(known) => {
                let made = known.site;
                let resized = known.resized.map_or_else(String::new, |site| format!("resized at {}, ", place(site)));
                match known.freed {
                    None if known.bytes.start <= bytes.start && bytes.end <= known.bytes.end => None,
                    None => {
                        let Range { start, end } = known.bytes;
                        let made = place(made);
                        Some(format!("what was allocated at {made} has only the bytes {start}..{end}, {resized}"))
                    }
                    Some(freed) => {
                        let mut history = format!("freed at {}, {resized}allocated at {}", place(freed), place(made));
                        if let Some(heir) = state.covering(bytes.start) {
                            let _ = write!(history, "; now they belong to what was allocated at {}", place(heir.site));
                        }
                        Some(history)
                    }
                }
            }
        };
        history.map_or(Ok(()), |history| {
            let history = history.trim_end_matches(", ").to_owned();
            Err(ErrorKind::UseAfterFree { pe: self.me, bytes: bytes.clone(), site: place(site), history }.into())
        })
    }

    /// What is wrong with bytes of a team's workspace.
    fn of_a_team(&self, state: &State, bytes: &Range<usize>) -> Option<String> {
        let slot = self.workspaces.iter().position(|space| space.start <= bytes.start && bytes.end <= space.end)?;
        let team = state.teams.get(&slot)?;
        let destroyed = place(team.destroyed?);
        Some(format!("the workspace of the team made at {}, destroyed at {destroyed}", place(team.site)))
    }

    /// Fails if the bytes of PE `pe`, which this PE is about to write, are reserved there. `segment` is that PE's, if it
    /// is mapped here.
    pub(crate) fn write(&self, pe: usize, segment: Option<&Segment>, bytes: &Range<usize>, site: Site) -> Result<()> {
        let user = if pe == self.me {
            let state = self.state();
            let reserved = state.reserved.iter().find(|reserved| !reserved.lent && overlap(&reserved.bytes, bytes));
            reserved.map(|reserved| (reserved.bytes.clone(), reserved.user.to_string()))
        } else {
            segment.and_then(|segment| found_in(segment, bytes))
        };
        user.map_or(Ok(()), |(reserved, user)| {
            let (bytes, site) = (bytes.clone(), place(site));
            Err(ErrorKind::InUse { pe: self.me, target: pe, bytes, site, reserved, user }.into())
        })
    }

    /// Reserves bytes of this PE, whose segment is `segment`; returns the number by which this ends.
    pub(crate) fn reserve(&self, segment: &Segment, bytes: Range<usize>, user: User) -> u64 {
        let mut state = self.state();
        let number = show(segment, &bytes, user);
        state.reserved.push(Reserved { number, shown: number, bytes, user, lent: false });
        // What lasts for long is shown again where its slot has been taken, as long as all find one.
        let mut latest = number;
        while state.reserved.len() <= RESERVED_SLOTS as usize
            && let Some(hidden) = state.reserved.iter_mut().find(|old| old.shown + RESERVED_SLOTS <= latest)
        {
            latest = show(segment, &hidden.bytes, hidden.user);
            hidden.shown = latest;
        }
        number
    }

    /// Whether this PE's program may write to what is reserved.
    pub(crate) fn lend(&self, number: u64, lent: bool) {
        if let Some(reserved) = self.state().reserved.iter_mut().find(|reserved| reserved.number == number) {
            reserved.lent = lent;
        }
    }

    /// Ends a reservation.
    pub(crate) fn release(&self, segment: &Segment, number: u64) {
        let mut state = self.state();
        if let Some(at) = state.reserved.iter().position(|reserved| reserved.number == number) {
            recorder().change(&Reservations(segment), state.reserved.swap_remove(at).shown, ENDED);
        }
    }

    /// The overlay's block begins at an offset.
    pub(crate) fn overlaid(&self, offset: usize) {
        self.state().overlay = Some(offset);
    }

    /// This PE has taken a lock.
    pub(crate) fn locked(&self, offset: usize, site: Site) {
        self.state().locks.insert(offset, site);
    }

    /// This PE has given a lock back.
    pub(crate) fn unlocked(&self, offset: usize) {
        self.state().locks.remove(&offset);
    }

    /// A lock in these bytes that this PE holds: its offset.
    pub(crate) fn lock_in(&self, bytes: Range<usize>) -> Option<usize> {
        self.state().locks.range(bytes).next().map(|(offset, _)| *offset)
    }

    /// A team of these PEs has a slot.
    pub(crate) fn team_made(&self, slot: usize, members: Vec<usize>, site: Site) {
        self.state().teams.insert(slot, Team { members, site, destroyed: None });
    }

    /// The team in a slot is no more.
    pub(crate) fn team_destroyed(&self, slot: usize, site: Site) {
        if let Some(team) = self.state().teams.get_mut(&slot) {
            team.destroyed = Some(site);
        }
    }

    /// What is left over at the end of the world, a line each. What is the same on all PEs, the first of them says.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let state = self.state();
        let mut lines = if self.me == 0 { state.leaks() } else { Vec::new() };
        for (slot, team) in &state.teams {
            if *slot >= PERMANENT_TEAMS && team.destroyed.is_none() && team.members.first() == Some(&self.me) {
                let plural = if team.members.len() == 1 { "PE" } else { "PEs" };
                let mut members = team.members.clone();
                members.sort_unstable();
                let (members, site) = (ranges(&members), place(team.site));
                lines.push(format!("the team of {plural} {members}, made at {site}, was never destroyed"));
            }
        }
        for (offset, site) in &state.locks {
            let (me, site) = (self.me, place(site));
            lines.push(format!("PE {me} still holds the lock at offset {offset}, taken at {site}"));
        }
        lines
    }
}

impl State {
    fn birth(&mut self, birth: u64) -> Option<&mut Birth> {
        self.births.get_mut(usize::try_from(birth.checked_sub(1)?).ok()?)
    }

    /// The live allocation that covers an offset.
    fn covering(&self, offset: usize) -> Option<&Birth> {
        let (_, birth) = self.live.range(..=offset).next_back()?;
        self.births.get(*birth as usize - 1).filter(|birth| offset < birth.bytes.end)
    }

    /// The allocations that were never freed, a line for each place in the program. The overlay is not meant to be.
    fn leaks(&self) -> Vec<String> {
        let mut places: Vec<(String, Vec<&Range<usize>>)> = Vec::new();
        let live = self.live.iter().filter(|(offset, _)| self.overlay != Some(**offset));
        for birth in live.filter_map(|(_, birth)| self.births.get(*birth as usize - 1)) {
            let site = place(birth.site);
            match places.iter_mut().find(|(known, _)| *known == site) {
                Some((_, blocks)) => blocks.push(&birth.bytes),
                None => places.push((site, vec![&birth.bytes])),
            }
        }
        let line = |(site, blocks): &(String, Vec<&Range<usize>>)| {
            let bytes: usize = blocks.iter().map(|bytes| bytes.len()).sum();
            match blocks.as_slice() {
                [one] => format!("{bytes} bytes at offset {}, allocated at {site}, were never freed", one.start),
                many => {
                    let offsets: Vec<String> = many.iter().map(|bytes| bytes.start.to_string()).collect();
                    let shown = offsets[..offsets.len().min(MOST_OFFSETS)].join(", ");
                    let more = if offsets.len() > MOST_OFFSETS { ", …" } else { "" };
                    let n = many.len();
                    format!("{n} allocations ({bytes} bytes), made at {site}, were never freed: offsets {shown}{more}")
                }
            }
        };
        let mut lines: Vec<String> = places.iter().take(MOST_LINES).map(line).collect();
        if places.len() > MOST_LINES {
            lines.push(format!("allocations of {} more places were never freed", places.len() - MOST_LINES));
        }
        lines
    }
}

/// `all_reduce #3, started at src/main.rs:17`.
impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, started at {}", numbered(self.call, self.number), place(self.site))
    }
}

/// `all_reduce #3`, or its name alone.
fn numbered(call: &str, number: u64) -> String {
    if number == 0 { call.into() } else { format!("{call} #{number}") }
}

/// `src/main.rs:17`.
pub(crate) fn place(site: Site) -> String {
    format!("{}:{}", site.file(), site.line())
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

fn recorder() -> Recorder {
    Recorder::new(0, RESERVED_SLOTS)
}

/// The reservations of the PE with this segment, as a recorder's words.
struct Reservations<'s>(&'s Segment);

impl Atoms for Reservations<'_> {
    type Word = AtomicU64;

    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.word(RESERVED + at)
    }
}

/// Lets the other PEs see a reservation, by the number that is returned.
fn show(segment: &Segment, bytes: &Range<usize>, user: User) -> u64 {
    let mut name = [0; 8 * (EVENT - 2)];
    let shown = user.call.len().min(name.len());
    name[..shown].copy_from_slice(&user.call.as_bytes()[..shown]);
    let [first, second]: [u64; EVENT - 2] = bytemuck::cast(name);
    let (recorder, page) = (recorder(), Reservations(segment));
    let number = recorder.begin(&page, [bytes.start as u64, bytes.end as u64, first, second]);
    recorder.change(&page, number, user.number);
    number
}

/// The reservation in a PE's segment that holds one of these bytes, and for what it is.
fn found_in(segment: &Segment, bytes: &Range<usize>) -> Option<(Range<usize>, String)> {
    let (recorder, page) = (recorder(), Reservations(segment));
    let count = recorder.count(&page);
    (count.saturating_sub(RESERVED_SLOTS)..count).find_map(|number| {
        let event = recorder.read(&page, number).filter(|event| event.state != ENDED)?;
        let [start, end, first, second] = event.words;
        let reserved = start as usize..end as usize;
        let name: Vec<u8> = [first, second].into_iter().flat_map(u64::to_ne_bytes).take_while(|c| *c != 0).collect();
        let user = numbered(&String::from_utf8_lossy(&name), event.state);
        overlap(&reserved, bytes).then_some((reserved, user))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> Check {
        Check::new(1, vec![100..200, 200..300, 300..400])
    }

    #[track_caller]
    fn here() -> Site {
        Location::caller()
    }

    #[test]
    fn a_birth_ends_and_its_bytes_go_to_another() {
        let check = check();
        let (first, line) = (check.allocated(4096..4160, here()), line!());
        assert!(check.reach(first, &(4096..4160), here()).is_ok());
        assert_eq!(check.birth_at(4100), first);
        check.freed(4096, here());
        let error = check.reach(first, &(4100..4104), here()).unwrap_err().to_string();
        assert!(error.contains(&format!("allocated at src/heap/check.rs:{line}")), "{error}");
        assert!(error.starts_with("PE 1 reaches bytes 4100..4104") && !error.contains("now they belong"), "{error}");
        let second = check.allocated(4096..5000, here());
        assert!(second != first && check.reach(second, &(4096..5000), here()).is_ok());
        let error = check.reach(first, &(4100..4104), here()).unwrap_err().to_string();
        assert!(error.contains("; now they belong to what was allocated at src/heap/check.rs"), "{error}");
        assert!(check.reach(first, &(4096..4096), here()).is_ok(), "no bytes are nobody's");
    }

    #[test]
    fn what_was_resized_has_its_new_bytes() {
        let check = check();
        let birth = check.allocated(4096..4160, here());
        check.resized(4096..4112, here());
        assert!(check.reach(birth, &(4096..4112), here()).is_ok());
        let error = check.reach(birth, &(4104..4120), here()).unwrap_err().to_string();
        assert!(error.contains("has only the bytes 4096..4112, resized at src/heap/check.rs"), "{error}");
    }

    #[test]
    fn a_workspace_lasts_as_long_as_its_team() {
        let check = check();
        assert!(check.reach(NO_BIRTH, &(300..310), here()).is_ok(), "a team that nobody told of");
        check.team_made(2, vec![1, 0], here());
        assert!(check.reach(NO_BIRTH, &(300..310), here()).is_ok());
        check.team_destroyed(2, here());
        let error = check.reach(NO_BIRTH, &(300..310), here()).unwrap_err().to_string();
        assert!(error.contains("the workspace of the team made at"), "{error}");
        assert!(check.reach(NO_BIRTH, &(200..210), here()).is_ok());
    }

    #[test]
    fn reservations_are_seen_by_their_pe_and_by_others() {
        let (segment, _) = Segment::create(8192, 0).unwrap();
        let (own, other) = (check(), Check::new(0, Vec::new()));
        let user = User { call: "all-reduce", number: 3, site: here() };
        let first = own.reserve(&segment, 5000..5100, user);
        let second = own.reserve(&segment, 6000..6100, User { number: 4, ..user });
        let at = |check: &Check, bytes| check.write(1, Some(&segment), &bytes, here()).map_err(|e| e.to_string());
        for check in [&own, &other] {
            assert!(at(check, 4000..5000).is_ok() && at(check, 5100..6000).is_ok());
            let error = at(check, 5099..5101).unwrap_err();
            assert!(error.contains("all-reduce #3") && error.contains("bytes 5000..5100"), "{error}");
            assert!(at(check, 0..9000).is_err() && at(check, 6000..6001).unwrap_err().contains("#4"));
        }
        assert!(own.write(0, None, &(5000..5100), here()).is_ok(), "another PE's");
        own.release(&segment, first);
        for check in [&own, &other] {
            assert!(at(check, 5000..5100).is_ok() && at(check, 6000..6100).is_err());
        }
        own.release(&segment, second);
        // More than the recorder holds: the oldest are seen by their own PE alone.
        let many: Vec<u64> = (0..RESERVED_SLOTS as usize + 1).map(|i| own.reserve(&segment, i..i + 1, user)).collect();
        assert!(at(&own, 0..1).is_err() && at(&other, 0..1).is_ok() && at(&other, 1..2).is_err());
        many.into_iter().for_each(|number| own.release(&segment, number));
        assert!(at(&own, 0..9000).is_ok() && at(&other, 0..9000).is_ok());
    }

    #[test]
    fn what_lasts_is_seen_by_others_however_many_come_and_go() {
        let (segment, _) = Segment::create(8192, 0).unwrap();
        let (own, other) = (check(), Check::new(0, Vec::new()));
        let user = User { call: "moe exchange", number: 0, site: here() };
        let at = |check: &Check, bytes| check.write(1, Some(&segment), &bytes, here()).map_err(|e| e.to_string());
        let lasting: Vec<u64> = (0..3).map(|i| own.reserve(&segment, 10 * i..10 * i + 5, user)).collect();
        for round in 0..100 {
            let passing = [100, 200].map(|i| own.reserve(&segment, i..i + 5, User { number: round, ..user }));
            for check in [&own, &other] {
                for i in [0, 10, 20, 100, 200] {
                    assert!(at(check, i..i + 1).is_err() && at(check, i + 5..i + 10).is_ok(), "{i} in round {round}");
                }
            }
            passing.into_iter().for_each(|number| own.release(&segment, number));
        }
        let error = at(&other, 10..11).unwrap_err();
        assert!(error.contains("in use by moe exchange") && !error.contains('#'), "{error}");
        // As many as there are slots are all seen.
        let more: Vec<u64> =
            (3..RESERVED_SLOTS as usize).map(|i| own.reserve(&segment, 10 * i..10 * i + 5, user)).collect();
        assert!((0..RESERVED_SLOTS as usize).all(|i| at(&other, 10 * i..10 * i + 1).is_err()));
        more.into_iter().for_each(|number| own.release(&segment, number));
        // What is lent may be written to by its own program alone.
        own.lend(lasting[1], true);
        assert!(at(&own, 10..15).is_ok() && at(&own, 9..21).is_err() && at(&other, 10..15).is_err());
        own.lend(lasting[1], false);
        assert!(at(&own, 10..15).is_err());
        lasting.into_iter().for_each(|number| own.release(&segment, number));
        assert!(at(&own, 0..9000).is_ok() && at(&other, 0..9000).is_ok());
    }

    #[test]
    fn what_is_left_over_is_summed_by_place() {
        let check = Check::new(0, Vec::new());
        for i in 0..6 {
            check.allocated(i * 64..i * 64 + 10, here());
        }
        check.allocated(1000..1001, here());
        check.locked(72, here());
        check.locked(80, here());
        check.unlocked(80);
        assert_eq!(check.lock_in(64..128), Some(72));
        check.team_made(0, vec![0], here());
        check.team_made(2, vec![0, 2, 1], here());
        check.team_made(3, vec![2, 0], here());
        let lines = check.left_over();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].starts_with("6 allocations (60 bytes), made at src/heap/check.rs:"), "{lines:?}");
        assert!(lines[0].ends_with("offsets 0, 64, 128, 192, …"), "{lines:?}");
        assert!(lines[1].starts_with("1 bytes at offset 1000, allocated at"), "{lines:?}");
        assert!(lines[2].starts_with("the team of PEs 0-2, made at"), "{lines:?}");
        assert!(lines[3].starts_with("PE 0 still holds the lock at offset 72, taken at"), "{lines:?}");
    }
}
