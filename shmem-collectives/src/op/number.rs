//! What each element type can do, in forms that vectorise: no branches, no calls, conversions by bits.
//!
//! The half-width conversions are own code because those of `half` ask the processor for its features at every element, which no loop survives; tests
//! compare them with `half`, every f16 and bf16 and a dense sample of f32.

use half::{bf16, f16};
use num_complex::Complex;
use shmem::Elem;

/// A type with sums and products.
pub trait Number: Elem {
    /// What they are taken in.
    type Acc: Number<Acc = Self::Acc>;
    /// An element in it.
    fn widen(self) -> Self::Acc;
    /// The nearest element; any NaN as the canonical one.
    fn narrow(acc: Self::Acc) -> Self;
    /// The sum of two.
    fn add(left: Self::Acc, right: Self::Acc) -> Self::Acc;
    /// The product of two.
    fn mul(left: Self::Acc, right: Self::Acc) -> Self::Acc;
}

/// A type with averages.
pub trait Mean: Elem {
    /// What elements are added up in.
    type Total: Number<Acc = Self::Total>;
    /// An element in it.
    fn total(self) -> Self::Total;
    /// The sum of two.
    fn add_totals(left: Self::Total, right: Self::Total) -> Self::Total;
    /// The average of `n` elements that add up to `total`.
    fn mean(total: Self::Total, n: usize) -> Self;
}

/// A type whose elements can be multiplied by a real factor.
pub trait Scalable: Number {
    /// The factor.
    type Factor: Copy + Send + Sync;
    /// An element times the factor.
    fn scale(acc: Self::Acc, factor: Self::Factor) -> Self::Acc;
    /// The factor nearest to a number.
    fn factor(number: f64) -> Self::Factor;
}

/// A type with a total order: that of the numbers, with -0.0 before +0.0 and all NaNs equal, at either end.
pub trait Ordered: Elem {
    /// An integer for each element, in the same order.
    type Key: Ord + Ordered<Key = Self::Key>;
    /// The key, with NaN before all numbers.
    fn key_nan_first(self) -> Self::Key;
    /// The key, with NaN after all numbers.
    fn key_nan_last(self) -> Self::Key;
    /// The element of a key of either kind; any NaN as the canonical one.
    fn of_key(key: Self::Key) -> Self;
}

/// A type with bitwise operations.
pub trait Bits: Elem {
    /// The bits that both have.
    fn and(self, other: Self) -> Self;
    /// The bits that one of them has, or both.
    fn or(self, other: Self) -> Self;
    /// The bits that only one of them has.
    fn xor(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($($int:ty),*) => {$(
        impl Number for $int {
            type Acc = Self;
            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(acc: Self) -> Self {
                acc
            }
            #[inline(always)]
            fn add(left: Self, right: Self) -> Self {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn mul(left: Self, right: Self) -> Self {
                left.wrapping_mul(right)
            }
        }
    )*};
}

// What integers are added up in, is in no table of element types.
wrapping!(i8, i16, i32, i64, isize, i128, u8, u16, u32, u64, usize, u128);

macro_rules! integers {
    ($($int:ty: $total:ty),*) => {$(
        impl Mean for $int {
            type Total = $total;
            #[inline(always)]
            fn total(self) -> $total {
                self as $total
            }
            #[inline(always)]
            fn add_totals(left: $total, right: $total) -> $total {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn mean(total: $total, n: usize) -> Self {
                // An average lies between the elements, so it fits.
                (total / n.max(1) as $total) as $int
            }
        }

        impl Ordered for $int {
            type Key = Self;
            #[inline(always)]
            fn key_nan_first(self) -> Self {
                self
            }
            #[inline(always)]
            fn key_nan_last(self) -> Self {
                self
            }
            #[inline(always)]
            fn of_key(key: Self) -> Self {
                key
            }
        }

        impl Bits for $int {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

integers!(i8: i64, i16: i64, i32: i64, i64: i128, isize: i128, u8: u64, u16: u64, u32: u64, u64: u128, usize: u128);

macro_rules! floats {
    // The bits of a float as an integer in the same order, and back: those of a negative number count downwards.
    (@flip $bits:expr, $key:ty, $unsigned:ty) => {{
        let bits: $key = $bits;
        bits ^ ((bits >> (<$key>::BITS - 1)) as $unsigned >> 1) as $key
    }};
    ($($float:ty, in $acc:ty, key $key:ty: $unsigned:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Number for $float {
            type Acc = $acc;
            #[inline(always)]
            fn widen(self) -> $acc {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(acc: $acc) -> Self {
                let narrow = $narrow(acc);
                if acc.is_nan() { Self::NAN } else { narrow }
            }
            #[inline(always)]
            fn add(left: $acc, right: $acc) -> $acc {
                left + right
            }
            #[inline(always)]
            fn mul(left: $acc, right: $acc) -> $acc {
                left * right
            }
        }

        impl Mean for $float {
            type Total = $acc;
            #[inline(always)]
            fn total(self) -> $acc {
                self.widen()
            }
            #[inline(always)]
            fn add_totals(left: $acc, right: $acc) -> $acc {
                left + right
            }
            #[inline(always)]
            fn mean(total: $acc, n: usize) -> Self {
                Self::narrow(total / n as $acc)
            }
        }

        impl Scalable for $float {
            type Factor = $acc;
            #[inline(always)]
            fn scale(acc: $acc, factor: $acc) -> $acc {
                acc * factor
            }
            fn factor(number: f64) -> $acc {
                number as $acc
            }
        }

        impl Ordered for $float {
            type Key = $key;
            #[inline(always)]
            fn key_nan_first(self) -> $key {
                if self.is_nan() { <$key>::MIN } else { floats!(@flip self.to_bits() as $key, $key, $unsigned) }
            }
            #[inline(always)]
            fn key_nan_last(self) -> $key {
                if self.is_nan() { <$key>::MAX } else { floats!(@flip self.to_bits() as $key, $key, $unsigned) }
            }
            #[inline(always)]
            fn of_key(key: $key) -> Self {
                let element = Self::from_bits(floats!(@flip key, $key, $unsigned) as $unsigned);
                if element.is_nan() { Self::NAN } else { element }
            }
        }
    )*};
}

floats! {
    f16, in f32, key i16: u16, f32_of_f16, f16_of_f32;
    bf16, in f32, key i16: u16, f32_of_bf16, bf16_of_f32;
    f32, in f32, key i32: u32, std::convert::identity, std::convert::identity;
    f64, in f64, key i64: u64, std::convert::identity, std::convert::identity;
}

/// Exact.
#[inline(always)]
fn f32_of_bf16(element: bf16) -> f32 {
    f32::from_bits(u32::from(element.to_bits()) << 16)
}

/// To the nearest, ties to even. Not for NaN.
#[inline(always)]
fn bf16_of_f32(number: f32) -> bf16 {
    let bits = number.to_bits();
    // Half of the last place that stays, less one unless that place is odd, carries where it must; from the largest number to infinity, too.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    bf16::from_bits((rounded >> 16) as u16)
}

/// What the exponent of an f32 is larger by than that of an f16 of the same value, in place.
const REBIAS: u32 = (127 - 15) << 23;

/// Exact.
#[inline(always)]
fn f32_of_f16(element: f16) -> f32 {
    let bits = u32::from(element.to_bits());
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let normal = (magnitude << 13) + REBIAS;
    // Below the normal numbers the magnitude counts units of 2^-24; from infinity on, the exponent is the largest there is.
    let subnormal = (magnitude as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude < 0x7c00 { finite } else { normal + REBIAS })
}

/// To the nearest, ties to even. Not for NaN.
#[inline(always)]
fn f16_of_f32(number: f32) -> f16 {
    let bits = number.to_bits();
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    // As for bf16; what rounds up from the largest number becomes infinity. Below the normal
    // numbers it is not used, and wraps.
    let normal = magnitude.wrapping_sub(REBIAS).wrapping_add(0x0fff + (magnitude >> 13 & 1)) >> 13;
    // Next to 0.5 an f32's last place is 2^-24, so adding 0.5 rounds to just the units of a subnormal, which are then its last bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5_f32.to_bits();
    let finite = if magnitude < (127 - 14) << 23 { subnormal } else { normal };
    f16::from_bits((sign | if magnitude < (127 + 16) << 23 { finite } else { 0x7c00 }) as u16)
}

macro_rules! complex {
    ($($real:ty),*) => {$(
        impl Number for Complex<$real> {
            type Acc = Self;
            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(acc: Self) -> Self {
                Complex::new(<$real>::narrow(acc.re), <$real>::narrow(acc.im))
            }
            #[inline(always)]
            fn add(left: Self, right: Self) -> Self {
                left + right
            }
            #[inline(always)]
            fn mul(left: Self, right: Self) -> Self {
                left * right
            }
        }

        impl Mean for Complex<$real> {
            type Total = Self;
            #[inline(always)]
            fn total(self) -> Self {
                self
            }
            #[inline(always)]
            fn add_totals(left: Self, right: Self) -> Self {
                left + right
            }
            #[inline(always)]
            fn mean(total: Self, n: usize) -> Self {
                Self::narrow(total / n as $real)
            }
        }

        impl Scalable for Complex<$real> {
            type Factor = $real;
            #[inline(always)]
            fn scale(acc: Self, factor: $real) -> Self {
                acc * factor
            }
            fn factor(number: f64) -> $real {
                number as $real
            }
        }
    )*};
}

complex!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_and_bf16_widens_exactly_and_narrows_back() {
        for bits in 0..=u16::MAX {
            let (small, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let (wide_small, wide_brain) = (f32_of_f16(small), f32_of_bf16(brain));
            if small.is_nan() {
                assert!(wide_small.is_nan());
            } else {
                assert_eq!(wide_small.to_bits(), small.to_f32().to_bits(), "f16 {bits:#x}");
                assert_eq!(f16::narrow(wide_small), small);
            }
            if brain.is_nan() {
                assert!(wide_brain.is_nan());
            } else {
                assert_eq!(wide_brain.to_bits(), brain.to_f32().to_bits(), "bf16 {bits:#x}");
                assert_eq!(bf16::narrow(wide_brain), brain);
            }
        }
    }

    #[test]
    fn narrowing_rounds_to_the_nearest_and_ties_to_even() {
        // Every upper half with the lower halves around which rounding turns, of either type.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let number = f32::from_bits(u32::from(upper) << 16 | lower);
                let (small, brain) = (f16::narrow(number), bf16::narrow(number));
                if number.is_nan() {
                    assert_eq!((small.to_bits(), brain.to_bits()), (f16::NAN.to_bits(), bf16::NAN.to_bits()));
                } else {
                    assert_eq!(small.to_bits(), f16::from_f32(number).to_bits(), "{number:e} to f16");
                    assert_eq!(brain.to_bits(), bf16::from_f32(number).to_bits(), "{number:e} to bf16");
                }
            }
        }
    }
}
