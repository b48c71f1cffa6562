//! How the PEs of a job find each other: a [`Bootstrap`] gives each its number, lets all of them exchange a few bytes,
//! and hands file descriptors to the PEs of the same host. Used during start-up only; nothing here touches a heap.
//!
//! - `local`: PEs that are threads of one process;
//! - `rendezvous`: PEs that are processes, which meet at an address: `wire` is what they say, `serve` who listens
//!   there, `hub` what is answered, `handover` how descriptors pass between the PEs of a host, `show` how their
//!   launcher gets one;
//! - `launch`: the spawner behind `shmemrun`.

mod handover;
mod hub;
pub mod launch;
mod local;
mod rendezvous;
mod serve;
mod show;
mod wire;

pub use local::{Local, group};
pub use rendezvous::Rendezvous;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{ErrorKind, Result};

/// The way the PEs of one job meet. [`allgather`](Bootstrap::allgather) and [`hand_over`](Bootstrap::hand_over) are
/// collective over the job.
pub trait Bootstrap {
    /// This PE's number.
    fn me(&self) -> usize;

    /// The number of PEs in the job.
    fn n_pes(&self) -> usize;

    /// Whether a launcher watches over the job: one that sees how PEs end, and tells the others.
    fn led(&self) -> bool;

    /// Shows the launcher the memory behind `board`, at whose end lie the rows of `rows` PEs. The lowest PE of each host
    /// does so before the others can write there. Nothing happens where no launcher watches.
    fn show(&mut self, board: &OwnedFd, rows: usize) -> Result<()>;

    /// Every PE's bytes, in PE order. Collective; blocks until all have called.
    fn allgather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Hands `mine` to every PE of `host` (PE numbers of this host in ascending order, this PE's included) and returns
    /// theirs in the same order. Collective over the job, each PE with the list of its own host; no name appears in any
    /// file system. PEs of one process share what they get, so that `n` of them hold `n` descriptors and not `n` times
    /// `n`.
    fn hand_over(&mut self, mine: OwnedFd, host: &[usize]) -> Result<Vec<Arc<OwnedFd>>>;
}

/// 128 random bits as 32 characters: names and keys that nobody else has or guesses.
fn secret() -> Result<String> {
    let mut bits = [0u8; 16];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| ErrorKind::os("drawing a random key", e))?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}
