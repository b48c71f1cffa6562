//! Whether this host is fit for jobs: `shmemrun --check`.
//!
//! Everything that start-up, memory and RoCE depend upon is read once (`facts`) and judged by pure functions (`host`,
//! `network`), by the very rules that start-up follows: the sizes of heaps and the choice of ports come from there. Each
//! finding says what was looked at, what is there, and, where something is to be done, what. Starts nothing, changes
//! nothing. A host without RDMA is fit for jobs on one host.

mod facts;
mod host;
mod network;

use std::fmt;
use std::path::Path;

use crate::config::Config;
use facts::Facts;

/// What was found on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkup {
    /// In the order in which they are read best.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What: `memory`, `MTU of mlx5_0:1`.
    pub what: String,
    /// How it stands.
    pub verdict: Verdict,
    /// What is there.
    pub found: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but might be better, or is not what it seems.
    Look,
    /// Does not work.
    Fail,
}

impl Checkup {
    /// Looks at this host, for jobs with these settings and `n_pes` PEs on it: one for each core where that is `None`.
    pub fn of_this_host(config: &Config, n_pes: Option<usize>) -> Checkup {
        Checkup::of(&Facts::read(Path::new("/"), config, n_pes))
    }

    fn of(facts: &Facts) -> Checkup {
        Checkup { findings: [host::findings(facts), network::findings(facts)].concat() }
    }

    /// Whether anything does not work.
    pub fn fails(&self) -> bool {
        self.findings.iter().any(|finding| finding.verdict == Verdict::Fail)
    }
}

impl Finding {
    fn new(verdict: Verdict, what: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { what: what.into(), verdict, found: found.into(), fix: None }
    }

    fn fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

/// A line a finding, and one more for what to do.
impl fmt::Display for Checkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
        for Finding { what, verdict, found, fix } in &self.findings {
            writeln!(f, "{verdict:<4}  {what:<width$}  {found}")?;
            if let Some(fix) = fix {
                writeln!(f, "{:<4}  {:<width$}  -> {fix}", "", "")?;
            }
        }
        let count = |verdict| self.findings.iter().filter(|finding| finding.verdict == verdict).count();
        writeln!(f, "{} ok, {} to look at, {} failed", count(Verdict::Ok), count(Verdict::Look), count(Verdict::Fail))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Look => "look",
            Verdict::Fail => "FAIL",
        })
    }
}

/// Bytes to two or three figures: `1.4G`.
fn size(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let power = (63 - (bytes | 1).leading_zeros() as usize) / 10;
    let value = bytes as f64 / (1_u64 << (10 * power)) as f64;
    let digits = usize::from(power > 0 && value < 10.0);
    format!("{value:.digits$}{}", units[power])
}

#[cfg(test)]
mod tests;
