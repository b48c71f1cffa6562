//! The spawner behind `shmemrun`: starts the PEs of a job on this host, serves their rendezvous, passes their input and
//! output, and ends all of it together, however it ends.
//!
//! - `spawn`: one PE's command, environment and core;
//! - `family`: the processes of the job, from their start to the last orphan;
//! - `guard`: the process that ends the job when the launcher is killed;
//! - `output`, `input`: the streams of the PEs;
//! - `example`: builds an example by name.
//!
//! One thread supervises (a tokio runtime), one writes, one reads the terminal where that is needed; so nothing that a
//! reader of the output or a typist does can delay the end of the job.

mod example;
mod family;
mod guard;
mod input;
mod output;
mod spawn;

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::secret;
use super::serve::{Ended, Listener, serve};
use super::wire::Key;
use crate::error::{ErrorKind, Result};

pub use example::build as build_example;
pub use guard::{NAME as GUARD_NAME, run as run_guard};

use family::{Family, Status};
use input::Input;
use output::Output;
use spawn::Spawner;

/// Between asking the PEs to end and killing them.
const GRACE: Duration = Duration::from_millis(500);
/// Between the end of an orphan and its removal from the process table.
const SWEEP: Duration = Duration::from_millis(100);

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
/// (128 + signal for a PE that was killed), 124 after the time limit, 126 or 127 if the program cannot be run or found,
/// 128 + signal if the launcher was told to end, 1 for errors of the launcher. Whatever is not 0 is explained in one
/// line on stderr, except a signal to the launcher and a reader of the output that went away.
///
/// Blocks until no process of the job is left.
pub fn run(job: &Job) -> u8 {
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| ErrorKind::os("starting the launcher's runtime", e))
        .and_then(|runtime| runtime.block_on(supervise(job)));
    let (line, status) = match ended {
        Ok(end) => (end.as_ref().and_then(End::line), end.map_or(0, |end| end.status())),
        Err(e) => (Some(e.to_string()), 1),
    };
    if let Some(line) = line {
        say(line);
    }
    status
}

/// One line on the launcher's stderr, which may be closed.
pub fn say(line: impl fmt::Display) {
    let _ = std::io::stderr().write_all(format!("shmemrun: {line}\n").as_bytes());
}

/// Why a job that did not simply run to its end has ended.
enum End {
    Failed {
        pe: usize,
        status: Status,
        others_ended: bool,
    },
    NotStarted {
        why: String,
        status: u8,
    },
    TimeLimit(Duration),
    Signal(Signal),
    /// Nobody reads the output any more.
    Unread,
    Unwritten(std::io::Error),
}

impl End {
    fn status(&self) -> u8 {
        match self {
            End::Failed { status, .. } => status.code(),
            End::NotStarted { status, .. } => *status,
            End::TimeLimit(_) => 124,
            End::Signal(signal) => Status::Killed(signal.as_raw()).code(),
            End::Unread => Status::Killed(Signal::PIPE.as_raw()).code(),
            End::Unwritten(_) => 1,
        }
    }

    fn line(&self) -> Option<String> {
        match self {
            End::Failed { pe, status, others_ended } => {
                let others = if *others_ended { "; the other PEs were ended" } else { "" };
                Some(format!("PE {pe} {status}{others}"))
            }
            End::NotStarted { why, .. } => Some(why.clone()),
            End::TimeLimit(limit) => Some(format!("the job was ended after {limit:?} (--timeout)")),
            End::Unwritten(e) => Some(format!("standard output cannot be written: {e}; the PEs were ended")),
            End::Signal(_) | End::Unread => None,
        }
    }
}

async fn supervise(job: &Job) -> Result<Option<End>> {
    let mut signals = listen_to_signals()?;
    let mut orphaned =
        signal(SignalKind::child()).map_err(|e| ErrorKind::os("listening to the signals of children", e))?;
    spawn::make_room_for_descriptors(job.n_pes);
    let key = secret()?;
    let (address, listener) = open_rendezvous()?;
    let (ended, notes) = unbounded_channel();
    let secret_key = Key::new(&key).ok_or_else(|| ErrorKind::os("making a key", std::io::ErrorKind::InvalidInput))?;
    tokio::spawn(serve(listener, job.n_pes, secret_key, notes));

    let mut family = Family::new()?;
    let mut output = Output::start(job)?;
    let (mut input, mut end) = (Input::new(job), None);
    let mut spawner = Spawner::new(job, &address, &key);
    for pe in 0..job.n_pes {
        match spawner.spawn(pe, &mut input) {
            Ok(child) => {
                output.relay(pe, child.stdout, child.stderr)?;
                family.adopt(pe, child.pid)?;
            }
            Err((why, status)) => {
                end = Some(End::NotStarted { why, status });
                break;
            }
        }
        // Lets PEs that have started meet while the rest starts.
        tokio::task::yield_now().await;
    }
    drop(spawner);
    let terminal = input.start();

    let mut kill_at = None;
    if end.is_some() {
        family.signal(Signal::KILL);
    }
    let time_limit = job.timeout.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
    let mut sweep_at = None;
    while family.running() > 0 {
        let stop = tokio::select! {
            biased;
            Some((pe, status)) = family.next_exit() => {
                let _ = ended.send(Ended { pe, how: status.to_string() });
                let failed = status != Status::Exited(0) && end.is_none();
                let others_ended = family.running() > 0;
                failed.then_some((End::Failed { pe, status, others_ended }, Signal::TERM))
            }
            Some(signal) = signals.recv() => match signal {
                Signal::TSTP => {
                    family.signal(Signal::TSTP);
                    // Like any program that is told to stop; what it was meant to do on resuming follows with SIGCONT.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                    None
                }
                Signal::CONT => {
                    family.signal(Signal::CONT);
                    terminal.resumed();
                    None
                }
                Signal::USR1 | Signal::USR2 => {
                    family.signal(signal);
                    None
                }
                _ if end.is_some() => {
                    kill_at = Some(Instant::now());
                    None
                }
                Signal::INT | Signal::QUIT => Some((End::Signal(signal), signal)),
                _ => Some((End::Signal(signal), Signal::TERM)),
            },
            () = at(time_limit.map(|(_, at)| at)), if end.is_none() => {
                time_limit.map(|(limit, _)| (End::TimeLimit(limit), Signal::TERM))
            }
            e = output.failed(), if end.is_none() => Some(match e {
                e if e.kind() == std::io::ErrorKind::BrokenPipe => (End::Unread, Signal::TERM),
                e => (End::Unwritten(e), Signal::TERM),
            }),
            () = at(kill_at) => {
                kill_at = None;
                family.signal(Signal::KILL);
                None
            }
            () = at(sweep_at) => {
                sweep_at = None;
                family.reap_orphans();
                None
            }
            _ = orphaned.recv(), if sweep_at.is_none() => {
                sweep_at = Some(Instant::now() + SWEEP);
                None
            }
        };
        if let Some((reason, signal)) = stop {
            end = Some(reason);
            family.signal(signal);
            kill_at = Some(Instant::now() + GRACE);
        }
    }

    family.end().await;
    tokio::select! {
        () = output.finish() => {}
        // Whoever reads the output has stopped reading, and somebody wants the launcher to go.
        Some(signal) = signals.recv() => end = end.or(Some(End::Signal(signal))),
    }
    Ok(end)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
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
