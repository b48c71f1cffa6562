//! What the PEs write: whole lines, each in one piece, in the order in which they came.
//!
//! A task for each stream holds an unfinished line back; one thread writes, so that a slow reader of the output holds
//! the PEs that write, and nothing else. An unfinished line is passed on early only where somebody may have to answer
//! it and no other line can be torn by it, see [`Prompts`]; at its end; or once it is too long to hold. If another PE
//! writes next, it begins on a line of its own.

use std::io::{ErrorKind as Io, IsTerminal, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Job, Stdin};
use crate::error::{ErrorKind, Result};

/// Bytes read at a time: what a pipe holds.
const CHUNK: usize = 64 << 10;
/// The longest line that is held until it is whole.
const LONGEST_LINE: usize = 8 << 20;
/// Pieces on their way to the writer.
const QUEUE: usize = 32;
/// How long a line must rest unfinished to count as a prompt.
const PROMPT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

struct Piece {
    pe: usize,
    stream: Stream,
    bytes: Vec<u8>,
}

/// The output of a job.
pub(super) struct Output {
    tag: bool,
    prompts: Prompts,
    sink: Option<mpsc::Sender<Piece>>,
    relays: JoinSet<()>,
    /// Set when no process of the job is left: what the pipes hold now is all.
    over: watch::Sender<bool>,
    failed: oneshot::Receiver<std::io::Error>,
    written: oneshot::Receiver<()>,
}

/// Which unfinished lines may be passed on early: without tags, those of the only PE, or those that the PE which gets
/// the terminal's input writes to a terminal, while no other line is unfinished.
#[derive(Clone)]
struct Prompts {
    from: Option<usize>,
    streams: [bool; 2],
    unfinished: Arc<AtomicUsize>,
}

impl Prompts {
    fn new(job: &Job) -> Prompts {
        let (from, streams) = match job.stdin {
            _ if job.tag => (None, [false; 2]),
            _ if job.n_pes == 1 => (Some(0), [true; 2]),
            Stdin::Pe(pe) if std::io::stdin().is_terminal() => {
                (Some(pe), [std::io::stdout().is_terminal(), std::io::stderr().is_terminal()])
            }
            _ => (None, [false; 2]),
        };
        Prompts { from, streams, unfinished: Arc::default() }
    }

    fn may_come_from(&self, pe: usize, stream: Stream) -> bool {
        self.from == Some(pe) && self.streams[stream as usize]
    }
}

impl Output {
    pub(super) fn start(job: &Job) -> Result<Output> {
        let (sink, pieces) = mpsc::channel(QUEUE);
        let (failing, failed) = oneshot::channel();
        let (finishing, written) = oneshot::channel();
        let writing = move || {
            write(pieces, failing);
            let _ = finishing.send(());
        };
        let thread = std::thread::Builder::new().name("shmemrun-output".into()).spawn(writing);
        thread.map_err(|e| ErrorKind::os("starting the launcher's writer", e))?;
        let (over, _) = watch::channel(false);
        let (tag, prompts) = (job.tag, Prompts::new(job));
        Ok(Output { tag, prompts, sink: Some(sink), relays: JoinSet::new(), over, failed, written })
    }

    /// Passes on what PE `pe` writes.
    pub(super) fn relay(&mut self, pe: usize, stdout: PipeReader, stderr: PipeReader) -> Result<()> {
        let Some(sink) = &self.sink else { return Ok(()) };
        for (stream, pipe) in [(Stream::Out, stdout), (Stream::Err, stderr)] {
            let source = Receiver::from_owned_fd(OwnedFd::from(pipe))
                .map_err(|e| ErrorKind::os("reading the output of a PE", e))?;
            let lines = Lines::new(self.tag.then(|| format!("[{pe}] ")));
            let prompts = self.prompts.clone();
            let may_prompt = prompts.may_come_from(pe, stream);
            let relay = Relay { pe, source, lines, stream, sink: sink.clone(), prompts, may_prompt, counted: false };
            self.relays.spawn(relay.run(self.over.subscribe()));
        }
        Ok(())
    }

    /// Puts a text of the launcher's own between the lines of the PEs, on standard error; does not wait for its reader.
    pub(super) fn say(&self, text: String) {
        let Some(sink) = self.sink.clone() else { return };
        tokio::spawn(async move {
            let _ = sink.send(Piece { pe: usize::MAX, stream: Stream::Err, bytes: text.into_bytes() }).await;
        });
    }

    /// Why standard output can no longer be written; pending as long as it can.
    pub(super) async fn failed(&mut self) -> std::io::Error {
        match (&mut self.failed).await {
            Ok(e) => e,
            // The writer has finished without.
            Err(_) => std::future::pending().await,
        }
    }

    /// Passes on the rest and returns when all is written. No process of the job is left.
    pub(super) async fn finish(&mut self) {
        let _ = self.over.send(true);
        while self.relays.join_next().await.is_some() {}
        self.sink = None;
        let _ = (&mut self.written).await;
    }
}

/// One stream of one PE.
struct Relay {
    pe: usize,
    source: Receiver,
    lines: Lines,
    stream: Stream,
    sink: mpsc::Sender<Piece>,
    prompts: Prompts,
    may_prompt: bool,
    /// Whether this stream is counted in `prompts.unfinished`.
    counted: bool,
}

impl Relay {
    async fn run(mut self, mut over: watch::Receiver<bool>) {
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            chunk.clear();
            tokio::select! {
                biased;
                read = self.source.read_buf(&mut chunk) => {
                    if !matches!(read, Ok(1..)) {
                        break;
                    }
                    self.pass(&chunk).await;
                }
                _ = over.changed() => {
                    // Not through the runtime, which learns of new bytes only now and then.
                    let mut rest = vec![0; CHUNK];
                    while let Ok(len @ 1..) = rustix::io::read(&self.source, &mut rest) {
                        self.pass(&rest[..len]).await;
                    }
                    break;
                }
                () = sleep(PROMPT), if self.may_prompt && self.lines.is_unfinished() => {
                    if self.prompts.unfinished.load(Ordering::Relaxed) == 1 {
                        let bytes = self.lines.take_unfinished();
                        self.send(bytes).await;
                    }
                }
            }
        }
        let rest = self.lines.finish();
        self.send(rest).await;
    }

    async fn pass(&mut self, bytes: &[u8]) {
        let whole = self.lines.push(bytes);
        self.send(whole).await;
    }

    async fn send(&mut self, bytes: Vec<u8>) {
        if self.lines.is_unfinished() != self.counted {
            self.counted = !self.counted;
            let count = &self.prompts.unfinished;
            let _ = if self.counted {
                count.fetch_add(1, Ordering::Relaxed)
            } else {
                count.fetch_sub(1, Ordering::Relaxed)
            };
        }
        if !bytes.is_empty() {
            // The writer only goes when all senders have.
            let _ = self.sink.send(Piece { pe: self.pe, stream: self.stream, bytes }).await;
        }
    }
}

/// Cuts a stream into whole lines and puts the tag in front of each.
struct Lines {
    tag: Option<String>,
    held: Vec<u8>,
    at_start: bool,
}

impl Lines {
    fn new(tag: Option<String>) -> Lines {
        Lines { tag, held: Vec::new(), at_start: true }
    }

    fn is_unfinished(&self) -> bool {
        !self.held.is_empty()
    }

    /// What can be passed on now that `bytes` have come.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let (whole, rest) = bytes.split_at(whole);
        let mut passed = Vec::new();
        if !whole.is_empty() {
            self.held.extend_from_slice(whole);
            passed = self.take_unfinished();
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > LONGEST_LINE {
            passed.append(&mut self.take_unfinished());
        }
        passed
    }

    /// What is held, tagged, whether it ends a line or not.
    fn take_unfinished(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let Some(tag) = &self.tag else { return held };
        let mut tagged = Vec::with_capacity(held.len() + held.len() / 8 + tag.len());
        for line in held.split_inclusive(|&byte| byte == b'\n') {
            if self.at_start {
                tagged.extend_from_slice(tag.as_bytes());
            }
            tagged.extend_from_slice(line);
            self.at_start = line.ends_with(b"\n");
        }
        tagged
    }

    /// The rest at the end; tagged lines all end.
    fn finish(&mut self) -> Vec<u8> {
        let mut rest = self.take_unfinished();
        if self.tag.is_some() && !self.at_start {
            rest.push(b'\n');
        }
        rest
    }
}

/// Writes until all senders are gone; reports the first error of standard output. What cannot be written is dropped.
fn write(mut pieces: mpsc::Receiver<Piece>, failing: oneshot::Sender<std::io::Error>) {
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let (mut failing, mut broken, mut unfinished) = (Some(failing), [false; 2], [None; 2]);
    while let Some(Piece { pe, stream, mut bytes }) = pieces.blocking_recv() {
        let (to, index) = if stream == Stream::Out { (stdout.as_fd(), 0) } else { (stderr.as_fd(), 1) };
        if broken[index] {
            continue;
        }
        if unfinished[index].is_some_and(|other| other != pe) {
            bytes.insert(0, b'\n');
        }
        unfinished[index] = (!bytes.ends_with(b"\n")).then_some(pe);
        if let Err(e) = write_whole(to, &bytes) {
            broken[index] = true;
            if stream == Stream::Out
                && let Some(failing) = failing.take()
            {
                let _ = failing.send(e);
            }
        }
    }
}

fn write_whole(to: BorrowedFd<'_>, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes).map_err(std::io::Error::from) {
            Ok(written) => bytes = &bytes[written..],
            Err(e) if e.kind() == Io::Interrupted => {}
            // Somebody who shares the descriptor has made it non-blocking.
            Err(e) if e.kind() == Io::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out, with a `|` after each part that is passed on.
    fn pass(tag: Option<&str>, parts: &[&str]) -> String {
        let mut lines = Lines::new(tag.map(str::to_owned));
        let mut out: Vec<Vec<u8>> = parts.iter().map(|part| lines.push(part.as_bytes())).collect();
        out.push(lines.finish());
        out.iter().map(|bytes| String::from_utf8_lossy(bytes) + "|").collect()
    }

    #[test]
    fn lines_are_passed_whole() {
        assert_eq!(pass(None, &["ab", "c\nd", "e\nf"]), "|abc\n|de\n|f|");
        assert_eq!(pass(None, &["a\nb\n", "\n\n"]), "a\nb\n|\n\n||");
        assert_eq!(pass(None, &[]), "|");
    }

    #[test]
    fn tags_stand_at_line_starts_only() {
        assert_eq!(pass(Some("[1] "), &["ab", "c\nd", "e\n\nf"]), "|[1] abc\n|[1] de\n[1] \n|[1] f\n|");
        assert_eq!(pass(Some("[1] "), &["x\n"]), "[1] x\n||");
        assert_eq!(pass(Some("[1] "), &[]), "|");
    }

    #[test]
    fn a_line_too_long_to_hold_is_passed_in_parts_with_one_tag() {
        let mut lines = Lines::new(Some("[0] ".into()));
        let part = lines.push(&vec![b'x'; LONGEST_LINE + 1]);
        assert_eq!(part.len(), LONGEST_LINE + 5);
        assert!(lines.push(b"yy").is_empty());
        assert_eq!(lines.push(b"z\nnext\n"), b"yyz\n[0] next\n");
        assert_eq!(lines.finish(), b"");
        lines.push(&vec![b'x'; LONGEST_LINE + 1]);
        assert_eq!(lines.finish(), b"\n");
    }

    #[test]
    fn bytes_stay_what_they_are() {
        let all: Vec<u8> = (0..=255).collect();
        let mut lines = Lines::new(None);
        let mut out = lines.push(&all);
        out.extend(lines.finish());
        assert_eq!(out, all);
    }
}
