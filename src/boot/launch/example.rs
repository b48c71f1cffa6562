//! Builds an example of the crate by name, in the profile in which the launcher itself was built.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::say;

/// A build that takes longer is announced.
const PATIENCE: Duration = Duration::from_secs(1);

/// Builds example `name` with cargo and returns the path of its binary. Blocks while cargo runs, whose messages are
/// shown only if it fails.
///
/// # Errors
/// A text with what cargo said.
pub fn build(name: &str) -> Result<PathBuf, String> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest_dir = Path::new(&manifest_dir);
    let place = Place::of_launcher().unwrap_or_else(|| Place::default_of(manifest_dir));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(&cargo);
    build.args(["build", "--quiet", "--example", name]).arg("--profile").arg(place.profile());
    build.arg("--manifest-path").arg(manifest_dir.join("Cargo.toml")).arg("--target-dir").arg(&place.target);
    build.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = build.spawn().map_err(|e| format!("{} cannot be run: {e}", cargo.to_string_lossy()))?;
    let mut messages = child.stderr.take().ok_or("cargo has no stderr")?;
    let (sender, said) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = messages.read_to_end(&mut text);
        let _ = sender.send(text);
    });
    let text = match said.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => {
            say(format_args!("building example {name} ({})", place.profile().to_string_lossy()));
            said.recv().unwrap_or_default()
        }
        text => text.unwrap_or_default(),
    };
    let status = child.wait().map_err(|e| format!("cargo was lost: {e}"))?;
    if !status.success() {
        return Err(format!("example {name} cannot be built:\n{}", String::from_utf8_lossy(&text).trim_end()));
    }
    Ok(place.target.join(place.folder).join("examples").join(name))
}

/// Where cargo puts what it builds.
struct Place {
    target: PathBuf,
    /// The folder of the profile: `debug`, `release`, or the profile's own name.
    folder: OsString,
}

impl Place {
    /// The place that the launcher was built in, if it is still there.
    fn of_launcher() -> Option<Place> {
        let launcher = std::env::current_exe().ok()?;
        let folder = launcher.parent()?;
        let target = folder.parent()?;
        let built_by_cargo = folder.join("deps").is_dir() && folder.join(".fingerprint").is_dir();
        built_by_cargo.then(|| Place { target: target.into(), folder: folder.file_name().unwrap_or_default().into() })
    }

    fn default_of(manifest_dir: &Path) -> Place {
        let folder = if cfg!(debug_assertions) { "debug" } else { "release" };
        Place { target: manifest_dir.join("target"), folder: folder.into() }
    }

    fn profile(&self) -> &OsStr {
        if self.folder == "debug" { OsStr::new("dev") } else { &self.folder }
    }
}
