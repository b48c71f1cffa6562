//! C04, C06, M03: every way to die, in every call, of every PE, at random moments: the others are told at once, whom and
//! why, and go on without it.

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use shmem::{ErrorKind, Result, Shared, World};
use shmem_collectives::Coll;
use shmem_collectives::op::Sum;

use super::common::{Random, child_builder, gather, is_child, start};
use super::*;

const CALLS: [&str; 8] = ["barrier", "wait", "put", "all-reduce", "lock", "alloc", "init", "finalise"];
const DEATHS: [&str; 5] = ["kill", "segv", "exit 0", "exit 3", "panic"];

/// Dies in the way `death` says.
fn die(death: &str) -> ! {
    let signal = match death {
        "kill" => Signal::KILL,
        "segv" => Signal::SEGV,
        "exit 0" => std::process::exit(0),
        "exit 3" => std::process::exit(3),
        _ => std::panic::resume_unwind(Box::new("made up")),
    };
    // The first SIGSEGV only takes the standard library's handler away.
    loop {
        let _ = kill_process(getpid(), signal);
    }
}

/// A PE of the matrix: what it was told is in `FAULT`: call, death, the PE that dies, the moment in microseconds.
fn pe_of_the_matrix() {
    let told = std::env::var("FAULT").unwrap();
    let told: Vec<&str> = told.split(',').collect();
    let (call, death, victim, moment) = (told[0], told[1], told[2].parse().unwrap(), told[3].parse().unwrap());
    let setting = |name: &str| std::env::var(name).unwrap();
    let me: usize = setting("SHMEM_PE").parse().unwrap();
    let dying = |stamp: &dyn Fn()| {
        std::thread::sleep(Duration::from_micros(moment));
        stamp();
        die(death)
    };
    let by_itself = death == "panic";
    let start = |limit: &str| {
        let builder = child_builder().set("SHMEM_INIT_TIMEOUT", limit).unwrap();
        match std::env::var("FAULT_HOSTS") {
            Ok(hosts) => {
                builder.set("SHMEM_ROUTE", "sim").unwrap().set("SHMEM_HOSTS", &hosts).unwrap().heap(8 << 20).build()
            }
            Err(_) => builder.build(),
        }
    };
    if call == "init" {
        return std::thread::scope(|threads| {
            if me == victim && !by_itself {
                threads.spawn(|| dying(&|| ()));
            }
            // Where PE 0 dies before anybody has met it, nobody can tell the others.
            match start("1") {
                Ok(_world) if me == victim && by_itself => die(death),
                // It may have died after the others were through.
                Ok(world) => drop(until_lost(|| world.barrier_all())),
                Err(error) => println!("start-up: {error}"),
            }
        });
    }
    let world = start("60").unwrap();
    if call == "finalise" {
        drop(world);
        if me == victim {
            dying(&|| ());
        }
        return;
    }
    let words = world.alloc_zeroed::<u64>(4).unwrap();
    world.barrier_all().unwrap();
    let stamp = || {
        let died = words.sym().at(3).unwrap();
        (0..world.n_pes()).for_each(|pe| world.ctx::<Shared>().p(died, nanoseconds(), pe).unwrap());
        world.ctx::<Shared>().quiet().unwrap();
    };
    std::thread::scope(|threads| {
        if me == victim && !by_itself {
            threads.spawn(|| dying(&stamp));
        }
        let (begun, doomed) = (Instant::now(), me == victim && by_itself);
        let error = until_lost(|| {
            if doomed && begun.elapsed() > Duration::from_micros(moment) {
                stamp();
                die(death);
            }
            step(&world, call, words.sym(), doomed)
        });
        let late = Duration::from_nanos(nanoseconds() - words.sym().read(3).unwrap());
        println!("after {} ms: {error}", late.as_millis());
        assert!(is_lost(&error, victim), "{error}");
    });
    assert_eq!(works(&world).unwrap(), without(world.n_pes(), victim));
    println!("goes on");
}

/// One step of what a PE does again and again.
fn step(world: &World, call: &str, words: shmem::SymSlice<'_, u64>, doomed: bool) -> Result<()> {
    let (ctx, n) = (world.ctx::<Shared>(), world.n_pes());
    match call {
        "barrier" => world.barrier_all(),
        // Whoever shall die of itself does not wait.
        "wait" | "lock" if doomed => {
            std::thread::yield_now();
            Ok(())
        }
        "wait" => ctx.wait(words, |value| value == 77).map(drop),
        "put" => {
            (0..n).try_for_each(|pe| ctx.p(words.at(1)?, 5, pe))?;
            ctx.quiet()
        }
        "all-reduce" => {
            let team = world.team();
            let coll = Coll::new(world, &team)?;
            (0..20).try_for_each(|_| coll.all_reduce(words.slice(..1)?, words.slice(..1)?, Sum))
        }
        "lock" => {
            match ctx.set_lock(words.at(2)?) {
                // Another has broken it, who has heard of the loss before: on another host.
                Err(error) if matches!(error.kind(), ErrorKind::Lock { .. }) => {}
                taken => taken?,
            }
            // Held by one that waits for what does not come.
            ctx.wait(words, |value| value == 77).map(drop)
        }
        "alloc" => {
            let block = world.alloc::<u64>(10)?;
            world.free(block)
        }
        _ => unreachable!("{call}"),
    }
}

/// `hosts` are those that the PEs are on, with a simulated network between them, if there are several.
fn run(random: &mut Random, call: &str, death: &str, victim: usize, n: usize, hosts: Option<&str>) -> u64 {
    let moment = random.next() % 3000;
    let fault = format!("{call},{death},{victim},{moment}");
    let ended = super::common::spawn(TEST, n, |_, command| {
        command.envs(hosts.map(|hosts| ("FAULT_HOSTS", hosts))).env("FAULT", &fault)
    });
    let mut latest = 0;
    for (pe, ended) in ended.iter().enumerate() {
        let all = || ended.output.clone();
        if pe == victim {
            let right = match death {
                "exit 0" => ended.code == Some(0),
                "exit 3" => ended.code == Some(3),
                "panic" => call == "init" || ended.code.is_some_and(|code| code != 0),
                _ => ended.code.is_none() || call == "init",
            };
            assert!(right, "{fault} of {n}: the victim ended with {:?}: {}", ended.code, all());
            continue;
        }
        assert!(ended.success, "{fault}, PE {pe} of {n}: {}", all());
        match call {
            "init" | "finalise" => {}
            _ => {
                assert!(ended.output.contains("goes on"), "{fault}, PE {pe} of {n}: {}", all());
                let ms = ended.output.split_once("after ").and_then(|(_, rest)| rest.split_once(" ms: "));
                let ms: u64 = ms.unwrap().0.parse().unwrap();
                assert!(u128::from(ms) < PROMISE.as_millis(), "{fault}, PE {pe} of {n}: told after {ms} ms");
                latest = latest.max(ms);
            }
        }
    }
    latest
}

const TEST: &str = "matrix::a_death_is_told_to_all_who_then_go_on";

/// Rounds of the whole matrix of 400 runs: `FAULT_ROUNDS` for long runs.
fn rounds() -> u64 {
    std::env::var("FAULT_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

#[test]
fn a_death_is_told_to_all_who_then_go_on() {
    if is_child(TEST) {
        return pe_of_the_matrix();
    }
    let mut random = Random(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let (mut runs, mut latest) = (0, 0);
    for _ in 0..rounds() {
        for n in [2, 3, 5] {
            for call in CALLS {
                for (death, victim) in DEATHS.into_iter().flat_map(|death| (0..n).map(move |pe| (death, pe))) {
                    latest = latest.max(run(&mut random, call, death, victim, n, None));
                    runs += 1;
                }
            }
        }
    }
    println!("{runs} runs; the slowest report came after {latest} ms");
}

/// The same across hosts. Who is on another finds out by the network.
#[test]
fn a_death_is_told_on_all_hosts() {
    let mut random = Random(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    for (n, hosts) in [(3, "2"), (3, "3"), (5, "2"), (8, "3")] {
        for call in CALLS {
            let death = DEATHS[random.next() as usize % DEATHS.len()];
            let victim = random.next() as usize % n;
            let latest = run(&mut random, call, death, victim, n, Some(hosts));
            println!("{death} of PE {victim} of {n} on {hosts} hosts in {call}: told after {latest} ms");
        }
    }
}

/// C03 of the single PE: one that is stopped for a while holds the others up, and nothing else.
#[test]
fn a_pe_that_is_stopped_for_a_while_harms_nobody() {
    const TEST: &str = "matrix::a_pe_that_is_stopped_for_a_while_harms_nobody";
    if is_child(TEST) {
        let world = child_builder().build().unwrap();
        let words = world.alloc_zeroed::<u64>(4).unwrap();
        let call = std::env::var("FAULT").unwrap();
        for i in 1..=300_u64 {
            match call.as_str() {
                "wait" => {
                    let right = (world.me() + 1) % world.n_pes();
                    world.ctx::<Shared>().p(words.sym(), i, right).unwrap();
                    world.ctx::<Shared>().wait(words.sym(), |value| value >= i).unwrap();
                }
                "lock" => {
                    let ctx = world.ctx::<Shared>();
                    ctx.set_lock(words.sym().at(2).unwrap()).unwrap();
                    let held = ctx.g(words.sym().at(1).unwrap(), 0).unwrap();
                    ctx.p(words.sym().at(1).unwrap(), held + 1, 0).unwrap();
                    ctx.clear_lock(words.sym().at(2).unwrap()).unwrap();
                }
                call => step(&world, call, words.sym(), false).unwrap(),
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        world.barrier_all().unwrap();
        if call == "lock" {
            let counted = world.ctx::<Shared>().g(words.sym().at(1).unwrap(), 0).unwrap();
            assert_eq!(counted, 300 * world.n_pes() as u64);
        }
        return;
    }
    let mut random = Random(11);
    for n in [2, 3, 5] {
        for call in ["barrier", "wait", "put", "all-reduce", "lock", "alloc"] {
            let address = super::common::address();
            let mut pes = Vec::new();
            for pe in 0..n {
                let mut command = std::process::Command::new(std::env::current_exe().unwrap());
                command.args([TEST, "--exact", "--nocapture"]).env("SHMEM_TESTS_CHILD", TEST).env("FAULT", call);
                command.env("SHMEM_RENDEZVOUS", &address).env("SHMEM_JOB_KEY", "tests");
                command.env("SHMEM_PE", pe.to_string()).env("SHMEM_N_PES", n.to_string());
                pes.push(start(&mut command));
            }
            let victim = random.next() as usize % n;
            let pid = rustix::process::Pid::from_child(&pes[victim].process);
            for _ in 0..3 {
                std::thread::sleep(Duration::from_micros(random.next() % 20_000));
                // It is still our child, also if it has ended.
                let _ = kill_process(pid, Signal::STOP);
                std::thread::sleep(Duration::from_millis(10));
                let _ = kill_process(pid, Signal::CONT);
            }
            for ended in gather(pes) {
                assert!(ended.success, "{call}, PE {victim} of {n} was stopped: {}", ended.output);
            }
        }
    }
}

/// M01, M03: PEs in process, user and mount namespaces of their own, each process number 1 (whom its own signals do not
/// kill), watch over each other all the
/// same.
#[test]
fn a_death_in_a_namespace_of_its_own_is_told() {
    const TEST: &str = "matrix::a_death_in_a_namespace_of_its_own_is_told";
    if is_child(TEST) {
        return pe_of_the_matrix();
    }
    let wrapper = ["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let able = std::process::Command::new("unshare").args(wrapper).arg("true").output();
    if !able.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: no namespaces here");
        return;
    }
    for (n, victim) in [(2, 0), (2, 1), (3, 1), (5, 4)] {
        let address = super::common::address();
        let start = |pe: usize| {
            let mut command = std::process::Command::new("unshare");
            command.args(wrapper).arg(std::env::current_exe().unwrap()).args([TEST, "--exact", "--nocapture"]);
            command.env("SHMEM_TESTS_CHILD", TEST).env("FAULT", format!("barrier,exit 3,{victim},1000"));
            command.env("SHMEM_RENDEZVOUS", &address).env("SHMEM_JOB_KEY", "tests");
            command.env("SHMEM_PE", pe.to_string()).env("SHMEM_N_PES", n.to_string());
            start(&mut command)
        };
        for (pe, ended) in gather((0..n).map(start).collect()).into_iter().enumerate() {
            assert_eq!(ended.output.contains("goes on"), pe != victim, "PE {pe} of {n}: {}", ended.output);
        }
    }
}
