//! C's `long double`, which Rust has no type for: the 80 bits of x87 in 16 bytes. It is passed by value on the stack and
//! returned in a register of the x87, so the functions that do so are a few instructions before their forms by pointer.

use std::arch::{asm, naked_asm};
use std::cmp::Ordering;
use std::ffi::c_int;

use bytemuck::{Pod, Zeroable};
use shmem_collectives::op::{Max, Min, Prod, Reduce, Sum};

use crate::ctx::Handle;
use crate::rma::{get, put};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the C interface knows the long double of x86-64 only");

/// Significand, then exponent and sign; the upper bytes are padding, and zero in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub(crate) struct LongDouble {
    significand: u64,
    exponent: u64,
}

const EXPONENT: u64 = 0x7fff;
const SIGN: u64 = 0x8000;
/// The one that all PEs get.
const NAN: LongDouble = LongDouble { significand: 0xc000_0000_0000_0000, exponent: EXPONENT };

/// Every register of the x87 may be another afterwards.
macro_rules! x87 {
    ($operation:literal, $left:expr, $right:expr) => {{
        let (left, right, mut result) = ($left, $right, LongDouble::zeroed());
        // SAFETY: loads two values of 80 bits and stores one, at addresses of this frame; all registers of the x87 are given
        // up, and its stack is as high afterwards.
        unsafe {
            asm!(
                "fld tbyte ptr [{left}]", "fld tbyte ptr [{right}]", $operation, "fstp tbyte ptr [{result}]",
                left = in(reg) &raw const left, right = in(reg) &raw const right, result = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result.canonical()
    }};
}

impl LongDouble {
    fn is_nan(self) -> bool {
        self.exponent & EXPONENT == EXPONENT && self.significand << 1 != 0
    }

    fn canonical(self) -> Self {
        if self.is_nan() { NAN } else { LongDouble { exponent: self.exponent & (SIGN | EXPONENT), ..self } }
    }

    fn sum(self, other: Self) -> Self {
        x87!("faddp st(1), st", self, other)
    }

    fn product(self, other: Self) -> Self {
        x87!("fmulp st(1), st", self, other)
    }

    /// The order of numbers, of which -0 is before +0.
    fn order(self, other: Self) -> Ordering {
        let key = |value: Self| {
            let size = i128::from(value.exponent & EXPONENT) << 64 | i128::from(value.significand);
            if value.exponent & SIGN == 0 { size } else { -size - 1 }
        };
        key(self).cmp(&key(other))
    }

    fn chosen(self, other: Self, wanted: Ordering) -> Self {
        match (self.is_nan() || other.is_nan(), self.order(other) == wanted) {
            (true, _) => NAN,
            (false, true) => self.canonical(),
            (false, false) => other.canonical(),
        }
    }
}

/// A reduction of the library for elements that it does not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long<R>(pub(crate) R);

macro_rules! reductions {
    ($($op:ident: $name:literal, $exact:literal, |$left:ident, $right:ident| $combine:expr;)*) => {$(
        impl Reduce<LongDouble> for Long<$op> {
            type Acc = LongDouble;
            type Partial = Self;
            const NAME: &'static str = $name;
            const EXACT: bool = $exact;

            fn widen(&self, element: LongDouble) -> LongDouble {
                element
            }

            fn combine(&self, $left: LongDouble, $right: LongDouble) -> LongDouble {
                $combine
            }

            fn finish(&self, acc: LongDouble, _: usize) -> LongDouble {
                acc.canonical()
            }

            fn partial(&self) -> Self {
                *self
            }
        }
    )*};
}

reductions! {
    Sum: "sum", false, |left, right| left.sum(right);
    Prod: "prod", false, |left, right| left.product(right);
    Min: "min", true, |left, right| left.chosen(right, Ordering::Less);
    Max: "max", true, |left, right| left.chosen(right, Ordering::Greater);
}

/// `shmem_longdouble_p`, by pointer.
extern "C" fn p(dest: *mut LongDouble, pe: c_int, value: *const LongDouble) {
    p_ctx(Handle::DEFAULT, dest, pe, value);
}

/// `shmem_ctx_longdouble_p`, by pointer.
extern "C" fn p_ctx(ctx: Handle, dest: *mut LongDouble, pe: c_int, value: *const LongDouble) {
    put("shmem_longdouble_p", ctx, dest.cast(), value.cast(), 1, size_of::<LongDouble>(), pe, false);
}

/// `shmem_longdouble_g`, by pointer.
extern "C" fn g(source: *const LongDouble, pe: c_int, value: *mut LongDouble) {
    g_ctx(Handle::DEFAULT, source, pe, value);
}

/// `shmem_ctx_longdouble_g`, by pointer.
extern "C" fn g_ctx(ctx: Handle, source: *const LongDouble, pe: c_int, value: *mut LongDouble) {
    get("shmem_longdouble_g", ctx, value.cast(), source.cast(), 1, size_of::<LongDouble>(), pe, false);
}

macro_rules! by_value {
    ($($p:literal, $g:literal, $p_ctx:literal, $g_ctx:literal;)*) => {$(
        const _: () = {
            /// The value lies on the stack, behind the address of return.
            #[unsafe(naked)]
            #[unsafe(export_name = $p)]
            unsafe extern "C" fn p_by_value(dest: *mut LongDouble, pe: c_int) {
                naked_asm!("lea rdx, [rsp + 8]", "jmp {p}", p = sym p)
            }

            #[unsafe(naked)]
            #[unsafe(export_name = $p_ctx)]
            unsafe extern "C" fn p_ctx_by_value(ctx: Handle, dest: *mut LongDouble, pe: c_int) {
                naked_asm!("lea rcx, [rsp + 8]", "jmp {p}", p = sym p_ctx)
            }

            /// The result goes to the top of the x87's stack.
            #[unsafe(naked)]
            #[unsafe(export_name = $g)]
            unsafe extern "C" fn g_by_value(source: *const LongDouble, pe: c_int) {
                naked_asm!(
                    "sub rsp, 24", "mov rdx, rsp", "call {g}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret", g = sym g
                )
            }

            #[unsafe(naked)]
            #[unsafe(export_name = $g_ctx)]
            unsafe extern "C" fn g_ctx_by_value(ctx: Handle, source: *const LongDouble, pe: c_int) {
                naked_asm!(
                    "sub rsp, 24", "mov rcx, rsp", "call {g}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret", g = sym g_ctx
                )
            }
        };
    )*};
}

by_value! {
    "shmem_longdouble_p", "shmem_longdouble_g", "shmem_ctx_longdouble_p", "shmem_ctx_longdouble_g";
    "pshmem_longdouble_p", "pshmem_longdouble_g", "pshmem_ctx_longdouble_p", "pshmem_ctx_longdouble_g";
}
