//! Sorts keys that are spread over the PEs, by sampling (Frazer and McKellar 1970). A few keys of every PE tell where
//! to cut; each PE puts each piece of its keys straight into its place on the PE where it belongs; and that one merges.
//!
//! ```text
//! cargo run --release -- -n 4 --example sort [KEYS]
//! ```

use std::time::Instant;

use bytemuck::{Pod, Zeroable};
use clap::Parser;
use shmem::{Elem, Result, Shared, World};

/// Sorts keys that are spread over the PEs, and checks the order and that none is lost.
#[derive(Parser)]
struct Args {
    /// How many keys all PEs have together
    #[arg(default_value_t = 4_000_000)]
    keys: u64,
}

fn main() -> Result<()> {
    let Args { keys } = Args::parse();
    shmem::run(|world| {
        let (me, n) = (world.me() as u64, world.n_pes() as u64);

        // The later PEs have more keys, and the first perhaps none: nothing here needs equal shares.
        let first = |pe: u64| (u128::from(keys) * u128::from(pe * (pe + 1)) / u128::from(n * (n + 1))) as u64;
        let unsorted: Vec<u64> = (first(me)..first(me + 1)).map(key).collect();

        world.sync_all()?;
        let start = Instant::now();
        let sorted = sort(world, unsorted)?;
        world.sync_all()?;
        let took = start.elapsed().as_secs_f64();

        assert!(sorted.is_sorted(), "the keys of PE {me} are not in order");
        let parts = all_gather(world, &[Part::of(&sorted)])?;
        if me == 0 {
            check(&parts, keys);
            let rate = keys as f64 / took / 1e6;
            let most = parts.iter().map(|part| part.keys).max().unwrap_or(0);
            println!(
                "sort: {keys} keys on {n} PEs in {took:.3} s, {rate:.1} million a second, at most {most} on a PE: in \
                 order, and all there"
            );
        }
        Ok(())
    })
}

/// Keys that each PE adds to the sample, from which the cuts are chosen.
const SAMPLES: usize = 256;

/// Sorts all PEs' keys: afterwards none on a PE is greater than any on the next. Collective.
fn sort(world: &World, mut keys: Vec<u64>) -> Result<Vec<u64>> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    keys.sort_unstable();

    // Where to cut: at n - 1 places of all PEs' samples, which every PE finds alike.
    let sample = |i: usize| keys.get(i * keys.len() / SAMPLES).copied().unwrap_or(0);
    let mut samples = all_gather(world, &std::array::from_fn::<u64, SAMPLES, _>(sample))?;
    samples.sort_unstable();
    let cuts = (1..n).map(|pe| samples[pe * SAMPLES]);

    let mut pieces = Vec::new();
    let mut rest = &keys[..];
    for cut in cuts {
        let (piece, after) = rest.split_at(rest.partition_point(|key| *key < cut));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);

    // When all know the sizes of all pieces, each knows where its own belong: behind those of the PEs before it.
    let sizes: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
    let sizes = all_gather(world, &sizes)?;
    let arriving = |at: usize, from: std::ops::Range<usize>| from.map(|pe| sizes[pe * n + at]).sum::<usize>();

    // An allocation is as large on every PE, so for the PE that gets most.
    let inbox = world.alloc::<u64>((0..n).map(|pe| arriving(pe, 0..n)).max().unwrap_or(0))?;
    ctx.scope(|scope| {
        // Each begins with another, lest all write to one PE.
        for pe in (me..n).chain(0..me) {
            let place = arriving(pe, 0..me);
            scope.put_nbi(inbox.sym().slice(place..place + pieces[pe].len())?, pieces[pe], pe)?;
        }
        Ok(())
    })?;
    world.barrier_all()?;
    let mut sorted = inbox.sym().slice(..arriving(me, 0..n))?.to_vec();
    world.free(inbox)?;

    // These are n sorted runs. The stable sort finds them, and only merges.
    sorted.sort();
    Ok(sorted)
}

/// What every PE gives, in PE order, on every PE. Collective, with the same number of values on all.
fn all_gather<T: Elem>(world: &World, own: &[T]) -> Result<Vec<T>> {
    let (me, n) = (world.me(), world.n_pes());
    let all = world.alloc::<T>(n * own.len())?;
    let place = all.sym().slice(me * own.len()..(me + 1) * own.len())?;
    for pe in 0..n {
        world.ctx::<Shared>().put(place, own, pe)?;
    }
    world.barrier_all()?;
    let values = all.sym().to_vec();
    world.free(all)?;
    Ok(values)
}

/// What one PE tells of its sorted keys.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Part {
    keys: u64,
    least: u64,
    greatest: u64,
    sum: u64,
}

impl Part {
    fn of(sorted: &[u64]) -> Part {
        let end = |key: Option<&u64>| key.copied().unwrap_or(0);
        let (least, greatest) = (end(sorted.first()), end(sorted.last()));
        Part { keys: sorted.len() as u64, least, greatest, sum: checksum(sorted.iter().copied()) }
    }
}

/// Fails unless the parts follow each other in order and have together exactly the keys that there were.
fn check(parts: &[Part], keys: u64) {
    let filled: Vec<&Part> = parts.iter().filter(|part| part.keys > 0).collect();
    for pair in filled.windows(2) {
        assert!(pair[0].greatest <= pair[1].least, "a PE has greater keys than the next one");
    }
    assert_eq!(parts.iter().map(|part| part.keys).sum::<u64>(), keys, "the number of keys has changed");
    let sum = parts.iter().fold(0, |sum: u64, part| sum.wrapping_add(part.sum));
    assert_eq!(sum, checksum((0..keys).map(key)), "the keys are not those that there were");
}

/// The same for the same keys in any order, another for others.
fn checksum(keys: impl Iterator<Item = u64>) -> u64 {
    keys.fold(0, |sum, key| sum.wrapping_add(random(key)))
}

/// The `i`-th key. Small keys are more frequent than large ones, and some keys are equal.
fn key(i: u64) -> u64 {
    random(2 * i).min(random(2 * i + 1)) >> 36
}

/// The `i`-th number of a sequence without any pattern (splitmix64): the same whichever PE asks for it.
fn random(i: u64) -> u64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
