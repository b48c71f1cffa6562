//! What the benchmarks share: times of calls that all PEs know, and the way to start PEs as processes.
#![allow(dead_code, unreachable_pub, reason = "every benchmark is a crate of its own and uses a part of this")]

use std::process::Command;
use std::time::{Duration, Instant};

use shmem::{Ctx, Result, Shared, SymBox, World};
use tempfile::TempDir;

/// Words from one PE's time to the first: a cache line.
const FIRST: usize = 8;

/// Times calls as MPI and OSHMEM benchmarks do: every call after a barrier that is not timed; the time of a batch is the
/// mean over its calls at the slowest PE.
pub struct Timer<'w> {
    pub world: &'w World,
    ctx: Ctx<'w, Shared>,
    cell: SymBox<'w, u64>,
}

impl<'w> Timer<'w> {
    /// Collective.
    pub fn new(world: &'w World) -> Result<Self> {
        Ok(Timer { world, ctx: world.ctx(), cell: world.alloc_zeroed(FIRST + world.n_pes())? })
    }

    /// Calls of a batch that takes so long, the same on all PEs. Collective.
    pub fn calls(&self, time: Duration, call: &dyn Fn() -> Result<()>) -> Result<u64> {
        let mut calls = 2;
        loop {
            let begin = Instant::now();
            self.here(calls, call)?;
            let enough = begin.elapsed() > time || calls > 1 << 16;
            self.cell.sym().write(0, u64::from(enough))?;
            self.world.barrier_all()?;
            let enough = self.ctx.g(self.cell.sym(), 0)? == 1;
            self.world.barrier_all()?;
            if enough {
                return Ok(calls);
            }
            calls *= 2;
        }
    }

    /// Microseconds of a call, the mean over a batch at the slowest PE: on PE 0, and on all. Collective.
    pub fn batch(&self, calls: u64, call: &dyn Fn() -> Result<()>) -> Result<f64> {
        let mine = self.here(calls, call)?;
        let cell = self.cell.sym();
        for pe in 0..self.world.n_pes() {
            self.ctx.p(cell.at(FIRST + self.world.me())?, mine.as_nanos() as u64, pe)?;
        }
        self.world.barrier_all()?;
        let times = (0..self.world.n_pes()).map(|pe| cell.read(FIRST + pe)).collect::<Result<Vec<u64>>>()?;
        self.world.barrier_all()?;
        Ok(times.into_iter().max().unwrap_or(0) as f64 / calls as f64 / 1e3)
    }

    /// What this PE's calls take.
    fn here(&self, calls: u64, call: &dyn Fn() -> Result<()>) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for _ in 0..calls {
            self.world.barrier_all()?;
            let begin = Instant::now();
            call()?;
            time += begin.elapsed();
        }
        Ok(time)
    }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A number from the environment.
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `shmemrun` of the profile of this benchmark, built where it is not there, with the arguments that start `n` PEs, a
/// core each where there are enough.
pub fn launcher(n: usize) -> Command {
    let bench = std::env::current_exe().expect("this benchmark");
    let profile = bench.ancestors().nth(2).expect("a profile's folder");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--release", "--package", "shmem"]);
    build.args(["--bin", "shmemrun", "--target-dir"]).arg(profile.parent().expect("a target folder"));
    assert!(build.status().expect("cargo runs").success(), "shmemrun is not built");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut command = Command::new(profile.join("shmemrun"));
    command.args(["-n", &n.to_string(), "--bind", if n <= cores { "core" } else { "none" }]);
    command
}

/// A folder for the time of this value.
pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a folder for temporary files")
}
