//! Atomics. Non-blocking ones that fetch are complete when they return, which the specification allows.

use std::ffi::c_int;

use crate::job::run;
use crate::types::pe as number;

/// Stores what a non-blocking operation has fetched.
///
/// # Safety
/// The address is valid.
unsafe fn store<T>(to: *mut T, fetched: T) {
    // SAFETY: the caller says so.
    unsafe { to.write(fetched) }
}

macro_rules! extended {
    ($($name:ident: $t:ty,)*) => {$(
        export_ctx! {
            [stringify!($name), "_atomic_fetch"] fn(ctx; source: *const $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.atomic_fetch(job.object(source, 1)?, number(pe)))
            }
            [stringify!($name), "_atomic_fetch_nbi"] fn(ctx; fetch: *mut $t, source: *const $t, pe: c_int) {
                run(NAME, |job| {
                    let fetched = job.context(ctx)?.atomic_fetch(job.object(source, 1)?, number(pe))?;
                    // SAFETY: C gives a valid address.
                    unsafe { store(fetch, fetched) };
                    Ok(())
                })
            }
            [stringify!($name), "_atomic_set"] fn(ctx; dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| job.context(ctx)?.atomic_set(job.object(dest, 1)?, value, number(pe)))
            }
            [stringify!($name), "_atomic_swap"] fn(ctx; dest: *mut $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.atomic_swap(job.object(dest, 1)?, value, number(pe)))
            }
            [stringify!($name), "_atomic_swap_nbi"] fn(ctx; fetch: *mut $t, dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| {
                    let fetched = job.context(ctx)?.atomic_swap(job.object(dest, 1)?, value, number(pe))?;
                    // SAFETY: C gives a valid address.
                    unsafe { store(fetch, fetched) };
                    Ok(())
                })
            }
        }
    )*};
}
extended_amo_types!(extended);

/// An operation by one operand in its three forms: plain, fetching, and fetching without blocking.
macro_rules! operation {
    ($name:ident, $t:ty, $plain:literal: $call:ident, $fetching:literal: $fetch_call:ident) => {
        export_ctx! {
            [stringify!($name), $plain] fn(ctx; dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| job.context(ctx)?.$call(job.object(dest, 1)?, value, number(pe)))
            }
            [stringify!($name), $fetching] fn(ctx; dest: *mut $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.$fetch_call(job.object(dest, 1)?, value, number(pe)))
            }
            [stringify!($name), $fetching, "_nbi"] fn(ctx; fetch: *mut $t, dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| {
                    let fetched = job.context(ctx)?.$fetch_call(job.object(dest, 1)?, value, number(pe))?;
                    // SAFETY: C gives a valid address.
                    unsafe { store(fetch, fetched) };
                    Ok(())
                })
            }
        }
    };
}

macro_rules! standard {
    ($($name:ident: $t:ty,)*) => {$(
        operation!($name, $t, "_atomic_add": atomic_add, "_atomic_fetch_add": atomic_fetch_add);
        export_ctx! {
            [stringify!($name), "_atomic_compare_swap"] fn(ctx; dest: *mut $t, cond: $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.atomic_compare_swap(job.object(dest, 1)?, cond, value, number(pe)))
            }
            [stringify!($name), "_atomic_compare_swap_nbi"] fn(
                ctx; fetch: *mut $t, dest: *mut $t, cond: $t, value: $t, pe: c_int,
            ) {
                run(NAME, |job| {
                    let target = job.object(dest, 1)?;
                    let fetched = job.context(ctx)?.atomic_compare_swap(target, cond, value, number(pe))?;
                    // SAFETY: C gives a valid address.
                    unsafe { store(fetch, fetched) };
                    Ok(())
                })
            }
            [stringify!($name), "_atomic_inc"] fn(ctx; dest: *mut $t, pe: c_int) {
                run(NAME, |job| job.context(ctx)?.atomic_inc(job.object(dest, 1)?, number(pe)))
            }
            [stringify!($name), "_atomic_fetch_inc"] fn(ctx; dest: *mut $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.atomic_fetch_inc(job.object(dest, 1)?, number(pe)))
            }
            [stringify!($name), "_atomic_fetch_inc_nbi"] fn(ctx; fetch: *mut $t, dest: *mut $t, pe: c_int) {
                run(NAME, |job| {
                    let fetched = job.context(ctx)?.atomic_fetch_inc(job.object(dest, 1)?, number(pe))?;
                    // SAFETY: C gives a valid address.
                    unsafe { store(fetch, fetched) };
                    Ok(())
                })
            }
        }
    )*};
}
amo_types!(standard);

macro_rules! bitwise {
    ($($name:ident: $t:ty,)*) => {$(
        operation!($name, $t, "_atomic_and": atomic_and, "_atomic_fetch_and": atomic_fetch_and);
        operation!($name, $t, "_atomic_or": atomic_or, "_atomic_fetch_or": atomic_fetch_or);
        operation!($name, $t, "_atomic_xor": atomic_xor, "_atomic_fetch_xor": atomic_fetch_xor);
    )*};
}
bitwise_amo_types!(bitwise);
