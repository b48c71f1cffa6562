//! Barrier and sync, as calls like the others: blocking, or started and in their turn.
//!
//! Each is one meeting, before which a barrier completes what this PE has put.

use shmem::{Meeting, Result};

use crate::call::Call;
use crate::coll::{Coll, Pending};
use crate::run::{Lane, meet};
use crate::task::Task;

/// A call under way.
struct Gathering {
    number: u64,
    call: Call,
    stage: Stage,
}

/// How far it has come.
enum Stage {
    /// Whether puts are still to be completed.
    Begun {
        puts: bool,
    },
    Meeting(Option<Meeting>),
}

impl Gathering {
    fn new(number: u64, puts: bool) -> Self {
        let (name, code) = if puts { ("barrier", 15) } else { ("sync", 16) };
        Gathering { number, call: Call::other(name, code, 0, ""), stage: Stage::Begun { puts } }
    }
}

impl Task for Gathering {
    fn advance(&mut self, lane: &mut Lane<'_>, block: bool) -> Result<bool> {
        let Gathering { number, call, stage } = self;
        if let Stage::Begun { puts } = stage {
            if *puts {
                lane.ctx.quiet()?;
            }
            *stage = Stage::Meeting(Some(lane.team.meet(call.digest(*number))));
        }
        match stage {
            Stage::Meeting(meeting) => meet(meeting, lane.team, &|| call.text(*number), block),
            Stage::Begun { .. } => Ok(false),
        }
    }
}

impl<'t> Coll<'t> {
    /// Completes this PE's puts everywhere, then blocks until all PEs have done so, after the end of all that was
    /// started: then all see all that was put before. Collective; blocks.
    ///
    /// # Errors
    /// [`Mismatch`](shmem::ErrorKind::Mismatch) if the PEs' calls differ, also where one calls
    /// [`Team::barrier`](shmem::Team::barrier), which knows nothing of these; [`PeerLost`](shmem::ErrorKind::PeerLost),
    /// [`Timeout`](shmem::ErrorKind::Timeout).
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.run_task("barrier", |number| Ok(Gathering::new(number, true)))
    }

    /// Blocks until all PEs have called it, after the end of all that was started. Says nothing about puts: for that,
    /// see [`barrier`](Self::barrier). Collective; blocks.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        self.run_task("sync", |number| Ok(Gathering::new(number, false)))
    }

    /// Starts [`barrier`](Self::barrier): it completes what was put before it was started, and perhaps more. Collective;
    /// does not block. All errors come from the [`Pending`].
    pub fn start_barrier(&self) -> Pending<'_, 't> {
        self.start_task(|number| Ok(Gathering::new(number, true)))
    }

    /// Starts [`sync`](Self::sync). Collective; does not block. All errors come from the [`Pending`].
    pub fn start_sync(&self) -> Pending<'_, 't> {
        self.start_task(|number| Ok(Gathering::new(number, false)))
    }
}
