//! The process that ends a job whose launcher was killed.
//!
//! It is the launcher's own program under another name, in a process group of its own, so that killing the launcher's
//! group misses it. A pipe tells it the PEs; when the pipe ends and the guard still lives, the launcher is gone. Then
//! it kills the PEs' process groups and all their descendants; only a process that has left its group *and* lost its
//! parent before is out of its sight. A launcher that ends in order kills its guard last. The guard holds no stream of
//! the job.

use std::io::{BufRead, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::family::children_of;

/// The name (`argv[0]`) under which the launcher's program is a guard.
pub const NAME: &str = "shmemrun-guard";

/// The launcher's side.
pub(super) struct Guard {
    child: Child,
    pipe: PipeWriter,
}

impl Guard {
    pub(super) fn start() -> std::io::Result<Guard> {
        let (reader, pipe) = std::io::pipe()?;
        let child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
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

/// The guard's whole life. Returns when the PEs that it was told of are killed, with all that they have started.
pub fn run() {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let pes: Vec<Pid> = lines.filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
    // Before anything is killed: whoever loses its parent can be found no more.
    let scattered: Vec<OwnedFd> = pes.iter().flat_map(|&pe| descendants(pe)).collect();
    for pe in pes {
        // There is nobody to tell if a group is gone or has changed its user.
        let _ = kill_process_group(pe, Signal::KILL);
    }
    for process in scattered {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

/// The children of a process, theirs, and so on, whatever session or group they have moved to. Each is held by a
/// descriptor, so that its number cannot become a stranger's.
fn descendants(pid: Pid) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            if let Ok(descriptor) = pidfd_open(child, PidfdFlags::empty()) {
                found.push(descriptor);
                parents.push(child);
            }
        }
    }
    found
}
