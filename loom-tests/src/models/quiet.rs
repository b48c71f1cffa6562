//! Quiet: of two PEs that each put to the other, call quiet and read their own word, one sees the other's put.

use std::sync::atomic::{AtomicBool, Ordering};

use shmem::sync::{Word, Words};

use crate::{Explored, Mutation, Waiting, World};

/// `n` PEs put to every other, call quiet and read; twice. No two of them miss each other.
pub fn model(n: usize, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let world = World {
        pes: n,
        threads: (0..n).collect(),
        words: (0..n).map(|pe| 8 * pe).collect(),
        waiting: Waiting::Spin,
        preemptions,
        mutation,
    };
    let none = move || (0..n * n * 2).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
    let at = move |round: u64, me: usize, other: usize| ((round as usize - 1) * n + me) * n + other;
    world.run(
        none,
        move |pe, missed| {
            let others = || (0..n).filter(|other| *other != pe.me);
            for round in 1..=2 {
                for other in others() {
                    pe.store(Word { pe: other, at: 8 * pe.me }, round)?;
                }
                pe.quiet()?;
                for other in others() {
                    if pe.load(Word { pe: pe.me, at: 8 * other })? < round {
                        // Only the end of the execution reads it: no matter for loom.
                        missed[at(round, pe.me, other)].store(true, Ordering::Relaxed);
                    }
                }
            }
            Ok(())
        },
        move |_, missed| {
            let missed = |round, me, other| missed[at(round, me, other)].load(Ordering::Relaxed);
            for round in 1..=2 {
                for (a, b) in (0..n).flat_map(|a| (0..a).map(move |b| (a, b))) {
                    assert!(!(missed(round, a, b) && missed(round, b, a)), "PEs {a} and {b} missed each other");
                }
            }
        },
    )
}
