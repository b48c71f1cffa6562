//! What became of the job: who failed first and how, and the exit status that follows from it. Pure functions of what
//! was seen.
//!
//! PEs seldom fail alone: those that wait for a lost one fail in turn, and may be gone earlier. The boards tell which
//! loss was declared first, and that is the cause. Where no loss stands on a board, the first exit is.

use std::time::Duration;

use rustix::process::Signal;

use super::family::Status;
use crate::watch::{How, Loss};

/// Why the launcher ended the job.
pub(super) enum End {
    /// A PE failed.
    Failed,
    /// A PE wished it, with this status.
    Wished(u8),
    NotStarted {
        why: String,
        status: u8,
    },
    TimeLimit(Duration),
    Signal(Signal),
    /// Nobody reads the output any more.
    Unread,
    Unwritten(std::io::Error),
}

impl End {
    /// The status that it gives the job; `None` if that is the failed PE's.
    pub(super) fn status(&self) -> Option<u8> {
        match self {
            End::Failed => None,
            End::Wished(status) | End::NotStarted { status, .. } => Some(*status),
            End::TimeLimit(_) => Some(124),
            End::Signal(signal) => Some(Status::Killed(signal.as_raw()).code()),
            End::Unread => Some(Status::Killed(Signal::PIPE.as_raw()).code()),
            End::Unwritten(_) => Some(1),
        }
    }

    pub(super) fn line(&self) -> Option<String> {
        match self {
            End::NotStarted { why, .. } => Some(why.clone()),
            End::TimeLimit(limit) => Some(format!("the job was ended after {limit:?} (--timeout)")),
            End::Unwritten(e) => Some(format!("standard output cannot be written: {e}; the PEs were ended")),
            End::Failed | End::Wished(_) | End::Signal(_) | End::Unread => None,
        }
    }
}

/// The status with which a PE has ended the whole job, unless a failure came before. A PE that left with status 0 has
/// not failed.
pub(super) fn wish(losses: &[Loss]) -> Option<u8> {
    let decisive = losses.iter().find(|loss| loss.how != How::Exited(0))?;
    if let How::EndedJob(status) = decisive.how { Some(status) } else { None }
}

/// Who failed first, in words, and the job's status. `first` is the first PE that exited with another status than 0,
/// and `exits` has the statuses of those that ended before the launcher told them to.
pub(super) fn cause(first: (usize, Status), losses: &[Loss], exits: &[Option<Status>]) -> (String, u8) {
    let Some(&Loss { pe, how }) = losses.first() else {
        return (format!("PE {} {}", first.0, first.1), first.1.code());
    };
    match exits.get(pe).copied().flatten() {
        Some(status) if status != Status::Exited(0) => {
            let why = match how {
                How::Failed | How::Panicked | How::TimedOut | How::OutOfMemory | How::Unreachable => format!(": {how}"),
                How::Exited(_) | How::Killed(_) | How::Ended | How::EndedJob(_) => String::new(),
            };
            (format!("PE {pe} {status}{why}"), status.code())
        }
        _ => (format!("PE {pe} is lost: {how}; then PE {} {}", first.0, first.1), first.1.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(all: &[(usize, How)]) -> Vec<Loss> {
        all.iter().map(|&(pe, how)| Loss { pe, how }).collect()
    }

    #[test]
    fn without_a_board_the_first_exit_is_the_cause() {
        let exits = [None, Some(Status::Exited(5))];
        assert_eq!(cause((1, Status::Exited(5)), &[], &exits), ("PE 1 exited with status 5".into(), 5));
    }

    #[test]
    fn the_first_loss_is_the_cause_also_if_another_was_gone_earlier() {
        let exits = [Some(Status::Exited(1)), Some(Status::Killed(11))];
        let losses = losses(&[(1, How::Killed(11)), (0, How::Exited(1))]);
        let said = "PE 1 was killed by signal 11 (SIGSEGV)";
        assert_eq!(cause((0, Status::Exited(1)), &losses, &exits), (said.into(), 139));
    }

    #[test]
    fn a_loss_says_more_than_the_status() {
        let exits = [Some(Status::Exited(101)), Some(Status::Killed(9))];
        let said = "PE 0 exited with status 101: it panicked";
        assert_eq!(cause((0, Status::Exited(101)), &losses(&[(0, How::Panicked)]), &exits), (said.into(), 101));
        let said = "PE 1 was killed by signal 9 (SIGKILL): the kernel killed it because memory was short";
        assert_eq!(cause((1, Status::Killed(9)), &losses(&[(1, How::OutOfMemory)]), &exits), (said.into(), 137));
    }

    #[test]
    fn a_cause_without_a_failing_status_leaves_the_status_to_who_failed() {
        for exit in [Some(Status::Exited(0)), None] {
            let exits = [exit, Some(Status::Exited(4))];
            let losses = losses(&[(0, How::Exited(0)), (1, How::Failed)]);
            let said = "PE 0 is lost: it exited with status 0 without ending its world; then PE 1 exited with status 4";
            assert_eq!(cause((1, Status::Exited(4)), &losses, &exits), (said.into(), 4));
        }
    }

    #[test]
    fn a_wish_counts_unless_a_failure_came_first() {
        assert_eq!(wish(&losses(&[(2, How::EndedJob(0)), (1, How::Failed)])), Some(0));
        assert_eq!(wish(&losses(&[(1, How::Exited(0)), (2, How::EndedJob(42))])), Some(42));
        assert_eq!(wish(&losses(&[(1, How::Exited(1)), (2, How::EndedJob(42))])), None);
        assert_eq!(wish(&losses(&[(1, How::Exited(0))])), None);
        assert_eq!(wish(&[]), None);
    }
}
