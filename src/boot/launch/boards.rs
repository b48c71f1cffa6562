//! The boards of the job's worlds, as the PEs show them: where the launcher reads what PEs do, and writes how they ended.
//!
//! A program may end its world and start another, so boards come and go. One is kept while it has PEs that have not
//! left in order, and the last on which a loss stands is kept to the end, for the report; the others would only keep
//! memory from the host, since a board is part of a heap.

use std::fmt::Write;

use crate::boot::show::Letterbox;
use crate::error::Result;
use crate::watch::board::{Row, namespace};
use crate::watch::{Board, Loss, State, activity, report, summary};

use super::say;

/// All boards that matter.
pub(super) struct Boards {
    letterbox: Letterbox,
    n_pes: usize,
    kept: Vec<Board>,
    /// Whether there ever was one.
    any: bool,
}

impl Boards {
    /// Ready to be shown the boards of a job of `n_pes`. Within a tokio runtime.
    pub(super) fn open(n_pes: usize) -> Result<Boards> {
        Ok(Boards { letterbox: Letterbox::open()?, n_pes, kept: Vec::new(), any: false })
    }

    /// What the PEs need in order to show a board.
    pub(super) fn invitation(&self) -> Vec<u8> {
        self.letterbox.invitation()
    }

    /// Returns when a board may have been shown. Can be dropped and called again without a loss.
    pub(super) async fn shown(&self) {
        self.letterbox.filled().await;
    }

    /// Takes the boards that were shown, all that came before this call.
    pub(super) fn collect(&mut self) {
        for post in self.letterbox.empty() {
            match post {
                // What is none is left alone.
                Ok((rows, descriptor)) if rows <= self.n_pes => {
                    let board = Board::find(&descriptor, rows, self.n_pes).ok();
                    self.kept.extend(board.filter(|board| board.host().iter().all(|pe| *pe < self.n_pes)));
                }
                Ok(_) => {}
                Err(e) => say(format_args!("a loss in this job may go unnoticed: {e}")),
            }
        }
        self.any |= !self.kept.is_empty();
        self.forget();
    }

    /// Gives up the boards of worlds that are over.
    pub(super) fn forget(&mut self) {
        let last = self.kept.iter().rposition(|board| !board.losses().is_empty());
        let mut index = 0;
        self.kept.retain(|board| {
            index += 1;
            last == Some(index - 1) || board.rows().any(|row| row.state() != State::Left)
        });
    }

    /// Whether a PE is in a world that it has not ended, and not known to be lost.
    pub(super) fn is_member(&self, pe: usize) -> bool {
        self.kept.iter().any(|board| is_member(board, pe))
    }

    /// Whether PEs are still on their way out of the meeting of a world that this PE, which has ended, was the first to
    /// leave. Those that have `ended` themselves are not counted.
    pub(super) fn lag_behind(&self, pe: usize, ended: impl Fn(usize) -> bool) -> bool {
        let lags = |row: &Row<'_>, number: u64| {
            activity::last_meeting(row)
                .is_some_and(|theirs| theirs.number < number || theirs.number == number && theirs.ended.is_none())
        };
        self.kept.iter().filter(|board| is_member(board, pe)).any(|board| {
            let left = board.row(pe).and_then(|row| activity::last_meeting(&row)).filter(|own| own.ended.is_some());
            let others = || board.rows().filter(|row| is_member(board, row.pe) && !ended(row.pe));
            left.is_some_and(|left| others().any(|row| lags(&row, left.number)))
        })
    }

    /// PEs that are in a world and whose processes have ended, as far as can be seen from here, with their numbers.
    pub(super) fn vanished(&self) -> Vec<(usize, u64)> {
        let members = self.kept.iter().flat_map(|board| board.rows().filter(|row| is_member(board, row.pe)));
        members.filter(has_ended).map(|row| (row.pe, row.pid())).collect()
    }

    /// Tells the PEs of every world that this one was in of its loss, on all its hosts.
    pub(super) fn declare(&self, loss: Loss) {
        let worlds: Vec<u64> = self.kept.iter().filter(|board| is_member(board, loss.pe)).map(Board::world).collect();
        for board in self.kept.iter().filter(|board| worlds.contains(&board.world())) {
            board.declare(loss);
        }
    }

    /// The losses of the world in which there were any last, the earliest first.
    pub(super) fn losses(&self) -> Vec<Loss> {
        self.kept.iter().rev().map(Board::losses).find(|losses| !losses.is_empty()).unwrap_or_default()
    }

    /// What the PEs of the world do that this PE is in, or was when it was lost; a line for each thing.
    pub(super) fn around(&self, pe: usize) -> String {
        let concerned = |board: &&Board| is_member(board, pe) || board.row(pe).is_some_and(|row| row.fate().is_some());
        self.kept.iter().rev().find(concerned).map(summary::summary).unwrap_or_default()
    }

    /// What all PEs do, in full. `None` if there is no world.
    pub(super) fn table(&self) -> Option<String> {
        self.all(report::table)
    }

    /// The flight recorders of all PEs.
    pub(super) fn recorders(&self) -> Option<String> {
        self.all(report::recorders)
    }

    /// Whether there has ever been a world.
    pub(super) fn any(&self) -> bool {
        self.any
    }

    fn all(&self, show: fn(&Board) -> String) -> Option<String> {
        match &self.kept[..] {
            [] => None,
            [board] => Some(show(board)),
            several => {
                let one = several.iter().all(|board| board.world() == several[0].world());
                let (what, n) = (if one { "host" } else { "world" }, several.len());
                let mut several: Vec<&Board> = several.iter().collect();
                if one {
                    // They came in any order.
                    several.sort_by_key(|board| board.host().first());
                }
                Some(several.into_iter().enumerate().fold(String::new(), |mut text, (i, board)| {
                    let _ = write!(text, "  {what} {} of {n}:\n{}", i + 1, show(board));
                    text
                }))
            }
        }
    }
}

fn is_member(board: &Board, pe: usize) -> bool {
    board.row(pe).is_some_and(|row| row.state() == State::Running && row.fate().is_none())
}

/// Whether the process of a row has ended. No, if its number means another process here.
fn has_ended(row: &Row<'_>) -> bool {
    if row.namespace() != namespace() {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{}/stat", row.pid())) {
        // After the name, in brackets, that may hold anything.
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::show::post;
    use crate::sync::Call;
    use crate::watch::How;
    use std::os::fd::OwnedFd;

    /// Boards as the launcher has them, and a way to show more.
    fn open(n_pes: usize) -> (tokio::runtime::Runtime, Boards) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let boards = runtime.block_on(async { Boards::open(n_pes).unwrap() });
        (runtime, boards)
    }

    /// A board of a world of 3 PEs by this number.
    fn founded(world: u64, host: &[usize]) -> (Board, OwnedFd) {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, Board::bytes(host.len(), 3) as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
        let board = Board::attach(&file, 0, host, 3).unwrap();
        board.found(world);
        (board, file)
    }

    #[test]
    fn worlds_that_follow_one_another_leave_one_board_at_most() {
        let (_runtime, mut boards) = open(3);
        for _ in 0..10 {
            let (board, file) = founded(0, &[0, 1, 2]);
            post(&boards.invitation(), &file, 3, None).unwrap();
            boards.collect();
            for pe in 0..3 {
                assert!(!boards.is_member(pe));
                board.enter(pe, false);
                assert!(boards.is_member(pe));
            }
            assert_eq!(boards.kept.len(), 1);
            for row in board.rows() {
                row.set_state(State::Left);
            }
        }
        boards.forget();
        assert!(boards.kept.is_empty() && boards.any() && boards.table().is_none());
    }

    #[test]
    fn a_loss_is_told_to_the_worlds_that_the_pe_was_in() {
        let (_runtime, mut boards) = open(3);
        let worlds = [founded(0, &[0, 1, 2]), founded(1, &[0, 1]), founded(2, &[0, 2]), founded(1, &[2])];
        for (board, file) in &worlds {
            post(&boards.invitation(), file, board.host().len(), None).unwrap();
            board.host().iter().for_each(|pe| board.enter(*pe, false));
        }
        boards.collect();
        worlds[0].0.row(1).unwrap().set_state(State::Left);
        boards.declare(Loss { pe: 1, how: How::Killed(11) });
        assert_eq!(worlds.each_ref().map(|(board, _)| board.losses().len()), [0, 1, 0, 1], "on both hosts");
        assert_eq!(boards.losses(), [Loss { pe: 1, how: How::Killed(11) }]);
        assert!(boards.around(1).contains("PE 1 lost: it was killed by signal 11 (SIGSEGV)"));
        assert!(boards.around(0).contains("PEs 0 and 2 outside the library"), "{}", boards.around(0));
        // A world with a loss stays for the report, until another has one.
        for (board, _) in &worlds {
            board.rows().for_each(|row| row.set_state(State::Left));
        }
        boards.forget();
        assert_eq!(boards.kept.len(), 1);
        assert_eq!(boards.losses().len(), 1);
    }

    #[test]
    fn those_who_are_still_in_the_last_meeting_lag_behind() {
        use crate::watch::activity::{Begun, Texts, begin, end};
        let (_runtime, mut boards) = open(3);
        let (board, file) = founded(0, &[0, 1, 2]);
        post(&boards.invitation(), &file, 3, None).unwrap();
        boards.collect();
        let board = &board;
        let meet = |pe: usize, number: u64| {
            let row = board.row(pe).unwrap();
            let site = std::panic::Location::caller();
            let event = begin(&row, &Texts::new(), Begun { call: Call::Barrier, name: "", site, number, team: 0 });
            move || end(&board.row(pe).unwrap(), event, false)
        };
        let lag = |boards: &Boards| boards.lag_behind(1, |pe| pe == 2);
        (0..3).for_each(|pe| board.enter(pe, false));
        assert!(!lag(&boards), "there was no meeting");
        meet(0, 4)();
        meet(2, 4)();
        let leaver_leaves = meet(1, 5);
        assert!(!lag(&boards), "it has not left itself");
        leaver_leaves();
        assert!(lag(&boards), "PE 0 has not begun");
        let last_leaves = meet(0, 5);
        assert!(lag(&boards), "PE 0 has not left");
        last_leaves();
        assert!(!lag(&boards), "PE 2 has ended");
        assert!(boards.lag_behind(1, |_| false));
        let _next = meet(0, 6);
        assert!(!lag(&boards));
    }

    #[test]
    fn what_cannot_be_a_board_of_this_job_is_left_alone() {
        let (_runtime, mut boards) = open(2);
        let (_, stranger) = founded(0, &[0, 7]);
        let (_, large) = founded(0, &[0, 1, 2]);
        let (_, right) = founded(0, &[0, 1]);
        for (file, rows) in [(&stranger, 2), (&large, 3), (&right, 1), (&right, 0), (&right, 1 << 31)] {
            post(&boards.invitation(), file, rows, None).unwrap();
        }
        boards.collect();
        assert!(boards.kept.is_empty());
        post(&boards.invitation(), &right, 2, None).unwrap();
        boards.collect();
        assert_eq!(boards.kept.len(), 1);
    }
}
