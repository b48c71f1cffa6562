//! Recursive halving and doubling (Rabenseifner 2004), for any number of PEs; for messages that are large enough to be
//! cut and small enough for the number of rounds to matter.
//!
//! Reduce-scatter: a group of PEs with as many stripes splits in two halves, the lower of which may be larger by one.
//! Each PE reads from a partner in the other half that half's part of what its own half will finish, and adds it; then
//! each half goes on alone. If the lower half is larger, its last PE has no partner: each PE of the upper half reads
//! one stripe of it more, its own. After ceil(log2 n) rounds every PE has its own stripe. All-gather: the same way
//! back, and the PE without a partner reads from each of the others its stripe.
//!
//! An all-reduce of m elements moves 2(n-1)/n of m per PE in 2 ceil(log2 n) rounds if n is a power of two; otherwise at
//! most two stripes more a round. Partial results are in the target (of an all-reduce) or the work memory. What a PE
//! reads from its partner is never what that one writes in this round; it is written again only with the result, which
//! has been made from what was read.

use std::ops::Range;

use super::pipeline::keep;
use super::writer::{Writer, dst, src, work};
use crate::plan::{At, Blocks, Collective, Plan, Problem, Uneven};

/// Whether halving and doubling has a plan for this.
pub fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllReduce | Collective::ReduceScatter)
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, len, .. } = *problem;
    let mut w = Writer::new(n, me, problem.chunk);
    match problem.what {
        Collective::AllReduce if n == 1 => keep(&mut w, problem),
        Collective::AllReduce => {
            let stripes = Blocks::new((0..n).map(|i| Problem::part(len, n, i).len()));
            halve(&mut w, &stripes, &|pe, _, range| dst(pe, range));
            double(&mut w, &stripes);
        }
        _ => reduce_scatter(&mut w, &Blocks::equal(n, len)),
    }
    w.done()
}

/// The plan of PE `me` for a reduce-scatter with blocks of different lengths.
pub fn plan_uneven(problem: &Uneven, me: usize) -> Plan {
    let mut w = Writer::new(problem.blocks.n(), me, problem.chunk);
    reduce_scatter(&mut w, &problem.blocks);
    w.done()
}

/// Elements of work memory that a reduce-scatter needs: those of a half.
pub(super) fn room(blocks: &Blocks) -> usize {
    let half = blocks.n().div_ceil(2);
    blocks.span(0..half).len().max(blocks.span(half..blocks.n()).len())
}

/// What a PE does in one round of halving.
struct Round {
    /// The stripes of the own half.
    mine: Range<usize>,
    /// Stripes that are read while halving, and from whom.
    gets: Vec<(usize, Range<usize>)>,
    /// Who reads from this PE while halving.
    readers: Vec<usize>,
    /// Stripes that are read while doubling, and from whom: those who read from this PE while halving.
    regets: Vec<(usize, Range<usize>)>,
}

fn rounds(n: usize, me: usize) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut group = 0..n;
    while group.len() > 1 {
        let mid = group.start + group.len().div_ceil(2);
        let (lower, upper) = (group.start..mid, mid..group.end);
        let odd = (lower.len() > upper.len()).then_some(mid - 1);
        let round = if odd == Some(me) {
            let each = upper.clone().map(|pe| (pe, pe..pe + 1)).collect();
            Round { mine: lower, gets: Vec::new(), readers: upper.collect(), regets: each }
        } else if me < mid {
            let partner = me - group.start + mid;
            Round {
                mine: lower.clone(),
                gets: vec![(partner, lower)],
                readers: vec![partner],
                regets: vec![(partner, upper)],
            }
        } else {
            let partner = me - mid + group.start;
            let more = odd.map(|odd| (odd, me..me + 1));
            let gets = std::iter::once((partner, upper.clone())).chain(more).collect();
            Round { mine: upper, gets, readers: vec![partner], regets: vec![(partner, lower)] }
        };
        group = round.mine.clone();
        rounds.push(round);
    }
    rounds
}

/// The way down. `place(pe, stripes of its half in the round that made them, elements)` says where partial results are.
fn halve(w: &mut Writer, stripes: &Blocks, place: &dyn Fn(usize, Range<usize>, Range<usize>) -> At) {
    let (n, me) = (w.n, w.me);
    // What a PE has before a round: its source until it has combined anything, which the one without a partner has not.
    let held = |pe: usize, upto: usize, range: Range<usize>| {
        let before = rounds(n, pe);
        match before[..upto].iter().rev().find(|round| !round.gets.is_empty()) {
            Some(_) => place(pe, before[upto - 1].mine.clone(), range),
            None => src(pe, range),
        }
    };
    for (i, round) in rounds(n, me).iter().enumerate() {
        w.signal_all(round.readers.iter().copied());
        w.hear_all(round.gets.iter().map(|(pe, _)| *pe));
        // Stripe by stripe where some come from two PEs; otherwise all at once.
        let cuts = match round.gets.as_slice() {
            [(_, all), (_, own)] => vec![all.start..own.start, own.clone(), own.end..all.end],
            [(_, all)] => vec![all.clone()],
            _ => Vec::new(),
        };
        for cut in cuts {
            let range = stripes.span(cut.clone());
            let theirs = round.gets.iter().filter(|(_, have)| have.start <= cut.start && cut.end <= have.end);
            let mut from: Vec<At> = theirs.map(|(pe, _)| held(*pe, i, range.clone())).collect();
            from.push(held(me, i, range.clone()));
            from.sort_by_key(|at| at.pe);
            w.fold(from, [place(me, round.mine.clone(), range)]);
        }
    }
}

/// The way back.
fn double(w: &mut Writer, stripes: &Blocks) {
    let rounds = rounds(w.n, w.me);
    for round in rounds.iter().rev() {
        w.signal_all(round.gets.iter().map(|(pe, _)| *pe));
        for (pe, theirs) in &round.regets {
            w.hear(*pe);
            let range = stripes.span(theirs.clone());
            w.copy(dst(*pe, range.clone()), dst(w.me, range));
        }
        w.signal_all(round.regets.iter().map(|(pe, _)| *pe));
    }
    for round in &rounds {
        w.hear_all(round.gets.iter().map(|(pe, _)| *pe));
    }
}

fn reduce_scatter(w: &mut Writer, blocks: &Blocks) {
    let (n, me) = (w.n, w.me);
    if n == 1 {
        return w.copy(src(me, blocks.range(0)), dst(me, blocks.range(0)));
    }
    let half = n.div_ceil(2);
    halve(w, blocks, &|pe, mine, range| {
        // The last round makes the result; before, all that a PE makes lies in the half of the first round.
        let base = if mine.len() == 1 {
            return dst(pe, 0..range.len());
        } else if pe < half {
            0
        } else {
            blocks.range(half).start
        };
        work(pe, range.start - base..range.end - base)
    });
    let rounds = rounds(n, me);
    for round in &rounds {
        w.signal_all(round.gets.iter().map(|(pe, _)| *pe));
    }
    for round in &rounds {
        w.hear_all(round.readers.iter().copied());
    }
}
