//! Exit statuses and the one line that explains them.

use super::*;

#[test]
fn all_pes_run_with_their_numbers() {
    for n in [1, 2, 3, 5, 8, 16] {
        let outcome = run(&mut script(n, &["--tag"], "echo $SHMEM_PE of $SHMEM_N_PES"));
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
        for pe in 0..n {
            assert_eq!(outcome.tagged(pe), [format!("{pe} of {n}")]);
        }
        assert_eq!(outcome.text().lines().count(), n);
    }
}

#[test]
fn more_pes_than_cores_need_no_flag() {
    let outcome = run(&mut script(64, &[], "echo $SHMEM_PE"));
    let numbers: BTreeSet<usize> = outcome.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    assert_eq!(numbers, (0..64).collect());
}

#[test]
fn the_first_failing_pe_decides() {
    let outcome = run(&mut script(3, &[], "[ $SHMEM_PE = 0 ] && exit 5; exec sleep 1000"));
    assert_eq!(outcome.code, Some(5));
    assert_eq!(outcome.one_line(), "shmemrun: PE 0 exited with status 5; the other PEs were ended");
    // PE 1 fails only because PE 2 has, when it is told to end.
    let fails_late = "[ $SHMEM_PE = 2 ] && exit 3; trap 'exit 4' TERM; echo; while :; do sleep 0.01; done";
    let outcome = run(&mut script(3, &[], fails_late));
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome.err.ends_with("shmemrun: PE 2 exited with status 3; the other PEs were ended\n"),
        "{}",
        outcome.err
    );
}

#[test]
fn the_same_failure_gives_the_same_status_every_time() {
    for _ in 0..25 {
        let outcome = run(&mut script(2, &[], "[ $SHMEM_PE = 1 ] && exit 3; exit 0"));
        assert_eq!(outcome.code, Some(3));
        assert!(outcome.one_line().starts_with("shmemrun: PE 1 exited with status 3"));
    }
}

#[test]
fn a_signal_counts_as_128_more() {
    for (signal, number, name) in [("SEGV", 11, "SIGSEGV"), ("ABRT", 6, "SIGABRT"), ("KILL", 9, "SIGKILL")] {
        let outcome = run(&mut script(3, &[], &format!("[ $SHMEM_PE = 2 ] && kill -{signal} $$; exec sleep 1000")));
        assert_eq!(outcome.code, Some(128 + number));
        let line = format!("shmemrun: PE 2 was killed by signal {number} ({name}); the other PEs were ended");
        assert_eq!(outcome.one_line(), line);
    }
}

#[test]
fn a_pe_that_ignores_the_request_to_end_is_killed() {
    let outcome = run(&mut script(2, &[], "[ $SHMEM_PE = 0 ] && exit 1; trap '' TERM; while :; do sleep 1; done"));
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn a_stopped_pe_is_ended_too() {
    let outcome = run(&mut script(2, &[], "[ $SHMEM_PE = 1 ] && kill -STOP $$; sleep 0.1; exit 6"));
    assert_eq!(outcome.code, Some(6));
}

#[test]
fn a_program_that_cannot_be_run_is_one_line() {
    let dir = scratch("cannot");
    let file = dir.join("data");
    fs::write(&file, "no program").unwrap();
    let file = file.to_str().unwrap();
    for (program, code) in [("no-such-program-anywhere", 127), ("/no/such/path", 127), (file, 126), ("/", 126)] {
        let outcome = run(&mut shmemrun(&["-n", "3", program]));
        assert_eq!(outcome.code, Some(code), "{program}: {}", outcome.err);
        assert!(outcome.one_line().contains(program));
    }
    rustix::fs::chmod(file, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let outcome = run(&mut shmemrun(&["-n", "2", file]));
    assert_eq!(outcome.code, Some(126));
    outcome.one_line();
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_wrong_command_line_is_one_line_and_status_2() {
    let wrong: &[(&[&str], &str)] = &[
        (&["-n", "0", "true"], "at least 1"),
        (&["-n", "two", "true"], "two"),
        (&["-n", "-3", "true"], "-3"),
        (&["-n", "99999999999999999999", "true"], "9999"),
        (&["true"], "-n"),
        (&[], "-n"),
        (&["-n", "2"], "PROGRAM"),
        (&["-n", "2", "--"], "PROGRAM"),
        (&["-n", "2", "--no-such-option", "true"], "--no-such-option"),
        (&["-n", "2", "-q", "true"], "-q"),
        (&["-n", "2", "--bind", "socket", "true"], "socket"),
        (&["-n", "4", "--stdin", "7", "true"], "0 to 3"),
        (&["-n", "4", "--stdin", "some", "true"], "some"),
        (&["-n", "2", "--timeout", "soon", "true"], "soon"),
        (&["-n", "2", "--timeout", "-1", "true"], "-1"),
        (&["-n", "2", "--timeout", "0", "true"], "0"),
        (&["-n", "2", "--timeout", "nan", "true"], "nan"),
        (&["-n", "2", "--timeout"], "--timeout"),
        (&["-n", "2", "--heap", "much", "true"], "much"),
        (&["-n", "2", "--heap", "0", "true"], "0"),
        (&["-n", "2", "-x", "=1", "true"], "=1"),
        (&["-n", "2", "-x", "SHMEM_PE=1", "true"], "SHMEM_PE"),
        (&["-n", "2", "--wdir", "/no/such/dir", "true"], "/no/such/dir"),
        (&["-n", "2", "-n", "3", "true"], "-n"),
    ];
    for (args, text) in wrong {
        let outcome = run(&mut shmemrun(args));
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.err);
        assert!(outcome.one_line().contains(text), "{args:?}: {}", outcome.err);
        assert!(outcome.out.is_empty());
    }
}

#[test]
fn help_version_and_settings_are_shown() {
    let outcome = run(&mut shmemrun(&["--version"]));
    assert_eq!((outcome.code, outcome.text()), (Some(0), format!("shmemrun {}\n", env!("CARGO_PKG_VERSION"))));
    for (flag, text) in [("--help", "--example"), ("-h", "--stdin"), ("--info", "SHMEM_SYMMETRIC_SIZE")] {
        let outcome = run(&mut shmemrun(&[flag]));
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.text().contains(text), "{flag}");
    }
}

#[test]
fn a_host_is_checked_without_starting_anything() {
    let outcome = run(&mut shmemrun(&["--check", "-n", "2", "--heap", "1M"]));
    let text = outcome.text();
    assert!(text.contains("2 PEs: heaps of 1.0M") && text.contains("  network  "), "{text}");
    assert_eq!(outcome.code, Some(i32::from(text.contains("FAIL"))), "{text}");

    let outcome = run(&mut shmemrun(&["--check", "--heap", "1000T"]));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.text().contains("FAIL  memory") && outcome.text().contains("reduce SHMEM_SYMMETRIC_SIZE"));

    let outcome = run(shmemrun(&["--check"]).env("SHMEM_HCA", "no-such-device"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.text().contains("FAIL  network"), "{}", outcome.text());

    let outcome = run(shmemrun(&["--check"]).env("SHMEM_HCA", "mlx5_0,"));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.one_line().contains("SHMEM_HCA=\"mlx5_0,\" is not valid"), "{}", outcome.err);
}
