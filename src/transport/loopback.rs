//! Access to a mapped peer by the calling thread: copies, and the processor's atomics.
//!
//! Large copies bypass the cache with non-temporal stores where that wins; those are weakly ordered, so they end with a
//! store fence and whatever is written afterwards stays behind them. Knows nothing of PEs: a [`Base`] is where a
//! segment is mapped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atomic::Atomic;

use crate::elem::{AmoBits, Width};
use crate::heap::Segment;
use crate::transport::amo::{Amo, AmoOp};

/// Bytes from which a copy goes past the cache by default; see `docs/performance.md` for the measurement.
pub(crate) const STREAM_FROM: usize = 2 << 20;

/// The address at which a peer's segment is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base(NonNull<u8>);

// SAFETY: the memory behind a base is shared between processes anyway; it is only accessed atomically or by copies.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    /// The base of a mapped segment; good for as long as it is mapped.
    pub(crate) fn of(segment: &Segment) -> Self {
        Base(segment.base())
    }

    /// The base of the piece of a segment that holds `offset`, if it is mapped; good for as long as it is.
    pub(crate) fn of_piece(segment: &Segment, offset: usize) -> Option<Self> {
        segment.piece(offset).map(Base)
    }

    /// The address of the byte at `offset`.
    #[inline(always)]
    pub(crate) fn at(self, offset: usize) -> *mut u8 {
        self.0.as_ptr().wrapping_add(offset)
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Safety
    /// The word lies in the segment, which stays mapped for `'a`, at a multiple of 8.
    #[inline(always)]
    pub(crate) unsafe fn word<'a>(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: the caller vouches for offset, alignment and lifetime; any bit pattern is valid.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Safety
    /// The word lies in the segment, which stays mapped for `'a`, at a multiple of 4.
    #[inline(always)]
    pub(crate) unsafe fn half_word<'a>(self, offset: usize) -> &'a AtomicU32 {
        // SAFETY: the caller vouches for offset, alignment and lifetime; any bit pattern is valid.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }
    }
}

/// Copies `bytes` from one place to another that does not overlap it, past the cache from `stream_from` bytes on.
///
/// # Safety
/// Both are valid for `bytes`; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize, stream_from: usize) {
    if bytes == 8 {
        // The size of a flag, a counter, a pointer: one move, not a call.
        // SAFETY: the caller vouches for 8 bytes on either side.
        unsafe { target.cast::<u64>().write_unaligned(source.cast::<u64>().read_unaligned()) };
    } else if bytes < stream_from {
        // SAFETY: the caller vouches for both sides.
        unsafe { target.copy_from_nonoverlapping(source, bytes) };
    } else {
        // SAFETY: as above.
        unsafe { stream(target, source, bytes) };
    }
}

/// Copies past the cache where the processor can.
///
/// # Safety
/// As [`copy`].
#[cold]
unsafe fn stream(target: *mut u8, source: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; the caller vouches for both sides.
        return unsafe { stream_avx512(target, source, bytes) };
    }
    // SAFETY: the caller vouches for both sides.
    unsafe { target.copy_from_nonoverlapping(source, bytes) };
}

/// # Safety
/// As [`copy`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(target: *mut u8, source: *const u8, bytes: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};
    const LINE: usize = 64;
    let head = target.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: head, lines and tail together are the `bytes` that the caller vouches for; the streamed part begins at a
    // line.
    unsafe {
        target.copy_from_nonoverlapping(source, head);
        for line in 0..lines {
            let at = head + line * LINE;
            _mm512_stream_si512(target.add(at).cast(), _mm512_loadu_si512(source.add(at).cast()));
        }
        let tail = head + lines * LINE;
        target.add(tail).copy_from_nonoverlapping(source.add(tail), bytes - tail);
    }
    _mm_sfence();
}

/// Orders stores past the cache before all later ones.
#[inline(always)]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Runs an atomic operation on a word and returns what it held.
///
/// # Safety
/// `word` is valid for reads and writes and aligned.
#[inline(always)]
pub(crate) unsafe fn amo<B: AmoBits>(word: *mut u8, op: AmoOp, operand: B, expected: B) -> B {
    // SAFETY: an `Atomic` is laid out as its value, and the caller vouches for the address.
    let word = unsafe { &*word.cast::<Atomic<B>>() };
    match op {
        AmoOp::Fetch => word.load(Ordering::Acquire),
        AmoOp::Set => {
            word.store(operand, Ordering::Release);
            operand
        }
        AmoOp::Swap => word.swap(operand, Ordering::AcqRel),
        AmoOp::CompareSwap => match word.compare_exchange(expected, operand, Ordering::AcqRel, Ordering::Acquire) {
            Ok(held) | Err(held) => held,
        },
        AmoOp::Add => B::fetch_add(word, operand),
        AmoOp::And => B::fetch_and(word, operand),
        AmoOp::Or => B::fetch_or(word, operand),
        AmoOp::Xor => B::fetch_xor(word, operand),
    }
}

/// Runs an atomic operation that came as data.
///
/// # Safety
/// As [`amo`], for the operation's width.
pub(crate) unsafe fn amo_by_data(word: *mut u8, amo: Amo) -> u64 {
    match amo.width {
        // SAFETY: the caller vouches for the word.
        Width::W32 => unsafe { self::amo(word, amo.op, amo.operand as u32, amo.expected as u32) }.into(),
        // SAFETY: the caller vouches for the word.
        Width::W64 => unsafe { self::amo(word, amo.op, amo.operand, amo.expected) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_copying_copies_all_and_nothing_else() {
        let source: Vec<u8> = (0..3000_u32).map(|i| (i * 7) as u8).collect();
        for stream_from in [0, 100, usize::MAX] {
            for bytes in (0..300).chain([511, 512, 1023, 1024, 2047]) {
                for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 61)] {
                    let mut target = vec![0xee_u8; 3000];
                    // SAFETY: both vectors are longer than offset and bytes.
                    unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), bytes, stream_from) };
                    assert_eq!(target[to..to + bytes], source[from..from + bytes]);
                    assert!(target[..to].iter().chain(&target[to + bytes..]).all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    fn a_32_bit_operation_leaves_its_neighbours_alone() {
        let mut words = [0xffff_ffff_u32, 5, 0xffff_ffff];
        let word = (&raw mut words[1]).cast::<u8>();
        // SAFETY: the word is valid and aligned.
        let run = |op, operand, expected| unsafe { amo::<u32>(word, op, operand, expected) };
        assert_eq!(run(AmoOp::CompareSwap, 9, 4), 5);
        assert_eq!(run(AmoOp::CompareSwap, 9, 5), 5);
        assert_eq!(run(AmoOp::Add, u32::MAX, 0), 9);
        assert_eq!(run(AmoOp::Xor, 8, 0), 8);
        assert_eq!(run(AmoOp::Or, 0b1010, 0), 0);
        assert_eq!(run(AmoOp::And, 0b0110, 0), 0b1010);
        assert_eq!(run(AmoOp::Swap, 7, 0), 0b0010);
        assert_eq!(run(AmoOp::Fetch, 0, 0), 7);
        run(AmoOp::Set, 1, 0);
        assert_eq!(words, [0xffff_ffff, 1, 0xffff_ffff]);
    }
}
