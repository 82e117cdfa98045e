//! Reads what a recorded program has written to its log since it was read last.
//!
//! Files are mapped by the program and grow while they are read. What counts is the order: a count
//! is read before what must be there when it says so, and is sent after it.
//!
//! What was sent stays in the files up to a size: a backup that comes later is given all of it. A
//! log that has become larger is dropped, which means that it is given back to the file system as
//! soon as it was sent.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_exec::checkpoint::{Checkpoint, Part};
use hindcast_exec::mapped::Mapped;
use hindcast_execlog::event::{LONG, padded};
use hindcast_execlog::files::{End, is_first};
use hindcast_execlog::{Events, Kind, LogHeader, ProcessHeader};

use crate::hole::punch;
use crate::message::ToBackup;

/// Most bytes in one message.
const PIECE: usize = 1 << 20;
/// What was sent is given back to the file system in steps of this many bytes.
const PUNCHED: u64 = 16 << 20;

/// The log of one thread.
struct Log {
    name: String,
    file: File,
    header: Mapped<LogHeader>,
    /// Where it begins for a backup.
    begins: u64,
    /// Bytes of events that were sent, and counts as they were sent.
    sent: u64,
    /// How many of these end an event that was not sent as a whole yet.
    rest: u64,
    entered: Option<u64>,
    /// Where the count of the last event lies, if that may still be raised, and what it was.
    raised: Option<(u64, [u8; 4])>,
    punched: u64,
}

struct Process {
    name: String,
    file: File,
    owner: Option<(u32, u32)>,
    header: Mapped<ProcessHeader>,
    sent: Vec<u8>,
    logs: Vec<Log>,
    /// The number of the next thread whose log is looked for.
    next: u64,
    /// Somebody was told that it is not recorded any more.
    is_said: bool,
}

pub struct Shipper {
    folder: PathBuf,
    from: From,
    processes: Vec<Process>,
    known: HashSet<String>,
    /// Up to how many bytes the log is kept once it was sent.
    keep: u64,
    is_dropped: bool,
}

/// Where the log begins.
#[derive(Clone, Debug, Default)]
struct From {
    /// The process image of a checkpoint; empty: none.
    process: String,
    parts: HashMap<u64, Part>,
}

impl From {
    fn of(checkpoint: &Checkpoint) -> From {
        let parts = checkpoint.elsewhere().map_or(&[][..], |own| &own.logs);
        From {
            process: checkpoint.process().to_owned(),
            parts: parts.iter().map(|part| (part.thread, *part)).collect(),
        }
    }

    /// From where on a log is needed. `None`: it is not.
    fn begins(&self, process: &str, thread: u64) -> Option<u64> {
        if process != self.process {
            // An image before that one.
            let is_before = is_first(process) && process.len() < self.process.len();
            return (!is_before).then_some(0);
        }
        match self.parts.get(&thread) {
            Some(part) if part.is_over => None,
            Some(part) => Some(part.begins),
            None => Some(0),
        }
    }
}

/// What there was to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub is_new: bool,
    /// There is more than was asked for.
    pub is_cut: bool,
}

impl Shipper {
    /// `from`: what the log begins with.
    pub fn new(folder: &Path, keep: u64, from: Option<&Checkpoint>) -> Shipper {
        Shipper {
            folder: folder.to_owned(),
            from: from.map(From::of).unwrap_or_default(),
            processes: Vec::new(),
            known: HashSet::new(),
            keep,
            is_dropped: keep == 0,
        }
    }

    /// Shows what is new, as messages in their order: all of it, or about `at_most` bytes.
    pub fn collect(
        &mut self,
        at_most: Option<u64>,
        put: &mut dyn FnMut(ToBackup),
    ) -> io::Result<Collected> {
        let mut room = at_most.unwrap_or(u64::MAX);
        let mut collected = Collected::default();
        self.each(&mut |process, folder, from| {
            let found = process.collect((folder, from), &mut room, put)?;
            collected.is_new |= found.is_new;
            collected.is_cut |= found.is_cut;
            Ok(())
        })?;
        self.drop_what_is_too_large();
        Ok(collected)
    }

    /// Sends nothing, as there is nobody: the log is kept, or dropped.
    pub fn pass_over(&mut self) -> io::Result<()> {
        self.each(&mut |process, folder, from| {
            process.open_logs(folder, from)?;
            process.logs.iter_mut().for_each(Log::pass_over);
            Ok(())
        })?;
        self.drop_what_is_too_large();
        Ok(())
    }

    /// Whether a part of the log is gone, so that nobody can be given it from the beginning.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Why the log says no more of the program, which runs: recording has ended.
    pub fn ended_early(&self) -> Option<String> {
        let mut images = self.processes.iter().filter(|found| is_first(&found.name));
        let ended = images.find(|found| found.header.end().0 == End::Detached)?;
        let reason = ended.header.reason.as_str();
        Some(format!("recording has ended: {reason}"))
    }

    /// Why processes that the program has started are not recorded, which run on: each once.
    pub fn not_recorded(&mut self) -> Vec<String> {
        let others = self.processes.iter_mut();
        let ended = others.filter_map(|found| {
            let ended_early = !is_first(&found.name) && found.header.end().0 == End::Detached;
            let is_new = ended_early && !std::mem::replace(&mut found.is_said, true);
            is_new.then(|| found.header.reason.as_str().to_owned())
        });
        ended.collect()
    }

    /// Bytes of the log, and how many of them were sent.
    pub fn sizes(&self) -> (u64, u64) {
        let logs = self.processes.iter().flat_map(|process| &process.logs);
        logs.fold((0, 0), |(all, sent), log| {
            let committed = log.header.committed.load(Ordering::Acquire);
            (
                all + committed.saturating_sub(log.begins),
                sent + log.sent - log.begins,
            )
        })
    }

    fn drop_what_is_too_large(&mut self) {
        self.is_dropped |= self.sizes().1 > self.keep;
        if self.is_dropped {
            let logs = self.processes.iter_mut();
            logs.flat_map(|process| &mut process.logs)
                .for_each(Log::punch);
        }
    }

    /// Goes through all processes, also those that are found on the way.
    fn each(
        &mut self,
        visit: &mut dyn FnMut(&mut Process, &Path, &From) -> io::Result<()>,
    ) -> io::Result<()> {
        self.find("p0")?;
        let mut at = 0;
        while at < self.processes.len() {
            visit(&mut self.processes[at], &self.folder, &self.from)?;
            let process = &self.processes[at];
            let name = &process.name;
            let children = process.header.children.load(Ordering::Acquire);
            let mut others: Vec<String> = (1..=children)
                .map(|child| format!("{name}.{child}"))
                .collect();
            if process.header.end().0 == End::Executed {
                others.push(format!("{name}+"));
            }
            for other in others {
                self.find(&other)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Looks for the folder of a process.
    fn find(&mut self, name: &str) -> io::Result<()> {
        if self.known.contains(name) {
            return Ok(());
        }
        let file = match File::open(self.folder.join(name).join("process")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let Some(header) = Mapped::<ProcessHeader>::to_read(&file)? else {
            return Ok(());
        };
        if !header.is_there() {
            return Ok(());
        }
        self.known.insert(name.to_owned());
        self.processes.push(Process {
            name: name.to_owned(),
            file,
            owner: None,
            header,
            sent: Vec::new(),
            logs: Vec::new(),
            next: 0,
            is_said: false,
        });
        Ok(())
    }
}

impl Process {
    fn collect(
        &mut self,
        (folder, from): (&Path, &From),
        room: &mut u64,
        put: &mut dyn FnMut(ToBackup),
    ) -> io::Result<Collected> {
        let mut collected = Collected::default();
        let found = self.file.metadata()?;
        let owner = (found.uid(), found.gid());
        if self.owner != Some(owner) {
            self.owner = Some(owner);
            put(ToBackup::Owner {
                process: self.name.clone(),
                user: owner.0,
                group: owner.1,
            });
        }
        // Before the logs: when it says that the process has ended, they are complete.
        let header = self.header.bytes();
        let changed = (header != self.sent).then(|| header.to_vec());
        self.open_logs(folder, from)?;
        for log in &mut self.logs {
            let found = log.collect(room, put)?;
            collected.is_new |= found.is_new;
            collected.is_cut |= found.is_cut;
        }
        // The end of one whose log is not there yet is not told.
        let is_true = !collected.is_cut || self.header.end().0 == End::Running;
        if let Some(header) = changed.filter(|_| is_true) {
            put(ToBackup::Bytes {
                name: format!("{}/process", self.name),
                offset: 0,
                bytes: header.clone(),
            });
            self.sent = header;
            collected.is_new = true;
        }
        Ok(collected)
    }

    fn open_logs(&mut self, folder: &Path, from: &From) -> io::Result<()> {
        let threads = u64::from(self.header.threads.load(Ordering::Acquire));
        while self.next < threads {
            if let Some(begins) = from.begins(&self.name, self.next) {
                match Log::open(folder, &self.name, (self.next, begins))? {
                    Some(log) => self.logs.push(log),
                    None => break,
                }
            }
            self.next += 1;
        }
        Ok(())
    }
}

impl Log {
    /// `None`: it is not there yet.
    fn open(folder: &Path, process: &str, (thread, begins): (u64, u64)) -> io::Result<Option<Log>> {
        let name = format!("{process}/t{thread}");
        let mut options = hindcast_private::options();
        let opened = options.read(true).write(true).open(folder.join(&name));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let header = Mapped::<LogHeader>::to_read(&file)?;
        let header = header.filter(|header| header.is_there());
        Ok(header.map(|header| Log {
            name,
            file,
            header,
            begins,
            sent: begins,
            rest: 0,
            entered: None,
            raised: None,
            punched: LogHeader::BYTES as u64,
        }))
    }

    fn collect(&mut self, room: &mut u64, put: &mut dyn FnMut(ToBackup)) -> io::Result<Collected> {
        // In this order: a thread that has entered a call has written what came before.
        let entered = self.header.entered.load(Ordering::Acquire);
        let committed = self.header.committed.load(Ordering::Acquire);
        if self.entered.is_none() {
            // Before it grows: the other end makes the file when it is told of it.
            self.put_header(0, 0, put);
        }
        let mut is_new = self.look_at_raised(put)?;
        while self.sent < committed && *room > 0 {
            let bytes = self.piece(committed - self.sent)?;
            *room = room.saturating_sub(bytes.len() as u64);
            let offset = LogHeader::BYTES as u64 + self.sent;
            self.sent += bytes.len() as u64;
            put(ToBackup::Bytes {
                name: self.name.clone(),
                offset,
                bytes,
            });
            is_new = true;
        }
        let is_cut = self.sent < committed;
        if is_cut {
            let known = self.entered.unwrap_or(0);
            self.put_header(self.sent, known, put);
        } else if is_new || self.entered != Some(entered) {
            self.put_header(committed, entered, put);
            is_new = true;
        }
        Ok(Collected { is_new, is_cut })
    }

    /// The next bytes, of `left` that there are: whole events, unless one is longer than a piece.
    fn piece(&mut self, left: u64) -> io::Result<Vec<u8>> {
        let offset = LogHeader::BYTES as u64 + self.sent;
        let is_rest = self.rest > 0;
        let length = match is_rest {
            true => self.rest.min(left).min(PIECE as u64),
            false => left.min(PIECE as u64),
        };
        let mut bytes = vec![0; length as usize];
        self.read(&mut bytes, offset)?;
        self.raised = None;
        if is_rest {
            self.rest -= length;
            return Ok(bytes);
        }
        let last = Events::new(&bytes).last();
        let end = last.as_ref().map_or(0, |event| event.end.min(bytes.len()));
        self.raised = last
            .filter(|event| event.kind == Kind::Relaxed as u16)
            .and_then(|event| {
                let count = *event.payload.first_chunk::<4>()?;
                Some((offset + (event.end - event.payload.len()) as u64, count))
            });
        match end {
            0 => self.rest = length_of(&bytes).saturating_sub(length),
            end => bytes.truncate(end),
        }
        Ok(bytes)
    }

    /// What there is counts as sent.
    fn pass_over(&mut self) {
        (self.sent, self.rest) = (self.header.committed.load(Ordering::Acquire), 0);
        self.raised = None;
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| {
            let length = bytes.len();
            let text = format!("{}, {length} bytes from {offset}: {error}", self.name);
            io::Error::new(error.kind(), text)
        })
    }

    /// A run of acquisitions that waited for nobody has its length in the event that begins it.
    fn look_at_raised(&mut self, put: &mut dyn FnMut(ToBackup)) -> io::Result<bool> {
        let Some((offset, known)) = self.raised else {
            return Ok(false);
        };
        let mut now = [0; 4];
        self.read(&mut now, offset)?;
        if now == known {
            return Ok(false);
        }
        self.raised = Some((offset, now));
        put(ToBackup::Bytes {
            name: self.name.clone(),
            offset,
            bytes: now.to_vec(),
        });
        Ok(true)
    }

    fn put_header(&mut self, committed: u64, entered: u64, put: &mut dyn FnMut(ToBackup)) {
        self.entered = Some(entered);
        let mut header = LogHeader::new(self.header.thread, self.header.functions);
        header.version = self.header.version;
        *header.committed.get_mut() = committed;
        *header.entered.get_mut() = entered;
        let at = (&raw const header).cast::<u8>();
        // SAFETY: a `repr(C)` struct of numbers without padding.
        let bytes = unsafe { std::slice::from_raw_parts(at, LogHeader::BYTES) }.to_vec();
        put(ToBackup::Header {
            name: self.name.clone(),
            bytes,
        });
    }

    /// Nobody reads what was sent.
    fn punch(&mut self) {
        let keep = self.raised.map_or(self.sent, |(offset, _)| offset);
        let end = (keep + LogHeader::BYTES as u64).saturating_sub(1 << 20) & !4095;
        if end < self.punched + PUNCHED {
            return;
        }
        let from = self.punched.next_multiple_of(4096);
        punch(&self.file, from..end);
        self.punched = end;
    }
}

/// Of the event that begins here.
fn length_of(bytes: &[u8]) -> u64 {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let head = word(0).unwrap_or(0);
    match (head >> 16) as u16 {
        LONG => 8 + padded(word(4).unwrap_or(0) as usize) as u64,
        short => 4 + padded(short.into()) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    /// A program's folder, written as the runtime does.
    struct Written {
        folder: tempfile::TempDir,
        log: File,
        at: u64,
    }

    impl Written {
        fn new() -> Written {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("p0")).unwrap();
            let header = ProcessHeader::new(77, "");
            header.threads.store(1, Ordering::Relaxed);
            // SAFETY: plain data.
            let bytes = unsafe {
                std::slice::from_raw_parts(
                    (&raw const header).cast::<u8>(),
                    size_of::<ProcessHeader>(),
                )
            };
            std::fs::write(folder.path().join("p0/process"), bytes).unwrap();
            let log = hindcast_private::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(folder.path().join("p0/t0"))
                .unwrap();
            log.set_len(1 << 20).unwrap();
            let mut written = Written { folder, log, at: 0 };
            written.count(0);
            written
        }

        fn count(&mut self, entered: u64) {
            let mut header = LogHeader::new(0, 9);
            *header.committed.get_mut() = self.at;
            *header.entered.get_mut() = entered;
            // SAFETY: plain data.
            let bytes = unsafe {
                std::slice::from_raw_parts((&raw const header).cast::<u8>(), LogHeader::BYTES)
            };
            self.log.write_all_at(bytes, 0).unwrap();
        }

        fn event(&mut self, kind: u16, payload: &[u8]) {
            let header = hindcast_execlog::event::header(kind, 0, payload.len() as u16);
            let bytes = [&header.to_ne_bytes(), payload].concat();
            let offset = LogHeader::BYTES as u64 + self.at;
            self.log.write_all_at(&bytes, offset).unwrap();
            self.at += bytes.len() as u64;
        }
    }

    fn ship(shipper: &mut Shipper, store: &mut Store) -> bool {
        let mut messages = Vec::new();
        let collected = shipper
            .collect(None, &mut |message| messages.push(message))
            .unwrap();
        for message in messages {
            store.apply(&message).unwrap();
        }
        collected.is_new
    }

    #[test]
    fn the_other_folder_becomes_what_this_one_is() {
        let mut written = Written::new();
        let there = tempfile::tempdir().unwrap();
        let mut store = Store::new(there.path());
        let mut shipper = Shipper::new(written.folder.path(), u64::MAX, None);
        assert!(ship(&mut shipper, &mut store));
        assert!(!ship(&mut shipper, &mut store), "nothing is new");
        written.event(100, b"abcd");
        written.event(Kind::Relaxed as u16, &1u32.to_ne_bytes());
        written.count(1);
        assert!(ship(&mut shipper, &mut store));
        let same = |written: &Written| {
            let bytes = |folder: &Path| {
                let mut all = std::fs::read(folder.join("p0/t0")).unwrap();
                all.truncate(LogHeader::BYTES + written.at as usize);
                all
            };
            assert_eq!(bytes(written.folder.path()), bytes(there.path()));
        };
        same(&written);
        // The run goes on, without a new event.
        let count = LogHeader::BYTES as u64 + written.at - 4;
        written
            .log
            .write_all_at(&5u32.to_ne_bytes(), count)
            .unwrap();
        assert!(ship(&mut shipper, &mut store));
        same(&written);
        assert!(!ship(&mut shipper, &mut store));
        written.event(101, b"");
        written.count(2);
        ship(&mut shipper, &mut store);
        same(&written);
        assert!(store.has_begun(None));
    }

    #[test]
    fn behind_a_checkpoint_what_was_over_by_then_is_not_sent() {
        let part = |thread, begins, is_over| Part {
            thread,
            begins,
            ends: begins + 10,
            is_over,
        };
        let parts = [part(0, 500, false), part(1, 900, true)];
        let from = From {
            process: "p0+".to_owned(),
            parts: parts.into_iter().map(|part| (part.thread, part)).collect(),
        };
        assert_eq!(from.begins("p0", 0), None, "another image has come since");
        assert_eq!(from.begins("p0+", 0), Some(500));
        assert_eq!(from.begins("p0+", 1), None, "the thread had ended");
        assert_eq!(from.begins("p0+", 2), Some(0), "it began since");
        assert_eq!(from.begins("p0+.1", 0), Some(0), "a child");
        assert_eq!(From::default().begins("p0", 0), Some(0), "no checkpoint");
    }

    #[test]
    fn a_log_is_sent_in_parts_whose_counts_are_true() {
        let mut written = Written::new();
        let there = tempfile::tempdir().unwrap();
        let mut store = Store::new(there.path());
        let mut shipper = Shipper::new(written.folder.path(), u64::MAX, None);
        // More than a piece, which ends within an event.
        written.log.set_len(4 << 20).unwrap();
        let payload = [7; 60_000];
        (0..40).for_each(|_| written.event(100, &payload));
        written.event(Kind::Relaxed as u16, &1u32.to_ne_bytes());
        written.count(41);
        let mut rounds = 0;
        loop {
            let mut messages = Vec::new();
            let collected = shipper
                .collect(Some(1), &mut |message| messages.push(message))
                .unwrap();
            for message in &messages {
                store.apply(message).unwrap();
            }
            let copy = std::fs::read(there.path().join("p0/t0")).unwrap();
            let committed = u64::from_ne_bytes(copy[24..32].try_into().unwrap()) as usize;
            let log = &copy[LogHeader::BYTES..LogHeader::BYTES + committed];
            let whole: usize = Events::new(log).last().map_or(0, |event| event.end);
            assert_eq!(whole, committed, "whole events, as many as are counted");
            rounds += 1;
            if !collected.is_cut {
                break;
            }
            assert_eq!(store.events().get("p0/t0"), Some(&0), "not all are there");
        }
        assert!(rounds > 2);
        assert_eq!(store.events().get("p0/t0"), Some(&41));
        // The run at the end is still looked at.
        let count = LogHeader::BYTES as u64 + written.at - 4;
        let raised = 5u32.to_ne_bytes();
        written.log.write_all_at(&raised, count).unwrap();
        assert!(ship(&mut shipper, &mut store));
    }

    #[test]
    fn a_log_that_is_larger_than_what_is_kept_is_dropped() {
        let mut written = Written::new();
        let mut shipper = Shipper::new(written.folder.path(), 100, None);
        written.event(100, &[1; 50]);
        written.count(1);
        shipper.pass_over().unwrap();
        assert!(!shipper.is_dropped());
        written.event(100, &[1; 50]);
        written.count(2);
        shipper.pass_over().unwrap();
        assert!(shipper.is_dropped());
    }
}
