//! Histories: PEs, as threads of this process, and what is under way between them get on in turns that a seed draws. Only
//! one of them runs at a time, so the same seed and the same program make the same history.
//!
//! A PE gives its turn away whenever it calls its card: when it posts, polls or waits. Between two of these calls it runs
//! alone. If all PEs wait and nothing is under way, nothing will ever happen: all of them are told so.
//!
//! A history may have a *crash*: at some step a PE's card goes away with all that was under way from it, and every call of
//! the PE fails. Or a *cut*: the way from one PE to another fails, and both live.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorKind, Result};
use crate::transport::roce::sim::pair::Fate;
use crate::transport::roce::sim::{Random, Water};

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

/// How often in a row all may wait in vain: often enough that each PE has looked, whatever the seed draws.
const VAIN: u64 = 2000;

/// The PEs of a history, and whose turn it is.
pub(crate) struct Turns {
    state: Mutex<State>,
    /// By PE: signalled when its turn comes.
    comes: Box<[Condvar]>,
}

struct State {
    random: Random,
    fault: Option<Fault>,
    steps: u64,
    /// How many steps in a row were in vain.
    vain: u64,
    /// By PE: what is under way from it, from when it joins until it leaves.
    waters: Box<[Option<Arc<Water>>]>,
    joined: usize,
    /// Whose turn it is, once all have joined.
    turn: usize,
}

impl Turns {
    /// The turns of `n` PEs.
    pub(crate) fn new(n: usize, seed: u64, fault: Option<Fault>) -> Self {
        let waters = (0..n).map(|_| None).collect();
        let random = Random(seed);
        let state = State { random, fault, steps: 0, vain: 0, waters, joined: 0, turn: 0 };
        Turns { state: Mutex::new(state), comes: (0..n).map(|_| Condvar::new()).collect() }
    }

    /// A PE takes part, with its first call after all have joined.
    pub(super) fn join(&self, me: usize, water: Arc<Water>) {
        let mut state = self.lock();
        state.waters[me] = Some(water);
        state.joined += 1;
        self.comes.iter().for_each(Condvar::notify_one);
    }

    /// A PE has ended; what is under way from it is lost.
    pub(super) fn leave(&self, me: usize) {
        let mut state = self.lock();
        state.waters[me] = None;
        if state.turn == me {
            state.pass();
            self.comes[state.turn].notify_one();
        }
    }

    /// Some things happen, and others have their turn; returns when it is this PE's again. `idle` if it waits.
    pub(super) fn step(&self, me: usize, idle: bool) -> Result<()> {
        let mut state = self.lock();
        while state.joined < state.waters.len() || state.turn != me {
            state = self.comes[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.steps += 1;
        let happened = state.happen();
        state.vain = if idle && !happened { state.vain + 1 } else { 0 };
        state.pass();
        self.comes[state.turn].notify_one();
        while state.turn != me {
            state = self.comes[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.fault {
            Some(Fault::Crash { pe, step }) if pe == me && state.steps >= step => {
                Err(ErrorKind::PeerLost { pe, reason: "the simulation has let it crash".into() }.into())
            }
            _ if state.vain > VAIN => Err(ErrorKind::Fabric {
                pe: me,
                device: "sim:1".into(),
                what: "every PE waits, and nothing is under way".into(),
            }
            .into()),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets up to three things happen. Whether any did.
    fn happen(&mut self) -> bool {
        let mut happened = false;
        for _ in 0..self.random.below(4) {
            let from = self.random.below(self.waters.len());
            let (fault, steps) = (self.fault, self.steps);
            let crashed = |pe| matches!(fault, Some(Fault::Crash { pe: gone, step }) if gone == pe && steps >= step);
            let cut = |pe| matches!(fault, Some(Fault::Cut { from: one, to, step }) if (one, to) == (from, pe) && steps >= step);
            let fate = |pe| if crashed(pe) || cut(pe) { Fate::Gone } else { Fate::Lives };
            if let Some(water) = self.waters[from].as_ref().filter(|_| !crashed(from)) {
                happened |= water.stir(&mut self.random, fate);
            }
        }
        happened
    }

    /// Gives the turn to one of those that take part.
    fn pass(&mut self) {
        let present: Vec<usize> = (0..self.waters.len()).filter(|pe| self.waters[*pe].is_some()).collect();
        if !present.is_empty() {
            self.turn = present[self.random.below(present.len())];
        }
    }
}
