//! The examples as users run them: real processes under `shmemrun`, at several numbers of PEs. Each example checks its
//! own result and fails if that is wrong; here its exit status and what it says count.
#![allow(clippy::unwrap_used, reason = "a test, its helper functions included")]

use std::path::Path;
use std::process::{Command, Output};

const SHMEMRUN: &str = env!("CARGO_BIN_EXE_shmemrun");

/// What an example says at 1, 2, 3 and 5 PEs.
fn outputs(example: &str, args: &[&str]) -> [(usize, String); 4] {
    // The first run has the launcher build the example, which not every way to run this test does.
    let first = text(shmemrun(1, &["--example", example, "--"], args));
    let rest = |n| text(shmemrun(n, &[&built(example)], args));
    [(1, first), (2, rest(2)), (3, rest(3)), (5, rest(5))]
}

fn shmemrun(n: usize, program: &[&str], args: &[&str]) -> Output {
    let n = n.to_string();
    let mut command = Command::new(SHMEMRUN);
    command.env("SHMEM_FLIGHT_FILE", "off");
    command.args(["-n", &n, "--timeout", "120"]).args(program).args(args).output().unwrap()
}

/// The place where cargo puts an example: next to the launcher.
fn built(example: &str) -> String {
    Path::new(SHMEMRUN).with_file_name("examples").join(example).to_str().unwrap().to_owned()
}

/// What a successful run has said.
fn text(output: Output) -> String {
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The word after `name` in the last line.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let mut words = text.lines().last().unwrap().split([' ', ',']).skip_while(|word| *word != name);
    words.nth(1).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn hello_names_every_pe() {
    for (n, text) in outputs("hello", &[]) {
        assert_eq!(text.lines().count(), n + 1);
        for (pe, line) in text.lines().take(n).enumerate() {
            assert!(line.starts_with(&format!("PE {pe} of {n} is process ")), "{line}");
            assert!(line.ends_with(&format!("shares memory among {n}")), "{line}");
        }
        assert!(text.contains(&format!("hello from {n} PE(s) on 1 host(s)")), "{text}");
    }
}

#[test]
fn ring_brings_the_token_back() {
    for (n, text) in outputs("ring", &["300"]) {
        assert!(text.starts_with(&format!("ring: 300 laps of {n} PEs")), "{text}");
        // What one PE makes of the token alone.
        if n == 1 {
            let token = (0..300).fold(1_u64, |t, _| t.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            assert_eq!(value(&text, "is"), format!("{token:#018x}"));
        }
    }
}

#[test]
fn halo_is_as_a_serial_run() {
    // The second plate has fewer rows than there are PEs, the third one row each.
    for plate in [["37", "29", "60"], ["2", "11", "25"], ["5", "1", "25"]] {
        for (_, text) in outputs("halo", &plate) {
            assert!(text.contains("bit for bit as a serial run"), "{text}");
        }
    }
}

#[test]
fn histogram_loses_no_count() {
    for (samples, buckets) in [("20000", "64"), ("20000", "1"), ("0", "7")] {
        let fullest = outputs("histogram", &[samples, buckets]).map(|(_, text)| {
            assert!(text.contains("all as in a serial count"), "{text}");
            value(&text, "most").parse::<u64>().unwrap()
        });
        assert!(fullest.iter().all(|count| *count == fullest[0]), "{fullest:?}");
        if buckets == "1" {
            assert_eq!(fullest[0], 20000);
        }
    }
}

#[test]
fn sort_puts_all_keys_in_order() {
    // Also none, and fewer than there are PEs.
    for keys in ["30000", "3", "0"] {
        for (n, text) in outputs("sort", &[keys]) {
            assert!(text.starts_with(&format!("sort: {keys} keys on {n} PEs")), "{text}");
            assert!(text.contains("in order, and all there"), "{text}");
            let most = value(&text, "most").parse::<usize>().unwrap();
            assert!(keys != "30000" || most < 2 * 30000 / n || n == 1, "one PE got {most} of the keys");
        }
    }
}

#[test]
fn train_learns_the_same_on_any_number_of_pes() {
    let runs = outputs("train", &[]);
    let four = (4, text(shmemrun(4, &[&built("train")], &[])));
    let losses =
        |text: &str| text.lines().filter(|line| line.starts_with("epoch")).map(str::to_owned).collect::<Vec<_>>();
    let accuracy = |text: &str| value(text, "accuracy").parse::<f64>().unwrap();
    let (_, serial) = &runs[0];
    assert_eq!(losses(serial).len(), 40);
    for (n, text) in runs.iter().chain([&four]) {
        assert_eq!(losses(text), losses(serial), "the losses at {n} PEs");
        assert!((accuracy(text) - accuracy(serial)).abs() <= 1e-6, "{text}");
        assert!(accuracy(text) >= 0.93, "{text}");
    }
}

#[test]
fn moe_exchange_learns_as_a_serial_run_does() {
    let runs = outputs("moe_exchange", &[]);
    let accuracy = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("moe_exchange: accuracy")).unwrap();
        line.split([' ', ',']).nth(2).unwrap().parse::<f64>().unwrap()
    };
    let loads = |text: &str| text.lines().find(|line| line.starts_with("load of the experts")).unwrap().to_owned();
    for (_, text) in &runs {
        assert!(text.contains("bit for bit as in a serial run") && accuracy(text) >= 0.95, "{text}");
        assert_eq!((accuracy(text), loads(text)), (accuracy(&runs[0].1), loads(&runs[0].1)));
    }
}

#[test]
fn an_example_fails_if_its_check_does() {
    // No training, no accuracy.
    let output = shmemrun(2, &["--example", "train", "--"], &["0"]);
    assert!(![Some(0), None].contains(&output.status.code()), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("0.93"), "{output:?}");
}

#[test]
fn nonsense_is_refused() {
    for (example, args) in [
        ("ring", ["many"]),
        ("halo", ["0"]),
        ("histogram", ["-3"]),
        ("sort", ["1e6"]),
        ("train", ["x"]),
        ("moe_exchange", ["x"]),
    ] {
        let output = shmemrun(2, &["--example", example, "--"], &args);
        assert_eq!(output.status.code(), Some(2), "{example}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(args[0]), "{example}: {output:?}");
    }
}

#[test]
fn survive_finishes_without_the_dead() {
    assert!(text(shmemrun(1, &["--example", "survive"], &[])).contains("2000 of 2000 tasks are done, 1 PEs are left"));
    for n in [2, 3, 5] {
        let output = shmemrun(n, &["--on-failure", "continue", &built("survive")], &[]);
        let said = String::from_utf8(output.stdout).unwrap();
        // PE 1 aborts; that remains the job's status.
        assert_eq!(output.status.code(), Some(134), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let left = format!("2000 of 2000 tasks are done, {} PEs are left", n - 1);
        assert_eq!(said.matches(&left).count(), n - 1, "{said}");
        assert_eq!(
            said.matches("PE 1 is lost: it was killed by signal 6 (SIGABRT); going on").count(),
            n - 1,
            "{said}"
        );
    }
}
