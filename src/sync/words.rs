//! What the protocols run over: 64-bit words of the PEs, and one way to wait for them.

use std::time::Instant;

use crate::error::Result;
use crate::sync::Call;

/// A 64-bit word: the byte offset `at` in the symmetric memory of PE `pe` (world numbering), a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The PE that holds it.
    pub pe: usize,
    /// Its byte offset there.
    pub at: usize,
}

/// Why a PE waits: for the report when the wait ends badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The call that waits.
    pub call: Call,
    /// The PE it waits for, where it is known.
    pub on: Option<usize>,
}

/// How far a waiter has got on its way from spinning to sleeping.
#[derive(Debug, Default)]
pub struct Idle {
    /// Steps of waiting so far, saturating.
    pub steps: u32,
    /// When the wait began to be long: set once the spinning is over.
    pub since: Option<Instant>,
    /// The bell as it stood when the waiter made up its bed.
    pub bell: Option<u64>,
    /// Which losses the waiter knew of when it began: set with `since`.
    pub era: Option<u64>,
    /// Whether the wait was reported as stalled.
    pub stalled: bool,
    /// How often it was made sure that those who are waited for are still there.
    pub calls: u64,
}

/// The words of all PEs, and what can be done to them. Implemented by the mapped heap, by a network route and by loom.
///
/// Accesses to one PE take effect in the order in which they are made: a `store` is visible only after all that this PE
/// has put or stored there before.
pub trait Words {
    /// Reads a word; what its writer wrote before is visible afterwards.
    fn load(&self, word: Word) -> Result<u64>;
    /// Writes a word, after everything written before.
    fn store(&self, word: Word, value: u64) -> Result<()>;
    /// Adds to a word, wrapping, and returns what it held.
    fn add(&self, word: Word, value: u64) -> Result<u64>;
    /// Adds to a word, wrapping, some time before the next quiet: nobody waits for what it held.
    #[inline(always)]
    fn add_later(&self, word: Word, value: u64) -> Result<()> {
        self.add(word, value).map(|_| ())
    }
    /// Writes `new` if the word holds `old`; returns what it held.
    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64>;
    /// A full fence: all earlier writes, to whichever PE, are visible everywhere before any later read.
    fn quiet(&self) -> Result<()>;
    /// Wakes the waiters of `pe`, if any sleep: called after writing a word that they may wait for.
    fn ring(&self, pe: usize);
    /// One step of waiting; fails when waiting is in vain (a PE is lost, the time is up).
    fn pause(&self, idle: &mut Idle, why: Why) -> Result<()>;
    /// Ends a wait that has paused, however it ended.
    fn resume(&self, idle: Idle);
}

/// Waits until `ready` accepts the word, and returns its value. Blocks.
#[inline]
pub fn wait<W: Words>(words: &W, word: Word, why: Why, ready: impl Fn(u64) -> bool) -> Result<u64> {
    let value = words.load(word)?;
    if ready(value) {
        return Ok(value);
    }
    wait_for(words, why, || words.load(word).map(|value| ready(value).then_some(value)))
}

/// Waits until `poll` gives a value. Blocks. A wait that is satisfied does not fail, even if it could have been in vain.
pub fn wait_for<W: Words, T>(words: &W, why: Why, poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_by(words, |idle| words.pause(idle, why), poll)
}

/// [`wait_for`] with steps of waiting by `pause`, which fails when waiting is in vain.
pub fn wait_by<W: Words, T>(
    words: &W,
    mut pause: impl FnMut(&mut Idle) -> Result<()>,
    mut poll: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut idle = Idle::default();
    let outcome = loop {
        match poll() {
            Ok(Some(value)) => break Ok(value),
            Ok(None) => {}
            Err(error) => break Err(error),
        }
        if let Err(error) = pause(&mut idle) {
            // It may have come with the news that nothing would come any more.
            break poll().and_then(|last| last.ok_or(error));
        }
    };
    words.resume(idle);
    outcome
}
