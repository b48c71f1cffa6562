//! `shmemx_moe_…`: the exchange between the experts of a mixture.

use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::slice::from_raw_parts;

use shmem_collectives::moe::{Bf16, Builder, F16, F32, Fp8E4m3, MOST_EXPERTS, Moe, MoeMode, Payload};
use shmem_core::{Error, Result};

use crate::exchange::{Batch, Exchange, Handle, Row, Size};
use crate::fail::status;
use crate::job::Job;
use crate::team::{self, Team};
use crate::types::{check, pe as number, store};

/// `shmemx_moe_config_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    experts: usize,
    max_tokens: usize,
    hidden: usize,
    top_k: usize,
    /// `SHMEMX_MOE_BF16`, …
    payload: c_int,
    /// `SHMEMX_MOE_AUTO`, …
    mode: c_int,
    /// The PE of each expert, or null.
    placement: *const c_int,
    /// Symmetric memory for the exchange, or null.
    memory: *mut c_void,
    leave_out_lost: c_int,
}

/// What is done with a builder, whose payload is not known yet.
trait With {
    type Out;

    fn with<P: Payload>(self, builder: Builder<'static, P>) -> Result<Self::Out>;

    /// What is done about numbers that are not even a builder's.
    fn refuse(self, error: Error) -> Error;
}

/// Says how large the exchange is.
struct Bytes;

impl With for Bytes {
    type Out = usize;

    fn with<P: Payload>(self, builder: Builder<'static, P>) -> Result<usize> {
        builder.buffer_bytes()
    }

    fn refuse(self, error: Error) -> Error {
        error
    }
}

/// Makes the exchange, and says how large it is.
struct Build<'a> {
    job: &'static Job,
    team: &'static Team,
    config: &'a Config,
}

impl With for Build<'_> {
    type Out = (Exchange, usize);

    fn with<P: Payload>(self, builder: Builder<'static, P>) -> Result<(Exchange, usize)> {
        let Build { job, team, config: &Config { max_tokens, hidden, top_k, memory, .. } } = self;
        let bytes = builder.buffer_bytes();
        let builder = match &bytes {
            Ok(bytes) if !memory.is_null() => match job.object(memory.cast(), *bytes) {
                Ok(memory) => builder.memory(memory),
                Err(error) => return Err(tell(team, error)),
            },
            // Numbers that make no exchange are told to the others by the call itself.
            _ => builder,
        };
        let moe = builder.build()?;
        Ok((Exchange::new(moe, team, Size { max_tokens, hidden, top_k }), bytes?))
    }

    fn refuse(self, error: Error) -> Error {
        tell(self.team, error)
    }
}

/// Tells the other PEs of an error before the exchange is made: they have the call fail, too, and not wait. Where all have the
/// same, it is theirs as well.
fn tell(team: &'static Team, error: Error) -> Error {
    let (team, text) = (team.core(), error.to_string());
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    team.meet(hasher.finish() >> 8).wait(team, || text).err().unwrap_or(error)
}

impl Config {
    /// # Safety
    /// The placement has as many numbers as there are experts, if it is not null.
    unsafe fn with<W: With>(&self, job: &'static Job, team: &'static Team, then: W) -> Result<W::Out> {
        let Config { experts, max_tokens, hidden, top_k, payload, mode, placement, leave_out_lost, .. } = *self;
        let mut builder = Moe::builder(job.world, team.core());
        builder = builder.experts(experts).max_tokens(max_tokens).hidden(hidden).top_k(top_k);
        // No array is longer: so many experts are refused below.
        if !placement.is_null() && experts <= MOST_EXPERTS {
            // SAFETY: the caller says so.
            let pes = unsafe { from_raw_parts(placement, experts) };
            builder = builder.placement(&pes.iter().map(|pe| number(*pe)).collect::<Vec<_>>());
        }
        builder = match mode {
            0 => builder,
            1 => builder.mode(MoeMode::Latency),
            2 => builder.mode(MoeMode::Throughput),
            _ => return Err(then.refuse(Error::other(format!("{mode} is no shmemx_moe_mode_t")))),
        };
        if leave_out_lost != 0 {
            builder = builder.leave_out_lost();
        }
        match payload {
            0 => then.with(builder.payload(Bf16)),
            1 => then.with(builder.payload(F16)),
            2 => then.with(builder.payload(F32)),
            3 => then.with(builder.payload(Fp8E4m3)),
            _ => Err(then.refuse(Error::other(format!("{payload} is no shmemx_moe_payload_t")))),
        }
    }
}

/// Runs a call with an exchange, of this PE alone.
fn local(name: &'static str, moe: Handle, call: impl FnOnce(&mut Exchange) -> Result<()>) -> c_int {
    status(name, |job| job.exchanges.with(moe, call))
}

/// Runs a call of all PEs: as before every other one of the team, what is started ends.
fn collective(name: &'static str, moe: Handle, call: impl FnOnce(&mut Exchange) -> Result<()>) -> c_int {
    local(name, moe, |exchange| {
        exchange.team().settle();
        call(exchange)
    })
}

export! {
    ["shmemx_moe_buffer_bytes"] fn(team: team::Handle, config: *const Config, bytes: *mut usize) -> c_int {
        status(NAME, |job| {
            check(config, "config")?;
            // SAFETY: C gives valid addresses.
            unsafe { store(bytes, "bytes", (*config).with(job, job.teams.get(team)?, Bytes)?) }
        })
    }

    ["shmemx_moe_create"] fn(
        team: team::Handle, config: *const Config, moe: *mut Handle, bytes: *mut usize,
    ) -> c_int {
        status(NAME, |job| {
            // SAFETY: C gives valid addresses, or none.
            let given = unsafe { store(moe, "moe", Handle::INVALID) }.and_then(|()| check(config, "config"));
            let team = job.teams.get(team)?;
            team.settle();
            job.teams.world().settle();
            given.map_err(|error| tell(team, error))?;
            // SAFETY: C gives valid addresses.
            unsafe {
                let (exchange, needed) = (*config).with(job, team, Build { job, team, config: &*config })?;
                if !bytes.is_null() {
                    bytes.write(needed);
                }
                store(moe, "moe", job.exchanges.add(exchange))
            }
        })
    }

    ["shmemx_moe_free"] fn(moe: Handle) -> c_int {
        if moe == Handle::INVALID {
            return 0;
        }
        status(NAME, |job| {
            job.exchanges.with(moe, |exchange| {
                exchange.team().settle();
                Ok(())
            })?;
            job.teams.world().settle();
            job.exchanges.free(moe)
        })
    }

    ["shmemx_moe_dispatch"] fn(
        moe: Handle, tokens: *const c_void, experts: *const c_int, weights: *const f32, ntokens: usize,
    ) -> c_int {
        collective(NAME, moe, |exchange| {
            if !exchange.rounds().is_sent() {
                // SAFETY: C gives valid addresses.
                unsafe { exchange.send(Batch { tokens, experts, weights, len: ntokens })? };
            }
            exchange.rounds().recv()
        })
    }

    ["shmemx_moe_send"] fn(
        moe: Handle, tokens: *const c_void, experts: *const c_int, weights: *const f32, ntokens: usize,
    ) -> c_int {
        // SAFETY: C gives valid addresses.
        collective(NAME, moe, |exchange| unsafe { exchange.send(Batch { tokens, experts, weights, len: ntokens }) })
    }

    ["shmemx_moe_dispatch_again"] fn(moe: Handle, layout: Handle, tokens: *const c_void, ntokens: usize) -> c_int {
        collective(NAME, moe, |exchange| {
            if !exchange.rounds().is_sent() {
                // SAFETY: C gives valid addresses.
                unsafe { exchange.send_again(layout, tokens, ntokens)? };
            }
            exchange.rounds().recv()
        })
    }

    ["shmemx_moe_send_again"] fn(moe: Handle, layout: Handle, tokens: *const c_void, ntokens: usize) -> c_int {
        // SAFETY: C gives valid addresses.
        collective(NAME, moe, |exchange| unsafe { exchange.send_again(layout, tokens, ntokens) })
    }

    ["shmemx_moe_recv"] fn(moe: Handle) -> c_int { collective(NAME, moe, |exchange| exchange.rounds().recv()) }

    ["shmemx_moe_combine"] fn(moe: Handle, outputs: *mut c_void, ntokens: usize) -> c_int {
        // SAFETY: C gives valid addresses.
        collective(NAME, moe, |exchange| unsafe { exchange.combine(outputs, ntokens) })
    }

    ["shmemx_moe_experts"] fn(moe: Handle, experts: *mut *const c_int, nexperts: *mut usize) -> c_int {
        local(NAME, moe, |exchange| {
            let own = exchange.experts();
            if !experts.is_null() {
                // SAFETY: C gives a valid address.
                unsafe { experts.write(own.as_ptr()) };
            }
            // SAFETY: C gives a valid address.
            unsafe { store(nexperts, "nexperts", own.len()) }
        })
    }

    ["shmemx_moe_nrows"] fn(moe: Handle, expert: usize, nrows: *mut usize) -> c_int {
        // SAFETY: C gives a valid address.
        local(NAME, moe, |exchange| unsafe { store(nrows, "nrows", exchange.rows(expert, "nrows")?.len()) })
    }

    ["shmemx_moe_rows"] fn(moe: Handle, expert: usize, rows: *mut Row, nrows: usize) -> c_int {
        // SAFETY: C gives valid addresses.
        local(NAME, moe, |exchange| unsafe { exchange.list(expert, rows, nrows) })
    }

    ["shmemx_moe_gather"] fn(moe: Handle, expert: usize, dest: *mut c_void, nrows: usize) -> c_int {
        // SAFETY: C gives valid addresses.
        local(NAME, moe, |exchange| unsafe { exchange.gather(expert, dest, nrows) })
    }

    ["shmemx_moe_scatter"] fn(moe: Handle, expert: usize, source: *const c_void, nrows: usize) -> c_int {
        // SAFETY: C gives valid addresses.
        local(NAME, moe, |exchange| unsafe { exchange.scatter(expert, source, nrows) })
    }

    ["shmemx_moe_layout"] fn(moe: Handle, layout: *mut Handle) -> c_int {
        local(NAME, moe, |exchange| {
            check(layout, "layout")?;
            // SAFETY: C gives a valid address.
            unsafe { store(layout, "layout", exchange.keep_layout()?) }
        })
    }

    ["shmemx_moe_layout_free"] fn(moe: Handle, layout: Handle) -> c_int {
        local(NAME, moe, |exchange| exchange.free_layout(layout))
    }

    ["shmemx_moe_mask"] fn(moe: Handle, pe: c_int) -> c_int {
        local(NAME, moe, |exchange| exchange.rounds().mask(number(pe)))
    }

    ["shmemx_moe_culprit"] fn(moe: Handle, pe: *mut c_int) -> c_int {
        local(NAME, moe, |exchange| {
            let culprit = exchange.rounds().culprit();
            // SAFETY: C gives a valid address.
            unsafe { store(pe, "pe", culprit.map_or(-1, |pe| pe as c_int)) }
        })
    }

    ["shmemx_moe_missing"] fn(moe: Handle, noutputs: *mut usize) -> c_int {
        // SAFETY: C gives a valid address.
        local(NAME, moe, |exchange| unsafe { store(noutputs, "noutputs", exchange.missing()) })
    }

    ["shmemx_moe_moved"] fn(moe: Handle, bytes: *mut usize) -> c_int {
        // SAFETY: C gives a valid address.
        local(NAME, moe, |exchange| unsafe { store(bytes, "bytes", exchange.rounds().moved()) })
    }
}
