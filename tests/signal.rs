//! Put with signal, and every way to wait for and test symmetric variables.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{everywhere, job, processes, scaled};
use shmem::{AmoInt, Cmp, ErrorKind, Result, Shared, SigRef, Values, World};

/// G04: whoever sees the signal sees the data; with set and with add, many rounds of 1 to 256 bytes round the ring,
/// flow-controlled by signals alone.
fn data_before_signal(world: &World, rounds: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let inbox = world.alloc_zeroed::<u8>(256)?;
    let bells = world.alloc_zeroed::<u64>(2)?;
    let (arrived, taken) = (bells.sym().at(0)?, bells.sym().at(1)?);
    for round in 1..=rounds as u64 {
        let len = 1 + (round * 37 % 256) as usize;
        let at = (round as usize * 11) % (257 - len);
        let object = inbox.sym().slice(at..at + len)?;
        let stamp = |pe: usize| (round * 29 + pe as u64) as u8;
        let signal = if round % 3 == 0 { SigRef::add(arrived, 1) } else { SigRef::set(arrived, round) };
        let mine = vec![stamp(me); len];
        if round % 2 == 0 {
            ctx.scope(|scope| scope.put_signal_nbi(object, &mine, signal, right))?;
        } else {
            ctx.put_signal(object, &mine, signal, right)?;
        }
        assert_eq!(ctx.wait_until(arrived, Cmp::Ge, round)?, round);
        let got = object.to_vec();
        assert!(got.iter().all(|byte| *byte == stamp(left)), "round {round}: the signal overtook its data: {got:?}");
        ctx.signal(SigRef::add(taken, 1), left)?;
        ctx.wait(taken, |count| count >= round)?;
    }
    assert_eq!(ctx.signal_fetch(arrived)?, rounds as u64);
    world.free(inbox)?;
    world.free(bells)
}

#[test]
fn data_is_visible_before_its_signal() {
    everywhere(|world| data_before_signal(world, scaled(world, if world.n_pes() > 3 { 5000 } else { 50_000 })));
}

#[test]
fn data_before_signal_as_processes() {
    processes("data_before_signal_as_processes", &[1, 2, 3, 5, 8, 16], |world| {
        data_before_signal(world, scaled(world, if world.n_pes() > 2 { 5000 } else { 50_000 }))
    });
}

#[test]
fn zero_bytes_still_signal() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (nothing, bell) = (world.alloc::<u64>(0)?, world.alloc_zeroed::<u64>(1)?);
        ctx.put_signal(nothing.sym(), &[], SigRef::set(bell.sym(), 5), (me + 1) % n)?;
        assert_eq!(ctx.wait_until(bell.sym(), Cmp::Eq, 5)?, 5);
        world.free(nothing)?;
        world.free(bell)
    });
}

const CMPS: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le];

/// A comparison in its own words, so as not to test the library against itself.
fn holds(cmp: Cmp, a: i128, b: i128) -> bool {
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
    }
}

/// Every comparison of every kind of test and (where it holds) wait, over sets of variables with and without status and
/// value vectors.
fn every_comparison<T: AmoInt + Into<i128> + std::fmt::Debug>(world: &World, samples: &[T]) -> Result<()> {
    let ctx = world.ctx::<Shared>();
    let len = samples.len();
    let block = world.alloc::<T>(len)?;
    let variables = block.sym();
    variables.copy_from(samples)?;
    let reversed: Vec<T> = samples.iter().rev().copied().collect();
    let statuses: [Vec<i32>; 4] = [vec![], vec![0; len], (0..len as i32).map(|i| i % 2).collect(), vec![-1; len]];
    for cmp in CMPS {
        for (i, &value) in samples.iter().enumerate() {
            for (j, &variable) in samples.iter().enumerate() {
                let wanted = holds(cmp, variable.into(), value.into());
                assert_eq!(ctx.test(variables.at(j)?, cmp, value)?, wanted, "{variable:?} {cmp:?} {value:?}");
                if wanted {
                    assert_eq!(ctx.wait_until(variables.at(j)?, cmp, value)?, variable);
                }
            }
            for status in &statuses {
                for each in [false, true] {
                    let against = |j: usize| if each { reversed[j] } else { samples[i] };
                    let members: Vec<usize> = (0..len).filter(|j| status.get(*j).is_none_or(|s| *s == 0)).collect();
                    let found: Vec<usize> = (members.iter().copied())
                        .filter(|j| holds(cmp, samples[*j].into(), against(*j).into()))
                        .collect();
                    let values = || if each { Values::Each(&reversed) } else { Values::Same(value) };
                    assert_eq!(ctx.test_some(variables, status, cmp, values())?, found);
                    assert_eq!(ctx.test_all(variables, status, cmp, values())?, found == members);
                    let any = ctx.test_any(variables, status, cmp, values())?;
                    assert!(any.map_or(found.is_empty(), |any| found.contains(&any)));
                    if found == members {
                        ctx.wait_until_all(variables, status, cmp, values())?;
                    }
                    if !found.is_empty() || members.is_empty() {
                        assert_eq!(ctx.wait_until_some(variables, status, cmp, values())?, found);
                        let any = ctx.wait_until_any(variables, status, cmp, values())?;
                        assert!(any.map_or(found.is_empty(), |any| found.contains(&any)));
                    }
                }
            }
        }
    }
    world.free(block)
}

#[test]
fn every_comparison_on_one_all_any_some() {
    everywhere(|world| {
        every_comparison::<i32>(world, &[0, -1, i32::MAX, i32::MIN, 7])?;
        every_comparison::<u32>(world, &[0, u32::MAX, 1 << 31, 7])?;
        every_comparison::<i64>(world, &[0, -1, i64::MAX, i64::MIN, 1 << 32])?;
        every_comparison::<u64>(world, &[0, u64::MAX, 1 << 63, 1 << 32])
    });
}

#[test]
fn empty_and_excluded_sets_end_at_once() {
    everywhere(|world| {
        let ctx = world.ctx::<Shared>();
        let (none, two) = (world.alloc::<u64>(0)?, world.alloc_zeroed::<u64>(2)?);
        for (variables, status) in [(none.sym(), &[][..]), (two.sym(), &[1, 1][..])] {
            ctx.wait_until_all(variables, status, Cmp::Eq, 9)?;
            assert_eq!(ctx.wait_until_any(variables, status, Cmp::Eq, 9)?, None);
            assert_eq!(ctx.wait_until_some(variables, status, Cmp::Eq, 9)?, []);
            assert!(ctx.test_all(variables, status, Cmp::Eq, 9)?);
            assert_eq!(ctx.test_any(variables, status, Cmp::Eq, 9)?, None);
            assert_eq!(ctx.test_some(variables, status, Cmp::Eq, 9)?, []);
        }
        world.free(none)?;
        world.free(two)
    });
}

/// Waits on sets that other PEs fill one by one: `any` and `some` with the status vector as the list of what is done.
fn sets_filled_by_others(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let flags = world.alloc_zeroed::<u64>(3 * n)?;
    let (any, some, all) = (flags.sym().slice(..n)?, flags.sym().slice(n..2 * n)?, flags.sym().slice(2 * n..)?);
    for to in 0..n {
        ctx.signal(SigRef::set(any.at(me)?, me as u64 + 1), to)?;
        ctx.atomic_add(some.at(me)?, me as u64 + 1, to)?;
        ctx.p(all.at(me)?, me as u64 + 1, to)?;
    }
    ctx.quiet()?;
    let (mut status, mut order) = (vec![0; n], Vec::new());
    while let Some(i) = ctx.wait_until_any(any, &status, Cmp::Ne, 0)? {
        status[i] = 1;
        order.push(i);
    }
    order.sort_unstable();
    assert_eq!(order, (0..n).collect::<Vec<_>>());
    let (mut status, mut count) = (vec![0; n], 0);
    while count < n {
        for i in ctx.wait_until_some(some, &status, Cmp::Gt, 0)? {
            assert_eq!(std::mem::replace(&mut status[i], 1), 0, "{i} came twice");
            count += 1;
        }
    }
    let wanted: Vec<u64> = (1..=n as u64).collect();
    ctx.wait_until_all(all, &[], Cmp::Eq, &*wanted)?;
    assert_eq!(all.to_vec(), wanted);
    world.free(flags)
}

#[test]
fn sets_are_filled_by_others() {
    everywhere(|world| (0..20).try_for_each(|_| sets_filled_by_others(world)));
}

#[test]
fn sets_are_filled_by_others_as_processes() {
    processes("sets_are_filled_by_others_as_processes", &[1, 2, 3, 5, 8, 16], |world| {
        (0..20).try_for_each(|_| sets_filled_by_others(world))
    });
}

#[test]
fn all_need_not_hold_at_the_same_time() {
    // PE 1 sets and resets the first flag before it sets the second; PE 0, which saw the first, must not wait for it
    // again.
    shmem::local(2, |world| {
        let ctx = world.ctx::<Shared>();
        let flags = world.alloc_zeroed::<u64>(3)?;
        let pair = flags.sym().slice(..2)?;
        if world.me() == 0 {
            pair.write(0, 1)?;
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ctx.signal(SigRef::set(flags.sym().at(2).unwrap(), 1), 1).unwrap();
                    ctx.wait_until_all(pair, &[], Cmp::Eq, 1).unwrap();
                    done.store(true, std::sync::atomic::Ordering::Release);
                });
            });
            assert!(done.into_inner());
        } else {
            ctx.wait_until(flags.sym().at(2)?, Cmp::Eq, 1)?;
            // Long enough for the waiter to have looked; if it has not, it sees 1 later, since nothing else changes the
            // flag.
            std::thread::sleep(std::time::Duration::from_millis(20));
            ctx.atomic_set(pair.at(1)?, 1, 0)?;
        }
        world.barrier_all()?;
        world.free(flags)
    })
    .unwrap();
}

/// G13: an addition that carries from the low into the high half of a word is seen whole.
#[test]
fn a_waiter_never_sees_half_of_an_addition() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let rounds = scaled(world, 3000) as u64;
        let block = world.alloc_zeroed::<u64>(2)?;
        let (word, back) = (block.sym().at(0)?, block.sym().at(1)?);
        // Each round goes from just below to just above the next multiple of 2^32, in steps by all other PEs.
        for round in 1..=rounds {
            let from = round << 32;
            if me == 0 {
                word.write(0, from - n as u64 + 1)?;
                world.barrier_all()?;
                let seen = ctx.wait_until(word, Cmp::Ge, from)?;
                assert!(n == 1 || seen == from, "{seen:#x} in round {round}");
                ctx.atomic_set(back, round, (n - 1) % n)?;
            } else {
                world.barrier_all()?;
                ctx.atomic_add(word, 1, 0)?;
            }
            world.barrier_all()?;
        }
        world.free(block)
    });
}

/// G14: of two values that a word toggles between, a waiter sees no third.
fn toggling(world: &World, rounds: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (low, high) = (0x0000_0000_ffff_ffff_u64, 0xffff_ffff_0000_0000_u64);
    let words = world.alloc::<u64>(2)?;
    words.sym().fill(low);
    world.barrier_all()?;
    let right = (me + 1) % n;
    let toggles = std::thread::scope(|scope| -> Result<u64> {
        let looking = scope.spawn(|| -> Result<u64> {
            let mut changes = 0;
            let mut last = low;
            // The writer's last value is 0 in both halves.
            loop {
                let seen = ctx.wait(words.sym().at(0)?, |value| value != last)?;
                assert!(seen == low || seen == high || seen == 0, "torn: {seen:#x}");
                if seen == 0 {
                    return Ok(changes);
                }
                (changes, last) = (changes + 1, seen);
            }
        });
        for i in 0..rounds {
            let value = if i % 2 == 0 { high } else { low };
            match i % 3 {
                0 => ctx.p(words.sym().at(0)?, value, right)?,
                1 => ctx.put(words.sym().at(0)?, &[value], right)?,
                _ => ctx.signal(SigRef::set(words.sym().at(0)?, value), right)?,
            }
        }
        ctx.quiet()?;
        ctx.signal(SigRef::set(words.sym().at(0)?, 0), right)?;
        looking.join().unwrap()
    })?;
    assert!(toggles <= rounds as u64);
    world.barrier_all()?;
    world.free(words)
}

#[test]
fn no_torn_value_releases_a_waiter() {
    everywhere(|world| toggling(world, scaled(world, 50_000)));
}

#[test]
fn no_torn_value_as_processes() {
    processes("no_torn_value_as_processes", &[2, 3], |world| toggling(world, 50_000));
}

/// C13: a signal arrives without a further call of the PE that sent it, which blocks outside the library meanwhile.
fn without_a_further_call(world: &World) -> Result<()> {
    use std::io::{Read, Write};
    let (ctx, me) = (world.ctx::<Shared>(), world.me());
    let (inbox, bell) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
    let (port, text) = (world.alloc_zeroed::<u64>(1)?, [42]);
    if me == 0 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = u64::from(listener.local_addr().unwrap().port());
        ctx.scope(|scope| {
            ctx.put(port.sym(), &[number], 1)?;
            scope.put_signal_nbi(inbox.sym(), &text, SigRef::set(bell.sym(), 1), 1)?;
            // Inside the scope: nothing has been completed here yet.
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            Ok(())
        })?;
    } else if me == 1 {
        ctx.wait_until(bell.sym(), Cmp::Eq, 1)?;
        assert_eq!(inbox.sym().read(0)?, 42);
        let port = port.sym().read(0)? as u16;
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&[1]).unwrap();
    }
    world.barrier_all()?;
    world.free(inbox)?;
    world.free(bell)?;
    world.free(port)
}

#[test]
fn a_signal_needs_no_further_call() {
    shmem::local(2, without_a_further_call).unwrap();
    for pe in common::job(2, |builder| builder.set("SHMEM_ROUTE", "sim").unwrap(), without_a_further_call) {
        pe.unwrap();
    }
}

#[test]
fn a_signal_needs_no_further_call_as_processes() {
    processes("a_signal_needs_no_further_call_as_processes", &[2], without_a_further_call);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    everywhere(|world| {
        let ctx = world.ctx::<Shared>();
        let block = world.alloc_zeroed::<u64>(3)?;
        let all = block.sym();
        assert_kind!(ctx.test_all(all, &[0, 0], Cmp::Eq, 0), ErrorKind::Length { what: "status", given: 2, needed: 3 });
        assert_kind!(
            ctx.wait_until_any(all, &[], Cmp::Eq, &[0, 0, 0, 0]),
            ErrorKind::Length { what: "values", given: 4, needed: 3 }
        );
        let none = all.slice(3..)?;
        assert_kind!(ctx.test(none, Cmp::Eq, 0), ErrorKind::OutOfRange { start: 0, end: 1, len: 0 });
        assert_kind!(ctx.wait(none, |_| true), ErrorKind::OutOfRange { start: 0, end: 1, len: 0 });
        assert_kind!(ctx.signal_fetch(none), ErrorKind::OutOfRange { start: 0, end: 1, len: 0 });
        assert_kind!(ctx.signal(SigRef::set(none, 1), 0), ErrorKind::OutOfRange { start: 0, end: 1, len: 0 });
        // The data must not arrive where its signal cannot.
        assert_kind!(ctx.put_signal(all, &[9], SigRef::add(none, 1), 0), ErrorKind::OutOfRange { .. });
        assert_kind!(
            ctx.put_signal(all, &[9], SigRef::add(all, 1), world.n_pes()),
            ErrorKind::NoSuchPe { pe, n_pes } if pe == n_pes
        );
        // Nor the signal where the data does not fit.
        assert_kind!(ctx.put_signal(none, &[9], SigRef::add(all, 1), 0), ErrorKind::OutOfRange { end: 1, len: 0, .. });
        world.barrier_all()?;
        assert_eq!(all.to_vec(), [0; 3]);
        world.free(block)
    });
}

/// A wait for a PE ends with what it writes, whoever else is lost; or with its own loss, or names it when the time is up.
#[test]
fn a_wait_for_a_pe_knows_that_pe_alone() {
    let patience = |builder: shmem::Builder| builder.timeout(std::time::Duration::from_secs(1));
    let ended = job(3, patience, |world| {
        let (ctx, bells) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(3)?);
        let bell = |pe: usize| bells.sym().at(pe);
        match world.me() {
            0 => {
                while !matches!(ctx.wait_from(bell(2)?, 2, |rung| rung == 1), Err(error) if error.kind().is_lost()) {}
                ctx.signal(SigRef::set(bell(0)?, 1), 1)?;
                assert_eq!(ctx.wait_from(bell(1)?, 1, |rung| rung > 0)?, 7);
                let error = ctx.wait_from(bell(1)?, 1, |rung| rung == 8).unwrap_err();
                assert!(error.to_string().contains("it waits for PE 1"), "{error}");
                assert_kind!(ctx.wait_from(bell(1)?, 3, |rung| rung == 8), ErrorKind::NoSuchPe { pe: 3, n_pes: 3 });
            }
            1 => {
                ctx.wait_from(bell(0)?, 0, |rung| rung == 1)?;
                ctx.signal(SigRef::set(bell(1)?, 7), 0)?;
                std::thread::sleep(std::time::Duration::from_secs(2));
            }
            _ => world.abandon(),
        }
        Ok(())
    });
    for pe in ended {
        pe.unwrap();
    }
}
