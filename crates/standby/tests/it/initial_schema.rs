//! The schema of a backup, against real servers: made, found, or refused.

use crate::pair::{Pair, Settings, told};
use hindcast_pg::quote_identifier;
use hindcast_standby::initial::{self, Source};
use hindcast_standby::source::{publication, slot};
use hindcast_standby::status::Control;

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
    publication::publish(&pair.primary_url, &pair.names, &primary.tables).unwrap();
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
