//! PEs as threads of one process: the same start-up, heaps and routes as between processes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::boot::{Bootstrap, Local, group};
use crate::config::{Config, RouteChoice};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::roce::sim::turns::{Fault, Turns};
use crate::watch::How;
use crate::world::{World, start};

/// Runs `f` as `n` PEs, each a thread of this process with a world and heap of its own, and returns what they returned,
/// in PE order. Settings come from the `SHMEM_*` variables. If a PE fails or panics, the others learn it: their waits
/// return [`PeerLost`](ErrorKind::PeerLost).
///
/// ```
/// let squares = shmem::local(4, |world| Ok(world.me() * world.me()))?;
/// assert_eq!(squares, [0, 1, 4, 9]);
/// # Ok::<(), shmem::Error>(())
/// ```
///
/// # Errors
/// The error of the PE that failed first (one of the program's own goes out by [`Error::other`]); those of
/// [`World::init`].
///
/// # Panics
/// If a PE panics, with its panic; with that of the PE that failed first, if several do.
pub fn local<R: Send>(n: usize, f: impl Fn(&World) -> Result<R> + Sync) -> Result<Vec<R>> {
    results(threads(n, Config::from_env()?, None, f)?)
}

/// Runs `f` as `n` PEs, each a thread of this process and on a *host of its own*, over a simulated network on which
/// everything happens in an order that `seed` draws; returns how each PE ended, in PE order. The same seed makes the same
/// history: so a program that goes wrong in one is found by trying many, and seen again as often as needed.
///
/// The network promises what real ones do, and nothing more: see the [memory model](crate#memory-model). Transfers that
/// nothing orders arrive in any order, in parts, as late as they may. `fault` makes a PE or a way between two fail. Where
/// all PEs wait and nothing is under way, each gets the error [`Fabric`](ErrorKind::Fabric) instead of waiting for ever.
///
/// PEs run one at a time, and others get their turn only in calls that need the network, or that wait: `f` must not wait
/// for another PE in any other way. Settings are the default ones.
///
/// ```
/// use shmem::{Shared, SigRef};
///
/// for seed in 0..20 {
///     let ended = shmem::simulate(3, seed, None, |world| {
///         let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
///         let (inbox, bell) = (world.alloc::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
///         ctx.put_signal(inbox.sym(), &[me as u64], SigRef::set(bell.sym(), 1), (me + 1) % n)?;
///         ctx.wait(bell.sym(), |rung| rung == 1)?;
///         inbox.sym().read(0)
///     })?;
///     assert_eq!(ended.into_iter().collect::<shmem::Result<Vec<_>>>()?, [2, 0, 1], "seed {seed}");
/// }
/// # Ok::<(), shmem::Error>(())
/// ```
///
/// # Errors
/// [`BadJob`](ErrorKind::BadJob) for no PEs; a thread that cannot be started.
///
/// # Panics
/// If a PE panics, with its panic.
pub fn simulate<R: Send>(
    n: usize,
    seed: u64,
    fault: Option<Fault>,
    f: impl Fn(&World) -> Result<R> + Sync,
) -> Result<Vec<Result<R>>> {
    let config = Config {
        route: RouteChoice::Sim,
        hosts: Some(n),
        heap_size: Some(SIMULATED_HEAP),
        team_slots: SIMULATED_TEAMS,
        stall_warn: None,
        spin: Some(0),
        ..Config::default()
    };
    let turns = Arc::new(Turns::new(n, seed, fault));
    let end = |ended: Ended<R>| match ended.result {
        Ok(result) => Ok(result),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Panic(panic)) => resume_unwind(panic),
    };
    Ok(threads(n, config, Some(turns), f)?.into_iter().map(end).collect())
}

/// Small, so that a history costs little.
const SIMULATED_HEAP: usize = 1 << 20;
const SIMULATED_TEAMS: usize = 8;

/// Runs `f` as `n` PEs; how each ended.
fn threads<R: Send>(
    n: usize,
    config: Config,
    turns: Option<Arc<Turns>>,
    f: impl Fn(&World) -> Result<R> + Sync,
) -> Result<Vec<Ended<R>>> {
    if n == 0 {
        let why = "a job has at least one PE".into();
        return Err(ErrorKind::BadJob { pe: 0, n_pes: 0, why }.into());
    }
    let config = Config { pe: None, n_pes: None, rendezvous: None, job_key: None, ..config };
    Ok(std::thread::scope(|threads| {
        let start = |(pe, boot): (usize, Local)| {
            let (config, turns, f) = (config.clone(), turns.clone(), &f);
            (std::thread::Builder::new().name(format!("pe-{pe}")))
                .spawn_scoped(threads, move || one(config, boot, turns, f))
                .map_err(|source| ErrorKind::os(format!("starting the thread of PE {pe}"), source))
        };
        // All are started before the first is waited for.
        let started: Vec<_> = group(n).into_iter().enumerate().map(start).collect();
        let join = |thread: Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|panic| Ended { result: Err(Failure::Panic(panic)), first: true })
            }
            Err(error) => Ended { result: Err(Failure::Error(error)), first: true },
        };
        started.into_iter().map(join).collect()
    }))
}

/// What all returned, or why not all did.
fn results<R>(ended: Vec<Ended<R>>) -> Result<Vec<R>> {
    let mut results = Vec::new();
    let mut failed: Option<(bool, bool, Failure)> = None;
    for Ended { result, first } in ended {
        match result {
            Ok(result) => results.push(result),
            Err(failure) => {
                let panicked = matches!(failure, Failure::Panic(_));
                if failed.as_ref().is_none_or(|earlier| (panicked, first) > (earlier.0, earlier.1)) {
                    failed = Some((panicked, first, failure));
                }
            }
        }
    }
    match failed {
        None => Ok(results),
        Some((.., Failure::Error(error))) => Err(error),
        Some((.., Failure::Panic(panic))) => resume_unwind(panic),
    }
}

/// How a PE ended.
struct Ended<R> {
    result: Result<R, Failure>,
    /// Whether it was the first to fail.
    first: bool,
}

enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

fn one<R>(config: Config, boot: Local, turns: Option<Arc<Turns>>, f: impl Fn(&World) -> Result<R>) -> Ended<R> {
    let me = boot.me();
    let world = match start::start_in(config, None, Box::new(boot), turns.clone()) {
        Ok(world) => {
            if let Some(turns) = turns {
                turns.begin(me);
            }
            world
        }
        // The others' errors only tell of this one, unless it is theirs that is told of here.
        Err(error) => {
            let first = !matches!(error.kind(), ErrorKind::PeerLost { .. });
            return Ended { result: Err(Failure::Error(error)), first };
        }
    };
    let result = match catch_unwind(AssertUnwindSafe(|| f(&world))) {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => {
            world.abandon();
            Err(Failure::Error(error))
        }
        Err(panic) => {
            world.give_up(How::Panicked);
            Err(Failure::Panic(panic))
        }
    };
    Ended { result, first: world.lost() == Some(world.me()) }
}
