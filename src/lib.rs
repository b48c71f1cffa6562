//! OpenSHMEM-style PGAS: N *processing elements* (PEs) run the same program, and each can read, write and count in the
//! memory of the others, without any call on their side.
//!
//! ```
//! use shmem::{Shared, SigRef};
//!
//! shmem::local(4, |world| -> shmem::Result<()> {
//!     let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
//!     let (inbox, bell) = (world.alloc::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
//!     ctx.put_signal(inbox.sym(), &[me as u64], SigRef::set(bell.sym(), 1), (me + 1) % n)?;
//!     ctx.wait(bell.sym(), |rung| rung == 1)?;
//!     assert_eq!(inbox.sym().read(0)?, ((me + n - 1) % n) as u64); // my left neighbour's number
//!     world.free(inbox)?;
//!     world.free(bell)
//! })?;
//! # Ok::<(), shmem::Error>(())
//! ```
//!
//! [`local`] runs the PEs as threads; as processes, `shmemrun -n 4 PROGRAM` starts them and each calls [`World::init`]
//! (or wraps its work in [`run`]); a program that has a launcher of its own joins by [`World::builder`].
//!
//! # One sentence of address arithmetic and one enum
//!
//! A symmetric object is an offset, the same on every PE: [`SymSlice`]. A peer is a route. A put is *check, match the
//! route, store*: same-host PEs have each other's heaps mapped, so the caller itself copies into the peer's memory; a PE
//! of another host is reached by a network card, which reads and writes registered memory by itself (feature `roce`).
//! [`simulate`] puts a simulated card in its place, for tests.
//!
//! | room | what lies in it | may use |
//! |---|---|---|
//! | `error`, `elem`, [`config`] | the tables of errors, of types and of settings | each other |
//! | [`sync`] | protocols over words: barrier, lock, ring, recorder, fate, signal, sleeping | `error` |
//! | `heap` | segments, layout, allocator, handles, what checked mode knows of them | the above |
//! | `watch` | what the PEs of a host know of each other: who is lost, who does what | `heap` and below |
//! | `transport` | routes, and everything one can do by offset: mapped memory, and in `transport/roce` network cards | the above |
//! | [`boot`] | how PEs find each other; the launcher | `watch` and below |
//! | `group` | members of a team, their barrier and agreement | `transport` and below |
//! | `core` | what world, teams and contexts share | `group` and below |
//! | `ctx`, `team`, `channel`, `world` | the public face, `world` on top | everything below, in this order |
//! | [`checkup`] | whether this host is fit for jobs | what start-up uses |
//!
//! `tests/layers.rs` keeps this table.
//!
//! # Memory model
//!
//! - After a **put** its source may be reused, and it is *complete*, visible to every PE, after [`quiet`](Ctx::quiet) of
//!   its context or a [barrier](World::barrier_all). Puts to one PE become visible in any order unless a
//!   [`fence`](Ctx::fence) of their context lies between them. All [`Shared`] contexts of a PE are one; each [`Private`]
//!   one is on its own.
//! - A **get** or a fetching atomic is complete when it returns.
//! - A **signal** ([`put_signal`](Ctx::put_signal)) is visible only after its data: whoever has waited for it may read
//!   them.
//! - A **wait** returns with everything visible that the writer had written before (or fenced before) what was waited
//!   for.
//! - **quiet** is a full fence: of two PEs that each put, quiet and get, at least one sees the other's value.
//! - **Single elements** of 1, 2, 4 or 8 bytes, aligned to their size (not `[u8; 8]`) ([`p`](Ctx::p), [`g`](Ctx::g),
//!   [`SymSlice::read`], atomics) are never torn.
//! - **Collective** calls are made by all PEs of the team, in the same order. If they differ, in the call or in its
//!   arguments, every PE gets the same [`Mismatch`](ErrorKind::Mismatch) that names both sides, and the team stays
//!   usable.
//!
//! A process that is forked from a PE's may exit or execute another program; for all else it gets the error
//! [`Forked`](ErrorKind::Forked). With `SHMEM_CHECK=1`, any access may fail with
//! [`UseAfterFree`](ErrorKind::UseAfterFree), any write with [`InUse`](ErrorKind::InUse): see `docs/checking.md`.
//!
//! Symmetric memory is shared: there is no safe `&[T]` to it. Two PEs that write the same bytes at the same time, or
//! read while another writes, without one of the orders above, get either value or a mixture of both; never anything
//! else.
#![deny(unsafe_code)]

pub mod boot;
mod channel;
pub mod checkup;
pub mod config;
mod core;
mod ctx;
mod elem;
mod error;
mod group;
mod heap;
mod survivors;
pub mod sync;
mod team;
mod transport;
mod watch;
mod world;

pub use channel::Channel;
pub use ctx::{Cmp, Ctx, Kernel, Private, Scope, Shared, Sharing, SigRef, Values};
pub use elem::{AmoBits, AmoElem, AmoInt, Elem, Width};
pub use error::{Error, ErrorKind, Result};
pub use heap::{Addresses, ExternalMemory, Reservation, SymBox, SymSlice};
pub use team::{Calling, Meeting, Team};
pub use transport::roce::sim::turns::Fault;
pub use world::{Builder, World, local, run, simulate};

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_by_threads<T: Send + Sync>() {}
    fn moved_between_threads<T: Send>() {}

    #[test]
    fn threads_share_what_the_documentation_says() {
        shared_by_threads::<World>();
        shared_by_threads::<Team<'_>>();
        shared_by_threads::<Ctx<'_, Shared>>();
        shared_by_threads::<SymSlice<'_, u64>>();
        moved_between_threads::<Ctx<'_, Private>>();
        moved_between_threads::<Channel<'_, u64>>();
    }
}
