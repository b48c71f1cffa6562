//! What the launcher says of its PEs: on request, at the time limit, and when one of them is lost.

use super::faults::job;
use super::*;

/// A job that does not end by itself, and what its launcher says.
struct Stuck {
    launcher: Child,
    err: BufReader<std::process::ChildStderr>,
    out: Receiver<Vec<u8>>,
}

impl Stuck {
    fn start(command: &mut Command) -> Stuck {
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let err = BufReader::new(launcher.stderr.take().unwrap());
        let out = collect(launcher.stdout.take().unwrap());
        Stuck { launcher, err, out }
    }

    /// What `--status` says, once it says all of this.
    fn status(&self, expected: &[&str]) -> String {
        let since = Instant::now();
        loop {
            let outcome = run(&mut shmemrun(&["--status", &self.launcher.id().to_string()]));
            let text = outcome.text();
            if outcome.code == Some(0) && expected.iter().all(|part| text.contains(part)) {
                return text;
            }
            assert!(since.elapsed() < SOON, "{expected:?} is not in\n{text}{}", outcome.err);
        }
    }

    /// The process of a PE, as the launcher says.
    fn process(&self, pe: usize) -> Pid {
        let text = self.status(&["processes by PE: "]);
        let list = text.split_once("processes by PE: ").unwrap().1.lines().next().unwrap();
        let number = list.split(", ").find_map(|entry| entry.strip_prefix(&format!("{pe}: "))).unwrap();
        Pid::from_raw(number.parse().unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.launcher), signal).unwrap();
    }

    /// The next line of the launcher's that begins so.
    fn said(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.err.read_line(&mut line).unwrap() > 0, "{begin:?} was not said");
            if line.starts_with(begin) {
                return line;
            }
        }
    }

    fn ended(mut self) -> Outcome {
        let status = wait(&mut self.launcher, SOON);
        let mut err = String::new();
        self.err.read_to_string(&mut err).unwrap();
        Outcome { code: status.code(), out: self.out.recv_timeout(SOON).unwrap(), err }
    }
}

/// All that PEs of a stuck job are known to do.
const STUCK: [&str; 4] = [
    "  PE 0  in barrier #2 at tests/launcher/faults.rs:",
    "  PE 1  in barrier #2 at tests/launcher/faults.rs:",
    "  PE 2  outside the library for ",
    "  PE 3  in barrier #2 at tests/launcher/faults.rs:",
];

#[test]
fn what_stuck_pes_do_is_told_on_request() {
    let mut job = Stuck::start(&mut job(4, &[], "stuck"));
    let text = job.status(&[&STUCK[..], &["s, waits for PE 2\n", "held up by PE 2, which is: outside"]].concat());
    assert!(text.starts_with(&format!("job {}: ", job.launcher.id())), "{text}");
    assert!(text.contains(", 4 PEs, running for ") && text.contains("; its last call was barrier #1 at "), "{text}");
    let stopped = job.process(1);
    kill_process(stopped, Signal::STOP).unwrap();
    job.status(&["  PE 1  stopped, in barrier #2 at "]);
    job.signal(Signal::USR1);
    let first = job.said("shmemrun: job ");
    assert!(first.contains(", 4 PEs, running for "), "{first}");
    assert!(job.said("  PE 1  ").contains("stopped, in barrier #2 at"));
    job.signal(Signal::TERM);
    assert_eq!(job.ended().code, Some(143));
}

#[test]
fn before_the_pes_have_joined_the_status_says_so() {
    let job = Stuck::start(&mut script(3, &[], "[ $SHMEM_PE = 1 ] || exec sleep 1000"));
    let text = job.status(&["  no world has begun: the PEs have not all called init\n", "  ended: 1\n"]);
    assert!(text.lines().next().unwrap().contains(": sh, 3 PEs, running for "), "{text}");
    assert!(!text.contains(" 1: "), "{text}");
    job.signal(Signal::TERM);
    job.ended();
}

#[test]
fn of_the_user_signals_the_pes_get_the_second_only() {
    let waits = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; echo $$; while :; do sleep 0.01; done";
    let mut job = Running::start(script(3, &[], waits), 3);
    job.signal(Signal::USR1);
    job.signal(Signal::USR2);
    let mut lines = String::new();
    for _ in 0..3 {
        job.lines.read_line(&mut lines).unwrap();
    }
    assert_eq!(lines, "usr2\n".repeat(3));
    job.signal(Signal::TERM);
    let (_, err) = job.ended();
    assert!(err.starts_with("shmemrun: job ") && err.contains("  no world has begun"), "{err}");
}

#[test]
fn a_question_while_the_rest_of_the_output_waits_for_its_reader_ends_nothing() {
    let mut launcher = script(1, &[], "seq 100000").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The pipe holds less than that; all PEs and the guard are gone, and the launcher waits.
    let since = Instant::now();
    while children(launcher.id()).is_empty() {
        assert!(since.elapsed() < SOON);
    }
    thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&launcher), Signal::USR1).unwrap();
    thread::sleep(Duration::from_millis(50));
    let out = collect(launcher.stdout.take().unwrap());
    assert_eq!(wait(&mut launcher, SOON).code(), Some(0));
    assert_eq!(out.recv_timeout(SOON).unwrap().iter().filter(|byte| **byte == b'\n').count(), 100_000);
}

#[test]
fn the_time_limit_shows_what_the_pes_were_doing() {
    let dir = scratch("limit");
    let mut command = job(4, &["--timeout", "3"], "stuck");
    let outcome = run(command.current_dir(&dir).env_remove("SHMEM_FLIGHT_FILE"));
    assert_eq!(outcome.code, Some(124));
    for line in STUCK {
        assert!(outcome.err.contains(line), "{}", outcome.err);
    }
    assert!(outcome.err.ends_with("shmemrun: the job was ended after 3s (--timeout)\n"), "{}", outcome.err);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "this is no fault");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_summary_says_what_all_were_doing() {
    let dir = scratch("summary");
    let file = dir.join("last calls");
    for options in [&[][..], &["--on-failure", "continue"]] {
        let job = Stuck::start(job(5, options, "stuck").env("SHMEM_FLIGHT_FILE", &file));
        job.status(&[&STUCK[..], &["  PE 4  in barrier #2"]].concat());
        kill_process(job.process(2), Signal::KILL).unwrap();
        let outcome = job.ended();
        assert_eq!(outcome.code, Some(137));
        let summary: Vec<&str> = outcome.err.lines().rev().take(4).collect();
        // Whether the others were ended or came to their ends before is up to the machine.
        assert!(summary[3].starts_with("shmemrun: PE 2 was killed by signal 9 (SIGKILL)"), "{}", outcome.err);
        let barrier = "  PEs 0-1 and 3-4 in barrier #2 at tests/launcher/faults.rs:";
        assert!(summary[2].starts_with(barrier), "{}", outcome.err);
        assert!(summary[1].starts_with("  PE 2 outside the library; the last call was barrier #1"), "{}", outcome.err);
        assert_eq!(summary[0], format!("  the last calls of all PEs are in {}", file.display()));
        let text = fs::read_to_string(&file).unwrap();
        for part in [
            summary[2],
            "\nPE 0: ",
            "\nPE 2: lost: it was killed by signal 9 (SIGKILL); outside the library for ",
            "\n  1 calls, of which the last 1 follow\n",
            "  barrier #1 at tests/launcher/faults.rs:",
            "  barrier #2 at tests/launcher/faults.rs:",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_flight_file_is_where_it_is_wanted() {
    let dir = scratch("flight");
    let names = || fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let lose = |adapt: fn(&mut Command) -> &mut Command| {
        let mut command = job(2, &["-x", "UNUSED"], "die barrier kill 1");
        let outcome = run(adapt(command.env_remove("SHMEM_FLIGHT_FILE").current_dir(&dir)));
        assert_eq!(outcome.code, Some(137));
        outcome.err
    };
    let default =
        format!("  the last calls of all PEs are in {}/shmem-flight.txt\n", dir.canonicalize().unwrap().display());
    let err = lose(|command| command);
    assert!(err.ends_with(&default), "{err}");
    fs::write(dir.join("shmem-flight.txt"), "old").unwrap();
    assert!(lose(|command| command.env("SHMEM_FLIGHT_FILE", "shmem-flight.txt")).ends_with(&default));
    assert!(fs::read_to_string(dir.join("shmem-flight.txt")).unwrap().contains("PE 1: lost: it was killed"));
    assert_eq!(names(), ["shmem-flight.txt"]);
    fs::remove_file(dir.join("shmem-flight.txt")).unwrap();
    assert!(!lose(|command| command.env("SHMEM_FLIGHT_FILE", "OFF")).contains("last calls"));
    let err = lose(|command| command.env("SHMEM_FLIGHT_FILE", "none/file"));
    let why = "/none/file (SHMEM_FLIGHT_FILE): No such file";
    let last = err.lines().last().unwrap();
    assert!(last.starts_with("  the last calls of all PEs cannot be written to /") && last.contains(why), "{err}");
    assert_eq!(names(), [""; 0]);
    // A failure outside any world has nothing to tell, and Ctrl-C is none.
    let mut command = script(2, &[], "exit 3");
    let outcome = run(command.env_remove("SHMEM_FLIGHT_FILE").current_dir(&dir));
    assert!(outcome.one_line().ends_with(" exited with status 3") || outcome.one_line().ends_with(" were ended"));
    let job = Stuck::start(job(4, &[], "stuck").env_remove("SHMEM_FLIGHT_FILE").current_dir(&dir));
    job.status(&STUCK);
    job.signal(Signal::INT);
    assert_eq!(job.ended().code, Some(130));
    assert_eq!(names(), [""; 0]);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_option_x_sets_the_flight_file_too() {
    let dir = scratch("option");
    let setting = format!("SHMEM_FLIGHT_FILE={}", dir.join("x").display());
    run(&mut job(2, &["-x", &setting], "die barrier kill 1"));
    assert!(fs::read_to_string(dir.join("x")).unwrap().contains("PE 1: lost"));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn jobs_are_found_without_their_number() {
    // In a network of its own there are no other jobs.
    let script = format!(
        "r={SHMEMRUN}; $r --status; echo none $?; \
         $r -n 1 sleep 1000 >/dev/null 2>&1 & a=$!; \
         until $r --status >/dev/null 2>&1; do :; done; $r --status; \
         $r -n 2 sleep 1001 >/dev/null 2>&1 & b=$!; \
         until [ $($r --status | grep -c '^job') = 2 ]; do :; done; echo both; $r --status; \
         kill $a $b; wait; exit 0"
    );
    let wrapper = ["unshare", "--map-root-user", "--net"];
    let able = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").stderr(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no network namespaces here");
        return;
    }
    let mut command = Command::new(wrapper[0]);
    let outcome = run(command.args(&wrapper[1..]).args(["sh", "-c", &script]).stdin(Stdio::null()));
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert_eq!(outcome.err, "shmemrun: no job of yours runs on this host\n");
    let text = outcome.text();
    let (one, both) = text.split_once("both\n").unwrap();
    assert!(one.starts_with("none 1\njob ") && one.contains(": sleep, 1 PE, running for "), "{text}");
    assert!(one.contains("  no world has begun"), "{text}");
    let both: Vec<&str> = both.lines().collect();
    assert_eq!(both.len(), 2, "{text}");
    assert!(both.iter().all(|line| line.starts_with("job ") && line.contains(": sleep, ")), "{text}");
}

/// Not a test of its own: a stranger who reads what a launcher gives to anybody.
#[test]
fn stranger() {
    use std::os::linux::net::SocketAddrExt;
    let Ok(job) = std::env::var("TEST_ASK") else { return };
    let address = std::os::unix::net::SocketAddr::from_abstract_name(format!("shmem-job-{job}")).unwrap();
    let mut text = String::new();
    std::os::unix::net::UnixStream::connect_addr(&address).unwrap().read_to_string(&mut text).unwrap();
    println!("heard {text:?}");
}

#[test]
fn other_users_learn_nothing() {
    let wrapper = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let as_nobody = |program: &str| {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(program).stdin(Stdio::null());
        command
    };
    let able = as_nobody(SHMEMRUN).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this test cannot become another user");
        return;
    }
    let job = Stuck::start(&mut script(1, &[], "exec sleep 1000"));
    job.status(&["no world"]);
    let id = job.launcher.id().to_string();
    let outcome = run(as_nobody(SHMEMRUN).args(["--status", &id]));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.one_line().starts_with(&format!("shmemrun: job {id} belongs to another user")), "{}", outcome.err);
    let exe = std::env::current_exe().unwrap();
    let mut stranger = as_nobody(exe.to_str().unwrap());
    let outcome = run(stranger.args(["--exact", "reports::stranger", "--nocapture"]).env("TEST_ASK", &id));
    assert!(outcome.text().contains("heard \"\""), "{}{}", outcome.text(), outcome.err);
    job.signal(Signal::TERM);
    job.ended();
}

#[test]
fn a_job_that_is_not_there_is_one_line_and_status_1() {
    let outcome = run(&mut shmemrun(&["--status", "4294967295"]));
    assert_eq!((outcome.code, outcome.one_line()), (Some(1), "shmemrun: no job 4294967295 runs on this host"));
    let outcome = run(&mut shmemrun(&["--status", "x"]));
    assert_eq!(outcome.code, Some(2));
    outcome.one_line();
}
