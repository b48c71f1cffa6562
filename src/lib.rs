//! OpenSHMEM-style PGAS.
#![deny(unsafe_code)]

pub mod boot;
mod channel;
pub mod config;
mod core;
mod ctx;
mod elem;
mod error;
mod group;
mod heap;
pub mod sync;
mod team;
mod transport;
mod world;

pub use channel::Channel;
pub use ctx::{Cmp, Ctx, Private, Scope, Shared, Sharing, SigRef, Values};
pub use elem::{AmoBits, AmoElem, AmoInt, Elem, Width};
pub use error::{Error, ErrorKind, Result};
pub use heap::{Heap, SymBox, SymSlice};
pub use team::Team;
pub use world::{Builder, World, local, run};
