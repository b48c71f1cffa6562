//! Prints the rows of the table for one collective or for exchanges between experts, and what is chosen for each size, with the time
//! that the cost model predicts for it on a machine like the one of `docs/performance.md`, where it has one.

use std::str::FromStr;

use shmem::config::{Config, show_size};
use shmem_collectives::model::{Machine, simulate};
use shmem_collectives::plan::{Collective, Hosts, Problem};
use shmem_collectives::select::Need;
use shmem_collectives::{Coll, Selection};

use crate::Plan;
use crate::case::need;
use crate::layout::Operation;

/// What there is a choice for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Planned {
    Operation(Operation),
    /// An exchange between experts.
    Moe,
}

impl FromStr for Planned {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "moe" => Ok(Planned::Moe),
            _ => name.parse().map(Planned::Operation).map_err(|known| format!("{known}, moe")),
        }
    }
}

/// Prints it, for the settings in force.
///
/// # Errors
/// Why the command line makes no sense.
pub(crate) fn print(plan: &Plan, config: &Config) -> Result<(), String> {
    let Plan { collective, sizes, pes, cores, hosts } = plan;
    let what = match *collective {
        Planned::Operation(Operation::Collective(what)) => Some(what),
        Planned::Operation(other) => return Err(format!("{} is no collective: it has no plan", other.name())),
        Planned::Moe => None,
    };
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let selection = Selection::new(config).map_err(|error| text(&error))?;
    let cores = cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()));
    let hosts = hosts.clone().unwrap_or_else(|| Hosts::one(pes.unwrap_or(2)));
    let n = hosts.n();
    let hosts = hosts.crowded(n > cores);
    println!(
        "# {}: {n} PEs on {}{}, workspace of {}",
        what.map_or("moe", Collective::name),
        count(hosts.count(), "host"),
        if hosts.is_crowded() { " with fewer cores" } else { "" },
        show_size(config.team_workspace)
    );
    println!("# {:<14}  {:<8}  {:>7}  {:<12}  why", "collective", "on", "up to", "algorithm");
    let Some(what) = what else {
        selection.moe_rows().for_each(|row| println!("  {row}"));
        head();
        sizes.lens(1).into_iter().for_each(|bytes| moe_line(&selection, bytes, hosts.count() > 1));
        return Ok(());
    };
    for row in selection.rows().filter(|row| row.collective == what.name()) {
        println!("  {row}");
    }
    let pairs = sizes.pairs(Operation::Collective(what))?;
    for &(ty, op, size) in &pairs {
        if pairs.len() > 1 {
            println!("# {ty} {}", if what.reduces() { op.name() } else { "" });
        }
        let mut need = need(what, ty, op)?;
        need.room = Coll::room(config.team_workspace, n, size);
        head();
        for len in sizes.lens(size) {
            line(&selection, &Problem { what, n, len, chunk: 1, in_place: false }, &hosts, need)?;
        }
    }
    Ok(())
}

/// What is chosen for a size.
fn line(selection: &Selection, problem: &Problem, hosts: &Hosts, need: Need) -> Result<(), String> {
    let Problem { what, n, len, .. } = *problem;
    let choice = selection.explain(problem, hosts, need);
    let choice = choice.ok_or_else(|| format!("SHMEM_TEAM_WORKSPACE is too small for {what} of {n} PEs"))?;
    // What is moved, where that is no elements.
    let bytes = need.held(choice.algorithm).unwrap_or(need.size);
    let piece = show_size(choice.chunk.min(len) * bytes);
    let size = show_size(len * need.size);
    let planned = Problem { chunk: choice.chunk, ..*problem };
    let predicted = simulate(choice.algorithm, &planned, hosts, &Machine::MEASURED, bytes);
    let time = predicted.map_or_else(|_| "-".into(), |report| format!("{:.2} us", report.ns / 1e3));
    println!("  {size:>9}  {len:>9}  {:<12}  {piece:>9}  {time:>12}  {}", choice.algorithm.name(), choice.because);
    Ok(())
}

/// What is chosen for exchanges of so many bytes of tokens on a PE, which have no pieces and no model.
fn moe_line(selection: &Selection, bytes: usize, several_hosts: bool) {
    let (mode, row) = selection.moe(bytes, several_hosts);
    let why = row.map_or_else(|| "forced".into(), |row| format!("{} up to {}: {}", row.hosts, row.limit(), row.why));
    println!("  {:>9}  {:>9}  {mode:<12}  {:>9}  {:>12}  {why}", show_size(bytes), "-", "-", "-");
}

fn head() {
    println!("# {:>9}  {:>9}  {:<12}  {:>9}  {:>12}  why", "size", "count", "algorithm", "piece", "predicted");
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
