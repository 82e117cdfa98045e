//! A base as a clone in the same server: `CREATE DATABASE … TEMPLATE`. Quick for the databases of
//! development.

use std::time::{SystemTime, UNIX_EPOCH};

use hindcast_pg::tokio::Client;
use hindcast_pg::{DatabaseUrl, Row, quote_identifier, quote_literal};
use hindcast_trace::{Base, BaseKind, Micros};

use crate::check;
use crate::error::{RewindError, Session};
use crate::mark::{BASE, Mark};
use crate::server::connect_beside;

/// The SQLSTATE of cloning a database that has sessions.
const OBJECT_IN_USE: &str = "55006";
/// How often a clone is made again because somebody committed meanwhile.
const ATTEMPTS: u32 = 5;

/// Clones the database of this URL into a base, which accepts no connections and so stays as it is.
///
/// The database must have no sessions: Postgres copies its files. The base is exact, that is, it
/// holds what its snapshot sees and nothing else; where other databases of the server commit all
/// the time that is proven from the statistics of this one.
pub async fn take_template(url: &DatabaseUrl) -> Result<Base, RewindError> {
    take(url, None).await
}

/// The same, for the recording at this place: [`templates`] tells it.
pub async fn take_template_for(
    url: &DatabaseUrl,
    recording: impl Into<String>,
) -> Result<Base, RewindError> {
    take(url, Some(recording.into())).await
}

async fn take(url: &DatabaseUrl, recording: Option<String>) -> Result<Base, RewindError> {
    let client = connect_beside(url).await?;
    let source = url.database();
    let mark = Mark {
        source: source.to_string(),
        taken: Some(time(&client).await?),
        recording,
    };
    let mut foreign = Vec::new();
    for _ in 0..ATTEMPTS {
        let base = unique_name("hindcast_base", &source);
        let before = check::current_snapshot(&client).await?;
        let activity_before = Activity::of(&client, &source).await?;
        clone_database(&client, &source, &base).await?;
        let created = last_changed_by(&client, &base).await?;
        let database = quote_identifier(&base);
        let script = attributes_script(&client, &source, &base).await?
            + &format!(
                "COMMENT ON DATABASE {database} IS {}; ALTER DATABASE {database} ALLOW_CONNECTIONS false",
                quote_literal(&mark.to_string())
            );
        // One implicit transaction, of which the row in pg_database keeps the id.
        client
            .batch_execute(&script)
            .await
            .map_err(RewindError::database(format!("close the base {base}")))?;
        let closed = last_changed_by(&client, &base).await?;
        let after = check::current_snapshot(&client).await?;
        let activity_after = Activity::of(&client, &source).await?;
        foreign = check::committed_between(&client, &before, &after).await?;
        foreign.retain(|xid| ![created, closed].contains(&(xid.0 as u32)));
        if foreign.is_empty() || activity_before.proves_silence_until(&activity_after) {
            return Ok(Base {
                taken: now(),
                snapshot: after,
                kind: BaseKind::Template { database: base },
            });
        }
        drop_database(&client, &base).await?;
    }
    Err(RewindError::SourceBusy {
        database: source,
        xids: foreign,
    })
}

/// Removes a base that [`take_template`] made. Removing one that is gone is fine.
pub async fn drop_template(url: &DatabaseUrl, base: &str) -> Result<(), RewindError> {
    let client = connect_beside(url).await?;
    drop_database(&client, base).await
}

/// A base of [`take_template`] that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub database: String,
    /// The database of which it is a clone.
    pub source: String,
    pub bytes: u64,
    /// When it was taken, in UTC: `2026-11-22 19:20:11`. Unknown where an older version took it.
    pub taken: Option<String>,
    /// Where the recording is for which it was taken, if that was said.
    pub recording: Option<String>,
}

/// The bases that the server of this URL has, those of all its databases, oldest first.
pub async fn templates(url: &DatabaseUrl) -> Result<Vec<Template>, RewindError> {
    let client = connect_beside(url).await?;
    let rows = client
        .query(
            "SELECT datname::text, pg_catalog.shobj_description(oid, 'pg_database'), pg_catalog.pg_database_size(oid) \
               FROM pg_catalog.pg_database WHERE NOT datallowconn \
                AND pg_catalog.starts_with(pg_catalog.shobj_description(oid, 'pg_database'), $1) \
              ORDER BY oid",
            &[&BASE],
        )
        .await
        .map_err(RewindError::database("list the bases"))?;
    let template = |row: &Row| {
        let mark = Mark::parse(row.get(1))?;
        Some(Template {
            database: row.get(0),
            source: mark.source,
            bytes: row.get::<i64>(2) as u64,
            taken: mark.taken,
            recording: mark.recording,
        })
    };
    let mut templates: Vec<_> = rows.iter().filter_map(template).collect();
    templates.sort_by(|a, b| a.taken.cmp(&b.taken));
    Ok(templates)
}

async fn time(client: &Client) -> Result<String, RewindError> {
    let row = client
        .query_one(
            "SELECT pg_catalog.to_char(pg_catalog.clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
            &[],
        )
        .await
        .map_err(RewindError::database("ask for the time"))?;
    Ok(row.get(0))
}

/// Checks that the base is there, that we made it, and that nobody can have written to it.
pub(crate) async fn check_base(
    client: &Client,
    server: &DatabaseUrl,
    base: &str,
) -> Result<(), RewindError> {
    let row = client
        .query_opt(
            "SELECT pg_catalog.shobj_description(oid, 'pg_database'), datallowconn FROM pg_catalog.pg_database WHERE datname = $1",
            &[&base],
        )
        .await
        .map_err(RewindError::database("look for the base"))?
        .ok_or_else(|| RewindError::BaseMissing { database: base.to_owned(), server: server.to_string() })?;
    let refuse = |reason: String| {
        Err(RewindError::NotOurBase {
            database: base.to_owned(),
            reason,
        })
    };
    let comment: Option<String> = row.get(0);
    if !comment.is_some_and(|comment| comment.starts_with(BASE)) {
        return refuse("it carries no comment of ours".to_owned());
    }
    if row.get(1) {
        return refuse("it accepts connections, so somebody may have written to it".to_owned());
    }
    Ok(())
}

/// What a clone for the database of a recording is called.
pub(crate) fn name_of_clone(database: &str) -> String {
    unique_name("hindcast_rewound", database)
}

/// Makes a database from a base, marked so that it is removed if its owner never comes back to do
/// it.
///
/// The owner holds an advisory lock in `client`'s session for as long as it lives.
pub(crate) async fn clone_base(client: &Client, base: &str, name: &str) -> Result<(), RewindError> {
    remove_abandoned(client).await?;
    client
        .execute(
            "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))",
            &[&name],
        )
        .await
        .map_err(RewindError::database("mark the rewound database as ours"))?;
    clone_database(client, base, name).await?;
    let script = attributes_script(client, base, name).await?
        + &format!(
            "COMMENT ON DATABASE {} IS {}",
            quote_identifier(name),
            quote_literal(&rewound_mark(client).await?)
        );
    client
        .batch_execute(&script)
        .await
        .map_err(RewindError::database(format!(
            "give the rewound database {name} its settings"
        )))
}

/// Advisory locks belong to the database in which they were taken, so the mark says which that is.
async fn rewound_mark(client: &Client) -> Result<String, RewindError> {
    let row = client
        .query_one("SELECT pg_catalog.current_database()::text", &[])
        .await
        .map_err(RewindError::database("ask for the name of the database"))?;
    Ok(format!(
        "hindcast: a rewound database, dropped when nobody locks it in {}",
        row.get::<&str>(0)
    ))
}

const KEPT: &str = "hindcast: a rewound database, kept";

/// Takes the mark off that would have a later rewind remove this database.
pub(crate) async fn keep(client: &Client, database: &str) -> Result<(), RewindError> {
    client
        .batch_execute(&format!(
            "COMMENT ON DATABASE {} IS {}",
            quote_identifier(database),
            quote_literal(KEPT)
        ))
        .await
        .map_err(RewindError::database(format!(
            "mark the rewound database {database} as kept"
        )))
}

/// Drops rewound databases whose owner was killed before it could.
async fn remove_abandoned(client: &Client) -> Result<(), RewindError> {
    let doing = "look for abandoned databases";
    let rows = client
        .query(
            "SELECT datname::text FROM pg_catalog.pg_database WHERE datname LIKE 'hindcast\\_rewound\\_%' \
             AND pg_catalog.shobj_description(oid, 'pg_database') = $1 \
             AND (pg_catalog.pg_has_role(datdba, 'USAGE'))",
            &[&rewound_mark(client).await?],
        )
        .await
        .map_err(RewindError::database(doing))?;
    for row in rows {
        let name: String = row.get(0);
        let row = client
            .query_one(
                "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended($1, 0))",
                &[&name],
            )
            .await
            .map_err(RewindError::database(doing))?;
        if row.get(0) {
            let dropped = drop_database(client, &name).await;
            client
                .execute(
                    "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended($1, 0))",
                    &[&name],
                )
                .await
                .map_err(RewindError::database(doing))?;
            dropped?;
        }
    }
    Ok(())
}

pub(crate) async fn drop_database(client: &Client, name: &str) -> Result<(), RewindError> {
    client
        .batch_execute(&format!(
            "DROP DATABASE IF EXISTS {} WITH (FORCE)",
            quote_identifier(name)
        ))
        .await
        .map_err(RewindError::database(format!("drop the database {name}")))
}

async fn clone_database(client: &Client, source: &str, name: &str) -> Result<(), RewindError> {
    let row = client
        .query_opt(
            "SELECT pg_catalog.pg_get_userbyid(datdba)::text, pg_catalog.pg_database_size(oid), \
             pg_catalog.current_setting('server_version_num')::int FROM pg_catalog.pg_database WHERE datname = $1",
            &[&source],
        )
        .await
        .map_err(RewindError::database(format!("look at the database {source}")))?;
    let mut sql = format!(
        "CREATE DATABASE {} TEMPLATE {}",
        quote_identifier(name),
        quote_identifier(source)
    );
    if let Some(row) = row {
        // The owner of a database owns its schema `public`: the service may need that to create
        // tables.
        sql.push_str(&format!(" OWNER {}", quote_identifier(row.get(0))));
        // From this size on two checkpoints are cheaper than all of the copy in WAL.
        const LARGE_BYTES: i64 = 256 << 20;
        let (size, version): (i64, i32) = (row.get(1), row.get(2));
        if version >= 150_000 && size > LARGE_BYTES {
            sql.push_str(" STRATEGY file_copy");
        }
    }
    match client.batch_execute(&sql).await {
        Ok(()) => Ok(()),
        Err(error) if error.code() == Some(OBJECT_IN_USE) => {
            let sessions = sessions(client, source).await?;
            Err(RewindError::SourceInUse {
                database: source.to_owned(),
                sessions,
            })
        }
        Err(error) => Err(RewindError::database(format!(
            "clone the database {source}"
        ))(error)),
    }
}

async fn sessions(client: &Client, database: &str) -> Result<Vec<Session>, RewindError> {
    let rows = client
        .query(
            "SELECT pid, coalesce(usename::text, backend_type), coalesce(application_name, ''), \
             coalesce(pg_catalog.host(client_addr), 'local') \
             FROM pg_catalog.pg_stat_activity WHERE datname = $1 \
             UNION ALL SELECT 0, owner::text, 'prepared transaction ' || gid, 'nowhere' \
             FROM pg_catalog.pg_prepared_xacts WHERE database = $1 ORDER BY 1",
            &[&database],
        )
        .await
        .map_err(RewindError::database(format!(
            "see who uses the database {database}"
        )))?;
    Ok(rows
        .iter()
        .map(|row| Session {
            pid: row.get(0),
            user: row.get(1),
            application: row.get(2),
            client: row.get(3),
        })
        .collect())
}

/// Copies settings and privileges of a database, which `TEMPLATE` does not do. To be run as one
/// implicit transaction.
async fn attributes_script(client: &Client, from: &str, to: &str) -> Result<String, RewindError> {
    let doing = || {
        RewindError::database(format!(
            "copy settings and privileges of the database {from} to {to}"
        ))
    };
    let settings = client
        .query(
            "SELECT r.rolname::text, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) \
             FROM pg_catalog.pg_database d JOIN pg_catalog.pg_db_role_setting s ON s.setdatabase = d.oid \
             CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c \
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole WHERE d.datname = $1",
            &[&from],
        )
        .await
        .map_err(doing())?;
    let mut script = String::new();
    for row in settings {
        let (role, name, value): (Option<String>, String, String) =
            (row.get(0), row.get(1), row.get(2));
        let target = match role {
            Some(role) => format!(
                "ROLE {} IN DATABASE {}",
                quote_identifier(&role),
                quote_identifier(to)
            ),
            None => format!("DATABASE {}", quote_identifier(to)),
        };
        // The value passes through our session as it is, for quoting it anew would be wrong for
        // lists like search_path.
        script.push_str(&format!(
            "SELECT pg_catalog.set_config({}, {}, true); ALTER {target} SET {} FROM CURRENT;\n",
            quote_literal(&name),
            quote_literal(&value),
            name.split('.')
                .map(quote_identifier)
                .collect::<Vec<_>>()
                .join(".")
        ));
    }
    let privileges = client
        .query(
            "SELECT coalesce(r.rolname::text, ''), a.privilege_type, a.is_grantable \
             FROM pg_catalog.pg_database d CROSS JOIN LATERAL pg_catalog.aclexplode(d.datacl) AS a \
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee WHERE d.datname = $1",
            &[&from],
        )
        .await
        .map_err(doing())?;
    if !privileges.is_empty() {
        script.push_str(&format!(
            "REVOKE ALL ON DATABASE {} FROM PUBLIC;\n",
            quote_identifier(to)
        ));
    }
    for row in privileges {
        let (role, privilege, grantable): (String, String, bool) =
            (row.get(0), row.get(1), row.get(2));
        let role = if role.is_empty() {
            "PUBLIC".to_owned()
        } else {
            quote_identifier(&role)
        };
        let option = if grantable { " WITH GRANT OPTION" } else { "" };
        script.push_str(&format!(
            "GRANT {privilege} ON DATABASE {} TO {role}{option};\n",
            quote_identifier(to)
        ));
    }
    Ok(script)
}

/// The low 32 bits of the id of the transaction that created or last altered a database.
async fn last_changed_by(client: &Client, database: &str) -> Result<u32, RewindError> {
    let row = client
        .query_one(
            "SELECT xmin::text::bigint FROM pg_catalog.pg_database WHERE datname = $1",
            &[&database],
        )
        .await
        .map_err(RewindError::database("see which transaction made the base"))?;
    Ok(row.get::<i64>(0) as u32)
}

/// Transactions that ended in one database, as the server's statistics count them, and its present
/// sessions.
struct Activity {
    ended: i64,
    sessions: i64,
    /// Since Postgres 15 a session has reported everything by the time it is gone; before, a
    /// report could be lost.
    reliable: bool,
}

impl Activity {
    async fn of(client: &Client, database: &str) -> Result<Self, RewindError> {
        let row = client
            .query_one(
                "SELECT coalesce(pg_catalog.pg_stat_get_db_xact_commit(d.oid) + pg_catalog.pg_stat_get_db_xact_rollback(d.oid), 0), \
                 (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity a WHERE a.datid = d.oid), \
                 pg_catalog.current_setting('server_version_num')::int >= 150000 \
                 AND pg_catalog.current_setting('track_counts')::bool \
                 FROM pg_catalog.pg_database d WHERE d.datname = $1",
                &[&database],
            )
            .await
            .map_err(RewindError::database(format!("see what goes on in the database {database}")))?;
        Ok(Self {
            ended: row.get(0),
            sessions: row.get(1),
            reliable: row.get(2),
        })
    }

    fn proves_silence_until(&self, later: &Self) -> bool {
        self.reliable && self.sessions == 0 && later.sessions == 0 && self.ended == later.ended
    }
}

/// `PREFIX_DATABASE_RANDOM`, within the 63 bytes of a Postgres name.
fn unique_name(prefix: &str, database: &str) -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    let suffix = format!("_{random:016x}");
    let mut name = format!("{prefix}_{database}");
    let mut end = name.len().min(63 - suffix.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name + &suffix
}

pub(crate) fn now() -> Micros {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as Micros)
}
