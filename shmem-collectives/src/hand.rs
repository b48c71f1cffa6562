//! What a plan's folds do to elements: as they are ([`Plain`]), or with partial results of a type of their own in the
//! collective's memory ([`Wide`]).

use shmem::{Elem, Result, SymSlice};
use smallvec::SmallVec;

use crate::op::{Reduce, Whole};
use crate::plan::{At, Buf, Collective, Problem, pieces};
use crate::run::{Hand, Lane};

/// Bytes of elements that are converted at a time: they stay in the first-level cache.
const AT_A_TIME: usize = 4 << 10;

/// The caller's and the team's memory that a plan speaks of; the team's holds elements of type `A`.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'b, T, A = T> {
    /// In place, the whole buffer.
    pub(crate) src: SymSlice<'b, T>,
    /// In place, the whole buffer.
    pub(crate) dst: SymSlice<'b, T>,
    pub(crate) work: SymSlice<'b, A>,
    /// Of this call's parity.
    pub(crate) slots: SymSlice<'b, A>,
}

impl<'b, T: Elem, A: Elem> Buffers<'b, T, A> {
    /// A region of source or target, of whichever PE.
    pub(crate) fn outer(&self, problem: &Problem, at: &At) -> Result<SymSlice<'b, T>> {
        let (source, target) = if problem.in_place { problem.offsets(at.pe) } else { (0, 0) };
        match at.buf {
            Buf::Src => self.src.slice(source + at.start..source + at.start + at.len),
            _ => self.dst.slice(target + at.start..target + at.start + at.len),
        }
    }

    /// A region of the team's memory, of whichever PE.
    fn inner(&self, at: &At) -> Result<SymSlice<'b, A>> {
        let buffer = if at.buf == Buf::Slot { self.slots } else { self.work };
        buffer.slice(at.range())
    }
}

/// Objects with the PEs that they are of; of few there is nothing allocated.
type Places<'b, T> = SmallVec<[(SymSlice<'b, T>, usize); 8]>;

fn places<'b, T>(regions: &[At], place: impl Fn(&At) -> Result<SymSlice<'b, T>>) -> Result<Places<'b, T>> {
    regions.iter().map(|at| Ok((place(at)?, at.pe))).collect()
}

/// Every buffer holds elements.
pub(crate) struct Plain<'b, T, R> {
    pub(crate) problem: Problem,
    pub(crate) buffers: Buffers<'b, T>,
    pub(crate) op: R,
}

impl<T: Elem, R: Reduce<T>> Hand for Plain<'_, T, R> {
    fn fold(&self, lane: &Lane<'_>, from: &[At], into: &[At]) -> Result<()> {
        let place = |at: &At| match at.buf {
            Buf::Src | Buf::Dst => self.buffers.outer(&self.problem, at),
            Buf::Work | Buf::Slot => self.buffers.inner(at),
        };
        let (sources, targets) = (places(from, place)?, places(into, place)?);
        let n = self.problem.n;
        // What is combined of one PE's source alone goes through the reduction, too: it may change it. A plan moves
        // everything else.
        let alone = n == 1 && self.problem.what.reduces();
        lane.has_put();
        match sources.as_slice() {
            [source] if !alone => lane.ctx.copy(*source, &targets),
            _ => lane.ctx.fold(&sources, &targets, &Whole { op: self.op, n }),
        }
    }
}

/// Source and target hold elements, the team's memory partial results: the hand of plans by
/// [`wide`](crate::plans::wide).
pub(crate) struct Wide<'b, T: Elem, R: Reduce<T>> {
    pub(crate) problem: Problem,
    pub(crate) buffers: Buffers<'b, T, R::Acc>,
    pub(crate) op: R,
}

impl<T: Elem, R: Reduce<T>> Hand for Wide<'_, T, R> {
    fn fold(&self, lane: &Lane<'_>, from: &[At], into: &[At]) -> Result<()> {
        let Wide { problem, buffers, op } = self;
        match (from, into) {
            ([source], [target]) if source.buf == Buf::Src => {
                convert(buffers.outer(problem, source)?, buffers.inner(target)?, |element| op.widen(element))
            }
            ([source], [target]) if target.buf == Buf::Dst => {
                let n = match problem.what {
                    Collective::InclusiveScan => target.pe + 1,
                    Collective::ExclusiveScan => target.pe,
                    _ => problem.n,
                };
                convert(buffers.inner(source)?, buffers.outer(problem, target)?, |acc| op.finish(acc, n))
            }
            _ => {
                let place = |at: &At| buffers.inner(at);
                let (sources, targets) = (places(from, place)?, places(into, place)?);
                lane.has_put();
                match sources.as_slice() {
                    [source] => lane.ctx.copy(*source, &targets),
                    _ => lane.ctx.fold(&sources, &targets, &Whole { op: op.partial(), n: problem.n }),
                }
            }
        }
    }
}

/// Elements of this PE, as others.
fn convert<S: Elem, D: Elem>(from: SymSlice<'_, S>, into: SymSlice<'_, D>, as_other: impl Fn(S) -> D) -> Result<()> {
    let lanes = (AT_A_TIME / size_of::<(S, D)>().max(1)).max(1);
    let (mut read, mut written) = (vec![S::zeroed(); lanes], vec![D::zeroed(); lanes]);
    for piece in pieces(0..from.len(), lanes) {
        let (read, written) = (&mut read[..piece.len()], &mut written[..piece.len()]);
        from.slice(piece.clone())?.copy_to(read)?;
        written.iter_mut().zip(read).for_each(|(written, read)| *written = as_other(*read));
        into.slice(piece)?.copy_from(written)?;
    }
    Ok(())
}
