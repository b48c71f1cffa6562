//! What an error is in C: one line on standard error, which names the PE, the function and the limit, and the end of the
//! job; or, where the program has asked for it, a status that is returned.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use shmem_core::{Error, ErrorKind, Result};

use crate::job::{self, Job, current};

/// The exit status of a PE that ends because of an error.
pub(crate) const ERROR_STATUS: c_int = 70;

/// Whether collectives return their errors.
static RETURNED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The text of this thread's latest error.
    static LATEST: RefCell<CString> = RefCell::default();
}

/// Ends the job because of an error in a function.
#[cold]
#[inline(never)]
pub(crate) fn fail(function: &'static str, error: &Error) -> ! {
    say(function, error);
    if current().is_some_and(|job| job.world.config().debug) {
        eprintln!("{}", Backtrace::force_capture());
    }
    job::end(error)
}

/// One line on standard error.
#[cold]
pub(crate) fn say(function: &'static str, error: &Error) {
    match current() {
        Some(job) => eprintln!("shmem: PE {}: {function}: {}", job.world.me(), text(error)),
        None => eprintln!("shmem: {function}: {}", text(error)),
    }
}

/// Whether collectives return their errors, and the job goes on after them.
pub(crate) fn are_returned() -> bool {
    RETURNED.load(Ordering::Relaxed)
}

pub(crate) fn set_returned(wanted: bool) {
    RETURNED.store(wanted, Ordering::Relaxed);
}

/// Runs the body of a function that returns a status: 0, or -1 after an error, where the program wants it so.
#[inline(always)]
pub(crate) fn status(function: &'static str, f: impl FnOnce(&'static Job) -> Result<()>) -> c_int {
    job::run(function, |job| match f(job) {
        Ok(()) => Ok(0),
        Err(error) if are_returned() => {
            keep(&error);
            Ok(-1)
        }
        Err(error) => Err(error),
    })
}

/// Keeps the text of an error for those who ask.
pub(crate) fn keep(error: &Error) {
    // A text holds no zero byte.
    let text = CString::new(text(error)).unwrap_or_default();
    LATEST.with(|latest| *latest.borrow_mut() = text);
}

/// The text of this thread's latest error, until its next.
pub(crate) fn latest() -> *const std::ffi::c_char {
    LATEST.with(|latest| latest.borrow().as_ptr())
}

/// Numbers of PEs in C may be negative.
fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NoSuchPe { pe, n_pes } if *pe > isize::MAX as usize => {
            format!("PE {} does not exist: the team has {n_pes}", *pe as isize)
        }
        _ => error.to_string(),
    }
}
