//! The protocols as they ship, in every execution within the preemptions that each model states (`None`: all). The
//! README of `src/sync` has the same table.

use loom_tests::Mutation::None as Sound;
use loom_tests::Waiting::{Sleep, Spin};
use loom_tests::models::{active, barrier, fate, gather, lock, moe, park, quiet, recorder, ring, signal};

/// A test for each model, and the table that the README is held against.
macro_rules! models {
    ($($name:ident [$preemptions:expr]: $model:expr;)*) => {
        const MODELS: &[(&str, Option<usize>)] = &[$((stringify!($name), $preemptions)),*];
        $(
            #[test]
            fn $name() {
                let model: fn(Option<usize>) -> _ = $model;
                let executions = model($preemptions).executions;
                println!("{}: {executions} executions", stringify!($name));
                assert!(executions > 1, "nothing was explored");
            }
        )*
    };
}

models! {
    barrier_2 [None]: |bound| barrier::model((2, 2, 3), Spin, bound, Sound);
    barrier_2_letters [None]: |bound| barrier::letters(bound, Sound);
    barrier_2_asleep [Some(2)]: |bound| barrier::model((2, 2, 3), Sleep, bound, Sound);
    barrier_3_radix_2 [Some(1)]: |bound| barrier::model((3, 2, 2), Spin, bound, Sound);
    barrier_3_radix_3 [Some(0)]: |bound| barrier::model((3, 3, 3), Spin, bound, Sound);
    barrier_3_radix_3_asleep [Some(1)]: |bound| barrier::model((3, 3, 3), Sleep, bound, Sound);

    lock_2 [Some(3)]: |bound| lock::model(2, 0, false, Spin, bound, Sound);
    lock_2_home_elsewhere [Some(3)]: |bound| lock::model(2, 2, false, Spin, bound, Sound);
    lock_2_test [Some(2)]: |bound| lock::model(2, 1, true, Spin, bound, Sound);
    lock_2_asleep [Some(2)]: |bound| lock::model(2, 0, false, Sleep, bound, Sound);
    lock_2_broken [Some(3)]: |bound| lock::broken(2, Spin, bound, Sound);
    lock_2_broken_asleep [Some(3)]: |bound| lock::broken(2, Sleep, bound, Sound);
    lock_3_broken [Some(1)]: |bound| lock::broken(3, Spin, bound, Sound);
    lock_3_broken_asleep [Some(1)]: |bound| lock::broken(3, Sleep, bound, Sound);
    lock_3 [Some(1)]: |bound| lock::model(3, 0, false, Spin, bound, Sound);
    lock_3_test [Some(1)]: |bound| lock::model(3, 0, true, Spin, bound, Sound);
    lock_3_asleep [Some(1)]: |bound| lock::model(3, 0, false, Sleep, bound, Sound);

    ring_1 [Some(4)]: |bound| ring::model(1, Spin, bound, Sound);
    ring_2 [Some(4)]: |bound| ring::model(2, Spin, bound, Sound);
    ring_1_asleep [Some(2)]: |bound| ring::model(1, Sleep, bound, Sound);
    ring_3_relay [Some(2)]: |bound| ring::relay(Spin, bound, Sound);

    recorder_1 [Some(3)]: |bound| recorder::model(1, 2, 1, bound, Sound);
    recorder_1_read_twice [Some(2)]: |bound| recorder::model(1, 2, 2, bound, Sound);
    recorder_2 [Some(2)]: |bound| recorder::model(2, 1, 1, bound, Sound);

    gather_2 [Some(1)]: |bound| gather::model(2, bound, Sound);

    fate_3 [Some(3)]: |bound| fate::model(bound, Sound);

    signal_2_set [None]: |bound| signal::model(2, signal::SET, Spin, bound, Sound);
    signal_2_add [None]: |bound| signal::model(2, signal::ADD, Spin, bound, Sound);
    signal_2_asleep [Some(3)]: |bound| signal::model(2, signal::SET, Sleep, bound, Sound);
    signal_3_set [Some(2)]: |bound| signal::model(3, signal::SET, Spin, bound, Sound);
    signal_3_add [Some(2)]: |bound| signal::model(3, signal::ADD, Spin, bound, Sound);
    signal_3_asleep [Some(1)]: |bound| signal::model(3, signal::ADD, Sleep, bound, Sound);

    quiet_2 [None]: |bound| quiet::model(2, bound, Sound);
    quiet_3 [Some(2)]: |bound| quiet::model(3, bound, Sound);

    park_1_sleeper [None]: |bound| park::model(1, 1, bound, Sound);
    park_1_sleeper_twice [Some(4)]: |bound| park::model(1, 2, bound, Sound);
    park_2_sleepers [Some(2)]: |bound| park::model(2, 2, bound, Sound);

    moe_2 [Some(3)]: |bound| moe::model(true, Spin, bound, Sound);
    moe_2_given_up [Some(3)]: |bound| moe::model(false, Spin, bound, Sound);
    moe_2_asleep [Some(2)]: |bound| moe::model(true, Sleep, bound, Sound);

    active_2 [Some(3)]: |bound| active::model(2, Spin, bound, Sound);
    active_2_asleep [Some(2)]: |bound| active::model(2, Sleep, bound, Sound);
    active_3 [Some(1)]: |bound| active::model(3, Spin, bound, Sound);
}

#[test]
fn the_readme_lists_every_model_with_its_bound() {
    let readme = include_str!("../../src/sync/README.md");
    for (name, preemptions) in MODELS {
        let bound = preemptions.map_or("all".into(), |bound| bound.to_string());
        let row = format!("| `{name}` | {bound} |");
        assert!(readme.lines().any(|line| line.starts_with(&row)), "no row {row}");
    }
}
