//! A serial mixture of experts: what every PE brings in a round, what its experts must receive, and what the sums must be,
//! bit for bit. All of it follows from a seed, so that each PE can say what every other one does.
#![allow(dead_code, reason = "every test file is a crate of its own and uses a part of this")]

use shmem::Result;
use shmem_collectives::moe::{BLOCK, Moe, Payload, Received};
use shmem_collectives::op::Number;

use crate::common::Random;

/// How a gate chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Routing {
    /// Any expert, as likely as the others, or none.
    Uniform,
    /// Half of the choices of the first two.
    Skewed,
    /// The last one, of all tokens.
    Single,
}

/// The size of a mixture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) experts: usize,
    pub(crate) max_tokens: usize,
    pub(crate) hidden: usize,
    pub(crate) top_k: usize,
}

/// What a PE brings in a round.
#[derive(Clone)]
pub(crate) struct Batch<P: Payload> {
    pub(crate) tokens: Vec<P::Elem>,
    pub(crate) experts: Vec<i32>,
    pub(crate) weights: Vec<f32>,
}

impl Size {
    /// What PE `pe` brings: from no tokens to all that there may be.
    pub(crate) fn batch<P: Payload>(&self, seed: u64, pe: usize, routing: Routing) -> Batch<P> {
        let mut random = Random(seed.wrapping_mul(0x9e37) ^ (pe as u64) << 40);
        let tokens = match random.below(4) {
            0 => 0,
            1 => self.max_tokens,
            _ => random.below(self.max_tokens + 1),
        };
        let values = (0..tokens * self.hidden).map(|_| (random.below(4001) as f32 - 2000.0) / 64.0);
        let tokens_of = values.map(P::Elem::narrow).collect();
        let mut experts = Vec::new();
        for _ in 0..tokens {
            let start = experts.len();
            for choice in 0..self.top_k {
                let any = random.below(self.experts) as i32;
                let expert = match routing {
                    Routing::Uniform if random.below(6) == 0 => -1,
                    Routing::Uniform => any,
                    Routing::Skewed if random.below(2) == 0 => (random.below(2) % self.experts) as i32,
                    Routing::Skewed => any,
                    Routing::Single if choice == 0 => self.experts as i32 - 1,
                    Routing::Single => -1,
                };
                let twice = experts[start..].contains(&expert);
                experts.push(if twice { -1 } else { expert });
            }
        }
        let weights = (0..experts.len()).map(|_| random.below(1000) as f32 / 999.0 - 0.25).collect();
        Batch { tokens: tokens_of, experts, weights }
    }

    /// The choices of a batch that are of some experts.
    pub(crate) fn choices<P: Payload>(&self, batch: &Batch<P>, of: impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
        let chosen = batch.experts.iter().enumerate().filter(|(_, expert)| **expert >= 0 && of(**expert as usize));
        chosen.map(|(i, _)| (i / self.top_k, i % self.top_k)).collect()
    }

    /// The same tokens by the same choices, with other values.
    pub(crate) fn again<P: Payload>(&self, batch: &Batch<P>, seed: u64) -> Batch<P> {
        let mut random = Random(seed);
        let values = batch.tokens.iter().map(|_| P::Elem::narrow(random.below(999) as f32 / 8.0));
        Batch { tokens: values.collect(), ..batch.clone() }
    }

    /// What must come out of a batch, where the outputs of some choices are missing.
    pub(crate) fn sums<P: Payload>(&self, batch: &Batch<P>, missing: &[(usize, usize)]) -> Vec<P::Elem> {
        let mut sums = Vec::new();
        for (position, token) in batch.tokens.chunks_exact(self.hidden).enumerate() {
            let choices = position * self.top_k..(position + 1) * self.top_k;
            let is_missing = |i: usize| missing.contains(&(position, i % self.top_k));
            let there = choices.filter(|i| batch.experts[*i] >= 0 && !is_missing(*i));
            let parts: Vec<(f32, Vec<P::Elem>)> = there
                .map(|i| (batch.weights[i], expert::<P>(batch.experts[i] as usize, &arrived::<P>(token))))
                .collect();
            for i in 0..self.hidden {
                let terms = parts.iter().map(|(weight, output)| output[i].widen() * weight);
                sums.push(P::Elem::narrow(terms.reduce(|left, right| left + right).unwrap_or(0.0)));
            }
        }
        sums
    }
}

/// A token as its experts see it.
pub(crate) fn arrived<P: Payload>(token: &[P::Elem]) -> Vec<P::Elem> {
    let mut wire = vec![0; P::bytes(token.len())];
    P::encode(token, &mut wire);
    let mut values = token.to_vec();
    P::decode(&wire, &mut values);
    values
}

/// What an expert makes of a token.
pub(crate) fn expert<P: Payload>(expert: usize, token: &[P::Elem]) -> Vec<P::Elem> {
    let of =
        |(i, value): (usize, &P::Elem)| value.widen() * (1.0 + expert as f32 / 8.0) + (i % 7) as f32 - expert as f32;
    token.iter().enumerate().map(|(i, value)| P::Elem::narrow(of((i, value)))).collect()
}

/// The bits of some values, to be compared.
pub(crate) fn bits<T: shmem::Elem>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Lets all experts of this PE work: every other one on rows where they lie, the rest on copies.
pub(crate) fn work<P: Payload>(received: &Received<'_, P>, hidden: usize) -> Result<()> {
    for (local, &name) in received.experts().iter().enumerate() {
        let rows = received.rows(local);
        if local % 2 == 0 {
            let mut token = vec![P::Elem::narrow(0.0); hidden];
            for row in rows {
                received.read(row, &mut token)?;
                received.output(row)?.copy_from(&expert::<P>(name, &token))?;
            }
        } else {
            let mut tokens = vec![P::Elem::narrow(0.0); rows.len() * hidden];
            received.gather(local, &mut tokens)?;
            let outputs: Vec<P::Elem> =
                tokens.chunks_exact(hidden).flat_map(|token| expert::<P>(name, token)).collect();
            received.scatter(local, &outputs)?;
        }
    }
    Ok(())
}

/// Checks that this PE's experts have received what all PEs' batches say, each with its values.
pub(crate) fn check_rows<P: Payload>(received: &Received<'_, P>, size: &Size, batches: &[Batch<P>]) -> Result<()> {
    for (local, &expert) in received.experts().iter().enumerate() {
        let mut rows = received.rows(local).iter();
        for (source, batch) in batches.iter().enumerate() {
            for (i, _) in batch.experts.iter().enumerate().filter(|(_, chosen)| **chosen == expert as i32) {
                let (row, position) = (rows.next().expect("a row"), i / size.top_k);
                assert_eq!((row.source(), row.position(), row.weight()), (source, position, batch.weights[i]));
                let mut token = vec![P::Elem::narrow(0.0); size.hidden];
                received.read(row, &mut token)?;
                let place = received.token(row)?;
                let blocks = if P::PLAIN { 0 } else { size.hidden.div_ceil(BLOCK) };
                assert_eq!((place.values.len(), place.scales.len()), (size.hidden, blocks));
                let sent = &batch.tokens[position * size.hidden..][..size.hidden];
                assert_eq!(bits(&token), bits(&arrived::<P>(sent)), "{row:?} of expert {expert}");
            }
        }
        assert_eq!(rows.next(), None, "of expert {expert}");
    }
    Ok(())
}

/// A round, checked on all sides.
pub(crate) fn round<P: Payload>(moe: &mut Moe<'_, P>, size: &Size, seed: u64, routing: Routing) -> Result<()> {
    let (me, n) = (moe.team().me(), moe.team().n_pes());
    let batches: Vec<Batch<P>> = (0..n).map(|pe| size.batch(seed, pe, routing)).collect();
    let Batch { tokens, experts, weights } = &batches[me];
    let received = moe.dispatch(tokens, experts, weights)?;
    check_rows(&received, size, &batches)?;
    work(&received, size.hidden)?;
    combine(moe, size, &batches[me]).map(|missing| assert_eq!(missing, []))
}

/// Combines, checks the sums, and says which outputs are missing in them.
pub(crate) fn combine<P: Payload>(moe: &mut Moe<'_, P>, size: &Size, batch: &Batch<P>) -> Result<Vec<(usize, usize)>> {
    let me = moe.team().me();
    let mut sums = vec![P::Elem::narrow(7.0); batch.tokens.len()];
    let report = moe.combine(&mut sums)?;
    let missing = report.missing.to_vec();
    assert!(bits(&sums) == bits(&size.sums(batch, &missing)), "PE {me}, {report}: {:?}", batch.experts);
    Ok(missing)
}
