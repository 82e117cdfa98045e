//! The programs of tests/programs, compiled when a test first wants them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::outcome::shown;
use crate::repository;

/// Where compiled programs are kept: beside what cargo builds, and gone with it.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    let deps = test.parent().expect("a test runs from a folder");
    let folder = deps.with_file_name("exec-programs");
    std::fs::create_dir_all(&folder).expect("cargo's folder is writable");
    folder
}

/// The source of a program: C, or C++ where there is such a file.
pub fn source(name: &str) -> PathBuf {
    let cpp = repository(&format!("tests/programs/{name}.cc"));
    if cpp.exists() {
        cpp
    } else {
        repository(&format!("tests/programs/{name}.c"))
    }
}

/// The names of all programs there are.
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(repository("tests/programs"))
        .expect("the folder is part of the repository");
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let path = file.ok()?.path();
            let known = path
                .extension()
                .is_some_and(|extension| extension == "c" || extension == "cc");
            known.then(|| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            })?
        })
        .collect();
    names.sort();
    names
}

/// A compiled program of tests/programs.
pub fn compiled(name: &str) -> PathBuf {
    compiled_as(name, name, &[])
}

/// The same under another name, with more flags.
///
/// # Panics
/// If it does not compile.
pub fn compiled_as(name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let source = source(name);
    let compiler = if source
        .extension()
        .is_some_and(|extension| extension == "cc")
    {
        "c++"
    } else {
        "cc"
    };
    compiled_with(compiler, &source, output, flags)
}

/// With any compiler that takes the flags of one.
///
/// # Panics
/// If it does not compile.
pub fn compiled_with(compiler: &str, source: &Path, output: &str, flags: &[&str]) -> PathBuf {
    // One at a time per program, different ones at the same time.
    static MADE: OnceLock<Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>> = OnceLock::new();
    let made = MADE.get_or_init(Mutex::default);
    let once = made
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(output.to_owned())
        .or_default()
        .clone();
    once.get_or_init(|| compile(compiler, source, output, flags))
        .clone()
}

fn compile(compiler: &str, source: &Path, output: &str, flags: &[&str]) -> PathBuf {
    let target = folder().join(output);
    let modified = |path: &Path| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let needed = [
        source,
        &repository("tests/programs/see.h"),
        Path::new(file!()),
    ]
    .iter()
    .filter_map(|path| modified(path))
    .max();
    if modified(&target) > needed {
        return target;
    }
    // Another test process may want it at the same moment: whoever is last wins, and nobody sees
    // half a program.
    let fresh = folder().join(format!("{output}.{}", std::process::id()));
    let mut command = Command::new(compiler);
    if compiler == "cc" || compiler == "c++" {
        let standard = if compiler == "cc" {
            "-std=gnu17"
        } else {
            "-std=gnu++17"
        };
        command.args([
            standard, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread",
        ]);
    }
    let compiled = command
        .arg("-o")
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .output();
    let compiled = compiled.unwrap_or_else(|error| {
        panic!("there is no {compiler} ({error}): install it with scripts/setup test")
    });
    assert!(
        compiled.status.success(),
        "{} does not compile with {compiler}:\n{}",
        source.display(),
        shown(&compiled.stderr)
    );
    std::fs::rename(&fresh, &target).expect("cargo's folder is writable");
    target
}
