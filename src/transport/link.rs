//! Everything a PE can do to the others by offset, over whichever route: put, get, atomics, fence, quiet. Untyped: the
//! typed front (`ctx`) checks ranges and turns elements into bytes.
//!
//! On mapped memory the caller does everything itself. x86 keeps stores in order, and on other processors `fence` is a
//! release fence, so order costs nothing there; `quiet` is a full fence, since two PEs that each put, quiet and get
//! must not both read old values. What goes over a network is in `remote`, waiting in `rest`.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::elem::{AmoBits, AmoElem, Elem};
use crate::error::Result;
use crate::heap::{Gate, Heap, Segment, SymSlice, load, store};
use crate::sync::signal::{self, Signal};
use crate::sync::{Idle, Why, Word, Words, atom};
use crate::transport::amo::{Amo, AmoOp};
use crate::transport::lane::OnLane;
use crate::transport::loopback::{self, Base};
use crate::transport::places::Places;
use crate::transport::rest::Patience;
use crate::transport::roce::LANES;
use crate::transport::{Endpoint, Peer, Route, To};
use crate::watch::{Lookout, Loss};

/// The way from this PE to all others.
pub(crate) struct Link {
    /// First, so that it ends, with whatever it still has to deliver, before the memory is unmapped.
    pub(super) endpoint: Option<Box<dyn Endpoint>>,
    pub(super) places: Option<Places>,
    pub(super) me: usize,
    heap: Box<Heap>,
    gate: Gate,
    mapped: Vec<Option<Segment>>,
    peers: Box<[Peer]>,
    pub(super) control: Box<[Option<Base>]>,
    pub(super) patience: Patience,
    stream_from: usize,
    pub(super) lookout: Lookout,
    /// Whether all atomics go over the network.
    pub(super) atomics: bool,
    /// Private contexts so far, and scopes.
    lanes: AtomicUsize,
    owners: AtomicUsize,
}

/// The network of a job, for one of its PEs.
pub(crate) struct Net {
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// Whether the memory of the host's other PEs is reached over it, too.
    pub(crate) within: bool,
    /// Whether all atomics go over it, this PE's own included: where a card's are not atomic against the processor's.
    pub(crate) atomics: bool,
    pub(crate) places: Places,
}

impl Link {
    /// The link of PE `me`. `mapped` are the segments of this host's other PEs, by world number; of the rest, `None`.
    pub(crate) fn new(
        me: usize,
        heap: Box<Heap>,
        mapped: Vec<Option<Segment>>,
        net: Option<Net>,
        patience: Patience,
        stream_from: usize,
        lookout: Lookout,
    ) -> Self {
        // Where the kernel refuses, a sleeper's fence is an ordinary one and a lost ring costs it one nap.
        let _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
        let (own, gate) = (Base::of(heap.segment()), heap.gate());
        let control: Box<[_]> = (mapped.iter().enumerate())
            .map(|(pe, segment)| if pe == me { Some(own) } else { segment.as_ref().map(Base::of) })
            .collect();
        let (within, atomics) = net.as_ref().map_or((false, false), |net| (net.within, net.atomics));
        let whole = |pe: usize| mapped[pe].as_ref().unwrap_or(heap.segment()).is_whole();
        let way = |pe: usize, base: Option<Base>| match base {
            Some(base) if whole(pe) && (pe == me || !within) => Route::Loopback(base),
            _ => Route::Remote,
        };
        let peer = |(pe, base): (usize, &Option<Base>)| {
            let rma = way(pe, *base);
            Peer { pe, rma, amo: if atomics { Route::Remote } else { rma } }
        };
        let peers = control.iter().enumerate().map(peer).collect();
        let (endpoint, places) = net.map(|net| (net.endpoint, net.places)).unzip();
        let (lanes, owners) = (AtomicUsize::new(0), AtomicUsize::new(1));
        Link {
            endpoint,
            places,
            me,
            heap,
            gate,
            mapped,
            peers,
            control,
            patience,
            stream_from,
            lookout,
            atomics,
            lanes,
            owners,
        }
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

    /// How long a wait of this PE may take from now on.
    pub(crate) fn set_timeout(&self, limit: Option<Duration>) {
        self.patience.set_timeout(limit);
    }

    /// The lane of a context that has one of its own.
    #[inline]
    pub(crate) fn next_lane(&self) -> usize {
        if self.endpoint.is_none() { 0 } else { 1 + self.lanes.fetch_add(1, Ordering::Relaxed) % (LANES - 1) }
    }

    /// Whose the private memory of a scope's transfers is: an odd number, which no address of such memory is by itself.
    #[inline]
    pub(crate) fn next_owner(&self) -> usize {
        if self.endpoint.is_none() { 1 } else { 1 + 2 * self.owners.fetch_add(1, Ordering::Relaxed) }
    }

    /// Bytes from which a copy goes past the cache.
    #[inline(always)]
    pub(crate) fn stream_from(&self) -> usize {
        self.stream_from
    }

    /// Copies `bytes` from `source` to offset `at` of a peer. Over a network, the source may be read until the next quiet
    /// of the lane if it is `lasting`.
    ///
    /// # Safety
    /// The range lies in the segment; `source` is valid for `bytes`, for so long, and does not overlap the target.
    #[inline(always)]
    pub(crate) unsafe fn put(
        &self,
        peer: &Peer,
        lane: usize,
        at: usize,
        source: *const u8,
        bytes: usize,
        lasting: bool,
    ) -> Result<()> {
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: the caller vouches for both sides.
                unsafe { loopback::copy(base.at(at), source, bytes, self.stream_from) };
                Ok(())
            }
            Route::Remote => self.put_remote(To { lane, pe: peer.pe }, at, source, bytes, lasting),
        }
    }

    /// [`put`](Self::put) of what need not last, and behind it the signal: over a network with it, if that takes both.
    ///
    /// # Safety
    /// As [`put`](Self::put); the word lies in the segment, too, and is aligned.
    #[inline(always)]
    pub(crate) unsafe fn put_signal(
        &self,
        peer: &Peer,
        lane: usize,
        at: usize,
        source: *const u8,
        bytes: usize,
        (word, signal): (Word, Signal),
    ) -> Result<()> {
        match peer.rma {
            Route::Loopback(_) => {
                // SAFETY: the caller vouches for both sides.
                let put = || unsafe { self.put(peer, lane, at, source, bytes, false) };
                signal::deliver(&OnLane { link: self, lane }, put, word, signal)
            }
            Route::Remote => self.put_signal_remote(To { lane, pe: peer.pe }, at, source, bytes, (word, signal)),
        }
    }

    /// Copies `bytes` from offset `at` of a peer to `target`. Over a network, under an `owner` other than 0, they may
    /// arrive until the next quiet of the lane, or until what is the owner's is [forgotten](Self::forget).
    ///
    /// # Safety
    /// The range lies in the segment; `target` is valid for `bytes`, for so long, and does not overlap the source.
    #[inline(always)]
    pub(crate) unsafe fn get(
        &self,
        peer: &Peer,
        lane: usize,
        at: usize,
        target: *mut u8,
        bytes: usize,
        owner: usize,
    ) -> Result<()> {
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: the caller vouches for both sides.
                unsafe { loopback::copy(target, base.at(at), bytes, self.stream_from) };
                Ok(())
            }
            Route::Remote => self.get_remote(To { lane, pe: peer.pe }, at, target, bytes, owner),
        }
    }

    /// Runs an atomic operation on the first element of `target` on a peer and returns what it was.
    #[inline(always)]
    pub(crate) fn amo<T: AmoElem>(
        &self,
        peer: &Peer,
        lane: usize,
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
                let held = self.amo_remote(To { lane, pe: peer.pe }, target.offset(), amo)?;
                Ok(T::from_bits(T::Bits::narrow(held)))
            }
        }
    }

    /// [`amo`](Self::amo) whose result nobody wants. Over a network, it may be under way until the next quiet of the lane.
    #[inline(always)]
    pub(crate) fn amo_nbi<T: AmoElem>(
        &self,
        peer: &Peer,
        lane: usize,
        target: SymSlice<'_, T>,
        op: AmoOp,
        operand: T,
    ) -> Result<()> {
        match peer.amo {
            Route::Loopback(_) => self.amo(peer, lane, target, op, operand, operand).map(|_| ()),
            Route::Remote if target.is_empty() => Err(target.out_of_range(0, 1)),
            Route::Remote => {
                let amo = Amo { op, width: T::Bits::WIDTH, operand: operand.to_bits().widen(), expected: 0 };
                self.amo_later(To { lane, pe: peer.pe }, target.offset(), amo)
            }
        }
    }

    /// Writes the first element of `target` on a peer, whole if the machine can.
    #[inline(always)]
    pub(crate) fn put_element<T: Elem>(
        &self,
        peer: &Peer,
        lane: usize,
        target: SymSlice<'_, T>,
        value: T,
    ) -> Result<()> {
        if target.is_empty() {
            return Err(target.out_of_range(0, 1));
        }
        match peer.rma {
            Route::Loopback(base) => {
                // SAFETY: a handle's first element lies in the segment, which is as long on every PE, and is aligned.
                unsafe { store(base.at(target.offset()).cast(), value) };
                Ok(())
            }
            Route::Remote => self.put_element_remote(To { lane, pe: peer.pe }, target.offset(), value),
        }
    }

    /// Reads the first element of `source` on a peer, whole if the machine can.
    #[inline(always)]
    pub(crate) fn get_element<T: Elem>(&self, peer: &Peer, lane: usize, source: SymSlice<'_, T>) -> Result<T> {
        if source.is_empty() {
            return Err(source.out_of_range(0, 1));
        }
        match peer.rma {
            // SAFETY: a handle's first element lies in the segment, which is as long on every PE, and is aligned.
            Route::Loopback(base) => Ok(unsafe { load(base.at(source.offset()).cast()) }),
            Route::Remote => self.get_element_remote(To { lane, pe: peer.pe }, source.offset()),
        }
    }

    /// Fails in a process that was forked from the PE's.
    #[inline(always)]
    pub(crate) fn require_own_process(&self) -> Result<()> {
        if self.gate.is_own_process() { Ok(()) } else { self.heap.require_own_process() }
    }

    /// Orders this PE's earlier puts on a lane to each PE before its later ones there.
    #[inline(always)]
    pub(crate) fn fence(&self, lane: usize) -> Result<()> {
        self.require_own_process()?;
        fence(Ordering::Release);
        if self.endpoint.is_some() {
            self.fence_remote(lane);
        }
        Ok(())
    }

    /// Completes this PE's puts on a lane, or on all: they are visible everywhere before any later read.
    #[inline(always)]
    pub(crate) fn quiet(&self, lane: Option<usize>) -> Result<()> {
        self.require_own_process()?;
        if self.endpoint.is_some() {
            fence(Ordering::SeqCst);
            self.quiet_remote(lane)?;
            return self.lookout.check();
        }
        self.lookout.check_after(|| fence(Ordering::SeqCst))
    }

    /// What this PE sees of the others.
    #[inline(always)]
    pub(crate) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Tells every PE of this host of a loss, and wakes those that sleep; of its own end, a PE tells those of other hosts,
    /// too.
    #[cold]
    pub(crate) fn declare(&self, loss: Loss) {
        self.lookout.board().declare(loss);
        self.wake_all();
        if loss.pe == self.me {
            self.tell_end(loss.how);
        }
    }

    /// The word at an offset of a mapped PE.
    #[inline(always)]
    fn word(&self, base: Base, at: usize) -> &std::sync::atomic::AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.heap.segment().len());
        // SAFETY: protocols get their offsets from the layout or from handles, aligned and inside; segments live as
        // long as `self`.
        unsafe { base.word(at) }
    }

    /// Reads a word; what its writer wrote before is visible afterwards.
    #[inline(always)]
    pub(super) fn load_on(&self, lane: usize, word: Word) -> Result<u64> {
        match self.peers[word.pe].rma {
            Route::Loopback(base) => Ok(atom::observe(self.word(base, word.at))),
            Route::Remote => self.load_remote(lane, word),
        }
    }

    /// Writes a word after all that was put on the lane. No atomic operation of a card changes the word at the same time.
    #[inline(always)]
    pub(super) fn store_on(&self, lane: usize, word: Word, value: u64) -> Result<()> {
        match self.peers[word.pe].rma {
            Route::Loopback(base) => {
                atom::publish(self.word(base, word.at), value);
                Ok(())
            }
            Route::Remote => self.store_remote(lane, word, value),
        }
    }

    #[inline(always)]
    pub(super) fn add_on(&self, lane: usize, word: Word, value: u64) -> Result<u64> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => Ok(atom::accumulate(self.word(base, word.at), value)),
            Route::Remote => self.word_amo(lane, word, AmoOp::Add, value, 0),
        }
    }

    #[inline(always)]
    pub(super) fn add_later_on(&self, lane: usize, word: Word, value: u64) -> Result<()> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => {
                atom::accumulate(self.word(base, word.at), value);
                Ok(())
            }
            Route::Remote => self.word_add(lane, word, value),
        }
    }

    #[inline(always)]
    pub(super) fn compare_swap_on(&self, lane: usize, word: Word, old: u64, new: u64) -> Result<u64> {
        match self.peers[word.pe].amo {
            Route::Loopback(base) => Ok(atom::claim(self.word(base, word.at), old, new)),
            Route::Remote => self.word_amo(lane, word, AmoOp::CompareSwap, new, old),
        }
    }

    /// This PE's words as the library's own protocols use them: on the first lane.
    #[inline(always)]
    fn first(&self) -> OnLane<'_> {
        OnLane { link: self, lane: 0 }
    }
}

impl Words for Link {
    #[inline(always)]
    fn load(&self, word: Word) -> Result<u64> {
        self.first().load(word)
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) -> Result<()> {
        self.first().store(word, value)
    }

    #[inline(always)]
    fn add(&self, word: Word, value: u64) -> Result<u64> {
        self.first().add(word, value)
    }

    #[inline(always)]
    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64> {
        self.first().compare_swap(word, old, new)
    }

    #[inline(always)]
    fn quiet(&self) -> Result<()> {
        Link::quiet(self, None)
    }

    #[inline(always)]
    fn ring(&self, pe: usize) {
        self.first().ring(pe);
    }

    #[inline(always)]
    fn pause(&self, idle: &mut Idle, why: Why) -> Result<()> {
        self.first().pause(idle, why)
    }

    #[inline(always)]
    fn resume(&self, idle: Idle) {
        self.first().resume(idle);
    }
}
