//! What every job needs, RDMA or not.

use super::facts::{Facts, Limit};
use super::{Finding, Verdict, size};

/// In the order in which they are read best.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    [
        settings(facts),
        vec![memory(facts)],
        promises(facts),
        vec![address_space(facts), cores(facts), files(facts), memfd(facts), huge_pages(facts)],
        container(facts),
    ]
    .concat()
}

fn settings(facts: &Facts) -> Vec<Finding> {
    let set = if facts.settings.is_empty() { "all at their defaults".to_owned() } else { facts.settings.join(" ") };
    let unknown = facts.warnings.iter().map(|warning| Finding::new(Verdict::Look, "settings", warning));
    [Finding::new(Verdict::Ok, "settings", set)].into_iter().chain(unknown).collect()
}

/// By the words of start-up itself.
fn memory(facts: &Facts) -> Finding {
    let (n_pes, memory) = (facts.n_pes, &facts.memory);
    match &facts.heaps {
        Ok(heaps) => {
            let (user, all) = (size(heaps.user), size(heaps.whole.saturating_mul(n_pes as u64)));
            let available = if memory.available == u64::MAX { "unknown".to_owned() } else { size(memory.available) };
            let found = format!("{n_pes} PEs: heaps of {user}, {all} in all; {} leaves {available}", memory.limit);
            Finding::new(Verdict::Ok, "memory", found)
        }
        Err(error) => Finding::new(Verdict::Fail, "memory", error),
    }
}

fn promises(facts: &Facts) -> Vec<Finding> {
    let need = facts.heaps.as_ref().map_or(0, |heaps| heaps.whole.saturating_mul(facts.n_pes as u64));
    let row = |left: u64| {
        let found = format!("vm.overcommit_memory=2: {} can still be promised, heaps need {}", size(left), size(need));
        if need <= left {
            return Finding::new(Verdict::Ok, "overcommit", found);
        }
        let fix = format!("sysctl vm.overcommit_memory=0, or SHMEM_SYMMETRIC_SIZE={}", left / facts.n_pes as u64);
        Finding::new(Verdict::Fail, "overcommit", found).fix(fix)
    };
    facts.promises.map(row).into_iter().collect()
}

/// Whether it is enough is said with the memory.
fn address_space(facts: &Facts) -> Finding {
    let found = facts.address_space.soft.map_or("unlimited".to_owned(), |limit| format!("{} (ulimit -v)", size(limit)));
    Finding::new(Verdict::Ok, "address space", found)
}

fn cores(facts: &Facts) -> Finding {
    let (n_pes, cores) = (facts.n_pes, facts.cores.numbers.len());
    let usable = facts.cores.quota.unwrap_or(cores);
    let quota =
        facts.cores.quota.map_or(String::new(), |quota| format!(", of which the control group pays for {quota}"));
    let found = format!("{cores} cores{quota}, for {n_pes} PEs");
    if n_pes <= usable {
        return Finding::new(Verdict::Ok, "cores", found);
    }
    Finding::new(Verdict::Look, "cores", format!("{found}: they take turns, and waits sleep rather than spin"))
        .fix(format!("at most {usable} PEs on this host, or more cores (affinity, cpu.max of the control group)"))
}

/// The launcher raises the soft limit by itself.
fn files(facts: &Facts) -> Finding {
    let Limit { soft, hard } = facts.files;
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let need = facts.files_needed;
    let found = format!("{} (hard: {}); shmemrun needs {need} for {} PEs", text(soft), text(hard), facts.n_pes);
    if hard.is_none_or(|hard| hard >= need) {
        return Finding::new(Verdict::Ok, "open files", found);
    }
    Finding::new(Verdict::Fail, "open files", found).fix(format!("ulimit -n {need}, as root or in limits.conf"))
}

fn memfd(facts: &Facts) -> Finding {
    match &facts.memfd {
        Ok(()) => Finding::new(Verdict::Ok, "memfd", "heaps can be made; /dev/shm is not used"),
        Err(why) => Finding::new(Verdict::Fail, "memfd", format!("heaps cannot be made: {why}"))
            .fix("let the container's seccomp profile allow memfd_create"),
    }
}

fn huge_pages(facts: &Facts) -> Finding {
    let huge = &facts.huge;
    let transparent = huge.transparent.as_deref().unwrap_or("not there");
    let found =
        format!("{} of {} reserved pages of 2 MiB free; shmem_enabled: {transparent}", huge.free, huge.reserved);
    Finding::new(Verdict::Ok, "huge pages", found)
}

fn container(facts: &Facts) -> Vec<Finding> {
    let row = || Finding::new(Verdict::Ok, "container", "this is one; the limits here are its own");
    facts.seen.contained.then(row).into_iter().collect()
}
