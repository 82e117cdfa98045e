//! What the log says.

use std::time::{Duration, Instant};

use expect_test::expect;
use hindcast_standby::follow::{Event, Log};
use hindcast_standby::source::{SourceError, StreamOptions};

use super::support::{PATIENCE, Stage, eventually, read_to};

#[test]
fn every_kind_of_change_arrives_in_commit_order() {
    let stage = Stage::with(
        "kinds",
        "CREATE TABLE t (k int PRIMARY KEY, v text, big text);
         ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
         CREATE TABLE f (a int, b int);
         ALTER TABLE f REPLICA IDENTITY FULL;
         CREATE TABLE i (a int UNIQUE NOT NULL, b int, n int GENERATED ALWAYS AS (a + b) STORED);
         ALTER TABLE i REPLICA IDENTITY USING INDEX i_a_key;
         CREATE TABLE p (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);",
    );
    let log = stage.log_of(
        "INSERT INTO t VALUES (1, 'one', repeat('x', 5000)), (2, NULL, '');
         UPDATE t SET v = 'ONE' WHERE k = 1;
         UPDATE t SET k = 3 WHERE k = 2;
         DELETE FROM t WHERE k = 1;
         BEGIN;
         INSERT INTO f VALUES (1, NULL);
         UPDATE f SET b = 2;
         DELETE FROM f;
         INSERT INTO i VALUES (1, 2);
         UPDATE i SET b = 3;
         UPDATE i SET a = 4;
         COMMIT;
         INSERT INTO p VALUES (1, 'first'), (11, 'second');
         UPDATE p SET k = 12 WHERE k = 1;
         TRUNCATE t, f RESTART IDENTITY;
         BEGIN;
         INSERT INTO t VALUES (9, 'never', '');
         ROLLBACK;
         INSERT INTO t VALUES (7, 'seven', '');",
    );
    expect![[r#"
        begin
        table public.t (k*, v, big) Default
        t insert (1, one, 5000 bytes)
        t insert (2, -, )
        commit
        begin
        t update (1, ONE, =)
        commit
        begin
        t update key(2, -, -) (3, -, )
        commit
        begin
        t delete key(1, -, -)
        commit
        begin
        table public.f (a*, b*) Full
        f insert (1, -)
        f update row(1, -) (1, 2)
        f delete row(1, 2)
        table public.i (a*, b) Index
        i insert (1, 2)
        i update (1, 3)
        i update key(1, -) (4, 3)
        commit
        begin
        table public.p1 (k*, v) Default
        p1 insert (1, first)
        table public.p2 (k*, v) Default
        p2 insert (11, second)
        commit
        begin
        p1 delete key(1, -)
        p2 insert (12, first)
        commit
        begin
        truncate public.t, public.f restart identity
        commit
        begin
        t insert (7, seven, )
        commit
    "#]]
    .assert_eq(&log);
}

#[test]
fn a_table_that_changes_its_shape_is_described_again() {
    let stage = Stage::with("shapes", "CREATE TABLE t (k int PRIMARY KEY, v text)");
    let log = stage.log_of(
        "INSERT INTO t VALUES (1, 'one');
         ALTER TABLE t ADD COLUMN w int DEFAULT 7;
         INSERT INTO t VALUES (2, 'two');
         BEGIN;
         INSERT INTO t VALUES (3, 'three');
         ALTER TABLE t DROP COLUMN v;
         INSERT INTO t VALUES (4, 4);
         COMMIT;
         ALTER TABLE t RENAME TO u;
         ALTER TABLE u REPLICA IDENTITY FULL;
         DELETE FROM u WHERE k = 1;
         ANALYZE u;
         DELETE FROM u WHERE k = 2;",
    );
    expect![[r#"
        begin
        table public.t (k*, v) Default
        t insert (1, one)
        commit
        begin
        table public.t (k*, v, w) Default
        t insert (2, two, 7)
        commit
        begin
        t insert (3, three, 7)
        table public.t (k*, w) Default
        t insert (4, 4)
        commit
        begin
        table public.u (k*, w*) Full
        u delete row(1, 7)
        commit
        begin
        u delete row(2, 7)
        commit
    "#]]
    .assert_eq(&log);
}

#[test]
fn values_look_the_same_whatever_the_primary_is_set_to() {
    let stage = Stage::with(
        "looks",
        "ALTER DATABASE looks SET datestyle = 'German, DMY';
         ALTER DATABASE looks SET intervalstyle = 'sql_standard';
         ALTER DATABASE looks SET extra_float_digits = 0;
         ALTER DATABASE looks SET timezone = 'Asia/Kolkata';
         ALTER DATABASE looks SET bytea_output = 'escape';
         ALTER DATABASE looks SET statement_timeout = '1s';
         ALTER DATABASE looks SET search_path = elsewhere, public;
         CREATE SCHEMA elsewhere;
         CREATE TABLE elsewhere.t (k int PRIMARY KEY, d date, i interval, f float8, z timestamptz, b bytea, c regclass);",
    );
    let log = stage.log_of(
        "INSERT INTO elsewhere.t VALUES (1, '2026-11-21', '1 day 02:03:04', 0.1::float8 + 0.2::float8, '2026-11-21 12:00:00+00', '\\x00ff', 'elsewhere.t')",
    );
    expect![[r#"
        begin
        table elsewhere.t (k*, d, i, f, z, b, c) Default
        t insert (1, 2026-11-21, 1 day 02:03:04, 0.30000000000000004, 2026-11-21 12:00:00+00, \x00ff, elsewhere.t)
        commit
    "#]].assert_eq(&log);
}

#[test]
fn subtransactions_count_only_if_they_were_kept() {
    let stage = Stage::with("subs", "CREATE TABLE t (k int PRIMARY KEY)");
    let log = stage.log_of(
        "BEGIN;
         INSERT INTO t VALUES (1);
         SAVEPOINT a; INSERT INTO t VALUES (2);
         SAVEPOINT b; INSERT INTO t VALUES (3); RELEASE b;
         ROLLBACK TO a; INSERT INTO t VALUES (4);
         SAVEPOINT c; INSERT INTO t VALUES (5); RELEASE c;
         COMMIT;",
    );
    expect![[r#"
        begin
        table public.t (k*) Default
        t insert (1)
        t insert (4)
        t insert (5)
        commit
    "#]]
    .assert_eq(&log);
}

#[test]
fn a_prepared_transaction_counts_when_it_is_committed() {
    let stage = Stage::with("prepared", "CREATE TABLE t (k int PRIMARY KEY)");
    let log = stage.log_of(
        "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'kept';
         BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'dropped';
         INSERT INTO t VALUES (3);
         ROLLBACK PREPARED 'dropped';
         COMMIT PREPARED 'kept';
         INSERT INTO t VALUES (4);",
    );
    expect![[r#"
        begin
        table public.t (k*) Default
        t insert (3)
        commit
        begin
        t insert (1)
        commit
        begin
        t insert (4)
        commit
    "#]]
    .assert_eq(&log);
}

/// What two transactions that are streamed say, one line for many rows of a kind.
#[test]
fn large_transactions_wait_in_files_and_come_out_whole() {
    let stage = Stage::with(
        "streamed",
        "CREATE TABLE t (k int PRIMARY KEY, v text); CREATE TABLE u (k int PRIMARY KEY);
         CREATE TYPE mood AS ENUM ('good'); CREATE TABLE m (k int PRIMARY KEY, v mood);",
    );
    let from = stage.prepare();
    let folder = tempfile::tempdir().unwrap();
    let options = StreamOptions {
        stream_into: Some(folder.path().to_owned()),
        ..StreamOptions::default()
    };
    let rows = |from: u32, to: u32| {
        format!("INSERT INTO t SELECT k, repeat('v', 300) FROM generate_series({from}, {to}) k;")
    };
    let (mut one, mut two) = (stage.connect(), stage.connect());
    one.execute("BEGIN").unwrap();
    one.execute(&rows(1, 20_000)).unwrap();
    two.execute("BEGIN").unwrap();
    two.execute(&rows(100_001, 101_000)).unwrap();
    // A subtransaction that is rolled back, the first to touch a table, with a child that was kept.
    one.execute("SAVEPOINT a").unwrap();
    one.execute("INSERT INTO u SELECT * FROM generate_series(1, 5000)")
        .unwrap();
    one.execute("SAVEPOINT b").unwrap();
    one.execute(&rows(20_001, 30_000)).unwrap();
    one.execute("RELEASE b; ROLLBACK TO a").unwrap();
    one.execute("INSERT INTO u VALUES (-1)").unwrap();
    stage.sql("INSERT INTO u VALUES (0)");
    // The shape changes inside.
    one.execute("ALTER TABLE m ADD COLUMN w int").unwrap();
    one.execute("INSERT INTO m SELECT k, 'good', 0 FROM generate_series(1, 3000) k")
        .unwrap();
    one.execute(&rows(30_001, 31_000)).unwrap();
    two.execute("ROLLBACK").unwrap();
    one.execute("COMMIT").unwrap();
    stage.sql("INSERT INTO m VALUES (0, 'good', 1); UPDATE t SET v = '' WHERE k = 1;");

    let end = stage.end();
    let streamed = read_to(&mut stage.stream(from, options), end);
    let plain = read_to(&mut stage.stream(from, StreamOptions::default()), end);
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    // Tables may be described again, or at another place.
    let changes = |log: &str| {
        let all = log.lines().filter(|line| !line.starts_with("table "));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        changes(&streamed).len(),
        20_000 + 1 + 3_000 + 1_000 + 3 + 2 * 4
    );
    assert!(changes(&streamed) == changes(&plain));
    let stats = format!(
        "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{}'",
        stage.names.slot
    );
    eventually("the primary says that it streamed", || {
        stage.sql(&stats) == "2"
    });
}

#[test]
fn a_folder_that_cannot_be_written_stops_the_log_and_acknowledges_nothing() {
    let stage = Stage::with("disk", "CREATE TABLE t (k int PRIMARY KEY, v text)");
    let from = stage.prepare();
    stage.sql("INSERT INTO t SELECT k, repeat('v', 1000) FROM generate_series(1, 20000) k");
    let options = StreamOptions {
        stream_into: Some("/nowhere/at/all".into()),
        ..StreamOptions::default()
    };
    let mut stream = stage.stream(from, options);
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        match stream.next(Instant::now() + Duration::from_millis(20)) {
            Ok(event) => assert!(matches!(event, None | Some(Event::Nothing))),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, SourceError::Spill(_)) && !error.is_transient(),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("--streaming"));
    drop(stream);
    assert_eq!(stage.confirmed(), from);
}
