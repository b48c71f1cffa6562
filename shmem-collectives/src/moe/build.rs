//! Building an exchange: everything is checked, compared between the PEs and allocated here, once.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use shmem::{ErrorKind, Private, Result, SymSlice, Team, World};

use super::exchange::{Memory, Moe, Reserved, Stage, lands};
use super::payload::{Bf16, Payload};
use super::routes::{Routes, Ways};
use super::rows::Rows;
use super::shape::{FLAG, MOST, MOST_EXPERTS, Placement, Places, Shape};
use crate::call::{digest, refusal};
use crate::plan::Problem;
use crate::select::{MoeMode, Selection};

/// Exchanges of this process so far.
static BUILT: AtomicU64 = AtomicU64::new(0);

/// The size of an exchange; [`build`](Builder::build) makes it.
#[must_use = "build() makes the exchange"]
#[derive(Debug)]
pub struct Builder<'t, P: Payload = Bf16> {
    world: &'t World,
    team: &'t Team<'t>,
    experts: usize,
    placement: Option<Vec<usize>>,
    max_tokens: usize,
    hidden: usize,
    top_k: usize,
    mode: Option<MoeMode>,
    leave_out_lost: bool,
    memory: Option<SymSlice<'t, u8>>,
    payload: PhantomData<P>,
}

/// What was found out of a builder's numbers.
struct Prepared {
    shape: Shape,
    places: Places,
    placement: Placement,
    mapped: Vec<bool>,
    mode: MoeMode,
}

impl<'t> Moe<'t, Bf16> {
    /// An exchange between the experts on the PEs of a team, to be described further.
    pub fn builder(world: &'t World, team: &'t Team<'t>) -> Builder<'t, Bf16> {
        let (placement, mode, memory) = (None, None, None);
        let (experts, max_tokens, hidden, top_k) = (0, 0, 0, 1);
        let payload = PhantomData;
        Builder {
            world,
            team,
            experts,
            placement,
            max_tokens,
            hidden,
            top_k,
            mode,
            leave_out_lost: false,
            memory,
            payload,
        }
    }
}

impl<'t, P: Payload> Builder<'t, P> {
    /// How many experts there are in all, at most [`MOST_EXPERTS`]. Unless a placement says otherwise, each PE has as many neighbouring ones as the others;
    /// where they do not divide, the first PEs have one more.
    pub fn experts(self, experts: usize) -> Self {
        Builder { experts, ..self }
    }

    /// The PE of each expert, by its number in the team.
    pub fn placement(self, pes: &[usize]) -> Self {
        Builder { placement: Some(pes.to_vec()), ..self }
    }

    /// The most tokens that a PE dispatches at a time.
    pub fn max_tokens(self, max_tokens: usize) -> Self {
        Builder { max_tokens, ..self }
    }

    /// Values of a token.
    pub fn hidden(self, hidden: usize) -> Self {
        Builder { hidden, ..self }
    }

    /// Choices of a token: 1 unless told otherwise, at most 16.
    pub fn top_k(self, top_k: usize) -> Self {
        Builder { top_k, ..self }
    }

    /// How tokens travel: bf16 unless told otherwise.
    pub fn payload<Q: Payload>(self, _: Q) -> Builder<'t, Q> {
        let Builder {
            world, team, experts, placement, max_tokens, hidden, top_k, mode, leave_out_lost, memory, ..
        } = self;
        let payload = PhantomData;
        Builder { world, team, experts, placement, max_tokens, hidden, top_k, mode, leave_out_lost, memory, payload }
    }

    /// How tokens go, instead of what the table of [`Selection`] says.
    pub fn mode(self, mode: MoeMode) -> Self {
        Builder { mode: Some(mode), ..self }
    }

    /// Leaves out PEs that are found lost without a word: what is missing is then known from the [`Report`](super::Report) alone. Otherwise
    /// a loss is the error [`PeerLost`](ErrorKind::PeerLost), and the program may [`mask`](Moe::mask) the PE.
    pub fn leave_out_lost(self) -> Self {
        Builder { leave_out_lost: true, ..self }
    }

    /// Memory for the exchange, instead of an allocation, which all PEs of the world would have to make: for teams that differ in
    /// size, or of which not all are to have an exchange. At the same place on all PEs of the team, at a multiple of 128 bytes.
    pub fn memory(self, memory: SymSlice<'t, u8>) -> Self {
        Builder { memory: Some(memory), ..self }
    }

    /// Bytes of symmetric memory that the exchange takes, exactly; the same on all PEs.
    ///
    /// # Errors
    /// As [`build`](Self::build), for numbers that make no exchange.
    pub fn buffer_bytes(&self) -> Result<usize> {
        self.prepare().map(|prepared| prepared.places.bytes())
    }

    /// Makes the exchange and allocates all that it needs: no later call allocates but [`layout`](super::Received::layout) (and
    /// the first from each place in the program, which is written down for reports). Collective over the
    /// team, with the same numbers on all PEs; over the world, unless it is given its [`memory`](Self::memory).
    ///
    /// # Errors
    /// On all PEs alike: [`BadSetting`](ErrorKind::BadSetting) for a number that makes no exchange, `SHMEM_COLL_ALGO` or `SHMEM_COLL_TABLE`,
    /// [`NoSuchPe`](ErrorKind::NoSuchPe) and [`Length`](ErrorKind::Length) for a placement, [`Length`](ErrorKind::Length) and
    /// [`Misaligned`](ErrorKind::Misaligned) for a memory, [`Overflow`](ErrorKind::Overflow); [`Mismatch`](ErrorKind::Mismatch) if the PEs' numbers differ;
    /// those of [`World::alloc`].
    #[track_caller]
    pub fn build(self) -> Result<Moe<'t, P>> {
        let prepared = self.prepare().and_then(|prepared| self.check_memory(&prepared.places).map(|()| prepared));
        let (print, call) = match &prepared {
            Ok(prepared) => self.print(prepared),
            Err(error) => refusal(0, error),
        };
        self.team.meet(print).wait(self.team, || call)?;
        let Prepared { shape, places, placement, mapped, mode } = prepared?;
        let (world, team) = (self.world, self.team);
        let (block, all) = match self.memory {
            Some(memory) => (None, memory.slice(..places.bytes())?),
            None => {
                let block = world.align::<u8>(2 * 64, places.bytes())?;
                let offset = block.sym().offset();
                (Some(block), world.object_at(offset, places.bytes())?)
            }
        };
        let memory = Memory::<P>::new(all, &places)?;
        let ctx = team.ctx::<Private>().of_library();
        let (n, me) = (team.n_pes(), team.me());
        // Each tells all with whom it shares memory, in words that are flags afterwards.
        memory.credits.fill(0);
        memory.arrivals.fill(0);
        memory.gone.fill(0);
        team.barrier()?;
        let leader = mapped.iter().position(|mapped| *mapped).unwrap_or(me) as u64;
        for pe in 0..n {
            ctx.put(memory.credits.at(me * FLAG)?, &[leader], pe)?;
        }
        ctx.quiet()?;
        team.barrier()?;
        let leaders = (0..n).map(|pe| memory.credits.read(pe * FLAG).map(|leader| leader as usize));
        let leaders = leaders.collect::<Result<Vec<_>>>()?;
        memory.credits.fill(0);
        let reserved = Reserved::new(world, all, &places, Location::caller())?;
        team.barrier()?;
        let masked = vec![false; n];
        let own = placement.on(me);
        Ok(Moe {
            world,
            team,
            ctx,
            mode,
            block,
            reserved,
            members: team.members(),
            ways: Ways { me, lands: lands(mode, me, &leaders, &masked), masked },
            leaders,
            mapped,
            left_out: Vec::with_capacity(n),
            leave_out_lost: self.leave_out_lost,
            number: BUILT.fetch_add(1, Ordering::Relaxed),
            step: 0,
            sent_without: 0,
            stage: Stage::Idle,
            arrived: vec![None; n],
            given: vec![false; n],
            routes: Routes::new(&shape),
            rows: Rows::new(&shape, own.len()),
            missing: Vec::with_capacity(shape.max_tokens * shape.top_k),
            encoded: vec![0; Moe::<P>::part(shape.token)],
            decoded: RefCell::new(vec![0; if P::PLAIN { 0 } else { shape.token }]),
            moved: 0,
            culprit: None,
            own,
            memory,
            placement,
            shape,
        })
    }

    /// Whether the numbers make an exchange, and which.
    fn prepare(&self) -> Result<Prepared> {
        let Builder { experts, max_tokens, hidden, top_k, team, .. } = *self;
        let n = team.n_pes();
        for (name, value) in [("experts", experts), ("max_tokens", max_tokens), ("hidden", hidden)] {
            if value == 0 {
                return Err(bad(name, value, "give at least 1"));
            }
        }
        if experts > MOST_EXPERTS {
            return Err(bad("experts", experts, &format!("give at most {MOST_EXPERTS}")));
        }
        if top_k == 0 || top_k > MOST.min(experts) {
            return Err(bad("top_k", top_k, &format!("give 1 to {}: there are {experts} experts", MOST.min(experts))));
        }
        let pes = match &self.placement {
            Some(pes) => pes.clone(),
            None => (0..n).flat_map(|pe| Problem::part(experts, n, pe).map(move |_| pe)).collect(),
        };
        if pes.len() != experts {
            return Err(ErrorKind::Length { what: "placement", given: pes.len(), needed: experts }.into());
        }
        if let Some(&pe) = pes.iter().find(|pe| **pe >= n) {
            return Err(ErrorKind::NoSuchPe { pe, n_pes: n }.into());
        }
        let placement = Placement::new(&pes, n);
        let (probe, ctx) = (team.workspace(), team.ctx::<Private>());
        let mapped =
            (0..n).map(|pe| Ok(pe == team.me() || ctx.ptr(probe, pe)?.is_some())).collect::<Result<Vec<_>>>()?;
        let too_long = || ErrorKind::Overflow { count: hidden, size: size_of::<P::Elem>() };
        let output = hidden.checked_mul(size_of::<P::Elem>()).filter(|bytes| *bytes < isize::MAX as usize / 2);
        let output = output.ok_or_else(too_long)?;
        let local = top_k.min(placement.largest);
        let remote = !mapped.iter().all(|mapped| *mapped);
        let shape = Shape { n, experts, max_tokens, hidden, top_k, local, token: P::bytes(hidden), output, remote };
        let places = shape.places()?;
        let selection = Selection::new(self.world.config())?;
        let mode = self.mode.unwrap_or_else(|| selection.moe(max_tokens.saturating_mul(shape.token), remote).0);
        Ok(Prepared { shape, places, placement, mapped, mode })
    }

    fn check_memory(&self, places: &Places) -> Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        let (given, needed) = (memory.len(), places.bytes());
        if given < needed {
            return Err(ErrorKind::Length { what: "memory of an exchange", given, needed }.into());
        }
        let (offset, align) = (memory.offset(), FLAG * size_of::<u64>());
        if offset.is_multiple_of(align) { Ok(()) } else { Err(ErrorKind::Misaligned { offset, align }.into()) }
    }

    /// What the PEs compare, and what is said where they differ.
    fn print(&self, prepared: &Prepared) -> (u64, String) {
        let Shape { experts, max_tokens, hidden, top_k, .. } = prepared.shape;
        let at = self.memory.map_or(u64::MAX, |memory| memory.offset() as u64);
        let numbers = [experts, max_tokens, hidden, top_k, prepared.mode as usize].map(|number| number as u64);
        let placement = prepared.placement.print;
        let name = P::NAME.bytes().map(u64::from);
        let print = digest(0, numbers.into_iter().chain([at, placement]).chain(name));
        let place = if at == u64::MAX { String::new() } else { format!(", in memory at offset {at}") };
        let text = format!(
            "an exchange of {experts} experts (placement {placement:014x}), {max_tokens} tokens × {hidden} {}, top {top_k}, for {}{place}",
            P::NAME,
            prepared.mode
        );
        (print, text)
    }
}

fn bad(name: &str, value: usize, form: &str) -> shmem::Error {
    ErrorKind::BadSetting { name: name.into(), value: value.to_string(), form: form.into() }.into()
}
