//! Which algorithm a call takes: one table ([`Row`]) over the collective, the bytes of a block and whether the team
//! lives on one host or several.
//!
//! The choice is a pure function of values that are equal on all PEs: were it not, they would run different plans. The
//! settings are compared when the world starts, what they name (the file of `SHMEM_COLL_TABLE`) when
//! [`Coll::new`](crate::Coll::new) meets with [`Selection::digest`].
//!
//! - `rows`: the table that is built in, with its reasons;
//! - `moe`: the rows of the exchange between experts;
//! - `file`: a measured table as text.

mod file;
mod moe;
mod rows;

use std::fmt;

use shmem::config::Config;
use shmem::{Elem, ErrorKind, Result};

use crate::op::{Reduce, is_staged};
use crate::plan::{Collective, Hosts, Problem, Uneven};
use crate::plans::{Algorithm, Room, wide};

pub use file::{Table, Wrong, parse, text};
pub use moe::{MoeMode, MoeRow, NoMode};
pub use rows::{Row, Where};

/// What a call has, and asks of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Elements of memory that there are.
    pub room: Room,
    /// Bytes of an element.
    pub size: usize,
    /// What its reduction's partial results are.
    pub partial: Partial,
    /// Whether a fold must take all contributions at once, in the order of the PEs.
    pub whole: bool,
}

/// What the partial results of a reduction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partial {
    /// Elements: any algorithm can hold them.
    Elements,
    /// Something else, of so many bytes: held in [`wide`] plans, but for algorithms that have none, since their folds
    /// take all contributions at once.
    Other(usize),
    /// Something else, of so many bytes, that each PE makes of its own contribution: held by all algorithms.
    Own(usize),
}

impl Partial {
    /// Those of reductions by `R` in a collective.
    pub fn of<T: Elem, R: Reduce<T>>(what: Collective) -> Partial {
        let bytes = size_of::<R::Acc>();
        // In a scan each PE has another number of contributions, which the one that combines them does not know.
        let scan = matches!(what, Collective::InclusiveScan | Collective::ExclusiveScan);
        if !what.reduces() || is_staged::<T, R>() {
            Partial::Elements
        } else if R::OWN || scan && R::FINISHES {
            Partial::Own(bytes)
        } else {
            Partial::Other(bytes)
        }
    }
}

impl Need {
    /// That of a collective with reductions by `R`.
    pub fn of<T: Elem, R: Reduce<T>>(what: Collective, room: Room) -> Need {
        Need { room, size: size_of::<T>(), partial: Partial::of::<T, R>(what), whole: false }
    }

    /// Bytes of a partial result where `algorithm` has any that are no elements.
    pub fn held(&self, algorithm: Algorithm) -> Option<usize> {
        match self.partial {
            Partial::Elements => None,
            Partial::Other(_) if algorithm.folds_whole() => None,
            Partial::Other(bytes) | Partial::Own(bytes) => Some(bytes),
        }
    }

    /// Whether there is room for what has so many bytes.
    fn has(&self, room: Room, bytes: usize) -> bool {
        let enough = |there: usize, needed: usize| needed.saturating_mul(bytes) <= there.saturating_mul(self.size);
        enough(self.room.work, room.work) && enough(self.room.slot, room.slot)
    }

    /// How an algorithm can do a call for which it needs `room(chunk, turns)`, in `most` turns at most.
    fn fit(
        &self,
        algorithm: Algorithm,
        most: usize,
        room: impl Fn(usize, Option<usize>) -> Room,
    ) -> Option<(usize, Option<usize>)> {
        if self.whole && !algorithm.folds_whole() {
            return None;
        }
        let bytes = self.held(algorithm).unwrap_or(self.size);
        let piece = (PIECE / bytes.max(1)).max(1);
        if self.held(algorithm).is_some() {
            let turns = std::iter::successors(Some(1), |turns| (*turns < most).then_some(2 * turns));
            let turns = turns.map(Some).find(|turns| self.has(room(piece, *turns), bytes))?;
            return Some((piece, turns));
        }
        // The largest piece whose work memory there is.
        let mut pieces = std::iter::successors(Some(piece), |piece| (*piece > 1).then_some(piece / 2));
        pieces.find(|chunk| self.has(room(*chunk, None), bytes)).map(|chunk| (chunk, None))
    }
}

/// An algorithm for a call, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'s> {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Elements, or partial results that are none, of a piece.
    pub chunk: usize,
    /// In how many turns, with partial results that are no elements ([`wide`]).
    pub turns: Option<usize>,
    /// Why this one.
    pub because: Because<'s>,
}

/// Why an algorithm was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because<'s> {
    /// By [`Selection::force`] or `SHMEM_COLL_ALGO`.
    Forced,
    /// By the table: the first row for at least so many bytes that can do the call in the memory that there is.
    Row(&'s Row),
    /// No row can do the call.
    NoRow,
}

/// Bytes of a piece: what a PE combines at a time stays in the second-level cache.
pub(crate) const PIECE: usize = 256 << 10;

/// The collectives in the order of [`Collective::NAMES`], of root 0.
const COLLECTIVES: [Collective; Collective::NAMES.len()] = Collective::all(0);

/// The name of the exchange between experts, beside those of the collectives.
const MOE: &str = "moe";

/// The choice of one team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    choices: [Choices; COLLECTIVES.len()],
    /// What is taken for every exchange between experts.
    moe_forced: Option<MoeMode>,
    /// For each place in order of bytes.
    moe: Vec<MoeRow>,
    /// Whether reductions combine in the order of the PEs.
    strict: bool,
}

/// What there is for one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choices {
    forced: Option<Algorithm>,
    /// In order of bytes; of equal ones, the preferred first.
    one_host: Vec<Row>,
    crowded: Vec<Row>,
    hosts: Vec<Row>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection::from_rows(rows::built_in(Config::default().coll_threshold))
    }
}

impl Selection {
    /// The choice that the `SHMEM_COLL_*` settings make. Reads the file of `SHMEM_COLL_TABLE`.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting) for `SHMEM_COLL_ALGO` and `SHMEM_COLL_TABLE`.
    pub fn new(config: &Config) -> Result<Self> {
        let mut selection = Selection::from_rows(rows::built_in(config.coll_threshold));
        selection.strict = config.coll_strict;
        if let Some(path) = &config.coll_table {
            let bad =
                |form: String| ErrorKind::BadSetting { name: "SHMEM_COLL_TABLE".into(), value: path.into(), form };
            let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
            selection.measured(file::parse(&text).map_err(|wrong| bad(wrong.to_string()))?);
        }
        if let Some(small) = config.coll_small {
            selection.small_up_to(small);
        }
        for pair in config.coll_algo.iter().flat_map(|pairs| pairs.split(',')) {
            let (collective, algorithm) = pair.split_once('=').unwrap_or((pair, ""));
            selection.force(collective, algorithm).map_err(|error| match error.kind() {
                ErrorKind::BadSetting { form, .. } => {
                    let form = format!("{form}, in the form allreduce=ring,alltoall=pairwise");
                    ErrorKind::BadSetting { name: "SHMEM_COLL_ALGO".into(), value: pair.into(), form }.into()
                }
                _ => error,
            })?;
        }
        Ok(selection)
    }

    fn from_rows(rows: impl IntoIterator<Item = Row>) -> Self {
        let mut selection =
            Selection { choices: Default::default(), moe_forced: None, moe: moe::ROWS.into(), strict: false };
        for row in rows {
            selection.choices[row.kind()].rows_mut(row.hosts).push(row);
        }
        selection
    }

    /// Replaces the rows of every collective for which some were measured, and of the exchange between experts alike; what was
    /// measured on one host holds there however many PEs it has.
    pub fn measured(&mut self, table: Table) {
        let Table { rows, moe } = table;
        self.moe.retain(|row| moe.iter().all(|measured| measured.hosts != row.hosts));
        self.moe.extend(moe);
        for row in &rows {
            let choices = &mut self.choices[row.kind()];
            choices.rows_mut(row.hosts).clear();
            if row.hosts == Where::OneHost {
                choices.crowded.clear();
            }
        }
        for row in rows {
            self.choices[row.kind()].rows_mut(row.hosts).push(row);
        }
    }

    fn small_up_to(&mut self, up_to: usize) {
        for (choices, collective) in self.choices.iter_mut().zip(Collective::NAMES) {
            choices.crowded.clear();
            let rows = &mut choices.one_host;
            rows.retain(|row| row.algorithm != Algorithm::Small && row.up_to > up_to);
            let why = "SHMEM_COLL_SMALL";
            rows.insert(0, Row { collective, hosts: Where::OneHost, up_to, algorithm: Algorithm::Small, why });
        }
    }

    /// The table in force: first the collectives on one host, then those on several.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let one_host = self.choices.iter().flat_map(|choices| choices.crowded.iter().chain(&choices.one_host));
        one_host.chain(self.choices.iter().flat_map(|choices| &choices.hosts))
    }

    /// The same for the exchange between experts.
    pub fn moe_rows(&self) -> impl Iterator<Item = &MoeRow> {
        let of = |hosts| self.moe.iter().filter(move |row| row.hosts == hosts);
        of(Where::OneHost).chain(of(Where::Hosts))
    }

    /// Tells apart choices that differ, over processes, hosts and releases of the compiler.
    pub fn digest(&self) -> u64 {
        let rows = self.rows().map(|row| format!("{} {} {} {}", row.collective, row.hosts, row.up_to, row.algorithm));
        let forced = self.choices.iter().map(|choices| format!("{:?}", choices.forced.map(Algorithm::name)));
        let moe = self.moe_rows().map(|row| format!("{MOE} {} {} {}", row.hosts, row.up_to, row.mode));
        let others = [self.strict.to_string(), format!("{:?}", self.moe_forced)];
        let text: String = rows.chain(moe).chain(forced).chain(others).collect();
        // FNV-1a; the lowest bits of a product depend on few others.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 8
    }

    /// The choice for a call, with its reason; the piece of the problem does not count. None if there is no memory for
    /// any: a partial result of each block, or an element of an all-to-all in place.
    pub fn explain(&self, problem: &Problem, hosts: &Hosts, need: Need) -> Option<Choice<'_>> {
        let Problem { what, len, .. } = *problem;
        let need = Need { whole: what.reduces() && (need.whole || self.strict), ..need };
        let fit = |algorithm: Algorithm, because| {
            let room = |chunk, turns| {
                let problem = Problem { chunk, ..*problem };
                match turns {
                    None => algorithm.room(&problem, hosts),
                    Some(turns) => wide::room(algorithm, &problem, hosts, turns),
                }
            };
            if algorithm.plans(what) {
                need.fit(algorithm, most_turns(algorithm, what, len, because), room)
            } else {
                None
            }
        };
        let bytes = len.saturating_mul(need.size);
        // Only an all-to-all in place needs memory in every case, of which pairwise takes the least.
        let last = [Algorithm::Direct, Algorithm::Pairwise].map(|algorithm| (algorithm, Because::NoRow));
        self.choices[kind(what)].candidates(hosts, bytes, need).chain(last).find_map(|(algorithm, because)| {
            fit(algorithm, because).map(|(chunk, turns)| Choice { algorithm, chunk, turns, because })
        })
    }

    /// What is taken for every call of a collective.
    pub(crate) fn forced(&self, what: Collective) -> Option<Algorithm> {
        self.choices[kind(what)].forced
    }

    /// The choice for a reduce-scatter by counts: by the rows for equal blocks of the longest length.
    pub(crate) fn explain_uneven(&self, problem: &Uneven, hosts: &Hosts, need: Need) -> Option<Choice<'_>> {
        let need = Need { whole: need.whole || self.strict, ..need };
        let longest = problem.blocks.longest();
        let fit = |algorithm: Algorithm, because| {
            let room = |chunk, turns| {
                let problem = Uneven { chunk, ..problem.clone() };
                match turns {
                    None => algorithm.room_uneven(&problem),
                    Some(turns) => wide::room_uneven(algorithm, &problem, turns),
                }
            };
            let most = most_turns(algorithm, Collective::ReduceScatter, longest, because);
            algorithm.plan_uneven(problem, 0).and_then(|_| need.fit(algorithm, most, room))
        };
        let bytes = longest.saturating_mul(need.size);
        let last = [(Algorithm::Direct, Because::NoRow)];
        let mut candidates = self.choices[kind(Collective::ReduceScatter)].candidates(hosts, bytes, need).chain(last);
        candidates.find_map(|(algorithm, because)| {
            fit(algorithm, because).map(|(chunk, turns)| Choice { algorithm, chunk, turns, because })
        })
    }

    /// Takes `algorithm` for every call of the collective with this name that it can do: of this length, in this
    /// memory, in strict order. Others go the way that the table gives.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting) for names of nothing, and for an algorithm that has no plan for
    /// the collective.
    pub fn force(&mut self, collective: &str, algorithm: &str) -> Result<()> {
        let bad = |form: String| ErrorKind::BadSetting { name: collective.into(), value: algorithm.into(), form };
        if collective == MOE {
            let modes = || MoeMode::ALL.map(MoeMode::name).join(", ");
            let mode = algorithm.parse().map_err(|NoMode| bad(format!("give a mode for {MOE} of {}", modes())))?;
            self.moe_forced = Some(mode);
            return Ok(());
        }
        let Some(kind) = Collective::NAMES.iter().position(|name| *name == collective) else {
            return Err(bad(format!("give a collective of {}, {MOE}", Collective::NAMES.join(", "))).into());
        };
        let can: Vec<Algorithm> = Algorithm::ALL.into_iter().filter(|one| one.plans(COLLECTIVES[kind])).collect();
        let found = algorithm.parse().ok().filter(|one| can.contains(one));
        let names = || can.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| bad(format!("give an algorithm for {collective} of {}", names())))?;
        self.choices[kind].forced = Some(found);
        Ok(())
    }

    /// Leaves the choice for every collective to the table again.
    pub fn force_none(&mut self) {
        self.choices.iter_mut().for_each(|choices| choices.forced = None);
        self.moe_forced = None;
    }

    /// The mode of an exchange between experts for batches of so many bytes, and the row that says so; none if it is forced, or no
    /// row speaks of it.
    pub fn moe(&self, bytes: usize, several_hosts: bool) -> (MoeMode, Option<&MoeRow>) {
        let hosts = if several_hosts { Where::Hosts } else { Where::OneHost };
        let row = self.moe_rows().find(|row| row.hosts == hosts && bytes <= row.up_to);
        match (self.moe_forced, row) {
            (Some(mode), _) => (mode, None),
            (None, row) => (row.map_or(MoeMode::Latency, |row| row.mode), row),
        }
    }
}

impl Choices {
    /// What to try, in order. Where memory is shared, an algorithm without partial results comes before one that must
    /// hold them.
    fn candidates(&self, hosts: &Hosts, bytes: usize, need: Need) -> impl Iterator<Item = (Algorithm, Because<'_>)> {
        let rows = self.rows(hosts).filter(move |row| bytes <= row.up_to);
        let shared = hosts.count() == 1;
        let later = move |row: &&Row| shared && need.held(row.algorithm).is_some();
        let rows = rows.clone().filter(move |row| !later(row)).chain(rows.filter(later));
        let forced = self.forced.map(|algorithm| (algorithm, Because::Forced));
        forced.into_iter().chain(rows.map(|row| (row.algorithm, Because::Row(row))))
    }

    fn rows(&self, hosts: &Hosts) -> impl Iterator<Item = &Row> + Clone {
        let crowded: &[Row] = if hosts.is_crowded() { &self.crowded } else { &[] };
        crowded.iter().chain(if hosts.count() > 1 { &self.hosts } else { &self.one_host })
    }

    fn rows_mut(&mut self, hosts: Where) -> &mut Vec<Row> {
        match hosts {
            Where::OneHost => &mut self.one_host,
            Where::Crowded => &mut self.crowded,
            Where::Hosts => &mut self.hosts,
        }
    }
}

/// The turns in which an algorithm may do a call of blocks of `len` elements. Rows take what uses slots for few bytes,
/// where a turn more would cost more than it saves.
fn most_turns(algorithm: Algorithm, what: Collective, len: usize, because: Because<'_>) -> usize {
    match because {
        Because::Row(_) if algorithm.uses_slots(what) => 1,
        _ => len,
    }
}

/// The place of a collective in [`COLLECTIVES`].
fn kind(what: Collective) -> usize {
    what.code().0 as usize - 1
}

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Forced => f.write_str("forced"),
            Because::Row(row) => write!(f, "{} up to {}: {}", row.hosts, row.limit(), row.why),
            Because::NoRow => f.write_str("no row can do it in the team's workspace (SHMEM_TEAM_WORKSPACE)"),
        }
    }
}

#[cfg(test)]
mod tests;
