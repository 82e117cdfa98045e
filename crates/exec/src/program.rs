//! From what the user typed to what the kernel would execute.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many interpreters may name each other, as in the kernel.
const SCRIPTS_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Absolute.
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{} is in no folder of PATH", .0.to_string_lossy())]
    NotInPath(OsString),
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    #[error("{} is a script whose interpreter is missing: {}", script.display(), interpreter.display())]
    NoInterpreter {
        script: PathBuf,
        interpreter: PathBuf,
    },
    #[error("{} is a script, and so are {SCRIPTS_MAX} interpreters in a row", .0.display())]
    TooManyScripts(PathBuf),
    #[error("{} is neither an executable nor a script that says how it is run", .0.display())]
    NoFormat(PathBuf),
}

/// Finds `command[0]` as a shell would, and follows `#!` lines to the interpreter, which is the
/// program that is recorded then. `command` is not empty.
pub fn find(
    command: &[OsString],
    path: Option<&OsStr>,
    folder: &Path,
) -> Result<Program, FindError> {
    // Relative to `folder`, as the kernel would be given it.
    let mut given = locate(&command[0], path, folder)?;
    let mut arguments = command.to_vec();
    for _ in 0..=SCRIPTS_MAX {
        let found = clean(&folder.join(&given));
        if !is_executable(&found) {
            return Err(FindError::NotExecutable(found));
        }
        let unreadable = |source| FindError::Unreadable {
            path: found.clone(),
            source,
        };
        let mut start = Vec::new();
        std::fs::File::open(&found)
            .map_err(unreadable)?
            .take(256)
            .read_to_end(&mut start)
            .map_err(unreadable)?;
        if start.starts_with(b"\x7fELF") {
            return Ok(Program {
                path: found,
                arguments,
            });
        }
        let Some((interpreter, argument)) = shebang(&start) else {
            return Err(FindError::NoFormat(found));
        };
        // The kernel gives the interpreter the path of the script in place of the script's own
        // name.
        arguments[0] = given.clone().into();
        if let Some(argument) = argument {
            arguments.insert(0, argument);
        }
        arguments.insert(0, interpreter.clone().into());
        if !folder.join(&interpreter).is_file() {
            return Err(FindError::NoInterpreter {
                script: found,
                interpreter,
            });
        }
        given = interpreter;
    }
    Err(FindError::TooManyScripts(given))
}

/// Without `.` in it.
fn clean(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

fn locate(name: &OsStr, path: Option<&OsStr>, folder: &Path) -> Result<PathBuf, FindError> {
    if name.as_bytes().contains(&b'/') {
        let given = PathBuf::from(name);
        return match std::fs::metadata(folder.join(&given)) {
            Ok(_) => Ok(given),
            Err(source) => Err(FindError::Unreadable {
                path: given,
                source,
            }),
        };
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut not_executable = None;
    for place in std::env::split_paths(path) {
        let candidate = place.join(name);
        if folder.join(&candidate).is_file() {
            if is_executable(&folder.join(&candidate)) {
                return Ok(candidate);
            }
            not_executable.get_or_insert(candidate);
        }
    }
    Err(match not_executable {
        Some(candidate) => FindError::NotExecutable(candidate),
        None => FindError::NotInPath(name.into()),
    })
}

fn is_executable(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a NUL-terminated path.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// The interpreter of a `#!` line and its one optional argument.
fn shebang(start: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    (!interpreter.is_empty()).then(|| {
        (
            OsStr::from_bytes(interpreter).into(),
            (!argument.is_empty()).then(|| OsStr::from_bytes(argument).into()),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(files: &[(&str, &str, u32)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, mode) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(*mode)).unwrap();
        }
        folder
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_name_is_looked_for_in_path_and_one_with_a_slash_is_not() {
        let folder = folder(&[("a/prog", "\x7fELF", 0o644), ("b/prog", "\x7fELF", 0o755)]);
        let at = |name: &str| folder.path().join(name);
        let path = std::env::join_paths([at("a"), at("b")]).unwrap();
        let find = |name: &str| find(&words(&[name, "x"]), Some(&path), folder.path());
        let found = find("prog").unwrap();
        assert_eq!(
            (found.path, found.arguments),
            (at("b/prog"), words(&["prog", "x"]))
        );
        assert_eq!(find("./b/prog").unwrap().path, at("b/prog"));
        assert!(matches!(find("./a/prog"), Err(FindError::NotExecutable(_))));
        assert!(matches!(find("nothing"), Err(FindError::NotInPath(_))));
        assert!(matches!(
            find("./nothing"),
            Err(FindError::Unreadable { .. })
        ));
    }

    #[test]
    fn a_script_is_its_interpreter_with_the_script_as_argument() {
        let folder = folder(&[
            ("prog", "\x7fELF", 0o755),
            ("inner", "#! ./prog -e  -x \nrest", 0o755),
            ("outer", "#!./inner\n", 0o755),
            ("circle", "#!./circle\n", 0o755),
            ("lost", "#!/no/such/interpreter\n", 0o755),
            ("text", "hello\n", 0o755),
        ]);
        let find = |name: &str| find(&words(&[name, "1"]), None, folder.path());
        let found = find("./outer").unwrap();
        assert_eq!(found.path, folder.path().join("prog"));
        assert_eq!(
            found.arguments,
            words(&["./prog", "-e  -x", "./inner", "./outer", "1"])
        );
        assert!(matches!(
            find("./circle"),
            Err(FindError::TooManyScripts(_))
        ));
        assert!(matches!(
            find("./lost"),
            Err(FindError::NoInterpreter { .. })
        ));
        assert!(matches!(find("./text"), Err(FindError::NoFormat(_))));
    }
}
