//! What a backup shows at a mark is what the primary showed, while others write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::Pair;
use hindcast_pg::{Connection, DatabaseUrl, quote_literal};
use hindcast_standby::mark::{MarkError, Marker};
use hindcast_standby::run::{self, BackupOptions, Granularity, Options};
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::{Control, State};

const SCHEMA: &str = "\
CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account SELECT i, 0 FROM generate_series(1, 20) i; \
CREATE TABLE log (id serial PRIMARY KEY, account int, what text)";
const ALL: &str = "SELECT (SELECT string_agg(id || ':' || n, ',' ORDER BY id) FROM account), \
    (SELECT count(*) || ' ' || coalesce(max(id), 0) || ' ' || coalesce(sum(hashtext(what)), 0) FROM log)";

fn options(pair: &Pair, workers: usize, tables: TableFilter) -> BackupOptions {
    BackupOptions {
        common: Options {
            from: pair.primary_url.clone(),
            name: pair.database.clone(),
            tables,
            workers: Some(workers),
            copy_workers: 1,
            streaming: false,
            until: None,
        },
        to: pair.backup_url.clone(),
        granularity: Granularity::Row,
        epoch_rows: 1000,
        epoch_interval: Duration::from_millis(10),
        schema: true,
        check: None,
    }
}

/// Does something while somebody follows.
fn followed<R>(options: &BackupOptions, then: impl FnOnce() -> R) -> R {
    let control = Control::default();
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| run::to_backup(options, &control));
        let begun = Instant::now();
        while control.status().state != State::Following {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody follows");
            std::thread::sleep(Duration::from_millis(10));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(then));
        control.stop();
        follower.join().expect("it follows").expect("to the end");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn in_snapshot(pair: &Pair, url: &DatabaseUrl, snapshot: &str) -> Connection {
    let mut session = pair.connect(url);
    let sql = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {}",
        quote_literal(snapshot)
    );
    session.execute(&sql).expect("the snapshot is there");
    session
}

fn all(session: &mut Connection) -> Vec<String> {
    let rows = session.query(ALL).expect("it can be read");
    let row = rows.first().expect("there is a row");
    vec![row.string(0), row.string(1)]
}

/// Writes as fast as it can, with pauses in which nobody writes.
fn write(pair: &Pair, number: u64, stop: &AtomicBool, written: &AtomicU64) {
    let mut session = pair.connect(&pair.primary_url);
    let mut n = number;
    while !stop.load(Ordering::Relaxed) {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let account = (n >> 33) % 20 + 1;
        let sql = match n % 5 {
            0 => format!(
                "BEGIN; DELETE FROM log WHERE account = {account}; UPDATE account SET n = 0 WHERE id = {account}; ROLLBACK"
            ),
            1 => format!("DELETE FROM log WHERE account = {account}"),
            _ => format!(
                "BEGIN; UPDATE account SET n = n + 1 WHERE id = {account}; SAVEPOINT s; INSERT INTO log (account, what) VALUES ({account}, '{n}'); \
                 RELEASE s; COMMIT"
            ),
        };
        session.execute(&sql).expect("users may write");
        written.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros((n >> 40) % 3000));
    }
}

/// Ends the writers, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn the_same_is_shown(name: &str, workers: usize) {
    const MARKS: usize = 40;
    let pair = Pair::shared(name, SCHEMA);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    followed(&options(&pair, workers, TableFilter::default()), || {
        std::thread::scope(|scope| {
            let (pair, stop, written) = (&pair, &stop, &written);
            for number in 0..2 {
                scope.spawn(move || write(pair, number, stop, written));
            }
            let _stop = Stop(stop);
            let mut marker = Marker::new(&pair.primary_url, &pair.backup_url).expect("a backup");
            let (mut taken, mut busy) = (0, 0);
            let begun = Instant::now();
            while taken < MARKS {
                assert!(begun.elapsed() < Duration::from_secs(100), "{taken} taken");
                let mut primary = pair.connect(&pair.primary_url);
                let rows = primary
                    .query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot(), pg_current_snapshot()::text")
                    .expect("it has snapshots");
                let row = rows.first().expect("one");
                let (exported, shown) = (row.string(0), row.string(1));
                let Some(mark) = marker.mark(&shown).expect("it takes marks") else {
                    busy += 1;
                    continue;
                };
                let there = marker.there(&mark, &exported).expect("it gets there");
                assert_eq!(there.tables.len(), 2, "{:?}", there.elsewhere);
                let mut backup = in_snapshot(pair, &pair.backup_url, &there.snapshot);
                assert_eq!(all(&mut backup), all(&mut primary), "mark {taken}");
                taken += 1;
            }
            eprintln!(
                "{busy} marks were too late; {} transactions",
                written.load(Ordering::Relaxed)
            );
            assert!(busy > 0, "others wrote in between");
        });
    });
}

#[test]
fn a_backup_shows_at_a_mark_what_the_primary_showed() {
    the_same_is_shown("marked", 1);
}

#[test]
fn a_backup_with_several_workers_shows_it_too() {
    the_same_is_shown("marked_3", 3);
}

#[test]
fn an_open_transaction_that_wrote_is_in_the_way_and_one_elsewhere_is_not() {
    let pair = Pair::shared("marked_open", SCHEMA);
    let elsewhere = pair.primary_url.with_database("postgres");
    followed(&options(&pair, 1, TableFilter::default()), || {
        let mut marker = Marker::new(&pair.primary_url, &pair.backup_url).expect("a backup");
        let mut is_marked = || {
            // Other tests use the same server.
            (0..40).any(|_| {
                let shown = pair.primary("SELECT pg_current_snapshot()");
                marker.mark(&shown).expect("it takes marks").is_some()
            })
        };
        assert!(is_marked());
        let mut other = pair.connect(&elsewhere);
        let writes = "BEGIN; SELECT pg_current_xact_id()";
        other.execute(writes).unwrap();
        assert!(is_marked());
        let mut own = pair.connect(&pair.primary_url);
        own.execute(writes).unwrap();
        assert!(!is_marked());
        own.execute("COMMIT").unwrap();
        let prepared =
            "BEGIN; INSERT INTO account VALUES (99, 0); PREPARE TRANSACTION 'marked_open'";
        own.execute(prepared).unwrap();
        assert!(!is_marked());
        own.execute("COMMIT PREPARED 'marked_open'").unwrap();
        assert!(is_marked());
    });
}

#[test]
fn a_mark_that_nobody_comes_to_says_why() {
    let pair = Pair::shared("marked_alone", SCHEMA);
    let refused = || Marker::new(&pair.primary_url, &pair.backup_url).err();
    assert!(matches!(refused(), Some(MarkError::NotABackup)));
    let tables = TableFilter {
        exclude: vec!["log".to_owned()],
        ..TableFilter::default()
    };
    followed(&options(&pair, 1, tables), || {
        assert!(
            matches!(refused(), Some(MarkError::LeftOut { tables }) if tables == ["public.log"])
        );
    });
    assert!(matches!(refused(), Some(MarkError::NotFollowed)));
}
