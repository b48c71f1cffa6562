//! What a simulated card reaches of a PE: its memory, and the word in it that says whether its card is there.

use std::sync::atomic::AtomicU64;

use crate::sync::atom::{observe, publish};
use crate::transport::loopback::Base;

/// A PE's memory.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) base: Base,
    pub(super) bytes: usize,
    /// The offset of the word.
    pub(super) card: usize,
}

impl Peer {
    /// Says whether its card is there.
    pub(super) fn switch(&self, on: bool) {
        publish(self.word(self.card), on.into());
    }

    pub(super) fn is_on(&self) -> bool {
        observe(self.word(self.card)) == 1
    }

    /// The word at a multiple of 8, of which the caller knows that it has it.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && self.at(at, 8).is_some());
        // SAFETY: the caller has looked, and the memory stays mapped for longer than the card lives.
        unsafe { self.base.word(at) }
    }

    /// The address of bytes of its memory, if there are so many.
    pub(super) fn at(&self, at: usize, bytes: usize) -> Option<*mut u8> {
        (at <= self.bytes && bytes <= self.bytes - at).then(|| self.base.at(at))
    }
}
