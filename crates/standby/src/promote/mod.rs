//! Makes a backup a database of its own.
//!
//! ```text
//!  the one who follows: "up to here, then stop" ──▶ it is gone ──▶ anything missing? same rows?
//!       ──▶ sequences, state := promoted ──▶ slot and publication dropped ──▶ report
//! ```
//!
//! Whoever follows is asked through `hindcast.standby` on the backup, and is known to be gone when
//! its advisory lock is: there is no other channel that would have to work just when things are
//! broken. If the primary can be reached nothing is lost unless the user says so; if it cannot, the
//! backup is what it is, and the report says what that means.
//!
//! Nothing that applies log runs here. What a stopped follower has not applied is not applied:
//! starting it again is how to get it.
//!
//! Sequences are not part of the logical log, so nothing was done for them while following: here
//! they get the primary's values, or without it values beyond those in their columns.
//!
//! The invariant: until the one transaction that says `promoted` the backup can go on being a
//! standby, and after it never again.

mod error;
mod findings;
mod primary;
mod sequences;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Lsn, quote_identifier, quote_literal};

use crate::backup::schema;
use crate::check::digest;
use crate::fence;
use crate::initial::Side;
use crate::initial::state::{self, Stored, stored, try_lock, withdraw};
use crate::source::compared::{self, LeftOut};
use crate::source::{Names, SlotError, session, slot};

pub use error::PromoteError;
pub use primary::Missing;
pub use sequences::{Like, MARGIN, SequenceSet, Sequences};

use primary::Primary;

#[derive(Clone, Debug)]
pub struct PromoteOptions {
    /// The backup.
    pub to: DatabaseUrl,
    /// The primary, if it may still be there.
    pub from: Option<DatabaseUrl>,
    /// As for following.
    pub name: String,
    /// Not before everything that the primary has committed is applied, if it can be reached.
    pub wait: bool,
    /// Compare all rows of both first.
    pub check: bool,
    /// How long whoever follows may make no progress before it counts as dead.
    pub patience: Duration,
}

impl PromoteOptions {
    pub const PATIENCE: Duration = Duration::from_secs(30);
}

/// What was done, and what is left to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromoteReport {
    pub slot: String,
    /// The primary's, for people.
    pub source: String,
    /// Everything that the primary had committed up to here is in the backup.
    pub applied: Lsn,
    /// Somebody followed, and stopped when asked.
    pub follower_stopped: bool,
    /// Why the primary was not asked; `None` if it was.
    pub without_primary: Option<String>,
    /// What the primary had that the backup has not; `None` if that cannot be known.
    pub missing: Option<Missing>,
    /// Tables of the primary that the backup was not to have, or could not have.
    pub left_out: Vec<LeftOut>,
    /// Tables whose rows were compared, and are the same.
    pub compared: usize,
    pub sequences: Sequences,
    /// The latest transactions may be there in part.
    pub torn: bool,
    /// Removed from the primary.
    pub dropped: Vec<String>,
    /// SQL to run on the primary, should it come back, or once what is missing was looked at: until
    /// then it keeps WAL for a standby that is gone.
    pub to_drop_later: Vec<String>,
    /// What the user should look at.
    pub findings: Vec<String>,
}

impl PromoteReport {
    /// The primary was asked, and has committed something that the backup has not, or could not
    /// tell; or the backup shows by itself that something is missing.
    pub fn is_incomplete(&self) -> bool {
        self.torn || self.without_primary.is_none() && self.missing != Some(Missing::default())
    }
}

/// Promotes a backup.
pub fn promote(options: &PromoteOptions) -> Result<PromoteReport, PromoteError> {
    Ready::make(options)?.hand_over(|| {})
}

/// A backup that can be promoted: nobody follows any more, and what was to be compared is the same.
/// Dropped, it is a standby as before, and a follower that made way goes on.
pub(crate) struct Ready<'a> {
    options: &'a PromoteOptions,
    names: Names,
    // Is dropped before `backup`, whose session has the lock: a follower that finds nobody at it
    // must not find the request.
    request: Request,
    backup: Connection,
    primary: Option<Primary>,
    known: Stored,
    pub report: PromoteReport,
}

impl<'a> Ready<'a> {
    /// Makes the one who follows stop, and looks whether all is there.
    pub fn make(options: &'a PromoteOptions) -> Result<Self, PromoteError> {
        let names = Names::new(&options.name)?;
        let mut backup = connect_backup(options)?;
        let known = known(&mut backup, &names)?;
        // Whoever made the backup may have been an older version.
        schema::create(&mut backup).map_err(PromoteError::query(
            Side::Backup,
            "see what it is a backup of",
        ))?;
        let mut report = PromoteReport {
            slot: known.slot.clone(),
            source: known.source.clone(),
            ..PromoteReport::default()
        };
        let mut primary = connect_primary(options, &known, &mut report)?;
        // Before anybody is asked to stop, who may have to copy them.
        if let Some(primary) = &mut primary {
            must_have_all_tables(primary, &mut backup, &names)?;
        }
        let wanted = match &mut primary {
            Some(primary) if options.wait => Some(primary.end()?),
            _ => None,
        };
        let request = Request::make(&options.to, &names.slot, wanted)?;
        report.follower_stopped = wait_for_follower(&mut backup, options, &names, wanted)?;
        let known = self::known(&mut backup, &names)?;
        report.applied = known.applied.max(known.stopped_at).unwrap_or_default();
        if !known.even {
            let text = "its workers stopped at different epochs: the latest transactions may be there in part";
            match &primary {
                Some(_) => return Err(PromoteError::Uneven),
                None => {
                    report.torn = true;
                    report.findings.push(text.to_owned());
                }
            }
        }
        if let Some(primary) = &mut primary {
            report.left_out = must_have_all_tables(primary, &mut backup, &names)?;
            look_for_missing(primary, &known, options, wanted, &mut report)?;
            if options.check {
                report.compared = compare(primary, options, &known, &report)?;
            }
        }
        Ok(Self {
            options,
            names,
            request,
            backup,
            primary,
            known,
            report,
        })
    }

    /// Makes it a database of its own. `done` is called when it is, and before what is left on the
    /// primary is cleaned up.
    pub fn hand_over(mut self, done: impl FnOnce()) -> Result<PromoteReport, PromoteError> {
        let mut report = self.report;
        report.sequences = sequences_of(&mut self.backup, self.primary.as_mut())?;
        hand_over(&mut self.backup, &self.known, &report)?;
        self.request.fulfilled();
        done();

        // From here on it is promoted, whatever happens: what goes wrong is told, not an error.
        let done_with = match &mut self.primary {
            Some(primary) => look_again(primary, &self.known, &mut report),
            None => false,
        };
        if let Some(primary) = &mut self.primary {
            match unlike(primary, &mut self.backup, &self.names) {
                Ok(findings) => report.findings.extend(findings),
                Err(error) => report
                    .findings
                    .push(format!("the columns could not be compared: {error}")),
            }
        }
        clean_primary(done_with, self.options, &self.names, &mut report);
        match find(self.options) {
            Ok(findings) => report.findings.extend(findings),
            Err(error) => report
                .findings
                .push(format!("the checks could not be made: {error}")),
        }
        Ok(report)
    }
}

/// Where the log of a primary ends that can be read from a slot.
pub(crate) fn end_of(primary: &DatabaseUrl) -> Result<Lsn, PromoteError> {
    match Primary::connect(primary)? {
        Ok(mut primary) => primary.end(),
        Err(reason) => Err(PromoteError::Gone(reason)),
    }
}

/// Removes what a promotion left on the primary that ended before it could; says what is missing in
/// the backup, and leaves the slot if that is anything.
pub(crate) fn clean_after(
    from: &DatabaseUrl,
    backup: &mut Connection,
    names: &Names,
) -> Result<Option<Missing>, PromoteError> {
    let failed = PromoteError::query(Side::Backup, "see what it was a backup of");
    let Some(known) = stored(backup, &names.slot).map_err(failed)? else {
        return Ok(None);
    };
    let mut primary = match Primary::connect(from)? {
        Ok(primary) => primary,
        Err(reason) => return Err(PromoteError::Gone(reason)),
    };
    let missing = match primary.wait_until_free(&known.slot, PromoteOptions::PATIENCE)? {
        Ok(()) => {
            let applied = known.applied.max(known.stopped_at).unwrap_or_default();
            Some(primary.missing(&known, applied)?)
        }
        // It goes when all was looked at, and nothing is missing.
        Err(primary::GONE) => Some(Missing::default()),
        Err(_) => None,
    };
    if missing.is_none_or(|missing| missing == Missing::default()) {
        slot::remove(from, names)?;
    }
    Ok(missing)
}

/// What was committed on the primary after it was looked at, and before it was over. Says whether
/// nobody needs its slot any more.
fn look_again(primary: &mut Primary, known: &Stored, report: &mut PromoteReport) -> bool {
    match report.missing {
        // The slot could not be read before.
        None => return true,
        Some(missing) if missing != Missing::default() => return false,
        Some(_) => {}
    }
    match primary.missing(known, report.applied) {
        Ok(missing) => {
            report.missing = Some(missing);
            if missing == Missing::default() {
                return true;
            }
            report.findings.push(format!(
                "the primary has {} that came while the backup was promoted: somebody still writes to it",
                match missing.transactions {
                    1 => "a transaction".to_owned(),
                    more => format!("{more} transactions"),
                }
            ));
        }
        Err(error) => {
            report.missing = None;
            report.findings.push(format!(
                "whether the primary has committed anything since cannot be seen: {error}"
            ));
        }
    }
    false
}

fn connect_backup(options: &PromoteOptions) -> Result<Connection, PromoteError> {
    let settings = session("hindcast promote")
        .set("search_path", "")
        .set("row_security", "off")
        .set("default_transaction_read_only", "off")
        .set("statement_timeout", "0")
        .set("idle_session_timeout", "0");
    Connection::connect(&options.to, &settings).map_err(|source| PromoteError::Connect {
        side: Side::Backup,
        source: Box::new(source),
    })
}

/// What the backup says about itself, if that is fit to be promoted.
pub(crate) fn known(backup: &mut Connection, names: &Names) -> Result<Stored, PromoteError> {
    let failed = PromoteError::query(Side::Backup, "see what it is a backup of");
    match stored(backup, &names.slot).map_err(&failed)? {
        None => {
            let rows = backup
                .query("SELECT slot FROM hindcast.standby ORDER BY slot")
                .ok();
            let known = rows.map(|rows| rows.iter().map(|row| row.string(0)).collect());
            Err(PromoteError::Unknown {
                slot: names.slot.clone(),
                known: known.unwrap_or_default(),
            })
        }
        Some(known) => match known.state.as_str() {
            "following" => Ok(known),
            "promoted" => Err(PromoteError::Already),
            _ => Err(PromoteError::Incomplete),
        },
    }
}

fn connect_primary(
    options: &PromoteOptions,
    known: &Stored,
    report: &mut PromoteReport,
) -> Result<Option<Primary>, PromoteError> {
    let Some(url) = &options.from else {
        report.without_primary = Some("it was not named".to_owned());
        return Ok(None);
    };
    match Primary::connect(url)? {
        Err(reason) => {
            report.without_primary = Some(reason);
            Ok(None)
        }
        Ok(mut primary) => {
            let (system, database) = primary.identity()?;
            if system != known.system_identifier || database != known.source_database {
                return Err(PromoteError::OtherPrimary {
                    given: url.to_string(),
                    known: known.source.clone(),
                });
            }
            Ok(Some(primary))
        }
    }
}

/// A table that was made since, or changed in a way that the log does not tell, is missing whatever
/// position of the log the backup has. Says what is not there and need not be.
fn must_have_all_tables(
    primary: &mut Primary,
    backup: &mut Connection,
    names: &Names,
) -> Result<Vec<LeftOut>, PromoteError> {
    let failed = |side| PromoteError::query(side, "see its tables");
    // A follower of an older version has not said which are wanted.
    let filter = state::filter(backup, &names.slot).map_err(failed(Side::Backup))?;
    let Some(filter) = filter else {
        return Ok(Vec::new());
    };
    let there = state::tables(backup, &names.slot).map_err(failed(Side::Backup))?;
    let mut compared = compared::compare(&mut primary.connection, names, &filter, &there)
        .map_err(failed(Side::Primary))?;
    compared
        .look_at_columns(backup)
        .map_err(failed(Side::Backup))?;
    let missing = compared.lacking();
    match missing.is_empty() {
        true => Ok(compared.left_out),
        false => Err(PromoteError::Tables { tables: missing }),
    }
}

/// What is asked of the one who follows. Withdrawn when dropped, so that a promotion that failed
/// stops nobody later.
struct Request {
    session: Connection,
    slot: String,
    fulfilled: bool,
}

impl Request {
    fn make(backup: &DatabaseUrl, slot: &str, at: Option<Lsn>) -> Result<Self, PromoteError> {
        let settings = ConnectOptions::named("hindcast promote")
            .set("default_transaction_read_only", "off")
            .set("idle_session_timeout", "0");
        let mut session =
            Connection::connect(backup, &settings).map_err(|source| PromoteError::Connect {
                side: Side::Backup,
                source: Box::new(source),
            })?;
        let at = at.map_or("NULL".to_owned(), |at| format!("'{at}'"));
        session
            .execute(&format!(
                "UPDATE hindcast.standby SET stop_requested_at = now(), stop_at = {at} WHERE slot = {}",
                quote_literal(slot)
            ))
            .map_err(PromoteError::query(
                Side::Backup,
                "ask the one who follows to stop",
            ))?;
        Ok(Self {
            session,
            slot: slot.to_owned(),
            fulfilled: false,
        })
    }

    fn fulfilled(mut self) {
        self.fulfilled = true;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.fulfilled {
            // If the backup is gone, the request stays: a follower that finds it makes way, and
            // withdraws it when nobody comes.
            let _ = withdraw(&mut self.session, &self.slot);
        }
    }
}

/// Waits until this session has the right to follow, and so nobody else; keeps it until the session
/// ends. Says whether somebody had it.
fn wait_for_follower(
    backup: &mut Connection,
    options: &PromoteOptions,
    names: &Names,
    wanted: Option<Lsn>,
) -> Result<bool, PromoteError> {
    let failed = PromoteError::query(Side::Backup, "wait for the one who follows");
    let mut followed = false;
    let mut last = None;
    let mut deadline = Instant::now() + options.patience;
    loop {
        if try_lock(backup, &names.slot).map_err(&failed)? {
            return Ok(followed);
        }
        followed = true;
        let applied = stored(backup, &names.slot)
            .map_err(&failed)?
            .and_then(|known| known.applied);
        // As long as it gets on it may take as long as it takes.
        if applied != last {
            last = applied;
            deadline = Instant::now() + options.patience;
        }
        if Instant::now() >= deadline {
            return Err(PromoteError::NoAnswer {
                seconds: options.patience.as_secs(),
                applied: applied.unwrap_or_default(),
                wanted,
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What the primary has that the backup has not: with `wait` there must be nothing up to `wanted`,
/// and what came later is told.
fn look_for_missing(
    primary: &mut Primary,
    known: &Stored,
    options: &PromoteOptions,
    wanted: Option<Lsn>,
    report: &mut PromoteReport,
) -> Result<(), PromoteError> {
    if let Err(why) = primary.wait_until_free(&known.slot, options.patience)? {
        report.findings.push(format!(
            "slot {} {why}: whether anything is missing cannot be seen",
            known.slot
        ));
        return match wanted {
            Some(wanted) if report.applied < wanted => Err(PromoteError::Behind {
                applied: report.applied,
                wanted,
            }),
            _ => Ok(()),
        };
    }
    let missing = primary.missing(known, report.applied)?;
    report.missing = Some(missing);
    if missing == Missing::default() {
        return Ok(());
    }
    match wanted {
        // It did not reach what was to be reached, and there is something.
        Some(wanted) if report.applied < wanted => Err(PromoteError::Behind {
            applied: report.applied,
            wanted,
        }),
        _ => {
            report.findings.push(format!(
                "the primary has {}{} transactions that are not in the backup: {}",
                if missing.more { "at least " } else { "" },
                missing.transactions,
                match options.wait {
                    true => "somebody still writes to it",
                    false => "nobody waited for them",
                }
            ));
            Ok(())
        }
    }
}

/// Compares the rows of all tables; both sides at the same time, since each takes as long as
/// reading everything takes.
fn compare(
    primary: &mut Primary,
    options: &PromoteOptions,
    known: &Stored,
    report: &PromoteReport,
) -> Result<usize, PromoteError> {
    let mut backup = connect_backup(options)?;
    let tables = state::tables(&mut backup, &known.slot)
        .map_err(PromoteError::query(Side::Backup, "see its tables"))?;
    let tables: BTreeSet<_> = tables.into_keys().collect();
    let filter = state::filter(&mut backup, &known.slot)
        .map_err(PromoteError::query(Side::Backup, "see which rows it has"))?
        .unwrap_or_default();
    let mut differing = Vec::new();
    for (schema, table) in &tables {
        let name = format!("{schema}.{table}");
        let failed = |side| PromoteError::query(side, "compare the rows of a table");
        let columns = digest::columns(&mut primary.connection, schema, table)
            .map_err(failed(Side::Primary))?;
        let Some(columns) = columns else {
            differing.push(format!("{name} is gone from the primary"));
            continue;
        };
        let quoted = format!("{}.{}", quote_identifier(schema), quote_identifier(table));
        let wanted = filter.rows_of(schema, table);
        let wanted = wanted.as_deref().unwrap_or("true");
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                digest::digest(&mut primary.connection, &quoted, &columns, wanted)
                    .map_err(failed(Side::Primary))
            });
            let ours = digest::digest(&mut backup, &quoted, &columns, "true")
                .map_err(failed(Side::Backup));
            (ours, theirs.join().expect("comparing does not panic"))
        });
        let (ours, theirs) = (ours?, theirs?);
        if ours.rows != theirs.rows {
            differing.push(format!(
                "{name} has {} rows on the primary and {} on the backup",
                theirs.rows, ours.rows
            ));
        } else if ours != theirs {
            differing.push(format!("{name} has rows that differ"));
        }
    }
    match differing.is_empty() {
        true => Ok(tables.len()),
        false => Err(PromoteError::Differs {
            tables: differing,
            moving: report
                .missing
                .is_some_and(|missing| missing.transactions > 0),
        }),
    }
}

fn sequences_of(
    backup: &mut Connection,
    primary: Option<&mut Primary>,
) -> Result<Sequences, PromoteError> {
    let failed = |side| PromoteError::query(side, "see its sequences");
    let Some(primary) = primary else {
        return sequences::from_columns(backup).map_err(failed(Side::Backup));
    };
    let theirs = sequences::of_primary(&mut primary.connection).map_err(failed(Side::Primary))?;
    sequences::fit(backup, theirs).map_err(failed(Side::Backup))
}

/// Nobody takes snapshots for readers any more, unless the database is somebody else's backup as
/// well; ordinary ones do now.
const FORGET_SNAPSHOTS: &str = "BEGIN \
    IF NOT EXISTS (SELECT FROM hindcast.standby WHERE state <> 'promoted') THEN \
      DROP FUNCTION IF EXISTS hindcast.standby_snapshot(text); \
      DROP TABLE IF EXISTS hindcast.standby_snapshots; \
    END IF; END";

/// The transaction after which it is a database of its own.
fn hand_over(
    backup: &mut Connection,
    known: &Stored,
    report: &PromoteReport,
) -> Result<(), PromoteError> {
    let failed = PromoteError::query(Side::Backup, "set its sequences");
    let mut pipeline = backup.pipeline();
    pipeline.run_sql("BEGIN");
    pipeline.run_sql("SET LOCAL synchronous_commit = on");
    for sql in sequences::set(&report.sequences.set) {
        pipeline.run_sql(&sql);
    }
    pipeline.run_sql(&format!(
        "UPDATE hindcast.standby SET state = 'promoted', promoted_at = now(), fenced_at = NULL, stopped_at = '{}' WHERE slot = {}",
        report.applied,
        quote_literal(&known.slot)
    ));
    pipeline.run_sql(&format!("DO {}", quote_literal(FORGET_SNAPSHOTS)));
    // It was the primary before, and its users were kept from writing to it.
    if known.fenced {
        pipeline.run_sql(fence::LOWER);
    }
    pipeline.run_sql("COMMIT");
    pipeline.finish().map(drop).map_err(failed)
}

/// Slot and publication are of no use any more, and the slot would keep WAL for ever. Unless
/// something is missing: then the slot is where it can still be read.
fn clean_primary(
    done_with: bool,
    options: &PromoteOptions,
    names: &Names,
    report: &mut PromoteReport,
) {
    let later = vec![
        format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {}",
            quote_literal(&names.slot)
        ),
        format!(
            "DROP PUBLICATION IF EXISTS {}",
            quote_identifier(&names.publication)
        ),
    ];
    let (Some(url), true) = (&options.from, done_with) else {
        report.to_drop_later = later;
        return;
    };
    match slot::remove(url, names) {
        Ok(dropped) => report.dropped = dropped,
        Err(error) => {
            report.to_drop_later = later;
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            report.findings.push(match (&error, cause) {
                (SlotError::Active { .. }, _) | (_, None) => {
                    format!("slot and publication are still on the primary: {error}")
                }
                (_, Some(cause)) => {
                    format!("slot and publication are still on the primary: {error}: {cause}")
                }
            });
        }
    }
}

/// What the tables of both do not have in common.
fn unlike(
    primary: &mut Primary,
    backup: &mut Connection,
    names: &Names,
) -> Result<Vec<String>, hindcast_pg::Error> {
    let copied = state::tables(backup, &names.slot)?;
    findings::unlike(&mut primary.connection, backup, &copied)
}

fn find(options: &PromoteOptions) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // As its new users will find it: nothing is set for this session.
    let mut session = Connection::connect(&options.to, &ConnectOptions::named("hindcast promote"))?;
    Ok(findings::findings(&mut session)?)
}
