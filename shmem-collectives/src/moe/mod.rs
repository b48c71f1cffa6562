//! Exchange between the experts of a mixture (MoE): a library call for programs that spread experts over PEs, in host memory,
//! over whatever route connects these.
//!
//! ```
//! use half::bf16;
//! use shmem_collectives::moe::Moe;
//!
//! shmem::local(2, |world| -> shmem::Result<()> {
//!     let team = world.team();
//!     let mut moe = Moe::builder(world, &team).experts(4).max_tokens(8).hidden(3).top_k(2).build()?;
//!     // Two tokens of three values each. A gate has chosen two of the four experts for the first, one for the second.
//!     let tokens = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(bf16::from_f32);
//!     let (experts, weights) = ([0, 3, 1, -1], [0.75, 0.25, 1.0, 0.0]);
//!     let received = moe.dispatch(&tokens, &experts, &weights)?;
//!     for (local, expert) in received.experts().iter().enumerate() {
//!         // Expert 0 returns what it gets, expert 1 twice that, and so on.
//!         let mut values = vec![bf16::ZERO; 3 * received.rows(local).len()];
//!         received.gather(local, &mut values)?;
//!         values.iter_mut().for_each(|value| *value *= bf16::from_f32(1.0 + *expert as f32));
//!         received.scatter(local, &values)?;
//!     }
//!     let mut outputs = [bf16::ZERO; 6];
//!     moe.combine(&mut outputs)?;
//!     assert_eq!(outputs.map(bf16::to_f32), [1.75, 3.5, 5.25, 8.0, 10.0, 12.0]);
//!     moe.free()
//! })?;
//! # Ok::<(), shmem::Error>(())
//! ```
//!
//! A round is `send`, `recv`, `combine`; nothing is negotiated, and nothing allocated ([`exchange`](self) says in its source why
//! one area is enough, without a barrier). A token crosses to a PE once, whatever the number of its experts there, and lies there until
//! the round ends; experts read it in place or copied densely, and write their outputs where sources on the same host read them. A sum
//! is made at the source, in f32, in the order of the token's choices, and rounded once: bit for bit what a serial program makes.
//!
//! [`MoeMode::Latency`] puts each token to each PE that needs it. [`MoeMode::Throughput`] puts it once for each *host*: for its own into
//! this PE's own memory, where the PEs of the host read it in place, and to one PE of each other host. Which of them is taken
//! follows from the size by the table of [`select`](crate::select) (`SHMEM_COLL_ALGO=moe=latency`,
//! `SHMEM_COLL_TABLE`).
//!
//! What is wrong with a call is a [`Refusal`], which the PE that makes it sends in place of its counts: the same on all PEs.
//!
//! | room | what lies in it |
//! |---|---|
//! | `build`, `shape` | the size of an exchange, and its memory |
//! | `exchange` | who takes part, in which step; leaving PEs out |
//! | `send`, `routes` | from choices to lists of what goes where, to puts |
//! | `recv`, `rows`, `received` | from headers to the rows of each expert |
//! | `combine` | from outputs to sums |
//! | `layout` | a round's lists, kept for another |
//! | `payload`, `fp8` | what tokens look like on their way |
//! | `refusal` | what can be wrong |

mod build;
mod combine;
mod exchange;
mod fp8;
mod layout;
mod payload;
mod received;
mod recv;
mod refusal;
mod routes;
mod rows;
mod send;
mod shape;

pub use crate::select::MoeMode;
pub use build::Builder;
pub use combine::Report;
pub use exchange::Moe;
pub use fp8::BLOCK;
pub use layout::Layout;
pub use payload::{Bf16, F16, F32, Fp8E4m3, Payload};
pub use received::{Received, Token};
pub use refusal::{Refusal, What};
pub use rows::Row;
pub use shape::MOST_EXPERTS;
