//! Signals.

use std::ffi::c_int;

use shmem_core::{Error, Result, SigRef};

use crate::ctx::Handle;
use crate::job::{Job, run};
use crate::types::pe as number;
use crate::wait::cmp;

/// `SHMEM_SIGNAL_SET` and `SHMEM_SIGNAL_ADD`.
const SET: c_int = 0;
const ADD: c_int = 1;

/// A signal for a word at an address.
#[inline(always)]
pub(crate) fn signal(job: &'static Job, word: *mut u64, value: u64, op: c_int) -> Result<SigRef<'static>> {
    let word = job.object(word, 1)?;
    match op {
        SET => Ok(SigRef::set(word, value)),
        ADD => Ok(SigRef::add(word, value)),
        _ => Err(Error::other(format!("{op} is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD"))),
    }
}

export_ctx! {
    ["signal_set"] fn(ctx; word: *mut u64, value: u64, pe: c_int) {
        run(NAME, |job| job.context(ctx)?.signal(signal(job, word, value, SET)?, number(pe)))
    }
    ["signal_add"] fn(ctx; word: *mut u64, value: u64, pe: c_int) {
        run(NAME, |job| job.context(ctx)?.signal(signal(job, word, value, ADD)?, number(pe)))
    }
}

export! {
    ["shmem_signal_fetch"] fn(word: *const u64) -> u64 {
        run(NAME, |job| job.context(Handle::DEFAULT)?.signal_fetch(job.object(word, 1)?))
    }
    ["shmem_signal_wait_until"] fn(word: *mut u64, op: c_int, value: u64) -> u64 {
        run(NAME, |job| job.context(Handle::DEFAULT)?.wait_until(job.object(word, 1)?, cmp(op)?, value))
    }
}
