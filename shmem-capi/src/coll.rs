//! Collectives of teams.

use std::ffi::{c_int, c_void};

use num_complex::Complex;
use shmem_collectives::Coll;
use shmem_collectives::op::{And, Max, Min, Or, Prod, Reduce, Sum, Xor};
use shmem_core::{Elem, Result, SymSlice};

use crate::fail::status;
use crate::job::Job;
use crate::team::Handle;
use crate::types::{LongDouble, pe as number};

/// Runs a collective of a team of so many PEs.
#[inline(always)]
fn collective(
    name: &'static str,
    team: Handle,
    call: impl FnOnce(&'static Job, &Coll<'static>, usize) -> Result<()>,
) -> c_int {
    status(name, |job| {
        let team = job.teams.get(team)?;
        team.collective(job.world, |coll| call(job, coll, team.core().n_pes()))
    })
}

fn all_to_all<T: Elem>(name: &'static str, team: Handle, dest: *mut T, source: *const T, nelems: usize) -> c_int {
    collective(name, team, |job, coll, n| {
        let len = nelems.saturating_mul(n);
        coll.all_to_all(job.object(dest, len)?, job.object(source, len)?)
    })
}

/// Elements from the first to the last of so many at a stride.
pub(crate) fn extent(stride: usize, len: usize) -> usize {
    len.checked_sub(1).map_or(0, |last| last.saturating_mul(stride).saturating_add(1))
}

fn all_to_all_strided<T: Elem>(
    name: &'static str,
    team: Handle,
    (dest, dst): (*mut T, isize),
    (source, sst): (*const T, isize),
    nelems: usize,
) -> c_int {
    collective(name, team, |job, coll, n| {
        // A stride that is none is an error of the call.
        let (dst, sst, len) = (dst.max(0) as usize, sst.max(0) as usize, nelems.saturating_mul(n));
        let (dest, source) = (job.object(dest, extent(dst, len))?, job.object(source, extent(sst, len))?);
        coll.all_to_all_strided(dest, dst, source, sst, nelems)
    })
}

fn broadcast<T: Elem>(
    name: &'static str,
    team: Handle,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    root: c_int,
) -> c_int {
    collective(name, team, |job, coll, _| {
        coll.broadcast(job.object(dest, nelems)?, job.object(source, nelems)?, number(root))
    })
}

/// A target of a length that depends on what the others bring.
pub(crate) fn open_ended<T: Elem>(job: &'static Job, dest: *mut T) -> Result<SymSlice<'static, T>> {
    if dest.is_null() { job.object(dest, 0) } else { job.at.rest(dest.cast())?.cast() }
}

fn collect<T: Elem>(name: &'static str, team: Handle, dest: *mut T, source: *const T, nelems: usize) -> c_int {
    collective(name, team, |job, coll, _| coll.all_gather_v(open_ended(job, dest)?, job.object(source, nelems)?))
}

fn fcollect<T: Elem>(name: &'static str, team: Handle, dest: *mut T, source: *const T, nelems: usize) -> c_int {
    collective(name, team, |job, coll, n| {
        coll.all_gather(job.object(dest, nelems.saturating_mul(n))?, job.object(source, nelems)?)
    })
}

fn reduce<T: Elem, R: Reduce<T>>(
    name: &'static str,
    team: Handle,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    op: R,
) -> c_int {
    collective(name, team, |job, coll, _| coll.all_reduce(job.object(dest, nelems)?, job.object(source, nelems)?, op))
}

fn inscan<T: Elem, R: Reduce<T>>(
    name: &'static str,
    team: Handle,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    op: R,
) -> c_int {
    collective(name, team, |job, coll, _| {
        coll.inclusive_scan(job.object(dest, nelems)?, job.object(source, nelems)?, op)
    })
}

/// The specification has zeros on the first PE.
fn exscan<T: Elem, R: Reduce<T>>(
    name: &'static str,
    team: Handle,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    op: R,
) -> c_int {
    collective(name, team, |job, coll, _| {
        let dest = job.object(dest, nelems)?;
        coll.exclusive_scan(dest, job.object(source, nelems)?, op)?;
        if coll.team().me() == 0 {
            dest.fill(T::zeroed());
        }
        Ok(())
    })
}

macro_rules! moving {
    ($($name:expr, $mem:expr, $t:ty, $elem:ty;)*) => {$(
        export! {
            ["shmem_", $name, "alltoall", $mem] fn(
                team: Handle, dest: *mut $t, source: *const $t, nelems: usize,
            ) -> c_int {
                all_to_all::<$elem>(NAME, team, dest.cast(), source.cast(), nelems)
            }
            ["shmem_", $name, "alltoalls", $mem] fn(
                team: Handle, dest: *mut $t, source: *const $t, dst: isize, sst: isize, nelems: usize,
            ) -> c_int {
                all_to_all_strided::<$elem>(NAME, team, (dest.cast(), dst), (source.cast(), sst), nelems)
            }
            ["shmem_", $name, "broadcast", $mem] fn(
                team: Handle, dest: *mut $t, source: *const $t, nelems: usize, root: c_int,
            ) -> c_int {
                broadcast::<$elem>(NAME, team, dest.cast(), source.cast(), nelems, root)
            }
            ["shmem_", $name, "collect", $mem] fn(
                team: Handle, dest: *mut $t, source: *const $t, nelems: usize,
            ) -> c_int {
                collect::<$elem>(NAME, team, dest.cast(), source.cast(), nelems)
            }
            ["shmem_", $name, "fcollect", $mem] fn(
                team: Handle, dest: *mut $t, source: *const $t, nelems: usize,
            ) -> c_int {
                fcollect::<$elem>(NAME, team, dest.cast(), source.cast(), nelems)
            }
        }
    )*};
}

macro_rules! typed {
    ($($name:ident: $t:ty,)*) => {$(
        moving! { concat!(stringify!($name), "_"), "", $t, $t; }
    )*};
}
rma_types!(typed);
moving! { "", "mem", c_void, u8; }

/// A reduction of one type under its name in C: `shmem_int_sum_reduce`.
macro_rules! reduction {
    ($name:ident, $t:ty, $call:ident, $tail:literal, $op:expr) => {
        export! {
            ["shmem_", stringify!($name), $tail] fn(
                team: Handle, dest: *mut $t, source: *const $t, nreduce: usize,
            ) -> c_int {
                $call(NAME, team, dest, source, nreduce, $op)
            }
        }
    };
}

macro_rules! arithmetic {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, reduce, "_sum_reduce", of_type!($name, Sum));
        reduction!($name, $t, reduce, "_prod_reduce", of_type!($name, Prod));
        reduction!($name, $t, inscan, "_sum_inscan", of_type!($name, Sum));
        reduction!($name, $t, exscan, "_sum_exscan", of_type!($name, Sum));
    )*};
}
rma_types!(arithmetic);
complex_types!(arithmetic);

macro_rules! ordered {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, reduce, "_max_reduce", of_type!($name, Max));
        reduction!($name, $t, reduce, "_min_reduce", of_type!($name, Min));
    )*};
}
rma_types!(ordered);

macro_rules! bitwise {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, reduce, "_and_reduce", And);
        reduction!($name, $t, reduce, "_or_reduce", Or);
        reduction!($name, $t, reduce, "_xor_reduce", Xor);
    )*};
}
bitwise_types!(bitwise);
