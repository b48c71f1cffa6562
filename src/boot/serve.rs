//! Who listens at the rendezvous, and lets in whoever knows the key.
//!
//! Connections only translate between sockets and events; all decisions are in the [`Hub`].

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::hub::{Answer, Event, Hub, Report};
use super::wire::{self, HEADER_LEN, HELLO_LEN, Hello, Key, Kind, ROUND_MAX};

/// How long a client may take to say its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How long the rendezvous waits, when it is about to close, for PEs that have not come yet to a job that has failed.
const ABSENT_TIME: Duration = Duration::from_secs(1);
/// How long the last answers may take to leave when the rendezvous closes.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// Where the rendezvous listens.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Whoever started PE `pe` has seen it end.
pub(super) struct Ended {
    pub(super) pe: usize,
    /// `exited with status 0`.
    pub(super) how: String,
}

/// What a launcher that watches over the job has to do with its rendezvous.
#[derive(Default)]
pub(super) struct Welcome {
    /// What the PEs are told when all have joined.
    pub(super) invitation: Vec<u8>,
    /// Whom to tell what PEs have learnt and when they leave.
    pub(super) reports: Option<UnboundedSender<Report>>,
}

/// Serves jobs of `n_pes` until the sender of `ended` is dropped; the answers given by then still leave.
pub(super) async fn serve(
    listener: Listener,
    n_pes: usize,
    key: Key,
    welcome: Welcome,
    mut ended: UnboundedReceiver<Ended>,
) {
    let mut hub = Hub::new(n_pes, welcome.invitation, welcome.reports);
    let (events, mut arriving) = unbounded_channel();
    let mut connections = JoinSet::new();
    let mut id = 0;
    let mut close_at = None;
    while close_at.is_none() || hub.has_news_for_absent() {
        tokio::select! {
            Some(event) = arriving.recv() => hub.handle(event),
            note = ended.recv(), if close_at.is_none() => match note {
                Some(Ended { pe, how }) => hub.handle(Event::Ended { pe, how }),
                None => close_at = Some(Instant::now() + ABSENT_TIME),
            },
            () = sleep_until(close_at.unwrap_or_else(Instant::now)), if close_at.is_some() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok(Client::Unix(stream, refusal)) => {
                    connections.spawn(converse(stream, id, refusal, key.clone(), events.clone()));
                    id += 1;
                }
                Ok(Client::Tcp(stream)) => {
                    connections.spawn(converse(stream, id, None, key.clone(), events.clone()));
                    id += 1;
                }
                // Out of descriptors, perhaps; the peer waits in the queue meanwhile.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop((hub, arriving));
    let closing = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(CLOSING_TIME, closing).await;
}

enum Client {
    /// With the reason to refuse it, if its user is another.
    Unix(UnixStream, Option<String>),
    Tcp(TcpStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Client> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                let same_user = uid == rustix::process::geteuid().as_raw();
                let refusal = (!same_user).then(|| format!("the job belongs to another user than yours ({uid})"));
                Ok(Client::Unix(stream, refusal))
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Client::Tcp(stream))
            }
        }
    }
}

/// One connection, from its greeting to its end. Whoever does not know the key is heard no further.
async fn converse<S>(stream: S, id: u64, refusal: Option<String>, key: Key, events: UnboundedSender<Event>)
where
    S: AsyncRead + AsyncWrite,
{
    let (mut from, mut to) = tokio::io::split(stream);
    let mut greeting = [0; HELLO_LEN];
    let heard = tokio::select! {
        heard = timeout(GREETING_TIME, from.read_exact(&mut greeting)) => heard,
        _ = events.closed() => return,
    };
    let Some(hello) = matches!(heard, Ok(Ok(_))).then(|| Hello::decode(&greeting)).flatten() else { return };
    let wrong_key = || "the key is not that of the job (SHMEM_JOB_KEY)".to_owned();
    if let Some(why) = refusal.or_else(|| (!hello.key.matches(&key)).then(wrong_key)) {
        let _ = timeout(GREETING_TIME, to.write_all(&wire::frame(Kind::Refused, why.as_bytes()))).await;
        return;
    }
    let (answers, mut outgoing) = unbounded_channel::<Answer>();
    let (pe, n_pes) = (hello.pe as usize, hello.n_pes as usize);
    let _ = events.send(Event::Join { id, pe, n_pes, answers });
    let reading = async {
        while let Some((kind, bytes)) = read_frame(&mut from).await {
            let event = if kind == Kind::Round { Event::Round { id, bytes } } else { Event::Ask { id } };
            let _ = events.send(event);
        }
    };
    let writing = async {
        while let Some(answer) = outgoing.recv().await {
            if to.write_all(&answer).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
    let _ = events.send(Event::Left { id });
}

/// `None` at the end, or for anything that no PE says.
async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> Option<(Kind, Vec<u8>)> {
    let mut header = [0; HEADER_LEN];
    from.read_exact(&mut header).await.ok()?;
    let (kind, len) = wire::header(&header, ROUND_MAX)?;
    if !matches!(kind, Kind::Round | Kind::Ask) {
        return None;
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).await.ok()?;
    Some((kind, bytes))
}
