//! The exchange as one PE has it: its memory, its step, who takes part.
//!
//! # Why one area is enough
//! A round has a number, its *step*, which all PEs count alike. Each PE tells each other two things a step, in words that only
//! it writes: that its tokens have *arrived* (with how many, or what is wrong), and that it gives *credit*: it has done with the
//! other's tokens, and its outputs for them are there. Nobody sends a step before it has everybody's credit of the last, so
//! neither words nor headers nor tokens are overwritten before they were read. Outputs of a step are written after everybody's
//! tokens of that step have arrived, which nobody sends before it has combined the outputs of the step before. Hence nothing
//! is ever read and written at the same time, though every area exists once, and a PE may be ahead of others by what lies
//! between its combining and its next sending.
//!
//! A PE that is left out is not waited for and gets nothing. Who leaves one out tells everybody, by a word that stays; so nobody
//! waits for a PE that waits in vain itself. Should it still be alive, it finds that out before it trusts what it has read.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;

use shmem::{Ctx, Error, ErrorKind, Private, Reservation, Result, SigRef, SymBox, SymSlice, Team, World};

use super::payload::{Bf16, Payload};
use super::refusal::Refusal;
use super::routes::{Routes, Ways};
use super::rows::Rows;
use super::shape::{FLAG, Placement, Places, Shape};
use crate::select::MoeMode;

/// How far a round has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// None is under way.
    Idle,
    /// This PE's tokens are on their way.
    Sent,
    /// Everybody's tokens are here.
    Received,
    /// Outputs are on their way, or there for others to read.
    Returned,
}

/// The memory of an exchange.
pub(super) struct Memory<'t, P: Payload> {
    pub(super) arrivals: SymSlice<'t, u64>,
    pub(super) credits: SymSlice<'t, u64>,
    pub(super) gone: SymSlice<'t, u64>,
    pub(super) headers: SymSlice<'t, u32>,
    pub(super) tokens: SymSlice<'t, u8>,
    pub(super) outputs: SymSlice<'t, P::Elem>,
    pub(super) returned: SymSlice<'t, P::Elem>,
}

/// What checked mode knows of the memory of an exchange: nobody but the library writes there.
pub(super) struct Reserved<'t> {
    _around: [Reservation<'t>; 2],
    outputs: Reservation<'t>,
}

impl<'t> Reserved<'t> {
    pub(super) fn new(
        world: &'t World,
        all: SymSlice<'t, u8>,
        places: &Places,
        site: &'static Location<'static>,
    ) -> Result<Self> {
        let outputs = places.outputs.clone();
        let reserve = |part| Ok::<_, Error>(world.reserve(all.slice(part)?, "moe exchange", 0, site));
        let around = [reserve(0..outputs.start)?, reserve(outputs.end..places.bytes())?];
        Ok(Reserved { _around: around, outputs: reserve(outputs)? })
    }
}

impl<'t, P: Payload> Memory<'t, P> {
    pub(super) fn new(all: SymSlice<'t, u8>, places: &Places) -> Result<Self> {
        Ok(Memory {
            arrivals: all.slice(places.arrivals.clone())?.cast()?,
            credits: all.slice(places.credits.clone())?.cast()?,
            gone: all.slice(places.gone.clone())?.cast()?,
            headers: all.slice(places.headers.clone())?.cast()?,
            tokens: all.slice(places.tokens.clone())?,
            outputs: all.slice(places.outputs.clone())?.cast()?,
            returned: all.slice(places.returned.clone())?.cast()?,
        })
    }
}

/// An exchange between the experts of a mixture, which live on the PEs of a team: see [the module](crate::moe).
///
/// It is made once, by [`builder`](Moe::builder), and used by one thread of each PE at a time. Calls are collective over the
/// team, but for those that say otherwise.
pub struct Moe<'t, P: Payload = Bf16> {
    pub(super) world: &'t World,
    pub(super) team: &'t Team<'t>,
    pub(super) ctx: Ctx<'t, Private>,
    pub(super) shape: Shape,
    pub(super) placement: Placement,
    pub(super) mode: MoeMode,
    pub(super) memory: Memory<'t, P>,
    /// What was allocated for it; memory that was given is its owner's.
    pub(super) block: Option<SymBox<'t, u8>>,
    pub(super) reserved: Reserved<'t>,
    /// This PE's experts.
    pub(super) own: Vec<usize>,
    /// The members' numbers in the world.
    pub(super) members: Vec<usize>,
    /// For each PE, the lowest that shares memory with it; and whether its memory is mapped here.
    pub(super) leaders: Vec<usize>,
    pub(super) mapped: Vec<bool>,
    pub(super) ways: Ways,
    /// PEs that are left out, in the order in which they were.
    pub(super) left_out: Vec<usize>,
    /// Whether lost PEs are left out without a word.
    pub(super) leave_out_lost: bool,
    /// What tells it from all others of this process.
    pub(super) number: u64,
    pub(super) step: u32,
    /// How many PEs were left out when this step was sent.
    pub(super) sent_without: usize,
    pub(super) stage: Stage,
    /// Of each source, what came with its tokens in this step.
    pub(super) arrived: Vec<Option<u32>>,
    /// Of each PE, whether its outputs of this step are there.
    pub(super) given: Vec<bool>,
    pub(super) routes: Routes,
    pub(super) rows: Rows,
    /// Choices whose outputs were missing in the last combination: token and choice.
    pub(super) missing: Vec<(usize, usize)>,
    /// Tokens on their way, where these look otherwise than they were given.
    pub(super) encoded: Vec<u8>,
    pub(super) decoded: RefCell<Vec<u8>>,
    pub(super) moved: usize,
    /// For whom the last call failed.
    pub(super) culprit: Option<usize>,
}

impl<'t, P: Payload> Moe<'t, P> {
    /// The team.
    pub fn team(&self) -> &'t Team<'t> {
        self.team
    }

    /// The experts that live on this PE, in ascending order.
    pub fn own_experts(&self) -> &[usize] {
        &self.own
    }

    /// The PE of an expert, by its number in the team; `None` if there is no such expert.
    pub fn pe_of(&self, expert: usize) -> Option<usize> {
        self.placement.of.get(expert).map(|(pe, _)| *pe as usize)
    }

    /// How tokens go.
    pub fn mode(&self) -> MoeMode {
        self.mode
    }

    /// Bytes of tokens that this PE's last dispatch has put: one token for each PE (each host, in
    /// [`Throughput`](MoeMode::Throughput)) that it went to.
    pub fn moved(&self) -> usize {
        self.moved
    }

    /// Whether a round was sent and is not received yet: then [`dispatch`](Self::dispatch) only receives.
    pub fn is_sent(&self) -> bool {
        self.stage == Stage::Sent
    }

    /// The PE for which the last call failed, by its number in the team: the one that is lost, was not heard of in time, or was
    /// left out by another (which may be this one). [`mask`](Self::mask) leaves it out.
    pub fn culprit(&self) -> Option<usize> {
        self.culprit
    }

    /// The PEs that are left out, by their numbers in the team, in the order in which they were.
    pub fn left_out(&self) -> &[usize] {
        &self.left_out
    }

    /// Leaves a PE out from now on: it is not waited for and gets nothing; what its experts would have made of this PE's tokens is
    /// missing from the sums, and reported as such. After an error that names the PE (`PeerLost`, `Timeout`,
    /// [`Refusal::LeftOut`]), the call that failed can be made again, and goes on where it stopped. Not collective; the others
    /// learn of it when they would wait for the PE, by the error [`Refusal::LeftOut`], and so does the PE itself. There is no way
    /// back.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe); for this PE itself [`BadTeam`](ErrorKind::BadTeam), or [`Refusal::LeftOut`] if another has left it out;
    /// those of the network, where there is one.
    pub fn mask(&mut self, pe: usize) -> Result<()> {
        let (me, n_pes) = (self.team.me(), self.shape.n);
        if pe >= n_pes {
            return Err(ErrorKind::NoSuchPe { pe, n_pes }.into());
        }
        if pe == me {
            self.check_left_out(me)?;
            return Err(ErrorKind::BadTeam(format!("PE {pe} cannot leave itself out")).into());
        }
        if self.ways.masked[pe] {
            return Ok(());
        }
        self.ways.masked[pe] = true;
        self.left_out.push(pe);
        self.ways.lands = lands(self.mode, me, &self.leaders, &self.ways.masked);
        let all = (0..n_pes).filter(|to| *to != me && (*to == pe || !self.ways.masked[*to]));
        let word = SigRef::set(self.memory.gone.at(pe)?, me as u64 + 1);
        // Those behind one that cannot be told are told all the same.
        let mut outcome = Ok(());
        for to in all {
            outcome = outcome.and(unless_lost(self.ctx.signal(word, to)));
        }
        outcome
    }

    /// Gives the memory back. Collective over the world, if the memory was allocated; else make sure that all PEs of the team are here
    /// before the memory is used for anything else.
    ///
    /// # Errors
    /// As [`World::free`].
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let Moe { world, block, reserved, .. } = self;
        // Once it is freed, it may be another PE's to write to.
        drop(reserved);
        block.map_or(Ok(()), |block| world.free(block))
    }

    /// The next stage. In checked mode, experts may write their outputs once tokens were received, and until the round ends.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.reserved.outputs.lend(stage == Stage::Received);
        self.stage = stage;
    }

    /// Sets a word of this PE's at another: what is put there before is there first. A lost PE is told nothing.
    pub(super) fn tell(&self, words: SymSlice<'_, u64>, pe: usize, value: u64) -> Result<()> {
        unless_lost(self.ctx.signal(SigRef::set(words.at(self.team.me() * FLAG)?, value), pe))
    }

    /// Waits for what a PE says of a step, and returns it; fails if the PE, or this one, is left out by another.
    pub(super) fn hear(&self, words: SymSlice<'_, u64>, pe: usize, step: u32) -> Result<u32> {
        let (word, gone, me) = (words.at(pe * FLAG)?, self.memory.gone, self.team.me());
        let has_come = |word: u64| (word >> 32) as u32 == step;
        let is_gone = |pe: usize| gone.read(pe).is_ok_and(|by| by != 0);
        let word = self.ctx.wait_from(word, pe, |word| has_come(word) || is_gone(pe) || is_gone(me))?;
        self.check_left_out(me)?;
        if has_come(word) {
            return Ok(word as u32);
        }
        self.check_left_out(pe)?;
        // Neither word goes back to 0.
        Err(Refusal::LeftOut { pe, by: me }.into())
    }

    /// Fails if a PE has left this one out, and may be writing other outputs than were read.
    pub(super) fn check_outputs(&self) -> Result<()> {
        // What was read before is read before the word is.
        unless_lost(self.ctx.quiet())?;
        self.check_left_out(self.team.me())
    }

    fn check_left_out(&self, pe: usize) -> Result<()> {
        match self.memory.gone.read(pe)? {
            0 => Ok(()),
            by => Err(Refusal::LeftOut { pe, by: by as usize - 1 }.into()),
        }
    }

    /// Leaves out the PE that an error says is lost, or left out by another, where that is done without a word; else notes who it
    /// is, or who was waited for in vain.
    pub(super) fn excuse(&mut self, error: Error, awaited: Option<usize>) -> Result<()> {
        let lost = self.blame(&error, None);
        match lost.filter(|pe| self.leave_out_lost && *pe != self.team.me()) {
            Some(pe) => self.mask(pe),
            None => {
                self.culprit = self.blame(&error, awaited);
                Err(error)
            }
        }
    }

    /// The PE that an error says is lost, or left out by another; or the one that was waited for, if it was for too long.
    pub(super) fn blame(&self, error: &Error, awaited: Option<usize>) -> Option<usize> {
        match (error.kind(), Refusal::of(error)) {
            (ErrorKind::PeerLost { pe, .. }, _) => self.members.iter().position(|member| member == pe),
            (ErrorKind::Timeout { .. }, _) => awaited,
            (_, Some(Refusal::LeftOut { pe, .. })) => Some(pe),
            _ => None,
        }
    }

    /// The PEs that take part, this one last.
    pub(super) fn taking_part(&self) -> impl Iterator<Item = usize> + use<'_, 't, P> {
        let (me, n) = (self.team.me(), self.shape.n);
        (1..=n).map(move |i| (me + i) % n).filter(|pe| !self.ways.masked[*pe])
    }
}

/// For each PE the one to which the values of tokens go that it reads: itself; or, where a token goes to a host once, this one
/// for those that share its memory, and for those of each other host one of them.
pub(super) fn lands(mode: MoeMode, me: usize, leaders: &[usize], masked: &[bool]) -> Vec<u32> {
    let mates = |pe: usize| (0..leaders.len()).filter(move |mate| leaders[*mate] == leaders[pe]);
    // PEs of a host use different ones of another.
    let turn = mates(me).filter(|mate| *mate < me).count();
    let land = |pe: usize| match mode {
        MoeMode::Throughput if leaders[pe] == leaders[me] => me,
        MoeMode::Throughput if !masked[pe] => {
            let living = mates(pe).filter(|mate| !masked[*mate]);
            living.clone().nth(turn % living.count().max(1)).unwrap_or(pe)
        }
        _ => pe,
    };
    (0..leaders.len()).map(|pe| land(pe) as u32).collect()
}

/// What becomes of those that are lost is told where they are waited for.
pub(super) fn unless_lost(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind().is_lost() => Ok(()),
        outcome => outcome,
    }
}

impl<P: Payload> fmt::Debug for Moe<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { experts, max_tokens, hidden, top_k, .. } = self.shape;
        let mut text = f.debug_struct("Moe");
        text.field("experts", &experts).field("max_tokens", &max_tokens).field("hidden", &hidden);
        text.field("top_k", &top_k).field("payload", &P::NAME).field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::received::Received;
    use super::*;

    #[test]
    fn a_token_lands_on_each_host_once() {
        let (leaders, all) = ([0, 0, 2, 2, 2], [false; 5]);
        assert_eq!(lands(MoeMode::Latency, 1, &leaders, &all), [0, 1, 2, 3, 4]);
        assert_eq!(lands(MoeMode::Throughput, 0, &leaders, &all), [0, 0, 2, 2, 2]);
        assert_eq!(lands(MoeMode::Throughput, 1, &leaders, &all), [1, 1, 3, 3, 3]);
        assert_eq!(lands(MoeMode::Throughput, 4, &leaders, &all), [0, 0, 4, 4, 4]);
        let masked = [false, false, false, true, false];
        assert_eq!(lands(MoeMode::Throughput, 1, &leaders, &masked), [1, 1, 4, 3, 4]);
    }

    /// After 2^32 rounds steps begin again, without 0; and every 2^30 rounds the numbers of layouts.
    #[test]
    fn steps_begin_again() {
        for n in [1, 2, 3, 5] {
            let run = |world: &World| {
                let team = world.team();
                for before in [(1 << 30) - 2, u32::MAX - 2] {
                    let mut moe = Moe::builder(world, &team).experts(n).max_tokens(2).hidden(2).build()?;
                    // As if all had combined so many rounds.
                    moe.step = before;
                    for pe in 0..n {
                        moe.memory.credits.write(pe * FLAG, moe.word(0))?;
                    }
                    team.barrier()?;
                    for round in 0..3_u8 {
                        let (tokens, chosen) = ([bf16::from(round); 4], [0, n as i32 - 1]);
                        let received = moe.dispatch(&tokens, &chosen, &[1.0, 2.0])?;
                        let layout = received.layout();
                        pass(&received)?;
                        let mut sums = [bf16::ZERO; 4];
                        moe.combine(&mut sums)?;
                        let expected = [round, round, 2 * round, 2 * round].map(bf16::from);
                        assert_eq!(sums, expected);
                        pass(&moe.dispatch_again(&layout, &tokens)?)?;
                        moe.combine(&mut sums)?;
                        assert_eq!(sums, expected);
                    }
                    assert_eq!(moe.step, if before == u32::MAX - 2 { 4 } else { (1 << 30) + 4 });
                    moe.free()?;
                }
                Ok(())
            };
            shmem::local(n, run).unwrap_or_else(|error| panic!("n = {n}: {error}"));
        }
    }

    /// Experts that return what they get.
    fn pass(received: &Received<'_>) -> Result<()> {
        let mut token = [bf16::ZERO; 2];
        (0..received.experts().len()).flat_map(|expert| received.rows(expert)).try_for_each(|row| {
            received.read(row, &mut token)?;
            received.output(row)?.copy_from(&token)
        })
    }
}
