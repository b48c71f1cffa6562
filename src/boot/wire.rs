//! What the PEs and the rendezvous say to each other, as bytes: one greeting of fixed size, then frames with a length.
//!
//! Pure functions over byte slices. A stranger can make the reader hold at most one greeting; only a client whose key
//! was right may send frames, and those have an upper bound. Knows nothing of sockets or of what the bytes mean to the
//! PEs.

/// Bytes of the longest job key.
pub(super) const KEY_MAX: usize = 64;
/// Bytes of a greeting.
pub(super) const HELLO_LEN: usize = MAGIC.len() + 4 + 4 + 1 + KEY_MAX;
/// Bytes in front of every frame: kind and length.
pub(super) const HEADER_LEN: usize = 5;
/// The most bytes that one PE may give to one round.
pub(super) const ROUND_MAX: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"shmem-1\n";

/// The secret of a job, padded so that comparing two takes the same time whatever they hold.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    len: u8,
    bytes: [u8; KEY_MAX],
}

impl Key {
    /// `None` if it is longer than [`KEY_MAX`].
    pub(super) fn new(text: &str) -> Option<Key> {
        let mut bytes = [0; KEY_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Key { len: text.len() as u8, bytes })
    }

    /// Looks at every byte, so that the time tells a guesser nothing.
    pub(super) fn matches(&self, other: &Key) -> bool {
        let differing = self.bytes.iter().zip(&other.bytes).fold(self.len ^ other.len, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

/// The first thing a client says.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) pe: u32,
    pub(super) n_pes: u32,
    pub(super) key: Key,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = [0; HELLO_LEN];
        let parts: [&[u8]; 5] =
            [MAGIC, &self.pe.to_le_bytes(), &self.n_pes.to_le_bytes(), &[self.key.len], &self.key.bytes];
        let mut at = 0;
        for part in parts {
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        out
    }

    /// `None` for anything that is no greeting.
    pub(super) fn decode(bytes: &[u8; HELLO_LEN]) -> Option<Hello> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let (pe, n_pes) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
        let (&len, rest) = rest.split_first()?;
        Some(Hello { pe, n_pes, key: Key { len, bytes: rest.try_into().ok()? } })
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// PE to rendezvous: my bytes of this round.
    Round = 1,
    /// PE to rendezvous: whom am I waiting for?
    Ask = 2,
    /// To a PE: all PEs have joined. How to reach the launcher that watches over the job; nothing if none does.
    Welcome = 16,
    /// To a PE: the bytes of all PEs, see [`pack`].
    Gathered = 17,
    /// To a PE: the round, or the joining, cannot end. A PE number and a text.
    Lost = 18,
    /// To a client that may not join: a text.
    Refused = 19,
    /// To a PE that holds the key but was started with impossible numbers: a text.
    BadJob = 20,
    /// To a PE that asked: a text.
    Missing = 21,
}

const KINDS: [Kind; 8] =
    [Kind::Round, Kind::Ask, Kind::Welcome, Kind::Gathered, Kind::Lost, Kind::Refused, Kind::BadJob, Kind::Missing];

/// One frame as bytes.
pub(super) fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.push(kind as u8);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// Kind and payload length of a frame; `None` if there is no such kind or the length is above `most`.
pub(super) fn header(bytes: &[u8; HEADER_LEN], most: usize) -> Option<(Kind, usize)> {
    let kind = KINDS.into_iter().find(|&kind| kind as u8 == bytes[0])?;
    let len = take_u32(&mut &bytes[1..])? as usize;
    (len <= most).then_some((kind, len))
}

/// The most bytes a rendezvous of `n_pes` can have to say in one frame.
pub(super) fn most_gathered(n_pes: usize) -> usize {
    n_pes.saturating_mul(ROUND_MAX + 4).max(1 << 16)
}

/// Many byte strings as one.
pub(super) fn pack<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// The inverse of [`pack`]; `None` unless there are exactly `n`.
pub(super) fn unpack(mut bytes: &[u8], n: usize) -> Option<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    for _ in 0..n {
        let len = take_u32(&mut bytes)? as usize;
        let (piece, rest) = bytes.split_at_checked(len)?;
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(pieces)
}

/// The payload of [`Kind::Lost`].
pub(super) fn lost(pe: usize, reason: &str) -> Vec<u8> {
    [&(pe as u32).to_le_bytes(), reason.as_bytes()].concat()
}

/// The inverse of [`lost`].
pub(super) fn read_lost(mut payload: &[u8]) -> Option<(usize, String)> {
    let pe = take_u32(&mut payload)? as usize;
    Some((pe, String::from_utf8_lossy(payload).into_owned()))
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_the_wire() {
        for key in ["", "k", &"x".repeat(KEY_MAX)] {
            let hello = Hello { pe: 3, n_pes: 70_000, key: Key::new(key).unwrap() };
            assert!(Hello::decode(&hello.encode()) == Some(hello));
        }
        assert!(Key::new(&"x".repeat(KEY_MAX + 1)).is_none());
        assert!(Hello::decode(&[b'x'; HELLO_LEN]).is_none());
    }

    #[test]
    fn keys_match_only_themselves() {
        let key = |text| Key::new(text).unwrap();
        assert!(key("abc").matches(&key("abc")));
        for other in ["", "ab", "abd", "abcd", "abc\0"] {
            assert!(!key("abc").matches(&key(other)), "{other:?}");
        }
    }

    #[test]
    fn frames_name_their_kind_and_length() {
        for kind in KINDS {
            let bytes = frame(kind, b"12345");
            assert_eq!(header(bytes[..HEADER_LEN].try_into().unwrap(), 5), Some((kind, 5)));
            assert_eq!(header(bytes[..HEADER_LEN].try_into().unwrap(), 4), None);
        }
        assert_eq!(header(&[99, 0, 0, 0, 0], 10), None);
        assert_eq!(header(&[1, 255, 255, 255, 255], ROUND_MAX), None);
    }

    #[test]
    fn packed_pieces_come_back_or_are_refused() {
        let pieces: [&[u8]; 3] = [b"a", b"", b"long one"];
        let packed = pack(pieces.into_iter());
        assert_eq!(unpack(&packed, 3).unwrap(), pieces.map(<[u8]>::to_vec));
        for n in [0, 2, 4] {
            assert_eq!(unpack(&packed, n), None);
        }
        for cut in 0..packed.len() {
            assert_eq!(unpack(&packed[..cut], 3), None);
        }
        assert_eq!(unpack(&[255, 255, 255, 255, 0], 1), None);
    }

    #[test]
    fn a_loss_names_its_pe() {
        assert_eq!(read_lost(&lost(7, "gone")), Some((7, "gone".into())));
        assert_eq!(read_lost(&[1, 2]), None);
    }
}
