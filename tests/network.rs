//! PEs on several hosts, with a network between them and shared memory inside each: one machine plays the hosts. The
//! network is the simulated one, or, in the Soft-RoCE guest (`ci/softroce.sh`, `SHMEM_TEST_ROUTE=roce`), a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{PATIENCE, Random, Sum, child, child_builder, is_child, job, kind_of, spawn};
use shmem::{AmoInt, Builder, Cmp, ErrorKind, Private, Result, Shared, SigRef, World};
use std::net::Ipv6Addr;
use std::time::Instant;

/// PEs and the hosts that they are dealt to.
const PLACES: [(usize, usize); 4] = [(2, 2), (4, 2), (3, 3), (2, 1)];

/// Those of a network that is slow: in the guest, a small transfer takes a thousand times longer than elsewhere.
fn places() -> &'static [(usize, usize)] {
    if is_real() { &PLACES[..3] } else { &PLACES }
}

fn is_real() -> bool {
    std::env::var("SHMEM_TEST_ROUTE").is_ok()
}

/// Several hosts and the network.
fn settings(builder: Builder, hosts: usize) -> Builder {
    let route = std::env::var("SHMEM_TEST_ROUTE").unwrap_or_else(|_| "sim".into());
    let set = |builder: Builder, name, value: &str| builder.set(name, value).unwrap();
    set(set(builder.heap(8 << 20), "SHMEM_HOSTS", &hosts.to_string()), "SHMEM_ROUTE", &route)
}

/// Runs a scenario as threads at all places.
fn everywhere(scenario: impl Fn(&World) -> Result<()> + Sync) {
    for &(n, hosts) in places() {
        let scenario = |world: &World| {
            scenario(world).inspect_err(|error| {
                eprintln!("PE {} of {n} on {hosts} hosts: {error}", world.me());
                world.abandon();
            })
        };
        for pe in job(n, |builder| settings(builder, hosts), scenario) {
            pe.unwrap_or_else(|error| panic!("{n} PEs on {hosts} hosts: {error}"));
        }
    }
}

#[test]
fn hosts_share_memory_inside_and_a_network_between() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (team, word) = (world.team(), world.alloc::<u64>(1)?);
        let hosts = team.hosts();
        let local = world.shared_team().members();
        assert!((0..n).all(|pe| (hosts[pe] == hosts[me]) == local.contains(&pe)));
        let alone = hosts.iter().all(|host| *host == 0);
        for pe in 0..n {
            let mapped = pe == me || hosts[pe] == hosts[me] && !alone;
            assert_eq!(ctx.ptr(word.sym(), pe)?.is_some(), mapped, "PE {pe} as PE {me} sees it");
        }
        world.free(word)
    });
}

/// Every size, from and to private and symmetric memory, blocking and not, to every PE.
#[test]
fn bytes_of_all_sizes_arrive_where_they_belong() {
    const SIZES: [usize; 14] = [0, 1, 2, 7, 8, 63, 64, 65, 255, 257, 4095, 65_537, 200_001, 1 << 20];
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let (from, to) = (world.alloc::<u8>(1 << 20)?, world.alloc::<u8>((1 << 20) + 2)?);
        let byte = |pe: usize, size: usize, i: usize| (pe * 31 + size * 7 + i * 13) as u8;
        let slow = is_real() && n > 2;
        for size in SIZES.into_iter().filter(|size| !slow || *size < 100_000) {
            let sent = |pe: usize| (0..size).map(|i| byte(pe, size, i)).collect::<Vec<u8>>();
            let (mine, source, target) = (sent(me), from.sym().slice(..size)?, to.sym().slice(1..size + 1)?);
            source.copy_from(&mine)?;
            for form in 0..4 {
                to.sym().fill(0xee);
                world.barrier_all()?;
                match form {
                    0 => ctx.put(target, &mine, right)?,
                    1 => ctx.put_from(target, source, right)?,
                    2 => ctx.scope(|scope| scope.put_nbi(target, &mine, right))?,
                    _ => ctx.scope(|scope| scope.put_from_nbi(target, source, right))?,
                }
                world.barrier_all()?;
                let whole = to.sym().to_vec();
                assert!(whole[1..=size] == sent(left), "{size} bytes put in form {form}");
                assert!(whole[0] == 0xee && whole[size + 1..].iter().all(|byte| *byte == 0xee), "nothing else");
                world.barrier_all()?;
            }
            let mut got = vec![0; size];
            ctx.get(&mut got, source, right)?;
            assert!(got == sent(right), "{size} bytes got");
            got.fill(0);
            ctx.scope(|scope| scope.get_nbi(&mut got, source, right))?;
            assert!(got == sent(right), "{size} bytes got, not blocking");
            ctx.get_into(target, source, left)?;
            assert!(target.to_vec() == sent(left), "{size} bytes got into symmetric memory");
            ctx.scope(|scope| scope.get_into_nbi(target, source, right))?;
            assert!(target.to_vec() == sent(right), "{size} bytes got into symmetric memory, not blocking");
            world.barrier_all()?;
        }
        world.free(from)?;
        world.free(to)
    });
}

#[test]
fn strided_and_single_elements() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let table = world.alloc_zeroed::<u32>(64)?;
        ctx.iput(table.sym(), 3, &(0..20).map(|i| (100 * me + i) as u32).collect::<Vec<_>>(), 2, 10, right)?;
        world.barrier_all()?;
        let expected = |i: usize| if i.is_multiple_of(3) && i < 30 { (100 * left + i / 3 * 2) as u32 } else { 0 };
        assert!(table.sym().to_vec().into_iter().enumerate().all(|(i, value)| value == expected(i)));
        let mut some = [0; 5];
        ctx.iget(&mut some, 1, table.sym(), 6, 5, right)?;
        assert_eq!(some, [0, 4, 8, 12, 16].map(|i| (100 * me + i) as u32));
        world.barrier_all()?;
        ctx.p(table.sym().at(63)?, 7 + me as u32, right)?;
        world.barrier_all()?;
        assert_eq!((table.sym().read(63)?, ctx.g(table.sym().at(63)?, right)?), (7 + left as u32, 7 + me as u32));
        world.free(table)
    });
}

fn counts<T: AmoInt + std::fmt::Debug>(world: &World, of: impl Fn(u64) -> T) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let words = world.alloc_zeroed::<T>(8)?;
    let word = |i| words.sym().at(i);
    // All PEs count on all, this one's own included, each by another operation at a time.
    const ROUNDS: u64 = 20;
    for _ in 0..ROUNDS {
        for pe in 0..n {
            ctx.atomic_add(word(0)?, of(2), pe)?;
            ctx.atomic_inc(word(1)?, pe)?;
            ctx.atomic_fetch_add(word(1)?, of(1), pe)?;
            ctx.atomic_fetch_xor(word(2)?, of(1 << me), pe)?;
            ctx.atomic_or(word(3)?, of(1 << me), pe)?;
        }
    }
    world.barrier_all()?;
    let all = n as u64;
    assert_eq!(ctx.atomic_fetch(word(0)?, me)?, of(2 * ROUNDS * all));
    assert_eq!(ctx.atomic_fetch(word(1)?, (me + 1) % n)?, of(2 * ROUNDS * all));
    assert_eq!((words.sym().read(2)?, words.sym().read(3)?), (of(0), of((1 << n) - 1)), "an even number of times");
    world.barrier_all()?;
    // Of the rest, each PE has a word of its own on its right neighbour.
    let right = (me + 1) % n;
    assert_eq!(ctx.atomic_swap(word(4)?, of(9), right)?, of(0));
    assert_eq!(ctx.atomic_compare_swap(word(4)?, of(8), of(1), right)?, of(9), "not what was expected");
    assert_eq!(ctx.atomic_compare_swap(word(4)?, of(9), of(6), right)?, of(9));
    assert_eq!(ctx.atomic_fetch_and(word(4)?, of(3), right)?, of(6));
    ctx.atomic_set(word(5)?, of(5), right)?;
    ctx.atomic_xor(word(5)?, of(1), right)?;
    ctx.atomic_and(word(5)?, of(6), right)?;
    world.barrier_all()?;
    assert_eq!((words.sym().read(4)?, words.sym().read(5)?), (of(2), of(4)));
    world.free(words)
}

#[test]
fn atomics_of_both_widths_count_whoever_counts() {
    everywhere(|world| {
        counts::<u64>(world, |value| value)?;
        counts::<i32>(world, |value| value as i32)?;
        let (ctx, floats) = (world.ctx::<Shared>(), world.alloc_zeroed::<f32>(3)?);
        world.barrier_all()?;
        let right = (world.me() + 1) % world.n_pes();
        assert_eq!(ctx.atomic_swap(floats.sym().at(1)?, 1.5, right)?, 0.0);
        world.barrier_all()?;
        assert_eq!(floats.sym().to_vec(), [0.0, 1.5, 0.0]);
        world.free(floats)
    });
}

/// Data come before their signal, however large, set or added, on any lane.
#[test]
fn signals_follow_their_data() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let (shared, private) = (world.ctx::<Shared>(), world.ctx::<Private>());
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let inbox = world.alloc::<u64>(20_000)?;
        let (bell, count, ack) =
            (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        for round in 1..=30_u64 {
            let len = [1, 3, 40, 20_000][round as usize % 4];
            let sent = vec![round * 1000 + me as u64; len];
            match round % 3 {
                0 => shared.put_signal(inbox.sym(), &sent, SigRef::set(bell.sym(), round), right)?,
                1 => private.put_signal(inbox.sym(), &sent, SigRef::set(bell.sym(), round), right)?,
                _ => {
                    let signal = SigRef::set(bell.sym(), round);
                    private.scope(|scope| scope.put_signal_nbi(inbox.sym(), &sent, signal, right))?;
                }
            }
            shared.wait(bell.sym(), |rung| rung >= round)?;
            let expected = vec![round * 1000 + left as u64; len];
            assert!(inbox.sym().slice(..len)?.to_vec() == expected, "round {round}");
            shared.signal(SigRef::set(ack.sym(), round), left)?;
            shared.wait_until(ack.sym(), Cmp::Ge, round)?;
            shared.signal(SigRef::add(count.sym(), 1), right)?;
        }
        shared.wait_until(count.sym(), Cmp::Eq, 30)?;
        world.barrier_all()?;
        world.free(inbox)?;
        world.free(bell)?;
        world.free(count)?;
        world.free(ack)
    });
}

/// A fence orders what one context puts, and quiet completes it.
#[test]
fn fence_orders_and_quiet_completes() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Private>(), world.me(), world.n_pes());
        let right = (me + 1) % n;
        let (data, flag) = (world.alloc_zeroed::<u64>(600)?, world.alloc_zeroed::<u64>(1)?);
        for round in 1..=30 {
            let sent = [round; 600];
            ctx.scope(|scope| {
                scope.put_nbi(data.sym(), &sent, right)?;
                ctx.fence()?;
                ctx.p(flag.sym(), round, right)
            })?;
            ctx.wait(flag.sym(), |value| value >= round)?;
            assert!(data.sym().to_vec().iter().all(|value| *value >= round), "round {round}");
            ctx.quiet()?;
            assert!(ctx.g(data.sym().at(599)?, right)? >= round);
            world.barrier_all()?;
        }
        world.free(data)?;
        world.free(flag)
    });
}

#[test]
fn barriers_locks_teams_and_channels() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let arrived = world.alloc_zeroed::<u64>(n)?;
        for round in 1..=20 {
            for pe in 0..n {
                ctx.p(arrived.sym().at(me)?, round, pe)?;
            }
            world.barrier_all()?;
            assert!(arrived.sym().to_vec().iter().all(|value| *value >= round));
        }
        world.barrier_all()?;
        let (lock, count) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
        for _ in 0..10 {
            ctx.set_lock(lock.sym())?;
            let value = ctx.g(count.sym(), 0)?;
            ctx.p(count.sym(), value + 1, 0)?;
            ctx.clear_lock(lock.sym())?;
        }
        world.barrier_all()?;
        assert_eq!(ctx.g(count.sym(), 0)?, 10 * n as u64);
        if let Some(team) = world.team().split_strided(0, 2, n.div_ceil(2))? {
            let ctx = team.ctx::<Shared>();
            ctx.put(arrived.sym(), &[77 + me as u64], (team.me() + 1) % team.n_pes())?;
            team.barrier()?;
            let left = team.members()[(team.me() + team.n_pes() - 1) % team.n_pes()];
            assert_eq!(arrived.sym().read(0)?, 77 + left as u64);
            team.destroy()?;
        }
        let mut channel = world.channel::<[u64; 3]>(0, n - 1, 4)?;
        for i in 0..20 {
            if me == 0 {
                channel.send([i, i * i, 7])?;
            }
            if me == n - 1 {
                assert_eq!(channel.recv()?, [i, i * i, 7]);
            }
        }
        world.free_channel(channel)?;
        world.free(lock)?;
        world.free(count)?;
        world.free(arrived)
    });
}

#[test]
fn folds_reach_across_hosts() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (mine, sum) = (world.alloc::<u64>(40_000)?, world.alloc::<u64>(40_000)?);
        mine.sym().copy_from(&(0..40_000).map(|i| i + 1000 * me as u64).collect::<Vec<_>>())?;
        world.barrier_all()?;
        let from: Vec<_> = (0..n).map(|pe| (mine.sym(), pe)).collect();
        ctx.fold(&from, &[(sum.sym(), (me + 1) % n)], &Sum)?;
        world.barrier_all()?;
        let base = 1000 * (n * (n - 1) / 2) as u64;
        assert!(sum.sym().to_vec().into_iter().enumerate().all(|(i, value)| value == base + (n * i) as u64));
        world.free(mine)?;
        world.free(sum)
    });
}

/// All-reduce and all-to-all, small and large, chosen as between hosts.
#[test]
fn collectives_between_hosts() {
    use shmem_collectives::Coll;
    use shmem_collectives::op::Sum;
    everywhere(|world| {
        let (me, n, team) = (world.me(), world.n_pes(), world.team());
        let coll = Coll::new(world, &team)?;
        for len in [1, 5, 1000, 70_001] {
            let (src, dst) = (world.alloc::<u64>(n * len)?, world.alloc::<u64>(n * len)?);
            let block =
                |from: usize, to: usize| (0..len).map(|i| (from * 100 + to * 10 + i) as u64).collect::<Vec<_>>();
            let mine: Vec<u64> = (0..n).flat_map(|to| block(me, to)).collect();
            src.sym().copy_from(&mine)?;
            coll.all_to_all(dst.sym(), src.sym())?;
            let expected: Vec<u64> = (0..n).flat_map(|from| block(from, me)).collect();
            assert!(dst.sym().to_vec() == expected, "all-to-all of {len}");
            coll.all_reduce(dst.sym(), src.sym(), Sum)?;
            let sum = |i: usize| (0..n).map(|pe| block(pe, i / len)[i % len]).sum::<u64>();
            let some = [0, len / 2, n * len - 1];
            assert!(some.iter().all(|i| dst.sym().read(*i).is_ok_and(|value| value == sum(*i))), "all-reduce of {len}");
            coll.broadcast(dst.sym().slice(..len)?, src.sym().slice(..len)?, n - 1)?;
            assert!(dst.sym().slice(..len)?.to_vec() == block(n - 1, 0), "broadcast of {len}");
            world.free(src)?;
            world.free(dst)?;
        }
        Ok(())
    });
}

/// What many threads put on lanes of their own arrives, and so does what they share.
#[test]
fn threads_have_lanes_of_their_own() {
    everywhere(|world| {
        const THREADS: usize = 4;
        let (me, n) = (world.me(), world.n_pes());
        let right = (me + 1) % n;
        let table = world.alloc_zeroed::<u64>(THREADS * 100)?;
        let sum = world.alloc_zeroed::<u64>(1)?;
        let outcome: Vec<Result<()>> = std::thread::scope(|threads| {
            let work = |thread: usize| {
                let (table, sum) = (table.sym(), sum.sym());
                move || -> Result<()> {
                    let (private, shared) = (world.ctx::<Private>(), world.ctx::<Shared>());
                    for i in 0..100 {
                        private.p(table.at(100 * thread + i)?, (i + 1) as u64, right)?;
                        shared.atomic_inc(sum, right)?;
                    }
                    private.quiet()?;
                    assert_eq!(private.g(table.at(100 * thread + 99)?, right)?, 100);
                    Ok(())
                }
            };
            let all: Vec<_> = (0..THREADS).map(|thread| threads.spawn(work(thread))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        outcome.into_iter().collect::<Result<()>>()?;
        world.barrier_all()?;
        assert_eq!(table.sym().to_vec(), (0..THREADS).flat_map(|_| 1..=100).collect::<Vec<u64>>());
        assert_eq!(sum.sym().read(0)?, 100 * THREADS as u64);
        world.free(table)?;
        world.free(sum)
    });
}

/// Random transfers between random places match a serial model.
#[test]
fn random_transfers_match_a_serial_model() {
    everywhere(|world| {
        const LEN: usize = 3000;
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let heap = world.alloc_zeroed::<u16>(LEN)?;
        let mut model = vec![vec![0_u16; LEN]; n];
        let mut random = Random(3);
        for round in 0..60 {
            // All PEs draw the same; in each round one of them acts.
            let (actor, pe) = (random.below(n), random.below(n));
            let (start, len) = (random.below(LEN), random.below(700));
            let len = len.min(LEN - start);
            let values: Vec<u16> = (0..len).map(|_| random.next() as u16).collect();
            let part = heap.sym().slice(start..start + len)?;
            if round % 3 == 0 {
                let mut got = vec![0; len];
                ctx.get(&mut got, part, pe)?;
                assert!(got == model[pe][start..start + len], "round {round}");
                world.barrier_all()?;
                continue;
            }
            if me == actor {
                ctx.put(part, &values, pe)?;
            }
            model[pe][start..start + len].copy_from_slice(&values);
            world.barrier_all()?;
        }
        assert!(heap.sym().to_vec() == model[me]);
        world.free(heap)
    });
}

/// The error and the panic of a PE reach those of other hosts.
#[test]
fn a_pe_that_gives_up_is_known_on_other_hosts() {
    for &(n, hosts) in places() {
        let ended = job(
            n,
            |builder| settings(builder, hosts),
            |world| {
                if world.me() == n - 1 {
                    world.abandon();
                    return Ok(());
                }
                let started = Instant::now();
                loop {
                    match world.barrier_all() {
                        Ok(()) => {}
                        Err(error) => {
                            assert!(started.elapsed() < PATIENCE);
                            return Err(error);
                        }
                    }
                }
            },
        );
        for (pe, end) in ended.into_iter().enumerate().take(n - 1) {
            let kind = kind_of(&end);
            let gone = n - 1;
            assert!(
                matches!(kind, ErrorKind::PeerLost { pe, reason } if *pe == gone && reason.contains("returned an error")),
                "PE {pe} of {n} on {hosts} hosts: {kind}"
            );
        }
    }
}

#[test]
fn those_that_are_left_go_on_across_hosts() {
    for (n, hosts) in [(3, 3), (4, 2), (5, 3)] {
        let ended = job(
            n,
            |builder| settings(builder, hosts),
            |world| {
                let (sum, left) = (world.alloc_zeroed::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
                // Who leaves a meeting knows that all have come, not that all have heard of it.
                let ctx = world.ctx::<Shared>();
                if world.me() == 1 {
                    ctx.wait_until(left.sym(), Cmp::Eq, n as u64 - 1)?;
                    world.abandon();
                    return Ok(0);
                }
                ctx.atomic_inc(left.sym(), 1)?;
                while !matches!(world.barrier_all().map_err(|error| error.kind().is_lost()), Err(true)) {}
                let team = world.survivors()?;
                assert_eq!(team.members(), (0..n).filter(|pe| *pe != 1).collect::<Vec<_>>());
                team.ctx::<Shared>().atomic_add(sum.sym(), 1, 0)?;
                world.barrier_all()?;
                world.ctx::<Shared>().g(sum.sym(), 0)
            },
        );
        let sums: Vec<u64> = ended.into_iter().map(|end| end.unwrap_or_else(|error| panic!("{error}"))).collect();
        let all = (n - 1) as u64;
        assert!(sums.iter().enumerate().all(|(pe, sum)| *sum == if pe == 1 { 0 } else { all }), "{sums:?}");
    }
}

/// A PE whose process is killed is lost for all, and those that only talk to others go on until they need it.
#[test]
fn a_killed_pe_is_lost_on_all_hosts() {
    let test = "a_killed_pe_is_lost_on_all_hosts";
    if is_child(test) {
        let n: usize = std::env::var("SHMEM_N_PES").unwrap().parse().unwrap();
        let hosts = std::env::var("SHMEM_TEST_HOSTS").unwrap().parse().unwrap();
        let world = settings(child_builder(), hosts).set("SHMEM_TIMEOUT", "40").unwrap().build().unwrap();
        let ctx = world.ctx::<Shared>();
        let (word, left) = (world.alloc_zeroed::<u64>(1).unwrap(), world.alloc_zeroed::<u64>(1).unwrap());
        (0..n).for_each(|pe| ctx.atomic_inc(word.sym(), pe).unwrap());
        world.barrier_all().unwrap();
        // Who leaves a barrier knows that all have come, not that all have heard of it.
        if world.me() == 1 {
            ctx.wait_until(left.sym(), Cmp::Eq, n as u64 - 1).unwrap();
            std::process::abort();
        }
        ctx.atomic_inc(left.sym(), 1).unwrap();
        let error = loop {
            if let Err(error) = world.barrier_all() {
                break error;
            }
        };
        assert!(matches!(error.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{error}");
        // Transfers over the network for the lost PE fail at once, and those for others go on.
        let hosts = world.team().hosts();
        if hosts[1] != hosts[world.me()] {
            assert!(matches!(kind_of(&ctx.g(word.sym(), 1)), ErrorKind::PeerLost { pe: 1, .. }));
        }
        for pe in (0..n).filter(|pe| *pe != 1) {
            assert_eq!(ctx.g(word.sym(), pe).unwrap(), n as u64);
        }
        let left = world.survivors().unwrap();
        assert_eq!(left.n_pes(), n - 1);
        println!("told: {error}");
        return;
    }
    let others: &[_] = if is_real() { &[] } else { &[(3, "3"), (5, "3"), (8, "2"), (8, "3")] };
    for &(n, hosts) in [(2, "2"), (4, "2")].iter().chain(others) {
        let ended = spawn(test, n, |_, command| command.env("SHMEM_TEST_HOSTS", hosts));
        for (pe, end) in ended.into_iter().enumerate().filter(|(pe, _)| *pe != 1) {
            assert!(end.success && end.output.contains("told: PE 1 is lost"), "PE {pe} of {n}:\n{}", end.output);
        }
    }
}

/// A heap in memory of the program's own, which the processor must not touch: everything goes through the card.
#[test]
fn heaps_that_only_the_card_reaches() {
    // The simulated card reaches only what is mapped.
    if !is_real() {
        return;
    }
    const BYTES: usize = 8 << 20;
    for hosts in [1, 2] {
        let ended = job(
            2,
            |builder| {
                let layout = std::alloc::Layout::from_size_align(BYTES, 4096).unwrap();
                // SAFETY: the layout is not empty; the memory is never given back.
                let start = unsafe { std::alloc::alloc_zeroed(layout) };
                // SAFETY: the memory lasts for ever, and nobody else knows of it.
                let memory = unsafe { shmem::ExternalMemory::new(start, BYTES) }.unwrap().without_cpu_access();
                settings(builder, hosts).external_heap(memory)
            },
            |world| {
                let (ctx, me) = (world.ctx::<Shared>(), world.me());
                let block = world.alloc::<u64>(5000)?;
                assert!(matches!(kind_of(&block.sym().read(0)), ErrorKind::NotMapped { .. }));
                let mine: Vec<u64> = (0..5000).map(|i| i + 10_000 * me as u64).collect();
                ctx.put(block.sym(), &mine, 1 - me)?;
                world.barrier_all()?;
                let mut got = vec![0; 5000];
                ctx.get(&mut got, block.sym(), 1 - me)?;
                assert!(got == mine, "what was put there");
                ctx.get(&mut got, block.sym(), me)?;
                let theirs: Vec<u64> = (0..5000).map(|i| i + 10_000 * (1 - me) as u64).collect();
                assert!(got == theirs, "what the other has put here");
                world.barrier_all()?;
                ctx.put_from(block.sym().slice(2500..)?, block.sym().slice(..2500)?, 1 - me)?;
                world.barrier_all()?;
                assert_eq!(ctx.g(block.sym().at(2501)?, 1 - me)?, theirs[1]);
                assert_eq!(ctx.atomic_fetch_add(block.sym().at(7)?, 5, 1 - me)?, 7 + 10_000 * me as u64);
                world.barrier_all()?;
                assert_eq!(ctx.atomic_fetch(block.sym().at(7)?, me)?, 12 + 10_000 * (1 - me) as u64);
                world.free(block)
            },
        );
        ended.into_iter().for_each(|pe| pe.unwrap_or_else(|error| panic!("{hosts} hosts: {error}")));
    }
}

/// IPv4, IPv6 and link-local addresses, where there are ports that have them.
#[test]
fn every_entry_of_the_gid_table_serves() {
    let path = |entry: &u32| format!("/sys/class/infiniband/rxe0/ports/1/gids/{entry}");
    let gid = |entry: &u32| std::fs::read_to_string(path(entry)).ok()?.trim().parse::<Ipv6Addr>().ok();
    let entries: Vec<u32> = (0..8).filter(|entry| gid(entry).is_some_and(|gid| !gid.is_unspecified())).collect();
    assert!(!is_real() || entries.len() > 2, "the ports of the guest have addresses of three kinds: {entries:?}");
    for entry in entries {
        let one = |builder| settings(builder, 2).set("SHMEM_GID_INDEX", &entry.to_string()).unwrap();
        for pe in job(2, one, |world| counts::<u64>(world, |value| value).and_then(|()| common::ring(world))) {
            pe.unwrap_or_else(|error| panic!("entry {entry}: {error}"));
        }
    }
}

/// The same as processes.
#[test]
fn hosts_of_processes() {
    let test = "hosts_of_processes";
    let scenario = |world: &World| {
        counts::<u32>(world, |value| value as u32)?;
        common::ring(world)
    };
    if is_child(test) {
        let hosts = std::env::var("SHMEM_TEST_HOSTS").unwrap().parse().unwrap();
        return child(|builder| settings(builder, hosts), scenario);
    }
    for (n, hosts) in [(2, "2"), (3, "2"), (5, "3")] {
        for (pe, end) in spawn(test, n, |_, command| command.env("SHMEM_TEST_HOSTS", hosts)).into_iter().enumerate() {
            assert!(end.success, "PE {pe} of {n}:\n{}", end.output);
        }
    }
}
