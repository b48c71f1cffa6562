//! The cost model against times that were worked out by hand, and what is known of the algorithms.

use std::time::{Duration, Instant};

use shmem_collectives::model::{How, Level, Machine, Refusal, Report, simulate, table};
use shmem_collectives::plan::{Collective, Hosts, Problem};
use shmem_collectives::plans::Algorithm;

/// A level of which a signal takes 100 ns and a byte 1 ns.
const PLAIN: Level = Level { latency: 100.0, read: 0.0, cached: 1.0, memory: 1.0 };

/// Nothing else costs anything, but for half a ns for each byte combined.
const MACHINE: Machine =
    Machine { complex_pes: 1, complex: PLAIN, host: PLAIN, network: PLAIN, combine: 2.0, step: 0.0, cache: usize::MAX };

fn problem(what: Collective, n: usize, len: usize) -> Problem {
    Problem { what, n, len, chunk: 1 << 16, in_place: false }
}

fn time(algorithm: Algorithm, problem: &Problem, hosts: &Hosts, machine: &Machine) -> Report {
    simulate(algorithm, problem, hosts, machine, 1).expect("a time")
}

fn ns(algorithm: Algorithm, what: Collective, n: usize, len: usize) -> f64 {
    time(algorithm, &problem(what, n, len), &Hosts::one(n), &MACHINE).ns
}

#[test]
fn tiny_cases_by_hand() {
    use Algorithm::*;
    use Collective::*;
    // Two meetings of one round each; 10 bytes are read and 10 written, 10 combined.
    assert_eq!(ns(Direct, AllReduce, 2, 20), 100.0 + (10.0 + 5.0 + 10.0) + 100.0);
    // Two rounds a meeting; 10 bytes each of two PEs are read and written, and 20 combined.
    assert_eq!(ns(Direct, AllReduce, 3, 30), 200.0 + (20.0 + 10.0 + 20.0) + 200.0);
    // 20 bytes go to the other, then all meet, then 20 are combined with what has come: all at home, one copy.
    assert_eq!(ns(Small, AllReduce, 2, 20), 20.0 + 100.0 + (20.0 + 10.0));
    // Meeting, "ready", reading and combining 10, "there", reading 10, "read".
    assert_eq!(ns(Ring, AllReduce, 2, 20), 100.0 + 100.0 + 15.0 + 100.0 + 10.0 + 100.0);
    assert_eq!(ns(Ring, AllReduce, 3, 30), 200.0 + 100.0 + 2.0 * 15.0 + 2.0 * 10.0 + 3.0 * 100.0 + 100.0);
    // Meeting, "ready", 20 bytes, "there".
    assert_eq!(ns(Tree, Broadcast { root: 0 }, 2, 20), 100.0 + 100.0 + 20.0 + 100.0);
    // Two children, one after the other; the root then keeps its own while the last word is under way.
    assert_eq!(ns(Tree, Broadcast { root: 0 }, 3, 20), 200.0 + 100.0 + 40.0 + 100.0);
    // A single PE copies.
    assert_eq!(ns(Ring, AllReduce, 1, 20), 20.0);
}

#[test]
fn steps_are_paid_for() {
    let machine = Machine { step: 1.0, ..MACHINE };
    let two = time(Algorithm::Direct, &problem(Collective::AllReduce, 2, 20), &Hosts::one(2), &machine).ns;
    // A meeting of one round is a signal and a wait, twice; the fold has four regions.
    assert_eq!(two, 225.0 + 2.0 * 2.0 + 4.0);
}

#[test]
fn levels_lie_where_pes_do() {
    let level = |latency| Level { latency, ..PLAIN };
    let machine = Machine { complex_pes: 2, complex: level(1.0), host: level(10.0), network: level(1000.0), ..MACHINE };
    let meeting = |hosts: &[usize]| {
        let hosts = Hosts::new(hosts.iter().copied());
        time(Algorithm::Small, &problem(Collective::AllReduce, hosts.n(), 0), &hosts, &machine).ns
    };
    assert_eq!(meeting(&[2]), 1.0);
    assert_eq!(meeting(&[4]), 20.0);
    assert_eq!(meeting(&[1, 1]), 1000.0);
}

#[test]
fn a_hosts_link_takes_one_after_the_other() {
    // Everybody copies its own block; then the four PEs of a host send 100 bytes to each of four on the other: 1600
    // bytes through one link. With one PE a host, each has its own, for 700.
    let free = Level { latency: 0.0, read: 0.0, cached: f64::INFINITY, memory: f64::INFINITY };
    let machine = Machine { network: Level { latency: 0.0, ..PLAIN }, host: free, ..MACHINE };
    let problem = problem(Collective::AllToAll, 8, 100);
    let shared = time(Algorithm::Direct, &problem, &Hosts::new([4, 4]), &machine);
    assert_eq!((shared.ns, shared.network_bytes), (100.0 + 1600.0, 3200.0));
    let alone = time(Algorithm::Direct, &problem, &Hosts::new([1; 8]), &machine);
    assert_eq!((alone.ns, alone.network_bytes), (100.0 + 700.0, 5600.0));
}

#[test]
fn a_read_between_hosts_waits_for_its_first_byte() {
    let machine = Machine { network: Level { read: 50.0, ..PLAIN }, ..MACHINE };
    let hosts = Hosts::new([1, 1]);
    let two = time(Algorithm::Direct, &problem(Collective::AllReduce, 2, 20), &hosts, &machine);
    assert_eq!((two.ns, two.network_bytes), (275.0, 40.0));
}

#[test]
fn the_ring_moves_the_least_there_is() {
    let machine = Machine { combine: f64::INFINITY, ..MACHINE };
    for n in [2, 3, 4, 7, 8, 16] {
        let bytes = 16_000_000;
        let problem = problem(Collective::AllReduce, n, bytes);
        let report = time(Algorithm::Ring, &problem, &Hosts::one(n), &machine);
        let least = 2.0 * (n as f64 - 1.0) / n as f64 * bytes as f64;
        assert!((least..1.01 * least).contains(&report.ns), "{n}: {} for {least}", report.ns);
        assert!((0.99..=1.0).contains(&report.bus_bandwidth), "{}", report.bus_bandwidth);
    }
}

#[test]
fn doubling_takes_a_latency_a_round() {
    for rounds in 0..11 {
        // As many for the meeting before it.
        assert_eq!(ns(Algorithm::Recursive, Collective::AllReduce, 1 << rounds, 0), 2.0 * 100.0 * rounds as f64);
    }
}

#[test]
fn two_levels_beat_the_ring_between_many_hosts() {
    for (count, bytes) in [(16, 1 << 20), (64, 1 << 20), (64, 1 << 22)] {
        let hosts = Hosts::new(vec![8; count]);
        let problem = problem(Collective::AllReduce, hosts.n(), bytes);
        let two = time(Algorithm::Hierarchical, &problem, &hosts, &Machine::ZEN_4);
        let ring = time(Algorithm::Ring, &problem, &hosts, &Machine::ZEN_4);
        assert!(two.ns < ring.ns, "{count} hosts, {bytes} bytes: {} against {}", two.ns, ring.ns);
        assert!(two.network_bytes <= ring.network_bytes * 1.01);
    }
}

#[test]
fn more_bytes_take_no_less() {
    let hosts = Hosts::new([4, 4]);
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plans(Collective::AllReduce)) {
        let mut before = 0.0;
        for bytes in (3..24).map(|shift| 1 << shift) {
            let report = time(algorithm, &problem(Collective::AllReduce, 8, bytes), &hosts, &Machine::MEASURED);
            assert!(report.ns >= before, "{algorithm} at {bytes}: {} after {before}", report.ns);
            before = report.ns;
        }
    }
}

#[test]
fn every_algorithm_has_a_time_and_always_the_same() {
    let hosts = Hosts::new([3, 4, 1]);
    let whats = Collective::all(2);
    for what in whats {
        for algorithm in Algorithm::ALL {
            let problem = problem(what, 8, 1000);
            let run = || simulate(algorithm, &problem, &hosts, &Machine::ZEN_4, 4);
            match run() {
                Ok(report) => {
                    assert!(algorithm.plans(what));
                    assert_eq!(report.how, How::Run);
                    assert!(report.ns.is_finite() && report.ns > 0.0 && report.network_bytes > 0.0);
                    assert_eq!(run(), Ok(report));
                }
                Err(refusal) => {
                    assert!(!algorithm.plans(what));
                    assert_eq!(refusal, Refusal::NoPlan { algorithm, what });
                }
            }
        }
    }
}

#[test]
fn sixteen_thousand_pes() {
    let hosts = Hosts::new(vec![8; 2048]);
    let time = |algorithm, what, len| {
        let before = Instant::now();
        let result = simulate(algorithm, &problem(what, hosts.n(), len), &hosts, &Machine::ZEN_4, 4);
        assert!(before.elapsed() < Duration::from_secs(60), "{algorithm} {what} {len}: {:?}", before.elapsed());
        result
    };
    let (all_reduce, broadcast) = (Collective::AllReduce, Collective::Broadcast { root: 0 });
    for len in [hosts.n(), 1 << 20] {
        let doubling = time(Algorithm::Recursive, all_reduce, len).unwrap();
        let ring = time(Algorithm::Ring, all_reduce, len).unwrap();
        time(Algorithm::Halving, all_reduce, len).unwrap();
        time(Algorithm::DoubleTree, all_reduce, len).unwrap();
        time(Algorithm::Tree, broadcast, len).unwrap();
        assert_eq!(time(Algorithm::Hierarchical, all_reduce, len).map(|report| report.how), Ok(How::DrawnOut));
        if len == hosts.n() {
            assert!(doubling.ns < ring.ns);
        }
    }
    time(Algorithm::Bruck, Collective::AllGather, 2).unwrap();
    time(Algorithm::Bruck, Collective::AllToAll, 2).unwrap();
    assert_eq!(time(Algorithm::Recursive, all_reduce, 1 << 20).map(|report| report.how), Ok(How::OneHost));
    let scan = time(Algorithm::Direct, Collective::InclusiveScan, 1 << 20);
    assert!(matches!(scan, Err(Refusal::TooLarge { n: 16384, .. })), "{scan:?}");
    let uneven = Hosts::new((0..2048).map(|host| 7 + host % 3));
    let two = simulate(Algorithm::Hierarchical, &problem(all_reduce, uneven.n(), 1), &uneven, &Machine::ZEN_4, 4);
    assert!(matches!(two, Err(Refusal::TooLarge { .. })), "{two:?}");
}

#[test]
fn the_team_must_live_on_the_hosts() {
    let refused = |n, hosts: &Hosts| {
        simulate(Algorithm::Ring, &problem(Collective::AllReduce, n, 1), hosts, &MACHINE, 1).unwrap_err()
    };
    assert_eq!(refused(3, &Hosts::one(2)), Refusal::Hosts { n: 3, hosts: 2 });
    assert_eq!(refused(0, &Hosts::new([])), Refusal::Hosts { n: 0, hosts: 0 });
}

#[test]
fn a_table_names_the_fastest() {
    let table = table(Collective::AllReduce, &Hosts::new([2, 2]), &Machine::MEASURED, &[8, 1 << 20]);
    assert_eq!(table.rows.iter().map(|row| row.bytes).collect::<Vec<_>>(), [8, 1 << 20]);
    for row in &table.rows {
        let (algorithm, fastest) = row.fastest().unwrap();
        assert!(row.times.iter().all(|(_, time)| time.as_ref().is_ok_and(|time| time.ns >= fastest.ns)));
        assert!(table.to_string().lines().any(|line| line.contains(&format!("  {algorithm}"))));
    }
    assert_eq!(table.to_string().lines().count(), 4);
}
