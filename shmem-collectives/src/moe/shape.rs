//! The size of an exchange, equal on all PEs, and where everything lies in its memory: pure arithmetic.

use std::ops::Range;

use shmem::{ErrorKind, Result};

use super::refusal::RECORD;
use crate::call::digest;

/// Bytes between the words that different PEs write: a pair of cache lines.
const LINE: usize = 128;
/// 64-bit words from one PE's flag to the next.
pub(crate) const FLAG: usize = LINE / size_of::<u64>();
/// Words of a header, of 32 bits: the token's position at its source, the PE where it lies and its place there, how many
/// experts follow.
pub(crate) const HEAD: usize = 4;
/// Words for each expert: its place among those of the PE, its place in the token's top-k, the weight.
pub(crate) const CHOICE: usize = 3;
/// The most experts of a token: a fold takes so many sources without allocating.
pub(crate) const MOST: usize = 16;
/// The most experts of an exchange: every PE has a list of all of them.
pub const MOST_EXPERTS: usize = 1 << 20;

/// What an exchange was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// PEs.
    pub(crate) n: usize,
    pub(crate) experts: usize,
    pub(crate) max_tokens: usize,
    pub(crate) hidden: usize,
    pub(crate) top_k: usize,
    /// The most experts of a token on one PE.
    pub(crate) local: usize,
    /// Bytes of a token on its way, and of an output.
    pub(crate) token: usize,
    pub(crate) output: usize,
    /// Whether outputs must be sent back, not all PEs' memory being mapped.
    pub(crate) remote: bool,
}

/// Where everything lies, in bytes from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of each source, what it has sent: a flag.
    pub(crate) arrivals: Range<usize>,
    /// Of each PE, whether it has done with this PE's tokens: a flag.
    pub(crate) credits: Range<usize>,
    /// Of each PE, whether one has left it out: a word.
    pub(crate) gone: Range<usize>,
    /// Of each source, a header for each of its tokens.
    pub(crate) headers: Range<usize>,
    /// Of each source, its tokens.
    pub(crate) tokens: Range<usize>,
    /// Of each source and token, what its experts here make of it.
    pub(crate) outputs: Range<usize>,
    /// Of each token of this PE, what experts elsewhere have made of it.
    pub(crate) returned: Range<usize>,
}

impl Shape {
    /// Words of a header.
    pub(crate) fn header(&self) -> usize {
        HEAD + CHOICE * self.local
    }

    /// Words of the headers of one source, or of its record.
    pub(crate) fn headers(&self) -> usize {
        (self.max_tokens * self.header()).max(RECORD * 2)
    }

    /// The row of the output of expert `choice` (of those on its PE) for the token at `slot` of `source`.
    pub(crate) fn row(&self, source: usize, slot: usize, choice: usize) -> usize {
        (source * self.max_tokens + slot) * self.local + choice
    }

    /// Where everything lies.
    ///
    /// # Errors
    /// [`Overflow`](ErrorKind::Overflow) if no address can hold it, or its rows have no 32-bit number.
    pub(crate) fn places(&self) -> Result<Places> {
        let overflow = ErrorKind::Overflow { count: self.max_tokens, size: self.token };
        if self.max_tokens >= 1 << 30 {
            return Err(overflow.into());
        }
        let n = self.n as u128;
        let (tokens, local) = (self.max_tokens as u128, self.local as u128);
        let flags = n * LINE as u128;
        let header = HEAD as u128 + CHOICE as u128 * local;
        let headers = n * (tokens * header).max(RECORD as u128 * 2) * 4;
        let outputs = n * tokens * local * self.output as u128;
        let returned = if self.remote { tokens * self.top_k as u128 * self.output as u128 } else { 0 };
        let sizes = [flags, flags, n * 8, headers, n * tokens * self.token as u128, outputs, returned];
        let all: u128 = sizes.iter().sum::<u128>() + (sizes.len() * LINE) as u128;
        if all > isize::MAX as u128 || n * tokens * local.max(1) >= u128::from(u32::MAX) {
            return Err(overflow.into());
        }
        let mut end = 0;
        let [arrivals, credits, gone, headers, tokens, outputs, returned] = sizes.map(|size| {
            let start = end;
            end = (start + size as usize).next_multiple_of(LINE);
            start..start + size as usize
        });
        Ok(Places { arrivals, credits, gone, headers, tokens, outputs, returned })
    }
}

impl Places {
    /// Bytes of all together.
    pub(crate) fn bytes(&self) -> usize {
        self.returned.end.next_multiple_of(LINE)
    }
}

/// Which PE has which experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Of each expert, its PE and its place among those of the PE.
    pub(crate) of: Vec<(u32, u32)>,
    /// The most that a PE has.
    pub(crate) largest: usize,
    /// What tells it from others.
    pub(crate) print: u64,
}

impl Placement {
    /// By the PE of each expert, all of which exist.
    pub(crate) fn new(pes: &[usize], n: usize) -> Self {
        let mut counts = vec![0_u32; n];
        let mut next = |pe: &usize| {
            let place = counts[*pe];
            counts[*pe] += 1;
            (*pe as u32, place)
        };
        let of = pes.iter().map(&mut next).collect();
        let print = digest(1, pes.iter().map(|pe| *pe as u64));
        Placement { of, print, largest: counts.into_iter().max().unwrap_or(0) as usize }
    }

    /// The experts of a PE, in order.
    pub(crate) fn on(&self, pe: usize) -> Vec<usize> {
        (0..self.of.len()).filter(|expert| self.of[*expert].0 as usize == pe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape { n: 3, experts: 8, max_tokens: 5, hidden: 7, top_k: 2, local: 2, token: 14, output: 14, remote: true }
    }

    #[test]
    fn nothing_overlaps_and_everything_has_room() {
        let places = shape().places().unwrap();
        let Places { arrivals, credits, gone, headers, tokens, outputs, returned } = places.clone();
        let all = [arrivals, credits, gone, headers, tokens, outputs, returned];
        for pair in all.windows(2) {
            assert!(pair[0].end <= pair[1].start && pair[1].start.is_multiple_of(LINE), "{all:?}");
        }
        let lengths = all.map(|range| range.len());
        assert_eq!(lengths, [384, 384, 24, 3 * 5 * 10 * 4, 3 * 5 * 14, 3 * 5 * 2 * 14, 5 * 2 * 14]);
        assert!(places.bytes() >= places.returned.end);
        assert_eq!(Shape { remote: false, ..shape() }.places().unwrap().returned.len(), 0);
    }

    #[test]
    fn what_no_address_can_hold_is_an_error() {
        assert!(Shape { max_tokens: 1 << 29, token: usize::MAX / 2, ..shape() }.places().is_err());
        assert!(Shape { max_tokens: 1 << 30, ..shape() }.places().is_err());
        let largest = Shape { n: 1 << 16, max_tokens: usize::MAX, local: 16, output: usize::MAX / 4, ..shape() };
        assert!(largest.places().is_err());
    }

    #[test]
    fn a_record_fits_where_headers_are_short() {
        assert!(Shape { max_tokens: 1, local: 0, ..shape() }.headers() >= 2 * RECORD);
    }

    #[test]
    fn experts_are_numbered_on_their_pe() {
        let placement = Placement::new(&[1, 0, 1, 1, 2], 4);
        assert_eq!(placement.of, [(1, 0), (0, 0), (1, 1), (1, 2), (2, 0)]);
        assert_eq!((placement.largest, placement.on(1), placement.on(3)), (3, vec![0, 2, 3], vec![]));
    }
}
