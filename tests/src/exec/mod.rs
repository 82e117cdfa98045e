//! `hindcast exec` from outside: a program is recorded at one place and replayed at another, where
//! nothing that it used is left.
//!
//! ```no_run
//! use hindcast_tests::exec::{Program, Scene};
//!
//! let scene = Scene::new("lua").file("script.lua", "print(os.time())");
//! let recorded = scene.record(&Program::new("lua5.4").args(["script.lua"]));
//! recorded.assert_code(0);
//! scene.assert_replays(&recorded);
//! ```
//!
//! [`Scene::record`] runs the program in a folder of its own. [`Scene::replay`] then takes
//! everything away: the folder is removed, the recording is moved, the replay runs elsewhere, with
//! another environment, without input and, where the kernel allows it, without a network.
//! [`Scene::assert_replays`] does so twice and compares bytes and exit status.
//!
//! The invariant: **nothing waits for ever, and nothing is left running**. Every run has a
//! deadline; one that misses it fails the test with what its threads were doing, and everything
//! that it started is ended by its process id.

pub mod outcome;
pub mod programs;
pub mod recording;
pub mod servers;
pub mod strays;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use outcome::{Outcome, Status};
pub use recording::Recorded;

use crate::{Process, program};

/// Exit statuses of `hindcast exec` itself. Everything else is the program's.
pub const DIVERGED: i32 = 124;
pub const FAILED: i32 = 125;

/// How long a run may take. What is recorded here takes a few seconds at most, on a machine that is
/// busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// What is run: a program, its arguments, what it reads, and options for the recorder.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    options: Vec<OsString>,
    patience: Duration,
}

impl Program {
    /// A file, or a name that is looked for as a shell does.
    ///
    /// # Panics
    /// If there is no such program; says how to install it.
    pub fn new(path: impl AsRef<OsStr>) -> Self {
        let path = path.as_ref();
        assert!(
            Path::new(path).is_absolute() || found_in_path(path).is_some(),
            "there is no {}: install it with scripts/setup test",
            path.display()
        );
        Self {
            path: found_in_path(path).map_or_else(|| path.to_owned(), Into::into),
            arguments: Vec::new(),
            environment: Vec::new(),
            input: Vec::new(),
            options: Vec::new(),
            patience: PATIENCE,
        }
    }

    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// What it reads from standard input.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Options of `hindcast exec --record`.
    #[must_use]
    pub fn options(mut self, options: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Where a program is, as a shell would find it. Servers are in folders that not every user's PATH
/// has.
fn found_in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// One test's folder: what the program works with, what is recorded, and what it wrote.
pub struct Scene {
    name: String,
    /// Removed when the test succeeds.
    folder: Option<tempfile::TempDir>,
    files: Vec<(PathBuf, Vec<u8>)>,
    runs: AtomicU32,
}

impl Scene {
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("hindcast-exec-{name}-"))
            .tempdir()
            .expect("a temporary folder can be made");
        // Some programs give up their rights and must still get here.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), everybody).expect("the folder is ours");
        Self {
            name: name.to_owned(),
            folder: Some(folder),
            files: Vec::new(),
            runs: AtomicU32::new(0),
        }
    }

    /// A file that the program finds in the folder where it is started.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.into(), content.into()));
        self
    }

    pub fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("there until the scene is over")
            .path()
    }

    /// Where the recorded program is started.
    pub fn work(&self) -> PathBuf {
        self.folder().join("work")
    }

    pub fn recording(&self) -> PathBuf {
        self.folder().join("recording")
    }

    fn lay_out(&self) {
        let work = self.work();
        remove(&work);
        fs::create_dir(&work).expect("the scene's folder is ours");
        for (path, content) in &self.files {
            let path = work.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).expect("the scene's folder is ours");
            }
            fs::write(path, content).expect("the scene's folder is ours");
        }
    }

    /// The command, its input, and a name for its output.
    fn start_in(&self, kind: &str, folder: &Path, mut command: Command, input: &[u8]) -> Process {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number}-{kind}");
        command
            .current_dir(folder)
            .env(strays::MARK, self.folder())
            .env_remove("RUST_BACKTRACE");
        let input = if input.is_empty() {
            Stdio::null()
        } else {
            let path = self.folder().join(format!("{name}.in"));
            fs::write(&path, input).expect("the scene's folder is ours");
            File::open(&path).expect("just written").into()
        };
        Process::start_with(&name, command, self.folder(), input)
    }

    fn plain_command(program: &Program) -> Command {
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .envs(program.environment.iter().cloned());
        command
    }

    fn recording_command(&self, program: &Program) -> Command {
        let mut command = Command::new(crate::program("hindcast"));
        command
            .args(["exec", "--record"])
            .arg(self.recording())
            .args(&program.options)
            .arg("--")
            .arg(&program.path)
            .args(&program.arguments)
            .envs(program.environment.iter().cloned());
        command
    }

    /// Without Hindcast: what everybody expects of the program.
    #[track_caller]
    pub fn run(&self, program: &Program) -> Outcome {
        self.lay_out();
        let process = self.start_in(
            "plain",
            &self.work(),
            Self::plain_command(program),
            &program.input,
        );
        Outcome::of(process, program.patience)
    }

    /// Records it from its beginning to its end.
    #[track_caller]
    pub fn record(&self, program: &Program) -> Outcome {
        Outcome::of(self.start_recording(program), program.patience)
    }

    /// Begins to record a server; end it with [`Outcome::of_stopped`].
    pub fn start_recording(&self, program: &Program) -> Process {
        remove(&self.recording());
        self.lay_out();
        self.start_in(
            "record",
            &self.work(),
            self.recording_command(program),
            &program.input,
        )
    }

    /// Replays what was recorded, where nothing of it is left.
    #[track_caller]
    pub fn replay(&self) -> Outcome {
        self.replay_with(&[])
    }

    /// The same with options.
    #[track_caller]
    pub fn replay_with(&self, options: &[&str]) -> Outcome {
        remove(&self.work());
        let elsewhere = self.folder().join("elsewhere");
        fs::create_dir_all(&elsewhere).expect("the scene's folder is ours");
        // The recording is where nobody expected it, too.
        let carried = self.folder().join("carried");
        fs::rename(self.recording(), &carried)
            .unwrap_or_else(|error| panic!("there is no recording of {}: {error}", self.name));
        let mut command = without_network();
        command
            .arg(program("hindcast"))
            .args(["exec", "--replay"])
            .arg(&carried)
            .args(options)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("ELSEWHERE", "another environment, another stack");
        for kept in ["HINDCAST_RUNTIME", "HOME"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        let process = self.start_in("replay", &elsewhere, command, b"");
        let outcome = Outcome::of(process, PATIENCE);
        fs::rename(carried, self.recording()).expect("the scene's folder is ours");
        outcome
    }

    /// Replays it twice: the same bytes, the same end.
    #[track_caller]
    pub fn assert_replays(&self, recorded: &Outcome) {
        for round in ["replay", "second replay"] {
            let replayed = self.replay();
            if let Some(difference) = replayed.difference(recorded) {
                panic!(
                    "the {round} of {} is not what was recorded: {difference}",
                    self.name
                );
            }
        }
    }

    /// The same for a program of several processes that write to one output at the same time: each
    /// line of each is there, but only calls within a process and waiting for another one are
    /// in order.
    #[track_caller]
    pub fn assert_replays_in_any_order_of_lines(&self, recorded: &Outcome) {
        for round in ["replay", "second replay"] {
            if let Some(difference) = self
                .replay()
                .sorted_lines()
                .difference(&recorded.sorted_lines())
            {
                panic!(
                    "the {round} of {} is not what was recorded: {difference}",
                    self.name
                );
            }
        }
    }

    /// The whole life of a program whose unmarked lines are the same in every run: recording does
    /// not disturb it, and replay repeats it.
    #[track_caller]
    pub fn assert_records_and_replays(&self, program: &Program) -> Outcome {
        let plain = self.run(program);
        let recorded = self.record(program);
        if let Some(difference) = recorded.same_lines().difference(&plain.same_lines()) {
            panic!(
                "{} does something else when it is recorded: {difference}",
                self.name
            );
        }
        self.assert_replays(&recorded);
        recorded
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let left = strays::end(self.folder());
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            eprintln!(
                "{}: everything is kept in {}",
                self.name,
                folder.keep().display()
            );
        } else if !left.is_empty() {
            panic!("{} left running: {left:?}", self.name);
        }
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("cannot remove {}: {error}", folder.display())
        }
        _ => {}
    }
}

/// A command that runs its arguments where there is no network, if this kernel and user can make
/// such a place.
fn without_network() -> Command {
    static HOW: OnceLock<Vec<&str>> = OnceLock::new();
    let how = HOW.get_or_init(|| {
        let ways: [&[&str]; 2] = [
            &["unshare", "--net"],
            &["unshare", "--map-root-user", "--net"],
        ];
        let works = |way: &&[&str]| {
            Command::new(way[0])
                .args(&way[1..])
                .arg("true")
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        ways.into_iter().find(works).unwrap_or(&["env"]).to_vec()
    });
    let mut command = Command::new(how[0]);
    command.args(&how[1..]);
    command
}
