//! What this host gives to this process: memory, and cores to run on.
//!
//! Memory is the least of what the host has available and what each cgroup around this process leaves, since a heap
//! that any of them cannot back ends in SIGBUS or the OOM killer long after start-up. What cannot be read limits
//! nothing. Knows nothing of heaps or of how many PEs share what it reports.

use std::path::Path;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Memory that this process and its children can still fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes.
    pub(crate) available: u64,
    /// What sets the limit, as an error names it: `the host's memory`, `the cgroup /a/b (memory.max)`.
    pub(crate) limit: String,
}

/// Cores that this thread may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Their numbers, ascending; never empty.
    pub(crate) numbers: Vec<u16>,
    /// How many of them the cgroup's processor quota pays for, in whole cores (at least 1), where that is fewer.
    pub(crate) quota: Option<usize>,
}

/// What is known of the host at start-up.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) identity: String,
    pub(crate) memory: Memory,
    pub(crate) cores: Cores,
}

impl Host {
    /// As it is now.
    pub(crate) fn look() -> Host {
        Host { identity: identity(), memory: available_memory(), cores: usable_cores() }
    }

    /// As it was when this was first called: for histories, of which there are many and each needs little.
    pub(crate) fn known() -> Host {
        static KNOWN: OnceLock<Host> = OnceLock::new();
        KNOWN.get_or_init(Host::look).clone()
    }
}

/// Who this host is: the same for all processes of one running kernel, whatever their containers, and for no others.
pub(crate) fn identity() -> String {
    let read = |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    read("/proc/sys/kernel/random/boot_id").or_else(|| read("/proc/sys/kernel/hostname")).unwrap_or_default()
}

/// The memory that is available now. Reads a few small files of `/proc` and `/sys/fs/cgroup`.
pub(crate) fn available_memory() -> Memory {
    least(&|path| std::fs::read_to_string(path).ok())
}

/// The calling thread's affinity mask and processor quota.
pub(crate) fn usable_cores() -> Cores {
    let parallel = std::thread::available_parallelism().map_or(1, |n| n.get());
    // The mask cannot be read where the machine has more cores than `CpuSet` has bits: then any core will do.
    let mut numbers = sched_getaffinity(None).map_or_else(|_| Vec::new(), |mask| members(&mask));
    if numbers.is_empty() {
        numbers = (0..=u16::MAX).take(parallel).collect();
    }
    // The standard library takes the mask and every quota of the cgroups around into account: if it says less than
    // the mask, it is a quota.
    let quota = (parallel < numbers.len()).then_some(parallel);
    Cores { numbers, quota }
}

fn members(mask: &CpuSet) -> Vec<u16> {
    (0..=u16::MAX).take(CpuSet::MAX_CPU).filter(|&core| mask.is_set(core.into())).collect()
}

/// How the files of the system are read: the text of a path, `None` where that fails.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn least(read: Read) -> Memory {
    let host = read(Path::new("/proc/meminfo")).and_then(|text| kib_of(&text, "MemAvailable"));
    let host = Memory { available: host.unwrap_or(u64::MAX), limit: "the host's memory".to_owned() };
    let membership = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = membership.lines().filter_map(hierarchy).flat_map(|(files, group)| levels(files, group, read));
    groups.fold(host, |least, next| if next.available < least.available { next } else { least })
}

/// The files in which one version of cgroups accounts for memory.
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` that count the page cache of a group and its children. The kernel drops it before it
    /// refuses memory, and so does `MemAvailable` count it as available; shared memory is not in these lines.
    cache: [&'static str; 2],
}

const V1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

const V2: Files = Files {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    cache: ["inactive_file", "active_file"],
};

/// The group that a line of `/proc/self/cgroup` (`hierarchy:controllers:path`) names, if it accounts for memory.
fn hierarchy(line: &str) -> Option<(&'static Files, &str)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    match (number, controllers) {
        ("0", "") => Some((&V2, group)),
        (_, some) if some.split(',').any(|c| c == "memory") => Some((&V1, group)),
        _ => None,
    }
}

/// What `group` and every group around it leave. The walk ends at the mount point itself, which is the process's own
/// group where a container sees only its part of the tree under the path of the whole.
fn levels(files: &'static Files, group: &str, read: Read) -> impl Iterator<Item = Memory> {
    Path::new(group).ancestors().filter_map(move |level| {
        let at = Path::new(files.mount).join(level.strip_prefix("/").unwrap_or(level));
        let number = |file: &str| read(&at.join(file))?.trim().parse::<u64>().ok();
        let (limit, usage) = (number(files.limit)?, number(files.usage)?);
        let stat = read(&at.join("memory.stat")).unwrap_or_default();
        let cache = files.cache.iter().filter_map(|name| field(&stat, name)).fold(0, u64::saturating_add);
        let available = limit.saturating_sub(usage.saturating_sub(cache));
        Some(Memory { available, limit: format!("the cgroup {} ({})", level.display(), files.limit) })
    })
}

/// Bytes in a line `name:  123 kB` of `/proc/meminfo`.
fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The number in a line `name 123`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       25000000 kB\nMemFree:        1000 kB\nMemAvailable:   8388608 kB\nBuffers: 1 kB\n";

    fn of(files: &[(&str, &str)]) -> Memory {
        least(&|path| files.iter().find(|(p, _)| Path::new(p) == path).map(|(_, text)| (*text).to_owned()))
    }

    fn memory(available: u64, limit: &str) -> Memory {
        Memory { available, limit: limit.to_owned() }
    }

    #[test]
    fn without_cgroups_the_host_limits() {
        assert_eq!(of(&[("/proc/meminfo", MEMINFO)]), memory(8 << 30, "the host's memory"));
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        assert_eq!(of(&[]).available, u64::MAX);
        assert_eq!(of(&[("/proc/meminfo", "MemAvailable: lots\nMemAvailable\n")]).available, u64::MAX);
        let lines = "garbage\n0::\n\n0::/a:b\n7:memory\n4:cpu:/a\n1:memoryx:/a\n";
        let files = [("/proc/meminfo", MEMINFO), ("/proc/self/cgroup", lines), ("/sys/fs/cgroup/a/memory.max", "1\n")];
        assert_eq!(of(&files), memory(8 << 30, "the host's memory"));
    }

    #[test]
    fn the_tightest_level_of_version_2_limits() {
        let mut files = vec![
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/user.slice/job 7\n"),
            ("/sys/fs/cgroup/user.slice/job 7/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/job 7/memory.current", "4096\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/user.slice/memory.current", "1048576\n"),
        ];
        assert_eq!(of(&files), memory((1 << 30) - (1 << 20), "the cgroup /user.slice (memory.max)"));
        files[2].1 = "104857600\n";
        assert_eq!(of(&files), memory(104857600 - 4096, "the cgroup /user.slice/job 7 (memory.max)"));
        files[0].1 = "MemAvailable: 1024 kB\n";
        assert_eq!(of(&files), memory(1 << 20, "the host's memory"));
    }

    #[test]
    fn page_cache_counts_as_available() {
        let mut files = vec![
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "1000000\n"),
            ("/sys/fs/cgroup/memory.current", "900000\n"),
            (
                "/sys/fs/cgroup/memory.stat",
                "anon 1\nfile 600000\nshmem 100000\ninactive_file 300000\nactive_file 200000\n",
            ),
        ];
        assert_eq!(of(&files), memory(600_000, "the cgroup / (memory.max)"));
        files[2].1 = "100\n";
        assert_eq!(of(&files).available, 1_000_000);
        files.truncate(3);
        files[2].1 = "1000001\n";
        assert_eq!(of(&files).available, 0);
    }

    #[test]
    fn version_1_and_a_container_that_sees_only_its_part() {
        let unlimited = "9223372036854771712\n";
        let mut files = vec![
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
        ];
        assert_eq!(of(&files), memory(8 << 30, "the host's memory"));
        files[2].1 = "67108864\n";
        files.push((
            "/sys/fs/cgroup/memory/memory.stat",
            "active_file 9\ntotal_inactive_file 400\ntotal_active_file 500\n",
        ));
        assert_eq!(of(&files), memory(67108864 - 100, "the cgroup / (memory.limit_in_bytes)"));
    }

    #[test]
    fn this_host_gives_something() {
        let memory = available_memory();
        assert!(memory.available > 0 && memory.available < u64::MAX, "{memory:?}");
    }

    #[test]
    fn cores_follow_the_affinity_of_the_thread() {
        let all = usable_cores();
        assert!(all.numbers.is_sorted() && !all.numbers.is_empty());
        assert!(all.quota.is_none_or(|quota| quota >= 1 && quota < all.numbers.len()));
        let last = all.numbers[all.numbers.len() - 1];
        let pinned = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(last.into());
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            usable_cores()
        });
        assert_eq!(pinned.join().unwrap(), Cores { numbers: vec![last], quota: None });
    }
}
