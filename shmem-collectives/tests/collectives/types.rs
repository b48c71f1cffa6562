//! Every class of types with every algorithm, around the bytes at which the algorithm changes (A15), in and out of
//! place, against a serial model with canaries.
//!
//! Each type has one reduction here: what a reduction does to elements is tested in `op.rs`, for all of them.

use std::fmt::Debug;

use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Elem, Result, World};
use shmem_collectives::op::{Indexed, Max, MinIndex, Prod, Reduce, Sum, Xor};
use shmem_collectives::plans::Algorithm;

use crate::strict::forced;

/// Bytes of a block up to which the one-shot algorithm is taken.
const SMALL: usize = 112;
/// Elements around a target or source.
const MARGIN: usize = 3;

/// A type with what its elements are made of, by small numbers, so that any order gives the same.
struct Class<T, R> {
    op: R,
    of: fn(usize) -> T,
}

impl<T: Elem + Debug + PartialEq, R: Reduce<T>> Class<T, R> {
    fn run(&self, world: &World, algorithm: Algorithm) -> Result<()> {
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let coll = forced(world, &team, algorithm)?;
        let input = |pe: usize, i: usize| (self.of)((pe * 3 + i * 7) % 11);
        let first = |upto: usize, i: usize| {
            let all = (0..upto).map(|pe| self.op.widen(input(pe, i)));
            let acc = all.reduce(|left, right| self.op.combine(left, right)).expect("a contribution");
            self.op.finish(acc, upto)
        };
        let switch = SMALL / size_of::<T>();
        let canary = (self.of)(99);
        for len in [1, switch - 1, switch, switch + 1] {
            let (src, dst) = (world.alloc::<T>(n * len + 2 * MARGIN)?, world.alloc::<T>(n * len + 2 * MARGIN)?);
            for kind in 0..8 {
                let (root, in_place) = ((len + kind) % n, kind % 2 == 1);
                let (whole, lens) = (if in_place { dst.sym() } else { src.sym() }, (len * n, len));
                dst.sym().fill(canary);
                src.sym().fill(canary);
                let target = |len: usize| dst.sym().slice(MARGIN..MARGIN + len);
                let bring = |at: usize, len: usize| {
                    let own = whole.slice(MARGIN + at..MARGIN + at + len)?;
                    own.copy_from(&(0..len).map(|i| input(me, i)).collect::<Vec<_>>())?;
                    Ok::<_, shmem::Error>(own)
                };
                let what =
                    format!("{}, kind {kind}, {len} elements by {algorithm}, n = {n}", std::any::type_name::<T>());
                let (at, expected): (usize, Vec<T>) = match kind / 2 {
                    0 => {
                        coll.all_reduce(target(len)?, bring(0, len)?, self.op)?;
                        (0, (0..len).map(|i| first(n, i)).collect())
                    }
                    1 => {
                        coll.inclusive_scan(target(len)?, bring(0, len)?, self.op)?;
                        (0, (0..len).map(|i| first(me + 1, i)).collect())
                    }
                    2 => {
                        let at = if in_place { me * len } else { 0 };
                        let source = bring(0, lens.0)?;
                        coll.reduce_scatter(dst.sym().slice(MARGIN + at..MARGIN + at + len)?, source, self.op)?;
                        (at, (0..len).map(|i| first(n, me * len + i)).collect())
                    }
                    _ => {
                        let source = bring(if in_place { me * len } else { 0 }, len)?;
                        coll.gather(target(lens.0)?, source, root)?;
                        let all = (0..n * len).map(|i| input(i / len, i % len));
                        (0, if me == root { all.collect() } else { Vec::new() })
                    }
                };
                let given = dst.sym().slice(MARGIN + at..MARGIN + at + expected.len())?.to_vec();
                assert!(given == expected, "{what}, PE {me}");
                let all = dst.sym().to_vec();
                assert!(
                    all[..MARGIN].iter().chain(&all[MARGIN + n * len..]).all(|one| *one == canary),
                    "{what}: canary"
                );
            }
            world.free(src)?;
            world.free(dst)?;
        }
        Ok(())
    }
}

fn classes(world: &World, algorithm: Algorithm) -> Result<()> {
    Class { op: Sum, of: |i| i as i8 }.run(world, algorithm)?;
    Class { op: Max, of: |i| i as i32 - 5 }.run(world, algorithm)?;
    Class { op: Xor, of: |i| (i as u64) << 40 }.run(world, algorithm)?;
    Class { op: Sum, of: |i| f16::from_f32(i as f32) }.run(world, algorithm)?;
    Class { op: Sum, of: |i| bf16::from_f32(i as f32 % 8.0) }.run(world, algorithm)?;
    Class { op: Prod, of: |i| f64::from(1 << (i % 3)) }.run(world, algorithm)?;
    Class { op: Sum, of: |i| Complex::new(i as f32, -(i as f32)) }.run(world, algorithm)?;
    let indexed = |i: usize| Indexed { value: i as f32 % 5.0, index: i as u64 };
    Class { op: MinIndex, of: indexed }.run(world, algorithm)
}

#[test]
fn every_type_with_every_algorithm() {
    for n in [1, 2, 3, 4, 6, 9] {
        shmem::local(n, |world| Algorithm::ALL.into_iter().try_for_each(|one| classes(world, one)))
            .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn a_large_one_by_every_algorithm() {
    const LEN: usize = (1 << 20) / size_of::<f32>();
    for n in [2, 3] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let (src, dst) = (world.alloc::<f32>(LEN + 1)?, world.alloc::<f32>(LEN + 1)?);
            (0..LEN + 1).try_for_each(|i| src.sym().write(i, (i % 1000 + me) as f32))?;
            for algorithm in Algorithm::ALL {
                let coll = forced(world, &team, algorithm)?;
                for len in [LEN - 1, LEN + 1] {
                    dst.sym().fill(0.0);
                    coll.all_reduce(dst.sym().slice(..len)?, src.sym().slice(..len)?, Sum)?;
                    let expected =
                        (0..LEN + 1).map(|i| if i < len { n * (i % 1000) + n * (n - 1) / 2 } else { 0 } as f32);
                    assert!(dst.sym().to_vec().into_iter().eq(expected), "{algorithm}, n = {n}, {len} elements");
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
