//! What the world, its teams and its contexts share: one value a PE and job, from which everything borrows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::group::{Group, Slots};
use crate::heap::Heap;
use crate::heap::control::Layout;
use crate::sync::barrier::Radix;
use crate::transport::link::Link;

/// A started world.
pub(crate) struct Core {
    pub(crate) link: Link,
    pub(crate) layout: Layout,
    pub(crate) radix: Radix,
    pub(crate) slots: Slots,
    /// All PEs.
    pub(crate) world: Arc<Group>,
    /// Those that are left of them, once the program goes on without some.
    pub(crate) living: Mutex<Option<Arc<Group>>>,
    /// The PEs of this host.
    pub(crate) shared: Arc<Group>,
    /// The number of each PE's host.
    pub(crate) hosts: Vec<usize>,
    /// Whether this host has more PEs than cores for them.
    pub(crate) crowded: bool,
    /// Which way to other hosts the PEs have, in words, where there are other hosts.
    pub(crate) network: Option<String>,
    pub(crate) config: Config,
    /// What memory the heaps of all PEs have, in words.
    pub(crate) memory: String,
}

impl Core {
    #[inline(always)]
    pub(crate) fn heap(&self) -> &Heap {
        self.link.heap()
    }

    /// Whether a group lasts as long as the world.
    pub(crate) fn is_permanent(&self, group: &Arc<Group>) -> bool {
        let living = self.living();
        [&self.world, &self.shared].into_iter().chain(living.as_ref()).any(|permanent| Arc::ptr_eq(group, permanent))
    }

    pub(crate) fn living(&self) -> MutexGuard<'_, Option<Arc<Group>>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
