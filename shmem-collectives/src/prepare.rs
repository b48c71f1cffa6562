//! How a call is done: the algorithm and the plan, found once for all calls of a kind, since programs repeat themselves.

use std::collections::HashMap;
use std::rc::Rc;

use shmem::config::show_size;
use shmem::{Error, ErrorKind, Result, SymSlice, World};

use crate::call::{Call, Print};
use crate::coll::Coll;
use crate::hand::{Buffers, Objects, Reduction};
use crate::plan::{Collective, Plan, Problem, Step, Uneven};
use crate::plans::{Algorithm, Room, wide};
use crate::run::Run;
use crate::select::{Choice, Need, Partial};
use crate::task::Started;
use crate::tiny;
use crate::told::{Aim, Stage, Told};

/// What calls have in common that are done alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    what: Collective,
    len: usize,
    /// Bytes of an element.
    size: usize,
    in_place: bool,
    whole: bool,
    partial: Partial,
}

/// How a call is done.
pub(crate) struct Way {
    pub(crate) problem: Problem,
    pub(crate) algorithm: Algorithm,
    /// Whether the team's memory holds partial results that are no elements: in plans by [`wide`].
    pub(crate) wide: bool,
    /// Bytes of what lies in the team's memory: elements, or partial results.
    pub(crate) held: usize,
    /// Whether it goes on the cache lines of the meeting.
    pub(crate) tiny: bool,
    pub(crate) plan: Plan,
    /// Bytes that the plan's folds read and write, on this PE: together they go past the cache, or none of them does.
    pub(crate) touched: usize,
    /// Whether the plan meets by itself.
    pub(crate) meets: bool,
}

impl Way {
    /// By a plan whose elements are moved as they are, or held as they are.
    pub(crate) fn new(problem: Problem, algorithm: Algorithm, plan: Plan, held: usize) -> Self {
        let meets = plan.contains(&Step::Meet);
        let touches = |step: &Step| match step {
            Step::Fold { from, into } => from.iter().chain(into).map(|at| at.len).sum(),
            _ => 0,
        };
        let touched = plan.iter().map(touches).sum::<usize>().saturating_mul(held);
        Way { problem, algorithm, wide: false, held, tiny: false, plan, touched, meets }
    }
}

/// Those that were found.
#[derive(Default)]
pub(crate) struct Ways {
    all: HashMap<Kind, Rc<Way>>,
    latest: Option<Latest>,
}

/// What the next call will be like, if it is like the latest.
struct Latest {
    kind: Kind,
    way: Rc<Way>,
    /// The names that the call's print was made of.
    names: [&'static str; 2],
    print: Print,
}

impl Ways {
    fn get(&mut self, kind: Kind, call: &Call, find: impl FnOnce() -> Result<Way>) -> Result<(Rc<Way>, Print)> {
        let names = [call.elem, call.op];
        // The same names stand at the same place, as a rule; where they do not, the print is made again.
        let same = |latest: &Latest| latest.kind == kind && std::iter::zip(latest.names, names).all(is_same);
        if let Some(latest) = self.latest.as_ref().filter(|latest| same(latest)) {
            return Ok((Rc::clone(&latest.way), latest.print));
        }
        let way = match self.all.get(&kind) {
            Some(way) => Rc::clone(way),
            None => Rc::new(find()?),
        };
        self.all.entry(kind).or_insert_with(|| Rc::clone(&way));
        let print = call.print();
        self.latest = Some(Latest { kind, way: Rc::clone(&way), names, print });
        Ok((way, print))
    }

    /// The algorithm of the latest call.
    pub(crate) fn latest_algorithm(&self) -> Option<Algorithm> {
        self.latest.as_ref().map(|latest| latest.way.algorithm)
    }
}

/// Whether two names are one.
#[inline]
fn is_same((one, other): (&'static str, &'static str)) -> bool {
    std::ptr::eq(one, other)
}

impl<'t> Coll<'t> {
    /// The memory of a call.
    #[inline]
    pub(crate) fn buffers<'b>(&self, number: u64, objects: Objects<'b>) -> Buffers<'b>
    where
        't: 'b,
    {
        Buffers { objects, work: self.work, slots: self.slots[(number % 2) as usize] }
    }

    /// Checks the objects of a call, which in place become the whole buffer, and finds how it is done and what is compared.
    #[inline]
    pub(crate) fn way(
        &self,
        ways: &mut Ways,
        what: Collective,
        call: &mut Call,
        objects: &mut Objects<'_>,
        reduction: Option<&dyn Reduction>,
    ) -> Result<(Rc<Way>, Print)> {
        let in_place = self.aliasing(what, call.len, objects)?;
        call.in_place = in_place;
        call.strict = self.strict;
        if in_place {
            match what {
                Collective::ReduceScatter | Collective::Scatter { .. } => objects.dst = objects.src,
                _ => objects.src = objects.dst,
            }
        }
        let partial = reduction.map_or(Partial::Elements, |reduction| reduction.partial(what));
        let kind = Kind { what, len: call.len, size: objects.size, in_place, whole: self.strict, partial };
        ways.get(kind, call, || self.find(kind, call))
    }

    #[cold]
    fn find(&self, kind: Kind, call: &Call) -> Result<Way> {
        let Kind { what, len, size, in_place, .. } = kind;
        let (n, me) = (self.team.n_pes(), self.team.me());
        let problem = Problem { what, n, len, chunk: 1, in_place };
        let need = self.need(size, kind.partial);
        let choice = self.selection.explain(&problem, &self.hosts, need);
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small(call))?;
        let problem = Problem { chunk, ..problem };
        let plan = match turns {
            None => algorithm.plan(&problem, &self.hosts, me),
            Some(turns) => wide::plan(algorithm, &problem, &self.hosts, me, turns),
        };
        let wide = turns.is_some();
        let tiny = algorithm == Algorithm::Small && !wide && tiny::takes(&problem, size, self.team);
        Ok(Way { wide, tiny, ..Way::new(problem, algorithm, plan, need.held(algorithm).unwrap_or(size)) })
    }

    /// What a call has, and asks of an algorithm.
    fn need(&self, size: usize, partial: Partial) -> Need {
        let bytes = size.max(1);
        let room = Room { work: self.work.len() / bytes, slot: self.slots[0].len() / bytes };
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
        let need = self.need(size, reduction.partial(what));
        let choice = self.selection.explain_uneven(&problem, &self.hosts, need);
        let Choice { algorithm, chunk, turns, .. } = choice.ok_or_else(|| self.too_small(&call))?;
        problem.chunk = chunk;
        let plan = match turns {
            None => algorithm.plan_uneven(&problem, me),
            Some(turns) => wide::plan_uneven(algorithm, &problem, me, turns),
        };
        // Whose regions lie where they say: sources begin at 0, and of targets only the own is written.
        let (n, len) = (problem.blocks.n(), problem.blocks.total());
        let shape = Problem { what, n, len, chunk, in_place: false };
        let held = need.held(algorithm).unwrap_or(size);
        let way = Way { wide: turns.is_some(), ..Way::new(shape, algorithm, plan.unwrap_or_default(), held) };
        let (run, buffers) = (Run::new(way.into(), call.digest(number)), self.buffers(number, objects));
        Ok(Started { number, call, run, buffers, reduction: Some(reduction) })
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
        let (buffers, forced) = (self.buffers(number, objects), self.selection.forced(like));
        Ok(Told { world: self.world, number, call, aim, records, buffers, forced, stage: Stage::Begun })
    }

    /// Whether a call is in place; an error if source and target overlap otherwise.
    #[inline]
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
#[inline]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Hosts;

    #[test]
    fn what_a_pe_touches_is_all_that_its_folds_read_and_write() {
        let problem = Problem { what: Collective::AllReduce, n: 2, len: 1000, chunk: 64, in_place: false };
        let plan = Algorithm::Direct.plan(&problem, &Hosts::one(2), 0);
        // Half of both sources and of both targets, of 4 bytes an element, in however many pieces.
        assert_eq!(Way::new(problem, Algorithm::Direct, plan, 4).touched, 4 * 500 * 4);
    }
}
