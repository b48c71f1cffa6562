//! The decisions of the rendezvous: who may sit down, what each PE is answered. A state machine without sockets.
//!
//! A *sitting* is one complete set of PEs. A PE that joins for the k-th time takes its seat in the k-th sitting, so a
//! program may finalise and start again, or a script may run several programs, however far the PEs drift apart.
//!
//! Every request of a PE gets exactly one answer: what was asked for, or [`Kind::Lost`] as soon as it cannot come. A
//! sitting that one PE has left cannot end another round, so from then on the answer is `Lost`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::wire::{self, Kind};
use crate::error::ranges;

/// A frame, shared by all who get it.
pub(super) type Answer = Arc<Vec<u8>>;

/// What connections, and whoever starts the PEs, report.
pub(super) enum Event {
    Join { id: u64, pe: usize, n_pes: usize, answers: UnboundedSender<Answer> },
    Round { id: u64, bytes: Vec<u8> },
    Ask { id: u64 },
    Left { id: u64 },
    Ended { pe: usize, how: String },
}

/// What a launcher that watches over the job is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// A PE has left a sitting, or was seen to be gone.
    Left { pe: usize },
    /// A PE was answered that another is lost.
    Told { pe: usize, lost: usize },
}

/// All sittings of a job.
pub(super) struct Hub {
    n_pes: usize,
    /// What a complete sitting is told.
    welcome: Vec<u8>,
    reports: Option<UnboundedSender<Report>>,
    /// Number of the first sitting in `sittings`.
    first: usize,
    sittings: VecDeque<Sitting>,
    /// How often each PE has joined.
    visits: Vec<usize>,
    /// How each PE that is no more has ended.
    ended: Vec<Option<String>>,
    /// Sitting and PE of each connection that has joined.
    members: HashMap<u64, (usize, usize)>,
}

struct Sitting {
    seats: Vec<Option<Seat>>,
    /// Who was lost first, and how.
    lost: Option<(usize, String)>,
    /// Who was told so since the last report.
    told: Vec<usize>,
}

struct Seat {
    /// `None` once the PE has left.
    answers: Option<UnboundedSender<Answer>>,
    /// Whether the PE is owed an answer.
    waiting: bool,
    round: Option<Vec<u8>>,
}

impl Seat {
    fn answer(&mut self, answer: &Answer) {
        self.waiting = false;
        if let Some(answers) = &self.answers {
            let _ = answers.send(answer.clone());
        }
    }
}

impl Sitting {
    fn new(n_pes: usize) -> Sitting {
        Sitting { seats: (0..n_pes).map(|_| None).collect(), lost: None, told: Vec::new() }
    }

    fn complete(&self) -> bool {
        self.seats.iter().all(Option::is_some)
    }

    fn over(&self) -> bool {
        self.seats.iter().all(|seat| seat.as_ref().is_some_and(|seat| seat.answers.is_none()))
    }

    fn lose(&mut self, pe: usize, how: impl Into<String>) {
        self.lost.get_or_insert_with(|| (pe, how.into()));
        self.tell_loss();
    }

    /// Answers everybody who waits for what cannot come any more.
    fn tell_loss(&mut self) {
        let Some((pe, how)) = &self.lost else { return };
        let answer = Arc::new(wire::frame(Kind::Lost, &wire::lost(*pe, how)));
        let seats = self.seats.iter_mut().enumerate().filter_map(|(pe, seat)| Some((pe, seat.as_mut()?)));
        for (pe, seat) in seats.filter(|(_, seat)| seat.waiting) {
            seat.answer(&answer);
            self.told.push(pe);
        }
    }

    fn answer_all(&mut self, kind: Kind, payload: &[u8]) {
        let answer = Arc::new(wire::frame(kind, payload));
        for seat in self.seats.iter_mut().flatten() {
            seat.answer(&answer);
        }
    }

    fn missing(&self) -> String {
        let numbers = |absent: fn(&Option<Seat>) -> bool| {
            let seats = self.seats.iter().enumerate();
            ranges(&seats.filter(|(_, seat)| absent(seat)).map(|(pe, _)| pe).collect::<Vec<_>>())
        };
        if self.complete() {
            let late = numbers(|seat| seat.as_ref().is_some_and(|seat| seat.round.is_none()));
            format!("these PEs have not come this far: {late}")
        } else {
            format!("these PEs have not joined: {}", numbers(Option::is_none))
        }
    }
}

impl Hub {
    pub(super) fn new(n_pes: usize, welcome: Vec<u8>, reports: Option<UnboundedSender<Report>>) -> Hub {
        let (visits, ended) = (vec![0; n_pes], vec![None; n_pes]);
        Hub { n_pes, welcome, reports, first: 0, sittings: VecDeque::new(), visits, ended, members: HashMap::new() }
    }

    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Join { id, pe, n_pes, answers } => self.join(id, pe, n_pes, answers),
            Event::Round { id, bytes } => self.round(id, bytes),
            Event::Ask { id } => self.ask(id),
            Event::Left { id } => self.leave(id),
            Event::Ended { pe, how } => self.end(pe, how),
        }
        for sitting in &mut self.sittings {
            for pe in std::mem::take(&mut sitting.told) {
                let lost = sitting.lost.as_ref().map_or(pe, |(lost, _)| *lost);
                report(&self.reports, Report::Told { pe, lost });
            }
        }
        while self.sittings.front().is_some_and(Sitting::over) {
            self.sittings.pop_front();
            self.first += 1;
        }
    }

    /// Whether a PE that may still come would have to be told that the job has failed.
    pub(super) fn has_news_for_absent(&self) -> bool {
        let absent = |(pe, seat): (usize, &Option<Seat>)| seat.is_none() && self.ended[pe].is_none();
        let untold = |sitting: &Sitting| sitting.lost.is_some() && sitting.seats.iter().enumerate().any(absent);
        self.sittings.iter().any(untold)
    }

    /// Sittings before `first` are over; nobody asks for them, since only their members know them.
    fn sitting(&mut self, number: usize) -> &mut Sitting {
        let index = number.saturating_sub(self.first);
        while self.sittings.len() <= index {
            self.sittings.push_back(Sitting::new(self.n_pes));
        }
        &mut self.sittings[index]
    }

    fn join(&mut self, id: u64, pe: usize, n_pes: usize, answers: UnboundedSender<Answer>) {
        let refuse = |why: &str| {
            let _ = answers.send(Arc::new(wire::frame(Kind::BadJob, why.as_bytes())));
        };
        if n_pes != self.n_pes || pe >= self.n_pes {
            refuse(&format!("the job at this address has {} PEs", self.n_pes));
            let open = self.first + self.sittings.iter().take_while(|sitting| sitting.complete()).count();
            let how = format!("it was started as PE {pe} of {n_pes}, in a job of {}", self.n_pes);
            return self.sitting(open).lose(pe, how);
        }
        let number = self.visits[pe];
        if number > self.first
            && let earlier = self.sitting(number - 1)
            && earlier.lost.is_none()
            && !earlier.complete()
        {
            refuse("another process has joined with this PE number");
            return earlier.lose(pe, "two processes joined with its number");
        }
        self.visits[pe] += 1;
        self.members.insert(id, (number, pe));
        let absent =
            (0..self.n_pes).find_map(|pe| Some((pe, self.ended[pe].clone()?)).filter(|_| self.visits[pe] <= number));
        let welcome = self.welcome.clone();
        let sitting = self.sitting(number);
        sitting.seats[pe] = Some(Seat { answers: Some(answers), waiting: true, round: None });
        if let Some((pe, how)) = absent {
            sitting.lose(pe, how);
        } else if sitting.lost.is_some() {
            sitting.tell_loss();
        } else if sitting.complete() {
            sitting.answer_all(Kind::Welcome, &welcome);
        }
    }

    fn round(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(&(number, pe)) = self.members.get(&id) else { return };
        let sitting = self.sitting(number);
        if let Some(seat) = &mut sitting.seats[pe] {
            (seat.waiting, seat.round) = (true, Some(bytes));
        }
        if sitting.lost.is_some() {
            return sitting.tell_loss();
        }
        let rounds = sitting.seats.iter().map(|seat| seat.as_ref()?.round.as_deref());
        if let Some(rounds) = rounds.collect::<Option<Vec<&[u8]>>>() {
            let packed = wire::pack(rounds.into_iter());
            for seat in sitting.seats.iter_mut().flatten() {
                seat.round = None;
            }
            sitting.answer_all(Kind::Gathered, &packed);
        }
    }

    fn ask(&mut self, id: u64) {
        let Some(&(number, pe)) = self.members.get(&id) else { return };
        let sitting = self.sitting(number);
        let answer = Arc::new(wire::frame(Kind::Missing, sitting.missing().as_bytes()));
        // The answer to a question is not the answer that the PE is owed.
        if let Some(answers) = sitting.seats[pe].as_ref().and_then(|seat| seat.answers.as_ref()) {
            let _ = answers.send(answer);
        }
    }

    fn leave(&mut self, id: u64) {
        let Some((number, pe)) = self.members.remove(&id) else { return };
        report(&self.reports, Report::Left { pe });
        let sitting = self.sitting(number);
        if let Some(seat) = &mut sitting.seats[pe] {
            seat.answers = None;
        }
        sitting.lose(pe, "it ended, or left the job, before all PEs were done with start-up");
    }

    fn end(&mut self, pe: usize, how: String) {
        let how = format!("it {how} without joining");
        for sitting in self.sittings.iter_mut().filter(|sitting| sitting.seats[pe].is_none()) {
            sitting.lose(pe, how.as_str());
        }
        self.ended[pe] = Some(how);
    }
}

fn report(reports: &Option<UnboundedSender<Report>>, report: Report) {
    if let Some(reports) = reports {
        // The launcher may be ending.
        let _ = reports.send(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::wire::HEADER_LEN;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    /// A connection as the hub sees it.
    struct Client {
        id: u64,
        answers: UnboundedReceiver<Answer>,
    }

    impl Client {
        fn join(hub: &mut Hub, id: u64, pe: usize, n_pes: usize) -> Client {
            let (sender, answers) = unbounded_channel();
            hub.handle(Event::Join { id, pe, n_pes, answers: sender });
            Client { id, answers }
        }

        fn round(&self, hub: &mut Hub) {
            hub.handle(Event::Round { id: self.id, bytes: vec![self.id as u8] });
        }

        fn next(&mut self) -> Option<(Kind, Vec<u8>)> {
            let answer = self.answers.try_recv().ok()?;
            let (kind, _) = wire::header(answer[..HEADER_LEN].try_into().unwrap(), 1000).unwrap();
            Some((kind, answer[HEADER_LEN..].to_vec()))
        }

        fn loss(&mut self) -> usize {
            let (kind, payload) = self.next().expect("an answer");
            assert_eq!(kind, Kind::Lost);
            wire::read_lost(&payload).unwrap().0
        }
    }

    fn hub(n_pes: usize) -> Hub {
        Hub::new(n_pes, b"come in".to_vec(), None)
    }

    fn two(hub: &mut Hub, ids: [u64; 2]) -> [Client; 2] {
        let mut both = [Client::join(hub, ids[0], 0, 2), Client::join(hub, ids[1], 1, 2)];
        for client in &mut both {
            assert_eq!(client.next(), Some((Kind::Welcome, b"come in".to_vec())));
        }
        both
    }

    #[test]
    fn a_round_ends_when_all_have_given() {
        let mut hub = hub(2);
        let [mut a, mut b] = two(&mut hub, [10, 11]);
        a.round(&mut hub);
        assert_eq!(a.next(), None);
        b.round(&mut hub);
        for client in [&mut a, &mut b] {
            let (kind, payload) = client.next().unwrap();
            assert_eq!((kind, wire::unpack(&payload, 2).unwrap()), (Kind::Gathered, vec![vec![10], vec![11]]));
        }
    }

    #[test]
    fn a_pe_that_leaves_fails_the_pending_and_the_next_round() {
        let mut hub = hub(2);
        let [mut a, b] = two(&mut hub, [1, 2]);
        a.round(&mut hub);
        hub.handle(Event::Left { id: b.id });
        assert_eq!(a.loss(), 1);
        a.round(&mut hub);
        assert_eq!(a.loss(), 1);
        assert_eq!(a.next(), None);
    }

    #[test]
    fn a_launcher_is_told_who_leaves_and_who_has_learnt_of_it() {
        let (sender, mut reports) = unbounded_channel();
        let mut hub = Hub { reports: Some(sender), ..hub(2) };
        let [a, b] = two(&mut hub, [1, 2]);
        a.round(&mut hub);
        assert!(reports.try_recv().is_err());
        hub.handle(Event::Left { id: b.id });
        assert_eq!(reports.try_recv(), Ok(Report::Left { pe: 1 }));
        assert_eq!(reports.try_recv(), Ok(Report::Told { pe: 0, lost: 1 }));
        hub.handle(Event::Left { id: a.id });
        assert_eq!(reports.try_recv(), Ok(Report::Left { pe: 0 }));
        assert!(reports.try_recv().is_err());
        // Nobody waits for those who leave in order.
        let [a, b] = two(&mut hub, [3, 4]);
        for (client, pe) in [(b, 1), (a, 0)] {
            hub.handle(Event::Left { id: client.id });
            assert_eq!(reports.try_recv(), Ok(Report::Left { pe }));
        }
        assert!(reports.try_recv().is_err());
    }

    #[test]
    fn a_pe_may_come_again_before_the_others_have_left() {
        let mut hub = hub(2);
        let [a, mut b] = two(&mut hub, [1, 2]);
        hub.handle(Event::Left { id: a.id });
        let mut again = Client::join(&mut hub, 3, 0, 2);
        assert_eq!(again.next(), None);
        assert_eq!(b.next(), None);
        hub.handle(Event::Left { id: b.id });
        let mut b = Client::join(&mut hub, 4, 1, 2);
        assert_eq!(again.next(), Some((Kind::Welcome, b"come in".to_vec())));
        assert_eq!(b.next(), Some((Kind::Welcome, b"come in".to_vec())));
        assert_eq!(hub.sittings.len(), 1);
        b.round(&mut hub);
        again.round(&mut hub);
        assert_eq!(b.next().unwrap().0, Kind::Gathered);
    }

    #[test]
    fn impossible_numbers_fail_the_job_for_all() {
        for (pe, n_pes) in [(1, 3), (2, 2), (7, 2)] {
            let mut hub = hub(2);
            let mut a = Client::join(&mut hub, 1, 0, 2);
            let mut stray = Client::join(&mut hub, 2, pe, n_pes);
            assert_eq!(stray.next().unwrap().0, Kind::BadJob);
            assert_eq!(a.loss(), pe);
            assert_eq!(Client::join(&mut hub, 3, 1, 2).loss(), pe);
        }
    }

    #[test]
    fn a_number_taken_twice_fails_the_job_for_all() {
        let mut hub = hub(3);
        let mut a = Client::join(&mut hub, 1, 0, 3);
        let mut b = Client::join(&mut hub, 2, 1, 3);
        let mut twin = Client::join(&mut hub, 3, 1, 3);
        assert_eq!(twin.next().unwrap().0, Kind::BadJob);
        assert_eq!((a.loss(), b.loss()), (1, 1));
        assert_eq!(Client::join(&mut hub, 4, 2, 3).loss(), 1);
    }

    #[test]
    fn a_pe_that_ended_without_joining_fails_present_and_later_joins() {
        let mut hub = hub(2);
        let mut a = Client::join(&mut hub, 1, 0, 2);
        hub.handle(Event::Ended { pe: 1, how: "exited with status 0".into() });
        assert_eq!(a.loss(), 1);
        hub.handle(Event::Left { id: a.id });
        assert_eq!(Client::join(&mut hub, 2, 0, 2).loss(), 1);
    }

    #[test]
    fn who_asks_learns_who_is_missing() {
        let mut hub = hub(4);
        let mut a = Client::join(&mut hub, 1, 1, 4);
        hub.handle(Event::Ask { id: a.id });
        let (kind, text) = a.next().unwrap();
        assert_eq!(kind, Kind::Missing);
        assert_eq!(String::from_utf8(text).unwrap(), "these PEs have not joined: 0 and 2-3");
    }
}
