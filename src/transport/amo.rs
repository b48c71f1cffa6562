//! Atomic operations as data, and any of them in terms of the two that network cards have: to add to a word of 64 bits,
//! and to compare and swap one.
//!
//! Of the others, each is a loop of compare-and-swap on the aligned 64-bit word that holds the operand: atomic against
//! all that goes through the same card, whatever its width. Knows nothing of cards.

use crate::elem::Width;

/// An atomic operation as data, for routes that send it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amo {
    pub(crate) op: AmoOp,
    pub(crate) width: Width,
    pub(crate) operand: u64,
    /// The value that a `CompareSwap` expects.
    pub(crate) expected: u64,
}

/// What an atomic operation does; all return what the word held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmoOp {
    Fetch,
    Set,
    Swap,
    CompareSwap,
    Add,
    And,
    Or,
    Xor,
}

/// What a card does by itself to an aligned word of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardAmo {
    Add(u64),
    CompareSwap { expected: u64, new: u64 },
}

/// Where an operand lies: the aligned word, and the bits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// The offset of the word.
    pub(crate) at: usize,
    shift: u32,
    mask: u64,
}

impl Field {
    /// That of an operand at offset `at`, a multiple of its width.
    pub(crate) fn new(at: usize, width: Width) -> Self {
        match width {
            Width::W64 => Field { at, shift: 0, mask: u64::MAX },
            Width::W32 => Field { at: at & !7, shift: 8 * (at & 7) as u32, mask: u32::MAX.into() },
        }
    }

    /// The operand in a word.
    pub(crate) fn of(self, word: u64) -> u64 {
        word >> self.shift & self.mask
    }

    /// The word with another operand.
    fn with(self, word: u64, value: u64) -> u64 {
        word & !(self.mask << self.shift) | (value & self.mask) << self.shift
    }
}

impl Amo {
    /// As one operation of a card, if it is one.
    pub(crate) fn of_card(self) -> Option<CardAmo> {
        match (self.width, self.op) {
            (Width::W64, AmoOp::Add) => Some(CardAmo::Add(self.operand)),
            (Width::W64, AmoOp::CompareSwap) => {
                Some(CardAmo::CompareSwap { expected: self.expected, new: self.operand })
            }
            _ => None,
        }
    }

    /// What the word becomes; `None` if it stays as it is.
    pub(crate) fn apply(self, field: Field, word: u64) -> Option<u64> {
        let held = field.of(word);
        let new = match self.op {
            AmoOp::Fetch => return None,
            AmoOp::CompareSwap if held != self.expected & field.mask => return None,
            AmoOp::Set | AmoOp::Swap | AmoOp::CompareSwap => self.operand,
            AmoOp::Add => held.wrapping_add(self.operand),
            AmoOp::And => held & self.operand,
            AmoOp::Or => held | self.operand,
            AmoOp::Xor => held ^ self.operand,
        };
        Some(field.with(word, new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [AmoOp; 8] =
        [AmoOp::Fetch, AmoOp::Set, AmoOp::Swap, AmoOp::CompareSwap, AmoOp::Add, AmoOp::And, AmoOp::Or, AmoOp::Xor];

    #[test]
    #[allow(unsafe_code, reason = "the processor's operations take addresses")]
    fn a_word_changes_as_the_processor_would_change_it() {
        use crate::transport::loopback;
        for op in ALL {
            for (operand, expected) in [(5, 7), (u64::MAX, 0x1_0000_0003), (0x8000_0000, 3)] {
                for held in [3_u64, 7, 0xffff_ffff_ffff_fffe, 0x1_0000_0003] {
                    for (at, width) in [(8, Width::W64), (8, Width::W32), (12, Width::W32)] {
                        let amo = Amo { op, width, operand, expected };
                        let mut words = [0x55, held, 0xaa];
                        let word = words.as_mut_ptr().cast::<u8>();
                        // SAFETY: the operand lies in the array, at a multiple of its width.
                        let before = unsafe {
                            let word = word.add(at);
                            match width {
                                Width::W32 => loopback::amo(word, op, operand as u32, expected as u32).into(),
                                Width::W64 => loopback::amo(word, op, operand, expected),
                            }
                        };
                        let field = Field::new(at, width);
                        assert_eq!(field.at, 8);
                        let after = amo.apply(field, held).unwrap_or(held);
                        assert_eq!(words, [0x55, after, 0xaa], "{amo:?} on {held:x}");
                        if op != AmoOp::Set {
                            assert_eq!(before, field.of(held));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn cards_add_and_compare_words_of_64_bits() {
        let amo = |op, width| Amo { op, width, operand: 1, expected: 2 }.of_card();
        assert_eq!(amo(AmoOp::Add, Width::W64), Some(CardAmo::Add(1)));
        assert_eq!(amo(AmoOp::CompareSwap, Width::W64), Some(CardAmo::CompareSwap { expected: 2, new: 1 }));
        let others = ALL.into_iter().flat_map(|op| [amo(op, Width::W32), amo(op, Width::W64)]).flatten().count();
        assert_eq!(others, 2);
    }
}
