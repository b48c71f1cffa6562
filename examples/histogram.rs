//! A histogram spread over the PEs: each draws samples and counts every one of them where its bucket lies, by an atomic
//! increment in the memory of the PE that has it. Many PEs hit the same bucket at once; no count may be lost.
//!
//! ```text
//! cargo run --release -- -n 4 --example histogram [SAMPLES] [BUCKETS]
//! ```

use std::num::NonZeroU32;
use std::time::Instant;

use clap::Parser;
use shmem::Shared;

/// Counts samples in a table that is spread over the PEs, and compares with a serial count.
#[derive(Parser)]
struct Args {
    /// How many samples all PEs draw together
    #[arg(default_value_t = 4_000_000)]
    samples: u64,
    /// How many buckets all PEs have together
    #[arg(default_value = "4096")]
    buckets: NonZeroU32,
}

fn main() -> shmem::Result<()> {
    let Args { samples, buckets } = Args::parse();
    let buckets = buckets.get() as usize;
    shmem::run(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());

        // Bucket b is element b / n of PE b % n: the crowded ones in the middle are everybody's.
        let table = world.alloc_zeroed::<u64>(buckets.div_ceil(n))?;
        let home = |bucket: usize| table.sym().at(bucket / n).map(|count| (count, bucket % n));

        let start = Instant::now();
        for i in (me as u64..samples).step_by(n) {
            let (count, pe) = home(bucket(i, buckets))?;
            ctx.atomic_inc(count, pe)?;
        }
        world.barrier_all()?;
        let took = start.elapsed().as_secs_f64();

        if me == 0 {
            let mut counted = Vec::new();
            for bucket in 0..buckets {
                let (count, pe) = home(bucket)?;
                counted.push(ctx.g(count, pe)?);
            }
            let mut expected = vec![0; buckets];
            for i in 0..samples {
                expected[bucket(i, buckets)] += 1;
            }
            assert_eq!(counted.iter().sum::<u64>(), samples, "counts were lost");
            assert!(counted == expected, "some samples were counted in the wrong bucket");
            let (rate, fullest) = (samples as f64 / took / 1e6, counted.iter().max().unwrap_or(&0));
            println!(
                "histogram: {samples} samples in {buckets} buckets on {n} PEs, {rate:.1} million a second, at most \
                 {fullest} in a bucket, all as in a serial count"
            );
        }
        world.free(table)
    })
}

/// The bucket of sample `i`. The mean of four numbers at random: those in the middle are the most frequent.
fn bucket(i: u64, buckets: usize) -> usize {
    let mean = (0..4).map(|k| (random(4 * i + k) >> 40) as f64 / f64::from(1 << 24)).sum::<f64>() / 4.0;
    (mean * buckets as f64) as usize
}

/// The `i`-th number of a sequence without any pattern (splitmix64): the same whichever PE asks for it.
fn random(i: u64) -> u64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
