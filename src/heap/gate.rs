//! The gate of a heap: the one word at which every operation looks first. Two questions are answered by it at once, for
//! one comparison on the hot path: is this process the PE's own, or a child that was forked from it; and is the job in
//! checked mode, where operations ask more.
//!
//! The words lie in a page of their own that the kernel empties in a forked child (`MADV_WIPEONFORK`), so there is
//! nothing to be kept in step: the child finds the gate closed, and its parent sees nothing of it. Where the kernel
//! refuses (before Linux 4.14), the gate stays open in a child, and only calls that ask
//! [`is_own_process`](Gate::is_own_process) find out, by the process number.
//!
//! Knows nothing of what lies behind the gate.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapRaw};
use rustix::mm::Advice;
use rustix::process::{Pid, getpid};

use crate::error::{ErrorKind, Result};
use crate::sync::atom::{observe, publish};

/// The words of the page.
#[repr(C)]
struct Words {
    /// The address of the heap whose operations need not ask any further.
    open: AtomicU64,
    /// What this process is to the heap.
    process: AtomicU64,
}

/// It has made the heap.
const OWN: u64 = 1;
/// It has made the heap or was forked from one that has: the kernel keeps no account of it.
const UNKNOWN: u64 = 2;

/// What one looks at, as long as the [`Page`] lives.
#[derive(Clone, Copy)]
pub(crate) struct Gate(NonNull<Words>);

// SAFETY: the words behind it are atomic.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

/// The page of a gate.
pub(crate) struct Page {
    gate: Gate,
    _map: MmapRaw,
    maker: Pid,
}

impl Page {
    /// A closed gate, in a process that may pass it.
    pub(crate) fn new() -> Result<Page> {
        let failed = |source| ErrorKind::os("mapping the page of a heap's gate", source);
        let map = MmapRaw::from(MmapMut::map_anon(size_of::<Words>()).map_err(failed)?);
        // SAFETY: the page belongs to this mapping alone and is private; what a child finds of it is up to this function.
        let wiped = unsafe { rustix::mm::madvise(map.as_mut_ptr().cast(), map.len(), Advice::LinuxWipeOnFork) };
        Page::over(map, wiped.is_ok())
    }

    fn over(map: MmapRaw, wiped: bool) -> Result<Page> {
        let words = NonNull::new(map.as_mut_ptr().cast::<Words>())
            .ok_or_else(|| ErrorKind::os("mapping the page of a heap's gate", std::io::ErrorKind::OutOfMemory))?;
        let page = Page { gate: Gate(words), _map: map, maker: getpid() };
        publish(&page.gate.words().process, if wiped { OWN } else { UNKNOWN });
        Ok(page)
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// Whether this process is the one that made the page.
    #[inline(always)]
    pub(crate) fn is_own_process(&self) -> bool {
        self.gate.is_own_process() || self.ask()
    }

    #[cold]
    fn ask(&self) -> bool {
        observe(&self.gate.words().process) == UNKNOWN && getpid() == self.maker
    }
}

impl Gate {
    #[inline(always)]
    fn words(&self) -> &Words {
        // SAFETY: the page is mapped, and aligned to itself, as long as its owner lives, which outlives every use of a
        // gate; all zero, as a child finds it, is a value of the words as well.
        unsafe { self.0.as_ref() }
    }

    /// Opens the gate for the heap at an address.
    pub(crate) fn open_for(self, heap: u64) {
        publish(&self.words().open, heap);
    }

    /// The address of the heap whose operations need not ask any further; 0 if there is none such.
    #[inline(always)]
    pub(crate) fn open(self) -> u64 {
        observe(&self.words().open)
    }

    /// Whether this process is known to be the one that made the page.
    #[inline(always)]
    pub(crate) fn is_own_process(self) -> bool {
        observe(&self.words().process) == OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_closed_until_it_is_opened() {
        let page = Page::new().unwrap();
        assert!(page.is_own_process() && page.gate().open() == 0);
        page.gate().open_for(4096);
        assert_eq!(page.gate().open(), 4096);
    }

    #[test]
    fn where_the_kernel_keeps_no_account_the_process_number_decides() {
        let map = MmapRaw::from(MmapMut::map_anon(size_of::<Words>()).unwrap());
        let mut page = Page::over(map, false).unwrap();
        assert!(!page.gate().is_own_process() && page.is_own_process());
        page.maker = Pid::INIT;
        assert!(!page.is_own_process());
    }

    #[test]
    fn an_emptied_page_is_a_child() {
        let page = Page::new().unwrap();
        page.gate().open_for(4096);
        publish(&page.gate().words().open, 0);
        publish(&page.gate().words().process, 0);
        assert!(!page.is_own_process() && page.gate().open() == 0);
    }
}
