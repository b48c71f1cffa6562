//! PEs that die, hang or leave in any phase of a round: the others end it, and say what is missing.

use std::time::Duration;

use shmem::{ErrorKind, Result, World};
use shmem_collectives::moe::{F32, Moe, MoeMode, Refusal};

use crate::common::{is_child, job, processes, spawn};
use crate::model::{Batch, Routing, Size, combine, work};

const SIZE: Size = Size { experts: 8, max_tokens: 6, hidden: 10, top_k: 3 };

/// Where a PE leaves a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    BeforeSending,
    AfterSending,
    AfterReceiving,
    AfterCombining,
}

const LEAVES: [Leaves; 4] =
    [Leaves::BeforeSending, Leaves::AfterSending, Leaves::AfterReceiving, Leaves::AfterCombining];

fn batch(seed: u64, pe: usize) -> Batch<F32> {
    SIZE.batch(seed, pe, Routing::Uniform)
}

/// What is missing must be of experts that are left out; afterwards all of these are.
fn check_missing(moe: &Moe<'_, F32>, batch: &Batch<F32>, missing: &[(usize, usize)], whole: bool) {
    let lost = |expert: usize| moe.left_out().contains(&moe.pe_of(expert).unwrap());
    let all = SIZE.choices(batch, lost);
    assert!(missing.iter().all(|choice| all.contains(choice)), "{missing:?} of {all:?}");
    if whole {
        assert_eq!(missing, all);
    }
}

/// Rounds of those that are left, of whom the last PE is none; each loss is left out when it is met.
fn survive(world: &World, mode: MoeMode, silent: bool, leaves: Leaves, leave: impl Fn(&World)) -> Result<()> {
    let (team, me, n) = (world.team(), world.me(), world.n_pes());
    let moe = Moe::builder(world, &team).experts(8).max_tokens(6).hidden(10).top_k(3).payload(F32).mode(mode);
    let mut moe = if silent { moe.leave_out_lost().build()? } else { moe.build()? };
    let goes = |when: Leaves| (leaves == when && me == n - 1).then(|| leave(world)).is_some();
    for seed in 0..4 {
        let own = batch(seed, me);
        if seed == 1 && goes(Leaves::BeforeSending) {
            return Ok(());
        }
        if seed == 1 && me == n - 1 && leaves == Leaves::AfterSending {
            moe.send(&own.tokens, &own.experts, &own.weights)?;
            goes(Leaves::AfterSending);
            return Ok(());
        }
        while let Err(error) = moe.dispatch(&own.tokens, &own.experts, &own.weights).map(drop) {
            leave_out(&mut moe, &error, silent, n - 1)?;
        }
        let received = moe.received().unwrap();
        work(&received, SIZE.hidden)?;
        if seed == 1 && goes(Leaves::AfterReceiving) {
            return Ok(());
        }
        let missing = loop {
            match combine(&mut moe, &SIZE, &own) {
                Ok(missing) => break missing,
                Err(error) => leave_out(&mut moe, &error, silent, n - 1)?,
            }
        };
        let whole = seed > 1 || leaves == Leaves::BeforeSending || leaves == Leaves::AfterReceiving && seed == 1;
        check_missing(&moe, &own, &missing, whole && seed > 0);
        if seed == 0 {
            assert_eq!((missing.len(), moe.left_out().len()), (0, 0));
        }
        if seed == 1 && goes(Leaves::AfterCombining) {
            return Ok(());
        }
    }
    assert_eq!(moe.left_out(), [n - 1]);
    Ok(())
}

/// After an error that says that the PE is lost, it is left out.
fn leave_out(moe: &mut Moe<'_, F32>, error: &shmem::Error, silent: bool, lost: usize) -> Result<()> {
    assert!(!silent, "{error}");
    let left_out = matches!(Refusal::of(error), Some(Refusal::LeftOut { pe, .. }) if pe == lost);
    assert!(left_out || matches!(error.kind(), ErrorKind::PeerLost { pe, .. } if *pe == lost), "{error}");
    assert_eq!(moe.culprit(), Some(lost));
    moe.mask(lost)
}

#[test]
fn those_that_are_left_end_the_round() {
    for n in [2, 3, 5] {
        for (i, leaves) in LEAVES.into_iter().enumerate() {
            for mode in MoeMode::ALL {
                let silent = (i + n) % 2 == 0;
                shmem::local(n, |world| survive(world, mode, silent, leaves, World::abandon))
                    .unwrap_or_else(|error| panic!("n = {n}, {leaves:?}, {mode}, silent: {silent}: {error}"));
            }
        }
    }
}

#[test]
fn over_a_network_too() {
    for (hosts, n) in [("2", 4), ("3", 5), ("1", 3)] {
        for leaves in LEAVES {
            for mode in MoeMode::ALL {
                let set = |builder: shmem::Builder| {
                    builder.set("SHMEM_ROUTE", "sim").and_then(|builder| builder.set("SHMEM_HOSTS", hosts)).unwrap()
                };
                for pe in job(n, set, |world| survive(world, mode, n == 4, leaves, World::abandon)) {
                    pe.unwrap_or_else(|error| panic!("{hosts} hosts, {leaves:?}, {mode}: {error}"));
                }
            }
        }
    }
}

/// A process that is killed.
#[test]
fn a_process_that_dies() {
    const TEST: &str = "losses::a_process_that_dies";
    let die = |_: &World| std::process::abort();
    let scenario = |world: &World| survive(world, MoeMode::Latency, false, Leaves::AfterReceiving, die);
    if is_child(TEST) {
        return processes(TEST, &[3], scenario);
    }
    let ended = spawn(TEST, 3, |_, command| command);
    for (pe, ended) in ended.iter().enumerate() {
        assert_eq!(ended.success, pe != 2, "PE {pe}: {}", ended.output);
    }
}

/// J11: a PE that does not come is named, can be left out, and learns of it when it comes after all.
#[test]
fn who_is_late_is_named_and_learns_that_it_was_left_out() {
    let patience = |builder: shmem::Builder| builder.timeout(Duration::from_secs(1));
    let ended = job(3, patience, |world| {
        let (team, me) = (world.team(), world.me());
        let moe = Moe::builder(world, &team).experts(8).max_tokens(6).hidden(10).top_k(3).payload(F32);
        let mut moe = moe.build()?;
        let own = Batch { tokens: vec![1.0; 10], experts: vec![0, 3, 7], weights: vec![1.0; 3] };
        if me == 2 {
            std::thread::sleep(Duration::from_millis(2500));
            let error = moe.dispatch(&own.tokens, &own.experts, &own.weights).map(drop).unwrap_err();
            assert!(matches!(Refusal::of(&error), Some(Refusal::LeftOut { pe: 2, .. })), "{error}");
            return Ok(());
        }
        let error = moe.dispatch(&own.tokens, &own.experts, &own.weights).map(drop).unwrap_err();
        // Or the other was faster, and has left it out.
        let left_out = matches!(Refusal::of(&error), Some(Refusal::LeftOut { pe: 2, by }) if by == 1 - me);
        let timeout =
            matches!(error.kind(), ErrorKind::Timeout { .. }) && error.to_string().contains("it waits for PE 2");
        assert!(left_out || timeout, "{error}");
        moe.mask(2)?;
        for _ in 0..3 {
            work(&moe.dispatch(&own.tokens, &own.experts, &own.weights)?, SIZE.hidden)?;
            assert_eq!(combine(&mut moe, &SIZE, &own)?, [(0, 2)]);
        }
        // So that the late PE finds somebody.
        std::thread::sleep(Duration::from_millis(3000));
        Ok(())
    });
    for pe in ended {
        pe.unwrap();
    }
}

#[test]
fn nobody_leaves_itself_out() {
    shmem::local(2, |world| {
        let team = world.team();
        let mut moe = Moe::builder(world, &team).experts(2).max_tokens(1).hidden(1).build()?;
        assert!(matches!(moe.mask(world.me()).unwrap_err().kind(), ErrorKind::BadTeam(_)));
        assert!(matches!(moe.mask(2).unwrap_err().kind(), ErrorKind::NoSuchPe { pe: 2, n_pes: 2 }));
        assert!(moe.left_out().is_empty());
        moe.free()
    })
    .unwrap();
}
