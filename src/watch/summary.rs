//! What all PEs of a host were doing, in few lines: PEs that do the same share one, and times are left out.

use std::fmt::Write;

use crate::error::ranges;
use crate::watch::activity;
use crate::watch::board::{Board, Row, State};
use crate::watch::report::name;

/// Lines of a summary.
const MOST: usize = 16;

/// `PEs 0-2 and 5-7 in barrier #41 at src/main.rs:17`, a line for each thing that PEs do, the lowest PE's first.
pub(crate) fn summary(board: &Board) -> String {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for row in board.rows() {
        let text = brief(&row);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, pes)) => pes.push(row.pe),
            None => groups.push((text, vec![row.pe])),
        }
    }
    let shown = if groups.len() > MOST { MOST - 1 } else { groups.len() };
    let mut rest: Vec<usize> = groups.split_off(shown).into_iter().flat_map(|(_, pes)| pes).collect();
    rest.sort_unstable();
    if !rest.is_empty() {
        groups.push(("elsewhere".into(), rest));
    }
    groups.into_iter().fold(String::new(), |mut text, (does, pes)| {
        let plural = if pes.len() == 1 { "PE" } else { "PEs" };
        let _ = writeln!(text, "  {plural} {} {does}", ranges(&pes));
        text
    })
}

/// What one PE does, or did last.
fn brief(row: &Row<'_>) -> String {
    let lost = match (row.how(), row.state()) {
        (Some(how), _) => format!("lost: {how}; "),
        (None, State::Absent) => return "not yet in the world".into(),
        (None, State::Left) => return "out of the world, in order".into(),
        (None, State::Running) => String::new(),
    };
    let open: Vec<String> = activity::open(row).iter().map(|call| format!("in {}", name(call))).collect();
    let does = match (open.is_empty(), activity::recent(row, 1).pop()) {
        (false, _) => open.join("; another thread "),
        (true, Some(last)) => format!("outside the library; the last call was {}", name(&last)),
        (true, None) => "outside the library, no call yet".into(),
    };
    lost + &does
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Call;
    use crate::watch::activity::{Begun, Texts, begin, end};
    use crate::watch::{How, Loss};

    fn board(n: usize) -> Board {
        let (_, descriptor) = crate::heap::Segment::create(4096, Board::bytes(n, n)).unwrap();
        let board = Board::attach(&descriptor, 4096, &(0..n).collect::<Vec<_>>(), n).unwrap();
        board.found(0);
        board
    }

    fn call(board: &Board, pe: usize, number: u64) -> u64 {
        let site = std::panic::Location::caller();
        begin(&board.row(pe).unwrap(), &Texts::new(), Begun { call: Call::Barrier, name: "", site, number, team: 0 })
    }

    #[test]
    fn those_who_do_the_same_share_a_line() {
        let board = board(8);
        for pe in 0..7 {
            board.enter(pe, false);
        }
        for pe in [0, 1, 2, 4, 5] {
            call(&board, pe, 41);
        }
        let ended = call(&board, 6, 40);
        end(&board.row(6).unwrap(), ended, true);
        board.row(5).unwrap().set_state(State::Left);
        board.declare(Loss { pe: 4, how: How::Killed(11) });
        let text = summary(&board);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[0].starts_with("  PEs 0-2 in barrier #41 at src/watch/summary.rs:"), "{text}");
        assert_eq!(lines[1], "  PE 3 outside the library, no call yet");
        let lost = "  PE 4 lost: it was killed by signal 11 (SIGSEGV); in barrier #41 at src/watch/summary.rs:";
        assert!(lines[2].starts_with(lost), "{text}");
        assert_eq!(lines[3], "  PE 5 out of the world, in order");
        assert!(lines[4].starts_with("  PE 6 outside the library; the last call was barrier #40 at "), "{text}");
        assert_eq!(lines[5], "  PE 7 not yet in the world");
    }

    #[test]
    fn a_summary_is_short_however_many_pes_there_are() {
        let board = board(40);
        for pe in 0..40 {
            board.enter(pe, false);
            call(&board, pe, pe as u64 % 20 + 1);
        }
        let text = summary(&board);
        assert_eq!(text.lines().count(), MOST, "{text}");
        assert!(text.ends_with("  PEs 15-19 and 35-39 elsewhere\n"), "{text}");
    }
}
