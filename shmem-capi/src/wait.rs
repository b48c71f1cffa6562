//! Waiting for variables, and testing them.

use std::ffi::c_int;

use shmem_core::{Cmp, Elem, Error, Result, SymSlice, Values};

use crate::ctx::Handle;
use crate::job::{Job, run};
use crate::types::array;

/// `SHMEM_CMP_…`.
#[inline(always)]
pub(crate) fn cmp(op: c_int) -> Result<Cmp> {
    const ALL: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le];
    let known = usize::try_from(op).ok().and_then(|op| ALL.get(op).copied());
    known.ok_or_else(|| Error::other(format!("{op} is none of SHMEM_CMP_EQ … SHMEM_CMP_LE")))
}

/// The variables of a set, and which of them are left out.
///
/// # Safety
/// If there is a status, it has as many elements.
unsafe fn set<T: Elem + Ord>(
    job: &'static Job,
    variables: *mut T,
    len: usize,
    status: *const c_int,
) -> Result<(SymSlice<'static, T>, &'static [c_int])> {
    let variables = job.object(variables, len)?;
    // SAFETY: the caller says so; it is looked at during the call only.
    let status = if status.is_null() { &[] } else { unsafe { array("status", status, len)? } };
    Ok((variables, status))
}

/// The values that the variables are compared with, one for each.
///
/// # Safety
/// There are so many, unless there are none.
unsafe fn each<'a, T: Elem>(values: *const T, len: usize) -> Result<Values<'a, T>> {
    // SAFETY: the caller says so.
    unsafe { array("cmp_values", values, len) }.map(Values::Each)
}

/// Stores indices, and returns how many they are.
///
/// # Safety
/// There is room for them.
unsafe fn store(found: &[usize], indices: *mut usize) -> Result<usize> {
    if !found.is_empty() {
        if indices.is_null() {
            return Err(Error::other(format!("indices is NULL, {} are to be stored", found.len())));
        }
        // SAFETY: the caller says so.
        unsafe { indices.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    }
    Ok(found.len())
}

/// The index of one, or what C has for none.
fn index(found: Option<usize>) -> usize {
    found.unwrap_or(usize::MAX)
}

/// A family of sets of variables in its two forms: compared with one value, and each with its own.
macro_rules! sets {
    ($prefix:literal, $name:ident, $t:ty, |$ctx:ident, $variables:ident, $status:ident, $cmp:ident, $values:ident, $indices:ident| {
        $($tail:literal ($($out:ident: $out_t:ty)?) -> $ret:ty => $call:expr;)*
    }) => {$(
        export! {
            [$prefix, stringify!($name), $tail] fn(
                ivars: *mut $t, nelems: usize, $($out: $out_t,)? status: *const c_int, op: c_int, value: $t,
            ) -> $ret {
                run(NAME, |job| {
                    // SAFETY: C gives a status of as many elements, or none.
                    let ($variables, $status) = unsafe { set(job, ivars, nelems, status) }?;
                    let ($ctx, $cmp, $values) = (job.context(Handle::DEFAULT)?, cmp(op)?, Values::Same(value));
                    $(let $indices = $out;)?
                    $call
                })
            }
            [$prefix, stringify!($name), $tail, "_vector"] fn(
                ivars: *mut $t, nelems: usize, $($out: $out_t,)? status: *const c_int, op: c_int, values: *const $t,
            ) -> $ret {
                run(NAME, |job| {
                    // SAFETY: C gives a status of as many elements, or none.
                    let ($variables, $status) = unsafe { set(job, ivars, nelems, status) }?;
                    // SAFETY: C gives as many values.
                    let $values = unsafe { each(values, nelems)? };
                    let ($ctx, $cmp) = (job.context(Handle::DEFAULT)?, cmp(op)?);
                    $(let $indices = $out;)?
                    $call
                })
            }
        }
    )*};
}

macro_rules! single {
    ($($name:ident: $t:ty,)*) => {$(
        export! {
            ["shmem_", stringify!($name), "_wait_until"] fn(ivar: *mut $t, op: c_int, value: $t) {
                run(NAME, |job| {
                    job.context(Handle::DEFAULT)?.wait_until(job.object(ivar, 1)?, cmp(op)?, value).map(drop)
                })
            }
            ["shmem_", stringify!($name), "_test"] fn(ivar: *mut $t, op: c_int, value: $t) -> c_int {
                run(NAME, |job| {
                    Ok(job.context(Handle::DEFAULT)?.test(job.object(ivar, 1)?, cmp(op)?, value)?.into())
                })
            }
        }
    )*};
}
amo_types!(single);
single! { short: i16, ushort: u16, }

macro_rules! all_sets {
    ($prefix:literal, $($name:ident: $t:ty,)*) => {$(
        sets!($prefix, $name, $t, |ctx, variables, status, cmp, values, indices| {
            "_wait_until_all" () -> () => ctx.wait_until_all(variables, status, cmp, values);
            "_wait_until_any" () -> usize => ctx.wait_until_any(variables, status, cmp, values).map(index);
            "_wait_until_some" (out: *mut usize) -> usize => {
                let found = ctx.wait_until_some(variables, status, cmp, values)?;
                // SAFETY: C gives room for as many indices as there are variables.
                unsafe { store(&found, indices) }
            };
            "_test_all" () -> c_int => Ok(ctx.test_all(variables, status, cmp, values)?.into());
            "_test_any" () -> usize => ctx.test_any(variables, status, cmp, values).map(index);
            "_test_some" (out: *mut usize) -> usize => {
                let found = ctx.test_some(variables, status, cmp, values)?;
                // SAFETY: C gives room for as many indices as there are variables.
                unsafe { store(&found, indices) }
            };
        });
    )*};
}
macro_rules! of_the_specification {
    ($($name:ident: $t:ty,)*) => {
        all_sets!("shmem_", $($name: $t,)*);
    };
}
amo_types!(of_the_specification);
// The specification has single ones of these only, and its generic forms are called with sets all the same.
all_sets!("shmemx_", short: i16, ushort: u16,);

export! {
    ["shmem_wait_until"] fn(ivar: *mut i64, op: c_int, value: i64) {
        run(NAME, |job| job.context(Handle::DEFAULT)?.wait_until(job.object(ivar, 1)?, cmp(op)?, value).map(drop))
    }
}

/// Until the variable is not what is given.
macro_rules! changes {
    ($($name:literal: $t:ty,)*) => {$(
        export! {
            ["shmem_", $name] fn(ivar: *mut $t, value: $t) {
                run(NAME, |job| {
                    job.context(Handle::DEFAULT)?.wait_until(job.object(ivar, 1)?, Cmp::Ne, value).map(drop)
                })
            }
        }
    )*};
}
changes! { "wait": i64, "short_wait": i16, "int_wait": i32, "long_wait": i64, "longlong_wait": i64, }
