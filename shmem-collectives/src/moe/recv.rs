//! Receiving: waits for everybody's signal, then makes the rows of the headers that came.

use std::panic::Location;

use shmem::{ErrorKind, Result};

use super::exchange::{Moe, Stage};
use super::payload::Payload;
use super::received::Received;
use super::refusal::{RECORD, Refusal};
use super::send::{AGAIN, BITS, FRESH, NUMBER, REFUSED};

impl<P: Payload> Moe<'_, P> {
    /// The second half of [`dispatch`](Self::dispatch): blocks until the tokens of all PEs are here. What is received is good until
    /// this PE combines or sends.
    ///
    /// # Errors
    /// A [`Refusal`], the same on all PEs, if a PE's call was wrong or the PEs' calls differ: nothing was received, and the next round
    /// may begin. [`Refusal::OutOfTurn`] if nothing was sent. [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout), which
    /// name the PE: after [`mask`](Self::mask), this can be called again. [`Refusal::LeftOut`] if another PE has left
    /// out this one, or one that is waited for.
    #[track_caller]
    pub fn recv(&mut self) -> Result<Received<'_, P>> {
        self.culprit = None;
        if self.stage != Stage::Sent {
            return Err(Refusal::OutOfTurn { pe: self.team.me(), call: "recv" }.into());
        }
        let _calling = self.team.calling("moe recv", self.step.into(), Location::caller());
        for pe in 0..self.shape.n {
            if self.ways.masked[pe] || self.arrived[pe].is_some() {
                continue;
            }
            match self.hear(self.memory.arrivals, pe, self.step) {
                Ok(says) => self.arrived[pe] = Some(says),
                Err(error) => self.excuse(error, Some(pe))?,
            }
        }
        if let Some(refusal) = self.verdict()? {
            self.give_credit(false)?;
            self.enter(Stage::Idle);
            return Err(refusal.into());
        }
        self.read_headers()?;
        self.enter(Stage::Received);
        Ok(Received { moe: self })
    }

    /// What was received and is still good: after an interrupted [`dispatch`](Self::dispatch), or to look at it once more.
    pub fn received(&self) -> Option<Received<'_, P>> {
        (self.stage == Stage::Received).then_some(Received { moe: self })
    }

    /// Why the round does not take place: a pure function of what all PEs have said.
    fn verdict(&self) -> Result<Option<Refusal>> {
        let said = || self.arrived.iter().enumerate().filter_map(|(pe, says)| says.map(|says| (pe, says)));
        if let Some((pe, _)) = said().find(|(_, says)| says >> BITS == REFUSED) {
            let area = self.memory.headers.slice(pe * self.shape.headers()..)?;
            let mut record = [0_u64; RECORD];
            area.slice(..2 * RECORD)?.copy_to(bytemuck::cast_slice_mut(&mut record))?;
            return Ok(Some(Refusal::told(pe, record)));
        }
        let layout = |says: u32| (says >> BITS == AGAIN).then_some(says & NUMBER);
        let mut layouts = said().map(|(pe, says)| (pe, layout(says)));
        let Some((than, first)) = layouts.next() else { return Ok(None) };
        Ok(layouts.find(|(_, layout)| *layout != first).map(|(pe, _)| Refusal::Differ { pe, than }))
    }

    /// Makes the rows.
    fn read_headers(&mut self) -> Result<()> {
        let fresh = self.arrived.iter().flatten().any(|says| says >> BITS == FRESH);
        if !fresh {
            // They are those of the layout, but for sources that were left out since it was sent by.
            self.rows.keep(|source| self.arrived[source].is_some());
            return Ok(());
        }
        self.rows.clear();
        for (source, says) in self.arrived.iter().enumerate() {
            let Some(tokens) = says.map(|says| (says & NUMBER) as usize) else { continue };
            if tokens > self.shape.max_tokens {
                return Err(ErrorKind::Length { what: "headers", given: tokens, needed: self.shape.max_tokens }.into());
            }
            let area = self.memory.headers.slice(source * self.shape.headers()..)?;
            let headers = self.rows.headers_of(&self.shape, source, tokens);
            area.slice(..headers.len())?.copy_to(headers)?;
        }
        self.rows.sort(&self.shape);
        Ok(())
    }
}
