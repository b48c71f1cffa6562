//! The protocols as they ship, in every execution within the bounds that each test states: `None` means all preemptions.
//! README.md of `src/sync` lists them.

use loom_tests::Mutation::None as Sound;
use loom_tests::Waiting::{Sleep, Spin};
use loom_tests::models::{announcement, barrier, lock, park, quiet, ring, signal};

macro_rules! models {
    ($($name:ident: $run:expr;)*) => {$(
        #[test]
        fn $name() {
            let start = std::time::Instant::now();
            let explored = $run;
            println!("EXP {}: {explored:?} {:?}", stringify!($name), start.elapsed());
            assert!(explored.executions > 1, "a model with one execution explores nothing");
        }
    )*};
}

models! {
    barrier_2: barrier::model(2, 2, Spin, None, Sound);
    barrier_2_asleep: barrier::model(2, 2, Sleep, Some(2), Sound);
    barrier_3_radix_2: barrier::model(3, 2, Spin, Some(2), Sound);
    barrier_3_radix_3: barrier::model(3, 3, Spin, Some(2), Sound);

    lock_2: lock::model(2, 0, false, Spin, None, Sound);
    lock_2_home_elsewhere: lock::model(2, 2, false, Spin, None, Sound);
    lock_2_test: lock::model(2, 0, true, Spin, None, Sound);
    lock_2_asleep: lock::model(2, 0, false, Sleep, Some(2), Sound);
    lock_3: lock::model(3, 0, false, Spin, Some(2), Sound);
    lock_3_test: lock::model(3, 0, true, Spin, Some(2), Sound);

    ring_1: ring::model(1, Spin, None, Sound);
    ring_2: ring::model(2, Spin, None, Sound);
    ring_1_asleep: ring::model(1, Sleep, Some(2), Sound);
    ring_relay: ring::relay(Spin, Some(2), Sound);

    announcement_2: announcement::model(1, None, Sound);
    announcement_3: announcement::model(2, Some(2), Sound);

    signal_2_set: signal::model(2, signal::SET, Spin, None, Sound);
    signal_2_add: signal::model(2, signal::ADD, Spin, None, Sound);
    signal_2_asleep: signal::model(2, signal::SET, Sleep, Some(2), Sound);
    signal_3_set: signal::model(3, signal::SET, Spin, Some(2), Sound);
    signal_3_add: signal::model(3, signal::ADD, Spin, Some(2), Sound);

    quiet_2: quiet::model(2, None, Sound);
    quiet_3: quiet::model(3, Some(2), Sound);

    park_1: park::model(1, 2, None, Sound);
    park_2: park::model(2, 2, Some(2), Sound);
}
