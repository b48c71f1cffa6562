//! Faults: PEs that die, stop, or go on without the dead.
//!
//! PEs that are processes watch over each other here, without a launcher; `tests/launcher` has the same under one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
#[macro_use]
mod common;
mod exits;
mod locks;
mod matrix;
mod stalls;
mod survivors;

use std::time::Duration;

use shmem::{ErrorKind, Result, World};

/// Between a death and its report: the aim is 10 ms, 100 ms are promised. Where many processes share a core it takes the
/// kernel longer to end one, and the others to wake: this only tells a report from none.
const PROMISE: Duration = Duration::from_secs(10);

/// Calls again until a loss is reported: the call that it strikes first may still end in order.
fn until_lost(mut call: impl FnMut() -> Result<()>) -> shmem::Error {
    loop {
        match call() {
            Err(error) if error.kind().is_lost() => return error,
            Err(error) => panic!("{error}"),
            Ok(()) => {}
        }
    }
}

/// The host's steady clock, the same for all processes.
fn nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Everything works in what is left: a barrier, put and get, an allocation, a team of the team, a sum over all.
fn works(world: &World) -> Result<Vec<usize>> {
    use shmem::Shared;
    let team = world.survivors()?;
    let (ctx, me, n) = (team.ctx::<Shared>(), team.me(), team.n_pes());
    let block = world.alloc_zeroed::<u64>(n + 1)?;
    for pe in 0..n {
        ctx.p(block.sym().at(me)?, 100 + me as u64, pe)?;
        ctx.atomic_add(block.sym().at(n)?, 1 + me as u64, pe)?;
    }
    world.barrier_all()?;
    let expected: Vec<u64> = (0..n as u64).map(|pe| 100 + pe).chain([(n * (n + 1) / 2) as u64]).collect();
    assert_eq!(block.sym().to_vec(), expected);
    let half = team.split_strided(0, 1, n.div_ceil(2))?;
    if let Some(half) = half {
        half.barrier()?;
        half.destroy()?;
    }
    team.sync()?;
    world.free(block)?;
    let coll = shmem_collectives::Coll::new(world, &team)?;
    let (mine, all) = (world.alloc::<f64>(300)?, world.alloc::<f64>(300)?);
    mine.sym().fill(1.5 * (me + 1) as f64);
    coll.all_reduce(all.sym(), mine.sym(), shmem_collectives::op::Sum)?;
    assert_eq!(all.sym().to_vec(), [1.5 * (n * (n + 1) / 2) as f64; 300]);
    assert_eq!(world.alive(), team.members());
    world.barrier_all()?;
    Ok(team.members())
}

/// The PEs but one.
fn without(n: usize, lost: usize) -> Vec<usize> {
    (0..n).filter(|pe| *pe != lost).collect()
}

fn is_lost(error: &shmem::Error, lost: usize) -> bool {
    matches!(error.kind(), ErrorKind::PeerLost { pe, .. } if *pe == lost)
}
