//! OpenSHMEM-style PGAS.
#![deny(unsafe_code)]

pub mod boot;
mod error;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
