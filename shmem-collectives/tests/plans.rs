//! Every algorithm, proved by the checker for every collective that it plans: many team sizes, roots, lengths and chunk sizes, in place and not; what it
//! costs against theory; and mutants, to show that every word between PEs is needed and that the checker would miss it.

use shmem_collectives::check::{Cost, check, check_exchange, check_in_turn, check_uneven};
use shmem_collectives::plan::{Blocks, Collective, Exchange, Hosts, Lane, Plan, Problem, Step, Uneven};
use shmem_collectives::plans::Algorithm;

fn collectives(n: usize) -> Vec<Collective> {
    use Collective::*;
    let mut all = vec![AllReduce, ReduceScatter, AllGather, AllToAll, InclusiveScan, ExclusiveScan];
    let mut roots = vec![0, n / 2, n - 1];
    roots.dedup();
    for root in roots {
        all.extend([Reduce { root }, Gather { root }, Scatter { root }, Broadcast { root }]);
    }
    all
}

/// Ways in which a team may live on hosts; one for algorithms that do not care.
fn homes(algorithm: Algorithm, n: usize) -> Vec<Hosts> {
    let mut homes = vec![Hosts::one(n)];
    if algorithm == Algorithm::Hierarchical {
        if n > 1 {
            homes.extend([Hosts::new([n / 2, n - n / 2]), Hosts::new([1, n - 1]), Hosts::new(vec![1; n])]);
        }
        if n > 3 {
            homes.push(Hosts::new([n / 4, n / 2, n - n / 4 - n / 2]));
        }
        if n > 6 {
            homes.push(Hosts::new([n - 6, 1, 2, 3]));
        }
    }
    homes
}

fn prove(algorithm: Algorithm, problem: &Problem, hosts: &Hosts) -> Cost {
    let cost = check(problem, |me| algorithm.plan(problem, hosts, me))
        .unwrap_or_else(|flaw| panic!("{algorithm} {problem:?} {hosts:?}: {flaw}"));
    let room = algorithm.room(problem, hosts);
    assert!(cost.work <= room.work && cost.slot <= room.slot, "{algorithm} {problem:?}: {cost:?} in {room:?}");
    if algorithm.uses_slots(problem.what) {
        assert!(cost.meets, "{algorithm} {problem:?} takes turns with slots but does not meet");
    } else {
        assert_eq!(cost.slot, 0, "{algorithm} {problem:?}");
    }
    cost
}

fn prove_all(algorithm: Algorithm) {
    for n in (1..=16).chain([17, 23, 31, 32, 33, 64]) {
        let mut lens = match n {
            1..=9 => vec![0, 1, n - 1, n, n + 1, 2 * n + 3],
            10..=17 => vec![0, 1, n + 1],
            _ if algorithm == Algorithm::Hierarchical => vec![n / 2 + 1],
            _ => vec![1, n / 2 + 1],
        };
        lens.sort_unstable();
        lens.dedup();
        for len in lens {
            let mut chunks = if n <= 9 { vec![1, 3, 1 << 20] } else { vec![3] };
            chunks.retain(|chunk| *chunk == 3 || *chunk < len || n <= 5);
            for (chunk, in_place) in chunks.into_iter().flat_map(|chunk| [(chunk, false), (chunk, true)]) {
                for what in collectives(n).into_iter().filter(|what| algorithm.plans(*what)) {
                    for hosts in homes(algorithm, n) {
                        prove(algorithm, &Problem { what, n, len, chunk, in_place }, &hosts);
                    }
                }
            }
        }
    }
}

macro_rules! proofs {
    ($($name:ident: $algorithm:ident,)*) => {
        mod proofs {
            $(
                #[test]
                fn $name() {
                    super::prove_all(super::Algorithm::$algorithm);
                }
            )*
        }
    };
}

proofs! {
    small: Small,
    direct: Direct,
    ring: Ring,
    recursive: Recursive,
    halving: Halving,
    tree: Tree,
    double_tree: DoubleTree,
    bruck: Bruck,
    pairwise: Pairwise,
    mesh: Mesh,
    hierarchical: Hierarchical,
}

mod mutants {
    use super::*;

    /// The problems whose plans are mutated: lengths and chunks of which each PE has several pieces.
    fn subjects() -> Vec<(Algorithm, Problem, Hosts)> {
        let mut subjects = Vec::new();
        for algorithm in Algorithm::ALL {
            for n in [3, 4, 5] {
                for what in collectives(n).into_iter().filter(|what| algorithm.plans(*what)) {
                    for in_place in [false, true] {
                        let problem = Problem { what, n, len: 2 * n + 3, chunk: 2, in_place };
                        let homes = if algorithm == Algorithm::Hierarchical {
                            vec![Hosts::new([2, n - 2]), Hosts::new([1, n - 2, 1])]
                        } else {
                            vec![Hosts::one(n)]
                        };
                        subjects.extend(homes.into_iter().map(|hosts| (algorithm, problem, hosts)));
                    }
                }
            }
        }
        subjects
    }

    fn survives(problem: &Problem, plans: &[Plan]) -> bool {
        check(problem, |me| plans[me].clone()).is_ok()
    }

    /// Where the k-th word of each pair is said and heard.
    fn words(plans: &[Plan]) -> Vec<((usize, usize), (usize, usize))> {
        let mut words = Vec::new();
        for (from, plan) in plans.iter().enumerate() {
            for to in 0..plans.len() {
                let said = plan.iter().enumerate().filter(|(_, step)| **step == Step::Signal { to });
                let heard = plans[to].iter().enumerate().filter(|(_, step)| **step == Step::Wait { from });
                words.extend(said.zip(heard).map(|((i, _), (j, _))| ((from, i), (to, j))));
            }
        }
        words
    }

    #[test]
    fn no_step_can_be_left_out() {
        for (algorithm, problem, hosts) in subjects() {
            let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
            for me in 0..problem.n {
                for i in 0..plans[me].len() {
                    let mut mutant = plans.clone();
                    let step = mutant[me].remove(i);
                    assert!(
                        !survives(&problem, &mutant),
                        "{algorithm} {problem:?} {hosts:?}: PE {me} without step {i}, {step:?}"
                    );
                }
            }
        }
    }

    /// Words that the checker can do without: for most algorithms none. The others are those of which a PE knows already, or will be told before it
    /// matters, by way of third PEs; which these are depends on the number of PEs, so that the plans say them all the same:
    /// - double tree: a PE hears from both trees' parents, one of which may have heard of the other's, and last words likewise;
    /// - halving: in groups of odd size the three PEs that share a round hear of each other in the next;
    /// - pairwise: with three or more rounds there are paths round most pairs;
    /// - two levels: hosts hear of each other in several ways, and the PEs of a host meet at the end; in place, a PE alone on its host has nothing to
    ///   combine and only says that it is there, once a segment.
    fn redundant(algorithm: Algorithm, what: Collective) -> f64 {
        match (algorithm, what) {
            (Algorithm::DoubleTree, _) => 0.40,
            (Algorithm::Halving, _) => 0.10,
            (Algorithm::Pairwise, _) => 0.35,
            (Algorithm::Hierarchical, Collective::AllReduce | Collective::Broadcast { .. }) => 0.25,
            _ => 0.0,
        }
    }

    #[test]
    fn no_word_can_be_left_unsaid_and_unheard() {
        for (algorithm, problem, hosts) in subjects() {
            let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
            let words = words(&plans);
            let survivors = words.iter().filter(|((from, i), (to, j))| {
                let mut mutant = plans.clone();
                mutant[*from].remove(*i);
                mutant[*to].remove(*j);
                survives(&problem, &mutant)
            });
            let share = survivors.count() as f64 / words.len() as f64;
            assert!(share <= redundant(algorithm, problem.what), "{algorithm} {problem:?} {hosts:?}: {share}");
        }
    }

    /// A step that touches a PE's memory, before or after the word that allows or announces it.
    #[test]
    fn no_step_can_pass_the_word_of_the_pe_whose_memory_it_touches() {
        for (algorithm, problem, hosts) in subjects() {
            let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
            let (mut tried, mut survivors) = (0, 0);
            for (me, plan) in plans.iter().enumerate() {
                for i in 1..plan.len() {
                    let (Step::Fold { from, into }, pe) = (match (&plan[i - 1], &plan[i]) {
                        (fold, Step::Signal { to }) => (fold, *to),
                        (Step::Wait { from }, fold) => (fold, *from),
                        _ => continue,
                    }) else {
                        continue;
                    };
                    if from.iter().chain(into).any(|at| at.pe == pe) {
                        let mut mutant = plans.clone();
                        mutant[me].swap(i - 1, i);
                        tried += 1;
                        survivors += usize::from(survives(&problem, &mutant));
                    }
                }
            }
            // Bruck waits for the PE that sends to it; at n = 3 that is now and then the one that it sends to next, which has given leave by being a call
            // behind at most.
            let spare = if algorithm == Algorithm::Bruck { 0.5 } else { redundant(algorithm, problem.what) };
            assert!(
                survivors as f64 <= spare * tried as f64,
                "{algorithm} {problem:?} {hosts:?}: {survivors} of {tried}"
            );
        }
    }
}

/// A small generator of numbers that look random (Steele, Lea, Flood 2014: SplitMix64), so that failures can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

#[test]
fn calls_of_any_algorithms_may_follow_each_other() {
    let mut dice = Dice(3);
    for n in [2, 3, 4, 5, 7, 8] {
        for _ in 0..100 {
            let calls = (0..12).map(|_| {
                let whats = collectives(n);
                let what = whats[dice.below(whats.len())];
                let able: Vec<Algorithm> =
                    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plans(what)).collect();
                // Those that begin without asking, half of the time.
                let algorithm = if dice.below(2) == 0 { Algorithm::Small } else { able[dice.below(able.len())] };
                let problem = Problem { what, n, len: 1 + dice.below(n + 3), chunk: 2, in_place: dice.below(2) == 0 };
                let hosts = Hosts::new([1 + n / 3, n - 1 - n / 3]);
                (problem, (0..n).map(|me| algorithm.plan(&problem, &hosts, me)).collect())
            });
            let calls: Vec<(Problem, Vec<Plan>)> = calls.collect();
            if let Err(flaw) = check_in_turn(calls.clone()) {
                panic!("{:?}: {flaw}", calls.iter().map(|(problem, _)| problem).collect::<Vec<_>>());
            }
        }
    }
}

mod uneven {
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
            let cost = check_exchange(&parts, |me| algorithm.plan_exchange(&parts[me], me).unwrap());
            let cost = cost.unwrap_or_else(|flaw| panic!("{algorithm} {counts:?} in place: {in_place}: {flaw}"));
            let room = parts.iter().map(|part| algorithm.room_exchange(part).work).max();
            assert!(cost.work <= room.unwrap(), "{algorithm} {counts:?}: {cost:?}");
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
}

mod costs {
    use super::*;

    const CHUNK: usize = 1 << 20;

    fn cost(algorithm: Algorithm, what: Collective, n: usize, len: usize) -> Cost {
        prove(algorithm, &Problem { what, n, len, chunk: CHUNK, in_place: false }, &Hosts::one(n))
    }

    fn ceil_log2(n: usize) -> usize {
        n.next_power_of_two().ilog2() as usize
    }

    #[test]
    fn ring_moves_the_least() {
        for n in [2, 3, 4, 7, 8, 16, 33] {
            let all_reduce = cost(Algorithm::Ring, Collective::AllReduce, n, 5 * n);
            assert_eq!((all_reduce.elements, all_reduce.folded), (2 * (n - 1) * 5, (n - 1) * 5), "{n}");
            // One wait a step, one before the first and one after the last.
            assert_eq!(all_reduce.depth, 2 * (n - 1) + 1, "{n}");
            assert_eq!(cost(Algorithm::Ring, Collective::AllGather, n, 5).elements, (n - 1) * 5);
            let reduce_scatter = cost(Algorithm::Ring, Collective::ReduceScatter, n, 5);
            assert_eq!((reduce_scatter.elements, reduce_scatter.folded), ((n - 1) * 5, (n - 1) * 5));
            for what in [Collective::Broadcast { root: 1 }, Collective::Reduce { root: 1 }] {
                assert_eq!(cost(Algorithm::Ring, what, n, 5).elements, 5, "{what:?}");
            }
        }
    }

    #[test]
    fn chains_take_as_many_steps_as_pieces_and_pes() {
        for (n, pieces) in [(2, 9), (5, 1), (5, 7), (16, 10)] {
            let problem = Problem { what: Collective::Broadcast { root: 0 }, n, len: pieces, chunk: 1, in_place: true };
            // And the last word back.
            assert!(prove(Algorithm::Ring, &problem, &Hosts::one(n)).depth <= pieces + n - 1 + 1);
            let problem = Problem { what: Collective::Reduce { root: 0 }, ..problem };
            assert!(prove(Algorithm::Ring, &problem, &Hosts::one(n)).depth <= 2 * (pieces + n), "{problem:?}");
        }
    }

    #[test]
    fn one_shot_and_direct() {
        for n in [2, 3, 8, 17] {
            for what in collectives(n) {
                let small = cost(Algorithm::Small, what, n, 3);
                assert_eq!((small.depth, small.signals, small.meets), (1, n - 1, true), "{what:?}");
                assert!(small.elements <= (n - 1) * 3, "{what:?}");
            }
            let direct = cost(Algorithm::Direct, Collective::AllReduce, n, 4 * n);
            assert_eq!((direct.elements, direct.folded, direct.depth), (2 * (n - 1) * 4, (n - 1) * 4, 2));
        }
    }

    #[test]
    fn logarithmic_algorithms_have_logarithmic_depth() {
        for n in [2_usize, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64] {
            let (rounds, whole) = (ceil_log2(n), n.is_power_of_two());
            let all_reduce = cost(Algorithm::Recursive, Collective::AllReduce, n, 2);
            assert!(
                all_reduce.depth <= if whole { rounds } else { n.ilog2() as usize + 2 },
                "{n}: {}",
                all_reduce.depth
            );
            if whole {
                assert_eq!(all_reduce.elements, 2 * rounds);
            }
            assert_eq!(cost(Algorithm::Bruck, Collective::AllGather, n, 2).depth, rounds, "{n}");
            assert_eq!(cost(Algorithm::Bruck, Collective::AllGather, n, 2).elements, (n - 1) * 2, "{n}");
            let all_to_all = cost(Algorithm::Bruck, Collective::AllToAll, n, 2);
            let hops: usize = (1..n).map(|d| d.count_ones() as usize).sum();
            assert_eq!((all_to_all.depth, all_to_all.elements), (rounds, hops * 2), "{n}");
            let halving = cost(Algorithm::Halving, Collective::AllReduce, n, 12 * n);
            // And the last word back.
            assert!(halving.depth <= 2 * rounds + 1, "{n}: {}", halving.depth);
            if whole {
                assert_eq!(halving.depth, 2 * rounds + 1, "{n}");
                assert_eq!(halving.elements, 2 * (n - 1) * 12, "{n}");
            } else {
                assert!(halving.elements <= (2 * (n - 1) + 2 * rounds) * 12, "{n}: {}", halving.elements);
            }
            // The word that a target is ready comes first, or the word that a source has been read comes last.
            for what in [
                Collective::Broadcast { root: 1 },
                Collective::Reduce { root: 1 },
                Collective::Gather { root: 1 },
                Collective::Scatter { root: 1 },
            ] {
                let tree = cost(Algorithm::Tree, what, n, 2);
                assert!((rounds..=rounds + 1).contains(&tree.depth), "{what:?} {n}: {}", tree.depth);
            }
            assert_eq!(cost(Algorithm::Tree, Collective::Broadcast { root: 0 }, n, 2).elements, rounds * 2);
            assert_eq!(cost(Algorithm::Tree, Collective::Gather { root: 0 }, n, 2).meets, n == 2);
        }
    }

    #[test]
    fn double_tree_moves_at_most_twice_the_elements_in_logarithmic_depth() {
        for n in [2, 3, 4, 8, 13, 32, 64] {
            for (what, times) in [
                (Collective::Broadcast { root: 0 }, 1),
                (Collective::Reduce { root: 0 }, 1),
                (Collective::AllReduce, 2),
            ] {
                let cost = cost(Algorithm::DoubleTree, what, n, 20);
                assert!(cost.elements <= times * 20, "{what:?} {n}: {}", cost.elements);
                assert!(cost.depth <= 4 * times * (ceil_log2(n) + 1), "{what:?} {n}: {}", cost.depth);
            }
        }
    }

    #[test]
    fn pieces_follow_each_other_through_the_double_tree() {
        for n in [4, 8, 31, 64] {
            for (what, times) in [
                (Collective::Broadcast { root: 0 }, 1),
                (Collective::Reduce { root: 0 }, 2),
                (Collective::AllReduce, 2),
            ] {
                let depth = |pieces: usize| {
                    let problem = Problem { what, n, len: 2 * pieces, chunk: 1, in_place: false };
                    prove(Algorithm::DoubleTree, &problem, &Hosts::one(n)).depth
                };
                // A further piece of each half costs a fixed number of waits, whatever the height.
                let more = depth(30) - depth(20);
                assert!(more <= 10 * 2 * times, "{what:?} {n}: {more}");
            }
        }
    }

    #[test]
    fn pairwise_moves_each_block_once() {
        for n in [2, 3, 8, 17] {
            assert_eq!(cost(Algorithm::Pairwise, Collective::AllToAll, n, 3).elements, (n - 1) * 3);
            let problem = Problem { what: Collective::AllToAll, n, len: 3, chunk: CHUNK, in_place: true };
            assert_eq!(prove(Algorithm::Pairwise, &problem, &Hosts::one(n)).elements, (n - 1) * 3);
        }
    }

    /// Against the least that can be moved, the same for all n: what ring and direct move at sizes that divide nothing.
    #[test]
    fn team_sizes_that_are_no_powers_of_two_lose_less_than_a_twentieth() {
        for n in [3_usize, 5, 6, 7, 9, 12, 15, 17, 31, 33] {
            for algorithm in [Algorithm::Ring, Algorithm::Direct] {
                let excess = |n: usize| {
                    let elements = cost(algorithm, Collective::AllReduce, n, 1009).elements as f64;
                    elements / (2.0 * (n - 1) as f64 / n as f64 * 1009.0)
                };
                for power in [n.next_power_of_two(), n.next_power_of_two() / 2] {
                    assert!(excess(n) <= 1.05 * excess(power), "{algorithm} {n}: {} {}", excess(n), excess(power));
                }
                for what in [Collective::ReduceScatter, Collective::AllGather] {
                    assert_eq!(cost(algorithm, what, n, 7).elements, (n - 1) * 7);
                }
            }
            for algorithm in [Algorithm::Direct, Algorithm::Pairwise] {
                assert_eq!(cost(algorithm, Collective::AllToAll, n, 7).elements, (n - 1) * 7);
            }
        }
    }

    /// Elements that come into each host from others.
    fn incoming(problem: &Problem, hosts: &Hosts) -> Vec<usize> {
        let mut incoming = vec![0; hosts.count()];
        for me in 0..problem.n {
            for step in Algorithm::Hierarchical.plan(problem, hosts, me) {
                let Step::Fold { from, into } = step else { continue };
                assert!(into.iter().all(|at| hosts.of(at.pe) == hosts.of(me)), "writes to another host");
                let foreign = from.iter().filter(|at| hosts.of(at.pe) != hosts.of(me));
                incoming[hosts.of(me)] += foreign.map(|at| at.len).sum::<usize>();
            }
        }
        incoming
    }

    #[test]
    fn between_hosts_goes_the_least_that_must() {
        for sizes in [vec![2, 3], vec![1, 4], vec![3, 1, 2], vec![4, 4, 4], vec![8, 7, 9, 8]] {
            let (hosts, n, h) = (Hosts::new(sizes.clone()), sizes.iter().sum::<usize>(), sizes.len());
            let of = |what, len| incoming(&Problem { what, n, len, chunk: CHUNK, in_place: false }, &hosts);
            let len = 60 * h;
            assert_eq!(of(Collective::AllReduce, len), vec![2 * (h - 1) * len / h; h], "{sizes:?}");
            let elsewhere: Vec<usize> = sizes.iter().map(|size| (n - size) * 5).collect();
            assert_eq!(of(Collective::AllGather, 5), elsewhere, "{sizes:?}");
            let results: Vec<usize> = sizes.iter().map(|size| (h - 1) * size * 5).collect();
            assert_eq!(of(Collective::ReduceScatter, 5), results, "{sizes:?}");
            let once: Vec<usize> = (0..h).map(|host| if host == 0 { 0 } else { len }).collect();
            assert_eq!(of(Collective::Broadcast { root: 0 }, len), once, "{sizes:?}");
            let blocks: Vec<usize> = sizes.iter().map(|size| size * (n - size) * 5).collect();
            assert_eq!(of(Collective::AllToAll, 5), blocks, "{sizes:?}");
        }
    }

    #[test]
    fn the_pes_of_a_host_share_what_comes_in() {
        let (hosts, n, len) = (Hosts::new([4, 8, 4]), 16, 960);
        let problem = Problem { what: Collective::AllReduce, n, len, chunk: CHUNK, in_place: false };
        for me in 0..n {
            let mut elements = 0;
            for step in Algorithm::Hierarchical.plan(&problem, &hosts, me) {
                if let Step::Fold { from, .. } = step {
                    elements +=
                        from.iter().filter(|at| hosts.of(at.pe) != hosts.of(me)).map(|at| at.len).sum::<usize>();
                }
            }
            let share = 2 * 2 * len / 3 / hosts.pes(hosts.of(me)).len();
            assert!(elements.abs_diff(share) <= share / 2, "PE {me}: {elements}, {share}");
        }
    }
}

#[test]
fn names() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert_eq!(algorithm.name().to_uppercase().parse(), Ok(algorithm));
    }
    let unknown = "rnig".parse::<Algorithm>().unwrap_err().to_string();
    assert!(unknown.starts_with("`rnig` is no algorithm: there are small, direct, ring"), "{unknown}");
}
