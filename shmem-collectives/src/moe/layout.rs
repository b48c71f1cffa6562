//! The layout of a round, kept for others.

use super::exchange::Moe;
use super::payload::Payload;
use super::routes::Routes;
use super::rows::Rows;
use super::shape::Shape;

/// Which exchange a layout is of: where its memory lies, its shape, and where experts are (another may lie there later).
pub(super) type Id = (usize, Shape, u64);

/// Which tokens go where: of a round, for [`Moe::dispatch_again`]. Good as long as no more PEs are left out.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) routes: Routes,
    pub(super) rows: Rows,
    /// The step of the round, which all PEs have in common.
    pub(super) number: u32,
    left_out: usize,
    id: Id,
}

impl Layout {
    pub(super) fn of<P: Payload>(moe: &Moe<'_, P>) -> Self {
        let (routes, rows) = (moe.routes.clone(), moe.rows.clone());
        Layout { routes, rows, number: moe.step, left_out: moe.left_out.len(), id: moe.id() }
    }

    /// Tokens of this PE.
    pub fn tokens(&self) -> usize {
        self.routes.tokens
    }

    /// Whether it is of this exchange, with so many PEs left out.
    pub(super) fn is_of(&self, id: Id, left_out: usize) -> bool {
        self.id == id && self.left_out == left_out
    }
}

impl<P: Payload> Moe<'_, P> {
    pub(super) fn id(&self) -> Id {
        (self.memory.arrivals.offset(), self.shape, self.placement.print)
    }
}
