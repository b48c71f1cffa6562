//! Old names of what has others now, and calls that have nothing to do on machines whose caches are coherent.

use std::ffi::{c_int, c_void};

use crate::ctx::Handle;
use crate::job::{self, run};
use crate::types::pe as number;

export! {
    ["start_pes"] fn(_npes: c_int) { job::start(NAME, 0) }
    ["_my_pe"] fn() -> c_int { run(NAME, |job| Ok(job.world.me() as c_int)) }
    ["_num_pes"] fn() -> c_int { run(NAME, |job| Ok(job.world.n_pes() as c_int)) }

    ["shmem_clear_cache_inv"] fn() {}
    ["shmem_set_cache_inv"] fn() {}
    ["shmem_clear_cache_line_inv"] fn(_dest: *mut c_void) {}
    ["shmem_set_cache_line_inv"] fn(_dest: *mut c_void) {}
    ["shmem_udcflush"] fn() {}
    ["shmem_udcflush_line"] fn(_dest: *mut c_void) {}
}

macro_rules! atomics {
    ($($name:ident: $t:ty,)*) => {$(
        export! {
            ["shmem_", stringify!($name), "_cswap"] fn(dest: *mut $t, cond: $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| {
                    let target = job.object(dest, 1)?;
                    job.context(Handle::DEFAULT)?.atomic_compare_swap(target, cond, value, number(pe))
                })
            }
            ["shmem_", stringify!($name), "_finc"] fn(dest: *mut $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_fetch_inc(job.object(dest, 1)?, number(pe)))
            }
            ["shmem_", stringify!($name), "_inc"] fn(dest: *mut $t, pe: c_int) {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_inc(job.object(dest, 1)?, number(pe)))
            }
            ["shmem_", stringify!($name), "_fadd"] fn(dest: *mut $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_fetch_add(job.object(dest, 1)?, value, number(pe)))
            }
            ["shmem_", stringify!($name), "_add"] fn(dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_add(job.object(dest, 1)?, value, number(pe)))
            }
        }
    )*};
}
atomics! { int: i32, long: i64, longlong: i64, }

macro_rules! extended {
    ($($name:ident: $t:ty,)*) => {$(
        export! {
            ["shmem_", stringify!($name), "_swap"] fn(dest: *mut $t, value: $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_swap(job.object(dest, 1)?, value, number(pe)))
            }
            ["shmem_", stringify!($name), "_fetch"] fn(source: *const $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_fetch(job.object(source, 1)?, number(pe)))
            }
            ["shmem_", stringify!($name), "_set"] fn(dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| job.context(Handle::DEFAULT)?.atomic_set(job.object(dest, 1)?, value, number(pe)))
            }
        }
    )*};
}
extended! { float: f32, double: f64, int: i32, long: i64, longlong: i64, }
