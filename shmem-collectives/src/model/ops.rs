//! A plan reduced to what takes time, which needs less memory than the plan: work of known length, transfers between
//! hosts, signals, waits and meetings.

use super::machine::{Level, Machine};
use super::symmetry::Symmetry;
use crate::plan::{At, Hosts, Plan, Step};

/// The team on the machine.
pub(super) struct Team<'a> {
    pub(super) machine: &'a Machine,
    pub(super) n: usize,
    pub(super) symmetry: Symmetry,
    /// The PEs that are run.
    run: usize,
    /// Of each PE.
    host: Vec<u32>,
    /// Of each PE, counted over all hosts.
    complex: Vec<u32>,
    elem_bytes: usize,
    cached: bool,
}

impl<'a> Team<'a> {
    /// With PEs whose larger buffer has `bytes`.
    pub(super) fn new(
        hosts: &Hosts,
        machine: &'a Machine,
        symmetry: Symmetry,
        elem_bytes: usize,
        bytes: usize,
    ) -> Self {
        let n = hosts.n();
        let run = if symmetry == Symmetry::None { n } else { hosts.pes(0).len() };
        let (mut host, mut complex) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let mut complexes = 0;
        for h in 0..hosts.count() {
            let pes = hosts.pes(h).len();
            host.extend(std::iter::repeat_n(h as u32, pes));
            complex.extend((0..pes).map(|place| complexes + (place / machine.complex_pes.max(1)) as u32));
            complexes += pes.div_ceil(machine.complex_pes.max(1)) as u32;
        }
        Team { machine, n, symmetry, run, host, complex, elem_bytes, cached: bytes <= machine.cache }
    }

    /// How many PEs are run.
    pub(super) fn run(&self) -> usize {
        self.run
    }

    /// What lies between two PEs.
    pub(super) fn level(&self, a: usize, b: usize) -> &Level {
        if self.host[a] != self.host[b] {
            &self.machine.network
        } else if self.complex[a] != self.complex[b] {
            &self.machine.host
        } else {
            &self.machine.complex
        }
    }

    /// The bandwidth of a level.
    pub(super) fn bandwidth(&self, level: &Level) -> f64 {
        if self.cached { level.cached } else { level.memory }
    }

    /// The host whose links stand for those of a PE's host.
    pub(super) fn links(&self, pe: usize) -> usize {
        self.host[self.symmetry.stand_in(pe)] as usize
    }

    /// How many hosts' links there are.
    pub(super) fn link_count(&self) -> usize {
        self.host[self.run - 1] as usize + 1
    }
}

/// What takes time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    /// That many ns.
    Work(f64),
    /// Bytes come from a PE of another host.
    Read { from: u32, bytes: u64 },
    /// Bytes go to a PE of another host.
    Write { to: u32, bytes: u64 },
    /// As in the plan.
    Signal { to: u32 },
    /// As in the plan.
    Wait { from: u32 },
    /// As in the plan.
    Meet,
}

const _: () = assert!(size_of::<Op>() == 16);

/// What one PE does.
pub(super) struct Ops {
    pub(super) ops: Box<[Op]>,
    pub(super) network_bytes: u64,
}

impl Ops {
    /// Of the plan of PE `me`.
    pub(super) fn of(plan: &Plan, me: usize, team: &Team<'_>) -> Ops {
        let mut made = Making { ops: Vec::new(), network_bytes: 0 };
        if !plan.contains(&Step::Meet) {
            made.ops.push(Op::Meet);
        }
        for step in plan {
            match step {
                Step::Fold { from, into } => made.fold(from, into, me, team),
                Step::Meet => made.ops.push(Op::Meet),
                Step::Signal { to } => made.ops.push(Op::Signal { to: *to as u32 }),
                Step::Wait { from } => made.ops.push(Op::Wait { from: *from as u32 }),
            }
        }
        Ops { ops: made.ops.into_boxed_slice(), network_bytes: made.network_bytes }
    }
}

struct Making {
    ops: Vec<Op>,
    network_bytes: u64,
}

impl Making {
    fn fold(&mut self, from: &[At], into: &[At], me: usize, team: &Team<'_>) {
        let machine = team.machine;
        let bytes = from.first().map_or(0, |at| at.len) * team.elem_bytes;
        let elsewhere = |at: &&At| team.host[at.pe] != team.host[me];
        let mut ns = machine.step * (from.len() + into.len()) as f64;
        ns += from.len().saturating_sub(1) as f64 * bytes as f64 / machine.combine;
        for at in from.iter().chain(into).filter(|at| at.pe != me && !elsewhere(at)) {
            ns += bytes as f64 / team.bandwidth(team.level(me, at.pe));
        }
        if from.iter().chain(into).all(|at| at.pe == me) {
            ns += bytes as f64 / team.bandwidth(&machine.complex);
        }
        if from.iter().any(|at| elsewhere(&at)) {
            ns += machine.network.read;
        }
        match self.ops.last_mut() {
            Some(Op::Work(before)) => *before += ns,
            _ => self.ops.push(Op::Work(ns)),
        }
        let bytes = bytes as u64;
        let mut pass = |regions: &[At], op: fn(u32, u64) -> Op| {
            let mut pes: Vec<usize> = regions.iter().filter(elsewhere).map(|at| at.pe).collect();
            pes.sort_unstable_by_key(|pe| (pe + team.n - me) % team.n);
            self.ops.extend(pes.iter().map(|pe| op(*pe as u32, bytes)));
            self.network_bytes += bytes * pes.len() as u64;
        };
        pass(from, |from, bytes| Op::Read { from, bytes });
        pass(into, |to, bytes| Op::Write { to, bytes });
    }
}
