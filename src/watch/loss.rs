//! How a PE was lost: a code for the board, and a sentence for people.

use std::fmt;

/// A PE that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Its number in the world.
    pub(crate) pe: usize,
    /// How it ended.
    pub(crate) how: How,
}

/// How a PE ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its function returned an error.
    Failed,
    /// Its thread panicked.
    Panicked,
    /// It ended after one of its collective calls had timed out.
    TimedOut,
    /// Its process exited with this status and without ending its world.
    Exited(u8),
    /// A signal ended its process.
    Killed(u8),
    /// The kernel ended its process because memory was short.
    OutOfMemory,
    /// Its process ended; nobody could see how.
    Ended,
    /// It ended the whole job with this status.
    EndedJob(u8),
    /// It does not answer over the network.
    Unreachable,
}

impl How {
    /// As the board holds it: never 0.
    pub(crate) fn encode(self) -> u64 {
        let (code, number) = match self {
            How::Failed => (1, 0),
            How::Panicked => (2, 0),
            How::TimedOut => (3, 0),
            How::Exited(status) => (4, status),
            How::Killed(signal) => (5, signal),
            How::OutOfMemory => (6, 0),
            How::Ended => (7, 0),
            How::EndedJob(status) => (8, status),
            How::Unreachable => (9, 0),
        };
        code | u64::from(number) << 8
    }

    /// What a code means; a code of a later version means that the PE ended.
    pub(crate) fn decode(code: u64) -> How {
        let number = (code >> 8) as u8;
        match code & 0xff {
            1 => How::Failed,
            2 => How::Panicked,
            3 => How::TimedOut,
            4 => How::Exited(number),
            5 => How::Killed(number),
            6 => How::OutOfMemory,
            8 => How::EndedJob(number),
            9 => How::Unreachable,
            _ => How::Ended,
        }
    }
}

/// What comes after `PE 3 is lost: it …`.
impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            How::Failed => write!(f, "its function returned an error"),
            How::Panicked => write!(f, "it panicked"),
            How::TimedOut => write!(f, "it gave up after a collective call had timed out"),
            How::Exited(status) => write!(f, "it exited with status {status} without ending its world"),
            How::Killed(signal) => write!(f, "it was killed by {}", Signal(signal.into())),
            How::OutOfMemory => write!(f, "the kernel killed it because memory was short"),
            How::Ended => write!(f, "its process ended"),
            How::EndedJob(status) => write!(f, "it ended the job with status {status}"),
            How::Unreachable => write!(f, "it does not answer over the network"),
        }
    }
}

/// A signal by number and name: `signal 11 (SIGSEGV)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal(pub(crate) i32);

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {}", self.0)?;
        match usize::try_from(self.0 - 1).ok().and_then(|index| SIGNALS.get(index)) {
            Some(name) => write!(f, " (SIG{name})"),
            None => Ok(()),
        }
    }
}

/// The names of the signals from 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_survives_its_code() {
        let all = [How::Failed, How::Panicked, How::TimedOut, How::OutOfMemory, How::Ended, How::Unreachable];
        let numbered = [0, 1, 9, 255].map(|number| [How::Exited(number), How::Killed(number), How::EndedJob(number)]);
        for how in all.into_iter().chain(numbered.into_iter().flatten()) {
            assert_ne!(how.encode(), 0);
            assert_eq!(How::decode(how.encode()), how);
        }
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(Signal(11).to_string(), "signal 11 (SIGSEGV)");
        assert_eq!(Signal(31).to_string(), "signal 31 (SIGSYS)");
        assert_eq!(Signal(40).to_string(), "signal 40");
    }
}
