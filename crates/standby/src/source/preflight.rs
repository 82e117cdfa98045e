//! What is looked at before anything is touched.

use hindcast_pg::{ConnectError, Connection, DatabaseUrl, Error};

use super::stream::session;
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
    #[error("the role {role} may not create a publication: {why}")]
    Publication { role: String, why: String },
    #[error("the role {role} may not read {}", list(tables))]
    Read { role: String, tables: Vec<String> },
    #[error("all {0} replication slots of the primary are in use")]
    Slots(u64),
    #[error("all {0} WAL senders of the primary are in use")]
    Senders(u64),
    #[error("the server of --from is itself a standby in recovery")]
    Recovery,
    /// Publishing these would make their next UPDATE or DELETE fail on the primary.
    #[error(
        "{} no primary key, so the log could not say which row of {} was changed",
        without(tables),
        them(tables)
    )]
    NoIdentity { tables: Vec<String> },
    #[error("no table fits {}", list(patterns))]
    NoMatch { patterns: Vec<String> },
    #[error("there is no table to replicate")]
    NoTables,
}

impl PreflightError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            PreflightError::Connect(error) => error.hint(),
            PreflightError::Query(_) => "the primary's log says more".to_owned(),
            PreflightError::Version(_) => "follow a newer primary".to_owned(),
            PreflightError::WalLevel(_) => "on the primary: ALTER SYSTEM SET wal_level = 'logical'; then restart it".to_owned(),
            PreflightError::Role(role) => {
                format!("as a superuser on the primary: ALTER ROLE \"{role}\" REPLICATION")
            }
            PreflightError::Publication { .. } => "let the owner of the tables follow, or a superuser".to_owned(),
            PreflightError::Read { role, tables } => {
                format!("GRANT SELECT ON {} TO \"{role}\", or leave them out with --exclude-table", list(tables))
            }
            PreflightError::Slots(_) => "drop slots that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots and restart the primary".to_owned(),
            PreflightError::Senders(_) => "end replication sessions that are not needed (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart the primary".to_owned(),
            PreflightError::Recovery => "give the URL of the primary itself".to_owned(),
            PreflightError::NoIdentity { tables } => {
                let first = &tables[0];
                format!(
                    "give each of them a primary key, or ALTER TABLE {first} REPLICA IDENTITY FULL (every update then logs the whole old row), or leave them out: --exclude-table {first}"
                )
            }
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

/// Looks whether a primary can be followed, and what there is. `slot` is the one that will be used; it may be there already.
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
        hindcast_pg::quote_literal(slot)
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
    if !row.is_true(4) {
        return Err(PreflightError::Role(role));
    }
    let (superuser, slot_exists) = (row.is_true(5), row.is_true(12));
    let (slots, slots_used): (u64, u64) = (row.parse(6)?, row.parse(7)?);
    if !slot_exists && slots_used >= slots {
        return Err(PreflightError::Slots(slots));
    }
    let (senders, senders_used): (u64, u64) = (row.parse(8)?, row.parse(9)?);
    if senders_used >= senders {
        return Err(PreflightError::Senders(senders));
    }
    if !row.is_true(11) {
        let why = "it lacks CREATE on the database".to_owned();
        return Err(PreflightError::Publication { role, why });
    }
    let primary = Primary {
        version,
        system_identifier: row.string(2),
        database: row.string(10),
        tables: Vec::new(),
        notices: Vec::new(),
    };
    let found = tables(&mut connection, filter)?;
    let unmatched = filter.without_match(&found.tables);
    if !unmatched.is_empty() {
        let patterns = unmatched.into_iter().map(str::to_owned).collect();
        return Err(PreflightError::NoMatch { patterns });
    }
    check_tables(&mut connection, &role, superuser, &found)?;
    Ok(Primary {
        notices: notices(&found),
        tables: found.tables,
        ..primary
    })
}

fn check_tables(
    connection: &mut Connection,
    role: &str,
    superuser: bool,
    found: &Tables,
) -> Result<(), PreflightError> {
    if found.tables.is_empty() {
        return Err(PreflightError::NoTables);
    }
    // An update of such a table fails once it is published: not here, on the primary, for its users.
    let unidentified: Vec<String> = found
        .tables
        .iter()
        .filter(|table| match table.identity {
            'f' | 'i' => false,
            'd' => table.primary_key.is_empty(),
            _ => true,
        })
        .map(ToString::to_string)
        .collect();
    if !unidentified.is_empty() {
        return Err(PreflightError::NoIdentity {
            tables: unidentified,
        });
    }
    if superuser {
        return Ok(());
    }
    let (mut unreadable, mut foreign) = (Vec::new(), Vec::new());
    for table in &found.tables {
        let sql = format!(
            "SELECT pg_catalog.has_table_privilege({oid}, 'SELECT'), pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = {oid}",
            oid = table.oid
        );
        let rows = connection.query(&sql)?;
        if let Some(row) = rows.first() {
            if !row.is_true(0) {
                unreadable.push(table.to_string());
            }
            if !row.is_true(1) {
                foreign.push(table.to_string());
            }
        }
    }
    if !unreadable.is_empty() {
        return Err(PreflightError::Read {
            role: role.to_owned(),
            tables: unreadable,
        });
    }
    if !foreign.is_empty() {
        return Err(PreflightError::Publication {
            role: role.to_owned(),
            why: format!("it does not own {}", list(&foreign)),
        });
    }
    Ok(())
}

fn notices(found: &Tables) -> Vec<String> {
    found
        .left_out
        .iter()
        .map(|(table, why)| format!("{table} is not replicated: {why}"))
        .collect()
}
