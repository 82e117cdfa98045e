//! The host of Postgres sessions against a real server and real clients, with drivers that do as
//! little as possible.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use bytes::{Buf, BytesMut};
use hindcast_gateway::ListenAddress;
use hindcast_gateway::pg::{Driver, Flow, Host, Refusal, Server, ServerOptions, SessionStart};
use hindcast_pg::tokio::Connector;
use hindcast_pg::{DatabaseUrl, ServerIdentity};
use hindcast_wire::Wires;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// Forwards whole messages and keeps count of what is outstanding.
#[derive(Default)]
struct Forward {
    started: bool,
    idle: bool,
}

/// Moves the whole messages of `input` to `output` and says the last one's tag and body.
fn forward(input: &mut BytesMut, output: &mut BytesMut) -> Option<(u8, Vec<u8>)> {
    let mut last = None;
    while input.len() >= 5 {
        let length = u32::from_be_bytes(input[1..5].try_into().unwrap()) as usize + 1;
        if input.len() < length {
            break;
        }
        last = Some((input[0], input[5..length.min(64)].to_vec()));
        output.extend_from_slice(&input[..length]);
        input.advance(length);
    }
    last
}

impl Driver for Forward {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.idle = false;
        if !self.started {
            self.started = true;
            wires.to_server.extend_from_slice(input);
            input.clear();
        } else {
            forward(input, &mut wires.to_server);
        }
        Flow::Continue
    }

    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        if let Some((tag, body)) = forward(input, &mut wires.to_client) {
            self.idle = tag == b'Z' && body == b"I";
        }
        Flow::Continue
    }

    fn idle(&self) -> bool {
        self.idle
    }
}

struct Forwarding;

impl Host for Forwarding {
    type Driver = Forward;
    fn open(&self, start: &mut SessionStart) -> Result<Forward, Refusal> {
        match start.parameters.user() {
            "mallory" => Err(Refusal {
                sqlstate: "28000",
                message: "not you".into(),
                hint: Some("go away".into()),
            }),
            _ => Ok(Forward::default()),
        }
    }
}

async fn gateway(url: DatabaseUrl, identity: Option<ServerIdentity>) -> Server<Forwarding> {
    gateway_at(any_port(), url, identity).await
}

async fn gateway_at(
    listen: ListenAddress,
    url: DatabaseUrl,
    identity: Option<ServerIdentity>,
) -> Server<Forwarding> {
    let connector = Arc::new(Connector::new(url).expect("usable certificates"));
    let options = ServerOptions {
        identity,
        runtimes: Vec::new(),
    };
    Server::bind(&listen, options, connector, Arc::new(Forwarding))
        .await
        .expect("bound")
}

#[tokio::test]
async fn sessions_go_through_over_tcp_and_unix_sockets() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join(".s.PGSQL.6432");
    let tcp = gateway(cluster.socket_url("postgres"), None).await;
    let unix = gateway_at(ListenAddress::Unix(socket.clone()), url_of(&cluster), None).await;

    let port = port_of(tcp.handle().address());
    let over_tcp = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let over_unix = format!(
        "host={} port=6432 user=postgres dbname=postgres",
        folder.path().display()
    );
    for connection in [&over_tcp, &over_unix] {
        assert_eq!(psql(connection, "SELECT 6 * 7").await.as_deref(), Ok("42"));
    }
    let refused = psql(
        &over_tcp.replace("user=postgres", "user=mallory"),
        "SELECT 1",
    )
    .await
    .unwrap_err();
    assert!(
        refused.contains("not you") && refused.contains("go away"),
        "{refused}"
    );

    for mode in ["simple", "extended", "prepared"] {
        let port = port.to_string();
        let arguments = [
            "-n",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "postgres",
            "-M",
            mode,
            "-c",
            "4",
            "-t",
            "100",
            "-f",
        ];
        let script = folder.path().join("script.sql");
        std::fs::write(&script, "SELECT :client_id;\n").unwrap();
        let output = run(
            "pgbench",
            &[&arguments[..], &[script.to_str().unwrap(), "postgres"]].concat(),
        )
        .await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("processed: 400/400"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(tcp.shut_down(PATIENCE).await, 0);
    assert_eq!(unix.shut_down(PATIENCE).await, 0);
    assert!(!socket.exists(), "the socket goes with the gateway");
}

#[tokio::test]
async fn clients_may_encrypt() {
    let cluster = cluster().await;
    let certificates = Certificates::new();
    let identity = ServerIdentity::load(&certificates.certificate(), &certificates.key()).unwrap();
    let encrypting = gateway(url_of(&cluster), Some(identity)).await;
    let plain = gateway(url_of(&cluster), None).await;
    let connection = |gateway: &Server<Forwarding>, more: &str| {
        let port = port_of(gateway.handle().address());
        format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {more}"
        )
    };
    let verified = format!(
        "sslmode=verify-full sslrootcert={}",
        certificates.root().display()
    );
    assert_eq!(
        psql(&connection(&encrypting, &verified), "SELECT 1")
            .await
            .as_deref(),
        Ok("1")
    );
    assert_eq!(
        psql(&connection(&encrypting, "sslmode=disable"), "SELECT 1")
            .await
            .as_deref(),
        Ok("1")
    );
    assert_eq!(
        psql(&connection(&plain, "sslmode=prefer"), "SELECT 1")
            .await
            .as_deref(),
        Ok("1")
    );
    let refused = psql(&connection(&plain, "sslmode=require"), "SELECT 1")
        .await
        .unwrap_err();
    assert!(refused.contains("server does not support SSL"), "{refused}");

    // A large result over TLS: records are cut differently from messages.
    let rows = "SELECT md5(n::text) FROM generate_series(1, 50000) n";
    let through = psql(&connection(&encrypting, &verified), rows)
        .await
        .unwrap();
    assert_eq!(through.lines().count(), 50_000);
}

#[tokio::test]
async fn the_server_is_verified_as_far_as_sslmode_asks() {
    let certificates = Certificates::new();
    let cluster = encrypted_cluster(&certificates).await;
    let attempt = async |host: &str, parameters: &str| {
        let port = cluster.port();
        let url = format!("postgres://alice:secret@{host}:{port}/postgres?{parameters}")
            .parse()
            .unwrap();
        let gateway = gateway(url, None).await;
        let through = port_of(gateway.handle().address());
        let connection = format!(
            "host=127.0.0.1 port={through} user=alice password=secret dbname=postgres sslmode=disable"
        );
        psql(
            &connection,
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        )
        .await
    };
    let root = format!("sslrootcert={}", certificates.root().display());
    let stranger = Certificates::new();
    let wrong_root = format!("sslrootcert={}", stranger.root().display());

    assert_eq!(
        attempt("localhost", "sslmode=disable").await.as_deref(),
        Ok("f")
    );
    assert_eq!(
        attempt("localhost", "sslmode=prefer").await.as_deref(),
        Ok("t")
    );
    assert_eq!(
        attempt("localhost", "sslmode=require").await.as_deref(),
        Ok("t")
    );
    assert_eq!(
        attempt("localhost", &format!("sslmode=verify-ca&{root}"))
            .await
            .as_deref(),
        Ok("t")
    );
    assert_eq!(
        attempt("localhost", &format!("sslmode=verify-full&{root}"))
            .await
            .as_deref(),
        Ok("t")
    );
    // The same machine by a name that is not in the certificate.
    assert_eq!(
        attempt("127.0.0.1", &format!("sslmode=verify-ca&{root}"))
            .await
            .as_deref(),
        Ok("t")
    );
    let refused = attempt("127.0.0.1", &format!("sslmode=verify-full&{root}"))
        .await
        .unwrap_err();
    assert!(
        refused.contains("TLS handshake failed") && refused.contains("not valid for name"),
        "{refused}"
    );
    let refused = attempt("localhost", &format!("sslmode=verify-ca&{wrong_root}"))
        .await
        .unwrap_err();
    assert!(refused.contains("TLS handshake failed"), "{refused}");
    let url: DatabaseUrl = "postgres://h/d?sslmode=verify-full".parse().unwrap();
    let error = Connector::new(url).unwrap_err().to_string();
    assert!(error.contains("sslrootcert"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_only_if_tls_was_asked_for() {
    let cluster = cluster().await;
    let attempt = async |mode: &str| {
        let url = format!("{}?sslmode={mode}", cluster.url("postgres"))
            .parse()
            .unwrap();
        let gateway = gateway(url, None).await;
        connect_result(gateway.handle().address()).await
    };
    assert_eq!(attempt("prefer").await, Ok(()));
    let refused = attempt("require").await.unwrap_err();
    assert!(refused.contains("does not offer TLS"), "{refused}");
}

async fn connect_result(address: &ListenAddress) -> Result<(), String> {
    match try_connect(address, "postgres").await {
        Ok(client) => client
            .batch_execute("SELECT 1")
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error
            .as_db_error()
            .map_or(error.to_string(), |error| error.to_string())),
    }
}

#[tokio::test]
async fn channel_binding_across_the_gateway_works_or_is_explained() {
    let certificates = Certificates::new();
    let cluster = encrypted_cluster(&certificates).await;
    let others = Certificates::new();
    let port = cluster.port();
    let url = format!("postgres://alice:secret@127.0.0.1:{port}/postgres?sslmode=require");
    let attempt = async |shown: &Certificates, parameters: &str| {
        let identity = ServerIdentity::load(&shown.certificate(), &shown.key()).unwrap();
        let gateway = gateway(url.parse().unwrap(), Some(identity)).await;
        let through = port_of(gateway.handle().address());
        let connection = format!(
            "host=127.0.0.1 port={through} user=alice password=secret dbname=postgres sslmode=require {parameters}"
        );
        psql(&connection, "SELECT 1").await
    };
    let refused = attempt(&others, "").await.unwrap_err();
    assert!(refused.contains("channel_binding=disable"), "{refused}");
    assert_eq!(
        attempt(&others, "channel_binding=disable").await.as_deref(),
        Ok("1")
    );
    // Shown the server's own certificate, a client can bind to it.
    assert_eq!(
        attempt(&certificates, "channel_binding=require")
            .await
            .as_deref(),
        Ok("1")
    );
}

#[tokio::test]
async fn a_cancel_request_reaches_the_session_it_is_for() {
    let cluster = cluster().await;
    let gateway = gateway(url_of(&cluster), None).await;
    let client = connect(gateway.handle().address(), "postgres").await;
    let bystander = connect(gateway.handle().address(), "postgres").await;
    let cancel = client.cancel_token();
    let sleeping = tokio::spawn(async move {
        let result = client.batch_execute("SELECT pg_sleep(600)").await;
        (client, result)
    });
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    until("the statement runs", async || {
        bystander
            .query_one(asleep, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            == 1
    })
    .await;
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (client, result) = sleeping.await.unwrap();
    assert_eq!(
        result.unwrap_err().code(),
        Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
    );
    client
        .batch_execute("SELECT 1")
        .await
        .expect("the session lives on");
    bystander
        .batch_execute("SELECT 1")
        .await
        .expect("nobody else was hit");
}

#[tokio::test]
async fn when_one_side_goes_the_other_is_told() {
    let cluster = cluster().await;
    let gateway = gateway(url_of(&cluster), None).await;
    let watcher = cluster.connect("postgres").await.unwrap();

    // The server's side.
    let client = connect(gateway.handle().address(), "postgres").await;
    client.batch_execute("BEGIN").await.unwrap();
    watcher
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        .await
        .unwrap();
    let error = client.batch_execute("SELECT 1").await.unwrap_err();
    assert!(
        error.is_closed() || error.code() == Some(&tokio_postgres::error::SqlState::ADMIN_SHUTDOWN),
        "{error}"
    );
    until("the session has ended", async || {
        gateway.handle().sessions() == 0
    })
    .await;

    // The client's side, without a farewell.
    let mut stream = raw_session(gateway.handle().address()).await;
    let marker = "CREATE TABLE gone (); SELECT 'gone'";
    stream
        .write_all(&query(&format!("BEGIN; {marker}")))
        .await
        .unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    until("it is in a transaction", async || {
        watcher.query_one(open, &[]).await.unwrap().get::<i64>(0) == 1
    })
    .await;
    drop(stream);
    until("the server noticed", async || {
        watcher.query_one(open, &[]).await.unwrap().get::<i64>(0) == 0
    })
    .await;
    until("the session has ended", async || {
        gateway.handle().sessions() == 0
    })
    .await;
}

fn query(sql: &str) -> Vec<u8> {
    [
        b"Q",
        &(sql.len() as u32 + 5).to_be_bytes()[..],
        sql.as_bytes(),
        &[0],
    ]
    .concat()
}

#[tokio::test]
async fn a_slow_client_slows_the_server_down_and_fills_no_memory() {
    let cluster = cluster().await;
    let gateway = gateway(url_of(&cluster), None).await;
    let watcher = cluster.connect("postgres").await.unwrap();
    let mut stream = raw_session(gateway.handle().address()).await;
    let before = peak_memory();
    stream
        .write_all(&query(
            "SELECT repeat('x', 1000) FROM generate_series(1, 200000)",
        ))
        .await
        .unwrap();
    // The server has more to say than anybody in between takes.
    let stuck = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
    until("the server waits", async || {
        watcher.query_one(stuck, &[]).await.unwrap().get::<i64>(0) == 1
    })
    .await;
    let mut rows = 0;
    loop {
        match read_message(&mut stream).await.0 {
            b'D' => rows += 1,
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(rows, 200_000);
    let grown = peak_memory().saturating_sub(before);
    assert!(
        grown < 32 << 20,
        "200 MB went through and left {grown} bytes"
    );
}

#[tokio::test]
async fn what_comes_before_a_session_is_answered() {
    let cluster = cluster().await;
    let gateway = gateway(url_of(&cluster), None).await;
    let port = port_of(gateway.handle().address());
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    for request in [80_877_104u32, 80_877_103] {
        stream
            .write_all(&[&[0, 0, 0, 8][..], &request.to_be_bytes()].concat())
            .await
            .unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'N');
    }
    stream.write_all(&[0, 0, 0, 8, 0, 2, 0, 0]).await.unwrap();
    let (tag, body) = read_message(&mut stream).await;
    assert!(
        tag == b'E' && String::from_utf8_lossy(&body).contains("unsupported frontend protocol 2.0")
    );
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);

    // Garbage closes that connection and no other.
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = stream.read(&mut [0]).await;
    assert_eq!(connect_result(gateway.handle().address()).await, Ok(()));
}

#[tokio::test]
async fn an_unreachable_server_is_reported_to_the_client_and_the_next_host_is_tried() {
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let nobody = gateway(
        format!("postgres://127.0.0.1:{dead}/postgres")
            .parse()
            .unwrap(),
        None,
    )
    .await;
    let refused = connect_result(nobody.handle().address()).await.unwrap_err();
    assert!(
        refused.contains(&format!(
            "cannot connect to Postgres at 127.0.0.1:{dead}: Connection refused"
        )),
        "{refused}"
    );

    let cluster = cluster().await;
    let both = format!(
        "postgres://127.0.0.1:{dead},127.0.0.1:{}/postgres",
        cluster.port()
    );
    let second = gateway(both.parse().unwrap(), None).await;
    assert_eq!(connect_result(second.handle().address()).await, Ok(()));
}

#[tokio::test]
async fn a_shutdown_lets_transactions_end_and_cuts_off_those_that_do_not() {
    let cluster = cluster().await;
    let gateway = gateway(url_of(&cluster), None).await;
    let address = gateway.handle().address().clone();
    let (idle, busy) = (
        connect(&address, "postgres").await,
        connect(&address, "postgres").await,
    );
    busy.batch_execute("CREATE TABLE t (k int); BEGIN; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let handle = gateway.handle();
    let ending = tokio::spawn(gateway.shut_down(PATIENCE));
    until("the idle one has gone", async || handle.sessions() == 1).await;
    assert!(
        try_connect(&address, "postgres").await.is_err(),
        "nobody is let in any more"
    );
    busy.batch_execute("COMMIT")
        .await
        .expect("a transaction that has begun may end");
    assert_eq!(ending.await.unwrap(), 0);
    assert!(idle.batch_execute("SELECT 1").await.is_err());
    assert_eq!(
        cluster.sql("postgres", "SELECT count(*) FROM t").unwrap(),
        "1"
    );

    // A client that has not said who it is, or what it wants, is not waited for.
    let gateway = self::gateway(url_of(&cluster), None).await;
    let port = port_of(gateway.handle().address());
    let _silent = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let handle = gateway.handle();
    until("it is accepted", async || handle.sessions() == 1).await;
    assert_eq!(gateway.shut_down(PATIENCE).await, 0);

    let gateway = self::gateway(url_of(&cluster), None).await;
    let busy = connect(gateway.handle().address(), "postgres").await;
    busy.batch_execute("BEGIN").await.unwrap();
    assert_eq!(gateway.shut_down(Duration::from_millis(50)).await, 1);
    assert!(busy.batch_execute("COMMIT").await.is_err());
}

/// Holds back every `Query` whose text begins with `HOLD` until told otherwise.
struct Holding {
    forward: Forward,
    permissions: Arc<Mutex<VecDeque<Arc<Notify>>>>,
    permitted: bool,
}

impl Driver for Holding {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        if self.forward.started
            && !self.permitted
            && input.len() > 9
            && input[5..].starts_with(b"SELECT 'held")
        {
            let notify = Arc::new(Notify::new());
            self.permissions
                .lock()
                .unwrap()
                .push_back(Arc::clone(&notify));
            return Flow::Wait(Box::pin(async move { notify.notified().await }));
        }
        self.permitted = false;
        self.forward.on_client(input, wires)
    }

    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.forward.on_server(input, wires)
    }

    fn on_permission(&mut self, _: &mut Wires) -> Flow {
        self.permitted = true;
        Flow::Continue
    }

    fn idle(&self) -> bool {
        self.forward.idle
    }
}

struct HoldingHost(Arc<Mutex<VecDeque<Arc<Notify>>>>);

impl Host for HoldingHost {
    type Driver = Holding;
    fn open(&self, _: &mut SessionStart) -> Result<Holding, Refusal> {
        Ok(Holding {
            forward: Forward::default(),
            permissions: Arc::clone(&self.0),
            permitted: false,
        })
    }
}

#[tokio::test]
async fn a_driver_can_make_its_session_wait() {
    let cluster = cluster().await;
    let permissions: Arc<Mutex<VecDeque<Arc<Notify>>>> = Arc::default();
    let connector = Arc::new(Connector::new(url_of(&cluster)).unwrap());
    let options = ServerOptions {
        identity: None,
        runtimes: Vec::new(),
    };
    let gateway = Server::bind(
        &any_port(),
        options,
        connector,
        Arc::new(HoldingHost(Arc::clone(&permissions))),
    )
    .await
    .unwrap();
    let address = gateway.handle().address().clone();
    let (held, free) = (
        connect(&address, "postgres").await,
        connect(&address, "postgres").await,
    );
    let waiting = tokio::spawn(async move {
        let first = held.simple_query("SELECT 'held'").await.unwrap();
        let second = held.simple_query("SELECT 'free'").await.unwrap();
        (first.len(), second.len())
    });
    until("it waits", async || permissions.lock().unwrap().len() == 1).await;
    free.simple_query("SELECT 'free'")
        .await
        .expect("others go on");
    assert!(!waiting.is_finished());
    permissions
        .lock()
        .unwrap()
        .pop_front()
        .unwrap()
        .notify_one();
    assert_eq!(waiting.await.unwrap(), (3, 3));
}
