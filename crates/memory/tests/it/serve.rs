//! Clients of the server in front of the store: psql, tokio-postgres, and some that do not behave.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::serve_support::{ACCOUNT, Standby, code, first, one, wait};
use bytes::BytesMut;
use hindcast_cluster::Binaries;
use hindcast_memory::serve::Door;
use hindcast_pg::scram::Verifier;
use hindcast_pg::{ConnectOptions, Connection, ServerIdentity};
use hindcast_store::Mark;
use hindcast_wire::message::frontend;
use tokio_postgres::types::{FromSql, Type};

#[test]
fn psql_reads() {
    let standby = Standby::filled(3);
    let output = standby.psql(&[
        "-c",
        "SELECT id, owner, balance, active, since FROM account WHERE id > 1 ORDER BY id",
        "-c",
        "SHOW hindcast.lsn; SELECT count(*) FROM account",
        "-c",
        "SELECT visible_lsn FROM hindcast.status",
    ]);
    let shown = String::from_utf8_lossy(&output.stdout);
    expect_test::expect![[r#"
        2|owner 2|100.00|t|2026-11-21 10:15:00.5+00
        3|owner 3|100.00||2026-11-21 10:15:00.5+00
        0/3E8
        3
        0/3E8
    "#]]
    .assert_eq(&shown);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn only_who_knows_the_password_reads() {
    let standby = Standby::behind(&Door {
        password: Some(Verifier::of_password("pä ss")),
        ..Door::open("127.0.0.1:0")
    });
    let address = standby.server.address();
    let psql = |password: &str| {
        let program = Binaries::find().unwrap().program("psql");
        let output = Command::new(program)
            .args(["-w", "-X", "-A", "-t", "-c", "SELECT count(*) FROM account"])
            .env("PGHOST", address.ip().to_string())
            .env("PGPORT", address.port().to_string())
            .env("PGUSER", "ann")
            .env("PGDATABASE", "shop")
            .env("PGPASSWORD", password)
            .env("PGCHANNELBINDING", "prefer")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    assert_eq!(psql("pä ss"), "0\n");
    for wrong in ["pass", "p"] {
        let said = psql(wrong);
        assert!(
            said.contains("password authentication failed for user \"ann\""),
            "{said}"
        );
    }
    // Our own client is the same to it, and no password at all is none.
    let connect = |login: &str| {
        let url = format!("postgres://{login}@{address}/shop")
            .parse()
            .unwrap();
        Connection::connect(&url, &ConnectOptions::named("test"))
    };
    assert!(connect("ann:p%C3%A4%20ss").is_ok());
    assert!(connect("ann").is_err());
    // Nothing is answered to a client that skips its login.
    let mut bytes = BytesMut::new();
    frontend::startup(
        &mut bytes,
        frontend::PROTOCOL_3_0,
        &[(b"user", b"ann"), (b"database", b"shop")],
    );
    frontend::query(&mut bytes, b"SELECT * FROM account");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.contains("expected SASL response") && !answer.contains("owner"),
        "{answer}"
    );
}

#[test]
fn with_a_certificate_nothing_is_said_in_the_clear() {
    let mut standby = Standby::behind(&Door {
        password: Some(Verifier::of_password("secret")),
        identity: Some(ServerIdentity::generated()),
        ..Door::open("127.0.0.1:0")
    });
    for id in 1..=3000 {
        standby.put(id, "7.25");
    }
    standby.commit(2000);
    let address = standby.server.address();
    let psql = |mode: &str, password: &str| {
        let output = Command::new(Binaries::find().unwrap().program("psql"))
            .args(["-w", "-X", "-A", "-t"])
            .args([
                "-c",
                "SELECT sum(balance) FROM account",
                "-c",
                "SELECT * FROM account",
            ])
            .arg(format!(
                "postgres://ann:{password}@{address}/shop?sslmode={mode}"
            ))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    for mode in ["prefer", "require"] {
        let said = psql(mode, "secret");
        assert!(said.starts_with("21750.00\n"), "{said}");
        // More than a record of TLS, or its buffers, can hold.
        assert_eq!(said.lines().count(), 3001, "{mode}");
    }
    assert!(psql("require", "wrong").contains("password authentication failed"));
    let said = psql("disable", "secret");
    assert!(
        said.contains("encrypted only") && !said.contains("21750"),
        "{said}"
    );
    // Our own client, and a certificate of nobody whom it knows.
    let connect = |mode: &str| {
        let url = format!("postgres://ann:secret@{address}/shop?sslmode={mode}");
        Connection::connect(&url.parse().unwrap(), &ConnectOptions::named("test"))
    };
    assert_eq!(
        one(
            &mut connect("require").unwrap(),
            "SELECT count(*) FROM account"
        ),
        "3000"
    );
    assert!(connect("verify-full&sslrootcert=system").is_err());

    // Words that came before encryption are not taken for the client's.
    let mut bytes = BytesMut::new();
    bytes.extend_from_slice(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
    frontend::query(&mut bytes, b"SELECT * FROM account");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"S");
    standby.wait_until_nobody_is_there();
}

#[test]
fn psql_is_told_why_it_gets_nothing() {
    let standby = Standby::filled(1);
    let output = standby.psql(&[
        "-c",
        "DELETE FROM account",
        "-c",
        "SELECT count(*) OVER () FROM account",
        "-c",
        "\\dt",
        "-c",
        "SELECT 1 FROM acount",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    for part in [
        "read-only transaction",
        "OVER",
        "not supported here",
        "hindcast standby --to",
        "\"acount\" does not exist",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!output.status.success());
    standby.wait_until_nobody_is_there();
}

/// A value as it came.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[tokio::test]
async fn prepared_statements_take_and_give_binary_values() {
    let standby = Standby::filled(20);
    let client = standby.tokio().await;
    let statement = client
        .prepare("SELECT id, owner, active, rate, data, balance, since FROM account WHERE id >= $1 AND owner <> $2 AND rate = $3 AND active = $4 ORDER BY id LIMIT $5")
        .await
        .unwrap();
    assert_eq!(
        statement.params(),
        [Type::INT4, Type::TEXT, Type::FLOAT8, Type::BOOL, Type::INT8]
    );
    for start in [1, 11] {
        let rows = client
            .query(&statement, &[&start, &"owner 1", &0.25_f64, &true, &2_i64])
            .await
            .unwrap();
        let ids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(ids, if start == 1 { [2, 4] } else { [11, 12] });
        let row = &rows[0];
        assert_eq!(row.get::<_, String>(1), format!("owner {}", ids[0]));
        assert!(row.get::<_, bool>(2));
        assert_eq!(row.get::<_, f64>(3), 0.25);
        assert_eq!(row.get::<_, Vec<u8>>(4), [0, 0xFF]);
        // 100.00: one digit to the base of ten thousand, of weight 0, positive, two behind the
        // point.
        assert_eq!(row.get::<_, Raw>(5).0, [0, 1, 0, 0, 0, 0, 0, 2, 0, 100]);
        let micros = i64::from_be_bytes(row.get::<_, Raw>(6).0.try_into().unwrap());
        assert_eq!(
            micros,
            crate::serve_support::TEN + 900_500_000 - 946_684_800_000_000
        );
    }
    let nothing = client
        .query("SELECT id FROM account WHERE active = $1", &[&None::<bool>])
        .await
        .unwrap();
    assert!(nothing.is_empty());
    // A point has no binary form here, and text is fine.
    let refused = client.query("SELECT place FROM account", &[]).await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "0A000");
    let messages = client
        .simple_query("SELECT place FROM account LIMIT 1")
        .await
        .unwrap();
    assert!(messages.iter().any(|message| matches!(
        message,
        tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("(1,2)")
    )));
}

#[tokio::test]
async fn results_are_fetched_in_parts() {
    let standby = Standby::filled(25);
    let mut client = standby.tokio().await;
    let block = client.transaction().await.unwrap();
    let portal = block
        .bind("SELECT id FROM account ORDER BY id DESC", &[])
        .await
        .unwrap();
    let mut ids: Vec<i32> = Vec::new();
    loop {
        let part = block.query_portal(&portal, 10).await.unwrap();
        ids.extend(part.iter().map(|row| row.get::<_, i32>(0)));
        if part.len() < 10 {
            break;
        }
    }
    assert_eq!(ids, (1..=25).rev().collect::<Vec<_>>());
    drop(portal);
    block.commit().await.unwrap();
}

/// Every error names what it is, and the session goes on.
#[test]
fn refusals_have_the_codes_of_postgres() {
    let standby = Standby::filled(2);
    let mut client = standby.connect();
    for (sql, wanted) in [
        ("INSERT INTO account (id) VALUES (9)", "25006"),
        ("CREATE INDEX ON account (owner)", "25006"),
        ("SELECT * FROM account FOR UPDATE", "25006"),
        ("SELECT lower(owner) FROM account", "0A000"),
        ("COPY account TO STDOUT", "0A000"),
        ("DECLARE c CURSOR FOR SELECT 1", "0A000"),
        ("LISTEN x", "0A000"),
        ("SELECT nothing FROM account", "42703"),
        ("SELECT 1 FROM nothing", "42P01"),
        ("SELECT FROM WHERE", "42601"),
        ("SELECT id FROM account WHERE id = 'x'", "22P02"),
        ("SET hindcast.nothing = 1", "42704"),
        ("SHOW nothing", "42704"),
        ("SET client_encoding = 'LATIN1'", "0A000"),
        ("DEALLOCATE nothing", "26000"),
        ("SELECT 1; SELEC", "42601"),
    ] {
        assert_eq!(code(&mut client, sql), wanted, "{sql}");
        assert_eq!(client.transaction_status(), b'I', "{sql}");
    }
    assert_eq!(one(&mut client, "SELECT count(*) FROM account"), "2");
}

#[test]
fn harmless_settings_are_as_clients_expect_them() {
    let standby = Standby::filled(1);
    let mut client = standby.connect();
    assert_eq!(client.parameter("server_version"), Some("15.4"));
    for sql in [
        "SET extra_float_digits = 3",
        "SET application_name = 'x'",
        "SET search_path TO public, other",
        "SET statement_timeout = '10s'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET NAMES 'UTF8'",
        "RESET ALL",
        "DISCARD ALL",
        "",
    ] {
        client
            .query(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    assert_eq!(one(&mut client, "SHOW server_version"), "15.4");
    assert_eq!(one(&mut client, "SHOW transaction_read_only"), "on");
    assert_eq!(one(&mut client, "SHOW TimeZone"), "UTC");
    client
        .query("BEGIN; SET application_name = 'y'; ROLLBACK")
        .unwrap();
    assert_eq!(one(&mut client, "SHOW application_name"), "test");
    client
        .query("BEGIN; SET LOCAL hindcast.as_of = '0/3E8'; COMMIT")
        .unwrap();
    assert_eq!(
        one(&mut client, "SHOW hindcast.as_of"),
        "",
        "SET LOCAL ends with its block"
    );
}

#[test]
fn past_states_are_read_by_lsn_and_by_time() {
    let mut standby = Standby::filled(2);
    standby.put(1, "70.00");
    standby.commit(2000);
    standby.put(1, "60.00");
    standby.commit(3000);
    let mut client = standby.connect();
    let balance = "SELECT balance FROM account";
    for (clause, wanted) in [
        ("", "60.00"),
        ("AS OF '0/3E8'", "100.00"),
        ("AS OF LSN '0/7CF'", "100.00"),
        ("AS OF '0/7D0'", "70.00"),
        ("AS OF TIMESTAMP '2026-11-21 10:00:00.0025+00'", "70.00"),
        ("AS OF '2026-11-21 11:00:00.002+01'", "70.00"),
        ("AS OF '2026-11-21 10:00:00.003'", "60.00"),
        ("as of '0/7D0' a", "70.00"),
    ] {
        let sql = format!("{balance} {clause} WHERE id = 1");
        assert_eq!(one(&mut client, &sql), wanted, "{clause}");
    }
    client.query("SET hindcast.as_of = '0/7D0'").unwrap();
    assert_eq!(one(&mut client, balance), "70.00");
    assert_eq!(
        one(&mut client, "SELECT sum(balance) FROM account"),
        "170.00"
    );
    client.query("SET hindcast.as_of = ''").unwrap();
    assert_eq!(one(&mut client, balance), "60.00");
    for (clause, said) in [
        ("0/FFFF", "not here yet"),
        ("2030-01-01", "not here yet"),
        ("0/10", "not kept any more"),
        ("yesterday", "neither an LSN nor a time"),
    ] {
        let error = client
            .query(&format!("{balance} AS OF '{clause}'"))
            .unwrap_err();
        let error = error.server().unwrap();
        assert!(error.message.contains(said), "{clause}: {}", error.message);
        assert!(error.hint.is_some(), "{clause}");
    }
    assert_eq!(code(&mut client, "SHOW x AS OF '0/7D0'"), "42601");
}

#[tokio::test]
async fn a_past_state_may_be_a_parameter_or_some_time_ago() {
    let mut standby = Standby::filled(2);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for (id, lsn, seconds_ago) in [(3, 2000, 60), (4, 3000, 0)] {
        standby.put(id, "1.00");
        let time = now - Duration::from_secs(seconds_ago);
        let time = i64::try_from(time.as_micros()).unwrap();
        standby.appender.commit(Mark { lsn, time });
        standby.appender.flush();
        wait(|| standby.store.visible().lsn == lsn);
    }
    let client = standby.tokio().await;
    let count = "SELECT count(*) FROM account AS OF $1 WHERE id > $2";
    for (at, wanted) in [("0/7D0", 3), ("2026-11-21 10:00:00.002", 2), ("0/BB8", 4)] {
        let row = client.query_one(count, &[&at, &0_i32]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), wanted, "{at}");
    }
    for (at, code) in [(Some("soon"), "22023"), (None, "22004")] {
        let error = client.query_one(count, &[&at, &0_i32]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), code, "{at:?}");
    }
    for ago in [
        "now() - interval '30 seconds'",
        "(now() - interval '0:00:30')",
    ] {
        let sql = format!("SELECT count(*) FROM account AS OF {ago}");
        let row = client.query_one(&sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 3, "{ago}");
    }
}

#[test]
fn a_block_keeps_its_state_while_the_store_moves_on() {
    let mut standby = Standby::filled(2);
    let (mut client, mut other) = (standby.connect(), standby.connect());
    let count = "SELECT count(*) FROM account";
    client.query("BEGIN").unwrap();
    assert_eq!(client.transaction_status(), b'T');
    assert_eq!(one(&mut client, count), "2");
    for id in 3..=10 {
        standby.put(id, "1.00");
        standby.commit(1000 + id as u64);
    }
    standby.appender.truncate(ACCOUNT);
    standby.put(1, "5.00");
    standby.commit(2000);
    assert_eq!(one(&mut other, count), "1");
    assert_eq!(
        first(&mut client, "SELECT count(*), sum(balance) FROM account"),
        [Some("2".to_owned()), Some("200.00".to_owned())]
    );
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM account AS OF '0/3F0'"),
        "8"
    );
    assert_eq!(one(&mut client, count), "2");
    client.query("COMMIT").unwrap();
    assert_eq!(client.transaction_status(), b'I');
    assert_eq!(one(&mut client, count), "1");
    wait(|| standby.store.metrics().readers == 0);
}

#[test]
fn an_error_ends_a_block_but_for_its_end() {
    let standby = Standby::filled(2);
    let mut client = standby.connect();
    client.query("START TRANSACTION READ ONLY").unwrap();
    one(&mut client, "SELECT count(*) FROM account");
    assert_eq!(code(&mut client, "SELECT x FROM account"), "42703");
    assert_eq!(client.transaction_status(), b'E');
    assert_eq!(code(&mut client, "SELECT count(*) FROM account"), "25P02");
    assert_eq!(code(&mut client, "nonsense"), "25P02");
    assert_eq!(
        standby.store.metrics().readers,
        0,
        "nobody can read from it"
    );
    client.query("COMMIT").unwrap();
    assert_eq!(client.transaction_status(), b'I');
    assert_eq!(one(&mut client, "SELECT count(*) FROM account"), "2");
}

/// Money moves between accounts all the time; nobody ever sees it on its way.
#[test]
fn sixteen_clients_read_states_that_were() {
    let mut standby = Standby::filled(50);
    let over = AtomicBool::new(false);
    let url: hindcast_pg::DatabaseUrl = standby.url().parse().unwrap();
    let looks: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|reader| {
                let (over, url) = (&over, &url);
                scope.spawn(move || {
                    let options = hindcast_pg::ConnectOptions::named("reader");
                    let mut client = hindcast_pg::Connection::connect(url, &options).unwrap();
                    let mut looks = 0;
                    while looks < 5 || !over.load(Ordering::SeqCst) {
                        if reader % 2 == 0 {
                            let sum = one(&mut client, "SELECT sum(balance) FROM account");
                            assert_eq!(sum, "5000.00");
                        } else {
                            client.query("BEGIN").unwrap();
                            let all = client.query("SELECT id, balance FROM account").unwrap();
                            let sum: f64 = all
                                .iter()
                                .map(|row| row.text(1).unwrap().parse::<f64>().unwrap())
                                .sum();
                            assert_eq!(sum, 5000.0);
                            let id = looks % 50 + 1;
                            let again = one(
                                &mut client,
                                &format!("SELECT balance FROM account WHERE id = {id}"),
                            );
                            assert_eq!(
                                Some(again.as_str()),
                                all.get(id as usize - 1).unwrap().text(1)
                            );
                            client.query("COMMIT").unwrap();
                        }
                        looks += 1;
                    }
                    looks
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(2);
        let mut lsn = 1000;
        while Instant::now() < end {
            lsn += 1;
            let (from, to) = ((lsn % 50) as i32 + 1, (lsn * 7 % 50) as i32 + 1);
            if from != to {
                standby.put(from, &format!("{}.00", 100 - lsn % 90));
                standby.put(to, &format!("{}.00", 100 + lsn % 90));
                standby.commit(lsn);
                // Back again, so that what each account has is known.
                lsn += 1;
                standby.put(from, "100.00");
                standby.put(to, "100.00");
                standby.commit(lsn);
            }
        }
        over.store(true, Ordering::SeqCst);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    assert!(looks >= 16 * 5);
    standby.wait_until_nobody_is_there();
}

fn raw(standby: &Standby) -> TcpStream {
    let stream = TcpStream::connect(standby.server.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

fn started(standby: &Standby) -> TcpStream {
    let mut stream = raw(standby);
    let mut out = BytesMut::new();
    frontend::startup(
        &mut out,
        frontend::PROTOCOL_3_0,
        &[(b"user", b"ann"), (b"database", b"shop")],
    );
    stream.write_all(&out).unwrap();
    until_ready(&mut stream);
    stream
}

/// The tags of the messages up to the next `ReadyForQuery`.
fn until_ready(stream: &mut TcpStream) -> String {
    let mut tags = String::new();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        tags.push(char::from(head[0]));
        if head[0] == b'Z' {
            return tags;
        }
    }
}

#[test]
fn encryption_is_declined_and_the_client_goes_on() {
    let standby = Standby::filled(1);
    let mut stream = raw(&standby);
    for request in [frontend::GSSENC_REQUEST, frontend::SSL_REQUEST] {
        stream.write_all(&8_u32.to_be_bytes()).unwrap();
        stream.write_all(&request.to_be_bytes()).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
    }
    let mut out = BytesMut::new();
    frontend::startup(&mut out, frontend::PROTOCOL_3_0, &[(b"user", b"ann")]);
    stream.write_all(&out).unwrap();
    let tags = until_ready(&mut stream);
    assert!(tags.starts_with('R') && tags.ends_with("KZ"), "{tags}");
}

#[test]
fn after_an_error_everything_is_skipped_until_sync() {
    let standby = Standby::filled(1);
    let mut stream = started(&standby);
    let mut out = BytesMut::new();
    frontend::parse(&mut out, b"a", b"SELECT id FROM account", &[]);
    frontend::parse(&mut out, b"", b"SELECT nothing FROM account", &[]);
    frontend::bind(&mut out, b"", b"a", &[]);
    frontend::execute(&mut out, b"", 0);
    frontend::sync(&mut out);
    // The statement before the error is there.
    frontend::bind(&mut out, b"p", b"a", &[]);
    frontend::describe(&mut out, frontend::Target::Portal(b"p"));
    frontend::execute(&mut out, b"p", 1);
    frontend::execute(&mut out, b"p", 1);
    frontend::close(&mut out, frontend::Target::Statement(b"a"));
    frontend::sync(&mut out);
    // That portal is gone with its transaction, and the statement was closed.
    frontend::execute(&mut out, b"p", 0);
    frontend::sync(&mut out);
    frontend::bind(&mut out, b"", b"a", &[]);
    frontend::sync(&mut out);
    frontend::query(&mut out, b"SELECT 1; SELECT 2");
    frontend::query(&mut out, b" ; ");
    stream.write_all(&out).unwrap();
    let said: Vec<String> = (0..6).map(|_| until_ready(&mut stream)).collect();
    assert_eq!(said, ["1EZ", "2TDsC3Z", "EZ", "EZ", "TDCTDCZ", "IZ"]);
}

#[test]
fn what_is_no_protocol_ends_the_connection_and_nothing_else() {
    let standby = Standby::filled(1);
    let mut good = standby.connect();
    let mut endings: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0, 0, 0, 0],
        vec![0xFF; 64],
        vec![0, 0, 0, 8, 0, 9, 0, 0],
        // Somebody else's session is to be cancelled, without its secret.
        [16_u32, frontend::CANCEL_REQUEST, 1, 0]
            .map(u32::to_be_bytes)
            .concat(),
    ];
    for bytes in endings.drain(..) {
        let mut stream = raw(&standby);
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // It may be reset, for not everything was read.
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer[0] == b'E',
            "{bytes:?}: {answer:?}"
        );
    }
    for bytes in [
        &b"Q\xFF\xFF\xFF\xFF"[..],
        b"Q\0\0\0\x01",
        b"\0\0\0\0\x04",
        b"B\0\0\0\x06xx",
        b"P\0\0\0\x05x",
    ] {
        let mut stream = started(&standby);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer[0] == b'E',
            "{bytes:?}: {answer:?}"
        );
    }
    assert_eq!(one(&mut good, "SELECT count(*) FROM account"), "1");
    drop(good);
    standby.wait_until_nobody_is_there();
}

#[test]
fn a_client_that_vanishes_leaves_nothing() {
    let standby = Standby::filled(2000);
    // In a block that holds a state; and in the middle of a result that it does not read.
    let mut block = started(&standby);
    let mut out = BytesMut::new();
    frontend::query(&mut out, b"BEGIN");
    frontend::query(&mut out, b"SELECT count(*) FROM account");
    block.write_all(&out).unwrap();
    until_ready(&mut block);
    until_ready(&mut block);
    assert_eq!(standby.store.metrics().readers, 1);
    let mut deaf = started(&standby);
    out.clear();
    for _ in 0..200 {
        frontend::query(&mut out, b"SELECT * FROM account");
    }
    deaf.write_all(&out).unwrap();
    assert_eq!(standby.server.sessions(), 2);
    drop((block, deaf));
    standby.wait_until_nobody_is_there();
}

#[test]
fn the_server_ends_its_sessions_when_it_ends() {
    let standby = Standby::filled(2000);
    let mut idle = standby.connect();
    idle.query("BEGIN; SELECT count(*) FROM account").unwrap();
    // Its buffers are full, and the server waits for it to read.
    let mut deaf = started(&standby);
    let mut out = BytesMut::new();
    for _ in 0..200 {
        frontend::query(&mut out, b"SELECT * FROM account");
    }
    deaf.write_all(&out).unwrap();
    let Standby { server, store, .. } = standby;
    wait(|| store.metrics().readers == 2);
    let before = Instant::now();
    drop(server);
    assert!(before.elapsed() < Duration::from_secs(5));
    assert_eq!(store.metrics().readers, 0);
    assert!(idle.query("SELECT 1").is_err());
}

/// Also where no row of many fits, and nothing is to be sent.
#[test]
fn a_statement_takes_no_longer_than_it_may() {
    let standby = Standby::filled(20_000);
    let mut client = standby.connect();
    client.query("SET statement_timeout = '1ms'").unwrap();
    let sql =
        "SELECT id FROM account WHERE owner LIKE '%x%' OR owner LIKE '%y%' OR since < '2001-01-01'";
    assert_eq!(code(&mut client, sql), "57014");
    client.query("SET statement_timeout = 0").unwrap();
    assert!(client.query(sql).unwrap().is_empty());
}

#[tokio::test]
async fn a_statement_is_cancelled() {
    let standby = Standby::filled(20_000);
    let client = standby.tokio().await;
    let token = client.cancel_token();
    let over = AtomicBool::new(false);
    // The store has no slow statement: so one after the other, until one of them is hit.
    let hit = async {
        loop {
            let count = client
                .query(
                    "SELECT count(*) FROM account WHERE owner LIKE '%x%y%z%'",
                    &[],
                )
                .await;
            if let Err(error) = count {
                over.store(true, Ordering::SeqCst);
                return error.code().unwrap().code().to_owned();
            }
        }
    };
    let cancel = async {
        while !over.load(Ordering::SeqCst) {
            token.cancel_query(tokio_postgres::NoTls).await.unwrap();
        }
    };
    let (code, ()) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(hit, cancel) })
            .await
            .expect("one is cancelled");
    assert_eq!(code, "57014");
    let row = client
        .query_one("SELECT 1", &[])
        .await
        .or(client.query_one("SELECT 1", &[]).await);
    assert_eq!(row.unwrap().get::<_, i32>(0), 1);
}
