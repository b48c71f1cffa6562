//! What a token looks like on its way: as it is, or as fp8 with a scale for each block.
//!
//! The loops run under [`pulp`], compiled for what the processor turns out to have; what they compute does not depend on it.

use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};
use shmem::Elem;

use super::fp8::{self, BLOCK};
use crate::op::Number;

mod sealed {
    pub trait Sealed {}
}

/// How tokens travel: [`Bf16`], [`F16`], [`F32`] or [`Fp8E4m3`]. Outputs travel as [`Elem`](Payload::Elem).
pub trait Payload: sealed::Sealed + Copy + Send + Sync + 'static {
    /// What tokens are given as, and outputs are made of.
    type Elem: Number<Acc = f32>;
    /// What a token is made of where it arrives.
    type Wire: Elem;
    /// What it is called in messages.
    const NAME: &'static str;
    /// Whether a token travels as it is.
    const PLAIN: bool;

    /// Bytes of a token on its way.
    fn bytes(hidden: usize) -> usize {
        hidden * size_of::<Self::Wire>()
    }

    /// Bytes from the beginning of a token on its way to its scales; its end where it has none.
    fn scales_at(hidden: usize) -> usize {
        Self::bytes(hidden)
    }

    /// A token as it travels, into so many [`bytes`](Self::bytes).
    fn encode(token: &[Self::Elem], into: &mut [u8]) {
        into.copy_from_slice(bytemuck::cast_slice(token));
    }

    /// The token that travelled.
    fn decode(wire: &[u8], into: &mut [Self::Elem]) {
        bytemuck::cast_slice_mut(into).copy_from_slice(wire);
    }
}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident: $elem:ty = $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl sealed::Sealed for $name {}
        impl Payload for $name {
            type Elem = $elem;
            type Wire = $elem;
            const NAME: &'static str = $text;
            const PLAIN: bool = true;
        }
    )*};
}

plain! {
    /// Tokens and outputs are bf16.
    Bf16: bf16 = "bf16";
    /// Tokens and outputs are f16.
    F16: f16 = "f16";
    /// Tokens and outputs are f32.
    F32: f32 = "f32";
}

/// Tokens are given as bf16 and travel as fp8 (e4m3, the kind without infinities), each block of [`BLOCK`] values with an
/// f32 by which it is multiplied; outputs are bf16, as DeepEP has it. The largest value of a block becomes 448, the largest of
/// fp8. A block that holds a NaN or an infinity arrives as NaN, all of it.
#[derive(Clone, Copy, Debug)]
pub struct Fp8E4m3;

impl sealed::Sealed for Fp8E4m3 {}
impl Payload for Fp8E4m3 {
    type Elem = bf16;
    type Wire = u8;
    const NAME: &'static str = "fp8_e4m3";
    const PLAIN: bool = false;

    fn bytes(hidden: usize) -> usize {
        Self::scales_at(hidden) + hidden.div_ceil(BLOCK) * size_of::<f32>()
    }

    fn scales_at(hidden: usize) -> usize {
        hidden.next_multiple_of(size_of::<f32>())
    }

    fn encode(token: &[bf16], into: &mut [u8]) {
        let (codes, scales) = into.split_at_mut(Self::scales_at(token.len()));
        Arch::new().dispatch(Encode { token, codes: &mut codes[..token.len()], scales });
    }

    fn decode(wire: &[u8], into: &mut [bf16]) {
        let (codes, scales) = wire.split_at(Self::scales_at(into.len()));
        Arch::new().dispatch(Decode { codes: &codes[..into.len()], scales, into });
    }
}

/// A token to as many codes, in blocks, and their scales. What is dispatched is no closure: the call of one that borrows goes through a function that
/// is compiled for any processor.
struct Encode<'a> {
    token: &'a [bf16],
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

impl WithSimd for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Whole blocks have a length that the compiler knows.
        let (blocks, rest) = self.token.as_chunks::<BLOCK>();
        let (codes, rest_codes) = self.codes.as_chunks_mut::<BLOCK>();
        let mut scales = self.scales.as_chunks_mut().0.iter_mut();
        for ((block, codes), scale) in blocks.iter().zip(codes).zip(&mut scales) {
            *scale = fp8::encode(block, codes).to_ne_bytes();
        }
        if let Some(scale) = scales.next() {
            *scale = fp8::encode(rest, rest_codes).to_ne_bytes();
        }
    }
}

/// The way back.
struct Decode<'a> {
    codes: &'a [u8],
    scales: &'a [u8],
    into: &'a mut [bf16],
}

impl WithSimd for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (blocks, rest) = self.into.as_chunks_mut::<BLOCK>();
        let (codes, rest_codes) = self.codes.as_chunks::<BLOCK>();
        let mut scales = self.scales.as_chunks().0.iter();
        for ((block, codes), scale) in blocks.iter_mut().zip(codes).zip(&mut scales) {
            fp8::decode(codes, f32::from_ne_bytes(*scale), block);
        }
        if let Some(scale) = scales.next() {
            fp8::decode(rest_codes, f32::from_ne_bytes(*scale), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_any_length_comes_back_nearly_as_it_was() {
        for hidden in [1, 3, 127, 128, 129, 300] {
            let token: Vec<bf16> = (0..hidden).map(|i| bf16::from_f32((i as f32 - 70.5) * 0.37)).collect();
            let mut wire = vec![0; Fp8E4m3::bytes(hidden)];
            Fp8E4m3::encode(&token, &mut wire);
            let mut back = vec![bf16::ZERO; hidden];
            Fp8E4m3::decode(&wire, &mut back);
            for (block, (token, back)) in token.chunks(BLOCK).zip(back.chunks(BLOCK)).enumerate() {
                let largest = token.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
                for (a, b) in token.iter().zip(back) {
                    // Half of the last of three places, or of the smallest number there is; and the rounding to bf16.
                    let bound = (a.to_f32().abs() / 16.0).max(largest / 448.0 / 1024.0) * 1.1;
                    assert!((a.to_f32() - b.to_f32()).abs() <= bound, "{a} became {b} in block {block} of {hidden}");
                }
            }
        }
    }

    #[test]
    fn what_is_plain_travels_as_it_is() {
        let token = [1.5_f32, f32::NAN, -0.0];
        let mut wire = [0; 12];
        F32::encode(&token, &mut wire);
        let mut back = [0.0_f32; 3];
        F32::decode(&wire, &mut back);
        assert_eq!(back.map(f32::to_bits), token.map(f32::to_bits));
    }
}
