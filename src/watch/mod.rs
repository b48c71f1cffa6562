//! What the PEs of a host know of each other, however they fare: who lives, who is lost and how, what each is doing and
//! has done.
//!
//! - `board`: the memory in which it stands: a row for each PE of the host, read by all of them and by the launcher,
//!   also after its PE is gone;
//! - `loss`: how a PE was lost, as a number and in words;
//! - `activity`: the events of a PE: which call, where in the program, for whom it waits;
//! - `lookout`: what one PE makes of it: the losses it has to report, the events it writes;
//! - `flight`: the file with the recorders, written after a loss;
//! - `vigil`: the thread that watches over the other processes, where no launcher does;
//! - `report`: all of that as text for people, `summary` in short.
//!
//! Knows nothing of teams, routes, or how the processes were started.

pub(crate) mod activity;
pub(crate) mod board;
pub(crate) mod flight;
pub(crate) mod lookout;
pub(crate) mod loss;
pub(crate) mod report;
pub(crate) mod summary;
pub(crate) mod vigil;

pub(crate) use activity::{Begun, Site};
pub(crate) use board::{Board, State};
pub(crate) use lookout::Lookout;
pub(crate) use loss::{How, Loss};
pub(crate) use vigil::Vigil;
