//! What the system gives and what is given back: nothing is left over, small limits suffice or are named, heaps of any size
//! start fast, and waiting costs next to nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, child, is_child, job, processes, ring, spawn, text_of};
use shmem::{Cmp, ErrorKind, Result, Shared, SigRef, World};

fn count(path: &str) -> usize {
    std::fs::read_dir(path).map_or(0, |entries| entries.count())
}

/// Names that a directory holds of this library's making.
fn ours(directory: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.to_lowercase().contains("shmem"));
    names.sort_unstable();
    names
}

/// Everything that a process could leave: counted in a process of its own, since other tests of this one have
/// descriptors and threads, too.
#[test]
fn nothing_is_left_behind() {
    const TEST: &str = "nothing_is_left_behind";
    if is_child(TEST) {
        let several = |rounds: usize| {
            for round in 0..rounds {
                let n = 1 + round % 5;
                shmem::local(n, ring).unwrap();
                job(n, |builder| builder.heap(1 << 20), ring).into_iter().for_each(|pe| pe.unwrap());
                job(n, |builder| builder.set("SHMEM_ROUTE", "sim").unwrap().heap(1 << 20), ring)
                    .into_iter()
                    .for_each(|pe| pe.unwrap());
                let failed = shmem::local(n, |world| {
                    if world.me() == n - 1 {
                        return Err(ErrorKind::BadTeam("made up".into()).into());
                    }
                    world.barrier_all()
                });
                assert!(failed.is_err());
            }
        };
        several(5);
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("shmem-heap").count();
        let before = (count("/proc/self/fd"), mappings());
        several(25);
        assert_eq!((count("/proc/self/fd"), mappings()), before, "descriptors, mapped heaps");
        assert_eq!(before.1, 0, "heaps are still mapped");
        // A thread is listed for a moment after it was joined.
        let start = Instant::now();
        let idle = 2;
        while count("/proc/self/task") > idle && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        assert!(count("/proc/self/task") <= idle, "{} threads are left", count("/proc/self/task"));
        return;
    }
    let before = (ours("/dev/shm"), ours("/tmp"));
    for ended in spawn(TEST, 1, |_, command| command) {
        assert!(ended.success, "{}", ended.output);
    }
    assert_eq!((ours("/dev/shm"), ours("/tmp")), before);
}

/// Runs `test` again under a shell that first says `setup`, as `n` PEs that are threads of one process.
fn under_a_shell(test: &str, setup: &str) -> common::Ended {
    let exe = std::env::current_exe().unwrap();
    let script = format!("{setup}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(exe).args([test, "--exact", "--nocapture"]).env("SHMEM_TESTS_CHILD", test);
    common::gather(vec![common::start(&mut command)]).remove(0)
}

/// R1: the size of /dev/shm is of no concern.
#[test]
fn a_tiny_dev_shm_is_of_no_concern() {
    const TEST: &str = "a_tiny_dev_shm_is_of_no_concern";
    if is_child(TEST) {
        let results = job(
            2,
            |builder| builder.heap(64 << 20),
            |world| {
                let block = world.alloc::<u8>(48 << 20)?;
                block.sym().fill(3);
                world.ctx::<Shared>().put(block.sym(), &vec![5; 32 << 20], 1 - world.me())?;
                world.barrier_all()?;
                assert_eq!((block.sym().read(0)?, block.sym().read((48 << 20) - 1)?), (5, 3));
                Ok(())
            },
        );
        return results.into_iter().for_each(|result| result.unwrap());
    }
    let may = Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: this user may not make mount namespaces (unshare -m)");
        return;
    }
    for mount in ["mount -t tmpfs -o size=1m tmpfs /dev/shm", "mount -t tmpfs -o size=1m,ro tmpfs /dev/shm"] {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]).arg(exe);
        command.args([TEST, "--exact", "--nocapture"]).env("SHMEM_TESTS_CHILD", TEST);
        let ended = common::gather(vec![common::start(&mut command)]).remove(0);
        assert!(ended.success, "{mount}: {:?} {}", ended.code, ended.output);
    }
}

/// D06, R2: a limit of the address space is an error at start that names it; a heap of the default size fits under it.
#[test]
fn an_address_space_limit_is_respected() {
    const TEST: &str = "an_address_space_limit_is_respected";
    if is_child(TEST) {
        let result = World::builder().heap(2 << 30).build().map(|_| ());
        let text = text_of(result);
        assert!(text.contains("ulimit -v") && text.contains("reduce"), "{text}");
        let world = World::builder().build().unwrap();
        assert!(world.heap_size() >= 1 << 20 && world.heap_size() < 1 << 30);
        return ring(&world).unwrap();
    }
    let ended = under_a_shell(TEST, "ulimit -v 1000000");
    assert!(ended.success, "{}", ended.output);
}

/// D11: 64 descriptors are enough for a few PEs, and too few for many is an error that names the limit.
#[test]
fn few_descriptors_suffice_or_are_named() {
    const TEST: &str = "few_descriptors_suffice_or_are_named";
    if is_child(TEST) {
        for n in [1, 2, 5, 16] {
            shmem::local(n, ring).unwrap();
        }
        let many = shmem::local(100, ring);
        if let Err(error) = many {
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
        shmem::local(2, ring).unwrap();
        return;
    }
    let ended = under_a_shell(TEST, "ulimit -n 64");
    assert!(ended.success, "{}", ended.output);
}

#[test]
fn few_descriptors_suffice_for_processes() {
    const TEST: &str = "few_descriptors_suffice_for_processes";
    if is_child(TEST) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
        return child(|builder| builder.heap(1 << 20), ring);
    }
    for ended in spawn(TEST, 16, |_, command| command) {
        assert!(ended.success, "{}", ended.output);
    }
}

fn cpu_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
}

/// K07: PEs that wait for long cost next to nothing, and wake up soon after the signal. PE 0 waits for time to pass,
/// which is the point.
fn idle_waits(world: &World) -> Result<()> {
    let ctx = world.ctx::<Shared>();
    let block = world.alloc_zeroed::<u64>(world.n_pes() + 1)?;
    let (bell, times) = (block.sym().at(0)?, block.sym().slice(1..)?);
    world.barrier_all()?;
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    if world.me() == 0 {
        std::thread::sleep(Duration::from_secs(3));
        let sent = now();
        (1..world.n_pes()).try_for_each(|pe| ctx.signal(SigRef::set(bell, sent), pe))?;
    } else {
        let before = cpu_time();
        let sent = ctx.wait_until(bell, Cmp::Ne, 0)?;
        let woke = now();
        let used = cpu_time() - before;
        // As processes: 3 % of a core would be 90 ms.
        if world.config().rendezvous.is_some() {
            assert!(used < Duration::from_millis(300), "PE {} used {used:?} in 3 s of waiting", world.me());
        }
        ctx.p(times.at(world.me())?, woke.saturating_sub(sent), 0)?;
    }
    world.barrier_all()?;
    if world.me() == 0 {
        let late = times.to_vec();
        assert!(late.iter().all(|micros| *micros < 500_000), "woke after {late:?} µs");
        eprintln!("woke after {late:?} µs");
    }
    world.free(block)
}

#[test]
fn idle_waits_cost_little_and_end_soon() {
    processes("idle_waits_cost_little_and_end_soon", &[4], idle_waits);
}

/// As above, with a plain put, which rings no bell, and threads; the whole process sleeps meanwhile.
#[test]
fn a_plain_put_ends_a_long_wait_soon() {
    let late = shmem::local(3, |world| {
        let ctx = world.ctx::<Shared>();
        let block = world.alloc_zeroed::<u64>(1)?;
        if world.me() == 0 {
            std::thread::sleep(Duration::from_millis(500));
            let start = Instant::now();
            for pe in 1..3 {
                ctx.p(block.sym(), 1, pe)?;
            }
            world.barrier_all()?;
            return Ok(start.elapsed());
        }
        ctx.wait_until(block.sym(), Cmp::Eq, 1)?;
        world.barrier_all()?;
        Ok(Duration::ZERO)
    })
    .unwrap();
    assert!(late[0] < Duration::from_millis(500), "{late:?}");
}

/// A PE that is stopped delays the others and does not fail them.
#[test]
fn a_stopped_process_is_waited_for() {
    const TEST: &str = "a_stopped_process_is_waited_for";
    if is_child(TEST) {
        return child(
            |builder| builder.heap(1 << 20),
            |world| {
                if world.me() == 1 {
                    // Stops itself; a child of its own wakes it again.
                    let me = std::process::id();
                    let mut waker =
                        Command::new("sh").args(["-c", &format!("sleep 0.3; kill -CONT {me}")]).spawn().unwrap();
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP).unwrap();
                    waker.wait().unwrap();
                }
                (0..100).try_for_each(|_| ring(world))
            },
        );
    }
    for ended in spawn(TEST, 3, |_, command| command) {
        assert!(ended.success, "{}", ended.output);
    }
}

#[test]
fn impossible_heap_sizes_are_errors_at_start() {
    for n in [1, 2] {
        for size in [isize::MAX as usize, usize::MAX, 1 << 50] {
            for pe in job(n, |builder| builder.heap(size), |_| Ok(())) {
                let text = text_of(pe);
                for part in ["SHMEM_SYMMETRIC_SIZE", "reduce", &size.to_string()] {
                    assert!(text.contains(part), "{text}");
                }
            }
        }
    }
    for pe in job(2, |builder| builder.heap(0), |_| Ok(())) {
        assert_kind!(pe, ErrorKind::BadSetting { name, value, .. } if name == "SHMEM_SYMMETRIC_SIZE" && value == "0");
    }
    for value in ["0", "-1", "4Q", "", "1e9", "nan", "99999999999999999999"] {
        let error = World::builder().set("SHMEM_SYMMETRIC_SIZE", value).map(|_| ());
        assert!(text_of(error).contains("512M"), "the text shows the form");
    }
    for (value, bytes) in [("64k", 64 << 10), ("1.5M", 3 << 19), ("1", 4096)] {
        let world = World::builder().set("SHMEM_SYMMETRIC_SIZE", value).unwrap().build().unwrap();
        assert_eq!(world.heap_size(), bytes);
    }
}

fn available_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

/// D07: the heaps of all PEs together are planned below half of what the host has to give.
#[test]
fn default_heaps_share_the_host() {
    for n in [1, 2, 16, 32] {
        let sizes = shmem::local(n, |world| Ok(world.heap_size())).unwrap();
        assert!(sizes.iter().all(|size| *size == sizes[0]));
        assert!(sizes[0] * n < available_memory() / 2 || sizes[0] == 1 << 20, "{n} heaps of {}", sizes[0]);
    }
}

/// D10: start-up does not grow with the heap.
#[test]
fn large_heaps_start_as_fast_as_small_ones() {
    if available_memory() < 9 << 30 {
        eprintln!("skipped: two heaps of 4 GiB do not fit");
        return;
    }
    let time = |bytes: usize| {
        let start = Instant::now();
        job(2, |builder| builder.heap(bytes), |_| Ok(())).into_iter().for_each(|pe| pe.unwrap());
        start.elapsed()
    };
    time(1 << 20);
    let (small, large) = (time(1 << 20), time(4 << 30));
    assert!(large < small + Duration::from_millis(500), "{small:?} for 1 MiB, {large:?} for 4 GiB");
}
