//! The exchange between experts: times of dispatch and combine, against the memory itself and against the same exchange by
//! `MPI_Alltoallv` in the MPI libraries that are installed: `cargo bench -p shmem-collectives --bench moe`.
//!
//! Shapes are DeepEP's, for two cores: 128 tokens × 7168, top 8 of 64 and of 256 experts, and 4096 × 2048, top 4 of 64;
//! each with uniform, skewed (half of the choices among an eighth of the experts) and single-expert routing; bf16 and fp8.
//!
//! - *pairs*: unique pairs of token and PE, in MiB of a PE: what an exchange without hosts must move; *moved*: what was put.
//! - *bound*: the time of `memcpy` of what is moved, row by row, with all PEs at it: of a dispatch from the tokens to as many rows as are moved,
//!   of a combination from all outputs to the sums.
//! - The peers pack tokens for each process, exchange counts and then tokens, and send the outputs back in the order of the choices; they
//!   quantise nothing: their fp8 tokens are bytes that are there already, which is in their favour.
//!
//! Every contestant runs all cases once a round, one contestant after the other; printed are medians over the rounds of each round's median.
//! `PES` (2), `ROUNDS` (3), `ITERATIONS` (15).

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use half::bf16;
use shmem::{Result, Shared, World};
use shmem_collectives::moe::{Bf16, Fp8E4m3, Moe, MoeMode, Payload};

use common::{launcher, median, number, scratch};

/// A shape and a routing: `tokens:hidden:top_k:experts:bytes:routing`, as the peers are told, too.
#[derive(Clone, Debug)]
struct Case {
    tokens: usize,
    hidden: usize,
    top_k: usize,
    experts: usize,
    /// Bytes of a token on its way.
    bytes: usize,
    routing: String,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, hidden, top_k, experts) in [(128, 7168, 8, 64), (128, 7168, 8, 256), (4096, 2048, 4, 64)] {
        for bytes in [Bf16::bytes(hidden), Fp8E4m3::bytes(hidden)] {
            for routing in ["uniform", "skewed", "single"] {
                cases.push(Case { tokens, hidden, top_k, experts, bytes, routing: routing.into() });
            }
        }
    }
    cases
}

impl Case {
    fn text(&self) -> String {
        let Case { tokens, hidden, top_k, experts, bytes, routing } = self;
        format!("{tokens}:{hidden}:{top_k}:{experts}:{bytes}:{routing}")
    }

    fn parse(text: &str) -> Option<Case> {
        let words: Vec<&str> = text.split(':').collect();
        let [tokens, hidden, top_k, experts, bytes, routing] = words.as_slice() else { return None };
        let number = |text: &str| text.parse::<usize>().ok();
        let (tokens, hidden, top_k) = (number(tokens)?, number(hidden)?, number(top_k)?);
        Some(Case {
            tokens,
            hidden,
            top_k,
            experts: number(experts)?,
            bytes: number(bytes)?,
            routing: (*routing).into(),
        })
    }

    /// The choices of PE `pe`: the same as in `peers/moe.c`.
    fn choices(&self, pe: usize) -> Vec<i32> {
        let mut state = 88172645463325252_u64 + pe as u64;
        let mut below = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % n
        };
        let mut all = Vec::with_capacity(self.tokens * self.top_k);
        for _ in 0..self.tokens {
            let start = all.len();
            while all.len() < start + self.top_k {
                let expert = match self.routing.as_str() {
                    "single" if all.len() == start => 0,
                    "single" => -1,
                    "skewed" if below(2) == 0 => below(self.experts / 8) as i32,
                    _ => below(self.experts) as i32,
                };
                if expert < 0 || !all[start..].contains(&expert) {
                    all.push(expert);
                }
            }
        }
        all
    }
}

fn main() -> Result<()> {
    if std::env::var_os("SHMEM_RENDEZVOUS").is_some() {
        return shmem::run(|world| {
            std::env::args().filter_map(|text| Case::parse(&text)).try_for_each(|case| pe(world, &case))
        });
    }
    let (n, rounds) = (number("PES", 2), number("ROUNDS", 3));
    let mut contestants = vec![("shmem", ours(n))];
    let folder = scratch();
    contestants.extend(peers(n, folder.path()));
    let mut told: BTreeMap<(String, &str, String), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for (name, command) in &mut contestants {
            eprintln!("round {round}: {name}");
            let output = command.output().expect("it starts");
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let ["RES", case, what, value] = words.as_slice() else { continue };
                let value = value.parse().expect("a number");
                told.entry((case.to_string(), *name, what.to_string())).or_default().push(value);
            }
        }
    }
    print(n, rounds, &contestants.iter().skip(1).map(|(name, _)| *name).collect::<Vec<_>>(), &told);
    Ok(())
}

fn print(n: usize, rounds: usize, peers: &[&'static str], told: &BTreeMap<(String, &str, String), Vec<f64>>) {
    println!("{n} PEs, medians of {rounds} rounds, µs; dispatch / combine\n");
    print!(
        "| tokens × hidden, top k of experts | payload, routing | mode | pairs, MiB | moved, MiB | time | by bound |"
    );
    peers.iter().for_each(|peer| print!(" {peer} | {peer} / shmem |"));
    println!("\n|---|---|---|---|---|---|---|{}", "---|---|".repeat(peers.len()));
    let value = |case: &str, name: &'static str, what: &str| -> f64 {
        told.get(&(case.to_string(), name, what.to_string())).map_or(f64::NAN, |values| median(values.clone()))
    };
    for case in cases() {
        let Case { tokens, hidden, top_k, experts, bytes, routing } = &case;
        let payload = if *bytes == Bf16::bytes(*hidden) { "bf16" } else { "fp8" };
        let text = case.text();
        for mode in MoeMode::ALL {
            let of = |what: &str| value(&text, "shmem", &format!("{mode}-{what}"));
            let (dispatch, combine) = (of("dispatch"), of("combine"));
            print!("| {tokens} × {hidden}, {top_k} of {experts} | {payload}, {routing} | {mode} |");
            print!(" {:.2} | {:.2} | {dispatch:.0} / {combine:.0} |", of("pairs"), of("moved"));
            print!(" {:.2} / {:.2} |", dispatch / of("dispatch-bound"), combine / of("combine-bound"));
            for &peer in peers {
                let (there, back) = (value(&text, peer, "dispatch"), value(&text, peer, "combine"));
                print!(" {there:.0} / {back:.0} | {:.2} / {:.2} |", there / dispatch, back / combine);
            }
            println!();
        }
    }
}

/// This program as PEs.
fn ours(n: usize) -> Command {
    let mut command = launcher(n);
    command.env("SHMEM_SYMMETRIC_SIZE", "1G").arg(std::env::current_exe().expect("this benchmark"));
    command.args(cases().iter().map(Case::text));
    command
}

/// The MPI libraries that there are; their programs lie in this folder.
fn peers(n: usize, folder: &Path) -> Vec<(&'static str, Command)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/moe.c");
    let bind = if n <= std::thread::available_parallelism().map_or(1, |cores| cores.get()) { "core" } else { "none" };
    let libraries: [(&str, &str, &[&str]); 2] = [
        ("Open MPI", "mpicc.openmpi", &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", bind]),
        ("MPICH", "mpicc.mpich", &["mpiexec.mpich"]),
    ];
    let built = |(name, compiler, start): (&'static str, &str, &[&str])| {
        let program: PathBuf = folder.join(compiler);
        let mut compile = Command::new(compiler);
        let compiled = compile.args(["-O3", "-march=native"]).arg(&source).arg("-o").arg(&program).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            eprintln!("without {name}: {compiler} does not compile here");
            return None;
        }
        let mut command = Command::new(start[0]);
        command.args(&start[1..]).args(["-n", &n.to_string()]).arg(program);
        command.arg(number("ITERATIONS", ITERATIONS).to_string()).args(cases().iter().map(Case::text));
        Some((name, command))
    };
    libraries.into_iter().filter_map(built).collect()
}

const ITERATIONS: usize = 15;

/// Both modes of a case, on one PE.
fn pe(world: &World, case: &Case) -> Result<()> {
    match case.bytes == Bf16::bytes(case.hidden) {
        true => MoeMode::ALL.into_iter().try_for_each(|mode| measure(world, case, Bf16, mode)),
        false => MoeMode::ALL.into_iter().try_for_each(|mode| measure(world, case, Fp8E4m3, mode)),
    }
}

fn measure<P: Payload<Elem = bf16>>(world: &World, case: &Case, payload: P, mode: MoeMode) -> Result<()> {
    let &Case { tokens, hidden, top_k, experts, bytes, .. } = case;
    let (team, me) = (world.team(), world.me());
    let moe = Moe::builder(world, &team).experts(experts).max_tokens(tokens).hidden(hidden).top_k(top_k);
    let moe = RefCell::new(moe.payload(payload).mode(mode).build()?);
    let choices = case.choices(me);
    let weights = vec![1.0 / top_k as f32; choices.len()];
    let values: Vec<bf16> = (0..tokens * hidden).map(|i| bf16::from_f32((i % 251) as f32 / 16.0)).collect();
    let mut sums = vec![bf16::ZERO; tokens * hidden];
    let outputs = choices.iter().filter(|choice| **choice >= 0).count() * hidden * size_of::<bf16>();
    let mut outputs_are_written = false;
    // The experts write their outputs once: what these are does not matter, but the pages must be there.
    let mut write = |moe: &Moe<'_, P>| -> Result<()> {
        let Some(received) = moe.received().filter(|_| !std::mem::replace(&mut outputs_are_written, true)) else {
            return Ok(());
        };
        for local in 0..received.experts().len() {
            received
                .rows(local)
                .iter()
                .try_for_each(|row| received.output(row).map(|output| output.fill(bf16::ONE)))?;
        }
        Ok(())
    };
    let iterations = number("ITERATIONS", ITERATIONS);
    let (mut dispatch, mut combine) = (Vec::new(), Vec::new());
    for _ in 0..iterations + 2 {
        let there = timed(world, || moe.borrow_mut().dispatch(&values, &choices, &weights).map(drop))?;
        write(&moe.borrow())?;
        let back = timed(world, || moe.borrow_mut().combine(&mut sums).map(drop))?;
        dispatch.push(there);
        combine.push(back);
    }
    let moe = moe.into_inner();
    let moved = moe.moved();
    let pairs = choices.chunks(top_k).map(|chosen| {
        let mut pes: Vec<_> = chosen.iter().filter_map(|expert| moe.pe_of(usize::try_from(*expert).ok()?)).collect();
        pes.sort_unstable();
        pes.dedup();
        pes.len()
    });
    let pairs = pairs.sum::<usize>() * bytes;
    let output = hidden * size_of::<bf16>();
    let copies = [
        Copy { bytes: moved, row: bytes, read: tokens, written: usize::MAX },
        Copy { bytes: outputs, row: output, read: usize::MAX, written: tokens },
    ];
    let bounds = bounds(world, copies)?;
    moe.free()?;
    if me == 0 {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let rest = |times: &[f64]| median(times[2..].to_vec());
        let lines =
            [("dispatch", rest(&dispatch)), ("combine", rest(&combine)), ("pairs", mib(pairs)), ("moved", mib(moved))];
        for (what, value) in lines.into_iter().chain([("dispatch-bound", bounds[0]), ("combine-bound", bounds[1])]) {
            println!("RES {} {mode}-{what} {value}", case.text());
        }
    }
    Ok(())
}

/// A copy of so many bytes, a row at a time, from so many different rows to so many, at most.
#[derive(Clone, Copy)]
struct Copy {
    bytes: usize,
    row: usize,
    read: usize,
    written: usize,
}

/// Microseconds of copies from private memory to private memory, with all PEs at it: in turns, as a round dispatches and combines, since what
/// one leaves in the caches is what the other finds there.
fn bounds(world: &World, copies: [Copy; 2]) -> Result<[f64; 2]> {
    let room = |rows: usize, Copy { bytes, row, .. }: Copy| vec![1_u8; rows.min(bytes.div_ceil(row)).max(1) * row];
    let mut memory = copies.map(|copy| (room(copy.read, copy), room(copy.written, copy)));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..9 {
        for ((times, (source, target)), Copy { bytes, row, .. }) in times.iter_mut().zip(&mut memory).zip(copies) {
            times.push(timed(world, || {
                let (from, into) = (source.len() / row, target.len() / row);
                for i in 0..bytes.div_ceil(row) {
                    let (from, into) = (i % from * row, i % into * row);
                    target[into..into + row].copy_from_slice(&source[from..from + row]);
                }
                std::hint::black_box(target);
                Ok(())
            })?);
        }
    }
    Ok(times.map(|times| median(times[2..].to_vec())))
}

/// Microseconds of a call at the slowest PE, after a barrier that is not timed: on all PEs.
fn timed(world: &World, call: impl FnOnce() -> Result<()>) -> Result<f64> {
    let cells = world.team().workspace().cast::<u64>()?.slice(..world.n_pes())?;
    let ctx = world.ctx::<Shared>();
    world.barrier_all()?;
    let begin = Instant::now();
    call()?;
    let took = begin.elapsed().as_nanos() as u64;
    for pe in 0..world.n_pes() {
        ctx.p(cells.at(world.me())?, took, pe)?;
    }
    world.barrier_all()?;
    let slowest = cells.to_vec().into_iter().max().unwrap_or(0);
    world.barrier_all()?;
    Ok(slowest as f64 / 1e3)
}
