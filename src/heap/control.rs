//! The layout of a segment, equal on every PE: the control page, the slots of the teams (a record, the barrier's words,
//! a workspace for collectives), what the network
//! needs, then the user's heap. And what the control page holds: a word for each thing that
//! others may need to know of a PE, each on its own pair of cache lines.

use std::ops::Range;

use crate::sync::barrier::Radix;
use crate::sync::gather::Gather;
use crate::sync::{Barrier, Recorder};

/// How many waiters of this PE sleep.
pub(crate) const SLEEPERS: usize = 0;
/// The bell that wakes them: the low half is a futex.
pub(crate) const BELL: usize = 128;
/// A recorder of what a library above works on, of which only checked mode makes use.
pub(crate) const RESERVED: usize = 256;
/// How many of these others see at once.
pub(crate) const RESERVED_SLOTS: u64 = 32;

const _: () = assert!(RESERVED + Recorder::bytes(RESERVED_SLOTS) <= CONTROL);

const PAGE: usize = 4096;
const CONTROL: usize = PAGE;

/// Words of the record that members of a team exchange.
pub(crate) const RECORD_WORDS: usize = 8;
/// The record, then the place where those that are left of the team agree.
const EXCHANGE: usize = 256;
const GATHER: usize = 128;

const _: () = assert!(RECORD_WORDS * 8 <= GATHER && GATHER + Gather::BYTES <= EXCHANGE);

/// Where everything lies in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    slot_bytes: usize,
    barrier_bytes: usize,
    /// Bytes that a team keeps for its collectives.
    pub(crate) workspace: usize,
    /// How many teams can exist at once.
    pub(crate) slots: usize,
    /// What the network has to itself.
    pub(crate) network: Range<usize>,
    /// The user's heap.
    pub(crate) user: Range<usize>,
}

impl Layout {
    /// The layout for a job of `n_pes` with `slots` team slots of `workspace` bytes each, `network` bytes for the network
    /// and `heap` bytes for the user.
    pub(crate) fn new(n_pes: usize, slots: usize, workspace: usize, network: usize, heap: usize, radix: Radix) -> Self {
        let barrier_bytes = Barrier::bytes_up_to(n_pes, radix);
        let slot_bytes = EXCHANGE + barrier_bytes + workspace.next_multiple_of(EXCHANGE);
        let network_at = (CONTROL + slots * slot_bytes).next_multiple_of(PAGE);
        let start = (network_at + network).next_multiple_of(PAGE);
        let (network, user) = (network_at..network_at + network, start..start + heap);
        Layout { slot_bytes, barrier_bytes, workspace, slots, network, user }
    }

    /// Bytes of the whole segment.
    pub(crate) fn bytes(&self) -> usize {
        self.user.end
    }

    /// The record that a member of the team in `slot` shows the others.
    pub(crate) fn exchange(&self, slot: usize) -> usize {
        CONTROL + slot * self.slot_bytes
    }

    /// Where those that are left of the team in `slot` agree.
    pub(crate) fn gather(&self, slot: usize) -> Gather {
        Gather { at: self.exchange(slot) + GATHER }
    }

    /// The barrier's words of the team in `slot`.
    pub(crate) fn barrier(&self, slot: usize) -> usize {
        self.exchange(slot) + EXCHANGE
    }

    /// What the team in `slot` keeps for its collectives.
    pub(crate) fn workspace(&self, slot: usize) -> Range<usize> {
        let start = self.barrier(slot) + self.barrier_bytes;
        start..start + self.workspace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_segment_overlaps() {
        for n in [1, 2, 3, 16, 17, 64, 300] {
            for radix in [Radix::default(), Radix::of(2), Radix::of(5)] {
                let layout = Layout::new(n, 7, 5000, 10_000, 65536, radix);
                for slot in 0..7 {
                    assert!(layout.exchange(slot) + RECORD_WORDS * 8 <= layout.gather(slot).at);
                    assert!(layout.gather(slot).at + Gather::BYTES <= layout.barrier(slot));
                    for members in 1..=n {
                        let end = layout.barrier(slot) + Barrier::bytes(members, radix.for_team(members));
                        let limit = if slot == 6 { layout.network.start } else { layout.exchange(slot + 1) };
                        assert!(end <= layout.workspace(slot).start && layout.workspace(slot).end <= limit);
                    }
                }
                assert!(layout.network.len() == 10_000 && layout.network.end <= layout.user.start);
                assert!(layout.user.start.is_multiple_of(PAGE) && layout.bytes() == layout.user.end);
            }
        }
    }
}
