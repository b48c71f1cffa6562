//! Measures both modes of the exchange between experts at some sizes of a batch, for the table.
//!
//! A call is a whole round: dispatch, tokens copied out for the experts and outputs copied in, combine. So a mode that leaves more
//! for the experts to fetch is not faster for that.

use half::bf16;
use shmem::{ErrorKind, Result, Team, World};
use shmem_collectives::Selection;
use shmem_collectives::moe::{Builder, Moe, MoeMode};
use shmem_collectives::select::{MoeRow, Where};

use crate::time::{Clock, Timed};
use crate::tune::{Budget, calls, kept, open, race, reach};

/// Values of a token, which are bf16.
const HIDDEN: usize = 1024;
const TOKEN: usize = HIDDEN * size_of::<bf16>();
/// Choices of a token, and experts of a PE.
const TOP_K: usize = 2;
/// Bytes of a batch.
pub(crate) const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The rows of what is faster on one host; none if the smallest exchange does not fit in the heap. Collective.
pub(crate) fn measure(
    clock: &Clock<'_, '_>,
    team: &Team<'_>,
    table: &Selection,
    budget: &mut Budget,
) -> Result<Vec<MoeRow>> {
    let world = clock.world;
    let mut sizes = &SIZES[..];
    let block = loop {
        let Some((largest, smaller)) = sizes.split_last() else { return Ok(Vec::new()) };
        match world.align::<u8>(128, builder(world, team, *largest).buffer_bytes()?) {
            Err(error) if matches!(error.kind(), ErrorKind::HeapFull { .. }) => sizes = smaller,
            block => break block?,
        }
    };
    let mut points: Vec<(usize, MoeMode)> = Vec::new();
    for &bytes in sizes {
        let share = budget.share(clock, MoeMode::ALL.len())?;
        let time = |mode| {
            let moe = builder(world, team, bytes).memory(block.sym()).mode(mode).build()?;
            let mut round = Round::new(moe, bytes / TOKEN);
            let probe = clock.time(&mut round, 2, 1)?.min;
            let median = clock.time(&mut round, calls(share, probe), 1)?.median;
            round.moe.free().map(|()| Some(median))
        };
        let known = table.moe(bytes, false).0;
        // Whichever is first meets cold memory.
        time(known)?;
        let times = race(&MoeMode::ALL, Some(known), share, time)?;
        let before = points.last().map(|(_, before)| *before);
        if let Some(best) = kept(&times, Some(known), before.as_slice()) {
            reach(&mut points, bytes, best);
        }
    }
    open(&mut points);
    world.free(block)?;
    let row = |(up_to, mode)| MoeRow { hosts: Where::OneHost, up_to, mode, why: "measured" };
    Ok(points.into_iter().map(row).collect())
}

fn builder<'t>(world: &'t World, team: &'t Team<'t>, bytes: usize) -> Builder<'t> {
    let experts = TOP_K * world.n_pes();
    Moe::builder(world, team).experts(experts).max_tokens(bytes / TOKEN).hidden(HIDDEN).top_k(TOP_K)
}

/// Rounds of an exchange, each with the same tokens.
struct Round<'t> {
    moe: Moe<'t>,
    tokens: Vec<bf16>,
    experts: Vec<i32>,
    weights: Vec<f32>,
    /// What an expert works on.
    inputs: Vec<bf16>,
}

impl<'t> Round<'t> {
    fn new(moe: Moe<'t>, tokens: usize) -> Self {
        let (me, experts) = (moe.team().me(), TOP_K * moe.team().n_pes());
        // Any two, and all experts alike.
        let choices = (0..tokens).flat_map(|token| {
            let first = (token + 3 * me) % experts;
            [first, (first + 1 + token / experts % (experts - 1)) % experts].map(|expert| expert as i32)
        });
        Round {
            experts: choices.collect(),
            moe,
            tokens: vec![bf16::ONE; tokens * HIDDEN],
            weights: vec![0.5; tokens * TOP_K],
            inputs: Vec::new(),
        }
    }
}

impl Timed for Round<'_> {
    fn call(&mut self) -> Result<()> {
        let Round { moe, tokens, experts, weights, inputs } = self;
        let received = moe.dispatch(tokens, experts, weights)?;
        for expert in 0..received.experts().len() {
            let values = received.rows(expert).len() * HIDDEN;
            if inputs.len() < values {
                inputs.resize(values, bf16::ZERO);
            }
            received.gather(expert, &mut inputs[..values])?;
            received.scatter(expert, &inputs[..values])?;
        }
        moe.combine(tokens).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens stay what they are, for their weights add up to 1 and experts return what they get.
    #[test]
    fn rounds_of_both_modes_are_right() {
        for n in [1, 2, 3, 5] {
            let run = |world: &World| {
                let team = world.team();
                for (mode, bytes) in MoeMode::ALL.into_iter().zip([SIZES[0], SIZES[2]]) {
                    let mut round = Round::new(builder(world, &team, bytes).mode(mode).build()?, bytes / TOKEN);
                    round.tokens.iter_mut().enumerate().for_each(|(i, token)| *token = bf16::from(i as u8));
                    let before = round.tokens.clone();
                    round.call()?;
                    round.call()?;
                    assert_eq!(round.tokens, before);
                    let mut loads = vec![0; TOP_K * n];
                    round.experts.iter().for_each(|expert| loads[*expert as usize] += 1);
                    assert_eq!(loads.iter().sum::<usize>(), bytes / TOKEN * TOP_K);
                    round.moe.free()?;
                }
                Ok(())
            };
            shmem::local(n, run).unwrap();
        }
    }
}
