//! `shmem-perf`: times operations and checks their results, prints which algorithm a collective takes, and measures the
//! table that it is chosen by. Under `shmemrun` it is one PE of the job, alone it starts PEs as threads. Only the
//! command line is here.
//!
//! - `case`: an operation of typed elements, as calls without types; `reduction`: those of every type and operation;
//! - `layout`: what every operation must give;
//! - `bench`: the sweep over sizes; `time`: how a call is timed;
//! - `plan`: prints the choice; `tune`: measures it, for exchanges between experts in `exchange`.
#![forbid(unsafe_code)]

mod bench;
mod case;
mod exchange;
mod layout;
mod plan;
mod reduction;
mod time;
mod tune;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shmem::config::{self, Config};
use shmem::{Result, World};
use shmem_collectives::op::{Op, Type};
use shmem_collectives::plan::Hosts;

use crate::layout::Operation;
use crate::plan::Planned;

/// Status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Times an operation over a range of sizes and checks its results.
///
/// A size is that of a block: what one PE contributes to, or gets from, one other. A time is that of the slowest PE;
/// put, get, put_signal and fetch_add go to the right neighbour, all PEs at once. Bus bandwidth is as nccl-tests have
/// it. Exit status: 1 if any element is wrong or a call fails, 2 for a wrong command line.
#[derive(Parser)]
#[command(name = "shmem-perf", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Line {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Command {
    /// Prints which algorithm a collective takes for each size, and why
    Plan(Plan),
    /// Measures which algorithm is fastest for each collective and size on this machine, and which mode for exchanges between
    /// experts, in about two seconds
    Tune(Tune),
}

#[derive(Args)]
struct Sizes {
    /// The first size
    #[arg(short, value_name = "BYTES", default_value = "8", value_parser = size)]
    begin: usize,
    /// The last size
    #[arg(short, value_name = "BYTES", default_value = "64M", value_parser = size)]
    end: usize,
    /// From a size to the next
    #[arg(short, value_name = "FACTOR", default_value = "2", value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// Type of the elements: one that reductions have (i8 … usize, f16, bf16, f32, f64, complex64, complex128), or all
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "f32", value_parser = which::<Type>)]
    ty: Which<Type>,
    /// What reductions do: one of the library's operations (sum, prod, … scaled=0.5), or all that the type has
    #[arg(short, long, value_name = "OP", default_value = "sum", value_parser = which::<Op>)]
    op: Which<Op>,
}

/// One of several, or all.
#[derive(Clone, Copy)]
enum Which<T> {
    All,
    One(T),
}

#[derive(Args)]
struct Bench {
    /// The operation: put, get, put_signal, fetch_add, barrier, sync, or a collective such as allreduce or alltoallv
    #[arg(value_name = "OP", value_parser = str::parse::<Operation>, required = true)]
    operation: Option<Operation>,
    #[command(flatten)]
    sizes: Sizes,
    /// Timed calls of each size
    #[arg(short = 'n', value_name = "CALLS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Calls before them
    #[arg(short = 'w', value_name = "CALLS", default_value = "20")]
    warm_ups: u32,
    /// Calls whose results are compared with a serial result
    #[arg(short = 'c', value_name = "CALLS", default_value = "1")]
    checks: u32,
    /// The algorithm that the collective takes, where it can
    #[arg(long = "algo", value_name = "NAME")]
    algorithm: Option<String>,
    /// PEs, as threads, when not under shmemrun [default: 2]
    #[arg(long, value_name = "N", value_parser = pes)]
    pes: Option<usize>,
}

#[derive(Args)]
struct Plan {
    /// The collective, or moe: the exchange between experts, by the bytes of a batch
    #[arg(value_name = "COLLECTIVE", value_parser = str::parse::<Planned>)]
    collective: Planned,
    #[command(flatten)]
    sizes: Sizes,
    /// PEs on one host [default: 2]
    #[arg(long, value_name = "N", value_parser = pes, conflicts_with = "hosts")]
    pes: Option<usize>,
    /// Cores of the host, if it is one [default: this machine's]
    #[arg(long, value_name = "N", value_parser = pes)]
    cores: Option<usize>,
    /// Hosts and PEs: `4x8` for 4 hosts with 8 PEs each, `4,8,3` for three with so many
    #[arg(long, value_name = "HOSTS", value_parser = hosts)]
    hosts: Option<Hosts>,
}

#[derive(Args)]
struct Tune {
    /// Where the table goes, for SHMEM_COLL_TABLE [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seconds that it may take, roughly; with many PEs to a core, more are well spent
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    time: Duration,
    /// PEs, as threads, when not under shmemrun [default: 2]
    #[arg(long, value_name = "N", value_parser = pes)]
    pes: Option<usize>,
}

fn main() -> ExitCode {
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) if error.use_stderr() => return wrong(&one_line(&error.render().to_string())),
        Err(help) => {
            // Whoever asked for it may have closed the pipe.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(error) => return failed(&error.to_string()),
    };
    let bench = line.bench;
    let result = match (line.command, bench.operation) {
        (Some(Command::Plan(plan)), _) => {
            return plan::print(&plan, &config).map_or_else(|why| wrong(&why), |()| ExitCode::SUCCESS);
        }
        (Some(Command::Tune(tune)), _) => pes_run(tune.pes, &config, |world| tune::run(world, &tune)),
        (None, Some(operation)) => match bench.refused(operation) {
            Some(why) => return wrong(&why),
            None => pes_run(bench.pes, &config, |world| bench::run(world, operation, &bench)),
        },
        (None, None) => return wrong("give an OP, or plan or tune"),
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => failed(&error.to_string()),
    }
}

/// Runs `f` as one PE of the job, or as all PEs of one; wrong elements in all.
fn pes_run(pes: Option<usize>, config: &Config, f: impl Fn(&World) -> Result<u64> + Sync) -> Result<u64> {
    match config.rendezvous {
        Some(_) => shmem::run(f),
        None => Ok(shmem::local(pes.unwrap_or(2), f)?.into_iter().max().unwrap_or(0)),
    }
}

impl Bench {
    /// Why it makes no sense.
    fn refused(&self, operation: Operation) -> Option<String> {
        let Sizes { begin, end, .. } = self.sizes;
        if begin > end {
            return Some(format!("-b {begin} is more than -e {end}"));
        }
        if let Some(algorithm) = &self.algorithm {
            let Some(what) = operation.like() else {
                return Some(format!("--algo {algorithm}: {} is no collective", operation.name()));
            };
            let forced = shmem_collectives::Selection::default().force(what.name(), algorithm);
            if let Err(error) = forced {
                return Some(error.to_string());
            }
        }
        self.sizes.pairs(operation).err()
    }
}

/// Says it and ends with the status for wrong command lines. All PEs of a job have the same one: PE 0 speaks for them,
/// and the others end in peace, so that the launcher does not end PE 0 before it has spoken.
fn wrong(why: &str) -> ExitCode {
    if std::env::var("SHMEM_PE").is_ok_and(|pe| pe != "0") {
        return ExitCode::SUCCESS;
    }
    eprintln!("shmem-perf: {why}");
    ExitCode::from(USAGE)
}

fn failed(why: &str) -> ExitCode {
    eprintln!("shmem-perf: {why}");
    ExitCode::FAILURE
}

/// The first paragraph of clap's message, in one line.
fn one_line(message: &str) -> String {
    let first: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    first.join(" ").trim_start_matches("error: ").to_owned()
}

fn which<T: FromStr>(text: &str) -> Result<Which<T>, T::Err> {
    if text == "all" { Ok(Which::All) } else { text.parse().map(Which::One) }
}

fn size(text: &str) -> Result<usize, String> {
    config::parse_size(text).ok_or_else(|| "not a size such as 8, 64K or 1.5M".into())
}

fn pes(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1 << 16).contains(n)).ok_or_else(|| "not a number of PEs from 1 to 65536".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let form = || "not a number of seconds from 0.1 to 3600".to_owned();
    let seconds: f64 = text.parse().map_err(|_| form())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(form()) }
}

fn hosts(text: &str) -> Result<Hosts, String> {
    let form = || "not hosts such as 4x8 or 4,8,3".to_owned();
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=1 << 16).contains(n)).ok_or_else(form);
    match text.split_once('x') {
        Some((hosts, pes)) => Ok(Hosts::new(vec![number(pes)?; number(hosts)?])),
        None => Ok(Hosts::new(text.split(',').map(number).collect::<Result<Vec<_>, _>>()?)),
    }
}
