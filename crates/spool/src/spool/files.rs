//! Where a spool is on disk.
//!
//! ```text
//! 000001.spool    header │ chunk │ chunk │ …
//! 000002.spool
//! key             what the chunks are sealed with, itself sealed for who may read it
//! progress        bytes read u64 │ bytes in all u64 │ when, µs since 1970 i64
//! header          magic[8] version u32 number u32
//! ```
//!
//! Without the key it is of no use to anybody who finds it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::taker::SpoolError;

const MAGIC: &[u8; 8] = b"HNDCSPOL";
const VERSION: u32 = 2;
const HEADER: u64 = 16;
const KEY: &str = "key";
const PROGRESS: &str = "progress";
const ENDING: &str = ".spool";

/// A file that is there: its number, and its length.
pub(super) type Found = (u32, File, u64);

/// The files of one spool.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// `None`: they have no names.
    progress: Option<File>,
    /// Those that were read are not removed.
    keeps: AtomicBool,
}

/// How much of a spool was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HowFar {
    /// Bytes on disk.
    pub read: u64,
    pub total: u64,
    /// When somebody read it last, in microseconds since 1970.
    pub heard: i64,
    /// It can be read from its beginning.
    pub is_whole: bool,
}

impl Files {
    pub fn without_names(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            progress: None,
            keeps: AtomicBool::new(false),
        }
    }

    /// Of a new spool; the folder is made.
    pub fn named(folder: &Path, sealed_key: &[u8]) -> Result<Self, SpoolError> {
        let failed = |source| cannot_write(folder, source);
        hindcast_private::folders(folder).map_err(failed)?;
        let key = folder.join(KEY);
        let kept = hindcast_private::write(&key, sealed_key).and_then(|()| {
            // What is written later can be read after a power failure only with the key.
            File::open(&key)?.sync_all()?;
            File::open(folder)?.sync_all()
        });
        kept.map_err(failed)?;
        Self::with_progress(folder)
    }

    /// Those of a spool that somebody left, the first one first.
    pub fn found(folder: &Path) -> Result<(Self, Vec<Found>), SpoolError> {
        let mut found = Vec::new();
        for (expected, number) in (1..).zip(numbers(folder)?) {
            // What is behind a hole makes no sense.
            if number != expected {
                break;
            }
            let path = path(folder, number);
            let failed = |source| SpoolError::Read {
                path: path.clone(),
                source,
            };
            let file = File::open(&path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            // A power failure may have left less than was written.
            if length < HEADER {
                break;
            }
            let mut header = [0; HEADER as usize];
            file.read_exact_at(&mut header, 0).map_err(failed)?;
            check(&header, number, &path)?;
            found.push((number, file, length));
        }
        if found.is_empty() {
            return Err(SpoolError::NoBeginning {
                path: folder.to_owned(),
            });
        }
        Ok((Self::with_progress(folder)?, found))
    }

    fn with_progress(folder: &Path) -> Result<Self, SpoolError> {
        let mut options = hindcast_private::options();
        let options = options.create(true).truncate(false).write(true);
        let progress = options.open(folder.join(PROGRESS));
        Ok(Self {
            folder: folder.to_owned(),
            progress: Some(progress.map_err(|source| cannot_write(folder, source))?),
            keeps: AtomicBool::new(true),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How long the header of a file is.
    pub fn header(&self) -> u64 {
        self.progress.as_ref().map_or(0, |_| HEADER)
    }

    pub fn make(&self, number: u32) -> Result<Arc<File>, SpoolError> {
        let made = match self.progress {
            None => tempfile::tempfile_in(&self.folder),
            Some(_) => self.make_named(number),
        };
        match made {
            Ok(file) => Ok(Arc::new(file)),
            Err(source) => Err(cannot_write(&self.folder, source)),
        }
    }

    fn make_named(&self, number: u32) -> io::Result<File> {
        let path = path(&self.folder, number);
        let mut options = hindcast_private::options();
        let options = options.create_new(true).read(true).write(true);
        let file = options.open(&path)?;
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..].copy_from_slice(&number.to_le_bytes());
        if let Err(error) = file.write_all_at(&header, 0) {
            // It would be in the way of the next attempt.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(file)
    }

    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// There is no room for it: from here on nobody else can read the spool.
    pub fn keep_no_more(&self) {
        if self.keeps.swap(false, Ordering::Relaxed) {
            let _ = fs::remove_file(self.folder.join(KEY));
            let folder = self.folder.display();
            tracing::warn!(
                "the spool in {folder} is too large to keep what was read of it: if the recorder is killed, what it \
                 has not put into the recording by then is lost. A larger --spool-max helps"
            );
        }
    }

    /// It was read, and is not kept.
    pub fn remove(&self, number: u32) {
        if self.progress.is_some() {
            let _ = fs::remove_file(path(&self.folder, number));
        }
    }

    pub fn note(&self, read: u64, total: u64, at: i64) {
        if let Some(progress) = &self.progress {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&read.to_le_bytes());
            bytes[8..16].copy_from_slice(&total.to_le_bytes());
            bytes[16..].copy_from_slice(&at.to_le_bytes());
            // It is only told to people.
            let _ = progress.write_all_at(&bytes, 0);
        }
    }
}

/// How much of the spool in a folder was read. `None`: there is none.
pub fn how_far(folder: &Path) -> Option<HowFar> {
    let numbers = numbers(folder).ok()?;
    let length = |number: &u32| fs::metadata(path(folder, *number)).map_or(0, |file| file.len());
    let on_disk = numbers.iter().map(length).sum();
    let mut noted = [0; 24];
    let file = File::open(folder.join(PROGRESS)).ok()?;
    let _ = file.read_exact_at(&mut noted, 0);
    let number = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| noted[at + n]));
    let is_whole = numbers.first() == Some(&1) && folder.join(KEY).exists();
    Some(HowFar {
        read: number(0),
        total: number(8).max(on_disk),
        heard: number(16) as i64,
        is_whole,
    })
}

/// What the spool in a folder is sealed with, as it was left there. `None`: there is no spool, or
/// nobody can read it any more.
pub fn sealed_key(folder: &Path) -> Result<Option<Vec<u8>>, SpoolError> {
    let path = folder.join(KEY);
    match fs::read(&path) {
        Ok(key) => Ok(Some(key)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SpoolError::Read { path, source }),
    }
}

/// Removes a spool: all of it is in a better place, or of no use.
pub fn remove(folder: &Path) -> io::Result<()> {
    // The key first: what is left if that is all that happens is what no one can read.
    match fs::remove_file(folder.join(KEY)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}{ENDING}"))
}

/// In their order.
fn numbers(folder: &Path) -> Result<Vec<u32>, SpoolError> {
    let failed = |source| SpoolError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ENDING));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn check(header: &[u8; HEADER as usize], number: u32, path: &Path) -> Result<(), SpoolError> {
    let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| header[at + n]));
    let damaged = |what| SpoolError::Damaged {
        path: path.to_owned(),
        at: 0,
        what,
    };
    match (header.starts_with(MAGIC), u32_at(8)) {
        (false, _) => Err(damaged("it does not begin as a file of a spool does")),
        (true, VERSION) if u32_at(12) == number => Ok(()),
        (true, VERSION) => Err(damaged("it was another file of the spool")),
        (true, version) => Err(SpoolError::Version {
            path: path.to_owned(),
            version,
            ours: VERSION,
        }),
    }
}

fn cannot_write(folder: &Path, source: io::Error) -> SpoolError {
    SpoolError::Write {
        path: folder.to_owned(),
        source,
    }
}
