//! What the PEs write: whole lines.

use super::*;

#[test]
fn lines_stay_whole_whatever_the_writes() {
    let writes = "i=0; while [ $i -lt 200 ]; do printf 'PE %s ' $SHMEM_PE; printf 'line %s\\n' $i; i=$((i+1)); done";
    for options in [&["--tag"][..], &[]] {
        let outcome = run(&mut script(4, options, writes));
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in outcome.text().lines() {
            let line = if options.is_empty() { line } else { line.split_once("] ").unwrap().1 };
            let (pe, rest) = line.split_once(" line ").unwrap();
            seen.entry(pe.to_owned()).or_default().push(rest.to_owned());
        }
        assert_eq!(seen.len(), 4);
        let expected: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        assert!(seen.values().all(|lines| *lines == expected));
    }
}

#[test]
fn an_unfinished_line_waits_for_its_end_and_tagged_ones_get_one() {
    let outcome = run(&mut script(2, &["--tag"], "printf AB; sleep 0.3; printf 'CD\\nEF'"));
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[0] ABCD", "[0] EF", "[1] ABCD", "[1] EF"]);
    assert!(outcome.out.ends_with(b"\n"));
    let outcome = run(&mut script(2, &[], "printf AB; sleep 0.3; printf 'CD\\nEF'"));
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["ABCD", "ABCD", "EF", "EF"]);
    assert!(outcome.out.ends_with(b"EF") || outcome.out.ends_with(b"\n"));
}

#[test]
fn a_prompt_of_the_only_pe_does_not_wait() {
    let mut command = script(1, &[], "printf 'ready? '; read x; echo $x");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut prompt = [0; 7];
    out.read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"ready? ");
    stdin.write_all(b"yes\n").unwrap();
    assert!(wait(&mut child, SOON).success());
}

#[test]
fn long_lines_and_binary_bytes_pass_as_they_are() {
    let long = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end";
    let outcome = run(&mut script(3, &["--tag"], long));
    for pe in 0..3 {
        let lines = outcome.tagged(pe);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [1_000_000, 3]);
    }
    let bytes = noise(3_000_000);
    let file = scratch("binary").join("bytes");
    fs::write(&file, &bytes).unwrap();
    let prints = format!("[ $SHMEM_PE = 1 ] && cat {}; exit 0", file.display());
    assert!(run(&mut script(2, &[], &prints)).out == bytes);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn errors_of_all_pes_are_readable_and_the_first_is_named() {
    let fails = "i=0; while [ $i -lt 20 ]; do echo error $i of PE $SHMEM_PE >&2; i=$((i+1)); done; kill -ABRT $$";
    let outcome = run(&mut script(8, &["--tag"], fails));
    assert_eq!(outcome.code, Some(134));
    let (summary, messages): (Vec<&str>, Vec<&str>) =
        outcome.err.lines().partition(|line| line.starts_with("shmemrun"));
    assert_eq!(summary.len(), 1);
    assert!(summary[0].contains("was killed by signal 6 (SIGABRT)"));
    assert!(outcome.err.ends_with(&format!("{}\n", summary[0])));
    let first = summary[0].split_whitespace().nth(2).unwrap();
    assert!(outcome.err.contains(&format!("[{first}] error 19 of PE {first}\n")));
    for line in messages {
        let (pe, rest) = line.strip_prefix('[').unwrap().split_once("] error ").unwrap();
        assert!(rest.ends_with(&format!(" of PE {pe}")), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job_quietly() {
    let command = format!("{SHMEMRUN} -n 3 yes; echo status $? >&2");
    let outcome = run(Command::new("sh").args(["-c", &format!("{{ {command}; }} | head -n 2")]));
    assert_eq!((outcome.text().as_str(), outcome.err.as_str()), ("y\ny\n", "status 141\n"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = script(2, &[], "echo x; exec sleep 1000").stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let err = collect(child.stderr.take().unwrap());
    assert_eq!(wait(&mut child, SOON).code(), Some(1));
    let err = String::from_utf8(err.recv_timeout(SOON).unwrap()).unwrap();
    assert!(err.starts_with("shmemrun: standard output cannot be written") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_slow_reader_loses_nothing() {
    let command = format!("{SHMEMRUN} -n 2 sh -c 'seq 100000' | {{ sleep 0.5; cksum; }}");
    let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
    let len: usize = 2 * (1..=100_000).map(|i: u32| i.to_string().len() + 1).sum::<usize>();
    assert_eq!(outcome.text().split_whitespace().nth(1).unwrap(), len.to_string());
}
