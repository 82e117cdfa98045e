//! The initial copy, against real servers.

mod pair;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_pg::quote_identifier;
use hindcast_rewind::cluster::{Cluster, Shutdown};
use hindcast_standby::initial::{self, Hold, InitialError, Source, Start, Unfit, start};
use hindcast_standby::source::slot;
use hindcast_standby::status::{Control, State};
use pair::{Pair, Settings, told};

/// Everything that a row can hold.
const TYPES: &str = r#"
CREATE EXTENSION IF NOT EXISTS plpgsql;
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "fine"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE TABLE all_types (
  k bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  b bool, i2 int2, i4 int4, i8 int8, o oid, f4 float4, f8 float8, n numeric, m money,
  t text, v varchar(20), c char(5), q "char", nm name, by bytea,
  d date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval,
  u uuid, j json, jb jsonb, x xml, jp jsonpath,
  ip inet, net cidr, mac macaddr, mac8 macaddr8, bi bit(4), bv bit varying,
  p point, l line, ls lseg, bx box, pa path, po polygon, ci circle,
  tv tsvector, tq tsquery, r int4range, mr int4multirange, tr tstzrange, fr floats,
  ia int[], ta text[], aa int[][], pl pg_lsn, rc regclass, rp regprocedure, rt regtype,
  e mood, ea mood[], dm positive, pr pair, pra pair[],
  g text GENERATED ALWAYS AS (upper(t)) STORED
);
INSERT INTO all_types (b, i2, i4, i8, o, f4, f8, n, m, t, v, c, q, nm, by, d, ti, tz, ts, tstz, iv, u, j, jb, x, jp, ip, net, mac, mac8, bi, bv,
  p, l, ls, bx, pa, po, ci, tv, tq, r, mr, tr, fr, ia, ta, aa, pl, rc, rp, rt, e, ea, dm, pr, pra) VALUES
 (true, -32768, 2147483647, -9223372036854775808, 4294967295, 'NaN', '-Infinity', '12345678901234567890.000000000100', '-12.34',
  E'tab\there, newline\nthere, return\r, back\\slash, \\N, \\., bell\b, über, 日本, 🦀, quote '' "', 'v', 'c', 'q', 'nm', '\x00ff5c0a',
  '4713-01-01 BC', '24:00', '01:02:03.000004+05:30', 'infinity', '2024-02-29 12:00:00.123456+02', '-1 year 2 mons -3 days 04:05:06.789',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a" :  [1, 2.50, "\u00e9"]}', '{"a": [1, 2.50, null]}', '<a b="c">d</a>', '$.a[*] ? (@ > 1)',
  '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '1010', '110',
  '(1,2)', '{1,2,3}', '[(1,2),(3,4)]', '(3,4),(1,2)', '((1,2),(3,4))', '((1,2),(3,4),(5,6))', '<(1,2),3>',
  'a:1 b:2A', 'a & !b', '[1,5)', '{[1,2),[5,9)}', '[2024-01-01,)', '[0.1,0.30000000000000004)',
  '{1,NULL,3}', E'{"a,b",NULL,"\\"x\\\\"}', '{{1,2},{3,4}}', '16/B374D848', 'all_types', 'upper(text)', 'mood',
  'it''s "fine"', '{sad,"so so",NULL}', 7, '(1,"a ""b"", c")', ARRAY['(1,x)', NULL]::pair[]),
 (DEFAULT, 0, 0, 0, 0, 1e-37, 0.1, 'NaN', 0, '', '', '', '', '', '', 'infinity', '00:00', '00:00+00', '-infinity', 'infinity', '0',
  NULL, 'null', 'null', '', '$', '::1', '::/0', NULL, NULL, '0000', '', '(NaN,0)', NULL, NULL, NULL, '[(0,0)]', NULL, NULL,
  '', '', 'empty', '{}', '(,)', 'empty', '{}', '{}', '{}', '0/0', NULL, NULL, NULL, 'sad', '{}', 1, '(,)', '{}');
INSERT INTO all_types DEFAULT VALUES;
INSERT INTO all_types (t) SELECT repeat('long ' || n, 5000) FROM generate_series(1, 20) n;

CREATE SCHEMA "Odd ""Schema""";
CREATE TABLE "Odd ""Schema"""."a.b" ("Key" int PRIMARY KEY, "select" text, "drop me" int, "ü, """ text);
INSERT INTO "Odd ""Schema"""."a.b" SELECT n, n::text, n, 'x' || n FROM generate_series(1, 100) n;
ALTER TABLE "Odd ""Schema"""."a.b" DROP COLUMN "drop me";

CREATE TABLE parted (k int, region text, PRIMARY KEY (k, region)) PARTITION BY LIST (region);
CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu') PARTITION BY RANGE (k);
CREATE TABLE parted_eu_1 PARTITION OF parted_eu FOR VALUES FROM (0) TO (50);
CREATE TABLE parted_eu_2 (region text NOT NULL, extra int GENERATED ALWAYS AS (1) STORED, k int NOT NULL);
ALTER TABLE parted_eu_2 DROP COLUMN extra;
ALTER TABLE parted_eu ATTACH PARTITION parted_eu_2 FOR VALUES FROM (50) TO (1000);
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT n, CASE n % 3 WHEN 0 THEN 'us' ELSE 'eu' END FROM generate_series(1, 200) n;

CREATE TABLE parent (k int PRIMARY KEY, v text);
CREATE TABLE child (extra int) INHERITS (parent);
ALTER TABLE child ADD PRIMARY KEY (k);
INSERT INTO parent SELECT n, 'parent' FROM generate_series(1, 10) n;
INSERT INTO child SELECT n, 'child', n FROM generate_series(1, 20) n;

CREATE TABLE empty (k serial PRIMARY KEY, v text UNIQUE);
CREATE TABLE one (k int PRIMARY KEY, "1" bigint);

CREATE TABLE referenced (k int PRIMARY KEY, sum int NOT NULL DEFAULT 0);
CREATE TABLE referring (k int PRIMARY KEY, r int NOT NULL REFERENCES referenced, CHECK (r < 1000));
CREATE FUNCTION add_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE referenced SET sum = sum + 1; RETURN NEW; END $$;
CREATE TRIGGER add_up BEFORE INSERT ON referring FOR EACH ROW EXECUTE FUNCTION add_up();
CREATE INDEX ON referring (r) WHERE r > 5;
CREATE VIEW both_of_them AS SELECT * FROM referring JOIN referenced USING (k);
CREATE MATERIALIZED VIEW materialized AS SELECT count(*) FROM referring;
INSERT INTO referenced VALUES (1), (2);
INSERT INTO referring VALUES (1, 2), (2, 1);
"#;

/// What every table of a database holds, without the order of the rows.
const CONTENTS: &str = "\
SELECT format('SELECT %L, count(*), coalesce(sum(hashtextextended((r.*)::text, 0)), 0) FROM ONLY %I.%I r;', format('%I.%I', n.nspname, c.relname), n.nspname, c.relname) \
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
 WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hindcast') ORDER BY 1";

fn contents_are_the_same(pair: &Pair) -> String {
    let query = pair.primary(CONTENTS);
    assert!(!query.is_empty());
    pair.same(&query)
}

#[test]
fn a_copy_is_the_primary_schema_and_rows_and_all() {
    let pair = Pair::shared("everything", TYPES);
    let copied = pair
        .copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(copied.tables, 11);
    let contents = contents_are_the_same(&pair);
    assert!(contents.contains("public.all_types|23|"), "{contents}");
    assert!(contents.contains("public.parted_eu_2|101|"), "{contents}");
    assert!(contents.contains("public.child|20|"), "{contents}");
    let rows: u64 = contents
        .lines()
        .map(|line| line.split('|').nth(1).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(copied.rows, rows);
    // The trigger did not run for rows that are copied.
    assert_eq!(pair.backup("SELECT sum(sum) FROM referenced"), "4");
    pair.same("SELECT conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY conrelid::regclass::text, 2");
    pair.same("SELECT indexrelid::regclass, indisvalid FROM pg_index WHERE indrelid::regclass::text !~ '^pg_|hindcast' ORDER BY indexrelid::regclass::text");
    pair.same("SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgrelid::regclass::text");
    pair.same("SELECT * FROM both_of_them");
    assert_eq!(pair.state(), "following");
    let statistics =
        pair.backup("SELECT reltuples FROM pg_class WHERE oid = 'parted_rest'::regclass");
    assert_eq!(statistics, "66");
    let primary = pair.preflight();
    let mut backup = pair.connect(&pair.backup_url);
    assert_eq!(
        start(&mut backup, &pair.identity(&primary)).unwrap(),
        Start::Follow
    );
    let progress = pair.backup("SELECT worker, workers, epoch, end_lsn = (SELECT consistent_point FROM hindcast.standby) FROM hindcast.standby_progress");
    assert_eq!(progress, "0|1|0|t");
}

#[test]
fn rows_for_whoever_wants_them_are_those_of_the_primary() {
    let pair = Pair::shared("rows", TYPES);
    let primary = pair.preflight();
    slot::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
    let created = slot::create(&pair.primary_url, &pair.names).unwrap();
    let source = Source {
        primary: &pair.primary_url,
        snapshot: &created.snapshot,
        workers: 2,
        chunk_bytes: 16 << 10,
    };
    let texts = Mutex::new(Vec::new());
    let control = Control::default();
    let copied = initial::read_rows(&source, &primary.tables, &control, |table, fields| {
        let table = &primary.tables[table];
        assert_eq!(fields.len(), table.columns.len());
        if table.name == "all_types" {
            let place = table
                .columns
                .iter()
                .position(|column| column.name == "t")
                .unwrap();
            let text = fields
                .get(place)
                .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
            texts.lock().unwrap().push(text);
        }
        Ok::<(), std::io::Error>(())
    })
    .unwrap();
    assert_eq!(copied.tables, primary.tables.len());
    let texts = texts.into_inner().unwrap();
    assert_eq!(texts.len(), 23);
    let odd = "tab\there, newline\nthere, return\r, back\\slash, \\N, \\., bell\u{8}, über, 日本, 🦀, quote ' \"";
    assert!(texts.contains(&Some(odd.to_owned())));
    assert!(texts.contains(&None) && texts.contains(&Some(String::new())));
    assert!(texts.contains(&Some("long 7".repeat(5000))));

    let refused = initial::read_rows(&source, &primary.tables, &control, |_, _| {
        Err(std::io::Error::other("no room"))
    });
    match refused {
        Err(InitialError::Taken { source, .. }) => assert_eq!(source.to_string(), "no room"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_large_table_is_read_in_pieces_while_others_write() {
    let pair = Pair::shared(
        "pieces",
        "\
        CREATE TABLE big (k int PRIMARY KEY, v text NOT NULL); \
        INSERT INTO big SELECT n, repeat('v', 100) FROM generate_series(1, 20000) n; \
        CREATE TABLE small (k int PRIMARY KEY)",
    );
    let before = "SELECT count(*), sum(hashtextextended((b.*)::text, 0)) FROM big b";
    let expected = pair.primary(before);
    let done = AtomicBool::new(false);
    let settings = Settings {
        workers: 3,
        chunk_bytes: 64 << 10,
        ..Settings::default()
    };
    std::thread::scope(|scope| {
        let writing = &done;
        let pair = &pair;
        // Every row moves to another page, some go and some come, as fast as it can: none of it is part of the snapshot.
        let write = move || {
            let mut connection = pair.connect(&pair.primary_url);
            let mut round = 0;
            while !writing.load(Ordering::SeqCst) {
                round += 1;
                connection
                    .execute(&format!(
                        "UPDATE big SET v = 'changed {round}' WHERE k % 7 = {round} % 7; DELETE FROM big WHERE k % 1000 = {round}; \
                         INSERT INTO big SELECT 100000 + {round} * 100 + n, 'new' FROM generate_series(1, 100) n"
                    ))
                    .unwrap();
            }
            assert!(round > 0);
        };
        let mut writer = None;
        let copied = pair.copy_with(&Control::default(), settings, || {
            writer = Some(scope.spawn(write));
            // Not before it has begun.
            let mut connection = pair.connect(&pair.primary_url);
            while connection
                .query("SELECT 1 FROM big WHERE v = 'new' LIMIT 1")
                .unwrap()
                .is_empty()
            {}
        });
        done.store(true, Ordering::SeqCst);
        let copied = copied.unwrap_or_else(|error| panic!("{}", told(&error)));
        assert_eq!(copied.rows, 20_000);
    });
    assert_eq!(pair.backup(before), expected);
}

#[test]
fn a_copy_that_was_stopped_begins_again_as_if_it_had_never_been() {
    let pair = Pair::shared(
        "again",
        "\
        CREATE TABLE a (k int PRIMARY KEY, v text); INSERT INTO a SELECT n, repeat('x', 1000) FROM generate_series(1, 30000) n; \
        CREATE TABLE b (k int PRIMARY KEY REFERENCES a); INSERT INTO b SELECT n FROM generate_series(1, 1000) n",
    );
    let control = Control::default();
    let settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    let result = std::thread::scope(|scope| {
        let copy = scope.spawn(|| pair.copy_with(&control, settings, || {}));
        while !copy.is_finished() {
            if matches!(&control.status().state, State::Copying(progress) if progress.rows_done > 0)
            {
                control.stop();
            }
            std::thread::yield_now();
        }
        copy.join().unwrap()
    });
    assert!(matches!(result, Err(InitialError::Stopped)), "{result:?}");
    assert_eq!(pair.state(), "copying");
    assert_eq!(
        pair.backup("SELECT count(*) FROM hindcast.standby_progress"),
        "0"
    );
    let identity = pair.identity(&pair.preflight());
    let mut backup = pair.connect(&pair.backup_url);
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::CopyAgain);

    // As if it had come further: a table complete, and the primary has changed since.
    pair.backup("SET session_replication_role = replica; INSERT INTO b VALUES (-1)");
    pair.primary("DELETE FROM b WHERE k > 500; INSERT INTO a VALUES (0, 'zero')");
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    contents_are_the_same(&pair);
    assert_eq!(pair.state(), "following");
    // The constraints came with the second copy, though the first had made the tables.
    pair.same(
        "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1",
    );
}

#[test]
fn tables_of_ones_own_are_used_if_they_fit() {
    let pair = Pair::shared(
        "own_tables",
        "\
        CREATE TABLE a (k int PRIMARY KEY, v text, w numeric(10, 2)); INSERT INTO a VALUES (1, 'one', 1.5); \
        CREATE TABLE b (k int PRIMARY KEY); INSERT INTO b VALUES (7)",
    );
    let without_schema = || {
        pair.copy_with(
            &Control::default(),
            Settings {
                make_schema: false,
                ..Settings::default()
            },
            || {},
        )
    };
    let refused = without_schema().unwrap_err();
    assert!(
        told(&refused).contains("public.a is missing"),
        "{}",
        told(&refused)
    );

    pair.backup("CREATE TABLE a (w numeric(10, 3), k int PRIMARY KEY, more text)");
    let refused = pair.copy().unwrap_err();
    let message = told(&refused);
    assert!(
        message.contains("public.a lacks the column \"v\" text"),
        "{message}"
    );
    assert!(
        message.contains("public.a.\"w\" is numeric(10,3) in place of numeric(10,2)"),
        "{message}"
    );
    assert!(message.contains("public.b is missing"), "{message}");
    assert!(message.contains("ALTER TABLE"), "{message}");

    pair.backup("DROP TABLE a; CREATE TABLE b (k int PRIMARY KEY); \
        CREATE TABLE a (more text DEFAULT 'd', w numeric(10, 2), v text, k int PRIMARY KEY); INSERT INTO a (k) VALUES (9)");
    let refused = without_schema().unwrap_err();
    assert!(
        told(&refused).contains("TRUNCATE \"public\".\"a\""),
        "{}",
        told(&refused)
    );
    assert_eq!(pair.backup("SELECT count(*) FROM hindcast.standby"), "0");

    pair.backup("TRUNCATE a");
    without_schema().unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(pair.backup("SELECT * FROM a"), "d|1.50|one|1");
    assert_eq!(pair.backup("SELECT * FROM b"), "7");
}

#[test]
fn a_table_that_was_truncated_after_the_snapshot_is_not_copied_as_empty() {
    let pair = Pair::shared(
        "truncated",
        "CREATE TABLE a (k int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE TABLE b (k int PRIMARY KEY)",
    );
    let truncated = pair.copy_with(&Control::default(), Settings::default(), || {
        pair.primary("TRUNCATE a");
    });
    match truncated {
        Err(error @ InitialError::Rewritten { .. }) => {
            assert!(error.is_transient());
            assert!(error.to_string().contains("public.a"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let dropped = pair.copy_with(&Control::default(), Settings::default(), || {
        pair.primary("DROP TABLE b");
    });
    assert!(dropped.is_err(), "{dropped:?}");
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
}

#[test]
fn whoever_may_not_read_or_write_is_told_what_is_missing() {
    let pair = Pair::own(
        "rights",
        "CREATE TABLE a (k int PRIMARY KEY); CREATE TABLE secret (k int PRIMARY KEY)",
    );
    pair.primary("CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON a TO reader");
    pair.backup("CREATE ROLE writer LOGIN; GRANT ALL ON DATABASE rights TO writer; GRANT ALL ON SCHEMA public TO writer");
    pair.backup("CREATE TABLE a (k int PRIMARY KEY); CREATE TABLE secret (k int PRIMARY KEY)");
    let primary = pair.preflight();
    slot::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
    let created = slot::create(&pair.primary_url, &pair.names).unwrap();
    let copy = |primary_user: &str, backup_user: &str| {
        let as_user = |url: &hindcast_pg::DatabaseUrl, user: &str| {
            let mut url = url.clone();
            url.user = Some(user.to_owned());
            url
        };
        let (from, to) = (
            as_user(&pair.primary_url, primary_user),
            as_user(&pair.backup_url, backup_user),
        );
        let copy = initial::BackupCopy {
            source: Source {
                primary: &from,
                snapshot: &created.snapshot,
                workers: 1,
                chunk_bytes: 1 << 20,
            },
            backup: &to,
            identity: &pair.identity(&primary),
            consistent_point: created.consistent_point,
            make_schema: true,
        };
        told(&initial::to_backup(&copy, &primary.tables, &Control::default()).unwrap_err())
    };
    let message = copy("reader", "postgres");
    assert!(
        message.contains("public.secret: the primary failed"),
        "{message}"
    );
    assert!(message.contains("GRANT SELECT"), "{message}");
    let message = copy("postgres", "writer");
    assert!(
        message.contains("take the role of a replica on the backup"),
        "{message}"
    );
    assert!(
        message.contains("GRANT SET ON PARAMETER session_replication_role"),
        "{message}"
    );
}

#[test]
fn a_server_that_goes_away_ends_the_copy_and_is_named() {
    let mut pair = Pair::own(
        "gone",
        "CREATE TABLE a (k int PRIMARY KEY, v text); INSERT INTO a SELECT n, repeat('x', 1000) FROM generate_series(1, 40000) n",
    );
    let control = Control::default();
    let backup = pair.backup_url.clone();
    // The backup is stopped by itself from inside: its sessions end as they do when somebody stops the server.
    let result = std::thread::scope(|scope| {
        let copy = scope.spawn(|| pair.copy_with(&control, Settings::default(), || {}));
        let mut killer = pair.connect(&backup);
        while !copy.is_finished() {
            if matches!(&control.status().state, State::Copying(progress) if progress.rows_done > 0)
            {
                killer
                    .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hindcast standby copy' AND query LIKE 'COPY%'")
                    .unwrap();
            }
        }
        copy.join().unwrap()
    });
    let error = result.unwrap_err();
    assert!(error.is_transient(), "{}", told(&error));
    assert!(
        told(&error).contains("public.a: the backup failed"),
        "{}",
        told(&error)
    );
    assert_eq!(pair.state(), "copying");

    pair.servers_mut().backup.stop(Shutdown::Fast).unwrap();
    let error = pair.copy().unwrap_err();
    assert!(
        matches!(&error, InitialError::Connect { .. }) && error.is_transient(),
        "{}",
        told(&error)
    );
}

#[test]
fn a_backup_belongs_to_one_primary_and_one_process() {
    let pair = Pair::shared("whose", "CREATE TABLE a (k int PRIMARY KEY)");
    let identity = pair.identity(&pair.preflight());
    let mut backup = pair.connect(&pair.backup_url);
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Copy);
    pair.copy().unwrap();
    let mut other = identity.clone();
    other.system_identifier = "1".to_owned();
    assert!(matches!(
        start(&mut backup, &other),
        Err(InitialError::Unfit(Unfit::OtherPrimary { .. }))
    ));
    pair.backup("UPDATE hindcast.standby SET state = 'promoted'");
    assert!(matches!(
        start(&mut backup, &identity),
        Err(InitialError::Unfit(Unfit::Promoted { .. }))
    ));

    let slot = &identity.slot;
    let mut hold = Hold::take(&pair.backup_url, slot)
        .unwrap()
        .expect("nobody has it");
    assert!(Hold::take(&pair.backup_url, slot).unwrap().is_none());
    assert!(Hold::take(&pair.backup_url, "another").unwrap().is_some());
    assert_eq!(hold.stop_requested().unwrap(), None);
    hold.stopped(hindcast_pg::Lsn(7)).unwrap();
    assert_eq!(
        pair.backup("SELECT stopped_at FROM hindcast.standby"),
        "0/7"
    );
}

#[test]
fn foreign_keys_to_what_is_not_replicated_are_not_checked() {
    let pair = Pair::shared(
        "partly",
        &format!(
            "\
        CREATE TABLE kept (k int PRIMARY KEY); INSERT INTO kept VALUES (1); \
        CREATE UNLOGGED TABLE left_out (k int PRIMARY KEY); INSERT INTO left_out VALUES (1); \
        CREATE TABLE refers (k int PRIMARY KEY, {} int)",
            quote_identifier("to")
        ),
    );
    // An unlogged table cannot be referred to by a logged one; a table that is excluded can.
    pair.primary("ALTER TABLE left_out SET LOGGED; ALTER TABLE refers ADD FOREIGN KEY (\"to\") REFERENCES left_out; INSERT INTO refers VALUES (1, 1)");
    let mut primary = pair.preflight();
    primary.tables.retain(|table| table.name != "left_out");
    slot::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
    let created = slot::create(&pair.primary_url, &pair.names).unwrap();
    let copy = initial::BackupCopy {
        source: Source {
            primary: &pair.primary_url,
            snapshot: &created.snapshot,
            workers: 1,
            chunk_bytes: 1 << 20,
        },
        backup: &pair.backup_url,
        identity: &pair.identity(&primary),
        consistent_point: created.consistent_point,
        make_schema: true,
    };
    let control = Control::default();
    initial::to_backup(&copy, &primary.tables, &control)
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(pair.backup("SELECT convalidated FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace"), "f");
    let notices = control.status().notices;
    assert!(
        notices.len() == 1 && notices[0].contains("refers_to_fkey"),
        "{notices:?}"
    );
    assert_eq!(pair.backup("SELECT * FROM refers"), "1|1");
}

#[test]
fn a_copy_that_ends_before_it_has_begun_knows_its_slot() {
    let pair = Pair::shared("announced", "CREATE TABLE a (k int PRIMARY KEY)");
    let identity = pair.identity(&pair.preflight());
    let mut backup = pair.connect(&pair.backup_url);
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Copy);
    initial::announce(&mut backup, &identity).unwrap();
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::CopyAgain);
    // Nothing was copied yet: the backup can still become somebody else's.
    let mut other = identity.clone();
    other.system_identifier = "1".to_owned();
    assert_eq!(start(&mut backup, &other).unwrap(), Start::Copy);
    initial::announce(&mut backup, &other).unwrap();
    assert_eq!(start(&mut backup, &other).unwrap(), Start::CopyAgain);
    initial::announce(&mut backup, &identity).unwrap();
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Follow);
    // Not any more, whoever asks.
    initial::announce(&mut backup, &other).unwrap();
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Follow);
    let again = pair.copy().unwrap_err();
    assert!(
        matches!(again, InitialError::Unfit(Unfit::Taken { .. })),
        "{again}"
    );
}

#[test]
fn a_schema_that_the_backup_refuses_is_told_statement_by_statement_and_can_be_helped() {
    let pair = Pair::own(
        "refused",
        "CREATE TABLE a (k int PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'one'); CREATE INDEX by_v ON a (v); \
         CREATE ROLE only_here; CREATE POLICY p ON a TO only_here; COMMENT ON TABLE a IS 'of ours'; \
         CREATE SCHEMA hindcast; CREATE TABLE hindcast.standby (left_over int)",
    );
    // Something is there already: nothing is made.
    pair.backup("CREATE TYPE a AS (x int)");
    let error = pair.copy().unwrap_err();
    let message = told(&error);
    assert!(
        message.contains("CREATE TABLE public.a ( k integer NOT NULL, v text )"),
        "{message}"
    );
    assert!(message.contains("choose an empty one"), "{message}");

    // The rows are there when the policy is refused.
    pair.backup("DROP TYPE a");
    let error = pair.copy().unwrap_err();
    let message = told(&error);
    assert!(
        message.contains("CREATE POLICY p ON public.a TO only_here"),
        "{message}"
    );
    assert!(message.contains("create the role"), "{message}");
    assert_eq!(pair.state(), "copying");
    assert_eq!(
        pair.backup("SELECT count(*) FROM pg_indexes WHERE tablename = 'a'"),
        "0"
    );

    pair.backup("CREATE ROLE only_here");
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    pair.same("SELECT policyname, roles FROM pg_policies");
    pair.same("SELECT indexname FROM pg_indexes WHERE tablename = 'a' ORDER BY 1");
    pair.same("SELECT *, obj_description('a'::regclass) FROM a");
    assert_eq!(pair.state(), "following");
}

#[test]
fn passwords_and_sockets_are_no_obstacle() {
    let mut pair = Pair::own(
        "password",
        "CREATE TABLE a (k int PRIMARY KEY); INSERT INTO a VALUES (1)",
    );
    for cluster in [0, 1] {
        let servers = pair.servers_mut();
        let cluster = if cluster == 0 {
            &mut servers.primary
        } else {
            &mut servers.backup
        };
        cluster
            .sql("postgres", "ALTER ROLE postgres PASSWORD 'p@ss w:rd/'")
            .unwrap();
        let port = cluster.port();
        let options = cluster.options_mut();
        options.port = Some(port);
        options.hba = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n".to_owned();
        cluster.stop(Shutdown::Fast).unwrap();
        cluster.start().unwrap();
    }
    let refused = Hold::take(&pair.backup_url, "x");
    assert!(
        matches!(&refused, Err(InitialError::Connect { .. })),
        "it asks for a password"
    );
    pair.primary_url.password = Some("p@ss w:rd/".to_owned());
    pair.backup_url.password = Some("p@ss w:rd/".to_owned());
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(
        pair.backup("SELECT source FROM hindcast.standby")
            .contains("p@ss"),
        false
    );

    pair.backup("DROP SCHEMA hindcast CASCADE; DROP TABLE a");
    let socket = |cluster: &Cluster| cluster.socket_url("password").parse().unwrap();
    pair.primary_url = socket(&pair.servers().primary);
    pair.backup_url = socket(&pair.servers().backup);
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(pair.backup("SELECT * FROM a"), "1");
}
