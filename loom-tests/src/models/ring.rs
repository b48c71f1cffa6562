//! The ring: messages arrive once, in order and whole; more of them than fit, so that slots are used again.

use shmem::sync::ring::Ring;

use crate::{Explored, Mutation, Waiting, World};

const WIDTH: usize = 2;
/// Bytes of a slot: the sequence word and the payload.
const SLOT: usize = 8 * (1 + WIDTH);
/// Messages of a model.
const MESSAGES: u64 = 3;

fn message(number: u64) -> [u64; WIDTH] {
    [10 + number, 20 + number]
}

fn words(capacity: u64) -> Vec<usize> {
    let end = Ring::bytes(capacity as usize, WIDTH).expect("a small ring");
    let slots = end - capacity as usize * SLOT;
    std::iter::once(0).chain((slots..end).step_by(8)).collect()
}

/// PE 0 sends to PE 1, which polls for the first message and blocks for the others.
pub fn model(capacity: u64, waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let world = World { pes: 2, threads: vec![0, 1], words: words(capacity), waiting, preemptions, mutation };
    world.run(
        || (),
        move |pe, ()| {
            let ring = Ring { sender: 0, receiver: 1, at: 0, capacity, width: WIDTH };
            if pe.me == 0 {
                // A sender that thinks one more fits, where the heap has no slot for it.
                let one_more = u64::from(matches!(mutation, Mutation::Fold { .. }));
                let ring = Ring { capacity: capacity + one_more, ..ring };
                for number in 0..MESSAGES {
                    ring.push(pe, number, &message(number))?;
                }
                return Ok(());
            }
            for number in 0..MESSAGES {
                let mut got = [0; WIDTH];
                if number > 0 || !ring.try_pop(pe, number, &mut got)? {
                    ring.pop(pe, number, &mut got)?;
                }
                assert_eq!(got, message(number), "the message");
            }
            Ok(())
        },
        |_, ()| {},
    )
}

/// PE 0 sends to PE 1, which sends on to PE 2, each over a ring of one slot.
pub fn relay(waiting: Waiting, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    const MESSAGES: u64 = 2;
    let second = Ring::bytes(1, WIDTH).expect("a small ring");
    let words = words(1).into_iter().flat_map(|at| [at, second + at]).collect();
    let world = World { pes: 3, threads: vec![0, 1, 2], words, waiting, preemptions, mutation };
    world.run(
        || (),
        move |pe, ()| {
            let from = Ring { sender: 0, receiver: 1, at: 0, capacity: 1, width: WIDTH };
            let to = Ring { sender: 1, receiver: 2, at: second, ..from };
            for number in 0..MESSAGES {
                let mut got = [0; WIDTH];
                match pe.me {
                    0 => from.push(pe, number, &message(number))?,
                    1 => {
                        from.pop(pe, number, &mut got)?;
                        to.push(pe, number, &got)?;
                    }
                    _ => {
                        to.pop(pe, number, &mut got)?;
                        assert_eq!(got, message(number), "the message");
                    }
                }
            }
            Ok(())
        },
        |_, ()| {},
    )
}

/// A ring of one slot whose sender counts two: the second lies over the first.
pub const fn one_more() -> Mutation {
    Mutation::Fold { from: 128 + SLOT, by: SLOT }
}
