//! Shorthand for writing plans: cuts what is moved into pieces of the chunk size, and leaves out what is empty.

use std::ops::Range;

use crate::plan::{At, Buf, Plan, Step, pieces};

/// A region of a PE's source.
pub(super) fn src(pe: usize, range: Range<usize>) -> At {
    At::new(pe, Buf::Src, range)
}

/// A region of a PE's target.
pub(super) fn dst(pe: usize, range: Range<usize>) -> At {
    At::new(pe, Buf::Dst, range)
}

/// A region of a PE's work memory.
pub(super) fn work(pe: usize, range: Range<usize>) -> At {
    At::new(pe, Buf::Work, range)
}

/// A region of a PE's slots.
pub(super) fn slot(pe: usize, range: Range<usize>) -> At {
    At::new(pe, Buf::Slot, range)
}

/// Element range of block `i` of blocks of `len`.
pub(super) fn block(i: usize, len: usize) -> Range<usize> {
    i * len..(i + 1) * len
}

/// A plan that is being written.
pub(super) struct Writer {
    plan: Plan,
    pub(super) n: usize,
    pub(super) me: usize,
    chunk: usize,
}

impl Writer {
    pub(super) fn new(n: usize, me: usize, chunk: usize) -> Self {
        Writer { plan: Plan::new(), n, me, chunk }
    }

    pub(super) fn done(self) -> Plan {
        self.plan
    }

    /// One source to one target.
    pub(super) fn copy(&mut self, from: At, into: At) {
        self.fold([from], [into]);
    }

    /// Some sources, combined in their order, to some targets.
    pub(super) fn fold(&mut self, from: impl IntoIterator<Item = At>, into: impl IntoIterator<Item = At>) {
        let (from, into): (Vec<At>, Vec<At>) = (from.into_iter().collect(), into.into_iter().collect());
        if into.is_empty() {
            return;
        }
        for piece in pieces(0..from[0].len, self.chunk) {
            self.plan.push(Step::Fold {
                from: from.iter().map(|at| at.piece(piece.clone())).collect(),
                into: into.iter().map(|at| at.piece(piece.clone())).collect(),
            });
        }
    }

    /// Tells a PE.
    pub(super) fn signal(&mut self, to: usize) {
        self.plan.push(Step::Signal { to });
    }

    /// Waits for a PE.
    pub(super) fn hear(&mut self, from: usize) {
        self.plan.push(Step::Wait { from });
    }

    /// The PE `distance` further on, round the team.
    pub(super) fn right(&self, distance: usize) -> usize {
        (self.me + distance) % self.n
    }

    /// The PE `distance` back, round the team.
    pub(super) fn left(&self, distance: usize) -> usize {
        (self.me + self.n - distance % self.n) % self.n
    }

    /// Everybody else, beginning with the next one: so that not all turn to the same PE at once.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let (n, me) = (self.n, self.me);
        (1..n).map(move |distance| (me + distance) % n)
    }

    pub(super) fn signal_all(&mut self, pes: impl IntoIterator<Item = usize>) {
        pes.into_iter().for_each(|pe| self.signal(pe));
    }

    pub(super) fn hear_all(&mut self, pes: impl IntoIterator<Item = usize>) {
        pes.into_iter().for_each(|pe| self.hear(pe));
    }

    /// Meets all.
    pub(super) fn meet(&mut self) {
        self.plan.push(Step::Meet);
    }
}
