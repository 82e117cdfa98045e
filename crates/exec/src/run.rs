//! The two runs from end to end: what is checked, started, watched, and what it came to.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hindcast_execlog::Config;
use hindcast_execlog::board::ReportKind;
use hindcast_execlog::config::{self, BeginsAt, FileId, Instructions, Order, Policy, Run, Waiting};
use hindcast_execlog::files::{End, is_first};
use hindcast_interpose::{Built, InterfaceError};

use crate::beside::{self, Pair};
use crate::checkpoint::{Checkpoint, Taker};
pub use crate::error::ExecError;
use crate::error::system;
use crate::fill;
use crate::follow::{Crew, Notice};
use crate::gdb::{self, Debugger};
use crate::keeper::Keeper;
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::log::{self, Contents, LogError, LogicalTime, Process, Unreadable};
use crate::preflight;
use crate::program;
use crate::recording::{self, FolderError, LoadedFile, Recording, Text, make_folder};
use crate::report::{Report, Stall};
use crate::runtime;
use crate::watch::{self, Ended, Outcome, Signals, Supervision};

/// What can be asked of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Must not exist yet, or be empty.
    pub folder: PathBuf,
    /// A program, by path or by name in `PATH`, and its arguments.
    pub command: Vec<OsString>,
    pub order: Order,
    pub policy: Policy,
    pub instructions: Instructions,
    /// Statuses that repeat are not logged again.
    pub cache: bool,
    /// One thread runs at a time, and threads change at calls.
    pub one_at_a_time: bool,
    /// Files below this folder are read again in replay instead of logged.
    pub reproduce: Option<PathBuf>,
    pub interfaces: Vec<ChosenInterface>,
    /// Copies of the program that replay the recording while it is written.
    pub followers: u32,
    /// Another process reads the large files that the program reads, and puts them into the log.
    pub is_written_beside: bool,
    /// Whether the recording is wanted afterwards. If not, what was replayed is forgotten.
    pub is_kept: bool,
}

/// A higher interface at which the program is cut, beside libc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChosenInterface {
    Sqlite3,
    /// A library that was made from an annotated header.
    Own {
        name: String,
        library: Vec<u8>,
        /// Its functions, in the order of their numbers.
        functions: Vec<String>,
    },
}

impl ChosenInterface {
    /// Reads an annotated header, generates its stubs and compiles them.
    pub fn from_header(header: &Path) -> Result<ChosenInterface, InterfaceError> {
        Self::built(|folder| hindcast_interpose::build(header, folder))
    }

    /// MPI, as it is installed here.
    pub fn mpi() -> Result<ChosenInterface, InterfaceError> {
        Self::built(hindcast_interpose::build_mpi)
    }

    fn built(
        build: impl FnOnce(&Path) -> Result<Built, InterfaceError>,
    ) -> Result<ChosenInterface, InterfaceError> {
        let unwritable = |source| InterfaceError::Write {
            path: std::env::temp_dir(),
            source,
        };
        let folder =
            hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-interface-")
                .map_err(unwritable)?;
        let built = build(folder.path())?;
        let library = std::fs::read(&built.library).map_err(|source| InterfaceError::Read {
            path: built.library.clone(),
            source,
        })?;
        Ok(ChosenInterface::Own {
            name: built.interface.name,
            library,
            functions: built.functions,
        })
    }

    /// The functions of an interface of the user's own.
    pub fn functions(&self) -> &[String] {
        match self {
            ChosenInterface::Sqlite3 => &[],
            ChosenInterface::Own { functions, .. } => functions,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            ChosenInterface::Sqlite3 => "sqlite3",
            ChosenInterface::Own { name, .. } => name,
        }
    }
}

/// What can be asked of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    pub folder: PathBuf,
    pub waiting: Waiting,
    /// After how long without any progress it is ended.
    pub stall_timeout: Duration,
    pub debugger: Option<Debugger>,
    /// Only what comes after this moment is wanted: the replay begins at the nearest checkpoint
    /// before it.
    pub at: Option<LogicalTime>,
    /// How far apart checkpoints are taken, if they are.
    pub checkpoint_every: Option<Duration>,
}

/// What a recording came to.
pub struct Recorded {
    pub ended: Ended,
    /// The policy ended the program.
    pub report: Option<Report>,
    /// What a person should know: where recording ended early, and what could not be recorded.
    pub warnings: Vec<Warning>,
    /// How long after the program the log was complete, where a follower writes it.
    pub completed_after: Option<Duration>,
}

/// Something that is less in a recording than was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The library was loaded into the program and could not even begin.
    NothingRecorded,
    /// Recording ended before the process did.
    Ended {
        process: String,
        events: u64,
        reason: String,
    },
    /// The runtime noted something.
    Noted {
        process: String,
        text: String,
    },
    /// Left running by the program, and still being recorded.
    StillRunning {
        process: String,
        pid: u32,
    },
    Unreadable(String),
    /// A replay begins at a checkpoint, at which its threads had replayed so many events.
    BeginsAt {
        checkpoint: PathBuf,
        events: u64,
    },
    /// There are no checkpoints of a replay from some moment on.
    NoCheckpoints(String),
    /// The follower that writes the log ended before the program.
    FollowerEnded(Ended),
    /// It has not done all, and does it while the user does something else.
    FollowerGoesOn,
    /// A process's log refers to files still.
    Incomplete {
        process: String,
        why: String,
    },
}

/// Records a program. Its output is its own; its end is passed on. `say` is told what happens to
/// followers.
pub fn record(options: &RecordOptions, say: &mut dyn FnMut(Notice)) -> Result<Recorded, ExecError> {
    let Prepared {
        library,
        image,
        mut recording,
        own,
        config,
    } = prepare(options)?;
    let signals = Signals::take_over().map_err(system("signals cannot be taken over"))?;
    let mut warnings = Vec::new();
    let mut completed_after = None;
    let (ended, of_leader, report) = if options.is_written_beside {
        let pair = Pair::new(&options.folder, config, &library, &own)?;
        let outcome = pair.run(&image, &signals)?;
        completed_after = Some(outcome.completed_after);
        warnings = of_follower(&outcome);
        (outcome.ended, outcome.ended, outcome.report)
    } else if options.followers == 0 {
        let stage = Stage::new(&options.folder, config, &library, &own)?;
        let pid = launch::start(&image, &stage, Manner::Free)?;
        let ended = watch::accompany(pid, &signals);
        (ended, ended, Report::take(&stage.board, &image.path))
    } else {
        let configs = (config, following_config(options, &recording));
        let followers = (options.followers, options.is_kept);
        let crew = Crew::new(&options.folder, configs, &library, &own, followers)?;
        crew.run(&image, &signals, say)?
    };

    recording.ended = Some(of_leader);
    warnings.extend(conclude(&options.folder));
    if let Err(error) = recording.save(&options.folder) {
        warnings.push(Warning::Unreadable(error.to_string()));
    }
    Ok(Recorded {
        ended,
        report,
        warnings,
        completed_after,
    })
}

/// What there is to say about a follower that writes the log.
fn of_follower(outcome: &beside::Outcome) -> Vec<Warning> {
    let incomplete = outcome.incomplete.iter();
    let incomplete = incomplete.map(|(process, why)| Warning::Incomplete {
        process: process.clone(),
        why: why.to_string(),
    });
    let ended = outcome.follower.map(Warning::FollowerEnded);
    let goes_on = outcome.goes_on.then_some(Warning::FollowerGoesOn);
    ended.into_iter().chain(goes_on).chain(incomplete).collect()
}

/// A recording that is about to begin: its folder is there, and says what will run.
pub(crate) struct Prepared {
    pub library: std::borrow::Cow<'static, [u8]>,
    pub image: Image,
    pub recording: Recording,
    pub own: Vec<Interface>,
    pub config: Config,
}

/// Everything that is known before the program runs.
pub(crate) fn prepare(options: &RecordOptions) -> Result<Prepared, ExecError> {
    let library = runtime::library()?;
    preflight::machine()?;
    let folder = std::env::current_dir().map_err(system("the current folder is gone"))?;
    let program = program::find(
        &options.command,
        std::env::var_os("PATH").as_deref(),
        &folder,
    )?;
    let image = Image {
        path: program.path,
        arguments: program.arguments,
        environment: environment(),
        folder: None,
        stack_limit: launch::stack_limit(),
    };
    let files = preflight::program(&image)?;
    make_folder(&options.folder)?;
    let mut recording = describe(options, &library, &image, &folder, files);
    let own = keep_interfaces(options, &mut recording)?;
    recording.save(&options.folder)?;
    Ok(Prepared {
        library,
        image,
        recording,
        own,
        config: recording_config(options),
    })
}

fn describe(
    options: &RecordOptions,
    library: &[u8],
    image: &Image,
    folder: &Path,
    files: Vec<LoadedFile>,
) -> Recording {
    let texts = |texts: &[OsString]| texts.iter().map(Text::from).collect();
    Recording {
        hindcast: env!("CARGO_PKG_VERSION").into(),
        log_version: hindcast_execlog::VERSION,
        functions: format!("{:016x}", log::FUNCTION_TABLE),
        runtime: runtime::identity(library),
        path: Text::from(&image.path),
        arguments: texts(&image.arguments),
        environment: texts(&image.environment),
        folder: Text::from(folder),
        stack_limit: image.stack_limit,
        order: options.order,
        policy: options.policy,
        interfaces: Vec::new(),
        cache: options.cache,
        one_at_a_time: options.one_at_a_time,
        reproduce: options
            .reproduce
            .as_ref()
            .map(|path| Text::from(&folder.join(path))),
        files,
        machine: preflight::here(),
        began: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        ended: None,
    }
}

/// Puts libraries of the user's own interfaces into the recording: replay needs the same.
fn keep_interfaces(
    options: &RecordOptions,
    recording: &mut Recording,
) -> Result<Vec<Interface>, ExecError> {
    let mut own = Vec::new();
    for interface in &options.interfaces {
        let name = interface.name().to_owned();
        let (mut file, mut names) = (None, Vec::new());
        if let ChosenInterface::Own {
            library, functions, ..
        } = interface
        {
            let relative = format!("interface-{name}.so");
            let path = options.folder.join(&relative);
            hindcast_private::write(&path, library)
                .map_err(|source| FolderError::Write { path, source })?;
            own.push(Interface {
                name: name.clone(),
                library: library.clone(),
            });
            (file, names) = (Some(relative), functions.clone());
        }
        recording.interfaces.push(recording::Interface {
            name,
            library: file,
            functions: names,
        });
    }
    Ok(own)
}

fn recording_config(options: &RecordOptions) -> Config {
    let mut config = Config::new(Run::Record);
    config.order = options.order as u32;
    config.policy = options.policy as u32;
    config.instructions = options.instructions as u32;
    config.one_at_a_time = options.one_at_a_time.into();
    choose(
        &mut config,
        options.cache,
        options.reproduce.as_deref(),
        options.interfaces.contains(&ChosenInterface::Sqlite3),
    );
    config
}

/// The part of the configuration that is the same in both runs.
fn choose(made: &mut Config, cache: bool, reproduce: Option<&Path>, sqlite3: bool) {
    if cache {
        made.optimizations |= config::optimizations::CACHE;
    }
    if let Some(path) = reproduce {
        made.optimizations |= config::optimizations::REPRODUCE;
        made.reproduce.set(&path.to_string_lossy());
    }
    if sqlite3 {
        made.interfaces |= config::interfaces::SQLITE3;
    }
    made.stdout = file_id(1);
    made.stderr = file_id(2);
}

/// What there is to say about a recording before it is replayed: how exact that is, and which
/// processes are missing.
fn beforehand(contents: &Contents) -> Vec<Warning> {
    let of = |process: &Process| {
        let lines = process.header.warnings.as_str().lines();
        let inexact = lines.filter(|line| line.contains(hindcast_execlog::files::INEXACT));
        inexact
            .map(|text| Warning::Noted {
                process: process.name.clone(),
                text: text.to_owned(),
            })
            .collect::<Vec<_>>()
    };
    let exactness = contents.processes.iter().flat_map(of);
    exactness.chain(left_out(&contents.unreadable)).collect()
}

fn left_out(unreadable: &[Unreadable]) -> impl Iterator<Item = Warning> {
    let said = |Unreadable { process, why }: &Unreadable| {
        Warning::Unreadable(format!(
            "{process} is left out, with what it started: {why}"
        ))
    };
    unreadable.iter().map(said)
}

/// Looks at what was recorded, and gives back the room behind the logs of what has ended.
fn conclude(folder: &Path) -> Vec<Warning> {
    let Contents {
        processes,
        unreadable,
    } = match log::contents(folder) {
        Ok(contents) => contents,
        Err(LogError::NoProcess(_)) => return vec![Warning::NothingRecorded],
        Err(error) => return vec![Warning::Unreadable(error.to_string())],
    };
    let mut warnings: Vec<Warning> = left_out(&unreadable).collect();
    for process in &processes {
        let name = || process.name.clone();
        for text in process.header.warnings.as_str().lines() {
            warnings.push(Warning::Noted {
                process: name(),
                text: text.to_owned(),
            });
        }
        match process.header.end().0 {
            End::Detached => warnings.push(Warning::Ended {
                process: name(),
                events: process
                    .threads
                    .iter()
                    .map(|log| log.events().count() as u64)
                    .sum(),
                reason: process.header.reason.as_str().to_owned(),
            }),
            End::Running if process.is_alive() => {
                warnings.push(Warning::StillRunning {
                    process: name(),
                    pid: process.header.pid,
                });
                continue;
            }
            _ => {}
        }
        for log in &process.threads {
            // Only saves room.
            let _ = log.trim();
        }
    }
    warnings
}

/// What a replay came to.
#[derive(Debug)]
pub enum Replayed {
    /// Everything that was recorded was replayed, and the program ended as it did then. What there
    /// is to know about other processes of it comes along.
    Ended { ended: Ended, notes: Vec<Report> },
    /// Everything that was recorded was replayed; the recording ends before the program did.
    RecordingEnds {
        report: Report,
        as_then: Option<Ended>,
    },
    /// It did something else than was recorded, or the recording cannot be used.
    Reported(Report),
    /// Nothing moved any more.
    Stalled(Stall),
    /// The user ended it.
    Interrupted(i32),
    /// The debugger was left.
    Debugged { code: u8, report: Option<Report> },
}

/// What a recording of this machine's, or of one that is like it, is replayed with.
pub(crate) struct Replayable {
    pub library: std::borrow::Cow<'static, [u8]>,
    pub image: Image,
    pub recording: Recording,
    pub own: Vec<Interface>,
}

/// Refuses what cannot be replayed here.
pub(crate) fn replayable(folder: &Path) -> Result<Replayable, ExecError> {
    let library = runtime::library()?;
    let recording = Recording::open(folder)?;
    preflight::machine()?;
    let own = runtime::identity(&library);
    if recording.runtime != own {
        return Err(ExecError::OtherRuntime {
            by: recording.hindcast,
            recorded: recording.runtime,
            own,
        });
    }
    let image = recording.image();
    compare_files(&recording, &image)?;
    let own = recording.own_interfaces(folder)?;
    Ok(Replayable {
        library,
        image,
        recording,
        own,
    })
}

/// Replays a recording. Nothing of it is left running. `say` is told before it begins what there is
/// to know about the recording.
pub fn replay(
    options: &ReplayOptions,
    say: &mut dyn FnMut(&[Warning]),
) -> Result<Replayed, ExecError> {
    let Replayable {
        library,
        image,
        recording,
        own,
    } = replayable(&options.folder)?;
    if fill::is_incomplete(&options.folder) {
        fill::complete(&options.folder).map_err(ExecError::incomplete)?;
    }
    // A library from elsewhere has a table of its own, and looks at the logs itself.
    let table = (!runtime::is_overridden()).then_some(log::FUNCTION_TABLE);
    let contents = log::check(&options.folder, table)?;
    say(&beforehand(&contents));

    let here = preflight::here();
    let begins_at = options
        .at
        .filter(|_| options.debugger.is_none())
        .and_then(|at| Checkpoint::before(&options.folder, &recording, &here, at));
    let mut config = replay_config(options, &recording, &contents.unreadable);
    config.begins_at = match (&begins_at, options.at) {
        (Some(_), _) => BeginsAt::Checkpoint,
        // The wrapper that becomes the program looks for it.
        (None, Some(_)) if options.debugger.is_some() => BeginsAt::Nearest,
        (None, _) => BeginsAt::Beginning,
    } as u32;
    let mut stage = Stage::new(&options.folder, config, &library, &own)?;
    let mut started = image.clone();
    if let Some(checkpoint) = &begins_at {
        say(&[Warning::BeginsAt {
            checkpoint: checkpoint.folder.clone(),
            events: checkpoint.progress(),
        }]);
        checkpoint
            .hand_over(&mut stage)
            .map_err(system("the checkpoint cannot be read"))?;
        started = checkpoint.image(&recording);
    }
    let _keeper = stage
        .board_file()
        .map(|board| Keeper::start(board, || ()))
        .transpose()
        .map_err(system("no process to end the replay with hindcast"))?;
    watch::adopt_orphans().map_err(system("orphans cannot be adopted"))?;
    let signals = Signals::take_over().map_err(system("signals cannot be taken over"))?;
    if let Some(debugger) = &options.debugger {
        return debug(debugger, &options.folder, &image, &stage, &signals);
    }
    let pid = launch::start(&started, &stage, Manner::Bound)?;
    let mut supervision = Supervision::new(&stage.board, &image.path, options.stall_timeout);
    let mut taker = options
        .checkpoint_every
        .map(|every| Taker::new(&options.folder, &recording, &here, every));
    let look = || match &mut taker {
        Some(taker) => taker.look(pid, &stage.board),
        None => Duration::MAX,
    };
    let outcome = watch::supervise(pid, &signals, &mut supervision, look);
    if let Some(why) = taker.and_then(|taker| taker.ended) {
        say(&[Warning::NoCheckpoints(why.to_string())]);
    }
    let ends = supervision.ends;
    Ok(match outcome {
        Outcome::Reported(report) => Replayed::Reported(report),
        Outcome::Stalled(stall) => Replayed::Stalled(stall),
        Outcome::Interrupted(signal) => Replayed::Interrupted(signal),
        Outcome::Ended(ended) => ended_by_itself(ended, ends, &contents.processes, &recording),
    })
}

/// The debugger does everything itself.
fn debug(
    debugger: &Debugger,
    folder: &Path,
    program: &Image,
    stage: &Stage,
    signals: &Signals,
) -> Result<Replayed, ExecError> {
    let room = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-gdb-")
        .map_err(system("no room for the commands for gdb"))?;
    let gdb = gdb::image(debugger, folder, program, &room.path().join("commands"))?;
    let pid = launch::start(&gdb, stage, Manner::Debugger)?;
    let ended = watch::accompany(pid, signals);
    watch::end_all();
    Ok(Replayed::Debugged {
        code: ended.code(),
        report: Report::take(&stage.board, &program.path),
    })
}

/// Every process has ended; `ends` are those whose recordings ended before.
fn ended_by_itself(
    ended: Ended,
    mut ends: Vec<Report>,
    processes: &[Process],
    recording: &Recording,
) -> Replayed {
    let recorded = |name: &str| processes.iter().find(|process| process.name == name);
    // Where the process ended as it should, a thread of it that was found at the end of its log is
    // a part of that.
    ends.retain(|report| {
        recorded(&report.process).is_none_or(|process| match process.header.end() {
            (End::Exited, code) => !is_first(&report.process) || ended.code() != code as u8,
            (End::Signalled, signal) => {
                !is_first(&report.process) || ended != Ended::Signalled(signal as i32)
            }
            (End::Executed, _) => false,
            (End::Running | End::Detached, _) => true,
        })
    });
    match ends.iter().position(|report| is_first(&report.process)) {
        Some(at) => {
            let report = ends.swap_remove(at);
            let killed = recorded(&report.process).is_some_and(Process::was_killed);
            let ended = recording.ended.unwrap_or(Ended::Signalled(libc::SIGKILL));
            let as_then = killed.then_some(ended);
            Replayed::RecordingEnds { report, as_then }
        }
        // A process that another one killed is a part of what happened; one that left recording is
        // worth a word.
        None => {
            ends.retain(|report| {
                recorded(&report.process)
                    .is_some_and(|process| process.header.end().0 == End::Detached)
            });
            // A child that executed what cannot be recorded ended without a word in replay: its
            // parent's log has how it ended.
            let silent = processes.iter().filter(|process| {
                process.header.end().0 == End::Detached
                    && ends.iter().all(|report| report.process != process.name)
            });
            let silent: Vec<Report> = silent.map(left_recording).collect();
            ends.extend(silent);
            Replayed::Ended { ended, notes: ends }
        }
    }
}

/// As the process itself would have reported that it went on without being recorded.
fn left_recording(process: &Process) -> Report {
    let events = process
        .threads
        .first()
        .map_or(0, |log| log.events().count());
    Report {
        kind: ReportKind::RecordingEnds,
        process: process.name.clone(),
        pid: process.header.pid,
        thread: 0,
        event: events as u64,
        expected: process.header.reason.as_str().to_owned(),
        actual: "what was not recorded".to_owned(),
        site: Vec::new(),
        hint: String::new(),
    }
}

/// A replay of what is recorded with these options.
fn following_config(options: &RecordOptions, recording: &Recording) -> Config {
    let mut config = replaying_config(recording);
    config.instructions = options.instructions as u32;
    config
}

fn replay_config(
    options: &ReplayOptions,
    recording: &Recording,
    unreadable: &[Unreadable],
) -> Config {
    let mut config = replaying_config(recording);
    for Unreadable { process, .. } in unreadable {
        let _ = write!(config.left_out, "{process} ");
    }
    config.waiting = options.waiting as u32;
    if let Some(at) = options
        .debugger
        .as_ref()
        .and_then(|debugger| debugger.break_at)
    {
        (config.break_thread, config.break_event) = (at.thread, at.event);
    }
    config
}

pub(crate) fn replaying_config(recording: &Recording) -> Config {
    let mut config = Config::new(Run::Replay);
    config.order = recording.order as u32;
    config.policy = recording.policy as u32;
    config.one_at_a_time = recording.one_at_a_time.into();
    let sqlite3 = recording
        .interfaces
        .iter()
        .any(|interface| interface.name == "sqlite3" && interface.library.is_none());
    choose(
        &mut config,
        recording.cache,
        recording.reproduce.as_ref().map(Text::as_path),
        sqlite3,
    );
    config
}

/// Refuses another program, loader or library than the recorded.
fn compare_files(recording: &Recording, image: &Image) -> Result<(), ExecError> {
    if let Some(program) = recording.files.first() {
        same(program)?;
    }
    // Before the loader is asked, it must be the right one itself.
    let Some(loader) = recording.files.get(1) else {
        return Ok(());
    };
    same(loader)?;
    let found = preflight::files(image, loader.path.as_path())?;
    for file in &recording.files {
        match found.iter().find(|other| other.path == file.path) {
            Some(other) if other.identity == file.identity => {}
            Some(other) => return Err(other_file(file, other.identity.clone())),
            None => {
                let path = file.path.as_path().into();
                return Err(ExecError::FileGone {
                    path,
                    recorded: file.identity.clone(),
                    source: None,
                });
            }
        }
    }
    match found
        .iter()
        .find(|file| !recording.files.iter().any(|other| other.path == file.path))
    {
        Some(added) => Err(ExecError::FileAdded(added.path.as_path().into())),
        None => Ok(()),
    }
}

fn same(file: &LoadedFile) -> Result<(), ExecError> {
    match crate::elf::identity(file.path.as_path()) {
        Ok(found) if found == file.identity => Ok(()),
        Ok(found) => Err(other_file(file, found)),
        Err(error) => {
            let path = file.path.as_path().into();
            Err(ExecError::FileGone {
                path,
                recorded: file.identity.clone(),
                source: Some(error),
            })
        }
    }
}

fn other_file(file: &LoadedFile, found: String) -> ExecError {
    ExecError::OtherFile {
        path: file.path.as_path().into(),
        recorded: file.identity.clone(),
        found,
    }
}

/// The environment of this process, as it is given to the program.
pub(crate) fn environment() -> Vec<OsString> {
    let mut made = Vec::new();
    for (name, value) in std::env::vars_os() {
        if name == runtime::OVERRIDE {
            continue;
        }
        let mut variable = name;
        variable.push("=");
        variable.push(value);
        made.push(variable);
    }
    made
}

fn file_id(descriptor: i32) -> FileId {
    // SAFETY: `stat` is plain data and is written by the call.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        match libc::fstat(descriptor, &mut status) {
            0 => FileId {
                device: status.st_dev,
                inode: status.st_ino,
            },
            _ => FileId::default(),
        }
    }
}
