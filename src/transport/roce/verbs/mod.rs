//! A real network card, over verbs: RoCE v2, or whatever else has reliable connected queue pairs and GIDs.
//!
//! - `device`: a device and memory registered with it; `pair`: queue pairs. These two know `rdma_sys`, and nothing else
//!   does;
//! - `address`: what PEs tell each other;
//! - `door`: where a peer asks for its half of a queue pair, and `visit` how;
//! - `probe`: how a new queue pair is tried.
//!
//! There is a queue pair for each lane and direction of two PEs: one half makes requests, the other serves them, so that
//! each PE connects when it likes and no two can meet half-way. A wrong choice of device or GID shows when a queue pair
//! is connected: it is tried, with packets as long as they get.

mod address;
#[allow(unsafe_code)]
mod device;
mod door;
#[allow(unsafe_code)]
mod pair;
mod probe;
mod visit;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

pub(crate) use address::Address;
use address::{Agreed, End, Hello, Reads, Window, Windows};
use device::{Card, Facts, Registration};
use door::{Door, Owner};
use pair::{Completions, Pair, Role, Room};
use probe::Page;

use crate::error::{Error, ErrorKind, Result};
use crate::transport::roce::nic::{Completion, Limits, Nic, Port, Region, Request, To};

/// Requests of a queue pair: twice what covers a round trip of 5 us at 400 Gbit/s in pieces of 4 KiB. With what may travel
/// within them they take 32 KiB of memory.
const DEPTH: usize = 128;
/// Bytes within a request that are asked for, most first: each fills a whole number of 64-byte units of an mlx5 queue.
const INLINE: [usize; 4] = [220, 92, 28, 0];
/// Bytes of a request: half of what most cards can, and within what 32 bits count.
const MESSAGE: usize = 1 << 30;
/// Reads and atomics under way on a queue pair: what common cards can.
const READS: u8 = 16;

/// A port of a network card with the memory of this PE registered.
pub(crate) struct Verbs {
    me: usize,
    secret: String,
    limits: Limits,
    facts: Facts,
    peers: OnceLock<Peers>,
    door: Door,
    page: Page,
    /// The regions as this PE's requests name them, and as peers' do.
    near: Windows,
    far: Windows,
    _registrations: Vec<Registration>,
    card: Arc<Card>,
}

/// The others, and the queue pairs to them.
struct Peers {
    addresses: Vec<Option<Address>>,
    /// By lane and PE.
    pairs: Box<[OnceLock<Pair>]>,
}

impl Verbs {
    /// Opens a port of a device for PE `me`, registers its regions with it, and listens for peers that know `secret`: at
    /// the address that the port's GID is, or else at `addresses`, those of this host. Its packets are of this traffic `class`.
    pub(crate) fn open(
        port: &Port,
        class: u8,
        regions: &[Region],
        me: usize,
        secret: &str,
        addresses: &[IpAddr],
    ) -> Result<Verbs> {
        let (card, facts) = Card::open(port, class)?;
        let registrations: Vec<Registration> =
            regions.iter().map(|region| Registration::new(&card, region)).collect::<Result<_>>()?;
        let windows = |window: fn(&Registration) -> Window| {
            let what = "there is no memory to register".into();
            let nothing = || ErrorKind::Card { device: card.name(), what };
            Windows::new(registrations.iter().map(window).collect()).ok_or_else(nothing)
        };
        let (near, far) = (windows(Registration::near)?, windows(Registration::far)?);
        let depth = facts.depth.min(DEPTH);
        let message = facts.message.min(MESSAGE);
        let limits = Limits { depth, inline: inline(&card, depth)?, message, atomics: facts.atomics };
        let page = Page::new(&card)?;
        let secret = secret.to_owned();
        let door = Door::open(&card, Owner { me, secret: secret.clone(), facts }, addresses)?;
        let peers = OnceLock::new();
        Ok(Verbs { me, secret, limits, facts, peers, door, page, near, far, _registrations: registrations, card })
    }

    /// What the others have to know of it.
    pub(crate) fn address(&self) -> Address {
        Address {
            name: self.card.full_name(),
            atomics: self.limits.atomics,
            doors: self.door.addresses.clone(),
            windows: self.far.clone(),
            page: self.page.shown(),
            token: self.page.token(),
            mtu: self.facts.mtu,
        }
    }

    /// Tells it of the others, by PE: those that are reached over it, on so many lanes. Once, before any is connected.
    pub(crate) fn introduce(&self, addresses: Vec<Option<Address>>, lanes: usize) {
        let pairs = (0..lanes * addresses.len()).map(|_| OnceLock::new()).collect();
        let introduced = self.peers.set(Peers { addresses, pairs });
        debug_assert!(introduced.is_ok(), "once");
    }

    /// The address of a peer, and the place of a queue pair to it.
    #[inline]
    fn place(&self, to: To) -> Result<(&Address, &OnceLock<Pair>)> {
        let place = self.peers.get().and_then(|peers| {
            let address = peers.addresses.get(to.pe)?.as_ref()?;
            Some((address, peers.pairs.get(to.lane * peers.addresses.len() + to.pe)?))
        });
        place.ok_or_else(|| self.failed(to.pe, format!("it was not introduced, or not lane {}", to.lane)))
    }

    /// A queue pair that has been connected.
    #[inline]
    fn pair(&self, to: To) -> Result<(&Address, &Pair)> {
        let (address, place) = self.place(to)?;
        match place.get() {
            Some(pair) => Ok((address, pair)),
            None => Err(self.failed(to.pe, format!("lane {} is not connected", to.lane))),
        }
    }

    /// Makes a queue pair, has the peer make its half, and tries it.
    fn reach(&self, pe: usize, address: &Address) -> Result<Pair, String> {
        let Limits { depth, inline, .. } = self.limits;
        let said = |e: Error| e.to_string();
        // Everything that is posted may come back, and so may what tries the way.
        let completions = Arc::new(Completions::new(&self.card, depth).map_err(said)?);
        let pair = Pair::new(completions, Role::Asks, Room { requests: depth, inline }).map_err(said)?;
        let psn = draw_psn().map_err(said)?;
        let hello = Hello {
            secret: self.secret.clone(),
            from: self.me,
            to: pe,
            end: End { number: pair.number(), psn, gid: self.card.port.gid },
            mtu: self.facts.mtu.min(address.mtu),
            reads: self.facts.reads.asked.min(READS),
        };
        let Agreed { end, mtu, reads } = visit::ask(&address.doors, &hello)?;
        pair.connect(psn, &end, mtu, Reads { asked: reads, served: 0 })
            .map_err(|e| format!("the queue pair could not be connected: {e}"))?;
        probe::try_out(&self.card, &pair, address, mtu)?;
        Ok(pair)
    }

    #[cold]
    fn failed(&self, pe: usize, what: String) -> Error {
        ErrorKind::Fabric { pe, device: self.card.name(), what }.into()
    }
}

impl Nic for Verbs {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn name(&self) -> String {
        self.card.name()
    }

    fn connect(&self, to: To) -> Result<()> {
        let (address, place) = self.place(to)?;
        if place.get().is_some() {
            return Ok(());
        }
        let pair = self.reach(to.pe, address).map_err(|what| {
            let (own, other) = (self.card.full_name(), &address.name);
            let advice =
                "SHMEM_HCA and SHMEM_GID_INDEX choose device and GID on either side; UDP port 4791 must be open";
            self.failed(to.pe, format!("no queue pair from {own} to {other}: {what}; {advice}"))
        })?;
        // Had another thread been faster, against the rule, its queue pair would be as good.
        let _ = place.set(pair);
        Ok(())
    }

    fn post(&self, to: To, chain: &[Request<'_>]) -> Result<()> {
        let (address, pair) = self.pair(to)?;
        pair.post(chain, &self.near, &address.windows)
            .map_err(|e| self.failed(to.pe, format!("{} requests could not be posted: {e}", chain.len())))
    }

    fn poll(&self, to: To, found: &mut Vec<Completion>) -> Result<()> {
        let (_, pair) = self.pair(to)?;
        pair.poll(found).map_err(|e| self.failed(to.pe, format!("completions could not be asked for: {e}")))?;
        // A device that is gone may complete nothing any more.
        if found.is_empty() && self.door.has_failed() {
            let what = "the device has failed or was removed (IBV_EVENT_DEVICE_FATAL)".into();
            return Err(ErrorKind::Card { device: self.card.name(), what }.into());
        }
        Ok(())
    }
}

/// How many bytes may travel within a request: found by trial, since nothing else tells.
fn inline(card: &Arc<Card>, requests: usize) -> Result<usize> {
    let completions = Arc::new(Completions::new(card, 1)?);
    let attempt =
        |inline| Pair::new(completions.clone(), Role::Asks, Room { requests, inline }).map(|pair| pair.inline);
    let (least, more) = INLINE.split_last().unwrap_or((&0, &[]));
    more.iter().find_map(|&inline| attempt(inline).ok()).map_or_else(|| attempt(*least), Ok)
}

/// The number of a first packet, of 24 bits: random, so that packets of a queue pair that is gone are not taken for those
/// of its successor.
fn draw_psn() -> Result<u32> {
    Ok(draw()? as u32 & 0xff_ffff)
}

/// Random bits.
fn draw() -> Result<u64> {
    let mut bits = [0; 8];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| ErrorKind::os("drawing a random number", e))?;
    Ok(u64::from_ne_bytes(bits))
}

#[cfg(test)]
mod tests;
