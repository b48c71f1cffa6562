//! Why a port is not used, or none is: each reason with what to do about it, and what there is instead.

use super::seen::{Device, Gid, Jack, Seen};

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
    Down { state: String, physical: String, netdev: Option<String> },
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
            Refusal::Down { netdev: None, .. } => "check cable and switch, and set its network device up",
            Refusal::Down { netdev: Some(net), .. } => {
                return Some(format!("ip link set {net} up, and check cable and switch"));
            }
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

/// How this host may come by an RDMA device.
pub(super) fn how_to_get_one(seen: &Seen) -> String {
    if seen.contained {
        return "this is a container, whose host must have one and give it (--device=/dev/infiniband, or an RDMA device \
                plugin)"
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
pub(super) fn everything(seen: &Seen) -> String {
    let mut parts = Vec::new();
    for (device, port) in seen.ports() {
        let best = port.gids.iter().min_by_key(|gid| (gid.kind.is_none(), gid.kind, gid.reach()));
        let netdev = best.and_then(|gid| gid.netdev.clone()).unwrap_or_else(|| "no network device".to_owned());
        let address = best.map_or("no address".to_owned(), |gid| gid.address().to_string());
        let state = port.state.to_ascii_lowercase();
        parts.push(format!("{}:{} ({state}, {netdev}, {address})", device.name, port.number));
    }
    some(parts)
}

/// The entries of the GID tables of these ports.
pub(super) fn entries(ports: &[(&Device, &Jack)]) -> String {
    let gids = ports.iter().flat_map(|(device, port)| port.gids.iter().map(move |gid| (device, port, gid)));
    let part = |(device, port, gid): (&&Device, &&Jack, &Gid)| {
        let kind = gid.kind.map_or("unknown kind".to_owned(), |kind| kind.to_string());
        let netdev = gid.netdev.as_deref().unwrap_or("no network device");
        format!("{} of {}:{} ({kind}, {netdev}, {})", gid.index, device.name, port.number, gid.address())
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
