//! What one PE makes of the board: which losses it has to report, and what it writes of itself.
//!
//! A loss makes every wait of the PE fail until the PE has *acknowledged* it, by making a team of those that are left.
//! Afterwards waits go on as before, except those that began before, and those for a PE that is lost. Looking for
//! losses costs one comparison while there are none to report.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::sync::atom::{observe, publish};
use crate::watch::activity::{self, Begun, Texts};
use crate::watch::board::{Board, Row, State};
use crate::watch::loss::Loss;
use crate::watch::{flight, report};

thread_local! {
    /// The call that this thread is in: its number, and whether it has lasted long.
    static CURRENT: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// This PE's view of the board.
pub(crate) struct Lookout {
    board: Arc<Board>,
    me: usize,
    texts: Texts,
    /// The news in which no loss was left to report.
    settled: AtomicU64,
    acknowledged: Mutex<Vec<Loss>>,
    /// How many losses are acknowledged.
    era: AtomicU64,
    /// Where this PE writes all recorders when it is the first to learn of a loss.
    flight_file: Option<PathBuf>,
}

impl Lookout {
    /// The PE has taken its row, and leaves it when this is dropped.
    pub(crate) fn new(board: Arc<Board>, me: usize, flight_file: Option<PathBuf>) -> Self {
        let acknowledged = Mutex::new(Vec::new());
        Lookout {
            board,
            me,
            texts: Texts::new(),
            settled: AtomicU64::new(0),
            acknowledged,
            era: AtomicU64::new(0),
            flight_file,
        }
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// This PE's row.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.board.row(self.me)
    }

    /// Fails if there is a loss to report.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_after(|| {})
    }

    /// [`check`](Self::check) after a fence, say. Where the news stand is found out before: behind a fence, a processor
    /// waits for each step of the way to them.
    #[inline(always)]
    pub(crate) fn check_after(&self, step: impl FnOnce()) -> Result<(), Error> {
        let news = self.board.news_word();
        step();
        if observe(news) == observe(&self.settled) { Ok(()) } else { self.report() }
    }

    #[cold]
    fn report(&self) -> Result<(), Error> {
        let Some(loss) = self.loss() else { return Ok(()) };
        if let Some(status) = self.board.ended_job() {
            std::process::exit(status.into());
        }
        if let Some(file) = self.flight_file.as_ref().filter(|_| self.board.claim_flight(self.me)) {
            let text = format!("PE {} is lost: {}\n{}", loss.pe, loss.how, report::recorders(&self.board));
            let (me, name) = (self.me, file.display());
            match flight::write(file, &text) {
                Ok(()) => eprintln!("shmem: PE {me} has written the last calls of all PEs to {name}"),
                Err(error) => eprintln!("shmem: the last calls of all PEs cannot be written to {name}: {error}"),
            }
        }
        Err(peer_lost(loss))
    }

    /// The first loss that is not acknowledged.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let news = self.board.news();
        if news == observe(&self.settled) {
            return None;
        }
        // The news were read before the fates: what is declared meanwhile makes them differ again.
        let acknowledged = self.lock();
        let loss = self.board.losses().into_iter().find(|loss| !acknowledged.iter().any(|known| known.pe == loss.pe));
        if loss.is_none() {
            publish(&self.settled, news);
        }
        loss
    }

    /// How many losses are acknowledged: grows, and what began under a smaller number is in vain.
    #[inline(always)]
    pub(crate) fn era(&self) -> u64 {
        observe(&self.era)
    }

    /// The acknowledged losses.
    pub(crate) fn acknowledged(&self) -> Vec<Loss> {
        self.lock().clone()
    }

    /// Goes on without these.
    pub(crate) fn acknowledge(&self, losses: &[Loss]) {
        let mut acknowledged = self.lock();
        for loss in losses {
            if !acknowledged.iter().any(|known| known.pe == loss.pe) {
                acknowledged.push(*loss);
            }
        }
        publish(&self.era, acknowledged.len() as u64);
    }

    /// Fails if any of these PEs is an acknowledged loss.
    #[cold]
    pub(crate) fn require(&self, mut pes: impl Iterator<Item = usize>) -> Result<(), Error> {
        let acknowledged = self.lock();
        let lost = pes.find_map(|pe| acknowledged.iter().find(|loss| loss.pe == pe));
        lost.map_or(Ok(()), |loss| Err(peer_lost(*loss)))
    }

    /// Fails if this PE is lost, acknowledged or not.
    #[inline]
    pub(crate) fn require_living(&self, pe: Option<usize>) -> Result<(), Error> {
        if self.board.news() == 0 {
            return Ok(());
        }
        let lost = pe.and_then(|pe| self.board.losses().into_iter().find(|loss| loss.pe == pe));
        lost.map_or(Ok(()), |loss| Err(peer_lost(loss)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Loss>> {
        // The list is whole between any two statements.
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the calling thread is in a call, until the result is dropped. A call within another is a part of
    /// that one.
    #[inline]
    pub(crate) fn begin(&self, begun: Begun) -> Open<'_> {
        if CURRENT.get().is_some() {
            return Open { row: None, number: 0 };
        }
        let row = self.row();
        let number = row.map_or(0, |row| activity::begin(&row, &self.texts, begun));
        CURRENT.set(Some((number, false)));
        Open { row, number }
    }

    /// Records that the calling thread's call lasts, and for whom it waits.
    pub(crate) fn wait(&self, on: Option<usize>) {
        if let (Some((number, _)), Some(row)) = (CURRENT.get(), self.row()) {
            CURRENT.set(Some((number, true)));
            activity::wait(&row, number, on);
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        if let Some(row) = self.row() {
            row.set_state(State::Left);
        }
    }
}

/// A call that has begun and not ended.
#[must_use]
pub(crate) struct Open<'l> {
    row: Option<Row<'l>>,
    number: u64,
}

impl Drop for Open<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(row) = &self.row {
            let long = CURRENT.take().is_some_and(|(_, long)| long);
            activity::end(row, self.number, long);
        }
    }
}

/// The error of a wait that a loss makes vain.
#[cold]
pub(crate) fn peer_lost(loss: Loss) -> Error {
    ErrorKind::PeerLost { pe: loss.pe, reason: loss.how.to_string() }.into()
}
