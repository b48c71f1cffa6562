//! `oshcc` and, by that name, `oshc++`: a compiler that finds the headers and the library, those of the tree it was built in
//! or of the place it was installed to.

use std::ffi::OsString;
use std::io::Result;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Arguments with which a compiler does not link.
const NOT_LINKING: [&str; 6] = ["-c", "-E", "-S", "-M", "-MM", "-fsyntax-only"];

/// Runs the compiler that a variable names, else the system's; with `--showme`, says how.
fn main() -> ExitCode {
    let mut given: Vec<OsString> = std::env::args_os().collect();
    let called = given.first().map(PathBuf::from).unwrap_or_default();
    let plus = called.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"++"));
    let (name, own, compiler) = if plus { ("oshc++", "OSHCXX_CXX", "c++") } else { ("oshcc", "OSHCC_CC", "cc") };
    given.drain(..given.len().min(1));
    let show = given.iter().any(|argument| argument == "--showme" || argument == "-show");
    given.retain(|argument| argument != "--showme" && argument != "-show");
    let compiler = std::env::var_os(own).filter(|value| !value.is_empty()).unwrap_or_else(|| compiler.into());
    let all = match arguments(&given) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{name}: cannot find its own place: {error}");
            return ExitCode::from(127);
        }
    };
    if show {
        let words = [&compiler].into_iter().chain(&all).map(|word| word.to_string_lossy());
        println!("{}", words.collect::<Vec<_>>().join(" "));
        return ExitCode::SUCCESS;
    }
    let error = Command::new(&compiler).args(&all).exec();
    eprintln!("{name}: cannot run {}: {error} (set {own} to a compiler)", compiler.display());
    ExitCode::from(127)
}

/// What was given, with the headers before it and the library behind.
fn arguments(given: &[OsString]) -> Result<Vec<OsString>> {
    let place = std::env::current_exe()?;
    let folder = place.parent().unwrap_or(Path::new("."));
    let prefixed = |prefix: &str, path: &Path| [prefix.as_ref(), path.as_os_str()].into_iter().collect::<OsString>();
    let mut all = vec![prefixed("-I", &headers(folder))];
    all.extend_from_slice(given);
    let named = given.iter().any(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    if named && !given.iter().any(|argument| NOT_LINKING.iter().any(|one| argument == one)) {
        let library = library(folder);
        all.extend([prefixed("-L", &library), prefixed("-Wl,-rpath,", &library), "-lshmem".into()]);
    }
    Ok(all)
}

/// `PREFIX/include` beside `PREFIX/bin`, else the source tree's.
fn headers(folder: &Path) -> PathBuf {
    let installed = folder.with_file_name("include");
    if installed.join("shmem.h").exists() { installed } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("include") }
}

/// Where the program itself lies, as after a build, else `PREFIX/lib`.
fn library(folder: &Path) -> PathBuf {
    let installed = folder.with_file_name("lib");
    if folder.join("libshmem.so").exists() { folder.to_path_buf() } else { installed }
}
