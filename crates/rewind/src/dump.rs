//! A base that can be given away: one database as `pg_dump` writes it, in a folder.
//!
//! ```text
//!   database.dump    pg_dump's own format, compressed
//!   roles.sql        the roles of its server, without passwords
//!   objects.txt      oid and name of tables and sequences, one a line: recordings name them by oid
//!   hindcast.conf    settings of the server that decide how values look
//!   rows.dump        rows of tables that were read elsewhere, from a backup that showed the same
//!   sequences.sql    with that: the values of sequences then
//! ```
//!
//! It is restored into a private server, so it needs no rights on any other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hindcast_cluster::{Binaries, Cluster, supervised};
use hindcast_pg::tokio::Client;
use hindcast_pg::{DatabaseUrl, quote_identifier};
use hindcast_trace::Snapshot;

use crate::backup::{NOTES, notes};
use crate::error::RewindError;
use crate::point::{Options, Step};
use crate::recover::{noted, private};
use crate::server::connect;

const DATABASE: &str = "database.dump";
const ROLES: &str = "roles.sql";
const OBJECTS: &str = "objects.txt";
const ROWS: &str = "rows.dump";
const SEQUENCES: &str = "sequences.sql";

/// Which columns are left out of a dump, and what is put in the place of their texts.
pub struct Hidden<'a> {
    pub columns: &'a dyn Fn(&str) -> bool,
    /// Of an expression for a text, the expression for what takes its place.
    pub text: &'a dyn Fn(&str) -> String,
}

const COLUMNS: &str = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), a.attname::text, \
            pg_catalog.format_type(a.atttypid, a.atttypmod), t.typcategory::text, a.attnotnull \
       FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
      WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' \
        AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, a.attnum";

const NAMES: &str = "SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname) \
       FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
      WHERE c.relkind IN ('r', 'p', 'S') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' \
      ORDER BY c.oid";

/// Writes a rewound database into `folder`, which is made. What is hidden is changed in the
/// database first, so it must be one that nobody needs afterwards. Returns the columns that were
/// hidden.
pub async fn dump(
    url: &DatabaseUrl,
    hidden: &Hidden<'_>,
    folder: &Path,
) -> Result<Vec<String>, RewindError> {
    let client = connect(url, &url.database()).await?;
    let columns = hide(&client, hidden).await?;
    // It belongs to the recorded server: it tells of transactions there.
    run(&client, "DROP EXTENSION IF EXISTS hindcast CASCADE").await?;
    describe(&client, folder).await?;
    client.close().await;
    into_folder(url, None, &[], folder).await?;
    Ok(columns)
}

/// Writes what stands beside a dump.
async fn describe(client: &Client, folder: &Path) -> Result<(), RewindError> {
    let mut objects = String::new();
    for (oid, name) in names(client).await? {
        objects.push_str(&format!("{oid} {name}\n"));
    }
    let settings = notes(client, None).await?;
    hindcast_private::folders(folder).map_err(at(folder))?;
    write(&folder.join(OBJECTS), &objects)?;
    write(&folder.join(NOTES), &settings)
}

/// As of an exported snapshot, if one is named. Of some tables no rows are read.
async fn into_folder(
    url: &DatabaseUrl,
    snapshot: Option<&str>,
    without_rows: &[String],
    folder: &Path,
) -> Result<(), RewindError> {
    let (url, folder) = (url.clone(), folder.to_owned());
    let snapshot = snapshot.map(|name| format!("--snapshot={name}"));
    let without = |table| format!("--exclude-table-data={table}");
    let without: Vec<_> = without_rows.iter().map(without).collect();
    blocking(move || {
        let binaries = Binaries::find()?;
        let mut dumped = vec!["--format=custom", "--create", "--no-password"];
        dumped.extend(without.iter().map(String::as_str));
        if let Some(snapshot) = &snapshot {
            // Who changes a table must not wait for us, nor others for who waits so.
            dumped.extend(["--lock-wait-timeout=2000", snapshot]);
        }
        into_file(&binaries, "pg_dump", &dumped, &url, &folder.join(DATABASE))?;
        let roles = ["--roles-only", "--no-role-passwords", "--no-password"];
        into_file(&binaries, "pg_dumpall", &roles, &url, &folder.join(ROLES))
    })
    .await
}

/// Rows of a dump that are read from another database, which shows the same in a snapshot.
pub struct Elsewhere<'a> {
    pub url: &'a DatabaseUrl,
    /// Exported there.
    pub snapshot: &'a str,
    /// Whose rows are there, as SQL writes their names.
    pub tables: &'a [String],
    /// SQL that sets sequences to what they were then.
    pub sequences: &'a [String],
}

impl Elsewhere<'_> {
    async fn write(&self, folder: &Path) -> Result<(), RewindError> {
        write(&folder.join(SEQUENCES), &self.sequences.join("\n"))?;
        if self.tables.is_empty() {
            return Ok(());
        }
        let (url, path) = (self.url.clone(), folder.join(ROWS));
        let snapshot = format!("--snapshot={}", self.snapshot);
        let table = |table| format!("--table={table}");
        let tables: Vec<_> = self.tables.iter().map(table).collect();
        blocking(move || {
            let mut dumped = vec!["--format=custom", "--data-only", "--no-password", &snapshot];
            dumped.extend(tables.iter().map(String::as_str));
            into_file(&Binaries::find()?, "pg_dump", &dumped, &url, &path)
        })
        .await
    }
}

/// A state of a database that is in use, held in a transaction until it is written or dropped.
pub struct Held {
    client: Client,
    url: DatabaseUrl,
    /// For `SET TRANSACTION SNAPSHOT`.
    pub name: String,
    pub snapshot: Snapshot,
    /// The same as `pg_current_snapshot()` has said it.
    pub shown: String,
    /// Somebody has a transaction in the database: a part of what it does may be in this state.
    pub in_use: bool,
}

/// Takes hold of what a database holds at this moment. Nobody waits for that.
pub async fn hold(url: &DatabaseUrl) -> Result<Held, RewindError> {
    let client = connect(url, &url.database()).await?;
    let doing = || RewindError::database("take hold of the state of the database");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    client.batch_execute(begin).await.map_err(doing())?;
    let row = client.query_one(EXPORT, &[]).await.map_err(doing())?;
    let snapshot: &str = row.get(1);
    Ok(Held {
        url: url.clone(),
        name: row.get(0),
        snapshot: snapshot
            .parse()
            .expect("Postgres writes snapshots as xmin:xmax:list"),
        shown: snapshot.to_owned(),
        in_use: row.get(2),
        client,
    })
}

/// Who works in the database is asked when the snapshot is there: what has begun then, and has not
/// ended, is not in it.
const EXPORT: &str = "SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text, \
     EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE datname = pg_catalog.current_database() \
        AND pid <> pg_catalog.pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend' \
        AND application_name NOT LIKE 'hindcast%')";

impl Held {
    /// Writes it into `folder`, which is made: what [`rewind`](crate::rewind) takes for a dump.
    /// Of that, nothing is left if it fails. Rows that are elsewhere are not read here.
    pub async fn dump(
        self,
        folder: &Path,
        elsewhere: Option<&Elsewhere<'_>>,
    ) -> Result<(), RewindError> {
        let done = self.write(folder, elsewhere).await;
        if done.is_err() {
            let _ = std::fs::remove_dir_all(folder);
        }
        done
    }

    async fn write(
        self,
        folder: &Path,
        elsewhere: Option<&Elsewhere<'_>>,
    ) -> Result<(), RewindError> {
        describe(&self.client, folder).await?;
        let without_rows = elsewhere.map_or(&[][..], |it| it.tables);
        into_folder(&self.url, Some(&self.name), without_rows, folder).await?;
        self.client.close().await;
        match elsewhere {
            Some(elsewhere) => elsewhere.write(folder).await,
            None => Ok(()),
        }
    }

    pub async fn discard(self) {
        self.client.close().await;
    }
}

async fn hide(client: &Client, hidden: &Hidden<'_>) -> Result<Vec<String>, RewindError> {
    let doing = "look for columns that are to be left out";
    let rows = client.query(COLUMNS, &[]).await;
    let rows = rows.map_err(RewindError::database(doing))?;
    let mut changes: Vec<(String, Vec<String>)> = Vec::new();
    let mut left_out = Vec::new();
    for row in &rows {
        let (table, column, kind): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if !(hidden.columns)(&column) {
            continue;
        }
        let quoted = quote_identifier(&column);
        let category: String = row.get(3);
        let value = match (category.as_str(), kind.as_str(), row.get::<bool>(4)) {
            ("S", ..) => {
                let text = (hidden.text)(&format!("{quoted}::text"));
                format!("({text})::{kind}")
            }
            (.., false) => "NULL".to_owned(),
            ("N", ..) => "0".to_owned(),
            (_, "bytea", _) => "''".to_owned(),
            _ => {
                return Err(RewindError::NotHidden {
                    table,
                    column,
                    kind,
                });
            }
        };
        left_out.push(format!("{table}.{column}"));
        let change = format!("{quoted} = {value}");
        match changes.last_mut() {
            Some((last, own)) if *last == table => own.push(change),
            _ => changes.push((table, vec![change])),
        }
    }
    for (table, columns) in changes {
        // Triggers would do again what they did.
        let update = format!(
            "ALTER TABLE {table} DISABLE TRIGGER USER; UPDATE {table} SET {}; ALTER TABLE {table} ENABLE TRIGGER USER",
            columns.join(", ")
        );
        run(client, &update).await?;
    }
    Ok(left_out)
}

async fn names(client: &Client) -> Result<Vec<(u32, String)>, RewindError> {
    let rows = client.query(NAMES, &[]).await;
    let rows = rows.map_err(RewindError::database("list tables and sequences"))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn run(client: &Client, statements: &str) -> Result<(), RewindError> {
    let done = client.batch_execute(statements).await;
    done.map_err(RewindError::database("prepare the database for a dump"))
}

/// A dump in a server of its own.
pub(crate) struct Restored {
    pub cluster: Cluster,
    pub url: DatabaseUrl,
    pub oids: HashMap<u32, u32>,
}

pub(crate) async fn restore(folder: &Path, options: &Options) -> Result<Restored, RewindError> {
    let missing = |reason: std::io::Error| RewindError::NotADump {
        folder: folder.to_owned(),
        reason: reason.to_string(),
    };
    let objects = std::fs::read_to_string(folder.join(OBJECTS)).map_err(missing)?;
    let settings = std::fs::read_to_string(folder.join(NOTES)).map_err(missing)?;
    (options.progress)(Step::Recovering);
    let (from, database) = (folder.to_owned(), options.database.clone());
    let cluster = blocking(move || start(&from, &settings, &database)).await?;
    let url = cluster.socket_url(&options.database);
    let client = connect(&url, &options.database).await?;
    let here = names(&client).await?.into_iter();
    let here: HashMap<String, u32> = here.map(|(oid, name)| (name, oid)).collect();
    client.close().await;
    let renamed = objects.lines().filter_map(|line| {
        let (oid, name) = line.split_once(' ')?;
        Some((oid.parse().ok()?, *here.get(name)?))
    });
    Ok(Restored {
        oids: renamed.collect(),
        cluster,
        url,
    })
}

fn start(folder: &Path, settings: &str, database: &str) -> Result<Cluster, RewindError> {
    let cluster = Cluster::temporary(noted(private(), settings))?;
    // What is there already, as the superuser, is no failure.
    let mut roles = Command::new(cluster.binaries().program("psql"));
    roles.args(["-X", "-q", "-f"]).arg(folder.join(ROLES));
    cluster.socket_url("postgres").hand_to(&mut roles);
    supervised(roles)?;
    let list = cluster.folder().join("wanted.list");
    let dumped = folder.join(DATABASE);
    write(&list, &wanted(&cluster, &dumped)?)?;
    let make = ["--create", "--clean", "--if-exists"];
    match folder.join(SEQUENCES).exists() {
        false => restore_into(&cluster, "template1", &make, &list, &dumped)?,
        true => {
            let make = [&make[..], &["--section=pre-data"]].concat();
            restore_into(&cluster, "template1", &make, &list, &dumped)?;
            restore_rows(&cluster, database, folder)?;
            let rest = ["--section=data", "--section=post-data"];
            restore_into(&cluster, database, &rest, &list, &dumped)?;
            let sequences = std::fs::read_to_string(folder.join(SEQUENCES));
            cluster.sql(database, &sequences.map_err(at(folder))?)?;
        }
    }
    // It was called as the copy that the dump was taken of.
    let found = cluster.sql(
        "template1",
        "SELECT pg_catalog.quote_ident(datname) FROM pg_catalog.pg_database WHERE datname LIKE 'hindcast\\_rewound\\_%'",
    )?;
    if let Some(copy) = found.lines().next() {
        let name = quote_identifier(database);
        cluster.sql(
            "template1",
            &format!("ALTER DATABASE {copy} RENAME TO {name}"),
        )?;
    }
    Ok(cluster)
}

/// What was read elsewhere goes into the tables before they have keys and triggers.
fn restore_rows(cluster: &Cluster, database: &str, folder: &Path) -> Result<(), RewindError> {
    let dumped = folder.join(ROWS);
    if !dumped.exists() {
        return Ok(());
    }
    let list = cluster.folder().join("rows.list");
    let all = listed(cluster, &dumped)?;
    // And no sequences, which a backup does not follow.
    let rows = all.lines().filter(|line| line.contains(" TABLE DATA "));
    write(&list, &(rows.collect::<Vec<_>>().join("\n") + "\n"))?;
    restore_into(cluster, database, &["--data-only"], &list, &dumped)
}

fn restore_into(
    cluster: &Cluster,
    database: &str,
    arguments: &[&str],
    list: &Path,
    dumped: &Path,
) -> Result<(), RewindError> {
    let mut restore = Command::new(cluster.binaries().program("pg_restore"));
    restore.args(arguments).arg("--exit-on-error");
    restore.arg("--use-list").arg(list);
    restore.arg("--dbname").arg(database).arg(dumped);
    cluster.socket_url(database).hand_to(&mut restore);
    let output = supervised(restore)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(RewindError::Dump {
            program: "pg_restore".to_owned(),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// What of a dump is restored: all but our own extension, which tells of transactions of the
/// recorded server.
fn wanted(cluster: &Cluster, dump: &Path) -> Result<String, RewindError> {
    let list = listed(cluster, dump)?;
    let is_ours = |line: &&str| {
        let mut words = line.split_whitespace();
        words.any(|word| word == "EXTENSION") && words.any(|word| word == "hindcast")
    };
    let wanted = list.lines().filter(|line| !is_ours(line));
    Ok(wanted.collect::<Vec<_>>().join("\n") + "\n")
}

fn listed(cluster: &Cluster, dump: &Path) -> Result<String, RewindError> {
    let mut program = Command::new(cluster.binaries().program("pg_restore"));
    program.arg("--list").arg(dump).stdin(Stdio::null());
    let output = supervised(program)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn into_file(
    binaries: &Binaries,
    name: &str,
    arguments: &[&str],
    url: &DatabaseUrl,
    path: &Path,
) -> Result<(), RewindError> {
    let mut program = Command::new(binaries.program(name));
    program.args(arguments).stdin(Stdio::null());
    url.hand_to(&mut program);
    let file = hindcast_private::create(path).map_err(at(path))?;
    let output = program
        .stdout(file)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .map_err(at(&binaries.program(name)))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(RewindError::Dump {
            program: name.to_owned(),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), RewindError> {
    hindcast_private::write(path, text).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RewindError {
    let path: PathBuf = path.to_owned();
    move |source| RewindError::Copy { path, source }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RewindError> + Send + 'static,
) -> Result<T, RewindError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
