//! Put, get and their kin: every form, every size at which something changes, canaries around every object.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use bytemuck::{Pod, Zeroable};
use common::{Random, everywhere, processes, scaled};
use shmem::{Ctx, Elem, Private, Result, Shared, SymSlice, World};

/// A value of any element type from a seed.
fn value<T: Elem>(seed: u64) -> T {
    let mut bytes = vec![0_u8; size_of::<T>()];
    let mut random = Random(seed);
    bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
    bytemuck::pod_read_unaligned(&bytes)
}

fn values<T: Elem>(seed: u64, len: usize) -> Vec<T> {
    (0..len as u64).map(|i| value(seed.wrapping_mul(1_000_003) + i)).collect()
}

fn bytes_of<T: Elem>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    place: [f64; 3],
    charge: f32,
    kind: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Odd([u8; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(16))]
struct Aligned([u8; 16]);

/// Every form of transfer for one element type, to this PE, the next and the one before.
fn all_forms<T: Elem>(world: &World) -> Result<()> {
    let (ctx, private, me, n) = (world.ctx::<Shared>(), world.ctx::<Private>(), world.me(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let zero = T::zeroed();
    let (inbox, source) = (world.alloc_zeroed::<T>(64)?, world.alloc::<T>(64)?);
    let (inbox_sym, source_sym) = (inbox.sym(), source.sym());
    source_sym.copy_from(&values(me as u64, 64))?;
    let expect = |object: SymSlice<'_, T>, wanted: &[T], what: &str| {
        assert_eq!(bytes_of(&object.to_vec()), bytes_of(wanted), "{what} of {}", std::any::type_name::<T>());
    };
    let clear = || -> Result<()> {
        world.barrier_all()?;
        inbox_sym.fill(zero);
        world.barrier_all()
    };
    let from_left: Vec<T> = values(left as u64, 64);
    let at_right: Vec<T> = values(right as u64, 64);

    ctx.put(inbox_sym.slice(1..)?, &values::<T>(me as u64, 64)[..62], right)?;
    world.barrier_all()?;
    expect(inbox_sym, &[&[zero], &from_left[..62], &[zero]].concat(), "put");

    let mut got = vec![zero; 10];
    private.get(&mut got[1..9], source_sym.slice(5..)?, right)?;
    assert_eq!(bytes_of(&got), bytes_of(&[&[zero], &at_right[5..13], &[zero]].concat()), "get");

    clear()?;
    ctx.p(inbox_sym.at(3)?, value::<T>(me as u64 + 77), right)?;
    world.barrier_all()?;
    let mut wanted = vec![zero; 64];
    wanted[3] = value(left as u64 + 77);
    expect(inbox_sym, &wanted, "p");
    assert_eq!(bytes_of(&[ctx.g(source_sym.at(9)?, right)?]), bytes_of(&at_right[9..10]), "g");

    clear()?;
    ctx.put_from(inbox_sym.slice(2..)?, source_sym.slice(4..20)?, right)?;
    world.barrier_all()?;
    let mut wanted = vec![zero; 64];
    wanted[2..18].copy_from_slice(&from_left[4..20]);
    expect(inbox_sym, &wanted, "put_from");

    clear()?;
    ctx.get_into(inbox_sym.slice(7..20)?, source_sym.slice(1..)?, right)?;
    let mut wanted = vec![zero; 64];
    wanted[7..20].copy_from_slice(&at_right[1..14]);
    expect(inbox_sym, &wanted, "get_into");

    let own: Vec<T> = values(me as u64, 64);
    for (target_stride, source_stride) in [(1, 1), (1, 3), (4, 1), (2, 5), (7, 7)] {
        clear()?;
        ctx.iput(inbox_sym.slice(1..)?, target_stride, &own, source_stride, 9, right)?;
        world.barrier_all()?;
        let mut wanted = vec![zero; 64];
        (0..9).for_each(|i| wanted[1 + i * target_stride] = from_left[i * source_stride]);
        expect(inbox_sym, &wanted, "iput");
        let mut got = vec![zero; 64];
        ctx.iget(&mut got, target_stride, source_sym, source_stride, 9, right)?;
        let mut wanted = vec![zero; 64];
        (0..9).for_each(|i| wanted[i * target_stride] = at_right[i * source_stride]);
        assert_eq!(bytes_of(&got), bytes_of(&wanted), "iget");
    }
    for (target_stride, source_stride, block) in [(3, 3, 3), (5, 4, 2), (4, 9, 4), (12, 10, 1)] {
        clear()?;
        ctx.ibput(inbox_sym, target_stride, &own, source_stride, block, 5, right)?;
        world.barrier_all()?;
        let mut wanted = vec![zero; 64];
        for i in 0..5 {
            wanted[i * target_stride..][..block].copy_from_slice(&from_left[i * source_stride..][..block]);
        }
        expect(inbox_sym, &wanted, "ibput");
        let mut got = vec![zero; 64];
        ctx.ibget(&mut got, target_stride, source_sym, source_stride, block, 5, right)?;
        let mut wanted = vec![zero; 64];
        for i in 0..5 {
            wanted[i * target_stride..][..block].copy_from_slice(&at_right[i * source_stride..][..block]);
        }
        assert_eq!(bytes_of(&got), bytes_of(&wanted), "ibget");
    }

    clear()?;
    let (front, mut back) = (values::<T>(me as u64, 20), vec![zero; 5]);
    ctx.scope(|scope| {
        for (i, element) in front.iter().enumerate() {
            scope.put_nbi(inbox_sym.at(2 * i)?, std::slice::from_ref(element), right)?;
        }
        scope.get_nbi(&mut back, source_sym.slice(11..)?, right)
    })?;
    assert_eq!(bytes_of(&back), bytes_of(&at_right[11..16]), "get_nbi");
    world.barrier_all()?;
    let mut wanted = vec![zero; 64];
    (0..20).for_each(|i| wanted[2 * i] = from_left[i]);
    expect(inbox_sym, &wanted, "put_nbi");
    world.barrier_all()?;
    world.free(inbox)?;
    world.free(source)
}

#[test]
fn every_form_moves_every_element_size() {
    everywhere(all_forms::<u8>);
    everywhere(|world| {
        all_forms::<u16>(world)?;
        all_forms::<u32>(world)?;
        all_forms::<u64>(world)?;
        all_forms::<u128>(world)?;
        all_forms::<f32>(world)?;
        all_forms::<i64>(world)?;
        all_forms::<Odd>(world)?;
        all_forms::<Particle>(world)?;
        all_forms::<Aligned>(world)
    });
}

#[test]
fn every_form_as_processes() {
    processes("every_form_as_processes", &[1, 2, 3, 5, 8, 16], |world| {
        all_forms::<u8>(world)?;
        all_forms::<u64>(world)?;
        all_forms::<Particle>(world)
    });
}

/// What PEs send: PE `pe` sends `len` bytes of it from a place that tells PE and length.
struct Pattern(Vec<u8>);

impl Pattern {
    const SHIFTS: usize = 1021;

    fn up_to(len: usize) -> Self {
        let mut random = Random(5);
        Pattern((0..(len + Self::SHIFTS).div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect())
    }

    fn of(&self, pe: usize, len: usize) -> &[u8] {
        &self.0[(pe * 31 + len * 7) % Self::SHIFTS..][..len]
    }
}

/// Puts and gets `len` bytes at an odd place, with canaries on both sides.
fn one_size(world: &World, room: SymSlice<'_, u8>, pattern: &Pattern, len: usize, skew: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let all = room.slice(..len + 2 * GUARD)?;
    let object = all.slice(skew..skew + len)?;
    all.copy_from(&vec![0xc5; all.len()])?;
    world.barrier_all()?;
    ctx.put(object, pattern.of(me, len), right)?;
    world.barrier_all()?;
    let now = all.to_vec();
    assert!(&now[skew..skew + len] == pattern.of(left, len), "put of {len} bytes at skew {skew}");
    assert!(now[..skew].iter().chain(&now[skew + len..]).all(|byte| *byte == 0xc5), "{len} bytes left their object");
    let mut got = vec![0x3a; len + 2];
    ctx.get(&mut got[1..=len], object, right)?;
    assert!(&got[1..=len] == pattern.of(me, len), "get of {len} bytes at skew {skew}");
    assert_eq!((got[0], got[len + 1]), (0x3a, 0x3a));
    world.barrier_all()
}

const GUARD: usize = 64;

#[test]
fn every_size_arrives_whole_and_nothing_else_changes() {
    let pattern = Pattern::up_to((1 << 20) + 1);
    everywhere(|world| {
        let room = world.alloc::<u8>((1 << 20) + 3 * GUARD)?;
        let step = if world.n_pes() > 3 || scaled(world, 1000) < 1000 { 13 } else { 1 };
        for len in (0..300).step_by(step) {
            one_size(world, room.sym(), &pattern, len, 1 + len % 63)?;
        }
        for around in [1 << 9, 1 << 12, 1 << 16, 1 << 20] {
            for len in [around - 1, around, around + 1] {
                one_size(world, room.sym(), &pattern, len, 64)?;
                one_size(world, room.sym(), &pattern, len, 33)?;
            }
        }
        world.free(room)
    });
}

#[test]
fn sizes_around_the_switch_to_streaming() {
    // The shipped switch on two PEs, and a low one so that many PEs cross it cheaply.
    let from = shmem::local(1, |world| Ok(world.config().stream_from.unwrap())).unwrap()[0];
    let pattern = Pattern::up_to(from + 1);
    shmem::local(2, |world| {
        let room = world.alloc::<u8>(from + 3 * GUARD)?;
        for len in [from - 1, from, from + 1] {
            one_size(world, room.sym(), &pattern, len, 64)?;
            one_size(world, room.sym(), &pattern, len, 1)?;
        }
        world.free(room)
    })
    .unwrap();
    for n in [1, 2, 3, 5] {
        for result in common::job(
            n,
            |builder| builder.set("SHMEM_STREAM_FROM", "100").unwrap(),
            |world| {
                let room = world.alloc::<u8>(70_000)?;
                for len in (80..400).chain([4095, 4096, 4097, 65_535, 65_536]) {
                    one_size(world, room.sym(), &pattern, len, 1 + len % 64)?;
                }
                world.free(room)
            },
        ) {
            result.unwrap();
        }
    }
}

#[test]
fn no_elements_are_a_legal_transfer() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let right = (me + 1) % n;
        let full = world.alloc_zeroed::<u64>(4)?;
        let empty = world.alloc::<u64>(0)?;
        let end_of_object = full.sym().slice(4..)?;
        let end_of_heap = world.object_at::<u64>(end_of_heap(world)?, 0)?;
        for object in [empty.sym(), end_of_object, end_of_heap] {
            ctx.put(object, &[], right)?;
            ctx.get(&mut [], object, right)?;
            ctx.put_from(object, empty.sym(), right)?;
            ctx.get_into(empty.sym(), object, right)?;
            ctx.iput(object, 1, &[], 1, 0, right)?;
            ctx.iget(&mut [], 1, object, 1, 0, right)?;
            ctx.ibput(object, 1, &[], 1, 0, 3, right)?;
            ctx.ibget(&mut [], 1, object, 1, 0, 3, right)?;
            ctx.ibput(object, 7, &[], 9, 3, 0, right)?;
            ctx.scope(|scope| scope.put_nbi(object, &[], right))?;
            assert!(object.is_empty() && object.to_vec().is_empty());
        }
        world.barrier_all()?;
        assert_eq!(full.sym().to_vec(), [0; 4]);
        world.free(empty)?;
        world.free(full)
    });
}

/// Where the heap ends.
fn end_of_heap(world: &World) -> Result<usize> {
    let first = world.alloc::<u8>(0)?;
    let start = first.sym().offset();
    world.free(first)?;
    Ok(start + world.heap_size())
}

#[test]
fn copies_within_one_pe_may_overlap() {
    everywhere(|world| {
        let (ctx, me) = (world.ctx::<Shared>(), world.me());
        let block = world.alloc::<u32>(100)?;
        let all = block.sym();
        for (from, to) in [(0, 10), (10, 0), (5, 5), (0, 1), (50, 3)] {
            let before: Vec<u32> = (0..100).collect();
            let mut wanted = before.clone();
            wanted.copy_within(from..from + 50, to);
            all.copy_from(&before)?;
            ctx.put_from(all.slice(to..)?, all.slice(from..from + 50)?, me)?;
            assert_eq!(all.to_vec(), wanted);
            all.copy_from(&before)?;
            ctx.get_into(all.slice(to..to + 50)?, all.slice(from..)?, me)?;
            assert_eq!(all.to_vec(), wanted);
        }
        world.free(block)
    });
}

/// Loads and stores through the addresses of all peers (A20).
fn through_pointers(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let table = world.alloc_zeroed::<u64>(n)?;
    for pe in 0..n {
        let address = ctx.ptr(table.sym().at(me)?, pe)?.expect("all PEs of a host are mapped");
        if pe == me {
            assert_eq!(address, table.sym().at(me)?.as_ptr());
        }
        // SAFETY: the address of an element of this job's heap; nobody else writes this element.
        unsafe { address.write_volatile((me * 100 + pe) as u64) };
    }
    world.barrier_all()?;
    let wanted: Vec<u64> = (0..n).map(|pe| (pe * 100 + me) as u64).collect();
    assert_eq!(table.sym().to_vec(), wanted);
    world.free(table)
}

#[test]
fn peers_memory_is_reached_through_pointers() {
    for n in common::COUNTS {
        shmem::local(n, through_pointers).unwrap();
    }
    // Where puts go over the network, a pointer would bypass their order.
    common::job(
        2,
        |builder| builder.set("SHMEM_ROUTE", "sim").unwrap(),
        |world| {
            let word = world.alloc::<u64>(1)?;
            assert!(world.ctx::<Shared>().ptr(word.sym(), 1 - world.me())?.is_none());
            world.free(word)
        },
    )
    .into_iter()
    .for_each(|pe| pe.unwrap());
}

#[test]
fn pointers_as_processes() {
    processes("pointers_as_processes", &[1, 2, 5], through_pointers);
}

/// G16: what is stored or put before a barrier is what everybody gets after it.
fn get_after_barrier(world: &World, rounds: usize) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let cells = world.alloc_zeroed::<u64>(16)?;
    let inbox = world.alloc_zeroed::<u64>(n)?;
    for round in 1..=rounds as u64 {
        let stamp = round << 8 | me as u64;
        cells.sym().write((round % 16) as usize, stamp)?;
        for pe in 0..n {
            ctx.p(inbox.sym().at(me)?, stamp, pe)?;
        }
        world.barrier_all()?;
        let other = (me + round as usize) % n;
        let theirs = round << 8 | other as u64;
        assert_eq!(ctx.g(cells.sym().at((round % 16) as usize)?, other)?, theirs);
        assert_eq!(inbox.sym().read(other)?, theirs);
        assert_eq!(ctx.g(inbox.sym().at(me)?, other)?, stamp);
        world.barrier_all()?;
    }
    world.free(inbox)?;
    world.free(cells)
}

#[test]
fn a_get_after_a_barrier_sees_what_was_before_it() {
    everywhere(|world| get_after_barrier(world, scaled(world, if world.n_pes() <= 2 { 50_000 } else { 10_000 })));
}

#[test]
fn a_get_after_a_barrier_as_processes() {
    processes("a_get_after_a_barrier_as_processes", &[2, 3, 8], |world| {
        get_after_barrier(world, scaled(world, if world.n_pes() <= 2 { 50_000 } else { 5000 }))
    });
}

#[test]
fn random_transfers_match_a_serial_model() {
    const LEN: usize = 512;
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let heap = world.alloc_zeroed::<u16>(LEN)?;
        let mut model = vec![vec![0_u16; LEN]; n];
        // All PEs draw the same numbers, so each knows what the others do.
        let mut random = Random(n as u64);
        for round in 0..scaled(world, 2000) {
            let (actor, target) = (random.below(n), random.below(n));
            let (len, at, stride) = (random.below(100), random.below(100), 1 + random.below(4));
            let data: Vec<u16> = (0..len).map(|i| (round * 100 + i) as u16).collect();
            for (i, element) in data.iter().enumerate() {
                model[target][at + i * stride] = *element;
            }
            if me == actor {
                ctx.iput(heap.sym().slice(at..)?, stride, &data, 1, len, target)?;
            }
            world.barrier_all()?;
            let reader = random.below(n);
            if me == reader {
                let mut got = vec![0; LEN];
                ctx.get(&mut got, heap.sym(), target)?;
                assert_eq!(got, model[target], "round {round}");
            }
            world.barrier_all()?;
        }
        world.free(heap)
    });
}

/// Several threads of one PE use one context at once.
#[test]
fn a_shared_context_serves_many_threads() {
    everywhere(|world| {
        const THREADS: usize = 4;
        const EACH: usize = 50;
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let right = (me + 1) % n;
        let (inbox, count) = (world.alloc_zeroed::<u64>(THREADS * EACH)?, world.alloc_zeroed::<u64>(1)?);
        let (inbox_sym, count_sym) = (inbox.sym(), count.sym());
        std::thread::scope(|scope| {
            let work = |thread: usize, ctx: &Ctx<'_, Shared>| -> Result<()> {
                for i in 0..EACH {
                    let at = thread * EACH + i;
                    ctx.put(inbox_sym.at(at)?, &[(me * 1000 + at) as u64], right)?;
                    ctx.atomic_inc(count_sym, right)?;
                    ctx.quiet()?;
                    assert_eq!(ctx.g(inbox_sym.at(at)?, right)?, (me * 1000 + at) as u64);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..THREADS)
                .map(|t| {
                    let ctx = &ctx;
                    scope.spawn(move || work(t, ctx))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        world.barrier_all()?;
        let left = (me + n - 1) % n;
        let wanted: Vec<u64> = (0..THREADS * EACH).map(|at| (left * 1000 + at) as u64).collect();
        assert_eq!(inbox.sym().to_vec(), wanted);
        assert_eq!(count.sym().read(0)?, (THREADS * EACH) as u64);
        world.free(inbox)?;
        world.free(count)
    });
}

fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) << 10
}

/// N01: one transfer of more than 2^32 bytes. Its source is untouched private memory, which is one zero page, so that
/// only the target takes memory.
#[test]
fn one_transfer_over_4_gib() {
    let available = available_memory();
    if available < 16 << 30 {
        eprintln!("skipped: {available} bytes are available, 16 GiB are wanted");
        return;
    }
    const LEN: usize = (1 << 29) + 3;
    // The places where a truncated count would stop or start.
    const MARKS: [usize; 6] = [0, 2, 3, 1 << 28, (1 << 29) - 1, LEN - 1];
    for result in common::job(
        2,
        |builder| builder.heap(5 << 30),
        |world| {
            let (ctx, me) = (world.ctx::<Shared>(), world.me());
            let block = world.alloc::<u64>(LEN)?;
            let all = block.sym();
            if me == 0 {
                let mut source = vec![0_u64; LEN];
                MARKS.iter().for_each(|at| source[*at] = *at as u64 + 1);
                ctx.put(all, &source, 1)?;
                let mut last = [0; 2];
                ctx.iget(&mut last, 1, all.slice(2..)?, LEN - 3, 2, 1)?;
                assert_eq!(last, [3, LEN as u64]);
                ctx.iput(all.slice(1..)?, LEN - 2, &[7, 8], 1, 2, 1)?;
            }
            world.barrier_all()?;
            if me == 1 {
                for at in &MARKS[..5] {
                    assert_eq!(all.read(*at)?, *at as u64 + 1);
                }
                assert_eq!((all.read(1)?, all.read(LEN - 2)?, all.read(LEN - 1)?), (7, 0, 8));
            }
            world.free(block)
        },
    ) {
        result.unwrap();
    }
}
