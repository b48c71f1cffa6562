//! Many calls in a row with PEs that come early or late, and several teams at once.

use std::thread;
use std::time::Duration;

use shmem::{Result, SymSlice, World};
use shmem_collectives::op::Sum;
use shmem_collectives::plans::Algorithm;
use shmem_collectives::{Coll, Pending};

use crate::common::{Random, everywhere, scaled, text_of};
use crate::strict::forced;

/// Holds this PE up, sometimes: what is tested is that nobody relies on the others' pace.
fn dawdle(random: &mut Random) {
    match random.below(40) {
        0 => thread::sleep(Duration::from_micros(200)),
        1..5 => (0..random.below(20)).for_each(|_| thread::yield_now()),
        _ => {}
    }
}

/// Calls of mixed kinds and lengths by the team of all PEs, of which every result is looked at.
pub(crate) fn mixed(world: &World, coll: &Coll<'_>, calls: usize) -> Result<()> {
    let n = world.n_pes();
    let (src, dst) = (world.alloc::<u64>(n * 300)?, world.alloc::<u64>(n * 300)?);
    mixed_in(world, coll, calls, (src.sym(), dst.sym()))?;
    world.free(src)?;
    world.free(dst)
}

/// [`mixed`], by any team, in memory that is its own.
fn mixed_in(
    world: &World,
    coll: &Coll<'_>,
    calls: usize,
    (src, dst): (SymSlice<'_, u64>, SymSlice<'_, u64>),
) -> Result<()> {
    let team = coll.team();
    let (me, n) = (team.me(), team.n_pes());
    let (mut own, mut common) = (Random(world.me() as u64 + 17), Random(n as u64));
    for call in 0..calls as u64 {
        dawdle(&mut own);
        let (kind, root) = (common.below(7), common.below(n));
        let len = [1, 3, 40, 255, 300][common.below(5)];
        let value = |pe: usize, i: usize| call * 1000 + (pe * 300 + i) as u64;
        (0..n * len).try_for_each(|i| src.write(i, value(me, i)))?;
        let (all, block) = (src.slice(..n * len)?, src.slice(..len)?);
        let (many, one) = (dst.slice(..n * len)?, dst.slice(..len)?);
        let i = common.below(len);
        let sum = |i: usize| (0..n).map(|pe| value(pe, i)).sum::<u64>();
        let (given, expected) = match kind {
            0 => {
                coll.all_reduce(one, block, Sum)?;
                (one.read(i)?, sum(i))
            }
            1 => {
                coll.broadcast(one, block, root)?;
                (one.read(i)?, value(root, i))
            }
            2 => {
                coll.all_gather(many, block)?;
                (many.read(root * len + i)?, value(root, i))
            }
            3 => {
                coll.all_to_all(many, all)?;
                (many.read(root * len + i)?, value(root, me * len + i))
            }
            4 => {
                coll.reduce_scatter(one, all, Sum)?;
                (one.read(i)?, sum(me * len + i))
            }
            5 => {
                coll.all_gather_v(many, src.slice(..if me == root { len } else { 0 })?)?;
                (many.read(i)?, value(root, i))
            }
            _ => {
                let pending = coll.start_all_reduce(one, block, Sum);
                coll.start_scatter(one, all, root).wait()?;
                pending.wait()?;
                (one.read(i)?, value(root, me * len + i))
            }
        };
        assert_eq!(given, expected, "call {call} of kind {kind}, {len} elements, root {root}, PE {me} of {n}");
    }
    Ok(())
}

#[test]
fn a_thousand_calls_in_a_row_with_pes_out_of_step() {
    for n in [2, 3, 4, 8] {
        shmem::local(n, |world| {
            let team = world.team();
            mixed(world, &Coll::new(world, &team)?, scaled(world, 1000).max(300))
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn every_algorithm_in_a_row_with_pes_out_of_step() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let team = world.team();
            Algorithm::ALL.into_iter().try_for_each(|one| mixed(world, &forced(world, &team, one)?, 60))
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn teams_at_the_same_time_each_with_collectives_of_its_own() {
    for n in [4, 5, 8] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let half = team.split_colour(Some(me as u64 % 2), 0)?.expect("every PE has a colour");
            let (row, column) = team.split_2d(2)?;
            let teams = [&half, &row, &column];
            let everybody = Coll::new(world, &team)?;
            let colls = teams.into_iter().map(|team| Coll::new(world, team)).collect::<Result<Vec<_>>>()?;
            let src = world.alloc::<u64>(1000)?;
            let targets = (0..4).map(|_| world.alloc::<u64>(1000)).collect::<Result<Vec<_>>>()?;
            let mut random = Random(me as u64);
            for round in 0..60_u64 {
                dawdle(&mut random);
                src.sym().fill(me as u64 + round);
                // All under way at once, waited for in another order than they were started in.
                let all: Vec<&Coll<'_>> = std::iter::once(&everybody).chain(&colls).collect();
                let pending: Vec<Pending<'_, '_>> = all
                    .iter()
                    .zip(&targets)
                    .map(|(coll, target)| coll.start_all_reduce(target.sym(), src.sym(), Sum))
                    .collect();
                let mut waiting: Vec<_> = pending.into_iter().rev().collect();
                if round % 2 == 0 {
                    waiting.reverse();
                }
                while !waiting.is_empty() {
                    let mut still = Vec::new();
                    for mut one in waiting {
                        if !one.test()? {
                            still.push(one);
                        }
                    }
                    waiting = still;
                    thread::yield_now();
                }
                for (coll, target) in all.iter().zip(&targets) {
                    let sum = coll.team().members().into_iter().map(|pe| pe as u64 + round).sum::<u64>();
                    assert_eq!(target.sym().to_vec(), vec![sum; 1000], "round {round}, PE {me} of {n}");
                }
                colls[round as usize % 3].all_reduce(targets[0].sym(), targets[1].sym(), Sum)?;
                // The others of this team may still read what this PE writes in the next round of another team.
                everybody.barrier()?;
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// Teams that overlap, each at its own pace with calls and an algorithm of its own: nobody waits for a team that it is
/// not in.
#[test]
fn overlapping_teams_each_at_its_own_pace() {
    let algorithms = [Algorithm::Small, Algorithm::Ring, Algorithm::Halving, Algorithm::Bruck, Algorithm::Direct];
    for n in [4, 6, 9] {
        shmem::local(n, |world| {
            let (all, me) = (world.team(), world.me());
            let half = all.split_colour(Some(u64::from(me < n / 2)), 0)?.expect("every PE has a colour");
            let (row, column) = all.split_2d(3)?;
            // Backwards, and not with everybody.
            let most = all.split_strided(n - 1, -1, n - 1)?;
            let teams: Vec<&shmem::Team<'_>> = [&half, &row, &column, &all].into_iter().chain(&most).collect();
            let objects: Vec<_> = (0..10).map(|_| world.alloc::<u64>(n * 300)).collect::<Result<_>>()?;
            let colls: Vec<_> =
                teams.iter().zip(algorithms).map(|(team, one)| forced(world, team, one)).collect::<Result<_>>()?;
            for turn in 0..2 {
                for (i, coll) in colls.iter().enumerate() {
                    // The halves make another number of calls each.
                    let calls = if i == 0 { 20 + 30 * half.members()[0].min(1) } else { 25 + turn };
                    mixed_in(world, coll, calls, (objects[2 * i].sym(), objects[2 * i + 1].sym()))?;
                }
            }
            drop(colls);
            world.barrier_all()?;
            objects.into_iter().try_for_each(|object| world.free(object))
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// Started barriers take their turn between other calls; what was put before one is there after it.
fn barriers(world: &World) -> Result<()> {
    let (team, ctx, me, n) = (world.team(), world.ctx::<shmem::Shared>(), world.me(), world.n_pes());
    let coll = Coll::new(world, &team)?;
    let (inbox, sum) = (world.alloc_zeroed::<u64>(n)?, world.alloc_zeroed::<u64>(1)?);
    let mut random = Random(me as u64 + 3);
    for round in 1..40_u64 {
        dawdle(&mut random);
        (0..n).try_for_each(|pe| ctx.put(inbox.sym().at(me)?, &[round * 100 + me as u64], pe))?;
        let mut first = coll.start_barrier();
        let reduced = coll.start_all_reduce(sum.sym(), inbox.sym().at(me)?, Sum);
        let last = coll.start_sync();
        dawdle(&mut random);
        while !first.test()? {
            thread::yield_now();
        }
        for pe in 0..n {
            assert_eq!(inbox.sym().read(pe)?, round * 100 + pe as u64, "round {round}, PE {me} of {n}");
        }
        if round % 2 == 0 {
            last.wait()?;
            reduced.wait()?;
        } else {
            // A blocking call ends what was started; some call the same barrier blocking, and some start it.
            drop((reduced, last));
            if me % 2 == 0 { coll.sync()? } else { coll.start_sync().wait()? }
        }
        assert_eq!(sum.sym().read(0)?, (0..n as u64).map(|pe| round * 100 + pe).sum::<u64>());
        // Nobody puts again before all have read.
        if me % 2 == 0 { coll.start_barrier().wait()? } else { coll.barrier()? }
    }
    world.free(inbox)?;
    world.free(sum)
}

#[test]
fn barriers_are_started_and_waited_for_like_other_calls() {
    everywhere(barriers);
}

#[test]
fn a_barrier_on_some_pes_and_a_sync_on_others_is_a_mismatch() {
    for n in [2, 3] {
        shmem::local(n, |world| {
            let team = world.team();
            let coll = Coll::new(world, &team)?;
            for started in [false, true] {
                let error = match (world.me(), started) {
                    (1, false) => coll.sync(),
                    (1, true) => coll.start_sync().wait(),
                    (_, false) => coll.barrier(),
                    (_, true) => coll.start_barrier().wait(),
                };
                let text = text_of(error);
                assert!(text.contains("PE 1 calls sync #") && text.contains("barrier #"), "{text}");
                coll.barrier()?;
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn started_collectives_end_in_order_and_mismatches_are_told_to_all() {
    for n in [1, 2, 3, 5] {
        shmem::local(n, |world| {
            let team = world.team();
            let coll = Coll::new(world, &team)?;
            let (a, b) = (world.alloc::<f32>(100)?, world.alloc::<f32>(100 * n)?);
            a.sym().fill(world.me() as f32);
            let sums: Vec<_> = (0..10).map(|_| world.alloc::<f32>(100)).collect::<Result<_>>()?;
            let mut pending: Vec<Pending<'_, '_>> =
                sums.iter().map(|sum| coll.start_all_reduce(sum.sym(), a.sym(), Sum)).collect();
            let gathered = coll.start_all_gather(b.sym(), a.sym());
            while !pending[9].test()? {}
            gathered.wait()?;
            for (sum, pending) in sums.iter().zip(pending) {
                pending.wait()?;
                assert_eq!(sum.sym().to_vec(), vec![(n * (n - 1) / 2) as f32; 100]);
            }
            assert_eq!(b.sym().to_vec(), (0..100 * n).map(|i| (i / 100) as f32).collect::<Vec<_>>());
            if n > 1 {
                let odd = if world.me() == n - 1 { 99 } else { 100 };
                let part = a.sym().slice(..odd)?;
                let error = coll.all_reduce(sums[0].sym().slice(..odd)?, part, Sum).unwrap_err().to_string();
                assert!(error.contains("f32 × 99") && error.contains("f32 × 100"), "{error}");
                let error = coll.all_reduce(sums[0].sym().slice(..odd)?, a.sym(), Sum);
                assert!(error.is_err());
                world.barrier_all()?;
                coll.all_reduce(sums[0].sym(), a.sym(), Sum)?;
                assert_eq!(sums[0].sym().to_vec(), vec![(n * (n - 1) / 2) as f32; 100]);
            }
            Ok(())
        })
        .unwrap();
    }
}
