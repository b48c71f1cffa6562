//! OpenSHMEM-style PGAS.
#![deny(unsafe_code)]

pub mod boot;
mod error;

pub use error::{Error, ErrorKind, Result};
