//! The vocabulary of collectives: a plan is what one PE does, in order, and there are four things it can do.
//!
//! - [`Step::Fold`] combines some regions, anywhere in the team, and writes the result to some regions, anywhere in the
//!   team: with one source and one target it is a copy, a put or a get;
//! - [`Step::Meet`] meets all PEs: a barrier. A call has at least one, and its first carries what the caller asked for,
//!   so that mismatched calls are found; a plan without one is run after one;
//! - [`Step::Signal`] tells a PE that everything this PE did so far has happened;
//! - [`Step::Wait`] waits for the next such word of a PE: the k-th wait for a PE pairs with the k-th signal of that PE
//!   to this one.
//!
//! A plan is pure data, made by a pure function of the [`Problem`] and the PE's number. The same plan is run
//! (`run`), proved ([`check`](crate::check)) and timed; whatever holds in one holds in the others.

use std::fmt;
use std::ops::Range;

pub use crate::layout::{Blocks, Exchange, Hosts, Lane, Uneven};

/// Which memory of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buf {
    /// The caller's source; see [`Problem::in_place`].
    Src,
    /// The caller's target.
    Dst,
    /// The collective's own memory, which the next collective uses again: not to be touched before its owner has
    /// entered.
    Work,
    /// Memory for plans that begin without asking: there are two such areas, taken in turn by the calls whose algorithm
    /// uses them (and by those calls alone). Such a plan must make every PE leave after all have entered, so that
    /// nobody is in the last call but one any more when somebody begins.
    Slot,
}

/// A region of a PE's memory, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    /// The PE, in team numbering.
    pub pe: usize,
    /// Which of its buffers.
    pub buf: Buf,
    /// The first element.
    pub start: usize,
    /// How many elements.
    pub len: usize,
}

impl At {
    /// Elements `range` of `buf` on `pe`.
    pub fn new(pe: usize, buf: Buf, range: Range<usize>) -> Self {
        At { pe, buf, start: range.start, len: range.len() }
    }

    /// A part of it: elements `range` of its own.
    pub fn piece(&self, range: Range<usize>) -> Self {
        At { start: self.start + range.start, len: range.len(), ..*self }
    }

    /// The elements.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}..{}]@{}", self.buf, self.start, self.start + self.len, self.pe)
    }
}

/// One thing that a PE does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Combines the sources in their order and writes the result to every target. All regions have the same length; a
    /// target may be one of the sources, and otherwise overlaps none.
    Fold {
        /// What is combined.
        from: Box<[At]>,
        /// Where the result goes.
        into: Box<[At]>,
    },
    /// Meets all PEs: whatever any of them did before has happened.
    Meet,
    /// Tells `to` that everything before has happened.
    Signal {
        /// The PE that is told.
        to: usize,
    },
    /// Waits for the next signal of `from`.
    Wait {
        /// The PE that signals.
        from: usize,
    },
}

/// What one PE does.
pub type Plan = Vec<Step>;

/// Which collective, with what distinguishes its uses. Lengths are those of a *block*: the elements that one PE
/// contributes to, or gets from, one other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every target is the combination of all sources.
    AllReduce,
    /// The root's target is the combination of all sources.
    Reduce {
        /// The PE that gets it.
        root: usize,
    },
    /// Block i of the combination of all sources goes to PE i.
    ReduceScatter,
    /// Every target is the sources of all PEs, in their order.
    AllGather,
    /// The root's target is the sources of all PEs, in their order.
    Gather {
        /// The PE that gets them.
        root: usize,
    },
    /// Block i of the root's source goes to PE i.
    Scatter {
        /// The PE that has it.
        root: usize,
    },
    /// Every target is the root's source.
    Broadcast {
        /// The PE that has it.
        root: usize,
    },
    /// Block i of PE j's source becomes block j of PE i's target.
    AllToAll,
    /// The target of PE i is the combination of the sources of PEs 0 to i.
    InclusiveScan,
    /// The target of PE i is the combination of the sources of PEs 0 to i-1; that of PE 0 is left as it is.
    ExclusiveScan,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.root() {
            Some(root) => write!(f, "{} of root {root}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

/// A collective to be planned: equal on all PEs of the team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Which collective.
    pub what: Collective,
    /// PEs in the team.
    pub n: usize,
    /// Elements of a block.
    pub len: usize,
    /// The largest piece that is moved at a time, in elements; at least 1.
    pub chunk: usize,
    /// Whether source and target are one buffer. A gathering collective's source is then block i of PE i's target, a
    /// scattering one's target is block i of PE i's source, and for the rest both begin at the same element (as NCCL
    /// has it).
    pub in_place: bool,
}

impl Collective {
    /// A number for it, and its root.
    pub(crate) fn code(self) -> (u64, u64) {
        match self {
            Collective::AllReduce => (1, 0),
            Collective::Reduce { root } => (2, root as u64),
            Collective::ReduceScatter => (3, 0),
            Collective::AllGather => (4, 0),
            Collective::Gather { root } => (5, root as u64),
            Collective::Scatter { root } => (6, root as u64),
            Collective::Broadcast { root } => (7, root as u64),
            Collective::AllToAll => (8, 0),
            Collective::InclusiveScan => (9, 0),
            Collective::ExclusiveScan => (10, 0),
        }
    }

    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::Reduce { .. } => "reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "allgather",
            Collective::Gather { .. } => "gather",
            Collective::Scatter { .. } => "scatter",
            Collective::Broadcast { .. } => "broadcast",
            Collective::AllToAll => "alltoall",
            Collective::InclusiveScan => "inscan",
            Collective::ExclusiveScan => "exscan",
        }
    }

    /// All names.
    pub const NAMES: [&'static str; 10] = [
        "allreduce",
        "reduce",
        "reduce_scatter",
        "allgather",
        "gather",
        "scatter",
        "broadcast",
        "alltoall",
        "inscan",
        "exscan",
    ];

    /// All of them, in the order of their names, those that have one of this root.
    pub const fn all(root: usize) -> [Collective; 10] {
        [
            Collective::AllReduce,
            Collective::Reduce { root },
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::Broadcast { root },
            Collective::AllToAll,
            Collective::InclusiveScan,
            Collective::ExclusiveScan,
        ]
    }

    /// The root, of those that have one.
    pub fn root(self) -> Option<usize> {
        match self {
            Collective::Reduce { root }
            | Collective::Gather { root }
            | Collective::Scatter { root }
            | Collective::Broadcast { root } => Some(root),
            _ => None,
        }
    }

    /// Whether it combines elements.
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Collective::AllReduce
                | Collective::Reduce { .. }
                | Collective::ReduceScatter
                | Collective::InclusiveScan
                | Collective::ExclusiveScan
        )
    }

    /// Blocks in a PE's source and in its target, in a team of `n`.
    pub fn blocks(self, n: usize) -> (usize, usize) {
        match self {
            Collective::AllReduce
            | Collective::Reduce { .. }
            | Collective::Broadcast { .. }
            | Collective::InclusiveScan
            | Collective::ExclusiveScan => (1, 1),
            Collective::ReduceScatter | Collective::Scatter { .. } => (n, 1),
            Collective::AllGather | Collective::Gather { .. } => (1, n),
            Collective::AllToAll => (n, n),
        }
    }
}

impl Problem {
    /// Where PE `pe`'s source and target begin in its one buffer, in place.
    pub fn offsets(&self, pe: usize) -> (usize, usize) {
        match self.what {
            Collective::AllGather | Collective::Gather { .. } => (pe * self.len, 0),
            Collective::ReduceScatter | Collective::Scatter { .. } => (0, pe * self.len),
            _ => (0, 0),
        }
    }

    /// The elements of part `i` of `parts` nearly equal parts of `len` elements: the first ones are longer by one where
    /// they do not divide.
    pub fn part(len: usize, parts: usize, i: usize) -> Range<usize> {
        let (each, rest) = (len / parts, len % parts);
        let start = i * each + i.min(rest);
        start..start + each + usize::from(i < rest)
    }

    /// A range in pieces of at most `chunk` elements; none for an empty range.
    pub fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        pieces(range, self.chunk)
    }
}

/// A range in pieces of at most `chunk` elements; none for an empty range.
pub(crate) fn pieces(range: Range<usize>, chunk: usize) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
    let chunk = chunk.max(1);
    (range.start..range.end).step_by(chunk).map(move |start| start..(start + chunk).min(range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once_and_differ_by_one_at_most() {
        for len in 0..50 {
            for parts in 1..12 {
                let all: Vec<usize> = (0..parts).flat_map(|i| Problem::part(len, parts, i)).collect();
                assert_eq!(all, (0..len).collect::<Vec<_>>());
                let lens = (0..parts).map(|i| Problem::part(len, parts, i).len());
                assert!(lens.clone().max().unwrap() - lens.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn pieces_cover_a_range_once() {
        let problem = Problem { what: Collective::AllReduce, n: 1, len: 10, chunk: 3, in_place: false };
        assert_eq!(problem.pieces(2..10).collect::<Vec<_>>(), [2..5, 5..8, 8..10]);
        assert_eq!(problem.pieces(4..4).count(), 0);
    }
}
