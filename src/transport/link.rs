//! Everything a PE can do to the others by offset, over whichever route: put, get, atomics, fence, quiet, and waiting.
//! Untyped: the typed front (`ctx`) checks ranges and turns elements into bytes.
//!
//! On mapped memory the caller does everything itself. x86 keeps stores in order, and on other processors `fence` is a
//! release fence, so order costs nothing there; `quiet` is a full fence, since two PEs that each put, quiet and get
//! must not both read old values.

use std::sync::atomic::{Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, futex, membarrier};

use crate::config::RouteChoice;
use crate::elem::{AmoBits, AmoElem, Elem, Width};
use crate::error::{ErrorKind, Result};
use crate::heap::control::{BELL, SLEEPERS};
use crate::heap::{Gate, Heap, Segment, SymSlice, load, store};
use crate::sync::park::{self, Bed};
use crate::sync::{Idle, Why, Word, Words, atom};
use crate::transport::loopback::{self, Base};
use crate::transport::shuffle::Shuffle;
use crate::transport::{Amo, AmoOp, Endpoint, Peer, Route};
use crate::watch::{Lookout, Loss, report};

/// When a waiter spins, yields, sleeps and gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Polls before it yields its core.
    pub(crate) spin: u32,
    /// How long it may wait at all.
    pub(crate) timeout: Option<Duration>,
    /// After how long a table of all PEs is printed.
    pub(crate) stall_warn: Option<Duration>,
}

/// Polls that come before the first pause instruction: on some processors one pause takes as long as a hand-over.
const HOT_POLLS: u32 = 200;
/// Polls between two looks at whether the wait is in vain, however long the spinning is set to last.
const VIGIL: u32 = 1 << 14;
/// How long a waiter yields before it sleeps. Long enough for a round of every PE of an oversubscribed host.
const YIELD_FOR: Duration = Duration::from_millis(1);
/// A nap lasts an eighth of the wait so far, within these bounds. A signal's bell ends it early; but a put or an atomic
/// rings none (a PE that sleeps in a barrier while others count on its memory would wake for each), nor does a network
/// card, and then a waiter oversleeps by an eighth at most.
const NAP: std::ops::RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(3);

/// Bytes that are carried at a time between memories to which the processor has no access.
const PART: usize = 256 << 10;

/// The way from this PE to all others.
pub(crate) struct Link {
    /// First, so that it ends, with whatever it still has to deliver, before the memory is unmapped.
    endpoint: Option<Box<dyn Endpoint>>,
    me: usize,
    heap: Box<Heap>,
    gate: Gate,
    mapped: Vec<Option<Segment>>,
    peers: Box<[Peer]>,
    control: Box<[Option<Base>]>,
    patience: Patience,
    stream_from: usize,
    lookout: Lookout,
}

impl Link {
    /// The link of PE `me`. `mapped` are the segments of this host's other PEs, by world number; of the rest, `None`.
    pub(crate) fn new(
        me: usize,
        heap: Box<Heap>,
        mapped: Vec<Option<Segment>>,
        route: RouteChoice,
        patience: Patience,
        stream_from: usize,
        lookout: Lookout,
    ) -> Result<Self> {
        // Where the kernel refuses, a sleeper's fence is an ordinary one and a lost ring costs it one nap.
        let _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
        let (own, gate) = (Base::of(heap.segment()), heap.gate());
        let control: Box<[_]> = (mapped.iter().enumerate())
            .map(|(pe, segment)| if pe == me { Some(own) } else { segment.as_ref().map(Base::of) })
            .collect();
        let peers = (control.iter().enumerate())
            .map(|(pe, base)| {
                let whole = if pe == me {
                    heap.segment().is_whole()
                } else {
                    mapped[pe].as_ref().is_some_and(Segment::is_whole)
                };
                let route = match *base {
                    Some(base) if whole && (route == RouteChoice::Auto || pe == me) => Route::Loopback(base),
                    _ => Route::Remote,
                };
                Peer { pe, rma: route, amo: route }
            })
            .collect();
        let segments = || mapped.iter().flatten().chain([heap.segment()]);
        if route == RouteChoice::Shuffle && segments().any(|segment| segment.piece(segment.len()).is_none()) {
            let (name, value) = ("SHMEM_ROUTE".into(), "shuffle".into());
            let form = "it needs heaps that all PEs of the host can map".into();
            return Err(ErrorKind::BadSetting { name, value, form }.into());
        }
        let endpoint: Option<Box<dyn Endpoint>> = match route {
            RouteChoice::Auto => None,
            RouteChoice::Shuffle => Some(Box::new(Shuffle::start(control.iter().copied().flatten().collect(), me)?)),
        };
        Ok(Link { endpoint, me, heap, gate, mapped, peers, control, patience, stream_from, lookout })
    }

    pub(crate) fn me(&self) -> usize {
        self.me
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The segment of a PE of this host.
    pub(crate) fn segment(&self, pe: usize) -> Option<&Segment> {
        if pe == self.me { Some(self.heap.segment()) } else { self.mapped.get(pe)?.as_ref() }
    }

    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Bytes from which a copy goes past the cache.
    #[inline(always)]
    pub(crate) fn stream_from(&self) -> usize {
        self.stream_from
    }

    /// Copies `bytes` from `source` to offset `at` of a peer.
    ///
    /// # Safety
    /// The range lies in the segment; `source` is valid for `bytes`, and does not overlap the target.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, peer: &Peer, at: usize, source: *const u8, bytes: usize) -> Result<()> {
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: the caller vouches for both sides.
                unsafe { loopback::copy(base.at(at), source, bytes, self.stream_from) };
                Ok(())
            }
            // SAFETY: the caller vouches for the source.
            Route::Remote => self.put_remote(peer.pe, at, unsafe { std::slice::from_raw_parts(source, bytes) }),
        }
    }

    /// Copies `bytes` from offset `at` of a peer to `target`.
    ///
    /// # Safety
    /// The range lies in the segment; `target` is valid for `bytes`, and does not overlap the source.
    #[inline(always)]
    pub(crate) unsafe fn get(&self, peer: &Peer, at: usize, target: *mut u8, bytes: usize) -> Result<()> {
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: the caller vouches for both sides.
                unsafe { loopback::copy(target, base.at(at), bytes, self.stream_from) };
                Ok(())
            }
            // SAFETY: the caller vouches for the target.
            Route::Remote => self.get_remote(peer.pe, at, unsafe { std::slice::from_raw_parts_mut(target, bytes) }),
        }
    }

    /// Runs an atomic operation on the first element of `target` on a peer and returns what it was.
    #[inline(always)]
    pub(crate) fn amo<T: AmoElem>(
        &self,
        peer: &Peer,
        target: SymSlice<'_, T>,
        op: AmoOp,
        operand: T,
        expected: T,
    ) -> Result<T> {
        if target.is_empty() {
            return Err(target.out_of_range(0, 1));
        }
        let (operand, expected) = (operand.to_bits(), expected.to_bits());
        match peer.amo {
            Route::Loopback(base) => {
                // SAFETY: a handle's first element lies in the segment, which is as long on every PE, and is aligned.
                Ok(T::from_bits(unsafe { loopback::amo(base.at(target.offset()), op, operand, expected) }))
            }
            Route::Remote => {
                let amo = Amo { op, width: T::Bits::WIDTH, operand: operand.widen(), expected: expected.widen() };
                self.amo_remote(peer.pe, target.offset(), amo).map(|held| T::from_bits(T::Bits::narrow(held)))
            }
        }
    }

    /// Writes the first element of `target` on a peer, whole if the machine can.
    #[inline(always)]
    pub(crate) fn put_element<T: Elem>(&self, peer: &Peer, target: SymSlice<'_, T>, value: T) -> Result<()> {
        if target.is_empty() {
            return Err(target.out_of_range(0, 1));
        }
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: a handle's first element lies in the segment, which is as long on every PE, and is aligned.
                unsafe { store(base.at(target.offset()).cast(), value) };
                Ok(())
            }
            Route::Remote => self.put_element_remote(peer.pe, target.offset(), value),
        }
    }

    /// Reads the first element of `source` on a peer, whole if the machine can.
    #[inline(always)]
    pub(crate) fn get_element<T: Elem>(&self, peer: &Peer, source: SymSlice<'_, T>) -> Result<T> {
        if source.is_empty() {
            return Err(source.out_of_range(0, 1));
        }
        match peer.rma {
            // SAFETY: a handle's first element lies in the segment, which is as long on every PE, and is aligned.
            Route::Loopback(base) => Ok(unsafe { load(base.at(source.offset()).cast()) }),
            Route::Remote => self.get_element_remote(peer.pe, source.offset()),
        }
    }

    /// Fails in a process that was forked from the PE's.
    #[inline(always)]
    pub(crate) fn require_own_process(&self) -> Result<()> {
        if self.gate.is_own_process() { Ok(()) } else { self.heap.require_own_process() }
    }

    /// Orders this PE's earlier puts to each PE before its later ones.
    #[inline(always)]
    pub(crate) fn fence(&self) -> Result<()> {
        self.require_own_process()?;
        fence(Ordering::Release);
        match &self.endpoint {
            None => Ok(()),
            Some(endpoint) => self.fence_remote(endpoint.as_ref()),
        }
    }

    /// What this PE sees of the others.
    #[inline(always)]
    pub(crate) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Tells every PE of this host of a loss, and wakes those that sleep.
    #[cold]
    pub(crate) fn declare(&self, loss: Loss) {
        self.lookout.board().declare(loss);
        for &base in self.control.iter().flatten() {
            HostBed { base }.strike();
        }
    }

    /// Where the object at offset `at` of a peer lies, if it is mapped here.
    #[inline(always)]
    pub(crate) fn address(&self, peer: &Peer, at: usize) -> Option<*mut u8> {
        match peer.rma {
            Route::Loopback(base) => Some(base.at(at)),
            Route::Remote => self.piece(peer.pe, at).map(|base| base.at(at)),
        }
    }

    /// From where the offset `at` of a PE leads to mapped memory, the PE's segment being in pieces. It is asked in calls
    /// that are remote otherwise, so that what is mapped as a whole knows nothing of it.
    #[cold]
    fn piece(&self, pe: usize, at: usize) -> Option<Base> {
        Base::of_piece(self.segment(pe).filter(|segment| !segment.is_whole())?, at)
    }

    /// Copies `bytes` from offset `from.1` of the peer `from.0` to offset `to.1` of `to.0`, the processor having no access
    /// to one of them; if both are one PE's, they may overlap.
    ///
    /// # Safety
    /// The ranges lie in the segments.
    #[cold]
    pub(crate) unsafe fn carry(&self, from: (&Peer, usize), to: (&Peer, usize), bytes: usize) -> Result<()> {
        let mut buffer = vec![0; bytes.min(PART)];
        let parts = bytes.div_ceil(PART);
        for part in 0..parts {
            // What is written must not lie ahead of what is still to be read.
            let start = PART * if to.1 > from.1 { parts - 1 - part } else { part };
            let buffer = &mut buffer[..PART.min(bytes - start)];
            // SAFETY: the caller vouches for both ranges, and the buffer is private.
            unsafe {
                self.get(from.0, from.1 + start, buffer.as_mut_ptr(), buffer.len())?;
                self.put(to.0, to.1 + start, buffer.as_ptr(), buffer.len())?;
            }
        }
        Ok(())
    }

    #[cold]
    fn put_remote(&self, pe: usize, at: usize, source: &[u8]) -> Result<()> {
        match self.piece(pe, at) {
            // SAFETY: whoever calls a public function vouches for both sides.
            Some(base) => unsafe { loopback::copy(base.at(at), source.as_ptr(), source.len(), self.stream_from) },
            None => self.remote(pe, at, source.len())?.put(pe, at, source)?,
        }
        Ok(())
    }

    #[cold]
    fn get_remote(&self, pe: usize, at: usize, target: &mut [u8]) -> Result<()> {
        match self.piece(pe, at) {
            // SAFETY: whoever calls a public function vouches for both sides.
            Some(base) => unsafe { loopback::copy(target.as_mut_ptr(), base.at(at), target.len(), self.stream_from) },
            None => self.remote(pe, at, target.len())?.get(pe, at, target)?,
        }
        Ok(())
    }

    #[cold]
    fn put_element_remote<T: Elem>(&self, pe: usize, at: usize, value: T) -> Result<()> {
        match self.piece(pe, at) {
            // SAFETY: the element is a handle's, aligned and in the segment.
            Some(base) => unsafe { store(base.at(at).cast(), value) },
            None => self.put_remote(pe, at, bytemuck::bytes_of(&value))?,
        }
        Ok(())
    }

    #[cold]
    fn get_element_remote<T: Elem>(&self, pe: usize, at: usize) -> Result<T> {
        match self.piece(pe, at) {
            // SAFETY: the element is a handle's, aligned and in the segment.
            Some(base) => Ok(unsafe { load(base.at(at).cast()) }),
            None => {
                let mut value = T::zeroed();
                self.get_remote(pe, at, bytemuck::bytes_of_mut(&mut value)).map(|()| value)
            }
        }
    }

    #[cold]
    fn amo_remote(&self, pe: usize, at: usize, amo: Amo) -> Result<u64> {
        match self.piece(pe, at) {
            // SAFETY: words and the elements of handles are aligned, and lie in the segment.
            Some(base) => Ok(unsafe { loopback::amo_by_data(base.at(at), amo) }),
            None => self.remote(pe, at, if amo.width == Width::W32 { 4 } else { 8 })?.amo(pe, at, amo),
        }
    }

    #[cold]
    fn fence_remote(&self, endpoint: &dyn Endpoint) -> Result<()> {
        let mut remote = self.peers.iter().filter(|peer| matches!(peer.rma, Route::Remote));
        remote.try_for_each(|peer| match self.piece(peer.pe, 0) {
            Some(_) => endpoint.quiet(),
            None => endpoint.fence(peer.pe),
        })
    }

    /// The network, for an access to these bytes of a PE.
    fn remote(&self, pe: usize, at: usize, bytes: usize) -> Result<&dyn Endpoint> {
        self.endpoint.as_deref().ok_or_else(|| {
            let why = "they are not mapped here, and no network leads there";
            ErrorKind::NotMapped { pe, bytes: at..at + bytes, why }.into()
        })
    }

    /// Where the waiters of a PE of this host sleep.
    #[inline(always)]
    fn bed(&self, pe: usize) -> Option<HostBed> {
        self.control[pe].map(|base| HostBed { base })
    }

    /// A step of waiting that is not a spin: yields, then sleeps; looks whether the wait is in vain.
    #[cold]
    fn rest(&self, idle: &mut Idle, why: Why) -> Result<()> {
        self.lookout.check()?;
        self.check_era(idle, why)?;
        let waited = idle.since.get_or_insert_with(Instant::now).elapsed();
        if self.patience.timeout.is_some_and(|limit| waited > limit) {
            let waiting_for = self.whereabouts(why);
            return Err(ErrorKind::Timeout { pe: self.me, call: why.call.name(), after: waited, waiting_for }.into());
        }
        if !idle.stalled && self.patience.stall_warn.is_some_and(|limit| waited > limit) {
            idle.stalled = true;
            self.lookout.wait(why.on);
            self.warn_of_stall(waited);
        }
        if waited < YIELD_FOR {
            std::thread::yield_now();
            return Ok(());
        }
        let Some(bed) = self.bed(self.me) else {
            std::thread::sleep((waited / 8).clamp(*NAP.start(), *NAP.end()));
            return Ok(());
        };
        match idle.bell {
            None => {
                self.lookout.wait(why.on);
                idle.bell = Some(park::lie_down(&bed));
            }
            Some(bell) => {
                bed.sleep(bell, (waited / 8).clamp(*NAP.start(), *NAP.end()));
                idle.bell = Some(bed.bell());
            }
        }
        Ok(())
    }

    /// Fails if the wait began before a loss that was acknowledged since, or is for a PE that is lost.
    fn check_era(&self, idle: &mut Idle, why: Why) -> Result<()> {
        let era = self.lookout.era();
        if *idle.era.get_or_insert(era) != era {
            return self.lookout.require(self.lookout.acknowledged().into_iter().map(|loss| loss.pe));
        }
        if era == 0 { Ok(()) } else { self.lookout.require(why.on.into_iter()) }
    }

    /// Prints what all PEs of the host do, unless one of them has just done it.
    #[cold]
    fn warn_of_stall(&self, waited: Duration) {
        let board = self.lookout.board();
        if board.claim_stall(self.patience.stall_warn.unwrap_or_default()) {
            let (me, table) = (self.me, report::table(board));
            eprintln!("shmem: PE {me} has waited for {:.1} s (SHMEM_STALL_WARN)\n{table}", waited.as_secs_f64());
        }
    }

    /// What is known of the PE that a wait depends on.
    fn whereabouts(&self, why: Why) -> String {
        let Some(pe) = why.on else { return "nobody wrote what it waits for".into() };
        let board = self.lookout.board();
        let does = board.row(pe).map_or_else(|| "on another host".into(), |row| report::line(&row, &board.clock()));
        format!("it waits for PE {pe}, which is {does}")
    }

    /// The word at an offset of a mapped PE.
    #[inline(always)]
    fn word(&self, base: Base, at: usize) -> &std::sync::atomic::AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.heap.segment().len());
        // SAFETY: protocols get their offsets from the layout or from handles, aligned and inside; segments live as
        // long as `self`.
        unsafe { base.word(at) }
    }

    /// An operation on a word of a PE that is not mapped as a whole. Whoever sees that it was changed sees all that this
    /// PE has put there before.
    #[cold]
    fn amo_word(&self, word: Word, op: AmoOp, operand: u64, expected: u64) -> Result<u64> {
        if let Some(endpoint) = self.endpoint.as_deref().filter(|_| op != AmoOp::Fetch) {
            match self.piece(word.pe, word.at) {
                // Nothing else orders what goes over the network before what is stored in a piece that is mapped.
                Some(_) => endpoint.quiet()?,
                None => endpoint.fence(word.pe)?,
            }
        }
        self.amo_remote(word.pe, word.at, Amo { op, width: Width::W64, operand, expected })
    }
}

impl Words for Link {
    #[inline(always)]
    fn load(&self, word: Word) -> Result<u64> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => Ok(atom::observe(self.word(base, word.at))),
            Route::Remote => self.amo_word(word, AmoOp::Fetch, 0, 0),
        }
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) -> Result<()> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => {
                atom::publish(self.word(base, word.at), value);
                Ok(())
            }
            Route::Remote => self.amo_word(word, AmoOp::Set, value, 0).map(|_| ()),
        }
    }

    #[inline(always)]
    fn add(&self, word: Word, value: u64) -> Result<u64> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => Ok(atom::accumulate(self.word(base, word.at), value)),
            Route::Remote => self.amo_word(word, AmoOp::Add, value, 0),
        }
    }

    #[inline(always)]
    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => Ok(atom::claim(self.word(base, word.at), old, new)),
            Route::Remote => self.amo_word(word, AmoOp::CompareSwap, new, old),
        }
    }

    #[inline(always)]
    fn quiet(&self) -> Result<()> {
        self.require_own_process()?;
        fence(Ordering::SeqCst);
        self.lookout.check()?;
        match &self.endpoint {
            None => Ok(()),
            Some(endpoint) => endpoint.quiet(),
        }
    }

    #[inline(always)]
    fn ring(&self, pe: usize) {
        if let Some(bed) = self.bed(pe) {
            park::ring(&bed);
        }
    }

    #[inline(always)]
    fn pause(&self, idle: &mut Idle, why: Why) -> Result<()> {
        let step = idle.steps;
        idle.steps = step.saturating_add(1);
        if step >= self.patience.spin || step % VIGIL == VIGIL - 1 {
            return self.rest(idle, why);
        }
        if step >= HOT_POLLS {
            std::hint::spin_loop();
        }
        Ok(())
    }

    #[inline(always)]
    fn resume(&self, idle: Idle) {
        if idle.bell.is_some()
            && let Some(bed) = self.bed(self.me)
        {
            park::get_up(&bed);
        }
    }
}

/// The bed of a PE of this host, in its control page.
#[derive(Clone, Copy)]
struct HostBed {
    base: Base,
}

impl HostBed {
    fn futex(&self) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: the bell is part of a control page, which stays mapped while the link lives.
        unsafe { self.base.half_word(BELL) }
    }
}

impl Bed for HostBed {
    type Word = std::sync::atomic::AtomicU64;

    #[inline(always)]
    fn sleepers(&self) -> &Self::Word {
        // SAFETY: the count is part of a control page, which stays mapped while the link lives.
        unsafe { self.base.word(SLEEPERS) }
    }

    #[inline(always)]
    fn light_fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            fence(Ordering::SeqCst);
        }
    }

    fn bell(&self) -> u64 {
        self.futex().load(Ordering::Acquire).into()
    }

    #[cold]
    fn strike(&self) {
        self.futex().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.futex(), futex::Flags::empty(), i32::MAX as u32);
    }

    fn sleep(&self, bell: u64, at_most: Duration) {
        let time = rustix::time::Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        let _ = futex::wait(self.futex(), futex::Flags::empty(), bell as u32, Some(&time));
    }
}
