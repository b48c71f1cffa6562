//! PEs that join the job: this test binary, launched as the program.

use super::*;

/// Not a test of its own: what a PE does when this binary is launched as the program.
#[test]
fn pe_of_a_job() {
    let Ok(task) = std::env::var("TEST_TASK") else { return };
    let setting = |name: &str| std::env::var(name).unwrap();
    let number = |name: &str| setting(name).parse().unwrap();
    let (me, n) = (number("SHMEM_PE"), number("SHMEM_N_PES"));
    if task == "pe 1 stays away" && me == 1 {
        std::process::exit(0);
    }
    let rounds = if task == "twice" { 2 } else { 1 };
    for _ in 0..rounds {
        let address = setting("SHMEM_RENDEZVOUS");
        let mut pe = Rendezvous::join(&address, &setting("SHMEM_JOB_KEY"), me, n, Some(BOUND)).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(7)
        });
        let own = format!("of PE {me}, {:?}", Instant::now());
        let mut file = fs::File::from(rustix::fs::memfd_create("pe", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.write_all(own.as_bytes()).unwrap();
        file.rewind().unwrap();
        let host: Vec<usize> = (0..n).collect();
        let handed = pe.hand_over(file.into(), &host).unwrap();
        let all = pe.allgather(own.as_bytes()).unwrap();
        assert_eq!(all[me], own.as_bytes());
        for (file, bytes) in handed.into_iter().zip(all) {
            let mut read = vec![0; bytes.len()];
            fs::File::from(file.try_clone().unwrap()).read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, bytes);
        }
    }
    println!("joined");
}

fn job_of_this_binary(n: usize, task: &str, wrapper: &[&str]) -> Command {
    let (n, exe) = (n.to_string(), std::env::current_exe().unwrap());
    let mut command = shmemrun(&["-n", &n]);
    command.args(wrapper).arg(exe).args(["--exact", "meeting::pe_of_a_job", "--nocapture"]).env("TEST_TASK", task);
    command
}

fn joined(outcome: &Outcome) -> usize {
    outcome.text().lines().filter(|line| line.ends_with("joined")).count()
}

#[test]
fn pes_meet_under_the_launcher() {
    for n in [1, 2, 3, 5, 8, 16] {
        for task in ["once", "twice"] {
            let outcome = run(&mut job_of_this_binary(n, task, &[]));
            assert_eq!((outcome.code, joined(&outcome)), (Some(0), n), "{}", outcome.err);
        }
    }
}

#[test]
fn a_pe_that_ends_without_joining_is_named_to_the_others() {
    let outcome = run(&mut job_of_this_binary(3, "pe 1 stays away", &[]));
    assert_eq!(outcome.code, Some(7));
    assert!(outcome.err.contains("PE 1 is lost: it exited with status 0 without joining"), "{}", outcome.err);
}

#[test]
fn pes_with_equal_process_numbers_meet() {
    let wrapper = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let able = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").stderr(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no process namespaces here");
        return;
    }
    let outcome = run(shmemrun(&["-n", "3"]).args(wrapper).args(["sh", "-c", "exit $((SHMEM_PE * 0 + 9))"]));
    assert_eq!(outcome.code, Some(9));
    let outcome = run(&mut job_of_this_binary(4, "equal numbers", &wrapper));
    assert_eq!((outcome.code, joined(&outcome)), (Some(0), 4), "{}{}", outcome.text(), outcome.err);
}
