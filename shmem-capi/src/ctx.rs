//! Contexts.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use shmem_core::{Ctx, Error, Private, Result, Shared};

use crate::fail::keep;
use crate::job::{Job, run};
use crate::team::{self, Team};

/// `shmem_ctx_t`: none, the default one, or the address of the place of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) const INVALID: Handle = Handle(0);
    pub(crate) const DEFAULT: Handle = Handle(1);
}

/// `SHMEM_CTX_…`: of these, a context may have any. All contexts have a lane of their own, whoever uses them.
const OPTIONS: c_long = 1 | 2 | 4;

/// A context, and the team whose numbers its PEs have.
pub(crate) struct Context {
    ctx: Ctx<'static, Shared>,
    team: team::Handle,
}

/// `shmem_ctx_session_config_t`.
#[repr(C)]
pub(crate) struct SessionConfig {
    total_ops: usize,
}

/// Where a context is, or none that has been destroyed: the handles are the addresses of places, which stay.
#[derive(Default)]
struct Place(AtomicPtr<Context>);

/// The places of the process: with the contexts that a job's program has made, by their addresses, and without any, to be taken
/// again, the longest empty first.
struct Places {
    taken: BTreeMap<usize, &'static Place>,
    empty: VecDeque<&'static Place>,
}

static PLACES: Mutex<Places> = Mutex::new(Places { taken: BTreeMap::new(), empty: VecDeque::new() });

impl Places {
    fn all() -> MutexGuard<'static, Places> {
        PLACES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, context: Context) -> Handle {
        let place = self.empty.pop_front().unwrap_or_else(|| Box::leak(Box::default()));
        place.0.store(Box::into_raw(Box::new(context)), Ordering::Release);
        let address = std::ptr::from_ref(place).addr();
        self.taken.insert(address, place);
        Handle(address)
    }

    fn take(&mut self, handle: Handle) -> Option<Context> {
        let place = self.taken.remove(&handle.0)?;
        self.empty.push_back(place);
        // SAFETY: `add` has put a box there, and it is taken out once.
        Some(*unsafe { Box::from_raw(place.0.swap(std::ptr::null_mut(), Ordering::AcqRel)) })
    }
}

/// Takes out the contexts of a team, or of all of them, before it ends.
pub(crate) fn take_all(of: Option<team::Handle>) -> Vec<Context> {
    let mut places = Places::all();
    // SAFETY: contexts in places are not destroyed while these are held.
    let is_of = |place: &Place| of.is_none_or(|of| unsafe { &*place.0.load(Ordering::Acquire) }.team == of);
    let found: Vec<usize> = places.taken.iter().filter(|(_, place)| is_of(place)).map(|(at, _)| *at).collect();
    found.into_iter().filter_map(|at| places.take(Handle(at))).collect()
}

impl Context {
    /// Completes what it has begun.
    pub(crate) fn quiet(&self) -> Result<()> {
        self.ctx.quiet()
    }

    /// The default one.
    pub(crate) fn of_world(team: &'static Team) -> Self {
        Context { ctx: team.core().ctx(), team: team::Handle::WORLD }
    }
}

impl Job {
    /// The context that a handle stands for.
    #[inline(always)]
    pub(crate) fn context(&'static self, handle: Handle) -> Result<&'static Ctx<'static, Shared>> {
        if handle == Handle::DEFAULT {
            return Ok(&self.context.ctx);
        }
        self.other_context(handle).map(|context| &context.ctx)
    }

    #[inline]
    fn other_context(&'static self, handle: Handle) -> Result<&'static Context> {
        match handle {
            Handle::DEFAULT => Ok(&self.context),
            Handle::INVALID => Err(Error::other("the context is SHMEM_CTX_INVALID")),
            Handle(address) => {
                // SAFETY: any other handle is the address of a place, as C has it, and a context is not destroyed while it is used.
                unsafe { (*(address as *const Place)).0.load(Ordering::Acquire).as_ref() }.ok_or_else(destroyed)
            }
        }
    }
}

#[cold]
fn destroyed() -> Error {
    Error::other("there is no such context, or it has been destroyed")
}

fn create(job: &'static Job, team: team::Handle, options: c_long) -> Result<Handle> {
    if options & !OPTIONS != 0 {
        return Err(Error::other(format!("{options:#x} are no options of a context")));
    }
    let context = Context { ctx: job.teams.get(team)?.core().ctx::<Private>().into_shared(), team };
    Ok(Places::all().add(context))
}

/// Stores what was made: 0; or that nothing was, and why: -1.
///
/// # Safety
/// The address is valid.
unsafe fn store<H>(to: *mut H, made: Result<H>, invalid: H) -> c_int {
    let (handle, status) = match made {
        Ok(handle) => (handle, 0),
        Err(error) => {
            keep(&error);
            (invalid, -1)
        }
    };
    // SAFETY: the caller says so.
    unsafe { *to = handle };
    status
}

export! {
    ["shmem_ctx_create"] fn(options: c_long, ctx: *mut Handle) -> c_int {
        // SAFETY: C gives a valid address.
        run(NAME, |job| Ok(unsafe { store(ctx, create(job, team::Handle::WORLD, options), Handle::INVALID) }))
    }

    ["shmem_team_create_ctx"] fn(team: team::Handle, options: c_long, ctx: *mut Handle) -> c_int {
        // SAFETY: C gives a valid address.
        run(NAME, |job| Ok(unsafe { store(ctx, create(job, team, options), Handle::INVALID) }))
    }

    ["shmem_ctx_destroy"] fn(ctx: Handle) {
        run(NAME, |_| {
            match ctx {
                Handle::INVALID => Ok(()),
                Handle::DEFAULT => Err(Error::other("SHMEM_CTX_DEFAULT lasts as long as the job")),
                _ => {
                    let context = Places::all().take(ctx);
                    context.ok_or_else(destroyed)?.quiet()
                }
            }
        })
    }

    ["shmem_ctx_get_team"] fn(ctx: Handle, team: *mut team::Handle) -> c_int {
        run(NAME, |job| {
            let of = job.other_context(ctx).map(|context| context.team);
            // SAFETY: C gives a valid address.
            Ok(unsafe { store(team, of, team::Handle::INVALID) })
        })
    }

    // A session says what is to come. Nothing needs to be told here: puts are on their way at once.
    ["shmem_ctx_session_start"] fn(ctx: Handle, _options: c_long, _config: *const SessionConfig, _mask: c_long) {
        run(NAME, |job| if ctx == Handle::INVALID { Ok(()) } else { job.context(ctx).map(drop) })
    }

    ["shmem_ctx_session_stop"] fn(ctx: Handle) {
        run(NAME, |job| if ctx == Handle::INVALID { Ok(()) } else { job.context(ctx).map(drop) })
    }
}
