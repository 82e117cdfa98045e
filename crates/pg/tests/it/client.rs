//! The client for tasks, and logins of every kind, against a real server.

use std::time::Duration;

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::tokio::Client;
use hindcast_pg::{AttemptError, ConnectError, ConnectOptions, Connection, DatabaseUrl, Error};

async fn cluster() -> Cluster {
    Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap_or_else(|error| panic!("no private Postgres: {error}"))
}

#[tokio::test]
async fn queries_answer_what_they_are_asked() {
    let cluster = cluster().await;
    let client = cluster.connect("postgres").await.unwrap();
    let list = vec![Some("it's \"a\\b\""), None];
    let row = client
        .query_one(
            "SELECT $1::bigint AS n, $2::text[] AS list, $3::text IS NULL AS nothing, 'x'::\"char\" AS kind, ''::text AS empty",
            &[&i64::MIN, &list, &None::<&str>],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<i64>("n"), i64::MIN);
    let read: Vec<Option<String>> = row.get(1);
    assert_eq!(read.iter().map(Option::as_deref).collect::<Vec<_>>(), list);
    assert!(row.get::<bool>("nothing"));
    assert_eq!((row.get::<char>(3), row.get::<&str>(4)), ('x', ""));

    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let written = client
        .execute(
            "INSERT INTO t SELECT g FROM generate_series(2, $1::int) g",
            &[&1000],
        )
        .await;
    assert_eq!(written.unwrap(), 999);
    let mut rows = client
        .stream("SELECT k, v FROM t ORDER BY k", &[])
        .await
        .unwrap();
    let mut sum = 0;
    while let Some(row) = rows.next().await.unwrap() {
        sum += row.get::<i64>(0);
        assert_eq!(row.get::<Option<&str>>("v"), None);
    }
    assert_eq!(sum, 500_500);
    drop(rows);
    let none = client.query_opt("SELECT k FROM t WHERE k < 0", &[]).await;
    assert!(none.unwrap().is_none());
    let last = client.simple_query("SELECT 1; SELECT k FROM t WHERE k < 3; SET work_mem = '1MB'");
    assert_eq!(last.await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_error_leaves_the_session_usable() {
    let cluster = cluster().await;
    let client = cluster.connect("postgres").await.unwrap();
    let error = client.query("SELECT  nonsense", &[]).await.unwrap_err();
    let server = error.server().unwrap();
    assert_eq!((server.code.as_str(), server.position), ("42703", Some(9)));
    let many = client.query_one("SELECT generate_series(1, 2)", &[]).await;
    assert!(matches!(many, Err(Error::RowCount(2))));
    let nul = client.query("SELECT '\0'", &[]).await;
    assert!(nul.is_err());
    client
        .batch_execute("CREATE TABLE t (k int)")
        .await
        .unwrap();
    let copy = client.batch_execute("COPY t FROM STDIN").await;
    assert_eq!(copy.unwrap_err().code(), Some("57014"));
    let broken = client
        .batch_execute("SELECT 1; SELECT 1 / 0; SELECT 2")
        .await;
    assert_eq!(broken.unwrap_err().code(), Some("22012"));
    assert_eq!(
        client
            .query_one("SELECT 7", &[])
            .await
            .unwrap()
            .get::<i32>(0),
        7
    );
}

#[tokio::test]
async fn a_query_that_was_given_up_does_not_answer_the_next_one() {
    let cluster = cluster().await;
    let client = cluster.connect("postgres").await.unwrap();
    let slow = client.query("SELECT 1 FROM pg_sleep(0.3)", &[]);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), slow)
            .await
            .is_err()
    );
    assert_eq!(
        client
            .query_one("SELECT 2", &[])
            .await
            .unwrap()
            .get::<i32>(0),
        2
    );
    let mut rows = client
        .stream("SELECT generate_series(1, 100000)", &[])
        .await
        .unwrap();
    assert!(rows.next().await.unwrap().is_some());
    drop(rows);
    assert_eq!(
        client
            .query_one("SELECT 3", &[])
            .await
            .unwrap()
            .get::<i32>(0),
        3
    );
    // A parameter that is larger than what the socket takes at once, given up while it is sent.
    let large = "x".repeat(64 << 20);
    let parameters: [&dyn hindcast_pg::ToText; 1] = [&large];
    let sending = client.query("SELECT length($1)", &parameters);
    assert!(tokio::time::timeout(Duration::ZERO, sending).await.is_err());
    assert_eq!(
        client
            .query_one("SELECT 4", &[])
            .await
            .unwrap()
            .get::<i32>(0),
        4
    );
}

#[tokio::test]
async fn the_end_of_a_session_is_noticed_and_waited_for() {
    let cluster = cluster().await;
    let watcher = cluster.connect("postgres").await.unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ours'";
    let ours = async || {
        let url = cluster.socket_url("postgres");
        Client::connect(&url, &ConnectOptions::named("ours"))
            .await
            .unwrap()
    };
    let closed = ours().await;
    assert_eq!(
        watcher
            .query_one(sessions, &[])
            .await
            .unwrap()
            .get::<i64>(0),
        1
    );
    closed.close().await;
    assert_eq!(
        watcher
            .query_one(sessions, &[])
            .await
            .unwrap()
            .get::<i64>(0),
        0
    );

    let terminated = ours().await;
    assert!(!terminated.is_closed());
    let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'ours'";
    watcher.query_one(end, &[]).await.unwrap();
    assert!(terminated.is_closed());
    assert!(matches!(
        terminated.query("SELECT 1", &[]).await,
        Err(Error::Closed)
    ));
}

/// Connects both ways, which must agree. Returns how the session is encrypted, or why there is
/// none.
async fn log_in(url: &str) -> Result<String, ConnectError> {
    let url: DatabaseUrl = url.parse().unwrap();
    let how = "SELECT coalesce(version, 'plain') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let blocking = {
        let url = url.clone();
        let connect = move || {
            let mut connection = Connection::connect(&url, &ConnectOptions::default())?;
            let rows = connection.query(how).expect("a logged in session answers");
            Ok::<_, ConnectError>(rows.first().expect("one row").string(0))
        };
        tokio::task::spawn_blocking(connect).await.unwrap()
    };
    let client = Client::connect(&url, &ConnectOptions::default()).await;
    match (blocking, client) {
        (Ok(seen), Ok(client)) => {
            let row = client.query_one(how, &[]).await.unwrap();
            assert_eq!(row.get::<&str>(0), seen);
            Ok(seen)
        }
        (Err(blocking), Err(error)) => {
            assert_eq!(blocking.to_string(), error.to_string());
            Err(error)
        }
        (blocking, client) => panic!("they do not agree: {blocking:?} {client:?}"),
    }
}

#[tokio::test]
async fn passwords_are_given_in_every_way_that_servers_ask_for_them() {
    let options = Options {
        hba: "local all all trust\nhost all clear 127.0.0.1/32 password\nhost all old 127.0.0.1/32 md5\n\
              host all all 127.0.0.1/32 scram-sha-256\n"
            .to_owned(),
        ..Options::throw_away()
    };
    let cluster = Cluster::temporary_async(options).await.unwrap();
    let roles = "CREATE ROLE clear LOGIN PASSWORD 'pä ss'; CREATE ROLE new LOGIN PASSWORD 'pä ss'; \
                 SET password_encryption = md5; CREATE ROLE old LOGIN PASSWORD 'pä ss'";
    let admin = cluster.connect("postgres").await.unwrap();
    admin.batch_execute(roles).await.unwrap();
    let url = |login: &str, more: &str| {
        format!(
            "postgres://{login}@127.0.0.1:{}/postgres{more}",
            cluster.port()
        )
    };
    for role in ["clear", "old", "new"] {
        let right = log_in(&url(&format!("{role}:p%C3%A4%20ss"), "")).await;
        assert_eq!(right.unwrap(), "plain", "{role}");
        let wrong = log_in(&url(&format!("{role}:other"), ""))
            .await
            .unwrap_err();
        assert_eq!(wrong.server().unwrap().code, "28P01", "{role}");
    }
    let none = log_in(&url("new", "")).await.unwrap_err();
    assert!(matches!(
        none.attempts[0].1,
        AttemptError::NoPassword { .. }
    ));
    assert!(none.hint().contains("PGPASSWORD"));
    let bound = log_in(&url("new:p%C3%A4%20ss", "?channel_binding=require")).await;
    let bound = bound.unwrap_err();
    assert!(matches!(
        bound.attempts[0].1,
        AttemptError::NoChannelBinding
    ));
    let tls = log_in(&url("new:p%C3%A4%20ss", "?sslmode=require"))
        .await
        .unwrap_err();
    assert!(matches!(tls.attempts[0].1, AttemptError::NoTls));
}
