//! `shmemx_…`: what programs need and the specification does not have. Types and operations of these reductions are numbers,
//! so that one function serves all of them, f16 and bf16 among them.

use std::ffi::{c_char, c_int, c_long};
use std::time::Duration;

use shmem_collectives::op::{Op, Reduce, Type, Visit, dispatch};
use shmem_collectives::{Coll, Pending};
use shmem_core::{Elem, Error, Result};

use crate::fail::{latest, set_returned, status};
use crate::job::{Job, run};
use crate::team::{Config, Handle, config, split};
use crate::types::{array, check, pe as number, store};

/// `SHMEMX_I8` … in this order.
const TYPES: [Type; 14] = [
    Type::I8,
    Type::I16,
    Type::I32,
    Type::I64,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::F16,
    Type::Bf16,
    Type::F32,
    Type::F64,
    Type::Complex64,
    Type::Complex128,
];

/// `SHMEMX_SUM` … in this order.
const OPS: [Op; 8] = [Op::Sum, Op::Prod, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor, Op::Avg];

/// Which reduction of which type.
fn named(ty: c_int, op: c_int) -> Result<(Type, Op)> {
    let ty = usize::try_from(ty)
        .ok()
        .and_then(|ty| TYPES.get(ty))
        .ok_or_else(|| Error::other(format!("{ty} is no shmemx_type_t")))?;
    let op = usize::try_from(op)
        .ok()
        .and_then(|op| OPS.get(op))
        .ok_or_else(|| Error::other(format!("{op} is no shmemx_op_t")))?;
    Ok((*ty, *op))
}

/// A reduction of `len` elements a PE, of which the type is not known yet.
#[derive(Clone, Copy)]
struct Reduction {
    job: &'static Job,
    dest: *mut u8,
    source: *const u8,
    len: usize,
    /// How many times as long the source is.
    blocks: usize,
}

/// Runs it.
struct Run<'a>(Reduction, &'a Coll<'static>);

impl Visit for Run<'_> {
    type Out = Result<()>;

    fn visit<T: Elem, R: Reduce<T>>(self, op: R) -> Result<()> {
        let Run(Reduction { job, dest, source, len, blocks }, coll) = self;
        let dest = job.object(dest.cast::<T>(), len)?;
        let source = job.object(source.cast::<T>(), len.saturating_mul(blocks))?;
        if blocks == 1 { coll.all_reduce(dest, source, op) } else { coll.reduce_scatter(dest, source, op) }
    }
}

/// A call that does not block, once it is started.
type Started = Result<Pending<'static, 'static>>;

/// Starts an all-reduce.
struct Start(Reduction, &'static Coll<'static>);

impl Visit for Start {
    type Out = Started;

    fn visit<T: Elem, R: Reduce<T> + 'static>(self, op: R) -> Started {
        let Start(Reduction { job, dest, source, len, .. }, coll) = self;
        Ok(coll.start_all_reduce(job.object(dest.cast::<T>(), len)?, job.object(source.cast::<T>(), len)?, op))
    }
}

/// `shmemx_req_t`: which call of which team; of no team, one that has ended.
#[repr(C)]
pub(crate) struct Request {
    team: Handle,
    call: u64,
}

/// Starts a collective.
fn start(
    name: &'static str,
    team: Handle,
    request: *mut Request,
    call: impl FnOnce(&'static Job, &'static Coll<'static>, usize) -> Started,
) -> c_int {
    status(name, |job| {
        check(request, "request")?;
        let of = job.teams.get(team)?;
        let call = of.start(job.world, |coll| call(job, coll, of.core().n_pes()))?;
        // SAFETY: C gives a valid address.
        unsafe { *request = Request { team, call } };
        Ok(())
    })
}

/// Whether the call of a request has ended; of one that has, the request is none afterwards.
fn ended(job: &'static Job, request: *mut Request, block: bool) -> Result<bool> {
    check(request, "request")?;
    // SAFETY: C gives a valid address.
    let request = unsafe { &mut *request };
    if request.team == Handle::INVALID {
        return Ok(true);
    }
    let ended = job.teams.ended(request.team, request.call, block, job.limit());
    if !matches!(ended, Ok(false)) {
        request.team = Handle::INVALID;
    }
    ended
}

export! {
    ["shmemx_reduce"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nreduce: usize, ty: c_int, op: c_int,
    ) -> c_int {
        status(NAME, |job| {
            let reduction = Reduction { job, dest, source, len: nreduce, blocks: 1 };
            job.teams.get(team)?.collective(job.world, |coll| {
                let (ty, op) = named(ty, op)?;
                dispatch(ty, op, Run(reduction, coll))?
            })
        })
    }

    ["shmemx_reduce_scatter"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nreduce: usize, ty: c_int, op: c_int,
    ) -> c_int {
        status(NAME, |job| {
            let team = job.teams.get(team)?;
            let reduction = Reduction { job, dest, source, len: nreduce, blocks: team.core().n_pes() };
            team.collective(job.world, |coll| {
                let (ty, op) = named(ty, op)?;
                dispatch(ty, op, Run(reduction, coll))?
            })
        })
    }

    ["shmemx_alltoallvmem"] fn(
        team: Handle, dest: *mut u8, dest_counts: *const usize, dest_displs: *const usize,
        source: *const u8, source_counts: *const usize, source_displs: *const usize,
    ) -> c_int {
        status(NAME, |job| {
            let team = job.teams.get(team)?;
            team.collective(job.world, |coll| {
                let n = team.core().n_pes();
                // SAFETY: C gives arrays of as many numbers as the team has PEs.
                let [to, to_displs, from, from_displs] = unsafe {
                    [
                        array("dest_counts", dest_counts, n)?,
                        array("dest_displs", dest_displs, n)?,
                        array("source_counts", source_counts, n)?,
                        array("source_displs", source_displs, n)?,
                    ]
                };
                let end = |counts: &[usize], displs: &[usize]| {
                    let some = counts.iter().zip(displs).filter(|(count, _)| **count > 0);
                    some.map(|(count, displ)| count.saturating_add(*displ)).max().unwrap_or(0)
                };
                let (dest, source) = (job.object(dest, end(to, to_displs))?, job.object(source, end(from, from_displs))?);
                coll.all_to_all_v(dest, to, to_displs, source, from, from_displs)
            })
        })
    }

    ["shmemx_reduce_nbi"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nreduce: usize, ty: c_int, op: c_int, request: *mut Request,
    ) -> c_int {
        start(NAME, team, request, |job, coll, _| {
            let (ty, op) = named(ty, op)?;
            dispatch(ty, op, Start(Reduction { job, dest, source, len: nreduce, blocks: 1 }, coll))?
        })
    }

    ["shmemx_broadcastmem_nbi"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nelems: usize, root: c_int, request: *mut Request,
    ) -> c_int {
        start(NAME, team, request, |job, coll, _| {
            Ok(coll.start_broadcast(job.object(dest, nelems)?, job.object(source, nelems)?, number(root)))
        })
    }

    ["shmemx_fcollectmem_nbi"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nelems: usize, request: *mut Request,
    ) -> c_int {
        start(NAME, team, request, |job, coll, n| {
            Ok(coll.start_all_gather(job.object(dest, nelems.saturating_mul(n))?, job.object(source, nelems)?))
        })
    }

    ["shmemx_collectmem_nbi"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nelems: usize, request: *mut Request,
    ) -> c_int {
        start(NAME, team, request, |job, coll, _| {
            let dest = if dest.is_null() { job.object(dest, 0)? } else { job.at.rest_of_block(dest)? };
            Ok(coll.start_all_gather_v(dest, job.object(source, nelems)?))
        })
    }

    ["shmemx_alltoallmem_nbi"] fn(
        team: Handle, dest: *mut u8, source: *const u8, nelems: usize, request: *mut Request,
    ) -> c_int {
        start(NAME, team, request, |job, coll, n| {
            let len = nelems.saturating_mul(n);
            Ok(coll.start_all_to_all(job.object(dest, len)?, job.object(source, len)?))
        })
    }

    ["shmemx_team_barrier_nbi"] fn(team: Handle, request: *mut Request) -> c_int {
        start(NAME, team, request, |_, coll, _| Ok(coll.start_barrier()))
    }

    ["shmemx_req_test"] fn(request: *mut Request, done: *mut c_int) -> c_int {
        status(NAME, |job| {
            check(done, "done")?;
            let ended = ended(job, request, false)?;
            // SAFETY: C gives a valid address.
            unsafe { store(done, "done", ended.into()) }
        })
    }

    ["shmemx_req_wait"] fn(request: *mut Request) -> c_int {
        status(NAME, |job| ended(job, request, true).map(drop))
    }

    ["shmemx_team_split_list"] fn(
        parent: Handle, pes: *const c_int, npes: usize, of: *const Config, mask: c_long, team: *mut Handle,
    ) -> c_int {
        // SAFETY: C gives valid addresses, and as many numbers.
        unsafe {
            split(NAME, parent, config(of, mask), team, |parent| {
                // Of a list that is longer than the parent, so many say what is wrong with it; the split tells all PEs.
                let len = if pes.is_null() { 0 } else { npes.min(parent.n_pes() + 1) };
                let pes: Vec<usize> = array("pes", pes, len)?.iter().map(|pe| number(*pe)).collect();
                parent.split_list(&pes)
            })
        }
    }

    ["shmemx_heap_size"] fn() -> usize {
        run(NAME, |job| Ok(job.world.heap_size() - job.globals))
    }

    ["shmemx_heap_available"] fn() -> usize { run(NAME, |job| Ok(job.world.heap_free().1)) }

    ["shmemx_set_timeout"] fn(seconds: f64) {
        run(NAME, |job| {
            let limit = Duration::try_from_secs_f64(seconds);
            job.set_limit(limit.ok().filter(|limit| !limit.is_zero()));
            Ok(())
        })
    }

    ["shmemx_return_errors"] fn(wanted: c_int) { set_returned(wanted != 0) }

    ["shmemx_error_text"] fn() -> *const c_char { latest() }
}
