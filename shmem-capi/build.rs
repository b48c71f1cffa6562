//! The name by which programs find the library when they run, and that it stays loaded once it is, because the C library
//! calls it at the end of the process; and `oshc++`, a name that cargo has no programs by: a link to `oshcc` beside it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshmem.so,-z,nodelete");
    // target/PROFILE/build/shmem-capi-HASH/out
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    if let Some(profile) = out.as_deref().and_then(|out| out.ancestors().nth(3)) {
        // Where it is there already, or cannot be made, there is nothing to be done here.
        let _ = symlink("oshcc", profile.join("oshc++"));
    }
}
