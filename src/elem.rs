//! What may lie in symmetric memory: [`Elem`], open to any plain type, and the types that atomics work on, a closed
//! set.

use std::sync::atomic::Ordering;

use atomic::Atomic;
use bytemuck::Pod;

/// A plain value that may cross between PEs: any bit pattern is valid and there is no padding. Every [`bytemuck::Pod`]
/// type is one, so a type of your own becomes one by `#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]` and
/// `#[repr(C)]`.
///
/// A type that is aligned to more than a page cannot lie in symmetric memory; using one does not compile:
/// ```compile_fail
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C, align(8192))]
/// struct Wide([[u64; 32]; 32]);
///
/// shmem::local(1, |world| world.align::<Wide>(64, 1).and_then(|block| world.free(block)))?;
/// # Ok::<(), shmem::Error>(())
/// ```
pub trait Elem: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Elem for T {}

mod sealed {
    pub trait Sealed {}
}

/// A type of 32 or 64 bits with atomic fetch, set and swap.
pub trait AmoElem: Elem + sealed::Sealed {
    /// The integer of the same width, as which it travels.
    type Bits: AmoBits;
    /// The value's bits.
    fn to_bits(self) -> Self::Bits;
    /// The value of these bits.
    fn from_bits(bits: Self::Bits) -> Self;
}

/// An integer type with atomic arithmetic and bitwise operations as well.
pub trait AmoInt: AmoElem + Ord {
    /// The value one.
    const ONE: Self;
}

/// How wide an atomic access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Width::W32 => 4,
            Width::W64 => 8,
        }
    }
}

/// `u32` or `u64`: the widths of an atomic access.
pub trait AmoBits: Elem + sealed::Sealed + Eq {
    /// Which of the two.
    const WIDTH: Width;
    /// Adds to a word, wrapping, and returns what it held.
    fn fetch_add(word: &Atomic<Self>, operand: Self) -> Self;
    /// Replaces a word by its bitwise and with the operand, and returns what it held.
    fn fetch_and(word: &Atomic<Self>, operand: Self) -> Self;
    /// Replaces a word by its bitwise or with the operand, and returns what it held.
    fn fetch_or(word: &Atomic<Self>, operand: Self) -> Self;
    /// Replaces a word by its bitwise exclusive or with the operand, and returns what it held.
    fn fetch_xor(word: &Atomic<Self>, operand: Self) -> Self;
    /// The same value, zero-extended.
    fn widen(self) -> u64;
    /// The low bits of a value.
    fn narrow(wide: u64) -> Self;
}

/// The arithmetic of one width, which the processor has as instructions.
macro_rules! amo_bits {
    ($($bits:ty: $width:ident),*) => {$(
        impl AmoBits for $bits {
            const WIDTH: Width = Width::$width;

            #[inline(always)]
            fn fetch_add(word: &Atomic<Self>, operand: Self) -> Self {
                word.fetch_add(operand, Ordering::AcqRel)
            }

            #[inline(always)]
            fn fetch_and(word: &Atomic<Self>, operand: Self) -> Self {
                word.fetch_and(operand, Ordering::AcqRel)
            }

            #[inline(always)]
            fn fetch_or(word: &Atomic<Self>, operand: Self) -> Self {
                word.fetch_or(operand, Ordering::AcqRel)
            }

            #[inline(always)]
            fn fetch_xor(word: &Atomic<Self>, operand: Self) -> Self {
                word.fetch_xor(operand, Ordering::AcqRel)
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn narrow(wide: u64) -> Self {
                wide as $bits
            }
        }

        const _: () = assert!(Atomic::<$bits>::is_lock_free(), "a fallback lock would be private to one process");
    )*};
}

amo_bits!(u32: W32, u64: W64);

/// The one table of types that atomics work on.
macro_rules! amo_types {
    (int { $($int:ty: $int_bits:ty),* $(,)? } float { $($float:ty: $float_bits:ty),* $(,)? }) => {
        $(amo_types!(@elem $int, $int_bits);
        impl AmoInt for $int {
            const ONE: Self = 1;
        })*
        $(amo_types!(@elem $float, $float_bits);)*
    };
    (@elem $elem:ty, $bits:ty) => {
        impl sealed::Sealed for $elem {}
        impl AmoElem for $elem {
            type Bits = $bits;

            #[inline(always)]
            fn to_bits(self) -> $bits {
                bytemuck::cast(self)
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                bytemuck::cast(bits)
            }
        }
    };
}

amo_types! {
    int { i32: u32, u32: u32, i64: u64, u64: u64, isize: u64, usize: u64 }
    float { f32: u32, f64: u64 }
}

const _: () = assert!(usize::BITS == 64, "symmetric offsets and counts are 64 bits");
