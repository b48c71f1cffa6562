use super::*;

fn case<'a>(algorithm: Algorithm, problem: &'a Problem, hosts: &'a Hosts) -> Case<'a> {
    Case { algorithm, problem, hosts, machine: &Machine::ZEN_4, elem_bytes: 4, bytes: bytes(problem, 4) }
}

/// Where one host stands for all, it does so to within what the order of equals at a link makes out: of those that ask
/// at the same time, a run of all lets those of lower numbers go first, which are not the same relative to each host.
#[test]
fn one_host_stands_for_all() {
    let whats = [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll];
    let mut found = Vec::new();
    for (each, count) in [(1, 8), (4, 4), (3, 5), (2, 8), (16, 4)] {
        let hosts = Hosts::new(vec![each; count]);
        for (algorithm, what) in Algorithm::ALL.into_iter().flat_map(|a| whats.map(|what| (a, what))) {
            for len in [hosts.n(), 1024 * hosts.n()] {
                let problem = Problem { what, n: hosts.n(), len, chunk: 4096, in_place: false };
                let case = case(algorithm, &problem, &hosts);
                if !algorithm.plans(what) {
                    continue;
                }
                let Some(symmetry) = Symmetry::find(&hosts, |pe| case.plan(pe)) else { continue };
                let (one, all) = (case.run(symmetry).unwrap(), case.run(Symmetry::None).unwrap());
                assert_eq!(one.network_bytes, all.network_bytes, "{algorithm} {problem:?}");
                let off = (one.ns / all.ns - 1.0).abs();
                let bound = if algorithm == Algorithm::Direct && each > 1 { 0.15 } else { 0.05 };
                assert!(off < bound, "{algorithm} {problem:?} {}: {} against {}", hosts.count(), one.ns, all.ns);
                found.push((algorithm, what));
            }
        }
    }
    for algorithm in [Algorithm::Small, Algorithm::Direct, Algorithm::Ring, Algorithm::Recursive, Algorithm::Halving] {
        assert!(found.contains(&(algorithm, Collective::AllReduce)), "{algorithm}");
    }
    assert!(found.contains(&(Algorithm::Bruck, Collective::AllToAll)));
    assert!(found.contains(&(Algorithm::Pairwise, Collective::AllToAll)));
}

#[test]
fn two_levels_are_drawn_out_to_what_a_run_gives() {
    let hosts = Hosts::new(vec![4; 128]);
    for (what, len) in [
        (Collective::AllReduce, 64),
        (Collective::AllReduce, 1 << 20),
        (Collective::AllGather, 64),
        (Collective::AllGather, 4096),
        (Collective::ReduceScatter, 1024),
        (Collective::Broadcast { root: 0 }, 1 << 18),
    ] {
        let problem = Problem { what, n: hosts.n(), len, chunk: 65536, in_place: false };
        let case = case(Algorithm::Hierarchical, &problem, &hosts);
        let (drawn, run) = (case.draw_out().unwrap(), case.run_all().unwrap());
        let off = drawn.ns / run.ns - 1.0;
        assert!(off.abs() < 0.1, "{problem:?}: {} against {}", drawn.ns, run.ns);
    }
}

#[test]
fn a_quadratic_goes_through_its_points() {
    let f = |x: f64| 3.0 * x * x - 5.0 * x + 2.0;
    assert!((quadratic([1.0, 2.0, 4.0], [1.0, 2.0, 4.0].map(f), 100.0) - f(100.0)).abs() < 1e-6);
}
