//! Calls that differ between the PEs, and wrong arguments on one of them: reported on all, and the team goes on.

use std::panic::Location;

use shmem::{Builder, Error, ErrorKind, Result, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Max, Sum};

use crate::common::job;

type Buffers<'a> = (SymSlice<'a, f32>, SymSlice<'a, f32>);
type Call = fn(&Coll<'_>, Buffers<'_>) -> Result<()>;

/// What one PE calls and what is said of it, against `all_reduce(f32 × 12, sum)` or the second call.
struct Wrong {
    odd: Call,
    odd_text: &'static str,
    others: Call,
    others_text: &'static str,
}

fn reduce(coll: &Coll<'_>, (dst, src): Buffers<'_>) -> Result<()> {
    coll.all_reduce(dst, src, Sum)
}

fn wrongs() -> Vec<Wrong> {
    let row = |odd, odd_text, others, others_text| Wrong { odd, odd_text, others, others_text };
    let sum = "(f32 × 60, sum)";
    vec![
        row(|c, (d, s)| c.all_reduce(d.slice(..59)?, s.slice(..59)?, Sum), "(f32 × 59, sum)", reduce, sum),
        row(|c, (d, s)| c.all_reduce(d.cast::<i32>()?, s.cast::<i32>()?, Sum), "(i32 × 60, sum)", reduce, sum),
        row(|c, (d, s)| c.all_reduce(d, s, Max), "(f32 × 60, max)", reduce, sum),
        row(|c, (d, _)| c.all_reduce(d, d, Sum), "(f32 × 60, sum, in place)", reduce, sum),
        row(|c, (d, s)| c.all_to_all(d, s), "alltoall #", reduce, "allreduce #"),
        row(|c, (d, s)| c.all_gather_v(d, s.slice(..3)?), "allgatherv #", reduce, "allreduce #"),
        row(
            |c, (d, s)| c.broadcast(d, s, 0),
            "broadcast of root 0 #",
            |c, (d, s)| c.broadcast(d, s, 1),
            "broadcast of root 1 #",
        ),
        // Wrong in itself: on this PE the error says so, and the others learn of it.
        row(|c, _| c.refuse(Error::other("0x17 is no address")), "0x17 is no address", reduce, sum),
        row(|c, _| c.start_refused(Error::other("9 is no type")).wait(), "9 is no type", reduce, sum),
        row(|c, (d, s)| c.all_reduce(d.slice(..59)?, s, Sum), "target: 59 elements were given", reduce, sum),
        row(
            |c, (d, s)| c.broadcast(d, s, 77),
            "PE 77 does not exist",
            |c, (d, s)| c.broadcast(d, s, 1),
            "broadcast of root 1 #",
        ),
        row(
            |c, (d, s)| c.all_to_all_strided(d, 0, s, 1, 1),
            "target stride: 0 elements were given",
            |c, (d, s)| c.all_to_all_strided(d, 1, s, 1, 1),
            "alltoalls #",
        ),
        row(
            |c, (d, s)| c.all_to_all_strided(d, 2, s, 1, 1),
            "to stride 2",
            |c, (d, s)| c.all_to_all_strided(d, 1, s, 1, 1),
            "to stride 1",
        ),
        row(
            |c, (d, s)| c.reduce_scatter_v(d.slice(..0)?, s.slice(..0)?, &[0], Sum),
            "counts: 1 elements were given",
            reduce,
            sum,
        ),
        row(
            |c, (d, s)| c.all_gather_v(d.slice(..1)?, s.slice(..3)?),
            "target: 1 elements were given",
            |c, (d, s)| c.all_gather_v(d, s.slice(..3)?),
            "allgatherv #",
        ),
        row(
            |c, (d, s)| c.start_all_reduce(d.slice(..58)?, s.slice(..58)?, Sum).wait(),
            "(f32 × 58, sum)",
            |c, (d, s)| c.start_all_reduce(d, s, Sum).wait(),
            sum,
        ),
    ]
}

#[test]
fn calls_that_differ_are_told_to_all_and_the_team_goes_on() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let coll = Coll::new(world, &team)?;
            let (src, dst) = (world.alloc::<f32>(60)?, world.alloc::<f32>(60)?);
            src.sym().fill(me as f32);
            for (i, wrong) in wrongs().into_iter().enumerate() {
                for odd in 0..n {
                    let call = if me == odd { wrong.odd } else { wrong.others };
                    let error = call(&coll, (dst.sym(), src.sym())).unwrap_err();
                    let text = error.to_string();
                    let mismatch = matches!(error.kind(), ErrorKind::Mismatch { .. });
                    let at = format!("case {i}, n = {n}, PE {odd} is wrong, PE {me}: {text}");
                    assert!(text.contains(wrong.odd_text), "{at}");
                    assert!(mismatch || me == odd, "{at}");
                    assert!(!mismatch || text.contains(wrong.others_text), "{at}");
                    assert!(!mismatch || text.contains(&format!("PE {odd} calls")), "{at}");
                    coll.all_reduce(dst.sym(), src.sym(), Sum)?;
                    assert_eq!(dst.sym().read(59)?, (n * (n - 1) / 2) as f32, "{at}");
                    coll.all_gather_v(dst.sym(), src.sym().slice(..1)?)?;
                    assert_eq!(dst.sym().read(n - 1)?, (n - 1) as f32, "{at}");
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// The copy of a source in any memory is a write of the program's.
#[test]
fn a_target_in_use_on_one_pe_is_told_to_all() {
    for n in [1, 2, 3, 5] {
        let checked = |builder: Builder| builder.set("SHMEM_CHECK", "1").unwrap();
        let ended = job(n, checked, |world| {
            let (team, odd) = (world.team(), world.me() == n - 1);
            let (coll, object) = (Coll::new(world, &team)?, world.alloc_zeroed::<u64>(10)?);
            let held = odd.then(|| world.reserve(object.sym(), "a test", 0, Location::caller()));
            let error = coll.all_reduce_from(object.sym(), &[1; 10], Sum).unwrap_err();
            match error.kind() {
                ErrorKind::InUse { .. } if odd => {}
                ErrorKind::Mismatch { .. } if !odd => {}
                _ => panic!("n = {n}, PE {}: {error}", world.me()),
            }
            drop(held);
            coll.all_reduce_from(object.sym(), &[1; 10], Sum)?;
            assert_eq!(object.sym().to_vec(), [n as u64; 10]);
            world.free(object)
        });
        ended.into_iter().for_each(|pe| pe.unwrap());
    }
}

#[test]
fn partial_overlap_names_both_ranges_and_is_told_to_all() {
    for n in [1, 2, 3, 5] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let coll = Coll::new(world, &team)?;
            let object = world.alloc_zeroed::<u64>(40 * n)?;
            let whole = object.sym();
            let (at, far) = (whole.offset(), whole.slice(20..)?);
            for odd in 0..n {
                let source = |start: usize| whole.slice(start..start + 10);
                let mine = source(if me == odd { 5 } else { 20 })?;
                let calls: [&dyn Fn() -> Result<()>; 3] = [
                    &|| coll.all_reduce(whole.slice(..10)?, mine, Sum),
                    &|| {
                        coll.all_gather_v(
                            whole.slice(..10 * n)?,
                            if me == odd { source(5)? } else { far.slice(20 * n - 20..20 * n - 20)? },
                        )
                    },
                    &|| coll.start_all_reduce(whole.slice(..10)?, mine, Sum).wait(),
                ];
                for (i, call) in calls.into_iter().enumerate() {
                    let error = call().unwrap_err();
                    match error.kind() {
                        ErrorKind::Overlap { pe, source_bytes, target_bytes } if me == odd => {
                            assert_eq!(*pe, me);
                            assert_eq!(*source_bytes, at + 40..at + 120, "case {i}");
                            assert_eq!(target_bytes.start, at);
                        }
                        ErrorKind::Mismatch { report } if me != odd => {
                            assert!(report.contains(&format!("PE {odd} calls bytes {}", at + 40)), "{report}");
                        }
                        _ => panic!("case {i}, n = {n}, PE {odd} is wrong, PE {me}: {error}"),
                    }
                }
                coll.all_reduce(whole.slice(..10)?, whole.slice(..10)?, Sum)?;
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn a_workspace_that_is_too_small_says_what_is_needed() {
    let ended = job(
        16,
        |builder| builder.set("SHMEM_TEAM_WORKSPACE", "4K").unwrap(),
        |world: &World| {
            let team = world.team();
            let error = Coll::new(world, &team).err().map(|error| error.to_string());
            world.barrier_all()?;
            Ok(error)
        },
    );
    for error in ended {
        let error = error.unwrap().expect("16 PEs do not fit into 4 KiB");
        assert!(error.contains("4096") || error.contains("4 KiB") || error.contains("4K"), "{error}");
    }
}

/// In the least workspace everything works, if more slowly.
#[test]
fn a_small_workspace_is_enough() {
    let ended = job(4, |builder| builder.set("SHMEM_TEAM_WORKSPACE", "8K").unwrap(), crate::unequal::all);
    ended.into_iter().for_each(|pe| pe.unwrap());
}
