//! Any algorithm with partial results of a type of their own: what no element can hold (a sum of f16 before it is
//! rounded, a sum that is still to be divided) lies in work memory from end to end.
//!
//! A PE widens its contribution into its work memory, all run the algorithm's plan there, in place, and each finishes
//! what it gets into its target. In the plan's terms the two are copies: from source to work memory, and from work
//! memory to target; nothing else touches source and target, and no other PE does.
//!
//! What the work memory does not hold at once goes in turns, in each of which a part of every block is done, one behind
//! the other as calls may follow each other. Only slots need more care: a call has one of their two areas, so that all
//! meet before the next turn uses them again.
//!
//! Two passes over the own elements more than the algorithm alone, and partial results that are larger than elements in
//! every step of it.

use super::writer::{Writer, block, dst, src, work};
use super::{Algorithm, Room};
use crate::layout::part_of;
use crate::plan::{At, Blocks, Buf, Collective, Hosts, Plan, Problem, Step, Uneven};

/// The plan of PE `me`, in `turns`, at least 1; only for collectives that combine.
pub fn plan(algorithm: Algorithm, problem: &Problem, hosts: &Hosts, me: usize, turns: usize) -> Plan {
    let Problem { what, n, len, .. } = *problem;
    let (gives, gets) = match what {
        Collective::Reduce { root } => (true, me == root),
        Collective::ExclusiveScan => (me + 1 < n, me > 0),
        _ => (true, true),
    };
    let mut plan = Plan::new();
    for turn in 0..turns {
        let part = Problem::part(len, turns, turn);
        let (blocks, within) = (what.blocks(n).0, part.len());
        let inner = Problem { len: within, in_place: true, ..*problem };
        let mut w = Writer::new(n, me, within.max(1));
        if turn > 0 && algorithm.uses_slots(what) {
            w.meet();
        }
        for i in (0..blocks).filter(|_| gives) {
            w.copy(src(me, i * len + part.start..i * len + part.end), work(me, block(i, within)));
        }
        plan.append(&mut w.done());
        let moved = |at: At| match at.buf {
            Buf::Src => At { buf: Buf::Work, start: inner.offsets(at.pe).0 + at.start, ..at },
            Buf::Dst => At { buf: Buf::Work, start: inner.offsets(at.pe).1 + at.start, ..at },
            Buf::Work => At { start: blocks * within + at.start, ..at },
            Buf::Slot => at,
        };
        plan.extend(algorithm.plan(&inner, hosts, me).into_iter().map(|step| relocated(step, moved)));
        let mut w = Writer::new(n, me, within.max(1));
        if gets {
            let start = inner.offsets(me).1;
            w.copy(work(me, start..start + within), dst(me, part));
        }
        plan.append(&mut w.done());
    }
    plan
}

/// What that needs of the collective's own memory, in partial results.
pub fn room(algorithm: Algorithm, problem: &Problem, hosts: &Hosts, turns: usize) -> Room {
    let within = problem.len.div_ceil(turns);
    let Room { work, slot } = algorithm.room(&Problem { len: within, in_place: true, ..*problem }, hosts);
    Room { work: problem.what.blocks(problem.n).0 * within + work, slot }
}

/// The plan of PE `me` for a reduce-scatter with blocks of different lengths, in `turns`, at least 1; none where the
/// algorithm has no such.
pub fn plan_uneven(algorithm: Algorithm, problem: &Uneven, me: usize, turns: usize) -> Option<Plan> {
    let n = problem.blocks.n();
    let mut plan = Plan::new();
    for turn in 0..turns {
        let part = |i: usize| part_of(problem.blocks.range(i), turns, turn);
        let blocks = Blocks::new((0..n).map(|i| part(i).len()));
        let total = blocks.total();
        let mut w = Writer::new(n, me, total.max(1));
        if turn > 0 && algorithm.uses_slots(Collective::ReduceScatter) {
            w.meet();
        }
        (0..n).for_each(|i| w.copy(src(me, part(i)), work(me, blocks.range(i))));
        plan.append(&mut w.done());
        let moved = |at: At| match at.buf {
            Buf::Src => At { buf: Buf::Work, ..at },
            Buf::Dst => At { buf: Buf::Work, start: blocks.range(at.pe).start + at.start, ..at },
            Buf::Work => At { start: total + at.start, ..at },
            Buf::Slot => at,
        };
        let inner = Uneven { blocks: blocks.clone(), in_place: true, ..problem.clone() };
        plan.extend(algorithm.plan_uneven(&inner, me)?.into_iter().map(|step| relocated(step, moved)));
        let mut w = Writer::new(n, me, total.max(1));
        let (own, whole) = (part(me), problem.blocks.range(me).start);
        w.copy(work(me, blocks.range(me)), dst(me, own.start - whole..own.end - whole));
        plan.append(&mut w.done());
    }
    Some(plan)
}

/// What that needs of the collective's own memory, in partial results.
pub fn room_uneven(algorithm: Algorithm, problem: &Uneven, turns: usize) -> Room {
    // Of parts that differ by one, the first are the longer ones.
    let longest = |i: usize| problem.blocks.range(i).len().div_ceil(turns);
    let blocks = Blocks::new((0..problem.blocks.n()).map(longest));
    let total = blocks.total();
    let Room { work, slot } = algorithm.room_uneven(&Uneven { blocks, in_place: true, ..problem.clone() });
    Room { work: total + work, slot }
}

fn relocated(step: Step, moved: impl Fn(At) -> At) -> Step {
    match step {
        Step::Fold { from, into } => {
            Step::Fold { from: from.into_iter().map(&moved).collect(), into: into.into_iter().map(&moved).collect() }
        }
        other => other,
    }
}
