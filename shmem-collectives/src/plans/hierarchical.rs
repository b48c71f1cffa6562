//! Two levels, for teams on several hosts, which may have different numbers of PEs: as little as possible goes between
//! hosts, and all PEs of a host share that work, whatever their number.
//!
//! All-reduce: the PEs of a host cut the elements in as many stripes and combine one each over the host. Of each part
//! of the elements that one host finishes, each PE of it takes a share and reads the partial results of the other hosts
//! for it, from whichever PEs have them. The result goes to all targets of the host, and the other hosts read it once
//! each. Per host, 2(H-1)/H of m elements come in and go out, the least possible with H hosts. In segments, of which
//! the three stages are in work at the same time. In place nothing is lost: a stripe is read by the one PE that writes
//! it, and what it has written is overwritten only with the result, which was made from it.
//!
//! All-gather: of each other host's blocks each PE of this host reads a part, straight into all targets of the host.
//! Reduce-scatter: for each other host, each PE combines a part of what that one's PEs get over its host; these read it
//! and add it to their own host's. Both let each byte cross once. Broadcast: a chain of hosts in segments; the PEs of a
//! host share each. All-to-all: for each PE elsewhere, one PE of the host puts together what all of the host have for
//! it; it reads one piece from each host instead of one from each PE.

use std::ops::Range;

use super::writer::{Writer, block, dst, src, work};
use crate::layout::{common, part_of, segments};
use crate::plan::{At, Collective, Hosts, Plan, Problem};

/// Whether there is a plan in two levels for this.
pub fn plans(what: Collective) -> bool {
    use Collective::*;
    matches!(what, AllReduce | ReduceScatter | AllGather | AllToAll | Broadcast { .. })
}

/// The plan of PE `me` in a team that lives on `hosts`.
pub fn plan(problem: &Problem, hosts: &Hosts, me: usize) -> Plan {
    let mut w = Writer::new(problem.n, me, problem.chunk);
    let two = Two { hosts, problem, n: problem.n, me, host: hosts.of(me) };
    match problem.what {
        Collective::AllReduce => two.all_reduce(&mut w),
        Collective::ReduceScatter => two.reduce_scatter(&mut w),
        Collective::AllGather => two.all_gather(&mut w),
        Collective::Broadcast { root } => two.broadcast(&mut w, root),
        _ => two.all_to_all(&mut w),
    }
    w.done()
}

/// Elements of work memory that a PE needs.
pub(super) fn room(problem: &Problem, hosts: &Hosts) -> usize {
    let elsewhere = |host: usize| problem.n - hosts.pes(host).len();
    let need = |host: usize| match problem.what {
        Collective::ReduceScatter => {
            let foreign = (0..hosts.count()).filter(|other| *other != host);
            foreign.map(|other| (hosts.pes(other).len() * problem.len).div_ceil(hosts.pes(host).len())).sum()
        }
        Collective::AllToAll => {
            let local = hosts.pes(host).len();
            let foreign = (0..hosts.count()).filter(|other| *other != host);
            let most: usize = foreign.map(|other| hosts.pes(other).len().div_ceil(local)).sum();
            (most.min(elsewhere(host)) + usize::from(problem.in_place)) * local * problem.len
        }
        _ => 0,
    };
    (0..hosts.count()).map(need).max().unwrap_or(0)
}

/// What every stage needs to know.
struct Two<'a> {
    hosts: &'a Hosts,
    problem: &'a Problem,
    n: usize,
    me: usize,
    host: usize,
}

impl Two<'_> {
    fn local(&self) -> Range<usize> {
        self.hosts.pes(self.host)
    }

    /// The other PEs of this host, beginning with the next one.
    fn neighbours(&self) -> Vec<usize> {
        let (me, local) = (self.me, self.local());
        (me + 1..local.end).chain(local.start..me).collect()
    }

    /// All PEs of other hosts, beginning with the next host's.
    fn foreign(&self) -> Vec<usize> {
        let local = self.local();
        (local.end..self.n).chain(0..local.start).collect()
    }

    /// The part of a range that falls to a PE when those of its host share it.
    fn share(&self, pe: usize, range: &Range<usize>) -> Range<usize> {
        let pes = self.hosts.pes(self.hosts.of(pe));
        part_of(range.clone(), pes.len(), pe - pes.start)
    }

    /// The same elements in the targets of all PEs of this host, or all but the own one.
    fn targets(&self, range: &Range<usize>, with_me: bool) -> Vec<At> {
        let pes = with_me.then_some(self.me).into_iter().chain(self.neighbours());
        pes.map(|pe| dst(pe, range.clone())).collect()
    }

    fn meet(&self, w: &mut Writer) {
        let neighbours = self.neighbours();
        w.signal_all(neighbours.iter().copied());
        w.hear_all(neighbours);
    }

    fn all_reduce(&self, w: &mut Writer) {
        let (me, local) = (self.me, self.local());
        let segments = segments(0..self.problem.len, self.problem.chunk.max(1).saturating_mul(self.n));
        let everybody: Vec<usize> = self.neighbours().into_iter().chain(self.foreign()).collect();
        self.meet(w);
        for t in 0..segments.len() + 2 {
            // My stripe of my host's partial result.
            if let Some(segment) = segments.get(t) {
                let stripe = self.share(me, segment);
                if local.len() > 1 || !self.problem.in_place {
                    w.fold(local.clone().map(|pe| src(pe, stripe.clone())), [dst(me, stripe.clone())]);
                }
                let readers = everybody.iter().filter(|pe| !common(&self.finished(**pe, segment), &stripe).is_empty());
                w.signal_all(readers.copied());
            }
            // My share of the result.
            if let Some(segment) = t.checked_sub(1).and_then(|t| segments.get(t)) {
                let mine = self.finished(me, segment);
                let touches = |pe: &usize| !common(&self.share(*pe, segment), &mine).is_empty();
                w.hear_all(everybody.iter().copied().filter(touches));
                for cut in self.cuts(&mine, |pe| self.share(pe, segment)) {
                    let holder =
                        |host| self.hosts.pes(host).find(|pe| !common(&self.share(*pe, segment), &cut).is_empty());
                    let from: Vec<At> =
                        (0..self.hosts.count()).filter_map(holder).map(|pe| dst(pe, cut.clone())).collect();
                    w.fold(from, self.targets(&cut, true));
                }
                w.signal_all(self.foreign().into_iter().filter(touches));
            }
            // My stripe of what other hosts have finished.
            if let Some(segment) = t.checked_sub(2).and_then(|t| segments.get(t)) {
                let stripe = self.share(me, segment);
                for pe in self.foreign() {
                    let range = common(&self.finished(pe, segment), &stripe);
                    if !range.is_empty() {
                        w.hear(pe);
                        w.fold([dst(pe, range.clone())], self.targets(&range, true));
                    }
                }
            }
        }
        let any = |stripe_of: usize, finished_by: usize| {
            let touch =
                |s: &Range<usize>| !common(&self.finished(finished_by, s), &self.share(stripe_of, s)).is_empty();
            segments.iter().any(touch)
        };
        let (read, readers): (Vec<usize>, Vec<usize>) = (
            self.foreign().into_iter().filter(|pe| any(me, *pe)).collect(),
            self.foreign().into_iter().filter(|pe| any(*pe, me)).collect(),
        );
        w.signal_all(read);
        self.meet(w);
        w.hear_all(readers);
    }

    /// What a PE finishes of a segment.
    fn finished(&self, pe: usize, segment: &Range<usize>) -> Range<usize> {
        self.share(pe, &part_of(segment.clone(), self.hosts.count(), self.hosts.of(pe)))
    }

    /// A range cut wherever what some PE has ends.
    fn cuts(&self, range: &Range<usize>, has: impl Fn(usize) -> Range<usize>) -> Vec<Range<usize>> {
        let mut ends: Vec<usize> = (0..self.n).map(|pe| has(pe).end).filter(|end| range.contains(end)).collect();
        ends.extend([range.start, range.end]);
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|ends| ends[0]..ends[1]).collect()
    }

    /// The blocks of a host's PEs.
    fn blocks(&self, host: usize) -> Range<usize> {
        let pes = self.hosts.pes(host);
        pes.start * self.problem.len..pes.end * self.problem.len
    }

    /// What a PE handles of the block of a PE of another host.
    fn handled(&self, by: usize, of: usize) -> Range<usize> {
        common(&self.share(by, &self.blocks(self.hosts.of(of))), &block(of, self.problem.len))
    }

    /// The PEs of other hosts that handle a part of my block, and those of whose blocks I do.
    fn handlers(&self) -> (Vec<usize>, Vec<usize>) {
        let (me, foreign) = (self.me, self.foreign());
        let of = |by: usize, of: usize| !self.handled(by, of).is_empty();
        (
            foreign.iter().copied().filter(|pe| of(*pe, me)).collect(),
            foreign.iter().copied().filter(|pe| of(me, *pe)).collect(),
        )
    }

    fn all_gather(&self, w: &mut Writer) {
        let (me, len) = (self.me, self.problem.len);
        let (readers, read) = self.handlers();
        w.signal_all(readers.iter().copied());
        self.meet(w);
        let mine = self.targets(&block(me, len), !self.problem.in_place);
        w.fold([src(me, 0..len)], mine);
        for pe in read {
            let range = self.handled(me, pe);
            w.hear(pe);
            w.fold([src(pe, range.start - pe * len..range.end - pe * len)], self.targets(&range, true));
            w.signal(pe);
        }
        self.meet(w);
        w.hear_all(readers);
    }

    fn reduce_scatter(&self, w: &mut Writer) {
        let (me, len) = (self.me, self.problem.len);
        let (handlers, handled) = self.handlers();
        self.meet(w);
        for &pe in &handled {
            let range = self.handled(me, pe);
            w.fold(self.local().map(|pe| src(pe, range.clone())), [self.partial(me, pe, &range)]);
            w.signal(pe);
        }
        w.hear_all(handlers.iter().copied());
        let of_mine = |pe| if self.local().contains(&pe) { block(me, len) } else { self.handled(pe, me) };
        for cut in self.cuts(&block(me, len), of_mine) {
            let mut from = Vec::new();
            for host in 0..self.hosts.count() {
                if host == self.host {
                    from.extend(self.local().map(|pe| src(pe, cut.clone())));
                } else {
                    let holder = self.hosts.pes(host).find(|pe| !common(&self.handled(*pe, me), &cut).is_empty());
                    from.extend(holder.map(|pe| self.partial(pe, me, &cut)));
                }
            }
            w.fold(from, [dst(me, cut.start - me * len..cut.end - me * len)]);
        }
        w.signal_all(handlers);
        self.meet(w);
        w.hear_all(handled);
    }

    /// Where PE `by` has its host's partial result for a range of the block of PE `of` elsewhere: what it handles for
    /// other hosts lies host by host.
    fn partial(&self, by: usize, of: usize, range: &Range<usize>) -> At {
        let (own, host) = (self.hosts.of(by), self.hosts.of(of));
        let before: usize =
            (0..host).filter(|other| *other != own).map(|other| self.share(by, &self.blocks(other)).len()).sum();
        let start = before + range.start - self.share(by, &self.blocks(host)).start;
        work(by, start..start + range.len())
    }

    fn broadcast(&self, w: &mut Writer, root: usize) {
        let (me, count) = (self.me, self.hosts.count());
        let position = |pe: usize| (self.hosts.of(pe) + count - self.hosts.of(root)) % count;
        let place = position(me);
        let segments = segments(0..self.problem.len, self.problem.chunk.max(1).saturating_mul(self.n));
        let shares = |a: usize, b: usize, s: &Range<usize>| !common(&self.share(a, s), &self.share(b, s)).is_empty();
        let at = |place: usize| self.foreign().into_iter().filter(move |pe| position(*pe) == place).collect::<Vec<_>>();
        // Who reads from me and from whom I read, between hosts: the first two read from the root.
        let (before, after) = match place {
            0 if me == root => (Vec::new(), at(1)),
            0 => (Vec::new(), Vec::new()),
            1 => (vec![root], at(2)),
            _ => (at(place - 1), at(place + 1)),
        };
        let reads = |from: usize, by: usize, s: &Range<usize>| {
            if from == root { !self.share(by, s).is_empty() } else { shares(from, by, s) }
        };
        let ever = |from: usize, by: usize| segments.iter().any(|s| reads(from, by, s));
        let sources: Vec<usize> = before.into_iter().filter(|pe| ever(*pe, me)).collect();
        let readers: Vec<usize> = after.into_iter().filter(|pe| ever(me, *pe)).collect();
        if me == root {
            w.signal_all(readers.iter().copied());
        }
        let neighbours = self.neighbours();
        w.signal_all(neighbours.iter().copied());
        w.hear_all(neighbours);
        if sources == [root] {
            w.hear(root);
        }
        for segment in &segments {
            let mine = self.share(me, segment);
            if place < 2 {
                let with_root = !self.problem.in_place;
                let pes = self.local().filter(|pe| with_root || *pe != root);
                let targets: Vec<At> = pes.map(|pe| dst(pe, mine.clone())).collect();
                if !mine.is_empty() {
                    w.fold([src(root, mine.clone())], targets);
                }
            } else {
                for &pe in sources.iter().filter(|pe| reads(**pe, me, segment)) {
                    let range = common(&self.share(pe, segment), &mine);
                    w.hear(pe);
                    let targets: Vec<At> = self.local().map(|pe| dst(pe, range.clone())).collect();
                    w.fold([dst(pe, range)], targets);
                }
            }
            if me != root {
                w.signal_all(readers.iter().copied().filter(|pe| reads(me, *pe, segment)));
            }
        }
        w.signal_all(sources);
        self.meet(w);
        w.hear_all(readers);
    }

    fn all_to_all(&self, w: &mut Writer) {
        let (me, len, local) = (self.me, self.problem.len, self.local());
        self.meet(w);
        let mine: Vec<usize> = self.foreign().into_iter().filter(|pe| self.collector(self.host, *pe) == me).collect();
        for &pe in &mine {
            let start = self.collected(self.host, pe);
            for (i, from) in local.clone().enumerate() {
                let place = start + i * len;
                w.copy(src(from, block(pe, len)), work(me, place..place + len));
            }
            w.signal(pe);
        }
        let neighbours = self.neighbours();
        if self.problem.in_place {
            // My host's blocks for me wait behind those that I have collected, until all have read what will be
            // overwritten.
            let start = mine.len() * local.len() * len;
            let wait = |pe: usize| work(me, start + (pe - local.start) * len..start + (pe - local.start + 1) * len);
            neighbours.iter().for_each(|pe| w.copy(src(*pe, block(me, len)), wait(*pe)));
            self.meet(w);
            neighbours.iter().for_each(|pe| w.copy(wait(*pe), dst(me, block(*pe, len))));
        } else {
            w.copy(src(me, block(me, len)), dst(me, block(me, len)));
            neighbours.iter().for_each(|pe| w.copy(src(me, block(*pe, len)), dst(*pe, block(me, len))));
        }
        for host in (0..self.hosts.count()).filter(|host| *host != self.host) {
            let from = self.collector(host, me);
            let (start, blocks) = (self.collected(host, me), self.blocks(host));
            w.hear(from);
            w.copy(work(from, start..start + blocks.len()), dst(me, blocks));
            w.signal(from);
        }
        if !self.problem.in_place {
            self.meet(w);
        }
        w.hear_all(mine);
    }

    /// The PE of a host that puts together what the host has for a PE elsewhere.
    fn collector(&self, host: usize, pe: usize) -> usize {
        let pes = self.hosts.pes(host);
        pes.start + (pe - self.hosts.pes(self.hosts.of(pe)).start) % pes.len()
    }

    /// Where it does so in its work memory.
    fn collected(&self, host: usize, pe: usize) -> usize {
        let pes = self.hosts.pes(host);
        let by = self.collector(host, pe);
        let before = (0..pe).filter(|other| !pes.contains(other) && self.collector(host, *other) == by).count();
        before * pes.len() * self.problem.len
    }
}
