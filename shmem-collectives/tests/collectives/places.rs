//! The same over a network that delays and reorders, and as real processes.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::plans::Algorithm;

use crate::common::{Random, job, processes, shuffled};
use crate::sequences::mixed;
use crate::strict::forced;

fn all(world: &World, calls: usize) -> Result<()> {
    let team = world.team();
    mixed(world, &Coll::new(world, &team)?, calls)?;
    Algorithm::ALL.into_iter().try_for_each(|one| mixed(world, &forced(world, &team, one)?, calls))
}

#[test]
fn collectives_over_a_network_that_reorders() {
    shuffled(|world| {
        all(world, 30)?;
        crate::unequal::all(world)
    });
}

/// Where a barrier takes several rounds, who tells a PE is not who put something there.
#[test]
fn collectives_over_a_network_that_reorders_behind_barriers_of_many_rounds() {
    let configure = |builder: shmem::Builder| {
        builder.set("SHMEM_ROUTE", "sim").and_then(|builder| builder.set("SHMEM_BARRIER_RADIX", "2")).unwrap()
    };
    let scenario = |world: &World| {
        // A PE that failed would keep the others waiting.
        all(world, 20).inspect_err(|_| world.abandon())
    };
    job(7, configure, scenario).into_iter().for_each(|pe| pe.unwrap());
}

/// Says so when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// PEs that are stopped wherever they are, and go on.
#[test]
fn collectives_of_processes_that_are_stopped_now_and_then() {
    processes("places::collectives_of_processes_that_are_stopped_now_and_then", &[2, 3], |world| {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let pid = std::process::id();
                let mut random = Random(world.me() as u64);
                while !over.load(Ordering::Relaxed) {
                    // Whoever stops itself must have somebody who lets it go on.
                    let stop = format!("kill -STOP {pid}; sleep 0.02; kill -CONT {pid}");
                    let stopped = Command::new("sh").args(["-c", &stop]).status();
                    assert!(stopped.is_ok_and(|status| status.success()), "{stop}");
                    thread::sleep(Duration::from_millis(5 + random.below(20) as u64));
                }
            });
            // Also where the test fails.
            let _end = End(&over);
            all(world, 40)
        })
    });
}

#[test]
fn collectives_of_processes() {
    processes("places::collectives_of_processes", &[2, 3, 5], |world| {
        all(world, 30)?;
        crate::unequal::all(world)?;
        if world.n_pes() < 5 { crate::matrix::all_of(world, &[1, 513]) } else { Ok(()) }
    });
}
