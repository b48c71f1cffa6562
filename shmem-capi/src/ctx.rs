//! Contexts.

use std::ffi::{c_int, c_long};
use std::sync::PoisonError;

use shmem_core::{Ctx, Error, Private, Result, Shared};

use crate::fail::keep;
use crate::job::{Job, run};
use crate::team::{self, Team};

/// `shmem_ctx_t`: none, the default one, or the address of one.
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

impl Context {
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
            // SAFETY: any other handle is the address of a context that has been made and not been destroyed, as C has it.
            Handle(address) => Ok(unsafe { &*(address as *const Context) }),
        }
    }
}

fn create(job: &'static Job, team: team::Handle, options: c_long) -> Result<Handle> {
    if options & !OPTIONS != 0 {
        return Err(Error::other(format!("{options:#x} are no options of a context")));
    }
    let context = Context { ctx: job.teams.get(team)?.core().ctx::<Private>().into_shared(), team };
    let handle = Handle(Box::into_raw(Box::new(context)).addr());
    job.contexts.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.0);
    Ok(handle)
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
        run(NAME, |job| {
            match ctx {
                Handle::INVALID => return Ok(()),
                Handle::DEFAULT => return Err(Error::other("SHMEM_CTX_DEFAULT lasts as long as the job")),
                _ if !job.contexts.lock().unwrap_or_else(PoisonError::into_inner).remove(&ctx.0) => {
                    return Err(Error::other("there is no such context, or it has been destroyed"));
                }
                _ => job.context(ctx)?.quiet()?,
            }
            // SAFETY: the handle was the address of a box, and is in the list no more.
            drop(unsafe { Box::from_raw(ctx.0 as *mut Context) });
            Ok(())
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
