//! Collectives in many histories (see `shmem::simulate`): whatever the order in which PEs get on and transfers arrive, every
//! algorithm gives every PE the right values; where a PE crashes or a way is cut, every PE ends, and no value is wrong. The same
//! of the exchange between experts, which goes on without those that are lost.
//!
//! `HISTORIES` says how many in all, `SEED` runs one again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/common/histories.rs"]
mod many;
#[path = "moe/model.rs"]
mod model;

use many::histories;
use model::{Batch, Routing, Size};
use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::moe::{F32, Fp8E4m3, Moe, MoeMode, Payload, Refusal};
use shmem_collectives::op::Sum;
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

/// The same share for each collective, and that of the exchange between experts.
const SHARE: u64 = 6;
const MOE_SHARE: u64 = 4;

/// One that is cut into pieces: two, and a rest.
const LONG: usize = 70_000;

/// What is drawn for a history, the same on all PEs.
#[derive(Clone, Copy)]
struct Drawn {
    algorithm: Algorithm,
    len: usize,
    root: usize,
}

/// Runs a collective twice in each history, without a fault and with one.
fn everywhere(test: &str, call: impl Fn(&World, &Coll<'_>, Drawn, u32) -> Result<()> + Sync) {
    histories(test, SHARE, |mut history| {
        let (n, random) = (history.pes(), &mut history.random);
        let algorithm = Algorithm::ALL[random.below(Algorithm::ALL.len())];
        let len = if random.below(100) == 0 { LONG } else { [1, 2, 13, 40, 700][random.below(5)] };
        let drawn = Drawn { algorithm, len, root: random.below(n) };
        let scenario = |world: &World| {
            let team = world.team();
            let mut coll = Coll::new(world, &team)?;
            for name in Collective::NAMES {
                // What an algorithm has no plan for is left to the table.
                let _ = coll.selection_mut().force(name, drawn.algorithm.name());
            }
            (0..2).try_for_each(|round| call(world, &coll, drawn, round))
        };
        if random.below(3) > 0 {
            history.run(n, scenario);
        } else {
            let fault = history.fault(n, 500);
            history.run_with(n, fault, scenario);
        }
    });
}

/// What PE `pe` brings as element `i`.
fn value(pe: usize, i: usize, round: u32) -> u32 {
    (pe as u32 + 1) * 100_000 + i as u32 * 3 + round * 7
}

fn sum(n: usize, i: usize, round: u32) -> u32 {
    (0..n).map(|pe| value(pe, i, round)).sum()
}

fn bring(world: &World, len: usize, round: u32) -> Vec<u32> {
    (0..len).map(|i| value(world.me(), i, round)).collect()
}

#[test]
fn all_reduce() {
    everywhere("all_reduce", |world, coll, Drawn { algorithm, len, .. }, round| {
        let (src, dst) = (world.alloc::<u32>(len)?, world.alloc::<u32>(len)?);
        src.sym().copy_from(&bring(world, len, round))?;
        coll.all_reduce(dst.sym(), src.sym(), Sum)?;
        let expected: Vec<u32> = (0..len).map(|i| sum(world.n_pes(), i, round)).collect();
        assert!(dst.sym().to_vec() == expected, "{algorithm} of {len}, round {round}");
        world.free(src)?;
        world.free(dst)
    });
}

#[test]
fn reduce_scatter() {
    everywhere("reduce_scatter", |world, coll, Drawn { algorithm, len, .. }, round| {
        let (me, n) = (world.me(), world.n_pes());
        let len = len.min(LONG / n);
        let (src, dst) = (world.alloc::<u32>(n * len)?, world.alloc::<u32>(len)?);
        src.sym().copy_from(&bring(world, n * len, round))?;
        coll.reduce_scatter(dst.sym(), src.sym(), Sum)?;
        let expected: Vec<u32> = (0..len).map(|i| sum(n, me * len + i, round)).collect();
        assert!(dst.sym().to_vec() == expected, "{algorithm} of {len}, round {round}");
        world.free(src)?;
        world.free(dst)
    });
}

#[test]
fn all_to_all() {
    everywhere("all_to_all", |world, coll, Drawn { algorithm, len, .. }, round| {
        let (me, n) = (world.me(), world.n_pes());
        let len = len.min(LONG / n);
        let (src, dst) = (world.alloc::<u32>(n * len)?, world.alloc::<u32>(n * len)?);
        src.sym().copy_from(&bring(world, n * len, round))?;
        coll.all_to_all(dst.sym(), src.sym())?;
        let from = |pe: usize| (0..len).map(move |i| value(pe, me * len + i, round));
        assert!(dst.sym().to_vec() == (0..n).flat_map(from).collect::<Vec<_>>(), "{algorithm} of {len}, round {round}");
        world.free(src)?;
        world.free(dst)
    });
}

#[test]
fn all_gather() {
    everywhere("all_gather", |world, coll, Drawn { algorithm, len, .. }, round| {
        let n = world.n_pes();
        let len = len.min(LONG / n);
        let (src, dst) = (world.alloc::<u32>(len)?, world.alloc::<u32>(n * len)?);
        src.sym().copy_from(&bring(world, len, round))?;
        coll.all_gather(dst.sym(), src.sym())?;
        let from = |pe: usize| (0..len).map(move |i| value(pe, i, round));
        assert!(dst.sym().to_vec() == (0..n).flat_map(from).collect::<Vec<_>>(), "{algorithm} of {len}, round {round}");
        world.free(src)?;
        world.free(dst)
    });
}

#[test]
fn broadcast() {
    everywhere("broadcast", |world, coll, Drawn { algorithm, len, root }, round| {
        let block = world.alloc::<u32>(len)?;
        block.sym().copy_from(&bring(world, len, round))?;
        coll.broadcast(block.sym(), block.sym(), root)?;
        let expected: Vec<u32> = (0..len).map(|i| value(root, i, round)).collect();
        assert!(block.sym().to_vec() == expected, "{algorithm} of {len} from {root}, round {round}");
        world.free(block)
    });
}

/// What is drawn for an exchange, the same on all PEs.
#[derive(Clone, Copy)]
struct Exchange {
    size: Size,
    mode: MoeMode,
    routing: Routing,
    seed: u64,
}

/// Some rounds; where PEs are lost and left out, sums lack their outputs alone.
fn rounds<P: Payload>(world: &World, payload: P, drawn: Exchange) -> Result<()> {
    let Exchange { size, mode, routing, seed } = drawn;
    let (team, me, n) = (world.team(), world.me(), world.n_pes());
    let Size { experts, max_tokens, hidden, top_k } = size;
    let moe = Moe::builder(world, &team).experts(experts).max_tokens(max_tokens).hidden(hidden).top_k(top_k);
    let mut moe = moe.payload(payload).mode(mode).leave_out_lost().build()?;
    for round in 0..3 {
        let batches: Vec<Batch<P>> = (0..n).map(|pe| size.batch(seed + round, pe, routing)).collect();
        let Batch { tokens, experts, weights } = &batches[me];
        let received = moe.dispatch(tokens, experts, weights)?;
        if received.left_out().is_empty() {
            model::check_rows(&received, &size, &batches)?;
        }
        model::work(&received, hidden)?;
        let missing = model::combine(&mut moe, &size, &batches[me])?;
        let lost = |expert: usize| moe.left_out().contains(&moe.pe_of(expert).unwrap());
        let all = size.choices(&batches[me], lost);
        assert!(missing.iter().all(|choice| all.contains(choice)), "{missing:?} of {all:?}");
    }
    if moe.left_out().is_empty() { moe.free() } else { Ok(()) }
}

#[test]
fn moe() {
    histories("moe", MOE_SHARE, |mut history| {
        let (n, random) = (history.pes(), &mut history.random);
        let (experts, max_tokens) = (1 + random.below(7), 1 + random.below(6));
        let size = Size { experts, max_tokens, hidden: 1 + random.below(40), top_k: 1 + random.below(experts.min(4)) };
        let mode = MoeMode::ALL[random.below(2)];
        let routing = [Routing::Uniform, Routing::Skewed, Routing::Single][random.below(3)];
        let (plain, seed) = (random.below(2) == 0, random.next() >> 8);
        let drawn = Exchange { size, mode, routing, seed };
        let scenario = |world: &World| {
            let outcome = if plain { rounds(world, F32, drawn) } else { rounds(world, Fp8E4m3, drawn) };
            match &outcome {
                // Of two between which a way is cut, one may find that out before the other.
                Err(error) if matches!(Refusal::of(error), Some(Refusal::LeftOut { .. })) => Ok(()),
                _ => outcome,
            }
        };
        if random.below(3) > 0 {
            history.run(n, scenario);
        } else {
            let fault = history.fault(n, 500);
            history.run_with(n, fault, scenario);
        }
    });
}
