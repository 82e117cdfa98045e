//! `hindcast exec --check`: can it be recorded, and what of that which it imports is covered.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use hindcast_interpose::imports::{self, Coverage};
use serde::Serialize;

use crate::elf::Elf;
use crate::error::{ExecError, system};
use crate::launch::{self, Image};
use crate::preflight;
use crate::program;
use crate::recording::LoadedFile;
use crate::run::{self, ChosenInterface};

/// A program that can be recorded, or a library that such a program may load.
#[derive(Debug, Serialize)]
pub struct Checked {
    pub path: PathBuf,
    /// Opened by programs at run time, rather than a program.
    pub library: bool,
    /// The program, its loader and its libraries; nothing for a library.
    pub files: Vec<LoadedFile>,
    /// Imported functions that are recorded and replayed by a stub.
    pub covered: Vec<String>,
    /// Those that give the same in both runs by themselves.
    pub harmless: Vec<String>,
    /// Those that run in replay space, where the system calls that they make are caught one by
    /// one, and who imports them.
    pub missing: BTreeMap<String, Vec<PathBuf>>,
}

/// Looks at files only; what is run is at most the loader, which lists libraries.
pub fn check(given: &OsStr, interfaces: &[ChosenInterface]) -> Result<Checked, ExecError> {
    let folder = std::env::current_dir().map_err(system("the current folder is gone"))?;
    let library = library(&folder.join(given));
    let (path, files) = match &library {
        Some(path) => (path.clone(), Vec::new()),
        None => {
            preflight::machine()?;
            let found = program::find(
                &[given.into()],
                std::env::var_os("PATH").as_deref(),
                &folder,
            )?;
            let image = Image {
                path: found.path,
                arguments: found.arguments,
                environment: run::environment(),
                folder: None,
                stack_limit: launch::stack_limit(),
            };
            let files = preflight::program(&image)?;
            (image.path, files)
        }
    };
    let chosen: Vec<&str> = interfaces.iter().map(ChosenInterface::name).collect();
    let own: HashSet<String> = interfaces
        .iter()
        .flat_map(|interface| interface.functions().iter().cloned())
        .collect();
    let found = imports::check(&path, &chosen, &own)?;
    let names =
        |which: fn(&Coverage) -> bool| found.names(which).into_iter().map(str::to_owned).collect();
    Ok(Checked {
        library: library.is_some(),
        covered: names(|coverage| {
            matches!(
                coverage,
                Coverage::Annotated { .. } | Coverage::ByHand { .. }
            )
        }),
        harmless: names(|coverage| *coverage == Coverage::Harmless),
        missing: found
            .missing()
            .into_iter()
            .map(|(name, files)| {
                (
                    name.to_owned(),
                    files.into_iter().map(Path::to_owned).collect(),
                )
            })
            .collect(),
        path,
        files,
    })
}

/// `path` if it is a shared library: it names libraries itself and nothing that loads it.
fn library(path: &Path) -> Option<PathBuf> {
    let elf = Elf::read(path).ok()?;
    (elf.interpreter.is_none() && !elf.needed.is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_is_covered_where_it_matters() {
        let checked = check(std::env::current_exe().unwrap().as_os_str(), &[]).unwrap();
        assert!(!checked.library && checked.files.len() > 2);
        assert!(
            checked.covered.iter().any(|name| name == "read"),
            "{:?}",
            checked.covered
        );
        assert!(
            checked.harmless.iter().any(|name| name == "memcpy"),
            "{:?}",
            checked.harmless
        );
    }
}
