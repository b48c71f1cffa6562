//! The symmetric heap: one segment of memory a PE, laid out alike on all, so that an object is an offset.
//!
//! - `segment`: where the memory comes from;
//! - `control`: the layout of a segment, and the control page at its start;
//! - `arena`: which offsets are allocated, pure data;
//! - `journal`: how far a PE has got with changing that;
//! - `slice`: the typed handles;
//! - `host`: what memory and cores the host can give.

mod arena;
pub(crate) mod control;
pub(crate) mod host;
mod journal;
#[allow(unsafe_code)]
mod segment;
#[allow(unsafe_code)]
mod slice;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use arena::{Arena, GRAIN, MAX_ALIGN};
pub(crate) use journal::{HeapCall, Journal};
pub(crate) use segment::{Segment, ticks};
pub use slice::{SymBox, SymSlice};
pub(crate) use slice::{load, store};

use crate::error::{ErrorKind, Result};

/// This PE's segment with the allocations in it. Handles point here, so two worlds cannot be mixed up.
pub(crate) struct Heap {
    segment: Segment,
    arena: Mutex<Arena>,
    journal: Mutex<Journal>,
}

impl Heap {
    pub(crate) fn new(segment: Segment, arena: Arena) -> Self {
        Heap { segment, arena: Mutex::new(arena), journal: Mutex::default() }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The allocations. A panic while they were locked cannot have left them half changed: nothing in there panics.
    pub(crate) fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that have changed the allocations.
    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails unless one live allocation covers these bytes.
    pub(crate) fn check_live(&self, offset: usize, bytes: usize) -> Result<()> {
        let end = offset.saturating_add(bytes);
        if self.arena().covers(offset, bytes) { Ok(()) } else { Err(ErrorKind::NotAllocated { offset, end }.into()) }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("bytes", &self.segment.len()).finish_non_exhaustive()
    }
}
