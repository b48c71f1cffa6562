//! How far a PE has got with the calls that change the heap, so that the PEs that are left after a loss can come to the
//! same heap again.
//!
//! A heap call changes the arena once all PEs have agreed to it. If a PE is lost just then, some of the others may have
//! learnt that all had agreed, and others not: the former are one call ahead, and the latter know which.

use crate::heap::arena::Arena;

/// A call that changes the heap, after its arguments were agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeapCall {
    Alloc { bytes: usize, align: usize },
    Free { offset: usize },
    Resize { offset: usize, old: usize, new: usize, align: usize },
}

impl HeapCall {
    /// Changes the arena as all PEs do that make the call; the block's offset afterwards, `None` if it has no room.
    pub(crate) fn apply(self, arena: &mut Arena) -> Option<usize> {
        match self {
            HeapCall::Alloc { bytes, align } => arena.alloc(bytes, align),
            HeapCall::Free { offset } => arena.free(offset).then_some(offset),
            HeapCall::Resize { offset, old, new, .. } if arena.resize(offset, old, new) => Some(offset),
            HeapCall::Resize { offset, old, new, align } => {
                let moved = arena.alloc(new, align)?;
                if old > 0 {
                    arena.free(offset);
                }
                Some(moved)
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_behind_catches_up() {
        let mut ahead = Arena::new(4096..1 << 20);
        let mut behind = ahead.clone();
        let calls = [
            HeapCall::Alloc { bytes: 1000, align: 8 },
            HeapCall::Alloc { bytes: 70, align: 4096 },
            HeapCall::Resize { offset: 4096, old: 1000, new: 900, align: 8 },
            HeapCall::Resize { offset: 4096, old: 900, new: 50_000, align: 8 },
            HeapCall::Free { offset: 8192 },
        ];
        for call in calls {
            assert!(call.apply(&mut ahead).is_some(), "{call:?}");
            assert_ne!(ahead, behind);
            assert!(call.apply(&mut behind).is_some());
            assert_eq!(ahead, behind);
        }
        assert_eq!(HeapCall::Alloc { bytes: 2 << 20, align: 8 }.apply(&mut ahead), None);
        assert_eq!(ahead, behind);
    }
}
