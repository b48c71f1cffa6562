//! What a program calls: every collective, blocking and started.
//!
//! All are collective over the team, with objects of the same length, and the same type, operation and root, on all its
//! PEs. On return of a blocking call (after [`Pending::wait`] of a started one) this PE's target is complete and its
//! source may be overwritten.

use std::any::type_name;

use shmem::{Elem, ErrorKind, Result, SymSlice};

use crate::coll::{Coll, Pending};
use crate::hand::{Objects, Typed};
use crate::op::Reduce;
use crate::plan::Collective;

/// One row a collective: its documentation, its names, how source and target relate in length.
macro_rules! collectives {
    ($(
        $(#[$doc:meta])*
        $name:ident, $start:ident $([$op:ident $value:ident])? $(($root:ident))? => $what:expr, $len:ident;
    )*) => {
        impl<'t> Coll<'t> {$(
            $(#[$doc])*
            ///
            /// Collective; blocks. In place as [`Problem::in_place`](crate::plan::Problem::in_place) has it.
            ///
            /// # Errors
            /// [`Mismatch`](ErrorKind::Mismatch) if the PEs' calls differ, [`Length`](ErrorKind::Length),
            /// [`Overlap`](ErrorKind::Overlap) if source and target overlap in part,
            /// [`NoSuchPe`](ErrorKind::NoSuchPe) for a root; [`PeerLost`](ErrorKind::PeerLost),
            /// [`Timeout`](ErrorKind::Timeout).
            #[track_caller]
            pub fn $name<T: Elem $(, $op: Reduce<T>)?>(
                &self,
                dst: SymSlice<'_, T>,
                src: SymSlice<'_, T>,
                $($value: $op,)?
                $($root: usize,)?
            ) -> Result<()> {
                let (what, names) = ($what, (type_name::<T>(), collectives!(@name T $($op)?)));
                let checked = self.checked(what, $len(dst.len(), src.len(), self.team().n_pes()), dst, src);
                self.run(what, names, checked, collectives!(@borrowed T $($value)?))
            }

            #[doc = concat!("Starts [`", stringify!($name), "`](Self::", stringify!($name), "). Collective; does not block.")]
            /// All errors come from the [`Pending`].
            #[track_caller]
            pub fn $start<'b, T: Elem $(, $op: Reduce<T> + 't)?>(
                &'b self,
                dst: SymSlice<'b, T>,
                src: SymSlice<'b, T>,
                $($value: $op,)?
                $($root: usize,)?
            ) -> Pending<'b, 't> {
                let (what, names) = ($what, (type_name::<T>(), collectives!(@name T $($op)?)));
                let checked = self.checked(what, $len(dst.len(), src.len(), self.team().n_pes()), dst, src);
                self.start(what, names, checked, collectives!(@owned T $($value)?))
            }
        )*}
    };
    (@name $elem:ident $op:ident) => { <$op as Reduce<$elem>>::NAME };
    (@name $elem:ident) => { "" };
    (@borrowed $elem:ident $value:ident) => { Some(&Typed::<$elem, _>::new($value)) };
    (@borrowed $elem:ident) => { None };
    (@owned $elem:ident $value:ident) => { Some(Box::new(Typed::<$elem, _>::new($value))) };
    (@owned $elem:ident) => { None };
}

collectives! {
    /// The combination of all sources, to every target.
    all_reduce, start_all_reduce [K op] => Collective::AllReduce, equal;
    /// The combination of all sources, to the root's target.
    reduce, start_reduce [K op] (root) => Collective::Reduce { root }, equal;
    /// Block i of the combination of all sources, to PE i: the source is n times as long as the target.
    reduce_scatter, start_reduce_scatter [K op] => Collective::ReduceScatter, scattered;
    /// All sources in the order of the PEs, to every target: it is n times as long as the source (`fcollect`).
    all_gather, start_all_gather => Collective::AllGather, gathered;
    /// All sources in the order of the PEs, to the root's target: it is n times as long as the source, on every PE.
    gather, start_gather (root) => Collective::Gather { root }, gathered;
    /// Block i of the root's source, to PE i: the source is n times as long as the target, on every PE.
    scatter, start_scatter (root) => Collective::Scatter { root }, scattered;
    /// The root's source, to every target.
    broadcast, start_broadcast (root) => Collective::Broadcast { root }, equal;
    /// Block i of PE j's source, to block j of PE i's target.
    all_to_all, start_all_to_all => Collective::AllToAll, exchanged;
    /// The combination of the sources of PEs 0 to i, to PE i's target.
    inclusive_scan, start_inclusive_scan [K op] => Collective::InclusiveScan, equal;
    /// The combination of the sources of PEs 0 to i-1, to PE i's target; PE 0's is left as it is.
    exclusive_scan, start_exclusive_scan [K op] => Collective::ExclusiveScan, equal;
}

/// Those whose source need not be symmetric memory: it is copied to where it lies in place in the target, and goes on
/// from there. (A reduce-scatter, a scatter, and what leaves some targets as they are, have no such place.)
macro_rules! from_anywhere {
    ($(
        $(#[$doc:meta])*
        $name:ident => $of:ident $([$op:ident $value:ident])? $(($root:ident))?, $brings:expr, $start:expr, $len:expr;
    )*) => {
        impl Coll<'_> {$(
            $(#[$doc])*
            ///
            /// The source may be any memory; it is copied into the target first, which is thus overwritten even where
            /// the call fails. Collective; blocks.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($of), "`](Self::", stringify!($of), ").")]
            #[track_caller]
            pub fn $name<T: Elem $(, $op: Reduce<T>)?>(
                &self,
                dst: SymSlice<'_, T>,
                src: &[T],
                $($value: $op,)?
                $($root: usize,)?
            ) -> Result<()> {
                // What was started earlier may still need the target.
                self.finish_started();
                let (me, n) = (self.team().me(), self.team().n_pes());
                let brings: fn(usize, &[usize]) -> bool = $brings;
                let (start, len): (fn(usize, usize) -> usize, fn(usize, usize) -> usize) = ($start, $len);
                let mut own = dst;
                if brings(me, &[$($root)?]) {
                    let place = start(me, src.len());
                    let (given, needed) = (dst.len(), len(n, src.len()));
                    let placed = match dst.slice(place..place + src.len()) {
                        Ok(place) if given == needed => place.copy_from(src).map(|()| place),
                        _ => Err(ErrorKind::Length { what: "target", given, needed }.into()),
                    };
                    own = match placed {
                        Ok(place) => place,
                        Err(error) => return self.refuse(error),
                    };
                }
                self.$of(dst, own, $($value,)? $($root,)?)
            }
        )*}
    };
}

from_anywhere! {
    /// [`all_reduce`](Self::all_reduce) of any memory.
    all_reduce_from => all_reduce [K op], |_, _| true, |_, _| 0, |_, len| len;
    /// [`inclusive_scan`](Self::inclusive_scan) of any memory.
    inclusive_scan_from => inclusive_scan [K op], |_, _| true, |_, _| 0, |_, len| len;
    /// [`all_gather`](Self::all_gather) of any memory.
    all_gather_from => all_gather, |_, _| true, |me, len| me * len, |n, len| n * len;
    /// [`all_to_all`](Self::all_to_all) of any memory.
    all_to_all_from => all_to_all, |_, _| true, |_, _| 0, |_, len| len;
    /// [`broadcast`](Self::broadcast) of any memory; only the root's source is looked at.
    broadcast_from => broadcast (root), |me, roots| roots.contains(&me), |_, _| 0, |_, len| len;
}

impl Coll<'_> {
    /// The length of a block, and the objects, of a call that makes sense.
    #[inline]
    fn checked<'b, T: Elem>(
        &self,
        what: Collective,
        len: Result<usize>,
        dst: SymSlice<'b, T>,
        src: SymSlice<'b, T>,
    ) -> Result<(usize, Objects<'b>)> {
        let n_pes = self.team().n_pes();
        match what.root() {
            Some(pe) if pe >= n_pes => Err(ErrorKind::NoSuchPe { pe, n_pes }.into()),
            _ => Ok((len?, Objects::of(dst, src)?)),
        }
    }
}

/// The length of a block, of a target and a source that have one each.
#[inline]
fn equal(dst: usize, src: usize, _: usize) -> Result<usize> {
    need("target", dst, src)
}

/// The length of a block, of a target that has one for each of n PEs.
#[inline]
fn gathered(dst: usize, src: usize, n: usize) -> Result<usize> {
    need("target", dst, src.saturating_mul(n)).map(|_| src)
}

/// The length of a block, of a source that has one for each of n PEs.
#[inline]
fn scattered(dst: usize, src: usize, n: usize) -> Result<usize> {
    need("source", src, dst.saturating_mul(n)).map(|_| dst)
}

/// The length of a block, of a target and a source that have one for each of n PEs.
#[inline]
fn exchanged(dst: usize, src: usize, n: usize) -> Result<usize> {
    need("target", dst, src)?;
    need("target, in blocks of all PEs,", dst, dst / n * n)?;
    Ok(dst / n)
}

#[inline]
fn need(what: &'static str, given: usize, needed: usize) -> Result<usize> {
    if given == needed { Ok(given) } else { Err(ErrorKind::Length { what, given, needed }.into()) }
}
