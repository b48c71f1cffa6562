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
//! A PE that cannot wait any longer, because another is lost or its time is up, *breaks* the lock: it makes the end of the
//! queue a ticket that no PE has, and hands the lock, broken, to whoever stands behind it. From then on everybody who
//! comes, waits or is handed the lock gets an error; only who holds it may still give it back. A lock whose words are
//! all zero again is as good as new.
//!
//! Knows nothing of heaps, transports or teams.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Call;
use crate::sync::words::{Why, Word, Words, wait, wait_for};

const GO: u64 = 1 << 31;
const HELD: u64 = 1 << 30;
const BUSY: u64 = 1 << 29;
const NEXT: u64 = BUSY - 1;
const TAIL: u64 = 32;
/// The ticket of nobody, at the end of a broken queue.
const BROKEN: u64 = u32::MAX as u64;
const IS_BROKEN: &str = "it is broken: a PE that held it or waited for it was lost, or gave up";

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
            if let Err(error) = self.wait_for_turn(words, previous) {
                self.give_up(words)?;
                return Err(error);
            }
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
                return if word >> TAIL == BROKEN { Err(self.misuse("test", IS_BROKEN)) } else { Ok(false) };
            }
            if words.compare_swap(self.tail(), word, word | self.ticket() << TAIL)? == word {
                words.add(self.mine(), HELD)?;
                return Ok(true);
            }
        }
    }

    /// Gives the lock to the next in the queue. Blocks only while that PE is between entering the queue and saying so. If
    /// the lock was broken meanwhile, it stays so.
    pub fn clear<W: Words>(self, words: &W) -> Result<()> {
        self.change(words, |word| match word & HELD {
            0 => Err(self.misuse("clear", "this PE does not hold it")),
            _ => Ok(word - HELD),
        })?;
        if words.load(self.mine())? & NEXT == 0 && self.leave_queue(words)? {
            return words.add(self.mine(), BUSY.wrapping_neg()).map(|_| ());
        }
        let next = self.successor(words);
        words.add(self.mine(), BUSY.wrapping_neg())?;
        match next? {
            Some(next) => self.hand_on(words, next),
            None => Ok(()),
        }
    }

    /// Waits until `previous` hands the lock on, whole.
    fn wait_for_turn<W: Words>(self, words: &W, previous: usize) -> Result<()> {
        // If it has looked in vain for this PE's name since the lock is broken, this PE sees that it is.
        if !self.is_broken(words)? {
            let why = Why { call: Call::SetLock, on: Some(previous) };
            wait(words, self.mine(), why, |word| word & GO != 0)?;
            words.add(self.mine(), GO.wrapping_neg())?;
        }
        if self.is_broken(words)? { Err(self.misuse("set", IS_BROKEN)) } else { Ok(()) }
    }

    /// Breaks the lock and leaves the queue.
    #[cold]
    fn give_up<W: Words>(self, words: &W) -> Result<()> {
        let last = self.swap_tail(words, BROKEN)? == self.ticket();
        // Whoever stands behind may be lost, or may have given up as well: then there is nobody to tell.
        let next = if last { None } else { self.successor(words).unwrap_or(None) };
        words.add(self.mine(), BUSY.wrapping_neg())?;
        match next {
            Some(next) => self.hand_on(words, next),
            None => Ok(()),
        }
    }

    /// Takes the name of the next PE in the queue, once it has left it here; `None` if nobody can come any more.
    fn successor<W: Words>(self, words: &W) -> Result<Option<usize>> {
        let last = words.load(self.tail())? >> TAIL;
        let on = (last != BROKEN && last != 0).then(|| last as usize - 1);
        let next = wait_for(words, Why { call: Call::ClearLock, on }, || {
            match words.load(self.mine())? & NEXT {
                // Whoever adds its name after this addition has seen that the lock is broken.
                0 if self.is_broken(words)? => words.add(self.mine(), 0).map(|word| Some(word & NEXT)),
                0 => Ok(None),
                next => Ok(Some(next)),
            }
        })?;
        words.add(self.mine(), next.wrapping_neg())?;
        Ok((next as usize).checked_sub(1))
    }

    fn hand_on<W: Words>(self, words: &W, next: usize) -> Result<()> {
        words.add(Word { pe: next, at: self.at }, GO)?;
        words.ring(next);
        Ok(())
    }

    fn is_broken<W: Words>(self, words: &W) -> Result<bool> {
        words.load(self.tail()).map(|word| word >> TAIL == BROKEN)
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
        match self.swap_tail(words, self.ticket())? {
            BROKEN => {
                words.add(self.mine(), BUSY.wrapping_neg())?;
                Err(self.misuse("set", IS_BROKEN))
            }
            previous => Ok(previous),
        }
    }

    /// Replaces the end of the queue, unless it is broken; returns what it was.
    fn swap_tail<W: Words>(self, words: &W, ticket: u64) -> Result<u64> {
        let mut word = words.load(self.tail())?;
        while word >> TAIL != BROKEN {
            let entered = word & u64::from(u32::MAX) | ticket << TAIL;
            match words.compare_swap(self.tail(), word, entered)? {
                seen if seen == word => break,
                seen => word = seen,
            }
        }
        Ok(word >> TAIL)
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
