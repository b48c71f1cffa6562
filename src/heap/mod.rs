//! The symmetric heap: one segment of memory a PE, laid out alike on all, so that an object is an offset.
//!
//! - `segment`: its memory, mapped here and by the other PEs of the host;
//! - `memory`: where that comes from; `external`: from the program;
//! - `control`: the layout of a segment, and the control page at its start;
//! - `arena`: which offsets are allocated, pure data;
//! - `journal`: how far a PE has got with changing that;
//! - `slice`: the typed handles;
//! - `image`: memory of the program as a part of the heap, and objects by their addresses;
//! - `gate`: whether an operation may go ahead at once: not in a forked child, and not in checked mode;
//! - `check`: what checked mode knows of allocations, locks and buffers in use;
//! - `host`: what memory and cores the host can give.

mod arena;
pub(crate) mod check;
pub(crate) mod control;
#[allow(unsafe_code)]
mod external;
#[allow(unsafe_code)]
mod gate;
pub(crate) mod host;
#[allow(unsafe_code)]
mod image;
mod journal;
pub(crate) mod memory;
#[allow(unsafe_code)]
mod segment;
#[allow(unsafe_code)]
mod slice;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use arena::{Arena, GRAIN, MAX_ALIGN};
pub use check::Reservation;
pub(crate) use check::{Check, Site, User, place};
pub use external::ExternalMemory;
pub(crate) use gate::{Gate, Page};
pub use image::Addresses;
pub(crate) use journal::{HeapCall, Journal};
pub(crate) use memory::Memory;
pub(crate) use segment::{Segment, Start, ticks};
pub use slice::{SymBox, SymSlice};
pub(crate) use slice::{load, store};

use crate::error::{ErrorKind, Result};
use check::NO_BIRTH;
use image::Part;

/// This PE's segment with the allocations in it. Handles point here, so two worlds cannot be mixed up.
///
/// In checked mode the handles of each allocation point to a heap of its own instead, which leads to the same room and
/// says which allocation it is.
pub(crate) struct Heap {
    gate: Gate,
    start: Start,
    birth: u64,
    room: Arc<Room>,
    /// In checked mode, on the heap itself: those of the allocations.
    births: Option<Box<Births>>,
    /// On the heap itself, where the user's memory has a base of its own: that of what lies before it.
    front: Option<Box<Heap>>,
}

/// What there is once.
struct Room {
    page: Page,
    segment: Segment,
    /// The user's heap, in offsets.
    user: Range<usize>,
    image: OnceLock<Part>,
    arena: Mutex<Arena>,
    journal: Mutex<Journal>,
    me: usize,
    check: Option<Check>,
}

impl Heap {
    /// The heap of PE `me`; in checked mode, with what checks it.
    pub(crate) fn new(me: usize, segment: Segment, arena: Arena, check: Option<Check>) -> Result<Box<Heap>> {
        let page = Page::new()?;
        let (gate, births) = (page.gate(), check.is_some().then(Box::default));
        let (start, user, in_reach) = (segment.start(), segment.user_start(), segment.piece(segment.len()).is_some());
        let whole = segment.is_whole();
        let (bounds, arena, journal) = (arena.bounds(), Mutex::new(arena), Mutex::default());
        let room = Room { page, segment, user: bounds, image: OnceLock::new(), arena, journal, me, check };
        let room = Arc::new(room);
        let front = Heap { gate, start, birth: NO_BIRTH, room: room.clone(), births: None, front: None };
        let front = (!whole).then(|| Box::new(front));
        let heap = Box::new(Heap { gate, start: user, birth: NO_BIRTH, room, births, front });
        if heap.check().is_none() && in_reach {
            gate.open_for(heap.address());
        }
        Ok(heap)
    }

    /// The heap that handles to what lies before the user's heap point to.
    pub(crate) fn front(&self) -> &Heap {
        self.front.as_deref().unwrap_or(self)
    }

    /// Fails if these bytes lie where the processor may not access them.
    pub(crate) fn require_access(&self, bytes: &Range<usize>) -> Result<()> {
        if bytes.is_empty() || self.segment().piece(bytes.start).is_some() {
            return Ok(());
        }
        let why = "its memory was given without access by the processor: use put and get";
        Err(ErrorKind::NotMapped { pe: self.room.me, bytes: bytes.clone(), why }.into())
    }

    #[inline(always)]
    pub(crate) fn segment(&self) -> &Segment {
        &self.room.segment
    }

    /// Where operations look first.
    #[inline(always)]
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// As which the gate is open for it.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// Which allocation its handles came from, in checked mode.
    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// Whether both are of one world.
    pub(crate) fn is_same(&self, other: &Heap) -> bool {
        Arc::ptr_eq(&self.room, &other.room)
    }

    /// What checks it, in checked mode.
    pub(crate) fn check(&self) -> Option<&Check> {
        self.room.check.as_ref()
    }

    /// Fails in a process that was forked from the PE's.
    #[inline(always)]
    pub(crate) fn require_own_process(&self) -> Result<()> {
        if self.room.page.is_own_process() { Ok(()) } else { self.forked() }
    }

    #[cold]
    fn forked(&self) -> Result<()> {
        Err(ErrorKind::Forked { pe: self.room.me }.into())
    }

    /// Whether this PE may read, or write, its own copy of these bytes of one of its handles, where the gate is closed.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&self, bytes: &Range<usize>, writes: bool, site: Site) -> Result<()> {
        self.require_own_process()?;
        self.require_access(bytes)?;
        let Some(check) = self.check() else { return Ok(()) };
        check.reach(self.birth, bytes, site)?;
        if writes { check.write(self.room.me, None, bytes, site) } else { Ok(()) }
    }

    /// The allocations. A panic while they were locked cannot have left them half changed: nothing in there panics.
    pub(crate) fn arena(&self) -> MutexGuard<'_, Arena> {
        self.room.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that have changed the allocations.
    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.room.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the call in which this PE is behind the others.
    pub(crate) fn catch_up(&self, call: HeapCall, site: Site) -> Result<()> {
        match call {
            HeapCall::Alloc { bytes, align } => self.allocate(bytes, align, site).map(drop),
            HeapCall::Free { offset } => {
                self.free(offset, site);
                Ok(())
            }
            HeapCall::Resize { offset, old, new, align } => self.resize(offset, old, new, align, site).map(drop),
        }
    }

    /// Takes `bytes` at a multiple of `align`: the heap that handles to them point to, and their offset.
    pub(crate) fn allocate(&self, bytes: usize, align: usize, site: Site) -> Result<(&Heap, usize)> {
        let mut arena = self.arena();
        let offset = arena.alloc(bytes, align).ok_or_else(|| full(&arena, bytes, align))?;
        self.journal().make();
        Ok((self.born(offset, bytes, site), offset))
    }

    /// Changes the allocation of `had` bytes at `old` to `bytes`, with what it holds: where it is if there is room, else
    /// at a multiple of `align`. Returns as [`allocate`](Self::allocate).
    pub(crate) fn resize(
        &self,
        old: usize,
        had: usize,
        bytes: usize,
        align: usize,
        site: Site,
    ) -> Result<(&Heap, usize)> {
        let mut arena = self.arena();
        if arena.resize(old, had, bytes) {
            self.journal().make();
            if let Some(check) = self.check() {
                check.resized(old..old + bytes, site);
            }
            return Ok((self.covering(old, bytes), old));
        }
        self.require_access(&(old..old + had.min(bytes)))?;
        let new = arena.alloc(bytes, align).ok_or_else(|| full(&arena, bytes, align))?;
        self.journal().make();
        self.segment().copy_within(old, new, had.min(bytes));
        if had > 0 {
            arena.free(old);
            if let Some(check) = self.check() {
                check.freed(old, site);
            }
        }
        Ok((self.born(new, bytes, site), new))
    }

    /// Gives the allocation at an offset back.
    pub(crate) fn free(&self, offset: usize, site: Site) {
        self.arena().free(offset);
        self.journal().make();
        if let Some(check) = self.check() {
            check.freed(offset, site);
        }
    }

    /// The heap that handles to these bytes point to; fails unless one live allocation covers them.
    pub(crate) fn find(&self, offset: usize, bytes: usize) -> Result<&Heap> {
        let end = offset.saturating_add(bytes);
        let covered = self.arena().covers(offset, bytes);
        if covered { Ok(self.covering(offset, bytes)) } else { Err(ErrorKind::NotAllocated { offset, end }.into()) }
    }

    /// The heap of a new allocation. One of no bytes has none of its own: nothing of it can be reached.
    fn born(&self, offset: usize, bytes: usize, site: Site) -> &Heap {
        match self.check() {
            Some(check) if bytes > 0 => self.of_birth(check.allocated(offset..offset + bytes, site)),
            _ => self,
        }
    }

    /// The heap of the allocation that covers these bytes.
    fn covering(&self, offset: usize, bytes: usize) -> &Heap {
        match self.check() {
            Some(check) if bytes > 0 => self.of_birth(check.birth_at(offset)),
            _ => self,
        }
    }

    fn of_birth(&self, birth: u64) -> &Heap {
        let Some(births) = &self.births else { return self };
        let (gate, start, room) = (self.gate, self.start, &self.room);
        let make = || Heap { gate, start, birth, room: Arc::clone(room), births: None, front: None };
        births.get(birth, make).unwrap_or(self)
    }
}

/// The heaps of all allocations that ever were, by birth: blocks of 1, 2, 4, … of them, so that none ever moves.
struct Births([OnceLock<Box<[OnceLock<Heap>]>>; u64::BITS as usize]);

impl Default for Births {
    fn default() -> Self {
        Births(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl Births {
    /// That of a birth, made when it is first asked for; none for no birth.
    fn get(&self, birth: u64, make: impl FnOnce() -> Heap) -> Option<&Heap> {
        let block = birth.checked_ilog2()?;
        let first = 1 << block;
        let heaps = self.0[block as usize].get_or_init(|| (0..first).map(|_| OnceLock::new()).collect());
        Some(heaps[(birth - first) as usize].get_or_init(make))
    }
}

fn full(arena: &Arena, need: usize, align: usize) -> ErrorKind {
    let (free, largest, heap) = (arena.free_bytes(), arena.largest_free(), arena.bytes());
    ErrorKind::HeapFull { need, align, free, largest, heap }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("bytes", &self.segment().len()).finish_non_exhaustive()
    }
}
