//! Teams: ordered sets of PEs, split from one another. What one team does never disturbs another.
//!
//! A split is collective over the parent: its PEs agree on the arguments and on the lowest slot that is free on all of
//! them. Teams of one split are disjoint and share the slot's number.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::core::Core;
use crate::ctx::{Ctx, Sharing};
use crate::error::{ErrorKind, Result};
use crate::group::{Group, Split, by_value, digest};
use crate::heap::SymSlice;
use crate::survivors::{left, lives, survivors};
use crate::sync::Call;
use crate::sync::barrier::{Arrival, PAYLOAD};
use crate::watch::Begun;
use crate::watch::lookout::Open;

/// An ordered set of PEs, numbered from 0 in the team's order.
///
/// A team is made by splitting another, which is collective over the parent: *all* its PEs must call, also those that
/// will be in no new team. [`destroy`](Team::destroy) gives its slot back; dropping a team does not, since that would
/// have to communicate. There is one handle to a team on each PE, so that none is left when its slot serves another
/// team.
pub struct Team<'w> {
    core: &'w Core,
    group: Arc<Group>,
}

impl<'w> Team<'w> {
    pub(crate) fn new(core: &'w Core, group: Arc<Group>) -> Self {
        Team { core, group }
    }

    /// A context whose PE numbers are this team's. Costs nothing.
    pub fn ctx<S: Sharing>(&self) -> Ctx<'_, S> {
        Ctx::new(self.core, &self.group)
    }

    /// This PE's number in the team.
    pub fn me(&self) -> usize {
        self.group.me()
    }

    /// The number of PEs in the team.
    pub fn n_pes(&self) -> usize {
        self.group.peers().len()
    }

    /// The number that PE `pe` of this team has in `other`; `None` if it is not in there.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe) if this team has no PE `pe`.
    pub fn translate(&self, pe: usize, other: &Team<'_>) -> Result<Option<usize>> {
        let n_pes = self.n_pes();
        let peer = self.group.peers().get(pe).ok_or(ErrorKind::NoSuchPe { pe, n_pes })?;
        Ok(other.group.position(peer.pe))
    }

    /// The world numbers of the members, in team order.
    pub fn members(&self) -> Vec<usize> {
        self.group.members().collect()
    }

    /// The members that live, by their numbers in this team, as far as this PE has been told. Does not block.
    pub fn alive(&self) -> Vec<usize> {
        let left = left(self.core, &self.group);
        self.group.members().enumerate().filter(|(_, pe)| left.contains(pe)).map(|(member, _)| member).collect()
    }

    /// Whether a member lives, as far as this PE has been told; false if there is no such member. Neither blocks nor allocates.
    pub fn is_alive(&self, pe: usize) -> bool {
        let board = self.core.link.lookout().board();
        self.group.peers().get(pe).is_some_and(|peer| lives(board, peer.pe))
    }

    /// The team of the members that are left, in this team's order, after others were lost: everything works on it. By
    /// this call a PE *acknowledges* all losses so far: its calls fail no more because of them, except those on teams
    /// with a lost member. Collective over the members that are left: blocks until all of them have called it, or are
    /// lost, too.
    ///
    /// The team of a world that goes on is made by [`World::survivors`](crate::World::survivors).
    ///
    /// # Errors
    /// [`NoTeamSlot`](ErrorKind::NoTeamSlot) on all PEs alike; [`PeerLost`](ErrorKind::PeerLost) if it is this PE that
    /// has given up ([`World::abandon`](crate::World::abandon)); [`Timeout`](ErrorKind::Timeout).
    #[track_caller]
    pub fn survivors(&self) -> Result<Team<'w>> {
        survivors(self.core, &self.group).map(|group| Team { core: self.core, group: Arc::new(group) })
    }

    /// Blocks until all members have called it. Collective over the team. Says nothing about puts: for that, see
    /// [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) if a member is in another collective call; [`PeerLost`](ErrorKind::PeerLost),
    /// [`Timeout`](ErrorKind::Timeout).
    #[inline]
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        self.group.agree(&self.core.link, Call::Sync, 0)
    }

    /// The host of each member, by a number that it has in the whole job: PEs with the same number share memory.
    pub fn hosts(&self) -> Vec<usize> {
        self.group.members().map(|pe| self.core.hosts[pe]).collect()
    }

    /// Completes this PE's puts everywhere, then blocks until all members have done so: afterwards all of them see all
    /// that was put before. Collective over the team.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    #[inline]
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.core.link.quiet(None)?;
        self.group.agree(&self.core.link, Call::Barrier, 0)
    }

    /// Begins to meet all members for a collective call of a library above this one, without blocking. Collective: all
    /// members enter with the same `digest` of the call and its arguments, and a PE enters its next collective call of
    /// this team only when [`Meeting::poll`] or [`Meeting::wait`] has ended this one.
    #[inline]
    pub fn meet(&self, digest: u64) -> Meeting {
        Meeting(self.group.enter(digest))
    }

    /// Records that the calling thread is in a collective call of a library above this one, until the result is dropped:
    /// reports of stalls and losses then show `name`, `number` (0 for none) and the place in the program, instead of the
    /// steps that the call is made of. Costs some 20 ns, best spent when the call's first signals are out.
    #[inline]
    pub fn calling(&self, name: &'static str, number: u64, site: &'static Location<'static>) -> Calling<'w> {
        let team = self.group.slot().0;
        Calling { _open: self.core.link.lookout().begin(Begun { call: Call::Custom, name, site, number, team }) }
    }

    /// Whether each member hears of every other directly when they meet, so that words can travel with a
    /// [`Meeting`]: true up to 16 members, unless `SHMEM_BARRIER_RADIX` says otherwise.
    pub fn meets_directly(&self) -> bool {
        self.group.barrier().is_flat()
    }

    /// Symmetric memory that is the team's own, on all its members at the same place: `SHMEM_TEAM_WORKSPACE` bytes, at
    /// a multiple of a pair of cache lines, holding whatever an earlier team left there. For one library that builds
    /// collectives on this team.
    pub fn workspace(&self) -> SymSlice<'w, u8> {
        let place = self.core.layout.workspace(self.group.slot().0);
        SymSlice::new(self.core.heap().front(), place.start, place.len())
    }

    /// The team of the PEs `start`, `start + stride`, … (`size` of them, numbered in this order), or `None` on PEs
    /// outside it. The numbers are this team's, whatever its own stride; a negative stride counts down. Collective over
    /// this team, with the same arguments on all its PEs.
    ///
    /// # Errors
    /// [`BadTeam`](ErrorKind::BadTeam) if the numbers leave this team, [`NoTeamSlot`](ErrorKind::NoTeamSlot) if no slot
    /// is left: on all PEs alike; and as [`sync`](Self::sync).
    #[track_caller]
    pub fn split_strided(&self, start: usize, stride: isize, size: usize) -> Result<Option<Team<'w>>> {
        let wanted = strided(start, stride, size, self.n_pes());
        let mine = [start as u64, stride as u64, size as u64];
        self.split_alike(Split::Strided, mine, |_| wanted.map(|members| vec![members]))
    }

    /// The team of the listed PEs, in the list's order, or `None` on PEs outside it. Collective over this team, with
    /// the same list on all its PEs.
    ///
    /// # Errors
    /// As [`split_strided`](Self::split_strided); a PE may not be listed twice.
    #[track_caller]
    pub fn split_list(&self, pes: &[usize]) -> Result<Option<Team<'w>>> {
        let n = self.n_pes();
        let bad = |why| Err(ErrorKind::BadTeam(why).into());
        let wanted = if pes.is_empty() {
            bad("an empty list of PEs".into())
        } else if let Some(pe) = pes.iter().find(|pe| **pe >= n) {
            Err(ErrorKind::NoSuchPe { pe: *pe, n_pes: n }.into())
        } else if let Some((_, pe)) = pes.iter().enumerate().find(|(i, pe)| pes[..*i].contains(pe)) {
            bad(format!("PE {pe} is listed twice"))
        } else {
            Ok(pes.to_vec())
        };
        let mine = [pes.len() as u64, digest(pes.iter().map(|pe| *pe as u64)), 0];
        self.split_alike(Split::List, mine, |_| wanted.map(|members| vec![members]))
    }

    /// One team for each colour, of the PEs that gave it, in the order of their keys (of their numbers, where keys are
    /// equal); `None` on PEs that gave no colour. Collective over this team.
    ///
    /// # Errors
    /// [`NoTeamSlot`](ErrorKind::NoTeamSlot) on all PEs alike; and as [`sync`](Self::sync).
    #[track_caller]
    pub fn split_colour(&self, colour: Option<u64>, key: i64) -> Result<Option<Team<'w>>> {
        let mine = [u64::from(colour.is_some()), colour.unwrap_or(0), key as u64];
        self.split(Split::Colour, mine, |records| {
            let mut order: Vec<usize> = (0..records.len()).filter(|pe| records[*pe][0] == 1).collect();
            order.sort_by_key(|&pe| (records[pe][1], records[pe][2] as i64, pe));
            Ok(order.chunk_by(|a, b| records[*a][1] == records[*b][1]).map(<[usize]>::to_vec).collect())
        })
    }

    /// This team as a grid of rows of `x_range` PEs: the team of this PE's row and the team of its column. The last row
    /// may be shorter. Collective over this team, with the same argument on all its PEs.
    ///
    /// # Errors
    /// [`BadTeam`](ErrorKind::BadTeam) if `x_range` is 0; and as [`split_strided`](Self::split_strided).
    #[track_caller]
    pub fn split_2d(&self, x_range: usize) -> Result<(Team<'w>, Team<'w>)> {
        let n = self.n_pes();
        let line = |by_row: bool| {
            if x_range == 0 {
                return Err(ErrorKind::BadTeam("rows of 0 PEs".into()).into());
            }
            let lines = if by_row { n.div_ceil(x_range) } else { x_range.min(n) };
            Ok((0..lines)
                .map(|l| (0..n).filter(|pe| l == if by_row { pe / x_range } else { pe % x_range }).collect())
                .collect())
        };
        let mine = [x_range as u64, 0, 0];
        let row = self.split_alike(Split::Rows, mine, |_| line(true))?;
        let column = self.split_alike(Split::Columns, mine, |_| line(false));
        match (row, column) {
            (Some(row), Ok(Some(column))) => Ok((row, column)),
            (Some(row), Err(error)) => row.destroy().and(Err(error)),
            // Every PE is in a row and in a column.
            _ => Err(ErrorKind::BadTeam(format!("PE {} is in no row of {x_range}", self.me())).into()),
        }
    }

    /// Ends the team: its slot can be used again. Collective over the team. The world's team and the team of a host do
    /// not end.
    ///
    /// # Errors
    /// [`BadTeam`](ErrorKind::BadTeam) for a team that does not end; and as [`sync`](Self::sync): the slot then stays
    /// taken until the world ends.
    #[track_caller]
    pub fn destroy(self) -> Result<()> {
        if self.core.is_permanent(&self.group) {
            return Err(ErrorKind::BadTeam("the world's team and the host's last as long as the world".into()).into());
        }
        self.group.agree(&self.core.link, Call::Destroy, 0)?;
        let (slot, epoch) = self.group.slot();
        if let Some(check) = self.core.heap().check() {
            check.team_destroyed(slot, Location::caller());
        }
        self.core.slots.release(slot, epoch);
        Ok(())
    }

    /// A split whose arguments `mine` must be equal on all PEs.
    #[track_caller]
    fn split_alike(
        &self,
        split: Split,
        mine: [u64; 3],
        choose: impl FnOnce(&[[u64; 3]]) -> Result<Vec<Vec<usize>>>,
    ) -> Result<Option<Team<'w>>> {
        self.split(split, mine, |records| {
            if records.iter().all(|record| record == &mine) {
                return choose(records);
            }
            let said: Vec<String> = records.iter().map(|record| split.describe(*record)).collect();
            Err(ErrorKind::Mismatch { report: by_value(&said, "calls", "call") }.into())
        })
    }

    /// The one way to new teams: exchanges each PE's `mine`, chooses members (numbers of this team) from all of them,
    /// equally on all PEs, and takes a slot.
    #[track_caller]
    fn split(
        &self,
        split: Split,
        mine: [u64; 3],
        choose: impl FnOnce(&[[u64; 3]]) -> Result<Vec<Vec<usize>>>,
    ) -> Result<Option<Team<'w>>> {
        let (core, link) = (self.core, &self.core.link);
        link.require_own_process()?;
        let _open = self.group.begin(link, Call::Split, self.group.slot().1 + 1);
        self.group.agree(link, Call::Split, split as u64)?;
        let [a, b, c] = mine;
        let mut arguments = Vec::new();
        let (slot, epoch) = core.slots.take_common(|_, _, [d, e, f, g]| {
            // The arguments travel along, each time.
            let records = self.group.exchange(link, [a, b, c, d, e, f, g, 0])?;
            arguments = records.iter().map(|record| [record[0], record[1], record[2]]).collect();
            Ok(records.iter().map(|record| [record[3], record[4], record[5], record[6]]).collect())
        })?;
        let teams = choose(&arguments);
        let mine = teams.map(|teams| {
            teams.into_iter().find_map(|team| team.iter().position(|pe| *pe == self.me()).map(|me| (team, me)))
        });
        let Ok(Some((team, me))) = mine else {
            core.slots.give_back(slot);
            return mine.map(|_| None);
        };
        let members: Vec<usize> = team.iter().map(|pe| self.group.peers()[*pe].pe).collect();
        tracing::debug!(slot, ?members, "team split");
        let group = Group::new(link, &core.layout, &members, me, slot, epoch, core.radix);
        Ok(Some(Team { core, group: Arc::new(group) }))
    }
}

/// A [`call`](Team::calling) that reports show; it ends when dropped.
#[must_use]
pub struct Calling<'w> {
    _open: Open<'w>,
}

/// A [`meet`](Team::meet) under way.
#[derive(Debug)]
pub struct Meeting(Arrival);

impl Meeting {
    /// Words that can travel with a meeting to each member, in a team whose members hear of each other directly
    /// ([`Team::meets_directly`]).
    pub const PAYLOAD: usize = PAYLOAD;

    /// Lets some words, up to [`PAYLOAD`](Self::PAYLOAD), travel to another member with the meeting. Does not block. Before the first
    /// [`poll`](Self::poll) or [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of the network, where there is one.
    #[inline]
    pub fn send(&self, team: &Team<'_>, to: usize, payload: &[u64]) -> Result<()> {
        let (n, me) = (team.n_pes(), team.me());
        team.core.link.require_own_process()?;
        team.group.barrier().send(&team.core.link, &self.0, (to + n - me) % n, payload)
    }

    /// The words that another member has sent with the meeting, after it and before this PE's next collective call of the team. Does not block.
    ///
    /// # Errors
    /// Those of the network, where there is one.
    #[inline]
    pub fn receive(&self, team: &Team<'_>, from: usize, payload: &mut [u64]) -> Result<()> {
        let (n, me) = (team.n_pes(), team.me());
        team.group.barrier().receive(&team.core.link, &self.0, (me + n - from) % n, payload)
    }

    /// Whether all members of `team` have entered with the same digest. Does not block. `call` is this PE's call with its arguments, for the report; of
    /// it 1024 bytes are shown.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch), on all members, if they entered with different digests or are in other calls.
    #[inline]
    pub fn poll(&mut self, team: &Team<'_>, call: impl FnOnce() -> String) -> Result<bool> {
        team.group.poll(&team.core.link, &mut self.0, call)
    }

    /// Blocks until all members of `team` have entered with the same digest.
    ///
    /// # Errors
    /// As [`poll`](Self::poll); [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[inline]
    #[track_caller]
    pub fn wait(&mut self, team: &Team<'_>, call: impl FnOnce() -> String) -> Result<()> {
        team.group.finish(&team.core.link, &mut self.0, call)
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("me", &self.me()).field("members", &self.members()).finish()
    }
}

/// The members of a strided team of a parent of `n`.
fn strided(start: usize, stride: isize, size: usize, n: usize) -> Result<Vec<usize>> {
    let bad = |why: String| Err(ErrorKind::BadTeam(why).into());
    if size == 0 {
        return bad("0 PEs".into());
    }
    if stride == 0 && size > 1 {
        return bad(format!("{size} PEs at stride 0"));
    }
    // What is negative in C is larger than any number of a PE here, and told as it was.
    let first = start as isize as i128;
    let last = (size as i128 - 1) * stride as i128 + first;
    if start >= n || last < 0 || last >= n as i128 {
        return bad(format!("PEs {first} to {last} at stride {stride} leave a team of {n}"));
    }
    Ok((0..size).map(|i| (first + i as i128 * stride as i128) as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_members_are_the_parents_numbers() {
        assert_eq!(strided(4, -2, 3, 5).unwrap(), [4, 2, 0]);
        assert_eq!(strided(1, 3, 2, 5).unwrap(), [1, 4]);
        assert_eq!(strided(2, 0, 1, 3).unwrap(), [2]);
        for (start, stride, size) in
            [(0, 1, 6), (5, 1, 1), (0, -1, 2), (0, 0, 2), (0, 1, 0), (1, isize::MAX, 3), (0, isize::MIN, 2)]
        {
            assert!(strided(start, stride, size, 5).is_err(), "{start} {stride} {size}");
        }
        let error = strided(-1_isize as usize, 1, 2, 5).unwrap_err().to_string();
        assert!(error.contains("PEs -1 to 0 at stride 1 leave a team of 5"), "{error}");
    }
}
