//! Promotion, against real servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::pair::{Pair, told};
use hindcast_cluster::Shutdown;
use hindcast_pg::{Connection, DatabaseUrl, Lsn};
use hindcast_standby::initial::Hold;
use hindcast_standby::promote::{Like, PromoteError, PromoteOptions, PromoteReport, promote};
use hindcast_standby::run::{self, BackupOptions, Ended, Granularity, Options};
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::{Control, State};

const SCHEMA: &str = "\
CREATE TABLE orders (k serial PRIMARY KEY, v text); INSERT INTO orders (v) SELECT 'v' FROM generate_series(1, 10); \
CREATE TABLE lines (k bigint GENERATED ALWAYS AS IDENTITY (INCREMENT 5) PRIMARY KEY, o int REFERENCES orders); \
INSERT INTO lines (o) SELECT 1 FROM generate_series(1, 4); \
CREATE TABLE down (k smallint PRIMARY KEY); CREATE SEQUENCE down_k AS smallint INCREMENT -1 MINVALUE -2000 MAXVALUE -1; \
ALTER TABLE down ALTER k SET DEFAULT nextval('down_k'); INSERT INTO down SELECT nextval('down_k') FROM generate_series(1, 1500); \
CREATE TABLE coded (k text PRIMARY KEY DEFAULT 'C-' || nextval('orders_k_seq')); \
CREATE TABLE parted (k bigserial, r int, PRIMARY KEY (k, r)) PARTITION BY LIST (r); \
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1); CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2); \
INSERT INTO parted (r) SELECT 1 + n % 2 FROM generate_series(1, 9) n; \
CREATE SEQUENCE free START 77; CREATE SCHEMA \"Other\"; CREATE SEQUENCE \"Other\".\"lone\"; \
CREATE TABLE untouched (k serial PRIMARY KEY)";

fn copied(name: &str) -> Pair {
    with_copy(Pair::shared(name, SCHEMA))
}

fn with_copy(pair: Pair) -> Pair {
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    pair
}

fn options(pair: &Pair) -> PromoteOptions {
    PromoteOptions {
        to: pair.backup_url.clone(),
        from: Some(pair.primary_url.clone()),
        name: pair.database.clone(),
        wait: true,
        check: false,
        patience: PromoteOptions::PATIENCE,
    }
}

fn promoted(options: &PromoteOptions) -> PromoteReport {
    promote(options).unwrap_or_else(|error| panic!("{error} ({})", error.hint()))
}

fn end_of(pair: &Pair) -> Lsn {
    pair.primary("SELECT pg_current_wal_insert_lsn()")
        .parse()
        .unwrap()
}

/// The next value of each sequence, as SQL on either side.
const NEXT: &str = "SELECT nextval('orders_k_seq'), nextval('lines_k_seq'), nextval('down_k'), nextval('parted_k_seq'), nextval('free'), nextval('untouched_k_seq')";

#[test]
fn with_its_primary_a_backup_gets_everything_and_leaves_nothing_behind() {
    let pair = copied("complete");
    pair.primary("SELECT setval('free', 500, false), nextval('orders_k_seq'), setval('\"Other\".\"lone\"', 42)");
    let report = promoted(&PromoteOptions {
        check: true,
        ..options(&pair)
    });
    assert_eq!(report.without_primary, None);
    assert!(!report.follower_stopped);
    assert_eq!(report.missing, Some(Default::default()));
    assert_eq!(report.findings, [""; 0]);
    assert_eq!(report.compared, 7);
    assert_eq!(
        report.dropped,
        ["slot hindcast_complete", "publication hindcast_complete"]
    );
    assert_eq!(report.to_drop_later, [""; 0]);
    assert_eq!(report.sequences.left, []);
    assert!(
        report
            .sequences
            .set
            .iter()
            .all(|sequence| sequence.like == Like::Primary)
    );
    assert_eq!(pair.same(NEXT), "12|21|-1501|10|500|1");
    // Also where there is no table.
    assert_eq!(pair.same("SELECT nextval('\"Other\".\"lone\"')"), "43");
    assert_eq!(
        pair.primary(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'hindcast_complete'"
        ),
        "0"
    );
    assert_eq!(pair.primary("SELECT count(*) FROM pg_publication"), "0");
    assert_eq!(pair.state(), "promoted");
    // What readers were offered by a backup that follows.
    assert_eq!(
        pair.backup("SELECT to_regproc('hindcast.standby_snapshot'), to_regclass('hindcast.standby_snapshots')"),
        "|"
    );
    pair.backup("INSERT INTO orders (v) VALUES ('new'); INSERT INTO lines (o) VALUES (13)");
    assert!(matches!(
        promote(&options(&pair)),
        Err(PromoteError::Already)
    ));
}

#[test]
fn whoever_follows_is_told_how_far_to_go_and_then_to_stop() {
    let pair = copied("followed");
    pair.primary("INSERT INTO untouched DEFAULT VALUES");
    let before = end_of(&pair);
    let mut hold = Hold::take(&pair.backup_url, &pair.names.slot)
        .unwrap()
        .unwrap();
    let report = std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            loop {
                if let Some(request) = hold.stop_requested().unwrap() {
                    let at = request
                        .at
                        .expect("the primary is there, and it is to be waited for");
                    assert!(at >= before);
                    // What following does, by hand.
                    pair.backup("INSERT INTO untouched VALUES (1)");
                    hold.stopped(at).unwrap();
                    return at;
                }
            }
        });
        let report = promoted(&PromoteOptions {
            check: true,
            ..options(&pair)
        });
        assert_eq!(report.applied, follower.join().unwrap());
        report
    });
    assert!(report.follower_stopped);
    assert_eq!(report.missing, Some(Default::default()));
    assert_eq!(report.compared, 7);
}

#[test]
fn a_standby_that_runs_ends_when_its_backup_is_promoted() {
    let pair = Pair::shared("running", SCHEMA);
    let follow = BackupOptions {
        common: Options {
            from: pair.primary_url.clone(),
            name: pair.database.clone(),
            tables: TableFilter::default(),
            workers: None,
            copy_workers: 2,
            streaming: false,
            until: None,
        },
        to: pair.backup_url.clone(),
        granularity: Granularity::Row,
        epoch_rows: 1000,
        epoch_interval: Duration::from_millis(10),
        schema: true,
        check: None,
    };
    let control = Control::default();
    std::thread::scope(|scope| {
        let following = scope.spawn(|| run::to_backup(&follow, &control));
        while control.status().state != State::Following {
            assert!(!following.is_finished(), "{:?}", following.join());
        }
        pair.primary(
            "INSERT INTO orders (v) SELECT 'new' FROM generate_series(1, 5000); UPDATE orders SET v = 'w' WHERE k < 4; \
             DELETE FROM down WHERE k < -1000; INSERT INTO parted (r) SELECT 2 FROM generate_series(1, 10)",
        );
        let report = promoted(&PromoteOptions {
            check: true,
            ..options(&pair)
        });
        assert!(report.follower_stopped);
        assert_eq!(report.missing, Some(Default::default()));
        assert_eq!(
            (report.compared, report.findings.len()),
            (7, 0),
            "{:?}",
            report.findings
        );
        assert_eq!(report.dropped.len(), 2);
        assert_eq!(following.join().unwrap().unwrap(), Ended::Promoted);
    });
    assert_eq!(pair.same(NEXT), "5011|21|-1501|20|77|1");
    assert_eq!(
        pair.same("SELECT count(*), sum(k) FROM orders"),
        "5010|12552555"
    );
    // The next start does not take it back.
    assert!(run::to_backup(&follow, &Control::default()).is_err());
}

#[test]
fn a_follower_that_does_not_answer_keeps_the_backup_as_it_is() {
    let pair = copied("silent");
    let mut hold = Hold::take(&pair.backup_url, &pair.names.slot)
        .unwrap()
        .unwrap();
    let error = promote(&PromoteOptions {
        patience: Duration::from_millis(200),
        ..options(&pair)
    })
    .unwrap_err();
    assert!(matches!(error, PromoteError::NoAnswer { .. }), "{error}");
    assert_eq!(pair.state(), "following");
    // The request is withdrawn: the follower goes on.
    assert_eq!(hold.stop_requested().unwrap(), None);
}

#[test]
fn what_was_not_applied_is_not_given_up_unless_somebody_says_so() {
    let pair = copied("behind");
    pair.primary("INSERT INTO untouched DEFAULT VALUES; UPDATE orders SET v = 'w' WHERE k < 4");
    let error = promote(&options(&pair)).unwrap_err();
    assert!(matches!(error, PromoteError::Behind { .. }), "{error}");
    assert!(error.hint().contains("--no-wait"), "{}", error.hint());
    assert_eq!(pair.state(), "following");
    assert_eq!(
        pair.primary(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'hindcast_behind'"
        ),
        "1"
    );

    let given_up = PromoteOptions {
        wait: false,
        ..options(&pair)
    };
    let error = promote(&PromoteOptions {
        check: true,
        ..given_up.clone()
    })
    .unwrap_err();
    match &error {
        PromoteError::Differs {
            tables,
            moving: true,
        } => assert_eq!(
            tables,
            &[
                "public.orders has rows that differ",
                "public.untouched has 1 rows on the primary and 0 on the backup"
            ]
        ),
        other => panic!("{other}"),
    }
    let report = promoted(&given_up);
    let missing = report.missing.unwrap();
    assert_eq!(
        (missing.transactions, missing.changes, missing.more),
        (2, 4, false)
    );
    // The slot still has them.
    assert!(report.is_incomplete());
    assert_eq!((report.dropped.len(), report.to_drop_later.len()), (0, 2));
    assert!(
        report.findings[0].contains("2 transactions that are not in the backup"),
        "{:?}",
        report.findings
    );
    assert_eq!(pair.state(), "promoted");
}

#[test]
fn work_of_other_databases_is_not_waited_for() {
    let pair = copied("idle");
    pair.servers().primary.sql("postgres", "CREATE TABLE IF NOT EXISTS noise (k int); INSERT INTO noise SELECT generate_series(1, 10000)").unwrap();
    assert!(end_of(&pair) > Lsn(0));
    let report = promoted(&options(&pair));
    assert_eq!(report.missing, Some(Default::default()));
}

#[test]
fn without_its_primary_a_backup_is_promoted_with_what_it_has() {
    let mut pair = with_copy(Pair::own("alone", SCHEMA));
    pair.servers_mut()
        .primary
        .stop(Shutdown::Immediate)
        .unwrap();
    let report = promoted(&options(&pair));
    assert!(report.without_primary.is_some());
    assert_eq!(report.missing, None);
    assert_eq!(report.to_drop_later.len(), 2);
    let left: Vec<&str> = report
        .sequences
        .left
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    // One is used for texts, too; two belong to no column.
    assert_eq!(
        left,
        [
            "\"Other\".\"lone\"",
            "\"public\".\"free\"",
            "\"public\".\"orders_k_seq\""
        ]
    );
    let set: Vec<String> = report
        .sequences
        .set
        .iter()
        .map(|sequence| match &sequence.like {
            Like::Column(column) => format!("{} = {} for {column}", sequence.name, sequence.value),
            Like::Primary => panic!("the primary is gone"),
        })
        .collect();
    assert_eq!(
        set,
        [
            "\"public\".\"down_k\" = -2000 for \"public\".\"down\".\"k\"",
            "\"public\".\"lines_k_seq\" = 5016 for \"public\".\"lines\".\"k\"",
            "\"public\".\"parted_k_seq\" = 1009 for \"public\".\"parted\".\"k\"",
            "\"public\".\"untouched_k_seq\" = 1001 for \"public\".\"untouched\".\"k\"",
        ]
    );
    assert_eq!(
        pair.backup("INSERT INTO lines (o) VALUES (1) RETURNING k"),
        "5021"
    );
    assert_eq!(pair.state(), "promoted");

    // When the primary comes back, this is what is left to do there.
    pair.servers_mut().primary.start().unwrap();
    for sql in &report.to_drop_later {
        pair.primary(sql);
    }
    assert_eq!(
        pair.primary("SELECT count(*) FROM pg_replication_slots"),
        "0"
    );
    assert_eq!(pair.primary("SELECT count(*) FROM pg_publication"), "0");
}

#[test]
fn what_the_new_users_should_know_is_found() {
    let pair = Pair::shared(
        "findings",
        "\
        CREATE TABLE a (k int PRIMARY KEY, v int); INSERT INTO a VALUES (1, -1); ALTER TABLE a ADD CONSTRAINT positive CHECK (v > 0) NOT VALID; \
        CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
        CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION f(); ALTER TABLE a DISABLE TRIGGER t; \
        CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM a",
    );
    let pair = with_copy(pair);
    pair.backup("ALTER DATABASE findings SET default_transaction_read_only = on");
    pair.backup("SET default_transaction_read_only = off; ALTER DATABASE findings SET session_replication_role = replica");
    let report = promoted(&options(&pair));
    let findings = report.findings.join("\n");
    for expected in [
        "the constraint positive of a was not checked for all rows: ALTER TABLE a VALIDATE CONSTRAINT positive",
        "triggers of a are disabled: ALTER TABLE a ENABLE TRIGGER t",
        "REFRESH MATERIALIZED VIEW m",
        "session_replication_role = replica",
        "sessions begin read-only",
    ] {
        assert!(
            findings.contains(expected),
            "{expected} is not in\n{findings}"
        );
    }
    assert_eq!(report.findings.len(), 5, "{findings}");
}

#[test]
fn what_is_no_backup_or_not_of_this_primary_is_not_promoted() {
    let pair = copied("nobody");
    let mut elsewhere = options(&pair);
    elsewhere.to = pair.primary_url.clone();
    assert!(
        matches!(promote(&elsewhere), Err(PromoteError::Unknown { known, .. }) if known.is_empty())
    );
    let mut misnamed = options(&pair);
    misnamed.name = "another".to_owned();
    let error = promote(&misnamed).unwrap_err();
    assert_eq!(error.hint(), "say --name nobody");
    let mut other = options(&pair);
    other.from = Some(pair.backup_url.clone());
    assert!(matches!(
        promote(&other),
        Err(PromoteError::OtherPrimary { .. })
    ));
    pair.backup("UPDATE hindcast.standby SET state = 'copying'");
    assert!(matches!(
        promote(&options(&pair)),
        Err(PromoteError::Incomplete)
    ));
    pair.backup("UPDATE hindcast.standby SET state = 'following'; UPDATE hindcast.standby_progress SET workers = 2; \
        INSERT INTO hindcast.standby_progress SELECT slot, 1, 2, epoch + 1, commit_lsn, end_lsn FROM hindcast.standby_progress");
    assert!(matches!(
        promote(&options(&pair)),
        Err(PromoteError::Uneven)
    ));
    // Where the primary cannot be asked, it is all there is, and something is missing.
    let report = promoted(&PromoteOptions {
        from: None,
        ..options(&pair)
    });
    assert!(report.torn && report.is_incomplete());
}

#[test]
fn a_slot_that_somebody_reads_is_told_about_and_left() {
    let pair = copied("read");
    let url: DatabaseUrl = pair.primary_url.clone();
    let reading = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let options_of_reader = hindcast_pg::ConnectOptions {
            replication: true,
            ..Default::default()
        };
        let reader = Connection::connect(&url, &options_of_reader).unwrap();
        let stream = reader
            .start_replication("START_REPLICATION SLOT hindcast_read LOGICAL 0/0 (proto_version '1', publication_names 'hindcast_read')")
            .unwrap();
        let keeper = scope.spawn(|| {
            while reading.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(stream);
        });
        let short = PromoteOptions {
            patience: Duration::from_millis(200),
            wait: false,
            ..options(&pair)
        };
        let report = promoted(&short);
        reading.store(false, Ordering::SeqCst);
        keeper.join().unwrap();
        assert_eq!(report.missing, None);
        assert_eq!(report.to_drop_later.len(), 2);
        assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
    });
}

#[test]
fn a_slot_that_has_lost_its_log_does_not_tell_what_is_missing() {
    let pair = with_copy(Pair::own("lost", SCHEMA));
    pair.primary("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf()");
    let lost = "SELECT wal_status = 'lost' FROM pg_replication_slots";
    while pair.primary(lost) != "t" {
        pair.primary("INSERT INTO orders (v) VALUES ('more'); SELECT pg_switch_wal(); CHECKPOINT");
    }
    let error = promote(&options(&pair)).unwrap_err();
    assert!(matches!(error, PromoteError::Behind { .. }), "{error}");
    let report = promoted(&PromoteOptions {
        wait: false,
        ..options(&pair)
    });
    assert_eq!(report.missing, None);
    assert!(
        report.findings[0].contains("has lost WAL"),
        "{:?}",
        report.findings
    );
    assert_eq!(report.dropped.len(), 2);
}
