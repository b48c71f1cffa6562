//! Direct: every PE reads from and writes to everybody's buffers; for PEs that share memory.
//!
//! Two meetings, one when all buffers are ready and one when all work is done, and each element crosses between two PEs
//! once. A reduction is cut into n stripes: PE i combines stripe i of all sources, in PE order, and writes it to all
//! targets; since only PE i touches stripe i, this is safe in place. 2(n-1) waits a PE; of an all-reduce of m elements
//! each PE reads (n-1)m/n and writes as many.

use super::writer::{Writer, block, dst, src, work};
use crate::plan::{At, Blocks, Collective, Exchange, Plan, Problem, Uneven};

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, len, .. } = *problem;
    let mut w = Writer::new(n, me, problem.chunk);
    let stripe = Problem::part(len, n, me);
    match problem.what {
        Collective::AllReduce => {
            w.meet();
            w.fold((0..n).map(|pe| src(pe, stripe.clone())), (0..n).map(|pe| dst(pe, stripe.clone())));
            w.meet();
        }
        Collective::Reduce { root } => {
            w.meet();
            w.fold((0..n).map(|pe| src(pe, stripe.clone())), [dst(root, stripe.clone())]);
            w.meet();
        }
        Collective::ReduceScatter => reduce_scatter(&mut w, &Blocks::equal(n, len)),
        Collective::AllGather => all_gather(&mut w, &Blocks::equal(n, len), problem.in_place),
        Collective::Gather { root } => with_root(&mut w, problem, root, src(me, 0..len), dst(root, block(me, len))),
        Collective::Scatter { root } => with_root(&mut w, problem, root, src(root, block(me, len)), dst(me, 0..len)),
        Collective::Broadcast { root } => with_root(&mut w, problem, root, src(root, 0..len), dst(me, 0..len)),
        Collective::AllToAll => {
            return plan_exchange(&Exchange::equal(n, len, problem.chunk, problem.in_place, me), me);
        }
        Collective::InclusiveScan => scan(&mut w, problem, 1),
        Collective::ExclusiveScan => scan(&mut w, problem, 0),
    }
    w.done()
}

/// The plan of PE `me` for blocks of different lengths.
pub fn plan_uneven(problem: &Uneven, me: usize) -> Plan {
    let mut w = Writer::new(problem.blocks.n(), me, problem.chunk);
    if problem.gather {
        all_gather(&mut w, &problem.blocks, problem.in_place);
    } else {
        reduce_scatter(&mut w, &problem.blocks);
    }
    w.done()
}

/// The plan of PE `me` for an exchange, of which it knows its own part.
pub fn plan_exchange(problem: &Exchange, me: usize) -> Plan {
    let mut w = Writer::new(problem.n(), me, problem.chunk);
    w.meet();
    if problem.in_place {
        // Everybody reads from the others into its own work memory, and overwrites its buffer when all have read.
        let staged = Blocks::new(problem.from.iter().map(|lane| lane.len));
        for pe in w.others() {
            let lane = problem.from[pe];
            w.copy(src(pe, lane.there..lane.there + lane.len), work(me, staged.range(pe)));
        }
        w.meet();
        for pe in w.others() {
            let lane = problem.from[pe];
            w.copy(work(me, staged.range(pe)), dst(me, lane.here..lane.here + lane.len));
        }
    } else {
        for pe in std::iter::once(me).chain(w.others()) {
            let lane = problem.to[pe];
            w.copy(src(me, lane.here..lane.here + lane.len), dst(pe, lane.there..lane.there + lane.len));
        }
        w.meet();
    }
    w.done()
}

fn all_gather(w: &mut Writer, blocks: &Blocks, in_place: bool) {
    let range = blocks.range(w.me);
    let targets = (usize::from(in_place)..w.n).map(|distance| dst(w.right(distance), range.clone()));
    let targets: Vec<_> = targets.collect();
    w.meet();
    w.fold([src(w.me, 0..range.len())], targets);
    w.meet();
}

fn reduce_scatter(w: &mut Writer, blocks: &Blocks) {
    let range = blocks.range(w.me);
    w.meet();
    w.fold((0..w.n).map(|pe| src(pe, range.clone())), [dst(w.me, 0..range.len())]);
    w.meet();
}

/// Everybody copies its part to or from the root once all are there; the root hears when all have done so.
fn with_root(w: &mut Writer, problem: &Problem, root: usize, from: At, into: At) {
    w.meet();
    if w.me != root {
        w.copy(from, into);
        w.signal(root);
    } else {
        if !problem.in_place {
            w.copy(from, into);
        }
        w.hear_all(w.others());
    }
}

/// Each stripe is scanned by one PE: it needs the sources of all and writes to the target of each the combination of
/// those before it, and of `own` more.
fn scan(w: &mut Writer, problem: &Problem, own: usize) {
    w.meet();
    for piece in problem.pieces(Problem::part(problem.len, w.n, w.me)) {
        // From the last PE to the first, so that in place a source is read before it is overwritten; PE 0 then has its
        // result already.
        let first = if problem.in_place { 1 } else { 1 - own };
        for pe in (first..w.n).rev() {
            w.fold((0..pe + own).map(|other| src(other, piece.clone())), [dst(pe, piece.clone())]);
        }
    }
    w.meet();
}
