//! The board as text for people: a line for each PE, and who holds the others up.

use std::fmt::Write;
use std::time::Duration;

use crate::error::ranges;
use crate::watch::activity::{self, Activity};
use crate::watch::board::{Board, Clock, Row, State};

/// A line for each PE of the host: what it does, since when, for whom it waits; then who holds the others up.
pub(crate) fn table(board: &Board) -> String {
    let clock = board.clock();
    let mut text = String::new();
    let digits = board.host().last().map_or(1, |pe| pe.to_string().len());
    for row in board.rows() {
        let _ = writeln!(text, "  PE {:>digits$}  {}", row.pe, line(&row, &clock));
    }
    for finding in findings(board, &clock) {
        let _ = writeln!(text, "  {finding}");
    }
    text
}

/// What one PE does, or did last.
pub(crate) fn line(row: &Row<'_>, clock: &Clock) -> String {
    let mut text = match (row.how(), row.state()) {
        (Some(how), _) => format!("lost: {how}; "),
        (None, State::Absent) => return "has not joined yet".into(),
        (None, State::Left) => return "has ended its world".into(),
        (None, State::Running) => process_state(row).map_or_else(String::new, |state| format!("{state}, ")),
    };
    text += &doing(row, clock);
    text
}

fn doing(row: &Row<'_>, clock: &Clock) -> String {
    let open = activity::open(row);
    if open.is_empty() {
        let last = activity::recent(row, 1).pop();
        return match last {
            None => "outside the library, no call yet".into(),
            Some(last) => {
                let since = clock.ago(last.ended.unwrap_or(last.since));
                format!("outside the library for {}; its last call was {}", seconds(since), name(&last))
            }
        };
    }
    let each = open.iter().map(|call| {
        let on = call.on.map_or_else(String::new, |pe| format!(", waits for PE {pe}"));
        format!("in {} for {}{on}", name(call), seconds(clock.ago(call.since)))
    });
    each.collect::<Vec<_>>().join("; another thread ")
}

/// `barrier #41 at src/main.rs:17`, with the slot of a team that is not the world.
pub(super) fn name(call: &Activity) -> String {
    let mut text = call.name.clone();
    if call.number > 0 {
        let _ = write!(text, " #{}", call.number);
    }
    if call.team > 0 {
        let _ = write!(text, " of team {}", call.team);
    }
    if !call.site.is_empty() {
        let _ = write!(text, " at {}", call.site);
    }
    text
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_millis(10) {
        format!("{} µs", time.as_micros())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// Whether the process of a PE is stopped, or gone unnoticed; what is usual is not said. Nothing if it cannot be seen
/// from here.
fn process_state(row: &Row<'_>) -> Option<&'static str> {
    if row.namespace() != crate::watch::board::namespace() {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", row.pid())).ok()?;
    // The name, in brackets, may hold anything.
    match stat[stat.rfind(')')? + 1..].trim_start().chars().next()? {
        'T' | 't' => Some("stopped"),
        'Z' | 'X' => Some("its process has ended"),
        'D' => Some("held in the kernel"),
        _ => None,
    }
}

/// Where following each PE that waits leads.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// To PEs that wait for each other, the lowest first.
    Cycle(Vec<usize>),
    /// To a PE that waits for nobody.
    Culprit(usize),
}

/// Who holds the others up.
fn findings(board: &Board, clock: &Clock) -> Vec<String> {
    let mut ends: Vec<(End, Vec<usize>)> = Vec::new();
    for row in board.rows() {
        let Some(end) = follow(board, row.pe) else { continue };
        match ends.iter_mut().find(|(known, _)| *known == end) {
            Some((_, waiting)) => waiting.push(row.pe),
            None => ends.push((end, vec![row.pe])),
        }
    }
    let say = |(end, waiting): (End, Vec<usize>)| match end {
        End::Cycle(pes) => {
            let round: Vec<String> = pes.iter().chain(pes.first()).map(usize::to_string).collect();
            format!("PEs {} wait for each other: PE {}", ranges(&sorted(&pes)), round.join(" waits for PE "))
        }
        End::Culprit(pe) => {
            let plural = if waiting.len() == 1 { "PE" } else { "PEs" };
            let does = board.row(pe).map_or_else(String::new, |row| format!(", which is: {}", line(&row, clock)));
            format!("{plural} {} held up by PE {pe}{does}", ranges(&waiting))
        }
    };
    ends.into_iter().map(say).collect()
}

fn sorted(pes: &[usize]) -> Vec<usize> {
    let mut pes = pes.to_vec();
    pes.sort_unstable();
    pes
}

/// For whom a PE waits: its earliest call that says so.
fn awaited(board: &Board, pe: usize) -> Option<usize> {
    let row = board.row(pe)?;
    if row.how().is_some() || row.state() != State::Running {
        return None;
    }
    activity::open(&row).iter().find_map(|call| call.on)
}

fn follow(board: &Board, pe: usize) -> Option<End> {
    let mut path = vec![pe];
    let mut at = awaited(board, pe)?;
    loop {
        if let Some(start) = path.iter().position(|seen| *seen == at) {
            let mut cycle = path.split_off(start);
            let lowest = cycle.iter().enumerate().min_by_key(|(_, pe)| **pe).map_or(0, |(i, _)| i);
            cycle.rotate_left(lowest);
            return Some(End::Cycle(cycle));
        }
        path.push(at);
        match awaited(board, at) {
            Some(next) => at = next,
            None => return Some(End::Culprit(at)),
        }
    }
}

/// The recorders of all PEs, the lost ones' too: a line for each event, oldest first.
pub(crate) fn recorders(board: &Board) -> String {
    let clock = board.clock();
    let mut text = String::new();
    for row in board.rows() {
        let _ = writeln!(text, "PE {}: {}", row.pe, line(&row, &clock));
        let count = row.recorder().count(&row);
        let events = activity::recent(&row, u64::MAX);
        let _ = writeln!(text, "  {count} calls, of which the last {} follow", events.len());
        for event in events {
            let at = clock.since_start(event.since).as_secs_f64();
            let how_long = match (event.ended, event.on) {
                (None, None) => "has not ended".to_owned(),
                (None, Some(pe)) => format!("has not ended, waits for PE {pe}"),
                (Some(end), _) if end == event.since => "ended at once".to_owned(),
                (Some(end), _) => {
                    format!("ended after {}", seconds(clock.ago(event.since).saturating_sub(clock.ago(end))))
                }
            };
            let _ = writeln!(text, "  {at:>14.6} s  {}, {how_long}", name(&event));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Call;
    use crate::watch::activity::{Begun, Texts, begin, wait};
    use crate::watch::{How, Loss};

    /// A board on which PE i waits for `on[i]`, or is outside.
    fn waiting(on: &[Option<usize>]) -> Board {
        let (_, descriptor) = crate::heap::Segment::create(4096, Board::bytes(on.len(), on.len())).unwrap();
        let board = Board::attach(&descriptor, 4096, &(0..on.len()).collect::<Vec<_>>(), on.len()).unwrap();
        board.found(0);
        for (pe, on) in on.iter().enumerate() {
            board.enter(pe, false);
            let row = board.row(pe).unwrap();
            if on.is_some() {
                let site = std::panic::Location::caller();
                let begun = Begun { call: Call::Barrier, name: "", site, number: 41, team: 0 };
                wait(&row, begin(&row, &Texts::new(), begun), *on);
            }
        }
        board
    }

    #[test]
    fn the_culprit_is_named_with_those_it_holds_up() {
        let text = table(&waiting(&[Some(2), Some(0), None, Some(2)]));
        assert!(text.contains("PE 0  in barrier #41 at ") && text.contains(", waits for PE 2"), "{text}");
        assert!(text.contains("PE 2  outside the library, no call yet"), "{text}");
        assert!(text.contains("PEs 0-1 and 3 held up by PE 2, which is: outside the library"), "{text}");
    }

    #[test]
    fn a_cycle_is_named() {
        let text = table(&waiting(&[Some(1), Some(3), Some(3), Some(1)]));
        assert!(text.contains("PEs 1 and 3 wait for each other: PE 1 waits for PE 3 waits for PE 1"), "{text}");
    }

    #[test]
    fn a_lost_pe_is_the_culprit_whatever_it_waited_for() {
        let board = waiting(&[Some(1), Some(0)]);
        assert!(board.declare(Loss { pe: 1, how: How::Killed(9) }));
        assert!(!board.declare(Loss { pe: 1, how: How::Failed }));
        assert_eq!(board.losses(), [Loss { pe: 1, how: How::Killed(9) }]);
        let text = table(&board);
        assert!(text.contains("PE 1  lost: it was killed by signal 9 (SIGKILL); in barrier #41"), "{text}");
        assert!(text.contains("PE 0 held up by PE 1"), "{text}");
    }

    #[test]
    fn the_recorders_of_all_are_written() {
        let text = recorders(&waiting(&[Some(1), None]));
        assert!(text.contains("1 calls, of which the last 1 follow"), "{text}");
        assert!(text.contains("barrier #41 at src/watch/report.rs:"), "{text}");
        assert!(text.contains("has not ended, waits for PE 1"), "{text}");
    }
}
