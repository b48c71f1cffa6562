//! What the C layer costs: `cargo bench -p shmem-capi --bench cost`.
//!
//! Two PEs under `shmemrun`, of which one calls: this program by the Rust interface, and `cost.c` by that of C, in turns. What is
//! printed are medians over the rounds of the best batches, and of their differences. The aim is at most 2 ns a call.
//!
//! Settings: `ROUNDS` (9).

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use shmem_core::{Cmp, Result, Shared};

const CALLS: u64 = 200_000;
const BATCHES: usize = 15;

fn main() -> Result<()> {
    if std::env::var_os("SHMEM_RENDEZVOUS").is_some() {
        return pe();
    }
    let tree = Path::new(env!("CARGO_BIN_EXE_oshcc")).parent().expect("a folder");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost.c");
    let built = Command::new(env!("CARGO")).args(["build", "--release", "--workspace", "--lib", "--bins"]).status();
    assert!(built.is_ok_and(|status| status.success()), "the library is built");
    let compiled = Command::new(tree.join("oshcc")).arg("-O2").arg(source).arg("-o").arg(&program).status();
    assert!(compiled.is_ok_and(|status| status.success()), "{program:?} is compiled");
    let own = std::env::current_exe().expect("this benchmark");
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(9);
    let mut names = Vec::new();
    let (mut rust, mut c): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (program, times) in [(&own, &mut rust), (&program, &mut c)] {
            let (calls, found) = times_of(tree, program);
            names = calls;
            times.push(found);
        }
    }
    println!("{:<24}{:>10}{:>10}{:>12}", "call", "Rust", "C", "difference");
    for (i, name) in names.iter().enumerate() {
        let column = |times: &[Vec<f64>]| times.iter().map(|round| round[i]).collect::<Vec<_>>();
        let (rust, c) = (column(&rust), column(&c));
        let differences = rust.iter().zip(&c).map(|(rust, c)| c - rust).collect();
        println!("{name:<24}{:>7.2} ns{:>7.2} ns{:>9.2} ns", median(rust), median(c), median(differences));
    }
    Ok(())
}

/// The names of the calls, and how long each took.
fn times_of(tree: &Path, program: &PathBuf) -> (Vec<String>, Vec<f64>) {
    let output = Command::new(tree.join("shmemrun")).args(["-n", "2"]).arg(program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line =
        |line: &str| line.split_once('\t').and_then(|(name, time)| Some((name.to_string(), time.parse::<f64>().ok()?)));
    String::from_utf8_lossy(&output.stdout).lines().filter_map(line).unzip()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The calls of `cost.c`.
fn pe() -> Result<()> {
    shmem_core::run(|world| {
        let (ctx, other) = (world.ctx::<Shared>(), 1);
        let heap = world.alloc_zeroed::<i64>(8)?;
        let (word, source, mut target) = (heap.sym().at(0)?, [1, 2, 3, 4, 5, 6, 7, 8], [0; 1]);
        if world.me() == 0 {
            measure("p", |i| ctx.p(word, i, other))?;
            measure("p to a global variable", |i| ctx.p(word, i, other))?;
            measure("g", |_| ctx.g(word, other).map(black_box).map(drop))?;
            measure("put, 8 bytes", |_| ctx.put(word, black_box(&source[..1]), other))?;
            measure("get, 8 bytes", |_| ctx.get(black_box(&mut target), word, other))?;
            // SAFETY: the source outlives the calls.
            measure("put_nbi, 8 bytes", |_| unsafe { ctx.put_raw(word, black_box(source.as_ptr()), other, true) })?;
            measure("put, then quiet", |_| ctx.put(word, black_box(&source[..1]), other).and_then(|()| ctx.quiet()))?;
            measure("iput, 4 elements", |_| ctx.iput(heap.sym(), 2, black_box(&source), 1, 4, other))?;
            measure("atomic_fetch_add", |_| ctx.atomic_fetch_add(word, 1, other).map(black_box).map(drop))?;
            measure("test", |_| ctx.test(word, Cmp::Eq, -1).map(black_box).map(drop))?;
        }
        world.barrier_all()?;
        world.free(heap)
    })
}

fn measure(name: &str, mut call: impl FnMut(i64) -> Result<()>) -> Result<()> {
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for i in 0..CALLS {
            call(i as i64)?;
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    println!("{name}\t{best}");
    Ok(())
}
