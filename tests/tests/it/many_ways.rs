//! The ways in which requests get in each other's way in a database, all at a time.

use hindcast_tests::Stage;
use hindcast_tests::http::Client;
use hindcast_tests::repository;

use super::inside::{CLIENTS, python, record, replay};
use super::inside_extension::{retro_with, stage};

const SCHEMA: &str = "CREATE TABLE account (id int PRIMARY KEY, n numeric NOT NULL, seen int);
    INSERT INTO account SELECT id, 100, 0 FROM generate_series(1, 5) id;
    CREATE TABLE job (id int PRIMARY KEY, done bool NOT NULL);
    INSERT INTO job SELECT id, false FROM generate_series(1, 40) id;
    CREATE TABLE entry (account int, nth int);
    INSERT INTO entry SELECT id % 5 + 1, id / 5 FROM generate_series(0, 14) id;
    CREATE MATERIALIZED VIEW entries AS SELECT account, count(*) FROM entry GROUP BY account;
    CREATE TABLE word (k int PRIMARY KEY, n int);
    CREATE TABLE event (account int, n numeric);
    CREATE FUNCTION count_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE account SET n = n + 1 WHERE id = NEW.account RETURNING n INTO NEW.n;
        RETURN NEW;
    END $$;
    CREATE TRIGGER count_event BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION count_event();
    CREATE FUNCTION bump(account_id int) RETURNS numeric LANGUAGE plpgsql AS $$
    DECLARE before numeric; entries int; BEGIN
        SELECT n INTO before FROM account WHERE id = account_id FOR UPDATE;
        SELECT count(*) INTO entries FROM entry;
        UPDATE account SET n = before + entries WHERE id = account_id RETURNING n INTO before;
        RETURN before;
    END $$";

/// Who gets in whose way does not depend on whether it comes again in the same moment.
const ORDERED: [&str; 21] = [
    "lock",
    "refuse",
    "lock_lowest",
    "lock_joined",
    "condition",
    "take",
    "take_at_once",
    "turn",
    "turn_tried",
    "upsert",
    "forget",
    "get_or_create",
    "count",
    "move",
    "two",
    "trigger",
    "function",
    "look",
    "export",
    "refresh",
    "tell",
];
/// What is made to fail is tried again, where changed code does not fail; and a table is locked
/// before anything else is known.
const MOMENTARY: [&str; 4] = ["transfer", "busy", "repeat", "alone"];

/// Has clients do these for so many rounds, and records it.
fn recorded(name: &str, ways: &[&str], rounds: usize) -> Stage {
    let stage = stage(name, SCHEMA, &[]);
    let service = repository("tests/services/many_ways.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let address = address.clone();
            scope.spawn(move || {
                let mut client = Client::new(address);
                for round in 0..rounds {
                    // In each cycle others meet.
                    let apart = round / ways.len() + 1;
                    let way = ways[(round * 5 + number * apart) % ways.len()];
                    let path = format!("/{way}/{}", round * CLIENTS + number);
                    let answer = client.send("POST", &path, None).unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    recorder.interrupt().assert_code(0);
    stage
}

#[test]
fn whoever_gets_in_anothers_way_does_so_again() {
    let ways = [&ORDERED[..], &MOMENTARY].concat();
    let stage = recorded("many-ways", &ways, 50);
    for _ in 0..3 {
        let replayed = replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(!replayed.contains("out of order"), "{replayed}");
    }
}

#[test]
fn an_index_changes_nothing_in_who_gets_in_whose_way() {
    an_index_changes_nothing(&recorded("ordered-ways", &ORDERED, 40));
}

/// What it waited for is not told by its end.
#[test]
fn who_rolls_back_what_it_waited_for_has_seen_the_same() {
    an_index_changes_nothing(&recorded("refused-ways", &["lock", "refuse"], 30));
}

fn an_index_changes_nothing(stage: &Stage) {
    let index = stage.folder().join("index.sql");
    std::fs::write(&index, "CREATE INDEX ON entry (account, nth)").unwrap();
    let migrate = ["--migrate".to_owned(), index.display().to_string()];
    let service = repository("tests/services/many_ways.py");
    let retro = retro_with(stage, "", &service, &migrate);
    let counts = &retro["counts"];
    assert_eq!(counts["responses_changed"], 0, "{retro:#}");
    assert_eq!(counts["let_go"], 0, "{retro:#}");
    let of = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(
        of("same") + of("unnoticed"),
        of("transactions"),
        "{retro:#}"
    );
}
