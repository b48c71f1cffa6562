//! Asking a running job what its PEs do: `shmemrun --status`.
//!
//! The launcher listens at an abstract socket named by its process number; whoever connects gets the text and the end.
//! Only its own user and root are answered, and whoever asks believes no other user either, since names are free for
//! all to take.

use std::collections::BTreeSet;
use std::io::{ErrorKind as Io, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::say;

/// How long an answer may take: only a launcher that is stopped takes long.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The longest answer, a line of some hundred bytes for each PE.
const LONGEST: u64 = 64 << 20;
const NAME: &str = "shmem-job-";
/// In `/proc/net/unix`: the socket listens.
const LISTENS: &str = "00010000";

/// The launcher's side.
pub(super) struct Desk(Option<tokio::net::UnixListener>);

impl Desk {
    /// Opens it. A job whose name another has taken does without. Within a tokio runtime.
    pub(super) fn open() -> Desk {
        let open = || -> std::io::Result<_> {
            let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        };
        Desk(open().inspect_err(|e| say(format_args!("--status will not find this job: {e}"))).ok())
    }

    /// The next who asks and may. Can be dropped and called again without a loss.
    pub(super) async fn visitor(&self) -> tokio::net::UnixStream {
        let Some(listener) = &self.0 else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((visitor, _)) if visitor.peer_cred().is_ok_and(|who| may_ask(who.uid())) => return visitor,
                Ok(_) => {}
                // Out of descriptors, perhaps.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// Gives a visitor the text, at the visitor's pace.
pub(super) fn answer(mut visitor: tokio::net::UnixStream, text: String) {
    tokio::spawn(async move {
        // Whoever asked may have gone.
        let _ = timeout(ANSWER_TIME, visitor.write_all(text.as_bytes())).await;
    });
}

/// What the PEs of a job do: of the one whose launcher has this process number, or of the only one of this user. If
/// there are several, their first lines.
///
/// # Errors
/// A line that says why there is no answer.
pub fn status(job: Option<u32>) -> Result<String, String> {
    if let Some(job) = job {
        return ask(job);
    }
    let asked: Vec<_> = jobs()?.into_iter().map(|job| std::thread::spawn(move || ask(job))).collect();
    let answers = asked.into_iter().filter_map(|answer| answer.join().ok());
    // The jobs of others, and those that end just now, are none to speak of.
    let mut answers: Vec<_> =
        answers.filter(|answer| answer.as_ref().err().is_none_or(|why| why.contains(STOPPED))).collect();
    match answers.len() {
        0 => Err("no job of yours runs on this host".into()),
        1 => answers.remove(0),
        _ => Ok(answers
            .iter()
            .map(|answer| {
                answer.as_ref().map_or_else(|why| why.as_str(), |text| text.lines().next().unwrap_or_default())
            })
            .map(|line| format!("{line}\n"))
            .collect()),
    }
}

const STOPPED: &str = "its launcher is stopped";

fn ask(job: u32) -> Result<String, String> {
    let failed = |e: std::io::Error| match e.kind() {
        Io::ConnectionRefused | Io::NotFound => format!("no job {job} runs on this host"),
        Io::WouldBlock | Io::TimedOut => format!("job {job} does not answer: {STOPPED}"),
        _ => format!("job {job} does not answer: {e}"),
    };
    let stream = address(job).and_then(|address| UnixStream::connect_addr(&address)).map_err(failed)?;
    let owner = rustix::net::sockopt::socket_peercred(&stream).map_err(|e| failed(e.into()))?.uid;
    let own = rustix::process::geteuid();
    if owner != own && !own.is_root() {
        return Err(format!("job {job} belongs to another user than yours ({})", owner.as_raw()));
    }
    stream.set_read_timeout(Some(ANSWER_TIME)).map_err(failed)?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Err(format!("job {job} is ending"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The jobs of this host, whoever they belong to.
fn jobs() -> Result<BTreeSet<u32>, String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").map_err(|e| format!("jobs cannot be listed: {e}"))?;
    Ok(sockets.lines().filter_map(job_of).collect())
}

/// The job that a line of `/proc/net/unix` (`Num RefCount Protocol Flags Type St Inode Path`) shows.
fn job_of(line: &str) -> Option<u32> {
    let mut fields = line.split_whitespace();
    let listens = fields.nth(3)? == LISTENS;
    let name = fields.nth(3)?.strip_prefix('@')?.strip_prefix(NAME)?;
    name.parse().ok().filter(|_| listens)
}

fn may_ask(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw() || uid == 0
}

fn address(job: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME}{job}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_among_the_sockets_that_listen() {
        let line =
            |flags: &str, name: &str| format!("0000000000000000: 00000002 00000000 {flags} 0001 01 12345 {name}");
        assert_eq!(job_of(&line(LISTENS, "@shmem-job-4711")), Some(4711));
        for (flags, name) in [
            ("00000000", "@shmem-job-4711"),
            (LISTENS, "@shmem-job-"),
            (LISTENS, "@shmem-job-x"),
            (LISTENS, "/tmp/shmem-job-4711"),
            (LISTENS, ""),
        ] {
            assert_eq!(job_of(&line(flags, name)), None, "{flags} {name}");
        }
        assert_eq!(job_of("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn a_job_that_is_not_there_is_said_so() {
        // Above every process number.
        assert_eq!(status(Some(u32::MAX)).unwrap_err(), "no job 4294967295 runs on this host");
    }
}
