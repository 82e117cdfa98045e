//! Sessions with the server of the store, as clients have them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hindcast_cluster::Binaries;
use hindcast_memory::Catalog;
use hindcast_memory::serve::{Door, Server};
use hindcast_pg::{ConnectOptions, Connection, Parameter};
use hindcast_standby::source::{ReplicatedTable, TableColumn};
use hindcast_store::{Appender, Cell, Mark, Store};
use hindcast_wire::frame::{self, Direction, Frame};
use hindcast_wire::message::frontend;

struct Fixture {
    server: Server,
    store: Store,
    appender: Appender,
    catalog: Arc<Catalog>,
    lsn: u64,
}

impl Fixture {
    /// A table `t (id int primary key, name text, price numeric)` of so many rows, all of one
    /// commit.
    fn new(rows: u32) -> Self {
        let column = |name: &str, type_oid, type_name: &str| TableColumn {
            name: name.to_owned(),
            type_oid,
            type_name: type_name.to_owned(),
            collation: "C".to_owned(),
        };
        let catalog = Arc::new(Catalog::new(&[ReplicatedTable {
            oid: 16_384,
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: vec![
                column("id", 23, "integer"),
                column("name", 25, "text"),
                column("price", 1700, "numeric"),
            ],
            primary_key: vec!["id".to_owned()],
            identity: 'd',
            changed: 0,
            rows_estimate: 0,
            bytes: 0,
            pages: 0,
            shape: Default::default(),
            rows: None,
            root: None,
        }]));
        let (store, appender) = hindcast_store::open(hindcast_store::Options::default());
        let server = Server::start(
            &Door::open("127.0.0.1:0"),
            store.clone(),
            catalog.clone(),
            "shop".to_owned(),
            "15.4".to_owned(),
        )
        .unwrap();
        let mut fixture = Self {
            server,
            store,
            appender,
            catalog,
            lsn: 0,
        };
        let ids: Vec<u32> = (1..=rows).collect();
        fixture.commit(&ids, "first");
        fixture
    }

    /// Gives rows this name, in one transaction.
    fn commit(&mut self, ids: &[u32], name: &str) {
        let table = self.catalog.by_name(None, "t").unwrap();
        for id in ids {
            let (id, mut key) = (id.to_string(), Vec::new());
            table.encode_key(|_| Some(id.as_bytes()), &mut key).unwrap();
            let cells = [
                Cell::Value(id.as_bytes()),
                Cell::Value(name.as_bytes()),
                Cell::Value(b"1.50"),
            ];
            self.appender
                .put(table.id, &key, 0, cells.into_iter(), None);
        }
        self.lsn += 16;
        self.appender.commit(Mark {
            lsn: self.lsn,
            time: 1_700_000_000_000_000 + self.lsn as i64,
        });
        self.appender.flush();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(self.store.wait_visible(self.lsn, deadline));
    }

    fn connect(&self) -> Connection {
        let url = format!("postgres://ann@{}/shop", self.server.address());
        Connection::connect(&url.parse().unwrap(), &ConnectOptions::named("test")).unwrap()
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.server.address()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        socket
    }

    /// A session of raw messages.
    fn raw(&self) -> Raw {
        let mut raw = Raw {
            socket: self.socket(),
            input: BytesMut::new(),
        };
        raw.send(|out| frontend::startup(out, frontend::PROTOCOL_3_0, &[(b"user", b"ann")]));
        raw.until_ready();
        raw
    }
}

/// A name and a value.
type Pair<'a> = (&'a [u8], &'a [u8]);

struct Raw {
    socket: TcpStream,
    input: BytesMut,
}

impl Raw {
    fn send(&mut self, build: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        build(&mut out);
        self.socket.write_all(&out).unwrap();
    }

    fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = frame::split(Direction::FromServer, &mut self.input).unwrap() {
                return frame;
            }
            let mut part = [0; 4096];
            let count = self.socket.read(&mut part).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.input.extend_from_slice(&part[..count]);
        }
    }

    /// The tags of what comes until the session is ready, and what the last message says of its
    /// transaction.
    fn until_ready(&mut self) -> String {
        let mut tags = String::new();
        loop {
            let frame = self.next();
            tags.push(frame.tag() as char);
            if frame.tag() == b'Z' {
                tags.push(frame.body()[0] as char);
                return tags;
            }
        }
    }
}

fn one(connection: &mut Connection, sql: &str) -> String {
    let rows = connection
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.first().map_or_else(String::new, |row| row.string(0))
}

fn code(connection: &mut Connection, sql: &str) -> String {
    let error = connection.query(sql).unwrap_err();
    error.code().unwrap_or("none").to_owned()
}

#[test]
fn a_block_reads_one_state_and_what_is_outside_reads_the_newest() {
    let mut fixture = Fixture::new(3);
    let (mut reader, mut other) = (fixture.connect(), fixture.connect());
    assert_eq!(reader.parameter("server_version"), Some("15.4"));
    let name = "SELECT name FROM t WHERE id = 1";
    one(&mut reader, "BEGIN");
    assert_eq!(reader.transaction_status(), b'T');
    assert_eq!(one(&mut reader, name), "first");
    fixture.commit(&[1], "second");
    assert_eq!(one(&mut reader, name), "first");
    assert_eq!(one(&mut reader, "SHOW hindcast.lsn"), "0/10");
    assert_eq!(one(&mut other, name), "second");
    assert_eq!(
        one(&mut other, "SELECT name FROM t AS OF '0/10' WHERE id = 1"),
        "first"
    );
    one(&mut reader, "COMMIT");
    assert_eq!(one(&mut reader, name), "second");
    assert_eq!(one(&mut reader, "SHOW hindcast.lsn"), "0/20");
}

#[test]
fn a_session_can_be_in_the_past() {
    let mut fixture = Fixture::new(1);
    fixture.commit(&[1], "second");
    let mut session = fixture.connect();
    let name = "SELECT name FROM t";
    one(&mut session, "SET hindcast.as_of = '0/10'");
    assert_eq!(one(&mut session, name), "first");
    assert_eq!(one(&mut session, "SHOW hindcast.as_of"), "0/10");
    one(&mut session, "SET hindcast.as_of = '0/FFFF'");
    let error = session.query(name).unwrap_err();
    assert_eq!(error.code(), Some("22023"));
    assert!(error.server().unwrap().hint.is_some());
    assert_eq!(code(&mut session, "SET hindcast.as_of = 'soon'"), "22023");
    // What a block set goes with it.
    one(&mut session, "RESET hindcast.as_of");
    one(&mut session, "BEGIN");
    one(&mut session, "SET hindcast.as_of = '0/10'");
    one(&mut session, "ROLLBACK");
    assert_eq!(one(&mut session, name), "second");
}

#[test]
fn an_error_ends_a_text_and_fails_a_block() {
    let fixture = Fixture::new(3);
    let mut session = fixture.connect();
    let sql = "SELECT 1 FROM t LIMIT 1; SELECT nothing FROM t; SELECT name FROM t";
    assert_eq!(code(&mut session, sql), "42703");
    assert_eq!(session.transaction_status(), b'I');
    one(&mut session, "BEGIN");
    assert_eq!(code(&mut session, "SELECT nothing FROM t"), "42703");
    assert_eq!(session.transaction_status(), b'E');
    assert_eq!(code(&mut session, "SELECT name FROM t"), "25P02");
    one(&mut session, "COMMIT");
    assert_eq!(session.transaction_status(), b'I');
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "3");
    assert_eq!(
        code(&mut session, "SET client_encoding = 'LATIN1'"),
        "0A000"
    );
    assert_eq!(one(&mut session, ""), "");
    for (name, value) in [
        ("my.own", "x"),
        ("search_path", "shop"),
        ("DateStyle", "iso"),
    ] {
        one(&mut session, &format!("SET {name} = '{value}'"));
    }
    assert_eq!(one(&mut session, "SHOW my.own"), "x");
    assert_eq!(one(&mut session, "SHOW search_path"), "shop");
    assert_eq!(one(&mut session, "SHOW datestyle"), "ISO, MDY");
    assert_eq!(
        one(&mut session, "SHOW transaction_isolation"),
        "repeatable read"
    );
    assert_eq!(
        one(&mut session, "SELECT visible_lsn FROM hindcast.status"),
        "0/10"
    );
    one(&mut session, "DISCARD ALL");
    assert_eq!(code(&mut session, "SHOW my.own"), "42704");
}

#[test]
fn prepared_statements_take_text_and_binary_parameters() {
    let fixture = Fixture::new(20);
    let mut session = fixture.connect();
    let mut pipeline = session.pipeline();
    pipeline.prepare("s", "SELECT name, id FROM t WHERE id = $1", &[]);
    pipeline.run("s", &[Parameter::Text(b"7")]);
    pipeline.run("s", &[Parameter::Binary(&8_i32.to_be_bytes())]);
    pipeline.run("s", &[Parameter::Null]);
    let outcomes = pipeline.finish().unwrap();
    let ids: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.rows.first().map(|row| row.string(1)))
        .collect();
    assert_eq!(ids, [Some("7".to_owned()), Some("8".to_owned()), None]);
    let mut pipeline = session.pipeline();
    pipeline.run("s", &[Parameter::Text(b"x")]);
    pipeline.run("s", &[Parameter::Text(b"1")]);
    assert_eq!(pipeline.finish().unwrap_err().code(), Some("22P02"));
    one(&mut session, "DEALLOCATE s");
    let mut pipeline = session.pipeline();
    pipeline.run("s", &[Parameter::Text(b"1")]);
    assert_eq!(pipeline.finish().unwrap_err().code(), Some("26000"));
}

#[test]
fn results_come_in_parts_and_in_binary() {
    let fixture = Fixture::new(5);
    let mut raw = fixture.raw();
    raw.send(|out| {
        frontend::parse(out, b"", b"SELECT id, price FROM t ORDER BY id", &[]);
        // No parameters; all results in binary.
        out.extend_from_slice(b"B\0\0\0\x0e\0\0\0\0\0\0\0\x01\0\x01");
        frontend::describe(out, frontend::Target::Portal(b""));
        frontend::execute(out, b"", 2);
        frontend::execute(out, b"", 2);
        frontend::execute(out, b"", 2);
        frontend::sync(out);
    });
    let mut tags = String::new();
    let mut rows = Vec::new();
    loop {
        let frame = raw.next();
        tags.push(frame.tag() as char);
        match frame.tag() {
            b'D' => rows.push(frame.body().to_vec()),
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(tags, "12TDDsDDsDCZ");
    assert_eq!(
        rows[4],
        b"\0\x02\0\0\0\x04\0\0\0\x05\0\0\0\x0c\0\x02\0\0\0\0\0\x02\0\x01\x13\x88"
    );
    // After an error everything is skipped up to the next Sync, and the portal is gone with the
    // transaction.
    raw.send(|out| {
        frontend::execute(out, b"", 0);
        frontend::parse(out, b"", b"SELECT id FROM t", &[]);
        frontend::sync(out);
        frontend::query(out, b"SELECT id FROM t WHERE id = 1");
    });
    assert_eq!(raw.until_ready(), "EZI");
    assert_eq!(raw.until_ready(), "TDCZI");
}

#[test]
fn a_running_statement_can_be_cancelled() {
    let fixture = Fixture::new(100_000);
    let mut session = fixture.connect();
    let token = session.cancel_token();
    // The result does not fit into what lies between server and client, so it runs until somebody
    // reads.
    let mut raw = fixture.raw();
    raw.send(|out| frontend::query(out, b"SELECT * FROM t a JOIN t b ON a.id = b.id"));
    let first = raw.next();
    assert_eq!(first.tag(), b'T');
    // Other sessions go on meanwhile, and a key that is not right does nothing.
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100000");
    token.cancel().unwrap();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100000");
    drop(raw);
    one(&mut session, "SET statement_timeout = '1us'");
    assert_eq!(code(&mut session, "SELECT * FROM t"), "57014");
    let token = session.cancel_token();
    one(&mut session, "SET statement_timeout = 0");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Until it hits a moment in which the other runs.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) && token.cancel().is_ok() {
                std::thread::yield_now();
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let end = loop {
            match session.query("SELECT * FROM t") {
                Ok(_) if Instant::now() < deadline => {}
                other => break other,
            }
        };
        done.store(true, Ordering::SeqCst);
        assert_eq!(end.unwrap_err().code(), Some("57014"));
    });
}

#[test]
fn what_is_no_session_is_answered_and_ended() {
    let fixture = Fixture::new(1);
    // SSL is refused politely, and the session goes on without.
    let mut socket = fixture.socket();
    socket.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
    let refused: [(&[Pair<'_>], &[u8]); 4] = [
        (&[(b"user", b"a"), (b"replication", b"true")], b"0A000"),
        (&[(b"user", b"a"), (b"database", b"other")], b"3D000"),
        (
            &[(b"user", b"a"), (b"client_encoding", b"LATIN1")],
            b"0A000",
        ),
        (&[], b"28000"),
    ];
    for (parameters, code) in refused {
        let mut raw = Raw {
            socket: fixture.socket(),
            input: BytesMut::new(),
        };
        raw.send(|out| frontend::startup(out, frontend::PROTOCOL_3_0, parameters));
        let frame = raw.next();
        let fields = hindcast_wire::message::backend::Fields::parse(frame.body()).unwrap();
        assert_eq!((fields.sqlstate(), fields.is_fatal()), (code, true));
    }
    // Garbage at the beginning and later.
    let mut socket = fixture.socket();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&b'E'));
    let mut raw = fixture.raw();
    raw.send(|out| out.extend_from_slice(b"\x01garbage"));
    assert_eq!(raw.next().tag(), b'E');
    // A client that goes in the middle of a message, and one that does not read what it asked for.
    let mut raw = fixture.raw();
    raw.send(|out| out.extend_from_slice(b"Q\0\0\x10\0SELECT"));
    raw.socket.shutdown(Shutdown::Both).unwrap();
    let mut session = fixture.connect();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "1");
    drop(session);
    let deadline = Instant::now() + Duration::from_secs(60);
    while fixture.server.sessions() > 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(fixture.store.metrics().readers, 0);
}

#[test]
fn the_end_of_the_server_is_the_end_of_its_sessions() {
    let fixture = Fixture::new(100_000);
    let mut idle = fixture.raw();
    let mut stuck = fixture.raw();
    stuck.send(|out| frontend::query(out, b"SELECT * FROM t"));
    assert_eq!(stuck.next().tag(), b'T');
    let Fixture { server, store, .. } = fixture;
    drop(server);
    let mut rest = Vec::new();
    let _ = idle.socket.read_to_end(&mut rest);
    assert!(String::from_utf8_lossy(&rest).contains("57P01"));
    let _ = stuck.socket.read_to_end(&mut rest);
    assert_eq!(store.metrics().readers, 0);
}

#[test]
fn psql_can_be_used() {
    let fixture = Fixture::new(3);
    let psql = Binaries::find().unwrap().program("psql");
    let output = Command::new(psql)
        .args([
            "-X",
            "-At",
            "-c",
            "SELECT id, name FROM t ORDER BY id DESC LIMIT 2",
        ])
        .args(["-c", "SHOW server_version"])
        .arg(format!("postgres://ann@{}/shop", fixture.server.address()))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "3|first\n2|first\n15.4\n",
        "{error}"
    );
}

#[test]
fn an_error_comes_before_a_client_says_that_it_is_through() {
    let fixture = Fixture::new(1);
    let mut raw = fixture.raw();
    // As asyncpg prepares: it sends `Sync` when it knows how that went.
    raw.send(|out| {
        frontend::parse(out, b"s", b"SELECT nonsense", &[]);
        frontend::flush(out);
    });
    assert_eq!(raw.next().tag(), b'E');
    raw.send(frontend::sync);
    assert_eq!(raw.until_ready(), "ZI");
}

#[test]
fn drivers_are_told_which_server_it_is_and_that_types_are_not_there() {
    let fixture = Fixture::new(1);
    let mut session = fixture.connect();
    for (sql, answer) in [
        (
            "SELECT pg_catalog.version()",
            "PostgreSQL 15.4 (hindcast standby in memory)",
        ),
        ("SELECT current_database(), current_user", "shop"),
        ("SELECT current_user", "ann"),
        ("SELECT current_schema()", "public"),
        ("SELECT current_setting('server_version') AS v", "15.4"),
        ("SELECT pg_is_in_recovery()", "t"),
    ] {
        assert_eq!(one(&mut session, sql), answer, "{sql}");
    }
    let rows = session.query(
        "SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'",
    );
    assert!(rows.unwrap().is_empty());
    let rows = session.query("SELECT typname AS name, oid FROM pg_type t WHERE t.oid = to_regtype('hstore') ORDER BY t.oid");
    assert!(rows.unwrap().is_empty());
    // As pgjdbc asks for the name of a type.
    let asked = "SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t \
        JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = $1";
    let mut pipeline = session.pipeline();
    pipeline.prepare("type", asked, &[]);
    pipeline.run("type", &[Parameter::Text(b"1700")]);
    pipeline.run("type", &[Parameter::Text(b"999999")]);
    let outcomes = pipeline.finish().unwrap();
    let rows = outcomes.iter().map(|outcome| outcome.rows.first());
    let said: Vec<_> = rows
        .map(|row| row.map(|row| [row.string(0), row.string(1), row.string(2)].join(" ")))
        .collect();
    assert_eq!(said, [Some("t pg_catalog numeric".to_owned()), None]);
    assert_eq!(code(&mut session, "SELECT typname FROM pg_type"), "0A000");
    assert_eq!(
        code(&mut session, "SELECT current_setting('no_such')"),
        "42704"
    );
    assert_eq!(code(&mut session, "SELECT version(), random()"), "0A000");
}

#[test]
fn a_block_goes_back_to_a_savepoint_and_reads_the_state_that_it_has_read() {
    let mut fixture = Fixture::new(3);
    let mut reader = fixture.connect();
    let name = "SELECT name FROM t WHERE id = 1";
    assert_eq!(code(&mut reader, "SAVEPOINT a"), "25P01");
    one(&mut reader, "BEGIN");
    assert_eq!(one(&mut reader, name), "first");
    one(&mut reader, "SAVEPOINT a");
    one(&mut reader, "SET application_name = 'other'");
    assert_eq!(code(&mut reader, "SELECT nonsense"), "42703");
    fixture.commit(&[1], "second");
    assert_eq!(code(&mut reader, name), "25P02");
    one(&mut reader, "ROLLBACK TO a");
    assert_eq!(reader.transaction_status(), b'T');
    assert_eq!(one(&mut reader, name), "first");
    assert_eq!(one(&mut reader, "SHOW application_name"), "test");
    one(&mut reader, "RELEASE a");
    assert_eq!(code(&mut reader, "ROLLBACK TO a"), "3B001");
    one(&mut reader, "ROLLBACK");
    assert_eq!(one(&mut reader, name), "second");
}
