//! Checkpoints of a recording: what its replay was at some moments, so that another one can begin
//! there.
//!
//! ```text
//! DIR/checkpoints/N/about.json   of which process, at which event each of its threads was
//! DIR/checkpoints/N/image        its memory, as hindcast_execlog::checkpoint describes it
//! DIR/checkpoints/N/board        what it had told the launcher
//! ```
//!
//! A replay takes them while it runs ([`Taker`]); they cost the program that was recorded nothing.
//! One is complete when its folder has its name. They are worth nothing without the recording, and
//! can be removed at any time.

mod being_taken;
mod descriptors;
mod elsewhere;
mod maps;
mod take;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::config::descriptors as ours;
use serde::{Deserialize, Serialize};

use crate::launch::{self, Image, Stage};
use crate::log::LogicalTime;
use crate::mapped::Mapped;
use crate::recording::{Machine, Recording, Text};
use crate::report;
pub use being_taken::BeingTaken;
pub use elsewhere::{Elsewhere, Part};
pub use take::NotTaken;
use take::{Own, Taking};

/// Below the folder of a recording.
pub const FOLDER: &str = "checkpoints";
const ABOUT: &str = "about.json";
const IMAGE: &str = "image";
const BOARD: &str = "board";

/// So many are kept at most. Beyond, every second one goes, and the next ones are twice as far
/// apart.
const KEPT_MAX: usize = 32;

/// A checkpoint that is complete.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub folder: PathBuf,
    about: About,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    /// What identifies the runtime, which its memory is full of.
    runtime: String,
    /// Registers have other forms on other processors.
    processor: String,
    kernel: String,
    /// The folder of the process image in the recording.
    process: String,
    threads: Vec<Thread>,
    path: Text,
    arguments: Vec<Text>,
    environment: Vec<Text>,
    /// Of a follower whose leader is elsewhere.
    #[serde(default)]
    elsewhere: Option<Elsewhere>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    number: u64,
    /// Events that it had replayed.
    event: u64,
}

impl Checkpoint {
    /// Those before this moment that can be used here, the nearest first.
    pub fn before(
        folder: &Path,
        recording: &Recording,
        here: &Machine,
        at: LogicalTime,
    ) -> Vec<Checkpoint> {
        let usable = |checkpoint: &Checkpoint| {
            let about = &checkpoint.about;
            about.is_of(recording, here) && about.is_before(at)
        };
        let all = folders(folder).into_values().filter_map(Checkpoint::open);
        let mut found: Vec<_> = all.filter(usable).collect();
        found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.about.place()));
        found
    }

    /// How many events of all threads are behind it.
    pub fn progress(&self) -> u64 {
        self.about.progress()
    }

    pub fn open(folder: PathBuf) -> Option<Checkpoint> {
        let about = std::fs::read(folder.join(ABOUT)).ok()?;
        let about = serde_json::from_slice(&about).ok()?;
        Some(Checkpoint { folder, about })
    }

    /// Its memory, and what was on the board.
    fn content(&self) -> io::Result<(File, Vec<u8>)> {
        let image = File::open(self.folder.join(IMAGE))?;
        Ok((image, std::fs::read(self.folder.join(BOARD))?))
    }

    /// Hands its memory over to a process, and what it had told its launcher to this one.
    pub fn hand_over(&self, stage: &mut Stage) -> io::Result<()> {
        let (image, board) = self.content()?;
        stage.hand(image.into(), ours::CHECKPOINT);
        stage.take_over(board)
    }

    /// As [`Checkpoint::hand_over`], in the process that is to become it.
    pub fn inherit(&self) -> io::Result<()> {
        let (image, board) = self.content()?;
        launch::take_over_inherited(board, &image, ours::CHECKPOINT)
    }

    /// Keeps what another machine has said of a checkpoint of this number. `None`: it says nothing.
    pub fn announced(
        recording: &Path,
        number: u64,
        about: &[u8],
    ) -> io::Result<Option<Checkpoint>> {
        let folder = recording.join(FOLDER).join(number.to_string());
        hindcast_private::folders(&folder)?;
        hindcast_private::write(folder.join(ABOUT), about)?;
        Ok(Checkpoint::open(folder))
    }

    /// What is said of it to another machine: its number, and of what it is.
    pub fn announcement(&self) -> Option<(u64, Vec<u8>)> {
        let number = self.number()?.parse().ok()?;
        Some((number, std::fs::read(self.folder.join(ABOUT)).ok()?))
    }

    fn number(&self) -> Option<&str> {
        self.folder.file_name()?.to_str()
    }

    /// Its other files, by their names in the recording.
    pub fn files(&self) -> io::Result<VecDeque<(String, File)>> {
        let number = self.number().ok_or(io::ErrorKind::NotFound)?;
        let file = |name: &str| {
            let file = File::open(self.folder.join(name))?;
            Ok((format!("{FOLDER}/{number}/{name}"), file))
        };
        [IMAGE, BOARD].into_iter().map(file).collect()
    }

    /// Whether a process of this recording can become it here.
    pub fn is_usable(&self, recording: &Recording, here: &Machine) -> bool {
        self.about.is_of(recording, here)
    }

    /// The folder of its process image in the recording.
    pub fn process(&self) -> &str {
        &self.about.process
    }

    /// What it has beside its memory, if its leader was elsewhere.
    pub fn elsewhere(&self) -> Option<&Elsewhere> {
        self.about.elsewhere.as_ref()
    }

    /// Hands over the descriptors of a follower whose leader is elsewhere, whose log is in `folder`
    /// here.
    pub fn hand_over_descriptors(&self, stage: &mut Stage, folder: &Path) -> io::Result<()> {
        if let Some(elsewhere) = &self.about.elsewhere {
            let folder = folder.canonicalize()?;
            let opened = descriptors::make(&elsewhere.descriptors, &folder)?;
            stage.hand_opened(launch::Opened {
                limits: elsewhere.limits(),
                ..opened
            });
        }
        Ok(())
    }

    /// What is executed so that it becomes this.
    pub fn image(&self, recording: &Recording) -> Image {
        // The program may have written over what it was started with.
        if self.about.process == "p0" && self.about.elsewhere.is_some() {
            return recording.image();
        }
        let texts = |texts: &[Text]| texts.iter().map(|text| text.0.clone()).collect();
        Image {
            path: self.about.path.as_path().into(),
            arguments: texts(&self.about.arguments),
            environment: texts(&self.about.environment),
            folder: None,
            stack_limit: recording.stack_limit,
        }
    }
}

impl About {
    fn is_of(&self, recording: &Recording, here: &Machine) -> bool {
        self.runtime == recording.runtime
            && self.processor == here.processor
            && self.kernel == here.kernel
    }

    fn is_before(&self, at: LogicalTime) -> bool {
        // One that is between the event before and this one is not before all that happens there.
        let is_past = |thread: &Thread| thread.number == at.thread && thread.event >= at.event;
        !self.threads.iter().any(is_past)
    }

    /// Orders checkpoints of a recording. An image that another one executed comes after it, has a
    /// longer name, and counts its events anew.
    fn place(&self) -> (usize, u64) {
        (self.process.len(), self.progress())
    }

    fn progress(&self) -> u64 {
        self.threads.iter().map(|thread| thread.event).sum()
    }
}

/// The folders of a recording's checkpoints, by number: in the order in which they were taken.
fn folders(recording: &Path) -> BTreeMap<u64, PathBuf> {
    let entries = std::fs::read_dir(recording.join(FOLDER));
    let numbered = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    };
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(numbered).collect()
}

/// The number of the next one.
fn next(taken: &BTreeMap<u64, PathBuf>) -> u64 {
    taken.last_key_value().map_or(1, |(last, _)| last + 1)
}

/// Takes checkpoints of a replay now and then.
pub struct Taker<'a> {
    folder: &'a Path,
    recording: &'a Recording,
    machine: &'a Machine,
    every: Duration,
    due: Instant,
    next: u64,
    /// Why there will be no more.
    pub ended: Option<NotTaken>,
}

impl<'a> Taker<'a> {
    pub fn new(
        folder: &'a Path,
        recording: &'a Recording,
        machine: &'a Machine,
        every: Duration,
    ) -> Taker<'a> {
        Taker {
            folder,
            recording,
            machine,
            every,
            due: Instant::now() + every,
            next: next(&folders(folder)),
            ended: None,
        }
    }

    /// Takes one if it is time. For how long it is not again.
    pub fn look(&mut self, process: libc::pid_t, board: &Mapped<Board>) -> Duration {
        if self.ended.is_some() {
            return Duration::MAX;
        }
        let early = self.due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            return early;
        }
        match self.take(process, board) {
            Ok(()) => {}
            Err(why) if why.is_of_this_moment() => {}
            Err(why) => self.ended = Some(why),
        }
        self.due = Instant::now() + self.every;
        self.every
    }

    fn take(&mut self, process: libc::pid_t, board: &Mapped<Board>) -> Result<(), NotTaken> {
        self.make_room()?;
        let taking = Taking {
            process,
            board,
            recording: &self.folder.canonicalize()?,
            is_needed: &AtomicBool::new(false),
        };
        keep(&taking, (self.recording, self.machine), false, self.next)?;
        self.next += 1;
        Ok(())
    }

    /// Removes every second one where there are too many.
    fn make_room(&mut self) -> io::Result<()> {
        let taken = folders(self.folder);
        if taken.len() < KEPT_MAX {
            return Ok(());
        }
        for folder in taken.values().skip(1).step_by(2) {
            std::fs::remove_dir_all(folder)?;
        }
        self.every *= 2;
        Ok(())
    }
}

/// Takes a checkpoint into the folder of this number, which is returned.
fn keep(
    taking: &Taking,
    of: (&Recording, &Machine),
    is_elsewhere: bool,
    number: u64,
) -> Result<PathBuf, NotTaken> {
    let all = taking.recording.join(FOLDER);
    hindcast_private::folders(&all)?;
    let draft = hindcast_private::temporary_folder(&all, "new-")?;
    match fill(taking, of, is_elsewhere, draft.path()) {
        // It is looked at from outside, and ends when it likes.
        Err(NotTaken::System(_)) if !report::is_alive(taking.process as u32) => {
            return Err(NotTaken::Ended);
        }
        filled => filled?,
    }
    let taken = all.join(number.to_string());
    std::fs::rename(draft.keep(), &taken)?;
    Ok(taken)
}

/// Fills the folder of a checkpoint.
fn fill(
    taking: &Taking,
    of: (&Recording, &Machine),
    is_elsewhere: bool,
    draft: &Path,
) -> Result<(), NotTaken> {
    let image = hindcast_private::create(draft.join(IMAGE))?;
    let (about, shown) = take::take(taking, &image, || {
        let mut about = about(taking, of)?;
        let mut own = Own::default();
        if is_elsewhere {
            let (elsewhere, theirs) = elsewhere::look(taking, &about.process)?;
            about.elsewhere = Some(elsewhere);
            own = theirs;
        }
        Ok(((about, taking.board.bytes().to_vec()), own))
    })?;
    hindcast_private::write(draft.join(BOARD), shown)?;
    let text = serde_json::to_vec_pretty(&about).map_err(io::Error::from)?;
    hindcast_private::write(draft.join(ABOUT), text)?;
    Ok(())
}

fn about(taking: &Taking, (recording, machine): (&Recording, &Machine)) -> io::Result<About> {
    let process = taking.process;
    let texts = |name: &str| -> io::Result<Vec<Text>> {
        let bytes = std::fs::read(format!("/proc/{process}/{name}"))?;
        let texts = bytes
            .strip_suffix(b"\0")
            .unwrap_or(&bytes)
            .split(|byte| *byte == 0);
        Ok(texts
            .map(|text| Text(std::ffi::OsString::from_vec(text.to_vec())))
            .collect())
    };
    let (process_folder, threads) = report::progress(taking.board, process as u32)
        .ok_or_else(|| io::Error::other("the process has said nothing yet"))?;
    let own = recording.interfaces.iter();
    let preload = launch::preload(own.filter(|own| own.library.is_some()).count());
    Ok(About {
        runtime: recording.runtime.clone(),
        processor: machine.processor.clone(),
        kernel: machine.kernel.clone(),
        process: process_folder,
        threads: threads
            .into_iter()
            .map(|(number, event)| Thread { number, event })
            .collect(),
        path: Text::from(&std::fs::read_link(format!("/proc/{process}/exe"))?),
        arguments: texts("cmdline")?,
        environment: without(texts("environ")?, &preload),
        elsewhere: None,
    })
}

/// An environment before `preload` was put into it.
fn without(environment: Vec<Text>, preload: &str) -> Vec<Text> {
    let prefix = format!("LD_PRELOAD={preload}");
    let strip = |text: Text| {
        let bytes = text.0.as_encoded_bytes();
        let Some(rest) = bytes.strip_prefix(prefix.as_bytes()) else {
            return Some(text);
        };
        let theirs = rest.strip_prefix(b":")?;
        Some(Text(std::ffi::OsString::from_vec(
            [b"LD_PRELOAD=", theirs].concat(),
        )))
    };
    environment.into_iter().filter_map(strip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(threads: &[(u64, u64)]) -> About {
        let threads = threads.iter();
        About {
            runtime: String::new(),
            processor: String::new(),
            kernel: String::new(),
            process: "p0".into(),
            threads: threads
                .map(|&(number, event)| Thread { number, event })
                .collect(),
            path: Text::from("/bin/true"),
            arguments: Vec::new(),
            environment: Vec::new(),
            elsewhere: None,
        }
    }

    #[test]
    fn a_checkpoint_is_before_an_event_if_another_one_comes_before_that() {
        let checkpoint = about(&[(0, 100), (2, 50)]);
        let is_before = |thread, event| checkpoint.is_before(LogicalTime { thread, event });
        assert!(is_before(0, 101));
        assert!(!is_before(0, 100), "it may be waiting for that");
        assert!(is_before(2, 51));
        assert!(is_before(1, 7), "that thread had not begun");
    }

    #[test]
    fn an_image_comes_after_the_one_that_executed_it() {
        let of_first = about(&[(0, 5000)]);
        let of_second = About {
            process: "p0+".into(),
            ..about(&[(0, 10), (1, 20)])
        };
        assert!(of_first.place() < of_second.place());
    }

    #[test]
    fn the_environment_is_what_it_was_before_the_launcher_changed_it() {
        let texts = |texts: &[&str]| texts.iter().map(Text::from).collect::<Vec<_>>();
        let given = texts(&["A=1", "LD_PRELOAD=/proc/self/fd/960:/their.so"]);
        let before = texts(&["A=1", "LD_PRELOAD=/their.so"]);
        assert_eq!(without(given, "/proc/self/fd/960"), before);
        let given = texts(&["LD_PRELOAD=/proc/self/fd/960", "B=2"]);
        assert_eq!(without(given, "/proc/self/fd/960"), texts(&["B=2"]));
    }
}
