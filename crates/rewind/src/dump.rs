//! A base that can be given away: one database as `pg_dump` writes it, in a folder.
//!
//! ```text
//!   database.dump    pg_dump's own format, compressed
//!   roles.sql        the roles of its server, without passwords
//!   objects.txt      oid and name of tables and sequences, one a line: recordings name them by oid
//!   hindcast.conf    settings of the server that decide how values look
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
    into_folder(url, None, folder).await?;
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

/// As of an exported snapshot, if one is named.
async fn into_folder(
    url: &DatabaseUrl,
    snapshot: Option<&str>,
    folder: &Path,
) -> Result<(), RewindError> {
    let (url, folder) = (url.clone(), folder.to_owned());
    let snapshot = snapshot.map(|name| format!("--snapshot={name}"));
    blocking(move || {
        let binaries = Binaries::find()?;
        let mut dumped = vec!["--format=custom", "--create", "--no-password"];
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

/// A state of a database that is in use, held in a transaction until it is written or dropped.
pub struct Held {
    client: Client,
    url: DatabaseUrl,
    name: String,
    pub snapshot: Snapshot,
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
    /// Of that, nothing is left if it fails.
    pub async fn dump(self, folder: &Path) -> Result<(), RewindError> {
        let done = match describe(&self.client, folder).await {
            Ok(()) => into_folder(&self.url, Some(&self.name), folder).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            let _ = std::fs::remove_dir_all(folder);
        }
        self.client.close().await;
        done
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
    write(&list, &wanted(&cluster, &folder.join(DATABASE))?)?;
    let mut restore = Command::new(cluster.binaries().program("pg_restore"));
    restore.args(["--create", "--clean", "--if-exists", "--exit-on-error"]);
    restore.arg("--use-list").arg(&list);
    restore.arg("--dbname=template1").arg(folder.join(DATABASE));
    cluster.socket_url("template1").hand_to(&mut restore);
    let output = supervised(restore)?;
    if !output.status.success() {
        return Err(RewindError::Dump {
            program: "pg_restore".to_owned(),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
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

/// What of a dump is restored: all but our own extension, which tells of transactions of the
/// recorded server.
fn wanted(cluster: &Cluster, dump: &Path) -> Result<String, RewindError> {
    let mut program = Command::new(cluster.binaries().program("pg_restore"));
    program.arg("--list").arg(dump).stdin(Stdio::null());
    let output = supervised(program)?;
    let list = String::from_utf8_lossy(&output.stdout);
    let is_ours = |line: &&str| {
        let mut words = line.split_whitespace();
        words.any(|word| word == "EXTENSION") && words.any(|word| word == "hindcast")
    };
    let wanted = list.lines().filter(|line| !is_ours(line));
    Ok(wanted.collect::<Vec<_>>().join("\n") + "\n")
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
