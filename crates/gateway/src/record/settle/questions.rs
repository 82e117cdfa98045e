//! What is asked of the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hindcast_pg::tokio::Client;
use hindcast_pg::{Error, Lsn, Row};
use hindcast_trace::Snapshot;

use super::follow::Unreadable;
use super::judge::Relation;
use super::marks::Mark;
use hindcast_wal::{Format, Relfile};

/// Ids per question.
const BATCH: usize = 5_000;
/// Tables whose size together is below this are searched for rows of an unexplained id.
const SEARCH_BYTES_MAX: i64 = 256 << 20;

/// Which transactions run and which have ended.
pub(super) struct Moment {
    /// Everything that was written before is on the server's disk.
    pub flushed: Lsn,
    /// Ids from here on were not given out when that was asked.
    pub bound: u64,
    pub snapshot: Snapshot,
}

impl Moment {
    pub fn mark(&self) -> Mark {
        Mark {
            bound: self.bound,
            at: self.flushed,
        }
    }

    pub fn has_ended(&self, xid: u64) -> bool {
        xid < self.snapshot.xmin.0
    }

    /// The order matters: what was given out when the position was asked for is among the locks, or
    /// has ended before the snapshot that is taken last.
    pub async fn ask(client: &Client) -> Result<Self, Error> {
        let row = client
            .query_one("SELECT pg_catalog.pg_current_wal_flush_lsn()::text", &[])
            .await?;
        let flushed = row.get::<&str>(0).parse().unwrap_or_default();
        let row = client
            .query_one(
                "SELECT ARRAY(SELECT transactionid::text FROM pg_catalog.pg_locks \
                         WHERE locktype = 'transactionid' AND granted)",
                &[],
            )
            .await?;
        let locked = row.get::<Vec<String>>(0);
        let row = client
            .query_one("SELECT pg_catalog.pg_current_snapshot()::text", &[])
            .await?;
        let snapshot: Snapshot = row
            .get::<&str>(0)
            .parse()
            .expect("a snapshot, as Postgres writes it");
        let xmax = snapshot.xmax.0;
        let widened = locked
            .iter()
            .filter_map(|xid| xid.parse().ok())
            .map(|xid| hindcast_wal::widen(xid, xmax) + 1);
        Ok(Self {
            flushed,
            bound: widened.chain([xmax]).max().unwrap_or(xmax),
            snapshot,
        })
    }
}

/// The end of what has been written.
pub(super) async fn end_of_wal(client: &Client) -> Result<Lsn, Error> {
    let row = client
        .query_one("SELECT pg_catalog.pg_current_wal_insert_lsn()::text", &[])
        .await?;
    Ok(row.get::<&str>(0).parse().unwrap_or_default())
}

/// The last checkpoint: its position, and the first id that was not given out then.
pub(super) async fn checkpoint(client: &Client) -> Result<Option<(Lsn, u64)>, Error> {
    let row = client
        .query_one(
            "SELECT redo_lsn::text, next_xid FROM pg_catalog.pg_control_checkpoint()",
            &[],
        )
        .await?;
    let next = row.get::<&str>(1).split_once(':');
    let next = next.and_then(|(epoch, xid)| Some((epoch.parse().ok()?, xid.parse().ok()?)));
    let at = row.get::<&str>(0).parse().ok();
    Ok(at.zip(next.map(|(epoch, xid): (u64, u64)| epoch << 32 | xid)))
}

/// How each of these ended, as far as the server knows.
pub(super) async fn states(
    client: &Client,
    xids: &[u64],
) -> Result<HashMap<u64, Option<String>>, Error> {
    let mut states = HashMap::with_capacity(xids.len());
    for batch in xids.chunks(BATCH) {
        let rows = client
            .query(
                "SELECT x, pg_catalog.pg_xact_status(x::text::xid8) FROM pg_catalog.unnest($1::int8[]) x",
                &[&batch],
            )
            .await?;
        states.extend(
            rows.iter()
                .map(|row| (row.get::<i64>(0) as u64, row.get(1))),
        );
    }
    Ok(states)
}

/// What has to be known of a server before its WAL is read.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub format: Format,
    /// The number of the database that is recorded.
    pub database: u32,
    pub role: String,
}

/// Whether WAL can be read, as far as the server says so beforehand.
pub(super) async fn source(client: &Client) -> Result<Result<Source, Unreadable>, Error> {
    let row = client
        .query_one(
            "SELECT pg_catalog.current_setting('server_version_num')::int8, \
                    pg_catalog.current_setting('wal_block_size')::int8, \
                    (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'), \
                    pg_catalog.current_setting('wal_level'), \
                    pg_catalog.current_setting('max_wal_senders')::int8, \
                    (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()), \
                    current_user::text, \
                    (SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)",
            &[],
        )
        .await?;
    let role: String = row.get(6);
    let version: i64 = row.get(0);
    let format = Format::new(
        (version / 10_000) as u32,
        row.get::<i64>(1) as u64,
        row.get::<i64>(2) as u64,
    );
    Ok(match format {
        _ if row.get::<&str>(3) == "minimal" => Err(Unreadable::Minimal),
        _ if row.get::<i64>(4) == 0 => Err(Unreadable::Senders(0)),
        _ if row.get::<Option<bool>>(7) == Some(false) => Err(Unreadable::NotPermitted { role }),
        None => Err(Unreadable::Version(version / 10_000)),
        Some(format) => Ok(Source {
            format,
            database: row.get(5),
            role,
        }),
    })
}

/// Which relations have these files now.
pub(super) async fn relations(
    client: &Client,
    files: &BTreeSet<Relfile>,
) -> Result<BTreeMap<Relfile, Relation>, Error> {
    let mut found = BTreeMap::new();
    let files: Vec<Relfile> = files.iter().copied().collect();
    for batch in files.chunks(BATCH) {
        let tablespaces: Vec<u32> = batch.iter().map(|file| file.tablespace).collect();
        let nodes: Vec<u32> = batch.iter().map(|file| file.node).collect();
        // An index goes by its table, and a TOAST table by the table whose values it holds.
        let rows = client
            .query(
                "SELECT f.at, o.oid < 16384, o.relname::text, pg_catalog.format('%I.%I', n.nspname, o.relname) \
                   FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::oid[])) \
                        WITH ORDINALITY AS f(tablespace, node, at) \
                   JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.pg_filenode_relation(f.tablespace, f.node) \
                   LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
                   LEFT JOIN pg_catalog.pg_class t ON t.reltoastrelid = coalesce(i.indrelid, c.oid) \
                   JOIN pg_catalog.pg_class o ON o.oid = coalesce(t.oid, i.indrelid, c.oid) \
                   JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace",
                &[&tablespaces, &nodes],
            )
            .await?;
        for row in &rows {
            let Some(file) = batch.get(row.get::<i64>(0) as usize - 1) else {
                continue;
            };
            found.insert(*file, relation(row.get(1), row.get(2), row.get(3)));
        }
    }
    for file in files {
        found.entry(file).or_insert(match file.node {
            // What initdb made, before it was rewritten.
            ..16384 => Relation::Catalog,
            _ => Relation::Gone,
        });
    }
    Ok(found)
}

fn relation(initial: bool, name: &str, qualified: String) -> Relation {
    match (initial, name) {
        (true, "pg_statistic" | "pg_statistic_ext_data") => Relation::Statistics,
        (true, "pg_class") => Relation::Class,
        // Large objects are the users' data.
        (true, "pg_largeobject" | "pg_largeobject_metadata") => Relation::Table(qualified),
        (true, _) => Relation::Catalog,
        (false, _) => Relation::Table(qualified),
    }
}

/// The tables of this database whose rows are not in WAL.
pub(super) struct Unlogged {
    /// Their names, and how large they are together.
    tables: Vec<String>,
    bytes: i64,
    /// There are some, or sequences of that kind.
    pub any: bool,
}

impl Unlogged {
    pub async fn ask(client: &Client) -> Result<Self, Error> {
        let rows = client
            .query(
                "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.pg_relation_size(c.oid), \
                        c.relkind <> 'S' \
                   FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                  WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'm', 'S')",
                &[],
            )
            .await?;
        let tables = || rows.iter().filter(|row| row.get(2));
        let sizes = tables().filter_map(|row| row.get::<Option<i64>>(1));
        Ok(Self {
            bytes: sizes.sum(),
            tables: tables().map(|row| row.get(0)).collect(),
            any: !rows.is_empty(),
        })
    }

    /// Ids that left rows, with the tables. What is too large is not searched.
    pub async fn rows_left(
        &self,
        client: &Client,
        xids: &[u64],
    ) -> Result<BTreeMap<u64, BTreeSet<String>>, Error> {
        let mut left = BTreeMap::<u64, BTreeSet<String>>::new();
        if self.bytes > SEARCH_BYTES_MAX {
            return Ok(left);
        }
        for table in &self.tables {
            for xid in rows_of(client, table, xids).await? {
                left.entry(xid).or_default().insert(table.clone());
            }
        }
        Ok(left)
    }
}

/// The sessions of this database.
pub(super) struct Activity {
    /// What is to be added to the server's clock to get ours, in microseconds.
    pub clock: i64,
    /// Since when a statement of our own runs whose ids cannot be asked for, by the server's clock.
    pub running_since: Option<i64>,
    /// A session of our own does not show us what it runs.
    pub hidden: bool,
    strangers: Vec<Stranger>,
}

/// A session that is connected past the recorder, in microseconds by the server's clock.
struct Stranger {
    connected: i64,
    /// Has committed nothing since: it has been idle, or in one transaction. `None`: not shown.
    quiet: Option<i64>,
}

impl Activity {
    /// `ours`: the processes that serve sessions of the gateway. `now` is its clock.
    pub async fn ask(client: &Client, ours: &[u32], now: impl Fn() -> i64) -> Result<Self, Error> {
        let before = now();
        let row = client
            .query_one(
                "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8",
                &[],
            )
            .await?;
        let clock = before + (now() - before) / 2 - row.get::<i64>(0);
        let ours: Vec<i64> = ours.iter().map(|pid| i64::from(*pid)).collect();
        let rows = client
            .query(
                "SELECT pid = ANY ($1::int8[]), state IS NULL, \
                        (extract(epoch FROM query_start) * 1000000)::int8, \
                        state = 'active' AND query ~* '^[\\s;(]*(/\\*.*\\*/\\s*)*\
                          (vacuum|analyze|create|drop|alter|reindex|cluster|call|do|discard)\\M', \
                        (extract(epoch FROM backend_start) * 1000000)::int8, \
                        (extract(epoch FROM CASE WHEN state = 'idle' THEN state_change ELSE xact_start END) * 1000000)::int8 \
                   FROM pg_catalog.pg_stat_activity \
                  WHERE datname = pg_catalog.current_database() AND backend_type = 'client backend' \
                    AND application_name NOT LIKE 'hindcast:%'",
                &[&ours],
            )
            .await?;
        let (own, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get(0));
        let running = own
            .iter()
            .filter(|row| row.get::<Option<bool>>(3) == Some(true));
        let stranger = |row: &&Row| Stranger {
            connected: row.get::<Option<i64>>(4).unwrap_or(0),
            quiet: row.get(5),
        };
        Ok(Self {
            clock,
            running_since: running.filter_map(|row| row.get::<Option<i64>>(2)).min(),
            hidden: own.iter().any(|row| row.get(1)),
            strangers: others.iter().map(stranger).collect(),
        })
    }

    /// How many of the strangers may have committed something at a moment. Sessions that came and
    /// went are not seen.
    pub fn strangers_at(&self, at: i64) -> usize {
        let may =
            |one: &&Stranger| one.connected <= at && one.quiet.is_none_or(|quiet| quiet >= at);
        self.strangers.iter().filter(may).count()
    }
}

/// For a server whose WAL cannot be read: ids that left rows in a table of this database, with the
/// table, and those that left some in statistics or in what all databases share. An id may be in
/// neither. `None` if there is too much to search.
pub(super) async fn rows_left(
    client: &Client,
    xids: &[u64],
) -> Result<Option<(BTreeMap<u64, BTreeSet<String>>, BTreeSet<u64>)>, Error> {
    let tables = client
        .query(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.pg_relation_size(c.oid), \
                    c.oid < 16384 \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
              WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' \
                AND (c.oid >= 16384 OR c.relname IN ('pg_statistic', 'pg_statistic_ext_data', 'pg_database', \
                     'pg_authid', 'pg_auth_members', 'pg_db_role_setting', 'pg_replication_origin', 'pg_shdescription'))",
            &[],
        )
        .await?;
    // A table may be dropped between the question and its size.
    let sizes = tables.iter().filter_map(|row| row.get::<Option<i64>>(1));
    if sizes.sum::<i64>() > SEARCH_BYTES_MAX {
        return Ok(None);
    }
    let (mut here, mut own) = (BTreeMap::<u64, BTreeSet<String>>::new(), BTreeSet::new());
    for table in &tables {
        let name: String = table.get(0);
        for xid in rows_of(client, &name, xids).await? {
            if table.get(2) {
                own.insert(xid);
            } else {
                here.entry(xid).or_default().insert(name.clone());
            }
        }
    }
    Ok(Some((here, own)))
}

/// Ids that are the `xmin` of some row; none if we may not read the table.
async fn rows_of(client: &Client, table: &str, xids: &[u64]) -> Result<Vec<u64>, Error> {
    // Rows know only the low half of an id; ids that are told apart by the high half cannot both be
    // recent.
    let sql = format!(
        "SELECT x FROM pg_catalog.unnest($1::int8[]) x WHERE (x & 4294967295) IN \
         (SELECT t.xmin::text::int8 FROM {table} t)"
    );
    match client.query(&sql, &[&xids]).await {
        Ok(rows) => Ok(rows.iter().map(|row| row.get::<i64>(0) as u64).collect()),
        Err(error) if error.code().is_some() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
