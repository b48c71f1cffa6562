//! What goes over the network: each step of an [`Endpoint`], repeated until it is done, in the one way of waiting.
//!
//! A network is the first to learn that a PE of another host is gone. Whoever finds out tells its host; then a transfer
//! for that PE fails, and those for others go on.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crate::elem::Width;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::atom::{observe, publish};
use crate::sync::signal::{self, Signal};
use crate::sync::{Call, Idle, Why, Word, Words};
use crate::transport::amo::{Amo, AmoOp, CardAmo, Field};
use crate::transport::lane::OnLane;
use crate::transport::link::Link;
use crate::transport::private::{Early, Late};
use crate::transport::{Awaited, Endpoint, Near, Rest, Route, Taken, To};
use crate::watch::{How, Loss};

/// Bytes up to which a source in symmetric memory is copied, so that it may be reused at once: waiting until it was sent
/// takes a round trip, which is longer than copying that much.
const COPIED: usize = 8 << 10;
/// How long news of a loss take at most, from the PE that ends or from its launcher.
const NEWS: Duration = Duration::from_millis(500);
/// How long a PE that ends waits for what it has sent: longer than a card takes to find that a peer is gone.
const LINGER: Duration = Duration::from_secs(2);

impl Link {
    #[cold]
    pub(super) fn put_remote(&self, to: To, at: usize, source: *const u8, bytes: usize, lasting: bool) -> Result<()> {
        self.send(to, at, source, bytes, lasting, None).map(drop)
    }

    #[cold]
    pub(super) fn put_signal_remote(
        &self,
        to: To,
        at: usize,
        source: *const u8,
        bytes: usize,
        (word, signal): (Word, Signal),
    ) -> Result<()> {
        let words = OnLane { link: self, lane: to.lane };
        // What is not mapped here in part is not at all.
        let along = Some((word.at, signal)).filter(|_| self.piece_to_write(to.pe, word.at).is_none());
        if self.send(to, at, source, bytes, false, along)? {
            words.ring(word.pe);
            return Ok(());
        }
        signal::deliver(&words, || Ok(()), word, signal)
    }

    /// Puts, with a signal behind it. Whether that was taken along.
    fn send(
        &self,
        to: To,
        at: usize,
        source: *const u8,
        bytes: usize,
        lasting: bool,
        signal: Option<(usize, Signal)>,
    ) -> Result<bool> {
        if self.put_to_piece(to.pe, at, source, bytes)? {
            return Ok(false);
        }
        self.require_network(to.pe, at, bytes)?;
        let copied = |near: &usize| !lasting && bytes <= COPIED && self.heap().segment().piece(*near).is_some();
        let near = self.near(source, bytes).filter(|near| !copied(near));
        let taken = self.take(to, bytes, |endpoint, done| {
            let left = bytes - done;
            let source = match near {
                Some(near) => Near::Symmetric { at: near + done, bytes: left },
                None => Near::Private(Early { source: source.wrapping_add(done), bytes: left }),
            };
            endpoint.put(to, at + done, source, signal)
        })?;
        if near.is_some() && !lasting {
            self.complete(to, taken.ticket)?;
        }
        Ok(taken.signaled)
    }

    #[cold]
    pub(super) fn get_remote(&self, to: To, at: usize, target: *mut u8, bytes: usize, owner: usize) -> Result<()> {
        let Some(start) = NonNull::new(target) else { return Ok(()) };
        if self.get_from_piece(to.pe, at, target, bytes)? {
            return Ok(());
        }
        self.require_network(to.pe, at, bytes)?;
        let (near, lasting) = (self.near(target, bytes), owner != 0);
        let late = Late { target: start, bytes, owner: if lasting { owner } else { target.addr() } };
        let asked = self.take(to, bytes, |endpoint, done| {
            let left = bytes - done;
            let target = match near {
                Some(near) => Near::Symmetric { at: near + done, bytes: left },
                None => Near::Private(late.part(done, left)),
            };
            endpoint.get(to, at + done, target)
        });
        if lasting {
            // What its owner has asked for before arrives all the same.
            return asked.map(drop);
        }
        let outcome = asked.and_then(|taken| self.complete(to, taken.ticket));
        outcome.inspect_err(|_| self.forget(late.owner))
    }

    /// Any atomic operation, of any width.
    #[cold]
    pub(super) fn amo_remote(&self, to: To, at: usize, amo: Amo) -> Result<u64> {
        if let Some(held) = self.amo_in_piece(to.pe, at, amo) {
            return Ok(held);
        }
        let field = Field::new(at, amo.width);
        self.require_network(to.pe, at, amo.width.bytes())?;
        if let Some(amo) = amo.of_card() {
            return self.card_amo(to, at, amo);
        }
        let mut held = 0;
        let target = (&raw mut held).cast();
        self.get_word(to, field.at, target)?;
        while let Some(new) = amo.apply(field, held) {
            let found = self.card_amo(to, field.at, CardAmo::CompareSwap { expected: held, new })?;
            if std::mem::replace(&mut held, found) == found {
                break;
            }
        }
        Ok(field.of(held))
    }

    /// An atomic operation whose result nobody wants.
    #[cold]
    pub(super) fn amo_later(&self, to: To, at: usize, amo: Amo) -> Result<()> {
        if self.amo_in_piece(to.pe, at, amo).is_some() {
            return Ok(());
        }
        self.require_network(to.pe, at, amo.width.bytes())?;
        match amo.of_card() {
            Some(amo) => self.take(to, 8, |endpoint, _| endpoint.amo(to, at, amo, None)).map(drop),
            None => self.amo_remote(to, at, amo).map(drop),
        }
    }

    #[cold]
    pub(super) fn load_remote(&self, lane: usize, word: Word) -> Result<u64> {
        self.get_element_remote(To { lane, pe: word.pe }, word.at)
    }

    #[cold]
    pub(super) fn store_remote(&self, lane: usize, word: Word, value: u64) -> Result<()> {
        let to = To { lane, pe: word.pe };
        self.fence_of(to);
        self.put_element_remote(to, word.at, value)
    }

    #[cold]
    pub(super) fn word_amo(&self, lane: usize, word: Word, op: AmoOp, operand: u64, expected: u64) -> Result<u64> {
        let to = To { lane, pe: word.pe };
        self.fence_of(to);
        self.amo_remote(to, word.at, Amo { op, width: Width::W64, operand, expected })
    }

    #[cold]
    pub(super) fn word_add(&self, lane: usize, word: Word, value: u64) -> Result<()> {
        let to = To { lane, pe: word.pe };
        self.fence_of(to);
        self.amo_later(to, word.at, Amo { op: AmoOp::Add, width: Width::W64, operand: value, expected: 0 })
    }

    fn fence_of(&self, to: To) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.fence(to);
        }
    }

    #[cold]
    pub(super) fn fence_remote(&self, lane: usize) {
        if let Some(endpoint) = &self.endpoint {
            (0..self.peers().len()).for_each(|pe| endpoint.fence(To { lane, pe }));
        }
    }

    /// Returns when everything has arrived that was sent to PEs that live.
    #[cold]
    pub(super) fn quiet_remote(&self, lane: Option<usize>) -> Result<()> {
        let endpoint = self.endpoint()?;
        self.until(None, || Ok(endpoint.quiet(lane)?.then_some(())))
    }

    /// Waits until everything has arrived that was sent, whoever it is for; not for long, and whatever becomes of it: for a
    /// PE that ends.
    #[cold]
    pub(crate) fn drain(&self) {
        let Some(endpoint) = &self.endpoint else { return };
        let deadline = Instant::now() + LINGER;
        // A failure is told once, of each peer; one of its own is there for ever.
        let is_own = |error: &Error| matches!(error.kind(), ErrorKind::PeerLost { pe, .. } | ErrorKind::Fabric { pe, .. } if *pe == self.me);
        while Instant::now() < deadline {
            match endpoint
                .quiet(None)
                .and_then(|all| if all { Ok(None) } else { endpoint.idle(Awaited::End).map(Some) })
            {
                Ok(None) => return,
                Err(error) if is_own(&error) => return,
                Ok(Some(Rest::Not)) => std::thread::yield_now(),
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }

    /// Tells the PEs of other hosts how this one ends.
    #[cold]
    pub(super) fn tell_end(&self, how: How) {
        let (Some(places), me) = (&self.places, self.me) else { return };
        let elsewhere = (0..self.peers().len()).filter(|pe| self.control[*pe].is_none());
        let deadline = Instant::now() + LINGER;
        // A host that is gone takes seconds for each of its PEs that is not connected yet.
        for pe in elsewhere.take_while(|_| Instant::now() < deadline) {
            // Who cannot be told will find out.
            let end = self.store_remote(0, Word { pe, at: places.ends + 8 * me }, how.encode());
            let _ = end.and_then(|()| self.store_remote(0, Word { pe, at: places.news }, 1));
        }
        self.drain();
    }

    /// Takes note of what PEs of other hosts have told of their ends.
    fn hear(&self) {
        let Some(places) = &self.places else { return };
        let word = |at| self.heap().segment().word(at);
        if observe(word(places.news)) == 0 {
            return;
        }
        publish(word(places.news), 0);
        // Whoever tells something from now on makes it news again.
        fence(Ordering::SeqCst);
        for pe in 0..self.peers().len() {
            let code = observe(word(places.ends + 8 * pe));
            if code != 0 {
                self.declare(Loss { pe, how: How::decode(code) });
            }
        }
    }

    /// Looks for news, in a wait that has lasted so long, for a PE if one is known. Whether the network has waited for them.
    #[cold]
    pub(super) fn idle_remote(
        &self,
        idle: &mut Idle,
        waited: Duration,
        pe: Option<usize>,
        awaited: Awaited,
    ) -> Result<bool> {
        self.hear();
        let endpoint = self.endpoint()?;
        let rest = endpoint.idle(awaited).or_else(|error| self.learn(error, None).map(|()| Rest::Not))?;
        let is_due = match rest {
            Rest::Not => waited.as_secs() > idle.calls,
            Rest::Short => false,
            Rest::Long => true,
        };
        if is_due && pe.is_none_or(|pe| matches!(self.peers()[pe].rma, Route::Remote)) {
            idle.calls = waited.as_secs();
            endpoint.call(pe).or_else(|error| self.learn(error, None))?;
        }
        Ok(rest != Rest::Not)
    }

    /// Gives up private memory that was handed over under an owner.
    pub(crate) fn forget(&self, owner: usize) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.forget(owner);
        }
    }

    fn card_amo(&self, to: To, at: usize, amo: CardAmo) -> Result<u64> {
        let mut held = 0_u64;
        let (target, owner) = (NonNull::from(&mut held).cast(), (&raw const held).addr());
        let late = Late { target, bytes: size_of::<u64>(), owner };
        let outcome = self
            .take(to, late.bytes, |endpoint, _| endpoint.amo(to, at, amo, Some(late)))
            .and_then(|taken| self.complete(to, taken.ticket));
        outcome.inspect_err(|_| self.forget(owner))?;
        Ok(held)
    }

    fn get_word(&self, to: To, at: usize, target: *mut u64) -> Result<()> {
        self.get_remote(to, at, target.cast(), size_of::<u64>(), 0)
    }

    /// Repeats a step until it has taken all `bytes`; what the last says.
    fn take(&self, to: To, bytes: usize, step: impl Fn(&dyn Endpoint, usize) -> Result<Taken>) -> Result<Taken> {
        if bytes == 0 {
            return Ok(Taken::default());
        }
        let (endpoint, mut done) = (self.endpoint()?, 0);
        self.until(Some(to.pe), || {
            let taken = step(endpoint, done)?;
            done += taken.bytes;
            Ok((done == bytes).then_some(taken))
        })
    }

    /// Waits until what has a ticket is complete.
    fn complete(&self, to: To, ticket: u64) -> Result<()> {
        let endpoint = self.endpoint()?;
        self.until(Some(to.pe), || Ok(endpoint.done(to, ticket)?.then_some(())))
    }

    /// Waits for the network until `poll` gives a value; fails if the PE that it is for is lost.
    fn until<T>(&self, pe: Option<usize>, mut poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let (mut idle, why) = (Idle::default(), Why { call: Call::Quiet, on: pe });
        let outcome = loop {
            match poll() {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => match self.learn(error, pe) {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                },
            }
            let step = if self.spins(&mut idle) { Ok(()) } else { self.linger(&mut idle, why, Awaited::End) };
            if let Err(error) = step.and_then(|()| self.lookout.require_living(pe)) {
                break Err(error);
            }
        };
        self.resume(idle);
        outcome
    }

    /// Tells the host of a PE that the network finds lost; fails if it is the `concerned` one, or if it is no such news.
    fn learn(&self, error: Error, concerned: Option<usize>) -> Result<()> {
        match *error.kind() {
            ErrorKind::PeerLost { pe, .. } if pe != self.me => {
                self.declare(Loss { pe, how: How::Unreachable });
                if concerned == Some(pe) { Err(error) } else { Ok(()) }
            }
            // A peer that cannot be reached may be gone, of which the news may be on their way.
            ErrorKind::Fabric { pe, .. } if pe != self.me => {
                let deadline = Instant::now() + NEWS;
                while Instant::now() < deadline {
                    self.hear();
                    self.lookout.require_living(Some(pe))?;
                    std::thread::sleep(NEWS / 100);
                }
                Err(error)
            }
            _ => Err(error),
        }
    }

    /// Where private memory lies in this PE's symmetric memory, if it does.
    fn near(&self, start: *const u8, bytes: usize) -> Option<usize> {
        self.heap().segment().offset_of(start, bytes)
    }

    /// Fails if there is no network by which to reach these bytes of a PE.
    fn require_network(&self, pe: usize, at: usize, bytes: usize) -> Result<()> {
        if self.endpoint.is_some() || bytes == 0 { Ok(()) } else { Err(self.out_of_reach(pe, at, bytes).into()) }
    }

    fn endpoint(&self) -> Result<&dyn Endpoint> {
        let missing = || ErrorKind::os("reaching a PE of another host", std::io::ErrorKind::Unsupported);
        self.endpoint.as_deref().ok_or_else(missing)
    }
}
