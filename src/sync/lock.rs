//! Fair queue lock (Mellor-Crummey, Scott 1991) in one 64-bit symmetric word, with nothing but load, add and
//! compare-and-swap of whole words, which is all that a network card can do.
//!
//! The word's upper half is used on the lock's home PE alone: the last PE in the queue, plus one. Its lower half is
//! each PE's own place in the queue: the next PE plus one (29 bits); `BUSY`, claimed by the one thread of the PE that
//! waits for the lock, holds it or gives it back; `HELD`; and `GO`, which the predecessor adds when it hands the lock on.
//! Each PE waits on its own word; the lock goes round in the order in which the PEs entered the queue.
//!
//! Both halves of the home PE's word change independently, so what is claimed is claimed by compare-and-swap of the
//! whole, and the rest are additions, which leave the other fields alone: each is added to once by one PE and taken back
//! by its owner.
//!
//! Knows nothing of heaps, transports or teams.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Call;
use crate::sync::words::{Why, Word, Words, wait};

const GO: u64 = 1 << 31;
const HELD: u64 = 1 << 30;
const BUSY: u64 = 1 << 29;
const NEXT: u64 = BUSY - 1;
const TAIL: u64 = 32;

/// A lock as its user `me` sees it. The word at `at` is zero on every PE to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// The calling PE.
    pub me: usize,
    /// The PE that keeps the end of the queue.
    pub home: usize,
    /// Offset of the lock's word.
    pub at: usize,
}

impl Lock {
    /// Takes the lock. Blocks until all PEs that asked before have had it.
    pub fn set<W: Words>(self, words: &W) -> Result<()> {
        self.busy(words, "set")?;
        let previous = self.enter_queue(words)?;
        if previous != 0 {
            let previous = previous as usize - 1;
            words.add(Word { pe: previous, at: self.at }, self.ticket())?;
            words.ring(previous);
            wait(words, self.mine(), Why { call: Call::SetLock, on: Some(previous) }, |word| word & GO != 0)?;
            words.add(self.mine(), GO.wrapping_neg())?;
        }
        words.add(self.mine(), HELD).map(|_| ())
    }

    /// Takes the lock if it is free: true if this PE now holds it. Does not block.
    pub fn test<W: Words>(self, words: &W) -> Result<bool> {
        self.busy(words, "test")?;
        loop {
            let word = words.load(self.tail())?;
            if word >> TAIL != 0 {
                words.add(self.mine(), BUSY.wrapping_neg())?;
                return Ok(false);
            }
            if words.compare_swap(self.tail(), word, word | self.ticket() << TAIL)? == word {
                words.add(self.mine(), HELD)?;
                return Ok(true);
            }
        }
    }

    /// Gives the lock to the next in the queue. Blocks only while that PE is between entering the queue and saying so.
    pub fn clear<W: Words>(self, words: &W) -> Result<()> {
        self.change(words, |word| match word & HELD {
            0 => Err(self.misuse("clear", "this PE does not hold it")),
            _ => Ok(word - HELD),
        })?;
        if words.load(self.mine())? & NEXT == 0 && self.leave_queue(words)? {
            return words.add(self.mine(), BUSY.wrapping_neg()).map(|_| ());
        }
        let word = wait(words, self.mine(), Why { call: Call::ClearLock, on: None }, |word| word & NEXT != 0)?;
        let next = word & NEXT;
        words.add(self.mine(), next.wrapping_neg())?;
        words.add(self.mine(), BUSY.wrapping_neg())?;
        let next = next as usize - 1;
        words.add(Word { pe: next, at: self.at }, GO)?;
        words.ring(next);
        Ok(())
    }

    /// Claims this PE's place in the queue for the calling thread; an error if it is taken.
    fn busy<W: Words>(self, words: &W, call: &'static str) -> Result<()> {
        self.change(words, |word| match word & BUSY {
            0 => Ok(word + BUSY),
            _ => Err(self.misuse(call, "this PE holds it, or waits for it, already")),
        })
    }

    /// Replaces this PE's word in one step.
    fn change<W: Words>(self, words: &W, to: impl Fn(u64) -> Result<u64>) -> Result<()> {
        let mut word = words.load(self.mine())?;
        loop {
            match words.compare_swap(self.mine(), word, to(word)?)? {
                seen if seen == word => return Ok(()),
                seen => word = seen,
            }
        }
    }

    /// Makes this PE the last of the queue and returns the ticket of the one before, 0 if there was none.
    fn enter_queue<W: Words>(self, words: &W) -> Result<u64> {
        let mut word = words.load(self.tail())?;
        loop {
            let entered = word & u64::from(u32::MAX) | self.ticket() << TAIL;
            match words.compare_swap(self.tail(), word, entered)? {
                seen if seen == word => return Ok(word >> TAIL),
                seen => word = seen,
            }
        }
    }

    /// Empties the queue if this PE is the last of it; false if another has entered behind.
    fn leave_queue<W: Words>(self, words: &W) -> Result<bool> {
        let mut word = words.load(self.tail())?;
        while word >> TAIL == self.ticket() {
            match words.compare_swap(self.tail(), word, word & u64::from(u32::MAX))? {
                seen if seen == word => return Ok(true),
                seen => word = seen,
            }
        }
        Ok(false)
    }

    #[cold]
    fn misuse(self, call: &'static str, why: &'static str) -> Error {
        ErrorKind::Lock { pe: self.me, call, offset: self.at, why }.into()
    }

    fn ticket(self) -> u64 {
        self.me as u64 + 1
    }

    fn mine(self) -> Word {
        Word { pe: self.me, at: self.at }
    }

    fn tail(self) -> Word {
        Word { pe: self.home, at: self.at }
    }
}
