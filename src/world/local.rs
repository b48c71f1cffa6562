//! PEs as threads of one process: the same start-up, heaps and routes as between processes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::boot::local::{Local, group};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::world::{World, start};

/// Runs `f` as `n` PEs, each a thread of this process with a world and heap of its own, and returns what they returned, in PE order. Settings
/// come from the `SHMEM_*` variables. If a PE fails or panics, the others learn it: their waits return [`PeerLost`](ErrorKind::PeerLost).
///
/// ```
/// let squares = shmem::local(4, |world| Ok(world.me() * world.me()))?;
/// assert_eq!(squares, [0, 1, 4, 9]);
/// # Ok::<(), shmem::Error>(())
/// ```
///
/// # Errors
/// The error of the first PE that failed by itself, not for another's loss; those of [`World::init`].
///
/// # Panics
/// If a PE panics, with its panic.
pub fn local<R: Send>(n: usize, f: impl Fn(&World) -> Result<R> + Sync) -> Result<Vec<R>> {
    if n == 0 {
        return Err(ErrorKind::BadJob { pe: 0, n_pes: 0, why: "a job has at least one PE".into() }.into());
    }
    let config = Config { pe: None, n_pes: None, rendezvous: None, job_key: None, ..Config::from_env()? };
    let ended: Vec<std::thread::Result<Result<R>>> = std::thread::scope(|threads| {
        let mut pes = Vec::new();
        for boot in group(n) {
            let (config, f) = (config.clone(), &f);
            let name = format!("pe-{}", pes.len());
            let body = move || catch_unwind(AssertUnwindSafe(|| one(config, boot, f)));
            let pe = std::thread::Builder::new().name(name).spawn_scoped(threads, body);
            pes.push(pe.map_err(|source| ErrorKind::os(format!("starting the thread of PE {}", pes.len()), source)));
        }
        let join = |pe: Result<std::thread::ScopedJoinHandle<'_, _>>| match pe {
            Ok(pe) => pe.join().and_then(|ended| ended),
            Err(error) => Ok(Err(error)),
        };
        pes.into_iter().map(join).collect()
    });
    let (mut results, mut worst): (Vec<R>, Option<Error>) = (Vec::new(), None);
    for ended in ended {
        match ended.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(result) => results.push(result),
            Err(error) if worst.as_ref().is_none_or(|worst| is_loss(worst) && !is_loss(&error)) => worst = Some(error),
            Err(_) => {}
        }
    }
    worst.map_or(Ok(results), Err)
}

fn one<R>(config: Config, boot: Local, f: impl Fn(&World) -> Result<R>) -> Result<R> {
    let world = start::start(config, Box::new(boot))?;
    let result = f(&world);
    if result.is_err() {
        world.abandon();
    }
    result
}

fn is_loss(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PeerLost { .. })
}
