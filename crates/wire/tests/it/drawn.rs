//! What the server draws, and clients see, is told.

use hindcast_model::{DrawnAt, DrawnUuid, SequenceValue};
use hindcast_wire::sql::{ADVISORY, ADVISORY_REFUSED};
use hindcast_wire::{Event, SequenceColumns, Source};

use crate::server::{CLUSTER, Wire, databases};
use crate::support::relay::Relay;
use crate::support::script::{STARTUP, Session};

/// Makes a database. The numbers of its table of orders and of the sequence that numbers them.
fn orders_in(database: &str) -> Vec<u32> {
    databases(&[database]);
    let ids = CLUSTER.sql(
        database,
        "SELECT 'orders'::regclass::oid::text || ' ' || 'orders_id_seq'::regclass::oid::text",
    );
    let ids = ids.unwrap();
    let ids = ids.split_whitespace().map(|id| id.parse().unwrap());
    ids.collect()
}

#[test]
fn sequence_values_that_clients_see_are_told() {
    let ids = orders_in("sequences");
    let mut sequences = SequenceColumns::default();
    sequences.add_column(ids[0], 1, ids[1]);
    sequences.add_name("orders_id_seq", ids[1]);
    let relay = Relay::start(CLUSTER.port(), sequences);
    let mut wire = Wire::connect(relay.port, "sequences");
    wire.send(&["Q INSERT INTO orders (note) VALUES ('a'), ('b') RETURNING note, id"]);
    wire.until_ready(1);
    wire.send(&[
        "P s INSERT INTO orders (note) VALUES ('c') RETURNING id",
        "D S s",
        "S",
    ]);
    wire.until_ready(1);
    wire.send(&[
        "B - s",
        "E -",
        "S",
        "P - INSERT INTO orders (note) VALUES ('d') RETURNING id",
        "B - -",
        "D P -",
        "E -",
        "S",
    ]);
    wire.until_ready(2);
    wire.send(&[
        "Q SELECT nextval('orders_id_seq') AS next",
        "Q INSERT INTO t VALUES (200, 'x') RETURNING a",
        "X",
    ]);
    wire.until_ready(2);
    drop(wire);
    let mut unknown = Vec::new();
    let mut values = Vec::new();
    for event in relay.finish() {
        match event.unwrap() {
            Event::Transaction(transaction) => values.push(transaction.sequence_values),
            Event::UnknownTable { table } => unknown.push(table),
            _ => {}
        }
    }
    let taken = |values: &[i64]| {
        values
            .iter()
            .map(|&value| SequenceValue {
                sequence: ids[1],
                value,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        values,
        [
            taken(&[1, 2]),
            taken(&[3]),
            taken(&[4]),
            taken(&[5]),
            taken(&[])
        ]
    );
    assert_eq!(unknown.len(), 1, "table t was not known");
}

/// Drawn by an `INSERT` that shows nothing.
#[test]
fn sequence_values_that_clients_ask_for_afterwards_are_told() {
    let ids = orders_in("afterwards");
    let mut sequences = SequenceColumns::default();
    sequences.add_column(ids[0], 1, ids[1]);
    sequences.add_name("orders_id_seq", ids[1]);
    sequences.add_table_name("orders", ids[0]);
    let relay = Relay::start(CLUSTER.port(), sequences);
    let mut wire = Wire::connect(relay.port, "afterwards");
    for text in [
        "Q INSERT INTO orders (note) VALUES ('a')",
        "Q SELECT lastval()",
        "Q BEGIN",
        "Q INSERT INTO orders (note) VALUES ('b')",
        "Q SELECT currval('orders_id_seq') AS id",
        "Q INSERT INTO orders (note) VALUES ('c') RETURNING id",
        "Q SELECT lastval()",
        "Q COMMIT",
    ] {
        wire.send(&[text]);
        wire.until_ready(1);
    }
    wire.send(&["X"]);
    drop(wire);
    let told = relay
        .finish()
        .into_iter()
        .filter_map(|event| match event.unwrap() {
            Event::Transaction(transaction) => Some(transaction.sequence_values),
            _ => None,
        });
    let values = told.map(|all| all.iter().map(|one| one.value).collect::<Vec<_>>());
    assert_eq!(values.collect::<Vec<_>>(), [vec![], vec![1], vec![2, 3]]);
}

/// In both formats, by the default of a column and by a call; of new rows only.
#[test]
fn uuids_that_clients_see_are_told() {
    databases(&["uuids"]);
    let table = CLUSTER
        .sql(
            "uuids",
            "CREATE TABLE keyed (note text, id uuid DEFAULT gen_random_uuid()); SELECT 'keyed'::regclass::oid::text",
        )
        .unwrap();
    let table = table.trim().parse().unwrap();
    let mut columns = SequenceColumns::default();
    columns.add_column(table, 2, Source::Uuids);
    let relay = Relay::start(CLUSTER.port(), columns);
    let mut wire = Wire::connect(relay.port, "uuids");
    wire.send(&["Q INSERT INTO keyed (note) VALUES ('a'), ('b') RETURNING note, id"]);
    wire.until_ready(1);
    wire.send(&["Q INSERT INTO keyed VALUES ('c', gen_random_uuid()) RETURNING note"]);
    wire.until_ready(1);
    wire.send(&["Q INSERT INTO keyed (id, note) VALUES (gen_random_uuid(), 'd') RETURNING id"]);
    wire.until_ready(1);
    wire.send(&["Q SELECT gen_random_uuid() AS token"]);
    wire.until_ready(1);
    wire.send(&["Q UPDATE keyed SET note = 'e' RETURNING id", "X"]);
    wire.until_ready(1);
    drop(wire);
    let told = relay
        .finish()
        .into_iter()
        .filter_map(|event| match event.unwrap() {
            Event::Transaction(transaction) => Some(transaction.drawn_uuids),
            _ => None,
        });
    let told: Vec<_> = told.collect();
    let rows = CLUSTER
        .sql(
            "uuids",
            "SELECT string_agg(id::text, ' ' ORDER BY ctid) FROM keyed",
        )
        .unwrap();
    let ids: Vec<&str> = rows.split_whitespace().collect();
    let by_default = DrawnAt::Default { table, column: 2 };
    let shown = |uuids: &[DrawnUuid]| -> Vec<(DrawnAt, String)> {
        uuids.iter().map(|one| (one.place, one.text())).collect()
    };
    let drawn = |place, id: &str| (place, id.to_owned());
    assert_eq!(
        shown(&told[0]),
        [drawn(by_default, ids[0]), drawn(by_default, ids[1])]
    );
    assert_eq!(shown(&told[1]), []);
    assert_eq!(shown(&told[2]), [drawn(DrawnAt::Call, ids[3])]);
    assert_eq!(told[3].len(), 1);
    assert_eq!(told[3][0].place, DrawnAt::Call);
    assert_eq!(told.get(4).map(Vec::len).unwrap_or_default(), 0);
}

/// In text and as bytes, and where a service makes something else of the answer.
#[test]
fn a_try_for_an_advisory_lock_in_vain_is_told() {
    databases(&["tries"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let mut holder = Wire::connect(CLUSTER.port(), "tries");
    holder.send(&["Q SELECT pg_advisory_lock(1)"]);
    holder.until_ready(1);
    let mut wire = Wire::connect(relay.port, "tries");
    for text in [
        "Q SELECT pg_try_advisory_lock(1)",
        "Q SELECT pg_try_advisory_lock(2)",
        "Q SELECT CASE WHEN pg_try_advisory_lock(1) THEN now() END",
        "Q SELECT pg_advisory_lock(3)",
    ] {
        wire.send(&[text]);
        wire.until_ready(1);
    }
    wire.send(&[
        "P - SELECT pg_try_advisory_xact_lock(1)",
        "B - -",
        "D P -",
        "E -",
        "S",
        "X",
    ]);
    wire.until_ready(1);
    drop((wire, holder));
    let told = relay
        .finish()
        .into_iter()
        .filter_map(|event| match event.unwrap() {
            Event::Transaction(transaction) => Some(transaction.locks),
            _ => None,
        });
    let targets: Vec<u32> = told.flatten().map(|lock| lock.target).collect();
    let expected = [
        ADVISORY_REFUSED,
        ADVISORY,
        ADVISORY_REFUSED,
        ADVISORY,
        ADVISORY_REFUSED,
    ];
    assert_eq!(targets, expected);
}

/// The server may give the lock to another session before it has answered. Where the client has
/// sent something else in front of it, it is not known when it is given back.
#[test]
fn an_advisory_lock_is_given_back_when_that_is_sent() {
    let answer = "< T a
         < D 1
         < C SELECT 1";
    let given_back = |sent: &str, answers: &str| {
        let mut session = Session::new(|_| ());
        session.run(STARTUP);
        session.run(sent);
        // Meanwhile another session has taken a lock.
        session.locks.set(session.locks.get() + 10);
        session.run(answers);
        let told = session
            .shown
            .lines()
            .filter(|line| line.contains(", lock by"));
        let places = told.filter_map(|line| line.rsplit(" as ").next()?.parse::<u64>().ok());
        places.collect::<Vec<_>>()
    };
    let simple = given_back(
        "> Q SELECT pg_advisory_unlock(1)",
        &format!(
            "{answer}
         < Z I"
        ),
    );
    assert_eq!(simple, [0]);
    let text = "SELECT pg_advisory_lock(1), pg_advisory_unlock(2)";
    let both = given_back(
        &format!("> Q {text}"),
        &format!(
            "{answer}
         < Z I"
        ),
    );
    assert_eq!(both, [10]);
    let behind_another = given_back(
        "> P - SELECT 1
         > B - -
         > E -
         > P - SELECT pg_advisory_unlock(1)
         > B - -
         > E -
         > S",
        "< 1
         < 2
         < D 1
         < C SELECT 1
         < 1
         < 2
         < D 1
         < C SELECT 1
         < Z I",
    );
    assert_eq!(behind_another, [10]);
}
