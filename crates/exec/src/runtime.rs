//! The library that is loaded into the recorded process: embedded here, or from a file.

use std::borrow::Cow;
use std::path::PathBuf;

/// Built by `build.rs` from `crates/runtime`.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runtime.so"));

/// Names a file that is loaded in place of the embedded library: for those who work on it.
pub const OVERRIDE: &str = "HINDCAST_RUNTIME";

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("{} (from {OVERRIDE}) cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("this hindcast was built without the library that it loads into programs")]
    Missing,
}

/// Whether the library is from elsewhere.
pub fn is_overridden() -> bool {
    std::env::var_os(OVERRIDE).is_some_and(|path| !path.is_empty())
}

/// The bytes of the library.
pub fn library() -> Result<Cow<'static, [u8]>, RuntimeError> {
    if let Some(path) = std::env::var_os(OVERRIDE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return match std::fs::read(&path) {
            Ok(bytes) => Ok(bytes.into()),
            Err(source) => Err(RuntimeError::Unreadable { path, source }),
        };
    }
    match EMBEDDED {
        [] => Err(RuntimeError::Missing),
        bytes => Ok(bytes.into()),
    }
}

/// What identifies a library.
pub fn identity(library: &[u8]) -> String {
    format!("xxh3 {:032x}", xxhash_rust::xxh3::xxh3_128(library))
}
