//! B09, C03, P02: a PE that does not come is named, by a table that is printed once, and by the error of the time limit.

use std::time::Duration;

use shmem::Shared;

use super::common::{is_child, spawn};
use super::*;

/// Children print the table on their stderr.
#[test]
fn a_stall_is_reported_once_with_its_culprit() {
    const TEST: &str = "stalls::a_stall_is_reported_once_with_its_culprit";
    if is_child(TEST) {
        let world = common::child_builder().set("SHMEM_STALL_WARN", "0.3").unwrap().build().unwrap();
        let word = world.alloc_zeroed::<u64>(1).unwrap();
        world.barrier_all().unwrap();
        match std::env::var("FAULT").unwrap().as_str() {
            "outside" if world.me() == 1 => std::thread::sleep(Duration::from_millis(1000)),
            "elsewhere" if world.me() == 1 => {
                // In another call, until a third PE comes.
                world.ctx::<Shared>().wait(word.sym(), |value| value == 1).unwrap();
            }
            "elsewhere" if world.me() == 0 => {
                std::thread::sleep(Duration::from_millis(1000));
                world.ctx::<Shared>().p(word.sym(), 1, 1).unwrap();
            }
            _ => {}
        }
        world.barrier_all().unwrap();
        return;
    }
    for n in [2, 3, 5] {
        for fault in ["outside", "elsewhere"] {
            let ended = spawn(TEST, n, |_, command| command.env("FAULT", fault));
            assert!(ended.iter().all(|pe| pe.success), "{ended:?}");
            let said: Vec<&str> =
                ended.iter().map(|pe| pe.output.as_str()).filter(|s| s.contains("SHMEM_STALL_WARN")).collect();
            assert_eq!(said.len(), 1, "{n} PEs, {fault}: {ended:?}");
            assert_eq!(said[0].matches("SHMEM_STALL_WARN").count(), 1, "{}", said[0]);
            match fault {
                "outside" => {
                    assert!(said[0].contains("PE 1  outside the library for "), "{}", said[0]);
                    assert!(said[0].contains("held up by PE 1, which is: outside the library"), "{}", said[0]);
                    assert!(said[0].contains("its last call was barrier #"), "{}", said[0]);
                }
                _ => {
                    assert!(said[0].contains("PE 1  in wait at tests/faults/stalls.rs:"), "{}", said[0]);
                    assert!(said[0].contains("PE 0  outside the library for "), "{}", said[0]);
                }
            }
            if n > 2 || fault == "outside" {
                assert!(
                    said[0].contains("in barrier #") && said[0].contains("at tests/faults/stalls.rs:"),
                    "{}",
                    said[0]
                );
            }
        }
    }
}

/// PEs that wait for each other.
#[test]
fn a_cycle_is_named() {
    const TEST: &str = "stalls::a_cycle_is_named";
    if is_child(TEST) {
        let builder = common::child_builder().set("SHMEM_STALL_WARN", "0.3").unwrap();
        let world = builder.timeout(Duration::from_secs(1)).build().unwrap();
        // Each waits for the other in a team of its own.
        let a = world.team().split_list(&[0, 1]).unwrap();
        let b = world.team().split_list(&[1, 0]).unwrap();
        if let (Some(a), Some(b)) = (a, b) {
            let error = if world.me() == 0 { a.sync() } else { b.sync() }.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Timeout { .. }) || error.kind().is_lost(), "{error}");
        }
        return;
    }
    for n in [2, 3] {
        let ended = spawn(TEST, n, |_, command| command);
        let said: String = ended.iter().map(|pe| pe.output.as_str()).collect();
        assert!(said.contains("PEs 0-1 wait for each other: PE 0 waits for PE 1 waits for PE 0"), "{said}");
    }
}

/// The time limit's error says where the PE that is waited for is.
#[test]
fn a_time_limit_names_the_culprit() {
    let texts = common::job(
        3,
        |builder| builder.timeout(Duration::from_millis(300)),
        |world| {
            world.barrier_all()?;
            if world.me() == 2 {
                std::thread::sleep(Duration::from_millis(600));
                return Ok(String::new());
            }
            Ok(world.barrier_all().unwrap_err().to_string())
        },
    );
    for (pe, text) in texts.into_iter().enumerate().take(2) {
        let text = text.unwrap();
        let named = text.contains("it waits for PE 2, which is outside the library");
        // Whoever gave up first is another reason.
        assert!(named || text.contains("it gave up after a collective call had timed out"), "PE {pe}: {text}");
    }
}

/// Without a launcher, the first PE that learns of a loss writes what all have done, the lost one too, if asked to.
#[test]
fn the_last_calls_of_all_are_written_after_a_loss() {
    let file = std::env::temp_dir().join(format!("shmem-faults-{}", std::process::id()));
    let named = file.to_str().unwrap().to_owned();
    let outcomes = common::job(
        3,
        |builder| builder.set("SHMEM_FLIGHT_FILE", &named).unwrap(),
        |world| {
            let block = world.alloc::<u64>(10)?;
            world.free(block)?;
            if world.me() == 1 {
                world.sync_all()?;
                world.abandon();
                return Ok(());
            }
            until_lost(|| world.sync_all());
            Ok(())
        },
    );
    outcomes.into_iter().for_each(|pe| pe.unwrap());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(text.starts_with("PE 1 is lost: its function returned an error\n"), "{text}");
    for pe in 0..3 {
        let of_pe = &text[text.find(&format!("PE {pe}: ")).unwrap()..];
        for call in ["alloc #", "free #", "sync #"] {
            assert!(of_pe.contains(call) && of_pe.contains("at tests/faults/stalls.rs:"), "{call} of PE {pe}: {text}");
        }
    }
}
