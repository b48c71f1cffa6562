//! How a new queue pair is tried: by reading a page that every PE shows, on which stands what only that PE has, and by
//! reads and writes as long as a packet, which show whether the way carries these.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::{Address, Windows, packet};
use super::device::{Card, Registration};
use super::draw;
use super::pair::Pair;
use crate::error::Result;
use crate::heap::Segment;
use crate::sync::atom::{observe, publish};
use crate::transport::roce::nic::{Local, Outcome, Region, Request, Verb};

/// Bytes of the longest packet, and of each half of a page.
const HALF: usize = 4096;
/// How long a trial may take. The card has given up before, unless it takes longer than it should.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two looks.
const NAP: Duration = Duration::from_micros(20);

/// The page by which the ways to a PE are tried: the first half is read by the peers, the second written.
pub(super) struct Page {
    registration: Registration,
    memory: Segment,
}

impl Page {
    pub(super) fn new(card: &Arc<Card>) -> Result<Page> {
        let (memory, _) = Segment::create(2 * HALF, 0)?;
        let region = Region { offsets: 0..memory.len(), base: memory.base(), dmabuf: None };
        let registration = Registration::new(card, &region)?;
        publish(memory.word(0), draw()?);
        Ok(Page { registration, memory })
    }

    /// What stands at its start, and on no other page.
    pub(super) fn token(&self) -> u64 {
        observe(self.memory.word(0))
    }

    /// It as peers' requests name it.
    pub(super) fn shown(&self) -> Windows {
        Windows::one(self.registration.far())
    }
}

/// Tries a way to a peer, of packets of `mtu`. If it works, nothing is under way on it afterwards.
pub(super) fn try_out(card: &Arc<Card>, pair: &Pair, peer: &Address, mtu: u8) -> Result<(), String> {
    let landing = Page::new(card).map_err(|e| e.to_string())?;
    let own = Windows::one(landing.registration.near());
    let until = Instant::now() + PATIENCE;
    let ask = |verb, far: &Windows, near: usize, remote: usize, bytes: usize| {
        let local = Local::At { at: near, bytes };
        let request = Request { verb, local, remote, number: 1, signaled: true, fenced: false };
        pair.post(&[request], &own, far).map_err(|e| format!("it could not be posted: {e}"))?;
        wait(pair, until)
    };
    ask(Verb::Read, &peer.page, 0, 0, 8).map_err(|e| format!("reading 8 bytes: {e}"))?;
    if landing.token() != peer.token {
        return Err("it leads to another PE".into());
    }
    let long = packet(mtu).min(HALF);
    let advice = "shorter ones do, so a switch or network device on the way may have a smaller MTU";
    ask(Verb::Read, &peer.page, 0, 0, long)
        .and_then(|()| ask(Verb::Write, &peer.page, HALF, HALF, long))
        .map_err(|e| format!("packets of {long} bytes do not arrive ({advice}): {e}"))?;
    for window in peer.windows.iter() {
        let (from, bytes) = (window.offset, window.bytes.min(8));
        ask(Verb::Read, &peer.windows, HALF, from, bytes)
            .map_err(|e| format!("reading {bytes} bytes at offset {from} of its symmetric memory: {e}"))?;
    }
    Ok(())
}

/// Waits for the end of the one request under way.
fn wait(pair: &Pair, until: Instant) -> Result<(), String> {
    let mut found = Vec::new();
    loop {
        pair.poll(&mut found).map_err(|e| e.to_string())?;
        match found.pop().map(|completion| completion.outcome) {
            Some(Outcome::Done) => return Ok(()),
            Some(Outcome::Unreachable(what) | Outcome::Refused(what)) => return Err(what),
            Some(Outcome::Flushed) => return Err("the queue pair has failed".into()),
            None if Instant::now() > until => return Err(format!("nothing has come back after {PATIENCE:?}")),
            None => std::thread::sleep(NAP),
        }
    }
}
