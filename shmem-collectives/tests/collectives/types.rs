//! A large all-reduce, by every algorithm.

use shmem_collectives::op::Sum;
use shmem_collectives::plans::Algorithm;

use crate::strict::forced;

#[test]
fn a_large_one_by_every_algorithm() {
    const LEN: usize = (1 << 20) / size_of::<f32>();
    for n in [2, 3] {
        shmem::local(n, |world| {
            let (team, me) = (world.team(), world.me());
            let (src, dst) = (world.alloc::<f32>(LEN + 1)?, world.alloc::<f32>(LEN + 1)?);
            (0..LEN + 1).try_for_each(|i| src.sym().write(i, (i % 1000 + me) as f32))?;
            for algorithm in Algorithm::ALL {
                let coll = forced(world, &team, algorithm)?;
                for len in [LEN - 1, LEN + 1] {
                    dst.sym().fill(0.0);
                    coll.all_reduce(dst.sym().slice(..len)?, src.sym().slice(..len)?, Sum)?;
                    let expected =
                        (0..LEN + 1).map(|i| if i < len { n * (i % 1000) + n * (n - 1) / 2 } else { 0 } as f32);
                    assert!(dst.sym().to_vec().into_iter().eq(expected), "{algorithm}, n = {n}, {len} elements");
                }
            }
            world.free(src)?;
            world.free(dst)
        })
        .unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
}
