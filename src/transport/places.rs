//! What lies where in the part of symmetric memory that the network has to itself, the same on every PE.

use std::ops::Range;

use crate::transport::roce::Pool;

/// Bytes that nobody shares a line with.
const APART: usize = 128;

/// Offsets in symmetric memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// A word of the simulated card.
    pub(crate) card: usize,
    /// A word that becomes 1 when one of the ends is told.
    pub(crate) news: usize,
    /// A word for each PE of another host: how it ended, as it says itself.
    pub(crate) ends: usize,
    /// The pool's pieces.
    pub(crate) pool: Range<usize>,
}

impl Places {
    /// Bytes that a job of `n_pes` needs.
    pub(crate) fn bytes(n_pes: usize) -> usize {
        Self::new(0, n_pes).pool.end
    }

    /// From offset `start` on, a multiple of a page.
    pub(crate) fn new(start: usize, n_pes: usize) -> Self {
        let ends = start + 2 * APART;
        let pool = (ends + 8 * n_pes).next_multiple_of(APART);
        Places { card: start, news: start + APART, ends, pool: pool..pool + Pool::BYTES }
    }
}
