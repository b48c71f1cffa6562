//! From a call to its plan: checks the objects, chooses the algorithm, makes the plan, and says who carries out its
//! folds.

use std::collections::HashMap;
use std::rc::Rc;

use shmem::config::show_size;
use shmem::{Elem, Error, ErrorKind, Result, SymSlice, World};

use crate::call::Call;
use crate::coll::Coll;
use crate::hand::{Buffers, Plain, Wide};
use crate::op::Reduce;
use crate::plan::{Collective, Hosts, Plan, Problem, Uneven};
use crate::plans::{Algorithm, Room, wide};
use crate::run::{Hand, Run};
use crate::select::{Choice, Need};
use crate::task::Started;
use crate::told::{Aim, Stage, Told};

/// What a plan is made of, besides the hosts and the PE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Planned {
    pub(crate) problem: Problem,
    pub(crate) algorithm: Algorithm,
    /// In how many turns, with partial results that are no elements.
    pub(crate) turns: Option<usize>,
}

/// This PE's plans, each made once.
#[derive(Default)]
pub(crate) struct Plans {
    all: HashMap<Planned, Rc<Plan>>,
    /// The last one used: programs repeat themselves.
    latest: Option<(Planned, Rc<Plan>)>,
}

impl Plans {
    fn plan(&mut self, planned: Planned, hosts: &Hosts, me: usize) -> Rc<Plan> {
        if let Some((_, plan)) = self.latest.as_ref().filter(|(latest, _)| *latest == planned) {
            return Rc::clone(plan);
        }
        let Planned { problem, algorithm, turns } = planned;
        let make = || match turns {
            None => algorithm.plan(&problem, hosts, me),
            Some(turns) => wide::plan(algorithm, &problem, hosts, me, turns),
        };
        let plan = Rc::clone(self.all.entry(planned).or_insert_with(|| make().into()));
        self.latest = Some((planned, Rc::clone(&plan)));
        plan
    }

    /// The algorithm of the last one used.
    pub(crate) fn latest_algorithm(&self) -> Option<Algorithm> {
        self.latest.as_ref().map(|(planned, _)| planned.algorithm)
    }
}

/// A call that was checked, with its plan.
pub(crate) struct Prepared<'b, T> {
    pub(crate) call: Call,
    pub(crate) planned: Planned,
    pub(crate) run: Run,
    pub(crate) digest: u64,
    pub(crate) objects: (SymSlice<'b, T>, SymSlice<'b, T>),
}

impl<'t> Coll<'t> {
    /// The memory of a call.
    pub(crate) fn buffers<'b, T: Elem, A: Elem>(
        &self,
        number: u64,
        (src, dst): (SymSlice<'b, T>, SymSlice<'b, T>),
    ) -> Result<Buffers<'b, T, A>>
    where
        't: 'b,
    {
        let half = self.slots.len() / 2;
        let parity = (number % 2) as usize;
        let slots = self.slots.slice(parity * half..(parity + 1) * half)?.cast()?;
        Ok(Buffers { src, dst, work: self.work.cast()?, slots })
    }

    /// Checks a call and makes its plan.
    pub(crate) fn prepare<'b, T: Elem, R: Reduce<T>>(
        &self,
        plans: &mut Plans,
        number: u64,
        what: Collective,
        call: Result<Call>,
        src: SymSlice<'b, T>,
        dst: SymSlice<'b, T>,
    ) -> Result<Prepared<'b, T>> {
        let call = call?;
        let in_place = self.aliasing(what, call.len, src, dst)?;
        let call = Call { in_place, strict: self.strict, ..call };
        let objects = match what {
            _ if !in_place => (src, dst),
            Collective::ReduceScatter | Collective::Scatter { .. } => (src, src),
            _ => (dst, dst),
        };
        let n = self.team.n_pes();
        let problem = Problem { what, n, len: call.len, chunk: 1, in_place };
        let choice = self.selection.explain(&problem, &self.hosts, self.need::<T, R>(what));
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small::<R::Acc>(&call))?;
        let planned = Planned { problem: Problem { chunk, ..problem }, algorithm, turns };
        let plan = plans.plan(planned, &self.hosts, self.team.me());
        let digest = call.digest(number);
        Ok(Prepared { call, planned, run: Run::new(plan, digest), digest, objects })
    }

    /// What a call has, and asks of an algorithm.
    fn need<T: Elem, R: Reduce<T>>(&self, what: Collective) -> Need {
        let size = size_of::<T>().max(1);
        let room = Room { work: self.work.len() / size, slot: self.slots.len() / 2 / size };
        Need { whole: self.strict, ..Need::of::<T, R>(what, room) }
    }

    /// That the workspace does not hold a partial result of each block.
    #[cold]
    fn too_small<A>(&self, call: &Call) -> Error {
        let blocks = call.len.max(1).min(self.team.n_pes());
        let (name, value) = ("SHMEM_TEAM_WORKSPACE".into(), show_size(self.team.workspace().len()));
        let more = 8 * blocks * size_of::<A>();
        let form = format!("give {} more for {}", show_size(more), call.text(0));
        ErrorKind::BadSetting { name, value, form }.into()
    }

    /// A reduce-scatter by counts.
    pub(crate) fn scattered<'b, T: Elem, R: Reduce<T> + 'b>(
        &self,
        number: u64,
        call: Call,
        (src, dst): (SymSlice<'b, T>, SymSlice<'b, T>),
        mut problem: Uneven,
        op: R,
    ) -> Result<Started<'b>>
    where
        't: 'b,
    {
        let call = Call { strict: self.strict, ..call };
        let me = self.team.me();
        if src.offset() + problem.blocks.range(me).start * size_of::<T>() != dst.offset() {
            self.apart(src, dst)?;
        }
        let what = Collective::ReduceScatter;
        let choice = self.selection.explain_uneven(&problem, &self.hosts, self.need::<T, R>(what));
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small::<R::Acc>(&call))?;
        problem.chunk = chunk;
        let plan = match turns {
            None => algorithm.plan_uneven(&problem, me),
            Some(turns) => wide::plan_uneven(algorithm, &problem, me, turns),
        };
        // Whose regions lie where they say: sources begin at 0, and of targets only the own is written.
        let (n, len) = (problem.blocks.n(), problem.blocks.total());
        let shape = Problem { what, n, len, chunk, in_place: false };
        let run = Run::new(plan.unwrap_or_default().into(), call.digest(number));
        Ok(Started { number, run, hand: self.hand(number, shape, turns, (src, dst), op)?, call })
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
        let (buffers, forced) = (self.buffers(number, (src, dst))?, self.selection.forced(like));
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

    /// Who carries out the folds of a call.
    pub(crate) fn hand<'b, T: Elem, R: Reduce<T> + 'b>(
        &self,
        number: u64,
        problem: Problem,
        turns: Option<usize>,
        objects: (SymSlice<'b, T>, SymSlice<'b, T>),
        op: R,
    ) -> Result<Box<dyn Hand + 'b>>
    where
        't: 'b,
    {
        Ok(match turns {
            None => Box::new(Plain { problem, buffers: self.buffers(number, objects)?, op }),
            Some(_) => Box::new(Wide { problem, buffers: self.buffers(number, objects)?, op }),
        })
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
