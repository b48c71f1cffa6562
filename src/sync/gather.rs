//! Agreement of those that are left: in each of two phases every PE shows a few words under a key, in its own memory,
//! and takes those of the others once they stand under the same key.
//!
//! A key says which team agrees, for which time, and who is left of it, so it is never used twice; a PE that sees another
//! set of PEs looks for another key, and nobody takes what it shows. Every agreement has both phases: whoever begins the
//! next, and so replaces its words of the first phase, has seen those of the second of all, who have taken the first ones
//! by then. Or it has found that somebody else is lost: then what others take in the middle of the change is of no use to
//! them, since they will find the same. Who waits, and how it learns of losses, is the caller's affair.

use crate::error::Result;
use crate::sync::{Word, Words};

/// Words that a PE shows in a phase.
pub const SHOWN: usize = 4;

/// The place of an agreement, the same on every PE; zero to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Its byte offset.
    pub at: usize,
}

impl Gather {
    /// Bytes of it.
    pub const BYTES: usize = 2 * 8 * (1 + SHOWN);

    /// Shows this PE's words of a phase, 0 or 1, under a key that is not 0.
    pub fn show<W: Words>(self, words: &W, me: usize, phase: usize, key: u64, shown: [u64; SHOWN]) -> Result<()> {
        let at = self.phase(phase);
        words.store(Word { pe: me, at }, 0)?;
        for (i, value) in shown.into_iter().enumerate() {
            words.store(Word { pe: me, at: at + 8 + 8 * i }, value)?;
        }
        words.store(Word { pe: me, at }, key)
    }

    /// What a PE shows under this key in a phase; `None` if it does not.
    pub fn look<W: Words>(self, words: &W, pe: usize, phase: usize, key: u64) -> Result<Option<[u64; SHOWN]>> {
        let at = self.phase(phase);
        if words.load(Word { pe, at })? != key {
            return Ok(None);
        }
        let mut shown = [0; SHOWN];
        for (i, value) in shown.iter_mut().enumerate() {
            *value = words.load(Word { pe, at: at + 8 + 8 * i })?;
        }
        Ok(Some(shown))
    }

    fn phase(self, phase: usize) -> usize {
        self.at + phase * 8 * (1 + SHOWN)
    }
}
