//! OpenSHMEM-style PGAS.
#![deny(unsafe_code)]

pub mod boot;
pub mod config;
mod error;
mod heap;

pub use error::{Error, ErrorKind, Result};
