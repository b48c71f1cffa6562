//! The shortest way for the smallest messages: they travel with the team's meeting itself, on the cache lines of its
//! signals, so that a call costs one hand-over of one pair of lines. What arrives is combined in PE order, as the plans of
//! `small` and `direct` do: the result is the same to the bit.

use smallvec::SmallVec;

use shmem::{Elem, Meeting, Result, SymSlice, Team};

use crate::hand::{Buffers, Plain};
use crate::op::Reduce;
use crate::plan::{At, Buf, Collective, Problem};

/// What travels from one PE.
type Letter = [u64; Meeting::PAYLOAD];

/// Whether a problem is one for this.
pub(crate) fn takes(problem: &Problem, size: usize, team: &Team<'_>) -> bool {
    let room = size_of::<Letter>();
    problem.n > 1 && problem.len > 0 && problem.len.saturating_mul(size) <= room && team.meets_directly()
}

/// Runs a collective to its end. Blocks.
pub(crate) fn run<T: Elem, R: Reduce<T>>(
    team: &Team<'_>,
    hand: &Plain<'_, T, R>,
    digest: u64,
    call: &dyn Fn() -> String,
) -> Result<()> {
    let Plain { problem, buffers, op } = hand;
    let (n, me, len) = (problem.n, team.me(), problem.len);
    let words = (len * size_of::<T>()).div_ceil(8);
    let mut meeting = team.meet(digest);
    for to in (1..n).map(|distance| (me + distance) % n) {
        if let Some(letter) = letter(problem, buffers, me, to)? {
            meeting.send(team, to, &letter[..words])?;
        }
    }
    meeting.wait(team, call)?;
    let mut letters: SmallVec<[Letter; 16]> = SmallVec::new();
    for from in contributors(problem, me) {
        let mut received = Letter::default();
        if from == me {
            received = letter(problem, buffers, me, me)?.unwrap_or_default();
        } else {
            meeting.receive(team, from, &mut received[..words])?;
        }
        if problem.what.reduces() {
            letters.push(received);
        } else {
            write(target(problem, buffers, me, from)?, |i| element(&received, i))?;
        }
    }
    let Some((first, others)) = letters.split_first() else { return Ok(()) };
    write(target(problem, buffers, me, me)?, |i| {
        let start = op.widen(element(first, i));
        let combine = |left, letter: &Letter| op.combine(left, op.widen(element(letter, i)));
        op.finish(others.iter().fold(start, combine), n)
    })
}

/// What PE `me` sends to PE `to`, if anything.
fn letter<T: Elem>(problem: &Problem, buffers: &Buffers<'_, T>, me: usize, to: usize) -> Result<Option<Letter>> {
    let block = match problem.what {
        Collective::AllReduce | Collective::AllGather => 0,
        Collective::InclusiveScan if to >= me => 0,
        Collective::ExclusiveScan if to > me => 0,
        Collective::Reduce { root } | Collective::Gather { root } if to == root => 0,
        Collective::Broadcast { root } if me == root => 0,
        Collective::Scatter { root } if me == root => to,
        Collective::ReduceScatter | Collective::AllToAll => to,
        _ => return Ok(None),
    };
    let source = buffers.outer(problem, &At::new(me, Buf::Src, block * problem.len..(block + 1) * problem.len))?;
    let mut letter = Letter::default();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut letter);
    for (i, bytes) in bytes.chunks_exact_mut(size_of::<T>()).take(problem.len).enumerate() {
        bytes.copy_from_slice(bytemuck::bytes_of(&source.read(i)?));
    }
    Ok(Some(letter))
}

/// The PEs whose letters make PE `me`'s target, in PE order.
fn contributors(problem: &Problem, me: usize) -> std::ops::Range<usize> {
    match problem.what {
        Collective::Reduce { root } | Collective::Gather { root } if me != root => 0..0,
        Collective::Broadcast { root } | Collective::Scatter { root } => root..root + 1,
        Collective::InclusiveScan => 0..me + 1,
        Collective::ExclusiveScan => 0..me,
        _ => 0..problem.n,
    }
}

/// Where PE `me`'s target takes what came from a PE, or its result.
fn target<'b, T: Elem>(problem: &Problem, buffers: &Buffers<'b, T>, me: usize, from: usize) -> Result<SymSlice<'b, T>> {
    let block = match problem.what {
        Collective::AllGather | Collective::Gather { .. } | Collective::AllToAll => from,
        _ => 0,
    };
    buffers.outer(problem, &At::new(me, Buf::Dst, block * problem.len..(block + 1) * problem.len))
}

fn element<T: Elem>(letter: &Letter, i: usize) -> T {
    let bytes: &[u8] = bytemuck::cast_slice(letter);
    bytemuck::pod_read_unaligned(&bytes[i * size_of::<T>()..(i + 1) * size_of::<T>()])
}

fn write<T: Elem>(target: SymSlice<'_, T>, value: impl Fn(usize) -> T) -> Result<()> {
    (0..target.len()).try_for_each(|i| target.write(i, value(i)))
}
