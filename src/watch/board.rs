//! The board of a host: memory after the symmetric memory of the host's lowest PE, mapped by all PEs of the host and by
//! their launcher. It outlives any of them, as memory without a name does: until the last who has it mapped is gone.
//!
//! A head with the news (see [`crate::sync::fate`]) and the clock, then a row for each PE of the host: who it is, its
//! state, its fate, its recorder, and the texts that its events refer to; then a fate for each PE of the world, for those
//! of other hosts.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::fs::SealFlags;
use rustix::process::getpid;

use crate::error::{ErrorKind, Result};
use crate::heap::Segment;
use crate::sync::atom::{Atoms, claim, observe, publish};
use crate::sync::fate;
use crate::sync::recorder::Recorder;
use crate::watch::loss::{How, Loss};

/// "shmem", and the version of this layout.
const MAGIC: u64 = 0x0001_006d_656d_6873;

const PAGE: usize = 4096;

// The head.
const KIND: usize = 0;
const ROWS: usize = 8;
const CLOCK: usize = 16;
const WORLD: usize = 32;
const NEWS: usize = 128;
const STALL: usize = 256;
const FLIGHT: usize = 264;

// A row: words about its PE, then the recorder and the texts.
const PE: usize = 0;
const PID: usize = 8;
const STATE: usize = 16;
const NAMESPACE: usize = 24;
const WATCHED: usize = 32;
const FATE: usize = 128;
const EVENTS: usize = 256;
const TEXTS: usize = EVENTS + Recorder::bytes(SLOTS);

/// More PEs than a world can have: what says so is no board.
const MOST: usize = 1 << 24;

/// Events that are kept of each PE.
pub(crate) const SLOTS: u64 = 2048;
/// Texts that the events of a PE can refer to, and the bytes of each.
pub(crate) const TEXT_SLOTS: usize = 256;
pub(crate) const TEXT_BYTES: usize = 64;

const ROW: usize = (TEXTS + TEXT_SLOTS * TEXT_BYTES).next_multiple_of(PAGE);

/// How far a PE has got, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    /// It has not come so far as to write here.
    Absent = 0,
    /// It is a member of the job.
    Running = 1,
    /// It has ended its world in order.
    Left = 2,
}

/// The board of this host.
pub(crate) struct Board {
    memory: Segment,
    /// The PEs of the host in ascending order, a row each.
    host: Box<[usize]>,
    /// PEs of the world.
    n_pes: usize,
}

impl Board {
    /// Bytes of a board of `rows` PEs, of a world of `n_pes`.
    pub(crate) const fn bytes(rows: usize, n_pes: usize) -> usize {
        PAGE + rows * ROW + (8 * n_pes).next_multiple_of(PAGE)
    }

    /// The board of the PEs `host`, of a world of `n_pes`, behind `descriptor`, whose first `offset` bytes are something
    /// else.
    pub(crate) fn attach(descriptor: &OwnedFd, offset: usize, host: &[usize], n_pes: usize) -> Result<Board> {
        let memory = Segment::attach_part(descriptor, offset, Self::bytes(host.len(), n_pes))?;
        Ok(Board { memory, host: host.into(), n_pes })
    }

    /// The board of `rows` PEs, of a world of `n_pes`, at the end of what is behind `descriptor`: for a launcher, who is
    /// told these numbers and reads which PEs the rows are of. Refuses what is no board, and what could shrink under the
    /// reader's eyes.
    pub(crate) fn find(descriptor: &OwnedFd, rows: usize, n_pes: usize) -> Result<Board> {
        let stat = rustix::fs::fstat(descriptor).map_err(|source| ErrorKind::os("sizing the job's board", source))?;
        let foreign = || ErrorKind::os("reading the job's board", std::io::ErrorKind::InvalidData);
        let seals = rustix::fs::fcntl_get_seals(descriptor).map_err(|_| foreign())?;
        let size = usize::try_from(stat.st_size).map_err(|_| foreign())?;
        if rows > n_pes || n_pes > MOST {
            return Err(foreign());
        }
        let bytes = Self::bytes(rows, n_pes);
        let offset = size.checked_sub(bytes).filter(|at| at.is_multiple_of(PAGE)).ok_or_else(foreign)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(foreign());
        }
        let memory = Segment::attach_part(descriptor, offset, bytes)?;
        let host: Box<[usize]> = (0..rows).map(|row| observe(memory.word(PAGE + row * ROW + PE)) as usize).collect();
        let told = (observe(memory.word(KIND)), observe(memory.word(ROWS)));
        let ascending = host.windows(2).all(|pair| pair[0] < pair[1]);
        if told == (MAGIC, rows as u64) && ascending { Ok(Board { memory, host, n_pes }) } else { Err(foreign()) }
    }

    /// Writes the head, and whose the rows are: by the lowest PE, before anybody else has the board. `world` is a number
    /// that the boards of one world have in common.
    pub(crate) fn found(&self, world: u64) {
        publish(self.memory.word(WORLD), world);
        publish(self.memory.word(ROWS), self.host.len() as u64);
        for row in self.rows() {
            publish(row.word(PE), row.pe as u64);
        }
        for (i, value) in Moment::now().0.into_iter().enumerate() {
            publish(self.memory.word(CLOCK + 8 * i), value);
        }
        publish(self.memory.word(KIND), MAGIC);
    }

    /// Takes the row of this PE; `watched` if it hands out a descriptor of its process.
    pub(crate) fn enter(&self, me: usize, watched: bool) {
        let Some(row) = self.row(me) else { return };
        publish(row.word(PID), u64::from(getpid().as_raw_pid().unsigned_abs()));
        publish(row.word(NAMESPACE), namespace());
        publish(row.word(WATCHED), watched.into());
        row.set_state(State::Running);
    }

    /// The PEs that have rows, in ascending order.
    pub(crate) fn host(&self) -> &[usize] {
        &self.host
    }

    /// The row of a PE of this host.
    #[inline]
    pub(crate) fn row(&self, pe: usize) -> Option<Row<'_>> {
        let index = match self.host.get(pe) {
            Some(&same) if same == pe => pe,
            _ => self.host.binary_search(&pe).ok()?,
        };
        Some(Row { memory: &self.memory, pe, at: PAGE + index * ROW })
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let of = |(index, &pe): (usize, &usize)| Row { memory: &self.memory, pe, at: PAGE + index * ROW };
        self.host.iter().enumerate().map(of)
    }

    /// How often a loss was declared.
    #[inline]
    pub(crate) fn news(&self) -> u64 {
        observe(self.news_word())
    }

    /// The word that says so.
    #[inline]
    pub(crate) fn news_word(&self) -> &AtomicU64 {
        self.memory.word(NEWS)
    }

    /// Declares a loss; false if this PE was lost already, or has no row here.
    pub(crate) fn declare(&self, loss: Loss) -> bool {
        let news = self.memory.word(NEWS);
        self.fate(loss.pe).is_some_and(|fate| fate::declare(fate, news, loss.how.encode()))
    }

    /// How a PE of the world was lost, and the order of the loss.
    fn read(&self, pe: usize) -> Option<(u64, u64)> {
        fate::read(self.fate(pe)?)
    }

    /// The fate of a PE of the world.
    fn fate(&self, pe: usize) -> Option<&AtomicU64> {
        let elsewhere = PAGE + self.host.len() * ROW;
        let at = self.row(pe).map_or(elsewhere + 8 * pe, |row| row.at + FATE);
        (pe < self.n_pes).then(|| self.memory.word(at))
    }

    /// How a PE of the world was lost, if it was.
    pub(crate) fn how(&self, pe: usize) -> Option<How> {
        self.read(pe).map(|(how, _)| How::decode(how))
    }

    /// What the boards of one world have in common.
    pub(crate) fn world(&self) -> u64 {
        observe(self.memory.word(WORLD))
    }

    /// All losses, the earliest declared first.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let lost = |pe: usize| Some((self.read(pe)?, pe));
        let mut losses: Vec<_> = (0..self.n_pes).filter_map(lost).collect();
        losses.sort_by_key(|((_, order), pe)| (*order, *pe));
        losses.into_iter().map(|((how, _), pe)| Loss { pe, how: How::decode(how) }).collect()
    }

    /// This PE's own account of its end, in place of whatever was declared.
    pub(crate) fn amend(&self, loss: Loss) {
        if let Some(fate) = self.fate(loss.pe) {
            fate::amend(fate, self.memory.word(NEWS), loss.how.encode());
        }
    }

    /// The status with which a PE has ended the whole job, if one has.
    pub(crate) fn ended_job(&self) -> Option<u8> {
        (0..self.n_pes).find_map(|pe| if let Some(How::EndedJob(status)) = self.how(pe) { Some(status) } else { None })
    }

    /// Takes the right to print the table of a stall: one PE of the host in any `apart`.
    pub(crate) fn claim_stall(&self, apart: Duration) -> bool {
        let (now, last) = (nanoseconds(), observe(self.memory.word(STALL)));
        let again = last == 0 || u128::from(now.saturating_sub(last)) >= apart.as_nanos();
        again && claim(self.memory.word(STALL), last, now) == last
    }

    /// Takes the right to write the flight recorders' file, once for the board.
    pub(crate) fn claim_flight(&self, me: usize) -> bool {
        claim(self.memory.word(FLIGHT), 0, me as u64 + 1) == 0
    }

    /// The clock by which ticks of this host can be read.
    pub(crate) fn clock(&self) -> Clock {
        let start = Moment([0, 8].map(|i| observe(self.memory.word(CLOCK + i))));
        Clock { start, now: Moment::now() }
    }
}

/// The row of one PE.
#[derive(Clone, Copy)]
pub(crate) struct Row<'b> {
    memory: &'b Segment,
    /// The PE's number in the world.
    pub(crate) pe: usize,
    at: usize,
}

impl Row<'_> {
    /// The PE's process number, as it sees itself.
    pub(crate) fn pid(&self) -> u64 {
        observe(self.word(PID))
    }

    /// Within which process numbers the PE's is one.
    pub(crate) fn namespace(&self) -> u64 {
        observe(self.word(NAMESPACE))
    }

    /// Whether the PE is a process of its own, as this process sees it, that hands out a descriptor of itself.
    pub(crate) fn is_watched(&self) -> bool {
        let here = (u64::from(getpid().as_raw_pid().unsigned_abs()), namespace());
        observe(self.word(WATCHED)) == 1 && (self.pid(), self.namespace()) != here
    }

    pub(crate) fn state(&self) -> State {
        match observe(self.word(STATE)) {
            0 => State::Absent,
            2 => State::Left,
            _ => State::Running,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        publish(self.word(STATE), state as u64);
    }

    /// How the PE was lost, and the order of the loss.
    pub(crate) fn fate(&self) -> Option<(u64, u64)> {
        fate::read(self.word(FATE))
    }

    pub(crate) fn how(&self) -> Option<How> {
        self.fate().map(|(how, _)| How::decode(how))
    }

    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(EVENTS, SLOTS)
    }

    /// The offset in the row of a text.
    pub(crate) fn text_at(index: usize) -> usize {
        TEXTS + index % TEXT_SLOTS * TEXT_BYTES
    }
}

impl Atoms for Row<'_> {
    type Word = AtomicU64;

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        self.memory.word(self.at + at)
    }
}

/// The process namespace of this process; 0 where there is none to see.
pub(crate) fn namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// Ticks and nanoseconds, read together.
#[derive(Debug, Clone, Copy)]
struct Moment([u64; 2]);

impl Moment {
    fn now() -> Moment {
        Moment([crate::heap::ticks(), nanoseconds()])
    }
}

/// The host's steady clock, the same for all its processes.
fn nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What ticks mean: measured from the board's first moment to this clock's making.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Moment,
    now: Moment,
}

impl Clock {
    /// How long ago a moment was.
    pub(crate) fn ago(&self, ticks: u64) -> Duration {
        let (Moment([tick0, nano0]), Moment([tick1, nano1])) = (self.start, self.now);
        let nanos_per_tick = (nano1.saturating_sub(nano0)) as f64 / (tick1.saturating_sub(tick0)).max(1) as f64;
        Duration::from_nanos((tick1.saturating_sub(ticks) as f64 * nanos_per_tick) as u64)
    }

    /// How long after the board's beginning a moment was.
    pub(crate) fn since_start(&self, ticks: u64) -> Duration {
        self.ago(self.start.0[0]).saturating_sub(self.ago(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD_OF: usize = 9;

    fn founded(before: usize, host: &[usize]) -> (Board, OwnedFd) {
        let (_, descriptor) = Segment::create(before, Board::bytes(host.len(), WORLD_OF)).unwrap();
        let board = Board::attach(&descriptor, before, host, WORLD_OF).unwrap();
        board.found(7);
        (board, descriptor)
    }

    #[test]
    fn a_launcher_finds_the_board_and_its_pes() {
        let (board, descriptor) = founded(3 * PAGE, &[1, 4, 6]);
        let found = Board::find(&descriptor, 3, WORLD_OF).unwrap();
        assert_eq!(found.host(), [1, 4, 6]);
        board.enter(4, false);
        assert_eq!(
            found.rows().map(|row| row.state()).collect::<Vec<_>>(),
            [State::Absent, State::Running, State::Absent]
        );
        assert!(found.declare(Loss { pe: 4, how: How::Exited(3) }));
        assert_eq!(board.losses(), [Loss { pe: 4, how: How::Exited(3) }]);
    }

    #[test]
    fn pes_of_other_hosts_have_a_fate_here_too() {
        let (board, _descriptor) = founded(PAGE, &[2, 3]);
        assert!(board.declare(Loss { pe: 8, how: How::Unreachable }));
        assert!(!board.declare(Loss { pe: 8, how: How::Failed }), "it was known");
        assert!(board.declare(Loss { pe: 3, how: How::Panicked }));
        assert!(board.declare(Loss { pe: 0, how: How::EndedJob(4) }));
        assert!(!board.declare(Loss { pe: WORLD_OF, how: How::Failed }), "there is no such PE");
        let lost: Vec<_> = board.losses().into_iter().map(|loss| loss.pe).collect();
        assert_eq!((lost, board.how(8), board.how(1)), (vec![8, 3, 0], Some(How::Unreachable), None));
        assert_eq!((board.ended_job(), board.world()), (Some(4), 7));
    }

    #[test]
    fn what_is_no_board_is_refused() {
        let (_, descriptor) = founded(PAGE, &[0, 1]);
        for rows in [0, 1, 3, 1000, usize::MAX / ROW, usize::MAX] {
            assert!(Board::find(&descriptor, rows, WORLD_OF).is_err(), "{rows}");
        }
        let (_, unfounded) = Segment::create(PAGE, Board::bytes(2, WORLD_OF)).unwrap();
        assert!(Board::find(&unfounded, 2, WORLD_OF).is_err());
        let (_, misplaced) = Segment::create(PAGE + 8, Board::bytes(2, WORLD_OF)).unwrap();
        assert!(Board::find(&misplaced, 2, WORLD_OF).is_err());
        for host in [[1, 1], [1, 0]] {
            assert!(Board::find(&founded(PAGE, &host).1, 2, WORLD_OF).is_err());
        }
        let may_shrink = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&may_shrink, Board::bytes(2, WORLD_OF) as u64).unwrap();
        Board::attach(&may_shrink, 0, &[0, 1], WORLD_OF).unwrap().found(7);
        assert!(Board::find(&may_shrink, 2, WORLD_OF).is_err());
        assert!(Board::find(&std::fs::File::open("/dev/null").unwrap().into(), 2, WORLD_OF).is_err());
    }
}
