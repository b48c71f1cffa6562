//! Collectives as MPI and OSHMEM benchmarks time them: every iteration a barrier that is not timed, then the call; the time of a batch is the mean
//! over its iterations at the slowest PE. Prints `RES shmem n test bytes us min median` from PE 0, the same line as the peers' benchmarks print.

use std::time::{Duration, Instant};

use shmem::{Ctx, Result, Shared, SymBox, World};
use shmem_collectives::Coll;
use shmem_collectives::op::Sum;

const BATCHES: usize = 11;

fn main() -> Result<()> {
    shmem::run(|world| {
        let team = world.team();
        let coll = Coll::new(world, &team)?;
        let n = world.n_pes();
        let bench = Bench { world, ctx: world.ctx(), cell: world.alloc_zeroed(64 * n.max(2))? };
        let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
        for bytes in [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20] {
            let len = bytes / 4;
            let (src, dst) = (world.align::<f32>(4096, n * len)?, world.align::<f32>(4096, n * len)?);
            src.sym().fill(1.0);
            dst.sym().fill(0.0);
            let (one, all, source) = (dst.sym().slice(..len)?, dst.sym(), src.sym());
            let part = source.slice(..len)?;
            let run = |name: &str, call: &dyn Fn() -> Result<()>| {
                if name.contains(&filter) { bench.time(name, bytes, call) } else { Ok(()) }
            };
            run("broadcast", &|| coll.broadcast(one, part, 0))?;
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

struct Bench<'w> {
    world: &'w World,
    ctx: Ctx<'w, Shared>,
    cell: SymBox<'w, u64>,
}

impl Bench<'_> {
    fn time(&self, name: &str, bytes: usize, call: &dyn Fn() -> Result<()>) -> Result<()> {
        let (cell, n) = (self.cell.sym(), self.world.n_pes());
        let mut repeat = 2;
        loop {
            let begin = Instant::now();
            self.batch(repeat, call)?;
            let next = if begin.elapsed() > Duration::from_millis(5) { 0 } else { 2 * repeat };
            cell.write(0, next)?;
            self.world.barrier_all()?;
            let next = self.ctx.g(cell, 0)?;
            self.world.barrier_all()?;
            if next == 0 {
                break;
            }
            repeat = next;
        }
        let mut times = Vec::new();
        for _ in 0..BATCHES {
            let mine = self.batch(repeat, call)?;
            self.ctx.p(cell.at(8 + self.world.me())?, mine.as_nanos() as u64, 0)?;
            self.world.barrier_all()?;
            let worst = (0..n).map(|pe| cell.read(8 + pe)).collect::<Result<Vec<u64>>>()?.into_iter().max();
            times.push(worst.unwrap_or(0) as f64 / repeat as f64 / 1e3);
            self.world.barrier_all()?;
        }
        times.sort_by(f64::total_cmp);
        if self.world.me() == 0 {
            println!("RES shmem {n} {name} {bytes} us {:.3} {:.3}", times[0], times[BATCHES / 2]);
        }
        Ok(())
    }

    fn batch(&self, repeat: u64, call: &dyn Fn() -> Result<()>) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for _ in 0..repeat {
            self.world.barrier_all()?;
            let begin = Instant::now();
            call()?;
            time += begin.elapsed();
        }
        Ok(time)
    }
}
