//! A word of user data: written and read without any ordering, as `memcpy` does. Two accesses that race end the model.

use loom::cell::UnsafeCell;

/// Plain memory that PEs share.
#[derive(Debug)]
pub struct Plain(UnsafeCell<u64>);

// SAFETY: every access goes through loom's cell, which ends the execution with a panic before two accesses that race.
unsafe impl Sync for Plain {}

impl Plain {
    /// Plain memory that holds `value`.
    pub fn new(value: u64) -> Self {
        Plain(UnsafeCell::new(value))
    }

    /// Writes it; panics where that races.
    pub fn put(&self, value: u64) {
        // SAFETY: loom has just shown that no other access runs beside this one.
        self.0.with_mut(|word| unsafe { *word = value });
    }

    /// Reads it; panics where that races.
    pub fn get(&self) -> u64 {
        // SAFETY: loom has just shown that no write runs beside this read.
        self.0.with(|word| unsafe { *word })
    }
}
