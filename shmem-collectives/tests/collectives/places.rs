//! The same over a network that delays and reorders, and as real processes.

use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::plans::Algorithm;

use crate::common::{processes, shuffled};
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

#[test]
fn collectives_of_processes() {
    processes("places::collectives_of_processes", &[2, 3, 5], |world| {
        all(world, 30)?;
        crate::unequal::all(world)?;
        if world.n_pes() < 5 { crate::even::all_of(world, &[1, 513]) } else { Ok(()) }
    });
}
