//! A standby on another Postgres.

use std::time::{Duration, Instant};

use hindcast_pg::Lsn;

use super::checking::Checking;
use super::indexing::Indexing;
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
use crate::source::{Names, Primary, SlotError, preflight, publication, slot};
use crate::status::{Control, State};

/// How often it is asked whether somebody wants to promote.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Copies if there is nothing yet, follows, and goes on when one of the servers was gone, until it
/// is stopped or cannot go on.
pub fn to_backup(options: &BackupOptions, control: &Control) -> Result<Ended, StandbyError> {
    let names = Names::new(&options.common.name)?;
    let mut retry = Retry::default();
    let mut beside = Beside {
        joining: Joining::new(options, &names),
        checking: Checking::new(options, &names),
        indexing: Indexing::new(options, &names),
    };
    let mut alone_until = None;
    let ended = loop {
        let error = match once(
            &mut beside,
            options,
            &names,
            control,
            &mut retry,
            alone_until,
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
                    && error.lsn().is_some_and(|lsn| alone_until < Some(lsn)) =>
            {
                alone_until = error.lsn();
            }
            error => {
                let mended = beside.joining.mend(error, control);
                let Err(error) = mended.or_else(|error| beside.indexing.mend(error, control))
                else {
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

/// What is done beside following, which stops for it.
struct Beside<'a> {
    joining: Joining<'a>,
    checking: Checking<'a>,
    indexing: Indexing<'a>,
}

/// From looking at both servers to the first loss of one of them. `None`: a promotion that it made
/// way for failed, or tables have joined, and it is to follow as before.
fn once(
    beside: &mut Beside<'_>,
    options: &BackupOptions,
    names: &Names,
    control: &Control,
    retry: &mut Retry,
    alone_until: Option<Lsn>,
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
    note_wanted(options, names)?;

    let Beside {
        joining, indexing, ..
    } = beside;
    if joining.look(control) {
        joining.join(control, alone_until)?;
    }
    if indexing.look(control) {
        indexing.adapt(control, alone_until)?;
    }
    // Following stops for a moment where rows are compared.
    let stop = loop {
        match follow_once(
            beside,
            options,
            names,
            control,
            retry,
            &mut hold,
            alone_until,
        )? {
            Stop::ToCheck if !control.is_stopping() => {
                for table in beside.checking.begin(control, alone_until)? {
                    beside.joining.copy_again(&table);
                }
            }
            stop => break stop,
        }
    };
    match stop {
        Stop::ToJoin if !control.is_stopping() => {
            beside.joining.join(control, alone_until)?;
            Ok(None)
        }
        Stop::ToIndex if !control.is_stopping() => {
            beside.indexing.adapt(control, alone_until)?;
            Ok(None)
        }
        Stop::ToPromote => {
            hold.stopped(control.status().visible)
                .map_err(BackupError::Lost)?;
            let mut connection = connect(&options.to, Side::Backup)?;
            Ok(promotion::await_end(&mut connection, &names.slot, control)?)
        }
        Stop::ToJoin | Stop::ToIndex | Stop::ToCheck | Stop::Stopped => Ok(Some(Ended::Stopped)),
        Stop::Reached => Ok(Some(Ended::Reached)),
    }
}

/// Notes which tables are wanted, which may be others than before; but not other rows of them:
/// those that are here are those that were chosen before.
fn note_wanted(options: &BackupOptions, names: &Names) -> Result<(), InitialError> {
    let wanted = &options.common.tables;
    let failed = InitialError::query(Side::Backup, "note what is wanted");
    let mut connection = connect(&options.to, Side::Backup)?;
    let noted = initial::state::filter(&mut connection, &names.slot).map_err(&failed)?;
    if let Some(noted) = noted
        && noted.rows != wanted.rows
    {
        let rows = noted.rows.iter();
        let rows: Vec<_> = rows.map(|it| format!("--row-filter \"{it}\"")).collect();
        let before = match rows.is_empty() {
            true => "no --row-filter".to_owned(),
            false => rows.join(" "),
        };
        return Err(InitialError::Unfit(Unfit::OtherRows { before }));
    }
    initial::state::note_filter(&mut connection, &names.slot, wanted).map_err(failed)
}

/// Why following stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Stopped,
    Reached,
    ToPromote,
    ToJoin,
    ToIndex,
    ToCheck,
}

/// Follows until there is something else to do.
fn follow_once(
    beside: &mut Beside<'_>,
    options: &BackupOptions,
    names: &Names,
    control: &Control,
    retry: &mut Retry,
    hold: &mut Hold,
    alone_until: Option<Lsn>,
) -> Result<Stop, StandbyError> {
    let (mut log, mut backup) = open(options, names, alone_until)?;
    retry.follows(backup.resume_point());
    let mut ask_at = Instant::now();
    let mut stop = None;
    let until = options.common.until;
    let ended = follow(&mut log, &mut backup, control, until, || {
        if Instant::now() < ask_at {
            return Ok(Wish::GoOn);
        }
        ask_at = Instant::now() + ASK_EVERY;
        if let Some(request) = hold.stop_requested().map_err(BackupError::Lost)? {
            if !matches!(stop, Some(Stop::ToJoin | Stop::ToIndex)) {
                stop = Some(Stop::ToPromote);
            }
            return Ok(Wish::EndAt(request.at));
        }
        if stop.is_none() && beside.joining.look(control) {
            stop = Some(Stop::ToJoin);
        }
        if stop.is_none() && beside.indexing.look(control) {
            stop = Some(Stop::ToIndex);
        }
        if stop.is_none() && beside.checking.is_due(control) {
            stop = Some(Stop::ToCheck);
        }
        Ok(match stop {
            Some(_) => Wish::EndAt(None),
            None => Wish::GoOn,
        })
    })?;
    // The slot is free for the next one only when the primary knows that we are gone.
    log.finish();
    drop(backup);
    Ok(stop.unwrap_or(match ended {
        follow::Ended::Stopped => Stop::Stopped,
        follow::Ended::Reached => Stop::Reached,
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
        Start::CopyAgain { made_at } => slot::remove_unread(&common.from, names, made_at)?,
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
    publication::publish(&common.from, names, &primary.tables)?;
    let created = slot::create_temporary(
        &common.from,
        names,
        || control.is_stopping(),
        |waiting| control.note(&[waiting]),
    )?;
    let made_at = created.consistent_point;
    // Killed between any two of these, it leaves a slot of which the backup knows that it is its
    // own, or none.
    let copied = initial::announce(&mut connection, &identity, made_at)
        .map_err(StandbyError::from)
        .and_then(|()| Ok(created.keep(&common.from, names)?))
        .and_then(|()| Ok(copy(options, &created, &identity, primary, control)?));
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
        Some(Start::CopyAgain { .. } | Start::Copy) => {
            // Nobody goes on from this slot: the next copy makes its own, and until then the
            // primary should keep nothing for us. If it cannot be reached either, the next start
            // does it.
            let _ = slot::remove_unread(&common.from, names, made_at);
            Err(error)
        }
        None => Err(error),
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
