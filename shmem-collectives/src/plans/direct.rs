//! Direct: every PE reads from and writes to everybody's buffers; for PEs that share memory.
//!
//! Two meetings, one when all buffers are ready and one when all work is done, and each element crosses between two PEs once. A reduction is cut into n
//! stripes: PE i combines stripe i of all sources, in PE order, and writes it to all targets; since only PE i touches stripe i, this is safe in
//! place. 2(n-1) waits a PE; of an all-reduce of m elements each PE reads (n-1)m/n and writes as many.

use crate::plan::write::{copy, fold, hear, meet, others, signal};
use crate::plan::{At, Buf, Collective, Plan, Problem, Step};

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let (n, len) = (problem.n, problem.len);
    let block = |i: usize| i * len..(i + 1) * len;
    let src = |pe: usize, range: std::ops::Range<usize>| At::new(pe, Buf::Src, range);
    let dst = |pe: usize, range: std::ops::Range<usize>| At::new(pe, Buf::Dst, range);
    let mut plan = Plan::new();
    match problem.what {
        Collective::AllReduce => {
            meet(&mut plan, n, me);
            for piece in problem.pieces(Problem::part(len, n, me)) {
                plan.push(fold((0..n).map(|pe| src(pe, piece.clone())), (0..n).map(|pe| dst(pe, piece.clone()))));
            }
            meet(&mut plan, n, me);
        }
        Collective::Reduce { root } => {
            meet(&mut plan, n, me);
            for piece in problem.pieces(Problem::part(len, n, me)) {
                plan.push(fold((0..n).map(|pe| src(pe, piece.clone())), [dst(root, piece.clone())]));
            }
            meet(&mut plan, n, me);
        }
        Collective::ReduceScatter => {
            meet(&mut plan, n, me);
            for piece in problem.pieces(0..len) {
                let theirs = me * len + piece.start..me * len + piece.end;
                plan.push(fold((0..n).map(|pe| src(pe, theirs.clone())), [dst(me, piece)]));
            }
            meet(&mut plan, n, me);
        }
        Collective::AllGather => {
            meet(&mut plan, n, me);
            if len > 0 {
                plan.push(fold([src(me, 0..len)], (0..n).map(|distance| dst((me + distance) % n, block(me)))));
            }
            meet(&mut plan, n, me);
        }
        Collective::Gather { root } => {
            to_root(&mut plan, problem, me, root, |plan| plan.push(copy(src(me, 0..len), dst(root, block(me)))));
        }
        Collective::Scatter { root } => {
            from_root(&mut plan, problem, me, root, |plan| plan.push(copy(src(root, block(me)), dst(me, 0..len))));
        }
        Collective::Broadcast { root } => {
            from_root(&mut plan, problem, me, root, |plan| plan.push(copy(src(root, 0..len), dst(me, 0..len))));
        }
        Collective::AllToAll if problem.in_place => {
            // Everybody reads from the others into its own work memory, and overwrites its buffer when all have read.
            meet(&mut plan, n, me);
            if len > 0 {
                let work = |pe: usize| At::new(me, Buf::Work, block(pe));
                plan.extend(others(n, me).map(|pe| copy(src(pe, block(me)), work(pe))));
                meet(&mut plan, n, me);
                plan.extend(others(n, me).map(|pe| copy(work(pe), dst(me, block(pe)))));
            } else {
                meet(&mut plan, n, me);
            }
        }
        Collective::AllToAll => {
            meet(&mut plan, n, me);
            if len > 0 {
                plan.extend(
                    (0..n).map(|distance| (me + distance) % n).map(|pe| copy(src(me, block(pe)), dst(pe, block(me)))),
                );
            }
            meet(&mut plan, n, me);
        }
        Collective::InclusiveScan | Collective::ExclusiveScan => scan(&mut plan, problem, me),
    }
    plan
}

/// Everybody writes to the root once it is ready, and the root hears of it.
fn to_root(plan: &mut Plan, problem: &Problem, me: usize, root: usize, work: impl FnOnce(&mut Plan)) {
    if me == root {
        plan.extend(others(problem.n, me).map(signal));
    } else {
        plan.push(hear(root));
    }
    if problem.len > 0 {
        work(plan);
    }
    if me == root {
        plan.extend(others(problem.n, me).map(hear));
    } else {
        plan.push(signal(root));
    }
}

/// Everybody reads from the root once it is ready, and the root hears when all have done so. The same handshakes as the other way round.
fn from_root(plan: &mut Plan, problem: &Problem, me: usize, root: usize, work: impl FnOnce(&mut Plan)) {
    to_root(plan, problem, me, root, work);
}

/// Each stripe is scanned by one PE: it needs the sources of all and writes a running combination to the target of each.
fn scan(plan: &mut Plan, problem: &Problem, me: usize) {
    let n = problem.n;
    meet(plan, n, me);
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
    meet(plan, n, me);
    debug_assert!(plan.iter().all(|step| !matches!(step, Step::Fold { from, .. } if from.is_empty())));
}
