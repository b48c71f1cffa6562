//! The symmetric heap by addresses.

use std::ffi::{c_long, c_void};

use shmem_core::{Error, ErrorKind, Result, SymBox};

use crate::fail::say;
use crate::job::{Job, run};

/// The alignment that is given where none is asked for: a cache line.
const ALIGN: usize = 64;

/// What a function returns whose call has no room: no address, after one line that says how to get more.
fn address(name: &'static str, job: &Job, block: Result<SymBox<'_, u8>>) -> Result<*mut c_void> {
    let nothing = std::ptr::null_mut();
    match block {
        Ok(block) if block.sym().is_empty() => Ok(nothing),
        Ok(block) => Ok(block.sym().as_ptr().cast()),
        Err(error) if is_refusal(&error) => {
            if job.world.me() == 0 {
                say(name, &error);
            }
            Ok(nothing)
        }
        Err(error) => Err(error),
    }
}

/// Whether it leaves the heap as it was, on all PEs alike.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::HeapFull { .. } | ErrorKind::Overflow { .. } | ErrorKind::BadAlignment { .. })
}

fn allocate(name: &'static str, align: usize, size: usize) -> *mut c_void {
    run(name, |job| {
        job.teams.world().settle();
        address(name, job, job.world.align(align, size))
    })
}

fn free(name: &'static str, block: *mut c_void) {
    if !block.is_null() {
        run(name, |job| {
            job.teams.world().settle();
            job.world.free(job.at.block(block.cast())?)
        });
    }
}

fn reallocate(name: &'static str, block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return allocate(name, ALIGN, size);
    }
    if size == 0 {
        free(name, block);
        return std::ptr::null_mut();
    }
    run(name, |job| {
        job.teams.world().settle();
        let mut held = job.at.block(block.cast())?;
        let changed = job.world.realloc(&mut held, size);
        address(name, job, changed.map(|()| held))
    })
}

export! {
    ["shmem_malloc"] fn(size: usize) -> *mut c_void { allocate(NAME, ALIGN, size) }

    ["shmem_malloc_with_hints"] fn(size: usize, _hints: c_long) -> *mut c_void { allocate(NAME, ALIGN, size) }

    ["shmem_align"] fn(alignment: usize, size: usize) -> *mut c_void { allocate(NAME, alignment, size) }

    ["shmem_calloc"] fn(count: usize, size: usize) -> *mut c_void {
        run(NAME, |job| {
            job.teams.world().settle();
            address(NAME, job, job.world.alloc_zeroed(count.saturating_mul(size)))
        })
    }

    ["shmem_realloc"] fn(block: *mut c_void, size: usize) -> *mut c_void { reallocate(NAME, block, size) }

    ["shmem_free"] fn(block: *mut c_void) { free(NAME, block) }

    ["shmalloc"] fn(size: usize) -> *mut c_void { allocate(NAME, ALIGN, size) }

    ["shmemalign"] fn(alignment: usize, size: usize) -> *mut c_void { allocate(NAME, alignment, size) }

    ["shrealloc"] fn(block: *mut c_void, size: usize) -> *mut c_void { reallocate(NAME, block, size) }

    ["shfree"] fn(block: *mut c_void) { free(NAME, block) }
}
