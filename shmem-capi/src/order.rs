//! Fence, quiet, barriers, locks.

use std::ffi::{c_int, c_long};

use shmem_core::{Result, SymSlice};

use crate::ctx::Handle;
use crate::job::{Job, run};
use crate::types::{array, pe as number};

/// The word of a lock.
fn lock(job: &'static Job, lock: *mut c_long) -> Result<SymSlice<'static, u64>> {
    job.object(lock.cast::<u64>(), 1)
}

fn quiet_pes(job: &'static Job, ctx: Handle, pes: *const c_int, len: usize) -> Result<()> {
    // SAFETY: C gives as many numbers.
    let pes = unsafe { array("target_pes", pes, len)? };
    job.context(ctx)?.quiet_pes(&pes.iter().map(|pe| number(*pe)).collect::<Vec<_>>())
}

export! {
    ["shmem_fence"] fn() { run(NAME, |job| job.context(Handle::DEFAULT)?.fence()) }
    // Of no context, these have nothing to do.
    ["shmem_ctx_fence"] fn(ctx: Handle) {
        run(NAME, |job| if ctx == Handle::INVALID { Ok(()) } else { job.context(ctx)?.fence() })
    }
    ["shmem_quiet"] fn() { run(NAME, |job| job.context(Handle::DEFAULT)?.quiet()) }
    ["shmem_ctx_quiet"] fn(ctx: Handle) {
        run(NAME, |job| if ctx == Handle::INVALID { Ok(()) } else { job.context(ctx)?.quiet() })
    }
    ["shmem_pe_quiet"] fn(pes: *const c_int, npes: usize) {
        run(NAME, |job| quiet_pes(job, Handle::DEFAULT, pes, npes))
    }
    ["shmem_ctx_pe_quiet"] fn(ctx: Handle, pes: *const c_int, npes: usize) {
        run(NAME, |job| if ctx == Handle::INVALID { Ok(()) } else { quiet_pes(job, ctx, pes, npes) })
    }

    ["shmem_barrier_all"] fn() {
        run(NAME, |job| {
            job.teams.world().settle();
            job.world.barrier_all()
        })
    }
    ["shmem_sync_all"] fn() {
        run(NAME, |job| {
            job.teams.world().settle();
            job.world.sync_all()
        })
    }

    ["shmem_set_lock"] fn(word: *mut c_long) {
        run(NAME, |job| job.context(Handle::DEFAULT)?.set_lock(lock(job, word)?))
    }
    // 0 if this PE has the lock now, as the specification has it.
    ["shmem_test_lock"] fn(word: *mut c_long) -> c_int {
        run(NAME, |job| Ok((!job.context(Handle::DEFAULT)?.test_lock(lock(job, word)?)?).into()))
    }
    ["shmem_clear_lock"] fn(word: *mut c_long) {
        run(NAME, |job| job.context(Handle::DEFAULT)?.clear_lock(lock(job, word)?))
    }
}
