//! Which algorithm a call takes: one table over the collective, the bytes and the shape of the team.
//!
//! The choice is a pure function of values that are equal on all PEs: were it not, they would run different plans.

use shmem::{ErrorKind, Result};

use crate::plan::{Collective, Problem};
use crate::plans::Algorithm;

/// What a call needs to know of the team's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Elements of slots.
    pub(crate) slots: usize,
    /// Elements of work memory.
    pub(crate) work: usize,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// Whether every fold must take all contributions at once: for operations that round or scale.
    pub(crate) complete: bool,
}

/// Bytes of a block up to which the one-shot algorithm is taken where memory is shared; beyond, a second hand-over costs less than the
/// copies to and from the slots.
const SMALL: usize = 2048;
/// Bytes of a piece: what a PE combines at a time stays in the second-level cache.
const PIECE: usize = 256 << 10;

/// The choice of one team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    small: usize,
    forced: Vec<(String, Algorithm)>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection { small: SMALL, forced: Vec::new() }
    }
}

impl Selection {
    /// The algorithm and the elements of a piece for a call.
    pub(crate) fn choose(
        &self,
        what: Collective,
        n: usize,
        len: usize,
        in_place: bool,
        need: Need,
    ) -> (Algorithm, usize) {
        let chunk = (PIECE / need.size.max(1)).max(1);
        let problem = Problem { what, n, len, chunk, in_place };
        let fits = |algorithm: Algorithm| {
            algorithm.plans(what)
                && algorithm.slots(&problem) <= need.slots
                && algorithm.work(&problem) <= need.work
                && (!need.complete || !what.reduces() || algorithm.is_complete())
        };
        let forced = self.forced.iter().find(|(name, _)| name == what.name()).map(|(_, algorithm)| *algorithm);
        let small = (len * need.size <= self.small).then_some(Algorithm::Small);
        let choice = forced.into_iter().chain(small).find(|algorithm| fits(*algorithm)).unwrap_or(Algorithm::Direct);
        (choice, chunk)
    }

    /// Takes `algorithm` for every call of the collective with this name, where it has a plan.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting) for names of nothing.
    pub fn force(&mut self, collective: &str, algorithm: &str) -> Result<()> {
        let bad = |form: String| ErrorKind::BadSetting { name: collective.into(), value: algorithm.into(), form };
        if !Collective::NAMES.contains(&collective) {
            return Err(bad(format!("give one of {}", Collective::NAMES.join(", "))).into());
        }
        let algorithm = Algorithm::named(algorithm)
            .ok_or_else(|| bad(format!("give one of {}", Algorithm::ALL.map(Algorithm::name).join(", "))))?;
        self.forced.retain(|(name, _)| name != collective);
        self.forced.push((collective.into(), algorithm));
        Ok(())
    }
}
