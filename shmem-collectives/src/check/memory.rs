//! The memory of all PEs as the checker sees it: what every element holds, as a symbolic sum, and who touched it last.
//!
//! Sums are interned: one number is one sum in one order, so that equal means equal to the bit. Of a sum only its
//! contributions matter besides: one element of one call, from a set of PEs.

use std::collections::HashMap;

use super::Flaw;
use super::spec::Wanted;
use crate::plan::Buf;

/// How much of each PE's run another has heard of.
pub(super) type Clock = Vec<u32>;

/// A symbolic value; [`UNKNOWN`] is whatever the caller, or nobody, left there.
pub(super) type Value = u32;

pub(super) const UNKNOWN: Value = 0;

/// An element of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pe: usize,
    pub(super) buf: Buf,
    /// Which slot area; 0 for the other buffers.
    pub(super) area: usize,
    pub(super) element: usize,
}

impl Place {
    pub(super) fn plus(self, i: usize) -> Place {
        Place { element: self.element + i, ..self }
    }

    pub(super) fn partly_overlaps(&self, other: &Place, len: usize) -> bool {
        (self.pe, self.buf, self.area) == (other.pe, other.buf, other.area)
            && self.element != other.element
            && self.element.abs_diff(other.element) < len
    }
}

/// What an element holds and who touched it.
#[derive(Clone, Default)]
struct Cell {
    value: Value,
    /// The PE that wrote last, and its clock at that.
    write: Option<(u32, u32)>,
    reads: Vec<(u32, u32)>,
}

#[derive(PartialEq, Eq, Hash)]
enum Sum {
    One(usize, usize, usize),
    Fold(Box<[Value]>),
}

/// The contributions to a sum.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    call: usize,
    element: usize,
    pes: u128,
}

pub(super) struct Memory {
    cells: Vec<Vec<Cell>>,
    sums: HashMap<Sum, Value>,
    terms: Vec<Terms>,
    /// The sum that the first PE to leave a call got, where all must get the same.
    agreed: HashMap<(usize, usize), Value>,
}

impl Memory {
    pub(super) fn new(n: usize) -> Self {
        let nothing = Terms { call: usize::MAX, element: 0, pes: 0 };
        Memory { cells: vec![Vec::new(); 5 * n], sums: HashMap::new(), terms: vec![nothing], agreed: HashMap::new() }
    }

    fn cell(&mut self, place: Place) -> &mut Cell {
        let cells = &mut self.cells[5 * place.pe + kind(place.buf, place.area)];
        if cells.len() <= place.element {
            cells.resize(place.element + 1, Cell::default());
        }
        &mut cells[place.element]
    }

    /// A read, checked against the last write.
    pub(super) fn read(&mut self, pe: usize, clock: &Clock, place: Place) -> Result<Value, Flaw> {
        let cell = self.cell(place);
        if let Some((writer, when)) = cell.write
            && writer as usize != pe
            && clock[writer as usize] <= when
        {
            return Err(Flaw(format!("PE {pe} reads {place:?} while PE {writer} may write it")));
        }
        let now = clock[pe];
        match cell.reads.iter_mut().find(|(reader, _)| *reader as usize == pe) {
            Some(read) => read.1 = now,
            None => cell.reads.push((pe as u32, now)),
        }
        Ok(cell.value)
    }

    /// A write, checked against all earlier accesses.
    pub(super) fn write(&mut self, pe: usize, clock: &Clock, place: Place, value: Value) -> Result<(), Flaw> {
        let cell = self.cell(place);
        for &(other, when) in cell.write.iter().chain(&cell.reads) {
            if other as usize != pe && clock[other as usize] <= when {
                return Err(Flaw(format!("PE {pe} writes {place:?} while PE {other} may use it")));
            }
        }
        cell.value = value;
        cell.write = Some((pe as u32, clock[pe]));
        cell.reads.clear();
        Ok(())
    }

    /// A PE's buffer passes into other hands.
    pub(super) fn forget(&mut self, pe: usize, clock: &Clock, buf: Buf, area: usize) -> Result<(), Flaw> {
        for element in 0..self.cells[5 * pe + kind(buf, area)].len() {
            self.write(pe, clock, Place { pe, buf, area, element }, UNKNOWN)?;
        }
        Ok(())
    }

    fn intern(&mut self, sum: Sum, terms: Terms) -> Value {
        let next = self.terms.len() as Value;
        let value = *self.sums.entry(sum).or_insert(next);
        if value == next {
            self.terms.push(terms);
        }
        value
    }

    /// An element of a PE's source.
    pub(super) fn named(&mut self, call: usize, pe: usize, element: usize) -> Value {
        self.intern(Sum::One(call, pe, element), Terms { call, element, pes: 1 << pe })
    }

    /// The sum of some values, which must be disjoint contributions to one element.
    pub(super) fn combined(&mut self, pe: usize, parts: &[Value]) -> Result<Value, Flaw> {
        if parts.contains(&UNKNOWN) {
            return Err(Flaw(format!("PE {pe} reads an element before it was written")));
        }
        if let [one] = parts {
            return Ok(*one);
        }
        let mut all = self.terms[parts[0] as usize];
        for part in &parts[1..] {
            let terms = self.terms[*part as usize];
            if (terms.call, terms.element) != (all.call, all.element) || terms.pes & all.pes != 0 {
                return Err(Flaw(format!(
                    "PE {pe} combines element {} of PEs {:b} in call {} with element {} of PEs {:b} in call {}",
                    all.element, all.pes, all.call, terms.element, terms.pes, terms.call
                )));
            }
            all.pes |= terms.pes;
        }
        Ok(self.intern(Sum::Fold(parts.into()), all))
    }

    /// Whether an output element is what it must be.
    pub(super) fn judge(
        &mut self,
        pe: usize,
        i: usize,
        value: Value,
        call: usize,
        wanted: &Wanted,
        same: bool,
    ) -> Result<(), Flaw> {
        let got = self.terms[value as usize];
        let want = Terms { call, element: wanted.element, pes: wanted.pes };
        // What no contribution goes to stays as it is: nothing, or in place the PE's own.
        let untouched = value == UNKNOWN || got == Terms { call, element: i, pes: 1 << pe };
        if got != want && !(wanted.pes == 0 && untouched) {
            return Err(Flaw(format!(
                "element {i} of PE {pe}'s target is element {} of PEs {:b} in call {}; it must be element {} of \
                 PEs {:b} in call {call}",
                got.element, got.pes, got.call, want.element, want.pes
            )));
        }
        if same && *self.agreed.entry((call, i)).or_insert(value) != value {
            return Err(Flaw(format!("element {i} of PE {pe}'s target is combined in another order than elsewhere")));
        }
        Ok(())
    }
}

fn kind(buf: Buf, area: usize) -> usize {
    match buf {
        Buf::Src => 0,
        Buf::Dst => 1,
        Buf::Work => 2,
        Buf::Slot => 3 + area,
    }
}
