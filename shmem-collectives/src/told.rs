//! Collectives whose counts only their own PE knows: everybody first tells the others what concerns them, then each
//! makes its plan of what it was told.
//!
//! What is told lies in two areas that calls take in turn. A call meets all PEs after telling, so whoever is in the next
//! call but one knows that all have left this one, whose area it takes.

use shmem::{ErrorKind, Meeting, Result, SymSlice, World};

use crate::call::Call;
use crate::hand::{Buffers, Objects};
use crate::plan::{At, Blocks, Buf, Exchange, Lane as Way, Plan, Problem, Step, Uneven};
use crate::plans::{Algorithm, Room};
use crate::prepare::{self, apart};
use crate::run::{Lane, Run, meet};
use crate::task::{Refused, Task};

/// What one PE tells another.
pub(crate) type Record = [u64; RECORD];
/// Words of it.
pub(crate) const RECORD: usize = 4;

/// Bytes of a piece, as [`select`](crate::select) has it.
const PIECE: usize = 256 << 10;
/// Bytes of all blocks together up to which the one-shot algorithm gathers them.
const SMALL: usize = 16 << 10;

/// What is to be done with what is told.
#[derive(Clone, Debug)]
pub(crate) enum Aim {
    /// An all-gather of blocks of unequal lengths.
    Gather,
    /// An all-to-all: elements to each PE and from each, `there` still unknown.
    Exchange { to: Box<[Way]>, from: Box<[Way]> },
}

/// A call under way.
pub(crate) struct Told<'b> {
    pub(crate) world: &'b World,
    pub(crate) number: u64,
    pub(crate) call: Call,
    pub(crate) aim: Aim,
    /// Where it is told: a record from each PE.
    pub(crate) records: SymSlice<'b, u64>,
    pub(crate) buffers: Buffers<'b>,
    pub(crate) forced: Option<Algorithm>,
    pub(crate) stage: Stage<'b>,
}

/// How far it has come.
pub(crate) enum Stage<'b> {
    Begun,
    Telling(Option<Meeting>),
    Moving(Run, Buffers<'b>),
    Refused(Refused),
}

impl Task for Told<'_> {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        if let Stage::Begun = self.stage {
            self.tell(lane)?;
        }
        if let Stage::Telling(meeting) = &mut self.stage {
            if !meet(meeting, lane.team, &|| self.call.text(self.number), block)? {
                return Ok(false);
            }
            self.stage = match self.listen(lane) {
                Ok((run, buffers)) => Stage::Moving(run, buffers),
                Err(error) => Stage::Refused(Refused::new(self.number, error)),
            };
        }
        match &mut self.stage {
            Stage::Moving(run, buffers) => run.advance(lane, buffers, None, &|| self.call.text(self.number), block),
            Stage::Refused(refused) => refused.advance(lane, block),
            Stage::Begun | Stage::Telling(_) => Ok(false),
        }
    }
}

impl<'b> Told<'b> {
    /// How many elements an object is.
    fn elements(&self, object: SymSlice<'_, u8>) -> usize {
        object.len() / self.buffers.objects.size.max(1)
    }

    fn tell(&mut self, lane: &mut Lane<'_>) -> Result<()> {
        let me = lane.team.me();
        let place = self.records.slice(me * RECORD..(me + 1) * RECORD)?;
        for pe in 0..lane.team.n_pes() {
            let record: Record = match &self.aim {
                Aim::Gather => [self.elements(self.buffers.objects.src) as u64, 0, 0, 0],
                Aim::Exchange { to, from } => {
                    [to[pe].here, to[pe].len, from[pe].here, from[pe].len].map(|word| word as u64)
                }
            };
            lane.has_put();
            lane.ctx.put(place, &record, pe)?;
        }
        lane.complete()?;
        self.stage = Stage::Telling(Some(lane.team.meet(self.call.digest(self.number))));
        Ok(())
    }

    /// The plan, of what the others told.
    fn listen(&self, lane: &Lane<'_>) -> Result<(Run, Buffers<'b>)> {
        let (me, n) = (lane.team.me(), lane.team.n_pes());
        let words = self.records.slice(..n * RECORD)?.to_vec();
        let told = words.as_chunks::<RECORD>().0;
        let room = Room { work: self.elements(self.buffers.work), slot: self.elements(self.buffers.slots) };
        let mut buffers = self.buffers;
        let plan = match &self.aim {
            Aim::Gather => self.gather(told, room, me)?,
            Aim::Exchange { to, from } => {
                let plan = self.exchange(told, to, from, room, me)?;
                buffers.objects.src = self.reach(buffers.objects.src, Buf::Src, &plan)?;
                buffers.objects.dst = self.reach(buffers.objects.dst, Buf::Dst, &plan)?;
                plan
            }
        };
        // Every region of the plan lies where it says, whoever it belongs to.
        let problem = Problem { what: crate::plan::Collective::AllToAll, n, len: 0, chunk: 1, in_place: false };
        let way = prepare::Way::new(problem, Algorithm::Direct, plan, self.buffers.objects.size);
        Ok((Run::new(way.into(), self.call.digest(self.number)), buffers))
    }

    /// A handle for all that the plan takes from or puts into a buffer: another PE's may be longer than the own.
    fn reach(&self, own: SymSlice<'b, u8>, buf: Buf, plan: &Plan) -> Result<SymSlice<'b, u8>> {
        let regions = plan.iter().flat_map(|step| match step {
            Step::Fold { from, into } => from.iter().chain(into.iter()),
            _ => [].iter().chain([].iter()),
        });
        let end =
            regions.filter(|at| at.buf == buf).map(|at| at.range().end).max().unwrap_or(0) * self.buffers.objects.size;
        if end <= own.len() { Ok(own) } else { self.world.object_at(own.offset(), end) }
    }

    /// The own block goes to its place first; what follows is in place, from target to target.
    fn gather(&self, told: &[Record], room: Room, me: usize) -> Result<Plan> {
        let Objects { src, dst, size } = self.buffers.objects;
        let blocks = Blocks::new(told.iter().map(|record| record[0] as usize));
        let (total, mine) = (blocks.total(), blocks.range(me));
        let given = self.elements(dst);
        if given < total {
            return Err(ErrorKind::Length { what: "target", given, needed: total }.into());
        }
        if src.offset() != dst.offset() + mine.start * size {
            apart(self.world, src, dst.slice(..total * size)?)?;
        }
        let problem = Uneven { gather: true, blocks, chunk: (PIECE / size.max(1)).max(1), in_place: true };
        let small = (total * size <= SMALL).then_some(Algorithm::Small);
        let fits = |algorithm: &Algorithm| {
            let need = algorithm.room_uneven(&problem);
            need.work <= room.work && need.slot <= room.slot
        };
        let plan = (self.forced.into_iter().chain(small).filter(fits)).find_map(|one| one.plan_uneven(&problem, me));
        let plan = plan.or_else(|| Algorithm::Direct.plan_uneven(&problem, me)).unwrap_or_default();
        let in_target = |at: At| match at.buf {
            Buf::Src => {
                let block = problem.blocks.range(at.pe);
                At::new(at.pe, Buf::Dst, block.start + at.start..block.start + at.start + at.len)
            }
            _ => at,
        };
        let mut placed = Plan::with_capacity(plan.len() + 1);
        if !mine.is_empty() {
            let from = At::new(me, Buf::Src, 0..mine.len());
            placed.push(Step::Fold { from: [from].into(), into: [At::new(me, Buf::Dst, mine)].into() });
        }
        placed.extend(plan.into_iter().map(|step| match step {
            Step::Fold { from, into } => Step::Fold { from: from.into_iter().map(in_target).collect(), into },
            other => other,
        }));
        Ok(placed)
    }

    fn exchange(&self, told: &[Record], to: &[Way], from: &[Way], room: Room, me: usize) -> Result<Plan> {
        let size = self.buffers.objects.size;
        let complete = |own: &[Way], there: usize| -> Box<[Way]> {
            own.iter().zip(told).map(|(way, record)| Way { there: record[there] as usize, ..*way }).collect()
        };
        for (pe, record) in told.iter().enumerate() {
            let [_, theirs, _, wanted] = record.map(|word| word as usize);
            if theirs != from[pe].len {
                return Err(disagree(pe, theirs, me, from[pe].len));
            }
            if wanted != to[pe].len {
                return Err(disagree(me, to[pe].len, pe, wanted));
            }
        }
        let in_place = self.call.in_place;
        // In place, the pieces must fit into the work memory, which is equal on all PEs.
        let chunk = if in_place { (PIECE / size.max(1)).min(room.work) } else { PIECE / size.max(1) }.max(1);
        let problem = Exchange { to: complete(to, 2), from: complete(from, 0), chunk, in_place };
        let algorithm = if in_place { Some(Algorithm::Pairwise) } else { self.forced };
        let plan = algorithm.and_then(|algorithm| algorithm.plan_exchange(&problem, me));
        Ok(plan.or_else(|| Algorithm::Direct.plan_exchange(&problem, me)).unwrap_or_default())
    }
}

fn disagree(from: usize, sent: usize, to: usize, wanted: usize) -> shmem::Error {
    ErrorKind::Mismatch { report: format!("PE {from} sends {sent} to PE {to}, which expects {wanted}") }.into()
}
