//! Puts into the logs of a recording what they only refer to.
//!
//! A program that is recorded with a follower does not log what it reads from large files: its
//! events say which bytes of which file they were ([`hindcast_execlog::reference`]). Here these
//! bytes are read as well, and each log becomes one that refers to nothing:
//!
//! ```text
//!   t0        start │ open │ file 1 │ read: file 1, at 0 │ …           what the program writes
//!   t0.whole  start │ open │ read: the bytes themselves  │ …           what is made of it
//! ```
//!
//! When the process has ended `t0.whole` takes the place of `t0`. A log that refers to nothing is
//! left as it is. Nothing is lost when this ends in the middle: it can begin anew.
//!
//! A file that is not any more what it was when the program opened it cannot be read for it. The
//! log ends there, and says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_execlog::files::End;
use hindcast_execlog::{LogHeader, ProcessHeader};

use crate::log;
use sources::{Sent, Source};
use thread_log::Log;

mod sources;
mod thread_log;

/// A recording whose logs are being made whole.
pub struct Filling {
    folder: PathBuf,
    sent: Sent,
    processes: BTreeMap<String, Process>,
    over: HashSet<String>,
    /// What could not be written.
    pub failed: Vec<(String, io::Error)>,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// There was something to do.
    pub moved: bool,
    /// Nobody sends files any more.
    pub is_alone: bool,
}

impl Filling {
    pub fn new(folder: &Path, socket: Option<OwnedFd>) -> Filling {
        Filling {
            folder: folder.into(),
            sent: Sent::new(socket),
            processes: BTreeMap::new(),
            over: HashSet::new(),
            failed: Vec::new(),
        }
    }

    /// Files that are open.
    pub fn files(&self) -> usize {
        let known = self.processes.values().map(|process| process.files.len());
        self.sent.files() + known.sum::<usize>()
    }

    /// Looks at every log, and does what there is to do.
    pub fn round(&mut self) -> Round {
        let is_alone = self.sent.receive();
        let mut moved = false;
        for name in log::processes(&self.folder).unwrap_or_default() {
            if self.over.contains(&name) {
                continue;
            }
            match self.look_at(&name, is_alone) {
                Ok(something) => moved |= something,
                Err(error) => {
                    if let Some(process) = self.processes.remove(&name) {
                        process.give_up();
                    }
                    self.failed.push((name.clone(), error));
                    self.over.insert(name);
                }
            }
        }
        Round { moved, is_alone }
    }

    fn look_at(&mut self, name: &str, is_alone: bool) -> io::Result<bool> {
        let folder = self.folder.join(name);
        let Some(header) = log::header(&self.folder, name) else {
            return Ok(false);
        };
        // Before the logs are looked at: what was written before the end is there then.
        let is_over = match header.end().0 {
            End::Executed => self.folder.join(format!("{name}+/process")).exists(),
            End::Exited | End::Signalled => !log::is_alive(&self.folder, header.pid),
            // It says nothing of itself, and in a namespace of its own it has another number here.
            End::Running | End::Detached => is_alone && !log::is_alive(&self.folder, header.pid),
        };
        let process = self.processes.entry(name.to_owned()).or_default();
        let mut moved = false;
        for thread in 0..header.threads.load(Ordering::Relaxed) {
            let log = match process.logs.entry(thread) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    match Log::open(folder.join(format!("t{thread}"))) {
                        Ok(log) => entry.insert(log),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    }
                }
            };
            moved |= log.go_on(is_over, &mut process.files, &mut self.sent)?;
        }
        if is_over {
            let process = self.processes.remove(name).unwrap_or_default();
            process.conclude(&folder, header)?;
            self.over.insert(name.to_owned());
            moved = true;
        }
        Ok(moved)
    }
}

/// Makes the recording of a program that has ended whole. What kept it from that, by process.
pub fn complete(folder: &Path) -> Result<(), Vec<(String, io::Error)>> {
    let mut filling = Filling::new(folder, None);
    while filling.round().moved {}
    match filling.failed.is_empty() {
        true => Ok(()),
        false => Err(filling.failed),
    }
}

/// Whether a log of a process that has ended refers to files.
pub fn is_incomplete(folder: &Path) -> bool {
    let of_process = |name: &String| {
        log::header(folder, name).is_some_and(|header| {
            let threads = 0..header.threads.load(Ordering::Relaxed);
            let path = |thread| folder.join(name).join(format!("t{thread}"));
            let refers = |thread| {
                File::open(path(thread))
                    .and_then(|file| {
                        thread_log::word(&file, std::mem::offset_of!(LogHeader, referred))
                    })
                    .is_ok_and(|referred| referred != 0)
            };
            !log::is_alive(folder, header.pid) && threads.into_iter().any(refers)
        })
    };
    let processes = log::processes(folder).unwrap_or_default();
    processes.iter().any(of_process)
}

#[derive(Default)]
struct Process {
    logs: BTreeMap<u32, Log>,
    files: HashMap<u32, Source>,
}

impl Process {
    /// The process has ended, and there is nothing left to read.
    fn conclude(self, folder: &Path, mut header: Box<ProcessHeader>) -> io::Result<()> {
        let mut cut = None;
        for log in self.logs.into_values() {
            cut = log.conclude()?.or(cut);
        }
        let Some(why) = cut else { return Ok(()) };
        header.end.store(End::Detached as u32, Ordering::Relaxed);
        header.code.store(0, Ordering::Relaxed);
        header.reason.set(&why);
        // SAFETY: plain data, of which this is the only user.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                (&raw const *header).cast::<u8>(),
                size_of::<ProcessHeader>(),
            )
        };
        let file = hindcast_private::options()
            .write(true)
            .open(folder.join("process"))?;
        file.write_all_at(bytes, 0)
    }

    fn give_up(self) {
        for log in self.logs.into_values() {
            log.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;

    use hindcast_execlog::event::{FLAG_REFERENCE, FUNCTIONS};
    use hindcast_execlog::reference::{FileState, Given, Reference, ends};
    use hindcast_execlog::{Event, Kind};

    use super::*;
    use crate::log::by_hand::{event, log, process};

    const LENGTH: usize = 70_000;

    /// A recording in which one file was named and read, and the file.
    struct Scene {
        folder: tempfile::TempDir,
        content: Vec<u8>,
    }

    impl Scene {
        fn new() -> Scene {
            let folder = tempfile::tempdir().unwrap();
            let content: Vec<u8> = (0..LENGTH * 2).map(|at| (at / 7) as u8).collect();
            std::fs::write(folder.path().join("file"), &content).unwrap();
            Scene { folder, content }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("file")
        }

        fn given(&self) -> Vec<u8> {
            let found = self.file().metadata().unwrap();
            let given = Given {
                number: 7,
                place: 3,
                zeros: 0,
                reserved: 0,
                state: FileState {
                    device: found.dev(),
                    inode: found.ino(),
                    size: found.size(),
                    modified: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
                    changed: 0,
                },
            };
            let path = self.file();
            let payload = [&given.to_bytes()[..], path.as_os_str().as_bytes()].concat();
            event(Kind::Given as u16, 0, &payload)
        }

        fn reference(&self, offset: usize) -> Vec<u8> {
            let reference = Reference {
                file: 7,
                ends: ends(&self.content[offset..offset + LENGTH]) as u32,
                offset: offset as u64,
            };
            let read = (FUNCTIONS..)
                .find(|kind| log::name(*kind) == "read")
                .unwrap();
            let result = (LENGTH as i32).to_ne_bytes();
            let payload = [&[1, 2, 3, 4], &result[..], &reference.to_bytes()].concat();
            event(read, FLAG_REFERENCE | 1, &payload)
        }

        fn record(&self, events: &[Vec<u8>]) {
            let mut log = log(0, events);
            let at = std::mem::offset_of!(LogHeader, referred);
            log[at..at + 8].copy_from_slice(&1u64.to_ne_bytes());
            process(self.folder.path(), "p0", End::Exited, 0, &[log]);
        }

        /// What the events of the log are: their kinds, and how much those that are calls wrote.
        fn events(&self) -> Vec<(String, Vec<u8>)> {
            let contents = log::contents(self.folder.path()).unwrap();
            let events = contents.processes[0].threads[0].events();
            let written = |event: &Event<'_>| event.call().map(|(_, _, written)| written.to_vec());
            events
                .map(|event| {
                    let written = written(&event).filter(|_| event.is_call());
                    (
                        log::name(event.kind).to_owned(),
                        written.unwrap_or_default(),
                    )
                })
                .collect()
        }
    }

    fn start() -> Vec<u8> {
        event(Kind::Start as u16, 0, &[0; 16])
    }

    #[test]
    fn a_reference_becomes_the_bytes() {
        let scene = Scene::new();
        let tail = event(Kind::Relaxed as u16, 0, &5u32.to_ne_bytes());
        scene.record(&[
            start(),
            scene.given(),
            scene.reference(123),
            scene.reference(0),
            tail,
        ]);
        assert!(is_incomplete(scene.folder.path()));
        complete(scene.folder.path()).unwrap();
        assert!(!is_incomplete(scene.folder.path()));
        let read = |from: usize| {
            (
                "read".to_owned(),
                scene.content[from..from + LENGTH].to_vec(),
            )
        };
        let plain = |name: &str| (name.to_owned(), Vec::new());
        let expected = [plain("start"), read(123), read(0), plain("relaxed")];
        assert_eq!(scene.events(), expected);
        assert!(log::check(scene.folder.path(), None).is_ok());
    }

    #[test]
    fn a_log_that_refers_to_nothing_stays_what_it_is() {
        let scene = Scene::new();
        process(
            scene.folder.path(),
            "p0",
            End::Exited,
            0,
            &[log(0, &[start()])],
        );
        let path = scene.folder.path().join("p0/t0");
        let before = path.metadata().unwrap().ino();
        complete(scene.folder.path()).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), before);
    }

    #[test]
    fn a_file_that_was_changed_ends_the_log_where_it_was_read() {
        let scene = Scene::new();
        scene.record(&[start(), scene.given(), scene.reference(0), start()]);
        let file = hindcast_private::options().append(true).open(scene.file());
        file.unwrap().write_all(b"more").unwrap();
        complete(scene.folder.path()).unwrap();
        let names: Vec<String> = scene.events().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["start", "recording ended"]);
        let contents = log::contents(scene.folder.path()).unwrap();
        let header = &contents.processes[0].header;
        assert_eq!(header.end().0, End::Detached);
        assert!(header.reason.as_str().contains("was changed before"));
    }

    #[test]
    fn another_place_of_the_file_is_noticed() {
        let scene = Scene::new();
        let mut reference = scene.reference(500);
        let at = reference.len() - size_of::<u64>();
        reference[at..].copy_from_slice(&501u64.to_ne_bytes());
        scene.record(&[start(), scene.given(), reference]);
        complete(scene.folder.path()).unwrap();
        let names: Vec<String> = scene.events().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["start", "recording ended"]);
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let scene = Scene::new();
        scene.record(&[start(), scene.given(), scene.reference(0)]);
        std::fs::remove_file(scene.file()).unwrap();
        complete(scene.folder.path()).unwrap();
        let contents = log::contents(scene.folder.path()).unwrap();
        let reason = contents.processes[0].header.reason;
        assert!(
            reason.as_str().contains("cannot be opened"),
            "{}",
            reason.as_str()
        );
    }
}
