//! What a call is until its end: something that gets on as far as it can without waiting.
//!
//! Tasks of a team take turns: one begins to meet the others when all before it have ended, on every PE in the same
//! order.

use shmem::{Elem, Error, ErrorKind, Meeting, Result};

use crate::call::{Call, refusal};
use crate::op::Reduce;
use crate::run::{Hand, Lane, Run, meet};

/// A collective under way, without its types.
pub(crate) trait Task {
    /// Gets as far as is possible without waiting, or to the end if it may block: true when it is done.
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool>;
}

/// A collective with what it works on.
pub(crate) struct Started<'b> {
    pub(crate) number: u64,
    pub(crate) run: Run,
    pub(crate) hand: Box<dyn Hand + 'b>,
    pub(crate) call: Call,
}

impl Task for Started<'_> {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        let (number, call) = (self.number, &self.call);
        self.run.advance(lane, &*self.hand, &|| call.text(number), block)
    }
}

/// A call with wrong arguments on this PE. It takes part in the first meeting, so that the others learn of it, and ends
/// with the error.
pub(crate) struct Refused {
    number: u64,
    error: Option<Error>,
    text: String,
    meeting: Option<Meeting>,
}

impl Refused {
    pub(crate) fn new(number: u64, error: Error) -> Self {
        Refused { number, text: String::new(), error: Some(error), meeting: None }
    }
}

impl Task for Refused {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        if let (Some(error), None) = (&self.error, &self.meeting) {
            let (digest, text) = refusal(self.number, error);
            self.text = text;
            self.meeting = Some(lane.team.meet(digest));
        }
        match meet(&mut self.meeting, lane.team, &|| self.text.clone(), block) {
            Ok(false) => Ok(false),
            // The others' side says less than what is wrong here.
            Err(other) if !matches!(other.kind(), ErrorKind::Mismatch { .. }) => Err(other),
            _ => self.error.take().map_or(Ok(true), Err),
        }
    }
}

/// Moves elements as they are: the reduction of collectives that combine nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move;

impl<T: Elem> Reduce<T> for Move {
    type Acc = T;
    type Partial = Self;
    const NAME: &'static str = "";

    #[inline(always)]
    fn widen(&self, element: T) -> T {
        element
    }

    #[inline(always)]
    fn combine(&self, left: T, _: T) -> T {
        left
    }

    #[inline(always)]
    fn finish(&self, acc: T, _: usize) -> T {
        acc
    }

    #[inline(always)]
    fn partial(&self) -> Self {
        *self
    }
}
