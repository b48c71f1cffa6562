//! Measures every algorithm for every collective and size of a sweep, and writes the fastest as a table.
//!
//! All PEs time the same calls and know the times of the slowest, so that all decide the same at every point. A size with close times keeps the algorithm
//! of the size before: chance makes no rows.

use std::time::Duration;

use shmem::{Error, Result, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Op, Type};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;
use shmem_collectives::select::{Row, Where, text};

use crate::Tune;
use crate::case::{Memory, Spec};
use crate::layout::{OPERATIONS, Operation};
use crate::time::Clock;

/// Bytes of a block. Dense where one-shot and direct change over.
const SIZES: [usize; 12] =
    [8, 128, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20];

/// What all measurements may take together, where calls take microseconds.
const BUDGET: Duration = Duration::from_secs(2);
/// Measurements of one algorithm and size, in turn with those of the others.
const ROUNDS: usize = 3;
/// Calls of one measurement at most.
const CALLS: usize = 100;
/// How much slower than the fastest an algorithm may be in the first round, to be measured again.
const HOPELESS: f64 = 1.5;
/// How much slower than the fastest the algorithm of the size before may be, to be kept.
const CLOSE: f64 = 1.04;

/// Runs as one PE; no elements are wrong.
pub(crate) fn run(world: &World, tune: &Tune) -> Result<u64> {
    let (team, n) = (world.team(), world.n_pes());
    let mut coll = Coll::new(world, &team)?;
    let most = SIZES[SIZES.len() - 1] * n;
    let (src, dst) = (world.align::<u8>(4096, most)?, world.align::<u8>(4096, most)?);
    let words = world.alloc_zeroed::<u64>(1)?;
    let cell = world.alloc_zeroed::<u64>(CALLS)?;
    let ctx = world.ctx();
    let clock = Clock { world, ctx: &ctx, cell: cell.sym() };
    let memory = Memory { src: src.sym(), dst: dst.sym(), signal: words.sym(), counter: words.sym() };
    let collectives = OPERATIONS.into_iter().filter_map(|operation| match operation {
        Operation::Collective(what) => Some(what),
        _ => None,
    });
    let points: usize = collectives.clone().map(|what| candidates(what).count() * SIZES.len()).sum();
    let share = BUDGET / (points * ROUNDS) as u32;
    let mut rows: Vec<Row> = Vec::new();
    for what in collectives {
        let operation = Operation::Collective(what);
        let mut before = None;
        for bytes in SIZES {
            let mut times: Vec<(Algorithm, f64)> = Vec::new();
            for round in 0..ROUNDS {
                let best = fastest(&times);
                for algorithm in candidates(what) {
                    let known = times.iter().position(|(known, _)| *known == algorithm);
                    let hopeless = |i: usize| best.is_some_and(|(_, best)| times[i].1 > HOPELESS * best);
                    if round > 0 && known.is_none_or(hopeless) {
                        continue;
                    }
                    coll.selection_mut().force(what.name(), algorithm.name())?;
                    let (ty, op) = (Type::F32, Op::Sum);
                    let spec =
                        Spec { world, ctx: &ctx, coll: &coll, memory, operation, ty, op, len: bytes / ty.size() };
                    let mut time = f64::INFINITY;
                    spec.with(&mut |case| {
                        let probe = clock.time(case, 2, 1)?.min;
                        // Half of a sample is the barrier before.
                        let calls = share.as_secs_f64() * 1e6 / (2.0 * probe.max(0.1));
                        time = clock.time(case, (calls as usize).clamp(3, CALLS), 1)?.median;
                        Ok(())
                    })?;
                    match known {
                        Some(i) => times[i].1 = times[i].1.min(time),
                        None if coll.latest_algorithm() == Some(algorithm) => times.push((algorithm, time)),
                        // It does not fit in the workspace.
                        None => {}
                    }
                }
            }
            let kept = times.iter().find(|(algorithm, _)| Some(*algorithm) == before);
            let (mut chosen, best) = fastest(&times).unwrap_or((Algorithm::Direct, 0.0));
            if let Some((algorithm, _)) = kept.filter(|(_, time)| *time <= CLOSE * best) {
                chosen = *algorithm;
            }
            match rows.last_mut() {
                Some(row) if before == Some(chosen) => row.up_to = bytes,
                _ => {
                    let (collective, hosts, why) = (what.name(), Where::OneHost, "measured");
                    rows.push(Row { collective, hosts, up_to: bytes, algorithm: chosen, why });
                }
            }
            before = Some(chosen);
        }
        if let Some(row) = rows.last_mut() {
            row.up_to = usize::MAX;
        }
    }
    world.free(cell)?;
    world.free(words)?;
    world.free(dst)?;
    world.free(src)?;
    if world.me() == 0 {
        write(tune, n, &rows)?;
    }
    Ok(0)
}

/// What is worth trying where memory is shared.
fn candidates(what: Collective) -> impl Iterator<Item = Algorithm> + Clone {
    let naive = [Algorithm::Mesh, Algorithm::Hierarchical];
    Algorithm::ALL.into_iter().filter(move |algorithm| algorithm.plans(what) && !naive.contains(algorithm))
}

fn fastest(times: &[(Algorithm, f64)]) -> Option<(Algorithm, f64)> {
    times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

fn write(tune: &Tune, n: usize, rows: &[Row]) -> Result<()> {
    let text = text(&format!("Measured by `shmem-perf tune` with {n} PEs on one host."), rows);
    match &tune.out {
        None => print!("{text}"),
        Some(path) => {
            let failed = |error| Error::other(std::io::Error::other(format!("{}: {error}", path.display())));
            std::fs::write(path, text).map_err(failed)?;
        }
    }
    Ok(())
}
