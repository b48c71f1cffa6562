//! Programs in many histories: the order in which PEs get on and transfers arrive is drawn from a seed (`shmem::simulate`),
//! and whatever is drawn, every value is right; where a PE crashes or a way is cut, every PE ends, and no value is wrong.
//!
//! `HISTORIES` says how many in all, `SEED` runs one again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[path = "common/histories.rs"]
mod many;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

use common::{PATIENCE, is_child, spawn};
use many::{History, histories};
use shmem::{Cmp, ErrorKind, Fault, Private, Result, Shared, SigRef, World, simulate};

/// The same share for each.
const SHARE: u64 = 6;

/// Runs a scenario in histories without a fault and with one.
fn everywhere(test: &str, scenario: impl Fn(&World, u64) -> Result<()> + Sync) {
    histories(test, SHARE, |mut history| {
        let (n, salt) = (history.pes(), history.random.next());
        let scenario = |world: &World| scenario(world, salt);
        if history.random.below(3) > 0 {
            history.run(n, scenario);
        } else {
            let fault = history.fault(n, 400);
            history.run_with(n, fault, scenario);
        }
    });
}

/// Data before their signal: set, added, blocking or not, in parts, on shared and private lanes.
#[test]
fn signals_follow_their_data() {
    everywhere("signals_follow_their_data", |world, salt| {
        let (me, n) = (world.me(), world.n_pes());
        let (shared, private) = (world.ctx::<Shared>(), world.ctx::<Private>());
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let len = [1, 7, 40, 700][salt as usize % 4];
        let inbox = world.alloc::<u64>(len)?;
        let (bell, ack) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        let counts = world.alloc_zeroed::<u64>(2)?;
        for round in 1..=3_u64 {
            // An atomic operation that nobody waits for is before the signal, too.
            shared.atomic_inc(counts.sym(), right)?;
            private.atomic_inc(counts.sym().at(1)?, right)?;
            let of_shared = matches!((salt >> 8).wrapping_add(round) % 4, 0 | 3);
            let sent = vec![round * 1000 + me as u64; len];
            let (set, add) = (SigRef::set(bell.sym(), round), SigRef::add(bell.sym(), 1));
            match (salt >> 8).wrapping_add(round) % 4 {
                0 => shared.put_signal(inbox.sym(), &sent, set, right)?,
                1 => private.put_signal(inbox.sym(), &sent, add, right)?,
                2 => private.scope(|scope| scope.put_signal_nbi(inbox.sym(), &sent, set, right))?,
                _ => shared.scope(|scope| scope.put_signal_nbi(inbox.sym(), &sent, add, right))?,
            }
            shared.wait_until(bell.sym(), Cmp::Ge, round)?;
            assert_eq!(inbox.sym().to_vec(), vec![round * 1000 + left as u64; len], "round {round}");
            assert!(counts.sym().read(usize::from(!of_shared))? >= round, "round {round}");
            shared.signal(SigRef::add(ack.sym(), 1), left)?;
            shared.wait_until(ack.sym(), Cmp::Ge, round)?;
        }
        Ok(())
    });
}

/// What is put before a fence is there before what is put after it; that before a quiet, before anything.
#[test]
fn fence_orders_and_quiet_completes() {
    everywhere("fence_orders_and_quiet_completes", |world, salt| {
        let (me, n) = (world.me(), world.n_pes());
        let (ctx, other) = (world.ctx::<Private>(), world.ctx::<Private>());
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let len = [3, 90, 600][salt as usize % 3];
        let (data, count) = (world.alloc_zeroed::<u64>(len)?, world.alloc_zeroed::<u64>(1)?);
        let (flag, ack) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        for round in 1..=3 {
            let sent = vec![round; len];
            if (salt >> round) & 1 == 0 {
                ctx.scope(|scope| {
                    scope.put_nbi(data.sym(), &sent, right)?;
                    // An atomic operation may be overtaken, but for the fence.
                    ctx.atomic_add(count.sym(), 1, right)?;
                    ctx.fence()?;
                    ctx.p(flag.sym(), round, right)
                })?;
            } else {
                ctx.put(data.sym(), &sent, right)?;
                ctx.atomic_add(count.sym(), 1, right)?;
                ctx.quiet()?;
                other.p(flag.sym(), round, right)?;
            }
            ctx.wait(flag.sym(), |value| value >= round)?;
            assert_eq!(data.sym().to_vec(), vec![round; len], "round {round}");
            assert_eq!(count.sym().read(0)?, round, "round {round}");
            let mut got = vec![0; len];
            ctx.get(&mut got, data.sym(), left)?;
            // The left one's own left may be further.
            assert!(got.iter().all(|value| *value + 1 >= round && *value <= round + 1), "round {round}: {got:?}");
            ctx.signal(SigRef::set(ack.sym(), round), left)?;
            ctx.wait(ack.sym(), |value| value >= round)?;
        }
        Ok(())
    });
}

/// Of two PEs that each put, quiet and get, at least one sees the other's value.
#[test]
fn two_that_put_quiet_and_get_do_not_miss_each_other() {
    histories("two_that_put_quiet_and_get_do_not_miss_each_other", SHARE, |history| {
        let seen = history.run(2, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let word = world.alloc_zeroed::<u64>(1)?;
            let mut seen = Vec::new();
            for round in 1..=4 {
                ctx.p(word.sym(), round, 1 - me)?;
                ctx.quiet()?;
                seen.push(word.sym().read(0)? == round);
                world.barrier_all()?;
            }
            Ok(seen)
        });
        assert!(seen[0].iter().zip(&seen[1]).all(|(one, other)| *one || *other), "{seen:?}");
    });
}

/// What is put before a barrier is everywhere after it.
#[test]
fn barriers_complete_what_was_put() {
    everywhere("barriers_complete_what_was_put", |world, salt| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let private = world.ctx::<Private>();
        let table = world.alloc_zeroed::<[u64; 9]>(n)?;
        for round in 1..=4 {
            for pe in (0..n).map(|i| (i + salt as usize) % n) {
                let row = table.sym().at(me)?;
                if (salt >> round) & 1 == 0 { ctx.p(row, [round; 9], pe)? } else { private.p(row, [round; 9], pe)? }
            }
            world.barrier_all()?;
            assert_eq!(table.sym().to_vec(), vec![[round; 9]; n], "round {round}");
            world.sync_all()?;
        }
        world.free(table)
    });
}

/// A lock is held by one at a time, what its holder has put is there for the next, and everybody gets it.
#[test]
fn locks_exclude_and_hand_on() {
    everywhere("locks_exclude_and_hand_on", |world, salt| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let lock = world.alloc_zeroed::<u64>(1)?;
        // How often it was held, and by whom just now: both on some PE.
        let (count, holder) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        let at = salt as usize % n;
        for _ in 0..3 {
            let tries = (salt >> 8) % 4;
            if !(0..tries)
                .map(|_| ctx.test_lock(lock.sym()))
                .find(|held| !matches!(held, Ok(false)))
                .unwrap_or(Ok(false))?
            {
                ctx.set_lock(lock.sym())?;
            }
            assert_eq!(ctx.atomic_swap(holder.sym(), 1 + me as u64, at)?, 0);
            let held = ctx.g(count.sym(), at)?;
            ctx.p(count.sym(), held + 1, at)?;
            assert_eq!(ctx.atomic_swap(holder.sym(), 0, at)?, 1 + me as u64);
            ctx.clear_lock(lock.sym())?;
        }
        world.barrier_all()?;
        assert_eq!(ctx.g(count.sym(), at)?, 3 * n as u64);
        Ok(())
    });
}

/// What goes through a channel comes out in order, whole.
#[test]
fn channels_keep_order() {
    everywhere("channels_keep_order", |world, salt| {
        let (me, n) = (world.me(), world.n_pes());
        let capacity = 1 + salt as usize % 3;
        let mut channel = world.channel::<[u64; 5]>(0, n - 1, capacity)?;
        let mut back = world.channel::<u64>(n - 1, 0, 1)?;
        for i in 0..6 {
            if me == 0 {
                channel.send([i, i * i, i ^ 7, 1 << i, salt])?;
            }
            if me == n - 1 {
                assert_eq!(channel.recv()?, [i, i * i, i ^ 7, 1 << i, salt]);
                if i % 3 == 2 {
                    back.send(i)?;
                }
            }
            if me == 0 && i % 3 == 2 {
                assert_eq!(back.recv()?, i);
            }
        }
        world.free_channel(channel)?;
        world.free_channel(back)
    });
}

/// Atomic operations of both widths on the same and on neighbouring words, of all PEs on all, add up.
#[test]
fn atomics_of_both_widths_add_up() {
    everywhere("atomics_of_both_widths_add_up", |world, salt| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (wide, narrow) = (world.alloc_zeroed::<u64>(2)?, world.alloc_zeroed::<u32>(4)?);
        for round in 0..2 {
            for pe in (0..n).map(|i| (i + me + salt as usize) % n) {
                ctx.atomic_inc(wide.sym(), pe)?;
                ctx.atomic_fetch_add(narrow.sym().at(1)?, 3, pe)?;
                ctx.atomic_xor(narrow.sym().at(2)?, 1 << (4 * round + me as u64), pe)?;
                // A count again, in the way of those that must look first.
                let word = wide.sym().at(1)?;
                let mut held = ctx.g(word, pe)?;
                while held != ctx.atomic_compare_swap(word, held, held + 1, pe)? {
                    held = ctx.atomic_fetch(word, pe)?;
                }
            }
            ctx.atomic_add(narrow.sym(), 1, round as usize % n)?;
        }
        world.barrier_all()?;
        let all = n as u64;
        for word in [wide.sym(), wide.sym().at(1)?] {
            assert_eq!(ctx.atomic_fetch(word, (me + 1) % n)?, 2 * all);
        }
        assert_eq!(ctx.atomic_fetch(narrow.sym(), me)?, if me < 2 { all as u32 } else { 0 });
        assert_eq!(ctx.atomic_fetch(narrow.sym().at(1)?, me)?, 6 * all as u32);
        let bits = (0..n as u64).map(|pe| 1 << pe | 1 << (4 + pe)).fold(0, |all: u32, bits: u32| all ^ bits);
        assert_eq!(ctx.atomic_fetch(narrow.sym().at(2)?, me)?, bits);
        world.barrier_all()?;
        Ok(())
    });
}

/// Gets that nobody waits for are here after their scope, others at once; what is put from symmetric memory may change
/// when the call returns.
#[test]
fn what_was_there_is_got_and_put() {
    everywhere("what_was_there_is_got_and_put", |world, salt| {
        let (ctx, me, n) = (world.ctx::<Private>(), world.me(), world.n_pes());
        // The longest is sent from where it lies.
        let len = [1, 50, 1500][salt as usize % 3];
        let (mine, theirs) = (world.alloc::<u64>(len)?, world.alloc_zeroed::<u64>(len)?);
        let of = |pe: usize| (0..len).map(|i| (pe * 10_000 + i) as u64).collect::<Vec<_>>();
        mine.sym().copy_from(&of(me))?;
        world.barrier_all()?;
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let (mut got, mut more) = (vec![0; len], vec![0; len]);
        ctx.scope(|scope| {
            scope.get_nbi(&mut got, mine.sym(), right)?;
            scope.get_into_nbi(theirs.sym(), mine.sym(), left)?;
            scope.get_nbi(&mut more, mine.sym(), left)
        })?;
        assert!(got == of(right) && more == of(left) && theirs.sym().to_vec() == of(left));
        theirs.sym().fill(7);
        ctx.get_into(theirs.sym(), mine.sym(), right)?;
        assert!(theirs.sym().to_vec() == of(right));
        world.barrier_all()?;
        ctx.put_from(theirs.sym(), mine.sym(), right)?;
        // Now that everybody has it, it may change.
        mine.sym().fill(0);
        world.barrier_all()?;
        assert!(theirs.sym().to_vec() == of(left));
        Ok(())
    });
}

/// Teams come and go, and so does memory.
#[test]
fn teams_and_memory_come_and_go() {
    everywhere("teams_and_memory_come_and_go", |world, salt| {
        let (me, n) = (world.me(), world.n_pes());
        let block = world.alloc::<u64>(n)?;
        for round in 0..2 {
            let colour = (salt >> (me + round)) & 1;
            if let Some(team) = world.team().split_colour(Some(colour), 0)? {
                let (ctx, index, size) = (team.ctx::<Shared>(), team.me(), team.n_pes());
                (0..size).try_for_each(|pe| ctx.p(block.sym().at(index)?, me as u64, pe))?;
                team.barrier()?;
                let members: Vec<u64> = team.members().into_iter().map(|pe| pe as u64).collect();
                assert_eq!(block.sym().slice(..size)?.to_vec(), members);
                team.destroy()?;
            }
            let mut other = world.alloc_zeroed::<u32>(10 + round)?;
            world.ctx::<Shared>().p(other.sym().at(3)?, me as u32, (me + 1) % n)?;
            world.barrier_all()?;
            world.realloc(&mut other, 1000)?;
            assert_eq!(other.sym().read(3)?, ((me + n - 1) % n) as u32);
            world.free(other)?;
        }
        world.free(block)
    });
}

/// Whoever is left when a PE crashes, at whatever moment, goes on without it.
#[test]
fn those_that_are_left_go_on() {
    histories("those_that_are_left_go_on", SHARE, |mut history| {
        let n = [3, 3, 4][history.random.below(3)];
        let lost = history.random.below(n);
        let fault = Fault::Crash { pe: lost, step: history.random.below(300) as u64 };
        let ended = simulate(n, history.seed, Some(fault), |world| {
            let count = world.alloc_zeroed::<u64>(1)?;
            let rounds = (0..4).try_for_each(|_| world.barrier_all());
            match rounds {
                Ok(()) => return Ok(n),
                Err(error) if !error.kind().is_lost() || world.me() == lost => return Err(error),
                Err(_) => {}
            }
            let team = world.survivors()?;
            let members = team.members();
            assert!(members.contains(&world.me()) && !members.contains(&lost), "{members:?}");
            // One that has left because it saw no loss is lost for the others, too.
            let counted = (members.iter())
                .try_for_each(|pe| world.ctx::<Shared>().atomic_add(count.sym(), 1, *pe))
                .and_then(|()| world.barrier_all());
            match counted {
                Ok(()) => {
                    assert_eq!(world.ctx::<Shared>().atomic_fetch(count.sym(), world.me())?, members.len() as u64)
                }
                Err(error) => assert!(error.kind().is_lost(), "{error}"),
            }
            Ok(members.len())
        });
        for (pe, end) in ended.unwrap().into_iter().enumerate().filter(|(pe, _)| *pe != lost) {
            if let Err(error) = end {
                assert!(error.kind().is_lost(), "PE {pe} of {n} with {fault:?}: {error}");
            }
        }
    });
}

/// A get that fails takes nothing from those that were started before it in the same scope.
#[test]
fn what_was_started_before_a_get_that_fails_arrives() {
    let mut complete = 0;
    for seed in 0..20 {
        let fault = Fault::Crash { pe: 2, step: 2000 };
        let ended = simulate(3, seed, Some(fault), |world| {
            let me = world.me();
            let words = world.alloc::<u64>(300)?;
            words.sym().fill(7 + me as u64);
            while !matches!(world.barrier_all().map_err(|error| error.kind().is_lost()), Err(true)) {}
            if me == 2 {
                return Ok(false);
            }
            world.survivors()?;
            let ctx = world.ctx::<Shared>();
            let (mut got, mut never) = (vec![0; 300], vec![0; 300]);
            assert!(ctx.get(&mut never, words.sym(), 2).is_err_and(|error| error.kind().is_lost()));
            ctx.scope(|scope| {
                scope.get_nbi(&mut got, words.sym(), 1 - me)?;
                assert!(scope.get_nbi(&mut never, words.sym(), 2).is_err());
                Ok(())
            })?;
            assert_eq!(got, vec![8 - me as u64; 300], "seed {seed}");
            world.barrier_all().map(|()| true)
        });
        complete += ended.unwrap().into_iter().filter(|end| matches!(end, Ok(true))).count();
    }
    assert_eq!(complete, 40, "all that are left");
}

/// What each PE has seen in a history: whenever it looked at a word.
fn seen(seed: u64, fault: Option<Fault>) -> Vec<(Vec<u64>, Option<String>)> {
    let all = Mutex::new(vec![Vec::new(); 3]);
    let ended = simulate(3, seed, fault, |world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let looks = RefCell::new(Vec::new());
        let outcome = (|| {
            let (inbox, bell) = (world.alloc_zeroed::<u64>(300)?, world.alloc_zeroed::<u64>(1)?);
            for round in 1..=4_u64 {
                let signal = SigRef::add(bell.sym(), 1);
                ctx.put_signal(inbox.sym(), &[round; 300], signal, (me + 1) % n)?;
                ctx.wait(bell.sym(), |rung| {
                    let arrived = inbox.sym().to_vec().iter().filter(|value| **value == round).count();
                    looks.borrow_mut().extend([rung, arrived as u64]);
                    rung >= round
                })?;
                looks.borrow_mut().push(ctx.atomic_fetch_add(bell.sym(), 0, (me + 2) % n)?);
                world.barrier_all()?;
            }
            Ok(())
        })();
        all.lock().unwrap()[me] = looks.into_inner();
        outcome
    });
    let ends = ended.unwrap().into_iter().map(|end: Result<()>| end.err().map(|error| error.to_string()));
    all.into_inner().unwrap().into_iter().zip(ends).collect()
}

#[test]
fn a_seed_is_a_history() {
    let mut different = BTreeSet::new();
    let count = 60;
    for seed in 0..count {
        let fault = (seed % 3 == 2).then_some(Fault::Crash { pe: 1, step: 5 * seed });
        let first = seen(seed, fault);
        for _ in 0..3 {
            assert_eq!(seen(seed, fault), first, "seed {seed}");
        }
        different.insert(first);
    }
    assert!(different.len() as u64 > count / 2, "{} different histories of {count}", different.len());
}

/// Who waits for what never comes is told so, at once.
#[test]
fn waiting_in_vain_is_an_error() {
    let started = Instant::now();
    for seed in 0..100 {
        let ended = simulate(3, seed, None, |world| {
            let never = world.alloc_zeroed::<u64>(1)?;
            world.ctx::<Shared>().wait_until(never.sym(), Cmp::Eq, 1)
        });
        for end in ended.unwrap() {
            assert_kind!(end, ErrorKind::Fabric { .. } | ErrorKind::PeerLost { .. });
        }
        // A lock that its holder never gives back.
        let ended = simulate(2, seed, None, |world| {
            let lock = world.alloc_zeroed::<u64>(1)?;
            world.ctx::<Shared>().set_lock(lock.sym())
        });
        assert!(ended.unwrap().iter().any(Result::is_err), "seed {seed}");
    }
    assert!(started.elapsed() < PATIENCE);
}

/// The error and the panic of a PE.
#[test]
fn a_pe_that_fails_is_known_to_the_others() {
    for seed in 0..100 {
        let ended = simulate(3, seed, None, |world| {
            if world.me() == 1 { Err(ErrorKind::Overflow { count: 1, size: 1 }.into()) } else { world.barrier_all() }
        });
        let ended = ended.unwrap();
        assert_kind!(ended[1], ErrorKind::Overflow { .. });
        // One of the two may hear of the other's end first.
        let of_1 =
            |end: &Result<()>| matches!(end, Err(error) if matches!(error.kind(), ErrorKind::PeerLost { pe: 1, .. }));
        assert!(of_1(&ended[0]) || of_1(&ended[2]), "{ended:?}");
        assert_kind!(ended[0], ErrorKind::PeerLost { .. });
        assert_kind!(ended[2], ErrorKind::PeerLost { .. });
    }
    let panicking =
        || simulate(2, 1, None, |world| if world.me() == 0 { panic!("as told") } else { world.barrier_all() });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_kind!(simulate(0, 1, None, |_| Ok(())), ErrorKind::BadJob { .. });
}

/// Nothing is left of histories, whatever went wrong in them.
#[test]
fn nothing_is_left() {
    let test = "nothing_is_left";
    if !is_child(test) {
        let ended = spawn(test, 1, |_, command| command).remove(0);
        assert!(ended.success, "{}", ended.output);
        return;
    }
    let left = || {
        let count = |path: &str| std::fs::read_dir(path).unwrap().count();
        let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
        (count("/proc/self/task"), count("/proc/self/fd"), mapped.matches("memfd:").count())
    };
    let run = |seeds: std::ops::Range<u64>| {
        for seed in seeds {
            let mut history = History { seed, random: common::Random(seed) };
            let fault = history.fault(3, 300);
            seen(seed, Some(fault));
        }
    };
    run(0..3);
    let before = left();
    run(3..60);
    assert_eq!(left(), before);
}
