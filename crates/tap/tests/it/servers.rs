//! Servers of others, as they are.

use std::io::{Read, Write};
use std::process::Command;

use hindcast_taplog::{Direction, How};

use crate::stage::{Recorder, Service, connect, free_port};

const PYTHON: &str = r#"
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = body.upper()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

const NODE: &str = r#"
require("http").createServer((request, response) => {
    const parts = [];
    request.on("data", part => parts.push(part));
    request.on("end", () => response.end(Buffer.concat(parts).toString().toUpperCase()));
}).listen(Number(process.argv[1]), "127.0.0.1");
"#;

/// Sends requests over some connections at a time, each after the other on its connection; what the
/// clients sent and received is what was told.
fn what_clients_saw_is_what_is_told(command: &mut Command, port: u16) {
    let recorder = Recorder::start();
    recorder.tap(command);
    let service = Service::start(command);
    let client = |number: usize| {
        let mut connection = connect(port);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for round in 0..30 {
            let body = format!("client {number} in round {round} ").repeat(1 + 40 * (round % 5));
            let request = format!(
                "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            connection.write_all(request.as_bytes()).unwrap();
            sent.extend_from_slice(request.as_bytes());
            let expected = body.to_uppercase();
            let begun = received.len();
            let mut bytes = [0; 4096];
            while !received[begun..].ends_with(expected.as_bytes()) {
                let length = connection.read(&mut bytes).unwrap();
                assert!(length > 0, "the server closed the connection");
                received.extend_from_slice(&bytes[..length]);
            }
        }
        (connection.local_addr().unwrap().to_string(), sent, received)
    };
    // The server may take a while to begin.
    drop(connect(port));
    let clients = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        all.into_iter()
            .map(|one| one.join().unwrap())
            .collect::<Vec<_>>()
    });
    service.wait_until_idle();
    service.kill();
    let heard = recorder.stop();
    assert_eq!((heard.lost_records, heard.refused), (0, 0));
    for (address, sent, received) in clients {
        let accepted = heard.streams.values().find(|stream| {
            let mut opened = stream.opened.iter();
            opened.any(|(how, _, peer)| *how != How::Connected && *peer == address)
        });
        let stream = accepted.unwrap_or_else(|| panic!("{address} was not told"));
        assert!(
            stream.bytes(Direction::In) == sent,
            "{address}: other requests"
        );
        let told = stream.bytes(Direction::Out);
        let (length, expected) = (told.len(), received.len());
        assert!(
            told == received,
            "{address}: told {length} of {expected} bytes"
        );
    }
}

#[test]
fn python_with_a_thread_for_each_connection() {
    let port = free_port();
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, &port.to_string()]);
    what_clients_saw_is_what_is_told(&mut command, port);
}

#[test]
fn node_with_one_loop() {
    let port = free_port();
    let mut command = Command::new("node");
    command.args(["-e", NODE, "--", &port.to_string()]);
    what_clients_saw_is_what_is_told(&mut command, port);
}

const ENCRYPTING: &str = r#"
import http.server, socketserver, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.upper())
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    def get_request(self):
        connection, address = self.socket.accept()
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

const CLIENT: &str = r#"
import http.client, ssl, sys, threading
context = ssl._create_unverified_context()
def work(number):
    connection = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=context)
    for round in range(20):
        body = f"client {number} in round {round} " * (1 + 900 * (round % 5))
        connection.request("POST", f"/{number}", body)
        assert connection.getresponse().read().decode() == body.upper()
    connection.close()
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"#;

/// What is encrypted is told as what it says, and nothing of what it looks like on the wire.
#[test]
fn python_that_encrypts_by_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("both.pem");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let both = made.signing_key.serialize_pem() + &made.cert.pem();
    std::fs::write(&pem, both).unwrap();

    let port = free_port();
    let recorder = Recorder::start();
    let mut server = Command::new("python3");
    server.args(["-c", ENCRYPTING, &port.to_string()]).arg(&pem);
    recorder.tap(&mut server);
    let service = Service::start(&mut server);
    drop(connect(port));
    let client = Command::new("python3")
        .args(["-c", CLIENT, &port.to_string()])
        .output()
        .unwrap();
    assert!(client.status.success(), "{client:?}");
    service.wait_until_idle();
    service.kill();
    let heard = recorder.stop();
    assert_eq!((heard.lost_records, heard.refused), (0, 0));
    for number in 0..4 {
        let begin = format!("POST /{number} HTTP/1.1\r\n");
        let of = heard
            .streams
            .values()
            .find(|stream| stream.text(Direction::In).starts_with(&begin));
        let stream = of.unwrap_or_else(|| panic!("nothing of client {number}"));
        assert!(stream.encrypted);
        assert_eq!(stream.unseen, [0, 0]);
        let (read, written) = (stream.text(Direction::In), stream.text(Direction::Out));
        assert_eq!(read.matches(&begin).count(), 20);
        assert_eq!(written.matches("HTTP/1.1 200 OK\r\n").count(), 20);
        for round in 0..20 {
            let body = format!("client {number} in round {round} ").repeat(1 + 900 * (round % 5));
            assert!(read.contains(&body) && written.contains(&body.to_uppercase()));
        }
    }
}
