//! Checked mode (`SHMEM_CHECK=1`) and what collectives work on by themselves: the buffers of a started one until its end, and the memory
//! of an exchange between experts. A write to them by the program is an error that names both.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::panic::Location;
use std::time::{SystemTime, UNIX_EPOCH};

use shmem::{Ctx, ErrorKind, Result, Shared, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::moe::{F32, Moe, MoeMode};
use shmem_collectives::op::Sum;

/// Runs `f` as `n` threads in checked mode.
fn checked(n: usize, f: impl Fn(&World) -> Result<()> + Sync) {
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let address = format!("unix:@shmem-check-{}-{moment}", std::process::id());
    let pe = |pe: usize| {
        let builder = World::builder().pe(pe).n_pes(n).rendezvous(&*address).key("tests");
        let world = builder.set("SHMEM_CHECK", "1").unwrap().build()?;
        f(&world).inspect_err(|_| world.abandon())
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let pes: Vec<_> = (0..n)
            .map(|me| {
                let pe = &pe;
                scope.spawn(move || pe(me))
            })
            .collect();
        pes.into_iter().map(|pe| pe.join().unwrap()).collect()
    });
    ended.into_iter().for_each(|pe| pe.unwrap_or_else(|error| panic!("n = {n}: {error}")));
}

#[track_caller]
fn next_line() -> String {
    format!("{}:{}", file!(), Location::caller().line() + 1)
}

/// The user that an error names, which is one of a write to memory in use on PE `on`.
fn user<T>(result: Result<T>, on: usize) -> String {
    match result.err().expect("an error").kind() {
        ErrorKind::InUse { target, user, .. } if *target == on => user.clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_buffers_of_a_started_collective_are_its_own_until_its_end() {
    for n in [2, 3, 5] {
        checked(n, |world| {
            let (team, ctx, me) = (world.team(), world.ctx::<Shared>(), world.me());
            let coll = Coll::new(world, &team)?;
            let (src, dst) = (world.alloc::<u64>(100)?, world.alloc::<u64>(120)?);
            let (whole, target) = (dst.sym(), dst.sym().slice(..100)?);
            src.sym().fill(me as u64);
            world.barrier_all()?;
            let line = next_line();
            let mut pending = coll.start_all_reduce(target, src.sym(), Sum);
            // Nobody gets on before all have started and this PE tests, so it cannot have ended here.
            let name = format!("allreduce #1, started at {line}");
            assert_eq!(user(target.write(3, 1), me), name);
            assert_eq!(user(src.sym().at(0)?.copy_from(&[1]), me), name);
            assert_eq!(user(ctx.p(target.at(99)?, 1, me), me), name);
            assert_eq!(user(ctx.atomic_add(src.sym(), 1, me), me), name);
            // What is not the collective's.
            assert_eq!(src.sym().read(7)?, me as u64);
            whole.slice(100..)?.write(0, 5)?;
            // The others' copies are in use as well, once they have started theirs; none ends before the barrier.
            world.sync_all()?;
            let other = (me + 1) % n;
            assert_eq!(user(ctx.p(target, 1, other), other), "allreduce #1");
            assert_eq!(user(ctx.put(src.sym(), &[1], other), other), "allreduce #1");
            ctx.p(whole.at(110)?, 6, other)?;
            world.sync_all()?;
            while !pending.test()? {
                std::thread::yield_now();
            }
            target.write(3, 1)?;
            src.sym().fill(9);
            pending.wait()?;
            let sum = (n * (n - 1) / 2) as u64;
            assert_eq!(target.to_vec(), (0..100).map(|i| if i == 3 { 1 } else { sum }).collect::<Vec<_>>());
            assert_eq!((whole.read(100)?, whole.read(110)?), (5, 6));
            drop(coll);
            world.free(src)?;
            world.free(dst)
        });
    }
}

/// Whatever is started, one after the other on the same buffers, ends as without checked mode.
#[test]
fn started_collectives_write_to_what_is_theirs() {
    checked(3, |world| {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let coll = Coll::new(world, &team)?;
        let (small, large) = (world.alloc::<u32>(10)?, world.alloc::<u32>(10 * n)?);
        small.sym().fill(me as u32 + 1);
        let counts = vec![10; n];
        let places: Vec<usize> = (0..n).map(|pe| 10 * pe).collect();
        let started = [
            coll.start_all_gather(large.sym(), small.sym()),
            coll.start_all_reduce(small.sym(), small.sym(), Sum),
            coll.start_broadcast(small.sym(), small.sym(), 1),
            coll.start_reduce_scatter(small.sym(), large.sym(), Sum),
            coll.start_reduce_scatter_v(small.sym(), large.sym(), &counts, Sum),
            coll.start_all_gather_v(large.sym(), small.sym()),
            coll.start_all_to_all(large.sym(), large.sym()),
            coll.start_all_to_all_v(large.sym(), &counts, &places, large.sym(), &counts, &places),
            coll.start_all_to_all_strided(large.sym(), 1, large.sym(), 1, 10),
        ];
        // Another kind is refused, and holds nothing either.
        let refused = coll.start_all_reduce(small.sym(), large.sym(), Sum);
        for pending in started {
            pending.wait()?;
        }
        assert!(refused.wait().is_err());
        small.sym().fill(0);
        large.sym().write(10 * n - 1, 0)?;
        world.barrier_all()?;
        drop(coll);
        world.free(small)?;
        world.free(large)
    });
}

/// A collective whose buffer is freed while it is under way says so instead of writing there.
#[test]
fn a_started_collective_does_not_write_to_freed_memory() {
    checked(2, |world| {
        let team = world.team();
        let coll = Coll::new(world, &team)?;
        let (src, dst) = (world.alloc_zeroed::<u64>(100)?, world.alloc_zeroed::<u64>(100)?);
        let handle = world.object_at::<u64>(dst.sym().offset(), 100)?;
        let pending = coll.start_all_reduce(handle, src.sym(), Sum);
        world.free(dst)?;
        let error = pending.wait().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UseAfterFree { .. }), "{error}");
        drop(coll);
        world.free(src)
    });
}

/// The memory of an exchange is its own, of its own PE and of the others, but for outputs, which the PE's experts write.
#[test]
fn the_memory_of_an_exchange_is_its_own() {
    const HIDDEN: usize = 5;
    for (n, mode) in [1, 2, 3, 5].into_iter().flat_map(|n| MoeMode::ALL.map(|mode| (n, mode))) {
        checked(n, |world| {
            let (team, ctx, me) = (world.team(), world.ctx::<Shared>(), world.me());
            let builder = || Moe::builder(world, &team).experts(n).max_tokens(4).hidden(HIDDEN).top_k(1).payload(F32);
            let bytes = builder().buffer_bytes()?;
            let block = world.align::<u8>(128, bytes + 128)?;
            let (all, behind) = (block.sym(), bytes..bytes + 1);
            let line = next_line();
            let mut moe = builder().memory(all).mode(mode).build()?;
            let (own, others) = (format!("moe exchange, started at {line}"), "moe exchange");
            let other = (me + 1) % n;
            let whose = |pe: usize| if pe == me { own.as_str() } else { others };
            // Flags, headers or tokens, and the last byte, which is an output's.
            let stray = |at: usize, pe: usize| ctx.p(all.at(at)?, 0xff, pe);
            let is_its_own = |places: &[usize]| {
                for (at, pe) in places.iter().flat_map(|at| [me, other].map(|pe| (*at, pe))) {
                    assert_eq!(user(stray(at, pe), pe), whose(pe), "byte {at} of PE {pe}");
                    assert_eq!(user(ctx.put(all.slice(at..)?, &[1], pe), pe), whose(pe));
                }
                Ok::<_, shmem::Error>(())
            };
            let (tokens, expert) = ([1.5; HIDDEN], [other as i32]);
            world.barrier_all()?;
            for _ in 0..20 {
                let received = moe.dispatch(&tokens, &expert, &[2.0])?;
                let row = received.rows(0)[0];
                let output = received.output(&row)?;
                let at = output.offset() - all.offset();
                is_its_own(&[0, bytes / 4])?;
                if other != me {
                    assert_eq!(user(stray(at, other), other), others);
                }
                // Experts write in any way, in place or not.
                output.fill(7.0);
                ctx.put(output, &[3.0; HIDDEN], me)?;
                output.write(0, 4.0)?;
                received.scatter(0, &[0.5; HIDDEN])?;
                output.copy_from(&[3.0; HIDDEN])?;
                ctx.p(all.at(behind.start)?, 1, other)?;
                let mut sums = [0.0; HIDDEN];
                moe.combine(&mut sums)?;
                assert_eq!(sums, [6.0; HIDDEN]);
                is_its_own(&[0, bytes / 4, at])?;
                // Whatever is started and ends in between, others still see it.
                for _ in 0..2 {
                    let coll = Coll::new(world, &team)?;
                    let words = world.alloc_zeroed::<u64>(2)?;
                    coll.start_all_reduce(words.sym(), words.sym(), Sum).wait()?;
                    drop(coll);
                    world.free(words)?;
                }
            }
            world.barrier_all()?;
            moe.free()?;
            world.barrier_all()?;
            is_free(&ctx, all, me, other)?;
            world.barrier_all()?;
            // What it allocates by itself is free as soon as it is freed.
            for _ in 0..3 {
                let moe = builder().mode(mode).build()?;
                moe.free()?;
                let again = world.align::<u8>(128, bytes)?;
                is_free(&ctx, again.sym(), me, other)?;
                world.free(again)?;
            }
            world.free(block)
        });
    }
}

fn is_free(ctx: &Ctx<'_, Shared>, all: SymSlice<'_, u8>, me: usize, other: usize) -> Result<()> {
    [0, all.len() / 2, all.len() - 1].into_iter().try_for_each(|at| {
        ctx.p(all.at(at)?, 1, other)?;
        ctx.p(all.at(at)?, 1, me)
    })
}
