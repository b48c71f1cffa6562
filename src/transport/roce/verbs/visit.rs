//! A visit at a peer's door: how one asks for the other half of a queue pair.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::address::{self, Agreed, Answer, HEAD, Hello};

/// How long a door is knocked at, and an answer waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks at the first of the doors that opens.
pub(super) fn ask(doors: &[SocketAddr], hello: &Hello) -> Result<Agreed, String> {
    let mut closed = Vec::new();
    for door in doors {
        match TcpStream::connect_timeout(door, PATIENCE) {
            Ok(stream) => return talk(stream, hello).unwrap_or_else(|e| Err(e.to_string())).map_err(|e| at(door, &e)),
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

fn talk(mut stream: TcpStream, hello: &Hello) -> std::io::Result<Answer> {
    let nonsense = || std::io::Error::other("who answers there is no PE of this version");
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&address::encode(hello).ok_or_else(|| std::io::Error::other("the secret is too long"))?)?;
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; address::body(&head).ok_or_else(nonsense)?];
    stream.read_exact(&mut body)?;
    address::decode(&body).ok_or_else(nonsense)
}
