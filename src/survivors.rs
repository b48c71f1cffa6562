//! The team of those that are left of a team, made without any barrier, since the old one's has a dead member.
//!
//! All members that are left call. Each acknowledges the losses it sees, shows under a key made from who is left which
//! team slots it has free, and takes what the others show under the same key; in a second phase all claim the lowest
//! common slot. Whoever sees another PE go meanwhile starts again without it. The new team's barrier then tells all that
//! all have read.
//!
//! If a PE is lost at the very end, some may have the team while the others start again: their team has a dead member,
//! so its next call fails, they come here again, and the others are waiting for them.

use std::sync::{Arc, PoisonError};

use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::sync::gather::SHOWN;
use crate::sync::words::wait_for;
use crate::sync::{Call, Why};
use crate::watch::lookout::peer_lost;
use crate::watch::{Loss, State};

/// Makes the team of those that are left of `group`. Collective over them. Blocks.
#[track_caller]
pub(crate) fn survivors(core: &Core, group: &Group) -> Result<Arc<Group>> {
    core.link.require_own_process()?;
    let lookout = core.link.lookout();
    let _open = group.begin(&core.link, Call::Survivors, group.slot().1);
    let _one_at_a_time = core.gathering.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        lookout.acknowledge(&lookout.board().losses());
        let left = left(core, group);
        let me = core.link.me();
        let Some(index) = left.iter().position(|pe| *pe == me) else { return Err(given_up(core)) };
        match gather(core, &left, index, group.slot().0) {
            Err(error) if matches!(error.kind(), ErrorKind::PeerLost { .. }) => {}
            outcome => return outcome.map(Arc::new),
        }
    }
}

/// The members that are not lost and have not left, as world numbers in the team's order.
pub(crate) fn left(core: &Core, group: &Group) -> Vec<usize> {
    let board = core.link.lookout().board();
    let lives = |pe: &usize| board.row(*pe).is_some_and(|row| row.how().is_none() && row.state() == State::Running);
    group.members().filter(lives).collect()
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
fn gather(core: &Core, left: &[usize], index: usize, slot: usize) -> Result<Group> {
    let key = left.iter().fold(slot as u64 + 1, |key, pe| (key ^ *pe as u64).wrapping_mul(0x100_0000_01b3)) | 1 << 63;
    let (slot, epoch) = take_slot(core, left, key)?;
    let group = Group::new(&core.link, &core.layout, left, index, slot, epoch, core.radix);
    let row = core.link.lookout().row();
    let read_by_all = group.settle(&core.link).and_then(|()| {
        row.inspect(|row| row.gather().clear(row));
        group.settle(&core.link)
    });
    if let Err(error) = read_by_all {
        core.slots.release(slot, group.slot().1);
        return Err(error);
    }
    Ok(group)
}

/// Takes the lowest slot that is free on all of them, and the last epoch in it.
fn take_slot(core: &Core, left: &[usize], key: u64) -> Result<(usize, u64)> {
    for attempt in 0.. {
        let key = key ^ (attempt << 48);
        let free = exchange(core, left, 0, key, core.slots.free_map())?;
        let slot = core.slots.common(&free).ok_or(ErrorKind::NoTeamSlot { slots: core.layout.slots })?;
        // Another thread may be splitting another team, and may have been faster.
        let taken = core.slots.take(slot);
        let mine = [taken.is_some().into(), taken.unwrap_or(0), 0, 0];
        let claims = exchange(core, left, 1, key, mine).inspect_err(|_| {
            if taken.is_some() {
                core.slots.give_back(slot);
            }
        })?;
        if claims.iter().all(|claim| claim[0] == 1) {
            return Ok((slot, claims.iter().map(|claim| claim[1]).max().unwrap_or(0)));
        }
        if taken.is_some() {
            core.slots.give_back(slot);
        }
    }
    unreachable!("the loop has no end")
}

/// What each of `left` shows in a phase.
fn exchange(core: &Core, left: &[usize], phase: usize, key: u64, mine: [u64; SHOWN]) -> Result<Vec<[u64; SHOWN]>> {
    let (link, board) = (&core.link, core.link.lookout().board());
    let rows: Vec<_> = left.iter().filter_map(|pe| board.row(*pe)).collect();
    if let Some(row) = link.lookout().row() {
        row.gather().show(&row, phase, key, mine);
    }
    let mut shown: Vec<Option<[u64; SHOWN]>> = vec![None; rows.len()];
    let awaited = left.iter().copied().find(|pe| *pe != link.me());
    wait_for(link, Why { call: Call::Survivors, on: awaited }, || {
        for (row, shown) in rows.iter().zip(&mut shown).filter(|(_, shown)| shown.is_none()) {
            *shown = row.gather().look(row, phase, key);
            if shown.is_none() && (row.how().is_some() || row.state() != State::Running) {
                let how = row.how().unwrap_or(crate::watch::How::Exited(0));
                return Err(peer_lost(Loss { pe: row.pe, how }));
            }
        }
        Ok(shown.iter().copied().collect())
    })
}
