//! The one table of what can go wrong.
//!
//! Every fallible call of the library returns [`Result`]. An [`Error`] is one pointer wide, so that `Result<()>`
//! travels in a register on the hot path; what happened lies behind it as an [`ErrorKind`], each of which says who,
//! what and the limit.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// What every fallible call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the library, one pointer wide. [`Error::kind`] tells which.
pub struct Error(Box<ErrorKind>);

const _: () = assert!(size_of::<Result<()>>() == size_of::<usize>());

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// An error of the program's own, to go out through the library: `read(path).map_err(shmem::Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ErrorKind::Other(error.into()).into()
    }
}

impl ErrorKind {
    /// Whether it says that a PE is lost: the program may go on with [`World::survivors`](crate::World::survivors).
    pub fn is_lost(&self) -> bool {
        matches!(self, ErrorKind::PeerLost { .. })
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        Error(Box::new(kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The same text as `Display`, so that `fn main() -> shmem::Result<()>` ends with a readable line.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// What went wrong: one row a kind, each with its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A PE number outside its team.
    #[error("PE {pe} does not exist: the team has {n_pes}")]
    NoSuchPe {
        /// The number that was asked for.
        pe: usize,
        /// How many PEs the team has.
        n_pes: usize,
    },
    /// A transfer, index or range that leaves its symmetric object.
    #[error("elements {start}..{end} lie outside a symmetric object of {len}")]
    OutOfRange {
        /// First element touched.
        start: usize,
        /// One past the last element touched (saturated).
        end: usize,
        /// Elements in the object.
        len: usize,
    },
    /// Two sides of one transfer differ in length.
    #[error("{what}: {given} elements were given, {needed} are needed")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length it must have.
        needed: usize,
    },
    /// Two regions of one transfer that share a part of their bytes, so that writing one would change the other under way.
    #[error(
        "bytes {}..{} and bytes {}..{} of PE {pe} overlap in part: the regions of a transfer must be the same or apart",
        .source_bytes.start, .source_bytes.end, .target_bytes.start, .target_bytes.end
    )]
    Overlap {
        /// The PE in whose heap they lie.
        pe: usize,
        /// The one that is read (or the first of two that are written), in byte offsets of the symmetric heap.
        source_bytes: Range<usize>,
        /// The one that is written.
        target_bytes: Range<usize>,
    },
    /// An element count times an element size that no address can hold.
    #[error("{count} elements of {size} bytes are more than an address can hold")]
    Overflow {
        /// Elements.
        count: usize,
        /// Bytes of one element.
        size: usize,
    },
    /// A handle of one world used with another.
    #[error("the symmetric object at offset {offset} belongs to another world")]
    OtherWorld {
        /// Offset of the object in its own heap.
        offset: usize,
    },
    /// An address or offset that no live allocation covers.
    #[error("bytes {offset}..{end} of the symmetric heap are not allocated, or were freed")]
    NotAllocated {
        /// First byte.
        offset: usize,
        /// One past the last byte (saturated).
        end: usize,
    },
    /// Memory of this process that is not symmetric, where symmetric memory is needed.
    #[error(
        "the {bytes} bytes at {address:#x} are not symmetric: they lie neither in the symmetric heap ({:#x}..{:#x}) nor among \
         the global variables of the program", .heap.start, .heap.end
    )]
    NotSymmetric {
        /// Where they begin.
        address: usize,
        /// How many there are.
        bytes: usize,
        /// The addresses of this PE's heap.
        heap: Range<usize>,
    },
    /// An access to symmetric memory that this process cannot reach: of the processor, to memory that was given without
    /// access by it; or of a transfer, where no network leads there.
    #[error("bytes {}..{} of the symmetric heap of PE {pe} are out of this process's reach: {why}", .bytes.start, .bytes.end)]
    NotMapped {
        /// In whose heap.
        pe: usize,
        /// The bytes.
        bytes: Range<usize>,
        /// Why, and what to use instead.
        why: &'static str,
    },
    /// In checked mode: an access to memory that was freed, or of which its object has only a part since.
    #[error("PE {pe} reaches bytes {}..{} of the symmetric heap at {site}: {history}", .bytes.start, .bytes.end)]
    UseAfterFree {
        /// The PE.
        pe: usize,
        /// What it reaches, on whichever PE.
        bytes: Range<usize>,
        /// Where in the program.
        site: String,
        /// What has become of the memory: `freed at src/main.rs:17, allocated at src/main.rs:11`.
        history: String,
    },
    /// In checked mode: a write to memory that a collective of the target PE is working on.
    #[error(
        "PE {pe} writes bytes {}..{} of PE {target} at {site}; bytes {}..{} there are in use by {user}",
        .bytes.start, .bytes.end, .reserved.start, .reserved.end
    )]
    InUse {
        /// The PE that writes.
        pe: usize,
        /// The PE in whose memory.
        target: usize,
        /// What it writes.
        bytes: Range<usize>,
        /// Where in the program.
        site: String,
        /// What is in use.
        reserved: Range<usize>,
        /// By what: `all_reduce #3, started at src/main.rs:17`.
        user: String,
    },
    /// An offset that does not suit the element type.
    #[error("offset {offset} is not a multiple of {align}, the alignment that the access needs")]
    Misaligned {
        /// The offset in the symmetric heap.
        offset: usize,
        /// The alignment that the access needs.
        align: usize,
    },
    /// An alignment that is no power of two, or larger than a page table can promise.
    #[error("{align} is not an alignment: it must be a power of two, at most {max}")]
    BadAlignment {
        /// What was asked for.
        align: usize,
        /// The largest that is possible.
        max: usize,
    },
    /// The symmetric heap has no room for an allocation. Every PE gets the same answer; nothing was allocated.
    #[error(
        "the symmetric heap has no room for {need} bytes (aligned to {align}): {free} of {heap} bytes are free, the largest \
         block is {largest}; set SHMEM_SYMMETRIC_SIZE to more than {heap}"
    )]
    HeapFull {
        /// Bytes asked for.
        need: usize,
        /// Alignment asked for.
        align: usize,
        /// Bytes free in all.
        free: usize,
        /// The largest free block.
        largest: usize,
        /// Bytes of the heap.
        heap: usize,
    },
    /// The host or cgroup cannot give the heaps that were asked for.
    #[error(
        "{n_pes} symmetric heaps of {size} bytes need {need} bytes, but {limit} leaves {available}; reduce \
         SHMEM_SYMMETRIC_SIZE to at most {advice}, or run fewer PEs"
    )]
    NoMemory {
        /// PEs on this host.
        n_pes: usize,
        /// Bytes of one heap.
        size: usize,
        /// Bytes of all heaps of this host, with their control areas.
        need: usize,
        /// Bytes that can be had.
        available: usize,
        /// What limits them: the host's memory, a cgroup, an address-space limit.
        limit: String,
        /// The largest heap that would do.
        advice: usize,
    },
    /// The PEs of a team made different collective calls at the same time. Every PE gets this error; the team stays in
    /// step.
    #[error("the PEs of the team disagree: {report}")]
    Mismatch {
        /// Both sides, with the PEs on each: `PE 2 calls alloc(16 bytes), PEs 0-1 and 3 call alloc(8 bytes)`.
        report: String,
    },
    /// The PEs of a job were started with different values of a setting that must agree.
    #[error("{name} differs between the PEs: {report}")]
    SettingsDiffer {
        /// The setting.
        name: String,
        /// Both sides, with the PEs on each.
        report: String,
    },
    /// No team slot is free on all members.
    #[error("no team can be made: all {slots} slots are in use; set SHMEM_TEAM_SLOTS to more, or destroy a team")]
    NoTeamSlot {
        /// The slots reserved at start-up.
        slots: usize,
    },
    /// Arguments of a split that describe no team.
    #[error("no such team: {0}")]
    BadTeam(String),
    /// A lock call that does not fit the state of the lock.
    #[error("PE {pe} cannot {call} the lock at offset {offset}: {why}")]
    Lock {
        /// The caller.
        pe: usize,
        /// `set`, `test` or `clear`.
        call: &'static str,
        /// Offset of the lock in the symmetric heap.
        offset: usize,
        /// Why not.
        why: &'static str,
    },
    /// A PE used the wrong end of a channel, or none of its ends.
    #[error("PE {pe} cannot {call} a channel from PE {sender} to PE {receiver}")]
    Channel {
        /// The caller.
        pe: usize,
        /// `send to` or `receive from`.
        call: &'static str,
        /// The PE that sends.
        sender: usize,
        /// The PE that receives.
        receiver: usize,
    },
    /// A PE is gone, and with it whatever was waited for.
    #[error("PE {pe} is lost: {reason}")]
    PeerLost {
        /// The PE that is gone.
        pe: usize,
        /// How it ended.
        reason: String,
    },
    /// The library was used in a process that was forked from a PE's.
    #[error("this process was forked from PE {pe}: it may exit or execute another program, but not use the library")]
    Forked {
        /// The PE.
        pe: usize,
    },
    /// A wait lasted longer than `SHMEM_TIMEOUT`.
    #[error("{call} on PE {pe} saw nothing for {after:?} (SHMEM_TIMEOUT): {waiting_for}")]
    Timeout {
        /// The PE that waited.
        pe: usize,
        /// The call that waited.
        call: &'static str,
        /// How long it waited.
        after: Duration,
        /// For whom or what, as far as it is known.
        waiting_for: String,
    },
    /// A setting with a value that is not of its form.
    #[error("{name}={value:?} is not valid: {form}")]
    BadSetting {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// The form that is.
        form: String,
    },
    /// Memory that cannot be a symmetric heap.
    #[error("the {bytes} bytes at {start:#x} cannot be the symmetric heap: {why}")]
    BadMemory {
        /// The address of the first byte.
        start: usize,
        /// How many there are.
        bytes: usize,
        /// Why not.
        why: String,
    },
    /// The PE number or number of PEs given to a world make no sense.
    #[error("PE {pe} of {n_pes}: {why}")]
    BadJob {
        /// PE number.
        pe: usize,
        /// Number of PEs.
        n_pes: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The PEs could not find each other.
    #[error("PE {pe} cannot join the job at {address}: {why}")]
    Rendezvous {
        /// The PE that tried.
        pe: usize,
        /// Where it looked.
        address: String,
        /// What happened, and what to do.
        why: String,
    },
    /// An error of the program's own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// PEs on different hosts, between which there is no network route.
    #[error("PE {pe} is on another host ({host}) than PE 0 ({own}), and there is no network between them: {why}")]
    NoRoute {
        /// The first PE on another host.
        pe: usize,
        /// The identity of its host.
        host: String,
        /// The identity of PE 0's host.
        own: String,
        /// Which PE has no network, and what it lacks.
        why: String,
    },
    /// The way to a PE over a network card has failed, or there is none.
    #[error("the way to PE {pe} over {device} has failed: {what}")]
    Fabric {
        /// The PE that was to be reached.
        pe: usize,
        /// The network card of this PE, and its port: `mlx5_0:1`.
        device: String,
        /// What happened, in the words of the card where it has any, and what to look at.
        what: String,
    },
    /// A network card that does not work, or is not there.
    #[error("the network card {device} cannot be used: {what}")]
    Card {
        /// The network card of this PE, and its port.
        device: String,
        /// What it lacks.
        what: String,
    },
    /// Memory that cannot be locked, as a network card needs it.
    #[error(
        "{device} needs {need} bytes of memory locked, and that failed: {source}; RLIMIT_MEMLOCK allows {have}; raise it \
         (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, `--ulimit memlock=-1` for a container), or \
         reduce SHMEM_SYMMETRIC_SIZE"
    )]
    Locked {
        /// The network card of this PE, and its port.
        device: String,
        /// Bytes that were to be locked, beside what is already.
        need: usize,
        /// Bytes that the limit of the process allows in all.
        have: u64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A call of the operating system failed.
    #[error("{what} failed: {source}")]
    Os {
        /// What was attempted, with the limit or setting that governs it.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl ErrorKind {
    /// An operating-system error with the attempt that met it.
    pub(crate) fn os(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        ErrorKind::Os { what: what.into(), source: source.into() }.into()
    }
}

/// PE numbers in ascending order as people write them: `0-3 and 7`.
pub(crate) fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let texts: Vec<String> =
        runs.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    match texts.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pes_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5 and 7-8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn every_error_says_who_what_and_the_limit() {
        let e = Error::from(ErrorKind::NoSuchPe { pe: 9, n_pes: 8 });
        assert_eq!(e.to_string(), "PE 9 does not exist: the team has 8");
        assert_eq!(format!("{e:?}"), e.to_string());
        let e = Error::from(ErrorKind::HeapFull { need: 64, align: 8, free: 32, largest: 16, heap: 128 });
        assert!(e.to_string().contains("SHMEM_SYMMETRIC_SIZE"));
    }

    #[test]
    fn a_program_s_own_error_keeps_its_text() {
        assert_eq!(Error::other("no such file").to_string(), "no such file");
    }

    #[test]
    fn an_os_error_keeps_its_source() {
        let e = ErrorKind::os("mmap", std::io::Error::from_raw_os_error(12));
        assert!(std::error::Error::source(&e).is_some());
        assert!(e.to_string().starts_with("mmap failed: "));
    }
}
