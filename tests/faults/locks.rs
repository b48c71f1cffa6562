//! Locks that a lost PE held or waited for.

use shmem::{Shared, SymSlice};

use super::*;

/// A lock, and who stands in its queue: PE 1 holds it, PE 2 waits for it, the others come later.
fn queue<'w>(world: &'w World, lock: SymSlice<'w, u64>) -> Result<()> {
    let ctx = world.ctx::<Shared>();
    if world.me() == 1 {
        ctx.set_lock(lock)?;
    }
    world.barrier_all()
}

#[test]
fn a_lock_that_the_lost_pe_held_is_broken() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (ctx, lock) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(2)?);
            let first = lock.sym().at(0)?;
            queue(world, first)?;
            if world.me() == 1 {
                world.abandon();
                return Ok(());
            }
            assert!(is_lost(&ctx.set_lock(first).unwrap_err(), 1));
            works(world)?;
            // Whoever waited has broken it, and all are told.
            for _ in 0..2 {
                assert_kind!(ctx.set_lock(first), ErrorKind::Lock { .. });
                assert_kind!(ctx.test_lock(first), ErrorKind::Lock { .. });
                assert_kind!(ctx.clear_lock(first), ErrorKind::Lock { .. });
            }
            // As good as new once it is zero again.
            world.barrier_all()?;
            first.write(0, 0)?;
            world.barrier_all()?;
            for lock in [first, lock.sym().at(1)?] {
                ctx.set_lock(lock)?;
                ctx.clear_lock(lock)?;
            }
            world.barrier_all()
        })
        .unwrap();
    }
}

/// Nobody waited when the holder was lost: the first who comes finds out.
#[test]
fn a_lock_whose_holder_was_lost_unnoticed_is_found_broken() {
    for n in [2, 3, 5] {
        shmem::local(n, |world| {
            let (ctx, lock) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(1)?);
            queue(world, lock.sym())?;
            if world.me() == 1 {
                world.abandon();
                return Ok(());
            }
            drop(until_lost(|| world.barrier_all()));
            works(world)?;
            let error = ctx.set_lock(lock.sym()).unwrap_err();
            assert!(is_lost(&error, 1) || matches!(error.kind(), ErrorKind::Lock { .. }), "{error}");
            assert_kind!(ctx.set_lock(lock.sym()), ErrorKind::Lock { .. });
            world.barrier_all()
        })
        .unwrap();
    }
}

/// A PE that is lost while it waits for the lock: the holder gives it back all the same.
#[test]
fn a_lock_for_which_the_lost_pe_waited() {
    for n in [3, 5] {
        shmem::local(n, |world| {
            let (ctx, lock) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(1)?);
            queue(world, lock.sym())?;
            match world.me() {
                // Its world ends while it stands in the queue, as its patience does.
                2 => {
                    std::thread::scope(|threads| {
                        let waiting = threads.spawn(|| ctx.set_lock(lock.sym()));
                        // The holder's word names the next in the queue.
                        while ctx.g(lock.sym(), 1).unwrap() & ((1 << 29) - 1) == 0 {
                            std::thread::yield_now();
                        }
                        world.abandon();
                        // The holder may have handed it on first: then a lost PE holds it, unless others, who found it
                        // lost, have broken the lock by then.
                        if let Err(error) = waiting.join().unwrap() {
                            assert!(is_lost(&error, 2) || matches!(error.kind(), ErrorKind::Lock { .. }), "{error}");
                        }
                    });
                    return Ok(());
                }
                1 => {
                    drop(until_lost(|| world.barrier_all()));
                    ctx.clear_lock(lock.sym())?;
                }
                _ => drop(until_lost(|| world.barrier_all())),
            }
            works(world)?;
            let error = ctx.set_lock(lock.sym()).unwrap_err();
            assert!(is_lost(&error, 2) || matches!(error.kind(), ErrorKind::Lock { .. }), "{error}");
            assert_kind!(ctx.set_lock(lock.sym()), ErrorKind::Lock { .. });
            world.barrier_all()
        })
        .unwrap();
    }
}
