//! A measured table as a file: a line `collective bytes algorithm` for each row, in order of bytes, the last of each
//! collective for `any`. Of several for the same bytes, the first that can do a call is taken. Lines that begin with
//! `#`, and empty ones, say nothing.

use std::fmt::Write;

use shmem::config::parse_size;

use super::{COLLECTIVES, Row, Where};
use crate::plan::Collective;
use crate::plans::Algorithm;

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A line that says nothing.
    #[error("line {line} is {text:?}; give `COLLECTIVE BYTES ALGORITHM` in order of bytes, like `allreduce 2K small`")]
    Line {
        /// Its number.
        line: usize,
        /// The line.
        text: String,
    },
    /// A collective with nothing for large blocks.
    #[error("the last line of {0} must be for `any` bytes")]
    Open(&'static str),
}

/// The text of a file; `head` is said of it in a comment.
pub fn text(head: &str, rows: &[Row]) -> String {
    let mut text: String = head.lines().map(|line| format!("# {line}\n")).collect();
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {} {}", row.collective, row.limit(), row.algorithm);
    }
    text
}

/// The rows of a file.
///
/// # Errors
/// The first thing that is [`Wrong`].
pub fn parse(text: &str) -> Result<Vec<Row>, Wrong> {
    let mut rows: Vec<Row> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let in_order = |row: &Row| {
            let last = rows.iter().rfind(|last| last.collective == row.collective);
            last.is_none_or(|last| last.up_to <= row.up_to)
        };
        let row = parse_row(line).filter(in_order);
        rows.push(row.ok_or_else(|| Wrong::Line { line: i + 1, text: line.chars().take(80).collect() })?);
    }
    let end = |name: &&str| rows.iter().rfind(|row| row.collective == *name).is_some_and(|row| row.up_to != usize::MAX);
    match Collective::NAMES.into_iter().find(end) {
        Some(name) => Err(Wrong::Open(name)),
        None => Ok(rows),
    }
}

fn parse_row(line: &str) -> Option<Row> {
    let mut words = line.split_whitespace();
    let (collective, bytes, algorithm) = (words.next()?, words.next()?, words.next()?);
    let kind = Collective::NAMES.iter().position(|name| *name == collective)?;
    let up_to = if bytes == "any" { usize::MAX } else { parse_size(bytes)? };
    let algorithm: Algorithm = algorithm.parse().ok()?;
    let known = words.next().is_none() && algorithm.plans(COLLECTIVES[kind]);
    let row = Row { collective: Collective::NAMES[kind], hosts: Where::OneHost, up_to, algorithm, why: "measured" };
    known.then_some(row)
}
