//! Fold and copy against a serial model: every number of sources and targets, in place, over mapped memory, past the cache and over the network that
//! delays and reorders; with canaries around every region.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicU64, Ordering};

use shmem::{Builder, ErrorKind, Kernel, Result, Shared, SymSlice, World};

/// Depends on the order of the sources and on every step being made exactly once.
struct Digits;

impl Kernel<u32> for Digits {
    type Acc = u64;
    #[inline(always)]
    fn widen(&self, element: u32) -> u64 {
        u64::from(element) + 1
    }
    #[inline(always)]
    fn combine(&self, left: u64, right: u64) -> u64 {
        left.wrapping_mul(31).wrapping_add(right)
    }
    #[inline(always)]
    fn narrow(&self, acc: u64) -> u32 {
        (acc ^ acc >> 32) as u32 ^ 0xabcd
    }
}

/// To another type.
struct Decimal;

impl Kernel<u16, u64> for Decimal {
    type Acc = u64;
    fn widen(&self, element: u16) -> u64 {
        element.into()
    }
    fn combine(&self, left: u64, right: u64) -> u64 {
        left * 10 + right
    }
    fn narrow(&self, acc: u64) -> u64 {
        acc
    }
}

fn serial(values: impl IntoIterator<Item = u32>) -> u32 {
    let widened = values.into_iter().map(|value| Digits.widen(value));
    Digits.narrow(widened.reduce(|left, right| Digits.combine(left, right)).unwrap())
}

const CANARY: u32 = 0xdead_beef;
/// Elements of a canary.
const GUARD: usize = 3;
const SIZES: [usize; 12] = [0, 1, 2, 7, 8, 31, 64, 65, 127, 1000, 4099, 70_001];

/// Runs a scenario as threads over mapped memory, then with every result past the cache, then over the network that reorders.
fn everywhere(scenario: impl Fn(&World) -> Result<()> + Sync) {
    for n in [1, 2, 3, 5] {
        shmem::local(n, &scenario).unwrap_or_else(|error| panic!("n = {n}: {error}"));
        for setting in [("SHMEM_STREAM_FROM", "1"), ("SHMEM_ROUTE", "sim")] {
            job(n, setting, &scenario);
        }
    }
}

fn job(n: usize, (name, value): (&str, &str), scenario: impl Fn(&World) -> Result<()> + Sync) {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    let address = format!("unix:@shmem-fold-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let settings = |builder: Builder| builder.set(name, value).unwrap().heap(64 << 20);
    std::thread::scope(|threads| {
        for pe in 0..n {
            let (address, scenario) = (address.clone(), &scenario);
            threads.spawn(move || {
                let builder = World::builder().pe(pe).n_pes(n).rendezvous(&*address).key("fold");
                let world = settings(builder).build().unwrap();
                if let Err(error) = scenario(&world) {
                    world.abandon();
                    panic!("PE {pe} of {n}, {name}={value}: {error}");
                }
            });
        }
    });
}

/// What element `i` of object `which` of a PE is at first.
fn value(pe: usize, which: usize, i: usize) -> u32 {
    ((pe * 7 + which * 13 + i) as u32).wrapping_mul(2_654_435_761)
}

/// Some objects of `len` elements each, between canaries, in one allocation.
struct Objects<'w> {
    all: SymSlice<'w, u32>,
    len: usize,
}

impl<'w> Objects<'w> {
    fn elements(count: usize, len: usize) -> usize {
        count * (len + GUARD) + GUARD
    }

    fn of(all: SymSlice<'w, u32>, count: usize, len: usize, pe: usize) -> Self {
        let all = all.slice(..Self::elements(count, len)).unwrap();
        all.fill(CANARY);
        let objects = Objects { all, len };
        for which in 0..count {
            objects.get(which).copy_from(&(0..len).map(|i| value(pe, which, i)).collect::<Vec<_>>()).unwrap();
        }
        objects
    }

    fn get(&self, which: usize) -> SymSlice<'w, u32> {
        let start = GUARD + which * (self.len + GUARD);
        self.all.slice(start..start + self.len).unwrap()
    }

    fn check_canaries(&self) {
        let each = self.len + GUARD;
        for (i, element) in self.all.to_vec().into_iter().enumerate() {
            assert!(i % each >= GUARD || element == CANARY, "canary {i} of objects of {} was overwritten", self.len);
        }
    }
}

#[test]
fn every_number_of_sources_and_targets_apart_and_in_place() {
    const COUNT: usize = 4;
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let memory = world.alloc::<u32>(Objects::elements(COUNT, SIZES[SIZES.len() - 1]))?;
        for len in SIZES {
            // The longest is for being sent in parts, which asks for no more than two ways of being combined.
            for &sources in if len > 10_000 { [2, 6].as_slice() } else { &[1, 2, 3, 4, 5, 6, 17] } {
                for (targets, in_place) in [(1, false), (2, false), (n, true), (n, false)] {
                    let objects = Objects::of(memory.sym(), COUNT, len, me);
                    world.barrier_all()?;
                    // Objects 0 and 1 are sources everywhere; of 2 and 3, each PE writes those of one PE of all.
                    let from: Vec<_> = (0..sources).map(|k| (objects.get(k % 2), (me + k) % n)).collect();
                    let expected = |pe: usize, i: usize| serial((0..sources).map(|k| value((pe + k) % n, k % 2, i)));
                    if in_place {
                        // Only stripe `me` of object 0 is touched by this PE, on all PEs.
                        let stripe = me * len / n..(me + 1) * len / n;
                        let all: Vec<_> = (0..n)
                            .map(|pe| objects.get(0).slice(stripe.clone()).map(|s| (s, pe)))
                            .collect::<Result<_>>()?;
                        ctx.fold(&all, &all, &Digits)?;
                        world.barrier_all()?;
                        let sum = |i| serial((0..n).map(|pe| value(pe, 0, i)));
                        assert_eq!(objects.get(0).to_vec(), (0..len).map(sum).collect::<Vec<_>>());
                    } else {
                        let into: Vec<_> = (0..targets).map(|k| (objects.get(2 + k % 2), (me + k / 2) % n)).collect();
                        if targets <= 2 {
                            ctx.fold(&from, &into, &Digits)?;
                            world.barrier_all()?;
                            let sum: Vec<_> = (0..len).map(|i| expected(me, i)).collect();
                            (0..targets).for_each(|k| assert_eq!(objects.get(2 + k % 2).to_vec(), sum));
                        } else if me == n - 1 {
                            let into: Vec<_> = (0..targets).map(|pe| (objects.get(3), pe)).collect();
                            ctx.fold(&from, &into, &Digits)?;
                            world.barrier_all()?;
                        } else {
                            world.barrier_all()?;
                        }
                        if targets > 2 {
                            let sum: Vec<_> = (0..len).map(|i| expected(n - 1, i)).collect();
                            assert_eq!(objects.get(3).to_vec(), sum, "n = {n}, {sources} sources, length {len}");
                        }
                    }
                    objects.check_canaries();
                    world.barrier_all()?;
                }
            }
        }
        world.free(memory)
    });
}

#[test]
fn a_copy_reaches_every_target_from_anywhere() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let memory = world.alloc::<u32>(Objects::elements(2, SIZES[SIZES.len() - 1]))?;
        for len in SIZES {
            for origin in [me, (me + 1) % n, (me + n - 1) % n] {
                let objects = Objects::of(memory.sym(), 2, len, me);
                let shift = (origin + n - me) % n;
                world.barrier_all()?;
                // One target: this PE's own, then one of another PE.
                ctx.copy((objects.get(0), origin), &[(objects.get(1), me)])?;
                assert_eq!(world.n_pes(), n);
                world.barrier_all()?;
                assert_eq!(objects.get(1).to_vec(), (0..len).map(|i| value(origin, 0, i)).collect::<Vec<_>>());
                world.barrier_all()?;
                ctx.copy((objects.get(0), origin), &[(objects.get(1), (me + 1) % n)])?;
                world.barrier_all()?;
                let came_from = (me + n - 1 + shift) % n;
                assert_eq!(objects.get(1).to_vec(), (0..len).map(|i| value(came_from, 0, i)).collect::<Vec<_>>());
                world.barrier_all()?;
                // All targets, the source among them.
                if me == 0 {
                    let into: Vec<_> = (0..n).map(|pe| (objects.get(0), pe)).collect();
                    ctx.copy((objects.get(0), n - 1), &into)?;
                }
                world.barrier_all()?;
                assert_eq!(objects.get(0).to_vec(), (0..len).map(|i| value(n - 1, 0, i)).collect::<Vec<_>>());
                objects.check_canaries();
                world.barrier_all()?;
            }
        }
        world.free(memory)
    });
}

#[test]
fn pieces_of_something_larger_go_past_the_cache_and_arrive() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let memory = world.alloc::<u32>(Objects::elements(3, 1000))?;
        for len in SIZES.into_iter().filter(|len| *len <= 1000) {
            for whole in [0, usize::MAX] {
                let objects = Objects::of(memory.sym(), 3, len, me);
                world.barrier_all()?;
                let (next, last) = ((me + 1) % n, (me + n - 1) % n);
                ctx.copy_piece((objects.get(0), me), &[(objects.get(1), next)], whole)?;
                ctx.fold_piece(
                    &[(objects.get(0), me), (objects.get(0), next)],
                    &[(objects.get(2), me)],
                    &Digits,
                    whole,
                )?;
                world.barrier_all()?;
                assert_eq!(objects.get(1).to_vec(), (0..len).map(|i| value(last, 0, i)).collect::<Vec<_>>());
                let sum = |i| serial([value(me, 0, i), value(next, 0, i)]);
                assert_eq!(objects.get(2).to_vec(), (0..len).map(sum).collect::<Vec<_>>());
                objects.check_canaries();
                world.barrier_all()?;
            }
        }
        world.free(memory)
    });
}

#[test]
fn elements_may_be_folded_to_another_type() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (digits, numbers) = (world.alloc::<u16>(700)?, world.alloc::<u64>(700)?);
        digits.sym().copy_from(&(0..700).map(|i| ((i + me) % 10) as u16).collect::<Vec<_>>())?;
        world.barrier_all()?;
        for sources in 1..8 {
            let from: Vec<_> = (0..sources).map(|k| (digits.sym(), k % n)).collect();
            ctx.fold(&from, &[(numbers.sym(), me)], &Decimal)?;
            ctx.quiet()?;
            let number = |i: usize| (0..sources).fold(0, |number, k| number * 10 + ((i + k % n) % 10) as u64);
            assert_eq!(numbers.sym().to_vec(), (0..700).map(number).collect::<Vec<_>>());
        }
        world.barrier_all()?;
        world.free(digits)?;
        world.free(numbers)
    });
}

#[test]
fn elements_of_odd_sizes_are_folded_too() {
    struct Xor;
    impl<const N: usize> Kernel<[u8; N]> for Xor
    where
        [u8; N]: shmem::Elem,
    {
        type Acc = [u8; N];
        fn widen(&self, element: [u8; N]) -> [u8; N] {
            element
        }
        fn combine(&self, left: [u8; N], right: [u8; N]) -> [u8; N] {
            std::array::from_fn(|i| left[i] ^ right[i])
        }
        fn narrow(&self, acc: [u8; N]) -> [u8; N] {
            acc
        }
    }
    fn fold<const N: usize>(world: &World) -> Result<()>
    where
        [u8; N]: shmem::Elem,
    {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let block = world.alloc::<[u8; N]>(100)?;
        block.sym().copy_from(&(0..100).map(|i| [(i * (me + 1)) as u8; N]).collect::<Vec<_>>())?;
        world.barrier_all()?;
        if me == 0 {
            let all: Vec<_> = (0..n).map(|pe| (block.sym(), pe)).collect();
            ctx.fold(&all, &all, &Xor)?;
        }
        world.barrier_all()?;
        let expected = |i: usize| [(0..n).fold(0, |all, pe| all ^ (i * (pe + 1)) as u8); N];
        assert_eq!(block.sym().to_vec(), (0..100).map(expected).collect::<Vec<_>>());
        world.free(block)
    }
    everywhere(|world| {
        fold::<0>(world)?;
        fold::<1>(world)?;
        fold::<3>(world)?;
        fold::<12>(world)?;
        fold::<16>(world)?;
        fold::<1024>(world)
    });
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_written() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let block = world.alloc_zeroed::<u32>(100)?;
        let all = block.sym();
        let at = |start: usize, len: usize| all.slice(start..start + len).unwrap();
        let base = all.offset();
        let text = |from: &[_], into: &[_]| ctx.fold(from, into, &Digits).expect_err("an error").to_string();
        let error = ctx.fold(&[], &[(at(0, 4), me)], &Digits).expect_err("no source");
        assert!(matches!(error.kind(), ErrorKind::Length { given: 0, needed: 1, .. }));
        let error = ctx.fold(&[(at(0, 4), me), (at(4, 5), me)], &[(at(10, 4), me)], &Digits).expect_err("lengths");
        assert!(matches!(error.kind(), ErrorKind::Length { what: "source of a fold", given: 5, needed: 4 }));
        let error = ctx.fold(&[(at(0, 4), me)], &[(at(10, 3), me)], &Digits).expect_err("lengths");
        assert!(matches!(error.kind(), ErrorKind::Length { what: "target of a fold", given: 3, needed: 4 }));
        let error = ctx.fold(&[(at(0, 4), n)], &[(at(10, 4), me)], &Digits).expect_err("no such PE");
        assert!(matches!(error.kind(), ErrorKind::NoSuchPe { .. }));
        let error = ctx.copy((at(0, 4), me), &[(at(3, 4), me)]).expect_err("overlap");
        match error.kind() {
            ErrorKind::Overlap { pe, source_bytes, target_bytes } => {
                assert_eq!((*pe, source_bytes.clone()), (me, base..base + 16));
                assert_eq!(target_bytes.clone(), base + 12..base + 28);
            }
            other => panic!("{other:?}"),
        }
        let text = text(&[(at(20, 4), me)], &[(at(0, 4), me), (at(1, 4), me)]);
        let ranges = [format!("{}..{}", base, base + 16), format!("{}..{}", base + 4, base + 20)];
        assert!(ranges.iter().all(|range| text.contains(range)), "{text}");
        // A part of the same bytes in another type is a part, too, even from the same beginning.
        let (narrow, wide) = (all.slice(..4)?.cast::<u16>()?, all.slice(..16)?.cast::<u64>()?);
        assert!(ctx.fold(&[(narrow, me)], &[(wide, me)], &Decimal).is_err());
        world.barrier_all()?;
        assert!(all.to_vec().iter().all(|element| *element == 0), "something was written");
        // The same ranges on different PEs are apart, and so are empty ones anywhere.
        ctx.fold(&[(at(3, 0), me)], &[(at(0, 0), me)], &Digits)?;
        if n > 1 {
            world.barrier_all()?;
            ctx.copy((at(0, 4), me), &[(at(3, 4), (me + 1) % n)])?;
        }
        ctx.fold(&[(at(50, 4), me)], &[], &Digits)?;
        world.free(block)
    });
}

/// Weights of the sources, by their order.
struct Weighted([u64; 20]);

impl Kernel<u32> for Weighted {
    type Acc = u64;
    fn widen(&self, element: u32) -> u64 {
        element.into()
    }
    fn widen_of(&self, source: usize, element: u32) -> u64 {
        u64::from(element) * self.0[source]
    }
    fn combine(&self, left: u64, right: u64) -> u64 {
        left.wrapping_mul(3).wrapping_add(right)
    }
    fn narrow(&self, acc: u64) -> u32 {
        acc as u32
    }
}

#[test]
fn sources_have_weights_and_the_target_may_be_private() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let weights = Weighted(std::array::from_fn(|source| source as u64 * 1000 + 7));
        for len in SIZES {
            let objects = [world.alloc::<u32>(len)?, world.alloc::<u32>(len)?];
            let value = |pe: usize, object: usize, i: usize| (pe * 91 + object * 13 + i * 7) as u32;
            for (object, block) in objects.iter().enumerate() {
                block.sym().copy_from(&(0..len).map(|i| value(me, object, i)).collect::<Vec<_>>())?;
            }
            world.barrier_all()?;
            for count in [1, 2, 3, 4, 7, 16, 20] {
                let of = |source: usize| ((source + me) % n, source % 2);
                let from: Vec<_> = (0..count).map(|source| (objects[of(source).1].sym(), of(source).0)).collect();
                let mut target = vec![CANARY; len];
                ctx.fold_to(&mut target, &from, &weights)?;
                for (i, got) in target.iter().enumerate() {
                    let terms = (0..count).map(|source| weights.widen_of(source, value(of(source).0, of(source).1, i)));
                    let expected = terms.reduce(|left, right| weights.combine(left, right)).unwrap() as u32;
                    assert_eq!(*got, expected, "element {i} of {len}, {count} sources");
                }
            }
            let wrong = ctx.fold_to(&mut vec![0; len + 1], &[(objects[0].sym(), me)], &weights);
            assert!(matches!(wrong.unwrap_err().kind(), ErrorKind::Length { .. }));
            world.barrier_all()?;
            for block in objects {
                world.free(block)?;
            }
        }
        Ok(())
    });
}
