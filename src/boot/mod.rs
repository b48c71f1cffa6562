//! How the PEs of a job find each other: a [`Bootstrap`] gives each its number, lets all of them exchange a few bytes, and
//! hands file descriptors to the PEs of the same host. Used during start-up only; nothing here touches a heap.
//!
//! - `local`: PEs that are threads of one process;
//! - `rendezvous`: PEs that are processes, which meet at an address;
//! - `launch`: the spawner behind `shmemrun`.

use std::os::fd::OwnedFd;

use crate::error::Result;

/// The way the PEs of one job meet. All methods but the first two are collective over the job.
pub trait Bootstrap {
    /// This PE's number.
    fn me(&self) -> usize;

    /// The number of PEs in the job.
    fn n_pes(&self) -> usize;

    /// Every PE's bytes, in PE order. Collective; blocks until all have called.
    fn allgather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Hands `mine` to every PE of `host` (PE numbers of this host in ascending order, this PE's included) and returns theirs in
    /// the same order. Collective over `host`; no name appears in any file system.
    fn hand_over(&mut self, mine: OwnedFd, host: &[usize]) -> Result<Vec<OwnedFd>>;
}
