//! What a PE has received, by expert: made of the headers that came with the tokens. Pure; allocates nothing once it is made.

use super::shape::{CHOICE, HEAD, Shape};

/// A token for an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    source: u32,
    position: u32,
    weight: f32,
    /// The PE where the token lies, and its place there among those of its source.
    pub(super) land: u32,
    pub(super) place: u32,
    /// Which of the token's choices this is.
    pub(super) choice: u32,
    /// The row of the output.
    pub(super) output: u32,
}

impl Row {
    /// The PE that has sent the token: its number in the team.
    pub fn source(&self) -> usize {
        self.source as usize
    }

    /// The token's position there.
    pub fn position(&self) -> usize {
        self.position as usize
    }

    /// The weight that its gate gave this expert. It is applied at the source, when outputs are combined.
    pub fn weight(&self) -> f32 {
        self.weight
    }
}

/// The rows of all experts of a PE: of each expert by source and position.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// Where the rows of each expert end.
    ends: Vec<usize>,
    /// Headers of all sources, one behind the other, and where those of each end.
    words: Vec<u32>,
    word_ends: Vec<usize>,
}

impl Rows {
    /// Room for all tokens of all PEs, for a PE with so many experts.
    pub(crate) fn new(shape: &Shape, experts: usize) -> Self {
        let tokens = shape.n * shape.max_tokens;
        Rows {
            rows: Vec::with_capacity(tokens * shape.local.min(experts)),
            ends: vec![0; experts],
            words: Vec::with_capacity(tokens * shape.header()),
            word_ends: vec![0; shape.n],
        }
    }

    /// The rows of an expert, by its place among those of the PE.
    pub(crate) fn of(&self, expert: usize) -> &[Row] {
        self.ends.get(expert).map_or(&[], |end| {
            let start = if expert == 0 { 0 } else { self.ends[expert - 1] };
            &self.rows[start..*end]
        })
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Row] {
        &self.rows
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.words.clear();
        self.ends.fill(0);
        self.word_ends.fill(0);
    }

    /// Becomes another, without allocating: both have room for everything.
    pub(crate) fn copy_from(&mut self, other: &Rows) {
        self.clear();
        self.rows.extend_from_slice(&other.rows);
        self.ends.copy_from_slice(&other.ends);
    }

    /// Room for the headers of the next source, of so many tokens; those of the sources before come first.
    pub(crate) fn headers_of(&mut self, shape: &Shape, source: usize, tokens: usize) -> &mut [u32] {
        let start = self.words.len();
        self.words.resize(start + tokens * shape.header(), 0);
        self.word_ends[source] = self.words.len();
        &mut self.words[start..]
    }

    /// Makes the rows of the headers of all sources.
    pub(crate) fn sort(&mut self, shape: &Shape) {
        let width = shape.header();
        let choices = |header: &[u32]| -> usize { (header[HEAD - 1] as usize).min(shape.local) };
        self.ends.fill(0);
        for header in self.words.chunks_exact(width) {
            for choice in header[HEAD..].chunks_exact(CHOICE).take(choices(header)) {
                if let Some(count) = self.ends.get_mut(choice[0] as usize) {
                    *count += 1;
                }
            }
        }
        // From lengths to where each begins; filling makes them ends.
        let mut all = 0;
        for end in &mut self.ends {
            all += std::mem::replace(end, all);
        }
        let none = Row { source: 0, position: 0, weight: 0.0, land: 0, place: 0, choice: 0, output: 0 };
        self.rows.clear();
        self.rows.resize(all, none);
        let mut start = 0;
        for (source, &end) in self.word_ends.iter().enumerate() {
            let headers = &self.words[start..end.max(start)];
            start = end.max(start);
            for (slot, header) in headers.chunks_exact(width).enumerate() {
                let [position, land, place] = [header[0], header[1], header[2]];
                for (i, of) in header[HEAD..].chunks_exact(CHOICE).take(choices(header)).enumerate() {
                    let output = shape.row(source, slot, i) as u32;
                    let (choice, weight) = (of[1], f32::from_bits(of[2]));
                    if let Some(at) = self.ends.get_mut(of[0] as usize) {
                        self.rows[*at] = Row { source: source as u32, position, weight, land, place, choice, output };
                        *at += 1;
                    }
                }
            }
        }
    }

    /// Leaves out the rows of some sources.
    pub(crate) fn keep(&mut self, source: impl Fn(usize) -> bool) {
        let (mut kept, mut start) = (0, 0);
        for end in &mut self.ends {
            let range = start..*end;
            start = range.end;
            for i in range {
                if source(self.rows[i].source()) {
                    self.rows[kept] = self.rows[i];
                    kept += 1;
                }
            }
            *end = kept;
        }
        self.rows.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { n: 3, experts: 6, max_tokens: 4, hidden: 2, top_k: 2, local: 2, token: 4, output: 4, remote: false };

    fn header(position: u32, choices: &[(u32, u32, f32)]) -> Vec<u32> {
        let mut words = vec![position, 1, position + 1, choices.len() as u32];
        words.extend(choices.iter().flat_map(|(expert, choice, weight)| [*expert, *choice, weight.to_bits()]));
        words.resize(SHAPE.header(), 7);
        words
    }

    fn rows() -> Rows {
        let mut rows = Rows::new(&SHAPE, 3);
        let said = [
            (0, vec![header(2, &[(2, 0, 0.5), (0, 1, 0.25)])]),
            (2, vec![header(0, &[(2, 1, 1.5)]), header(3, &[(0, 0, 2.5)])]),
        ];
        for (source, headers) in said {
            rows.headers_of(&SHAPE, source, headers.len()).copy_from_slice(&headers.concat());
        }
        rows.sort(&SHAPE);
        rows
    }

    #[test]
    fn rows_are_by_expert_then_source_then_position() {
        let rows = rows();
        let told = |expert: usize| -> Vec<(usize, usize, f32)> {
            rows.of(expert).iter().map(|row| (row.source(), row.position(), row.weight())).collect()
        };
        assert_eq!(told(0), [(0, 2, 0.25), (2, 3, 2.5)]);
        assert_eq!(told(1), []);
        assert_eq!(told(2), [(0, 2, 0.5), (2, 0, 1.5)]);
        assert_eq!(told(9), []);
        let outputs: Vec<usize> = rows.all().iter().map(|row| row.output as usize).collect();
        assert_eq!(outputs, [SHAPE.row(0, 0, 1), SHAPE.row(2, 1, 0), SHAPE.row(0, 0, 0), SHAPE.row(2, 0, 0)]);
        assert_eq!((rows.of(0)[0].land, rows.of(0)[0].place, rows.of(0)[0].choice), (1, 3, 1));
    }

    #[test]
    fn sources_can_be_left_out() {
        let mut kept = rows();
        kept.keep(|source| source != 0);
        assert_eq!((kept.of(0).len(), kept.of(1).len(), kept.of(2).len(), kept.all().len()), (1, 0, 1, 2));
        assert!(kept.all().iter().all(|row| row.source() == 2));
        let mut copy = Rows::new(&SHAPE, 3);
        copy.copy_from(&kept);
        assert_eq!(copy.all(), kept.all());
        kept.clear();
        assert!(kept.all().is_empty() && kept.of(2).is_empty());
    }
}
