//! The exchange between experts against a serial model: as threads, over a network that reorders, and as processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/common/mod.rs"]
mod common;

mod again;
mod build;
mod losses;
mod matrix;
mod model;
mod refusals;
