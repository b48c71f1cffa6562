//! The settings, a row each. A new setting is a row here and a field of [`super::Config`]; everything else follows.

use std::net::IpAddr;

use super::forms::{limit, list, parse_size, show_limit, show_size, switch, whole, word};
use super::{HeapMemory, RouteChoice, Setting};

/// Every setting of the library.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "SHMEM_SYMMETRIC_SIZE",
        form: "a size above 0 in bytes, like 512M or 3.1G (the suffixes k, m, g, t are powers of 1024)",
        default: "a share of the host's memory",
        help: "bytes of the symmetric heap of each PE",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.heap_size, parse_size(text)),
        show: |c| c.heap_size.map(show_size),
    },
    Setting {
        name: "SHMEM_HEAP",
        form: "`normal`, `huge`, or file:PATH of a file or device node (%p in the path is the number of the PE)",
        default: "normal",
        help: "memory of the symmetric heap, see `docs/memory.md`; the kind, not the path, must be the same on all PEs",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.heap, heap(text)),
        show: |c| Some(show_heap(&c.heap)),
    },
    Setting {
        name: "SHMEM_TEAM_SLOTS",
        form: "a whole number from 2 to 256",
        default: "64",
        help: "teams that can exist at a time, the predefined ones included",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.team_slots, whole(text, 2..=256)),
        show: |c| Some(c.team_slots.to_string()),
    },
    Setting {
        name: "SHMEM_TEAM_WORKSPACE",
        form: "a size in bytes from 4K to 1G, like 256K (the suffixes k, m, g, t are powers of 1024)",
        default: "256K",
        help: "symmetric memory that each team keeps for its collectives; given when it is first used",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.team_workspace, parse_size(text).filter(|size| (4 << 10..=1 << 30).contains(size))),
        show: |c| Some(show_size(c.team_workspace)),
    },
    Setting {
        name: "SHMEM_TIMEOUT",
        form: "seconds from 0 (no limit) to 1000000000, fractions allowed",
        default: "0",
        help: "calls that wait longer return the error Timeout; 0 is no limit",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.timeout, limit(text)),
        show: |c| Some(show_limit(c.timeout)),
    },
    Setting {
        name: "SHMEM_STALL_WARN",
        form: "seconds from 0 (never) to 1000000000, fractions allowed",
        default: "10",
        help: "a call that waits longer prints, once, what all PEs of its host do; 0 is never",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.stall_warn, limit(text)),
        show: |c| Some(show_limit(c.stall_warn)),
    },
    Setting {
        name: "SHMEM_INIT_TIMEOUT",
        form: "seconds from 0 (no limit) to 1000000000, fractions allowed",
        default: "120",
        help: "how long start-up waits for the other PEs; 0 is no limit",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.init_timeout, limit(text)),
        show: |c| Some(show_limit(c.init_timeout)),
    },
    Setting {
        name: "SHMEM_SPIN",
        form: "a whole number from 0 to 4294967295",
        default: "from cores and PEs",
        help: "polls before a waiter yields its core",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.spin, whole(text, 0..=u32::MAX as usize).and_then(|n| u32::try_from(n).ok())),
        show: |c| c.spin.map(|n| n.to_string()),
    },
    Setting {
        name: "SHMEM_STREAM_FROM",
        form: "a size above 0 in bytes, like 4M (the suffixes k, m, g, t are powers of 1024), or `never`",
        default: "measured",
        help: "bytes from which copies use non-temporal stores; of a collective, all that a PE reads and writes",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.stream_from, if is(text, "never") { Some(usize::MAX) } else { parse_size(text) }),
        show: |c| c.stream_from.map(|n| if n == usize::MAX { "never".to_owned() } else { show_size(n) }),
    },
    Setting {
        name: "SHMEM_BARRIER_RADIX",
        form: "a whole number from 2 to 64",
        default: "from the PEs",
        help: "how many PEs one round of a barrier brings together",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.barrier_radix, whole(text, 2..=64)),
        show: |c| c.barrier_radix.map(|n| n.to_string()),
    },
    Setting {
        name: "SHMEM_COLL_THRESHOLD",
        form: "a size above 0 in bytes, like 1M (the suffixes k, m, g, t are powers of 1024)",
        default: "1M",
        help: "bytes of a block beyond which collectives between hosts take ring and hierarchical algorithms",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.coll_threshold, parse_size(text)),
        show: |c| Some(show_size(c.coll_threshold)),
    },
    Setting {
        name: "SHMEM_COLL_SMALL",
        form: "a size above 0 in bytes, like 2K (the suffixes k, m, g, t are powers of 1024)",
        default: "from the table",
        help: "bytes of a block up to which collectives inside a host take the one-shot algorithm",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.coll_small, parse_size(text)),
        show: |c| c.coll_small.map(show_size),
    },
    Setting {
        name: "SHMEM_COLL_ALGO",
        form: "COLLECTIVE=ALGORITHM, several with commas between them, like allreduce=ring,alltoall=pairwise",
        default: "from the table",
        help: "the algorithms that collectives take, for any size, where they can (see `shmem-perf plan`)",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.coll_algo, pairs(text)),
        show: |c| c.coll_algo.clone(),
    },
    Setting {
        name: "SHMEM_COLL_TABLE",
        form: "the path of a file that `shmem-perf tune -o FILE` wrote",
        default: "built in",
        help: "measured choice of algorithms, and of modes of exchanges between experts; the files must be the same, too",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.coll_table, word(text)),
        show: |c| c.coll_table.clone(),
    },
    Setting {
        name: "SHMEM_COLL_DETERMINISTIC",
        form: "`off` or `strict`",
        default: "off",
        help: "strict: reductions combine in the order of the PEs, so that results never depend on the algorithm",
        agree: true,
        internal: false,
        set: |c, text| {
            put(&mut c.coll_strict, if is(text, "strict") { Some(true) } else { is(text, "off").then_some(false) })
        },
        show: |c| Some(if c.coll_strict { "strict" } else { "off" }.to_owned()),
    },
    Setting {
        name: "SHMEM_HOST_ID",
        form: "any text",
        default: "this machine's",
        help: "identity of this host; PEs with different ones share no memory, so that one machine plays several",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.host, word(text)),
        show: |c| c.host.clone(),
    },
    Setting {
        name: "SHMEM_HOSTS",
        form: "a whole number from 1 to 65536",
        default: "1",
        help: "how many hosts each machine plays, for trying: its PEs are dealt to them in blocks",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.hosts, whole(text, 1..=1 << 16)),
        show: |c| c.hosts.map(|n| n.to_string()),
    },
    Setting {
        name: "SHMEM_ROUTE",
        form: "`auto`, `roce` or `sim`",
        default: "auto",
        help: "the way between hosts, and within if there is only one: auto, RoCE, or a network for tests that is simulated \
               in memory, delays and reorders",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.route, ROUTES.iter().find(|(name, _)| is(text, name)).map(|(_, route)| *route)),
        show: |c| ROUTES.iter().find(|(_, route)| *route == c.route).map(|(name, _)| (*name).to_owned()),
    },
    Setting {
        name: "SHMEM_HCA",
        form: "RDMA devices, with or without a port, like `mlx5_0:1,mlx5_2` or `mlx5` for all that begin so; `^` in front \
               for all but these, `=` for whole names only",
        default: "all that are usable",
        help: "the ports that RoCE goes through; PEs of a host are spread over them",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.hca, list(text, is_port)),
        show: |c| c.hca.clone(),
    },
    Setting {
        name: "SHMEM_GID_INDEX",
        form: "a whole number from 0 to 255",
        default: "the best",
        help: "the entry of a port's GID table, which is the address that RoCE uses",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.gid_index, whole(text, 0..=255).and_then(|n| u8::try_from(n).ok())),
        show: |c| c.gid_index.map(|n| n.to_string()),
    },
    Setting {
        name: "SHMEM_TRAFFIC_CLASS",
        form: "a whole number from 0 to 255",
        default: "0",
        help: "the traffic class of RoCE packets, by which switches tell priorities: the DSCP times 4, and 2 for ECN",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.traffic_class, whole(text, 0..=255).and_then(|n| u8::try_from(n).ok())),
        show: |c| Some(c.traffic_class.to_string()),
    },
    Setting {
        name: "SHMEM_IFNAME",
        form: "network devices, addresses or networks, like `eth0,10.1.0.0/16` or `eth` for all that begin so; `^` in front \
               for all but these, `=` for whole names only",
        default: "any",
        help: "whose addresses RoCE may use",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.ifname, list(text, is_network)),
        show: |c| c.ifname.clone(),
    },
    Setting {
        name: "SHMEM_FLIGHT_FILE",
        form: "the path of a file, or `off`",
        default: "shmem-flight.txt",
        help: "where the last calls of all PEs are written when one is lost: by shmemrun, or, if this is set, without it",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.flight_file, word(text)),
        show: |c| c.flight_file.clone(),
    },
    Setting {
        name: "SHMEM_CHECK",
        form: SWITCH,
        default: "0",
        help: "checked mode: use of freed memory and of buffers in use is an error, and what is left over is reported",
        agree: true,
        internal: false,
        set: |c, text| put(&mut c.check, Some(switch(text))),
        show: |c| Some(u8::from(c.check).to_string()),
    },
    Setting {
        name: "SHMEM_INFO",
        form: SWITCH,
        default: "0",
        help: "PE 0 prints the settings in force at start-up",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.info, Some(switch(text))),
        show: |c| Some(u8::from(c.info).to_string()),
    },
    Setting {
        name: "SHMEM_VERSION",
        form: SWITCH,
        default: "0",
        help: "PE 0 prints the version of the library at start-up",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.version, Some(switch(text))),
        show: |c| Some(u8::from(c.version).to_string()),
    },
    Setting {
        name: "SHMEM_DEBUG",
        form: SWITCH,
        default: "0",
        help: "debugging messages are printed",
        agree: false,
        internal: false,
        set: |c, text| put(&mut c.debug, Some(switch(text))),
        show: |c| Some(u8::from(c.debug).to_string()),
    },
    Setting {
        name: "SHMEM_RENDEZVOUS",
        form: "an address",
        default: "none",
        help: "where the PEs of the job meet",
        agree: false,
        internal: true,
        set: |c, text| put(&mut c.rendezvous, word(text)),
        show: |c| c.rendezvous.clone(),
    },
    Setting {
        name: "SHMEM_JOB_KEY",
        form: "any text",
        default: "none",
        help: "the secret that admits a process to the job",
        agree: false,
        internal: true,
        set: |c, text| put(&mut c.job_key, word(text)),
        show: |c| c.job_key.as_ref().map(|_| "(set)".to_owned()),
    },
    Setting {
        name: "SHMEM_PE",
        form: "a whole number",
        default: "none",
        help: "the number of this PE, from 0",
        agree: false,
        internal: true,
        set: |c, text| put(&mut c.pe, whole(text, 0..=usize::MAX)),
        show: |c| c.pe.map(|n| n.to_string()),
    },
    Setting {
        name: "SHMEM_N_PES",
        form: "a whole number",
        default: "none",
        help: "the number of PEs in the job",
        agree: false,
        internal: true,
        set: |c, text| put(&mut c.n_pes, whole(text, 0..=usize::MAX)),
        show: |c| c.n_pes.map(|n| n.to_string()),
    },
];

const SWITCH: &str = "nothing or 1 for on; 0, false, no or off for off";

const ROUTES: [(&str, RouteChoice); 3] =
    [("auto", RouteChoice::Auto), ("roce", RouteChoice::Roce), ("sim", RouteChoice::Sim)];

fn put<F, T: Into<F>>(field: &mut F, value: Option<T>) -> Option<()> {
    *field = value?.into();
    Some(())
}

fn is(text: &str, word: &str) -> bool {
    text.eq_ignore_ascii_case(word)
}

fn heap(text: &str) -> Option<HeapMemory> {
    match text.split_once(':') {
        Some((kind, path)) if is(kind, "file") => word(path).map(HeapMemory::File),
        None if is(text, "normal") => Some(HeapMemory::Normal),
        None if is(text, "huge") => Some(HeapMemory::Huge),
        _ => None,
    }
}

/// The inverse of [`heap`].
fn show_heap(heap: &HeapMemory) -> String {
    match heap {
        HeapMemory::Normal => "normal".to_owned(),
        HeapMemory::Huge => "huge".to_owned(),
        HeapMemory::File(path) => format!("file:{path}"),
    }
}

/// `mlx5_0` or `mlx5_0:1`.
fn is_port(text: &str) -> bool {
    let (device, port) = text.split_once(':').unwrap_or((text, "1"));
    !device.is_empty() && !device.contains('/') && whole(port, 1..=255).is_some()
}

/// A name, an address, or a network with the length of its prefix.
fn is_network(text: &str) -> bool {
    let Some((base, length)) = text.split_once('/') else { return !text.is_empty() };
    let bits = |base: IpAddr| if base.is_ipv4() { 32 } else { 128 };
    base.parse().is_ok_and(|base| whole(length, 0..=bits(base)).is_some())
}

/// `NAME=NAME,NAME=NAME`, without blanks; what the names mean is their owner's affair.
fn pairs(text: &str) -> Option<String> {
    let name = |name: &str| (!name.is_empty() && !name.contains('=')).then(|| name.to_owned());
    let pair = |pair: &str| {
        let (left, right) = pair.split_once('=')?;
        Some(format!("{}={}", name(left.trim_ascii())?, name(right.trim_ascii())?))
    };
    text.split(',').map(pair).collect::<Option<Vec<_>>>().map(|pairs| pairs.join(","))
}
