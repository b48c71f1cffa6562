//! The fold next to hand-written loops on the same memory, in turns: the f32 sum of two PEs' regions, written to both.
//!
//! `cargo bench --bench fold` prints medians of the rounds, in GB/s of result, and the median of the ratios of neighbouring rounds. "loop" is a fused loop
//! of AVX-512 intrinsics (the compiler's own where the processor has none), "stream" the same with non-temporal stores, "memcpy" two copies of one source.
//! "both" has the two PEs do a half each at the same time, as a collective does; "in place" the sources are the targets.

use std::hint::black_box;
use std::time::Instant;

use shmem::{Kernel, Shared, SymSlice, World};

const ROUNDS: usize = 41;
const SIZES: [usize; 7] = [128, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20];

struct Sum;

impl Kernel<f32> for Sum {
    type Acc = f32;
    #[inline(always)]
    fn widen(&self, element: f32) -> f32 {
        element
    }
    #[inline(always)]
    fn combine(&self, left: f32, right: f32) -> f32 {
        left + right
    }
    #[inline(always)]
    fn narrow(&self, acc: f32) -> f32 {
        acc
    }
}

fn main() -> shmem::Result<()> {
    shmem::local(2, |world| {
        let table = measure(world)?;
        if world.me() == 0 {
            print!("{table}");
        }
        Ok(())
    })
    .map(drop)
}

/// Measures every size and case, and returns the table.
fn measure(world: &World) -> shmem::Result<String> {
    let ctx = world.ctx::<Shared>();
    let mut table = format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9}   fold/loop fold/stream\n",
        "bytes", "case", "fold", "loop", "stream", "memcpy"
    );
    let most = SIZES[SIZES.len() - 1] / 4;
    let [source, other, target] = [world.alloc_zeroed(most)?, world.alloc_zeroed(most)?, world.alloc_zeroed(most)?];
    for bytes in SIZES {
        for (case, both, in_place, four) in [
            ("one", false, false, false),
            ("in place", false, true, false),
            ("both", true, false, false),
            ("both, ip", true, true, false),
            ("four", false, false, true),
        ] {
            let (parts, part) = if both { (2, world.me()) } else { (1, 0) };
            let len = bytes / 4 / parts;
            let range = part * len..(part + 1) * len;
            let from = source.sym().slice(range.clone())?;
            let into = if in_place { from } else { target.sym().slice(range.clone())? };
            let at = |object: SymSlice<'_, f32>, pe| ctx.ptr(object, pe).map(|at| at.expect("mapped"));
            let also = other.sym().slice(range.clone())?;
            let (e, f) = (at(also, 0)?, at(also, 1)?);
            let (a, b, c, d) = (at(from, 0)?, at(from, 1)?, at(into, 0)?, at(into, 1)?);
            let times = ((8 << 20) / bytes).clamp(1, 2000);
            let works: [&dyn Fn(); 4] = [
                &|| {
                    let sources = [(from, 0), (from, 1), (also, 0), (also, 1)];
                    ctx.fold(&sources[..if four { 4 } else { 2 }], &[(into, 0), (into, 1)], &Sum).expect("fold");
                },
                // SAFETY: the regions hold `len` elements and are the same or apart.
                &|| unsafe {
                    if four {
                        by_hand::<false, 4>([a, b, e, f], c, d, len)
                    } else {
                        by_hand::<false, 2>([a, b], c, d, len)
                    }
                },
                // SAFETY: as above.
                &|| unsafe {
                    if four {
                        by_hand::<true, 4>([a, b, e, f], c, d, len)
                    } else {
                        by_hand::<true, 2>([a, b], c, d, len)
                    }
                },
                // SAFETY: as above.
                &|| unsafe {
                    c.copy_from(a, len);
                    d.copy_from(black_box(a), len);
                },
            ];
            let mut rounds = [const { Vec::new() }; 4];
            for _ in 0..ROUNDS {
                for (work, rounds) in works.iter().zip(&mut rounds) {
                    world.barrier_all()?;
                    if both || world.me() == 0 {
                        work();
                        let start = Instant::now();
                        (0..times).for_each(|_| work());
                        rounds.push(start.elapsed().as_secs_f64() / times as f64);
                    }
                }
            }
            world.barrier_all()?;
            if world.me() == 0 {
                let rate = |i: usize| (len * 4) as f64 / median(rounds[i].clone()) / 1e9;
                let ratio =
                    |i: usize| median(rounds[0].iter().zip(&rounds[i]).map(|(fold, other)| fold / other).collect());
                table += &format!(
                    "{bytes:>9} {case:>9} {:>9.2} {:>9.2} {:>9.2} {:>9.2}   {:>9.2} {:>11.2}\n",
                    rate(0),
                    rate(1),
                    rate(2),
                    rate(3),
                    ratio(1),
                    ratio(2)
                );
            }
        }
    }
    world.free(source)?;
    world.free(other)?;
    world.free(target)?;
    Ok(table)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// # Safety
/// All point to `len` elements, a multiple of 16, aligned to a cache line; targets are sources or overlap none.
unsafe fn by_hand<const STREAM: bool, const N: usize>(from: [*mut f32; N], c: *mut f32, d: *mut f32, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; the caller vouches for the rest.
        return unsafe { by_hand_avx512::<STREAM, N>(from, c, d, len) };
    }
    for i in 0..len {
        // SAFETY: the caller vouches for `len` elements.
        unsafe {
            let sum = from.iter().map(|source| *source.add(i)).sum();
            *c.add(i) = sum;
            *d.add(i) = sum;
        }
    }
}

/// # Safety
/// As [`by_hand`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn by_hand_avx512<const STREAM: bool, const N: usize>(
    from: [*mut f32; N],
    c: *mut f32,
    d: *mut f32,
    len: usize,
) {
    use std::arch::x86_64::{_mm_sfence, _mm512_add_ps, _mm512_load_ps, _mm512_store_ps, _mm512_stream_ps};
    for i in (0..len).step_by(16) {
        // SAFETY: the caller vouches for length and alignment.
        unsafe {
            let mut sum = _mm512_load_ps(from[0].add(i));
            for source in &from[1..] {
                sum = _mm512_add_ps(sum, _mm512_load_ps(source.add(i)));
            }
            if STREAM {
                _mm512_stream_ps(c.add(i), sum);
                _mm512_stream_ps(d.add(i), sum);
            } else {
                _mm512_store_ps(c.add(i), sum);
                _mm512_store_ps(d.add(i), sum);
            }
        }
    }
    if STREAM {
        _mm_sfence();
    }
}
