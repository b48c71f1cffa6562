//! Teams, and the collectives of each.

use std::collections::HashMap;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use shmem_collectives::{Coll, Pending};
use shmem_core::{Error, Result, World};

use crate::ctx::{Context, take_all};
use crate::fail::{are_returned, keep, status};
use crate::job::{Job, run};
use crate::types::pe as number;

/// `shmem_team_t`: none, one that every job has, or the number of one. No number is given twice in a process, so that what was
/// destroyed is known to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) const INVALID: Handle = Handle(0);
    pub(crate) const WORLD: Handle = Handle(1);
    const SHARED: Handle = Handle(2);

    fn new() -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(3);
        Handle(NUMBERS.fetch_add(1, Ordering::Relaxed))
    }
}

/// `shmem_team_config_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Config {
    num_contexts: c_int,
}

/// The bit of a mask that says that the configuration has a number of contexts.
const NUM_CONTEXTS: c_long = 1;

/// A team.
pub(crate) struct Team {
    // Before the team, from which it borrows.
    working: Mutex<Working>,
    /// How many calls are started and not ended.
    under_way: AtomicUsize,
    /// The number of the last call that was started before there was this team.
    since: u64,
    team: Box<shmem_core::Team<'static>>,
    config: Config,
}

/// Calls that were started on any team: a number is not given again, though each job has the first two teams.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Its collectives, made by the first of them, and those that are started.
#[derive(Default)]
struct Working {
    // Before the collectives, from which they borrow.
    started: HashMap<u64, Pending<'static, 'static>>,
    /// What has ended, but for those who started it.
    ended: HashMap<u64, Result<()>>,
    coll: Option<Box<Coll<'static>>>,
}

// SAFETY: the collectives of a team are used by one thread at a time, which the lock around them sees to.
unsafe impl Send for Working {}

impl Team {
    fn new(team: shmem_core::Team<'static>, config: Config) -> Box<Self> {
        let (under_way, since) = (AtomicUsize::new(0), STARTED.load(Ordering::Relaxed));
        Box::new(Team { working: Mutex::default(), under_way, since, team: Box::new(team), config })
    }

    pub(crate) fn core(&'static self) -> &'static shmem_core::Team<'static> {
        &self.team
    }

    fn working(&'static self) -> MutexGuard<'static, Working> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a collective call. Where the program goes on after errors, the other PEs are told of what was wrong before there was a call.
    pub(crate) fn collective(
        &'static self,
        world: &'static World,
        call: impl FnOnce(&Coll<'static>) -> Result<()>,
    ) -> Result<()> {
        let working = &mut *self.working();
        let coll = working.coll(world, &self.team)?;
        let calls = coll.calls();
        match call(coll) {
            Err(error) if are_returned() && coll.calls() == calls => coll.refuse(error),
            outcome => outcome,
        }
    }

    /// Starts a collective call; returns its number. What was wrong before there was one comes out at its end, on all PEs, where the
    /// program goes on after errors.
    pub(crate) fn start(
        &'static self,
        world: &'static World,
        call: impl FnOnce(&'static Coll<'static>) -> Result<Pending<'static, 'static>>,
    ) -> Result<u64> {
        let working = &mut *self.working();
        let coll = std::ptr::from_ref(working.coll(world, &self.team)?);
        // SAFETY: the collectives are boxed, and last as long as the team; what is started goes before them.
        let coll = unsafe { &*coll };
        let pending = match call(coll) {
            Err(error) if are_returned() => coll.start_refused(error),
            outcome => outcome?,
        };
        let number = STARTED.fetch_add(1, Ordering::Relaxed) + 1;
        working.started.insert(number, pending);
        self.count(working);
        Ok(number)
    }

    /// Whether a started call has ended; waits for it if it may block.
    fn ended(&'static self, call: u64, block: bool) -> Result<bool> {
        if call <= self.since {
            return Err(destroyed());
        }
        let working = &mut *self.working();
        if let Some(ended) = working.ended.remove(&call) {
            return ended.map(|()| true);
        }
        let Some(mut pending) = working.started.remove(&call) else { return Ok(true) };
        let done = match block {
            true => pending.wait().map(|()| true),
            false => pending.test().inspect(|done| {
                if !done {
                    working.started.insert(call, pending);
                }
            }),
        };
        self.count(working);
        done
    }

    /// Ends what is started: before a call of the team that is no collective of the library.
    #[inline]
    pub(crate) fn settle(&'static self) {
        if self.under_way.load(Ordering::Relaxed) != 0 {
            self.end_all();
        }
    }

    #[cold]
    fn end_all(&'static self) {
        let working = &mut *self.working();
        let mut numbers: Vec<u64> = working.started.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(pending) = working.started.remove(&number) {
                working.ended.insert(number, pending.wait());
            }
        }
        self.count(working);
    }

    /// Gets on what is started, unless another thread works with the team; whether anything may be left under way.
    fn advance(&'static self) -> bool {
        if self.under_way.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut working = match self.working.try_lock() {
            Ok(working) => working,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        // Those of a team get on in their order, all with the first.
        let Working { started, ended, .. } = &mut *working;
        if let Some(number) = started.keys().min().copied()
            && let Some(pending) = started.get_mut(&number)
        {
            match pending.test() {
                Ok(false) => {}
                outcome => {
                    started.remove(&number);
                    ended.insert(number, outcome.map(drop));
                }
            }
        }
        self.count(&working);
        !working.started.is_empty()
    }

    /// Whether a PE of it is lost.
    fn is_short(&self) -> bool {
        self.team.alive().len() < self.team.n_pes()
    }

    fn count(&self, working: &Working) {
        self.under_way.store(working.started.len(), Ordering::Relaxed);
    }
}

impl Working {
    fn coll(&mut self, world: &'static World, team: &'static shmem_core::Team<'static>) -> Result<&Coll<'static>> {
        match &mut self.coll {
            Some(coll) => Ok(coll),
            none => Ok(none.insert(Box::new(Coll::new(world, team)?))),
        }
    }
}

#[cold]
fn destroyed() -> Error {
    Error::other("the team of the request has been destroyed, and its calls with it: wait before shmem_team_destroy")
}

/// The teams of a job.
pub(crate) struct Teams {
    world: &'static Team,
    shared: &'static Team,
    others: Mutex<Vec<(Handle, &'static Team)>>,
}

impl Teams {
    pub(crate) fn new(world: &'static World) -> Self {
        let all = Box::leak(Team::new(world.team(), Config::default()));
        let shared = Box::leak(Team::new(world.shared_team(), Config::default()));
        Teams { world: all, shared, others: Mutex::default() }
    }

    #[inline(always)]
    pub(crate) fn world(&self) -> &'static Team {
        self.world
    }

    /// The team that a handle stands for.
    pub(crate) fn get(&self, handle: Handle) -> Result<&'static Team> {
        match handle {
            Handle::WORLD => Ok(self.world),
            Handle::SHARED => Ok(self.shared),
            Handle::INVALID => Err(Error::other("the team is SHMEM_TEAM_INVALID")),
            handle => {
                let others = self.others();
                let found = others.iter().find(|(other, _)| *other == handle).map(|(_, team)| *team);
                found.ok_or_else(|| Error::other("there is no such team, or it has been destroyed"))
            }
        }
    }

    /// Whether a call of a team has ended, of a request; waits for it if it may block. What is started on other teams gets on
    /// meanwhile, so that PEs may wait in different orders.
    pub(crate) fn ended(&self, team: Handle, call: u64, block: bool, limit: Option<Duration>) -> Result<bool> {
        let team = self.get(team).map_err(|_| destroyed())?;
        let since = Instant::now();
        let mut turns = 0_u32;
        loop {
            if !self.advance_others(team) || !block {
                return team.ended(call, block);
            }
            if team.ended(call, false)? {
                return Ok(true);
            }
            turns = turns.wrapping_add(1);
            // A wait that blocks knows of time-outs and of the dead.
            if turns.is_multiple_of(1024) && (limit.is_some_and(|limit| since.elapsed() > limit) || team.is_short()) {
                return team.ended(call, true);
            }
            match turns < 256 {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(20)),
            }
        }
    }

    /// Gets on what is started on all other teams; whether anything is left under way.
    fn advance_others(&self, team: &'static Team) -> bool {
        // While the list is held, none of them is destroyed.
        let others = self.others();
        let all = [self.world, self.shared].into_iter().chain(others.iter().map(|(_, team)| *team));
        // All of them, and not only until one is found.
        all.filter(|other| !std::ptr::eq(*other, team)).map(Team::advance).filter(|left| *left).count() > 0
    }

    /// Ends what is started on any team.
    pub(crate) fn settle(&self) {
        [self.world, self.shared].into_iter().for_each(Team::settle);
        let others = self.others().clone();
        others.into_iter().for_each(|(_, team)| team.settle());
    }

    fn others(&self) -> MutexGuard<'_, Vec<(Handle, &'static Team)>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, team: shmem_core::Team<'static>, config: Config) -> Handle {
        let team: &'static Team = Box::leak(Team::new(team, config));
        let handle = Handle::new();
        self.others().push((handle, team));
        handle
    }

    /// Takes a team out, which nobody else uses any more.
    fn take(&self, handle: Handle) -> Result<Box<Team>> {
        let team = self.get(handle)?;
        self.others().retain(|(other, _)| *other != handle);
        // SAFETY: the team was leaked by `add`, and has been taken out of the only list of them.
        Ok(unsafe { Box::from_raw(std::ptr::from_ref(team).cast_mut()) })
    }
}

impl Drop for Teams {
    fn drop(&mut self) {
        let others = std::mem::take(&mut *self.others());
        for team in others.into_iter().map(|(_, team)| team).chain([self.world, self.shared]) {
            // SAFETY: the teams were leaked by `add` and `new`, and nobody uses them after the job.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(team).cast_mut()) });
        }
    }
}

/// What a split is told to make of the new teams.
///
/// # Safety
/// The address is valid if the mask says so.
pub(crate) unsafe fn config(config: *const Config, mask: c_long) -> Config {
    // SAFETY: the caller says so.
    let given = unsafe { config.as_ref() }.filter(|_| mask & NUM_CONTEXTS != 0);
    given.copied().unwrap_or_default()
}

/// A split: stores the new team, or none on PEs outside it; 0, or -1 if there is none for anybody.
///
/// # Safety
/// The address is valid.
pub(crate) unsafe fn split(
    name: &'static str,
    parent: Handle,
    config: Config,
    to: *mut Handle,
    f: impl FnOnce(&'static shmem_core::Team<'static>) -> Result<Option<shmem_core::Team<'static>>>,
) -> c_int {
    run(name, |job| {
        let split = || {
            let parent = job.teams.get(parent)?;
            parent.settle();
            f(parent.core())
        };
        let (handle, status) = match split() {
            Ok(team) => (team.map_or(Handle::INVALID, |team| job.teams.add(team, config)), 0),
            Err(error) if error.kind().is_lost() => return Err(error),
            Err(error) => {
                keep(&error);
                (Handle::INVALID, -1)
            }
        };
        // SAFETY: the caller says so.
        unsafe { *to = handle };
        Ok(status)
    })
}

fn translate(job: &'static Job, from: Handle, pe: c_int, to: Handle) -> Option<usize> {
    let (from, to) = (job.teams.get(from).ok()?, job.teams.get(to).ok()?);
    from.core().translate(number(pe), to.core()).ok()?
}

export! {
    ["shmem_team_my_pe"] fn(team: Handle) -> c_int {
        run(NAME, |job| Ok(job.teams.get(team).map_or(-1, |team| team.core().me() as c_int)))
    }

    ["shmem_team_n_pes"] fn(team: Handle) -> c_int {
        run(NAME, |job| Ok(job.teams.get(team).map_or(-1, |team| team.core().n_pes() as c_int)))
    }

    ["shmem_team_get_config"] fn(team: Handle, mask: c_long, config: *mut Config) -> c_int {
        run(NAME, |job| {
            let Ok(team) = job.teams.get(team) else { return Ok(-1) };
            if mask & NUM_CONTEXTS != 0 {
                // SAFETY: C gives a valid address.
                unsafe { *config = team.config };
            }
            Ok(0)
        })
    }

    ["shmem_team_translate_pe"] fn(from: Handle, pe: c_int, to: Handle) -> c_int {
        run(NAME, |job| Ok(translate(job, from, pe, to).map_or(-1, |pe| pe as c_int)))
    }

    ["shmem_team_split_strided"] fn(
        parent: Handle, start: c_int, stride: c_int, size: c_int, of: *const Config, mask: c_long, team: *mut Handle,
    ) -> c_int {
        // SAFETY: C gives valid addresses.
        unsafe {
            split(NAME, parent, config(of, mask), team, |parent| {
                parent.split_strided(number(start), stride as isize, number(size.max(0)))
            })
        }
    }

    ["shmem_team_split_2d"] fn(
        parent: Handle, x_range: c_int, of_x: *const Config, x_mask: c_long, x_team: *mut Handle,
        of_y: *const Config, y_mask: c_long, y_team: *mut Handle,
    ) -> c_int {
        let mut column = None;
        // SAFETY: C gives valid addresses.
        unsafe {
            let rows = split(NAME, parent, config(of_x, x_mask), x_team, |parent| {
                let (x, y) = parent.split_2d(number(x_range.max(0)).min(parent.n_pes()))?;
                column = Some(y);
                Ok(Some(x))
            });
            let config = config(of_y, y_mask);
            *y_team = run(NAME, |job| Ok(column.map_or(Handle::INVALID, |team| job.teams.add(team, config))));
            rows
        }
    }

    ["shmem_team_destroy"] fn(team: Handle) {
        if team == Handle::INVALID {
            return;
        }
        run(NAME, |job| {
            let of = job.teams.get(team)?;
            of.settle();
            if team == Handle::WORLD || team == Handle::SHARED {
                return Err(Error::other("SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED last as long as the job"));
            }
            if job.exchanges.any_of(of) {
                return Err(Error::other("an exchange of the team has not been freed: shmemx_moe_free comes first"));
            }
            take_all(Some(team)).iter().try_for_each(Context::quiet)?;
            let Team { working, team, .. } = *job.teams.take(team)?;
            drop(working);
            (*team).destroy()
        })
    }

    ["shmem_team_sync"] fn(team: Handle) -> c_int {
        status(NAME, |job| {
            let team = job.teams.get(team)?;
            team.settle();
            team.core().sync()
        })
    }
}
