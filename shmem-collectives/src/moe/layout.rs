//! The layout of a round, kept for others.

use super::exchange::Moe;
use super::payload::Payload;
use super::routes::Routes;
use super::rows::Rows;

/// Which tokens go where: of a round, for [`Moe::dispatch_again`] of the same exchange. Good as long as no more PEs are left out
/// than when the round was sent.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) routes: Routes,
    pub(super) rows: Rows,
    /// The step of the round, which all PEs have in common.
    pub(super) number: u32,
    /// PEs that were left out when it was sent: with them, its tokens may have been put to where they are not put again.
    left_out: usize,
    /// The exchange that it is of.
    exchange: u64,
}

impl Layout {
    pub(super) fn of<P: Payload>(moe: &Moe<'_, P>) -> Self {
        let (routes, rows) = (moe.routes.clone(), moe.rows.clone());
        Layout { routes, rows, number: moe.step, left_out: moe.sent_without, exchange: moe.number }
    }

    /// Tokens of this PE.
    pub fn tokens(&self) -> usize {
        self.routes.tokens
    }

    /// Whether it is of this exchange, of which no more PEs are left out.
    pub(super) fn is_of<P: Payload>(&self, moe: &Moe<'_, P>) -> bool {
        self.exchange == moe.number && self.left_out == moe.left_out.len()
    }
}
