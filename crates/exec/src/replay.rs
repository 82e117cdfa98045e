//! A replay from end to end: what is compared, started, watched, and what it came to.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hindcast_execlog::Config;
use hindcast_execlog::board::ReportKind;
use hindcast_execlog::config::{BeginsAt, Waiting};
use hindcast_execlog::files::{End, is_first};

use crate::checkpoint::{Checkpoint, Taker};
use crate::error::{ExecError, system};
use crate::gdb::{self, Debugger};
use crate::keeper::Keeper;
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::log::{self, Contents, LogicalTime, Process, Unreadable};
use crate::recording::{LoadedFile, Machine, Recording};
use crate::report::{Report, Stall};
use crate::warning::{Warning, left_out};
use crate::watch::{self, Ended, Outcome, Signals, Supervision};
use crate::{configure, fill, preflight, runtime};

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
    let mut config = replay_config(options, &recording, &contents.unreadable);
    let (begins_at, checkpoint) = beginning(options, &recording, &here);
    config.begins_at = begins_at as u32;
    let mut stage = Stage::new(&options.folder, config, &library, &own)?;
    let mut started = image.clone();
    if let Some(checkpoint) = &checkpoint {
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

/// Where a replay begins. A debugger starts it more than once, so its wrapper looks itself.
fn beginning(
    options: &ReplayOptions,
    recording: &Recording,
    here: &Machine,
) -> (BeginsAt, Option<Checkpoint>) {
    let Some(at) = options.at else {
        return (BeginsAt::Beginning, None);
    };
    if options.debugger.is_some() {
        return (BeginsAt::Nearest, None);
    }
    let before = Checkpoint::before(&options.folder, recording, here, at);
    match before.into_iter().next() {
        Some(checkpoint) => (BeginsAt::Checkpoint, Some(checkpoint)),
        None => (BeginsAt::Beginning, None),
    }
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
    let gdb = gdb::image(debugger, folder, program, room.path())?;
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

fn replay_config(
    options: &ReplayOptions,
    recording: &Recording,
    unreadable: &[Unreadable],
) -> Config {
    let mut config = configure::replaying(recording);
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
