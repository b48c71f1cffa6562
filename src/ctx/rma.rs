//! Put and get: check, match the route, copy.
//!
//! A put may reuse its source on return and is complete, there for others to see, after `quiet` or a barrier; a get is
//! complete on return.

use std::marker::PhantomData;

use crate::ctx::{Access, Ctx, Sharing, SigRef};
use crate::elem::Elem;
use crate::error::{ErrorKind, Result};
use crate::heap::SymSlice;
use crate::sync::Word;
use crate::sync::signal::Signal;
use crate::transport::Peer;

impl<S: Sharing> Ctx<'_, S> {
    /// Copies `source` to the beginning of `target` on `pe`. Blocks until `source` may be reused.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe), [`OutOfRange`](ErrorKind::OutOfRange) if the object is shorter than `source`,
    /// [`OtherWorld`](ErrorKind::OtherWorld).
    #[inline]
    #[track_caller]
    pub fn put<T: Elem>(&self, target: SymSlice<'_, T>, source: &[T], pe: usize) -> Result<()> {
        let peer = self.peer(target, source.len(), Access::Write, pe)?;
        self.put_to(peer, target, source)
    }

    /// [`put`](Self::put), the way to the target being known.
    #[inline(always)]
    pub(super) fn put_to<T: Elem>(&self, peer: &Peer, target: SymSlice<'_, T>, source: &[T]) -> Result<()> {
        if source.len() > target.len() {
            return Err(target.out_of_range(0, source.len()));
        }
        // SAFETY: the target holds as many elements as the source, just checked; a private buffer does not overlap
        // symmetric memory.
        unsafe { self.link().put(peer, self.lane, target.offset(), source.as_ptr().cast(), size_of_val(source), false) }
    }

    /// The same with a signal for a word of the peer.
    #[inline(always)]
    pub(super) fn put_signal_to<T: Elem>(
        &self,
        peer: &Peer,
        target: SymSlice<'_, T>,
        source: &[T],
        signal: (Word, Signal),
    ) -> Result<()> {
        if source.len() > target.len() {
            return Err(target.out_of_range(0, source.len()));
        }
        let (at, bytes) = (target.offset(), size_of_val(source));
        // SAFETY: as for a put; the word is a handle's first.
        unsafe { self.link().put_signal(peer, self.lane, at, source.as_ptr().cast(), bytes, signal) }
    }

    /// Copies the beginning of `source` on `pe` to fill `target`. Blocks until it is there.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe), [`OutOfRange`](ErrorKind::OutOfRange) if the object is shorter than `target`,
    /// [`OtherWorld`](ErrorKind::OtherWorld).
    #[inline]
    #[track_caller]
    pub fn get<T: Elem>(&self, target: &mut [T], source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.get_for(target, source, pe, 0)
    }

    /// [`get`](Self::get), which over a network may be under way under an owner.
    #[inline(always)]
    #[track_caller]
    fn get_for<T: Elem>(&self, target: &mut [T], source: SymSlice<'_, T>, pe: usize, owner: usize) -> Result<()> {
        let peer = self.peer(source, target.len(), Access::Read, pe)?;
        if target.len() > source.len() {
            return Err(source.out_of_range(0, target.len()));
        }
        // SAFETY: the source holds as many elements as the target, just checked; a private buffer does not overlap
        // symmetric memory.
        unsafe {
            self.link().get(peer, self.lane, source.offset(), target.as_mut_ptr().cast(), size_of_val(target), owner)
        }
    }

    /// Copies this PE's copy of `source` to the beginning of `target` on `pe`; on this PE itself the two may overlap.
    /// Blocks until `source` may be reused.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn put_from<T: Elem>(&self, target: SymSlice<'_, T>, source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.put_between(target, source, pe, false)
    }

    #[inline(always)]
    #[track_caller]
    fn put_between<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: SymSlice<'_, T>,
        pe: usize,
        lasting: bool,
    ) -> Result<()> {
        let peer = self.peer(target, source.len(), Access::Write, pe)?;
        self.own(source, source.len(), Access::Read)?;
        if source.len() > target.len() {
            return Err(target.out_of_range(0, source.len()));
        }
        self.between(peer, source, target, source.len(), |bytes| {
            // SAFETY: both objects hold the bytes, just checked, in the heaps of different PEs.
            unsafe { self.link().put(peer, self.lane, target.offset(), source.as_ptr().cast(), bytes, lasting) }
        })
    }

    /// Copies the beginning of `source` on `pe` to fill this PE's copy of `target`; on this PE itself the two may
    /// overlap. Blocks until it is there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    #[track_caller]
    pub fn get_into<T: Elem>(&self, target: SymSlice<'_, T>, source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.get_between(target, source, pe, 0)
    }

    #[inline(always)]
    #[track_caller]
    fn get_between<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: SymSlice<'_, T>,
        pe: usize,
        owner: usize,
    ) -> Result<()> {
        let peer = self.peer(source, target.len(), Access::Read, pe)?;
        self.own(target, target.len(), Access::Write)?;
        if target.len() > source.len() {
            return Err(source.out_of_range(0, target.len()));
        }
        self.between(peer, source, target, target.len(), |bytes| {
            // SAFETY: both objects hold the bytes, just checked, in the heaps of different PEs.
            unsafe { self.link().get(peer, self.lane, source.offset(), target.as_ptr().cast(), bytes, owner) }
        })
    }

    /// Writes `value` to the first element of `target` on `pe`: whole, never torn, for elements of 1, 2, 4 or 8 bytes
    /// that are aligned to their size. Does not block.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn p<T: Elem>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        let peer = self.peer(target, 1, Access::Write, pe)?;
        self.link().put_element(peer, self.lane, target, value)
    }

    /// Reads the first element of `source` on `pe`: whole, never torn, for elements of 1, 2, 4 or 8 bytes that are
    /// aligned to their size. Blocks until it is there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    #[track_caller]
    pub fn g<T: Elem>(&self, source: SymSlice<'_, T>, pe: usize) -> Result<T> {
        let peer = self.peer(source, 1, Access::Read, pe)?;
        self.link().get_element(peer, self.lane, source)
    }

    /// Strided put: element `i * source_stride` of `source` to element `i * target_stride` of `target` on `pe`, for
    /// `count` elements. Strides are in elements, at least 1. Blocks until `source` may be reused.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Length`](ErrorKind::Length) for a stride of 0.
    #[track_caller]
    pub fn iput<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        target_stride: usize,
        source: &[T],
        source_stride: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        self.ibput(target, target_stride, source, source_stride, 1, count, pe)
    }

    /// Strided get: element `i * source_stride` of `source` on `pe` to element `i * target_stride` of `target`, for
    /// `count` elements. Strides are in elements, at least 1. Blocks until they are there.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Length`](ErrorKind::Length) for a stride of 0.
    #[track_caller]
    pub fn iget<T: Elem>(
        &self,
        target: &mut [T],
        target_stride: usize,
        source: SymSlice<'_, T>,
        source_stride: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        self.ibget(target, target_stride, source, source_stride, 1, count, pe)
    }

    /// Block-strided put: like [`iput`](Self::iput) with blocks of `block` elements in place of single ones. Strides go
    /// from the start of one block to the start of the next and are at least `block`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Length`](ErrorKind::Length) for a stride shorter than a block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub fn ibput<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        target_stride: usize,
        source: &[T],
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        let (far, near) = (extent(target_stride, block, count), extent(source_stride, block, count));
        self.peer(target, far, Access::Read, pe)?;
        check_stride("target stride", target_stride, block)?;
        check_stride("source stride", source_stride, block)?;
        if far > target.len() {
            return Err(target.out_of_range(0, far));
        }
        if near > source.len() {
            return Err(ErrorKind::Length { what: "source", given: source.len(), needed: near }.into());
        }
        // SAFETY: the last block ends within the target and within the source, just checked.
        unsafe { self.put_blocks(target, target_stride, source.as_ptr(), source_stride, block, count, pe) }
    }

    /// [`ibput`](Self::ibput) of what is checked.
    ///
    /// # Safety
    /// The last block ends within the target, and `source` is valid up to the end of the last block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub(super) unsafe fn put_blocks<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        target_stride: usize,
        source: *const T,
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        let peer = self.peer(target, 0, Access::Read, pe)?;
        let count = if block == 0 { 0 } else { count };
        if self.gate.open() == 0 {
            // What lies between the blocks is not written.
            for start in (0..count).map(|i| i * target_stride) {
                self.peer(target.slice(start..start + block)?, block, Access::Write, pe)?;
            }
        }
        for i in 0..count {
            let at = target.offset() + i * target_stride * size_of::<T>();
            let from = source.wrapping_add(i * source_stride);
            // SAFETY: the block lies within the target and within the source, as the caller says.
            unsafe { self.link().put(peer, self.lane, at, from.cast(), block * size_of::<T>(), false) }?;
        }
        Ok(())
    }

    /// Block-strided get: like [`iget`](Self::iget) with blocks of `block` elements in place of single ones. Strides go
    /// from the start of one block to the start of the next and are at least `block`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Length`](ErrorKind::Length) for a stride shorter than a block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub fn ibget<T: Elem>(
        &self,
        target: &mut [T],
        target_stride: usize,
        source: SymSlice<'_, T>,
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        let (near, far) = (extent(target_stride, block, count), extent(source_stride, block, count));
        self.peer(source, far, Access::Read, pe)?;
        check_stride("target stride", target_stride, block)?;
        check_stride("source stride", source_stride, block)?;
        if far > source.len() {
            return Err(source.out_of_range(0, far));
        }
        if near > target.len() {
            return Err(ErrorKind::Length { what: "target", given: target.len(), needed: near }.into());
        }
        // SAFETY: the last block ends within the source and within the target, just checked.
        unsafe { self.get_blocks(target.as_mut_ptr(), target_stride, source, source_stride, block, count, pe) }
    }

    /// [`ibget`](Self::ibget) of what is checked.
    ///
    /// # Safety
    /// The last block ends within the source, and `target` is valid up to the end of the last block.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
    pub(super) unsafe fn get_blocks<T: Elem>(
        &self,
        target: *mut T,
        target_stride: usize,
        source: SymSlice<'_, T>,
        source_stride: usize,
        block: usize,
        count: usize,
        pe: usize,
    ) -> Result<()> {
        let peer = self.peer(source, 0, Access::Read, pe)?;
        for i in 0..if block == 0 { 0 } else { count } {
            let at = source.offset() + i * source_stride * size_of::<T>();
            let to = target.wrapping_add(i * target_stride);
            // SAFETY: the block lies within the source and within the target, as the caller says.
            unsafe { self.link().get(peer, self.lane, at, to.cast(), block * size_of::<T>(), 0) }?;
        }
        Ok(())
    }

    /// The address of `object` on `pe` in this process, or `None` where that PE's memory is not mapped here. Reading
    /// and writing through it is as unsafe as sharing memory is.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe), [`OtherWorld`](ErrorKind::OtherWorld).
    #[track_caller]
    pub fn ptr<T: Elem>(&self, object: SymSlice<'_, T>, pe: usize) -> Result<Option<*mut T>> {
        let peer = self.peer(object, object.len(), Access::Read, pe)?;
        Ok(self.link().address(peer, object.offset()).map(<*mut u8>::cast))
    }

    /// Non-blocking operations: runs `f`, then completes everything it started, however it ends. In the scope, sources
    /// must not change and targets not be read, which the borrows see to.
    ///
    /// ```
    /// # use shmem::Shared;
    /// # shmem::local(2, |world| -> shmem::Result<()> {
    /// let (ctx, other) = (world.ctx::<Shared>(), 1 - world.me());
    /// let inbox = world.alloc::<u32>(4)?;
    /// let (left, right) = ([1, 2], [3, 4]);
    /// ctx.scope(|scope| {
    ///     scope.put_nbi(inbox.sym().slice(..2)?, &left, other)?;
    ///     scope.put_nbi(inbox.sym().slice(2..)?, &right, other)
    /// })?;
    /// world.barrier_all()?;
    /// assert_eq!(inbox.sym().to_vec(), [1, 2, 3, 4]);
    /// # world.free(inbox)
    /// # })?;
    /// # Ok::<(), shmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `f`, else those of [`quiet`](Self::quiet).
    pub fn scope<'env, R>(&'env self, f: impl for<'s> FnOnce(&'s Scope<'s, 'env, S>) -> Result<R>) -> Result<R> {
        /// Completes the scope when `f` panics, too: its borrows end there.
        struct Completion<'a, 'b, S: Sharing>(&'a Ctx<'b, S>, usize);
        impl<S: Sharing> Completion<'_, '_, S> {
            fn complete(&self) -> Result<()> {
                self.0.quiet().inspect_err(|_| self.0.link().forget(self.1))
            }
        }
        impl<S: Sharing> Drop for Completion<'_, '_, S> {
            fn drop(&mut self) {
                // The panic that is under way says more than an error here could.
                let _ = self.complete();
            }
        }
        let scope = Scope { ctx: self, owner: self.link().next_owner(), scope: PhantomData, env: PhantomData };
        let completion = Completion(self, scope.owner);
        let result = f(&scope);
        let done = completion.complete();
        std::mem::forget(completion);
        result.and_then(|result| done.map(|()| result))
    }

    /// A copy between symmetric objects: on one PE within its segment, where they may overlap, else by `transfer`. Both hold
    /// `len` elements.
    #[inline(always)]
    fn between<T: Elem>(
        &self,
        peer: &Peer,
        source: SymSlice<'_, T>,
        target: SymSlice<'_, T>,
        len: usize,
        transfer: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        let bytes = len * size_of::<T>();
        if peer.pe != self.link().me() {
            return transfer(bytes);
        }
        if self.gate.open() == 0 && !self.both_in_reach(source, target) {
            // SAFETY: both objects hold the bytes, as the caller says.
            return unsafe { self.link().carry(peer, self.lane, source.offset(), target.offset(), bytes) };
        }
        self.core.heap().segment().copy_within(source.offset(), target.offset(), bytes);
        Ok(())
    }

    /// Whether the processor may access this PE's copies of both.
    #[cold]
    fn both_in_reach<T: Elem>(&self, one: SymSlice<'_, T>, other: SymSlice<'_, T>) -> bool {
        let in_reach = |object: SymSlice<'_, T>| self.core.heap().segment().piece(object.offset()).is_some();
        in_reach(one) && in_reach(other)
    }
}

/// Elements from the first to the last touched by `count` blocks, saturated.
pub(super) fn extent(stride: usize, block: usize, count: usize) -> usize {
    match (count, block) {
        (0, _) | (_, 0) => 0,
        _ => stride.saturating_mul(count - 1).saturating_add(block),
    }
}

pub(super) fn check_stride(what: &'static str, given: usize, block: usize) -> Result<()> {
    let needed = block.max(1);
    if given < needed { Err(ErrorKind::Length { what, given, needed }.into()) } else { Ok(()) }
}

/// A span in which non-blocking operations run; made by [`Ctx::scope`].
pub struct Scope<'scope, 'env: 'scope, S: Sharing> {
    ctx: &'env Ctx<'env, S>,
    /// Whose targets are, of what is under way.
    owner: usize,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env, S: Sharing> Scope<'_, 'env, S> {
    /// Starts a [`put`](Ctx::put). Does not block; `source` stays borrowed until the scope ends.
    ///
    /// # Errors
    /// As [`Ctx::put`].
    #[inline]
    #[track_caller]
    pub fn put_nbi<T: Elem>(&self, target: SymSlice<'_, T>, source: &'env [T], pe: usize) -> Result<()> {
        self.ctx.put(target, source, pe)
    }

    /// Starts a [`get`](Ctx::get). Does not block; `target` stays borrowed until the scope ends.
    ///
    /// # Errors
    /// As [`Ctx::get`].
    #[inline]
    #[track_caller]
    pub fn get_nbi<T: Elem>(&self, target: &'env mut [T], source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.ctx.get_for(target, source, pe, self.owner)
    }

    /// Starts a [`put_from`](Ctx::put_from). Does not block; this PE's copy of `source` must not change until the scope
    /// ends. Over a network, it is sent from where it lies.
    ///
    /// # Errors
    /// As [`Ctx::put_from`].
    #[inline]
    #[track_caller]
    pub fn put_from_nbi<T: Elem>(&self, target: SymSlice<'_, T>, source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.ctx.put_between(target, source, pe, true)
    }

    /// Starts a [`get_into`](Ctx::get_into). Does not block; this PE's copy of `target` is there when the scope ends.
    ///
    /// # Errors
    /// As [`Ctx::get_into`].
    #[inline]
    #[track_caller]
    pub fn get_into_nbi<T: Elem>(&self, target: SymSlice<'_, T>, source: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.ctx.get_between(target, source, pe, self.owner)
    }

    /// Starts a [`put_signal`](Ctx::put_signal). Does not block; `source` stays borrowed until the scope ends. The
    /// signal arrives without any further call.
    ///
    /// # Errors
    /// As [`Ctx::put_signal`].
    #[inline]
    #[track_caller]
    pub fn put_signal_nbi<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: &'env [T],
        signal: SigRef<'_>,
        pe: usize,
    ) -> Result<()> {
        self.ctx.put_signal(target, source, signal, pe)
    }
}

impl<S: Sharing> std::fmt::Debug for Scope<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("ctx", self.ctx).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::{ExternalMemory, Shared, World};

    const PAGE: usize = 4096;
    const BYTES: usize = 4 << 20;

    #[test]
    fn what_is_carried_arrives_whole_though_it_overlaps() {
        let start = vec![0_u8; BYTES + PAGE].leak().as_mut_ptr();
        let start = start.wrapping_add(start.align_offset(PAGE));
        // SAFETY: the bytes are there for ever, with a page more, and nobody else knows of them.
        let memory = unsafe { ExternalMemory::new(start, BYTES) }.unwrap();
        let world = World::builder().external_heap(memory).build().unwrap();
        let ctx = world.ctx::<Shared>();
        let block = world.alloc::<u32>(1 << 19).unwrap();
        let peer = &ctx.peers[0];
        let carry = |from: usize, to: usize, len: usize| {
            let values: Vec<u32> = (0..1 << 19).map(|i| i * 3 + len as u32).collect();
            block.sym().copy_from(&values).unwrap();
            let at = |index: usize| block.sym().at(index).unwrap().offset();
            // SAFETY: both ranges lie in the block.
            unsafe { ctx.link().carry(peer, 0, at(from), at(to), 4 * len) }.unwrap();
            let mut expected = values;
            expected.copy_within(from..from + len, to);
            assert!(block.sym().to_vec() == expected, "{len} elements from {from} to {to}");
        };
        const PART: usize = 1 << 16;
        for len in [0, 1, PART - 1, PART, PART + 1, 3 * PART + 7] {
            for (from, to) in
                [(0, 0), (0, 1), (1, 0), (0, PART), (PART, 0), (5, PART + 9), (PART + 9, 5), (0, 4 * PART)]
            {
                carry(from, to, len);
            }
        }
        // Between the user's heap and what lies before it.
        let space = world.team().workspace().cast::<u32>().unwrap();
        space.fill(9);
        // SAFETY: both objects have as many elements.
        unsafe { ctx.link().carry(peer, 0, space.offset(), block.sym().offset(), 4 * space.len()) }.unwrap();
        assert!(block.sym().slice(..space.len()).unwrap().to_vec() == vec![9; space.len()]);
        world.free(block).unwrap();
    }
}
