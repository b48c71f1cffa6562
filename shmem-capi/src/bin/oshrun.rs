//! `oshrun`: `shmemrun` under the name that OpenSHMEM programs know.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let launcher = std::env::current_exe().map(|own| own.with_file_name("shmemrun"));
    let error =
        launcher.map_or_else(|error| error, |launcher| Command::new(launcher).args(std::env::args_os().skip(1)).exec());
    eprintln!("oshrun: cannot run shmemrun beside it: {error}");
    ExitCode::from(127)
}
