//! The engine: runs a plan over one-sided operations of a team, step by step, and stops where it would have to wait.
//! What folds do is left to a [`Hand`].
//!
//! A signal is a count in the receiver's memory that only its sender writes and that grows for ever; so nothing is reset,
//! and the k-th wait for a PE waits for the k-th signal of that PE. A meeting is the team's own barrier; the first of a
//! plan carries a digest of the call.

use std::cell::Cell;
use std::rc::Rc;

use shmem::{Ctx, Meeting, Result, Shared, SigRef, SymSlice, Team};

use crate::hand::{Buffers, Hand, Reduction};
use crate::plan::Step;
use crate::prepare::Way;

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

/// A plan under way.
pub(crate) struct Run {
    way: Rc<Way>,
    next: usize,
    digest: u64,
    /// Whether the plan meets by itself, or has been met for.
    met: bool,
    meeting: Option<Meeting>,
}

impl Run {
    /// The run of a plan whose first meeting carries `digest`.
    pub(crate) fn new(way: Rc<Way>, digest: u64) -> Self {
        Run { next: 0, digest, met: way.meets, meeting: None, way }
    }

    /// Gets as far as is possible without waiting, or to the end if it may block: true when the plan is done. `call` is
    /// for reports.
    pub(crate) fn advance(
        &mut self,
        lane: &mut Lane<'_>,
        buffers: &Buffers<'_>,
        reduction: Option<&dyn Reduction>,
        call: &dyn Fn() -> String,
        block: bool,
    ) -> Result<bool> {
        if !self.met {
            if !self.meet(lane, call, block)? {
                return Ok(false);
            }
            self.met = true;
        }
        let way = Rc::clone(&self.way);
        let hand = Hand { way: &way, buffers: *buffers, reduction };
        while let Some(step) = way.plan.get(self.next) {
            match step {
                Step::Fold { from, into } => hand.fold(lane, from, into)?,
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
