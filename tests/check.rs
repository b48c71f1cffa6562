//! Checked mode (`SHMEM_CHECK=1`): what it finds, with the places in the program, and what it lets pass. P06, that it never
//! fails a correct program, is what [`common::checked`] asks of every scenario of the other tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::panic::Location;

use common::{Ended, child, is_child, job, job_by_pe, kind_of, ring, spawn, text_of};
use shmem::{Cmp, ErrorKind, Kernel, Result, Shared, SigRef, SymSlice, World};

/// Runs a scenario in checked mode as threads.
fn checked(n: usize, scenario: impl Fn(&World) -> Result<()> + Sync) {
    let pes = job(
        n,
        |builder| builder.set("SHMEM_CHECK", "1").unwrap(),
        |world| scenario(world).inspect_err(|_| world.abandon()),
    );
    pes.into_iter().for_each(|pe| pe.unwrap_or_else(|error| panic!("n = {n}: {error}")));
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

/// The line of the call, for what an error says of it.
#[track_caller]
fn here() -> String {
    format!("{}:{}", file!(), Location::caller().line())
}

/// Every access through a handle to what was freed is an error that says where it was freed and allocated, and where it
/// is accessed, on the PE that does it; nothing is read or written.
#[test]
fn an_access_to_freed_memory_is_an_error_everywhere() {
    for n in [1, 2, 3] {
        checked(n, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let other = (me + 1) % n;
            let (block, made) = (world.alloc::<u64>(32)?, here());
            let live = world.alloc_zeroed::<u64>(32)?;
            let (offset, fine) = (block.sym().offset(), live.sym());
            let dead = world.object_at::<u64>(offset, 32)?;
            dead.fill(7);
            world.barrier_all()?;
            let freed = (world.free(block), here()).1;
            assert_eq!(world.heap_free().0, world.heap_size() - 256, "it is free");
            let (mut buffer, values) = ([9_u64; 4], [1_u64; 4]);
            macro_rules! refused {
                // One call a line.
                ($($call:expr),* $(,)?) => { let mut at = line!(); $(
                    at += 1;
                    let (result, line) = ($call, format!("{}:{at}", file!()));
                    match kind_of(&result) {
                        ErrorKind::UseAfterFree { pe, bytes, site, history } => {
                            assert_eq!((*pe, site), (me, &line), "{}", stringify!($call));
                            assert!(offset <= bytes.start && bytes.end <= offset + 256, "{bytes:?}");
                            assert_eq!(*history, format!("freed at {freed}, allocated at {made}"));
                        }
                        other => panic!("{}: {other}", stringify!($call)),
                    }
                )* let _ = at; };
            }
            refused! {
                ctx.put(dead, &values, other),
                ctx.put(dead, &values, me),
                ctx.get(&mut buffer, dead, other),
                ctx.put_from(fine, dead, other),
                ctx.put_from(dead, fine, other),
                ctx.get_into(fine, dead, other),
                ctx.get_into(dead, fine, other),
                ctx.p(dead, 1, other),
                ctx.g(dead, other),
                ctx.iput(dead, 2, &values, 1, 4, other),
                ctx.iget(&mut buffer, 1, dead, 2, 4, other),
                ctx.ibput(dead, 2, &values, 2, 2, 2, other),
                ctx.ibget(&mut buffer, 2, dead, 2, 2, 2, other),
                ctx.ptr(dead, other),
                ctx.scope(|scope| scope.put_nbi(dead, &values, other)),
                ctx.atomic_fetch(dead, other),
                ctx.atomic_set(dead, 1, other),
                ctx.atomic_swap(dead, 1, other),
                ctx.atomic_compare_swap(dead, 7, 1, other),
                ctx.atomic_inc(dead, other),
                ctx.atomic_fetch_or(dead, 1, other),
                ctx.put_signal(dead, &values, SigRef::set(fine, 1), other),
                ctx.put_signal(fine, &values, SigRef::set(dead, 1), other),
                ctx.signal(SigRef::add(dead, 1), other),
                ctx.signal_fetch(dead),
                ctx.wait(dead, |_| true),
                ctx.wait_until(dead, Cmp::Eq, 8),
                ctx.wait_until_all(dead, &[], Cmp::Eq, 8),
                ctx.wait_until_any(dead, &[], Cmp::Eq, 8),
                ctx.wait_until_some(dead, &[], Cmp::Eq, 8),
                ctx.test(dead, Cmp::Eq, 7),
                ctx.test_all(dead, &[], Cmp::Eq, 7),
                ctx.fold(&[(dead, me)], &[(fine, other)], &First),
                ctx.fold(&[(fine, me)], &[(dead, other)], &First),
                ctx.copy((dead, me), &[(fine, other)]),
                ctx.copy((fine, me), &[(dead, other)]),
                ctx.set_lock(dead),
                ctx.test_lock(dead),
                ctx.clear_lock(dead),
                dead.read(3),
                dead.write(3, 1),
                dead.slice(..4)?.copy_to(&mut buffer),
                dead.at(31)?.copy_from(&[1]),
                dead.cast::<u32>()?.read(1),
            }
            // These say it on standard error.
            dead.fill(1);
            assert_eq!(dead.to_vec(), [7; 32]);
            assert_eq!((buffer, fine.to_vec()), ([9; 4], vec![0; 32]), "nothing was written");
            // Of no elements there is nothing that could be freed.
            ctx.put(dead, &[], other)?;
            ctx.get(&mut [], dead, other)?;
            world.barrier_all()?;
            world.free(live)
        });
    }
}

/// Memory that was freed and has been given to another object since is not reached through handles to the first.
#[test]
fn an_old_handle_does_not_reach_the_new_owner() {
    checked(2, |world| {
        let ctx = world.ctx::<Shared>();
        let block = world.alloc::<u32>(16)?;
        let (old, offset) = (world.object_at::<u32>(block.sym().offset(), 16)?, block.sym().offset());
        world.free(block)?;
        let (next, made) = (world.alloc_zeroed::<u32>(8)?, here());
        assert_eq!(next.sym().offset(), offset, "the same place");
        let text = text_of(ctx.p(old.at(2)?, 5, 0));
        assert!(text.contains(&format!("; now they belong to what was allocated at {made}")), "{text}");
        assert!(text.contains(&format!("reaches bytes {}..{}", offset + 8, offset + 12)), "{text}");
        ctx.p(next.sym().at(2)?, 6, 1 - world.me())?;
        ctx.p(world.object_at::<u32>(offset, 8)?.at(3)?, 7, 1 - world.me())?;
        world.barrier_all()?;
        assert_eq!(next.sym().to_vec(), [0, 0, 6, 7, 0, 0, 0, 0]);
        assert_eq!(
            world.object_at::<u32>(offset, 16).map(|_| ()).unwrap_err().to_string().matches("not alloc").count(),
            1
        );
        world.free(next)
    });
}

/// Many births, freed in another order: every handle finds its own.
#[test]
fn a_thousand_births() {
    checked(2, |world| {
        let mut random = common::Random(7);
        let (mut live, mut dead) = (Vec::new(), Vec::<SymSlice<'_, u16>>::new());
        for round in 0..1500 {
            if round % 3 == 2 {
                let block: shmem::SymBox<'_, u16> = live.swap_remove(random.below(live.len()));
                dead.push(world.object_at(block.sym().offset(), block.sym().len())?);
                world.free(block)?;
            } else {
                live.push(world.alloc::<u16>(1 + random.below(300))?);
            }
            let handle = live[random.below(live.len())].sym();
            handle.write(handle.len() - 1, round)?;
            assert_eq!(world.object_at::<u16>(handle.offset(), handle.len())?.read(handle.len() - 1)?, round);
        }
        for handle in dead {
            assert!(matches!(kind_of(&handle.read(0)), ErrorKind::UseAfterFree { .. }));
        }
        live.into_iter().try_for_each(|block| world.free(block))
    });
}

#[test]
fn a_moved_or_shrunk_block_is_reached_by_its_new_handles() {
    checked(2, |world| {
        let me = world.me() as u64;
        let mut block = world.alloc::<u64>(64)?;
        block.sym().fill(me);
        let old = world.object_at::<u64>(block.sym().offset(), 64)?;
        let resized = (world.realloc(&mut block, 10)?, here()).1;
        assert_eq!((old.read(9)?, block.sym().read(9)?), (me, me), "what is left of it");
        let text = text_of(old.read(10));
        assert!(text.contains("has only the bytes") && text.ends_with(&format!("resized at {resized}")), "{text}");
        let wall = world.alloc::<u8>(1)?;
        let moved = (world.realloc(&mut block, 5000)?, here()).1;
        assert_ne!(old.offset(), block.sym().offset());
        let text = text_of(old.read(0));
        assert!(text.contains(&format!("freed at {moved}, resized at {resized}, allocated at")), "{text}");
        assert_eq!(block.sym().slice(..10)?.to_vec(), [me; 10]);
        world.free(wall)?;
        world.free(block)
    });
}

#[test]
fn the_workspace_of_a_team_ends_with_it() {
    checked(3, |world| {
        let team = world.team().split_strided(0, 1, 3)?.unwrap();
        let space = team.workspace();
        space.write(5, 1)?;
        team.barrier()?;
        let destroyed = (team.destroy()?, here()).1;
        let text = text_of(space.read(5));
        assert!(text.contains("the workspace of the team made at tests/check.rs:"), "{text}");
        assert!(text.ends_with(&format!("destroyed at {destroyed}")), "{text}");
        world.team().workspace().write(5, 1)?;
        world.shared_team().workspace().write(5, 1)?;
        let again = world.team().split_strided(0, 1, 3)?.unwrap();
        again.workspace().write(5, 1)?;
        again.destroy()
    });
}

/// A write to memory that a library has reserved on a PE is an error of the PE that writes, whoever it is; reads, other
/// PEs' copies, bytes between and beside, and the library's own writes are not.
#[test]
fn writes_to_reserved_memory_are_errors() {
    for n in [1, 2, 3] {
        checked(n, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let block = world.alloc_zeroed::<u64>(64)?;
            let (all, values) = (block.sym(), [5_u64; 4]);
            let (used, beside) = (all.slice(16..32)?, all.slice(32..)?);
            let site = Location::caller();
            let reservation = (me == 0).then(|| world.reserve(used, "scan", 41, site));
            world.barrier_all()?;
            macro_rules! refused {
                // One call a line.
                ($($call:expr),* $(,)?) => { let mut at = line!(); $(
                    at += 1;
                    let (result, line) = ($call, format!("{}:{at}", file!()));
                    match kind_of(&result) {
                        ErrorKind::InUse { pe, target: 0, bytes, site: at, reserved, user } => {
                            assert_eq!((*pe, at), (me, &line), "{}", stringify!($call));
                            assert!(bytes.start < reserved.end && reserved.start < bytes.end);
                            assert_eq!(*reserved, used.offset()..used.offset() + 128);
                            let place = if me == 0 { format!(", started at {}:{}", site.file(), site.line()) } else { String::new() };
                            assert_eq!(*user, format!("scan #41{place}"));
                        }
                        other => panic!("{}: {other}", stringify!($call)),
                    }
                )* let _ = at; };
            }
            refused! {
                ctx.put(used, &values, 0),
                ctx.put(all.slice(14..)?, &values, 0),
                ctx.put_from(used, beside.slice(..4)?, 0),
                ctx.p(used.at(15)?, 1, 0),
                ctx.iput(all, 16, &values, 1, 2, 0),
                ctx.atomic_add(used, 1, 0),
                ctx.atomic_set(used.cast::<u32>()?.at(31)?, 1, 0),
                ctx.put_signal(used, &values, SigRef::set(beside, 0), 0),
                ctx.put_signal(beside, &values, SigRef::set(used, 1), 0),
                ctx.signal(SigRef::add(used, 1), 0),
                ctx.fold(&[(beside.slice(..16)?, 0)], &[(used, 0)], &First),
                ctx.copy((beside.slice(..16)?, 0), &[(used, 0)]),
                ctx.scope(|scope| scope.put_nbi(used, &values, 0)),
            }
            if me == 0 {
                refused! {
                    used.write(0, 1),
                    used.copy_from(&[1; 16]),
                    all.copy_from(&[1; 64]),
                    ctx.get_into(used, beside.slice(..16)?, 0),
                    ctx.set_lock(used),
                    ctx.test_lock(used),
                }
                used.fill(1);
            }
            assert_eq!(ctx.g(used, 0)?, 0);
            assert_eq!(used.to_vec(), [0; 16]);
            ctx.wait(used, |value| value == 0)?;
            assert_eq!(ctx.atomic_fetch(used, 0)?, 0);
            ctx.put(all.slice(..16)?, &[0; 16], 0)?;
            ctx.put(all, &[0; 16], 0)?;
            ctx.p(beside, 0, 0)?;
            // Every other block of eight: what is in use lies between.
            ctx.ibput(all.slice(8..)?, 24, &[0; 16], 8, 8, 2, 0)?;
            for pe in 1..n {
                ctx.put(used, &[0; 16], pe)?;
            }
            world.barrier_all()?;
            world.ctx::<Shared>().of_library().put(used, &[3; 16], 0)?;
            world.barrier_all()?;
            assert_eq!(ctx.g(used.at(7)?, 0)?, 3);
            drop(reservation);
            world.barrier_all()?;
            ctx.put(used, &values, 0)?;
            world.free(block)
        });
    }
}

/// What is reserved without checked mode is not.
#[test]
fn reservations_do_nothing_otherwise() {
    let scenario = |world: &World| {
        let block = world.alloc::<u64>(4)?;
        let reservation = world.reserve(block.sym(), "scan", 1, Location::caller());
        block.sym().fill(1);
        world.ctx::<Shared>().p(block.sym(), 1, 1 - world.me())?;
        drop(reservation);
        world.free(block)
    };
    job(2, |builder| builder, scenario).into_iter().for_each(|pe| pe.unwrap());
}

/// A lock that is held where it is freed or moved is an error of all PEs, and stays usable.
#[test]
fn memory_with_a_lock_that_is_held_is_not_freed() {
    for n in [1, 3] {
        checked(n, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let mut block = world.alloc_zeroed::<u64>(8)?;
            let lock = world.object_at::<u64>(block.sym().at(2)?.offset(), 1)?;
            if me == n - 1 {
                ctx.set_lock(lock)?;
            }
            let result = world.realloc(&mut block, 100);
            let report =
                format!("PE {} calls realloc(offset {}, in which it holds a lock)", n - 1, block.sym().offset());
            match kind_of(&result) {
                ErrorKind::Lock { pe: 0, call: "realloc", offset, .. } if n == 1 => assert_eq!(*offset, lock.offset()),
                ErrorKind::Mismatch { report: text } => assert!(n > 1 && text.contains(&report), "{text}"),
                other => panic!("{other}"),
            }
            let spare = world.alloc_zeroed::<u64>(1)?;
            if me == n - 1 {
                assert!(ctx.test_lock(spare.sym())?);
            }
            let result = world.free(spare);
            match kind_of(&result) {
                ErrorKind::Lock { call: "free", why, .. } if n == 1 => assert_eq!(*why, "this PE holds it"),
                ErrorKind::Mismatch { report } => assert!(n > 1 && report.contains("in which it holds a lock")),
                other => panic!("{other}"),
            }
            if me == n - 1 {
                ctx.clear_lock(lock)?;
            }
            world.barrier_all()?;
            world.free(block)
        });
    }
}

/// An allocation that differs names both sizes and both places, whether or not checked mode is on, and however long their
/// names are.
#[test]
fn an_asymmetric_allocation_names_both_places() {
    for check in ["0", "1"] {
        let pes = job(
            3,
            |builder| builder.set("SHMEM_CHECK", check).unwrap(),
            |world| {
                let (result, line) = if world.me() == 2 {
                    (world.alloc::<u64>(2).map(|_| ()), line!())
                } else {
                    (world.align::<u64>(4096, 1_000_000_000).map(|_| ()), line!())
                };
                let lines = world.alloc_zeroed::<u64>(3)?;
                for pe in 0..3 {
                    world.ctx::<Shared>().p(lines.sym().at(world.me())?, line.into(), pe)?;
                }
                world.barrier_all()?;
                let [most, _, odd] = lines.sym().to_vec()[..] else { panic!("three") };
                let report = format!(
                    "the PEs of the team disagree: PE 2 calls alloc(16 bytes) at tests/check.rs:{odd}, PEs 0-1 call \
                     alloc(8000000000 bytes, aligned to 4096) at tests/check.rs:{most}"
                );
                assert_eq!(text_of(result), report);
                world.free(lines)
            },
        );
        pes.into_iter().for_each(|pe| pe.unwrap());
    }
}

/// C07, P08: a count that is too large for its object is an error with both numbers, in any mode.
#[test]
fn a_count_that_leaves_its_object_is_an_error_with_both_numbers() {
    checked(2, |world| {
        let (ctx, block) = (world.ctx::<Shared>(), world.alloc::<u8>(8)?);
        // The bits of a pointer where its bytes were meant.
        let count = usize::BITS as usize;
        assert!(
            text_of(ctx.put(block.sym(), &vec![1; count], 0)).contains("0..64 lie outside a symmetric object of 8")
        );
        assert!(text_of(ctx.get(&mut vec![1; count], block.sym(), 0)).contains("0..64"));
        world.free(block)
    });
}

#[test]
fn checked_mode_is_on_for_all_or_for_none() {
    let pes =
        job_by_pe(3, |pe, builder| builder.set("SHMEM_CHECK", if pe == 1 { "1" } else { "0" }).unwrap(), |_| Ok(()));
    for pe in pes {
        let text = text_of(pe);
        assert_eq!(text, "SHMEM_CHECK differs between the PEs: PE 1 has 1, PEs 0 and 2 have 0");
    }
}

/// Runs a scenario in checked mode as processes: what they said of it, PE by PE.
fn said(test: &str, n: usize, scenario: impl Fn(&World) -> Result<()>) -> Option<Vec<Vec<String>>> {
    if is_child(test) {
        child(|builder| builder.set("SHMEM_CHECK", "1").unwrap(), scenario);
        return None;
    }
    let lines = |pe: Ended| {
        // The test itself may have said something on the same line before.
        let lines = pe.output.lines().filter_map(|line| line.split_once("shmem: check: "));
        lines.map(|(_, line)| line.to_owned()).collect()
    };
    Some(spawn(test, n, |_, command| command).into_iter().map(lines).collect())
}

#[test]
fn what_is_left_over_is_reported_once() {
    let said = said("what_is_left_over_is_reported_once", 3, |world| {
        let ctx = world.ctx::<Shared>();
        for len in 1..=5 {
            let _forgotten = world.alloc::<u64>(len)?;
        }
        let _forgotten = world.channel::<u8>(0, 1, 3)?;
        let lock = world.alloc_zeroed::<u64>(1)?;
        world.free(world.alloc::<u64>(1)?)?;
        let _forgotten = world.team().split_strided(1, 1, 2)?;
        if let Some(team) = world.team().split_strided(0, 2, 2)? {
            team.destroy()?;
        }
        if world.me() == 2 {
            ctx.set_lock(lock.sym())?;
        }
        Ok(())
    });
    let Some(said) = said else { return };
    let [first, second, third] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(first.len(), 3, "{first:?}");
    assert!(first[0].starts_with("5 allocations (120 bytes), made at tests/check.rs:"), "{first:?}");
    assert!(first[0].contains(" were never freed: offsets ") && first[0].ends_with(", …"), "{first:?}");
    assert!(first[1].contains(" bytes at offset ") && first[1].contains("allocated at tests/check.rs:"), "{first:?}");
    assert!(first[2].starts_with("8 bytes at offset ") && first[2].ends_with(", were never freed"), "{first:?}");
    let [team] = second.as_slice() else { panic!("{second:?}") };
    assert!(team.starts_with("the team of PEs 1-2, made at tests/check.rs:"), "{team}");
    assert!(team.ends_with(", was never destroyed"), "{team}");
    let [lock] = third.as_slice() else { panic!("{third:?}") };
    assert!(lock.starts_with("PE 2 still holds the lock at offset "), "{lock}");
    assert!(lock.contains(", taken at tests/check.rs:"), "{lock}");
}

#[test]
fn nothing_is_said_of_a_clean_job() {
    let said = said("nothing_is_said_of_a_clean_job", 3, |world| {
        let lock = world.alloc_zeroed::<u64>(1)?;
        world.ctx::<Shared>().set_lock(lock.sym())?;
        world.ctx::<Shared>().clear_lock(lock.sym())?;
        world.free(lock)?;
        world.free(world.alloc::<u8>(0)?)?;
        world.free_channel(world.channel::<u64>(0, 1, 3)?)?;
        if let Some(team) = world.team().split_strided(0, 1, 2)? {
            ring(world).and(team.destroy())
        } else {
            ring(world)
        }
    });
    assert!(said.is_none_or(|said| said == [Vec::<String>::new(), Vec::new(), Vec::new()]));
}

/// What is left over where a PE has failed is no fault of the program.
#[test]
fn nothing_is_said_of_a_job_that_ends_by_an_error() {
    let said = said("nothing_is_said_of_a_job_that_ends_by_an_error", 3, |world| {
        let block = world.alloc::<u64>(1)?;
        if world.me() == 1 {
            return Err(shmem::Error::other("enough"));
        }
        world.barrier_all()?;
        world.free(block)
    });
    assert!(said.is_none_or(|said| said == [Vec::<String>::new(), Vec::new(), Vec::new()]));
}

/// The same through the launcher, where the setting comes from the environment.
#[test]
fn the_setting_is_read_from_the_environment() {
    if std::env::var_os("SHMEM_PE").is_some() {
        shmem::run(|world| {
            assert!(world.config().check);
            let block = world.alloc::<u64>(1)?;
            let handle = world.object_at::<u64>(block.sym().offset(), 1)?;
            world.free(block)?;
            assert!(matches!(kind_of(&handle.read(0)), ErrorKind::UseAfterFree { .. }));
            world.alloc::<u64>(1).map(|_| ())
        })
        .unwrap();
        return;
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_shmemrun"))
        .args(["-n", "2", "--timeout", "60"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_setting_is_read_from_the_environment", "--nocapture"])
        .env("SHMEM_CHECK", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("shmem: check: 8 bytes at offset").count(), 1, "{text}");
}
