//! Every collective, with every algorithm, of every class of types, for 1 to 9 and 16 PEs, around the bytes at which the
//! algorithm changes (A15), in place and not (A03), against a serial model, with canaries (A12).
//!
//! Sums and products of floats are exact here, in any order (I10). What a reduction does to elements is tested in
//! `op.rs`, for all of them.

use std::fmt::Debug;
use std::ops::Range;

use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Elem, Result, SymSlice, World};
use shmem_collectives::Coll;
use shmem_collectives::op::{Avg, Indexed, Max, MinIndex, Prod, Reduce, Sum, Xor};
use shmem_collectives::plan::Collective;
use shmem_collectives::plans::Algorithm;

use crate::common::{job, shuffled};
use crate::strict::forced;

/// Bytes of a block up to which the one-shot algorithm is taken.
const SMALL: usize = 112;
/// Elements around a source or target.
const MARGIN: usize = 3;

/// A type with a reduction, and what its elements are made of: small numbers, of which any order gives the same.
#[derive(Clone, Copy)]
struct Class<T, R> {
    op: R,
    of: fn(usize) -> T,
}

/// `blocks` blocks of `len` elements in a buffer, from block `start` behind the margin on.
fn part<T: Elem>(buffer: SymSlice<'_, T>, start: usize, blocks: usize, len: usize) -> SymSlice<'_, T> {
    let start = MARGIN + start * len;
    buffer.slice(start..start + blocks * len).expect("blocks between margins")
}

impl<T: Elem + Debug + PartialEq, R: Reduce<T>> Class<T, R> {
    /// What PE `pe` brings as element `i` of its source.
    fn input(&self, pe: usize, i: usize) -> T {
        (self.of)((pe * 3 + i * 7) % 11)
    }

    fn canary(&self) -> T {
        (self.of)(99)
    }

    /// What is in a target that nothing goes to.
    fn before(&self) -> T {
        (self.of)(98)
    }

    fn combined(&self, pes: Range<usize>, i: usize) -> T {
        let n = pes.len();
        let all = pes.map(|pe| self.op.widen(self.input(pe, i)));
        let acc = all.reduce(|left, right| self.op.combine(left, right)).expect("a contribution");
        self.op.finish(acc, n)
    }

    /// Element `i` of PE `me`'s target; none where it is left as it is.
    fn expected(&self, what: Collective, n: usize, len: usize, me: usize, i: usize) -> Option<T> {
        use Collective::*;
        match what {
            AllReduce => Some(self.combined(0..n, i)),
            Reduce { root } => (me == root).then(|| self.combined(0..n, i)),
            ReduceScatter => Some(self.combined(0..n, me * len + i)),
            AllGather => Some(self.input(i / len, i % len)),
            Gather { root } => (me == root).then(|| self.input(i / len, i % len)),
            Scatter { root } => Some(self.input(root, me * len + i)),
            Broadcast { root } => Some(self.input(root, i)),
            AllToAll => Some(self.input(i / len, me * len + i % len)),
            InclusiveScan => Some(self.combined(0..me + 1, i)),
            ExclusiveScan => (me > 0).then(|| self.combined(0..me, i)),
        }
    }

    fn call(&self, coll: &Coll<'_>, what: Collective, dst: SymSlice<'_, T>, src: SymSlice<'_, T>) -> Result<()> {
        let op = self.op;
        match what {
            Collective::AllReduce => coll.all_reduce(dst, src, op),
            Collective::Reduce { root } => coll.reduce(dst, src, op, root),
            Collective::ReduceScatter => coll.reduce_scatter(dst, src, op),
            Collective::AllGather => coll.all_gather(dst, src),
            Collective::Gather { root } => coll.gather(dst, src, root),
            Collective::Scatter { root } => coll.scatter(dst, src, root),
            Collective::Broadcast { root } => coll.broadcast(dst, src, root),
            Collective::AllToAll => coll.all_to_all(dst, src),
            Collective::InclusiveScan => coll.inclusive_scan(dst, src, op),
            Collective::ExclusiveScan => coll.exclusive_scan(dst, src, op),
        }
    }

    /// One call, on objects of n blocks of `len` elements between canaries.
    fn check(
        &self,
        coll: &Coll<'_>,
        (what, in_place, len): (Collective, bool, usize),
        src: SymSlice<'_, T>,
        dst: SymSlice<'_, T>,
    ) -> Result<()> {
        let (me, n) = (coll.team().me(), coll.team().n_pes());
        let (from, into) = what.blocks(n);
        // In place, what has one block lies in the other.
        let (source, target) = match (in_place, from > into, from < into) {
            (false, ..) => (part(src, 0, from, len), part(dst, 0, into, len)),
            (true, true, _) => (part(dst, 0, from, len), part(dst, me, 1, len)),
            (true, _, true) => (part(dst, me, 1, len), part(dst, 0, into, len)),
            (true, ..) => (part(dst, 0, from, len), part(dst, 0, into, len)),
        };
        src.fill(self.canary());
        dst.fill(self.canary());
        target.fill(self.before());
        let brought: Vec<T> = (0..source.len()).map(|i| self.input(me, i)).collect();
        source.copy_from(&brought)?;
        let mut wanted = dst.to_vec();
        let at = (target.offset() - dst.offset()) / size_of::<T>();
        for i in 0..target.len() {
            if let Some(expected) = self.expected(what, n, len, me, i) {
                wanted[at + i] = expected;
            }
        }
        self.call(coll, what, target, source)?;
        let found = dst.to_vec();
        let name = std::any::type_name::<T>();
        let first = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        assert!(
            first.is_none(),
            "{what} of {len} {name}, in place: {in_place}, by {:?}, PE {me} of {n}: element {first:?} is {:?}, not {:?}",
            coll.latest_algorithm(),
            first.map(|i| found[i]),
            first.map(|i| wanted[i])
        );
        if !in_place {
            assert_eq!(source.to_vec(), brought, "{what}: the source");
            let all = src.to_vec();
            let edges = all[..MARGIN].iter().chain(&all[MARGIN + source.len()..]);
            assert!(edges.into_iter().all(|one| *one == self.canary()), "{what}: canaries of the source");
        }
        Ok(())
    }

    /// Every collective, of blocks of so many elements.
    fn run(&self, world: &World, coll: &Coll<'_>, lens: &[usize]) -> Result<()> {
        let n = world.n_pes();
        let longest = lens.iter().max().copied().unwrap_or(0);
        let room = || world.alloc::<T>(n * longest + 2 * MARGIN);
        let (src, dst) = (room()?, room()?);
        for (turn, &len) in lens.iter().enumerate() {
            let room = n * len + 2 * MARGIN;
            let (src, dst) = (src.sym().slice(..room)?, dst.sym().slice(..room)?);
            for (i, what) in Collective::all((turn + len) % n).into_iter().enumerate() {
                let first = (turn + i) % 2 == 0;
                for in_place in [first, !first] {
                    self.check(coll, (what, in_place, len), src, dst)?;
                }
            }
        }
        world.free(src)?;
        world.free(dst)
    }

    /// Bytes around those at which the algorithm changes, nothing, one element and an odd number of them.
    fn lens(&self) -> [usize; 6] {
        let switch = SMALL / size_of::<T>();
        [0, 1, switch - 1, switch, switch + 1, 2 * switch + 3]
    }
}

/// The table's choice, and every algorithm.
fn choices() -> impl Iterator<Item = Option<Algorithm>> {
    std::iter::once(None).chain(Algorithm::ALL.map(Some))
}

/// Runs with the collectives of the world's team, by one algorithm or by the table.
fn with(world: &World, algorithm: Option<Algorithm>, run: impl FnOnce(&Coll<'_>) -> Result<()>) -> Result<()> {
    let team = world.team();
    match algorithm {
        Some(algorithm) => run(&forced(world, &team, algorithm)?),
        None => run(&Coll::new(world, &team)?),
    }
}

const PLAIN: Class<f32, Sum> = Class { op: Sum, of: |i| i as f32 };

/// Blocks of f32 of these lengths, by every algorithm.
pub(crate) fn all_of(world: &World, lens: &[usize]) -> Result<()> {
    choices().try_for_each(|choice| with(world, choice, |coll| PLAIN.run(world, coll, lens)))
}

fn classes(world: &World, coll: &Coll<'_>) -> Result<()> {
    fn run<T: Elem + Debug + PartialEq, R: Reduce<T>>(
        world: &World,
        coll: &Coll<'_>,
        op: R,
        of: fn(usize) -> T,
    ) -> Result<()> {
        let class = Class { op, of };
        class.run(world, coll, &class.lens())
    }
    run(world, coll, Sum, |i| i as i8)?;
    run(world, coll, Max, |i| i as i32 - 5)?;
    run(world, coll, Xor, |i| (i as u64) << 40)?;
    run(world, coll, Sum, |i| f16::from_f32(i as f32))?;
    run(world, coll, Sum, |i| bf16::from_f32(i as f32 % 8.0))?;
    run(world, coll, Sum, |i| i as f32)?;
    run(world, coll, Avg, |i| i as i16 - 5)?;
    run(world, coll, Prod, |i| f64::from(1 << (i % 3)))?;
    run(world, coll, Sum, |i| Complex::new(i as f32, -(i as f32)))?;
    run(world, coll, MinIndex, |i| Indexed { value: i as f32 % 5.0, index: i as u64 })
}

/// One PE alone, too (B06).
#[test]
fn every_collective_type_and_algorithm_matches_the_serial_model() {
    for n in (1..=9).chain([16]) {
        shmem::local(n, |world| choices().try_for_each(|choice| with(world, choice, |coll| classes(world, coll))))
            .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// One element less than a piece of 256 KiB, and one more than two.
#[test]
fn blocks_of_several_pieces() {
    const PIECE: usize = (256 << 10) / size_of::<f32>();
    for (n, len) in [(2, 2 * PIECE + 1), (3, PIECE - 1)] {
        shmem::local(n, |world| all_of(world, &[len])).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

/// A12: fewer elements than PEs, and hardly more.
#[test]
fn about_as_many_elements_as_pes() {
    let lens: Vec<usize> = (1..=17).collect();
    shmem::local(8, |world| all_of(world, &lens)).unwrap();
}

/// N03: no array has room for 32 PEs only. More than 16 meet in several rounds.
#[test]
fn more_pes_than_any_array_has_room_for() {
    let small = |builder: shmem::Builder| builder.set("SHMEM_SYMMETRIC_SIZE", "1M").unwrap();
    for n in [17, 31, 32, 33, 64, 65] {
        let run =
            |world: &World| with(world, None, |coll| PLAIN.run(world, coll, &[1, 30])).inspect_err(|_| world.abandon());
        job(n, small, run).into_iter().for_each(|pe| pe.unwrap_or_else(|error| panic!("n = {n}: {error}")));
    }
}

/// The lengths that travel with the meeting, and others, where puts arrive late and in any order.
#[test]
fn over_a_network_that_reorders() {
    shuffled(|world| all_of(world, &[1, 29]));
}
