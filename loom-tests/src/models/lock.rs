//! The lock: nobody is in the critical section with another, each PE takes it twice, and all that the queue needed is
//! taken back.

use shmem::sync::Word;
use shmem::sync::lock::Lock;

use crate::{Explored, Mutation, Plain, Waiting, World};

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
