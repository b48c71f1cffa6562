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
    Sync,
    /// Of root 0.
    Collective(Collective),
    /// With blocks of different lengths (collect).
    AllGatherV,
    /// With blocks of different lengths.
    ReduceScatterV,
    /// With blocks of different lengths, some of them empty.
    AllToAllV,
    /// Of every second element.
    AllToAllStrided,
}

/// From an element to the next of a strided all-to-all.
pub(crate) const STRIDE: usize = 2;

/// All of them.
pub(crate) const OPERATIONS: [Operation; 20] = [
    Operation::Put,
    Operation::Get,
    Operation::PutSignal,
    Operation::FetchAdd,
    Operation::Barrier,
    Operation::Sync,
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
    Operation::AllGatherV,
    Operation::ReduceScatterV,
    Operation::AllToAllV,
    Operation::AllToAllStrided,
];

/// The elements of one of the blocks of different lengths, which have `len` on average or hardly less: from half to one
/// and a half of it, and of those from one PE to another some are empty.
pub(crate) fn share(i: usize, len: usize) -> usize {
    [len / 2, len, len + len / 2][i % 3]
}

/// The elements that PE `from` has for PE `to` in an all-to-all with blocks of different lengths.
pub(crate) fn sent(from: usize, to: usize, len: usize) -> usize {
    if (from + 2 * to) % 7 == 6 { 0 } else { share(from + to, len) }
}

/// What a part of a target must hold.
pub(crate) enum Holds {
    /// What it held before.
    Nothing,
    /// The source of a PE, from an element on.
    Source { pe: usize, from: usize },
    /// Every [`STRIDE`]-th element of the source of a PE, from an element on; between them what it held before.
    Strided { pe: usize, from: usize },
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
            Operation::Sync => "sync",
            Operation::Collective(what) => what.name(),
            Operation::AllGatherV => "allgatherv",
            Operation::ReduceScatterV => "reduce_scatterv",
            Operation::AllToAllV => "alltoallv",
            Operation::AllToAllStrided => "alltoalls",
        }
    }

    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            Operation::Collective(what) => Some(what),
            _ => None,
        }
    }

    /// The collective for whose algorithms its own are chosen.
    pub(crate) fn like(self) -> Option<Collective> {
        match self {
            Operation::Collective(what) => Some(what),
            Operation::AllGatherV => Some(Collective::AllGather),
            Operation::ReduceScatterV => Some(Collective::ReduceScatter),
            Operation::AllToAllV => Some(Collective::AllToAll),
            _ => None,
        }
    }

    /// Whether it combines elements.
    pub(crate) fn reduces(self) -> bool {
        self.like().is_some_and(Collective::reduces)
    }

    /// Whether a call has a size; those without are timed once.
    pub(crate) fn is_sized(self) -> bool {
        !matches!(self, Operation::FetchAdd | Operation::Barrier | Operation::Sync)
    }

    /// Blocks in a PE's source and target, at most.
    pub(crate) fn blocks(self, n: usize) -> (usize, usize) {
        let half_more = n + n.div_ceil(2);
        match self {
            Operation::Collective(what) => what.blocks(n),
            Operation::AllGatherV => (2, half_more),
            Operation::ReduceScatterV => (half_more, 2),
            Operation::AllToAllV => (half_more, half_more),
            Operation::AllToAllStrided => (STRIDE * n, STRIDE * n),
            _ => (1, 1),
        }
    }

    /// The elements of PE `me`'s source of `n`.
    pub(crate) fn source(self, n: usize, me: usize, len: usize) -> usize {
        match self {
            Operation::AllGatherV => share(me, len),
            Operation::ReduceScatterV => (0..n).map(|pe| share(pe, len)).sum(),
            Operation::AllToAllV => (0..n).map(|pe| sent(me, pe, len)).sum(),
            _ => self.blocks(n).0 * len,
        }
    }

    /// Bytes that the slowest link carries, by those of a block: times this, a block by its time is the bus bandwidth
    /// of nccl-tests.
    pub(crate) fn bus_factor(self, n: usize) -> f64 {
        let others = n as f64 - 1.0;
        let what = match self {
            Operation::AllToAllStrided => Collective::AllToAll,
            _ => match self.like() {
                Some(what) => what,
                None => return 1.0,
            },
        };
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
                Operation::AllGatherV => (0..n).map(|pe| (share(pe, len), Holds::Source { pe, from: 0 })).collect(),
                Operation::ReduceScatterV => {
                    let from = (0..me).map(|pe| share(pe, len)).sum();
                    vec![(share(me, len), Holds::Sum { pes: 0..n, from })]
                }
                Operation::AllToAllV => {
                    let from = |pe: usize| (0..me).map(|to| sent(pe, to, len)).sum();
                    (0..n).map(|pe| (sent(pe, me, len), Holds::Source { pe, from: from(pe) })).collect()
                }
                Operation::AllToAllStrided => {
                    (0..n).map(|pe| (STRIDE * len, Holds::Strided { pe, from: STRIDE * me * len })).collect()
                }
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
        let name = if name == "collect" { "allgatherv" } else { name };
        let found = OPERATIONS.into_iter().find(|operation| operation.name() == name);
        found.ok_or_else(|| format!("it is one of {}", OPERATIONS.map(Operation::name).join(", ")))
    }
}
