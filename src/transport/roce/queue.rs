//! The send queue of one queue pair, as pure data: which requests are under way, which of them say when they are done,
//! and what has to happen then.
//!
//! Requests are numbered. A card executes them in order and tells of the *signaled* ones only: those that fetch, the last
//! that uses a piece of the pool in a chain, and every so many of the rest; what is told of one holds for all before it.
//! Whoever waits for the last one, if it is not signaled, has to *close* the queue with a write of nothing that is. Who has
//! waited so will do so again, so for a while after that the last of each chain is signaled.
//!
//! Knows nothing of memory: what is to be copied when a request is done is told to the caller.

use std::collections::VecDeque;

use crate::transport::private::Late;
use crate::transport::roce::nic::{Completion, Local, Outcome, Request, Verb};
use crate::transport::roce::pool::Piece;

/// Chains whose last request is signaled after the queue was closed: with as many, a program that waits for each of its
/// writes sends a write of nothing for each sixteenth, and one that writes on and on is told of sixteen too many.
const EAGER: usize = 16;

/// The requests of one queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    depth: usize,
    /// The number of the last request that was made; that is signaled; that fetches; that is done.
    made: u64,
    signaled: u64,
    fetching: u64,
    done: u64,
    /// The number of the last request that was executed.
    good: u64,
    /// How many were done at the last probe.
    probed: Option<u64>,
    /// The next request waits for those that fetch.
    fence: bool,
    /// Chains to come whose last request is signaled.
    eager: usize,
    loans: VecDeque<Loan>,
    failure: Option<Outcome>,
    /// No quiet has told of the failure yet.
    untold: bool,
}

/// What the queue has until a request is done.
#[derive(Debug)]
struct Loan {
    number: u64,
    piece: Piece,
    late: Option<Late>,
}

/// What is to be done with a piece that came back.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) piece: Piece,
    /// Where what it holds belongs.
    pub(crate) late: Option<Late>,
}

/// What a request has of the pool.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) piece: Piece,
    pub(crate) late: Option<Late>,
}

impl Queue {
    /// An empty queue of up to `depth` requests, at least 4.
    pub(crate) fn new(depth: usize) -> Self {
        debug_assert!(depth >= 4);
        let loans = VecDeque::new();
        let (probed, fence, eager, failure, untold) = (None, false, 0, None, false);
        Queue {
            depth,
            made: 0,
            signaled: 0,
            fetching: 0,
            done: 0,
            good: 0,
            probed,
            fence,
            eager,
            loans,
            failure,
            untold,
        }
    }

    /// How many requests can be made now. One place is kept for closing.
    pub(crate) fn room(&self) -> usize {
        (self.depth - 1).saturating_sub((self.made - self.done) as usize)
    }

    /// The number of the last request.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Whether the request with this number was executed.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.good >= number
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.done < self.made
    }

    /// How many are to be done before the card tells of the next, if it is to tell of any.
    pub(crate) fn owed(&self) -> u64 {
        self.signaled.saturating_sub(self.done)
    }

    /// Why it takes no more requests, if it does not.
    pub(crate) fn failure(&self) -> Option<&Outcome> {
        self.failure.as_ref()
    }

    /// Why something was lost that a quiet promises: the first time that one asks.
    pub(crate) fn owed_to_quiet(&mut self) -> Option<&Outcome> {
        self.failure.as_ref().filter(|_| std::mem::take(&mut self.untold))
    }

    /// Orders what was made before what will be.
    pub(crate) fn fence(&mut self) {
        self.fence |= self.fetching > self.done;
    }

    /// Makes a request, for which there is [`room`](Self::room). The `last` of a chain is signaled if the chain has pieces
    /// of the pool, which are to come back soon, or if it will be waited for as it seems.
    pub(crate) fn request<'a>(
        &mut self,
        verb: Verb,
        local: Local<'a>,
        remote: usize,
        lent: Option<Lent>,
        last: bool,
    ) -> Request<'a> {
        self.made += 1;
        let number = self.made;
        let unsignaled = (number - self.signaled) as usize;
        let awaited = last && self.eager > 0;
        self.eager -= usize::from(awaited);
        let signaled = verb.fetches() || last && lent.is_some() || awaited || unsignaled >= self.depth / 4;
        if signaled {
            self.signaled = number;
        }
        let fenced = std::mem::take(&mut self.fence);
        if verb.fetches() {
            self.fetching = number;
        }
        if let Some(Lent { piece, late }) = lent {
            self.loans.push_back(Loan { number, piece, late });
        }
        Request { verb, local, remote, number, signaled, fenced }
    }

    /// A request that tells when all before are done, if none under way does.
    pub(crate) fn close(&mut self) -> Option<Request<'static>> {
        if self.signaled == self.made || !self.is_busy() {
            return None;
        }
        self.eager = EAGER;
        Some(self.nothing())
    }

    /// A request by which it shows whether the peer is there, if none under way tells of its end; or if none has ended since the last
    /// time: a card that has missed its bell hears this one. There is [`room`](Self::room) for it.
    pub(crate) fn probe(&mut self) -> Option<Request<'static>> {
        let silent = self.probed.replace(self.done) == Some(self.done);
        if self.owed() > 0 && !silent { None } else { Some(self.nothing()) }
    }

    /// A signaled write of nothing, which is answered by the card alone.
    fn nothing(&mut self) -> Request<'static> {
        self.made += 1;
        self.signaled = self.made;
        let local = Local::At { at: 0, bytes: 0 };
        Request { verb: Verb::Write, local, remote: 0, number: self.made, signaled: true, fenced: false }
    }

    /// Takes note of an end, and returns what comes back by it. Of what has failed, nothing belongs anywhere.
    pub(crate) fn complete(&mut self, completion: Completion) -> impl Iterator<Item = Return> {
        let Completion { number, outcome } = completion;
        self.done = self.done.max(number);
        let done = outcome == Outcome::Done;
        if self.failure.is_none() {
            // What came before one that failed was done.
            self.good = if done { number } else { number - 1 };
        }
        if !done {
            self.fail(outcome);
        }
        let ended = self.loans.partition_point(|loan| loan.number <= number);
        let good = self.good;
        let back = move |loan: Loan| Return { piece: loan.piece, late: loan.late.filter(|_| loan.number <= good) };
        self.loans.drain(..ended).map(back).collect::<Vec<_>>().into_iter()
    }

    /// The card refused a chain, of which nobody knows what it does: nothing more will be told. The pieces that are lost.
    pub(crate) fn give_up(&mut self, why: Outcome) -> impl Iterator<Item = Piece> {
        self.done = self.made;
        self.fail(why);
        self.loans.drain(..).map(|loan| loan.piece)
    }

    /// The first failure says why.
    fn fail(&mut self, why: Outcome) {
        if self.failure.is_none() {
            (self.failure, self.untold) = (Some(why), true);
        }
    }

    /// What was lent under this owner goes nowhere when it comes back.
    pub(crate) fn forget(&mut self, owner: usize) {
        let owned = |loan: &&mut Loan| loan.late.is_some_and(|late| late.owner == owner);
        self.loans.iter_mut().filter(owned).for_each(|loan| loan.late = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::roce::pool::Pool;
    use std::ptr::NonNull;

    const NOTHING: Local<'static> = Local::Inline(&[]);

    fn write(queue: &mut Queue) -> Request<'static> {
        queue.request(Verb::Write, NOTHING, 0, None, true)
    }

    fn done(queue: &mut Queue, number: u64) -> Vec<Return> {
        queue.complete(Completion { number, outcome: Outcome::Done }).collect()
    }

    fn lent(pool: &Pool, late: Option<Late>) -> Option<Lent> {
        pool.take(8, 1).pop().map(|(piece, _)| Lent { piece, late })
    }

    fn late(owner: usize) -> Option<Late> {
        Some(Late { target: NonNull::dangling(), bytes: 8, owner })
    }

    #[test]
    fn a_full_queue_always_has_one_that_tells() {
        for depth in [4, 5, 16, 128] {
            let mut queue = Queue::new(depth);
            let mut told = Vec::new();
            for round in 0..1000 {
                while queue.room() > 0 {
                    let request = write(&mut queue);
                    assert_eq!(request.number, queue.made());
                    told.extend(request.signaled.then_some(request.number));
                }
                // Closing has a place of its own.
                if round % 3 == 0 {
                    told.extend(queue.close().map(|request| request.number));
                }
                assert!(queue.made() - queue.done <= depth as u64);
                let first = told.remove(0);
                assert!(done(&mut queue, first).is_empty());
                assert!(queue.is_done(first) && !queue.is_done(first + 1));
            }
        }
    }

    #[test]
    fn an_open_end_is_closed_once() {
        let mut queue = Queue::new(64);
        assert_eq!(queue.close().map(|request| request.number), None);
        assert!(!write(&mut queue).signaled);
        let close = queue.close().unwrap();
        assert!(close.signaled && close.number == 2 && close.verb == Verb::Write);
        assert!(queue.close().is_none());
        done(&mut queue, 2);
        assert!(!queue.is_busy() && queue.close().is_none());
    }

    #[test]
    fn who_waits_for_each_write_seldom_closes() {
        let mut queue = Queue::new(128);
        let mut closed = 0;
        for _ in 0..170 {
            write(&mut queue);
            closed += usize::from(queue.close().is_some());
            let made = queue.made();
            done(&mut queue, made);
        }
        assert_eq!(closed, 10, "one in seventeen");
        // Of many writes that nobody waits for, few are told of.
        let told = (0..1000).filter(|_| {
            let request = write(&mut queue);
            done(&mut queue, request.number);
            request.signaled
        });
        assert!(told.count() <= EAGER + 1000 / 32);
    }

    #[test]
    fn a_probe_tells_and_is_made_where_nothing_else_does_or_nothing_ends() {
        let mut queue = Queue::new(64);
        let read = queue.request(Verb::Read, NOTHING, 0, None, true);
        assert!(read.signaled && queue.probe().is_none(), "it will tell");
        assert_eq!(queue.probe().map(|request| (request.number, request.signaled)), Some((2, true)), "it has not");
        done(&mut queue, 1);
        assert!(queue.probe().is_none(), "it tells again");
        done(&mut queue, 2);
        assert!(!write(&mut queue).signaled && queue.is_busy());
        assert_eq!(queue.probe().map(|request| (request.number, request.signaled)), Some((4, true)));
        assert!(queue.close().is_none());
    }

    #[test]
    fn what_fetches_tells_and_is_waited_for_behind_a_fence() {
        let mut queue = Queue::new(64);
        let read = queue.request(Verb::Read, NOTHING, 0, None, true);
        assert!(read.signaled && !read.fenced);
        assert!(!write(&mut queue).fenced);
        queue.fence();
        assert!(write(&mut queue).fenced);
        assert!(!write(&mut queue).fenced, "the first has waited");
        done(&mut queue, 1);
        queue.fence();
        assert!(!write(&mut queue).fenced, "nothing is to be waited for");
    }

    #[test]
    fn pieces_come_back_with_what_they_hold() {
        let (pool, mut queue) = (Pool::new(0..Pool::BYTES), Queue::new(64));
        assert!(!queue.request(Verb::Write, NOTHING, 0, lent(&pool, None), false).signaled);
        assert!(queue.request(Verb::Write, NOTHING, 0, lent(&pool, None), true).signaled);
        queue.request(Verb::Read, NOTHING, 0, lent(&pool, late(7)), true);
        queue.request(Verb::Read, NOTHING, 0, lent(&pool, late(8)), true);
        queue.forget(8);
        assert_eq!(done(&mut queue, 2).into_iter().map(|back| back.late.is_some()).collect::<Vec<_>>(), [false, false]);
        assert_eq!(done(&mut queue, 4).into_iter().map(|back| back.late.is_some()).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn what_came_before_a_failure_is_done_and_the_rest_goes_nowhere() {
        let (pool, mut queue) = (Pool::new(0..Pool::BYTES), Queue::new(64));
        for owner in 1..=3 {
            queue.request(Verb::Read, NOTHING, 0, lent(&pool, late(owner)), true);
        }
        let failed = Outcome::Unreachable("no answer".into());
        let back: Vec<_> = queue.complete(Completion { number: 2, outcome: failed.clone() }).collect();
        assert_eq!(back.iter().map(|back| back.late.map(|late| late.owner)).collect::<Vec<_>>(), [Some(1), None]);
        let back: Vec<_> = queue.complete(Completion { number: 3, outcome: Outcome::Flushed }).collect();
        assert!(back.len() == 1 && back[0].late.is_none() && !queue.is_busy());
        assert_eq!(queue.failure(), Some(&failed), "the first says why");
        assert!(queue.is_done(1) && !queue.is_done(2) && !queue.is_done(3));
    }
}
