//! Collectives as MPI and OSHMEM benchmarks time them. Prints `RES shmem n test bytes us min median` from PE 0, the same line as the peers' benchmarks
//! print.

mod common;

use std::time::Duration;

use shmem::Result;
use shmem_collectives::Coll;
use shmem_collectives::op::Sum;

use common::{Timer, median};

const BATCHES: usize = 11;

fn main() -> Result<()> {
    shmem::run(|world| {
        let team = world.team();
        let coll = Coll::new(world, &team)?;
        let (timer, n) = (Timer::new(world)?, world.n_pes());
        let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
        for bytes in [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20] {
            let len = bytes / 4;
            let (src, dst) = (world.align::<f32>(4096, n * len)?, world.align::<f32>(4096, n * len)?);
            src.sym().fill(1.0);
            dst.sym().fill(0.0);
            let (one, all, source) = (dst.sym().slice(..len)?, dst.sym(), src.sym());
            let part = source.slice(..len)?;
            let run = |name: &str, call: &dyn Fn() -> Result<()>| {
                if name.contains(&filter) { time(&timer, name, bytes, call) } else { Ok(()) }
            };
            // In place, as MPI_Bcast is: its root has one buffer.
            run("broadcast", &|| coll.broadcast(one, one, 0))?;
            run("allreduce", &|| coll.all_reduce(one, part, Sum))?;
            run("alltoall", &|| coll.all_to_all(all, source))?;
            run("allgather", &|| coll.all_gather(all, part))?;
            run("reduce_scatter", &|| {
                coll.reduce_scatter(dst.sym().slice(..len / n)?, source.slice(..len / n * n)?, Sum)
            })?;
            world.free(src)?;
            world.free(dst)?;
        }
        Ok(())
    })
}

fn time(timer: &Timer<'_>, name: &str, bytes: usize, call: &dyn Fn() -> Result<()>) -> Result<()> {
    let calls = timer.calls(Duration::from_millis(5), call)?;
    let times = (0..BATCHES).map(|_| timer.batch(calls, call)).collect::<Result<Vec<f64>>>()?;
    let (world, min) = (timer.world, times.iter().copied().fold(f64::INFINITY, f64::min));
    if world.me() == 0 {
        println!("RES shmem {} {name} {bytes} us {min:.3} {:.3}", world.n_pes(), median(times));
    }
    Ok(())
}
