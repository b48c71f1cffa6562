//! Direct: every PE reads from and writes to everybody's buffers; for PEs that share memory.
//!
//! Two meetings, one when all buffers are ready and one when all work is done, and each element crosses between two PEs once. A reduction is cut into n
//! stripes: PE i combines stripe i of all sources, in PE order, and writes it to all targets; since only PE i touches stripe i, this is safe in
//! place. Of an all-reduce of m elements each PE reads (n-1)m/n and writes as many.

use crate::plan::write::{copy, fold, others};
use crate::plan::{At, Buf, Collective, Plan, Problem, Step};

/// The plan of PE `me`.
pub(super) fn plan(problem: &Problem, me: usize) -> Plan {
    let (n, len) = (problem.n, problem.len);
    let block = |i: usize| i * len..(i + 1) * len;
    let src = |pe: usize, range: std::ops::Range<usize>| At::new(pe, Buf::Src, range);
    let dst = |pe: usize, range: std::ops::Range<usize>| At::new(pe, Buf::Dst, range);
    let mut plan = Plan::new();
    match problem.what {
        Collective::AllReduce => {
            plan.push(Step::Meet);
            for piece in problem.pieces(Problem::part(len, n, me)) {
                plan.push(fold((0..n).map(|pe| src(pe, piece.clone())), (0..n).map(|pe| dst(pe, piece.clone()))));
            }
            plan.push(Step::Meet);
        }
        Collective::Reduce { root } => {
            plan.push(Step::Meet);
            for piece in problem.pieces(Problem::part(len, n, me)) {
                plan.push(fold((0..n).map(|pe| src(pe, piece.clone())), [dst(root, piece.clone())]));
            }
            plan.push(Step::Meet);
        }
        Collective::ReduceScatter => {
            plan.push(Step::Meet);
            for piece in problem.pieces(0..len) {
                let theirs = me * len + piece.start..me * len + piece.end;
                plan.push(fold((0..n).map(|pe| src(pe, theirs.clone())), [dst(me, piece)]));
            }
            plan.push(Step::Meet);
        }
        Collective::AllGather => {
            plan.push(Step::Meet);
            if len > 0 {
                plan.push(fold([src(me, 0..len)], (0..n).map(|distance| dst((me + distance) % n, block(me)))));
            }
            plan.push(Step::Meet);
        }
        Collective::Gather { root } => between(&mut plan, problem, copy(src(me, 0..len), dst(root, block(me)))),
        Collective::Scatter { root } => between(&mut plan, problem, copy(src(root, block(me)), dst(me, 0..len))),
        Collective::Broadcast { root } => between(&mut plan, problem, copy(src(root, 0..len), dst(me, 0..len))),
        Collective::AllToAll if problem.in_place => {
            // Everybody reads from the others into its own work memory, and overwrites its buffer when all have read.
            plan.push(Step::Meet);
            if len > 0 {
                let work = |pe: usize| At::new(me, Buf::Work, block(pe));
                plan.extend(others(n, me).map(|pe| copy(src(pe, block(me)), work(pe))));
                plan.push(Step::Meet);
                plan.extend(others(n, me).map(|pe| copy(work(pe), dst(me, block(pe)))));
            } else {
                plan.push(Step::Meet);
            }
        }
        Collective::AllToAll => {
            plan.push(Step::Meet);
            if len > 0 {
                plan.extend(
                    (0..n).map(|distance| (me + distance) % n).map(|pe| copy(src(me, block(pe)), dst(pe, block(me)))),
                );
            }
            plan.push(Step::Meet);
        }
        Collective::InclusiveScan | Collective::ExclusiveScan => scan(&mut plan, problem, me),
    }
    plan
}

/// One copy a PE, between two meetings.
fn between(plan: &mut Plan, problem: &Problem, step: Step) {
    plan.push(Step::Meet);
    if problem.len > 0 {
        plan.push(step);
    }
    plan.push(Step::Meet);
}

/// Each stripe is scanned by one PE: it needs the sources of all and writes a running combination to the target of each.
fn scan(plan: &mut Plan, problem: &Problem, me: usize) {
    let n = problem.n;
    plan.push(Step::Meet);
    let at = |buf: Buf, pe: usize, piece: &std::ops::Range<usize>| At::new(pe, buf, piece.clone());
    for piece in problem.pieces(Problem::part(problem.len, n, me)) {
        // From the last PE to the first, so that in place a source is read before it is overwritten.
        for pe in (0..n).rev() {
            let upto = match problem.what {
                Collective::ExclusiveScan if pe == 0 => continue,
                Collective::ExclusiveScan => pe,
                _ => pe + 1,
            };
            plan.push(fold((0..upto).map(|other| at(Buf::Src, other, &piece)), [at(Buf::Dst, pe, &piece)]));
        }
    }
    plan.push(Step::Meet);
    debug_assert!(plan.iter().all(|step| !matches!(step, Step::Fold { from, .. } if from.is_empty())));
}
