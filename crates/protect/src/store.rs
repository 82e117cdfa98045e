//! The log on the backup: files that grow as their messages arrive, under the eyes of a follower
//! that has them mapped.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, chown, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hindcast_exec::checkpoint::{Checkpoint, FOLDER, Part};
use hindcast_exec::mapped::Mapped;
use hindcast_execlog::LogHeader;
use hindcast_execlog::files::is_first;

use crate::hole::punch;
use crate::message::ToBackup;

/// The first page of a log has its header, and must be there as a whole.
const PAGE: u64 = 4096;

pub struct Store {
    folder: PathBuf,
    files: HashMap<String, Kept>,
    /// User and group of each process.
    owners: HashMap<String, (u32, u32)>,
    /// Bytes of the log that have arrived.
    pub bytes: u64,
    /// So many of them are not kept any more.
    forgotten: u64,
    /// How many events each log has, as far as its thread has said.
    events: HashMap<String, u64>,
}

struct Kept {
    file: File,
    /// Where it begins, and how far it is complete, in bytes behind the header.
    begins: u64,
    committed: u64,
    header: Option<Mapped<LogHeader>>,
}

impl Store {
    pub fn new(folder: &Path) -> Store {
        Store {
            folder: folder.to_owned(),
            files: HashMap::new(),
            owners: HashMap::new(),
            bytes: 0,
            forgotten: 0,
            events: HashMap::new(),
        }
    }

    /// By thread, how many events there are: all before the call that the thread entered last.
    pub fn events(&self) -> &HashMap<String, u64> {
        &self.events
    }

    /// Bytes of the log that are kept.
    pub fn kept(&self) -> u64 {
        self.bytes.saturating_sub(self.forgotten)
    }

    /// Whether there is enough for a follower to start, at this checkpoint.
    pub fn has_begun(&self, from: Option<&Checkpoint>) -> bool {
        if let Some(elsewhere) = from.and_then(Checkpoint::elsewhere) {
            let process = from.map_or("", Checkpoint::process);
            let is_there = |part: &Part| {
                let log = self.files.get(&format!("{process}/t{}", part.thread));
                part.is_over || log.is_some_and(|log| log.committed >= part.ends)
            };
            return self.files.contains_key(&format!("{process}/process"))
                && elsewhere.logs.iter().all(is_there);
        }
        ["p0/process", "p0/t0"]
            .iter()
            .all(|name| self.files.contains_key(*name))
    }

    /// Takes what concerns files.
    pub fn apply(&mut self, message: &ToBackup) -> io::Result<()> {
        match message {
            ToBackup::Bytes {
                name,
                offset,
                bytes,
            } => {
                if !name.starts_with(FOLDER) {
                    self.bytes += bytes.len() as u64;
                }
                self.file(name)?.file.write_all_at(bytes, *offset)
            }
            ToBackup::Header { name, bytes } => self.header(name, bytes),
            ToBackup::Owner {
                process,
                user,
                group,
            } => self.give(process, (*user, *group)),
            _ => Ok(()),
        }
    }

    /// A file of the log. A new one is its reader's from the first moment.
    fn file(&mut self, name: &str) -> io::Result<&mut Kept> {
        if !self.files.contains_key(name) {
            let path = self.path(name)?;
            if let Some(parent) = path.parent() {
                hindcast_private::folders(parent)?;
            }
            let mut options = hindcast_private::options();
            let draft = path.with_extension("new");
            let options = options.read(true).write(true).create(true).truncate(true);
            let file = options.open(&draft)?;
            let process = name.split('/').next().unwrap_or_default();
            if let Some((user, group)) = self.owners.get(process) {
                fchown(&file, Some(*user), Some(*group))?;
            }
            std::fs::rename(&draft, &path)?;
            self.files.insert(name.to_owned(), Kept::new(file));
        }
        Ok(self.files.get_mut(name).expect("it was just put there"))
    }

    /// The follower becomes another user when the program does, and reads on.
    fn give(&mut self, process: &str, owner: (u32, u32)) -> io::Result<()> {
        let folder = self.path(process)?;
        hindcast_private::folders(&folder)?;
        self.owners.insert(process.to_owned(), owner);
        let files = self.files.iter().filter(|(name, _)| {
            name.strip_prefix(process)
                .is_some_and(|rest| rest.starts_with('/'))
        });
        for (_, kept) in files {
            fchown(&kept.file, Some(owner.0), Some(owner.1))?;
        }
        chown(folder, Some(owner.0), Some(owner.1))
    }

    /// What came before a checkpoint is not needed any more.
    pub fn forget_before(&mut self, checkpoint: &Checkpoint) {
        let process = checkpoint.process();
        let parts = checkpoint.elsewhere().map_or(&[][..], |own| &own.logs);
        for (name, kept) in &mut self.files {
            let Some((image, thread)) = name.split_once("/t") else {
                continue;
            };
            let thread = thread.parse::<u64>().ok();
            let part = parts.iter().find(|part| Some(part.thread) == thread);
            let needed = match part {
                _ if is_first(image) && image.len() < process.len() => u64::MAX,
                Some(part) if image == process && part.is_over => u64::MAX,
                Some(part) if image == process => part.begins,
                _ => continue,
            };
            self.forgotten += kept.forget_before(needed);
        }
    }

    /// A name of our own making, from the other machine: it leads nowhere else.
    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let is_ours = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte))
        };
        match name.split('/').all(is_ours) {
            true => Ok(self.folder.join(name)),
            false => Err(io::Error::other(format!(
                "{name:?} is no file of a recording"
            ))),
        }
    }

    /// Counts are stored as the program would have: a follower that looks sees the one before or
    /// this one, and what it counts is there.
    fn header(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() != LogHeader::BYTES {
            return Err(io::Error::other("this is no header of a log"));
        }
        // SAFETY: every bit pattern is a header, and there are enough bytes.
        let sent = unsafe { bytes.as_ptr().cast::<LogHeader>().read_unaligned() };
        let kept = self.file(name)?;
        let header = match &mut kept.header {
            Some(header) => header,
            unmapped => {
                if kept.file.metadata()?.len() < PAGE {
                    kept.file.set_len(PAGE)?;
                }
                let fresh = LogHeader::new(sent.thread, sent.functions);
                let at = (&raw const fresh).cast::<u8>();
                // SAFETY: a `repr(C)` struct of numbers without padding.
                let bytes = unsafe { std::slice::from_raw_parts(at, LogHeader::BYTES) };
                // What says that it is a log comes last.
                kept.file.write_all_at(&bytes[8..], 8)?;
                kept.file.write_all_at(&bytes[..8], 0)?;
                let mapped = Mapped::to_write(&kept.file)?;
                unmapped.insert(mapped.expect("it was made a page long"))
            }
        };
        let committed = sent.committed.load(Ordering::Relaxed);
        let entered = sent.entered.load(Ordering::Relaxed);
        kept.committed = committed;
        header.committed.store(committed, Ordering::Release);
        header.entered.store(entered, Ordering::Release);
        self.events.insert(name.to_owned(), entered);
        Ok(())
    }
}

impl Kept {
    fn new(file: File) -> Kept {
        Kept {
            file,
            begins: 0,
            committed: 0,
            header: None,
        }
    }

    /// Gives what is before `needed` back to the file system: how many bytes.
    fn forget_before(&mut self, needed: u64) -> u64 {
        let header = LogHeader::BYTES as u64;
        let end = (header + needed.min(self.committed)) & !(PAGE - 1);
        let from = (header + self.begins).next_multiple_of(PAGE);
        if end <= from {
            return 0;
        }
        punch(&self.file, from..end);
        let forgotten = end - header - self.begins;
        self.begins = end - header;
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_a_checkpoint_is_given_back_and_the_rest_stays() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 40_000], 0).unwrap();
        let mut kept = Kept::new(file);
        kept.committed = 39_000;
        let header = LogHeader::BYTES as u64;
        assert_eq!(kept.forget_before(20_000), 4 * PAGE - header);
        let byte = |at| {
            let mut byte = [0];
            kept.file.read_exact_at(&mut byte, at).unwrap();
            byte[0]
        };
        assert_eq!(byte(0), 7, "its first page has the counts");
        assert_eq!(byte(PAGE), 0);
        assert_eq!(byte(20_000 + header), 7);
        assert_eq!(kept.forget_before(20_000), 0, "once");
    }

    #[test]
    fn names_lead_into_the_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::new(folder.path());
        for name in ["../x", "/etc/x", "p0/../../x", "", "p0//t0", "a b", "p0/."] {
            let message = ToBackup::Bytes {
                name: name.to_owned(),
                offset: 0,
                bytes: vec![1],
            };
            assert!(store.apply(&message).is_err(), "{name}");
        }
        let message = ToBackup::Bytes {
            name: "p0.1+/t12".to_owned(),
            offset: 0,
            bytes: vec![1],
        };
        store.apply(&message).unwrap();
        assert!(folder.path().join("p0.1+/t12").is_file());
    }
}
