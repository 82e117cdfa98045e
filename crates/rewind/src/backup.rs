//! A base as a `pg_basebackup`, and its copy into the folder of a private server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hindcast_pg::tokio::Client;
use hindcast_pg::{DatabaseUrl, Lsn};
use hindcast_trace::{Base, BaseKind, Snapshot, Xid};
use hindcast_wal::{Format, widen};

use crate::check;
use crate::error::RewindError;
use crate::server::connect;
use crate::template::now;
use hindcast_cluster::{Binaries, RunAs, supervised};

/// A file that we put beside the backup's own: settings of its server that decide how values look
/// and how statements behave, and the name of a superuser. Debian keeps the configuration outside
/// of the data folder, so the backup alone does not say.
pub(crate) const NOTES: &str = "hindcast.conf";

/// Takes a backup of the whole server of this URL into `folder`, which must be empty or absent.
///
/// `wal_archive` is noted in the base: the folder where the server archives its WAL, or a
/// `restore_command` (recognised by its `%f`). The base's snapshot was taken after the backup
/// ended: all that the backup holds is visible to it.
pub async fn take_backup(
    url: &DatabaseUrl,
    folder: &Path,
    wal_archive: Option<String>,
) -> Result<Base, RewindError> {
    let client = connect(url, &url.database()).await?;
    let row = client
        .query_one(
            "SELECT pg_catalog.current_setting('server_version_num')::int / 10000, \
             (SELECT rolname::text FROM pg_catalog.pg_roles WHERE oid = 10)",
            &[],
        )
        .await
        .map_err(RewindError::database("ask the server for its version"))?;
    let (major, superuser): (i32, Option<String>) = (row.get(0), row.get(1));
    // A newer pg_basebackup understands an older server.
    let binaries = Binaries::find_version(major as u32).or_else(|_| Binaries::find())?;
    // pg_basebackup takes over the modes of the server's data folder, which may let a group in.
    let made = hindcast_private::folders(folder).map_err(|source| RewindError::Copy {
        path: folder.to_owned(),
        source,
    })?;
    let mut program = Command::new(binaries.program("pg_basebackup"));
    program.arg("--pgdata").arg(folder).args([
        "--wal-method=stream",
        "--checkpoint=fast",
        "--no-password",
        "--no-sync",
    ]);
    url.hand_to(&mut program);
    let output = tokio::task::spawn_blocking(move || supervised(program))
        .await
        .expect("waiting for a program does not panic")?;
    if !output.status.success() {
        for folder in made.iter().rev() {
            // It may hold what pg_basebackup left to be looked at.
            let _ = std::fs::remove_dir(folder);
        }
        return Err(RewindError::TakeBackup {
            output: text_of(&output),
        });
    }
    let snapshot = check::current_snapshot(&client).await?;
    let notes = notes(&client, superuser).await?;
    let path = folder.join(NOTES);
    hindcast_private::write(&path, notes).map_err(|source| RewindError::Copy { path, source })?;
    let folder = folder.canonicalize().map_err(|source| RewindError::Copy {
        path: folder.to_owned(),
        source,
    })?;
    Ok(Base {
        taken: now(),
        snapshot,
        kind: BaseKind::Backup {
            folder: folder.display().to_string(),
            wal_archive,
        },
    })
}

/// The content of the file [`NOTES`].
pub(crate) async fn notes(
    client: &Client,
    superuser: Option<String>,
) -> Result<String, RewindError> {
    let settings = client
        .query(
            "SELECT name, setting FROM pg_catalog.pg_settings WHERE setting <> '' AND pg_catalog.lower(name) IN \
             ('timezone', 'datestyle', 'intervalstyle', 'extra_float_digits', 'bytea_output', 'lc_monetary', 'lc_numeric', 'lc_time', \
             'default_text_search_config', 'default_transaction_isolation', 'default_transaction_deferrable', 'standard_conforming_strings', \
             'search_path', 'xmloption', 'array_nulls', 'backslash_quote', 'transform_null_equals', 'max_connections', 'jit') \
             AND source IN ('configuration file', 'command line', 'environment variable')",
            &[],
        )
        .await
        .map_err(RewindError::database("read the server's settings"))?;
    let mut notes =
        String::from("# Settings of the server that was backed up. Written by hindcast.\n");
    for row in settings {
        let (name, value): (&str, &str) = (row.get(0), row.get(1));
        notes.push_str(&format!(
            "{name} = '{}'\n",
            value.replace('\\', "\\\\").replace('\'', "''")
        ));
    }
    if let Some(superuser) = superuser {
        notes.push_str(&format!("# superuser {superuser}\n"));
    }
    Ok(notes)
}

/// Takes a backup that was made without us (unpacked, with its `backup_label`) as a base. Blocking.
///
/// Its snapshot is the earliest possible: more may turn out to be in it, and the check after
/// restoring says so.
pub fn adopt_backup(folder: &Path, wal_archive: Option<String>) -> Result<Base, RewindError> {
    let backup = Backup::open(folder)?;
    let xid = backup.oldest_active;
    Ok(Base {
        taken: now(),
        snapshot: Snapshot {
            xmin: xid,
            xmax: xid,
            in_progress: Vec::new(),
        },
        kind: BaseKind::Backup {
            folder: backup.folder.display().to_string(),
            wal_archive,
        },
    })
}

/// An unpacked backup, as its label and control file describe it.
#[derive(Debug)]
pub(crate) struct Backup {
    pub folder: PathBuf,
    pub binaries: Binaries,
    /// Where its WAL begins.
    pub start: Lsn,
    /// Where it becomes consistent, if its manifest says so.
    pub end: Option<Lsn>,
    pub timeline: u32,
    pub format: Format,
    /// At its last checkpoint. Transactions from here on committed after `start`.
    pub next_xid: Xid,
    pub oldest_active: Xid,
    /// `max_prepared_transactions` and the like: recovery needs at least these.
    pub limits: Vec<(String, String)>,
    pub notes: String,
}

impl Backup {
    pub fn open(folder: &Path) -> Result<Self, RewindError> {
        let folder = folder
            .canonicalize()
            .map_err(|_| RewindError::BackupMissing {
                folder: folder.to_owned(),
            })?;
        let refuse = |reason: &str| RewindError::NotABackup {
            folder: folder.clone(),
            reason: reason.to_owned(),
        };
        if folder.join("base.tar").exists() || folder.join("base.tar.gz").exists() {
            return Err(refuse("it is in tar format"));
        }
        let major = std::fs::read_to_string(folder.join("PG_VERSION"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| refuse("it has no file PG_VERSION"))?;
        let label = std::fs::read_to_string(folder.join("backup_label"))
            .map_err(|_| refuse("it has no backup_label, so nobody knows where its WAL begins"))?;
        let start = label
            .lines()
            .find_map(|line| line.strip_prefix("START WAL LOCATION: "))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .ok_or_else(|| refuse("its backup_label names no START WAL LOCATION"))?;
        let timeline = label
            .lines()
            .find_map(|line| line.strip_prefix("START TIMELINE: "))
            .and_then(|rest| rest.trim().parse().ok())
            .unwrap_or(1);
        let binaries = Binaries::find_version(major)?;
        let output = Command::new(binaries.program("pg_controldata"))
            .arg("-D")
            .arg(&folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| RewindError::Copy {
                path: binaries.program("pg_controldata"),
                source,
            })?;
        if !output.status.success() {
            return Err(refuse(&format!(
                "pg_controldata says: {}",
                text_of(&output)
            )));
        }
        let control = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |name: &str| {
            control
                .lines()
                .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let next_xid = line("Latest checkpoint's NextXID")
            .and_then(|text| {
                let (epoch, xid) = text.split_once(':')?;
                Some(Xid(
                    epoch.parse::<u64>().ok()? << 32 | xid.parse::<u64>().ok()?
                ))
            })
            .ok_or_else(|| refuse("pg_controldata shows no NextXID"))?;
        // Zero unless the server kept WAL for standbys.
        let oldest_active = line("Latest checkpoint's oldestActiveXID")
            .and_then(|text| text.parse::<u32>().ok())
            .filter(|xid| *xid >= 3)
            .map_or(next_xid, |xid| Xid(widen(xid, next_xid.0)));
        let format = wal_format(major, line)
            .ok_or_else(|| refuse(&format!("WAL of Postgres {major} is not known here")))?;
        let limits = [
            ("max_connections setting", "max_connections"),
            ("max_worker_processes setting", "max_worker_processes"),
            ("max_wal_senders setting", "max_wal_senders"),
            ("max_prepared_xacts setting", "max_prepared_transactions"),
            ("max_locks_per_xact setting", "max_locks_per_transaction"),
        ]
        .into_iter()
        .filter_map(|(shown, setting)| Some((setting.to_owned(), line(shown)?.to_owned())))
        .collect();
        let end = std::fs::read_to_string(folder.join("backup_manifest"))
            .ok()
            .and_then(|text| manifest_end(&text));
        let notes = std::fs::read_to_string(folder.join(NOTES)).unwrap_or_default();
        Ok(Self {
            folder,
            binaries,
            start,
            end,
            timeline,
            format,
            next_xid,
            oldest_active,
            limits,
            notes,
        })
    }

    /// A superuser's name and the settings that the notes hold.
    pub fn superuser(&self) -> Option<&str> {
        self.notes
            .lines()
            .find_map(|line| line.strip_prefix("# superuser "))
    }

    /// Compares the backup with its manifest, if it has one. Reads all of it.
    pub fn verify(&self) -> Result<(), RewindError> {
        if !self.folder.join("backup_manifest").exists() {
            return Ok(());
        }
        let program = self.binaries.program("pg_verifybackup");
        let output = Command::new(&program)
            // WAL is looked at where it is read; a backup may well leave it to the archive.
            .args([
                "--no-parse-wal",
                "--ignore=hindcast.conf",
                "--ignore=pg_wal",
                "--quiet",
            ])
            .arg(&self.folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| RewindError::Copy {
                path: program,
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        Err(RewindError::BackupCorrupt {
            folder: self.folder.clone(),
            output: text_of(&output),
        })
    }

    /// Copies everything but WAL and what only concerned the original server. Returns the number of
    /// bytes.
    pub fn copy_to(&self, data: &Path, run_as: &RunAs) -> Result<u64, RewindError> {
        let mut copy = Copy { run_as, bytes: 0 };
        copy.folder(&self.folder, data, &|name| {
            matches!(
                name,
                "pg_wal" | "pg_replslot" | "pg_tblspc" | "postmaster.pid" | "postmaster.opts" | "standby.signal" | "log" | "pg_log"
                    // Recovery takes the links that we make below.
                    | "tablespace_map"
                    // ALTER SYSTEM of the original: archive_command, primary_conninfo, listen_addresses …
                    | "postgresql.auto.conf"
                    | NOTES
            )
        })?;
        for name in [
            "pg_wal",
            "pg_wal/archive_status",
            "pg_replslot",
            "pg_tblspc",
        ] {
            copy.make(&data.join(name))?;
        }
        let tablespaces = self.folder.join("pg_tblspc");
        for entry in std::fs::read_dir(&tablespaces)
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = data.join("../tablespaces").join(entry.file_name());
            run_as.make_folders(&target)?;
            let target = target.canonicalize().map_err(|source| RewindError::Copy {
                path: target.clone(),
                source,
            })?;
            copy.folder(&entry.path(), &target, &|_| false)?;
            let link = data.join("pg_tblspc").join(entry.file_name());
            std::os::unix::fs::symlink(&target, &link).map_err(|source| RewindError::Copy {
                path: link.clone(),
                source,
            })?;
            run_as.own(&link)?;
        }
        Ok(copy.bytes)
    }
}

struct Copy<'a> {
    run_as: &'a RunAs,
    bytes: u64,
}

impl Copy<'_> {
    fn make(&self, folder: &Path) -> Result<(), RewindError> {
        match hindcast_private::folder(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => {
                return Err(RewindError::Copy {
                    path: folder.to_owned(),
                    source,
                });
            }
        }
        Ok(self.run_as.own(folder)?)
    }

    fn folder(
        &mut self,
        source: &Path,
        target: &Path,
        skip: &dyn Fn(&str) -> bool,
    ) -> Result<(), RewindError> {
        self.make(target)?;
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| RewindError::Copy { path, source }
        };
        for entry in std::fs::read_dir(source).map_err(error(source))? {
            let entry = entry.map_err(error(source))?;
            if entry.file_name().to_str().is_some_and(skip) {
                continue;
            }
            let (from, to) = (entry.path(), target.join(entry.file_name()));
            if entry.file_type().map_err(error(&from))?.is_dir() {
                self.folder(&from, &to, &|_| false)?;
            } else {
                // Shares the blocks where the file system can.
                self.bytes += hindcast_private::copy(&from, &to).map_err(error(&from))?;
                self.run_as.own(&to)?;
            }
        }
        Ok(())
    }
}

/// `control` finds a line of what `pg_controldata` shows.
fn wal_format<'a>(major: u32, control: impl Fn(&str) -> Option<&'a str>) -> Option<Format> {
    let bytes = |name| control(name)?.parse().ok();
    Format::new(
        major,
        bytes("WAL block size")?,
        bytes("Bytes per WAL segment")?,
    )
}

/// `End-LSN` of the last of the manifest's `WAL-Ranges`.
fn manifest_end(manifest: &str) -> Option<Lsn> {
    let ranges = &manifest[manifest.rfind("\"WAL-Ranges\"")?..];
    let after = &ranges[ranges.rfind("\"End-LSN\"")? + "\"End-LSN\"".len()..];
    after.split('"').nth(1)?.parse().ok()
}

pub(crate) fn text_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_says_where_the_backup_ends() {
        let manifest = r#"{ "Files": [{ "Path": "End-LSN" }],
            "WAL-Ranges": [{ "Timeline": 1, "Start-LSN": "0/2000028", "End-LSN": "0/2000100" }], "Manifest-Checksum": "x"}"#;
        assert_eq!(manifest_end(manifest), Some(Lsn(0x2000100)));
        assert_eq!(manifest_end("{}"), None);
    }
}
