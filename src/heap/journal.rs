//! How far a PE has got with the calls that change the heap, so that the PEs that are left after a loss can come to the
//! same heap again.
//!
//! A heap call changes the arena once all PEs have agreed to it. If a PE is lost just then, some of the others may have
//! learnt that all had agreed, and others not: the former are one call ahead, and the latter know which.

/// A call that changes the heap, after its arguments were agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeapCall {
    Alloc { bytes: usize, align: usize },
    Free { offset: usize },
    Resize { offset: usize, old: usize, new: usize, align: usize },
}

/// The calls so far: how many were made, and the one that was not, because a PE was lost in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) made: u64,
    pub(crate) failed: Option<HeapCall>,
}

impl Journal {
    /// A call was made.
    pub(crate) fn make(&mut self) {
        self.made += 1;
        self.failed = None;
    }
}
