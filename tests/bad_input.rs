//! Wrong arguments: a typed error that says who, what and the limit; nothing is written, nobody else is disturbed, and
//! later calls work.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{everywhere, text_of};
use shmem::{Cmp, ErrorKind, Result, Shared, SigRef, World};

/// Calls `f` with a context and an object of 8 words, checks that nothing was written anywhere, and that all goes on.
fn nothing_happens(
    world: &World,
    f: impl Fn(&shmem::Ctx<'_, Shared>, shmem::SymSlice<'_, u64>) -> Result<()>,
) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let block = world.alloc::<u64>(24)?;
    block.sym().fill(3);
    world.barrier_all()?;
    f(&ctx, block.sym().slice(8..16)?)?;
    world.barrier_all()?;
    assert_eq!(block.sym().to_vec(), [3; 24]);
    world.barrier_all()?;
    ctx.p(block.sym().at(8)?, me as u64, (me + 1) % n)?;
    ctx.atomic_inc(block.sym().at(9)?, (me + 1) % n)?;
    world.barrier_all()?;
    assert_eq!(block.sym().read(8)?, ((me + n - 1) % n) as u64);
    assert_eq!(block.sym().read(9)?, 4);
    world.free(block)
}

#[test]
fn a_pe_that_does_not_exist() {
    everywhere(|world| {
        nothing_happens(world, |ctx, words| {
            let n = world.n_pes();
            for pe in [n, n + 1, usize::MAX] {
                let signal = SigRef::set(words, 1);
                let results: Vec<(&str, Result<()>)> = vec![
                    ("put", ctx.put(words, &[1], pe)),
                    ("put of nothing", ctx.put(words, &[], pe)),
                    ("get", ctx.get(&mut [0], words, pe)),
                    ("p", ctx.p(words, 1, pe)),
                    ("g", ctx.g(words, pe).map(|_| ())),
                    ("put_from", ctx.put_from(words, words, pe)),
                    ("get_into", ctx.get_into(words, words, pe)),
                    ("iput", ctx.iput(words, 1, &[1], 1, 1, pe)),
                    ("iget", ctx.iget(&mut [0], 1, words, 1, 1, pe)),
                    ("ibput", ctx.ibput(words, 1, &[1], 1, 1, 1, pe)),
                    ("ibget", ctx.ibget(&mut [0], 1, words, 1, 1, 1, pe)),
                    ("ptr", ctx.ptr(words, pe).map(|_| ())),
                    ("put_signal", ctx.put_signal(words, &[1], signal, pe)),
                    ("signal", ctx.signal(signal, pe)),
                    ("scope", ctx.scope(|scope| scope.put_nbi(words, &[1], pe))),
                    ("quiet_pes", ctx.quiet_pes(&[0, pe])),
                    ("fetch", ctx.atomic_fetch(words, pe).map(|_| ())),
                    ("set", ctx.atomic_set(words, 1, pe)),
                    ("swap", ctx.atomic_swap(words, 1, pe).map(|_| ())),
                    ("compare_swap", ctx.atomic_compare_swap(words, 3, 1, pe).map(|_| ())),
                    ("add", ctx.atomic_add(words, 1, pe)),
                    ("inc", ctx.atomic_inc(words, pe)),
                    ("and", ctx.atomic_and(words, 0, pe)),
                    ("or", ctx.atomic_or(words, 1, pe)),
                    ("xor", ctx.atomic_xor(words, 1, pe)),
                ];
                for (call, result) in results {
                    assert_eq!(text_of(result), format!("PE {pe} does not exist: the team has {n}"), "{call}");
                }
            }
            Ok(())
        })
    });
}

#[test]
fn transfers_that_leave_their_object() {
    everywhere(|world| {
        nothing_happens(world, |ctx, words| {
            let nine = [1; 9];
            let out = |result: Result<()>, end: usize| {
                assert_kind!(result, ErrorKind::OutOfRange { start: 0, end: e, len: 8 } if *e == end);
            };
            out(ctx.put(words, &nine, 0), 9);
            out(ctx.get(&mut [0; 9], words, 0), 9);
            out(ctx.iput(words, 4, &nine, 1, 3, 0), 9);
            out(ctx.iget(&mut [0; 9], 1, words, 4, 3, 0), 9);
            out(ctx.ibput(words, 4, &nine, 3, 3, 3, 0), 11);
            out(ctx.ibget(&mut [0; 11], 3, words, 4, 3, 3, 0), 11);
            // Counts whose product no address can hold: N01.
            out(ctx.iput(words, usize::MAX / 2, &nine, 1, 4, 0), usize::MAX);
            out(ctx.iget(&mut [0; 9], 1, words, usize::MAX, 3, 0), usize::MAX);
            out(ctx.ibput(words, usize::MAX, &nine, usize::MAX, usize::MAX, 1, 0), usize::MAX);
            out(ctx.ibget(&mut [0; 9], 1 << 40, words, 1 << 40, 1, 1 << 40, 0), usize::MAX);
            let small = words.slice(6..)?;
            assert_kind!(ctx.put_from(small, words, 0), ErrorKind::OutOfRange { start: 0, end: 8, len: 2 });
            assert_kind!(ctx.get_into(words, small, 0), ErrorKind::OutOfRange { start: 0, end: 8, len: 2 });
            assert_kind!(
                ctx.put_signal(small, &nine, SigRef::set(words, 1), 0),
                ErrorKind::OutOfRange { start: 0, end: 9, len: 2 }
            );
            Ok(())
        })
    });
}

#[test]
fn local_buffers_that_are_too_short() {
    everywhere(|world| {
        nothing_happens(world, |ctx, words| {
            let short = [1; 3];
            assert_kind!(
                ctx.iput(words, 1, &short, 2, 3, 0),
                ErrorKind::Length { what: "source", given: 3, needed: 5 }
            );
            assert_kind!(
                ctx.iget(&mut [0; 3], 2, words, 1, 3, 0),
                ErrorKind::Length { what: "target", given: 3, needed: 5 }
            );
            assert_kind!(
                ctx.ibput(words, 2, &short, 2, 2, 2, 0),
                ErrorKind::Length { what: "source", given: 3, needed: 4 }
            );
            for (target, source, block) in [(0, 1, 1), (1, 0, 1), (2, 3, 3), (3, 2, 3), (0, 0, 0)] {
                assert_kind!(ctx.ibput(words, target, &short, source, block, 1, 0), ErrorKind::Length { .. });
                assert_kind!(ctx.ibget(&mut [0; 3], target, words, source, block, 1, 0), ErrorKind::Length { .. });
            }
            let error = ctx.iput(words, 0, &short, 1, 1, 0);
            assert_kind!(error, ErrorKind::Length { what: "target stride", given: 0, needed: 1 });
            assert_kind!(words.copy_from(&short), ErrorKind::Length { what: "copy_from", given: 3, needed: 8 });
            assert_kind!(words.copy_to(&mut [0; 9]), ErrorKind::Length { what: "copy_to", given: 9, needed: 8 });
            Ok(())
        })
    });
}

#[test]
fn parts_that_are_not_there() {
    everywhere(|world| {
        nothing_happens(world, |ctx, words| {
            assert_kind!(words.at(8), ErrorKind::OutOfRange { start: 8, end: 9, len: 8 });
            assert_kind!(words.at(usize::MAX), ErrorKind::OutOfRange { end: usize::MAX, .. });
            assert_kind!(words.slice(..9), ErrorKind::OutOfRange { start: 0, end: 9, len: 8 });
            assert_kind!(words.slice(9..), ErrorKind::OutOfRange { start: 9, end: 8, len: 8 });
            assert_kind!(words.slice(..=usize::MAX), ErrorKind::OutOfRange { end: usize::MAX, .. });
            let (from, to) = (5, 4);
            assert_kind!(words.slice(from..to), ErrorKind::OutOfRange { start: 5, end: 4, len: 8 });
            assert_kind!(words.read(8), ErrorKind::OutOfRange { start: 8, end: 9, len: 8 });
            assert_kind!(words.write(8, 1), ErrorKind::OutOfRange { start: 8, end: 9, len: 8 });
            assert_eq!(words.slice(2..5)?.slice(1..)?.offset(), words.at(3)?.offset());
            assert_eq!((words.slice(8..)?.len(), words.slice(..)?.len(), words.slice(7..=7)?.len()), (0, 8, 1));

            let none = words.slice(4..4)?;
            let empty = |result: Result<()>| {
                assert_kind!(result, ErrorKind::OutOfRange { start: 0, end: 1, len: 0 });
            };
            empty(ctx.p(none, 1, 0));
            empty(ctx.g(none, 0).map(|_| ()));
            empty(ctx.atomic_inc(none, 0));
            empty(ctx.atomic_fetch(none, 0).map(|_| ()));
            empty(ctx.atomic_set(none.cast::<f64>()?, 1.0, 0));
            empty(ctx.signal(SigRef::add(none, 1), 0));
            empty(ctx.wait_until(none, Cmp::Eq, 3).map(|_| ()));
            empty(ctx.put(none, &[1], 0));
            Ok(())
        })
    });
}

#[test]
fn casts_keep_to_the_object_and_its_alignment() {
    everywhere(|world| {
        nothing_happens(world, |ctx, words| {
            let bytes = words.cast::<u8>()?;
            assert_eq!((bytes.len(), bytes.offset()), (64, words.offset()));
            assert_eq!(bytes.slice(8..29)?.cast::<u64>()?.len(), 2, "a rest makes no element");
            let odd = bytes.slice(1..)?;
            assert_kind!(
                odd.cast::<u16>(),
                ErrorKind::Misaligned { offset, align: 2 } if *offset == words.offset() + 1
            );
            assert_kind!(bytes.slice(4..)?.cast::<u64>(), ErrorKind::Misaligned { align: 8, .. });
            assert_eq!(bytes.slice(4..)?.cast::<u32>()?.len(), 15);
            assert_eq!(odd.cast::<[u8; 3]>()?.len(), 21);
            assert_eq!(words.cast::<()>()?.len(), 0);
            // G14: no atomic and no wait on a word that is not aligned, since there is no such handle.
            assert!(bytes.slice(3..)?.cast::<u32>().is_err());
            assert_eq!(ctx.g(words.cast::<u32>()?, 0)?, 3);
            assert_eq!(words.cast::<u32>()?.to_vec(), [3, 0].repeat(8));
            Ok(())
        })
    });
}

/// One PE's wrong arguments to a call that is not collective are its own affair.
#[test]
fn errors_of_one_pe_do_not_disturb_the_others() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let block = world.alloc_zeroed::<u64>(1)?;
        for round in 0..50 {
            if round % n == me {
                assert!(ctx.put(block.sym(), &[1, 2], 0).is_err());
                assert!(ctx.atomic_inc(block.sym(), n).is_err());
                assert!(ctx.scope(|scope| scope.put_nbi(block.sym(), &[1], n + 5)).is_err());
            }
            world.barrier_all()?;
        }
        assert_eq!(block.sym().read(0)?, 0);
        world.free(block)
    });
}

/// A scope that fails or panics has completed what it started.
#[test]
fn a_scope_that_ends_badly_still_completes() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let right = (me + 1) % n;
        let block = world.alloc_zeroed::<u64>(8)?;
        let words = block.sym();
        let data = [7; 4];
        let failed = ctx.scope(|scope| {
            scope.put_nbi(words.slice(..4)?, &data, right)?;
            scope.put_nbi(words, &data, n)
        });
        assert_kind!(failed, ErrorKind::NoSuchPe { .. });
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ctx.scope(|scope| -> Result<()> {
                scope.put_nbi(words.slice(4..)?, &data, right)?;
                std::panic::resume_unwind(Box::new("made up"))
            })
        }));
        assert!(caught.is_err());
        world.sync_all()?;
        assert_eq!(words.to_vec(), [7; 8]);
        world.barrier_all()?;
        world.free(block)
    });
}

/// The pointers behind an error's size: a result travels in a register.
#[test]
fn results_are_one_pointer_wide() {
    assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    fn is_error<E: std::error::Error + Send + Sync + 'static>() {}
    is_error::<shmem::Error>();
}
