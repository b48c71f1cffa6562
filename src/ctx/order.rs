//! Order and completion of puts, and locks.

use std::panic::Location;

use crate::ctx::{Access, Ctx, Sharing};
use crate::error::Result;
use crate::heap::SymSlice;
use crate::sync::Call;
use crate::sync::lock::Lock;
use crate::watch::Begun;
use crate::watch::lookout::Open;

impl<S: Sharing> Ctx<'_, S> {
    /// Orders what this context has put on each PE, and its atomics, before its later ones there. Does not block.
    ///
    /// # Errors
    /// Those of the network, where there is one.
    #[inline]
    pub fn fence(&self) -> Result<()> {
        self.link().fence(self.lane)
    }

    /// Blocks until what this context has put, and its atomics, on whichever PE, are complete: visible to every PE, and
    /// before any later read of this PE.
    ///
    /// # Errors
    /// Those of the network, where there is one.
    #[inline]
    pub fn quiet(&self) -> Result<()> {
        self.link().quiet(Some(self.lane))
    }

    /// [`quiet`](Self::quiet) for the listed PEs only.
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::ErrorKind::NoSuchPe); those of the network, where there is one.
    pub fn quiet_pes(&self, pes: &[usize]) -> Result<()> {
        match pes.iter().find(|pe| **pe >= self.n_pes()) {
            Some(pe) => Err(self.no_such_pe(*pe)),
            None => self.link().quiet(Some(self.lane)),
        }
    }

    /// Takes a lock: the first element of `lock`, which is zero on all PEs to begin with and is used for nothing else.
    /// Blocks until all PEs that asked before have had it; then what they wrote while they held it is visible. PEs
    /// exclude each other, not the threads of one: while one thread of a PE uses a lock, another gets an error.
    ///
    /// A PE that waits in vain, because another is lost or its time is up, *breaks* the lock: whoever waits for it or comes
    /// later gets an error, too, until the word is zero again on all PEs (or another lock is used).
    ///
    /// # Errors
    /// [`Lock`](crate::ErrorKind::Lock) if this PE holds it or waits for it already, or if it is broken; [`OutOfRange`](crate::ErrorKind::OutOfRange) if
    /// the object is empty, [`OtherWorld`](crate::ErrorKind::OtherWorld); [`PeerLost`](crate::ErrorKind::PeerLost),
    /// [`Timeout`](crate::ErrorKind::Timeout).
    #[track_caller]
    pub fn set_lock(&self, lock: SymSlice<'_, u64>) -> Result<()> {
        let queue = self.lock(lock)?;
        let _open = self.begin(Call::SetLock, lock);
        // Of a lock that another PE has broken because of a loss, the loss is the news.
        let outcome = queue.set(self.link());
        outcome.or_else(|error| self.link().lookout().check().and(Err(error)))?;
        self.locked(lock);
        Ok(())
    }

    /// Takes a lock if it is free: true if this PE now holds it. Does not block.
    ///
    /// # Errors
    /// As [`set_lock`](Self::set_lock), without those of waiting.
    #[track_caller]
    pub fn test_lock(&self, lock: SymSlice<'_, u64>) -> Result<bool> {
        let taken = self.lock(lock)?.test(self.link())?;
        if taken {
            self.locked(lock);
        }
        Ok(taken)
    }

    /// Completes this PE's puts, then gives a lock to the next PE that asked for it. Blocks only while that PE is about
    /// to enter the queue.
    ///
    /// # Errors
    /// [`Lock`](crate::ErrorKind::Lock) if this PE does not hold it; else as [`set_lock`](Self::set_lock).
    #[track_caller]
    pub fn clear_lock(&self, lock: SymSlice<'_, u64>) -> Result<()> {
        let queue = self.lock(lock)?;
        let _open = self.begin(Call::ClearLock, lock);
        match self.link().quiet(None) {
            // Puts to those that live are complete, and they may be waiting for the lock.
            Err(error) if error.kind().is_lost() => {}
            outcome => outcome?,
        }
        queue.clear(self.link())?;
        if let Some(check) = self.core.heap().check() {
            check.unlocked(lock.offset());
        }
        Ok(())
    }

    #[track_caller]
    fn begin(&self, call: Call, lock: SymSlice<'_, u64>) -> Open<'_> {
        let number = lock.offset() as u64;
        self.link().lookout().begin(Begun { call, name: "", site: Location::caller(), number, team: 0 })
    }

    /// Remembers, in checked mode, that this PE holds a lock.
    #[track_caller]
    fn locked(&self, lock: SymSlice<'_, u64>) {
        if let Some(check) = self.core.heap().check() {
            check.locked(lock.offset(), Location::caller());
        }
    }

    #[track_caller]
    fn lock(&self, lock: SymSlice<'_, u64>) -> Result<Lock> {
        self.own_word(lock, Access::Write)?;
        // The queues of different locks end on different PEs.
        let home = lock.offset() / 64 % self.link().peers().len();
        Ok(Lock { me: self.link().me(), home, at: lock.offset() })
    }
}
