//! The same over a network that delays and reorders, and as real processes.

use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::plans::Algorithm;

use crate::common::{job, processes, shuffled};
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
        builder.set("SHMEM_ROUTE", "shuffle").and_then(|builder| builder.set("SHMEM_BARRIER_RADIX", "2")).unwrap()
    };
    let scenario = |world: &World| {
        // A PE that failed would keep the others waiting.
        all(world, 20).inspect_err(|_| world.abandon())
    };
    job(7, configure, scenario).into_iter().for_each(|pe| pe.unwrap());
}

#[test]
fn collectives_of_processes() {
    processes("places::collectives_of_processes", &[2, 3, 5], |world| {
        all(world, 30)?;
        crate::unequal::all(world)?;
        if world.n_pes() < 5 { crate::even::all_of(world, &[1, 513]) } else { Ok(()) }
    });
}
