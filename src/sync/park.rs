//! Sleeping without a lost wake-up, at no cost to those who write.
//!
//! An event count with an asymmetric fence. The sleeper counts itself in, makes a *heavy* fence, reads the bell, looks
//! at its flag once more, and sleeps until the bell changes. The writer writes the flag, makes a *light* fence, and
//! strikes the bell only if it sees a sleeper. Either the writer sees the sleeper, and the bell ends its sleep; or it
//! does not, and then, by the pair of fences, the sleeper's last look sees the flag. The heavy fence is the kernel's
//! `membarrier`, which makes every running writer pass a full fence; so the light one need only stop the compiler, and
//! a writer pays for one load of a line that hardly ever changes.
//!
//! Knows nothing of flags: the caller looks at them between [`lie_down`] and [`Bed::sleep`].

use std::time::Duration;

use crate::sync::atom::{Atom, accumulate, observe};

/// Where the waiters of one PE sleep.
pub trait Bed {
    /// The atomic word that counts them.
    type Word: Atom;
    /// How many waiters are asleep or about to be.
    fn sleepers(&self) -> &Self::Word;
    /// The writers' fence: cheap, made complete by the sleepers' heavy one.
    fn light_fence(&self);
    /// The sleepers' fence: completes the light ones of all writers.
    fn heavy_fence(&self);
    /// How often the bell has been struck.
    fn bell(&self) -> u64;
    /// Strikes the bell: ends the sleep of all who sleep.
    fn strike(&self);
    /// Sleeps while the bell stands at `bell`, `at_most` that long.
    fn sleep(&self, bell: u64, at_most: Duration);
}

/// Counts the caller among the sleepers and returns the bell's state; the caller looks at its flag before it sleeps on
/// that.
pub fn lie_down<B: Bed>(bed: &B) -> u64 {
    accumulate(bed.sleepers(), 1);
    bed.heavy_fence();
    bed.bell()
}

/// Ends what [`lie_down`] began.
pub fn get_up<B: Bed>(bed: &B) {
    accumulate(bed.sleepers(), 1_u64.wrapping_neg());
}

/// Wakes the sleepers, if there are any; called after writing what they may wait for.
#[inline(always)]
pub fn ring<B: Bed>(bed: &B) {
    bed.light_fence();
    if observe(bed.sleepers()) != 0 {
        bed.strike();
    }
}
