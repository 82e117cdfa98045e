//! What the launcher's page says of both runs.

use std::path::Path;

use hindcast_execlog::Config;
use hindcast_execlog::config::{self, FileId, Run};

use crate::recording::{Recording, Text};

/// A replay of this recording.
pub(crate) fn replaying(recording: &Recording) -> Config {
    let mut config = Config::new(Run::Replay);
    config.order = recording.order as u32;
    config.policy = recording.policy as u32;
    config.one_at_a_time = recording.one_at_a_time.into();
    let sqlite3 = recording
        .interfaces
        .iter()
        .any(|interface| interface.name == "sqlite3" && interface.library.is_none());
    choose(
        &mut config,
        recording.cache,
        recording.reproduce.as_ref().map(Text::as_path),
        sqlite3,
    );
    config
}

/// The part of the configuration that is the same in both runs.
pub(crate) fn choose(made: &mut Config, cache: bool, reproduce: Option<&Path>, sqlite3: bool) {
    if cache {
        made.optimizations |= config::optimizations::CACHE;
    }
    if let Some(path) = reproduce {
        made.optimizations |= config::optimizations::REPRODUCE;
        made.reproduce.set(&path.to_string_lossy());
    }
    if sqlite3 {
        made.interfaces |= config::interfaces::SQLITE3;
    }
    made.stdout = file_id(1);
    made.stderr = file_id(2);
}

fn file_id(descriptor: i32) -> FileId {
    // SAFETY: `stat` is plain data and is written by the call.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        match libc::fstat(descriptor, &mut status) {
            0 => FileId {
                device: status.st_dev,
                inode: status.st_ino,
            },
            _ => FileId::default(),
        }
    }
}
