//! The symmetric heap: allocation, reallocation and release, the same on every PE; and what happens when the PEs
//! disagree.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Random, everywhere, job, kind_of, processes, scaled, text_of, without_places};
use shmem::{ErrorKind, Result, Shared, SymBox, World};

/// Whether all PEs hold the same number.
fn same_everywhere(world: &World, number: u64) -> Result<bool> {
    let table = world.alloc::<u64>(world.n_pes())?;
    for pe in 0..world.n_pes() {
        world.ctx::<Shared>().p(table.sym().at(world.me())?, number, pe)?;
    }
    world.barrier_all()?;
    let all = table.sym().to_vec();
    world.free(table)?;
    Ok(all.iter().all(|other| *other == number))
}

/// Puts, gets, allocates and splits: the world is in step.
fn still_works(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let block = world.alloc::<u64>(n)?;
    for pe in 0..n {
        ctx.p(block.sym().at(me)?, me as u64 * 3, pe)?;
    }
    world.barrier_all()?;
    assert_eq!(block.sym().to_vec(), (0..n as u64).map(|pe| pe * 3).collect::<Vec<_>>());
    assert!(same_everywhere(world, block.sym().offset() as u64)?);
    world.sync_all()?;
    if let Some(team) = world.team().split_strided(0, 1, n)? {
        team.barrier()?;
        team.destroy()?;
    }
    world.free(block)
}

/// D14, D15: random sequences of all calls; offsets agree, contents survive, nothing overlaps, and in the end all is
/// free.
fn random_sequences(world: &World, rounds: usize) -> Result<()> {
    struct Live<'w> {
        block: SymBox<'w, u16>,
        stamp: u16,
        align: usize,
    }
    let me = world.me();
    let before = world.heap_free();
    let mut random = Random(2024);
    let mut live: Vec<Live<'_>> = Vec::new();
    let own = |stamp: u16, i: usize| stamp.wrapping_mul(31).wrapping_add(i as u16).wrapping_add(me as u16 * 7);
    let fill = |block: &SymBox<'_, u16>, stamp: u16, from: usize| {
        (from..block.sym().len()).for_each(|i| block.sym().write(i, own(stamp, i)).unwrap());
    };
    let check = |block: &SymBox<'_, u16>, stamp: u16, len: usize| {
        let values = block.sym().to_vec();
        assert!(values[..len].iter().enumerate().all(|(i, value)| *value == own(stamp, i)), "contents of {block:?}");
    };
    let mut digest = 0_u64;
    for round in 0..rounds {
        let (len, stamp) = (random.below(700) * random.below(3), round as u16);
        match random.below(6) {
            0 | 1 => {
                let block = world.alloc::<u16>(len)?;
                live.push(Live { block, stamp, align: 64 });
            }
            2 => {
                let block = world.alloc_zeroed::<u16>(len)?;
                assert!(block.sym().to_vec().iter().all(|value| *value == 0));
                live.push(Live { block, stamp, align: 64 });
            }
            3 => {
                let align = 1 << random.below(13);
                live.push(Live { block: world.align::<u16>(align, len)?, stamp, align });
            }
            4 if !live.is_empty() => {
                let at = random.below(live.len());
                let Live { block, stamp, align } = &mut live[at];
                let old = block.sym().len();
                world.realloc(block, len)?;
                assert_eq!(block.sym().len(), len);
                check(block, *stamp, old.min(len));
                fill(block, *stamp, old.min(len));
                *align = 64;
            }
            _ if !live.is_empty() => {
                let Live { block, stamp, .. } = live.swap_remove(random.below(live.len()));
                check(&block, stamp, block.sym().len());
                world.free(block)?;
            }
            _ => {}
        }
        if let Some(Live { block, stamp, align }) = live.last() {
            assert!(block.sym().is_empty() || block.sym().offset().is_multiple_of(*align));
            fill(block, *stamp, 0);
        }
        for Live { block, .. } in &live {
            digest = digest.wrapping_mul(31).wrapping_add((block.sym().offset() * 1000 + block.sym().len()) as u64);
        }
        digest = digest.wrapping_mul(31).wrapping_add((world.heap_free().0 + world.heap_free().1) as u64);
    }
    let mut spans: Vec<_> = live.iter().map(|l| (l.block.sym().offset(), l.block.sym().len() * 2)).collect();
    spans.retain(|(_, bytes)| *bytes > 0);
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert!(same_everywhere(world, digest)?, "offsets differ between the PEs");
    for Live { block, stamp, .. } in live {
        check(&block, stamp, block.sym().len());
        world.free(block)?;
    }
    assert_eq!(world.heap_free(), before);
    assert_eq!(before.0, world.heap_size());
    Ok(())
}

#[test]
fn random_sequences_agree_on_every_pe() {
    everywhere(|world| random_sequences(world, scaled(world, 1000).max(100)));
}

#[test]
fn random_sequences_as_processes() {
    processes("random_sequences_as_processes", &[1, 2, 3, 5, 8, 16], |world| {
        // D15: whatever else one PE maps or allocates does not move its objects.
        let extra = if world.me() == 1 { vec![7_u8; 32 << 20] } else { Vec::new() };
        random_sequences(world, 200)?;
        assert!(extra.iter().all(|byte| *byte == 7));
        Ok(())
    });
}

#[test]
fn alignments_are_kept_or_refused() {
    everywhere(|world| {
        for align in (0..22).map(|bits| 1 << bits) {
            let block = world.align::<u8>(align, 3)?;
            assert!(block.sym().offset().is_multiple_of(align.max(64)));
            assert!((block.sym().as_ptr() as usize).is_multiple_of(align), "the address, too");
            world.free(block)?;
        }
        let wide = world.align::<u64>(1, 3)?;
        assert!(wide.sym().offset().is_multiple_of(8));
        world.free(wide)?;
        for align in [0, 3, 96, 128 << 20, usize::MAX] {
            let error = world.align::<u8>(align, 1);
            assert_kind!(error, ErrorKind::BadAlignment { align: a, max: 0x400_0000 } if *a == align);
        }
        still_works(world)
    });
}

#[test]
fn nothing_is_a_legal_allocation() {
    everywhere(|world| {
        let free = world.heap_free();
        let mut empty = world.alloc::<u64>(0)?;
        let other = world.alloc_zeroed::<u64>(0)?;
        let aligned = world.align::<u64>(4096, 0)?;
        assert!(empty.sym().is_empty() && other.sym().is_empty() && aligned.sym().is_empty());
        assert_eq!(world.heap_free(), free);
        // A block takes the place where the empty ones lie; freeing those must leave it alone.
        let block = world.alloc::<u64>(8)?;
        block.sym().fill(5);
        world.free(other)?;
        world.free(aligned)?;
        let second = world.alloc::<u64>(8)?;
        assert_ne!(second.sym().offset(), block.sym().offset());
        world.realloc(&mut empty, 4)?;
        empty.sym().fill(9);
        world.realloc(&mut empty, 0)?;
        world.free(empty)?;
        assert_eq!(block.sym().to_vec(), [5; 8]);
        world.free(second)?;
        world.free(block)?;
        assert_eq!(world.heap_free(), free);
        still_works(world)
    });
}

#[test]
fn elements_without_size_take_no_room() {
    everywhere(|world| {
        let free = world.heap_free();
        let block = world.alloc::<u64>(8)?;
        let mut units = world.alloc::<()>(5)?;
        assert_eq!(units.sym().len(), 5);
        world.realloc(&mut units, 7)?;
        assert_eq!(units.sym().to_vec(), [(); 7]);
        world.free(units)?;
        let second = world.alloc::<u64>(8)?;
        assert_ne!(second.sym().offset(), block.sym().offset(), "freeing nothing freed somebody's block");
        world.free(block)?;
        world.free(second)?;
        let many = world.alloc::<()>(usize::MAX)?;
        world.free(many)?;
        assert_eq!(world.heap_free(), free);
        Ok(())
    });
}

/// D05: a full heap says what was asked, what is free, how large the heap is and what to set; on every PE, and nothing
/// is lost.
#[test]
fn a_full_heap_is_reported_alike_on_every_pe() {
    for n in common::COUNTS {
        for pe in job(
            n,
            |builder| builder.heap(1 << 20),
            |world| {
                let error = world.alloc::<u64>(1 << 18);
                assert_kind!(
                    error,
                    ErrorKind::HeapFull { need, free, largest, heap, .. }
                        if (*need, *free, *largest, *heap) == (1 << 21, 1 << 20, 1 << 20, 1 << 20)
                );
                let text = text_of(error);
                for part in ["2097152", "1048576", "SHMEM_SYMMETRIC_SIZE"] {
                    assert!(text.contains(part), "{text}");
                }
                let all = world.alloc::<u8>(1 << 20)?;
                assert_eq!(world.heap_free(), (0, 0));
                assert_kind!(world.alloc::<u8>(1), ErrorKind::HeapFull { need: 1, free: 0, .. });
                assert_kind!(world.align::<u8>(4096, 1), ErrorKind::HeapFull { align: 4096, .. });
                assert_kind!(world.alloc_zeroed::<u8>(1), ErrorKind::HeapFull { .. });
                world.free(world.alloc::<u8>(0)?)?;
                world.free(all)?;
                assert_kind!(
                    world.alloc::<u64>(usize::MAX / 4),
                    ErrorKind::Overflow { count, size: 8 } if *count == usize::MAX / 4
                );
                assert_kind!(world.alloc::<u64>(isize::MAX as usize / 8), ErrorKind::HeapFull { .. });
                still_works(world)
            },
        ) {
            pe.unwrap();
        }
    }
}

/// D14: what does not fit leaves the old block, its place and its contents as they were.
#[test]
fn a_failed_realloc_leaves_the_block() {
    for n in [1, 2, 3, 5] {
        for pe in job(
            n,
            |builder| builder.heap(1 << 20),
            |world| {
                let mut block = world.align::<u32>(4096, 1000)?;
                let offset = block.sym().offset();
                block.sym().fill(77);
                let free = world.heap_free();
                assert_kind!(world.realloc(&mut block, 1 << 19), ErrorKind::HeapFull { .. });
                assert_kind!(world.realloc(&mut block, usize::MAX), ErrorKind::Overflow { size: 4, .. });
                assert_eq!((block.sym().offset(), block.sym().len(), world.heap_free()), (offset, 1000, free));
                assert_eq!(block.sym().to_vec(), vec![77; 1000]);
                world.free(block)?;
                still_works(world)
            },
        ) {
            pe.unwrap();
        }
    }
}

/// A block that fills more than half of the heap can still shrink, and grow into free room behind it.
#[test]
fn a_large_block_is_resized_in_place() {
    for n in [1, 3] {
        for pe in job(
            n,
            |builder| builder.heap(1 << 20),
            |world| {
                let mut block = world.alloc::<u8>(900 << 10)?;
                block.sym().fill(3);
                world.realloc(&mut block, 600 << 10)?;
                world.realloc(&mut block, 1000 << 10)?;
                assert!(block.sym().slice(..600 << 10)?.to_vec().iter().all(|byte| *byte == 3));
                world.realloc(&mut block, 10)?;
                assert_eq!(block.sym().to_vec(), [3; 10]);
                assert_eq!(world.heap_free().0, (1 << 20) - 64);
                world.free(block)?;
                still_works(world)
            },
        ) {
            pe.unwrap();
        }
    }
}

/// Both sides of a disagreement, as a report shows them for `odd` among `n` PEs.
fn sides(n: usize, odd: usize, one: &str, rest: &str) -> String {
    let others: Vec<usize> = (0..n).filter(|pe| *pe != odd).collect();
    let mut runs: Vec<String> = Vec::new();
    for chunk in others.chunk_by(|a, b| a + 1 == *b) {
        runs.push(if chunk.len() == 1 {
            chunk[0].to_string()
        } else {
            format!("{}-{}", chunk[0], chunk[chunk.len() - 1])
        });
    }
    if others.len() == 1 {
        // Of two PEs neither is the odd one: the first comes first.
        let (a, b) = if odd == 0 { (one, rest) } else { (rest, one) };
        return format!("PE 0 calls {a}, PE 1 calls {b}");
    }
    format!("PE {odd} calls {one}, PEs {} call {rest}", runs.join(" and "))
}

/// Asymmetric sizes: every PE learns both sizes and who asked for which, from every position, and all goes on.
fn asymmetric_sizes(world: &World) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let free = world.heap_free();
    for odd in 0..n {
        let len = if me == odd { 2 } else { 1 };
        let report = format!("the PEs of the team disagree: {}", sides(n, odd, "alloc(16 bytes)", "alloc(8 bytes)"));
        assert_eq!(without_places(&text_of(world.alloc::<u64>(len))), report);
        let report = sides(n, odd, "alloc_zeroed(16 bytes)", "alloc_zeroed(8 bytes)");
        assert!(without_places(&text_of(world.alloc_zeroed::<u64>(len))).contains(&report));
        let report = sides(n, odd, "alloc(8 bytes, aligned to 256)", "alloc(8 bytes, aligned to 128)");
        assert!(without_places(&text_of(world.align::<u64>(128 * len, 1))).contains(&report));
        assert_eq!(world.heap_free(), free, "nothing was allocated");
        still_works(world)?;
    }
    // Everybody another size.
    if n > 1 {
        let text = text_of(world.alloc::<u8>(100 + me));
        for pe in 0..n {
            assert!(text.contains(&format!("PE {pe} calls alloc({} bytes)", 100 + pe)), "{text}");
        }
    }
    still_works(world)
}

#[test]
fn asymmetric_sizes_are_reported_on_every_pe() {
    for n in [2, 3, 5, 8, 16] {
        shmem::local(n, asymmetric_sizes).unwrap();
    }
    common::shuffled(asymmetric_sizes);
}

#[test]
fn asymmetric_sizes_as_processes() {
    processes("asymmetric_sizes_as_processes", &[2, 3, 5, 8], asymmetric_sizes);
}

/// C09: one PE in another collective call altogether.
fn different_calls(world: &World) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    for odd in 0..n {
        let error = if me == odd { world.alloc::<u8>(8).map(|_| ()) } else { world.barrier_all() };
        assert!(without_places(&text_of(error)).contains(&sides(n, odd, "alloc(8 bytes)", "barrier")));
        // As in the report: both call both, in different orders, and each call is one error.
        let (first, second) = if me == odd {
            (world.barrier_all(), world.alloc::<u8>(8).map(|_| ()))
        } else {
            let first = world.alloc::<u8>(8).map(|_| ());
            (first, world.barrier_all())
        };
        assert_kind!(first, ErrorKind::Mismatch { .. });
        assert_kind!(second, ErrorKind::Mismatch { .. });
        let error = if me == odd { world.sync_all() } else { world.barrier_all() };
        assert!(without_places(&text_of(error)).contains(&sides(n, odd, "sync", "barrier")));
        let error = if me == odd { world.team().split_strided(0, 1, 1).map(|_| ()) } else { world.sync_all() };
        assert!(text_of(error).contains("sync"));
        still_works(world)?;
    }
    Ok(())
}

#[test]
fn different_calls_are_reported_on_every_pe() {
    for n in [2, 3, 5, 8] {
        shmem::local(n, different_calls).unwrap();
    }
    common::shuffled(different_calls);
}

#[test]
fn different_calls_as_processes() {
    processes("different_calls_as_processes", &[2, 3, 5], different_calls);
}

/// Freeing or resizing different blocks: all PEs learn it, and no heap differs from another afterwards.
fn different_blocks(world: &World) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    for odd in 0..n {
        let (first, second) = (world.alloc::<u8>(4096)?, world.alloc::<u8>(4096)?);
        let (mine, other) = if me == odd { (first, second) } else { (second, first) };
        let text = without_places(&text_of(world.free(mine)));
        assert!(text.contains("free(offset"), "{text}");
        // `mine` stays taken; the other one is still there, and differs, too.
        let mut other = other;
        let free = world.heap_free();
        let error = world.realloc(&mut other, 100);
        assert_kind!(error, ErrorKind::Mismatch { .. });
        assert!(error.unwrap_err().to_string().contains("realloc"));
        assert_eq!((world.heap_free(), other.sym().len()), (free, 4096));
        still_works(world)?;
        // The same block, other sizes.
        let mut block = world.alloc::<u8>(100)?;
        let text = without_places(&text_of(world.realloc(&mut block, if me == odd { 50 } else { 60 })));
        assert!(text.contains(&sides(n, odd, "realloc(50 bytes)", "realloc(60 bytes)")), "{text}");
        assert_eq!(block.sym().len(), 100);
        world.free(block)?;
        still_works(world)?;
    }
    Ok(())
}

#[test]
fn different_blocks_are_reported_on_every_pe() {
    for n in [2, 3, 5] {
        shmem::local(n, different_blocks).unwrap();
    }
}

/// An empty object has the offset of the heap's first block, and is not that: freeing one here and the other there must
/// not go unseen.
#[test]
fn an_empty_block_is_told_from_the_first() {
    for n in [2, 3] {
        shmem::local(n, |world| {
            let (block, empty) = (world.alloc::<u8>(64)?, world.alloc::<u8>(0)?);
            assert_eq!(block.sym().offset(), empty.sym().offset());
            let free = world.heap_free();
            if world.me() == 0 {
                assert!(text_of(world.free(empty)).contains("PE 0 calls free(an empty block)"));
            } else {
                assert!(text_of(world.free(block)).contains("PE 0 calls free(an empty block)"));
            }
            assert_eq!(world.heap_free(), free);
            still_works(world)
        })
        .unwrap();
    }
}

/// Page-aligned blocks differ in nothing but their page: resizing different ones must not go unseen.
#[test]
fn different_pages_are_told_apart() {
    shmem::local(2, |world| {
        let (mut first, mut second) = (world.align::<u8>(4096, 4096)?, world.align::<u8>(4096, 4096)?);
        let mine = if world.me() == 0 { &mut first } else { &mut second };
        assert_kind!(world.realloc(mine, 100), ErrorKind::Mismatch { .. });
        assert_eq!(mine.sym().len(), 4096);
        world.free(first)?;
        world.free(second)?;
        still_works(world)
    })
    .unwrap();
}

/// Handles of one world used with another: an error everywhere, nothing written or freed, and both worlds go on.
#[test]
fn two_worlds_are_not_mixed() {
    for n in [1, 2, 3] {
        let second = common::address();
        shmem::local(n, |one| {
            let builder = World::builder().pe(one.me()).n_pes(n).rendezvous(&*second).heap(1 << 20);
            let other = builder.build()?;
            let (ctx, foreign) = (one.ctx::<Shared>(), other.alloc_zeroed::<u64>(4)?);
            let own = one.alloc_zeroed::<u64>(4)?;
            let offset = foreign.sym().offset();
            let (a, b) = (own.sym(), foreign.sym());
            let sig = shmem::SigRef::set;
            let results: Vec<(&str, Result<()>)> = vec![
                ("put", ctx.put(b, &[1], 0)),
                ("get", ctx.get(&mut [0], b, 0)),
                ("p", ctx.p(b, 1, 0)),
                ("g", ctx.g(b, 0).map(|_| ())),
                ("put_from", ctx.put_from(a, b, 0)),
                ("put_from", ctx.put_from(b, a, 0)),
                ("get_into", ctx.get_into(a, b, 0)),
                ("get_into", ctx.get_into(b, a, 0)),
                ("iput", ctx.iput(b, 1, &[1], 1, 1, 0)),
                ("iget", ctx.iget(&mut [0], 1, b, 1, 1, 0)),
                ("ptr", ctx.ptr(b, 0).map(|_| ())),
                ("put_signal", ctx.put_signal(a, &[1], sig(b, 1), 0)),
                ("put_signal", ctx.put_signal(b, &[1], sig(a, 1), 0)),
                ("signal", ctx.signal(sig(b, 1), 0)),
                ("signal_fetch", ctx.signal_fetch(b).map(|_| ())),
                ("wait", ctx.wait(b, |_| true).map(|_| ())),
                ("test", ctx.test(b, shmem::Cmp::Eq, 0).map(|_| ())),
                ("test_all", ctx.test_all(b, &[], shmem::Cmp::Eq, 0).map(|_| ())),
                ("atomic_fetch", ctx.atomic_fetch(b, 0).map(|_| ())),
                ("atomic_add", ctx.atomic_add(b, 1, 0)),
                ("set_lock", ctx.set_lock(b)),
                ("test_lock", ctx.test_lock(b).map(|_| ())),
                ("clear_lock", ctx.clear_lock(b)),
            ];
            for (call, result) in &results {
                let same = matches!(kind_of(result), ErrorKind::OtherWorld { offset: at } if [offset, a.offset()].contains(at));
                assert!(same, "{call}: {:?}", result);
            }
            assert_eq!((a.to_vec(), b.to_vec()), (vec![0; 4], vec![0; 4]));
            one.barrier_all()?;
            let free = other.heap_free();
            assert_kind!(one.free(foreign), ErrorKind::OtherWorld { .. });
            assert_eq!(other.heap_free(), free);
            still_works(one)?;
            still_works(&other)?;
            one.free(own)
        })
        .unwrap();
    }
}

#[test]
fn one_pe_that_mixes_worlds_is_a_mismatch_for_all() {
    let second = common::address();
    shmem::local(2, |one| {
        let other = World::builder().pe(one.me()).n_pes(2).rendezvous(&*second).heap(1 << 20).build()?;
        let (own, foreign) = (one.alloc::<u64>(4)?, other.alloc::<u64>(4)?);
        let mine = if one.me() == 0 { own } else { foreign };
        assert_kind!(one.free(mine), ErrorKind::Mismatch { .. });
        still_works(one)?;
        still_works(&other)
    })
    .unwrap();
}

#[test]
fn objects_are_found_by_their_offset_only_while_they_live() {
    everywhere(|world| {
        let block = world.alloc::<u64>(10)?;
        let offset = block.sym().offset();
        block.sym().fill(4);
        assert_eq!(world.object_at::<u64>(offset + 16, 8)?.to_vec(), [4; 8]);
        assert_eq!(world.object_at::<u8>(offset + 1, 79)?.len(), 79);
        assert_kind!(world.object_at::<u64>(offset, 11), ErrorKind::NotAllocated { .. });
        assert_kind!(world.object_at::<u8>(offset - 1, 2), ErrorKind::NotAllocated { .. });
        assert_kind!(
            world.object_at::<u64>(offset + 4, 1),
            ErrorKind::Misaligned { offset: at, align: 8 } if *at == offset + 4
        );
        assert_kind!(world.object_at::<u64>(offset, usize::MAX / 4), ErrorKind::Overflow { size: 8, .. });
        assert_kind!(
            world.object_at::<u8>(usize::MAX, 2),
            ErrorKind::NotAllocated { offset: usize::MAX, end: usize::MAX }
        );
        // The control page is nobody's.
        assert_kind!(world.object_at::<u64>(0, 1), ErrorKind::NotAllocated { offset: 0, end: 8 });
        world.free(block)?;
        assert_kind!(world.object_at::<u64>(offset, 1), ErrorKind::NotAllocated { .. });
        world.barrier_all()
    });
}
