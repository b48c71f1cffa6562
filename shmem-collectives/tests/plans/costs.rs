//! What plans cost, against theory.

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

/// K05: a small message costs one hand-over, a larger one two, whatever the number of PEs.
#[test]
fn one_shot_and_direct() {
    for n in [2, 3, 8, 17] {
        for what in collectives(n) {
            let small = cost(Algorithm::Small, what, n, 3);
            assert_eq!((small.depth, small.signals, small.meets), (1, 0, true), "{what:?}");
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
        assert!(all_reduce.depth <= if whole { rounds } else { n.ilog2() as usize + 2 }, "{n}: {}", all_reduce.depth);
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
        for (what, times) in
            [(Collective::Broadcast { root: 0 }, 1), (Collective::Reduce { root: 0 }, 1), (Collective::AllReduce, 2)]
        {
            let cost = cost(Algorithm::DoubleTree, what, n, 20);
            assert!(cost.elements <= times * 20, "{what:?} {n}: {}", cost.elements);
            assert!(cost.depth <= 4 * times * (ceil_log2(n) + 1), "{what:?} {n}: {}", cost.depth);
        }
    }
}

#[test]
fn pieces_follow_each_other_through_the_double_tree() {
    for n in [4, 8, 31, 64] {
        for (what, times) in
            [(Collective::Broadcast { root: 0 }, 1), (Collective::Reduce { root: 0 }, 2), (Collective::AllReduce, 2)]
        {
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
                elements += from.iter().filter(|at| hosts.of(at.pe) != hosts.of(me)).map(|at| at.len).sum::<usize>();
            }
        }
        let share = 2 * 2 * len / 3 / hosts.pes(hosts.of(me)).len();
        assert!(elements.abs_diff(share) <= share / 2, "PE {me}: {elements}, {share}");
    }
}
