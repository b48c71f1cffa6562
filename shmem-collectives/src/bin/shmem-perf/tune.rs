//! Measures every algorithm for every collective and size of a sweep, and the modes of the exchange between experts, and writes the
//! fastest as a table.
//!
//! All PEs time the same calls and know the times of the slowest, so that all decide the same at every point. Where times are
//! close, the table that is there already is right, or else the algorithm of the size before: chance makes no rows.
//!
//! Each measurement gets a share of the time that is left, at least a few calls; when none is left, the rest stays as it is.
//!
//! Each call is timed alone after a barrier, as `shmem-perf` itself and `benches/choices.rs` time it. Calls in rows would flatter the one-shot
//! algorithm, whose root does not wait for the others: up to 2 KiB they preferred it to one that is 1.5 times as fast.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use shmem::{Error, Meeting, Result, World};
use shmem_collectives::moe::MoeMode;
use shmem_collectives::op::{Op, Type};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;
use shmem_collectives::select::{Row, Table, Where, text};
use shmem_collectives::{Coll, Selection};

use crate::Tune;
use crate::case::{Memory, Spec};
use crate::exchange;
use crate::layout::{OPERATIONS, Operation};
use crate::time::Clock;

/// Bytes of a block. Dense where one-shot and direct change over: at what travels with a meeting, and beyond.
const SIZES: [usize; 13] = [
    8,
    8 * Meeting::PAYLOAD,
    128,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    128 << 10,
    512 << 10,
    1 << 20,
];

/// Measurements of one algorithm and size, in turn with those of the others.
const ROUNDS: usize = 5;
/// Calls of one measurement.
const CALLS: RangeInclusive<usize> = 3..=200;
/// How much slower than the fastest an algorithm may be in the first round, to be measured again.
const HOPELESS: f64 = 1.5;
/// How much slower than the fastest an algorithm may be, to be kept.
const CLOSE: f64 = 1.07;

/// Runs as one PE; no elements are wrong.
pub(crate) fn run(world: &World, tune: &Tune) -> Result<u64> {
    let (team, n) = (world.team(), world.n_pes());
    let cell = world.alloc_zeroed::<u64>(*CALLS.end())?;
    let ctx = world.ctx();
    let clock = || Clock { world, ctx: &ctx, cell: cell.sym() };
    let mut coll = Coll::new(world, &team)?;
    let table = coll.selection_mut().clone();
    let collectives = || OPERATIONS.into_iter().filter_map(Operation::collective);
    let of_collectives: usize = collectives().map(|what| of_race(candidates(what).len()) * SIZES.len()).sum();
    let of_exchanges = of_race(MoeMode::ALL.len()) * exchange::SIZES.len();
    let measurements = of_collectives + of_exchanges;
    let mut budget = Budget { begin: Instant::now(), time: tune.time, measurements, left: 0 };
    // Before anything else takes memory; their calls are the longest, and the others share what they leave.
    let moe = exchange::measure(&clock(), &team, &table, &mut budget)?;
    let most = SIZES[SIZES.len() - 1] * n;
    let (src, dst) = (world.align::<u8>(4096, most)?, world.align::<u8>(4096, most)?);
    let words = world.alloc_zeroed::<u64>(1)?;
    let memory = Memory { src: src.sym(), dst: dst.sym(), signal: words.sym(), counter: words.sym() };
    let mut stand = Stand { clock: clock(), coll, table, memory, share: Duration::ZERO };
    let mut rows: Vec<Row> = Vec::new();
    for what in collectives() {
        let mut points: Vec<(usize, Vec<Algorithm>)> = Vec::new();
        for bytes in SIZES {
            stand.share = budget.share(&stand.clock, candidates(what).len())?;
            let (known, times) = stand.race(what, bytes)?;
            let before = points.last().map_or(&[][..], |(_, before)| before);
            let best = preferred(&times, known, before, what.reduces());
            reach(&mut points, bytes, best);
        }
        open(&mut points);
        for (up_to, algorithms) in points {
            let row =
                |algorithm| Row { collective: what.name(), hosts: Where::OneHost, up_to, algorithm, why: "measured" };
            rows.extend(algorithms.into_iter().map(row));
        }
    }
    drop(stand);
    world.free(cell)?;
    world.free(words)?;
    world.free(dst)?;
    world.free(src)?;
    if world.me() == 0 {
        write(tune, n, budget.left, &Table { rows, moe })?;
    }
    Ok(0)
}

/// The time that there is, and what is still to be measured in it.
pub(crate) struct Budget {
    begin: Instant,
    time: Duration,
    measurements: usize,
    /// Races for which there was no time.
    left: usize,
}

impl Budget {
    /// What each measurement of the next race may take, between so many. Collective.
    pub(crate) fn share(&mut self, clock: &Clock<'_, '_>, candidates: usize) -> Result<Duration> {
        let share = self.time.saturating_sub(clock.since(self.begin)?) / self.measurements.max(1) as u32;
        self.measurements -= of_race(candidates);
        self.left += usize::from(share.is_zero());
        Ok(share)
    }
}

/// Measurements of a race between so many, and of what comes before.
const fn of_race(candidates: usize) -> usize {
    candidates * ROUNDS + 1
}

/// Calls of a measurement that may take so long, of which one takes so many microseconds.
pub(crate) fn calls(share: Duration, one: f64) -> usize {
    // There is a barrier before each call.
    let calls = share.as_secs_f64() * 1e6 / (2.0 * one.max(0.1));
    (calls as usize).clamp(*CALLS.start(), *CALLS.end())
}

/// The best times of some candidates, which take turns; those that cannot do it have none. Without time only what is known: few
/// calls would say nothing.
pub(crate) fn race<C: Copy>(
    candidates: &[C],
    known: Option<C>,
    share: Duration,
    mut measure: impl FnMut(C) -> Result<Option<f64>>,
) -> Result<Vec<(C, f64)>> {
    if share.is_zero() {
        return Ok(known.into_iter().map(|known| (known, 0.0)).collect());
    }
    let mut times = Vec::new();
    for &candidate in candidates {
        if let Some(time) = measure(candidate)? {
            times.push((candidate, time));
        }
    }
    let best = fastest(&times).map_or(0.0, |(_, best)| best);
    for _ in 1..ROUNDS {
        for (candidate, time) in times.iter_mut().filter(|(_, time)| *time <= HOPELESS * best) {
            *time = measure(*candidate)?.map_or(*time, |again| time.min(again));
        }
    }
    Ok(times)
}

/// The choice for so many bytes, which are more than before.
pub(crate) fn reach<C: PartialEq>(points: &mut Vec<(usize, C)>, bytes: usize, best: C) {
    match points.last_mut() {
        Some((up_to, before)) if *before == best => *up_to = bytes,
        _ => points.push((bytes, best)),
    }
}

/// The last choice holds for any bytes.
pub(crate) fn open<C>(points: &mut [(usize, C)]) {
    if let Some((up_to, _)) = points.last_mut() {
        *up_to = usize::MAX;
    }
}

/// Algorithms and what a call by them takes.
type Times = Vec<(Algorithm, f64)>;

/// What measurements are made with.
struct Stand<'a, 't> {
    clock: Clock<'a, 't>,
    coll: Coll<'t>,
    /// What chooses where nothing is forced.
    table: Selection,
    memory: Memory<'a>,
    /// What the next measurement may take.
    share: Duration,
}

impl Stand<'_, '_> {
    /// What the table has for it, and the times of all algorithms that can do it.
    fn race(&mut self, what: Collective, bytes: usize) -> Result<(Option<Algorithm>, Times)> {
        // Whoever is first meets cold memory, and would be given up for that.
        self.measure(what, bytes, None)?;
        let known = self.coll.latest_algorithm();
        let share = self.share;
        let times = race(&candidates(what), known, share, |algorithm| self.measure(what, bytes, Some(algorithm)))?;
        Ok((known, times))
    }

    /// Microseconds of a call by an algorithm, or by what the table has; none if it takes another, for want of memory.
    fn measure(&mut self, what: Collective, bytes: usize, algorithm: Option<Algorithm>) -> Result<Option<f64>> {
        let Stand { clock, coll, table, memory, share } = self;
        *coll.selection_mut() = table.clone();
        algorithm.map_or(Ok(()), |algorithm| coll.selection_mut().force(what.name(), algorithm.name()))?;
        let (ty, op, operation) = (Type::F32, Op::Sum, Operation::Collective(what));
        let (coll, len) = (&*coll, bytes / ty.size());
        let spec = Spec { world: clock.world, ctx: clock.ctx, coll, memory: *memory, operation, ty, op, len };
        let mut median = None;
        spec.with(&mut |case| {
            let probe = clock.time(case, 2, 1)?.min;
            if algorithm.is_none_or(|algorithm| coll.latest_algorithm() == Some(algorithm)) {
                median = Some(clock.time(case, calls(*share, probe), 1)?.median);
            }
            Ok(())
        })?;
        Ok(median)
    }
}

/// What to take: what is known, or the algorithm of the size before, if close to the fastest, else that; and if it does not fold
/// whole, then the best that does, for reductions that ask for it.
fn preferred(
    times: &[(Algorithm, f64)],
    known: Option<Algorithm>,
    before: &[Algorithm],
    reduces: bool,
) -> Vec<Algorithm> {
    let choose = |times: &[(Algorithm, f64)]| kept(times, known, before);
    let whole: Vec<_> = times.iter().copied().filter(|(algorithm, _)| algorithm.folds_whole()).collect();
    let mut chosen: Vec<Algorithm> = choose(times).into_iter().chain(choose(&whole)).collect();
    if !reduces || chosen.first().is_some_and(|first| first.folds_whole()) {
        chosen.truncate(1);
    }
    chosen
}

/// What is worth trying where memory is shared. Hierarchical is: it goes by segments, which stay in the cache.
fn candidates(what: Collective) -> Vec<Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plans(what) && *algorithm != Algorithm::Mesh).collect()
}

/// What is known, or one of before, if close to the fastest, else that.
pub(crate) fn kept<C: Copy + PartialEq>(times: &[(C, f64)], known: Option<C>, before: &[C]) -> Option<C> {
    let (fastest, best) = fastest(times)?;
    let close = |candidate: &&C| times.iter().any(|(it, time)| it == *candidate && *time <= CLOSE * best);
    Some(known.iter().chain(before).find(close).map_or(fastest, |kept| *kept))
}

fn fastest<C: Copy>(times: &[(C, f64)]) -> Option<(C, f64)> {
    times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

fn write(tune: &Tune, n: usize, left: usize, table: &Table) -> Result<()> {
    let mut head = format!("Measured by `shmem-perf tune` with {n} PEs on one host.");
    if left > 0 {
        head += &format!("\nFor {left} of the sizes there was no time (--time): they stay as they were.");
    }
    let text = text(&head, table);
    match &tune.out {
        None => print!("{text}"),
        Some(path) => {
            let failed = |error| Error::other(std::io::Error::other(format!("{}: {error}", path.display())));
            std::fs::write(path, text).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Algorithm::*;

    #[test]
    fn modes_are_kept_where_times_are_close() {
        use MoeMode::*;
        let times = [(Latency, 1.0), (Throughput, 1.05)];
        assert_eq!(kept(&times, Some(Throughput), &[Latency]), Some(Throughput));
        assert_eq!(kept(&times, None, &[Throughput]), Some(Throughput));
        assert_eq!(kept(&[(Latency, 1.0), (Throughput, 1.1)], Some(Throughput), &[Throughput]), Some(Latency));
        let mut points = Vec::new();
        for (bytes, best) in [(4, Latency), (16, Latency), (64, Throughput)] {
            reach(&mut points, bytes, best);
        }
        assert_eq!(points, [(16, Latency), (64, Throughput)]);
        open(&mut points);
        assert_eq!(points[1], (usize::MAX, Throughput));
    }

    #[test]
    fn close_times_change_nothing_and_reductions_that_fold_whole_have_a_row() {
        let times = [(Small, 1.05), (Direct, 1.0), (Ring, 3.0)];
        assert_eq!(preferred(&times, Some(Small), &[Direct], true), [Small]);
        assert_eq!(preferred(&times, Some(Ring), &[Small], true), [Small]);
        assert_eq!(preferred(&times, None, &[Ring, Direct], true), [Direct]);
        let times = [(Small, 2.0), (Direct, 1.5), (Ring, 1.0), (Recursive, 1.02)];
        assert_eq!(preferred(&times, None, &[Recursive, Small], true), [Recursive, Direct]);
        assert_eq!(preferred(&times, None, &[], true), [Ring, Direct]);
        assert_eq!(preferred(&times, None, &[], false), [Ring]);
        assert_eq!(preferred(&[], Some(Small), &[Small], true), []);
    }
}
