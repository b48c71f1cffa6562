//! What PEs show each other: of themselves at start-up, and of queue pairs when these are connected. Pure data.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::transport::roce::nic::Atomics;

/// What a PE shows the others at start-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    /// Device, port and GID: `rxe0:1 (GID 1, ::ffff:10.77.0.1)`.
    pub(super) name: String,
    /// Against what its card's atomics are atomic.
    pub(crate) atomics: Atomics,
    /// Where it is visited to connect a queue pair: at the first of these that answers.
    pub(super) doors: Vec<SocketAddr>,
    /// Its regions.
    pub(super) windows: Windows,
    /// The page by which the way is tried.
    pub(super) page: Windows,
    /// What stands at the start of that page, and nowhere else.
    pub(super) token: u64,
    /// Bytes of its packets, as verbs count them.
    pub(super) mtu: u8,
}

/// Bytes of a packet, which verbs count from 1 (256) to 5 (4096).
pub(super) fn packet(mtu: u8) -> usize {
    128 << mtu.min(5)
}

/// A GID as people write it: as an IPv6 address.
pub(super) struct Gid(pub(super) [u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// Reads and atomics under way on a queue pair at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reads {
    /// That it may ask.
    pub(super) asked: u8,
    /// That it can serve.
    pub(super) served: u8,
}

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Its first offset.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// Where that is for the card.
    pub(super) address: u64,
    /// The key that lets one in.
    pub(super) key: u32,
}

/// The registered regions of a PE: at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Windows {
    first: Window,
    /// In the order of their offsets.
    rest: Box<[Window]>,
}

impl Windows {
    /// This one.
    pub(super) fn one(window: Window) -> Windows {
        Windows { first: window, rest: Box::default() }
    }

    /// `None` if there are none.
    pub(super) fn new(mut windows: Vec<Window>) -> Option<Windows> {
        windows.sort_by_key(|window| window.offset);
        let (&first, rest) = windows.split_first()?;
        Some(Windows { first, rest: rest.into() })
    }

    /// Address and key of an offset. One that lies in no window gets those of a neighbour, whose bounds the card knows.
    #[inline]
    pub(super) fn find(&self, offset: usize) -> (u64, u32) {
        let window = self.rest.iter().rfind(|window| window.offset <= offset).unwrap_or(&self.first);
        (window.address.wrapping_add(offset as u64).wrapping_sub(window.offset as u64), window.key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Window> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Of the queue pair on its device.
    pub(super) number: u32,
    /// The number of the first packet that it sends.
    pub(super) psn: u32,
    /// The address of its port.
    pub(super) gid: [u8; 16],
}

/// What whoever wants a queue pair connected says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) secret: String,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) end: End,
    pub(super) mtu: u8,
    /// Reads and atomics that it would have under way at a time.
    pub(super) reads: u8,
}

/// What is answered: the other end with what both can do, or why there is none.
pub(super) type Answer = Result<Agreed, String>;

/// The other end, and what both agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    pub(super) end: End,
    pub(super) mtu: u8,
    /// Reads and atomics under way at a time.
    pub(super) reads: u8,
}

/// What a message begins with: whose it is, and the version.
const MAGIC: [u8; 8] = *b"shmroce1";
/// Bytes before the body of a message: its mark and its length.
pub(super) const HEAD: usize = MAGIC.len() + 2;
/// The longest body.
const MOST: usize = 1024;

/// A message as bytes.
pub(super) fn encode<T: Serialize>(message: &T) -> Option<Vec<u8>> {
    let body = postcard::to_stdvec(message).ok().filter(|body| body.len() <= MOST)?;
    Some([&MAGIC, (body.len() as u16).to_le_bytes().as_slice(), &body].concat())
}

/// Bytes of the body that comes after this head; `None` if it is none.
pub(super) fn body(head: &[u8; HEAD]) -> Option<usize> {
    let length = head.strip_prefix(&MAGIC)?;
    let length = u16::from_le_bytes(length.try_into().ok()?).into();
    (length <= MOST).then_some(length)
}

/// The message of a body; `None` if it is none.
pub(super) fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    postcard::from_bytes(body).ok()
}

/// Whether a secret is the right one. Looks at every byte, so that the time tells a guesser no more than its length.
pub(super) fn matches(secret: &str, given: &str) -> bool {
    let differing = secret.bytes().zip(given.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0 && secret.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(offset: usize, bytes: usize, address: u64) -> Window {
        Window { offset, bytes, address, key: offset as u32 }
    }

    #[test]
    fn offsets_are_found_in_their_window() {
        assert!(Windows::new(Vec::new()).is_none());
        let windows = Windows::new(vec![window(8192, 100, 9000), window(4096, 4096, 50_000)]).unwrap();
        assert_eq!(windows.find(4096), (50_000, 4096));
        assert_eq!(windows.find(8191), (54_095, 4096));
        assert_eq!(windows.find(8192), (9000, 8192));
        assert_eq!(windows.find(9000), (9808, 8192), "past the end: for the card to refuse");
        assert_eq!(windows.find(4095), (49_999, 4096), "before the start, too");
        assert_eq!(windows.iter().count(), 2);
    }

    #[test]
    fn messages_survive_the_way_or_are_refused() {
        let end = End { number: 17, psn: 0xff_ffff, gid: [7; 16] };
        let hello = Hello { secret: "x".repeat(64), from: 1, to: 70_000, end, mtu: 5, reads: 16 };
        let bytes = encode(&hello).unwrap();
        let (head, rest) = bytes.split_first_chunk::<HEAD>().unwrap();
        assert_eq!(body(head), Some(rest.len()));
        assert_eq!(decode::<Hello>(rest), Some(hello.clone()));
        for cut in 0..rest.len() {
            assert_eq!(decode::<Hello>(&rest[..cut]), None);
        }
        assert_eq!(body(b"shmroce2\x01\0"), None);
        assert_eq!(body(b"shmroce1\xff\xff"), None);
        assert_eq!(encode(&Hello { secret: "x".repeat(MOST), ..hello }), None);
        let answer: Answer = Err("no".into());
        assert_eq!(decode::<Answer>(&encode(&answer).unwrap()[HEAD..]), Some(answer));
    }

    #[test]
    fn a_secret_matches_only_itself() {
        for given in ["", "ab", "abd", "abcd"] {
            assert!(!matches("abc", given), "{given}");
        }
        assert!(matches("abc", "abc"));
    }

    #[test]
    fn packets_are_as_verbs_count_them() {
        assert_eq!([1, 2, 3, 4, 5, 255].map(packet), [256, 512, 1024, 2048, 4096, 4096]);
    }
}
