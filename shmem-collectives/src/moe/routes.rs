//! Where the tokens of a batch go: from the choices of a gate to lists of what each PE gets. Pure; allocates nothing once it is
//! made.
//!
//! A token goes to each PE once, whatever the number of its experts there, and has a *slot* there, in order of position. Its
//! values go to where that PE reads them: to the PE itself, or, once for all of a host, to one of them (`lands`). The output
//! of a choice lies in a row that follows from source, slot and choice alone: the source knows it without being told.

use std::ops::Range;

use super::refusal::{Refusal, What};
use super::shape::{CHOICE, HEAD, Placement, Shape};

/// The choices of a gate: for each token `top_k` experts (or -1), each with a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices<'a> {
    /// Values of tokens, in all.
    pub(crate) values: usize,
    pub(crate) experts: &'a [i32],
    pub(crate) weights: &'a [f32],
}

/// The PEs of a team as one of them sees them.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    pub(crate) me: usize,
    /// For each PE, the one to which the values of tokens go that it reads.
    pub(crate) lands: Vec<u32>,
    /// PEs that are left out.
    pub(crate) masked: Vec<bool>,
}

/// Where the output of a choice will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// There was no choice.
    Nowhere,
    /// On a PE that is left out.
    Lost,
    /// In a row of a PE.
    Row { pe: u32, row: u32 },
}

/// The tokens of a batch and where they go.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    pub(crate) tokens: usize,
    /// For each token, `top_k` choices.
    pub(crate) to: Vec<To>,
    pub(crate) weights: Vec<f32>,
    /// For each PE, the headers of what it gets: one behind the other.
    headers: Vec<u32>,
    header_ends: Vec<usize>,
    /// For each PE, the positions of the tokens whose values go there: one behind the other.
    loads: Vec<u32>,
    load_ends: Vec<usize>,
    /// Of each PE, for the token at hand: when it was last seen, the slot, the choices so far.
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    header: u32,
    load: u32,
    slot: u32,
    place: u32,
    choices: u32,
}

impl Routes {
    /// Room for the largest batch.
    pub(crate) fn new(shape: &Shape) -> Self {
        let (all, reach) = (shape.max_tokens * shape.top_k, shape.max_tokens * shape.top_k.min(shape.n));
        Routes {
            tokens: 0,
            to: Vec::with_capacity(all),
            weights: Vec::with_capacity(all),
            headers: Vec::with_capacity(reach * shape.header()),
            header_ends: vec![0; shape.n],
            loads: Vec::with_capacity(reach),
            load_ends: vec![0; shape.n],
            seen: vec![Seen::default(); shape.n],
        }
    }

    /// The headers for a PE, of `Shape::header` words each.
    pub(crate) fn headers(&self, pe: usize) -> &[u32] {
        &self.headers[part(&self.header_ends, pe)]
    }

    /// The positions of the tokens whose values go to a PE, in order of their places there.
    pub(crate) fn loads(&self, pe: usize) -> &[u32] {
        &self.loads[part(&self.load_ends, pe)]
    }

    /// Tokens whose values are sent, once for each PE they go to.
    pub(crate) fn load(&self) -> usize {
        self.loads.len()
    }

    /// Forgets the batch.
    pub(crate) fn clear(&mut self) {
        self.tokens = 0;
        self.to.clear();
        self.weights.clear();
        self.headers.clear();
        self.loads.clear();
        self.header_ends.fill(0);
        self.load_ends.fill(0);
    }

    /// Becomes another, without allocating: both have room for the largest batch.
    pub(crate) fn copy_from(&mut self, other: &Routes) {
        self.clear();
        self.tokens = other.tokens;
        self.to.extend_from_slice(&other.to);
        self.weights.extend_from_slice(&other.weights);
        self.headers.extend_from_slice(&other.headers);
        self.loads.extend_from_slice(&other.loads);
        self.header_ends.copy_from_slice(&other.header_ends);
        self.load_ends.copy_from_slice(&other.load_ends);
    }

    /// Finds the ways of a batch. What is refused leaves none.
    pub(crate) fn fill(
        &mut self,
        shape: &Shape,
        placement: &Placement,
        ways: &Ways,
        choices: Choices<'_>,
    ) -> Result<(), Refusal> {
        self.clear();
        let tokens = check(shape, ways.me, choices)?;
        let mut headers = std::mem::take(&mut self.header_ends);
        let mut loads = std::mem::take(&mut self.load_ends);
        let counted = self.count(shape, placement, ways, choices, (&mut headers, &mut loads));
        (self.header_ends, self.load_ends) = (headers, loads);
        counted.inspect_err(|_| {
            self.header_ends.fill(0);
            self.load_ends.fill(0);
        })?;
        self.tokens = tokens;
        self.list(shape, placement, ways, choices);
        Ok(())
    }

    /// How many tokens go to each PE, and whether all choices are good.
    fn count(
        &mut self,
        shape: &Shape,
        placement: &Placement,
        ways: &Ways,
        choices: Choices<'_>,
        (headers, loads): (&mut [usize], &mut [usize]),
    ) -> Result<(), Refusal> {
        self.seen.fill(Seen::default());
        for (token, experts) in choices.experts.chunks_exact(shape.top_k).enumerate() {
            let stamp = token as u32 + 1;
            for (i, &expert) in experts.iter().enumerate().filter(|(_, expert)| **expert != -1) {
                let (pe, experts_in_all) = (ways.me, shape.experts);
                let place = usize::try_from(expert).ok().and_then(|expert| placement.of.get(expert));
                let Some(&(to, _)) = place else {
                    return Err(Refusal::NoSuchExpert { pe, token, expert, experts: experts_in_all });
                };
                if experts[..i].contains(&expert) {
                    return Err(Refusal::Twice { pe, token, expert });
                }
                let (to, land) = (to as usize, ways.lands[to as usize] as usize);
                if ways.masked[to] {
                    continue;
                }
                if std::mem::replace(&mut self.seen[to].header, stamp) != stamp {
                    headers[to] += shape.header();
                }
                if std::mem::replace(&mut self.seen[land].load, stamp) != stamp {
                    loads[land] += 1;
                }
            }
        }
        Ok(())
    }

    /// Writes the lists, whose lengths are counted.
    fn list(&mut self, shape: &Shape, placement: &Placement, ways: &Ways, choices: Choices<'_>) {
        let width = shape.header();
        self.headers.resize(begin(&mut self.header_ends), 0);
        self.loads.resize(begin(&mut self.load_ends), 0);
        self.weights.extend_from_slice(choices.weights);
        self.seen.fill(Seen::default());
        // From here until the end, `header_ends` and `load_ends` say where each list goes on.
        for (token, experts) in choices.experts.chunks_exact(shape.top_k).enumerate() {
            let stamp = token as u32 + 1;
            for (i, &expert) in experts.iter().enumerate() {
                if expert == -1 {
                    self.to.push(To::Nowhere);
                    continue;
                }
                let (pe, local) = placement.of[expert as usize];
                let (to, land) = (pe as usize, ways.lands[pe as usize] as usize);
                if ways.masked[to] {
                    self.to.push(To::Lost);
                    continue;
                }
                if self.seen[land].load != stamp {
                    self.seen[land].load = stamp;
                    self.loads[self.load_ends[land]] = token as u32;
                    self.load_ends[land] += 1;
                    self.seen[land].place += 1;
                }
                if self.seen[to].header != stamp {
                    let at = self.header_ends[to];
                    let head = [token as u32, land as u32, self.seen[land].place - 1, 0];
                    self.headers[at..at + HEAD].copy_from_slice(&head);
                    self.header_ends[to] += width;
                    let seen = &mut self.seen[to];
                    (seen.header, seen.choices) = (stamp, 0);
                    seen.slot += 1;
                }
                let seen = &mut self.seen[to];
                let (slot, choice) = (seen.slot as usize - 1, seen.choices as usize);
                seen.choices += 1;
                let header = &mut self.headers[self.header_ends[to] - width..][..width];
                header[HEAD - 1] += 1;
                let weight = choices.weights[token * shape.top_k + i].to_bits();
                header[HEAD + CHOICE * choice..][..CHOICE].copy_from_slice(&[local, i as u32, weight]);
                self.to.push(To::Row { pe, row: shape.row(ways.me, slot, choice) as u32 });
            }
        }
    }
}

/// How many tokens there are, if all lengths go together.
fn check(shape: &Shape, pe: usize, choices: Choices<'_>) -> Result<usize, Refusal> {
    let tokens = choices.values / shape.hidden;
    if tokens > shape.max_tokens {
        return Err(Refusal::TooManyTokens { pe, given: tokens, max: shape.max_tokens });
    }
    let lengths = [
        (What::Tokens, choices.values, tokens * shape.hidden),
        (What::Experts, choices.experts.len(), tokens * shape.top_k),
        (What::Weights, choices.weights.len(), tokens * shape.top_k),
    ];
    match lengths.into_iter().find(|(_, given, needed)| given != needed) {
        Some((what, given, needed)) => Err(Refusal::Length { pe, what, given, needed }),
        None => Ok(tokens),
    }
}

/// Turns lengths into where each part begins; the length of all.
fn begin(lengths: &mut [usize]) -> usize {
    lengths.iter_mut().fold(0, |start, length| {
        let end = start + *length;
        *length = start;
        end
    })
}

/// Part `i` of those that end at `ends`.
fn part(ends: &[usize], i: usize) -> Range<usize> {
    (if i == 0 { 0 } else { ends[i - 1] })..ends[i]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { n: 3, experts: 5, max_tokens: 4, hidden: 2, top_k: 3, local: 2, token: 4, output: 4, remote: false };

    fn filled(ways: &Ways, experts: &[i32]) -> Result<Routes, Refusal> {
        let mut routes = Routes::new(&SHAPE);
        let weights: Vec<f32> = (0..experts.len()).map(|i| i as f32).collect();
        let choices = Choices { values: experts.len() / 3 * 2, experts, weights: &weights };
        // Experts 0 and 1 on PE 0, 2 and 3 on PE 1, 4 on PE 2.
        routes.fill(&SHAPE, &Placement::new(&[0, 0, 1, 1, 2], 3), ways, choices).map(|()| routes)
    }

    fn ways() -> Ways {
        Ways { me: 1, lands: vec![0, 1, 2], masked: vec![false; 3] }
    }

    #[test]
    fn a_token_goes_to_a_pe_once() {
        let routes = filled(&ways(), &[3, 0, 2, -1, 4, -1, 2, 4, 1]).unwrap();
        assert_eq!((routes.loads(0), routes.loads(1), routes.loads(2)), (&[0, 2][..], &[0, 2][..], &[1, 2][..]));
        assert_eq!(routes.load(), 6);
        let first = &routes.headers(1)[..10];
        assert_eq!(first, [0, 1, 0, 2, 1, 0, 0_f32.to_bits(), 0, 2, 2_f32.to_bits()]);
        assert_eq!(
            routes.headers(2),
            [1, 2, 0, 1, 0, 1, 4_f32.to_bits(), 0, 0, 0, 2, 2, 1, 1, 0, 1, 7_f32.to_bits(), 0, 0, 0]
        );
        let row = |pe, slot, choice| To::Row { pe, row: SHAPE.row(1, slot, choice) as u32 };
        let rows = [row(1, 0, 0), row(0, 0, 0), row(1, 0, 1), To::Nowhere, row(2, 0, 0), To::Nowhere];
        assert_eq!(routes.to[..6], rows);
        assert_eq!(routes.to[6..], [row(1, 1, 0), row(2, 1, 0), row(0, 1, 0)]);
    }

    #[test]
    fn a_token_lands_on_a_host_once() {
        let routes = filled(&Ways { lands: vec![0, 1, 1], ..ways() }, &[3, 4, 2, 4, 0, -1]).unwrap();
        assert_eq!((routes.loads(0), routes.loads(1), routes.loads(2)), (&[1][..], &[0, 1][..], &[][..]));
        assert_eq!(routes.headers(2)[..HEAD], [0, 1, 0, 1]);
        assert_eq!(routes.headers(2)[10..][..HEAD], [1, 1, 1, 1]);
    }

    #[test]
    fn what_is_left_out_gets_nothing() {
        let routes = filled(&Ways { masked: vec![false, false, true], ..ways() }, &[4, 0, -1]).unwrap();
        assert_eq!((routes.headers(2).len(), routes.loads(2).len(), routes.to[0]), (0, 0, To::Lost));
    }

    #[test]
    fn what_is_wrong_is_refused_and_leaves_nothing() {
        let refused = |experts: &[i32]| filled(&ways(), experts).unwrap_err();
        assert_eq!(refused(&[0, 1, 5]), Refusal::NoSuchExpert { pe: 1, token: 0, expert: 5, experts: 5 });
        assert_eq!(refused(&[0, 1, 2, 0, -2, 1]), Refusal::NoSuchExpert { pe: 1, token: 1, expert: -2, experts: 5 });
        assert_eq!(refused(&[4, 1, 4]), Refusal::Twice { pe: 1, token: 0, expert: 4 });
        assert_eq!(refused(&[-1; 15]), Refusal::TooManyTokens { pe: 1, given: 5, max: 4 });
        let mut routes = filled(&ways(), &[0, 1, 2]).unwrap();
        let short = Choices { values: 4, experts: &[0, 1, 2], weights: &[1.0; 6] };
        let placement = Placement::new(&[0, 0, 1, 1, 2], 3);
        let wrong = Refusal::Length { pe: 1, what: What::Experts, given: 3, needed: 6 };
        assert_eq!(routes.fill(&SHAPE, &placement, &ways(), short), Err(wrong));
        assert_eq!((routes.tokens, routes.load(), routes.headers(0).len()), (0, 0, 0));
        let odd = Choices { values: 3, experts: &[0, 1, 2], weights: &[1.0; 3] };
        let wrong = Refusal::Length { pe: 1, what: What::Tokens, given: 3, needed: 2 };
        assert_eq!(routes.fill(&SHAPE, &placement, &ways(), odd), Err(wrong));
    }
}
