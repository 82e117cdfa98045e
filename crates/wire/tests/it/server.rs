//! Against a real server: clients see the same with and without the observer, and what it tells is
//! true.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::support::relay::{Relay, TRACE_PREFIX};
use bytes::BytesMut;
use futures::SinkExt;
use hindcast_cluster::{Cluster, Options};
use hindcast_model::{Attribution, Id, Isolation, Outcome, Xid};
use hindcast_wire::frame::{self, Direction, Frame};
use hindcast_wire::message::backend::{Fields, error_fields};
use hindcast_wire::{Cut, Event, ObservedTransaction, SequenceColumns};

/// One server for all tests of this file; each has databases of its own.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let options = Options::throw_away()
        .set("max_prepared_transactions", 10)
        .set("autovacuum", "off");
    let cluster = Cluster::temporary(options).expect("a private server");
    cluster.sql("postgres", "CREATE DATABASE base").unwrap();
    cluster.sql("base", SCHEMA).unwrap();
    cluster
});

const SCHEMA: &str = "CREATE TABLE t (a int PRIMARY KEY, b text);
             INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 5) i;
             CREATE TABLE orders (id bigserial PRIMARY KEY, note text);
             CREATE TABLE deferred (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
             CREATE TABLE guarded (a int);
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON guarded FOR STATEMENT EXECUTE FUNCTION refuse();
             CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'late'; RETURN NULL; END $$;
             CREATE TABLE noisy (a int);
             CREATE CONSTRAINT TRIGGER late AFTER INSERT ON noisy DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
             CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO guarded_log VALUES (1); COMMIT; INSERT INTO guarded_log VALUES (2); END $$;
             CREATE TABLE guarded_log (a int);";

/// Databases with the same tables, down to their oids.
pub fn databases(names: &[&str]) {
    for name in names {
        CLUSTER
            .sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE base"))
            .unwrap();
    }
}

/// Speaks the protocol itself, to see every byte.
pub struct Wire {
    stream: TcpStream,
    input: BytesMut,
}

impl Wire {
    pub fn connect(port: u16, database: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // Longer than anything takes: a test that waits for an answer that never comes fails.
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        let mut wire = Self {
            stream,
            input: BytesMut::new(),
        };
        let mut packet = BytesMut::new();
        let user = CLUSTER.sql("postgres", "SELECT current_user").unwrap();
        crate::support::client(
            &format!("startup user={} database={database}", user.trim()),
            &mut packet,
        );
        wire.stream.write_all(&packet).unwrap();
        wire.until_ready(1);
        wire
    }

    pub fn send(&mut self, lines: &[&str]) {
        let mut bytes = BytesMut::new();
        lines
            .iter()
            .for_each(|line| crate::support::client(line, &mut bytes));
        self.send_bytes(&bytes);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Messages up to and including the `count`th ReadyForQuery.
    pub fn until_ready(&mut self, count: usize) -> Vec<Frame> {
        let (mut frames, mut ready) = (Vec::new(), 0);
        let mut chunk = [0; 4096];
        while ready < count {
            while let Some(frame) = frame::split(Direction::FromServer, &mut self.input).unwrap() {
                ready += usize::from(frame.tag() == b'Z');
                frames.push(frame);
            }
            if ready < count {
                let count = self
                    .stream
                    .read(&mut chunk)
                    .unwrap_or_else(|error| panic!("{error} after {:?}", shown(&frames)));
                if count == 0 {
                    break;
                }
                self.input.extend_from_slice(&chunk[..count]);
            }
        }
        assert!(self.input.is_empty(), "more came than was asked for");
        frames
    }

    /// Messages up to a ReadyForQuery behind which nothing has come yet.
    fn until_ready_or_more(&mut self) -> Vec<Frame> {
        let (mut frames, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            while let Some(frame) = frame::split(Direction::FromServer, &mut self.input).unwrap() {
                frames.push(frame);
            }
            if self.input.is_empty() && frames.last().is_some_and(|frame| frame.tag() == b'Z') {
                return frames;
            }
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the server left after {:?}", shown(&frames));
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    /// Runs one `Query` and returns the first value of its first row.
    pub fn value(&mut self, text: &str) -> String {
        self.send(&[&format!("Q {text}")]);
        let frames = self.until_ready(1);
        let row = frames
            .iter()
            .find(|frame| frame.tag() == b'D')
            .unwrap_or_else(|| panic!("{text}: {frames:?}"));
        let value = hindcast_wire::message::backend::parse_data_row(row.body())
            .next()
            .unwrap();
        String::from_utf8(value.expect("not null").to_vec()).unwrap()
    }
}

/// Each is sent in one write, in one session; the number of `ReadyForQuery`s that come back stands
/// in front.
const CORPUS: &[(usize, &[&str])] = &[
    (1, &["Q SELECT 1"]),
    (1, &["Q SELECT a, b FROM t ORDER BY a"]),
    (1, &["Q "]),
    (1, &["Q ;"]),
    (1, &["Q -- nothing"]),
    (1, &["Q SELECT 1; SELECT 2; "]),
    (1, &["Q SELECT 1 -- a comment at the end"]),
    (1, &["Q SELECT 1 /* and another */ ;"]),
    // Errors, and where they are.
    (1, &["Q SELECT nope"]),
    (1, &["Q SELECT 1 +"]),
    (1, &["Q SELECT (1"]),
    (1, &["Q SELECT 1 + -- x"]),
    (1, &["Q SELECT 1 + /* x */  ;"]),
    (1, &["Q SELECT 'ä€😀', nope"]),
    (1, &["Q SELECT 'abc"]),
    (1, &["Q SELECT /* abc"]),
    (1, &["Q SELECT $$abc"]),
    (1, &["Q SELECT \"abc"]),
    (1, &["Q SELECT 1; SELECT nope; SELECT 3"]),
    (1, &["Q SELECT 1; SELECT 1/0; SELECT 3"]),
    (
        1,
        &[
            "Q SELECT /*traceparent='00-11223344556677880000000000000001-00000000000000ff-01'*/ nope",
        ],
    ),
    (
        1,
        &[
            "Q /*traceparent='00-11223344556677880000000000000001-00000000000000ff-01'*/ SELECT 1, nope",
        ],
    ),
    (1, &["Q DO $$ BEGIN RAISE NOTICE 'hello'; END $$"]),
    (1, &["Q DO $$ BEGIN RAISE 'no'; END $$"]),
    (1, &["Q SELECT set_config('a.b', 'c', false)"]),
    (
        1,
        &["Q CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END"],
    ),
    (
        1,
        &["Q CREATE FUNCTION g() RETURNS int BEGIN ATOMIC SELECT 1; SELECT nope; END; SELECT 1"],
    ),
    // Implicit and explicit transactions.
    (1, &["Q INSERT INTO t VALUES (10, 'x') RETURNING *"]),
    (1, &["Q INSERT INTO t VALUES (10, 'x')"]),
    (
        1,
        &["Q INSERT INTO t VALUES (11, 'x'); INSERT INTO t VALUES (10, 'y')"],
    ),
    (1, &["Q BEGIN"]),
    (1, &["Q INSERT INTO t VALUES (12, 'x')"]),
    (1, &["Q COMMIT"]),
    (1, &["Q BEGIN"]),
    (1, &["Q SELECT nope"]),
    (1, &["Q SELECT 1"]),
    (1, &["Q COMMIT"]),
    (3, &["Q BEGIN", "Q SELECT 1/0", "Q COMMIT"]),
    (
        4,
        &[
            "Q BEGIN ISOLATION LEVEL REPEATABLE READ",
            "Q SELECT count(*) FROM t",
            "Q INSERT INTO t VALUES (13, 'x')",
            "Q COMMIT",
        ],
    ),
    (
        1,
        &["Q BEGIN; INSERT INTO t VALUES (14, 'x'); SELECT count(*) FROM t; COMMIT"],
    ),
    (
        1,
        &["Q BEGIN; INSERT INTO t VALUES (15, 'x'); SELECT nope; COMMIT"],
    ),
    (
        1,
        &["Q BEGIN; INSERT INTO t VALUES (15, 'x'); SELECT 1/0; COMMIT"],
    ),
    (1, &["Q ROLLBACK"]),
    (
        1,
        &[
            "Q INSERT INTO t VALUES (16, 'x'); BEGIN; INSERT INTO t VALUES (17, 'x'); COMMIT; INSERT INTO t VALUES (18, 'x')",
        ],
    ),
    (
        1,
        &["Q INSERT INTO t VALUES (19, 'x'); COMMIT; INSERT INTO t VALUES (20, 'x'); ROLLBACK"],
    ),
    (1, &["Q SELECT 1; COMMIT; SELECT 1 +"]),
    (1, &["Q BEGIN; SELECT 1 +; COMMIT"]),
    (1, &["Q COMMIT"]),
    (1, &["Q ROLLBACK"]),
    (
        5,
        &[
            "Q BEGIN",
            "Q INSERT INTO t VALUES (21, 'x')",
            "Q COMMIT AND CHAIN",
            "Q INSERT INTO t VALUES (22, 'x')",
            "Q ROLLBACK AND CHAIN",
        ],
    ),
    (2, &["Q SELECT count(*) FROM t", "Q COMMIT"]),
    (
        5,
        &[
            "Q BEGIN",
            "Q SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            "Q SELECT 1",
            "Q INSERT INTO t VALUES (23, 'x')",
            "Q ROLLBACK",
        ],
    ),
    (
        3,
        &["Q BEGIN READ ONLY", "Q SELECT count(*) FROM t", "Q COMMIT"],
    ),
    // Savepoints.
    (
        7,
        &[
            "Q BEGIN",
            "Q INSERT INTO t VALUES (24, 'x')",
            "Q SAVEPOINT a",
            "Q SELECT 1/0",
            "Q ROLLBACK TO a",
            "Q INSERT INTO t VALUES (25, 'x')",
            "Q COMMIT",
        ],
    ),
    (
        1,
        &[
            "Q BEGIN; SAVEPOINT a; INSERT INTO t VALUES (26, 'x'); RELEASE a; SAVEPOINT b; INSERT INTO t VALUES (27, 'x'); COMMIT",
        ],
    ),
    (
        5,
        &[
            "Q BEGIN",
            "Q SAVEPOINT a",
            "Q SELECT nope",
            "Q RELEASE a",
            "Q ROLLBACK",
        ],
    ),
    (1, &["Q SAVEPOINT a"]),
    // What may not be in a block, and what must be. `VACUUM` of t would decide where rows lie.
    (1, &["Q VACUUM guarded"]),
    (1, &["Q VACUUM guarded; SELECT 1"]),
    (1, &["Q LOCK t"]),
    (1, &["Q LOCK t; SELECT 1"]),
    (1, &["Q DECLARE c CURSOR FOR SELECT 1"]),
    (
        1,
        &["Q DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a"],
    ),
    (1, &["Q FETCH 2 FROM c"]),
    (1, &["Q CLOSE c"]),
    (1, &["Q CALL twice()"]),
    (1, &["Q CALL twice(); SELECT 1"]),
    (
        1,
        &["Q DO $$ BEGIN INSERT INTO guarded_log VALUES (3); COMMIT; END $$"],
    ),
    (1, &["Q CREATE INDEX CONCURRENTLY i ON t (b)"]),
    (1, &["Q DROP INDEX CONCURRENTLY i"]),
    (1, &["Q ANALYZE t"]),
    (1, &["Q CHECKPOINT"]),
    (1, &["Q PREPARE TRANSACTION 'x'"]),
    (
        1,
        &["Q BEGIN; INSERT INTO t VALUES (28, 'x'); PREPARE TRANSACTION 'corpus'"],
    ),
    (1, &["Q COMMIT PREPARED 'corpus'"]),
    (1, &["Q COMMIT PREPARED 'corpus'"]),
    // A commit that fails: the statement must not have been answered as if it had worked.
    (1, &["Q INSERT INTO deferred VALUES (1), (1)"]),
    (1, &["Q INSERT INTO deferred VALUES (1), (1); SELECT 1"]),
    (
        3,
        &[
            "Q BEGIN",
            "Q INSERT INTO deferred VALUES (1), (1)",
            "Q COMMIT",
        ],
    ),
    (
        1,
        &["Q BEGIN; INSERT INTO deferred VALUES (1), (1); COMMIT; SELECT 1"],
    ),
    (
        1,
        &[
            "P - INSERT INTO deferred VALUES (1), (1)",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["Q INSERT INTO noisy VALUES (1)"]),
    (
        1,
        &["P - INSERT INTO noisy VALUES (1)", "B - -", "E -", "S"],
    ),
    // The extended protocol.
    (
        1,
        &[
            "P - SELECT a FROM t WHERE a < 3",
            "B - -",
            "D P -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &["P s1 SELECT a FROM t WHERE a = $1::int", "D S s1", "S"],
    ),
    (1, &["B - s1 1", "E -", "S"]),
    (
        3,
        &[
            "B - s1 1", "E -", "S", "B - s1 2", "E -", "S", "B - s1 3", "E -", "S",
        ],
    ),
    (1, &["B - s1 x", "E -", "S"]),
    (1, &["P s1 SELECT 2", "S"]),
    (
        2,
        &[
            "P s1 SELECT 2",
            "B - s1 1",
            "E -",
            "S",
            "B - s1 4",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &["B - s1 1", "E -", "B - nope", "E -", "B - s1 2", "E -", "S"],
    ),
    (
        1,
        &[
            "P - SELECT 1/0",
            "B - -",
            "E -",
            "P - SELECT 2",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        2,
        &[
            "P - SELECT nope",
            "B - -",
            "E -",
            "S",
            "P - SELECT 2",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - /*traceparent='00-11223344556677880000000000000001-00000000000000ff-01'*/ SELECT nope",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - INSERT INTO t VALUES (30, 'x')",
            "B - -",
            "E -",
            "P - INSERT INTO t VALUES (31, 'x')",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - INSERT INTO t VALUES (32, 'x')",
            "B - -",
            "E -",
            "P - INSERT INTO t VALUES (30, 'x')",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "P - INSERT INTO t VALUES (33, 'x')",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["P - COMMIT", "B - -", "E -", "S"]),
    (
        1,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "P - INSERT INTO t VALUES (34, 'x')",
            "B - -",
            "D P -",
            "E -",
            "P - COMMIT",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "P - SELECT nope",
            "B - -",
            "E -",
            "P - COMMIT",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["P - COMMIT", "B - -", "E -", "S"]),
    (
        3,
        &[
            "P - BEGIN",
            "B - -",
            "E -",
            "S",
            "P - SELECT 1/0",
            "B - -",
            "E -",
            "S",
            "P - COMMIT",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["P c1 COMMIT", "P b1 BEGIN", "S"]),
    (
        3,
        &[
            "B - b1",
            "E -",
            "S",
            "P - SELECT 1/0",
            "B - -",
            "E -",
            "S",
            "C P x",
            "B - c1",
            "E -",
            "S",
        ],
    ),
    (
        3,
        &[
            "B - b1",
            "E -",
            "S",
            "P - SELECT 1",
            "B - -",
            "E -",
            "S",
            "C P x",
            "B - c1",
            "E -",
            "S",
        ],
    ),
    (
        1,
        &["B - b1", "B p s1 1", "E -", "E p", "B - c1", "E -", "S"],
    ),
    (
        1,
        &[
            "P - SELECT a FROM t ORDER BY a",
            "B q -",
            "E q 2",
            "E q 2",
            "E q",
            "S",
        ],
    ),
    (1, &["P - ", "B - -", "D P -", "E -", "S"]),
    (1, &["P - SELECT 1; SELECT 2", "B - -", "E -", "S"]),
    (1, &["P - VACUUM guarded", "B - -", "E -", "S"]),
    (
        1,
        &[
            "P - INSERT INTO t VALUES (35, 'x')",
            "B - -",
            "E -",
            "P - VACUUM guarded",
            "B - -",
            "E -",
            "S",
        ],
    ),
    (1, &["P - CALL twice()", "B - -", "E -", "S"]),
    (1, &["P - SELECT 1", "B - -", "E -", "Q SELECT 2"]),
    (1, &["Q SELECT 3"]),
    (2, &["S", "S"]),
    (1, &["P - SELECT 1", "B - -", "H", "E -", "H", "S"]),
    (1, &["C S s1", "C S s1", "S"]),
    (1, &["B - s1 1", "E -", "S"]),
    (1, &["P s1 SELECT 5", "S"]),
    (1, &["Q DEALLOCATE s1"]),
    (1, &["P s1 SELECT 6", "B - s1", "E -", "S"]),
    (1, &["Q PREPARE sql1 AS SELECT 7"]),
    (1, &["Q EXECUTE sql1"]),
    (1, &["B - sql1", "E -", "S"]),
    (1, &["Q DISCARD ALL"]),
    (1, &["B - s1", "E -", "S"]),
    (
        1,
        &["P - INSERT INTO t VALUES (36, 'x')", "B - -", "E -", "S"],
    ),
    (
        4,
        &["Q BEGIN", "Q SELECT 1", "Q DEALLOCATE ALL", "Q SELECT 2"],
    ),
    (2, &["Q SELECT 3", "Q COMMIT"]),
    (
        2,
        &[
            "P - DISCARD ALL",
            "B - -",
            "E -",
            "S",
            "P - SELECT 1",
            "B - -",
            "E -",
            "S",
        ],
    ),
    // Copies.
    (1, &["Q COPY (SELECT a FROM t ORDER BY a) TO STDOUT"]),
    (1, &["P - COPY t TO STDOUT", "B - -", "E -", "S"]),
    (1, &["Q COPY t FROM STDIN", "d 40\tx~", "d 41\ty~", "c"]),
    (1, &["Q COPY t FROM STDIN; SELECT 1", "d 42\tx~", "c"]),
    (
        1,
        &[
            "Q COPY t FROM STDIN; COPY t FROM STDIN",
            "d 43\tx~",
            "c",
            "d 44\tx~",
            "c",
        ],
    ),
    (1, &["Q COPY t FROM STDIN", "d 45\tx~", "f changed my mind"]),
    (1, &["Q COPY t FROM STDIN", "d bad~", "d 46\tx~", "c"]),
    (1, &["Q COPY nope FROM STDIN"]),
    (
        1,
        &[
            "P - COPY t FROM STDIN",
            "B - -",
            "E -",
            "S",
            "d 47\tx~",
            "c",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - COPY t FROM STDIN",
            "B - -",
            "E -",
            "d 48\tx~",
            "c",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - COPY t FROM STDIN",
            "B - -",
            "E -",
            "S",
            "d bad~",
            "c",
            "S",
        ],
    ),
    (
        1,
        &[
            "P - COPY t FROM STDIN",
            "B - -",
            "E -",
            "S",
            "d 49\tx~",
            "f no",
            "S",
        ],
    ),
    (2, &["P - COPY nope FROM STDIN", "B - -", "E -", "S", "S"]),
    (1, &["Q COPY guarded FROM STDIN", "d 1~", "c"]),
    (
        4,
        &[
            "Q BEGIN",
            "Q COPY t FROM STDIN",
            "d 50\tx~",
            "c",
            "Q SELECT count(*) FROM t",
            "Q COMMIT",
        ],
    ),
    // The rest.
    (1, &["F 89"]),
    (3, &["Q BEGIN", "F 89", "Q COMMIT"]),
    (1, &["F 1"]),
    (1, &["Q LISTEN c"]),
    (1, &["Q SET application_name = 'me'; SELECT 1"]),
    (1, &["Q SHOW application_name"]),
    (1, &["Q SET standard_conforming_strings = off"]),
    (1, &["Q SELECT 'a\\' ; b'"]),
    (1, &["Q RESET ALL"]),
    (1, &["Q SELECT * FROM t FOR UPDATE"]),
    (1, &["Q SELECT pg_advisory_lock(1)"]),
    (1, &["Q SELECT count(*) FROM t"]),
    (1, &["Q SELECT a FROM t ORDER BY a"]),
];

fn transcript(port: u16, database: &str) -> Vec<Vec<Frame>> {
    let mut wire = Wire::connect(port, database);
    CORPUS
        .iter()
        .map(|(ready, lines)| {
            wire.send(lines);
            wire.until_ready(*ready)
        })
        .collect()
}

/// Errors name the line of Postgres' own source that raised them; "at end of input" is raised by
/// another line than "at or near".
fn without_lines(frames: &[Frame]) -> Vec<Frame> {
    let without = |frame: &Frame| {
        if frame.tag() != b'E' {
            return frame.clone();
        }
        let fields = Fields::parse(frame.body()).unwrap();
        let mut out = BytesMut::new();
        error_fields(
            &mut out,
            b'E',
            fields.iter().filter(|(field, _)| *field != b'L'),
        );
        Frame(out.freeze())
    };
    frames.iter().map(without).collect()
}

pub fn shown(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(crate::support::show_server).collect()
}

#[test]
fn a_client_sees_the_same_bytes_with_and_without_the_recorder() {
    databases(&["bytes_direct", "bytes_observed"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let direct = transcript(CLUSTER.port(), "bytes_direct");
    let observed = transcript(relay.port, "bytes_observed");
    for ((direct, observed), (_, lines)) in direct.iter().zip(&observed).zip(CORPUS) {
        assert_eq!(shown(direct), shown(observed), "{lines:?}");
        assert_eq!(without_lines(direct), without_lines(observed), "{lines:?}");
    }
    for told in relay.finish() {
        told.expect("the observer could follow");
    }
}

/// Sends every entry of the corpus without waiting for the answers to the one before, but for
/// copies, which the server may answer before it has read all of their data.
#[test]
fn a_client_that_waits_for_nothing_sees_the_same_bytes() {
    databases(&["flood_direct", "flood_observed"]);
    let flood = |port, database: &str| {
        let mut wire = Wire::connect(port, database);
        let mut ready = 0;
        for (count, lines) in CORPUS {
            wire.send(lines);
            ready += count;
        }
        shown(&wire.until_ready(ready))
    };
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let direct = flood(CLUSTER.port(), "flood_direct");
    let observed = flood(relay.port, "flood_observed");
    let first = direct
        .iter()
        .zip(&observed)
        .position(|(direct, observed)| direct != observed);
    if let Some(first) = first {
        let from = first.saturating_sub(6);
        panic!(
            "direct:   {:#?}\nobserved: {:#?}",
            &direct[from..first + 3],
            &observed[from..first + 3]
        );
    }
    assert_eq!(direct.len(), observed.len());
    for told in relay.finish() {
        told.expect("the observer could follow");
    }
}

/// The corpus in random order and random groups, so that statements meet in unforeseen states.
///
/// `SEED=n cargo test -p hindcast-wire --test it server::shuffled` runs one seed, `SEEDS=n` runs
/// more.
#[test]
fn a_client_that_sends_the_corpus_shuffled_sees_the_same_bytes() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(6),
    };
    for seed in seeds {
        let names = [
            format!("shuffled_direct_{seed}"),
            format!("shuffled_observed_{seed}"),
        ];
        databases(&[&names[0], &names[1]]);
        let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
        let play = |port, database: &str| {
            // SplitMix64
            let mut state = seed;
            let mut random = move |below: usize| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut value = state;
                value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((value ^ value >> 31) % below as u64) as usize
            };
            let mut wire = Wire::connect(port, database);
            let mut seen = Vec::new();
            for _ in 0..60 {
                let mut ready = 0;
                let mut group = Vec::new();
                for _ in 0..1 + random(4) {
                    // How often the server answers must not depend on the state it is in: it does
                    // for a copy that fails, and for a `Query` that is discarded because an
                    // extended message before it failed. A prepared transaction that is left open
                    // would block others.
                    let unfit = |lines: &[&str]| {
                        let within = |word: &str| lines.iter().any(|line| line.contains(word));
                        let discarded = lines.len() > 1
                            && lines[0].starts_with('P')
                            && lines[lines.len() - 1].starts_with('Q');
                        discarded || within("FROM STDIN") || within("PREPARE TRANSACTION")
                    };
                    let (count, lines) = loop {
                        let entry = &CORPUS[random(CORPUS.len())];
                        if !unfit(entry.1) {
                            break entry;
                        }
                    };
                    group.extend_from_slice(lines);
                    ready += count;
                }
                wire.send(&group);
                seen.push((shown(&wire.until_ready(ready)), group));
            }
            seen
        };
        let direct = play(CLUSTER.port(), &names[0]);
        let observed = play(relay.port, &names[1]);
        for ((direct, group), (observed, _)) in direct.iter().zip(&observed) {
            assert_eq!(direct, observed, "seed {seed}: {group:#?}");
        }
        for told in relay.finish() {
            told.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

fn transactions(relay: &Relay) -> Vec<ObservedTransaction> {
    let told = relay
        .finish()
        .into_iter()
        .map(|told| told.expect("the observer could follow"));
    told.filter_map(|event| match event {
        Event::Transaction(transaction) => Some(*transaction),
        Event::CommitUncertain(transaction) => panic!("uncertain: {transaction:?}"),
        _ => None,
    })
    .collect()
}

fn texts(transaction: &ObservedTransaction) -> Vec<&str> {
    transaction
        .statements
        .iter()
        .map(|statement| &statement.text[..])
        .collect()
}

/// The law that the search for missing writers rests on: whatever committed was told, but for
/// statements that refuse company.
#[test]
fn every_committed_id_is_accounted_for() {
    // A server of its own: ids are the cluster's, and other tests write too.
    let cluster = Cluster::temporary(
        Options::throw_away()
            .set("max_prepared_transactions", 10)
            .set("autovacuum", "off"),
    )
    .unwrap();
    cluster.sql("postgres", SCHEMA).unwrap();
    let relay = Relay::start(cluster.port(), SequenceColumns::default());
    let next = || -> u64 {
        cluster
            .sql("postgres", "SELECT pg_snapshot_xmax(pg_current_snapshot())")
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let from = next();
    let refuses = [
        "VACUUM",
        "CALL",
        "CONCURRENTLY",
        "ANALYZE",
        "; COMMIT; END $$",
    ];
    let mut wire = Wire::connect(relay.port, "postgres");
    for (ready, lines) in CORPUS {
        if !lines
            .iter()
            .any(|line| refuses.iter().any(|word| line.contains(word)))
        {
            wire.send(lines);
            wire.until_ready(*ready);
        }
    }
    wire.send(&["X"]);
    drop(wire);
    let transactions = transactions(&relay);
    let to = next();
    let status = |xid: Xid| {
        cluster
            .sql("postgres", &format!("SELECT pg_xact_status('{xid}')"))
            .unwrap()
            .trim()
            .to_owned()
    };
    let known: BTreeSet<Xid> = transactions
        .iter()
        .flat_map(|transaction| {
            transaction
                .xid
                .into_iter()
                .chain(transaction.subxids.iter().copied())
        })
        .collect();
    let committed: BTreeSet<Xid> = (from..to)
        .map(Xid)
        .filter(|xid| status(*xid) == "committed")
        .collect();
    let missing: Vec<_> = committed.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?} committed and was not told");
    assert!(committed.len() > 25, "only {} writers", committed.len());
    for transaction in &transactions {
        let Some(xid) = transaction.xid else { continue };
        let expected = match transaction.outcome {
            Outcome::Committed | Outcome::Prepared { .. } => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => unreachable!("the server never went away"),
        };
        assert_eq!(status(xid), expected, "{:?}", texts(transaction));
    }
}

#[test]
fn snapshots_and_ids_are_those_that_the_transaction_had() {
    databases(&["facts"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let mut other = Wire::connect(CLUSTER.port(), "facts");
    other.send(&["Q BEGIN; INSERT INTO t VALUES (900, 'open')"]);
    other.until_ready(1);
    let open = other.value("SELECT pg_current_xact_id()");

    let mut wire = Wire::connect(relay.port, "facts");
    wire.send(&["Q BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    wire.until_ready(1);
    let snapshot = wire.value("SELECT pg_current_snapshot()");
    let now = wire.value("SELECT (extract(epoch FROM now()) * 1000000)::bigint");
    // What commits in between changes nothing under REPEATABLE READ.
    let between = other.value("WITH w AS (SELECT 1) SELECT pg_current_xact_id() FROM w");
    other.send(&["Q COMMIT"]);
    other.until_ready(1);
    let xid = wire.value("INSERT INTO t VALUES (901, 'x') RETURNING pg_current_xact_id()");
    wire.send(&["Q COMMIT"]);
    wire.until_ready(1);
    // Autocommitted, both ways.
    let simple = wire.value("INSERT INTO t VALUES (902, 'x') RETURNING pg_current_xact_id()");
    wire.send(&[
        "P - INSERT INTO t VALUES (903, 'x') RETURNING pg_current_xact_id()",
        "B - -",
        "E -",
        "S",
    ]);
    let frames = wire.until_ready(1);
    let row = frames.iter().find(|frame| frame.tag() == b'D').unwrap();
    let extended = crate::support::show_server(row)["D ".len()..].to_owned();
    wire.send(&["Q SELECT 1"]);
    wire.until_ready(1);
    wire.send(&["X"]);
    drop(wire);

    let told = transactions(&relay);
    assert_eq!(open, between);
    let [explicit, first, second, read] = &told[..] else {
        panic!("{told:#?}")
    };
    let told_snapshot = explicit.snapshot.clone().unwrap();
    let in_progress: Vec<_> = told_snapshot
        .in_progress
        .iter()
        .map(Xid::to_string)
        .collect();
    assert_eq!(
        format!(
            "{}:{}:{}",
            told_snapshot.xmin,
            told_snapshot.xmax,
            in_progress.join(",")
        ),
        snapshot
    );
    let open = open.parse().unwrap();
    assert!(told_snapshot.xmax <= open || told_snapshot.in_progress.contains(&open));
    assert_eq!(explicit.isolation, Some(Isolation::RepeatableRead));
    assert_eq!(explicit.now.unwrap().to_string(), now);
    assert_eq!(explicit.xid, Some(xid.parse().unwrap()));
    assert!(explicit.explicit && !explicit.passive && explicit.xid_known);
    assert_eq!(first.xid, Some(simple.parse().unwrap()));
    assert_eq!(second.xid, Some(extended.parse().unwrap()));
    assert!(!first.explicit && first.snapshot.is_some() && second.snapshot.is_some());
    assert_eq!(
        (read.xid, read.xid_known, read.result_rows),
        (None, true, 1)
    );
}

#[test]
fn subtransactions_are_told_released_or_not() {
    databases(&["subs"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let mut wire = Wire::connect(relay.port, "subs");
    wire.send(&[
        "Q BEGIN",
        "Q INSERT INTO t VALUES (100, 'top')",
        "Q SAVEPOINT a",
        "Q INSERT INTO t VALUES (101, 'a')",
        "Q RELEASE a",
        "Q SAVEPOINT b",
        "Q INSERT INTO t VALUES (102, 'b')",
        "Q ROLLBACK TO b",
        "Q SAVEPOINT c",
        "Q INSERT INTO t VALUES (103, 'c')",
        "Q COMMIT",
        "X",
    ]);
    wire.until_ready(11);
    drop(wire);
    let [told] = &transactions(&relay)[..] else {
        panic!("one transaction")
    };
    let written = CLUSTER
        .sql("subs", "SELECT xmin::text FROM t WHERE a > 100 ORDER BY a")
        .unwrap();
    let written: Vec<Xid> = written
        .split_whitespace()
        .map(|xid| xid.parse().unwrap())
        .collect();
    assert!(
        written.iter().all(|xid| told.subxids.contains(xid)),
        "{written:?} of {:?}",
        told.subxids
    );
    // Savepoint b, begun again after the rollback, got an id because c within it did.
    assert_eq!(told.subxids.len(), 3);
    for subxid in &told.subxids {
        assert_eq!(
            CLUSTER
                .sql("subs", &format!("SELECT pg_xact_status('{subxid}')"))
                .unwrap()
                .trim(),
            "committed"
        );
    }
}

#[test]
fn requests_are_named_by_comments_and_application_names() {
    databases(&["named"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let trace = |request: u64| format!("00-{TRACE_PREFIX:016x}{request:016x}-00000000000000ff-01");
    let mut wire = Wire::connect(relay.port, "named");
    let one = format!("P s SELECT 1 /*traceparent='{}'*/", trace(1));
    wire.send(&[&one, "B - s", "E -", "S"]);
    wire.until_ready(1);
    // By now the comment is stale.
    wire.send(&["B - s", "E -", "S"]);
    wire.until_ready(1);
    wire.send(&[
        "Q BEGIN",
        &format!("Q SELECT 2 /*action='x',traceparent='{}'*/", trace(2)),
        "Q COMMIT",
    ]);
    wire.until_ready(3);
    wire.send(&[
        &format!("Q SET application_name = '{}'", trace(3)),
        "Q SELECT 3",
    ]);
    wire.until_ready(2);
    wire.send(&["Q SELECT text FROM (SELECT query AS text FROM pg_stat_activity WHERE pid = pg_backend_pid()) x /* traceparent='00-ffffffffffffffff0000000000000004-00000000000000ff-01' */"]);
    let frames = wire.until_ready(1);
    let seen = shown(&frames).join("\n");
    assert!(
        !seen.contains("traceparent"),
        "the comment reached the server: {seen}"
    );
    wire.send(&["X"]);
    drop(wire);
    let told = transactions(&relay);
    let requests: Vec<_> = told.iter().map(|transaction| transaction.request).collect();
    let application = Some((Id(3), Attribution::ApplicationName));
    assert_eq!(
        requests,
        [
            Some((Id(1), Attribution::Comment)),
            None,
            Some((Id(2), Attribution::Comment)),
            application,
            application,
            application
        ]
    );
    // The stale one is a ghost that can be replayed by itself: its Parse comes along, described.
    let mut bytes = BytesMut::from(&told[1].client_bytes.clone().unwrap()[..]);
    assert_eq!(
        crate::support::show(Direction::FromClient, &mut bytes),
        ["C S s", "P s SELECT 1", "D S s", "S", "B - s", "E -", "S"]
    );
}

/// What is kept of ghosts is enough to do again what they did.
#[test]
fn what_ghosts_sent_can_be_sent_again() {
    databases(&["ghosts", "ghosts_again"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    transcript(relay.port, "ghosts");
    let mut again = Wire::connect(CLUSTER.port(), "ghosts_again");
    let mut sent = 0;
    for ghost in transactions(&relay) {
        assert_eq!(ghost.cut, Cut::default());
        if ghost.outcome == Outcome::Aborted {
            continue;
        }
        again
            .stream
            .write_all(&ghost.client_bytes.expect("it is a ghost"))
            .unwrap();
        sent += 1;
        // What it is answered is over when this is.
        again.send(&[&format!("Q SELECT 'ghost {sent}'")]);
        while !shown(&again.until_ready_or_more()).contains(&format!("D ghost {sent}")) {}
    }
    assert!(sent > 60, "only {sent} ghosts");
    for table in ["t", "deferred", "noisy", "guarded_log"] {
        let rows = |database: &str| {
            CLUSTER
                .sql(
                    database,
                    &format!("SELECT {table}::text FROM {table} ORDER BY 1"),
                )
                .unwrap()
        };
        assert_eq!(rows("ghosts"), rows("ghosts_again"), "{table}");
    }
}

#[test]
fn psql_prints_the_same() {
    databases(&["psql_direct", "psql_observed"]);
    let script = "
        \\set ON_ERROR_STOP off
        SELECT * FROM t ORDER BY a;
        INSERT INTO orders (note) VALUES ('x') RETURNING *;
        SELECT nope FROM t
          WHERE true;
        BEGIN; SAVEPOINT a; SELECT 1/0; ROLLBACK TO a; COMMIT;
        SELECT 1 \\; SELECT 2 \\; SELECT 3;
        COPY t FROM STDIN;
300\tthree
301\tfour
\\.
        \\copy (SELECT * FROM t ORDER BY a) TO STDOUT
        PREPARE p AS SELECT $1::int; EXECUTE p(7);
        VACUUM t;
        SELECT * FROM t WHERE a = 1 \\gdesc
        \\d t
        SET client_encoding = latin1; SELECT 'ae', nope; SET client_encoding = utf8;
        LISTEN c; NOTIFY c, 'hello'; SELECT 1;
        SELECT count(*) FROM t;
    ";
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let run = |port: u16, database: &str| {
        let url = CLUSTER
            .url(database)
            .replace(&format!(":{}", CLUSTER.port()), &format!(":{port}"));
        let mut child = Command::new(CLUSTER.binaries().program("psql"))
            .args(["-X", "-a", &url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let out = text(output.stdout);
        // The notification names the server process.
        let out = out
            .split("server process with PID")
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '))
            .collect::<String>();
        (out, text(output.stderr))
    };
    assert_eq!(
        run(CLUSTER.port(), "psql_direct"),
        run(relay.port, "psql_observed")
    );
    assert!(transactions(&relay).len() > 10);
}

#[test]
fn a_pipelining_driver_gets_the_same_answers() {
    databases(&["driver"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let url = CLUSTER
        .url("driver")
        .replace(&format!(":{}", CLUSTER.port()), &format!(":{}", relay.port));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let statement = client
            .prepare("SELECT $1::int4 + a FROM t WHERE a = $2")
            .await
            .unwrap();
        // Many at once: the driver pipelines them.
        let mut expected = Vec::new();
        let mut queries = Vec::new();
        for index in 0..200i32 {
            let (client, statement) = (&client, &statement);
            queries.push(async move {
                client
                    .query_one(statement, &[&index, &(index % 5 + 1)])
                    .await
                    .unwrap()
                    .get::<_, i32>(0)
            });
            expected.push(index + index % 5 + 1);
        }
        assert_eq!(futures::future::join_all(queries).await, expected);
        let transaction = client.transaction().await.unwrap();
        transaction
            .execute("INSERT INTO t VALUES (400, 'x')", &[])
            .await
            .unwrap();
        assert!(
            transaction
                .execute("INSERT INTO t VALUES (400, 'x')", &[])
                .await
                .is_err()
        );
        drop(transaction);
        let transaction = client.transaction().await.unwrap();
        let mut sink = Box::pin(transaction.copy_in("COPY t FROM STDIN").await.unwrap());
        sink.send(bytes::Bytes::from_static(b"401\tx\n"))
            .await
            .unwrap();
        assert_eq!(sink.as_mut().finish().await.unwrap(), 1);
        transaction.commit().await.unwrap();
        let count: i64 = client
            .query_one("SELECT count(*) FROM t", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(count, 6);
        drop(client);
        connection.await.unwrap().unwrap();
    });
    let told = transactions(&relay);
    let committed = told
        .iter()
        .filter(|transaction| transaction.outcome == Outcome::Committed)
        .count();
    assert_eq!((committed, told.len()), (202, 203));
    assert!(told.iter().all(
        |transaction| transaction.snapshot.is_some() && transaction.xid_known
            || transaction.outcome == Outcome::Aborted
    ));
}
