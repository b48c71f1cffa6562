//! One model a protocol: the shipped code, its use by a few PEs, and what must hold in every execution. `moe` and `active` are
//! protocols of the crates above, made of the core's signals and waits: the models repeat their steps.

pub mod active;
pub mod barrier;
pub mod fate;
pub mod gather;
pub mod lock;
pub mod moe;
pub mod park;
pub mod quiet;
pub mod recorder;
pub mod ring;
pub mod signal;
