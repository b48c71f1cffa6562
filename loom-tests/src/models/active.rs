//! The meeting of an active set in words of the program's: all come before anybody goes on, and all words are zero again before the
//! next meeting. The steps are those of `shmem-capi/src/active.rs`, which takes them by the library's calls, so they are written again here.

use shmem::Result;
use shmem::sync::signal::{Signal, deliver};
use shmem::sync::{Call, Why, Word, Words, wait};

use crate::{Explored, Mutation, Pe, Plain, Waiting, World};

const WHY: Why = Why { call: Call::Wait, on: None };

/// How many have come, at the first; whether they may go on, at the others.
const COME: usize = 0;
const GO: usize = 128;

/// `n` PEs write, meet, read what all have written, meet and write again.
pub fn model(n: usize, waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let threads = (0..n).collect();
    let world = World { pes: n, threads, words: vec![COME, GO], waiting, preemptions, mutation };
    world.run(
        move || (0..n).map(|_| Plain::new(0)).collect::<Vec<_>>(),
        move |pe, data| {
            for round in 1..=2 {
                data[pe.me].put(round);
                meet(pe, n, mutation)?;
                assert!(data.iter().all(|data| data.get() == round), "the data of this round");
                if round == 1 {
                    meet(pe, n, mutation)?;
                }
            }
            Ok(())
        },
        move |heap, _| {
            let words = (0..n).flat_map(|pe| [COME, GO].map(|at| Word { pe, at }));
            assert!(words.into_iter().all(|word| heap.peek(word) == 0), "the words are zero");
        },
    )
}

fn meet(pe: &Pe, n: usize, mutation: Mutation) -> Result<()> {
    let tell = |to, at, signal| deliver(pe, || Ok(()), Word { pe: to, at }, signal);
    if pe.me > 0 {
        tell(0, COME, Signal::Add(1))?;
        wait(pe, Word { pe: pe.me, at: GO }, WHY, |go| go == 1)?;
        return clear(pe, GO, 1);
    }
    let others = n as u64 - 1;
    wait(pe, Word { pe: 0, at: COME }, WHY, |come| come == others)?;
    if mutation != Mutation::LateZero {
        clear(pe, COME, others)?;
    }
    (1..n).try_for_each(|to| tell(to, GO, Signal::Set(1)))?;
    if mutation == Mutation::LateZero { clear(pe, COME, others) } else { Ok(()) }
}

/// Makes a word of this PE's zero. It holds what was waited for: whatever else it held, the swap that ships would lose.
fn clear(pe: &Pe, at: usize, holds: u64) -> Result<()> {
    let held = pe.compare_swap(Word { pe: pe.me, at }, holds, 0)?;
    assert_eq!(held, holds, "nobody comes before the word is zero again");
    Ok(())
}
