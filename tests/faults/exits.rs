//! C01: the end of the whole job, by one of its PEs, wherever the others are; without a launcher.

use std::time::{Duration, Instant};

use super::common::{child_builder, is_child, spawn};

#[test]
fn one_pe_ends_the_job_wherever_the_others_are() {
    const TEST: &str = "exits::one_pe_ends_the_job_wherever_the_others_are";
    if is_child(TEST) {
        let world = child_builder().build().unwrap();
        world.barrier_all().unwrap();
        let told = std::env::var("FAULT").unwrap();
        let (status, ender) = told.split_once(',').unwrap();
        if world.me() == ender.parse::<usize>().unwrap() {
            std::thread::sleep(Duration::from_millis(20));
            if status == "43" {
                // That it gives up is not all that it has to say.
                world.abandon();
            }
            world.global_exit(status.parse().unwrap());
        }
        // In a call, asleep, at work: each of the others in another.
        match world.me() % 3 {
            0 => drop(world.barrier_all()),
            1 => std::thread::sleep(Duration::from_secs(100)),
            _ => {}
        }
        loop {
            std::hint::spin_loop();
        }
    }
    for (status, ender) in [(42, 0), (42, 3), (0, 0), (0, 2), (43, 1)] {
        let begun = Instant::now();
        let ended = spawn(TEST, 4, |_, command| command.env("FAULT", format!("{status},{ender}")));
        assert!(begun.elapsed() < Duration::from_secs(30), "the busy loops ended");
        assert!(ended.iter().all(|pe| pe.code == Some(status)), "{status} by PE {ender}: {ended:?}");
    }
}
