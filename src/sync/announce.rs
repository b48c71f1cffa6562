//! What a PE is doing, written by it and read by anyone: a seqlock of a few words.
//!
//! One writer. The sequence word is odd while the record changes; a reader that sees the same even sequence before and
//! after its reads has seen one record, else it reads again. All accesses are publishing or observing ones, so the
//! record's words cannot overtake the sequence (Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012).

use crate::error::Result;
use crate::sync::words::{Word, Words};

/// The calls that block or that all PEs of a team make together: their names in reports, and their codes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// In no such call.
    None = 0,
    /// `barrier_all` and a team's `barrier`.
    Barrier,
    /// `sync_all` and a team's `sync`.
    Sync,
    /// `alloc` and its kin.
    Alloc,
    /// `alloc_zeroed`.
    AllocZeroed,
    /// `realloc`.
    Realloc,
    /// `free`.
    Free,
    /// A split of a team.
    Split,
    /// The end of a team.
    Destroy,
    /// The end of the world.
    Finalize,
    /// Waiting for a symmetric variable.
    Wait,
    /// Taking a lock.
    SetLock,
    /// Giving a lock back.
    ClearLock,
    /// Sending into a full channel.
    Send,
    /// Receiving from an empty channel.
    Receive,
    /// Waiting for the network.
    Quiet,
    /// Exchanging a record with the team.
    Exchange,
    /// Making a channel.
    Channel,
    /// A call of a library above this one.
    Custom,
}

impl Call {
    const ALL: [(Call, &'static str); 19] = [
        (Call::None, "no call"),
        (Call::Barrier, "barrier"),
        (Call::Sync, "sync"),
        (Call::Alloc, "alloc"),
        (Call::AllocZeroed, "alloc_zeroed"),
        (Call::Realloc, "realloc"),
        (Call::Free, "free"),
        (Call::Split, "team split"),
        (Call::Destroy, "team destroy"),
        (Call::Finalize, "finalize"),
        (Call::Wait, "wait"),
        (Call::SetLock, "set_lock"),
        (Call::ClearLock, "clear_lock"),
        (Call::Send, "channel send"),
        (Call::Receive, "channel receive"),
        (Call::Quiet, "quiet"),
        (Call::Exchange, "team exchange"),
        (Call::Channel, "channel"),
        (Call::Custom, "a collective"),
    ];

    /// The call's name in reports.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The call of a code, `None` for a code of no call.
    pub fn of(code: u64) -> Call {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code)).map_or(Call::None, |row| row.0)
    }
}

/// Words in a record.
pub const RECORD: usize = 6;

/// The place of a record: the same offset on every PE.
#[derive(Clone, Copy, Debug)]
pub struct Announcement {
    at: usize,
}

impl Announcement {
    /// Bytes of an announcement.
    pub const BYTES: usize = 8 * (1 + RECORD);

    /// The announcement at offset `at`; its words are zero to begin with.
    pub const fn new(at: usize) -> Self {
        Announcement { at }
    }

    /// Replaces the record of `me`, which is the calling PE; one thread of it at a time.
    pub fn write<W: Words>(self, words: &W, me: usize, record: [u64; RECORD]) -> Result<()> {
        let sequence = words.load(self.word(me, 0))?;
        words.store(self.word(me, 0), sequence.wrapping_add(1))?;
        for (i, value) in record.into_iter().enumerate() {
            words.store(self.word(me, 1 + i), value)?;
        }
        words.store(self.word(me, 0), sequence.wrapping_add(2))
    }

    /// One try at the record of `pe`: `None` if it changed meanwhile.
    pub fn try_read<W: Words>(self, words: &W, pe: usize) -> Result<Option<[u64; RECORD]>> {
        let before = words.load(self.word(pe, 0))?;
        if before % 2 == 1 {
            return Ok(None);
        }
        let mut record = [0; RECORD];
        for (i, value) in record.iter_mut().enumerate() {
            *value = words.load(self.word(pe, 1 + i))?;
        }
        let after = words.load(self.word(pe, 0))?;
        Ok((before == after).then_some(record))
    }

    fn word(self, pe: usize, i: usize) -> Word {
        Word { pe, at: self.at + 8 * i }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_calls_is_in_order_of_their_codes() {
        for (i, (call, name)) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, i);
            assert_eq!(call.name(), name);
            assert_eq!(Call::of(i as u64), call);
        }
        assert_eq!(Call::of(1 << 40), Call::None);
    }
}
