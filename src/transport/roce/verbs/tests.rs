//! Two cards of one process, over real verbs. Without a device each test says so and passes, but in the guest of
//! `ci/softroce.sh`, which has two.

#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::*;
use crate::heap::Segment;
use crate::transport::roce::nic::{Atomics, Local, Outcome, Verb};

/// Bytes of each card's memory.
const BYTES: usize = 4 << 20;
/// At which offset they begin: that the first is not 0 shows what mistakes offsets for addresses.
const BASE: usize = 0x10_0000;
/// More than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);
const LANES: usize = 40;
/// DSCP 26, as a lossless priority often has it.
const CLASS: u8 = 106;

/// The first port of a device, with an entry of its GID table.
fn port(device: &str, gid_index: u32) -> Option<Port> {
    let table = Path::new("/sys/class/infiniband").join(device).join("ports/1/gids");
    let text = std::fs::read_to_string(table.join(gid_index.to_string())).ok()?;
    let gid = text.trim().parse::<std::net::Ipv6Addr>().ok()?.octets();
    Some(Port { device: device.into(), port: 1, gid_index, gid })
}

/// The two ports of the guest.
fn ports() -> Option<[Port; 2]> {
    let found = port("rxe0", 1).zip(port("rxe1", 1)).map(|(a, b)| [a, b]);
    if found.is_none() {
        assert!(std::env::var_os("SOFTROCE").is_none(), "the guest has no devices");
        println!("skipped: there are no devices rxe0 and rxe1; ci/softroce.sh runs this where there are");
    }
    found
}

/// A card with memory. In this order, so that the memory outlives the card.
struct Side {
    verbs: Verbs,
    memory: Segment,
}

fn regions(memory: &Segment) -> [Region; 1] {
    [Region { offsets: BASE..BASE + memory.len(), base: memory.base(), dmabuf: None }]
}

fn open(port: &Port, me: usize, secret: &str) -> Side {
    let (memory, _) = Segment::create(BYTES, 0).unwrap();
    let verbs = Verbs::open(port, CLASS, &regions(&memory), me, secret, &[Ipv4Addr::LOCALHOST.into()]).unwrap();
    Side { verbs, memory }
}

/// Both, which know of each other.
fn both() -> Option<[Side; 2]> {
    let [first, second] = ports()?;
    let sides = [open(&first, 0, "secret"), open(&second, 1, "secret")];
    introduce(&sides);
    Some(sides)
}

fn introduce(sides: &[Side; 2]) {
    let [first, second] = sides.each_ref().map(|side| side.verbs.address());
    sides[0].verbs.introduce(vec![None, Some(second)], LANES);
    sides[1].verbs.introduce(vec![Some(first), None], LANES);
}

const TO: To = To { lane: 0, pe: 1 };

fn request(number: u64, verb: Verb, at: usize, bytes: usize, remote: usize) -> Request<'static> {
    let local = Local::At { at: BASE + at, bytes };
    Request { verb, local, remote: BASE + remote, number, signaled: true, fenced: false }
}

impl Side {
    /// Everything that ends until the request of this number has.
    fn wait(&self, to: To, number: u64) -> Vec<Completion> {
        let (mut found, since) = (Vec::new(), Instant::now());
        while found.last().is_none_or(|last: &Completion| last.number < number) {
            self.verbs.poll(to, &mut found).unwrap();
            assert!(since.elapsed() < LONG, "request {number} has not ended: {found:?}");
            std::thread::yield_now();
        }
        found
    }

    /// Posts a chain and waits for its end, which is good.
    fn run(&self, chain: &[Request<'_>]) {
        self.verbs.post(TO, chain).unwrap();
        let last = chain.last().unwrap().number;
        let ended = self.wait(TO, last);
        let signaled: Vec<u64> =
            chain.iter().filter(|request| request.signaled).map(|request| request.number).collect();
        assert_eq!(ended.iter().map(|end| end.number).collect::<Vec<_>>(), signaled);
        assert!(ended.iter().all(|end| end.outcome == Outcome::Done), "{ended:?}");
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.word(at).load(Ordering::Acquire)
    }

    fn set_word(&self, at: usize, value: u64) {
        self.memory.word(at).store(value, Ordering::Release);
    }

    /// Fills memory with what differs from place to place.
    fn fill(&self, at: usize, bytes: usize, seed: u64) {
        (0..bytes / 8).for_each(|index| self.set_word(at + index * 8, pattern(index, seed)));
    }

    fn holds(&self, at: usize, bytes: usize, seed: u64) {
        for index in 0..bytes / 8 {
            assert_eq!(self.word(at + index * 8), pattern(index, seed), "word {index} of {}", bytes / 8);
        }
    }
}

fn pattern(index: usize, seed: u64) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

#[test]
fn limits_are_those_of_the_device() {
    let Some([first, _]) = both() else { return };
    let limits = first.verbs.limits();
    assert_eq!(limits.depth, DEPTH);
    assert!(limits.inline >= 28 && limits.message >= 1 << 20, "{limits:?}");
    assert_eq!(limits.atomics, Atomics::Card, "Soft-RoCE locks in the kernel");
    assert_eq!(first.verbs.name(), "rxe0:1");
    let address = first.verbs.address();
    assert_eq!((address.mtu, address.atomics), (5, Atomics::Card));
    assert_eq!(address.name, "rxe0:1 (GID 1, ::ffff:10.77.0.1)");
    let bytes = postcard::to_stdvec(&address).unwrap();
    assert_eq!(postcard::from_bytes::<Address>(&bytes).unwrap(), address);
}

#[test]
fn writes_and_reads_of_any_length_arrive() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    first.verbs.connect(TO).unwrap();
    let mut number = 0;
    for bytes in [8, 64, 216, 224, 4088, 4096, 4104, 1 << 16, 1 << 20] {
        first.fill(0, bytes, bytes as u64);
        number += 1;
        first.run(&[request(number, Verb::Write, 0, bytes, 2 << 20)]);
        second.holds(2 << 20, bytes, bytes as u64);
        number += 1;
        first.run(&[request(number, Verb::Read, 2 << 20, bytes, 2 << 20)]);
        first.holds(2 << 20, bytes, bytes as u64);
    }
}

#[test]
fn what_travels_within_a_request_may_change_at_once() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    let most = first.verbs.limits().inline;
    for (number, bytes) in (1..).zip([1, 7, 8, most]) {
        let mut sent = vec![number as u8; bytes];
        let local = Local::Inline(&sent);
        let request = Request { verb: Verb::Write, local, remote: BASE + 64, number, signaled: true, fenced: false };
        first.verbs.post(TO, &[request]).unwrap();
        sent.fill(0xff);
        first.wait(TO, number);
        assert_eq!(second.word(64).to_le_bytes()[0], number as u8);
        assert_eq!(second.word(64 + (bytes - 1) / 8 * 8).to_le_bytes()[(bytes - 1) % 8], number as u8);
    }
}

#[test]
fn atomics_fetch_and_change() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    second.set_word(128, 40);
    first.run(&[request(1, Verb::FetchAdd { add: 2 }, 0, 8, 128)]);
    assert_eq!((first.word(0), second.word(128)), (40, 42));
    first.run(&[request(2, Verb::FetchAdd { add: u64::MAX }, 0, 8, 128)]);
    assert_eq!((first.word(0), second.word(128)), (42, 41));
    first.run(&[request(3, Verb::CompareSwap { expected: 41, new: u64::MAX - 7 }, 0, 8, 128)]);
    assert_eq!((first.word(0), second.word(128)), (41, u64::MAX - 7));
    first.run(&[request(4, Verb::CompareSwap { expected: 41, new: 1 }, 0, 8, 128)]);
    assert_eq!((first.word(0), second.word(128)), (u64::MAX - 7, u64::MAX - 7));
}

#[test]
fn chains_end_with_one_notice_and_may_end_with_nothing_written() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    let depth = first.verbs.limits().depth;
    for round in 0..20 {
        let from = round * depth as u64;
        first.fill(0, depth * 8, round);
        let mut chain: Vec<Request<'_>> = (0..depth - 1)
            .map(|index| Request {
                signaled: false,
                ..request(from + index as u64 + 1, Verb::Write, index * 8, 8, 4096 + index * 8)
            })
            .collect();
        chain.push(request(from + depth as u64, Verb::Write, 0, 0, 0));
        first.run(&chain);
        second.holds(4096, (depth - 1) * 8, round);
    }
    let empty = Local::Inline(&[]);
    let number = 20 * depth as u64 + 1;
    first.run(&[Request { local: empty, ..request(number, Verb::Write, 0, 0, 0) }]);
}

#[test]
fn a_flag_never_overtakes_its_data() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    let bytes = 3 * 4096 + 8;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for round in 1..=200 {
                let since = Instant::now();
                while second.word(0) < round {
                    assert!(since.elapsed() < LONG, "no flag {round}");
                    std::thread::yield_now();
                }
                second.holds(1 << 20, bytes, round);
                second.set_word(8, round);
            }
        });
        for round in 1..=200 {
            first.fill(0, bytes, round);
            let data = Request { signaled: false, ..request(2 * round - 1, Verb::Write, 0, bytes, 1 << 20) };
            let bell = round.to_ne_bytes();
            let flag = Request { local: Local::Inline(&bell), ..request(2 * round, Verb::Write, 0, 8, 0) };
            first.run(&[data, flag]);
            while second.word(8) < round && !reader.is_finished() {
                std::thread::yield_now();
            }
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_fenced_request_waits_for_what_was_fetched() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    for round in 0..100 {
        second.set_word(256, round);
        let fetch = Request { signaled: false, ..request(2 * round + 1, Verb::Read, 0, 8, 256) };
        let pass_on = Request { fenced: true, ..request(2 * round + 2, Verb::Write, 0, 8, 264) };
        first.run(&[fetch, pass_on]);
        assert_eq!(second.word(264), round, "what was read has been sent on");
    }
}

#[test]
fn many_lanes_work_at_once_in_both_directions() {
    let Some(sides) = both() else { return };
    std::thread::scope(|scope| {
        for me in [0, 1] {
            for lane in 0..LANES {
                let (own, peer) = (&sides[me], &sides[1 - me]);
                scope.spawn(move || {
                    let to = To { lane, pe: 1 - me };
                    own.verbs.connect(to).unwrap();
                    let place = (1 << 20) + (me * LANES + lane) * 64;
                    for number in 1..=20 {
                        own.set_word(place, number << 8 | lane as u64);
                        own.verbs.post(to, &[request(number, Verb::Write, place, 8, place)]).unwrap();
                        let ended = own.wait(to, number);
                        assert_eq!(ended, [Completion { number, outcome: Outcome::Done }]);
                        assert_eq!(peer.word(place), number << 8 | lane as u64);
                    }
                });
            }
        }
    });
}

#[test]
fn a_bad_offset_is_refused_and_what_follows_is_flushed() {
    let Some([first, _second]) = both() else { return };
    for (lane, remote) in [(0, BYTES), (1, BYTES - 4), (2, usize::MAX - BASE - 63), (3, 1 << 40)] {
        let to = To { lane, pe: 1 };
        first.verbs.connect(to).unwrap();
        let remote = BASE.wrapping_add(remote);
        let bad = Request { remote, signaled: false, ..request(1, Verb::Write, 0, 8, 0) };
        first.verbs.post(to, &[bad, request(2, Verb::Write, 0, 8, 0)]).unwrap();
        let ended = first.wait(to, 2);
        let [first_end, second_end] = ended.as_slice() else { panic!("{ended:?}") };
        assert!(matches!(&first_end.outcome, Outcome::Refused(what) if what.contains("remote access")), "{ended:?}");
        assert_eq!(second_end.outcome, Outcome::Flushed);
        first.verbs.post(to, &[request(3, Verb::Write, 0, 8, 0)]).unwrap();
        assert_eq!(first.wait(to, 3), [Completion { number: 3, outcome: Outcome::Flushed }]);
    }
    let to = To { lane: 4, pe: 1 };
    first.verbs.connect(to).unwrap();
    first.verbs.post(to, &[request(1, Verb::Write, BYTES, 8, 0)]).unwrap();
    assert!(matches!(first.wait(to, 1)[0].outcome, Outcome::Refused(_)), "this PE's own memory is bounded, too");
}

#[test]
fn a_peer_that_is_gone_is_unreachable_within_seconds() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    first.run(&[request(1, Verb::Write, 0, 8, 0)]);
    drop(second);
    let since = Instant::now();
    let chain = [2, 3].map(|number| request(number, Verb::Write, 0, 8, 0));
    first.verbs.post(TO, &chain).unwrap();
    let ended = first.wait(TO, 3);
    println!("the peer was given up after {:?}: {ended:?}", since.elapsed());
    assert!(matches!(&ended[0].outcome, Outcome::Unreachable(what) if what.contains("retry")), "{ended:?}");
    assert_eq!(ended[1].outcome, Outcome::Flushed);
    let e = first.verbs.connect(To { lane: 1, pe: 1 }).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fabric { pe: 1, .. }), "{e}");
    assert!(e.to_string().contains("refused"), "{e}");
}

#[test]
fn a_wrong_gid_is_named_when_a_queue_pair_is_connected() {
    let Some([first, second]) = ports() else { return };
    let Some(link_local) = port("rxe1", 0) else { return };
    for [mine, theirs] in [[first.clone(), link_local.clone()], [link_local, first]] {
        let sides = [open(&mine, 0, "secret"), open(&theirs, 1, "secret")];
        introduce(&sides);
        let since = Instant::now();
        let e = sides[0].verbs.connect(TO).unwrap_err();
        println!("found after {:?}: {e}", since.elapsed());
        assert!(matches!(e.kind(), ErrorKind::Fabric { pe: 1, .. }), "{e}");
        for part in ["rxe0:1 (GID 1", "rxe1:1 (GID 0", "SHMEM_GID_INDEX"] {
            assert!(e.to_string().contains(part), "{part}: {e}");
        }
        assert!(since.elapsed() < LONG);
    }
    let stale = Port { gid_index: 0, ..second.clone() };
    let empty = Port { gid_index: 99, gid: [0; 16], ..second.clone() };
    let none = Port { gid_index: 300, gid: [0; 16], ..second };
    for (port, part) in [(stale, "not ::ffff:10.77.0.2"), (empty, "entry 99"), (none, "entry 300")] {
        let (memory, _) = Segment::create(4096, 0).unwrap();
        let e = Verbs::open(&port, CLASS, &regions(&memory), 0, "secret", &[]).err().unwrap();
        assert!(matches!(e.kind(), ErrorKind::Card { .. }) && e.to_string().contains(part), "{e}");
    }
}

#[test]
fn another_job_is_turned_away() {
    let Some([first, second]) = ports() else { return };
    let sides = [open(&first, 0, "one job"), open(&second, 1, "another")];
    introduce(&sides);
    let e = sides[0].verbs.connect(TO).unwrap_err();
    assert!(e.to_string().contains("the secret does not match"), "{e}");
}

#[test]
fn strangers_at_the_door_hold_up_nobody() {
    let Some([first, second]) = both() else { return };
    let door = second.verbs.door.addresses[0];
    let connect = || TcpStream::connect(door).unwrap();
    let _silent: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
    let mut half = connect();
    half.write_all(b"shmroce1\x10").unwrap();
    let mut liar = connect();
    liar.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = liar.read_to_end(&mut said);
    assert!(said.is_empty(), "nonsense gets no answer");
    let since = Instant::now();
    first.verbs.connect(TO).unwrap();
    assert!(since.elapsed() < LONG);
    first.run(&[request(1, Verb::Write, 0, 8, 0)]);
}

#[test]
fn what_is_not_there_is_named() {
    let Some([first, _]) = ports() else {
        let port = Port { device: "rxe0".into(), port: 1, gid_index: 1, gid: [0; 16] };
        let (memory, _) = Segment::create(4096, 0).unwrap();
        let e = Verbs::open(&port, CLASS, &regions(&memory), 0, "secret", &[]).err().unwrap();
        assert!(matches!(e.kind(), ErrorKind::Card { .. }), "{e}");
        return;
    };
    let (memory, _) = Segment::create(4096, 0).unwrap();
    let error = |port: Port, regions: &[Region]| {
        Verbs::open(&port, CLASS, regions, 0, "secret", &[]).err().unwrap().to_string()
    };
    let e = error(Port { device: "mlx5_9".into(), ..first.clone() }, &regions(&memory));
    assert!(e.contains("mlx5_9") && e.contains("rxe0, rxe1"), "{e}");
    let e = error(Port { port: 7, ..first.clone() }, &regions(&memory));
    assert!(e.contains("rxe0:7"), "{e}");
    let e = error(first.clone(), &[]);
    assert!(e.contains("no memory"), "{e}");
    let nowhere = Region { offsets: 0..4096, base: std::ptr::NonNull::dangling(), dmabuf: None };
    let e = error(first, &[nowhere]);
    assert!(e.contains("4096 bytes of memory"), "{e}");
}

#[test]
fn a_lane_that_is_not_connected_is_an_error() {
    let Some([first, _second]) = both() else { return };
    for to in [TO, To { lane: LANES, pe: 1 }, To { lane: 0, pe: 0 }, To { lane: 0, pe: 9 }] {
        let e = first.verbs.post(to, &[request(1, Verb::Write, 0, 8, 0)]).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Fabric { pe, .. } if *pe == to.pe), "{e}");
        assert!(first.verbs.poll(to, &mut Vec::new()).is_err());
    }
}

#[test]
fn a_limit_on_locked_memory_is_named_with_the_remedy() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Some([first, _]) = ports() else { return };
    let (memory, _) = Segment::create(BYTES, 0).unwrap();
    let before = getrlimit(Resource::Memlock);
    // The limit is the process's, and does not hold for other tests' threads, which have the capability.
    let e = std::thread::scope(|scope| {
        let poor = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, sets).unwrap();
            setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 20), ..before }).unwrap();
            Verbs::open(&first, CLASS, &regions(&memory), 0, "secret", &[]).err().unwrap()
        });
        poor.join().unwrap()
    });
    setrlimit(Resource::Memlock, before).unwrap();
    assert!(matches!(e.kind(), ErrorKind::Locked { need: BYTES, .. }), "{e}");
    for part in ["4194304 bytes", "allows 1048576", "ulimit -l unlimited", "--ulimit memlock=-1", "rxe0:1"] {
        assert!(e.to_string().contains(part), "{part}: {e}");
    }
}

#[test]
fn nothing_outlives_a_card() {
    let Some(sides) = both() else { return };
    for me in [0, 1] {
        sides[me].verbs.connect(To { lane: 0, pe: 1 - me }).unwrap();
    }
    // Whatever was made with a card holds it.
    let cards = sides.each_ref().map(|side| Arc::downgrade(&side.verbs.card));
    let doors = sides.each_ref().map(|side| side.verbs.door.addresses[0]);
    drop(sides);
    assert!(cards.iter().all(|card| card.upgrade().is_none()));
    for door in doors {
        let e = TcpStream::connect(door).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_forked_child_ends_nothing_of_its_parent() {
    let Some([first, second]) = both() else { return };
    first.verbs.connect(TO).unwrap();
    // SAFETY: the child only drops what this test has made, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((first, second));
        // SAFETY: it has no conditions.
        unsafe { libc::_exit(7) };
    }
    let child = rustix::process::Pid::from_raw(child).unwrap();
    let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(7));
    first.run(&[request(1, Verb::Write, 0, 8, 0)]);
    let other = To { lane: 1, pe: 1 };
    first.verbs.connect(other).unwrap();
    second.verbs.connect(To { lane: 0, pe: 0 }).unwrap();
}

/// Runs a program of the guest.
fn guest(command: &str) {
    let mut words = command.split(' ');
    let status = std::process::Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

#[test]
#[ignore = "takes the cable of the guest away: ci/softroce.sh runs it alone"]
fn a_cable_that_is_pulled_is_noticed_within_seconds() {
    let Some([first, second]) = both() else { return };
    let back = To { lane: 0, pe: 0 };
    first.verbs.connect(TO).unwrap();
    second.verbs.connect(back).unwrap();
    first.run(&[request(1, Verb::Write, 0, 8, 0)]);
    guest("/sbin/ip link set roce1 down");
    // At the other end the peer does not answer; at this end the card itself may know better.
    for (side, to) in [(&first, TO), (&second, back)] {
        side.verbs.post(to, &[request(2, Verb::Write, 0, 8, 0)]).unwrap();
        let ended = side.wait(to, 2);
        assert!(matches!(ended[0].outcome, Outcome::Unreachable(_) | Outcome::Refused(_)), "{ended:?}");
    }
    let e = first.verbs.connect(To { lane: 1, pe: 1 }).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fabric { pe: 1, .. }), "{e}");
    let Some([_, down]) = ports() else { return };
    let (memory, _) = Segment::create(4096, 0).unwrap();
    let e = Verbs::open(&down, CLASS, &regions(&memory), 0, "secret", &[]).err().unwrap();
    assert!(matches!(e.kind(), ErrorKind::Card { .. }) && e.to_string().contains("not active"), "{e}");
}
