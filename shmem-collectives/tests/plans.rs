//! Every algorithm proved by the checker.
use shmem_collectives::check::check;
use shmem_collectives::plan::{Collective, Problem};
use shmem_collectives::plans::{direct, ring};

fn all(n: usize) -> Vec<Collective> {
    let mut all = vec![
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::InclusiveScan,
        Collective::ExclusiveScan,
    ];
    for root in [0, n / 2, n - 1] {
        all.extend([
            Collective::Reduce { root },
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::Broadcast { root },
        ]);
    }
    all
}

#[test]
fn proofs() {
    for n in (1..=9).chain([16, 17]) {
        for len in [0, 1, 2, n - 1, n, n + 1, 2 * n + 3] {
            for in_place in [false, true] {
                for what in all(n) {
                    let problem = Problem { what, n, len, chunk: 3, in_place };
                    if let Err(e) = check(&problem, |me| direct::plan(&problem, me)) {
                        panic!("direct {problem:?}: {e}");
                    }
                    if ring::plans(what) {
                        if let Err(e) = check(&problem, |me| ring::plan(&problem, me)) {
                            panic!("ring {problem:?}: {e}");
                        }
                    }
                }
            }
        }
    }
}
