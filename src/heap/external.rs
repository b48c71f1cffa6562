//! Memory that the program gives for the symmetric heap: of an accelerator, or of an allocator of its own.
//!
//! A pointer and a length, for which the program vouches; and a descriptor, where there is one by which others can reach
//! the same memory: a network card, the PEs of the host. Knows nothing of layouts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::error::{ErrorKind, Result};
use crate::heap::MAX_ALIGN;

/// Memory for the symmetric heap of this PE; see [`Builder::external_heap`](crate::Builder::external_heap).
#[derive(Debug)]
pub struct ExternalMemory {
    start: NonNull<u8>,
    bytes: usize,
    descriptor: Option<OwnedFd>,
    cpu_access: bool,
}

// SAFETY: it is memory that several processes and devices may share; it is only accessed atomically or by copies.
unsafe impl Send for ExternalMemory {}
// SAFETY: as above.
unsafe impl Sync for ExternalMemory {}

impl ExternalMemory {
    /// The `bytes` from `start` on, a multiple of the page size (4096), which the processor may access. What does not
    /// make a whole page at the end is left alone.
    ///
    /// # Safety
    /// From now until the world that is built on it has ended (for ever, if it is leaked), the memory is valid for reads
    /// and writes (unless it is [without access](Self::without_cpu_access)) and belongs to the world alone: the program
    /// reaches it by handles of the world, by atomics, or by raw pointers where it would share memory with other threads.
    ///
    /// # Errors
    /// [`BadMemory`](ErrorKind::BadMemory) for a null pointer, a start that is no multiple of the page size, less than a
    /// page, or an end beyond the last address.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Result<ExternalMemory> {
        let bad = |why: &str| ErrorKind::BadMemory { start: start.addr(), bytes, why: why.into() };
        let Some(first) = NonNull::new(start) else {
            return Err(bad("a null pointer leads nowhere").into());
        };
        if !start.addr().is_multiple_of(MAX_ALIGN) {
            return Err(bad("it must begin at a multiple of a page (4096 bytes)").into());
        }
        if bytes < MAX_ALIGN {
            return Err(bad("it must have a page (4096 bytes) at least").into());
        }
        if start.addr().checked_add(bytes).is_none() || isize::try_from(bytes).is_err() {
            return Err(bad("it ends beyond the last address").into());
        }
        Ok(ExternalMemory { start: first, bytes, descriptor: None, cpu_access: true })
    }

    /// The processor must not access the memory: it belongs to a device, and `start` is an address of that device. Then
    /// only transfers reach it, over a network card that can; calls that would read or write single elements here are the
    /// error [`NotMapped`](ErrorKind::NotMapped).
    pub fn without_cpu_access(mut self) -> ExternalMemory {
        self.cpu_access = false;
        self
    }

    /// A descriptor that leads to the same memory, from its first byte on: a dmabuf, by which a network card reaches the
    /// memory of a device, or a memfd. Where the processor may access the memory and the descriptor can be mapped, the
    /// PEs of this host do, and need no network between them.
    ///
    /// # Errors
    /// [`BadMemory`](ErrorKind::BadMemory) if what it leads to says that it is shorter than the memory.
    pub fn descriptor(mut self, descriptor: OwnedFd) -> Result<ExternalMemory> {
        // A node that says nothing of its size has 0.
        let size = rustix::fs::fstat(&descriptor).map_or(0, |stat| stat.st_size.unsigned_abs());
        if size > 0 && size < self.bytes as u64 {
            let why = format!("its descriptor leads to {size} bytes only");
            return Err(ErrorKind::BadMemory { start: self.start.addr().get(), bytes: self.bytes, why }.into());
        }
        self.descriptor = Some(descriptor);
        Ok(self)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn cpu_access(&self) -> bool {
        self.cpu_access
    }

    pub(crate) fn by_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// What it is, as PEs must have it alike.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.cpu_access, self.descriptor.is_some()) {
            (true, false) => "the program's memory",
            (true, true) => "the program's memory, with a descriptor",
            (false, false) => "the program's memory, without access by the processor",
            (false, true) => "the program's memory, with a descriptor, without access by the processor",
        }
    }
}
