//! Contexts: what a program does with other PEs' memory.
//!
//! - `rma`: put, get and their single-element, strided and non-blocking forms;
//! - `raw`: the same by address, for bindings of other languages;
//! - `fold`: combining the memory of several PEs, the data step of collectives;
//! - `amo`: atomics;
//! - `signal`: put with signal, and waiting for words;
//! - `order`: fence, quiet and locks.

mod amo;
#[allow(unsafe_code)]
mod fold;
mod order;
#[allow(unsafe_code)]
mod raw;
#[allow(unsafe_code)]
mod rma;
mod signal;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;

pub use fold::Kernel;
pub use rma::Scope;
pub use signal::{Cmp, SigRef, Values};

use crate::core::Core;
use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::heap::{Gate, Heap, SymSlice};
use crate::transport::Peer;
use crate::transport::lane::OnLane;
use crate::transport::link::Link;

mod sealed {
    pub trait Sealed {}
}

/// Who may use a context: [`Shared`] or [`Private`].
pub trait Sharing: sealed::Sealed {
    /// Carries the choice into the context's own `Sync`.
    #[doc(hidden)]
    type Mark;
    /// Whether each context has a lane of its own on the network.
    #[doc(hidden)]
    const ALONE: bool;
}

/// A context that many threads use at once. All shared contexts of a PE are one: what one has put, another completes.
#[derive(Debug)]
pub struct Shared;

/// A context of one thread at a time. Over a network it has a *lane* of its own (of seven, in turns): what it puts is not
/// ordered against what other contexts put, and its [`fence`](Ctx::fence) and [`quiet`](Ctx::quiet) need not speak of theirs.
#[derive(Debug)]
pub struct Private;

impl sealed::Sealed for Shared {}
impl sealed::Sealed for Private {}

impl Sharing for Shared {
    type Mark = ();
    const ALONE: bool = false;
}

impl Sharing for Private {
    type Mark = Cell<()>;
    const ALONE: bool = true;
}

/// What an operation does with an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A context: PE numbers are those of the team it was made from, and `fence` and `quiet` speak of what was put through it,
/// or, if it is [`Shared`], through any shared context of this PE.
///
/// Every operation checks its arguments first; if one is wrong nothing was written, and the context goes on working.
/// Besides the errors that it lists, each has [`Forked`](ErrorKind::Forked), and in checked mode
/// [`UseAfterFree`](ErrorKind::UseAfterFree) and [`InUse`](ErrorKind::InUse). Where a heap is memory of the program's own,
/// those that cannot reach it are [`NotMapped`](ErrorKind::NotMapped).
pub struct Ctx<'t, S: Sharing = Shared> {
    core: &'t Core,
    gate: Gate,
    peers: &'t [Peer],
    me: usize,
    /// On which lane of the network it puts.
    lane: usize,
    /// Whether it writes where a library has reserved memory: it is that library's own.
    of_library: bool,
    sharing: PhantomData<S::Mark>,
}

impl<'t, S: Sharing> Ctx<'t, S> {
    pub(crate) fn new(core: &'t Core, group: &'t Group) -> Self {
        Ctx {
            core,
            gate: core.heap().gate(),
            peers: group.peers(),
            me: group.me(),
            lane: if S::ALONE { core.link.next_lane() } else { 0 },
            of_library: false,
            sharing: PhantomData,
        }
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

    /// The words of all PEs as this context's signals reach them.
    #[inline(always)]
    fn words(&self) -> OnLane<'t> {
        OnLane { link: self.link(), lane: self.lane }
    }

    /// The same context for a library above this one, which may write to what it has [reserved](crate::World::reserve).
    pub fn of_library(self) -> Self {
        Ctx { of_library: true, ..self }
    }

    /// The way to `pe`, for an access to the first `elements` of `object`.
    #[inline(always)]
    #[track_caller]
    fn peer<T: Elem>(&self, object: SymSlice<'_, T>, elements: usize, access: Access, pe: usize) -> Result<&'t Peer> {
        self.pass(object, elements, access, pe)?;
        match self.peers.get(pe) {
            Some(peer) => Ok(peer),
            None => Err(self.no_such_pe(pe)),
        }
    }

    /// Fails unless the first `elements` of this PE's copy of `object` may be accessed.
    #[inline(always)]
    #[track_caller]
    fn own<T: Elem>(&self, object: SymSlice<'_, T>, elements: usize, access: Access) -> Result<()> {
        self.pass(object, elements, access, self.me)
    }

    /// Fails unless `object` belongs to this context's world and has an element, which may be accessed.
    #[inline(always)]
    #[track_caller]
    fn own_word<T: Elem>(&self, object: SymSlice<'_, T>, access: Access) -> Result<()> {
        self.own(object, 1, access)?;
        if object.is_empty() { Err(object.out_of_range(0, 1)) } else { Ok(()) }
    }

    /// What every operation asks: whether `object` belongs to this context's world, in the world's own process; and in
    /// checked mode, where the gate is closed, the rest.
    #[inline(always)]
    #[track_caller]
    fn pass<T: Elem>(&self, object: SymSlice<'_, T>, elements: usize, access: Access, pe: usize) -> Result<()> {
        if object.heap().address() == self.gate.open() {
            return Ok(());
        }
        let Range { start, end } = object.bytes();
        self.look(
            object.heap(),
            start..end.min(start.saturating_add(elements.saturating_mul(size_of::<T>()))),
            access,
            pe,
        )
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn look(&self, of: &Heap, bytes: Range<usize>, access: Access, pe: usize) -> Result<()> {
        let own = self.core.heap();
        own.require_own_process()?;
        if !own.is_same(of) {
            return Err(ErrorKind::OtherWorld { offset: bytes.start }.into());
        }
        let (Some(check), site) = (own.check(), Location::caller()) else { return Ok(()) };
        check.reach(of.birth(), &bytes, site)?;
        match self.peers.get(pe) {
            Some(peer) if access == Access::Write && !self.of_library => {
                check.write(peer.pe, self.link().segment(peer.pe), &bytes, site)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn no_such_pe(&self, pe: usize) -> Error {
        ErrorKind::NoSuchPe { pe, n_pes: self.peers.len() }.into()
    }
}

impl<S: Sharing> fmt::Debug for Ctx<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("me", &self.me).field("n_pes", &self.peers.len()).finish()
    }
}
