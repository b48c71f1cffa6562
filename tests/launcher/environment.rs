//! What the PEs find around them.

use super::*;

#[test]
fn the_environment_arrives_unchanged() {
    let long = "x".repeat(100_000);
    let values = [("T_NEWLINE", "a\nb\n"), ("T_EQUALS", "a=b=c"), ("T_EMPTY", ""), ("T_LONG", &long)];
    let mut command = shmemrun(&["-n", "1", "-x", "T_SET=v=w", "-x", "T_EQUALS", "-x", "T_UNSET", "env", "-0"]);
    command.env_clear().envs(values).env("PATH", std::env::var_os("PATH").unwrap());
    command.env("T_BYTES", std::ffi::OsString::from_vec(vec![0xff, 0xfe])).env("LD_LIBRARY_PATH", "/first:/second");
    let outcome = run(&mut command);
    let seen: BTreeMap<&[u8], &[u8]> = outcome
        .out
        .split(|&byte| byte == 0)
        .filter(|variable| !variable.is_empty())
        .map(|variable| variable.split_at(variable.iter().position(|&byte| byte == b'=').unwrap()))
        .map(|(name, value)| (name, &value[1..]))
        .collect();
    for (name, value) in values {
        assert!(seen[name.as_bytes()] == value.as_bytes(), "{name}");
    }
    assert_eq!(seen[&b"T_BYTES"[..]], [0xff, 0xfe]);
    assert_eq!(seen[&b"T_SET"[..]], b"v=w");
    // Where the C interface is, if it lies beside the launcher, is the last place of all.
    let libraries = std::str::from_utf8(seen[&b"LD_LIBRARY_PATH"[..]]).unwrap().strip_prefix("/first:/second").unwrap();
    assert!(libraries.is_empty() || libraries.starts_with(":/") && libraries.matches(':').count() == 1, "{libraries}");
    let added: Vec<_> = seen.keys().filter(|name| name.starts_with(b"SHMEM_")).collect();
    assert_eq!(added.len(), 4);
    assert_eq!(seen.len(), values.len() + 4 + 4);
}

#[test]
fn the_heap_option_is_the_setting() {
    let outcome = run(&mut script(2, &["--heap", "1.5G"], "echo $SHMEM_SYMMETRIC_SIZE"));
    assert_eq!(outcome.text(), "1.5G\n1.5G\n");
}

#[test]
fn arguments_arrive_untouched() {
    let args = ["-n", "1", "printf", "%s|", "-n", "--tag", "--", "", "a b", "--timeout=1", "*"];
    assert_eq!(run(&mut shmemrun(&args)).text(), "-n|--tag|--||a b|--timeout=1|*|");
    assert_eq!(run(&mut shmemrun(&["-n", "1", "--", "printf", "%s", "--tag"])).text(), "--tag");
}

#[test]
fn the_working_directory_is_the_launchers_or_the_chosen_one() {
    let dir = fs::canonicalize(scratch("wdir")).unwrap();
    let line = format!("{}\n", dir.display()).repeat(2);
    let outcome = run(shmemrun(&["-n", "2", "/bin/pwd"]).current_dir(&dir));
    assert_eq!(outcome.text(), line);
    let outcome = run(&mut shmemrun(&["-n", "2", "--wdir", dir.to_str().unwrap(), "/bin/pwd"]));
    assert_eq!(outcome.text(), line);
    let command = format!("cd {} && rmdir {0} && exec {SHMEMRUN} -n 2 echo here", dir.display());
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    assert_eq!((outcome.code, outcome.text().as_str()), (Some(0), "here\nhere\n"));
}

#[test]
fn no_descriptor_of_the_launcher_reaches_a_pe() {
    let lists = ["-c", "for f in /proc/$$/fd/*; do echo ${f##*/}; done"];
    let list = |command: &mut Command| {
        let outcome = run(command.stdin(Stdio::null()));
        let numbers: BTreeSet<String> = outcome.text().lines().map(str::to_owned).collect();
        assert!(numbers.contains("0"), "{}", outcome.text());
        numbers
    };
    let direct = list(Command::new("sh").args(lists));
    for n in ["1", "4"] {
        assert_eq!(list(shmemrun(&["-n", n, "sh"]).args(lists)), direct);
    }
}

#[test]
fn no_file_is_made_anywhere() {
    let names = || {
        let dirs = ["/dev/shm", "/tmp"].map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
        let names = dirs.into_iter().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("shmem")).collect::<BTreeSet<_>>()
    };
    let before = names();
    let job = Running::start(script(2, &[], WAITS), 4);
    for entry in fs::read_dir(format!("/proc/{}/fd", job.launcher.id())).unwrap() {
        // It may be closed by now.
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        assert!(!target.starts_with("/dev/shm") && !target.contains("shmem-"), "{target}");
    }
    assert_eq!(names(), before);
    job.signal(Signal::TERM);
    job.ended();
    assert_eq!(names(), before);
}

#[test]
fn each_pe_is_bound_to_one_core_that_the_launcher_may_use() {
    let masks = |options: &[&str]| {
        let outcome = run(&mut script(4, &[&["--tag"], options].concat(), "grep Cpus_allowed_list /proc/self/status"));
        [0, 1, 2, 3].map(|pe| outcome.tagged(pe).concat().split_whitespace().last().unwrap().to_owned())
    };
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    assert_eq!(masks(&[]), [0; 4].map(|_| own.clone()));
    let cores = thread::available_parallelism().unwrap().get().min(4);
    let bound = masks(&["--bind", "core"]);
    assert!(bound.iter().all(|mask| mask.parse::<usize>().is_ok()), "{bound:?}");
    let distinct: BTreeSet<_> = bound.iter().collect();
    assert!(distinct.len() >= cores.min(distinct.len().max(1)), "{bound:?}");
    assert_eq!(masks(&["--bind", "none"]), [0; 4].map(|_| own.clone()));
}
