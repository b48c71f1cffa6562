//! Bounded queues from one PE to another, over [`Ring`].

use std::fmt;
use std::panic::Location;

use crate::core::Core;
use crate::elem::Elem;
use crate::error::{Error, ErrorKind, Result};
use crate::heap::SymBox;
use crate::sync::Call;
use crate::sync::ring::Ring;
use crate::watch::lookout::Open;
use crate::watch::{Begun, Site};

/// A queue of values from one PE to another, with room for a fixed number of them: the sender waits while it is full,
/// the receiver while it is empty. Values arrive whole and in order. Each side moves data with stores to the other's
/// memory and polls its own.
///
/// Made by [`World::channel`](crate::World::channel) and ended by [`World::free_channel`](crate::World::free_channel).
///
/// ```
/// shmem::local(3, |world| -> shmem::Result<()> {
///     let mut squares = world.channel::<u64>(0, 2, 4)?;
///     match world.me() {
///         0 => (0..100).try_for_each(|i| squares.send(i * i))?,
///         2 => (0..100).try_for_each(|i| squares.recv().map(|value| assert_eq!(value, i * i)))?,
///         _ => {}
///     }
///     world.free_channel(squares)
/// })?;
/// # Ok::<(), shmem::Error>(())
/// ```
pub struct Channel<'w, T> {
    core: &'w Core,
    ring: Ring,
    block: SymBox<'w, u64>,
    /// Messages that this PE has sent, and that it has received.
    sent: u64,
    received: u64,
    /// One message as words.
    words: Vec<u64>,
    value: std::marker::PhantomData<fn(T) -> T>,
}

impl<'w, T: Elem> Channel<'w, T> {
    /// Words of a message.
    pub(crate) const WIDTH: usize = size_of::<T>().div_ceil(8);

    /// Words of symmetric memory that a channel needs, `None` if no address can hold them.
    pub(crate) fn words(capacity: usize) -> Option<usize> {
        Ring::bytes(capacity, Self::WIDTH).map(|bytes| bytes / 8)
    }

    /// The channel over `block`, which is zero and holds [`words`](Self::words) of `capacity`.
    pub(crate) fn new(core: &'w Core, block: SymBox<'w, u64>, sender: usize, receiver: usize, capacity: usize) -> Self {
        let at = block.sym().offset();
        let ring = Ring { sender, receiver, at, capacity: capacity as u64, width: Self::WIDTH };
        Channel {
            core,
            ring,
            block,
            sent: 0,
            received: 0,
            words: vec![0; Self::WIDTH],
            value: std::marker::PhantomData,
        }
    }

    pub(crate) fn into_block(self) -> SymBox<'w, u64> {
        self.block
    }

    /// Sends a value. Blocks while the channel is full.
    ///
    /// # Errors
    /// [`Channel`](ErrorKind::Channel) if this PE is not the sender; [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout): the value was not sent.
    #[track_caller]
    pub fn send(&mut self, value: T) -> Result<()> {
        self.require(self.ring.sender, "send to")?;
        bytemuck::cast_slice_mut(&mut self.words)[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        let full = !self.ring.has_room(&self.core.link, self.sent)?;
        let _open = full.then(|| self.begin(Call::Send, Location::caller()));
        self.ring.push(&self.core.link, self.sent, &self.words)?;
        self.sent += 1;
        Ok(())
    }

    /// Receives a value. Blocks while the channel is empty.
    ///
    /// # Errors
    /// [`Channel`](ErrorKind::Channel) if this PE is not the receiver; [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn recv(&mut self) -> Result<T> {
        self.require(self.ring.receiver, "receive from")?;
        if !self.ring.try_pop(&self.core.link, self.received, &mut self.words)? {
            let _open = self.begin(Call::Receive, Location::caller());
            self.ring.pop(&self.core.link, self.received, &mut self.words)?;
        }
        Ok(self.taken())
    }

    /// Receives a value if one has arrived. Does not block.
    ///
    /// # Errors
    /// [`Channel`](ErrorKind::Channel) if this PE is not the receiver.
    pub fn try_recv(&mut self) -> Result<Option<T>> {
        self.require(self.ring.receiver, "receive from")?;
        let arrived = self.ring.try_pop(&self.core.link, self.received, &mut self.words)?;
        Ok(arrived.then(|| self.taken()))
    }

    fn begin(&self, call: Call, site: Site) -> Open<'w> {
        let number = self.ring.at as u64;
        self.core.link.lookout().begin(Begun { call, name: "", site, number, team: 0 })
    }

    fn taken(&mut self) -> T {
        self.received += 1;
        bytemuck::pod_read_unaligned(&bytemuck::cast_slice(&self.words)[..size_of::<T>()])
    }

    fn require(&self, pe: usize, call: &'static str) -> Result<()> {
        if self.core.link.me() == pe { self.core.link.require_own_process() } else { Err(self.not_mine(call)) }
    }

    #[cold]
    fn not_mine(&self, call: &'static str) -> Error {
        let Ring { sender, receiver, .. } = self.ring;
        ErrorKind::Channel { pe: self.core.link.me(), call, sender, receiver }.into()
    }
}

impl<T> fmt::Debug for Channel<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Channel { ring, sent, received, .. } = self;
        f.debug_struct("Channel").field("ring", ring).field("sent", sent).field("received", received).finish()
    }
}
