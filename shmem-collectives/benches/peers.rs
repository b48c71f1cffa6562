//! Our collectives and those of the MPI libraries that are installed, in turns in one run: `cargo bench --bench peers`.
//!
//! Each round runs every contestant once; the table gives the median over the rounds of our time and of the best peer's, and the median of
//! the ratios of the rounds. Peers: whatever of Open MPI (`mpicc.openmpi`, `mpirun.openmpi`), MPICH (`mpicc.mpich`, `mpiexec.mpich`) and Intel MPI
//! (`I_MPI_ROOT=DIR`, where `bin/mpicc` and `bin/mpiexec.hydra` are) there is. `PES` and `ROUNDS` change the number of PEs and of rounds.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{launcher, median, number, scratch};

struct Contestant {
    name: &'static str,
    command: Command,
}

fn main() {
    let (n, rounds) = (number("PES", 2), number("ROUNDS", 5));
    let folder = scratch();
    let mut contestants = contestants(n, folder.path());
    let mut times: BTreeMap<(usize, String), BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for round in 0..rounds {
        for contestant in &mut contestants {
            eprintln!("round {round}: {}", contestant.name);
            for (test, bytes, median) in run(contestant) {
                times.entry((bytes, test)).or_default().entry(contestant.name).or_default().push(median);
            }
        }
    }
    println!("{n} PEs, medians of {rounds} rounds, µs\n");
    print!("| collective | bytes | shmem |");
    contestants.iter().skip(1).for_each(|peer| print!(" {} |", peer.name));
    println!(" best peer / shmem |");
    println!("|---|---|---|{}---|", "---|".repeat(contestants.len() - 1));
    for ((bytes, test), by_name) in &times {
        let Some(ours) = by_name.get("shmem") else { continue };
        print!("| {test} | {bytes} | {:.2} |", median(ours.clone()));
        for peer in contestants.iter().skip(1) {
            print!(" {:.2} |", by_name.get(peer.name).map_or(f64::NAN, |times| median(times.clone())));
        }
        let peers = || contestants.iter().skip(1).filter_map(|peer| by_name.get(peer.name));
        let best = |round: usize| peers().filter_map(|times| times.get(round)).copied().fold(f64::INFINITY, f64::min);
        println!(" {:.2} |", median(ours.iter().enumerate().map(|(round, ours)| best(round) / ours).collect()));
    }
}

/// Test, bytes and median time of every line that a contestant prints.
fn run(contestant: &mut Contestant) -> Vec<(String, usize, f64)> {
    let output = contestant.command.output().expect("it starts");
    assert!(output.status.success(), "{}: {}", contestant.name, String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["RES", _, _, test, bytes, "us", _, median] = words.as_slice() else { return None };
        Some((test.to_string(), bytes.parse().ok()?, median.parse().ok()?))
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect()
}

/// We come first; the peers' programs lie in this folder.
fn contestants(n: usize, folder: &Path) -> Vec<Contestant> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root).args(["bench", "--no-run", "-p", "shmem-collectives", "--bench", "collectives"]);
    build.args(["--message-format", "json"]);
    let built = build.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stdout);
    let bench = said
        .lines()
        .filter(|line| line.contains("\"name\":\"collectives\""))
        .find_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next().map(PathBuf::from));
    let bench = bench.expect("the benchmark of our collectives");
    let mut ours = launcher(n);
    ours.arg(bench);
    let mut all = vec![Contestant { name: "shmem", command: ours }];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/mpi.c");
    let mut add = |name: &'static str, compiler: &str, start: &[&str]| {
        let program = folder.join(name.replace(' ', "-"));
        let compiled = Command::new(compiler).arg("-O2").arg(&source).arg("-o").arg(&program).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            eprintln!("without {name}: {compiler} does not compile here");
            return;
        }
        let mut command = Command::new(start[0]);
        command.args(&start[1..]).arg(program).arg(name.replace(' ', "-"));
        all.push(Contestant { name, command });
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let (pes, bind) = (n.to_string(), if n <= cores { "core" } else { "none" });
    add(
        "Open MPI",
        "mpicc.openmpi",
        &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", bind, "-n", &pes],
    );
    add("MPICH", "mpicc.mpich", &["mpiexec.mpich", "-n", &pes]);
    if let Ok(intel) = std::env::var("I_MPI_ROOT") {
        add("Intel MPI", &format!("{intel}/bin/mpicc"), &[&format!("{intel}/bin/mpiexec.hydra"), "-n", &pes]);
    }
    all
}
