//! Every algorithm, proved by the checker for every collective that it plans: many team sizes, roots, lengths and chunk
//! sizes, in place and not; what it costs against theory; and mutants, to show that hardly a word between PEs is too
//! much and that the checker notices when one is missing.

mod costs;
mod huge;
mod mutants;
mod uneven;
mod wide;

use shmem_collectives::check::{Cost, check, check_exchange, check_in_turn, check_uneven};
use shmem_collectives::plan::{At, Blocks, Buf, Collective, Exchange, Hosts, Lane, Plan, Problem, Step, Uneven};
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

/// A small generator of numbers that look random (Steele, Lea, Flood 2014: SplitMix64), so that failures can be
/// repeated.
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

#[test]
fn names() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert_eq!(algorithm.name().to_uppercase().parse(), Ok(algorithm));
    }
    let unknown = "rnig".parse::<Algorithm>().unwrap_err().to_string();
    assert!(unknown.starts_with("`rnig` is no algorithm: there are small, direct, ring"), "{unknown}");
}
