//! What a check-up reads. What cannot be read is not there; nothing here judges.

use std::path::Path;

use rustix::fs::MemfdFlags;
use rustix::process::{Resource, getrlimit};

use crate::boot::launch::descriptors;
use crate::config::{Config, SETTINGS, unknown_names};
use crate::heap::host::{self, Cores, Memory};
use crate::transport::roce::seen::{Seen, names, text};
use crate::transport::roce::wishes::Wishes;
use crate::world::plan;

/// What was read.
#[derive(Debug)]
pub(super) struct Facts {
    /// PEs on this host.
    pub(super) n_pes: usize,
    /// Settings that are not their defaults, as `NAME=value`.
    pub(super) settings: Vec<String>,
    /// What is wrong with the names of others.
    pub(super) warnings: Vec<String>,
    pub(super) memory: Memory,
    /// What start-up would give, or its error.
    pub(super) heaps: Result<Heaps, String>,
    /// Under strict overcommit, bytes that may still be promised.
    pub(super) promises: Option<u64>,
    pub(super) cores: Cores,
    pub(super) address_space: Limit,
    pub(super) files: Limit,
    /// Files that the launcher needs.
    pub(super) files_needed: u64,
    pub(super) locked: Limit,
    /// Whether that limit does not hold for this process (`CAP_IPC_LOCK`).
    pub(super) may_lock: bool,
    /// Whether nameless memory can be had, or why not.
    pub(super) memfd: Result<(), String>,
    pub(super) huge: Huge,
    pub(super) seen: Seen,
    pub(super) wishes: Wishes,
    /// The provider that libibverbs needs, by device, where its driver is known.
    pub(super) providers_needed: Vec<(String, &'static str)>,
    /// The providers that libibverbs has.
    pub(super) providers: Vec<String>,
    /// By port, as `mlx5_0:1`.
    pub(super) counters: Vec<(String, Vec<Counter>)>,
    /// By network device.
    pub(super) queueing: Vec<(String, Queueing)>,
    /// Whether this build has RoCE.
    pub(super) built: bool,
}

/// The heaps of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heaps {
    /// Bytes that a PE can allocate from.
    pub(super) user: u64,
    /// Bytes of all its symmetric memory.
    pub(super) whole: u64,
}

/// A limit of this process; `None` is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) soft: Option<u64>,
    /// What the soft one can be raised to.
    pub(super) hard: Option<u64>,
}

/// Pages of 2 MiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Huge {
    pub(super) reserved: u64,
    pub(super) free: u64,
    /// Whether shared memory gets some by itself, as the kernel's switch says.
    pub(super) transparent: Option<String>,
}

/// A counter of a card: `out_of_sequence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) value: u64,
}

/// How a network device queues RoCE packets, as far as its driver shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queueing {
    /// Priorities for which it answers marked packets with congestion notices, and for which it slows down on them.
    pub(super) ecn: Option<[Vec<String>; 2]>,
    /// By what it tells priorities: `dscp`, `pcp`.
    pub(super) trust: Option<String>,
}

impl Facts {
    pub(super) fn read(root: &Path, config: &Config, n_pes: Option<usize>) -> Facts {
        let (seen, cores) = (Seen::read(root), host::usable_cores());
        let n_pes = n_pes.unwrap_or_else(|| cores.quota.unwrap_or(cores.numbers.len())).max(1);
        let heaps = plan::on_this_host(config, n_pes).map_err(|e| e.to_string());
        let default = Config::default();
        let set = SETTINGS.iter().filter(|s| !s.internal && config.value(s.name) != default.value(s.name));
        let ports = seen.ports().map(|(device, port)| (device.name.clone(), port.number));
        let memfd = rustix::fs::memfd_create("shmem-check", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let devices = seen.devices.iter().map(|device| device.name.clone());
        let providers = names(&root.join("etc/libibverbs.d"));
        Facts {
            n_pes,
            settings: set.map(|s| format!("{}={}", s.name, config.value(s.name))).collect(),
            warnings: unknown_names(std::env::vars_os()),
            memory: host::available_memory(),
            heaps: heaps.map(|(user, whole)| Heaps { user: user as u64, whole: whole as u64 }),
            promises: promises(root),
            cores,
            address_space: Limit::of(Resource::As),
            files: Limit::of(Resource::Nofile),
            files_needed: descriptors(n_pes),
            locked: Limit::of(Resource::Memlock),
            may_lock: may_lock(root),
            memfd: memfd.map(drop).map_err(|e| e.to_string()),
            huge: Huge::read(root),
            wishes: Wishes::new(config),
            providers_needed: devices.filter_map(|name| Some((name.clone(), provider(root, &name)?))).collect(),
            providers: providers.iter().filter_map(|file| file.strip_suffix(".driver")).map(str::to_owned).collect(),
            counters: ports.map(|(device, port)| (format!("{device}:{port}"), counters(root, &device, port))).collect(),
            queueing: seen.nets.iter().map(|net| (net.name.clone(), Queueing::read(root, &net.name))).collect(),
            built: cfg!(feature = "roce"),
            seen,
        }
    }
}

impl Limit {
    fn of(resource: Resource) -> Limit {
        let limit = getrlimit(resource);
        Limit { soft: limit.current, hard: limit.maximum }
    }
}

impl Huge {
    fn read(root: &Path) -> Huge {
        let at = root.join("sys/kernel/mm/hugepages/hugepages-2048kB");
        let number = |file: &str| text(at.join(file)).and_then(|text| text.parse().ok()).unwrap_or(0);
        // `always within_size advise [never] deny force`
        let switch = text(root.join("sys/kernel/mm/transparent_hugepage/shmem_enabled"));
        Huge {
            reserved: number("nr_hugepages"),
            free: number("free_hugepages"),
            transparent: switch.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
        }
    }
}

impl Queueing {
    fn read(root: &Path, net: &str) -> Queueing {
        let at = root.join("sys/class/net").join(net);
        let enabled = |side: &str| {
            let folder = at.join("ecn").join(side).join("enable");
            let on = |priority: &String| text(folder.join(priority)).as_deref() == Some("1");
            names(&folder).into_iter().filter(on).collect()
        };
        let ecn = at.join("ecn/roce_np/enable").is_dir().then(|| ["roce_np", "roce_rp"].map(enabled));
        Queueing { ecn, trust: text(at.join("qos/trust")) }
    }
}

/// The provider of a device, by the driver of its card, or by what a driver in software calls it.
fn provider(root: &Path, device: &str) -> Option<&'static str> {
    const PROVIDERS: [(&str, &str); 8] = [
        ("mlx5_core", "mlx5"),
        ("mlx4_core", "mlx4"),
        ("bnxt_en", "bnxt_re"),
        ("ice", "irdma"),
        ("hns3", "hns"),
        ("qede", "qedr"),
        ("mana", "mana"),
        ("rxe", "rxe"),
    ];
    let at = root.join("sys/class/infiniband").join(device);
    let driver = std::fs::read_link(at.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
    let driver = driver.or_else(|| text(at.join("node_desc")))?;
    PROVIDERS.iter().find(|(name, _)| *name == driver).map(|(_, provider)| *provider)
}

/// The counters that the card of a port keeps.
fn counters(root: &Path, device: &str, port: u8) -> Vec<Counter> {
    let at = root.join(format!("sys/class/infiniband/{device}/ports/{port}/hw_counters"));
    let read = |name: String| Some(Counter { value: text(at.join(&name))?.parse().ok()?, name });
    names(&at).into_iter().filter_map(read).collect()
}

/// What the kernel may still promise, where it keeps to what it has (`vm.overcommit_memory=2`).
fn promises(root: &Path) -> Option<u64> {
    text(root.join("proc/sys/vm/overcommit_memory")).filter(|mode| mode == "2")?;
    let meminfo = text(root.join("proc/meminfo"))?;
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(kib("CommitLimit")?.saturating_sub(kib("Committed_AS")?).saturating_mul(1024))
}

/// Whether this process has `CAP_IPC_LOCK`, which the kernel honours in the first user namespace only.
fn may_lock(root: &Path) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = text(root.join("proc/self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let map = text(root.join("proc/self/uid_map")).unwrap_or_default();
    let first = map.split_whitespace().eq(["0", "0", "4294967295"]);
    first && effective.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1)
}
