//! A network for tests on one host: every put is delivered late, by another thread, and puts that nothing orders arrive
//! in random order. Whatever a protocol may rely on (`fence`, `quiet`) holds, and nothing else does.
//! `SHMEM_ROUTE=shuffle`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::transport::loopback::{self, Base};
use crate::transport::{Amo, Endpoint};

/// The endpoint of one PE.
pub(crate) struct Shuffle {
    bases: Box<[Base]>,
    lanes: Arc<Lanes>,
    carrier: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Lanes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Puts under way. Of those to one PE, only those of its oldest era may be delivered.
    pending: Vec<Parcel>,
    /// Fences so far.
    era: u64,
    closed: bool,
}

struct Parcel {
    pe: usize,
    at: usize,
    era: u64,
    bytes: Box<[u8]>,
}

impl Shuffle {
    /// The endpoint of PE `me` over the segments mapped at `bases`, in PE order; `me` seeds the disorder.
    pub(crate) fn start(bases: Box<[Base]>, me: usize) -> Result<Self> {
        let lanes = Arc::new(Lanes::default());
        let carrier = std::thread::Builder::new()
            .name("shmem-shuffle".into())
            .spawn({
                let (lanes, bases) = (Arc::clone(&lanes), bases.clone());
                move || lanes.carry(&bases, me as u64)
            })
            .map_err(|source| ErrorKind::os("starting the thread of SHMEM_ROUTE=shuffle", source))?;
        Ok(Shuffle { bases, lanes, carrier: Some(carrier) })
    }
}

impl Lanes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers parcels, late and shuffled, until closed and empty.
    fn carry(&self, bases: &[Base], seed: u64) {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        loop {
            let mut state = self.state();
            while state.pending.is_empty() {
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // xorshift64 (Marsaglia 2003)
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if random.is_multiple_of(4) && !state.closed {
                drop(state);
                std::thread::sleep(Duration::from_micros(random >> 8 & 63));
                continue;
            }
            let pick = state.pick((random >> 16) as usize);
            let parcel = state.pending.swap_remove(pick);
            // SAFETY: the link checked the range against the segment, which outlives the endpoint; the parcel is
            // private memory.
            unsafe {
                let target = bases[parcel.pe].at(parcel.at);
                loopback::copy(target, parcel.bytes.as_ptr(), parcel.bytes.len(), usize::MAX);
            }
            self.changed.notify_all();
        }
    }

    /// Waits until no parcel satisfies `busy`.
    fn drain(&self, busy: impl Fn(&Parcel) -> bool) {
        let mut state = self.state();
        while state.pending.iter().any(&busy) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// The index of a parcel that nothing holds back, chosen by `random`.
    fn pick(&self, random: usize) -> usize {
        let candidate = random % self.pending.len();
        let pe = self.pending[candidate].pe;
        let to_pe = || self.pending.iter().enumerate().filter(move |(_, parcel)| parcel.pe == pe);
        let oldest = to_pe().map(|(_, parcel)| parcel.era).min().unwrap_or(0);
        let ready: Vec<usize> = to_pe().filter(|(_, parcel)| parcel.era == oldest).map(|(i, _)| i).collect();
        ready.get(random % ready.len().max(1)).copied().unwrap_or(candidate)
    }
}

impl Endpoint for Shuffle {
    fn put(&self, pe: usize, at: usize, source: &[u8]) -> Result<()> {
        let mut state = self.lanes.state();
        let era = state.era;
        state.pending.push(Parcel { pe, at, era, bytes: source.into() });
        self.lanes.changed.notify_all();
        Ok(())
    }

    fn get(&self, pe: usize, at: usize, target: &mut [u8]) -> Result<()> {
        // SAFETY: the link checked the range against the segment, which outlives the endpoint; the target is private
        // memory.
        unsafe { loopback::copy(target.as_mut_ptr(), self.bases[pe].at(at), target.len(), usize::MAX) };
        Ok(())
    }

    fn amo(&self, pe: usize, at: usize, amo: Amo) -> Result<u64> {
        // What was fenced before must be there first.
        let era = self.lanes.state().era;
        self.lanes.drain(|parcel| parcel.pe == pe && parcel.era < era);
        // SAFETY: the link checked that the word lies in the segment and is aligned.
        Ok(unsafe { loopback::amo_by_data(self.bases[pe].at(at), amo) })
    }

    fn fence(&self, _pe: usize) -> Result<()> {
        self.lanes.state().era += 1;
        Ok(())
    }

    fn quiet(&self) -> Result<()> {
        self.lanes.drain(|_| true);
        Ok(())
    }
}

impl Drop for Shuffle {
    fn drop(&mut self) {
        self.lanes.state().closed = true;
        self.lanes.changed.notify_all();
        if let Some(carrier) = self.carrier.take() {
            // It panicked only if a parcel was misaddressed, which the link rules out.
            let _ = carrier.join();
        }
    }
}
