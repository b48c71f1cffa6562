//! A network card in memory, for tests on one machine: whatever real cards promise holds, and nothing else does.
//!
//! Requests on one queue pair are executed in order, those on different ones in any; a write arrives in parts; its source
//! is read, and what was fetched is written, at any moment until the completion; writes overtake earlier reads and
//! atomics; completions come late. A peer whose card is gone does not answer.
//!
//! What happens next is drawn: by a thread that goes on by itself (`SHMEM_ROUTE=sim`), or step by step, in turns with the
//! PEs, from a seed, so that a history can be replayed (`turns`).

#[allow(unsafe_code)]
mod pair;
#[allow(unsafe_code)]
mod peer;
pub(crate) mod turns;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::heap::Segment;
use crate::transport::loopback::Base;
use crate::transport::roce::nic::{Atomics, Completion, Limits, Nic, Request};
use crate::transport::{Awaited, Rest, To};
use pair::{Fate, Pair, Seen};
use peer::Peer;
use turns::Turns;

/// A card of one PE.
pub(crate) struct Sim {
    me: usize,
    water: Arc<Water>,
    driver: Driver,
    /// Segments of PEs that nobody else here has mapped: the last to go.
    _foreign: Vec<Segment>,
}

/// Who lets things happen.
enum Driver {
    /// A thread of this card.
    Carrier(Option<JoinHandle<()>>),
    /// The PEs, in turns.
    Turns(Arc<Turns>),
}

/// What is under way from one card.
pub(crate) struct Water {
    me: usize,
    peers: Box<[Peer]>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pairs: BTreeMap<(usize, usize), Pair>,
    closed: bool,
}

const LIMITS: Limits = Limits { depth: 16, inline: 64, message: 100_000, atomics: Atomics::Card };

impl Sim {
    /// The card of PE `me` among those whose segments of `bytes` are mapped at `bases`, each with a word at offset `card`
    /// that is the simulation's own. `foreign` are those segments that are to live as long as the card. Without `turns`, `me` seeds
    /// what happens.
    pub(crate) fn start(
        me: usize,
        bases: &[Base],
        bytes: usize,
        card: usize,
        foreign: Vec<Segment>,
        turns: Option<Arc<Turns>>,
    ) -> Result<Self> {
        let peers = bases.iter().map(|&base| Peer { base, bytes, card }).collect();
        let water = Arc::new(Water { me, peers, state: Mutex::default(), changed: Condvar::new() });
        let driver = match turns {
            Some(turns) => {
                turns.join(me, Arc::clone(&water));
                Driver::Turns(turns)
            }
            None => {
                let carried = Arc::clone(&water);
                let carrier = std::thread::Builder::new()
                    .name("shmem-sim".into())
                    .spawn(move || carried.carry(me as u64))
                    .map_err(|source| ErrorKind::os("starting the thread of SHMEM_ROUTE=sim", source))?;
                Driver::Carrier(Some(carrier))
            }
        };
        water.peers[me].switch_on();
        Ok(Sim { me, water, driver, _foreign: foreign })
    }

    /// Gives the PE's turn away, if it has one.
    fn give_turn(&self) {
        if let Driver::Turns(turns) = &self.driver {
            turns.post(self.me);
        }
    }
}

impl Nic for Sim {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn name(&self) -> String {
        "sim:1".into()
    }

    fn connect(&self, to: To) -> Result<()> {
        self.give_turn();
        self.water.lock().pairs.insert((to.lane, to.pe), Pair::new(to));
        Ok(())
    }

    fn post(&self, to: To, chain: &[Request<'_>]) -> Result<()> {
        if let Some(pair) = self.water.lock().pairs.get_mut(&(to.lane, to.pe)) {
            chain.iter().for_each(|request| pair.post(request));
        }
        self.water.changed.notify_one();
        self.give_turn();
        Ok(())
    }

    fn poll(&self, to: To, found: &mut Vec<Completion>) -> Result<()> {
        if let Some(pair) = self.water.lock().pairs.get_mut(&(to.lane, to.pe)) {
            pair.tell(found);
        }
        Ok(())
    }

    fn idle(&self, awaited: Awaited) -> Result<Rest> {
        match &self.driver {
            Driver::Carrier(_) => Ok(Rest::Not),
            Driver::Turns(turns) => turns.wait(self.me, awaited),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.water.peers[self.me].switch_off();
        self.water.lock().closed = true;
        self.water.changed.notify_one();
        match &mut self.driver {
            // It panicked only if a request was misaddressed, which the link rules out.
            Driver::Carrier(carrier) => drop(carrier.take().map(JoinHandle::join)),
            Driver::Turns(turns) => turns.leave(self.me),
        }
    }
}

impl Water {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets things happen, now and then, until the card is closed.
    fn carry(&self, seed: u64) {
        let mut random = Random(seed);
        loop {
            let mut state = self.lock();
            while !state.closed && state.pairs.values().all(|pair| !pair.is_busy()) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed {
                return;
            }
            let rest = (random.below(8) == 0).then(|| Duration::from_micros(random.next() & 63));
            match rest {
                Some(rest) => {
                    drop(state);
                    std::thread::sleep(rest);
                }
                None => drop(self.happen(&mut state, &mut random, |_| Fate::Lives, None)),
            }
        }
    }

    /// Lets one thing happen on one of the queue pairs, if anything can. `fate` says what has become of a peer. To which
    /// peer the pair leads, and where one can see what happened.
    fn stir(&self, random: &mut Random, fate: impl Fn(usize) -> Fate, cards: &mut Cards) -> (usize, Seen) {
        self.happen(&mut self.lock(), random, fate, Some(cards))
    }

    /// Whether anything is under way.
    fn is_busy(&self) -> bool {
        self.lock().pairs.values().any(Pair::is_busy)
    }

    /// What is under way gets lost; peers' cards end what they have begun.
    fn dry_up(&self, cards: &mut Cards) {
        for pair in self.lock().pairs.values_mut() {
            pair.dry_up(&self.peers[pair.to.pe], cards);
        }
    }

    fn happen(
        &self,
        state: &mut State,
        random: &mut Random,
        fate: impl Fn(usize) -> Fate,
        cards: Option<&mut Cards>,
    ) -> (usize, Seen) {
        let busy = state.pairs.values().filter(|pair| pair.is_busy()).count();
        if busy == 0 {
            return (self.me, Seen::Nowhere);
        }
        let chosen = random.below(busy);
        let Some(pair) = state.pairs.values_mut().filter(|pair| pair.is_busy()).nth(chosen) else {
            return (self.me, Seen::Nowhere);
        };
        let to = &self.peers[pair.to.pe];
        if cards.is_none() && pair.asks() {
            to.look_after();
        }
        let fate = if to.is_on() { fate(pair.to.pe) } else { Fate::Gone };
        (pair.to.pe, pair.happen(random, &self.peers[self.me], to, fate, cards))
    }
}

/// The cards of all PEs where atomics take time: whether each has one under way. There is one at a time, and in its midst
/// the processor may change the word.
pub(crate) struct Cards(Box<[bool]>);

impl Cards {
    pub(crate) fn new(n_pes: usize) -> Self {
        Cards((0..n_pes).map(|_| false).collect())
    }
}

/// Numbers without a pattern (splitmix64, Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
