//! What the PEs decide at start-up: a pure function of what all of them bring, so that all decide alike.

use serde::{Deserialize, Serialize};

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::config::{Config, HeapMemory, RouteChoice};
use crate::error::{ErrorKind, Result};
use crate::group::by_value;
use crate::heap::Memory;
use crate::heap::control::Layout;
use crate::heap::host::Host;
use crate::heap::memory::Identity;
use crate::sync::barrier::Radix;
use crate::transport::places::Places;
use crate::watch::Board;

/// The default heap of a PE, where memory allows.
const DEFAULT_HEAP: u64 = 4 << 30;
/// The smallest default.
const SMALLEST_HEAP: u64 = 1 << 20;
/// The heaps of a host together take at most 2/5 of what it has to give, unless the user asks for more.
const SHARE: (u64, u64) = (2, 5);
/// Polls before a waiter yields, where every PE has a core: about 20 µs, a hundred hand-overs.
const SPIN: u32 = 1000;

/// What a PE brings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Joined {
    /// The identity of its host; of whatever has the memory for several hosts that a machine plays; and of the machine.
    pub(super) host: String,
    pub(super) house: String,
    pub(super) machine: String,
    /// The port through which it reaches other hosts, as people write it; or why there is none.
    pub(super) port: Result<String, String>,
    /// A number that nobody else has.
    pub(super) nonce: u64,
    /// Bytes that its host can give, and what limits them.
    pub(super) available: u64,
    pub(super) limit: String,
    /// Bytes that its heaps can have besides: huge pages of the host's pool.
    pub(super) pool: u64,
    /// Whether its heap is taken from these, and of what its size is a multiple.
    pub(super) of_host: bool,
    pub(super) multiple: usize,
    /// The file or device that its heap lies in, if it lies in one.
    pub(super) file: Option<Identity>,
    /// Whether its heap is out of reach of other PEs of its host, or of its own processor, without a network.
    pub(super) apart: bool,
    /// Bytes that its process can map.
    pub(super) address_space: u64,
    /// Cores that it may run on, and how many of them at a time.
    pub(super) cores: Vec<u16>,
    pub(super) quota: Option<usize>,
    /// The version of the library, and the settings that must agree.
    pub(super) settings: Vec<(String, String)>,
}

impl Joined {
    /// Of PE `me` of `n_pes`, with the memory for its heap, and its way to other hosts.
    pub(super) fn gather(
        config: &Config,
        me: usize,
        n_pes: usize,
        heap: &Memory,
        port: Result<String, String>,
        host: Host,
    ) -> Self {
        let Host { identity: machine, memory, cores } = host;
        let version = ("the library's version".to_string(), env!("CARGO_PKG_VERSION").to_string());
        let kind = ("SHMEM_HEAP".to_string(), heap.kind().to_string());
        let agreement = config.agreement().into_iter().map(|(name, value)| (name.to_string(), value));
        let address_space = rustix::process::getrlimit(rustix::process::Resource::As).current;
        let house = config.host.clone().unwrap_or_else(|| machine.clone());
        // In blocks, whose sizes differ by one at most.
        let host = match config.hosts {
            Some(hosts @ 2..) => format!("{house}, part {}", me * hosts.min(n_pes) / n_pes),
            _ => house.clone(),
        };
        Joined {
            host,
            house,
            machine,
            port,
            nonce: RandomState::new().build_hasher().finish(),
            available: memory.available,
            limit: memory.limit,
            pool: heap.pool(),
            of_host: heap.is_of_host(),
            multiple: heap.multiple(),
            file: heap.identity(),
            apart: heap.is_apart(n_pes),
            address_space: address_space.unwrap_or(u64::MAX),
            cores: cores.numbers,
            quota: cores.quota,
            settings: [version, kind].into_iter().chain(agreement).collect(),
        }
    }
}

/// What connects the hosts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fabric {
    /// Nothing: there is one host.
    None,
    /// A network card.
    Roce,
    /// One that is simulated in the memory of the machine.
    Sim,
}

/// What was decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The PEs of this PE's host, in ascending order.
    pub(super) host: Vec<usize>,
    /// The number of each PE's host, in the order of their lowest PEs.
    pub(super) hosts: Vec<usize>,
    /// Which slice of its file each PE has, where the heaps lie in files.
    pub(super) slices: Vec<usize>,
    /// What connects the hosts.
    pub(super) fabric: Fabric,
    pub(super) layout: Layout,
    pub(super) radix: Radix,
    /// Whether this host has more PEs than cores for them.
    pub(super) crowded: bool,
    /// Polls before a waiter on this host yields.
    pub(super) spin: u32,
    /// Bytes of every user heap.
    pub(super) heap: usize,
}

impl Plan {
    pub(super) fn new(joined: &[Joined], me: usize, config: &Config) -> Result<Plan> {
        check_agreement(joined)?;
        let n_pes = joined.len();
        let radix = config.barrier_radix.map_or_else(Radix::default, Radix::of);
        let hosts = host_numbers(joined);
        let fabric = fabric(joined, &hosts, config)?;
        let network = if fabric == Fabric::None { 0 } else { Places::bytes(n_pes) };
        let layout = |heap| Layout::new(n_pes, config.team_slots, config.team_workspace, network, heap, radix);
        let control = layout(0).bytes() as u64;
        let heap = match config.heap_size {
            Some(size) => asked_for(size as u64, control, joined)?,
            None => share(control, joined),
        };
        let heap = usize::try_from(heap.next_multiple_of(joined[0].multiple as u64)).unwrap_or(usize::MAX);
        let host: Vec<usize> = (0..n_pes).filter(|pe| hosts[*pe] == hosts[me]).collect();
        let slices = slices(joined);
        let crowded = crowded(joined, &host);
        let spin = config.spin.unwrap_or(if crowded { 0 } else { SPIN });
        Ok(Plan { layout: layout(heap), host, hosts, slices, fabric, radix, crowded, spin, heap })
    }

    /// Bytes behind the symmetric memory of a PE: its host's board, if the PE is the lowest there.
    pub(super) fn behind(&self, pe: usize) -> usize {
        let same = |other: &usize| self.hosts[*other] == self.hosts[pe];
        if (0..pe).any(|other| same(&other)) {
            return 0;
        }
        let n_pes = self.hosts.len();
        Board::bytes((0..n_pes).filter(same).count(), n_pes)
    }
}

/// What `n_pes` PEs on this host alone would get: bytes of each user heap, and of each PE's symmetric memory as a whole.
pub(crate) fn on_this_host(config: &Config, n_pes: usize) -> Result<(usize, usize)> {
    let heap = if config.heap == HeapMemory::Huge { Memory::Huge } else { Memory::Normal };
    let joined = vec![Joined::gather(config, 0, 1, &heap, Ok(String::new()), Host::look()); n_pes.max(1)];
    let plan = Plan::new(&joined, 0, config)?;
    Ok((plan.heap, plan.layout.bytes()))
}

const PAGE: u64 = 4096;

/// The number of each PE's host, in the order of their lowest PEs.
fn host_numbers(joined: &[Joined]) -> Vec<usize> {
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut numbers = Vec::with_capacity(joined.len());
    for pe in joined {
        let next = known.len();
        numbers.push(*known.entry(&pe.host).or_insert(next));
    }
    numbers
}

/// Which slice of its file each PE has: PEs of a machine may have a file in common.
fn slices(joined: &[Joined]) -> Vec<usize> {
    let same =
        |one: &Joined, other: &Joined| one.file.is_some() && (&one.machine, one.file) == (&other.machine, other.file);
    joined.iter().enumerate().map(|(pe, one)| joined[..pe].iter().filter(|other| same(one, other)).count()).collect()
}

/// What connects the hosts, or why nothing does.
fn fabric(joined: &[Joined], hosts: &[usize], config: &Config) -> Result<Fabric> {
    let elsewhere = hosts.iter().position(|host| *host != 0);
    let (route, missing) = match (config.route, elsewhere) {
        // Heaps that nobody else can map are reached over a network all the same, if there is one.
        (RouteChoice::Auto, None) if joined.iter().all(|pe| pe.apart && pe.port.is_ok()) => return Ok(Fabric::Roce),
        (RouteChoice::Auto, None) => return Ok(Fabric::None),
        (RouteChoice::Sim, _) => {
            let other = joined.iter().position(|pe| pe.machine != joined[0].machine);
            let why = |pe: usize| format!("the simulated network ends at the machine, and PE {pe} is on another");
            (Fabric::Sim, other.map(why))
        }
        (RouteChoice::Auto | RouteChoice::Roce, _) => {
            let without = joined.iter().enumerate().find_map(|(pe, one)| Some((pe, one.port.as_ref().err()?)));
            (Fabric::Roce, without.map(|(pe, why)| format!("PE {pe} has none: {why}")))
        }
    };
    let Some(why) = missing else { return Ok(route) };
    let Some(pe) = elsewhere else {
        let (name, value) = ("SHMEM_ROUTE".to_owned(), config.value("SHMEM_ROUTE"));
        return Err(ErrorKind::BadSetting { name, value, form: why }.into());
    };
    Err(ErrorKind::NoRoute { pe, host: joined[pe].host.clone(), own: joined[0].host.clone(), why }.into())
}

fn check_agreement(joined: &[Joined]) -> Result<()> {
    for (i, (name, _)) in joined[0].settings.iter().enumerate() {
        let value = |pe: &Joined| pe.settings.get(i).map_or_else(String::new, |(_, value)| value.clone());
        let values: Vec<String> = joined.iter().map(value).collect();
        if values.iter().any(|value| *value != values[0]) {
            return Err(
                ErrorKind::SettingsDiffer { name: name.clone(), report: by_value(&values, "has", "have") }.into()
            );
        }
    }
    Ok(())
}

/// The size that was asked for, if every host can give it to all its PEs.
fn asked_for(size: u64, control: u64, joined: &[Joined]) -> Result<u64> {
    for (host, n_pes) in houses(joined) {
        let n = n_pes as u128;
        let all = (size as u128 + control as u128) * n;
        // What lies elsewhere, or in the host's pool of huge pages, takes nothing of the host's memory.
        let elsewhere = if host.of_host { n.min(u128::from(host.pool / size.max(1))) } else { n };
        let limits = [
            (all - elsewhere * size as u128, host.available, host.limit.as_str()),
            (all, host.address_space, "the address space (ulimit -v)"),
        ];
        for (need, available, limit) in limits {
            if need > u128::from(available) {
                let advice = (available / n_pes as u64).saturating_sub(control) / PAGE * PAGE;
                return Err(ErrorKind::NoMemory {
                    n_pes,
                    size: size as usize,
                    need: usize::try_from(need).unwrap_or(usize::MAX),
                    available: available as usize,
                    limit: limit.to_string(),
                    advice: advice as usize,
                }
                .into());
            }
        }
    }
    Ok(size)
}

/// A size that every host can give to all its PEs, with room to spare.
fn share(control: u64, joined: &[Joined]) -> u64 {
    let of_host = |(host, n_pes): (&Joined, usize)| {
        let available = host.available.min(host.address_space) / SHARE.1 * SHARE.0;
        (available / n_pes as u64).saturating_sub(control)
    };
    let share = houses(joined).into_iter().map(of_host).min().unwrap_or(DEFAULT_HEAP);
    (share.clamp(SMALLEST_HEAP, DEFAULT_HEAP)) / PAGE * PAGE
}

/// Every host, or whatever plays several: its tightest limits, and how many PEs it has.
fn houses(joined: &[Joined]) -> Vec<(&Joined, usize)> {
    let mut houses: Vec<(&Joined, usize)> = Vec::new();
    for pe in joined {
        match houses.iter_mut().find(|(tightest, _)| tightest.house == pe.house) {
            Some((tightest, n_pes)) => {
                *n_pes += 1;
                if pe.available.min(pe.address_space) < tightest.available.min(tightest.address_space) {
                    *tightest = pe;
                }
            }
            None => houses.push((pe, 1)),
        }
    }
    houses
}

/// Whether a host has more PEs than cores for them.
fn crowded(joined: &[Joined], host: &[usize]) -> bool {
    let mut cores: Vec<u16> = host.iter().flat_map(|pe| joined[*pe].cores.iter().copied()).collect();
    cores.sort_unstable();
    cores.dedup();
    let quota = host.iter().filter_map(|pe| joined[*pe].quota).min().unwrap_or(usize::MAX);
    host.len() > cores.len().min(quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pe(host: &str, available: u64) -> Joined {
        Joined {
            host: host.into(),
            house: host.into(),
            machine: "m".into(),
            port: Ok("mlx5_0:1".into()),
            nonce: 0,
            available,
            limit: "the host's memory".into(),
            pool: 0,
            of_host: true,
            multiple: PAGE as usize,
            file: None,
            apart: false,
            address_space: u64::MAX,
            cores: vec![0, 1],
            quota: None,
            settings: vec![("SHMEM_TEAM_SLOTS".into(), "64".into())],
        }
    }

    fn plan(joined: &[Joined], config: &Config) -> Result<Plan> {
        Plan::new(joined, 0, config)
    }

    #[test]
    fn the_default_heaps_take_less_than_half_and_never_fail() {
        for n in [1, 2, 3, 16, 64, 128] {
            let joined = vec![pe("a", 24 << 30); n];
            let plan = plan(&joined, &Config::default()).unwrap();
            assert!(plan.layout.bytes() * n < 12 << 30, "n = {n}");
            assert!(plan.heap as u64 >= SMALLEST_HEAP);
        }
        let tiny = plan(&vec![pe("a", 16 << 20); 64], &Config::default()).unwrap();
        assert_eq!(tiny.heap as u64, SMALLEST_HEAP);
        let unknown = plan(&[pe("a", u64::MAX)], &Config::default()).unwrap();
        assert_eq!(unknown.heap as u64, DEFAULT_HEAP);
    }

    #[test]
    fn the_smallest_host_decides() {
        let joined = [pe("a", 24 << 30), pe("b", 1 << 30), pe("b", 1 << 30)];
        let plan = plan(&joined, &Config::default()).unwrap();
        assert!(plan.heap < (1 << 30) / 5 && plan.heap > (1 << 30) / 6);
        assert_eq!(plan.host, [0]);
        assert_eq!(Plan::new(&joined, 2, &Config::default()).unwrap().host, [1, 2]);
    }

    #[test]
    fn a_heap_that_does_not_fit_is_refused_with_need_limit_and_advice() {
        let config = Config { heap_size: Some(1 << 30), ..Config::default() };
        let joined = [pe("a", 1 << 30), pe("a", 1 << 30)];
        let error = plan(&joined, &config).unwrap_err();
        let ErrorKind::NoMemory { n_pes: 2, need, available, advice, .. } = error.kind() else { panic!("{error}") };
        assert!(*need > 2 << 30 && *available == 1 << 30);
        let config = Config { heap_size: Some(*advice), ..Config::default() };
        assert_eq!(plan(&joined, &config).unwrap().heap, *advice);
        let huge = Config { heap_size: Some(isize::MAX as usize), ..Config::default() };
        assert!(matches!(plan(&joined, &huge).unwrap_err().kind(), ErrorKind::NoMemory { .. }));
    }

    #[test]
    fn hosts_that_a_machine_plays_have_its_memory_in_common() {
        let part = |part: &str| Joined { house: "m".into(), ..pe(part, 1 << 30) };
        let config = |bytes| Config { heap_size: Some(bytes), route: RouteChoice::Sim, ..Config::default() };
        let joined = [part("m, part 0"), part("m, part 1")];
        assert!(matches!(plan(&joined, &config(700 << 20)).unwrap_err().kind(), ErrorKind::NoMemory { n_pes: 2, .. }));
        assert_eq!(plan(&joined, &config(400 << 20)).unwrap().heap, 400 << 20);
        let apart = [pe("a", 1 << 30), pe("b", 1 << 30)];
        assert_eq!(plan(&apart, &config(700 << 20)).unwrap().heap, 700 << 20);
    }

    #[test]
    fn a_network_that_is_asked_for_and_missing_is_a_wrong_setting_on_one_host() {
        let alone = [Joined { port: Err("no device".into()), ..pe("a", 1 << 30) }];
        let config = Config { route: RouteChoice::Roce, ..Config::default() };
        let error = plan(&alone, &config).unwrap_err();
        let said = r#"SHMEM_ROUTE="roce" is not valid: PE 0 has none: no device"#;
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn what_lies_elsewhere_takes_nothing_of_the_hosts_memory() {
        let config = Config { heap_size: Some(1 << 30), ..Config::default() };
        let mut joined = vec![pe("a", 1 << 30), pe("a", 1 << 30)];
        joined.iter_mut().for_each(|pe| pe.pool = 2 << 30);
        assert_eq!(plan(&joined, &config).unwrap().heap, 1 << 30);
        // One of the two finds no room in the pool, and none in what the control words leave.
        joined.iter_mut().for_each(|pe| pe.pool = (2 << 30) - 1);
        assert!(matches!(plan(&joined, &config).unwrap_err().kind(), ErrorKind::NoMemory { .. }));
        joined.iter_mut().for_each(|pe| pe.available = (1 << 30) + (100 << 20));
        assert_eq!(plan(&joined, &config).unwrap().heap, 1 << 30);
        joined.iter_mut().for_each(|pe| (pe.available, pe.of_host) = (100 << 20, false));
        assert_eq!(plan(&joined, &config).unwrap().heap, 1 << 30);
    }

    #[test]
    fn pes_that_have_a_file_in_common_have_slices_of_it() {
        let file = |machine: &str, inode: u64| Joined {
            file: Some([1, inode, 0]),
            machine: machine.into(),
            ..pe(machine, 1 << 30)
        };
        let joined = [file("a", 7), file("b", 7), file("a", 8), file("a", 7), file("b", 9), file("a", 8)];
        assert_eq!(plan(&joined, &Config::default()).unwrap().slices, [0, 0, 0, 1, 0, 1]);
        assert_eq!(plan(&vec![pe("a", 1 << 30); 3], &Config::default()).unwrap().slices, [0; 3]);
    }

    #[test]
    fn heaps_that_nobody_can_map_take_a_network_if_there_is_one() {
        let apart = Joined { apart: true, ..pe("a", 1 << 30) };
        let fabric = |joined: &[Joined]| plan(joined, &Config::default()).unwrap().fabric;
        assert_eq!(fabric(&[apart.clone(), apart.clone()]), Fabric::Roce);
        assert_eq!(fabric(&[apart.clone(), Joined { port: Err("no card".into()), ..apart }]), Fabric::None);
        assert_eq!(fabric(&[pe("a", 1 << 30)]), Fabric::None);
    }

    #[test]
    fn a_heap_of_huge_pages_is_whole_pages() {
        let config = Config { heap_size: Some((2 << 20) + 1), ..Config::default() };
        let huge = Joined { multiple: 2 << 20, ..pe("a", 1 << 30) };
        assert_eq!(plan(std::slice::from_ref(&huge), &config).unwrap().heap, 4 << 20);
        assert_eq!(plan(&[huge], &Config::default()).unwrap().heap % (2 << 20), 0);
    }

    #[test]
    fn an_address_space_limit_is_named() {
        let mut joined = [pe("a", 64 << 30), pe("a", 64 << 30)];
        joined[1].address_space = 200 << 20;
        let config = Config { heap_size: Some(1 << 30), ..Config::default() };
        assert!(plan(&joined, &config).unwrap_err().to_string().contains("ulimit -v"));
        assert!(plan(&joined, &Config::default()).unwrap().heap < 100 << 20);
    }

    #[test]
    fn hosts_need_a_network_and_one_host_has_it_where_it_is_asked_for() {
        let fabric = |joined: &[Joined], route| plan(joined, &Config { route, ..Config::default() });
        let one = vec![pe("a", 1 << 30); 2];
        let mut two = [pe("a", 1 << 30), pe("b", 1 << 30), pe("a", 1 << 30)];
        for (route, of_one, of_two) in [
            (RouteChoice::Auto, Fabric::None, Fabric::Roce),
            (RouteChoice::Roce, Fabric::Roce, Fabric::Roce),
            (RouteChoice::Sim, Fabric::Sim, Fabric::Sim),
        ] {
            let planned = fabric(&one, route).unwrap();
            assert_eq!((planned.fabric, planned.hosts), (of_one, vec![0, 0]));
            let planned = fabric(&two, route).unwrap();
            assert_eq!((planned.fabric, &planned.hosts[..], &planned.host[..]), (of_two, &[0, 1, 0][..], &[0, 2][..]));
            assert_eq!([0, 1, 2].map(|pe| planned.behind(pe) > 0), [true, true, false], "a board for each host");
        }
        two[2].port = Err("no device".into());
        two[1].machine = "n".into();
        let why = |route| fabric(&two, route).unwrap_err().to_string();
        let between = "PE 1 is on another host (b) than PE 0 (a), and there is no network between them: ";
        assert_eq!(why(RouteChoice::Auto), format!("{between}PE 2 has none: no device"));
        assert!(why(RouteChoice::Sim).ends_with("the simulated network ends at the machine, and PE 1 is on another"));
    }

    #[test]
    fn a_machine_plays_several_hosts_in_blocks() {
        for (n, hosts, expected) in
            [(5, 2, &[0, 0, 0, 1, 1][..]), (4, 4, &[0, 1, 2, 3]), (3, 8, &[0, 1, 2]), (3, 1, &[0; 3])]
        {
            let config = Config { hosts: Some(hosts), ..Config::default() };
            let joined: Vec<_> = (0..n)
                .map(|pe| Joined::gather(&config, pe, n, &Memory::Normal, Ok(String::new()), Host::look()))
                .collect();
            assert_eq!(host_numbers(&joined), expected);
        }
    }

    #[test]
    fn settings_that_differ_are_named_with_both_sides() {
        let mut joined = [pe("a", 1 << 30), pe("a", 1 << 30), pe("a", 1 << 30)];
        joined[1].settings[0].1 = "65".into();
        let text = plan(&joined, &Config::default()).unwrap_err().to_string();
        assert_eq!(text, "SHMEM_TEAM_SLOTS differs between the PEs: PE 1 has 65, PEs 0 and 2 have 64");
    }

    #[test]
    fn waiters_spin_only_where_every_pe_has_a_core() {
        let spin = |joined: &[Joined]| plan(joined, &Config::default()).unwrap().spin;
        assert_eq!(spin(&vec![pe("a", 1 << 30); 2]), SPIN);
        assert_eq!(spin(&vec![pe("a", 1 << 30); 3]), 0);
        assert_eq!(spin(&[pe("a", 1 << 30), pe("b", 1 << 30), pe("b", 1 << 30)]), SPIN);
        let mut bound = vec![pe("a", 1 << 30); 2];
        bound[0].cores = vec![1];
        bound[1].cores = vec![1];
        assert_eq!(spin(&bound), 0);
        bound[1].cores = vec![0];
        assert_eq!(spin(&bound), SPIN);
        bound[1].quota = Some(1);
        assert_eq!(spin(&bound), 0);
    }
}
