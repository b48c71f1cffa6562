//! Collectives as one-sided plans.
#![forbid(unsafe_code)]

mod call;
mod calls;
pub mod check;
mod coll;
mod layout;
pub mod op;
pub mod plan;
pub mod plans;
mod run;
pub mod select;
mod strided;
mod task;
mod told;
mod unequal;

pub use coll::{Coll, Pending};
pub use select::Selection;
