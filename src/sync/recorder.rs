//! A flight recorder: the last events of a PE, written by its threads and read by anyone at any time.
//!
//! A ring of slots, each a seqlock of a few words. A writer takes the next number of the ring, marks the slot as being
//! written, writes the words, and names the number in the slot. A reader that finds the same number before and after its
//! reads has seen that event whole. All accesses are publishing or observing ones, so the words cannot overtake the
//! number (Boehm, "Can seqlocks get along with programming language memory models?", 2012). A writer that is killed
//! half-way leaves one slot that nobody reads.
//!
//! The last word of an event is its state, which its writer changes while the event lasts; it is read as it stands.
//! Knows nothing of what the words mean.

use crate::sync::atom::{Atoms, accumulate, observe, publish};

/// Words of an event besides its number and its state.
pub const EVENT: usize = 4;

/// Bytes of a slot: a cache line.
pub const SLOT: usize = 64;

const _: () = assert!(8 * (EVENT + 2) <= SLOT);

const STATE: usize = 8 * (EVENT + 1);

/// The place of a recorder: `slots` events after a counter.
#[derive(Clone, Copy, Debug)]
pub struct Recorder {
    at: usize,
    slots: u64,
}

/// An event as a reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number, from 0.
    pub number: u64,
    /// Its words.
    pub words: [u64; EVENT],
    /// Its state as it stood.
    pub state: u64,
}

impl Recorder {
    /// The recorder at offset `at`: a counter and, a pair of cache lines further on, `slots` slots; all zero to begin
    /// with.
    pub const fn new(at: usize, slots: u64) -> Self {
        Recorder { at, slots }
    }

    /// Bytes of a recorder of `slots` events.
    pub const fn bytes(slots: u64) -> usize {
        128 + slots as usize * SLOT
    }

    /// Writes an event in state 0 and returns its number.
    #[inline]
    pub fn begin<A: Atoms>(self, atoms: &A, words: [u64; EVENT]) -> u64 {
        let number = accumulate(atoms.word(self.at), 1);
        let slot = self.slot(number);
        publish(atoms.word(slot), 0);
        publish(atoms.word(slot + STATE), 0);
        for (i, value) in words.into_iter().enumerate() {
            publish(atoms.word(slot + 8 + 8 * i), value);
        }
        publish(atoms.word(slot), number + 1);
        number
    }

    /// Changes the state of an event of the calling thread. If the ring has gone round since, nothing changes.
    #[inline]
    pub fn change<A: Atoms>(self, atoms: &A, number: u64, state: u64) {
        let slot = self.slot(number);
        if observe(atoms.word(slot)) == number + 1 {
            publish(atoms.word(slot + STATE), state);
        }
    }

    /// How many events were begun.
    pub fn count<A: Atoms>(self, atoms: &A) -> u64 {
        observe(atoms.word(self.at))
    }

    /// The event of this number, if the ring still holds it whole.
    pub fn read<A: Atoms>(self, atoms: &A, number: u64) -> Option<Event> {
        let slot = self.slot(number);
        if observe(atoms.word(slot)) != number + 1 {
            return None;
        }
        let mut words = [0; EVENT];
        for (i, value) in words.iter_mut().enumerate() {
            *value = observe(atoms.word(slot + 8 + 8 * i));
        }
        let state = observe(atoms.word(slot + STATE));
        (observe(atoms.word(slot)) == number + 1).then_some(Event { number, words, state })
    }

    fn slot(self, number: u64) -> usize {
        self.at + 128 + (number % self.slots) as usize * SLOT
    }
}
