//! Every collective, with every algorithm, against a serial model, with canaries around every target.

use shmem::{Result, SymSlice, World};
use shmem_collectives::op::Sum;
use shmem_collectives::plan::Hosts;
use shmem_collectives::plans::Algorithm;
use shmem_collectives::{Coll, Pending};

const CANARY: f32 = -77.0;

/// What PE `pe` brings as element `i` of its source: small whole numbers, so that sums are exact in any order.
fn input(pe: usize, i: usize) -> f32 {
    ((pe * 31 + i * 7) % 101) as f32
}

/// A target or source of `len` elements in the middle of canaries.
struct Guarded<'w>(SymSlice<'w, f32>);

impl<'w> Guarded<'w> {
    const MARGIN: usize = 16;

    fn of(whole: SymSlice<'w, f32>) -> Self {
        whole.fill(CANARY);
        Guarded(whole)
    }

    fn inner(&self) -> SymSlice<'w, f32> {
        self.0.slice(Self::MARGIN..self.0.len() - Self::MARGIN).expect("a target between margins")
    }

    fn check(&self, what: &str) {
        let all = self.0.to_vec();
        let (before, after) = (&all[..Self::MARGIN], &all[all.len() - Self::MARGIN..]);
        assert!(before.iter().chain(after).all(|value| *value == CANARY), "{what}: a canary is gone");
    }
}

type Run<'a> = dyn Fn(&Coll<'_>, SymSlice<'_, f32>, SymSlice<'_, f32>, usize) -> Result<()> + Sync + 'a;
type Serial = dyn Fn(usize, usize, usize, usize) -> Vec<f32> + Sync;

fn sum(pes: std::ops::Range<usize>, i: usize) -> f32 {
    pes.map(|pe| input(pe, i)).sum()
}

/// A collective: its name, whether source and target have a block for each PE, the call, and the target of (PE, n,
/// block length, root).
type Row = (&'static str, bool, bool, Box<Run<'static>>, Box<Serial>);

fn table() -> Vec<Row> {
    let row = |name, source: bool, target: bool, run: Box<Run<'static>>, serial: Box<Serial>| {
        (name, source, target, run, serial)
    };
    vec![
        row(
            "allreduce",
            false,
            false,
            Box::new(|c, d, s, _| c.all_reduce(d, s, Sum)),
            Box::new(|_, n, len, _| (0..len).map(|i| sum(0..n, i)).collect()),
        ),
        row(
            "reduce",
            false,
            false,
            Box::new(|c, d, s, root| c.reduce(d, s, Sum, root)),
            Box::new(|me, n, len, root| (0..len).map(|i| if me == root { sum(0..n, i) } else { 0.5 }).collect()),
        ),
        row(
            "reduce_scatter",
            true,
            false,
            Box::new(|c, d, s, _| c.reduce_scatter(d, s, Sum)),
            Box::new(|me, n, len, _| (0..len).map(|i| sum(0..n, me * len + i)).collect()),
        ),
        row(
            "allgather",
            false,
            true,
            Box::new(|c, d, s, _| c.all_gather(d, s)),
            Box::new(|_, n, len, _| (0..n).flat_map(|pe| (0..len).map(move |i| input(pe, i))).collect()),
        ),
        row(
            "gather",
            false,
            true,
            Box::new(|c, d, s, root| c.gather(d, s, root)),
            Box::new(|me, n, len, root| {
                (0..n).flat_map(|pe| (0..len).map(move |i| if me == root { input(pe, i) } else { 0.5 })).collect()
            }),
        ),
        row(
            "scatter",
            true,
            false,
            Box::new(|c, d, s, root| c.scatter(d, s, root)),
            Box::new(|me, _, len, root| (0..len).map(|i| input(root, me * len + i)).collect()),
        ),
        row(
            "broadcast",
            false,
            false,
            Box::new(|c, d, s, root| c.broadcast(d, s, root)),
            Box::new(|_, _, len, root| (0..len).map(|i| input(root, i)).collect()),
        ),
        row(
            "alltoall",
            true,
            true,
            Box::new(|c, d, s, _| c.all_to_all(d, s)),
            Box::new(|me, n, len, _| (0..n).flat_map(|pe| (0..len).map(move |i| input(pe, me * len + i))).collect()),
        ),
        row(
            "inscan",
            false,
            false,
            Box::new(|c, d, s, _| c.inclusive_scan(d, s, Sum)),
            Box::new(|me, _, len, _| (0..len).map(|i| sum(0..me + 1, i)).collect()),
        ),
        row(
            "exscan",
            false,
            false,
            Box::new(|c, d, s, _| c.exclusive_scan(d, s, Sum)),
            Box::new(|me, _, len, _| (0..len).map(|i| if me == 0 { 0.5 } else { sum(0..me, i) }).collect()),
        ),
    ]
}

pub(crate) fn all_of(world: &World, lens: &[usize]) -> Result<()> {
    let (me, n) = (world.me(), world.n_pes());
    let team = world.team();
    for algorithm in std::iter::once(None).chain(Algorithm::ALL.map(Some)) {
        let mut coll = Coll::new(world, &team)?;
        if algorithm == Some(Algorithm::Hierarchical) && n > 2 {
            // Hosts of unequal sizes.
            coll.pretend_hosts(Hosts::new([1, n / 2, n - 1 - n / 2].into_iter().filter(|size| *size > 0)))?;
        }
        if let Some(algorithm) = algorithm {
            for name in table().iter().map(|row| row.0) {
                // What it has no plan for goes another way.
                let _ = coll.selection_mut().force(name, algorithm.name());
            }
        }
        for &len in lens {
            for (name, source_blocks, target_blocks, run, serial) in &table() {
                let blocks = |many: bool| if many { n * len } else { len };
                let src = world.alloc::<f32>(blocks(*source_blocks) + 32)?;
                let dst = world.alloc::<f32>(blocks(*target_blocks) + 32)?;
                let (src_guard, dst_guard) = (Guarded::of(src.sym()), Guarded::of(dst.sym()));
                for round in 0..4 {
                    let (root, in_place) = (round % n, round % 2 == 1);
                    let what = format!("{name} by {algorithm:?}, n = {n}, len = {len}, PE {me}, round {round}");
                    dst_guard.inner().fill(0.5);
                    // In place, both lie in whichever has more blocks.
                    let own = me * len..(me + 1) * len;
                    let (source, target) = match (in_place, *source_blocks, *target_blocks) {
                        (false, ..) => (src_guard.inner(), dst_guard.inner()),
                        (true, true, false) => (src_guard.inner(), src_guard.inner().slice(own)?),
                        (true, false, true) => (dst_guard.inner().slice(own)?, dst_guard.inner()),
                        (true, ..) => (dst_guard.inner(), dst_guard.inner()),
                    };
                    for i in 0..source.len() {
                        source.write(i, input(me, i))?;
                    }
                    run(&coll, target, source, root)?;
                    let expected = serial(me, n, len, root);
                    // What is left as it was, is the source in place.
                    if !in_place || !expected.contains(&0.5) {
                        assert_eq!(target.to_vec(), expected, "{what}");
                    }
                    src_guard.check(&what);
                    dst_guard.check(&what);
                }
                world.free(src)?;
                world.free(dst)?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_collective_and_algorithm_matches_the_serial_model() {
    for n in (1..=9).chain([16]) {
        let lens: &[usize] = if n < 6 { &[0, 1, 5, 512, 513, 3001] } else { &[0, 1, 513] };
        shmem::local(n, |world| all_of(world, lens)).unwrap();
    }
}

#[test]
fn started_collectives_end_in_order_and_mismatches_are_told_to_all() {
    for n in [1, 2, 3, 5] {
        shmem::local(n, |world| {
            let team = world.team();
            let coll = Coll::new(world, &team)?;
            let (a, b) = (world.alloc::<f32>(100)?, world.alloc::<f32>(100 * n)?);
            a.sym().fill(world.me() as f32);
            let sums: Vec<_> = (0..10).map(|_| world.alloc::<f32>(100)).collect::<Result<_>>()?;
            let mut pending: Vec<Pending<'_, '_>> =
                sums.iter().map(|sum| coll.start_all_reduce(sum.sym(), a.sym(), Sum)).collect();
            let gathered = coll.start_all_gather(b.sym(), a.sym());
            while !pending[9].test()? {}
            gathered.wait()?;
            for (sum, pending) in sums.iter().zip(pending) {
                pending.wait()?;
                assert_eq!(sum.sym().to_vec(), vec![(n * (n - 1) / 2) as f32; 100]);
            }
            assert_eq!(b.sym().to_vec(), (0..100 * n).map(|i| (i / 100) as f32).collect::<Vec<_>>());
            if n > 1 {
                let odd = if world.me() == n - 1 { 99 } else { 100 };
                let part = a.sym().slice(..odd)?;
                let error = coll.all_reduce(sums[0].sym().slice(..odd)?, part, Sum).unwrap_err().to_string();
                assert!(error.contains("f32 × 99") && error.contains("f32 × 100"), "{error}");
                let error = coll.all_reduce(sums[0].sym().slice(..odd)?, a.sym(), Sum);
                assert!(error.is_err());
                world.barrier_all()?;
                coll.all_reduce(sums[0].sym(), a.sym(), Sum)?;
                assert_eq!(sums[0].sym().to_vec(), vec![(n * (n - 1) / 2) as f32; 100]);
            }
            Ok(())
        })
        .unwrap();
    }
}
