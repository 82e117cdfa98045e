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

/// Prototypes, and the functions by hand.
const MPI: [(&str, &str); 2] = [
    ("mpi_calls.h", include_str!("../interfaces/mpi_calls.h")),
    ("mpi_calls.c", include_str!("../interfaces/mpi_calls.c")),
];

/// A built interface.
#[derive(Debug)]
pub struct Built {
    pub interface: Interface,
    /// What is recorded, in the order of the functions' numbers.
    pub functions: Vec<String>,
    pub library: PathBuf,
}

/// Writes `hindcast.h` and what else an annotated header may include into a folder, for editors and
/// for [`build`].
pub fn write_headers(folder: &Path) -> Result<(), InterfaceError> {
    for (name, text) in HEADERS {
        write(&folder.join(name), text)?;
    }
    Ok(())
}

/// Reads an annotated header, writes its stubs into `folder` (which must exist) and compiles them
/// to a library there, named after the header. What stands in a C file of the same name beside it
/// belongs to it: the functions that the header says are by hand.
pub fn build(header: &Path, folder: &Path) -> Result<Built, InterfaceError> {
    let header = header
        .canonicalize()
        .map_err(|source| InterfaceError::Read {
            path: header.into(),
            source,
        })?;
    build_with(&header, folder, &[])
}

/// MPI (`mpi_calls.h`), whose own header differs from one implementation to the next: as `mpicc` is
/// installed here.
pub fn build_mpi(folder: &Path) -> Result<Built, InterfaceError> {
    for (name, text) in MPI {
        write(&folder.join(name), text)?;
    }
    let mut built = build_with(&folder.join(MPI[0].0), folder, &mpi_folders()?)?;
    "mpi".clone_into(&mut built.interface.name);
    Ok(built)
}

/// Where `mpi.h` is.
fn mpi_folders() -> Result<Vec<PathBuf>, InterfaceError> {
    let said = Command::new("mpicc").arg("-show").output();
    let said = said
        .ok()
        .filter(|said| said.status.success())
        .ok_or(InterfaceError::NoMpi)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let folders = said
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("-I"));
    Ok(folders.map(PathBuf::from).collect())
}

fn build_with(header: &Path, folder: &Path, more: &[PathBuf]) -> Result<Built, InterfaceError> {
    write_headers(folder)?;
    let beside = header.parent().unwrap_or(Path::new("/"));
    let mut include = vec![beside, folder];
    include.extend(more.iter().map(PathBuf::as_path));
    let interface = reading::read(header, &include)?;
    let by_hand = Some(header.with_extension("c")).filter(|path| path.is_file());
    let by_hand = by_hand.map(|path| path.display().to_string());
    let functions: Vec<String> = c::recorded(&interface, by_hand.is_some())
        .map(|function| function.name.clone())
        .collect();
    if functions.is_empty() {
        return Err(InterfaceError::Empty {
            header: header.into(),
        });
    }
    let source = folder.join(format!("{}_stubs.c", interface.name));
    let text = c::file(&interface, &header.to_string_lossy(), by_hand.as_deref())?;
    write(&source, &text)?;
    let library = folder.join(format!("{}.so", interface.name));
    let mut command = Command::new(compiler());
    command.args("-std=gnu11 -O2 -g -w -shared -fPIC -fno-builtin -Wl,-z,now".split(' '));
    for folder in include {
        command.arg("-I").arg(folder);
    }
    command.arg("-o").arg(&library).arg(&source);
    compile(&mut command, header)?;
    Ok(Built {
        interface,
        functions,
        library,
    })
}

fn write(path: &Path, text: &str) -> Result<(), InterfaceError> {
    std::fs::write(path, text).map_err(|source| InterfaceError::Write {
        path: path.into(),
        source,
    })
}
