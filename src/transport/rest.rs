//! How a PE waits: it spins, then yields its core, then sleeps, and looks whether it waits in vain.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, futex, membarrier};

use crate::error::{ErrorKind, Result};
use crate::heap::control::{BELL, SLEEPERS};
use crate::sync::atom::{observe, publish};
use crate::sync::park::{self, Bed};
use crate::sync::{Idle, Why};
use crate::transport::Awaited;
use crate::transport::link::Link;
use crate::transport::loopback::Base;
use crate::watch::report;

/// When a waiter spins, yields, sleeps and gives up.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Polls before it yields its core.
    pub(crate) spin: u32,
    /// How many nanoseconds it may wait at all; 0 for ever.
    limit: AtomicU64,
    /// After how long a table of all PEs is printed.
    pub(crate) stall_warn: Option<Duration>,
}

impl Patience {
    pub(crate) fn new(spin: u32, timeout: Option<Duration>, stall_warn: Option<Duration>) -> Self {
        let patience = Patience { spin, limit: AtomicU64::new(0), stall_warn };
        patience.set_timeout(timeout);
        patience
    }

    /// How long a wait may take from now on.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1);
        publish(&self.limit, timeout.map_or(0, nanos));
    }

    /// Whether that is longer than it may take.
    fn is_over(&self, waited: Duration) -> bool {
        let limit = observe(&self.limit);
        limit != 0 && waited > Duration::from_nanos(limit)
    }
}

/// Polls that come before the first pause instruction: on some processors one pause takes as long as a hand-over.
const HOT_POLLS: u32 = 200;
/// Polls between two looks at whether the wait is in vain, however long the spinning is set to last.
const VIGIL: u32 = 1 << 14;
/// How long a waiter yields before it sleeps. Long enough for a round of every PE of an oversubscribed host.
const YIELD_FOR: Duration = Duration::from_millis(1);
/// After how long a wait a card should have told: later than it gives up a peer that does not answer.
const ASKED: Duration = Duration::from_secs(3);
/// A nap lasts an eighth of the wait so far, within these bounds. A signal's bell ends it early; but a put or an atomic
/// rings none (a PE that sleeps in a barrier while others count on its memory would wake for each), nor does a network
/// card, and then a waiter oversleeps by an eighth at most.
const NAP: std::ops::RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(3);

impl Link {
    /// Where the waiters of a PE of this host sleep.
    #[inline(always)]
    pub(super) fn bed(&self, pe: usize) -> Option<HostBed> {
        self.control[pe].map(|base| HostBed { base })
    }

    /// Wakes all PEs of this host that sleep.
    pub(super) fn wake_all(&self) {
        for &base in self.control.iter().flatten() {
            HostBed { base }.strike();
        }
    }

    /// A step of waiting that is a spin, if it is time for one.
    #[inline(always)]
    pub(super) fn spins(&self, idle: &mut Idle) -> bool {
        let step = idle.steps;
        idle.steps = step.saturating_add(1);
        if step >= self.patience.spin || step % VIGIL == VIGIL - 1 {
            return false;
        }
        if step >= HOT_POLLS {
            std::hint::spin_loop();
        }
        true
    }

    /// A step of waiting that is not a spin: yields, then sleeps; looks whether the wait is in vain.
    #[cold]
    pub(super) fn rest(&self, idle: &mut Idle, why: Why) -> Result<()> {
        self.lookout.check()?;
        self.check_era(idle, why)?;
        self.linger(idle, why, Awaited::Word)
    }

    /// A step of waiting for what a PE writes, whoever else is lost.
    #[inline(always)]
    pub(crate) fn pause_for(&self, idle: &mut Idle, why: Why) -> Result<()> {
        if self.spins(idle) { Ok(()) } else { self.rest_for(idle, why) }
    }

    #[cold]
    fn rest_for(&self, idle: &mut Idle, why: Why) -> Result<()> {
        self.lookout.require_living(why.on)?;
        self.linger(idle, why, Awaited::Word)
    }

    /// [`rest`](Self::rest), whoever is lost.
    #[cold]
    pub(super) fn linger(&self, idle: &mut Idle, why: Why, awaited: Awaited) -> Result<()> {
        let waited = idle.since.get_or_insert_with(Instant::now).elapsed();
        if self.patience.is_over(waited) {
            let waiting_for = self.whereabouts(why, waited);
            return Err(ErrorKind::Timeout { pe: self.me, call: why.call.name(), after: waited, waiting_for }.into());
        }
        if !idle.stalled && self.patience.stall_warn.is_some_and(|limit| waited > limit) {
            idle.stalled = true;
            self.lookout.wait(why.on);
            self.warn_of_stall(waited);
        }
        if self.endpoint.is_some() && self.idle_remote(idle, waited, why.on, awaited)? {
            return Ok(());
        }
        if waited < YIELD_FOR {
            std::thread::yield_now();
            return Ok(());
        }
        let Some(bed) = self.bed(self.me) else {
            std::thread::sleep((waited / 8).clamp(*NAP.start(), *NAP.end()));
            return Ok(());
        };
        match idle.bell {
            None => {
                self.lookout.wait(why.on);
                idle.bell = Some(park::lie_down(&bed));
            }
            Some(bell) => {
                bed.sleep(bell, (waited / 8).clamp(*NAP.start(), *NAP.end()));
                idle.bell = Some(bed.bell());
            }
        }
        Ok(())
    }

    /// Fails if the wait began before a loss that was acknowledged since, or is for a PE that is lost.
    fn check_era(&self, idle: &mut Idle, why: Why) -> Result<()> {
        let era = self.lookout.era();
        if *idle.era.get_or_insert(era) != era {
            return self.lookout.require(self.lookout.acknowledged().into_iter().map(|loss| loss.pe));
        }
        if era == 0 { Ok(()) } else { self.lookout.require(why.on.into_iter()) }
    }

    /// Prints what all PEs of the host do, unless one of them has just done it.
    #[cold]
    fn warn_of_stall(&self, waited: Duration) {
        let board = self.lookout.board();
        let (me, silent) = (self.me, self.silent_requests(waited));
        if board.claim_stall(self.patience.stall_warn.unwrap_or_default()) {
            let table = report::table(board);
            eprintln!(
                "shmem: PE {me} has waited for {:.1} s (SHMEM_STALL_WARN)\n{table}{silent}",
                waited.as_secs_f64()
            );
        } else if !silent.is_empty() {
            eprintln!("shmem: PE {me} has waited for {:.1} s\n{silent}", waited.as_secs_f64());
        }
    }

    /// A line for each PE to which the card has requests of whose end it was to tell, and has not in a long wait: then the network is
    /// what is waited for.
    fn silent_requests(&self, waited: Duration) -> String {
        if waited < ASKED {
            return String::new();
        }
        let line = |(pe, count)| {
            let (requests, them) = if count == 1 { ("request", "it has") } else { ("requests", "they have") };
            format!(
                "  the network card of PE {} has {count} {requests} to PE {pe} and does not say that {them} ended\n",
                self.me
            )
        };
        self.endpoint.iter().flat_map(|endpoint| endpoint.owed()).map(line).collect()
    }

    /// What is known of the PE that a wait depends on.
    fn whereabouts(&self, why: Why, waited: Duration) -> String {
        let silent = self.silent_requests(waited);
        let network = if silent.is_empty() { String::new() } else { format!("\n{}", silent.trim_end()) };
        let Some(pe) = why.on else { return format!("nobody wrote what it waits for{network}") };
        let board = self.lookout.board();
        let does = board.row(pe).map_or_else(|| "on another host".into(), |row| report::line(&row, &board.clock()));
        format!("it waits for PE {pe}, which is {does}{network}")
    }
}

/// The bed of a PE of this host, in its control page.
#[derive(Clone, Copy)]
pub(super) struct HostBed {
    pub(super) base: Base,
}

impl HostBed {
    fn futex(&self) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: the bell is part of a control page, which stays mapped while the link lives.
        unsafe { self.base.half_word(BELL) }
    }
}

impl Bed for HostBed {
    type Word = std::sync::atomic::AtomicU64;

    #[inline(always)]
    fn sleepers(&self) -> &Self::Word {
        // SAFETY: the count is part of a control page, which stays mapped while the link lives.
        unsafe { self.base.word(SLEEPERS) }
    }

    #[inline(always)]
    fn light_fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            fence(Ordering::SeqCst);
        }
    }

    fn bell(&self) -> u64 {
        self.futex().load(Ordering::Acquire).into()
    }

    #[cold]
    fn strike(&self) {
        self.futex().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.futex(), futex::Flags::empty(), i32::MAX as u32);
    }

    fn sleep(&self, bell: u64, at_most: Duration) {
        let time = rustix::time::Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        let _ = futex::wait(self.futex(), futex::Flags::empty(), bell as u32, Some(&time));
    }
}
