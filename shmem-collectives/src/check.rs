//! The checker: runs the plans of all PEs together over symbolic memory, twice in a row, and proves for this problem that
//!
//! - every output element is combined from exactly the contributions that it must have, each once, and for reductions in an order that is the same on all PEs;
//! - no two accesses to an element, one of them a write, are unordered by signals: vector clocks (Fidge 1988, Mattern 1989) tell;
//! - nobody touches a caller's buffers before that PE has entered the collective or after it may have left;
//! - what one collective leaves in the work memory does not meet the next, which may have begun on other PEs;
//! - no PE waits for ever, and no signal is left over.
//!
//! It knows nothing of types, heaps or transports.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

use crate::plan::{At, Buf, Collective, Plan, Problem, Step};

/// What is wrong with the plans of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw(pub String);

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the plans of a problem cost, summed over PEs or at the worst of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Elements that one PE reads from or writes to others' memory, at most.
    pub elements: usize,
    /// Elements that one PE combines, at most.
    pub folded: usize,
    /// Waits that lie behind one another on the longest chain.
    pub depth: usize,
}

/// A symbolic value: a sum in the order in which it was made. Names are (round, PE, element of its source).
type Term = (u8, u32, u32);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Value {
    /// Whatever the caller, or nobody, left there.
    #[default]
    Unknown,
    Sum(Box<Expr>),
}

/// An element of memory.
type Place = (usize, Buf, usize);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Expr {
    One(Term),
    Fold(Vec<Expr>),
}

impl Expr {
    fn terms(&self, into: &mut Vec<Term>) {
        match self {
            Expr::One(term) => into.push(*term),
            Expr::Fold(parts) => parts.iter().for_each(|part| part.terms(into)),
        }
    }
}

/// Proves the plans that `plan` makes for every PE of the problem.
///
/// # Errors
/// The first flaw that was found.
pub fn check(problem: &Problem, plan: impl Fn(usize) -> Plan) -> Result<Cost, Flaw> {
    let plans: Vec<Plan> = (0..problem.n).map(plan).collect();
    let mut run = Run::new(problem, &plans);
    run.go()?;
    Ok(cost(problem.n, &plans, run.depth))
}

fn cost(n: usize, plans: &[Plan], depth: usize) -> Cost {
    let mut worst = Cost { depth, ..Cost::default() };
    for (me, plan) in plans.iter().enumerate().take(n) {
        let (mut elements, mut folded) = (0, 0);
        for step in plan {
            if let Step::Fold { from, into } = step {
                elements += from.iter().chain(into).filter(|at| at.pe != me).map(|at| at.len).sum::<usize>();
                folded += from.iter().skip(1).map(|at| at.len).sum::<usize>();
            }
        }
        worst.elements = worst.elements.max(elements);
        worst.folded = worst.folded.max(folded);
    }
    worst
}

type Clock = Vec<u32>;

/// Who touched an element last, for the race check.
#[derive(Debug, Clone, Default)]
struct Touched {
    write: Option<(usize, u32)>,
    reads: BTreeMap<usize, u32>,
}

struct Pe {
    clock: Clock,
    next: usize,
    round: u8,
    depth: usize,
}

struct Run<'a> {
    problem: &'a Problem,
    plans: &'a [Plan],
    pes: Vec<Pe>,
    /// What every element holds, and who touched it.
    memory: HashMap<Place, (Value, Touched)>,
    /// Signals under way from one PE to another, with the sender's clock.
    signals: BTreeMap<(usize, usize), VecDeque<(Clock, usize)>>,
    depth: usize,
}

/// How often the collective runs in a row.
const ROUNDS: u8 = 2;

impl<'a> Run<'a> {
    fn new(problem: &'a Problem, plans: &'a [Plan]) -> Self {
        let n = problem.n;
        let pes = (0..n).map(|_| Pe { clock: vec![0; n], next: 0, round: 0, depth: 0 }).collect();
        Run { problem, plans, pes, memory: HashMap::new(), signals: BTreeMap::new(), depth: 0 }
    }

    fn go(&mut self) -> Result<(), Flaw> {
        let n = self.problem.n;
        for pe in 0..n {
            self.enter(pe)?;
        }
        loop {
            let mut moved = false;
            for pe in 0..n {
                while self.pes[pe].round < ROUNDS && self.step(pe)? {
                    moved = true;
                }
            }
            if self.pes.iter().all(|pe| pe.round == ROUNDS) {
                break;
            }
            if !moved {
                return Err(self.deadlock());
            }
        }
        match self.signals.iter().find(|(_, queue)| !queue.is_empty()) {
            Some(((from, to), queue)) => {
                Err(Flaw(format!("{} signals of PE {from} to PE {to} are left over", queue.len())))
            }
            None => Ok(()),
        }
    }

    /// One step of a PE; false if it must wait.
    fn step(&mut self, pe: usize) -> Result<bool, Flaw> {
        let Some(step) = self.plans[pe].get(self.pes[pe].next) else {
            self.leave(pe)?;
            self.pes[pe].round += 1;
            self.pes[pe].next = 0;
            if self.pes[pe].round < ROUNDS {
                self.enter(pe)?;
            }
            return Ok(true);
        };
        match step {
            Step::Wait { from } => {
                let Some((clock, depth)) = self.signals.entry((*from, pe)).or_default().pop_front() else {
                    return Ok(false);
                };
                for (mine, theirs) in self.pes[pe].clock.iter_mut().zip(&clock) {
                    *mine = (*mine).max(*theirs);
                }
                self.pes[pe].depth = self.pes[pe].depth.max(depth + 1);
                self.depth = self.depth.max(self.pes[pe].depth);
            }
            Step::Signal { to } => {
                if *to == pe || *to >= self.problem.n {
                    return Err(Flaw(format!("PE {pe} signals PE {to} of {}", self.problem.n)));
                }
                let note = (self.pes[pe].clock.clone(), self.pes[pe].depth);
                self.signals.entry((pe, *to)).or_default().push_back(note);
            }
            Step::Fold { from, into } => self.fold(pe, from, into)?,
        }
        self.pes[pe].clock[pe] += 1;
        self.pes[pe].next += 1;
        Ok(true)
    }

    fn fold(&mut self, pe: usize, from: &[At], into: &[At]) -> Result<(), Flaw> {
        let len = from.first().map_or(0, |at| at.len);
        if from.is_empty() || into.is_empty() || from.iter().chain(into).any(|at| at.len != len) {
            return Err(Flaw(format!("PE {pe} folds regions of different lengths: {from:?} into {into:?}")));
        }
        for at in from.iter().chain(into) {
            self.bounds(pe, at)?;
        }
        for (i, target) in into.iter().enumerate() {
            for other in from.iter().chain(&into[..i]) {
                let ((pe, buf, a), (other_pe, other_buf, b)) = (self.place(target, 0), self.place(other, 0));
                if (pe, buf) == (other_pe, other_buf) && a != b && a < b + len && b < a + len {
                    return Err(Flaw(format!("PE {pe} folds into {target:?}, which partly overlaps {other:?}")));
                }
            }
        }
        for i in 0..len {
            let mut parts = Vec::new();
            for at in from {
                match self.read(pe, at, i)? {
                    Value::Sum(expr) => parts.push(*expr),
                    Value::Unknown => {
                        return Err(Flaw(format!(
                            "PE {pe} reads element {} of {at:?} before it was written",
                            at.start + i
                        )));
                    }
                }
            }
            let expr = if parts.len() == 1 { parts.remove(0) } else { Expr::Fold(parts) };
            for at in into {
                // A copy onto itself is none.
                if from.len() > 1 || self.place(at, i) != self.place(&from[0], i) {
                    self.write(pe, at, i, expr.clone())?;
                }
            }
        }
        Ok(())
    }

    fn bounds(&self, pe: usize, at: &At) -> Result<(), Flaw> {
        let (source, target) = self.problem.what.blocks(self.problem.n);
        let limit = match at.buf {
            Buf::Src => source * self.problem.len,
            Buf::Dst => target * self.problem.len,
            Buf::Work => usize::MAX,
        };
        if at.pe < self.problem.n && at.start + at.len <= limit {
            return Ok(());
        }
        Err(Flaw(format!("PE {pe} touches {at:?}, which ends at {limit}")))
    }

    /// Which memory an element of a region lies in: in place, source and target are one.
    fn place(&self, at: &At, i: usize) -> Place {
        let (source, target) = if self.problem.in_place { self.problem.offsets(at.pe) } else { (0, 0) };
        let element = at.start + i;
        match at.buf {
            Buf::Src if self.problem.in_place => (at.pe, Buf::Dst, source + element),
            Buf::Src => (at.pe, Buf::Src, element),
            Buf::Dst => (at.pe, Buf::Dst, target + element),
            Buf::Work => (at.pe, Buf::Work, element),
        }
    }

    fn read(&mut self, pe: usize, at: &At, i: usize) -> Result<Value, Flaw> {
        let place = self.place(at, i);
        let clock = &self.pes[pe].clock;
        let (value, touched) = self.memory.entry(place).or_default();
        if let Some((writer, when)) = touched.write
            && writer != pe
            && clock[writer] <= when
        {
            return Err(Flaw(format!(
                "PE {pe} reads element {} of {at:?} while PE {writer} may write it",
                at.start + i
            )));
        }
        touched.reads.insert(pe, clock[pe]);
        Ok(value.clone())
    }

    fn write(&mut self, pe: usize, at: &At, i: usize, expr: Expr) -> Result<(), Flaw> {
        self.touch(pe, self.place(at, i), Value::Sum(Box::new(expr)))
    }

    /// A write, checked against all earlier accesses.
    fn touch(&mut self, pe: usize, place: Place, value: Value) -> Result<(), Flaw> {
        let clock = &self.pes[pe].clock;
        let (held, touched) = self.memory.entry(place).or_default();
        let earlier = touched.write.into_iter().chain(touched.reads.iter().map(|(reader, when)| (*reader, *when)));
        for (other, when) in earlier {
            if other != pe && clock[other] <= when {
                let (owner, buf, element) = place;
                return Err(Flaw(format!(
                    "PE {pe} writes element {element} of {buf:?}@{owner} while PE {other} may use it"
                )));
            }
        }
        *held = value;
        *touched = Touched { write: Some((pe, clock[pe])), reads: BTreeMap::new() };
        Ok(())
    }

    /// The caller fills its buffers.
    fn enter(&mut self, pe: usize) -> Result<(), Flaw> {
        self.overwrite(pe)?;
        let round = self.pes[pe].round;
        let source = At::new(pe, Buf::Src, 0..self.problem.what.blocks(self.problem.n).0 * self.problem.len);
        for i in 0..source.len {
            self.write(pe, &source, i, Expr::One((round, pe as u32, i as u32)))?;
        }
        self.pes[pe].clock[pe] += 1;
        Ok(())
    }

    /// The caller reads its target and may overwrite both buffers.
    fn leave(&mut self, pe: usize) -> Result<(), Flaw> {
        let target = At::new(pe, Buf::Dst, 0..self.problem.what.blocks(self.problem.n).1 * self.problem.len);
        for i in 0..target.len {
            let value = self.read(pe, &target, i)?;
            self.judge(pe, i, &value)?;
        }
        self.overwrite(pe)?;
        self.pes[pe].clock[pe] += 1;
        Ok(())
    }

    /// What the caller may do to its buffers outside the collective.
    fn overwrite(&mut self, pe: usize) -> Result<(), Flaw> {
        let (source, target) = self.problem.what.blocks(self.problem.n);
        for (buf, blocks) in [(Buf::Src, source), (Buf::Dst, target)] {
            let at = At::new(pe, buf, 0..blocks * self.problem.len);
            for i in 0..at.len {
                self.touch(pe, self.place(&at, i), Value::Unknown)?;
            }
        }
        Ok(())
    }

    /// Whether an output element is what it must be.
    fn judge(&self, pe: usize, i: usize, value: &Value) -> Result<(), Flaw> {
        let Some(mut wanted) = self.wanted(pe, i) else { return Ok(()) };
        let mut got = Vec::new();
        if let Value::Sum(expr) = value {
            expr.terms(&mut got);
        }
        got.sort_unstable();
        wanted.sort_unstable();
        if got == wanted {
            return Ok(());
        }
        Err(Flaw(format!(
            "element {i} of PE {pe}'s target holds {got:?} (round, PE, element); it must hold {wanted:?}"
        )))
    }

    /// The contributions to an output element; `None` where the target is not written.
    fn wanted(&self, pe: usize, i: usize) -> Option<Vec<Term>> {
        let (n, len, round) = (self.problem.n, self.problem.len, self.pes[pe].round);
        let term = |of: usize, element: usize| (round, of as u32, element as u32);
        let all = |pes: std::ops::Range<usize>, element: usize| Some(pes.map(|of| term(of, element)).collect());
        match self.problem.what {
            Collective::AllReduce => all(0..n, i),
            Collective::Reduce { root } => {
                if pe == root {
                    all(0..n, i)
                } else {
                    None
                }
            }
            Collective::ReduceScatter => all(0..n, pe * len + i),
            Collective::AllGather => all(i / len..i / len + 1, i % len),
            Collective::Gather { root } => {
                if pe == root {
                    all(i / len..i / len + 1, i % len)
                } else {
                    None
                }
            }
            Collective::Scatter { root } => all(root..root + 1, pe * len + i),
            Collective::Broadcast { root } => all(root..root + 1, i),
            Collective::AllToAll => all(i / len..i / len + 1, pe * len + i % len),
            Collective::InclusiveScan => all(0..pe + 1, i),
            Collective::ExclusiveScan => {
                if pe == 0 {
                    None
                } else {
                    all(0..pe, i)
                }
            }
        }
    }

    fn deadlock(&self) -> Flaw {
        let stuck: Vec<String> = (self.pes.iter().enumerate().filter(|(_, pe)| pe.round < ROUNDS))
            .map(|(pe, state)| format!("PE {pe} at step {} ({:?})", state.next, self.plans[pe].get(state.next)))
            .collect();
        Flaw(format!("deadlock: {}", stuck.join(", ")))
    }
}
