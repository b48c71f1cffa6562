//! What users of other libraries have met in collectives, each as the report has it.

use std::time::{Duration, Instant};

use shmem::{Elem, ErrorKind, Result, SymSlice, Team, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{And, Sum};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

use crate::common::{Random, kind_of, scaled, text_of};
use crate::strict::forced;

/// Algorithms that have a plan for a collective.
fn able(what: Collective) -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(move |algorithm| algorithm.plans(what))
}

/// Every team that a stride makes of `n` PEs.
fn strided(n: usize) -> impl Iterator<Item = (usize, isize, usize)> {
    let reaches = move |start: usize, stride: isize, size: usize| {
        (0..n as isize).contains(&(start as isize + (size as isize - 1) * stride))
    };
    let all = (0..n)
        .flat_map(move |start| (-2..4_isize).flat_map(move |stride| (2..=n).map(move |size| (start, stride, size))));
    all.filter(move |(start, stride, size)| *stride != 0 && reaches(*start, *stride, *size))
}

/// A sum and a bitwise and over a team, several times.
fn reductions(
    world: &World,
    team: &Team<'_>,
    algorithm: Algorithm,
    (src, dst): (SymSlice<'_, u32>, SymSlice<'_, u32>),
) -> Result<()> {
    let (coll, members) = (forced(world, team, algorithm)?, team.members());
    for round in 0..8_u32 {
        let len = 1 + round as usize * 5 % 16;
        let (source, target) = (src.slice(..len)?, dst.slice(..len)?);
        source.fill(round + (1 << world.me()));
        coll.all_reduce(target, source, Sum)?;
        let sum = members.iter().map(|pe| round + (1 << pe)).sum::<u32>();
        assert_eq!(target.to_vec(), vec![sum; len], "sum over {members:?} by {algorithm}, round {round}");
        source.fill(!(1 << world.me()));
        coll.reduce(target, source, And, team.n_pes() - 1)?;
        let and = members.iter().fold(u32::MAX, |and, pe| and & !(1 << pe));
        assert!(
            team.me() < team.n_pes() - 1 || target.to_vec() == vec![and; len],
            "and over {members:?} by {algorithm}"
        );
    }
    Ok(())
}

/// A01: every team that can be split, every algorithm, the same calls again and again.
#[test]
fn reductions_over_every_strided_team() {
    for n in [3, 4, 6] {
        shmem::local(n, |world| {
            let all = world.team();
            let (src, dst) = (world.alloc::<u32>(16)?, world.alloc::<u32>(16)?);
            for (start, stride, size) in strided(n) {
                if let Some(team) = all.split_strided(start, stride, size)? {
                    able(Collective::AllReduce)
                        .try_for_each(|one| reductions(world, &team, one, (src.sym(), dst.sym())))?;
                    team.destroy()?;
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A02: each PE has a bit of its own, so that whoever is missing is named by it; every size around those at which
/// anything changes.
#[test]
fn no_contribution_is_missing_at_any_size() {
    for n in [3, 5, 7] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let coll = Coll::new(world, &team)?;
            let (src, dst) = (world.alloc::<u32>(1024)?, world.alloc::<u32>(1024)?);
            src.sym().fill(1 << me);
            for len in 1..=1024 {
                let target = dst.sym().slice(..len)?;
                target.fill(0);
                coll.all_reduce(target, src.sym().slice(..len)?, Sum)?;
                let missing = target.to_vec().into_iter().find(|sum| *sum != (1 << n) - 1);
                assert_eq!(missing, None, "{len} elements, PE {me} of {n}");
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A05: started, in place, around 64 KiB.
#[test]
fn started_reductions_in_place_leave_their_input_until_it_is_read() {
    for n in [2, 3, 4] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let value = |pe: usize, i: usize| (i * 31 + pe * 7) as u32;
            let object = world.alloc::<u32>(131_072 / 4)?;
            for algorithm in able(Collective::Reduce { root: 0 }) {
                let coll = forced(world, &team, algorithm)?;
                for (turn, bytes) in [65_532, 65_536, 65_540, 131_072].into_iter().enumerate() {
                    let (root, part) = (turn % n, object.sym().slice(..bytes / 4)?);
                    let mine: Vec<u32> = (0..part.len()).map(|i| value(me, i)).collect();
                    part.copy_from(&mine)?;
                    let mut pending = coll.start_reduce(part, part, Sum, root);
                    while !pending.test()? {
                        std::thread::yield_now();
                    }
                    let sums = (0..part.len()).map(|i| (0..n).map(|pe| value(pe, i)).sum::<u32>());
                    let wanted = if me == root { sums.collect() } else { mine };
                    assert!(part.to_vec() == wanted, "{bytes} bytes by {algorithm}, PE {me} of {n}");
                }
            }
            world.free(object)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A07: broadcasts that do not divide by the number of PEs, which is no power of two.
#[test]
fn broadcasts_of_any_remainder() {
    for n in [3, 5, 6, 7] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let bytes = |len: usize| (0..len).map(move |i| (i * 7 + len) as u8).collect::<Vec<u8>>();
            let (src, dst) = (world.alloc::<u8>(n * 700 + 1)?, world.alloc::<u8>(n * 700 + 1)?);
            for algorithm in able(Collective::Broadcast { root: 0 }) {
                let coll = forced(world, &team, algorithm)?;
                for (turn, len) in [n * 700 - 1, n * 700, n * 700 + 1, n * 16 - 1, n * 16 + 1].into_iter().enumerate() {
                    let (source, target) = (src.sym().slice(..len)?, dst.sym().slice(..len)?);
                    let root = turn % n;
                    source.copy_from(&if me == root { bytes(len) } else { vec![0; len] })?;
                    target.fill(255);
                    coll.broadcast(target, source, root)?;
                    assert!(target.to_vec() == bytes(len), "{len} bytes by {algorithm}, PE {me} of {n}");
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A09: collects of random lengths, one behind the other, by PEs that are held up at any place.
#[test]
fn collects_in_a_row_lose_nothing() {
    shmem::local(4, |world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let coll = Coll::new(world, &team)?;
        let (src, dst) = (world.alloc::<u32>(40)?, world.alloc::<u32>(160)?);
        let (mut own, mut common) = (Random(me as u64), Random(77));
        for round in 0..scaled(world, 20_000) as u32 {
            let lens: Vec<usize> = (0..n).map(|_| common.below(4) * common.below(13)).collect();
            let value = |pe: usize, i: usize| round * 1000 + (pe * 40 + i) as u32;
            let source = src.sym().slice(..lens[me])?;
            (0..lens[me]).try_for_each(|i| source.write(i, value(me, i)))?;
            if own.below(5) == 0 {
                std::thread::yield_now();
            }
            coll.all_gather_v(dst.sym(), source)?;
            let wanted = (0..n).flat_map(|pe| (0..lens[pe]).map(move |i| value(pe, i)));
            let total = lens.iter().sum::<usize>();
            assert!(dst.sym().slice(..total)?.to_vec().into_iter().eq(wanted), "round {round}, PE {me}: {lens:?}");
        }
        world.free(src)?;
        world.free(dst)
    })
    .unwrap();
}

/// A13: the two ways in which an all-gather can be in place. Ours is a source that lies where it goes.
#[test]
fn the_other_way_of_being_in_place_is_an_error() {
    for n in [2, 3] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let coll = Coll::new(world, &team)?;
            let object = world.alloc::<u64>(10 * n)?;
            let whole = object.sym();
            let mine = whole.slice(10 * me..10 * (me + 1))?;
            mine.fill(me as u64);
            coll.all_gather(whole, mine)?;
            assert_eq!(whole.to_vec(), (0..10 * n).map(|i| i as u64 / 10).collect::<Vec<_>>());
            mine.fill(me as u64 + 5);
            // The same objects with the source at the beginning: that is in place on PE 0 only.
            for result in
                [coll.all_gather(whole, whole.slice(..10)?), coll.reduce_scatter(whole.slice(..10)?, whole, Sum)]
            {
                match kind_of(&result) {
                    ErrorKind::Overlap { pe, .. } => assert!(me > 0 && *pe == me),
                    ErrorKind::Mismatch { report } => assert!(me == 0 && report.contains("in place"), "{report}"),
                    other => panic!("PE {me}: {other:?}"),
                }
            }
            assert_eq!(mine.to_vec(), [me as u64 + 5; 10], "nothing was written");
            world.free(object)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A23: over two PEs of three to five, named in two ways.
#[test]
fn collectives_over_a_part_of_the_pes() {
    for n in [3, 4, 5] {
        shmem::local(n, |world| {
            let all = world.team();
            let (src, dst) = (world.alloc::<u32>(4)?, world.alloc::<u32>(4)?);
            for (first, stride) in [(0, 1), (0, 2), (1, (n - 2) as isize), (n - 1, -1)] {
                let second = first.wrapping_add_signed(stride);
                for listed in [false, true] {
                    let team = match listed {
                        false => all.split_strided(first, stride, 2)?,
                        true => all.split_list(&[first, second])?,
                    };
                    let Some(team) = team else { continue };
                    let (coll, me) = (Coll::new(world, &team)?, team.me() as u32);
                    assert_eq!(team.members(), [first, second]);
                    src.sym().copy_from(&[me * 10, me * 10 + 1, 7, 7])?;
                    dst.sym().fill(99);
                    coll.all_to_all(dst.sym().slice(..2)?, src.sym().slice(..2)?)?;
                    assert_eq!(dst.sym().to_vec(), [me, 10 + me, 99, 99]);
                    coll.all_gather(dst.sym(), src.sym().slice(..2)?)?;
                    assert_eq!(dst.sym().to_vec(), [0, 1, 10, 11]);
                    drop(coll);
                    team.destroy()?;
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// Every call, of nothing.
fn nothing<T: Elem>(coll: &Coll<'_>, dst: SymSlice<'_, T>, src: SymSlice<'_, T>) -> Result<()> {
    let (n, zeros) = (coll.team().n_pes(), vec![0; coll.team().n_pes()]);
    for root in 0..n {
        coll.broadcast(dst, src, root)?;
        coll.gather(dst, src, root)?;
        coll.scatter(dst, src, root)?;
        coll.start_broadcast(dst, src, root).wait()?;
    }
    coll.all_gather(dst, src)?;
    coll.all_to_all(dst, src)?;
    coll.all_gather_v(dst, src)?;
    coll.all_to_all_v(dst, &zeros, &zeros, src, &zeros, &zeros)?;
    coll.all_to_all_strided(dst, 3, src, 2, 0)?;
    coll.start_all_gather_v(dst, src).wait()?;
    coll.broadcast_from(dst, &[], 0)?;
    coll.all_gather_from(dst, &[])
}

/// B01: no elements, at any place, also behind the last element of an object; and calls of some go on.
#[test]
fn nothing_is_legal_everywhere() {
    for n in [1, 2, 3] {
        shmem::local(n, |world| {
            let team = world.team();
            for algorithm in Algorithm::ALL {
                let coll = forced(world, &team, algorithm)?;
                let (one, other) = (world.alloc::<u64>(4)?, world.alloc::<u64>(4)?);
                let empty = world.alloc::<u64>(0)?;
                let (front, back) = (one.sym().slice(..0)?, other.sym().slice(4..)?);
                for (dst, src) in
                    [(front, back), (back, front), (front, front), (empty.sym(), back), (back, empty.sym())]
                {
                    nothing(&coll, dst, src)?;
                    coll.all_reduce(dst, src, Sum)?;
                    coll.reduce(dst, src, Sum, n - 1)?;
                    coll.reduce_scatter(dst, src, Sum)?;
                    coll.reduce_scatter_v(dst, src, &vec![0; n], Sum)?;
                    coll.inclusive_scan(dst, src, Sum)?;
                    coll.exclusive_scan(dst, src, Sum)?;
                    coll.start_all_reduce(dst, src, Sum).wait()?;
                }
                one.sym().fill(2);
                coll.all_reduce(other.sym(), one.sym(), Sum)?;
                assert_eq!(other.sym().to_vec(), [2 * n as u64; 4], "{algorithm}");
                world.free(empty)?;
                world.free(one)?;
                world.free(other)?;
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// B07: exchanges in which most PEs have nothing for each other, whole rows and columns of them.
#[test]
fn exchanges_of_mostly_nothing() {
    shmem::local(4, |world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let mut dice = Random(9);
        let (src, dst) = (world.alloc::<u32>(64)?, world.alloc::<u32>(64)?);
        for algorithm in [Algorithm::Direct, Algorithm::Pairwise] {
            let coll = forced(world, &team, algorithm)?;
            for round in 0..500 {
                let mut counts = [[0; 4]; 4];
                for count in counts.iter_mut().flatten() {
                    *count = if dice.below(10) < 6 { 0 } else { 1 + dice.below(9) };
                }
                match round % 7 {
                    0 => counts[dice.below(n)].fill(0),
                    1 => {
                        let column = dice.below(n);
                        counts.iter_mut().for_each(|row| row[column] = 0);
                    }
                    _ => {}
                }
                let displs = |counts: &[usize]| (0..n).map(|pe| counts[..pe].iter().sum()).collect::<Vec<usize>>();
                let (to, from) = (counts[me].to_vec(), counts.iter().map(|row| row[me]).collect::<Vec<_>>());
                let value = |from: usize, to: usize, i: usize| (round * 1000 + from * 100 + to * 20 + i) as u32;
                let sent: Vec<u32> = (0..n).flat_map(|pe| (0..to[pe]).map(move |i| value(me, pe, i))).collect();
                src.sym().slice(..sent.len())?.copy_from(&sent)?;
                dst.sym().fill(u32::MAX);
                coll.all_to_all_v(dst.sym(), &from, &displs(&from), src.sym(), &to, &displs(&to))?;
                let mut wanted: Vec<u32> = (0..n).flat_map(|pe| (0..from[pe]).map(move |i| value(pe, me, i))).collect();
                wanted.resize(64, u32::MAX);
                assert_eq!(dst.sym().to_vec(), wanted, "round {round} by {algorithm}, PE {me}: {counts:?}");
            }
        }
        world.free(src)?;
        world.free(dst)
    })
    .unwrap();
}

/// B09: a PE with nothing to do that leaves a collective out and goes on to the barrier: all are told who is where.
#[test]
fn whoever_leaves_a_collective_out_is_named() {
    shmem::local(3, |world| {
        let team = world.team();
        let coll = Coll::new(world, &team)?;
        let object = world.alloc_zeroed::<u32>(8)?;
        let left_out = |result: Result<()>, call: &str| {
            let text = text_of(result);
            let sides = text.contains("PE 2 calls barrier") && text.contains("PEs 0-1 call") && text.contains(call);
            assert!(sides, "PE {}: {text}", world.me());
        };
        match world.me() {
            2 => left_out(team.barrier(), "allreduce #1 (u32 × 8, sum, in place)"),
            _ => left_out(coll.all_reduce(object.sym(), object.sym(), Sum), "allreduce #1"),
        }
        // What comes later is no longer the same call by number where one PE has made one less: they say so and end.
        match world.me() {
            2 => left_out(coll.barrier(), "allgatherv #2"),
            _ => left_out(coll.all_gather_v(object.sym(), object.sym().slice(..0)?), "allgatherv #2"),
        }
        team.barrier()
    })
    .unwrap();
}

/// K01: with far more PEs than cores, a collective costs switches between them, not the quanta of PEs that spin. The
/// bound lies between the two: they differ by a factor of some hundreds.
#[test]
fn sixteen_pes_on_few_cores_do_not_spin() {
    shmem::local(16, |world| {
        let team = world.team();
        let coll = Coll::new(world, &team)?;
        let object = world.alloc_zeroed::<u64>(1)?;
        let begin = Instant::now();
        for _ in 0..300 {
            coll.all_reduce(object.sym(), object.sym(), Sum)?;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?} for 300 calls", begin.elapsed());
        world.free(object)
    })
    .unwrap();
}

/// N01: counts whose sums and bytes leave 64 bits are refused, on all PEs, with nothing written.
#[test]
fn counts_that_no_memory_holds_are_refused() {
    const HUGE: usize = usize::MAX / 4;
    for n in [1, 2, 3] {
        shmem::local(n, |world| {
            let team = world.team();
            let coll = Coll::new(world, &team)?;
            let (src, dst) = (world.alloc::<u64>(8 * n)?, world.alloc_zeroed::<u64>(8 * n)?);
            let (source, target) = (src.sym(), dst.sym());
            let (zeros, huge, far) = (vec![0; n], vec![HUGE; n], vec![usize::MAX - 1; n]);
            let ones = vec![1; n];
            for result in [
                coll.all_to_all_v(target, &huge, &zeros, source, &huge, &zeros),
                coll.all_to_all_v(target, &ones, &far, source, &ones, &far),
                coll.reduce_scatter_v(target, source, &huge, Sum),
                coll.reduce_scatter_v(target, source, &vec![usize::MAX; n], Sum),
                coll.all_to_all_strided(target, 1, source, 1, HUGE),
                coll.all_to_all_strided(target, usize::MAX, source, usize::MAX, 8),
            ] {
                assert!(matches!(kind_of(&result), ErrorKind::Length { .. }), "{result:?}");
            }
            assert!(target.to_vec().iter().all(|element| *element == 0));
            coll.barrier()?;
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
