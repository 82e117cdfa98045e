//! Primary and backup change places, against real servers.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::pair::{Pair, told};
use hindcast_pg::{DatabaseUrl, Lsn, quote_identifier};
use hindcast_standby::fence;
use hindcast_standby::promote::Missing;
use hindcast_standby::run::{self, BackupOptions, Ended, Granularity, Options};
use hindcast_standby::source::{Names, TableFilter, slot};
use hindcast_standby::status::{Control, State};
use hindcast_standby::switchover::{
    After, Cause, Step, SwitchoverError, SwitchoverOptions, SwitchoverReport, abort, switchover,
};

const SCHEMA: &str = "\
CREATE TABLE orders (k serial PRIMARY KEY, v text); INSERT INTO orders (v) SELECT 'v' FROM generate_series(1, 10); \
CREATE TABLE log (at int, what text); INSERT INTO log VALUES (1, 'a'), (1, 'a')";
const ALL: &str = "SELECT (SELECT string_agg(k || v, ',' ORDER BY k) FROM orders), (SELECT string_agg(at || what, ',' ORDER BY at, what) FROM log)";

fn copied(name: &str) -> Pair {
    let pair = Pair::shared(name, SCHEMA);
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    pair
}

fn options(pair: &Pair) -> SwitchoverOptions {
    SwitchoverOptions {
        from: pair.primary_url.clone(),
        to: pair.backup_url.clone(),
        name: pair.database.clone(),
        check: true,
        back: true,
        patience: Duration::from_secs(20),
    }
}

fn following(
    from: &DatabaseUrl,
    to: &DatabaseUrl,
    name: &str,
    until: Option<Lsn>,
) -> BackupOptions {
    BackupOptions {
        common: Options {
            from: from.clone(),
            name: name.to_owned(),
            tables: TableFilter::default(),
            workers: None,
            copy_workers: 1,
            streaming: false,
            until,
        },
        to: to.clone(),
        granularity: Granularity::Row,
        epoch_rows: 1000,
        epoch_interval: Duration::from_millis(10),
        schema: true,
        check: None,
    }
}

#[track_caller]
fn switched(options: &SwitchoverOptions) -> SwitchoverReport {
    switchover(options, &mut |_| {})
        .unwrap_or_else(|error| panic!("{error}: {} ({})", error.cause, error.hint()))
}

/// What is left of a standby's slot and publication.
const KEPT: &str = "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()), (SELECT count(*) FROM pg_publication)";

/// The old primary follows to the end of what the new one has.
fn follow_back(pair: &Pair) {
    let end = pair.backup(END);
    follow_to(&end, &pair.backup_url, &pair.primary_url, pair);
}

fn follow_on(pair: &Pair) {
    let end = pair.primary(END);
    follow_to(&end, &pair.primary_url, &pair.backup_url, pair);
}

const END: &str = "SELECT pg_current_wal_insert_lsn()";

fn follow_to(end: &str, from: &DatabaseUrl, to: &DatabaseUrl, pair: &Pair) {
    let options = following(from, to, &pair.database, Some(end.parse().unwrap()));
    let ended = run::to_backup(&options, &Control::default());
    assert_eq!(
        ended.unwrap_or_else(|error| panic!("{}", error.in_a_line())),
        Ended::Reached
    );
}

#[test]
fn both_change_places_and_change_back() {
    let pair = copied("places");
    let follow = following(&pair.primary_url, &pair.backup_url, &pair.database, None);
    let control = Control::default();
    let mut user = pair.connect(&pair.primary_url);
    user.execute("SET default_transaction_read_only = off; BEGIN; INSERT INTO orders (v) VALUES ('not committed')").unwrap();
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| run::to_backup(&follow, &control));
        while control.status().state != State::Following {
            assert!(!follower.is_finished(), "{:?}", follower.join());
        }
        pair.primary("INSERT INTO orders (v) SELECT 'w' FROM generate_series(1, 500); DELETE FROM orders WHERE k < 4; INSERT INTO log VALUES (2, 'b')");
        let mut steps = Vec::new();
        let report = switchover(&options(&pair), &mut |step| steps.push(step)).unwrap();
        assert_eq!(report.missing, Some(Missing::default()));
        assert!(report.back);
        let promotion = report.promotion.unwrap();
        assert!(promotion.follower_stopped);
        assert_eq!(
            (promotion.compared, promotion.findings.len()),
            (2, 0),
            "{:?}",
            promotion.findings
        );
        assert_eq!(follower.join().unwrap().unwrap(), Ended::Promoted);
        assert!(
            matches!(
                steps[..],
                [
                    Step::Noted,
                    Step::Fenced { ended: 1 },
                    Step::Drained { compared: 2, .. },
                    Step::WayBack { .. },
                    Step::Promoted
                ]
            ),
            "{steps:?}"
        );
    });
    // Users of the old primary only read; those that were there are gone with what they had begun.
    assert!(user.execute("COMMIT").is_err());
    let refused = pair
        .servers()
        .primary
        .sql(&pair.database, "DELETE FROM log")
        .unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    assert_eq!(pair.primary(KEPT), "0|0");
    // The new one goes on where the old one was.
    assert_eq!(
        pair.backup("INSERT INTO orders (v) VALUES ('new') RETURNING k > 511"),
        "t"
    );
    pair.backup("UPDATE orders SET v = 'x' WHERE k < 9; INSERT INTO log VALUES (3, 'c')");
    follow_back(&pair);
    pair.same(ALL);

    // And back, with nobody who follows.
    pair.backup("INSERT INTO orders (v) VALUES ('newer')");
    let there = options(&pair);
    let report = switched(&SwitchoverOptions {
        from: there.to.clone(),
        to: there.from.clone(),
        ..there
    });
    assert_eq!(report.missing, Some(Missing::default()));
    assert!(report.back);
    assert_eq!(report.promotion.unwrap().findings, [""; 0]);
    assert!(
        pair.servers()
            .backup
            .sql(&pair.database, "DELETE FROM log")
            .is_err()
    );
    pair.primary("TRUNCATE log; INSERT INTO orders (v) VALUES ('mine')");
    follow_on(&pair);
    pair.same(ALL);
    assert_eq!(
        (pair.primary(KEPT), pair.backup(KEPT)),
        ("1|1".to_owned(), "0|0".to_owned())
    );
}

/// Ends it right after a step, as a kill does.
fn killed_after(pair: &Pair, last: usize) {
    let mut steps = 0;
    let killed = catch_unwind(AssertUnwindSafe(|| {
        let _ = switchover(&options(pair), &mut |_| {
            steps += 1;
            if steps == last {
                resume_unwind(Box::new("killed"));
            }
        });
    }));
    assert!(killed.is_err(), "it has only {steps} steps");
}

#[test]
fn one_that_is_killed_goes_on_when_it_is_run_again() {
    for last in 1..=5 {
        let pair = copied(&format!("killed_{last}"));
        pair.primary("INSERT INTO orders (v) VALUES ('meanwhile')");
        killed_after(&pair, last);
        let status = run::status(&pair.backup_url, None, &pair.database)
            .unwrap()
            .unwrap();
        assert!(status.switchover.is_some(), "step {last}");
        assert_eq!(status.state == "promoted", last == 5);
        let report = switched(&options(&pair));
        assert_eq!(report.missing, Some(Missing::default()));
        assert!(report.back);
        assert_eq!(report.promotion.is_none(), last == 5);
        assert_eq!(
            (pair.primary(KEPT), pair.backup(KEPT)),
            ("0|0".to_owned(), "1|1".to_owned())
        );
        let status = run::status(&pair.backup_url, None, &pair.database)
            .unwrap()
            .unwrap();
        assert_eq!(
            (status.switchover, status.state.as_str()),
            (None, "promoted")
        );
        pair.backup("UPDATE orders SET v = 'here'");
        follow_back(&pair);
        pair.same(ALL);
        slot::remove(&pair.backup_url, &pair.names).unwrap();
    }
}

#[test]
fn one_that_is_killed_can_be_taken_back_until_it_promotes() {
    for last in 1..=5 {
        let pair = copied(&format!("taken_back_{last}"));
        killed_after(&pair, last);
        let taken = abort(&options(&pair));
        if last == 5 {
            assert!(matches!(
                taken,
                Err(SwitchoverError {
                    after: After::Promoted,
                    ..
                })
            ));
            switched(&options(&pair));
            slot::remove(&pair.backup_url, &pair.names).unwrap();
            continue;
        }
        taken.unwrap();
        pair.primary("INSERT INTO orders (v) VALUES ('as before')");
        assert_eq!(
            (pair.primary(KEPT), pair.backup(KEPT)),
            ("1|1".to_owned(), "0|0".to_owned())
        );
        follow_on(&pair);
        pair.same(ALL);
        assert!(matches!(
            abort(&options(&pair)),
            Err(SwitchoverError {
                cause: Cause::NotUnderWay,
                ..
            })
        ));
    }
}

#[test]
fn what_is_in_the_way_is_told_and_the_primary_goes_on() {
    let pair = copied("in_the_way");
    let failed = |after: After, said: &str| {
        let error = switchover(&options(&pair), &mut |_| {}).unwrap_err();
        let text = format!(
            "{}: {:?}",
            error.cause,
            std::error::Error::source(&error.cause).map(ToString::to_string)
        );
        assert!(text.contains(said), "{text}");
        assert_eq!(error.after, after, "{text}");
        assert!(!error.hint().is_empty());
        pair.primary("INSERT INTO orders (v) VALUES ('as before')");
    };
    pair.primary(
        "BEGIN; INSERT INTO log VALUES (1, 'two phases'); PREPARE TRANSACTION 'in the way'",
    );
    failed(After::Nothing, "in the way");
    pair.primary("COMMIT PREPARED 'in the way'; CREATE ROLE writes_always");
    // In this database alone: the server is that of other tests too.
    let writes_always = format!(
        "ALTER ROLE writes_always IN DATABASE {}",
        quote_identifier(&pair.database)
    );
    pair.primary(&format!(
        "{writes_always} SET default_transaction_read_only = off"
    ));
    failed(After::Nothing, "writes_always");
    pair.primary(&format!(
        "{writes_always} RESET default_transaction_read_only"
    ));
    pair.backup("UPDATE orders SET v = 'not the primary''s' WHERE k = 5");
    failed(After::TakenBack, "public.orders has rows that differ");
    pair.backup("UPDATE orders SET v = 'v' WHERE k = 5");
    // Somebody follows the backup already by this name.
    let made = format!(
        "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
        pair.names.slot
    );
    pair.backup(&made);
    failed(After::Nothing, &pair.names.slot);
    slot::remove(&pair.backup_url, &pair.names).unwrap();
    let mut misnamed = options(&pair);
    misnamed.name = "another".to_owned();
    assert!(switchover(&misnamed, &mut |_| {}).is_err());
    // A role that may not end the sessions of others.
    pair.primary("CREATE ROLE owns_it LOGIN; ALTER DATABASE in_the_way OWNER TO owns_it");
    let mut other = pair.connect(&pair.primary_url);
    let mut owner = pair.primary_url.clone();
    owner.user = Some("owns_it".to_owned());
    let error = fence::fence(&owner, Duration::from_secs(20)).unwrap_err();
    assert!(
        error.hint().contains("pg_signal_backend"),
        "{error}: {}",
        error.hint()
    );
    other.execute("SELECT 1").unwrap();
    fence::lift(&owner).unwrap();
    // With all that out of the way.
    let alone = SwitchoverOptions {
        back: false,
        ..options(&pair)
    };
    let report = switched(&alone);
    assert!(!report.back);
    assert_eq!(
        (pair.primary(KEPT), pair.backup(KEPT)),
        ("0|0".to_owned(), "0|0".to_owned())
    );
    let insert = "INSERT INTO orders (v) VALUES ('too late')";
    assert!(pair.servers().primary.sql(&pair.database, insert).is_err());
    fence::lift(&pair.primary_url).unwrap();
    pair.primary(insert);
    let mut user = pair.connect(&pair.primary_url);
    assert_eq!(
        fence::fence(&pair.primary_url, Duration::from_secs(20)).unwrap(),
        1
    );
    assert!(user.execute("SELECT 1").is_err());
    assert!(pair.servers().primary.sql(&pair.database, insert).is_err());
}

#[test]
fn what_was_committed_behind_the_fence_is_found_and_kept() {
    let pair = copied("behind_the_fence");
    let report = switchover(&options(&pair), &mut |step| {
        if matches!(step, Step::WayBack { .. }) {
            pair.primary(
                "SET default_transaction_read_only = off; INSERT INTO orders (v) VALUES ('behind')",
            );
        }
    })
    .unwrap();
    let missing = report.missing.unwrap();
    assert_eq!((missing.transactions, missing.changes), (1, 1));
    let promotion = report.promotion.unwrap();
    assert!(
        promotion
            .findings
            .iter()
            .any(|it| it.contains("still writes")),
        "{:?}",
        promotion.findings
    );
    assert_eq!(promotion.to_drop_later.len(), 2);
    assert_eq!(pair.primary(KEPT), "1|1");
    slot::remove(&pair.backup_url, &Names::new(&pair.database).unwrap()).unwrap();
}
