//! What the PEs decide at start-up: a pure function of what all of them bring, so that all decide alike.

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::{ErrorKind, Result};
use crate::group::by_value;
use crate::heap::control::Layout;
use crate::heap::memory::Identity;
use crate::heap::{Memory, host};
use crate::sync::barrier::Radix;

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
    /// The identity of its host.
    pub(super) host: String,
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
    /// Bytes that its process can map.
    pub(super) address_space: u64,
    /// Cores that it may run on, and how many of them at a time.
    pub(super) cores: Vec<u16>,
    pub(super) quota: Option<usize>,
    /// The version of the library, and the settings that must agree.
    pub(super) settings: Vec<(String, String)>,
}

impl Joined {
    pub(super) fn gather(config: &Config, heap: &Memory) -> Self {
        let memory = host::available_memory();
        let cores = host::usable_cores();
        let version = ("the library's version".to_string(), env!("CARGO_PKG_VERSION").to_string());
        let kind = ("SHMEM_HEAP".to_string(), heap.kind().to_string());
        let agreement = config.agreement().into_iter().map(|(name, value)| (name.to_string(), value));
        let address_space = rustix::process::getrlimit(rustix::process::Resource::As).current;
        Joined {
            host: config.host.clone().unwrap_or_else(host::identity),
            available: memory.available,
            limit: memory.limit,
            pool: heap.pool(),
            of_host: heap.is_of_host(),
            multiple: heap.multiple(),
            file: heap.identity(),
            address_space: address_space.unwrap_or(u64::MAX),
            cores: cores.numbers,
            quota: cores.quota,
            settings: [version, kind].into_iter().chain(agreement).collect(),
        }
    }
}

/// What was decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The PEs of this PE's host, in ascending order.
    pub(super) host: Vec<usize>,
    /// Which slice of its file each of them has, where their heaps lie in files.
    pub(super) slices: Vec<usize>,
    pub(super) layout: Layout,
    pub(super) radix: Radix,
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
        let control = Layout::new(n_pes, config.team_slots, config.team_workspace, 0, radix).bytes() as u64;
        let heap = match config.heap_size {
            Some(size) => asked_for(size as u64, control, joined)?,
            None => share(control, joined),
        };
        let heap = usize::try_from(heap.next_multiple_of(joined[0].multiple as u64)).unwrap_or(usize::MAX);
        let host: Vec<usize> = (0..n_pes).filter(|pe| joined[*pe].host == joined[me].host).collect();
        let same_file = |pe: usize| {
            let file = joined[pe].file;
            move |other: &&usize| **other < pe && file.is_some() && joined[**other].file == file
        };
        let slices = host.iter().map(|&pe| host.iter().filter(same_file(pe)).count()).collect();
        let spin = config.spin.unwrap_or_else(|| if crowded(joined, &host) { 0 } else { SPIN });
        let layout = Layout::new(n_pes, config.team_slots, config.team_workspace, heap, radix);
        Ok(Plan { layout, host, slices, radix, spin, heap })
    }
}

const PAGE: u64 = 4096;

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
    for (host, n_pes) in hosts(joined) {
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
    let share = hosts(joined).into_iter().map(of_host).min().unwrap_or(DEFAULT_HEAP);
    (share.clamp(SMALLEST_HEAP, DEFAULT_HEAP)) / PAGE * PAGE
}

/// Every host: its tightest limits, and how many PEs it has.
fn hosts(joined: &[Joined]) -> Vec<(&Joined, usize)> {
    let mut hosts: Vec<(&Joined, usize)> = Vec::new();
    for pe in joined {
        match hosts.iter_mut().find(|(host, _)| host.host == pe.host) {
            Some((host, n_pes)) => {
                *n_pes += 1;
                if pe.available.min(pe.address_space) < host.available.min(host.address_space) {
                    *host = pe;
                }
            }
            None => hosts.push((pe, 1)),
        }
    }
    hosts
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
            available,
            limit: "the host's memory".into(),
            pool: 0,
            of_host: true,
            multiple: PAGE as usize,
            file: None,
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
        let file = |host: &str, inode: u64| Joined { file: Some([1, inode, 0]), ..pe(host, 1 << 30) };
        let joined = [file("a", 7), file("b", 7), file("a", 8), file("a", 7), file("b", 9), file("a", 8)];
        let slices = |me| Plan::new(&joined, me, &Config::default()).map(|plan| (plan.host, plan.slices)).unwrap();
        assert_eq!(slices(0), (vec![0, 2, 3, 5], vec![0, 0, 1, 1]));
        assert_eq!(slices(4), (vec![1, 4], vec![0, 0]));
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
