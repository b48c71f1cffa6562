//! What a simulated card reaches of a PE: its memory, and the word in it that says whether its card is there, by the number
//! of the PE's process. The memory outlives a process that is killed, and the word with it: so its peers look after the
//! process, and take the card away.

use std::sync::atomic::AtomicU64;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::sync::atom::{observe, publish};
use crate::transport::loopback::Base;

/// A PE's memory.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) base: Base,
    pub(super) bytes: usize,
    /// The offset of the word.
    pub(super) card: usize,
}

impl Peer {
    /// Puts the card of this process there.
    pub(super) fn switch_on(&self) {
        publish(self.word(self.card), u64::from(getpid().as_raw_pid().unsigned_abs()));
    }

    pub(super) fn switch_off(&self) {
        publish(self.word(self.card), 0);
    }

    pub(super) fn is_on(&self) -> bool {
        observe(self.word(self.card)) != 0
    }

    /// Takes the card away if its process has ended.
    pub(super) fn look_after(&self) {
        let number = observe(self.word(self.card)) as i32;
        let Some(process) = Pid::from_raw(number).filter(|process| *process != getpid()) else { return };
        let ended = match pidfd_open(process, PidfdFlags::empty()) {
            // It can be read once the process has ended, though its parent may not have heard of it.
            Ok(process) => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
            }
            Err(errno) => errno == Errno::SRCH,
        };
        if ended {
            self.switch_off();
        }
    }

    /// The word at a multiple of 8, of which the caller knows that it has it.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && self.at(at, 8).is_some());
        // SAFETY: the caller has looked, and the memory stays mapped for longer than the card lives.
        unsafe { self.base.word(at) }
    }

    /// The address of bytes of its memory, if there are so many.
    pub(super) fn at(&self, at: usize, bytes: usize) -> Option<*mut u8> {
        (at <= self.bytes && bytes <= self.bytes - at).then(|| self.base.at(at))
    }
}
