//! The initial copy, against real servers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{Pair, Settings, told};
use hindcast_cluster::{Cluster, Shutdown};
use hindcast_pg::Lsn;
use hindcast_standby::initial::{self, Hold, InitialError, Source, Start, Unfit, start};
use hindcast_standby::source::{publication, slot};
use hindcast_standby::status::{Control, State};

/// Everything that a row can hold.
const TYPES: &str = include_str!("pair/everything.sql");

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
    publication::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
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
        // Every row moves to another page, some go and some come, as fast as it can: none of it is
        // part of the snapshot.
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
    let again = start(&mut backup, &identity).unwrap();
    assert!(matches!(again, Start::CopyAgain { .. }), "{again:?}");

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
    publication::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
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
    // The backup is stopped by itself from inside: its sessions end as they do when somebody stops
    // the server.
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
    hold.stopped(Lsn(7)).unwrap();
    assert_eq!(
        pair.backup("SELECT stopped_at FROM hindcast.standby"),
        "0/7"
    );
}

#[test]
fn a_copy_that_ends_before_it_has_begun_knows_its_slot() {
    let pair = Pair::shared("announced", "CREATE TABLE a (k int PRIMARY KEY)");
    let identity = pair.identity(&pair.preflight());
    let mut backup = pair.connect(&pair.backup_url);
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Copy);
    let again = |made_at| Start::CopyAgain { made_at };
    initial::announce(&mut backup, &identity, Lsn(7)).unwrap();
    assert_eq!(start(&mut backup, &identity).unwrap(), again(Lsn(7)));
    // Nothing was copied yet: the backup can still become somebody else's.
    let mut other = identity.clone();
    other.system_identifier = "1".to_owned();
    assert_eq!(start(&mut backup, &other).unwrap(), Start::Copy);
    initial::announce(&mut backup, &other, Lsn(8)).unwrap();
    assert_eq!(start(&mut backup, &other).unwrap(), again(Lsn(8)));
    initial::announce(&mut backup, &identity, Lsn(9)).unwrap();
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Follow);
    // Not any more, whoever asks.
    initial::announce(&mut backup, &other, Lsn(10)).unwrap();
    assert_eq!(start(&mut backup, &identity).unwrap(), Start::Follow);
    let again = pair.copy().unwrap_err();
    assert!(
        matches!(again, InitialError::Unfit(Unfit::Taken { .. })),
        "{again}"
    );
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
    assert!(
        !pair
            .backup("SELECT source FROM hindcast.standby")
            .contains("p@ss")
    );

    pair.backup("DROP SCHEMA hindcast CASCADE; DROP TABLE a");
    let socket = |cluster: &Cluster| cluster.socket_url("password");
    pair.primary_url = socket(&pair.servers().primary);
    pair.backup_url = socket(&pair.servers().backup);
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(pair.backup("SELECT * FROM a"), "1");
}

#[test]
fn a_full_disk_ends_all_workers_and_is_named() {
    let pair = Pair::shared(
        "without_room",
        "CREATE TABLE a (k int PRIMARY KEY); INSERT INTO a SELECT generate_series(1, 50000); \
         CREATE TABLE b (k int PRIMARY KEY); INSERT INTO b SELECT generate_series(1, 50000)",
    );
    // What a server without room answers, at some row.
    pair.backup(
        "CREATE TABLE a (k int PRIMARY KEY); CREATE TABLE b (k int PRIMARY KEY); \
         CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS \
            $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER no_room BEFORE INSERT ON b FOR EACH ROW WHEN (NEW.k = 20000) EXECUTE FUNCTION no_room(); \
         ALTER TABLE b ENABLE ALWAYS TRIGGER no_room",
    );
    let error = pair.copy().unwrap_err();
    assert_eq!(
        told(&error),
        "cannot copy public.b: the backup failed: could not extend file (SQLSTATE 53100)\n\
         Hint: the disk of the backup is full: make room, and start again"
    );
    assert_eq!(pair.state(), "copying");
    pair.backup("DROP TRIGGER no_room ON b");
    pair.copy()
        .unwrap_or_else(|error| panic!("{}", told(&error)));
    contents_are_the_same(&pair);
}

#[test]
fn a_copy_may_be_stopped_anywhere_as_often_as_one_likes() {
    let pair = Pair::shared(
        "anywhere",
        "CREATE TABLE a (k int PRIMARY KEY, v text); INSERT INTO a SELECT n, md5(n::text) FROM generate_series(1, 60000) n; \
         CREATE INDEX ON a (v); CREATE INDEX ON a (md5(v)); CREATE INDEX ON a (reverse(v)); \
         CREATE TABLE b (k int PRIMARY KEY REFERENCES a); INSERT INTO b SELECT n FROM generate_series(1, 30000) n",
    );
    let (mut stopped, mut followed) = (0, false);
    for round in 0..12_u32 {
        let control = Control::default();
        // Sooner or later in the dump, the rows, the indexes, the statistics.
        let patience = Duration::from_millis(u64::from(20 + round * 47 % 600));
        let settings = Settings {
            chunk_bytes: 1 << 20,
            ..Settings::default()
        };
        let result = std::thread::scope(|scope| {
            let copy = scope.spawn(|| pair.copy_with(&control, settings, || {}));
            let begun = Instant::now();
            while begun.elapsed() < patience && !copy.is_finished() {
                std::thread::yield_now();
            }
            control.stop();
            copy.join().unwrap()
        });
        // Once it follows it must not be copied again; before, nothing may say that it does.
        match pair
            .backup("SELECT count(*) FROM pg_tables WHERE schemaname = 'hindcast'")
            .as_str()
        {
            "0" => {}
            _ => {
                followed =
                    pair.backup("SELECT 1 FROM hindcast.standby WHERE state = 'following'") == "1"
            }
        }
        match result {
            Err(InitialError::Stopped) => stopped += 1,
            Err(error) => panic!("{}", told(&error)),
            Ok(_) => assert!(followed),
        }
        if followed {
            break;
        }
        pair.primary(&format!(
            "INSERT INTO a VALUES (-{round}, 'more'); DELETE FROM b WHERE k % 100 = {round}"
        ));
    }
    assert!(stopped > 2, "{stopped}");
    if !followed {
        pair.copy()
            .unwrap_or_else(|error| panic!("{}", told(&error)));
    }
    contents_are_the_same(&pair);
    pair.same("SELECT conname, convalidated FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1");
    pair.same("SELECT indexrelid::regclass::text, indisvalid FROM pg_index WHERE indrelid IN ('a'::regclass, 'b'::regclass) ORDER BY 1");
}
