//! Reductions whose partial results are no elements, by every algorithm: rounded once, divided once, and scaled by each
//! PE's own factor, also where the work memory holds a part of them only.

use std::fmt::Debug;

use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Elem, Result, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Avg, Prod, Reduce, Scaled, Sum};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

use crate::common::{job, shuffled};
use crate::strict::forced;

/// A reduction, as each PE has it, with what PEs bring: such that partial results are exact in any order, but not as
/// elements.
struct Class<T, R> {
    op: fn(usize) -> R,
    of: fn(usize, usize) -> T,
}

/// Whether the algorithm was taken, where it has a plan and slots enough.
fn taken(coll: &Coll<'_>, what: Collective, algorithm: Algorithm) -> bool {
    let little = coll.team().workspace().len() < 64 << 10;
    !algorithm.plans(what) || little && algorithm.uses_slots(what) || coll.latest_algorithm() == Some(algorithm)
}

impl<T: Elem + Debug + PartialEq, R: Reduce<T> + 'static> Class<T, R> {
    /// Element `i` of the result over the first PEs.
    fn first(&self, upto: usize, i: usize) -> T {
        let all = (0..upto).map(|pe| (self.op)(pe).widen((self.of)(pe, i)));
        let acc = all.reduce(|left, right| (self.op)(0).combine(left, right)).expect("a contribution");
        (self.op)(0).finish(acc, upto)
    }

    fn run(&self, world: &World, algorithm: Algorithm, lens: &[usize]) -> Result<()> {
        use Collective::*;
        let (team, me, n) = (world.team(), world.me(), world.n_pes());
        let coll = forced(world, &team, algorithm)?;
        let op = (self.op)(me);
        for &len in lens {
            // An element before and behind must stay.
            let (src, dst) = (world.alloc::<T>(n * len + 2)?, world.alloc::<T>(n * len + 2)?);
            let canary = (self.of)(70, 70);
            for kind in 0..6 {
                let (root, in_place) = (kind % n, kind % 2 == 1);
                let source = if in_place { dst.sym() } else { src.sym() };
                let part = |at: usize, len: usize| dst.sym().slice(1 + at..1 + at + len);
                for object in [src.sym(), dst.sym()] {
                    object.fill(canary);
                }
                let bring = |len: usize| {
                    (0..len).try_for_each(|i| source.write(1 + i, (self.of)(me, i)))?;
                    source.slice(1..1 + len)
                };
                let what = format!(
                    "{} of {}, kind {kind}, {len} elements by {algorithm}, PE {me} of {n}",
                    R::NAME,
                    std::any::type_name::<T>()
                );
                let own = if in_place { me * len } else { 0 };
                let (target, expected): (_, Option<Vec<T>>) = match kind {
                    0 | 1 => {
                        let (target, source) = (part(0, len)?, bring(len)?);
                        coll.all_reduce(target, source, op)?;
                        assert!(taken(&coll, AllReduce, algorithm), "{what}");
                        (target, Some((0..len).map(|i| self.first(n, i)).collect()))
                    }
                    2 | 3 => {
                        let (target, source) = (part(own, len)?, bring(n * len)?);
                        coll.start_reduce_scatter(target, source, op).wait()?;
                        assert!(taken(&coll, ReduceScatter, algorithm), "{what}");
                        (target, Some((0..len).map(|i| self.first(n, me * len + i)).collect()))
                    }
                    4 => {
                        let (target, source) = (part(0, len)?, bring(len)?);
                        coll.reduce(target, source, op, root)?;
                        assert!(taken(&coll, Reduce { root }, algorithm), "{what}");
                        (target, (me == root).then(|| (0..len).map(|i| self.first(n, i)).collect()))
                    }
                    _ => {
                        // By counts, which differ: as long as the PE's number allows.
                        let counts: Vec<usize> = (0..n).map(|pe| len * (pe % 3) / 2).collect();
                        let start: usize = counts[..me].iter().sum();
                        let source = bring(counts.iter().sum())?;
                        let target = part(start, counts[me])?;
                        coll.reduce_scatter_v(target, source, &counts, op)?;
                        (target, Some((0..counts[me]).map(|i| self.first(n, start + i)).collect()))
                    }
                };
                if let Some(expected) = expected {
                    assert!(target.to_vec() == expected, "{what}: {:?} for {expected:?}", target.to_vec());
                }
                let all = [src.sym(), dst.sym()].map(|object| [object.read(0), object.read(n * len + 1)]);
                for edge in all.into_iter().flatten() {
                    assert_eq!(edge?, canary, "{what}");
                }
            }
            for (inclusive, in_place) in [(true, false), (true, true), (false, false), (false, true)] {
                let what = format!(
                    "scan of {}, inclusive: {inclusive}, in place: {in_place}, by {algorithm}, PE {me} of {n}",
                    R::NAME
                );
                let target = dst.sym().slice(..len)?;
                let source = if in_place { target } else { src.sym().slice(..len)? };
                target.fill(canary);
                (0..len).try_for_each(|i| source.write(i, (self.of)(me, i)))?;
                let before = target.to_vec();
                if inclusive {
                    coll.inclusive_scan(target, source, op)?;
                } else {
                    coll.exclusive_scan(target, source, op)?;
                }
                let expected = match me + usize::from(inclusive) {
                    0 => before,
                    upto => (0..len).map(|i| self.first(upto, i)).collect(),
                };
                assert!(target.to_vec() == expected, "{what}: {:?} for {expected:?}", target.to_vec());
            }
            world.free(src)?;
            world.free(dst)?;
        }
        Ok(())
    }
}

fn number(pe: usize, i: usize) -> usize {
    (pe * 5 + i * 7) % 13
}

fn classes(world: &World, algorithm: Algorithm, lens: &[usize]) -> Result<()> {
    // From 2048 on an f16 has even numbers only, from 256 on a bf16.
    Class { op: |_| Sum, of: |pe, i| f16::from_f32((number(pe, i) + 600) as f32) }.run(world, algorithm, lens)?;
    Class { op: |_| Prod, of: |pe, i| bf16::from_f32(1.0 + (number(pe, i) % 3) as f32 / 2.0) }
        .run(world, algorithm, lens)?;
    Class { op: |_| Avg, of: |pe, i| (number(pe, i) as i8 - 6) * 20 }.run(world, algorithm, lens)?;
    Class { op: |_| Avg, of: |pe, i| number(pe, i) as f32 }.run(world, algorithm, lens)?;
    // Each PE has a factor of its own.
    let factor = |pe: usize| Scaled(1.0 / (1 << (pe % 5)) as f32);
    Class { op: factor, of: |pe, i| f16::from_f32((number(pe, i) + 500) as f32) }.run(world, algorithm, lens)?;
    Class { op: factor, of: |pe, i| Complex::new(number(pe, i) as f32, pe as f32) }.run(world, algorithm, lens)
}

/// I03, and NCCL's `PreMulSum`.
#[test]
fn partial_results_are_what_no_element_holds() {
    for n in (1..=9).chain([16]) {
        let lens: &[usize] = if n < 6 { &[0, 1, 55, 57, 700] } else { &[1, 60] };
        shmem::local(n, |world| Algorithm::ALL.into_iter().try_for_each(|one| classes(world, one, lens)))
            .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A workspace of which the work memory holds a few hundred of them: in several turns.
#[test]
fn what_the_work_memory_does_not_hold_goes_in_turns() {
    for n in [2, 3, 5] {
        let little = |builder: shmem::Builder| builder.set("SHMEM_TEAM_WORKSPACE", "8K").unwrap();
        let run = |world: &World| {
            Algorithm::ALL.into_iter().try_for_each(|one| classes(world, one, &[1000])).inspect_err(|_| world.abandon())
        };
        for result in job(n, little, run) {
            result.unwrap_or_else(|error| panic!("n = {n}: {error}"));
        }
    }
}

#[test]
fn partial_results_over_a_network_that_reorders() {
    let all = [Algorithm::Small, Algorithm::Ring, Algorithm::Halving, Algorithm::Hierarchical];
    shuffled(|world| all.into_iter().try_for_each(|one| classes(world, one, &[20])));
}
