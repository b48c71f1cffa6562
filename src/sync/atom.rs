//! Every memory ordering of the workspace: four functions over one atomic 64-bit word.
//!
//! Each protocol is written with these four, so a reader finds the orderings here and nowhere else, and loom can
//! replace the word (an [`Atom`]) without replacing the protocol. Knows nothing of what the words mean.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic 64-bit word: the machine's own, or loom's.
pub trait Atom {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
    /// Adds to the word, wrapping, and returns what it held.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Writes `new` if the word holds `old`; returns what it held.
    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> u64;
}

impl Atom for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }

    #[inline(always)]
    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> u64 {
        match self.compare_exchange(old, new, success, failure) {
            Ok(held) | Err(held) => held,
        }
    }
}

/// Atomic words by their byte offsets, multiples of 8.
pub trait Atoms {
    /// The kind of word.
    type Word: Atom;
    /// The word at an offset.
    fn word(&self, at: usize) -> &Self::Word;
}

/// Reads a word that another PE publishes: what it wrote before is visible afterwards.
#[inline(always)]
pub fn observe<A: Atom>(word: &A) -> u64 {
    word.load(Ordering::Acquire)
}

/// Writes a word that another PE observes: everything written before is visible to whoever observes it.
#[inline(always)]
pub fn publish<A: Atom>(word: &A, value: u64) {
    word.store(value, Ordering::Release);
}

/// Publishes a sum and observes the value it grew from.
#[inline(always)]
pub fn accumulate<A: Atom>(word: &A, value: u64) -> u64 {
    word.fetch_add(value, Ordering::AcqRel)
}

/// Publishes `new` if the word holds `old`; observes what it held either way.
#[inline(always)]
pub fn claim<A: Atom>(word: &A, old: u64, new: u64) -> u64 {
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
}
