//! A measured table as a file: a line `collective bytes algorithm` for each row, in order of bytes, the last of each
//! collective for `any`. Of several for the same bytes, the first that can do a call is taken. Lines `moe bytes mode` say how exchanges
//! between experts go, by the bytes of a batch. Lines that begin with `#`, and empty ones, say nothing.

use std::fmt::Write;

use shmem::config::parse_size;

use super::moe::{MoeMode, MoeRow};
use super::{COLLECTIVES, MOE, Row, Where};
use crate::plan::Collective;
use crate::plans::Algorithm;

/// What was measured on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The rows of collectives.
    pub rows: Vec<Row>,
    /// Those of the exchange between experts.
    pub moe: Vec<MoeRow>,
}

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A line that says nothing.
    #[error(
        "line {line} is {text:?}; give `COLLECTIVE BYTES ALGORITHM` in order of bytes, like `allreduce 2K small` or `moe any throughput`"
    )]
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
pub fn text(head: &str, table: &Table) -> String {
    let mut text: String = head.lines().map(|line| format!("# {line}\n")).collect();
    for row in &table.rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {} {}", row.collective, row.limit(), row.algorithm);
    }
    for row in &table.moe {
        let _ = writeln!(text, "{MOE} {} {}", row.limit(), row.mode);
    }
    text
}

/// The table of a file.
///
/// # Errors
/// The first thing that is [`Wrong`].
pub fn parse(text: &str) -> Result<Table, Wrong> {
    let mut table = Table::default();
    for (i, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let said = table.add(line);
        said.ok_or_else(|| Wrong::Line { line: i + 1, text: line.chars().take(80).collect() })?;
    }
    let open = |name: &&str| table.last(name).is_some_and(|last| last != usize::MAX);
    match Collective::NAMES.into_iter().chain([MOE]).find(open) {
        Some(name) => Err(Wrong::Open(name)),
        None => Ok(table),
    }
}

impl Table {
    /// The largest bytes so far of a collective, or of exchanges between experts.
    fn last(&self, name: &str) -> Option<usize> {
        match name {
            MOE => self.moe.last().map(|row| row.up_to),
            _ => self.rows.iter().rfind(|row| row.collective == name).map(|row| row.up_to),
        }
    }

    /// Adds what a line says; none if it says nothing.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (name, bytes, how) = (words.next()?, words.next()?, words.next()?);
        let up_to = if bytes == "any" { usize::MAX } else { parse_size(bytes)? };
        if words.next().is_some() || self.last(name).is_some_and(|last| last > up_to) {
            return None;
        }
        let (hosts, why) = (Where::OneHost, "measured");
        if name == MOE {
            let mode: MoeMode = how.parse().ok()?;
            self.moe.push(MoeRow { hosts, up_to, mode, why });
            return Some(());
        }
        let kind = Collective::NAMES.iter().position(|known| *known == name)?;
        let algorithm: Algorithm = how.parse().ok()?;
        algorithm.plans(COLLECTIVES[kind]).then(|| {
            self.rows.push(Row { collective: Collective::NAMES[kind], hosts, up_to, algorithm, why });
        })
    }
}
