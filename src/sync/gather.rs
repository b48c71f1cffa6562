//! Agreement of those that are left: in each of two phases every PE shows a few words under a key, in its own row, and
//! takes those of the others once they stand under the same key.
//!
//! A key says which team agrees, for which time, and who is left of it, so it is never used twice; a PE that sees another
//! set of PEs looks for another key, and nobody takes what it shows. Every agreement has both phases: whoever begins the
//! next, and so replaces its words of the first phase, has seen those of the second of all, who have taken the first ones
//! by then. Or it has found that somebody else is lost: then what others take in the middle of the change is of no use to
//! them, since they will find the same. Who waits, and how it learns of losses, is the caller's affair.

use crate::sync::atom::{Atoms, observe, publish};

/// Words that a PE shows in a phase.
pub const SHOWN: usize = 4;

/// The place of an agreement, the same in every row; zero to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Its byte offset.
    pub at: usize,
}

impl Gather {
    /// Bytes of it.
    pub const BYTES: usize = 2 * 8 * (1 + SHOWN);

    /// Shows this PE's words of a phase, 0 or 1, under a key that is not 0.
    pub fn show<A: Atoms>(self, row: &A, phase: usize, key: u64, words: [u64; SHOWN]) {
        let at = self.phase(phase);
        publish(row.word(at), 0);
        for (i, value) in words.into_iter().enumerate() {
            publish(row.word(at + 8 + 8 * i), value);
        }
        publish(row.word(at), key);
    }

    /// What a PE shows under this key in a phase; `None` if it does not.
    pub fn look<A: Atoms>(self, row: &A, phase: usize, key: u64) -> Option<[u64; SHOWN]> {
        let at = self.phase(phase);
        if observe(row.word(at)) != key {
            return None;
        }
        let mut words = [0; SHOWN];
        for (i, value) in words.iter_mut().enumerate() {
            *value = observe(row.word(at + 8 + 8 * i));
        }
        Some(words)
    }

    fn phase(self, phase: usize) -> usize {
        self.at + phase * 8 * (1 + SHOWN)
    }
}
