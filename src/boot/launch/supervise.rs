//! The life of a job: everything that can happen to it, one thing after the other, and what follows.
//!
//! When a PE ends that is in a world, the others are told through the board first, and fail by themselves, with messages
//! of their own. Only then are those that are left ended. What ends may be a wrapper of the PE, long after the PE: when
//! a PE's connection to the rendezvous closes, the launcher also looks whether its process is still there. With a PE
//! that ends with status 0 without ending its world, the others are given a moment: it may have left its last barrier
//! while they are still on their way out of it, and would fail there for nothing.

mod account;

use std::time::Duration;

use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::boards::Boards;
use super::family::{Family, Status};
use super::input::{Input, Terminal};
use super::output::Output;
use super::shortage::Shortage;
use super::spawn::{self, Spawner};
use super::status::{self, Desk};
use super::verdict::{self, End};
use super::{Job, OnFailure, listen_to_signals, open_rendezvous, own};
use crate::boot::hub::Report;
use crate::boot::secret;
use crate::boot::serve::{Ended, Welcome, serve};
use crate::boot::wire::Key;
use crate::error::{ErrorKind, Result};
use crate::watch::{How, Loss};

/// Between a failure and the request to end: PEs learn of the failure themselves and say so.
const NOTICE: Duration = Duration::from_millis(100);
/// Between asking the PEs to end and killing them.
const GRACE: Duration = Duration::from_millis(500);
/// Between the end of an orphan and its removal from the process table.
const SWEEP: Duration = Duration::from_millis(100);
/// What the others have for leaving a barrier which a PE that ended was the first to leave.
const LEAVE: Duration = Duration::from_millis(20);
/// The most that they have if they are seen to be in it still, and how often that is looked at.
const LEAVE_MOST: Duration = Duration::from_secs(1);
const LEAVE_LOOK: Duration = Duration::from_millis(5);
/// How long a picture of what the PEs do is one of the moment.
const FRESH: Duration = Duration::from_secs(1);

/// How the job ended, for whoever started it.
pub(super) struct Outcome {
    pub(super) text: Option<String>,
    pub(super) status: u8,
}

/// What can happen.
enum News {
    Exit(usize, Status),
    Signal(Signal),
    /// It is time to declare the losses of PEs that left.
    Leave,
    TimeLimit(Duration),
    Unwritable(std::io::Error),
    /// It is time to ask the PEs to end.
    Ask,
    /// It is time to kill them.
    Kill,
    Orphan,
    Sweep,
    /// A board was shown.
    Shown,
    /// At the rendezvous.
    Meeting(Report),
    /// It is time to see whether the processes of PEs that have left the rendezvous are still there.
    Look,
    Visitor(UnixStream),
}

/// A PE that ended without ending its world, for all that is known without having failed.
struct Leaver {
    pe: usize,
    how: How,
    ended: Instant,
    /// When to see whether this is a loss.
    due: Instant,
}

/// A job and what is known of it.
struct Supervisor<'j> {
    job: &'j Job,
    since: Instant,
    family: Family,
    output: Output,
    terminal: Terminal,
    boards: Boards,
    shortage: Shortage,
    rendezvous: UnboundedSender<Ended>,
    /// Why the launcher ends the job, once it does.
    end: Option<End>,
    /// Whether the PEs were told to end.
    told: bool,
    /// Whether a failure was the end of PEs that had not failed.
    others_ended: bool,
    /// How PEs ended that were not told to.
    exits: Vec<Option<Status>>,
    /// The first of them with another status than 0.
    first: Option<(usize, Status)>,
    first_at: Instant,
    /// Whom each PE was told to be lost, at the rendezvous.
    blamed: Vec<Option<usize>>,
    /// What the PEs did at the time of the first failure, or of the last loss that may lead to one.
    picture: Option<(Instant, String)>,
    /// PEs that may come to count as losses.
    leavers: Vec<Leaver>,
    look_at: Option<Instant>,
    ask_at: Option<Instant>,
    kill_at: Option<Instant>,
    sweep_at: Option<Instant>,
}

/// Runs a job to its end.
pub(super) async fn supervise(job: &Job) -> Result<Outcome> {
    let mut signals = listen_to_signals()?;
    let mut orphaned =
        signal(SignalKind::child()).map_err(|e| ErrorKind::os("listening to the signals of children", e))?;
    spawn::make_room_for_descriptors(job.n_pes);
    let (reporting, mut reports) = unbounded_channel();
    let mut supervisor = Supervisor::start(job, reporting).await?;
    let desk = Desk::open();
    let time_limit = job.timeout.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
    while supervisor.family.running() > 0 {
        let leave_at = supervisor.leavers.iter().map(|leaver| leaver.due).min();
        let Supervisor { look_at, ask_at, kill_at, sweep_at, .. } = supervisor;
        let Supervisor { family, output, boards, end, .. } = &mut supervisor;
        let news = tokio::select! {
            biased;
            Some((pe, status)) = family.next_exit() => News::Exit(pe, status),
            Some(signal) = signals.recv() => News::Signal(signal),
            () = at(leave_at) => News::Leave,
            () = at(look_at) => News::Look,
            Some(limit) = passed(time_limit), if end.is_none() => News::TimeLimit(limit),
            e = output.failed(), if end.is_none() => News::Unwritable(e),
            () = at(ask_at) => News::Ask,
            () = at(kill_at) => News::Kill,
            () = at(sweep_at) => News::Sweep,
            _ = orphaned.recv(), if sweep_at.is_none() => News::Orphan,
            () = boards.shown() => News::Shown,
            Some(report) = reports.recv() => News::Meeting(report),
            visitor = desk.visitor() => News::Visitor(visitor),
        };
        supervisor.hear(news);
    }
    drop(desk);
    Ok(supervisor.finish(&mut signals).await)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn passed(limit: Option<(Duration, Instant)>) -> Option<Duration> {
    at(limit.map(|(_, at)| at)).await;
    limit.map(|(limit, _)| limit)
}

/// The next signal that is a request to end.
async fn request_to_end(signals: &mut UnboundedReceiver<Signal>) -> Signal {
    loop {
        match signals.recv().await {
            Some(Signal::TSTP | Signal::CONT | Signal::USR1 | Signal::USR2) => {}
            Some(signal) => return signal,
            None => std::future::pending().await,
        }
    }
}

impl<'j> Supervisor<'j> {
    /// Starts the PEs, and all that serves them.
    async fn start(job: &'j Job, reports: UnboundedSender<Report>) -> Result<Self> {
        let key = secret()?;
        let (address, listener) = open_rendezvous()?;
        let (rendezvous, notes) = unbounded_channel();
        let secret_key =
            Key::new(&key).ok_or_else(|| ErrorKind::os("making a key", std::io::ErrorKind::InvalidInput))?;
        let boards = Boards::open(job.n_pes)?;
        let welcome = Welcome { invitation: boards.invitation(), reports: Some(reports) };
        tokio::spawn(serve(listener, job.n_pes, secret_key, welcome, notes));

        let shortage = Shortage::new();
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
        let told = end.is_some();
        if told {
            family.signal(Signal::KILL);
        }
        let terminal = input.start();
        let (exits, blamed, leavers) = (vec![None; job.n_pes], vec![None; job.n_pes], Vec::new());
        let (since, others_ended, first, picture) = (Instant::now(), false, None, None);
        let (look_at, ask_at, kill_at, sweep_at) = (None, None, None, None);
        Ok(Supervisor {
            job,
            since,
            family,
            output,
            terminal,
            boards,
            shortage,
            rendezvous,
            end,
            told,
            others_ended,
            exits,
            first,
            first_at: since,
            blamed,
            picture,
            leavers,
            look_at,
            ask_at,
            kill_at,
            sweep_at,
        })
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Exit(pe, status) => self.exited(pe, status),
            News::Signal(signal) => self.signalled(signal),
            News::Leave => self.declare_leavers(),
            News::TimeLimit(limit) => {
                self.say_status();
                self.end(End::TimeLimit(limit), Signal::TERM);
            }
            News::Unwritable(e) if e.kind() == std::io::ErrorKind::BrokenPipe => self.end(End::Unread, Signal::TERM),
            News::Unwritable(e) => self.end(End::Unwritten(e), Signal::TERM),
            News::Ask => {
                self.others_ended = self.family.running() > 0;
                self.tell(Signal::TERM);
            }
            News::Kill => {
                self.kill_at = None;
                self.family.signal(Signal::KILL);
            }
            News::Orphan => self.sweep_at = Some(Instant::now() + SWEEP),
            News::Sweep => {
                self.sweep_at = None;
                self.family.reap_orphans();
            }
            News::Shown => self.boards.collect(),
            News::Meeting(Report::Told { pe, lost }) => self.blamed[pe] = Some(lost),
            News::Meeting(Report::Left { .. }) => {
                self.boards.forget();
                self.look_at = Some(Instant::now() + LEAVE);
                self.grant_wish();
            }
            News::Look => {
                self.look_at = None;
                self.find_vanished();
            }
            News::Visitor(visitor) => status::answer(visitor, self.status()),
        }
    }

    fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::TSTP => {
                self.family.signal(Signal::TSTP);
                // Like any program that is told to stop; what it was meant to do on resuming follows with SIGCONT.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
            Signal::CONT => {
                self.family.signal(Signal::CONT);
                self.terminal.resumed();
            }
            Signal::USR1 => self.say_status(),
            Signal::USR2 => self.family.signal(signal),
            _ if self.end.is_some() => {
                self.told = true;
                self.kill_at = Some(Instant::now());
            }
            Signal::INT | Signal::QUIT => self.end(End::Signal(signal), signal),
            _ => self.end(End::Signal(signal), Signal::TERM),
        }
    }

    /// Ends the job.
    fn end(&mut self, why: End, signal: Signal) {
        self.end = Some(why);
        self.tell(signal);
    }

    /// Asks the PEs to end. What they do from now on is no failure.
    fn tell(&mut self, signal: Signal) {
        (self.told, self.ask_at) = (true, None);
        self.family.signal(signal);
        self.kill_at = Some(Instant::now() + GRACE);
    }

    fn exited(&mut self, pe: usize, status: Status) {
        // All that it has shown before it ended.
        self.boards.collect();
        // The launcher ends with its job.
        let _ = self.rendezvous.send(Ended { pe, how: status.to_string() });
        if self.told {
            return;
        }
        self.exits[pe] = Some(status);
        if status == Status::Exited(0) {
            if self.boards.is_member(pe) {
                let ended = Instant::now();
                self.leavers.push(Leaver { pe, how: How::Exited(0), ended, due: ended + LEAVE });
            }
        } else {
            if self.first.is_none() && self.picture.as_ref().is_none_or(|(taken, _)| taken.elapsed() > FRESH) {
                self.look(pe);
            }
            let how = match status {
                _ if self.shortage.explains(status) => How::OutOfMemory,
                Status::Exited(status) => How::Exited(status as u8),
                Status::Killed(signal) => How::Killed(signal as u8),
            };
            self.boards.declare(Loss { pe, how });
        }
        self.decide(pe, status);
    }

    /// What follows from an exit.
    fn decide(&mut self, pe: usize, status: Status) {
        if self.grant_wish() {
            return;
        }
        if status != Status::Exited(0) {
            if self.is_first(pe) {
                (self.first, self.first_at) = (Some((pe, status)), Instant::now());
            }
            match self.job.on_failure {
                OnFailure::End if self.end.is_none() => {
                    self.end = Some(End::Failed);
                    self.ask_at = Some(Instant::now() + NOTICE);
                }
                OnFailure::End => {}
                OnFailure::Continue => {
                    let line = format!("PE {pe} {status}; the others go on (--on-failure continue)");
                    self.output.say(own(line));
                    self.write_flight_file(&self.failure_text().unwrap_or_default());
                }
            }
        }
        if self.boards.losses().iter().any(|loss| matches!(loss.how, How::EndedJob(_))) {
            self.end(End::Failed, Signal::TERM);
        }
    }

    /// Whether a PE that has failed is the first. In start-up, PEs notice that one has gone by its connections, which the
    /// system closes before the launcher can see how it ended; so they may have been faster.
    fn is_first(&self, pe: usize) -> bool {
        match self.first {
            None => true,
            Some((faster, _)) => self.blamed[faster] == Some(pe) && self.first_at.elapsed() < NOTICE,
        }
    }

    /// Ends the job if a PE wishes it.
    fn grant_wish(&mut self) -> bool {
        let wish = verdict::wish(&self.boards.losses()).filter(|_| !self.told);
        if let Some(status) = wish {
            self.end(End::Wished(status), Signal::TERM);
        }
        wish.is_some()
    }

    /// Finds PEs whose processes have ended while a wrapper that started them goes on. Of the launcher's own children it
    /// will learn more.
    fn find_vanished(&mut self) {
        let now = Instant::now();
        for (pe, process) in self.boards.vanished() {
            let child = self.family.pes().get(pe).is_some_and(|child| child.as_raw_pid() as u64 == process);
            if !child && self.exits[pe].is_none() && self.leavers.iter().all(|leaver| leaver.pe != pe) {
                self.leavers.push(Leaver { pe, how: How::Ended, ended: now, due: now });
            }
        }
    }

    fn declare_leavers(&mut self) {
        let now = Instant::now();
        for mut leaver in std::mem::take(&mut self.leavers) {
            let ended = |pe: usize| self.exits[pe].is_some();
            if leaver.due > now {
                self.leavers.push(leaver);
            } else if now - leaver.ended < LEAVE_MOST && self.boards.lag_behind(leaver.pe, ended) {
                leaver.due = now + LEAVE_LOOK;
                self.leavers.push(leaver);
            } else {
                if self.first.is_none() {
                    self.look(leaver.pe);
                }
                self.boards.declare(Loss { pe: leaver.pe, how: leaver.how });
            }
        }
    }

    /// Takes a picture of what the PEs do, before they learn that this one is lost.
    fn look(&mut self, pe: usize) {
        self.picture = Some((Instant::now(), self.boards.around(pe)));
    }

    fn say_status(&mut self) {
        let text = self.status();
        self.output.say(own(text.trim_end()));
    }

    /// All PEs have exited.
    async fn finish(mut self, signals: &mut UnboundedReceiver<Signal>) -> Outcome {
        self.family.end().await;
        tokio::select! {
            () = self.output.finish() => {}
            // Whoever reads the output has stopped reading, and somebody wants the launcher to go.
            signal = request_to_end(signals) => self.end = self.end.take().or(Some(End::Signal(signal))),
        }
        if let Some(End::Wished(status)) = self.end {
            return Outcome { text: None, status };
        }
        let mut lines = Vec::new();
        if let Some(report) = self.failure_text() {
            let written = self.write_flight_file(&report);
            lines.push(report);
            lines.extend(written.map(|line| format!("  {line}")));
        }
        lines.extend(self.end.as_ref().and_then(End::line));
        let failed = self.first.map(|first| verdict::cause(first, &self.boards.losses(), &self.exits).1);
        let status = self.end.as_ref().and_then(End::status).or(failed).unwrap_or(0);
        Outcome { text: (!lines.is_empty()).then(|| lines.join("\n")), status }
    }
}
