//! The shortest way for the smallest messages: they travel with the team's meeting itself, on the cache lines of its
//! signals, so that a call costs one hand-over of one pair of lines. What arrives is combined in PE order, as the plans of
//! `small` and `direct` do: the result is the same to the bit.

use bytemuck::{cast_slice, cast_slice_mut};
use smallvec::SmallVec;

use shmem::{Meeting, Result, SymSlice, Team};

use crate::hand::Hand;
use crate::plan::{At, Buf, Collective, Problem};

/// What travels from one PE.
pub(crate) type Letter = [u64; Meeting::PAYLOAD];

/// Whether a problem is one for this.
pub(crate) fn takes(problem: &Problem, size: usize, team: &Team<'_>) -> bool {
    let room = size_of::<Letter>();
    problem.n > 1 && problem.len > 0 && problem.len.saturating_mul(size) <= room && team.meets_directly()
}

/// Runs a collective to its end. Blocks. `waiting` is called when this PE's letters are out.
pub(crate) fn run<W>(
    team: &Team<'_>,
    hand: &Hand<'_, '_>,
    digest: u64,
    call: &dyn Fn() -> String,
    waiting: impl FnOnce() -> W,
) -> Result<()> {
    let Problem { n, len, .. } = hand.way.problem;
    let (me, bytes) = (team.me(), len * hand.buffers.objects.size);
    let words = bytes.div_ceil(8);
    let mut meeting = team.meet(digest);
    for to in (1..n).map(|distance| (me + distance) % n) {
        if let Some(letter) = letter(hand, me, to)? {
            meeting.send(team, to, &letter[..words])?;
        }
    }
    // The first poll sends the signals.
    if !meeting.poll(team, call)? {
        let _waiting = waiting();
        meeting.wait(team, call)?;
    }
    let mut letters: SmallVec<[Letter; 16]> = SmallVec::new();
    for from in contributors(&hand.way.problem, me) {
        let mut received = Letter::default();
        if from == me {
            received = letter(hand, me, me)?.unwrap_or_default();
        } else {
            meeting.receive(team, from, &mut received[..words])?;
        }
        match hand.reduction {
            Some(_) => letters.push(received),
            None => target(hand, me, from)?.copy_from(&cast_slice(&received)[..bytes])?,
        }
    }
    match hand.reduction {
        Some(reduction) if !letters.is_empty() => {
            let results = reduction.combine(&letters, len);
            target(hand, me, me)?.copy_from(&cast_slice(&results)[..bytes])
        }
        _ => Ok(()),
    }
}

/// What PE `me` sends to PE `to`, if anything.
fn letter(hand: &Hand<'_, '_>, me: usize, to: usize) -> Result<Option<Letter>> {
    let Problem { what, len, .. } = hand.way.problem;
    let block = match what {
        Collective::AllReduce | Collective::AllGather => 0,
        Collective::InclusiveScan if to >= me => 0,
        Collective::ExclusiveScan if to > me => 0,
        Collective::Reduce { root } | Collective::Gather { root } if to == root => 0,
        Collective::Broadcast { root } if me == root => 0,
        Collective::Scatter { root } if me == root => to,
        Collective::ReduceScatter | Collective::AllToAll => to,
        _ => return Ok(None),
    };
    let source = hand.region(&At::new(me, Buf::Src, block * len..(block + 1) * len))?;
    let mut letter = Letter::default();
    source.copy_to(&mut cast_slice_mut(&mut letter)[..source.len()])?;
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
fn target<'b>(hand: &Hand<'_, 'b>, me: usize, from: usize) -> Result<SymSlice<'b, u8>> {
    let Problem { what, len, .. } = hand.way.problem;
    let block = match what {
        Collective::AllGather | Collective::Gather { .. } | Collective::AllToAll => from,
        _ => 0,
    };
    hand.region(&At::new(me, Buf::Dst, block * len..(block + 1) * len))
}
