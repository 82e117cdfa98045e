//! Reading what the runtime wrote: the processes of a recording, their threads, and their events.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_execlog::config::descriptors;
use hindcast_execlog::event::{FUNCTIONS, USER_FUNCTIONS};
use hindcast_execlog::files::{End, is_first};
use hindcast_execlog::{Event, Events, Kind, LogHeader, ProcessHeader, VERSION};
use memmap2::{Mmap, MmapOptions};

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// A moment of a thread: just before it replays this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalTime {
    pub thread: u64,
    pub event: u64,
}

/// A process image of a recording.
pub struct Process {
    /// Its folder's name: `p0`, `p0.2`, `p0.2+`.
    pub name: String,
    pub header: Box<ProcessHeader>,
    pub threads: Vec<Log>,
    recording: PathBuf,
}

/// The log of a thread.
pub struct Log {
    pub thread: u32,
    pub path: PathBuf,
    /// Which table of functions it was written with.
    pub functions: u64,
    bytes: Mmap,
    /// Bytes behind the header that are complete.
    committed: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} holds no process: nothing was recorded", .0.display())]
    NoProcess(PathBuf),
    #[error("{} is not the file of a process, or is damaged", .0.display())]
    NotAProcess(PathBuf),
    #[error("{} is missing", .0.display())]
    NoThread(PathBuf),
    #[error("{} is not the log of a thread, or is damaged at its beginning", .0.display())]
    NotALog(PathBuf),
    #[error("{} is of version {recorded}, this hindcast reads version {VERSION}", path.display())]
    Version { path: PathBuf, recorded: u32 },
    #[error("{} was written with another table of functions ({recorded:016x}, this hindcast has {own:016x})", path.display())]
    Functions {
        path: PathBuf,
        recorded: u64,
        own: u64,
    },
    #[error("{} is cut off: it had {complete} bytes of complete events and has {left}", path.display())]
    CutOff {
        path: PathBuf,
        complete: u64,
        left: u64,
    },
    #[error("{} is empty: the thread has no events", .0.display())]
    Empty(PathBuf),
    #[error("{} is damaged {offset} bytes behind its beginning, after {events} events", path.display())]
    Damaged {
        path: PathBuf,
        offset: usize,
        events: u64,
    },
}

impl LogError {
    pub fn hint(&self) -> &'static str {
        match self {
            LogError::Read { .. } => "see whether the recording belongs to you",
            LogError::NoProcess(_) => {
                "the program ended before its first instruction, or the disk was full: record again"
            }
            LogError::Version { .. } | LogError::Functions { .. } => {
                "replay with the hindcast that recorded, or record again"
            }
            LogError::NotAProcess(_)
            | LogError::NoThread(_)
            | LogError::NotALog(_)
            | LogError::CutOff { .. } => {
                "copy the whole recording again from where it was made, or record again"
            }
            LogError::Empty(_) | LogError::Damaged { .. } => {
                "copy the recording again from where it was made, or record again"
            }
        }
    }
}

/// The processes of a recording.
pub struct Contents {
    /// Parents before their children.
    pub processes: Vec<Process>,
    /// Children that cannot be read: a replay goes on without them.
    pub unreadable: Vec<Unreadable>,
}

/// A child of which a replay has nothing, nor of what it started.
pub struct Unreadable {
    pub process: String,
    pub why: LogError,
}

/// What can be read of a recording. The first process, in each of its images, must be readable.
pub fn contents(recording: &Path) -> Result<Contents, LogError> {
    let read = |source| LogError::Read {
        path: recording.into(),
        source,
    };
    let names = processes(recording).map_err(read)?;
    if names.first().is_none_or(|name| name != "p0") {
        return Err(LogError::NoProcess(recording.into()));
    }
    let mut contents = Contents {
        processes: Vec::new(),
        unreadable: Vec::new(),
    };
    for name in names {
        match Process::open(recording, name.clone()) {
            Ok(process) => contents.processes.push(process),
            Err(why) => contents.leave_out(name, why)?,
        }
    }
    Ok(contents)
}

impl Contents {
    /// Goes on without a child that is damaged. Other reasons, such as another version, hold for
    /// the whole recording.
    fn leave_out(&mut self, process: String, why: LogError) -> Result<(), LogError> {
        let is_whole = matches!(
            why,
            LogError::NoProcess(_) | LogError::Version { .. } | LogError::Functions { .. }
        );
        if is_first(&process) || is_whole {
            return Err(why);
        }
        self.unreadable.push(Unreadable { process, why });
        Ok(())
    }

    fn check(&mut self, own_functions: Option<u64>) -> Result<(), LogError> {
        for process in std::mem::take(&mut self.processes) {
            match process.check(own_functions) {
                Ok(()) => self.processes.push(process),
                Err(why) => self.leave_out(process.name, why)?,
            }
        }
        Ok(())
    }
}

/// `p0.2+` as `[0, 2, -1]`: orders folders as families.
fn lineage(name: &str) -> Option<Vec<i64>> {
    let mut steps = Vec::new();
    let mut rest = name.strip_prefix('p')?;
    loop {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        steps.push(rest[..end].parse().ok()?);
        rest = &rest[end..];
        while let Some(after) = rest.strip_prefix('+') {
            steps.push(-1);
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None => return rest.is_empty().then_some(steps),
        }
    }
}

/// What a process says of itself, as far as that is there and of this version.
pub fn header(recording: &Path, name: &str) -> Option<Box<ProcessHeader>> {
    let bytes = std::fs::read(recording.join(name).join("process")).ok()?;
    ProcessHeader::from_bytes(&bytes)
}

impl Process {
    fn open(recording: &Path, name: String) -> Result<Process, LogError> {
        let folder = recording.join(&name);
        let path = folder.join("process");
        let bytes = std::fs::read(&path).map_err(|source| LogError::Read {
            path: path.clone(),
            source,
        })?;
        let Some(header) = ProcessHeader::from_bytes(&bytes) else {
            let recorded = bytes
                .get(8..12)
                .and_then(|version| Some(u32::from_ne_bytes(version.try_into().ok()?)));
            return Err(match recorded {
                Some(recorded)
                    if bytes.starts_with(&ProcessHeader::MAGIC) && recorded != VERSION =>
                {
                    LogError::Version { path, recorded }
                }
                _ => LogError::NotAProcess(path),
            });
        };
        let mut threads = Vec::new();
        // The child of a fork has the one thread that forked, and numbers what it creates after all
        // of its parent's.
        let forked = name.contains('.') && !name.ends_with('+');
        let count = header.threads.load(Ordering::Relaxed);
        for thread in 0..count {
            match Log::open(&folder, thread) {
                Err(LogError::NoThread(_))
                    if forked && (thread + 1 < count || !threads.is_empty()) => {}
                // The number is counted when the log is made; a kill may come between.
                Err(LogError::NoThread(_)) if thread > 0 && header.end().0 != End::Exited => {}
                log => threads.push(log?),
            }
        }
        Ok(Process {
            name,
            header,
            threads,
            recording: recording.into(),
        })
    }

    fn check(&self, own_functions: Option<u64>) -> Result<(), LogError> {
        for log in &self.threads {
            if let Some(own) = own_functions
                && own != log.functions
            {
                return Err(LogError::Functions {
                    path: log.path.clone(),
                    recorded: log.functions,
                    own,
                });
            }
            log.check()?;
        }
        Ok(())
    }

    /// Whether the process did not get to say how it ended, and is not there any more.
    pub fn was_killed(&self) -> bool {
        self.header.end().0 == End::Running && !self.is_alive()
    }

    /// Whether the process still runs: one that has its number and this recording's folder.
    pub fn is_alive(&self) -> bool {
        is_alive(&self.recording, self.header.pid)
    }
}

/// Whether there is a process with this number that has this recording's folder.
pub fn is_alive(recording: &Path, pid: u32) -> bool {
    let link = format!("/proc/{pid}/fd/{}", descriptors::FOLDER);
    match std::fs::read_link(link) {
        Ok(open) => recording.canonicalize().is_ok_and(|own| open == own),
        // A process that does not let others look at it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // SAFETY: numbers only; signal zero is none.
            unsafe { libc::kill(pid as libc::pid_t, 0) == 0 }
        }
        Err(_) => false,
    }
}

/// The folders of processes in a recording.
pub fn processes(recording: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(recording)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().filter(|name| lineage(name).is_some()) {
            names.push(name.to_owned());
        }
    }
    names.sort_by_key(|name| lineage(name));
    Ok(names)
}

impl Log {
    pub fn open(folder: &Path, thread: u32) -> Result<Log, LogError> {
        let path = folder.join(format!("t{thread}"));
        let bytes = match map(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LogError::NoThread(path));
            }
            Err(source) => return Err(LogError::Read { path, source }),
        };
        let field = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (Some(second), Some(functions), Some(complete)) = (field(8), field(16), field(24))
        else {
            return Err(LogError::NotALog(path));
        };
        let (recorded, number) = (second as u32, (second >> 32) as u32);
        if !bytes.starts_with(&LogHeader::MAGIC) {
            return Err(LogError::NotALog(path));
        }
        if recorded != VERSION {
            return Err(LogError::Version { path, recorded });
        }
        if number != thread || bytes.len() < LogHeader::BYTES {
            return Err(LogError::NotALog(path));
        }
        let left = (bytes.len() - LogHeader::BYTES) as u64;
        if complete > left {
            return Err(LogError::CutOff {
                path,
                complete,
                left,
            });
        }
        Ok(Log {
            thread,
            path,
            functions,
            bytes,
            committed: complete as usize,
        })
    }

    /// Bytes of complete events.
    pub fn len(&self) -> usize {
        self.committed
    }

    pub fn is_empty(&self) -> bool {
        self.committed == 0
    }

    /// In the order in which they happened. Ends early where the log is damaged; see
    /// [`Log::check`].
    pub fn events(&self) -> Events<'_> {
        Events::new(&self.bytes[LogHeader::BYTES..LogHeader::BYTES + self.committed])
    }

    /// Walks over all events: whether they fill the log.
    pub fn check(&self) -> Result<(), LogError> {
        let (mut end, mut events) = (0, 0);
        for event in self.events() {
            (end, events) = (event.end, events + 1);
        }
        match end == self.committed {
            true => Ok(()),
            false => Err(LogError::Damaged {
                path: self.path.clone(),
                offset: LogHeader::BYTES + end,
                events,
            }),
        }
    }

    /// Gives back the room that was made beforehand behind the last event. For logs that are
    /// complete.
    pub fn trim(&self) -> io::Result<()> {
        hindcast_private::options()
            .write(true)
            .open(&self.path)?
            .set_len((LogHeader::BYTES + self.committed) as u64)
    }
}

/// Whether everything that replay needs is there and of this version.
pub fn check(recording: &Path, own_functions: Option<u64>) -> Result<Contents, LogError> {
    let mut contents = contents(recording)?;
    contents.check(own_functions)?;
    let first = contents.processes.first();
    match first.and_then(|process| process.threads.first()) {
        Some(log) if log.is_empty() => Err(LogError::Empty(log.path.clone())),
        Some(_) => Ok(contents),
        None => Err(LogError::NoThread(recording.join("p0/t0"))),
    }
}

/// What the events of a recording are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Functions of the user's own interfaces, from the number [`USER_FUNCTIONS`] on.
    pub own: Vec<String>,
}

impl Names {
    pub fn of(&self, kind: u16) -> &str {
        match kind.checked_sub(USER_FUNCTIONS) {
            Some(own) => self.own.get(usize::from(own)).map_or("?", String::as_str),
            None => name(kind),
        }
    }
}

/// The name of what an event is: a built-in function or a kind.
pub fn name(kind: u16) -> &'static str {
    if kind >= FUNCTIONS {
        return FUNCTION_NAMES
            .get(usize::from(kind - FUNCTIONS))
            .copied()
            .unwrap_or("?");
    }
    match Kind::from_number(kind) {
        Some(Kind::Relaxed) => "relaxed",
        Some(Kind::Edge) => "edge",
        Some(Kind::Ticket) => "ticket",
        Some(Kind::Clock) => "clock",
        Some(Kind::Busy) => "busy",
        Some(Kind::Signal) => "signal",
        Some(Kind::Callback) => "callback",
        Some(Kind::CallbackReturn) => "callback return",
        Some(Kind::Fork) => "fork",
        Some(Kind::Exec) => "exec",
        Some(Kind::Exit) => "exit",
        Some(Kind::Ended) => "recording ended",
        Some(Kind::Mapping) => "mapping",
        Some(Kind::Cached) => "cached",
        Some(Kind::Thread) => "thread",
        Some(Kind::ThreadEnd) => "thread end",
        Some(Kind::Tsc) => "rdtsc",
        Some(Kind::Cpuid) => "cpuid",
        Some(Kind::Random) => "rdrand",
        Some(Kind::Replaced) => "replaced instructions",
        Some(Kind::Turn) => "turn",
        Some(Kind::Start) => "start",
        Some(Kind::Fatal) => "fatal signal",
        Some(Kind::File | Kind::Given) => "file",
        _ => "?",
    }
}

/// Whether an event is an order word: written for an acquisition, not for what a call brought.
pub fn is_order(event: &Event<'_>) -> bool {
    matches!(
        Kind::from_number(event.kind),
        Some(Kind::Relaxed | Kind::Edge | Kind::Ticket | Kind::Clock | Kind::Busy)
    )
}

/// A file, mapped to be read.
fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: logs only grow, and what is committed does not change.
    unsafe { MmapOptions::new().map_copy_read_only(&file) }
}

/// Recordings made by hand, for the tests of this crate.
#[cfg(test)]
pub mod by_hand {
    use hindcast_execlog::event::{header, padded};

    use super::*;

    pub fn event(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = header(kind, flags, payload.len() as u16)
            .to_ne_bytes()
            .to_vec();
        bytes.extend(payload);
        bytes.resize(4 + padded(payload.len()), 0);
        bytes
    }

    /// A call that gave `result` and wrote `written`.
    pub fn call(function: u16, result: i32, written: &[u8]) -> Vec<u8> {
        event(
            function,
            1,
            &[&[0; 4], &result.to_ne_bytes()[..], written].concat(),
        )
    }

    pub fn log(thread: u32, events: &[Vec<u8>]) -> Vec<u8> {
        let events = events.concat();
        let mut bytes = LogHeader::MAGIC.to_vec();
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend(thread.to_ne_bytes());
        bytes.extend(FUNCTION_TABLE.to_ne_bytes());
        bytes.extend((events.len() as u64).to_ne_bytes());
        bytes.resize(LogHeader::BYTES, 0);
        bytes.extend(events);
        // The room that was made for more.
        bytes.resize(bytes.len() + 100, 0);
        bytes
    }

    pub fn process(recording: &Path, name: &str, end: End, code: u32, logs: &[Vec<u8>]) {
        let folder = recording.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let header = ProcessHeader::new(0, "");
        header.threads.store(logs.len() as u32, Ordering::Relaxed);
        header.end.store(end as u32, Ordering::Relaxed);
        header.code.store(code, Ordering::Relaxed);
        // SAFETY: plain data.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<ProcessHeader>())
        };
        std::fs::write(folder.join("process"), bytes).unwrap();
        for (thread, log) in logs.iter().enumerate() {
            std::fs::write(folder.join(format!("t{thread}")), log).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::by_hand::{call, event, log, process};
    use super::*;

    fn sample() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let events = [
            event(Kind::Start as u16, 0, &[0; 16]),
            call(FUNCTIONS, 5, b"hello"),
            call(FUNCTIONS, 0, b""),
        ];
        process(folder.path(), "p0", End::Exited, 0, &[log(0, &events)]);
        let path = folder.path().join("p0/t0");
        (folder, path)
    }

    fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let (folder, _) = sample();
        let processes = check(folder.path(), Some(FUNCTION_TABLE))
            .unwrap()
            .processes;
        let log = &processes[0].threads[0];
        assert_eq!(log.events().count(), 3);
        log.trim().unwrap();
        assert_eq!(
            check(folder.path(), None).unwrap().processes[0].threads[0]
                .events()
                .count(),
            3
        );
        assert_eq!(
            std::fs::metadata(&log.path).unwrap().len(),
            (LogHeader::BYTES + log.len()) as u64
        );
    }

    #[test]
    fn families_are_listed_parents_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["p0.10", "p0+.1", "p0.2", "p0", "p0+", "p0.2.1"] {
            process(
                folder.path(),
                name,
                End::Exited,
                0,
                &[log(0, &[event(Kind::Start as u16, 0, &[0; 16])])],
            );
        }
        std::fs::create_dir(folder.path().join("pictures")).unwrap();
        let names: Vec<_> = contents(folder.path())
            .unwrap()
            .processes
            .into_iter()
            .map(|process| process.name)
            .collect();
        assert_eq!(names, ["p0", "p0+", "p0+.1", "p0.2", "p0.2.1", "p0.10"]);
    }

    #[test]
    fn what_is_wrong_with_a_log_is_named() {
        let cut = |keep: usize| move |bytes: &mut Vec<u8>| bytes.truncate(keep);
        let (folder, path) = sample();
        change(&path, cut(LogHeader::BYTES + 30));
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::CutOff { left: 30, .. })
        ));
        change(&path, cut(20));
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::NotALog(_))
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::NoThread(_))
        ));

        let (folder, path) = sample();
        change(&path, |bytes| bytes[0] ^= 1);
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::NotALog(_))
        ));

        let (folder, path) = sample();
        change(&path, |bytes| bytes[8] = 77);
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::Version { recorded: 77, .. })
        ));

        let (folder, _) = sample();
        assert!(matches!(
            check(folder.path(), Some(!FUNCTION_TABLE)),
            Err(LogError::Functions { .. })
        ));

        let (folder, path) = sample();
        change(&path, |bytes| bytes[24..32].fill(0));
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::Empty(_))
        ));

        let (folder, path) = sample();
        // The length of the second event.
        change(&path, |bytes| bytes[LogHeader::BYTES + 20 + 2] = 0xf0);
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::Damaged { events: 1, .. })
        ));

        let (folder, _) = sample();
        change(&folder.path().join("p0/process"), |bytes| bytes[3] = 0);
        assert!(matches!(
            check(folder.path(), None),
            Err(LogError::NotAProcess(_))
        ));

        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(
            check(empty.path(), None),
            Err(LogError::NoProcess(_))
        ));
    }
}
