//! Typed handles to symmetric objects: [`SymSlice`], which is copied about, and [`SymBox`], which owns an allocation.
//!
//! A handle is a heap, an offset and a length, valid by construction: every one comes from an allocation or from a part
//! of another handle, so an operation need not look at the heap's bounds again. The heap's address tells whose it is.
//!
//! There is no safe way to a `&[T]`: any PE may write symmetric memory at any time. Values are copied in and out
//! instead.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::panic::Location;
use std::sync::atomic::Ordering;

use atomic::Atomic;

use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::heap::{Heap, MAX_ALIGN};

/// A symmetric object or a part of one: `len` elements of type `T` at the same offset of every PE's heap.
///
/// A handle names the object on *all* PEs; its own methods read and write this PE's copy, [`Ctx`](crate::Ctx) reaches
/// the others'. Besides the errors that they list, these have [`Forked`](ErrorKind::Forked), and in checked mode
/// [`UseAfterFree`](ErrorKind::UseAfterFree) and [`InUse`](ErrorKind::InUse). Where the heap's memory was given without
/// access by the processor, all of them are [`NotMapped`](ErrorKind::NotMapped).
pub struct SymSlice<'w, T> {
    heap: &'w Heap,
    at: usize,
    len: usize,
    elem: PhantomData<fn() -> T>,
}

impl<T> Clone for SymSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SymSlice<'_, T> {}

impl<'w, T: Elem> SymSlice<'w, T> {
    /// The object of `len` elements at offset `at`, which the caller has checked to lie in the heap, aligned for `T`.
    pub(crate) fn new(heap: &'w Heap, at: usize, len: usize) -> Self {
        const { assert!(align_of::<T>() <= MAX_ALIGN, "an element is aligned to a page at most") };
        debug_assert!(at.is_multiple_of(align_of::<T>()));
        debug_assert!(len.checked_mul(size_of::<T>()).is_some_and(|bytes| at + bytes <= heap.segment().len()));
        SymSlice { heap, at, len, elem: PhantomData }
    }

    /// Elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The byte offset in the symmetric heap: the same on every PE.
    #[inline(always)]
    pub fn offset(self) -> usize {
        self.at
    }

    /// Where it lies in the symmetric heap.
    #[inline(always)]
    pub(crate) fn bytes(self) -> Range<usize> {
        self.at..self.at + self.len * size_of::<T>()
    }

    #[inline(always)]
    pub(crate) fn heap(self) -> &'w Heap {
        self.heap
    }

    /// A part of the object.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if the range leaves the object.
    #[inline]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start <= end && end <= self.len {
            Ok(SymSlice { at: self.at + start * size_of::<T>(), len: end - start, ..self })
        } else {
            Err(self.out_of_range(start, end))
        }
    }

    /// One element of the object.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if there is no such element.
    #[inline]
    pub fn at(self, index: usize) -> Result<Self> {
        if index < self.len {
            Ok(SymSlice { at: self.at + index * size_of::<T>(), len: 1, ..self })
        } else {
            Err(self.out_of_range(index, index.saturating_add(1)))
        }
    }

    /// The same bytes as elements of another type; a rest that makes no whole element is left out.
    ///
    /// # Errors
    /// [`Misaligned`](ErrorKind::Misaligned) if the object does not begin at a multiple of the other type's alignment.
    pub fn cast<U: Elem>(self) -> Result<SymSlice<'w, U>> {
        if !self.at.is_multiple_of(align_of::<U>()) {
            return Err(ErrorKind::Misaligned { offset: self.at, align: align_of::<U>() }.into());
        }
        let len = (self.len * size_of::<T>()).checked_div(size_of::<U>()).unwrap_or(0);
        Ok(SymSlice::new(self.heap, self.at, len))
    }

    /// The address of this PE's copy, valid while the world lives; of memory that the program gave
    /// [without access by the processor](crate::ExternalMemory::without_cpu_access), it is an address of the device.
    /// Reading and writing through it is as unsafe as sharing memory is.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.heap.start.as_ptr().wrapping_add(self.at).cast()
    }

    /// Element `index` of this PE's copy. Whole, never torn, for elements of 1, 2, 4 or 8 bytes that are aligned to
    /// their size.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if there is no such element.
    #[inline]
    #[track_caller]
    pub fn read(self, index: usize) -> Result<T> {
        let element = self.at(index)?;
        element.pass(false)?;
        // SAFETY: the element lies in the object, just checked, and is aligned by construction.
        Ok(unsafe { load(element.as_ptr()) })
    }

    /// Writes element `index` of this PE's copy. Whole, never torn, for elements of 1, 2, 4 or 8 bytes that are aligned
    /// to their size.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if there is no such element.
    #[inline]
    #[track_caller]
    pub fn write(self, index: usize, value: T) -> Result<()> {
        let element = self.at(index)?;
        element.pass(true)?;
        // SAFETY: the element lies in the object, just checked, and is aligned by construction.
        unsafe { store(element.as_ptr(), value) };
        Ok(())
    }

    /// Copies this PE's copy out, into a buffer of the same length.
    ///
    /// # Errors
    /// [`Length`](ErrorKind::Length) if the lengths differ.
    #[track_caller]
    pub fn copy_to(self, buffer: &mut [T]) -> Result<()> {
        self.same_length("copy_to", buffer.len())?;
        self.pass(false)?;
        // SAFETY: both sides have this length; a private buffer does not overlap symmetric memory, to which no `&mut`
        // exists.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(self.as_ptr(), self.len) };
        Ok(())
    }

    /// Copies a buffer of the same length into this PE's copy.
    ///
    /// # Errors
    /// [`Length`](ErrorKind::Length) if the lengths differ.
    #[track_caller]
    pub fn copy_from(self, buffer: &[T]) -> Result<()> {
        self.same_length("copy_from", buffer.len())?;
        self.pass(true)?;
        // SAFETY: both sides have this length; a private buffer does not overlap symmetric memory, to which no `&`
        // exists.
        unsafe { self.as_ptr().copy_from_nonoverlapping(buffer.as_ptr(), self.len) };
        Ok(())
    }

    /// Writes `value` to every element of this PE's copy. Where that is an error (in a forked child; where the processor
    /// has no access; in checked mode, if the memory is freed or in use), it leaves them as they are and says so on standard error.
    #[track_caller]
    pub fn fill(self, value: T) {
        if !self.pass_or_say(true) {
            return;
        }
        for i in 0..self.len {
            // SAFETY: `i` is below the length; the element is aligned by construction.
            unsafe { store(self.as_ptr().add(i), value) };
        }
    }

    /// This PE's copy as a vector. Where that is an error (in a forked child; in checked mode, if the memory is freed),
    /// it holds what lies there now, or zeros where the processor has no access; and standard error says so.
    #[track_caller]
    pub fn to_vec(self) -> Vec<T> {
        let passed = self.pass_or_say(false);
        let mut values = vec![T::zeroed(); self.len];
        if !passed && self.heap.require_access(&self.bytes()).is_err() {
            return values;
        }
        // SAFETY: the vector has this length and is private.
        unsafe { values.as_mut_ptr().copy_from_nonoverlapping(self.as_ptr(), self.len) };
        values
    }

    /// Fails unless this PE may read, or write, all of its copy.
    #[inline(always)]
    #[track_caller]
    fn pass(self, writes: bool) -> Result<()> {
        if self.heap.gate.open() != 0 { Ok(()) } else { self.heap.look(&self.bytes(), writes, Location::caller()) }
    }

    /// For those who cannot return an error: says it on standard error.
    #[inline(always)]
    #[track_caller]
    fn pass_or_say(self, writes: bool) -> bool {
        self.pass(writes).inspect_err(|error| eprintln!("shmem: {error}")).is_ok()
    }

    fn same_length(self, what: &'static str, given: usize) -> Result<()> {
        if given == self.len { Ok(()) } else { Err(ErrorKind::Length { what, given, needed: self.len }.into()) }
    }

    #[cold]
    pub(crate) fn out_of_range(self, start: usize, end: usize) -> Error {
        ErrorKind::OutOfRange { start, end, len: self.len }.into()
    }
}

impl<T: Elem + fmt::Debug> fmt::Debug for SymSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymSlice").field("offset", &self.at).field("len", &self.len).finish()
    }
}

/// An allocation in the symmetric heap, owned by all PEs together. [`World::free`](crate::World::free) gives it back;
/// dropping it does not, since that would have to communicate: the memory then stays taken until the world ends.
///
/// Use after free does not compile:
/// ```compile_fail
/// shmem::local(1, |world| -> shmem::Result<()> {
///     let block = world.alloc::<u64>(1)?;
///     let handle = block.sym();
///     world.free(block)?;
///     handle.read(0).map(|_| ())
/// });
/// ```
#[must_use = "the allocation stays taken until World::free gets it"]
pub struct SymBox<'w, T> {
    all: SymSlice<'w, T>,
}

impl<'w, T: Elem> SymBox<'w, T> {
    pub(crate) fn new(all: SymSlice<'w, T>) -> Self {
        SymBox { all }
    }

    /// A handle to the whole object.
    #[inline(always)]
    pub fn sym(&self) -> SymSlice<'_, T> {
        self.all
    }

    /// How many bytes the block has.
    pub(crate) fn size(&self) -> usize {
        self.all.len * size_of::<T>()
    }

    /// The block's offset, if it lies in `heap`.
    pub(crate) fn offset_in(&self, heap: &Heap) -> Option<usize> {
        self.all.heap.is_same(heap).then_some(self.all.at)
    }
}

impl<T: Elem + fmt::Debug> fmt::Debug for SymBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

/// Reads one element of shared memory, whole if the machine can.
///
/// # Safety
/// `element` is valid for reads and aligned for `T`, in memory that is only accessed atomically or by copies.
#[inline(always)]
pub(crate) unsafe fn load<T: Elem>(element: *const T) -> T {
    if Atomic::<T>::is_lock_free() {
        // SAFETY: an `Atomic` is laid out as its value, and the caller vouches for the address.
        unsafe { &*element.cast::<Atomic<T>>() }.load(Ordering::Acquire)
    } else {
        // SAFETY: the caller vouches for the address; any bit pattern is valid.
        unsafe { element.read() }
    }
}

/// Writes one element of shared memory, whole if the machine can.
///
/// # Safety
/// `element` is valid for writes and aligned for `T`, in memory that is only accessed atomically or by copies.
#[inline(always)]
pub(crate) unsafe fn store<T: Elem>(element: *mut T, value: T) {
    if Atomic::<T>::is_lock_free() {
        // SAFETY: an `Atomic` is laid out as its value, and the caller vouches for the address.
        unsafe { &*element.cast::<Atomic<T>>() }.store(value, Ordering::Release);
    } else {
        // SAFETY: the caller vouches for the address.
        unsafe { element.write(value) }
    }
}
