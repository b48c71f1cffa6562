//! The 8-bit float e4m3 (OCP OFP8, the kind without infinities): four bits of exponent, three of mantissa, NaN in the last
//! code of either sign. In forms without branches, which the compiler vectorises; a test compares them with the definition.

use half::bf16;

use crate::op::Number;

/// Values that share a scale.
pub const BLOCK: usize = 128;

/// The largest number.
const LARGEST: f32 = 448.0;
/// The smallest number with a full mantissa, 2^-6.
const NORMAL: f32 = 1.0 / 64.0;
/// What the exponent of an f32 is larger by than that of an e4m3 of the same value, in units of the latter's last place.
const REBIAS: u32 = (127 - 7) << 3;
/// The bits of an f32 that are its sign, and its exponent.
const SIGN: u32 = 1 << 31;
const EXPONENT: u32 = 0x7f80_0000;

/// A block as codes; returns the scale by which these are to be multiplied.
#[inline(always)]
pub(super) fn encode(block: &[bf16], codes: &mut [u8]) -> f32 {
    // As integers, in which a NaN is the largest of all.
    let largest = block.iter().map(|value| value.to_bits() & 0x7fff).fold(0, u16::max);
    let largest = bf16::from_bits(largest).widen();
    // A block of zeros, or of numbers so small that the factor would be infinite, has the smallest scale.
    let largest = if largest < LARGEST * f32::MIN_POSITIVE { LARGEST * f32::MIN_POSITIVE } else { largest };
    let factor = LARGEST / largest;
    for (value, code) in block.iter().zip(codes) {
        *code = code_of(value.widen() * factor);
    }
    if largest.is_finite() { largest / LARGEST } else { f32::NAN }
}

/// A block of codes times their scale.
#[inline(always)]
pub(super) fn decode(codes: &[u8], scale: f32, block: &mut [bf16]) {
    for (value, code) in block.iter_mut().zip(codes) {
        *value = bf16::narrow(value_of(*code) * scale);
    }
}

/// The nearest code, ties to even, of a number that is rounded to [`LARGEST`] at most; of others some code.
#[inline(always)]
fn code_of(value: f32) -> u8 {
    let bits = value.to_bits();
    let size = f32::from_bits(bits & !SIGN);
    // The power of two below it; small numbers have the last place of the smallest normal ones.
    let power = (bits & EXPONENT).max(NORMAL.to_bits());
    // The last place of 2^20 times as much is an eighth of that power: the sum is rounded to it, and its last byte counts them. The first
    // eight of them are the bit that normal numbers have and codes leave out.
    let counter = f32::from_bits(power + (20 << 23) + (REBIAS + 8).wrapping_neg() % 256);
    let code = (size + counter).to_bits().wrapping_add(power >> 20);
    (bits >> 24 & 0x80 | code & 0x7f) as u8
}

/// Exact.
#[inline(always)]
fn value_of(code: u8) -> f32 {
    let (sign, magnitude) = (u32::from(code & 0x80) << 24, u32::from(code & 0x7f));
    let normal = (magnitude + REBIAS) << 20;
    let small = (magnitude as i32 as f32 / 512.0).to_bits();
    let bits = if magnitude < 8 { small } else { normal };
    let bits = if magnitude == 0x7f { f32::NAN.to_bits() } else { bits };
    f32::from_bits(sign | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition.
    fn defined(code: u8) -> f64 {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let size = match exponent {
            0 => mantissa / 8.0 * 2_f64.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2_f64.powi(exponent - 7),
        };
        if code & 0x80 == 0 { size } else { -size }
    }

    #[test]
    fn every_code_means_what_the_definition_says() {
        for code in 0..=255_u8 {
            if code & 0x7f == 0x7f {
                assert!(value_of(code).is_nan());
            } else {
                assert_eq!(f64::from(value_of(code)), defined(code), "{code:#x}");
                assert_eq!(value_of(code).is_sign_negative(), code >= 0x80);
                assert_eq!(code_of(value_of(code)), code);
            }
        }
    }

    #[test]
    fn every_bf16_gets_the_nearest_code_and_ties_the_even_one() {
        let codes: Vec<u8> = (0..0x7f).collect();
        // 464 lies between the largest number and what would come next.
        for value in (0..=u16::MAX).map(|bits| bf16::from_bits(bits).to_f32()).filter(|value| value.abs() < 464.0) {
            let code = code_of(value);
            let size = f64::from(value.abs());
            let away = |code: &u8| (defined(*code) - size).abs();
            let nearest = codes.iter().map(away).fold(f64::INFINITY, f64::min);
            let best = codes.iter().filter(|code| away(code) == nearest);
            let best = best.max_by_key(|code| (*code + 1) % 2).copied().unwrap();
            assert_eq!(code & 0x7f, best, "{value}");
            assert_eq!(code >= 0x80, value.is_sign_negative());
        }
    }

    #[test]
    fn numbers_between_two_bf16_are_rounded_once() {
        for (value, code) in
            [(1.0625, 0x38), (1.062_500_1, 0x39), (1.1875, 0x3a), (0.000_976_562_5, 0), (0.000_976_6, 1)]
        {
            assert_eq!(code_of(value), code, "{value}");
        }
    }

    #[test]
    fn a_block_that_is_not_finite_is_nan() {
        for odd in [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY] {
            let (mut codes, mut back) = ([0; 3], [bf16::ZERO; 3]);
            let scale = encode(&[bf16::ONE, odd, bf16::ZERO], &mut codes);
            decode(&codes, scale, &mut back);
            assert!(back.iter().all(|value| value.is_nan()), "{odd}: {back:?}");
        }
    }

    #[test]
    fn the_largest_value_of_a_block_is_the_largest_code() {
        for largest in [1e-38_f32, 1e-20, 3.0, 448.0, 1e30] {
            let (mut codes, block) = ([0; 2], [bf16::from_f32(-largest), bf16::ZERO]);
            let scale = encode(&block, &mut codes);
            let mut back = [bf16::ONE; 2];
            decode(&codes, scale, &mut back);
            assert!((back[0].to_f32() / block[0].to_f32() - 1.0).abs() < 0.07, "{largest}: {back:?}");
            assert_eq!(back[1], bf16::ZERO);
        }
        let mut codes = [9; 2];
        assert!(encode(&[bf16::ZERO; 2], &mut codes) > 0.0);
        assert_eq!(codes, [0; 2]);
    }
}
