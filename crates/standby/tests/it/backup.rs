//! The log of a real primary, applied to a real backup in every way.

use crate::backup_support::{Primary, SIMPLE, check};
use hindcast_standby::backup::Options;
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
fn types_of_extensions_arrive_and_find_their_rows() {
    check(
        "extensions",
        "CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext; CREATE EXTENSION btree_gist SCHEMA ext; \
         CREATE TABLE t (k ext.citext PRIMARY KEY, h ext.hstore, n int); INSERT INTO t VALUES ('Abc', 'a=>1', 1), ('def', NULL, 2); \
         CREATE TABLE rooms (id int PRIMARY KEY, room int, during int4range, EXCLUDE USING gist (room WITH =, during WITH &&))",
        &[
            "SET search_path = public, ext; UPDATE t SET n = n + 1; UPDATE t SET k = 'ABC' WHERE k = 'abc'; UPDATE t SET h = '\"x y\"=>NULL' WHERE k = 'DEF'",
            "SET search_path = public, ext; DELETE FROM t WHERE k = 'aBc'; INSERT INTO t VALUES ('abC', '', 5), ('ghi', 'b=>\"2,3\"', 6)",
            "INSERT INTO rooms VALUES (1, 1, '[1,5)'), (2, 2, '[1,5)'); BEGIN; UPDATE rooms SET room = 3 WHERE id = 1; UPDATE rooms SET room = 1 WHERE id = 2; \
             UPDATE rooms SET room = 2 WHERE id = 1; COMMIT",
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

#[test]
fn an_epoch_whose_order_mattered_is_counted() {
    let primary = Primary::new(
        "deferred",
        "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, large text); ALTER TABLE t ALTER large SET STORAGE EXTERNAL; INSERT INTO t VALUES (1, 1), (2, 2)",
    );
    let side = primary.backup("b");
    primary.sql("UPDATE t SET u = u + 10");
    let backup = side.catch_up(side.options()).unwrap();
    assert_eq!(backup.status().deferred, 0);
    drop(backup);
    primary.sql("BEGIN; UPDATE t SET u = 0 WHERE id = 1; UPDATE t SET u = 11 WHERE id = 2; UPDATE t SET u = 12 WHERE id = 1; COMMIT");
    // Deleted and inserted again, rows exchange values in one go.
    let backup = side.catch_up(side.options()).unwrap();
    assert_eq!(backup.status().deferred, 0);
    side.same();
    drop(backup);
    // A value that the log leaves out could not be inserted again.
    primary.sql("UPDATE t SET large = repeat('large ', 10000)");
    drop(side.catch_up(side.options()).unwrap());
    primary.sql("BEGIN; UPDATE t SET u = 0 WHERE id = 1; UPDATE t SET u = 12 WHERE id = 2; UPDATE t SET u = 11 WHERE id = 1; COMMIT");
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
