//! Pieces of symmetric memory, which the card reaches, for what lies where it does not: private sources are copied here
//! before they are sent, and what is fetched for private memory arrives here first.
//!
//! Two sizes: cells for single values, chunks for everything else. Knows nothing of requests.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Bytes of a cell: what one value, or a cache line of them, needs.
const CELL: usize = 64;
const CELLS: usize = 512;
/// Bytes of a chunk: large enough that the cost of a request does not show beside that of its bytes.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 32;

/// Free pieces by offset.
pub(crate) struct Pool {
    free: Mutex<Free>,
    chunks_from: usize,
}

struct Free {
    cells: Vec<usize>,
    chunks: Vec<usize>,
    /// Those that nobody gives back any more.
    lost: usize,
    lost_chunks: usize,
}

/// A piece that is in use. Lost to the pool if it is not given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Piece {
    /// Its offset in symmetric memory.
    pub(crate) at: usize,
}

impl Pool {
    /// Bytes of symmetric memory that a pool takes, at a multiple of a cache line.
    pub(crate) const BYTES: usize = CELLS * CELL + CHUNKS * CHUNK;

    /// Over the memory at this range, which is [`BYTES`](Self::BYTES) long.
    pub(crate) fn new(memory: Range<usize>) -> Self {
        debug_assert_eq!(memory.len(), Self::BYTES);
        let chunks_from = memory.start + CELLS * CELL;
        let cells = (0..CELLS).rev().map(|i| memory.start + i * CELL).collect();
        let chunks = (0..CHUNKS).rev().map(|i| chunks_from + i * CHUNK).collect();
        Pool { free: Mutex::new(Free { cells, chunks, lost: 0, lost_chunks: 0 }), chunks_from }
    }

    /// Pieces for up to `bytes`, each with its part of them, in order; as many as are free.
    pub(crate) fn take(&self, bytes: usize, most: usize) -> Vec<(Piece, usize)> {
        let mut free = self.lock();
        if bytes <= CELL && most > 0 {
            let cell = free.cells.pop().or_else(|| free.chunks.pop());
            return cell.into_iter().map(|at| (Piece { at }, bytes)).collect();
        }
        let parts = (0..bytes).step_by(CHUNK).take(most).map(|start| (bytes - start).min(CHUNK));
        parts.map_while(|part| free.chunks.pop().map(|at| (Piece { at }, part))).collect()
    }

    /// Gives a piece back.
    pub(crate) fn give_back(&self, piece: Piece) {
        let mut free = self.lock();
        if piece.at < self.chunks_from { free.cells.push(piece.at) } else { free.chunks.push(piece.at) }
    }

    /// Gives a piece up, which a card may still use.
    pub(crate) fn lose(&self, piece: Piece) {
        let mut free = self.lock();
        free.lost += 1;
        free.lost_chunks += usize::from(piece.at >= self.chunks_from);
    }

    /// Whether nobody will ever have pieces for so many bytes again.
    pub(crate) fn has_lost_all(&self, bytes: usize) -> bool {
        let free = self.lock();
        free.lost_chunks == CHUNKS && (bytes > CELL || free.lost == CELLS + CHUNKS)
    }

    /// Runs `make` with the pieces; those that are left when it fails are given back.
    pub(crate) fn lend<R>(
        &self,
        pieces: Vec<(Piece, usize)>,
        make: impl FnOnce(&mut std::vec::IntoIter<(Piece, usize)>) -> Result<R>,
    ) -> Result<R> {
        let mut pieces = pieces.into_iter();
        let made = make(&mut pieces);
        pieces.for_each(|(piece, _)| self.give_back(piece));
        made
    }

    /// The lists are whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_come_back() {
        let pool = Pool::new(4096..4096 + Pool::BYTES);
        for _ in 0..3 {
            let cells: Vec<_> = (0..CELLS).flat_map(|_| pool.take(8, 1)).collect();
            let chunks = pool.take(usize::MAX / 2, usize::MAX);
            assert_eq!((cells.len(), chunks.len()), (CELLS, CHUNKS));
            assert!(pool.take(1, 1).is_empty() && pool.take(1 << 20, 9).is_empty());
            let mut spans: Vec<_> = cells.iter().map(|(piece, _)| piece.at..piece.at + CELL).collect();
            spans.extend(chunks.iter().map(|(piece, _)| piece.at..piece.at + CHUNK));
            spans.sort_by_key(|span| span.start);
            assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!(spans[0].start == 4096 && spans[spans.len() - 1].end == 4096 + Pool::BYTES);
            cells.into_iter().chain(chunks).for_each(|(piece, _)| pool.give_back(piece));
        }
    }

    #[test]
    fn what_is_lost_is_counted_by_size() {
        let pool = Pool::new(0..Pool::BYTES);
        let lose = |pieces: Vec<(Piece, usize)>| pieces.into_iter().for_each(|(piece, _)| pool.lose(piece));
        lose(pool.take(usize::MAX / 2, CHUNKS - 1));
        assert!(!pool.has_lost_all(CELL + 1));
        lose(pool.take(usize::MAX / 2, 1));
        assert!(pool.has_lost_all(CELL + 1) && !pool.has_lost_all(CELL));
        lose((0..CELLS).flat_map(|_| pool.take(8, 1)).collect());
        assert!(pool.has_lost_all(CELL) && pool.take(8, 1).is_empty());
    }

    #[test]
    fn parts_add_up_in_order() {
        let pool = Pool::new(0..Pool::BYTES);
        let parts = |bytes, most| -> Vec<usize> {
            let taken = pool.take(bytes, most);
            let parts = taken.iter().map(|(_, part)| *part).collect();
            taken.into_iter().for_each(|(piece, _)| pool.give_back(piece));
            parts
        };
        assert_eq!(parts(0, 4), [0]);
        assert_eq!(parts(CELL, 4), [CELL]);
        assert_eq!(parts(CELL + 1, 4), [CELL + 1]);
        assert_eq!(parts(2 * CHUNK + 1, 4), [CHUNK, CHUNK, 1]);
        assert_eq!(parts(9 * CHUNK, 2), [CHUNK, CHUNK]);
        assert_eq!(parts(9, 0), []);
    }
}
