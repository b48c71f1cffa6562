//! `shmemrun` as its users meet it: real processes, real signals, and afterwards nothing left of them.
//!
//! The programs launched are shell scripts, and this test binary itself where a PE has to join the job. "Left" is
//! decided by process numbers that the scripts print and by the launcher's own list of children, never by searching for
//! names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ends;
mod environment;
mod faults;
mod input;
mod meeting;
mod output;
mod reports;
mod status;

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
    command.args(args).env("SHMEM_FLIGHT_FILE", "off").stdin(Stdio::null());
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

/// Bytes of all kinds, the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}
