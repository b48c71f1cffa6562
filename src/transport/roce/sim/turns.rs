//! Histories: PEs, as threads of this process, and what is under way between them get on in turns that a seed draws. Only
//! one of them runs at a time, so the same seed and the same program make the same history.
//!
//! A PE gives its turn away when it posts to its card, and when it waits. Between two of these calls it runs alone. One that
//! waits gets a turn again once what it waits for can have come: so a history has hardly a step in vain, and where all wait
//! and nothing is under way, it is known at once. Then *a long time* passes, in which PEs make sure that the others are
//! still there, and look again at the memory of others; if nothing is written after several of these, nothing will be, and
//! all of them are told so.
//!
//! How fast the network is against the PEs, how fast each way is against the others, and how long a PE goes on, is drawn
//! for each history: what needs one of them to be much slower than the rest is thus seen, too.
//!
//! A history may have a *crash*: at some step a PE's card goes away with all that was under way from it, and whenever the PE
//! waits, that fails. Or a *cut*: the way from one PE to another fails, and both live.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::transport::roce::sim::pair::{Fate, Seen};
use crate::transport::roce::sim::{Cards, Random, Water};
use crate::transport::{Awaited, Rest};

/// What goes wrong in a history, and at which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This PE is gone.
    Crash {
        /// The PE.
        pe: usize,
        /// The step.
        step: u64,
    },
    /// Whatever this PE sends to that one fails.
    Cut {
        /// Whose.
        from: usize,
        /// To whom.
        to: usize,
        /// The step.
        step: u64,
    },
}

/// Turns after which a history is given up: a hundred times what long ones have, some ten seconds.
const MOST_STEPS: u64 = 1 << 22;
/// Turns without any change of a PE's memory in which a long time passes: more than the slowest way needs for a part.
const STILL: u64 = 1000;
/// Things that happen at most between two turns.
const FASTEST: usize = 12;
/// How often a PE goes on, of so many turns.
const STEADIEST: usize = 8;
/// How often a PE looks at the memory of others before it waits for a change of its own, about.
const REMOTE_LOOKS: usize = 8;

/// The PEs of a history, and whose turn it is.
pub(crate) struct Turns {
    /// Used by the PE alone whose turn it is, once all have begun.
    state: Mutex<State>,
    batons: Box<[Baton]>,
}

/// Where a PE waits for its turn.
#[derive(Default)]
struct Baton {
    given: Mutex<bool>,
    comes: Condvar,
}

struct State {
    random: Random,
    fault: Option<Fault>,
    cut: Option<(usize, usize)>,
    steps: u64,
    /// How many since the memory of a PE has changed, and how often a long time has passed.
    still: u64,
    lulls: usize,
    /// How many PEs have begun, or left before.
    begun: usize,
    pes: Box<[Pe]>,
    cards: Cards,
    /// How many things happen between two turns: fewer than this.
    pace: usize,
    /// A PE that does not wait gives its turn away once in so many steps.
    steady: usize,
    /// Why it has come to its end, if it has.
    over: Option<&'static str>,
}

#[derive(Default)]
struct Pe {
    /// What is under way from it, from when it joins until it leaves.
    water: Option<Arc<Water>>,
    crashed: bool,
    /// For what it waits.
    waits: Option<Awaited>,
    /// One of its requests has ended since it last waited for that.
    told: bool,
    /// Its memory has changed since it last waited for that.
    changed: bool,
    /// It has posted since: so it may look at the memory of others.
    posted: bool,
    /// A long time has passed since it last waited.
    long: bool,
}

impl Turns {
    /// The turns of `n` PEs.
    pub(crate) fn new(n: usize, seed: u64, fault: Option<Fault>) -> Self {
        let mut random = Random(seed);
        let (pace, steady) = (2 + random.below(FASTEST - 1), 1 + random.below(STEADIEST));
        let pes = (0..n).map(|_| Pe::default()).collect();
        let (cards, cut, over) = (Cards::new(n), None, None);
        let state =
            State { random, fault, cut, steps: 0, still: 0, lulls: 0, begun: 0, pes, cards, pace, steady, over };
        Turns { state: Mutex::new(state), batons: (0..n).map(|_| Baton::default()).collect() }
    }

    /// A PE takes part.
    pub(super) fn join(&self, me: usize, water: Arc<Water>) {
        self.lock().pes[me] = Pe { water: Some(water), ..Pe::default() };
    }

    /// Returns when it is this PE's turn for the first time, after all have begun.
    pub(crate) fn begin(&self, me: usize) {
        self.count_in();
        self.batons[me].take();
    }

    /// A PE has ended, in its turn or before it has begun; what is under way from it is lost.
    pub(super) fn leave(&self, me: usize) {
        let mut state = self.lock();
        let began = state.begun == state.pes.len();
        state.lose(me);
        state.pes[me].water = None;
        let next = if began { state.next(None) } else { None };
        drop(state);
        match next {
            Some(next) => self.batons[next].give(),
            None if !began => self.count_in(),
            None => {}
        }
    }

    /// A PE has posted: some things happen, and others have their turn; returns when it is this PE's again.
    pub(super) fn post(&self, me: usize) {
        let mut state = self.lock();
        state.pes[me].posted = true;
        drop(self.step(me, state));
    }

    /// A PE waits: returns when what it waits for can have come, or when nothing happens for long.
    pub(super) fn wait(&self, me: usize, awaited: Awaited) -> Result<Rest> {
        let mut state = self.lock();
        let State { random, pes, .. } = &mut *state;
        let pe = &mut pes[me];
        let looks_again = match awaited {
            Awaited::End => pe.told,
            Awaited::Word => pe.changed || pe.posted && random.below(REMOTE_LOOKS) != 0,
        };
        pe.waits = Some(awaited).filter(|_| !looks_again && !pe.crashed);
        let mut state = self.step(me, state);
        if let Some(error) = state.failure(me) {
            return Err(error);
        }
        let pe = &mut state.pes[me];
        match awaited {
            Awaited::End => pe.told = false,
            Awaited::Word => (pe.changed, pe.posted) = (false, false),
        }
        Ok(if std::mem::take(&mut pe.long) { Rest::Long } else { Rest::Short })
    }

    fn step<'t>(&'t self, me: usize, mut state: MutexGuard<'t, State>) -> MutexGuard<'t, State> {
        state.step();
        match state.next(Some(me)).filter(|next| *next != me) {
            None => state,
            Some(next) => {
                drop(state);
                self.batons[next].give();
                self.batons[me].take();
                self.lock()
            }
        }
    }

    /// Another PE has begun, or never will; the last lets the history begin.
    fn count_in(&self) {
        let mut state = self.lock();
        state.begun += 1;
        let first = if state.begun == state.pes.len() { state.next(None) } else { None };
        drop(state);
        if let Some(first) = first {
            self.batons[first].give();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pe {
    /// What it may wait for can have come.
    fn see(&mut self, what: Awaited) {
        match what {
            Awaited::End => self.told = true,
            Awaited::Word => self.changed = true,
        }
        self.waits = self.waits.filter(|awaited| *awaited != what);
    }

    /// It looks again, whatever it waits for.
    fn wake(&mut self) {
        (self.told, self.changed, self.waits) = (true, true, None);
    }
}

impl Baton {
    fn give(&self) {
        *self.lock() = true;
        self.comes.notify_one();
    }

    fn take(&self) {
        let mut given = self.lock();
        while !std::mem::take(&mut *given) {
            given = self.comes.wait(given).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a step, and lets the fault happen if it is time.
    fn step(&mut self) {
        self.steps += 1;
        match self.fault {
            Some(Fault::Crash { pe, step }) if step == self.steps && pe < self.pes.len() => {
                self.lose(pe);
                self.pes[pe].crashed = true;
            }
            Some(Fault::Cut { from, to, step }) if step == self.steps => self.cut = Some((from, to)),
            _ => {}
        }
        self.still += 1;
        if self.still.is_multiple_of(STILL) {
            self.pass_a_long_time();
        }
        if self.steps > MOST_STEPS {
            self.end("the history does not end");
        }
    }

    /// What was under way from a PE is lost. The others look what has become of it.
    fn lose(&mut self, pe: usize) {
        if let Some(water) = &self.pes[pe].water {
            water.dry_up(&mut self.cards);
        }
        self.pes.iter_mut().for_each(Pe::wake);
    }

    /// Some things happen. Whose turn it is next: not seldom that of PE `now`, if it can go on; `None` if all have left.
    fn next(&mut self, now: Option<usize>) -> Option<usize> {
        for _ in 0..self.random.below(self.pace) {
            self.happen();
        }
        loop {
            let ready = |pe: &Pe| pe.water.is_some() && pe.waits.is_none();
            if let Some(now) = now.filter(|now| ready(&self.pes[*now]))
                && self.random.below(self.steady) != 0
            {
                return Some(now);
            }
            let count = self.pes.iter().filter(|pe| ready(pe)).count();
            if count > 0 {
                let chosen = self.random.below(count);
                return (0..self.pes.len()).filter(|pe| ready(&self.pes[*pe])).nth(chosen);
            }
            if self.pes.iter().all(|pe| pe.water.is_none()) {
                return None;
            }
            if self.pes.iter().any(|pe| !pe.crashed && pe.water.as_ref().is_some_and(|water| water.is_busy())) {
                self.happen();
            } else {
                self.pass_a_long_time();
            }
        }
    }

    /// Nothing is under way, and all wait; or some only look, in vain.
    fn pass_a_long_time(&mut self) {
        self.lulls += 1;
        for pe in &mut self.pes {
            pe.wake();
            pe.long = true;
        }
        // Each may bring the news of one loss to one PE, which then goes on and may write something.
        if self.lulls > 4 * self.pes.len() {
            self.end("every PE waits in vain");
        }
    }

    fn end(&mut self, why: &'static str) {
        self.over.get_or_insert(why);
        self.pes.iter_mut().for_each(Pe::wake);
    }

    /// Lets one thing happen, if it can.
    fn happen(&mut self) {
        let from = self.random.below(self.pes.len());
        let State { random, pes, cards, cut, .. } = self;
        let Some(water) = pes[from].water.as_ref().filter(|_| !pes[from].crashed) else { return };
        let fate = |pe: usize| if pes[pe].crashed || *cut == Some((from, pe)) { Fate::Gone } else { Fate::Lives };
        match water.stir(random, fate, cards) {
            (_, Seen::Nowhere) => {}
            (_, Seen::End) => pes[from].see(Awaited::End),
            (_, Seen::Failure) => pes[from].wake(),
            (_, Seen::Here) => pes[from].see(Awaited::Word),
            (to, Seen::There) => {
                pes[to].see(Awaited::Word);
                (self.lulls, self.still) = (0, 0);
            }
        }
    }

    /// Why calls of a PE fail, if they do.
    fn failure(&self, pe: usize) -> Option<Error> {
        if self.pes[pe].crashed {
            return Some(ErrorKind::PeerLost { pe, reason: "the simulation has let it crash".into() }.into());
        }
        let what = self.over?.into();
        Some(ErrorKind::Fabric { pe, device: "sim:1".into(), what }.into())
    }
}
