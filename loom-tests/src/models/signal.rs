//! Signals: who sees the signal sees the data, put with plain stores; there and back twice, so that memory is used
//! again.

use shmem::sync::signal::{Signal, deliver};
use shmem::sync::{Call, Why, Word, wait};

use crate::{Explored, Mutation, Plain, Waiting, World};

const WHY: Why = Why { call: Call::Wait, on: None };

/// How the model signals round `round`, of which every word has seen all the earlier ones.
pub type Kind = fn(round: u64) -> Signal;

/// Every other PE puts into PE 0's memory and signals PE 0, which reads once all have, then signals them on; twice.
///
/// With [`Signal::Add`] all share one word of PE 0; with [`Signal::Set`] each has its own.
pub fn model(n: usize, kind: Kind, waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let shared_word = matches!(kind(1), Signal::Add(_));
    let world = World {
        pes: n,
        threads: (0..n).collect(),
        words: (0..n).map(|pe| 8 * pe).collect(),
        waiting,
        preemptions,
        mutation,
    };
    world.run(
        move || (0..n).map(|_| Plain::new(0)).collect::<Vec<_>>(),
        move |pe, data| {
            let word = |from: usize| Word { pe: 0, at: if shared_word { 0 } else { 8 * from } };
            let back = |to: usize| Word { pe: to, at: 0 };
            for round in 1..=2 {
                if pe.me != 0 {
                    let put = || {
                        data[pe.me].put(round);
                        Ok(())
                    };
                    deliver(pe, put, word(pe.me), kind(round))?;
                    wait(pe, back(pe.me), WHY, |seen| seen >= round)?;
                    continue;
                }
                for from in 1..n {
                    let all = if shared_word { round * (n as u64 - 1) } else { round };
                    wait(pe, word(from), WHY, |seen| seen >= all)?;
                }
                assert!(data[1..].iter().all(|data| data.get() == round), "the data of this round");
                for to in 1..n {
                    deliver(pe, || Ok(()), back(to), kind(round))?;
                }
            }
            Ok(())
        },
        |_, _| {},
    )
}

/// The word becomes the round.
pub const SET: Kind = Signal::Set;
/// The word grows by one a round.
pub const ADD: Kind = |_| Signal::Add(1);
