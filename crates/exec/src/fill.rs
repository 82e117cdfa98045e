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
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_execlog::event::{self, FLAG_ECHO, FLAG_REFERENCE};
use hindcast_execlog::files::End;
use hindcast_execlog::reference::{FileState, Given, Reference, Stat, ends};
use hindcast_execlog::{Event, Kind, LogHeader, ProcessHeader};

use crate::log;

/// How much of a log is looked at together.
const PIECE: u64 = 256 << 10;
const HEADER: u64 = LogHeader::BYTES as u64;

/// So much of the disk is left to what the program writes as long as it runs: its log ends where
/// there is no room for it, and this one can be completed later.
const LEFT: u64 = 16 << 20;

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
            sent: Sent {
                socket,
                files: HashMap::new(),
            },
            processes: BTreeMap::new(),
            over: HashSet::new(),
            failed: Vec::new(),
        }
    }

    /// Files that are open.
    pub fn files(&self) -> usize {
        let known = self.processes.values().map(|process| process.files.len());
        self.sent.files.len() + known.sum::<usize>()
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

/// The files that the program has opened, as it sends them.
struct Sent {
    /// `None`: it has ended.
    socket: Option<OwnedFd>,
    files: HashMap<u32, OwnedFd>,
}

impl Sent {
    /// Takes what is there. Whether there is nobody left who could send more.
    fn receive(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        loop {
            match receive(socket) {
                Ok(Some((number, Some(file)))) => drop(self.files.insert(number, file)),
                Ok(Some((_, None))) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// A file is sent before the log names it.
    fn take(&mut self, number: u32) -> Option<OwnedFd> {
        self.files.remove(&number).or_else(|| {
            self.receive();
            self.files.remove(&number)
        })
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
                    .and_then(|file| word(&file, std::mem::offset_of!(LogHeader, referred)))
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
            if log.whole.is_some() {
                let _ = std::fs::remove_file(log.whole_path());
            }
        }
    }
}

/// What a number stands for.
struct Source {
    state: FileState,
    path: PathBuf,
    /// `None`: zeros. Or why it cannot be read.
    file: Result<Option<File>, String>,
}

impl Source {
    fn new(given: &Given, path: &[u8], sent: Option<OwnedFd>) -> Source {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        let mut source = Source {
            state: given.state,
            file: Ok(None),
            path,
        };
        if given.zeros == 0 {
            source.file = match sent {
                Some(sent) => Ok(Some(File::from(sent))),
                // It was lost with a follower that was killed.
                None => File::open(&source.path).map(Some).map_err(|error| {
                    format!(
                        "{}, which it refers to, cannot be opened: {error}",
                        source.path.display()
                    )
                }),
            };
        }
        source
    }

    fn read(&self, reference: &Reference, into: &mut [u8]) -> Result<(), String> {
        match &self.file {
            Err(why) => return Err(why.clone()),
            Ok(None) => into.fill(0),
            Ok(Some(file)) => file
                .read_exact_at(into, reference.offset)
                .map_err(|_| self.changed())?,
        }
        match ends(into) as u32 == reference.ends {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// Whether the file is what it was: so is what was read from it before.
    fn is_as_it_was(&self) -> bool {
        let Ok(Some(file)) = &self.file else {
            return true;
        };
        file.metadata().is_ok_and(|found| {
            let stat = Stat {
                device: found.dev(),
                inode: found.ino(),
                size: found.size(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            };
            same_content(&FileState::of(&stat), &self.state)
        })
    }

    fn changed(&self) -> String {
        format!(
            "{} was changed before the follower had read what the program read from it",
            self.path.display()
        )
    }
}

/// A file that was renamed or removed has another time of change, and the same bytes.
fn same_content(found: &FileState, then: &FileState) -> bool {
    FileState {
        changed: then.changed,
        ..*found
    } == *then
}

struct Log {
    path: PathBuf,
    source: File,
    /// So many bytes behind the header were looked at.
    at: u64,
    /// The log that refers to nothing, once it is another one, and how long it is.
    whole: Option<(io::BufWriter<File>, u64)>,
    /// Bytes of files that were put into it, and of what named these.
    read: u64,
    /// It goes no further, because of this.
    cut: Option<String>,
    /// Which file is in each place.
    places: HashMap<u32, u32>,
}

impl Log {
    fn open(path: PathBuf) -> io::Result<Log> {
        let source = hindcast_private::options()
            .read(true)
            .write(true)
            .open(&path)?;
        Ok(Log {
            source,
            path,
            at: 0,
            whole: None,
            read: 0,
            cut: None,
            places: HashMap::new(),
        })
    }

    fn whole_path(&self) -> PathBuf {
        self.path.with_extension("whole")
    }

    /// Looks at what is new. Whether there was something.
    fn go_on(
        &mut self,
        is_over: bool,
        files: &mut HashMap<u32, Source>,
        sent: &mut Sent,
    ) -> io::Result<bool> {
        let committed = word(&self.source, std::mem::offset_of!(LogHeader, committed))?;
        let (begun, mut length) = (self.at, PIECE);
        while self.at < committed && self.cut.is_none() {
            let mut piece = vec![0; length.min(committed - self.at) as usize];
            self.source.read_exact_at(&mut piece, HEADER + self.at)?;
            // A run of acquisitions that a log ends with may still be growing.
            let is_last = self.at + piece.len() as u64 == committed;
            let used = self.take(&piece, is_last && !is_over, files, sent)?;
            if used == 0 {
                if is_last {
                    break;
                }
                // One event that is longer.
                length *= 2;
                continue;
            }
            self.at += used;
            length = PIECE;
        }
        if self.at != begun {
            let read = std::mem::offset_of!(LogHeader, read) as u64;
            self.source.write_all_at(&self.read.to_ne_bytes(), read)?;
        }
        Ok(self.at != begun)
    }

    /// Takes the events of a piece: how many bytes they were.
    fn take(
        &mut self,
        piece: &[u8],
        may_grow: bool,
        files: &mut HashMap<u32, Source>,
        sent: &mut Sent,
    ) -> io::Result<u64> {
        let mut out = Vec::new();
        let mut taken = 0;
        // The files that events of this piece refer to, and where the first of each begins.
        let mut used: HashMap<u32, (usize, u64)> = HashMap::new();
        while let Some(event) = Event::at(piece, taken) {
            if may_grow && event.kind == Kind::Relaxed as u16 && event.end == piece.len() {
                break;
            }
            if event.kind == Kind::Given as u16 {
                self.begin(taken)?;
                self.know(&event, files, sent);
                self.read += Given::BYTES as u64;
            } else if let Some(reference) = reference(&event) {
                used.entry(reference.file).or_insert((out.len(), self.read));
                let whole = filled(&event, &reference, files.get(&reference.file), &mut out);
                match whole {
                    Ok(bytes) => self.read += bytes,
                    Err(why) => {
                        self.cut = Some(why);
                        break;
                    }
                }
            } else if self.whole.is_some() {
                out.extend(&piece[event.offset..event.end]);
            }
            taken = event.end;
        }
        // Only now is it known that all that was read had not changed before.
        let changed = used
            .iter()
            .filter_map(|(number, place)| {
                let source = files.get(number)?;
                (!source.is_as_it_was()).then(|| (*place, source.changed()))
            })
            .min_by_key(|(place, _)| *place);
        if let Some(((end, read), why)) = changed {
            out.truncate(end);
            self.read = read;
            self.cut = Some(why);
        }
        if let Some(why) = &self.cut {
            let payload = why.len().min(u16::MAX as usize - 1);
            let header = event::header(Kind::Ended as u16, 0, payload as u16);
            out.extend(header.to_ne_bytes());
            out.extend(&why.as_bytes()[..payload]);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        if let Some((whole, length)) = &mut self.whole {
            if sent.socket.is_some() && room(whole.get_ref())? < LEFT + out.len() as u64 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            whole.write_all(&out)?;
            *length += out.len() as u64;
        }
        Ok(taken as u64)
    }

    /// From here on the whole log is another one. What lies before, up to `taken` bytes of the
    /// piece at hand, is the same.
    fn begin(&mut self, taken: usize) -> io::Result<()> {
        if self.whole.is_some() {
            return Ok(());
        }
        let file = hindcast_private::create(self.whole_path())?;
        let mut whole = io::BufWriter::with_capacity(PIECE as usize, file);
        let length = self.at + taken as u64;
        io::copy(
            &mut File::open(&self.path)?.take(HEADER + length),
            &mut whole,
        )?;
        self.whole = Some((whole, length));
        Ok(())
    }

    fn know(&mut self, event: &Event<'_>, files: &mut HashMap<u32, Source>, sent: &mut Sent) {
        let Some((found, path)) = event.payload.split_first_chunk::<{ Given::BYTES }>() else {
            return;
        };
        let found = Given::from_bytes(found);
        // Only this thread has read the file that was there before.
        if let Some(before) = self.places.insert(found.place, found.number) {
            files.remove(&before);
        }
        let source = Source::new(&found, path, sent.take(found.number));
        files.insert(found.number, source);
    }

    /// Puts the whole log in the place of the one that refers. Why it ends early, if it does.
    fn conclude(mut self) -> io::Result<Option<String>> {
        let path = self.whole_path();
        let Some((whole, length)) = self.whole.take() else {
            return Ok(None);
        };
        let written = whole.into_inner().map_err(io::IntoInnerError::into_error);
        let replaced = written.and_then(|file| {
            let at = |field: usize| field as u64;
            file.write_all_at(
                &length.to_ne_bytes(),
                at(std::mem::offset_of!(LogHeader, committed)),
            )?;
            for field in [
                std::mem::offset_of!(LogHeader, referred),
                std::mem::offset_of!(LogHeader, read),
            ] {
                file.write_all_at(&0u64.to_ne_bytes(), at(field))?;
            }
            std::fs::rename(&path, &self.path)
        });
        if replaced.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        replaced.map(|()| self.cut)
    }
}

/// What a read has in the log in place of its bytes.
fn reference(event: &Event<'_>) -> Option<Reference> {
    let refers = event.is_call() && event.flags & (FLAG_REFERENCE | FLAG_ECHO) == FLAG_REFERENCE;
    if !refers || !matches!(log::name(event.kind), "read" | "pread") {
        return None;
    }
    let (_, _, written) = event.call()?;
    Some(Reference::from_bytes(written.try_into().ok()?))
}

/// The event with the bytes that it refers to: how many these were.
fn filled(
    event: &Event<'_>,
    reference: &Reference,
    source: Option<&Source>,
    out: &mut Vec<u8>,
) -> Result<u64, String> {
    let damaged = || "the log refers to a file that it does not name".to_owned();
    let (_, result, _) = event.call().ok_or_else(damaged)?;
    let source = source.ok_or_else(damaged)?;
    let bytes = usize::try_from(result.unwrap_or(0)).map_err(|_| damaged())?;
    let before = &event.payload[..event.payload.len() - Reference::BYTES];
    let payload = before.len() + bytes;
    let mut read = vec![0; event::padded(payload) - before.len()];
    source.read(reference, &mut read[..bytes])?;
    let flags = event.flags & !FLAG_REFERENCE;
    match u16::try_from(payload) {
        Ok(short) if short != event::LONG => {
            out.extend(event::header(event.kind, flags, short).to_ne_bytes());
        }
        _ => {
            out.extend(event::header(event.kind, flags, event::LONG).to_ne_bytes());
            out.extend((payload as u32).to_ne_bytes());
        }
    }
    out.extend(before);
    out.extend(read);
    Ok(bytes as u64)
}

/// How much may still be written to the disk that a file is on.
fn room(file: &File) -> io::Result<u64> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is ours.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut disk) } {
        0 => Ok(disk.f_bavail * disk.f_frsize),
        _ => Err(io::Error::last_os_error()),
    }
}

fn word(file: &File, at: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The next file that was sent, with its number. `None`: nobody is there to send one. An error:
/// there is none now.
fn receive(socket: &OwnedFd) -> io::Result<Option<(u32, Option<OwnedFd>)>> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut number = 0u32;
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec {
        iov_base: (&raw mut number).cast(),
        iov_len: size_of::<u32>(),
    };
    // SAFETY: a message of values of this function, with their lengths. A descriptor that came
    // along is owned from here on.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        match libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Ok(None),
            _ => {}
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let has_one = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let file = has_one
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()));
        Ok(Some((number, file)))
    }
}

#[cfg(test)]
mod tests {
    use hindcast_execlog::event::FUNCTIONS;

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
