//! The exchange between experts: one area is enough, for who has credit may overwrite what it sent, and where credit is given outputs
//! are there. The steps are those of `shmem-collectives/src/moe`, which takes them by the library's calls, so they are written again here.

use shmem::Result;
use shmem::sync::signal::{Signal, deliver};
use shmem::sync::{Call, Why, Word, wait};

use crate::{Explored, Mutation, Pe, Plain, Waiting, World};

const WHY: Why = Why { call: Call::Wait, on: None };

/// What the other PE says of a step: that its tokens have arrived, with how many; and that it has done with this one's.
const ARRIVED: usize = 0;
const CREDIT: usize = 128;

/// Rounds of a model.
const STEPS: u64 = 2;

/// The memory of an exchange of two PEs.
struct Memory {
    /// For each PE, the tokens that the other has sent; in whose memory they lie makes no difference.
    tokens: [Plain; 2],
    /// Of each PE, what its experts make of them, which the other reads.
    outputs: [Plain; 2],
}

/// Two PEs send to each other, twice: they combine both rounds, or give them up.
pub fn model(combined: bool, waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let world = World { pes: 2, threads: vec![0, 1], words: vec![ARRIVED, CREDIT], waiting, preemptions, mutation };
    let plain = || [Plain::new(0), Plain::new(0)];
    world.run(
        move || Memory { tokens: plain(), outputs: plain() },
        move |pe, memory| (1..=STEPS).try_for_each(|step| round(pe, memory, step, combined, mutation)),
        |_, _| {},
    )
}

fn round(pe: &Pe, memory: &Memory, step: u64, combined: bool, mutation: Mutation) -> Result<()> {
    let (me, other) = (pe.me, 1 - pe.me);
    let hear = |at, step| wait(pe, Word { pe: me, at }, WHY, |word| word >> 32 == step);
    let tell = |at, says| deliver(pe, || Ok(()), Word { pe: other, at }, Signal::Set(step << 32 | says));
    let token = |of: usize| 10 * step + of as u64;
    if step > 1 && mutation != Mutation::NoCredit {
        hear(CREDIT, step - 1)?;
    }
    memory.tokens[other].put(token(me));
    tell(ARRIVED, 1)?;
    assert_eq!(hear(ARRIVED, step)? as u32, 1, "how many tokens have come");
    if mutation == Mutation::EarlyCredit {
        tell(CREDIT, 0)?;
    }
    let arrived = memory.tokens[me].get();
    assert_eq!(arrived, token(other), "the token of this round");
    if combined {
        memory.outputs[me].put(arrived + 100);
    }
    if mutation != Mutation::EarlyCredit {
        tell(CREDIT, 0)?;
    }
    if combined {
        hear(CREDIT, step)?;
        assert_eq!(memory.outputs[other].get(), token(me) + 100, "the output of this round");
    }
    Ok(())
}
