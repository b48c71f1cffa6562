//! The memory of one PE, mapped into every PE of its host.
//!
//! A memfd: it has no name, so nothing can outlive its last process; it does not depend on the size or presence of
//! /dev/shm; its pages are given when first touched. It is sealed against shrinking, so no peer can turn an access into
//! a SIGBUS.
//!
//! The user's heap may come from elsewhere (see `memory`): the memfd then has the part before it only. What can be mapped
//! is mapped right behind that part, so that every address is base + offset all the same; memory of the program's own
//! stays where it is, and has a base of its own, from which its offsets lead there.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::heap::ExternalMemory;

/// The widest alignment that a segment makes sure of, where it chooses its address.
const WIDEST_ALIGN: usize = 64 << 20;

/// A mapped segment.
pub(crate) struct Segment {
    base: NonNull<u8>,
    /// Bytes of all of it.
    len: usize,
    /// Bytes that are mapped at `base`: all, or those before the user's heap.
    mapped: usize,
    /// The user's heap, where the program has given it, and from where offsets lead there.
    external: Option<(NonNull<u8>, Arc<ExternalMemory>)>,
    _span: Span,
}

// SAFETY: the memory is shared between processes anyway; it is only accessed atomically or by copies.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Where a segment is mapped; good for as long as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start(NonNull<u8>);

// SAFETY: the memory behind it is shared between processes anyway; it is only accessed atomically or by copies.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

impl Start {
    /// Its first byte.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

/// A part of a descriptor's memory that is mapped as the user's heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'fd> {
    pub(crate) descriptor: BorrowedFd<'fd>,
    /// Where it begins there.
    pub(crate) offset: u64,
    /// The size of which its pages are multiples: it is mapped at a multiple, and up to one.
    pub(crate) grain: usize,
    /// Whether all of it must be had from the host when it is mapped.
    pub(crate) reserved: bool,
}

/// A part of a segment as a network card registers it: the offsets that it holds; where its first byte is, for the
/// processor or for the device that owns it; and by which descriptor the card reaches memory of a device, where the
/// program has given one.
pub(crate) type Region<'s> = (Range<usize>, NonNull<u8>, Option<BorrowedFd<'s>>);

impl Segment {
    /// Makes a segment of `len` bytes, all zero, and the descriptor by which others can map it, with the `extra` bytes
    /// behind it.
    pub(crate) fn create(len: usize, extra: usize) -> Result<(Segment, OwnedFd)> {
        let fd = memfd(len + extra, MemfdFlags::empty())?;
        // Where there are no addresses to choose from, an alignment beyond the page cannot be had.
        let segment = match Span::aligned(len, fd.as_fd(), WIDEST_ALIGN) {
            Ok(span) => Segment { base: span.start, len, mapped: len, external: None, _span: span },
            Err(_) => Self::attach_part(&fd, 0, len)?,
        };
        Ok((segment, fd))
    }

    /// Maps the segment of `len` bytes behind `fd`, which has `extra` bytes more and may be closed afterwards: the mapping keeps the memory.
    pub(crate) fn attach(fd: &OwnedFd, len: usize, extra: usize) -> Result<Segment> {
        check_size(fd, len + extra)?;
        Self::attach_part(fd, 0, len)
    }

    /// Maps `len` bytes from `offset`, a multiple of the page size, of what is behind `fd`, which is at least so long.
    pub(crate) fn attach_part(fd: &OwnedFd, offset: usize, len: usize) -> Result<Segment> {
        let span = Span::of(len, fd.as_fd(), offset as u64).map_err(|source| cannot_map(len, source))?;
        Ok(Segment { base: span.start, len, mapped: len, external: None, _span: span })
    }

    /// Maps the first `front` bytes of `fd`, which has `extra` bytes more, and `part` right behind them, as a segment of
    /// `len` bytes.
    pub(crate) fn join(fd: &OwnedFd, front: usize, extra: usize, len: usize, part: Part<'_>) -> Result<Segment> {
        check_size(fd, front + extra)?;
        let behind = (len - front).next_multiple_of(part.grain);
        let room = (front + behind).saturating_add(part.grain);
        let span = Span::reserve(room).map_err(|source| cannot_map(room, source))?;
        let first = (span.start.addr().get() + front).next_multiple_of(part.grain);
        let at = first - front - span.start.addr().get();
        let shared = MapFlags::SHARED | MapFlags::NORESERVE;
        span.map(at, front, fd.as_fd(), 0, shared).map_err(|source| cannot_map(front, source))?;
        let flags = if part.reserved { MapFlags::SHARED } else { shared };
        span.map(at + front, len - front, part.descriptor, part.offset, flags)
            .map_err(|source| cannot_map(len - front, source))?;
        Ok(Segment { base: span.at(at), len, mapped: len, external: None, _span: span })
    }

    /// The segment whose first bytes are `front`, and whose user's heap is the program's memory: where none is given, it
    /// is out of this process's reach.
    pub(crate) fn in_pieces(front: Segment, len: usize, external: Option<Arc<ExternalMemory>>) -> Result<Segment> {
        let base = |external: Arc<ExternalMemory>| {
            let (start, bytes) = (external.start().as_ptr(), external.bytes());
            let base = NonNull::new(start.wrapping_sub(front.len)).map(|base| (base, external));
            let why = "its address is that of an offset".into();
            base.ok_or(ErrorKind::BadMemory { start: start.addr(), bytes, why })
        };
        Ok(Segment { len, external: external.map(base).transpose()?, ..front })
    }

    /// Asks for huge pages behind the first `front` bytes; whether the kernel has heard it.
    pub(crate) fn advise_huge(&self, front: usize) -> bool {
        let at = self.base.as_ptr().wrapping_add(front);
        // SAFETY: the range is mapped here, and the advice changes nothing of what it holds.
        unsafe { rustix::mm::madvise(at.cast(), self.mapped - front, Advice::LinuxHugepage) }.is_ok()
    }

    /// Whether there is memory behind the byte at `offset`, which is mapped: a device may let more be mapped than it has. It
    /// is the system that reads it, so the answer is no signal.
    pub(crate) fn answers(&self, offset: usize) -> bool {
        assert!(offset < self.mapped);
        // SAFETY: the byte is mapped, just checked, and any pattern is valid; nothing but the system reads it.
        let byte = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), 1) };
        rustix::pipe::pipe().and_then(|(_reader, writer)| rustix::io::write(&writer, byte)).is_ok()
    }

    /// Whether another mapping of `part`, which is the user's heap from `front` on, shows what is written to this one.
    /// To be asked before anybody else uses the memory.
    pub(crate) fn is_seen_by_others(&self, front: usize, part: Part<'_>) -> Result<bool> {
        let bytes = part.grain.min((self.len - front).next_multiple_of(part.grain));
        let span = Span::reserve(2 * bytes).map_err(|source| cannot_map(bytes, source))?;
        let at = span.start.addr().get().next_multiple_of(part.grain) - span.start.addr().get();
        span.map(at, bytes, part.descriptor, part.offset, MapFlags::SHARED | MapFlags::NORESERVE)
            .map_err(|source| cannot_map(bytes, source))?;
        let here = self.word(front);
        // SAFETY: the span is mapped, and ends after this function; the word begins a page.
        let there = unsafe { AtomicU64::from_ptr(span.at(at).as_ptr().cast()) };
        let was = crate::sync::atom::accumulate(here, 1);
        let seen = crate::sync::atom::observe(there) == was.wrapping_add(1);
        crate::sync::atom::publish(here, was);
        Ok(seen)
    }

    /// Its first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where it is mapped, and with it whatever lies before the user's heap.
    pub(crate) fn start(&self) -> Start {
        Start(self.base)
    }

    /// From where offsets of the user's heap lead there; for memory that the processor may not access, in the addresses of
    /// its device.
    pub(crate) fn user_start(&self) -> Start {
        Start(self.external.as_ref().map_or(self.base, |(base, _)| *base))
    }

    /// Of how many bytes the address from which offsets of the user's heap lead there is a multiple, up to the widest
    /// alignment: so widely can an allocation be aligned.
    pub(crate) fn alignment(&self) -> usize {
        1 << self.user_start().as_ptr().addr().trailing_zeros().min(WIDEST_ALIGN.trailing_zeros())
    }

    /// Whether all of it is mapped at its base.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        self.mapped == self.len
    }

    /// From where the offset `at` leads to memory that the processor may access.
    pub(crate) fn piece(&self, at: usize) -> Option<NonNull<u8>> {
        if at < self.mapped || self.is_whole() {
            return Some(self.base);
        }
        self.external.as_ref().filter(|(_, external)| external.cpu_access()).map(|(base, _)| *base)
    }

    /// What a network card is to reach of it.
    pub(crate) fn regions(&self) -> Vec<Region<'_>> {
        let mut regions = vec![(0..self.mapped, self.base, None)];
        if let Some((_, external)) = &self.external {
            let descriptor = external.by_descriptor().filter(|_| !external.cpu_access());
            regions.push((self.mapped..self.len, external.start(), descriptor));
        }
        regions
    }

    /// The offset of memory of this process that lies in the segment, if all of it does.
    pub(crate) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<usize> {
        let within = |offsets: Range<usize>, first: NonNull<u8>| {
            let at = start.addr().checked_sub(first.addr().get())?;
            (bytes <= offsets.len() && at <= offsets.len() - bytes).then_some(offsets.start + at)
        };
        within(0..self.mapped, self.base).or_else(|| {
            let (_, external) = self.external.as_ref()?;
            within(self.mapped..self.len, external.start())
        })
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the byte at `offset`, which the processor may access.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        let Some(base) = self.piece(offset) else { panic!("offset {offset} is not mapped") };
        base.as_ptr().wrapping_add(offset)
    }

    /// The 64-bit word at `offset`.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len());
        // Looked at in every quiet and barrier, so what lies in front is found without a call.
        let address = if offset < self.mapped { self.base.as_ptr().wrapping_add(offset) } else { self.address(offset) };
        // SAFETY: the word lies in memory that is mapped as long as `self` lives, and is aligned, just checked; it is only
        // accessed atomically, and any bit pattern is valid.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    /// Maps `bytes` from `offset` on, whole pages of its system memory, a second time: at `start`, in place of what is
    /// there.
    ///
    /// # Safety
    /// What is at `start` is the caller's to replace, in whole pages, and `offset` begins one.
    pub(crate) unsafe fn show_at(&self, start: *mut u8, offset: usize, bytes: usize) -> Result<()> {
        assert!(bytes <= self.mapped && offset <= self.mapped - bytes);
        let (from, how) = (self.base.as_ptr().wrapping_add(offset).cast(), MremapFlags::MAYMOVE);
        // Of no length, the kernel takes it for another view of shared memory.
        // SAFETY: the range is mapped as shared memory, and stays; the caller vouches for what is replaced.
        unsafe { rustix::mm::mremap_fixed(from, 0, bytes, how, start.cast()) }.map(drop).map_err(|source| {
            ErrorKind::os(format!("mapping {bytes} bytes of the symmetric heap at {start:p}"), source)
        })
    }

    /// Sets bytes, all of one object, to zero. Peers may see it happen.
    pub(crate) fn zero(&self, offset: usize, bytes: usize) {
        assert!(bytes <= self.len() && offset <= self.len() - bytes);
        // SAFETY: the range lies in the segment, just checked, and an object in one of its pieces; the bytes are plain
        // memory and any pattern is valid.
        unsafe { self.address(offset).write_bytes(0, bytes) }
    }

    /// Copies bytes within the segment, from one object to one; the ranges may overlap.
    pub(crate) fn copy_within(&self, from: usize, to: usize, bytes: usize) {
        assert!(bytes <= self.len() && from <= self.len() - bytes && to <= self.len() - bytes);
        // SAFETY: both ranges lie in the segment, just checked, and objects in one of its pieces; `copy` allows them to
        // overlap.
        unsafe { self.address(to).copy_from(self.address(from), bytes) }
    }
}

/// A memfd of `bytes`, which neither shrinks nor grows.
pub(crate) fn memfd(bytes: usize, kind: MemfdFlags) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("shmem-heap", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind)
        .map_err(|source| ErrorKind::os("making a memfd for the symmetric heap (ulimit -n)", source))?;
    let grow = || if may_grow_to(bytes as u64) { rustix::fs::ftruncate(&fd, bytes as u64) } else { Err(Errno::FBIG) };
    grow().map_err(|source| {
        ErrorKind::os(format!("growing the symmetric heap's memfd to {bytes} bytes (ulimit -f)"), source)
    })?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(|source| ErrorKind::os("sealing the symmetric heap's memfd", source))?;
    Ok(fd)
}

/// Whether a file may have so many bytes (`ulimit -f`). To be asked first: the kernel's answer would be a signal.
pub(crate) fn may_grow_to(bytes: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    limit.is_none_or(|limit| bytes <= limit)
}

fn check_size(fd: &OwnedFd, agreed: usize) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(|source| ErrorKind::os("sizing a peer's symmetric heap", source))?;
    let size = stat.st_size;
    if usize::try_from(size) == Ok(agreed) {
        return Ok(());
    }
    let why = format!("a peer's heap has {size} bytes where {agreed} were agreed");
    Err(ErrorKind::os(why, std::io::ErrorKind::InvalidData))
}

fn cannot_map(len: usize, source: impl Into<std::io::Error>) -> Error {
    ErrorKind::os(format!("mapping a symmetric heap of {len} bytes (ulimit -v, SHMEM_SYMMETRIC_SIZE)"), source)
}

/// Addresses that are this one's alone, with whatever is mapped there.
struct Span {
    start: NonNull<u8>,
    len: usize,
}

impl Span {
    /// Maps `len` bytes of what is behind `fd`, from `offset` on.
    fn of(len: usize, fd: BorrowedFd<'_>, offset: u64) -> rustix::io::Result<Span> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses addresses that nothing uses.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) }?;
        NonNull::new(start.cast()).map(|start| Span { start, len }).ok_or(Errno::NOMEM)
    }

    /// Maps `len` bytes, whole pages, of what is behind `fd` at a multiple of `align`.
    fn aligned(len: usize, fd: BorrowedFd<'_>, align: usize) -> rustix::io::Result<Span> {
        let span = Span::reserve(len.checked_add(align).ok_or(Errno::NOMEM)?)?;
        let at = span.start.addr().get().next_multiple_of(align) - span.start.addr().get();
        span.map(at, len, fd, 0, MapFlags::SHARED | MapFlags::NORESERVE)?;
        let [before, span, behind] = span.divided(at, len);
        drop((before, behind));
        Ok(span)
    }

    /// What lies before `at`, the `len` bytes from there on, and what lies behind them.
    fn divided(self, at: usize, len: usize) -> [Span; 3] {
        assert!(len <= self.len && at <= self.len - len);
        let part = |at, len| Span { start: self.at(at), len };
        let parts = [part(0, at), part(at, len), part(at + len, self.len - at - len)];
        std::mem::forget(self);
        parts
    }

    /// Takes addresses behind which there is nothing yet.
    fn reserve(len: usize) -> rustix::io::Result<Span> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses addresses that nothing uses.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        NonNull::new(start.cast()).map(|start| Span { start, len }).ok_or(Errno::NOMEM)
    }

    /// Maps `len` bytes of what is behind `fd` to these addresses, from `at` on; the kernel may round the length up, for
    /// which the caller has left room.
    fn map(&self, at: usize, len: usize, fd: BorrowedFd<'_>, offset: u64, flags: MapFlags) -> rustix::io::Result<()> {
        assert!(len <= self.len && at <= self.len - len);
        let (address, access) = (self.at(at).as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the addresses are this span's, just checked, and nothing refers to what was there.
        unsafe { rustix::mm::mmap(address, len, access, flags | MapFlags::FIXED, fd, offset) }.map(drop)
    }

    fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at <= self.len);
        // SAFETY: the address lies in the span or at its end, just checked.
        unsafe { self.start.add(at) }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: the addresses are this span's alone, and who has it sees to it that nothing refers to them any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The processor's count of time, where it has one that all its cores share; else nanoseconds.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction, and Linux lets programs use it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
