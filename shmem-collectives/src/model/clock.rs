//! Virtual time: each PE has a clock, and goes on until it must wait for a signal or a meeting.
//!
//! Only the links of hosts are taken by whoever comes first; so a PE that wants one lets all whose clocks are behind its
//! own go first. Whatever happens later is caused by those, or by itself, and so is behind no clock that has been let
//! go. Everything else depends on signals, which are paired in order: the time at which a PE is looked at does not
//! matter. Equal clocks go by number, so that the result is a pure function.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::Refusal;
use super::ops::{Op, Ops, Team};

pub(super) struct Clocks<'a> {
    team: &'a Team<'a>,
    pes: Vec<Pe>,
    ready: BinaryHeap<Reverse<Turn>>,
    /// When each host's way out is free again, and its way in.
    links: Vec<[f64; 2]>,
    /// How many PEs have come to the meeting.
    met: usize,
}

struct Pe {
    ops: Box<[Op]>,
    next: usize,
    clock: f64,
    /// Signals that have been sent to it: from whom, and when they arrive.
    mail: VecDeque<(u32, f64)>,
    /// Whose signal it needs to go on.
    waits: Option<u32>,
}

/// A PE that may go on at a time.
#[derive(PartialEq)]
struct Turn(f64, usize);

impl Eq for Turn {}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Clocks<'a> {
    /// All at zero.
    pub(super) fn new(team: &'a Team<'a>, all: Vec<Ops>) -> Self {
        let pe = |ops: Ops| Pe { ops: ops.ops, next: 0, clock: 0.0, mail: VecDeque::new(), waits: None };
        let pes: Vec<Pe> = all.into_iter().map(pe).collect();
        let ready = (0..pes.len()).map(|pe| Reverse(Turn(0.0, pe))).collect();
        Clocks { team, pes, ready, links: vec![[0.0; 2]; team.link_count()], met: 0 }
    }

    /// Runs to the end, and says when the last PE is done.
    pub(super) fn go(mut self) -> Result<f64, Refusal> {
        while let Some(Reverse(Turn(_, pe))) = self.ready.pop() {
            self.advance(pe);
        }
        match self.pes.iter().position(|pe| pe.next < pe.ops.len()) {
            Some(pe) => Err(Refusal::Stuck { pe }),
            None => Ok(self.pes.iter().map(|pe| pe.clock).fold(0.0, f64::max)),
        }
    }

    fn advance(&mut self, me: usize) {
        let step = self.team.machine.step;
        while let Some(op) = self.pes[me].ops.get(self.pes[me].next).copied() {
            match op {
                Op::Work(ns) => self.pes[me].clock += ns,
                Op::Read { .. } | Op::Write { .. } if self.others_first(me) => return,
                Op::Read { from, bytes } => self.transfer(me, from as usize, me, bytes),
                Op::Write { to, bytes } => self.transfer(me, me, to as usize, bytes),
                Op::Signal { to } => {
                    self.pes[me].clock += step;
                    self.signal(me, to as usize);
                }
                Op::Wait { from } => {
                    let pe = &mut self.pes[me];
                    let Some(at) = pe.mail.iter().position(|(sender, _)| *sender == from) else {
                        pe.waits = Some(from);
                        return;
                    };
                    let arrival = pe.mail.remove(at).map_or(0.0, |(_, arrival)| arrival);
                    pe.clock = pe.clock.max(arrival) + step;
                }
                Op::Meet => {
                    self.met += 1;
                    if self.met == self.pes.len() {
                        self.meet();
                    }
                    return;
                }
            }
            self.pes[me].next += 1;
        }
    }

    /// Puts a PE behind those whose clocks are behind its own, if there are any.
    fn others_first(&mut self, me: usize) -> bool {
        let turn = Turn(self.pes[me].clock, me);
        let behind = self.ready.peek().is_some_and(|Reverse(other)| *other < turn);
        if behind {
            self.ready.push(Reverse(turn));
        }
        behind
    }

    /// Takes the way out of one host and the way in of another, each as soon as it is free: what comes too fast waits
    /// in the network.
    fn transfer(&mut self, me: usize, from: usize, to: usize, bytes: u64) {
        let (clock, takes) = (self.pes[me].clock, bytes as f64 / self.team.bandwidth(&self.team.machine.network));
        let out = &mut self.links[self.team.links(from)][0];
        let left = out.max(clock);
        *out = left + takes;
        let way_in = &mut self.links[self.team.links(to)][1];
        *way_in = way_in.max(left) + takes;
        self.pes[me].clock = *way_in;
    }

    fn signal(&mut self, me: usize, to: usize) {
        let team = self.team;
        let arrival = self.pes[me].clock + team.level(me, to).latency;
        let sender = team.symmetry.heard_as(team.n, me, to) as u32;
        let receiver = team.symmetry.stand_in(to);
        let pe = &mut self.pes[receiver];
        pe.mail.push_back((sender, arrival));
        if pe.waits == Some(sender) {
            pe.waits = None;
            self.ready.push(Reverse(Turn(pe.clock.max(arrival), receiver)));
        }
    }

    /// A dissemination barrier: in round k everybody tells the PE 2^k further on.
    fn meet(&mut self) {
        let (team, n) = (self.team, self.team.n);
        let mut clocks: Vec<f64> = self.pes.iter().map(|pe| pe.clock).collect();
        for distance in std::iter::successors(Some(1), |distance| Some(distance * 2)).take_while(|d| *d < n) {
            let sent: Vec<f64> = clocks.iter().map(|clock| clock + team.machine.step).collect();
            for (pe, clock) in clocks.iter_mut().enumerate() {
                let from = (pe + n - distance) % n;
                let arrival = sent[team.symmetry.stand_in(from)] + team.level(from, pe).latency;
                *clock = sent[pe].max(arrival) + team.machine.step;
            }
        }
        self.met = 0;
        for (me, (pe, clock)) in self.pes.iter_mut().zip(clocks).enumerate() {
            pe.clock = clock;
            pe.next += 1;
            self.ready.push(Reverse(Turn(clock, me)));
        }
    }
}
