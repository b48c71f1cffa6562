//! Collectives in many histories (see `shmem::simulate`): whatever the order in which PEs get on and transfers arrive, every
//! algorithm gives every PE the right values; where a PE crashes or a way is cut, every PE ends, and no value is wrong.
//!
//! `HISTORIES` says how many in all, `SEED` runs one again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/common/histories.rs"]
mod many;

use many::histories;
use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::op::Sum;
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

/// The same share for each.
const SHARE: u64 = 6;

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
