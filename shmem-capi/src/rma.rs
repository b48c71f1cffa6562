//! Put and get. All forms are made of bytes, so an address need not be aligned, but for single elements.

use std::ffi::{c_int, c_void};

use shmem_core::{ErrorKind, Result, SigRef, SymSlice};

use crate::ctx::Handle;
use crate::job::{Job, done, run, started};
use crate::signal::signal;
use crate::types::{LongDouble, pe as number};

/// Puts `len` elements of `size` bytes. (No closure: it would be one for all that put, and not be inlined.)
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
pub(crate) fn put(
    name: &'static str,
    ctx: Handle,
    dest: *mut c_void,
    source: *const c_void,
    len: usize,
    size: usize,
    pe: c_int,
    nbi: bool,
) {
    let job = started(name);
    let (target, ctx) = (done(name, job.bytes(dest, len, size)), done(name, job.context(ctx)));
    // SAFETY: C gives a source of as many elements.
    done(name, unsafe { ctx.put_raw(target, source.cast(), number(pe), nbi) });
}

/// Gets `len` elements of `size` bytes.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the specification's arguments")]
pub(crate) fn get(
    name: &'static str,
    ctx: Handle,
    dest: *mut c_void,
    source: *const c_void,
    len: usize,
    size: usize,
    pe: c_int,
    nbi: bool,
) {
    let job = started(name);
    let (source, ctx) = (done(name, job.bytes(source, len, size)), done(name, job.context(ctx)));
    // SAFETY: C gives a target of as many elements.
    done(name, unsafe { ctx.get_raw(dest.cast(), source, number(pe), nbi) });
}

/// Puts with a signal behind it.
#[inline(always)]
fn put_signal(
    name: &'static str,
    ctx: Handle,
    dest: *mut c_void,
    source: *const c_void,
    (len, size): (usize, usize),
    (word, value, op): (*mut u64, u64, c_int),
    pe: c_int,
) {
    let job = started(name);
    let (target, ctx) = (done(name, job.bytes(dest, len, size)), done(name, job.context(ctx)));
    let signal: SigRef<'_> = done(name, signal(job, word, value, op));
    // SAFETY: C gives a source of as many elements.
    done(name, unsafe { ctx.put_signal_raw(target, source.cast(), signal, number(pe)) });
}

/// Blocks of elements at strides, in C's elements: of `size` bytes, `block` of them in each of `count` blocks.
#[derive(Clone, Copy)]
struct Strides {
    dest: usize,
    source: usize,
    size: usize,
    block: usize,
    count: usize,
}

impl Strides {
    /// The same in bytes.
    fn in_bytes(self) -> Result<Strides> {
        let times = |value: usize| -> Result<usize> {
            value.checked_mul(self.size).ok_or_else(|| ErrorKind::Overflow { count: value, size: self.size }.into())
        };
        let (dest, source) = (times(self.dest)?, times(self.source)?);
        Ok(Strides { dest, source, size: 1, block: times(self.block)?, count: self.count })
    }

    /// From the first byte to behind the last, at a stride.
    fn extent(&self, stride: usize) -> usize {
        match (self.count, self.block) {
            (0, _) | (_, 0) => 0,
            _ => stride.saturating_mul(self.count - 1).saturating_add(self.block),
        }
    }
}

/// Objects and strides of elements of one type, if addresses and lengths are such that they can be taken for that.
macro_rules! in_elements {
    ($job:ident, $far:expr, $near:expr, $far_stride:ident, $strides:ident, $size:ident, |$object:ident, $t:ident| $call:expr) => {
        match $size {
            4 if ($far.addr() | $near.addr()).is_multiple_of(4) => in_elements!(@ u32, $job, $far, $far_stride, $strides, $object, $t, $call),
            8 if ($far.addr() | $near.addr()).is_multiple_of(8) => in_elements!(@ u64, $job, $far, $far_stride, $strides, $object, $t, $call),
            _ => {
                let $strides = $strides.in_bytes()?;
                in_elements!(@ u8, $job, $far, $far_stride, $strides, $object, $t, $call)
            }
        }
    };
    (@ $elem:ty, $job:ident, $far:expr, $far_stride:ident, $strides:ident, $object:ident, $t:ident, $call:expr) => {{
        type $t = $elem;
        let $strides = $strides;
        let $object: SymSlice<'static, $t> = $job.object($far.cast::<$t>(), $strides.extent($strides.$far_stride))?;
        $call
    }};
}

/// Strides as C gives them, into which a block fits.
fn strides(dst: isize, sst: isize, size: usize, block: usize, count: usize) -> Result<Strides> {
    let stride = |what, given: isize| {
        let (stride, needed) = (given.max(0) as usize, block.max(1));
        if stride < needed { Err(ErrorKind::Length { what, given: stride, needed }) } else { Ok(stride) }
    };
    Ok(Strides { dest: stride("dest stride", dst)?, source: stride("source stride", sst)?, size, block, count })
}

fn strided_put(
    job: &'static Job,
    ctx: Handle,
    dest: *mut c_void,
    source: *const c_void,
    strides: Strides,
    pe: c_int,
) -> Result<()> {
    let (size, ctx) = (strides.size, job.context(ctx)?);
    in_elements!(job, dest, source, dest, strides, size, |target, T| {
        let Strides { dest, source: from, block, count, .. } = strides;
        // SAFETY: C gives a source of as many blocks at such strides.
        unsafe { ctx.ibput_raw(target, dest, source.cast::<T>(), from, block, count, number(pe)) }
    })
}

fn strided_get(
    job: &'static Job,
    ctx: Handle,
    dest: *mut c_void,
    source: *const c_void,
    strides: Strides,
    pe: c_int,
) -> Result<()> {
    let (size, ctx) = (strides.size, job.context(ctx)?);
    in_elements!(job, source, dest, source, strides, size, |object, T| {
        let Strides { dest: to, source, block, count, .. } = strides;
        // SAFETY: C gives a target of as many blocks at such strides.
        unsafe { ctx.ibget_raw(dest.cast::<T>(), to, object, source, block, count, number(pe)) }
    })
}

/// All forms of elements of one kind: pieces of the names, what C takes for their type, and the bytes of one.
macro_rules! contiguous {
    ($put:expr, $get:expr, $tail:expr, $t:ty, $size:expr) => {
        export_ctx! {
            [$put, $tail] fn(ctx; dest: *mut $t, source: *const $t, nelems: usize, pe: c_int) {
                put(NAME, ctx, dest.cast(), source.cast(), nelems, $size, pe, false)
            }
            [$put, $tail, "_nbi"] fn(ctx; dest: *mut $t, source: *const $t, nelems: usize, pe: c_int) {
                put(NAME, ctx, dest.cast(), source.cast(), nelems, $size, pe, true)
            }
            [$get, $tail] fn(ctx; dest: *mut $t, source: *const $t, nelems: usize, pe: c_int) {
                get(NAME, ctx, dest.cast(), source.cast(), nelems, $size, pe, false)
            }
            [$get, $tail, "_nbi"] fn(ctx; dest: *mut $t, source: *const $t, nelems: usize, pe: c_int) {
                get(NAME, ctx, dest.cast(), source.cast(), nelems, $size, pe, true)
            }
            // The signal follows without another call in either form.
            [$put, $tail, "_signal"] fn(
                ctx; dest: *mut $t, source: *const $t, nelems: usize, word: *mut u64, value: u64, op: c_int, pe: c_int,
            ) {
                put_signal(NAME, ctx, dest.cast(), source.cast(), (nelems, $size), (word, value, op), pe)
            }
            [$put, $tail, "_signal_nbi"] fn(
                ctx; dest: *mut $t, source: *const $t, nelems: usize, word: *mut u64, value: u64, op: c_int, pe: c_int,
            ) {
                put_signal(NAME, ctx, dest.cast(), source.cast(), (nelems, $size), (word, value, op), pe)
            }
        }
    };
}

macro_rules! strided {
    ($iput:expr, $iget:expr, $ibput:expr, $ibget:expr, $tail:expr, $t:ty, $size:expr) => {
        export_ctx! {
            [$iput, $tail] fn(
                ctx; dest: *mut $t, source: *const $t, dst: isize, sst: isize, nelems: usize, pe: c_int,
            ) {
                run(NAME, |job| strided_put(job, ctx, dest.cast(), source.cast(), strides(dst, sst, $size, 1, nelems)?, pe))
            }
            [$iget, $tail] fn(
                ctx; dest: *mut $t, source: *const $t, dst: isize, sst: isize, nelems: usize, pe: c_int,
            ) {
                run(NAME, |job| strided_get(job, ctx, dest.cast(), source.cast(), strides(dst, sst, $size, 1, nelems)?, pe))
            }
            [$ibput, $tail] fn(
                ctx; dest: *mut $t, source: *const $t, dst: isize, sst: isize, bsize: usize, nblocks: usize, pe: c_int,
            ) {
                run(NAME, |job| strided_put(job, ctx, dest.cast(), source.cast(), strides(dst, sst, $size, bsize, nblocks)?, pe))
            }
            [$ibget, $tail] fn(
                ctx; dest: *mut $t, source: *const $t, dst: isize, sst: isize, bsize: usize, nblocks: usize, pe: c_int,
            ) {
                run(NAME, |job| strided_get(job, ctx, dest.cast(), source.cast(), strides(dst, sst, $size, bsize, nblocks)?, pe))
            }
        }
    };
}

macro_rules! typed {
    ($($name:ident: $t:ty,)*) => {$(
        contiguous!(
            concat!(stringify!($name), "_put"), concat!(stringify!($name), "_get"), "", $t, size_of::<$t>()
        );
        strided!(
            concat!(stringify!($name), "_iput"), concat!(stringify!($name), "_iget"),
            concat!(stringify!($name), "_ibput"), concat!(stringify!($name), "_ibget"), "", $t, size_of::<$t>()
        );
    )*};
}
rma_types!(typed);

macro_rules! sized {
    ($($bits:literal: $size:literal,)*) => {$(
        contiguous!("put", "get", $bits, c_void, $size);
    )*};
}
sizes!(sized);

macro_rules! sized_strided {
    ($($bits:literal: $size:literal,)*) => {$(
        strided!("iput", "iget", "ibput", "ibget", $bits, c_void, $size);
    )*};
}
strided_sizes!(sized_strided);

macro_rules! single {
    ($($name:ident: $t:ty,)*) => {$(
        export_ctx! {
            [stringify!($name), "_p"] fn(ctx; dest: *mut $t, value: $t, pe: c_int) {
                run(NAME, |job| job.context(ctx)?.p(job.object(dest, 1)?, value, number(pe)))
            }
            [stringify!($name), "_g"] fn(ctx; source: *const $t, pe: c_int) -> $t {
                run(NAME, |job| job.context(ctx)?.g(job.object(source, 1)?, number(pe)))
            }
        }
    )*};
}
value_types!(single);
