//! The memory of one PE, mapped into every PE of its host.
//!
//! A memfd: it has no name, so nothing can outlive its last process; it does not depend on the size or presence of
//! /dev/shm; its pages are given when first touched. It is sealed against shrinking, so no peer can turn an access into
//! a SIGBUS.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::error::{ErrorKind, Result};

/// A mapped segment.
pub(crate) struct Segment {
    base: NonNull<u8>,
    map: MmapRaw,
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

impl Segment {
    /// Makes a segment of `len` bytes, all zero, and the descriptor by which others can map it, with the `extra` bytes
    /// behind it.
    pub(crate) fn create(len: usize, extra: usize) -> Result<(Segment, OwnedFd)> {
        let fd = rustix::fs::memfd_create("shmem-heap", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|source| ErrorKind::os("making a memfd for the symmetric heap (ulimit -n)", source))?;
        rustix::fs::ftruncate(&fd, (len + extra) as u64)
            .map_err(|source| ErrorKind::os(format!("growing the symmetric heap's memfd to {len} bytes"), source))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|source| ErrorKind::os("sealing the symmetric heap's memfd", source))?;
        Ok((Self::attach_part(&fd, 0, len)?, fd))
    }

    /// Maps the segment of `len` bytes behind `fd`, which has `extra` bytes more and may be closed afterwards: the mapping keeps the memory.
    pub(crate) fn attach(fd: &OwnedFd, len: usize, extra: usize) -> Result<Segment> {
        let stat = rustix::fs::fstat(fd).map_err(|source| ErrorKind::os("sizing a peer's symmetric heap", source))?;
        let size = stat.st_size;
        if usize::try_from(size) != Ok(len + extra) {
            let why = format!("a peer's heap has {size} bytes where {} were agreed", len + extra);
            return Err(ErrorKind::os(why, std::io::ErrorKind::InvalidData));
        }
        Self::attach_part(fd, 0, len)
    }

    /// Maps `len` bytes from `offset`, a multiple of the page size, of what is behind `fd`, which is at least so long.
    pub(crate) fn attach_part(fd: &OwnedFd, offset: usize, len: usize) -> Result<Segment> {
        let map =
            MmapOptions::new().offset(offset as u64).len(len).no_reserve_swap().map_raw(fd).map_err(|source| {
                ErrorKind::os(
                    format!("mapping a symmetric heap of {len} bytes (ulimit -v, SHMEM_SYMMETRIC_SIZE)"),
                    source,
                )
            })?;
        let base = NonNull::new(map.as_mut_ptr())
            .ok_or_else(|| ErrorKind::os("mapping a symmetric heap", std::io::ErrorKind::OutOfMemory))?;
        Ok(Segment { base, map })
    }

    /// Its first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where it is mapped.
    pub(crate) fn start(&self) -> Start {
        Start(self.base)
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The address of the byte at `offset`.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len());
        // SAFETY: the offset lies in the mapping or at its end, just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 64-bit word at `offset`.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len());
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned, just checked; it is only
        // accessed atomically, and any bit pattern is valid.
        unsafe { AtomicU64::from_ptr(self.address(offset).cast()) }
    }

    /// Sets bytes to zero. Peers may see it happen.
    pub(crate) fn zero(&self, offset: usize, bytes: usize) {
        assert!(bytes <= self.len() && offset <= self.len() - bytes);
        // SAFETY: the range lies in the mapping, just checked; the bytes are plain memory and any pattern is valid.
        unsafe { self.address(offset).write_bytes(0, bytes) }
    }

    /// Copies bytes within the segment; the ranges may overlap.
    pub(crate) fn copy_within(&self, from: usize, to: usize, bytes: usize) {
        assert!(bytes <= self.len() && from <= self.len() - bytes && to <= self.len() - bytes);
        // SAFETY: both ranges lie in the mapping, just checked; `copy` allows them to overlap.
        unsafe { self.address(to).copy_from(self.address(from), bytes) }
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
