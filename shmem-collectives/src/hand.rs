//! What a plan's folds do: a [`Hand`] knows the memory, as bytes, and moves them; where elements are combined, it asks a
//! [`Reduction`], the only part that knows types.

use std::marker::PhantomData;

use bytemuck::{bytes_of, cast_slice, cast_slice_mut, pod_read_unaligned};
use smallvec::SmallVec;

use shmem::{Elem, Kernel, Result, SymSlice};

use crate::op::{Reduce, Whole};
use crate::plan::{At, Buf, Collective, pieces};
use crate::prepare::Way;
use crate::run::Lane;
use crate::select::Partial;
use crate::tiny::Letter;

/// Elements that are converted at a time: they stay in the first-level cache.
const AT_A_TIME: usize = 256;

/// The caller's objects, with the bytes of an element.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'b> {
    pub(crate) src: SymSlice<'b, u8>,
    pub(crate) dst: SymSlice<'b, u8>,
    pub(crate) size: usize,
}

impl<'b> Objects<'b> {
    pub(crate) fn of<T: Elem>(dst: SymSlice<'b, T>, src: SymSlice<'b, T>) -> Result<Self> {
        Ok(Objects { src: src.cast()?, dst: dst.cast()?, size: size_of::<T>() })
    }
}

/// The caller's and the team's memory that a plan speaks of.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'b> {
    /// In place, source and target are the whole buffer.
    pub(crate) objects: Objects<'b>,
    pub(crate) work: SymSlice<'b, u8>,
    /// Of this call's parity.
    pub(crate) slots: SymSlice<'b, u8>,
}

/// Objects with the PEs that they are of; of few there is nothing allocated.
pub(crate) type Places<'b, T> = SmallVec<[(SymSlice<'b, T>, usize); 8]>;

/// Who carries out the folds of a plan.
pub(crate) struct Hand<'h, 'b> {
    pub(crate) way: &'h Way,
    pub(crate) buffers: Buffers<'b>,
    /// What combines elements; none where they are only moved.
    pub(crate) reduction: Option<&'h dyn Reduction>,
}

impl<'b> Hand<'_, 'b> {
    /// The object, of whichever PE, that a region of the plan is.
    #[inline]
    pub(crate) fn region(&self, at: &At) -> Result<SymSlice<'b, u8>> {
        let (problem, Objects { src, dst, size }) = (&self.way.problem, self.buffers.objects);
        let (source, target) = if problem.in_place { problem.offsets(at.pe) } else { (0, 0) };
        let (buffer, start, size) = match at.buf {
            Buf::Src => (src, source + at.start, size),
            Buf::Dst => (dst, target + at.start, size),
            Buf::Work => (self.buffers.work, at.start, self.way.held),
            Buf::Slot => (self.buffers.slots, at.start, self.way.held),
        };
        buffer.slice(start * size..(start + at.len) * size)
    }

    #[inline]
    fn places<T: Elem>(&self, regions: &[At]) -> Result<Places<'b, T>> {
        let mut places = Places::new();
        for at in regions {
            places.push((self.region(at)?.cast()?, at.pe));
        }
        Ok(places)
    }

    pub(crate) fn fold(&self, lane: &Lane<'_>, from: &[At], into: &[At]) -> Result<()> {
        match (self.reduction, from, into) {
            (Some(reduction), [source], [target]) if self.way.wide && source.buf == Buf::Src => {
                self.convert(lane, source, target, &|elements, partials| reduction.widen(elements, partials))
            }
            (Some(reduction), [source], [target]) if self.way.wide && target.buf == Buf::Dst => {
                let n = match self.way.problem.what {
                    Collective::InclusiveScan => target.pe + 1,
                    Collective::ExclusiveScan => target.pe,
                    _ => self.way.problem.n,
                };
                self.convert(lane, source, target, &|partials, elements| reduction.finish(partials, elements, n))
            }
            // What is combined of one PE's source alone goes through the reduction, too: it may change it. A plan moves
            // everything else.
            (Some(reduction), ..) if from.len() > 1 || self.way.problem.n == 1 && !self.way.wide => {
                lane.has_put();
                reduction.fold(self, lane, from, into)
            }
            _ => {
                lane.has_put();
                lane.ctx.copy_piece((self.region(&from[0])?, from[0].pe), &self.places(into)?, self.way.touched)
            }
        }
    }

    /// Elements of this PE to partial results, or back.
    fn convert(&self, lane: &Lane<'_>, from: &At, into: &At, as_other: &dyn Fn(&[u8], &mut [u8])) -> Result<()> {
        let room = |at: &At| {
            let outer = matches!(at.buf, Buf::Src | Buf::Dst);
            vec![0; AT_A_TIME * if outer { self.buffers.objects.size } else { self.way.held }]
        };
        let (mut read, mut written) = (room(from), room(into));
        for piece in pieces(0..from.len, AT_A_TIME) {
            let (source, target) = (self.region(&from.piece(piece.clone()))?, self.region(&into.piece(piece))?);
            let (read, written) = (&mut read[..source.len()], &mut written[..target.len()]);
            source.copy_to(read)?;
            as_other(read, written);
            // As the library, to which the memory of a started call belongs.
            lane.ctx.put(target, written, into.pe)?;
        }
        Ok(())
    }
}

/// A reduction without its types. Elements and partial results in private memory are given as their bytes.
pub(crate) trait Reduction {
    /// Combines some regions into some.
    fn fold(&self, hand: &Hand<'_, '_>, lane: &Lane<'_>, from: &[At], into: &[At]) -> Result<()>;
    /// Elements as partial results.
    fn widen(&self, elements: &[u8], partials: &mut [u8]);
    /// Results, of partial results of `n` contributions each.
    fn finish(&self, partials: &[u8], elements: &mut [u8], n: usize);
    /// Results, of `len` elements in each of some letters, in their order.
    fn combine(&self, letters: &[Letter], len: usize) -> Letter;
    /// What partial results are, in a collective.
    fn partial(&self, what: Collective) -> Partial;
}

/// A reduction of elements of type `T`.
pub(crate) struct Typed<T, R> {
    op: R,
    elem: PhantomData<fn() -> T>,
}

impl<T: Elem, R: Reduce<T>> Typed<T, R> {
    pub(crate) fn new(op: R) -> Self {
        Typed { op, elem: PhantomData }
    }
}

impl<T: Elem, R: Reduce<T>> Reduction for Typed<T, R> {
    fn fold(&self, hand: &Hand<'_, '_>, lane: &Lane<'_>, from: &[At], into: &[At]) -> Result<()> {
        let n = hand.way.problem.n;
        if hand.way.wide {
            fold(hand, lane, from, into, &Whole { op: self.op.partial(), n })
        } else {
            fold::<T>(hand, lane, from, into, &Whole { op: self.op, n })
        }
    }

    fn widen(&self, elements: &[u8], partials: &mut [u8]) {
        convert(elements, partials, |element| self.op.widen(element));
    }

    fn finish(&self, partials: &[u8], elements: &mut [u8], n: usize) {
        convert(partials, elements, |acc| self.op.finish(acc, n));
    }

    fn combine(&self, letters: &[Letter], len: usize) -> Letter {
        let (op, size, mut results) = (&self.op, size_of::<T>(), Letter::default());
        for range in (0..len).map(|i| i * size..(i + 1) * size) {
            let element = |letter| pod_read_unaligned::<T>(&cast_slice::<u64, u8>(letter)[range.clone()]);
            let widened = letters.iter().map(|letter| op.widen(element(letter)));
            if let Some(acc) = widened.reduce(|left, right| op.combine(left, right)) {
                let result = op.finish(acc, letters.len());
                cast_slice_mut::<u64, u8>(&mut results)[range].copy_from_slice(bytes_of(&result));
            }
        }
        results
    }

    fn partial(&self, what: Collective) -> Partial {
        Partial::of::<T, R>(what)
    }
}

fn fold<E: Elem>(
    hand: &Hand<'_, '_>,
    lane: &Lane<'_>,
    from: &[At],
    into: &[At],
    kernel: &impl Kernel<E>,
) -> Result<()> {
    let (sources, targets) = (hand.places::<E>(from)?, hand.places::<E>(into)?);
    lane.ctx.fold_piece(&sources, &targets, kernel, hand.way.touched)
}

fn convert<S: Elem, D: Elem>(from: &[u8], into: &mut [u8], as_other: impl Fn(S) -> D) {
    let sources = from.chunks_exact(size_of::<S>().max(1));
    for (source, target) in sources.zip(into.chunks_exact_mut(size_of::<D>().max(1))) {
        target.copy_from_slice(bytes_of(&as_other(pod_read_unaligned(source))));
    }
}
