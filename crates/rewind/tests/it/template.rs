//! Bases and rewound databases as clones in the same server.

use std::collections::BTreeSet;

use hindcast_cluster::{Cluster, Options as ClusterOptions};
use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectOptions, DatabaseUrl};
use hindcast_rewind::{
    Options, Point, Reached, RewindError, drop_template, rewind, take_template, take_template_for,
    templates,
};
use hindcast_state::digest_tables;
use hindcast_trace::{Base, BaseKind, Snapshot, Xid};

struct Recorded {
    cluster: Cluster,
    base: Base,
}

impl Recorded {
    fn url(&self) -> DatabaseUrl {
        self.cluster.url("app").parse().unwrap()
    }

    fn options(&self) -> Options {
        Options {
            server: Some(self.url()),
            ..Options::new("app")
        }
    }

    async fn databases(&self) -> Vec<String> {
        let client = self.cluster.connect("postgres").await.unwrap();
        let rows = client
            .query(
                "SELECT datname::text FROM pg_database WHERE datname LIKE 'hindcast%' ORDER BY 1",
                &[],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// A server with a database `app`, of which a base was taken.
async fn recorded(setup: &str) -> Recorded {
    let cluster = Cluster::temporary_async(ClusterOptions::throw_away())
        .await
        .unwrap();
    let admin = cluster.connect("postgres").await.unwrap();
    admin.batch_execute("CREATE DATABASE app").await.unwrap();
    let app = cluster.connect("app").await.unwrap();
    app.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (0)")
        .await
        .unwrap();
    app.batch_execute(setup).await.unwrap();
    drop(app);
    until_unused(&admin, "app").await;
    let base = take_template(&cluster.url("app").parse().unwrap())
        .await
        .unwrap();
    Recorded { cluster, base }
}

/// A session ends a moment after its client is dropped.
async fn until_unused(admin: &Client, database: &str) {
    while admin
        .query_one(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1",
            &[&database],
        )
        .await
        .unwrap()
        .get::<i64>(0)
        > 0
    {}
}

/// Runs one transaction and returns its id and the snapshot that it took.
async fn commit(client: &Client, sql: &str) -> (Xid, Snapshot) {
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    let row = client
        .query_one("SELECT pg_current_snapshot()::text", &[])
        .await
        .unwrap();
    let mut parts = row.get::<&str>(0).split(':').map(str::to_owned);
    let mut next = || parts.next().unwrap();
    let (xmin, xmax, xip) = (next(), next(), next());
    let snapshot = Snapshot {
        xmin: Xid(xmin.parse().unwrap()),
        xmax: Xid(xmax.parse().unwrap()),
        in_progress: xip
            .split(',')
            .filter(|xid| !xid.is_empty())
            .map(|xid| Xid(xid.parse().unwrap()))
            .collect(),
    };
    client.batch_execute(sql).await.unwrap();
    let row = client
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap();
    let xid = Xid(row.get::<&str>(0).parse().unwrap());
    client.batch_execute("COMMIT").await.unwrap();
    (xid, snapshot)
}

async fn connect(url: &DatabaseUrl) -> Client {
    Client::connect(url, &ConnectOptions::default())
        .await
        .unwrap()
}

/// The same database as another user.
fn as_user(url: &DatabaseUrl, user: &str) -> DatabaseUrl {
    let mut url = url.clone();
    url.user = Some(user.to_owned());
    url
}

async fn rows(url: &DatabaseUrl) -> i64 {
    connect(url)
        .await
        .query_one("SELECT count(*) FROM t", &[])
        .await
        .unwrap()
        .get(0)
}

fn set(xids: &[Xid]) -> BTreeSet<Xid> {
    xids.iter().copied().collect()
}

#[tokio::test]
async fn a_rewound_database_holds_what_the_base_held() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    let before = digest_tables(&connect(&recorded.url()).await)
        .await
        .unwrap();
    let (first, seen) = commit(&app, "INSERT INTO t VALUES (1)").await;
    let (second, _) = commit(&app, "DELETE FROM t WHERE k = 0").await;
    // The recorded database is in use, and stays so: only the base is cloned.
    let point = Point {
        excluded: set(&[first, second]),
        first_snapshot: Some(seen),
        ..Point::default()
    };
    let rewound = rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap();
    assert!(matches!(rewound.reached(), Reached::Template { .. }));
    assert_eq!(
        (rewound.missing(), rewound.unaccounted()),
        (&[][..], &[][..])
    );
    assert_eq!(
        digest_tables(&connect(rewound.url()).await).await.unwrap(),
        before
    );
    let name = rewound.database().to_owned();
    assert!(recorded.databases().await.contains(&name));
    rewound.discard().await.unwrap();
    assert!(!recorded.databases().await.contains(&name));
}

#[tokio::test]
async fn later_transactions_are_named_as_missing() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    let (first, _) = commit(&app, "INSERT INTO t VALUES (1)").await;
    let (second, _) = commit(&app, "INSERT INTO t VALUES (2)").await;
    let (third, seen) = commit(&app, "INSERT INTO t VALUES (3)").await;
    let point = Point {
        included: set(&[first, second]),
        excluded: set(&[third]),
        first_snapshot: Some(seen),
        ..Point::default()
    };
    let rewound = rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap();
    assert_eq!(rewound.missing(), [first, second]);
    assert_eq!(rows(rewound.url()).await, 1);
}

#[tokio::test]
async fn a_writer_that_nobody_recorded_is_named() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    let (_, _) = commit(&app, "INSERT INTO t VALUES (1)").await;
    let (stranger, _) = commit(&app, "INSERT INTO t VALUES (2)").await;
    let (ours, seen) = commit(&app, "INSERT INTO t VALUES (3)").await;
    let point = Point {
        excluded: set(&[ours]),
        first_snapshot: Some(seen),
        ..Point::default()
    };
    let error = rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RewindError::Unaccounted { xids } if xids.contains(&stranger) && xids.len() == 2),
        "{error}"
    );
    assert!(
        error.to_string().contains(&stranger.0.to_string()),
        "{error}"
    );

    let options = Options {
        allow_unaccounted: true,
        ..recorded.options()
    };
    let rewound = rewind(&recorded.base, &point, &options).await.unwrap();
    assert_eq!(rewound.unaccounted().len(), 2);
    // Known to be harmless: no word about it.
    let point = Point {
        own: rewound.unaccounted().iter().copied().collect(),
        ..point
    };
    rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap();
}

#[tokio::test]
async fn where_account_was_kept_only_known_strangers_count() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    let (early, _) = commit(&app, "INSERT INTO t VALUES (1)").await;
    let (harmless, _) = commit(&app, "INSERT INTO t VALUES (2)").await;
    let (stranger, _) = commit(&app, "INSERT INTO t VALUES (3)").await;
    let (ours, seen) = commit(&app, "INSERT INTO t VALUES (4)").await;
    let point = Point {
        excluded: set(&[ours]),
        first_snapshot: Some(seen),
        accounted_from: Some(harmless),
        strangers: set(&[stranger]),
        ..Point::default()
    };
    let error = rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RewindError::Unaccounted { xids } if *xids == [early, stranger]),
        "{error}"
    );
    let point = Point {
        accounted_from: Some(early),
        strangers: BTreeSet::new(),
        ..point
    };
    rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap();
}

#[tokio::test]
async fn aborted_transactions_need_no_account() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    app.batch_execute("BEGIN; INSERT INTO t VALUES (1); ROLLBACK")
        .await
        .unwrap();
    let (ours, seen) = commit(&app, "INSERT INTO t VALUES (3)").await;
    let point = Point {
        excluded: set(&[ours]),
        first_snapshot: Some(seen),
        ..Point::default()
    };
    rewind(&recorded.base, &point, &recorded.options())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_recording_that_contradicts_the_server_is_refused() {
    let recorded = recorded("").await;
    let app = recorded.cluster.connect("app").await.unwrap();
    app.batch_execute("BEGIN; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let row = app
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap();
    let aborted = Xid(row.get::<&str>(0).parse().unwrap());
    app.batch_execute("ROLLBACK").await.unwrap();
    let (first, _) = commit(&app, "INSERT INTO t VALUES (1)").await;
    let (second, seen) = commit(&app, "INSERT INTO t VALUES (2)").await;
    let check = async |point: Point| {
        rewind(&recorded.base, &point, &recorded.options())
            .await
            .unwrap_err()
    };

    let error = check(Point {
        included: set(&[aborted, first]),
        ..Point::default()
    })
    .await;
    assert!(
        matches!(&error, RewindError::NotCommitted { xids } if xids == &[aborted]),
        "{error}"
    );
    let error = check(Point {
        included: set(&[second]),
        first_snapshot: Some(seen.clone()),
        ..Point::default()
    })
    .await;
    assert!(
        matches!(&error, RewindError::NotSeen { xids } if xids == &[second]),
        "{error}"
    );
    let error = check(Point {
        excluded: set(&[first]),
        first_snapshot: Some(seen),
        ..Point::default()
    })
    .await;
    assert!(
        matches!(&error, RewindError::SeenTooEarly { xids } if xids == &[first]),
        "{error}"
    );
}

#[tokio::test]
async fn a_base_that_already_holds_the_first_request_is_too_new() {
    let early = recorded("").await;
    let app = early.cluster.connect("app").await.unwrap();
    let (first, seen) = commit(&app, "INSERT INTO t VALUES (1)").await;
    drop(app);
    until_unused(&early.cluster.connect("postgres").await.unwrap(), "app").await;
    let late = take_template(&early.url()).await.unwrap();
    let point = Point {
        excluded: set(&[first]),
        first_snapshot: Some(seen),
        ..Point::default()
    };
    let error = rewind(&late, &point, &early.options()).await.unwrap_err();
    assert!(
        matches!(&error, RewindError::BaseTooNew { xids } if xids == &[first]),
        "{error}"
    );
}

#[tokio::test]
async fn a_source_with_sessions_says_whose() {
    let recorded = recorded("").await;
    let url = format!("{}?application_name=reporting", recorded.url());
    let url = url.parse().unwrap();
    let _reader = connect(&url).await;
    let error = take_template(&recorded.url()).await.unwrap_err();
    assert!(
        matches!(&error, RewindError::SourceInUse { sessions, .. } if sessions.len() == 1),
        "{error}"
    );
    assert!(
        error.to_string().contains("postgres from 127.0.0.1 (pid "),
        "{error}"
    );
    assert!(
        error.to_string().contains("application reporting"),
        "{error}"
    );
    assert_eq!(
        recorded.databases().await.len(),
        1,
        "a failed attempt leaves no clone"
    );
}

#[tokio::test]
async fn commits_in_databases_beside_do_not_disturb_an_exact_base() {
    let recorded = recorded("").await;
    let admin = recorded.cluster.connect("postgres").await.unwrap();
    admin.batch_execute("CREATE DATABASE beside").await.unwrap();
    let beside = recorded.cluster.connect("beside").await.unwrap();
    beside
        .batch_execute("CREATE TABLE noise (k int)")
        .await
        .unwrap();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let noise = tokio::spawn(async move {
        let mut commits = 0;
        while stopped.try_recv().is_err() {
            beside
                .batch_execute("INSERT INTO noise VALUES (1)")
                .await
                .unwrap();
            commits += 1;
        }
        commits
    });
    let base = take_template(&recorded.url()).await.unwrap();
    stop.send(()).unwrap();
    assert!(noise.await.unwrap() > 0);
    let rewound = rewind(&base, &Point::default(), &recorded.options())
        .await
        .unwrap();
    assert_eq!(rows(rewound.url()).await, 1);
}

#[tokio::test]
async fn settings_owner_and_privileges_come_along() {
    let recorded = recorded(
        "CREATE ROLE service LOGIN; CREATE ROLE reader LOGIN; ALTER DATABASE app OWNER TO service; \
         ALTER DATABASE app SET search_path = \"$user\", extra, public; ALTER DATABASE app SET timezone = 'Asia/Tokyo'; \
         ALTER ROLE reader IN DATABASE app SET statement_timeout = '7s'; ALTER DATABASE app SET my.setting = 'it''s, \"odd\"'; \
         REVOKE CONNECT ON DATABASE app FROM PUBLIC; GRANT CONNECT ON DATABASE app TO reader",
    )
    .await;
    let rewound = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap();
    let client = connect(rewound.url()).await;
    for (setting, value) in [
        ("search_path", "\"$user\", extra, public"),
        ("timezone", "Asia/Tokyo"),
        ("my.setting", "it's, \"odd\""),
    ] {
        let row = client
            .query_one("SELECT current_setting($1)", &[&setting])
            .await
            .unwrap();
        assert_eq!(row.get::<&str>(0), value);
    }
    let row = client
        .query_one(
            "SELECT pg_get_userbyid(datdba)::text, has_database_privilege('reader', oid, 'CONNECT'), \
             has_database_privilege('public', oid, 'CONNECT') FROM pg_database WHERE datname = current_database()",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get(0), row.get(1), row.get(2)),
        ("service", true, false)
    );
    let reader = connect(&as_user(rewound.url(), "reader")).await;
    let row = reader
        .query_one("SELECT current_setting('statement_timeout')", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<&str>(0), "7s");
    // The owner may create tables, as in the original.
    connect(&as_user(rewound.url(), "service"))
        .await
        .batch_execute("CREATE TABLE public.mine ()")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_base_is_closed_to_writers_and_recognised() {
    let recorded = recorded("").await;
    let BaseKind::Template { database } = &recorded.base.kind else {
        unreachable!()
    };
    let admin = recorded.cluster.connect("postgres").await.unwrap();
    assert!(
        recorded.cluster.connect(database).await.is_err(),
        "a base accepts no connections"
    );

    admin
        .batch_execute(&format!(
            "ALTER DATABASE \"{database}\" ALLOW_CONNECTIONS true"
        ))
        .await
        .unwrap();
    let error = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::NotOurBase { .. }), "{error}");

    admin
        .batch_execute(&format!("DROP DATABASE \"{database}\"; "))
        .await
        .unwrap();
    admin
        .batch_execute(&format!("CREATE DATABASE \"{database}\""))
        .await
        .unwrap();
    let error = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::NotOurBase { .. }), "{error}");

    drop_template(&recorded.url(), database).await.unwrap();
    let error = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap_err();
    assert!(matches!(error, RewindError::BaseMissing { .. }), "{error}");
}

#[tokio::test]
async fn dropping_removes_keeping_keeps_and_killing_is_made_up_for() {
    let recorded = recorded("").await;
    let rewound_databases = async || {
        let mut names = recorded.databases().await;
        names.retain(|name| name.starts_with("hindcast_rewound"));
        names
    };
    drop(
        rewind(&recorded.base, &Point::default(), &recorded.options())
            .await
            .unwrap(),
    );
    assert!(rewound_databases().await.is_empty());

    let kept = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap()
        .keep()
        .await
        .unwrap();
    assert_eq!(rows(&kept.url).await, 1);
    assert!(kept.removal.starts_with("DROP DATABASE"));

    // As if its process had been killed: the sessions are gone, nobody dropped the database.
    let killed = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap();
    let admin = recorded.cluster.connect("postgres").await.unwrap();
    let abandoned = killed.database().to_owned();
    std::mem::forget(killed);
    admin
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hindcast'")
        .await
        .unwrap();
    let alive = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap();
    let other = rewind(&recorded.base, &Point::default(), &recorded.options())
        .await
        .unwrap();
    let names = rewound_databases().await;
    assert_eq!(
        names.len(),
        3,
        "the kept one, and two that are alive: {names:?}"
    );
    assert!(!names.contains(&abandoned));
    assert!(rows(alive.url()).await == 1 && rows(other.url()).await == 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_its_password() {
    let url = "postgres://me:secret@127.0.0.1:1/app".parse().unwrap();
    let error = take_template(&url).await.unwrap_err();
    assert!(
        error.to_string().contains("postgres://me@127.0.0.1:1/app"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_tells_its_bases() {
    let recorded = recorded("CREATE DATABASE \"other one\"").await;
    let other: DatabaseUrl = recorded.cluster.url("other one").parse().unwrap();
    let second = take_template_for(&other, "/srv/it's a trace")
        .await
        .unwrap();
    let name = |base: &Base| match &base.kind {
        BaseKind::Template { database } => database.clone(),
        kind => panic!("{kind:?}"),
    };
    // Not ours, whatever its name; and ours, but no base.
    let admin = recorded.cluster.connect("postgres").await.unwrap();
    admin
        .batch_execute("CREATE DATABASE hindcast_base_of_mine")
        .await
        .unwrap();
    let found = templates(&recorded.url()).await.unwrap();
    let told: Vec<_> = found
        .iter()
        .map(|base| {
            (
                base.database.clone(),
                &*base.source,
                base.recording.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (name(&recorded.base), "app", None),
            (name(&second), "other one", Some("/srv/it's a trace")),
        ]
    );
    assert!(
        found
            .iter()
            .all(|base| base.bytes > 1 << 20 && base.taken.is_some())
    );
    drop_template(&other, &name(&second)).await.unwrap();
    assert_eq!(templates(&other).await.unwrap().len(), 1);
}
