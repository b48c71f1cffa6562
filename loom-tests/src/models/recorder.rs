//! The flight recorder: a reader gets an event as it was written, whole, under the number that it asked for.

use shmem::sync::recorder::{EVENT, SLOT};
use shmem::sync::{Recorder, Word};

use crate::{Explored, Mutation, Waiting, World};

/// `writers` threads of one PE write `writes` events each into a ring of as many slots as there are writers, while another thread reads events
/// `reads` times by each of their numbers.
pub fn model(writers: usize, writes: u64, reads: usize, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let ring = 128..128 + writers * SLOT;
    let words = std::iter::once(0).chain(ring.step_by(8)).collect();
    let threads = (0..=writers).collect();
    let world = World { pes: writers + 1, threads, words, waiting: Waiting::Spin, preemptions, mutation };
    let total = writers as u64 * writes;
    world.run(
        || (),
        move |pe, ()| {
            let (row, recorder) = (pe.row(0), Recorder::new(0, writers as u64));
            if pe.me > 0 {
                for i in 0..writes {
                    let number = recorder.begin(&row, [pe.me as u64 + 10 * i; EVENT]);
                    recorder.change(&row, number, 7);
                }
                return Ok(());
            }
            for number in (0..reads).flat_map(|_| 0..total) {
                if let Some(event) = recorder.read(&row, number) {
                    assert_eq!(event.number, number);
                    assert_eq!(event.words, [event.words[0]; EVENT], "an event is whole");
                    assert_ne!(event.words[0], 0, "an event was written");
                }
            }
            Ok(())
        },
        move |heap, ()| assert_eq!(heap.peek(Word { pe: 0, at: 0 }), total, "every event has a number"),
    )
}
