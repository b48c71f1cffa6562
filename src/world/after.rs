//! Going on after a loss: who lives, the team of those that are left, and one heap for all of them.

use std::panic::Location;
use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::group::Group;
use crate::heap::HeapCall;
use crate::survivors::{left, survivors};
use crate::sync::Call;
use crate::team::Team;
use crate::world::World;

impl World {
    /// The PEs that live, as far as this PE has been told. Does not block.
    pub fn alive(&self) -> Vec<usize> {
        left(&self.core, &self.core.world)
    }

    /// Goes on without the PEs that were lost: returns the team of those that are left, in world order. By this call a
    /// PE *acknowledges* all losses so far, and its calls fail no more because of them. From then on the world's own
    /// collective calls ([`barrier_all`](Self::barrier_all), [`alloc`](Self::alloc), its end …) are among those that are
    /// left; PE numbers stay as they are, in reports too. Teams with a lost member fail for ever: make others from this one. What lies
    /// in the heap stays as it is, and what was put to a lost PE is lost with it.
    ///
    /// Collective over the PEs that are left: blocks until all of them have called it, or are lost, too. An allocation
    /// that was under way when the PE was lost may have failed on some PEs and not on others: it then stays taken until
    /// the world ends.
    ///
    /// ```
    /// use shmem::{ErrorKind, Shared};
    ///
    /// let sums = shmem::local(4, |world| -> shmem::Result<u64> {
    ///     let sum = world.alloc_zeroed::<u64>(1)?;
    ///     if world.me() == 2 {
    ///         world.abandon();
    ///         return Ok(0);
    ///     }
    ///     while !matches!(world.barrier_all().map_err(|error| error.kind().is_lost()), Err(true)) {}
    ///     let team = world.survivors()?;
    ///     assert_eq!(team.members(), [0, 1, 3]);
    ///     team.ctx::<Shared>().atomic_add(sum.sym(), 1, 0)?;
    ///     world.barrier_all()?;
    ///     world.ctx::<Shared>().g(sum.sym(), 0)
    /// })?;
    /// assert_eq!(sums, [3, 3, 0, 3]);
    /// # Ok::<(), shmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Team::survivors`].
    #[track_caller]
    pub fn survivors(&self) -> Result<Team<'_>> {
        let site = Location::caller();
        loop {
            let group = Arc::new(survivors(&self.core, &self.core.world)?.worldly());
            match self.settle_heap(&group) {
                // Another is lost meanwhile: those that noticed start again, and the others come to them.
                Err(error) if error.kind().is_lost() => self.core.slots.release(group.slot().0, group.slot().1),
                Err(error) => return Err(error),
                Ok(()) => {
                    tracing::debug!(left = ?group.members().collect::<Vec<_>>(), %site, "the world goes on");
                    *self.core.living() = Some(group.clone());
                    return Ok(Team::new(&self.core, group));
                }
            }
        }
    }

    /// Brings the heaps of the group to the same state. Collective.
    fn settle_heap(&self, group: &Arc<Group>) -> Result<()> {
        let heap = self.core.heap();
        let made = heap.journal().made;
        let records = group.exchange(&self.core.link, [made, 0, 0, 0, 0, 0, 0, 0])?;
        let furthest = records.iter().map(|record| record[0]).max().unwrap_or(made);
        let failed = heap.journal().failed;
        match failed {
            _ if made == furthest => {}
            Some(call) if made + 1 == furthest => {
                heap.catch_up(call, Location::caller())?;
            }
            _ => {
                let report = format!("this PE has changed its heap {made} times, another one {furthest} times");
                return Err(ErrorKind::Mismatch { report }.into());
            }
        }
        heap.journal().failed = None;
        Ok(())
    }

    /// Agrees to a call that will change the heap, and remembers it if a PE is lost just then.
    #[track_caller]
    pub(super) fn agree_to_change(&self, call: Call, argument: u64, change: Option<HeapCall>) -> Result<()> {
        self.agree(call, argument).inspect_err(|error| {
            if error.kind().is_lost() {
                self.core.heap().journal().failed = change;
            }
        })
    }

    /// All PEs that the world's collective calls are among.
    #[cold]
    pub(super) fn going_on(&self) -> Arc<Group> {
        self.core.living().as_ref().unwrap_or(&self.core.world).clone()
    }
}
