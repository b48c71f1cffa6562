//! The collectives of a team: from a call to a plan to its end.
//!
//! A call is checked, becomes a [`Problem`], and the team's one choice of algorithm ([`select`](crate::select)) gives its
//! plan. Blocking calls run it to its end; started ones stand in a queue and get on whenever the program tests or waits,
//! in the order in which they were started. A call with wrong arguments takes part in its turn, so that all learn of it.
//! What the program calls is in `calls`, `unequal` and `strided`.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use shmem::{Elem, Error, ErrorKind, Kernel, Reservation, Result, SymSlice, Team, World};

use crate::call::Call;
use crate::plan::{Collective, Hosts, Plan, Problem, Uneven};
use crate::plans::{Algorithm, Room};
use crate::run::{Buffers, FLAG, Lane, Run};
use crate::select::{Need, Selection};
use crate::task::{Refused, Started, Task};
use crate::tiny;
use crate::told::{Aim, RECORD, Stage, Told};

/// The collectives of one team: made once for it, used by one thread of each PE. All PEs of the team make the same
/// calls in the same order; if they do not, every PE gets the same [`Mismatch`](ErrorKind::Mismatch), which names both
/// sides, and the team stays usable.
pub struct Coll<'t> {
    world: &'t World,
    team: &'t Team<'t>,
    /// Of the workspace: two areas in which counts are told, of which calls take turns.
    records: SymSlice<'t, u64>,
    /// The workspace behind these: two halves of slots, of which calls take turns, then work memory.
    slots: SymSlice<'t, u8>,
    work: SymSlice<'t, u8>,
    selection: Selection,
    hosts: Hosts,
    strict: bool,
    state: RefCell<State<'t>>,
    /// Of the call that is being started.
    placed: RefCell<Vec<Reservation<'t>>>,
}

struct State<'t> {
    lane: Lane<'t>,
    calls: u64,
    plans: HashMap<(Problem, Algorithm), Rc<Plan>>,
    /// The last one used: programs repeat themselves.
    latest: Option<(Problem, Algorithm, Rc<Plan>)>,
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
            slots: rest.slice(..2 * half)?,
            work: rest.slice(2 * half..)?,
            selection,
            hosts: Hosts::one(team.n_pes()),
            strict: world.config().coll_strict,
            state: RefCell::new(State {
                lane: Lane::new(team, flags)?,
                calls: 0,
                plans: HashMap::new(),
                latest: None,
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
        self.state.borrow().latest.as_ref().map(|(_, algorithm, _)| *algorithm)
    }

    /// The choice of algorithms, to be changed for this team alone. All its PEs must make the same changes.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// Whether reductions combine all contributions to an element at once, in the order of the PEs: results are then
    /// the same bits for any algorithm, length, piece and placement, at the price of the algorithms that cannot do so.
    /// All PEs of the team must say the same.
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
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
        Ok(())
    }

    /// Runs a collective to its end.
    pub(crate) fn run<T: Elem, K: Kernel<T>>(
        &self,
        what: Collective,
        call: Result<Call>,
        src: SymSlice<'_, T>,
        dst: SymSlice<'_, T>,
        kernel: &K,
        whole: bool,
    ) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.advance_all(true);
        let number = state.number();
        let (call, algorithm, mut run) = match self.prepare(&mut state, number, what, call, src, dst, whole) {
            Ok(prepared) => prepared,
            Err(error) => return Refused::new(number, error).advance(&mut state.lane, true).map(|_| ()),
        };
        let report = || call.text(number);
        if algorithm == Algorithm::Small && tiny::takes(&run.problem, size_of::<T>(), self.team) {
            return tiny::run(self.team, &run.problem, &run.buffers, kernel, run.digest, &report);
        }
        run.advance(&mut state.lane, kernel, &report, true).map(|_| ())
    }

    /// Starts a collective. Wrong arguments take part in its turn.
    #[track_caller]
    pub(crate) fn start<'b, T: Elem, K: Kernel<T> + 't>(
        &'b self,
        what: Collective,
        call: Result<Call>,
        src: SymSlice<'b, T>,
        dst: SymSlice<'b, T>,
        kernel: K,
        whole: bool,
    ) -> Pending<'b, 't> {
        let mut state = self.state.borrow_mut();
        let (number, site) = (state.number(), Location::caller());
        let place = |object| self.place(object, what.name(), number, site);
        let prepared = place(src).and_then(|src| Ok((src, place(dst)?)));
        let prepared = prepared.and_then(|(src, dst)| self.prepare(&mut state, number, what, call, src, dst, whole));
        let task: Box<dyn Task + 't> = match prepared {
            Ok((call, _, run)) => Box::new(Started { number, run, kernel, call }),
            Err(error) => Box::new(Refused::new(number, error)),
        };
        self.enqueue(state, number, task)
    }

    /// Runs a task to its end, of which `make` is told the number.
    pub(crate) fn run_task<T: Task>(&self, make: impl FnOnce(u64) -> Result<T>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.advance_all(true);
        let number = state.number();
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

    /// An object by its place in the world: a started call, the `number`th, outlives the borrows that [`Pending`] keeps.
    pub(crate) fn place<T: Elem>(
        &self,
        object: SymSlice<'_, T>,
        call: &'static str,
        number: u64,
        site: &'static Location<'static>,
    ) -> Result<SymSlice<'t, T>> {
        self.placed.borrow_mut().push(self.world.reserve(object, call, number, site));
        let placed = self.world.object_at(object.offset(), object.len());
        // Of no length, it may lie behind the end of an allocation, where nobody else's has any either.
        if object.is_empty() { placed.or_else(|_| self.work.slice(..0)?.cast()) } else { placed }
    }

    /// Ends what was started, in order; what it ended with is kept for those who ask.
    pub(crate) fn finish_started(&self) {
        self.state.borrow_mut().advance_all(true);
    }

    /// The memory of a call.
    fn buffers<'b, T: Elem>(&self, number: u64, src: SymSlice<'b, T>, dst: SymSlice<'b, T>) -> Result<Buffers<'b, T>>
    where
        't: 'b,
    {
        let half = self.slots.len() / 2;
        let parity = (number % 2) as usize;
        let slots = self.slots.slice(parity * half..(parity + 1) * half)?.cast::<T>()?;
        Ok(Buffers { src, dst, work: self.work.cast::<T>()?, slots })
    }

    /// Checks a call and makes its plan.
    #[expect(clippy::too_many_arguments, reason = "a call has so many parts")]
    fn prepare<'b, T: Elem>(
        &self,
        state: &mut State<'t>,
        number: u64,
        what: Collective,
        call: Result<Call>,
        src: SymSlice<'b, T>,
        dst: SymSlice<'b, T>,
        whole: bool,
    ) -> Result<(Call, Algorithm, Run<'b, T>)>
    where
        't: 'b,
    {
        let call = call?;
        let in_place = self.aliasing(what, call.len, src, dst)?;
        let call = Call { in_place, strict: self.strict, ..call };
        let (src, dst) = match what {
            _ if !in_place => (src, dst),
            Collective::ReduceScatter | Collective::Scatter { .. } => (src, src),
            _ => (dst, dst),
        };
        let buffers = self.buffers(number, src, dst)?;
        let n = self.team.n_pes();
        let problem = Problem { what, n, len: call.len, chunk: 1, in_place };
        let (algorithm, chunk) = self.selection.choose(&problem, &self.hosts, self.need(&buffers, whole));
        let problem = Problem { chunk, ..problem };
        let plan = state.plan(problem, algorithm, &self.hosts, self.team.me());
        let digest = call.digest(number);
        Ok((call, algorithm, Run::new(problem, plan, buffers, digest)))
    }

    /// What a call has, and asks of an algorithm.
    fn need<T: Elem>(&self, buffers: &Buffers<'_, T>, whole: bool) -> Need {
        let room = Room { work: buffers.work.len(), slot: buffers.slots.len() };
        Need { room, size: size_of::<T>(), whole: whole || self.strict }
    }

    /// A reduce-scatter by counts: a run and its kernel.
    pub(crate) fn scattered<'b, T: Elem, K: Kernel<T>>(
        &self,
        number: u64,
        call: Call,
        (src, dst): (SymSlice<'b, T>, SymSlice<'b, T>),
        mut problem: Uneven,
        kernel: K,
        whole: bool,
    ) -> Result<Started<'b, T, K>>
    where
        't: 'b,
    {
        let call = Call { strict: self.strict, ..call };
        let me = self.team.me();
        if src.offset() + problem.blocks.range(me).start * size_of::<T>() != dst.offset() {
            self.apart(src, dst)?;
        }
        let buffers = self.buffers(number, src, dst)?;
        let need = self.need(&buffers, whole);
        let (algorithm, chunk) = self.selection.choose_uneven(&problem, need);
        problem.chunk = chunk;
        let plan = algorithm.plan_uneven(&problem, me).unwrap_or_default();
        // Whose regions lie where they say: sources begin at 0, and of targets only the own is written.
        let (n, len) = (problem.blocks.n(), problem.blocks.total());
        let shape = Problem { what: Collective::ReduceScatter, n, len, chunk, in_place: false };
        let run = Run::new(shape, plan.into(), buffers, call.digest(number));
        Ok(Started { number, run, kernel, call })
    }

    /// A collective whose counts are told first.
    pub(crate) fn told<'b, T: Elem>(
        &self,
        number: u64,
        call: Call,
        (src, dst): (SymSlice<'b, T>, SymSlice<'b, T>),
        aim: Aim,
    ) -> Result<Told<'b, T>>
    where
        't: 'b,
    {
        let half = self.records.len() / 2;
        let parity = (number % 2) as usize;
        let records = self.records.slice(parity * half..(parity + 1) * half)?;
        let like = match aim {
            Aim::Gather => Collective::AllGather,
            Aim::Exchange { .. } => Collective::AllToAll,
        };
        let (buffers, forced) = (self.buffers(number, src, dst)?, self.selection.forced(like));
        Ok(Told { world: self.world, number, call, aim, records, buffers, forced, stage: Stage::Begun })
    }

    /// Whether a call is in place; an error if source and target overlap otherwise.
    fn aliasing<T: Elem>(
        &self,
        what: Collective,
        len: usize,
        src: SymSlice<'_, T>,
        dst: SymSlice<'_, T>,
    ) -> Result<bool> {
        let problem = Problem { what, n: self.team.n_pes(), len, chunk: 1, in_place: true };
        let (source, target) = problem.offsets(self.team.me());
        let size = size_of::<T>();
        if len > 0 && src.offset() + target * size == dst.offset() + source * size {
            return Ok(true);
        }
        self.apart(src, dst).map(|()| false)
    }

    /// An error if two objects overlap.
    pub(crate) fn apart<T: Elem>(&self, src: SymSlice<'_, T>, dst: SymSlice<'_, T>) -> Result<()> {
        apart(self.world, src, dst)
    }
}

/// An error if two objects overlap.
pub(crate) fn apart<T: Elem>(world: &World, src: SymSlice<'_, T>, dst: SymSlice<'_, T>) -> Result<()> {
    let bytes = |object: SymSlice<'_, T>| object.offset()..object.offset() + object.len() * size_of::<T>();
    let (source_bytes, target_bytes) = (bytes(src), bytes(dst));
    if source_bytes.start < target_bytes.end && target_bytes.start < source_bytes.end {
        return Err(ErrorKind::Overlap { pe: world.me(), source_bytes, target_bytes }.into());
    }
    Ok(())
}

impl<'t> State<'t> {
    /// That of the next call.
    fn number(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// This PE's plan, made once.
    fn plan(&mut self, problem: Problem, algorithm: Algorithm, hosts: &Hosts, me: usize) -> Rc<Plan> {
        match &self.latest {
            Some((latest, by, plan)) if *latest == problem && *by == algorithm => Rc::clone(plan),
            _ => {
                let plan = self
                    .plans
                    .entry((problem, algorithm))
                    .or_insert_with(|| algorithm.plan(&problem, hosts, me).into());
                let plan = Rc::clone(plan);
                self.latest = Some((problem, algorithm, Rc::clone(&plan)));
                plan
            }
        }
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

/// A collective that was started and gets on while the program tests or waits. Dropping it does not end it: it gets on
/// with the team's later calls. Until its end its source and its target are the collective's: in checked mode, a write to
/// them is the error [`InUse`](ErrorKind::InUse).
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
    pub fn wait(self) -> Result<()> {
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
