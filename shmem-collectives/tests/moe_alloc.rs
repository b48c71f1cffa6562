//! An exchange allocates nothing once it is built: neither on the heap of the process nor in symmetric memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use shmem::{Elem, Result, World};
use shmem_collectives::moe::{Bf16, F32, Fp8E4m3, Moe, MoeMode, Payload};
use shmem_collectives::op::Number;

thread_local! {
    /// What this thread has allocated.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises are the system's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn values<T: Elem + Number<Acc = f32>>(len: usize) -> Vec<T> {
    (0..len).map(|i| T::narrow(i as f32 / 16.0)).collect()
}

fn rounds<P: Payload>(world: &World, payload: P, mode: MoeMode) -> Result<()> {
    let (team, me) = (world.team(), world.me());
    let moe = Moe::builder(world, &team).experts(6).max_tokens(40).hidden(200).top_k(3);
    let mut moe = moe.payload(payload).mode(mode).build()?;
    let tokens: Vec<P::Elem> = values(40 * 200);
    let mut sums: Vec<P::Elem> = values(40 * 200);
    let mut copied: Vec<P::Elem> = values(3 * 40 * 3 * 200);
    let experts: Vec<i32> = (0..120).map(|i| (i * 5 / 3 + i % 3 * 2 + me as i32) % 6).collect();
    let apart = |chosen: &[i32]| chosen[0] != chosen[1] && chosen[1] != chosen[2] && chosen[0] != chosen[2];
    let experts: Vec<i32> =
        experts.chunks(3).flat_map(|one| if apart(one) { one } else { &[0, 3, -1] }).copied().collect();
    let weights = vec![0.5; 120];
    let layout = moe.dispatch(&tokens, &experts, &weights)?.layout();
    let free = world.heap_free();
    let mut before = 0;
    for round in 0..20 {
        if round == 3 {
            // The first call from each place in the program writes that place down, for reports.
            before = COUNT.get();
        }
        let few = round % 41;
        let received = match round % 3 {
            0 => moe.dispatch_again(&layout, &tokens)?,
            1 => moe.dispatch(&tokens, &experts, &weights)?,
            _ => moe.dispatch(&tokens[..few * 200], &experts[..few * 3], &weights[..few * 3])?,
        };
        for local in 0..received.experts().len() {
            let rows = received.rows(local).len() * 200;
            received.gather(local, &mut copied[..rows])?;
            received.scatter(local, &copied[..rows])?;
        }
        let dispatched = if round % 3 == 2 { few * 200 } else { sums.len() };
        assert!(moe.combine(&mut sums[..dispatched])?.is_complete());
    }
    assert_eq!(COUNT.get() - before, 0, "{} by {mode}", P::NAME);
    assert_eq!(world.heap_free(), free);
    moe.free()
}

#[test]
fn rounds_allocate_nothing() {
    for n in [1, 2, 3] {
        shmem::local(n, |world| {
            for mode in MoeMode::ALL {
                rounds(world, Bf16, mode)?;
                rounds(world, F32, mode)?;
                rounds(world, Fp8E4m3, mode)?;
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
