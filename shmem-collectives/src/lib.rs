//! Collectives as one-sided plans.
#![forbid(unsafe_code)]

pub mod check;
pub mod op;
pub mod plan;
pub mod plans;
