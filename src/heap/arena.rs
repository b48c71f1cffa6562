//! Which bytes of the symmetric heap are allocated: best fit over offsets, pure data without pointers or addresses.
//!
//! Every PE makes the same calls in the same order and the choice depends on nothing else, so every PE gets the same
//! offsets. The smallest free block that fits is used, the one with the lowest offset among equals; freed blocks merge
//! with their neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Every block begins at a multiple of this and covers multiples of it: a cache line is never shared by two objects.
pub(crate) const GRAIN: usize = 64;

/// The largest alignment that an offset can promise: the page, since segments are mapped at page boundaries.
pub(crate) const MAX_ALIGN: usize = 4096;

/// The allocations of one symmetric heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arena {
    bounds: Range<usize>,
    /// Free blocks: offset to length.
    free: BTreeMap<usize, usize>,
    /// The same, by length.
    by_length: BTreeSet<(usize, usize)>,
    /// Live blocks: offset to (bytes asked for, bytes taken).
    live: BTreeMap<usize, (usize, usize)>,
}

impl Arena {
    /// An empty heap in `bounds`, whose ends are multiples of the page.
    pub(crate) fn new(bounds: Range<usize>) -> Self {
        debug_assert!(bounds.start.is_multiple_of(MAX_ALIGN) && bounds.end.is_multiple_of(GRAIN));
        let mut arena =
            Arena { bounds: bounds.clone(), free: BTreeMap::new(), by_length: BTreeSet::new(), live: BTreeMap::new() };
        if !bounds.is_empty() {
            arena.add_free(bounds.start, bounds.len());
        }
        arena
    }

    /// Takes `bytes` at a multiple of `align`; `None` if no free block has room. Zero bytes take no room.
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize) -> Option<usize> {
        if bytes == 0 {
            return Some(self.start());
        }
        let align = align.max(GRAIN);
        let taken = bytes.checked_next_multiple_of(GRAIN)?;
        let (block, length) = self
            .by_length
            .range((taken, 0)..)
            .map(|&(length, block)| (block, length))
            .find(|&(block, length)| block.next_multiple_of(align) - block <= length - taken)?;
        let offset = block.next_multiple_of(align);
        self.remove_free(block, length);
        if offset > block {
            self.add_free(block, offset - block);
        }
        if block + length > offset + taken {
            self.add_free(offset + taken, block + length - offset - taken);
        }
        self.live.insert(offset, (bytes, taken));
        Some(offset)
    }

    /// Gives the block at `offset` back; false if no live block begins there.
    pub(crate) fn free(&mut self, offset: usize) -> bool {
        let Some((_, mut length)) = self.live.remove(&offset) else { return false };
        let mut start = offset;
        if let Some((&before, &bytes)) = self.free.range(..offset).next_back()
            && before + bytes == offset
        {
            self.remove_free(before, bytes);
            start = before;
            length += bytes;
        }
        if let Some(&bytes) = self.free.get(&(start + length)) {
            self.remove_free(start + length, bytes);
            length += bytes;
        }
        self.add_free(start, length);
        true
    }

    /// Changes the block at `offset` from `old` to `new` bytes where it is; false, with nothing changed, if what lies
    /// behind it has no room, or if one of the two takes no room.
    pub(crate) fn resize(&mut self, offset: usize, old: usize, new: usize) -> bool {
        let (Some(&(_, taken)), Some(wanted)) = (self.live.get(&offset), new.checked_next_multiple_of(GRAIN)) else {
            return false;
        };
        let behind = offset + taken;
        let room = self.free.get(&behind).copied().unwrap_or(0);
        if old == 0 || new == 0 || wanted > taken + room {
            return false;
        }
        if wanted != taken {
            if room > 0 {
                self.remove_free(behind, room);
            }
            if taken + room > wanted {
                self.add_free(offset + wanted, taken + room - wanted);
            }
        }
        self.live.insert(offset, (new, wanted));
        true
    }

    /// Whether one live block holds all of these bytes; no bytes always are.
    pub(crate) fn covers(&self, offset: usize, bytes: usize) -> bool {
        let Some(end) = offset.checked_add(bytes) else { return false };
        bytes == 0 && self.bounds.start <= offset && end <= self.bounds.end
            || self.live.range(..=offset).next_back().is_some_and(|(start, (size, _))| end <= start + size)
    }

    /// The live block that begins at `offset`: how many bytes were asked for.
    pub(crate) fn block(&self, offset: usize) -> Option<usize> {
        self.live.get(&offset).map(|(bytes, _)| *bytes)
    }

    /// Where the live block that holds the byte at `offset` ends.
    pub(crate) fn end_of(&self, offset: usize) -> Option<usize> {
        let (start, (bytes, _)) = self.live.range(..=offset).next_back()?;
        (offset <= start + bytes).then_some(start + bytes)
    }

    /// From where to where the heap goes.
    pub(crate) fn bounds(&self) -> Range<usize> {
        self.bounds.clone()
    }

    /// Where the heap begins, and every block that takes no room.
    pub(crate) fn start(&self) -> usize {
        self.bounds.start
    }

    /// Bytes of the whole heap.
    pub(crate) fn bytes(&self) -> usize {
        self.bounds.len()
    }

    /// Bytes that are free in all.
    pub(crate) fn free_bytes(&self) -> usize {
        self.free.values().sum()
    }

    /// Bytes of the largest free block.
    pub(crate) fn largest_free(&self) -> usize {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    fn add_free(&mut self, offset: usize, length: usize) {
        self.free.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove_free(&mut self, offset: usize, length: usize) {
        self.free.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena::new(4096..4096 + 65536)
    }

    #[test]
    fn blocks_are_aligned_disjoint_and_merge_again() {
        let mut arena = arena();
        let a = arena.alloc(1, 1).unwrap();
        let b = arena.alloc(100, 4096).unwrap();
        let c = arena.alloc(65, 8).unwrap();
        assert_eq!((a, b % 4096, c % 64), (4096, 0, 0));
        assert!(arena.covers(b, 100) && !arena.covers(b, 101) && !arena.covers(a + 1, 1));
        for block in [b, a, c] {
            assert!(arena.free(block));
            assert!(!arena.free(block), "freed twice");
        }
        assert_eq!(arena, self::arena());
    }

    #[test]
    fn a_full_heap_says_so_and_keeps_what_it_has() {
        let mut arena = arena();
        let all = arena.alloc(65536, 64).unwrap();
        assert_eq!((arena.alloc(1, 1), arena.free_bytes(), arena.largest_free()), (None, 0, 0));
        assert_eq!(arena.alloc(0, 1), Some(4096));
        assert_eq!(arena.alloc(usize::MAX, 1), None);
        assert!(arena.free(all));
        assert_eq!((arena.largest_free(), arena.bytes()), (65536, 65536));
    }

    #[test]
    fn a_block_is_resized_where_it_is_or_not_at_all() {
        let mut arena = arena();
        let a = arena.alloc(100, 1).unwrap();
        assert!(arena.resize(a, 100, 128) && arena.covers(a, 128));
        assert_eq!(arena.free_bytes(), 65536 - 128);
        assert!(arena.resize(a, 128, 65536) && arena.free_bytes() == 0 && arena.largest_free() == 0);
        assert!(arena.resize(a, 65536, 1) && !arena.covers(a, 2));
        assert_eq!((arena.free_bytes(), arena.largest_free()), (65536 - 64, 65536 - 64));
        let b = arena.alloc(64, 1).unwrap();
        let before = arena.clone();
        for (old, new) in [(1, 65), (1, usize::MAX), (1, 0), (0, 1)] {
            assert!(!arena.resize(a, old, new));
        }
        assert!(!arena.resize(b + 64, 1, 1), "nothing lives there");
        assert_eq!(arena, before);
        assert!(arena.free(b) && arena.free(a));
        assert_eq!(arena, self::arena());
    }

    #[test]
    fn random_calls_never_overlap_and_are_reproducible() {
        let (mut left, mut right) = (arena(), arena());
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (random, pick) = ((seed >> 33) as usize, (seed >> 20) as usize);
            if random.is_multiple_of(2) && !live.is_empty() {
                let (offset, _) = live.swap_remove(pick % live.len());
                assert!(left.free(offset) && right.free(offset));
            } else {
                let (bytes, align) = (1 + random % 3000, 1 << (pick % 13));
                let offset = left.alloc(bytes, align);
                assert_eq!(offset, right.alloc(bytes, align));
                let Some(offset) = offset else { continue };
                assert!(offset.is_multiple_of(align) && offset >= 4096 && offset + bytes <= 4096 + 65536);
                for &(other, length) in &live {
                    assert!(offset + bytes <= other || other + length <= offset);
                }
                live.push((offset, bytes));
            }
        }
        for (offset, _) in live {
            assert!(left.free(offset));
        }
        assert_eq!(left, arena());
    }
}
