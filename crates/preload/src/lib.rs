//! Puts the tap into a service: the library as a file, and the environment that loads it.
//!
//! ```text
//!   Preload::make ──▶ a folder with the library ──▶ environment ──▶ the service and its children
//! ```
//!
//! **Where to start reading**: [`Preload`].
//!
//! **What this crate does not do**: it starts nothing.
//!
//! **The invariant to keep**: what a user has set in the variables that are used here stays.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Built by `build.rs` from `crates/tap`.
static TAP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tap.so"));

const PRELOAD: &str = "LD_PRELOAD";

/// The library in a folder of its own, which goes when this goes.
#[derive(Debug)]
pub struct Preload {
    folder: tempfile::TempDir,
}

impl Preload {
    /// Any user can read it: a service may become another one.
    pub fn make() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hindcast-tap-").tempdir()?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let library = folder.path().join(LIBRARY);
        std::fs::write(&library, TAP)?;
        std::fs::set_permissions(&library, PermissionsExt::from_mode(0o755))?;
        Ok(Self { folder })
    }

    /// What a service has in its environment into which the tap is loaded. `set`: what is there
    /// already.
    pub fn environment(
        &self,
        set: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let library = self.folder.path().join(LIBRARY);
        vec![(PRELOAD, in_front(&library, set(PRELOAD)))]
    }
}

const LIBRARY: &str = "libhindcast_tap.so";

/// In front of the libraries that are loaded already.
fn in_front(library: &Path, others: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_tap_in_it_and_what_was_loaded_before() {
        let preload = Preload::make().unwrap();
        let environment = preload.environment(|_| Some("libm.so.6".into()));
        let maps = std::process::Command::new("cat")
            .arg("/proc/self/maps")
            .envs(environment)
            .output()
            .unwrap();
        let maps = String::from_utf8(maps.stdout).unwrap();
        assert!(maps.contains(LIBRARY) && maps.contains("libm.so"), "{maps}");
    }
}
