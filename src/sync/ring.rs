//! Bounded queue from one PE to another (Lamport 1983, with a sequence in every slot so that one word tells the
//! receiver that a slot is full): the slots lie in the receiver's memory, the count of what it has taken in the
//! sender's, so each polls its own.
//!
//! One sender, one receiver, `capacity` slots of `width` payload words behind a sequence word. The sender fills slot h
//! mod capacity, then publishes h+1 in its sequence word; it may do so once the receiver has taken at least
//! h+1-capacity messages. Both counters grow for ever.
//!
//! Knows nothing of heaps, transports or types.

use crate::error::Result;
use crate::sync::Call;
use crate::sync::words::{Why, Word, Words, wait};

/// The shape of a ring; equal on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// The PE that sends.
    pub sender: usize,
    /// The PE that receives.
    pub receiver: usize,
    /// Offset of the ring's memory, zero to begin with.
    pub at: usize,
    /// Messages that fit.
    pub capacity: u64,
    /// Payload words of a message.
    pub width: usize,
}

impl Ring {
    /// Bytes of symmetric memory that a ring needs: the line of the sender's count, then the slots.
    pub const fn bytes(capacity: usize, width: usize) -> Option<usize> {
        match (1 + width).checked_mul(8) {
            Some(slot) => match slot.checked_mul(capacity) {
                Some(slots) => slots.checked_add(LINE),
                None => None,
            },
            None => None,
        }
    }

    /// Whether message number `head` can be sent without waiting.
    pub fn has_room<W: Words>(self, words: &W, head: u64) -> Result<bool> {
        words.load(self.taken()).map(|taken| head - taken < self.capacity)
    }

    /// Sends message number `head` (0, 1, 2, …). Blocks while the ring is full.
    pub fn push<W: Words>(self, words: &W, head: u64, message: &[u64]) -> Result<()> {
        debug_assert_eq!(message.len(), self.width);
        let why = Why { call: Call::Send, on: Some(self.receiver) };
        wait(words, self.taken(), why, |taken| head - taken < self.capacity)?;
        for (i, value) in message.iter().enumerate() {
            words.store(self.slot(head, 1 + i), *value)?;
        }
        words.store(self.slot(head, 0), head + 1)?;
        words.ring(self.receiver);
        Ok(())
    }

    /// Receives message number `tail` (0, 1, 2, …) if it has arrived: true if so. Does not block.
    pub fn try_pop<W: Words>(self, words: &W, tail: u64, message: &mut [u64]) -> Result<bool> {
        if words.load(self.slot(tail, 0))? != tail + 1 {
            return Ok(false);
        }
        self.take(words, tail, message).map(|()| true)
    }

    /// Receives message number `tail` (0, 1, 2, …). Blocks until it has arrived.
    pub fn pop<W: Words>(self, words: &W, tail: u64, message: &mut [u64]) -> Result<()> {
        let why = Why { call: Call::Receive, on: Some(self.sender) };
        wait(words, self.slot(tail, 0), why, |sequence| sequence == tail + 1)?;
        self.take(words, tail, message)
    }

    fn take<W: Words>(self, words: &W, tail: u64, message: &mut [u64]) -> Result<()> {
        debug_assert_eq!(message.len(), self.width);
        for (i, value) in message.iter_mut().enumerate() {
            *value = words.load(self.slot(tail, 1 + i))?;
        }
        words.store(self.taken(), tail + 1)?;
        words.ring(self.sender);
        Ok(())
    }

    fn taken(self) -> Word {
        Word { pe: self.sender, at: self.at }
    }

    fn slot(self, number: u64, word: usize) -> Word {
        let slot = (number % self.capacity) as usize;
        Word { pe: self.receiver, at: self.at + LINE + 8 * (slot * (1 + self.width) + word) }
    }
}

/// The sender's count lies alone on its pair of cache lines.
const LINE: usize = 128;
