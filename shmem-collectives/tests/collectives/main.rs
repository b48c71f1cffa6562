//! The collectives, run for real: as threads, over a network that reorders, and as processes.

#[path = "../../../tests/common/mod.rs"]
mod common;

mod errors;
mod even;
mod places;
mod sequences;
mod strict;
mod types;
mod unequal;
