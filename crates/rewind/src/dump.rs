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
    let mut objects = String::new();
    for (oid, name) in names(&client).await? {
        objects.push_str(&format!("{oid} {name}\n"));
    }
    let settings = notes(&client, None).await?;
    client.close().await;
    hindcast_private::folders(folder).map_err(at(folder))?;
    write(&folder.join(OBJECTS), &objects)?;
    write(&folder.join(NOTES), &settings)?;
    let (url, folder) = (url.clone(), folder.to_owned());
    blocking(move || {
        let binaries = Binaries::find()?;
        let dumped = ["--format=custom", "--create", "--no-password"];
        into_file(&binaries, "pg_dump", &dumped, &url, &folder.join(DATABASE))?;
        let roles = ["--roles-only", "--no-role-passwords", "--no-password"];
        into_file(&binaries, "pg_dumpall", &roles, &url, &folder.join(ROLES))
    })
    .await?;
    Ok(columns)
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
    let mut restore = Command::new(cluster.binaries().program("pg_restore"));
    restore.args(["--create", "--clean", "--if-exists", "--exit-on-error"]);
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
