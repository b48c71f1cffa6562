//! x
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
use shmem::{Shared, SigRef, simulate};
use std::time::Instant;
#[test]
fn cost() {
    for n in [2usize, 3, 5] {
        let start = Instant::now();
        for seed in 0..500 {
            simulate(n, seed, None, |_| Ok(())).unwrap().into_iter().for_each(|x| x.unwrap());
        }
        eprintln!("{n}: empty {:?}", start.elapsed() / 500);
        let start = Instant::now();
        for seed in 0..500 {
            let r = simulate(n, seed, None, |world| {
                let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
                let (inbox, bell) = (world.alloc::<u64>(100)?, world.alloc_zeroed::<u64>(1)?);
                for r in 1..4 {
                ctx.put_signal(inbox.sym(), &[me as u64 + r; 100], SigRef::set(bell.sym(), r), (me + 1) % n)?;
                ctx.wait(bell.sym(), |rung| rung == r)?;
                assert_eq!(inbox.sym().to_vec(), [r + ((me + n - 1) % n) as u64; 100], "seed {seed}");
                world.barrier_all()?;
                }
                Ok(())
            }).unwrap();
            r.into_iter().for_each(|x| x.unwrap());
        }
        eprintln!("{n}: put_signal {:?}", start.elapsed() / 500);
    }
}
