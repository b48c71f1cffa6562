//! Every algorithm, proved by the checker for every collective that it plans.

use shmem_collectives::check::check;
use shmem_collectives::plan::{Collective, Problem};
use shmem_collectives::plans::Algorithm;

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
fn every_plan_is_proved() {
    for n in (1..=9).chain([16, 17]) {
        for len in [0, 1, 2, n - 1, n, n + 1, 2 * n + 3] {
            for in_place in [false, true] {
                for (what, algorithm) in all(n).into_iter().flat_map(|what| Algorithm::ALL.map(|a| (what, a))) {
                    let problem = Problem { what, n, len, chunk: 3, in_place };
                    if algorithm.plans(what)
                        && let Err(flaw) = check(&problem, |me| algorithm.plan(&problem, me))
                    {
                        panic!("{algorithm:?}, {problem:?}: {flaw}");
                    }
                }
            }
        }
    }
}
