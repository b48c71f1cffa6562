//! Whether the kernel killed a PE because memory was short: it counts such kills, and a SIGKILL while the count rose is
//! taken for one.
//!
//! The count of the launcher's own control group is taken, which the PEs are in as well; where there is none, the host's,
//! which may have risen for a stranger.

use std::path::{Path, PathBuf};

use super::family::Status;

/// Counts the kernel's kills that are not yet explained.
pub(super) struct Shortage {
    file: PathBuf,
    explained: u64,
}

impl Shortage {
    pub(super) fn new() -> Shortage {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let file = counts(&membership).into_iter().find(|file| kills(file).is_some());
        let file = file.unwrap_or_else(|| "/proc/vmstat".into());
        let explained = kills(&file).unwrap_or(0);
        Shortage { file, explained }
    }

    /// Whether this end of a PE, or of its wrapper, is one of the kernel's kills. Each kill explains one end.
    pub(super) fn explains(&mut self, status: Status) -> bool {
        let killed = status.code() == Status::Killed(9).code();
        let explains = killed && kills(&self.file).is_some_and(|kills| kills > self.explained);
        self.explained += u64::from(explains);
        explains
    }
}

/// Where the control groups of this process may count, those of version 2 first. A container may see only its own part
/// of the tree, under the path of the whole.
fn counts(membership: &str) -> Vec<PathBuf> {
    let group = |mark: &str| membership.lines().find_map(|line| Some(line.split_once(mark)?.1.trim_start_matches('/')));
    let events = group("0::").map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.events"));
    let own = group(":memory:");
    let controls = own.into_iter().flat_map(|group| [group, ""]);
    let controls = controls.map(|group| Path::new("/sys/fs/cgroup/memory").join(group).join("memory.oom_control"));
    events.into_iter().chain(controls).collect()
}

fn kills(file: &Path) -> Option<u64> {
    count(&std::fs::read_to_string(file).ok()?)
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_both_files() {
        assert_eq!(count("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count("pgfault 5\noom_kill 17\nnuma_hit 1\n"), Some(17));
        assert_eq!(count("oom_kill many\noom_killed 3\n"), None);
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"), Some(4));
        let text = |membership| counts(membership).iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
        assert_eq!(text("0::/user.slice/job 7\n"), ["/sys/fs/cgroup/user.slice/job 7/memory.events"]);
        let both = text("4:memory:/a/b\n1:cpu:/\n0::/\n");
        let controls = ["/sys/fs/cgroup/memory/a/b/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"];
        assert_eq!(both, ["/sys/fs/cgroup/memory.events", controls[0], controls[1]]);
        assert!(text("garbage\n5:memoryx:/a\n").is_empty());
    }

    #[test]
    fn each_kill_explains_one_end() {
        let file = std::env::temp_dir().join(format!("shmem-shortage-{}", std::process::id()));
        std::fs::write(&file, "oom_kill 6\n").unwrap();
        let mut shortage = Shortage { file: file.clone(), explained: 4 };
        assert!(!shortage.explains(Status::Exited(1)) && !shortage.explains(Status::Killed(15)));
        assert!(shortage.explains(Status::Killed(9)) && shortage.explains(Status::Exited(137)));
        assert!(!shortage.explains(Status::Killed(9)));
        std::fs::remove_file(&file).unwrap();
        assert!(!shortage.explains(Status::Killed(9)));
    }

    #[test]
    fn this_host_counts() {
        assert!(kills(&Shortage::new().file).is_some());
    }
}
