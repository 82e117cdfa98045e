//! From annotated C prototypes to the stubs that record and replay them.
mod build;
pub mod emit;
mod error;
mod expression;
pub mod model;
mod oracle;
mod reading;
mod source;

use std::path::{Path, PathBuf};

pub use build::{Built, build, write_headers};
pub use error::InterfaceError;
pub use reading::{read, read_preprocessed};

/// The headers whose functions are always interposed, in the order of their functions' numbers. New ones go to the end.
pub const ALWAYS: [&str; 8] = ["files", "paths", "sockets", "polling", "clocks", "system", "kernel", "processes"];
/// The higher interfaces that are built in, active when they are chosen.
pub const CHOSEN: [&str; 1] = ["sqlite3"];

/// Where the built-in headers are in the source tree.
pub fn interfaces_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interfaces")
}

/// Everything that is generated into the runtime, from the headers in `folder`.
pub fn built_in(folder: &Path) -> Result<Vec<emit::rust::File>, InterfaceError> {
    let interfaces = |names: &[&str]| -> Result<Vec<_>, _> {
        names.iter().map(|name| read(&folder.join(format!("{name}.h")), &[folder])).collect()
    };
    Ok(emit::rust::files(&interfaces(&ALWAYS)?, &interfaces(&CHOSEN)?))
}
