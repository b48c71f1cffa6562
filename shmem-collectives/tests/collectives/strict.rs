//! Results that are the same bits: on all PEs always, and in strict order for any algorithm, length and placement.

use half::{bf16, f16};
use shmem::{Elem, Result, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Max, Min, Reduce, Sum};
use shmem_collectives::plan::Hosts;
use shmem_collectives::plans::Algorithm;

use crate::common::kind_of;

/// A team's collectives with all of them by one algorithm.
pub(crate) fn forced<'t>(world: &'t World, team: &'t shmem::Team<'t>, algorithm: Algorithm) -> Result<Coll<'t>> {
    let (mut coll, n) = (Coll::new(world, team)?, team.n_pes());
    for name in shmem_collectives::plan::Collective::NAMES {
        // What an algorithm has no plan for is left to the table.
        let _ = coll.selection_mut().force(name, algorithm.name());
    }
    if algorithm == Algorithm::Hierarchical && n > 2 {
        coll.pretend_hosts(Hosts::new([1, n / 2, n - 1 - n / 2].into_iter().filter(|size| *size > 0)))?;
    }
    Ok(coll)
}

/// Values whose sum depends on the order.
fn awkward(pe: usize, i: usize) -> f32 {
    let bits = (pe as u32).wrapping_mul(2_654_435_761) ^ (i as u32).wrapping_mul(40_503);
    (bits % 2001) as f32 * 1e-3 + if bits.is_multiple_of(7) { 1e6 } else { 0.0 }
        - if bits.is_multiple_of(11) { 1e6 } else { 0.0 }
}

/// I06: the same data alone, or at another place of something longer.
#[test]
fn strict_sums_are_the_same_bits_whatever_they_are_a_part_of() {
    for n in [2, 3, 5, 8] {
        let scenario = |world: &World| -> Result<()> {
            let (team, me) = (world.team(), world.me());
            let (src, dst) = (world.alloc::<f32>(70_000)?, world.alloc::<f32>(70_000)?);
            let expected: Vec<u32> =
                (0..100).map(|i| (1..n).fold(awkward(0, i), |sum, pe| sum + awkward(pe, i)).to_bits()).collect();
            for algorithm in Algorithm::ALL {
                let mut coll = forced(world, &team, algorithm)?;
                coll.set_strict(true);
                for (len, at) in [(100, 0), (511, 300), (513, 7), (3001, 2900), (70_000, 69_900)] {
                    (0..len).try_for_each(|i| src.sym().write(i, awkward(me + 1000, i)))?;
                    (0..100).try_for_each(|i| src.sym().write(at + i, awkward(me, i)))?;
                    let (source, target) = (src.sym().slice(..len)?, dst.sym().slice(..len)?);
                    let bits = |all: SymSlice<'_, f32>| -> Result<Vec<u32>> {
                        Ok(all.slice(at..at + 100)?.to_vec().into_iter().map(f32::to_bits).collect())
                    };
                    coll.all_reduce(target, source, Sum)?;
                    assert_eq!(bits(target)?, expected, "{algorithm}, n = {n}, {at} of {len}");
                    coll.reduce(target, source, Sum, n - 1)?;
                    assert!(me < n - 1 || bits(target)? == expected, "reduce: {algorithm}, n = {n}, {at} of {len}");
                    coll.inclusive_scan(target, source, Sum)?;
                    assert!(me < n - 1 || bits(target)? == expected, "scan: {algorithm}, n = {n}, {at} of {len}");
                    // All to the last PE, and with the first element to the others.
                    let mut counts = vec![0; n];
                    (counts[0], counts[n - 1]) = (at, len - at);
                    let mine = dst.sym().slice(..counts[me])?;
                    coll.reduce_scatter_v(mine, source, &counts, Sum)?;
                    let same = me < n - 1
                        || mine.slice(..100)?.to_vec().into_iter().map(f32::to_bits).eq(expected.iter().copied());
                    assert!(same, "by counts: {algorithm}, n = {n}, {at} of {len}");
                }
            }
            world.free(src)?;
            world.free(dst)
        };
        shmem::local(n, scenario).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn strict_order_on_some_pes_alone_is_a_mismatch() {
    shmem::local(3, |world| {
        let team = world.team();
        let mut coll = Coll::new(world, &team)?;
        let object = world.alloc_zeroed::<f32>(8)?;
        coll.set_strict(world.me() == 1);
        let result = coll.all_reduce(object.sym(), object.sym(), Sum);
        assert!(matches!(kind_of(&result), shmem::ErrorKind::Mismatch { report } if report.contains("strict")));
        coll.set_strict(true);
        coll.all_reduce(object.sym(), object.sym(), Sum)
    })
    .unwrap();
}

/// I01: NaN at every PE and position, by every algorithm.
fn nan_everywhere<T: Elem + PartialEq, R: Reduce<T>>(world: &World, op: R, number: T, nan: T) -> Result<()> {
    let (team, me, n) = (world.team(), world.me(), world.n_pes());
    let all: Vec<Algorithm> =
        Algorithm::ALL.into_iter().filter(|one| one.plans(shmem_collectives::plan::Collective::AllReduce)).collect();
    for algorithm in all {
        let coll = forced(world, &team, algorithm)?;
        for len in [3, 2000] {
            let (src, dst) = (world.alloc::<T>(len)?, world.alloc::<T>(len * n)?);
            for holder in 0..n {
                src.sym().fill(number);
                if me == holder {
                    [0, len / 2, len - 1].into_iter().try_for_each(|i| src.sym().write(i, nan))?;
                }
                let target = dst.sym().slice(..len)?;
                coll.all_reduce(target, src.sym(), op)?;
                for i in 0..len {
                    let is_nan = target.read(i)? != target.read(i)?;
                    assert_eq!(is_nan, [0, len / 2, len - 1].contains(&i), "{algorithm}, n = {n}, NaN of PE {holder}");
                }
                let mine = target.to_vec();
                coll.all_gather(dst.sym(), {
                    src.sym().copy_from(&mine)?;
                    src.sym()
                })?;
                let bytes = dst.sym().cast::<u8>()?.to_vec();
                assert!(bytes.chunks(len * size_of::<T>()).all(|one| one == bytemuck::cast_slice::<T, u8>(&mine)));
            }
            world.free(src)?;
            world.free(dst)?;
        }
    }
    Ok(())
}

#[test]
fn nan_wins_whatever_pe_holds_it() {
    for n in [2, 3, 5, 7] {
        shmem::local(n, |world| {
            nan_everywhere(world, Max, f16::ONE, f16::NAN)?;
            nan_everywhere(world, Min, bf16::NEG_ONE, -bf16::NAN)?;
            nan_everywhere(world, Max, 5_f32, f32::from_bits(0xffc0_1234))?;
            nan_everywhere(world, Min, f64::NEG_INFINITY, f64::NAN)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// I03 and I05: one rounding, and no infinity on the way.
#[test]
fn bf16_is_summed_in_f32_and_rounded_once() {
    shmem::local(8, |world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let (src, dst) = (world.alloc::<bf16>(3000)?, world.alloc::<bf16>(3000)?);
        let value = |pe: usize, i: usize| bf16::from_f32(1.0 + ((pe * 5 + i) % 16) as f32 / 128.0);
        (0..3000).try_for_each(|i| src.sym().write(i, value(me, i)))?;
        for algorithm in Algorithm::ALL {
            let coll = forced(world, &team, algorithm)?;
            for len in [7, 3000] {
                let (source, target) = (src.sym().slice(..len)?, dst.sym().slice(..len)?);
                coll.all_reduce(target, source, Sum)?;
                for (i, sum) in target.to_vec().into_iter().enumerate() {
                    let exact = (0..n).map(|pe| value(pe, i).to_f64()).sum();
                    assert_eq!(sum, bf16::from_f64(exact), "{algorithm}, element {i} of {len}");
                }
            }
        }
        // The largest numbers cancel, whoever has them.
        for turn in 0..3 {
            let mine = [3e38, -3e38, 1.0].get((me + turn) % n).copied().unwrap_or(0.0);
            src.sym().fill(bf16::from_f32(mine));
            let coll = Coll::new(world, &team)?;
            coll.reduce_scatter(dst.sym().slice(..3000 / n)?, src.sym(), Sum)?;
            assert!(dst.sym().read(0)?.is_finite());
        }
        Ok(())
    })
    .unwrap();
}
