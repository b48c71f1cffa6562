//! Predicted times of all algorithms over sizes.

use std::fmt;

use super::{Machine, Refusal, Report, simulate};
use crate::plan::{Collective, Hosts, Problem};
use crate::plans::Algorithm;
use crate::select::PIECE;

/// Predicted times of one collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Which collective.
    pub what: Collective,
    /// PEs of the team, and hosts on which they live.
    pub n: usize,
    /// See `n`.
    pub hosts: usize,
    /// One for each size, in the order in which they were asked for.
    pub rows: Vec<Row>,
}

/// Predicted times of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Bytes of a block: what one PE has for, or gets from, one other.
    pub bytes: usize,
    /// What every algorithm that has a plan takes, in the order of [`Algorithm::ALL`].
    pub times: Vec<(Algorithm, Result<Report, Refusal>)>,
}

impl Row {
    /// The fastest, the first of equals; none if all were refused.
    pub fn fastest(&self) -> Option<(Algorithm, Report)> {
        let known = self.times.iter().filter_map(|(algorithm, time)| Some((*algorithm, time.ok()?)));
        known.min_by(|(_, a), (_, b)| a.ns.total_cmp(&b.ns))
    }
}

/// The predicted times of a collective of 4-byte elements, out of place, in the pieces in which the library moves them,
/// for blocks of `sizes` bytes (rounded up to elements). Memory that an algorithm would need is not asked for.
pub fn table(what: Collective, hosts: &Hosts, machine: &Machine, sizes: &[usize]) -> Table {
    const ELEM: usize = 4;
    let row = |bytes: &usize| {
        let (len, chunk) = (bytes.div_ceil(ELEM), PIECE / ELEM);
        let problem = Problem { what, n: hosts.n(), len, chunk, in_place: false };
        let able = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plans(what));
        let times = able.map(|algorithm| (algorithm, simulate(algorithm, &problem, hosts, machine, ELEM)));
        Row { bytes: *bytes, times: times.collect() }
    };
    Table { what, n: hosts.n(), hosts: hosts.count(), rows: sizes.iter().map(row).collect() }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table { what, n, hosts, rows } = self;
        writeln!(f, "{what}, {n} PEs on {hosts} hosts: predicted us, and GB/s of the bus with the fastest")?;
        let algorithms = rows.first().map(|row| row.times.as_slice()).unwrap_or_default();
        write!(f, "{:>12}", "bytes")?;
        algorithms.iter().try_for_each(|(algorithm, _)| write!(f, " {:>12}", algorithm.name()))?;
        writeln!(f, "  {:<12} {:>9}", "fastest", "bus")?;
        for row in rows {
            write!(f, "{:>12}", row.bytes)?;
            for (_, time) in &row.times {
                match time {
                    Ok(report) => write!(f, " {:>12.2}", report.ns / 1000.0)?,
                    Err(_) => write!(f, " {:>12}", "-")?,
                }
            }
            match row.fastest() {
                Some((algorithm, report)) => writeln!(f, "  {:<12} {:>9.2}", algorithm.name(), report.bus_bandwidth)?,
                None => writeln!(f, "  -")?,
            }
        }
        Ok(())
    }
}
