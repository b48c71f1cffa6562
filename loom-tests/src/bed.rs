//! Where the waiters of a PE sleep: a futex in loom's terms.
//!
//! The bell is an atomic word; the kernel's bucket lock is a mutex, under which a sleeper compares the bell before it
//! sleeps and which a strike passes after it has changed the bell. There is no time-out, so a lost wake-up is a
//! deadlock, which loom reports.

use std::time::Duration;

use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Condvar, Mutex};
use shmem::sync::{atom, park};

use crate::cell::Cell;
use crate::mutants::Mutation;

/// The bed of one PE.
#[derive(Debug)]
pub struct Bed {
    sleepers: Cell,
    bell: Cell,
    bucket: Mutex<()>,
    asleep: Condvar,
    mutation: Mutation,
}

impl Bed {
    /// A bed in which nobody sleeps.
    pub fn new(mutation: Mutation) -> Self {
        Bed {
            sleepers: Cell::new(0, mutation),
            bell: Cell::new(0, Mutation::None),
            bucket: Mutex::new(()),
            asleep: Condvar::new(),
            mutation,
        }
    }

    /// loom has no `membarrier`, so either fence of the protocol is a full one.
    fn fence_unless(&self, mutation: Mutation) {
        if self.mutation != mutation {
            fence(Ordering::SeqCst);
        }
    }
}

impl park::Bed for Bed {
    type Word = Cell;

    fn sleepers(&self) -> &Cell {
        &self.sleepers
    }

    fn light_fence(&self) {
        self.fence_unless(Mutation::NoLightFence);
    }

    fn heavy_fence(&self) {
        self.fence_unless(Mutation::NoHeavyFence);
    }

    fn bell(&self) -> u64 {
        atom::observe(&self.bell)
    }

    fn strike(&self) {
        atom::accumulate(&self.bell, 1);
        let _bucket = self.bucket.lock().expect("a PE that panics ends the model");
        self.asleep.notify_all();
    }

    fn sleep(&self, bell: u64, _at_most: Duration) {
        let mut bucket = self.bucket.lock().expect("a PE that panics ends the model");
        while self.bell() == bell {
            bucket = self.asleep.wait(bucket).expect("a PE that panics ends the model");
        }
    }
}
