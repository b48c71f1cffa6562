//! Sleep and wake: a waiter that lies down, looks once more and sleeps is woken by whoever writes what it waits for.

use shmem::sync::{Call, Why, Word, Words, wait};

use crate::{Explored, Mutation, Waiting, World};

const WHY: Why = Why { call: Call::Wait, on: None };

/// PE 0 writes a word of PE 1 and rings, `rounds` times; `sleepers` threads of PE 1 wait for each value. They go to
/// bed at the first look in vain.
pub fn model(sleepers: usize, rounds: u64, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let mut threads = vec![1; 1 + sleepers];
    threads[0] = 0;
    let world = World { pes: 2, threads, words: vec![0], waiting: Waiting::Sleep, preemptions, mutation };
    world.run(
        || (),
        move |pe, ()| {
            let word = Word { pe: 1, at: 0 };
            for round in 1..=rounds {
                if pe.me == 0 {
                    pe.store(word, round)?;
                    pe.ring(1);
                } else {
                    wait(pe, word, WHY, |seen| seen >= round)?;
                }
            }
            Ok(())
        },
        |_, ()| {},
    )
}
