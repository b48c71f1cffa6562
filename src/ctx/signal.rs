//! Signals, and waiting for symmetric variables.
//!
//! A waiter spins, then yields, then sleeps. Signals wake a sleeper at once; it finds what a put or an atomic
//! wrote within 3 ms.

use std::cell::Cell;
use std::panic::Location;

use crate::ctx::{Access, Ctx, Sharing};
use crate::elem::Elem;
use crate::error::{ErrorKind, Result};
use crate::heap::SymSlice;
use crate::sync::signal::{self, Signal};
use crate::sync::words::{wait_by, wait_for};
use crate::sync::{Call, Why, Word};
use crate::watch::Begun;

/// A signal: a symmetric 64-bit word and how to change it.
#[derive(Clone, Copy, Debug)]
pub struct SigRef<'w> {
    word: SymSlice<'w, u64>,
    signal: Signal,
}

impl<'w> SigRef<'w> {
    /// The first element of `word` becomes `value`.
    pub fn set(word: SymSlice<'w, u64>, value: u64) -> Self {
        SigRef { word, signal: Signal::Set(value) }
    }

    /// `value` is added to the first element of `word`, wrapping.
    pub fn add(word: SymSlice<'w, u64>, value: u64) -> Self {
        SigRef { word, signal: Signal::Add(value) }
    }

    pub(super) fn signal(self) -> Signal {
        self.signal
    }
}

/// How a waiter compares a symmetric variable with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// It equals the value.
    Eq,
    /// It differs from it.
    Ne,
    /// It is greater.
    Gt,
    /// It is greater or equal.
    Ge,
    /// It is less.
    Lt,
    /// It is less or equal.
    Le,
}

impl Cmp {
    /// Whether the comparison holds between `variable` and `value`.
    #[inline]
    pub fn holds<T: Ord>(self, variable: T, value: T) -> bool {
        match self {
            Cmp::Eq => variable == value,
            Cmp::Ne => variable != value,
            Cmp::Gt => variable > value,
            Cmp::Ge => variable >= value,
            Cmp::Lt => variable < value,
            Cmp::Le => variable <= value,
        }
    }
}

/// What several variables are compared with: one value, or one for each.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a, T> {
    /// The same value for all.
    Same(T),
    /// One value for each variable.
    Each(&'a [T]),
}

impl<T: Elem + Ord> From<T> for Values<'_, T> {
    fn from(value: T) -> Self {
        Values::Same(value)
    }
}

impl<'a, T: Elem + Ord> From<&'a [T]> for Values<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Values::Each(values)
    }
}

impl<'a, T: Elem + Ord, const N: usize> From<&'a [T; N]> for Values<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        Values::Each(values)
    }
}

impl<S: Sharing> Ctx<'_, S> {
    /// Copies `source` to the beginning of `target` on `pe`, then signals there: whoever sees the signal sees the data, and
    /// what this context has put there before. Blocks until `source` may be reused; the signal arrives without any further call.
    ///
    /// # Errors
    /// As [`put`](Ctx::put), for the target and for the signal's word.
    #[inline]
    #[track_caller]
    pub fn put_signal<T: Elem>(
        &self,
        target: SymSlice<'_, T>,
        source: &[T],
        signal: SigRef<'_>,
        pe: usize,
    ) -> Result<()> {
        let word = self.signal_word(signal, pe)?;
        let peer = self.peer(target, source.len(), Access::Write, pe)?;
        self.put_signal_to(peer, target, source, (word, signal.signal))
    }

    /// Signals on `pe`, after all that this PE has put there. Does not block.
    ///
    /// # Errors
    /// [`NoSuchPe`](ErrorKind::NoSuchPe), [`OutOfRange`](ErrorKind::OutOfRange) if the word is empty,
    /// [`OtherWorld`](ErrorKind::OtherWorld).
    #[inline]
    #[track_caller]
    pub fn signal(&self, signal: SigRef<'_>, pe: usize) -> Result<()> {
        let word = self.signal_word(signal, pe)?;
        signal::deliver(&self.words(), || Ok(()), word, signal.signal)
    }

    /// This PE's copy of a signal's word; what was put before the signal is visible afterwards. Does not block.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if the word is empty, [`OtherWorld`](ErrorKind::OtherWorld).
    #[inline]
    #[track_caller]
    pub fn signal_fetch(&self, word: SymSlice<'_, u64>) -> Result<u64> {
        self.own(word, 1, Access::Read)?;
        word.read(0)
    }

    /// Blocks until the first element of this PE's copy of `variable` satisfies `ready`, and returns it; what was put
    /// before it was written is visible afterwards.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if the object is empty, [`OtherWorld`](ErrorKind::OtherWorld);
    /// [`PeerLost`](ErrorKind::PeerLost), [`Timeout`](ErrorKind::Timeout).
    #[inline]
    #[track_caller]
    pub fn wait<T: Elem + Ord>(&self, variable: SymSlice<'_, T>, ready: impl Fn(T) -> bool) -> Result<T> {
        self.own(variable, 1, Access::Read)?;
        let value = variable.read(0)?;
        if ready(value) {
            return Ok(value);
        }
        self.wait_for(|| variable.read(0).map(|value| ready(value).then_some(value)))
    }

    /// [`wait`](Self::wait) until the comparison with `value` holds.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline]
    #[track_caller]
    pub fn wait_until<T: Elem + Ord>(&self, variable: SymSlice<'_, T>, cmp: Cmp, value: T) -> Result<T> {
        self.wait(variable, |variable| cmp.holds(variable, value))
    }

    /// [`wait`](Self::wait) for what PE `from` writes: reports of stalls and time-outs name that PE, and of all losses only
    /// that of this PE ends the wait. So a protocol can go on among those that live, before anybody has
    /// [acknowledged](crate::Team::survivors) a loss.
    ///
    /// ```
    /// # use shmem::{Shared, SigRef};
    /// let heard = shmem::local(3, |world| -> shmem::Result<bool> {
    ///     let (ctx, bell) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(1)?);
    ///     match world.me() {
    ///         0 => Ok(ctx.wait_from(bell.sym(), 1, |rung| rung == 1).is_ok()), // whatever becomes of PE 2
    ///         1 => ctx.signal(SigRef::set(bell.sym(), 1), 0).map(|()| true),
    ///         _ => {
    ///             world.abandon();
    ///             Ok(false)
    ///         }
    ///     }
    /// })?;
    /// assert_eq!(heard, [true, true, false]);
    /// # Ok::<(), shmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`NoSuchPe`](ErrorKind::NoSuchPe).
    #[inline]
    #[track_caller]
    pub fn wait_from<T: Elem + Ord>(
        &self,
        variable: SymSlice<'_, T>,
        from: usize,
        ready: impl Fn(T) -> bool,
    ) -> Result<T> {
        self.own(variable, 1, Access::Read)?;
        let value = variable.read(0)?;
        if ready(value) {
            return Ok(value);
        }
        let peer = self.peer(variable, 1, Access::Read, from)?;
        let begun = Begun { call: Call::Wait, name: "", site: Location::caller(), number: 0, team: 0 };
        let _open = self.link().lookout().begin(begun);
        let why = Why { call: Call::Wait, on: Some(peer.pe) };
        let poll = || variable.read(0).map(|value| ready(value).then_some(value));
        wait_by(self.link(), |idle| self.link().pause_for(idle, why), poll)
    }

    /// Whether the comparison holds now for the first element of this PE's copy of `variable`. Does not block.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) if the object is empty, [`OtherWorld`](ErrorKind::OtherWorld).
    #[inline]
    #[track_caller]
    pub fn test<T: Elem + Ord>(&self, variable: SymSlice<'_, T>, cmp: Cmp, value: T) -> Result<bool> {
        self.own(variable, 1, Access::Read)?;
        Ok(cmp.holds(variable.read(0)?, value))
    }

    /// Blocks until the comparison has held once for every element of this PE's copy of `variables`. Elements whose
    /// `status` is not 0 are left out; an empty `status` leaves none out. If all are left out, returns at once.
    ///
    /// # Errors
    /// [`Length`](ErrorKind::Length) if `status` or the values are not as many as the variables; else as
    /// [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_until_all<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<()> {
        let set = self.set(variables, status, cmp, values.into())?;
        let mut pending: Vec<usize> = set.members().collect();
        self.wait_for(|| {
            pending.retain(|&i| !set.holds(i));
            Ok(pending.is_empty().then_some(()))
        })
    }

    /// Blocks until the comparison holds for an element of this PE's copy of `variables` that `status` does not leave
    /// out, and returns its index; `None`, at once, if all are left out. Each call looks at another one first, so that none is
    /// passed over for ever.
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all).
    #[track_caller]
    pub fn wait_until_any<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<Option<usize>> {
        let set = self.set(variables, status, cmp, values.into())?;
        if set.members().next().is_none() {
            return Ok(None);
        }
        self.wait_for(|| Ok(set.any())).map(Some)
    }

    /// Blocks until the comparison holds for at least one element of this PE's copy of `variables` that `status` does
    /// not leave out, and returns the indices of all for which it does; empty, at once, if all are left out.
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all).
    #[track_caller]
    pub fn wait_until_some<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<Vec<usize>> {
        let set = self.set(variables, status, cmp, values.into())?;
        if set.members().next().is_none() {
            return Ok(Vec::new());
        }
        self.wait_for(|| {
            let found: Vec<usize> = set.members().filter(|i| set.holds(*i)).collect();
            Ok((!found.is_empty()).then_some(found))
        })
    }

    /// Whether the comparison holds now for every element that [`wait_until_all`](Self::wait_until_all) would wait for.
    /// Does not block.
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all), without those of waiting.
    #[track_caller]
    pub fn test_all<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<bool> {
        let set = self.set(variables, status, cmp, values.into())?;
        Ok(set.members().all(|i| set.holds(i)))
    }

    /// The index of an element for which the comparison holds now and that `status` does not leave out. Each call looks at
    /// another one first, so that none is passed over for ever. Does not block.
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all), without those of waiting.
    #[track_caller]
    pub fn test_any<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<Option<usize>> {
        let set = self.set(variables, status, cmp, values.into())?;
        Ok(set.any())
    }

    /// The indices of all elements for which the comparison holds now and that `status` does not leave out. Does not
    /// block.
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all), without those of waiting.
    #[track_caller]
    pub fn test_some<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'_, T>,
        status: &[i32],
        cmp: Cmp,
        values: impl Into<Values<'a, T>>,
    ) -> Result<Vec<usize>> {
        let set = self.set(variables, status, cmp, values.into())?;
        Ok(set.members().filter(|i| set.holds(*i)).collect())
    }

    #[track_caller]
    fn wait_for<T>(&self, poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let begun = Begun { call: Call::Wait, name: "", site: Location::caller(), number: 0, team: 0 };
        let _open = self.link().lookout().begin(begun);
        wait_for(self.link(), Why { call: Call::Wait, on: None }, poll)
    }

    #[inline(always)]
    #[track_caller]
    pub(super) fn signal_word(&self, signal: SigRef<'_>, pe: usize) -> Result<Word> {
        let peer = self.peer(signal.word, 1, Access::Write, pe)?;
        if signal.word.is_empty() {
            return Err(signal.word.out_of_range(0, 1));
        }
        Ok(Word { pe: peer.pe, at: signal.word.offset() })
    }

    #[track_caller]
    fn set<'a, T: Elem + Ord>(
        &self,
        variables: SymSlice<'a, T>,
        status: &'a [i32],
        cmp: Cmp,
        values: Values<'a, T>,
    ) -> Result<Set<'a, T>> {
        self.own(variables, variables.len(), Access::Read)?;
        self.core.heap().require_access(&variables.bytes())?;
        let needed = variables.len();
        if !status.is_empty() && status.len() != needed {
            return Err(ErrorKind::Length { what: "status", given: status.len(), needed }.into());
        }
        match values {
            Values::Each(values) if values.len() != needed => {
                Err(ErrorKind::Length { what: "values", given: values.len(), needed }.into())
            }
            _ => Ok(Set { variables, status, cmp, values }),
        }
    }
}

/// Some symmetric variables and what is asked of them.
struct Set<'a, T> {
    variables: SymSlice<'a, T>,
    status: &'a [i32],
    cmp: Cmp,
    values: Values<'a, T>,
}

impl<T: Elem + Ord> Set<'_, T> {
    /// The indices that the status does not leave out.
    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.variables.len()).filter(|i| self.status.get(*i).is_none_or(|status| *status == 0))
    }

    /// One of the members for which the comparison holds: the first from a place that is the next in each call of a thread.
    fn any(&self) -> Option<usize> {
        thread_local!(static TURN: Cell<usize> = const { Cell::new(0) });
        let turn = TURN.replace(TURN.get().wrapping_add(1)).checked_rem(self.variables.len())?;
        let found = |i: &usize| self.holds(*i);
        self.members().skip_while(|i| *i < turn).find(found).or_else(|| self.members().find(found))
    }

    fn holds(&self, i: usize) -> bool {
        let value = match self.values {
            Values::Same(value) => value,
            Values::Each(values) => values[i],
        };
        self.variables.read(i).is_ok_and(|variable| self.cmp.holds(variable, value))
    }
}
