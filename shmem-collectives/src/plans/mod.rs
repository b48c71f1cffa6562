//! The algorithms, one a file: each a pure function from a problem and a PE's number to what that PE does.

mod direct;
mod ring;
mod small;

use crate::plan::{Collective, Plan, Problem};

/// The table of algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One hand-over, through slots.
    Small,
    /// Everybody on everybody's buffers.
    Direct,
    /// Neighbour to neighbour.
    Ring,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 3] = [Algorithm::Small, Algorithm::Direct, Algorithm::Ring];

    /// The name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Small => "small",
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
        }
    }

    /// The algorithm of a name.
    pub fn named(name: &str) -> Option<Algorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Whether it has a plan for the collective.
    pub fn plans(self, what: Collective) -> bool {
        match self {
            Algorithm::Small | Algorithm::Direct => true,
            Algorithm::Ring => ring::plans(what),
        }
    }

    /// Whether each of its folds takes all contributions, in the order of the PEs: the result is then the same for each such algorithm.
    pub fn is_complete(self) -> bool {
        matches!(self, Algorithm::Small | Algorithm::Direct)
    }

    /// Elements of slots that it needs.
    pub fn slots(self, problem: &Problem) -> usize {
        match self {
            Algorithm::Small => small::slots(problem),
            _ => 0,
        }
    }

    /// Elements of work memory that it needs.
    pub fn work(self, problem: &Problem) -> usize {
        match (self, problem.what) {
            (Algorithm::Direct, Collective::AllToAll) if problem.in_place => problem.n * problem.len,
            _ => 0,
        }
    }

    /// What PE `me` does.
    pub fn plan(self, problem: &Problem, me: usize) -> Plan {
        match self {
            Algorithm::Small => small::plan(problem, me),
            Algorithm::Direct => direct::plan(problem, me),
            Algorithm::Ring => ring::plan(problem, me),
        }
    }
}
