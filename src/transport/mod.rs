//! How a PE reaches another: a [`Route`] for its memory and one for its atomics, fixed at start-up.
//!
//! - `loopback`: a peer whose heap is mapped here: copies and atomics by the calling thread;
//! - `shuffle`: a testing network that delays and reorders;
//! - `link`: put, get, atomics, fence and quiet by offset over any route; implements [`Words`](crate::sync::Words).

#[allow(unsafe_code)]
pub(crate) mod link;
#[allow(unsafe_code)]
pub(crate) mod loopback;
#[allow(dead_code, reason = "what lies above it is not built yet")]
pub(crate) mod roce;
#[allow(unsafe_code)]
pub(crate) mod shuffle;

use crate::elem::Width;
use crate::error::Result;
use loopback::Base;

/// The way to one kind of access to one PE.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// Its heap is mapped here.
    Loopback(Base),
    /// Over the world's [`Endpoint`].
    Remote,
}

/// A PE as a team sees it. Atomics have a route of their own: a network card's are often not atomic against the
/// processor's, so all accesses to one word must go the same way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its number in the world.
    pub(crate) pe: usize,
    /// The way to its memory.
    pub(crate) rma: Route,
    /// The way for atomics on it.
    pub(crate) amo: Route,
}

/// An atomic operation as data, for routes that send it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amo {
    pub(crate) op: AmoOp,
    pub(crate) width: Width,
    pub(crate) operand: u64,
    /// The value that a `CompareSwap` expects.
    pub(crate) expected: u64,
}

/// What an atomic operation does; all return what the word held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmoOp {
    Fetch,
    Set,
    Swap,
    CompareSwap,
    Add,
    And,
    Or,
    Xor,
}

/// A network: reaches PEs whose memory is not mapped here. Offsets have been checked by the caller.
pub(crate) trait Endpoint: Send + Sync {
    /// Copies bytes to offset `at` of `pe`. The source may be reused on return; the bytes arrive some time before the
    /// next `quiet` returns.
    fn put(&self, pe: usize, at: usize, source: &[u8]) -> Result<()>;
    /// Copies bytes from offset `at` of `pe`; they are here on return.
    fn get(&self, pe: usize, at: usize, target: &mut [u8]) -> Result<()>;
    /// Runs an atomic operation on `pe` and returns what the word held.
    fn amo(&self, pe: usize, at: usize, amo: Amo) -> Result<u64>;
    /// Orders all earlier puts to `pe` before all later ones and before later atomics.
    fn fence(&self, pe: usize) -> Result<()>;
    /// Returns once all earlier puts to all PEs have arrived.
    fn quiet(&self) -> Result<()>;
}
