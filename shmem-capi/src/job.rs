//! The job that this process is a PE of: the one place of the library where there is a global, since C has no other. It is
//! made by `shmem_init`, ended by `shmem_finalize` or by the end of the process, and may be made again.

use std::ffi::{c_int, c_void};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use shmem_collectives::Selection;
use shmem_core::{Addresses, Builder, Elem, Error, ErrorKind, Result, SymSlice, World};

use crate::ctx::{Context, take_all};
use crate::exchange::Exchanges;
use crate::fail::{ERROR_STATUS, fail};
use crate::globals;
use crate::team::Teams;

/// A job under way.
pub(crate) struct Job {
    /// Before the teams, from which they borrow.
    pub(crate) exchanges: Exchanges,
    /// Before the world, in which they are.
    pub(crate) teams: Teams,
    pub(crate) context: Context,
    /// Of no length, for where C gives any address, or none.
    nothing: SymSlice<'static, u64>,
    pub(crate) world: &'static World,
    pub(crate) at: Addresses<'static>,
    /// What the globals of the program take of the heap.
    pub(crate) globals: usize,
    /// How long a wait may last.
    limit: Mutex<Option<Duration>>,
}

static CURRENT: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
/// Against two threads that start or end at once.
static CHANGING: Mutex<()> = Mutex::new(());
static LEVEL: AtomicI32 = AtomicI32::new(0);
/// Whether the process ends because of an error, or by `shmem_global_exit`: then nothing is finalised.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The job, if there is one.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Job> {
    // SAFETY: a job lives until it is finalised, and no call of the library is under way then, as the specification has it.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// The job, which a function needs.
#[inline(always)]
pub(crate) fn started(name: &'static str) -> &'static Job {
    current().unwrap_or_else(|| not_started(name))
}

/// What a function returns; an error ends the job.
#[inline(always)]
pub(crate) fn done<R>(name: &'static str, outcome: Result<R>) -> R {
    match outcome {
        Ok(result) => result,
        Err(error) => fail(name, &error),
    }
}

/// Runs the body of a function that needs a job; an error ends the job.
#[inline(always)]
pub(crate) fn run<R>(name: &'static str, f: impl FnOnce(&'static Job) -> Result<R>) -> R {
    done(name, f(started(name)))
}

#[cold]
fn not_started(name: &'static str) -> ! {
    fail(name, &Error::other("shmem_init has not been called, or shmem_finalize has"))
}

impl Job {
    /// The symmetric object of `len` elements at an address; of none, whatever the address is.
    #[inline(always)]
    pub(crate) fn object<T: Elem>(&self, address: *const T, len: usize) -> Result<SymSlice<'static, T>> {
        if len == 0 { self.nothing.cast() } else { self.at.object(address, len) }
    }

    /// How long a wait may last.
    pub(crate) fn limit(&self) -> Option<Duration> {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_limit(&self, limit: Option<Duration>) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        self.world.set_timeout(limit);
    }

    /// Bytes of some elements at an address, aligned in any way.
    #[inline(always)]
    pub(crate) fn bytes(&self, address: *const c_void, len: usize, size: usize) -> Result<SymSlice<'static, u8>> {
        match len.checked_mul(size) {
            Some(bytes) => self.object(address.cast(), bytes),
            None => Err(ErrorKind::Overflow { count: len, size }.into()),
        }
    }
}

/// Starts the job, unless there is one. Collective.
pub(crate) fn start(name: &'static str, level: c_int) {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    if current().is_some() {
        return;
    }
    LEVEL.store(level, Ordering::Relaxed);
    match make() {
        Ok(job) => CURRENT.store(Box::into_raw(Box::new(job)), Ordering::Release),
        Err(error) => fail(name, &error),
    }
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the handler lives as long as the process, and takes no argument of its own.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    });
}

fn make() -> Result<Job> {
    let globals = globals::find();
    let world = Builder::from_env()?.heap_besides(globals.as_ref().map_or(0, globals::Globals::needs)).build()?.leak();
    // A bad setting is found here, and not by the first collective.
    Selection::new(world.config())?;
    let taken = globals::share(world, globals)?;
    let teams = Teams::new(world);
    let context = Context::of_world(teams.world());
    let nothing = world.team().workspace().slice(..0)?.cast()?;
    world.barrier_all()?;
    let exchanges = Exchanges::default();
    let (at, limit) = (world.addresses(), Mutex::new(world.config().timeout));
    Ok(Job { exchanges, teams, context, nothing, world, at, globals: taken, limit })
}

/// Ends the job, if there is one. Collective.
pub(crate) fn finish() {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let job = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if job.is_null() {
        return;
    }
    // SAFETY: the pointer came from a box, and has just been taken out of the only place where it was; what borrows from
    // the world ends with the job, and the world was leaked by `make`.
    unsafe {
        let job = Box::from_raw(job);
        let world = std::ptr::from_ref(job.world).cast_mut();
        job.teams.settle();
        drop(take_all(None));
        drop(job);
        drop(Box::from_raw(world));
    }
}

/// The thread level that was asked for; every level is given.
pub(crate) fn level() -> c_int {
    LEVEL.load(Ordering::Relaxed)
}

/// Ends the whole job with an exit status.
pub(crate) fn global_exit(status: c_int) -> ! {
    ENDING.store(true, Ordering::Relaxed);
    match current() {
        Some(job) => job.world.global_exit(status as u8),
        None => exit(status),
    }
}

/// Ends this PE, and with it the job, because of an error.
pub(crate) fn end(error: &Error) -> ! {
    ENDING.store(true, Ordering::Relaxed);
    if error.kind().is_lost() {
        // The PE that was first to fail is to be the first to end: the launcher names it.
        std::thread::sleep(Duration::from_millis(50));
    }
    exit(ERROR_STATUS)
}

unsafe extern "C" {
    /// `atexit` with the status of the process: from the C library.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The process ends: so does the job, in order, if nothing went wrong; else the launcher tells the others of its status.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    match current() {
        None => {}
        Some(_) if ENDING.load(Ordering::Relaxed) => {}
        Some(_) if status == 0 => finish(),
        Some(_) => {}
    }
}
