//! How values of settings are written: sizes, seconds, whole numbers, switches, words.
//!
//! Every parser is total and strict: digits with at most one point, so that signs, exponents, `inf` and `nan`, which
//! the standard parsers take, are refused. Knows no setting.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A number of bytes above 0: `4096`, `64k`, `512M`, `3.1G`, `1TiB`. The suffixes k, m, g and t, in either case and
/// with or without `b` or `ib`, are powers of 1024; a fraction is rounded down to a byte. `None` for anything else,
/// and for more than an object can have (`isize::MAX`).
pub fn parse_size(text: &str) -> Option<usize> {
    let (number, suffix) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let power = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return None,
    };
    let unit = 1_usize << (10 * power);
    let bytes = match whole(number, 0..=usize::MAX) {
        Some(units) => units.checked_mul(unit)?,
        // A float holds 53 bits, more than anybody writes behind a point; `as` rounds down and saturates.
        None => (decimal(number)? * unit as f64) as usize,
    };
    (1..=isize::MAX as usize).contains(&bytes).then_some(bytes)
}

/// `bytes` in the largest unit that shows it exactly, in the form that [`parse_size`] reads: `4G`, `1536K`, `1000`.
pub fn show_size(bytes: usize) -> String {
    let fits = |&&(power, _): &&(u32, &str)| bytes != 0 && bytes.trailing_zeros() >= 10 * power;
    let (power, suffix) = [(4, "T"), (3, "G"), (2, "M"), (1, "K")].iter().find(fits).unwrap_or(&(0, ""));
    format!("{}{suffix}", bytes >> (10 * power))
}

/// The longest time-out: 30 years. With it, now plus a time-out is always a time that the clock can hold.
const MAX_SECONDS: f64 = 1e9;

/// Seconds with an optional fraction; `Some(None)` for 0, which is no limit.
pub(super) fn limit(text: &str) -> Option<Option<Duration>> {
    let seconds = decimal(text).filter(|s| *s <= MAX_SECONDS)?;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    match (seconds == 0.0, duration.is_zero()) {
        (true, _) => Some(None),
        (false, true) => None, // less than a nanosecond must not turn into "no limit"
        (false, false) => Some(Some(duration)),
    }
}

/// The inverse of [`limit`].
pub(super) fn show_limit(limit: Option<Duration>) -> String {
    limit.unwrap_or_default().as_secs_f64().to_string()
}

/// A whole number within `range`.
pub(super) fn whole(text: &str, range: RangeInclusive<usize>) -> Option<usize> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && range.contains(n))
}

/// A switch: on by its presence, with or without a value, unless the value says no.
pub(super) fn switch(text: &str) -> bool {
    !["0", "false", "no", "off"].iter().any(|no| text.eq_ignore_ascii_case(no))
}

/// Any text but the empty one.
pub(super) fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A list with commas between, each part of which `is_part`; with `^` or `=` before the whole of it.
pub(super) fn list(text: &str, is_part: fn(&str) -> bool) -> Option<String> {
    let (mark, rest) = text.split_at(usize::from(text.starts_with(['^', '='])));
    let plain = |part: &str| is_part(part) && !part.contains(|c: char| c.is_whitespace() || "^=".contains(c));
    let parts = rest.split(',').map(str::trim_ascii).map(|part| plain(part).then_some(part));
    parts.collect::<Option<Vec<_>>>().map(|parts| format!("{mark}{}", parts.join(",")))
}

fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes_and_fractions() {
        let (k, m, g, t) = (1_usize << 10, 1_usize << 20, 1_usize << 30, 1_usize << 40);
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("64K", 64 * k),
            ("64KB", 64 * k),
            ("64KiB", 64 * k),
            ("64kb", 64 * k),
            ("512m", 512 * m),
            ("2MiB", 2 * m),
            ("4G", 4 * g),
            ("4gb", 4 * g),
            ("1T", t),
            ("1TiB", t),
            ("3.1M", 3_250_585),
            ("0.5G", g / 2),
            (".5k", 512),
            ("1.5T", t + t / 2),
            ("9223372036854775807", isize::MAX as usize),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_refuse_everything_else() {
        for text in [
            "",
            " ",
            "0",
            "0G",
            "0.0",
            "0.4",
            "-1",
            "+1",
            "-4G",
            "nan",
            "NaN",
            "inf",
            "1e9",
            "G",
            ".",
            "1.2.3",
            "1,5G",
            "4 G",
            " 4G",
            "4X",
            "4Gi",
            "4GG",
            "4GiBs",
            "0x10",
            "4G4",
            "९",
            "4µ",
            "9223372036854775808",
            "18446744073709551616",
            "16777216T",
            "99999999999999999999999999T",
            "1e400",
            "8388608.5T",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_show_exactly_and_read_back() {
        for (bytes, text) in
            [(4 << 30, "4G"), (1536 << 10, "1536K"), (1 << 40, "1T"), (1 << 20, "1M"), (1000, "1000"), (1025, "1025")]
        {
            assert_eq!(show_size(bytes), text);
            assert_eq!(parse_size(text), Some(bytes));
        }
        assert_eq!(show_size(0), "0");
    }

    #[test]
    fn limits_are_seconds() {
        assert_eq!(limit("120"), Some(Some(Duration::from_secs(120))));
        assert_eq!(limit("0.25"), Some(Some(Duration::from_millis(250))));
        assert_eq!(limit("0"), Some(None));
        assert_eq!(limit("0.000"), Some(None));
        for text in ["", "-1", "+1", "nan", "inf", "5s", "1e3", ".", "0.0000000001", "1000000001", &"9".repeat(400)] {
            assert_eq!(limit(text), None, "{text}");
        }
        for text in ["0", "0.25", "120", "1000000000"] {
            assert_eq!(limit(text).map(show_limit).as_deref(), Some(text));
        }
    }

    #[test]
    fn the_longest_limit_is_a_time_that_the_clock_can_hold() {
        let longest = Duration::from_secs_f64(MAX_SECONDS);
        assert!(std::time::Instant::now().checked_add(longest).is_some());
    }

    #[test]
    fn whole_numbers_keep_to_their_range() {
        assert_eq!(whole("2", 2..=64), Some(2));
        assert_eq!(whole("64", 2..=64), Some(64));
        for text in ["1", "65", "", "+3", "-3", "3.0", "3k", "99999999999999999999999"] {
            assert_eq!(whole(text, 2..=64), None, "{text}");
        }
    }

    #[test]
    fn lists_have_parts_and_a_mark_before_all_of_them() {
        let read = |text| list(text, |part| !part.is_empty() && part != "bad");
        for (text, same) in [("a", "a"), ("a, b ,c:1", "a,b,c:1"), ("^a,b", "^a,b"), ("=a", "=a"), ("^ a", "^a")] {
            assert_eq!(read(text).as_deref(), Some(same));
        }
        for text in ["", "^", "=", ",", "a,", ",a", "a,^b", "^=a", "^^a", "a b", "a=b", "bad", "a,bad"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn switches_are_on_by_presence() {
        for on in ["", "1", "yes", "true", "on", "2", "anything"] {
            assert!(switch(on), "{on}");
        }
        for off in ["0", "false", "No", "OFF"] {
            assert!(!switch(off), "{off}");
        }
    }
}
