//! Order and completion: quiet, fence, barriers, locks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{everywhere, processes, scaled};
use shmem::{Cmp, ErrorKind, Private, Result, Shared, SigRef, World};

/// Store buffering: two PEs put, quiet and get; not both may miss the other's value. PEs play in pairs. An optimised
/// build (`cargo test --release`) without the full fence in `quiet` fails within a tenth of the rounds; an unoptimised
/// one is too slow between the put and the get to show it.
fn store_buffering(world: &World, rounds: usize) -> Result<()> {
    const BATCH: usize = 1000;
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let other = me ^ 1;
    let plays = other < n;
    // Line `i` of a PE: the flag that its partner raises in round `i` of a batch; then what its partner saw.
    let flags = world.alloc_zeroed::<u64>(BATCH * 8)?;
    let seen = world.alloc_zeroed::<u64>(BATCH)?;
    let start = world.alloc_zeroed::<u64>(1)?;
    for batch in 1..=(rounds / BATCH) as u64 {
        flags.sym().fill(0);
        world.barrier_all()?;
        let mut mine = vec![0; BATCH];
        // Both leave this hand-over at about the same time, and run side by side from there.
        if plays {
            ctx.p(start.sym(), batch, other)?;
            let mut polls = 0;
            while start.sym().read(0)? < batch {
                polls += 1;
                if polls > 1000 || !cores_for(n) {
                    std::thread::yield_now();
                }
            }
            for (i, mine) in mine.iter_mut().enumerate() {
                let flag = flags.sym().at(8 * i)?;
                ctx.p(flag, 1, other)?;
                ctx.quiet()?;
                *mine = ctx.g(flag, me)?;
            }
        }
        if plays {
            ctx.put(seen.sym(), &mine, other)?;
        }
        world.barrier_all()?;
        if plays {
            let theirs = seen.sym().to_vec();
            for i in 0..BATCH {
                assert!(mine[i] == 1 || theirs[i] == 1, "batch {batch}, round {i}: both read old values");
            }
        }
        world.barrier_all()?;
    }
    world.free(flags)?;
    world.free(seen)?;
    world.free(start)
}

fn cores_for(n: usize) -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= n)
}

#[test]
fn two_pes_that_put_quiet_and_get_do_not_both_miss() {
    for (n, rounds) in [(2, 1_000_000), (5, 10_000), (8, 10_000)] {
        shmem::local(n, |world| store_buffering(world, rounds)).unwrap();
    }
    common::shuffled(|world| store_buffering(world, 1000));
}

#[test]
fn store_buffering_as_processes() {
    processes("store_buffering_as_processes", &[2], |world| store_buffering(world, 1_000_000));
}

/// What is put before a fence is not seen after what is put behind it: two words, on two lines, on every PE.
fn fenced(world: &World, rounds: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let words = world.alloc_zeroed::<u64>(64)?;
    let (data, flag, done) = (words.sym().at(0)?, words.sym().at(16)?, words.sym().at(32)?);
    for round in 1..=rounds as u64 {
        ctx.put(data, &[round], right)?;
        ctx.fence()?;
        ctx.p(flag, round, right)?;
        if round % 2 == 0 {
            // The flag first: then the data cannot be older.
            let (flag, data) = (ctx.g(flag, me)?, ctx.g(data, me)?);
            assert!(data >= flag, "data {data} is older than flag {flag}");
        }
        ctx.wait_until(flag, Cmp::Ge, round)?;
        assert!(ctx.g(data, me)? >= round);
        ctx.signal(SigRef::set(done, round), left)?;
        ctx.wait_until(done, Cmp::Ge, round)?;
    }
    world.barrier_all()?;
    world.free(words)
}

#[test]
fn a_fence_keeps_puts_in_order() {
    everywhere(|world| fenced(world, scaled(world, 20_000)));
}

#[test]
fn fences_as_processes() {
    processes("fences_as_processes", &[1, 2, 3, 8], |world| fenced(world, 2000));
}

/// Quiet completes a context's puts to all PEs: whoever learns of it by an atomic on a third PE sees them.
#[test]
fn quiet_completes_puts_everywhere() {
    everywhere(|world| {
        let (ctx, private, me, n) = (world.ctx::<Shared>(), world.ctx::<Private>(), world.me(), world.n_pes());
        let table = world.alloc_zeroed::<u64>(n)?;
        let count = world.alloc_zeroed::<u64>(1)?;
        for round in 1..=scaled(world, 2000) as u64 {
            let mine = table.sym().at(me)?;
            match round % 3 {
                0 => (0..n).try_for_each(|pe| ctx.p(mine, round, pe)).and_then(|()| ctx.quiet())?,
                1 => {
                    (0..n).try_for_each(|pe| private.p(mine, round, pe))?;
                    private.quiet_pes(&(0..n).collect::<Vec<_>>())?;
                }
                _ => (0..n).try_for_each(|pe| private.p(mine, round, pe)).and_then(|()| private.quiet())?,
            }
            ctx.atomic_inc(count.sym(), 0)?;
            while ctx.atomic_fetch(count.sym(), 0)? < round * n as u64 {
                std::thread::yield_now();
            }
            assert!(table.sym().to_vec().iter().all(|value| *value >= round));
        }
        world.barrier_all()?;
        assert_kind!(ctx.quiet_pes(&[0, n]), ErrorKind::NoSuchPe { pe, n_pes } if pe == n_pes);
        ctx.quiet_pes(&[])?;
        world.free(table)?;
        world.free(count)
    });
}

/// A barrier completes puts, and no PE leaves it before all have come.
fn barriers(world: &World, rounds: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let arrived = world.alloc_zeroed::<u64>(n)?;
    for round in 1..=rounds as u64 {
        for pe in 0..n {
            ctx.p(arrived.sym().at(me)?, round, pe)?;
        }
        if round % 2 == 0 {
            world.barrier_all()?;
        } else {
            ctx.quiet()?;
            world.sync_all()?;
        }
        for value in arrived.sym().to_vec() {
            assert!(value == round || value == round + 1, "{value} after barrier {round}");
        }
    }
    world.barrier_all()?;
    world.free(arrived)
}

#[test]
fn nobody_leaves_a_barrier_early() {
    everywhere(|world| barriers(world, scaled(world, 20_000)));
}

#[test]
fn barriers_as_processes() {
    processes("barriers_as_processes", &[1, 2, 3, 5, 8, 16], |world| barriers(world, 2000));
}

#[test]
fn barriers_of_every_radix() {
    for radix in ["2", "3", "4", "7", "64"] {
        for n in [1, 2, 3, 5, 8, 9, 17] {
            for pe in common::job(
                n,
                |builder| builder.set("SHMEM_BARRIER_RADIX", radix).unwrap().heap(1 << 20),
                |world| barriers(world, 200),
            ) {
                pe.unwrap();
            }
        }
    }
}

/// R6: with many more PEs than cores a barrier costs context switches, not time slices: pure spinning takes 90 ms each.
#[test]
fn oversubscribed_barriers_are_quick() {
    let rounds = 300;
    let took = shmem::local(16, |world| {
        world.barrier_all()?;
        let start = Instant::now();
        (0..rounds).try_for_each(|_| world.barrier_all())?;
        Ok(start.elapsed())
    })
    .unwrap();
    assert!(took[0] < rounds * Duration::from_millis(10), "{rounds} barriers of 16 PEs took {:?}", took[0]);
}

#[test]
fn oversubscribed_barriers_as_processes() {
    processes("oversubscribed_barriers_as_processes", &[16], |world| {
        world.barrier_all()?;
        let start = Instant::now();
        (0..300).try_for_each(|_| world.barrier_all())?;
        assert!(start.elapsed() < Duration::from_secs(3), "300 barriers took {:?}", start.elapsed());
        Ok(())
    });
}

/// Mutual exclusion: a counter that is read and written without atomics ends exact; what the last owner put is visible.
fn exclusion(world: &World, rounds: usize) -> Result<()> {
    let (ctx, n) = (world.ctx::<Shared>(), world.n_pes());
    let locks = world.alloc_zeroed::<u64>(17)?;
    // Two locks whose queues end on different PEs where there are several.
    for lock in [locks.sym().at(0)?, locks.sym().at(16)?] {
        let counters = world.alloc_zeroed::<u64>(4)?;
        for round in 0..rounds {
            ctx.set_lock(lock)?;
            let mut now = [0; 4];
            ctx.get(&mut now, counters.sym(), n - 1)?;
            assert!(now.iter().all(|value| *value == now[0]), "{now:?}");
            ctx.put(counters.sym(), &now.map(|value| value + 1), n - 1)?;
            ctx.clear_lock(lock)?;
            if round % 8 == 0 {
                while !ctx.test_lock(lock)? {
                    std::thread::yield_now();
                }
                let value = ctx.g(counters.sym(), n - 1)?;
                ctx.put(counters.sym(), &[value + 1; 4], n - 1)?;
                ctx.clear_lock(lock)?;
            }
        }
        world.barrier_all()?;
        let wanted = ((rounds + rounds.div_ceil(8)) * n) as u64;
        assert_eq!(ctx.g(counters.sym().at(3)?, n - 1)?, wanted);
        assert_eq!(locks.sym().to_vec(), [0; 17], "a lock at rest is zero");
        world.free(counters)?;
    }
    world.free(locks)
}

#[test]
fn a_lock_admits_one_at_a_time() {
    everywhere(|world| exclusion(world, scaled(world, 3000)));
}

#[test]
fn locks_as_processes() {
    processes("locks_as_processes", &[1, 2, 3, 5, 8, 16], |world| exclusion(world, 200));
}

/// The lock goes round in the order in which the PEs asked for it.
#[test]
fn a_lock_is_fair() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let lock = world.alloc_zeroed::<u64>(1)?;
        let order = world.alloc_zeroed::<u64>(n + 1)?;
        let turn = world.alloc_zeroed::<u64>(1)?;
        if me == 0 {
            ctx.set_lock(lock.sym())?;
        }
        world.barrier_all()?;
        // PE 0 holds the lock; the others queue up one after the other. PE `me` is in the queue once its predecessor's
        // word names it.
        if me > 0 {
            ctx.wait_until(turn.sym(), Cmp::Ge, me as u64)?;
            std::thread::scope(|scope| -> Result<()> {
                let queued = scope.spawn(|| ctx.set_lock(lock.sym()));
                // The queue's end, kept on one PE, names the last to enter.
                while !(0..n)
                    .any(|home| ctx.atomic_fetch(lock.sym(), home).is_ok_and(|word| word >> 32 == me as u64 + 1))
                {
                    std::thread::yield_now();
                }
                if me + 1 < n {
                    ctx.signal(SigRef::set(turn.sym(), me as u64 + 1), me + 1)?;
                } else {
                    ctx.signal(SigRef::set(turn.sym(), 1), 0)?;
                }
                queued.join().unwrap()
            })?;
        } else if n > 1 {
            ctx.signal(SigRef::set(turn.sym(), 1), 1)?;
            ctx.wait_until(turn.sym(), Cmp::Eq, 1)?;
        }
        let place = ctx.g(order.sym().at(n)?, 0)?;
        ctx.p(order.sym().at(place as usize)?, me as u64, 0)?;
        ctx.p(order.sym().at(n)?, place + 1, 0)?;
        ctx.clear_lock(lock.sym())?;
        world.barrier_all()?;
        if me == 0 {
            let wanted: Vec<u64> = (0..n as u64).chain([n as u64]).collect();
            assert_eq!(order.sym().to_vec(), wanted);
        }
        world.free(lock)?;
        world.free(order)?;
        world.free(turn)
    });
}

#[test]
fn misused_locks_are_errors_and_go_on_working() {
    everywhere(|world| {
        let (ctx, me) = (world.ctx::<Shared>(), world.me());
        let block = world.alloc_zeroed::<u64>(1)?;
        let lock = block.sym();
        assert_kind!(ctx.clear_lock(lock), ErrorKind::Lock { pe, call: "clear", .. } if *pe == me);
        world.barrier_all()?;
        if me == 0 {
            ctx.set_lock(lock)?;
            assert_kind!(ctx.set_lock(lock), ErrorKind::Lock { pe: 0, call: "set", offset, .. } if *offset == lock.offset());
            assert_kind!(ctx.test_lock(lock), ErrorKind::Lock { pe: 0, call: "test", .. });
        }
        world.barrier_all()?;
        if me != 0 {
            assert!(!ctx.test_lock(lock)?, "PE 0 holds it");
            assert_kind!(ctx.clear_lock(lock), ErrorKind::Lock { call: "clear", .. });
        }
        world.barrier_all()?;
        if me == 0 {
            ctx.clear_lock(lock)?;
        }
        let none = lock.slice(1..)?;
        assert_kind!(ctx.set_lock(none), ErrorKind::OutOfRange { len: 0, .. });
        assert_kind!(ctx.test_lock(none), ErrorKind::OutOfRange { len: 0, .. });
        assert_kind!(ctx.clear_lock(none), ErrorKind::OutOfRange { len: 0, .. });
        ctx.set_lock(lock)?;
        ctx.clear_lock(lock)?;
        world.barrier_all()?;
        assert_eq!(lock.read(0)?, 0);
        world.free(block)
    });
}

/// A lock that nobody gives back is a `Timeout` that names the PE waited for, where a limit is set.
#[test]
fn a_lock_that_is_kept_times_out() {
    let limit = Duration::from_millis(200);
    for pe in common::job(
        2,
        |builder| builder.timeout(limit),
        |world| {
            let ctx = world.ctx::<Shared>();
            let block = world.alloc_zeroed::<u64>(2)?;
            let (lock, done) = (block.sym().at(0)?, block.sym().at(1)?);
            if world.me() == 0 {
                ctx.set_lock(lock)?;
            }
            world.barrier_all()?;
            if world.me() == 1 {
                let error = ctx.set_lock(lock);
                assert_kind!(error, ErrorKind::Timeout { pe: 1, call: "set_lock", after, .. } if *after >= limit);
                assert!(error.unwrap_err().to_string().contains("PE 0"));
                ctx.signal(SigRef::set(done, 1), 0)?;
            } else {
                while ctx.signal_fetch(done)? == 0 {
                    std::thread::yield_now();
                }
            }
            Ok(())
        },
    ) {
        pe.unwrap();
    }
}
