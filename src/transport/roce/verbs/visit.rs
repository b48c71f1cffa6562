//! A visit at a peer's door: how one asks for the other half of a queue pair.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::address::{self, Agreed, Answer, HEAD, Hello};

/// How long a door is knocked at.
const KNOCK: Duration = Duration::from_secs(3);
/// How long one who has come is heard, and an answer waited for. Where 40 lanes spin on 2 cores of a guest, the thread behind
/// a door was seen to need more than 3 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Asks at the first of the doors that opens.
pub(super) fn ask(doors: &[SocketAddr], hello: &Hello) -> Result<Agreed, String> {
    let mut closed = Vec::new();
    for door in doors {
        match TcpStream::connect_timeout(door, KNOCK) {
            Ok(stream) => return talk(stream, hello).unwrap_or_else(|e| Err(said(&e))).map_err(|e| at(door, &e)),
            Err(e) => closed.push(at(door, &e.to_string())),
        }
    }
    match closed.as_slice() {
        [] => Err("it has no address to be asked at".into()),
        closed => Err(closed.join(", ")),
    }
}

fn at(door: &SocketAddr, what: &str) -> String {
    format!("asked at {door} (TCP): {what}")
}

fn said(e: &Error) -> String {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer after {PATIENCE:?}"),
        ErrorKind::UnexpectedEof => "it hangs up".into(),
        _ => e.to_string(),
    }
}

fn talk(mut stream: TcpStream, hello: &Hello) -> std::io::Result<Answer> {
    let nonsense = || Error::other("who answers there is no PE of this version");
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&address::encode(hello).ok_or_else(|| Error::other("the secret is too long"))?)?;
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; address::body(&head).ok_or_else(nonsense)?];
    stream.read_exact(&mut body)?;
    address::decode(&body).ok_or_else(nonsense)
}
