//! The network: one-sided transfers by a network card, from and to registered memory, without any call of the target.
//!
//! - `nic`: what is needed of a card;
//! - `verbs`: a real one.

pub(crate) mod nic;
#[cfg(feature = "roce")]
pub(crate) mod verbs;
