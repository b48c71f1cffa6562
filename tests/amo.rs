//! Atomics: every operation for every type against a serial oracle, under contention with the owner taking part, and
//! without harm to neighbours.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Random, everywhere, processes, scaled};
use shmem::{AmoElem, AmoInt, Cmp, Ctx, Result, Shared, SymSlice, World};

/// What an integer type needs for an oracle, which the library's own traits leave out.
trait Oracle: AmoInt + std::fmt::Debug {
    fn of(bits: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! oracle {
    ($($int:ty),*) => {$(
        impl Oracle for $int {
            fn of(bits: u64) -> Self { bits as $int }
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}

oracle!(i32, u32, i64, u64, isize, usize);

/// One random operation on the word, checked against the model: what it returns, and what it leaves.
fn one_operation<T: Oracle>(
    ctx: &Ctx<'_, Shared>,
    word: SymSlice<'_, T>,
    pe: usize,
    model: &mut T,
    random: &mut Random,
) -> Result<()> {
    let before = *model;
    let operand = match random.below(4) {
        0 => T::of(u64::MAX),
        1 => T::of(1 << 31),
        _ => T::of(random.next()),
    };
    let (returned, after) = match random.below(15) {
        0 => (Some(ctx.atomic_fetch(word, pe)?), before),
        1 => (ctx.atomic_set(word, operand, pe).map(|()| None)?, operand),
        2 => (Some(ctx.atomic_swap(word, operand, pe)?), operand),
        3 => (Some(ctx.atomic_compare_swap(word, before, operand, pe)?), operand),
        4 if operand != before => (Some(ctx.atomic_compare_swap(word, operand, T::ONE, pe)?), before),
        4 => (None, before),
        5 => (Some(ctx.atomic_fetch_inc(word, pe)?), before.plus(T::ONE)),
        6 => (ctx.atomic_inc(word, pe).map(|()| None)?, before.plus(T::ONE)),
        7 => (Some(ctx.atomic_fetch_add(word, operand, pe)?), before.plus(operand)),
        8 => (ctx.atomic_add(word, operand, pe).map(|()| None)?, before.plus(operand)),
        9 => (Some(ctx.atomic_fetch_and(word, operand, pe)?), before.and(operand)),
        10 => (ctx.atomic_and(word, operand, pe).map(|()| None)?, before.and(operand)),
        11 => (Some(ctx.atomic_fetch_or(word, operand, pe)?), before.or(operand)),
        12 => (ctx.atomic_or(word, operand, pe).map(|()| None)?, before.or(operand)),
        13 => (Some(ctx.atomic_fetch_xor(word, operand, pe)?), before.xor(operand)),
        _ => (ctx.atomic_xor(word, operand, pe).map(|()| None)?, before.xor(operand)),
    };
    *model = after;
    if let Some(returned) = returned {
        assert_eq!(returned, before, "{}", std::any::type_name::<T>());
    }
    assert_eq!(ctx.atomic_fetch(word, pe)?, after, "{}", std::any::type_name::<T>());
    Ok(())
}

/// Each PE works on words of its own on every PE, between words that must not change.
fn against_the_oracle<T: Oracle>(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let words = world.alloc::<T>(2 * n + 1)?;
    let canary = T::of(0x5a5a_a5a5_5a5a_a5a5);
    words.sym().fill(canary);
    world.barrier_all()?;
    let mut random = Random(me as u64 + 1);
    let mut models = vec![canary; n];
    for _ in 0..200 {
        let pe = random.below(n);
        one_operation(&ctx, words.sym().at(2 * me + 1)?, pe, &mut models[pe], &mut random)?;
    }
    for (pe, model) in models.iter().enumerate() {
        assert_eq!(ctx.g(words.sym().at(2 * me + 1)?, pe)?, *model);
    }
    world.barrier_all()?;
    for even in 0..=n {
        assert_eq!(words.sym().read(2 * even)?, canary, "a neighbour was changed");
    }
    world.free(words)
}

fn all_types(world: &World) -> Result<()> {
    against_the_oracle::<i32>(world)?;
    against_the_oracle::<u32>(world)?;
    against_the_oracle::<i64>(world)?;
    against_the_oracle::<u64>(world)?;
    against_the_oracle::<isize>(world)?;
    against_the_oracle::<usize>(world)
}

#[test]
fn every_operation_of_every_type_matches_the_oracle() {
    everywhere(all_types);
}

#[test]
fn every_operation_as_processes() {
    processes("every_operation_as_processes", &[1, 2, 3, 5, 8, 16], all_types);
}

/// Fetch, set and swap keep the bits of floats, those of a NaN and of minus zero included.
fn float_bits<F: AmoElem>(world: &World, samples: &[F], bits: impl Fn(F) -> u64) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let right = (me + 1) % n;
    let words = world.alloc_zeroed::<F>(3)?;
    let word = words.sym().at(1)?;
    let mut held = 0;
    for &sample in samples {
        assert_eq!(bits(ctx.atomic_swap(word, sample, right)?), held);
        assert_eq!(bits(ctx.atomic_fetch(word, right)?), bits(sample));
        ctx.atomic_set(word, samples[0], right)?;
        held = bits(samples[0]);
    }
    world.barrier_all()?;
    let all: Vec<u64> = words.sym().to_vec().into_iter().map(bits).collect();
    assert_eq!(all, [0, held, 0]);
    world.free(words)
}

#[test]
fn floats_are_fetched_set_and_swapped_whole() {
    everywhere(|world| {
        let odd = f32::from_bits(0x7fa0_0001);
        float_bits(world, &[1.5_f32, -0.0, f32::INFINITY, odd, f32::MIN_POSITIVE / 2.0], |f| f.to_bits().into())?;
        let odd = f64::from_bits(0x7ff4_0000_0000_0001);
        float_bits(world, &[1.5_f64, -0.0, f64::NEG_INFINITY, odd, 5e-324], f64::to_bits)
    });
}

/// All PEs count on PE 0, with every operation that can count; PE 0 takes part. Every value that is fetched is fetched
/// once.
fn contended<T: Oracle>(world: &World, rounds: usize) -> Result<()> {
    let (ctx, n) = (world.ctx::<Shared>(), world.n_pes());
    let words = world.alloc_zeroed::<T>(3)?;
    let (counter, swapped) = (words.sym().at(0)?, words.sym().at(1)?);
    let mut seen = Vec::new();
    for i in 0..rounds {
        match i % 4 {
            0 => seen.push(ctx.atomic_fetch_inc(counter, 0)?),
            1 => seen.push(ctx.atomic_fetch_add(counter, T::ONE, 0)?),
            2 => ctx.atomic_inc(counter, 0)?,
            _ => ctx.atomic_add(counter, T::ONE, 0)?,
        }
        // The same count by compare-and-swap.
        let mut held = ctx.atomic_fetch(swapped, 0)?;
        loop {
            match ctx.atomic_compare_swap(swapped, held, held.plus(T::ONE), 0)? {
                now if now == held => break,
                now => held = now,
            }
        }
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "the values that one PE fetches from a counter grow");
    world.barrier_all()?;
    let all = T::of((rounds * n) as u64);
    assert_eq!((ctx.atomic_fetch(counter, 0)?, ctx.atomic_fetch(swapped, 0)?), (all, all));
    assert_eq!(ctx.atomic_fetch(words.sym().at(2)?, 0)?, T::of(0));
    world.barrier_all()?;
    world.free(words)
}

#[test]
fn contended_counters_lose_nothing() {
    everywhere(|world| {
        contended::<u64>(world, scaled(world, 20_000))?;
        contended::<i32>(world, scaled(world, 20_000))
    });
}

#[test]
fn contended_counters_as_processes() {
    processes("contended_counters_as_processes", &[2, 3, 8], |world| {
        contended::<u64>(world, 3000)?;
        contended::<u32>(world, 3000)
    });
}

/// G10: 32-bit operations on odd words, while their 64-bit neighbours and the even words stay what they are.
#[test]
fn narrow_operations_stay_in_their_four_bytes() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let words = world.alloc::<i32>(2 * 8 + 1)?;
        words.sym().fill(-7);
        world.barrier_all()?;
        let mut random = Random(me as u64);
        for _ in 0..scaled(world, 2000) {
            let word = words.sym().at(1 + 2 * random.below(8))?;
            let pe = random.below(n);
            match random.below(7) {
                0 => ctx.atomic_add(word, -1, pe)?,
                1 => ctx.atomic_xor(word, i32::MIN, pe)?,
                2 => ctx.atomic_or(word, -1, pe)?,
                3 => drop(ctx.atomic_compare_swap(word, -1, i32::MAX, pe)?),
                4 => drop(ctx.atomic_swap(word, i32::MIN, pe)?),
                5 => ctx.atomic_and(word, 0, pe)?,
                _ => ctx.atomic_set(word, -1, pe)?,
            }
        }
        world.barrier_all()?;
        assert!(words.sym().to_vec().iter().step_by(2).all(|even| *even == -7));
        world.free(words)
    });
}

/// Two 32-bit counters in one 64-bit word, counted by different PEs at once.
#[test]
fn neighbouring_halves_are_counted_independently() {
    everywhere(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let rounds = scaled(world, 20_000) as u32;
        let halves = world.alloc_zeroed::<u32>(2)?;
        for _ in 0..rounds {
            ctx.atomic_inc(halves.sym().at(me % 2)?, n - 1)?;
        }
        world.barrier_all()?;
        if me == n - 1 {
            let (even, odd) = (n.div_ceil(2) as u32, (n / 2) as u32);
            assert_eq!(halves.sym().to_vec(), [rounds * even, rounds * odd]);
        }
        world.free(halves)
    });
}

/// C11: the target need not call anything: one PE counts at another that only looks at its own word.
fn counting_at_a_poller(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let counters = world.alloc_zeroed::<u64>(2)?;
    let (counter, answer) = (counters.sym().at(0)?, counters.sym().at(1)?);
    const ROUNDS: u64 = 100;
    if me == 0 {
        let wanted = ROUNDS * (n as u64 - 1);
        while ctx.atomic_fetch(counter, 0)? < wanted {
            std::thread::yield_now();
        }
        for pe in 1..n {
            ctx.atomic_set(answer, wanted, pe)?;
        }
    } else {
        for _ in 0..ROUNDS {
            ctx.atomic_fetch_inc(counter, 0)?;
        }
        assert_eq!(ctx.wait_until(answer, Cmp::Ne, 0)?, ROUNDS * (n as u64 - 1));
    }
    world.free(counters)
}

#[test]
fn a_poller_is_counted_at() {
    everywhere(counting_at_a_poller);
}

#[test]
fn a_poller_is_counted_at_as_processes() {
    processes("a_poller_is_counted_at_as_processes", &[1, 2, 5], counting_at_a_poller);
}

/// C11: nor need it run at all: it sits in a blocking read outside the library until the counting is over.
#[test]
fn a_pe_blocked_outside_the_library_is_counted_at() {
    use std::io::{Read, Write};
    let (reader, writer) = std::io::pipe().unwrap();
    shmem::local(2, |world| {
        let counter = world.alloc_zeroed::<u64>(1)?;
        if world.me() == 0 {
            (&reader).read_exact(&mut [0]).unwrap();
            assert_eq!(counter.sym().read(0)?, 1000);
        } else {
            for _ in 0..1000 {
                world.ctx::<Shared>().atomic_fetch_inc(counter.sym(), 0)?;
            }
            (&writer).write_all(&[1]).unwrap();
        }
        world.free(counter)
    })
    .unwrap();
}
