//! One table of what can be weakened, and the model that dies of it.

use crate::models::{active, barrier, fate, gather, lock, moe, park, quiet, recorder, ring, signal};
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
    /// The word at offset `at` is never set to zero.
    NoMark {
        /// The word's offset.
        at: usize,
    },
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
    /// Credit is given before tokens are read and outputs written.
    EarlyCredit,
    /// The next round begins without credit.
    NoCredit,
    /// A count becomes zero after those that it counted were told to go on.
    LateZero,
    /// The word at offset `at` always reads as if whoever is waited for had come.
    HeardAlready {
        /// The word's offset.
        at: usize,
    },
}

/// A weakened protocol that its model must find out.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The protocol and what is missing, as the README's table has it.
    pub name: &'static str,
    /// What is missing.
    pub mutation: Mutation,
    /// A part of the message with which the model ends: a death by accident does not count.
    pub dies_of: &'static str,
    /// The model.
    pub model: Model,
}

const RACE: &str = "Causality violation";
const DEADLOCK: &str = "deadlock";

type Model = fn(Mutation) -> Explored;

const BARRIER: Model = |m| barrier::model((2, 2, 3), Spin, None, m);
const LETTERS: Model = |m| barrier::letters(None, m);
const BARRIER_OF_THREE: Model = |m| barrier::model((3, 2, 2), Spin, Some(1), m);
const BARRIER_ASLEEP: Model = |m| barrier::model((2, 2, 3), Sleep, Some(2), m);
const LOCK: Model = |m| lock::model(2, 0, false, Spin, Some(3), m);
const LOCK_ASLEEP: Model = |m| lock::model(2, 0, false, Sleep, Some(2), m);
const RING: Model = |m| ring::model(1, Spin, Some(4), m);
const RING_ASLEEP: Model = |m| ring::model(1, Sleep, Some(2), m);
const RECORDER: Model = |m| recorder::model(1, 2, 1, Some(2), m);
const LOCK_BROKEN_ASLEEP: Model = |m| lock::broken(3, Sleep, Some(1), m);
const LOCK_BROKEN: Model = |m| lock::broken(2, Spin, Some(3), m);
const GATHER: Model = |m| gather::model(2, Some(1), m);
const FATE: Model = |m| fate::model(Some(2), m);
const SIGNAL_SET: Model = |m| signal::model(2, signal::SET, Spin, None, m);
const SIGNAL_ADD: Model = |m| signal::model(2, signal::ADD, Spin, None, m);
const SIGNAL_ASLEEP: Model = |m| signal::model(2, signal::SET, Sleep, Some(2), m);
const QUIET: Model = |m| quiet::model(2, None, m);
const QUIET_OF_THREE: Model = |m| quiet::model(3, Some(2), m);
const PARK: Model = |m| park::model(1, 1, None, m);
const PARK_OF_TWO: Model = |m| park::model(2, 2, Some(2), m);
const MOE: Model = |m| moe::model(true, Spin, Some(3), m);
const MOE_GIVEN_UP: Model = |m| moe::model(false, Spin, Some(3), m);
const MOE_ASLEEP: Model = |m| moe::model(true, Sleep, Some(2), m);
const ACTIVE: Model = |m| active::model(2, Spin, Some(3), m);
const ACTIVE_OF_THREE: Model = |m| active::model(3, Spin, Some(1), m);
const ACTIVE_ASLEEP: Model = |m| active::model(2, Sleep, Some(2), m);

/// Every mutant, each killed by its model.
pub const MUTANTS: &[Mutant] = &[
    mutant("barrier-relaxed-stores", RACE, Mutation::RelaxedStores, BARRIER),
    mutant("barrier-relaxed-loads", RACE, Mutation::RelaxedLoads, BARRIER),
    mutant("barrier-one-half", "the verdict", barrier::one_half(128), BARRIER),
    mutant("barrier-letters-relaxed-stores", "the verdict", Mutation::RelaxedStores, LETTERS),
    mutant("barrier-letters-one-half", "the letter", barrier::one_half(128), LETTERS),
    mutant("barrier-round-unheard", "the verdict", Mutation::HeardAlready { at: 128 }, BARRIER_OF_THREE),
    mutant("barrier-three-relaxed-stores", "the verdict", Mutation::RelaxedStores, BARRIER_OF_THREE),
    mutant("barrier-no-ring", DEADLOCK, Mutation::NoRing, BARRIER_ASLEEP),
    mutant("lock-relaxed-adds", RACE, Mutation::RelaxedAdds, LOCK),
    mutant("lock-relaxed-claims", RACE, Mutation::RelaxedClaims, LOCK),
    mutant("lock-split-claims", RACE, Mutation::SplitClaims, LOCK),
    mutant("lock-keeps-go", "the words are zero", Mutation::KeepBits { mask: lock::GO }, LOCK),
    mutant("lock-keeps-next", "the words are zero", Mutation::KeepBits { mask: lock::NEXT }, LOCK),
    mutant("lock-no-ring", DEADLOCK, Mutation::NoRing, LOCK_ASLEEP),
    mutant("lock-broken-no-ring", DEADLOCK, Mutation::NoRing, LOCK_BROKEN_ASLEEP),
    mutant("lock-broken-relaxed-claims", RACE, Mutation::RelaxedClaims, LOCK_BROKEN),
    mutant("ring-relaxed-stores", "the message", Mutation::RelaxedStores, RING),
    mutant("ring-relaxed-loads", "the message", Mutation::RelaxedLoads, RING),
    mutant("ring-one-more", "the message", ring::one_more(), RING),
    mutant("ring-no-ring", DEADLOCK, Mutation::NoRing, RING_ASLEEP),
    mutant("recorder-relaxed-stores", "an event", Mutation::RelaxedStores, RECORDER),
    mutant("recorder-relaxed-loads", "an event", Mutation::RelaxedLoads, RECORDER),
    mutant("recorder-no-mark", "an event is whole", Mutation::NoMark { at: 128 }, RECORDER),
    mutant("gather-relaxed-stores", "under the key", Mutation::RelaxedStores, GATHER),
    mutant("gather-relaxed-loads", "under the key", Mutation::RelaxedLoads, GATHER),
    mutant("fate-relaxed-adds", "before the fate", Mutation::RelaxedAdds, FATE),
    mutant("fate-relaxed-loads", "when a fate is seen", Mutation::RelaxedLoads, FATE),
    mutant("signal-relaxed-stores", RACE, Mutation::RelaxedStores, SIGNAL_SET),
    mutant("signal-relaxed-loads", RACE, Mutation::RelaxedLoads, SIGNAL_SET),
    mutant("signal-relaxed-adds", RACE, Mutation::RelaxedAdds, SIGNAL_ADD),
    mutant("signal-no-ring", DEADLOCK, Mutation::NoRing, SIGNAL_ASLEEP),
    mutant("quiet-no-fence", "missed each other", Mutation::NoQuiet, QUIET),
    mutant("quiet-three-no-fence", "missed each other", Mutation::NoQuiet, QUIET_OF_THREE),
    mutant("park-no-heavy-fence", DEADLOCK, Mutation::NoHeavyFence, PARK),
    mutant("park-no-light-fence", DEADLOCK, Mutation::NoLightFence, PARK),
    mutant("park-no-ring", DEADLOCK, Mutation::NoRing, PARK),
    mutant("park-no-second-look", DEADLOCK, Mutation::NoSecondLook, PARK),
    mutant("park-late-bell", DEADLOCK, Mutation::LateBell, PARK),
    mutant("park-two-no-heavy-fence", DEADLOCK, Mutation::NoHeavyFence, PARK_OF_TWO),
    mutant("moe-relaxed-stores", RACE, Mutation::RelaxedStores, MOE),
    mutant("moe-relaxed-loads", RACE, Mutation::RelaxedLoads, MOE),
    mutant("moe-early-credit", RACE, Mutation::EarlyCredit, MOE),
    mutant("moe-given-up-early-credit", RACE, Mutation::EarlyCredit, MOE_GIVEN_UP),
    mutant("moe-no-credit", RACE, Mutation::NoCredit, MOE_GIVEN_UP),
    mutant("moe-no-ring", DEADLOCK, Mutation::NoRing, MOE_ASLEEP),
    mutant("active-relaxed-stores", RACE, Mutation::RelaxedStores, ACTIVE),
    mutant("active-relaxed-adds", RACE, Mutation::RelaxedAdds, ACTIVE),
    mutant("active-late-zero", "zero again", Mutation::LateZero, ACTIVE),
    mutant("active-three-late-zero", "zero again", Mutation::LateZero, ACTIVE_OF_THREE),
    mutant("active-no-ring", DEADLOCK, Mutation::NoRing, ACTIVE_ASLEEP),
];

const fn mutant(name: &'static str, dies_of: &'static str, mutation: Mutation, model: Model) -> Mutant {
    Mutant { name, mutation, dies_of, model }
}
