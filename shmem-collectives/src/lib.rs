//! Collectives as one-sided plans.
#![forbid(unsafe_code)]

mod calls;
pub mod check;
mod coll;
mod layout;
pub mod model;
pub mod op;
pub mod plan;
pub mod plans;
mod run;
pub mod select;

pub use coll::{Coll, Pending};
pub use select::Selection;
