//! The barrier: what was written before it, with plain stores, is read after it; all PEs get the same verdict; up to
//! three epochs in a row, so that slots are used again, the second one with prints that differ.

use shmem::sync::{Barrier, Call, Verdict};

use crate::{Explored, Mutation, Plain, Waiting, World};

/// `n` PEs make `epochs` barriers of a radix; the third uses the slots of the first again.
pub fn model(
    (n, radix, epochs): (usize, usize, u64),
    waiting: Waiting,
    preemptions: Option<usize>,
    mutation: Mutation,
) -> Explored {
    let slots = (0..Barrier::bytes(n, radix)).step_by(128);
    let world = World {
        pes: n,
        threads: (0..n).collect(),
        words: slots.flat_map(|at| [at, at + 8]).collect(),
        waiting,
        preemptions,
        mutation,
    };
    let members: Vec<usize> = (0..n).collect();
    world.run(
        move || (0..n).map(|_| Plain::new(0)).collect::<Vec<_>>(),
        move |pe, data| {
            let barrier = Barrier::new(&members, pe.me, 0, radix, 0);
            for epoch in 1..=epochs {
                let differs = epoch == 2;
                if !differs {
                    data[pe.me].put(epoch);
                }
                let print = if differs && pe.me == n - 1 { 99 } else { 10 * epoch };
                let verdict = barrier.arrive(pe, Call::Barrier, print)?;
                assert_eq!(verdict, if differs { Verdict::Conflict } else { Verdict::Agree }, "the verdict");
                if !differs {
                    assert!(data.iter().all(|data| data.get() == epoch), "the data of this epoch");
                }
            }
            Ok(())
        },
        |_, _| {},
    )
}

/// A word travels with each signal of a flat barrier of 2 PEs, three epochs in a row.
pub fn letters(preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let slots = (0..Barrier::bytes(2, 2)).step_by(128);
    let world = World {
        pes: 2,
        threads: vec![0, 1],
        words: slots.flat_map(|at| [at, at + 8, at + 16]).collect(),
        waiting: Waiting::Spin,
        preemptions,
        mutation,
    };
    world.run(
        || (),
        |pe, ()| {
            let barrier = Barrier::new(&[0, 1], pe.me, 0, 2, 0);
            for epoch in 1..=3 {
                let mut arrival = barrier.enter(7);
                barrier.send(pe, &arrival, 1, &[10 * epoch + pe.me as u64])?;
                let verdict = barrier.finish(pe, Call::Custom, &mut arrival)?;
                assert_eq!(verdict, Verdict::Agree, "the verdict");
                let mut letter = [0];
                barrier.receive(pe, &arrival, 1, &mut letter)?;
                assert_eq!(letter[0], 10 * epoch + 1 - pe.me as u64, "the letter");
            }
            Ok(())
        },
        |_, _| {},
    )
}

/// The second half of the slots laid over the first.
pub const fn one_half(half: usize) -> Mutation {
    Mutation::Fold { from: half, by: half }
}
