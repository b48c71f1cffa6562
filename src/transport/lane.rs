//! The words of all PEs as one lane of the network reaches them: what is written on a lane is ordered, and lanes are not
//! ordered against each other. On mapped memory lanes are all the same.

use crate::error::Result;
use crate::sync::{Idle, Why, Word, Words, park};
use crate::transport::link::Link;

/// A link on one of its lanes.
#[derive(Clone, Copy)]
pub(crate) struct OnLane<'l> {
    pub(crate) link: &'l Link,
    pub(crate) lane: usize,
}

impl Words for OnLane<'_> {
    #[inline(always)]
    fn load(&self, word: Word) -> Result<u64> {
        self.link.load_on(self.lane, word)
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) -> Result<()> {
        self.link.store_on(self.lane, word, value)
    }

    #[inline(always)]
    fn add(&self, word: Word, value: u64) -> Result<u64> {
        self.link.add_on(self.lane, word, value)
    }

    #[inline(always)]
    fn add_later(&self, word: Word, value: u64) -> Result<()> {
        self.link.add_later_on(self.lane, word, value)
    }

    #[inline(always)]
    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64> {
        self.link.compare_swap_on(self.lane, word, old, new)
    }

    #[inline(always)]
    fn quiet(&self) -> Result<()> {
        self.link.quiet(Some(self.lane))
    }

    #[inline(always)]
    fn ring(&self, pe: usize) {
        if let Some(bed) = self.link.bed(pe) {
            park::ring(&bed);
        }
    }

    #[inline(always)]
    fn pause(&self, idle: &mut Idle, why: Why) -> Result<()> {
        if self.link.spins(idle) { Ok(()) } else { self.link.rest(idle, why) }
    }

    #[inline(always)]
    fn resume(&self, idle: Idle) {
        if idle.bell.is_some()
            && let Some(bed) = self.link.bed(self.link.me())
        {
            park::get_up(&bed);
        }
    }
}
