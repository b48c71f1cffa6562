//! Symmetric objects by their addresses in this process, for bindings of languages that know no handles; and the
//! *image*: memory of the program, such as its global variables, that has become a part of the heap.
//!
//! A block of the heap is mapped a second time, over that memory, which so has two addresses from then on, and is reached by
//! other PEs as any block is. It needs no route, no registration and no copy of its own.

use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::heap::{Heap, MAX_ALIGN, SymBox, SymSlice};

/// Memory of the program that is a block of the heap.
pub(super) struct Image {
    start: usize,
    bytes: usize,
    /// The block's offset.
    at: usize,
}

impl Image {
    /// The offset of `bytes` at an address, if all of them lie in it.
    fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        within(address.wrapping_sub(self.start), bytes, self.bytes).map(|from| self.at + from)
    }
}

impl Heap {
    /// The object of `len` elements at an address of this process.
    #[inline(always)]
    pub(crate) fn object_at_address<T: Elem>(&self, address: *const T, len: usize) -> Result<SymSlice<'_, T>> {
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(ErrorKind::Overflow { count: len, size: size_of::<T>() }.into());
        };
        let Some(offset) = self.offset_of_address(address.addr(), bytes) else {
            return Err(self.not_symmetric(address.addr(), bytes));
        };
        if !address.is_aligned() {
            return Err(ErrorKind::Misaligned { offset, align: align_of::<T>() }.into());
        }
        let heap = if self.gate.open() != 0 { self } else { self.found(offset, bytes)? };
        Ok(SymSlice::new(heap, offset, len))
    }

    /// The longest object of bytes at an address: to the end of the heap or of the image; in checked mode, of its block.
    pub(crate) fn rest_at_address(&self, address: usize) -> Result<SymSlice<'_, u8>> {
        let offset = self.offset_of_address(address, 0).ok_or_else(|| self.not_symmetric(address, 1))?;
        if self.check().is_some() {
            return self.rest_of_block_at_address(address);
        }
        let of_image =
            |image: &Image| (image.at..image.at + image.bytes).contains(&offset).then_some(image.at + image.bytes);
        let end = self.room.image.get().and_then(of_image).unwrap_or(self.room.user.end);
        Ok(SymSlice::new(self.found(offset, end - offset)?, offset, end - offset))
    }

    /// The longest object of bytes at an address that is one block's.
    pub(crate) fn rest_of_block_at_address(&self, address: usize) -> Result<SymSlice<'_, u8>> {
        let offset = self.offset_of_address(address, 0).ok_or_else(|| self.not_symmetric(address, 1))?;
        let end = self.arena().end_of(offset);
        let bytes = end.ok_or(ErrorKind::NotAllocated { offset, end: offset.saturating_add(1) })? - offset;
        Ok(SymSlice::new(self.found(offset, bytes)?, offset, bytes))
    }

    /// That to which handles point, where the gate is closed: in checked mode, it depends on the allocation.
    #[cold]
    fn found(&self, offset: usize, bytes: usize) -> Result<&Heap> {
        self.require_own_process()?;
        match self.check() {
            Some(_) => self.find(offset, bytes),
            None => Ok(self),
        }
    }

    /// The offset of `bytes` at an address, if all of them lie in the user's heap or in the image.
    #[inline(always)]
    pub(crate) fn offset_of_address(&self, address: usize, bytes: usize) -> Option<usize> {
        let user = &self.room.user;
        let from = address.wrapping_sub(self.start.as_ptr().addr()).wrapping_sub(user.start);
        match within(from, bytes, user.len()) {
            Some(from) => Some(user.start + from),
            None => self.room.image.get()?.offset_of(address, bytes),
        }
    }

    /// The block that begins at an address, with all of its bytes.
    pub(crate) fn block_at_address(&self, address: usize) -> Result<SymBox<'_, u8>> {
        let offset = self.offset_of_address(address, 0).ok_or_else(|| self.not_symmetric(address, 1))?;
        let bytes = self.arena().block(offset);
        let bytes = bytes.ok_or(ErrorKind::NotAllocated { offset, end: offset.saturating_add(1) })?;
        Ok(SymBox::new(SymSlice::new(self.find(offset, bytes)?, offset, bytes)))
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
            // SAFETY: the page lies in the block and in what is at `start`, which the caller vouches for; they are apart.
            unsafe { to.add(page).copy_from_nonoverlapping(start.add(page), MAX_ALIGN) };
        }
        // SAFETY: the caller vouches for what is replaced; a block lies in the segment, and begins a page, just checked.
        unsafe { self.segment().show_at(start, at, bytes) }?;
        if self.room.image.set(Image { start: start.addr(), bytes, at }).is_err() {
            return Err(
                ErrorKind::BadMemory { start: start.addr(), bytes, why: "this heap has an image".into() }.into()
            );
        }
        Ok(())
    }

    #[cold]
    fn not_symmetric(&self, address: usize, bytes: usize) -> Error {
        let user = &self.room.user;
        let start = self.start.as_ptr().addr() + user.start;
        ErrorKind::NotSymmetric { address, bytes, heap: start..start + user.len() }.into()
    }
}

/// `from`, if so many bytes from there on end within `len`.
#[inline(always)]
fn within(from: usize, bytes: usize, len: usize) -> Option<usize> {
    (bytes <= len && from <= len - bytes).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let word = world.object_at_address(start.wrapping_add(PAGE).cast::<u64>(), 2)?;
            assert_eq!(word.read(0)?, 0x0101010101010101 * (me as u64 + 1));
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
        let size = world.heap_size();
        assert_eq!(world.object_at_address(start.wrapping_add(3), 5).unwrap().offset(), block.sym().offset() + 12);
        assert!(world.object_at_address(start, size / 4 + 1).is_err());
        assert!(world.object_at_address(start, usize::MAX).is_err());
        assert!(world.object_at_address(start.wrapping_byte_add(2), 1).is_err());
        let local = 5_u32;
        let error = world.object_at_address(&raw const local, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("{:#x}", (&raw const local).addr())), "{error}");
        assert!(world.block_at_address(start.wrapping_add(1).cast()).is_err());
        assert_eq!(world.block_at_address(start.cast()).unwrap().sym().len(), 64);
        world.free(block).unwrap();
        assert!(world.block_at_address(start.cast()).is_err());
    }
}
