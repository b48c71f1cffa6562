//! Recursive doubling: in round r, PEs whose numbers differ in bit r tell each other all they know (Thakur,
//! Rabenseifner, Gropp 2005); for small messages in large teams.
//!
//! An all-reduce takes log2 n rounds of one hand-over each and moves m log2 n elements a PE: both write their sum into
//! the other's slots and combine, the lower PE's first, so that all get the same to the bit. Nobody asks before it
//! writes: everybody hears of everybody, as slots demand. An all-gather takes as many rounds and moves each element
//! once: what is known lies in the target, where the partner gets it.
//!
//! With n no power of two, the PEs from the largest power of two on hand their part to one PE of the lower ones each,
//! and get the result from it: two rounds more.

use super::pipeline::keep;
use super::writer::{Writer, block, dst, slot, src};
use crate::plan::{Collective, Plan, Problem};

/// Whether recursive doubling has a plan for this.
pub fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllReduce | Collective::AllGather)
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let mut w = Writer::new(problem.n, me, problem.chunk);
    match problem.what {
        Collective::AllReduce => all_reduce(&mut w, problem),
        _ => all_gather(&mut w, problem),
    }
    w.done()
}

/// The rounds, and the PEs that take part in them.
pub(super) fn core(n: usize) -> (usize, usize) {
    let rounds = n.ilog2() as usize;
    (rounds, 1 << rounds)
}

fn all_reduce(w: &mut Writer, problem: &Problem) {
    let (me, n, len) = (w.me, w.n, problem.len);
    let (rounds, core) = core(n);
    let (mine, result) = (src(me, 0..len), dst(me, 0..len));
    if me >= core {
        let partner = me - core;
        w.copy(mine, slot(partner, block(rounds, len)));
        w.signal(partner);
        w.hear(partner);
        return;
    }
    let extra = (me + core < n).then_some(me + core);
    let mut sum = mine;
    if let Some(extra) = extra {
        w.hear(extra);
        w.fold([sum, slot(me, block(rounds, len))], [result]);
        sum = result;
    }
    for round in 0..rounds {
        let partner = me ^ (1 << round);
        let theirs = slot(me, block(round, len));
        w.copy(sum, slot(partner, block(round, len)));
        w.signal(partner);
        w.hear(partner);
        w.fold(if me < partner { [sum, theirs] } else { [theirs, sum] }, [result]);
        sum = result;
    }
    if let Some(extra) = extra {
        w.copy(result, dst(extra, 0..len));
        w.signal(extra);
    }
    if n == 1 {
        keep(w, problem);
    }
}

fn all_gather(w: &mut Writer, problem: &Problem) {
    let (me, n, len) = (w.me, w.n, problem.len);
    let (rounds, core) = core(n);
    if !problem.in_place {
        w.copy(src(me, 0..len), dst(me, block(me, len)));
    }
    let get = |w: &mut Writer, from: usize, pes: std::ops::Range<usize>| {
        let range = pes.start * len..pes.end.max(pes.start) * len;
        w.copy(dst(from, range.clone()), dst(me, range));
    };
    if me >= core {
        let partner = me - core;
        w.signal(partner);
        w.hear(partner);
        get(w, partner, 0..me);
        get(w, partner, me + 1..n);
        w.signal(partner);
        return;
    }
    let extra = (me + core < n).then_some(me + core);
    if let Some(extra) = extra {
        w.hear(extra);
        w.copy(src(extra, 0..len), dst(me, block(extra, len)));
    }
    for round in 0..rounds {
        let partner = me ^ (1 << round);
        let first = partner >> round << round;
        let theirs = first..first + (1 << round);
        w.signal(partner);
        w.hear(partner);
        get(w, partner, theirs.clone());
        get(w, partner, core + theirs.start..(core + theirs.end).min(n));
        w.signal(partner);
    }
    if let Some(extra) = extra {
        w.signal(extra);
        w.hear(extra);
    }
    (0..rounds).for_each(|round| w.hear(me ^ (1 << round)));
}
