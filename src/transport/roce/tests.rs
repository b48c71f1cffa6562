//! The network over a card that keeps what it is given.

use super::*;
use crate::heap::Segment;
use crate::transport::loopback::Base;
use nic::{Atomics, Limits};

const TO: To = To { lane: 0, pe: 1 };

/// A card that keeps what it is given, and ends all of it when it is asked.
#[derive(Default)]
struct Keeper {
    inline: usize,
    /// From this one on, its requests fail.
    fails_from: Option<u64>,
    /// Whether it refuses what is for this PE.
    refuses: Option<usize>,
    /// By chain: what each request does, and with how many bytes.
    chains: Mutex<Vec<Vec<(Verb, usize)>>>,
    ended: Mutex<Vec<Completion>>,
}

impl Nic for Keeper {
    fn limits(&self) -> Limits {
        Limits { depth: 16, inline: self.inline, message: 1 << 20, atomics: Atomics::Card }
    }

    fn name(&self) -> String {
        "keeper".into()
    }

    fn connect(&self, _: To) -> Result<()> {
        Ok(())
    }

    fn post(&self, to: To, chain: &[Request<'_>]) -> Result<()> {
        if self.refuses == Some(to.pe) {
            return Err(ErrorKind::Fabric { pe: to.pe, device: self.name(), what: "no".into() }.into());
        }
        let bytes = |local| match local {
            Local::Inline(bytes) => bytes.len(),
            Local::At { bytes, .. } => bytes,
        };
        self.chains.lock().unwrap().push(chain.iter().map(|one| (one.verb, bytes(one.local))).collect());
        let ended = chain.iter().filter(|one| one.signaled);
        let outcome = |number| match self.fails_from {
            Some(first) if number >= first => Outcome::Refused("no".into()),
            _ => Outcome::Done,
        };
        let ended = ended.map(|one| Completion { number: one.number, outcome: outcome(one.number) });
        self.ended.lock().unwrap().extend(ended);
        Ok(())
    }

    fn poll(&self, _: To, found: &mut Vec<Completion>) -> Result<()> {
        found.append(&mut self.ended.lock().unwrap());
        Ok(())
    }
}

fn network(inline: usize) -> (Network<Keeper>, Segment) {
    over(Keeper { inline, ..Keeper::default() })
}

fn over(nic: Keeper) -> (Network<Keeper>, Segment) {
    let (memory, _) = Segment::create(Pool::BYTES, 0).unwrap();
    (Network::new(nic, 2, 0..Pool::BYTES, Memory::new(Base::of(&memory))), memory)
}

fn early(bytes: &[u8]) -> Near<Early> {
    Near::Private(Early { source: bytes.as_ptr(), bytes: bytes.len() })
}

#[test]
fn a_put_and_its_signal_share_a_doorbell() {
    let (network, _memory) = network(220);
    let (small, large) = ([1; 100], vec![1; 100_000]);
    let put = |source, signal| network.put(TO, 64, source, Some((8, signal))).unwrap();
    assert!(put(early(&small), Signal::Set(3)).signaled);
    assert!(put(early(&large), Signal::Set(4)).signaled);
    assert!(put(Near::Symmetric { at: 0, bytes: 2 << 20 }, Signal::Add(5)).signaled);
    let (write, add) = (Verb::Write, Verb::FetchAdd { add: 5 });
    let chains: Vec<Vec<_>> = vec![
        vec![(write, 100), (write, 8)],
        vec![(write, 65_536), (write, 34_464), (write, 8)],
        vec![(write, 1 << 20), (write, 1 << 20), (add, 8)],
    ];
    assert_eq!(*network.nic.chains.lock().unwrap(), chains);
}

#[test]
fn a_signal_waits_where_there_is_no_room_for_it() {
    let (network, _memory) = network(220);
    let put =
        |parts: usize| network.put(TO, 64, Near::Symmetric { at: 0, bytes: parts << 20 }, Some((8, Signal::Set(1))));
    // Fifteen requests fit, and one place is kept for closing.
    let taken = put(15).unwrap();
    assert_eq!((taken.bytes, taken.signaled), (15 << 20, false));
    let taken = put(17).unwrap();
    assert_eq!((taken.bytes < 17 << 20, taken.signaled), (true, false), "only the last part is announced");
    let (network, _memory) = self::network(0);
    let bytes = [1; 8];
    let taken = network.put(TO, 64, early(&bytes), Some((8, Signal::Set(1)))).unwrap();
    assert_eq!((taken.bytes, taken.signaled), (8, false), "the card takes nothing within requests");
}

#[test]
fn a_quiet_tells_of_a_failure_that_another_call_has_found() {
    let (network, _memory) = over(Keeper { inline: 0, fails_from: Some(1), ..Keeper::default() });
    network.put(TO, 64, early(&[1; 8]), None).unwrap();
    let refused = |error: Error| matches!(error.kind(), ErrorKind::Fabric { pe: 1, .. });
    assert!(network.idle(Awaited::Word).is_err_and(refused), "who waits finds it");
    assert_eq!(network.idle(Awaited::Word).unwrap(), Rest::Not, "once");
    assert!(network.quiet(Some(3)).unwrap(), "another lane has nothing to do with it");
    assert!(network.quiet(Some(TO.lane)).is_err_and(refused), "what was put is lost");
    assert!(network.quiet(None).unwrap(), "nothing was lost since");
    assert!(network.put(TO, 64, early(&[1; 8]), None).is_err_and(refused));
}

#[test]
fn a_card_that_refuses_everything_takes_no_transfer_into_an_endless_wait() {
    let (network, _memory) = over(Keeper { refuses: Some(1), ..Keeper::default() });
    let (small, large) = ([1; 8], vec![1; 100]);
    let refused = |error: Error| matches!(error.kind(), ErrorKind::Fabric { .. });
    // Each lane takes as many chunks with it as a queue has room for.
    for lane in 0..LANES {
        let taken = network.put(To { lane, pe: 1 }, 0, early(&vec![1; 1 << 20]), None);
        assert!(taken.is_err_and(refused), "lane {lane}");
    }
    let alive = To { lane: 0, pe: 0 };
    assert!(network.put(alive, 0, early(&large), None).is_err_and(refused), "there is nothing to send it from");
    assert_eq!(network.put(alive, 0, early(&small), None).unwrap().bytes, 8, "cells are left");
}

#[test]
fn waiting_for_news_sends_nothing_and_a_call_does() {
    let (network, _memory) = network(220);
    let bytes = [1; 8];
    network.put(TO, 64, early(&bytes), None).unwrap();
    let sent = || network.nic.chains.lock().unwrap().len();
    for _ in 0..3 {
        assert_eq!(network.idle(Awaited::Word).unwrap(), Rest::Not);
    }
    assert_eq!(sent(), 1);
    assert_eq!(network.owed(), [], "of a put the card does not tell");
    network.call(Some(1)).unwrap();
    assert_eq!(sent(), 2);
    assert_eq!(network.owed(), [(1, 2)], "the call tells of both");
    network.call(None).unwrap();
    assert_eq!(sent(), 3, "the card has not answered, and is asked again");
    network.idle(Awaited::Word).unwrap();
    assert_eq!(network.owed(), [], "it has");
    network.call(None).unwrap();
    assert_eq!(sent(), 4, "what it was asked has been answered");
    while !network.quiet(None).unwrap() {}
}
