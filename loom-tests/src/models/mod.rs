//! One model a protocol: the shipped code, its use by a few PEs, and what must hold in every execution.

pub mod barrier;
pub mod fate;
pub mod gather;
pub mod lock;
pub mod park;
pub mod quiet;
pub mod recorder;
pub mod ring;
pub mod signal;
