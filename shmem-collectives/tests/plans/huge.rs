//! N01: plans for more elements than 32 bits count.

use super::*;

/// Elements of the small plan that stand for one each.
const TIMES: usize = (1 << 31) + 5;

fn grown(step: Step) -> Step {
    let grow = |at: At| At { start: at.start * TIMES, len: at.len * TIMES, ..at };
    match step {
        Step::Fold { from, into } => {
            Step::Fold { from: from.into_iter().map(grow).collect(), into: into.into_iter().map(grow).collect() }
        }
        other => other,
    }
}

/// Where lengths divide by the numbers of PEs and hosts, a plan of so many times the elements, in pieces of so many
/// times the size, is the same plan.
#[test]
fn plans_of_thousands_of_millions_of_elements_are_small_ones_grown() {
    for algorithm in Algorithm::ALL {
        for n in [2, 3, 4, 6] {
            let hosts =
                if algorithm == Algorithm::Hierarchical { Hosts::new([n / 2, n - n / 2]) } else { Hosts::one(n) };
            for (what, in_place) in collectives(n).into_iter().flat_map(|what| [(what, false), (what, true)]) {
                if algorithm.plans(what) {
                    let small = Problem { what, n, len: 4 * n * n * (n - n / 2), chunk: 2 * n * (n - n / 2), in_place };
                    let huge = Problem { len: small.len * TIMES, chunk: small.chunk * TIMES, ..small };
                    for me in 0..n {
                        let expected: Plan = algorithm.plan(&small, &hosts, me).into_iter().map(grown).collect();
                        assert!(algorithm.plan(&huge, &hosts, me) == expected, "{algorithm} {huge:?}, PE {me}");
                    }
                    let (small, huge) = (algorithm.room(&small, &hosts), algorithm.room(&huge, &hosts));
                    assert_eq!((huge.work, huge.slot), (small.work * TIMES, small.slot * TIMES), "{algorithm} {what}");
                }
            }
        }
    }
}
