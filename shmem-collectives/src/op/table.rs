//! The one table of element types and the one table of operations that can be named: in command lines, in messages and from C. Everything that
//! takes a type or an operation by name comes from here.

use std::any::TypeId;
use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use num_complex::Complex;
use shmem::Elem;

use super::{And, Avg, Indexed, Max, MaxIndex, Min, MinIndex, Or, Prod, Reduce, Scalable, Scaled, Sum, Xor};

/// What is done with a type and a reduction that came at run time; see [`dispatch`].
pub trait Visit {
    /// What comes of it.
    type Out;
    /// Is called with the reduction as a value of its own type. The elements of `MinIndex` and `MaxIndex` are [`Indexed`].
    fn visit<T: Elem, R: Reduce<T> + 'static>(self, op: R) -> Self::Out;
}

/// A type or an operation that does not exist, or does not go with the other.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsupported {
    /// An operation that the type does not have.
    #[error("{op} is not defined for {ty}")]
    Pair {
        /// The operation.
        op: &'static str,
        /// The element type.
        ty: &'static str,
    },
    /// No type of this name.
    #[error("there is no element type {name:?}: they are {all}")]
    Type {
        /// The name.
        name: String,
        /// The names that there are.
        all: String,
    },
    /// No operation of this name.
    #[error("there is no operation {name:?}: they are {all}")]
    Op {
        /// The name.
        name: String,
        /// The names that there are.
        all: String,
    },
}

impl From<Unsupported> for shmem::Error {
    fn from(unsupported: Unsupported) -> Self {
        shmem::Error::other(unsupported)
    }
}

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident: $elem:ty = $name:literal, $class:ident;)*) => {
        /// An element type by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Type {
            $($(#[$doc])* $variant,)*
        }

        impl Type {
            /// Every type.
            pub const ALL: &[Type] = &[$(Type::$variant,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Type::$variant => $name,)*
                }
            }

            /// Bytes of an element.
            pub const fn size(self) -> usize {
                match self {
                    $(Type::$variant => size_of::<$elem>(),)*
                }
            }

            /// The name of a Rust type in this table, if it is there.
            pub fn of<T: 'static>() -> Option<Type> {
                $(if TypeId::of::<T>() == TypeId::of::<$elem>() {
                    return Some(Type::$variant);
                })*
                None
            }
        }

        /// Calls `visit` with the typed reduction that `op` is for elements of type `ty`.
        ///
        /// # Errors
        /// [`Unsupported::Pair`] if the type does not have the operation.
        pub fn dispatch<V: Visit>(ty: Type, op: Op, visit: V) -> Result<V::Out, Unsupported> {
            match ty {
                $(Type::$variant => types!(@$class $elem, ty, op, visit),)*
            }
        }
    };
    (@integer $elem:ty, $ty:ident, $op:ident, $visit:ident) => {
        Ok(match $op {
            Op::Sum => $visit.visit::<$elem, _>(Sum),
            Op::Prod => $visit.visit::<$elem, _>(Prod),
            Op::Avg => $visit.visit::<$elem, _>(Avg),
            Op::Min => $visit.visit::<$elem, _>(Min),
            Op::Max => $visit.visit::<$elem, _>(Max),
            Op::MinIndex => $visit.visit::<Indexed<$elem>, _>(MinIndex),
            Op::MaxIndex => $visit.visit::<Indexed<$elem>, _>(MaxIndex),
            Op::And => $visit.visit::<$elem, _>(And),
            Op::Or => $visit.visit::<$elem, _>(Or),
            Op::Xor => $visit.visit::<$elem, _>(Xor),
            Op::Scaled(_) => return Err($op.not_for($ty)),
        })
    };
    (@float $elem:ty, $ty:ident, $op:ident, $visit:ident) => {
        Ok(match $op {
            Op::Sum => $visit.visit::<$elem, _>(Sum),
            Op::Prod => $visit.visit::<$elem, _>(Prod),
            Op::Avg => $visit.visit::<$elem, _>(Avg),
            Op::Min => $visit.visit::<$elem, _>(Min),
            Op::Max => $visit.visit::<$elem, _>(Max),
            Op::MinIndex => $visit.visit::<Indexed<$elem>, _>(MinIndex),
            Op::MaxIndex => $visit.visit::<Indexed<$elem>, _>(MaxIndex),
            Op::Scaled(factor) => $visit.visit::<$elem, _>(Scaled(<$elem as Scalable>::factor(factor))),
            Op::And | Op::Or | Op::Xor => return Err($op.not_for($ty)),
        })
    };
    (@complex $elem:ty, $ty:ident, $op:ident, $visit:ident) => {
        Ok(match $op {
            Op::Sum => $visit.visit::<$elem, _>(Sum),
            Op::Prod => $visit.visit::<$elem, _>(Prod),
            Op::Avg => $visit.visit::<$elem, _>(Avg),
            Op::Scaled(factor) => $visit.visit::<$elem, _>(Scaled(<$elem as Scalable>::factor(factor))),
            Op::Min | Op::Max | Op::MinIndex | Op::MaxIndex | Op::And | Op::Or | Op::Xor => {
                return Err($op.not_for($ty));
            }
        })
    };
}

types! {
    /// `i8`.
    I8: i8 = "i8", integer;
    /// `i16`.
    I16: i16 = "i16", integer;
    /// `i32`.
    I32: i32 = "i32", integer;
    /// `i64`.
    I64: i64 = "i64", integer;
    /// `isize`.
    Isize: isize = "isize", integer;
    /// `u8`.
    U8: u8 = "u8", integer;
    /// `u16`.
    U16: u16 = "u16", integer;
    /// `u32`.
    U32: u32 = "u32", integer;
    /// `u64`.
    U64: u64 = "u64", integer;
    /// `usize`.
    Usize: usize = "usize", integer;
    /// IEEE half precision.
    F16: f16 = "f16", float;
    /// The upper half of an `f32`.
    Bf16: bf16 = "bf16", float;
    /// `f32`.
    F32: f32 = "f32", float;
    /// `f64`.
    F64: f64 = "f64", float;
    /// Two `f32`.
    Complex64: Complex<f32> = "complex64", complex;
    /// Two `f64`.
    Complex128: Complex<f64> = "complex128", complex;
}

macro_rules! ops {
    ($($op:ident = $name:literal;)*) => {
        /// An operation by name; what each does is told at the reduction of the same name.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("[`", stringify!($op), "`](struct@super::", stringify!($op), ").")] $op,)*
            /// [`Scaled`](struct@super::Scaled), with its factor; by name, `scaled=0.125`.
            Scaled(f64),
        }

        impl Op {
            /// Every operation, the scaled one with the factor 1.
            pub const ALL: &[Op] = &[$(Op::$op,)* Op::Scaled(1.0)];

            /// Its name, without a factor.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Op::$op => $name,)*
                    Op::Scaled(_) => "scaled",
                }
            }
        }
    };
}

ops! {
    Sum = "sum";
    Prod = "prod";
    Avg = "avg";
    Min = "min";
    Max = "max";
    MinIndex = "min_index";
    MaxIndex = "max_index";
    And = "and";
    Or = "or";
    Xor = "xor";
}

impl Op {
    fn not_for(self, ty: Type) -> Unsupported {
        Unsupported::Pair { op: self.name(), ty: ty.name() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Type {
    type Err = Unsupported;

    fn from_str(name: &str) -> Result<Self, Unsupported> {
        let found = Type::ALL.iter().find(|ty| ty.name() == name);
        let all = || Type::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
        found.copied().ok_or_else(|| Unsupported::Type { name: name.into(), all: all() })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Scaled(factor) => f.pad(&format!("{}={factor}", self.name())),
            _ => f.pad(self.name()),
        }
    }
}

impl FromStr for Op {
    type Err = Unsupported;

    fn from_str(name: &str) -> Result<Self, Unsupported> {
        let found = Op::ALL.iter().find_map(|op| match op {
            Op::Scaled(_) => name.strip_prefix("scaled=").and_then(|factor| factor.parse().ok()).map(Op::Scaled),
            _ => (op.name() == name).then_some(*op),
        });
        let form = |op: &Op| if let Op::Scaled(_) = op { "scaled=FACTOR" } else { op.name() };
        let all = || Op::ALL.iter().map(form).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| Unsupported::Op { name: name.into(), all: all() })
    }
}
