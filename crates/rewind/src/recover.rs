//! Point-in-time recovery in a private server.

use std::path::Path;
use std::time::Duration;

use hindcast_pg::DatabaseUrl;
use hindcast_trace::Xid;

use crate::backup::Backup;
use crate::error::RewindError;
use crate::point::{Options, Point, Progress, Reached, Step};
use crate::server::connect;
use crate::wal::{Source, Target};
use crate::{check, wal};
use hindcast_cluster::{Cluster, RunAs};

pub(crate) struct Recovered {
    pub url: DatabaseUrl,
    pub reached: Reached,
    pub missing: Vec<Xid>,
    pub cluster: Cluster,
}

/// Restores a backup and recovers it to the point, or, without a WAL archive, to the backup's end.
pub(crate) async fn recover(
    folder: &Path,
    wal_archive: Option<&str>,
    point: &Point,
    options: &Options,
) -> Result<Recovered, RewindError> {
    let restore = Restore {
        folder: folder.to_owned(),
        wal_archive: wal_archive.map(str::to_owned),
        point: point.clone(),
        parent: options.folder.clone(),
        settings: options.settings.clone(),
        verify: options.verify_backup,
        progress: options.progress.clone(),
    };
    let restored = tokio::task::spawn_blocking(move || restore.run())
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    let Restored {
        cluster,
        backup,
        target,
    } = restored;
    let superuser = options
        .superuser
        .as_deref()
        .or(backup.superuser())
        .unwrap_or("postgres");
    // The socket's folder is closed to others, and over it no password is asked: the restored roles
    // have those of the original.
    let url = cluster.socket_url_as(superuser, &options.database);
    (options.progress)(Step::Checking);
    let client = connect(&url, &options.database).await?;
    let lacks = check::recovered(&client, point, backup.next_xid).await?;
    let reached = match target {
        Target::After(commit) => Reached::PointInTime {
            backup: backup.folder.clone(),
            lsn: commit.lsn,
            xid: commit.xid.0 as u32,
        },
        Target::Consistent => Reached::Backup {
            backup: backup.folder.clone(),
        },
    };
    if !lacks.is_empty() && wal_archive.is_some() {
        return Err(RewindError::Lacks { xids: lacks });
    }
    // It was off so that it takes no transaction ids before the check.
    client
        .batch_execute("ALTER SYSTEM SET autovacuum = on")
        .await
        .map_err(RewindError::database("turn autovacuum on"))?;
    client
        .batch_execute("SELECT pg_catalog.pg_reload_conf()")
        .await
        .map_err(RewindError::database("turn autovacuum on"))?;
    Ok(Recovered {
        url,
        reached,
        missing: lacks,
        cluster,
    })
}

/// The part that blocks.
struct Restore {
    folder: std::path::PathBuf,
    wal_archive: Option<String>,
    point: Point,
    parent: Option<std::path::PathBuf>,
    settings: Vec<(String, String)>,
    verify: bool,
    progress: Progress,
}

struct Restored {
    cluster: Cluster,
    backup: Backup,
    target: Target,
}

impl Restore {
    fn run(self) -> Result<Restored, RewindError> {
        let backup = Backup::open(&self.folder)?;
        if self.verify {
            (self.progress)(Step::VerifyingBackup);
            backup.verify()?;
        }
        let run_as = RunAs::unprivileged()?;
        let scratch =
            hindcast_cluster::Scratch::new(self.parent.as_deref(), "hindcast-rewound-", &run_as)?;
        // Looking at WAL before copying: most that can go wrong does so here, and early.
        let staging = scratch.path().join("wal");
        let mut source = Source::new(self.wal_archive.as_deref(), &backup, &staging, &run_as)?;
        let target = match self.wal_archive {
            Some(_) => wal::find_target(&mut source, &backup, &self.point, &self.progress)?,
            None => {
                source.stage_backup_wal()?;
                Target::Consistent
            }
        };
        (self.progress)(Step::Copying { bytes: 0 });
        let data = scratch.path().join("data");
        let bytes = backup.copy_to(&data, &run_as)?;
        (self.progress)(Step::Copying { bytes });
        let signal = data.join("recovery.signal");
        hindcast_private::write(&signal, "").map_err(|source| RewindError::Copy {
            path: signal.clone(),
            source,
        })?;
        run_as.own(&signal)?;

        let mut options = self.server_options(&backup, &staging);
        options = match target {
            Target::Consistent => options.set("recovery_target", "immediate"),
            // Not recovery_target_xid: ids are 32 bits there, and a position is what was found.
            Target::After(commit) => options
                .set("recovery_target_lsn", commit.lsn)
                .set("recovery_target_inclusive", "on"),
        };
        (self.progress)(Step::Recovering);
        let mut cluster = Cluster::open(scratch.path(), options)?;
        cluster.adopt(scratch);
        cluster.start().map_err(RewindError::Recovery)?;
        // Recovery has copied what it needed; what is left may be as large as the database.
        let _ = std::fs::remove_dir_all(&staging);
        Ok(Restored {
            cluster,
            backup,
            target,
        })
    }

    fn server_options(&self, backup: &Backup, staging: &Path) -> hindcast_cluster::Options {
        let mut options = private();
        options.binaries = Some(backup.binaries.clone());
        // Recovery takes as long as it takes; a server that fails ends by itself.
        options.start_timeout = Duration::from_secs(7 * 24 * 3600);
        options = noted(options, &backup.notes);
        for (name, value) in &backup.limits {
            options = options.set(name, value);
        }
        let staging = staging.display().to_string().replace('\'', "'\\''");
        options = options
            .set("hot_standby", "off")
            .set(
                "restore_command",
                format!("cp '{}'/%f \"%p\"", staging.replace('%', "%%")),
            )
            .set("recovery_target_action", "promote")
            .set("recovery_target_timeline", "latest")
            .set("shared_buffers", "128MB")
            // Nothing in the copy may act on the world: no archiving, no subscriptions to the
            // original's publishers.
            .set("archive_mode", "off")
            .set("max_logical_replication_workers", 0)
            .set("autovacuum", "off");
        options.settings.extend(self.settings.iter().cloned());
        options
    }
}

/// Of a server that only we reach, over its socket. Others on this machine need the password that
/// they need for the original.
pub(crate) fn private() -> hindcast_cluster::Options {
    let mut options = hindcast_cluster::Options::throw_away();
    options.hba = "local all all trust\nhost all all 127.0.0.1/32 md5\n".to_owned();
    options
}

/// With the settings that were noted of the recorded server.
pub(crate) fn noted(
    mut options: hindcast_cluster::Options,
    notes: &str,
) -> hindcast_cluster::Options {
    for line in notes.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once(" = ") {
            let value = value
                .trim_matches('\'')
                .replace("''", "'")
                .replace("\\\\", "\\");
            options = options.set(name, value);
        }
    }
    options
}
