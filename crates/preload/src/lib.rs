//! Puts the tap into a service: the library and its shims as files, and the environment that loads
//! them.
//!
//! ```text
//!   Preload::make ──▶ a folder with the files ──▶ environment ──▶ the service and its children
//! ```
//!
//! **Where to start reading**: [`Preload`].
//!
//! **What this crate does not do**: it starts nothing.
//!
//! **The invariant to keep**: what a user has set in the variables that are used here stays.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const PRELOAD: &str = "LD_PRELOAD";
/// Built by `build.rs` from `crates/tap`.
static TAP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tap.so"));
const LIBRARY: &str = "libhindcast_tap.so";
/// How the folder's name begins, by which the tap finds what is ours.
const FOLDER: &str = "hindcast-tap-";

/// What glibc's dynamic linker puts in the place of `$LIB`: it is the distribution's choice. To
/// musl's, those are letters, and a file that is not there is passed over. So a child that musl
/// starts, which could not run with our library in it, runs without.
const LIB: &str = "$LIB";
const LIBS: [&str; 3] = ["lib64", "lib", TRIPLET];
#[cfg(target_arch = "x86_64")]
const TRIPLET: &str = "lib/x86_64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const TRIPLET: &str = "lib/aarch64-linux-gnu";

/// What tells the tap whose turn it is in a runtime, by its own means.
struct Shim {
    /// For people.
    runtime: &'static str,
    /// Where the files are, and what they hold. The first is what is loaded.
    files: &'static [(&'static str, &'static str)],
    variable: &'static str,
    /// What the variable says of the first file's path.
    says: fn(&Path) -> OsString,
    /// Between that and what a user has set there.
    separator: &'static str,
    /// A path with a space would be two words.
    is_words: bool,
}

macro_rules! shim {
    ($name:literal) => {
        ($name, include_str!(concat!("../../tap/shims/", $name)))
    };
}

/// Bun is loaded the same.
const NODE: &[(&str, &str)] = &[
    shim!("node.cjs"),
    shim!("node_bun.cjs"),
    shim!("node_cluster.cjs"),
    shim!("node_kept.cjs"),
    shim!("node_messages.cjs"),
    shim!("node_caches.cjs"),
    shim!("node_calls.cjs"),
    shim!("node_next.cjs"),
    shim!("node_pins.cjs"),
    shim!("node_queries.cjs"),
    shim!("node_runtime.cjs"),
];

const SHIMS: [Shim; 5] = [
    Shim {
        runtime: "Node",
        files: NODE,
        variable: "NODE_OPTIONS",
        says: |file| option("--require=", file),
        separator: " ",
        is_words: true,
    },
    Shim {
        runtime: "Bun",
        files: NODE.split_at(1).0,
        variable: "BUN_OPTIONS",
        says: |file| option("--preload=", file),
        separator: " ",
        is_words: true,
    },
    Shim {
        runtime: "Python",
        files: &[
            shim!("python/sitecustomize.py"),
            shim!("python/hindcast_turns.py"),
            shim!("python/hindcast_caches.py"),
            shim!("python/hindcast_files.py"),
            shim!("python/hindcast_granian.py"),
            shim!("python/hindcast_pools.py"),
            shim!("python/hindcast_random.py"),
            shim!("python/hindcast_robyn.py"),
            shim!("python/hindcast_steps.py"),
            shim!("python/hindcast_stopwatch.py"),
            shim!("python/hindcast_waiting.py"),
        ],
        variable: "PYTHONPATH",
        says: |file| file.parent().unwrap_or(file).into(),
        separator: ":",
        is_words: false,
    },
    Shim {
        runtime: "Ruby",
        files: &[shim!("ruby.rb")],
        variable: "RUBYOPT",
        says: |file| option("-r", file),
        separator: " ",
        is_words: true,
    },
    Shim {
        runtime: "Perl",
        files: &[shim!("perl/HindcastTurns.pm")],
        variable: "PERL5OPT",
        says: |file| {
            let mut options = option("-I", file.parent().unwrap_or(file));
            options.push(" -MHindcastTurns");
            options
        },
        separator: " ",
        is_words: true,
    },
];

/// The library in a folder of its own, which goes when this goes.
#[derive(Debug)]
pub struct Preload {
    folder: tempfile::TempDir,
}

impl Preload {
    /// Any user can read it: a service may become another one. Stacks of errors have its path in
    /// them, which a service may show, so a replay has it where the recording had it, by this name.
    /// Where somebody else has taken the name it has another one.
    pub fn make(name: Option<&str>) -> io::Result<Self> {
        let folder = match name.map(named).transpose() {
            Ok(Some(folder)) => folder,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => tempfile::Builder::new().prefix(FOLDER).tempdir()?,
        };
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let library = folder.path().join(LIBRARY);
        put(&library, TAP)?;
        for name in LIBS {
            let place = folder.path().join(name);
            std::fs::create_dir_all(&place)?;
            std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755))?;
            std::os::unix::fs::symlink(&library, place.join(LIBRARY))?;
        }
        for (name, text) in SHIMS.iter().flat_map(|shim| shim.files) {
            let file = folder.path().join(name);
            if let Some(parent) = file.parent().filter(|parent| *parent != folder.path()) {
                std::fs::create_dir_all(parent)?;
                std::fs::set_permissions(parent, PermissionsExt::from_mode(0o755))?;
            }
            put(&file, text.as_bytes())?;
        }
        Ok(Self { folder })
    }

    /// Whoever has the library in it has a file of this folder in its memory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What a service has in its environment into which the tap is loaded. `set`: what is there
    /// already.
    pub fn environment(
        &self,
        set: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let library = self.folder.path().join(LIB).join(LIBRARY).into_os_string();
        let mut all = vec![(PRELOAD, in_front(library, ":", set(PRELOAD)))];
        for shim in self.shims() {
            let says = (shim.says)(&self.folder.path().join(shim.files[0].0));
            let all_of_it = in_front(says, shim.separator, set(shim.variable));
            all.push((shim.variable, all_of_it));
        }
        all
    }

    /// The runtimes that have a shim.
    pub fn runtimes(&self) -> Vec<&'static str> {
        self.shims().map(|shim| shim.runtime).collect()
    }

    fn shims(&self) -> impl Iterator<Item = &'static Shim> {
        let path = self.folder.path().to_string_lossy();
        let is_word = !path.contains([' ', '"', '\\']);
        SHIMS.iter().filter(move |shim| is_word || !shim.is_words)
    }
}

/// Fails where there is something of that name.
fn named(name: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("{FOLDER}{name}"))
        .rand_bytes(0)
        .tempdir()
}

fn put(file: &Path, contents: &[u8]) -> io::Result<()> {
    std::fs::write(file, contents)?;
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755))
}

fn option(name: &str, file: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(file);
    option
}

/// In front of what a user has set.
fn in_front(ours: OsString, separator: &str, theirs: Option<OsString>) -> OsString {
    let mut all = ours;
    if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
        all.push(separator);
        all.push(theirs);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_tap_in_it_and_what_was_loaded_before() {
        let preload = Preload::make(None).unwrap();
        let environment = preload.environment(|_| Some("libm.so.6".into()));
        let maps = std::process::Command::new("cat")
            .arg("/proc/self/maps")
            .envs(environment)
            .output()
            .unwrap();
        let maps = String::from_utf8(maps.stdout).unwrap();
        assert!(maps.contains(LIBRARY) && maps.contains("libm.so"), "{maps}");
    }

    #[test]
    fn the_folder_has_its_name_unless_that_is_taken() {
        let ends = |preload: &Preload| preload.folder().ends_with("hindcast-tap-4711");
        let first = Preload::make(Some("4711")).unwrap();
        assert!(ends(&first));
        assert!(!ends(&Preload::make(Some("4711")).unwrap()));
        drop(first);
        assert!(ends(&Preload::make(Some("4711")).unwrap()));
    }

    #[test]
    fn a_program_of_musl_runs_without_the_tap() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, "int main(void) { return 7; }").unwrap();
        let made = std::process::Command::new("musl-gcc")
            .arg("-o")
            .args([&program, &source])
            .status();
        assert!(made.expect("musl-gcc is there").success());
        let preload = Preload::make(None).unwrap();
        let ran = std::process::Command::new(&program)
            .envs(preload.environment(|_| None))
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(7), "{ran:?}");
        assert_eq!(ran.stderr, b"");
    }

    #[test]
    fn a_shim_is_loaded_and_so_is_what_a_user_loads() {
        let preload = Preload::make(None).unwrap();
        let theirs = preload.folder.path().join("theirs.cjs");
        std::fs::write(&theirs, "console.log('theirs')").unwrap();
        let set = |name: &str| (name == "NODE_OPTIONS").then(|| option("--require=", &theirs));
        const PROGRAM: &str = "console.log(Object.keys(require.cache).length, process.argv.length)";
        let node = std::process::Command::new("node")
            .args(["-e", PROGRAM])
            .envs(preload.environment(set))
            .output()
            .unwrap();
        let is_node = |shim: &&Shim| shim.runtime == "Node";
        let files = SHIMS.iter().find(is_node).unwrap().files.len();
        assert_eq!(
            String::from_utf8_lossy(&node.stdout),
            // One is only for Bun, and theirs is one.
            format!("theirs\n{files} 1\n"),
            "{node:?}"
        );
    }

    #[test]
    fn python_has_the_shim_and_the_path_and_the_sitecustomize_of_its_user() {
        const PROGRAM: &str = "import sys; print('hindcast_turns' in sys.modules, \
            any('hindcast-tap-' in path for path in sys.path), sitecustomize.NAME)";
        let preload = Preload::make(None).unwrap();
        let theirs = tempfile::tempdir().unwrap();
        let file = theirs.path().join("sitecustomize.py");
        std::fs::write(file, "NAME = 'theirs'").unwrap();
        let python = |flag: &[&str], program: &str, path: Option<&Path>| {
            let set = |name: &str| path.filter(|_| name == "PYTHONPATH").map(Into::into);
            let output = std::process::Command::new("python3")
                .args(flag)
                .args(["-c", program])
                .envs(preload.environment(set))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            String::from_utf8(output.stdout).unwrap()
        };
        let theirs = Some(theirs.path());
        let program = format!("import sitecustomize; {PROGRAM}");
        assert_eq!(python(&[], &program, theirs), "True False theirs\n");
        let without = "import sys; print('hindcast_turns' in sys.modules)";
        assert_eq!(python(&[], without, None), "True\n");
        assert_eq!(python(&["-I"], without, theirs), "False\n");
    }
}
