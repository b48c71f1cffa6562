//! Rounds by a layout that was there before, and rounds in halves.

use shmem::{Result, World};
use shmem_collectives::moe::{F32, Fp8E4m3, Layout, Moe, MoeMode, Payload, Refusal};

use crate::common::{everywhere, scaled};
use crate::model::{Batch, Routing, Size, bits, check_rows, combine, round, work};

const SIZE: Size = Size { experts: 6, max_tokens: 7, hidden: 20, top_k: 3 };

fn exchange<'t, P: Payload>(
    world: &'t World,
    team: &'t shmem::Team<'t>,
    payload: P,
    mode: MoeMode,
) -> Result<Moe<'t, P>> {
    let Size { experts, max_tokens, hidden, top_k } = SIZE;
    let moe = Moe::builder(world, team).experts(experts).max_tokens(max_tokens).hidden(hidden).top_k(top_k);
    moe.payload(payload).mode(mode).build()
}

fn batches<P: Payload>(n: usize, seed: u64) -> Vec<Batch<P>> {
    (0..n).map(|pe| SIZE.batch(seed, pe, Routing::Uniform)).collect()
}

/// A round of which the layout is kept.
fn kept<P: Payload>(moe: &mut Moe<'_, P>, batches: &[Batch<P>]) -> Result<Layout> {
    let batch = &batches[moe.team().me()];
    let received = moe.dispatch(&batch.tokens, &batch.experts, &batch.weights)?;
    let layout = received.layout();
    work(&received, SIZE.hidden)?;
    combine(moe, &SIZE, batch)?;
    Ok(layout)
}

/// Several layouts, used in any order, with rounds of other layouts between them.
fn layouts<P: Payload>(world: &World, payload: P) -> Result<()> {
    let (team, me, n) = (world.team(), world.me(), world.n_pes());
    for mode in MoeMode::ALL {
        let mut moe = exchange(world, &team, payload, mode)?;
        let all: Vec<Vec<Batch<P>>> = (0..3).map(|seed| batches(n, seed)).collect();
        let layouts = all.iter().map(|batches| kept(&mut moe, batches)).collect::<Result<Vec<_>>>()?;
        for seed in 0..scaled(world, 12).max(4) as u64 {
            let which = [2, 0, 1, 1][seed as usize % 4];
            let again = |(pe, batch): (usize, &Batch<P>)| SIZE.again(batch, seed * 100 + pe as u64);
            let others: Vec<Batch<P>> = all[which].iter().enumerate().map(again).collect();
            assert_eq!(layouts[which].tokens() * SIZE.hidden, others[me].tokens.len());
            let received = moe.dispatch_again(&layouts[which], &others[me].tokens)?;
            check_rows(&received, &SIZE, &others)?;
            work(&received, SIZE.hidden)?;
            combine(&mut moe, &SIZE, &others[me])?;
            round(&mut moe, &SIZE, 50 + seed, Routing::Skewed)?;
        }
        moe.free()?;
    }
    Ok(())
}

#[test]
fn a_layout_serves_other_tokens() {
    everywhere(|world| {
        layouts(world, F32)?;
        layouts(world, Fp8E4m3)
    });
}

/// What lies between the halves belongs to the program; a round may be given up for the next.
#[test]
fn rounds_in_halves_and_rounds_without_outputs() {
    everywhere(|world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let mut moe = exchange(world, &team, F32, MoeMode::Latency)?;
        for seed in 0..6 {
            let batches = batches::<F32>(n, seed);
            let Batch { tokens, experts, weights } = &batches[me];
            let mut reused = tokens.clone();
            moe.send(&reused, experts, weights)?;
            assert!(moe.received().is_none());
            reused.fill(f32::NAN);
            moe.recv()?;
            let received = moe.received().unwrap();
            check_rows(&received, &SIZE, &batches)?;
            if seed % 2 == 0 {
                continue; // what the next round begins with
            }
            work(&received, SIZE.hidden)?;
            combine(&mut moe, &SIZE, &batches[me])?;
        }
        moe.free()
    });
}

#[test]
fn calls_out_of_turn_change_nothing() {
    everywhere(|world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let mut moe = exchange(world, &team, F32, MoeMode::Throughput)?;
        let out_of_turn = |outcome: Result<()>, name: &'static str| {
            let refusal = outcome.as_ref().map_err(Refusal::of);
            assert_eq!(refusal, Err(Some(Refusal::OutOfTurn { pe: me, call: name })));
        };
        let batches = batches::<F32>(n, 3);
        let Batch { tokens, experts, weights } = &batches[me];
        let mut sums = vec![0.0; tokens.len()];
        out_of_turn(moe.recv().map(drop), "recv");
        out_of_turn(moe.combine(&mut sums).map(drop), "combine");
        moe.send(tokens, experts, weights)?;
        out_of_turn(moe.send(tokens, experts, weights), "send");
        out_of_turn(moe.combine(&mut sums).map(drop), "combine");
        work(&moe.recv()?, SIZE.hidden)?;
        out_of_turn(moe.recv().map(drop), "recv");
        let short = moe.combine(&mut vec![0.0; tokens.len() + 1]).map(drop).map_err(|error| Refusal::of(&error));
        assert!(matches!(short, Err(Some(Refusal::Length { given, .. })) if given == tokens.len() + 1), "{short:?}");
        moe.combine(&mut sums)?;
        assert!(bits(&sums) == bits(&SIZE.sums(&batches[me], &[])));
        out_of_turn(moe.combine(&mut sums).map(drop), "combine");
        moe.free()
    });
}

/// A PE that goes on without combining is named by those that wait for its outputs; then all goes on.
#[test]
fn who_gives_no_outputs_is_named() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let mut moe = exchange(world, &team, F32, MoeMode::Latency)?;
            let (token, to_all) = ([1.0; 20], [0, 2, 4]);
            let received = moe.dispatch(&token, &to_all, &[1.0; 3])?;
            if me != 1 {
                work(&received, SIZE.hidden)?;
                let outcome = moe.combine(&mut [0.0; 20]).map(drop);
                // Experts 2 and 3 of 6 are with PE 1, or one of these.
                assert_eq!(outcome.map_err(|error| Refusal::of(&error)), Err(Some(Refusal::NoOutputs { pe: 1 })));
            }
            for seed in 0..3 {
                round(&mut moe, &SIZE, seed, Routing::Uniform)?;
            }
            moe.free()
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
