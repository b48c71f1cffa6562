//! The algorithms, one a file: each a pure function from a problem and a PE's number to what that PE does.

pub mod direct;
pub mod ring;
pub mod small;
