//! What is looked at before anything is touched.

use std::collections::HashSet;

use hindcast_pg::{
    ConnectError, ConnectOptions, Connection, DatabaseUrl, Error, Row, quote_identifier,
    quote_literal,
};

use super::publication::{Published, published};
use super::session::session;
use super::tables::{ReplicatedTable, TableFilter, Tables, tables};

/// A primary that can be followed.
#[derive(Debug)]
pub struct Primary {
    /// As in `150004`.
    pub version: u32,
    /// Tells one cluster from every other.
    pub system_identifier: String,
    pub database: String,
    pub tables: Vec<ReplicatedTable>,
    /// What the user should know, and can live with.
    pub notices: Vec<String>,
}

/// Why a primary cannot be followed. Nothing was changed on it.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("the primary cannot be reached")]
    Connect(#[source] ConnectError),
    #[error("the primary does not answer what is asked of it")]
    Query(#[source] Error),
    #[error(
        "the primary is Postgres {0}; logical replication as it is used here needs 14 or newer"
    )]
    Version(String),
    #[error("wal_level is {0} on the primary: its WAL lacks what logical replication needs")]
    WalLevel(String),
    #[error("the role {0} may not replicate")]
    Role(String),
    #[error("the role {role} may not create a publication in the database {database}")]
    Create { role: String, database: String },
    #[error(
        "the role {role} may not publish {}: it does not own {}",
        list(tables),
        them(tables)
    )]
    Owner {
        role: String,
        tables: Vec<String>,
        /// What somebody who may has to run.
        sql: String,
    },
    #[error("the role {role} may not read {}", list(tables))]
    Read { role: String, tables: Vec<String> },
    /// The copy would lack them, and nobody would know.
    #[error("row security may hide rows of {} from the role {role}", list(tables))]
    RowSecurity { role: String, tables: Vec<String> },
    #[error("all {0} replication slots of the primary are in use")]
    Slots(u64),
    #[error("all {0} WAL senders of the primary are in use")]
    Senders(u64),
    #[error("the server of --from is itself a standby in recovery")]
    Recovery,
    /// Publishing these would make their next UPDATE or DELETE fail on the primary, and there were
    /// some.
    #[error(
        "{} no primary key or other replica identity that the log could use to say which row of {} was changed, and rows were updated or deleted",
        without(tables),
        them(tables)
    )]
    NoIdentity { tables: Vec<String> },
    /// Neither here nor by the primary anything could be refused later.
    #[error(
        "the key of {} has a generated column, which is not in the log: an update would not say of which row it is",
        list(tables)
    )]
    ComputedIdentity { tables: Vec<String> },
    #[error("no table fits {}", list(patterns))]
    NoMatch { patterns: Vec<String> },
    #[error("there is no table to replicate")]
    NoTables,
}

impl PreflightError {
    /// Trying again may be enough.
    pub fn is_transient(&self) -> bool {
        match self {
            PreflightError::Connect(error) => error.is_transient(),
            PreflightError::Query(error) => error.is_connection(),
            // The session of a predecessor that the primary has not missed yet may be among them.
            PreflightError::Senders(_) => true,
            _ => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            PreflightError::Connect(error) => error.hint(),
            PreflightError::Query(_) => "the primary's log says more".to_owned(),
            PreflightError::Version(_) => "follow a newer primary".to_owned(),
            PreflightError::WalLevel(_) => "on the primary: ALTER SYSTEM SET wal_level = 'logical'; then restart it".to_owned(),
            PreflightError::Role(role) => {
                format!("as a superuser on the primary: ALTER ROLE {} REPLICATION", quote_identifier(role))
            }
            PreflightError::Create { role, database } => format!(
                "as a superuser on the primary: GRANT CREATE ON DATABASE {} TO {}",
                quote_identifier(database),
                quote_identifier(role)
            ),
            PreflightError::Owner { sql, .. } => {
                format!("let the tables' owner follow, or run as a superuser on the primary: {sql}")
            }
            PreflightError::Read { role, tables } => format!(
                "GRANT SELECT ON {} TO {role} (and USAGE on the schema), or leave out: {}",
                tables.join(", "),
                excluded(tables),
                role = quote_identifier(role)
            ),
            PreflightError::RowSecurity { role, tables } => format!(
                "as a superuser on the primary: ALTER ROLE {} BYPASSRLS; or leave out: {}",
                quote_identifier(role),
                excluded(tables)
            ),
            PreflightError::Slots(_) => "drop slots that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots and restart the primary".to_owned(),
            PreflightError::Senders(_) => "end replication sessions that are not needed (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart the primary".to_owned(),
            PreflightError::Recovery => "give the URL of the primary itself".to_owned(),
            PreflightError::NoIdentity { tables } => format!(
                "give each of them a primary key, or let every update log the whole old row: {} Or leave out: {}",
                logged_whole(tables),
                excluded(tables)
            ),
            PreflightError::ComputedIdentity { tables } => format!(
                "let every update log the whole old row: {} Or leave out: {}",
                logged_whole(tables),
                excluded(tables)
            ),
            PreflightError::NoMatch { .. } => "patterns are like public.orders, 'sales.*' or '*_log'; \\dt shows the tables".to_owned(),
            PreflightError::NoTables => "check the database of --from, and --table and --exclude-table".to_owned(),
        }
    }
}

impl From<Error> for PreflightError {
    fn from(error: Error) -> Self {
        PreflightError::Query(error)
    }
}

/// As options of the command.
fn excluded(tables: &[String]) -> String {
    let option = |table: &String| format!("--exclude-table {}", table.replace('"', ""));
    tables.iter().map(option).collect::<Vec<_>>().join(" ")
}

/// As SQL.
fn logged_whole(tables: &[String]) -> String {
    let full = |table: &String| format!("ALTER TABLE {table} REPLICA IDENTITY FULL;");
    tables.iter().map(full).collect::<Vec<_>>().join(" ")
}

/// The names, a few of them if there are many.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let mut text = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text += &format!(" and {more} more");
    }
    text
}

fn without(tables: &[String]) -> String {
    let verb = if tables.len() == 1 { "has" } else { "have" };
    format!("{} {verb}", list(tables))
}

fn them(tables: &[String]) -> &'static str {
    if tables.len() == 1 { "it" } else { "them" }
}

const SERVER: &str = "\
SELECT current_setting('wal_level'), pg_catalog.pg_is_in_recovery(), (SELECT system_identifier FROM pg_catalog.pg_control_system()), \
       current_user, r.rolreplication OR r.rolsuper, r.rolsuper, \
       current_setting('max_replication_slots')::bigint, (SELECT count(*) FROM pg_catalog.pg_replication_slots), \
       current_setting('max_wal_senders')::bigint, (SELECT count(*) FROM pg_catalog.pg_stat_get_wal_senders()), \
       current_database(), pg_catalog.has_database_privilege(current_database(), 'CREATE'), \
       EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = ";

/// Looks whether a primary can be followed, and what there is. `slot` is the one that will be used;
/// it may be there already.
pub fn preflight(
    url: &DatabaseUrl,
    filter: &TableFilter,
    slot: &str,
) -> Result<Primary, PreflightError> {
    let mut connection =
        Connection::connect(url, &session("hindcast standby")).map_err(PreflightError::Connect)?;
    let version = connection.server_version();
    if version < 140_000 {
        let text = connection.parameter("server_version").unwrap_or("unknown");
        return Err(PreflightError::Version(text.to_owned()));
    }
    let sql = format!(
        "{SERVER}{}) FROM pg_catalog.pg_roles r WHERE r.rolname = current_user",
        quote_literal(slot)
    );
    let rows = connection.query(&sql)?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("a role that does not exist".to_owned()))?;
    let role = row.string(3);
    if row.is_true(1) {
        return Err(PreflightError::Recovery);
    }
    if row.text(0) != Some("logical") {
        return Err(PreflightError::WalLevel(row.string(0)));
    }
    let (superuser, slot_exists) = (row.is_true(5), row.is_true(12));
    let senders = must_have_room(row, slot_exists)?;
    if !row.is_true(4) {
        may_replicate(url, &role, senders)?;
    }
    let primary = Primary {
        version,
        system_identifier: row.string(2),
        database: row.string(10),
        tables: Vec::new(),
        notices: Vec::new(),
    };
    // One look at the catalog: the columns have to be those of the tables.
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let mut found = tables(&mut connection, filter)?;
    let published = published(&mut connection, slot)?;
    let mut notices: Vec<String> = found
        .left_out
        .iter()
        .map(|(table, why)| format!("{table} is not replicated: {why}"))
        .collect();
    match slot_exists {
        // What somebody did to other tables since must not keep us from following on with ours.
        true => notices.extend(leave_out_new(&mut found, &published)),
        false => {
            check_tables(filter, &found)?;
            let bare = found.tables.iter().filter(|table| !table.has_identity());
            notices.extend(bare.map(ReplicatedTable::without_identity));
            if !superuser {
                check_rights(
                    &mut connection,
                    &role,
                    slot,
                    &found,
                    &published,
                    row.is_true(11),
                )?;
            }
        }
    }
    Ok(Primary {
        notices,
        tables: found.tables,
        ..primary
    })
}

/// For a slot, and for a session that reads it; says how many of these there may be.
fn must_have_room(row: &Row, slot_exists: bool) -> Result<u64, PreflightError> {
    let (slots, slots_used): (u64, u64) = (row.parse(6)?, row.parse(7)?);
    if !slot_exists && slots_used >= slots {
        return Err(PreflightError::Slots(slots));
    }
    let (senders, senders_used): (u64, u64) = (row.parse(8)?, row.parse(9)?);
    if senders_used >= senders {
        return Err(PreflightError::Senders(senders));
    }
    Ok(senders)
}

/// Whether a role may replicate that does not have the attribute: hosts give that right in ways of
/// their own, so it is tried.
fn may_replicate(url: &DatabaseUrl, role: &str, senders: u64) -> Result<(), PreflightError> {
    let options = ConnectOptions {
        replication: true,
        ..session("hindcast standby")
    };
    let tried = Connection::connect(url, &options);
    tried.map(drop).map_err(
        |error| match error.server().map(|error| error.code.as_str()) {
            Some("42501") => PreflightError::Role(role.to_owned()),
            Some("53300") => PreflightError::Senders(senders),
            _ => PreflightError::Connect(error),
        },
    )
}

/// An update of a table without an identity fails once it is published: not here, on the primary,
/// for its users. One whose rows are only inserted is published, as everybody publishes it.
fn check_tables(filter: &TableFilter, found: &Tables) -> Result<(), PreflightError> {
    let unmatched = filter.without_match(found);
    if !unmatched.is_empty() {
        let patterns = unmatched.into_iter().map(str::to_owned).collect();
        return Err(PreflightError::NoMatch { patterns });
    }
    if found.tables.is_empty() {
        return Err(PreflightError::NoTables);
    }
    let refused = found
        .tables
        .iter()
        .filter(|table| !table.may_be_published());
    let (computed, bare): (Vec<_>, Vec<_>) =
        refused.partition(|table| table.has_computed_identity());
    if !bare.is_empty() {
        let tables = names(bare);
        return Err(PreflightError::NoIdentity { tables });
    }
    if !computed.is_empty() {
        let tables = names(computed);
        return Err(PreflightError::ComputedIdentity { tables });
    }
    Ok(())
}

/// For a standby that is there already: tables without an identity are no reason to stop, as long
/// as they are not published against their users.
fn leave_out_new(found: &mut Tables, published: &Published) -> Vec<String> {
    let mut notices = Vec::new();
    found.tables.retain(|table| {
        let is_published = published.has(table);
        match (table.has_identity(), is_published) {
            (false, true) => notices.push(table.without_identity()),
            (false, false) if !table.may_be_published() => notices.push(format!(
                "{table} is not replicated: {}",
                table.unpublished()
            )),
            _ => {}
        }
        is_published || table.may_be_published()
    });
    notices
}

/// What a role may not do that is no superuser.
fn check_rights(
    connection: &mut Connection,
    role: &str,
    slot: &str,
    found: &Tables,
    published: &Published,
    may_create: bool,
) -> Result<(), PreflightError> {
    check_reading(connection, role, found)?;
    // Somebody may have made it for us: then it does not matter what the role may.
    if found.tables.iter().all(|table| published.has(table)) {
        return Ok(());
    }
    if !may_create {
        let rows = connection.query("SELECT current_database()")?;
        return Err(PreflightError::Create {
            role: role.to_owned(),
            database: rows.first().map(|row| row.string(0)).unwrap_or_default(),
        });
    }
    check_owner(connection, role, slot, found)
}

fn check_reading(
    connection: &mut Connection,
    role: &str,
    found: &Tables,
) -> Result<(), PreflightError> {
    let unreadable = unlike(
        connection,
        found,
        "pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')",
    )?;
    let role = || role.to_owned();
    if !unreadable.is_empty() {
        return Err(PreflightError::Read {
            role: role(),
            tables: names(unreadable),
        });
    }
    let secured = unlike(
        connection,
        found,
        "NOT pg_catalog.row_security_active(c.oid)",
    )?;
    if !secured.is_empty() {
        return Err(PreflightError::RowSecurity {
            role: role(),
            tables: names(secured),
        });
    }
    Ok(())
}

fn check_owner(
    connection: &mut Connection,
    role: &str,
    publication: &str,
    found: &Tables,
) -> Result<(), PreflightError> {
    let foreign = unlike(
        connection,
        found,
        "pg_catalog.pg_has_role(c.relowner, 'USAGE')",
    )?;
    if foreign.is_empty() {
        return Ok(());
    }
    Err(PreflightError::Owner {
        role: role.to_owned(),
        tables: names(foreign),
        sql: format!(
            "CREATE PUBLICATION {publication} FOR TABLE {}",
            names(&found.tables).join(", ")
        ),
    })
}

/// The tables of which a condition does not hold.
fn unlike<'a>(
    connection: &mut Connection,
    found: &'a Tables,
    condition: &str,
) -> Result<Vec<&'a ReplicatedTable>, Error> {
    let rows = connection.query(&format!(
        "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND NOT ({condition})"
    ))?;
    let oids: HashSet<u32> = rows
        .iter()
        .map(|row| row.parse(0))
        .collect::<Result<_, _>>()?;
    let tables = found.tables.iter();
    Ok(tables.filter(|table| oids.contains(&table.oid)).collect())
}

fn names<'a>(tables: impl IntoIterator<Item = &'a ReplicatedTable>) -> Vec<String> {
    tables.into_iter().map(ReplicatedTable::in_sql).collect()
}
