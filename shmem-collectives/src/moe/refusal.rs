//! What can be wrong with a call, as all PEs are told it: in place of its counts, the PE that makes it sends a record.

use shmem::{Error, ErrorKind};

/// Words of a record.
pub(crate) const RECORD: usize = 4;

/// Why a round of an exchange did not take place. PE numbers are the team's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// More tokens than there is room for.
    #[error("PE {pe} dispatches {given} tokens, and the exchange was built for {max}: give more to max_tokens()")]
    TooManyTokens {
        /// The PE that does.
        pe: usize,
        /// How many.
        given: usize,
        /// What `max_tokens` was told.
        max: usize,
    },
    /// An expert that does not exist. (-1 is none, and allowed.)
    #[error("PE {pe} sends its token {token} to expert {expert}: there are {experts}, and -1 for none")]
    NoSuchExpert {
        /// The PE that does.
        pe: usize,
        /// The token's position there.
        token: usize,
        /// The number given.
        expert: i32,
        /// How many there are.
        experts: usize,
    },
    /// The same expert twice for one token.
    #[error("PE {pe} sends its token {token} to expert {expert} twice: add the weights up, and give -1 for the other")]
    Twice {
        /// The PE that does.
        pe: usize,
        /// The token's position there.
        token: usize,
        /// The expert.
        expert: i32,
    },
    /// A buffer of the wrong length.
    #[error("PE {pe} gives {given} {}, {needed} are needed", .what.name())]
    Length {
        /// The PE that does.
        pe: usize,
        /// Which buffer.
        what: What,
        /// Its length.
        given: usize,
        /// The length it must have.
        needed: usize,
    },
    /// PEs that make different calls: a new dispatch and one by a layout, or by different layouts.
    #[error("PE {pe} dispatches by another layout than PE {than}")]
    Differ {
        /// The first that differs.
        pe: usize,
        /// From which.
        than: usize,
    },
    /// A layout that is not good any more, or that of another exchange.
    #[error("PE {pe} dispatches by a layout of another exchange, or one from before a PE was left out")]
    StaleLayout {
        /// The PE that does.
        pe: usize,
    },
    /// A call that does not fit what came before it. Of this PE alone; nothing has happened.
    #[error("PE {pe} calls {call} out of turn: a round is send, recv, combine")]
    OutOfTurn {
        /// The PE that does.
        pe: usize,
        /// The call.
        call: &'static str,
    },
    /// A PE went on to the next round instead of combining this one. Of those PEs alone that sent it tokens.
    #[error("PE {pe} has given no outputs: it went on without combine()")]
    NoOutputs {
        /// The PE that did.
        pe: usize,
    },
    /// Another PE has left this one out, or one for which it would wait ([`mask`](super::Moe::mask) it, too).
    #[error("PE {pe} was left out by PE {by}")]
    LeftOut {
        /// The PE that was.
        pe: usize,
        /// By which.
        by: usize,
    },
}

/// A buffer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Values of tokens.
    Tokens,
    /// Numbers of experts.
    Experts,
    /// Weights.
    Weights,
    /// Values of outputs.
    Outputs,
}

impl What {
    const ALL: [(What, &'static str); 4] = [
        (What::Tokens, "values of tokens"),
        (What::Experts, "numbers of experts"),
        (What::Weights, "weights"),
        (What::Outputs, "values of outputs"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

impl Refusal {
    /// The refusal that an error is, if it is one.
    pub fn of(error: &Error) -> Option<Refusal> {
        match error.kind() {
            ErrorKind::Other(other) => other.downcast_ref::<Refusal>().copied(),
            _ => None,
        }
    }

    /// What is told of it, except by whom; `None` if it concerns its own PE alone.
    pub(crate) fn record(self) -> Option<[u64; RECORD]> {
        let record = match self {
            Refusal::TooManyTokens { given, max, .. } => [1, given, max, 0],
            Refusal::NoSuchExpert { token, expert, experts, .. } => [2, token, expert as u32 as usize, experts],
            Refusal::Twice { token, expert, .. } => [3, token, expert as u32 as usize, 0],
            Refusal::Length { what, given, needed, .. } => [4, what as usize, given, needed],
            Refusal::StaleLayout { .. } => [5, 0, 0, 0],
            Refusal::Differ { .. } | Refusal::OutOfTurn { .. } => return None,
            Refusal::NoOutputs { .. } | Refusal::LeftOut { .. } => return None,
        };
        Some(record.map(|word| word as u64))
    }

    /// What PE `pe` has told.
    pub(crate) fn told(pe: usize, record: [u64; RECORD]) -> Refusal {
        let [code, a, b, c] = record.map(|word| word as usize);
        match code {
            1 => Refusal::TooManyTokens { pe, given: a, max: b },
            2 => Refusal::NoSuchExpert { pe, token: a, expert: b as u32 as i32, experts: c },
            3 => Refusal::Twice { pe, token: a, expert: b as u32 as i32 },
            4 => Refusal::Length { pe, what: What::ALL.get(a).map_or(What::Tokens, |row| row.0), given: b, needed: c },
            _ => Refusal::StaleLayout { pe },
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::other(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_was_meant() {
        let all = [
            Refusal::TooManyTokens { pe: 3, given: 9, max: 8 },
            Refusal::NoSuchExpert { pe: 3, token: 1, expert: -7, experts: 64 },
            Refusal::NoSuchExpert { pe: 3, token: 1, expert: i32::MAX, experts: 64 },
            Refusal::Twice { pe: 3, token: 5, expert: 2 },
            Refusal::StaleLayout { pe: 3 },
        ];
        let lengths = What::ALL.map(|(what, _)| Refusal::Length { pe: 3, what, given: 1, needed: 2 });
        for refusal in all.into_iter().chain(lengths) {
            assert_eq!(Refusal::told(3, refusal.record().unwrap()), refusal);
            assert_eq!(Refusal::of(&refusal.into()), Some(refusal));
        }
        assert_eq!(Refusal::OutOfTurn { pe: 3, call: "recv" }.record(), None);
    }

    #[test]
    fn both_numbers_are_said() {
        let text = Refusal::TooManyTokens { pe: 3, given: 9, max: 8 }.to_string();
        assert_eq!(text, "PE 3 dispatches 9 tokens, and the exchange was built for 8: give more to max_tokens()");
    }
}
