//! PEs that are threads of one process: they meet under one mutex.
//!
//! A round ends when every PE has made its deposit; the last one turns the deposits into the result, which all then
//! read. No PE can begin the round after the next before all have read this one, since that round lacks their deposit;
//! so one result at a time is enough. A `Local` that is dropped marks its PE as gone, and a round that lacks it fails
//! for all.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Bootstrap;
use crate::error::{ErrorKind, Result};

/// One PE of a group of threads, see [`group`].
pub struct Local {
    me: usize,
    n_pes: usize,
    table: Arc<Table>,
}

/// `n` PEs that meet inside this process, in PE order; move each to its own thread. If one is dropped, the calls of the
/// others that need it fail at once with [`ErrorKind::PeerLost`].
pub fn group(n: usize) -> Vec<Local> {
    let round = Round { number: 0, deposits: vec_of_none(n), result: Arc::default(), gone: None };
    let table = Arc::new(Table { round: Mutex::new(round), ended: Condvar::new() });
    (0..n).map(|me| Local { me, n_pes: n, table: table.clone() }).collect()
}

struct Table {
    round: Mutex<Round>,
    /// Signalled when a round ends or a PE goes.
    ended: Condvar,
}

struct Round {
    number: u64,
    deposits: Vec<Option<Deposit>>,
    result: Arc<Vec<Deposit>>,
    gone: Option<usize>,
}

struct Deposit {
    bytes: Vec<u8>,
    descriptor: Option<Arc<OwnedFd>>,
}

fn vec_of_none(n: usize) -> Vec<Option<Deposit>> {
    (0..n).map(|_| None).collect()
}

impl Table {
    /// The state is whole between any two statements, so a panic elsewhere cannot have broken it.
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local {
    fn exchange(&mut self, mine: Deposit) -> Result<Arc<Vec<Deposit>>> {
        let mut round = self.table.lock();
        let number = round.number;
        round.deposits[self.me] = Some(mine);
        if round.deposits.iter().all(Option::is_some) {
            let all = std::mem::replace(&mut round.deposits, vec_of_none(self.n_pes));
            round.result = Arc::new(all.into_iter().flatten().collect());
            round.number += 1;
            self.table.ended.notify_all();
        }
        while round.number == number {
            if let Some(pe) = round.gone {
                let reason = "its thread ended before all PEs were done with start-up".into();
                return Err(ErrorKind::PeerLost { pe, reason }.into());
            }
            round = self.table.ended.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(round.result.clone())
    }
}

impl Bootstrap for Local {
    fn me(&self) -> usize {
        self.me
    }

    fn n_pes(&self) -> usize {
        self.n_pes
    }

    fn led(&self) -> bool {
        false
    }

    fn show(&mut self, _: &OwnedFd, _: usize) -> Result<()> {
        Ok(())
    }

    fn allgather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = self.exchange(Deposit { bytes: mine.to_vec(), descriptor: None })?;
        Ok(all.iter().map(|deposit| deposit.bytes.clone()).collect())
    }

    fn hand_over(&mut self, mine: OwnedFd, host: &[usize]) -> Result<Vec<Arc<OwnedFd>>> {
        super::handover::check_host(self.me, self.n_pes, host)?;
        let all = self.exchange(Deposit { bytes: Vec::new(), descriptor: Some(Arc::new(mine)) })?;
        Ok(host.iter().filter_map(|&pe| all[pe].descriptor.clone()).collect())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut round = self.table.lock();
        // The first to go is the cause; the others follow from it.
        round.gone.get_or_insert(self.me);
        self.table.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::handover::tests::{descriptors_are_the_peers, file_of};
    use std::thread;

    fn on_threads<T: Send>(n: usize, f: impl Fn(Local) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let threads: Vec<_> = group(n).into_iter().map(|pe| scope.spawn(|| f(pe))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn rounds_return_every_pes_bytes() {
        for n in [1, 2, 3, 5, 8, 16] {
            on_threads(n, |mut pe| {
                for round in 0..100u64 {
                    let mine = (pe.me() as u64 * 1000 + round).to_le_bytes();
                    let all = pe.allgather(&mine).unwrap();
                    let expected: Vec<_> = (0..n as u64).map(|p| (p * 1000 + round).to_le_bytes().to_vec()).collect();
                    assert_eq!(all, expected);
                }
            });
        }
    }

    #[test]
    fn descriptors_are_those_of_the_peers() {
        on_threads(5, |mut pe| {
            let host: Vec<usize> = (0..5).collect();
            descriptors_are_the_peers(&mut pe, &host);
        });
        on_threads(4, |mut pe| {
            let host = if pe.me() % 2 == 0 { [0, 2] } else { [1, 3] };
            descriptors_are_the_peers(&mut pe, &host);
        });
    }

    #[test]
    fn a_pe_that_leaves_is_named() {
        let results = on_threads(3, |mut pe| {
            pe.allgather(b"first").unwrap();
            if pe.me() == 1 {
                return None;
            }
            Some(pe.allgather(b"second").unwrap_err())
        });
        for e in results.into_iter().flatten() {
            assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{e}");
        }
    }

    #[test]
    fn a_host_list_without_me_is_refused() {
        let mut pe = group(1).remove(0);
        assert!(pe.hand_over(file_of(0), &[]).is_err());
        assert!(pe.hand_over(file_of(0), &[1]).is_err());
        assert_eq!(pe.hand_over(file_of(0), &[0]).unwrap().len(), 1);
    }
}
