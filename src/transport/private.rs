//! Private memory as one side of a transfer over a network, and the copies that the processor makes for the card: what is
//! to be sent into pieces of the pool, and what was fetched from there to where it belongs.

use std::ptr::NonNull;

use crate::transport::loopback::Base;

/// Private memory that a network reads at once: it lasts as long as the call to which it is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early {
    pub(crate) source: *const u8,
    pub(crate) bytes: usize,
}

impl Early {
    /// A part of it.
    pub(crate) fn part(self, from: usize, bytes: usize) -> Early {
        debug_assert!(from + bytes <= self.bytes);
        Early { source: self.source.wrapping_add(from), bytes }
    }
}

/// Private memory that a network writes late: until the transfer is done, or forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) target: NonNull<u8>,
    pub(crate) bytes: usize,
    /// By which it is forgotten.
    pub(crate) owner: usize,
}

// SAFETY: whoever hands the memory over keeps it until the transfer is done or forgotten, so any thread may write it.
unsafe impl Send for Late {}

impl Late {
    /// A part of it.
    pub(crate) fn part(self, from: usize, bytes: usize) -> Late {
        debug_assert!(from + bytes <= self.bytes);
        let target = NonNull::new(self.target.as_ptr().wrapping_add(from)).unwrap_or(self.target);
        Late { target, bytes, ..self }
    }
}

/// The memory in which the pool's pieces lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory(Base);

impl Memory {
    /// The symmetric memory of this PE, mapped at `base` for longer than this is used.
    pub(crate) fn new(base: Base) -> Self {
        Memory(base)
    }

    /// Copies what is to be sent into the piece at an offset, which is at least as long.
    pub(crate) fn fill(self, piece: usize, early: Early) {
        // SAFETY: a piece of the pool lies in the segment and is nobody else's while it is lent; whoever handed the source
        // over keeps it during the call.
        unsafe { self.0.at(piece).copy_from_nonoverlapping(early.source, early.bytes) };
    }

    /// Copies what is to travel within a request to the beginning of `buffer`, which is at least as long.
    pub(crate) fn take(self, early: Early, buffer: &mut [u8]) -> &[u8] {
        let buffer = &mut buffer[..early.bytes];
        // SAFETY: the buffer is private and has the length; the source as above.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(early.source, early.bytes) };
        buffer
    }

    /// Copies what has arrived in the piece at an offset to private memory.
    pub(crate) fn deliver(self, piece: usize, late: Late) {
        // SAFETY: as above; whoever handed the private memory over keeps it until now, or has had it forgotten.
        unsafe { late.target.as_ptr().copy_from_nonoverlapping(self.0.at(piece), late.bytes) };
    }
}
