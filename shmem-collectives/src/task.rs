//! What a call is until its end: something that gets on as far as it can without waiting.
//!
//! Tasks of a team take turns: one begins to meet the others when all before it have ended, on every PE in the same
//! order.

use shmem::{Error, ErrorKind, Meeting, Result};

use crate::call::{Call, refusal};
use crate::hand::{Buffers, Reduction};
use crate::run::{Lane, Run, meet};

/// A collective under way, without its types.
pub(crate) trait Task {
    /// Gets as far as is possible without waiting, or to the end if it may block: true when it is done.
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool>;
}

/// A collective with what it works on.
pub(crate) struct Started<'b> {
    pub(crate) number: u64,
    pub(crate) call: Call,
    pub(crate) run: Run,
    pub(crate) buffers: Buffers<'b>,
    pub(crate) reduction: Option<Box<dyn Reduction + 'b>>,
}

impl Task for Started<'_> {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        let Started { number, call, run, buffers, reduction } = self;
        run.advance(lane, buffers, reduction.as_deref(), &|| call.text(*number), block)
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
