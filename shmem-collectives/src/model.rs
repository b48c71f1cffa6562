//! The cost model: runs the very plans that `run` runs in virtual time, on a [`Machine`] that need not
//! exist, with up to some ten thousands of PEs. Times are in ns, bandwidths in bytes/ns (GB/s).
//!
//! What a step costs, at the bandwidth of the level that lies between the two PEs (same core complex, same host,
//! network):
//!
//! - a fold: each region of another PE that is read or written, one after the other; the combination of each source
//!   after the first; [`Machine::step`] for each region. Own regions are touched while others are waited for, and cost
//!   nothing; where there are only own ones, one copy;
//! - what goes between hosts occupies the way out of one host and the way in of the other for as long as it takes, in
//!   the order in which it was asked for; the rest of a host's memory is not shared. A fold asks the PE behind its own
//!   first and goes round from there, lest all turn to the same one, and waits for [`Level::read`] before;
//! - a signal arrives [`Level::latency`] later than it was sent; signals occupy no link;
//! - a meeting is a dissemination barrier, and a plan without one is run after one, as the engine does it.
//!
//! Up to [`EXACT`] PEs, all are run. Beyond, where hosts are equal and the plans of one host's PEs are those of every
//! host with other numbers, only one host is run: what its PEs do to others is what others do to them at that time. This
//! relabelling is looked for, and compared on samples. Where there is none, all PEs are run, up to [`LIMIT`] steps and
//! regions, beyond which is refused. Two-level plans, whose PEs have no such likeness, are run on three smaller numbers
//! of hosts and drawn out (see [`How::DrawnOut`]).
//!
//! It knows nothing of values, and trusts the [`check`](crate::check)er that plans are right.

mod clock;
mod machine;
mod ops;
mod symmetry;
mod table;

pub use self::machine::{Level, Machine};
pub use self::table::{Row, Table, table};

use self::clock::Clocks;
use self::ops::{Ops, Team};
use self::symmetry::Symmetry;
use crate::plan::{Collective, Hosts, Plan, Problem, Step};
use crate::plans::Algorithm;

/// PEs up to which all are always run.
pub const EXACT: usize = 256;
/// PEs up to which two-level plans are always run: to make one of them, all PEs are looked at several times.
const TWO_LEVELS: usize = 1024;
/// Steps and regions of all PEs' plans together that are run at most: they need up to 16 bytes each.
pub const LIMIT: u64 = 1 << 26;

/// What a collective takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// From the entry of all PEs, at the same moment, to the return of the last, in ns.
    pub ns: f64,
    /// Bytes that go between hosts, of all hosts together.
    pub network_bytes: f64,
    /// Bytes/ns at which a link must work for this, whatever the algorithm, as NCCL's tests define it.
    pub bus_bandwidth: f64,
    /// How this was found.
    pub how: How,
}

/// How a time was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All PEs were run.
    Run,
    /// The PEs of one host were run, and stand for those of all: as exact, but for the order of those that want a link
    /// at the same moment, which has made up to 15 % where all read from all.
    OneHost,
    /// All PEs of three smaller numbers of hosts were run, and the curves through them drawn out: the time in terms
    /// that are constant, grow with the number of hosts H (messages) and fall with 1/H (shares), the bytes as a
    /// quadratic. An estimate, within a tenth of a run where both were possible; too long for an all-reduce with fewer
    /// elements than PEs, many of whom have nothing to do.
    DrawnOut,
}

/// Why there is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The algorithm does not do this collective.
    #[error("{algorithm} has no plan for {what}")]
    NoPlan {
        /// The algorithm.
        algorithm: Algorithm,
        /// The collective.
        what: Collective,
    },
    /// The hosts are not those of the team.
    #[error("the problem has {n} PEs, the hosts have {hosts}")]
    Hosts {
        /// PEs of the problem.
        n: usize,
        /// PEs of the hosts.
        hosts: usize,
    },
    /// The plans are too long to be run.
    #[error("the plans of {n} PEs take at least {steps} steps to make and run: the limit is {}", LIMIT)]
    TooLarge {
        /// PEs of the problem.
        n: usize,
        /// What they take at least.
        steps: u64,
    },
    /// A wait has no signal: the plans are wrong.
    #[error("PE {pe} waits for ever")]
    Stuck {
        /// Who.
        pe: usize,
    },
}

/// The time of one collective under one algorithm, with elements of `elem_bytes` bytes. A pure function.
///
/// Where one host stands for all and the elements do not divide among the PEs, those of the next multiple are taken.
///
/// # Errors
/// A [`Refusal`], if there is no such plan, if the hosts have another number of PEs or none, or if it is too large.
pub fn simulate(
    algorithm: Algorithm,
    problem: &Problem,
    hosts: &Hosts,
    machine: &Machine,
    elem_bytes: usize,
) -> Result<Report, Refusal> {
    let (n, what) = (problem.n, problem.what);
    if n == 0 || n != hosts.n() {
        return Err(Refusal::Hosts { n, hosts: hosts.n() });
    }
    if !algorithm.plans(what) {
        return Err(Refusal::NoPlan { algorithm, what });
    }
    let case = Case { algorithm, problem, hosts, machine, elem_bytes, bytes: bytes(problem, elem_bytes) };
    case.affordable()?;
    let (took, how) = match case.symmetric() {
        Some((symmetry, len)) if n > EXACT => {
            let problem = Problem { len, ..*problem };
            (Case { problem: &problem, ..case }.run(symmetry)?, How::OneHost)
        }
        _ if case.draws_out() => (case.draw_out()?, How::DrawnOut),
        _ => (case.run_all()?, How::Run),
    };
    let bus_bandwidth = if took.ns > 0.0 { bus_bytes(problem, elem_bytes) / took.ns } else { 0.0 };
    Ok(Report { ns: took.ns, network_bytes: took.network_bytes, bus_bandwidth, how })
}

/// Bytes of the larger of a PE's two buffers.
fn bytes(problem: &Problem, elem_bytes: usize) -> usize {
    let (sources, targets) = problem.what.blocks(problem.n);
    sources.max(targets).saturating_mul(problem.len).saturating_mul(elem_bytes)
}

/// Bytes that must pass the busiest link.
fn bus_bytes(problem: &Problem, elem_bytes: usize) -> f64 {
    let Problem { what, n, .. } = *problem;
    let all = bytes(problem, elem_bytes) as f64;
    let others = (n - 1) as f64 / n as f64;
    match what {
        Collective::AllReduce => 2.0 * others * all,
        Collective::ReduceScatter
        | Collective::AllGather
        | Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::AllToAll => others * all,
        Collective::Broadcast { .. }
        | Collective::Reduce { .. }
        | Collective::InclusiveScan
        | Collective::ExclusiveScan => all,
    }
}

/// Time and bytes.
#[derive(Clone, Copy)]
struct Took {
    ns: f64,
    network_bytes: f64,
}

#[derive(Clone, Copy)]
struct Case<'a> {
    algorithm: Algorithm,
    problem: &'a Problem,
    hosts: &'a Hosts,
    machine: &'a Machine,
    elem_bytes: usize,
    /// Of the larger buffer, which says whether copies stay in the cache; that of the whole team also where a smaller
    /// one is run.
    bytes: usize,
}

impl Case<'_> {
    fn plan(&self, pe: usize) -> Plan {
        self.algorithm.plan(self.problem, self.hosts, pe)
    }

    /// Refuses what would take too long before there is anything to be counted: the direct scan of a PE has n^2/2
    /// regions, and to make a PE's two-level plan, all others are looked at several times.
    fn affordable(&self) -> Result<(), Refusal> {
        let Problem { what, n, len, .. } = *self.problem;
        let square = (n as u64).saturating_mul(n as u64);
        let scan = matches!(what, Collective::InclusiveScan | Collective::ExclusiveScan);
        let steps = match self.algorithm {
            Algorithm::Direct if scan => square.saturating_mul(n.min(len) as u64) / 2,
            Algorithm::Hierarchical if !self.draws_out() => square.saturating_mul(4),
            _ => 0,
        };
        if steps > LIMIT { Err(Refusal::TooLarge { n, steps }) } else { Ok(()) }
    }

    /// How PEs correspond, and with how many elements.
    fn symmetric(&self) -> Option<(Symmetry, usize)> {
        let Problem { n, len, .. } = *self.problem;
        if n <= EXACT {
            return None;
        }
        let even = if len > n { len.next_multiple_of(n) } else { len };
        [len, even].into_iter().find_map(|len| {
            let problem = Problem { len, ..*self.problem };
            let case = Case { problem: &problem, ..*self };
            Symmetry::find(self.hosts, |pe| case.plan(pe)).map(|symmetry| (symmetry, len))
        })
    }

    fn run_all(&self) -> Result<Took, Refusal> {
        let n = self.problem.n;
        let some = [1 % n, n / 2, n - 1].map(|pe| weight(&self.plan(pe)));
        let steps = some.into_iter().min().unwrap_or(0).saturating_mul(n as u64);
        if steps > LIMIT {
            return Err(Refusal::TooLarge { n, steps });
        }
        self.run(Symmetry::None)
    }

    fn run(&self, symmetry: Symmetry) -> Result<Took, Refusal> {
        let n = self.problem.n;
        let team = Team::new(self.hosts, self.machine, symmetry, self.elem_bytes, self.bytes);
        let mut steps = 0;
        let mut all = Vec::with_capacity(team.run());
        for pe in 0..team.run() {
            let plan = self.plan(pe);
            steps += weight(&plan);
            if steps > LIMIT {
                return Err(Refusal::TooLarge { n, steps });
            }
            all.push(Ops::of(&plan, pe, &team));
        }
        let network_bytes = all.iter().map(|ops| ops.network_bytes).sum::<u64>() as f64 * (n / team.run()) as f64;
        Ok(Took { ns: Clocks::new(&team, all).go()?, network_bytes })
    }

    fn draws_out(&self) -> bool {
        let large = self.algorithm == Algorithm::Hierarchical && self.problem.n > TWO_LEVELS;
        large && self.hosts.count() >= 16 && symmetry::each(self.hosts).is_some()
    }

    /// See [`How::DrawnOut`]. The pieces grow as the hosts get fewer, so that there are as many of them.
    fn draw_out(&self) -> Result<Took, Refusal> {
        let Problem { n, chunk, .. } = *self.problem;
        let (count, each) = (self.hosts.count(), n / self.hosts.count());
        let most = (EXACT / each).clamp(8, count);
        let counts = [most / 4, most / 2, most];
        let mut took = [Took { ns: 0.0, network_bytes: 0.0 }; 3];
        for (took, count) in took.iter_mut().zip(counts) {
            let hosts = Hosts::new(std::iter::repeat_n(each, count));
            let chunk = chunk.saturating_mul(n) / hosts.n();
            let problem = Problem { n: hosts.n(), chunk, ..*self.problem };
            *took = Case { problem: &problem, hosts: &hosts, ..*self }.run_all()?;
        }
        let h = counts.map(|count| count as f64);
        let x = count as f64;
        // A curve a + b H + c / H is a quadratic divided by H.
        let mut scaled = [0.0; 3];
        (0..3).for_each(|i| scaled[i] = took[i].ns * h[i]);
        let ns = quadratic(h, scaled, x) / x;
        Ok(Took { ns: ns.max(took[2].ns), network_bytes: quadratic(h, took.map(|took| took.network_bytes), x) })
    }
}

/// Steps and regions of a plan.
fn weight(plan: &Plan) -> u64 {
    let of = |step: &Step| match step {
        Step::Fold { from, into } => from.len() + into.len(),
        _ => 1,
    };
    plan.iter().map(of).sum::<usize>() as u64
}

/// The quadratic through three points, at `at` (Lagrange).
fn quadratic(x: [f64; 3], y: [f64; 3], at: f64) -> f64 {
    let term = |i: usize| {
        let others = [(i + 1) % 3, (i + 2) % 3];
        others.iter().fold(y[i], |value, j| value * (at - x[*j]) / (x[i] - x[*j]))
    };
    term(0) + term(1) + term(2)
}

#[cfg(test)]
mod tests;
