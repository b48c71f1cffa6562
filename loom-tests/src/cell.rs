//! A word of the symmetric heap: loom's atomic behind the trait through which `shmem::sync::atom` orders all accesses.

use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64;
use shmem::sync::Atom;

use crate::mutants::Mutation;

/// A 64-bit word that loom watches, its orderings as they are asked for or weakened by a mutation.
#[derive(Debug)]
pub struct Cell {
    word: AtomicU64,
    at: usize,
    mutation: Mutation,
}

impl Cell {
    /// The word at offset `at`, which holds zero.
    pub fn new(at: usize, mutation: Mutation) -> Self {
        Cell { word: AtomicU64::new(0), at, mutation }
    }

    fn unless(&self, mutation: Mutation, order: Ordering) -> Ordering {
        if self.mutation == mutation { Ordering::Relaxed } else { order }
    }
}

impl Atom for Cell {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(self.unless(Mutation::RelaxedLoads, order))
    }

    fn store(&self, value: u64, order: Ordering) {
        if self.mutation == (Mutation::NoMark { at: self.at }) && value == 0 {
            return;
        }
        self.word.store(value, self.unless(Mutation::RelaxedStores, order));
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.word.fetch_add(value, self.unless(Mutation::RelaxedAdds, order))
    }

    fn compare_exchange(&self, old: u64, new: u64, success: Ordering, failure: Ordering) -> u64 {
        if self.mutation == Mutation::SplitClaims {
            let held = self.word.load(failure);
            if held == old {
                self.word.store(new, Ordering::Release);
            }
            return held;
        }
        let success = self.unless(Mutation::RelaxedClaims, success);
        let failure = self.unless(Mutation::RelaxedClaims, failure);
        match self.word.compare_exchange(old, new, success, failure) {
            Ok(held) | Err(held) => held,
        }
    }
}
