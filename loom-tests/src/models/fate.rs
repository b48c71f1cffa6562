//! Losses: whoever sees the news sees the fate; of several accounts of one loss the first stays; the cause comes before
//! its consequence.

use shmem::sync::{Atoms, Word, fate};

use crate::{Explored, Mutation, Waiting, World};

/// The news, and the fates of two PEs.
const NEWS: usize = 0;
const FATES: [usize; 2] = [128, 256];

/// PEs 0 and 1 both declare the same loss, each with its own account; PE 1 then is lost itself. PE 2 reads.
pub fn model(preemptions: Option<usize>, mutation: Mutation) -> Explored {
    let words = vec![NEWS, FATES[0], FATES[1]];
    let world = World { pes: 3, threads: vec![0, 1, 2], words, waiting: Waiting::Spin, preemptions, mutation };
    world.run(
        || (),
        |pe, ()| {
            let board = pe.row(0);
            let declare = |lost: usize, how| fate::declare(board.word(FATES[lost]), board.word(NEWS), how);
            match pe.me {
                0 => drop(declare(0, 10)),
                1 => {
                    declare(0, 11);
                    assert!(declare(1, 12), "nobody else declares it");
                }
                _ => {
                    let news = || shmem::sync::atom::observe(board.word(NEWS));
                    let before = news();
                    let [first, second] = FATES.map(|at| fate::read(board.word(at)));
                    assert!(before < 6 || first.is_some() && second.is_some(), "the news are not before the fate");
                    let latest = first.into_iter().chain(second).map(|(_, order)| order).max();
                    assert!(latest < Some(news()), "the count has gone on when a fate is seen");
                    if let (Some((how, cause)), Some((_, consequence))) = (first, second) {
                        assert!(how == 10 || how == 11);
                        assert!(cause < consequence, "the cause comes first");
                    }
                }
            }
            Ok(())
        },
        |heap, ()| {
            assert_eq!(heap.peek(Word { pe: 0, at: NEWS }), 6, "each declaration is news");
            let how = heap.peek(Word { pe: 0, at: FATES[0] }) & fate::HOW;
            assert!(how == 10 || how == 11, "one account stays");
        },
    )
}
