//! What once went wrong: each test failed before the fix that came with it.

use std::process::{Command, Output, exit};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use shmem::boot::Rendezvous;
use shmem::{ErrorKind, Result, Shared, World, local};

/// An element that is aligned to more than what every block gets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
struct Wide([u64; 16]);

/// Runs a test of this file as the PEs of a job.
fn job(n: usize, test: &str, env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shmemrun"))
        .args(["-n", &n.to_string(), "--timeout", "60"])
        .arg(std::env::current_exe().expect("the path of this test"))
        .args(["--exact", test, "--nocapture"])
        .env("SHMEM_FLIGHT_FILE", "off")
        .envs(env.iter().copied())
        .output()
        .expect("shmemrun")
}

#[test]
fn a_channel_to_oneself_counts_its_ends_apart() {
    fn pass<T: shmem::Elem + PartialEq + std::fmt::Debug>(world: &World, values: [T; 3]) -> Result<()> {
        let mut queue = world.channel::<T>(world.n_pes() - 1, world.n_pes() - 1, 2)?;
        if world.me() == world.n_pes() - 1 {
            for _ in 0..5 {
                for pair in values.windows(2) {
                    queue.send(pair[0])?;
                    queue.send(pair[1])?;
                    assert_eq!([queue.recv()?, queue.recv()?], pair);
                }
                assert_eq!(queue.try_recv()?, None);
            }
        }
        world.free_channel(queue)
    }
    for n in [1, 2, 3] {
        local(n, |world| {
            pass(world, [1_u64, 2, 3])?;
            pass(world, [(); 3])?;
            pass(world, [[1_u8; 3], [2; 3], [3; 3]])
        })
        .unwrap();
    }
}

#[test]
fn a_channel_without_room_on_one_pe_is_an_error_on_all() {
    local(3, |world| {
        let capacity = if world.me() == 1 { 0 } else { 4 };
        let error = world.channel::<u64>(0, 2, capacity).unwrap_err();
        let report = "PEs 0 and 2 call channel(from PE 0 to PE 2) at";
        let text = error.to_string();
        let places = text.matches(" at tests/regressions.rs:").count();
        assert_eq!((text.contains(report), places), (true, 2), "{text}");
        world.barrier_all()
    })
    .unwrap();
}

#[test]
fn alignments_are_compared_as_the_heap_grants_them() {
    local(2, |world| {
        // Every block is aligned to a cache line: these two are the same to the heap.
        let offset = if world.me() == 0 {
            world.alloc::<u64>(8)?.sym().offset()
        } else {
            world.align::<u32>(16, 16)?.sym().offset()
        };
        let all = world.alloc::<u64>(world.n_pes())?;
        for pe in 0..world.n_pes() {
            world.ctx::<shmem::Shared>().p(all.sym().at(world.me())?, offset as u64, pe)?;
        }
        world.barrier_all()?;
        assert_eq!(all.sym().to_vec(), [offset as u64; 2]);

        let error = if world.me() == 0 {
            world.align::<Wide>(64, 1).map(|_| ()).unwrap_err()
        } else {
            world.align::<u8>(64, 128).map(|_| ()).unwrap_err()
        };
        assert!(matches!(error.kind(), ErrorKind::Mismatch { .. }), "{error}");
        world.free(all)
    })
    .unwrap();
}

#[test]
fn two_threads_of_each_pe_split_two_teams_at_once() {
    local(3, |world| {
        let (one, other) = (world.team(), world.shared_team());
        let split_and_use = |team: &shmem::Team<'_>| -> Result<()> {
            for _ in 0..200 {
                if let Some(half) = team.split_colour(Some(world.me() as u64 / 2), 0)? {
                    (0..5).try_for_each(|_| half.sync())?;
                    half.destroy()?;
                }
            }
            Ok(())
        };
        std::thread::scope(|threads| {
            let beside = threads.spawn(|| split_and_use(&other));
            split_and_use(&one)?;
            beside.join().unwrap()
        })
    })
    .unwrap();
}

#[test]
fn the_panic_that_came_first_is_the_one_that_goes_on() {
    let panic = std::panic::catch_unwind(|| {
        local(3, |world| {
            assert_ne!(world.me(), 2, "the cause");
            world.barrier_all().unwrap();
            Ok(())
        })
    });
    let panic = panic.unwrap_err();
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("the cause")), "{panic:?}");
}

#[test]
fn shmem_debug_prints_what_happens() {
    if std::env::var_os("SHMEM_PE").is_some() {
        return World::init().and_then(|world| world.alloc::<u64>(1).and_then(|block| world.free(block))).unwrap();
    }
    for (debug, lines) in [("1", 2), ("0", 0)] {
        let job = job(2, "shmem_debug_prints_what_happens", &[("SHMEM_DEBUG", debug)]);
        let said = String::from_utf8(job.stderr).unwrap();
        let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!([count("world started"), count("allocated")], [lines; 2], "{said}");
    }
}

/// Runs as two PEs, of which PE 1 ends in the middle of start-up, when PE 0 learns of it sooner than the launcher.
#[test]
fn a_pe_that_ends_during_start_up_gives_the_job_its_status() {
    let setting = |name| std::env::var(name).unwrap_or_default();
    match setting("SHMEM_PE").as_str() {
        "" => {
            for _ in 0..5 {
                let job = job(2, "a_pe_that_ends_during_start_up_gives_the_job_its_status", &[]);
                assert_eq!(job.status.code(), Some(3), "{job:?}");
            }
        }
        "0" => exit(if World::init().is_err() { 4 } else { 0 }),
        _ => {
            let limit = Some(Duration::from_secs(60));
            let meeting = Rendezvous::join(&setting("SHMEM_RENDEZVOUS"), &setting("SHMEM_JOB_KEY"), 1, 2, limit);
            exit(if meeting.is_ok() { 3 } else { 5 });
        }
    }
}

#[test]
fn a_second_thread_of_a_pe_that_waits_for_a_lock_gets_an_error_and_the_queue_stays_whole() {
    shmem::local(3, |world| {
        let ctx = world.ctx::<Shared>();
        let (lock, asked) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        if world.me() == 0 {
            ctx.set_lock(lock.sym())?;
        }
        world.barrier_all()?;
        if world.me() == 1 {
            std::thread::scope(|threads| {
                let waits = threads.spawn(|| ctx.set_lock(lock.sym()));
                // Until the first thread stands in the queue, this one would be it.
                while lock.sym().read(0).unwrap() == 0 {
                    std::thread::yield_now();
                }
                let error = ctx.set_lock(lock.sym()).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Lock { pe: 1, call: "set", .. }), "{error}");
                ctx.p(asked.sym(), 1, 0).unwrap();
                waits.join().unwrap().unwrap();
            });
            ctx.clear_lock(lock.sym())?;
        } else if world.me() == 0 {
            ctx.wait(asked.sym(), |asked| asked == 1)?;
            ctx.clear_lock(lock.sym())?;
        }
        world.barrier_all()?;
        ctx.set_lock(lock.sym())?;
        ctx.clear_lock(lock.sym())?;
        world.barrier_all()?;
        assert_eq!(lock.sym().read(0)?, 0);
        world.free(lock)?;
        world.free(asked)
    })
    .unwrap();
}

#[test]
fn pes_on_two_hosts_are_told_that_there_is_no_route() {
    let address = format!("unix:@shmem-two-hosts-{}", std::process::id());
    let start = |pe: usize, host: &str| {
        let builder = World::builder().pe(pe).n_pes(2).rendezvous(&*address).heap(1 << 20).set("SHMEM_HOST_ID", host);
        builder.unwrap().build().map(|_| ())
    };
    std::thread::scope(|threads| {
        let other = threads.spawn(|| start(1, "b"));
        let errors = [start(0, "a").unwrap_err(), other.join().unwrap().unwrap_err()];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::NoRoute { pe: 1, .. }), "{error}");
        }
    });
}
