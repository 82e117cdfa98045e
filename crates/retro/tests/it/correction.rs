//! Correction scripts, run by psql on a real server.

use std::io::Write;
use std::process::{Command, Stdio};

use expect_test::expect;
use hindcast_cluster::Cluster;
use hindcast_pg::tokio::Client;
use hindcast_retro::correction::{self, Dependents, Options, Summary};
use hindcast_retro::noise::Window;
use hindcast_retro::report::Cause;
use hindcast_retro::rows::Causes;
use hindcast_state::digest_tables;
use hindcast_trace::{Id, RequestId};

use crate::support::{Nobody, WINDOW, pair};

struct NoDependents;

impl Dependents for NoDependents {
    fn of(&self, _: &Cause, _: &str) -> (Vec<RequestId>, u64) {
        (Vec::new(), 0)
    }
}

async fn script(a: &Client, b: &Client, without_noise: Option<Window>) -> (String, Summary) {
    let options = Options {
        about: vec!["requests 1 to 9".to_owned()],
        only: None,
        without_noise,
        ids: &[],
    };
    let mut script = Vec::new();
    let summary = correction::write(a, b, &Nobody, &NoDependents, &options, &mut script)
        .await
        .unwrap();
    (String::from_utf8(script).unwrap(), summary)
}

/// What psql says; the script must get to its end.
fn psql(cluster: &Cluster, script: &str, commit: bool) -> String {
    let mut command = Command::new(cluster.binaries().program("psql"));
    command.args(["-X", "-d", &cluster.url("a"), "-f", "-"]);
    if commit {
        command.args(["-v", "commit=1"]);
    }
    let mut psql = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = psql.stdin.take().unwrap();
    let text = script.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = psql.wait_with_output().unwrap();
    // It stops reading where it fails.
    let _ = writer.join().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}\n{script}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Everything that makes rows hard to write: types, names, keys, triggers, references.
const SCHEMA: &str = r#"
    CREATE TYPE mood AS ENUM ('fine', 'it''s bad');
    CREATE DOMAIN percent AS numeric(5,2) CHECK (VALUE <= 100);
    CREATE TABLE kinds (k int PRIMARY KEY, t text, v varchar(20), c char(6), b bytea, j json, jb jsonb, x xml, n numeric(12,4), f float8, r real,
        bo boolean, d date, ts timestamp, tz timestamptz, i interval, u uuid, m mood, a text[], p point, ip inet, bi bit(4), vb bit varying,
        mo money, share percent, range int4range, ch "char", tz2 timetz, js json[]);
    CREATE SCHEMA "Odd ""schema"; CREATE TABLE "Odd ""schema"."it's" ("the key" text, "select" int, PRIMARY KEY ("the key", "select"), "a;b" text);
    CREATE TABLE keyless (v text, n int, j json);
    CREATE TABLE always (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (v * 2) STORED);
    CREATE TABLE serials (id serial PRIMARY KEY, v text);
    CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE);
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
    CREATE TABLE grandchild (id int PRIMARY KEY, child int NOT NULL REFERENCES child);
    CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree);
    CREATE TABLE places (id int PRIMARY KEY, place int UNIQUE DEFERRABLE);
    CREATE TABLE audit (id serial PRIMARY KEY, line text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (line) VALUES (TG_OP || ' ' || TG_TABLE_NAME); RETURN NULL; END $$;
    CREATE TRIGGER "note it" AFTER INSERT OR UPDATE OR DELETE ON serials FOR EACH ROW EXECUTE FUNCTION note();
    INSERT INTO serials (v) SELECT 'v' || g FROM generate_series(1, 5) g;
    INSERT INTO parent SELECT g, 'p' || g FROM generate_series(1, 5) g; INSERT INTO child SELECT g, g FROM generate_series(1, 5) g;
    INSERT INTO grandchild SELECT g, g FROM generate_series(1, 5) g; INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 3);
    INSERT INTO places SELECT g, g FROM generate_series(1, 3) g; INSERT INTO always (v) VALUES (1), (2), (3);
    INSERT INTO keyless VALUES ('x', 1, '{"a": 1}'), ('x', 1, '{"a": 1}'), ('x', 1, '{"a": 1}'), ('y', NULL, NULL), (NULL, NULL, NULL), (NULL, NULL, NULL);
    INSERT INTO "Odd ""schema"."it's" VALUES ('a', 1, 'x'), ('it''s \ "b"', 2, 'y'), (E'line\nbreak\t:x', 3, NULL);
    INSERT INTO kinds (k) SELECT g FROM generate_series(1, 3) g;
    INSERT INTO kinds VALUES (4, E'it''s \\ "x" :x\n-- no comment', 'varchar', 'ch', '\x00ff5c27', '{"b": 1,  "a": 2}', '{"b": 1, "a": 2}', '<a>&lt;</a>', 1.5, 'NaN', 0.1,
        true, '2024-02-29', '2024-02-29 12:00:00.123456', 'infinity', '1 mon 2 days 03:04:05.6', '6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d', 'it''s bad',
        ARRAY['a', NULL, 'it''s "{,}"'], '(1.1,2.2)', '10.0.0.1/8', B'0101', B'101', 1234.5, 99.99, '[1,5)', 'q', '12:00+02', ARRAY['{"a":  1}'::json]);
"#;

#[tokio::test]
async fn the_script_makes_one_database_like_the_other() {
    let (cluster, a, b) = pair(
        SCHEMA,
        "",
        r#"
        INSERT INTO kinds SELECT 5, t, v, c, b, j, jb, x, n, f, r, bo, d, ts, tz, i, u, m, a, p, ip, bi, vb, mo, share, range, ch, tz2, js FROM kinds WHERE k = 4;
        UPDATE kinds SET (t, v, c, b, j, jb, x, n, f, r, bo, d, ts, tz, i, u, m, a, p, ip, bi, vb, mo, share, range, ch, tz2, js) =
            (SELECT t, v, c, b, j, jb, x, n, f, r, bo, d, ts, tz, i, u, m, a, p, ip, bi, vb, mo, share, range, ch, tz2, js FROM kinds WHERE k = 4) WHERE k = 2;
        UPDATE kinds SET t = '', j = NULL, f = -0.1, p = NULL, c = 'other', x = NULL, bi = B'1111', js = '{}' WHERE k = 4; DELETE FROM kinds WHERE k = 3;
        DELETE FROM "Odd ""schema"."it's" WHERE "select" = 2; UPDATE "Odd ""schema"."it's" SET "a;b" = E'''\\' WHERE "select" = 3; INSERT INTO "Odd ""schema"."it's" VALUES ('"', 0, ';');
        DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE v = 'x' LIMIT 2); DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE v IS NULL LIMIT 1);
        INSERT INTO keyless VALUES ('y', NULL, NULL), ('z', 2, '[]'), ('z', 2, '[]'), ('z', 2, '[]');
        INSERT INTO always (v) VALUES (4); UPDATE always SET v = 20 WHERE id = 2; DELETE FROM always WHERE id = 1;
        DELETE FROM serials WHERE id = 3; UPDATE serials SET v = 'w' WHERE id = 4; INSERT INTO serials (v) VALUES ('new'), ('newer');
        -- A parent that goes, with a child that stays and one that goes along; 
        INSERT INTO parent VALUES (10, 'p10'); UPDATE child SET parent = 10 WHERE id = 1; DELETE FROM parent WHERE id = 1;
        DELETE FROM grandchild WHERE id = 2; DELETE FROM parent WHERE id = 2; INSERT INTO parent VALUES (11, 'p11');
        INSERT INTO child VALUES (20, 11); INSERT INTO grandchild VALUES (20, 20); UPDATE grandchild SET child = 20 WHERE id = 3; DELETE FROM child WHERE id = 3;
        DELETE FROM tree WHERE id = 4; DELETE FROM tree WHERE id = 3; INSERT INTO tree VALUES (5, 1), (6, 5);
        BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE places SET place = 3 - place WHERE id < 3; INSERT INTO places VALUES (9, 9); DELETE FROM places WHERE id = 3; COMMIT;
        "#,
    )
    .await;
    let (before, wanted) = (
        digest_tables(&a).await.unwrap(),
        digest_tables(&b).await.unwrap(),
    );
    assert_ne!(before, wanted);
    let (script, summary) = script(&a, &b, None).await;
    assert!(summary.left_out.is_empty(), "{summary:?}");

    let said = psql(&cluster, &script, false);
    assert!(
        said.contains("0 of ") && said.contains("rolled back"),
        "{said}"
    );
    assert_eq!(digest_tables(&a).await.unwrap(), before);

    let said = psql(&cluster, &script, true);
    assert!(
        said.contains("0 of ") && said.contains("committed"),
        "{said}"
    );
    assert_eq!(digest_tables(&a).await.unwrap(), wanted);
    // Triggers are on again, and the next ids are new ones.
    a.batch_execute("INSERT INTO serials (v) VALUES ('later'); INSERT INTO always (v) VALUES (9)")
        .await
        .unwrap();
    let last: String = a
        .query_one("SELECT line FROM audit ORDER BY id DESC LIMIT 1", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(last, "INSERT serials");
}

#[tokio::test]
async fn statements_come_in_an_order_that_foreign_keys_allow() {
    for seed in [0.1, 0.2, 0.3, 0.4] {
        // Random rows of four generations come, go, and move to another parent; the last one refers
        // to two tables.
        let (cluster, a, b) = pair(
            "CREATE TABLE one (id int PRIMARY KEY); CREATE TABLE two (id int PRIMARY KEY, up int NOT NULL REFERENCES one); \
             CREATE TABLE three (id int PRIMARY KEY, up int NOT NULL REFERENCES two ON UPDATE CASCADE); \
             CREATE TABLE four (id int PRIMARY KEY, up int NOT NULL REFERENCES three, other int REFERENCES one ON DELETE SET NULL); \
             INSERT INTO one SELECT generate_series(1, 40); INSERT INTO two SELECT g, g % 40 + 1 FROM generate_series(1, 60) g; \
             INSERT INTO three SELECT g, g % 60 + 1 FROM generate_series(1, 80) g; INSERT INTO four SELECT g, g % 80 + 1, g % 40 + 1 FROM generate_series(1, 100) g",
            "",
            &format!(
                "SELECT setseed({seed}); \
                 INSERT INTO one SELECT 100 + g FROM generate_series(1, 20) g; \
                 INSERT INTO two SELECT 100 + g, (SELECT id FROM one ORDER BY random(), g LIMIT 1) FROM generate_series(1, 20) g; \
                 INSERT INTO three SELECT 100 + g, (SELECT id FROM two ORDER BY random(), g LIMIT 1) FROM generate_series(1, 20) g; \
                 INSERT INTO four SELECT 100 + g, (SELECT id FROM three ORDER BY random(), g LIMIT 1) FROM generate_series(1, 20) g; \
                 UPDATE four SET up = (SELECT id FROM three ORDER BY random(), four.id LIMIT 1) WHERE random() < 0.3; \
                 UPDATE four SET other = (SELECT id FROM one ORDER BY random(), four.id LIMIT 1) WHERE random() < 0.3; \
                 UPDATE three SET up = (SELECT id FROM two ORDER BY random(), three.id LIMIT 1) WHERE random() < 0.3; \
                 UPDATE two SET up = (SELECT id FROM one ORDER BY random(), two.id LIMIT 1) WHERE random() < 0.3; \
                 DELETE FROM four WHERE random() < 0.5; DELETE FROM three WHERE id NOT IN (SELECT up FROM four) AND random() < 0.7; \
                 DELETE FROM two WHERE id NOT IN (SELECT up FROM three) AND random() < 0.7; DELETE FROM one WHERE id NOT IN (SELECT up FROM two) AND random() < 0.7"
            ),
        )
        .await;
        let wanted = digest_tables(&b).await.unwrap();
        let (script, summary) = script(&a, &b, None).await;
        assert!(
            summary.deleted > 50 && summary.updated > 20 && summary.inserted > 20,
            "{summary:?}"
        );
        let said = psql(&cluster, &script, true);
        assert!(said.starts_with("0 of "), "{said}");
        assert_eq!(digest_tables(&a).await.unwrap(), wanted, "seed {seed}");
    }
}

#[tokio::test]
async fn what_changed_since_is_left_alone_and_listed() {
    let (cluster, a, b) = pair(
        "CREATE TABLE t (id int PRIMARY KEY, v text, other int); INSERT INTO t SELECT g, 'v' || g, 0 FROM generate_series(1, 6) g; \
         CREATE TABLE bag (v text); INSERT INTO bag VALUES ('x'), ('x'); \
         CREATE TABLE owner (id int PRIMARY KEY); INSERT INTO owner VALUES (1), (2); CREATE TABLE owned (id int PRIMARY KEY, owner int REFERENCES owner ON DELETE CASCADE)",
        "",
        "UPDATE t SET v = 'right' WHERE id IN (1, 2); DELETE FROM t WHERE id IN (3, 4, 5); INSERT INTO t VALUES (10, 'new', 0), (11, 'new', 0); DELETE FROM bag; \
         DELETE FROM owner",
    )
    .await;
    let (script, _) = script(&a, &b, None).await;
    a.batch_execute(
        "UPDATE t SET v = 'meanwhile' WHERE id = 1; UPDATE t SET other = 5 WHERE id IN (2, 3); DELETE FROM t WHERE id = 4; INSERT INTO t VALUES (10, 'taken', 0); \
         DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag); INSERT INTO owned VALUES (7, 2)",
    )
    .await
    .unwrap();
    let said = psql(&cluster, &script, true);
    expect![[r#"
        Not as expected any more, and left alone:
         change |    table     | row  
        --------+--------------+------
         delete | public.t     | (3)
         delete | public.owner | (2)
         delete | public.bag   | (x)
         update | public.t     | (1)
         insert | public.t     | (10)
        (5 rows)

        5 of 11 changes left alone
        committed
    "#]]
    .assert_eq(&said);
    let rows = a
        .query("SELECT ROW(t.*)::text FROM t ORDER BY id", &[])
        .await
        .unwrap();
    let rows: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        rows,
        [
            "(1,meanwhile,0)",
            "(2,right,5)",
            "(3,v3,5)",
            "(6,v6,0)",
            "(10,taken,0)",
            "(11,new,0)"
        ]
    );
    let left: i64 = a
        .query_one("SELECT (SELECT count(*) FROM bag) * 100 + (SELECT count(*) FROM owner) * 10 + (SELECT count(*) FROM owned)", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 11);
}

#[tokio::test]
async fn a_reader_learns_who_did_it_and_who_depended_on_it() {
    struct Known;
    impl Causes for Known {
        fn before(&self, _: &str, _: u32, _: u32) -> Cause {
            of(18, "INSERT INTO sub\n  VALUES ($1)")
        }
        fn after(&self, _: &str, _: u32, _: u32) -> Cause {
            of(17, "INSERT INTO sub VALUES ($1) ON CONFLICT DO NOTHING")
        }
        fn deleted(&self, _: &str, _: &str) -> Option<Cause> {
            None
        }
    }
    impl Dependents for Known {
        fn of(&self, cause: &Cause, table: &str) -> (Vec<RequestId>, u64) {
            assert_eq!(table, "public.sub");
            match cause {
                Cause::Transaction {
                    request: Some(Id(18)),
                    ..
                } => (vec![Id(23), Id(19)], 4),
                _ => (Vec::new(), 0),
            }
        }
    }
    fn of(request: u64, statement: &str) -> Cause {
        Cause::Transaction {
            request: Some(Id(request)),
            transaction: None,
            of: "POST /subscribe".to_owned(),
            statement: Some(statement.to_owned()),
        }
    }
    let (_cluster, a, b) = pair(
        "CREATE TABLE sub (id int PRIMARY KEY, u text)",
        "INSERT INTO sub VALUES (1, 'x'), (2, 'x')",
        "INSERT INTO sub VALUES (1, 'y'), (3, 'z')",
    )
    .await;
    let options = Options {
        about: vec!["requests 1 to 9\n\\! not run".to_owned()],
        only: None,
        without_noise: None,
        ids: &[],
    };
    let mut script = Vec::new();
    correction::write(&a, &b, &Known, &Known, &options, &mut script)
        .await
        .unwrap();
    let script = String::from_utf8(script).unwrap();
    expect![[r#"
        -- Data correction
        -- requests 1 to 9 \! not run
        --
        -- 1 rows are deleted, 1 updated, 1 inserted.
        --
        -- Review it, try it, then run it for good:
        --   psql DATABASE -f THIS_FILE
        --   psql DATABASE -v commit=1 -f THIS_FILE
        -- Without commit=1 everything is rolled back. Rows that are not as expected any more are left alone and listed.

        \set ON_ERROR_STOP on
        \set QUIET on
        \if :{?commit}
        \else
        \set commit 0
        \endif
        SET client_encoding = 'UTF8';
        BEGIN;
        SET LOCAL standard_conforming_strings = on;
        SET LOCAL datestyle = 'ISO, YMD';
        SET LOCAL timezone = 'UTC';
        SET LOCAL intervalstyle = 'postgres';
        SET LOCAL extra_float_digits = 3;
        SET LOCAL bytea_output = 'hex';
        SET LOCAL xmloption = 'content';
        SET LOCAL lc_monetary = 'C';
        SET LOCAL row_security = off;
        SET CONSTRAINTS ALL DEFERRED;
        CREATE TEMPORARY TABLE hindcast_left_alone (change text, of_table text, row_key text) ON COMMIT DROP;

        -- before: request 18 (POST /subscribe): INSERT INTO sub VALUES ($1)
        -- later requests that depended on it: 19, 23 and 4 more
        WITH done AS (DELETE FROM ONLY public.sub AS t WHERE t.id = '2' AND t.u = 'x' RETURNING 1) INSERT INTO pg_temp.hindcast_left_alone SELECT 'delete', 'public.sub', '(2)' WHERE NOT EXISTS (SELECT FROM done) AND EXISTS (SELECT FROM ONLY public.sub AS t WHERE t.id = '2');

        -- before: request 18 (POST /subscribe): INSERT INTO sub VALUES ($1)
        -- now: request 17 (POST /subscribe): INSERT INTO sub VALUES ($1) ON CONFLICT DO NOTHING
        -- later requests that depended on it: 19, 23 and 4 more
        WITH done AS (UPDATE ONLY public.sub AS t SET u = 'y' WHERE t.id = '1' AND t.u = 'x' RETURNING 1) INSERT INTO pg_temp.hindcast_left_alone SELECT 'update', 'public.sub', '(1)' WHERE NOT EXISTS (SELECT FROM done);

        -- now: request 17 (POST /subscribe): INSERT INTO sub VALUES ($1) ON CONFLICT DO NOTHING
        WITH done AS (INSERT INTO public.sub AS t (id, u) OVERRIDING SYSTEM VALUE SELECT '3'::integer, 'z'::text ON CONFLICT DO NOTHING RETURNING 1) INSERT INTO pg_temp.hindcast_left_alone SELECT 'insert', 'public.sub', '(3)' WHERE (SELECT pg_catalog.count(*) FROM done) < 1;

        SET CONSTRAINTS ALL IMMEDIATE;
        SELECT pg_catalog.count(*) AS left_alone, pg_catalog.count(*) > 0 AS some_left_alone FROM pg_temp.hindcast_left_alone \gset hindcast_
        \if :hindcast_some_left_alone
        \echo 'Not as expected any more, and left alone:'
        SELECT change, of_table AS "table", row_key AS "row" FROM pg_temp.hindcast_left_alone;
        \endif
        \echo :hindcast_left_alone 'of 3 changes left alone'
        \if :commit
        COMMIT;
        \echo committed
        \else
        ROLLBACK;
        \echo 'rolled back; run it with -v commit=1 to keep the changes'
        \endif
    "#]]
    .assert_eq(&script);
}

#[tokio::test]
async fn noise_is_left_as_it_is_and_references_are_put_back() {
    let (cluster, a, b) = pair(
        "CREATE TABLE post (id bigserial PRIMARY KEY, title text, at timestamptz); CREATE TABLE reply (id int PRIMARY KEY, post bigint REFERENCES post, said text)",
        "INSERT INTO post VALUES (1, 'first', '2024-05-01 12:01+00'), (2, 'second', '2024-05-01 12:02+00'); INSERT INTO reply VALUES (1, 2, 'yes'), (2, 2, 'wrong')",
        "INSERT INTO post VALUES (1, 'first', '2024-06-03 09:01+00'), (7, 'second', '2024-06-03 09:02+00'); INSERT INTO reply VALUES (1, 7, 'yes'), (2, 7, 'right'), (3, 7, 'new')",
    )
    .await;
    let (script, summary) = script(&a, &b, Some(WINDOW)).await;
    assert_eq!(
        summary,
        Summary {
            deleted: 0,
            updated: 1,
            inserted: 1,
            noise_left_out: 4,
            redacted_left_out: 0,
            left_out: Vec::new()
        }
    );
    psql(&cluster, &script, true);
    let rows = a
        .query("SELECT ROW(reply.*)::text FROM reply ORDER BY id", &[])
        .await
        .unwrap();
    let rows: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, ["(1,2,yes)", "(2,2,right)", "(3,2,new)"]);
}

#[tokio::test]
async fn numbers_of_identity_columns_are_given_also_if_only_the_real_database_has_them() {
    let (cluster, a, b) = pair(
        "CREATE SEQUENCE s; CREATE TABLE t (id bigint DEFAULT nextval('s') PRIMARY KEY, v text)",
        "",
        "INSERT INTO t (v) VALUES ('x'), ('y')",
    )
    .await;
    let (script, _) = script(&a, &b, None).await;
    a.batch_execute(
        "ALTER TABLE t ALTER id DROP DEFAULT, ALTER id ADD GENERATED ALWAYS AS IDENTITY",
    )
    .await
    .unwrap();
    let said = psql(&cluster, &script, true);
    assert!(said.starts_with("0 of 2 "), "{said}");
}

#[tokio::test]
async fn times_of_a_replayed_original_are_not_expected_of_the_real_database() {
    let (cluster, a, b) = pair(
        "CREATE TABLE t (id int PRIMARY KEY, v text, at timestamptz)",
        "INSERT INTO t VALUES (1, 'x', '2024-07-07 07:07+00'), (2, 'x', '2024-07-07 07:07+00'), (3, 'x', '2024-05-01 12:01+00')",
        "INSERT INTO t VALUES (1, 'y', '2024-06-03 09:01+00')",
    )
    .await;
    let replayed = 1_720_335_900_000_000;
    let window = Window {
        replayed: Some((replayed, replayed + 600_000_000)),
        ..WINDOW
    };
    let (script, _) = script(&a, &b, Some(window)).await;
    // What the real one holds is from when it was recorded.
    a.batch_execute("UPDATE t SET at = '2024-05-01 12:02+00'")
        .await
        .unwrap();
    let said = psql(&cluster, &script, true);
    // The time of the third row was not the replay's.
    assert!(
        said.contains("delete | public.t | (3)") && said.contains("1 of 3 "),
        "{said}"
    );
}

#[tokio::test]
async fn what_a_migration_changed_is_named_and_the_rest_corrected() {
    let (cluster, a, b) = pair(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(9), n int); INSERT INTO t VALUES (1, 'a', 1); CREATE TABLE k (id int PRIMARY KEY); CREATE TABLE gone (v int)",
        "",
        "ALTER TABLE t ALTER v TYPE text, DROP n, ADD added int DEFAULT 5; UPDATE t SET v = 'b'; ALTER TABLE k ALTER id TYPE text; DROP TABLE gone; CREATE TABLE fresh (v int)",
    )
    .await;
    let (script, summary) = script(&a, &b, None).await;
    let left_out: Vec<_> = summary
        .left_out
        .iter()
        .map(|(table, reason)| format!("{table}: {reason}"))
        .collect();
    expect![[r#"
        public.fresh: the migration adds the table
        public.gone: the migration removes the table
        public.k: rows of the table public.k cannot be told apart in the same way: the column id of its primary key is integer in the first database, text in the second
        public.t: its column n is integer before and not there after the migration
        public.t: its column added is not there before and integer after the migration"#]]
    .assert_eq(&left_out.join("\n"));
    psql(&cluster, &script, true);
    let row: String = a
        .query_one("SELECT ROW(t.*)::text FROM t", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(row, "(1,b,1)");
}

#[tokio::test]
async fn a_hash_in_the_place_of_a_secret_gets_into_no_script() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (id int PRIMARY KEY, secret text)",
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
        "INSERT INTO t VALUES (1, 'redacted-0123456789abcdef'), (2, 'z'), (3, 'redacted-0123456789abcdef')",
    )
    .await;
    let (script, summary) = script(&a, &b, None).await;
    assert_eq!((summary.updated, summary.redacted_left_out), (1, 2));
    assert!(
        !script.contains("redacted-") && script.contains("2 rows are left out"),
        "{script}"
    );
}
