//! Atomics on single elements: correct against all PEs at once, the owner included, and against each other whatever
//! their kind. Those that return a value block until they have it; the others do not, except over a network whose card
//! does not have the operation: it adds to 64 bits and compares and swaps them, and all others are made of that. All take
//! the first element of `target`.

use crate::ctx::{Access, Ctx, Sharing};
use crate::elem::{AmoElem, AmoInt};
use crate::error::Result;
use crate::heap::SymSlice;
use crate::transport::amo::AmoOp;

impl<S: Sharing> Ctx<'_, S> {
    /// Reads the element on `pe`.
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::ErrorKind::NoSuchPe), [`OutOfRange`](crate::ErrorKind::OutOfRange) for an empty object,
    /// [`OtherWorld`](crate::ErrorKind::OtherWorld). All atomics have these.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch<T: AmoElem>(&self, target: SymSlice<'_, T>, pe: usize) -> Result<T> {
        let zero = T::zeroed();
        self.amo(target, AmoOp::Fetch, zero, zero, pe)
    }

    /// Writes the element on `pe`.
    #[inline]
    #[track_caller]
    pub fn atomic_set<T: AmoElem>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::Set, value, pe)
    }

    /// Writes the element on `pe` and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_swap<T: AmoElem>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<T> {
        self.amo(target, AmoOp::Swap, value, value, pe)
    }

    /// Writes `value` to the element on `pe` if it equals `expected`; returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_compare_swap<T: AmoInt>(
        &self,
        target: SymSlice<'_, T>,
        expected: T,
        value: T,
        pe: usize,
    ) -> Result<T> {
        self.amo(target, AmoOp::CompareSwap, value, expected, pe)
    }

    /// Adds one to the element on `pe`, wrapping, and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch_inc<T: AmoInt>(&self, target: SymSlice<'_, T>, pe: usize) -> Result<T> {
        self.atomic_fetch_add(target, T::ONE, pe)
    }

    /// Adds one to the element on `pe`, wrapping.
    #[inline]
    #[track_caller]
    pub fn atomic_inc<T: AmoInt>(&self, target: SymSlice<'_, T>, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::Add, T::ONE, pe)
    }

    /// Adds to the element on `pe`, wrapping, and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch_add<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<T> {
        self.amo(target, AmoOp::Add, value, value, pe)
    }

    /// Adds to the element on `pe`, wrapping.
    #[inline]
    #[track_caller]
    pub fn atomic_add<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::Add, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise and with `value`, and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch_and<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<T> {
        self.amo(target, AmoOp::And, value, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise and with `value`.
    #[inline]
    #[track_caller]
    pub fn atomic_and<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::And, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise or with `value`, and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch_or<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<T> {
        self.amo(target, AmoOp::Or, value, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise or with `value`.
    #[inline]
    #[track_caller]
    pub fn atomic_or<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::Or, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise exclusive or with `value`, and returns what it was.
    #[inline]
    #[track_caller]
    pub fn atomic_fetch_xor<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<T> {
        self.amo(target, AmoOp::Xor, value, value, pe)
    }

    /// Replaces the element on `pe` by its bitwise exclusive or with `value`.
    #[inline]
    #[track_caller]
    pub fn atomic_xor<T: AmoInt>(&self, target: SymSlice<'_, T>, value: T, pe: usize) -> Result<()> {
        self.amo_nbi(target, AmoOp::Xor, value, pe)
    }

    #[inline(always)]
    #[track_caller]
    fn amo<T: AmoElem>(&self, target: SymSlice<'_, T>, op: AmoOp, operand: T, expected: T, pe: usize) -> Result<T> {
        let access = if op == AmoOp::Fetch { Access::Read } else { Access::Write };
        let peer = self.peer(target, 1, access, pe)?;
        self.link().amo(peer, self.lane, target, op, operand, expected)
    }

    #[inline(always)]
    #[track_caller]
    fn amo_nbi<T: AmoElem>(&self, target: SymSlice<'_, T>, op: AmoOp, operand: T, pe: usize) -> Result<()> {
        let peer = self.peer(target, 1, Access::Write, pe)?;
        self.link().amo_nbi(peer, self.lane, target, op, operand)
    }
}
