//! Hosts as values, and what is said of them.

use std::net::IpAddr;

use super::facts::{Counter, Facts, Heaps, Huge, Limit, Queueing};
use super::*;
use crate::heap::host::{Cores, Memory};
use crate::transport::roce::seen::tests::{Tree, device, gid, net, port};
use crate::transport::roce::seen::{Node, Seen, Vlan};
use crate::transport::roce::wishes::Wishes;
use crate::transport::roce::wishes::tests::wishes;

const UNLIMITED: Limit = Limit { soft: None, hard: None };

/// A host with nothing but itself, on which everything is as it should be.
fn plain() -> Facts {
    Facts {
        n_pes: 4,
        settings: vec![],
        warnings: vec![],
        memory: Memory { available: 64 << 30, limit: "the host's memory".into() },
        heaps: Ok(Heaps { user: 1 << 30, whole: (1 << 30) + (32 << 20) }),
        promises: None,
        cores: Cores { numbers: vec![0, 1, 2, 3], quota: None },
        address_space: UNLIMITED,
        files: Limit { soft: Some(1024), hard: Some(4096) },
        files_needed: 88,
        locked: Limit { soft: Some(8 << 20), hard: Some(8 << 20) },
        may_lock: false,
        memfd: Ok(()),
        huge: Huge { reserved: 0, free: 0, transparent: Some("never".into()) },
        seen: Seen { nets: vec![net("eth0"), net("lo")], ..Seen::default() },
        wishes: Wishes::default(),
        providers_needed: vec![],
        providers: vec![],
        counters: vec![],
        queueing: vec![],
        built: true,
    }
}

/// A host with a card on which everything is as it should be.
fn roce() -> Facts {
    let mut facts = plain();
    let gids = vec![gid(2, "fe80::1", "eth0"), gid(3, "::ffff:10.0.0.1", "eth0")];
    facts.seen.core = true;
    facts.seen.devices = vec![device("mlx5_0", vec![port(1, gids)])];
    facts.seen.devices[0].numa = Some(1);
    facts.seen.nets[0].mtu = Some(9000);
    facts.seen.addresses = Some(vec![IpAddr::from([10, 0, 0, 1])]);
    facts.locked = UNLIMITED;
    facts.counters = vec![("mlx5_0:1".into(), vec![counter("rx_write_requests", 7), counter("out_of_sequence", 0)])];
    let on = || vec!["3".to_owned()];
    let queueing = Queueing { ecn: Some([on(), on()]), trust: Some("dscp".into()) };
    facts.queueing = vec![("eth0".into(), queueing)];
    facts
}

fn counter(name: &str, value: u64) -> Counter {
    Counter { name: name.into(), value }
}

/// What is said of one thing.
fn of(facts: &Facts, what: &str) -> Finding {
    let findings = Checkup::of(facts).findings;
    let found = findings.iter().rfind(|finding| finding.what == what);
    found.unwrap_or_else(|| panic!("nothing of {what}: {findings:#?}")).clone()
}

fn expect(facts: &Facts, what: &str, verdict: Verdict, found: &str, fix: &str) {
    let finding = of(facts, what);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.found.contains(found), "{found}: {finding:?}");
    assert!(finding.fix.as_deref().unwrap_or_default().contains(fix), "{fix}: {finding:?}");
    assert_eq!(finding.fix.is_none(), fix.is_empty(), "{finding:?}");
    assert_eq!(Checkup::of(facts).fails(), verdict == Verdict::Fail, "{}", Checkup::of(facts));
}

#[test]
fn a_host_without_rdma_is_fit_and_said_to_have_none() {
    let checkup = Checkup::of(&plain());
    assert!(
        checkup.findings.iter().all(|finding| finding.verdict == Verdict::Ok && finding.fix.is_none()),
        "{checkup}"
    );
    assert!(!checkup.fails());
    assert_eq!(
        checkup.to_string(),
        "ok    settings       all at their defaults\n\
         ok    memory         4 PEs: heaps of 1.0G, 4.1G in all; the host's memory leaves 64G\n\
         ok    address space  unlimited\n\
         ok    cores          4 cores, for 4 PEs\n\
         ok    open files     1024 (hard: 4096); shmemrun needs 88 for 4 PEs\n\
         ok    memfd          heaps can be made; /dev/shm is not used\n\
         ok    huge pages     0 of 0 reserved pages of 2 MiB free; shmem_enabled: never\n\
         ok    network        PEs of one host talk through shared memory; for other hosts, there is no RDMA device (nor \
         the kernel's RDMA core): to try RoCE without one: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0\n\
         ok    locked memory  8.0M (hard: 8.0M); none is needed without RDMA\n\
         9 ok, 0 to look at, 0 failed\n"
    );
}

#[test]
fn a_host_with_a_card_in_order_is_fit() {
    let checkup = Checkup::of(&roce());
    assert!(
        checkup.findings.iter().all(|finding| finding.verdict == Verdict::Ok && finding.fix.is_none()),
        "{checkup}"
    );
    let text = checkup.to_string();
    for line in [
        "mlx5_0:1 (eth0, 10.0.0.1), GID 3 (RoCE v2, IPv4), MTU 4096: the only port, its first IPv4 address",
        "speed of mlx5_0:1       100 Gb/s, near to the memory of NUMA node 1",
        "packets of eth0 have 9000 bytes, RoCE packets a payload of 4096",
        "no counter of lost packets has risen",
        "ECN is on for priorities 3, and nothing was marked yet; PFC: dcb pfc show dev eth0",
        "unlimited (hard: unlimited); each PE locks 1.0G for its heap",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn what_start_up_would_refuse_fails_in_its_words() {
    let mut facts = plain();
    facts.heaps = Err("4 symmetric heaps need more than there is; reduce SHMEM_SYMMETRIC_SIZE".into());
    expect(&facts, "memory", Verdict::Fail, "need more than there is; reduce", "");

    let mut facts = plain();
    facts.promises = Some(8 << 30);
    expect(&facts, "overcommit", Verdict::Ok, "8.0G can still be promised, heaps need 4.1G", "");
    facts.promises = Some(2 << 30);
    expect(&facts, "overcommit", Verdict::Fail, "2.0G can still be promised", "SHMEM_SYMMETRIC_SIZE=536870912");

    let mut facts = plain();
    facts.files.hard = Some(64);
    expect(&facts, "open files", Verdict::Fail, "1024 (hard: 64)", "ulimit -n 88");
    facts.files.hard = None;
    expect(&facts, "open files", Verdict::Ok, "(hard: unlimited)", "");

    let mut facts = plain();
    facts.memfd = Err("Operation not permitted".into());
    expect(&facts, "memfd", Verdict::Fail, "Operation not permitted", "seccomp");
}

#[test]
fn what_only_slows_a_job_down_is_worth_a_look() {
    let mut facts = plain();
    facts.n_pes = 5;
    expect(&facts, "cores", Verdict::Look, "4 cores, for 5 PEs: they take turns", "at most 4 PEs");
    facts.n_pes = 3;
    facts.cores.quota = Some(2);
    expect(&facts, "cores", Verdict::Look, "4 cores, of which the control group pays for 2", "at most 2 PEs");
    facts.warnings = vec!["SHMEM_SYMETRIC_SIZE is not a setting of shmem; did you mean SHMEM_SYMMETRIC_SIZE?".into()];
    expect(&facts, "settings", Verdict::Look, "did you mean", "");
    facts.warnings.clear();
    facts.settings = vec!["SHMEM_HCA=mlx5_0".into(), "SHMEM_SPIN=0".into()];
    expect(&facts, "settings", Verdict::Ok, "SHMEM_HCA=mlx5_0 SHMEM_SPIN=0", "");
    facts.seen.contained = true;
    expect(&facts, "container", Verdict::Ok, "this is one", "");
    assert!(of(&facts, "network").found.contains("whose host must have one"));
}

#[test]
fn wishes_that_cannot_be_had_fail() {
    let mut facts = plain();
    facts.wishes = wishes("mlx5_0", None, "");
    expect(&facts, "network", Verdict::Fail, "there is no RDMA device", "modprobe rdma_rxe");
    let mut facts = roce();
    facts.wishes = wishes("mlx5_7", None, "");
    expect(
        &facts,
        "network",
        Verdict::Fail,
        "there are mlx5_0:1 (active, eth0, 10.0.0.1)",
        "correct or unset SHMEM_HCA",
    );
    facts.wishes = wishes("", Some(9), "");
    expect(&facts, "network", Verdict::Fail, "SHMEM_GID_INDEX=9: no port", "correct or unset SHMEM_GID_INDEX");
}

#[test]
fn devices_that_cannot_be_used_fail_with_what_to_do() {
    let mut facts = roce();
    facts.seen.devices[0].node =
        Node::Refused { path: "/dev/infiniband/uverbs0".into(), why: "Permission denied".into(), by_mode: true };
    expect(&facts, "network", Verdict::Fail, "uverbs0 cannot be opened (Permission denied)", "mlx5_0:1: chmod 666");
    assert!(of(&facts, "locked memory").found.contains("none is needed"));
    let mut facts = roce();
    facts.seen.devices[0].ports[0].layer = "InfiniBand".into();
    expect(&facts, "network", Verdict::Look, "a port of InfiniBand, not of Ethernet; PEs of one host talk", "");
}

#[test]
fn ports_that_are_passed_over_are_named() {
    let mut facts = roce();
    let mut down = port(1, vec![gid(3, "::ffff:10.0.1.1", "eth1")]);
    down.state = "DOWN".into();
    facts.seen.devices.push(device("mlx5_1", vec![down]));
    expect(&facts, "port mlx5_1:1", Verdict::Look, "not used: its link is down (state DOWN", "ip link set eth1 up");
    facts.wishes = wishes("mlx5_0", None, "");
    assert!(!Checkup::of(&facts).findings.iter().any(|finding| finding.what == "port mlx5_1:1"));
    facts.wishes = Wishes::default();
    facts.seen.devices[1].ports[0].layer = "InfiniBand".into();
    expect(&facts, "port mlx5_1:1", Verdict::Ok, "not used: it is a port of InfiniBand", "");
}

#[test]
fn small_packets_are_worth_a_look() {
    let mut facts = roce();
    facts.seen.nets[0].mtu = Some(1500);
    expect(
        &facts,
        "MTU of mlx5_0:1",
        Verdict::Look,
        "have 1500 bytes, RoCE packets a payload of 1024",
        "mtu 9000 (4200",
    );
    facts.seen.nets[0].mtu = Some(300);
    expect(&facts, "MTU of mlx5_0:1", Verdict::Look, "none at all", "ip link set eth0 mtu 9000");
    facts.seen.nets[0].mtu = None;
    assert_eq!(of(&facts, "MTU of mlx5_0:1").verdict, Verdict::Look);
    facts.seen.nets[0] = net("eth0");
    facts.seen.nets[0].vlan = Some(Vlan { id: Some(7), over: Some("bond0".into()) });
    let fix = "ip link set bond0 mtu 9000 && ip link set eth0 mtu 9000";
    expect(&facts, "MTU of mlx5_0:1", Verdict::Look, "1500 bytes", fix);
}

#[test]
fn locked_memory_is_weighed_against_a_heap() {
    let mut facts = roce();
    facts.locked = Limit { soft: Some(8 << 20), hard: Some(8 << 20) };
    let need = "8.0M (hard: 8.0M); each PE locks 1.0G";
    expect(&facts, "locked memory", Verdict::Fail, need, "memlock unlimited");
    assert!(of(&facts, "locked memory").fix.unwrap().contains("--ulimit memlock=-1"));
    facts.locked.hard = None;
    expect(&facts, "locked memory", Verdict::Fail, "(hard: unlimited)", "ulimit -l unlimited");
    facts.may_lock = true;
    expect(&facts, "locked memory", Verdict::Ok, "CAP_IPC_LOCK", "");
    facts.may_lock = false;
    facts.locked.soft = Some(2 << 30);
    expect(&facts, "locked memory", Verdict::Ok, "2.0G", "");
    facts.locked = Limit { soft: Some(64 << 10), hard: Some(64 << 10) };
    facts.built = false;
    expect(&facts, "locked memory", Verdict::Look, "64K", "memlock");
    expect(&facts, "build", Verdict::Look, "has no RoCE", "--features roce");
}

#[test]
fn a_missing_provider_is_named() {
    let mut facts = roce();
    facts.providers_needed = vec![("mlx5_0".into(), "mlx5")];
    facts.providers = vec!["rxe".into()];
    expect(&facts, "provider of mlx5_0", Verdict::Look, "no provider mlx5", "ibverbs-providers");
    facts.providers.push("mlx5".into());
    expect(&facts, "provider of mlx5_0", Verdict::Ok, "libibverbs has mlx5", "");
}

#[test]
fn counters_that_rose_tell_of_trouble() {
    let mut facts = roce();
    let risen = vec![counter("out_of_sequence", 12), counter("packet_seq_err", 3), counter("lifespan", 10)];
    facts.counters[0].1 = risen;
    expect(&facts, "losses of mlx5_0:1", Verdict::Look, "out_of_sequence 12, packet_seq_err 3", "docs/roce.md");
    expect(&facts, "congestion of mlx5_0:1", Verdict::Look, "no notice of congestion", "docs/roce.md");
    facts.counters[0].1.push(counter("np_cnp_sent", 5));
    expect(&facts, "congestion of mlx5_0:1", Verdict::Ok, "ECN works: np_cnp_sent 5", "");
    facts.counters.clear();
    expect(&facts, "losses of mlx5_0:1", Verdict::Ok, "shows no counters", "");
}

#[test]
fn congestion_control_that_is_off_is_worth_a_look() {
    let mut facts = roce();
    facts.queueing[0].1.ecn = Some([vec!["3".into()], vec![]]);
    let fix = "echo 1 > /sys/class/net/eth0/ecn/roce_np/enable/3";
    expect(&facts, "congestion of mlx5_0:1", Verdict::Look, "ECN is off", fix);
    facts.queueing[0].1 = Queueing { ecn: None, trust: Some("pcp".into()) };
    expect(&facts, "congestion of mlx5_0:1", Verdict::Look, "by VLAN tags", "mlnx_qos -i eth0 --trust dscp");
    facts.seen.nets[0].vlan = Some(Vlan { id: Some(7), over: Some("eth9".into()) });
    expect(&facts, "congestion of mlx5_0:1", Verdict::Ok, "not shown by the driver", "");
    assert!(of(&facts, "congestion of mlx5_0:1").found.ends_with("dcb pfc show dev eth9"));
    facts.seen.devices[0].software = true;
    expect(&facts, "congestion of mlx5_0:1", Verdict::Ok, "made in software", "");
    expect(&facts, "speed of mlx5_0:1", Verdict::Ok, "made in software", "");
}

#[test]
fn facts_are_read_from_files() {
    let tree = Tree::new("checkup");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    tree.file(&format!("{port}/state"), "4: ACTIVE\n").file(&format!("{port}/hw_counters/np_cnp_sent"), "17\n");
    tree.file(&format!("{port}/hw_counters/lifespan"), "10\n").file(&format!("{port}/hw_counters/odd"), "n/a\n");
    tree.link("sys/class/infiniband/mlx5_0/device/driver", "../../bus/pci/drivers/mlx5_core");
    tree.file("sys/class/infiniband/rxe0/node_desc", "rxe\n").file("sys/class/infiniband/odd0/node_desc", "odd\n");
    tree.file("etc/libibverbs.d/mlx5.driver", "driver mlx5\n").file("etc/libibverbs.d/README", "");
    for priority in 0..8 {
        let on = if priority == 3 { "1\n" } else { "0\n" };
        tree.file(&format!("sys/class/net/eth0/ecn/roce_np/enable/{priority}"), on);
        tree.file(&format!("sys/class/net/eth0/ecn/roce_rp/enable/{priority}"), "0\n");
    }
    tree.file("sys/class/net/eth0/qos/trust", "pcp\n").file("sys/class/net/lo/mtu", "65536\n");
    tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
    tree.file("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
    tree.file("proc/sys/vm/overcommit_memory", "2\n");
    tree.file("proc/meminfo", "CommitLimit:  1000 kB\nCommitted_AS:   400 kB\n");
    tree.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    tree.file("proc/self/uid_map", "         0          0 4294967295\n");
    let mut config = Config::default();
    config.set("SHMEM_SYMMETRIC_SIZE", "1M").unwrap();
    config.set("SHMEM_GID_INDEX", "3").unwrap();
    let facts = Facts::read(tree.root(), &config, Some(3));

    assert_eq!(facts.settings, ["SHMEM_SYMMETRIC_SIZE=1M", "SHMEM_GID_INDEX=3"]);
    assert_eq!((facts.n_pes, facts.wishes.gid_index), (3, Some(3)));
    let heaps = facts.heaps.as_ref().unwrap();
    assert!(heaps.user == 1 << 20 && heaps.whole > heaps.user, "{heaps:?}");
    assert_eq!(facts.counters, [("mlx5_0:1".to_owned(), vec![counter("lifespan", 10), counter("np_cnp_sent", 17)])]);
    let needed = [("mlx5_0".to_owned(), "mlx5"), ("rxe0".to_owned(), "rxe")];
    assert_eq!(
        (facts.providers_needed.as_slice(), facts.providers.as_slice()),
        (&needed[..], &["mlx5".to_owned()][..])
    );
    let queueing = Queueing { ecn: Some([vec!["3".into()], vec![]]), trust: Some("pcp".into()) };
    assert_eq!(facts.queueing, [("eth0".to_owned(), queueing), ("lo".to_owned(), Queueing::default())]);
    let huge = &facts.huge;
    assert_eq!((huge.reserved, huge.free, huge.transparent.as_deref()), (512, 500, Some("advise")));
    assert_eq!((facts.promises, facts.may_lock), (Some(600 << 10), true));

    // A capability in a user namespace of one's own lifts nothing.
    tree.file("proc/self/uid_map", "0 1000 1\n").file("proc/sys/vm/overcommit_memory", "0\n");
    let facts = Facts::read(tree.root(), &config, None);
    assert!(!facts.may_lock && facts.promises.is_none() && facts.n_pes >= 1);
    config.set("SHMEM_SYMMETRIC_SIZE", "1000T").unwrap();
    let facts = Facts::read(tree.root(), &config, None);
    assert!(facts.heaps.unwrap_err().contains("reduce SHMEM_SYMMETRIC_SIZE"));
}

#[test]
fn this_host_can_be_looked_at() {
    let checkup = Checkup::of_this_host(&Config::default(), None);
    assert!(checkup.findings.iter().any(|finding| finding.what == "network"), "{checkup}");
    assert_eq!(checkup.fails(), checkup.to_string().contains("FAIL"));
}

#[test]
fn sizes_have_two_or_three_figures() {
    for (bytes, text) in [
        (0, "0"),
        (999, "999"),
        (1024, "1.0K"),
        (8 << 20, "8.0M"),
        (10 << 20, "10M"),
        ((3 << 30) / 2, "1.5G"),
        (1000 << 30, "1000G"),
        (u64::MAX, "16E"),
    ] {
        assert_eq!(size(bytes), text);
    }
}
