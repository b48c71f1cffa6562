//! Many histories of one scenario: on every core one at a time, each with values of its own drawn from its seed. A seed
//! that fails is printed, with how to see it again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shmem::{ErrorKind, Fault, Result, World, simulate};

use crate::common::{PATIENCE, Random};

/// Histories of all tests together, unless `HISTORIES` says how many; in a build for debugging, as many as take as long.
const HISTORIES: u64 = if cfg!(debug_assertions) { 2_000 } else { 112_000 };

/// What is drawn for a history besides its turns.
pub(crate) struct History {
    pub(crate) seed: u64,
    pub(crate) random: Random,
}

impl History {
    /// A number of PEs: mostly few, which costs less.
    pub(crate) fn pes(&mut self) -> usize {
        [2, 2, 2, 3, 3, 3, 3, 5][self.random.below(8)]
    }

    /// A crash of a PE, or a cut of the way between two, at a step below `steps`.
    pub(crate) fn fault(&mut self, n: usize, steps: usize) -> Fault {
        let (pe, step) = (self.random.below(n), self.random.below(steps) as u64);
        if self.random.below(3) > 0 {
            return Fault::Crash { pe, step };
        }
        Fault::Cut { from: pe, to: (pe + 1 + self.random.below(n - 1)) % n, step }
    }

    /// Runs it: every PE ends well.
    pub(crate) fn run<R: Send>(&self, n: usize, scenario: impl Fn(&World) -> Result<R> + Sync) -> Vec<R> {
        let ended = simulate(n, self.seed, None, scenario).unwrap_or_else(|error| panic!("{error}"));
        let well = |(pe, end): (usize, Result<R>)| end.unwrap_or_else(|error| panic!("PE {pe} of {n}: {error}"));
        ended.into_iter().enumerate().map(well).collect()
    }

    /// Runs it with a fault: every PE ends, well or with an error that says that another is lost.
    pub(crate) fn run_with<R: Send>(&self, n: usize, fault: Fault, scenario: impl Fn(&World) -> Result<R> + Sync) {
        let ended = simulate(n, self.seed, Some(fault), scenario).unwrap_or_else(|error| panic!("{error}"));
        for (pe, end) in ended.into_iter().enumerate() {
            if let Err(error) = end {
                let told = matches!(error.kind(), ErrorKind::PeerLost { .. } | ErrorKind::Lock { .. });
                assert!(told, "PE {pe} of {n} with {fault:?}: {error}");
            }
        }
    }
}

/// Runs a share, in percent, of all histories. `test` is the name of the calling test.
pub(crate) fn histories(test: &str, share: u64, each: impl Fn(History) + Sync) {
    let told = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let run = |seed: u64| each(History { seed, random: Random(seed ^ 0x5eed_0000) });
    if let Some(seed) = told("SEED") {
        return run(seed);
    }
    let count = told("HISTORIES").unwrap_or(HISTORIES) * share / 100;
    let cores = rustix::thread::sched_getaffinity(None).expect("an affinity");
    let cores: Vec<usize> = (0..1024).filter(|core| cores.is_set(*core)).collect();
    let workers = cores.len();
    let again = |seed| format!("see it again with SEED={seed} and {test} --exact");
    let (failed, begun) = (AtomicBool::new(false), Mutex::new(vec![None; workers]));
    let work = |worker: usize, core: usize| {
        // Its PEs run one at a time: handing over is quickest on one core.
        let mut own = rustix::thread::CpuSet::new();
        own.set(core);
        rustix::thread::sched_setaffinity(None, &own).expect("a core");
        for seed in (worker as u64..count).step_by(workers).take_while(|_| !failed.load(Ordering::Relaxed)) {
            begun.lock().expect("a lock")[worker] = Some((seed, Instant::now()));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                failed.store(true, Ordering::Relaxed);
                eprintln!("history {seed} has failed: {}", again(seed));
                begun.lock().expect("a lock")[worker] = None;
                std::panic::resume_unwind(panic);
            }
        }
        begun.lock().expect("a lock")[worker] = None;
    };
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = cores.iter().enumerate().map(|(i, core)| scope.spawn(move || work(i, *core))).collect();
        while all.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(2));
            for (seed, since) in begun.lock().expect("a lock").iter().flatten() {
                if since.elapsed() > PATIENCE {
                    eprintln!("history {seed} hangs: {}", again(*seed));
                    std::process::abort();
                }
            }
        }
        let ends: Vec<_> = all.into_iter().map(thread::ScopedJoinHandle::join).collect();
        if let Some(panic) = ends.into_iter().find_map(thread::Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
}
