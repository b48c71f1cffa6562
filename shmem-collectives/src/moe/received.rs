//! What a PE has received, as its experts see it.

use shmem::{Result, SymSlice};

use super::combine::at;
use super::exchange::Moe;
use super::layout::Layout;
use super::payload::{Bf16, Payload};
use super::refusal::{Refusal, What};
use super::rows::Row;

/// The tokens for this PE's experts, by expert; and where these write their outputs. Experts are named by their place among
/// those of the PE ([`Moe::own_experts`]).
#[derive(Debug)]
pub struct Received<'m, P: Payload = Bf16> {
    pub(super) moe: &'m Moe<'m, P>,
}

/// A token as it has arrived, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Token<'m, P: Payload> {
    /// In whose memory: of this PE, or of one of its host, where it can be read by [`Ctx::get`](shmem::Ctx::get), by its address
    /// ([`Ctx::ptr`](shmem::Ctx::ptr)) or in a [`fold`](shmem::Ctx::fold_to).
    pub pe: usize,
    /// Its values.
    pub values: SymSlice<'m, P::Wire>,
    /// The factors of its blocks, if it travels with such.
    pub scales: SymSlice<'m, f32>,
}

impl<'m, P: Payload> Received<'m, P> {
    /// The experts of this PE.
    pub fn experts(&self) -> &'m [usize] {
        &self.moe.own
    }

    /// The tokens for an expert: by source and position.
    pub fn rows(&self, expert: usize) -> &'m [Row] {
        self.moe.rows.of(expert)
    }

    /// PEs whose tokens are not among these, since they are left out.
    pub fn left_out(&self) -> &'m [usize] {
        &self.moe.left_out
    }

    /// Where the token of a row lies: nothing is copied.
    ///
    /// # Errors
    /// [`OutOfRange`](shmem::ErrorKind::OutOfRange) for a row of another exchange.
    pub fn token(&self, row: &Row) -> Result<Token<'m, P>> {
        let shape = &self.moe.shape;
        let wire = at(self.moe.memory.tokens, row.source() * shape.max_tokens + row.place as usize, shape.token)?;
        let values = wire.slice(..shape.hidden * size_of::<P::Wire>())?.cast()?;
        let scales = wire.slice(P::scales_at(shape.hidden)..)?;
        // What is no fp8 has none, and may begin and end anywhere.
        let scales = if P::PLAIN { self.moe.memory.tokens.slice(..0)? } else { scales };
        Ok(Token { pe: row.land as usize, values, scales: scales.cast()? })
    }

    /// Copies the token of a row out, as outputs are made: fp8 becomes bf16.
    ///
    /// # Errors
    /// [`Length`](shmem::ErrorKind::Length) if the buffer does not hold `hidden` values; as [`token`](Self::token).
    pub fn read(&self, row: &Row, into: &mut [P::Elem]) -> Result<()> {
        let shape = &self.moe.shape;
        self.check(What::Tokens, into.len(), shape.hidden)?;
        let wire = at(self.moe.memory.tokens, row.source() * shape.max_tokens + row.place as usize, shape.token)?;
        if P::PLAIN {
            return self.moe.ctx.get(bytemuck::cast_slice_mut(into), wire, row.land as usize);
        }
        let mut decoded = self.moe.decoded.borrow_mut();
        self.moe.ctx.get(&mut decoded, wire, row.land as usize)?;
        P::decode(&decoded, into);
        Ok(())
    }

    /// Copies all tokens of an expert out, one behind the other in the order of its rows: for a multiplication of matrices.
    ///
    /// # Errors
    /// As [`read`](Self::read), for as many tokens.
    pub fn gather(&self, expert: usize, into: &mut [P::Elem]) -> Result<()> {
        let (rows, hidden) = (self.rows(expert), self.moe.shape.hidden);
        self.check(What::Tokens, into.len(), rows.len() * hidden)?;
        rows.iter().zip(into.chunks_exact_mut(hidden)).try_for_each(|(row, into)| self.read(row, into))
    }

    /// Where the expert of a row writes its output: in this PE's memory, from where sources on this host read it.
    ///
    /// # Errors
    /// [`OutOfRange`](shmem::ErrorKind::OutOfRange) for a row of another exchange.
    pub fn output(&self, row: &Row) -> Result<SymSlice<'m, P::Elem>> {
        at(self.moe.memory.outputs, row.output as usize, self.moe.shape.hidden)
    }

    /// Copies the outputs of an expert in, which lie one behind the other in the order of its rows.
    ///
    /// # Errors
    /// [`Refusal::Length`] if they are not as many as the rows.
    pub fn scatter(&self, expert: usize, outputs: &[P::Elem]) -> Result<()> {
        let (rows, hidden) = (self.rows(expert), self.moe.shape.hidden);
        self.check(What::Outputs, outputs.len(), rows.len() * hidden)?;
        rows.iter().zip(outputs.chunks_exact(hidden)).try_for_each(|(row, from)| self.output(row)?.copy_from(from))
    }

    /// The layout of this round, to dispatch other tokens by it: see [`Moe::dispatch_again`]. Allocates a copy. Take it on all PEs or on none.
    pub fn layout(&self) -> Layout {
        Layout::of(self.moe)
    }

    fn check(&self, what: What, given: usize, needed: usize) -> Result<()> {
        let pe = self.moe.team.me();
        if given == needed { Ok(()) } else { Err(Refusal::Length { pe, what, given, needed }.into()) }
    }
}
