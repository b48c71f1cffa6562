//! The table, what changes it, and what it gives.

use super::*;

const ROOMY: Room = Room { work: 1 << 40, slot: 1 << 40 };

fn choose(selection: &Selection, what: Collective, bytes: usize, hosts: &Hosts) -> Algorithm {
    let problem = Problem { what, n: hosts.n(), len: bytes, chunk: 1, in_place: false };
    selection.choose(&problem, hosts, Need { room: ROOMY, size: 1, whole: false }).0
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
    }
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
    let need = Need { room: Room { work: 1000, slot: 10 }, size: 4, whole: false };
    assert_eq!(Selection::default().choose(&problem, &hosts, need).0, Algorithm::Halving);
    let whole = Need { whole: true, ..need };
    assert_eq!(Selection::default().choose(&problem, &hosts, whole).0, Algorithm::Direct);
    assert_eq!(Selection::default().explain(&problem, &hosts, whole).because, Because::NoRow);
    let strict = with(&[("SHMEM_COLL_DETERMINISTIC", "strict"), ("SHMEM_COLL_ALGO", "allreduce=ring,allgather=ring")]);
    let strict = strict.unwrap();
    assert_eq!(strict.choose(&problem, &hosts, need).0, Algorithm::Direct);
    let gather = Problem { what: Collective::AllGather, ..problem };
    assert_eq!(strict.choose(&gather, &hosts, need).0, Algorithm::Ring);
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
    let again = parse(&text("head\nof two lines", &rows)).unwrap();
    let facts = |row: &Row| (row.collective, row.hosts, row.up_to, row.algorithm);
    assert!(again.iter().map(facts).eq(rows.iter().map(facts)));
    let mut selection = Selection::default();
    selection.measured(parse("allreduce 64 ring\nallreduce any direct\n").unwrap());
    assert_eq!(choose(&selection, Collective::AllReduce, 64, &Hosts::one(2)), Algorithm::Ring);
    assert_eq!(choose(&selection, Collective::AllReduce, 65, &Hosts::one(2)), Algorithm::Direct);
    assert_eq!(choose(&selection, Collective::AllGather, 64, &Hosts::one(2)), Algorithm::Small);
    assert_ne!(selection.digest(), Selection::default().digest());
}

#[test]
fn files_with_anything_else_are_refused() {
    for line in ["allreduce", "allreduce 2K", "allreduce 2K small now", "reduces any ring", "allreduce 0 small"] {
        assert_eq!(parse(&format!("#\n{line}\n")), Err(Wrong::Line { line: 2, text: line.into() }));
    }
    assert_eq!(parse("alltoall any ring"), Err(Wrong::Line { line: 1, text: "alltoall any ring".into() }));
    let order = parse("scatter 2K small\ngather 1K small\nscatter 1K direct\n");
    assert_eq!(order, Err(Wrong::Line { line: 3, text: "scatter 1K direct".into() }));
    assert_eq!(parse("scatter any small\ngather 1K small\n"), Err(Wrong::Open("gather")));
    assert_eq!(parse(""), Ok(Vec::new()));
}
