//! Trees as kernels show them, and the builders of what is seen in memory.

use super::*;

/// A port that is up.
pub(crate) fn port(number: u8, gids: Vec<Gid>) -> Jack {
    Jack {
        number,
        state: "ACTIVE".into(),
        physical: "LinkUp".into(),
        layer: "Ethernet".into(),
        rate: Some(100.0),
        gids,
    }
}

/// A device that can be opened.
pub(crate) fn device(name: &str, ports: Vec<Jack>) -> Device {
    Device {
        name: name.into(),
        transport: "CA".into(),
        software: false,
        numa: None,
        node: Node::Opens("/dev/infiniband/uverbs0".into()),
        ports,
    }
}

/// An entry for RoCE v2.
pub(crate) fn gid(index: u8, address: &str, netdev: &str) -> Gid {
    let address: Ipv6Addr = address.parse().unwrap();
    Gid { index, gid: address.octets(), kind: Some(GidKind::V2), netdev: Some(netdev.into()) }
}

/// A network device that is up.
pub(crate) fn net(name: &str) -> Net {
    Net { name: name.into(), operstate: "up".into(), mtu: Some(1500), ..Net::default() }
}

/// A folder of its own for a test, which is gone afterwards.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new(name: &str) -> Tree {
        let tree = Tree(std::env::temp_dir().join(format!("shmem-{name}-{}", std::process::id())));
        fs::create_dir(&tree.0).unwrap();
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, path: &str, text: &str) -> &Tree {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn link(&self, path: &str, target: &str) -> &Tree {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    /// A port of a Soft-RoCE device as kernel 6.1 shows it: a table of more entries than verbs can name, most
    /// of which are empty.
    fn soft_roce(&self, device: &str, node: &str) -> &Tree {
        let at = format!("sys/class/infiniband/{device}");
        for (file, text) in [
            ("node_type", "1: CA\n"),
            ("fw_ver", "\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/phys_state", "5: LinkUp\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/rate", "10 Gb/sec (1X FDR10)\n"),
        ] {
            self.file(&format!("{at}/{file}"), text);
        }
        for index in 0..320 {
            self.file(&format!("{at}/ports/1/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
            // Reading these fails, as a folder in a file's place does.
            for attribute in ["types", "ndevs"] {
                fs::create_dir_all(self.0.join(format!("{at}/ports/1/gid_attrs/{attribute}/{index}"))).unwrap();
            }
        }
        self.file(&format!("sys/class/infiniband_verbs/{node}/ibdev"), &format!("{device}\n"))
    }

    fn entry(&self, device: &str, index: u32, gid: &str, kind: &str, netdev: &str) -> &Tree {
        let at = format!("sys/class/infiniband/{device}/ports/1");
        for attribute in ["types", "ndevs"] {
            let empty = self.0.join(format!("{at}/gid_attrs/{attribute}/{index}"));
            if empty.is_dir() {
                fs::remove_dir(empty).unwrap();
            }
        }
        self.file(&format!("{at}/gids/{index}"), &format!("{gid}\n"));
        self.file(&format!("{at}/gid_attrs/types/{index}"), &format!("{kind}\n"));
        self.file(&format!("{at}/gid_attrs/ndevs/{index}"), &format!("{netdev}\n"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const FIB_TRIE: &str = "Main:\n  +-- 10.64.0.0/10 2 0 2\n     |-- 10.77.0.0\n        /24 link UNICAST\nLocal:\n  \
    +-- 0.0.0.0/1 2 0 2\n              |-- 10.77.0.1\n                 /32 host LOCAL\n           |-- 10.77.0.255\n  \
    \x20           /32 link BROADCAST\n        |-- 127.0.0.0\n              /8 host LOCAL\n           |-- 127.0.0.1\n  \
    \x20           /32 host LOCAL\n";

#[test]
fn a_tree_of_soft_roce_is_read() {
    let tree = Tree::new("seen-soft");
    tree.soft_roce("rxe0", "uverbs3");
    tree.entry("rxe0", 0, "fe80:0000:0000:0000:b07d:67ff:fe8d:159b", "RoCE v2", "roce0");
    tree.entry("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2", "roce0");
    tree.entry("rxe0", 200, "0000:0000:0000:0000:0000:ffff:0a63:0001", "RoCE v2", "roce0.7");
    tree.entry("rxe0", 300, "0000:0000:0000:0000:0000:ffff:0a64:0001", "RoCE v2", "roce0");
    tree.file("dev/infiniband/uverbs3", "").file("sys/class/infiniband_verbs/abi_version", "6\n");
    tree.file("sys/class/net/roce0/mtu", "4500\n").file("sys/class/net/roce0/operstate", "up\n");
    tree.file("sys/class/net/roce0.7/uevent", "DEVTYPE=vlan\nINTERFACE=roce0.7\nIFINDEX=4\n");
    tree.link("sys/class/net/roce0.7/lower_roce0", "../roce0");
    tree.file("proc/net/fib_trie", FIB_TRIE);
    tree.file("proc/net/if_inet6", "fe80000000000000b07d67fffe8d159b 03 40 20 80    roce0\n");
    let seen = Seen::read(tree.root());

    let soft = &seen.devices[0];
    assert!(seen.core && seen.devices.len() == 1 && soft.software && soft.numa.is_none());
    assert_eq!((soft.transport.as_str(), &soft.node), ("CA", &Node::Opens("/dev/infiniband/uverbs3".into())));
    let gids = vec![
        gid(0, "fe80::b07d:67ff:fe8d:159b", "roce0"),
        gid(1, "::ffff:10.77.0.1", "roce0"),
        gid(200, "::ffff:10.99.0.1", "roce0.7"),
    ];
    assert_eq!(soft.ports, [Jack { rate: Some(10.0), ..port(1, gids) }]);
    assert_eq!(soft.ports[0].gids[1].address(), IpAddr::from([10, 77, 0, 1]));

    assert_eq!(seen.nets.iter().map(|net| net.name.as_str()).collect::<Vec<_>>(), ["roce0", "roce0.7"]);
    assert_eq!(seen.net("roce0"), Some(&Net { mtu: Some(4500), ..net("roce0") }));
    let vlan = seen.net("roce0.7").unwrap().vlan.as_ref();
    assert_eq!(vlan, Some(&Vlan { id: Some(7), over: Some("roce0".into()) }));
    let addresses = ["10.77.0.1", "127.0.0.1", "fe80::b07d:67ff:fe8d:159b"].map(|text| text.parse().unwrap());
    assert_eq!(seen.addresses, Some(addresses.to_vec()));
    assert!(!seen.contained);
}

#[test]
fn a_tree_of_a_card_is_read() {
    let tree = Tree::new("seen-card");
    for (name, number) in [("mlx5_10", "uverbs1"), ("mlx5_2", "uverbs0")] {
        let at = format!("sys/class/infiniband/{name}");
        tree.file(&format!("{at}/node_type"), "1: CA\n").file(&format!("{at}/device/numa_node"), "1\n");
        tree.file(&format!("{at}/ports/1/state"), "1: DOWN\n")
            .file(&format!("{at}/ports/1/phys_state"), "3: Disabled\n");
        tree.file(&format!("{at}/ports/1/link_layer"), "InfiniBand\n");
        tree.file(&format!("{at}/ports/2/rate"), "2.5 Gb/sec (1X SDR)\n");
        tree.file(&format!("sys/class/infiniband_verbs/{number}/ibdev"), &format!("{name}\n"));
    }
    tree.entry("mlx5_2", 0, "fe80:0000:0000:0000:0000:0000:0000:0000", "IB/RoCE v1", "eth0");
    tree.entry("mlx5_2", 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0");
    tree.entry("mlx5_2", 4, "fd93:0000:0000:0000:0000:0000:0000:0001", "what is this", "eth0");
    tree.file("sys/class/net/eth0/operstate", "down\n").link("sys/class/net/eth0/device/driver", "../mlx5_core");
    tree.file("sys/class/net/storage/uevent", "DEVTYPE=vlan\n");
    tree.file("proc/net/vlan/config", "VLAN Dev name    | VLAN ID\nName-Type: x\nstorage        | 12  | eth0\n");
    tree.file("run/.containerenv", "");
    let seen = Seen::read(tree.root());

    assert_eq!(seen.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["mlx5_2", "mlx5_10"]);
    let card = &seen.devices[0];
    assert!(!card.software && card.numa == Some(1) && seen.contained && seen.addresses.is_none());
    assert_eq!(card.node, Node::Missing("/dev/infiniband/uverbs0".into()));
    let [first, second] = card.ports.as_slice() else { panic!("{:?}", card.ports) };
    assert_eq!((first.number, second.number, second.rate), (1, 2, Some(2.5)));
    assert_eq!(
        (first.state.as_str(), first.physical.as_str(), first.layer.as_str()),
        ("DOWN", "Disabled", "InfiniBand")
    );
    let kinds: Vec<_> = first.gids.iter().map(|gid| (gid.index, gid.kind)).collect();
    assert_eq!(kinds, [(3, Some(GidKind::V1)), (4, None)]);
    assert_eq!(seen.net("eth0").unwrap().driver.as_deref(), Some("mlx5_core"));
    assert_eq!(seen.net("storage").unwrap().vlan, Some(Vlan { id: Some(12), over: None }));
}

#[test]
fn what_is_not_there_is_not_seen() {
    let tree = Tree::new("seen-nothing");
    assert_eq!(Seen::read(tree.root()), Seen::default());
    tree.file("sys/class/infiniband/mlx5_0/ports/x/state", "4: ACTIVE\n");
    tree.file("sys/class/infiniband/mlx5_0/ports/1/rate", "fast\n");
    tree.file("sys/class/infiniband/mlx5_0/ports/1/gids/0", "zero\n");
    tree.file("sys/class/net/bonding_masters", "\n");
    tree.file("proc/net/fib_trie", "|-- nonsense\n/32 host LOCAL\n|--\n");
    tree.file("proc/net/if_inet6", "nonsense\n\n");
    let seen = Seen::read(tree.root());
    assert_eq!(seen.addresses, Some(vec![]));
    assert_eq!((seen.nets.len(), seen.devices.len()), (0, 1));
    let empty =
        Jack { state: String::new(), physical: String::new(), layer: String::new(), rate: None, ..port(1, vec![]) };
    assert_eq!((seen.devices[0].ports.as_slice(), &seen.devices[0].node), ([empty].as_slice(), &Node::None));
}

#[test]
fn a_node_that_may_not_be_opened_says_why() {
    let tree = Tree::new("seen-node");
    tree.file("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
    fs::create_dir_all(tree.root().join("dev/infiniband/uverbs0")).unwrap();
    let Node::Refused { path, why, by_mode } = Node::read(tree.root(), "mlx5_0") else { panic!() };
    assert_eq!((path.as_str(), by_mode), ("/dev/infiniband/uverbs0", false));
    assert!(why.contains("directory"), "{why}");
    assert_eq!(Node::read(tree.root(), "mlx5_1"), Node::None);
}

#[test]
fn this_host_can_be_read() {
    let seen = Seen::read(Path::new("/"));
    assert!(seen.devices.is_empty() || seen.core);
    assert!(seen.nets.iter().any(|net| net.name == "lo"), "{:?}", seen.nets);
}
