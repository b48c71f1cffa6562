//! Ring: every PE talks to its two neighbours only (Patarasuk, Yuan 2009); for large messages, where every link is busy all the time.
//!
//! An all-reduce of m elements is a reduce-scatter, in which the partial result of each of n stripes goes once round the ring and grows, followed by an
//! all-gather, in which the finished stripe goes round again: 2(n-1) steps, each PE reads 2(n-1)/n of m from its left neighbour, which is the least possible.
//!
//! Everybody reads from its left neighbour's target, where the stripes come to be: stripe i begins at PE i+1 and is finished at PE i.

use std::ops::Range;

use crate::plan::write::{copy, fold, hear, signal};
use crate::plan::{At, Buf, Collective, Plan, Problem, Step};

/// Whether the ring has a plan for this.
pub(super) fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllReduce | Collective::AllGather)
}

/// The plan of PE `me`.
pub(super) fn plan(problem: &Problem, me: usize) -> Plan {
    let n = problem.n;
    let mut plan = vec![Step::Meet];
    let left = (me + n - 1) % n;
    let right = (me + 1) % n;
    let (src, dst) = (|r: Range<usize>| At::new(me, Buf::Src, r), |r: Range<usize>| At::new(me, Buf::Dst, r));
    let lefts = |r: Range<usize>| At::new(left, Buf::Dst, r);
    let stripe = |i: usize| match problem.what {
        Collective::AllReduce => Problem::part(problem.len, n, i % n),
        _ => i % n * problem.len..(i % n + 1) * problem.len,
    };
    // What the right neighbour reads next is ready; wait until what I read next is.
    let turn = |plan: &mut Plan| {
        if n > 1 {
            plan.push(signal(right));
            plan.push(hear(left));
        }
    };
    let put = |plan: &mut Plan, range: Range<usize>, from: &dyn Fn(Range<usize>) -> Vec<At>| {
        for piece in problem.pieces(range) {
            plan.push(fold(from(piece.clone()), [dst(piece)]));
        }
    };
    let (first, rounds) = match problem.what {
        Collective::AllReduce => {
            // My own stripe me-1 starts its way; in place it is where it must be.
            put(&mut plan, stripe(me + n - 1), &|r| vec![src(r)]);
            for round in 1..n {
                turn(&mut plan);
                put(&mut plan, stripe(me + n - 1 - round), &|r| vec![lefts(r.clone()), src(r)]);
            }
            (me, n)
        }
        _ => {
            if problem.len > 0 {
                plan.push(copy(src(0..problem.len), dst(stripe(me))));
            }
            (me, n)
        }
    };
    for round in 1..rounds {
        turn(&mut plan);
        put(&mut plan, stripe(first + n - round), &|r| vec![lefts(r)]);
    }
    // The right neighbour has read its last; nobody needs my buffers any more.
    if n > 1 {
        plan.push(signal(left));
        plan.push(hear(right));
    }
    plan
}
