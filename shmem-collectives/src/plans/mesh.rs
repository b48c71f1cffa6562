//! Mesh: everything goes to PE 0 and from there to all; the naive way, for comparison.
//!
//! PE 0 reads n-1 times m elements of an all-reduce of m and combines them in PE order; then each of the others reads
//! the result from it. Three words between PE 0 and each other.

use std::ops::Range;

use super::pipeline::keep;
use super::writer::{Writer, block, dst, src};
use crate::plan::{Collective, Plan, Problem};

/// Whether the mesh has a plan for this.
pub fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllReduce | Collective::AllGather)
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, len, .. } = *problem;
    let mut w = Writer::new(n, me, problem.chunk);
    let gathers = problem.what == Collective::AllGather;
    if n == 1 {
        keep(&mut w, problem);
    } else if me > 0 {
        w.signal(0);
        if gathers && !problem.in_place {
            w.copy(src(me, 0..len), dst(me, block(me, len)));
        }
        w.hear(0);
        // Of the blocks, all but the own one.
        let mut get = |part: Range<usize>| w.copy(dst(0, part.clone()), dst(me, part));
        if gathers {
            get(0..me * len);
            get((me + 1) * len..n * len);
        } else {
            get(0..len);
        }
        w.signal(0);
    } else {
        w.hear_all(w.others());
        if gathers {
            (usize::from(problem.in_place)..n).for_each(|pe| w.copy(src(pe, 0..len), dst(0, block(pe, len))));
        } else {
            w.fold((0..n).map(|pe| src(pe, 0..len)), [dst(0, 0..len)]);
        }
        w.signal_all(w.others());
        w.hear_all(w.others());
    }
    w.done()
}
