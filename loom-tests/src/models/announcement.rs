//! The announcement: a reader gets a record as it was written, whole, and never an older one than before.

use shmem::sync::announce::{Announcement, RECORD};

use crate::{Explored, Mutation, Waiting, World};

/// Records that the writer writes, one after the other.
const WRITES: u64 = 2;

/// PE 0 writes two records; `readers` other PEs read twice each.
pub fn model(readers: usize, preemptions: Option<usize>, mutation: Mutation) -> Explored {
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
        |pe, ()| {
            let announcement = Announcement::new(0);
            if pe.me == 0 {
                return (1..=WRITES).try_for_each(|i| announcement.write(pe, 0, [i; RECORD]));
            }
            let mut newest = 0;
            for _ in 0..2 {
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
