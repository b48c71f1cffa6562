//! Plans with partial results of a type of their own, in turns.

use super::*;
use shmem_collectives::plans::wide;

const TURNS: [usize; 3] = [1, 2, 3];

fn reductions(algorithm: Algorithm, n: usize) -> impl Iterator<Item = Collective> {
    collectives(n).into_iter().filter(move |what| what.reduces() && algorithm.plans(*what))
}

#[test]
fn every_algorithm_that_reduces() {
    for algorithm in Algorithm::ALL {
        for n in (1..=9).chain([16]) {
            let lens = if n < 9 { vec![0, 1, n, 2 * n + 3] } else { vec![n + 1] };
            for (len, in_place) in lens.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                let whats = reductions(algorithm, n).flat_map(|what| TURNS.map(|turns| (what, turns)));
                for (what, turns) in whats.filter(|(_, turns)| *turns <= len.max(1)) {
                    for hosts in homes(algorithm, n) {
                        let problem = Problem { what, n, len, chunk: 3, in_place };
                        let cost = check(&problem, |me| wide::plan(algorithm, &problem, &hosts, me, turns));
                        let cost = cost
                            .unwrap_or_else(|flaw| panic!("{algorithm} {problem:?} {hosts:?}, {turns} turns: {flaw}"));
                        let room = wide::room(algorithm, &problem, &hosts, turns);
                        assert!(
                            cost.work <= room.work && cost.slot <= room.slot,
                            "{algorithm} {problem:?}, {turns} turns: {cost:?} in {room:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn reduce_scatters_by_counts() {
    let mut dice = Dice(5);
    for n in (1..=9).chain([16]) {
        for turns in TURNS {
            let counts: Vec<usize> = (0..n).map(|_| dice.below(9).saturating_sub(3)).collect();
            for in_place in [false, true] {
                let problem = Uneven { gather: false, blocks: Blocks::new(counts.clone()), chunk: 2, in_place };
                for algorithm in Algorithm::ALL.into_iter().filter(|it| it.plan_uneven(&problem, 0).is_some()) {
                    let cost = check_uneven(&problem, |me| wide::plan_uneven(algorithm, &problem, me, turns).unwrap());
                    let cost = cost.unwrap_or_else(|flaw| panic!("{algorithm} {problem:?}, {turns} turns: {flaw}"));
                    let room = wide::room_uneven(algorithm, &problem, turns);
                    assert!(cost.work <= room.work && cost.slot <= room.slot, "{algorithm} {problem:?}: {cost:?}");
                }
            }
        }
    }
}

/// Nobody but the PE itself touches its source and target, and it does so only to widen and to finish.
#[test]
fn elements_stay_at_home() {
    for algorithm in Algorithm::ALL {
        for (what, me) in reductions(algorithm, 5).flat_map(|what| (0..5).map(move |me| (what, me))) {
            let problem = Problem { what, n: 5, len: 13, chunk: 3, in_place: false };
            let hosts = if algorithm == Algorithm::Hierarchical { Hosts::new([2, 3]) } else { Hosts::one(5) };
            for step in wide::plan(algorithm, &problem, &hosts, me, 2) {
                let Step::Fold { from, into } = step else { continue };
                match (&*from, &*into) {
                    ([from], [into]) if from.buf == Buf::Src => {
                        assert_eq!((from.pe, into.pe, into.buf), (me, me, Buf::Work));
                    }
                    ([from], [into]) if into.buf == Buf::Dst => {
                        assert_eq!((from.pe, into.pe, from.buf), (me, me, Buf::Work));
                    }
                    (from, into) => {
                        let inner = |at: &At| matches!(at.buf, Buf::Work | Buf::Slot);
                        assert!(from.iter().chain(into).all(inner), "{algorithm} {what}: {from:?} into {into:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_fold_and_no_meeting_can_be_left_out() {
    for algorithm in Algorithm::ALL {
        for n in [3, 4] {
            let whats = reductions(algorithm, n).flat_map(|what| [(what, 1), (what, 2)]);
            for (what, turns) in whats {
                let problem = Problem { what, n, len: n + 2, chunk: 2, in_place: false };
                let hosts = if algorithm == Algorithm::Hierarchical { Hosts::new([1, n - 1]) } else { Hosts::one(n) };
                let plans: Vec<Plan> = (0..n).map(|me| wide::plan(algorithm, &problem, &hosts, me, turns)).collect();
                let what = format!("{algorithm} {problem:?}, {turns} turns");
                let survives = |mutant: &[Plan]| check(&problem, |me| mutant[me].clone()).is_ok();
                for me in 0..n {
                    for i in (0..plans[me].len()).filter(|i| matches!(plans[me][*i], Step::Fold { .. })) {
                        let mut mutant = plans.clone();
                        let step = mutant[me].remove(i);
                        assert!(!survives(&mutant), "{what}: PE {me} without step {i}, {step:?}");
                    }
                }
                let meetings = plans[0].iter().filter(|step| **step == Step::Meet).count();
                // What ends one turn of a plan that meets at both ends says, too, that the next may begin.
                let needed = |k: usize| algorithm != Algorithm::Direct || k == 0 || k + 1 == meetings;
                for k in (0..meetings).filter(|k| needed(*k)) {
                    let mut mutant = plans.clone();
                    for plan in &mut mutant {
                        let at = (0..plan.len()).filter(|i| plan[*i] == Step::Meet).nth(k).unwrap();
                        plan.remove(at);
                    }
                    assert!(!survives(&mutant), "{what}: without meeting {k}");
                }
            }
        }
    }
}
