//! Memory of the program as a part of the symmetric heap: what the program has to vouch for.

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::heap::SymBox;
use crate::world::World;

impl World {
    /// Makes memory of the program, at `start` and as long as `block`, this PE's copy of that block: with what it holds, and
    /// where it is. So the global variables of a program become symmetric. Both are whole pages. The memory stays what it is
    /// when the world ends. Not collective; a world has one overlay.
    ///
    /// Pages for which `used` (given their first byte's distance from `start`) says no are taken for zero, and not looked at.
    ///
    /// # Errors
    /// [`Misaligned`](ErrorKind::Misaligned), [`BadMemory`](ErrorKind::BadMemory) for a second one, [`Os`](ErrorKind::Os).
    ///
    /// # Safety
    /// The memory is valid for reading and writing; its pages may be replaced; no other thread writes to it meanwhile; and the
    /// block has only zeros on this PE, and is never freed.
    pub unsafe fn overlay(&self, block: &SymBox<'_, u8>, start: *mut u8, used: impl Fn(usize) -> bool) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.core.heap().overlay(block, start, used) }
    }
}
