//! Reductions: what a collective combines elements with, as kernels for [`Ctx::fold`](shmem::Ctx::fold).
//!
//! A call names its reduction by a value, and what a type cannot do does not compile: `coll.all_reduce(dst, src, Sum)`, `Max`, `Scaled(0.5)`,
//! `By(|a, b| …)`. Where both come at run time, as names or from C, [`Type`] and [`Op`] stand for them, and [`dispatch`] finds the typed ones.
//!
//! | | integers | f16, bf16, f32, f64 | complex |
//! |---|---|---|---|
//! | [`Sum`], [`Prod`] | wrapping | yes | yes |
//! | [`Avg`] | exact, rounded towards zero | yes | yes |
//! | [`Scaled`] | | yes | yes |
//! | [`Min`], [`Max`], [`MinIndex`], [`MaxIndex`] | yes | yes | |
//! | [`And`], [`Or`], [`Xor`] | yes | | |
//!
//! # All PEs get the same bits
//! - f16 and bf16 are summed and multiplied in f32 and rounded once, at the end (or wherever a plan holds partial results as elements).
//! - A NaN is always the one canonical NaN of its type in a result, whatever payload or sign the inputs had: which of two NaNs a processor
//!   hands on depends on their order.
//! - `Min` and `Max` are NaN if any element is, whichever PE has it, and -0.0 is less than +0.0: they are exact, in any order.
//! - Sums and products of floats are taken in the order of the sources of a fold, and in no other: the vector units add different elements at once,
//!   never the contributions to one element, and nothing is fused.
//!
//! # Steps
//! A fold that has all contributions at once is [`Whole`]: f16 is then rounded once, and an average divided once. An algorithm that combines in
//! several steps holds partial results between them: as elements, where nothing is lost by that ([`is_staged`]); otherwise as what they are
//! ([`Reduce::Acc`]), in the collective's own memory, into which each PE first widens its contribution and out of which it finishes the result
//! (see [`wide`](crate::plans::wide)). That is also what is done with every reduction that each PE begins in its own way ([`Reduce::OWN`]): a
//! PE applies its own factor to its own elements, whatever the factors of the others.
//!
//! - `number`: what each type can do;
//! - `table`: names, and finding the typed reduction of two names.

mod number;
mod table;

use std::any::TypeId;

use bytemuck::{Pod, Zeroable};
use shmem::{Elem, Kernel};

pub use number::{Bits, Mean, Number, Ordered, Scalable};
pub use table::{Op, Type, Unsupported, Visit, dispatch};

/// A reduction of elements of type `T`. Implemented by the reductions of this module; a user's own is most easily [`By`].
#[diagnostic::on_unimplemented(message = "`{Self}` is not defined for `{T}`", label = "not a reduction of `{T}`")]
pub trait Reduce<T: Elem>: Copy + Send + Sync {
    /// A partial result.
    type Acc: Elem;
    /// What combines partial results that lie in memory, and does nothing else; `Self` where they are elements.
    type Partial: Reduce<Self::Acc, Acc = Self::Acc>;
    /// What it is called in messages.
    const NAME: &'static str;
    /// Whether it does something to each contribution, or to the result, that must be done once.
    const FINISHES: bool = false;
    /// Whether nothing is lost where a partial result of another type is held as an element: by what selects one of the elements.
    const EXACT: bool = false;
    /// Whether it does something to each contribution that PEs may do differently, so that each must do it to its own.
    const OWN: bool = false;
    /// A contribution as a partial result.
    fn widen(&self, element: T) -> Self::Acc;
    /// Two partial results in one; `left` is that of the earlier PEs.
    fn combine(&self, left: Self::Acc, right: Self::Acc) -> Self::Acc;
    /// The result, when `n` contributions have been combined.
    fn finish(&self, acc: Self::Acc, n: usize) -> T;
    /// What combines partial results.
    fn partial(&self) -> Self::Partial;
}

/// Whether partial results may be held as elements: folds of some contributions give what further folds can take, and the result is the same.
pub fn is_staged<T: Elem, R: Reduce<T>>() -> bool {
    !R::FINISHES && (R::EXACT || TypeId::of::<T>() == TypeId::of::<R::Acc>())
}

/// The kernel of a fold from all contributions to the result.
#[derive(Clone, Copy, Debug)]
pub struct Whole<R> {
    /// The reduction.
    pub op: R,
    /// How many contributions there are.
    pub n: usize,
}

impl<T: Elem, R: Reduce<T>> Kernel<T> for Whole<R> {
    type Acc = R::Acc;

    #[inline(always)]
    fn widen(&self, element: T) -> R::Acc {
        self.op.widen(element)
    }

    #[inline(always)]
    fn combine(&self, left: R::Acc, right: R::Acc) -> R::Acc {
        self.op.combine(left, right)
    }

    #[inline(always)]
    fn narrow(&self, acc: R::Acc) -> T {
        self.op.finish(acc, self.n)
    }
}

/// The sum of all elements; of integers, wrapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum;

/// The product of all elements; of integers, wrapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prod;

/// The average of all elements. Of integers it is exact, however large their sum, and rounded towards zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Avg;

/// The sum of all elements, each multiplied by a factor first: `Scaled(1.0 / 8.0)`. Each PE multiplies its own elements by its own factor, which
/// need not be that of the others (as NCCL's `PreMulSum` has it).
#[derive(Clone, Copy, Debug)]
pub struct Scaled<F>(pub F);

/// The smallest element, or NaN if one is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Min;

/// The largest element, or NaN if one is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

/// Of [`Indexed`] elements, that with the smallest value (a NaN before all others); of equal ones, that with the lowest index.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinIndex;

/// Of [`Indexed`] elements, that with the largest value (a NaN before all others); of equal ones, that with the lowest index.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxIndex;

/// The bitwise and of all elements.
///
/// ```compile_fail,E0277
/// # use shmem_collectives::op::{And, Reduce};
/// fn combine<T: shmem::Elem, R: Reduce<T>>(op: R, a: T, b: T) {}
/// combine(And, 1.0_f32, 2.0_f32); // `And` is not defined for `f32`
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct And;

/// The bitwise or of all elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Or;

/// The bitwise exclusive or of all elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xor;

/// A reduction of one's own: `By(|a: Point, b: Point| a.nearer(b))`. It must be associative; `a` comes from the earlier PEs. Mark a function that it calls
/// `#[inline]`, so that it can be vectorised.
#[derive(Clone, Copy, Debug)]
pub struct By<F>(pub F);

/// A value and where it was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Indexed<T> {
    /// What is compared.
    pub value: T,
    /// What goes with it, and decides between equal values.
    pub index: u64,
}

/// The reductions of which a partial result is what [`Number::Acc`] says.
macro_rules! arithmetic {
    ($op:ident, $combine:ident) => {
        impl<T: Number> Reduce<T> for $op {
            type Acc = T::Acc;
            type Partial = Self;
            const NAME: &'static str = Op::$op.name();

            #[inline(always)]
            fn widen(&self, element: T) -> T::Acc {
                element.widen()
            }

            #[inline(always)]
            fn combine(&self, left: T::Acc, right: T::Acc) -> T::Acc {
                T::$combine(left, right)
            }

            #[inline(always)]
            fn finish(&self, acc: T::Acc, _n: usize) -> T {
                T::narrow(acc)
            }

            fn partial(&self) -> Self {
                *self
            }
        }
    };
}

arithmetic!(Sum, add);
arithmetic!(Prod, mul);

impl<T: Scalable> Reduce<T> for Scaled<T::Factor> {
    type Acc = T::Acc;
    type Partial = Sum;
    const NAME: &'static str = Op::Scaled(1.0).name();
    const FINISHES: bool = true;
    const OWN: bool = true;

    #[inline(always)]
    fn widen(&self, element: T) -> T::Acc {
        T::scale(element.widen(), self.0)
    }

    #[inline(always)]
    fn combine(&self, left: T::Acc, right: T::Acc) -> T::Acc {
        T::add(left, right)
    }

    #[inline(always)]
    fn finish(&self, acc: T::Acc, _n: usize) -> T {
        T::narrow(acc)
    }

    fn partial(&self) -> Sum {
        Sum
    }
}

impl<T: Mean> Reduce<T> for Avg {
    type Acc = T::Total;
    type Partial = Sum;
    const NAME: &'static str = Op::Avg.name();
    const FINISHES: bool = true;

    #[inline(always)]
    fn widen(&self, element: T) -> T::Total {
        element.total()
    }

    #[inline(always)]
    fn combine(&self, left: T::Total, right: T::Total) -> T::Total {
        T::add_totals(left, right)
    }

    #[inline(always)]
    fn finish(&self, acc: T::Total, n: usize) -> T {
        T::mean(acc, n)
    }

    fn partial(&self) -> Sum {
        Sum
    }
}

/// The reductions of ordered types: to the keys' minimum or maximum, and to the element by which it came.
macro_rules! extreme {
    ($op:ident, $indexed:ident, $key:ident, $pick:ident) => {
        impl<T: Ordered> Reduce<T> for $op {
            type Acc = T::Key;
            type Partial = Self;
            const NAME: &'static str = Op::$op.name();
            const EXACT: bool = true;

            #[inline(always)]
            fn widen(&self, element: T) -> T::Key {
                element.$key()
            }

            #[inline(always)]
            fn combine(&self, left: T::Key, right: T::Key) -> T::Key {
                left.$pick(right)
            }

            #[inline(always)]
            fn finish(&self, acc: T::Key, _n: usize) -> T {
                T::of_key(acc)
            }

            fn partial(&self) -> Self {
                *self
            }
        }

        impl<T: Ordered> Reduce<Indexed<T>> for $indexed {
            type Acc = Indexed<T>;
            type Partial = Self;
            const NAME: &'static str = Op::$indexed.name();

            #[inline(always)]
            fn widen(&self, element: Indexed<T>) -> Indexed<T> {
                element
            }

            #[inline(always)]
            fn combine(&self, left: Indexed<T>, right: Indexed<T>) -> Indexed<T> {
                let (left_key, right_key) = (left.value.$key(), right.value.$key());
                let left_is_it = if left_key == right_key {
                    left.index <= right.index
                } else {
                    left_key.$pick(right_key) == left_key
                };
                if left_is_it { left } else { right }
            }

            #[inline(always)]
            fn finish(&self, acc: Indexed<T>, _n: usize) -> Indexed<T> {
                Indexed { value: T::of_key(acc.value.$key()), index: acc.index }
            }

            fn partial(&self) -> Self {
                *self
            }
        }
    };
}

extreme!(Min, MinIndex, key_nan_first, min);
extreme!(Max, MaxIndex, key_nan_last, max);

/// The bitwise reductions.
macro_rules! bitwise {
    ($op:ident, $combine:ident) => {
        impl<T: Bits> Reduce<T> for $op {
            type Acc = T;
            type Partial = Self;
            const NAME: &'static str = Op::$op.name();

            #[inline(always)]
            fn widen(&self, element: T) -> T {
                element
            }

            #[inline(always)]
            fn combine(&self, left: T, right: T) -> T {
                left.$combine(right)
            }

            #[inline(always)]
            fn finish(&self, acc: T, _n: usize) -> T {
                acc
            }

            fn partial(&self) -> Self {
                *self
            }
        }
    };
}

bitwise!(And, and);
bitwise!(Or, or);
bitwise!(Xor, xor);

impl<T: Elem, F: Fn(T, T) -> T + Copy + Send + Sync> Reduce<T> for By<F> {
    type Acc = T;
    type Partial = Self;
    const NAME: &'static str = "a function";

    #[inline(always)]
    fn widen(&self, element: T) -> T {
        element
    }

    #[inline(always)]
    fn combine(&self, left: T, right: T) -> T {
        (self.0)(left, right)
    }

    #[inline(always)]
    fn finish(&self, acc: T, _n: usize) -> T {
        acc
    }

    fn partial(&self) -> Self {
        *self
    }
}
