//! The processes of a job, from their start until none is left.
//!
//! A PE is not reaped before the job is over: until then its number, which is also that of its process group, cannot be
//! given to a stranger, so signals to the group are safe. As a child subreaper the launcher inherits whatever the PEs
//! leave behind, whichever session or group it has moved to; once the groups are killed, all that remains are its own
//! children.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, pidfd_open, waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::guard::Guard;
use super::say;
use crate::error::{ErrorKind, Result};
use crate::watch::loss;

/// How long a killed process may take to go: only one inside a failing device or network file system takes long.
const DEATH: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How far the news that a process has ended may be ahead of how it did.
const AHEAD: Duration = Duration::from_millis(20);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Exited(i32),
    Killed(i32),
}

impl Status {
    /// As a shell shows it.
    pub(super) fn code(self) -> u8 {
        match self {
            Status::Exited(status) => status as u8,
            Status::Killed(signal) => 128u8.saturating_add(signal as u8),
        }
    }

    fn of(status: &WaitIdStatus) -> Status {
        match status.terminating_signal() {
            Some(signal) => Status::Killed(signal),
            None => Status::Exited(status.exit_status().unwrap_or(0)),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Status::Exited(status) => write!(f, "exited with status {status}"),
            Status::Killed(signal) => write!(f, "was killed by {}", loss::Signal(signal)),
        }
    }
}

/// The launcher's children. Dropped without [`end`](Family::end), it leaves the rest to the guard.
pub(super) struct Family {
    /// Children that the launcher was born with: a shell may replace itself by the launcher while others run.
    older: HashSet<Pid>,
    guard: Option<Guard>,
    pes: Vec<Pid>,
    running: usize,
    exits: UnboundedReceiver<(usize, Status)>,
    exited: UnboundedSender<(usize, Status)>,
}

impl Family {
    /// Makes the launcher the one who inherits orphans, and starts the guard.
    pub(super) fn new() -> Result<Family> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| ErrorKind::os("becoming the reaper of the job's processes", e))?;
        let older = children();
        let guard = Guard::start()
            .inspect_err(|e| say(format_args!("no guard ({e}): if the launcher is killed, PEs may go on")))
            .ok();
        let (exited, exits) = unbounded_channel();
        Ok(Family { older, guard, pes: Vec::new(), running: 0, exits, exited })
    }

    /// Takes a PE that has just been started under its wing.
    pub(super) fn adopt(&mut self, pe: usize, pid: Pid) -> Result<()> {
        if let Some(guard) = &mut self.guard {
            guard.watch(pid);
        }
        self.pes.push(pid);
        self.running += 1;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| ErrorKind::os("watching a PE", e))?;
        #[expect(deprecated, reason = "unsound for types that change their descriptor; an OwnedFd never does")]
        let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE).map_err(|e| ErrorKind::os("watching a PE", e))?;
        let exited = self.exited.clone();
        tokio::spawn(async move {
            // It stays a zombie, which keeps its number.
            let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            // An error would mean that the runtime is shutting down.
            let mut ready = pidfd.readable().await.ok();
            let status = loop {
                match waitid(WaitId::Pid(pid), peek) {
                    Ok(Some(status)) => break Status::of(&status),
                    // Readiness may be false, or a little ahead of the status, and then does not come again.
                    Ok(None) => {
                        if let Some(mut ready) = ready.take() {
                            ready.clear_ready();
                        }
                        ready = timeout(AHEAD, pidfd.readable()).await.ok().and_then(Result::ok);
                    }
                    Err(_) => break Status::Exited(0),
                }
            };
            let _ = exited.send((pe, status));
        });
        Ok(())
    }

    /// The process number of each PE that was started.
    pub(super) fn pes(&self) -> &[Pid] {
        &self.pes
    }

    /// PEs that have not ended.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// The next PE to end, in the order of time. Can be dropped and called again without a loss.
    pub(super) async fn next_exit(&mut self) -> Option<(usize, Status)> {
        let exit = self.exits.recv().await;
        self.running -= usize::from(exit.is_some());
        exit
    }

    /// Sends a signal to every PE with all that it has started.
    pub(super) fn signal(&self, signal: Signal) {
        for &pe in &self.pes {
            // There is nobody to tell if a group is gone or has changed its user.
            let _ = kill_process_group(pe, signal);
            if signal != Signal::TSTP {
                // One that is stopped hears nothing but this.
                let _ = kill_process_group(pe, Signal::CONT);
            }
        }
    }

    /// Takes orphans that have ended out of the process table.
    pub(super) fn reap_orphans(&self) {
        for orphan in self.orphans() {
            let _ = waitid(WaitId::Pid(orphan), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    /// Ends every process of the job. All PEs have exited.
    pub(super) async fn end(&mut self) {
        for &pe in &self.pes {
            let _ = kill_process_group(pe, Signal::KILL);
        }
        for pe in std::mem::take(&mut self.pes) {
            let _ = waitid(WaitId::Pid(pe), WaitIdOptions::EXITED);
        }
        // Those whose parents are killed become the launcher's in turn.
        loop {
            let orphans = self.orphans();
            if orphans.is_empty() {
                break;
            }
            for &orphan in &orphans {
                let _ = kill_process(orphan, Signal::KILL);
            }
            if let Some(stuck) = orphans.into_iter().find(|&orphan| !bury(orphan)) {
                say(format_args!("process {stuck} cannot be killed"));
                break;
            }
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }

    /// The launcher's children except those that it had before, its guard and its PEs.
    fn orphans(&self) -> Vec<Pid> {
        let guard = self.guard.as_ref().map(Guard::pid);
        let known = |pid: &Pid| self.older.contains(pid) || guard == Some(*pid) || self.pes.contains(pid);
        children().into_iter().filter(|pid| !known(pid)).collect()
    }
}

/// Waits for a killed child to go and takes it out of the process table; false if it does not go.
fn bury(pid: Pid) -> bool {
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let gone = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&DEATH)) != Ok(0);
    gone && (waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG), true).1
}

/// The children of this process.
fn children() -> HashSet<Pid> {
    children_of(rustix::process::getpid()).into_iter().collect()
}

/// The children of all threads of a process.
pub(super) fn children_of(pid: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<String> = lists.collect();
    numbers.iter().flat_map(|list| list.split_whitespace()).filter_map(|n| Pid::from_raw(n.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_and_counts_as_in_a_shell() {
        assert_eq!(Status::Exited(3).code(), 3);
        assert_eq!(Status::Killed(11).code(), 139);
        assert_eq!(Status::Killed(11).to_string(), "was killed by signal 11 (SIGSEGV)");
        assert_eq!(Status::Killed(9).to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(Status::Killed(15).to_string(), "was killed by signal 15 (SIGTERM)");
        assert_eq!(Status::Killed(31).to_string(), "was killed by signal 31 (SIGSYS)");
        assert_eq!(Status::Killed(40).to_string(), "was killed by signal 40");
        assert_eq!(Status::Exited(5).to_string(), "exited with status 5");
    }
}
