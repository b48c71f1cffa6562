//! Wrong calls: the same error on all PEs, with both numbers, and the exchange is as good as before.

use shmem::{Result, World};
use shmem_collectives::moe::{F32, Layout, Moe, MoeMode, Refusal, What};

use crate::common::everywhere;
use crate::model::{Routing, Size, round, work};

const SIZE: Size = Size { experts: 4, max_tokens: 8, hidden: 6, top_k: 2 };

/// What a PE does that does something else than the others: its tokens, experts and weights.
type Wrong = (usize, Vec<i32>, Vec<f32>);

fn wrong(world: &World, mode: MoeMode) -> Result<()> {
    let (team, me, n) = (world.team(), world.me(), world.n_pes());
    let moe = Moe::builder(world, &team).experts(4).max_tokens(8).hidden(6).top_k(2).payload(F32).mode(mode);
    let mut moe = moe.build()?;
    let pe = n - 1;
    let length = |what, given, needed| Refusal::Length { pe, what, given, needed };
    let cases: [(Wrong, Refusal); 9] = [
        ((9 * 6, [0, 1].repeat(9), vec![1.0; 18]), Refusal::TooManyTokens { pe, given: 9, max: 8 }),
        ((6, vec![4, 0], vec![1.0; 2]), Refusal::NoSuchExpert { pe, token: 0, expert: 4, experts: 4 }),
        ((12, vec![0, 1, 2, -2], vec![1.0; 4]), Refusal::NoSuchExpert { pe, token: 1, expert: -2, experts: 4 }),
        ((6, vec![i32::MIN, 0], vec![1.0; 2]), Refusal::NoSuchExpert { pe, token: 0, expert: i32::MIN, experts: 4 }),
        ((12, vec![0, 1, 3, 3], vec![1.0; 4]), Refusal::Twice { pe, token: 1, expert: 3 }),
        ((7, vec![0, 1], vec![1.0; 2]), length(What::Tokens, 7, 6)),
        ((6, vec![0], vec![1.0; 2]), length(What::Experts, 1, 2)),
        ((6, vec![0, 1], vec![1.0; 3]), length(What::Weights, 3, 2)),
        ((0, vec![0, 1], vec![1.0; 2]), length(What::Experts, 2, 0)),
    ];
    for (seed, ((values, experts, weights), refusal)) in cases.into_iter().enumerate() {
        let outcome = if me == pe {
            moe.dispatch(&vec![1.0; values], &experts, &weights).map(drop)
        } else {
            moe.dispatch(&[1.0; 12], &[0, 1, 2, 3], &[1.0; 4]).map(drop)
        };
        let error = outcome.expect_err("a refusal");
        assert_eq!(Refusal::of(&error), Some(refusal), "{error}");
        round(&mut moe, &SIZE, seed as u64, Routing::Uniform)?;
    }
    // All that there may be is no error.
    let received = moe.dispatch(&[1.0; 48], &[0, 1].repeat(8), &[0.5; 16])?;
    work(&received, 6)?;
    moe.combine(&mut [0.0; 48])?;
    // All are wrong, each in its own way: the first is told of.
    let experts = [me as i32 + 4, 0];
    let error = moe.dispatch(&[1.0; 6], &experts, &[1.0; 2]).map(drop).expect_err("a refusal");
    assert_eq!(Refusal::of(&error), Some(Refusal::NoSuchExpert { pe: 0, token: 0, expert: 4, experts: 4 }));
    round(&mut moe, &SIZE, 77, Routing::Uniform)?;
    moe.free()
}

#[test]
fn a_wrong_call_is_the_same_error_on_all() {
    everywhere(|world| MoeMode::ALL.into_iter().try_for_each(|mode| wrong(world, mode)));
}

#[test]
fn a_binding_says_what_is_wrong_before_there_are_slices() {
    everywhere(|world| {
        let (team, me, pe) = (world.team(), world.me(), world.n_pes() - 1);
        let moe = Moe::builder(world, &team).experts(4).max_tokens(8).hidden(6).top_k(2).payload(F32);
        let mut moe = moe.build()?;
        let refused = |outcome: Result<()>| Refusal::of(&outcome.expect_err("a refusal"));
        let refusal = Refusal::TooManyTokens { pe, given: usize::MAX, max: 8 };
        for seed in 0..3 {
            match me == pe {
                true => moe.send_refused(refusal)?,
                false => moe.send(&[1.0; 12], &[0, 1, 2, 3], &[1.0; 4])?,
            }
            assert!(moe.is_sent());
            assert_eq!(refused(moe.recv().map(drop)), Some(refusal));
            assert_eq!(moe.moved() > 0, me != pe);
            assert!(!moe.is_sent() && moe.culprit().is_none());
            // What is another PE's, or of one PE alone, is not sent.
            for other in [Refusal::TooManyTokens { pe: me + 1, given: 9, max: 8 }, Refusal::NoOutputs { pe: me }] {
                assert_eq!(refused(moe.send_refused(other)), Some(other));
                assert!(!moe.is_sent());
            }
            round(&mut moe, &SIZE, seed, Routing::Uniform)?;
        }
        moe.free()
    });
}

/// A later exchange may lie where the first did, and be as large, with other experts on each PE, in another mode, or the same.
#[test]
fn a_layout_is_no_other_exchange_s_in_the_same_memory() {
    everywhere(|world| {
        let (team, n) = (world.team(), world.n_pes());
        let build = |placement: [usize; 4], mode| {
            let moe = Moe::builder(world, &team).experts(4).max_tokens(8).hidden(6).top_k(2).payload(F32);
            moe.placement(&placement).mode(mode).build()
        };
        let first = [0, 0, n - 1, n - 1];
        let mut moe = build(first, MoeMode::Throughput)?;
        let layout = layout(&mut moe)?;
        moe.free()?;
        let [throughput, latency] = [MoeMode::Throughput, MoeMode::Latency];
        let others = [
            (first, throughput),
            (first, latency),
            ([n - 1, 0, 0, n - 1], throughput),
            // As many experts of a token on one PE, though PEs have other numbers of them.
            ([0, 0, 0, n - 1], throughput),
        ];
        for (placement, mode) in others {
            let mut moe = build(placement, mode)?;
            let outcome = moe.dispatch_again(&layout, &[2.0; 12]).map(drop);
            assert_eq!(outcome.err().and_then(|error| Refusal::of(&error)), Some(Refusal::StaleLayout { pe: 0 }));
            moe.free()?;
        }
        Ok(())
    });
}

fn layout(moe: &mut Moe<'_, F32>) -> Result<Layout> {
    let received = moe.dispatch(&[1.0; 12], &[0, 1, 2, 3], &[1.0; 4])?;
    let layout = received.layout();
    work(&received, 6)?;
    moe.combine(&mut [0.0; 12]).map(|_| layout)
}

#[test]
fn layouts_that_differ_or_are_stale_are_the_same_error_on_all() {
    everywhere(|world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let build = || {
            let moe = Moe::builder(world, &team).experts(4).max_tokens(8).hidden(6).top_k(2).payload(F32);
            moe.build()
        };
        let (mut moe, mut other) = (build()?, build()?);
        let (one, two) = (layout(&mut moe)?, layout(&mut moe)?);
        let foreign = layout(&mut other)?;
        let tokens = [2.0; 12];
        let refused = |outcome: Result<()>| Refusal::of(&outcome.expect_err("a refusal"));
        // One PE by another layout, or by none.
        let differ = (n > 1).then_some(Refusal::Differ { pe: n - 1, than: 0 });
        if n > 1 {
            let which = if me == n - 1 { &one } else { &two };
            assert_eq!(refused(moe.dispatch_again(which, &tokens).map(drop)), differ);
            let outcome = match me == n - 1 {
                true => moe.dispatch(&tokens, &[0, 1, 2, 3], &[1.0; 4]).map(drop),
                false => moe.dispatch_again(&two, &tokens).map(drop),
            };
            assert_eq!(refused(outcome), differ);
        }
        // Of another exchange; of another length.
        let which = if me == 0 { &foreign } else { &two };
        assert_eq!(refused(moe.dispatch_again(which, &tokens).map(drop)), Some(Refusal::StaleLayout { pe: 0 }));
        let shorter = Refusal::Length { pe: 0, what: What::Tokens, given: 11, needed: 12 };
        let given = if me == 0 { &tokens[1..] } else { &tokens };
        assert_eq!(refused(moe.dispatch_again(&two, given).map(drop)), Some(shorter));
        work(&moe.dispatch_again(&one, &tokens)?, 6)?;
        moe.combine(&mut [0.0; 12])?;
        round(&mut moe, &SIZE, 1, Routing::Uniform)?;
        other.free()?;
        moe.free()
    });
}
