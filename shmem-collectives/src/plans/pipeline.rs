//! What goes up or down a tree in pieces, one behind the other: the common part of chains, binomial and double trees.
//!
//! Up: a PE combines a piece of its children with its own and keeps it in one of two places in its work memory, from
//! which its parent gets it; it writes there again when the parent has said that it is done. A leaf's source is there
//! all the time, and is spoken of once. At the end a PE must know that all of it has been read: its parent says so,
//! unless what comes down tells it.
//!
//! Down: a PE gets a piece from its parent's target, where it stays, so that only the last word goes back.

use std::ops::Range;

use super::writer::{Writer, dst, src, work};
use crate::layout::segments;
use crate::plan::{At, Problem};

/// A PE's place in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    /// Those whose elements come before the own ones.
    pub(super) before: Vec<usize>,
    /// Those whose elements come after.
    pub(super) after: Vec<usize>,
}

impl Node {
    pub(super) fn children(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.before.iter().chain(&self.after).copied()
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// The way up a tree for some of the elements, to the root's target.
pub(super) struct Up {
    node: Node,
    leaves: Vec<bool>,
    pieces: Vec<Range<usize>>,
    /// Elements of each of the two places in work memory.
    room: usize,
    /// Whether all children are combined in one go, or each when it is there.
    at_once: bool,
}

impl Up {
    pub(super) fn new(
        me: usize,
        tree: &dyn Fn(usize) -> Node,
        range: Range<usize>,
        chunk: usize,
        at_once: bool,
    ) -> Self {
        let node = tree(me);
        let leaves = node.children().map(|child| tree(child).is_leaf()).collect();
        let room = chunk.max(1).min(range.len());
        Up { leaves, node, pieces: segments(range, chunk.max(1)), room, at_once }
    }

    /// Steps that it takes: one a piece.
    pub(super) fn steps(&self) -> usize {
        self.pieces.len()
    }

    fn place(&self, pe: usize, t: usize) -> At {
        let start = t % 2 * self.room;
        work(pe, start..start + self.pieces[t].len())
    }

    /// Before the first step.
    pub(super) fn start(&self, w: &mut Writer) {
        if let (true, Some(parent)) = (self.node.is_leaf(), self.node.parent) {
            w.signal(parent);
        }
    }

    /// Step `t`, of which the first comes first: piece `t`, once the parent has read piece `t - 2`.
    pub(super) fn step(&self, w: &mut Writer, t: usize) {
        if self.node.is_leaf() {
            return;
        }
        if let (2.., Some(parent)) = (t, self.node.parent) {
            w.hear(parent);
        }
        let (me, piece) = (w.me, self.pieces[t].clone());
        let own = src(me, piece.clone());
        let out = if self.node.parent.is_some() { self.place(me, t) } else { dst(me, piece.clone()) };
        let at = |i: usize, child: usize| if self.leaves[i] { src(child, piece.clone()) } else { self.place(child, t) };
        let children: Vec<(usize, usize)> = self.node.children().enumerate().collect();
        let mut sum = own;
        for &(i, child) in &children {
            if t == 0 || !self.leaves[i] {
                w.hear(child);
            }
            if !self.at_once {
                let theirs = at(i, child);
                w.fold(if i < self.node.before.len() { [theirs, sum] } else { [sum, theirs] }, [out]);
                sum = out;
            }
        }
        if self.at_once {
            let mut from: Vec<At> = children.iter().map(|&(i, child)| at(i, child)).collect();
            from.insert(self.node.before.len(), own);
            w.fold(from, [out]);
        }
        if t + 2 < self.pieces.len() {
            children.iter().filter(|(i, _)| !self.leaves[*i]).for_each(|(_, child)| w.signal(*child));
        }
        if let Some(parent) = self.node.parent {
            w.signal(parent);
        }
    }

    /// After the last step.
    pub(super) fn finish(&self, w: &mut Writer) {
        w.signal_all(self.node.children());
        if let Some(parent) = self.node.parent {
            w.hear(parent);
        }
    }
}

/// The way down a tree for some of the elements, from the root's source or target.
pub(super) struct Down {
    node: Node,
    pieces: Vec<Range<usize>>,
    /// The root, if its elements are all in its source from the beginning; otherwise they come to be in its target.
    ready: Option<usize>,
}

impl Down {
    pub(super) fn new(node: Node, range: Range<usize>, chunk: usize, ready: Option<usize>) -> Self {
        Down { node, pieces: segments(range, chunk.max(1)), ready }
    }

    /// Steps that it takes: one a piece.
    pub(super) fn steps(&self) -> usize {
        self.pieces.len()
    }

    /// Step `t`, of which the first comes first: piece `t`.
    pub(super) fn step(&self, w: &mut Writer, t: usize) {
        let piece = self.pieces[t].clone();
        if let Some(parent) = self.node.parent {
            if t == 0 || self.ready != Some(parent) {
                w.hear(parent);
            }
            let from = if self.ready == Some(parent) { src(parent, piece.clone()) } else { dst(parent, piece.clone()) };
            w.copy(from, dst(w.me, piece));
        }
        if t == 0 || self.ready != Some(w.me) {
            w.signal_all(self.node.children());
        }
    }

    /// After the last step.
    pub(super) fn finish(&self, w: &mut Writer) {
        if let Some(parent) = self.node.parent {
            w.signal(parent);
        }
        w.hear_all(self.node.children());
    }
}

/// A whole reduction up one tree.
pub(super) fn reduce(w: &mut Writer, problem: &Problem, tree: &dyn Fn(usize) -> Node, at_once: bool) {
    if w.n == 1 {
        return keep(w, problem);
    }
    let up = Up::new(w.me, tree, 0..problem.len, problem.chunk, at_once);
    up.start(w);
    (0..up.steps()).for_each(|t| up.step(w, t));
    up.finish(w);
}

/// A whole broadcast down one tree.
pub(super) fn broadcast(w: &mut Writer, problem: &Problem, node: Node, root: usize) {
    let down = Down::new(node, 0..problem.len, problem.chunk, Some(root));
    (0..down.steps()).for_each(|t| down.step(w, t));
    if w.me == root {
        keep(w, problem);
    }
    down.finish(w);
}

/// The own elements, from source to target.
pub(super) fn keep(w: &mut Writer, problem: &Problem) {
    if !problem.in_place {
        w.copy(src(w.me, 0..problem.len), dst(w.me, 0..problem.len));
    }
}
