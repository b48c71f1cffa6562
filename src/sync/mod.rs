//! The synchronisation protocols. Each is written against [`Words`], the eight things one can do to 64-bit words of the
//! PEs, and knows no heap, no transport and no operating system; so the mapped heap, a network and loom run the same
//! code. `README.md` beside this file gives the argument for each protocol in prose, with its paper.

pub mod announce;
pub mod atom;
pub mod barrier;
pub mod lock;
pub mod park;
pub mod ring;
pub mod signal;
pub mod words;

pub use announce::{Announcement, Call};
pub use atom::Atom;
pub use barrier::{Barrier, Verdict};
pub use words::{Idle, Why, Word, Words, wait};
