//! The situations in which others chose wrongly, each as a value.

use super::super::nic::Port;
use super::super::seen::tests::{device, gid, net, port};
use super::super::seen::{GIDS, Vlan};
use super::super::wishes::tests::wishes;
use super::*;

/// A host with these devices; network devices are those of their entries, with their addresses.
fn host(devices: Vec<Device>) -> Seen {
    let mut seen = Seen { core: true, devices, ..Seen::default() };
    let gids = seen.ports().flat_map(|(_, port)| port.gids.clone()).collect::<Vec<_>>();
    seen.nets = gids.iter().filter_map(|gid| gid.netdev.as_deref().map(net)).collect();
    seen.addresses = Some(gids.iter().map(Gid::address).collect());
    seen
}

fn v1(index: u8, address: &str, netdev: &str) -> Gid {
    Gid { kind: Some(GidKind::V1), ..gid(index, address, netdev) }
}

/// The table that a card has for an address: its own link-local one and the address, each as v1 and v2.
fn table(address: &str, netdev: &str) -> Vec<Gid> {
    vec![
        v1(0, "fe80::1", netdev),
        gid(1, "fe80::1", netdev),
        v1(2, &format!("::ffff:{address}"), netdev),
        gid(3, &format!("::ffff:{address}"), netdev),
    ]
}

fn two_cards() -> Seen {
    host(vec![
        device("mlx5_0", vec![port(1, table("10.0.0.1", "eth0"))]),
        device("mlx5_1", vec![port(1, table("10.0.1.1", "eth1"))]),
    ])
}

fn none() -> Wishes {
    Wishes::default()
}

/// Device, port and index of what is chosen.
fn chosen(seen: &Seen, wishes: &Wishes) -> Vec<String> {
    let name = |c: Choice| format!("{}:{}/{}", c.port.device, c.port.port, c.port.gid_index);
    choose(seen, wishes).unwrap_or_else(|e| panic!("{e}")).into_iter().map(name).collect()
}

fn why_not(seen: &Seen, wishes: &Wishes) -> String {
    choose(seen, wishes).unwrap_err().to_string()
}

#[test]
fn v2_with_ipv4_is_chosen_and_said() {
    let seen = host(vec![device("mlx5_0", vec![port(1, table("10.0.0.1", "eth0"))])]);
    let [choice] = choose(&seen, &none()).unwrap().try_into().unwrap();
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    assert_eq!(choice.port, Port { device: "mlx5_0".into(), port: 1, gid_index: 3, gid });
    assert_eq!((choice.rate, choice.mtu, choice.netdev.as_str()), (Some(100.0), Some(1024), "eth0"));
    assert_eq!(
        choice.to_string(),
        "mlx5_0:1 (eth0, 10.0.0.1), GID 3 (RoCE v2, IPv4), MTU 1024: the only port, its first IPv4 address"
    );
}

#[test]
fn only_ipv6_is_enough_and_link_local_comes_last() {
    let gids = vec![gid(0, "fe80::1", "eth0"), gid(1, "fd93::1", "eth0"), v1(2, "fd93::1", "eth0")];
    let seen = host(vec![device("mlx5_0", vec![port(1, gids)])]);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/1"]);
    assert!(choose(&seen, &none()).unwrap()[0].why.ends_with("its first IPv6 address, since it has no IPv4"));

    let seen = host(vec![device("mlx5_0", vec![port(1, vec![v1(0, "fe80::1", "eth0"), gid(1, "fe80::1", "eth0")])])]);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/1"]);
    assert!(choose(&seen, &none()).unwrap()[0].to_string().contains("(RoCE v2, link-local IPv6)"));
    assert!(choose(&seen, &none()).unwrap()[0].why.contains("does not pass routers"));

    let gids = ["::ffff:127.0.0.1", "fe80::1", "::ffff:169.254.3.4", "2001:db8::1"];
    let best = |n: usize| {
        let gids = gids[..n].iter().zip(0..).map(|(address, index)| gid(index, address, "eth0")).collect();
        chosen(&host(vec![device("mlx5_0", vec![port(1, gids)])]), &none()).concat()
    };
    assert_eq!([1, 2, 3, 4].map(best), ["mlx5_0:1/0", "mlx5_0:1/1", "mlx5_0:1/2", "mlx5_0:1/3"]);
}

#[test]
fn v1_is_for_those_who_ask_for_it() {
    let gids = vec![v1(0, "fe80::1", "eth0"), v1(1, "::ffff:10.0.0.1", "eth0")];
    let seen = host(vec![device("mlx4_0", vec![port(1, gids)])]);
    let error = why_not(&seen, &none());
    assert!(error.contains("mlx4_0:1: its GID table has RoCE v1 only, at 0, 1") && error.contains("SHMEM_GID_INDEX"));
    let choice = &choose(&seen, &wishes("", Some(1), "")).unwrap()[0];
    assert_eq!((choice.kind, choice.port.gid_index), (GidKind::V1, 1));
    assert!(choice.to_string().ends_with("GID 1 (RoCE v1, IPv4), MTU 1024: the only port, entry by SHMEM_GID_INDEX"));
}

#[test]
fn an_index_that_leads_nowhere_is_told_with_what_there_is() {
    let seen = host(vec![device("rxe0", vec![port(1, vec![gid(1, "::ffff:10.77.0.1", "roce0")])])]);
    assert_eq!(
        why_not(&seen, &wishes("", Some(5), "")),
        "SHMEM_GID_INDEX=5: no port has anything at this index of its GID table; there are 1 of rxe0:1 (RoCE v2, roce0, \
         10.77.0.1)"
    );
    // Where one port has it and another has not, the other is left out.
    let mut seen = two_cards();
    seen.devices[1].ports[0].gids.truncate(3);
    assert_eq!(chosen(&seen, &wishes("", Some(3), "")), ["mlx5_0:1/3"]);
    let judged = judge(&seen, &wishes("", Some(3), "")).unwrap();
    assert_eq!(judged[1].outcome, Err(Refusal::NotAtIndex(3)));
    assert_eq!(chosen(&two_cards(), &wishes("mlx5_1", Some(1), "")), ["mlx5_1:1/1"]);
}

#[test]
fn several_ports_are_used_in_natural_order() {
    let names = ["mlx5_2", "mlx5_10", "mlx5_11"];
    let gids = |i: usize| table(&format!("10.0.{i}.1"), &format!("eth{i}"));
    let devices = names.iter().enumerate().map(|(i, name)| device(name, vec![port(1, gids(i))])).collect();
    let seen = host(devices);
    assert_eq!(chosen(&seen, &none()), ["mlx5_2:1/3", "mlx5_10:1/3", "mlx5_11:1/3"]);
    assert!(choose(&seen, &none()).unwrap()[0].why.starts_with("one of 3 usable ports, "));
    assert_eq!(chosen(&seen, &wishes("mlx5_10,mlx5_2:1", None, "")), ["mlx5_2:1/3", "mlx5_10:1/3"]);
    assert!(choose(&seen, &wishes("mlx5_2", None, "")).unwrap()[0].why.starts_with("named by SHMEM_HCA, "));
    assert_eq!(chosen(&seen, &wishes("^mlx5_10", None, "")), ["mlx5_2:1/3", "mlx5_11:1/3"]);
    assert_eq!(chosen(&seen, &wishes("", None, "eth1")), ["mlx5_10:1/3"]);
    let two =
        host(vec![device("mlx4_0", vec![port(1, table("10.0.0.1", "eth0")), port(2, table("10.0.1.1", "eth1"))])]);
    assert_eq!(chosen(&two, &none()), ["mlx4_0:1/3", "mlx4_0:2/3"]);
    assert_eq!(chosen(&two, &wishes("mlx4_0:2", None, "")), ["mlx4_0:2/3"]);
}

#[test]
fn what_is_down_is_left_out_and_named() {
    let mut seen = two_cards();
    let down = Jack { state: "DOWN".into(), physical: "Disabled".into(), ..seen.devices[0].ports[0].clone() };
    seen.devices[0].ports[0] = down;
    assert_eq!(chosen(&seen, &none()), ["mlx5_1:1/3"]);
    assert!(choose(&seen, &none()).unwrap()[0].why.starts_with("the only usable one of 2 ports, "));
    assert_eq!(
        why_not(&seen, &wishes("mlx5_0", None, "")),
        "no port can be used for RoCE: mlx5_0:1: its link is down (state DOWN, Disabled) (ip link set eth0 up, and check cable \
         and switch)"
    );
    // The port is up, but not its network device.
    seen.nets.iter_mut().filter(|net| net.name == "eth1").for_each(|net| net.operstate = "down".into());
    let error = why_not(&seen, &none());
    assert!(error.contains("; mlx5_1:1: eth1, which has its address, is down (ip link set eth1 up)"), "{error}");
}

#[test]
fn a_wish_for_a_device_that_is_not_there_tells_what_is() {
    let mut seen = two_cards();
    seen.devices[1].ports[0].state = "DOWN".into();
    assert_eq!(
        why_not(&seen, &wishes("mlx5_7", None, "")),
        "SHMEM_HCA=mlx5_7: there is no device mlx5_7; there are mlx5_0:1 (active, eth0, 10.0.0.1), mlx5_1:1 (down, \
         eth1, 10.0.1.1)"
    );
    assert!(why_not(&seen, &wishes("mlx5_0:2", None, "")).contains("there is no port mlx5_0:2; there are mlx5_0:1"));
    assert!(why_not(&seen, &wishes("mlx5_0,mlx4", None, "")).contains("no device mlx4;"));
    assert!(
        why_not(&seen, &wishes("^mlx5", None, "")).starts_with("SHMEM_HCA=^mlx5: it leaves no port; there are mlx5_0")
    );
}

#[test]
fn network_devices_decide_where_they_are_named() {
    let gids = vec![
        gid(0, "fe80::1", "eth0"),
        gid(1, "::ffff:10.0.0.1", "eth0"),
        gid(2, "::ffff:10.0.0.2", "eth0"),
        gid(3, "::ffff:192.168.7.1", "eth0.7"),
        gid(4, "fd00::1", "eth0"),
    ];
    let mut seen = host(vec![device("mlx5_0", vec![port(1, gids)])]);
    let vlan = Some(Vlan { id: Some(7), over: Some("eth0".into()) });
    seen.nets.iter_mut().filter(|net| net.name == "eth0.7").for_each(|net| net.vlan = vlan.clone());
    for (ifname, gid) in [("", "1"), ("eth0", "1"), ("eth0.7", "3"), ("192.168.0.0/16", "3"), ("10.0.0.2", "2")] {
        assert_eq!(chosen(&seen, &wishes("", None, ifname)), [format!("mlx5_0:1/{gid}")], "{ifname}");
    }
    assert_eq!(chosen(&seen, &wishes("", None, "fd00::/8")), ["mlx5_0:1/4"]);
    assert_eq!(chosen(&seen, &wishes("", None, "^docker,lo")), ["mlx5_0:1/1"]);
    let why = &choose(&seen, &wishes("", None, "eth0.7")).unwrap()[0].why;
    assert_eq!(why, "the only port, its first IPv4 address that SHMEM_IFNAME wants, in VLAN 7");
    seen.nets.push(net("docker0"));
    assert_eq!(
        why_not(&seen, &wishes("", None, "docker0")),
        "SHMEM_IFNAME=docker0: no RDMA port has an address there; there are mlx5_0:1 (active, eth0, 10.0.0.1)"
    );
    assert_eq!(chosen(&two_cards(), &wishes("mlx5_1,mlx5_0", None, "eth1")), ["mlx5_1:1/3"]);
    // Both wishes can be had, but not together.
    assert!(why_not(&two_cards(), &wishes("", Some(3), "10.9.0.0/16")).contains("no RDMA port has an address there"));
    assert!(why_not(&two_cards(), &wishes("mlx5_0", None, "eth1")).starts_with("SHMEM_IFNAME=eth1: no RDMA port"));
}

#[test]
fn an_untagged_address_comes_before_one_in_a_vlan_but_only_if_it_reaches_as_far() {
    let vlan = |seen: &mut Seen| {
        let vlan = Some(Vlan { id: Some(100), over: Some("eth0".into()) });
        seen.nets.iter_mut().filter(|net| net.name == "eth0.100").for_each(|net| net.vlan = vlan.clone());
    };
    let gids = vec![gid(2, "::ffff:10.1.0.1", "eth0.100"), gid(5, "::ffff:10.0.0.1", "eth0")];
    let mut seen = host(vec![device("mlx5_0", vec![port(1, gids)])]);
    vlan(&mut seen);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/5"]);
    let gids = vec![gid(1, "fe80::1", "eth0"), gid(2, "::ffff:10.1.0.1", "eth0.100")];
    let mut seen = host(vec![device("mlx5_0", vec![port(1, gids)])]);
    vlan(&mut seen);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/2"]);
    assert!(choose(&seen, &none()).unwrap()[0].why.ends_with("in VLAN 100"));
}

#[test]
fn ports_that_could_not_talk_to_each_other_are_not_mixed() {
    let mut seen = two_cards();
    seen.devices[0].ports[0].gids = vec![gid(0, "fe80::1", "eth0")];
    let judged = judge(&seen, &none()).unwrap();
    assert_eq!(
        judged[0].outcome.as_ref().unwrap_err().to_string(),
        "it has RoCE v2 with link-local IPv6 only, others have RoCE v2 with IPv4"
    );
    assert_eq!(chosen(&seen, &none()), ["mlx5_1:1/3"]);
    assert_eq!(chosen(&seen, &wishes("mlx5_0", None, "")), ["mlx5_0:1/0"]);
}

#[test]
fn a_slow_port_does_not_hold_up_fast_ones_unless_it_is_named() {
    let mut seen = two_cards();
    seen.devices[0].ports[0].rate = Some(25.0);
    assert_eq!(chosen(&seen, &none()), ["mlx5_1:1/3"]);
    let judged = judge(&seen, &none()).unwrap();
    assert_eq!(judged[0].outcome, Err(Refusal::Slow { own: 25.0, best: 100.0 }));
    assert_eq!(chosen(&seen, &wishes("mlx5", None, "")).len(), 2);
    for rate in [Some(50.0), None] {
        seen.devices[0].ports[0].rate = rate;
        assert_eq!(chosen(&seen, &none()).len(), 2, "{rate:?}");
    }
    // A fast port of another kind is no measure.
    seen.devices[0].ports[0].rate = Some(400.0);
    seen.devices[0].ports[0].gids = vec![gid(0, "fe80::1", "eth0")];
    assert_eq!(chosen(&seen, &none()), ["mlx5_1:1/3"]);
}

#[test]
fn other_kinds_of_devices_are_told_apart() {
    let mut seen = two_cards();
    seen.devices[0].ports[0].layer = "InfiniBand".into();
    seen.devices[1].transport = "RNIC".into();
    assert_eq!(
        why_not(&seen, &none()),
        "no port can be used for RoCE: mlx5_0:1: it is a port of InfiniBand, not of Ethernet; mlx5_1:1: it is no RoCE \
         device (RNIC)"
    );
    let NoChoice::Unusable(refused) = choose(&seen, &none()).unwrap_err() else { panic!() };
    assert!(refused.iter().all(|(_, refusal)| refusal.is_harmless()));
}

#[test]
fn a_container_that_cannot_open_a_device_is_told_how() {
    let mut seen = host(vec![device("mlx5_0", vec![port(1, table("10.0.0.1", "eth0"))])]);
    let error = |node: Node, seen: &mut Seen| {
        seen.devices[0].node = node;
        why_not(seen, &none())
    };
    let path = "/dev/infiniband/uverbs0".to_owned();
    let refused = |why: &str, by_mode| Node::Refused { path: path.clone(), why: why.into(), by_mode };
    assert!(
        error(Node::Missing(path.clone()), &mut seen).contains("uverbs0 is not there (modprobe ib_uverbs, and let")
    );
    assert!(error(Node::None, &mut seen).ends_with("no device node for it (modprobe ib_uverbs)"));
    assert!(error(refused("Permission denied", true), &mut seen).contains("(chmod 666 /dev/infiniband/uverbs0, or"));
    assert!(error(refused("Operation not permitted", false), &mut seen).contains("--device=/dev/infiniband (docker"));
    seen.contained = true;
    assert!(error(Node::Missing(path.clone()), &mut seen).contains("--device=/dev/infiniband (docker, podman)"));
}

#[test]
fn addresses_of_another_network_namespace_come_last_and_are_said() {
    // A container with a network of its own sees its host's table, in which a macvlan of its own has an entry, too.
    let gids = vec![gid(3, "::ffff:10.0.0.1", "eth0"), gid(9, "::ffff:10.0.7.7", "net1")];
    let mut seen = host(vec![
        device("mlx5_0", vec![port(1, gids)]),
        device("mlx5_1", vec![port(1, vec![gid(3, "::ffff:10.0.1.1", "eth1")])]),
    ]);
    // It has an eth0 of its own, with another address.
    seen.nets = vec![net("eth0"), net("lo"), net("net1")];
    seen.addresses = Some(["172.17.0.2", "127.0.0.1", "10.0.7.7"].map(|text| text.parse().unwrap()).to_vec());
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/9"]);
    let judged = judge(&seen, &none()).unwrap();
    assert!(
        judged[1].outcome.as_ref().unwrap_err().to_string().contains("RoCE v2 with IPv4 in another network namespace")
    );

    seen.devices[0].ports[0].gids.truncate(1);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/3", "mlx5_1:1/3"]);
    assert!(choose(&seen, &none()).unwrap()[1].why.ends_with("(in a container: --network host)"));
    // Where addresses cannot be read, the names of network devices decide.
    seen.addresses = None;
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/3"]);
}

#[test]
fn tables_with_holes_unreadable_entries_and_nothing_at_all() {
    let gids = (0..GIDS).filter_map(|index| u8::try_from(index).ok()).filter(|index| index % 3 == 2).map(|index| Gid {
        kind: (index > 200).then_some(GidKind::V2),
        netdev: (index > 220).then(|| "eth0".into()),
        ..gid(index, &format!("::ffff:10.0.0.{index}"), "eth0")
    });
    let mut seen = host(vec![device("mlx5_0", vec![port(1, gids.collect())])]);
    assert_eq!(chosen(&seen, &none()), ["mlx5_0:1/221"]);
    assert_eq!(chosen(&seen, &wishes("", Some(254), "")), ["mlx5_0:1/254"]);
    let entry = |index| why_not(&seen, &wishes("", Some(index), ""));
    assert!(entry(203).contains("its GID table has nothing usable at SHMEM_GID_INDEX=203"));
    assert!(entry(0).ends_with(" and 77 more"), "{}", entry(0));

    seen.devices[0].ports[0].gids.truncate(10);
    assert!(why_not(&seen, &none()).contains("no entry of its GID table can be read"));
    seen.devices[0].ports[0].gids.clear();
    assert!(why_not(&seen, &none()).contains("its GID table is empty"));
    assert!(why_not(&seen, &wishes("", Some(1), "eth0")).contains("its GID table is empty"));
}

#[test]
fn a_host_without_devices_is_told_how_to_get_one() {
    let mut seen = Seen { nets: vec![net("eth0"), net("lo")], ..Seen::default() };
    assert_eq!(
        why_not(&seen, &none()),
        "there is no RDMA device (nor the kernel's RDMA core): to try RoCE without one: modprobe rdma_rxe && rdma link \
         add rxe0 type rxe netdev eth0"
    );
    seen.nets[0].driver = Some("mlx5_core".into());
    seen.core = true;
    assert_eq!(why_not(&seen, &none()), "there is no RDMA device: eth0 may be one: modprobe mlx5_ib");
    seen.contained = true;
    assert!(why_not(&seen, &none()).contains("--device=/dev/infiniband"));
    seen.devices = vec![device("mlx5_0", vec![])];
    assert!(matches!(choose(&seen, &wishes("mlx5_0", None, "")), Err(NoChoice::NoDevice { core: true, .. })));
}

#[test]
fn payloads_are_as_the_kernel_reckons() {
    for (net, mtu) in [(9000, 4096), (4192, 4096), (4191, 2048), (4500, 4096), (2144, 2048), (1500, 1024), (1119, 512)]
    {
        assert_eq!(roce_mtu(net), Some(mtu), "{net}");
    }
    assert_eq!((roce_mtu(352), roce_mtu(351), roce_mtu(0)), (Some(256), None, None));
}
