//! An operation on elements of a type: the only generic part, made once for each type and reduction that there is.
//!
//! Sources repeat themselves every [`PERIOD`] elements, so that the serial result of any size is that of one period for
//! every set of PEs. Their values are small whole numbers (powers of two for products), for which every type gives the
//! same result in any order.

use std::ops::Range;

use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};
use half::{bf16, f16};
use shmem::{Ctx, Elem, Result, Shared, SigRef, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Avg, Max, Min, Op, Prod, Reduce, Sum, Type, Visit};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Room;
use shmem_collectives::select::Need;

use crate::layout::{Holds, Operation};

/// Values of a source before they repeat: a prime, so that blocks of the usual lengths begin differently.
const PERIOD: usize = 101;

/// Something to be timed and checked, without its types.
pub(crate) trait Case {
    /// One call.
    fn call(&mut self) -> Result<()>;
    /// Ends what some calls have begun.
    fn complete(&mut self) -> Result<()>;
    /// Makes this PE's target worthless.
    fn spoil(&mut self);
    /// Elements of this PE's target that are not what they must be after the calls of all PEs.
    fn wrong(&self) -> Result<u64>;
}

/// The memory of all cases, the same on every PE.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'w> {
    pub(crate) src: SymSlice<'w, u8>,
    pub(crate) dst: SymSlice<'w, u8>,
    /// Zero at first: counts of signals and of additions.
    pub(crate) signal: SymSlice<'w, u64>,
    pub(crate) counter: SymSlice<'w, u64>,
}

/// What is timed.
#[derive(Clone, Copy)]
pub(crate) struct Spec<'a, 't> {
    pub(crate) world: &'t World,
    pub(crate) ctx: &'a Ctx<'t, Shared>,
    pub(crate) coll: &'a Coll<'t>,
    pub(crate) memory: Memory<'a>,
    pub(crate) operation: Operation,
    pub(crate) ty: Type,
    pub(crate) op: Op,
    /// Elements of a block.
    pub(crate) len: usize,
}

impl Spec<'_, '_> {
    /// Fills the source, and gives the case to `f`.
    pub(crate) fn with(self, f: &mut dyn FnMut(&mut dyn Case) -> Result<()>) -> Result<()> {
        dispatch(self.ty, self.op, Make { spec: self, f }).map_err(shmem::Error::other)?
    }
}

/// What a collective asks of an algorithm besides memory.
///
/// # Errors
/// Why there is no such reduction.
pub(crate) fn need(what: Collective, ty: Type, op: Op) -> Result<Need, String> {
    dispatch(ty, op, Needs(what))
}

/// Calls `visit` with a typed reduction: of those that the library has, the ones that NCCL's tests have, too. Each
/// costs a second of compilation.
fn dispatch<V: Visit>(ty: Type, op: Op, visit: V) -> Result<V::Out, String> {
    macro_rules! pairs {
        ($($variant:ident: $elem:ty),*; $($op:ident),*) => {
            pairs!(@types [$($op),*] $($variant: $elem),*)
        };
        (@types $ops:tt $($variant:ident: $elem:ty),*) => {
            match ty {
                $(Type::$variant => pairs!(@ops $variant: $elem, $ops),)*
                _ => Err(format!("{ty} is not measured: give one of {}", [$(Type::$variant.name()),*].join(", "))),
            }
        };
        (@ops $variant:ident: $elem:ty, [$($op:ident),*]) => {
            match op {
                $(Op::$op => Ok(visit.visit::<$elem, _>($op)),)*
                _ => Err(format!("{op} is not measured: give one of {}", [$(Op::$op.name()),*].join(", "))),
            }
        };
    }
    pairs!(U8: u8, I32: i32, I64: i64, F16: f16, Bf16: bf16, F32: f32, F64: f64; Sum, Prod, Min, Max, Avg)
}

struct Needs(Collective);

impl Visit for Needs {
    type Out = Need;

    fn visit<T: Elem, R: Reduce<T>>(self, _: R) -> Need {
        Need::of::<T, R>(self.0, Room::default())
    }
}

struct Make<'f, 'a, 't> {
    spec: Spec<'a, 't>,
    f: &'f mut dyn FnMut(&mut dyn Case) -> Result<()>,
}

impl Visit for Make<'_, '_, '_> {
    type Out = Result<()>;

    fn visit<T: Elem, R: Reduce<T>>(self, op: R) -> Result<()> {
        let Spec { world, memory, operation, ty, len, .. } = self.spec;
        let (n, me) = (world.n_pes(), world.me());
        let base = if self.spec.op == Op::Prod { 2 } else { PERIOD };
        let period = |pe: usize| -> Vec<T> {
            (0..PERIOD).map(|i| element(ty, 1 + ((pe * 31 + i * 7) % PERIOD % base) as u8)).collect()
        };
        let sources: Vec<Vec<T>> = (0..n).map(period).collect();
        let (from, into) = operation.blocks(n);
        let src = memory.src.slice(..from * len * size_of::<T>())?.cast::<T>()?;
        let dst = memory.dst.slice(..into * len * size_of::<T>())?.cast::<T>()?;
        let mine: Vec<T> = sources[me].iter().copied().cycle().take(src.len()).collect();
        src.copy_from(&mine)?;
        let calls = memory.signal.read(0)?;
        (self.f)(&mut Typed { spec: self.spec, op, sources, src, dst, mine, calls })
    }
}

struct Typed<'a, 't, T, R> {
    spec: Spec<'a, 't>,
    op: R,
    /// One period of the source of each PE.
    sources: Vec<Vec<T>>,
    src: SymSlice<'a, T>,
    dst: SymSlice<'a, T>,
    /// This PE's source, in private memory.
    mine: Vec<T>,
    /// Signals, or additions, that each PE has sent.
    calls: u64,
}

impl<T: Elem, R: Reduce<T>> Case for Typed<'_, '_, T, R> {
    fn call(&mut self) -> Result<()> {
        let Spec { world, ctx, coll, memory, operation, .. } = self.spec;
        let right = || (world.me() + 1) % world.n_pes();
        let (dst, src, op) = (self.dst, self.src, self.op);
        let what = match operation {
            Operation::Put => return ctx.put(dst, &self.mine, right()),
            Operation::Get => return ctx.get_into(dst, src, right()),
            Operation::PutSignal => {
                self.calls += 1;
                ctx.put_signal(dst, &self.mine, SigRef::add(memory.signal, 1), right())?;
                return ctx.wait(memory.signal, |count| count >= self.calls).map(|_| ());
            }
            Operation::FetchAdd => {
                self.calls += 1;
                return ctx.atomic_fetch_add(memory.counter, 1, right()).map(|_| ());
            }
            Operation::Barrier => return world.barrier_all(),
            Operation::Collective(what) => what,
        };
        match what {
            Collective::AllReduce => coll.all_reduce(dst, src, op),
            Collective::Reduce { root } => coll.reduce(dst, src, op, root),
            Collective::ReduceScatter => coll.reduce_scatter(dst, src, op),
            Collective::AllGather => coll.all_gather(dst, src),
            Collective::Gather { root } => coll.gather(dst, src, root),
            Collective::Scatter { root } => coll.scatter(dst, src, root),
            Collective::Broadcast { root } => coll.broadcast(dst, src, root),
            Collective::AllToAll => coll.all_to_all(dst, src),
            Collective::InclusiveScan => coll.inclusive_scan(dst, src, op),
            Collective::ExclusiveScan => coll.exclusive_scan(dst, src, op),
        }
    }

    fn complete(&mut self) -> Result<()> {
        match self.spec.operation {
            Operation::Put => self.spec.ctx.quiet(),
            _ => Ok(()),
        }
    }

    fn spoil(&mut self) {
        self.dst.fill(worthless());
    }

    fn wrong(&self) -> Result<u64> {
        let Spec { world, memory, operation, len, .. } = self.spec;
        if operation == Operation::FetchAdd {
            return Ok(u64::from(memory.counter.read(0)? != self.calls));
        }
        let (n, me) = (world.n_pes(), world.me());
        let (mut rest, mut wrong) = (&*self.dst.to_vec(), 0);
        for (part, holds) in operation.target(n, me, len) {
            let found;
            (found, rest) = rest.split_at(part);
            let (mut period, from) = match holds {
                Holds::Nothing => (vec![worthless(); PERIOD], 0),
                Holds::Source { pe, from } => (self.sources[pe].clone(), from),
                Holds::Sum { pes, from } => (self.combined(pes), from),
            };
            period.rotate_left(from % PERIOD);
            wrong += found.chunks(PERIOD).map(|found| differ(found, &period)).sum::<u64>();
        }
        Ok(wrong)
    }
}

impl<T: Elem, R: Reduce<T>> Typed<'_, '_, T, R> {
    /// One period of the serial result over some PEs, in their order.
    fn combined(&self, pes: Range<usize>) -> Vec<T> {
        let one = |i: usize| {
            let widened = self.sources[pes.clone()].iter().map(|source| self.op.widen(source[i]));
            let acc = widened.reduce(|left, right| self.op.combine(left, right));
            acc.map_or_else(worthless, |acc| self.op.finish(acc, pes.len()))
        };
        (0..PERIOD).map(one).collect()
    }
}

/// Elements that are not, bit for bit, what they must be.
fn differ<T: Elem>(found: &[T], expected: &[T]) -> u64 {
    let expected = &expected[..found.len()];
    if cast_slice::<T, u8>(found) == cast_slice::<T, u8>(expected) {
        return 0;
    }
    found.iter().zip(expected).filter(|(a, b)| bytes_of(*a) != bytes_of(*b)).count() as u64
}

fn worthless<T: Elem>() -> T {
    pod_read_unaligned(&vec![0xa5; size_of::<T>()])
}

/// A small value of one of the types of [`dispatch`].
fn element<T: Elem>(ty: Type, value: u8) -> T {
    match ty {
        Type::I32 => pod_read_unaligned(bytes_of(&i32::from(value))),
        Type::I64 => pod_read_unaligned(bytes_of(&i64::from(value))),
        Type::F16 => pod_read_unaligned(bytes_of(&f16::from(value))),
        Type::Bf16 => pod_read_unaligned(bytes_of(&bf16::from(value))),
        Type::F32 => pod_read_unaligned(bytes_of(&f32::from(value))),
        Type::F64 => pod_read_unaligned(bytes_of(&f64::from(value))),
        _ => pod_read_unaligned(&[value]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_differ_by_their_bits() {
        assert_eq!(differ(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0]), 0);
        assert_eq!(differ(&[1.0, 0.0, f32::NAN], &[1.5, -0.0, f32::NAN]), 2);
        assert_eq!(differ::<u8>(&[], &[7]), 0);
    }
}
