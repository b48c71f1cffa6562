//! A token travels round the ring of PEs, and each PE stirs its number into it.
//!
//! ```text
//! cargo run --release -- -n 4 --example ring [LAPS]
//! ```

use std::time::Instant;

use clap::Parser;
use shmem::{Shared, SigRef};

/// Sends a token round the ring of PEs.
#[derive(Parser)]
struct Args {
    /// How often the token goes round
    #[arg(default_value_t = 10_000)]
    laps: u64,
}

fn main() -> shmem::Result<()> {
    let Args { laps } = Args::parse();
    shmem::run(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let next = (me + 1) % n;

        // Every PE has an inbox for the token, and a bell which its left neighbour rings with the number of the lap.
        // One place for the token is enough: no PE gets it again before it has passed it on.
        let inbox = world.alloc::<u64>(1)?;
        let bell = world.alloc_zeroed::<u64>(1)?;

        let start = Instant::now();
        let mut token = 1;
        for lap in 1..=laps {
            if me == 0 {
                ctx.put_signal(inbox.sym(), &[token], SigRef::set(bell.sym(), lap), next)?;
            }
            ctx.wait(bell.sym(), |rung| rung == lap)?;
            token = stir(inbox.sym().read(0)?, me);
            if me != 0 {
                ctx.put_signal(inbox.sym(), &[token], SigRef::set(bell.sym(), lap), next)?;
            }
        }
        let took = start.elapsed();

        if me == 0 {
            // PE 0 sent the token off and stirred it last.
            let expected = (0..laps).fold(1, |token, _| (1..n).chain([0]).fold(token, stir));
            assert_eq!(token, expected, "the token went astray");
            let hop = took.as_secs_f64() * 1e6 / (laps.max(1) * n as u64) as f64;
            println!("ring: {laps} laps of {n} PEs, {hop:.2} us a hop, the token is {token:#018x} as it should be");
        }
        world.free(inbox)?;
        world.free(bell)
    })
}

/// The token after `pe` had it: another for every order in which the PEs have it.
fn stir(token: u64, pe: usize) -> u64 {
    token.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(pe as u64 + 1)
}
