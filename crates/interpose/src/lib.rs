//! From annotated C prototypes to the stubs that record and replay them.
//!
//! A header says, with a few keywords, what crosses the interface when a function is called; that is all that recording and replaying
//! it takes. R2 (sections 2.6, 3, 4 and 6) names the keywords; what Linux needs beside them is in `interfaces/hindcast.h`.
//!
//! ```text
//!   ssize_t read(int fd, out bsize(result) void *buf, size_t count) kernel(read) block;
//!      │
//!      │  gcc -E, lang-c            which keywords stand at what                          source
//!      │  gcc -S                    sizes, offsets, signs: asked, not worked out          oracle, expression
//!      ▼
//!   model::Function                 checked: what is missing or cannot be is an error     reading
//!      │
//!      ├──▶ Rust, built into the runtime: a core shared by stub and trap                  emit::rust
//!      ├──▶ C, for an interface of the user's own, compiled here                          emit::c, build
//!      └──▶ a list of symbols, against which a program's imports are held                 imports
//! ```
//!
//! **Regenerating.** After a change to a header in `interfaces/`:
//!
//! ```text
//!   cargo run -p hindcast-interpose -- regenerate
//! ```
//!
//! What it writes (`crates/runtime/src/generated`, `symbols.txt`) is committed, so that building needs no C compiler; a test generates
//! again and compares. `… -- build HEADER FOLDER` builds an interface of one's own, `… -- check PROGRAM` lists imports.
//!
//! **What this crate does not do**: it never runs anything it generated, and knows no log format. It does not understand C beyond
//! prototypes: structures are sizes and offsets, which the compiler is asked for.
//!
//! **Where to start reading**: `interfaces/hindcast.h` for the language, [`model`] for what it means, [`emit::rust`] for what it becomes.
//!
//! **The invariant to keep**: from the same headers come the same bytes, on every machine. Numbers of functions follow from the order
//! in which headers and prototypes stand; whoever changes that changes the table's hash, and older logs are refused.

mod build;
pub mod emit;
mod error;
mod expression;
pub mod imports;
pub mod model;
mod oracle;
mod reading;
mod source;

use std::path::{Path, PathBuf};

pub use build::{Built, build, write_headers};
pub use error::InterfaceError;
pub use reading::{read, read_preprocessed};

/// The headers whose functions are always interposed, in the order of their functions' numbers. New ones go to the end.
pub const ALWAYS: [&str; 9] = [
    "files",
    "paths",
    "sockets",
    "polling",
    "clocks",
    "system",
    "kernel",
    "processes",
    "asynchronous",
];
/// The higher interfaces that are built in, active when they are chosen.
pub const CHOSEN: [&str; 1] = ["sqlite3"];
/// What is only known: nothing is generated from it, the checker reads it.
pub const KNOWN: [&str; 1] = ["known"];

/// Where the built-in headers are in the source tree.
pub fn interfaces_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interfaces")
}

/// Everything that is generated, with its path in the folder of crates, from the headers in `folder`.
pub fn generated(folder: &Path) -> Result<Vec<(PathBuf, String)>, InterfaceError> {
    let interfaces = |names: &[&str]| -> Result<Vec<_>, _> {
        names
            .iter()
            .map(|name| read(&folder.join(format!("{name}.h")), &[folder]))
            .collect()
    };
    let (always, chosen, known) = (
        interfaces(&ALWAYS)?,
        interfaces(&CHOSEN)?,
        interfaces(&KNOWN)?,
    );
    let runtime = Path::new("runtime/src/generated");
    let mut files: Vec<_> = emit::rust::files(&always, &chosen)
        .into_iter()
        .map(|file| (runtime.join(file.name), file.text))
        .collect();
    let all: Vec<_> = always.into_iter().chain(chosen).chain(known).collect();
    files.push((
        Path::new("interpose/symbols.txt").into(),
        imports::symbols(&all),
    ));
    Ok(files)
}
