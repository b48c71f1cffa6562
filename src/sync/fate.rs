//! Who is lost: a word for each PE that says how it ended, and a count of the news.
//!
//! Whoever learns of a loss *declares* it: adds to the count, claims the lost PE's word, and adds again. Several may declare
//! the same loss; the first one's account stays. Each adds afterwards, also one whose claim came too late: the first may
//! have been killed between its claim and its addition, and then the news would never come out. Whoever sees the last
//! addition sees the word.
//!
//! A fate carries the count as it stood before the first addition, so that of two losses of which one is the other's
//! consequence, the cause has the lower order, however its word became known. Knows nothing of how PEs end.

use crate::sync::atom::{Atom, accumulate, claim, observe};

/// Bits of a fate that say how.
pub const HOW: u64 = (1 << 32) - 1;

/// Declares that the PE of the word `fate` ended: `how` is not 0 and below 2^32. False if that was known.
pub fn declare<A: Atom>(fate: &A, news: &A, how: u64) -> bool {
    let order = accumulate(news, 1);
    let first = claim(fate, 0, how | order << 32) == 0;
    accumulate(news, 1);
    first
}

/// Replaces the account of a loss, which keeps its order: by the PE itself, which knows better.
pub fn amend<A: Atom>(fate: &A, news: &A, how: u64) {
    let mut held = observe(fate);
    loop {
        match claim(fate, held, held & !HOW | how) {
            seen if seen == held => break,
            seen => held = seen,
        }
    }
    accumulate(news, 1);
}

/// How the PE of the word `fate` ended, and the order of this among the fates; `None` while it lives.
pub fn read<A: Atom>(fate: &A) -> Option<(u64, u64)> {
    let word = observe(fate);
    (word != 0).then_some((word & HOW, word >> 32))
}
