//! The world: all PEs of a job as one of them sees it. Start-up, the symmetric heap's allocations, and the end.
//!
//! - `start`: from settings and a bootstrap to a started world, in one function;
//! - `plan`: what the PEs decide at start-up from what all of them bring;
//! - `network`: how this PE gets to other hosts;
//! - `after`: going on after a loss;
//! - `overlay`: memory of the program as a part of the heap;
//! - `local`: PEs as threads of one process.

mod after;
mod local;
mod network;
#[allow(unsafe_code)]
mod overlay;
pub(crate) mod plan;
mod start;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub use local::{local, simulate};
pub use start::Builder;

use crate::boot::Bootstrap;
use crate::channel::Channel;
use crate::config::{self, Config};
use crate::core::Core;
use crate::ctx::{Ctx, Sharing};
use crate::elem::Elem;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{ErrorKind, Result};
use crate::group::{EMPTY, FOREIGN, HOLDS_LOCK, HUGE, NO_ROOM, OF_BLOCK};
use crate::heap::{Addresses, Check, GRAIN, HeapCall, Reservation, SymBox, SymSlice, User};
use crate::sync::Call;
use crate::team::Team;
use crate::watch::lookout::Open;
use crate::watch::{How, Loss, Vigil};

/// What a PE that failed is ahead of those that fail with it.
const HEAD_START: Duration = Duration::from_millis(50);

/// For a PE that ends because another has: the launcher names the PE that ends first, and that is to be the one that
/// failed.
fn let_the_first_end() {
    std::thread::sleep(HEAD_START);
}

/// A PE's membership in a job. Everything borrows from it: teams, contexts, allocations.
///
/// Dropping it ends the membership: collective, it blocks until all PEs have dropped theirs. Another world may be
/// started afterwards, and several may exist at once in one process.
pub struct World {
    core: Arc<Core>,
    vigil: Option<Vigil>,
    /// Held open: whoever leads the job learns from its end that this PE is gone.
    boot: Arc<dyn Bootstrap + Send + Sync>,
}

impl World {
    /// Joins the job that `shmemrun` started this process for; without `shmemrun`, a job of one PE. Collective: blocks
    /// until all PEs have called.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting) and [`SettingsDiffer`](ErrorKind::SettingsDiffer) for the `SHMEM_*`
    /// variables, [`NoMemory`](ErrorKind::NoMemory) if the host cannot give the heaps,
    /// [`Rendezvous`](ErrorKind::Rendezvous) if the PEs do not find each other.
    pub fn init() -> Result<World> {
        Builder::from_env()?.build()
    }

    /// Joins a job without a launcher: for programs that embed the library and know their PE number by other means.
    ///
    /// ```no_run
    /// # let (my_number, n) = (0, 1);
    /// let world = shmem::World::builder().pe(my_number).n_pes(n).rendezvous("10.0.0.1:7100").heap(1 << 30).build()?;
    /// # Ok::<(), shmem::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes this PE's membership last until the process ends, for programs that keep it in a global.
    pub fn leak(self) -> &'static World {
        Box::leak(Box::new(self))
    }

    /// This PE's number.
    #[inline]
    pub fn me(&self) -> usize {
        self.core.world.me()
    }

    /// The number of PEs in the job.
    #[inline]
    pub fn n_pes(&self) -> usize {
        self.core.world.peers().len()
    }

    /// A context for the world's PE numbers. Costs nothing.
    #[inline]
    pub fn ctx<S: Sharing>(&self) -> Ctx<'_, S> {
        Ctx::new(&self.core, &self.core.world)
    }

    /// The team of all PEs.
    pub fn team(&self) -> Team<'_> {
        Team::new(&self.core, self.core.world.clone())
    }

    /// The team of the PEs that share memory with this one: those of its host.
    pub fn shared_team(&self) -> Team<'_> {
        Team::new(&self.core, self.core.shared.clone())
    }

    /// Completes this PE's puts everywhere, then blocks until all PEs have done so: afterwards all of them see all that
    /// was put before. Collective.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if a PE is in another collective call; [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout).
    #[inline]
    #[track_caller]
    pub fn barrier_all(&self) -> Result<()> {
        self.core.link.quiet(None)?;
        self.agree(Call::Barrier, 0)
    }

    /// Blocks until all PEs have called it. Collective. Says nothing about puts: for that, see
    /// [`barrier_all`](Self::barrier_all).
    ///
    /// # Errors
    /// As [`barrier_all`](Self::barrier_all).
    #[inline]
    #[track_caller]
    pub fn sync_all(&self) -> Result<()> {
        self.agree(Call::Sync, 0)
    }

    /// Allocates `len` elements in the symmetric heap, with arbitrary contents, aligned for `T` and to a cache line.
    /// Collective, with the same size on all PEs; on return all PEs have it. No elements are an empty object that takes
    /// no room.
    ///
    /// # Errors
    /// On all PEs alike, with nothing allocated: [`HeapFull`](ErrorKind::HeapFull), [`Overflow`](ErrorKind::Overflow),
    /// [`Mismatch`](ErrorKind::Mismatch) if the sizes differ. [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn alloc<T: Elem>(&self, len: usize) -> Result<SymBox<'_, T>> {
        self.allocate(Call::Alloc, align_of::<T>(), len)
    }

    /// [`alloc`](Self::alloc), with every byte zero on every PE on return.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`NotMapped`](ErrorKind::NotMapped) where the processor has no access to the heap.
    #[track_caller]
    pub fn alloc_zeroed<T: Elem>(&self, len: usize) -> Result<SymBox<'_, T>> {
        let _open = self.begin(Call::AllocZeroed)?;
        let block = self.allocate::<T>(Call::AllocZeroed, align_of::<T>(), len)?;
        // On all PEs alike, since their memory is.
        self.core.heap().require_access(&block.sym().bytes()).inspect_err(|_| {
            self.core.heap().free(block.sym().offset(), Location::caller());
        })?;
        self.core.heap().segment().zero(block.sym().offset(), len * size_of::<T>());
        self.agree(Call::AllocZeroed, 0)?;
        Ok(block)
    }

    /// [`alloc`](Self::alloc) at a multiple of `align` bytes, a power of two: up to 64 MiB, but for heaps in memory of another
    /// kind, which begin where they do, if only at a page.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`BadAlignment`](ErrorKind::BadAlignment).
    #[track_caller]
    pub fn align<T: Elem>(&self, align: usize, len: usize) -> Result<SymBox<'_, T>> {
        self.allocate(Call::Alloc, align, len)
    }

    /// Changes the number of elements of `block`, which moves if there is no room where it is; the elements that it had
    /// keep their values, on every PE. A block that moves loses any alignment beyond a cache line. Collective, with the
    /// same block and size on all PEs.
    ///
    /// # Errors
    /// As [`alloc_zeroed`](Self::alloc_zeroed); the block is then as it was. [`OtherWorld`](ErrorKind::OtherWorld).
    #[track_caller]
    pub fn realloc<'w, T: Elem>(&'w self, block: &mut SymBox<'w, T>, len: usize) -> Result<()> {
        let _open = self.begin(Call::Realloc)?;
        let heap = self.core.heap();
        let size = len.checked_mul(size_of::<T>());
        self.core.link.quiet(None)?;
        self.agree(Call::Realloc, OF_BLOCK | self.identity(block))?;
        let old = self.place_of(block, "realloc")?;
        let (had, align) = (block.size(), align_of::<T>());
        let change = size.map(|new| HeapCall::Resize { offset: old, old: had, new, align });
        self.agree_to_change(Call::Realloc, clamp(size), change).inspect_err(|error| {
            if error.kind().is_lost() {
                // Others may have moved it.
                *block = SymBox::new(SymSlice::new(heap, heap.arena().start(), 0));
            }
        })?;
        let bytes = size.ok_or(ErrorKind::Overflow { count: len, size: size_of::<T>() })?;
        let (of, new) = heap.resize(old, had, bytes, align, Location::caller())?;
        *block = SymBox::new(SymSlice::new(of, new, len));
        // Nobody may reuse the old block before all have copied it.
        self.agree(Call::Realloc, 0)
    }

    /// Gives an allocation back. Collective, with the same block on all PEs; all puts into it that were started before
    /// are complete first.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if the blocks differ, [`OtherWorld`](ErrorKind::OtherWorld): nothing is freed,
    /// and the memory stays taken until the world ends. [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn free<T: Elem>(&self, block: SymBox<'_, T>) -> Result<()> {
        self.core.link.quiet(None)?;
        let change = (block.size() > 0).then(|| HeapCall::Free { offset: block.sym().offset() });
        self.agree_to_change(Call::Free, self.identity(&block), change)?;
        let offset = self.place_of(&block, "free")?;
        if block.size() > 0 {
            self.core.heap().free(offset, Location::caller());
        }
        Ok(())
    }

    /// The object of `len` elements at `offset` of the symmetric heap: for offsets that came from [`SymSlice::offset`],
    /// by whatever way. Not collective.
    ///
    /// # Errors
    /// [`NotAllocated`](ErrorKind::NotAllocated) if no live allocation holds all of it,
    /// [`Misaligned`](ErrorKind::Misaligned), [`Overflow`](ErrorKind::Overflow).
    pub fn object_at<T: Elem>(&self, offset: usize, len: usize) -> Result<SymSlice<'_, T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(ErrorKind::Overflow { count: len, size: size_of::<T>() })?;
        let heap = self.core.heap().find(offset, bytes)?;
        if !offset.is_multiple_of(align_of::<T>()) {
            return Err(ErrorKind::Misaligned { offset, align: align_of::<T>() }.into());
        }
        Ok(SymSlice::new(heap, offset, len))
    }

    /// Symmetric objects by their addresses in this process, in the heap or in an [overlay](Self::overlay) that was made before:
    /// for bindings of languages that know no handles.
    pub fn addresses(&self) -> Addresses<'_> {
        self.core.heap().addresses()
    }

    /// Reserves this PE's copy of `object` for a library above this one, which works on it by itself until the result is
    /// dropped: for `call`, the `number`th of its kind (0 if these are not counted), which the program made at `site`. In checked mode, a write to it by
    /// a PE of this host is the error [`InUse`](ErrorKind::InUse), unless it comes from a context
    /// [of the library](Ctx::of_library) or the memory is [lent](Reservation::lend) to the PE itself; else nothing happens. Not collective.
    pub fn reserve<T: Elem>(
        &self,
        object: SymSlice<'_, T>,
        call: &'static str,
        number: u64,
        site: &'static Location<'static>,
    ) -> Reservation<'_> {
        Reservation::new(self.core.heap(), object.heap(), object.bytes(), User { call, number, site })
    }

    /// A queue of up to `capacity` values from PE `sender` to PE `receiver` (which may be the same). Collective, with
    /// the same arguments on all PEs.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe), [`Length`](ErrorKind::Length) for a capacity of 0; else as
    /// [`alloc`](Self::alloc).
    #[track_caller]
    pub fn channel<T: Elem>(&self, sender: usize, receiver: usize, capacity: usize) -> Result<Channel<'_, T>> {
        let _open = self.begin(Call::Channel)?;
        let n_pes = self.n_pes();
        // Exact for every PE that exists; the capacity is compared as the size of the allocation, where there is one.
        let end = |pe: usize| pe.min(n_pes) as u64;
        let without_room = if capacity == 0 { NO_ROOM } else { 0 };
        self.agree(Call::Channel, without_room | end(sender) << 25 | end(receiver))?;
        if let Some(&pe) = [sender, receiver].iter().find(|pe| **pe >= n_pes) {
            return Err(ErrorKind::NoSuchPe { pe, n_pes }.into());
        }
        if capacity == 0 {
            return Err(ErrorKind::Length { what: "channel capacity", given: 0, needed: 1 }.into());
        }
        let block = self.alloc_zeroed(Channel::<T>::words(capacity).unwrap_or(usize::MAX))?;
        Ok(Channel::new(&self.core, block, sender, receiver, capacity))
    }

    /// Ends a channel. Collective, with the same channel on all PEs; values that were sent and not received are lost.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    #[track_caller]
    pub fn free_channel<T: Elem>(&self, channel: Channel<'_, T>) -> Result<()> {
        self.free(channel.into_block())
    }

    /// Bytes of the symmetric heap; the same on every PE.
    pub fn heap_size(&self) -> usize {
        self.core.heap().arena().bytes()
    }

    /// Bytes of the symmetric heap that are not allocated, in all and as one block; the same on every PE.
    pub fn heap_free(&self) -> (usize, usize) {
        let arena = self.core.heap().arena();
        (arena.free_bytes(), arena.largest_free())
    }

    /// Whether this host has more PEs than cores for them, by all PEs' affinity masks together and the smallest processor quota at the start:
    /// an estimate, the same on all PEs of the host. Who waits then had better let others run.
    pub fn is_crowded(&self) -> bool {
        self.core.crowded
    }

    /// The settings in force, as a table for people; what memory the heaps have got; and which ports lead to other hosts,
    /// and why these.
    pub fn info(&self) -> String {
        let network = self.core.network.as_ref().map_or_else(String::new, |ports| format!("network: {ports}\n"));
        format!("{}symmetric heaps: {}\n{network}", config::info(&self.core.config), self.core.memory)
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Changes how long the waits of this PE may take, from now on, whatever `SHMEM_TIMEOUT` says: for ever, if no time is
    /// given. Not collective.
    pub fn set_timeout(&self, limit: Option<Duration>) {
        self.core.link.set_timeout(limit);
    }

    /// Tells all PEs that this one gives up: their waits, present and to come, return
    /// [`PeerLost`](ErrorKind::PeerLost). Not collective; for a program that meets an error which the others do not
    /// know of. [`run`] and [`local()`] do it by themselves.
    pub fn abandon(&self) {
        self.give_up(How::Failed);
    }

    /// Ends the whole job at once, wherever the other PEs are, with this exit status, 0 included. Not collective. Nothing
    /// is completed first: puts that are under way may or may not arrive. This process ends as by
    /// [`exit`](std::process::exit); PEs that are threads of it end with it.
    ///
    /// ```no_run
    /// # fn solved(_: &shmem::World) -> bool { true }
    /// # let world = shmem::World::init()?;
    /// if solved(&world) {
    ///     world.global_exit(0); // nobody needs to look further
    /// }
    /// # Ok::<(), shmem::Error>(())
    /// ```
    pub fn global_exit(&self, status: u8) -> ! {
        if self.is_own_process() {
            let end = Loss { pe: self.me(), how: How::EndedJob(status) };
            self.core.link.declare(end);
            self.core.link.lookout().board().amend(end);
        }
        std::process::exit(status.into())
    }

    fn give_up(&self, how: How) {
        if self.is_own_process() {
            self.core.link.declare(Loss { pe: self.me(), how });
        }
    }

    /// In checked mode, at the end of a job in which no PE was lost.
    fn say_what_is_left_over(&self) {
        let lines = self.core.heap().check().map_or_else(Vec::new, Check::left_over);
        if self.core.link.lookout().board().losses().is_empty() {
            eprint!("{}", lines.iter().map(|line| format!("shmem: check: {line}\n")).collect::<String>());
        }
    }

    fn is_own_process(&self) -> bool {
        self.core.link.require_own_process().is_ok()
    }

    /// The PE that failed first, if any has.
    fn lost(&self) -> Option<usize> {
        self.core.link.lookout().loss().map(|loss| loss.pe)
    }

    /// Records that the calling thread is in a call of several steps.
    #[track_caller]
    fn begin(&self, call: Call) -> Result<Open<'_>> {
        self.core.link.require_own_process()?;
        Ok(self.core.world.begin(&self.core.link, call, self.core.world.slot().1 + 1))
    }

    #[inline]
    #[track_caller]
    fn agree(&self, call: Call, argument: u64) -> Result<()> {
        if self.core.link.lookout().era() == 0 {
            self.core.world.agree(&self.core.link, call, argument)
        } else {
            self.going_on().agree(&self.core.link, call, argument)
        }
    }

    /// A block as a print holds it: equal for equal blocks only. What takes no room has the offset of whatever lies at
    /// the heap's start, and is not that.
    fn identity<T: Elem>(&self, block: &SymBox<'_, T>) -> u64 {
        match block.offset_in(self.core.heap()) {
            None => FOREIGN,
            Some(_) if block.size() == 0 => EMPTY,
            Some(offset) => self.lock_in(block).map_or(0, |_| HOLDS_LOCK) | offset as u64,
        }
    }

    /// The offset of a block on which all PEs agree, if it may be given back.
    fn place_of<T: Elem>(&self, block: &SymBox<'_, T>, call: &'static str) -> Result<usize> {
        let offset = block.offset_in(self.core.heap()).ok_or(ErrorKind::OtherWorld { offset: block.sym().offset() })?;
        match self.lock_in(block) {
            None => Ok(offset),
            Some(offset) => Err(ErrorKind::Lock { pe: self.me(), call, offset, why: "this PE holds it" }.into()),
        }
    }

    /// A lock in a block of this world that this PE is known to hold.
    fn lock_in<T: Elem>(&self, block: &SymBox<'_, T>) -> Option<usize> {
        self.core.heap().check()?.lock_in(block.sym().bytes())
    }

    #[track_caller]
    fn allocate<T: Elem>(&self, call: Call, align: usize, len: usize) -> Result<SymBox<'_, T>> {
        let size = len.checked_mul(size_of::<T>());
        let max = self.core.heap().segment().alignment();
        let possible = align.is_power_of_two() && align <= max;
        // Those that the heap gives to everything are all alike.
        let effective = align.max(align_of::<T>()).max(GRAIN);
        let align_code = if possible { u64::from(effective.trailing_zeros()) } else { 63 };
        // Wrong arguments take part, too: the other PEs must learn of them.
        let change = size.filter(|_| possible).map(|bytes| HeapCall::Alloc { bytes, align: effective });
        self.agree_to_change(call, align_code << 50 | clamp(size), change)?;
        if !possible {
            return Err(ErrorKind::BadAlignment { align, max }.into());
        }
        let bytes = size.ok_or(ErrorKind::Overflow { count: len, size: size_of::<T>() })?;
        let (heap, offset) = self.core.heap().allocate(bytes, effective, Location::caller())?;
        tracing::debug!(bytes, align = effective, offset, "allocated");
        Ok(SymBox::new(SymSlice::new(heap, offset, len)))
    }
}

/// A size as a print holds it.
fn clamp(size: Option<usize>) -> u64 {
    size.map_or(HUGE, |size| (size as u64).min(HUGE))
}

/// Runs `f` as one PE of the job that `shmemrun` started this process for ([`World::init`]), and ends the world
/// afterwards. If `f` fails, the other PEs learn it at once: their waits return [`PeerLost`](ErrorKind::PeerLost). An
/// error of the program's own goes out by [`Error::other`].
///
/// # Errors
/// Those of [`World::init`] and of `f`.
pub fn run<R>(f: impl FnOnce(&World) -> Result<R>) -> Result<R> {
    let world = World::init()?;
    let result = f(&world);
    if result.is_err() {
        world.abandon();
    }
    result
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.is_own_process() {
            // A forked child: it is no PE, and the threads that some of this would wait for are its parent's.
            std::mem::forget((Arc::clone(&self.core), Arc::clone(&self.boot), self.vigil.take()));
            return;
        }
        if std::thread::panicking() {
            self.give_up(How::Panicked);
        } else if self.lost().is_none() && self.going_on().is_out_of_step() {
            // The end is a collective call, too, and would meet another call of the others, for ever.
            self.give_up(How::TimedOut);
        }
        let leave = || self.core.link.quiet(None).and_then(|()| self.agree(Call::Finalize, 0));
        let mut in_order = true;
        while self.lost().is_none() {
            match leave() {
                Ok(()) if in_order => {
                    self.core.link.drain();
                    self.say_what_is_left_over();
                    break;
                }
                // The others are in another call, which fails there; they come here next.
                Err(error) if matches!(error.kind(), ErrorKind::Mismatch { .. }) => in_order = false,
                Err(error) if matches!(error.kind(), ErrorKind::Timeout { .. }) => self.give_up(How::TimedOut),
                // The others would wait for this one.
                Err(error) if !error.kind().is_lost() => self.give_up(How::Failed),
                Ok(()) | Err(_) => break,
            }
        }
        let launched = self.core.config.rendezvous.is_some();
        if launched && self.lost().is_some_and(|pe| pe != self.me()) {
            let_the_first_end();
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("me", &self.me()).field("n_pes", &self.n_pes()).finish_non_exhaustive()
    }
}
