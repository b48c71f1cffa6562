//! Whether one host stands for all: renumbering that takes one host to any other, and every plan to the plan of the PE
//! that it takes this one to. With that, all hosts are in the same state at every time, and one of them need be run.
//!
//! There are two such groups: adding a multiple of the host's size (rings, Bruck, and whatever goes round the team), and
//! exclusive or with one (doubling). Both keep the place in the host, so that the level between two PEs is kept, too.
//! A candidate is tried on the first, middle and last PE of three hosts: a sample and no proof.

use crate::plan::{At, Hosts, Plan, Step};

/// Which renumbering, with the PEs of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symmetry {
    /// None: every PE is run.
    None,
    /// Adding.
    Shift(usize),
    /// Exclusive or.
    Xor(usize),
}

/// PEs of each host, if they are the same everywhere.
pub(super) fn each(hosts: &Hosts) -> Option<usize> {
    let first = hosts.pes(0).len();
    (1..hosts.count()).all(|host| hosts.pes(host).len() == first).then_some(first)
}

impl Symmetry {
    /// The renumbering under which these plans are the same, if any.
    pub(super) fn find(hosts: &Hosts, plan: impl Fn(usize) -> Plan) -> Option<Symmetry> {
        let (n, count, each) = (hosts.n(), hosts.count(), each(hosts)?);
        if count == 1 {
            return None;
        }
        let doubles = each.is_power_of_two() && count.is_power_of_two();
        let candidates = [Some(Symmetry::Shift(each)), doubles.then_some(Symmetry::Xor(each))];
        let mut places = vec![0, each / 2, each - 1];
        places.dedup();
        let firsts: Vec<Plan> = places.iter().map(|pe| plan(*pe)).collect();
        candidates.into_iter().flatten().find(|symmetry| {
            [1, count / 2, count - 1].iter().map(|host| host * each).all(|by| {
                let mut pairs = places.iter().zip(&firsts);
                pairs.all(|(pe, first)| same(first, &plan(by + pe), |pe| symmetry.renumber(n, by, pe)))
            })
        })
    }

    /// PE `pe` where host 0 has become the one that begins with PE `by`.
    fn renumber(self, n: usize, by: usize, pe: usize) -> usize {
        match self {
            Symmetry::None => pe,
            Symmetry::Shift(_) => (pe + by) % n,
            Symmetry::Xor(_) => pe ^ by,
        }
    }

    /// The PE that is run for `pe`.
    pub(super) fn stand_in(self, pe: usize) -> usize {
        match self {
            Symmetry::None => pe,
            Symmetry::Shift(each) | Symmetry::Xor(each) => pe % each,
        }
    }

    /// As whom `to`'s stand-in hears what `from`, which is run, tells `to`.
    pub(super) fn heard_as(self, n: usize, from: usize, to: usize) -> usize {
        let by = to - self.stand_in(to);
        match self {
            Symmetry::Shift(_) => (from + n - by) % n,
            Symmetry::None | Symmetry::Xor(_) => self.renumber(n, by, from),
        }
    }
}

/// Whether the steps of a plan, renumbered, cost what those of another do.
fn same(a: &Plan, b: &Plan, renumber: impl Fn(usize) -> usize) -> bool {
    let regions = |regions: &[At], renumber: &dyn Fn(usize) -> usize| {
        let mut all: Vec<(usize, usize)> = regions.iter().map(|at| (renumber(at.pe), at.len)).collect();
        all.sort_unstable();
        all
    };
    let equal = |a: &[At], b: &[At]| regions(a, &renumber) == regions(b, &|pe| pe);
    a.len() == b.len()
        && a.iter().zip(b).all(|steps| match steps {
            (Step::Fold { from: a, into: c }, Step::Fold { from: b, into: d }) => equal(a, b) && equal(c, d),
            (Step::Signal { to: a }, Step::Signal { to: b }) => renumber(*a) == *b,
            (Step::Wait { from: a }, Step::Wait { from: b }) => renumber(*a) == *b,
            (a, b) => a == b,
        })
}
