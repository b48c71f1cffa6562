//! What a collective must do, element by element: how long every PE's buffers are, where they lie, and what each output
//! element is made of. A PE whose source is not used has none here, one that gets nothing has no target: whoever
//! touches them is out of bounds.

use super::Flaw;
use super::memory::Place;
use crate::plan::{At, Buf, Collective, Exchange, Problem, Uneven};

/// What an output element is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Whose contributions, a bit a PE; none where the element stays as it is.
    pub(super) pes: u128,
    /// Which element of their sources.
    pub(super) element: usize,
}

type Rule = Box<dyn Fn(usize, usize) -> Wanted>;

pub(super) struct Spec {
    n: usize,
    in_place: bool,
    /// Elements of every PE's source.
    pub(super) source: Vec<usize>,
    /// Elements of every PE's target.
    pub(super) target: Vec<usize>,
    /// Where source and target begin in the one buffer, in place.
    offsets: Vec<(usize, usize)>,
    wanted: Rule,
    /// Whether all PEs must get the same to the bit.
    pub(super) same: bool,
}

fn pes(range: std::ops::Range<usize>) -> u128 {
    range.fold(0, |set, pe| set | 1 << pe)
}

impl Spec {
    pub(super) fn of(problem: &Problem) -> Spec {
        let Problem { what, n, len, .. } = *problem;
        let (source, target) = what.blocks(n);
        let has_source = |pe| match what {
            Collective::Broadcast { root } | Collective::Scatter { root } => pe == root,
            _ => true,
        };
        let has_target = |pe| match what {
            Collective::Reduce { root } | Collective::Gather { root } => pe == root,
            Collective::ExclusiveScan => pe > 0,
            _ => true,
        };
        let wanted: Rule = match what {
            Collective::AllReduce | Collective::Reduce { .. } => {
                Box::new(move |_, i| Wanted { pes: pes(0..n), element: i })
            }
            Collective::ReduceScatter => Box::new(move |pe, i| Wanted { pes: pes(0..n), element: pe * len + i }),
            Collective::AllGather | Collective::Gather { .. } => {
                Box::new(move |_, i| Wanted { pes: 1 << (i / len), element: i % len })
            }
            Collective::Scatter { root } => Box::new(move |pe, i| Wanted { pes: 1 << root, element: pe * len + i }),
            Collective::Broadcast { root } => Box::new(move |_, i| Wanted { pes: 1 << root, element: i }),
            Collective::AllToAll => Box::new(move |pe, i| Wanted { pes: 1 << (i / len), element: pe * len + i % len }),
            Collective::InclusiveScan => Box::new(move |pe, i| Wanted { pes: pes(0..pe + 1), element: i }),
            Collective::ExclusiveScan => Box::new(move |pe, i| Wanted { pes: pes(0..pe), element: i }),
        };
        Spec {
            n,
            in_place: problem.in_place,
            source: (0..n).map(|pe| if has_source(pe) { source * len } else { 0 }).collect(),
            target: (0..n).map(|pe| if has_target(pe) { target * len } else { 0 }).collect(),
            offsets: (0..n).map(|pe| problem.offsets(pe)).collect(),
            wanted,
            same: what == Collective::AllReduce,
        }
    }

    pub(super) fn of_uneven(problem: &Uneven) -> Spec {
        let blocks = problem.blocks.clone();
        let n = blocks.n();
        let (each, all) = ((0..n).map(|pe| blocks.range(pe).len()).collect(), vec![blocks.total(); n]);
        let starts: Vec<usize> = (0..n).map(|pe| blocks.range(pe).start).collect();
        if problem.gather {
            let wanted: Rule = Box::new(move |_, i| {
                let of = (0..n).find(|pe| blocks.range(*pe).contains(&i)).unwrap_or(0);
                Wanted { pes: 1 << of, element: i - blocks.range(of).start }
            });
            let offsets = starts.iter().map(|start| (*start, 0)).collect();
            Spec { n, in_place: problem.in_place, source: each, target: all, offsets, wanted, same: false }
        } else {
            let offsets = starts.iter().map(|start| (0, *start)).collect();
            let wanted: Rule = Box::new(move |pe, i| Wanted { pes: pes(0..n), element: starts[pe] + i });
            Spec { n, in_place: problem.in_place, source: all, target: each, offsets, wanted, same: false }
        }
    }

    pub(super) fn of_exchange(parts: &[Exchange]) -> Result<Spec, Flaw> {
        let n = parts.len();
        let (mut source, mut target) = (vec![0; n], vec![0; n]);
        let mut origins = vec![Vec::new(); n];
        for (me, part) in parts.iter().enumerate() {
            if part.to.len() != n || part.from.len() != n {
                return Err(Flaw(format!("PE {me} knows {} and {} lanes of {n}", part.to.len(), part.from.len())));
            }
            for (other, lane) in part.to.iter().enumerate() {
                let theirs = parts[other].from[me];
                if (lane.here, lane.there, lane.len) != (theirs.there, theirs.here, theirs.len) {
                    return Err(Flaw(format!("PE {me} sends {lane:?} to PE {other}, which expects {theirs:?}")));
                }
                source[me] = source[me].max(lane.here + lane.len);
                if lane.len > 0 {
                    target[other] = target[other].max(lane.there + lane.len);
                    origins[other].push((lane.there..lane.there + lane.len, me, lane.here));
                }
            }
        }
        let wanted: Rule = Box::new(move |pe, i| match origins[pe].iter().find(|(range, ..)| range.contains(&i)) {
            Some((range, from, start)) => Wanted { pes: 1 << from, element: start + i - range.start },
            None => Wanted { pes: 0, element: 0 },
        });
        let in_place = parts.first().is_some_and(|part| part.in_place);
        Ok(Spec { n, in_place, source, target, offsets: vec![(0, 0); n], wanted, same: false })
    }

    pub(super) fn wanted(&self, pe: usize, i: usize) -> Wanted {
        (self.wanted)(pe, i)
    }

    pub(super) fn bounds(&self, pe: usize, at: &At) -> Result<(), Flaw> {
        if at.pe >= self.n {
            return Err(Flaw(format!("PE {pe} touches {at:?} in a team of {}", self.n)));
        }
        let limit = match at.buf {
            Buf::Src => self.source[at.pe],
            Buf::Dst => self.target[at.pe],
            Buf::Work | Buf::Slot => usize::MAX,
        };
        if at.start + at.len <= limit {
            return Ok(());
        }
        Err(Flaw(format!("PE {pe} touches {at:?}, which ends at {limit}")))
    }

    /// Which memory a region begins in: in place, source and target are one.
    pub(super) fn place(&self, at: &At, area: usize) -> Place {
        let (source, target) = if self.in_place { self.offsets[at.pe] } else { (0, 0) };
        let (buf, area, element) = match at.buf {
            Buf::Src if self.in_place => (Buf::Dst, 0, source + at.start),
            Buf::Src => (Buf::Src, 0, at.start),
            Buf::Dst => (Buf::Dst, 0, target + at.start),
            Buf::Work => (Buf::Work, 0, at.start),
            Buf::Slot => (Buf::Slot, area, at.start),
        };
        Place { pe: at.pe, buf, area, element }
    }
}
