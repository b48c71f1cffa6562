//! One table of what can be weakened, and the model that dies of it.

use crate::models::{announcement, barrier, lock, park, quiet, ring, signal};
use crate::world::Explored;
use crate::world::Waiting::{Sleep, Spin};

/// What is weakened in a model; one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Nothing: the protocol as it ships.
    None,
    /// Publishing stores are relaxed.
    RelaxedStores,
    /// Observing loads are relaxed.
    RelaxedLoads,
    /// Additions are relaxed.
    RelaxedAdds,
    /// Compare-and-swaps are relaxed.
    RelaxedClaims,
    /// Compare-and-swap is a load, then a store.
    SplitClaims,
    /// Quiet does nothing.
    NoQuiet,
    /// The sleeper's fence does nothing.
    NoHeavyFence,
    /// The writer's fence does nothing.
    NoLightFence,
    /// Nobody rings.
    NoRing,
    /// A sleeper does not look at its flag between lying down and sleeping.
    NoSecondLook,
    /// A sleeper sleeps on the bell as it stands when it falls asleep.
    LateBell,
    /// The sequence word at offset 0 is never odd.
    NoOddMark,
    /// Additions that take back bits of `mask` are lost.
    KeepBits {
        /// The bits that stay.
        mask: u64,
    },
    /// The words from offset `from` on lie over those `by` bytes before them.
    Fold {
        /// The first offset that is moved.
        from: usize,
        /// By how much.
        by: usize,
    },
    /// The word at offset `at` always reads as if whoever is waited for had come.
    HeardAlready {
        /// The word's offset.
        at: usize,
    },
}

/// A weakened protocol that its model must find out.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name in the README's table.
    pub name: &'static str,
    /// The protocol that needs what is missing.
    pub protocol: &'static str,
    /// What is missing.
    pub mutation: Mutation,
    /// A part of the message with which the model ends: a death by accident does not count.
    pub dies_of: &'static str,
    /// The model.
    pub model: fn(Mutation) -> Explored,
}

const RACE: &str = "Causality violation";
const DEADLOCK: &str = "deadlock";
/// A waiter that spins for ever.
const HANG: &str = "Model exceeded maximum number of branches";

const fn mutant(
    protocol: &'static str,
    name: &'static str,
    dies_of: &'static str,
    mutation: Mutation,
    model: fn(Mutation) -> Explored,
) -> Mutant {
    Mutant { name, protocol, mutation, dies_of, model }
}

/// Bits of the lock's word: see `shmem::sync::lock`.
const GO: u64 = 1 << 31;
const HELD: u64 = 1 << 30;
const NEXT: u64 = HELD - 1;

/// Every mutant, each killed by its model.
#[rustfmt::skip]
pub const MUTANTS: &[Mutant] = &[
    mutant("barrier", "barrier-relaxed-stores", RACE, Mutation::RelaxedStores, |m| barrier::model(2, 2, Spin, None, m)),
    mutant("barrier", "barrier-relaxed-loads", RACE, Mutation::RelaxedLoads, |m| barrier::model(2, 2, Spin, None, m)),
    mutant("barrier", "barrier-one-half", "the verdict", barrier::one_half(128), |m| barrier::model(2, 2, Spin, None, m)),
    mutant("barrier", "barrier-round-unheard", "the verdict", Mutation::HeardAlready { at: 128 }, |m| barrier::model(3, 2, Spin, Some(2), m)),
    mutant("barrier", "barrier-no-ring", DEADLOCK, Mutation::NoRing, |m| barrier::model(2, 2, Sleep, Some(2), m)),
    mutant("lock", "lock-relaxed-adds", RACE, Mutation::RelaxedAdds, |m| lock::model(2, 0, false, Spin, None, m)),
    mutant("lock", "lock-relaxed-claims", RACE, Mutation::RelaxedClaims, |m| lock::model(2, 0, false, Spin, None, m)),
    mutant("lock", "lock-split-claims", "", Mutation::SplitClaims, |m| lock::model(2, 0, false, Spin, None, m)),
    mutant("lock", "lock-keeps-go", RACE, Mutation::KeepBits { mask: GO }, |m| lock::model(2, 0, false, Spin, None, m)),
    mutant("lock", "lock-keeps-next", "", Mutation::KeepBits { mask: NEXT }, |m| lock::model(2, 0, false, Spin, None, m)),
    mutant("lock", "lock-no-ring", DEADLOCK, Mutation::NoRing, |m| lock::model(2, 0, false, Sleep, Some(2), m)),
    mutant("ring", "ring-relaxed-stores", "the message", Mutation::RelaxedStores, |m| ring::model(1, Spin, None, m)),
    mutant("ring", "ring-relaxed-loads", "the message", Mutation::RelaxedLoads, |m| ring::model(1, Spin, None, m)),
    mutant("ring", "ring-one-more", "the message", ring::one_more(), |m| ring::model(1, Spin, None, m)),
    mutant("ring", "ring-no-ring", DEADLOCK, Mutation::NoRing, |m| ring::model(1, Sleep, Some(2), m)),
    mutant("announcement", "announcement-relaxed-stores", "a record is whole", Mutation::RelaxedStores, |m| announcement::model(1, None, m)),
    mutant("announcement", "announcement-relaxed-loads", "a record is whole", Mutation::RelaxedLoads, |m| announcement::model(1, None, m)),
    mutant("announcement", "announcement-no-odd-mark", "a record is whole", Mutation::NoOddMark, |m| announcement::model(1, None, m)),
    mutant("signal", "signal-relaxed-stores", RACE, Mutation::RelaxedStores, |m| signal::model(2, signal::SET, Spin, None, m)),
    mutant("signal", "signal-relaxed-adds", RACE, Mutation::RelaxedAdds, |m| signal::model(2, signal::ADD, Spin, None, m)),
    mutant("signal", "signal-relaxed-loads", RACE, Mutation::RelaxedLoads, |m| signal::model(2, signal::SET, Spin, None, m)),
    mutant("signal", "signal-no-ring", DEADLOCK, Mutation::NoRing, |m| signal::model(2, signal::SET, Sleep, Some(2), m)),
    mutant("quiet", "quiet-no-fence", "missed each other", Mutation::NoQuiet, |m| quiet::model(2, None, m)),
    mutant("park", "park-no-heavy-fence", DEADLOCK, Mutation::NoHeavyFence, |m| park::model(1, 1, None, m)),
    mutant("park", "park-no-light-fence", DEADLOCK, Mutation::NoLightFence, |m| park::model(1, 1, None, m)),
    mutant("park", "park-no-ring", DEADLOCK, Mutation::NoRing, |m| park::model(1, 1, None, m)),
    mutant("park", "park-no-second-look", DEADLOCK, Mutation::NoSecondLook, |m| park::model(1, 1, None, m)),
    mutant("park", "park-late-bell", DEADLOCK, Mutation::LateBell, |m| park::model(1, 1, None, m)),
];
