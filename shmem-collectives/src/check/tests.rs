//! Each kind of flaw is found, in plans that have this flaw and no other.

use super::*;
use crate::plan::Collective;

fn at(pe: usize, buf: Buf, range: std::ops::Range<usize>) -> At {
    At::new(pe, buf, range)
}

fn fold(from: &[At], into: &[At]) -> Step {
    Step::Fold { from: from.into(), into: into.into() }
}

fn signal(to: usize) -> Step {
    Step::Signal { to }
}

fn hear(from: usize) -> Step {
    Step::Wait { from }
}

/// Element 0 of a buffer.
fn one(pe: usize, buf: Buf) -> At {
    at(pe, buf, 0..1)
}

fn problem(what: Collective) -> Problem {
    Problem { what, n: 2, len: 1, chunk: 1, in_place: false }
}

const BROADCAST: Collective = Collective::Broadcast { root: 0 };

/// The flaw in the plans of two PEs.
fn flaw(problem: Problem, plans: [Plan; 2]) -> String {
    check(&problem, |me| plans[me].clone()).expect_err("no flaw was found").0
}

#[track_caller]
fn finds(what: &str, problem: Problem, plans: [Plan; 2]) {
    let flaw = flaw(problem, plans);
    assert!(flaw.contains(what), "{flaw}");
}

/// A sound broadcast: PE 1 reads from PE 0.
fn broadcast() -> [Plan; 2] {
    [
        vec![fold(&[one(0, Buf::Src)], &[one(0, Buf::Dst)]), signal(1), hear(1)],
        vec![hear(0), fold(&[one(0, Buf::Src)], &[one(1, Buf::Dst)]), signal(0)],
    ]
}

/// A sound all-reduce through slots.
fn one_shot() -> [Plan; 2] {
    [0, 1].map(|me| {
        vec![
            fold(&[one(me, Buf::Src)], &[at(1 - me, Buf::Slot, me..me + 1)]),
            signal(1 - me),
            hear(1 - me),
            match me {
                0 => fold(&[one(0, Buf::Src), at(0, Buf::Slot, 1..2)], &[one(0, Buf::Dst)]),
                _ => fold(&[at(1, Buf::Slot, 0..1), one(1, Buf::Src)], &[one(1, Buf::Dst)]),
            },
        ]
    })
}

#[test]
fn sound_plans_pass() {
    let plans = broadcast();
    let cost = check(&problem(BROADCAST), |me| plans[me].clone()).unwrap();
    assert_eq!((cost.elements, cost.folded, cost.signals, cost.depth, cost.meets), (1, 0, 1, 2, true));
    let plans = one_shot();
    let cost = check(&problem(Collective::AllReduce), |me| plans[me].clone()).unwrap();
    assert_eq!((cost.elements, cost.folded, cost.depth, cost.work, cost.slot), (1, 1, 1, 0, 2));
}

#[test]
fn a_missing_contribution() {
    let copy = |me| vec![fold(&[one(me, Buf::Src)], &[one(me, Buf::Dst)])];
    finds("target is element 0 of PEs 1 ", problem(Collective::AllReduce), [copy(0), copy(1)]);
    finds("PE 1's target", problem(BROADCAST), [copy(0), vec![]]);
}

#[test]
fn a_contribution_twice() {
    let twice = |me| vec![fold(&[one(me, Buf::Src), one(me, Buf::Src)], &[one(me, Buf::Dst)])];
    finds("combines element 0", problem(Collective::AllReduce), [twice(0), twice(1)]);
}

#[test]
fn contributions_that_do_not_belong_together() {
    let problem = Problem { len: 2, ..problem(Collective::AllReduce) };
    let mixed = |me| vec![fold(&[at(me, Buf::Src, 0..1), at(me, Buf::Src, 1..2)], &[one(me, Buf::Dst)])];
    finds("combines element 0", problem, [mixed(0), mixed(1)]);
}

#[test]
fn another_order_elsewhere() {
    let mut plans = one_shot();
    plans[1][3] = fold(&[one(1, Buf::Src), at(1, Buf::Slot, 0..1)], &[one(1, Buf::Dst)]);
    finds("combined in another order", problem(Collective::AllReduce), plans);
}

#[test]
fn a_read_before_its_write_is_announced() {
    let mut plans = broadcast();
    plans[1].swap(0, 1);
    finds("while PE 0 may write it", problem(BROADCAST), plans);
}

#[test]
fn a_source_that_is_still_read_when_its_pe_leaves() {
    let mut plans = broadcast();
    plans[1].swap(1, 2);
    finds("while PE 1 may use it", problem(BROADCAST), plans);
}

#[test]
fn a_target_that_is_written_before_its_pe_has_entered() {
    let put =
        vec![fold(&[one(0, Buf::Src)], &[one(0, Buf::Dst)]), fold(&[one(0, Buf::Src)], &[one(1, Buf::Dst)]), signal(1)];
    finds("while PE 1 may use it", problem(BROADCAST), [put, vec![hear(0)]]);
}

#[test]
fn work_memory_that_is_written_before_its_pe_has_entered() {
    let put = vec![
        fold(&[one(0, Buf::Src)], &[one(0, Buf::Dst)]),
        fold(&[one(0, Buf::Src)], &[one(1, Buf::Work)]),
        signal(1),
    ];
    let get = vec![hear(0), fold(&[one(1, Buf::Work)], &[one(1, Buf::Dst)])];
    finds("buf: Work", problem(BROADCAST), [put, get]);
}

#[test]
fn slots_without_a_meeting() {
    // PE 0 may be two calls ahead of PE 1.
    let put = vec![
        fold(&[one(0, Buf::Src)], &[one(0, Buf::Dst)]),
        fold(&[one(0, Buf::Src)], &[one(1, Buf::Slot)]),
        signal(1),
    ];
    let get = vec![hear(0), fold(&[one(1, Buf::Slot)], &[one(1, Buf::Dst)])];
    finds("before it knows that PE 1 has entered", problem(BROADCAST), [put, get]);
}

#[test]
fn slots_that_are_still_used_when_their_pe_leaves() {
    // PE 1 reads its result from PE 0's slots.
    let first = vec![
        fold(&[one(0, Buf::Src)], &[one(0, Buf::Slot)]),
        signal(1),
        hear(1),
        fold(&[one(0, Buf::Src)], &[one(0, Buf::Dst)]),
    ];
    let second = vec![signal(0), hear(0), fold(&[one(0, Buf::Slot)], &[one(1, Buf::Dst)])];
    finds("buf: Slot", problem(BROADCAST), [first, second]);
}

#[test]
fn a_source_that_is_written() {
    let mut plans = broadcast();
    plans[0].insert(0, fold(&[one(0, Buf::Src)], &[one(0, Buf::Src)]));
    finds("a source", problem(BROADCAST), plans);
}

#[test]
fn a_pe_that_gets_nothing_but_is_written_to() {
    let write =
        vec![hear(1), fold(&[one(0, Buf::Src), one(1, Buf::Src)], &[one(0, Buf::Dst), one(1, Buf::Dst)]), signal(1)];
    finds("which ends at 0", problem(Collective::Reduce { root: 0 }), [write, vec![signal(0), hear(0)]]);
}

#[test]
fn a_source_that_is_not_there() {
    let wrong = |me| vec![fold(&[one(1, Buf::Src)], &[one(me, Buf::Dst)])];
    finds("which ends at 0", problem(BROADCAST), [wrong(0), wrong(1)]);
}

#[test]
fn out_of_bounds_and_out_of_team() {
    let mut plans = broadcast();
    plans[0][0] = fold(&[at(0, Buf::Src, 0..2)], &[at(0, Buf::Dst, 0..2)]);
    finds("which ends at 1", problem(BROADCAST), plans);
    let mut plans = broadcast();
    plans[0][0] = fold(&[one(2, Buf::Src)], &[one(0, Buf::Dst)]);
    finds("in a team of 2", problem(BROADCAST), plans);
    let mut plans = broadcast();
    plans[0].push(signal(2));
    finds("in a team of 2", problem(BROADCAST), plans);
    let mut plans = broadcast();
    plans[0].extend([signal(0), hear(0)]);
    finds("PE 0 has Signal { to: 0 }", problem(BROADCAST), plans);
}

#[test]
fn regions_that_do_not_fit() {
    let problem = Problem { len: 3, ..problem(BROADCAST) };
    let with = |step| [vec![step], vec![]];
    let (src, dst) = (at(0, Buf::Src, 0..2), at(0, Buf::Dst, 0..2));
    finds("different lengths", problem, with(fold(&[src], &[at(0, Buf::Dst, 0..3)])));
    finds("different lengths", problem, with(fold(&[], &[dst])));
    finds("different lengths", problem, with(fold(&[src], &[])));
    finds("partly overlaps", problem, with(fold(&[src], &[dst, at(0, Buf::Dst, 1..3)])));
    finds("partly overlaps", Problem { in_place: true, ..problem }, with(fold(&[src], &[at(0, Buf::Dst, 1..3)])));
    finds("twice", problem, with(fold(&[src], &[dst, dst])));
}

#[test]
fn what_nobody_wrote() {
    let mut plans = broadcast();
    plans[0].insert(0, fold(&[one(0, Buf::Work)], &[one(0, Buf::Dst)]));
    finds("before it was written", problem(BROADCAST), plans);
}

#[test]
fn waiting_for_each_other() {
    let wait = |me: usize| vec![hear(1 - me), signal(1 - me)];
    finds("deadlock: PE 0 at step 0 (Some(Wait { from: 1 })), PE 1", problem(BROADCAST), [wait(0), wait(1)]);
}

#[test]
fn words_that_nobody_hears_or_says() {
    let mut plans = broadcast();
    plans[0].pop();
    finds("1 signals of PE 1 to PE 0 are left over", problem(BROADCAST), plans);
    let mut plans = broadcast();
    plans[0].push(hear(1));
    finds("PE 0 waits 1 times too often for PE 1", problem(BROADCAST), plans);
}

#[test]
fn what_the_next_call_meets() {
    // Alone each is sound; together the words of the first would be taken by the second.
    let plans = broadcast();
    let calls = vec![(problem(BROADCAST), plans.to_vec()), (problem(Collective::AllReduce), one_shot().to_vec())];
    assert_eq!(check_in_turn(calls.clone()), Ok(()));
    let mut shifted = calls;
    shifted[0].1[1].pop();
    shifted[1].1[1].insert(0, signal(0));
    assert!(check_in_turn(shifted).unwrap_err().0.contains("too often"));
}

#[test]
fn too_many_pes() {
    let problem = Problem { n: 129, ..problem(BROADCAST) };
    assert!(check(&problem, |_| Plan::new()).unwrap_err().0.contains("up to 128"));
}
