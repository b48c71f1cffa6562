//! Going on without the dead: as threads, at every count, with several deaths, in teams.

use std::sync::atomic::{AtomicUsize, Ordering};

use shmem::Shared;

use super::common::COUNTS;
use super::*;

#[test]
fn those_that_are_left_go_on() {
    for n in COUNTS.into_iter().filter(|n| *n > 1) {
        for lost in [0, n / 2, n - 1] {
            let members = shmem::local(n, |world| {
                if world.me() == lost {
                    world.abandon();
                    return Ok(without(n, lost));
                }
                assert!(is_lost(&until_lost(|| world.barrier_all()), lost));
                // Until they go on, every call says so.
                assert!(is_lost(&world.alloc::<u8>(1).unwrap_err(), lost));
                assert!(is_lost(&world.ctx::<Shared>().quiet().unwrap_err(), lost));
                works(world)
            });
            assert_eq!(members.unwrap(), vec![without(n, lost); n], "PE {lost} of {n}");
        }
    }
}

/// One after the other, until one is left.
#[test]
fn one_after_the_other_is_lost() {
    for n in [2, 3, 5, 8] {
        shmem::local(n, |world| {
            for lost in 0..n - 1 {
                if world.me() == lost {
                    world.abandon();
                    return Ok(());
                }
                assert!(is_lost(&until_lost(|| world.barrier_all()), lost));
                assert_eq!(works(world)?, (lost + 1..n).collect::<Vec<_>>());
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Losses that come while the others agree on who is left.
#[test]
fn many_are_lost_at_once() {
    for round in 0..20 {
        for n in [3, 5, 8, 16] {
            let gone = AtomicUsize::new(0);
            let left = n / 2 + 1;
            shmem::local(n, |world| {
                // The upper half goes, one by one, each while others may be on their way.
                if world.me() >= left {
                    if round % 2 == 0 {
                        until_lost_or_first(world, left);
                    }
                    gone.fetch_add(1, Ordering::Relaxed);
                    world.abandon();
                    return Ok(());
                }
                let members = loop {
                    drop(until_lost(|| world.barrier_all()));
                    let members = works_or_again(world);
                    if members.len() == left {
                        break members;
                    }
                };
                assert_eq!(members, (0..left).collect::<Vec<_>>());
                Ok(())
            })
            .unwrap();
            assert_eq!(gone.into_inner(), n - left);
        }
    }
}

/// Waits until another is lost, except the first to go.
fn until_lost_or_first(world: &World, first: usize) {
    if world.me() > first {
        drop(until_lost(|| world.barrier_all()));
    }
}

/// The members after a loss: those that are left may lose another while they try.
fn works_or_again(world: &World) -> Vec<usize> {
    loop {
        match works(world) {
            Ok(members) => return members,
            Err(error) if error.kind().is_lost() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A team of which a member is lost; a team without it, which goes on as it was once the loss is acknowledged.
#[test]
fn teams_without_the_lost_pe_go_on_and_others_fail() {
    shmem::local(6, |world| {
        let even = world.team().split_strided(0, 2, 3)?;
        let odd = world.team().split_strided(1, 2, 3)?;
        if world.me() == 3 {
            world.abandon();
            return Ok(());
        }
        drop(until_lost(|| world.barrier_all()));
        assert_eq!(world.alive(), [0, 1, 2, 4, 5]);
        let left = world.survivors()?;
        if let Some(even) = even {
            assert_eq!(even.alive(), [0, 1, 2]);
            even.barrier()?;
            even.destroy()?;
        }
        if let Some(odd) = odd {
            assert!(is_lost(&odd.sync().unwrap_err(), 3));
            assert!(is_lost(&odd.split_strided(0, 1, 1).unwrap_err(), 3));
            assert_eq!(odd.alive(), [0, 2]);
            let odd = odd.survivors()?;
            assert_eq!(odd.members(), [1, 5]);
            odd.barrier()?;
            odd.destroy()?;
        }
        assert!(is_lost(&world.team().sync().unwrap_err(), 3));
        left.barrier()
    })
    .unwrap();
}

/// Without any loss it is the team of all.
#[test]
fn survivors_without_a_loss_are_all() {
    for n in COUNTS {
        shmem::local(n, |world| {
            for _ in 0..3 {
                assert_eq!(works(world)?, (0..n).collect::<Vec<_>>());
            }
            world.barrier_all()
        })
        .unwrap();
    }
}

#[test]
fn who_has_given_up_is_no_survivor() {
    shmem::local(3, |world| {
        if world.me() == 1 {
            world.abandon();
            assert!(is_lost(&world.survivors().unwrap_err(), 1));
            return Ok(());
        }
        drop(until_lost(|| world.barrier_all()));
        works(world).map(drop)
    })
    .unwrap();
}

/// A wait that began before the loss was acknowledged, by another thread of the PE, does not go on for ever.
#[test]
fn a_wait_of_another_thread_ends_when_the_loss_is_acknowledged() {
    shmem::local(3, |world| {
        let word = world.alloc_zeroed::<u64>(1)?;
        world.barrier_all()?;
        if world.me() == 2 {
            world.abandon();
            return Ok(());
        }
        let polls = AtomicUsize::new(0);
        let polls = &polls;
        let ready = move |value: u64| polls.fetch_add(1, Ordering::Relaxed) < usize::MAX && value == 1;
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| world.ctx::<Shared>().wait(word.sym(), ready));
            // More than a waiter spins: then it has looked for losses, or found one.
            while polls.load(Ordering::Relaxed) < 1100 && !waiting.is_finished() {
                std::thread::yield_now();
            }
            drop(until_lost(|| world.barrier_all()));
            works(world).unwrap();
            assert!(is_lost(&waiting.join().unwrap().unwrap_err(), 2));
        });
        // What begins afterwards waits as ever.
        let right = if world.me() == 0 { 1 } else { 0 };
        world.ctx::<Shared>().p(word.sym(), 1, right)?;
        world.ctx::<Shared>().wait(word.sym(), |value| value == 1).map(drop)
    })
    .unwrap();
}

/// The heap is the same on all that are left, whatever each saw of the call in which the PE was lost.
#[test]
fn heaps_come_together_after_a_loss_in_an_allocation() {
    for round in 0..50 {
        for n in [3, 5] {
            shmem::local(n, |world| {
                let mut kept = Vec::new();
                for i in 0.. {
                    if world.me() == 1 && i == 5 + round % 7 {
                        world.abandon();
                        return Ok(());
                    }
                    let outcome = match i % 3 {
                        0 | 1 => world.alloc::<u64>(10 + i).map(|block| kept.push(block)),
                        _ => world.free(kept.swap_remove(0)),
                    };
                    if outcome.is_err() {
                        break;
                    }
                }
                let team = world.survivors()?;
                let free = [world.heap_free().0 as u64, world.heap_free().1 as u64];
                let all = world.alloc::<u64>(2 * n)?;
                for pe in 0..team.n_pes() {
                    team.ctx::<Shared>().put(all.sym().slice(2 * team.me()..)?, &free, pe)?;
                }
                world.barrier_all()?;
                for pe in 0..team.n_pes() {
                    assert_eq!(all.sym().slice(2 * pe..2 * pe + 2)?.to_vec(), free, "of PE {pe}");
                }
                world.free(all)
            })
            .unwrap();
        }
    }
}

/// An agreement that ends without a team, for all alike, does not spoil the next, whoever comes first to it.
#[test]
fn survivors_come_again_when_a_team_slot_is_free() {
    for late in [0, 1] {
        let outcomes = super::common::job(
            3,
            |builder| builder.set("SHMEM_TEAM_SLOTS", "5").unwrap(),
            |world| {
                let teams = [(); 3].map(|()| world.team().split_strided(0, 1, 2).unwrap());
                if world.me() == 2 {
                    world.abandon();
                    return Ok(());
                }
                drop(until_lost(|| world.barrier_all()));
                for _ in 0..2 {
                    assert_kind!(world.survivors(), ErrorKind::NoTeamSlot { slots: 5 });
                }
                for team in teams.into_iter().flatten() {
                    team.destroy()?;
                }
                if world.me() == late {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                assert_eq!(works(world)?, [0, 1]);
                Ok(())
            },
        );
        outcomes.into_iter().for_each(|pe| pe.unwrap());
    }
}

/// Two threads of each PE make the teams of those that are left of two teams, in whichever order.
#[test]
fn threads_make_several_such_teams_at_once() {
    for _ in 0..20 {
        shmem::local(3, |world| {
            let teams = [(); 2].map(|()| world.team().split_strided(0, 1, 3).unwrap().unwrap());
            world.barrier_all()?;
            if world.me() == 2 {
                world.abandon();
                return Ok(());
            }
            drop(until_lost(|| world.barrier_all()));
            std::thread::scope(|threads| {
                // The PEs begin with different teams.
                let made: Vec<_> = [world.me(), 1 - world.me()]
                    .map(|i| {
                        threads.spawn({
                            let team = &teams[i];
                            move || team.survivors()
                        })
                    })
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect();
                for team in made {
                    let team = team.unwrap();
                    assert_eq!(team.members(), [0, 1]);
                }
            });
            works(world).map(drop)
        })
        .unwrap();
    }
}

/// Reports of the world's calls name PEs by the numbers that they always had.
#[test]
fn reports_after_a_loss_name_pes_by_their_numbers() {
    shmem::local(4, |world| {
        if world.me() == 0 {
            world.abandon();
            return Ok(());
        }
        drop(until_lost(|| world.barrier_all()));
        world.survivors()?;
        let bytes = if world.me() == 2 { 16 } else { 8 };
        let text = world.alloc::<u8>(bytes).unwrap_err().to_string();
        assert!(
            text.contains("PE 2 calls alloc(16 bytes)") && text.contains("PEs 1 and 3 call alloc(8 bytes)"),
            "{text}"
        );
        works(world).map(drop)
    })
    .unwrap();
}
