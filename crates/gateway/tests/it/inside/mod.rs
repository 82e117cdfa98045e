//! Real services with the tap in them, and real clients.

mod stage;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hindcast_spool::Drain;
use hindcast_trace::{Digest, Response};
use stage::{Stage, clients, compare, free_port, header, numbered, program};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::*;

/// Answers in capitals, in one of three framings: a length, chunks, until closed.
const PYTHON: &str = r#"
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).upper()
        kind = int(self.headers["X-Number"]) % 3
        self.send_response(200 if kind else 404)
        self.send_header("X-Kind", str(kind))
        if kind == 0:
            self.send_header("Content-Length", str(len(body)))
        elif kind == 1:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == 1:
            for at in range(0, len(body), 1000):
                part = body[at:at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)
    do_GET = do_POST = do_PUT = do_HEAD = answer
class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
class Children(socketserver.ForkingMixIn, http.server.HTTPServer):
    pass
{"threads": Threads, "children": Children}[sys.argv[2]](("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn python_with_a_thread_for_each_connection() {
    python("threads").await;
}

/// The parent closes what it accepted, and the child serves it.
#[tokio::test(flavor = "multi_thread")]
async fn python_with_a_child_for_each_connection() {
    python("children").await;
}

async fn python(how: &str) {
    let (mut stage, port) = (Stage::new(), free_port());
    stage.tapped(Command::new("python3").args(["-c", PYTHON, &port.to_string(), how]));
    stage.listens(port).await;
    let seen = clients(port, 6, 20).await;
    compare(&stage, &seen, false).await;
    let seen = stage.end().await.seen;
    assert_eq!((seen.without_turn, seen.turns_unused), (0, 0));
}

/// What the trace has no room for waits in the spool, while it is more than half full and after.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_yet_waits() {
    let (mut stage, port) = (Stage::with_limit(4 << 20), free_port());
    stage.tapped(Command::new("python3").args(["-c", PYTHON, &port.to_string(), "threads"]));
    stage.listens(port).await;
    stage.witness.full.store(true, Ordering::SeqCst);
    let mut seen = Vec::new();
    while stage.unread() <= (4 << 20) / 2 {
        let first = seen.len();
        seen.extend(numbered(port, first, 4, 30).await);
    }
    assert!(stage.witness.requests.lock().unwrap().len() < seen.len() / 2);
    stage.witness.full.store(false, Ordering::SeqCst);
    until("all was looked at", async || stage.unread() == 0).await;
    let first = seen.len();
    seen.extend(numbered(port, first, 2, 5).await);
    compare(&stage, &seen, false).await;
    stage.end().await;
}

/// Much of what rings have no room for is lost. What is said to have been answered was.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_is_said_and_the_rest_is_right() {
    let (mut stage, port) = (Stage::new(), free_port());
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, &port.to_string(), "threads"]);
    stage.tapped(command.env("HINDCAST_TAP_RING", "65536"));
    stage.listens(port).await;
    let seen = clients(port, 6, 40).await;
    let witness = Arc::clone(&stage.witness);
    let end = stage.stop().await;
    let requests = witness.requests.lock().unwrap().clone();
    let (mut answered, mut others) = (0, 0);
    for request in &requests {
        let number = header(&request.headers, "x-number").expect("the head is whole");
        let number: usize = String::from_utf8_lossy(number).parse().unwrap();
        let seen = seen.iter().find(|seen| seen.number == number).unwrap();
        let Response::Answered {
            status,
            body_digest,
            ..
        } = request.response
        else {
            others += 1;
            continue;
        };
        answered += 1;
        assert!(request.body == seen.sent, "{number}: another request");
        assert_eq!((status, body_digest), (seen.status, Digest::of(&seen.got)));
    }
    let lost = end.seen.lost_records;
    assert!(
        lost > 0 && answered > 0 && others > 0,
        "{answered} and {others}: {end:?}"
    );
    assert!(!witness.missed.lock().unwrap().is_empty());
}

/// A mistake of ours is no matter to the service, and the recording says where it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_that_fails_says_so() {
    let drain = Drain::new().unwrap();
    let mut stage = Stage::with(drain, Box::new(|| panic!("on purpose")));
    let port = free_port();
    stage.tapped(Command::new("python3").args(["-c", PYTHON, &port.to_string(), "threads"]));
    stage.listens(port).await;
    let seen = clients(port, 2, 10).await;
    assert_eq!(seen.len(), 20);
    let missed = "requests are not recorded any more: the thread that finds them panicked";
    until("the recorder says so", async || {
        *stage.witness.missed.lock().unwrap() == [missed]
    })
    .await;
    assert_eq!(clients(port, 2, 10).await.len(), 20);
    assert_eq!(stage.stop_anyhow().await.failed.as_deref(), Some(missed));
}

const NODE: &str = r#"
require("http").createServer((request, response) => {
    const parts = [];
    request.on("data", part => parts.push(part));
    request.on("end", () => {
        const body = Buffer.concat(parts).toString().toUpperCase();
        response.writeHead(Number(request.headers["x-number"]) % 3 ? 200 : 404, { "X-Kind": "node" });
        for (let at = 0; at < body.length; at += 5000) response.write(body.slice(at, at + 5000));
        response.end();
    });
}).on("upgrade", (request, socket) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    socket.pipe(socket);
}).listen(Number(process.argv[1]), "127.0.0.1");
"#;

#[tokio::test(flavor = "multi_thread")]
async fn node_with_one_loop() {
    let (mut stage, port) = (Stage::new(), free_port());
    stage.tapped(Command::new("node").args(["-e", NODE, "--", &port.to_string()]));
    stage.listens(port).await;
    let seen = clients(port, 6, 20).await;
    compare(&stage, &seen, false).await;
    // And what is no HTTP any more.
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let asked = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    socket.write_all(asked).await.unwrap();
    let mut got = vec![0; 1000];
    let length = socket.read(&mut got).await.unwrap();
    assert!(got[..length].starts_with(b"HTTP/1.1 101"));
    socket.write_all(b"GET /no HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(socket.read(&mut got).await.unwrap() > 0);
    until("the upgrade is recorded", async || {
        stage.witness.requests.lock().unwrap().len() > seen.len()
    })
    .await;
    let last = stage
        .witness
        .requests
        .lock()
        .unwrap()
        .last()
        .unwrap()
        .response
        .clone();
    let reason = "the connection was upgraded to echo".to_owned();
    assert_eq!(last, Response::Unrecorded { reason });
    let seen = stage.end().await.seen;
    assert_eq!(
        (seen.upgraded, seen.without_turn, seen.turns_unused),
        (1, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gunicorn_with_workers_that_inherit_the_listener() {
    for kind in ["sync", "gthread"] {
        let (mut stage, port) = (Stage::new(), free_port());
        stage.file("app.py", WSGI);
        let bind = format!("127.0.0.1:{port}");
        let python = python_with_packages();
        let mut command = Command::new(python);
        command.args([
            "-m",
            "gunicorn",
            "-k",
            kind,
            "-w",
            "2",
            "--threads",
            "4",
            "-b",
            &bind,
            "app",
        ]);
        stage.tapped(&mut command);
        stage.listens(port).await;
        let seen = clients(port, 6, 20).await;
        compare(&stage, &seen, false).await;
        let seen = stage.end().await.seen;
        assert_eq!((seen.without_turn, seen.turns_unused), (0, 0));
    }
}

const WSGI: &str = r#"
def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).upper()
    kind = int(environ["HTTP_X_NUMBER"]) % 3
    headers = [("X-Kind", str(kind))]
    if kind:
        headers.append(("Content-Length", str(len(body))))
    start_response("200 OK" if kind else "404 Not Found", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body[:1000], body[1000:]]
"#;

const PHP: &str = r#"<?php
$body = strtoupper(file_get_contents("php://input"));
http_response_code((int)$_SERVER["HTTP_X_NUMBER"] % 3 ? 200 : 404);
header("X-Kind: php");
header("Content-Type: text/plain");
echo $body;
"#;

/// nginx in front of a service: where it listens, and what it does with requests.
fn nginx(stage: &mut Stage, port: u16, passes: &str, tapped: bool) {
    let user = match is_root() {
        true => "user root;",
        false => "",
    };
    let configuration = format!(
        "{user} daemon off; worker_processes 1; pid nginx.pid; error_log stderr info;\n\
         events {{ worker_connections 200; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 1000; client_max_body_size 10m;\n\
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
           upstream php {{ server unix:php.sock; keepalive 2; }}\n\
           server {{ listen 127.0.0.1:{port}; location / {{ {passes} }} }} }}\n"
    );
    let configuration =
        configuration.replace("unix:", &format!("unix:{}/", stage.path("").display()));
    stage.file("nginx.conf", &configuration);
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(stage.folder.path());
    command.args(["-e", "stderr", "-c", "nginx.conf"]);
    match tapped {
        true => stage.tapped(&mut command),
        false => stage.beside(&mut command),
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// Its workers change their user, and its connections are kept or not.
#[tokio::test(flavor = "multi_thread")]
async fn php_behind_nginx() {
    for keep in ["off", "on"] {
        let (mut stage, port) = (Stage::new(), free_port());
        let script = stage.file("index.php", PHP);
        let user = match is_root() {
            true => "user = nobody\ngroup = nogroup\n",
            false => "",
        };
        let pool = format!(
            "[global]\nerror_log = /dev/stderr\ndaemonize = no\n[www]\n{user}listen = {}\nlisten.mode = 0666\n\
             pm = static\npm.max_children = 3\n",
            stage.path("php.sock").display()
        );
        let pool = stage.file("pool.conf", &pool);
        stage.tapped(
            Command::new(program("php-fpm"))
                .arg("-n")
                .arg("-y")
                .arg(pool),
        );
        let socket = stage.path("php.sock");
        until("PHP listens", async || socket.exists()).await;
        let passes = format!(
            "fastcgi_pass php; fastcgi_keep_conn {keep}; include fastcgi.conf; fastcgi_param SCRIPT_FILENAME {};",
            script.display()
        );
        let params = std::fs::read_to_string("/etc/nginx/fastcgi.conf").unwrap();
        let others = params
            .lines()
            .filter(|line| !line.contains("SCRIPT_FILENAME"));
        stage.file("fastcgi.conf", &others.collect::<Vec<_>>().join("\n"));
        nginx(&mut stage, port, &passes, false);
        stage.listens(port).await;
        let seen = clients(port, 4, 20).await;
        compare(&stage, &seen, true).await;
        let requests = stage.witness.requests.lock().unwrap().clone();
        for request in requests {
            let name = header(&request.headers, ":fastcgi:SCRIPT_FILENAME");
            assert_eq!(name, Some(script.display().to_string().as_bytes()));
            let Response::Answered { headers, .. } = &request.response else {
                panic!("{request:?}");
            };
            assert_eq!(header(headers, "x-kind"), Some(&b"php"[..]));
        }
        let seen = stage.end().await.seen;
        assert!(seen.fastcgi > 0 && seen.http1 == 0, "{seen:?}");
        assert_eq!((seen.without_turn, seen.turns_unused), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uwsgi_behind_nginx() {
    let (mut stage, port) = (Stage::new(), free_port());
    let socket = stage.path("uwsgi.sock").display().to_string();
    uwsgi(&mut stage, &socket);
    until("uWSGI listens", async || {
        std::path::Path::new(&socket).exists()
    })
    .await;
    nginx(&mut stage, port, &uwsgi_pass("unix:uwsgi.sock"), false);
    stage.listens(port).await;
    let seen = clients(port, 4, 20).await;
    compare(&stage, &seen, true).await;
    let seen = stage.end().await.seen;
    assert_eq!(
        (seen.uwsgi, seen.without_turn, seen.turns_unused),
        (80, 0, 0)
    );
}

/// What nginx asks of uWSGI is a part of what it was asked.
#[tokio::test(flavor = "multi_thread")]
async fn uwsgi_and_nginx_as_one_service() {
    let (mut stage, port) = (Stage::new(), free_port());
    let behind = free_port();
    let address = format!("127.0.0.1:{behind}");
    uwsgi(&mut stage, &address);
    stage.listens(behind).await;
    nginx(&mut stage, port, &uwsgi_pass(&address), true);
    stage.listens(port).await;
    let seen = clients(port, 1, 20).await;
    compare(&stage, &seen, false).await;
    let seen = stage.end().await.seen;
    assert_eq!((seen.within, seen.without_turn), (20, 0), "{seen:?}");
}

fn uwsgi_pass(to: &str) -> String {
    format!("uwsgi_pass {to}; include /etc/nginx/uwsgi_params;")
}

fn uwsgi(stage: &mut Stage, socket: &str) {
    let app = stage.file("app.py", WSGI);
    let mut command = Command::new(program("uwsgi_python3"));
    command.args(["--master", "--workers", "2", "--die-on-term"]);
    command.args(["--chmod-socket=666", "--socket", socket]);
    stage.tapped(command.arg("--wsgi-file").arg(app));
}

/// A file goes from the disk to the socket without being seen.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_that_sends_files() {
    let (mut stage, port) = (Stage::new(), free_port());
    std::fs::create_dir_all(stage.path("html/some")).unwrap();
    stage.file("html/some/path", &"a line of the page\n".repeat(5000));
    nginx(
        &mut stage,
        port,
        "root html; default_type text/plain;",
        true,
    );
    stage.listens(port).await;
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let asked = b"GET /some/path HTTP/1.1\r\nHost: x\r\n\r\nHEAD /some/path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    socket.write_all(asked).await.unwrap();
    let mut got = Vec::new();
    socket.read_to_end(&mut got).await.unwrap();
    assert!(got.len() > 95_000);
    until("both are recorded", async || {
        stage.witness.requests.lock().unwrap().len() == 2
    })
    .await;
    let requests = stage.witness.requests.lock().unwrap().clone();
    let Response::Broken { reason } = &requests[0].response else {
        panic!("{requests:?}");
    };
    assert!(reason.contains("95000 of the 95000 bytes"), "{reason}");
    let Response::Answered {
        status: 200,
        body_bytes: 0,
        ..
    } = &requests[1].response
    else {
        panic!("{requests:?}");
    };
    let seen = stage.end().await.seen;
    assert_eq!((seen.partly_seen, seen.without_turn >= 1), (1, true));
}

/// What is encrypted, or is HTTP/2, or something else.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_followed_is_counted() {
    const ECHO: &str = r#"
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1000):
            self.request.sendall(data)
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"#;
    let (mut stage, port) = (Stage::new(), free_port());
    stage.tapped(Command::new("python3").args(["-c", ECHO, &port.to_string()]));
    stage.listens(port).await;
    for begins in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"EHLO\r\n",
        b"\xff\xff\xff",
    ] {
        let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        socket.write_all(begins).await.unwrap();
        let mut got = vec![0; begins.len()];
        socket.read_exact(&mut got).await.unwrap();
    }
    let seen = stage.end().await.seen;
    assert_eq!((seen.tls, seen.http2, seen.http1), (1, 1, 0));
    assert_eq!(seen.unrecognised, 2);
}

fn python_with_packages() -> std::path::PathBuf {
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap();
    let venv = target.join("venv-gateway");
    let lock = std::fs::File::create(target.join("venv-gateway.lock")).unwrap();
    lock.lock().unwrap();
    let (python, installed) = (venv.join("bin/python"), venv.join("installed"));
    if !installed.exists() {
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{command:?}: {said}");
        };
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv));
        run(Command::new(&python).args(["-m", "pip", "install", "-q", "gunicorn>=23,<24"]));
        std::fs::write(installed, "").unwrap();
    }
    python
}
