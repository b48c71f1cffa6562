//! Combining: each source adds up what the experts made of its tokens, reading the outputs where they were written if it
//! can; else they were sent to where the tokens came from.

use std::fmt;
use std::panic::Location;

use shmem::{Elem, Kernel, Result, SymSlice};
use smallvec::SmallVec;

use super::exchange::{Moe, Stage, unless_lost};
use super::payload::Payload;
use super::refusal::{Refusal, What};
use super::routes::To;
use super::shape::MOST;
use crate::op::Number;

/// What a credit says besides the step.
const OUTPUTS: u32 = 0;
const NONE: u32 = 1;

/// What a combination was made of.
#[derive(Clone, Copy, Debug)]
pub struct Report<'m> {
    /// PEs that are left out, by their numbers in the team.
    pub left_out: &'m [usize],
    /// Choices whose outputs are not in the sums: the token's position, and which of its choices.
    pub missing: &'m [(usize, usize)],
}

impl Report<'_> {
    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left_out {
            [] => write!(f, "complete"),
            pes => write!(f, "without PEs {pes:?}: {} outputs are missing", self.missing.len()),
        }
    }
}

impl<P: Payload> Moe<'_, P> {
    /// Ends a round: tells the sources that this PE's outputs are written, and makes of each of its own tokens the sum of its
    /// outputs times their weights: in f32, in the order of the token's choices, rounded once. The same bits come out on any
    /// number of PEs, in whatever order outputs arrive. A token without a choice becomes 0. Blocks until the PEs that have
    /// this PE's tokens have written their outputs.
    ///
    /// `tokens` has room for as many values as were dispatched.
    ///
    /// # Errors
    /// [`Refusal::OutOfTurn`] if nothing was received, [`Refusal::Length`]: of this PE alone, which may call again.
    /// [`Refusal::NoOutputs`] if a PE did not combine. [`PeerLost`](shmem::ErrorKind::PeerLost), [`Timeout`](shmem::ErrorKind::Timeout),
    /// which name the PE: after [`mask`](Self::mask), this can be called again. [`Refusal::LeftOut`] if another
    /// PE has left out this one, or one that is waited for.
    #[track_caller]
    pub fn combine(&mut self, tokens: &mut [P::Elem]) -> Result<Report<'_>> {
        let pe = self.team.me();
        self.culprit = None;
        if !matches!(self.stage, Stage::Received | Stage::Returned) {
            return Err(Refusal::OutOfTurn { pe, call: "combine" }.into());
        }
        let (given, needed) = (tokens.len(), self.routes.tokens * self.shape.hidden);
        if given != needed {
            return Err(Refusal::Length { pe, what: What::Outputs, given, needed }.into());
        }
        let _calling = self.team.calling("moe combine", self.step.into(), Location::caller());
        if self.stage == Stage::Received {
            self.send_back()?;
            self.give_credit(true)?;
            self.enter(Stage::Returned);
        }
        self.wait_for_outputs()?;
        self.add_up(tokens)?;
        self.check_outputs().inspect_err(|error| self.culprit = self.blame(error, None))?;
        self.enter(Stage::Idle);
        Ok(Report { left_out: &self.left_out, missing: &self.missing })
    }

    /// Tells everybody that this PE has done with its tokens, and whether outputs are there for them.
    pub(super) fn give_credit(&self, outputs: bool) -> Result<()> {
        let word = self.word(if outputs { OUTPUTS } else { NONE });
        self.taking_part().try_for_each(|pe| self.tell(self.memory.credits, pe, word))
    }

    /// Puts outputs to the sources that cannot read them here.
    fn send_back(&self) -> Result<()> {
        if !self.shape.remote {
            return Ok(());
        }
        let (hidden, top_k) = (self.shape.hidden, self.shape.top_k);
        let outcome = self.ctx.scope(|scope| {
            for row in self.rows.all() {
                let source = row.source();
                if self.mapped[source] || self.ways.masked[source] {
                    continue;
                }
                let target = at(self.memory.returned, row.position() * top_k + row.choice as usize, hidden)?;
                let output = at(self.memory.outputs, row.output as usize, hidden)?;
                unless_lost(scope.put_from_nbi(target, output, source))?;
            }
            Ok(())
        });
        unless_lost(outcome)
    }

    /// Waits for those who have tokens of this PE.
    fn wait_for_outputs(&mut self) -> Result<()> {
        for pe in 0..self.shape.n {
            if self.routes.headers(pe).is_empty() || self.ways.masked[pe] || self.given[pe] {
                continue;
            }
            match self.hear(self.memory.credits, pe, self.step) {
                Ok(OUTPUTS) => self.given[pe] = true,
                Ok(_) => {
                    self.enter(Stage::Idle);
                    return Err(Refusal::NoOutputs { pe }.into());
                }
                Err(error) => self.excuse(error, Some(pe))?,
            }
        }
        Ok(())
    }

    /// The sums of the outputs that are there.
    fn add_up(&mut self, tokens: &mut [P::Elem]) -> Result<()> {
        let (hidden, top_k) = (self.shape.hidden, self.shape.top_k);
        self.missing.clear();
        for (position, token) in tokens.chunks_exact_mut(hidden).enumerate() {
            let mut sources: SmallVec<[(SymSlice<'_, P::Elem>, usize); MOST]> = SmallVec::new();
            let mut kernel = Weighted([0.0; MOST]);
            let choices = position * top_k..(position + 1) * top_k;
            for (choice, i) in choices.enumerate() {
                let source = match self.routes.to[i] {
                    To::Nowhere => continue,
                    To::Row { pe, row } if self.given[pe as usize] => {
                        let (pe, row) = (pe as usize, row as usize);
                        match self.mapped[pe] {
                            true => (at(self.memory.outputs, row, hidden)?, pe),
                            false => (at(self.memory.returned, i, hidden)?, self.team.me()),
                        }
                    }
                    To::Row { .. } | To::Lost => {
                        self.missing.push((position, choice));
                        continue;
                    }
                };
                kernel.0[sources.len()] = self.routes.weights[i];
                sources.push(source);
            }
            if sources.is_empty() {
                token.fill(<P::Elem as Number>::narrow(0.0));
            } else {
                self.ctx.fold_to(token, &sources, &kernel)?;
            }
        }
        Ok(())
    }
}

/// The `i`th of those that lie one behind the other.
pub(super) fn at<T: Elem>(all: SymSlice<'_, T>, i: usize, len: usize) -> Result<SymSlice<'_, T>> {
    all.slice(i * len..(i + 1) * len)
}

/// Adds up the sources times their weights.
struct Weighted([f32; MOST]);

impl<T: Number<Acc = f32>> Kernel<T> for Weighted {
    type Acc = f32;

    #[inline(always)]
    fn widen(&self, element: T) -> f32 {
        element.widen()
    }

    #[inline(always)]
    fn widen_of(&self, source: usize, element: T) -> f32 {
        element.widen() * self.0[source % MOST]
    }

    #[inline(always)]
    fn combine(&self, left: f32, right: f32) -> f32 {
        left + right
    }

    #[inline(always)]
    fn narrow(&self, acc: f32) -> T {
        T::narrow(acc)
    }
}
