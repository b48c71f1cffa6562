//! A device as verbs know it: opened, asked what it can do, and with memory registered. With [`pair`](super::pair) the
//! only place that names `rdma_sys`.
//!
//! Each object holds what it was made from, so that they end in the right order. None of them ends anything in a forked
//! child: the kernel's objects behind them are its parent's.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::*;
use rustix::process::{Pid, getpid};

use super::address::{Gid, Reads, Window};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::roce::nic::{Atomics, Port, Region};

/// A port of an opened device.
pub(super) struct Card {
    context: NonNull<ibv_context>,
    domain: NonNull<ibv_pd>,
    pub(super) port: Port,
    /// The traffic class of what it sends.
    pub(super) class: u8,
    maker: Pid,
}

// SAFETY: verbs may be called from any thread; what is in a context and a domain is guarded by the library's own locks.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

/// What a device and its port can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Entries of a send queue, and of a completion queue.
    pub(super) depth: usize,
    /// Bytes of a message.
    pub(super) message: usize,
    pub(super) atomics: Atomics,
    /// Reads and atomics that a queue pair may have under way, and serve.
    pub(super) reads: Reads,
    /// Bytes of a packet, as verbs count them.
    pub(super) mtu: u8,
}

impl Card {
    /// Opens the device of a port, and looks whether the port works and has the GID that was chosen.
    pub(super) fn open(port: &Port, class: u8) -> Result<(Arc<Card>, Facts)> {
        // Where the kernel copies pinned pages for a forked child by itself, this does nothing; else it keeps them from the
        // child. It can only fail when another library of this process has been faster, and then it is as that wanted it.
        // SAFETY: it has no conditions.
        let _ = unsafe { ibv_fork_init() };
        let context = open(&port.device)?;
        // SAFETY: the context is open.
        let domain = NonNull::new(unsafe { ibv_alloc_pd(context.as_ptr()) });
        let Some(domain) = domain else {
            let failed = card_error(&port.device, "allocating a protection domain", &io::Error::last_os_error());
            // SAFETY: nothing has been made from the context.
            unsafe { ibv_close_device(context.as_ptr()) };
            return Err(failed);
        };
        let card = Card { context, domain, port: port.clone(), class, maker: getpid() };
        rustix::io::ioctl_fionbio(card.events(), true)
            .map_err(|e| card.error("setting up the reading of its events", &e.into()))?;
        let facts = card.facts()?;
        Ok((Arc::new(card), facts))
    }

    /// What it is called in reports: `rxe0:1`.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.port.device, self.port.port)
    }

    /// The same with what was chosen: `rxe0:1 (GID 1, ::ffff:10.77.0.1)`.
    pub(super) fn full_name(&self) -> String {
        format!("{} (GID {}, {})", self.name(), self.port.gid_index, Gid(self.port.gid))
    }

    /// An error of this device.
    #[cold]
    pub(super) fn error(&self, what: &str, source: &io::Error) -> Error {
        card_error(&self.name(), what, source)
    }

    /// Whether this process has opened it, and is no forked child.
    pub(super) fn is_own(&self) -> bool {
        getpid() == self.maker
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    pub(super) fn domain(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }

    /// Where the device tells what befalls it. Not to be waited for in reading.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open as long as `self` lives, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw(self.context.as_ref().async_fd) }
    }

    /// Whether what has befallen the device was its end. To be asked when [`events`](Self::events) can be read.
    pub(super) fn has_failed(&self) -> bool {
        let mut event = std::mem::MaybeUninit::<ibv_async_event>::uninit();
        // SAFETY: the context is open, and there is room for the event.
        if unsafe { ibv_get_async_event(self.context(), event.as_mut_ptr()) } != 0 {
            return io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock;
        }
        // SAFETY: the call has filled it in. It is read as a number, since newer kernels have events of other numbers.
        let kind = unsafe { (&raw const (*event.as_ptr()).event_type).cast::<u32>().read() };
        // SAFETY: the event was received, once.
        unsafe { ibv_ack_async_event(event.as_mut_ptr()) };
        kind == ibv_event_type::IBV_EVENT_DEVICE_FATAL as u32
    }

    fn facts(&self) -> Result<Facts> {
        // SAFETY: all fields are numbers, for which zero is a value.
        let (mut device, mut port) = unsafe { std::mem::zeroed::<(ibv_device_attr, ibv_port_attr)>() };
        // SAFETY: the context is open, and there is room for the answer.
        let asked = unsafe { ibv_query_device(self.context(), &raw mut device) };
        checked(asked).map_err(|e| self.error("asking for its limits", &e))?;
        // SAFETY: as above.
        let asked = unsafe { ___ibv_query_port(self.context(), self.port.port, &raw mut port) };
        checked(asked).map_err(|e| self.error("asking for the state of its port", &e))?;
        if port.state != ibv_port_state::IBV_PORT_ACTIVE {
            // SAFETY: the library has a static text for every number.
            let state = unsafe { CStr::from_ptr(ibv_port_state_str(port.state)) }.to_string_lossy();
            let what = format!("the port is not active but {state}: see to its cable and network device, or SHMEM_HCA");
            return Err(ErrorKind::Card { device: self.name(), what }.into());
        }
        self.check_gid()?;
        let positive = |count: i32| usize::try_from(count).unwrap_or_default();
        let reads = |count: i32| u8::try_from(count).unwrap_or(if count < 0 { 0 } else { u8::MAX });
        Ok(Facts {
            depth: positive(device.max_qp_wr).min(positive(device.max_cqe)),
            message: port.max_msg_sz as usize,
            atomics: match device.atomic_cap {
                ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomics::Global,
                ibv_atomic_cap::IBV_ATOMIC_HCA => Atomics::Card,
                _ => Atomics::None,
            },
            reads: Reads { asked: reads(device.max_qp_init_rd_atom), served: reads(device.max_qp_rd_atom) },
            mtu: port.active_mtu as u8,
        })
    }

    /// That the entry of the port's GID table holds what it did when it was chosen.
    fn check_gid(&self) -> Result<()> {
        let Port { port, gid_index, gid, .. } = &self.port;
        let mut held = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, and there is room for the answer.
        let asked = unsafe { ibv_query_gid(self.context(), *port, *gid_index as i32, &raw mut held) };
        let at = format!("entry {gid_index} of its GID table (SHMEM_GID_INDEX)");
        if asked != 0 {
            return Err(self.error(&format!("reading {at}"), &io::Error::last_os_error()));
        }
        // SAFETY: any bytes are a GID.
        let held = unsafe { held.raw };
        if held == *gid && held != [0; 16] && *gid_index <= u8::MAX.into() {
            return Ok(());
        }
        let what = if *gid_index > u8::MAX.into() {
            format!("{at} is out of reach: verbs count to {}", u8::MAX)
        } else if held == [0; 16] {
            format!("{at} is empty")
        } else {
            format!("{at} holds {}, not {}", Gid(held), Gid(*gid))
        };
        Err(ErrorKind::Card { device: self.name(), what }.into())
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: whatever was made from them holds an `Arc` of this, so it is gone.
            unsafe { ibv_dealloc_pd(self.domain.as_ptr()) };
            // SAFETY: as above.
            unsafe { ibv_close_device(self.context.as_ptr()) };
        }
    }
}

/// A range of memory that a card reaches.
pub(super) struct Registration {
    memory: NonNull<ibv_mr>,
    /// Its range, but for the key.
    window: Window,
    card: Arc<Card>,
}

// SAFETY: a registration does not change until it ends.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers a region, which outlives what is returned. Reads and writes of it are never reordered on their way
    /// (`IBV_ACCESS_RELAXED_ORDERING`), since flags lie in it.
    pub(super) fn new(card: &Arc<Card>, region: &Region) -> Result<Registration> {
        let (base, bytes) = (region.base.as_ptr(), region.offsets.len());
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let access = access.0 as i32;
        let memory = match &region.dmabuf {
            // SAFETY: the domain is live; the kernel checks the range and pins it.
            None => unsafe { ibv_reg_mr(card.domain(), base.cast(), bytes, access) },
            // SAFETY: as above, for what is behind the descriptor, which the kernel keeps.
            Some(dmabuf) => unsafe {
                ibv_reg_dmabuf_mr(card.domain(), 0, bytes, base as u64, dmabuf.as_raw_fd(), access)
            },
        };
        match NonNull::new(memory) {
            Some(memory) => {
                let window = Window { offset: region.offsets.start, bytes, address: base as u64, key: 0 };
                Ok(Registration { memory, window, card: card.clone() })
            }
            None => Err(refused(card, region, io::Error::last_os_error())),
        }
    }

    /// It as this PE's requests name it.
    pub(super) fn near(&self) -> Window {
        // SAFETY: it lives as long as `self`.
        Window { key: unsafe { self.memory.as_ref().lkey }, ..self.window }
    }

    /// It as peers' requests name it.
    pub(super) fn far(&self) -> Window {
        // SAFETY: as above.
        Window { key: unsafe { self.memory.as_ref().rkey }, ..self.window }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.card.is_own() {
            // SAFETY: it was made by registering, and is not used any more.
            unsafe { ibv_dereg_mr(self.memory.as_ptr()) };
        }
    }
}

/// Why memory could not be registered. Locking counts against a limit of the process and of containers.
#[cold]
fn refused(card: &Card, region: &Region, source: io::Error) -> Error {
    let need = region.offsets.len();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let locked = matches!(source.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::PermissionDenied);
    match (&region.dmabuf, limit) {
        (None, Some(have)) if locked => ErrorKind::Locked { device: card.name(), need, have, source }.into(),
        (None, _) => card.error(&format!("registering {need} bytes of memory"), &source),
        (Some(_), _) => card.error(&format!("registering {need} bytes of another device's memory (dmabuf)"), &source),
    }
}

/// The answer of a call that returns an error number or, in some providers, -1 with one.
pub(super) fn checked(answer: i32) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        number if number > 0 => Err(io::Error::from_raw_os_error(number)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cold]
fn card_error(device: &str, what: &str, source: &io::Error) -> Error {
    ErrorKind::Card { device: device.to_owned(), what: format!("{what} failed: {source}") }.into()
}

/// Opens a device by name.
fn open(device: &str) -> Result<NonNull<ibv_context>> {
    let mut names = Vec::new();
    // SAFETY: it has no conditions; the number of devices is not asked for.
    let list = unsafe { ibv_get_device_list(std::ptr::null_mut()) };
    let Some(list) = NonNull::new(list) else {
        return Err(card_error(
            device,
            "listing the devices of a kernel that seems to have no RDMA",
            &io::Error::last_os_error(),
        ));
    };
    let mut opened = None;
    for index in 0.. {
        // SAFETY: the list ends with null, and is not read any further.
        let entry = unsafe { *list.as_ptr().add(index) };
        if entry.is_null() {
            break;
        }
        // SAFETY: it is a device of the list, which is not freed yet.
        let name = unsafe { CStr::from_ptr(ibv_get_device_name(entry)) }.to_string_lossy().into_owned();
        if name == device {
            // SAFETY: as above.
            let context = NonNull::new(unsafe { ibv_open_device(entry) });
            opened = Some(context.ok_or_else(io::Error::last_os_error));
            break;
        }
        names.push(name);
    }
    // SAFETY: it was made above; a context that was opened does not need it.
    unsafe { ibv_free_device_list(list.as_ptr()) };
    match opened {
        Some(opened) => opened.map_err(|source| card_error(device, "opening it", &source)),
        None => {
            let what = format!("there is no such device; those that there are: {}", names.join(", "));
            Err(ErrorKind::Card { device: device.to_owned(), what }.into())
        }
    }
}
