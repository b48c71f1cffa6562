//! Binomial tree: ceil(log2 n) levels; for small and middle messages that have a root.
//!
//! PEs are numbered from the root. The parent of a PE is its number without the lowest bit, so that a subtree is a row
//! of neighbouring PEs. What is only copied is put: a broadcast by the parent into the child's target, largest subtree
//! first; the blocks of a scatter or gather into the child's or parent's work memory, except what is at its end. What
//! is combined is got: see `pipeline`, which also takes turns with pieces.
//!
//! The root of a broadcast of m elements writes m ceil(log2 n) of them; of a scatter or gather each level moves half of
//! what is left, (n-1)m at the root.

use std::ops::Range;

use super::pipeline::{self, Node, keep};
use super::writer::{Writer, block, dst, src, work};
use crate::layout::segments;
use crate::plan::{At, Collective, Plan, Problem};

/// Whether the binomial tree has a plan for this.
pub fn plans(what: Collective) -> bool {
    use Collective::*;
    matches!(what, Reduce { .. } | Broadcast { .. } | Gather { .. } | Scatter { .. })
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let mut w = Writer::new(problem.n, me, problem.chunk);
    match problem.what {
        Collective::Reduce { root } => {
            let tree = |pe| {
                let tree = Tree::new(problem.n, root, pe);
                Node { parent: tree.parent(), before: Vec::new(), after: tree.children().collect() }
            };
            pipeline::reduce(&mut w, problem, &tree, false);
        }
        Collective::Broadcast { root } => broadcast(&mut w, problem, Tree::new(problem.n, root, me)),
        Collective::Gather { root } => gather(&mut w, problem, Tree::new(problem.n, root, me)),
        Collective::Scatter { root } => scatter(&mut w, problem, Tree::new(problem.n, root, me)),
        _ => {}
    }
    w.done()
}

/// A PE's place in the tree.
#[derive(Clone, Copy)]
struct Tree {
    n: usize,
    root: usize,
    /// Its number, counted from the root.
    v: usize,
}

impl Tree {
    fn new(n: usize, root: usize, pe: usize) -> Self {
        Tree { n, root, v: (pe + n - root) % n }
    }

    fn pe(&self, v: usize) -> usize {
        (v + self.root) % self.n
    }

    fn at(&self, pe: usize) -> Tree {
        Tree::new(self.n, self.root, pe)
    }

    fn parent(&self) -> Option<usize> {
        (self.v > 0).then(|| self.pe(self.v & (self.v - 1)))
    }

    /// The smallest subtree first.
    fn children(self) -> impl DoubleEndedIterator<Item = usize> + Clone {
        let bits = if self.v == 0 { usize::BITS } else { self.v.trailing_zeros() };
        let below = (0..bits).take_while(move |bit| self.v + (1usize << bit) < self.n).count();
        (0..below).map(move |bit| self.pe(self.v + (1 << bit)))
    }

    /// Its subtree, counted from the root.
    fn subtree(&self) -> Range<usize> {
        let size = if self.v == 0 { self.n } else { 1 << self.v.trailing_zeros() };
        self.v..(self.v + size).min(self.n)
    }

    /// The blocks of PEs counted from the root, as pairs of where they are in a buffer of all blocks and how far they
    /// are from the first.
    fn rows(&self, row: Range<usize>, len: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let wrap = (self.n - self.root).clamp(row.start, row.end);
        let mut rows = Vec::new();
        for part in [row.start..wrap, wrap..row.end] {
            if !part.is_empty() {
                let first = self.pe(part.start);
                let far = (part.start - row.start) * len..(part.end - row.start) * len;
                rows.push((first * len..(first + part.len()) * len, far));
            }
        }
        rows
    }
}

fn broadcast(w: &mut Writer, problem: &Problem, tree: Tree) {
    let me = w.me;
    if let Some(parent) = tree.parent() {
        w.signal(parent);
    }
    let pieces = segments(0..problem.len, problem.chunk.max(1));
    // A leaf passes nothing on, so that it need only hear of the last piece.
    let heard = |tree: Tree, t: usize| t + 1 == pieces.len() || tree.children().next().is_some();
    for (t, piece) in pieces.iter().enumerate() {
        let mine: fn(usize, Range<usize>) -> At = if tree.v == 0 { src } else { dst };
        if let Some(parent) = tree.parent().filter(|_| heard(tree, t)) {
            w.hear(parent);
        }
        for child in tree.children().rev() {
            if t == 0 {
                w.hear(child);
            }
            w.copy(mine(me, piece.clone()), dst(child, piece.clone()));
            if heard(tree.at(child), t) {
                w.signal(child);
            }
        }
    }
    if tree.v == 0 {
        keep(w, problem);
    }
}

fn gather(w: &mut Writer, problem: &Problem, tree: Tree) {
    let (me, len) = (w.me, problem.len);
    w.signal_all(tree.children());
    if tree.v == 0 && !problem.in_place {
        w.copy(src(me, 0..len), dst(me, block(me, len)));
    }
    w.hear_all(tree.children());
    let Some(parent) = tree.parent() else { return };
    w.hear(parent);
    let below = tree.v + 1..tree.subtree().end;
    if tree.at(parent).v == 0 {
        w.copy(src(me, 0..len), dst(parent, block(me, len)));
        for (blocks, far) in tree.rows(below, len) {
            w.copy(work(me, far), dst(parent, blocks));
        }
    } else {
        // The parent's work memory begins with its first child's block.
        let start = (tree.v - tree.at(parent).v - 1) * len;
        w.copy(src(me, 0..len), work(parent, start..start + len));
        w.copy(work(me, 0..below.len() * len), work(parent, start + len..start + (1 + below.len()) * len));
    }
    w.signal(parent);
}

fn scatter(w: &mut Writer, problem: &Problem, tree: Tree) {
    let (me, len) = (w.me, problem.len);
    if let Some(parent) = tree.parent() {
        w.signal(parent);
        w.hear(parent);
    }
    for child in tree.children().rev() {
        let theirs = tree.at(child);
        let below = theirs.v + 1..theirs.subtree().end;
        w.hear(child);
        if tree.v == 0 {
            w.copy(src(me, block(child, len)), dst(child, 0..len));
            for (blocks, far) in tree.rows(below, len) {
                w.copy(src(me, blocks), work(child, far));
            }
        } else {
            let start = (theirs.v - tree.v - 1) * len;
            w.copy(work(me, start..start + len), dst(child, 0..len));
            w.copy(work(me, start + len..start + (1 + below.len()) * len), work(child, 0..below.len() * len));
        }
        w.signal(child);
    }
    if tree.v == 0 && !problem.in_place {
        w.copy(src(me, block(me, len)), dst(me, 0..len));
    }
}
