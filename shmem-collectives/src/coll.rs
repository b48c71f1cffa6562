//! The collectives of a team: from a call to a plan to its end.
//!
//! A call is checked, becomes a [`Problem`], and the team's one choice of algorithm ([`select`](crate::select)) gives its plan. Blocking calls run it to
//! its end; started ones stand in a queue and get on whenever the program tests or waits, in the order in which they were started. What the
//! program calls is in `calls`.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use shmem::{Elem, Error, ErrorKind, Kernel, Result, SymSlice, Team, World};

use crate::plan::{Collective, Hosts, Plan, Problem};
use crate::plans::{Algorithm, Room};
use crate::run::{Buffers, FLAG, Lane, Run};
use crate::select::{Need, Selection};

/// The collectives of one team: made once for it, used by one thread of each PE. All PEs of the team make the same calls in the same order; if they do
/// not, every PE gets the same [`Mismatch`](ErrorKind::Mismatch), which names both sides, and the team stays usable.
pub struct Coll<'t> {
    world: &'t World,
    team: &'t Team<'t>,
    /// The workspace behind the counts: two halves of slots, of which calls take turns, then work memory.
    slots: SymSlice<'t, u8>,
    work: SymSlice<'t, u8>,
    selection: Selection,
    hosts: Hosts,
    state: RefCell<State<'t>>,
}

struct State<'t> {
    lane: Lane<'t>,
    calls: u64,
    plans: HashMap<(Problem, Algorithm), Rc<Plan>>,
    /// The last one used: programs repeat themselves.
    latest: Option<(Problem, Algorithm, Rc<Plan>)>,
    /// Started and not done, in order.
    queue: VecDeque<(u64, Box<dyn Task<'t> + 't>)>,
    /// What started calls ended with, until it is asked for.
    ended: HashMap<u64, Error>,
}

/// A started collective, without its types.
trait Task<'t> {
    fn advance(&mut self, lane: &mut Lane<'t>, block: bool) -> Result<bool>;
}

/// What a program asks for, for digests and reports.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) what: Collective,
    /// Elements of a block.
    pub(crate) len: usize,
    pub(crate) elem: &'static str,
    pub(crate) op: &'static str,
}

impl<'t> Coll<'t> {
    /// The collectives of `team`, in its workspace (`SHMEM_TEAM_WORKSPACE`). Collective over the team.
    ///
    /// # Errors
    /// [`HeapFull`](ErrorKind::HeapFull) if the workspace is too small for the team; [`BadSetting`](ErrorKind::BadSetting) for `SHMEM_COLL_ALGO` and
    /// `SHMEM_COLL_TABLE`; [`Mismatch`](ErrorKind::Mismatch) if PEs have different tables; and as [`Team::barrier`].
    pub fn new(world: &'t World, team: &'t Team<'t>) -> Result<Self> {
        let workspace = team.workspace();
        let counts = team.n_pes() * FLAG * size_of::<u64>();
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
        let flags = workspace.slice(..counts)?.cast::<u64>()?;
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
            slots: rest.slice(..2 * half)?,
            work: rest.slice(2 * half..)?,
            selection,
            hosts: Hosts::one(team.n_pes()),
            state: RefCell::new(State {
                lane: Lane::new(team, flags),
                calls: 0,
                plans: HashMap::new(),
                latest: None,
                queue: VecDeque::new(),
                ended: HashMap::new(),
            }),
        })
    }

    /// The team.
    pub fn team(&self) -> &'t Team<'t> {
        self.team
    }

    /// The memory that the collectives of a team of `n` have in a workspace of so many bytes, for elements of `size` bytes.
    pub fn room(workspace: usize, n: usize, size: usize) -> Room {
        let rest = workspace.saturating_sub(n * FLAG * size_of::<u64>());
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

    /// Takes the PEs for those of these hosts, numbered host by host, whatever they are: for trying two-level algorithms on one host. All PEs of the
    /// team must say the same.
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
        call: Result<Call>,
        src: SymSlice<'_, T>,
        dst: SymSlice<'_, T>,
        kernel: &K,
        whole: bool,
    ) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.advance_all(true);
        let (call, mut run) = self.prepare(&mut state, call, src, dst, whole)?;
        run.advance(&mut state.lane, kernel, &|| call.to_string(), true).map(|_| ())
    }

    /// Starts a collective.
    pub(crate) fn start<'b, T: Elem, K: Kernel<T> + 't>(
        &'b self,
        call: Result<Call>,
        src: SymSlice<'b, T>,
        dst: SymSlice<'b, T>,
        kernel: K,
        whole: bool,
    ) -> Result<Pending<'b, 't>> {
        let mut state = self.state.borrow_mut();
        // The queue outlives the borrows that `Pending` keeps: it holds the objects by their place in the world.
        let place = |object: SymSlice<'_, T>| self.world.object_at::<T>(object.offset(), object.len());
        let (src, dst) = (place(src)?, place(dst)?);
        let (call, run) = self.prepare(&mut state, call, src, dst, whole)?;
        let number = call.number;
        state.queue.push_back((number, Box::new(Started { run, kernel, call })));
        drop(state);
        Ok(Pending { coll: self, number, borrow: PhantomData })
    }

    /// Checks the call with the other PEs' in mind, and makes its plan.
    fn prepare<'b, T: Elem>(
        &self,
        state: &mut State<'t>,
        call: Result<Call>,
        src: SymSlice<'b, T>,
        dst: SymSlice<'b, T>,
        whole: bool,
    ) -> Result<(Numbered, Run<'b, T>)>
    where
        't: 'b,
    {
        state.calls += 1;
        let number = state.calls;
        let call = match call.and_then(|call| self.aliasing(call, src, dst).map(|in_place| (call, in_place))) {
            Ok(call) => call,
            Err(error) => {
                // The others must learn of it: a wrong call takes part in the first meeting, too.
                let text = error.to_string();
                self.team.meet(digest(number, &[u64::MAX, text.len() as u64])).wait(self.team, || text)?;
                return Err(error);
            }
        };
        let (call, in_place) = call;
        let (src, dst) = match call.what {
            _ if !in_place => (src, dst),
            Collective::ReduceScatter | Collective::Scatter { .. } => (src, src),
            _ => (dst, dst),
        };
        let half = self.slots.len() / 2;
        let parity = (number % 2) as usize;
        let slots = self.slots.slice(parity * half..(parity + 1) * half)?.cast::<T>()?;
        let work = self.work.cast::<T>()?;
        let n = self.team.n_pes();
        let need = Need { room: Room { work: work.len(), slot: slots.len() }, size: size_of::<T>(), whole };
        let problem = Problem { what: call.what, n, len: call.len, chunk: 1, in_place };
        let (algorithm, chunk) = self.selection.choose(&problem, &self.hosts, need);
        let problem = Problem { chunk, ..problem };
        let plan = state.plan(problem, algorithm, &self.hosts, self.team.me());
        let numbered = Numbered { number, call, in_place };
        let run = Run::new(problem, plan, Buffers { src, dst, work, slots }, numbered.digest());
        Ok((numbered, run))
    }

    /// Whether the call is in place; an error if source and target overlap otherwise. In place, both handles become the whole buffer.
    fn aliasing<T: Elem>(&self, call: Call, src: SymSlice<'_, T>, dst: SymSlice<'_, T>) -> Result<bool> {
        let problem = Problem { what: call.what, n: self.team.n_pes(), len: call.len, chunk: 1, in_place: true };
        let (source, target) = problem.offsets(self.team.me());
        let size = size_of::<T>();
        if call.len > 0 && src.offset() + target * size == dst.offset() + source * size {
            return Ok(true);
        }
        let end = |object: SymSlice<'_, T>| object.offset() + object.len() * size;
        if src.offset() < end(dst) && dst.offset() < end(src) {
            let (source_bytes, target_bytes) = (src.offset()..end(src), dst.offset()..end(dst));
            return Err(ErrorKind::Overlap { pe: self.world.me(), source_bytes, target_bytes }.into());
        }
        Ok(false)
    }
}

impl<'t> State<'t> {
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
        while let Some((number, task)) = self.queue.front_mut() {
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
        self.queue.front().is_none_or(|(first, _)| number < *first)
    }
}

/// Bytes of one of the two areas of slots, of all that is left behind the counts.
fn half(rest: usize) -> usize {
    rest / 4 / 128 * 128
}

/// A collective that was started, with what it works on.
struct Started<'t, T, K> {
    run: Run<'t, T>,
    kernel: K,
    call: Numbered,
}

impl<'t, T: Elem, K: Kernel<T>> Task<'t> for Started<'t, T, K> {
    fn advance(&mut self, lane: &mut Lane<'t>, block: bool) -> Result<bool> {
        let call = self.call;
        self.run.advance(lane, &self.kernel, &|| call.to_string(), block)
    }
}

/// A collective that was started and gets on while the program tests or waits. Dropping it does not end it: it gets on with the team's later calls.
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

/// A call with its number.
#[derive(Clone, Copy)]
struct Numbered {
    number: u64,
    call: Call,
    in_place: bool,
}

impl Numbered {
    fn digest(&self) -> u64 {
        let Call { what, len, elem, op } = self.call;
        let (code, root) = what.code();
        digest(self.number, &[code, root, len as u64, pack(elem), pack(op), self.in_place.into()])
    }
}

impl fmt::Display for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { what, len, elem, op } = self.call;
        let elem = elem.rsplit("::").next().unwrap_or(elem);
        write!(f, "{what} #{} ({elem} × {len}", self.number)?;
        if !op.is_empty() {
            write!(f, ", {op}")?;
        }
        f.write_str(if self.in_place { ", in place)" } else { ")" })
    }
}

/// Tells calls apart: multiplication and rotation of every part (the finaliser of Stafford's mix 13 ends it).
fn digest(number: u64, parts: &[u64]) -> u64 {
    let mixed = parts.iter().fold(number ^ 0x9e37_79b9_7f4a_7c15, |hash, part| {
        (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29)
    });
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// The first letters of a name and its length, as a number.
fn pack(name: &str) -> u64 {
    let letters = name.bytes().take(7).fold(0, |all, letter| all << 8 | u64::from(letter));
    letters << 8 | name.len() as u64 & 0xff
}

/// Moves elements as they are: the kernel of collectives that combine nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move;

impl<T: Elem> Kernel<T> for Move {
    type Acc = T;

    #[inline(always)]
    fn widen(&self, element: T) -> T {
        element
    }

    #[inline(always)]
    fn combine(&self, left: T, _: T) -> T {
        left
    }

    #[inline(always)]
    fn narrow(&self, acc: T) -> T {
        acc
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
