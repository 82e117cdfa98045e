//! A standby on another Postgres.

use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Lsn};

use super::promotion;
use super::retry::Retry;
use super::{BackupOptions, Ended, StandbyError};
use crate::backup::{self, Backup, BackupError, Granularity};
use crate::follow::{self, FollowError, Wish, follow};
use crate::initial::{
    self, BackupCopy, Hold, Identity, InitialError, Side, Source, Start, Unfit, rights,
};
use crate::source::slot::Created;
use crate::source::{Names, Primary, SlotError, Stream, StreamOptions, preflight, session, slot};
use crate::status::{Control, State};

/// How often it is asked whether somebody wants to promote.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Copies if there is nothing yet, follows, and goes on when one of the servers was gone, until it
/// is stopped or cannot go on.
pub fn to_backup(options: &BackupOptions, control: &Control) -> Result<Ended, StandbyError> {
    let names = Names::new(&options.common.name)?;
    let mut retry = Retry::default();
    let mut cut_before = None;
    let ended = loop {
        let error = match once(options, &names, control, &mut retry, cut_before) {
            Ok(Some(ended)) => break ended,
            Ok(None) => continue,
            Err(error) => retry.settle(error),
        };
        match error {
            _ if control.is_stopping() => break Ended::Stopped,
            // What comes before the transaction that cannot be applied should be there, so that the
            // backup stops exactly where the message says.
            StandbyError::Backup(error)
                if !error.is_transient()
                    && error.lsn().is_some_and(|lsn| cut_before != Some(lsn)) =>
            {
                cut_before = error.lsn();
            }
            error if retry.may_help(&error) => {
                if is_promoted(options, &names) {
                    break Ended::Promoted;
                }
                if retry.wait(control, &error) {
                    break Ended::Stopped;
                }
            }
            error => return Err(error),
        }
    };
    control.update(|status| status.state = State::Stopped);
    Ok(ended)
}

/// Whether somebody has promoted the backup while the primary could not be reached.
fn is_promoted(options: &BackupOptions, names: &Names) -> bool {
    let stored = connect(&options.to, Side::Backup)
        .ok()
        .and_then(|mut backup| initial::state::stored(&mut backup, &names.slot).ok());
    stored
        .flatten()
        .is_some_and(|stored| stored.state == "promoted")
}

/// From looking at both servers to the first loss of one of them. `None`: a promotion that it made
/// way for failed, and it is to follow as before.
fn once(
    options: &BackupOptions,
    names: &Names,
    control: &Control,
    retry: &mut Retry,
    cut_before: Option<Lsn>,
) -> Result<Option<Ended>, StandbyError> {
    let common = &options.common;
    control.update(|status| status.state = State::Starting);
    let primary = preflight(&common.from, &common.tables, &names.slot)?;
    control.note(&primary.notices);
    let mut hold = Hold::take(&options.to, &names.slot)?.ok_or_else(|| {
        InitialError::Unfit(Unfit::InUse {
            slot: names.slot.clone(),
        })
    })?;
    prepare(options, names, &primary, control, retry)?;

    let mut backup = Backup::open(&options.to, applying(options, names, cut_before))?;
    let from = backup.resume_point();
    slot::check(&common.from, names, from)?;
    let stream = StreamOptions {
        stream_into: common.streaming.then(std::env::temp_dir),
        ..StreamOptions::default()
    };
    let mut log = Stream::start(&common.from, &names.slot, &names.publication, from, stream)?;
    retry.follows(from);

    let mut ask_at = Instant::now();
    let mut promoting = false;
    let ended = follow(&mut log, &mut backup, control, common.until, || {
        if Instant::now() < ask_at {
            return Ok(Wish::GoOn);
        }
        ask_at = Instant::now() + ASK_EVERY;
        let request = hold.stop_requested().map_err(BackupError::Lost)?;
        promoting |= request.is_some();
        Ok(request.map_or(Wish::GoOn, |request| Wish::EndAt(request.at)))
    });
    let ended = ended.map_err(|error| match error {
        FollowError::Log(error) => StandbyError::from(error),
        FollowError::Target(error) => StandbyError::from(error),
    })?;
    let applied = control.status().visible;
    // The slot is free for the next one only when the primary knows that we are gone.
    log.finish();
    if promoting {
        hold.stopped(applied).map_err(BackupError::Lost)?;
        let mut connection = connect(&options.to, Side::Backup)?;
        return Ok(promotion::await_end(&mut connection, &names.slot, control)?);
    }
    Ok(Some(match ended {
        follow::Ended::Stopped => Ended::Stopped,
        follow::Ended::Reached => Ended::Reached,
    }))
}

fn applying(options: &BackupOptions, names: &Names, cut_before: Option<Lsn>) -> backup::Options {
    backup::Options {
        // One after the other is for one.
        workers: match options.granularity {
            Granularity::Single => 1,
            _ => options.common.workers.unwrap_or(1),
        },
        granularity: options.granularity,
        epoch_interval: options.epoch_interval,
        epoch_rows_max: options.epoch_rows,
        cut_before,
        ..backup::Options::new(&names.slot)
    }
}

/// Brings the backup to where it can follow.
fn prepare(
    options: &BackupOptions,
    names: &Names,
    primary: &Primary,
    control: &Control,
    retry: &mut Retry,
) -> Result<(), StandbyError> {
    let common = &options.common;
    let identity = Identity {
        slot: names.slot.clone(),
        publication: names.publication.clone(),
        source: common.from.to_string(),
        system_identifier: primary.system_identifier.clone(),
        source_database: primary.database.clone(),
    };
    let mut connection = connect(&options.to, Side::Backup)?;
    rights::check(&mut connection, &mut connect(&common.from, Side::Primary)?)?;
    let start = initial::start(&mut connection, &identity)?;
    retry.reached();
    match start {
        Start::Follow => {
            let unpublished = slot::unpublished(&common.from, names, &primary.tables)?;
            let notices: Vec<_> = unpublished
                .iter()
                .map(|table| {
                    format!("{table} is not replicated: it was made, or asked for, after the copy. Make the backup anew to have it, or exclude it")
                })
                .collect();
            control.note(&notices);
            return Ok(());
        }
        // Its log begins before what will be copied now.
        Start::CopyAgain => drop(slot::remove(&common.from, names)?),
        // Somebody else's, whose WAL and publication must not be touched.
        Start::Copy => match slot::check(&common.from, names, Lsn(u64::MAX)) {
            Err(SlotError::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => {
                let slot = names.slot.clone();
                return Err(SlotError::Exists { slot }.into());
            }
        },
    }
    slot::publish(&common.from, names, &primary.tables)?;
    let created = slot::create_unless(
        &common.from,
        names,
        || control.is_stopping(),
        |waiting| control.note(&[waiting]),
    )?;
    let copied = initial::announce(&mut connection, &identity)
        .and_then(|()| copy(options, &created, &identity, primary, control));
    drop(created);
    let Err(error) = copied else { return Ok(()) };
    // The connection may have been lost with the answer to the commit that ends the copy. Only the
    // backup knows what became of it; while it cannot be asked the slot stays, since it may be the
    // one to go on from, and the next start asks again.
    let state = connect(&options.to, Side::Backup)
        .ok()
        .and_then(|mut connection| initial::start(&mut connection, &identity).ok());
    match state {
        Some(Start::Follow) => Ok(()),
        Some(Start::CopyAgain | Start::Copy) => {
            // Nobody goes on from this slot: the next copy makes its own, and until then the
            // primary should keep nothing for us. If it cannot be reached either, the next start
            // does it.
            let _ = slot::remove(&common.from, names);
            Err(error.into())
        }
        None => Err(error.into()),
    }
}

fn copy(
    options: &BackupOptions,
    created: &Created,
    identity: &Identity,
    primary: &Primary,
    control: &Control,
) -> Result<(), InitialError> {
    let common = &options.common;
    let copy = BackupCopy {
        source: Source {
            primary: &common.from,
            snapshot: &created.snapshot,
            workers: common.copy_workers,
            chunk_bytes: Source::CHUNK_BYTES,
        },
        backup: &options.to,
        identity,
        consistent_point: created.consistent_point,
        make_schema: options.schema,
    };
    initial::to_backup(&copy, &primary.tables, control).map(drop)
}

fn connect(url: &DatabaseUrl, side: Side) -> Result<Connection, InitialError> {
    Connection::connect(url, &session("hindcast standby")).map_err(|source| InitialError::Connect {
        side,
        source: Box::new(source),
    })
}
