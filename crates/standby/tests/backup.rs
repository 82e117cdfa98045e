//! The log of a real primary, applied to a real backup in every way, and what stops it.

mod backup_support;

use std::time::{Duration, Instant};

use backup_support::{Primary, check, pump};
use hindcast_pg::Lsn;
use hindcast_standby::backup::{BackupError, Granularity, Options};
use hindcast_standby::target::Target;

#[test]
fn rows_come_change_and_go() {
    check(
        "plain",
        "CREATE TABLE t (id int PRIMARY KEY, a text, b numeric(10,2)); INSERT INTO t SELECT i, 'old', i FROM generate_series(1, 20) i",
        &[
            "INSERT INTO t VALUES (100, 'new', 1.5), (101, NULL, NULL)",
            "UPDATE t SET a = 'changed ' || id WHERE id % 2 = 0",
            "DELETE FROM t WHERE id % 3 = 0",
            "UPDATE t SET b = b + 1; UPDATE t SET b = b * 2 WHERE id > 50",
            "INSERT INTO t VALUES (3, 'back', 0); DELETE FROM t WHERE id = 100; UPDATE t SET a = 'last' WHERE id = 3",
        ],
    );
}

#[test]
fn every_type_arrives_as_it_was() {
    let columns = [
        ("bool", "true"),
        ("smallint", "-32768"),
        ("int", "2147483647"),
        ("bigint", "-9223372036854775808"),
        ("oid", "4294967295"),
        ("real", "'1.1e-20'"),
        ("double precision", "'NaN'"),
        ("numeric", "'123456789012345678901234567890.12345'"),
        ("numeric(10,2)", "'1.50'"),
        ("money", "'12.34'"),
        ("text", "E'tab\\t newline\\n back\\\\slash \\\\N \\' \" ü'"),
        ("varchar(5)", "'abc  '"),
        ("char(5)", "'ab'"),
        ("\"char\"", "'x'"),
        ("name", "'name'"),
        ("bytea", "'\\x00ff0a5c'"),
        ("json", "'{\"a\":  [1, 2.50]}'"),
        ("jsonb", "'{\"b\": 1.10, \"a\": null}'"),
        ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
        ("date", "'infinity'"),
        ("time", "'24:00'"),
        ("timetz", "'12:30:00.5+02'"),
        ("timestamp", "'2024-02-29 23:59:59.999999'"),
        ("timestamptz", "'0044-03-15 12:00:00 BC'"),
        ("interval", "'1 mon -2 days 03:04:05.000001'"),
        ("inet", "'10.0.0.1/8'"),
        ("cidr", "'10.0.0.0/8'"),
        ("macaddr", "'08:00:2b:01:02:03'"),
        ("bit(5)", "B'10101'"),
        ("varbit", "B'1'"),
        ("xml", "'<a>1</a>'"),
        ("point", "'(0.1,-2)'"),
        ("box", "'((1,1),(0,0))'"),
        ("tsvector", "'a:1 b:2'"),
        ("tsquery", "'a & b'"),
        ("int[]", "'{{1,2},{3,NULL}}'"),
        ("text[]", "ARRAY['a,b', NULL, '{}', 'NULL']"),
        ("int4range", "'[1,5)'"),
        ("pg_lsn", "'16/B374D848'"),
        ("mood", "'happy'"),
        ("mood[]", "'{sad,happy}'"),
        ("pair", "ROW(1, 'a \"b\"')"),
        ("positive", "7"),
        ("short", "'abc'"),
        ("regclass", "'pg_class'"),
    ];
    let definitions: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, (kind, _))| format!("c{at} {kind}"))
        .collect();
    let values: Vec<&str> = columns.iter().map(|(_, value)| *value).collect();
    let setup = format!(
        "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN positive AS int CHECK (VALUE > 0); \
         CREATE DOMAIN short AS varchar(3); \
         CREATE TABLE t (id int PRIMARY KEY, {definitions}); INSERT INTO t (id) VALUES (1), (2), (3); \
         CREATE TABLE keyless ({definitions}); ALTER TABLE keyless REPLICA IDENTITY FULL",
        definitions = definitions.join(", ")
    );
    let sets: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, (_, value))| format!("c{at} = {value}"))
        .collect();
    let (values, sets) = (values.join(", "), sets.join(", "));
    check(
        "types",
        &setup,
        &[
            &format!("INSERT INTO t VALUES (10, {values}), (11, {values})"),
            &format!("UPDATE t SET {sets} WHERE id = 1"),
            &format!("INSERT INTO keyless VALUES ({values}), ({values}), ({values})"),
            "INSERT INTO keyless DEFAULT VALUES",
            &format!("UPDATE keyless SET {sets} WHERE c0 IS NULL"),
            "DELETE FROM keyless WHERE ctid IN (SELECT min(ctid) FROM keyless)",
            "UPDATE keyless SET c2 = 1, c10 = NULL WHERE ctid IN (SELECT min(ctid) FROM keyless)",
            "UPDATE t SET c10 = NULL WHERE id = 10",
        ],
    );
}

#[test]
fn keys_of_every_type_find_their_rows() {
    check(
        "keys",
        "CREATE TYPE mood AS ENUM ('sad', 'happy'); \
         CREATE TABLE composite (a text, b int, v int, PRIMARY KEY (b, a)); CREATE TABLE num (k numeric PRIMARY KEY, v int); \
         CREATE TABLE enums (k mood PRIMARY KEY, v int); CREATE TABLE stamps (k timestamptz PRIMARY KEY, v int); \
         CREATE TABLE chars (k char(4) PRIMARY KEY, v int); CREATE TABLE arrays (k int[] PRIMARY KEY, v int); \
         CREATE TABLE keyonly (k uuid PRIMARY KEY); CREATE SCHEMA other; CREATE DOMAIN other.d AS text; CREATE TABLE domains (k other.d PRIMARY KEY, v int)",
        &[
            "INSERT INTO composite SELECT 'k' || i, i, 0 FROM generate_series(1, 9) i; UPDATE composite SET v = b",
            "DELETE FROM composite WHERE b < 3; UPDATE composite SET a = 'moved' WHERE b = 5",
            "INSERT INTO num VALUES (1.0, 0), (2, 0); UPDATE num SET v = 1; UPDATE num SET k = 1.00 WHERE k = 1",
            "UPDATE num SET v = 2; DELETE FROM num WHERE k = 1; INSERT INTO num VALUES (1, 5)",
            "INSERT INTO enums VALUES ('sad', 0), ('happy', 0); UPDATE enums SET v = 3 WHERE k = 'sad'",
            "INSERT INTO stamps SELECT timestamptz '2020-01-01' + i * interval '1 s', i FROM generate_series(1, 5) i; UPDATE stamps SET v = v + 1",
            "INSERT INTO chars VALUES ('a', 1), ('bc', 2); UPDATE chars SET v = 9; DELETE FROM chars WHERE k = 'a'",
            "INSERT INTO arrays VALUES ('{1,2}', 1), ('{}', 2); UPDATE arrays SET v = 9; DELETE FROM arrays WHERE k = '{}'",
            "INSERT INTO keyonly SELECT md5(i::text)::uuid FROM generate_series(1, 5) i; DELETE FROM keyonly WHERE k IN (SELECT min(k::text)::uuid FROM keyonly)",
            "INSERT INTO domains VALUES ('a', 1), ('b', 2); UPDATE domains SET v = 7 WHERE k = 'a'",
        ],
    );
}

#[test]
fn large_values_that_are_not_sent_stay_as_they_are() {
    check(
        "toast",
        "CREATE TABLE t (id int PRIMARY KEY, n int, a text, b text); ALTER TABLE t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL; \
         INSERT INTO t SELECT i, 0, repeat('a' || i, 5000), repeat('b' || i, 5000) FROM generate_series(1, 6) i",
        &[
            "UPDATE t SET n = 1",
            "UPDATE t SET a = 'short' WHERE id = 2; UPDATE t SET n = 2; UPDATE t SET b = repeat('c', 9000) WHERE id = 3",
            "UPDATE t SET id = id + 100 WHERE id < 3",
            "UPDATE t SET n = 3 WHERE id > 100; UPDATE t SET id = id + 100 WHERE id > 100",
            "UPDATE t SET a = repeat('d', 9000), b = repeat('e', 9000) WHERE id = 4; UPDATE t SET id = 400 WHERE id = 4",
            "BEGIN; UPDATE t SET n = 7 WHERE id = 5; UPDATE t SET id = 50 WHERE id = 5; UPDATE t SET n = 8 WHERE id = 50; DELETE FROM t WHERE id = 6; COMMIT",
        ],
    );
}

#[test]
fn keys_may_change_places() {
    check(
        "moves",
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        &[
            "BEGIN; UPDATE t SET id = 10 WHERE id = 1; UPDATE t SET id = 1 WHERE id = 2; UPDATE t SET id = 2 WHERE id = 10; COMMIT",
            "UPDATE t SET id = id + 100; UPDATE t SET v = v || '!'",
            "DELETE FROM t WHERE id = 101; INSERT INTO t VALUES (101, 'again'); UPDATE t SET id = 5 WHERE id = 101",
        ],
    );
}

#[test]
fn unique_values_may_change_places() {
    check(
        "swaps",
        "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE); INSERT INTO t SELECT i, i FROM generate_series(1, 10) i; \
         CREATE TABLE later (id int PRIMARY KEY, u int UNIQUE DEFERRABLE); INSERT INTO later SELECT i, i FROM generate_series(1, 10) i; \
         CREATE TABLE partial (id int PRIMARY KEY, u int, active bool); CREATE UNIQUE INDEX ON partial (u) WHERE active; \
         INSERT INTO partial VALUES (1, 1, true), (2, 1, false); \
         CREATE TABLE apart (id int PRIMARY KEY, during int4range, EXCLUDE USING gist (during WITH &&)); INSERT INTO apart VALUES (1, '[1,5)'), (2, '[5,9)')",
        &[
            "BEGIN; UPDATE t SET u = -1 WHERE id = 1; UPDATE t SET u = 1 WHERE id = 2; UPDATE t SET u = 2 WHERE id = 1; COMMIT",
            "UPDATE t SET u = u + 100; UPDATE t SET u = u - 99",
            "DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (30, 4)",
            "UPDATE later SET u = u + 1",
            "UPDATE later SET u = 11 - (u - 1)",
            "BEGIN; UPDATE partial SET active = false WHERE id = 1; UPDATE partial SET active = true WHERE id = 2; COMMIT",
            "BEGIN; UPDATE apart SET during = '[100,101)' WHERE id = 1; UPDATE apart SET during = '[1,5)' WHERE id = 2; UPDATE apart SET during = '[5,9)' WHERE id = 1; COMMIT",
        ],
    );
}

#[test]
fn rows_are_found_whatever_identifies_them() {
    check(
        "identity",
        "CREATE TABLE whole (id int PRIMARY KEY, v text); ALTER TABLE whole REPLICA IDENTITY FULL; \
         CREATE TABLE chosen (id int PRIMARY KEY, u int NOT NULL, v text); CREATE UNIQUE INDEX chosen_u ON chosen (u); ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_u; \
         CREATE TABLE twins (a int, b text); ALTER TABLE twins REPLICA IDENTITY FULL; \
         CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, v text); ALTER TABLE deferred REPLICA IDENTITY FULL; \
         INSERT INTO whole SELECT i, 'w' || i FROM generate_series(1, 5) i; INSERT INTO chosen SELECT i, i * 10, 'c' || i FROM generate_series(1, 5) i; \
         INSERT INTO twins SELECT 1, 'twin' FROM generate_series(1, 5); INSERT INTO twins VALUES (NULL, NULL); INSERT INTO deferred SELECT i, 'd' || i FROM generate_series(1, 5) i",
        &[
            "UPDATE whole SET v = v || '!'; UPDATE whole SET id = id + 10 WHERE id > 3; DELETE FROM whole WHERE id = 1",
            "UPDATE chosen SET v = 'x' WHERE id = 1; UPDATE chosen SET u = u + 1 WHERE id = 2; UPDATE chosen SET id = 30 WHERE id = 3; DELETE FROM chosen WHERE id = 4",
            "UPDATE chosen SET id = id + 1000",
            "DELETE FROM twins WHERE ctid = (SELECT min(ctid) FROM twins); UPDATE twins SET b = 'other' WHERE ctid = (SELECT min(ctid) FROM twins)",
            "UPDATE twins SET a = 5 WHERE a IS NULL; DELETE FROM twins WHERE a = 5; INSERT INTO twins VALUES (2, 'new'), (3, 'new'); UPDATE twins SET a = a + 1 WHERE b = 'new'",
            "UPDATE deferred SET id = id + 1",
        ],
    );
}

#[test]
fn truncation_takes_what_was_pending() {
    check(
        "truncation",
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a); CREATE TABLE c (id serial PRIMARY KEY); \
         INSERT INTO a SELECT i FROM generate_series(1, 5) i; INSERT INTO b SELECT i, i FROM generate_series(1, 5) i",
        &[
            "INSERT INTO a VALUES (10); INSERT INTO b VALUES (10, 10); INSERT INTO c DEFAULT VALUES",
            "TRUNCATE a CASCADE",
            "INSERT INTO a VALUES (1); INSERT INTO b VALUES (1, 1); INSERT INTO c DEFAULT VALUES",
            "BEGIN; UPDATE c SET id = id + 10; TRUNCATE c RESTART IDENTITY; INSERT INTO c DEFAULT VALUES; COMMIT",
            "TRUNCATE b, a; INSERT INTO a VALUES (7)",
        ],
    );
}

#[test]
fn foreign_keys_and_triggers_rest() {
    check(
        "triggers",
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE); \
         CREATE TABLE journal (n serial PRIMARY KEY, what text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO journal (what) VALUES (TG_OP); RETURN NULL; END $$; \
         CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON child FOR EACH ROW EXECUTE FUNCTION note()",
        &[
            "INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (1, 1), (2, 2), (3, 1)",
            "UPDATE child SET parent = 2 WHERE id = 3; DELETE FROM parent WHERE id = 2",
        ],
    );
}

#[test]
fn columns_that_the_server_fills_are_filled_as_on_the_primary() {
    check(
        "filled",
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (v * 2) STORED); \
         CREATE TABLE s (k int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, v int, big text); ALTER TABLE s ALTER big SET STORAGE EXTERNAL",
        &[
            "INSERT INTO t (v) SELECT i FROM generate_series(1, 9) i; UPDATE t SET v = v + 1 WHERE id % 2 = 0; DELETE FROM t WHERE id = 3",
            "INSERT INTO s (k, v, big) SELECT i, i, repeat('x', 9000) FROM generate_series(1, 5) i; UPDATE s SET v = v + 1",
            "UPDATE s SET v = v + 1; DELETE FROM s WHERE k = 1; INSERT INTO s (k, v) VALUES (1, 1)",
            "UPDATE s SET k = 100 WHERE k = 2",
        ],
    );
}

#[test]
fn names_may_be_odd() {
    check(
        "names",
        "CREATE TABLE \"odd \"\"name\"\" ; --\" (\"the key\" int PRIMARY KEY, \"select\" text, \"UPPER\" int); \
         CREATE TABLE parts (id int, at date, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); \
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2021-01-01'); \
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2021-01-01') TO ('2022-01-01'); \
         CREATE TABLE base (id int PRIMARY KEY, v int); CREATE TABLE derived (extra int, PRIMARY KEY (id)) INHERITS (base); CREATE TABLE empty (); ALTER TABLE empty REPLICA IDENTITY FULL",
        &[
            "INSERT INTO \"odd \"\"name\"\" ; --\" VALUES (1, 'a', 1), (2, 'b', 2); UPDATE \"odd \"\"name\"\" ; --\" SET \"select\" = 'c', \"UPPER\" = 9 WHERE \"the key\" = 1",
            "INSERT INTO parts VALUES (1, '2020-05-05', 1), (2, '2021-05-05', 2); UPDATE parts SET at = '2021-06-06' WHERE id = 1; UPDATE parts SET v = 5",
            "INSERT INTO base VALUES (1, 1); INSERT INTO derived VALUES (1, 2, 3); UPDATE base SET v = v + 1; DELETE FROM ONLY base; TRUNCATE base",
            "INSERT INTO empty DEFAULT VALUES; INSERT INTO empty DEFAULT VALUES",
        ],
    );
}

#[test]
fn what_comes_and_goes_within_a_transaction_or_is_undone_leaves_nothing() {
    check(
        "undone",
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        &[
            "BEGIN; INSERT INTO t VALUES (1, 1); SAVEPOINT s; INSERT INTO t VALUES (2, 2); ROLLBACK TO s; UPDATE t SET v = 5; COMMIT",
            "BEGIN; INSERT INTO t VALUES (3, 3); DELETE FROM t WHERE id = 3; COMMIT; BEGIN; INSERT INTO t VALUES (4, 4); ROLLBACK",
        ],
    );
}

/// A table, and a backup that has applied the first changes to it.
const SIMPLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text, CHECK (id > 0)); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 100) i";

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
    let BackupError::Mismatch { what, remedy, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(what, "column extra is missing");
    assert!(
        remedy.starts_with("ALTER TABLE \"public\".\"t\" ADD COLUMN \"extra\" numeric(5,2)"),
        "{remedy}"
    );
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
    assert!(
        error.hint().contains("TYPE numeric(7,3)"),
        "{}",
        error.hint()
    );
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
    assert!(error.hint().contains("DROP NOT NULL"), "{}", error.hint());
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let primary = Primary::new("lacking", SIMPLE);
    let backup = primary.backup("b");
    backup.sql("DROP TABLE t");
    primary.sql("DELETE FROM t WHERE id = 1");
    let error = backup.catch_up(backup.options()).err().expect("no table");
    assert!(
        matches!(&error, BackupError::Mismatch { table, .. } if table == "public.t"),
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
fn a_lost_connection_loses_nothing() {
    for workers in [1, 3] {
        let primary = Primary::new(&format!("lost{workers}"), SIMPLE);
        let side = primary.backup("b");
        let options = Options {
            workers,
            epoch_rows_max: 50,
            ..side.options()
        };
        let mut losses = 0;
        for round in 0..5 {
            primary.sql(&format!(
                "UPDATE t SET v = 'round {round} ' || id; INSERT INTO t SELECT i, 'x' FROM generate_series({0}, {0} + 99) i", 1000 * (round + 1)
            ));
            let mut backup = side.open(options.clone()).unwrap();
            let mut log = side.log(backup.resume_point());
            // The epoch under way, if there is one, is lost or committed.
            let killed = format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'hindcast standby'",
                side.database
            );
            side.sql(&killed);
            let result = pump(&mut log, &mut backup, primary.end()).and_then(|()| backup.drain());
            let error = result.expect_err("there is no connection");
            assert!(error.is_transient(), "{error:?}");
            losses += 1;
        }
        assert_eq!(losses, 5);
        side.catch_up(options).unwrap();
        side.same();
    }
}

#[test]
fn what_is_there_already_is_not_applied_again() {
    let primary = Primary::new("again", SIMPLE);
    primary.sql("INSERT INTO t VALUES (1000, 'once'); DELETE FROM t WHERE id = 1");
    let side = primary.backup("b");
    drop(side.catch_up(side.options()).unwrap());
    primary.sql("INSERT INTO t VALUES (1001, 'once')");
    let mut backup = side.open(side.options()).unwrap();
    // From the very beginning, as if the progress had been forgotten on the way.
    let mut log = side.log(primary.from);
    pump(&mut log, &mut backup, primary.end()).unwrap();
    backup.drain().unwrap();
    side.same();
}

#[test]
fn two_at_a_time_cannot_apply_the_same_epoch() {
    let primary = Primary::new("rivals", SIMPLE);
    let side = primary.backup("b");
    let mut rivals = [
        side.open(side.options()).unwrap(),
        side.open(side.options()).unwrap(),
    ];
    primary.sql("UPDATE t SET v = 'once'; INSERT INTO t VALUES (1000, 'x')");
    let results = rivals.each_mut().map(|backup| {
        let mut log = side.log(backup.resume_point());
        pump(&mut log, backup, primary.end()).and_then(|()| backup.drain())
    });
    assert!(results[0].is_ok());
    assert!(results[1].is_err());
    drop(rivals);
    side.catch_up(side.options()).unwrap();
    side.same();
}

#[test]
fn durable_is_what_the_backup_has_flushed() {
    let primary = Primary::new("flushes", SIMPLE);
    let side = primary.backup("b");
    let options = Options {
        epoch_interval: Duration::ZERO,
        ..side.options()
    };
    let mut backup = side.open(options).unwrap();
    assert_eq!(backup.durable(), primary.from);
    let mut log = side.log(backup.resume_point());
    for round in 0..20 {
        primary.sql(&format!("UPDATE t SET v = 'round {round}'"));
        pump(&mut log, &mut backup, primary.end()).unwrap();
        assert!(backup.durable() <= backup.visible() && backup.visible() <= backup.received());
    }
    let begun = Instant::now();
    while backup.durable() < backup.received() {
        assert!(
            begun.elapsed() < backup_support::PATIENCE,
            "nothing is flushed"
        );
        backup.tick(Instant::now()).unwrap();
        std::thread::yield_now();
    }
    let status = backup.status();
    assert_eq!((status.transactions, status.changes), (20, 2000));
    assert!(
        status.rows_written <= 2000 && status.epochs <= 20,
        "{status:?}"
    );
    assert!(status.visible_commit_time.is_some());
}

#[test]
fn an_idle_backup_notes_that_it_has_seen_the_log() {
    let primary = Primary::new("idle", SIMPLE);
    let side = primary.backup("b");
    let mut backup = side.open(side.options()).unwrap();
    let later = Instant::now() + Duration::from_secs(3600);
    let seen = Lsn(primary.from.0 + 0x1000);
    backup.idle(seen, later).unwrap();
    backup.drain().unwrap();
    assert_eq!((backup.visible(), backup.durable()), (seen, seen));
    drop(backup);
    assert_eq!(side.open(side.options()).unwrap().resume_point(), seen);
}

#[test]
fn a_transaction_in_pieces_is_seen_as_a_whole_or_not_at_all() {
    let primary = Primary::new("pieces", SIMPLE);
    let side = primary.backup("b");
    let mut backup = side
        .open(Options {
            epoch_rows_max: 10,
            ..side.options()
        })
        .unwrap();
    let mut log = side.log(backup.resume_point());
    primary.sql("BEGIN; UPDATE t SET v = 'new'; INSERT INTO t SELECT i, 'new' FROM generate_series(101, 1000) i; COMMIT");
    pump(&mut log, &mut backup, primary.end()).unwrap();
    assert_eq!(side.sql("SELECT count(*) FROM t WHERE v = 'new'"), "0");
    backup.drain().unwrap();
    assert_eq!(side.sql("SELECT count(*) FROM t WHERE v = 'new'"), "1000");
    assert_eq!(backup.status().epochs, 1);
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
fn old_progress_is_deleted() {
    let primary = Primary::new("pruned", SIMPLE);
    let side = primary.backup("b");
    side.sql(&format!(
        "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn) SELECT slot, 0, 1, i, commit_lsn, end_lsn FROM \
         hindcast.standby_progress, generate_series(1, {}) i", 5000
    ));
    let mut backup = side
        .open(Options {
            epoch_interval: Duration::ZERO,
            ..side.options()
        })
        .unwrap();
    for place in 1..=1001 {
        let seen = Lsn(primary.from.0 + place);
        backup
            .idle(seen, Instant::now() + Duration::from_secs(3600 * place))
            .unwrap();
        backup.drain().unwrap();
    }
    backup.tick(Instant::now()).unwrap();
    let rows: u64 = side
        .sql("SELECT count(*) FROM hindcast.standby_progress")
        .parse()
        .unwrap();
    assert!(rows < 1100, "{rows}");
    drop(backup);
    assert_eq!(
        side.open(side.options()).unwrap().resume_point(),
        Lsn(primary.from.0 + 1001)
    );
}

/// As the backup is when the server stops between the commits of two workers: worker 1 has not come to the last epoch.
fn set_back(side: &backup_support::BackupSide<'_>, workers: u64, before: &str) {
    let rows = side.sql("SELECT id FROM t UNION SELECT id FROM was ORDER BY 1");
    let of_worker: Vec<&str> = rows
        .lines()
        .filter(|id| {
            let mut key = u32::try_from(id.len()).unwrap().to_le_bytes().to_vec();
            key.extend_from_slice(id.as_bytes());
            hindcast_standby::backup::net::hash_key(&key) % workers == 1
        })
        .collect();
    assert!(of_worker.len() > 5, "worker 1 has rows");
    side.sql(&format!(
        "BEGIN; DELETE FROM t WHERE id IN ({0}); INSERT INTO t SELECT * FROM was WHERE id IN ({0}); \
         DELETE FROM hindcast.standby_progress WHERE worker = 1 AND epoch > {before}; COMMIT",
        of_worker.join(", ")
    ));
}

#[test]
fn workers_at_different_epochs_come_together_first() {
    for later in [3, 1, 5] {
        let primary = Primary::new(&format!("uneven{later}"), SIMPLE);
        let side = primary.backup("b");
        let options = Options {
            workers: 3,
            ..side.options()
        };
        primary.sql("UPDATE t SET v = 'even'");
        drop(side.catch_up(options.clone()).unwrap());
        side.sql("CREATE TABLE was AS SELECT * FROM t");
        let greatest = "SELECT max(epoch) FROM hindcast.standby_progress";
        let before = side.sql(greatest);
        primary.sql(
            "UPDATE t SET v = v || id WHERE id < 70; DELETE FROM t WHERE id BETWEEN 20 AND 50",
        );
        primary.sql("INSERT INTO t SELECT i, 'new' FROM generate_series(30, 40) i; INSERT INTO t SELECT i, 'x' FROM generate_series(200, 260) i");
        drop(side.catch_up(options.clone()).unwrap());
        side.same();
        primary.sql("INSERT INTO t VALUES (5000, 'after'); UPDATE t SET v = 'after' WHERE id < 30");

        set_back(&side, 3, &before);
        let mut backup = side
            .open(Options {
                workers: later,
                ..options
            })
            .unwrap();
        assert_eq!(
            backup.visible().to_string(),
            side.sql("SELECT min(end_lsn) FROM (SELECT DISTINCT ON (worker) end_lsn FROM hindcast.standby_progress WHERE worker < 3 ORDER BY worker, epoch DESC) w")
        );
        let mut log = side.log(backup.resume_point());
        pump(&mut log, &mut backup, primary.end()).unwrap();
        backup.drain().unwrap();
        assert_eq!(backup.visible(), backup.received());
        side.same();
        drop((backup, log));
        side.catch_up(Options {
            workers: 2,
            ..side.options()
        })
        .unwrap();
    }
}

#[test]
fn readers_of_several_workers_see_states_that_the_primary_had() {
    let primary = Primary::new(
        "snapshots",
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 200) i",
    );
    let side = primary.backup("b");
    let options = Options {
        workers: 3,
        epoch_interval: Duration::ZERO,
        snapshot_interval: Duration::from_millis(50),
        ..side.options()
    };
    let mut backup = side.open(options).unwrap();
    let mut log = side.log(backup.resume_point());
    for _ in 0..300 {
        primary.sql("UPDATE t SET v = v + 1");
    }
    let end = primary.end();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let named = hindcast_pg::ConnectOptions::named("reader");
            let mut reader = hindcast_pg::Connection::connect(&side.url(), &named).unwrap();
            let mut seen = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let rows = reader.query("SELECT hindcast.standby_snapshot()").unwrap();
                let Some(snapshot) = rows.first().and_then(|row| row.text(0)).map(str::to_owned)
                else {
                    continue;
                };
                let rows = reader
                    .query(&format!(
                        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; SELECT min(v), max(v), count(*) FROM t"
                    ))
                    .unwrap();
                let row = rows.first().unwrap();
                assert_eq!(row.text(0), row.text(1), "half an epoch");
                seen.push(row.parse::<u32>(0).unwrap());
                reader.execute("ROLLBACK").unwrap();
            }
            seen
        });
        pump(&mut log, &mut backup, end).unwrap();
        backup.drain().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen.is_sorted(), "nobody goes back: {seen:?}");
    assert!(!seen.is_empty());
    side.same();
    assert_eq!(
        side.sql("SELECT workers, even FROM hindcast.standby_state"),
        "3|t"
    );
}

#[test]
fn transaction_by_transaction_nothing_goes_on_after_a_crash() {
    let primary = Primary::new("kuafu", SIMPLE);
    let side = primary.backup("b");
    let options = Options {
        granularity: Granularity::Transaction,
        workers: 2,
        ..side.options()
    };
    primary.sql("UPDATE t SET v = 'x' WHERE id < 50");
    let mut backup = side.catch_up(options.clone()).unwrap();
    primary.sql("UPDATE t SET v = 'y' WHERE id < 50");
    let mut log = side.log(backup.received());
    pump(&mut log, &mut backup, primary.end()).unwrap();
    // Far beyond the age at which it is cut, and never brought to an end.
    backup
        .tick(Instant::now() + Duration::from_secs(7200))
        .unwrap();
    drop((backup, log));
    let error = side.open(side.options()).err().expect("it may be anywhere");
    assert!(matches!(error, BackupError::Progress { .. }), "{error:?}");
}

#[test]
fn an_epoch_whose_order_mattered_is_counted() {
    let primary = Primary::new(
        "deferred",
        "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE); INSERT INTO t VALUES (1, 1), (2, 2)",
    );
    let side = primary.backup("b");
    primary.sql("UPDATE t SET u = u + 10");
    let backup = side.catch_up(side.options()).unwrap();
    assert_eq!(backup.status().deferred, 0);
    drop(backup);
    primary.sql("BEGIN; UPDATE t SET u = 0 WHERE id = 1; UPDATE t SET u = 11 WHERE id = 2; UPDATE t SET u = 12 WHERE id = 1; COMMIT");
    let backup = side.catch_up(side.options()).unwrap();
    assert_eq!(backup.status().deferred, 1);
    side.same();
}

#[test]
fn a_transaction_that_truncates_and_reshapes_can_be_larger_than_an_epoch() {
    let primary = Primary::new("reborn", SIMPLE);
    let side = primary.backup("b");
    side.sql("ALTER TABLE t ADD COLUMN w int");
    primary.sql(
        "BEGIN; TRUNCATE t; INSERT INTO t SELECT i, 'x' FROM generate_series(1, 50) i; ALTER TABLE t ADD COLUMN w int; \
         INSERT INTO t SELECT i, 'y', i FROM generate_series(51, 100) i; COMMIT",
    );
    let options = Options {
        epoch_rows_max: 10,
        ..side.options()
    };
    side.catch_up(options).unwrap();
    side.same();
}
