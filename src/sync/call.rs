//! The calls that block, by name: for reports, and as codes in shared memory.

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
    /// Making the team of those that are left.
    Survivors,
}

impl Call {
    const ALL: [(Call, &'static str); 20] = [
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
        (Call::Survivors, "survivors"),
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
