//! A look into a recording: how many events each thread has, and how to spoil one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hindcast_execlog::files::End;
use hindcast_execlog::{Event, Events, LogHeader, ProcessHeader};

/// The folder of a recording.
pub struct Recorded {
    folder: PathBuf,
}

impl Recorded {
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// The logs of all threads of all processes, by names such as `p0/t1`.
    pub fn logs(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        for process in entries(&self.folder)
            .into_iter()
            .filter(|path| path.is_dir())
        {
            for log in entries(&process) {
                let name = name_of(&log);
                if name
                    .strip_prefix('t')
                    .is_some_and(|number| number.parse::<u32>().is_ok())
                {
                    found.insert(format!("{}/{name}", name_of(&process)), log);
                }
            }
        }
        found
    }

    /// Complete events of each thread.
    pub fn events(&self) -> BTreeMap<String, usize> {
        self.logs()
            .into_iter()
            .map(|(name, log)| (name, Self::each(&log, |_| ()).len()))
            .collect()
    }

    /// Reads the events of one log.
    ///
    /// # Panics
    /// If it is none.
    pub fn each<T>(log: &Path, look: impl FnMut(Event) -> T) -> Vec<T> {
        let bytes =
            fs::read(log).unwrap_or_else(|error| panic!("cannot read {}: {error}", log.display()));
        Events::new(committed(&bytes)).map(look).collect()
    }

    /// How a process ended, by its own account: `p0` is the first.
    pub fn end_of(&self, process: &str) -> (End, u32) {
        let bytes = fs::read(self.folder.join(process).join("process"))
            .unwrap_or_else(|error| panic!("there is no process {process}: {error}"));
        ProcessHeader::from_bytes(&bytes)
            .expect("a process header of this version")
            .end()
    }

    /// Changes the bytes of a log.
    pub fn spoil(log: &Path, how: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes =
            fs::read(log).unwrap_or_else(|error| panic!("cannot read {}: {error}", log.display()));
        how(&mut bytes);
        fs::write(log, bytes).expect("the recording is ours");
    }

    /// Bytes of the whole recording that are events.
    pub fn bytes(&self) -> usize {
        self.logs()
            .values()
            .map(|log| committed(&fs::read(log).unwrap_or_default()).len())
            .sum()
    }
}

/// The part of a log that holds events.
pub fn committed(log: &[u8]) -> &[u8] {
    // {magic 8, version 4, thread 4, functions 8, committed 8}
    let length = log
        .get(24..32)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_ne_bytes);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let events = log.get(LogHeader::BYTES..).unwrap_or_default();
    &events[..length.min(events.len())]
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
