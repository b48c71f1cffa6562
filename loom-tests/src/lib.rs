//! PEs as loom threads over the very protocols that ship.
//!
//! `shmem::sync` is generic over the words it runs on. Here the words are loom's ([`Cell`]), a PE is a loom thread
//! with a view of all of them ([`Pe`]), and loom runs the protocol under every interleaving, and every stale value
//! that the orderings of `shmem::sync::atom` allow, up to the bounds a model states ([`World`]). [`MUTANTS`] is the
//! other half of the evidence: one thing weakened at a time, and the model that must then fail.
//!
//! What loom cannot show: it has no `membarrier`, so the two fences of the sleep protocol are both full ones here,
//! and two `SeqCst` fences synchronise with each other, which is more than the memory model promises; hence the
//! orderings are checked by waiters that spin, without a fence, and the fences by models of their own. A waiter that
//! has polled a few times in vain ends the exploration of that execution: a bound, not a proof.
//!
//! Knows the protocols' public faces only; copies none of them, but for the steps of two that crates above make of signals and waits.
#![deny(unsafe_code)]

mod bed;
mod cell;
pub mod models;
mod mutants;
#[allow(unsafe_code)]
mod plain;
mod world;

pub use bed::Bed;
pub use cell::Cell;
pub use mutants::{MUTANTS, Mutant, Mutation};
pub use plain::Plain;
pub use world::{Explored, Heap, Pe, Waiting, World};
