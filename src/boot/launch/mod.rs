//! The spawner behind `shmemrun`: starts the PEs of a job on this host, serves their rendezvous, passes their input and
//! output, and ends all of it together, however it ends.
//!
//! - `spawn`: one PE's command, environment and core;
//! - `supervise`: the life of a job: everything that can happen to it, and what follows;
//! - `family`: the processes of the job, from their start to the last orphan;
//! - `boards`: what PEs that use the library say of themselves, and where they are told of losses;
//! - `verdict`: who failed first, and the exit status;
//! - `shortage`: whether the kernel killed a PE because memory was short;
//! - `status`: asking a running job what its PEs do;
//! - `guard`: the process that ends the job when the launcher is killed;
//! - `output`, `input`: the streams of the PEs;
//! - `example`: builds an example by name.
//!
//! One thread supervises (a tokio runtime), one writes, one reads the terminal where that is needed; so nothing that a
//! reader of the output or a typist does can delay the end of the job.

mod boards;
mod example;
mod family;
mod guard;
mod input;
mod output;
mod shortage;
mod spawn;
mod status;
mod supervise;
mod verdict;

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::secret;
use super::serve::Listener;
use crate::error::{ErrorKind, Result};

pub use example::build as build_example;
pub(crate) use spawn::descriptors;

pub use guard::{NAME as GUARD_NAME, run as run_guard};
pub use status::status;

use supervise::{Outcome, supervise};

/// What to run.
pub struct Job {
    /// Number of PEs, at least 1.
    pub n_pes: usize,
    /// A path, or a name to look for in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables for the PEs on top of the launcher's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where the PEs may run.
    pub bind: Bind,
    /// Whether each line of output begins with its PE.
    pub tag: bool,
    /// How long the job may take.
    pub timeout: Option<Duration>,
    /// Who gets the launcher's standard input.
    pub stdin: Stdin,
    /// What becomes of the others when a PE has failed.
    pub on_failure: OnFailure,
    /// Where the flight recorders of the PEs are written when one is lost; `None` for nowhere.
    pub flight_file: Option<PathBuf>,
}

/// What becomes of the others when a PE has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are ended, after a moment in which they can say what they have to.
    End,
    /// They go on.
    Continue,
}

/// Where the PEs may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Wherever the launcher may.
    None,
    /// PE i on one core, the i-th of those that the launcher may use, modulo their number.
    Core,
}

/// Who gets the launcher's standard input; the other PEs read `/dev/null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nobody: the launcher leaves it alone.
    None,
    /// Every PE a copy, at the pace of the slowest.
    All,
    /// One PE.
    Pe(usize),
}

/// Runs the job and returns the launcher's exit status: 0 if all PEs returned 0, else that of the PE which failed first
/// (128 + signal for a PE that was killed), that which a PE gave with [`World::global_exit`], 124 after the time limit,
/// 126 or 127 if the program cannot be run or found, 128 + signal if the launcher was told to end, 1 for errors of the
/// launcher. Whatever is not 0 is explained on stderr, except what a PE wished, a signal to the launcher and a reader of
/// the output that went away.
///
/// Blocks until no process of the job is left.
///
/// [`World::global_exit`]: crate::World::global_exit
pub fn run(job: &Job) -> u8 {
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| ErrorKind::os("starting the launcher's runtime", e))
        .and_then(|runtime| runtime.block_on(supervise(job)));
    let Outcome { text, status } = ended.unwrap_or_else(|e| Outcome { text: Some(e.to_string()), status: 1 });
    if let Some(text) = text {
        say(text);
    }
    status
}

/// A line, or several, on the launcher's stderr, which may be closed.
pub fn say(line: impl fmt::Display) {
    let _ = std::io::stderr().write_all(own(line).as_bytes());
}

/// Text as the launcher's own.
fn own(text: impl fmt::Display) -> String {
    format!("shmemrun: {text}\n")
}

fn open_rendezvous() -> Result<(String, Listener)> {
    let name = format!("shmem-{}", secret()?);
    let listener = SocketAddr::from_abstract_name(&name)
        .and_then(|address| UnixListener::bind_addr(&address))
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        })
        .map_err(|e| ErrorKind::os("opening the rendezvous", e))?;
    Ok((format!("unix:@{name}"), Listener::Unix(listener)))
}

/// The signals that the launcher acts upon. SIGHUP stays ignored under `nohup`; SIGINT is heard even where a shell
/// started the launcher in the background with SIGINT ignored, since a script that sends it means it.
fn listen_to_signals() -> Result<UnboundedReceiver<Signal>> {
    let mut heard =
        vec![Signal::INT, Signal::TERM, Signal::QUIT, Signal::TSTP, Signal::CONT, Signal::USR1, Signal::USR2];
    if !is_ignored(Signal::HUP) {
        heard.push(Signal::HUP);
    }
    let (sender, receiver) = unbounded_channel();
    for number in heard {
        let mut stream = signal(SignalKind::from_raw(number.as_raw()))
            .map_err(|e| ErrorKind::os(format!("listening to signal {}", number.as_raw()), e))?;
        let sender = sender.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(number).is_ok() {} });
    }
    Ok(receiver)
}

/// Whether the launcher was started with this signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}
