//! PEs that die, hang or leave in any phase of a round: the others end it, and say what is missing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shmem::{ErrorKind, Private, Result, SymSlice, World};
use shmem_collectives::moe::{F32, Moe, MoeMode, Refusal};

use crate::common::{is_child, job, kind_of, processes, spawn};
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

const PAIRS: Size = Size { experts: 4, max_tokens: 1, hidden: 3, top_k: 4 };

/// A PE of two hosts, 0 and 1, 2 and 3, each with an expert; tokens for a host are put to one of its PEs.
struct Paired<'t> {
    world: &'t World,
    moe: Moe<'t, F32>,
    /// Stays 0.
    word: SymSlice<'t, u64>,
    /// How often PEs have [met](Paired::meet).
    met: &'t AtomicUsize,
}

fn in_pairs(silent: bool, run: impl Fn(&mut Paired<'_>) -> Result<()> + Sync) {
    let set = |builder: shmem::Builder| {
        builder.set("SHMEM_ROUTE", "sim").and_then(|builder| builder.set("SHMEM_HOSTS", "2")).unwrap()
    };
    let met = AtomicUsize::new(0);
    let ended = job(4, set, |world| {
        let (team, word) = (world.team(), world.alloc_zeroed::<u64>(1)?);
        let moe = Moe::builder(world, &team).experts(4).max_tokens(1).hidden(3).top_k(4).payload(F32);
        let moe = moe.mode(MoeMode::Throughput);
        let moe = if silent { moe.leave_out_lost().build()? } else { moe.build()? };
        run(&mut Paired { world, moe, word: word.sym(), met: &met })
    });
    for (me, pe) in ended.into_iter().enumerate() {
        pe.unwrap_or_else(|error| panic!("PE {me}: {error}"));
    }
}

impl Paired<'_> {
    /// What this PE brings in a round: a token for all experts.
    fn batch(&self, round: usize) -> Batch<F32> {
        let value = (10 * round + self.world.me()) as f32 + 0.5;
        Batch { tokens: vec![value; 3], experts: vec![0, 1, 2, 3], weights: vec![0.5; 4] }
    }

    /// A round, in which those that are named are left out; what is missing in it.
    fn round(&mut self, round: usize) -> Result<Vec<(usize, usize)>> {
        let own = self.batch(round);
        let mut errors = 0;
        while let Err(error) = self.moe.dispatch(&own.tokens, &own.experts, &own.weights).map(drop) {
            errors += 1;
            assert!(errors < 9, "{error}");
            self.moe.mask(self.moe.culprit().ok_or(error)?)?;
        }
        work(&self.moe.received().unwrap(), 3)?;
        combine(&mut self.moe, &PAIRS, &own)
    }

    /// Waits, without the library, until PEs have met so often in all.
    fn meet(&self, all: usize) {
        self.met.fetch_add(1, Ordering::SeqCst);
        while self.met.load(Ordering::SeqCst) < all {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Once `all` have met, a PE gives up; the others wait until they are told. Whether this is the one.
    fn lose(&self, lost: usize, all: usize) -> bool {
        self.meet(all);
        if self.world.me() == lost {
            self.world.abandon();
            return true;
        }
        let told = self.world.ctx::<Private>().wait_from(self.word, lost, |word| word != 0);
        assert!(matches!(kind_of(&told), ErrorKind::PeerLost { pe, .. } if *pe == lost), "{told:?}");
        false
    }
}

/// The first loss is known and left out; the second PE has given its credit before, so it is met when tokens were put there.
#[test]
fn a_second_loss_is_not_taken_for_the_first() {
    for silent in [false, true] {
        in_pairs(silent, |pe| {
            assert_eq!(pe.round(0)?, []);
            for (round, lost, all) in [(1, 1, 4), (2, 2, 7)] {
                if pe.lose(lost, all) {
                    return Ok(());
                }
                let missing: Vec<(usize, usize)> = (1..=lost).map(|choice| (0, choice)).collect();
                assert_eq!(pe.round(round)?, missing);
            }
            assert_eq!(pe.moe.left_out(), [1, 2]);
            Ok(())
        });
    }
}

/// A loss of which the exchange learns only after the program has gone on without the PE: tokens for its host are put to the other.
#[test]
fn a_loss_that_was_acknowledged_is_met_as_well() {
    for silent in [false, true] {
        in_pairs(silent, |pe| {
            assert_eq!(pe.round(0)?, []);
            if pe.lose(2, 4) {
                return Ok(());
            }
            pe.world.survivors()?;
            for round in 1..4 {
                assert_eq!(pe.round(round)?, [(0, 2)]);
            }
            Ok(())
        });
    }
}

/// The tokens of a round may lie with a PE that is left out since: by its layout others would not be put to another.
#[test]
fn a_layout_is_stale_if_a_pe_was_left_out_after_its_round_was_sent() {
    in_pairs(false, |pe| {
        let own = pe.batch(0);
        work(&pe.moe.dispatch(&own.tokens, &own.experts, &own.weights)?, 3)?;
        if pe.lose(2, 4) {
            return Ok(());
        }
        pe.moe.mask(2)?;
        let layout = pe.moe.received().unwrap().layout();
        combine(&mut pe.moe, &PAIRS, &own)?;
        let other = pe.batch(1);
        let outcome = pe.moe.dispatch_again(&layout, &other.tokens).map(drop).map_err(|error| Refusal::of(&error));
        assert_eq!(outcome, Err(Some(Refusal::StaleLayout { pe: 0 })));
        // That of a round without it is good.
        let received = pe.moe.dispatch(&own.tokens, &own.experts, &own.weights)?;
        let layout = received.layout();
        work(&received, 3)?;
        assert_eq!(combine(&mut pe.moe, &PAIRS, &own)?, [(0, 2)]);
        work(&pe.moe.dispatch_again(&layout, &other.tokens)?, 3)?;
        assert_eq!(combine(&mut pe.moe, &PAIRS, &other)?, [(0, 2)]);
        Ok(())
    });
}

/// PEs that leave each other out, both alive: the loop of `docs/moe.md` ends with who was left out by whom; others go on.
#[test]
fn who_was_left_out_cannot_go_on_and_is_told_by_whom() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let moe = Moe::builder(world, &team).experts(8).max_tokens(6).hidden(10).top_k(3).payload(F32);
            let mut moe = moe.build()?;
            let own = batch(1, me);
            if me < 2 {
                moe.mask(1 - me)?;
            }
            world.barrier_all()?;
            // What the loop ends with, where it ends with an error.
            let leave_out = |moe: &mut Moe<'_, F32>| {
                let culprit = moe.culprit().expect("a culprit");
                moe.mask(culprit).map_err(|error| Refusal::of(&error).expect("a refusal"))
            };
            let mut outcome = Ok(());
            while outcome.is_ok() && moe.dispatch(&own.tokens, &own.experts, &own.weights).is_err() {
                outcome = leave_out(&mut moe);
            }
            // By the other, or by one that has heard of it.
            let left_out = matches!(outcome, Err(Refusal::LeftOut { pe, .. }) if pe == me);
            assert_eq!((left_out, outcome.is_ok()), (me < 2, me >= 2), "{outcome:?}");
            if me >= 2 {
                work(&moe.received().unwrap(), SIZE.hidden)?;
                let missing = loop {
                    match combine(&mut moe, &SIZE, &own) {
                        Ok(missing) => break missing,
                        Err(_) => assert_eq!(leave_out(&mut moe), Ok(())),
                    }
                };
                check_missing(&moe, &own, &missing, true);
            }
            // So that all find each other.
            world.barrier_all()
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
