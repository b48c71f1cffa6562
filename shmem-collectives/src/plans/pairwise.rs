//! Pairwise: an all-to-all in rounds, in each of which a PE turns to one other; for blocks that are large enough to
//! fill a link by themselves.
//!
//! With n a power of two the partner in round r is `me ^ r`, so that pairs talk to each other; otherwise a PE writes to
//! the one r further on. Each block crosses once: (n-1) rounds, (n-1) blocks a PE. A PE must have entered before it is
//! written to, which it says at the beginning.
//!
//! In place, pairs swap their blocks piece by piece through work memory: in round r of n, the partner of i is `r - i`,
//! which is symmetric for any n. Each reads the other's piece, says so, and overwrites its own when it has heard the
//! same.

use super::writer::{Writer, dst, src, work};
use crate::plan::{Collective, Exchange, Plan, Problem, pieces};

/// Whether pairwise has a plan for this.
pub fn plans(what: Collective) -> bool {
    what == Collective::AllToAll
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    plan_exchange(&Exchange::equal(problem.n, problem.len, problem.chunk, problem.in_place, me), me)
}

/// The plan of PE `me` for an exchange, of which it knows its own part.
pub fn plan_exchange(problem: &Exchange, me: usize) -> Plan {
    let mut w = Writer::new(problem.n(), me, problem.chunk);
    if problem.in_place {
        swap(&mut w, problem);
    } else {
        send(&mut w, problem);
    }
    w.done()
}

fn send(w: &mut Writer, problem: &Exchange) {
    let (n, me) = (w.n, w.me);
    // Who has written here is known to have entered: with shifts, the one whose turn it is in the second half of the
    // rounds.
    let asked = |round: usize| n.is_power_of_two() || 2 * round <= n;
    let (to, from) = (
        |w: &Writer, round: usize| if n.is_power_of_two() { me ^ round } else { w.right(round) },
        |w: &Writer, round: usize| if n.is_power_of_two() { me ^ round } else { w.left(round) },
    );
    for round in (1..n).filter(|round| asked(*round)) {
        w.signal(from(w, round));
    }
    let put = |w: &mut Writer, to: usize| {
        let lane = problem.to[to];
        w.copy(src(me, lane.here..lane.here + lane.len), dst(to, lane.there..lane.there + lane.len));
    };
    put(w, me);
    for round in 1..n {
        if asked(round) {
            w.hear(to(w, round));
        }
        put(w, to(w, round));
        w.signal(to(w, round));
        w.hear(from(w, round));
    }
}

fn swap(w: &mut Writer, problem: &Exchange) {
    let (n, me) = (w.n, w.me);
    for partner in (0..n).map(|round| (round + n - me) % n).filter(|partner| *partner != me) {
        let lane = problem.from[partner];
        w.signal(partner);
        w.hear(partner);
        for piece in pieces(0..lane.len, problem.chunk) {
            let room = work(me, 0..piece.len());
            w.copy(src(partner, lane.there + piece.start..lane.there + piece.end), room);
            w.signal(partner);
            w.hear(partner);
            w.copy(room, dst(me, lane.here + piece.start..lane.here + piece.end));
        }
    }
}
