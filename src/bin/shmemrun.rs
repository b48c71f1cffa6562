//! `shmemrun`: starts the PEs of a job on this host. Only the command line is here; `shmem::boot::launch` does the
//! work.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use shmem::boot::launch::{self, Bind, Job, OnFailure, Stdin, say};
use shmem::checkup::Checkup;
use shmem::config::{self, Config, SETTINGS};

/// Status for a command line that makes no sense.
const USAGE: u8 = 2;

/// Starts N processing elements (PEs) of PROGRAM on this host.
///
/// Exit status: 0 if all PEs returned 0; else that of the PE which failed first, 128 + its signal if it was killed; 124
/// after --timeout; 126 or 127 if PROGRAM cannot be run or found; 2 for a wrong command line. After the first failure
/// the other PEs are ended, with all that they have started, and a summary says who failed and what the PEs were doing.
/// SIGUSR1 prints what they do at any time. Output is passed on in whole lines.
#[derive(Parser)]
#[command(name = "shmemrun", version)]
#[command(override_usage = "shmemrun -n N [OPTIONS] PROGRAM [ARGS]...\n       \
                            shmemrun -n N [OPTIONS] --example NAME [--] [ARGS]...\n       \
                            shmemrun --status [JOB]\n       \
                            shmemrun --check [-n N] [--heap SIZE]")]
struct Line {
    /// Number of PEs; more than there are cores is fine
    #[arg(short, value_name = "N", value_parser = pes, required_unless_present_any = ["info", "status", "check"])]
    n: Option<usize>,
    /// Where each PE may run: anywhere, or on one core, PE i on the i-th
    #[arg(long, value_name = "HOW", default_value = "none")]
    bind: How,
    /// Sets a variable for the PEs; they have all of shmemrun's own in any case
    #[arg(short = 'x', value_name = "VAR[=VALUE]", value_parser = clap::builder::OsStringValueParser::new())]
    x: Vec<OsString>,
    /// Begins each line of output with its PE: `[3] `
    #[arg(long)]
    tag: bool,
    /// What becomes of the other PEs when one has failed; the exit status is that PE's in any case
    #[arg(long, value_name = "WHAT", default_value = "end")]
    on_failure: Then,
    /// Ends the job after so many seconds, with status 124, and says what the PEs were doing
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Bytes of each PE's symmetric heap, as 64M or 1.5G (SHMEM_SYMMETRIC_SIZE)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    heap: Option<String>,
    /// Who gets the standard input: none, all, or one PE
    #[arg(long, value_name = "WHO", default_value = "0", value_parser = reader)]
    stdin: Stdin,
    /// Changes to this directory first
    #[arg(long, value_name = "DIR")]
    wdir: Option<PathBuf>,
    /// Builds an example of shmem and runs it
    #[arg(long, value_name = "NAME")]
    example: Option<String>,
    /// Prints the settings in force and exits
    #[arg(long)]
    info: bool,
    /// Looks whether this host is fit for jobs (memory, limits, RDMA devices, …) and says what to do; exit status 1 if
    /// anything does not work
    #[arg(long)]
    check: bool,
    /// Says what the PEs of a running job do; JOB is the process number of its shmemrun, and may be left out if no
    /// other job of yours runs
    #[arg(long, value_name = "JOB")]
    status: Option<Option<u32>>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM [ARGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum How {
    None,
    Core,
}

#[derive(Clone, Copy, ValueEnum)]
enum Then {
    /// They are ended, after a moment in which they can say what they have to
    End,
    /// They go on
    Continue,
}

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == launch::GUARD_NAME) {
        launch::run_guard();
        return ExitCode::SUCCESS;
    }
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(e) if e.use_stderr() => return wrong(one_line(&e.render().to_string())),
        Err(help) => {
            // Whoever asked for it may have closed the pipe.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    if line.info {
        return print_settings();
    }
    if line.check {
        return check(&line);
    }
    if let Some(job) = line.status {
        return print_status(job);
    }
    match job(line) {
        Ok(job) => ExitCode::from(launch::run(&job)),
        Err(Refused { why, status }) => {
            say(why);
            ExitCode::from(status)
        }
    }
}

/// A job that is not started.
struct Refused {
    why: String,
    status: u8,
}

fn refused(why: impl Into<String>) -> Refused {
    Refused { why: why.into(), status: USAGE }
}

fn wrong(why: impl Into<String>) -> ExitCode {
    say(format_args!("{}; see shmemrun --help", why.into()));
    ExitCode::from(USAGE)
}

fn job(line: Line) -> Result<Job, Refused> {
    let n_pes = line.n.ok_or_else(|| refused("-n is missing"))?;
    if let Stdin::Pe(pe) = line.stdin
        && pe >= n_pes
    {
        return Err(refused(format!("--stdin {pe}: there are only PEs 0 to {}", n_pes - 1)));
    }
    let mut env = Vec::new();
    for variable in &line.x {
        env.extend(assignment(variable)?);
    }
    if let Some(heap) = line.heap {
        env.push(("SHMEM_SYMMETRIC_SIZE".into(), heap.into()));
    }
    let mut command = line.command.into_iter();
    let program = match line.example {
        Some(name) => {
            let failed = |why| Refused { why, status: 1 };
            launch::build_example(&name).map_err(failed)?.into_os_string()
        }
        None => {
            let program = command.next().ok_or_else(|| refused("no PROGRAM is given"))?;
            if program.as_bytes().starts_with(b"-") {
                return Err(refused(format!("there is no option {}", program.to_string_lossy())));
            }
            program
        }
    };
    let flight_file = flight_file(&env);
    if let Some(dir) = line.wdir {
        let failed = |e| refused(format!("--wdir {}: {e}", dir.display()));
        std::env::set_current_dir(&dir).map_err(failed)?;
    }
    let bind = match line.bind {
        How::None => Bind::None,
        How::Core => Bind::Core,
    };
    let on_failure = match line.on_failure {
        Then::End => OnFailure::End,
        Then::Continue => OnFailure::Continue,
    };
    let (tag, timeout, stdin) = (line.tag, line.timeout, line.stdin);
    Ok(Job { n_pes, program, args: command.collect(), env, bind, tag, timeout, stdin, on_failure, flight_file })
}

/// Where the flight recorders of the PEs go: what they themselves will find in the variable. A value that is none is
/// left to them to complain of.
fn flight_file(env: &[(OsString, OsString)]) -> Option<PathBuf> {
    const NAME: &str = "SHMEM_FLIGHT_FILE";
    let given = env.iter().rfind(|(name, _)| name == NAME).map(|(_, value)| value.clone());
    let mut config = Config::default();
    if let Some(text) = given.or_else(|| std::env::var_os(NAME)).as_ref().and_then(|text| text.to_str()) {
        let _ = config.set(NAME, text);
    }
    // Before the launcher changes its directory.
    config.flight_file().map(|file| std::path::absolute(&file).unwrap_or(file))
}

/// `VAR=VALUE`, or `VAR` with the launcher's own value, if it has one.
fn assignment(text: &OsStr) -> Result<Option<(OsString, OsString)>, Refused> {
    let mut parts = text.as_bytes().splitn(2, |&byte| byte == b'=');
    let part = |bytes: Option<&[u8]>| bytes.map(|bytes| OsString::from_vec(bytes.to_vec()));
    let (name, value) = (part(parts.next()).unwrap_or_default(), part(parts.next()));
    if name.is_empty() {
        return Err(refused(format!("-x {}: a variable has a name", text.to_string_lossy())));
    }
    if SETTINGS.iter().any(|setting| setting.internal && name == setting.name) {
        return Err(refused(format!("-x {}: shmemrun itself sets this one", name.to_string_lossy())));
    }
    let value = value.or_else(|| std::env::var_os(&name));
    Ok(value.map(|value| (name, value)))
}

fn pes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least 1 PE".into()),
        Ok(n) if n <= i32::MAX as usize => Ok(n),
        _ => Err("not a number of PEs".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "not a number of seconds above 0".into())
}

fn size(text: &str) -> Result<String, String> {
    match config::parse_size(text) {
        Some(1..) => Ok(text.to_owned()),
        Some(0) => Err("a heap has at least 1 byte".into()),
        None => Err("not a size such as 1048576, 64M or 1.5G".into()),
    }
}

fn reader(text: &str) -> Result<Stdin, String> {
    match text {
        "none" => Ok(Stdin::None),
        "all" => Ok(Stdin::All),
        pe => pe.parse().map(Stdin::Pe).map_err(|_| "not none, all or a PE".into()),
    }
}

fn print_status(job: Option<u32>) -> ExitCode {
    match launch::status(job) {
        Ok(text) => {
            use std::io::Write;
            // Whoever asked for it may have closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(why);
            ExitCode::FAILURE
        }
    }
}

fn check(line: &Line) -> ExitCode {
    let config = Config::from_env().and_then(|mut config| {
        line.heap.as_ref().map_or(Ok(()), |heap| config.set("SHMEM_SYMMETRIC_SIZE", heap))?;
        Ok(config)
    });
    match config {
        Ok(config) => {
            use std::io::Write;
            let checkup = Checkup::of_this_host(&config, line.n);
            // Whoever asked for it may have closed the pipe.
            let _ = std::io::stdout().write_all(checkup.to_string().as_bytes());
            ExitCode::from(u8::from(checkup.fails()))
        }
        Err(e) => {
            say(e);
            ExitCode::from(USAGE)
        }
    }
}

fn print_settings() -> ExitCode {
    match Config::from_env() {
        Ok(config) => {
            use std::io::Write;
            let text = format!("shmem {}\n{}", env!("CARGO_PKG_VERSION"), config::info(&config));
            // Whoever asked for it may have closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(e) => {
            say(e);
            ExitCode::from(USAGE)
        }
    }
}

/// The message of a parser that likes to explain itself at length, without its advice.
fn one_line(text: &str) -> String {
    let message = text.strip_prefix("error: ").unwrap_or(text);
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect::<Vec<_>>().join(" ")
}
