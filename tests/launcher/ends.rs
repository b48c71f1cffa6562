//! However a job ends, nothing of it is left.

use super::*;

#[test]
fn the_time_limit_ends_all_descendants() {
    for waits in [WAITS, SCATTERS] {
        let (status, err) = Running::start(script(4, &["--timeout", "0.7"], waits), 8).ended();
        assert_eq!(status.code(), Some(124));
        assert!(err.ends_with("\nshmemrun: the job was ended after 700ms (--timeout)\n"), "{err}");
        assert!(err.contains(": sh, 4 PEs, running for ") && err.contains("  no world has begun"), "{err}");
    }
}

#[test]
fn signals_to_the_launcher_end_all_descendants() {
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = own.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        // Under `nohup`, which may have started this test, the launcher goes on as well.
        if signal == Signal::HUP && ignored & 1 == 1 {
            continue;
        }
        for waits in [WAITS, SCATTERS] {
            let job = Running::start(script(3, &[], waits), 6);
            job.signal(signal);
            let (status, err) = job.ended();
            assert_eq!((status.code(), err.as_str()), (Some(code), ""));
        }
    }
}

#[test]
fn pes_hear_of_the_end_before_they_are_killed() {
    let script_ = "trap 'echo ended by TERM; exit 0' TERM; trap 'echo ended by INT; exit 0' INT; echo $$; \
                   while :; do sleep 0.01; done";
    for (signal, word, code) in [(Signal::TERM, "TERM", 143), (Signal::INT, "INT", 130)] {
        let mut job = Running::start(script(2, &[], script_), 2);
        job.signal(signal);
        let mut rest = String::new();
        job.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("ended by {word}\n").repeat(2));
        assert_eq!(job.ended().0.code(), Some(code));
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let stubborn = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let job = Running::start(script(2, &[], stubborn), 2);
    job.signal(Signal::TERM);
    job.signal(Signal::INT);
    // Which of two pending signals is heard first is up to the system.
    assert!(matches!(job.ended().0.code(), Some(130 | 143)));
}

#[test]
fn nothing_survives_a_killed_launcher() {
    for waits in [WAITS, SCATTERS] {
        let job = Running::start(script(4, &[], waits), 8);
        // The PEs, and the guard.
        assert_eq!(children(job.launcher.id()).len(), 5);
        job.signal(Signal::KILL);
        assert_eq!(job.ended().0.signal(), Some(9));
    }
}

#[test]
fn nothing_survives_a_killed_launcher_group() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut command = script(3, &[], WAITS);
        command.process_group(0);
        let job = Running::start(command, 6);
        kill_process_group(Pid::from_child(&job.launcher), signal).unwrap();
        job.ended();
    }
}

#[test]
fn nothing_survives_a_launcher_killed_at_any_moment() {
    for delay in 0..12 {
        let mut command = script(4, &[], WAITS);
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = collect(launcher.stdout.take().unwrap());
        thread::sleep(Duration::from_millis(delay));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let out = String::from_utf8(out.recv_timeout(SOON).unwrap()).unwrap();
        all_gone(&out.lines().map(|line| line.parse().unwrap()).collect());
    }
}

#[test]
fn nothing_survives_the_normal_end() {
    let leaves = "echo $(setsid sh -c 'sleep 1000 >/dev/null & echo $!'); sleep 1000 & echo $!; echo $$; exit 0";
    let (status, err) = Running::start(script(3, &[], leaves), 9).ended();
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn children_that_the_launcher_had_before_are_left_alone() {
    let command = format!("sleep 1000 >/dev/null 2>&1 & echo $!; exec {SHMEMRUN} -n 2 true");
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    let sleeper: i32 = outcome.text().trim().parse().unwrap();
    assert_eq!(outcome.code, Some(0));
    assert!(runs(sleeper));
    kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_wrapper_script_hides_nothing() {
    let waits = "[ $SHMEM_PE = 1 ] && kill -SEGV $$; exec sleep 1000";
    let outcome = run(&mut script(2, &[], &format!("sh -c '{waits}'; exit $?")));
    assert_eq!(outcome.code, Some(139));
    let job = Running::start(script(2, &[], &format!("nohup sh -c '{WAITS}'; exit $?")), 4);
    job.signal(Signal::TERM);
    assert_eq!(job.ended().0.code(), Some(143));
}

#[test]
fn launchers_nest() {
    let inner = format!("{SHMEMRUN} -n 2 sh -c '{WAITS}'");
    let job = Running::start(script(2, &[], &inner), 8);
    job.signal(Signal::KILL);
    job.ended();
}
