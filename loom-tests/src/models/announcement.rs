//! The announcement: a reader gets a record as it was written, whole, and never an older one than before.

use shmem::sync::announce::{Announcement, RECORD};

use crate::{Explored, Mutation, Waiting, World};

/// PE 0 writes `writes` records, one after the other; `readers` other PEs try to read it `reads` times each.
pub fn model(readers: usize, writes: u64, reads: usize, preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let world = World {
        pes: 1 + readers,
        threads: (0..=readers).collect(),
        words: (0..Announcement::BYTES).step_by(8).collect(),
        waiting: Waiting::Spin,
        preemptions,
        mutation,
    };
    world.run(
        || (),
        move |pe, ()| {
            let announcement = Announcement::new(0);
            if pe.me == 0 {
                return (1..=writes).try_for_each(|i| announcement.write(pe, 0, [i; RECORD]));
            }
            let mut newest = 0;
            for _ in 0..reads {
                if let Some(record) = announcement.try_read(pe, 0)? {
                    assert_eq!(record, [record[0]; RECORD], "a record is whole");
                    assert!(record[0] >= newest, "records do not go back");
                    newest = record[0];
                }
            }
            Ok(())
        },
        |_, ()| {},
    )
}
