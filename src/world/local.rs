//! PEs as threads of one process: the same start-up, heaps and routes as between processes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::boot::{Local, group};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
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
    if n == 0 {
        let why = "a job has at least one PE".into();
        return Err(ErrorKind::BadJob { pe: 0, n_pes: 0, why }.into());
    }
    let config = Config { pe: None, n_pes: None, rendezvous: None, job_key: None, ..Config::from_env()? };
    let ended: Vec<Ended<R>> = std::thread::scope(|threads| {
        let start = |(pe, boot): (usize, Local)| {
            let (config, f) = (config.clone(), &f);
            (std::thread::Builder::new().name(format!("pe-{pe}")))
                .spawn_scoped(threads, move || one(config, boot, f))
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
    });
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

fn one<R>(config: Config, boot: Local, f: impl Fn(&World) -> Result<R>) -> Ended<R> {
    let world = match start::start(config, None, Box::new(boot)) {
        Ok(world) => world,
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
