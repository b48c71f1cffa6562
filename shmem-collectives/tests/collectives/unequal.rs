//! Blocks of unequal lengths, strides, and sources of any memory, against serial models, with canaries.

use shmem::{ErrorKind, Result, World};
use shmem_collectives::op::{Avg, Sum};
use shmem_collectives::plans::Algorithm;
use shmem_collectives::{Coll, Pending};

use crate::common::{job, text_of};

const CANARY: f64 = -77.0;

fn input(pe: usize, i: usize) -> f64 {
    ((pe * 31 + i * 7) % 101) as f64
}

/// The counts of a round: zeros, ones, one long.
fn counts(n: usize, round: usize) -> Vec<usize> {
    (0..n)
        .map(|pe| match (pe + round) % 4 {
            0 => 0,
            1 => 1 + pe,
            2 => 300 + round,
            _ => 700 * (round % 3),
        })
        .collect()
}

fn gathers(world: &World, coll: &Coll<'_>) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let dst = world.alloc::<f64>(1500 * n + 8)?;
    let src = world.alloc::<f64>(1500)?;
    for round in 0..8 {
        let counts = counts(n, round);
        let (total, start): (usize, usize) = (counts.iter().sum(), counts[..me].iter().sum());
        let expected: Vec<f64> = (0..n).flat_map(|pe| (0..counts[pe]).map(move |i| input(pe, i))).collect();
        let (in_place, started) = (round % 2 == 1, round % 4 > 1);
        dst.sym().fill(CANARY);
        // What is behind the blocks is left alone.
        let target = dst.sym().slice(4..4 + total + round % 3)?;
        let own = if in_place { target.slice(start..start + counts[me])? } else { src.sym().slice(..counts[me])? };
        own.copy_from(&(0..counts[me]).map(|i| input(me, i)).collect::<Vec<_>>())?;
        if started {
            coll.start_all_gather_v(target, own).wait()?;
        } else {
            coll.all_gather_v(target, own)?;
        }
        let all = dst.sym().to_vec();
        assert_eq!(all[4..4 + total], expected, "n = {n}, round {round}, PE {me}");
        assert!(all[..4].iter().chain(&all[4 + total..]).all(|value| *value == CANARY), "a canary is gone");
    }
    world.free(src)?;
    world.free(dst)
}

fn scatters(world: &World, coll: &Coll<'_>) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let src = world.alloc::<f64>(1500 * n)?;
    let dst = world.alloc::<f64>(1500)?;
    for round in 0..8 {
        let counts = counts(n, round);
        let (total, start): (usize, usize) = (counts.iter().sum(), counts[..me].iter().sum());
        let source = src.sym().slice(..total)?;
        source.copy_from(&(0..total).map(|i| input(me, i)).collect::<Vec<_>>())?;
        dst.sym().fill(CANARY);
        let in_place = round % 2 == 1;
        let mine = start..start + counts[me];
        let target = if in_place { source.slice(mine.clone())? } else { dst.sym().slice(4..4 + counts[me])? };
        let sum = |i: usize| (0..n).map(|pe| input(pe, i)).sum::<f64>();
        let expected: Vec<f64> = match round {
            0..4 => {
                coll.reduce_scatter_v(target, source, &counts, Sum)?;
                mine.map(sum).collect()
            }
            _ => {
                coll.start_reduce_scatter_v(target, source, &counts, Avg).wait()?;
                mine.map(|i| sum(i) / n as f64).collect()
            }
        };
        assert_eq!(target.to_vec(), expected, "n = {n}, round {round}, PE {me}");
        let all = dst.sym().to_vec();
        let behind = if in_place { 4 } else { 4 + counts[me] };
        assert!(all[..4].iter().chain(&all[behind..]).all(|value| *value == CANARY), "a canary is gone");
    }
    world.free(src)?;
    world.free(dst)
}

/// What PE `from` sends to PE `to`.
fn sent(from: usize, to: usize, round: usize) -> usize {
    match (from * 3 + to + round) % 5 {
        0 | 3 => 0,
        1 => 1,
        2 => 200 + from,
        _ => 33 * to,
    }
}

fn exchanges(world: &World, coll: &Coll<'_>) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    // One behind the other, with a gap between, and on every PE elsewhere.
    let displs = |counts: &[usize]| -> Vec<usize> {
        (0..counts.len()).map(|pe| 2 + me + counts[..pe].iter().map(|count| count + 1).sum::<usize>()).collect()
    };
    let src = world.alloc::<f64>(400 * n + 64)?;
    let dst = world.alloc::<f64>(400 * n + 64)?;
    for round in 0..6 {
        // In place, what goes to a PE is as long as what comes from it.
        let in_place = round % 2 == 1;
        let way = |from: usize, to: usize| {
            if in_place { sent(from.min(to), from.max(to), round) } else { sent(from, to, round) }
        };
        let to: Vec<usize> = (0..n).map(|pe| way(me, pe)).collect();
        let from: Vec<usize> = (0..n).map(|pe| way(pe, me)).collect();
        let (to_displs, from_displs) = (displs(&to), displs(&from));
        dst.sym().fill(CANARY);
        src.sym().fill(CANARY);
        let (source, target) = if in_place { (dst.sym(), dst.sym()) } else { (src.sym(), dst.sym()) };
        for (pe, (count, displ)) in to.iter().zip(&to_displs).enumerate() {
            let block = (0..*count).map(|i| input(me * n + pe, i)).collect::<Vec<_>>();
            source.slice(*displ..displ + count)?.copy_from(&block)?;
        }
        let mut expected = vec![CANARY; dst.sym().len()];
        for (pe, (count, displ)) in from.iter().zip(&from_displs).enumerate() {
            (0..*count).for_each(|i| expected[displ + i] = input(pe * n + me, i));
        }
        // Only as much of the buffers as this PE needs: they differ in length.
        let end = |displs: &[usize], counts: &[usize]| displs[n - 1] + counts[n - 1];
        let (source, target) = match in_place {
            true => (source, target),
            false => (source.slice(..end(&to_displs, &to))?, target.slice(..end(&from_displs, &from))?),
        };
        if round > 3 {
            coll.start_all_to_all_v(target, &from, &from_displs, source, &to, &to_displs).wait()?;
        } else {
            coll.all_to_all_v(target, &from, &from_displs, source, &to, &to_displs)?;
        }
        assert_eq!(dst.sym().to_vec(), expected, "n = {n}, round {round}, PE {me}");
    }
    world.free(src)?;
    world.free(dst)
}

fn strides(world: &World, coll: &Coll<'_>) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let (src, dst) = (world.alloc::<f64>(n * 60)?, world.alloc::<f64>(n * 60)?);
    for (round, (to, from, len)) in [(1, 1, 20), (2, 3, 20), (3, 1, 7), (1, 2, 1), (4, 4, 0)].into_iter().enumerate() {
        dst.sym().fill(CANARY);
        (0..n * 60).try_for_each(|i| src.sym().write(i, input(me, i)))?;
        if round % 2 == 1 {
            coll.start_all_to_all_strided(dst.sym(), to, src.sym(), from, len).wait()?;
        } else {
            coll.all_to_all_strided(dst.sym(), to, src.sym(), from, len)?;
        }
        let mut expected = vec![CANARY; n * 60];
        for pe in 0..n {
            (0..len).for_each(|k| expected[(pe * len + k) * to] = input(pe, (me * len + k) * from));
        }
        assert_eq!(dst.sym().to_vec(), expected, "n = {n}, strides {to} and {from}, PE {me}");
    }
    // Within one buffer: from the even elements to the odd ones.
    (0..n * 60).try_for_each(|i| src.sym().write(i, input(me, i)))?;
    coll.all_to_all_strided(src.sym().slice(1..)?, 2, src.sym(), 2, 30)?;
    let expected = |i: usize| match (i % 2, i / 2) {
        (0, _) => input(me, i),
        (_, i) => input(i / 30, (me * 30 + i % 30) * 2),
    };
    assert_eq!(src.sym().to_vec(), (0..n * 60).map(expected).collect::<Vec<_>>());
    world.free(src)?;
    world.free(dst)
}

fn anywhere(world: &World, coll: &Coll<'_>) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let dst = world.alloc::<f64>(50 * n)?;
    let own: Vec<f64> = (0..50 * n).map(|i| input(me, i)).collect();
    let block = dst.sym().slice(..50)?;
    coll.all_reduce_from(block, &own[..50], Sum)?;
    assert_eq!(block.to_vec(), (0..50).map(|i| (0..n).map(|pe| input(pe, i)).sum()).collect::<Vec<f64>>());
    coll.inclusive_scan_from(block, &own[..50], Sum)?;
    assert_eq!(block.to_vec(), (0..50).map(|i| (0..=me).map(|pe| input(pe, i)).sum()).collect::<Vec<f64>>());
    coll.broadcast_from(block, if me == n - 1 { &own[..50] } else { &[] }, n - 1)?;
    assert_eq!(block.to_vec(), (0..50).map(|i| input(n - 1, i)).collect::<Vec<_>>());
    coll.all_gather_from(dst.sym(), &own[..50])?;
    assert_eq!(dst.sym().to_vec(), (0..50 * n).map(|i| input(i / 50, i % 50)).collect::<Vec<_>>());
    coll.all_to_all_from(dst.sym(), &own)?;
    assert_eq!(dst.sym().to_vec(), (0..50 * n).map(|i| input(i / 50, me * 50 + i % 50)).collect::<Vec<_>>());
    let result = coll.all_reduce_from(block, &own[..50 - usize::from(me == 0)], Sum);
    let text = text_of(result);
    assert!(text.contains("49 elements were given") || text.contains("50 elements were given"), "{text}");
    world.free(dst)
}

pub(crate) fn all(world: &World) -> Result<()> {
    let team = world.team();
    let choices = [Algorithm::Small, Algorithm::Direct, Algorithm::Ring, Algorithm::Halving, Algorithm::Pairwise];
    for algorithm in std::iter::once(None).chain(choices.map(Some)) {
        let mut coll = Coll::new(world, &team)?;
        for name in ["allgather", "reduce_scatter", "alltoall"] {
            if let Some(algorithm) =
                algorithm.filter(|algorithm| (*algorithm == Algorithm::Pairwise) == (name == "alltoall"))
            {
                // What it has no plan for is left to others.
                let _ = coll.selection_mut().force(name, algorithm.name());
            }
        }
        gathers(world, &coll)?;
        scatters(world, &coll)?;
        exchanges(world, &coll)?;
        strides(world, &coll)?;
        anywhere(world, &coll)?;
    }
    Ok(())
}

#[test]
fn unequal_blocks_and_strides_match_the_serial_model() {
    for n in (1..=9).chain([16]) {
        shmem::local(n, all).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A10: every pair of strides; what lies between the elements stays.
#[test]
fn strides_of_source_and_target() {
    shmem::local(3, |world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let coll = Coll::new(world, &team)?;
        let (src, dst) = (world.alloc::<f64>(n * 20)?, world.alloc::<f64>(n * 20)?);
        for (to, from, len) in (1..5).flat_map(|to| (1..5).flat_map(move |from| (1..6).map(move |len| (to, from, len))))
        {
            dst.sym().fill(CANARY);
            (0..n * 20).try_for_each(|i| src.sym().write(i, input(me, i)))?;
            coll.all_to_all_strided(dst.sym(), to, src.sym(), from, len)?;
            let mut expected = vec![CANARY; n * 20];
            for (pe, k) in (0..n).flat_map(|pe| (0..len).map(move |k| (pe, k))) {
                expected[(pe * len + k) * to] = input(pe, (me * len + k) * from);
            }
            assert_eq!(dst.sym().to_vec(), expected, "{len} elements, strides {to} and {from}, PE {me}");
        }
        world.free(src)?;
        world.free(dst)
    })
    .unwrap();
}

/// A11: nothing, hardly anything and much, from any PE.
#[test]
fn collects_of_very_different_lengths() {
    shmem::local(4, |world| {
        let (team, me) = (world.team(), world.me());
        let (src, dst) = (world.alloc::<f64>(1000)?, world.alloc::<f64>(1010)?);
        (0..1000).try_for_each(|i| src.sym().write(i, input(me, i)))?;
        for algorithm in [Algorithm::Small, Algorithm::Direct, Algorithm::Ring] {
            let coll = crate::strict::forced(world, &team, algorithm)?;
            for (a, b, c) in (0..4).flat_map(|a| (0..4).flat_map(move |b| (0..4).map(move |c| (a, b, c)))) {
                let d = 6_usize.wrapping_sub(a + b + c);
                let order = [a, b, c, d];
                if (0..4).all(|i| order.contains(&i)) {
                    let counts = order.map(|i| [0, 5, 1, 1000][i]);
                    dst.sym().fill(CANARY);
                    coll.all_gather_v(dst.sym(), src.sym().slice(..counts[me])?)?;
                    let mut expected: Vec<f64> =
                        (0..4).flat_map(|pe| (0..counts[pe]).map(move |i| input(pe, i))).collect();
                    expected.resize(1010, CANARY);
                    assert_eq!(dst.sym().to_vec(), expected, "{counts:?} by {algorithm}, PE {me}");
                }
            }
        }
        world.free(src)?;
        world.free(dst)
    })
    .unwrap();
}

#[test]
fn counts_that_differ_between_the_two_sides_are_told_to_all() {
    for n in [2, 3, 5] {
        for wrong in 0..n {
            shmem::local(n, |world| {
                let (team, me) = (world.team(), world.me());
                let coll = Coll::new(world, &team)?;
                let (src, dst) = (world.alloc::<u32>(10 * n)?, world.alloc::<u32>(10 * n)?);
                let displs: Vec<usize> = (0..n).map(|pe| pe * 10).collect();
                let to: Vec<usize> = vec![4; n];
                let other = (wrong + 1) % n;
                let from: Vec<usize> = (0..n).map(|pe| if (me, pe) == (wrong, other) { 5 } else { 4 }).collect();
                let call = || coll.all_to_all_v(dst.sym(), &from, &displs, src.sym(), &to, &displs);
                let error = call().unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Mismatch { .. }), "{error}");
                let text = format!("PE {other} sends 4 to PE {wrong}, which expects 5");
                assert!(error.to_string().contains(&text), "PE {me} of {n}: {error}");
                let from = to.clone();
                coll.all_to_all_v(dst.sym(), &from, &displs, src.sym(), &to, &displs)
            })
            .unwrap_or_else(|error| panic!("n = {n}: {error}"));
        }
    }
}

#[test]
fn unequal_calls_are_started_with_others_and_end_in_order() {
    for n in [1, 3, 4] {
        let run = |world: &World| -> Result<()> {
            let (team, me) = (world.team(), world.me());
            let coll = Coll::new(world, &team)?;
            let src = world.alloc::<u64>(n)?;
            src.sym().fill(me as u64 + 1);
            let targets: Vec<_> = (0..12).map(|_| world.alloc::<u64>(n * n)).collect::<Result<_>>()?;
            let own = src.sym().slice(..me)?;
            let mut pending: Vec<Pending<'_, '_>> = Vec::new();
            for (i, target) in targets.iter().enumerate() {
                pending.push(match i % 3 {
                    0 => coll.start_all_gather_v(target.sym(), own),
                    1 => coll.start_all_reduce(target.sym().slice(..n)?, src.sym(), Sum),
                    _ => coll.start_all_to_all_strided(target.sym(), n, src.sym(), 1, 1),
                });
            }
            // A wrong call stands in the queue like any other.
            let wrong = coll.start_all_reduce(targets[0].sym(), own, Sum);
            for pending in pending {
                pending.wait()?;
            }
            assert!(text_of(wrong.wait()).contains("target"));
            for (i, target) in targets.iter().enumerate() {
                match i % 3 {
                    0 => {
                        let expected: Vec<u64> = (0..n).flat_map(|pe| (0..pe).map(move |_| pe as u64 + 1)).collect();
                        assert_eq!(target.sym().slice(..expected.len())?.to_vec(), expected);
                    }
                    1 => assert_eq!(target.sym().read(0)?, (n * (n + 1) / 2) as u64),
                    _ => assert!((0..n).all(|pe| target.sym().read(pe * n).unwrap() == pe as u64 + 1)),
                }
            }
            Ok(())
        };
        for result in job(n, |builder| builder, run) {
            result.unwrap_or_else(|error| panic!("n = {n}: {error}"));
        }
    }
}
