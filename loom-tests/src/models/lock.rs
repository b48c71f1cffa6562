//! The lock: nobody is in the critical section with another, each PE takes it twice, and all that the queue needed is
//! taken back.

use std::sync::atomic::{AtomicUsize, Ordering};

use shmem::sync::lock::Lock;
use shmem::sync::{Call, Idle, Why, Word, Words};
use shmem::{Error, Result};

use crate::{Explored, Mutation, Pe, Plain, Waiting, World};

/// The bit of a PE's word with which the lock is handed on.
pub const GO: u64 = 1 << 31;
/// The bits of a PE's word that name the next in the queue.
pub const NEXT: u64 = (1 << 29) - 1;

/// `contenders` PEs, numbered from 0, take the lock that `home` keeps twice each. The last of them tries with `test`
/// first if `tests`.
pub fn model(
    contenders: usize,
    home: usize,
    tests: bool,
    waiting: Waiting,
    preemptions: Option<usize>,
    mutation: Mutation,
) -> Explored {
    let pes = contenders.max(home + 1);
    let world = World { pes, threads: (0..contenders).collect(), words: vec![0], waiting, preemptions, mutation };
    world.run(
        || Plain::new(0),
        move |pe, count| {
            let lock = Lock { me: pe.me, home, at: 0 };
            for _ in 0..2 {
                let taken = tests && pe.me == contenders - 1 && lock.test(pe)?;
                if !taken {
                    lock.set(pe)?;
                }
                assert!(lock.test(pe).is_err() && lock.set(pe).is_err(), "who holds it cannot take it");
                count.put(count.get() + 1);
                lock.clear(pe)?;
            }
            Ok(())
        },
        move |heap, count| {
            assert_eq!(count.get(), 2 * contenders as u64, "every turn counted");
            assert!((0..pes).all(|pe| heap.peek(Word { pe, at: 0 }) == 0), "the words are zero again");
        },
    )
}

/// A PE that loses its patience as soon as it has to wait for a lock.
struct Impatient<'a>(&'a Pe);

impl Words for Impatient<'_> {
    fn load(&self, word: Word) -> Result<u64> {
        self.0.load(word)
    }

    fn store(&self, word: Word, value: u64) -> Result<()> {
        self.0.store(word, value)
    }

    fn add(&self, word: Word, value: u64) -> Result<u64> {
        self.0.add(word, value)
    }

    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64> {
        self.0.compare_swap(word, old, new)
    }

    fn quiet(&self) -> Result<()> {
        self.0.quiet()
    }

    fn ring(&self, pe: usize) {
        self.0.ring(pe);
    }

    fn pause(&self, idle: &mut Idle, why: Why) -> Result<()> {
        match why.call {
            Call::SetLock => Err(Error::other("its time is up")),
            _ => self.0.pause(idle, why),
        }
    }

    fn resume(&self, idle: Idle) {
        self.0.resume(idle);
    }
}

/// `contenders` PEs take the lock that PE 0 keeps, once each; PE 1 gives up as soon as it would have to wait, which breaks
/// the lock. Nobody waits for ever, nobody is in the critical section with another, and a broken lock stays broken.
pub fn broken(contenders: usize, waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let threads = (0..contenders).collect();
    let world = World { pes: contenders, threads, words: vec![0], waiting, preemptions, mutation };
    world.run(
        || (Plain::new(0), AtomicUsize::new(0)),
        |pe, (count, turns)| {
            let lock = Lock { me: pe.me, home: 0, at: 0 };
            let taken = if pe.me == 1 { lock.set(&Impatient(pe)) } else { lock.set(pe) };
            if taken.is_err() {
                assert!(lock.test(pe).is_err() && lock.set(pe).is_err(), "it stays broken");
                return Ok(());
            }
            count.put(count.get() + 1);
            turns.fetch_add(1, Ordering::Relaxed);
            lock.clear(pe)
        },
        |_, (count, turns)| assert_eq!(count.get(), turns.load(Ordering::Relaxed) as u64, "every turn counted"),
    )
}
