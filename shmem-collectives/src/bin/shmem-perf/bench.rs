//! The sweeps of one operation over sizes, types and reductions: check, warm up, time, print a line.

use shmem::{Result, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Op, Type};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

use crate::case::{Case, Memory, Spec, need};
use crate::layout::Operation;
use crate::time::{Clock, Times};
use crate::{Bench, Sizes, Which};

/// Bytes that one sample of a short one-sided operation moves: many calls, for a call takes less time than reading the
/// clock.
const SAMPLE: usize = 64 << 10;

/// 64-bit words between words that different PEs write: a pair of cache lines.
const APART: usize = 16;

/// Runs the sweeps as one PE, one for each type and reduction; wrong elements on all PEs.
pub(crate) fn run(world: &World, operation: Operation, bench: &Bench) -> Result<u64> {
    let Bench { sizes, calls, algorithm, .. } = bench;
    let (team, n) = (world.team(), world.n_pes());
    let mut coll = Coll::new(world, &team)?;
    if let (Some(algorithm), Some(what)) = (algorithm, operation.like()) {
        coll.selection_mut().force(what.name(), algorithm)?;
    }
    let pairs = sizes.pairs(operation).map_err(shmem::Error::other)?;
    let lens = |size: usize| if operation.is_sized() { sizes.lens(size) } else { vec![1] };
    let bytes = |size: usize| lens(size).last().copied().unwrap_or(1).saturating_mul(size);
    let block = pairs.iter().map(|(_, _, size)| bytes(*size)).max().unwrap_or(1);
    let (from, into) = operation.blocks(n);
    let memory = |blocks: usize| world.align::<u8>(4096, block.saturating_mul(blocks));
    let (src, dst) = (memory(from)?, memory(into)?);
    let words = world.alloc_zeroed::<u64>(2 * APART)?;
    let cell = world.alloc_zeroed::<u64>((*calls).max(1) as usize)?;
    let ctx = world.ctx();
    let clock = Clock { world, ctx: &ctx, cell: cell.sym() };
    let memory = Memory {
        src: src.sym(),
        dst: dst.sym(),
        signal: words.sym().slice(..APART)?,
        counter: words.sym().slice(APART..)?,
    };
    let mut all_wrong = 0;
    for (ty, op, size) in pairs {
        if world.me() == 0 {
            head(operation, op, bench, n);
        }
        for len in lens(size) {
            let spec = Spec { world, ctx: &ctx, coll: &coll, memory, operation, ty, op, len };
            spec.with(&mut |case| {
                let (times, wrong) = measure(&clock, case, operation, len * size, bench)?;
                all_wrong += wrong;
                if world.me() == 0 {
                    let algorithm = coll.latest_algorithm().map_or("-", Algorithm::name);
                    line(&Row { operation, ty, n, len, size, times, algorithm, wrong });
                }
                Ok(())
            })?;
        }
    }
    world.free(cell)?;
    world.free(words)?;
    world.free(dst)?;
    world.free(src)?;
    Ok(all_wrong)
}

/// The times of a case whose block has so many bytes, and wrong elements on all PEs.
fn measure(
    clock: &Clock<'_, '_>,
    case: &mut dyn Case,
    operation: Operation,
    bytes: usize,
    bench: &Bench,
) -> Result<(Times, u64)> {
    let mut wrong = 0;
    for _ in 0..bench.checks {
        wrong += check(clock, case)?;
    }
    for _ in 0..bench.warm_ups {
        case.call()?;
    }
    Ok((clock.time(case, bench.calls as usize, inner(operation, bytes))?, wrong))
}

/// One call on spoilt targets; wrong elements on all PEs.
fn check(clock: &Clock<'_, '_>, case: &mut dyn Case) -> Result<u64> {
    case.spoil();
    clock.world.barrier_all()?;
    case.call()?;
    case.complete()?;
    clock.world.barrier_all()?;
    clock.sum(case.wrong()?)
}

/// Calls of one sample.
fn inner(operation: Operation, bytes: usize) -> usize {
    match operation {
        Operation::Put | Operation::Get | Operation::FetchAdd => (SAMPLE / bytes.max(1)).clamp(1, 256),
        _ => 1,
    }
}

impl Sizes {
    /// The types and reductions to be measured, with the bytes of an element; of what combines nothing, each type once.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn pairs(&self, operation: Operation) -> Result<Vec<(Type, Op, usize)>, String> {
        let types = match self.ty {
            Which::One(ty) => vec![ty],
            Which::All if operation.is_sized() => Type::ALL.to_vec(),
            Which::All => vec![Type::F32],
        };
        let ops = match self.op {
            _ if !operation.reduces() => vec![Op::Sum],
            Which::One(op) => vec![op],
            Which::All => Op::ALL.to_vec(),
        };
        let pair =
            |ty, op| need(operation.like().unwrap_or(Collective::AllGather), ty, op).map(|need| (ty, op, need.size));
        let all = types.into_iter().flat_map(|ty| ops.iter().map(move |op| pair(ty, *op)));
        let (known, unknown): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        match unknown.into_iter().find_map(Result::err) {
            Some(why) if known.is_empty() => Err(why),
            _ => Ok(known.into_iter().flatten().collect()),
        }
    }

    /// The lengths of the sweep, for elements of `size` bytes: each once, none below one element.
    pub(crate) fn lens(&self, size: usize) -> Vec<usize> {
        let next = |bytes: &usize| bytes.checked_mul(self.factor as usize).filter(|next| *next <= self.end);
        let mut lens: Vec<usize> =
            std::iter::successors(Some(self.begin), next).map(|bytes| (bytes / size).max(1)).collect();
        lens.dedup();
        lens
    }
}

/// A line of the table.
struct Row<'a> {
    operation: Operation,
    ty: Type,
    n: usize,
    len: usize,
    size: usize,
    times: Times,
    algorithm: &'a str,
    wrong: u64,
}

fn head(operation: Operation, op: Op, bench: &Bench, n: usize) {
    let Bench { calls, warm_ups, .. } = bench;
    let name = match operation {
        Operation::Collective(what) if what.reduces() => format!("{what} ({op})"),
        Operation::Collective(what) => what.to_string(),
        Operation::ReduceScatterV => format!("{} ({op})", operation.name()),
        _ => operation.name().to_owned(),
    };
    println!("# {name}, {n} PEs, {calls} calls after {warm_ups}; bytes of a block, microseconds, GB/s");
    println!(
        "#{:>11} {:>11} {:>10} {:>11} {:>11} {:>11} {:>10}  {:<12} {:>9} {:>7}",
        "size", "count", "type", "min", "median", "p99", "deviation", "algorithm", "bus", "wrong"
    );
}

fn line(row: &Row<'_>) {
    let Row { operation, ty, n, len, size, times, algorithm, wrong } = row;
    let Times { min, median, p99, deviation } = times;
    let (bytes, count, shown) = match operation {
        Operation::Barrier | Operation::Sync => (0, 0, "-"),
        Operation::FetchAdd => (8, 1, "u64"),
        _ => (len * size, *len, ty.name()),
    };
    let bus = operation.bus_factor(*n) * bytes as f64 / (median * 1e3).max(f64::MIN_POSITIVE);
    println!(
        "{bytes:>12} {count:>11} {shown:>10} {min:>11.3} {median:>11.3} {p99:>11.3} {deviation:>10.3}  \
         {algorithm:<12} {bus:>9.3} {wrong:>7}"
    );
}
