//! Symmetric objects by their addresses in this process, for bindings of languages that know no handles; and the
//! *image*: memory of the program, such as its global variables, that has become a part of the heap.
//!
//! A block of the heap is mapped a second time, over that memory, which so has two addresses from then on, and is reached by
//! other PEs as any block is. It needs no route, no registration and no copy of its own.

use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::heap::{Heap, MAX_ALIGN, SymBox, SymSlice};

/// Addresses of this process behind which there are offsets of the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    start: usize,
    bytes: usize,
    /// The offset of the first byte.
    at: usize,
}

impl Part {
    /// The offset of `bytes` at an address, if all of them lie in it.
    #[inline(always)]
    fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        let from = address.wrapping_sub(self.start);
        (bytes <= self.bytes && from <= self.bytes - bytes).then(|| self.at + from)
    }

    /// The offset behind the last byte, if one lies in it.
    fn end_of(&self, offset: usize) -> Option<usize> {
        (self.at..self.at + self.bytes).contains(&offset).then_some(self.at + self.bytes)
    }
}

/// Symmetric objects by their addresses in this process, for bindings of languages that know no handles; see
/// [`World::addresses`](crate::World::addresses). Nothing here is collective.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'w> {
    heap: &'w Heap,
    /// In checked mode, of which allocation an object is has to be found.
    checked: bool,
    user: Part,
    /// The overlay, if there was one.
    image: Part,
}

impl<'w> Addresses<'w> {
    /// The object of `len` elements at an address. Whether it is allocated is looked at in checked mode only.
    ///
    /// # Errors
    /// [`NotSymmetric`](ErrorKind::NotSymmetric), [`Misaligned`](ErrorKind::Misaligned), [`Overflow`](ErrorKind::Overflow);
    /// in checked mode, [`NotAllocated`](ErrorKind::NotAllocated).
    #[inline(always)]
    pub fn object<T: Elem>(&self, address: *const T, len: usize) -> Result<SymSlice<'w, T>> {
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(ErrorKind::Overflow { count: len, size: size_of::<T>() }.into());
        };
        let Some(offset) = self.offset_of(address.addr(), bytes) else {
            return Err(self.not_symmetric(address.addr(), bytes));
        };
        if !address.is_aligned() {
            return Err(ErrorKind::Misaligned { offset, align: align_of::<T>() }.into());
        }
        let heap = if self.checked { self.heap.find(offset, bytes)? } else { self.heap };
        Ok(SymSlice::new(heap, offset, len))
    }

    /// The longest object of bytes at an address, for calls that learn later how much of it they need: to the end of the heap or
    /// of the overlay; in checked mode, to the end of its allocation.
    ///
    /// # Errors
    /// As [`object`](Self::object).
    pub fn rest(&self, address: *const u8) -> Result<SymSlice<'w, u8>> {
        if self.checked {
            return self.rest_of_block(address);
        }
        let offset = self.offset_of(address.addr(), 0).ok_or_else(|| self.not_symmetric(address.addr(), 1))?;
        let end = self.image.end_of(offset).unwrap_or(self.user.at + self.user.bytes);
        Ok(SymSlice::new(self.heap, offset, end - offset))
    }

    /// The part of an allocation that begins at an address.
    ///
    /// # Errors
    /// [`NotSymmetric`](ErrorKind::NotSymmetric), [`NotAllocated`](ErrorKind::NotAllocated).
    pub fn rest_of_block(&self, address: *const u8) -> Result<SymSlice<'w, u8>> {
        let offset = self.offset_of(address.addr(), 0).ok_or_else(|| self.not_symmetric(address.addr(), 1))?;
        let end = self.heap.arena().end_of(offset);
        let bytes = end.ok_or(ErrorKind::NotAllocated { offset, end: offset.saturating_add(1) })? - offset;
        Ok(SymSlice::new(self.heap.find(offset, bytes)?, offset, bytes))
    }

    /// The allocation that begins at an address, of which the owner has been dropped.
    ///
    /// # Errors
    /// As [`rest_of_block`](Self::rest_of_block).
    pub fn block(&self, address: *const u8) -> Result<SymBox<'w, u8>> {
        let offset = self.offset_of(address.addr(), 0).ok_or_else(|| self.not_symmetric(address.addr(), 1))?;
        // The overlay's block is never given back, though it may begin there.
        let bytes = self.heap.arena().block(offset).filter(|_| self.image.end_of(offset).is_none());
        let bytes = bytes.ok_or(ErrorKind::NotAllocated { offset, end: offset.saturating_add(1) })?;
        Ok(SymBox::new(SymSlice::new(self.heap.find(offset, bytes)?, offset, bytes)))
    }

    #[inline(always)]
    fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        self.user.offset_of(address, bytes).or_else(|| self.image.offset_of(address, bytes))
    }

    #[cold]
    fn not_symmetric(&self, address: usize, bytes: usize) -> Error {
        let Part { start, bytes: all, .. } = self.user;
        ErrorKind::NotSymmetric { address, bytes, heap: start..start + all }.into()
    }
}

impl Heap {
    /// Objects by addresses; made after the overlay, if there is to be one.
    pub(crate) fn addresses(&self) -> Addresses<'_> {
        let user = &self.room.user;
        let start = self.start.as_ptr().addr().wrapping_add(user.start);
        let none = Part { start: 0, bytes: 0, at: 0 };
        Addresses {
            heap: self,
            checked: self.check().is_some(),
            user: Part { start, bytes: user.len(), at: user.start },
            image: self.room.image.get().copied().unwrap_or(none),
        }
    }

    /// Makes what is at `start` this PE's copy of a block, which it fills, in whole pages: what it holds is copied, and the
    /// block is mapped there.
    ///
    /// # Safety
    /// As many bytes as the block has are valid at `start` for reading and writing, are nobody's but the caller's to replace,
    /// and nobody else writes them meanwhile; where `used` says no, they are zero.
    pub(crate) unsafe fn overlay(
        &self,
        block: &SymBox<'_, u8>,
        start: *mut u8,
        used: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let (at, bytes) = (block.sym().offset(), block.size());
        if !(start.addr() | at | bytes).is_multiple_of(MAX_ALIGN) {
            return Err(ErrorKind::Misaligned { offset: start.addr() | at | bytes, align: MAX_ALIGN }.into());
        }
        let to = self.segment().address(at);
        for page in (0..bytes).step_by(MAX_ALIGN).filter(|page| used(*page)) {
            let (from, to) = (start.wrapping_add(page).cast::<u64>(), to.wrapping_add(page).cast::<u64>());
            for word in 0..MAX_ALIGN / size_of::<u64>() {
                // SAFETY: the page lies in the block and in what is at `start`, which the caller vouches for. Word by word, for
                // sanitizers of memory take a copy of what lies between variables for an error.
                unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
            }
        }
        // SAFETY: the caller vouches for what is replaced; a block lies in the segment, and begins a page, just checked.
        unsafe { self.segment().show_at(start, at, bytes) }?;
        if self.room.image.set(Part { start: start.addr(), bytes, at }).is_err() {
            return Err(
                ErrorKind::BadMemory { start: start.addr(), bytes, why: "this heap has an image".into() }.into()
            );
        }
        if let Some(check) = self.check() {
            check.overlaid(at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Shared, World, local};

    const PAGE: usize = 4096;

    /// Pages of this PE, with values of its own, none of which is zero.
    fn pages(bytes: usize, me: usize) -> *mut u8 {
        let mut map = memmap2::MmapMut::map_anon(bytes).unwrap();
        map.fill(me as u8 + 1);
        let start = map.as_mut_ptr();
        // It is mapped over.
        std::mem::forget(map);
        start
    }

    #[test]
    fn memory_of_the_program_becomes_symmetric_where_it_is() {
        local(3, |world| {
            let (me, n, ctx) = (world.me(), world.n_pes(), world.ctx::<Shared>());
            let start = pages(2 * PAGE, me);
            let block = world.align::<u8>(PAGE, 2 * PAGE)?;
            // SAFETY: the pages are this thread's alone, and all used.
            unsafe { world.overlay(&block, start, |_| true) }?;
            world.barrier_all()?;
            let word = world.addresses().object(start.wrapping_add(PAGE).cast::<u64>(), 2)?;
            assert_eq!(word.read(0)?, 0x0101010101010101 * (me as u64 + 1));
            world.barrier_all()?;
            ctx.p(word, 77 + me as u64, (me + 1) % n)?;
            world.barrier_all()?;
            // SAFETY: the word is there, and everybody is done with it.
            let seen = unsafe { start.add(PAGE).cast::<u64>().read_volatile() };
            assert_eq!(seen, 77 + ((me + n - 1) % n) as u64);
            assert_eq!(word.at(1)?.read(0)?, 0x0101010101010101 * (me as u64 + 1));
            world.barrier_all()
        })
        .unwrap();
    }

    #[test]
    fn what_is_not_symmetric_is_named() {
        let world = World::builder().heap(4 * PAGE).build().unwrap();
        let block = world.alloc::<u32>(16).unwrap();
        let start = block.sym().as_ptr();
        let (size, at) = (world.heap_size(), world.addresses());
        assert_eq!(at.object(start.wrapping_add(3), 5).unwrap().offset(), block.sym().offset() + 12);
        assert!(at.object(start, size / 4 + 1).is_err());
        assert!(at.object(start, usize::MAX).is_err());
        assert!(at.object(start.wrapping_byte_add(2), 1).is_err());
        let local = 5_u32;
        let error = at.object(&raw const local, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("{:#x}", (&raw const local).addr())), "{error}");
        assert!(at.block(start.wrapping_add(1).cast()).is_err());
        assert_eq!(at.block(start.cast()).unwrap().sym().len(), 64);
        world.free(block).unwrap();
        assert!(at.block(start.cast()).is_err());
    }
}
