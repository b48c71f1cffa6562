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

/// Asks at one door after the other until one agrees: some of a host's addresses, those of its containers say, are
/// somebody else's where they are asked at.
pub(super) fn ask(doors: &[SocketAddr], hello: &Hello) -> Result<Agreed, String> {
    let mut closed = Vec::new();
    for door in doors {
        let answer = match TcpStream::connect_timeout(door, KNOCK) {
            Ok(stream) => talk(stream, hello).unwrap_or_else(|e| Err(said(&e))),
            Err(e) => Err(e.to_string()),
        };
        match answer {
            Ok(agreed) => return Ok(agreed),
            Err(e) => closed.push(format!("asked at {door} (TCP): {e}")),
        }
    }
    if closed.is_empty() { Err("it has no address to be asked at".into()) } else { Err(closed.join(", ")) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::roce::verbs::address::End;
    use std::net::TcpListener;

    #[test]
    fn whoever_answers_at_the_wrong_door_is_passed_by() {
        let end = End { number: 1, psn: 2, gid: [3; 16] };
        let hello = Hello { secret: "s".into(), from: 0, to: 1, end, mtu: 3, reads: 4 };
        let right = Agreed { end, mtu: 3, reads: 4 };
        let refusal: Answer = Err("it is PE 7, not PE 1".into());
        let words = [
            address::encode(&refusal).unwrap(),
            b"HTTP/1.1 400".to_vec(),
            address::encode(&Ok::<_, String>(right)).unwrap(),
        ];
        let doors = words.map(|words| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let door = listener.local_addr().unwrap();
            std::thread::spawn(move || {
                while let Ok((mut visitor, _)) = listener.accept() {
                    // What is asked has to be read, or closing would take the answer back.
                    let _ = visitor.read(&mut [0; 200]);
                    let _ = visitor.write_all(&words);
                }
            });
            door
        });
        assert_eq!(ask(&doors, &hello), Ok(right));
        let refused = ask(&doors[..2], &hello).unwrap_err();
        assert!(
            refused.contains("it is PE 7, not PE 1, asked at") && refused.contains("no PE of this version"),
            "{refused}"
        );
        assert_eq!(ask(&[], &hello), Err("it has no address to be asked at".into()));
    }
}
