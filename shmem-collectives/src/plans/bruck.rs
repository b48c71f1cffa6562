//! Bruck (Bruck, Ho, Kipnis, Upfal, Weathersby 1997): ceil(log2 n) rounds for any number of PEs, in round k with the PE
//! 2^k further on; for small blocks in large teams.
//!
//! All-gather: a PE collects in its slots the blocks of itself and the PEs behind it in order, and in round k sends all
//! it has, up to what is missing, to the PE 2^k back: each block crosses once. All-to-all: a block that must go d
//! further goes by 2^k in each round k whose bit is set in d: about half the blocks in every round, so log2 n / 2 times
//! the elements in log2 n instead of n-1 messages.
//!
//! Nobody asks before it writes: in the rounds everybody hears of everybody, as slots demand. What arrives in a round
//! has a place of its own.

use super::writer::{Writer, block, dst, slot, src};
use crate::plan::{At, Collective, Plan, Problem};

/// Whether Bruck has a plan for this.
pub fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllGather | Collective::AllToAll)
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let mut w = Writer::new(problem.n, me, problem.chunk);
    match problem.what {
        Collective::AllGather => all_gather(&mut w, problem),
        _ => all_to_all(&mut w, problem),
    }
    w.done()
}

/// Rounds in a team of `n`.
pub(super) fn rounds(n: usize) -> usize {
    n.next_power_of_two().ilog2() as usize
}

fn all_gather(w: &mut Writer, problem: &Problem) {
    let (me, n, len) = (w.me, w.n, problem.len);
    for round in 0..rounds(n) {
        let distance = 1 << round;
        let to = w.left(distance);
        let count = distance.min(n - distance);
        w.copy(src(me, 0..len), slot(to, block(distance, len)));
        w.copy(slot(me, len..count * len), slot(to, (distance + 1) * len..(distance + count) * len));
        w.signal(to);
        w.hear(w.right(distance));
    }
    if !problem.in_place {
        w.copy(src(me, 0..len), dst(me, block(me, len)));
    }
    // Block d is of the PE d further on.
    w.copy(slot(me, len..(n - me) * len), dst(me, (me + 1) * len..n * len));
    w.copy(slot(me, (n - me) * len..n * len), dst(me, 0..me * len));
}

fn all_to_all(w: &mut Writer, problem: &Problem) {
    let (me, n, len) = (w.me, w.n, problem.len);
    let half = n.div_ceil(2);
    // Where a block that goes d further arrives in a round: at its rank among those that move in this round.
    let place = |pe: usize, round: usize, d: usize| {
        let rank = (d >> (round + 1) << round) | (d & ((1 << round) - 1));
        slot(pe, block(round * half + rank, len))
    };
    // Where it is after the rounds below `round`.
    let held = |d: usize, round: usize| -> At {
        match d & ((1 << round) - 1) {
            0 => src(me, block((me + d) % n, len)),
            moved => place(me, moved.ilog2() as usize, d),
        }
    };
    for round in 0..rounds(n) {
        let to = w.right(1 << round);
        for d in (1..n).filter(|d| d >> round & 1 == 1) {
            w.copy(held(d, round), place(to, round, d));
        }
        w.signal(to);
        w.hear(w.left(1 << round));
    }
    for d in usize::from(problem.in_place)..n {
        w.copy(held(d, rounds(n)), dst(me, block(w.left(d), len)));
    }
}
