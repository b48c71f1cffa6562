//! shmemrun
fn main() {}
