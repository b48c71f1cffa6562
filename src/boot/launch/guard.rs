//! The process that ends a job whose launcher was killed.
//!
//! It is the launcher's own program under another name, in a process group of its own, so that killing the launcher's group
//! misses it. A pipe tells it the PEs; when the pipe ends and the guard still lives, the launcher is gone. Then it kills the
//! PEs' process groups and whatever else carries the job's key in its environment. A launcher that ends in order kills its
//! guard last. The guard holds no stream of the job.

use std::ffi::OsStr;
use std::io::{BufRead, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

/// The name (`argv[0]`) under which the launcher's program is a guard.
pub const NAME: &str = "shmemrun-guard";

/// Passes over the process table; each finds what processes have started since the one before.
const PASSES: usize = 100;
/// Before the last pass: a process that is just being started shows no environment yet, and nothing tells when it does.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait in each pass for one process to be gone.
const DEATH: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The launcher's side.
pub(super) struct Guard {
    child: Child,
    pipe: PipeWriter,
}

impl Guard {
    pub(super) fn start(key: &str) -> std::io::Result<Guard> {
        let (reader, mut pipe) = std::io::pipe()?;
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        writeln!(pipe, "{key}")?;
        Ok(Guard { child, pipe })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Makes it responsible for a PE.
    pub(super) fn watch(&mut self, pid: Pid) {
        // Somebody may have killed the guard; the job goes on without.
        let _ = writeln!(self.pipe, "{}", pid.as_raw_pid());
    }

    pub(super) fn dismiss(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guard's whole life. Returns when no process of the job is left.
pub fn run() {
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let key = lines.next().unwrap_or_default();
    let groups: Vec<Pid> = lines.filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if !key.is_empty() {
        let mark = format!("SHMEM_JOB_KEY={key}");
        let mut empty_passes = 0;
        for _ in 0..PASSES {
            empty_passes = if kill_marked(mark.as_bytes()) { 0 } else { empty_passes + 1 };
            if empty_passes == 2 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Kills every process with `mark` in its environment; false if there was none.
fn kill_marked(mark: &[u8]) -> bool {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name();
        let pid = OsStr::to_str(&number).and_then(|number| Pid::from_raw(number.parse().ok()?));
        // Held before it is looked at, so that the one looked at is the one killed.
        let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|variable| variable == mark)
            && pidfd_send_signal(&pidfd, Signal::KILL).is_ok()
        {
            found.push(pidfd);
        }
    }
    for pidfd in &found {
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&DEATH));
    }
    !found.is_empty()
}
