//! The file with the flight recorders of all PEs, written when a PE was lost: by the launcher, or, where there is none, by
//! the first PE that learns of it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the file anew. Whoever reads meanwhile has the old one or the new one whole, and what is no file (`/dev/null`,
/// say) is not replaced by one.
pub(crate) fn write(file: &Path, text: &str) -> std::io::Result<()> {
    // Through a link, its target is replaced.
    let file = match fs::canonicalize(file) {
        Ok(target) => target,
        Err(_) if fs::symlink_metadata(file).is_ok_and(|there| there.is_symlink()) => {
            return Err(std::io::Error::other("there is a link to nothing"));
        }
        Err(_) => file.to_owned(),
    };
    if fs::metadata(&file).is_ok_and(|there| !there.is_file()) {
        return Err(std::io::Error::other("there is something else than a file"));
    }
    let new = beside(&file);
    let written = fill(&new, text).and_then(|()| fs::rename(&new, &file));
    if written.is_err() {
        // Perhaps there is none.
        let _ = fs::remove_file(&new);
    }
    written
}

/// A name of this process's own in the same directory.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    file.with_file_name(name)
}

fn fill(file: &Path, text: &str) -> std::io::Result<()> {
    match fs::remove_file(file) {
        // What an earlier process with this process number left when it was killed.
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    File::create_new(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is() {
        let dir = std::env::temp_dir().join(format!("shmem-flight-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let (file, link) = (dir.join("file"), dir.join("link"));
        write(&file, "long text").unwrap();
        fs::write(beside(&file), "left over").unwrap();
        write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "linked").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "linked");
        assert_eq!(names(), ["file", "link"]);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::create_dir(dir.join("dir")).unwrap();
        assert!(write(&dir.join("dir"), "text").is_err());
        assert!(write(&dir.join("none").join("file"), "text").is_err());
        assert!(write(Path::new("/dev/null"), "text").is_err());
        assert!(write(Path::new("/"), "text").is_err());
        assert_eq!(names(), ["dir", "file", "link"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
