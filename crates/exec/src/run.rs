//! A recording from end to end: what is checked, started, watched, and what it came to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hindcast_execlog::Config;
use hindcast_execlog::config::{Instructions, Order, Policy, Run};
use hindcast_execlog::files::End;
use hindcast_interpose::{Built, InterfaceError};

use crate::beside::{self, Pair};
pub use crate::error::ExecError;
use crate::error::system;
use crate::follow::{Crew, Notice};
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::log::{self, Contents, LogError};
use crate::recording::{self, FolderError, LoadedFile, Recording, Text, make_folder};
use crate::report::Report;
use crate::warning::{Warning, left_out};
use crate::watch::{self, Ended, Signals};
use crate::{configure, preflight, program, runtime};

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
    configure::choose(
        &mut config,
        options.cache,
        options.reproduce.as_deref(),
        options.interfaces.contains(&ChosenInterface::Sqlite3),
    );
    config
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

/// A replay of what is recorded with these options.
fn following_config(options: &RecordOptions, recording: &Recording) -> Config {
    let mut config = configure::replaying(recording);
    config.instructions = options.instructions as u32;
    config
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
