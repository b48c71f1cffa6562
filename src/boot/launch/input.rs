//! What the PEs read.
//!
//! A file or pipe is simply given to the PE that is to read it: any length, no copies, and what the PE does not read
//! stays for whoever comes next, as in a shell's `while read` loop. Two cases need a pump, a thread that copies:
//!
//! - a terminal, since the PEs are no foreground group and would be stopped when they read it. The pump fetches a line
//!   when the PE has read all before it, so at most one line is taken that the PE never reads;
//! - copies for all PEs. The slowest one sets the pace; one that has closed its input no longer counts.
//!
//! In the background of a shell the pump leaves the terminal alone until the job comes to the foreground.

use std::io::{IsTerminal, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{Job, Stdin, say};

/// Bytes copied at a time.
const CHUNK: usize = 64 << 10;
/// One page: such a pipe takes the next write only when it is empty.
const LINE_PIPE: usize = 4096;

/// What a PE's standard input is to be.
pub(super) enum Source {
    /// The launcher's own.
    Own,
    /// `/dev/null`.
    Nothing,
    /// What the pump writes.
    Pipe(PipeReader),
}

pub(super) struct Input {
    stdin: Stdin,
    terminal: bool,
    pumped: Vec<PipeWriter>,
}

/// Tells the pump that the launcher was continued, perhaps in the foreground.
pub(super) struct Terminal(Option<Sender<()>>);

impl Terminal {
    pub(super) fn resumed(&self) {
        if let Some(pump) = &self.0 {
            // The pump may have come to its end.
            let _ = pump.send(());
        }
    }
}

impl Input {
    pub(super) fn new(job: &Job) -> Input {
        let stdin = if job.n_pes == 1 && job.stdin == Stdin::All { Stdin::Pe(0) } else { job.stdin };
        Input { stdin, terminal: stdin != Stdin::None && std::io::stdin().is_terminal(), pumped: Vec::new() }
    }

    /// What PE `pe` is to read.
    pub(super) fn source(&mut self, pe: usize) -> std::io::Result<Source> {
        match self.stdin {
            Stdin::Pe(reader) if reader != pe => return Ok(Source::Nothing),
            Stdin::None => return Ok(Source::Nothing),
            Stdin::Pe(_) if !self.terminal => return Ok(Source::Own),
            Stdin::Pe(_) | Stdin::All => {}
        }
        let (reader, writer) = std::io::pipe()?;
        if self.terminal {
            // Without it, more lines are taken in advance.
            let _ = rustix::pipe::fcntl_setpipe_size(&writer, LINE_PIPE);
        }
        self.pumped.push(writer);
        Ok(Source::Pipe(reader))
    }

    /// Starts the pump if there is something to pump.
    pub(super) fn start(self) -> Terminal {
        if self.pumped.is_empty() {
            return Terminal(None);
        }
        let (resumed, resumes) = channel();
        let pump = Pump { to: self.pumped, resumes, terminal: self.terminal };
        match std::thread::Builder::new().name("shmemrun-input".into()).spawn(|| pump.run()) {
            Ok(_) => Terminal(Some(resumed)),
            Err(e) => {
                say(format_args!("standard input cannot be passed on: {e}"));
                Terminal(None)
            }
        }
    }
}

struct Pump {
    to: Vec<PipeWriter>,
    resumes: Receiver<()>,
    terminal: bool,
}

impl Pump {
    fn run(mut self) {
        let stdin = std::io::stdin();
        let mut chunk = vec![0; if self.terminal { LINE_PIPE } else { CHUNK }];
        loop {
            self.await_room();
            if self.to.is_empty() {
                return;
            }
            if !self.await_input(stdin.as_fd()) {
                continue;
            }
            match rustix::io::read(&stdin, &mut chunk) {
                Ok(0) => return,
                Ok(len) => self.to.retain_mut(|pipe| pipe.write_all(&chunk[..len]).is_ok()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }

    /// Waits until every pipe takes a write, and forgets those that nobody reads any more.
    fn await_room(&mut self) {
        self.to.retain(|pipe| {
            let mut waiting = [PollFd::new(pipe, PollFlags::OUT)];
            while poll(&mut waiting, None) == Err(Errno::INTR) {}
            !waiting[0].revents().contains(PollFlags::ERR)
        });
    }

    /// Waits for input that the launcher may take; false if the pipes need a look first.
    fn await_input(&self, stdin: BorrowedFd<'_>) -> bool {
        let mut waiting: Vec<PollFd<'_>> = self.to.iter().map(|pipe| PollFd::new(pipe, PollFlags::empty())).collect();
        waiting.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        if poll(&mut waiting, None).is_err() {
            return false;
        }
        let (stdin_ready, pipes) = match waiting.split_last() {
            Some((stdin, pipes)) => (!stdin.revents().is_empty(), pipes),
            None => return false,
        };
        if pipes.iter().any(|pipe| !pipe.revents().is_empty()) || !stdin_ready {
            return false;
        }
        if self.terminal && in_background(stdin) {
            // A shell continues a job that it brings to the foreground.
            let _ = self.resumes.recv();
            return false;
        }
        true
    }
}

/// Whether reading this terminal would stop the launcher.
fn in_background(terminal: BorrowedFd<'_>) -> bool {
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}
