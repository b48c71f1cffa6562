//! The all-to-all of strided elements (`alltoalls`): everybody packs its source, meets all, and puts to each PE what is
//! that one's, element by element.
//!
//! The source has been read before any PE's target is written, so the two may overlap in any way.

use std::panic::Location;

use shmem::{Elem, ErrorKind, Meeting, Result, SymSlice};

use crate::call::{Call, digest};
use crate::coll::{Coll, Origin, Pending};
use crate::run::{Lane, meet};
use crate::task::Task;

/// A call under way.
struct Strided<'b, T> {
    number: u64,
    call: Call,
    dst: SymSlice<'b, T>,
    src: SymSlice<'b, T>,
    /// Elements from one to the next.
    strides: (usize, usize),
    len: usize,
    /// The source without its gaps.
    packed: Vec<T>,
    meeting: Option<Meeting>,
    stage: Stage,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Entering,
    Leaving,
}

impl<T: Elem> Task for Strided<'_, T> {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        let digest = self.call.digest(self.number);
        if self.stage == Stage::Begun {
            self.pack(lane.team.n_pes())?;
            self.meeting = Some(lane.team.meet(digest));
            self.stage = Stage::Entering;
        }
        if self.stage == Stage::Entering {
            if !self.meet(lane, block)? {
                return Ok(false);
            }
            self.put(lane)?;
            self.meeting = Some(lane.team.meet(digest));
            self.stage = Stage::Leaving;
        }
        self.meet(lane, block)
    }
}

impl<T: Elem> Strided<'_, T> {
    fn meet(&mut self, lane: &Lane<'_>, block: bool) -> Result<bool> {
        let (call, number) = (&self.call, self.number);
        meet(&mut self.meeting, lane.team, &|| call.text(number), block)
    }

    fn pack(&mut self, n: usize) -> Result<()> {
        let (_, stride) = self.strides;
        self.packed = (0..n * self.len).map(|i| self.src.read(i * stride)).collect::<Result<_>>()?;
        Ok(())
    }

    fn put(&self, lane: &Lane<'_>) -> Result<()> {
        let (me, n, len) = (lane.team.me(), lane.team.n_pes(), self.len);
        let (stride, _) = self.strides;
        if len == 0 {
            return Ok(());
        }
        for pe in (0..n).map(|distance| (me + distance) % n) {
            let block = &self.packed[pe * len..(pe + 1) * len];
            let place = self.dst.slice(me * len * stride..)?;
            if stride == 1 {
                lane.ctx.put(place, block, pe)?;
            } else {
                lane.ctx.iput(place, stride, block, 1, len, pe)?;
            }
            lane.has_put();
        }
        lane.complete()
    }
}

impl<'t> Coll<'t> {
    /// Element k of block i of PE j's source, to element k of block j of PE i's target, where a block has `nelems`
    /// elements, and element k of block j lies at `(j * nelems + k) * stride` of its buffer. What lies between is not
    /// touched. Source and target may overlap: the source is copied first.
    ///
    /// Collective, with the same `nelems` and `dst_stride` on all PEs; blocks.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if the PEs' calls differ; [`Length`](ErrorKind::Length) for a stride of 0, or a
    /// buffer that does not hold all blocks; [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn all_to_all_strided<T: Elem>(
        &self,
        dst: SymSlice<'_, T>,
        dst_stride: usize,
        src: SymSlice<'_, T>,
        src_stride: usize,
        nelems: usize,
    ) -> Result<()> {
        self.run_task("alltoalls", |number| self.strided(number, (dst, dst_stride), (src, src_stride), nelems))
    }

    /// Starts [`all_to_all_strided`](Self::all_to_all_strided). Collective; does not block. All errors come from the
    /// [`Pending`].
    #[track_caller]
    pub fn start_all_to_all_strided<'b, T: Elem>(
        &'b self,
        dst: SymSlice<'b, T>,
        dst_stride: usize,
        src: SymSlice<'b, T>,
        src_stride: usize,
        nelems: usize,
    ) -> Pending<'b, 't> {
        let site = Location::caller();
        self.start_task(|number| {
            let place = |object| self.place(object, Origin { call: "alltoalls", number, site });
            let (dst, src) = (place(dst)?, place(src)?);
            self.strided(number, (dst, dst_stride), (src, src_stride), nelems)
        })
    }

    fn strided<'b, T: Elem>(
        &self,
        number: u64,
        (dst, dst_stride): (SymSlice<'b, T>, usize),
        (src, src_stride): (SymSlice<'b, T>, usize),
        nelems: usize,
    ) -> Result<Strided<'b, T>> {
        let count = nelems.saturating_mul(self.team().n_pes());
        for (what, stride) in [("target stride", dst_stride), ("source stride", src_stride)] {
            if stride == 0 {
                return Err(ErrorKind::Length { what, given: 0, needed: 1 }.into());
            }
        }
        for (what, given, stride) in [("target", dst.len(), dst_stride), ("source", src.len(), src_stride)] {
            let needed = count.checked_sub(1).map_or(0, |last| last.saturating_mul(stride).saturating_add(1));
            if given < needed {
                return Err(ErrorKind::Length { what, given, needed }.into());
            }
        }
        let more = Some(Box::new((digest(0, [dst_stride as u64]), format!("to stride {dst_stride}"))));
        let call = Call { more, ..Call::other("alltoalls", 14, nelems, std::any::type_name::<T>()) };
        let strides = (dst_stride, src_stride);
        let (packed, meeting, stage) = (Vec::new(), None, Stage::Begun);
        Ok(Strided { number, call, dst, src, strides, len: nelems, packed, meeting, stage })
    }
}
