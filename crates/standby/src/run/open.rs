//! The two servers of a standby on another Postgres.

use hindcast_pg::{Connection, DatabaseUrl, Lsn};

use super::{BackupOptions, StandbyError};
use crate::backup::{self, Backup, Granularity};
use crate::initial::{InitialError, Side};
use crate::source::{Names, Stream, StreamOptions, session, slot};

/// The log, and what it is applied to.
pub(super) fn open(
    options: &BackupOptions,
    names: &Names,
    alone_until: Option<Lsn>,
) -> Result<(Stream, Backup), StandbyError> {
    let common = &options.common;
    let backup = Backup::open(&options.to, applying(options, names, alone_until))?;
    let from = backup.resume_point();
    slot::check(&common.from, names, from)?;
    let stream = StreamOptions {
        stream_into: common.streaming.then(std::env::temp_dir),
        ..StreamOptions::default()
    };
    let log = Stream::start(&common.from, &names.slot, &names.publication, from, stream)?;
    Ok((log, backup))
}

fn applying(options: &BackupOptions, names: &Names, alone_until: Option<Lsn>) -> backup::Options {
    backup::Options {
        // One after the other is for one.
        workers: match options.granularity {
            Granularity::Single => 1,
            _ => options.common.workers.unwrap_or(1),
        },
        granularity: options.granularity,
        epoch_interval: options.epoch_interval,
        epoch_rows_max: options.epoch_rows,
        alone_until,
        ..backup::Options::new(&names.slot)
    }
}

pub(super) fn connect(url: &DatabaseUrl, side: Side) -> Result<Connection, InitialError> {
    Connection::connect(url, &session("hindcast standby")).map_err(|source| InitialError::Connect {
        side,
        source: Box::new(source),
    })
}
