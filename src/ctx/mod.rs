//! Contexts: what a program does with other PEs' memory.
//!
//! - `rma`: put, get and their single-element, strided and non-blocking forms;
//! - `fold`: combining the memory of several PEs, the data step of collectives;
//! - `amo`: atomics;
//! - `signal`: put with signal, and waiting for words;
//! - `order`: fence, quiet and locks.

mod amo;
#[allow(unsafe_code)]
mod fold;
mod order;
#[allow(unsafe_code)]
mod rma;
mod signal;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

pub use fold::Kernel;
pub use rma::Scope;
pub use signal::{Cmp, SigRef, Values};

use crate::core::Core;
use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::heap::SymSlice;
use crate::transport::Peer;
use crate::transport::link::Link;

mod sealed {
    pub trait Sealed {}
}

/// Who may use a context: [`Shared`] or [`Private`].
pub trait Sharing: sealed::Sealed {
    /// Carries the choice into the context's own `Sync`.
    #[doc(hidden)]
    type Mark;
}

/// A context that many threads use at once.
#[derive(Debug)]
pub struct Shared;

/// A context of one thread at a time.
#[derive(Debug)]
pub struct Private;

impl sealed::Sealed for Shared {}
impl sealed::Sealed for Private {}

impl Sharing for Shared {
    type Mark = ();
}

impl Sharing for Private {
    type Mark = Cell<()>;
}

/// A context: PE numbers are those of the team it was made from, and `fence` and `quiet` speak of the puts of this PE.
///
/// Every operation checks its arguments first; if one is wrong nothing was written, and the context goes on working.
pub struct Ctx<'t, S: Sharing = Shared> {
    core: &'t Core,
    peers: &'t [Peer],
    me: usize,
    sharing: PhantomData<S::Mark>,
}

impl<'t, S: Sharing> Ctx<'t, S> {
    pub(crate) fn new(core: &'t Core, group: &'t Group) -> Self {
        Ctx { core, peers: group.peers(), me: group.me(), sharing: PhantomData }
    }

    /// This PE's number in the context's team.
    #[inline]
    pub fn me(&self) -> usize {
        self.me
    }

    /// The number of PEs in the context's team.
    #[inline]
    pub fn n_pes(&self) -> usize {
        self.peers.len()
    }

    #[inline(always)]
    fn link(&self) -> &'t Link {
        &self.core.link
    }

    /// The way to `pe`, for an access to `object`.
    #[inline(always)]
    fn peer<T: Elem>(&self, object: SymSlice<'_, T>, pe: usize) -> Result<&'t Peer> {
        self.own(object)?;
        match self.peers.get(pe) {
            Some(peer) => Ok(peer),
            None => Err(self.no_such_pe(pe)),
        }
    }

    /// Fails unless `object` belongs to this context's world.
    #[inline(always)]
    fn own<T: Elem>(&self, object: SymSlice<'_, T>) -> Result<()> {
        if std::ptr::eq(object.heap(), self.core.heap()) { Ok(()) } else { Err(other_world(object.offset())) }
    }

    /// Fails unless `object` belongs to this context's world and has an element.
    #[inline(always)]
    fn own_word<T: Elem>(&self, object: SymSlice<'_, T>) -> Result<()> {
        self.own(object)?;
        if object.is_empty() { Err(object.out_of_range(0, 1)) } else { Ok(()) }
    }

    #[cold]
    fn no_such_pe(&self, pe: usize) -> Error {
        ErrorKind::NoSuchPe { pe, n_pes: self.peers.len() }.into()
    }
}

#[cold]
fn other_world(offset: usize) -> Error {
    ErrorKind::OtherWorld { offset }.into()
}

impl<S: Sharing> fmt::Debug for Ctx<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("me", &self.me).field("n_pes", &self.peers.len()).finish()
    }
}
