//! Two PEs on two hosts: what a transfer between them takes. `ci/roce-bench.sh` runs it in turns with the tools of the verbs
//! world, in a guest with Soft-RoCE; on hosts with cards, run it under `shmemrun` or by `cargo bench --features roce`.
//!
//! Prints a line for each measurement: its name, its median, and, of latencies, the tenth percentile, which is what it takes
//! when nobody disturbs it. Latencies are in microseconds, one way where both sides take part, as `ib_write_lat` counts;
//! bandwidths in MiB/s, as `ib_write_bw` does. Arguments choose measurements by name.

use std::process::{Command, ExitCode};
use std::time::Instant;

use shmem::{Ctx, Result, Shared, SigRef, SymBox, World};

/// Repetitions of what is small, as `ib_write_lat` has, and those before that do not count.
const SMALL: usize = 1000;
const WARM: usize = 50;
/// Bytes that a measurement of bandwidth moves.
const BULK: usize = 32 << 20;
/// Elements of a strided put.
const STRIDED: usize = 8;

/// A median and a tenth percentile.
type Value = (f64, Option<f64>);
type Measure = fn(&Bench<'_>) -> Result<Option<Value>>;

const MEASURES: [(&str, Measure); 12] = [
    ("put", |bench| bench.put()),
    ("put_signal", |bench| bench.put_signal()),
    ("put_signal_add", |bench| bench.put_signal_add()),
    ("put_quiet", |bench| bench.put_quiet()),
    ("get", |bench| bench.get()),
    ("fetch_add", |bench| bench.fetch_add()),
    ("iput", |bench| bench.iput()),
    ("barrier", |bench| bench.barrier()),
    ("put_from_nbi_64k", |bench| bench.put_from_nbi(64 << 10)),
    ("put_from_nbi_1m", |bench| bench.put_from_nbi(1 << 20)),
    ("put_nbi_64k", |bench| bench.put_nbi(64 << 10)),
    ("put_nbi_1m", |bench| bench.put_nbi(1 << 20)),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let outcome = if std::env::var_os("SHMEM_PE").is_some() {
        shmem::run(|world| Bench::new(world)?.run(&wanted)).map_err(|error| error.to_string())
    } else {
        launch(&wanted)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Two PEs of this machine, as if on two hosts.
fn launch(wanted: &[String]) -> std::result::Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmemrun"));
    command.args(["-n", "2", "--bind", "core"]).arg(own).args(wanted);
    for (name, value) in [("SHMEM_HOSTS", "2"), ("SHMEM_ROUTE", "roce"), ("SHMEM_SYMMETRIC_SIZE", "16M")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// One of the two PEs.
struct Bench<'w> {
    world: &'w World,
    ctx: Ctx<'w, Shared>,
    other: usize,
    /// [0] a flag, [16] a target, [32] a counter, [64..] strided targets.
    words: SymBox<'w, u64>,
    source: SymBox<'w, u8>,
    target: SymBox<'w, u8>,
}

impl<'w> Bench<'w> {
    fn new(world: &'w World) -> Result<Self> {
        Ok(Bench {
            world,
            ctx: world.ctx(),
            other: 1 - world.me().min(1),
            words: world.alloc_zeroed(64 + 2 * STRIDED)?,
            source: world.alloc_zeroed(1 << 20)?,
            target: world.alloc_zeroed(1 << 20)?,
        })
    }

    fn run(&self, wanted: &[String]) -> Result<()> {
        for (name, measure) in MEASURES {
            if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
                self.words.sym().fill(0);
                self.world.barrier_all()?;
                let value = measure(self)?;
                self.world.barrier_all()?;
                if let Some((median, tenth)) = value {
                    println!("{name} {median:.2}{}", tenth.map_or_else(String::new, |tenth| format!(" {tenth:.2}")));
                }
            }
        }
        Ok(())
    }

    /// Ping-pong of 8 bytes, for which both sides look in their memory.
    fn put(&self) -> Result<Option<Value>> {
        let flag = self.words.sym().slice(..1)?;
        self.ping_pong(|round| self.ctx.put(flag, &[round], self.other))
    }

    fn put_signal(&self) -> Result<Option<Value>> {
        let words = self.words.sym();
        self.ping_pong(|round| {
            self.ctx.put_signal(words.slice(16..17)?, &[round], SigRef::set(words.at(0)?, round), self.other)
        })
    }

    fn put_signal_add(&self) -> Result<Option<Value>> {
        let words = self.words.sym();
        self.ping_pong(|round| {
            self.ctx.put_signal(words.slice(16..17)?, &[round], SigRef::add(words.at(0)?, 1), self.other)
        })
    }

    fn put_quiet(&self) -> Result<Option<Value>> {
        let word = self.words.sym().slice(16..17)?;
        self.alone(|round| self.ctx.put(word, &[round], self.other).and_then(|()| self.ctx.quiet()))
    }

    fn get(&self) -> Result<Option<Value>> {
        let word = self.words.sym().at(16)?;
        self.alone(|_| self.ctx.g(word, self.other).map(drop))
    }

    fn fetch_add(&self) -> Result<Option<Value>> {
        let counter = self.words.sym().at(32)?;
        self.alone(|_| self.ctx.atomic_fetch_add(counter, 1, self.other).map(drop))
    }

    /// A strided put with its completion.
    fn iput(&self) -> Result<Option<Value>> {
        let (targets, values) = (self.words.sym().slice(64..)?, [7; STRIDED]);
        self.alone(|_| {
            self.ctx.iput(targets, 2, &values, 1, STRIDED, self.other)?;
            self.ctx.quiet()
        })
    }

    fn barrier(&self) -> Result<Option<Value>> {
        let times = timed(|_| self.world.barrier_all())?;
        Ok((self.world.me() == 0).then(|| summary(times, 1.0)))
    }

    /// Puts of symmetric memory, many under way at a time.
    fn put_from_nbi(&self, bytes: usize) -> Result<Option<Value>> {
        let (source, target) = (self.source.sym().slice(..bytes)?, self.target.sym().slice(..bytes)?);
        self.bulk(bytes, |count| {
            self.ctx.scope(|scope| (0..count).try_for_each(|_| scope.put_from_nbi(target, source, self.other)))
        })
    }

    /// The same of private memory.
    fn put_nbi(&self, bytes: usize) -> Result<Option<Value>> {
        let (source, target) = (vec![7_u8; bytes], self.target.sym().slice(..bytes)?);
        self.bulk(bytes, |count| {
            self.ctx.scope(|scope| (0..count).try_for_each(|_| scope.put_nbi(target, &source, self.other)))
        })
    }

    /// Half of what a round takes in which PE 0 strikes the flag of the other, and this answers.
    fn ping_pong(&self, strike: impl Fn(u64) -> Result<()>) -> Result<Option<Value>> {
        let flag = self.words.sym().slice(..1)?;
        let times = timed(|round| {
            let answered = || self.ctx.wait(flag, |value| value >= round).map(drop);
            if self.world.me() == 0 {
                strike(round)?;
                answered()
            } else {
                answered()?;
                strike(round)
            }
        })?;
        Ok((self.world.me() == 0).then(|| summary(times, 2.0)))
    }

    /// What PE 0 does while the other waits.
    fn alone(&self, act: impl Fn(u64) -> Result<()>) -> Result<Option<Value>> {
        if self.world.me() != 0 {
            return Ok(None);
        }
        timed(act).map(|times| Some(summary(times, 1.0)))
    }

    /// MiB a second at which PE 0 moves blocks while the other waits.
    fn bulk(&self, bytes: usize, put: impl Fn(usize) -> Result<()>) -> Result<Option<Value>> {
        if self.world.me() != 0 {
            return Ok(None);
        }
        put(1)?;
        let begin = Instant::now();
        put(BULK / bytes)?;
        Ok(Some(((BULK >> 20) as f64 / begin.elapsed().as_secs_f64(), None)))
    }
}

/// The microseconds of each round.
fn timed(mut act: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(WARM + SMALL);
    for round in 1..=WARM + SMALL {
        let begin = Instant::now();
        act(round as u64)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times.split_off(WARM))
}

/// Of rounds that have so many parts.
fn summary(mut times: Vec<f64>, parts: f64) -> Value {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2] / parts, Some(times[times.len() / 10] / parts))
}
