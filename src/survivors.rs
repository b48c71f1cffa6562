//! The team of those that are left of a team, made without any barrier, since the old one's has a dead member.
//!
//! All members that are left call. Each acknowledges the losses it sees, shows under a key made from who is left which
//! team slots it has free, and takes what the others show under the same key; in a second phase all claim the lowest
//! common slot. Whoever sees another PE go meanwhile starts again without it. The new team's barrier then tells all that
//! all have read.
//!
//! If a PE is lost at the very end, some may have the team while the others start again: their team has a dead member,
//! so its next call fails, they come here again, and the others are waiting for them.

use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::sync::gather::SHOWN;
use crate::sync::{Call, Idle, Why, Words};
use crate::watch::lookout::peer_lost;
use crate::watch::{Board, How, Loss, State};

/// Makes the team of those that are left of `group`. Collective over them. Blocks.
#[track_caller]
pub(crate) fn survivors(core: &Core, group: &Group) -> Result<Group> {
    core.link.require_own_process()?;
    let lookout = core.link.lookout();
    let _open = group.begin(&core.link, Call::Survivors, group.slot().1);
    loop {
        lookout.acknowledge(&lookout.board().losses());
        let left = left(core, group);
        let me = core.link.me();
        let Some(index) = left.iter().position(|pe| *pe == me) else { return Err(given_up(core)) };
        let outcome = gather(core, group, &left, index);
        match &outcome {
            Err(error) if error.kind().is_lost() => continue,
            // Not alike for all: the others may still be at it.
            Err(error) if matches!(error.kind(), ErrorKind::Timeout { .. }) => {}
            _ => group.has_gathered(&left),
        }
        return outcome;
    }
}

/// The members that are not lost and have not left, as world numbers in the team's order.
pub(crate) fn left(core: &Core, group: &Group) -> Vec<usize> {
    let board = core.link.lookout().board();
    group.members().filter(|pe| lives(board, *pe)).collect()
}

/// Whether a PE is not lost, and has not left, which can be seen of those of this host.
pub(crate) fn lives(board: &Board, pe: usize) -> bool {
    board.how(pe).is_none() && board.row(pe).is_none_or(|row| row.state() == State::Running)
}

/// This PE has told the others that it gives up, and they go on without it.
fn given_up(core: &Core) -> Error {
    let (me, row) = (core.link.me(), core.link.lookout().row());
    match row.and_then(|row| row.how()) {
        Some(how) => peer_lost(Loss { pe: me, how }),
        None => ErrorKind::BadTeam(format!("PE {me} is not a member")).into(),
    }
}

/// One try to make a team of exactly `left`; fails with `PeerLost` if another PE goes meanwhile.
fn gather(core: &Core, group: &Group, left: &[usize], index: usize) -> Result<Group> {
    let key = group.key(left);
    let (slot, epoch) = core
        .slots
        .take_common(|attempt, phase, mine| exchange(core, group.slot().0, left, phase, key ^ (attempt << 48), mine))?;
    let made = Group::new(&core.link, &core.layout, left, index, slot, epoch, core.radix);
    if let Err(error) = made.settle(&core.link) {
        core.slots.release(slot, made.slot().1);
        return Err(error);
    }
    Ok(made)
}

/// What each of `left` shows in a phase, in the place of the team in `slot`.
fn exchange(
    core: &Core,
    slot: usize,
    left: &[usize],
    phase: usize,
    key: u64,
    mine: [u64; SHOWN],
) -> Result<Vec<[u64; SHOWN]>> {
    let (link, board) = (&core.link, core.link.lookout().board());
    let place = core.layout.gather(slot);
    place.show(link, link.me(), phase, key, mine)?;
    let mut shown: Vec<Option<[u64; SHOWN]>> = vec![None; left.len()];
    let mut look = || -> Result<Option<usize>> {
        for (&pe, shown) in left.iter().zip(&mut shown).filter(|(_, shown)| shown.is_none()) {
            *shown = place.look(link, pe, phase, key)?;
            if shown.is_none() && !lives(board, pe) {
                let how = board.how(pe).unwrap_or(How::Exited(0));
                return Err(peer_lost(Loss { pe, how }));
            }
        }
        Ok(left.iter().zip(&shown).find(|(_, shown)| shown.is_none()).map(|(pe, _)| *pe))
    };
    let mut idle = Idle::default();
    let outcome = loop {
        match look() {
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
            Ok(Some(pe)) => {
                let why = Why { call: Call::Survivors, on: Some(pe) };
                if let Err(error) = link.pause(&mut idle, why) {
                    break Err(error);
                }
                if idle.bell.is_some() {
                    link.lookout().wait(why.on);
                }
            }
        }
    };
    link.resume(idle);
    outcome.map(|()| shown.into_iter().flatten().collect())
}
