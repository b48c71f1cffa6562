//! How a PE reaches another: a [`Route`] for its memory and one for its atomics, fixed at start-up.
//!
//! - `loopback`: a peer whose heap is mapped here: copies and atomics by the calling thread;
//! - `roce`: a network card, real or simulated;
//! - `private`: memory that no network reaches, as one side of a transfer;
//! - `places`: what it has of symmetric memory;
//! - `amo`: any atomic operation in terms of the two that cards have;
//! - `link`: put, get, atomics, fence and quiet by offset over any route; `remote`: over the network; `rest`: waiting;
//! - `pieces`: segments whose user's heap is memory of the program's own;
//! - `lane`: the same on a lane of the network; implements [`Words`](crate::sync::Words).

pub(crate) mod amo;
pub(crate) mod lane;
#[allow(unsafe_code)]
pub(crate) mod link;
#[allow(unsafe_code)]
pub(crate) mod loopback;
#[allow(unsafe_code)]
mod pieces;
pub(crate) mod places;
#[allow(unsafe_code)]
pub(crate) mod private;
mod remote;
#[allow(unsafe_code)]
pub(crate) mod rest;
pub(crate) mod roce;

use crate::error::Result;
use crate::sync::signal::Signal;
use amo::CardAmo;
use loopback::Base;
use private::{Early, Late};

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

/// One way over a network: a lane of a PE. Lanes to one PE are not ordered against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct To {
    pub(crate) lane: usize,
    pub(crate) pe: usize,
}

/// This PE's side of a transfer over a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Near<T> {
    /// In its symmetric memory, at this offset: the network reaches it by itself.
    Symmetric { at: usize, bytes: usize },
    /// Anywhere: goes through memory that the network reaches.
    Private(T),
}

/// What a network has taken of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes, from the beginning; 0 if there is no room just now.
    pub(crate) bytes: usize,
    /// What [`Endpoint::done`] knows it by.
    pub(crate) ticket: u64,
    /// Whether the signal is taken, too, that was to follow it.
    pub(crate) signaled: bool,
}

/// What a PE waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The end of something that it has sent or asked for.
    End,
    /// A word that another PE writes, here or elsewhere.
    Word,
}

/// What a network has done of a PE's waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Not,
    /// It has waited for news.
    Short,
    /// It has waited for so long that the peers should be called.
    Long,
}

/// A network: reaches PEs whose memory is not mapped here. Offsets have been checked by the caller.
///
/// Nothing here waits for a peer, except for being connected to it: what cannot go on says so, and `link` asks again, in
/// its one way of waiting. Of a peer that is lost, the first call that finds out fails with
/// [`PeerLost`](crate::ErrorKind::PeerLost), and all later ones that are for it; those for others go on.
pub(crate) trait Endpoint: Send + Sync {
    /// Takes bytes for offset `at` of a peer, as many as there is room for. Those of private memory are taken at once;
    /// symmetric memory stays as it is until the ticket is done. They arrive after all earlier ones on the lane. Behind the
    /// last of them goes the signal, for the word at this offset, if there is room for it as well.
    fn put(&self, to: To, at: usize, source: Near<Early>, signal: Option<(usize, Signal)>) -> Result<Taken>;
    /// Asks for bytes at offset `at` of a peer, as many as there is room for. They are here when the ticket is done.
    fn get(&self, to: To, at: usize, target: Near<Late>) -> Result<Taken>;
    /// Runs an atomic operation of the card on the word at offset `at` of a peer; what it held is at `held` when the
    /// ticket is done. 8 bytes are taken, or none.
    fn amo(&self, to: To, at: usize, amo: CardAmo, held: Option<Late>) -> Result<Taken>;
    /// Orders what the lane has taken before all that it takes from now on.
    fn fence(&self, to: To);
    /// Whether what has this ticket is complete.
    fn done(&self, to: To, ticket: u64) -> Result<bool>;
    /// Whether everything on the lane, or on all, is complete, as far as the PEs live.
    fn quiet(&self, lane: Option<usize>) -> Result<bool>;
    /// Gives up private memory that was handed over under this owner: it is written no more.
    fn forget(&self, owner: usize);
    /// Looks for news while this PE waits.
    fn idle(&self, awaited: Awaited) -> Result<Rest>;
    /// Sees to it that [`idle`](Self::idle) finds out in time whether a peer is gone that this PE waits for, or any that it is
    /// connected to: the one that it waits for may wait for this one, since it knows already that another is gone.
    fn call(&self, pe: Option<usize>) -> Result<()>;
    /// How many requests the card has to each PE of whose end it is to tell and has not told, where there are any.
    fn owed(&self) -> Vec<(usize, u64)>;
}
