//! Every payload, mode, routing and number of PEs.

use shmem::{Result, World};
use shmem_collectives::moe::{Bf16, F16, F32, Fp8E4m3, Moe, MoeMode, Payload};

use crate::common::{checked, processes, scaled, shuffled};
use crate::model::{Routing, Size, round};

const ROUTINGS: [Routing; 3] = [Routing::Uniform, Routing::Skewed, Routing::Single];

/// Rounds of an exchange of this size, in both modes.
fn exchange<P: Payload>(world: &World, payload: P, size: Size, rounds: usize) -> Result<()> {
    let team = world.team();
    for mode in MoeMode::ALL {
        let Size { experts, max_tokens, hidden, top_k } = size;
        let moe = Moe::builder(world, &team).experts(experts).max_tokens(max_tokens).hidden(hidden).top_k(top_k);
        let mut moe = moe.payload(payload).mode(mode).build()?;
        for seed in 0..rounds as u64 {
            round(&mut moe, &size, seed, ROUTINGS[seed as usize % 3])?;
        }
        moe.free()?;
    }
    Ok(())
}

/// J01, J05, J07, J08, J09: all payloads, with as many experts as divide and not, and with more PEs than experts.
fn everything(world: &World) -> Result<()> {
    let rounds = scaled(world, 30).max(6);
    let size = |experts, max_tokens, hidden, top_k| Size { experts, max_tokens, hidden, top_k };
    exchange(world, Bf16, size(8, 9, 40, 3), rounds)?;
    exchange(world, F16, size(3, 4, 33, 2), rounds)?;
    exchange(world, F32, size(7, 5, 1, 7), rounds)?;
    exchange(world, F32, size(1, 3, 300, 1), rounds)?;
    exchange(world, Fp8E4m3, size(5, 20, 130, 4), rounds)?;
    exchange(world, Bf16, size(20, 2, 16, 16), rounds)
}

#[test]
fn threads() {
    for n in [1, 2, 3, 5, 8] {
        shmem::local(n, everything).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}

#[test]
fn in_checked_mode() {
    checked(everything);
}

#[test]
fn over_a_network_that_reorders() {
    shuffled(everything);
}

#[test]
fn real_processes() {
    processes("matrix::real_processes", &[1, 2, 3, 5, 8], everything);
}

/// J05: heavy imbalance.
#[test]
fn thousands_of_tokens_for_one_expert() {
    let size = Size { experts: 64, max_tokens: 2304, hidden: 8, top_k: 8 };
    shmem::local(4, |world| exchange(world, Bf16, size, 6)).unwrap();
}

/// J10: no small limit on PEs.
#[test]
fn many_pes() {
    let size = Size { experts: 40, max_tokens: 1, hidden: 4, top_k: 2 };
    shmem::local(33, |world| exchange(world, F32, size, 3)).unwrap();
}
