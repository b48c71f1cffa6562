//! Start, end and failure of worlds: again and again, several at once, with PEs that are late, wrong, lost or panic;
//! nothing is left over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Mutex;
use std::time::Duration;

use common::{assert_sync, child, is_child, job, job_by_pe, ring, spawn, text_of};
use shmem::{Builder, Cmp, ErrorKind, Result, Shared, World};

#[test]
fn worlds_follow_one_another() {
    for n in common::COUNTS {
        for _ in 0..20 {
            shmem::local(n, ring).unwrap();
        }
    }
}

#[test]
fn worlds_follow_one_another_in_one_job() {
    // Each PE drops its world and builds the next without waiting for anybody.
    const TEST: &str = "worlds_follow_one_another_in_one_job";
    let several = |builder: &dyn Fn() -> Builder| -> Result<()> {
        for _ in 0..10 {
            ring(&builder().build()?)?;
        }
        Ok(())
    };
    if is_child(TEST) {
        return several(&common::child_builder).unwrap();
    }
    for n in [1, 2, 3, 5] {
        for ended in spawn(TEST, n, |_, command| command) {
            assert!(ended.success, "{}", ended.output);
        }
    }
}

#[test]
fn without_a_launcher_a_job_is_one_pe() {
    let world = World::builder().build().unwrap();
    assert_eq!((world.me(), world.n_pes()), (0, 1));
    ring(&world).unwrap();
    world.barrier_all().unwrap();
}

#[test]
fn several_worlds_live_in_one_process() {
    for n in [1, 2, 3] {
        let addresses = [common::address(), common::address()];
        shmem::local(n, |first| {
            let build =
                |address: &String| World::builder().pe(first.me()).n_pes(n).rendezvous(address).heap(1 << 20).build();
            let (second, third) = (build(&addresses[0])?, build(&addresses[1])?);
            let (a, b) = (first.alloc_zeroed::<u64>(1)?, second.alloc_zeroed::<u64>(1)?);
            for _ in 0..50 {
                ring(&third)?;
                first.ctx::<Shared>().atomic_inc(a.sym(), 0)?;
                second.ctx::<Shared>().atomic_add(b.sym(), 2, n - 1)?;
                ring(first)?;
                ring(&second)?;
            }
            drop(third);
            first.barrier_all()?;
            assert_eq!(first.ctx::<Shared>().g(a.sym(), 0)?, 50 * n as u64);
            assert_eq!(second.ctx::<Shared>().g(b.sym(), n - 1)?, 100 * n as u64);
            second.barrier_all()?;
            second.free(b)?;
            first.free(a)
        })
        .unwrap();
    }
}

#[test]
fn a_world_is_shared_by_threads_and_kept_in_a_global() {
    assert_sync::<World>();
    assert_sync::<shmem::Team<'_>>();
    assert_sync::<shmem::Ctx<'_, Shared>>();
    static WORLD: std::sync::OnceLock<&'static World> = std::sync::OnceLock::new();
    let world = WORLD.get_or_init(|| World::builder().heap(1 << 20).build().unwrap().leak());
    ring(world).unwrap();
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let build = |pe: usize, n: usize| World::builder().pe(pe).n_pes(n).rendezvous(common::address()).build();
    assert_kind!(build(0, 0), ErrorKind::BadJob { n_pes: 0, .. });
    assert_kind!(build(3, 3), ErrorKind::BadJob { pe: 3, n_pes: 3, .. });
    assert_kind!(build(usize::MAX, 1), ErrorKind::BadJob { .. });
    let error = World::builder().pe(0).n_pes(2).build();
    assert_kind!(error, ErrorKind::BadJob { pe: 0, n_pes: 2, .. });
    assert!(text_of(error).contains("rendezvous"));
    assert_kind!(shmem::local(0, |_| Ok(())), ErrorKind::BadJob { pe: 0, n_pes: 0, .. });
    for address in ["", "nonsense", "unix:/tmp/x", "unix:@", "host:", ":80", "a:99999"] {
        let error = World::builder().n_pes(2).pe(1).rendezvous(address).build();
        assert!(
            matches!(error.unwrap_err().kind(), ErrorKind::Rendezvous { .. } | ErrorKind::BadSetting { .. }),
            "{address}"
        );
    }
}

#[test]
fn bad_settings_show_the_name_the_value_and_the_form() {
    for (name, value) in [
        ("SHMEM_SYMMETRIC_SIZE", "lots"),
        ("SHMEM_TEAM_SLOTS", "1"),
        ("SHMEM_TEAM_SLOTS", "257"),
        ("SHMEM_TIMEOUT", "-1"),
        ("SHMEM_INIT_TIMEOUT", "soon"),
        ("SHMEM_SPIN", "1.5"),
        ("SHMEM_STREAM_FROM", "0"),
        ("SHMEM_BARRIER_RADIX", "1"),
        ("SHMEM_ROUTE", "pigeon"),
    ] {
        let error = World::builder().set(name, value).map(|_| ());
        assert_kind!(error, ErrorKind::BadSetting { name: n, value: v, .. } if n == name && v == value);
        assert!(text_of(error).contains(name));
    }
    let error = World::builder().set("SHMEM_SYMETRIC_SIZE", "1G").map(|_| ());
    assert!(text_of(error).contains("SHMEM_SYMMETRIC_SIZE"), "the nearest name");
}

/// `World::init` and `local` read the environment; here, of a process of its own.
#[test]
fn bad_variables_fail_the_start() {
    const TEST: &str = "bad_variables_fail_the_start";
    if is_child(TEST) {
        let init = text_of(World::init().map(|_| ()));
        assert_eq!(init, text_of(shmem::local(2, |_| Ok(()))));
        return println!("said: {init}");
    }
    for (name, value) in [("SHMEM_SYMMETRIC_SIZE", "0"), ("SHMEM_TIMEOUT", "never"), ("SHMEM_ROUTE", "pigeon")] {
        let ended = spawn(TEST, 1, |_, command| command.env(name, value));
        assert!(
            ended[0].success && ended[0].output.contains(&format!("said: {name}={value:?} is not valid")),
            "{}",
            ended[0].output
        );
    }
}

#[test]
fn incomplete_variables_fail_the_start() {
    const TEST: &str = "incomplete_variables_fail_the_start";
    if is_child(TEST) {
        return println!("said: {}", text_of(World::init().map(|_| ())));
    }
    for name in ["SHMEM_RENDEZVOUS", "SHMEM_PE", "SHMEM_N_PES"] {
        let ended = spawn(TEST, 1, |_, command| command.env_remove(name));
        assert!(
            ended[0].output.contains("SHMEM_RENDEZVOUS, SHMEM_PE and SHMEM_N_PES go together"),
            "{}",
            ended[0].output
        );
    }
    let ended = spawn(TEST, 1, |_, command| command.env("SHMEM_PE", "1"));
    assert!(ended[0].output.contains("PE 1 of 1: PEs are numbered from 0 to 0"), "{}", ended[0].output);
}

#[test]
fn settings_that_differ_are_named_with_both_sides() {
    for n in [2, 3, 5] {
        for (name, one, other) in
            [("SHMEM_TEAM_SLOTS", "8", "9"), ("SHMEM_SYMMETRIC_SIZE", "1M", "2M"), ("SHMEM_BARRIER_RADIX", "2", "3")]
        {
            for odd in [0, n - 1] {
                let results = job_by_pe(
                    n,
                    |pe, builder| builder.set(name, if pe == odd { one } else { other }).unwrap(),
                    |_| Ok(()),
                );
                for result in results {
                    assert_kind!(result, ErrorKind::SettingsDiffer { name: n, .. } if n == name);
                    let text = text_of(result);
                    assert!(text.contains(&format!("PE {odd} has {one}")) && text.contains(other), "{text}");
                }
            }
        }
    }
}

/// H07: the first call after start-up reaches a PE that came late.
fn first_call_to_the_last(world: &World) -> Result<()> {
    let (ctx, n) = (world.ctx::<Shared>(), world.n_pes());
    let team = world.team().split_strided(0, 1, n)?.unwrap();
    let block = world.alloc_zeroed::<u64>(1)?;
    if world.me() == 0 {
        ctx.put(block.sym(), &[9], n - 1)?;
    }
    team.barrier()?;
    assert_eq!(ctx.g(block.sym(), n - 1)?, 9);
    team.destroy()?;
    world.free(block)
}

#[test]
fn a_late_pe_is_waited_for() {
    for late in [0, 2, 3] {
        let results = job_by_pe(
            4,
            |pe, builder| {
                if pe == late {
                    std::thread::sleep(Duration::from_millis(300));
                }
                builder
            },
            first_call_to_the_last,
        );
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_late_process_is_waited_for() {
    const TEST: &str = "a_late_process_is_waited_for";
    if is_child(TEST) {
        if std::env::var("SHMEM_PE").unwrap() == "3" {
            std::thread::sleep(Duration::from_millis(300));
        }
        return child(|builder| builder, first_call_to_the_last);
    }
    for ended in spawn(TEST, 4, |_, command| command) {
        assert!(ended.success, "{}", ended.output);
    }
}

/// C14: who waits in vain at start-up says for whom, how long, and which setting to raise.
#[test]
fn a_pe_that_never_comes_is_named_after_the_limit() {
    let address = common::address();
    let start = |pe: usize| {
        let builder = World::builder().pe(pe).n_pes(3).rendezvous(&*address).set("SHMEM_INIT_TIMEOUT", "0.3").unwrap();
        builder.build().map(|_| ())
    };
    std::thread::scope(|scope| {
        let (zero, two) = (scope.spawn(|| start(0)), scope.spawn(|| start(2)));
        let errors = [zero.join().unwrap(), two.join().unwrap()];
        let texts: Vec<String> = errors.into_iter().map(text_of).collect();
        // Whoever gives up first says so; the other may learn of that instead.
        assert!(
            texts.iter().any(|text| text.contains("not joined: 1") && text.contains("SHMEM_INIT_TIMEOUT")),
            "{texts:?}"
        );
    });
}

/// A PE that fails before it starts, or whose settings are refused, fails the others' start at once, by name.
#[test]
fn a_pe_that_fails_at_start_is_named() {
    let texts: Vec<String> = job_by_pe(
        3,
        |pe, builder| {
            if pe == 1 { builder.n_pes(4) } else { builder }
        },
        |_| Ok(()),
    )
    .into_iter()
    .map(text_of)
    .collect();
    assert!(texts[0].contains("PE 1 is lost") && texts[2].contains("PE 1 is lost"), "{texts:?}");
    assert!(texts[1].contains("3 PEs"), "{texts:?}");
}

/// A way to wait for PE 1, and its name.
type Wait = (&'static str, fn(&World) -> Result<()>);

/// What the others do while one of them fails.
fn all_waits() -> Vec<Wait> {
    vec![
        ("barrier", |world| world.barrier_all()),
        ("sync", |world| world.sync_all()),
        ("alloc", |world| world.alloc::<u8>(1).map(|_| ())),
        ("split", |world| world.team().split_strided(0, 1, 1).map(|_| ())),
        ("wait", |world| {
            let word = world.object_at::<u64>(first(world), 1)?;
            world.ctx::<Shared>().wait(word, |value| value == 77).map(|_| ())
        }),
        ("wait_until_any", |world| {
            let words = world.object_at::<u64>(first(world), 2)?;
            world.ctx::<Shared>().wait_until_any(words, &[], Cmp::Eq, 77).map(|_| ())
        }),
        ("set_lock", |world| {
            // PE 1, which fails, holds it.
            world.ctx::<Shared>().set_lock(world.object_at::<u64>(first(world) + 64, 1)?)
        }),
    ]
}

/// Where the objects of `prepared` lie: the heap begins at some page, and the first allocation lies at its start.
fn first(world: &World) -> usize {
    (0..).step_by(4096).find(|offset| world.object_at::<u8>(*offset, 1).is_ok()).unwrap()
}

/// Two words, and a lock that PE 1 holds, at the heap's start. PE 1 comes back last: a failure that follows at once
/// could otherwise meet others that are still in here, since a barrier does not end everywhere at the same time.
fn prepared(world: &World) -> Result<shmem::SymBox<'_, u64>> {
    let ctx = world.ctx::<Shared>();
    let block = world.alloc_zeroed::<u64>(10)?;
    let arrived = block.sym().at(9)?;
    if world.me() == 1 {
        ctx.set_lock(block.sym().at(8)?)?;
    }
    world.barrier_all()?;
    match world.me() {
        1 => ctx.wait_until(arrived, Cmp::Eq, world.n_pes() as u64 - 1).map(|_| ())?,
        _ => ctx.atomic_inc(arrived, 1)?,
    }
    Ok(block)
}

#[test]
fn a_pe_that_returns_an_error_ends_all_waits() {
    for n in [2, 3, 5] {
        for (what, wait) in all_waits() {
            let lost = Mutex::new(0);
            let result = shmem::local(n, |world| {
                let _block = prepared(world)?;
                if world.me() == 1 {
                    return Err(ErrorKind::BadTeam("made up".into()).into());
                }
                let error = wait(world).expect_err(what);
                assert!(matches!(error.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{what}: {error}");
                *lost.lock().unwrap() += 1;
                // So does the next.
                assert_kind!(world.barrier_all(), ErrorKind::PeerLost { pe: 1, .. });
                Err::<(), _>(error)
            });
            // The cause, not its consequences.
            assert_kind!(result, ErrorKind::BadTeam(_));
            assert_eq!(lost.into_inner().unwrap(), n - 1, "{what}");
        }
    }
}

#[test]
fn a_pe_that_panics_ends_all_waits() {
    for n in [2, 3, 5] {
        for (what, wait) in all_waits() {
            let lost = Mutex::new(0);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                shmem::local(n, |world| {
                    let _block = prepared(world)?;
                    if world.me() == 1 {
                        std::panic::resume_unwind(Box::new("made up"));
                    }
                    let error = wait(world).expect_err(what);
                    assert!(matches!(error.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{what}: {error}");
                    assert!(error.to_string().contains("panicked"));
                    *lost.lock().unwrap() += 1;
                    Err::<(), _>(error)
                })
            }));
            assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"made up"));
            assert_eq!(lost.into_inner().unwrap(), n - 1, "{what}");
        }
    }
}

#[test]
fn a_process_that_fails_ends_all_waits() {
    const TEST: &str = "a_process_that_fails_ends_all_waits";
    if is_child(TEST) {
        return child(
            |builder| builder,
            |world| {
                let _block = prepared(world)?;
                if world.me() == 1 {
                    panic!("made up");
                }
                let error = world.barrier_all().expect_err("PE 1 does not come");
                println!("said: {error}");
                Ok(())
            },
        );
    }
    for n in [2, 3, 5] {
        for (pe, ended) in spawn(TEST, n, |_, command| command).into_iter().enumerate() {
            assert_eq!(ended.success, pe != 1, "{}", ended.output);
            assert!(pe == 1 || ended.output.contains("said: PE 1 is lost: it panicked"), "{}", ended.output);
        }
    }
}

/// Puts that a failing PE has on their way over the delaying network, while its world ends.
#[test]
fn a_pe_fails_with_puts_on_their_way() {
    for _ in 0..20 {
        let results = job(
            3,
            |builder| builder.set("SHMEM_ROUTE", "sim").unwrap().heap(1 << 20),
            |world| {
                let block = world.alloc::<u64>(1000)?;
                world.barrier_all()?;
                if world.me() == 0 {
                    for i in 0..1000 {
                        world.ctx::<Shared>().put(block.sym().at(i)?, &[1], 1 + i % 2)?;
                    }
                    world.abandon();
                    return Ok(());
                }
                world.barrier_all()
            },
        );
        for (pe, result) in results.into_iter().enumerate() {
            match pe {
                0 => result.unwrap(),
                _ => assert_kind!(result, ErrorKind::PeerLost { pe: 0, .. }),
            }
        }
    }
}

/// A PE that ends its world while the others call something else: they learn it, and the end comes for all.
#[test]
fn an_early_end_is_a_mismatch_for_the_others() {
    for n in [2, 3, 5] {
        for early in 0..n {
            shmem::local(n, |world| {
                if world.me() == early {
                    return Ok(());
                }
                for _ in 0..3 {
                    let text = text_of(world.barrier_all());
                    assert!(text.contains("finalize") && text.contains("barrier"), "{text}");
                }
                assert_kind!(world.alloc::<u8>(1), ErrorKind::Mismatch { .. });
                Ok(())
            })
            .unwrap();
        }
    }
}

/// H03: puts that are under way when a PE ends its world are complete for those that end theirs later.
#[test]
fn the_end_completes_puts() {
    common::everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let block = world.alloc_zeroed::<u64>(n)?;
        for pe in 0..n {
            ctx.p(block.sym().at(me)?, 5, pe)?;
        }
        world.barrier_all()?;
        assert_eq!(block.sym().to_vec(), vec![5; n]);
        world.barrier_all()?;
        // And these nobody completes but the end itself.
        for pe in 0..n {
            ctx.p(block.sym().at(me)?, 6, pe)?;
        }
        Ok(())
    });
}
