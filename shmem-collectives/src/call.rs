//! A call as its PE sees it: what is compared between the PEs, and what is said where they differ.

use std::fmt;

use shmem::{Error, ErrorKind};

use crate::plan::Collective;

/// What a program asks for, for digests and reports. Equal on all PEs, or the call fails on all.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// Its number and its root.
    pub(crate) code: (u64, Option<usize>),
    /// Elements of a block, or whatever length must be equal.
    pub(crate) len: usize,
    /// The type of the elements; nothing where there are none.
    pub(crate) elem: &'static str,
    pub(crate) op: &'static str,
    /// Further arguments that must be equal, as a digest and for the report; of few calls.
    pub(crate) more: Option<Box<(u64, String)>>,
    pub(crate) in_place: bool,
    /// Whether reductions combine in the order of the PEs.
    pub(crate) strict: bool,
}

impl Call {
    /// One of those that [`Collective`] names.
    #[inline]
    pub(crate) fn even(what: Collective, len: usize, elem: &'static str, op: &'static str) -> Self {
        let code = (what.code().0, what.root());
        Call { name: what.name(), code, len, elem, op, more: None, in_place: false, strict: false }
    }

    /// Another, by a number of its own.
    pub(crate) fn other(name: &'static str, code: u64, len: usize, elem: &'static str) -> Self {
        let code = (code, None);
        Call { name, code, len, elem, op: "", more: None, in_place: false, strict: false }
    }

    /// What the PEs compare in the first meeting.
    pub(crate) fn digest(&self, number: u64) -> u64 {
        self.print().digest(number)
    }

    /// What the digests of all calls of this kind have in common.
    pub(crate) fn print(&self) -> Print {
        let (code, root) = self.code;
        let modes = u64::from(self.in_place) | u64::from(self.strict) << 1;
        let root = root.map_or(0, |root| root as u64 + 1);
        let parts = [
            code,
            root,
            self.len as u64,
            pack(self.elem),
            pack(self.op),
            self.more.as_ref().map_or(0, |more| more.0),
            modes,
        ];
        let sum = |sum: u64, (part, key): (&u64, &u64)| sum.wrapping_add(part.wrapping_mul(*key));
        Print(parts.iter().zip(&KEYS[1..]).fold(0, sum))
    }

    /// What is said in the report.
    pub(crate) fn text(&self, number: u64) -> String {
        let mut text = self.name.to_owned();
        if let Some(root) = self.code.1 {
            text += &format!(" of root {root}");
        }
        text += &format!(" #{number}");
        if self.elem.is_empty() {
            return text;
        }
        text += &format!(" ({}", Short(self.elem));
        if self.len > 0 || self.more.is_none() {
            text += &format!(" × {}", self.len);
        }
        for more in [self.op, self.more.as_ref().map_or("", |more| &more.1)] {
            if !more.is_empty() {
                text += &format!(", {more}");
            }
        }
        text += if self.in_place { ", in place" } else { "" };
        text += if self.strict { ", strict)" } else { ")" };
        text
    }
}

/// All that is compared of a call but its number: found once for calls that are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Print(u64);

impl Print {
    /// What the PEs compare in the first meeting of the call with this number.
    #[inline]
    pub(crate) fn digest(self, number: u64) -> u64 {
        last(self.0.wrapping_add(number.wrapping_mul(KEYS[0])))
    }
}

/// What stands for a call that was refused: it takes part, so that the others learn of it.
pub(crate) fn refusal(number: u64, error: &Error) -> (u64, String) {
    let text = match error.kind() {
        ErrorKind::Mismatch { report } => report.clone(),
        _ => error.to_string(),
    };
    (digest(number, [u64::MAX, pack(&text)]), text)
}

/// Odd numbers without a pattern (the fractional bits of the square roots of the first primes, made odd): a part that
/// differs makes a sum that differs, and that several cancel each other takes as many chances as there are sums.
const KEYS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Every bit of a sum in all of the 56 that are compared (the finaliser of Stafford's mix 13).
#[inline]
fn last(sum: u64) -> u64 {
    (sum ^ sum >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// Tells lists of any length apart: multiplication and rotation of every part.
pub(crate) fn digest(start: u64, parts: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
    last(parts.into_iter().fold(start ^ 0x9e37_79b9_7f4a_7c15, mix))
}

/// A name as a number; what is short, as most names are, is that number itself.
#[inline]
fn pack(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let four = |at: usize| bytes[at..].first_chunk().map_or(0, |four| u64::from(u32::from_le_bytes(*four)));
    match bytes.len() {
        0 => 0,
        len @ 1..4 => [0, len / 2, len - 1].iter().fold(len as u64, |all, at| all << 8 | u64::from(bytes[*at])),
        len @ 4..=8 => (four(0) | four(len - 4) << 32).wrapping_add(len as u64),
        len => {
            digest(len as u64, bytes.chunks(8).map(|part| part.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))))
        }
    }
}

/// The name of a type without the paths in it.
struct Short(&'static str);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = |part: &'static str| part.rsplit("::").next().unwrap_or(part);
        self.0.split_inclusive(['<', '>', ',', ' ']).try_for_each(|part| f.write_str(last(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(elem: &'static str) -> Call {
        Call::even(Collective::Broadcast { root: 1 }, 5, elem, "")
    }

    #[test]
    fn types_that_differ_in_a_parameter_alone_are_told_apart() {
        let (a, b) = (call("num_complex::Complex<f32>"), call("num_complex::Complex<f64>"));
        assert_ne!(a.digest(1), b.digest(1));
        assert_eq!(a.text(1), "broadcast of root 1 #1 (Complex<f32> × 5)");
        assert_eq!(call("op::Indexed<half::f16>").text(2), "broadcast of root 1 #2 (Indexed<f16> × 5)");
    }

    #[test]
    fn every_part_tells_calls_apart() {
        let base = || call("f32");
        let others = [
            Call { len: 6, ..base() },
            Call { code: (7, Some(0)), ..base() },
            Call { code: (2, Some(1)), ..base() },
            Call { elem: "i32", ..base() },
            Call { op: "sum", ..base() },
            Call { more: Some(Box::new((1, String::new()))), ..base() },
            Call { in_place: true, ..base() },
            Call { strict: true, ..base() },
        ];
        assert!(others.iter().all(|other| other.digest(3) != base().digest(3)));
        assert_ne!(base().digest(3), base().digest(4));
        assert!(base().digest(3) < 1 << 56, "what a meeting carries");
    }

    #[test]
    fn names_that_look_alike_are_told_apart() {
        let names = [
            "",
            "a",
            "aa",
            "aaa",
            "aaaa",
            "aaaaa",
            "aaaaaaaa",
            "aaaaaaaaa",
            "aba",
            "aab",
            "baa",
            "i8",
            "u8",
            "i16",
            "u16",
            "f16",
            "f32",
            "f64",
            "abcd",
            "abcdabcd",
            "abcdefgh",
            "abcdefghi",
            "abcdefgi",
            "bcdefghi",
            "half::binary16::f16",
            "half::bfloat::bf16",
            "num_complex::Complex<f32>",
            "num_complex::Complex<f64>",
        ];
        for (i, one) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| pack(other) != pack(one)), "{one}");
        }
    }
}
