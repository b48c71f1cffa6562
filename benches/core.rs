//! The core against the machine itself: every operation next to what a hand-written program does on the same memory, in turns.
//!
//! `cargo bench --bench core` starts the jobs (2 PEs bound to a core each, then 4 and 16 PEs on whatever there is) and prints a table: median of
//! the rounds for the raw loop and for the library, and the median of the ratios of neighbouring rounds. Absolute times say little on a
//! shared machine; the ratios do.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use shmem::{Ctx, Result, Shared, SymBox, World};

/// Rounds of each pair.
const ROUNDS: usize = 31;
/// How long one side of a round takes, about.
const SLICE: Duration = Duration::from_millis(6);
/// The largest transfer.
const MAX: usize = 16 << 20;

fn main() -> ExitCode {
    if std::env::var_os("SHMEM_PE").is_some() {
        return match shmem::run(bench) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    println!("{:34} {:>12} {:>12} {:>8}", "operation", "raw", "shmem", "ratio");
    for arguments in [["-n", "2", "--bind", "core"], ["-n", "4", "--bind", "none"], ["-n", "16", "--bind", "none"]] {
        run(Command::new(env!("CARGO_BIN_EXE_shmemrun"))
            .args(arguments)
            .arg(std::env::current_exe().expect("own path")));
    }
    startup();
    ExitCode::SUCCESS
}

fn run(command: &mut Command) {
    let status = command.status().expect("shmemrun starts");
    assert!(status.success(), "{command:?}: {status}");
}

/// Wall time of a job that does nothing, launcher included.
fn startup() {
    for (n, rounds) in [("2", 41), ("16", 21), ("64", 7)] {
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let begin = Instant::now();
                run(Command::new(env!("CARGO_BIN_EXE_shmemrun")).args(["-n", n]).arg("true"));
                begin.elapsed()
            })
            .collect();
        let mut joined: Vec<Duration> = (0..rounds)
            .map(|_| {
                let begin = Instant::now();
                let own = std::env::current_exe().expect("own path");
                run(Command::new(env!("CARGO_BIN_EXE_shmemrun")).args(["-n", n]).arg(own).env("BENCH_EMPTY", "1"));
                begin.elapsed()
            })
            .collect();
        times.sort();
        joined.sort();
        let (bare, full) = (times[rounds / 2], joined[rounds / 2]);
        println!("{:34} {:>12} {:>12}", format!("start-up, {n} PEs (true, then init)"), show(bare), show(full));
    }
}

fn show(time: Duration) -> String {
    match time.as_secs_f64() * 1e9 {
        ns if ns < 1e4 => format!("{ns:.2} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// One PE of a job.
struct Bench<'w> {
    world: &'w World,
    ctx: Ctx<'w, Shared>,
    /// Words: [0] PE 0's flag, [16] PE 1's, [32] a counter, [48] the number of repetitions, [64..] targets.
    words: SymBox<'w, u64>,
    source: SymBox<'w, u8>,
    target: SymBox<'w, u8>,
}

fn bench(world: &World) -> Result<()> {
    if std::env::var_os("BENCH_EMPTY").is_some() {
        return Ok(());
    }
    let bytes = if world.n_pes() == 2 { MAX } else { 64 };
    let bench = Bench {
        world,
        ctx: world.ctx(),
        words: world.alloc_zeroed(1024)?,
        source: world.alloc_zeroed(bytes)?,
        target: world.alloc_zeroed(bytes)?,
    };
    if world.n_pes() == 2 { bench.pair() } else { bench.crowd() }
}

impl Bench<'_> {
    /// Two PEs with a core each.
    fn pair(&self) -> Result<()> {
        let (ctx, me, other) = (&self.ctx, self.world.me(), 1 - self.world.me());
        let words = self.words.sym();
        let there = |i: usize| -> Result<&AtomicU64> {
            let pointer = ctx.ptr(words.at(i)?, other)?.expect("mapped");
            // SAFETY: the word is mapped while the world lives, and accessed atomically.
            Ok(unsafe { AtomicU64::from_ptr(pointer) })
        };
        let here = |i: usize| -> Result<&AtomicU64> {
            // SAFETY: as above.
            Ok(unsafe { AtomicU64::from_ptr(words.at(i)?.as_ptr()) })
        };
        let (far, near, far_counter) = (there(64)?, here(0)?, there(32)?);
        let cell = words.slice(64..65)?;
        self.one_sided("put, 8 bytes", 64, |i| far.store(i, Ordering::Release), |i| ctx.put(cell, &[i], other))?;
        self.one_sided(
            "put + quiet, 8 bytes",
            16,
            |i| {
                far.store(i, Ordering::Release);
                fence(Ordering::SeqCst);
            },
            |i| ctx.put(cell, &[i], other).and_then(|()| ctx.quiet()),
        )?;
        self.one_sided(
            "get, 8 bytes",
            64,
            |_| {
                black_box(far.load(Ordering::Acquire));
            },
            |_| {
                ctx.g(cell, other).map(|value| {
                    black_box(value);
                })
            },
        )?;
        self.one_sided(
            "fetch_add on the peer",
            16,
            |i| {
                black_box(far_counter.fetch_add(i, Ordering::AcqRel));
            },
            |i| {
                ctx.atomic_fetch_add(words.at(32)?, i, other).map(|held| {
                    black_box(held);
                })
            },
        )?;
        let values: Vec<u64> = (0..64).collect();
        self.one_sided(
            "64 put_nbi of 8 bytes, then quiet",
            1,
            |_| {
                for (i, value) in values.iter().enumerate() {
                    // SAFETY: the words 64..128 are mapped while the world lives.
                    unsafe { AtomicU64::from_ptr(far.as_ptr().add(i)) }.store(black_box(*value), Ordering::Release);
                }
                fence(Ordering::SeqCst);
            },
            |_| {
                ctx.scope(|scope| {
                    (0..64).try_for_each(|i| {
                        scope.put_nbi(words.slice(64 + i..65 + i)?, std::slice::from_ref(&values[i]), other)
                    })
                })
            },
        )?;
        let mut raw = 0;
        let mut ours = 1 << 40;
        self.both(
            "p + wait, one way",
            2,
            || {
                raw += 1;
                if me == 0 {
                    far_flag(&there, 0)?.store(raw, Ordering::Release);
                    while near.load(Ordering::Acquire) < raw {}
                } else {
                    while near.load(Ordering::Acquire) < raw {}
                    far_flag(&there, 0)?.store(raw, Ordering::Release);
                }
                Ok(())
            },
            || {
                ours += 1;
                let flag = words.slice(16..17)?;
                if me == 0 {
                    ctx.p(flag, ours, other)?;
                    ctx.wait(flag, |value| value >= ours)?;
                } else {
                    ctx.wait(flag, |value| value >= ours)?;
                    ctx.p(flag, ours, other)?;
                }
                Ok(())
            },
        )?;
        let mut epoch = 1 << 50;
        let raw_barrier = |epoch: u64| -> Result<()> {
            far_flag(&there, 0)?.store(epoch, Ordering::Release);
            while near.load(Ordering::Acquire) < epoch {}
            Ok(())
        };
        self.both(
            "barrier_all",
            1,
            || {
                epoch += 1;
                raw_barrier(epoch)
            },
            || self.world.barrier_all(),
        )?;
        let mut epoch = 1 << 51;
        self.both(
            "sync_all",
            1,
            || {
                epoch += 1;
                raw_barrier(epoch)
            },
            || self.world.sync_all(),
        )?;
        self.bandwidth(other)
    }

    /// Copies of several sizes against the better of memcpy and non-temporal stores.
    fn bandwidth(&self, other: usize) -> Result<()> {
        let (source, target) = (self.source.sym(), self.target.sym());
        let far = self.ctx.ptr(target, other)?.expect("mapped");
        for bytes in [10, 12, 14, 16, 18, 20, 21, 22, 23, 24].map(|shift| 1_usize << shift) {
            let part = source.slice(..bytes)?;
            let copy = || self.ctx.put_from(target, part, other);
            let memcpy = || {
                // SAFETY: both are mapped, hold the bytes, and lie in different heaps.
                unsafe { far.copy_from_nonoverlapping(black_box(part.as_ptr()), bytes) };
                Ok(())
            };
            let stream = || {
                // SAFETY: as above; both are aligned to a cache line.
                unsafe { stream(far, black_box(part.as_ptr()), bytes) };
                Ok(())
            };
            let times = self.in_turns(1, &mut [&mut { memcpy }, &mut { stream }, &mut { copy }], true)?;
            if self.world.me() == 0 {
                let rate = |time: f64| format!("{:.1} GB/s", bytes as f64 / time);
                let ratios = times.iter().map(|t| t[0].min(t[1]) / t[2]).collect();
                let label = format!("put_from, {} KiB (memcpy {})", bytes / 1024, rate(median(&times, 0)));
                let better = median(&times, 0).min(median(&times, 1));
                println!("{label:34} {:>12} {:>12} {:>8.2}", rate(better), rate(median(&times, 2)), middle(ratios));
            }
        }
        Ok(())
    }

    /// More PEs than cores.
    fn crowd(&self) -> Result<()> {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..9 {
            let repeat = 2000 / self.world.n_pes();
            self.world.barrier_all()?;
            let begin = Instant::now();
            for _ in 0..repeat {
                self.world.barrier_all()?;
            }
            times.push(begin.elapsed().as_secs_f64() / repeat as f64);
        }
        let begin = cpu_time();
        let waiting = self.words.sym().slice(0..1)?;
        if self.world.me() == 0 {
            std::thread::sleep(Duration::from_secs(2));
            for pe in 1..self.world.n_pes() {
                self.ctx.p(waiting, 1, pe)?;
            }
        } else {
            self.ctx.wait(waiting, |value| value == 1)?;
        }
        let idle = cpu_time() - begin;
        let idle_all = self.world.alloc_zeroed::<u64>(1)?;
        self.ctx.atomic_add(idle_all.sym(), idle.as_nanos() as u64, 0)?;
        self.world.barrier_all()?;
        if self.world.me() == 0 {
            let n = self.world.n_pes();
            let barrier = Duration::from_secs_f64(middle(times));
            println!("{:34} {:>12} {:>12}", format!("barrier_all, {n} PEs"), "", show(barrier));
            let idle = Duration::from_nanos(idle_all.sym().read(0)?) * 5;
            println!("{:34} {:>12} {:>12}", format!("CPU of {n} PEs idle for 10 s"), "", show(idle));
        }
        Ok(())
    }

    /// PE 0 runs both sides, the other waits.
    fn one_sided(&self, label: &str, batch: u64, raw: impl Fn(u64), ours: impl Fn(u64) -> Result<()>) -> Result<()> {
        if self.world.me() == 0 {
            let mut raw = || {
                (0..batch).for_each(|i| raw(black_box(i)));
                Ok(())
            };
            let mut ours = || (0..batch).try_for_each(|i| ours(black_box(i)));
            let times = self.in_turns(batch as usize, &mut [&mut raw, &mut ours], true)?;
            report(label, &times);
        }
        self.world.barrier_all()
    }

    /// Both PEs run both sides, in lockstep.
    fn both(
        &self,
        label: &str,
        parts: usize,
        mut raw: impl FnMut() -> Result<()>,
        mut ours: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let times = self.in_turns(parts, &mut [&mut raw, &mut ours], false)?;
        if self.world.me() == 0 {
            report(label, &times);
        }
        self.world.barrier_all()
    }

    /// PE 0's value, on both.
    fn as_pe_0_says(&self, value: u64) -> Result<u64> {
        let word = self.words.sym().slice(48..49)?;
        if self.world.me() == 0 {
            word.write(0, value)?;
        }
        self.world.barrier_all()?;
        let value = self.ctx.g(word, 0)?;
        self.world.barrier_all()?;
        Ok(value)
    }

    /// Nanoseconds of one part of each side, round by round.
    fn in_turns(
        &self,
        parts: usize,
        sides: &mut [&mut dyn FnMut() -> Result<()>],
        alone: bool,
    ) -> Result<Vec<Vec<f64>>> {
        let mut repeats = Vec::new();
        for side in sides.iter_mut() {
            let mut repeat = 1;
            loop {
                let begin = Instant::now();
                for _ in 0..repeat {
                    side()?;
                }
                let next = if begin.elapsed() > SLICE { 0 } else { 2 * repeat };
                match if alone { next } else { self.as_pe_0_says(next)? } {
                    0 => break,
                    next => repeat = next,
                }
            }
            repeats.push(repeat);
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut times = Vec::new();
            for (side, repeat) in sides.iter_mut().zip(&repeats) {
                if !alone {
                    self.world.barrier_all()?;
                }
                let begin = Instant::now();
                for _ in 0..*repeat {
                    side()?;
                }
                times.push(begin.elapsed().as_secs_f64() * 1e9 / *repeat as f64 / parts as f64);
            }
            rounds.push(times);
        }
        Ok(rounds)
    }
}

fn far_flag<'a>(there: &impl Fn(usize) -> Result<&'a AtomicU64>, i: usize) -> Result<&'a AtomicU64> {
    there(i)
}

fn report(label: &str, times: &[Vec<f64>]) {
    let ratios = times.iter().map(|t| t[1] / t[0]).collect();
    let show = |ns: f64| format!("{ns:.2} ns");
    println!("{label:34} {:>12} {:>12} {:>8.2}", show(median(times, 0)), show(median(times, 1)), middle(ratios));
}

fn median(times: &[Vec<f64>], side: usize) -> f64 {
    middle(times.iter().map(|t| t[side]).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// # Safety
/// Both are valid for `bytes`, a multiple of 64, and aligned to 64; they do not overlap.
unsafe fn stream(target: *mut u8, source: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; the caller vouches for the rest.
        return unsafe { stream_avx512(target, source, bytes) };
    }
    // SAFETY: the caller vouches for both.
    unsafe { target.copy_from_nonoverlapping(source, bytes) }
}

/// # Safety
/// As [`stream`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(target: *mut u8, source: *const u8, bytes: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm512_load_si512, _mm512_stream_si512};
    for at in (0..bytes).step_by(256) {
        for line in (at..at + 256).step_by(64) {
            // SAFETY: the caller vouches for `bytes`, and sizes here are multiples of 256.
            unsafe { _mm512_stream_si512(target.add(line).cast(), _mm512_load_si512(source.add(line).cast())) };
        }
    }
    _mm_sfence();
}
