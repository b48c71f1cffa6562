//! Sending: the values of tokens go to where they will be read, then each PE gets its headers, and with them the signal.

use std::ops::Range;
use std::panic::Location;

use shmem::{ErrorKind, Result, SigRef};

use super::exchange::{Moe, Stage, unless_lost};
use super::layout::Layout;
use super::payload::Payload;
use super::received::Received;
use super::refusal::{Refusal, What};
use super::routes::Choices;
use super::shape::FLAG;

/// Bytes of tokens that are encoded at a time: what fits in the first-level cache with what they are made of.
const PART: usize = 16 << 10;

/// What a PE says with its signal; the lower bits are a number.
pub(super) const FRESH: u32 = 0;
pub(super) const AGAIN: u32 = 1;
pub(super) const REFUSED: u32 = 2;
/// Bits of that number.
pub(super) const BITS: u32 = 30;
pub(super) const NUMBER: u32 = (1 << BITS) - 1;

impl<P: Payload> Moe<'_, P> {
    /// Sends each token to its experts and receives what others have sent to this PE's: [`send`](Self::send), then
    /// [`recv`](Self::recv). Tokens lie one behind the other, `hidden` values each; `experts` and `weights` have `top_k` entries
    /// for each token, where -1 is no expert. There may be none at all.
    ///
    /// Called again after a loss or a time-out (and [`mask`](Self::mask)), with the same arguments, it goes on where it stopped.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`recv`](Self::recv).
    #[track_caller]
    pub fn dispatch(&mut self, tokens: &[P::Elem], experts: &[i32], weights: &[f32]) -> Result<Received<'_, P>> {
        if self.stage != Stage::Sent {
            self.send(tokens, experts, weights)?;
        }
        self.recv()
    }

    /// [`dispatch`](Self::dispatch) of other tokens by a layout that was there before: neither choices nor headers are looked at.
    ///
    /// # Errors
    /// Those of [`send_again`](Self::send_again) and [`recv`](Self::recv).
    #[track_caller]
    pub fn dispatch_again(&mut self, layout: &Layout, tokens: &[P::Elem]) -> Result<Received<'_, P>> {
        if self.stage != Stage::Sent {
            self.send_again(layout, tokens)?;
        }
        self.recv()
    }

    /// The first half of [`dispatch`](Self::dispatch): returns when `tokens` may be used again. A round that was received and not
    /// combined ends without outputs. Wrong arguments take part: that they are wrong is what [`recv`](Self::recv) tells all PEs.
    ///
    /// # Errors
    /// [`Refusal::OutOfTurn`] if a round was sent and not received; [`PeerLost`](shmem::ErrorKind::PeerLost),
    /// [`Timeout`](shmem::ErrorKind::Timeout): nothing was sent.
    #[track_caller]
    pub fn send(&mut self, tokens: &[P::Elem], experts: &[i32], weights: &[f32]) -> Result<()> {
        let _calling = self.team.calling("moe send", u64::from(self.step) + 1, Location::caller());
        self.begin("send")?;
        let choices = Choices { values: tokens.len(), experts, weights };
        loop {
            if let Err(refusal) = self.routes.fill(&self.shape, &self.placement, &self.ways, choices) {
                return self.refuse(refusal);
            }
            match self.load(tokens) {
                Ok(()) => break,
                Err(error) => self.excuse(error, None)?,
            }
        }
        self.announce(FRESH, 0)
    }

    /// The first half of [`dispatch_again`](Self::dispatch_again).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[track_caller]
    pub fn send_again(&mut self, layout: &Layout, tokens: &[P::Elem]) -> Result<()> {
        let _calling = self.team.calling("moe send", u64::from(self.step) + 1, Location::caller());
        self.begin("send_again")?;
        let pe = self.team.me();
        let (given, needed) = (tokens.len(), layout.routes.tokens * self.shape.hidden);
        if !layout.is_of(self) {
            return self.refuse(Refusal::StaleLayout { pe });
        }
        if given != needed {
            return self.refuse(Refusal::Length { pe, what: What::Tokens, given, needed });
        }
        self.routes.copy_from(&layout.routes);
        self.rows.copy_from(&layout.rows);
        // Where a PE is lost now, the layout is no longer good.
        self.load(tokens).inspect_err(|error| self.culprit = self.blame(error, None))?;
        self.announce(AGAIN, layout.number & NUMBER)
    }

    /// Takes part in a round by saying that this PE's call is wrong, in place of [`send`](Self::send): what
    /// [`recv`](Self::recv) tells all PEs. For bindings, which find out before there are slices.
    ///
    /// # Errors
    /// The refusal itself, and nothing was sent, if it is another PE's or one of which the others are not told; as [`send`](Self::send).
    #[track_caller]
    pub fn send_refused(&mut self, refusal: Refusal) -> Result<()> {
        let _calling = self.team.calling("moe send", u64::from(self.step) + 1, Location::caller());
        let Some(record) = refusal.record() else { return Err(refusal.into()) };
        if Refusal::told(self.team.me(), record) != refusal {
            return Err(refusal.into());
        }
        self.begin("send_refused")?;
        self.refuse(refusal)
    }

    /// Ends what came before, and waits until everybody has done with it.
    fn begin(&mut self, call: &'static str) -> Result<()> {
        self.culprit = None;
        match self.stage {
            Stage::Sent => return Err(Refusal::OutOfTurn { pe: self.team.me(), call }.into()),
            Stage::Received => self.give_credit(false)?,
            Stage::Idle | Stage::Returned => {}
        }
        self.enter(Stage::Idle);
        for pe in 0..self.shape.n {
            if self.step > 0 && !self.ways.masked[pe] {
                match self.hear(self.memory.credits, pe, self.step) {
                    Ok(_) => {}
                    Err(error) => self.excuse(error, Some(pe))?,
                }
            }
        }
        Ok(())
    }

    /// Puts the values of all tokens to where they will be read.
    fn load(&mut self, tokens: &[P::Elem]) -> Result<()> {
        self.moved = self.routes.load() * self.shape.token;
        if P::PLAIN {
            self.put(bytemuck::cast_slice(tokens), 0..self.routes.tokens)?;
        } else {
            let mut encoded = std::mem::take(&mut self.encoded);
            let outcome = self.encode_and_put(tokens, &mut encoded);
            self.encoded = encoded;
            outcome?;
        }
        self.complete()
    }

    fn encode_and_put(&self, tokens: &[P::Elem], encoded: &mut [u8]) -> Result<()> {
        let (hidden, bytes, all) = (self.shape.hidden, self.shape.token, self.routes.tokens);
        let step = (encoded.len() / bytes).max(1);
        for start in (0..all).step_by(step) {
            let part = start..(start + step).min(all);
            let values = tokens[part.start * hidden..part.end * hidden].chunks_exact(hidden);
            for (token, into) in values.zip(encoded.chunks_exact_mut(bytes)) {
                P::encode(token, into);
            }
            self.put(encoded, part)?;
        }
        Ok(())
    }

    /// Bytes in which tokens are encoded.
    pub(super) fn part(token: usize) -> usize {
        if P::PLAIN { 0 } else { (PART / token.max(1)).max(1) * token }
    }

    /// Puts the values of the tokens at some positions, as they travel; neighbours together.
    fn put(&self, values: &[u8], positions: Range<usize>) -> Result<()> {
        let bytes = self.shape.token;
        let area = self.memory.tokens.slice(self.team.me() * self.shape.max_tokens * bytes..)?;
        for pe in self.taking_part() {
            let loads = self.routes.loads(pe);
            let first = loads.partition_point(|position| (*position as usize) < positions.start);
            let last = loads.partition_point(|position| (*position as usize) < positions.end);
            let mut place = first;
            for run in loads[first..last].chunk_by(|one, next| one + 1 == *next) {
                let from = (run[0] as usize - positions.start) * bytes;
                let target = area.slice(place * bytes..(place + run.len()) * bytes)?;
                self.ctx.put(target, &values[from..from + run.len() * bytes], pe)?;
                place += run.len();
            }
        }
        Ok(())
    }

    /// Where others than the one to whom values were put are told that they are there, waits until they are.
    fn complete(&self) -> Result<()> {
        let apart = |pe: usize| (0..self.shape.n).any(|to| to != pe && self.ways.lands[to] as usize == pe);
        let away = |pe: &usize| !self.mapped[*pe] && !self.routes.loads(*pe).is_empty() && apart(*pe);
        if !(0..self.shape.n).any(|pe| away(&pe)) {
            return Ok(());
        }
        // What was put to those that live is there. An error is of the first loss that nobody has acknowledged, whoever is lost here.
        unless_lost(self.ctx.quiet())?;
        match (0..self.shape.n).filter(away).find(|pe| !self.team.is_alive(*pe)) {
            None => Ok(()),
            Some(pe) => {
                let reason = "what was put there for its host may not be there".into();
                Err(ErrorKind::PeerLost { pe: self.members[pe], reason }.into())
            }
        }
    }

    /// Tells everybody what there is.
    fn announce(&mut self, kind: u32, number: u32) -> Result<()> {
        self.next_step();
        let (me, area) = (self.team.me(), self.shape.headers());
        let area = self.memory.headers.slice(me * area..(me + 1) * area)?;
        for pe in self.taking_part() {
            let headers = if kind == FRESH { self.routes.headers(pe) } else { &[] };
            let number = if kind == FRESH { (headers.len() / self.shape.header()) as u32 } else { number };
            let signal = SigRef::set(self.memory.arrivals.at(me * FLAG)?, self.word(kind << BITS | number));
            unless_lost(self.ctx.put_signal(area, headers, signal, pe))?;
        }
        Ok(())
    }

    /// Tells everybody what is wrong.
    fn refuse(&mut self, refusal: Refusal) -> Result<()> {
        let Some(record) = refusal.record() else { return Err(refusal.into()) };
        self.routes.clear();
        self.rows.clear();
        self.moved = 0;
        self.next_step();
        let (me, area) = (self.team.me(), self.shape.headers());
        let area = self.memory.headers.slice(me * area..(me + 1) * area)?;
        for pe in self.taking_part() {
            let signal = SigRef::set(self.memory.arrivals.at(me * FLAG)?, self.word(REFUSED << BITS));
            unless_lost(self.ctx.put_signal(area, bytemuck::cast_slice(&record), signal, pe))?;
        }
        Ok(())
    }

    fn next_step(&mut self) {
        // After 2^32 rounds, without 0, which says that there was none.
        self.step = self.step.checked_add(1).unwrap_or(1);
        self.sent_without = self.left_out.len();
        self.enter(Stage::Sent);
        self.arrived.fill(None);
        self.given.fill(false);
    }

    /// What is said of this step.
    pub(super) fn word(&self, says: u32) -> u64 {
        u64::from(self.step) << 32 | u64::from(says)
    }
}
