//! `shmemrun` as its users meet it: real processes, real signals, and afterwards nothing left of them.
//!
//! The programs launched are shell scripts, and this test binary itself where a PE has to join the job. "Left" is decided by
//! process numbers that the scripts print and by the launcher's own list of children, never by searching for names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use shmem::boot::{Bootstrap, Rendezvous};

const SHMEMRUN: &str = env!("CARGO_BIN_EXE_shmemrun");
/// Between what takes a moment and what hangs.
const BOUND: Duration = Duration::from_secs(60);
/// Between ending at once and waiting for a `sleep 1000`.
const SOON: Duration = Duration::from_secs(20);

fn shmemrun(args: &[&str]) -> Command {
    let mut command = Command::new(SHMEMRUN);
    command.args(args).stdin(Stdio::null());
    command
}

/// A script for each PE.
fn script(n: usize, options: &[&str], script: &str) -> Command {
    let n = n.to_string();
    let args = [&["-n", &n], options, &["sh", "-c", script]].concat();
    shmemrun(&args)
}

struct Outcome {
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Outcome {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The lines that begin with `[pe] `, without that.
    fn tagged(&self, pe: usize) -> Vec<String> {
        let tag = format!("[{pe}] ");
        self.text().lines().filter_map(|line| line.strip_prefix(&tag)).map(str::to_owned).collect()
    }

    fn one_line(&self) -> &str {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("shmemrun: ") && self.err.ends_with('\n'), "{}", self.err);
        self.err.trim_end()
    }
}

fn run(command: &mut Command) -> Outcome {
    run_with_input(command, None)
}

/// Runs to the end, feeding `input`, and fails if that takes too long.
fn run_with_input(command: &mut Command, input: Option<Vec<u8>>) -> Outcome {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // The program may leave part of it unread.
        thread::spawn(move || stdin.write_all(&input));
    }
    let (out, err) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    let status = wait(&mut child, BOUND);
    let err = String::from_utf8_lossy(&err.recv_timeout(BOUND).unwrap()).into_owned();
    Outcome { code: status.code(), out: out.recv_timeout(BOUND).unwrap(), err }
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        sender.send(bytes)
    });
    receiver
}

fn wait(child: &mut Child, bound: Duration) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if since.elapsed() > bound {
            child.kill().unwrap();
            panic!("the launcher did not end within {bound:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A launcher whose PEs have printed that they run.
struct Running {
    launcher: Child,
    lines: BufReader<std::process::ChildStdout>,
    /// Every process of the job: those whose numbers the PEs printed, and the launcher's children.
    processes: BTreeSet<i32>,
}

impl Running {
    /// Waits for `expected` lines, each a process number.
    fn start(mut command: Command, expected: usize) -> Running {
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(launcher.stdout.take().unwrap());
        let mut processes = BTreeSet::new();
        for _ in 0..expected {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            processes.insert(line.trim().parse().unwrap_or_else(|_| panic!("no process number: {line:?}")));
        }
        processes.extend(children(launcher.id()));
        Running { launcher, lines, processes }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.launcher), signal).unwrap();
    }

    /// The launcher has ended, and so has all that it started.
    fn ended(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.launcher, SOON);
        let mut err = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let mut rest = Vec::new();
        self.lines.read_to_end(&mut rest).unwrap();
        all_gone(&self.processes);
        (status, err)
    }
}

fn children(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<i32>>()).collect()
}

/// Whether a process still runs; one that only waits to be reaped by its new parent does not.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn all_gone(processes: &BTreeSet<i32>) {
    let since = Instant::now();
    while let Some(pid) = processes.iter().find(|&&pid| runs(pid)) {
        assert!(since.elapsed() < SOON, "process {pid} of {processes:?} is left");
        thread::sleep(Duration::from_millis(2));
    }
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("launcher-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Prints its number and that of a child, then waits for ever.
const WAITS: &str = "echo $$; sleep 1000 & echo $!; wait";
/// The same, with a child that has left the PE's session.
const SCATTERS: &str = "echo $$; setsid sh -c 'echo $$; exec sleep 1000' & wait";

// ---- exit status --------------------------------------------------------------------------------------------------

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

// ---- ends -----------------------------------------------------------------------------------------------------------

#[test]
fn the_time_limit_ends_all_descendants() {
    for waits in [WAITS, SCATTERS] {
        let (status, err) = Running::start(script(4, &["--timeout", "0.7"], waits), 8).ended();
        assert_eq!(status.code(), Some(124));
        assert_eq!(err, "shmemrun: the job was ended after 700ms (--timeout)\n");
    }
}

#[test]
fn signals_to_the_launcher_end_all_descendants() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        for waits in [WAITS, SCATTERS] {
            let job = Running::start(script(3, &[], waits), 6);
            job.signal(signal);
            let (status, err) = job.ended();
            assert_eq!((status.code(), err.as_str()), (Some(code), ""));
        }
    }
}

#[test]
fn pes_hear_of_the_end_before_they_are_killed() {
    let script_ = "trap 'echo ended by TERM; exit 0' TERM; trap 'echo ended by INT; exit 0' INT; echo $$; \
                   while :; do sleep 0.01; done";
    for (signal, word, code) in [(Signal::TERM, "TERM", 143), (Signal::INT, "INT", 130)] {
        let mut job = Running::start(script(2, &[], script_), 2);
        job.signal(signal);
        let mut rest = String::new();
        job.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("ended by {word}\n").repeat(2));
        assert_eq!(job.ended().0.code(), Some(code));
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let stubborn = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let job = Running::start(script(2, &[], stubborn), 2);
    job.signal(Signal::TERM);
    job.signal(Signal::INT);
    // Which of two pending signals is heard first is up to the system.
    assert!(matches!(job.ended().0.code(), Some(130 | 143)));
}

#[test]
fn nothing_survives_a_killed_launcher() {
    for waits in [WAITS, SCATTERS] {
        let job = Running::start(script(4, &[], waits), 8);
        // The PEs, and the guard.
        assert_eq!(children(job.launcher.id()).len(), 5);
        job.signal(Signal::KILL);
        assert_eq!(job.ended().0.signal(), Some(9));
    }
}

#[test]
fn nothing_survives_a_killed_launcher_group() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut command = script(3, &[], WAITS);
        command.process_group(0);
        let job = Running::start(command, 6);
        kill_process_group(Pid::from_child(&job.launcher), signal).unwrap();
        job.ended();
    }
}

#[test]
fn nothing_survives_a_launcher_killed_at_any_moment() {
    for delay in 0..12 {
        let mut command = script(4, &[], WAITS);
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = collect(launcher.stdout.take().unwrap());
        thread::sleep(Duration::from_millis(delay));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let out = String::from_utf8(out.recv_timeout(SOON).unwrap()).unwrap();
        all_gone(&out.lines().map(|line| line.parse().unwrap()).collect());
    }
}

#[test]
fn nothing_survives_the_normal_end() {
    let leaves = "echo $(setsid sh -c 'sleep 1000 >/dev/null & echo $!'); sleep 1000 & echo $!; echo $$; exit 0";
    let (status, err) = Running::start(script(3, &[], leaves), 9).ended();
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn children_that_the_launcher_had_before_are_left_alone() {
    let command = format!("sleep 1000 >/dev/null 2>&1 & echo $!; exec {SHMEMRUN} -n 2 true");
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    let sleeper: i32 = outcome.text().trim().parse().unwrap();
    assert_eq!(outcome.code, Some(0));
    assert!(runs(sleeper));
    kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_wrapper_script_hides_nothing() {
    let waits = "[ $SHMEM_PE = 1 ] && kill -SEGV $$; exec sleep 1000";
    let outcome = run(&mut script(2, &[], &format!("sh -c '{waits}'; exit $?")));
    assert_eq!(outcome.code, Some(139));
    let job = Running::start(script(2, &[], &format!("nohup sh -c '{WAITS}'; exit $?")), 4);
    job.signal(Signal::TERM);
    assert_eq!(job.ended().0.code(), Some(143));
}

#[test]
fn launchers_nest() {
    let inner = format!("{SHMEMRUN} -n 2 sh -c '{WAITS}'");
    let job = Running::start(script(2, &[], &inner), 8);
    job.signal(Signal::KILL);
    job.ended();
}

// ---- input ----------------------------------------------------------------------------------------------------------

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn input_of_any_length_reaches_pe_0_and_nobody_else() {
    let input = noise(10_000_000);
    let outcome = run_with_input(&mut script(3, &[], "cat; [ $SHMEM_PE = 0 ] || wc -c >&2"), Some(input.clone()));
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.out == input);
    assert_eq!(outcome.err.split_whitespace().collect::<Vec<_>>(), ["0", "0"]);
}

#[test]
fn input_goes_to_the_chosen_pe_to_all_or_to_none() {
    let input = noise(10_000_000);
    let counts = |who: &str| {
        let outcome = run_with_input(&mut script(3, &["--tag", "--stdin", who], "cksum"), Some(input.clone()));
        assert_eq!(outcome.code, Some(0));
        [0, 1, 2].map(|pe| outcome.tagged(pe).concat())
    };
    let all = counts("all");
    assert!(all[0].ends_with(" 10000000") && all[0] == all[1] && all[1] == all[2], "{all:?}");
    let one = counts("1");
    assert!(one[1] == all[0] && one[0] == one[2] && one[0].ends_with(" 0"), "{one:?}");
    assert!(counts("none").iter().all(|count| *count == one[0]));
}

#[test]
fn a_pe_that_does_not_read_does_not_hold_the_others_copies() {
    let reads = "[ $SHMEM_PE = 1 ] && exec <&-; wc -c";
    let script_ = format!("if [ $SHMEM_PE = 1 ]; then exec <&-; else {reads}; fi");
    let outcome = run_with_input(&mut script(3, &["--stdin", "all"], &script_), Some(noise(1_000_000)));
    assert_eq!(outcome.text().split_whitespace().collect::<Vec<_>>(), ["1000000", "1000000"]);
}

#[test]
fn input_that_is_not_read_stays_for_the_loop() {
    for options in ["", "--stdin none"] {
        let script = format!("while read x; do {SHMEMRUN} -n 2 {options} true; echo $x; done");
        let input = Some(b"a\nb\nc\n".to_vec());
        let outcome = run_with_input(Command::new("sh").args(["-c", &script]), input);
        assert_eq!(outcome.text(), "a\nb\nc\n");
    }
}

#[test]
fn an_answer_reaches_a_pe_before_the_end_of_input() {
    let mut command = script(2, &[], "[ $SHMEM_PE = 0 ] || exit 0; read x; echo got $x");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(b"42\n").unwrap();
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "got 42\n");
    drop(stdin);
    wait(&mut child, SOON);
}

/// Runs a shell command under a new terminal, as util-linux's `script` gives it.
fn on_a_terminal(command: &str) -> Command {
    let mut terminal = Command::new("script");
    terminal.args(["-qec", command, "/dev/null"]).env("SHELL", "/bin/sh");
    terminal
}

#[test]
fn a_prompt_and_its_answer_pass_at_once_on_a_terminal() {
    let asks = "[ $SHMEM_PE = 0 ] || exit 0; printf \"number? \"; read x; echo got $x; read y; echo then $y";
    let command = format!("{SHMEMRUN} -n 2 sh -c '{asks}'");
    let mut child = on_a_terminal(&command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut until = |text: &str| {
        while !seen.contains(text) {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "{seen:?}");
            seen.push(byte[0] as char);
        }
    };
    until("number? ");
    stdin.write_all(b"42\n").unwrap();
    until("got 42");
    stdin.write_all(b"43\n").unwrap();
    until("then 43");
    assert!(wait(&mut child, SOON).success());
}

#[test]
fn in_the_background_of_a_terminal_the_launcher_runs_quietly() {
    let command = format!("{SHMEMRUN} -n 2 echo ran & wait $!; echo status $?");
    let outcome = run(on_a_terminal(&format!("bash --norc -i -c '{command}'")).stdin(Stdio::null()));
    let text = outcome.text().replace('\r', "");
    assert!(text.contains("ran\nran\n") && text.contains("status 0") && !text.contains("topped"), "{text}");
}

#[test]
fn closed_standard_streams_are_no_obstacle() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let command = format!("exec {SHMEMRUN} -n 2 sh -c 'echo x; echo y >&2; cat' {closed}");
        let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
        assert_eq!(outcome.code, Some(0), "{closed}: {}", outcome.err);
    }
}

// ---- output ---------------------------------------------------------------------------------------------------------

#[test]
fn lines_stay_whole_whatever_the_writes() {
    let writes = "i=0; while [ $i -lt 200 ]; do printf 'PE %s ' $SHMEM_PE; printf 'line %s\\n' $i; i=$((i+1)); done";
    for options in [&["--tag"][..], &[]] {
        let outcome = run(&mut script(4, options, writes));
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in outcome.text().lines() {
            let line = if options.is_empty() { line } else { line.split_once("] ").unwrap().1 };
            let (pe, rest) = line.split_once(" line ").unwrap();
            seen.entry(pe.to_owned()).or_default().push(rest.to_owned());
        }
        assert_eq!(seen.len(), 4);
        let expected: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        assert!(seen.values().all(|lines| *lines == expected));
    }
}

#[test]
fn an_unfinished_line_waits_for_its_end_and_tagged_ones_get_one() {
    let outcome = run(&mut script(2, &["--tag"], "printf AB; sleep 0.3; printf 'CD\\nEF'"));
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[0] ABCD", "[0] EF", "[1] ABCD", "[1] EF"]);
    assert!(outcome.out.ends_with(b"\n"));
    let outcome = run(&mut script(2, &[], "printf AB; sleep 0.3; printf 'CD\\nEF'"));
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["ABCD", "ABCD", "EF", "EF"]);
    assert!(outcome.out.ends_with(b"EF") || outcome.out.ends_with(b"\n"));
}

#[test]
fn a_prompt_of_the_only_pe_does_not_wait() {
    let mut command = script(1, &[], "printf 'ready? '; read x; echo $x");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut prompt = [0; 7];
    out.read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"ready? ");
    stdin.write_all(b"yes\n").unwrap();
    assert!(wait(&mut child, SOON).success());
}

#[test]
fn long_lines_and_binary_bytes_pass_as_they_are() {
    let long = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end";
    let outcome = run(&mut script(3, &["--tag"], long));
    for pe in 0..3 {
        let lines = outcome.tagged(pe);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [1_000_000, 3]);
    }
    let bytes = noise(3_000_000);
    let file = scratch("binary").join("bytes");
    fs::write(&file, &bytes).unwrap();
    let prints = format!("[ $SHMEM_PE = 1 ] && cat {}; exit 0", file.display());
    assert!(run(&mut script(2, &[], &prints)).out == bytes);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn errors_of_all_pes_are_readable_and_the_first_is_named() {
    let fails = "i=0; while [ $i -lt 20 ]; do echo error $i of PE $SHMEM_PE >&2; i=$((i+1)); done; kill -ABRT $$";
    let outcome = run(&mut script(8, &["--tag"], fails));
    assert_eq!(outcome.code, Some(134));
    let (summary, messages): (Vec<&str>, Vec<&str>) =
        outcome.err.lines().partition(|line| line.starts_with("shmemrun"));
    assert_eq!(summary.len(), 1);
    assert!(summary[0].contains("was killed by signal 6 (SIGABRT)"));
    assert!(outcome.err.ends_with(&format!("{}\n", summary[0])));
    let first = summary[0].split_whitespace().nth(2).unwrap();
    assert!(outcome.err.contains(&format!("[{first}] error 19 of PE {first}\n")));
    for line in messages {
        let (pe, rest) = line.strip_prefix('[').unwrap().split_once("] error ").unwrap();
        assert!(rest.ends_with(&format!(" of PE {pe}")), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job_quietly() {
    let command = format!("{SHMEMRUN} -n 3 yes; echo status $? >&2");
    let outcome = run(Command::new("sh").args(["-c", &format!("{{ {command}; }} | head -n 2")]));
    assert_eq!((outcome.text().as_str(), outcome.err.as_str()), ("y\ny\n", "status 141\n"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = script(2, &[], "echo x; exec sleep 1000").stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let err = collect(child.stderr.take().unwrap());
    assert_eq!(wait(&mut child, SOON).code(), Some(1));
    let err = String::from_utf8(err.recv_timeout(SOON).unwrap()).unwrap();
    assert!(err.starts_with("shmemrun: standard output cannot be written") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_slow_reader_loses_nothing() {
    let command = format!("{SHMEMRUN} -n 2 sh -c 'seq 100000' | {{ sleep 0.5; cksum; }}");
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    let len: usize = 2 * (1..=100_000).map(|i: u32| i.to_string().len() + 1).sum::<usize>();
    assert_eq!(outcome.text().split_whitespace().nth(1).unwrap(), len.to_string());
}

// ---- environment ----------------------------------------------------------------------------------------------------

#[test]
fn the_environment_arrives_unchanged() {
    let long = "x".repeat(100_000);
    let values = [("T_NEWLINE", "a\nb\n"), ("T_EQUALS", "a=b=c"), ("T_EMPTY", ""), ("T_LONG", &long)];
    let mut command = shmemrun(&["-n", "1", "-x", "T_SET=v=w", "-x", "T_EQUALS", "-x", "T_UNSET", "env", "-0"]);
    command.env_clear().envs(values).env("PATH", std::env::var_os("PATH").unwrap());
    command.env("T_BYTES", std::ffi::OsString::from_vec(vec![0xff, 0xfe]));
    let outcome = run(&mut command);
    let seen: BTreeMap<&[u8], &[u8]> = outcome
        .out
        .split(|&byte| byte == 0)
        .filter(|variable| !variable.is_empty())
        .map(|variable| variable.split_at(variable.iter().position(|&byte| byte == b'=').unwrap()))
        .map(|(name, value)| (name, &value[1..]))
        .collect();
    for (name, value) in values {
        assert!(seen[name.as_bytes()] == value.as_bytes(), "{name}");
    }
    assert_eq!(seen[&b"T_BYTES"[..]], [0xff, 0xfe]);
    assert_eq!(seen[&b"T_SET"[..]], b"v=w");
    let added: Vec<_> = seen.keys().filter(|name| name.starts_with(b"SHMEM_")).collect();
    assert_eq!(added.len(), 4);
    assert_eq!(seen.len(), values.len() + 3 + 4);
}

#[test]
fn the_heap_option_is_the_setting() {
    let outcome = run(&mut script(2, &["--heap", "1.5G"], "echo $SHMEM_SYMMETRIC_SIZE"));
    assert_eq!(outcome.text(), "1.5G\n1.5G\n");
}

#[test]
fn arguments_arrive_untouched() {
    let args = ["-n", "1", "printf", "%s|", "-n", "--tag", "--", "", "a b", "--timeout=1", "*"];
    assert_eq!(run(&mut shmemrun(&args)).text(), "-n|--tag|--||a b|--timeout=1|*|");
    assert_eq!(run(&mut shmemrun(&["-n", "1", "--", "printf", "%s", "--tag"])).text(), "--tag");
}

#[test]
fn the_working_directory_is_the_launchers_or_the_chosen_one() {
    let dir = fs::canonicalize(scratch("wdir")).unwrap();
    let line = format!("{}\n", dir.display()).repeat(2);
    let outcome = run(shmemrun(&["-n", "2", "/bin/pwd"]).current_dir(&dir));
    assert_eq!(outcome.text(), line);
    let outcome = run(&mut shmemrun(&["-n", "2", "--wdir", dir.to_str().unwrap(), "/bin/pwd"]));
    assert_eq!(outcome.text(), line);
    let command = format!("cd {} && rmdir {0} && exec {SHMEMRUN} -n 2 echo here", dir.display());
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    assert_eq!((outcome.code, outcome.text().as_str()), (Some(0), "here\nhere\n"));
}

#[test]
fn no_descriptor_of_the_launcher_reaches_a_pe() {
    let lists = ["-c", "for f in /proc/$$/fd/*; do echo ${f##*/}; done"];
    let list = |command: &mut Command| {
        let outcome = run(command.stdin(Stdio::null()));
        let numbers: BTreeSet<String> = outcome.text().lines().map(str::to_owned).collect();
        assert!(numbers.contains("0"), "{}", outcome.text());
        numbers
    };
    let direct = list(Command::new("sh").args(lists));
    for n in ["1", "4"] {
        assert_eq!(list(shmemrun(&["-n", n, "sh"]).args(lists)), direct);
    }
}

#[test]
fn no_file_is_made_anywhere() {
    let names = || {
        let dirs = ["/dev/shm", "/tmp"].map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
        let names = dirs.into_iter().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("shmem")).collect::<BTreeSet<_>>()
    };
    let before = names();
    let job = Running::start(script(2, &[], WAITS), 4);
    for entry in fs::read_dir(format!("/proc/{}/fd", job.launcher.id())).unwrap() {
        // It may be closed by now.
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        assert!(!target.starts_with("/dev/shm") && !target.contains("shmem-"), "{target}");
    }
    assert_eq!(names(), before);
    job.signal(Signal::TERM);
    job.ended();
    assert_eq!(names(), before);
}

#[test]
fn each_pe_is_bound_to_one_core_that_the_launcher_may_use() {
    let masks = |options: &[&str]| {
        let outcome = run(&mut script(4, &[&["--tag"], options].concat(), "grep Cpus_allowed_list /proc/self/status"));
        [0, 1, 2, 3].map(|pe| outcome.tagged(pe).concat().split_whitespace().last().unwrap().to_owned())
    };
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    assert_eq!(masks(&[]), [0; 4].map(|_| own.clone()));
    let cores = thread::available_parallelism().unwrap().get().min(4);
    let bound = masks(&["--bind", "core"]);
    assert!(bound.iter().all(|mask| mask.parse::<usize>().is_ok()), "{bound:?}");
    let distinct: BTreeSet<_> = bound.iter().collect();
    assert!(distinct.len() >= cores.min(distinct.len().max(1)), "{bound:?}");
    assert_eq!(masks(&["--bind", "none"]), [0; 4].map(|_| own.clone()));
}

// ---- the rendezvous -------------------------------------------------------------------------------------------------

/// Not a test of its own: what a PE does when this binary is launched as the program.
#[test]
fn pe_of_a_job() {
    let Ok(task) = std::env::var("TEST_TASK") else { return };
    let setting = |name: &str| std::env::var(name).unwrap();
    let number = |name: &str| setting(name).parse().unwrap();
    let (me, n) = (number("SHMEM_PE"), number("SHMEM_N_PES"));
    if task == "pe 1 stays away" && me == 1 {
        std::process::exit(0);
    }
    let rounds = if task == "twice" { 2 } else { 1 };
    for _ in 0..rounds {
        let address = setting("SHMEM_RENDEZVOUS");
        let mut pe = Rendezvous::join(&address, &setting("SHMEM_JOB_KEY"), me, n, Some(BOUND)).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(7)
        });
        let own = format!("of PE {me}, {:?}", Instant::now());
        let mut file = fs::File::from(rustix::fs::memfd_create("pe", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.write_all(own.as_bytes()).unwrap();
        file.rewind().unwrap();
        let host: Vec<usize> = (0..n).collect();
        let handed = pe.hand_over(file.into(), &host).unwrap();
        let all = pe.allgather(own.as_bytes()).unwrap();
        assert_eq!(all[me], own.as_bytes());
        for (file, bytes) in handed.into_iter().zip(all) {
            let mut read = vec![0; bytes.len()];
            fs::File::from(file).read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, bytes);
        }
    }
    println!("joined");
}

fn job_of_this_binary(n: usize, task: &str, wrapper: &[&str]) -> Command {
    let (n, exe) = (n.to_string(), std::env::current_exe().unwrap());
    let mut command = shmemrun(&["-n", &n]);
    command.args(wrapper).arg(exe).args(["--exact", "pe_of_a_job", "--nocapture"]).env("TEST_TASK", task);
    command
}

fn joined(outcome: &Outcome) -> usize {
    outcome.text().lines().filter(|line| line.ends_with("joined")).count()
}

#[test]
fn pes_meet_under_the_launcher() {
    for n in [1, 2, 3, 5, 8, 16] {
        for task in ["once", "twice"] {
            let outcome = run(&mut job_of_this_binary(n, task, &[]));
            assert_eq!((outcome.code, joined(&outcome)), (Some(0), n), "{}", outcome.err);
        }
    }
}

#[test]
fn a_pe_that_ends_without_joining_is_named_to_the_others() {
    let outcome = run(&mut job_of_this_binary(3, "pe 1 stays away", &[]));
    assert_eq!(outcome.code, Some(7));
    assert!(outcome.err.contains("PE 1 is lost: it exited with status 0 without joining"), "{}", outcome.err);
}

#[test]
fn pes_with_equal_process_numbers_meet() {
    let wrapper = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let able = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").stderr(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no process namespaces here");
        return;
    }
    let outcome = run(&mut shmemrun(&["-n", "3"]).args(wrapper).args(["sh", "-c", "exit $((SHMEM_PE * 0 + 9))"]));
    assert_eq!(outcome.code, Some(9));
    let outcome = run(&mut job_of_this_binary(4, "equal numbers", &wrapper));
    assert_eq!((outcome.code, joined(&outcome)), (Some(0), 4), "{}{}", outcome.text(), outcome.err);
}
