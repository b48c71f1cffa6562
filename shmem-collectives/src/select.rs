//! Which algorithm a call takes: one table over the collective, the bytes and the shape of the team.
//!
//! The choice is a pure function of values that are equal on all PEs: were it not, they would run different plans.

use shmem::{ErrorKind, Result};

use crate::plan::{Collective, Hosts, Problem, Uneven};
use crate::plans::{Algorithm, Room};

/// What a call has, and asks of an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Elements of memory that there are.
    pub(crate) room: Room,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// Whether a fold must take all contributions at once: for reductions whose partial results are no elements.
    pub(crate) whole: bool,
}

/// Bytes of a block up to which the one-shot algorithm is taken where memory is shared; beyond, a second hand-over costs less than the
/// copies to and from the slots.
const SMALL: usize = 2048;
/// Bytes of a piece: what a PE combines at a time stays in the second-level cache.
pub(crate) const PIECE: usize = 256 << 10;

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
    pub(crate) fn choose(&self, problem: &Problem, hosts: &Hosts, need: Need) -> (Algorithm, usize) {
        let Problem { what, len, .. } = *problem;
        let forced = self.forced(what);
        let small = (len.saturating_mul(need.size) <= self.small).then_some(Algorithm::Small);
        // The largest piece whose work memory there is.
        let piece = (PIECE / need.size.max(1)).max(1);
        let pieces = std::iter::successors(Some(piece), |piece| (*piece > 1).then_some(piece / 2));
        let fit = |algorithm: Algorithm| {
            if !algorithm.plans(what) || need.whole && what.reduces() && !algorithm.folds_whole() {
                return None;
            }
            let chunk = pieces.clone().find(|chunk| {
                let room = algorithm.room(&Problem { chunk: *chunk, ..*problem }, hosts);
                room.work <= need.room.work && room.slot <= need.room.slot
            });
            chunk.map(|chunk| (algorithm, chunk))
        };
        let choice = forced.into_iter().chain(small).chain([Algorithm::Direct]).find_map(fit);
        choice.unwrap_or((Algorithm::Pairwise, 1))
    }

    /// What is taken for every call of a collective.
    pub(crate) fn forced(&self, what: Collective) -> Option<Algorithm> {
        self.forced.iter().find(|(name, _)| name == what.name()).map(|(_, algorithm)| *algorithm)
    }

    /// The algorithm and the elements of a piece for a reduce-scatter by counts.
    pub(crate) fn choose_uneven(&self, problem: &Uneven, need: Need) -> (Algorithm, usize) {
        let chunk = (PIECE / need.size.max(1)).max(1);
        let problem = Uneven { chunk, ..problem.clone() };
        let fits = |algorithm: &Algorithm| {
            let room = algorithm.room_uneven(&problem);
            let planned = algorithm.plan_uneven(&problem, 0).is_some();
            let whole = !need.whole || algorithm.folds_whole();
            planned && whole && room.work <= need.room.work && room.slot <= need.room.slot
        };
        let small = problem.blocks.longest().saturating_mul(need.size) <= self.small;
        let mut candidates =
            self.forced(Collective::ReduceScatter).into_iter().chain(small.then_some(Algorithm::Small));
        (candidates.find(fits).unwrap_or(Algorithm::Direct), chunk)
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
        let names = || format!("give one of {}", Algorithm::ALL.map(Algorithm::name).join(", "));
        let algorithm: Algorithm = algorithm.parse().map_err(|_| bad(names()))?;
        self.forced.retain(|(name, _)| name != collective);
        self.forced.push((collective.into(), algorithm));
        Ok(())
    }
}
