//! The calls whose blocks differ in length: `all_gather_v` (collect), `reduce_scatter_v`, `all_to_all_v`.
//!
//! Counts that all PEs know are a part of what they compare; counts of which each PE knows its own are told first
//! (`told`), which costs one meeting more.

use std::any::type_name;
use std::panic::Location;

use shmem::{Elem, ErrorKind, Result, SymSlice};

use crate::call::{Call, digest};
use crate::coll::{Coll, Origin, Pending};
use crate::hand::{Objects, Typed};
use crate::op::Reduce;
use crate::plan::{Blocks, Lane, Uneven};
use crate::prepare::apart;
use crate::told::{Aim, Told};

/// The elements of a buffer that belong to each PE of a team: how many, and where they begin.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    counts: &'a [usize],
    displs: &'a [usize],
}

impl Parts<'_> {
    fn check(&self, what: &'static str, len: usize, n: usize) -> Result<()> {
        for (what, given) in [("counts", self.counts.len()), ("displacements", self.displs.len())] {
            if given != n {
                return Err(ErrorKind::Length { what, given, needed: n }.into());
            }
        }
        let ends = self.counts.iter().zip(self.displs).filter(|(count, _)| **count > 0);
        let end = ends.map(|(count, displ)| count.saturating_add(*displ)).max().unwrap_or(0);
        if end > len { Err(ErrorKind::Length { what, given: len, needed: end }.into()) } else { Ok(()) }
    }

    /// One for each PE; where it begins at the other's is not known yet.
    fn lanes(&self) -> Box<[Lane]> {
        self.counts.iter().zip(self.displs).map(|(len, here)| Lane { here: *here, there: 0, len: *len }).collect()
    }
}

impl<'t> Coll<'t> {
    /// All sources, of a length of their own on each PE, in the order of the PEs, to every target (`collect`): it must
    /// hold them all; what is left of it behind them is not touched. In place, a source lies where it goes.
    ///
    /// Collective; blocks.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if the PEs' calls differ or fail on some, [`Length`](ErrorKind::Length) if the
    /// target is too short, [`Overlap`](ErrorKind::Overlap) if the source overlaps it elsewhere than in place;
    /// [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn all_gather_v<T: Elem>(&self, dst: SymSlice<'_, T>, src: SymSlice<'_, T>) -> Result<()> {
        self.run_task("allgatherv", |number| self.told(number, gather_v::<T>(), Objects::of(dst, src)?, Aim::Gather))
    }

    /// Starts [`all_gather_v`](Self::all_gather_v). Collective; does not block. All errors come from the [`Pending`].
    #[track_caller]
    pub fn start_all_gather_v<'b, T: Elem>(&'b self, dst: SymSlice<'b, T>, src: SymSlice<'b, T>) -> Pending<'b, 't> {
        let site = Location::caller();
        self.start_task(|number| {
            let from = Origin { call: "allgatherv", number, site };
            let objects = self.placed(Objects::of(dst, src)?, from)?;
            self.told(number, gather_v::<T>(), objects, Aim::Gather)
        })
    }

    /// Block i of the combination of all sources, to PE i, where block i has `counts[i]` elements: the source has all
    /// blocks, the target has the own one. In place, the target is the own block of the source.
    ///
    /// Collective, with the same counts on all PEs; blocks.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if the PEs' calls differ or fail on some, [`Length`](ErrorKind::Length) if
    /// source, target or counts do not go together, [`Overlap`](ErrorKind::Overlap);
    /// [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn reduce_scatter_v<T: Elem, R: Reduce<T>>(
        &self,
        dst: SymSlice<'_, T>,
        src: SymSlice<'_, T>,
        counts: &[usize],
        op: R,
    ) -> Result<()> {
        self.run_task("reduce_scatterv", |number| {
            let elem = (type_name::<T>(), R::NAME);
            let (call, problem) = self.scatter_v(elem, dst.len(), src.len(), counts)?;
            self.scattered(number, call, Objects::of(dst, src)?, problem, Box::new(Typed::<T, R>::new(op)))
        })
    }

    /// Starts [`reduce_scatter_v`](Self::reduce_scatter_v). Collective; does not block. All errors come from the
    /// [`Pending`].
    #[track_caller]
    pub fn start_reduce_scatter_v<'b, T: Elem, R: Reduce<T> + 't>(
        &'b self,
        dst: SymSlice<'b, T>,
        src: SymSlice<'b, T>,
        counts: &[usize],
        op: R,
    ) -> Pending<'b, 't> {
        let site = Location::caller();
        self.start_task(|number| {
            let from = Origin { call: "reduce_scatterv", number, site };
            let elem = (type_name::<T>(), R::NAME);
            let (call, problem) = self.scatter_v(elem, dst.len(), src.len(), counts)?;
            let objects = self.placed(Objects::of(dst, src)?, from)?;
            self.scattered(number, call, objects, problem, Box::new(Typed::<T, R>::new(op)))
        })
    }

    /// `src_counts[i]` elements of the source, from `src_displs[i]` on, to PE i, which puts what it gets from PE j at
    /// `dst_displs[j]` of its target and expects `dst_counts[j]` elements; any of these may be 0. (Counts and
    /// displacements have 64 bits.) Elements that get from several PEs to the same place have any of their values. In
    /// place, source and target are the same, and so must counts and displacements be.
    ///
    /// Collective; blocks.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch), on all PEs, if the PEs' calls differ, if one expects another number of
    /// elements than is sent, with both PEs and numbers, or if the call fails on some; [`Length`](ErrorKind::Length) if
    /// buffers and counts do not go together, [`Overlap`](ErrorKind::Overlap);
    /// [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn all_to_all_v<T: Elem>(
        &self,
        dst: SymSlice<'_, T>,
        dst_counts: &[usize],
        dst_displs: &[usize],
        src: SymSlice<'_, T>,
        src_counts: &[usize],
        src_displs: &[usize],
    ) -> Result<()> {
        let into = Parts { counts: dst_counts, displs: dst_displs };
        let from = Parts { counts: src_counts, displs: src_displs };
        self.run_task("alltoallv", |number| {
            self.exchange_v(number, type_name::<T>(), Objects::of(dst, src)?, into, from)
        })
    }

    /// Starts [`all_to_all_v`](Self::all_to_all_v). Collective; does not block. All errors come from the [`Pending`].
    #[track_caller]
    pub fn start_all_to_all_v<'b, T: Elem>(
        &'b self,
        dst: SymSlice<'b, T>,
        dst_counts: &[usize],
        dst_displs: &[usize],
        src: SymSlice<'b, T>,
        src_counts: &[usize],
        src_displs: &[usize],
    ) -> Pending<'b, 't> {
        let into = Parts { counts: dst_counts, displs: dst_displs };
        let from = Parts { counts: src_counts, displs: src_displs };
        let site = Location::caller();
        self.start_task(|number| {
            let origin = Origin { call: "alltoallv", number, site };
            self.exchange_v(number, type_name::<T>(), self.placed(Objects::of(dst, src)?, origin)?, into, from)
        })
    }

    fn scatter_v(
        &self,
        (elem, op): (&'static str, &'static str),
        dst: usize,
        src: usize,
        counts: &[usize],
    ) -> Result<(Call, Uneven)> {
        let (me, n) = (self.team().me(), self.team().n_pes());
        let total = counts.iter().try_fold(0, |sum: usize, count| sum.checked_add(*count)).unwrap_or(usize::MAX);
        let checks = [("counts", counts.len(), n), ("source", src, total)];
        for (what, given, needed) in checks.into_iter().chain(counts.get(me).map(|own| ("target", dst, *own))) {
            if given != needed {
                return Err(ErrorKind::Length { what, given, needed }.into());
            }
        }
        let some: Vec<String> = counts.iter().take(6).map(usize::to_string).collect();
        let more = (digest(0, counts.iter().map(|count| *count as u64)), format!("by {}", some.join(" ")));
        let more = Some(Box::new(more));
        let call = Call { op, more, ..Call::other("reduce_scatterv", 12, total, elem) };
        let blocks = Blocks::new(counts.iter().copied());
        Ok((call, Uneven { gather: false, blocks, chunk: 1, in_place: false }))
    }

    fn exchange_v<'b>(
        &self,
        number: u64,
        elem: &'static str,
        objects: Objects<'b>,
        into: Parts<'_>,
        from: Parts<'_>,
    ) -> Result<Told<'b>>
    where
        't: 'b,
    {
        let (n, Objects { src, dst, size }) = (self.team().n_pes(), objects);
        into.check("target", dst.len() / size.max(1), n)?;
        from.check("source", src.len() / size.max(1), n)?;
        let (to, from) = (from.lanes(), into.lanes());
        let in_place = src.offset() == dst.offset() && src.len().min(dst.len()) > 0;
        if in_place && to != from {
            let differ = to.iter().zip(&from).find(|(to, from)| to != from);
            let (given, needed) = differ.map_or((0, 0), |(to, from)| (to.len, from.len));
            return Err(ErrorKind::Length { what: "source, in place,", given, needed }.into());
        }
        if !in_place {
            apart(self.world, src, dst)?;
        }
        let call = Call { in_place, ..Call::other("alltoallv", 13, 0, elem) };
        self.told(number, call, objects, Aim::Exchange { to, from })
    }
}

fn gather_v<T: Elem>() -> Call {
    Call::other("allgatherv", 11, 0, type_name::<T>())
}
