//! The synchronisation protocols. Each is written against [`Words`], the eight things one can do to 64-bit words of the
//! PEs, and knows no heap, no transport and no operating system; so the mapped heap, a network and loom run the same
//! code. `README.md` beside this file gives the argument for each protocol in prose, with its paper.

pub mod atom;
pub mod barrier;
mod call;
pub mod fate;
pub mod gather;
pub mod lock;
pub mod park;
pub mod recorder;
pub mod ring;
pub mod signal;
pub mod words;

pub use atom::{Atom, Atoms};
pub use barrier::{Barrier, Verdict};
pub use call::Call;
pub use recorder::Recorder;
pub use words::{Idle, Why, Word, Words, wait};
