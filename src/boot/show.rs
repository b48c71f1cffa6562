//! Showing the launcher a board: one datagram with a token, the number of rows, and the descriptor.
//!
//! The launcher opens a [`Letterbox`], an abstract socket, and invites the PEs to it when they have joined. A datagram is
//! whole or not there, and lies in the box from the moment in which its sender goes on; so whoever empties the box after
//! a PE has ended finds all that this PE has shown. What strangers put in, who lack the token, is thrown away.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::Interest;

use super::handover::{Invitation, KNOCK_LEN, explain, receive, send};
use crate::error::{ErrorKind, Result};

/// Datagrams taken at a time, so that a flood of them leaves time for other things.
const AT_A_TIME: usize = 64;

/// The launcher's side.
pub(super) struct Letterbox {
    socket: tokio::net::UnixDatagram,
    invitation: Invitation,
}

impl Letterbox {
    /// Opens one. Within a tokio runtime.
    pub(super) fn open() -> Result<Letterbox> {
        let invitation = Invitation::new()?;
        let open = || -> std::io::Result<_> {
            let socket = UnixDatagram::bind_addr(&invitation.address()?)?;
            socket.set_nonblocking(true)?;
            tokio::net::UnixDatagram::from_std(socket)
        };
        let socket = open().map_err(|e| ErrorKind::os("opening the launcher's letterbox", e))?;
        Ok(Letterbox { socket, invitation })
    }

    /// What PEs need in order to [`post`].
    pub(super) fn invitation(&self) -> Vec<u8> {
        self.invitation.encode()
    }

    /// Returns when something may lie in the box.
    pub(super) async fn filled(&self) {
        // An error would show again when the box is emptied.
        let _ = self.socket.readable().await;
    }

    /// Takes what lies in the box: descriptors with their numbers of rows. An error, such as too many open files, costs
    /// one piece of post.
    pub(super) fn empty(&self) -> Vec<Result<(usize, OwnedFd)>> {
        let mut post = Vec::new();
        for _ in 0..AT_A_TIME {
            // A byte more than a knock has, so that longer ones are seen to be none.
            let mut said = [0; KNOCK_LEN + 1];
            match receive(&self.socket, &mut said, RecvFlags::DONTWAIT) {
                Ok((len, mut descriptors)) => {
                    if let (Some(rows), Some(descriptor)) = (self.invitation.admits(&said[..len]), descriptors.pop()) {
                        post.push(Ok((rows, descriptor)));
                    }
                }
                Err(Errno::AGAIN) => {
                    // The runtime is told that it has to look again.
                    let empty = || Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
                    let _ = self.socket.try_io(Interest::READABLE, empty);
                    break;
                }
                Err(Errno::INTR) => {}
                Err(e) => post.push(Err(explain(e))),
            }
        }
        post
    }
}

/// Shows `board`, which ends with `rows` rows, to whom the invitation leads. Waits up to `limit` while the launcher's
/// letterbox is full.
pub(super) fn post(invitation: &[u8], board: &OwnedFd, rows: usize, limit: Option<Duration>) -> Result<()> {
    let failed = |e: std::io::Error| ErrorKind::os("showing the launcher the job's board", e);
    let invitation = Invitation::decode(invitation).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
    let connect = || -> std::io::Result<_> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&invitation.address()?)?;
        socket.set_write_timeout(limit)?;
        Ok(socket)
    };
    let socket = connect().map_err(failed)?;
    send(&socket, &invitation.knock(rows), &[board]).map_err(|e| failed(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::handover::tests::file_of;
    use std::os::unix::fs::FileExt;

    fn in_a_runtime(f: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f);
    }

    fn word(fd: OwnedFd) -> u64 {
        let mut word = [0; 8];
        std::fs::File::from(fd).read_exact_at(&mut word, 0).unwrap();
        u64::from_le_bytes(word)
    }

    #[test]
    fn what_is_shown_is_found_at_once_and_later() {
        in_a_runtime(async {
            let letterbox = Letterbox::open().unwrap();
            let invitation = letterbox.invitation();
            assert!(letterbox.empty().is_empty());
            for rows in 1..4 {
                post(&invitation, &file_of(10 * rows), rows, None).unwrap();
                let post: Vec<_> = letterbox.empty().into_iter().map(Result::unwrap).collect();
                assert_eq!(post.len(), 1);
                let (told, descriptor) = post.into_iter().next().unwrap();
                assert_eq!((told, word(descriptor)), (rows, 10 * rows as u64));
            }
            let sender = std::thread::spawn(move || post(&invitation, &file_of(7), 9, None));
            loop {
                letterbox.filled().await;
                if let Some(post) = letterbox.empty().into_iter().next() {
                    assert_eq!(post.unwrap().0, 9);
                    break;
                }
            }
            sender.join().unwrap().unwrap();
        });
    }

    #[test]
    fn strangers_and_garbled_post_are_thrown_away() {
        in_a_runtime(async {
            let letterbox = Letterbox::open().unwrap();
            let known = letterbox.invitation.clone();
            let stranger = UnixDatagram::unbound().unwrap();
            stranger.connect_addr(&known.address().unwrap()).unwrap();
            let wrong = Invitation::new().unwrap().knock(2);
            let right = known.knock(2);
            for bytes in [&b""[..], b"x", &wrong, &right[1..], &[&right[..], b"x"].concat(), &right.repeat(9)] {
                send(&stranger, bytes, &[file_of(1)]).unwrap();
            }
            // The token without a descriptor.
            stranger.send(&right).unwrap();
            assert!(letterbox.empty().is_empty());
            post(&letterbox.invitation(), &file_of(1), 3, None).unwrap();
            assert_eq!(letterbox.empty().len(), 1);
        });
    }

    #[test]
    fn a_launcher_that_is_gone_is_an_error() {
        in_a_runtime(async {
            let letterbox = Letterbox::open().unwrap();
            let invitation = letterbox.invitation();
            drop(letterbox);
            let e = post(&invitation, &file_of(1), 1, None).unwrap_err();
            assert!(e.to_string().starts_with("showing the launcher the job's board failed"), "{e}");
            assert!(post(b"", &file_of(1), 1, None).is_err());
        });
    }
}
