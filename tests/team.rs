//! Teams: every way to split, nested, against a model of sets; what one team does never disturbs another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{Random, everywhere, job, processes, scaled, text_of, without_places};
use shmem::{ErrorKind, Private, Result, Shared, SigRef, Team, World};

/// A team is what the model says: members in order, numbering, translation, a context with its numbers, a barrier that
/// works.
fn check(world: &World, team: &Team<'_>, members: &[usize]) -> Result<()> {
    assert_eq!(team.members(), members);
    assert_eq!((team.n_pes(), members[team.me()]), (members.len(), world.me()));
    let all = world.team();
    for (i, &pe) in members.iter().enumerate() {
        assert_eq!(team.translate(i, &all)?, Some(pe));
        assert_eq!(all.translate(pe, team)?, Some(i));
    }
    for pe in (0..world.n_pes()).filter(|pe| !members.contains(pe)) {
        assert_eq!(all.translate(pe, team)?, None);
    }
    assert_kind!(team.translate(members.len(), &all), ErrorKind::NoSuchPe { pe, n_pes } if pe == n_pes);
    let ctx = team.ctx::<Private>();
    assert_eq!((ctx.me(), ctx.n_pes()), (team.me(), team.n_pes()));
    assert_kind!(ctx.quiet_pes(&[members.len()]), ErrorKind::NoSuchPe { n_pes, .. } if *n_pes == members.len());
    team.sync()
}

/// The sum of all members' world numbers, by way of the team alone; `cells` has one word for each PE of the world.
fn team_sum(team: &Team<'_>, cells: shmem::SymSlice<'_, u64>, mine: u64) -> Result<u64> {
    let ctx = team.ctx::<Shared>();
    for pe in 0..team.n_pes() {
        ctx.p(cells.at(team.me())?, mine, pe)?;
    }
    team.barrier()?;
    let sum = cells.to_vec()[..team.n_pes()].iter().sum();
    team.barrier()?;
    Ok(sum)
}

/// All legal triplets of a parent of `n`, or a sample where they are many.
fn triplets(n: usize, most: usize, random: &mut Random) -> Vec<(usize, isize, usize)> {
    let n_signed = n as isize;
    let mut all: Vec<(usize, isize, usize)> = Vec::new();
    for start in 0..n {
        for stride in (-n_signed..=n_signed).filter(|stride| *stride != 0) {
            for size in 1..=n {
                let last = start as isize + (size as isize - 1) * stride;
                if (0..n_signed).contains(&last) && (size > 1 || stride == 1) {
                    all.push((start, stride, size));
                }
            }
        }
    }
    while all.len() > most {
        all.swap_remove(random.below(all.len()));
    }
    all
}

/// A18: nested splits three deep; start, stride and size are in the parent's numbers at every level.
fn nested(
    world: &World,
    team: &Team<'_>,
    members: &[usize],
    depth: usize,
    cells: shmem::SymSlice<'_, u64>,
) -> Result<()> {
    // Every member draws the same sample.
    let mut random = Random(members.iter().fold(depth as u64, |seed, pe| seed.wrapping_mul(37) + *pe as u64));
    let most = if world.n_pes() > 6 { [2, 3, 10] } else { [3, 6, 40] }[depth];
    for (start, stride, size) in triplets(members.len(), most, &mut random) {
        let wanted: Vec<usize> = (0..size as isize).map(|i| members[(start as isize + i * stride) as usize]).collect();
        let child = team.split_strided(start, stride, size)?;
        assert_eq!(child.is_some(), wanted.contains(&world.me()));
        let Some(child) = child else { continue };
        check(world, &child, &wanted)?;
        let sum = team_sum(&child, cells, world.me() as u64)?;
        assert_eq!(sum, wanted.iter().sum::<usize>() as u64);
        if depth > 0 {
            nested(world, &child, &wanted, depth - 1, cells)?;
        }
        child.destroy()?;
    }
    team.sync()
}

fn nested_splits(world: &World) -> Result<()> {
    let cells = world.alloc_zeroed::<u64>(world.n_pes())?;
    let all: Vec<usize> = (0..world.n_pes()).collect();
    nested(world, &world.team(), &all, 2, cells.sym())?;
    world.free(cells)
}

#[test]
fn nested_strided_splits_use_the_parents_numbers() {
    everywhere(nested_splits);
    shmem::local(6, nested_splits).unwrap();
}

#[test]
fn nested_splits_as_processes() {
    processes("nested_splits_as_processes", &[1, 2, 3, 5, 6, 8], nested_splits);
}

#[test]
fn the_split_of_a_split_is_not_relative_to_the_world() {
    // The report's own numbers.
    shmem::local(6, |world| {
        let Some(even) = world.team().split_strided(0, 2, 3)? else { return Ok(()) };
        let ends = even.split_strided(0, 2, 2)?;
        assert_eq!(ends.map(|team| team.members()), if world.me() == 2 { None } else { Some(vec![0, 4]) });
        Ok(())
    })
    .unwrap();
}

#[test]
fn grids_have_rows_and_columns() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        for x_range in 1..=n + 1 {
            let (row, column) = world.team().split_2d(x_range)?;
            let in_row: Vec<usize> = (0..n).filter(|pe| pe / x_range == me / x_range).collect();
            let in_column: Vec<usize> = (0..n).filter(|pe| pe % x_range == me % x_range).collect();
            check(world, &row, &in_row)?;
            check(world, &column, &in_column)?;
            // A grid of a row: numbers are the row's.
            let (inner, _) = row.split_2d(2)?;
            let at = row.me();
            assert_eq!(inner.members(), in_row.chunks(2).nth(at / 2).unwrap());
            column.barrier()?;
            row.barrier()?;
            world.barrier_all()?;
            // Teams that are dropped keep their slots, so end them.
            for team in [inner, column, row] {
                team.destroy()?;
            }
        }
        assert_kind!(world.team().split_2d(0), ErrorKind::BadTeam(_));
        world.barrier_all()
    });
}

#[test]
fn grids_give_all_their_slots_back() {
    shmem::local(3, |world| {
        for _ in 0..200 {
            let (row, column) = world.team().split_2d(2)?;
            row.destroy()?;
            column.destroy()?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn lists_keep_their_order() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let mut random = Random(n as u64);
        for _ in 0..scaled(world, 100) {
            let mut list: Vec<usize> = (0..n).collect();
            (1..n).rev().for_each(|i| list.swap(i, random.below(i + 1)));
            list.truncate(1 + random.below(n));
            let team = world.team().split_list(&list)?;
            assert_eq!(team.is_some(), list.contains(&me));
            if let Some(team) = team {
                check(world, &team, &list)?;
                team.destroy()?;
            }
        }
        let all = world.team();
        assert_kind!(all.split_list(&[]), ErrorKind::BadTeam(_));
        assert!(text_of(all.split_list(&[0, 0])).contains("PE 0 is listed twice"));
        assert_kind!(all.split_list(&[0, n]), ErrorKind::NoSuchPe { pe, n_pes } if pe == n_pes);
        world.barrier_all()
    });
}

#[test]
fn colours_group_and_keys_order() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let mut random = Random(7 * n as u64);
        for _ in 0..scaled(world, 60) {
            let colours: Vec<Option<u64>> =
                (0..n).map(|_| [None, Some(0), Some(u64::MAX), Some(7)][random.below(4)]).collect();
            let keys: Vec<i64> = (0..n).map(|_| [i64::MIN, -1, 0, 0, i64::MAX][random.below(5)]).collect();
            let team = world.team().split_colour(colours[me], keys[me])?;
            assert_eq!(team.is_some(), colours[me].is_some());
            if let Some(team) = team {
                let mut wanted: Vec<usize> = (0..n).filter(|pe| colours[*pe] == colours[me]).collect();
                wanted.sort_by_key(|pe| (keys[*pe], *pe));
                check(world, &team, &wanted)?;
                team.destroy()?;
            }
        }
        world.barrier_all()
    });
}

/// A20: on one host the shared team is everybody.
fn shared_is_everybody_on_the_host(world: &World) -> Result<()> {
    let (hosts, shared) = (world.team().hosts(), world.shared_team());
    let mine: Vec<usize> = (0..world.n_pes()).filter(|pe| hosts[*pe] == hosts[world.me()]).collect();
    check(world, &shared, &mine)?;
    let half = mine.len().div_ceil(2);
    if let Some(first) = shared.split_strided(0, 1, half)? {
        check(world, &first, &mine[..half])?;
        first.destroy()?;
    }
    shared.barrier()?;
    assert_kind!(world.shared_team().destroy(), ErrorKind::BadTeam(_));
    assert_kind!(world.team().destroy(), ErrorKind::BadTeam(_));
    world.barrier_all()
}

#[test]
fn the_shared_team_is_everybody_on_one_host() {
    everywhere(shared_is_everybody_on_the_host);
}

#[test]
fn the_shared_team_as_processes() {
    processes("the_shared_team_as_processes", &[1, 2, 5, 8], shared_is_everybody_on_the_host);
}

#[test]
fn impossible_splits_are_errors_alike_and_cost_no_slot() {
    everywhere(|world| {
        let n = world.n_pes();
        for _ in 0..30 {
            for (start, stride, size) in
                [(0, 1, n + 1), (n, 1, 1), (0, -1, 2), (0, 1, 0), (0, 0, 2), (0, isize::MAX, 3), (n - 1, isize::MIN, 2)]
            {
                assert_kind!(world.team().split_strided(start, stride, size), ErrorKind::BadTeam(_));
            }
        }
        let one = world.team().split_strided(n - 1, 0, 1)?;
        assert_eq!(one.is_some(), world.me() == n - 1);
        world.barrier_all()
    });
}

/// Slots: as many teams as were reserved, then a clear error on all PEs, and all goes on once a team ends.
#[test]
fn slots_run_out_clearly_and_come_back() {
    for n in [1, 2, 3, 5] {
        for pe in job(
            n,
            |builder| builder.set("SHMEM_TEAM_SLOTS", "5").unwrap().heap(1 << 20),
            |world| {
                let all = world.team();
                // The world and the host have one each.
                let mut teams: Vec<_> =
                    (0..3).map(|_| Ok(all.split_strided(0, 1, n)?.unwrap())).collect::<Result<_>>()?;
                for _ in 0..3 {
                    let error = all.split_strided(0, 1, 1);
                    assert_kind!(error, ErrorKind::NoTeamSlot { slots: 5 });
                    let text = text_of(error);
                    assert!(text.contains('5') && text.contains("SHMEM_TEAM_SLOTS"), "{text}");
                    assert_kind!(all.split_colour(None, 0), ErrorKind::NoTeamSlot { .. });
                    assert_kind!(all.split_2d(1), ErrorKind::NoTeamSlot { .. });
                }
                teams.swap_remove(1).destroy()?;
                // A grid needs two: the row that was made is given back.
                assert_kind!(all.split_2d(1), ErrorKind::NoTeamSlot { .. });
                let again = all.split_strided(n - 1, -1, n)?.unwrap();
                assert_eq!(again.members(), (0..n).rev().collect::<Vec<_>>());
                for team in teams.iter().chain([&again]) {
                    team.barrier()?;
                }
                world.barrier_all()
            },
        ) {
            pe.unwrap();
        }
    }
}

#[test]
fn a_slot_is_used_again_a_thousand_times() {
    everywhere(|world| {
        let n = world.n_pes();
        let mut random = Random(3);
        for round in 0..scaled(world, 1000).max(300) {
            let size = 1 + random.below(n);
            let start = random.below(n - size + 1);
            if let Some(team) = world.team().split_strided(start, 1, size)? {
                // Epochs of the slot's former teams differ from member to member.
                (0..random.below(5).min(round)).try_for_each(|_| team.barrier())?;
                team.sync()?;
                team.destroy()?;
            } else {
                random.below(5);
            }
        }
        world.barrier_all()
    });
}

/// C08: any sequence of sub-team operations leaves the world in step.
fn random_subteams(world: &World, rounds: usize) -> Result<()> {
    let n = world.n_pes();
    let cells = world.alloc_zeroed::<u64>(n)?;
    let mut random = Random(11 + n as u64);
    for _ in 0..rounds {
        let list: Vec<usize> = (0..n).filter(|_| random.below(2) == 0).collect();
        let (times, kind) = (1 + random.below(5), random.below(4));
        if list.is_empty() {
            continue;
        }
        let team = world.team().split_list(&list)?;
        if let Some(team) = &team {
            for _ in 0..times {
                team.sync()?;
                let sum = team_sum(team, cells.sym(), world.me() as u64 + 1)?;
                assert_eq!(sum, list.iter().map(|pe| *pe as u64 + 1).sum::<u64>());
                if let Some(sub) = team.split_strided(list.len() - 1, -1, list.len().div_ceil(2))? {
                    sub.barrier()?;
                    sub.destroy()?;
                }
            }
        }
        match kind {
            0 => world.barrier_all()?,
            1 => world.free(world.alloc::<u8>(times * 10)?)?,
            2 => world.sync_all()?,
            _ => {}
        }
        team.map_or(Ok(()), Team::destroy)?;
    }
    world.free(cells)
}

#[test]
fn subteams_leave_the_world_in_step() {
    everywhere(|world| random_subteams(world, scaled(world, 100).max(20)));
}

#[test]
fn subteams_as_processes() {
    processes("subteams_as_processes", &[2, 3, 5, 8], |world| random_subteams(world, 50));
}

/// Halves of the world work at their own pace at the same time, in slots of the same number, and the world's barrier is
/// not theirs.
#[test]
fn concurrent_teams_do_not_disturb_each_other() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let team = world.team().split_colour(Some((me % 2) as u64), 0)?.unwrap();
        let cells = world.alloc_zeroed::<u64>(n)?;
        let rounds = scaled(world, 400) * if me % 2 == 0 { 1 } else { 3 };
        let wanted: u64 = (0..n).filter(|pe| pe % 2 == me % 2).map(|pe| pe as u64).sum();
        for _ in 0..rounds {
            assert_eq!(team_sum(&team, cells.sym(), me as u64)?, wanted);
        }
        world.barrier_all()?;
        team.destroy()?;
        world.free(cells)
    });
}

/// Members of a team go round its barrier while a PE outside is in the world's.
#[test]
fn a_world_barrier_waits_for_a_busy_team() {
    everywhere(|world| {
        let Some(team) = world.team().split_strided(0, 1, world.n_pes().div_ceil(2))? else {
            return world.barrier_all();
        };
        (0..scaled(world, 500)).try_for_each(|_| team.barrier())?;
        world.barrier_all()
    });
}

/// A team's context reaches the team's numbers, for every kind of operation.
#[test]
fn contexts_speak_the_teams_numbers() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let team = world.team().split_strided(n - 1, -1, n)?.unwrap();
        let ctx = team.ctx::<Shared>();
        assert_eq!(ctx.me(), n - 1 - me);
        let words = world.alloc_zeroed::<u64>(4 * n)?;
        let all = words.sym();
        // To team number `pe` is to world number n-1-pe.
        for pe in 0..n {
            ctx.p(all.at(4 * me)?, pe as u64 + 1, pe)?;
            ctx.put(all.at(4 * me + 1)?, &[pe as u64 + 1], pe)?;
            ctx.atomic_add(all.at(4 * me + 2)?, pe as u64 + 1, pe)?;
            ctx.signal(SigRef::set(all.at(4 * me + 3)?, pe as u64 + 1), pe)?;
        }
        team.barrier()?;
        assert!(all.to_vec().iter().all(|value| *value == (n - me) as u64));
        assert_eq!(ctx.g(all.at(0)?, 0)?, 1);
        assert_kind!(ctx.p(all.at(0)?, 0, n), ErrorKind::NoSuchPe { pe, n_pes } if pe == n_pes);
        world.barrier_all()?;
        let lock = world.alloc_zeroed::<u64>(1)?;
        // One lock, whichever team's context takes it.
        for round in 0..scaled(world, 200) {
            let by = if round % 2 == 0 { team.ctx::<Shared>() } else { world.ctx::<Shared>() };
            by.set_lock(lock.sym())?;
            let value = world.ctx::<Shared>().g(all.at(0)?, 0)?;
            world.ctx::<Shared>().p(all.at(0)?, value + 1, 0)?;
            by.clear_lock(lock.sym())?;
        }
        world.barrier_all()?;
        let rounds = scaled(world, 200) as u64;
        assert_eq!(world.ctx::<Shared>().g(all.at(0)?, 0)?, n as u64 + rounds * n as u64);
        world.barrier_all()?;
        world.free(lock)?;
        world.free(words)
    });
}

#[test]
fn different_splits_are_reported_on_every_pe() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (me, all) = (world.me(), world.team());
            for odd in 0..n {
                let size = if me == odd { 2 } else { 1 };
                assert!(text_of(all.split_strided(0, 1, size)).contains("split_strided"));
                let result = if me == odd { all.split_list(&[0]) } else { all.split_list(&[1]) };
                assert!(text_of(result).contains("split_list"));
                let result = if me == odd { all.split_list(&[0]) } else { all.split_colour(Some(1), 0) };
                let text = text_of(result);
                assert!(text.contains("split_list") && text.contains("split_colour"), "{text}");
            }
            for _ in 0..100 {
                all.split_strided(0, 1, n)?.unwrap().destroy()?;
            }
            Ok(())
        })
        .unwrap();
    }
}

/// A mismatch inside a sub-team is the sub-team's affair.
#[test]
fn a_mismatch_in_a_team_stays_there() {
    everywhere(|world| {
        let (me, n) = (world.me(), world.n_pes());
        let team = world.team().split_colour(Some((me / 2) as u64), 0)?.unwrap();
        for _ in 0..10 {
            let result = if me % 2 == 0 { team.sync() } else { team.barrier() };
            if team.n_pes() == 2 {
                let text = without_places(&text_of(result));
                assert!(text.contains("PE 0 calls sync, PE 1 calls barrier"), "the numbers are the team's: {text}");
            } else {
                result?;
            }
        }
        world.barrier_all()?;
        team.barrier()?;
        team.destroy()?;
        assert_eq!(world.n_pes(), n);
        world.barrier_all()
    });
}

/// C10: a split that only its would-be members call, with a time limit: the error names a PE that did not come, and
/// what it does.
#[test]
fn a_split_without_all_parents_times_out_and_names_who_is_missing() {
    let limit = Duration::from_millis(300);
    for (n, missing) in [(4, vec![2, 3]), (3, vec![0]), (17, vec![5])] {
        let configure = |builder: shmem::Builder| builder.timeout(limit).heap(1 << 20);
        let texts = job(n, configure, |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let done = world.alloc_zeroed::<u64>(1)?;
            world.barrier_all()?;
            let error = if missing.contains(&me) { None } else { world.team().split_strided(0, 1, 2).err() };
            if let Some(error) = &error {
                (0..n).try_for_each(|pe| ctx.signal(SigRef::add(done.sym(), 1), pe))?;
                let ErrorKind::Timeout { pe, call: "team split", after, .. } = error.kind() else { panic!("{error}") };
                assert!(*pe == me && *after >= limit, "{error}");
            }
            // Nobody ends, or comes into another collective call, before all who called have given up.
            let start = Instant::now();
            while ctx.signal_fetch(done.sym())? < (n - missing.len()) as u64 {
                assert!(start.elapsed() < common::PATIENCE);
                std::thread::yield_now();
            }
            Ok(error.map(|error| error.to_string()))
        });
        for (pe, text) in texts.into_iter().map(Result::unwrap).enumerate() {
            assert_eq!(text.is_none(), missing.contains(&pe));
            let Some(text) = text else { continue };
            assert!(missing.iter().any(|pe| text.contains(&format!("PE {pe}"))), "{text}");
            assert!(text.contains("SHMEM_TIMEOUT"), "{text}");
        }
    }
}
