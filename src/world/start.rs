//! From settings and a bootstrap to a started world: one straight function, the same for threads, `shmemrun` and
//! embedding programs.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::boot::{Bootstrap, Rendezvous, group};
use crate::config::{self, Config, HeapMemory};
use crate::core::Core;
use crate::error::{ErrorKind, Result};
use crate::group::{Group, Slots, by_value};
use crate::heap::host::Host;
use crate::heap::{Arena, Check, ExternalMemory, Heap, MAX_ALIGN, Memory, Page, Segment};
use crate::transport::link::Link;
use crate::transport::loopback::STREAM_FROM;
use crate::transport::rest::Patience;
use crate::transport::roce::sim::turns::Turns;
use crate::watch::{Board, Lookout, Vigil, vigil};
use crate::world::network::Joint;
use crate::world::plan::{Fabric, Joined, Plan};
use crate::world::{World, let_the_first_end, network};

/// Teams that all PEs have from the start, by their slots.
const WORLD_SLOT: usize = 0;
const SHARED_SLOT: usize = 1;

/// Starts the world of PE `boot.me()`. Collective over the job: three exchanges, *joined* (what everyone brings),
/// *mapped* (the heaps' descriptors) and *connected* (where each is on the network; all are ready). A PE that fails drops its bootstrap, and the
/// others' next exchange fails and names it. `external` is memory of the program's own for the heap.
pub(super) fn start(
    config: Config,
    external: Option<ExternalMemory>,
    boot: Box<dyn Bootstrap + Send + Sync>,
) -> Result<World> {
    start_in(config, external, boot, None)
}

/// [`start`], of a PE of a history.
pub(super) fn start_in(
    mut config: Config,
    external: Option<ExternalMemory>,
    mut boot: Box<dyn Bootstrap + Send + Sync>,
    turns: Option<Arc<Turns>>,
) -> Result<World> {
    let (me, n_pes) = (boot.me(), boot.n_pes());
    let memory = memory(&mut config, external, me)?;
    let port = network::port(&config);
    let host = if turns.is_some() { Host::known() } else { Host::look() };
    let mine = Joined::gather(&config, me, n_pes, &memory, port, host);
    let mine = postcard::to_stdvec(&mine).map_err(garbled)?;
    let joined = boot.allgather(&mine)?;
    let joined: Vec<Joined> =
        (joined.iter().map(|bytes| postcard::from_bytes(bytes))).collect::<postcard::Result<_>>().map_err(garbled)?;
    let plan = Plan::new(&joined, me, &config)?;
    config.heap_size = Some(plan.heap);
    config.spin = Some(plan.spin);
    let stream_from = *config.stream_from.get_or_insert(STREAM_FROM);

    // A simulated card reaches into the memory of all PEs.
    let all: Vec<usize> = (0..n_pes).collect();
    let near = if plan.fabric == Fabric::Sim { &all } else { &plan.host };
    // The board of a host lies behind the memfd of its lowest PE.
    let (layout, front, leader) = (&plan.layout, memory.front(&plan.layout), plan.host[0]);
    let made = memory.create(layout, plan.behind(me), plan.slices[me], near.len() == 1)?;
    if me == leader {
        Board::attach(&made.control, front, &plan.host, n_pes)?.found(joined[0].nonce);
        boot.show(&made.control, plan.host.len())?;
    }
    let controls = boot.hand_over(made.control, near)?;
    // On all PEs alike, since their memory is.
    let users = made.user.map(|user| boot.hand_over(user, near)).transpose()?;
    let (mut board, mut mapped): (_, Vec<Option<Segment>>) = (None, (0..n_pes).map(|_| None).collect());
    for (i, (&pe, control)) in near.iter().zip(controls).enumerate() {
        if pe == leader {
            board = Some(Board::attach(&control, front, &plan.host, n_pes)?);
        }
        if pe != me {
            let user = users.as_ref().map(|users| users[i].as_ref());
            mapped[pe] = Some(memory.attach(layout, plan.behind(pe), &control, user, plan.slices[pe])?);
        }
    }
    drop(users);
    tracing::debug!(me, memory = made.what, regions = ?made.segment.regions(), "heap mapped");
    let Some(board) = board.map(Arc::new) else {
        return Err(ErrorKind::os("finding the board of this host", std::io::ErrorKind::NotFound));
    };
    // Threads of one process end together, and a launcher sees the ends of its processes.
    let alone_in_this = config.rendezvous.is_some() && !boot.led() && n_pes > 1;
    let vigil = if alone_in_this { watch_over(&board, boot.as_mut(), &plan.host)? } else { None };
    if vigil.is_none() {
        board.enter(me, false);
    }

    let workspaces = || (0..plan.layout.slots).map(|slot| plan.layout.workspace(slot)).collect();
    let check = config.check.then(|| Check::new(me, workspaces()));
    let heap = Heap::new(me, made.segment, Arena::new(plan.layout.user.clone()), check)?;
    // A launcher writes it by itself; without one, it is written where it was asked for.
    let flight_file = if boot.led() { None } else { config.flight_file.as_ref().and_then(|_| config.flight_file()) };
    let patience = Patience::new(plan.spin, config.timeout, config.stall_warn);
    // From here on, this PE leaves its row when it fails.
    let lookout = Lookout::new(board.clone(), me, flight_file);
    let nonce = joined[0].nonce;
    let (heap_of, memory) = (&heap, &made.what);
    let joint = Joint { plan: &plan, config: &config, me, nonce, heap: heap_of, mapped: &mut mapped, turns, memory };
    let (net, equipment) = network::connect(joint, boot.as_mut())?;
    let link = Link::new(me, heap, mapped, net, patience, stream_from, lookout);
    let slots = Slots::new(plan.layout.slots);
    let permanent = |members: &[usize], index, slot| {
        slots.take(slot);
        Arc::new(Group::new(&link, &plan.layout, members, index, slot, 0, plan.radix))
    };
    let world = permanent(&(0..n_pes).collect::<Vec<_>>(), me, WORLD_SLOT);
    let position = plan.host.iter().position(|pe| *pe == me).unwrap_or(0);
    let shared = permanent(&plan.host, position, SHARED_SLOT);
    tracing::debug!(me, n_pes, heap = plan.heap, "world started");

    let (living, layout, radix) = (Mutex::new(None), plan.layout, plan.radix);
    let (hosts, crowded) = (plan.hosts, plan.crowded);
    let memory = by_value(&equipment.memories, "has", "have");
    let network = (!equipment.ports.is_empty()).then(|| by_value(&equipment.ports, "has", "have"));
    let core = Core { link, layout, radix, slots, world, living, shared, hosts, crowded, config, memory, network };
    Ok(World { core: Arc::new(core), vigil, boot: boot.into() })
}

/// The memory for the heap of PE `me`, of the program's own or as the settings say.
fn memory(config: &mut Config, external: Option<ExternalMemory>, me: usize) -> Result<Memory> {
    let refused = |form: &str| {
        let (name, value) = ("SHMEM_HEAP".to_string(), config.value("SHMEM_HEAP"));
        ErrorKind::BadSetting { name, value, form: form.into() }
    };
    match (external, &config.heap) {
        (Some(external), HeapMemory::Normal) => {
            config.heap_size.get_or_insert(external.bytes() / MAX_ALIGN * MAX_ALIGN);
            Ok(Memory::External(Arc::new(external)))
        }
        (Some(_), _) => Err(refused("the program gives the memory of the heap itself").into()),
        (None, HeapMemory::Normal) => Ok(Memory::Normal),
        (None, HeapMemory::Huge) => Ok(Memory::Huge),
        (None, HeapMemory::File(_)) if config.heap_size.is_none() => {
            Err(refused("set SHMEM_SYMMETRIC_SIZE, too: it says how much of the file is the heap of a PE").into())
        }
        (None, HeapMemory::File(path)) => Memory::open(path, me),
    }
}

/// Lets the PEs of the host watch over each other, by descriptors of their processes. Collective over the job. Where a
/// system has no such descriptors, another descriptor travels in its place.
fn watch_over(board: &Arc<Board>, boot: &mut dyn Bootstrap, host: &[usize]) -> Result<Option<Vigil>> {
    let me = boot.me();
    let (mine, process) = vigil::own_process()?;
    board.enter(me, process);
    let handed = boot.hand_over(mine, host)?;
    let other = |pe: usize| pe != me && board.row(pe).is_some_and(|row| row.is_watched());
    let mut watched: Vec<_> = host.iter().copied().zip(handed).collect();
    // Each watches over those that follow it, round the host.
    let own = watched.iter().position(|(pe, _)| *pe == me).unwrap_or(0);
    watched.rotate_left(own);
    watched.retain(|(pe, _)| other(*pe));
    watched.truncate(vigil::MOST);
    if watched.is_empty() { Ok(None) } else { Vigil::start(board.clone(), watched).map(Some) }
}

/// Joins the job of which the environment tells: the launcher's, or one of this PE alone.
fn join_by_environment(config: Config, external: Option<ExternalMemory>) -> Result<World> {
    if config.debug {
        // A program that shows the library's events in its own way goes on doing so.
        let events = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time();
        let _ = events.with_writer(std::io::stderr).with_ansi(false).try_init();
    }
    let world = match (&config.rendezvous, config.pe, config.n_pes) {
        (Some(address), Some(pe), Some(n_pes)) => {
            check(pe, n_pes)?;
            take_place(pe)?;
            let key = config.job_key.as_deref().unwrap_or_default();
            let world = Rendezvous::join(address, key, pe, n_pes, config.init_timeout)
                .and_then(|boot| start(config.clone(), external, Box::new(boot)));
            world.inspect_err(|error| {
                if matches!(error.kind(), ErrorKind::PeerLost { .. }) {
                    let_the_first_end();
                }
            })?
        }
        (None, None, None) => start(config, external, alone())?,
        (_, pe, n_pes) => {
            let why = "SHMEM_RENDEZVOUS, SHMEM_PE and SHMEM_N_PES go together: shmemrun sets all three".to_string();
            return Err(ErrorKind::BadJob { pe: pe.unwrap_or(0), n_pes: n_pes.unwrap_or(0), why }.into());
        }
    };
    if world.me() == 0 {
        greet(&world);
    }
    Ok(world)
}

/// Fails in a process that was forked from one that has joined as a PE of the launcher's job: it must not join in its
/// parent's place.
fn take_place(pe: usize) -> Result<()> {
    static TAKEN: OnceLock<(Page, usize)> = OnceLock::new();
    let page = Page::new()?;
    match TAKEN.get_or_init(|| (page, pe)) {
        (page, _) if page.is_own_process() => Ok(()),
        (_, pe) => Err(ErrorKind::Forked { pe: *pe }.into()),
    }
}

/// What PE 0 says at start-up, once for the job: unknown settings, and what was asked for.
fn greet(world: &World) {
    for warning in config::unknown_names(std::env::vars_os()) {
        eprintln!("shmem: {warning}");
    }
    if world.config().version {
        println!("shmem {} (OpenSHMEM 1.6 model), {} PEs", env!("CARGO_PKG_VERSION"), world.n_pes());
    }
    if world.config().info {
        print!("{}", world.info());
    }
}

fn alone() -> Box<dyn Bootstrap + Send + Sync> {
    group(1).pop().map_or_else(|| unreachable!("a group of one has one"), |boot| Box::new(boot) as _)
}

fn check(pe: usize, n_pes: usize) -> Result<()> {
    let why = match n_pes {
        0 => "a job has at least one PE".to_string(),
        _ if pe >= n_pes => format!("PEs are numbered from 0 to {}", n_pes - 1),
        _ => return Ok(()),
    };
    Err(ErrorKind::BadJob { pe, n_pes, why }.into())
}

fn garbled(error: postcard::Error) -> crate::error::Error {
    ErrorKind::os("exchanging start-up records", std::io::Error::other(error))
}

/// Settings of a world that no launcher starts; see [`World::builder`]. Nothing is read from the environment, unless it comes
/// [from there](Self::from_env).
#[derive(Debug, Default)]
#[must_use = "build() joins the job"]
pub struct Builder {
    config: Config,
    external: Option<ExternalMemory>,
    /// Of the environment, which says how the job is joined.
    from_env: bool,
}

impl Builder {
    /// What the environment says, and the launcher by it: [`World::init`] builds this as it is.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting).
    pub fn from_env() -> Result<Self> {
        Ok(Builder { config: Config::from_env()?, external: None, from_env: true })
    }

    /// This PE's number. Default: 0.
    pub fn pe(mut self, pe: usize) -> Self {
        self.config.pe = Some(pe);
        self
    }

    /// The number of PEs in the job. Default: 1.
    pub fn n_pes(mut self, n_pes: usize) -> Self {
        self.config.n_pes = Some(n_pes);
        self
    }

    /// Where the PEs meet: `HOST:PORT`, or `unix:@NAME` for an abstract socket of this host. PE 0 listens there.
    pub fn rendezvous(mut self, address: impl Into<String>) -> Self {
        self.config.rendezvous = Some(address.into());
        self
    }

    /// A secret of the job: processes with another key are turned away. Default: none.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.config.job_key = Some(key.into());
        self
    }

    /// Bytes of the symmetric heap of each PE. Default: a share of the host's memory.
    pub fn heap(mut self, bytes: usize) -> Self {
        self.config.heap_size = Some(bytes);
        self
    }

    /// Adds to the bytes of the symmetric heap, if they are said: for what a library above this one takes of it by itself.
    pub fn heap_besides(mut self, bytes: usize) -> Self {
        self.config.heap_size = self.config.heap_size.map(|said| said.saturating_add(bytes));
        self
    }

    /// Memory of the program's own as the symmetric heap of this PE: all of it in whole pages, unless
    /// [`heap`](Self::heap) asks for less. All PEs must give memory of the same kind and size. PEs whose memory has no
    /// descriptor that can be mapped reach each other's heaps over a network only; what the library needs besides (the words
    /// of barriers, workspaces of teams) is the system's memory.
    ///
    /// ```
    /// use shmem::{ExternalMemory, Shared, World};
    ///
    /// #[repr(align(4096))]
    /// struct Pages([u8; 1 << 16]);
    /// let pages = Box::leak(Box::new(Pages([0; 1 << 16])));
    ///
    /// // SAFETY: the pages are there for ever, and nobody else knows of them.
    /// let memory = unsafe { ExternalMemory::new(pages.0.as_mut_ptr(), 1 << 16) }?;
    /// let world = World::builder().external_heap(memory).build()?;
    /// let block = world.alloc::<u64>(3)?;
    /// world.ctx::<Shared>().put(block.sym(), &[1, 2, 3], 0)?;
    /// assert_eq!(block.sym().to_vec(), [1, 2, 3]);
    /// # world.free(block)?;
    /// # Ok::<(), shmem::Error>(())
    /// ```
    pub fn external_heap(mut self, memory: ExternalMemory) -> Self {
        self.external = Some(memory);
        self
    }

    /// How long a call may wait. Default: for ever.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.config.timeout = Some(limit);
        self
    }

    /// Any setting by the name of its variable, as `shmemrun --info` lists them.
    ///
    /// # Errors
    /// [`BadSetting`](ErrorKind::BadSetting) if there is no such setting or the value is not of its form.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        self.config.set(name, value)?;
        Ok(self)
    }

    /// Joins the job. Collective: blocks until all its PEs have called.
    ///
    /// # Errors
    /// [`BadJob`](ErrorKind::BadJob) for numbers that make no sense, [`BadMemory`](ErrorKind::BadMemory) for memory of the
    /// program's own that is shorter than the heap; else as [`World::init`].
    pub fn build(self) -> Result<World> {
        let Builder { mut config, external, from_env } = self;
        if from_env {
            return join_by_environment(config, external);
        }
        let (pe, n_pes) = (config.pe.unwrap_or(0), config.n_pes.unwrap_or(1));
        check(pe, n_pes)?;
        if config.heap_size == Some(0) {
            config.set("SHMEM_SYMMETRIC_SIZE", "0")?;
        }
        let boot: Box<dyn Bootstrap + Send + Sync> = match &config.rendezvous {
            None if n_pes == 1 => alone(),
            None => {
                let why = "a job of several PEs needs a rendezvous address".to_string();
                return Err(ErrorKind::BadJob { pe, n_pes, why }.into());
            }
            Some(address) => {
                let key = config.job_key.as_deref().unwrap_or_default();
                let meet = if pe == 0 { Rendezvous::host } else { Rendezvous::join };
                Box::new(meet(address, key, pe, n_pes, config.init_timeout)?)
            }
        };
        start(config, external, boot)
    }
}
