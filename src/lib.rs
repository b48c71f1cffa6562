//! OpenSHMEM-style PGAS.
#![deny(unsafe_code)]

pub mod boot;
pub mod config;
mod elem;
mod error;
mod heap;
pub mod sync;
mod transport;

pub use elem::{AmoElem, AmoInt, Elem};
pub use error::{Error, ErrorKind, Result};
pub use heap::{Heap, SymBox, SymSlice};
