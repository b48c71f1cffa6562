//! What an operation moves and must give: the blocks of source and target, and for each part of a target whose elements
//! it holds.

use std::ops::Range;
use std::str::FromStr;

use shmem_collectives::plan::Collective;

/// What can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// To the right neighbour.
    Put,
    /// From the right neighbour.
    Get,
    /// To the right neighbour, until that of the left one has arrived.
    PutSignal,
    /// On a word of the right neighbour.
    FetchAdd,
    Barrier,
    /// Of root 0.
    Collective(Collective),
}

/// All of them.
pub(crate) const OPERATIONS: [Operation; 15] = [
    Operation::Put,
    Operation::Get,
    Operation::PutSignal,
    Operation::FetchAdd,
    Operation::Barrier,
    Operation::Collective(Collective::AllReduce),
    Operation::Collective(Collective::Reduce { root: 0 }),
    Operation::Collective(Collective::ReduceScatter),
    Operation::Collective(Collective::AllGather),
    Operation::Collective(Collective::Gather { root: 0 }),
    Operation::Collective(Collective::Scatter { root: 0 }),
    Operation::Collective(Collective::Broadcast { root: 0 }),
    Operation::Collective(Collective::AllToAll),
    Operation::Collective(Collective::InclusiveScan),
    Operation::Collective(Collective::ExclusiveScan),
];

/// What a part of a target must hold.
pub(crate) enum Holds {
    /// What it held before.
    Nothing,
    /// The source of a PE, from an element on.
    Source { pe: usize, from: usize },
    /// The combination of the sources of some PEs, from an element on.
    Sum { pes: Range<usize>, from: usize },
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::PutSignal => "put_signal",
            Operation::FetchAdd => "fetch_add",
            Operation::Barrier => "barrier",
            Operation::Collective(what) => what.name(),
        }
    }

    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            Operation::Collective(what) => Some(what),
            _ => None,
        }
    }

    /// Whether a call has a size; those without are timed once.
    pub(crate) fn is_sized(self) -> bool {
        !matches!(self, Operation::FetchAdd | Operation::Barrier)
    }

    /// Blocks in a PE's source and target.
    pub(crate) fn blocks(self, n: usize) -> (usize, usize) {
        match self {
            Operation::Collective(what) => what.blocks(n),
            _ => (1, 1),
        }
    }

    /// Bytes that the slowest link carries, by those of a block: times this, a block by its time is the bus bandwidth
    /// of nccl-tests.
    pub(crate) fn bus_factor(self, n: usize) -> f64 {
        let others = n as f64 - 1.0;
        let Operation::Collective(what) = self else { return 1.0 };
        match what {
            Collective::AllReduce => 2.0 * others / n as f64,
            Collective::Reduce { .. }
            | Collective::Broadcast { .. }
            | Collective::InclusiveScan
            | Collective::ExclusiveScan => 1.0,
            // Of all blocks, all but one's own.
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::AllToAll => others,
        }
    }

    /// The parts of PE `me`'s target of `n` PEs, in order, with their lengths in elements; a block has `len`.
    pub(crate) fn target(self, n: usize, me: usize, len: usize) -> Vec<(usize, Holds)> {
        let one = |holds| vec![(len, holds)];
        let Operation::Collective(what) = self else {
            return match self {
                Operation::Put | Operation::PutSignal => one(Holds::Source { pe: (me + n - 1) % n, from: 0 }),
                Operation::Get => one(Holds::Source { pe: (me + 1) % n, from: 0 }),
                _ => Vec::new(),
            };
        };
        let at_root = what.root().is_none_or(|root| root == me);
        match what {
            Collective::AllReduce | Collective::Reduce { .. } if at_root => one(Holds::Sum { pes: 0..n, from: 0 }),
            Collective::ReduceScatter => one(Holds::Sum { pes: 0..n, from: me * len }),
            Collective::AllGather | Collective::Gather { .. } if at_root => {
                (0..n).map(|pe| (len, Holds::Source { pe, from: 0 })).collect()
            }
            Collective::Scatter { root } => one(Holds::Source { pe: root, from: me * len }),
            Collective::Broadcast { root } => one(Holds::Source { pe: root, from: 0 }),
            Collective::AllToAll => (0..n).map(|pe| (len, Holds::Source { pe, from: me * len })).collect(),
            Collective::InclusiveScan => one(Holds::Sum { pes: 0..me + 1, from: 0 }),
            Collective::ExclusiveScan if me > 0 => one(Holds::Sum { pes: 0..me, from: 0 }),
            _ => vec![(what.blocks(n).1 * len, Holds::Nothing)],
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = OPERATIONS.into_iter().find(|operation| operation.name() == name);
        found.ok_or_else(|| format!("it is one of {}", OPERATIONS.map(Operation::name).join(", ")))
    }
}
