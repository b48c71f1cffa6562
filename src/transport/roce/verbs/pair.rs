//! Queue pairs and their completions.
//!
//! One that initiates has a completion queue of its own with an entry for each of its requests, so that none is lost,
//! also when the queue pair fails and all that was posted comes back. One that serves has nothing to complete.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::*;

use super::address::{End, Reads, Windows};
use super::device::{Card, checked};
use crate::error::Result;
use crate::transport::roce::nic::{Completion, Local, Outcome, Request, Verb};

/// Times that a request is sent again when no answer comes. 7 is the most, but means for ever in Soft-RoCE, and a peer
/// that is gone is to be noticed.
const RETRIES: u8 = 6;
/// How long an answer is waited for: 4.096 us * 2^16, 0.27 s. With the retries a peer is given up after 1.9 s (cards may
/// take up to four times as long): long enough for a switch to find another way, or for a host of a guest with Soft-RoCE
/// to come back to it, and still seconds.
const TIMEOUT: u8 = 16;
/// Times that a request is sent again to a receiver without buffers. None of this library needs any.
const RNR_RETRIES: u8 = 6;
/// What such a receiver would ask for: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// Routers that a packet may pass.
const HOPS: u8 = 255;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// A completion queue.
pub(super) struct Completions {
    queue: NonNull<ibv_cq>,
    card: Arc<Card>,
}

// SAFETY: the library guards it by a lock of its own.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    /// Has room for so many at a time, or more.
    pub(super) fn new(card: &Arc<Card>, room: usize) -> Result<Completions> {
        let (context, none) = (card.context(), std::ptr::null_mut());
        // SAFETY: the context is open.
        let queue = unsafe { ibv_create_cq(context, room as i32, none, std::ptr::null_mut(), 0) };
        match NonNull::new(queue) {
            Some(queue) => Ok(Completions { queue, card: card.clone() }),
            None => Err(card.error(&format!("making a completion queue of {room}"), &io::Error::last_os_error())),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.card.is_own() {
            // SAFETY: queue pairs hold an `Arc` of this, so there are none.
            unsafe { ibv_destroy_cq(self.queue.as_ptr()) };
        }
    }
}

/// What a queue pair has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) requests: usize,
    pub(super) inline: usize,
}

/// Of which sort it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Makes requests, and lets nobody in.
    Asks,
    /// Serves a peer's.
    Serves,
}

/// A queue pair.
pub(super) struct Pair {
    pair: NonNull<ibv_qp>,
    role: Role,
    /// Bytes within a request, as granted.
    pub(super) inline: usize,
    completions: Arc<Completions>,
    /// Requests as verbs want them, from the one call to the next.
    work: Mutex<Vec<Work>>,
}

// SAFETY: the library guards it by locks of its own.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

/// A request with what it points to.
struct Work {
    request: ibv_send_wr,
    piece: ibv_sge,
}

// SAFETY: its addresses are of this moment: they are written anew before they are used.
unsafe impl Send for Work {}

impl Pair {
    /// Makes one that is not connected yet.
    pub(super) fn new(completions: Arc<Completions>, role: Role, room: Room) -> Result<Pair> {
        // SAFETY: all fields are numbers or pointers, for which zero is a value.
        let mut wanted = unsafe { std::mem::zeroed::<ibv_qp_init_attr>() };
        wanted.send_cq = completions.queue.as_ptr();
        wanted.recv_cq = completions.queue.as_ptr();
        wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
        wanted.cap = ibv_qp_cap {
            max_send_wr: room.requests as u32,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: room.inline as u32,
        };
        let card = &completions.card;
        // SAFETY: domain and completion queue are live and of one device.
        let pair = unsafe { ibv_create_qp(card.domain(), &raw mut wanted) };
        let Some(pair) = NonNull::new(pair) else {
            return Err(card.error(&format!("making a queue pair ({room:?})"), &io::Error::last_os_error()));
        };
        let inline = wanted.cap.max_inline_data as usize;
        let pair = Pair { pair, role, inline, completions, work: Mutex::default() };
        pair.reset()?;
        Ok(pair)
    }

    /// Its number on its device.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: it lives as long as `self`.
        unsafe { self.pair.as_ref().qp_num }
    }

    fn card(&self) -> &Arc<Card> {
        &self.completions.card
    }

    fn reset(&self) -> Result<()> {
        let mut wanted = blank();
        wanted.qp_state = ibv_qp_state::IBV_QPS_INIT;
        wanted.port_num = self.card().port.port;
        wanted.qp_access_flags = match self.role {
            Role::Asks => 0,
            Role::Serves => {
                let access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | ibv_access_flags::IBV_ACCESS_REMOTE_READ
                    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
                access.0
            }
        };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        self.modify(wanted, mask).map_err(|e| self.card().error("setting a queue pair up", &e))
    }

    /// Connects it to a peer's, sending from `psn` on. The packets are of `mtu`, and `reads` is how many reads and
    /// atomics are under way in the direction that is asked in.
    pub(super) fn connect(&self, psn: u32, peer: &End, mtu: u8, reads: Reads) -> io::Result<()> {
        let mut wanted = blank();
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTR;
        wanted.path_mtu = mtu.into();
        wanted.dest_qp_num = peer.number;
        wanted.rq_psn = peer.psn;
        wanted.max_dest_rd_atomic = reads.served;
        wanted.min_rnr_timer = RNR_TIMER;
        wanted.ah_attr.is_global = 1;
        wanted.ah_attr.port_num = self.card().port.port;
        wanted.ah_attr.grh.dgid = ibv_gid { raw: peer.gid };
        wanted.ah_attr.grh.sgid_index = self.card().port.gid_index as u8;
        wanted.ah_attr.grh.hop_limit = HOPS;
        wanted.ah_attr.grh.traffic_class = self.card().class;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_AV
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(wanted, mask)?;
        let mut wanted = blank();
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTS;
        wanted.timeout = TIMEOUT;
        wanted.retry_cnt = RETRIES;
        wanted.rnr_retry = RNR_RETRIES;
        wanted.sq_psn = psn;
        wanted.max_rd_atomic = reads.asked;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(wanted, mask)
    }

    fn modify(&self, mut wanted: ibv_qp_attr, mask: ibv_qp_attr_mask) -> io::Result<()> {
        // SAFETY: the queue pair is live, and the mask names fields that were set.
        checked(unsafe { ibv_modify_qp(self.pair.as_ptr(), &raw mut wanted, mask.0 as i32) })
    }

    /// Posts requests with one doorbell. If that fails, the queue pair does, too, and all that was posted comes back.
    pub(super) fn post(&self, chain: &[Request<'_>], near: &Windows, far: &Windows) -> io::Result<()> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.clear();
        work.extend(chain.iter().map(|request| Work::of(request, near, far)));
        let Some(last) = work.len().checked_sub(1) else { return Ok(()) };
        let first = work.as_mut_ptr();
        for index in 0..=last {
            // SAFETY: the index is one of the vector, which does not move any more.
            let (this, next) = unsafe { (&mut *first.add(index), first.add(index + 1)) };
            this.request.sg_list = &raw mut this.piece;
            if index < last {
                // SAFETY: `next` is an element, since this is not the last.
                this.request.next = unsafe { &raw mut (*next).request };
            }
        }
        let mut failed = std::ptr::null_mut();
        // SAFETY: the chain begins at the first element, each leads to the next, and the last to none; what they point to
        // is either a piece of the same element, or bytes of the caller that are taken before this returns, or memory that
        // the card checks.
        let posted = checked(unsafe { ibv_post_send(self.pair.as_ptr(), &raw mut (*first).request, &raw mut failed) });
        if posted.is_err() {
            let mut wanted = blank();
            wanted.qp_state = ibv_qp_state::IBV_QPS_ERR;
            // What is reported is that the requests could not be posted.
            let _ = self.modify(wanted, ibv_qp_attr_mask::IBV_QP_STATE);
        }
        posted
    }

    /// Adds what has ended.
    pub(super) fn poll(&self, found: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            // SAFETY: all fields are numbers, for which zero is a value.
            let mut ended = [const { unsafe { std::mem::zeroed::<ibv_wc>() } }; BATCH];
            // SAFETY: the completion queue is live, and there is room for so many.
            let count = unsafe { ibv_poll_cq(self.completions.queue.as_ptr(), BATCH as i32, ended.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else { return Err(io::Error::from_raw_os_error(-count)) };
            found.extend(ended[..count].iter().map(|end| Completion { number: end.wr_id, outcome: outcome(end) }));
            if count < BATCH {
                return Ok(());
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.card().is_own() {
            // SAFETY: it was made by `ibv_create_qp`, and is not used any more.
            unsafe { ibv_destroy_qp(self.pair.as_ptr()) };
        }
    }
}

impl Work {
    /// A request as verbs want it, but for what it points to.
    fn of(request: &Request<'_>, near: &Windows, far: &Windows) -> Work {
        let (address, bytes, lkey) = match request.local {
            Local::Inline(bytes) => (bytes.as_ptr() as u64, bytes.len(), 0),
            Local::At { at, bytes } => {
                let (address, lkey) = near.find(at);
                (address, bytes, lkey)
            }
        };
        let (remote_addr, rkey) = far.find(request.remote);
        let rdma = wr_t { rdma: rdma_t { remote_addr, rkey } };
        let (opcode, wr) = match request.verb {
            Verb::Write => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, rdma),
            Verb::Read => (ibv_wr_opcode::IBV_WR_RDMA_READ, rdma),
            Verb::FetchAdd { add } => {
                let atomic = atomic_t { remote_addr, compare_add: add, swap: 0, rkey };
                (ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, wr_t { atomic })
            }
            Verb::CompareSwap { expected, new } => {
                let atomic = atomic_t { remote_addr, compare_add: expected, swap: new, rkey };
                (ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, wr_t { atomic })
            }
        };
        let flags = [
            (request.fenced, ibv_send_flags::IBV_SEND_FENCE),
            (request.signaled, ibv_send_flags::IBV_SEND_SIGNALED),
            (matches!(request.local, Local::Inline(_)), ibv_send_flags::IBV_SEND_INLINE),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag.0);
        // SAFETY: all fields are numbers or pointers, for which zero is a value.
        let mut blank = unsafe { std::mem::zeroed::<ibv_send_wr>() };
        blank.wr_id = request.number;
        blank.num_sge = i32::from(bytes > 0);
        blank.opcode = opcode;
        blank.send_flags = flags;
        blank.wr = wr;
        Work { request: blank, piece: ibv_sge { addr: address, length: bytes as u32, lkey } }
    }
}

fn blank() -> ibv_qp_attr {
    // SAFETY: all fields are numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn outcome(end: &ibv_wc) -> Outcome {
    use ibv_wc_status::*;
    let words = || {
        // SAFETY: the library has a static text for every number.
        let text = unsafe { CStr::from_ptr(ibv_wc_status_str(end.status)) }.to_string_lossy();
        format!("{text} (verbs status {}, vendor error {:#x})", end.status, end.vendor_err)
    };
    match end.status {
        IBV_WC_SUCCESS => Outcome::Done,
        IBV_WC_WR_FLUSH_ERR => Outcome::Flushed,
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => Outcome::Unreachable(words()),
        _ => Outcome::Refused(words()),
    }
}
