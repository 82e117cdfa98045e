//! From annotated C prototypes to the stubs that record and replay them.
//!
//! A header says, with a few keywords, what crosses the interface when a function is called; that
//! is all that recording and replaying it takes. R2 (sections 2.6, 3, 4 and 6) names the keywords;
//! what Linux needs beside them is in `interfaces/hindcast.h`.
//!
//! ```text
//!   ssize_t read(int fd, out bsize(result) void *buf, size_t count) kernel(read) block;
//!      │
//!      │  gcc -E, lang-c            which keywords stand at what                source
//!      │  gcc -S                    sizes, offsets, signs: asked                oracle, expression
//!      ▼
//!   model::Function                 checked: missing or wrong is an error       reading
//!      │
//!      ├──▶ Rust, built into the runtime: a core shared by stub and trap        hindcast-stubs
//!      ├──▶ C, for an interface of the user's own, compiled here                c, build
//!      └──▶ a list of symbols, against which a program's imports are held       imports
//! ```
//!
//! **What this crate does not do**: it never runs anything it generated, and knows no log format.
//! It does not understand C beyond prototypes: structures are sizes and offsets, which the compiler
//! is asked for. The stubs that are built into the runtime are written by `hindcast-stubs`.
//!
//! **Where to start reading**: `interfaces/hindcast.h` for the language, [`model`] for what it
//! means, [`c`] for what it becomes.
//!
//! **The invariant to keep**: from the same header comes the same interface, on every machine.

mod build;
pub mod c;
mod error;
mod expression;
pub mod imports;
pub mod model;
mod oracle;
mod reading;
mod source;

use std::path::{Path, PathBuf};

pub use build::{Built, build, build_mpi, write_headers};
pub use error::InterfaceError;
pub use reading::{read, read_preprocessed};

/// Where the built-in headers are in the source tree.
pub fn interfaces_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interfaces")
}
