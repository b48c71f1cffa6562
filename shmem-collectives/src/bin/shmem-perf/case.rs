//! An operation on elements of a type, as calls without types.
//!
//! Sources repeat themselves every [`PERIOD`] elements, so that the serial result of any size is that of one period for
//! every set of PEs. Their values are small whole numbers (powers of two for products), for which every type gives the
//! same result in any order.

use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};
use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Ctx, Elem, Result, Shared, SigRef, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Op, Type};
use shmem_collectives::plan::Collective;
use shmem_collectives::select::Need;

use crate::layout::{Holds, Operation, STRIDE, sent, share};
use crate::reduction::{Reduction, Use, find};
use crate::time::Timed;

/// Values of a source before they repeat: a prime, so that blocks of the usual lengths begin differently.
const PERIOD: usize = 101;

/// Something to be timed and checked, without its types.
pub(crate) trait Case: Timed {
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
        find(self.ty, self.op, Make { spec: self, f }).map_err(shmem::Error::other)?
    }
}

/// What a collective asks of an algorithm besides memory.
///
/// # Errors
/// Why there is no such reduction.
pub(crate) fn need(what: Collective, ty: Type, op: Op) -> Result<Need, String> {
    struct Needs(Collective);
    impl Use for Needs {
        type Out = Need;
        fn with<T: Elem>(self, op: &dyn Reduction<T>) -> Need {
            op.need(self.0)
        }
    }
    find(ty, op, Needs(what))
}

struct Make<'f, 'a, 't> {
    spec: Spec<'a, 't>,
    f: &'f mut dyn FnMut(&mut dyn Case) -> Result<()>,
}

impl Use for Make<'_, '_, '_> {
    type Out = Result<()>;

    fn with<T: Elem>(self, op: &dyn Reduction<T>) -> Result<()> {
        let Spec { world, memory, operation, ty, len, .. } = self.spec;
        let (n, me) = (world.n_pes(), world.me());
        let product = self.spec.op == Op::Prod;
        let base = if product { 2 } else { PERIOD };
        let period = |pe: usize| -> Vec<T> {
            (0..PERIOD).map(|i| element(ty, 1 + ((pe * 31 + i * 7) % PERIOD % base) as u8, product)).collect()
        };
        let sources: Vec<Vec<T>> = (0..n).map(period).collect();
        let into: usize = operation.target(n, me, len).iter().map(|(part, _)| part).sum();
        let src = memory.src.slice(..operation.source(n, me, len) * size_of::<T>())?.cast::<T>()?;
        let dst = memory.dst.slice(..into * size_of::<T>())?.cast::<T>()?;
        let mine: Vec<T> = sources[me].iter().copied().cycle().take(src.len()).collect();
        src.copy_from(&mine)?;
        let calls = memory.signal.read(0)?;
        let counts = Counts::of(operation, n, me, len);
        (self.f)(&mut Typed { spec: self.spec, op, sources, src, dst, mine, calls, counts })
    }
}

/// Elements to and from each PE, and where they begin, of operations with blocks of different lengths.
#[derive(Default)]
struct Counts {
    to: Vec<usize>,
    to_displs: Vec<usize>,
    from: Vec<usize>,
    from_displs: Vec<usize>,
}

impl Counts {
    fn of(operation: Operation, n: usize, me: usize, len: usize) -> Self {
        let displs = |counts: &[usize]| (0..n).map(|pe| counts[..pe].iter().sum()).collect();
        match operation {
            Operation::ReduceScatterV => Counts { to: (0..n).map(|pe| share(pe, len)).collect(), ..Counts::default() },
            Operation::AllToAllV => {
                let to: Vec<usize> = (0..n).map(|pe| sent(me, pe, len)).collect();
                let from: Vec<usize> = (0..n).map(|pe| sent(pe, me, len)).collect();
                Counts { to_displs: displs(&to), from_displs: displs(&from), to, from }
            }
            _ => Counts::default(),
        }
    }
}

struct Typed<'a, 't, T> {
    spec: Spec<'a, 't>,
    op: &'a dyn Reduction<T>,
    /// One period of the source of each PE.
    sources: Vec<Vec<T>>,
    src: SymSlice<'a, T>,
    dst: SymSlice<'a, T>,
    /// This PE's source, in private memory.
    mine: Vec<T>,
    /// Signals, or additions, that each PE has sent.
    calls: u64,
    counts: Counts,
}

impl<T: Elem> Timed for Typed<'_, '_, T> {
    fn call(&mut self) -> Result<()> {
        let Spec { world, ctx, coll, memory, operation, len, .. } = self.spec;
        let right = || (world.me() + 1) % world.n_pes();
        let (dst, src, counts) = (self.dst, self.src, &self.counts);
        match operation {
            Operation::Put => ctx.put(dst, &self.mine, right()),
            Operation::Get => ctx.get_into(dst, src, right()),
            Operation::PutSignal => {
                self.calls += 1;
                ctx.put_signal(dst, &self.mine, SigRef::add(memory.signal, 1), right())?;
                ctx.wait(memory.signal, |count| count >= self.calls).map(|_| ())
            }
            Operation::FetchAdd => {
                self.calls += 1;
                ctx.atomic_fetch_add(memory.counter, 1, right()).map(|_| ())
            }
            Operation::Barrier => world.barrier_all(),
            Operation::Sync => coll.team().sync(),
            Operation::AllGatherV => coll.all_gather_v(dst, src),
            Operation::ReduceScatterV => self.op.scatter(coll, dst, src, &counts.to),
            Operation::AllToAllV => {
                coll.all_to_all_v(dst, &counts.from, &counts.from_displs, src, &counts.to, &counts.to_displs)
            }
            Operation::AllToAllStrided => coll.all_to_all_strided(dst, STRIDE, src, STRIDE, len),
            Operation::Collective(Collective::AllGather) => coll.all_gather(dst, src),
            Operation::Collective(Collective::Gather { root }) => coll.gather(dst, src, root),
            Operation::Collective(Collective::Scatter { root }) => coll.scatter(dst, src, root),
            Operation::Collective(Collective::Broadcast { root }) => coll.broadcast(dst, src, root),
            Operation::Collective(Collective::AllToAll) => coll.all_to_all(dst, src),
            Operation::Collective(what) => self.op.call(coll, what, dst, src),
        }
    }

    fn complete(&mut self) -> Result<()> {
        match self.spec.operation {
            Operation::Put => self.spec.ctx.quiet(),
            _ => Ok(()),
        }
    }
}

impl<T: Elem> Case for Typed<'_, '_, T> {
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
            let nothing = || vec![worthless(); PERIOD];
            let strided = matches!(holds, Holds::Strided { .. });
            let (mut period, from) = match holds {
                Holds::Nothing => (nothing(), 0),
                Holds::Source { pe, from } | Holds::Strided { pe, from } => (self.sources[pe].clone(), from),
                Holds::Sum { pes, from } => (self.op.serial(&self.sources, pes).unwrap_or_else(nothing), from),
            };
            period.rotate_left(from % PERIOD);
            if strided {
                period = period.repeat(STRIDE);
                (0..period.len()).filter(|i| i % STRIDE > 0).for_each(|i| period[i] = worthless());
            }
            wrong += found.chunks(period.len()).map(|found| differ(found, &period)).sum::<u64>();
        }
        Ok(wrong)
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

/// A small value of a type, or with an index, if elements of type `T` have room for one; complex ones of products are
/// real.
fn element<T: Elem>(ty: Type, value: u8, product: bool) -> T {
    let imaginary = if product { 0.0 } else { f32::from(value) };
    let mut bytes = match ty {
        Type::I16 | Type::U16 => bytes_of(&u16::from(value)).to_vec(),
        Type::I32 | Type::U32 => bytes_of(&u32::from(value)).to_vec(),
        Type::I64 | Type::U64 => bytes_of(&u64::from(value)).to_vec(),
        Type::Isize | Type::Usize => bytes_of(&usize::from(value)).to_vec(),
        Type::F16 => bytes_of(&f16::from(value)).to_vec(),
        Type::Bf16 => bytes_of(&bf16::from(value)).to_vec(),
        Type::F32 => bytes_of(&f32::from(value)).to_vec(),
        Type::F64 => bytes_of(&f64::from(value)).to_vec(),
        Type::Complex64 => bytes_of(&Complex::new(f32::from(value), imaginary)).to_vec(),
        Type::Complex128 => bytes_of(&Complex::new(f64::from(value), f64::from(imaginary))).to_vec(),
        Type::I8 | Type::U8 => vec![value],
    };
    if size_of::<T>() > bytes.len() {
        bytes.extend_from_slice(&(u64::from(value) * 5 % 7).to_ne_bytes());
    }
    pod_read_unaligned(&bytes)
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
