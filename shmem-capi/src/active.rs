//! Collectives of *active sets*, which the specification has given up and programs still call: a set is three numbers that its
//! members give with each call, and it synchronises in words of theirs, `pSync`.
//!
//! The members meet at their first: each adds one to a word of its, and it tells all of them in turn to go on. Both words are
//! zero again before the next call of a member. A call reads or writes nothing of anybody's but targets, sources and `pSync`;
//! `pWrk` is not used at all. A set of all PEs is the team of all PEs, whose collectives are faster.

use std::ffi::{c_int, c_long, c_void};

use num_complex::Complex;
use shmem_collectives::op::{And, Max, Min, Or, Prod, Reduce, Sum, Xor};
use shmem_core::{Ctx, Elem, ErrorKind, Result, Shared, SigRef, SymSlice};

use crate::coll::{extent, open_ended};
use crate::ctx::Handle;
use crate::job::{Job, run};
use crate::types::{LongDouble, pe as number};

/// How many members have come, at the first; whether they may go on, at the others; and where the next block begins, and one.
const COME: usize = 0;
const GO: usize = 1;
const NEXT: usize = 2;
/// Words of `pSync` that are used: no array of the specification's sizes is shorter.
const WORDS: usize = 3;

/// An active set under a call of one of its members.
struct Set {
    job: &'static Job,
    ctx: &'static Ctx<'static, Shared>,
    /// The members' PE numbers: the first, from each to the next, and how many they are.
    first: usize,
    stride: usize,
    len: usize,
    /// This PE's place.
    me: usize,
    words: SymSlice<'static, u64>,
}

impl Set {
    fn new(job: &'static Job, first: c_int, log_stride: c_int, len: c_int, words: *mut c_long) -> Result<Set> {
        let n_pes = job.world.n_pes();
        let bad =
            || ErrorKind::BadTeam(format!("{len} PEs from {first} at stride 2^{log_stride} leave a job of {n_pes}"));
        let (first, len, log) = (number(first), number(len), number(log_stride));
        let stride = 1_usize.checked_shl(log.min(64) as u32).unwrap_or(usize::MAX);
        let last = first.saturating_add(stride.saturating_mul(len.saturating_sub(1)));
        if len == 0 || last >= n_pes {
            return Err(bad().into());
        }
        let distance = job.world.me().wrapping_sub(first);
        if distance % stride != 0 || distance / stride >= len {
            return Err(ErrorKind::BadTeam(format!("PE {} is not in the active set", job.world.me())).into());
        }
        let (ctx, words) = (job.context(Handle::DEFAULT)?, job.object(words.cast::<u64>(), WORDS)?);
        Ok(Set { job, ctx, first, stride, len, me: distance / stride, words })
    }

    /// Whether all PEs are in it, in their order: then the team of all of them does it.
    fn is_world(&self) -> bool {
        self.len == self.job.world.n_pes()
    }

    fn pe(&self, member: usize) -> usize {
        self.first + member * self.stride
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let (me, len, first, stride) = (self.me, self.len, self.first, self.stride);
        // Each begins with another, so that not all write to one.
        (1..len).map(move |distance| first + (me + distance) % len * stride)
    }

    /// Takes what a word of this PE's holds, once it is something, and leaves a zero.
    fn take(&self, word: usize, ready: impl Fn(u64) -> bool) -> Result<u64> {
        let word = self.words.at(word)?;
        let value = self.ctx.wait(word, ready)?;
        self.ctx.atomic_swap(word, 0, self.job.world.me())?;
        Ok(value)
    }

    /// Blocks until all members have come.
    fn meet(&self) -> Result<()> {
        if self.me == 0 {
            let others = self.len as u64 - 1;
            if others > 0 {
                self.take(COME, |come| come == others)?;
            }
            return self.others().try_for_each(|pe| self.ctx.signal(SigRef::set(self.words.at(GO)?, 1), pe));
        }
        self.ctx.signal(SigRef::add(self.words.at(COME)?, 1), self.pe(0))?;
        self.take(GO, |go| go == 1).map(drop)
    }

    /// The same, after what this PE has put is complete.
    fn complete(&self) -> Result<()> {
        self.ctx.quiet()?;
        self.meet()
    }

    /// Puts a block into the targets of all members, the own one included.
    fn put_all<T: Elem>(&self, target: SymSlice<'static, T>, source: SymSlice<'static, T>) -> Result<()> {
        for pe in self.others().chain([self.pe(self.me)]) {
            self.ctx.put_from(target, source, pe)?;
        }
        Ok(())
    }
}

/// Runs a call of a member of an active set.
fn member(
    name: &'static str,
    (first, log_stride, len, words): (c_int, c_int, c_int, *mut c_long),
    call: impl FnOnce(&'static Job, &Set) -> Result<()>,
) {
    run(name, |job| {
        job.teams.world().settle();
        call(job, &Set::new(job, first, log_stride, len, words)?)
    })
}

/// The root is the only one whose target is left as it is.
fn broadcast<T: Elem>(
    job: &'static Job,
    set: &Set,
    dest: *mut T,
    source: *const T,
    len: usize,
    root: usize,
) -> Result<()> {
    if root >= set.len {
        return Err(ErrorKind::NoSuchPe { pe: root, n_pes: set.len }.into());
    }
    set.meet()?;
    if root == set.me {
        let (dest, source) = (job.object(dest, len)?, job.object(source, len)?);
        for pe in set.others() {
            set.ctx.put_from(dest, source, pe)?;
        }
    }
    set.complete()
}

fn fcollect<T: Elem>(job: &'static Job, set: &Set, dest: *mut T, source: *const T, len: usize) -> Result<()> {
    let (all, source) = (job.object(dest, len.saturating_mul(set.len))?, job.object(source, len)?);
    if set.is_world() {
        return job.teams.world().collective(job.world, |coll| coll.all_gather(all, source));
    }
    set.meet()?;
    set.put_all(all.slice(set.me * len..(set.me + 1) * len)?, source)?;
    set.complete()
}

/// Each member learns where its block begins from the one before.
fn collect<T: Elem>(job: &'static Job, set: &Set, dest: *mut T, source: *const T, len: usize) -> Result<()> {
    let source = job.object(source, len)?;
    set.meet()?;
    let start = if set.me == 0 { 0 } else { set.take(NEXT, |next| next != 0)? as usize - 1 };
    if set.me + 1 < set.len {
        let next = SigRef::set(set.words.at(NEXT)?, (start + len) as u64 + 1);
        set.ctx.signal(next, set.pe(set.me + 1))?;
    }
    if len > 0 {
        let target = open_ended(job, dest)?;
        set.put_all(target.slice(start..start + len)?, source)?;
    }
    set.complete()
}

fn all_to_all<T: Elem>(
    job: &'static Job,
    set: &Set,
    (dest, dst): (*mut T, isize),
    (source, sst): (*const T, isize),
    len: usize,
) -> Result<()> {
    let all = len.saturating_mul(set.len);
    for (what, stride) in [("dest stride", dst), ("source stride", sst)] {
        if stride < 1 {
            return Err(ErrorKind::Length { what, given: stride.max(0) as usize, needed: 1 }.into());
        }
    }
    let (dst, sst) = (dst as usize, sst as usize);
    let (dest, source) = (job.object(dest, extent(dst, all))?, job.object(source, extent(sst, all))?);
    if set.is_world() {
        return job.teams.world().collective(job.world, |coll| match (dst, sst) {
            (1, 1) => coll.all_to_all(dest, source),
            _ => coll.all_to_all_strided(dest, dst, source, sst, len),
        });
    }
    set.meet()?;
    if len > 0 {
        let target = dest.slice(set.me * len * dst..)?;
        for member in (0..set.len).map(|distance| (set.me + distance) % set.len) {
            let from = source.slice(member * len * sst..)?.as_ptr().cast_const();
            // One after the other, they are one block.
            let (block, count) = if (dst, sst) == (1, 1) { (len, 1) } else { (1, len) };
            let (dst, sst) = (dst.max(block), sst.max(block));
            // SAFETY: the block ends within the source, of which the extent has been looked up.
            unsafe { set.ctx.ibput_raw(target, dst, from, sst, block, count, set.pe(member)) }?;
        }
    }
    set.complete()
}

/// Everybody combines the sources of all in their order, and writes its target when all have read.
fn reduce<T: Elem, R: Reduce<T>>(
    job: &'static Job,
    set: &Set,
    dest: *mut T,
    source: *const T,
    len: usize,
    op: R,
) -> Result<()> {
    let (dest, source) = (job.object(dest, len)?, job.object(source, len)?);
    if set.is_world() {
        return job.teams.world().collective(job.world, |coll| coll.all_reduce(dest, source, op));
    }
    set.complete()?;
    let (mut all, mut one): (Vec<R::Acc>, _) = (Vec::new(), vec![T::zeroed(); len]);
    for member in 0..set.len {
        set.ctx.get(&mut one, source, set.pe(member))?;
        let widened = one.iter().map(|element| op.widen(*element));
        if member == 0 {
            all = widened.collect();
        } else {
            all.iter_mut().zip(widened).for_each(|(all, one)| *all = op.combine(*all, one));
        }
    }
    set.meet()?;
    one.iter_mut().zip(all).for_each(|(one, all)| *one = op.finish(all, set.len));
    dest.copy_from(&one)
}

fn barrier(name: &'static str, set: (c_int, c_int, c_int, *mut c_long), complete: bool) {
    member(name, set, |job, set| match (set.is_world(), complete) {
        (true, true) => job.world.barrier_all(),
        (true, false) => job.world.sync_all(),
        (false, true) => set.complete(),
        (false, false) => set.meet(),
    })
}

export! {
    ["shmem_barrier"] fn(start: c_int, stride: c_int, size: c_int, psync: *mut c_long) {
        barrier(NAME, (start, stride, size, psync), true)
    }
    ["shmem_sync"] fn(start: c_int, stride: c_int, size: c_int, psync: *mut c_long) {
        barrier(NAME, (start, stride, size, psync), false)
    }
}

macro_rules! moving {
    ($($bits:literal: $t:ty;)*) => {$(
        export! {
            ["shmem_broadcast", $bits] fn(
                dest: *mut c_void, source: *const c_void, nelems: usize, root: c_int,
                start: c_int, stride: c_int, size: c_int, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    broadcast::<$t>(job, set, dest.cast(), source.cast(), nelems, number(root))
                })
            }
            ["shmem_collect", $bits] fn(
                dest: *mut c_void, source: *const c_void, nelems: usize,
                start: c_int, stride: c_int, size: c_int, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    collect::<$t>(job, set, dest.cast(), source.cast(), nelems)
                })
            }
            ["shmem_fcollect", $bits] fn(
                dest: *mut c_void, source: *const c_void, nelems: usize,
                start: c_int, stride: c_int, size: c_int, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    fcollect::<$t>(job, set, dest.cast(), source.cast(), nelems)
                })
            }
            ["shmem_alltoall", $bits] fn(
                dest: *mut c_void, source: *const c_void, nelems: usize,
                start: c_int, stride: c_int, size: c_int, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    all_to_all::<$t>(job, set, (dest.cast(), 1), (source.cast(), 1), nelems)
                })
            }
            ["shmem_alltoalls", $bits] fn(
                dest: *mut c_void, source: *const c_void, dst: isize, sst: isize, nelems: usize,
                start: c_int, stride: c_int, size: c_int, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    all_to_all::<$t>(job, set, (dest.cast(), dst), (source.cast(), sst), nelems)
                })
            }
        }
    )*};
}
moving! { "32": u32; "64": u64; }

macro_rules! reduction {
    ($name:ident, $t:ty, $tail:literal, $op:expr) => {
        export! {
            ["shmem_", stringify!($name), $tail] fn(
                dest: *mut $t, source: *const $t, nreduce: c_int,
                start: c_int, stride: c_int, size: c_int, _pwrk: *mut $t, psync: *mut c_long,
            ) {
                member(NAME, (start, stride, size, psync), |job, set| {
                    reduce(job, set, dest, source, number(nreduce.max(0)), $op)
                })
            }
        }
    };
}

macro_rules! arithmetic {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, "_sum_to_all", of_type!($name, Sum));
        reduction!($name, $t, "_prod_to_all", of_type!($name, Prod));
    )*};
}
arithmetic! {
    short: i16, int: i32, long: i64, longlong: i64, float: f32, double: f64, longdouble: LongDouble,
}
complex_types!(arithmetic);

macro_rules! ordered {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, "_max_to_all", of_type!($name, Max));
        reduction!($name, $t, "_min_to_all", of_type!($name, Min));
    )*};
}
ordered! { short: i16, int: i32, long: i64, longlong: i64, float: f32, double: f64, longdouble: LongDouble, }

macro_rules! bitwise {
    ($($name:ident: $t:ty,)*) => {$(
        reduction!($name, $t, "_and_to_all", And);
        reduction!($name, $t, "_or_to_all", Or);
        reduction!($name, $t, "_xor_to_all", Xor);
    )*};
}
bitwise! { short: i16, int: i32, long: i64, longlong: i64, }
