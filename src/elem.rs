//! What may lie in symmetric memory: [`Elem`], open to any plain type, and the types that atomics work on, a closed set.

use bytemuck::Pod;

/// A plain value that may cross between PEs: any bit pattern is valid and there is no padding. Every [`bytemuck::Pod`] type is one,
/// so a type of your own becomes one by `#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]` and `#[repr(C)]`.
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

/// `u32` or `u64`: the widths of an atomic access.
pub trait AmoBits: Elem + sealed::Sealed + Eq {
    /// The same value, zero-extended.
    fn widen(self) -> u64;
    /// The low bits of a value.
    fn narrow(wide: u64) -> Self;
}

impl AmoBits for u32 {
    #[inline(always)]
    fn widen(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(wide: u64) -> Self {
        wide as u32
    }
}

impl AmoBits for u64 {
    #[inline(always)]
    fn widen(self) -> u64 {
        self
    }

    #[inline(always)]
    fn narrow(wide: u64) -> Self {
        wide
    }
}

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
