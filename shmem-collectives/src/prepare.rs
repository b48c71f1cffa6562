//! From a call to its plan: checks the objects, chooses the algorithm, makes the plan, and says who carries out its
//! folds.

use std::collections::HashMap;
use std::rc::Rc;

use shmem::config::show_size;
use shmem::{Error, ErrorKind, Result, SymSlice, World};

use crate::call::Call;
use crate::coll::Coll;
use crate::hand::{Buffers, Hand, Objects, Reduction};
use crate::plan::{Collective, Hosts, Plan, Problem, Uneven};
use crate::plans::{Algorithm, Room, wide};
use crate::run::Run;
use crate::select::{Choice, Need, Partial};
use crate::task::Started;
use crate::told::{Aim, Stage, Told};

/// What a plan is made of, besides the hosts and the PE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Planned {
    problem: Problem,
    algorithm: Algorithm,
    /// In how many turns, with partial results that are no elements.
    turns: Option<usize>,
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
pub(crate) struct Prepared<'b> {
    pub(crate) call: Call,
    pub(crate) algorithm: Algorithm,
    pub(crate) run: Run,
    problem: Problem,
    buffers: Buffers<'b>,
    wide: bool,
}

impl<'b> Prepared<'b> {
    /// Who carries out its folds.
    pub(crate) fn hand<'h>(&self, reduction: Option<&'h dyn Reduction>) -> Hand<'h, 'b> {
        Hand { problem: self.problem, buffers: self.buffers, reduction, wide: self.wide }
    }
}

impl<'t> Coll<'t> {
    /// The memory of a call.
    pub(crate) fn buffers<'b>(&self, number: u64, objects: Objects<'b>, held: usize) -> Result<Buffers<'b>>
    where
        't: 'b,
    {
        let half = self.slots.len() / 2;
        let parity = (number % 2) as usize;
        let slots = self.slots.slice(parity * half..(parity + 1) * half)?;
        Ok(Buffers { objects, work: self.work, slots, held })
    }

    /// Checks a call and makes its plan.
    pub(crate) fn prepare<'b>(
        &self,
        plans: &mut Plans,
        number: u64,
        what: Collective,
        call: Result<Call>,
        objects: Result<Objects<'b>>,
        reduction: Option<&dyn Reduction>,
    ) -> Result<Prepared<'b>>
    where
        't: 'b,
    {
        let (call, objects) = (call?, objects?);
        let in_place = self.aliasing(what, call.len, &objects)?;
        let call = Call { in_place, strict: self.strict, ..call };
        let objects = match (what, objects) {
            (_, objects) if !in_place => objects,
            (Collective::ReduceScatter | Collective::Scatter { .. }, Objects { src, size, .. }) => {
                Objects { src, dst: src, size }
            }
            (_, Objects { dst, size, .. }) => Objects { src: dst, dst, size },
        };
        let n = self.team.n_pes();
        let problem = Problem { what, n, len: call.len, chunk: 1, in_place };
        let need = self.need(what, objects.size, reduction);
        let choice = self.selection.explain(&problem, &self.hosts, need);
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small(&call))?;
        let problem = Problem { chunk, ..problem };
        let plan = plans.plan(Planned { problem, algorithm, turns }, &self.hosts, self.team.me());
        let held = need.held(algorithm).unwrap_or(objects.size);
        let digest = if self.compared { call.digest(number) } else { 0 };
        let (run, buffers) = (Run::new(plan, digest), self.buffers(number, objects, held)?);
        Ok(Prepared { call, algorithm, run, problem, buffers, wide: turns.is_some() })
    }

    /// What a call has, and asks of an algorithm.
    fn need(&self, what: Collective, size: usize, reduction: Option<&dyn Reduction>) -> Need {
        let bytes = size.max(1);
        let room = Room { work: self.work.len() / bytes, slot: self.slots.len() / 2 / bytes };
        let partial = reduction.map_or(Partial::Elements, |reduction| reduction.partial(what));
        Need { room, size, partial, whole: self.strict }
    }

    /// That the workspace does not hold a partial result of each block.
    #[cold]
    fn too_small(&self, call: &Call) -> Error {
        let (name, value) = ("SHMEM_TEAM_WORKSPACE".into(), show_size(self.team.workspace().len()));
        let form = format!("give more, for a partial result of each block of {}", call.text(0));
        ErrorKind::BadSetting { name, value, form }.into()
    }

    /// A reduce-scatter by counts.
    pub(crate) fn scattered<'b>(
        &self,
        number: u64,
        call: Call,
        objects: Objects<'b>,
        mut problem: Uneven,
        reduction: Box<dyn Reduction + 'b>,
    ) -> Result<Started<'b>>
    where
        't: 'b,
    {
        let call = Call { strict: self.strict, ..call };
        let (me, Objects { src, dst, size }) = (self.team.me(), objects);
        if src.offset() + problem.blocks.range(me).start * size != dst.offset() {
            apart(self.world, src, dst)?;
        }
        let what = Collective::ReduceScatter;
        let need = self.need(what, size, Some(&*reduction));
        let choice = self.selection.explain_uneven(&problem, &self.hosts, need);
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small(&call))?;
        problem.chunk = chunk;
        let plan = match turns {
            None => algorithm.plan_uneven(&problem, me),
            Some(turns) => wide::plan_uneven(algorithm, &problem, me, turns),
        };
        let held = need.held(algorithm).unwrap_or(size);
        let (run, buffers) =
            (Run::new(plan.unwrap_or_default().into(), call.digest(number)), self.buffers(number, objects, held)?);
        // Whose regions lie where they say: sources begin at 0, and of targets only the own is written.
        let (n, len) = (problem.blocks.n(), problem.blocks.total());
        let problem = Problem { what, n, len, chunk, in_place: false };
        let prepared = Prepared { call, algorithm, run, problem, buffers, wide: turns.is_some() };
        Ok(Started { number, prepared, reduction: Some(reduction) })
    }

    /// A collective whose counts are told first.
    pub(crate) fn told<'b>(&self, number: u64, call: Call, objects: Objects<'b>, aim: Aim) -> Result<Told<'b>>
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
        let (buffers, forced) = (self.buffers(number, objects, objects.size)?, self.selection.forced(like));
        Ok(Told { world: self.world, number, call, aim, records, buffers, forced, stage: Stage::Begun })
    }

    /// Whether a call is in place; an error if source and target overlap otherwise.
    fn aliasing(&self, what: Collective, len: usize, objects: &Objects<'_>) -> Result<bool> {
        let problem = Problem { what, n: self.team.n_pes(), len, chunk: 1, in_place: true };
        let (source, target) = problem.offsets(self.team.me());
        let Objects { src, dst, size } = *objects;
        if len > 0 && src.offset() + target * size == dst.offset() + source * size {
            return Ok(true);
        }
        apart(self.world, src, dst).map(|()| false)
    }
}

/// An error if two objects overlap.
pub(crate) fn apart(world: &World, src: SymSlice<'_, u8>, dst: SymSlice<'_, u8>) -> Result<()> {
    let bytes = |object: SymSlice<'_, u8>| object.offset()..object.offset() + object.len();
    let (source_bytes, target_bytes) = (bytes(src), bytes(dst));
    if src.is_empty() || dst.is_empty() {
        return Ok(());
    }
    if source_bytes.start < target_bytes.end && target_bytes.start < source_bytes.end {
        return Err(ErrorKind::Overlap { pe: world.me(), source_bytes, target_bytes }.into());
    }
    Ok(())
}
