//! The algorithms, one a file: each a pure function from a problem and a PE's number to what that PE does.
//! [`Algorithm`] is the table of them.
//!
//! What need only be copied is mostly put, what is combined is got; all but [`Algorithm::uses_slots`] begin with
//! asking: nobody's buffers are touched before it is known that it has entered.

pub mod bruck;
pub mod direct;
pub mod double_tree;
pub mod halving;
pub mod hierarchical;
pub mod mesh;
pub mod pairwise;
mod pipeline;
pub mod recursive;
pub mod ring;
pub mod small;
pub mod tree;
pub mod wide;
mod writer;

use std::fmt;
use std::str::FromStr;

use crate::plan::{Blocks, Collective, Exchange, Hosts, Plan, Problem, Uneven};

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// [`small`]: one shot through slots.
    Small,
    /// [`direct`]: everybody works on everybody's buffers.
    Direct,
    /// [`ring`], and chains for what has a root.
    Ring,
    /// [`recursive`] doubling.
    Recursive,
    /// [`halving`] and doubling.
    Halving,
    /// [`tree`]: binomial.
    Tree,
    /// [`double_tree`]: two binary trees.
    DoubleTree,
    /// [`bruck`].
    Bruck,
    /// [`pairwise`].
    Pairwise,
    /// [`mesh`]: all through PE 0.
    Mesh,
    /// [`hierarchical`]: inside hosts and between them.
    Hierarchical,
}

/// Names no algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm(pub String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        write!(f, "`{}` is no algorithm: there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownAlgorithm {}

/// Elements of the collective's own memory that an algorithm needs on every PE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Of [`Buf::Work`](crate::plan::Buf::Work).
    pub work: usize,
    /// Of each of the two areas of [`Buf::Slot`](crate::plan::Buf::Slot).
    pub slot: usize,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 11] = [
        Algorithm::Small,
        Algorithm::Direct,
        Algorithm::Ring,
        Algorithm::Recursive,
        Algorithm::Halving,
        Algorithm::Tree,
        Algorithm::DoubleTree,
        Algorithm::Bruck,
        Algorithm::Pairwise,
        Algorithm::Mesh,
        Algorithm::Hierarchical,
    ];

    /// What it is called in settings and tables.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Small => "small",
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
            Algorithm::Recursive => "recursive",
            Algorithm::Halving => "halving",
            Algorithm::Tree => "tree",
            Algorithm::DoubleTree => "double-tree",
            Algorithm::Bruck => "bruck",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Mesh => "mesh",
            Algorithm::Hierarchical => "hierarchical",
        }
    }

    /// Whether it can do this, for any number of PEs and length.
    pub fn plans(self, what: Collective) -> bool {
        match self {
            Algorithm::Small | Algorithm::Direct => true,
            Algorithm::Ring => ring::plans(what),
            Algorithm::Recursive => recursive::plans(what),
            Algorithm::Halving => halving::plans(what),
            Algorithm::Tree => tree::plans(what),
            Algorithm::DoubleTree => double_tree::plans(what),
            Algorithm::Bruck => bruck::plans(what),
            Algorithm::Pairwise => pairwise::plans(what),
            Algorithm::Mesh => mesh::plans(what),
            Algorithm::Hierarchical => hierarchical::plans(what),
        }
    }

    /// The plan of PE `me`, in a team that lives on `hosts`; only for what it [`plans`](Self::plans).
    pub fn plan(self, problem: &Problem, hosts: &Hosts, me: usize) -> Plan {
        debug_assert!(self.plans(problem.what), "{} has no plan for {:?}", self.name(), problem.what);
        match self {
            Algorithm::Small => small::plan(problem, me),
            Algorithm::Direct => direct::plan(problem, me),
            Algorithm::Ring => ring::plan(problem, me),
            Algorithm::Recursive => recursive::plan(problem, me),
            Algorithm::Halving => halving::plan(problem, me),
            Algorithm::Tree => tree::plan(problem, me),
            Algorithm::DoubleTree => double_tree::plan(problem, me),
            Algorithm::Bruck => bruck::plan(problem, me),
            Algorithm::Pairwise => pairwise::plan(problem, me),
            Algorithm::Mesh => mesh::plan(problem, me),
            Algorithm::Hierarchical => hierarchical::plan(problem, hosts, me),
        }
    }

    /// The plan of PE `me` for blocks of different lengths; none where there is no such.
    pub fn plan_uneven(self, problem: &Uneven, me: usize) -> Option<Plan> {
        match self {
            Algorithm::Small => Some(small::plan_uneven(problem, me)),
            Algorithm::Direct => Some(direct::plan_uneven(problem, me)),
            Algorithm::Ring => Some(ring::plan_uneven(problem, me)),
            Algorithm::Halving if !problem.gather => Some(halving::plan_uneven(problem, me)),
            _ => None,
        }
    }

    /// The plan of PE `me` for an all-to-all with unequal counts, of which it knows its own part; none where there is
    /// no such.
    pub fn plan_exchange(self, problem: &Exchange, me: usize) -> Option<Plan> {
        match self {
            Algorithm::Direct => Some(direct::plan_exchange(problem, me)),
            Algorithm::Pairwise => Some(pairwise::plan_exchange(problem, me)),
            _ => None,
        }
    }

    /// Whether each of its folds takes all contributions at once, in PE order: such algorithms all give the same bits,
    /// for any length and piece.
    pub fn folds_whole(self) -> bool {
        matches!(self, Algorithm::Small | Algorithm::Direct | Algorithm::Mesh)
    }

    /// Whether its plans use [`Buf::Slot`](crate::plan::Buf::Slot). All calls of these (of any length) take the two
    /// areas in turn.
    pub fn uses_slots(self, what: Collective) -> bool {
        match self {
            Algorithm::Small | Algorithm::Bruck => true,
            Algorithm::Recursive => what == Collective::AllReduce,
            _ => false,
        }
    }

    /// What it needs of the collective's own memory, on every PE at most.
    pub fn room(self, problem: &Problem, hosts: &Hosts) -> Room {
        let Problem { what, n, len, chunk, in_place } = *problem;
        let pieces = 2 * chunk.max(1).min(len);
        match (self, what) {
            (Algorithm::Small, Collective::Broadcast { .. } | Collective::Scatter { .. }) => {
                Room { work: 0, slot: len }
            }
            (Algorithm::Small, _) => Room { work: 0, slot: n * len },
            (Algorithm::Direct, Collective::AllToAll) if in_place => Room { work: n * len, slot: 0 },
            (Algorithm::Ring, Collective::ReduceScatter | Collective::Reduce { .. }) => Room { work: pieces, slot: 0 },
            (Algorithm::Recursive, Collective::AllReduce) => Room { work: 0, slot: (recursive::core(n).0 + 1) * len },
            (Algorithm::Halving, Collective::ReduceScatter) => {
                Room { work: halving::room(&Blocks::equal(n, len)), slot: 0 }
            }
            (Algorithm::Tree, Collective::Gather { .. } | Collective::Scatter { .. }) => {
                Room { work: n / 2 * len, slot: 0 }
            }
            (Algorithm::Tree | Algorithm::DoubleTree, Collective::AllReduce | Collective::Reduce { .. }) => {
                Room { work: pieces, slot: 0 }
            }
            (Algorithm::Bruck, Collective::AllGather) => Room { work: 0, slot: n * len },
            (Algorithm::Bruck, _) => Room { work: 0, slot: bruck::rounds(n) * n.div_ceil(2) * len },
            (Algorithm::Pairwise, _) if in_place => Room { work: pieces / 2, slot: 0 },
            (Algorithm::Hierarchical, _) => Room { work: hierarchical::room(problem, hosts), slot: 0 },
            _ => Room::default(),
        }
    }

    /// What it needs for blocks of different lengths.
    pub fn room_uneven(self, problem: &Uneven) -> Room {
        let blocks = &problem.blocks;
        match self {
            Algorithm::Small if problem.gather => Room { work: 0, slot: blocks.total() },
            Algorithm::Small => Room { work: 0, slot: blocks.n() * blocks.longest() },
            Algorithm::Ring if !problem.gather => {
                Room { work: 2 * problem.chunk.max(1).min(blocks.longest()), slot: 0 }
            }
            Algorithm::Halving => Room { work: halving::room(blocks), slot: 0 },
            _ => Room::default(),
        }
    }

    /// What PE `me` needs for an all-to-all with unequal counts: this differs between PEs.
    pub fn room_exchange(self, problem: &Exchange) -> Room {
        let lanes = problem.from.iter().map(|lane| lane.len);
        match self {
            Algorithm::Direct if problem.in_place => Room { work: lanes.sum(), slot: 0 },
            Algorithm::Pairwise if problem.in_place => {
                Room { work: problem.chunk.max(1).min(lanes.max().unwrap_or(0)), slot: 0 }
            }
            _ => Room::default(),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}
