//! The engine: runs a plan over one-sided operations of a team, step by step, and stops where it would have to wait.
//!
//! A signal is a count in the receiver's memory that only its sender writes and that grows for ever; so nothing is reset,
//! and the k-th wait for a PE waits for the k-th signal of that PE. A meeting is the team's own barrier; the first of a
//! plan carries a digest of the call.

use std::cell::Cell;
use std::rc::Rc;

use smallvec::SmallVec;

use shmem::{Ctx, Elem, Kernel, Meeting, Result, Shared, SigRef, SymSlice, Team};

use crate::plan::{At, Buf, Plan, Problem, Step};

/// 64-bit words from one PE's count to the next: a pair of cache lines.
pub(crate) const FLAG: usize = 16;

/// What a team's collectives share: the counts of signals.
pub(crate) struct Lane<'t> {
    pub(crate) team: &'t Team<'t>,
    pub(crate) ctx: Ctx<'t, Shared>,
    /// A count for each PE, every [`FLAG`] words.
    flags: SymSlice<'t, u64>,
    sent: Vec<u64>,
    heard: Vec<u64>,
    /// Whether all PEs' memory is mapped: what is put is then there, in order, for whoever hears of it.
    mapped: bool,
    /// Whether something was put that may not be there yet.
    underway: Cell<bool>,
}

impl<'t> Lane<'t> {
    /// The lane over `flags`, which are zero on all PEs.
    pub(crate) fn new(team: &'t Team<'t>, flags: SymSlice<'t, u64>) -> Result<Self> {
        let (n, ctx) = (team.n_pes(), team.ctx::<Shared>().of_library());
        let reached = (0..n).map(|pe| ctx.ptr(flags, pe)).collect::<Result<Vec<_>>>()?;
        let mapped = reached.iter().all(Option::is_some);
        let underway = Cell::new(false);
        Ok(Lane { team, ctx, flags, sent: vec![0; n], heard: vec![0; n], mapped, underway })
    }

    /// Waits until all that was put is there, before anybody is told so.
    pub(crate) fn complete(&self) -> Result<()> {
        if self.underway.replace(false) { self.ctx.quiet() } else { Ok(()) }
    }

    /// Something has been put.
    pub(crate) fn has_put(&self) {
        self.underway.set(!self.mapped);
    }

    fn flag(&self, pe: usize) -> Result<SymSlice<'t, u64>> {
        self.flags.at(pe * FLAG)
    }

    fn signal(&mut self, to: usize) -> Result<()> {
        self.complete()?;
        self.sent[to] += 1;
        self.ctx.signal(SigRef::set(self.flag(self.team.me())?, self.sent[to]), to)
    }

    /// Takes the next signal of a PE, if it has come.
    fn hear(&mut self, from: usize) -> Result<bool> {
        let come = self.ctx.signal_fetch(self.flag(from)?)? > self.heard[from];
        self.heard[from] += u64::from(come);
        Ok(come)
    }

    /// Blocks until the next signal of a PE has come.
    fn listen(&self, from: usize) -> Result<()> {
        let heard = self.heard[from];
        self.ctx.wait(self.flag(from)?, |count| count > heard).map(|_| ())
    }
}

/// The caller's and the team's memory that a plan speaks of.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'b, T> {
    /// In place, the whole buffer.
    pub(crate) src: SymSlice<'b, T>,
    /// In place, the whole buffer.
    pub(crate) dst: SymSlice<'b, T>,
    pub(crate) work: SymSlice<'b, T>,
    /// Of this call's parity.
    pub(crate) slots: SymSlice<'b, T>,
}

impl<'b, T: Elem> Buffers<'b, T> {
    /// The object, of whichever PE, that a region of a problem's plan is.
    pub(crate) fn region(&self, problem: &Problem, at: &At) -> Result<SymSlice<'b, T>> {
        let (source, target) = if problem.in_place { problem.offsets(at.pe) } else { (0, 0) };
        let (buffer, start) = match at.buf {
            Buf::Src => (self.src, source + at.start),
            Buf::Dst => (self.dst, target + at.start),
            Buf::Work => (self.work, at.start),
            Buf::Slot => (self.slots, at.start),
        };
        buffer.slice(start..start + at.len)
    }
}

/// A collective under way.
pub(crate) struct Run<'b, T> {
    pub(crate) problem: Problem,
    plan: Rc<Plan>,
    next: usize,
    pub(crate) buffers: Buffers<'b, T>,
    pub(crate) digest: u64,
    /// Whether the plan meets by itself, or has been met for.
    met: bool,
    meeting: Option<Meeting>,
}

impl<'b, T: Elem> Run<'b, T> {
    /// The run of `plan`, whose first meeting carries `digest`.
    pub(crate) fn new(problem: Problem, plan: Rc<Plan>, buffers: Buffers<'b, T>, digest: u64) -> Self {
        let met = plan.contains(&Step::Meet);
        Run { problem, plan, next: 0, buffers, digest, met, meeting: None }
    }

    /// Gets as far as is possible without waiting, or to the end if it may block: true when the plan is done. `call` is
    /// for reports.
    pub(crate) fn advance<K: Kernel<T>>(
        &mut self,
        lane: &mut Lane<'_>,
        kernel: &K,
        call: &dyn Fn() -> String,
        block: bool,
    ) -> Result<bool> {
        if !self.met {
            if !self.meet(lane, call, block)? {
                return Ok(false);
            }
            self.met = true;
        }
        let plan = Rc::clone(&self.plan);
        while let Some(step) = plan.get(self.next) {
            match step {
                Step::Fold { from, into } => self.fold(lane, kernel, from, into)?,
                Step::Meet => {
                    if !self.meet(lane, call, block)? {
                        return Ok(false);
                    }
                }
                Step::Signal { to } => lane.signal(*to)?,
                Step::Wait { from } => {
                    while !lane.hear(*from)? {
                        if !block {
                            return Ok(false);
                        }
                        lane.listen(*from)?;
                    }
                }
            }
            self.next += 1;
        }
        Ok(true)
    }

    /// Meets all PEs: false if it would have to wait.
    fn meet(&mut self, lane: &Lane<'_>, call: &dyn Fn() -> String, block: bool) -> Result<bool> {
        if self.meeting.is_none() {
            lane.complete()?;
            self.meeting = Some(lane.team.meet(self.digest));
        }
        meet(&mut self.meeting, lane.team, call, block)
    }

    fn fold<K: Kernel<T>>(&self, lane: &Lane<'_>, kernel: &K, from: &[At], into: &[At]) -> Result<()> {
        type Places<'b, T> = SmallVec<[(SymSlice<'b, T>, usize); 8]>;
        let place = |at: &At| Ok((self.buffers.region(&self.problem, at)?, at.pe));
        let sources = from.iter().map(place).collect::<Result<Places<'b, T>>>()?;
        let targets = into.iter().map(place).collect::<Result<Places<'b, T>>>()?;
        // What is combined of one PE's source alone goes through the kernel, too: it may scale. A plan moves everything
        // else.
        let alone = self.problem.n == 1 && self.problem.what.reduces();
        lane.has_put();
        match sources.as_slice() {
            [source] if !alone => lane.ctx.copy(*source, &targets),
            _ => lane.ctx.fold(&sources, &targets, kernel),
        }
    }
}

/// Goes on with a meeting: false, and the meeting kept, if it would have to wait and may not.
pub(crate) fn meet(
    meeting: &mut Option<Meeting>,
    team: &Team<'_>,
    call: &dyn Fn() -> String,
    block: bool,
) -> Result<bool> {
    let Some(mut under_way) = meeting.take() else { return Ok(true) };
    if block {
        under_way.wait(team, call)?;
    } else if !under_way.poll(team, call)? {
        *meeting = Some(under_way);
        return Ok(false);
    }
    Ok(true)
}
