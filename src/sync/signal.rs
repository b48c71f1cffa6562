//! Data, then the word that announces it: when the signal is visible, so is the data.
//!
//! On mapped memory the signal is a publishing store or addition after the copy; on a network both travel the same
//! ordered lane.

use crate::error::Result;
use crate::sync::words::{Word, Words};

/// How a signal changes its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The word becomes the value.
    Set(u64),
    /// The value is added to the word, wrapping.
    Add(u64),
}

/// Runs `put`, then signals `word`, then wakes the PE that may wait for it.
#[inline]
pub fn deliver<W: Words>(words: &W, put: impl FnOnce() -> Result<()>, word: Word, signal: Signal) -> Result<()> {
    put()?;
    match signal {
        Signal::Set(value) => words.store(word, value)?,
        Signal::Add(value) => words.add_later(word, value)?,
    }
    words.ring(word.pe);
    Ok(())
}
