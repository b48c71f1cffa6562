//! RoCE: other hosts, over network cards that read and write memory by themselves.
//!
//! - `nic`: what is needed of a network card;
//! - `seen`: what the system shows of RDMA devices; `wishes`: which of them the user wants; `select`: which are used;
//!   `refusal`: why others are not.

#[expect(dead_code, reason = "what lies above it is not built yet")]
pub(crate) mod nic;
pub(crate) mod refusal;
pub(crate) mod seen;
pub(crate) mod select;
pub(crate) mod wishes;
