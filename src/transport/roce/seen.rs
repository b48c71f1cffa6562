//! What the system shows of RDMA devices: a value, read once from files as the kernel lays them out.
//!
//! Reading never fails: what cannot be read is not there, and it is for whoever judges to say so. It needs no verbs
//! library, touches no device but by opening its node, and takes the root of the tree as an argument. An entry of a GID
//! table that is empty reads as zero and its attributes not at all (`EINVAL`); only the others are kept. Knows nothing
//! of what is good or wanted.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Entries of a GID table that verbs can name: the index travels in a byte (`ibv_global_route.sgid_index`).
pub(crate) const GIDS: u32 = 256;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Whether the kernel has its RDMA core.
    pub(crate) core: bool,
    /// In natural order of their names: `mlx5_2` before `mlx5_10`.
    pub(crate) devices: Vec<Device>,
    /// The network devices of this network namespace, by name.
    pub(crate) nets: Vec<Net>,
    /// The addresses of this network namespace, where they could be read.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    /// Whether this is a container.
    pub(crate) contained: bool,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Device {
    /// As verbs call it: `mlx5_0`.
    pub(crate) name: String,
    /// What it is: `CA` speaks InfiniBand or RoCE, `RNIC` iWARP.
    pub(crate) transport: String,
    /// Whether a driver alone makes it, such as Soft-RoCE: it has no place on a bus.
    pub(crate) software: bool,
    /// The memory that it is near to.
    pub(crate) numa: Option<u32>,
    /// By which file a program reaches it.
    pub(crate) node: Node,
    pub(crate) ports: Vec<Jack>,
}

/// The file by which a program reaches a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The kernel has none for it: `ib_uverbs` is not loaded.
    None,
    /// This one, which is not there.
    Missing(String),
    /// This one, which this process may not open.
    Refused {
        path: String,
        /// The system's answer.
        why: String,
        /// Whether it is the mode of the file that forbids it.
        by_mode: bool,
    },
    /// This one, which opens.
    Opens(String),
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Jack {
    /// From 1.
    pub(crate) number: u8,
    /// As the kernel writes it, without its number: `ACTIVE`, `DOWN`.
    pub(crate) state: String,
    /// Likewise: `LinkUp`, `Disabled`, `Polling`.
    pub(crate) physical: String,
    /// `Ethernet` or `InfiniBand`.
    pub(crate) layer: String,
    /// Gigabits a second.
    pub(crate) rate: Option<f64>,
    /// The entries of its GID table that are not empty, by index.
    pub(crate) gids: Vec<Gid>,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) index: u8,
    pub(crate) gid: [u8; 16],
    /// `None` where it cannot be read.
    pub(crate) kind: Option<GidKind>,
    /// The network device whose address it is.
    pub(crate) netdev: Option<String>,
}

/// Which packets are sent for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GidKind {
    /// UDP: goes through routers.
    V2,
    /// Bare Ethernet, or InfiniBand.
    V1,
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    V4,
    V6,
    LinkV4,
    LinkV6,
    Loopback,
}

impl Reach {
    pub(crate) fn of(address: IpAddr) -> Reach {
        match address {
            _ if address.is_loopback() => Reach::Loopback,
            IpAddr::V4(address) if address.is_link_local() => Reach::LinkV4,
            IpAddr::V4(_) => Reach::V4,
            IpAddr::V6(address) if address.is_unicast_link_local() => Reach::LinkV6,
            IpAddr::V6(_) => Reach::V6,
        }
    }
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) name: String,
    /// As the kernel writes it: `up`, `down`, `lowerlayerdown`, `unknown`.
    pub(crate) operstate: String,
    /// Bytes of an IP packet.
    pub(crate) mtu: Option<u32>,
    /// The driver of its card.
    pub(crate) driver: Option<String>,
    pub(crate) vlan: Option<Vlan>,
}

/// That a network device is a VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vlan {
    /// Its number, where it is known.
    pub(crate) id: Option<u16>,
    /// The network device that carries it.
    pub(crate) over: Option<String>,
}

impl Seen {
    /// Reads the tree under `root`, which is `/` but for tests.
    pub(crate) fn read(root: &Path) -> Seen {
        let devices = root.join("sys/class/infiniband");
        let signs = [".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io"];
        let nets = root.join("sys/class/net");
        // Beside the devices may lie files, such as `bonding_masters`.
        let folders = |at: &Path| names(at).into_iter().filter(|name| at.join(name).is_dir()).collect::<Vec<_>>();
        Seen {
            core: devices.is_dir(),
            devices: folders(&devices).into_iter().map(|name| Device::read(root, &devices.join(&name), name)).collect(),
            nets: folders(&nets).into_iter().map(|name| Net::read(root, name)).collect(),
            addresses: addresses(root),
            contained: signs.iter().any(|sign| root.join(sign).exists()),
        }
    }

    /// All ports with their devices.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&Device, &Jack)> {
        self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }

    /// The network device of this name.
    pub(crate) fn net(&self, name: &str) -> Option<&Net> {
        self.nets.iter().find(|net| net.name == name)
    }
}

impl Device {
    fn read(root: &Path, at: &Path, name: String) -> Device {
        let ports = at.join("ports");
        let numbers = names(&ports).into_iter().filter_map(|number| number.parse().ok());
        Device {
            transport: numbered(at.join("node_type")).unwrap_or_else(|| "CA".to_owned()),
            software: !at.join("device").exists(),
            // -1 is none.
            numa: text(at.join("device/numa_node")).and_then(|node| node.parse().ok()),
            node: Node::read(root, &name),
            ports: numbers.map(|number: u8| Jack::read(&ports.join(number.to_string()), number)).collect(),
            name,
        }
    }
}

impl Node {
    fn read(root: &Path, device: &str) -> Node {
        let class = root.join("sys/class/infiniband_verbs");
        let own = |node: &String| text(class.join(node).join("ibdev")).is_some_and(|name| name == device);
        let Some(name) = names(&class).into_iter().find(own) else { return Node::None };
        let path = format!("/dev/infiniband/{name}");
        // A container's limits show only when it is opened.
        match OpenOptions::new().read(true).write(true).open(root.join(path.trim_start_matches('/'))) {
            Ok(_) => Node::Opens(path),
            Err(e) if e.kind() == ErrorKind::NotFound => Node::Missing(path),
            Err(e) => {
                let by_mode = e.raw_os_error() == Some(rustix::io::Errno::ACCESS.raw_os_error());
                Node::Refused { path, why: e.to_string(), by_mode }
            }
        }
    }
}

impl Jack {
    fn read(at: &Path, number: u8) -> Jack {
        Jack {
            number,
            state: numbered(at.join("state")).unwrap_or_default(),
            physical: numbered(at.join("phys_state")).unwrap_or_default(),
            layer: text(at.join("link_layer")).unwrap_or_default(),
            // `100 Gb/sec (4X EDR)`
            rate: text(at.join("rate")).and_then(|rate| rate.split_once(" Gb/sec")?.0.parse().ok()),
            gids: (0..GIDS).filter_map(|index| Gid::read(at, u8::try_from(index).ok()?)).collect(),
        }
    }
}

impl Gid {
    fn read(port: &Path, index: u8) -> Option<Gid> {
        let gid: Ipv6Addr = text(port.join(format!("gids/{index}")))?.parse().ok()?;
        let attribute = |name: &str| text(port.join(format!("gid_attrs/{name}/{index}")));
        let kind = attribute("types").and_then(|kind| match kind.as_str() {
            "RoCE v2" => Some(GidKind::V2),
            "IB/RoCE v1" => Some(GidKind::V1),
            _ => None,
        });
        // The prefix of a link-local address alone is an empty entry, too.
        let empty = gid.segments()[4..] == [0; 4];
        (!empty).then(|| Gid { index, gid: gid.octets(), kind, netdev: attribute("ndevs") })
    }

    /// The address that it stands for.
    pub(crate) fn address(&self) -> IpAddr {
        Ipv6Addr::from(self.gid).to_canonical()
    }

    /// How far that reaches.
    pub(crate) fn reach(&self) -> Reach {
        Reach::of(self.address())
    }
}

impl Net {
    fn read(root: &Path, name: String) -> Net {
        let at = root.join("sys/class/net").join(&name);
        let driver = fs::read_link(at.join("device/driver")).ok();
        Net {
            operstate: text(at.join("operstate")).unwrap_or_default(),
            mtu: text(at.join("mtu")).and_then(|mtu| mtu.parse().ok()),
            driver: driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned())),
            vlan: Vlan::read(root, &at, &name),
            name,
        }
    }
}

impl Vlan {
    fn read(root: &Path, net: &Path, name: &str) -> Option<Vlan> {
        let kind = text(net.join("uevent")).unwrap_or_default();
        kind.lines().find(|line| *line == "DEVTYPE=vlan")?;
        // The list of VLANs is for root alone; for others, the name mostly ends with the number.
        let listed = text(root.join("proc/net/vlan/config")).unwrap_or_default();
        let number = listed.lines().find_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            (columns.next()? == name).then(|| columns.next()?.parse().ok()).flatten()
        });
        let digits = &name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
        let over = names(net).into_iter().find_map(|entry| Some(entry.strip_prefix("lower_")?.to_owned()));
        Some(Vlan { id: number.or_else(|| digits.parse().ok()), over })
    }
}

/// The addresses of this network namespace: those of IPv4 stand in the routing table as local, those of IPv6 in a list.
fn addresses(root: &Path) -> Option<Vec<IpAddr>> {
    let table = text(root.join("proc/net/fib_trie"))?;
    let mut found: Vec<IpAddr> = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in table.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => leaf = address.parse().ok(),
            None if line == "/32 host LOCAL" => found.extend(leaf.map(IpAddr::from)),
            None => {}
        }
    }
    let list = text(root.join("proc/net/if_inet6")).unwrap_or_default();
    let number = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    found.extend(list.lines().filter_map(number).map(|number| IpAddr::from(Ipv6Addr::from(number))));
    found.sort_unstable();
    found.dedup();
    Some(found)
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::V1 => "RoCE v1",
            GidKind::V2 => "RoCE v2",
        })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::V4 => "IPv4",
            Reach::V6 => "IPv6",
            Reach::LinkV4 => "link-local IPv4",
            Reach::LinkV6 => "link-local IPv6",
            Reach::Loopback => "loopback",
        })
    }
}

/// What a file says, without blanks around it; `None` where it cannot be read or is empty.
pub(crate) fn text(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What follows the number in `4: ACTIVE`.
fn numbered(path: PathBuf) -> Option<String> {
    text(path).map(|line| line.split_once(": ").map_or(line.clone(), |(_, word)| word.to_owned()))
}

/// The names in a folder, in natural order; none where it cannot be read.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_cached_key(|name| natural(name));
    names
}

/// What sorts `a2` before `a10`: the name up to its last digits, and the number that they are.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0), name.to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
