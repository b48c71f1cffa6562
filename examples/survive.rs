//! Work that goes on when PEs die: tasks are drawn from a counter, results are kept by two PEs, and whoever is left makes
//! up for what the dead have not finished.
//!
//! `shmemrun -n 4 --on-failure continue --example survive` (PE 1 kills itself in the middle)

use shmem::{Result, Shared, World};

const TASKS: usize = 2000;

fn main() -> Result<()> {
    shmem::run(|world| {
        // For each task, whether it is done; the same on all PEs.
        let done = world.alloc_zeroed::<u64>(TASKS)?;
        let mut round = 0;
        loop {
            match work(world, done.sym(), round) {
                Ok(()) => break,
                Err(error) if error.kind().is_lost() => {
                    let team = world.survivors()?;
                    println!("PE {}: {error}; going on as {} PEs", world.me(), team.n_pes());
                    round += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let finished = done.sym().to_vec().iter().filter(|done| **done != 0).count();
        println!("PE {}: {finished} of {TASKS} tasks are done, {} PEs are left", world.me(), world.alive().len());
        world.free(done)
    })
}

/// Does this PE's share of the tasks that are not done, and tells all; ends when all have.
fn work(world: &World, done: shmem::SymSlice<'_, u64>, round: u64) -> Result<()> {
    let (ctx, alive) = (world.ctx::<Shared>(), world.alive());
    let (me, n) = (alive.iter().position(|pe| *pe == world.me()).unwrap_or(0), alive.len());
    for task in (0..TASKS).filter(|task| task % n == me) {
        if done.read(task)? == 0 {
            std::thread::sleep(std::time::Duration::from_micros(50));
            for &pe in &alive {
                ctx.p(done.at(task)?, 1, pe)?;
            }
        }
        if world.me() == 1 && round == 0 && task > TASKS / 4 {
            std::process::abort();
        }
    }
    world.barrier_all()
}
