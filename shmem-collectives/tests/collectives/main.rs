//! The collectives, run for real: as threads, over a network that reorders, and as processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/common/mod.rs"]
mod common;

mod errors;
mod matrix;
mod partial;
mod places;
mod reports;
mod sequences;
mod strict;
mod types;
mod unequal;
