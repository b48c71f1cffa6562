//! What the queues need of a network card: request chains go in, completions come out, and nothing else is known of it.
//! `verbs` is one, over real devices; `sim` is one in memory.
//!
//! A card has its *regions* registered before it is connected: the symmetric memory of this PE, by offset. A queue pair
//! is reliable and connected: what is posted to it is executed at the peer in order, except that a request overtakes
//! earlier reads and atomics unless it is fenced; requests on different queue pairs are not ordered.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::error::Result;
pub(crate) use crate::transport::{Awaited, Rest, To};

/// A port of a device, and the address under which it is known there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// As verbs call the device: `mlx5_0`.
    pub(crate) device: String,
    /// From 1.
    pub(crate) port: u8,
    /// The entry of the port's GID table.
    pub(crate) gid_index: u32,
    /// What stands there.
    pub(crate) gid: [u8; 16],
}

/// Memory of this PE to be registered, which outlives the card.
#[derive(Debug)]
#[cfg_attr(not(feature = "roce"), expect(dead_code, reason = "the simulated card has it mapped"))]
pub(crate) struct Region {
    /// The offsets in symmetric memory that it holds.
    pub(crate) offsets: Range<usize>,
    /// Where its first byte is, for the processor or for the device that owns it.
    pub(crate) base: NonNull<u8>,
    /// By which descriptor the card reaches memory of another device, where it is such memory.
    pub(crate) dmabuf: Option<OwnedFd>,
}

/// What a card can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Requests that a queue pair holds.
    pub(crate) depth: usize,
    /// Bytes that may travel within a request.
    pub(crate) inline: usize,
    /// Bytes of the largest request.
    pub(crate) message: usize,
    /// Against what its atomics are atomic.
    pub(crate) atomics: Atomics,
}

/// Against what a card's atomics are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Atomics {
    /// Nothing: it has none.
    None,
    /// The atomics that go through the same card (`IBV_ATOMIC_HCA`).
    Card,
    /// The processor's, too (`IBV_ATOMIC_GLOB`).
    Global,
}

/// What a request does at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Writes bytes there.
    Write,
    /// Reads bytes there.
    Read,
    /// Adds to the 64-bit word there, and fetches what it held.
    FetchAdd { add: u64 },
    /// Writes `new` to the 64-bit word there if it holds `expected`, and fetches what it held.
    CompareSwap { expected: u64, new: u64 },
}

impl Verb {
    /// Whether it brings bytes back.
    pub(crate) fn fetches(self) -> bool {
        self != Verb::Write
    }

    /// Whether it is an atomic operation.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Verb::FetchAdd { .. } | Verb::CompareSwap { .. })
    }
}

/// This PE's side of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local<'a> {
    /// These bytes, which the card takes while the request is posted; at most [`Limits::inline`].
    Inline(&'a [u8]),
    /// What lies at this offset of this PE's regions: what is sent, or where what is fetched goes. Stays as it is until
    /// the request has completed.
    At {
        /// The offset.
        at: usize,
        /// How many bytes.
        bytes: usize,
    },
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    pub(crate) local: Local<'a>,
    /// The offset in the peer's regions.
    pub(crate) remote: usize,
    /// Its number on its queue pair, counted from 1: what its completion is known by.
    pub(crate) number: u64,
    /// Whether it completes with a notice of its own; one that fails always does.
    pub(crate) signaled: bool,
    /// Whether it waits for earlier reads and atomics of its queue pair.
    pub(crate) fenced: bool,
}

/// The end of a signaled request, and of all earlier ones of its queue pair; or of one that failed, after which all later
/// ones fail, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The peer did not answer, as often as it was asked: it is gone, or the way to it is.
    Unreachable(String),
    /// The peer's card refused it, or this one's could not do it: an error of this library, or of a device.
    Refused(String),
    /// It was not tried, since an earlier one had failed.
    Flushed,
}

/// A network card with the regions of this PE registered. Calls for one queue pair come one at a time; those for
/// different ones may come at once, from different threads.
pub(crate) trait Nic: Send + Sync {
    /// What it can do.
    fn limits(&self) -> Limits;

    /// What it is called in reports: device and port.
    fn name(&self) -> String;

    /// Makes a queue pair and makes sure that it leads to the peer's memory. Blocks, for seconds at most.
    fn connect(&self, to: To) -> Result<()>;

    /// Hands requests over, all with one doorbell. There is room for them: no more than [`Limits::depth`] are under way.
    fn post(&self, to: To, chain: &[Request<'_>]) -> Result<()>;

    /// Adds to `found` what has ended on a queue pair, in order. Does not block.
    fn poll(&self, to: To, found: &mut Vec<Completion>) -> Result<()>;

    /// Told while this PE waits. What the card has done of the waiting.
    fn idle(&self, _: Awaited) -> Result<Rest> {
        Ok(Rest::Not)
    }
}
