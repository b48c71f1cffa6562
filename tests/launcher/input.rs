//! What the PEs read.

use super::*;

#[test]
fn input_of_any_length_reaches_pe_0_and_nobody_else() {
    let input = noise(10_000_000);
    let outcome = run_with_input(&mut script(3, &[], "cat; [ $SHMEM_PE = 0 ] || wc -c >&2"), Some(input.clone()));
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.out == input);
    assert_eq!(outcome.err.split_whitespace().collect::<Vec<_>>(), ["0", "0"]);
}

#[test]
fn input_goes_to_the_chosen_pe_to_all_or_to_none() {
    let input = noise(10_000_000);
    let counts = |who: &str| {
        let outcome = run_with_input(&mut script(3, &["--tag", "--stdin", who], "cksum"), Some(input.clone()));
        assert_eq!(outcome.code, Some(0));
        [0, 1, 2].map(|pe| outcome.tagged(pe).concat())
    };
    let all = counts("all");
    assert!(all[0].ends_with(" 10000000") && all[0] == all[1] && all[1] == all[2], "{all:?}");
    let one = counts("1");
    assert!(one[1] == all[0] && one[0] == one[2] && one[0].ends_with(" 0"), "{one:?}");
    assert!(counts("none").iter().all(|count| *count == one[0]));
}

#[test]
fn a_pe_that_does_not_read_does_not_hold_the_others_copies() {
    let reads = "[ $SHMEM_PE = 1 ] && exec <&-; wc -c";
    let script_ = format!("if [ $SHMEM_PE = 1 ]; then exec <&-; else {reads}; fi");
    let outcome = run_with_input(&mut script(3, &["--stdin", "all"], &script_), Some(noise(1_000_000)));
    assert_eq!(outcome.text().split_whitespace().collect::<Vec<_>>(), ["1000000", "1000000"]);
}

#[test]
fn input_that_is_not_read_stays_for_the_loop() {
    for options in ["", "--stdin none"] {
        let script = format!("while read x; do {SHMEMRUN} -n 2 {options} true; echo $x; done");
        let input = Some(b"a\nb\nc\n".to_vec());
        let outcome = run_with_input(Command::new("sh").args(["-c", &script]), input);
        assert_eq!(outcome.text(), "a\nb\nc\n");
    }
}

#[test]
fn an_answer_reaches_a_pe_before_the_end_of_input() {
    let mut command = script(2, &[], "[ $SHMEM_PE = 0 ] || exit 0; read x; echo got $x");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(b"42\n").unwrap();
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "got 42\n");
    drop(stdin);
    wait(&mut child, SOON);
}

/// Runs a shell command under a new terminal, as util-linux's `script` gives it.
fn on_a_terminal(command: &str) -> Command {
    let mut terminal = Command::new("script");
    terminal.args(["-qec", command, "/dev/null"]).env("SHELL", "/bin/sh");
    terminal
}

#[test]
fn a_prompt_and_its_answer_pass_at_once_on_a_terminal() {
    let asks = "[ $SHMEM_PE = 0 ] || exit 0; printf \"number? \"; read x; echo got $x; read y; echo then $y";
    let command = format!("{SHMEMRUN} -n 2 sh -c '{asks}'");
    let mut child = on_a_terminal(&command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut until = |text: &str| {
        while !seen.contains(text) {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "{seen:?}");
            seen.push(byte[0] as char);
        }
    };
    until("number? ");
    stdin.write_all(b"42\n").unwrap();
    until("got 42");
    stdin.write_all(b"43\n").unwrap();
    until("then 43");
    assert!(wait(&mut child, SOON).success());
}

#[test]
fn in_the_background_of_a_terminal_the_launcher_runs_quietly() {
    let command = format!("{SHMEMRUN} -n 2 echo ran & wait $!; echo status $?");
    let outcome = run(on_a_terminal(&format!("bash --norc -i -c '{command}'")).stdin(Stdio::null()));
    let text = outcome.text().replace('\r', "");
    assert!(text.contains("ran\nran\n") && text.contains("status 0") && !text.contains("topped"), "{text}");
}

#[test]
fn closed_standard_streams_are_no_obstacle() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let command = format!("exec {SHMEMRUN} -n 2 sh -c 'echo x; echo y >&2; cat' {closed}");
        let outcome = run(Command::new("sh").args(["-c", &command]).stdin(Stdio::null()));
        assert_eq!(outcome.code, Some(0), "{closed}: {}", outcome.err);
    }
}
