//! Start, end, and what a program asks about the job.

use std::ffi::{c_char, c_int, c_void};

use shmem_core::Result;

use crate::job::{self, Job, current, run};
use crate::team;
use crate::types::pe as number;

/// The thread levels: every one is given.
const SINGLE: c_int = 0;
const MULTIPLE: c_int = 3;

/// Bytes of a name, its end included: `SHMEM_MAX_NAME_LEN`.
const MAX_NAME: usize = 64;
const VENDOR: &str = concat!("shmem ", env!("CARGO_PKG_VERSION"), "\0");

export! {
    ["shmem_init"] fn() { job::start(NAME, SINGLE) }

    ["shmem_init_thread"] fn(requested: c_int, provided: *mut c_int) -> c_int {
        let level = requested.clamp(SINGLE, MULTIPLE);
        job::start(NAME, level);
        // SAFETY: C gives a valid address, or none.
        if let Some(provided) = unsafe { provided.as_mut() } {
            *provided = job::level();
        }
        0
    }

    ["shmem_query_thread"] fn(provided: *mut c_int) {
        run(NAME, |_| {
            // SAFETY: C gives a valid address.
            unsafe { *provided = job::level() };
            Ok(())
        })
    }

    ["shmem_query_initialized"] fn(initialized: *mut c_int) {
        // SAFETY: C gives a valid address.
        unsafe { *initialized = current().is_some().into() };
    }

    ["shmem_finalize"] fn() { job::finish() }

    ["shmem_global_exit"] fn(status: c_int) { job::global_exit(status) }

    ["shmem_my_pe"] fn() -> c_int { run(NAME, |job| Ok(job.world.me() as c_int)) }

    ["shmem_n_pes"] fn() -> c_int { run(NAME, |job| Ok(job.world.n_pes() as c_int)) }

    ["shmem_pe_accessible"] fn(pe: c_int) -> c_int {
        run(NAME, |job| Ok((number(pe) < job.world.n_pes()).into()))
    }

    ["shmem_addr_accessible"] fn(address: *const c_void, pe: c_int) -> c_int {
        run(NAME, |job| {
            let symmetric = job.at.object(address.cast::<u8>(), 1).is_ok();
            Ok((symmetric && number(pe) < job.world.n_pes()).into())
        })
    }

    ["shmem_ptr"] fn(address: *const c_void, pe: c_int) -> *mut c_void {
        run(NAME, |job| Ok(pointer(job, team::Handle::WORLD, address, pe)))
    }

    ["shmem_team_ptr"] fn(team: team::Handle, address: *const c_void, pe: c_int) -> *mut c_void {
        run(NAME, |job| Ok(pointer(job, team, address, pe)))
    }

    ["shmem_info_get_version"] fn(major: *mut c_int, minor: *mut c_int) {
        // SAFETY: C gives valid addresses.
        unsafe { (*major, *minor) = (1, 6) };
    }

    ["shmem_info_get_name"] fn(name: *mut c_char) {
        const { assert!(VENDOR.len() <= MAX_NAME) };
        // SAFETY: C gives room for the longest name.
        unsafe { name.copy_from_nonoverlapping(VENDOR.as_ptr().cast(), VENDOR.len()) };
    }

    ["shmem_pcontrol"] fn(_level: c_int) {}
}

/// Where this process reaches another PE's copy, if it does.
fn pointer(job: &'static Job, team: team::Handle, address: *const c_void, pe: c_int) -> *mut c_void {
    let find = || -> Result<*mut c_void> {
        let team = job.teams.get(team)?;
        let object = job.at.object(address.cast::<u8>(), 1)?;
        if number(pe) == team.core().me() {
            return Ok(address.cast_mut());
        }
        Ok(team
            .core()
            .ctx::<shmem_core::Shared>()
            .ptr(object, number(pe))?
            .map_or(std::ptr::null_mut(), <*mut u8>::cast))
    };
    find().unwrap_or(std::ptr::null_mut())
}
