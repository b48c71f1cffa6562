//! H06: a child that is forked from a PE may exit or execute another program without harm to the job, and whatever it
//! asks of the library is an error that says so, at once, with no memory of the job changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, exit};
use std::time::Instant;

use common::{PATIENCE, child_builder, is_child, processes, ring, spawn};
use rustix::process::{Pid, WaitOptions, WaitStatus, kill_process, waitpid};
use shmem::{Cmp, ErrorKind, Kernel, Result, Shared, SigRef, World};

/// Runs `f` in a forked child, which ends with the status that it returns, 99 if it panics; waits for the child.
fn fork_and_wait(f: impl FnOnce() -> i32) -> WaitStatus {
    // SAFETY: the child has this process's memory for itself and the forking thread alone, which runs `f` and ends the
    // process; what the threads that it lacks may have locked, `f` does not use, the allocator apart, which expects forks.
    let pid = match unsafe { libc::fork() } {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(f)).unwrap_or(99);
            // SAFETY: it ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).expect("a child"),
    };
    let since = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).unwrap() {
            return status;
        }
        if since.elapsed() > PATIENCE {
            kill_process(pid, rustix::process::Signal::KILL).unwrap();
            panic!("the child hangs");
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// Runs checks in a forked child, each with a name; whichever is false is named.
fn all_hold_in_a_child<'a>(checks: impl FnOnce(&mut dyn FnMut(&'static str, bool)) + 'a) {
    let status = fork_and_wait(|| {
        let mut failures = 0;
        checks(&mut |name, holds| {
            if !holds {
                eprintln!("in the child: {name}");
                failures += 1;
            }
        });
        failures.min(90)
    });
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}

/// Whether the answer is the error of a child of PE `me`.
fn is_forked<T>(me: usize, result: &Result<T>) -> bool {
    matches!(result, Err(error) if matches!(error.kind(), ErrorKind::Forked { pe } if *pe == me))
}

struct First;

impl Kernel<u64> for First {
    type Acc = u64;
    fn widen(&self, element: u64) -> u64 {
        element
    }
    fn combine(&self, left: u64, _: u64) -> u64 {
        left
    }
    fn narrow(&self, acc: u64) -> u64 {
        acc
    }
}

/// Every call, in a child of each PE.
fn every_call(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let other = (me + 1) % n;
    let words = world.alloc::<u64>(64)?;
    let lock = world.alloc_zeroed::<u64>(2)?;
    let mut moved = world.alloc::<u64>(8)?;
    let given = world.alloc::<u8>(8)?;
    let mut channel = world.channel::<u64>(0, n - 1, 2)?;
    let team = world.team().split_strided(0, 1, n)?.expect("all are in it");
    let (all, cell) = (words.sym(), words.sym().at(3)?);
    all.fill(7);
    ctx.set_lock(lock.sym().at(0)?)?;
    ctx.clear_lock(lock.sym().at(0)?)?;
    world.barrier_all()?;
    all_hold_in_a_child(|check| {
        let (mut buffer, values) = ([0_u64; 4], [1_u64; 4]);
        macro_rules! refused {
            ($($call:expr),* $(,)?) => { $(check(stringify!($call), is_forked(me, &$call));)* };
        }
        refused! {
            ctx.put(all, &values, other),
            ctx.put(all, &values, me),
            ctx.get(&mut buffer, all, other),
            ctx.put_from(all, all, other),
            ctx.get_into(all, all, other),
            ctx.p(cell, 1, other),
            ctx.g(cell, other),
            ctx.iput(all, 2, &values, 1, 4, other),
            ctx.iget(&mut buffer, 1, all, 2, 4, other),
            ctx.ibput(all, 2, &values, 2, 2, 2, other),
            ctx.ptr(all, other),
            ctx.scope(|scope| scope.put_nbi(all, &values, other)),
            ctx.atomic_fetch(cell, other),
            ctx.atomic_set(cell, 1, other),
            ctx.atomic_swap(cell, 1, me),
            ctx.atomic_compare_swap(cell, 7, 1, other),
            ctx.atomic_inc(cell, other),
            ctx.atomic_fetch_xor(cell, 1, other),
            ctx.put_signal(all, &values, SigRef::add(cell, 1), other),
            ctx.signal(SigRef::set(cell, 1), other),
            ctx.signal_fetch(cell),
            ctx.wait(cell, |value| value == 8),
            ctx.wait(cell, |value| value == 7),
            ctx.wait_until(cell, Cmp::Eq, 8),
            ctx.wait_until_all(all, &[], Cmp::Eq, 8),
            ctx.wait_until_any(all, &[], Cmp::Eq, 8),
            ctx.wait_until_some(all, &[], Cmp::Eq, 8),
            ctx.test(cell, Cmp::Eq, 7),
            ctx.test_any(all, &[], Cmp::Eq, 7),
            ctx.fold(&[(all, me)], &[(all, other)], &First),
            ctx.copy((all, me), &[(all, other)]),
            ctx.fence(),
            ctx.quiet(),
            ctx.quiet_pes(&[other]),
            ctx.set_lock(lock.sym()),
            ctx.test_lock(lock.sym()),
            ctx.clear_lock(lock.sym()),
            all.read(0),
            all.write(0, 1),
            all.slice(..4).unwrap().copy_to(&mut buffer),
            all.slice(..4).unwrap().copy_from(&values),
            world.barrier_all(),
            world.sync_all(),
            world.alloc::<u64>(1),
            world.alloc_zeroed::<u64>(1),
            world.align::<u64>(4096, 1),
            world.realloc(&mut moved, 1000),
            world.realloc(&mut moved, 8),
            world.free(given),
            world.channel::<u64>(0, 0, 1),
            team.sync(),
            team.barrier(),
            team.split_strided(0, 1, 1),
            team.split_list(&[0]),
            team.split_colour(None, 0),
            team.split_2d(1),
            team.meet(1).wait(&team, String::new),
            team.meet(1).poll(&team, String::new),
            world.shared_team().barrier(),
            team.destroy(),
        }
        if me == 0 {
            refused! { channel.send(1) }
        }
        if me == n - 1 {
            refused! { channel.recv(), channel.try_recv() }
        }
        if n > 1 {
            refused! { world.team().meet(1).send(&world.team(), other, &[1]) }
        }
        // What cannot return an error leaves things as they are.
        all.fill(1);
        check("to_vec reads what is there", all.to_vec() == [7; 64]);
        drop(world.reserve(all, "test", 1, std::panic::Location::caller()));
        world.abandon();
    });
    world.barrier_all()?;
    assert_eq!(all.to_vec(), [7; 64]);
    assert_eq!(lock.sym().to_vec(), [0; 2], "nobody has the lock");
    if me == 0 {
        channel.send(5)?;
    }
    if me == n - 1 {
        assert_eq!(channel.recv()?, 5);
    }
    world.free_channel(channel)?;
    world.realloc(&mut moved, 9)?;
    ring(world)
}

#[test]
fn every_call_in_a_child_is_an_error() {
    processes("every_call_in_a_child_is_an_error", &[1, 2, 3], every_call);
}

/// The same where puts are carried by a thread, which the child does not have.
#[test]
fn every_call_in_a_child_over_shuffle() {
    let test = "every_call_in_a_child_over_shuffle";
    alone(test, &[2], || common::child(|builder| builder.set("SHMEM_ROUTE", "sim").unwrap(), every_call));
}

/// The same in checked mode.
#[test]
fn every_call_in_a_child_in_checked_mode() {
    let test = "every_call_in_a_child_in_checked_mode";
    alone(test, &[2], || common::child(|builder| builder.set("SHMEM_CHECK", "1").unwrap(), every_call));
}

/// Runs `pe` in processes, as many as each of `counts`, all of which must succeed.
fn alone(test: &str, counts: &[usize], pe: impl Fn()) {
    if is_child(test) {
        return pe();
    }
    for &n in counts {
        for ended in spawn(test, n, |_, command| command) {
            assert!(ended.success, "{ended:?}");
        }
    }
}

/// Children that end in every way, with the world or without, while their PE goes on.
fn children_that_end(world: World) {
    let (me, n) = (world.me(), world.n_pes());
    let at = world.alloc_zeroed::<u64>(n).unwrap().sym().offset();
    let mut world = Some(world);
    for round in 0..40 {
        let end = round % 4;
        let status = fork_and_wait(|| match (end, world.take()) {
            (0, _) => 3,
            // As a return from `main` does it: the world ends, then whatever the process has registered runs.
            (1, world) => {
                drop(world);
                exit(4)
            }
            (2, world) => {
                std::panic::set_hook(Box::new(|_| {}));
                let unwound = catch_unwind(AssertUnwindSafe(move || {
                    let _world = world;
                    panic!("in the child")
                }));
                if unwound.is_err() { 5 } else { 0 }
            }
            _ => {
                kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
                0
            }
        });
        match end {
            3 => assert_eq!(status.terminating_signal(), Some(libc::SIGKILL)),
            _ => assert_eq!(status.exit_status(), Some(3 + end), "{status:?}"),
        }
        let world = world.as_ref().unwrap();
        let counts = world.object_at::<u64>(at, n).unwrap();
        for pe in 0..n {
            world.ctx::<Shared>().atomic_inc(counts.at(me).unwrap(), pe).unwrap();
        }
        world.barrier_all().unwrap();
        assert_eq!(counts.to_vec(), vec![round as u64 + 1; n]);
        world.sync_all().unwrap();
    }
}

#[test]
fn children_that_end_leave_the_job_alone() {
    let test = "children_that_end_leave_the_job_alone";
    alone(test, &[1, 2, 3], || children_that_end(child_builder().build().unwrap()));
}

#[test]
fn children_that_end_leave_the_job_alone_over_shuffle() {
    let test = "children_that_end_leave_the_job_alone_over_shuffle";
    let build = || child_builder().set("SHMEM_ROUTE", "sim").unwrap().build().unwrap();
    alone(test, &[2], || children_that_end(build()));
}

/// Children in the midst of puts, while another thread of the PE makes them.
#[test]
fn forks_during_puts() {
    processes("forks_during_puts", &[2], |world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let words = world.alloc_zeroed::<u64>(1024)?;
        let done = std::sync::atomic::AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let putting = scope.spawn(|| -> Result<u64> {
                let mut sent = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) || sent == 0 {
                    sent += 1;
                    ctx.put(words.sym(), &[sent; 1024], (me + 1) % n)?;
                }
                Ok(sent)
            });
            for _ in 0..100 {
                let status = fork_and_wait(|| i32::from(!is_forked(me, &ctx.p(words.sym(), 0, me))));
                assert_eq!(status.exit_status(), Some(0));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            putting.join().unwrap()
        })?;
        let counts = world.alloc::<u64>(1)?;
        ctx.p(counts.sym(), sent, (me + 1) % n)?;
        world.barrier_all()?;
        assert_eq!(words.sym().to_vec(), vec![counts.sym().read(0)?; 1024]);
        Ok(())
    });
}

#[test]
fn other_programs_run_from_a_pe() {
    processes("other_programs_run_from_a_pe", &[1, 3], |world| {
        for round in 0..10 {
            let answer = Command::new("sh").args(["-c", "echo $((6 * 7))"]).output().unwrap();
            assert_eq!((answer.status.success(), answer.stdout.as_slice()), (true, &b"42\n"[..]), "{round}");
            // A fork with work of its own before the other program.
            let status = fork_and_wait(|| {
                let path = c"/bin/sh".as_ptr();
                let arguments = [path, c"-c".as_ptr(), c"exit 7".as_ptr(), std::ptr::null()];
                // SAFETY: all are strings that last, and the list ends with a null pointer.
                unsafe { libc::execv(path, arguments.as_ptr()) }
            });
            assert_eq!(status.exit_status(), Some(7));
            world.barrier_all()?;
        }
        ring(world)
    });
}

/// PEs that are threads: a child of one of them is a child of all, and each world says which PE it was.
#[test]
fn a_child_of_threads_is_a_child_of_all_of_them() {
    let test = "a_child_of_threads_is_a_child_of_all_of_them";
    alone(test, &[1], || {
        shmem::local(3, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let words = world.alloc_zeroed::<u64>(4)?;
            for turn in 0..3 {
                world.barrier_all()?;
                if turn == me {
                    all_hold_in_a_child(|check| {
                        check("put", is_forked(me, &ctx.put(words.sym(), &[1], 0)));
                        check("barrier", is_forked(me, &world.barrier_all()));
                        // A job of its own is the child's own affair.
                        let sum = shmem::local(1, |world| world.alloc::<u64>(9).map(|words| words.sym().len()));
                        check("another job", sum.is_ok_and(|sum| sum == [9]));
                    });
                }
                world.barrier_all()?;
                assert_eq!(words.sym().to_vec(), [0; 4]);
            }
            ring(world)
        })
        .unwrap();
    });
}

/// Under the launcher: a child that returns from what the PE runs, and one that would join in its parent's place.
#[test]
fn a_child_under_the_launcher() {
    if std::env::var_os("SHMEM_PE").is_none() {
        let test = "a_child_under_the_launcher";
        let mut command = Command::new(env!("CARGO_BIN_EXE_shmemrun"));
        command.args(["-n", "3", "--timeout", "60"]).arg(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test, "--nocapture"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {text}", output.status);
        assert!(!text.contains("lost") && !text.contains("exited"), "{text}");
        return;
    }
    let mut me = None;
    let ended = shmem::run(|world| {
        me = Some(world.me());
        let status = fork_and_wait(|| {
            // Out of `run`, by way of its end of the world.
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let again = World::init();
                assert!(is_forked(world.me(), &again.map(|_| ())));
                std::panic::resume_unwind(Box::new(()))
            }));
            if ended.is_err() { 6 } else { 0 }
        });
        assert_eq!(status.exit_status(), Some(6));
        world.barrier_all()?;
        // Its own end, while the PE goes on: `run` returns in the child, too.
        // SAFETY: the child ends the process below.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            return Ok(0);
        }
        waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap();
        ring(world)?;
        Ok(pid)
    });
    if ended.unwrap() == 0 {
        // SAFETY: it ends the process.
        unsafe { libc::_exit(0) }
    }
    assert!(me.is_some());
}

/// A child that lives on holds nothing of its PE up.
#[test]
fn a_child_that_outlives_its_pe() {
    let test = "a_child_that_outlives_its_pe";
    alone(test, &[2], || {
        let world = child_builder().build().unwrap();
        // SAFETY: the child sleeps and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            // SAFETY: it ends the process.
            unsafe { libc::_exit(0) }
        }
        ring(&world).unwrap();
        drop(world);
        // Another world, while the child has what the first was.
        let again = child_builder().rendezvous(format!("{}-again", std::env::var("SHMEM_RENDEZVOUS").unwrap()));
        let again = again.build().unwrap();
        ring(&again).unwrap();
        waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap();
    });
}
