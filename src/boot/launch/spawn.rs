//! One PE's command: its environment, its streams, its core.
//!
//! Each PE leads a process group, so that whatever it starts ends with it. Nothing here runs between fork and exec, so
//! the standard library can use its fastest way to spawn.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind as Io, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::input::{Input, Source};
use super::{Bind, Job};

/// A PE that runs.
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

/// Starts the PEs of a job, one after the other. Its drop gives the launcher its cores back.
pub(super) struct Spawner<'a> {
    job: &'a Job,
    address: &'a str,
    key: &'a str,
    /// The cores to bind to, and the launcher's own mask.
    cores: Option<(Vec<usize>, CpuSet)>,
}

impl<'a> Spawner<'a> {
    pub(super) fn new(job: &'a Job, address: &'a str, key: &'a str) -> Self {
        let mask = if job.bind == Bind::Core { sched_getaffinity(None).ok() } else { None };
        let cores = mask.map(|mask| (in_binding_order(&mask), mask)).filter(|(order, _)| !order.is_empty());
        Spawner { job, address, key, cores }
    }

    /// Starts PE `pe`; else a line that says why not, and the exit status for it.
    pub(super) fn spawn(&mut self, pe: usize, input: &mut Input) -> Result<Started, (String, u8)> {
        self.settle(pe).and_then(|()| self.start(pe, input)).map_err(|e| explain(&self.job.program, pe, &e))
    }

    /// Moves the launcher's thread to the core of PE `pe`, which the PE inherits.
    fn settle(&self, pe: usize) -> std::io::Result<()> {
        let Some((order, _)) = &self.cores else { return Ok(()) };
        let mut mask = CpuSet::new();
        mask.set(order[pe % order.len()]);
        Ok(sched_setaffinity(None, &mask)?)
    }

    fn start(&self, pe: usize, input: &mut Input) -> std::io::Result<Started> {
        let (stdout, out) = std::io::pipe()?;
        let (stderr, err) = std::io::pipe()?;
        let stdin = match input.source(pe)? {
            Source::Own => Stdio::inherit(),
            Source::Nothing => Stdio::null(),
            Source::Pipe(reader) => Stdio::from(reader),
        };
        let child = Command::new(&self.job.program)
            .args(&self.job.args)
            .envs(library_path().map(|path| ("LD_LIBRARY_PATH", path)))
            .envs(self.job.env.iter().map(|(name, value)| (name, value)))
            .env("SHMEM_RENDEZVOUS", self.address)
            .env("SHMEM_JOB_KEY", self.key)
            .env("SHMEM_PE", pe.to_string())
            .env("SHMEM_N_PES", self.job.n_pes.to_string())
            .process_group(0)
            .stdin(stdin)
            .stdout(out)
            .stderr(err)
            .spawn()?;
        Ok(Started { pid: Pid::from_child(&child), stdout, stderr })
    }
}

impl Drop for Spawner<'_> {
    fn drop(&mut self) {
        if let Some((_, mask)) = &self.cores {
            // It was the mask before; if it cannot be had back, the launcher works on one core as well.
            let _ = sched_setaffinity(None, mask);
        }
    }
}

/// Where a program finds shared libraries, with the place of the C interface of the launcher's own tree behind all others: for
/// programs that were linked without being told where it is.
fn library_path() -> Option<OsString> {
    let place = std::env::current_exe().ok()?;
    let folder = place.parent()?;
    let tree = [folder.to_path_buf(), folder.with_file_name("lib")];
    let library = tree.into_iter().find(|folder| folder.join("libshmem.so").exists())?;
    let mut path = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()).unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(library);
    Some(path)
}

/// The processors of `mask`, one of each core before the second threads of any.
fn in_binding_order(mask: &CpuSet) -> Vec<usize> {
    let mut processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&number| mask.is_set(number)).collect();
    processors.sort_by_cached_key(|&number| (rank_among_siblings(number), number));
    processors
}

/// How many processors of the same core come before this one.
fn rank_among_siblings(number: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut rank = 0;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            rank += (first..=last).filter(|&sibling| sibling < number).count();
        }
    }
    rank
}

fn explain(program: &OsStr, pe: usize, e: &std::io::Error) -> (String, u8) {
    let program = program.to_string_lossy();
    match e.kind() {
        Io::NotFound => (format!("{program:?} cannot be found"), 127),
        Io::PermissionDenied => {
            (format!("{program:?} cannot be run: it is not an executable file, or not for you"), 126)
        }
        _ if e.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            (format!("{program:?} cannot be run: it is neither a binary of this machine nor begins with #!"), 126)
        }
        Io::WouldBlock => (format!("PE {pe} cannot be started: too many processes (ulimit -u): {e}"), 1),
        _ if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            (format!("PE {pe} cannot be started: too many open files (raise `ulimit -n`)"), 1)
        }
        _ => (format!("{program:?} cannot be run: {e}"), 126),
    }
}

/// Open files that a job needs: the launcher holds up to six for each PE.
pub(crate) fn descriptors(n_pes: usize) -> u64 {
    n_pes as u64 * 6 + 64
}

/// Raises the soft limit of open files where the job needs it. The PEs inherit it, and need one for each PE themselves.
pub(super) fn make_room_for_descriptors(n_pes: usize) {
    let needed = descriptors(n_pes);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        // If it fails, so will a spawn, whose error names the limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
}
