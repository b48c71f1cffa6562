//! Reductions by name, as calls on elements of their type: the only part that is made once for each pair of a type and
//! an operation.
//!
//! Pairs whose results are the same bits share it: signed sums wrap as unsigned ones do, and bitwise operations see no
//! sign; `isize` and `usize` are the integers of their size. Each pair costs most of a second of compilation.

use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Elem, Result, SymSlice};
use shmem_collectives::Coll;
use shmem_collectives::op::{
    And, Avg, Indexed, Max, MaxIndex, Min, MinIndex, Op, Or, Prod, Reduce, Scalable, Scaled, Sum, Type, Xor,
};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Room;
use shmem_collectives::select::Need;

/// A reduction of elements of type `T`.
pub(crate) trait Reduction<T> {
    /// One call of a collective that reduces.
    fn call(&self, coll: &Coll<'_>, what: Collective, dst: SymSlice<'_, T>, src: SymSlice<'_, T>) -> Result<()>;
    /// A reduce-scatter by counts.
    fn scatter(&self, coll: &Coll<'_>, dst: SymSlice<'_, T>, src: SymSlice<'_, T>, counts: &[usize]) -> Result<()>;
    /// The serial result over some PEs, in their order, of sources of the same length.
    fn serial(&self, sources: &[Vec<T>], pes: Range<usize>) -> Option<Vec<T>>;
    /// What it asks of an algorithm, besides memory.
    fn need(&self, what: Collective) -> Need;
}

struct By<R>(R);

impl<T: Elem, R: Reduce<T>> Reduction<T> for By<R> {
    fn call(&self, coll: &Coll<'_>, what: Collective, dst: SymSlice<'_, T>, src: SymSlice<'_, T>) -> Result<()> {
        let By(op) = *self;
        match what {
            Collective::Reduce { root } => coll.reduce(dst, src, op, root),
            Collective::ReduceScatter => coll.reduce_scatter(dst, src, op),
            Collective::InclusiveScan => coll.inclusive_scan(dst, src, op),
            Collective::ExclusiveScan => coll.exclusive_scan(dst, src, op),
            _ => coll.all_reduce(dst, src, op),
        }
    }

    fn scatter(&self, coll: &Coll<'_>, dst: SymSlice<'_, T>, src: SymSlice<'_, T>, counts: &[usize]) -> Result<()> {
        coll.reduce_scatter_v(dst, src, counts, self.0)
    }

    fn serial(&self, sources: &[Vec<T>], pes: Range<usize>) -> Option<Vec<T>> {
        let By(op) = self;
        let mut all = sources[pes.clone()].iter();
        let mut accs: Vec<R::Acc> = all.next()?.iter().map(|element| op.widen(*element)).collect();
        for source in all {
            accs.iter_mut().zip(source).for_each(|(acc, element)| *acc = op.combine(*acc, op.widen(*element)));
        }
        Some(accs.into_iter().map(|acc| op.finish(acc, pes.len())).collect())
    }

    fn need(&self, what: Collective) -> Need {
        Need::of::<T, R>(what, Room::default())
    }
}

/// What is done with a reduction of elements of its type.
pub(crate) trait Use {
    /// What comes of it.
    type Out;
    fn with<T: Elem>(self, op: &dyn Reduction<T>) -> Self::Out;
}

/// Gives the reduction to `to`.
///
/// # Errors
/// Why there is no such.
pub(crate) fn find<U: Use>(ty: Type, op: Op, to: U) -> Result<U::Out, String> {
    macro_rules! ops {
        ($elem:ty: $($op:ident)*; $($indexed:ident)*) => {
            match op {
                $(Op::$op => Ok(to.with::<$elem>(&By($op))),)*
                $(Op::$indexed => Ok(to.with::<Indexed<$elem>>(&By($indexed))),)*
                _ => Err(format!("{} is not defined for {ty}", op.name())),
            }
        };
    }
    macro_rules! scaled {
        ($elem:ty: $($op:ident)*; $($indexed:ident)*) => {
            match op {
                Op::Scaled(factor) if !is_power_of_two(factor) => {
                    Err(format!("{op} is not measured: give a power of two, of which sums are exact in any order"))
                }
                Op::Scaled(factor) => Ok(to.with::<$elem>(&By(Scaled(<$elem as Scalable>::factor(factor))))),
                _ => ops!($elem: $($op)*; $($indexed)*),
            }
        };
    }
    macro_rules! signed {
        ($elem:ty) => { ops!($elem: Avg Min Max; MinIndex MaxIndex) };
    }
    macro_rules! unsigned {
        ($elem:ty) => { ops!($elem: Sum Prod Avg Min Max And Or Xor; MinIndex MaxIndex) };
    }
    macro_rules! float {
        ($elem:ty) => { scaled!($elem: Sum Prod Avg Min Max; MinIndex MaxIndex) };
    }
    match same_bits(ty, op) {
        Type::I8 => signed!(i8),
        Type::I16 => signed!(i16),
        Type::I32 => signed!(i32),
        Type::I64 | Type::Isize => signed!(i64),
        Type::U8 => unsigned!(u8),
        Type::U16 => unsigned!(u16),
        Type::U32 => unsigned!(u32),
        Type::U64 | Type::Usize => unsigned!(u64),
        Type::F16 => float!(f16),
        Type::Bf16 => float!(bf16),
        Type::F32 => float!(f32),
        Type::F64 => float!(f64),
        Type::Complex64 => scaled!(Complex<f32>: Sum Prod Avg;),
        Type::Complex128 => scaled!(Complex<f64>: Sum Prod Avg;),
    }
}

/// The type by which the same operation gives the same bits.
fn same_bits(ty: Type, op: Op) -> Type {
    let signless = matches!(op, Op::Sum | Op::Prod | Op::And | Op::Or | Op::Xor);
    match ty {
        Type::I8 if signless => Type::U8,
        Type::I16 if signless => Type::U16,
        Type::I32 if signless => Type::U32,
        Type::I64 if signless => Type::U64,
        Type::Isize if signless => same_bits(Type::Usize, op),
        Type::Isize if size_of::<isize>() == 4 => Type::I32,
        Type::Usize if size_of::<usize>() == 4 => Type::U32,
        other => other,
    }
}

fn is_power_of_two(factor: f64) -> bool {
    factor.is_normal() && factor.to_bits() << 12 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    // That every pair is there is tested by running them: a test that refers to them here would compile them again.

    #[test]
    fn factors_are_powers_of_two() {
        assert!([1.0, 0.5, -8.0, 1024.0].into_iter().all(is_power_of_two));
        assert!(![0.0, 0.3, 3.0, f64::NAN, f64::INFINITY].into_iter().any(is_power_of_two));
    }

    #[test]
    fn what_sees_no_sign_is_measured_without_one() {
        assert_eq!(same_bits(Type::I16, Op::Xor), Type::U16);
        assert_eq!(same_bits(Type::I16, Op::Max), Type::I16);
        assert_eq!(same_bits(Type::F32, Op::Sum), Type::F32);
        assert!(Type::ALL.iter().all(|ty| same_bits(*ty, Op::Sum).size() == ty.size()));
    }
}
