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
use super::refusal::{NoChoice, Refusal, entries, everything, how_to_get_one};
use super::seen::{Device, Gid, GidKind, Jack, Net, Node, Reach, Seen};
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
    for (device, port) in seen.ports() {
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

impl<'a> Find<'a> {
    fn class(&self) -> Class {
        Class { kind: self.kind, elsewhere: self.elsewhere, reach: self.gid.reach() }
    }

    fn choice(&self, seen: &Seen, wishes: &Wishes, taken: usize, all: usize) -> Choice {
        let net = seen.net(self.netdev);
        let port = match taken {
            _ if wishes.hca.as_ref().is_some_and(|hca| hca.names()) => "named by SHMEM_HCA".to_owned(),
            1 if all == 1 => "the only port".to_owned(),
            1 => format!("the only usable one of {all} ports"),
            _ => format!("one of {taken} usable ports"),
        };
        let address = match self.gid.reach() {
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
        let netdev = port.gids.iter().find_map(|gid| gid.netdev.clone());
        return Err(Refusal::Down { state: port.state.clone(), physical: port.physical.clone(), netdev });
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
    let wanted: Vec<(&Device, &Jack)> = seen.ports().filter(|(d, p)| wanted(seen, wishes, d, p)).collect();
    if let Some(hca) = wishes.hca.as_ref().filter(|_| wanted.is_empty()) {
        return wrong("SHMEM_HCA", &hca.text, "it leaves no port".to_owned(), everything(seen));
    }
    let gids = || wanted.iter().flat_map(|(_, port)| &port.gids);
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

/// The names of all network devices, those of other network namespaces included.
fn netdevs(seen: &Seen) -> Vec<&str> {
    let gids = seen.ports().flat_map(|(_, port)| &port.gids);
    seen.nets.iter().map(|net| net.name.as_str()).chain(gids.filter_map(|gid| gid.netdev.as_deref())).collect()
}

fn is_down(net: &Net) -> bool {
    ["down", "lowerlayerdown", "notpresent"].contains(&net.operstate.as_str())
}

/// Whether an address belongs to another network namespace. A link-local one may be in the table without being an
/// address of its network device.
fn is_elsewhere(seen: &Seen, gid: &Gid, netdev: &str) -> bool {
    let address = gid.address();
    let global = matches!(gid.reach(), Reach::V4 | Reach::V6);
    seen.net(netdev).is_none() || global && seen.addresses.as_ref().is_some_and(|own| !own.contains(&address))
}

/// The largest payload of RoCE packets that fits into packets of `net` bytes, as the kernel reckons: it leaves room for
/// 40 bytes of IPv6, 8 of UDP, 12 of the transport, 32 of its extensions and 4 of checksum.
pub(crate) fn roce_mtu(net: u32) -> Option<u32> {
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + HEADERS <= net)
}

/// What [`roce_mtu`] leaves room for.
const HEADERS: u32 = 40 + 8 + 12 + 32 + 4;

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

#[cfg(test)]
mod tests;
