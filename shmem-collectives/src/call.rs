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
    /// Further arguments that must be equal, as a digest and for the report. Empty for most: nothing is allocated then.
    pub(crate) more: (u64, String),
    pub(crate) in_place: bool,
    /// Whether reductions combine in the order of the PEs.
    pub(crate) strict: bool,
}

impl Call {
    /// One of those that [`Collective`] names.
    #[inline]
    pub(crate) fn even(what: Collective, len: usize, elem: &'static str, op: &'static str) -> Self {
        let code = (what.code().0, what.root());
        Call { name: what.name(), code, len, elem, op, more: (0, String::new()), in_place: false, strict: false }
    }

    /// Another, by a number of its own.
    pub(crate) fn other(name: &'static str, code: u64, len: usize, elem: &'static str) -> Self {
        let code = (code, None);
        Call { name, code, len, elem, op: "", more: (0, String::new()), in_place: false, strict: false }
    }

    /// What the PEs compare in the first meeting.
    #[inline]
    pub(crate) fn digest(&self, number: u64) -> u64 {
        let (code, root) = self.code;
        let modes = u64::from(self.in_place) | u64::from(self.strict) << 1;
        let root = root.map_or(0, |root| root as u64 + 1);
        let parts = [code, root, self.len as u64, pack(self.elem), pack(self.op), self.more.0, modes];
        digest(number, parts)
    }

    /// What is said in the report: 64 bytes are shown.
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
        if self.len > 0 || self.more.1.is_empty() {
            text += &format!(" × {}", self.len);
        }
        for more in [self.op, &self.more.1] {
            if !more.is_empty() {
                text += &format!(", {more}");
            }
        }
        text += if self.in_place { ", in place" } else { "" };
        text += if self.strict { ", strict)" } else { ")" };
        text
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

/// Tells calls apart: multiplication and rotation of every part (the finaliser of Stafford's mix 13 ends it).
#[inline]
pub(crate) fn digest(number: u64, parts: impl IntoIterator<Item = u64>) -> u64 {
    let mixed = parts.into_iter().fold(number ^ 0x9e37_79b9_7f4a_7c15, |hash, part| {
        (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29)
    });
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// A name as a number; what is short, as most names are, is that number itself.
#[inline]
fn pack(name: &str) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |all, letter| all << 8 | u64::from(*letter));
    match name.as_bytes() {
        short if short.len() <= 8 => word(short),
        long => digest(long.len() as u64, long.chunks(8).map(word)),
    }
}

/// The name of a type without the paths in it.
struct Short<'n>(&'n str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split_inclusive(['<', '>', ',', ' ']).try_for_each(|part| f.write_str(last(part)))
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
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
            Call { more: (1, String::new()), ..base() },
            Call { in_place: true, ..base() },
            Call { strict: true, ..base() },
        ];
        assert!(others.iter().all(|other| other.digest(3) != base().digest(3)));
        assert_ne!(base().digest(3), base().digest(4));
    }
}
