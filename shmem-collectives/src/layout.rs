//! How elements lie and where PEs live: what a plan needs to know besides the [`Problem`](crate::plan::Problem).

use std::ops::Range;

use crate::plan::pieces;

/// How a buffer is cut into one block a PE, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Where each block begins, and the end of the last.
    starts: Box<[usize]>,
}

impl Blocks {
    /// Blocks of these lengths.
    pub fn new(counts: impl IntoIterator<Item = usize>) -> Self {
        let mut end = 0;
        let ends = counts.into_iter().map(|count| {
            end += count;
            end
        });
        Blocks { starts: std::iter::once(0).chain(ends).collect() }
    }

    /// Blocks of equal length.
    pub fn equal(n: usize, len: usize) -> Self {
        Blocks { starts: (0..=n).map(|i| i * len).collect() }
    }

    /// How many.
    pub fn n(&self) -> usize {
        self.starts.len() - 1
    }

    /// The elements of a block.
    pub fn range(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }

    /// The elements of some neighbouring blocks.
    pub fn span(&self, blocks: Range<usize>) -> Range<usize> {
        self.starts[blocks.start]..self.starts[blocks.end.max(blocks.start)]
    }

    /// The elements of all blocks together.
    pub fn total(&self) -> usize {
        self.starts[self.n()]
    }

    /// The elements of the longest block.
    pub fn longest(&self) -> usize {
        (0..self.n()).map(|i| self.range(i).len()).max().unwrap_or(0)
    }
}

/// A gathering or scattering collective whose blocks differ in length; the lengths are known to all PEs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uneven {
    /// Whether it is an all-gather (`collect`) or a reduce-scatter.
    pub gather: bool,
    /// The blocks: PE i contributes, or gets, block i.
    pub blocks: Blocks,
    /// The largest piece that is moved at a time, in elements; at least 1.
    pub chunk: usize,
    /// Whether source and target are one buffer; as in [`Problem::in_place`](crate::plan::Problem::in_place).
    pub in_place: bool,
}

/// The elements that go from one PE to another in an all-to-all with unequal counts, as one of the two sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// Where they begin in the own source, or target.
    pub here: usize,
    /// Where they begin in the other's target, or source.
    pub there: usize,
    /// How many.
    pub len: usize,
}

/// What one PE knows of an all-to-all with unequal counts: its own counts and displacements, and those of the others
/// that concern it. (The others tell them; the whole matrix is known to nobody.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// To every PE of the team, itself included.
    pub to: Box<[Lane]>,
    /// From every PE of the team, itself included.
    pub from: Box<[Lane]>,
    /// The largest piece that is moved at a time, in elements; at least 1.
    pub chunk: usize,
    /// Whether source and target are one buffer; what goes to a PE then lies where what comes from it will, and is as
    /// long.
    pub in_place: bool,
}

impl Exchange {
    /// An all-to-all with blocks of `len` elements, as PE `me` of `n` sees it.
    pub fn equal(n: usize, len: usize, chunk: usize, in_place: bool, me: usize) -> Self {
        let lanes: Box<[Lane]> = (0..n).map(|other| Lane { here: other * len, there: me * len, len }).collect();
        Exchange { to: lanes.clone(), from: lanes, chunk, in_place }
    }

    /// PEs in the team.
    pub fn n(&self) -> usize {
        self.to.len()
    }
}

/// Which PEs share a host: numbered host by host. Hosts may have different numbers of PEs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hosts {
    pes: Blocks,
    crowded: bool,
}

impl Hosts {
    /// Hosts with these numbers of PEs, each at least 1.
    pub fn new(sizes: impl IntoIterator<Item = usize>) -> Self {
        Hosts { pes: Blocks::new(sizes), crowded: false }
    }

    /// Those of a team's members, by the number of each member's host ([`shmem::Team::hosts`]). Members that share a host
    /// and do not follow one another count as those of several: an algorithm then does for them what it does between
    /// hosts.
    pub fn of_team(numbers: &[usize]) -> Self {
        Hosts::new(numbers.chunk_by(|one, next| one == next).map(<[usize]>::len))
    }

    /// All PEs on one host.
    pub fn one(n: usize) -> Self {
        Hosts::new([n])
    }

    /// The same, said to have more PEs than cores ([`shmem::World::is_crowded`]), if it is one host: what a PE waits for is then a
    /// turn of the scheduler.
    pub fn crowded(self, crowded: bool) -> Self {
        Hosts { crowded: crowded && self.count() == 1, ..self }
    }

    /// Whether it is one host with more PEs than cores.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.pes.n()
    }

    /// PEs on all hosts together.
    pub fn n(&self) -> usize {
        self.pes.total()
    }

    /// The PEs of a host.
    pub fn pes(&self, host: usize) -> Range<usize> {
        self.pes.range(host)
    }

    /// The host of a PE.
    pub fn of(&self, pe: usize) -> usize {
        self.pes.starts.partition_point(|start| *start <= pe) - 1
    }
}

/// Part `i` of `parts` nearly equal parts of a range: the first ones are longer by one where they do not divide.
pub(crate) fn part_of(range: Range<usize>, parts: usize, i: usize) -> Range<usize> {
    let part = crate::plan::Problem::part(range.len(), parts, i);
    range.start + part.start..range.start + part.end
}

/// What two ranges have in common.
pub(crate) fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The larger pieces in which a plan that works in stages goes through a range; one empty piece for an empty range, so
/// that what must be said is said.
pub(crate) fn segments(range: Range<usize>, size: usize) -> Vec<Range<usize>> {
    let all: Vec<Range<usize>> = pieces(range.clone(), size).collect();
    if all.is_empty() { vec![range] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_runs_of_members() {
        assert_eq!(Hosts::of_team(&[0, 0, 0, 2, 2, 5]), Hosts::new([3, 2, 1]));
        assert_eq!(Hosts::of_team(&[1, 0, 1]), Hosts::new([1, 1, 1]));
        assert_eq!(Hosts::of_team(&[4; 7]), Hosts::one(7));
    }

    #[test]
    fn hosts_know_their_pes() {
        let hosts = Hosts::new([3, 1, 2]);
        assert_eq!((0..6).map(|pe| hosts.of(pe)).collect::<Vec<_>>(), [0, 0, 0, 1, 2, 2]);
        assert_eq!((hosts.count(), hosts.n(), hosts.pes(2)), (3, 6, 4..6));
    }

    #[test]
    fn blocks_of_any_length_lie_one_behind_the_other() {
        let blocks = Blocks::new([2, 0, 3]);
        assert_eq!((blocks.range(0), blocks.range(1), blocks.range(2)), (0..2, 2..2, 2..5));
        assert_eq!((blocks.span(0..2), blocks.span(1..1), blocks.total(), blocks.longest()), (0..2, 2..2, 5, 3));
        assert_eq!(Blocks::equal(3, 2), Blocks::new([2, 2, 2]));
    }

    #[test]
    fn common_elements() {
        assert_eq!((common(&(0..4), &(2..9)), common(&(0..2), &(5..6)).len()), (2..4, 0));
    }
}
