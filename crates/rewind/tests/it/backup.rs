//! Backups, and recovery to the exact transaction.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hindcast_cluster::{Cluster, ClusterError, Options as ClusterOptions, Shutdown};
use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectOptions, DatabaseUrl};
use hindcast_rewind::{Options, Point, Reached, RewindError, adopt_backup, rewind, take_backup};
use hindcast_trace::{Base, BaseKind, Snapshot, Xid};

/// A server that archives its WAL, a database `app` on it, and a backup.
struct Production {
    cluster: Cluster,
    folder: tempfile::TempDir,
    base: Base,
}

impl Production {
    /// `setup` runs in `app` before the backup is taken.
    async fn new(setup: &str) -> Self {
        Self::in_epoch(0, setup).await
    }

    /// A server whose transaction ids have wrapped around this often.
    async fn in_epoch(epoch: u32, setup: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("hindcast-test-")
            .tempdir()
            .unwrap();
        open_to_all(folder.path());
        let archive = folder.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        open_to_all(&archive);
        let options = ClusterOptions::throw_away()
            .set("archive_mode", "on")
            .set(
                "archive_command",
                format!("cp %p '{}/%f'", archive.display()),
            )
            .set("max_prepared_transactions", 5)
            .set("max_connections", 40)
            // Nothing but what the tests do takes transaction ids.
            .set("autovacuum", "off");
        let mut cluster = Cluster::init(&folder.path().join("cluster"), options).unwrap();
        if epoch > 0 {
            let program = cluster.binaries().program("pg_resetwal");
            let mut reset = cluster.run_as().command(program, cluster.folder());
            reset
                .arg("--epoch")
                .arg(epoch.to_string())
                .arg("-D")
                .arg(cluster.data_folder());
            assert!(reset.status().unwrap().success());
        }
        cluster.start().unwrap();
        let admin = cluster.connect("postgres").await.unwrap();
        admin.batch_execute("CREATE DATABASE app").await.unwrap();
        let app = cluster.connect("app").await.unwrap();
        app.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (0)")
            .await
            .unwrap();
        app.batch_execute(setup).await.unwrap();
        let archive = archive.display().to_string();
        let base = take_backup(
            &cluster.url("app").parse().unwrap(),
            &folder.path().join("backup"),
            Some(archive),
        )
        .await
        .unwrap();
        Self {
            cluster,
            folder,
            base,
        }
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    fn archive(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    fn options(&self) -> Options {
        Options {
            folder: Some(self.folder.path().join("restored")),
            ..Options::new("app")
        }
    }

    async fn client(&self) -> Client {
        self.cluster.connect("app").await.unwrap()
    }

    /// Closes the current segment and waits until it is archived.
    async fn archive_all(&self) {
        let client = self.cluster.connect("postgres").await.unwrap();
        let row = client
            .query_one("SELECT pg_walfile_name(pg_current_wal_insert_lsn())", &[])
            .await
            .unwrap();
        let segment: String = row.get(0);
        client
            .batch_execute("CHECKPOINT; SELECT pg_switch_wal()")
            .await
            .unwrap();
        let sql = "SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver";
        while !client
            .query_one(sql, &[&segment])
            .await
            .unwrap()
            .get::<bool>(0)
        {}
    }

    fn without_archive(&self) -> Base {
        let folder = self.backup().display().to_string();
        Base {
            kind: BaseKind::Backup {
                folder,
                wal_archive: None,
            },
            ..self.base.clone()
        }
    }

    fn with_archive(&self, wal_archive: &str) -> Base {
        let folder = self.backup().display().to_string();
        Base {
            kind: BaseKind::Backup {
                folder,
                wal_archive: Some(wal_archive.to_owned()),
            },
            ..self.base.clone()
        }
    }
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

async fn begin(client: &Client) -> Snapshot {
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    let row = client
        .query_one("SELECT pg_current_snapshot()::text", &[])
        .await
        .unwrap();
    let parts: Vec<&str> = row.get::<&str>(0).split(':').collect();
    Snapshot {
        xmin: Xid(parts[0].parse().unwrap()),
        xmax: Xid(parts[1].parse().unwrap()),
        in_progress: parts[2]
            .split(',')
            .filter(|xid| !xid.is_empty())
            .map(|xid| Xid(xid.parse().unwrap()))
            .collect(),
    }
}

async fn write(client: &Client, k: i32) -> Xid {
    client
        .execute("INSERT INTO t VALUES ($1)", &[&k])
        .await
        .unwrap();
    let row = client
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap();
    Xid(row.get::<&str>(0).parse().unwrap())
}

/// One transaction that inserts `k`: its id, and what it saw.
async fn commit(client: &Client, k: i32) -> (Xid, Snapshot) {
    let seen = begin(client).await;
    let xid = write(client, k).await;
    client.batch_execute("COMMIT").await.unwrap();
    (xid, seen)
}

async fn keys(url: &DatabaseUrl) -> Vec<i32> {
    let client = Client::connect(url, &ConnectOptions::default())
        .await
        .unwrap();
    client
        .query("SELECT k FROM t ORDER BY k", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

fn set(xids: &[Xid]) -> BTreeSet<Xid> {
    xids.iter().copied().collect()
}

fn point(included: &[Xid], excluded: &[Xid], first: &Snapshot) -> Point {
    Point {
        included: set(included),
        excluded: set(excluded),
        first_snapshot: Some(first.clone()),
        ..Point::default()
    }
}

#[tokio::test]
async fn recovery_stops_at_the_exact_transaction() {
    let production = Production::new("").await;
    let client = production.client().await;
    let mut committed = Vec::new();
    for k in 1..=6 {
        committed.push(commit(&client, k).await);
    }
    production.archive_all().await;
    let xids: Vec<Xid> = committed.iter().map(|(xid, _)| *xid).collect();
    for at in [1, 4] {
        let point = point(&xids[..at], &xids[at..], &committed[at].1);
        let rewound = rewind(&production.base, &point, &production.options())
            .await
            .unwrap();
        assert_eq!(
            keys(rewound.url()).await,
            (0..=at as i32).collect::<Vec<_>>()
        );
        assert_eq!(rewound.missing(), []);
        let Reached::PointInTime { xid, .. } = rewound.reached() else {
            panic!("{:?}", rewound.reached())
        };
        assert_eq!(u64::from(*xid), xids[at - 1].0);
        // It can be written to, and nothing of that reaches production.
        let writer = rewound.cluster().unwrap().connect("app").await.unwrap();
        writer
            .batch_execute("INSERT INTO t VALUES (100)")
            .await
            .unwrap();
        let (folder, pid) = (
            rewound.cluster().unwrap().folder().to_owned(),
            rewound.cluster().unwrap().pid().unwrap(),
        );
        rewound.discard().await.unwrap();
        assert!(!folder.exists() && !Path::new(&format!("/proc/{pid}")).exists());
    }
    assert_eq!(
        keys(&production.cluster.socket_url("app")).await,
        (0..=6).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn the_end_of_the_backup_is_reached_when_nothing_came_before_the_first_request() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (first, seen) = commit(&client, 1).await;
    production.archive_all().await;
    let rewound = rewind(
        &production.base,
        &point(&[], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0]);
    assert!(matches!(rewound.reached(), Reached::Backup { .. }));
}

#[tokio::test]
async fn without_an_archive_the_missing_transactions_are_named() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (first, _) = commit(&client, 1).await;
    let (second, _) = commit(&client, 2).await;
    let (third, seen) = commit(&client, 3).await;
    let point = point(&[first, second], &[third], &seen);
    let rewound = rewind(&production.without_archive(), &point, &production.options())
        .await
        .unwrap();
    assert_eq!(rewound.missing(), [first, second]);
    assert_eq!(keys(rewound.url()).await, [0]);
}

#[tokio::test]
async fn what_committed_first_comes_first_whatever_its_id() {
    let production = Production::new("").await;
    let (a, b) = (production.client().await, production.client().await);
    // The older transaction commits last.
    begin(&a).await;
    let older = write(&a, 1).await;
    let (younger, _) = commit(&b, 2).await;
    let (reader, seen) = commit(&b, 3).await;
    a.batch_execute("COMMIT").await.unwrap();
    production.archive_all().await;
    assert!(older < younger);
    let wanted = point(&[younger], &[older, reader], &seen);
    let rewound = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 2]);

    // No moment had the older one without the younger one.
    let impossible = Point {
        included: set(&[older]),
        excluded: set(&[younger]),
        ..Point::default()
    };
    let error = rewind(&production.base, &impossible, &production.options())
        .await
        .unwrap_err();
    assert!(
        matches!(error, RewindError::Interleaved { excluded, included, .. } if excluded == younger && included == older),
        "{error}"
    );
}

#[tokio::test]
async fn a_writer_that_nobody_recorded_is_in_if_the_first_transaction_saw_it() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (recorded, _) = commit(&client, 1).await;
    commit(&client, 2).await;
    let (first, seen) = commit(&client, 3).await;
    commit(&client, 4).await;
    production.archive_all().await;
    let rewound = rewind(
        &production.base,
        &point(&[recorded], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1, 2]);
}

#[tokio::test]
async fn savepoints_aborts_and_two_phase_commits_are_understood() {
    let production = Production::new("").await;
    let client = production.client().await;
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (90); ROLLBACK")
        .await
        .unwrap();
    begin(&client).await;
    let with_savepoint = write(&client, 1).await;
    client
        .batch_execute(
            "SAVEPOINT a; INSERT INTO t VALUES (2); \
             SAVEPOINT b; INSERT INTO t VALUES (91); ROLLBACK TO b",
        )
        .await
        .unwrap();
    // As a recorder asks for them.
    let ids = client
        .query(
            "SELECT transactionid::text::bigint FROM pg_locks \
             WHERE pid = pg_backend_pid() AND locktype = 'transactionid'",
            &[],
        )
        .await
        .unwrap();
    let ids: Vec<Xid> = ids
        .iter()
        .map(|row| Xid(row.get::<i64>(0) as u64))
        .collect();
    assert_eq!(ids.len(), 2, "the transaction and one subtransaction");
    client.batch_execute("COMMIT").await.unwrap();
    begin(&client).await;
    let prepared = write(&client, 3).await;
    client
        .batch_execute("PREPARE TRANSACTION 'one'")
        .await
        .unwrap();
    client.batch_execute("COMMIT PREPARED 'one'").await.unwrap();
    begin(&client).await;
    let still_prepared = write(&client, 4).await;
    client
        .batch_execute("PREPARE TRANSACTION 'two'")
        .await
        .unwrap();
    let (first, seen) = commit(&client, 5).await;
    client.batch_execute("COMMIT PREPARED 'two'").await.unwrap();
    production.archive_all().await;
    let wanted = point(
        &[with_savepoint, ids[0], ids[1], prepared],
        &[first, still_prepared],
        &seen,
    );
    let rewound = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn many_segments_are_read() {
    let production = Production::new("").await;
    let client = production.client().await;
    client
        .batch_execute("CREATE TABLE big (v text); ALTER TABLE big ALTER v SET STORAGE external")
        .await
        .unwrap();
    let mut recorded = Vec::new();
    let mut first = None;
    for k in 1..=20 {
        client.batch_execute("INSERT INTO big SELECT repeat(md5(g::text), 300) FROM generate_series(1, 800) g; SELECT pg_switch_wal()").await.unwrap();
        recorded.push(commit(&client, k).await);
        first = recorded.last().cloned();
    }
    production.archive_all().await;
    let (last, seen) = first.unwrap();
    let xids: Vec<Xid> = recorded[..19].iter().map(|(xid, _)| *xid).collect();
    let rewound = rewind(
        &production.base,
        &point(&xids, &[last], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, (0..=19).collect::<Vec<_>>());
}

#[tokio::test]
async fn wal_comes_through_a_restore_command_too() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (recorded, _) = commit(&client, 1).await;
    let (first, seen) = commit(&client, 2).await;
    production.archive_all().await;
    let wanted = point(&[recorded], &[first], &seen);
    let base = production.with_archive(&format!(
        "cp '{}/%f' \"%p\"",
        production.archive().display()
    ));
    let rewound = rewind(&base, &wanted, &production.options()).await.unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1]);

    let base = production.with_archive("no_such_program_at_all %f %p");
    let error = rewind(&base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::Archive { .. }), "{error}");
    assert!(
        error.to_string().contains("no_such_program_at_all"),
        "{error}"
    );
}

#[tokio::test]
async fn a_segment_that_is_still_being_received_serves() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (recorded, _) = commit(&client, 1).await;
    let (first, seen) = commit(&client, 2).await;
    production.archive_all().await;
    // As pg_receivewal leaves it: the newest segment under another name.
    let newest = segments(&production).pop().unwrap();
    std::fs::rename(&newest, newest.with_extension("partial")).unwrap();
    let rewound = rewind(
        &production.base,
        &point(&[recorded], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1]);
}

/// Archived segments, oldest first.
fn segments(production: &Production) -> Vec<PathBuf> {
    let mut segments: Vec<PathBuf> = std::fs::read_dir(production.archive())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none())
        .collect();
    segments.sort();
    segments
}

#[tokio::test]
async fn an_archive_that_ends_too_early_says_where() {
    let production = Production::new("").await;
    let client = production.client().await;
    production.archive_all().await;
    let (recorded, _) = commit(&client, 1).await;
    let (first, seen) = commit(&client, 2).await;
    // The segment with the commits is still open.
    let wanted = point(&[recorded], &[first], &seen);
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    let RewindError::NotReached {
        needed, segment, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(needed, &[recorded]);
    let row = client
        .query_one("SELECT pg_walfile_name(pg_current_wal_insert_lsn())", &[])
        .await
        .unwrap();
    assert_eq!(segment, row.get::<&str>(0));
    assert!(error.hint().unwrap().contains("pg_switch_wal"));
    nothing_left(&production);
}

#[tokio::test]
async fn a_missing_segment_is_named() {
    let production = Production::new("").await;
    let client = production.client().await;
    production.archive_all().await;
    let (early, _) = commit(&client, 1).await;
    production.archive_all().await;
    let (late, _) = commit(&client, 2).await;
    production.archive_all().await;
    let (first, seen) = commit(&client, 3).await;
    production.archive_all().await;
    let lost = segments(&production).into_iter().rev().nth(2).unwrap();
    std::fs::remove_file(&lost).unwrap();
    let error = rewind(
        &production.base,
        &point(&[early, late], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap_err();
    let RewindError::SegmentMissing {
        segment, needed, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(segment, lost.file_name().unwrap().to_str().unwrap());
    assert!(needed.contains(&late));
    nothing_left(&production);
}

#[tokio::test]
async fn a_damaged_or_truncated_segment_is_not_taken_for_the_end() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (early, _) = commit(&client, 1).await;
    production.archive_all().await;
    let (late, _) = commit(&client, 2).await;
    let (first, seen) = commit(&client, 3).await;
    production.archive_all().await;
    let wanted = point(&[early, late], &[first], &seen);
    let newest = segments(&production).pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();

    std::fs::write(&newest, &bytes[..1 << 20]).unwrap();
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("has 1048576 bytes"), "{error}");

    std::fs::write(&newest, vec![0xAA; bytes.len()]).unwrap();
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            RewindError::NotReached { .. } | RewindError::WalUnreadable { .. }
        ),
        "{error}"
    );
    std::fs::write(&newest, bytes).unwrap();

    // With a sound segment after it, what cannot be read is not where WAL ends.
    let before = segments(&production).into_iter().rev().nth(1).unwrap();
    let mut bytes = std::fs::read(&before).unwrap();
    bytes[100..].fill(0);
    std::fs::write(&before, bytes).unwrap();
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(
        matches!(error, RewindError::WalUnreadable { .. }),
        "{error}"
    );
    nothing_left(&production);
}

#[tokio::test]
async fn a_backup_that_is_gone_unusable_or_damaged_is_told_apart() {
    let production = Production::new("CREATE TABLE victim (v text); INSERT INTO victim SELECT repeat('x', 100) FROM generate_series(1, 1000)").await;
    let refused = async || {
        rewind(
            &production.without_archive(),
            &Point::default(),
            &production.options(),
        )
        .await
        .unwrap_err()
    };

    let client = production.client().await;
    let row = client
        .query_one("SELECT pg_relation_filepath('victim')", &[])
        .await
        .unwrap();
    let file = production.backup().join(row.get::<&str>(0));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = refused().await;
    assert!(
        matches!(error, RewindError::BackupCorrupt { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(row.get::<&str>(0)), "{error}");

    std::fs::remove_file(production.backup().join("backup_label")).unwrap();
    let error = refused().await;
    assert!(
        matches!(error, RewindError::NotABackup { .. })
            && error.to_string().contains("backup_label"),
        "{error}"
    );

    std::fs::remove_dir_all(production.backup()).unwrap();
    let error = refused().await;
    assert!(
        matches!(error, RewindError::BackupMissing { .. }),
        "{error}"
    );
    nothing_left(&production);
}

#[tokio::test]
async fn a_backup_newer_than_the_first_request_is_refused() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (first, seen) = commit(&client, 1).await;
    let later = take_backup(
        &production.cluster.url("app").parse().unwrap(),
        &production.folder.path().join("later"),
        Some(production.archive().display().to_string()),
    )
    .await
    .unwrap();
    production.archive_all().await;
    let point = point(&[], &[first], &seen);
    let error = rewind(&later, &point, &production.options())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RewindError::Holds { xids } if xids == &[first]),
        "{error}"
    );
    nothing_left(&production);
}

#[tokio::test]
async fn a_backup_made_by_others_serves() {
    let production = Production::new("").await;
    let client = production.client().await;
    let (recorded, _) = commit(&client, 1).await;
    let (first, seen) = commit(&client, 2).await;
    production.archive_all().await;
    // Without our notes and without a manifest, as other tools leave it.
    std::fs::remove_file(production.backup().join("hindcast.conf")).unwrap();
    std::fs::remove_file(production.backup().join("backup_manifest")).unwrap();
    let base = adopt_backup(
        &production.backup(),
        Some(production.archive().display().to_string()),
    )
    .unwrap();
    assert!(!base.snapshot.sees(recorded));
    let rewound = rewind(
        &base,
        &point(&[recorded], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1]);
}

#[tokio::test]
async fn tablespaces_are_copied_and_not_shared() {
    let folder = tempfile::Builder::new()
        .prefix("hindcast-test-")
        .tempdir()
        .unwrap();
    open_to_all(folder.path());
    let production = Production::new("").await;
    let space = production.cluster.folder().join("space");
    std::fs::create_dir(&space).unwrap();
    production.cluster.run_as().own(&space).unwrap();
    let client = production.client().await;
    client
        .batch_execute(&format!(
            "CREATE TABLESPACE space LOCATION '{}'",
            space.display()
        ))
        .await
        .unwrap();
    client
        .batch_execute("CREATE TABLE far (k int) TABLESPACE space; INSERT INTO far VALUES (7)")
        .await
        .unwrap();
    // pg_basebackup will not put a second copy where the first one is.
    let backup = folder.path().join("backup");
    let output = std::process::Command::new(production.cluster.binaries().program("pg_basebackup"))
        .arg("-D")
        .arg(&backup)
        .arg("-d")
        .arg(production.cluster.url("app"))
        .arg(format!(
            "--tablespace-mapping={}={}",
            space.display(),
            folder.path().join("mapped").display()
        ))
        .args(["--checkpoint=fast", "--no-sync"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let base = adopt_backup(&backup, None).unwrap();
    let rewound = rewind(&base, &Point::default(), &production.options())
        .await
        .unwrap();
    let client = rewound.cluster().unwrap().connect("app").await.unwrap();
    let row = client.query_one("SELECT k, (SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 'space') FROM far", &[]).await.unwrap();
    assert_eq!(row.get::<i32>(0), 7);
    assert!(
        Path::new(row.get::<&str>(1)).starts_with(rewound.cluster().unwrap().folder()),
        "{}",
        row.get::<&str>(1)
    );
}

#[tokio::test]
async fn the_copy_keeps_settings_and_acts_on_nothing() {
    let production = Production::new("ALTER SYSTEM SET timezone = 'Asia/Tokyo'; ").await;
    let client = production.client().await;
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    while client
        .query_one("SELECT current_setting('timezone')", &[])
        .await
        .unwrap()
        .get::<&str>(0)
        != "Asia/Tokyo"
    {}
    let folder = production.folder.path().join("second");
    let base = take_backup(
        &production.cluster.url("app").parse().unwrap(),
        &folder,
        None,
    )
    .await
    .unwrap();
    let rewound = rewind(&base, &Point::default(), &production.options())
        .await
        .unwrap();
    let client = rewound.cluster().unwrap().connect("app").await.unwrap();
    let row = client
        .query_one(
            "SELECT current_setting('timezone'), current_setting('archive_mode'), current_setting('max_connections'), \
             current_setting('autovacuum'), pg_is_in_recovery()",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get(0), row.get(1), row.get(2), row.get(4)),
        ("Asia/Tokyo", "off", "40", false)
    );
}

#[tokio::test]
async fn a_kept_database_outlives_its_handle() {
    let production = Production::new("").await;
    let rewound = rewind(
        &production.without_archive(),
        &Point::default(),
        &production.options(),
    )
    .await
    .unwrap();
    let (pid, folder) = (
        rewound.cluster().unwrap().pid().unwrap(),
        rewound.cluster().unwrap().folder().to_owned(),
    );
    let kept = rewound.keep().await.unwrap();
    assert_eq!(keys(&kept.url).await, [0]);
    assert!(
        kept.removal.contains(&pid.to_string()) && kept.removal.contains(folder.to_str().unwrap()),
        "{}",
        kept.removal
    );
    assert!(
        std::process::Command::new("kill")
            .args(["-QUIT", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    while folder.join("data/postmaster.pid").exists() {}
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_disk_too_small_for_the_copy_is_named() {
    let production = Production::new("").await;
    let small = production.folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs"])
        .arg(&small)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("skipped: only root may mount a small disk");
        return;
    }
    let options = Options {
        folder: Some(small.clone()),
        ..production.options()
    };
    let error = rewind(&production.without_archive(), &Point::default(), &options)
        .await
        .unwrap_err();
    let left = std::fs::read_dir(&small).unwrap().count();
    assert!(
        std::process::Command::new("umount")
            .arg(&small)
            .status()
            .unwrap()
            .success()
    );
    assert!(
        matches!(&error, RewindError::Copy { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("larger disk"));
    assert_eq!(left, 0, "what was copied is removed again");
}

#[tokio::test]
async fn taking_a_backup_says_what_it_lacks() {
    let cluster = Cluster::temporary_async(
        ClusterOptions::throw_away()
            .set("max_wal_senders", 0)
            .set("wal_level", "minimal"),
    )
    .await
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = take_backup(
        &cluster.url("postgres").parse().unwrap(),
        &folder.path().join("b"),
        None,
    )
    .await
    .unwrap_err();
    assert!(matches!(error, RewindError::TakeBackup { .. }), "{error}");
    assert!(error.hint().unwrap().contains("max_wal_senders"));
}

#[tokio::test]
async fn a_recovery_that_fails_quotes_the_log() {
    let production = Production::new("").await;
    let options = Options {
        settings: vec![(
            "shared_preload_libraries".to_owned(),
            "no_such_library".to_owned(),
        )],
        ..production.options()
    };
    let error = rewind(&production.without_archive(), &Point::default(), &options)
        .await
        .unwrap_err();
    let RewindError::Recovery(ClusterError::Start { log, .. }) = &error else {
        panic!("{error:?}")
    };
    assert!(log.contains("no_such_library"), "{log}");
    nothing_left(&production);
}

#[tokio::test]
async fn ids_of_a_later_epoch_are_kept_apart() {
    let production = Production::in_epoch(5, "").await;
    let client = production.client().await;
    let (recorded, _) = commit(&client, 1).await;
    let (first, seen) = commit(&client, 2).await;
    production.archive_all().await;
    assert_eq!(recorded.0 >> 32, 5);
    let rewound = rewind(
        &production.base,
        &point(&[recorded], &[first], &seen),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1]);
    // The same low half in another epoch is another transaction.
    let stranger = Xid(recorded.0 & 0xFFFF_FFFF);
    let wanted = Point {
        included: set(&[Xid(recorded.0 + (1 << 32))]),
        excluded: set(&[first]),
        ..Point::default()
    };
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::NotReached { .. }), "{error}");
    let wanted = point(
        &[recorded],
        &[first, stranger],
        &Snapshot {
            xmin: recorded,
            ..seen
        },
    );
    let error = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::SeenTooEarly { .. }), "{error}");
}

#[tokio::test]
async fn recovery_follows_the_server_to_a_new_timeline() {
    let mut production = Production::new("").await;
    let client = production.client().await;
    let (before, _) = commit(&client, 1).await;
    drop(client);
    // As after a failover: recovery ends, a new timeline begins.
    production.cluster.stop(Shutdown::Fast).unwrap();
    let signal = production.cluster.data_folder().join("recovery.signal");
    std::fs::write(&signal, "").unwrap();
    production.cluster.run_as().own(&signal).unwrap();
    let options = production.cluster.options_mut();
    *options = options
        .clone()
        .set("restore_command", "false")
        .set("hot_standby", "off");
    production.cluster.start().unwrap();
    let client = production.client().await;
    let (after, _) = commit(&client, 2).await;
    let (first, seen) = commit(&client, 3).await;
    production.archive_all().await;
    let names: Vec<_> = segments(&production)
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap()[..8].to_owned())
        .collect();
    assert!(names.contains(&"00000002".to_owned()), "{names:?}");
    let wanted = point(&[before, after], &[first], &seen);
    let rewound = rewind(&production.base, &wanted, &production.options())
        .await
        .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_first_request_within_the_backup_is_refused_before_anything_is_copied() {
    let production = Production::new("").await;
    let client = production.client().await;
    // By hand, for pg_basebackup leaves no time between its start and its end.
    client
        .batch_execute("SELECT pg_backup_start('by hand', true)")
        .await
        .unwrap();
    let (first, seen) = commit(&production.client().await, 1).await;
    let backup = production.folder.path().join("by hand");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(production.cluster.data_folder())
        .arg(&backup)
        .status()
        .unwrap();
    assert!(copied.success());
    let row = client
        .query_one("SELECT labelfile FROM pg_backup_stop(false)", &[])
        .await
        .unwrap();
    std::fs::write(backup.join("backup_label"), row.get::<&str>(0)).unwrap();
    let (later, seen_later) = commit(&client, 2).await;
    production.archive_all().await;
    let base = adopt_backup(&backup, Some(production.archive().display().to_string())).unwrap();
    let error = rewind(&base, &point(&[], &[first], &seen), &production.options())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RewindError::BaseTooNew { xids } if xids == &[first]),
        "{error}"
    );
    nothing_left(&production);
    // What is in by the end of the backup is fine.
    let rewound = rewind(
        &base,
        &point(&[first], &[later], &seen_later),
        &production.options(),
    )
    .await
    .unwrap();
    assert_eq!(keys(rewound.url()).await, [0, 1]);
}

/// No folder and no server of a failed rewind.
fn nothing_left(production: &Production) {
    let left: Vec<_> = std::fs::read_dir(production.folder.path().join("restored"))
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Runs in a process of its own, which is killed while it rewinds.
#[tokio::test]
#[ignore = "run by the test below, in a process of its own"]
async fn rewind_as_told() {
    let backup = std::env::var("HINDCAST_TEST_BACKUP").unwrap();
    let restored = std::env::var("HINDCAST_TEST_RESTORED").unwrap();
    let base = adopt_backup(Path::new(&backup), None).unwrap();
    let progress = std::sync::Arc::new(|step: hindcast_rewind::Step| println!("\nstep {step:?}"));
    let options = Options {
        folder: Some(restored.into()),
        progress,
        ..Options::new("app")
    };
    let rewound = rewind(&base, &Point::default(), &options).await.unwrap();
    println!("\nstep Done {}", rewound.url());
    std::thread::park();
}

#[tokio::test]
async fn a_process_killed_while_it_rewinds_leaves_nothing() {
    use std::io::BufRead;
    let production = Production::new("").await;
    let restored = production.folder.path().join("restored");
    for step in ["Copying", "Recovering", "Checking", "Done"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "backup::rewind_as_told",
                "--nocapture",
                "--ignored",
            ])
            .env("HINDCAST_TEST_BACKUP", production.backup())
            .env("HINDCAST_TEST_RESTORED", &restored)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().starts_with(&format!("step {step}"))),
            "never came to {step}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = std::time::Instant::now();
        while std::fs::read_dir(&restored).unwrap().count() > 0 || server_of(&restored) {
            assert!(
                begun.elapsed().as_secs() < 60,
                "killed while {step}, something stayed behind"
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Whether any process has this folder in its command line.
fn server_of(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(folder))
    })
}
