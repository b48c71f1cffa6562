//! The watch that the PEs of a host keep over each other where no launcher does: a thread that sleeps until a process
//! of the job ends, and then declares it lost, unless it had left in order.
//!
//! Each PE hands the others a descriptor of its own process, so that neither process numbers nor namespaces matter. What
//! such a descriptor does not say is how the process ended.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::{Error, ErrorKind, Result};
use crate::watch::board::{Board, State};
use crate::watch::loss::{How, Loss};

/// Between the end of a process and its declaration: a process may leave right after its last barrier, without ending
/// its world, while others still read what it had sent them.
const GRACE: Duration = Duration::from_millis(5);

/// Stack of the thread, which calls nothing deep.
const STACK: usize = 64 << 10;

/// PEs that one watches over, a descriptor each. More than that many neighbours would have to end at one moment for the end
/// of one to go unseen.
pub(crate) const MOST: usize = 32;

/// A descriptor that tells when this process ends, and true; where the system has none, one that tells nothing.
pub(crate) fn own_process() -> Result<(OwnedFd, bool)> {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(process) => Ok((process, true)),
        Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Err(too_many()),
        Err(_) => eventfd(0, EventfdFlags::CLOEXEC).map(|other| (other, false)).map_err(|_| too_many()),
    }
}

fn too_many() -> Error {
    ErrorKind::os("opening a descriptor of this process (ulimit -n)", std::io::ErrorKind::Other)
}

/// The watch of one PE; it ends when dropped.
pub(crate) struct Vigil {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Vigil {
    /// Watches over these PEs of other processes, each with a descriptor of its process.
    pub(crate) fn start(board: Arc<Board>, watched: Vec<(usize, Arc<OwnedFd>)>) -> Result<Vigil> {
        let failed = |source| ErrorKind::os("making the descriptor that ends a watch (ulimit -n)", source);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("shmem-vigil".into())
            .stack_size(STACK)
            .spawn(move || keep(&board, watched, &stopped))
            .map_err(|source| ErrorKind::os("starting the thread that watches over the other PEs", source))?;
        Ok(Vigil { stop, thread: Some(thread) })
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        // It cannot fail: the counter is far from full.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(board: &Board, mut watched: Vec<(usize, Arc<OwnedFd>)>, stop: &OwnedFd) {
    while !watched.is_empty() {
        let descriptors = std::iter::once(stop.as_fd()).chain(watched.iter().map(|(_, process)| process.as_fd()));
        let mut events: Vec<PollFd<'_>> =
            descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
        match poll(&mut events, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let ready: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
        drop(events);
        if ready[0] {
            return;
        }
        std::thread::sleep(GRACE);
        let mut index = 0;
        watched.retain(|(pe, _)| {
            index += 1;
            if ready[index] {
                ended(board, *pe);
            }
            !ready[index]
        });
    }
}

/// The process of this PE is no more.
fn ended(board: &Board, pe: usize) {
    if let Some(status) = board.ended_job() {
        // Whatever this process is doing. It may have been another PE that did so, and this one its consequence.
        std::process::exit(status.into());
    }
    let Some(row) = board.row(pe) else { return };
    match row.how() {
        Some(_) => {}
        None if row.state() == State::Left => {}
        None => {
            board.declare(Loss { pe, how: How::Ended });
        }
    }
}
