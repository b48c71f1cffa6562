//! Every mutant of the table dies, of what the table says; and the README names them all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom_tests::MUTANTS;

fn die(protocol: &str) {
    let mutants: Vec<_> = MUTANTS.iter().filter(|mutant| mutant.protocol == protocol).collect();
    assert!(!mutants.is_empty(), "{protocol} has no mutant");
    let mut wrong = Vec::new();
    for mutant in mutants {
        let start = std::time::Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| { (mutant.model)(mutant.mutation); }));
        let message = match &outcome {
            Ok(()) => "it survived",
            Err(panic) => panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message"),
        };
        println!("MUT {} {:?} {message}", mutant.name, start.elapsed());
        if outcome.is_ok() || !message.contains(mutant.dies_of) {
            wrong.push(format!("{}: {message}", mutant.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn of_the_barrier() {
    die("barrier");
}

#[test]
fn of_the_lock() {
    die("lock");
}

#[test]
fn of_the_ring() {
    die("ring");
}

#[test]
fn of_the_announcement() {
    die("announcement");
}

#[test]
fn of_the_signal() {
    die("signal");
}

#[test]
fn of_quiet() {
    die("quiet");
}

#[test]
fn of_park() {
    die("park");
}
