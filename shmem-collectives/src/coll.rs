//! The collectives of a team: from a call to a plan to its end.
//!
//! A call is checked, and the way to do it is found (`prepare`). Blocking calls run it to its end; started ones stand in a queue and
//! get on whenever the program tests or waits, in the order in which they were started. A call with wrong arguments takes part in its turn,
//! so that all learn of it.
//! What the program calls is in `calls`, `barrier`, `unequal` and `strided`.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use shmem::{Elem, Error, ErrorKind, Reservation, Result, SymSlice, Team, World};

use crate::call::{Call, Print};
use crate::hand::{Hand, Objects, Reduction};
use crate::plan::{Collective, Hosts};
use crate::plans::{Algorithm, Room};
use crate::prepare::Ways;
use crate::run::{FLAG, Lane, Run};
use crate::select::Selection;
use crate::task::{Refused, Started, Task};
use crate::tiny;
use crate::told::RECORD;

/// A started call, as reports name it.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) call: &'static str,
    pub(crate) number: u64,
    pub(crate) site: &'static Location<'static>,
}

/// The collectives of one team: made once for it, used by one thread of each PE. All PEs of the team make the same
/// calls in the same order; if they do not, every PE gets the same [`Mismatch`](ErrorKind::Mismatch), which names both
/// sides, and the team stays usable.
pub struct Coll<'t> {
    pub(crate) world: &'t World,
    pub(crate) team: &'t Team<'t>,
    /// Of the workspace: two areas in which counts are told, of which calls take turns.
    pub(crate) records: SymSlice<'t, u64>,
    /// The workspace behind these: two areas of slots, of which calls take turns, then work memory.
    pub(crate) slots: [SymSlice<'t, u8>; 2],
    pub(crate) work: SymSlice<'t, u8>,
    pub(crate) selection: Selection,
    pub(crate) hosts: Hosts,
    pub(crate) strict: bool,
    pub(crate) compared: bool,
    state: RefCell<State<'t>>,
    /// Of the call that is being started.
    placed: RefCell<Vec<Reservation<'t>>>,
}

struct State<'t> {
    lane: Lane<'t>,
    calls: u64,
    ways: Ways,
    /// Started and not done, in order, with the memory that is theirs until their end.
    queue: VecDeque<(u64, Box<dyn Task + 't>, Vec<Reservation<'t>>)>,
    /// What started calls ended with, until it is asked for.
    ended: HashMap<u64, Error>,
}

impl<'t> Coll<'t> {
    /// The collectives of `team`, in its workspace (`SHMEM_TEAM_WORKSPACE`). Collective over the team.
    ///
    /// # Errors
    /// [`HeapFull`](ErrorKind::HeapFull) if the workspace is too small for the team;
    /// [`BadSetting`](ErrorKind::BadSetting) for `SHMEM_COLL_ALGO` and `SHMEM_COLL_TABLE`;
    /// [`Mismatch`](ErrorKind::Mismatch) if PEs have different tables; and as [`Team::barrier`].
    pub fn new(world: &'t World, team: &'t Team<'t>) -> Result<Self> {
        let workspace = team.workspace();
        let flags = team.n_pes() * FLAG * size_of::<u64>();
        let told = told_bytes(team.n_pes());
        let counts = flags + told;
        if counts > workspace.len() / 2 {
            return Err(ErrorKind::HeapFull {
                need: 2 * counts,
                align: FLAG * size_of::<u64>(),
                free: workspace.len(),
                largest: workspace.len(),
                heap: workspace.len(),
            }
            .into());
        }
        let records = workspace.slice(flags..counts)?.cast::<u64>()?;
        let flags = workspace.slice(..flags)?.cast::<u64>()?;
        flags.fill(0);
        let rest = workspace.slice(counts..)?;
        let half = half(rest.len());
        // Wrong settings take part, too: the others must learn of them.
        let selection = Selection::new(world.config());
        let (digest, call) = match &selection {
            Ok(selection) => (selection.digest(), format!("collectives with table {:014x}", selection.digest())),
            Err(error) => (u64::MAX >> 8, error.to_string()),
        };
        team.meet(digest).wait(team, || call)?;
        let selection = selection?;
        team.barrier()?;
        Ok(Coll {
            world,
            team,
            records,
            slots: [rest.slice(..half)?, rest.slice(half..2 * half)?],
            work: rest.slice(2 * half..)?,
            selection,
            hosts: Hosts::of_team(&team.hosts()).crowded(world.is_crowded()),
            strict: world.config().coll_strict,
            compared: true,
            state: RefCell::new(State {
                lane: Lane::new(team, flags)?,
                calls: 0,
                ways: Ways::default(),
                queue: VecDeque::new(),
                ended: HashMap::new(),
            }),
            placed: RefCell::default(),
        })
    }

    /// The team.
    pub fn team(&self) -> &'t Team<'t> {
        self.team
    }

    /// The memory that the collectives of a team of `n` have in a workspace of so many bytes, for elements of `size` bytes.
    pub fn room(workspace: usize, n: usize, size: usize) -> Room {
        let rest = workspace.saturating_sub(n * FLAG * size_of::<u64>() + told_bytes(n));
        let half = half(rest);
        Room { work: (rest - 2 * half) / size.max(1), slot: half / size.max(1) }
    }

    /// The algorithm of the latest call, for measurements.
    pub fn latest_algorithm(&self) -> Option<Algorithm> {
        self.state.borrow().ways.latest_algorithm()
    }

    /// The choice of algorithms, to be changed for this team alone. All its PEs must make the same changes.
    pub fn selection_mut(&mut self) -> &mut Selection {
        self.state.get_mut().ways = Ways::default();
        &mut self.selection
    }

    /// Whether reductions combine all contributions to an element at once, in the order of the PEs: results are then
    /// the same bits for any algorithm, length, piece and placement, at the price of the algorithms that cannot do so.
    /// All PEs of the team must say the same.
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Whether the PEs compare their calls of collectives with equal blocks, which they do unless told otherwise: for
    /// measuring what that costs. Without, calls that differ do anything. All PEs of the team must say the same.
    pub fn set_compared(&mut self, compared: bool) {
        self.compared = compared;
    }

    /// How many collectives this PE has called, those that it has started among them.
    pub fn calls(&self) -> u64 {
        self.state.borrow().calls
    }

    /// Takes part in a collective, whichever it is, by saying that this PE's call is wrong: what the other PEs are told. For bindings,
    /// which find that out before there are objects. Collective; blocks.
    ///
    /// # Errors
    /// This error, always; or [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn refuse(&self, error: Error) -> Result<()> {
        self.run_task::<Refused>("a wrong call", |_| Err(error))
    }

    /// Starts [`refuse`](Self::refuse). Does not block; the error comes from the [`Pending`].
    pub fn start_refused(&self, error: Error) -> Pending<'_, 't> {
        self.start_task::<Refused>(|_| Err(error))
    }

    /// Takes the PEs for those of these hosts, numbered host by host, whatever they are: for trying two-level
    /// algorithms on one host. All PEs of the team must say the same.
    ///
    /// # Errors
    /// [`Length`](ErrorKind::Length) if these are not as many PEs as the team has.
    pub fn pretend_hosts(&mut self, hosts: Hosts) -> Result<()> {
        let (given, needed) = (hosts.n(), self.team.n_pes());
        if given != needed {
            return Err(ErrorKind::Length { what: "PEs on all hosts", given, needed }.into());
        }
        self.hosts = hosts;
        self.state.get_mut().ways = Ways::default();
        Ok(())
    }

    /// Runs a collective to its end: of elements and by a reduction of these names, with blocks of a length.
    #[track_caller]
    pub(crate) fn run(
        &self,
        what: Collective,
        (elem, op): (&'static str, &'static str),
        checked: Result<(usize, Objects<'_>)>,
        reduction: Option<&dyn Reduction>,
    ) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        state.advance_all(true);
        let number = state.number();
        let refuse = |error, lane: &mut Lane<'_>| Refused::new(number, error).advance(lane, true).map(|_| ());
        let (len, mut objects) = match checked {
            Ok(checked) => checked,
            Err(error) => return refuse(error, &mut state.lane),
        };
        let mut call = Call::even(what, len, elem, op);
        let (way, print) = match self.way(&mut state.ways, what, &mut call, &mut objects, reduction) {
            Ok(way) => way,
            Err(error) => return refuse(error, &mut state.lane),
        };
        let (digest, buffers) = (self.digest(print, number), self.buffers(number, objects));
        let report = || call.text(number);
        let site = Location::caller();
        let calling = || self.team.calling(what.name(), number, site);
        if way.tiny {
            return tiny::run(self.team, &Hand { way: &way, buffers, reduction }, digest, &report, calling);
        }
        let _calling = calling();
        Run::new(way, digest).advance(&mut state.lane, &buffers, reduction, &report, true).map(|_| ())
    }

    /// Starts a collective. Wrong arguments take part in its turn.
    #[track_caller]
    pub(crate) fn start<'b>(
        &'b self,
        what: Collective,
        (elem, op): (&'static str, &'static str),
        checked: Result<(usize, Objects<'b>)>,
        reduction: Option<Box<dyn Reduction + 't>>,
    ) -> Pending<'b, 't> {
        let mut state = self.state.borrow_mut();
        let number = state.number();
        let from = Origin { call: what.name(), number, site: Location::caller() };
        let prepared = checked.and_then(|(len, objects)| {
            let (mut call, mut objects) = (Call::even(what, len, elem, op), self.placed(objects, from)?);
            let (way, print) = self.way(&mut state.ways, what, &mut call, &mut objects, reduction.as_deref())?;
            Ok((Run::new(way, self.digest(print, number)), call, self.buffers(number, objects)))
        });
        let task: Box<dyn Task + 't> = match prepared {
            Ok((run, call, buffers)) => Box::new(Started { number, call, run, buffers, reduction }),
            Err(error) => Box::new(Refused::new(number, error)),
        };
        self.enqueue(state, number, task)
    }

    /// What the PEs compare in a call's first meeting.
    #[inline]
    fn digest(&self, print: Print, number: u64) -> u64 {
        if self.compared { print.digest(number) } else { 0 }
    }

    /// Runs a task to its end, of which `make` is told the number; reports show it by its name.
    #[track_caller]
    pub(crate) fn run_task<T: Task>(&self, name: &'static str, make: impl FnOnce(u64) -> Result<T>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.advance_all(true);
        let number = state.number();
        let _calling = self.team.calling(name, number, Location::caller());
        match make(number) {
            Ok(mut task) => task.advance(&mut state.lane, true).map(|_| ()),
            Err(error) => Refused::new(number, error).advance(&mut state.lane, true).map(|_| ()),
        }
    }

    /// Starts a task.
    pub(crate) fn start_task<'b, T: Task + 't>(&'b self, make: impl FnOnce(u64) -> Result<T>) -> Pending<'b, 't> {
        let mut state = self.state.borrow_mut();
        let number = state.number();
        let task: Box<dyn Task + 't> = match make(number) {
            Ok(task) => Box::new(task),
            Err(error) => Box::new(Refused::new(number, error)),
        };
        self.enqueue(state, number, task)
    }

    fn enqueue<'b>(
        &'b self,
        mut state: RefMut<'_, State<'t>>,
        number: u64,
        task: Box<dyn Task + 't>,
    ) -> Pending<'b, 't> {
        state.queue.push_back((number, task, self.placed.take()));
        Pending { coll: self, number, borrow: PhantomData }
    }

    /// Objects by their places in the world, reserved for a started call, which outlives the borrows that [`Pending`]
    /// keeps.
    pub(crate) fn placed(&self, objects: Objects<'_>, from: Origin) -> Result<Objects<'t>> {
        let Objects { src, dst, size } = objects;
        Ok(Objects { src: self.place(src, from)?, dst: self.place(dst, from)?, size })
    }

    /// [`placed`](Self::placed), of one.
    pub(crate) fn place<T: Elem>(&self, object: SymSlice<'_, T>, from: Origin) -> Result<SymSlice<'t, T>> {
        self.placed.borrow_mut().push(self.world.reserve(object, from.call, from.number, from.site));
        let placed = self.world.object_at(object.offset(), object.len());
        // Of no length, it may lie behind the end of an allocation, where nobody else's has any either.
        if object.is_empty() { placed.or_else(|_| self.work.slice(..0)?.cast()) } else { placed }
    }

    /// Ends what was started, in order; what it ended with is kept for those who ask.
    pub(crate) fn finish_started(&self) {
        self.state.borrow_mut().advance_all(true);
    }
}

impl<'t> State<'t> {
    /// That of the next call.
    fn number(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Gets started collectives on, in their order: to the end of all if it may block.
    fn advance_all(&mut self, block: bool) {
        while let Some((number, task, _)) = self.queue.front_mut() {
            let number = *number;
            match task.advance(&mut self.lane, block) {
                Ok(false) => return,
                Ok(true) => {}
                Err(error) => {
                    self.ended.insert(number, error);
                }
            }
            self.queue.pop_front();
        }
    }

    /// Whether a started collective has ended.
    fn is_done(&self, number: u64) -> bool {
        self.queue.front().is_none_or(|(first, ..)| number < *first)
    }
}

/// Bytes of the two areas in which counts are told.
fn told_bytes(n: usize) -> usize {
    2 * (n * RECORD * size_of::<u64>()).next_multiple_of(128)
}

/// Bytes of one of the two areas of slots, of all that is left behind the counts.
fn half(rest: usize) -> usize {
    rest / 4 / 128 * 128
}

/// A collective that was started: it gets on whenever the program tests or waits, or makes other calls of the same [`Coll`]; in nothing
/// else, so that a PE that does not, or waits for another team's, holds up those that wait for it. Dropping it does not end it. Until its
/// end its source and its target are the collective's: in checked mode, a write to them is the error [`InUse`](ErrorKind::InUse).
#[must_use = "a started collective ends only when it is waited for, or when a later one of the team is"]
pub struct Pending<'b, 't> {
    coll: &'b Coll<'t>,
    number: u64,
    borrow: PhantomData<&'b ()>,
}

impl Pending<'_, '_> {
    /// Gets it on, as far as is possible without waiting: true once it has ended. Does not block.
    ///
    /// # Errors
    /// Those of the collective, once.
    pub fn test(&mut self) -> Result<bool> {
        let mut state = self.coll.state.borrow_mut();
        state.advance_all(false);
        match state.ended.remove(&self.number) {
            Some(error) => Err(error),
            None => Ok(state.is_done(self.number)),
        }
    }

    /// Blocks until it, and all that were started before it, have ended.
    ///
    /// # Errors
    /// Those of the collective, if no test has returned them.
    #[track_caller]
    pub fn wait(self) -> Result<()> {
        let _calling = self.coll.team.calling("wait for a started collective", self.number, Location::caller());
        let mut state = self.coll.state.borrow_mut();
        while !state.is_done(self.number) {
            state.advance_all(true);
        }
        state.ended.remove(&self.number).map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Coll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coll").field("team", self.team).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pending<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("number", &self.number).finish_non_exhaustive()
    }
}
