//! How the tokens of an exchange between experts go: rows for it, as for collectives.

use std::fmt;
use std::str::FromStr;

use super::rows::limit;
use super::{MOE, Where};

/// How the tokens of a [`Moe`](crate::moe::Moe) go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoeMode {
    /// Each token is put to each PE that needs it.
    Latency,
    /// Each token is put once for each host on which it is needed, and read there in place.
    Throughput,
}

/// A row: which mode an exchange takes for so many bytes of tokens on a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeRow {
    /// Where the team lives.
    pub hosts: Where,
    /// The largest batch of a PE, in bytes; `usize::MAX` for no limit.
    pub up_to: usize,
    /// The mode.
    pub mode: MoeMode,
    /// Why.
    pub why: &'static str,
}

/// Bytes of a batch up to which a round trip between hosts costs more than tokens that cross several times.
const SMALL: usize = 1 << 20;

/// The rows that are built in, in order of bytes.
pub(super) const ROWS: [MoeRow; 3] = [
    MoeRow {
        hosts: Where::OneHost,
        up_to: usize::MAX,
        mode: MoeMode::Throughput,
        why: "each token is copied once, whoever reads it",
    },
    MoeRow { hosts: Where::Hosts, up_to: SMALL, mode: MoeMode::Latency, why: "nobody waits for what lands elsewhere" },
    MoeRow {
        hosts: Where::Hosts,
        up_to: usize::MAX,
        mode: MoeMode::Throughput,
        why: "each token crosses the wire once a host",
    },
];

impl MoeRow {
    /// The largest batch as people write it.
    pub fn limit(&self) -> String {
        limit(self.up_to)
    }
}

impl fmt::Display for MoeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MoeRow { hosts, mode, why, .. } = self;
        write!(f, "{MOE:<14}  {hosts:<8}  {:>7}  {mode:<12}  {why}", self.limit())
    }
}

impl MoeMode {
    /// Both.
    pub const ALL: [MoeMode; 2] = [MoeMode::Latency, MoeMode::Throughput];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MoeMode::Latency => "latency",
            MoeMode::Throughput => "throughput",
        }
    }
}

impl fmt::Display for MoeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMode;

impl FromStr for MoeMode {
    type Err = NoMode;

    fn from_str(name: &str) -> Result<Self, NoMode> {
        MoeMode::ALL.into_iter().find(|mode| mode.name() == name).ok_or(NoMode)
    }
}
