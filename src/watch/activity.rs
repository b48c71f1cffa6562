//! What a PE is doing and has done: its calls as events of its recorder.
//!
//! An event says which call, where in the program, with which number, and since when; its state says for whom the call
//! waits, or that it has ended. Texts (the places, the names of calls of other libraries) are written once into the
//! PE's row, in slots chosen by the address that the text has in the PE; when these are used up, later texts are left
//! out. One event costs two clock readings' worth of time at most, and callers begin it when their own signals are out
//! and they are about to wait.

use std::panic::Location;
use std::sync::atomic::AtomicU64;

use crate::sync::Call;
use crate::sync::atom::{Atoms, claim, observe, publish};
use crate::sync::recorder::Event;
use crate::watch::board::{Row, SLOTS, TEXT_BYTES, TEXT_SLOTS};

/// A place in a program.
pub(crate) type Site = &'static Location<'static>;

/// In a state: the call has ended. The other bits are then the ticks of its end, or 0 for one that ended at once.
const ENDED: u64 = 1 << 63;

/// What begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) call: Call,
    /// The name of a call of another library.
    pub(crate) name: &'static str,
    pub(crate) site: Site,
    /// Its number among the calls of its team.
    pub(crate) number: u64,
    /// The slot of the team, 0 for the world.
    pub(crate) team: usize,
}

/// The texts that this process has written into its row: the addresses that they have here, 0 for a free slot.
pub(crate) struct Texts(Box<[AtomicU64]>);

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts((0..TEXT_SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The slot of a text plus 1; 0 if there is none left.
    #[inline]
    fn slot(&self, row: &Row<'_>, key: usize, text: impl FnOnce() -> String) -> u64 {
        let first = (key / 8 * 0x9E37) >> 4;
        let index = first % TEXT_SLOTS;
        if observe(&self.0[index]) == key as u64 { index as u64 + 1 } else { self.find(row, key, first, text) }
    }

    #[cold]
    fn find(&self, row: &Row<'_>, key: usize, first: usize, text: impl FnOnce() -> String) -> u64 {
        for index in (first..first + TEXT_SLOTS).map(|index| index % TEXT_SLOTS) {
            match claim(&self.0[index], 0, key as u64) {
                0 => {
                    write_text(row, index, &text());
                    return index as u64 + 1;
                }
                held if held == key as u64 => return index as u64 + 1,
                _ => {}
            }
        }
        0
    }
}

/// Records the begin of a call; returns its number.
#[inline]
pub(crate) fn begin(row: &Row<'_>, texts: &Texts, begun: Begun) -> u64 {
    let site = texts
        .slot(row, std::ptr::from_ref(begun.site).addr(), || format!("{}:{}", begun.site.file(), begun.site.line()));
    let name =
        if begun.name.is_empty() { 0 } else { texts.slot(row, begun.name.as_ptr().addr(), || begun.name.to_owned()) };
    let what = begun.call as u64 | site << 8 | name << 24 | (begun.team as u64) << 40;
    row.recorder().begin(row, [crate::heap::ticks(), what, begun.number, 0])
}

/// Says for whom a call waits.
pub(crate) fn wait(row: &Row<'_>, number: u64, on: Option<usize>) {
    row.recorder().change(row, number, on.map_or(0, |pe| pe as u64 + 1));
}

/// Records the end of a call, with its time if it was `long`.
#[inline]
pub(crate) fn end(row: &Row<'_>, number: u64, long: bool) {
    let ticks = if long { crate::heap::ticks() & (ENDED - 1) } else { 0 };
    row.recorder().change(row, number, ENDED | ticks);
}

/// A call as a reader finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) call: Call,
    /// `barrier`, or the name of a call of another library.
    pub(crate) name: String,
    /// `src/main.rs:17`, or nothing.
    pub(crate) site: String,
    pub(crate) number: u64,
    pub(crate) team: usize,
    /// Its begin, in ticks.
    pub(crate) since: u64,
    /// Its end, in ticks, for one that has ended.
    pub(crate) ended: Option<u64>,
    /// For whom it waits, where that is known.
    pub(crate) on: Option<usize>,
}

/// The calls that a PE is in, the latest last; a call during which other threads have made as many calls as are kept is
/// not seen any more.
pub(crate) fn open(row: &Row<'_>) -> Vec<Activity> {
    recent(row, SLOTS).into_iter().filter(|activity| activity.ended.is_none()).collect()
}

/// The last calls of a PE, up to `most`, the latest last.
pub(crate) fn recent(row: &Row<'_>, most: u64) -> Vec<Activity> {
    let count = row.recorder().count(row);
    let event = |number| row.recorder().read(row, number);
    // The ring holds no more, whatever the count.
    (count.saturating_sub(most.min(SLOTS))..count).filter_map(event).map(|event| understand(row, event)).collect()
}

/// The last call in which a PE met all PEs of the world, if it is among its last calls.
pub(crate) fn last_meeting(row: &Row<'_>) -> Option<Activity> {
    let alone = [Call::None, Call::Wait, Call::SetLock, Call::ClearLock, Call::Send, Call::Receive, Call::Quiet];
    recent(row, SLOTS).into_iter().rfind(|activity| activity.team == 0 && !alone.contains(&activity.call))
}

fn understand(row: &Row<'_>, event: Event) -> Activity {
    let [since, what, number, _] = event.words;
    let call = Call::of(what & 0xff);
    let text = |slot: u64| slot.checked_sub(1).map(|index| read_text(row, index as usize)).unwrap_or_default();
    let name = Some(text(what >> 24 & 0xffff)).filter(|name| !name.is_empty());
    let ended = (event.state & ENDED != 0).then_some(event.state & (ENDED - 1));
    Activity {
        call,
        name: name.unwrap_or_else(|| call.name().to_owned()),
        site: text(what >> 8 & 0xffff),
        number,
        team: (what >> 40 & 0xffff) as usize,
        since,
        ended: ended.map(|ticks| ticks.max(since)),
        on: if ended.is_none() { (event.state as usize).checked_sub(1) } else { None },
    }
}

/// Writes the end of a text, which says more than its beginning where it is a path.
fn write_text(row: &Row<'_>, index: usize, text: &str) {
    let skipped = (text.len().saturating_sub(TEXT_BYTES)..=text.len()).find(|at| text.is_char_boundary(*at));
    let mut bytes = [0; TEXT_BYTES];
    let kept = &text.as_bytes()[skipped.unwrap_or(0)..];
    bytes[..kept.len()].copy_from_slice(kept);
    for (i, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        publish(row.word(Row::text_at(index) + 8 * i), word);
    }
}

fn read_text(row: &Row<'_>, index: usize) -> String {
    let words = (0..TEXT_BYTES / 8).map(|i| observe(row.word(Row::text_at(index) + 8 * i)));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Board;

    fn board() -> Board {
        let (_, descriptor) = crate::heap::Segment::create(4096, Board::bytes(3, 3)).unwrap();
        Board::attach(&descriptor, 4096, &[0, 1, 2], 3).unwrap()
    }

    fn begun(name: &'static str, number: u64) -> Begun {
        Begun { call: Call::Barrier, name, site: Location::caller(), number, team: 3 }
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let (board, texts) = (board(), Texts::new());
        let row = board.row(1).unwrap();
        let first = begin(&row, &texts, begun("", 7));
        let second = begin(&row, &texts, begun("all-reduce", 8));
        wait(&row, second, Some(2));
        let open = open(&row);
        assert_eq!(open.len(), 2);
        assert_eq!((open[0].name.as_str(), open[0].number, open[0].team, open[0].on), ("barrier", 7, 3, None));
        assert!(open[0].site.contains("activity.rs:"), "{}", open[0].site);
        assert_eq!((open[1].name.as_str(), open[1].number, open[1].on), ("all-reduce", 8, Some(2)));
        end(&row, second, true);
        end(&row, first, false);
        assert!(super::open(&row).is_empty());
        let all = recent(&row, 100);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].ended, Some(all[0].since));
        assert!(all[1].ended > Some(all[1].since) && all[1].on.is_none());
        assert!(super::open(&board.row(0).unwrap()).is_empty());
    }

    #[test]
    fn the_last_meeting_of_the_world_is_found_among_other_calls() {
        let (board, texts) = (board(), Texts::new());
        let row = board.row(0).unwrap();
        let call =
            |call, number, team| end(&row, begin(&row, &texts, Begun { call, number, team, ..begun("", 0) }), false);
        assert_eq!(last_meeting(&row), None);
        call(Call::Barrier, 7, 0);
        call(Call::Barrier, 9, 3);
        call(Call::SetLock, 4096, 0);
        call(Call::Wait, 0, 0);
        assert_eq!(last_meeting(&row).map(|meeting| (meeting.call, meeting.number)), Some((Call::Barrier, 7)));
        (0..SLOTS).for_each(|_| call(Call::Wait, 0, 0));
        assert_eq!(last_meeting(&row), None);
    }

    #[test]
    fn the_ring_keeps_the_last_events() {
        let (board, texts) = (board(), Texts::new());
        let row = board.row(2).unwrap();
        for number in 0..5000 {
            let event = begin(&row, &texts, begun("", number));
            end(&row, event, false);
        }
        let kept = recent(&row, u64::MAX);
        assert_eq!(kept.len() as u64, crate::watch::board::SLOTS);
        assert_eq!((kept[0].number, kept[kept.len() - 1].number), (5000 - crate::watch::board::SLOTS, 4999));
    }

    #[test]
    fn long_texts_keep_their_ends_and_too_many_are_left_out() {
        let (board, texts) = (board(), Texts::new());
        let row = board.row(0).unwrap();
        let slots: Vec<u64> =
            (1..=TEXT_SLOTS + 5).map(|key| texts.slot(&row, key * 8, || format!("{}ü{key}", "x".repeat(80)))).collect();
        assert_eq!(slots.iter().filter(|slot| **slot == 0).count(), 5);
        let text = read_text(&row, slots[4] as usize - 1);
        assert!(text.ends_with("xü5") && text.len() <= TEXT_BYTES, "{text}");
        assert_eq!(texts.slot(&row, 40, || unreachable!()), slots[4]);
    }
}
