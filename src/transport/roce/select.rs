//! Which ports RoCE goes through, and under which addresses: a pure function of what is seen and what is wanted.
//!
//! Of each port, the best entry of its GID table is taken. RoCE v1 is taken only by its index: it does not pass routers,
//! and both sides must speak the same. Next counts whether the address belongs to this network namespace (a container
//! sees the cards of its host with addresses that are not its own), then how far it reaches (IPv4, IPv6, link-local), then
//! that it is not in a VLAN, then its place in the table. Of the ports, those are taken whose entries are alike in kind,
//! namespace and reach to the best, since one side's IPv6 cannot talk to the other's IPv4; of these, where the user names
//! none, those with at least half of the speed of the fastest, since PEs are spread evenly and the job runs at the
//! slowest one's pace. The order is that of the names, so that it is the same on every start. Whatever is not taken has a
//! reason. Knows no verbs.

use std::fmt;
use std::net::IpAddr;

use super::nic::Port;
use super::seen::{Device, Gid, GidKind, Jack, Net, Node, Seen};
use super::wishes::Wishes;

/// A port to use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) port: Port,
    pub(crate) kind: GidKind,
    /// The network device whose address it has.
    pub(crate) netdev: String,
    pub(crate) address: IpAddr,
    /// Bytes of a packet's payload, as far as the network device's packets leave room.
    pub(crate) mtu: Option<u32>,
    /// Gigabits a second.
    pub(crate) rate: Option<f64>,
    /// The memory that the card is near to.
    pub(crate) numa: Option<u32>,
    /// Why this port, and why this address.
    pub(crate) why: String,
}

/// What became of a port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// `mlx5_0:1`
    pub(crate) name: String,
    pub(crate) outcome: Result<Choice, Refusal>,
}

/// Why a port is not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("SHMEM_HCA does not want it")]
    NotWanted,
    #[error("it is no RoCE device ({0})")]
    OtherDevice(String),
    #[error("it is a port of InfiniBand, not of Ethernet")]
    InfiniBand,
    #[error("its link is down (state {state}, {physical})")]
    Down { state: String, physical: String },
    #[error("the kernel has no device node for it")]
    NoNode,
    #[error("{path} is not there")]
    NodeMissing { path: String, contained: bool },
    #[error("{path} cannot be opened ({why})")]
    NodeRefused { path: String, why: String, by_mode: bool },
    #[error("its GID table is empty: its network device has no address or is down")]
    NoGid,
    #[error("no entry of its GID table can be read with kind and network device")]
    Unreadable,
    #[error("its GID table has RoCE v1 only, at {}", indices(.0))]
    OnlyV1(Vec<u8>),
    #[error("{0}, which has its address, is down")]
    NetDown(String),
    #[error("it has no address that SHMEM_IFNAME wants")]
    OtherNet,
    #[error("its GID table has nothing usable at SHMEM_GID_INDEX={0}")]
    NotAtIndex(u8),
    #[error("it has {own} only, others have {best}")]
    Lesser { own: String, best: String },
    #[error("it is slow: {own} Gb/s, where the fastest has {best}")]
    Slow { own: f64, best: f64 },
}

impl Refusal {
    /// What to do about it.
    pub(crate) fn fix(&self) -> Option<String> {
        let fix = match self {
            Refusal::Down { .. } => "check cable and switch, and `ip link set DEVICE up`",
            Refusal::NoNode => "modprobe ib_uverbs",
            Refusal::NodeMissing { contained: true, .. } => {
                "give the container the devices: --device=/dev/infiniband (docker, podman), or an RDMA device plugin \
                 (Kubernetes)"
            }
            Refusal::NodeMissing { contained: false, .. } => "modprobe ib_uverbs, and let udev make the nodes",
            Refusal::NodeRefused { by_mode: true, path, .. } => {
                return Some(format!("chmod 666 {path}, or a udev rule with MODE=\"0666\" (rdma-core brings one)"));
            }
            Refusal::NodeRefused { by_mode: false, .. } => {
                "let the container or control group use the devices: --device=/dev/infiniband (docker, podman), or an \
                 RDMA device plugin (Kubernetes)"
            }
            Refusal::NoGid | Refusal::Unreadable => {
                "give its network device an address (`ip addr add`) and set it up; in a container, see that the device \
                 is in its network (--network host)"
            }
            Refusal::OnlyV1(_) => {
                "let the card speak RoCE v2 (firmware and driver), or ask for v1 by SHMEM_GID_INDEX on all hosts"
            }
            Refusal::NetDown(net) => return Some(format!("ip link set {net} up")),
            Refusal::Lesser { .. } => "give its network device such an address, too",
            Refusal::Slow { .. } => "name it in SHMEM_HCA if it is to be used",
            Refusal::NotWanted
            | Refusal::OtherDevice(_)
            | Refusal::InfiniBand
            | Refusal::OtherNet
            | Refusal::NotAtIndex(_) => return None,
        };
        Some(fix.to_owned())
    }

    /// Whether nothing is wrong with the port: it is another's, or there are better ones.
    pub(crate) fn is_harmless(&self) -> bool {
        use Refusal::{InfiniBand, NotWanted, OtherDevice, OtherNet, Slow};
        matches!(self, NotWanted | OtherDevice(_) | InfiniBand | OtherNet | Slow { .. })
    }
}

/// Why no port is used at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NoChoice {
    /// A setting that fits nothing that is there.
    #[error("{name}={value}: {why}; there are {there}")]
    Wish { name: &'static str, value: String, why: String, there: String },
    #[error("there is no RDMA device{}: {hint}", if *.core { "" } else { " (nor the kernel's RDMA core)" })]
    NoDevice { core: bool, hint: String },
    #[error("no port can be used for RoCE: {}", all(.0))]
    Unusable(Vec<(String, Refusal)>),
}

/// The ports to use, in natural order of their names; at least one.
pub(crate) fn choose(seen: &Seen, wishes: &Wishes) -> Result<Vec<Choice>, NoChoice> {
    let (mut choices, mut refused) = (Vec::new(), Vec::new());
    for Judged { name, outcome } in judge(seen, wishes)? {
        match outcome {
            Ok(choice) => choices.push(choice),
            Err(Refusal::NotWanted) => {}
            Err(refusal) => refused.push((name, refusal)),
        }
    }
    if choices.is_empty() { Err(NoChoice::Unusable(refused)) } else { Ok(choices) }
}

/// All ports in natural order, each with what becomes of it. Fails if there are none, or if a wish fits none.
pub(crate) fn judge(seen: &Seen, wishes: &Wishes) -> Result<Vec<Judged>, NoChoice> {
    if seen.devices.iter().all(|device| device.ports.is_empty()) {
        return Err(NoChoice::NoDevice { core: seen.core, hint: how_to_get_one(seen) });
    }
    check(seen, wishes)?;
    let mut found: Vec<(String, Result<Find, Refusal>)> = Vec::new();
    for (device, port) in ports(seen) {
        found.push((format!("{}:{}", device.name, port.number), find(seen, wishes, device, port)));
    }
    let usable = || found.iter().filter_map(|(_, found)| found.as_ref().ok());
    let best = usable().map(Find::class).min();
    let rate = |find: &Find| find.port.rate.unwrap_or(0.0);
    let fastest = usable().filter(|find| Some(find.class()) == best).map(rate).fold(0.0, f64::max);
    let named = wishes.hca.as_ref().is_some_and(|hca| hca.names());
    let sift = |find: &Find| match (best, find.port.rate) {
        (Some(best), _) if find.class() != best => {
            Err(Refusal::Lesser { own: find.class().to_string(), best: best.to_string() })
        }
        (_, Some(own)) if !named && own * 2.0 < fastest => Err(Refusal::Slow { own, best: fastest }),
        _ => Ok(()),
    };
    let taken = usable().filter(|find| sift(find).is_ok()).count();
    let all = found.len();
    let outcome = |found: Result<Find, Refusal>| {
        let find = found?;
        sift(&find)?;
        Ok(find.choice(seen, wishes, taken, all))
    };
    Ok(found.into_iter().map(|(name, found)| Judged { name, outcome: outcome(found) }).collect())
}

/// A usable port with its best entry.
struct Find<'a> {
    device: &'a Device,
    port: &'a Jack,
    gid: &'a Gid,
    kind: GidKind,
    netdev: &'a str,
    /// Whether its address belongs to another network namespace.
    elsewhere: bool,
}

/// What entries of both sides have in common if they can talk. The smaller, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    kind: GidKind,
    elsewhere: bool,
    reach: Reach,
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    V4,
    V6,
    LinkV4,
    LinkV6,
    Loopback,
}

impl Reach {
    fn of(address: IpAddr) -> Reach {
        match address {
            _ if address.is_loopback() => Reach::Loopback,
            IpAddr::V4(address) if address.is_link_local() => Reach::LinkV4,
            IpAddr::V4(_) => Reach::V4,
            IpAddr::V6(address) if address.is_unicast_link_local() => Reach::LinkV6,
            IpAddr::V6(_) => Reach::V6,
        }
    }
}

impl<'a> Find<'a> {
    fn class(&self) -> Class {
        Class { kind: self.kind, elsewhere: self.elsewhere, reach: Reach::of(self.gid.address()) }
    }

    fn choice(&self, seen: &Seen, wishes: &Wishes, taken: usize, all: usize) -> Choice {
        let net = seen.net(self.netdev);
        let port = match taken {
            _ if wishes.hca.as_ref().is_some_and(|hca| hca.names()) => "named by SHMEM_HCA".to_owned(),
            1 if all == 1 => "the only port".to_owned(),
            1 => format!("the only usable one of {all} ports"),
            _ => format!("one of {taken} usable ports"),
        };
        let address = match Reach::of(self.gid.address()) {
            _ if wishes.gid_index.is_some() => "entry by SHMEM_GID_INDEX",
            Reach::V4 => "its first IPv4 address",
            Reach::V6 => "its first IPv6 address, since it has no IPv4",
            Reach::LinkV4 | Reach::LinkV6 => "a link-local address, since it has no other: does not pass routers",
            Reach::Loopback => "the loopback address, since it has no other: does not leave this host",
        };
        let wanted = if wishes.ifname.is_some() { " that SHMEM_IFNAME wants" } else { "" };
        let vlan = match net.and_then(|net| net.vlan.as_ref()) {
            Some(vlan) => vlan.id.map_or(", in a VLAN".to_owned(), |id| format!(", in VLAN {id}")),
            None => String::new(),
        };
        let elsewhere = if self.elsewhere {
            "; the address is not one of this network namespace (in a container: --network host)"
        } else {
            ""
        };
        Choice {
            port: Port {
                device: self.device.name.clone(),
                port: self.port.number,
                gid_index: self.gid.index.into(),
                gid: self.gid.gid,
            },
            kind: self.kind,
            netdev: self.netdev.to_owned(),
            address: self.gid.address(),
            mtu: net.and_then(|net| roce_mtu(net.mtu?)),
            rate: self.port.rate,
            numa: self.device.numa,
            why: format!("{port}, {address}{wanted}{vlan}{elsewhere}"),
        }
    }
}

/// Whether a port can be used as far as it alone is concerned, and with which entry.
fn find<'a>(seen: &'a Seen, wishes: &Wishes, device: &'a Device, port: &'a Jack) -> Result<Find<'a>, Refusal> {
    if !wanted(seen, wishes, device, port) {
        return Err(Refusal::NotWanted);
    }
    if device.transport != "CA" {
        return Err(Refusal::OtherDevice(device.transport.clone()));
    }
    if port.layer == "InfiniBand" {
        return Err(Refusal::InfiniBand);
    }
    if !port.state.starts_with("ACTIVE") {
        return Err(Refusal::Down { state: port.state.clone(), physical: port.physical.clone() });
    }
    match &device.node {
        Node::None => return Err(Refusal::NoNode),
        Node::Missing(path) => {
            return Err(Refusal::NodeMissing { path: path.clone(), contained: seen.contained });
        }
        Node::Refused { path, why, by_mode } => {
            return Err(Refusal::NodeRefused { path: path.clone(), why: why.clone(), by_mode: *by_mode });
        }
        Node::Opens(_) => {}
    }
    if port.gids.is_empty() {
        return Err(Refusal::NoGid);
    }
    let netdevs = netdevs(seen);
    // The entries that are left after each sieve, so that the last one that lets nothing through is the reason.
    let readable: Vec<(&Gid, GidKind, &str)> =
        port.gids.iter().filter_map(|gid| Some((gid, gid.kind?, gid.netdev.as_deref()?))).collect();
    if readable.is_empty() {
        return Err(Refusal::Unreadable);
    }
    let mut left = readable.clone();
    match wishes.gid_index {
        Some(index) => left.retain(|(gid, ..)| gid.index == index),
        None => left.retain(|(_, kind, _)| *kind == GidKind::V2),
    }
    if left.is_empty() {
        let v1 = || readable.iter().map(|(gid, ..)| gid.index).collect();
        return Err(wishes.gid_index.map_or_else(|| Refusal::OnlyV1(v1()), Refusal::NotAtIndex));
    }
    if let Some(ifname) = &wishes.ifname {
        left.retain(|(gid, ..)| ifname.wants_address(&netdevs, gid));
        if left.is_empty() {
            return Err(Refusal::OtherNet);
        }
    }
    let down = left[0].2;
    left.retain(|(.., netdev)| !seen.net(netdev).is_some_and(is_down));
    let found = left.into_iter().map(|(gid, kind, netdev)| Find {
        device,
        port,
        gid,
        kind,
        netdev,
        elsewhere: is_elsewhere(seen, gid, netdev),
    });
    let in_vlan = |find: &Find| seen.net(find.netdev).is_some_and(|net| net.vlan.is_some());
    let best = found.min_by_key(|find| (find.class(), in_vlan(find), find.gid.index));
    best.ok_or_else(|| Refusal::NetDown(down.to_owned()))
}

/// Fails if a wish fits nothing at all, whatever its state.
fn check(seen: &Seen, wishes: &Wishes) -> Result<(), NoChoice> {
    let wrong =
        |name, value: &str, why: String, there| Err(NoChoice::Wish { name, value: value.to_owned(), why, there });
    if let Some(hca) = &wishes.hca
        && let Some(entry) = hca.missing(&seen.devices)
    {
        let what = if entry.contains(':') { "port" } else { "device" };
        return wrong("SHMEM_HCA", &hca.text, format!("there is no {what} {entry}"), everything(seen));
    }
    let wanted: Vec<&Jack> = ports(seen).filter(|(d, p)| wanted(seen, wishes, d, p)).map(|(_, port)| port).collect();
    if let Some(hca) = wishes.hca.as_ref().filter(|_| wanted.is_empty()) {
        return wrong("SHMEM_HCA", &hca.text, "it leaves no port".to_owned(), everything(seen));
    }
    let gids = || wanted.iter().flat_map(|port| &port.gids);
    if gids().next().is_none() {
        return Ok(()); // whatever is wanted, this is what is wrong
    }
    if let Some(index) = wishes.gid_index
        && gids().all(|gid| gid.index != index)
    {
        let why = "no port has anything at this index of its GID table".to_owned();
        return wrong("SHMEM_GID_INDEX", &index.to_string(), why, entries(&wanted));
    }
    if let Some(ifname) = &wishes.ifname {
        let netdevs = netdevs(seen);
        if !gids().any(|gid| ifname.wants_address(&netdevs, gid)) {
            let why = "no RDMA port has an address there".to_owned();
            return wrong("SHMEM_IFNAME", &ifname.text, why, everything(seen));
        }
    }
    Ok(())
}

fn wanted(seen: &Seen, wishes: &Wishes, device: &Device, port: &Jack) -> bool {
    wishes.hca.as_ref().is_none_or(|hca| hca.wants_port(&seen.devices, device, port.number))
}

fn ports(seen: &Seen) -> impl Iterator<Item = (&Device, &Jack)> {
    seen.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
}

/// The names of all network devices, those of other network namespaces included.
fn netdevs(seen: &Seen) -> Vec<&str> {
    let gids = ports(seen).flat_map(|(_, port)| &port.gids);
    seen.nets.iter().map(|net| net.name.as_str()).chain(gids.filter_map(|gid| gid.netdev.as_deref())).collect()
}

fn is_down(net: &Net) -> bool {
    ["down", "lowerlayerdown", "notpresent"].contains(&net.operstate.as_str())
}

/// Whether an address belongs to another network namespace. A link-local one may be in the table without being an
/// address of its network device.
fn is_elsewhere(seen: &Seen, gid: &Gid, netdev: &str) -> bool {
    let address = gid.address();
    let global = matches!(Reach::of(address), Reach::V4 | Reach::V6);
    seen.net(netdev).is_none() || global && seen.addresses.as_ref().is_some_and(|own| !own.contains(&address))
}

/// The largest payload of RoCE packets that fits into packets of `net` bytes, as the kernel reckons: it leaves room for
/// 40 bytes of IPv6, 8 of UDP, 12 of the transport, 32 of its extensions and 4 of checksum.
pub(crate) fn roce_mtu(net: u32) -> Option<u32> {
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + HEADERS <= net)
}

/// What [`roce_mtu`] leaves room for.
const HEADERS: u32 = 40 + 8 + 12 + 32 + 4;

/// How this host may come by an RDMA device.
fn how_to_get_one(seen: &Seen) -> String {
    if seen.contained {
        return "in a container, the host's have to be given to it (--device=/dev/infiniband, or an RDMA device plugin)"
            .to_owned();
    }
    let driven = seen.nets.iter().filter_map(|net| Some((net, rdma_module(net.driver.as_deref()?)?)));
    match driven.into_iter().next() {
        Some((net, module)) => format!("{} may be one: modprobe {module}", net.name),
        None => {
            let real = seen.nets.iter().find(|net| net.name != "lo").map_or("eth0", |net| net.name.as_str());
            format!("to try RoCE without one: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {real}")
        }
    }
}

/// The module that makes an RDMA device of a network card, by the card's driver.
fn rdma_module(driver: &str) -> Option<&'static str> {
    const MODULES: [(&str, &str); 8] = [
        ("mlx5_core", "mlx5_ib"),
        ("mlx4_en", "mlx4_ib"),
        ("mlx4_core", "mlx4_ib"),
        ("bnxt_en", "bnxt_re"),
        ("ice", "irdma"),
        ("hns3", "hns_roce_hw_v2"),
        ("qede", "qedr"),
        ("mana", "mana_ib"),
    ];
    MODULES.iter().find(|(card, _)| *card == driver).map(|(_, module)| *module)
}

/// Every port with its state, network device and address.
fn everything(seen: &Seen) -> String {
    let mut parts = Vec::new();
    for (device, port) in ports(seen) {
        let best = port.gids.iter().min_by_key(|gid| (gid.kind.is_none(), gid.kind, Reach::of(gid.address())));
        let netdev = best.and_then(|gid| gid.netdev.clone()).unwrap_or_else(|| "no network device".to_owned());
        let address = best.map_or("no address".to_owned(), |gid| gid.address().to_string());
        let state = port.state.to_ascii_lowercase();
        parts.push(format!("{}:{} ({state}, {netdev}, {address})", device.name, port.number));
    }
    some(parts)
}

/// The entries of the GID tables of these ports.
fn entries(ports: &[&Jack]) -> String {
    let gids = ports.iter().flat_map(|port| &port.gids);
    let part = |gid: &Gid| {
        let kind = gid.kind.map_or("unknown kind".to_owned(), |kind| kind.to_string());
        let netdev = gid.netdev.as_deref().unwrap_or("no network device");
        format!("{} ({kind}, {netdev}, {})", gid.index, gid.address())
    };
    some(gids.map(part).collect())
}

/// The first few, and how many more there are.
fn some(parts: Vec<String>) -> String {
    const MOST: usize = 8;
    let more = parts.len().saturating_sub(MOST);
    let list = parts.into_iter().take(MOST).collect::<Vec<_>>().join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

fn all(refused: &[(String, Refusal)]) -> String {
    let part = |(name, refusal): &(String, Refusal)| {
        let fix = refusal.fix().map_or(String::new(), |fix| format!(" ({fix})"));
        format!("{name}: {refusal}{fix}")
    };
    refused.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn indices(indices: &[u8]) -> String {
    some(indices.iter().map(u8::to_string).collect())
}

impl fmt::Display for Choice {
    /// `rxe0:1 (roce0, 10.77.0.1), GID 1 (RoCE v2, IPv4), MTU 1024: the only port, its first IPv4 address`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { port, kind, netdev, address, mtu, why, .. } = self;
        let reach = Reach::of(*address);
        write!(f, "{}:{} ({netdev}, {address}), GID {} ({kind}, {reach})", port.device, port.port, port.gid_index)?;
        if let Some(mtu) = mtu {
            write!(f, ", MTU {mtu}")?;
        }
        write!(f, ": {why}")
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { kind, elsewhere, reach } = self;
        write!(f, "{kind} with {reach}{}", if *elsewhere { " in another network namespace" } else { "" })
    }
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

#[cfg(test)]
mod tests;
