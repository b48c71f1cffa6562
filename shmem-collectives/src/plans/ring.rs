//! Ring: every PE talks to its two neighbours only (Patarasuk, Yuan 2009); for large messages, where every link is busy
//! all the time.
//!
//! An all-reduce of m elements is a reduce-scatter, in which the partial result of each of n stripes goes once round
//! the ring and grows, followed by an all-gather, in which the finished stripe goes round again: 2(n-1) steps, each PE
//! reads 2(n-1)/n of m from its left neighbour, which is the least possible. A reduce-scatter or an all-gather alone is
//! half of it. Broadcast and reduce are chains: m elements a PE, n-1 steps more than there are pieces.
//!
//! Everybody reads from its left neighbour, piece by piece, each as soon as it is there. Stripe i begins at PE i+1 and
//! is finished at PE i. In an all-reduce it comes to be where it belongs, in the targets; what a PE overwrites in the
//! second half is what its right neighbour has read in the first, since it has gone round. A reduce-scatter has no such
//! room and uses two places in work memory in turn.

use super::pipeline::{self, Node};
use super::writer::{Writer, dst, src, work};
use crate::plan::{Blocks, Collective, Plan, Problem, Uneven, pieces};

/// Whether the ring has a plan for this.
pub fn plans(what: Collective) -> bool {
    use Collective::*;
    matches!(what, AllReduce | ReduceScatter | AllGather | Reduce { .. } | Broadcast { .. })
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, len, chunk, .. } = *problem;
    let mut w = Writer::new(n, me, chunk);
    match problem.what {
        Collective::AllReduce => all_reduce(&mut w, problem),
        Collective::ReduceScatter => reduce_scatter(&mut w, &Blocks::equal(n, len), chunk),
        Collective::Reduce { root } => pipeline::reduce(&mut w, problem, &|pe| to_root(n, root, pe), true),
        Collective::Broadcast { root } => pipeline::broadcast(&mut w, problem, from_root(n, root, me), root),
        _ => all_gather(&mut w, &Blocks::equal(n, len), chunk, problem.in_place),
    }
    w.done()
}

/// The plan of PE `me` for blocks of different lengths.
pub fn plan_uneven(problem: &Uneven, me: usize) -> Plan {
    let mut w = Writer::new(problem.blocks.n(), me, problem.chunk);
    if problem.gather {
        all_gather(&mut w, &problem.blocks, problem.chunk, problem.in_place);
    } else {
        reduce_scatter(&mut w, &problem.blocks, problem.chunk);
    }
    w.done()
}

fn all_reduce(w: &mut Writer, problem: &Problem) {
    let (n, me) = (w.n, w.me);
    if n == 1 {
        return pipeline::keep(w, problem);
    }
    let (left, right) = (w.left(1), w.right(1));
    let stripe = |i: usize| problem.pieces(Problem::part(problem.len, n, i));
    w.signal(right);
    w.hear(left);
    for round in 1..n {
        for piece in stripe(w.left(round + 1)) {
            let theirs = if round == 1 { src(left, piece.clone()) } else { dst(left, piece.clone()) };
            if round > 1 {
                w.hear(left);
            }
            w.fold([theirs, src(me, piece.clone())], [dst(me, piece)]);
            w.signal(right);
        }
    }
    for round in 1..n {
        for piece in stripe(w.left(round)) {
            w.hear(left);
            w.copy(dst(left, piece.clone()), dst(me, piece));
            if round < n - 1 {
                w.signal(right);
            }
        }
    }
    w.signal(left);
    w.hear(right);
}

fn all_gather(w: &mut Writer, blocks: &Blocks, chunk: usize, in_place: bool) {
    let (n, me) = (w.n, w.me);
    let (left, right) = (w.left(1), w.right(1));
    let mine = blocks.range(me);
    if n > 1 {
        w.signal(right);
    }
    if !in_place {
        w.copy(src(me, 0..mine.len()), dst(me, mine));
    }
    if n == 1 {
        return;
    }
    w.hear(left);
    for round in 1..n {
        let block = blocks.range(w.left(round));
        for piece in pieces(block.clone(), chunk) {
            let in_source = piece.start - block.start..piece.end - block.start;
            let theirs = if round == 1 { src(left, in_source) } else { dst(left, piece.clone()) };
            if round > 1 {
                w.hear(left);
            }
            w.copy(theirs, dst(me, piece));
            if round < n - 1 {
                w.signal(right);
            }
        }
    }
    w.signal(left);
    w.hear(right);
}

fn reduce_scatter(w: &mut Writer, blocks: &Blocks, chunk: usize) {
    let (n, me) = (w.n, w.me);
    if n == 1 {
        return w.copy(src(me, blocks.range(0)), dst(me, blocks.range(0)));
    }
    let (left, right) = (w.left(1), w.right(1));
    let room = chunk.max(1).min(blocks.longest());
    let turns = pieces(0..blocks.longest(), chunk).count();
    // Partial results so far: each is announced to the right neighbour, and its place is free again when that one has
    // answered. Of the last ones, whose places are not used again, it answers once.
    let (mut made, mut read) = (0, 0);
    let all = turns * (n - 2);
    w.signal(right);
    w.hear(left);
    for turn in 0..turns {
        for round in 1..n {
            let block = blocks.range(w.left(round + 1));
            let start = (block.start + turn * chunk.max(1)).min(block.end);
            let piece = start..(start + chunk.max(1)).min(block.end);
            let place = |pe: usize, i: usize| work(pe, i % 2 * room..i % 2 * room + piece.len());
            let theirs = if round == 1 { src(left, piece.clone()) } else { place(left, read) };
            let out = if round == n - 1 {
                dst(me, piece.start - block.start..piece.end - block.start)
            } else {
                place(me, made)
            };
            if round > 1 {
                w.hear(left);
            }
            if round < n - 1 && made >= 2 {
                w.hear(right);
            }
            w.fold([theirs, src(me, piece.clone())], [out]);
            if round > 1 {
                if read + 2 < all || read + 1 == all {
                    w.signal(left);
                }
                read += 1;
            }
            if round < n - 1 {
                w.signal(right);
                made += 1;
            }
        }
    }
    // The last answer says too that the right neighbour has read the source; without partial results that must be said.
    if all == 0 {
        w.signal(left);
    }
    w.hear(right);
}

/// The ring cut before the root: all but the root get from their left neighbour.
fn from_root(n: usize, root: usize, pe: usize) -> Node {
    let (left, right) = ((pe + n - 1) % n, (pe + 1) % n);
    let child = (right != root).then_some(right);
    Node { parent: (pe != root).then_some(left), before: Vec::new(), after: child.into_iter().collect() }
}

/// The ring cut behind the root: all but the PE behind the root get from their left neighbour.
fn to_root(n: usize, root: usize, pe: usize) -> Node {
    let (left, right) = ((pe + n - 1) % n, (pe + 1) % n);
    let child = (left != root).then_some(left);
    Node { parent: (pe != root).then_some(right), before: child.into_iter().collect(), after: Vec::new() }
}
