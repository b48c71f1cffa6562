//! An exchange between the experts of a mixture, of whatever payload; and those of a job, by their handles.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use shmem_collectives::moe::{self, Layout, Moe, Payload, Refusal, What};
use shmem_core::{Error, Result};

use crate::team::Team;

/// `shmemx_moe_t`, `shmemx_moe_layout_t`: none, or the number of one. No number is given twice in a process, so that what was
/// freed, or is another exchange's or job's, is known to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) const INVALID: Handle = Handle(0);

    fn new() -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(1);
        Handle(NUMBERS.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a PE brings, of so many tokens.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) tokens: *const c_void,
    pub(crate) experts: *const c_int,
    pub(crate) weights: *const f32,
    pub(crate) len: usize,
}

/// `shmemx_moe_row_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Row {
    position: usize,
    source: c_int,
    weight: f32,
}

/// What tells how long buffers are.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) max_tokens: usize,
    pub(crate) hidden: usize,
    pub(crate) top_k: usize,
}

/// The exchange of one payload. Lengths are in values, and none is longer than the exchange has room for.
///
/// # Safety
/// Of what is unsafe here: what lies at the addresses is as long as is said, if they are not null.
pub(crate) trait Rounds {
    fn is_sent(&self) -> bool;
    fn refuse(&mut self, refusal: Refusal) -> Result<()>;
    unsafe fn send(&mut self, batch: Batch, size: Size) -> Result<()>;
    unsafe fn send_again(&mut self, layout: &Layout, tokens: *const c_void, values: usize) -> Result<()>;
    fn recv(&mut self) -> Result<()>;
    /// `None` if nothing was received.
    fn rows(&self, expert: usize) -> Option<&[moe::Row]>;
    unsafe fn gather(&self, expert: usize, into: *mut c_void, values: usize) -> Result<()>;
    unsafe fn scatter(&self, expert: usize, outputs: *const c_void, values: usize) -> Result<()>;
    fn layout(&self) -> Option<Layout>;
    /// How many outputs are missing.
    unsafe fn combine(&mut self, outputs: *mut c_void, values: usize) -> Result<usize>;
    fn mask(&mut self, pe: usize) -> Result<()>;
    fn culprit(&self) -> Option<usize>;
    fn moved(&self) -> usize;
    fn free(self: Box<Self>) -> Result<()>;
}

impl<P: Payload> Rounds for Moe<'static, P> {
    fn is_sent(&self) -> bool {
        Moe::is_sent(self)
    }

    fn refuse(&mut self, refusal: Refusal) -> Result<()> {
        self.send_refused(refusal)
    }

    unsafe fn send(&mut self, batch: Batch, size: Size) -> Result<()> {
        let choices = batch.len * size.top_k;
        // SAFETY: the caller says so.
        let (tokens, experts, weights) = unsafe {
            let tokens = slice(batch.tokens.cast(), batch.len * size.hidden);
            (tokens, slice(batch.experts, choices), slice(batch.weights, choices))
        };
        Moe::send(self, &tokens, &experts, &weights)
    }

    unsafe fn send_again(&mut self, layout: &Layout, tokens: *const c_void, values: usize) -> Result<()> {
        // SAFETY: the caller says so.
        Moe::send_again(self, layout, &unsafe { slice(tokens.cast(), values) })
    }

    fn recv(&mut self) -> Result<()> {
        Moe::recv(self).map(drop)
    }

    fn rows(&self, expert: usize) -> Option<&[moe::Row]> {
        self.received().map(|received| received.rows(expert))
    }

    unsafe fn gather(&self, expert: usize, into: *mut c_void, values: usize) -> Result<()> {
        // SAFETY: the caller says so.
        let into = unsafe { slice_mut(into.cast(), values)? };
        self.received().map_or(Ok(()), |received| received.gather(expert, into))
    }

    unsafe fn scatter(&self, expert: usize, outputs: *const c_void, values: usize) -> Result<()> {
        // SAFETY: the caller says so.
        let outputs = unsafe { slice(outputs.cast(), values) };
        self.received().map_or(Ok(()), |received| received.scatter(expert, &outputs))
    }

    fn layout(&self) -> Option<Layout> {
        self.received().map(|received| received.layout())
    }

    unsafe fn combine(&mut self, outputs: *mut c_void, values: usize) -> Result<usize> {
        // SAFETY: the caller says so.
        let outputs = unsafe { slice_mut(outputs.cast(), values)? };
        Moe::combine(self, outputs).map(|report| report.missing.len())
    }

    fn mask(&mut self, pe: usize) -> Result<()> {
        Moe::mask(self, pe)
    }

    fn culprit(&self) -> Option<usize> {
        Moe::culprit(self)
    }

    fn moved(&self) -> usize {
        Moe::moved(self)
    }

    fn free(self: Box<Self>) -> Result<()> {
        Moe::free(*self)
    }
}

/// What lies at an address; at a null pointer nothing, which is then too short. What is not aligned is copied.
///
/// # Safety
/// So much lies there, if it is not null, and nothing changes it.
unsafe fn slice<'a, T: Pod>(address: *const T, len: usize) -> Cow<'a, [T]> {
    if address.is_null() {
        return Cow::Borrowed(&[]);
    }
    if address.is_aligned() {
        // SAFETY: the caller says so, and it is aligned.
        return Cow::Borrowed(unsafe { from_raw_parts(address, len) });
    }
    let mut copy = vec![T::zeroed(); len];
    // SAFETY: the caller says so; bytes are aligned anywhere.
    let bytes = unsafe { from_raw_parts(address.cast::<u8>(), len * size_of::<T>()) };
    bytemuck::cast_slice_mut(&mut copy).copy_from_slice(bytes);
    Cow::Owned(copy)
}

/// The same, to be written.
///
/// # Safety
/// As of [`slice`], and nobody else uses it.
unsafe fn slice_mut<'a, T>(address: *mut T, len: usize) -> Result<&'a mut [T]> {
    if !address.is_aligned() {
        return Err(Error::other(format!("{address:p} is no multiple of {}, the size of an element", align_of::<T>())));
    }
    // SAFETY: the caller says so, and it is aligned.
    Ok(if address.is_null() { &mut [] } else { unsafe { from_raw_parts_mut(address, len) } })
}

/// An exchange.
pub(crate) struct Exchange {
    rounds: Box<dyn Rounds>,
    team: &'static Team,
    size: Size,
    /// This PE's experts; C has their address.
    experts: Box<[c_int]>,
    /// Tokens of this PE in the round.
    sent: usize,
    missing: usize,
    layouts: HashMap<Handle, Layout>,
}

// SAFETY: an exchange is used by one thread at a time, which the lock around it sees to; what it borrows lasts as long as the job.
unsafe impl Send for Exchange {}

impl Exchange {
    pub(crate) fn new<P: Payload>(moe: Moe<'static, P>, team: &'static Team, size: Size) -> Self {
        let experts = moe.own_experts().iter().map(|expert| *expert as c_int).collect();
        let layouts = HashMap::new();
        Exchange { rounds: Box::new(moe), team, size, experts, sent: 0, missing: 0, layouts }
    }

    pub(crate) fn team(&self) -> &'static Team {
        self.team
    }

    pub(crate) fn experts(&self) -> &[c_int] {
        &self.experts
    }

    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// All that needs nothing else.
    pub(crate) fn rounds(&mut self) -> &mut dyn Rounds {
        &mut *self.rounds
    }

    fn pe(&self) -> usize {
        self.team.core().me()
    }

    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn send(&mut self, batch: Batch) -> Result<()> {
        let (pe, given, max) = (self.pe(), batch.len, self.size.max_tokens);
        if given > max {
            return self.rounds.refuse(Refusal::TooManyTokens { pe, given, max });
        }
        let Size { hidden, top_k, .. } = self.size;
        let absent = [
            (What::Tokens, hidden, batch.tokens.is_null()),
            (What::Experts, top_k, batch.experts.is_null()),
            (What::Weights, top_k, batch.weights.is_null()),
        ];
        if let Some((what, each, _)) = absent.into_iter().find(|(.., null)| *null && given > 0) {
            return self.rounds.refuse(Refusal::Length { pe, what, given: 0, needed: given * each });
        }
        // SAFETY: the caller says so.
        unsafe { self.rounds.send(batch, self.size)? };
        self.sent = given;
        Ok(())
    }

    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn send_again(&mut self, layout: Handle, tokens: *const c_void, len: usize) -> Result<()> {
        let pe = self.pe();
        let Some(layout) = self.layouts.get(&layout) else {
            return self.rounds.refuse(Refusal::StaleLayout { pe });
        };
        if len != layout.tokens() {
            return self.rounds.refuse(self.size.length(pe, What::Tokens, len, layout.tokens()));
        }
        // SAFETY: the caller says so.
        unsafe { self.rounds.send_again(layout, tokens, len * self.size.hidden)? };
        self.sent = len;
        Ok(())
    }

    /// The rows of an expert.
    pub(crate) fn rows(&self, expert: usize, call: &'static str) -> Result<&[moe::Row]> {
        let all = self.experts.len();
        if expert >= all {
            return Err(Error::other(format!("there is no expert {expert} among the {all} of this PE")));
        }
        self.rounds.rows(expert).ok_or_else(|| Refusal::OutOfTurn { pe: self.pe(), call }.into())
    }

    /// The rows of an expert, of which there must be room for all.
    ///
    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn list(&self, expert: usize, into: *mut Row, len: usize) -> Result<()> {
        let rows = self.rows(expert, "rows")?;
        if len != rows.len() || len > 0 && into.is_null() {
            let given = if into.is_null() { 0 } else { len };
            return Err(Error::other(format!("there is room for {given} rows, {} are there", rows.len())));
        }
        // SAFETY: the caller says so.
        for (row, into) in rows.iter().zip(unsafe { slice_mut(into, len)? }) {
            *into = Row { position: row.position(), source: row.source() as c_int, weight: row.weight() };
        }
        Ok(())
    }

    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn gather(&self, expert: usize, into: *mut c_void, len: usize) -> Result<()> {
        let values = self.values(self.rows(expert, "gather")?.len(), What::Tokens, len)?;
        // SAFETY: the caller says so.
        unsafe { self.rounds.gather(expert, into, values) }
    }

    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn scatter(&self, expert: usize, outputs: *const c_void, len: usize) -> Result<()> {
        let values = self.values(self.rows(expert, "scatter")?.len(), What::Outputs, len)?;
        // SAFETY: the caller says so.
        unsafe { self.rounds.scatter(expert, outputs, values) }
    }

    /// # Safety
    /// As of [`Rounds`].
    pub(crate) unsafe fn combine(&mut self, outputs: *mut c_void, len: usize) -> Result<()> {
        if len > self.size.max_tokens {
            return Err(self.size.length(self.pe(), What::Outputs, len, self.sent).into());
        }
        // SAFETY: the caller says so.
        self.missing = unsafe { self.rounds.combine(outputs, len * self.size.hidden)? };
        Ok(())
    }

    /// Keeps the layout of the round.
    pub(crate) fn keep_layout(&mut self) -> Result<Handle> {
        let layout = self.rounds.layout().ok_or(Refusal::OutOfTurn { pe: self.pe(), call: "layout" })?;
        let handle = Handle::new();
        self.layouts.insert(handle, layout);
        Ok(handle)
    }

    pub(crate) fn free_layout(&mut self, layout: Handle) -> Result<()> {
        let found = self.layouts.remove(&layout);
        found.map(drop).ok_or_else(|| Error::other("there is no such layout of this exchange, or it has been freed"))
    }

    /// Values of so many rows, if there are so many.
    fn values(&self, rows: usize, what: What, given: usize) -> Result<usize> {
        match given == rows {
            true => Ok(rows * self.size.hidden),
            false => Err(self.size.length(self.pe(), what, given, rows).into()),
        }
    }
}

impl Size {
    /// A length that is wrong, of so many tokens.
    fn length(&self, pe: usize, what: What, given: usize, needed: usize) -> Refusal {
        Refusal::Length { pe, what, given: given.saturating_mul(self.hidden), needed: needed * self.hidden }
    }
}

/// The exchanges of a job.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<HashMap<Handle, Entry>>);

#[derive(Clone)]
struct Entry {
    team: &'static Team,
    /// None once it has been freed.
    exchange: Arc<Mutex<Option<Exchange>>>,
}

impl Exchanges {
    fn table(&self) -> MutexGuard<'_, HashMap<Handle, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, exchange: Exchange) -> Handle {
        let handle = Handle::new();
        self.table().insert(handle, Entry { team: exchange.team, exchange: Arc::new(Mutex::new(Some(exchange))) });
        handle
    }

    /// Works with an exchange; another thread that does so waits.
    pub(crate) fn with<R>(&self, handle: Handle, f: impl FnOnce(&mut Exchange) -> Result<R>) -> Result<R> {
        if handle == Handle::INVALID {
            return Err(Error::other("the exchange is SHMEMX_MOE_INVALID"));
        }
        let entry = self.table().get(&handle).cloned();
        let mut held = entry.as_ref().map(|entry| entry.exchange.lock().unwrap_or_else(PoisonError::into_inner));
        held.as_mut().and_then(|held| held.as_mut()).map_or_else(|| Err(gone()), f)
    }

    /// Takes an exchange out, once no other thread works with it, and frees it.
    pub(crate) fn free(&self, handle: Handle) -> Result<()> {
        let entry = self.table().remove(&handle).ok_or_else(gone)?;
        let exchange = entry.exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        exchange.map_or(Ok(()), |exchange| exchange.rounds.free())
    }

    /// Whether there is one of a team.
    pub(crate) fn any_of(&self, team: &'static Team) -> bool {
        self.table().values().any(|entry| std::ptr::eq(entry.team, team))
    }
}

#[cold]
fn gone() -> Error {
    Error::other("there is no such exchange, or it has been freed")
}
