//! Publication and slot, from their making to their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expect_test::expect;
use hindcast_pg::Lsn;
use hindcast_standby::source::{
    SlotError, SourceError, Stream, StreamOptions, TableFilter, compared, publication, slot,
};

use super::support::{PATIENCE, Stage, eventually, read_to};

#[test]
fn the_log_continues_the_exported_snapshot() {
    let stage = Stage::with(
        "snapshot",
        "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1);
         ALTER DATABASE snapshot SET idle_in_transaction_session_timeout = '50ms';",
    );
    publication::publish(&stage.url(), &stage.names, &stage.primary().tables).unwrap();
    let created = slot::create(&stage.url(), &stage.names).unwrap();
    stage.sql("INSERT INTO t VALUES (2)");
    // The session that keeps the snapshot does nothing for longer than others may.
    let begun = Instant::now();
    eventually("time goes by", || {
        begun.elapsed() > Duration::from_millis(300)
    });
    let snapshot = &created.snapshot;
    let copied = stage.sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; SELECT * FROM t; COMMIT;"
    ));
    assert_eq!(copied, "1");
    let mut stream = stage.stream(created.consistent_point, StreamOptions::default());
    expect![[r#"
        begin
        table public.t (k*) Default
        t insert (2)
        commit
    "#]]
    .assert_eq(&read_to(&mut stream, stage.end()));
    let again = slot::create(&stage.url(), &stage.names)
        .map(|_| ())
        .unwrap_err();
    assert!(again.hint().contains("standby drop"), "{again:?}");
}

#[test]
fn the_publication_has_the_tables_that_are_wanted() {
    let stage = Stage::with(
        "publication",
        "CREATE TABLE a (k int PRIMARY KEY); CREATE TABLE \"B.b\" (k int PRIMARY KEY, v int);
         CREATE TABLE parent (k int PRIMARY KEY);
         CREATE TABLE child (PRIMARY KEY (k)) INHERITS (parent);
         CREATE TABLE part (k int PRIMARY KEY) PARTITION BY LIST (k);
         CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);",
    );
    let publish = || {
        publication::publish(&stage.url(), &stage.names, &stage.primary().tables).unwrap();
        stage.sql("SELECT string_agg(tablename, ' ' ORDER BY tablename COLLATE \"C\") FROM pg_publication_tables")
    };
    assert_eq!(publish(), "B.b a child parent part1");
    let written = "SELECT string_agg(xmin::text, ' ' ORDER BY oid) FROM pg_publication_rel";
    let before = stage.sql(written);
    assert_eq!(publish(), "B.b a child parent part1");
    assert_eq!(stage.sql(written), before, "what is right is left alone");

    stage.sql("CREATE TABLE c (k int PRIMARY KEY)");
    let unpublished = || {
        let tables = stage.primary().tables.into_iter();
        let copied = tables.map(|table| ((table.schema, table.name), Some(table.shape)));
        let (mut primary, all) = (stage.connect(), TableFilter::default());
        let compared = compared::compare(&mut primary, &stage.names, &all, &copied.collect());
        let missing = compared.unwrap().missing.into_iter();
        missing.map(|table| table.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(unpublished(), ["public.c"]);
    assert_eq!(publish(), "B.b a c child parent part1");
    assert!(unpublished().is_empty());

    // Somebody made it less than we need.
    stage.sql("ALTER PUBLICATION hindcast_publication SET TABLE a, c, \"B.b\" (k), parent, ONLY part1 WHERE (k = 1)");
    assert_eq!(unpublished(), ["public.B.b", "public.part1"]);
    publish();
    assert!(unpublished().is_empty());
    stage.sql("ALTER PUBLICATION hindcast_publication SET (publish = 'insert, update')");
    assert_eq!(unpublished().len(), 6);
    publish();
    assert!(unpublished().is_empty());
    stage.sql("DROP PUBLICATION hindcast_publication");
    assert_eq!(unpublished().len(), 6);
}

#[test]
fn a_locked_table_is_waited_for_and_then_named() {
    let stage = Stage::with("locked", "CREATE TABLE t (k int PRIMARY KEY)");
    let tables = stage.primary().tables;
    let mut other = stage.connect();
    other.execute("BEGIN; LOCK TABLE t").unwrap();
    let error = publication::publish(&stage.url(), &stage.names, &tables).unwrap_err();
    assert!(error.hint().contains("locked"), "{error:?}");
    other.execute("COMMIT").unwrap();
    publication::publish(&stage.url(), &stage.names, &tables).unwrap();
}

#[test]
fn a_slot_that_stays_is_told_from_anothers_by_its_point() {
    let stage = Stage::with(
        "keeps",
        "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)",
    );
    publication::publish(&stage.url(), &stage.names, &stage.primary().tables).unwrap();
    let make = || slot::create_temporary(&stage.url(), &stage.names, || false, |_| {}).unwrap();
    let slots = "SELECT count(*) FILTER (WHERE temporary), count(*) FILTER (WHERE NOT temporary) \
                   FROM pg_replication_slots WHERE database = 'keeps'";
    let created = make();
    assert_eq!(stage.sql(slots), "1|0");
    created.keep(&stage.url(), &stage.names).unwrap();
    assert_eq!(stage.sql(slots), "1|1");
    let at = created.consistent_point;
    stage.sql("INSERT INTO t VALUES (2)");
    let copied = stage.sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{}'; SELECT * FROM t; COMMIT;",
        created.snapshot
    ));
    assert_eq!(copied, "1");
    drop(created);
    eventually("the session's slot is gone", || stage.sql(slots) == "0|1");
    let mut stream = stage.stream(at, StreamOptions::default());
    expect![[r#"
        begin
        table public.t (k*) Default
        t insert (2)
        commit
    "#]]
    .assert_eq(&read_to(&mut stream, stage.end()));
    stream.finish();

    // Another standby of the same name.
    let other = make();
    let error = other.keep(&stage.url(), &stage.names).unwrap_err();
    assert!(matches!(error, SlotError::Exists { .. }), "{error:?}");
    let remove = |at| slot::remove_unread(&stage.url(), &stage.names, at);
    let error = remove(other.consistent_point).unwrap_err();
    assert!(matches!(error, SlotError::Exists { .. }), "{error:?}");
    drop(other);

    // One that was killed before its copy began.
    slot::remove(&stage.url(), &stage.names).unwrap();
    let killed = make();
    killed.keep(&stage.url(), &stage.names).unwrap();
    remove(killed.consistent_point).unwrap();
    drop(killed);
    eventually("nothing is left", || stage.sql(slots) == "0|0");
    remove(at).unwrap();
}

#[test]
fn a_slot_waits_for_transactions_that_run_and_says_so() {
    let stage = Stage::with("waits", "CREATE TABLE t (k int PRIMARY KEY)");
    publication::publish(&stage.url(), &stage.names, &stage.primary().tables).unwrap();
    let mut other = stage.connect();
    other.execute("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let pid = other.process();
    let stop = AtomicBool::new(false);
    let mut told = String::new();
    let error = slot::create_unless(
        &stage.url(),
        &stage.names,
        || stop.load(Ordering::SeqCst),
        |text| {
            told = text;
            stop.store(true, Ordering::SeqCst);
        },
    )
    .map(|_| ())
    .unwrap_err();
    assert!(matches!(error, SlotError::Stopped), "{error:?}");
    assert!(
        told.contains(&format!("process {pid} (test, since ")),
        "{told}"
    );
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'hindcast_waits'";
    assert_eq!(stage.sql(slots), "0", "nothing is left of it");

    // And it is made as soon as that ends.
    let mut other = Some(other);
    slot::create_unless(
        &stage.url(),
        &stage.names,
        || false,
        |_| drop(other.take().map(|mut other| other.execute("COMMIT"))),
    )
    .unwrap();
    assert_eq!(stage.sql(slots), "1");
}

#[test]
fn a_slot_in_use_is_not_taken() {
    let stage = Stage::with("used", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    slot::check(&stage.url(), &stage.names, from).unwrap();
    let stream = stage.stream(from, StreamOptions::default());
    let pid =
        stage.sql("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'hindcast_used'");
    let active = |result: Result<(), SlotError>| match result {
        Err(error @ SlotError::Active { .. }) => {
            assert!(
                error.is_transient() && error.hint().contains(&pid),
                "{error:?}"
            );
        }
        other => panic!("{other:?}"),
    };
    active(slot::check(&stage.url(), &stage.names, from));
    active(slot::remove(&stage.url(), &stage.names).map(drop));
    let second = Stream::start(
        &stage.url(),
        &stage.names.slot,
        &stage.names.publication,
        from,
        StreamOptions::default(),
    );
    match second.map(drop) {
        Err(error @ SourceError::Start { .. }) => assert!(error.is_transient(), "{error:?}"),
        other => panic!("{other:?}"),
    }
    drop(stream);
    eventually("it is free", || {
        slot::check(&stage.url(), &stage.names, from).is_ok()
    });
}

#[test]
fn a_slot_that_cannot_close_the_gap_is_refused() {
    let stage = Stage::with("gaps", "CREATE TABLE t (k int PRIMARY KEY)");
    let check = |progress| slot::check(&stage.url(), &stage.names, progress);
    match check(Lsn(0x10)) {
        Err(SlotError::Gone {
            since: Lsn(0x10), ..
        }) => {}
        other => panic!("{other:?}"),
    }
    let from = stage.prepare();
    check(from).unwrap();
    match check(Lsn(from.0 - 1)) {
        Err(SlotError::Ahead { confirmed, .. }) => assert_eq!(confirmed, from),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        slot::remove(&stage.url(), &stage.names).unwrap(),
        ["slot hindcast_gaps", "publication hindcast_gaps"]
    );
    assert!(slot::remove(&stage.url(), &stage.names).unwrap().is_empty());

    stage.sql("SELECT pg_create_logical_replication_slot('hindcast_gaps', 'test_decoding')");
    let error = check(from).unwrap_err();
    expect!["slot hindcast_gaps is of another kind: its plugin is test_decoding"]
        .assert_eq(&error.to_string());
    stage.sql("SELECT pg_drop_replication_slot('hindcast_gaps'); SELECT pg_create_physical_replication_slot('hindcast_gaps')");
    assert!(matches!(check(from), Err(SlotError::Foreign { .. })));
    stage.sql("SELECT pg_drop_replication_slot('hindcast_gaps')");

    let elsewhere = Stage::new("gaps_elsewhere");
    elsewhere.sql("SELECT pg_create_logical_replication_slot('hindcast_gaps', 'pgoutput')");
    expect!["slot hindcast_gaps is of another kind: it belongs to the database gaps_elsewhere"]
        .assert_eq(&check(from).unwrap_err().to_string());
    elsewhere.sql("SELECT pg_drop_replication_slot('hindcast_gaps')");
}

#[test]
fn a_slot_whose_wal_is_gone_is_lost() {
    let cluster = super::support::cluster(
        super::support::options()
            .set("max_slot_wal_keep_size", "1MB")
            .set("min_wal_size", "32MB")
            .set("max_wal_size", "32MB"),
    );
    let url = cluster.socket_url("postgres");
    let names = hindcast_standby::source::Names::new("lost").unwrap();
    cluster
        .sql("postgres", "CREATE TABLE t (k int PRIMARY KEY)")
        .unwrap();
    let tables = hindcast_standby::source::preflight(&url, &Default::default(), &names.slot)
        .unwrap()
        .tables;
    publication::publish(&url, &names, &tables).unwrap();
    let from = slot::create(&url, &names).unwrap().consistent_point;
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        cluster
            .sql(
                "postgres",
                "SELECT pg_switch_wal(); CREATE TABLE x (); DROP TABLE x; CHECKPOINT",
            )
            .unwrap();
        if let Err(error) = slot::check(&url, &names, from) {
            break error;
        }
    };
    assert!(matches!(error, SlotError::Lost { .. }), "{error:?}");
    assert!(!error.is_transient());
    expect![[r#"
        slot hindcast_lost is lost: the primary has removed WAL that it needed (max_slot_wal_keep_size)
        the gap cannot be closed: `hindcast standby drop`, make the backup's database anew, and start again"#]].assert_eq(&format!("{error}\n{}", error.hint()));
    let started = Stream::start(
        &url,
        &names.slot,
        &names.publication,
        from,
        StreamOptions::default(),
    );
    let error = started.map(drop).unwrap_err();
    assert!(!error.is_transient(), "{error:?}");
    assert_eq!(slot::remove(&url, &names).unwrap().len(), 2);
}

#[test]
fn a_publication_that_was_dropped_ends_the_log_for_good() {
    let stage = Stage::with("dropped", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    stage.sql("DROP PUBLICATION hindcast_dropped; INSERT INTO t VALUES (1)");
    let mut stream = stage.stream(from, StreamOptions::default());
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        match hindcast_standby::follow::Log::next(
            &mut stream,
            Instant::now() + Duration::from_millis(50),
        ) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(!error.is_transient(), "{error:?}");
    expect!["somebody dropped the publication while changes were made, and these cannot be had any more: `hindcast standby drop`, make the backup's database anew, and start again"].assert_eq(&error.hint().unwrap());
}
