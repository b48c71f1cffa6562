//! The checker: runs the plans of all PEs together over symbolic memory, three times in a row, and proves for this
//! problem that
//!
//! - every output element is combined from exactly the contributions that it must have, each once; where all PEs get
//!   one result, also in one and the same order, so that it is the same to the bit;
//! - no two accesses to an element, one of them a write, are unordered by signals: vector clocks (Fidge 1988, Mattern
//!   1989) tell;
//! - nobody touches a PE's buffers or its [`Buf::Work`] before that PE has entered the collective or after it may have
//!   left; nobody writes a source, nor the target of a PE that gets nothing;
//! - plans that use [`Buf::Slot`] leave nobody alone: each PE leaves after all have entered, and after the last access
//!   to its slots;
//! - no PE waits for ever, and within each call each wait has its signal and each signal its wait.
//!
//! The last three are what lets calls follow each other in any mixture: work memory is closed in time like the caller's
//! buffers, and of the two slot areas the one that a call takes was last used by the call before the last such, which
//! every PE has left when any has left the last.
//!
//! One schedule is enough: signals of a pair are taken in order and nothing else decides who goes on, so every schedule
//! has the same order of events; and without a race it has the same values. It knows nothing of types, heaps or
//! transports.

mod memory;
mod spec;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use self::memory::{Clock, Memory, Place};
use self::spec::Spec;
use crate::plan::{At, Buf, Exchange, Plan, Problem, Step, Uneven};

/// What is wrong with the plans of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw(pub String);

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the plans of a problem cost, at the worst of the PEs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Elements that one PE reads from or writes to others' memory, at most.
    pub elements: usize,
    /// Elements that one PE combines, at most.
    pub folded: usize,
    /// Signals that one PE sends, at most.
    pub signals: usize,
    /// Waits that lie behind one another on the longest chain.
    pub depth: usize,
    /// Whether every PE leaves after all have entered.
    pub meets: bool,
    /// Elements of [`Buf::Work`] that are used on a PE, at most.
    pub work: usize,
    /// Elements of [`Buf::Slot`] that are used on a PE, at most.
    pub slot: usize,
}

/// Proves the plans that `plan` makes for every PE of the problem.
///
/// # Errors
/// The first flaw that was found.
pub fn check(problem: &Problem, plan: impl Fn(usize) -> Plan) -> Result<Cost, Flaw> {
    prove(Spec::of(problem), (0..problem.n).map(plan).collect())
}

/// Proves the plans of a collective whose blocks differ in length.
///
/// # Errors
/// The first flaw that was found.
pub fn check_uneven(problem: &Uneven, plan: impl Fn(usize) -> Plan) -> Result<Cost, Flaw> {
    prove(Spec::of_uneven(problem), (0..problem.blocks.n()).map(plan).collect())
}

/// Proves the plans of an exchange, of which every PE knows its own part.
///
/// # Errors
/// The first flaw that was found; also parts that do not fit together.
pub fn check_exchange(parts: &[Exchange], plan: impl Fn(usize) -> Plan) -> Result<Cost, Flaw> {
    prove(Spec::of_exchange(parts)?, (0..parts.len()).map(plan).collect())
}

/// Proves that different collectives of one team may follow each other: each entry is a problem with the plans of all
/// its PEs.
///
/// # Errors
/// The first flaw that was found.
pub fn check_in_turn(calls: Vec<(Problem, Vec<Plan>)>) -> Result<(), Flaw> {
    let calls: Vec<Call> = calls.into_iter().map(|(problem, plans)| Call::new(Spec::of(&problem), plans)).collect();
    let turns: Vec<&Call> = calls.iter().collect();
    Run::new(&turns)?.go().map(|_| ())
}

fn prove(spec: Spec, plans: Vec<Plan>) -> Result<Cost, Flaw> {
    let call = Call::new(spec, plans);
    let turns = [&call; 3];
    let mut run = Run::new(&turns)?;
    run.go()?;
    let cost = call.cost();
    Ok(Cost { depth: run.first_depth, meets: run.meets, ..cost })
}

/// One collective call: what is wanted, and what every PE does for it.
struct Call {
    spec: Spec,
    plans: Vec<Plan>,
    slotted: bool,
}

impl Call {
    fn new(spec: Spec, plans: Vec<Plan>) -> Self {
        let slotted = regions(&plans).any(|(_, at)| at.buf == Buf::Slot);
        Call { spec, plans, slotted }
    }

    fn cost(&self) -> Cost {
        let mut worst = Cost::default();
        for (me, plan) in self.plans.iter().enumerate() {
            let (mut elements, mut folded, mut signals) = (0, 0, 0);
            for step in plan {
                match step {
                    Step::Fold { from, into } => {
                        let crossing = from.iter().chain(into).filter(|at| at.pe != me);
                        elements += crossing.map(|at| at.len).sum::<usize>();
                        folded += from.iter().skip(1).map(|at| at.len).sum::<usize>();
                    }
                    Step::Signal { .. } => signals += 1,
                    Step::Meet | Step::Wait { .. } => {}
                }
            }
            worst.elements = worst.elements.max(elements);
            worst.folded = worst.folded.max(folded);
            worst.signals = worst.signals.max(signals);
        }
        let used = |buf| regions(&self.plans).filter(|(_, at)| at.buf == buf).map(|(_, at)| at.start + at.len).max();
        Cost { work: used(Buf::Work).unwrap_or(0), slot: used(Buf::Slot).unwrap_or(0), ..worst }
    }

    /// Every wait has its signal and every signal its wait.
    fn balanced(&self) -> Result<(), Flaw> {
        let mut pairs: BTreeMap<(usize, usize), isize> = BTreeMap::new();
        for (me, plan) in self.plans.iter().enumerate() {
            for step in plan {
                let (pair, count) = match step {
                    Step::Signal { to } => ((me, *to), 1),
                    Step::Wait { from } => ((*from, me), -1),
                    Step::Fold { .. } | Step::Meet => continue,
                };
                if pair.0 == pair.1 || pair.0.max(pair.1) >= self.plans.len() {
                    return Err(Flaw(format!("PE {me} has {step:?} in a team of {}", self.plans.len())));
                }
                *pairs.entry(pair).or_default() += count;
            }
        }
        let meetings = |plan: &Plan| plan.iter().filter(|step| **step == Step::Meet).count();
        let met: Vec<usize> = self.plans.iter().map(meetings).collect();
        if met.iter().any(|count| *count != met[0]) {
            return Err(Flaw(format!("the PEs meet {met:?} times")));
        }
        match pairs.into_iter().find(|(_, count)| *count != 0) {
            Some(((from, to), count)) if count > 0 => {
                Err(Flaw(format!("{count} signals of PE {from} to PE {to} are left over")))
            }
            Some(((from, to), count)) => Err(Flaw(format!("PE {to} waits {} times too often for PE {from}", -count))),
            None => Ok(()),
        }
    }
}

fn regions(plans: &[Plan]) -> impl Iterator<Item = (usize, &At)> {
    plans.iter().enumerate().flat_map(|(me, plan)| {
        plan.iter().flat_map(move |step| {
            let (from, into): (&[At], &[At]) = match step {
                Step::Fold { from, into } => (from, into),
                _ => (&[], &[]),
            };
            from.iter().chain(into).map(move |at| (me, at))
        })
    })
}

struct Pe {
    clock: Clock,
    next: usize,
    turn: usize,
    depth: usize,
    /// Meetings that it has left.
    met: usize,
    /// What its clock showed when it entered each call.
    entered: Vec<u32>,
}

struct Run<'a> {
    turns: &'a [&'a Call],
    /// Which of the two slot areas each call takes.
    areas: Vec<usize>,
    pes: Vec<Pe>,
    memory: Memory,
    /// Signals under way from one PE to another, with the sender's clock and depth.
    signals: Vec<VecDeque<(Clock, usize)>>,
    /// The clock and depth with which each PE came to each meeting.
    meetings: Vec<Vec<Option<(Clock, usize)>>>,
    first_depth: usize,
    meets: bool,
}

impl<'a> Run<'a> {
    fn new(turns: &'a [&'a Call]) -> Result<Self, Flaw> {
        let n = turns.first().map_or(0, |call| call.plans.len());
        if n > 128 || turns.iter().any(|call| call.plans.len() != n) {
            return Err(Flaw(format!("{n} PEs: the checker takes up to 128, the same number in every call")));
        }
        turns.iter().try_for_each(|call| call.balanced())?;
        let pes = (0..n)
            .map(|_| Pe { clock: vec![0; n], next: 0, turn: 0, depth: 0, met: 0, entered: Vec::new() })
            .collect::<Vec<_>>();
        let slotted = |upto: usize| turns[..upto].iter().filter(|call| call.slotted).count();
        Ok(Run {
            turns,
            areas: (0..turns.len()).map(|turn| slotted(turn) % 2).collect(),
            pes,
            memory: Memory::new(n),
            signals: vec![VecDeque::new(); n * n],
            meetings: Vec::new(),
            first_depth: 0,
            meets: true,
        })
    }

    fn go(&mut self) -> Result<(), Flaw> {
        let n = self.pes.len();
        for pe in 0..n {
            self.enter(pe)?;
        }
        loop {
            let mut moved = false;
            for pe in 0..n {
                while self.pes[pe].turn < self.turns.len() && self.step(pe)? {
                    moved = true;
                }
            }
            if self.pes.iter().all(|pe| pe.turn == self.turns.len()) {
                return Ok(());
            }
            if !moved {
                return Err(self.deadlock());
            }
        }
    }

    /// One step of a PE; false if it must wait.
    fn step(&mut self, pe: usize) -> Result<bool, Flaw> {
        let call = self.turns[self.pes[pe].turn];
        let n = self.pes.len();
        let Some(step) = call.plans[pe].get(self.pes[pe].next) else {
            self.leave(pe)?;
            self.pes[pe].turn += 1;
            self.pes[pe].next = 0;
            if self.pes[pe].turn < self.turns.len() {
                self.enter(pe)?;
            }
            return Ok(true);
        };
        match step {
            Step::Wait { from } => {
                let Some((clock, depth)) = self.signals[from * n + pe].pop_front() else {
                    return Ok(false);
                };
                self.hear(pe, &clock, depth);
            }
            Step::Meet => {
                let at = self.pes[pe].met;
                if self.meetings.len() == at {
                    self.meetings.push(vec![None; n]);
                }
                let here = (self.pes[pe].clock.clone(), self.pes[pe].depth);
                self.meetings[at][pe].get_or_insert(here);
                let Some(all) = self.meetings[at].iter().cloned().collect::<Option<Vec<_>>>() else { return Ok(false) };
                self.pes[pe].met += 1;
                all.iter().for_each(|(clock, depth)| self.hear(pe, clock, *depth));
            }
            Step::Signal { to } => {
                let note = (self.pes[pe].clock.clone(), self.pes[pe].depth);
                self.signals[pe * n + to].push_back(note);
            }
            Step::Fold { from, into } => self.fold(pe, &call.spec, from, into)?,
        }
        self.pes[pe].clock[pe] += 1;
        self.pes[pe].next += 1;
        Ok(true)
    }

    /// A PE learns all that another knew.
    fn hear(&mut self, pe: usize, clock: &Clock, depth: usize) {
        let me = &mut self.pes[pe];
        me.clock.iter_mut().zip(clock).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        me.depth = me.depth.max(depth + 1);
        if me.turn == 0 {
            self.first_depth = self.first_depth.max(me.depth);
        }
    }

    fn fold(&mut self, pe: usize, spec: &Spec, from: &[At], into: &[At]) -> Result<(), Flaw> {
        let len = from.first().map_or(0, |at| at.len);
        if from.is_empty() || into.is_empty() || from.iter().chain(into).any(|at| at.len != len) {
            return Err(Flaw(format!("PE {pe} folds regions of different lengths: {from:?} into {into:?}")));
        }
        from.iter().chain(into).try_for_each(|at| spec.bounds(pe, at))?;
        if let Some(at) = into.iter().find(|at| at.buf == Buf::Src) {
            return Err(Flaw(format!("PE {pe} writes {at:?}, a source")));
        }
        let area = self.areas[self.pes[pe].turn];
        let from: Vec<Place> = from.iter().map(|at| spec.place(at, area)).collect();
        let into: Vec<Place> = into.iter().map(|at| spec.place(at, area)).collect();
        for (i, target) in into.iter().enumerate() {
            let partly = |other: &&Place| target.partly_overlaps(other, len);
            if let Some(other) = from.iter().chain(&into[..i]).find(partly) {
                return Err(Flaw(format!("PE {pe} folds into {target:?}, which partly overlaps {other:?}")));
            }
            if into[..i].contains(target) {
                return Err(Flaw(format!("PE {pe} folds into {target:?} twice")));
            }
        }
        let clock = &self.pes[pe].clock;
        let mut parts = Vec::with_capacity(from.len());
        for i in 0..len {
            parts.clear();
            for place in &from {
                parts.push(self.memory.read(pe, clock, place.plus(i))?);
            }
            let value = self.memory.combined(pe, &parts)?;
            for place in &into {
                // A copy onto itself is none.
                if from.len() > 1 || *place != from[0] {
                    self.memory.write(pe, clock, place.plus(i), value)?;
                }
            }
        }
        Ok(())
    }

    /// The caller fills its buffers.
    fn enter(&mut self, pe: usize) -> Result<(), Flaw> {
        let turn = self.pes[pe].turn;
        let spec = &self.turns[turn].spec;
        self.overwrite(pe, spec)?;
        let clock = &self.pes[pe].clock;
        let source = spec.place(&At::new(pe, Buf::Src, 0..0), 0);
        for i in 0..spec.source[pe] {
            let value = self.memory.named(turn, pe, i);
            self.memory.write(pe, clock, source.plus(i), value)?;
        }
        let now = self.pes[pe].clock[pe];
        self.pes[pe].entered.push(now);
        self.pes[pe].clock[pe] += 1;
        Ok(())
    }

    /// The caller reads its target and may overwrite both buffers.
    fn leave(&mut self, pe: usize) -> Result<(), Flaw> {
        let turn = self.pes[pe].turn;
        let call = self.turns[turn];
        let clock = &self.pes[pe].clock;
        let target = call.spec.place(&At::new(pe, Buf::Dst, 0..0), 0);
        for i in 0..call.spec.target[pe] {
            let value = self.memory.read(pe, clock, target.plus(i))?;
            self.memory.judge(pe, i, value, turn, &call.spec.wanted(pe, i), call.spec.same)?;
        }
        let missed = |other: &usize| {
            self.pes[*other].entered.get(turn).is_none_or(|entered| *other != pe && clock[*other] <= *entered)
        };
        if let Some(other) = (0..self.pes.len()).find(missed) {
            self.meets = false;
            if call.slotted {
                return Err(Flaw(format!(
                    "PE {pe} leaves before it knows that PE {other} has entered, yet slots are used"
                )));
            }
        }
        if call.slotted {
            self.memory.forget(pe, clock, Buf::Slot, self.areas[turn])?;
        }
        self.overwrite(pe, &call.spec)?;
        self.pes[pe].clock[pe] += 1;
        Ok(())
    }

    /// What the caller, or another collective, may do to this PE's memory when it is outside.
    fn overwrite(&mut self, pe: usize, spec: &Spec) -> Result<(), Flaw> {
        let clock = &self.pes[pe].clock;
        for (buf, len) in [(Buf::Src, spec.source[pe]), (Buf::Dst, spec.target[pe])] {
            let start = spec.place(&At::new(pe, buf, 0..0), 0);
            for i in 0..len {
                self.memory.write(pe, clock, start.plus(i), memory::UNKNOWN)?;
            }
        }
        self.memory.forget(pe, clock, Buf::Work, 0)
    }

    fn deadlock(&self) -> Flaw {
        let stuck = self.pes.iter().enumerate().filter(|(_, pe)| pe.turn < self.turns.len());
        let stuck: Vec<String> = stuck
            .map(|(pe, state)| {
                format!("PE {pe} at step {} ({:?})", state.next, self.turns[state.turn].plans[pe].get(state.next))
            })
            .collect();
        Flaw(format!("deadlock: {}", stuck.join(", ")))
    }
}

#[cfg(test)]
mod tests;
