//! Fold: combines regions of some PEs' memory element by element and writes the result to regions of some PEs' memory; and copy, its
//! case without arithmetic. The data step of collectives.
//!
//! On mapped peers it works on their memory itself, in one pass: a chunk of all sources is read and combined in registers and written to every
//! target. Nothing is carried over from one chunk to the next, so a target may be one of the sources: its chunk has been read when it is
//! written. A region that overlaps another in part would break that, and is refused. Where the regions lie does not matter to the loops, which the
//! compiler vectorises for what the processor turns out to have.
//!
//! A long result goes past the cache, unless it goes where a source was: that is in the cache already (`benches/fold.rs`: 16 MiB to two targets
//! take half as long past the cache, in place three times as long).
//!
//! Regions of other hosts are fetched and sent a part at a time around the same loops. Knows nothing of what a kernel computes.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use multiversion::multiversion;

use crate::ctx::{Access, Ctx, Sharing};
use crate::elem::Elem;
use crate::error::{ErrorKind, Result};
use crate::heap::SymSlice;
use crate::transport::loopback;

/// How elements of type `S` are combined to one of type `D`: each is widened, they are combined from left to right, and the result is narrowed. So
/// small floats may be summed in a larger type and rounded once.
///
/// The methods run in the innermost loop: mark them `#[inline(always)]`, and keep them free of branches, and they are vectorised.
///
/// ```
/// # use shmem::{Kernel, Shared};
/// struct Longest;
///
/// impl Kernel<u32> for Longest {
///     type Acc = u32;
///     fn widen(&self, element: u32) -> u32 {
///         element
///     }
///     fn combine(&self, left: u32, right: u32) -> u32 {
///         left.max(right)
///     }
///     fn narrow(&self, acc: u32) -> u32 {
///         acc
///     }
/// }
///
/// # shmem::local(2, |world| -> shmem::Result<()> {
/// let (ctx, mine, longest) = (world.ctx::<Shared>(), world.alloc::<u32>(2)?, world.alloc::<u32>(2)?);
/// mine.sym().copy_from(&[world.me() as u32, 7])?;
/// world.barrier_all()?;
/// ctx.fold(&[(mine.sym(), 0), (mine.sym(), 1)], &[(longest.sym(), world.me())], &Longest)?;
/// assert_eq!(longest.sym().to_vec(), [1, 7]);
/// # world.free(mine)?;
/// # world.free(longest)
/// # })?;
/// # Ok::<(), shmem::Error>(())
/// ```
pub trait Kernel<S: Elem, D: Elem = S>: Sync {
    /// What is combined.
    type Acc: Copy;
    /// An element of a source.
    fn widen(&self, element: S) -> Self::Acc;
    /// An element of source number `source`, in the order in which they are given: for kernels that treat them
    /// differently, by a weight for each, say.
    #[inline(always)]
    fn widen_of(&self, _source: usize, element: S) -> Self::Acc {
        self.widen(element)
    }
    /// Two in one; `left` is what came from the earlier sources.
    fn combine(&self, left: Self::Acc, right: Self::Acc) -> Self::Acc;
    /// An element of the targets.
    fn narrow(&self, acc: Self::Acc) -> D;
}

/// Bytes of a part that is fetched from another host or sent there at a time.
const PART: usize = 256 << 10;
/// Bytes of a chunk that is held in registers.
const CHUNK: usize = 256;
/// Bytes of partial results that are held in the first-level cache, where there are many sources.
const PARTIAL: usize = 4 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Regions whose addresses have room on the stack.
const FEW: usize = 16;

/// A symmetric object on a PE.
type Region<'w, T> = (SymSlice<'w, T>, usize);

impl<X: Sharing> Ctx<'_, X> {
    /// Combines the sources (symmetric objects on given PEs) element by element in their order, and writes the result to every target. All
    /// have the same length. A target may be one of the sources, or the same as another target; otherwise none may overlap. Blocks until the
    /// targets are written, as [`put`](Self::put) does; what is read and written is ordered as that of `get` and `put` is.
    ///
    /// One source alone goes through the kernel, too: for moving elements as they are, see [`copy`](Self::copy).
    ///
    /// # Errors
    /// With nothing written: [`NoSuchPe`](ErrorKind::NoSuchPe), [`OtherWorld`](ErrorKind::OtherWorld), [`Length`](ErrorKind::Length) if lengths
    /// differ or there is no source, [`Overlap`](ErrorKind::Overlap).
    #[track_caller]
    pub fn fold<S: Elem, D: Elem, K: Kernel<S, D>>(
        &self,
        from: &[(SymSlice<'_, S>, usize)],
        into: &[(SymSlice<'_, D>, usize)],
        kernel: &K,
    ) -> Result<()> {
        let whole = from.first().map_or(0, |(source, _)| source.len() * size_of::<D>());
        self.fold_piece(from, into, kernel, whole)
    }

    /// [`fold`](Self::fold) of a piece of something larger, which goes past the cache if `whole` is `SHMEM_STREAM_FROM` or more: where many
    /// pieces are folded one behind the other, a short one would stay in the cache for nothing. `fold` takes the bytes of its result for the
    /// whole; collectives give all that a PE reads and writes.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    #[track_caller]
    pub fn fold_piece<S: Elem, D: Elem, K: Kernel<S, D>>(
        &self,
        from: &[(SymSlice<'_, S>, usize)],
        into: &[(SymSlice<'_, D>, usize)],
        kernel: &K,
        whole: usize,
    ) -> Result<()> {
        let len = self.check(from, into)?;
        let (mut sources, mut targets) = ([ptr::null_mut(); FEW], [ptr::null_mut(); FEW]);
        match (self.all_mapped(from, &mut sources), self.all_mapped(into, &mut targets)) {
            (Some(sources), Some(targets)) => {
                let stream = self.streams(whole, sources, targets);
                // SAFETY: check() found all regions to have `len` elements, the same or apart, and a source; handles lie in their segments, aligned.
                unsafe { fold_mapped(sources, targets, len, kernel, stream) };
                Ok(())
            }
            _ => self.fold_in_parts(from, into, len, kernel),
        }
    }

    /// [`fold`](Self::fold) into memory of the program's own: as [`get`](Self::get) is to `get_into`. Blocks until the target is
    /// written.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    #[track_caller]
    pub fn fold_to<S: Elem, D: Elem, K: Kernel<S, D>>(
        &self,
        target: &mut [D],
        from: &[(SymSlice<'_, S>, usize)],
        kernel: &K,
    ) -> Result<()> {
        let len = self.check::<S, D>(from, &[])?;
        check_length("target of a fold", target.len(), len)?;
        let mut sources = [ptr::null_mut(); FEW];
        if let Some(sources) = self.all_mapped(from, &mut sources) {
            let target = target.as_mut_ptr();
            let stream = self.streams(len * size_of::<D>(), sources, &[target]);
            // SAFETY: check() found all regions to have `len` elements, as the target has, which is private and so apart from them.
            unsafe { fold_mapped(sources, &[target], len, kernel, stream) };
            return Ok(());
        }
        let mut fetched = vec![Vec::new(); from.len()];
        for part in parts::<(S, D)>(len) {
            let sources = self.sources(&mut fetched, from, &part)?;
            let target = target[part.clone()].as_mut_ptr();
            // SAFETY: as above; what was fetched is private, too, and has the part's length.
            unsafe { fold_mapped(&sources, &[target], part.len(), kernel, false) };
        }
        Ok(())
    }

    /// Copies `from` (a symmetric object on a PE) to every target. All have the same length. A target may be the source, or the same as another
    /// target; otherwise none may overlap. Blocks until the targets are written, as [`put`](Self::put) does.
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    #[track_caller]
    pub fn copy<T: Elem>(&self, from: (SymSlice<'_, T>, usize), into: &[(SymSlice<'_, T>, usize)]) -> Result<()> {
        self.copy_piece(from, into, from.0.len() * size_of::<T>())
    }

    /// [`copy`](Self::copy) of a piece of something larger, which goes past the cache if `whole` is `SHMEM_STREAM_FROM` or more, as in
    /// [`fold_piece`](Self::fold_piece).
    ///
    /// # Errors
    /// As [`fold`](Self::fold).
    #[track_caller]
    pub fn copy_piece<T: Elem>(
        &self,
        from: (SymSlice<'_, T>, usize),
        into: &[(SymSlice<'_, T>, usize)],
        whole: usize,
    ) -> Result<()> {
        let len = self.check(&[from], into)?;
        let bytes = len * size_of::<T>();
        let stream_from = if whole < self.link().stream_from() { usize::MAX } else { 0 };
        let source = self.mapped(&from);
        let same = |&(target, pe): &Region<'_, T>| pe == from.1 && target.offset() == from.0.offset();
        // To one target it goes at once.
        if let [target @ (object, pe)] = into {
            match (source, self.mapped(target)) {
                _ if same(target) => return Ok(()),
                (Some(source), Some(target)) => {
                    // SAFETY: both regions hold the bytes and, not being the same, are apart, as check() saw.
                    unsafe { loopback::copy(target.cast(), source.cast(), bytes, stream_from) };
                    return Ok(());
                }
                (Some(source), None) => {
                    let peer = &self.peers[*pe];
                    // SAFETY: as above.
                    return unsafe { self.link().put(peer, self.lane, object.offset(), source.cast(), bytes, false) };
                }
                (None, Some(target)) => {
                    let origin = &self.peers[from.1];
                    // SAFETY: as above.
                    return unsafe { self.link().get(origin, self.lane, from.0.offset(), target.cast(), bytes, 0) };
                }
                (None, None) => {}
            }
        }
        let mut fetched = Vec::new();
        for part in parts::<T>(len) {
            let source = match source {
                // SAFETY: the part lies in the source.
                Some(source) => unsafe { source.add(part.start) },
                None => self.fetch(&mut fetched, &from, &part)?,
            };
            let bytes = part.len() * size_of::<T>();
            for target in into.iter().filter(|target| !same(target)) {
                match self.mapped(target) {
                    // SAFETY: as above; what was fetched is private and has the part's length.
                    Some(target) => unsafe {
                        loopback::copy(target.add(part.start).cast(), source.cast(), bytes, stream_from);
                    },
                    None => {
                        let at = target.0.offset() + part.start * size_of::<T>();
                        // SAFETY: as above.
                        unsafe { self.link().put(&self.peers[target.1], self.lane, at, source.cast(), bytes, false) }?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The length of all regions, if they are as they must be.
    #[inline]
    #[track_caller]
    fn check<S: Elem, D: Elem>(&self, from: &[Region<'_, S>], into: &[Region<'_, D>]) -> Result<usize> {
        let Some((first, _)) = from.first() else {
            return Err(ErrorKind::Length { what: "sources of a fold", given: 0, needed: 1 }.into());
        };
        let len = first.len();
        for &(source, pe) in from {
            self.peer(source, source.len(), Access::Read, pe)?;
            check_length("source of a fold", source.len(), len)?;
        }
        for (i, &(target, pe)) in into.iter().enumerate() {
            self.peer(target, target.len(), Access::Write, pe)?;
            check_length("target of a fold", target.len(), len)?;
            let of_source = from.iter().find(|source| source.1 == pe && overlap_in_part(source.0, target));
            let of_target = into[..i].iter().find(|other| other.1 == pe && overlap_in_part(other.0, target));
            let other = of_source.map(|source| bytes(source.0)).or(of_target.map(|other| bytes(other.0)));
            if let Some(source_bytes) = other {
                return Err(ErrorKind::Overlap { pe, source_bytes, target_bytes: bytes(target) }.into());
            }
        }
        Ok(len)
    }

    /// Where a region whose PE was checked lies in this process, if it does.
    #[inline(always)]
    fn mapped<T: Elem>(&self, &(object, pe): &Region<'_, T>) -> Option<*mut T> {
        self.link().address(&self.peers[pe], object.offset()).map(<*mut u8>::cast)
    }

    /// Where all of the regions lie in this process, if they do and are few.
    #[inline(always)]
    fn all_mapped<'a, T: Elem>(&self, regions: &[Region<'_, T>], room: &'a mut [*mut T; FEW]) -> Option<&'a [*mut T]> {
        let room = room.get_mut(..regions.len())?;
        for (address, region) in room.iter_mut().zip(regions) {
            *address = self.mapped(region)?;
        }
        Some(room)
    }

    /// Whether the result of a fold goes past the cache: where it is long, and the targets are not there already, having been sources.
    #[inline(always)]
    fn streams<S, D>(&self, whole: usize, sources: &[*mut S], targets: &[*mut D]) -> bool {
        whole >= self.link().stream_from()
            && !targets.iter().any(|target| sources.iter().any(|source| target.addr() == source.addr()))
    }

    /// Fetches a part of a region, into `buffer`.
    fn fetch<T: Elem>(&self, buffer: &mut Vec<T>, from: &Region<'_, T>, part: &Range<usize>) -> Result<*mut T> {
        buffer.resize(part.len(), T::zeroed());
        self.get(buffer, from.0.slice(part.clone())?, from.1)?;
        Ok(buffer.as_mut_ptr())
    }

    /// Where a part of each source can be read, those that are not mapped here being fetched.
    fn sources<S: Elem>(
        &self,
        fetched: &mut [Vec<S>],
        from: &[Region<'_, S>],
        part: &Range<usize>,
    ) -> Result<Vec<*mut S>> {
        let source = |(region, buffer): (&Region<'_, S>, &mut Vec<S>)| match self.mapped(region) {
            // SAFETY: the part lies in the region.
            Some(source) => Ok(unsafe { source.add(part.start) }),
            None => self.fetch(buffer, region, part),
        };
        from.iter().zip(fetched).map(source).collect()
    }

    /// A fold of which some regions are not mapped here, or of very many.
    #[cold]
    fn fold_in_parts<S: Elem, D: Elem, K: Kernel<S, D>>(
        &self,
        from: &[Region<'_, S>],
        into: &[Region<'_, D>],
        len: usize,
        kernel: &K,
    ) -> Result<()> {
        let mut fetched = vec![Vec::new(); from.len()];
        let mut result = Vec::new();
        for part in parts::<(S, D)>(len) {
            let sources = self.sources(&mut fetched, from, &part)?;
            let mapped = into.iter().filter_map(|region| self.mapped(region));
            // SAFETY: the part lies in the region.
            let mut targets: Vec<*mut D> = mapped.map(|target| unsafe { target.add(part.start) }).collect();
            if targets.len() < into.len() {
                result.resize(part.len(), D::zeroed());
                targets.push(result.as_mut_ptr());
            }
            // SAFETY: as in fold(); what was fetched, and the result, are private and have the part's length.
            unsafe { fold_mapped(&sources, &targets, part.len(), kernel, false) };
            for (target, pe) in into.iter().filter(|region| self.mapped(region).is_none()) {
                self.put(target.slice(part.clone())?, &result, *pe)?;
            }
        }
        Ok(())
    }
}

fn check_length(what: &'static str, given: usize, needed: usize) -> Result<()> {
    if given == needed { Ok(()) } else { Err(ErrorKind::Length { what, given, needed }.into()) }
}

/// Where an object lies in the symmetric heap.
#[inline(always)]
fn bytes<T: Elem>(object: SymSlice<'_, T>) -> Range<usize> {
    object.offset()..object.offset() + object.len() * size_of::<T>()
}

/// Whether two objects share some of their bytes but not all.
#[inline(always)]
fn overlap_in_part<S: Elem, D: Elem>(one: SymSlice<'_, S>, other: SymSlice<'_, D>) -> bool {
    let (one, other) = (bytes(one), bytes(other));
    one != other && one.start < other.end && other.start < one.end
}

/// `len` elements in parts.
fn parts<T>(len: usize) -> impl Iterator<Item = Range<usize>> {
    let step = (PART / size_of::<T>().max(1)).max(1);
    (0..len).step_by(step).map(move |start| start..(start + step).min(len))
}

/// The fold of `len` elements in this process's memory, compiled for what the processor has.
///
/// # Safety
/// There is a source. Sources are valid for reads of `len` elements, targets for writes, all aligned; a target is the same as another region, or
/// overlaps none.
#[multiversion(targets(
    "x86_64+avx+avx2+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+bmi1+bmi2+f16c+fma+lzcnt+movbe+popcnt",
    "x86_64+avx+avx2+bmi1+bmi2+f16c+fma+lzcnt+movbe+popcnt"
))]
unsafe fn fold_mapped<S: Elem, D: Elem, K: Kernel<S, D>>(
    sources: &[*mut S],
    targets: &[*mut D],
    len: usize,
    kernel: &K,
    stream: bool,
) {
    // SAFETY: the caller vouches for `len` elements, and nobody below asks for another.
    let of = |number: usize, source: *mut S, i: usize| kernel.widen_of(number, unsafe { source.add(i).read() });
    // SAFETY: the caller vouches for all of it.
    unsafe {
        match *sources {
            [] => {}
            [a] => each(targets, 0..len, stream, |i| kernel.narrow(of(0, a, i))),
            [a, b] => each(targets, 0..len, stream, |i| kernel.narrow(kernel.combine(of(0, a, i), of(1, b, i)))),
            [a, b, c] => each(targets, 0..len, stream, |i| {
                kernel.narrow(kernel.combine(kernel.combine(of(0, a, i), of(1, b, i)), of(2, c, i)))
            }),
            [a, b, c, ref middle @ .., last] => {
                let mut block = Block::<K::Acc, PARTIAL>::new();
                for start in (0..len).step_by(Block::<K::Acc, PARTIAL>::LANES) {
                    let lanes = Block::<K::Acc, PARTIAL>::LANES.min(len - start);
                    let block = &mut block.lanes()[..lanes];
                    for (lane, acc) in block.iter_mut().enumerate() {
                        let i = start + lane;
                        acc.write(kernel.combine(kernel.combine(of(0, a, i), of(1, b, i)), of(2, c, i)));
                    }
                    for (number, &source) in (3..).zip(middle) {
                        for (lane, acc) in block.iter_mut().enumerate() {
                            // Every lane was written above.
                            acc.write(kernel.combine(acc.assume_init(), of(number, source, start + lane)));
                        }
                    }
                    let block = block.as_ptr();
                    let acc = |i: usize| block.add(i - start).read().assume_init();
                    each(targets, start..start + lanes, stream, |i| {
                        kernel.narrow(kernel.combine(acc(i), of(sources.len() - 1, last, i)))
                    });
                }
            }
        }
    }
    if stream {
        loopback::store_fence();
    }
}

/// Writes `value(i)` to element `i` of every target, for all of a range. The values of a chunk are all asked for before any of these is written, and
/// are then in registers: what comes of them does not depend on whether targets are what `value` reads, so the loops vectorise. If it streams, a
/// store fence must follow.
///
/// There are two loops, one for whole chunks, of a length that the compiler knows, and one for what is shorter; more of them would be compiled for every
/// kernel, type and vector extension.
///
/// # Safety
/// Targets are valid for writes up to the range's end, aligned, and the same or apart.
#[inline(always)]
unsafe fn each<D: Elem>(targets: &[*mut D], range: Range<usize>, stream: bool, value: impl Fn(usize) -> D) {
    // Only whole lines go past the cache: targets must come to the beginning of one together.
    let head = targets.first().map_or(0, |target| target.wrapping_add(range.start).align_offset(LINE));
    let lines = range.start.saturating_add(head).min(range.end);
    let stream = stream
        && CHUNK.is_multiple_of(size_of::<D>())
        && targets.iter().all(|target| target.wrapping_add(lines).addr().is_multiple_of(LINE));
    let mut start = range.start;
    let mut end = if stream && lines > start { lines } else { range.end };
    while start < range.end {
        // A block of its own for each of the loops: that of whole chunks becomes registers, which one with a varying end cannot.
        let (mut whole, mut part) = (Block::<D, CHUNK>::new(), Block::<D, CHUNK>::new());
        let lanes = Block::<D, CHUNK>::LANES;
        // SAFETY: the chunk ends within the range, for which the caller vouches; the block is private.
        unsafe {
            if start + lanes <= end {
                let block = whole.lanes();
                for (lane, element) in block.iter_mut().enumerate() {
                    element.write(value(start + lane));
                }
                for target in targets {
                    let (target, block) = (target.add(start), block.as_ptr().cast::<D>());
                    if stream {
                        write_past_cache::<CHUNK>(target.cast(), block.cast());
                    } else {
                        target.copy_from_nonoverlapping(block, lanes);
                    }
                }
                start += lanes;
            } else {
                let block = &mut part.lanes()[..end - start];
                for (lane, element) in block.iter_mut().enumerate() {
                    element.write(value(start + lane));
                }
                for target in targets {
                    target.add(start).copy_from_nonoverlapping(block.as_ptr().cast::<D>(), block.len());
                }
                (start, end) = (end, range.end);
            }
        }
    }
}

/// Writes whole lines past the cache, where the processor can. Weakly ordered: a store fence must follow.
///
/// # Safety
/// Both are valid for `BYTES`, a multiple of a line, and apart; the target begins at a line.
#[inline(always)]
unsafe fn write_past_cache<const BYTES: usize>(target: *mut u8, source: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..BYTES).step_by(16) {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        // SAFETY: the piece lies within the bytes that the caller vouches for; every x86-64 processor has the instructions.
        unsafe { _mm_stream_si128(target.add(at).cast(), _mm_loadu_si128(source.add(at).cast())) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller vouches for both sides.
    unsafe {
        target.copy_from_nonoverlapping(source, BYTES);
    }
}

/// Private memory for elements of `BYTES` together, and for one at least.
union Block<T: Copy, const BYTES: usize> {
    _line: Line,
    _bytes: [MaybeUninit<u8>; BYTES],
    _one: MaybeUninit<T>,
    none: (),
}

/// What begins at a line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line;

impl<T: Copy, const BYTES: usize> Block<T, BYTES> {
    /// Elements of a block.
    const LANES: usize = match BYTES.checked_div(size_of::<T>()) {
        None => BYTES,
        Some(0) => 1,
        Some(lanes) => lanes,
    };

    #[inline(always)]
    fn new() -> Self {
        Block { none: () }
    }

    #[inline(always)]
    fn lanes(&mut self) -> &mut [MaybeUninit<T>] {
        // SAFETY: the union has room for as many elements and is aligned for them; they may be uninitialised.
        unsafe { std::slice::from_raw_parts_mut(ptr::from_mut(self).cast(), Self::LANES) }
    }
}
