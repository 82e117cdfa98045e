//! Transactions that are streamed before they end: they wait here until they commit.
//!
//! A transaction begins in memory and moves to a file when it grows. Messages are kept as they
//! came; which of them count is known only at the end, since a subtransaction may still be rolled
//! back. While a subtransaction runs nobody else of its transaction writes, so whatever came since
//! its first message is its own or its children's, and rolling it back cuts all of that off.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::pgoutput::Commit;

/// Transactions larger than this go to a file.
const MEMORY_BYTES_MAX: usize = 4 << 20;
/// When all of them together are larger, the largest goes first.
const MEMORY_BYTES_ALL_MAX: usize = 16 * MEMORY_BYTES_MAX;
/// Length and subtransaction of a message.
const HEADER: usize = 8;

#[derive(Debug, thiserror::Error)]
#[error("a large transaction could not be kept in {} until it commits", folder.display())]
pub struct SpillError {
    pub folder: PathBuf,
    #[source]
    pub source: io::Error,
}

/// All transactions that are being streamed.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    open: HashMap<u32, Waiting>,
    /// The one whose messages are coming.
    current: Option<u32>,
    limits: Limits,
}

/// In bytes of memory.
#[derive(Clone, Copy, Debug)]
struct Limits {
    each: usize,
    all: usize,
}

/// A transaction that has not ended.
#[derive(Debug, Default)]
struct Waiting {
    /// The end of it, or all while it is small.
    tail: Vec<u8>,
    file: Option<File>,
    filed: u64,
    /// Where each subtransaction began, in order, and which place in that order each has. There
    /// may be a million of them.
    begun: Vec<(u32, u64)>,
    places: HashMap<u32, usize>,
}

impl Spill {
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            open: HashMap::new(),
            current: None,
            limits: Limits {
                each: MEMORY_BYTES_MAX,
                all: MEMORY_BYTES_ALL_MAX,
            },
        }
    }

    pub fn start(&mut self, xid: u32) {
        self.open.entry(xid).or_default();
        self.current = Some(xid);
    }

    pub fn stop(&mut self) {
        self.current = None;
    }

    /// Whether messages are part of a transaction that has not ended.
    pub fn is_within(&self) -> bool {
        self.current.is_some()
    }

    /// Bytes that wait, in memory and in files.
    pub fn bytes(&self) -> u64 {
        self.open.values().map(Waiting::len).sum()
    }

    /// Keeps a message of the current transaction.
    pub fn keep(&mut self, subxid: u32, message: &[u8]) -> Result<(), SpillError> {
        let Some(waiting) = self.current.and_then(|xid| self.open.get_mut(&xid)) else {
            return Ok(());
        };
        let kept = waiting.keep(subxid, message).and_then(|()| {
            match waiting.tail.len() > self.limits.each {
                true => waiting.file(&self.folder),
                false => Ok(()),
            }
        });
        kept.map_err(|source| self.error(source))
    }

    /// Makes sure that many transactions together do not take too much memory either. Looks at all
    /// of them: not for every message.
    pub fn settle(&mut self) -> Result<(), SpillError> {
        let mut all: usize = self.open.values().map(|waiting| waiting.tail.len()).sum();
        while all > self.limits.all {
            let largest = self
                .open
                .values_mut()
                .max_by_key(|waiting| waiting.tail.len());
            let Some(largest) = largest else { break };
            all -= largest.tail.len();
            let filed = largest.file(&self.folder);
            largest.tail.shrink_to_fit();
            filed.map_err(|source| self.error(source))?;
        }
        Ok(())
    }

    fn error(&self, source: io::Error) -> SpillError {
        SpillError {
            folder: self.folder.clone(),
            source,
        }
    }

    /// A transaction or one of its subtransactions was rolled back.
    pub fn abort(&mut self, xid: u32, subxid: u32) -> Result<(), SpillError> {
        if xid == subxid {
            self.open.remove(&xid);
            return Ok(());
        }
        let cut = match self.open.get_mut(&xid) {
            None => Ok(()),
            Some(waiting) => waiting.cut(subxid),
        };
        cut.map_err(|source| self.error(source))
    }

    /// A transaction committed: what it did, from the beginning.
    pub fn commit(&mut self, xid: u32, commit: Commit) -> Result<Playback, SpillError> {
        let waiting = self.open.remove(&xid).unwrap_or_default();
        waiting
            .play(xid, commit)
            .map_err(|source| self.error(source))
    }
}

impl Waiting {
    fn len(&self) -> u64 {
        self.filed + self.tail.len() as u64
    }

    fn keep(&mut self, subxid: u32, message: &[u8]) -> io::Result<()> {
        if self.begun.last().is_none_or(|(last, _)| *last != subxid) {
            let len = self.len();
            self.places.entry(subxid).or_insert_with(|| {
                self.begun.push((subxid, len));
                self.begun.len() - 1
            });
        }
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        self.tail.extend_from_slice(&length.to_le_bytes());
        self.tail.extend_from_slice(&subxid.to_le_bytes());
        self.tail.extend_from_slice(message);
        Ok(())
    }

    /// Moves what is in memory to the file, which has no name and goes with the process.
    fn file(&mut self, folder: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile_in(folder)?),
        };
        file.write_all(&self.tail)?;
        self.filed += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    fn cut(&mut self, subxid: u32) -> io::Result<()> {
        let Some(&at) = self.places.get(&subxid) else {
            return Ok(());
        };
        let end = self.begun[at].1;
        for (cut, _) in self.begun.drain(at..) {
            self.places.remove(&cut);
        }
        match end.checked_sub(self.filed) {
            Some(end) => self.tail.truncate(end as usize),
            None => {
                self.tail.clear();
                self.filed = end;
                if let Some(file) = &mut self.file {
                    file.set_len(end)?;
                    file.seek(SeekFrom::Start(end))?;
                }
            }
        }
        Ok(())
    }

    fn play(self, xid: u32, commit: Commit) -> io::Result<Playback> {
        let file = match self.file {
            None => None,
            Some(mut file) => {
                file.seek(SeekFrom::Start(0))?;
                Some(BufReader::with_capacity(1 << 18, file.take(self.filed)))
            }
        };
        Ok(Playback {
            xid,
            commit,
            file,
            tail: io::Cursor::new(self.tail),
            message: Vec::new(),
        })
    }
}

/// The messages of a transaction that has committed, one after the other.
#[derive(Debug)]
pub struct Playback {
    pub xid: u32,
    pub commit: Commit,
    file: Option<BufReader<io::Take<File>>>,
    tail: io::Cursor<Vec<u8>>,
    message: Vec<u8>,
}

impl Playback {
    /// Makes the next message the current one; false at the end.
    pub fn advance(&mut self) -> io::Result<bool> {
        let mut header = [0; HEADER];
        if let Some(file) = &mut self.file {
            if read_or_end(file, &mut header)? {
                return self.read_body(header).map(|()| true);
            }
            self.file = None;
        }
        if !read_or_end(&mut self.tail, &mut header)? {
            return Ok(false);
        }
        self.read_body(header).map(|()| true)
    }

    pub fn message(&self) -> &[u8] {
        &self.message
    }

    fn read_body(&mut self, header: [u8; HEADER]) -> io::Result<()> {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        self.message.resize(length as usize, 0);
        match &mut self.file {
            Some(file) => file.read_exact(&mut self.message),
            None => self.tail.read_exact(&mut self.message),
        }
    }
}

/// False if there is nothing more. Messages never straddle file and memory.
fn read_or_end(source: &mut impl Read, into: &mut [u8; HEADER]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < HEADER {
        match source.read(&mut into[filled..])? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use hindcast_pg::Lsn;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const COMMIT: Commit = Commit {
        lsn: Lsn(1),
        end_lsn: Lsn(2),
        time: 3,
    };

    fn played(spill: &mut Spill, xid: u32) -> Vec<Vec<u8>> {
        let mut playback = spill.commit(xid, COMMIT).unwrap();
        let mut messages = Vec::new();
        while playback.advance().unwrap() {
            messages.push(playback.message().to_vec());
        }
        messages
    }

    #[test]
    fn interleaved_transactions_come_out_one_by_one() {
        let mut spill = Spill::new(&std::env::temp_dir());
        for (xid, message) in [(1, b"a1"), (2, b"b1"), (1, b"a2"), (2, b"b2")] {
            spill.start(xid);
            spill.keep(xid, message).unwrap();
            spill.stop();
        }
        assert!(!spill.is_within());
        assert_eq!(played(&mut spill, 2), [b"b1", b"b2"]);
        assert_eq!(played(&mut spill, 1), [b"a1", b"a2"]);
        assert_eq!(spill.bytes(), 0);
        assert!(played(&mut spill, 3).is_empty());
    }

    /// Around the moment at which a transaction moves to its file, and long after it.
    #[test]
    fn what_was_rolled_back_is_cut_off_in_memory_and_in_files() {
        let large = vec![b'x'; MEMORY_BYTES_MAX / 3];
        for before in 0..8 {
            for within in 0..8 {
                let mut spill = Spill::new(&std::env::temp_dir());
                spill.start(1);
                let mut expected = Vec::new();
                for _ in 0..before {
                    spill.keep(1, &large).unwrap();
                    expected.push(large.clone());
                }
                spill.keep(2, b"kept subtransaction").unwrap();
                expected.push(b"kept subtransaction".to_vec());
                for _ in 0..within {
                    spill.keep(3, &large).unwrap();
                }
                spill.keep(4, b"a child of 3").unwrap();
                spill.abort(1, 3).unwrap();
                // It never wrote anything.
                spill.abort(1, 9).unwrap();
                spill.keep(5, b"after").unwrap();
                expected.push(b"after".to_vec());
                if within == 0 {
                    expected.insert(expected.len() - 1, b"a child of 3".to_vec());
                }
                let found = played(&mut spill, 1);
                assert!(found == expected, "{before} before, {within} within");
            }
        }
    }

    #[test]
    fn a_transaction_that_was_rolled_back_leaves_nothing() {
        let mut spill = Spill::new(&std::env::temp_dir());
        spill.start(1);
        spill.keep(1, b"message").unwrap();
        spill.stop();
        spill.abort(1, 1).unwrap();
        assert_eq!(spill.bytes(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let mut spill = Spill::new(Path::new("/nowhere/at/all"));
        spill.start(1);
        let large = vec![0; MEMORY_BYTES_MAX + 1];
        let error = spill.keep(1, &large).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"));
    }

    /// What a transaction may do next; the number chooses how.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write(usize),
        Savepoint,
        Release,
        Rollback,
        Commit,
        RollbackAll,
    }

    /// A transaction as its author sees it: open subtransactions, with the ids of those that were
    /// released into them, and what is left of its messages.
    struct Model {
        xid: u32,
        nested: Vec<(Vec<u32>, usize)>,
        messages: Vec<Vec<u8>>,
    }

    fn step() -> impl Strategy<Value = (usize, Step)> {
        let step = prop_oneof![
            6 => (0..30_usize).prop_map(Step::Write),
            3 => Just(Step::Savepoint),
            2 => Just(Step::Release),
            2 => Just(Step::Rollback),
            1 => Just(Step::Commit),
            1 => Just(Step::RollbackAll),
        ];
        (0..3_usize, step)
    }

    proptest! {
        /// Whatever several transactions and their subtransactions do, in memory and in files, what
        /// was not rolled back comes out in order.
        #[test]
        fn what_was_not_rolled_back_comes_out(steps in vec(step(), 0..200), each in 0..200_usize, all in 0..400_usize) {
            let mut spill = Spill::new(&std::env::temp_dir());
            spill.limits = Limits { each, all };
            let mut next = 0;
            let mut new = || { next += 1; next };
            let begin = |new: &mut dyn FnMut() -> u32| {
                let xid = new();
                Model { xid, nested: vec![(vec![xid], 0)], messages: Vec::new() }
            };
            let mut models: Vec<Model> = (0..3).map(|_| begin(&mut new)).collect();
            for (at, (which, step)) in steps.into_iter().enumerate() {
                let model = &mut models[which];
                let depth = model.nested.len();
                match step {
                    Step::Write(length) => {
                        let subxid = model.nested[depth - 1].0[0];
                        let message = vec![at as u8; length];
                        spill.start(model.xid);
                        spill.keep(subxid, &message).unwrap();
                        spill.stop();
                        spill.settle().unwrap();
                        let memory: usize = spill.open.values().map(|waiting| waiting.tail.len()).sum();
                        prop_assert!(memory <= all);
                        model.messages.push(message);
                    }
                    Step::Savepoint => model.nested.push((vec![new()], model.messages.len())),
                    Step::Release if depth > 1 => {
                        let (released, _) = model.nested.pop().unwrap();
                        model.nested[depth - 2].0.extend(released);
                    }
                    Step::Rollback if depth > 1 => {
                        let (subxids, before) = model.nested.pop().unwrap();
                        model.messages.truncate(before);
                        // The primary speaks of the children first.
                        for subxid in subxids.into_iter().rev() {
                            spill.abort(model.xid, subxid).unwrap();
                        }
                    }
                    Step::Release | Step::Rollback => {}
                    Step::Commit => {
                        let model = std::mem::replace(model, begin(&mut new));
                        prop_assert_eq!(played(&mut spill, model.xid), model.messages);
                    }
                    Step::RollbackAll => {
                        let model = std::mem::replace(model, begin(&mut new));
                        spill.abort(model.xid, model.xid).unwrap();
                    }
                }
            }
            for model in models {
                prop_assert_eq!(played(&mut spill, model.xid), model.messages);
            }
            prop_assert_eq!(spill.bytes(), 0);
        }
    }
}
