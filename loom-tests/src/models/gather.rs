//! Agreement of those that are left: what is taken under a key was shown under it.

use shmem::sync::gather::{Gather, SHOWN};
use shmem::sync::words::wait_for;
use shmem::sync::{Call, Why};

use crate::{Explored, Mutation, Waiting, World};

const KEY: u64 = 1 << 63;

/// `pes` PEs show words in two phases under one key, after each has shown others under another key.
pub fn model(pes: usize, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let words = (0..Gather::BYTES).step_by(8).collect();
    let world = World { pes, threads: (0..pes).collect(), words, waiting: Waiting::Spin, preemptions, mutation };
    world.run(
        || (),
        move |pe, ()| {
            let gather = Gather { at: 0 };
            let word = |pe: usize, phase: usize| 10 + pe as u64 + 100 * phase as u64;
            gather.show(pe, pe.me, 0, 7, [1; SHOWN])?;
            for phase in 0..2 {
                gather.show(pe, pe.me, phase, KEY, [word(pe.me, phase); SHOWN])?;
                for other in (0..pes).filter(|other| *other != pe.me) {
                    let why = Why { call: Call::Survivors, on: Some(other) };
                    let shown = wait_for(pe, why, || gather.look(pe, other, phase, KEY))?;
                    assert_eq!(shown, [word(other, phase); SHOWN], "what is shown under the key");
                }
            }
            Ok(())
        },
        |_, ()| {},
    )
}
