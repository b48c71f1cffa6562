//! Small: everybody writes its source to a slot of all who need it, then all meet, and the rest is local: one hand-over a call.
//!
//! Calls take turns between two sets of slots. A PE that writes to a slot again, two calls later, has met all others in the call between, which
//! they entered after they had read the slot. Each PE writes n-1 blocks (or one to the root) and reads none.

use crate::plan::write::{copy, fold};
use crate::plan::{At, Buf, Collective, Plan, Problem, Step};

/// Elements of slots that a problem needs.
pub(super) fn slots(problem: &Problem) -> usize {
    problem.n * problem.len
}

/// The plan of PE `me`.
pub(super) fn plan(problem: &Problem, me: usize) -> Plan {
    let (n, len) = (problem.n, problem.len);
    if len == 0 {
        return vec![Step::Meet];
    }
    let block = |i: usize| i * len..(i + 1) * len;
    let slot = |pe: usize, of: usize| At::new(pe, Buf::Slot, block(of));
    let src = |block: std::ops::Range<usize>| At::new(me, Buf::Src, block);
    let dst = |block: std::ops::Range<usize>| At::new(me, Buf::Dst, block);
    let everyone = || (0..n).map(move |distance| (me + distance) % n);
    let mut plan = Plan::new();
    // Sources go to slots; the last argument says who gets which part.
    match problem.what {
        Collective::AllReduce | Collective::AllGather | Collective::InclusiveScan | Collective::ExclusiveScan => {
            plan.push(fold([src(0..len)], everyone().map(|pe| slot(pe, me))));
        }
        Collective::Reduce { root } | Collective::Gather { root } => plan.push(copy(src(0..len), slot(root, me))),
        Collective::Broadcast { root } if me == root => {
            plan.push(fold([src(0..len)], everyone().map(|pe| slot(pe, 0))));
        }
        Collective::Scatter { root } if me == root => {
            plan.extend(everyone().map(|pe| copy(src(block(pe)), slot(pe, 0))));
        }
        Collective::Broadcast { .. } | Collective::Scatter { .. } => {}
        Collective::ReduceScatter | Collective::AllToAll => {
            plan.extend(everyone().map(|pe| copy(src(block(pe)), slot(pe, me))));
        }
    }
    plan.push(Step::Meet);
    let sum_to = |target: At, upto: usize| fold((0..upto).map(|of| slot(me, of)), [target]);
    match problem.what {
        Collective::AllReduce | Collective::ReduceScatter => plan.push(sum_to(dst(0..len), n)),
        Collective::Reduce { root } if me == root => plan.push(sum_to(dst(0..len), n)),
        Collective::InclusiveScan => plan.push(sum_to(dst(0..len), me + 1)),
        Collective::ExclusiveScan if me > 0 => plan.push(sum_to(dst(0..len), me)),
        Collective::AllGather | Collective::AllToAll => {
            plan.push(copy(At::new(me, Buf::Slot, 0..n * len), dst(0..n * len)));
        }
        Collective::Gather { root } if me == root => {
            plan.push(copy(At::new(me, Buf::Slot, 0..n * len), dst(0..n * len)));
        }
        Collective::Broadcast { .. } | Collective::Scatter { .. } => plan.push(copy(slot(me, 0), dst(0..len))),
        Collective::Reduce { .. } | Collective::Gather { .. } | Collective::ExclusiveScan => {}
    }
    plan
}
