//! A standby on another Postgres.

use std::time::{Duration, Instant};

use hindcast_pg::Lsn;

use super::joining::Joining;
use super::open::{connect, open};
use super::promotion;
use super::retry::Retry;
use super::{BackupOptions, Ended, StandbyError};
use crate::backup::BackupError;
use crate::follow::{self, Wish, follow};
use crate::initial::{
    self, BackupCopy, Hold, Identity, InitialError, Side, Source, Start, Unfit, rights,
};
use crate::source::slot::Created;
use crate::source::{Names, Primary, SlotError, preflight, slot};
use crate::status::{Control, State};

/// How often it is asked whether somebody wants to promote.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Copies if there is nothing yet, follows, and goes on when one of the servers was gone, until it
/// is stopped or cannot go on.
pub fn to_backup(options: &BackupOptions, control: &Control) -> Result<Ended, StandbyError> {
    let names = Names::new(&options.common.name)?;
    let mut retry = Retry::default();
    let mut joining = Joining::new(options, &names);
    let mut cut_before = None;
    let ended = loop {
        let error = match once(
            &mut joining,
            options,
            &names,
            control,
            &mut retry,
            cut_before,
        ) {
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
            error => {
                let Err(error) = joining.mend(error, control) else {
                    continue;
                };
                if !retry.may_help(&error) {
                    return Err(error);
                }
                if is_promoted(options, &names) {
                    break Ended::Promoted;
                }
                if retry.wait(control, &error) {
                    break Ended::Stopped;
                }
            }
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
/// way for failed, or tables have joined, and it is to follow as before.
fn once(
    joining: &mut Joining<'_>,
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
    let mut connection = connect(&options.to, Side::Backup)?;
    initial::state::note_filter(&mut connection, &names.slot, &common.tables)
        .map_err(InitialError::query(Side::Backup, "note what is wanted"))?;
    drop(connection);

    if joining.look(control) {
        joining.join(control, cut_before)?;
    }
    let (mut log, mut backup) = open(options, names, cut_before)?;
    retry.follows(backup.resume_point());

    let mut ask_at = Instant::now();
    let mut promoting = false;
    let mut to_join = false;
    let ended = follow(&mut log, &mut backup, control, common.until, || {
        if Instant::now() < ask_at {
            return Ok(Wish::GoOn);
        }
        ask_at = Instant::now() + ASK_EVERY;
        let request = hold.stop_requested().map_err(BackupError::Lost)?;
        promoting |= request.is_some();
        if let Some(request) = request {
            return Ok(Wish::EndAt(request.at));
        }
        to_join = to_join || joining.look(control);
        Ok(match to_join {
            true => Wish::EndAt(None),
            false => Wish::GoOn,
        })
    })?;
    let applied = control.status().visible;
    // The slot is free for the next one only when the primary knows that we are gone.
    log.finish();
    drop(backup);
    if to_join && !control.is_stopping() {
        joining.join(control, cut_before)?;
        return Ok(None);
    }
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
        Start::Follow => return Ok(()),
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
