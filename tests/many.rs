//! More PEs than any fixed array would hold (N03).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{is_child, job, processes, spawn, without_places};
use shmem::{Cmp, Result, Shared, SigRef, World};

/// Barriers, puts to all, atomics, signals, a lock and teams of every shape, among all PEs.
fn everything(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (table, count, bell) =
        (world.alloc_zeroed::<u32>(n)?, world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
    for pe in 0..n {
        ctx.p(table.sym().at(me)?, (me * 1000 + pe) as u32, pe)?;
        ctx.atomic_inc(count.sym(), pe)?;
    }
    world.barrier_all()?;
    assert_eq!(table.sym().to_vec(), (0..n).map(|pe| (pe * 1000 + me) as u32).collect::<Vec<_>>());
    assert_eq!(count.sym().read(0)?, n as u64);

    // A token once round the ring.
    if me == 0 {
        ctx.signal(SigRef::set(bell.sym(), 1), 1 % n)?;
    }
    let token = ctx.wait_until(bell.sym(), Cmp::Ne, 0)?;
    if me != 0 {
        ctx.signal(SigRef::set(bell.sym(), token + 1), (me + 1) % n)?;
    } else {
        assert_eq!(token, n as u64);
    }

    let all: Vec<usize> = (0..n).collect();
    let (row, column) = world.team().split_2d(8)?;
    assert_eq!(row.members(), all.chunks(8).nth(me / 8).unwrap());
    assert_eq!(column.members(), all.iter().copied().skip(me % 8).step_by(8).collect::<Vec<_>>());
    let back = world.team().split_strided(n - 1, -1, n)?.unwrap();
    assert_eq!(back.members(), all.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(world.shared_team().n_pes(), n);
    for team in [row, column, back] {
        (0..3).try_for_each(|_| team.barrier())?;
        team.destroy()?;
    }

    let lock = world.alloc_zeroed::<u64>(2)?;
    ctx.set_lock(lock.sym())?;
    let value = ctx.g(lock.sym().at(1)?, n - 1)?;
    ctx.p(lock.sym().at(1)?, value + 1, n - 1)?;
    ctx.clear_lock(lock.sym())?;
    world.barrier_all()?;
    assert_eq!(ctx.g(lock.sym().at(1)?, n - 1)?, n as u64);
    world.barrier_all()?;
    // The last PE disagrees, and all learn it.
    let error = world.alloc::<u8>(if me == n - 1 { 2 } else { 1 }).unwrap_err();
    let last = n - 1;
    let wanted = format!("PE {last} calls alloc(2 bytes), PEs 0-{} call alloc(1 bytes)", last - 1);
    assert!(without_places(&error.to_string()).contains(&wanted), "{error}");
    world.free(lock)?;
    world.free(bell)?;
    world.free(count)?;
    world.free(table)
}

#[test]
fn many_pes_as_threads() {
    for n in [31, 32, 33, 64, 65] {
        shmem::local(n, everything).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// 65 PEs of one process hold 65 descriptors at start-up, not 65 times 65.
#[test]
fn many_pes_need_few_descriptors() {
    const TEST: &str = "many_pes_need_few_descriptors";
    if is_child(TEST) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: Some(128) }).unwrap();
        shmem::local(65, everything).unwrap();
        return;
    }
    for ended in spawn(TEST, 1, |_, command| command) {
        assert!(ended.success, "{}", ended.output);
    }
}

#[test]
fn many_pes_over_the_delaying_route() {
    for pe in job(17, |builder| builder.heap(1 << 20).set("SHMEM_ROUTE", "sim").unwrap(), everything) {
        pe.unwrap();
    }
}

#[test]
fn many_pes_as_processes() {
    processes("many_pes_as_processes", &[33], everything);
}
