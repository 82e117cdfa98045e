//! A user's own interface: from an annotated header to a library that is loaded into the recorded
//! program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::InterfaceError;
use crate::c;
use crate::model::Interface;
use crate::reading;
use crate::source::{compile, compiler};

/// The headers that every interface needs; an installed binary has no source tree to find them in.
const HEADERS: [(&str, &str); 2] = [
    ("hindcast.h", include_str!("../interfaces/hindcast.h")),
    (
        "hindcast_runtime.h",
        include_str!("../interfaces/hindcast_runtime.h"),
    ),
];

/// A built interface.
#[derive(Debug)]
pub struct Built {
    pub interface: Interface,
    /// The stubs that were compiled.
    pub stubs: usize,
    pub library: PathBuf,
}

/// Writes `hindcast.h` and what else an annotated header may include into a folder, for editors and
/// for [`build`].
pub fn write_headers(folder: &Path) -> Result<(), InterfaceError> {
    for (name, text) in HEADERS {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| InterfaceError::Write { path, source })?;
    }
    Ok(())
}

/// Reads an annotated header, writes its stubs into `folder` (which must exist) and compiles them
/// to a library there, named after the header.
pub fn build(header: &Path, folder: &Path) -> Result<Built, InterfaceError> {
    let header = header
        .canonicalize()
        .map_err(|source| InterfaceError::Read {
            path: header.into(),
            source,
        })?;
    write_headers(folder)?;
    let beside = header.parent().unwrap_or(Path::new("/"));
    let interface = reading::read(&header, &[beside, folder])?;
    let stubs = c::stubbed(&interface).count();
    if stubs == 0 {
        return Err(InterfaceError::Empty { header });
    }
    let source = folder.join(format!("{}.c", interface.name));
    let text = c::file(&interface, &header.to_string_lossy())?;
    std::fs::write(&source, text).map_err(|error| InterfaceError::Write {
        path: source.clone(),
        source: error,
    })?;
    let library = folder.join(format!("{}.so", interface.name));
    let mut command = Command::new(compiler());
    command
        .args("-std=gnu11 -O2 -g -w -shared -fPIC -fno-builtin -Wl,-z,now".split(' '))
        .arg("-I")
        .arg(folder)
        .arg("-I")
        .arg(beside)
        .arg("-o")
        .arg(&library)
        .arg(&source);
    compile(&mut command, &header)?;
    Ok(Built {
        interface,
        stubs,
        library,
    })
}
