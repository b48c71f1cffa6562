//! The table, what changes it, and what it gives.

use super::*;

const ROOMY: Room = Room { work: 1 << 40, slot: 1 << 40 };
const PLAIN: Need = Need { room: ROOMY, size: 4, partial: Partial::Elements, whole: false };

fn choose(selection: &Selection, what: Collective, bytes: usize, hosts: &Hosts) -> Algorithm {
    let problem = Problem { what, n: hosts.n(), len: bytes, chunk: 1, in_place: false };
    selection.explain(&problem, hosts, Need { room: ROOMY, size: 1, ..PLAIN }).unwrap().algorithm
}

fn with(settings: &[(&str, &str)]) -> Result<Selection> {
    let mut config = Config::default();
    for (name, value) in settings {
        config.set(name, value)?;
    }
    Selection::new(&config)
}

fn wrong(settings: &[(&str, &str)]) -> String {
    let error = with(settings).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BadSetting { .. }), "{error}");
    error.to_string()
}

#[test]
fn collectives_stand_in_the_order_of_their_names() {
    for (i, what) in COLLECTIVES.into_iter().enumerate() {
        assert_eq!((kind(what), what.name()), (i, Collective::NAMES[i]));
    }
}

#[test]
fn every_row_can_be_planned_and_every_collective_has_one_for_any_size() {
    let selection = Selection::default();
    assert_eq!(selection, with(&[]).unwrap());
    for row in selection.rows() {
        assert!(row.algorithm.plans(COLLECTIVES[row.kind()]), "{row}");
    }
    for choices in &selection.choices {
        for rows in [&choices.one_host, &choices.hosts] {
            assert!(rows.is_sorted_by_key(|row| row.up_to));
            assert_eq!(rows.last().unwrap().up_to, usize::MAX);
        }
    }
}

#[test]
fn sizes_switch_at_their_limits() {
    use Collective::*;
    let (one, four) = (Hosts::one(4), Hosts::new([2, 3]));
    let selection = Selection::default();
    let threshold = with(&[("SHMEM_COLL_THRESHOLD", "64K"), ("SHMEM_COLL_SMALL", "100")]).unwrap();
    for what in COLLECTIVES {
        assert_eq!(choose(&selection, what, 112, &one), Algorithm::Small);
        assert_eq!(choose(&selection, what, 113, &one), Algorithm::Direct);
        assert_eq!(choose(&threshold, what, 100, &one), Algorithm::Small);
        assert_eq!(choose(&threshold, what, 101, &one), Algorithm::Direct);
        let crowded = Hosts::one(4).crowded(true);
        assert_eq!(choose(&selection, what, 2048, &crowded), Algorithm::Small);
        assert_eq!(choose(&selection, what, 2049, &crowded), Algorithm::Direct);
        assert_eq!(choose(&threshold, what, 101, &crowded), Algorithm::Direct);
    }
    for (hosts, limit) in [(one.clone(), 32 << 10), (one.clone().crowded(true), 256 << 10)] {
        let broadcast = |bytes| choose(&selection, Broadcast { root: 1 }, bytes, &hosts);
        assert_eq!((broadcast(limit), broadcast(limit + 1)), (Algorithm::Direct, Algorithm::Hierarchical));
    }
    // Hosts that differ in that choose alike for a team that spans them.
    assert_eq!(four.clone().crowded(true), four);
    for (what, below) in [
        (AllReduce, Algorithm::Recursive),
        (ReduceScatter, Algorithm::Halving),
        (AllGather, Algorithm::Bruck),
        (Broadcast { root: 3 }, Algorithm::Tree),
        (AllToAll, Algorithm::Pairwise),
    ] {
        for (selection, limit) in [(&selection, 1 << 20), (&threshold, 64 << 10)] {
            assert_eq!(choose(selection, what, limit, &four), below, "{what}");
            assert_eq!(choose(selection, what, limit + 1, &four), Algorithm::Hierarchical, "{what}");
        }
    }
    assert_eq!(choose(&selection, AllToAll, 8, &four), Algorithm::Bruck);
}

#[test]
fn what_does_not_fit_or_must_be_folded_whole_falls_to_the_next_row() {
    let hosts = Hosts::new([2, 2]);
    let problem = Problem { what: Collective::AllReduce, n: 4, len: 1000, chunk: 1, in_place: false };
    let need = Need { room: Room { work: 1000, slot: 10 }, ..PLAIN };
    let selection = Selection::default();
    let taken = |selection: &Selection, problem, need| selection.explain(problem, &hosts, need).unwrap().algorithm;
    assert_eq!(taken(&selection, &problem, need), Algorithm::Halving);
    let whole = Need { whole: true, ..need };
    assert_eq!(taken(&selection, &problem, whole), Algorithm::Direct);
    assert_eq!(selection.explain(&problem, &hosts, whole).unwrap().because, Because::NoRow);
    let strict = with(&[("SHMEM_COLL_DETERMINISTIC", "strict"), ("SHMEM_COLL_ALGO", "allreduce=ring,allgather=ring")]);
    let strict = strict.unwrap();
    assert_eq!(taken(&strict, &problem, need), Algorithm::Direct);
    let gather = Problem { what: Collective::AllGather, ..problem };
    assert_eq!(taken(&strict, &gather, need), Algorithm::Ring);
}

#[test]
fn partial_results_that_are_no_elements_are_held_where_folds_are_not_whole() {
    use crate::op::{Avg, Max, Scaled, Sum};
    let (reduce, scan) = (Collective::AllReduce, Collective::InclusiveScan);
    let partials = [
        (Need::of::<f32, Sum>(reduce, ROOMY), Partial::Elements),
        (Need::of::<f32, Max>(scan, ROOMY), Partial::Elements),
        (Need::of::<half::f16, Max>(reduce, ROOMY), Partial::Elements),
        (Need::of::<half::f16, Sum>(scan, ROOMY), Partial::Other(4)),
        (Need::of::<i8, Avg>(reduce, ROOMY), Partial::Other(8)),
        (Need::of::<f32, Avg>(scan, ROOMY), Partial::Own(4)),
        (Need::of::<f64, Scaled<f64>>(reduce, ROOMY), Partial::Own(8)),
        (Need::of::<half::bf16, Sum>(Collective::AllToAll, ROOMY), Partial::Elements),
    ];
    for (need, partial) in partials {
        assert_eq!(need.partial, partial, "{need:?}");
    }
    let problem = Problem { what: reduce, n: 4, len: 1000, chunk: 1, in_place: false };
    let (one, two) = (Hosts::one(4), Hosts::new([2, 2]));
    let need = Need { room: Room { work: 1000, slot: 10 }, size: 2, ..Need::of::<half::f16, Sum>(reduce, ROOMY) };
    let taken = |selection: &Selection, hosts, need| {
        selection.explain(&problem, hosts, need).map(|choice| (choice.algorithm, choice.turns))
    };
    let mut selection = Selection::default();
    assert_eq!(taken(&selection, &one, need), Some((Algorithm::Direct, None)));
    assert_eq!(taken(&selection, &two, need), Some((Algorithm::Halving, Some(2))), "2000 bytes hold 500 of 4");
    selection.force("allreduce", "ring").unwrap();
    assert_eq!(taken(&selection, &one, need), Some((Algorithm::Ring, Some(2))));
    // What must be widened by everybody has no other way.
    let own = Need { partial: Partial::Own(4), ..need };
    selection.force("allreduce", "direct").unwrap();
    assert_eq!(taken(&selection, &one, own), Some((Algorithm::Direct, Some(2))));
    assert_eq!(taken(&selection, &one, Need { room: Room { work: 1, slot: 0 }, ..own }), None);
    selection.force_none();
    selection.measured(parse("allreduce any ring\nallreduce any direct\n").unwrap());
    assert_eq!(taken(&selection, &one, need), Some((Algorithm::Direct, None)));
    assert_eq!(taken(&selection, &one, Need { partial: Partial::Elements, ..need }), Some((Algorithm::Ring, None)));
}

#[test]
fn forced_algorithms_come_before_the_table() {
    let mut selection = with(&[("SHMEM_COLL_ALGO", "allreduce=ring, alltoall=Pairwise")]).unwrap();
    let hosts = Hosts::one(3);
    assert_eq!(choose(&selection, Collective::AllReduce, 8, &hosts), Algorithm::Ring);
    assert_eq!(choose(&selection, Collective::AllToAll, 8, &hosts), Algorithm::Pairwise);
    assert_eq!(choose(&selection, Collective::AllGather, 8, &hosts), Algorithm::Small);
    selection.force_none();
    assert_eq!(selection, Selection::default());
}

#[test]
fn names_of_nothing_are_errors_that_name_the_form() {
    for (value, says) in [
        (
            "allreduce=rung",
            "SHMEM_COLL_ALGO=\"allreduce=rung\" is not valid: give an algorithm for allreduce of small, ",
        ),
        (
            "alltoall=ring",
            "give an algorithm for alltoall of small, direct, bruck, pairwise, hierarchical, in the form ",
        ),
        (
            "allgather=ring,reduces=ring",
            "SHMEM_COLL_ALGO=\"reduces=ring\" is not valid: give a collective of allreduce, ",
        ),
    ] {
        let error = wrong(&[("SHMEM_COLL_ALGO", value)]);
        assert!(error.contains(says) && error.ends_with("in the form allreduce=ring,alltoall=pairwise"), "{error}");
    }
    assert!(wrong(&[("SHMEM_COLL_TABLE", "/none/such")]).starts_with("SHMEM_COLL_TABLE=\"/none/such\" is not valid: "));
}

#[test]
fn tables_are_read_as_they_are_written() {
    let rows: Vec<Row> = Selection::default().rows().filter(|row| row.hosts == Where::OneHost).copied().collect();
    let moe = [(4096, MoeMode::Latency), (1 << 20, MoeMode::Throughput), (usize::MAX, MoeMode::Latency)];
    let moe = moe.map(|(up_to, mode)| MoeRow { hosts: Where::OneHost, up_to, mode, why: "measured" }).to_vec();
    let table = Table { rows, moe };
    let again = parse(&text("head\nof two lines", &table)).unwrap();
    let facts = |row: &Row| (row.collective, row.hosts, row.up_to, row.algorithm);
    assert!(again.rows.iter().map(facts).eq(table.rows.iter().map(facts)));
    assert_eq!(again.moe, table.moe);
    let mut selection = Selection::default();
    selection.measured(parse("allreduce 64 ring\nallreduce any direct\n").unwrap());
    assert_eq!(choose(&selection, Collective::AllReduce, 64, &Hosts::one(2)), Algorithm::Ring);
    assert_eq!(choose(&selection, Collective::AllReduce, 65, &Hosts::one(2)), Algorithm::Direct);
    assert_eq!(choose(&selection, Collective::AllReduce, 65, &Hosts::one(3).crowded(true)), Algorithm::Direct);
    assert_eq!(choose(&selection, Collective::AllGather, 64, &Hosts::one(2)), Algorithm::Small);
    assert_ne!(selection.digest(), Selection::default().digest());
}

#[test]
fn measured_modes_replace_those_of_one_host() {
    use MoeMode::*;
    let of = |selection: &Selection, bytes, several| {
        let (mode, row) = selection.moe(bytes, several);
        (mode, row.map(|row| (row.limit(), row.why == "measured")))
    };
    let built_in = Selection::default();
    assert_eq!(of(&built_in, 1, false), (Throughput, Some(("any".into(), false))));
    let mut measured = built_in.clone();
    measured.measured(parse("moe 4K latency\nmoe any throughput\n").unwrap());
    assert_eq!(of(&measured, 4096, false), (Latency, Some(("4K".into(), true))));
    assert_eq!(of(&measured, 4097, false), (Throughput, Some(("any".into(), true))));
    for selection in [&built_in, &measured] {
        assert_eq!(of(selection, 1 << 20, true), (Latency, Some(("1M".into(), false))));
        assert_eq!(of(selection, (1 << 20) + 1, true), (Throughput, Some(("any".into(), false))));
    }
    let places: Vec<Where> = measured.moe_rows().map(|row| row.hosts).collect();
    assert_eq!(places, [Where::OneHost, Where::OneHost, Where::Hosts, Where::Hosts]);
    // Who chooses otherwise has another digest; collectives keep their rows.
    assert!(measured.rows().eq(built_in.rows()));
    let mut other = built_in.clone();
    other.measured(parse("moe 8K latency\nmoe any throughput\n").unwrap());
    let mut forced = measured.clone();
    forced.force("moe", "latency").unwrap();
    assert_eq!(of(&forced, 1 << 30, true), (Latency, None));
    let digests = [&built_in, &measured, &other, &forced].map(Selection::digest);
    assert!((1..4).all(|i| !digests[..i].contains(&digests[i])), "{digests:?}");
    forced.force_none();
    assert_eq!(forced, measured);
    // Of collectives alone, nothing changes.
    let mut others = built_in.clone();
    others.measured(parse("allreduce any ring\n").unwrap());
    assert!(others.moe_rows().eq(built_in.moe_rows()));
}

#[test]
fn files_with_anything_else_are_refused() {
    for line in ["allreduce", "allreduce 2K", "allreduce 2K small now", "reduces any ring", "allreduce 0 small"] {
        assert_eq!(parse(&format!("#\n{line}\n")), Err(Wrong::Line { line: 2, text: line.into() }));
    }
    for line in ["moe 4K ring", "moe any small", "moe latency", "moe any latency now", "allreduce any latency"] {
        assert_eq!(parse(&format!("{line}\n")), Err(Wrong::Line { line: 1, text: line.into() }));
    }
    let order = parse("moe 64K latency\nallreduce any ring\nmoe 4K throughput\n");
    assert_eq!(order, Err(Wrong::Line { line: 3, text: "moe 4K throughput".into() }));
    assert_eq!(parse("moe 64K latency\nallreduce any ring\n"), Err(Wrong::Open("moe")));
    assert_eq!(parse("alltoall any ring"), Err(Wrong::Line { line: 1, text: "alltoall any ring".into() }));
    let order = parse("scatter 2K small\ngather 1K small\nscatter 1K direct\n");
    assert_eq!(order, Err(Wrong::Line { line: 3, text: "scatter 1K direct".into() }));
    assert_eq!(parse("scatter any small\ngather 1K small\n"), Err(Wrong::Open("gather")));
    assert_eq!(parse(""), Ok(Table::default()));
}
