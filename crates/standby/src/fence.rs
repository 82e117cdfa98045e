//! Keeps users from writing to a database that is not, or will not be, the one to write to.
//!
//! A fence is the database's own `default_transaction_read_only`, and an end for all sessions that
//! began before it. Sessions that begin later read. It outlives a restart of the server. A session
//! that sets the parameter itself writes all the same: who raises a fence looks afterwards what was
//! committed behind it.

use std::time::{Duration, Instant};

use hindcast_pg::{ConnectError, Connection, DatabaseUrl, Error, Row, quote_identifier};

use crate::source::session;

/// Why a database was not fenced, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    #[error("cannot connect to it")]
    Connect(#[source] Box<ConnectError>),
    #[error("cannot {doing}")]
    Query {
        doing: &'static str,
        #[source]
        source: Error,
    },
    #[error("the role {role} does not own the database {database}, whose default it has to set")]
    Owner { role: String, database: String },
    #[error("there are prepared transactions, which could still be committed: {}", .0.join(", "))]
    Prepared(Vec<String>),
    #[error("default_transaction_read_only is set to off for {}, which overrides the database's", .0.join(", "))]
    Overridden(Vec<String>),
    #[error("sessions do not end: {}", .0.join(", "))]
    Stays(Vec<String>),
}

impl FenceError {
    pub fn hint(&self) -> String {
        match self {
            Self::Connect(error) => error.hint(),
            Self::Query { source, .. } => match source.code() {
                Some("42501") => {
                    "name a superuser, or the database's owner with pg_signal_backend".to_owned()
                }
                _ => "the server's log says more".to_owned(),
            },
            Self::Owner { role, database } => format!(
                "name a superuser, or: ALTER DATABASE {} OWNER TO {}",
                quote_identifier(database),
                quote_identifier(role)
            ),
            Self::Prepared(_) => "COMMIT PREPARED or ROLLBACK PREPARED each of them".to_owned(),
            Self::Overridden(_) => "ALTER ROLE … RESET default_transaction_read_only".to_owned(),
            Self::Stays(_) => {
                "end them (as a superuser: SELECT pg_terminate_backend(PID)), and try again"
                    .to_owned()
            }
        }
    }
}

fn query(doing: &'static str) -> impl Fn(Error) -> FenceError {
    move |source| FenceError::Query { doing, source }
}

/// SQL that takes the database's fence away.
pub const LOWER: &str = "DO $$ BEGIN EXECUTE pg_catalog.format('ALTER DATABASE %I RESET default_transaction_read_only', pg_catalog.current_database()); END $$";
const RAISE: &str = "DO $$ BEGIN EXECUTE pg_catalog.format('ALTER DATABASE %I SET default_transaction_read_only = on', pg_catalog.current_database()); END $$";

const OWNER: &str = "SELECT current_user, current_database(), pg_catalog.pg_has_role(d.datdba, 'USAGE') FROM pg_catalog.pg_database d WHERE d.datname = current_database()";
const PREPARED: &str =
    "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = current_database() ORDER BY 1";
const OVERRIDDEN: &str = "\
SELECT setrole::regrole FROM pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) AS setting \
 WHERE setrole <> 0 AND setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())) \
   AND setting ~* '^default_transaction_read_only=(off|false|no|0|f|n)' ORDER BY 1";

/// Sessions that may have begun before the fence, but for our own, and those that write nothing.
/// What a role may not see of another's session is null, and then it is taken for one of them.
const OTHERS: &str = "\
SELECT pid, coalesce(usename, ''), coalesce(application_name, '') FROM pg_catalog.pg_stat_activity \
 WHERE datname = current_database() AND pid <> pg_catalog.pg_backend_pid() AND application_name NOT LIKE 'hindcast %' \
   AND coalesce(backend_type, '') NOT IN ('walsender', 'parallel worker', 'autovacuum worker', 'autovacuum launcher', 'logical replication launcher') \
   AND coalesce(backend_start, '-infinity') < ";

/// Fences a database, such as that of a primary which was down and is back: says how many sessions
/// were ended.
pub fn fence(url: &DatabaseUrl, patience: Duration) -> Result<usize, FenceError> {
    let mut session = connect(url)?;
    check(&mut session)?;
    raise(&mut session, patience)
}

/// Takes a database's fence away.
pub fn lift(url: &DatabaseUrl) -> Result<(), FenceError> {
    lower(&mut connect(url)?)
}

fn connect(url: &DatabaseUrl) -> Result<Connection, FenceError> {
    Connection::connect(url, &session("hindcast fence"))
        .map_err(|error| FenceError::Connect(Box::new(error)))
}

/// Looks whether a fence can be raised and would hold. Changes nothing.
pub fn check(session: &mut Connection) -> Result<(), FenceError> {
    let rows = session.query(OWNER).map_err(query("see who owns it"))?;
    if let Some(row) = rows.first()
        && !row.is_true(2)
    {
        let (role, database) = (row.string(0), row.string(1));
        return Err(FenceError::Owner { role, database });
    }
    let overridden = names(session, OVERRIDDEN)?;
    if !overridden.is_empty() {
        return Err(FenceError::Overridden(overridden));
    }
    nothing_prepared(session)
}

/// Makes the database read-only for its users, and ends their sessions; says how many there were.
/// May be called again where it was before.
pub fn raise(session: &mut Connection, patience: Duration) -> Result<usize, FenceError> {
    session
        .execute(RAISE)
        .map_err(query("make the database read-only"))?;
    let failed = query("end other sessions");
    // A session that begins from now on has the default.
    let rows = session
        .query("SELECT pg_catalog.clock_timestamp()")
        .map_err(&failed)?;
    let now = rows.first().map(|row| row.string(0)).unwrap_or_default();
    let others = format!("{OTHERS}{}", hindcast_pg::quote_literal(&now));
    let deadline = Instant::now() + patience;
    let mut ended = 0;
    let mut first = true;
    loop {
        let rows = session.query(&others).map_err(&failed)?;
        if rows.is_empty() {
            break;
        }
        if std::mem::take(&mut first) {
            ended = rows.len();
        }
        let name = |row: &Row| format!("{} ({} {})", row.string(0), row.string(1), row.string(2));
        if Instant::now() > deadline {
            return Err(FenceError::Stays(rows.iter().map(name).collect()));
        }
        for row in rows.iter() {
            let pid = row.string(0);
            session
                .query(&format!("SELECT pg_catalog.pg_terminate_backend({pid})"))
                .map_err(&failed)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // One may have prepared its transaction instead of ending.
    nothing_prepared(session)?;
    Ok(ended)
}

/// Takes it away. Sessions that began meanwhile stay read-only until they end.
pub fn lower(session: &mut Connection) -> Result<(), FenceError> {
    session
        .execute(LOWER)
        .map(drop)
        .map_err(query("make the database writable"))
}

fn nothing_prepared(session: &mut Connection) -> Result<(), FenceError> {
    let prepared = names(session, PREPARED)?;
    match prepared.is_empty() {
        true => Ok(()),
        false => Err(FenceError::Prepared(prepared)),
    }
}

fn names(session: &mut Connection, sql: &str) -> Result<Vec<String>, FenceError> {
    let rows = session.query(sql).map_err(query("look what would write"))?;
    Ok(rows.iter().map(|row| row.string(0)).collect())
}
