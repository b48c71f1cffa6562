//! Whether the right algorithm is taken, what the comparison of calls costs, and how good the predictions are:
//! `cargo bench -p shmem-collectives --bench choices [-- COLLECTIVE]`.
//!
//! Starts PEs as processes: first `shmem-perf tune`, then itself with the table that this has written. All contestants
//! take turns, in batches of some milliseconds; what is printed are medians over the rounds, and medians of the ratios
//! of each round, so that a machine that is slower for a while is so for all. f32, sum, root 0, bytes of a block.
//!
//! - *choice*: the table's algorithm for every collective and size against each forced one: the ratio to the best, and
//!   to the same algorithm forced, which tells how much is chance. The aim is a ratio of at most 1.10.
//! - *check*: calls of 8 bytes whose digests are compared between the PEs, against the same with nothing in them. The
//!   aim is less than 1 %.
//! - *model*: the time that the cost model predicts for every algorithm and size, against what was measured.
//!
//! Settings: `PES` (2), `ROUNDS` (9), `BATCH` (milliseconds of a batch, 2), `BYTES` (a list such as `8,4K,1M`), and
//! `TABLE=built-in` for the table that is built in instead of a measured one. `BYTES=8,4K ROUNDS=1` is a short try.

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use shmem::config::parse_size;
use shmem::{Result, SymBox, World};
use shmem_collectives::model::{Machine, simulate};
use shmem_collectives::op::Sum;
use shmem_collectives::plan::{Collective, Hosts, Problem};
use shmem_collectives::plans::Algorithm;
use shmem_collectives::select::{Need, Partial};
use shmem_collectives::{Coll, Selection};

use common::{Timer, launcher, median, number, scratch};

/// Around and between the sizes at which the tuner measures.
const BYTES: &str = "8,64,112,128,400,1K,3K,8K,24K,64K,200K,512K,1M,3M";

fn main() -> Result<()> {
    if std::env::var_os("SHMEM_RENDEZVOUS").is_some() {
        return shmem::run(pe);
    }
    let n = number("PES", 2);
    let folder = scratch();
    let table = folder.path().join("table");
    let mut run = launcher(n);
    if std::env::var("TABLE").as_deref() != Ok("built-in") {
        let mut tune = launcher(n);
        tune.arg(env!("CARGO_BIN_EXE_shmem-perf")).args(["tune", "-o"]).arg(&table);
        succeed(&mut tune);
        run.env("SHMEM_COLL_TABLE", &table);
    }
    run.arg(std::env::current_exe().expect("this benchmark")).args(std::env::args().skip(1));
    succeed(&mut run);
    Ok(())
}

fn succeed(command: &mut Command) {
    let status = command.status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}

/// Times of one collective and size.
struct Point {
    what: Collective,
    bytes: usize,
    choice: Algorithm,
    /// Of each round.
    by_choice: Vec<f64>,
    forced: BTreeMap<Algorithm, Vec<f64>>,
}

impl Point {
    /// The median over the rounds of the choice's time by an algorithm's.
    fn ratio(&self, algorithm: Algorithm) -> f64 {
        let pairs = self.by_choice.iter().zip(&self.forced[&algorithm]);
        median(pairs.map(|(choice, forced)| choice / forced).collect())
    }

    fn best(&self) -> Algorithm {
        let medians = self.forced.iter().map(|(algorithm, times)| (*algorithm, median(times.clone())));
        medians.min_by(|(_, a), (_, b)| a.total_cmp(b)).expect("an algorithm").0
    }
}

struct Bench<'a, 't> {
    timer: Timer<'a>,
    coll: Coll<'t>,
    table: Selection,
    src: SymBox<'a, f32>,
    dst: SymBox<'a, f32>,
    rounds: usize,
    batch: Duration,
}

fn pe(world: &World) -> Result<()> {
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    let list = std::env::var("BYTES").unwrap_or_else(|_| BYTES.into());
    let sizes: Vec<usize> = list.split(',').filter_map(|size| parse_size(size.trim())).collect();
    let most = sizes.iter().max().copied().unwrap_or(8) / 4 * world.n_pes();
    let (team, memory) = (world.team(), || world.align::<f32>(4096, most.max(2)));
    let (src, dst) = (memory()?, memory()?);
    src.sym().fill(1.0);
    dst.sym().fill(0.0);
    let mut coll = Coll::new(world, &team)?;
    let table = coll.selection_mut().clone();
    let (rounds, batch) = (number("ROUNDS", 9).max(1), Duration::from_millis(number("BATCH", 2) as u64));
    let mut bench = Bench { timer: Timer::new(world)?, coll, table, src, dst, rounds, batch };
    let mut points = Vec::new();
    for what in Collective::all(0).into_iter().filter(|what| what.name().contains(&filter)) {
        for &bytes in &sizes {
            points.push(bench.point(what, bytes)?);
        }
    }
    let checks = bench.checks(&filter)?;
    if world.me() == 0 {
        println!("{} PEs, medians of {rounds} rounds, µs\n", world.n_pes());
        choices(&points);
        println!("\n| 8 bytes | compared | not compared | cost |\n|---|---|---|---|");
        for (name, [with, without], ratio) in checks {
            println!("| {name} | {with:.3} | {without:.3} | {:+.2} % |", 100.0 * (ratio - 1.0));
        }
        bench.predictions(&points);
    }
    Ok(())
}

impl Bench<'_, '_> {
    fn call(&self, what: Collective, bytes: usize) -> Result<()> {
        let (n, len) = (self.timer.world.n_pes(), bytes / 4);
        let (from, into) = what.blocks(n);
        let (src, dst) = (self.src.sym().slice(..from * len)?, self.dst.sym().slice(..into * len)?);
        match what {
            Collective::AllReduce => self.coll.all_reduce(dst, src, Sum),
            Collective::Reduce { root } => self.coll.reduce(dst, src, Sum, root),
            Collective::ReduceScatter => self.coll.reduce_scatter(dst, src, Sum),
            Collective::AllGather => self.coll.all_gather(dst, src),
            Collective::Gather { root } => self.coll.gather(dst, src, root),
            Collective::Scatter { root } => self.coll.scatter(dst, src, root),
            Collective::Broadcast { root } => self.coll.broadcast(dst, src, root),
            Collective::AllToAll => self.coll.all_to_all(dst, src),
            Collective::InclusiveScan => self.coll.inclusive_scan(dst, src, Sum),
            Collective::ExclusiveScan => self.coll.exclusive_scan(dst, src, Sum),
        }
    }

    /// Takes an algorithm, or what the table says.
    fn take(&mut self, what: Collective, algorithm: Option<Algorithm>) -> Result<()> {
        *self.coll.selection_mut() = self.table.clone();
        algorithm.map_or(Ok(()), |algorithm| self.coll.selection_mut().force(what.name(), algorithm.name()))
    }

    fn point(&mut self, what: Collective, bytes: usize) -> Result<Point> {
        // Those that can: without memory, another is taken.
        let mut contestants: Vec<(Option<Algorithm>, u64)> = Vec::new();
        let mut choice = Algorithm::Direct;
        for algorithm in std::iter::once(None).chain(Algorithm::ALL.map(Some)) {
            if algorithm.is_some_and(|algorithm| !algorithm.plans(what)) {
                continue;
            }
            self.take(what, algorithm)?;
            self.call(what, bytes)?;
            let taken = self.coll.latest_algorithm();
            choice = if algorithm.is_none() { taken.unwrap_or(choice) } else { choice };
            if algorithm.is_none() || taken == algorithm {
                contestants.push((algorithm, self.timer.calls(self.batch, &|| self.call(what, bytes))?));
            }
        }
        let mut point = Point { what, bytes, choice, by_choice: Vec::new(), forced: BTreeMap::new() };
        for _ in 0..self.rounds {
            for &(algorithm, calls) in &contestants {
                self.take(what, algorithm)?;
                let time = self.timer.batch(calls, &|| self.call(what, bytes))?;
                match algorithm {
                    None => point.by_choice.push(time),
                    Some(algorithm) => point.forced.entry(algorithm).or_default().push(time),
                }
            }
        }
        Ok(point)
    }

    /// Calls of 8 bytes with and without comparison: names, medians, and the median of the ratios.
    fn checks(&mut self, filter: &str) -> Result<Vec<(&'static str, [f64; 2], f64)>> {
        let mut rows = Vec::new();
        for what in Collective::all(0).into_iter().filter(|what| what.name().contains(filter)) {
            self.take(what, None)?;
            let calls = self.timer.calls(self.batch, &|| self.call(what, 8))?;
            let mut times = [Vec::new(), Vec::new()];
            // Many short batches, in which order changes: what is looked for is smaller than what drifts.
            for round in 0..20 * self.rounds {
                for which in [round % 2, 1 - round % 2] {
                    self.coll.set_compared(which == 0);
                    times[which].push(self.timer.batch(calls, &|| self.call(what, 8))?);
                }
            }
            self.coll.set_compared(true);
            let ratios = times[0].iter().zip(&times[1]).map(|(with, without)| with / without).collect();
            rows.push((what.name(), times.map(median), median(ratios)));
        }
        Ok(rows)
    }

    /// Predicted and measured times of every algorithm.
    fn predictions(&self, points: &[Point]) {
        let n = self.timer.world.n_pes();
        let hosts = Hosts::one(n);
        let room = Coll::room(self.timer.world.config().team_workspace, n, 4);
        println!(
            "\n| collective | bytes | algorithm | predicted | measured | measured / predicted |\n|---|---|---|---|---|---|"
        );
        let mut ratios = Vec::new();
        for Point { what, bytes, forced, .. } in points {
            for (algorithm, times) in forced {
                let mut selection = self.table.clone();
                let problem = Problem { what: *what, n, len: bytes / 4, chunk: 1, in_place: false };
                let need = Need { room, size: 4, partial: Partial::Elements, whole: false };
                let forced = selection.force(what.name(), algorithm.name()).is_ok();
                let Some(choice) = selection.explain(&problem, &hosts, need).filter(|_| forced) else { continue };
                let problem = Problem { chunk: choice.chunk, ..problem };
                let Ok(report) = simulate(*algorithm, &problem, &hosts, &Machine::MEASURED, 4) else { continue };
                let (predicted, measured) = (report.ns / 1e3, median(times.clone()));
                ratios.push(measured / predicted);
                println!(
                    "| {} | {bytes} | {algorithm} | {predicted:.2} | {measured:.2} | {:.2} |",
                    what.name(),
                    measured / predicted
                );
            }
        }
        ratios.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
            let at = |share: usize| ratios[(ratios.len() - 1) * share / 100];
            println!(
                "\nmeasured / predicted: {least:.2} to {most:.2}, of which the middle half {:.2} to {:.2}, median {:.2}",
                at(25),
                at(75),
                at(50)
            );
        }
    }
}

fn choices(points: &[Point]) {
    println!("| collective | bytes | choice | µs | best | µs | choice / best | choice / same forced |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut beyond = Vec::new();
    for point in points {
        let (best, choice) = (point.best(), point.choice);
        let ratio = point.ratio(best);
        let same = if point.forced.contains_key(&choice) { point.ratio(choice) } else { f64::NAN };
        println!(
            "| {} | {} | {choice} | {:.2} | {best} | {:.2} | {ratio:.2} | {same:.2} |",
            point.what.name(),
            point.bytes,
            median(point.by_choice.clone()),
            median(point.forced[&best].clone())
        );
        if ratio > 1.10 {
            beyond.push(format!("{} of {} bytes ({ratio:.2})", point.what.name(), point.bytes));
        }
    }
    println!("\nfurther than 10 % from the best: {} of {}: {}", beyond.len(), points.len(), beyond.join(", "));
}
