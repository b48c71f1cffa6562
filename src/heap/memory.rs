//! Where the memory of the user's heap comes from.
//!
//! Control words and the user's heap lie in one memfd, unless the settings or the program say otherwise: then the memfd
//! has the control words alone, and the heap comes from huge pages, from a file or device node, or from the program. What
//! has a descriptor goes to the PEs of the host by that, and whoever can map it does.
//!
//! What could fail at the first touch, by SIGBUS, is asked for here: huge pages are reserved when they are mapped, and
//! the blocks of a file before.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::heap::control::Layout;
use crate::heap::external::ExternalMemory;
use crate::heap::segment::{Part, Segment, may_grow_to, memfd};

/// The huge pages that are asked for: of all the sizes that processors have, the one that every kernel joins pages to.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// The largest grain that a file may say it has: the largest pages of hugetlbfs.
const LARGEST_GRAIN: usize = 1 << 30;

/// Where the kernel says whether it joins pages of shared memory to huge ones.
const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// Where it says how many huge pages of its pool are free, and how many of these are spoken for.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A kind of memory, with what is at hand of it before a heap is made.
#[derive(Debug)]
pub(crate) enum Memory {
    Normal,
    Huge,
    File(Node),
    External(Arc<ExternalMemory>),
}

/// A file or device node that can be mapped.
#[derive(Debug)]
pub(crate) struct Node {
    path: String,
    descriptor: OwnedFd,
    is_file: bool,
    identity: Identity,
}

/// Which file or device something is, whatever its name: device, inode, and device that it stands for.
pub(crate) type Identity = [u64; 3];

/// A heap's memory.
pub(crate) struct Made {
    pub(crate) segment: Segment,
    /// Where the control words lie, and the extra bytes.
    pub(crate) control: OwnedFd,
    /// Where the user's heap lies, if it is elsewhere and can be reached by others.
    pub(crate) user: Option<OwnedFd>,
    /// What it is, in words.
    pub(crate) what: String,
}

impl Memory {
    /// The file or device node at `path`, in which `%p` is the number of the PE.
    pub(crate) fn open(path: &str, pe: usize) -> Result<Memory> {
        let path = path.replace("%p", &pe.to_string());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let descriptor = rustix::fs::open(&path, flags, Mode::empty()).map_err(|source| match source {
            Errno::ISDIR => bad_path(&path, "it is a directory; give a file or a device node"),
            Errno::NOENT => failed("opening", &path, "which must exist, and may be empty", source),
            _ => failed("opening", &path, "to read and write it", source),
        })?;
        let stat = rustix::fs::fstat(&descriptor).map_err(|source| failed("looking at", &path, "", source))?;
        let is_file = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::CharacterDevice => false,
            _ => return Err(bad_path(&path, "it is neither a file nor a character device")),
        };
        let identity = if is_file { [stat.st_dev, stat.st_ino, 0] } else { [u64::MAX, u64::MAX, stat.st_rdev] };
        Ok(Memory::File(Node { path, descriptor, is_file, identity }))
    }

    /// What it is, as all PEs must have it alike.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Memory::Normal => "normal",
            Memory::Huge => "huge",
            Memory::File(_) => "a file or device",
            Memory::External(external) => external.kind(),
        }
    }

    /// The file or device that several PEs of a host may have in common: each then has a slice of its own.
    pub(crate) fn identity(&self) -> Option<Identity> {
        if let Memory::File(node) = self { Some(node.identity) } else { None }
    }

    /// Bytes that its heaps can have from the host's pool of huge pages, which does not count as available memory.
    pub(crate) fn pool(&self) -> u64 {
        let number = |file: &str| std::fs::read_to_string(format!("{POOL}/{file}")).ok()?.trim().parse::<u64>().ok();
        match self {
            Memory::Huge => number("free_hugepages")
                .unwrap_or(0)
                .saturating_sub(number("resv_hugepages").unwrap_or(0))
                .saturating_mul(HUGE_PAGE as u64),
            _ => 0,
        }
    }

    /// Whether its heaps are taken from the host's available memory.
    pub(crate) fn is_of_host(&self) -> bool {
        matches!(self, Memory::Normal | Memory::Huge)
    }

    /// Whether, in a job of `n_pes`, only a network reaches all of it: other PEs cannot map it, or the processor has no
    /// access.
    pub(crate) fn is_apart(&self, n_pes: usize) -> bool {
        match self {
            Memory::External(external) => !external.cpu_access() || n_pes > 1 && external.by_descriptor().is_none(),
            _ => false,
        }
    }

    /// Of what the size of a heap is a multiple.
    pub(crate) fn multiple(&self) -> usize {
        if matches!(self, Memory::Huge) { HUGE_PAGE } else { super::MAX_ALIGN }
    }

    /// Bytes of the memfd before the extra ones.
    pub(crate) fn front(&self, layout: &Layout) -> usize {
        if matches!(self, Memory::Normal) { layout.bytes() } else { layout.user.start }
    }

    /// Makes the segment of this PE, with `extra` bytes behind what the memfd has of it; `slice` says which part of a file
    /// is its own, and `alone` that no other PE of the host maps it.
    pub(crate) fn create(&self, layout: &Layout, extra: usize, slice: usize, alone: bool) -> Result<Made> {
        let (front, len) = (self.front(layout), layout.bytes());
        match self {
            Memory::Normal => {
                let (segment, control) = Segment::create(len, extra)?;
                Ok(Made { segment, control, user: None, what: "normal pages".to_owned() })
            }
            Memory::Huge => {
                let control = memfd(front + extra, MemfdFlags::empty())?;
                let join = |user: OwnedFd, reserved| {
                    let part = part(&user, 0, layout, reserved)?;
                    Segment::join(&control, front, extra, len, part).map(|segment| (segment, user))
                };
                let pooled = memfd(layout.user.len(), MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
                let (segment, user, what) = match pooled.and_then(|user| join(user, true)) {
                    Ok((segment, user)) => (segment, user, "huge pages of 2 MiB from the host's pool".to_owned()),
                    Err(why) => {
                        let (segment, user) = join(memfd(layout.user.len(), MemfdFlags::empty())?, false)?;
                        let what = without_pool(segment.advise_huge(front), &why);
                        (segment, user, what)
                    }
                };
                Ok(Made { segment, control, user: Some(user), what })
            }
            Memory::File(node) => {
                let control = memfd(front + extra, MemfdFlags::empty())?;
                let part = part(&node.descriptor, slice, layout, false)?;
                let (start, end) = (part.offset, part.offset.saturating_add(layout.user.len() as u64));
                node.reserve(start, layout.user.len() as u64)?;
                let segment =
                    Segment::join(&control, front, extra, len, part).map_err(|error| node.unmappable(error))?;
                if !node.is_file {
                    if !segment.answers(front) || !segment.answers(len - 1) {
                        return Err(bad_path(&node.path, &format!("it has no memory at bytes {start}..{end}")));
                    }
                    if !alone && !segment.is_seen_by_others(front, part)? {
                        return Err(bad_path(
                            &node.path,
                            "what is written to one mapping of it is not seen by another",
                        ));
                    }
                }
                let what = format!("bytes {start}..{end} of {}", node.path);
                Ok(Made { segment, control, user: Some(node.dup()?), what })
            }
            Memory::External(external) => {
                let (given, needed) = (external.bytes(), layout.user.len());
                if given < needed {
                    let why = format!("a heap of {needed} bytes does not fit (SHMEM_SYMMETRIC_SIZE)");
                    return Err(ErrorKind::BadMemory { start: external.start().addr().get(), bytes: given, why }.into());
                }
                let (segment, control) = Segment::create(front, extra)?;
                let user = external.by_descriptor().map(|user| user.try_clone_to_owned()).transpose();
                let user =
                    user.map_err(|source| ErrorKind::os("keeping the descriptor of the heap's memory", source))?;
                let what = format!("{} ({needed} of {given} bytes)", external.kind());
                let segment = Segment::in_pieces(segment, len, Some(external.clone()))?;
                Ok(Made { segment, control, user, what })
            }
        }
    }

    /// Maps the segment of another PE of the host, whose memory is of the same kind.
    pub(crate) fn attach(
        &self,
        layout: &Layout,
        extra: usize,
        control: &OwnedFd,
        user: Option<&OwnedFd>,
        slice: usize,
    ) -> Result<Segment> {
        let (front, len) = (self.front(layout), layout.bytes());
        let join = |user| Segment::join(control, front, extra, len, part(user, slice, layout, false)?);
        match (self, user) {
            (Memory::External(external), user) => {
                let joined = user.filter(|_| external.cpu_access()).and_then(|user| join(user).ok());
                let in_pieces = || Segment::in_pieces(Segment::attach(control, front, extra)?, len, None);
                joined.map_or_else(in_pieces, Ok)
            }
            (_, None) => Segment::attach(control, len, extra),
            (_, Some(user)) => {
                let segment = join(user)?;
                if matches!(self, Memory::Huge) {
                    // What it comes to was found out by the PE whose memory it is.
                    segment.advise_huge(front);
                }
                Ok(segment)
            }
        }
    }
}

impl Node {
    /// Makes sure that the bytes from `offset` on are there, so that none is missing when it is first touched. What they
    /// hold stays as it is. A device node answers for itself.
    fn reserve(&self, offset: u64, bytes: u64) -> Result<()> {
        if !self.is_file {
            return Ok(());
        }
        let end = offset.saturating_add(bytes);
        let stat = rustix::fs::fstat(&self.descriptor).map_err(|source| failed("sizing", &self.path, "", source))?;
        let size = stat.st_size.unsigned_abs();
        if end > size && !may_grow_to(end) {
            let why = format!("to {end} bytes (ulimit -f)");
            return Err(failed("growing", &self.path, &why, Errno::FBIG));
        }
        loop {
            return match rustix::fs::fallocate(&self.descriptor, FallocateFlags::empty(), offset, bytes) {
                Ok(()) => Ok(()),
                Err(Errno::INTR) => continue,
                // It cannot say what it will give: a file that is long enough is taken as it is.
                Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS | Errno::PERM) if end <= size => Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => {
                    let why = format!("it has {size} bytes, {end} are needed, and its file system reserves none");
                    Err(bad_path(&self.path, &why))
                }
                Err(source) => {
                    let why = format!("for the symmetric heap, up to byte {end} of it, which has {size} now");
                    Err(failed("reserving room in", &self.path, &why, source))
                }
            };
        }
    }

    fn dup(&self) -> Result<OwnedFd> {
        let copy = self.descriptor.try_clone();
        copy.map_err(|source| ErrorKind::os(format!("keeping {} open", self.path), source))
    }

    fn unmappable(&self, error: Error) -> Error {
        bad_path(&self.path, &format!("{error}; a device may want the size to be a multiple of its own pages"))
    }
}

/// The slice of what is behind a descriptor that is a user's heap.
fn part<'fd>(user: &'fd OwnedFd, slice: usize, layout: &Layout, reserved: bool) -> Result<Part<'fd>> {
    let stat = rustix::fs::fstat(user).map_err(|source| ErrorKind::os("looking at a heap's memory", source))?;
    // That of hugetlbfs is the size of its pages; others say how much they like to read, which may be anything.
    let preferred = usize::try_from(stat.st_blksize).unwrap_or(0);
    let grain = if preferred.is_power_of_two() { preferred.clamp(HUGE_PAGE, LARGEST_GRAIN) } else { HUGE_PAGE };
    let offset = (slice as u64).saturating_mul(layout.user.len().next_multiple_of(grain) as u64);
    Ok(Part { descriptor: user.as_fd(), offset, grain, reserved })
}

/// What a heap without pages of the pool has, and why.
fn without_pool(advised: bool, why: &Error) -> String {
    let enabled = std::fs::read_to_string(SHMEM_ENABLED).unwrap_or_default();
    let enabled = enabled.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(choice, _)| choice);
    match enabled {
        "always" | "within_size" | "advise" | "force" if advised => format!(
            "normal pages, which the kernel joins to huge ones where it can ({SHMEM_ENABLED} is {enabled}); none from the \
             host's pool: {why}"
        ),
        _ => {
            let enabled = if enabled.is_empty() { "unknown" } else { enabled };
            format!(
                "normal pages: the kernel joins none to huge ones ({SHMEM_ENABLED} is {enabled}), and there are none in the \
                 host's pool: {why}"
            )
        }
    }
}

fn failed(doing: &str, path: &str, why: &str, source: Errno) -> Error {
    let space = if why.is_empty() { "" } else { " " };
    ErrorKind::os(format!("{doing} {path}{space}{why} (SHMEM_HEAP)"), source)
}

fn bad_path(path: &str, why: &str) -> Error {
    let (name, value) = ("SHMEM_HEAP".to_owned(), format!("file:{path}"));
    ErrorKind::BadSetting { name, value, form: why.to_owned() }.into()
}
