//! What is checked before anything runs: can this program be recorded, on this machine?
//!
//! Everything here is found out by reading files and by asking the kernel; the program itself is
//! not executed. The one thing that is run is its dynamic loader, which resolves the libraries and
//! ends.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hindcast_execlog::config::descriptors;

use crate::elf::{Architecture, Elf, ElfError, identity};
use crate::launch::Image;
use crate::recording::{LoadedFile, Machine, Text};

/// The loader of the GNU C library, whose functions the runtime stands in for.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Unreadable(#[from] ElfError),
    #[error("{} is for {architecture}, this machine is x86-64", path.display())]
    Architecture {
        path: PathBuf,
        architecture: &'static str,
    },
    #[error("{} was made by Go, whose runtime makes its system calls and its threads without libc", .0.display())]
    Go(PathBuf),
    #[error("{} is linked statically: there is no loader that could put a library into it", .0.display())]
    Static(PathBuf),
    #[error("{} was made by Go and is linked statically: there is no loader that could put a library into it", .0.display())]
    StaticGo(PathBuf),
    #[error("{} is made for another libc: it is loaded by {}, not by {LOADER}", path.display(), loader.display())]
    Libc { path: PathBuf, loader: PathBuf },
    #[error("{}, which loads {}, is missing", loader.display(), path.display())]
    NoLoader { path: PathBuf, loader: PathBuf },
    #[error("{} {how}: the loader lets nobody put a library into such a program", path.display())]
    Privileged { path: PathBuf, how: String },
    #[error("{} needs what is not there: {}", path.display(), missing.join("; "))]
    MissingLibraries { path: PathBuf, missing: Vec<String> },
    #[error("the loader {} cannot be run", loader.display())]
    Loader { loader: PathBuf, source: io::Error },
    #[error(
        "this kernel ({kernel}) has no Syscall User Dispatch, by which calls that no stub covers are noticed"
    )]
    NoDispatch { kernel: String },
    #[error("address space randomisation cannot be switched off here")]
    NoPersonality { source: io::Error },
    #[error(
        "a process may have {limit} open files here; recording needs descriptors up to {}",
        descriptors::END
    )]
    FewDescriptors { limit: u64 },
}

impl Refused {
    pub fn hint(&self) -> &'static str {
        match self {
            Refused::Unreadable(_) => "name an executable, or a script that begins with #!",
            Refused::Architecture { .. } => {
                "record it on a machine of its own kind; only x86-64 is supported so far"
            }
            Refused::Go(_) => "Go programs cannot be recorded; record the services around it",
            Refused::Static(_) => {
                "link it dynamically: leave out -static, or -static-pie, or Rust's +crt-static"
            }
            Refused::StaticGo(_) => "build it with CGO_ENABLED=1, on a machine with a C compiler",
            Refused::Libc { .. } => {
                "build it against the GNU C library, for instance in a Debian or Fedora container in place of Alpine"
            }
            Refused::NoLoader { .. } => {
                "install the libraries that it was built for, or build it here"
            }
            Refused::Privileged { .. } => {
                "record a copy without these bits (cp makes one), as a user who may do what it does"
            }
            Refused::MissingLibraries { .. } => {
                "install the package that has them, or name their folder in LD_LIBRARY_PATH"
            }
            Refused::Loader { .. } => "see whether the loader itself is executable",
            Refused::NoDispatch { .. } => {
                "use Linux 5.11 or newer, on the machine itself rather than in a sandbox that plays the kernel"
            }
            Refused::NoPersonality { .. } => {
                "in a container, allow the personality system call: docker run --security-opt seccomp=unconfined"
            }
            Refused::FewDescriptors { .. } => "raise the hard limit (ulimit -Hn 4096)",
        }
    }
}

/// What this machine must be able to do, for recording and for replay.
pub fn machine() -> Result<(), Refused> {
    // SAFETY: each asks or sets an attribute of this process alone.
    unsafe {
        // PR_SYS_DISPATCH_OFF: what is off already is switched off, so that only the support is
        // asked for.
        if libc::prctl(59, 0, 0, 0, 0) != 0 {
            return Err(Refused::NoDispatch { kernel: kernel() });
        }
        // Set here for good: children inherit it, and this process has its own addresses already.
        let persona = libc::personality(0xffff_ffff);
        if libc::personality((persona | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) < 0 {
            return Err(Refused::NoPersonality {
                source: io::Error::last_os_error(),
            });
        }
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0
            && limit.rlim_max < descriptors::END as u64
        {
            return Err(Refused::FewDescriptors {
                limit: limit.rlim_max,
            });
        }
    }
    Ok(())
}

/// The release of the running kernel.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|text| text.trim().to_owned())
        .unwrap_or_else(|_| "unknown".into())
}

/// The machine that this runs on.
pub fn here() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let processor = cpu.lines().find_map(|line| {
        line.strip_prefix("model name")?
            .split_once(": ")
            .map(|(_, name)| name)
    });
    Machine {
        name: read("/proc/sys/kernel/hostname").trim().to_owned(),
        kernel: kernel(),
        processor: processor.unwrap_or("unknown").to_owned(),
    }
}

/// Whether the program that `image` names can be recorded, and all files that make it up.
pub fn program(image: &Image) -> Result<Vec<LoadedFile>, Refused> {
    let elf = Elf::read(&image.path)?;
    if elf.go {
        return Err(Refused::Go(image.path.clone()));
    }
    let loader = loader(&image.path, &elf)?;
    privileges(&image.path)?;
    files(image, &loader)
}

/// Refuses a program into which no library can be loaded.
pub fn loadable(path: &Path) -> Result<(), Refused> {
    loader(path, &Elf::read(path)?)?;
    privileges(path)
}

/// The loader of a program that can be recorded, judging by what it says about itself.
pub fn loader(path: &Path, elf: &Elf) -> Result<PathBuf, Refused> {
    if let Architecture::Other(architecture) = elf.architecture {
        return Err(Refused::Architecture {
            path: path.into(),
            architecture,
        });
    }
    let Some(loader) = elf.interpreter.clone() else {
        return Err(match elf.go {
            true => Refused::StaticGo(path.into()),
            false => Refused::Static(path.into()),
        });
    };
    if loader.file_name() != Some(LOADER.as_ref()) {
        return Err(Refused::Libc {
            path: path.into(),
            loader,
        });
    }
    if !loader.is_file() {
        return Err(Refused::NoLoader {
            path: path.into(),
            loader,
        });
    }
    Ok(loader)
}

/// Refuses a program that would run with other rights than its starter's.
fn privileges(path: &Path) -> Result<(), Refused> {
    let unreadable = |source| ElfError::Read {
        path: path.into(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    // SAFETY: these cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let refused = |how: &str| {
        Err(Refused::Privileged {
            path: path.into(),
            how: how.into(),
        })
    };
    if metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user {
        return refused(&format!(
            "is set-uid: it runs as user {}, not as user {user}",
            metadata.uid()
        ));
    }
    if metadata.mode() & libc::S_ISGID != 0
        && metadata.mode() & libc::S_IXGRP != 0
        && metadata.gid() != group
    {
        return refused(&format!(
            "is set-gid: it runs as group {}, not as group {group}",
            metadata.gid()
        ));
    }
    // To root, who has them all, they give nothing more.
    if user != 0 && has_capabilities(path) {
        return refused("has file capabilities");
    }
    Ok(())
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: asks for the size only.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

/// The program, its loader, and every library, as the loader resolves them in the program's
/// environment.
pub fn files(image: &Image, loader: &Path) -> Result<Vec<LoadedFile>, Refused> {
    let mut command = Command::new(loader);
    // The kernel follows links before the loader looks for libraries beside the program; a loader
    // that is started by hand does not.
    let followed = image.path.canonicalize();
    command
        .arg("--list")
        .arg(followed.as_deref().unwrap_or(&image.path))
        .env_clear()
        .stdin(Stdio::null());
    command.envs(
        image
            .environment
            .iter()
            .filter_map(|variable| split(variable)),
    );
    if let Some(folder) = &image.folder {
        command.current_dir(folder);
    }
    let listed = command.output().map_err(|source| Refused::Loader {
        loader: loader.into(),
        source,
    })?;
    let text = [listed.stdout, listed.stderr].concat();
    let libraries = match resolved(&String::from_utf8_lossy(&text)) {
        Ok(libraries) => libraries,
        Err(missing) => {
            return Err(Refused::MissingLibraries {
                path: image.path.clone(),
                missing,
            });
        }
    };
    let mut paths = vec![image.path.clone(), loader.to_owned()];
    paths.extend(libraries);
    let mut made: Vec<LoadedFile> = Vec::new();
    for path in paths {
        if !made.iter().any(|file| file.path.as_path() == path) {
            made.push(LoadedFile {
                path: Text::from(&path),
                identity: identity(&path)?,
            });
        }
    }
    Ok(made)
}

fn split(variable: &OsString) -> Option<(&std::ffi::OsStr, &std::ffi::OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((
        std::ffi::OsStr::from_bytes(&bytes[..at]),
        std::ffi::OsStr::from_bytes(&bytes[at + 1..]),
    ))
}

/// The paths in what a loader's `--list` printed, or what it missed.
fn resolved(listed: &str) -> Result<Vec<PathBuf>, Vec<String>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for line in listed.lines().map(str::trim) {
        if let Some((name, place)) = line.split_once(" => ") {
            match place.split_once(" (0x") {
                Some((path, _)) => found.push(PathBuf::from(path)),
                None => missing.push(format!("{name} is not found")),
            }
        } else if let Some((path, _)) = line.split_once(" (0x") {
            // The vDSO is no file; the loader names itself with its path.
            if path.starts_with('/') {
                found.push(PathBuf::from(path));
            }
        } else if let Some((_, what)) = line.split_once(": version `")
            && let Some((version, by)) = what.split_once("' not found (required by ")
        {
            missing.push(format!(
                "version {version}, for {}",
                by.trim_end_matches(')')
            ));
        } else if let Some((_, what)) = line.split_once("error while loading shared libraries: ") {
            missing.push(what.to_owned());
        }
    }
    missing.dedup();
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn elf() -> Elf {
        Elf {
            architecture: Architecture::X86_64,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            dynamic: true,
            needed: vec!["libc.so.6".into()],
            build_id: None,
            go: false,
        }
    }

    #[track_caller]
    fn refused(elf: Elf, expected: Expect) {
        let refused = loader(Path::new("/opt/prog"), &elf).unwrap_err();
        expected.assert_eq(&format!("{refused}\n{}\n", refused.hint()));
    }

    #[test]
    fn a_dynamic_program_of_this_machine_and_libc_can_be_recorded() {
        assert_eq!(
            loader(Path::new("/opt/prog"), &elf()).unwrap(),
            Path::new("/lib64/ld-linux-x86-64.so.2")
        );
    }

    #[test]
    fn others_are_refused_with_what_they_are_and_what_to_do() {
        refused(
            Elf {
                interpreter: None,
                ..elf()
            },
            expect![[r#"
                /opt/prog is linked statically: there is no loader that could put a library into it
                link it dynamically: leave out -static, or -static-pie, or Rust's +crt-static
            "#]],
        );
        refused(
            Elf {
                go: true,
                interpreter: None,
                ..elf()
            },
            expect![[r#"
                /opt/prog was made by Go and is linked statically: there is no loader that could put a library into it
                build it with CGO_ENABLED=1, on a machine with a C compiler
            "#]],
        );
        refused(
            Elf {
                interpreter: Some("/lib/ld-musl-x86_64.so.1".into()),
                ..elf()
            },
            expect![[r#"
                /opt/prog is made for another libc: it is loaded by /lib/ld-musl-x86_64.so.1, not by ld-linux-x86-64.so.2
                build it against the GNU C library, for instance in a Debian or Fedora container in place of Alpine
            "#]],
        );
        refused(
            Elf {
                architecture: Architecture::Other("64-bit ARM"),
                ..elf()
            },
            expect![[r#"
                /opt/prog is for 64-bit ARM, this machine is x86-64
                record it on a machine of its own kind; only x86-64 is supported so far
            "#]],
        );
        refused(
            Elf {
                interpreter: Some("/nowhere/ld-linux-x86-64.so.2".into()),
                ..elf()
            },
            expect![[r#"
                /nowhere/ld-linux-x86-64.so.2, which loads /opt/prog, is missing
                install the libraries that it was built for, or build it here
            "#]],
        );
    }

    #[test]
    fn what_the_loader_lists_is_what_is_loaded() {
        let listed = "\tlinux-vdso.so.1 (0x00007f44afd22000)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f44afbfd000)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f44afd24000)\n";
        assert_eq!(
            resolved(listed).unwrap(),
            [
                Path::new("/lib/x86_64-linux-gnu/libz.so.1"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }

    #[test]
    fn what_the_loader_misses_is_named() {
        let listed = "./p: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.99' not found (required by ./p)\n\
                      \tlibgone.so => not found\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f44afa1b000)\n";
        assert_eq!(
            resolved(listed).unwrap_err(),
            ["version GLIBC_2.99, for ./p", "libgone.so is not found"]
        );
    }

    #[test]
    fn the_files_of_a_program_are_it_its_loader_and_its_libraries() {
        let path = std::env::current_exe().unwrap();
        let image = Image {
            path: path.clone(),
            arguments: vec![],
            environment: vec![],
            folder: None,
            stack_limit: 0,
        };
        let files = program(&image).unwrap();
        assert_eq!(files[0].path.as_path(), path);
        assert!(
            files
                .iter()
                .any(|file| file.path.as_path().ends_with("libc.so.6")),
            "{files:?}"
        );
        assert!(files.iter().all(|file| file.identity.contains(' ')));
    }
}
