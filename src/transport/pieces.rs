//! Segments that are mapped in pieces or in part, since the user's heap is memory of the program's own: the words before
//! it are mapped, the heap may be, or not.
//!
//! They are asked for in calls that go over the network otherwise, so that what is mapped as a whole knows nothing of
//! them. A network orders what goes over it, and nothing orders that with what the processor writes: so where some of a
//! PE's memory is reached over the network, all of it is written that way. What has arrived there is read where it is.

use crate::elem::Elem;
use crate::error::{ErrorKind, Result};
use crate::heap::{load, store};
use crate::transport::amo::Amo;
use crate::transport::link::Link;
use crate::transport::loopback::{self, Base};
use crate::transport::{Peer, Route, To};

/// Bytes that are carried at a time.
const PART: usize = 256 << 10;

impl Link {
    /// Where the object at offset `at` of a peer lies, if it is mapped here.
    #[inline(always)]
    pub(crate) fn address(&self, peer: &Peer, at: usize) -> Option<*mut u8> {
        match peer.rma {
            Route::Loopback(base) => Some(base.at(at)),
            Route::Remote => self.piece_to_write(peer.pe, at).map(|base| base.at(at)),
        }
    }

    /// From where the offset `at` of a PE leads to mapped memory that is read there.
    #[cold]
    pub(super) fn piece_to_read(&self, pe: usize, at: usize) -> Option<Base> {
        let direct = pe == self.me || self.endpoint.is_none();
        Base::of_piece(self.segment(pe).filter(|segment| direct && !segment.is_whole())?, at)
    }

    /// From where it leads to mapped memory that is written there.
    #[cold]
    pub(super) fn piece_to_write(&self, pe: usize, at: usize) -> Option<Base> {
        let all = || self.segment(pe).is_some_and(|segment| segment.piece(segment.len()).is_some());
        self.piece_to_read(pe, at).filter(|_| self.endpoint.is_none() || all())
    }

    /// Puts into a piece, if the target is in one; false if it is not.
    pub(super) fn put_to_piece(&self, pe: usize, at: usize, source: *const u8, bytes: usize) -> Result<bool> {
        let Some(base) = self.piece_to_write(pe, at) else { return Ok(false) };
        self.require_access(source, bytes)?;
        // SAFETY: the piece holds the target, and the processor may read the source, just checked; whoever calls the link
        // vouches for the rest.
        unsafe { loopback::copy(base.at(at), source, bytes, self.stream_from()) };
        Ok(true)
    }

    /// Gets from a piece, if the source is in one; false if it is not.
    pub(super) fn get_from_piece(&self, pe: usize, at: usize, target: *mut u8, bytes: usize) -> Result<bool> {
        let Some(base) = self.piece_to_read(pe, at) else { return Ok(false) };
        self.require_access(target, bytes)?;
        // SAFETY: the piece holds the source, and the processor may write the target, just checked; whoever calls the link
        // vouches for the rest.
        unsafe { loopback::copy(target, base.at(at), bytes, self.stream_from()) };
        Ok(true)
    }

    /// Writes an element, whole if the machine can, that is not in memory mapped as a whole.
    #[cold]
    pub(super) fn put_element_remote<T: Elem>(&self, to: To, at: usize, value: T) -> Result<()> {
        match self.piece_to_write(to.pe, at) {
            Some(base) => {
                // SAFETY: the element is a handle's, aligned and in the piece.
                unsafe { store(base.at(at).cast(), value) };
                Ok(())
            }
            None => {
                let value = bytemuck::bytes_of(&value);
                self.put_remote(to, at, value.as_ptr(), value.len(), false)
            }
        }
    }

    /// Reads an element, whole if the machine can, that is not in memory mapped as a whole.
    #[cold]
    pub(super) fn get_element_remote<T: Elem>(&self, to: To, at: usize) -> Result<T> {
        match self.piece_to_read(to.pe, at) {
            // SAFETY: the element is a handle's, aligned and in the piece.
            Some(base) => Ok(unsafe { load(base.at(at).cast()) }),
            None => {
                let mut value = T::zeroed();
                let target = bytemuck::bytes_of_mut(&mut value);
                self.get_remote(to, at, target.as_mut_ptr(), target.len(), 0).map(|()| value)
            }
        }
    }

    /// Runs an atomic operation in a piece, if the word is in one.
    pub(super) fn amo_in_piece(&self, pe: usize, at: usize, amo: Amo) -> Option<u64> {
        let base = self.piece_to_write(pe, at).filter(|_| !self.atomics)?;
        // SAFETY: words and the elements of handles are aligned, and lie in the piece.
        Some(unsafe { loopback::amo_by_data(base.at(at), amo) })
    }

    /// Copies `bytes` from one offset of this PE to another, the processor having no access to one of the two. The ranges
    /// may overlap.
    ///
    /// # Safety
    /// Both lie in the segment.
    #[cold]
    pub(crate) unsafe fn carry(&self, own: &Peer, lane: usize, from: usize, to: usize, bytes: usize) -> Result<()> {
        let mut buffer = vec![0; bytes.min(PART)];
        let parts = bytes.div_ceil(PART);
        for part in 0..parts {
            // What is written must not lie ahead of what is still to be read.
            let start = PART * if to > from { parts - 1 - part } else { part };
            let buffer = &mut buffer[..PART.min(bytes - start)];
            // SAFETY: the caller vouches for both ranges, and the buffer is private.
            unsafe {
                self.get(own, lane, from + start, buffer.as_mut_ptr(), buffer.len(), 0)?;
                self.put(own, lane, to + start, buffer.as_ptr(), buffer.len(), false)?;
            }
        }
        Ok(())
    }

    /// Fails if these bytes are symmetric memory of this PE that the processor may not access.
    fn require_access(&self, start: *const u8, bytes: usize) -> Result<()> {
        let offset = self.heap().segment().offset_of(start, bytes);
        offset.map_or(Ok(()), |at| self.heap().require_access(&(at..at + bytes)))
    }

    /// That no network leads to these bytes of a PE.
    #[cold]
    pub(super) fn out_of_reach(&self, pe: usize, at: usize, bytes: usize) -> ErrorKind {
        let why = "they are not mapped here, and no network leads there";
        ErrorKind::NotMapped { pe, bytes: at..at + bytes, why }
    }
}
