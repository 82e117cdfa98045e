//! What goes wrong between two servers: it goes on by itself, or stops with the next step, and
//! nothing is applied twice or lost.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use hindcast_cluster::Shutdown;
use hindcast_tests::session::Session;
use hindcast_tests::standby::pair::{backup, primary};
use hindcast_tests::standby::readers::{Readers, View};
use hindcast_tests::standby::workload::Workload;
use hindcast_tests::standby::{Follower, Pair, Proxy, Random, assert_refused, checker, kills};
use hindcast_tests::wait_for;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v int, u int UNIQUE);
     CREATE TABLE plain (id int PRIMARY KEY, v text);
     INSERT INTO t SELECT i, i, i FROM generate_series(1, 100) i; INSERT INTO plain SELECT i, 'x' FROM generate_series(1, 100) i";

/// Waits until a number of transactions of the workload more than now has arrived.
fn wait_for_more(pair: &Pair, follower: &mut Follower, more: i64) {
    let number = || -> i64 {
        Session::connect(&pair.backup_url())
            .and_then(|session| session.value("SELECT n FROM head"))
            .ok()
            .and_then(|number| number.parse().ok())
            .unwrap_or(-1)
    };
    let begun = number().max(0);
    follower.process.wait_until("the backup to move on", || {
        (number() >= begun + more).then_some(())
    });
}

// ── Servers and wires that break
// ────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_primary_that_restarts_is_found_again() {
    let mut pair = Pair::own("restarted", &checker::schema());
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let workload = Workload::start(&pair.primary_url(), 2, 300, &mut Random::seeded());
    let readers = Readers::start(&pair.backup_url(), &[View::Statement], false);
    wait_for_more(&pair, &mut follower, 20);
    // A crash takes back what was not flushed; what was not flushed was not sent either.
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        let primary = &mut pair.servers_mut().primary;
        primary.stop(how).expect("it can be stopped");
        primary.start().expect("it can be started");
        wait_for_more(&pair, &mut follower, 20);
    }
    workload.stop();
    pair.wait_until_equal(&mut follower);
    readers.stop().assert_sound();
    let reconnects = follower.wait_for_report("a report of having connected again", |report| {
        report["reconnects"].as_u64() >= Some(2) && report["state"] == "following"
    });
    assert_eq!(reconnects["state"], "following");
    follower.interrupt().assert_code(0);
}

#[test]
fn a_backup_that_restarts_or_crashes_is_found_again() {
    for workers in ["1", "3"] {
        let mut pair = Pair::own(&format!("backup-{workers}"), &checker::schema());
        let mut follower = pair.follow(&["--workers", workers]);
        pair.wait_until_it_has_all(&mut follower);
        let workload = Workload::start(&pair.primary_url(), 2, 300, &mut Random::seeded());
        wait_for_more(&pair, &mut follower, 20);
        for how in [Shutdown::Fast, Shutdown::Immediate, Shutdown::Immediate] {
            let backup = &mut pair.servers_mut().backup;
            backup.stop(how).expect("it can be stopped");
            backup.start().expect("it can be started");
            wait_for_more(&pair, &mut follower, 20);
        }
        workload.stop();
        pair.wait_until_equal(&mut follower);
        follower.interrupt().assert_code(0);
    }
}

#[test]
fn what_a_crash_of_the_backup_takes_back_is_sent_again_after_a_restart_of_the_follower() {
    let mut pair = Pair::own("taken-back", &checker::schema());
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut Random::seeded());
    for _ in 0..kills(3) {
        wait_for_more(&pair, &mut follower, 30);
        // Both go at the same moment: what the follower knew is gone, and so is what the backup had
        // not flushed.
        let killed = follower.kill();
        let backup = &mut pair.servers_mut().backup;
        backup.stop(Shutdown::Immediate).expect("it can be stopped");
        backup.start().expect("it can be started");
        drop(killed);
        follower = pair.follow(&[]);
    }
    wait_for_more(&pair, &mut follower, 30);
    workload.stop();
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_wire_to_the_primary_that_is_cut_in_the_middle_of_a_message_loses_nothing() {
    let mut random = Random::seeded();
    let pair = Pair::shared("cut", &checker::schema());
    let wire = Proxy::to(pair.servers().primary.port());
    let from = wire.url(&pair.database);
    let mut follower = pair.follow_from(&from, &[]);
    pair.wait_until_it_has_all(&mut follower);
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut random);
    let readers = Readers::start(&pair.backup_url(), &[View::Statement], false);
    for _ in 0..kills(6) {
        let cuts = wire.cuts();
        wire.cut_after(1 + random.below(30_000));
        follower
            .process
            .wait_until("the wire to be cut", || (wire.cuts() > cuts).then_some(()));
        wait_for_more(&pair, &mut follower, 5);
    }
    // A moment without any wire.
    wire.set_down(true);
    follower.wait_for_report("the follower to wait", |report| {
        report["state"] == "waiting"
    });
    wire.set_down(false);
    workload.stop();
    pair.wait_until_equal(&mut follower);
    readers.stop().assert_sound();
    follower.interrupt().assert_code(0);
}

#[test]
fn a_wire_to_the_backup_that_is_cut_loses_nothing() {
    let mut random = Random::seeded();
    for workers in ["1", "3"] {
        let pair = Pair::shared(&format!("cut-backup-{workers}"), &checker::schema());
        let wire = Proxy::to(pair.servers().backup.port());
        let (from, to) = (pair.primary_url(), wire.url(&pair.database));
        let command = pair.hindcast(&[
            "standby",
            "--from",
            &from,
            "--to",
            &to,
            "--name",
            &pair.database,
            "--json",
            "--workers",
            workers,
        ]);
        let mut follower = Follower::start("follower", command, pair.folder());
        pair.wait_until_it_has_all(&mut follower);
        let workload = Workload::start(&pair.primary_url(), 2, 0, &mut random);
        for turn in 0..kills(4) {
            let cuts = wire.cuts();
            match turn % 2 {
                0 => wire.cut(),
                _ => wire.cut_after(1 + random.below(3_000)),
            }
            follower
                .process
                .wait_until("the wire to be cut", || (wire.cuts() > cuts).then_some(()));
            wait_for_more(&pair, &mut follower, 5);
        }
        workload.stop();
        pair.wait_until_equal(&mut follower);
        follower.interrupt().assert_code(0);
    }
}

#[test]
fn a_session_that_an_administrator_ends_is_opened_again() {
    let pair = Pair::shared("terminated", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'hindcast%' AND datname = current_database()";
    follower
        .process
        .wait_until("a session on the primary to be ended", || {
            (pair.primary(end) != "0").then_some(())
        });
    pair.primary("UPDATE plain SET v = 'y'");
    pair.wait_until_it_has_all(&mut follower);
    follower
        .process
        .wait_until("a session on the backup to be ended", || {
            (pair.backup(end) != "0").then_some(())
        });
    pair.primary("UPDATE plain SET v = 'z'");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_reader_that_holds_a_snapshot_and_a_writer_that_holds_a_lock_do_no_harm() {
    let pair = Pair::shared("held", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let reader = Session::connect(&pair.backup_url()).expect("the backup is there");
    reader
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM plain")
        .expect("it reads");
    pair.primary("UPDATE plain SET v = 'y'; UPDATE plain SET v = 'z'");
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(
        reader
            .value("SELECT DISTINCT v FROM plain")
            .expect("it reads"),
        "x"
    );
    reader.run("COMMIT").expect("it ends");
    // Somebody locks a table for a while: it waits.
    reader
        .run("BEGIN; LOCK TABLE plain IN SHARE MODE")
        .expect("it locks");
    pair.primary("UPDATE plain SET v = 'after'");
    let waiting =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'plain'::regclass";
    follower
        .process
        .wait_until("the follower to wait for the lock", || {
            (pair.backup(waiting) != "0").then_some(())
        });
    reader.run("COMMIT").expect("it ends");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

// ── Slots ─────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_slot_that_is_gone_is_an_error_with_the_next_step() {
    let pair = Pair::shared("gone", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    let drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()";
    pair.primary(drop);
    pair.primary("UPDATE t SET v = 0");
    let before = pair.backup("SELECT sum(v) FROM t");
    assert_refused(&pair.follow(&[]).wait(), &["hindcast_gone"]);
    assert_eq!(
        pair.backup("SELECT sum(v) FROM t"),
        before,
        "it went on with a gap"
    );
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(
        pair.primary(slots),
        "0",
        "a slot was made that does not continue what the backup has"
    );
}

#[test]
fn a_slot_that_is_dropped_under_a_running_follower_is_an_error_with_the_next_step() {
    let pair = Pair::shared("dropped-slot", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let primary = Session::connect(&pair.primary_url()).expect("the primary is there");
    wait_for(
        "the slot to be dropped between two sessions of the follower",
        || {
            // In one statement: the follower opens its session again at once.
            let end = "DO $$ BEGIN PERFORM pg_terminate_backend(active_pid, 1000) FROM pg_replication_slots WHERE database = current_database() AND active; \
             PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database(); END $$";
            primary.run(end).ok()
        },
    );
    assert_refused(&follower.wait(), &["hindcast_dropped_slot"]);
}

#[test]
fn a_slot_that_lost_its_wal_is_an_error_with_the_next_step() {
    let pair = Pair::with(
        "lost",
        TABLE,
        primary()
            .set("max_slot_wal_keep_size", "1MB")
            .set("wal_keep_size", "0")
            .set("max_wal_size", "64MB"),
        backup(),
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    wait_for("the slot to be lost", || {
        pair.primary("CREATE TABLE IF NOT EXISTS filler (t text); INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 20000); TRUNCATE filler");
        pair.primary("SELECT pg_switch_wal()");
        pair.primary("CHECKPOINT");
        (pair.primary("SELECT wal_status FROM pg_replication_slots") == "lost").then_some(())
    });
    pair.primary("DROP TABLE filler");
    assert_refused(&pair.follow(&[]).wait(), &["hindcast_lost", "removed WAL"]);
}

#[test]
fn a_second_follower_of_the_same_slot_does_no_harm() {
    let pair = Pair::shared("second", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let mut second = pair.follow(&[]);
    // It says who is there, and ends or waits until the first is gone.
    let waits = |follower: &Follower| {
        follower.reports().iter().any(|report| {
            report["state"] == "waiting"
                && report["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.contains("hindcast_second"))
        })
    };
    wait_for("the second follower to wait or to end", || {
        (!second.is_running() || waits(&second)).then_some(())
    });
    pair.primary("UPDATE t SET v = v + 1");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
    if second.is_running() {
        pair.primary("UPDATE t SET v = v + 1");
        pair.wait_until_equal(&mut second);
        second.interrupt().assert_code(0);
    } else {
        assert_refused(&second.wait(), &["hindcast_second"]);
    }
}

#[test]
fn a_backup_of_another_database_is_not_taken_for_this_one() {
    let pair = Pair::shared("mine", TABLE);
    let other = Pair::shared("other", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    let mut follower = other.follow(&[]);
    other.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    // The wrong backup under the right name: its progress is of another slot.
    let finished = pair.run(&[
        "--from",
        &pair.primary_url(),
        "--to",
        &other.backup_url(),
        "--name",
        "mine",
    ]);
    assert_refused(&finished, &[]);
    other.assert_equal();
    // And the right backup, of another primary.
    let finished = pair.run(&[
        "--from",
        &other.primary_url(),
        "--to",
        &pair.backup_url(),
        "--name",
        "mine",
    ]);
    assert_refused(&finished, &[]);
    pair.assert_equal();
}

#[test]
fn a_backup_that_was_put_back_to_an_older_state_is_noticed() {
    let pair = Pair::shared("put-back", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    let backup = &pair.servers().backup;
    backup
        .sql(
            "postgres",
            "CREATE DATABASE put_back_older TEMPLATE put_back",
        )
        .expect("nobody is connected");
    let mut follower = pair.follow(&[]);
    pair.primary("UPDATE t SET v = 0");
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    wait_for("the newer backup to be replaced by the older", || {
        backup
            .sql("postgres", "DROP DATABASE IF EXISTS put_back WITH (FORCE); ALTER DATABASE put_back_older RENAME TO put_back")
            .ok()
    });
    assert_refused(&pair.follow(&[]).wait(), &["hindcast_put_back"]);
}

// ── A backup that somebody else writes to
// ───────────────────────────────────────────────────────────────────────────────────────

/// Somebody writes to the backup; then the primary changes the same: it stops and names the row.
/// Put right again, it goes on.
fn diverges(
    name: &str,
    workers: &str,
    by_somebody: &str,
    on_primary: &str,
    naming: &[&str],
    put_right: &str,
) {
    let pair = Pair::shared(name, TABLE);
    let mut follower = pair.follow(&["--workers", workers]);
    pair.wait_until_it_has_all(&mut follower);
    pair.backup(by_somebody);
    pair.primary(on_primary);
    assert_refused(&follower.wait(), naming);
    let finished = pair.follow(&["--workers", workers]).wait();
    assert_refused(&finished, naming);
    pair.backup(put_right);
    let mut follower = pair.follow(&["--workers", workers]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_row_that_somebody_deleted_on_the_backup_is_named_when_it_changes() {
    for (name, workers) in [("deleted-1", "1"), ("deleted-3", "3")] {
        diverges(
            name,
            workers,
            "DELETE FROM plain WHERE id = 42",
            "UPDATE plain SET v = 'y'",
            &["public.plain", "42"],
            "INSERT INTO plain VALUES (42, 'x')",
        );
    }
}

#[test]
fn a_row_that_somebody_deleted_on_the_backup_is_named_when_it_is_deleted() {
    diverges(
        "deleted-twice",
        "1",
        "DELETE FROM t WHERE id = 42",
        "DELETE FROM t WHERE id > 40",
        &["public.t", "42"],
        "INSERT INTO t VALUES (42, 42, 42)",
    );
}

#[test]
fn a_row_that_somebody_inserted_on_the_backup_is_named_when_it_is_inserted() {
    for (name, workers) in [("inserted-1", "1"), ("inserted-3", "3")] {
        diverges(
            name,
            workers,
            "INSERT INTO plain VALUES (142, 'mine')",
            "INSERT INTO plain SELECT i, 'new' FROM generate_series(101, 200) i",
            &["public.plain", "142"],
            "DELETE FROM plain WHERE id = 142",
        );
    }
}

#[test]
fn a_unique_value_that_somebody_took_on_the_backup_is_named() {
    diverges(
        "taken",
        "1",
        "INSERT INTO t VALUES (1000, 0, 777)",
        "UPDATE t SET u = 777 WHERE id = 5",
        &["public.t", "777"],
        "DELETE FROM t WHERE id = 1000",
    );
}

#[test]
fn a_constraint_that_only_the_backup_has_is_named() {
    diverges(
        "constrained",
        "1",
        "ALTER TABLE plain ADD CONSTRAINT short CHECK (length(v) < 10)",
        "UPDATE plain SET v = repeat('x', 20) WHERE id = 3",
        &["plain", "short"],
        "ALTER TABLE plain DROP CONSTRAINT short",
    );
}

#[test]
fn a_table_that_somebody_dropped_on_the_backup_is_named() {
    diverges(
        "table-dropped",
        "1",
        "ALTER TABLE plain RENAME TO away",
        "UPDATE plain SET v = 'y' WHERE id = 3",
        &["public.plain"],
        "ALTER TABLE away RENAME TO plain",
    );
}

// ── What cannot be followed is refused before anything is touched
// ───────────────────────────────────────────────────────────────

/// # Panics
/// If anything was left on either server.
#[track_caller]
fn assert_untouched(pair: &Pair) {
    assert_nothing_is_kept(pair);
    let tables = "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'public' AND relkind = 'r'";
    assert_eq!(pair.backup(tables), "0", "tables were made on the backup");
}

/// # Panics
/// If the primary keeps WAL, or a publication, for somebody who never followed.
#[track_caller]
fn assert_nothing_is_kept(pair: &Pair) {
    let left = "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()) || ' slots, ' || (SELECT count(*) FROM pg_publication) || ' publications'";
    assert_eq!(pair.primary(left), "0 slots, 0 publications");
}

/// `hindcast standby` with these URLs and this name fails, and leaves nothing.
#[track_caller]
fn refused(pair: &Pair, from: &str, to: &str, naming: &[&str]) {
    let finished = pair.run(&["--from", from, "--to", to, "--name", &pair.database]);
    assert_refused(&finished, naming);
    assert_untouched(pair);
}

#[test]
fn wal_level_replica_is_refused() {
    let pair = Pair::with(
        "wal-level",
        TABLE,
        primary().set("wal_level", "replica"),
        backup(),
    );
    refused(
        &pair,
        &pair.primary_url(),
        &pair.backup_url(),
        &["wal_level", "replica", "logical"],
    );
}

#[test]
fn tables_whose_rows_cannot_be_told_apart_are_refused() {
    let pair = Pair::shared(
        "keyless",
        "CREATE TABLE keyless (a int); CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING; \
         INSERT INTO nothing VALUES (1); UPDATE nothing SET id = 2; INSERT INTO keyless VALUES (1); DELETE FROM keyless",
    );
    refused(
        &pair,
        &pair.primary_url(),
        &pair.backup_url(),
        &[
            "public.keyless",
            "public.nothing",
            "--exclude-table",
            "REPLICA IDENTITY FULL",
        ],
    );
    // The users of the primary notice nothing.
    pair.primary("INSERT INTO keyless VALUES (1); UPDATE keyless SET a = 2; DELETE FROM keyless");
    let mut follower = pair.follow(&["--exclude-table", "keyless", "--exclude-table", "nothing"]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("INSERT INTO keyless VALUES (1); UPDATE keyless SET a = 2; DELETE FROM keyless");
    follower.interrupt().assert_code(0);
}

#[test]
fn roles_without_the_rights_are_refused() {
    let pair = Pair::shared("rights", TABLE);
    let roles = "CREATE ROLE rights_plain LOGIN; CREATE ROLE rights_replicates LOGIN REPLICATION; CREATE ROLE rights_reads LOGIN REPLICATION; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO rights_reads; GRANT CREATE ON DATABASE rights TO rights_replicates, rights_reads";
    pair.primary(roles);
    pair.backup("CREATE ROLE rights_weak LOGIN; REVOKE CREATE ON SCHEMA public FROM public");
    let as_role = |url: &str, role: &str| url.replace("postgres@", &format!("{role}@"));
    let (from, to) = (pair.primary_url(), pair.backup_url());
    refused(
        &pair,
        &as_role(&from, "rights_plain"),
        &to,
        &["rights_plain", "REPLICATION"],
    );
    refused(
        &pair,
        &as_role(&from, "rights_replicates"),
        &to,
        &["rights_replicates", "SELECT"],
    );
    refused(
        &pair,
        &as_role(&from, "rights_reads"),
        &to,
        &["rights_reads"],
    );
    refused(&pair, &from, &as_role(&to, "rights_weak"), &["rights_weak"]);
    refused(
        &pair,
        &as_role(&from, "nobody_at_all"),
        &to,
        &["nobody_at_all"],
    );
    // The owner of the tables may, if it may replicate.
    pair.primary("CREATE ROLE rights_owner LOGIN REPLICATION; GRANT CREATE ON DATABASE rights TO rights_owner; \
         ALTER TABLE t OWNER TO rights_owner; ALTER TABLE plain OWNER TO rights_owner; ALTER TABLE test_marker OWNER TO rights_owner");
    pair.backup("CREATE ROLE rights_owner");
    let mut follower = pair.follow_from(&as_role(&from, "rights_owner"), &[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("UPDATE t SET v = 0");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn urls_that_lead_nowhere_are_refused() {
    let pair = Pair::shared("nowhere", TABLE);
    let (from, to) = (pair.primary_url(), pair.backup_url());
    let missing = |url: &str| url.replace("/nowhere", "/no_such_database");
    refused(&pair, &missing(&from), &to, &["no_such_database"]);
    refused(&pair, &from, &missing(&to), &["no_such_database"]);
    // The backup of a database is another database.
    refused(&pair, &from, &from, &[]);
    let usage = pair.run(&["--from", "no url", "--to", &to]);
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}

fn server<'a>(pair: &'a mut Pair, side: &str) -> &'a mut hindcast_cluster::Cluster {
    match side {
        "primary" => &mut pair.servers_mut().primary,
        _ => &mut pair.servers_mut().backup,
    }
}

#[test]
fn servers_that_are_down_at_the_start_are_waited_for() {
    let mut pair = Pair::own("down", TABLE);
    for side in ["primary", "backup"] {
        server(&mut pair, side)
            .stop(Shutdown::Fast)
            .expect("it can be stopped");
        let mut follower = pair.follow(&[]);
        follower.wait_for_report("the follower to wait", |report| {
            report["state"] == "waiting"
                && report["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.contains(side))
        });
        server(&mut pair, side).start().expect("it can be started");
        pair.wait_until_equal(&mut follower);
        follower.interrupt().assert_code(0);
    }
}

#[test]
fn a_backup_that_has_rows_already_is_refused() {
    let pair = Pair::shared("filled", TABLE);
    pair.backup("CREATE TABLE t (id int PRIMARY KEY, v int, u int UNIQUE); INSERT INTO t VALUES (1, 100, 100)");
    let finished = pair.run(&[
        "--from",
        &pair.primary_url(),
        "--to",
        &pair.backup_url(),
        "--name",
        "filled",
    ]);
    assert_refused(&finished, &["public.t"]);
    assert_eq!(
        pair.backup("SELECT v FROM t"),
        "100",
        "somebody's rows are gone"
    );
}

#[test]
fn a_table_made_on_the_primary_later_does_no_harm() {
    let pair = Pair::shared("later", TABLE);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("CREATE TABLE keyless_later (a int); INSERT INTO keyless_later VALUES (1); UPDATE keyless_later SET a = 2");
    pair.primary("DROP TABLE keyless_later; CREATE TABLE later (id int PRIMARY KEY, v int); INSERT INTO later VALUES (1, 1); UPDATE later SET v = 2; UPDATE t SET v = 0");
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(pair.backup("SELECT DISTINCT v FROM t"), "0");
    follower.interrupt().assert_code(0);
    // At the next start it is copied, or one is told what to do; never is it there by half.
    pair.primary("INSERT INTO later VALUES (2, 2)");
    let mut follower = pair.follow(&[]);
    let marker = pair.mark();
    let session = Session::connect(&pair.backup_url()).expect("the backup is there");
    wait_for("the follower to go on or to stop", || {
        (!follower.is_running() || pair.has(&session, marker).unwrap_or(false)).then_some(())
    });
    if !follower.is_running() {
        assert_refused(&follower.wait(), &["public.later"]);
        return;
    }
    pair.primary("UPDATE later SET v = 3");
    match session.value("SELECT count(*) FROM later") {
        Ok(rows) if rows != "0" => pair.wait_until_equal(&mut follower),
        _ => pair.wait_until_it_has_all(&mut follower),
    }
    follower.interrupt().assert_code(0);
}

// ── A disk that is full
// ────────────────────────────────────────────────────────────────────────────────────────────

/// A small file system in the folder of the backup; unmounted when dropped.
struct SmallDisk {
    path: std::path::PathBuf,
}

impl SmallDisk {
    /// `None` where one may not mount.
    fn new(pair: &Pair, megabytes: u32) -> Option<Self> {
        let folder = pair.servers().backup.folder();
        let owner = folder.metadata().ok()?.uid();
        let path = folder.join("small");
        std::fs::create_dir(&path).ok()?;
        std::os::unix::fs::chown(&path, Some(owner), None).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={megabytes}m,uid={owner},mode=0700"))
            .arg("tmpfs")
            .arg(&path)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self { path })
    }

    fn grow(&self, megabytes: u32) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,size={megabytes}m")])
            .arg(&self.path)
            .status()
            .expect("mount can be run");
        assert!(status.success(), "the disk does not grow");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_backup_without_room_stops_it_until_there_is_room() {
    let pair = Pair::own("full", TABLE);
    let Some(disk) = SmallDisk::new(&pair, 20) else {
        eprintln!("not tested: a file system cannot be mounted here");
        return;
    };
    let backup = &pair.servers().backup;
    backup
        .sql(
            "postgres",
            &format!("CREATE TABLESPACE small LOCATION '{}'", disk.path.display()),
        )
        .expect("the folder is the server's");
    backup
        .sql("postgres", "ALTER DATABASE \"full\" SET TABLESPACE small")
        .expect("nobody is connected");
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary(
        "INSERT INTO plain SELECT i, repeat(md5(i::text), 10) FROM generate_series(1000, 61000) i",
    );
    let finished = follower.wait();
    assert_refused(&finished, &["full"]);
    assert_eq!(
        pair.backup("SELECT count(*) FROM plain"),
        "100",
        "a part of the transaction is there"
    );
    disk.grow(400);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
    drop(pair);
}
