//! What stops the applying of the log: a backup that is not what the log was made for.

use std::time::Duration;

use crate::backup_support::{Primary, SIMPLE, pump};
use hindcast_standby::backup::{BackupError, Options};
use hindcast_standby::target::Target;

#[test]
fn rows_that_somebody_else_took_away_are_named() {
    let primary = Primary::new("gone", SIMPLE);
    let changes = [
        (
            "updated",
            "UPDATE t SET v = 'x' WHERE id BETWEEN 40 AND 60",
            50,
        ),
        ("deleted", "DELETE FROM t WHERE id BETWEEN 70 AND 90", 80),
    ];
    for (suffix, change, row) in changes {
        let backup = primary.backup(suffix);
        let mut options = backup.options();
        primary.sql("UPDATE t SET v = v || '.' WHERE id < 10");
        drop(backup.catch_up(options.clone()).unwrap());
        backup.sql(&format!("DELETE FROM t WHERE id = {row}"));
        primary.sql(change);
        let content = "SELECT t::text FROM t ORDER BY 1";
        let before = backup.sql(content);
        for rows_max in [20_000, 3] {
            options.epoch_rows_max = rows_max;
            let error = backup
                .catch_up(options.clone())
                .err()
                .expect("a row is missing");
            let BackupError::Diverged {
                table, key, what, ..
            } = &error
            else {
                panic!("{error:?}");
            };
            assert_eq!(
                (table.as_str(), key.as_str()),
                ("public.t", format!("id = {row}").as_str())
            );
            assert_eq!(what, "it is not there");
            assert!(!error.is_transient());
            assert_eq!(backup.sql(content), before, "rolled back");
        }
        backup.sql(&format!("INSERT INTO t VALUES ({row}, 'v{row}')"));
        backup.catch_up(options).unwrap();
        backup.same();
    }
}

#[test]
fn rows_that_somebody_else_inserted_are_named() {
    let primary = Primary::new("there", SIMPLE);
    let backup = primary.backup("b");
    backup.sql("INSERT INTO t VALUES (500, 'theirs')");
    primary.sql("INSERT INTO t SELECT i, 'ours' FROM generate_series(450, 550) i");
    for copy_rows_min in [1, 1000] {
        let options = Options {
            copy_rows_min,
            ..backup.options()
        };
        let error = backup.catch_up(options).err().expect("a row is there");
        let BackupError::Diverged { table, key, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((table.as_str(), key.as_str()), ("public.t", "(id) = (500)"));
    }
    backup.sql("DELETE FROM t WHERE id = 500");
    backup.catch_up(backup.options()).unwrap();
    backup.same();
}

#[test]
fn a_row_without_a_key_that_is_missing_is_described() {
    let primary = Primary::new(
        "described",
        "CREATE TABLE t (a int, b text); ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 'x'), (2, NULL)",
    );
    let backup = primary.backup("b");
    backup.sql("DELETE FROM t WHERE a = 2");
    primary.sql("UPDATE t SET b = 'y' WHERE a = 2");
    let error = backup
        .catch_up(backup.options())
        .err()
        .expect("a row is missing");
    assert!(
        matches!(&error, BackupError::Diverged { key, .. } if key == "a = 2, b = null"),
        "{error:?}"
    );
}

#[test]
fn a_column_that_the_backup_lacks_stops_it_where_it_is_needed_first() {
    let primary = Primary::new("shapes", SIMPLE);
    let backup = primary.backup("b");
    primary.sql("UPDATE t SET v = 'before'");
    primary.sql("ALTER TABLE t ADD COLUMN extra numeric(5,2) DEFAULT 1");
    primary.sql("UPDATE t SET extra = id WHERE id < 5");
    let error = backup
        .catch_up(backup.options())
        .err()
        .expect("a column is missing");
    let BackupError::Mismatch { what, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(what, "column extra is missing");
    // No statement is made up that might leave other rows than the primary has.
    assert!(!error.hint().contains("ALTER"), "{}", error.hint());
    assert_eq!(
        backup.sql("SELECT count(*) FROM t WHERE v = 'before'"),
        "100",
        "all before is there"
    );
    backup.sql("ALTER TABLE t ADD COLUMN extra numeric(5,2) DEFAULT 1");
    backup.catch_up(backup.options()).unwrap();
    backup.same();

    primary.sql("ALTER TABLE t ALTER extra TYPE numeric(7,3)");
    primary.sql("UPDATE t SET extra = 0.125 WHERE id = 7");
    let error = backup
        .catch_up(backup.options())
        .err()
        .expect("a type differs");
    let difference = "column extra is numeric(5,2) and the primary's is numeric(7,3)";
    assert!(error.to_string().contains(difference), "{error}");
    backup.sql("ALTER TABLE t ALTER extra TYPE numeric(7,3)");
    backup.catch_up(backup.options()).unwrap();
    backup.same();

    primary.sql("ALTER TABLE t DROP COLUMN v; ALTER TABLE t RENAME extra TO renamed; UPDATE t SET renamed = 2");
    backup.sql("ALTER TABLE t RENAME extra TO renamed");
    backup.catch_up(backup.options()).unwrap();
    assert_eq!(
        backup.sql("SELECT count(*) FROM t WHERE renamed = 2 AND v IS NOT NULL"),
        "100"
    );
}

#[test]
fn changes_of_shape_between_changes_are_followed() {
    let primary = Primary::new("reshaped", "CREATE TABLE t (id int PRIMARY KEY, v int)");
    primary.sql("INSERT INTO t SELECT i, i FROM generate_series(1, 10) i");
    let backup = primary.backup("b");
    backup.sql("ALTER TABLE t ADD COLUMN w int");
    primary.sql("ALTER TABLE t ADD COLUMN w int");
    primary.sql("UPDATE t SET w = v WHERE id > 3; DELETE FROM t WHERE id = 9");
    backup.catch_up(backup.options()).unwrap();
    backup.same();
}

#[test]
fn columns_of_its_own_get_their_defaults() {
    let primary = Primary::new("own", SIMPLE);
    let backup = primary.backup("b");
    backup.sql("ALTER TABLE t ADD COLUMN seen timestamptz DEFAULT now(), ADD COLUMN kept text");
    backup.sql("UPDATE t SET kept = 'mine'");
    primary.sql("INSERT INTO t VALUES (200, 'new'); UPDATE t SET v = 'u' WHERE id = 1; BEGIN; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 'again'); COMMIT");
    backup.catch_up(backup.options()).unwrap();
    let kept = "SELECT id, kept FROM t WHERE id IN (1, 2, 200) ORDER BY 1";
    assert_eq!(backup.sql(kept), "1|mine\n2|\n200|");
    backup.sql("ALTER TABLE t ADD COLUMN needed int NOT NULL DEFAULT 0; ALTER TABLE t ALTER needed DROP DEFAULT");
    primary.sql("INSERT INTO t VALUES (201, 'x')");
    let error = backup
        .catch_up(backup.options())
        .err()
        .expect("nothing fills the column");
    assert!(error.to_string().contains("is not null"), "{error}");
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let primary = Primary::new("lacking", SIMPLE);
    let backup = primary.backup("b");
    backup.sql("DROP TABLE t");
    primary.sql("DELETE FROM t WHERE id = 1");
    let error = backup.catch_up(backup.options()).err().expect("no table");
    assert!(
        matches!(&error, BackupError::Mismatch { relation, .. } if relation.to_string() == "public.t"),
        "{error:?}"
    );
}

#[test]
fn a_table_that_changes_on_the_backup_meanwhile_is_looked_at_again() {
    let primary = Primary::new("meanwhile", SIMPLE);
    let side = primary.backup("b");
    let mut backup = side.open(side.options()).unwrap();
    let mut log = side.log(backup.resume_point());
    primary.sql("UPDATE t SET v = 'first'");
    pump(&mut log, &mut backup, primary.end()).unwrap();
    backup.drain().unwrap();
    side.sql("ALTER TABLE t RENAME v TO w");
    primary.sql("UPDATE t SET v = 'second'");
    pump(&mut log, &mut backup, primary.end()).unwrap();
    let error = backup.drain().expect_err("the column has another name");
    assert!(
        matches!(error, BackupError::Changed { .. }) && error.is_transient(),
        "{error:?}"
    );
    assert!(matches!(backup.drain(), Err(BackupError::Stopped)));
    drop((backup, log));
    side.sql("ALTER TABLE t RENAME w TO v");
    side.catch_up(side.options()).unwrap();
    side.same();
}

#[test]
fn somebody_elses_lock_is_waited_for_only_so_long() {
    let primary = Primary::new("locked", SIMPLE);
    let side = primary.backup("b");
    let options = Options {
        lock_timeout: Duration::from_millis(50),
        ..side.options()
    };
    primary.sql("UPDATE t SET v = 'x' WHERE id = 1");
    let mut other =
        hindcast_pg::Connection::connect(&side.url(), &hindcast_pg::ConnectOptions::named("other"))
            .unwrap();
    other.execute("BEGIN; LOCK TABLE t").unwrap();
    let error = side.catch_up(options.clone()).err().expect("it is locked");
    assert!(
        error.is_transient() && error.hint().contains("lock"),
        "{error:?}"
    );
    other.execute("ROLLBACK").unwrap();
    side.catch_up(options).unwrap();
    side.same();
}

#[test]
fn a_role_without_the_right_is_told_what_it_needs() {
    let primary = Primary::new("rights", SIMPLE);
    let side = primary.backup("b");
    side.sql("CREATE ROLE nobody_much LOGIN; GRANT ALL ON SCHEMA hindcast TO nobody_much; GRANT ALL ON ALL TABLES IN SCHEMA hindcast TO nobody_much");
    let url = side.url_of("nobody_much");
    let error = hindcast_standby::backup::Backup::open(&url, side.options())
        .err()
        .expect("no superuser");
    assert!(
        error.hint().contains("session_replication_role"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_label_that_the_backups_enum_lacks_is_asked_for() {
    let primary = Primary::new(
        "labels",
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (id int PRIMARY KEY, m mood)",
    );
    let backup = primary.backup("b");
    primary.sql("ALTER TYPE mood ADD VALUE 'happy'");
    primary.sql("INSERT INTO t VALUES (1, 'happy')");
    let error = backup
        .catch_up(backup.options())
        .err()
        .expect("there is no such label");
    assert!(
        matches!(&error, BackupError::Refused { table: Some(table), .. } if table == "public.t"),
        "{error:?}"
    );
    let hint = error.hint();
    assert!(hint.contains("as on the primary"), "{hint}");
    backup.sql("ALTER TYPE mood ADD VALUE 'happy'");
    backup.catch_up(backup.options()).unwrap();
    backup.same();
}
