//! Collectives as one-sided plans.
#![forbid(unsafe_code)]

pub mod check;
mod layout;
pub mod plan;
pub mod plans;
