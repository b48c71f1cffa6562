//! PEs as threads, each with a connection of its own.

use super::*;
use crate::boot::handover::tests::descriptors_are_the_peers;
use crate::boot::secret;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const LONG: Option<Duration> = Some(Duration::from_secs(30));

fn unix_address() -> String {
    format!("unix:@shmem-test-{}", secret().unwrap())
}

fn tcp_address() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("tcp://127.0.0.1:{port}")
}

fn take(address: &str, me: usize, n: usize) -> Result<Rendezvous> {
    if me == 0 { Rendezvous::host(address, "key", me, n, LONG) } else { Rendezvous::join(address, "key", me, n, LONG) }
}

/// Runs `n` PEs, each a thread with a connection of its own; PE 0 hosts.
fn job<T: Send>(address: &str, n: usize, f: impl Fn(Rendezvous) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let f = &f;
        let pe = |me| scope.spawn(move || f(take(address, me, n).unwrap()));
        let threads: Vec<_> = (0..n).map(pe).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn rounds(pe: &mut Rendezvous, count: usize) {
    let n = pe.n_pes();
    for round in 0..count {
        let mine = format!("{}/{round}", pe.me()).repeat(pe.me() + 1);
        let all = pe.allgather(mine.as_bytes()).unwrap();
        let expected: Vec<_> = (0..n).map(|p| format!("{p}/{round}").repeat(p + 1).into_bytes()).collect();
        assert_eq!(all, expected);
    }
}

#[test]
fn pes_meet_at_both_kinds_of_address() {
    for n in [1, 2, 3, 5, 8, 16] {
        for address in [unix_address(), tcp_address()] {
            job(&address, n, |mut pe| rounds(&mut pe, 20));
        }
    }
}

#[test]
fn a_pe_that_serves_the_rendezvous_is_no_launcher() {
    job(&unix_address(), 2, |mut pe| {
        assert!(!pe.led());
        // There is nobody to show it to.
        pe.show(&crate::boot::handover::tests::file_of(0), 2).unwrap();
    });
}

#[test]
fn sixty_four_pes_meet_and_hand_over_descriptors() {
    job(&unix_address(), 64, |mut pe| {
        let host: Vec<usize> = (0..64).collect();
        descriptors_are_the_peers(&mut pe, &host);
    });
}

#[test]
fn descriptors_stay_on_their_host() {
    for address in [unix_address(), tcp_address()] {
        job(&address, 5, |mut pe| {
            let host: &[usize] = if [0, 2, 3].contains(&pe.me()) { &[0, 2, 3] } else { &[1, 4] };
            descriptors_are_the_peers(&mut pe, host);
            let alone = [pe.me()];
            descriptors_are_the_peers(&mut pe, &alone);
        });
    }
}

#[test]
fn large_rounds_arrive_whole() {
    job(&unix_address(), 3, |mut pe| {
        let all = pe.allgather(&vec![pe.me() as u8; ROUND_MAX]).unwrap();
        for (p, bytes) in all.iter().enumerate() {
            assert!(bytes.len() == ROUND_MAX && bytes.iter().all(|&b| b == p as u8));
        }
        assert!(pe.allgather(&vec![0; ROUND_MAX + 1]).is_err());
        rounds(&mut pe, 1);
    });
}

#[test]
fn the_host_may_come_last() {
    for address in [unix_address(), tcp_address()] {
        let started = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                started.store(true, Ordering::Release);
                rounds(&mut take(&address, 1, 2).unwrap(), 3);
            });
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            rounds(&mut take(&address, 0, 2).unwrap(), 3);
        });
    }
}

#[test]
fn a_job_can_meet_again_at_the_same_address() {
    for address in [unix_address(), tcp_address()] {
        thread::scope(|scope| {
            for me in 0..3 {
                let address = &address;
                scope.spawn(move || (0..5).for_each(|_| rounds(&mut take(address, me, 3).unwrap(), 2)));
            }
        });
    }
}

#[test]
fn a_wrong_key_is_refused_and_harms_nobody() {
    let address = unix_address();
    thread::scope(|scope| {
        let host = scope.spawn(|| rounds(&mut take(&address, 0, 2).unwrap(), 2));
        for key in ["", "kex", "key2", "a much longer key than the right one"] {
            let e = Rendezvous::join(&address, key, 1, 2, LONG).err().unwrap();
            assert!(matches!(e.kind(), ErrorKind::Rendezvous { pe: 1, .. }), "{e}");
            assert!(e.to_string().contains("SHMEM_JOB_KEY"), "{e}");
        }
        rounds(&mut take(&address, 1, 2).unwrap(), 2);
        host.join().unwrap();
    });
}

#[test]
fn two_processes_with_one_number_fail_for_all() {
    let address = unix_address();
    let errors: Vec<Error> = thread::scope(|scope| {
        let pes = [0, 1, 1].map(|me| {
            let address = &address;
            scope.spawn(move || take(address, me, 3).err().unwrap())
        });
        pes.into_iter().map(|pe| pe.join().unwrap()).collect()
    });
    assert!(matches!(errors[0].kind(), ErrorKind::PeerLost { pe: 1, .. }), "{}", errors[0]);
    let twins = &errors[1..];
    assert!(twins.iter().any(|e| matches!(e.kind(), ErrorKind::BadJob { pe: 1, .. })), "{twins:?}");
}

#[test]
fn numbers_of_another_job_fail_for_all() {
    let address = unix_address();
    thread::scope(|scope| {
        let host = scope.spawn(|| take(&address, 0, 2).err().unwrap());
        let e = take(&address, 1, 3).err().unwrap();
        assert!(matches!(e.kind(), ErrorKind::BadJob { pe: 1, n_pes: 3, .. }), "{e}");
        let e = host.join().unwrap();
        assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{e}");
    });
}

#[test]
fn impossible_arguments_are_refused_at_once() {
    for (me, n) in [(0, 0), (2, 2), (usize::MAX, 2), (0, usize::MAX)] {
        let e = Rendezvous::join("unix:@nobody", "key", me, n, LONG).err().unwrap();
        assert!(matches!(e.kind(), ErrorKind::BadJob { .. }), "{e}");
    }
    let long = format!("unix:@{}", "n".repeat(200));
    for address in ["", "unix:/tmp/socket", "unix:@", &long, "host", ":1", "host:", "host:0", "host:65536", "tcp://"] {
        let e = Rendezvous::join(address, "key", 0, 1, LONG).err().unwrap();
        assert!(e.to_string().contains("unix:@NAME"), "{address}: {e}");
    }
    let e = Rendezvous::join("unix:@nobody", &"k".repeat(65), 0, 1, LONG).err().unwrap();
    assert!(e.to_string().contains("key"), "{e}");
}

#[test]
fn an_address_in_use_is_an_error() {
    let address = unix_address();
    let _first = Rendezvous::host(&address, "key", 0, 1, LONG).unwrap();
    let e = Rendezvous::host(&address, "key", 0, 1, LONG).err().unwrap();
    assert!(e.to_string().contains("in use"), "{e}");
}

#[test]
fn the_limit_ends_the_wait_and_names_who_is_missing() {
    let limit = Some(Duration::from_millis(60));
    for address in [unix_address(), tcp_address()] {
        let e = Rendezvous::join(&address, "key", 1, 2, limit).err().unwrap();
        let text = e.to_string();
        assert!(text.contains(&address) && text.contains("60ms") && text.contains("SHMEM_INIT_TIMEOUT"), "{text}");
        let e = Rendezvous::host(&address, "key", 1, 4, limit).err().unwrap();
        let text = e.to_string();
        assert!(text.contains("have not joined: 0 and 2-3") && text.contains("SHMEM_INIT_TIMEOUT"), "{text}");
    }
}

#[test]
fn the_limit_ends_a_round_and_names_who_is_missing() {
    let address = unix_address();
    let checked = AtomicBool::new(false);
    thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let pe = take(&address, 1, 2).unwrap();
            while !checked.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(pe);
        });
        let mut pe = Rendezvous::host(&address, "key", 0, 2, Some(Duration::from_millis(300))).unwrap();
        let text = pe.allgather(b"").unwrap_err().to_string();
        checked.store(true, Ordering::Release);
        assert!(text.contains("not come this far: 1"), "{text}");
        assert!(pe.allgather(b"").is_err());
        silent.join().unwrap();
    });
}

#[test]
fn a_pe_that_leaves_is_named_to_all() {
    for address in [unix_address(), tcp_address()] {
        let results = job(&address, 4, |mut pe| {
            rounds(&mut pe, 1);
            if pe.me() == 2 {
                return None;
            }
            let e = pe.allgather(b"more").unwrap_err();
            // The host leaves last, so that nobody takes its end for the cause.
            Some((e, pe))
        });
        for (e, _) in results.into_iter().flatten() {
            assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 2, .. }), "{e}");
        }
    }
}

#[test]
fn a_pe_that_leaves_during_a_hand_over_is_named_to_all() {
    let address = unix_address();
    let results = job(&address, 3, |mut pe| {
        if pe.me() == 1 {
            pe.allgather(b"").unwrap();
            return None;
        }
        let file = crate::boot::handover::tests::file_of(0);
        Some((pe.hand_over(file, &[0, 1, 2]).unwrap_err(), pe))
    });
    for (e, _) in results.into_iter().flatten() {
        assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{e}");
    }
}

#[test]
fn the_end_of_the_host_is_an_error_not_a_hang() {
    let address = unix_address();
    let results = job(&address, 2, |mut pe| {
        rounds(&mut pe, 2);
        (pe.me() == 1).then(|| pe.allgather(b"more").unwrap_err())
    });
    assert!(results[1].is_some());
}

#[test]
fn noise_from_strangers_changes_nothing() {
    for address in [unix_address(), tcp_address()] {
        thread::scope(|scope| {
            let host = scope.spawn(|| rounds(&mut take(&address, 0, 2).unwrap(), 2));
            let place = Place::parse(&address).unwrap();
            let mut silent = Vec::new();
            for noise in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[255; 4096], &[0; 65536]] {
                let stream = loop {
                    match place.connect(Deadline(None)) {
                        Ok(stream) => break stream,
                        Err(_) => thread::yield_now(),
                    }
                };
                // The rendezvous may hang up before all was said.
                let _ = (&mut &stream).write_all(noise);
                silent.push(stream);
            }
            let mut pe = take(&address, 1, 2).unwrap();
            rounds(&mut pe, 2);
            host.join().unwrap();
        });
    }
}

#[test]
fn a_member_that_talks_nonsense_is_lost_to_the_others() {
    let address = unix_address();
    thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut pe = take(&address, 0, 2).unwrap();
            pe.allgather(b"").unwrap_err()
        });
        let pe = take(&address, 1, 2).unwrap();
        (&mut &pe.stream).write_all(&[1, 255, 255, 255, 255]).unwrap();
        let e = host.join().unwrap();
        assert!(matches!(e.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{e}");
    });
}

/// The PE that serves the rendezvous fails at start, because of another, before a third has come: that one is told, too.
#[test]
fn who_comes_late_to_a_job_that_has_failed_is_told() {
    let address = unix_address();
    let limit = Some(Duration::from_secs(60));
    std::thread::scope(|threads| {
        let host = threads.spawn(|| Rendezvous::host(&address, "key", 0, 3, limit).map(|_| ()));
        let stray = threads.spawn(|| Rendezvous::join(&address, "key", 1, 4, limit).map(|_| ()));
        assert!(stray.join().unwrap().is_err());
        std::thread::sleep(Duration::from_millis(100));
        let late = Rendezvous::join(&address, "key", 2, 3, limit).map(|_| ()).unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{late}");
        let error = host.join().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::PeerLost { pe: 1, .. }), "{error}");
    });
}
