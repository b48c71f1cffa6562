//! A PE dies: the others learn who and why at once, the launcher says who was first and what all were doing, and the
//! status is right.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use shmem::{Cmp, Error, ErrorKind, Private, Result, World};

/// The variable that makes [`pe_of_a_faulty_job`] a PE: what it is to do, in words.
const TASK: &str = "TEST_FAULT";

/// Not a test of its own: a PE of the jobs below.
#[test]
fn pe_of_a_faulty_job() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let victim = |at: usize| words[at].parse() == Ok(me());
    match words[0] {
        "die" => die_together(words[1], words[2], victim(3)),
        "init" => {
            if victim(2) {
                fall(words[1]);
            }
            say_loss(&World::init().unwrap_err());
            std::process::exit(9)
        }
        "between" => {
            drop(World::init().unwrap());
            if victim(2) {
                fall(words[1]);
            }
            say_loss(&World::init().unwrap_err());
            std::process::exit(9)
        }
        "finalise" => {
            let world = World::init().unwrap();
            world.barrier_all().unwrap();
            if victim(2) {
                // The others come to the end of theirs meanwhile, or have not yet.
                thread::sleep(Duration::from_millis(20));
                fall(words[1]);
            }
        }
        "leave" => {
            let world = World::init().unwrap().leak();
            for _ in 0..20 {
                world.barrier_all().unwrap();
            }
        }
        "quit" => {
            let world = World::init().unwrap();
            world.barrier_all().unwrap();
            if victim(1) {
                world.leak();
                return;
            }
            thread::sleep(Duration::from_millis(300));
            world.leak();
        }
        "rest" => {
            let world = World::init().unwrap();
            world.barrier_all().unwrap();
            if victim(2) {
                fall("segv");
            }
            say_loss(&world.barrier_all().unwrap_err());
            thread::sleep(Duration::from_secs_f64(words[1].parse().unwrap()));
            println!("rested");
        }
        "late" => late(victim(1)),
        "stuck" => get_stuck(),
        "starve" => starve(victim(1)),
        "end" => end_job(words[1], words[2].parse().unwrap(), victim(3)),
        "threads" => {
            let wait = |world: &World| {
                world.barrier_all()?;
                if victim(1) && world.me() == 1 {
                    world.global_exit(42);
                }
                world.barrier_all()
            };
            shmem::local(3, wait).unwrap();
        }
        "worlds" => {
            for _ in 0..10 {
                let world = World::init().unwrap();
                world.barrier_all().unwrap();
            }
            println!("over");
            thread::sleep(Duration::from_secs(1000));
        }
        other => panic!("no task {other}"),
    }
}

pub(super) fn me() -> usize {
    std::env::var("SHMEM_PE").unwrap().parse().unwrap()
}

/// A job of this binary; `task` as [`pe_of_a_faulty_job`] understands it.
pub(super) fn job(n: usize, options: &[&str], task: &str) -> Command {
    let (n, exe) = (n.to_string(), std::env::current_exe().unwrap());
    let limit: &[&str] = if options.contains(&"--timeout") { &[] } else { &["--timeout", "50"] };
    let mut command = shmemrun(&[&["-n", &n], limit, options].concat());
    command.arg(exe).args(["--exact", "faults::pe_of_a_faulty_job", "--nocapture"]).env(TASK, task);
    // Writing a backtrace takes longer than everything else.
    command.env("SHMEM_SYMMETRIC_SIZE", "1M").env("RUST_BACKTRACE", "0");
    command
}

fn fall(how: &str) -> ! {
    // Rust's own handler of SIGSEGV lets the first one pass, if it comes from outside.
    let send = |signal| {
        loop {
            kill_process(rustix::process::getpid(), signal).unwrap();
        }
    };
    match how {
        "kill" => send(Signal::KILL),
        "segv" => send(Signal::SEGV),
        "abort" => std::process::abort(),
        status => std::process::exit(status.parse().unwrap()),
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn say_loss(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::PeerLost { .. }), "{error}");
    println!("told {}: {error}", me());
}

/// The victim says when it dies, and does; the others wait for it in a call.
fn die_together(place: &str, how: &str, victim: bool) {
    let world = World::init().unwrap();
    let result = (|| -> Result<()> {
        let ctx = world.ctx::<Private>();
        let (time, lock, flag) =
            (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        if victim {
            if place == "lock" {
                ctx.set_lock(lock.sym())?;
            }
            world.barrier_all()?;
            thread::sleep(Duration::from_millis(20));
            for pe in 0..world.n_pes() {
                ctx.p(time.sym(), now(), pe)?;
            }
            ctx.quiet()?;
            match how {
                "error" => return Err(Error::other("something of its own")),
                "panic" => panic!("the victim panics"),
                how => fall(how),
            }
        }
        world.barrier_all()?;
        let error = match place {
            "barrier" => world.barrier_all(),
            "wait" => ctx.wait_until(flag.sym(), Cmp::Eq, 1).map(|_| ()),
            "alloc" => world.alloc::<u64>(10).map(|_| ()),
            "lock" => ctx.set_lock(lock.sym()),
            "put" => loop {
                let passed = ctx.p(flag.sym(), 0, 0).and_then(|()| ctx.quiet());
                if passed.is_err() {
                    break passed;
                }
            },
            other => panic!("no place {other}"),
        }
        .unwrap_err();
        let took = now() - time.sym().read(0)?;
        say_loss(&error);
        println!("took {}", took / 1_000_000);
        Err(error)
    })();
    if result.is_err() {
        world.abandon();
    }
    drop(world);
    // A survivor has done all it can.
    std::process::exit(if victim { 1 } else { 0 })
}

/// The victim fails first, and is the last to exit.
fn late(victim: bool) {
    let world = World::init().unwrap();
    world.barrier_all().unwrap();
    if victim {
        world.abandon();
        thread::sleep(Duration::from_millis(400));
        std::process::exit(7);
    }
    say_loss(&world.barrier_all().unwrap_err());
    std::process::exit(5)
}

/// All PEs are in a barrier, for ever, except PE 2, which is in a loop outside the library.
fn get_stuck() {
    let world = World::init().unwrap();
    world.barrier_all().unwrap();
    while me() == 2 {
        std::hint::spin_loop();
    }
    say_loss(&world.barrier_all().unwrap_err());
}

/// The victim takes more memory than the job's control group has.
fn starve(victim: bool) {
    let world = World::init().unwrap();
    world.barrier_all().unwrap();
    if victim {
        println!("{}", vec![1u8; 512 << 20].len());
    }
    say_loss(&world.barrier_all().unwrap_err());
}

fn end_job(place: &str, status: u8, caller: bool) {
    let world = World::init().unwrap();
    let flag = world.alloc_zeroed::<u64>(1).unwrap();
    world.barrier_all().unwrap();
    if caller {
        thread::sleep(Duration::from_millis(50));
        world.global_exit(status);
    }
    let _ = match place {
        "barrier" => world.barrier_all(),
        "wait" => world.ctx::<Private>().wait_until(flag.sym(), Cmp::Eq, 1).map(|_| ()),
        "sleep" => loop {
            thread::sleep(Duration::from_secs(1000));
        },
        "busy" => loop {
            std::hint::spin_loop();
        },
        other => panic!("no place {other}"),
    };
}

/// What survivors have said: the loss that each saw, and the longest time that one took.
fn told(outcome: &Outcome) -> (Vec<String>, u64) {
    let text = outcome.text();
    let after = |mark: &str| text.lines().filter_map(|line| Some(line.split_once(mark)?.1.to_owned())).collect();
    let (mut losses, times): (Vec<String>, Vec<String>) = (after("told "), after("took "));
    losses.sort();
    (losses, times.iter().map(|time| time.parse::<u64>().unwrap()).max().unwrap_or(0))
}

#[test]
fn every_death_is_told_to_those_who_wait() {
    let hows = [
        ("kill", "it was killed by signal 9 (SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
        ("segv", "it was killed by signal 11 (SIGSEGV)", 139, "was killed by signal 11 (SIGSEGV)"),
        ("abort", "it was killed by signal 6 (SIGABRT)", 134, "was killed by signal 6 (SIGABRT)"),
        ("3", "it exited with status 3 without ending its world", 3, "exited with status 3"),
        ("0", "it exited with status 0 without ending its world", 0, ""),
        ("error", "its function returned an error", 1, "exited with status 1: its function returned an error"),
        ("panic", "it panicked", 101, "exited with status 101: it panicked"),
    ];
    for (i, place) in ["barrier", "wait", "alloc", "lock", "put"].into_iter().enumerate() {
        for (j, (how, why, status, line)) in hows.into_iter().enumerate() {
            let n = [2, 3, 5][j % 3];
            let victim = (i + j) % n;
            let mut command = job(n, &["--on-failure", "continue"], &format!("die {place} {how} {victim}"));
            let outcome = run(&mut command);
            let case = format!("{place} {how}, PE {victim} of {n}: {}{}", outcome.text(), outcome.err);
            let others = (0..n).filter(|pe| *pe != victim);
            let expected: Vec<String> = others.map(|pe| format!("{pe}: PE {victim} is lost: {why}")).collect();
            let (losses, took) = told(&outcome);
            assert_eq!(losses, expected, "{case}");
            assert!(took < 10_000, "{took} ms; {case}");
            assert_eq!(outcome.code, Some(status), "{case}");
            let summary = format!("shmemrun: PE {victim} {line}\n");
            assert_eq!(outcome.err.contains(&summary), status != 0, "{case}");
        }
    }
}

#[test]
fn a_death_in_start_up_is_told_to_those_who_come() {
    for task in ["init", "between"] {
        for (victim, how, why, status) in [
            (0, "kill", "it was killed by signal 9 (SIGKILL) without joining", 137),
            (1, "4", "it exited with status 4 without joining", 4),
            (2, "0", "it exited with status 0 without joining", 9),
        ] {
            let outcome = run(&mut job(3, &["--on-failure", "continue"], &format!("{task} {how} {victim}")));
            let expected = [0, 1, 2].into_iter().filter(|pe| *pe != victim);
            let expected: Vec<String> = expected.map(|pe| format!("{pe}: PE {victim} is lost: {why}")).collect();
            assert_eq!(told(&outcome).0, expected, "{task} {how}: {}{}", outcome.text(), outcome.err);
            assert_eq!(outcome.code, Some(status), "{task} {how}: {}", outcome.err);
        }
    }
}

#[test]
fn a_death_at_any_moment_ends_the_job() {
    // The PEs do not end by themselves, so their numbers stay theirs.
    for round in 0..16 {
        let mut launcher = job(3, &[], "worlds").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let err = collect(launcher.stderr.take().unwrap());
        let since = Instant::now();
        // The guard is the first child.
        while children(launcher.id()).len() < 4 {
            assert!(since.elapsed() < SOON);
        }
        let pes = children(launcher.id())[1..].to_vec();
        thread::sleep(Duration::from_millis(3 * round));
        kill_process(Pid::from_raw(pes[round as usize % 3]).unwrap(), Signal::KILL).unwrap();
        let status = wait(&mut launcher, BOUND);
        let err = String::from_utf8(err.recv_timeout(BOUND).unwrap()).unwrap();
        assert_eq!(status.code(), Some(137), "{err}");
        all_gone(&pes.into_iter().collect());
    }
}

#[test]
fn a_death_in_finalise_leaves_the_others_their_end() {
    for victim in [0, 1, 2] {
        let outcome = run(&mut job(3, &["--on-failure", "continue"], &format!("finalise kill {victim}")));
        assert_eq!(outcome.code, Some(137), "{}", outcome.err);
        let line = format!("shmemrun: PE {victim} was killed by signal 9 (SIGKILL)\n");
        assert!(outcome.err.contains(&line), "{}", outcome.err);
    }
}

#[test]
fn pes_that_leave_with_status_0_after_their_last_barrier_harm_nobody() {
    for n in [2, 5, 8] {
        for _ in 0..5 {
            let outcome = run(&mut job(n, &[], "leave"));
            assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{}", outcome.text());
        }
    }
    // Also not if the others have much to do by themselves.
    let outcome = run(&mut job(3, &[], "quit 1"));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{}", outcome.text());
}

#[test]
fn who_failed_first_is_the_cause_whoever_is_gone_first() {
    let outcome = run(&mut job(3, &["--on-failure", "continue"], "late 1"));
    assert_eq!(outcome.code, Some(7), "{}", outcome.err);
    assert!(
        outcome.err.contains("shmemrun: PE 1 exited with status 7: its function returned an error\n"),
        "{}",
        outcome.err
    );
    // Here it is ended before it has exited by itself.
    let outcome = run(&mut job(3, &[], "late 1"));
    assert_eq!(outcome.code, Some(5), "{}", outcome.err);
    assert!(
        outcome.err.contains("shmemrun: PE 1 is lost: its function returned an error; then PE "),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains(" exited with status 5; the other PEs were ended\n"), "{}", outcome.err);
}

#[test]
fn survivors_go_on_if_they_are_let() {
    let outcome = run(&mut job(4, &["--on-failure", "continue"], "rest 0.7 2"));
    assert_eq!((outcome.code, outcome.text().matches("rested").count()), (Some(139), 3), "{}", outcome.err);
    let line = "shmemrun: PE 2 was killed by signal 11 (SIGSEGV); the others go on (--on-failure continue)\n";
    assert!(outcome.err.contains(line), "{}", outcome.err);
    assert!(outcome.err.contains("shmemrun: PE 2 was killed by signal 11 (SIGSEGV)\n"), "{}", outcome.err);
    let since = Instant::now();
    let outcome = run(&mut job(4, &[], "rest 1000 2"));
    assert_eq!((outcome.code, outcome.text().matches("rested").count()), (Some(139), 0), "{}", outcome.err);
    let line = "shmemrun: PE 2 was killed by signal 11 (SIGSEGV); the other PEs were ended\n";
    assert!(outcome.err.contains(line) && since.elapsed() < SOON, "{}", outcome.err);
}

#[test]
fn a_wrapper_passes_on_how_its_program_died() {
    let exe = std::env::current_exe().unwrap();
    let script_ = format!("{} --exact faults::pe_of_a_faulty_job --nocapture; exit $?", exe.display());
    let mut command = script(3, &["--on-failure", "continue"], &script_);
    let outcome = run(command.env(TASK, "die barrier segv 2").env("SHMEM_SYMMETRIC_SIZE", "1M"));
    assert_eq!(outcome.code, Some(139), "{}", outcome.err);
    let told: Vec<String> = told(&outcome).0;
    assert_eq!(told.len(), 2, "{}{}", outcome.text(), outcome.err);
    assert!(told.iter().all(|line| line.contains("PE 2 is lost: it")), "{told:?}");
}

#[test]
fn a_wrapper_that_goes_on_hides_nothing() {
    let exe = std::env::current_exe().unwrap();
    let program = format!("{} --exact faults::pe_of_a_faulty_job --nocapture", exe.display());
    for (how, status) in [("kill", 137), ("0", 0)] {
        let script_ = format!("[ $SHMEM_PE = 1 ] || exec {program}; {program}; s=$?; sleep 6; exit $s");
        let mut command = script(3, &["--on-failure", "continue"], &script_);
        let outcome = run(command.env(TASK, format!("die barrier {how} 1")).env("SHMEM_SYMMETRIC_SIZE", "1M"));
        let (losses, took) = told(&outcome);
        assert_eq!(losses, [0, 2].map(|pe| format!("{pe}: PE 1 is lost: its process ended")), "{}", outcome.err);
        assert!(took < 5000, "{took} ms");
        assert_eq!(outcome.code, Some(status), "{}", outcome.err);
    }
}

#[test]
fn one_pe_ends_the_job_wherever_the_others_are() {
    for (i, place) in ["barrier", "wait", "sleep", "busy"].into_iter().enumerate() {
        for (j, caller) in [0, 3].into_iter().enumerate() {
            let status = if (i + j) % 2 == 0 { 42 } else { 0 };
            for options in [&[][..], &["--on-failure", "continue"]] {
                let dir = scratch(&format!("exit-{i}-{j}"));
                let mut command = job(4, options, &format!("end {place} {status} {caller}"));
                let since = Instant::now();
                let outcome = run(command.current_dir(&dir).env_remove("SHMEM_FLIGHT_FILE"));
                assert_eq!(outcome.code, Some(status), "{place}, PE {caller}: {}", outcome.err);
                assert!(since.elapsed() < SOON);
                assert!(!outcome.err.contains("shmemrun:"), "{}", outcome.err);
                assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
                fs::remove_dir_all(dir).unwrap();
            }
        }
    }
}

#[test]
fn a_pe_that_the_kernel_kills_for_its_memory_is_said_to_be() {
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("shmem-test-{}", std::process::id()));
    let limit = || fs::write(group.join("memory.limit_in_bytes"), "134217728");
    if fs::create_dir(&group).and_then(|()| limit()).is_err() {
        eprintln!("skipped: no control groups here that a test can make");
        return;
    }
    let program =
        format!("{} --exact faults::pe_of_a_faulty_job --nocapture", std::env::current_exe().unwrap().display());
    let enters =
        format!("echo $$ >{}/cgroup.procs && exec {SHMEMRUN} -n 2 --on-failure continue {program}", group.display());
    let mut command = Command::new("sh");
    command.args(["-c", &enters]).envs([(TASK, "starve 1"), ("SHMEM_SYMMETRIC_SIZE", "1M")]).stdin(Stdio::null());
    let outcome = run(command.env("SHMEM_FLIGHT_FILE", "off"));
    fs::remove_dir(&group).unwrap();
    let why = "the kernel killed it because memory was short";
    assert_eq!(told(&outcome).0, [format!("0: PE 1 is lost: {why}")], "{}{}", outcome.text(), outcome.err);
    assert_eq!(outcome.code, Some(137));
    assert!(
        outcome.err.contains(&format!("shmemrun: PE 1 was killed by signal 9 (SIGKILL): {why}\n")),
        "{}",
        outcome.err
    );
}

#[test]
fn a_pe_that_is_a_thread_ends_all_of_them() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "faults::pe_of_a_faulty_job"]).env(TASK, "threads 0").env("SHMEM_PE", "0");
    assert_eq!(run(alone.stdin(Stdio::null())).code, Some(42));
    // The world that ends is none of the launcher's, but its PE fails.
    let outcome = run(&mut job(2, &["--on-failure", "continue"], "threads 1"));
    assert_eq!(outcome.code, Some(42), "{}", outcome.err);
}

#[test]
fn the_launcher_gives_up_what_belongs_to_worlds_that_are_over() {
    let mut launcher = job(3, &[], "worlds").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        assert!(lines.any(|line| line.unwrap().ends_with("over")));
    }
    let maps = format!("/proc/{}/maps", launcher.id());
    let since = Instant::now();
    while fs::read_to_string(&maps).unwrap().contains("shmem-heap") {
        assert!(since.elapsed() < SOON, "a heap is still mapped");
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    assert_eq!(wait(&mut launcher, SOON).code(), Some(143));
}
