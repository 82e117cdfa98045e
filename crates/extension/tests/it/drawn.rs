//! What a record says of values that the transaction drew.

use crate::server::{Session, full, reader, server, session};

/// What the session's last transaction drew.
#[track_caller]
fn drawn(reader: &mut Session, session: &Session) -> Vec<String> {
    let mut records = reader.take_of(session.pid);
    let last = records.pop().expect("it is recorded");
    assert_eq!(last.left_out, 0);
    last.drawn
}

/// `nextval('s')` as records write it.
fn sequence(session: &mut Session, name: &str) -> String {
    let number = session.one(&format!("SELECT '{name}'::regclass::oid"));
    format!("nextval({number})")
}

#[test]
fn what_a_statement_draws_is_told_in_order() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run("CREATE SEQUENCE s");
    let s = sequence(&mut session, "s");
    session.run("BEGIN");
    let random = session.one("SELECT random()");
    session.run("SELECT nextval('s')");
    let moment = session.one("SELECT clock_timestamp()");
    let uuid = session.one("SELECT gen_random_uuid()");
    session.run("COMMIT");
    assert_eq!(
        drawn(&mut reader, &session),
        [
            format!("random() {random}"),
            format!("{s} 1"),
            format!("clock_timestamp() {moment}"),
            format!("gen_random_uuid() {uuid}"),
        ]
    );
    session.run("SELECT 1");
    assert!(drawn(&mut reader, &session).is_empty());
}

#[test]
fn what_functions_of_pgcrypto_draw_is_told_and_drawn_again() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run("CREATE EXTENSION pgcrypto; CREATE TABLE t (bytes bytea DEFAULT gen_random_bytes(3), v int)");
    let bytes = session.one("SELECT encode(gen_random_bytes(20), 'hex')");
    let expected = [&bytes[..32], &bytes[32..]].map(|part| format!("gen_random_bytes() {part}"));
    assert_eq!(drawn(&mut reader, &session), expected);
    let filled = "INSERT INTO t (v) VALUES (1) RETURNING encode(bytes, 'hex')";
    let bytes = session.one(filled);
    let expected = [format!("gen_random_bytes() {bytes}")];
    assert_eq!(drawn(&mut reader, &session), expected);
    let hash = "SELECT crypt('password', gen_salt('bf', 4))";
    let hashed = session.one(hash);
    let [salt] = &drawn(&mut reader, &session)[..] else {
        panic!("a salt is drawn once");
    };
    let salt = salt
        .strip_prefix("gen_random_bytes() ")
        .expect("it is of bytes");

    // Of what is to be drawn each call takes what it needs, also if that was rolled back before.
    let pinned = format!("SET LOCAL hindcast_pins.bytes = '{salt}0102ff0a'");
    session.run(&format!("BEGIN; {pinned}; SAVEPOINT s"));
    assert_eq!(session.one(hash), hashed);
    session.run("ROLLBACK TO s");
    assert_eq!(session.one(hash), hashed);
    assert_eq!(session.one(filled), "0102ff");
    // One byte is not enough, and what is no digit is no byte.
    assert_ne!(session.one(filled), session.one(filled));
    session.run("SET LOCAL hindcast_pins.bytes = 'what is it'");
    assert_ne!(session.one(filled), session.one(filled));
    session.run("COMMIT");
    assert_ne!(session.one(hash), hashed);
}

#[test]
fn numbers_of_large_objects_are_told_and_drawn_again() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run("BEGIN");
    let made = session.one("SELECT lo_creat(-1)");
    let filled = session.one("SELECT lo_from_bytea(0, 'text')");
    // Whose number is given draws none.
    session.run("SELECT lo_create(70001); SELECT lo_unlink(70001)");
    session.run("COMMIT");
    let expected = [made.clone(), filled].map(|object| format!("lo_creat() {object}"));
    assert_eq!(drawn(&mut reader, &session), expected);

    session.run(&format!(
        "BEGIN; SET LOCAL hindcast_pins.objects = '70002 {made} 70003 70004'"
    ));
    assert_eq!(session.one("SELECT lo_creat(-1)"), "70002");
    // One that is there already is not made again.
    assert_ne!(session.one("SELECT lo_create(0)"), made);
    let filled = session.one("SELECT lo_from_bytea(0, 'again')");
    assert_eq!(filled, "70003");
    assert_eq!(session.one("SELECT lo_create(0)"), "70004");
    assert_ne!(session.one("SELECT lo_creat(-1)"), "0");
    assert_eq!(
        session.one("SELECT convert_from(lo_get(70003), 'UTF8')"),
        "again"
    );
    session.run("ROLLBACK");
}

#[test]
fn defaults_triggers_and_functions_draw_too() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run(
        "CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp());
         CREATE TABLE t (id serial, v int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log DEFAULT VALUES; RETURN NEW; END $$;
         CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let (t, log) = (
        sequence(&mut session, "t_id_seq"),
        sequence(&mut session, "log_id_seq"),
    );
    session.run("INSERT INTO t (v) VALUES (1), (2)");
    let [first, logged, first_at, again, second_at] = &drawn(&mut reader, &session)[..] else {
        panic!("five values are drawn");
    };
    // Both rows are made before the first trigger fires.
    assert_eq!(*first, format!("{t} 1 to 2"));
    assert_eq!((logged, again), (&format!("{log} 1"), &format!("{log} 2")));
    for at in [first_at, second_at] {
        assert!(at.starts_with("clock_timestamp() 20"), "{at}");
    }
    // So does what COPY fills in.
    session.run("CREATE TABLE copied (id serial, v int)");
    let copied = sequence(&mut session, "copied_id_seq");
    session.run("COPY copied (v) FROM PROGRAM 'printf ''1\\n2\\n3\\n'''");
    assert_eq!(drawn(&mut reader, &session), [format!("{copied} 1 to 3")]);
}

#[test]
fn identity_columns_draw_from_their_sequence_whatever_their_type() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run(
        "CREATE TABLE small (id smallint GENERATED ALWAYS AS IDENTITY, v text);
         CREATE TABLE plain (id int GENERATED BY DEFAULT AS IDENTITY (START 100000), v text);
         CREATE TABLE big (id bigint GENERATED ALWAYS AS IDENTITY (START 5000000000 MAXVALUE 5000000000 INCREMENT -1), v text)",
    );
    for (table, ids, drawn_as) in [
        ("small", "1,2", "1 to 2"),
        ("plain", "100000,100001", "100000 to 100001"),
    ] {
        let from = sequence(&mut session, &format!("{table}_id_seq"));
        let shown = session.one(&format!(
            "WITH new AS (INSERT INTO {table} (v) VALUES ('a'), ('b') RETURNING id)
             SELECT string_agg(id::text, ',' ORDER BY id) FROM new"
        ));
        assert_eq!(shown, ids);
        assert_eq!(drawn(&mut reader, &session), [format!("{from} {drawn_as}")]);
    }
    let from = sequence(&mut session, "big_id_seq");
    session.run("PREPARE two AS INSERT INTO big (v) SELECT 'x' FROM generate_series(1, $1)");
    for _ in 0..8 {
        session.run("EXECUTE two(2)");
    }
    assert_eq!(
        drawn(&mut reader, &session),
        [format!("{from} 4999999986"), format!("{from} 4999999985")]
    );
}

#[test]
fn who_may_insert_needs_no_right_to_an_identity_columns_sequence() {
    let cluster = server();
    let (mut reader, mut admin) = (reader(&cluster), session(&cluster));
    admin.run(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, v text);
         CREATE ROLE clerk; GRANT INSERT, SELECT ON t TO clerk",
    );
    let from = sequence(&mut admin, "t_id_seq");
    admin.run("SET ROLE clerk");
    assert_eq!(
        admin.one("INSERT INTO t (v) VALUES ('a') RETURNING id"),
        "1"
    );
    assert_eq!(drawn(&mut reader, &admin), [format!("{from} 1")]);
    let refused = admin.fails("SELECT nextval('t_id_seq')");
    assert!(
        refused.contains("permission denied for sequence"),
        "{refused}"
    );
    // The function that the planner puts in draws for nobody else.
    let refused = admin.fails("SELECT hindcast.identity_nextval('t_id_seq'::regclass)");
    assert!(
        refused.contains("permission denied for schema"),
        "{refused}"
    );
    admin.run("RESET ROLE");
    let refused = admin.fails("SELECT hindcast.identity_nextval('t_id_seq'::regclass)");
    assert!(refused.contains("for identity columns only"), "{refused}");
}

#[test]
fn plans_that_were_kept_outlive_the_extension() {
    let cluster = server();
    let mut session = session(&cluster);
    session.run(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, v text);
         PREPARE one AS INSERT INTO t (v) VALUES ('a') RETURNING id",
    );
    for id in 1..8 {
        assert_eq!(session.one("EXECUTE one"), id.to_string());
    }
    session.run("DROP EXTENSION hindcast");
    assert_eq!(session.one("EXECUTE one"), "8");
    session.run("CREATE EXTENSION hindcast");
    assert_eq!(session.one("EXECUTE one"), "9");
}

#[test]
fn what_was_rolled_back_is_not_told() {
    let cluster = server();
    let (mut reader, mut session) = (reader(&cluster), session(&cluster));
    session.run(
        "CREATE SEQUENCE s;
         CREATE FUNCTION tries() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
           BEGIN PERFORM nextval('s'); RAISE division_by_zero; EXCEPTION WHEN OTHERS THEN NULL; END;
           PERFORM nextval('s');
         END $$",
    );
    let s = sequence(&mut session, "s");
    session.run("SELECT tries()");
    assert_eq!(drawn(&mut reader, &session), [format!("{s} 2")]);
    session.run("BEGIN; SELECT nextval('s'); SAVEPOINT a; SELECT nextval('s'); SAVEPOINT b; SELECT nextval('s'); RELEASE b; ROLLBACK TO a; SELECT nextval('s'); COMMIT");
    assert_eq!(
        drawn(&mut reader, &session),
        [format!("{s} 3"), format!("{s} 6")]
    );
}

#[test]
fn what_fails_is_as_it_was() {
    let cluster = server();
    let mut session = session(&cluster);
    for (statement, message) in [
        (
            "SELECT nextval('nothing')",
            "relation \"nothing\" does not exist",
        ),
        (
            "SELECT nextval('pg_class')",
            "\"pg_class\" is not a sequence",
        ),
    ] {
        let error = session.connection.query(statement).unwrap_err();
        assert!(full(&error).contains(message), "{}", full(&error));
    }
}
