//! Who is there? Every PE writes a card into the memory of PE 0, which reads them out.
//!
//! ```text
//! cargo run --release -- -n 4 --example hello
//! ```

use std::collections::BTreeSet;

use bytemuck::{Pod, Zeroable};
use shmem::Shared;

/// What a PE tells of itself. Any plain type may lie in symmetric memory.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Card {
    process: u32,
    neighbours: u32,
    host: [u8; 64],
}

fn main() -> shmem::Result<()> {
    shmem::run(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());

        // The same array on every PE; this program uses only PE 0's copy of it, where element i belongs to PE i.
        let cards = world.alloc_zeroed::<Card>(n)?;
        let neighbours = world.shared_team().n_pes() as u32;
        let card = Card { process: std::process::id(), neighbours, host: host_name() };
        ctx.put(cards.sym().at(me)?, &[card], 0)?;

        // From here on every PE sees what any PE has put before.
        world.barrier_all()?;
        if me == 0 {
            let cards = cards.sym().to_vec();
            for (pe, card) in cards.iter().enumerate() {
                assert!(card.process != 0, "PE {pe} left no card");
                let (process, neighbours, host) = (card.process, card.neighbours, text(&card.host));
                println!("PE {pe} of {n} is process {process} on {host}, which shares memory among {neighbours}");
            }
            let hosts: BTreeSet<&[u8; 64]> = cards.iter().map(|card| &card.host).collect();
            let heap = world.heap_size() >> 20;
            println!("hello from {n} PE(s) on {} host(s), each with a symmetric heap of {heap} MiB", hosts.len());
        }
        world.free(cards)
    })
}

/// This host's name, padded with zeros; all zeros where the system does not tell.
fn host_name() -> [u8; 64] {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut padded = [0; 64];
    for (to, from) in padded.iter_mut().zip(name.trim_ascii_end()) {
        *to = *from;
    }
    padded
}

fn text(padded: &[u8]) -> String {
    String::from_utf8_lossy(padded).trim_end_matches('\0').to_owned()
}
