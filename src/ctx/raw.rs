//! Put and get by address, for bindings of languages that have no slices: a buffer is a pointer, and may be symmetric
//! memory itself; and what is non-blocking ends at the next quiet of the context, in place of a scope.

use crate::ctx::rma::{check_stride, extent};
use crate::ctx::{Access, Ctx, Private, Shared, Sharing, SigRef};
use crate::elem::Elem;
use crate::error::Result;
use crate::heap::SymSlice;

/// An odd number, which no address of memory that a scope owns is by itself: all that has no scope is one owner's.
const NO_SCOPE: usize = usize::MAX;

impl<S: Sharing> Ctx<'_, S> {
    /// Copies as many elements as `target` has from `source` to it on `pe`; on this PE itself the two may overlap. Blocks
    /// until `source` may be reused; if it is `lasting`, does not block: it may be read until the next
    /// [`quiet`](Self::quiet) of the context.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// `source` is valid for reading so many elements, for so long.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn put_raw<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: *const T,
        pe: usize,
        lasting: bool,
    ) -> Result<()> {
        let peer = self.peer(target, target.len(), Access::Write, pe)?;
        let bytes = target.len() * size_of::<T>();
        if peer.pe == self.link().me() && self.gate.open() != 0 {
            // SAFETY: both sides have the bytes, and `copy` allows them to overlap.
            unsafe { target.as_ptr().cast::<u8>().copy_from(source.cast(), bytes) };
            return Ok(());
        }
        // SAFETY: the target has the bytes, and so has the source, as the caller says.
        unsafe { self.link().put(peer, self.lane, target.offset(), source.cast(), bytes, lasting) }
    }

    /// Copies all of `source` on `pe` to `target`; on this PE itself the two may overlap. Blocks until it is there; if it is
    /// `lasting`, does not block: it is there after the next [`quiet`](Self::quiet) of the context.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// `target` is valid for writing as many elements as `source` has, for so long.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_raw<T: Elem>(
        &self,
        target: *mut T,
        source: SymSlice<'_, T>,
        pe: usize,
        lasting: bool,
    ) -> Result<()> {
        let peer = self.peer(source, source.len(), Access::Read, pe)?;
        let bytes = source.len() * size_of::<T>();
        if peer.pe == self.link().me() && self.gate.open() != 0 {
            // SAFETY: both sides have the bytes, and `copy` allows them to overlap.
            unsafe { target.cast::<u8>().copy_from(source.as_ptr().cast(), bytes) };
            return Ok(());
        }
        let owner = if lasting { NO_SCOPE } else { 0 };
        // SAFETY: the source has the bytes, and so has the target, as the caller says.
        unsafe { self.link().get(peer, self.lane, source.offset(), target.cast(), bytes, owner) }
    }

    /// [`put_raw`](Self::put_raw), and then a signal: see [`put_signal`](Self::put_signal).
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    ///
    /// # Safety
    /// `source` is valid for reading as many elements as `target` has.
    #[inline]
    #[track_caller]
    pub unsafe fn put_signal_raw<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: *const T,
        signal: SigRef<'_>,
        pe: usize,
    ) -> Result<()> {
        let word = self.signal_word(signal, pe)?;
        let peer = self.peer(target, target.len(), Access::Write, pe)?;
        if peer.pe == self.link().me() {
            // SAFETY: as the caller says.
            unsafe { self.put_raw(target, source, pe, false) }?;
            return self.signal(signal, pe);
        }
        let bytes = target.len() * size_of::<T>();
        // SAFETY: the target has the bytes, and so has the source, as the caller says; the word is a handle's first.
        unsafe {
            self.link().put_signal(peer, self.lane, target.offset(), source.cast(), bytes, (word, signal.signal()))
        }
    }

    /// [`ibput`](Self::ibput) from a pointer.
    ///
    /// # Errors
    /// As [`ibput`](Self::ibput).
    ///
    /// # Safety
    /// `source` is valid for reading up to the end of its last block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub unsafe fn ibput_raw<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        target_stride: usize,
        source: *const T,
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        self.strided(target, target_stride, source_stride, block, extent(target_stride, block, count), pe)?;
        // SAFETY: the last block ends within the target, just checked, and within the source, as the caller says.
        unsafe { self.put_blocks(target, target_stride, source, source_stride, block, count, pe) }
    }

    /// [`ibget`](Self::ibget) to a pointer.
    ///
    /// # Errors
    /// As [`ibget`](Self::ibget).
    ///
    /// # Safety
    /// `target` is valid for writing up to the end of its last block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub unsafe fn ibget_raw<T: Elem>(
        &self,
        target: *mut T,
        target_stride: usize,
        source: SymSlice<'_, T>,
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        self.strided(source, target_stride, source_stride, block, extent(source_stride, block, count), pe)?;
        // SAFETY: the last block ends within the source, just checked, and within the target, as the caller says.
        unsafe { self.get_blocks(target, target_stride, source, source_stride, block, count, pe) }
    }

    /// Fails unless the strides suit a block, and the object has the elements.
    #[track_caller]
    fn strided<T: Elem>(
        &self,
        object: SymSlice<'_, T>,
        target_stride: usize,
        source_stride: usize,
        block: usize,
        extent: usize,
        pe: usize,
    ) -> Result<()> {
        self.peer(object, extent, Access::Read, pe)?;
        check_stride("target stride", target_stride, block)?;
        check_stride("source stride", source_stride, block)?;
        if extent > object.len() { Err(object.out_of_range(0, extent)) } else { Ok(()) }
    }
}

impl<'t> Ctx<'t, Private> {
    /// The same context, with its lane, for many threads at once: over a network, other shared contexts have one lane
    /// together.
    pub fn into_shared(self) -> Ctx<'t, Shared> {
        let Ctx { core, gate, peers, me, lane, of_library, .. } = self;
        Ctx { core, gate, peers, me, lane, of_library, sharing: std::marker::PhantomData }
    }
}
