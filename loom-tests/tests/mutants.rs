//! Every mutant of the table dies, of what the table says; and the README's table of mutants is that table.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom_tests::{MUTANTS, Mutant};

const PROTOCOLS: [&str; 11] =
    ["barrier", "lock", "ring", "recorder", "fate", "gather", "signal", "quiet", "park", "moe", "active"];

/// What the mutant died of.
fn death(mutant: &Mutant) -> String {
    let run = || (mutant.model)(mutant.mutation);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(explored) => format!("it survived {} executions", explored.executions),
        Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(message), _) => message.clone(),
            (None, Some(message)) => (*message).into(),
            (None, None) => "a panic without a message".into(),
        },
    }
}

fn mutants_die(protocol: &str) {
    assert!(PROTOCOLS.contains(&protocol));
    let mutants: Vec<_> = MUTANTS.iter().filter(|mutant| protocol_of(mutant) == protocol).collect();
    assert!(!mutants.is_empty(), "{protocol} has no mutant");
    for mutant in mutants {
        let death = death(mutant);
        assert!(death.contains(mutant.dies_of), "{} should die of {:?}: {death}", mutant.name, mutant.dies_of);
    }
}

fn protocol_of(mutant: &Mutant) -> &str {
    mutant.name.split('-').next().unwrap_or_default()
}

#[test]
fn mutants_of_the_barrier_die() {
    mutants_die("barrier");
}

#[test]
fn mutants_of_the_lock_die() {
    mutants_die("lock");
}

#[test]
fn mutants_of_the_ring_die() {
    mutants_die("ring");
}

#[test]
fn mutants_of_the_recorder_die() {
    mutants_die("recorder");
}

#[test]
fn mutants_of_the_fate_die() {
    mutants_die("fate");
}

#[test]
fn mutants_of_the_gathering_die() {
    mutants_die("gather");
}

#[test]
fn mutants_of_the_signal_die() {
    mutants_die("signal");
}

#[test]
fn mutants_of_quiet_die() {
    mutants_die("quiet");
}

#[test]
fn mutants_of_park_die() {
    mutants_die("park");
}

#[test]
fn mutants_of_the_exchange_between_experts_die() {
    mutants_die("moe");
}

#[test]
fn mutants_of_the_active_set_die() {
    mutants_die("active");
}

#[test]
fn the_readme_names_every_mutant_and_no_other() {
    let readme = include_str!("../../src/sync/README.md");
    let named: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.contains('-'))
        .collect();
    let known: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    assert_eq!(named, known);
    assert_eq!(known.len(), MUTANTS.len(), "names differ");
    assert!(MUTANTS.iter().all(|mutant| PROTOCOLS.contains(&protocol_of(mutant))), "every mutant is run");
}
