//! Writes the stubs that are built into the runtime, as Rust, from the annotated headers in
//! `crates/interpose/interfaces`.
//!
//! After a change to a header:
//!
//! ```text
//!   cargo run -p hindcast-stubs
//! ```
//!
//! The result (`functions.rs` and `doors/generated` of the runtime, `crates/interpose/symbols.txt`)
//! is committed, so that building needs no C compiler. A test generates again and compares.
//!
//! **What this crate does not do**: it is in no product binary. Reading headers, and stubs in C for
//! a user's own interface, are in `hindcast-interpose`.
//!
//! **Where to start reading**: [`module`](mod@module) for a function's two halves, then
//! [`transfer`] for the data that goes through the log.
//!
//! **The invariant to keep**: from the same headers come the same bytes, on every machine. Numbers
//! of functions follow from the order of headers and prototypes. Changing that order changes the
//! table's hash, and older logs are refused.

mod expression;
mod module;
mod syntax;
mod table;
mod transfer;

use std::path::{Path, PathBuf};

use hindcast_interpose::model::Interface;
use hindcast_interpose::{InterfaceError, read};

/// The headers whose functions are always interposed, in the order of their functions' numbers.
/// New ones go to the end.
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

/// A file of generated code: its name below `crates/runtime/src`, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// Everything that is generated, with its path in the folder of crates, from the headers in
/// `folder`.
pub fn generated(folder: &Path) -> Result<Vec<(PathBuf, String)>, InterfaceError> {
    let interfaces = |names: &[&str]| -> Result<Vec<_>, _> {
        names
            .iter()
            .map(|name| read(&folder.join(format!("{name}.h")), &[folder]))
            .collect()
    };
    let (always, chosen) = (interfaces(&ALWAYS)?, interfaces(&CHOSEN)?);
    let known = interfaces(&KNOWN)?;
    let runtime = Path::new("runtime/src");
    let mut written: Vec<_> = files(&always, &chosen)
        .into_iter()
        .map(|file| (runtime.join(file.name), file.text))
        .collect();
    let all: Vec<_> = always.into_iter().chain(chosen).chain(known).collect();
    let symbols = table::symbols(&all);
    written.push((Path::new("interpose/symbols.txt").into(), symbols));
    Ok(written)
}

/// The runtime's files for interfaces that are always active, and for those that are active when
/// they were chosen. The order of the interfaces decides the numbers of functions.
pub fn files(always: &[Interface], chosen: &[Interface]) -> Vec<File> {
    let all: Vec<_> = always.iter().chain(chosen).collect();
    let file = |name: &str, heading: &str, code| File {
        name: format!("{name}.rs"),
        text: syntax::file(heading, code),
    };
    let mut files = vec![
        file(
            "doors/generated/mod",
            "//! Stubs and their numbers.\n",
            table::dispatch(&all),
        ),
        file(
            "functions",
            "//! The functions of the interface, by number.\n",
            table::functions(&all),
        ),
    ];
    files.extend(
        always
            .iter()
            .map(|interface| (interface, false))
            .chain(chosen.iter().map(|interface| (interface, true)))
            .map(|(interface, chosen)| {
                let name = format!("doors/generated/{}", interface.name);
                file(&name, "", module::module(interface, chosen))
            }),
    );
    files
}
