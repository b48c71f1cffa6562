//! One model a protocol: the shipped code, its use by a few PEs, and what must hold in every execution.

pub mod announcement;
pub mod barrier;
pub mod lock;
pub mod park;
pub mod quiet;
pub mod ring;
pub mod signal;
