//! Collectives as one-sided plans, on the public interface of [`shmem`] alone.
//!
//! ```
//! use shmem_collectives::{Coll, op::Sum};
//!
//! shmem::local(3, |world| -> shmem::Result<()> {
//!     let team = world.team();
//!     let coll = Coll::new(world, &team)?;
//!     let (mine, all) = (world.alloc::<f32>(1000)?, world.alloc::<f32>(1000)?);
//!     mine.sym().fill(world.me() as f32);
//!     coll.all_reduce(all.sym(), mine.sym(), Sum)?;
//!     assert_eq!(all.sym().read(999)?, 3.0);
//!     let pending = coll.start_broadcast(all.sym(), mine.sym(), 2); // gets on when this PE tests or waits
//!     pending.wait()?;
//!     assert_eq!(all.sym().read(0)?, 2.0);
//!     world.free(mine)?;
//!     world.free(all)
//! })?;
//! # Ok::<(), shmem::Error>(())
//! ```
//!
//! A collective is a pure function from a [`Problem`](plan::Problem) and a PE's number to a list of [`Step`](plan::Step)s, and there are four
//! of them: fold some regions into some regions, meet all, signal a PE, wait for a PE. One engine runs such a plan; the same list goes to the
//! [`check`]er, which proves it for a number of PEs, a root and a length by running all PEs symbolically.
//!
//! | room | what lies in it |
//! |---|---|
//! | `calls`, `barrier`, `unequal`, `strided` | what a program calls |
//! | `coll`, `prepare`, `call`, `task`, `told` | the way from a call to a plan to its end |
//! | [`plan`], `layout` | the vocabulary |
//! | [`plans`] | the algorithms, one a file, and their table |
//! | `run`, `hand`, `tiny` | the engine, what its folds do, and a shorter way for the smallest messages |
//! | [`check`] | the checker |
//! | [`op`] | reductions of every type |
//! | [`select`] | which algorithm a call takes |
//! | [`moe`] | exchange between the experts of a mixture |
//!
//! All PEs of a team make the same calls in the same order. The first meeting of a call carries a digest of it, so that a different call, length,
//! type, operation or root on any PE is an error on all of them, which names both sides, and costs nothing besides.
#![forbid(unsafe_code)]

mod barrier;
mod call;
mod calls;
pub mod check;
mod coll;
mod hand;
mod layout;
pub mod model;
pub mod moe;
pub mod op;
pub mod plan;
pub mod plans;
mod prepare;
mod run;
pub mod select;
mod strided;
mod task;
mod tiny;
mod told;
mod unequal;

pub use coll::{Coll, Pending};
pub use select::Selection;
