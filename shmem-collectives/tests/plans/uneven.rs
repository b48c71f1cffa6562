//! Blocks of different lengths, and exchanges of which every PE knows its own part.

use super::*;

#[test]
fn blocks_of_any_length() {
    let mut dice = Dice(1);
    for n in (1..=9).chain([16, 17, 33]) {
        let mut counts: Vec<Vec<usize>> = vec![vec![0; n], (0..n).collect(), (0..n).rev().collect(), vec![3; n]];
        counts.extend((0..6).map(|_| (0..n).map(|_| dice.below(8).saturating_sub(3)).collect()));
        for (counts, in_place) in counts.into_iter().flat_map(|counts| [(counts.clone(), false), (counts, true)]) {
            for gather in [true, false] {
                let problem = Uneven { gather, blocks: Blocks::new(counts.clone()), chunk: 2, in_place };
                for algorithm in Algorithm::ALL.into_iter().filter(|it| it.plan_uneven(&problem, 0).is_some()) {
                    let cost = check_uneven(&problem, |me| algorithm.plan_uneven(&problem, me).unwrap());
                    let cost = cost.unwrap_or_else(|flaw| panic!("{algorithm} {problem:?}: {flaw}"));
                    let room = algorithm.room_uneven(&problem);
                    assert!(cost.work <= room.work && cost.slot <= room.slot, "{algorithm} {problem:?}: {cost:?}");
                }
            }
        }
    }
}

#[test]
fn direct_ring_and_small_take_unequal_blocks() {
    let problem = Uneven { gather: true, blocks: Blocks::new([1, 2]), chunk: 2, in_place: false };
    let able = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plan_uneven(&problem, 0).is_some());
    assert_eq!(able.collect::<Vec<_>>(), [Algorithm::Small, Algorithm::Direct, Algorithm::Ring]);
}

/// What each PE knows when `counts[i][j]` elements go from i to j, with a gap of one element before every block.
fn parts(counts: &[Vec<usize>], in_place: bool) -> Vec<Exchange> {
    let n = counts.len();
    let here = |me: usize, other: usize| (0..other).map(|o| counts[me][o] + 1).sum::<usize>() + 1;
    let there = |me: usize, other: usize| (0..other).map(|o| counts[o][me] + 1).sum::<usize>() + 1;
    let to = |me: usize, o: usize| Lane { here: here(me, o), there: there(o, me), len: counts[me][o] };
    let from = |me: usize, o: usize| Lane { here: there(me, o), there: here(o, me), len: counts[o][me] };
    let part = |me: usize| Exchange {
        to: (0..n).map(|other| to(me, other)).collect(),
        from: (0..n).map(|other| from(me, other)).collect(),
        chunk: 2,
        in_place,
    };
    (0..n).map(part).collect()
}

fn prove(counts: &[Vec<usize>], in_place: bool) {
    let parts = parts(counts, in_place);
    for algorithm in [Algorithm::Direct, Algorithm::Pairwise] {
        let cost = check_exchange(&parts, |me| algorithm.plan_exchange(&parts[me], me).expect("a plan"));
        let cost = cost.unwrap_or_else(|flaw| panic!("{algorithm} {counts:?} in place: {in_place}: {flaw}"));
        let room = parts.iter().map(|part| algorithm.room_exchange(part).work).fold(0, usize::max);
        assert!(cost.work <= room, "{algorithm} {counts:?}: {cost:?}");
    }
}

/// Field report B07: pairs with nothing to say to each other must not make anybody wait.
#[test]
fn five_hundred_count_matrices_with_many_zeros() {
    let mut dice = Dice(2);
    for round in 0..500 {
        let n = 2 + round % 5;
        let mut counts = vec![vec![0; n]; n];
        for count in counts.iter_mut().flatten() {
            *count = if dice.below(10) < 6 { 0 } else { 1 + dice.below(5) };
        }
        match round % 7 {
            0 => counts[dice.below(n)].fill(0),
            1 => {
                let column = dice.below(n);
                counts.iter_mut().for_each(|row| row[column] = 0);
            }
            _ => {}
        }
        prove(&counts, false);
        // In place, as much goes to a PE as comes from it.
        let both: Vec<Vec<usize>> = (0..n).map(|i| (0..n).map(|j| counts[i.min(j)][i.max(j)]).collect()).collect();
        prove(&both, true);
    }
}
