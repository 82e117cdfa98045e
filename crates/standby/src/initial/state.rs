//! What a backup says about itself: whose it is, and whether it is being copied, follows, or was
//! promoted.
//!
//! ```text
//!  (nothing) ──▶ copying ──▶ following ──▶ promoted
//!                 ▲   │
//!                 └───┘ a copy that was interrupted begins again
//! ```
//!
//! Each step is written in the transaction that makes it true.

use hindcast_pg::{
    ConnectOptions, Connection, DatabaseUrl, Error, Lsn, Row, quote_identifier, quote_literal,
};

use super::error::{InitialError, Side, Unfit};
use crate::backup::schema;
use crate::source::compared::{Copied, TableName};
use crate::source::shape::Shape;
use crate::source::{Names, NoRowFilter, Primary, ReplicatedTable, TableFilter};

/// Whose backup it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub slot: String,
    pub publication: String,
    /// The primary's URL without its password, for people.
    pub source: String,
    pub system_identifier: String,
    pub source_database: String,
}

impl Identity {
    pub fn new(primary: &Primary, url: &DatabaseUrl, names: &Names) -> Self {
        Self {
            slot: names.slot.clone(),
            publication: names.publication.clone(),
            source: url.to_string(),
            system_identifier: primary.system_identifier.clone(),
            source_database: primary.database.clone(),
        }
    }
}

/// What there is to do with a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It knows nothing of this slot.
    Copy,
    /// A copy was interrupted: its slot, which was made at this point, is of no use any more, and
    /// what it copied is removed by the next one.
    CopyAgain {
        made_at: Lsn,
    },
    Follow,
}

/// Looks at a backup, which this changes at most by making the (empty) tables of the schema
/// `hindcast`.
pub fn start(backup: &mut Connection, identity: &Identity) -> Result<Start, InitialError> {
    let failed = InitialError::query(Side::Backup, "see what it is a backup of");
    schema::create(backup).map_err(&failed)?;
    let rows = backup
        .query(&format!(
            "SELECT state, system_identifier, source_database, source, (SELECT count(*) FROM hindcast.standby_tables t WHERE t.slot = s.slot), \
                    coalesce(consistent_point, '0/0') \
               FROM hindcast.standby s WHERE slot = {}",
            quote_literal(&identity.slot)
        ))
        .map_err(&failed)?;
    let Some(row) = rows.first() else {
        return Ok(Start::Copy);
    };
    let ours = row.text(1) == Some(&identity.system_identifier)
        && row.text(2) == Some(&identity.source_database);
    match row.text(0) {
        // Announced, and nothing done.
        Some("copying") if !ours && row.text(4) == Some("0") => Ok(Start::Copy),
        Some("promoted") => Err(InitialError::Unfit(Unfit::Promoted {
            slot: identity.slot.clone(),
        })),
        _ if !ours => Err(InitialError::Unfit(Unfit::OtherPrimary {
            source_url: row.string(3),
        })),
        Some("copying") => Ok(Start::CopyAgain {
            made_at: row.parse(5).map_err(failed)?,
        }),
        _ => Ok(Start::Follow),
    }
}

/// Says on the backup which slot will be made for it: to be called before the one is made that
/// stays. Should the copy end before it has begun, the next start finds [`Start::CopyAgain`] and
/// can tell whether a slot of this name is its own.
pub fn announce(
    backup: &mut Connection,
    identity: &Identity,
    made_at: Lsn,
) -> Result<(), InitialError> {
    // What an interrupted copy has left to be removed stays noted.
    let sql = format!(
        "{} ON CONFLICT (slot) DO UPDATE SET {TAKE_OVER} WHERE standby.state = 'copying'",
        insert(identity, false, made_at)
    );
    backup
        .execute(&sql)
        .map(drop)
        .map_err(InitialError::query(Side::Backup, "begin the copy"))
}

const TAKE_OVER: &str = "publication = excluded.publication, source = excluded.source, \
    system_identifier = excluded.system_identifier, source_database = excluded.source_database, \
    consistent_point = excluded.consistent_point";

fn insert(identity: &Identity, schema_made: bool, made_at: Lsn) -> String {
    format!(
        "INSERT INTO hindcast.standby (slot, publication, source, system_identifier, source_database, state, schema_made, consistent_point) \
         VALUES ({}, {}, {}, {}, {}, 'copying', {schema_made}, '{made_at}')",
        quote_literal(&identity.slot),
        quote_literal(&identity.publication),
        quote_literal(&identity.source),
        quote_literal(&identity.system_identifier),
        quote_literal(&identity.source_database),
    )
}

/// The right to follow into a backup under a slot's name: one process has it at a time, for as long
/// as its session lasts.
pub struct Hold {
    session: Connection,
    slot: String,
}

/// What somebody who wants to promote has asked of the one who follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// Not before everything up to here is applied.
    pub at: Option<Lsn>,
}

/// What becomes of a promotion that a follower made way for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Somebody is at it.
    UnderWay,
    Done,
    /// It failed, and said so.
    Withdrawn,
    /// It was asked for, and nobody is there.
    Abandoned,
}

/// Looks at it from a session of any kind.
pub fn promotion(session: &mut Connection, slot: &str) -> Result<Promotion, Error> {
    let key = key(slot);
    let rows = session.query(&format!(
        "SELECT state = 'promoted', stop_requested_at IS NOT NULL, EXISTS (SELECT FROM pg_catalog.pg_locks \
            WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = {key} \
              AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())) \
           FROM hindcast.standby WHERE slot = {}",
        quote_literal(slot)
    ))?;
    let is = |column| rows.first().is_some_and(|row| row.is_true(column));
    Ok(match (is(0), is(1), is(2)) {
        (true, ..) => Promotion::Done,
        (false, false, _) => Promotion::Withdrawn,
        (false, true, true) => Promotion::UnderWay,
        (false, true, false) => Promotion::Abandoned,
    })
}

/// Withdraws what somebody asked for who is gone.
pub fn withdraw(session: &mut Connection, slot: &str) -> Result<(), Error> {
    session
        .execute(&format!(
            "UPDATE hindcast.standby SET stop_requested_at = NULL, stop_at = NULL WHERE slot = {} AND state = 'following'",
            quote_literal(slot)
        ))
        .map(drop)
}

/// The key of the advisory lock, as SQL.
fn key(slot: &str) -> String {
    let name = quote_literal(&format!("hindcast standby {slot}"));
    format!("pg_catalog.hashtextextended({name}, 0)")
}

impl Hold {
    /// `None` if another process has it.
    pub fn take(backup: &DatabaseUrl, slot: &str) -> Result<Option<Self>, InitialError> {
        let failed = InitialError::query(Side::Backup, "see whether anybody follows into it");
        let options = ConnectOptions::named("hindcast standby")
            .set("default_transaction_read_only", "off")
            .set("idle_session_timeout", "0")
            .set("statement_timeout", "0");
        let mut session =
            Connection::connect(backup, &options).map_err(InitialError::connect(Side::Backup))?;
        let taken = try_lock(&mut session, slot).map_err(&failed)?;
        Ok(taken.then(|| Self {
            session,
            slot: slot.to_owned(),
        }))
    }

    /// Whether it is time to stop. An error means that the hold may be lost, and another may
    /// follow.
    pub fn stop_requested(&mut self) -> Result<Option<StopRequest>, Error> {
        let rows = self.session.query(&format!(
            "SELECT stop_at FROM hindcast.standby WHERE slot = {} AND stop_requested_at IS NOT NULL",
            quote_literal(&self.slot)
        ))?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let at = match row.text(0) {
            Some(_) => Some(row.parse(0)?),
            None => None,
        };
        Ok(Some(StopRequest { at }))
    }

    /// Gives it up, saying that all of the primary's log up to `applied` is applied and durable:
    /// what [`StopRequest`] asks for.
    pub fn stopped(mut self, applied: Lsn) -> Result<(), Error> {
        self.session
            .execute(&format!(
                "UPDATE hindcast.standby SET stopped_at = '{applied}' WHERE slot = {}",
                quote_literal(&self.slot)
            ))
            .map(drop)
    }
}

pub(crate) fn try_lock(session: &mut Connection, slot: &str) -> Result<bool, Error> {
    let sql = format!("SELECT pg_catalog.pg_try_advisory_lock({})", key(slot));
    let rows = session.query(&sql)?;
    Ok(rows.first().is_some_and(|row| row.is_true(0)))
}

/// What [`crate::promote`] needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub slot: String,
    pub publication: String,
    pub source: String,
    pub system_identifier: String,
    pub source_database: String,
    pub state: String,
    /// Where the follower that stopped last has said that it got to.
    pub stopped_at: Option<Lsn>,
    /// What all its workers have applied; `None` before anything was.
    pub applied: Option<Lsn>,
    /// All workers are at the same epoch. If not, the backup's state is none that the primary had.
    pub even: bool,
    /// Since when a switchover to it is under way.
    pub switchover: Option<String>,
    /// That switchover makes, or has made, what the old primary is to follow.
    pub way_back: bool,
    /// When all tables were compared last with the primary, and up to where: for people.
    pub checked: Option<String>,
    /// How many rows have differed since it was followed last, and were repaired.
    pub differed: u64,
    pub repaired: u64,
    /// Its users are kept from writing to it, as it was the primary before.
    pub fenced: bool,
}

/// What a backup says about a slot; `None` if it does not know it.
pub fn stored(backup: &mut Connection, slot: &str) -> Result<Option<Stored>, Error> {
    let there = backup.query("SELECT pg_catalog.to_regclass('hindcast.standby') IS NOT NULL AND pg_catalog.to_regclass('hindcast.standby_progress') IS NOT NULL")?;
    if !there.first().is_some_and(|row| row.is_true(0)) {
        return Ok(None);
    }
    let rows = backup.query(&format!(
        "SELECT publication, source, system_identifier, source_database, state, stopped_at, p.applied, coalesce(p.even, true), \
                pg_catalog.to_jsonb(s) ->> 'switchover_at', pg_catalog.to_jsonb(s) ->> 'fenced_at' IS NOT NULL, \
                coalesce((pg_catalog.to_jsonb(s) ->> 'way_back')::boolean, false), \
                (pg_catalog.to_jsonb(s) ->> 'checked_at') || ', up to ' || (pg_catalog.to_jsonb(s) ->> 'checked_lsn'), \
                coalesce((pg_catalog.to_jsonb(s) ->> 'check_differed')::bigint, 0), coalesce((pg_catalog.to_jsonb(s) ->> 'check_repaired')::bigint, 0) \
           FROM hindcast.standby s, \
                LATERAL (SELECT min(w.end_lsn) AS applied, min(w.epoch) = max(w.epoch) AS even \
                   FROM (SELECT DISTINCT ON (worker) worker, epoch, end_lsn FROM hindcast.standby_progress p \
                          WHERE p.slot = s.slot ORDER BY worker, epoch DESC) w \
                  WHERE w.worker < (SELECT workers FROM hindcast.standby_progress p WHERE p.slot = s.slot ORDER BY epoch DESC LIMIT 1)) p \
          WHERE slot = {}",
        quote_literal(slot)
    ))?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let lsn = |column| match row.text(column) {
        Some(_) => row.parse(column).map(Some),
        None => Ok(None),
    };
    Ok(Some(Stored {
        slot: slot.to_owned(),
        publication: row.string(0),
        source: row.string(1),
        system_identifier: row.string(2),
        source_database: row.string(3),
        state: row.string(4),
        stopped_at: lsn(5)?,
        applied: lsn(6)?,
        even: row.is_true(7),
        switchover: row.text(8).map(str::to_owned),
        fenced: row.is_true(9),
        way_back: row.is_true(10),
        checked: row.text(11).map(str::to_owned),
        differed: row.parse(12)?,
        repaired: row.parse(13)?,
    }))
}

/// From where on the log is for a table that is yet to be copied: from nowhere.
pub(crate) const NOT_YET: Lsn = Lsn(u64::MAX);

/// The tables whose rows a backup has.
pub fn tables(backup: &mut Connection, slot: &str) -> Result<Copied, Error> {
    tables_where(
        backup,
        slot,
        &format!("joined_at IS DISTINCT FROM '{NOT_YET}'"),
    )
}

/// The tables that are copies of the primary's, as they are now or were.
pub fn copies(backup: &mut Connection, slot: &str) -> Result<Copied, Error> {
    let condition = format!("(joined_at IS DISTINCT FROM '{NOT_YET}' OR shape IS NOT NULL)");
    tables_where(backup, slot, &condition)
}

fn tables_where(backup: &mut Connection, slot: &str, condition: &str) -> Result<Copied, Error> {
    let rows = backup.query(&format!(
        "SELECT schema_name, table_name, shape FROM hindcast.standby_tables WHERE slot = {} AND {condition}",
        quote_literal(slot)
    ))?;
    let table = |row: &Row| {
        let shape = row.text(2).and_then(|shape| shape.parse().ok());
        ((row.string(0), row.string(1)), shape)
    };
    Ok(rows.iter().map(table).collect())
}

/// Notes the shapes that tables have now, where it made no rows others.
pub fn note_shapes(
    backup: &mut Connection,
    slot: &str,
    copied: &Copied,
    tables: &[ReplicatedTable],
) -> Result<(), Error> {
    for table in tables {
        let (schema, name) = (table.schema.clone(), table.name.clone());
        let (schema_sql, name_sql) = (quote_literal(&schema), quote_literal(&name));
        let Some(Some(before)) = copied.get(&(schema, name)) else {
            continue;
        };
        let shape = before.followed_by(&table.shape);
        backup.execute(&format!(
            "UPDATE hindcast.standby_tables SET shape = '{shape}' WHERE slot = {} AND schema_name = {schema_sql} AND table_name = {name_sql}",
            quote_literal(slot)
        ))?;
    }
    Ok(())
}

/// SQL by which tables get other names, on the backup and in what is noted. They may exchange them.
pub(super) fn rename(slot: &str, renames: &[(TableName, TableName)]) -> String {
    let slot = quote_literal(slot);
    let note = |(schema, name): (&str, &str), (new_schema, new_name): (&str, &str)| {
        let [schema, name, new_schema, new_name] =
            [schema, name, new_schema, new_name].map(quote_literal);
        format!(
            "UPDATE hindcast.standby_tables SET schema_name = {new_schema}, table_name = {new_name} \
              WHERE slot = {slot} AND schema_name = {schema} AND table_name = {name}"
        )
    };
    let table = |schema: &str, name: &str| {
        format!("{}.{}", quote_identifier(schema), quote_identifier(name))
    };
    let mut statements = Vec::new();
    let meanwhile = |n: usize| format!("hindcast_renamed_{n}");
    for (n, ((schema, name), _)) in renames.iter().enumerate() {
        let between = meanwhile(n);
        let from = table(schema, name);
        statements.push(format!("ALTER TABLE {from} RENAME TO {between}"));
        statements.push(note((schema, name), (schema, &between)));
    }
    for (n, ((schema, _), (new_schema, new_name))) in renames.iter().enumerate() {
        let between = meanwhile(n);
        if schema != new_schema {
            let (from, to) = (table(schema, &between), quote_identifier(new_schema));
            statements.push(format!("CREATE SCHEMA IF NOT EXISTS {to}"));
            statements.push(format!("ALTER TABLE {from} SET SCHEMA {to}"));
        }
        let (from, to) = (table(new_schema, &between), quote_identifier(new_name));
        statements.push(format!("ALTER TABLE {from} RENAME TO {to}"));
        statements.push(note((schema, &between), (new_schema, new_name)));
    }
    statements.join("; ")
}

/// What is noted of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// From where on the log is for it; `None`: from where it is followed.
    pub joined_at: Option<Lsn>,
    /// On the primary.
    pub oid: Option<u32>,
}

pub fn noted(
    backup: &mut Connection,
    slot: &str,
    (schema, name): (&str, &str),
) -> Result<Noted, Error> {
    let rows = backup.query(&format!(
        "SELECT joined_at, shape FROM hindcast.standby_tables WHERE slot = {} AND schema_name = {} AND table_name = {}",
        quote_literal(slot),
        quote_literal(schema),
        quote_literal(name)
    ))?;
    let Some(row) = rows.first() else {
        return Ok(Noted::default());
    };
    let shape: Option<Shape> = row.text(1).and_then(|shape| shape.parse().ok());
    Ok(Noted {
        joined_at: row.text(0).map(|_| row.parse(0)).transpose()?,
        oid: shape.map(|shape| shape.oid),
    })
}

/// Notes tables that are to be copied: the log is for them from the end of the copy on. To be done
/// before the log has anything of them.
pub fn await_copy(
    backup: &mut Connection,
    slot: &str,
    tables: &[ReplicatedTable],
) -> Result<(), Error> {
    if tables.is_empty() {
        return Ok(());
    }
    let row = |table: &ReplicatedTable| row(slot, table, &format!("'{NOT_YET}'"));
    backup
        .execute(&format!(
            "INSERT INTO hindcast.standby_tables (slot, schema_name, table_name, joined_at) VALUES {} \
             ON CONFLICT (slot, schema_name, table_name) DO UPDATE SET joined_at = excluded.joined_at",
            tables.iter().map(row).collect::<Vec<_>>().join(", ")
        ))
        .map(drop)
}

/// What is noted of a table, with this behind its name.
fn row(slot: &str, table: &ReplicatedTable, more: &str) -> String {
    format!(
        "({}, {}, {}, {more})",
        quote_literal(slot),
        quote_literal(&table.schema),
        quote_literal(&table.name)
    )
}

/// Part of the transaction that copies tables which appeared while the log was followed.
pub(super) fn join(slot: &str, tables: &[ReplicatedTable], at: Lsn) -> String {
    let row = |table: &ReplicatedTable| row(slot, table, &format!("'{at}', '{}'", table.shape));
    format!(
        "INSERT INTO hindcast.standby_tables (slot, schema_name, table_name, joined_at, shape) VALUES {} \
         ON CONFLICT (slot, schema_name, table_name) DO UPDATE SET joined_at = excluded.joined_at, shape = excluded.shape",
        tables.iter().map(row).collect::<Vec<_>>().join(", ")
    )
}

/// Notes which tables are wanted: a promotion asks for it.
pub fn note_filter(backup: &mut Connection, slot: &str, filter: &TableFilter) -> Result<(), Error> {
    let array = |texts: &mut dyn Iterator<Item = String>| {
        let texts: Vec<_> = texts.map(|text| quote_literal(&text)).collect();
        format!("ARRAY[{}]::text[]", texts.join(", "))
    };
    let included = array(&mut filter.include.iter().cloned());
    let excluded = array(&mut filter.exclude.iter().cloned());
    let rows = array(&mut filter.rows.iter().map(ToString::to_string));
    let slot = quote_literal(slot);
    backup
        .execute(&format!(
            "UPDATE hindcast.standby SET included = {included}, excluded = {excluded}, row_filters = {rows} WHERE slot = {slot} \
                AND (included, excluded, row_filters) IS DISTINCT FROM ({included}, {excluded}, {rows})"
        ))
        .map(drop)
}

/// Which tables are wanted, as the one who followed last has said; `None` if nobody has.
pub fn filter(backup: &mut Connection, slot: &str) -> Result<Option<TableFilter>, Error> {
    let rows = backup.query(&format!(
        "SELECT pg_catalog.array_to_string(included, E'\\x01'), pg_catalog.array_to_string(excluded, E'\\x01'), \
                pg_catalog.array_to_string(row_filters, E'\\x01') \
           FROM hindcast.standby WHERE slot = {} AND included IS NOT NULL AND excluded IS NOT NULL",
        quote_literal(slot)
    ))?;
    let texts = |row: &Row, column| {
        let text = row.string(column);
        let texts = text.split('\u{1}').filter(|text| !text.is_empty());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(TableFilter {
        include: texts(row, 0),
        exclude: texts(row, 1),
        // Of nobody who followed without.
        rows: texts(row, 2)
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, NoRowFilter>>()
            .map_err(|error| Error::Protocol(error.to_string()))?,
    }))
}

/// Part of the transaction that makes the tables, or that found them fit.
pub(crate) fn copying(
    identity: &Identity,
    schema_made: bool,
    tables: &[ReplicatedTable],
    made_at: Lsn,
) -> String {
    let slot = quote_literal(&identity.slot);
    let mut sql = format!(
        "{} ON CONFLICT (slot) DO UPDATE SET {TAKE_OVER}, schema_made = excluded.schema_made, started_at = now(), \
             stop_requested_at = NULL, stop_at = NULL, stopped_at = NULL; \
         DELETE FROM hindcast.standby_progress WHERE slot = {slot}; \
         DELETE FROM hindcast.standby_labels WHERE slot = {slot}; \
         DELETE FROM hindcast.standby_tables WHERE slot = {slot}; ",
        insert(identity, schema_made, made_at)
    );
    if !tables.is_empty() {
        let rows: Vec<String> = tables
            .iter()
            .map(|table| row(&identity.slot, table, &format!("'{}'", table.shape)))
            .collect();
        sql.push_str(&format!(
            "INSERT INTO hindcast.standby_tables (slot, schema_name, table_name, shape) VALUES {}",
            rows.join(", ")
        ));
    }
    sql
}

/// Part of the transaction that ends the copy. Affects one row, or the copy is not ours any more.
pub(crate) fn following(slot: &str, consistent_point: Lsn) -> String {
    let slot = quote_literal(slot);
    format!(
        "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn, commit_time) \
         SELECT slot, 0, 1, 0, '{consistent_point}', '{consistent_point}', started_at FROM hindcast.standby WHERE slot = {slot}; \
         UPDATE hindcast.standby SET state = 'following', following_since = now() \
          WHERE slot = {slot} AND state = 'copying'"
    )
}
