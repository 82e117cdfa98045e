//! A service's connections to its database get to the recorder, which knows on whose behalf.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hindcast_spool::SharedBoard;
use hindcast_taplog::Direction;
use hindcast_taplog::board::{Address, Line, Purpose, Redirect};

use crate::stage::{Recorder, Service, connect, free_port};

/// Where the services below believe their database to be. Nobody is there.
const PORT: u16 = 1;
const SOCKET: &str = "/nowhere/.s.PGSQL.5432";

/// What a request had said to the database, and whose turn it was each time.
type Turns = Arc<Mutex<BTreeMap<String, Vec<Option<u64>>>>>;

/// The recorder's end of connections to the database: it answers each line with another.
struct Gate {
    board: Arc<SharedBoard>,
    turns: Turns,
    _folder: tempfile::TempDir,
}

impl Gate {
    fn open() -> Self {
        Self::open_for(Purpose::Record { first: 1 })
    }

    fn open_for(purpose: Purpose) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let mut redirect = Redirect::NONE;
        redirect.from[0] = inet(PORT);
        redirect.from[1] = named(SOCKET);
        redirect.to[0] = inet(port);
        redirect.to[1] = named(path.to_str().unwrap());
        let board = Arc::new(SharedBoard::make(purpose, &redirect).unwrap());
        let turns = Turns::default();
        let gate = Self {
            board,
            turns,
            _folder: folder,
        };
        let (board, turns) = (Arc::clone(&gate.board), Arc::clone(&gate.turns));
        std::thread::spawn(move || {
            for stream in tcp.incoming().map(Result::unwrap) {
                let (from, to) = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
                let line = Line::of_ports(from.port(), to.port()).unwrap();
                let reader = stream.try_clone().unwrap();
                answer(reader, stream, line, &board, &turns);
            }
        });
        let (board, turns) = (Arc::clone(&gate.board), Arc::clone(&gate.turns));
        std::thread::spawn(move || {
            loop {
                let (stream, peer) = unix.accept().unwrap();
                let name = peer.as_abstract_name().expect("it has been given a name");
                let line = Line::of_name(name).unwrap();
                let reader = stream.try_clone().unwrap();
                answer(reader, stream, line, &board, &turns);
            }
        });
        gate
    }
}

fn answer(
    reader: impl Read + Send + 'static,
    mut writer: impl Write + Send + 'static,
    line: Line,
    board: &Arc<SharedBoard>,
    turns: &Turns,
) {
    let (board, turns) = (Arc::clone(board), Arc::clone(turns));
    std::thread::spawn(move || {
        for said in BufReader::new(reader).lines().map_while(Result::ok) {
            let turn = board.whose_turn(line);
            turns
                .lock()
                .unwrap()
                .entry(said.clone())
                .or_default()
                .push(turn);
            // So that requests overlap.
            std::thread::sleep(Duration::from_millis(2));
            if writer.write_all(format!("{said}\n").as_bytes()).is_err() {
                return;
            }
        }
    });
}

fn inet(port: u16) -> Address {
    let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[127, 0, 0, 1]);
    bytes.extend_from_slice(&[0; 8]);
    Address::new(&bytes).unwrap()
}

fn named(path: &str) -> Address {
    let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    Address::new(&bytes).unwrap()
}

/// Answers each request with what the database said twice to its path. Connections to the database
/// are used by whichever thread is at hand.
const PYTHON: &str = r#"
import http.server, os, queue, socket, socketserver, sys, threading
pool = queue.LifoQueue()
def connect():
    if sys.argv[2] == "unix":
        s = socket.socket(socket.AF_UNIX)
        s.connect("/nowhere/.s.PGSQL.5432")
    else:
        s = socket.create_connection(("127.0.0.1", 1))
    return s
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        answer = b""
        for _ in range(2):
            try: s = pool.get_nowait()
            except queue.Empty: s = connect()
            s.sendall(self.path.encode() + b"\n")
            answer = s.recv(1000)
            pool.put(s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100
server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
# Children end with their parent, which has the other end.
ours, parents = os.pipe()
for _ in range(int(sys.argv[3])):
    if os.fork() == 0:
        os.close(parents)
        threading.Thread(target=lambda: os.read(ours, 1) or os._exit(0), daemon=True).start()
        break
server.serve_forever()
"#;

/// Tells the database the first byte of each piece that it reads, in one thread.
const SAYS_WHAT_IT_READS: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
database = socket.create_connection(("127.0.0.1", 1))
while True:
    client = server.accept()[0]
    while piece := client.recv(1000):
        database.sendall(b"%d\n" % piece[0])
        client.sendall(database.recv(100))
"#;

const NODE: &str = r#"
const net = require("net");
const idle = [];
function ask(text, then) {
    const one = idle.pop() || net.connect(1, "127.0.0.1");
    one.once("data", data => { idle.push(one); then(data); });
    one.write(text + "\n");
}
require("http").createServer((request, response) => {
    ask(request.url, () => ask(request.url, data => response.end(data)));
}).listen(Number(process.argv[1]), "127.0.0.1");
"#;

/// Some clients at a time, each with requests one after the other.
fn turns_of(
    command: &mut Command,
    port: u16,
    clients: usize,
) -> BTreeMap<String, Vec<Option<u64>>> {
    const ROUNDS: usize = 20;
    let gate = Gate::open();
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    recorder.tap(command);
    let service = Service::start(command);
    drop(connect(port));
    let client = |number: usize| {
        let mut connection = connect(port);
        for round in 0..ROUNDS {
            let path = format!("/{number}/{round}");
            let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            connection.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let mut bytes = [0; 4096];
            let expected = format!("{path}\n");
            while !String::from_utf8_lossy(&answer).contains(&expected) {
                let length = connection.read(&mut bytes).unwrap();
                assert!(length > 0, "the server closed the connection");
                answer.extend_from_slice(&bytes[..length]);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..clients).for_each(|number| {
            scope.spawn(move || client(number));
        });
    });
    drop(service);
    recorder.stop();
    let turns = gate.turns.lock().unwrap().clone();
    assert_eq!(turns.len(), clients * ROUNDS);
    turns
}

/// Each request has a turn of its own, which is known each time.
fn are_exact(turns: &BTreeMap<String, Vec<Option<u64>>>) {
    let mut seen = BTreeSet::new();
    for (path, turns) in turns {
        let [Some(first), Some(second)] = turns[..] else {
            panic!("{path} was seen as {turns:?}");
        };
        assert!(
            first != 0 && first == second,
            "{path} was seen as {turns:?}"
        );
        assert!(seen.insert(first), "{path} shares its turn with another");
    }
}

fn python(port: u16, family: &str, forks: u32) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, &port.to_string(), family, &forks.to_string()]);
    command
}

#[test]
fn a_thread_that_has_read_a_request_works_on_it() {
    let port = free_port();
    are_exact(&turns_of(&mut python(port, "inet", 0), port, 6));
}

#[test]
fn it_is_so_over_unix_sockets_and_in_children() {
    let port = free_port();
    are_exact(&turns_of(&mut python(port, "unix", 3), port, 6));
}

/// As when another connection has taken the place at which its number stood.
#[test]
fn a_request_of_which_nobody_knows_which_it_is_is_not_the_one_before() {
    let gate = Gate::open_for(Purpose::Replay);
    let port = free_port();
    let mut command = python(port, "inet", 0);
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    recorder.tap(&mut command);
    let service = Service::start(&mut command);
    let listens = || gate.board.listener(port, false);
    let port = std::iter::repeat_with(listens).find_map(|port| {
        std::thread::sleep(Duration::from_millis(5));
        port
    });
    let mut connection = connect(port.unwrap());
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    for (path, number) in [("/a", "hindcast-request: 0000000000000005\r\n"), ("/b", "")] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{number}\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        let mut line = String::new();
        while line.trim_end() != path {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
    }
    drop(service);
    recorder.stop();
    let turns = gate.turns.lock().unwrap();
    assert_eq!(turns["/a"], [Some(5); 2]);
    assert_eq!(turns["/b"], [Some(0); 2]);
}

/// It was sent once more, since nobody had taken it for a while. A reader that asks again is not to
/// wait for what will not come.
#[test]
fn a_request_that_another_has_taken_has_an_end() {
    let head = "GET / HTTP/1.1\r\nhindcast-request: 0000000000000005\r\n\r\n";
    // The line that says the number is not in what is read.
    assert_has_an_end(head, 100, ("GET / HTTP/1.1\r\n\r\n".len(), 1));
    // Go's server reads as much as HTTP/2 begins with.
    assert_has_an_end(head, 14, (14, head.len() - 14));
}

/// What a service reads of a request at first, and then, if nobody has taken it.
fn assert_has_an_end(head: &str, room: usize, read: (usize, usize)) {
    const READS_TWICE: &str = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection = listener.accept()[0]
    first, second = int(sys.argv[2]), 100
    connection.sendall(f"{len(connection.recv(first))} {len(connection.recv(second))}".encode())
"#;
    let gate = Gate::open_for(Purpose::Replay);
    let mut command = Command::new("python3");
    let port = free_port();
    command.args(["-c", READS_TWICE, &port.to_string(), &room.to_string()]);
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    recorder.tap(&mut command);
    let service = Service::start(&mut command);
    let listens = || gate.board.listener(port, false);
    let port = std::iter::repeat_with(listens).find_map(|port| {
        std::thread::sleep(Duration::from_millis(5));
        port
    });
    let lengths = [read, (0, 0)].map(|(first, second)| format!("{first} {second}"));
    for expected in lengths {
        let mut connection = connect(port.unwrap());
        connection
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        connection.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        connection.write_all(b"x").unwrap();
        let mut said = [0; 20];
        let length = connection.read(&mut said).unwrap();
        assert_eq!(str::from_utf8(&said[..length]).unwrap(), expected);
    }
    drop(service);
    recorder.stop();
}

/// A shim looks for it there, and takes it out. Its number is behind the first line that ends where
/// there is room, and in no body.
#[test]
fn a_request_that_is_recorded_says_its_number_where_a_shim_looks_for_it() {
    const READS: &str = r#"
import os, socket, sys
os.pwrite(0x48494E44, b"", 13 << 32)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection = listener.accept()[0]
    read = connection.recv(int(sys.argv[2]))
    while not read.endswith(b"its end"):
        read += connection.recv(1000)
    connection.sendall(read)
    connection.close()
"#;
    const LINE: &str = "hindcast-request: NUMBER\r\n";
    let read_of = |head: &str, room: usize| {
        let gate = Gate::open();
        let port = free_port();
        let mut command = Command::new("python3");
        command.args(["-c", READS, &port.to_string(), &room.to_string()]);
        let recorder = Recorder::with_board(Arc::clone(&gate.board));
        recorder.tap(&mut command);
        let service = Service::start(&mut command);
        let mut connection = connect(port);
        for piece in [head, "the body", "its end"] {
            connection.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut read = String::new();
        connection.read_to_string(&mut read).unwrap();
        drop(service);
        let heard = recorder.stop();
        let told = heard.streams.values().map(|one| one.text(Direction::In));
        let told: String = told.collect();
        assert!(told.starts_with(&format!("{head}the body")), "{told}");
        let digits = read
            .find(&LINE[..18])
            .map(|at| read[at + 18..at + 34].to_owned());
        digits.map_or(read.clone(), |digits| read.replace(&digits, "NUMBER"))
    };
    let head = "POST /abc HTTP/1.1\r\nHost: x\r\nLength: 15\r\n\r\n";
    let with = |at: usize| format!("{}{LINE}{}", &head[..at], &head[at..]);
    assert_eq!(read_of(head, 1000), with(20) + "the bodyits end");
    // As much as HTTP/2 begins with, the first line, and all but the head's last byte or two.
    assert_eq!(read_of(head, 24), with(29) + "the bodyits end");
    assert_eq!(read_of(head, 20), with(29) + "the bodyits end");
    for room in [head.len() - 2, head.len() - 1, head.len()] {
        let read = read_of(head, room);
        assert!(
            read.starts_with(head) && !read.contains(&LINE[..18]),
            "{read}"
        );
    }
}

/// No recorder has its requests, so a number would be that of none.
#[test]
fn what_comes_by_http2_is_for_none() {
    let gate = Gate::open();
    let port = free_port();
    let mut command = Command::new("python3");
    command.args(["-c", SAYS_WHAT_IT_READS, &port.to_string()]);
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    recorder.tap(&mut command);
    let service = Service::start(&mut command);
    drop(connect(port));
    // The last piece is like the beginning of a packet of uwsgi.
    let pieces: [&[u8]; 2] = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\x05\0\0"];
    for pieces in [&[b"GET /a HTTP/1.1\r\n\r\n".as_slice()][..], &pieces] {
        let mut connection = connect(port);
        for piece in pieces {
            connection.write_all(piece).unwrap();
            assert!(connection.read(&mut [0; 100]).unwrap() > 0);
        }
    }
    drop(service);
    recorder.stop();
    let turns = gate.turns.lock().unwrap();
    let of = |first: u8| &turns[&first.to_string()];
    assert!(
        of(b'G')
            .iter()
            .all(|turn| turn.is_some_and(|turn| turn != 0))
    );
    assert_eq!((of(b'P'), of(0)), (&vec![Some(0)], &vec![Some(0)]));
}

#[test]
fn where_one_thread_serves_several_requests_no_wrong_turn_is_told() {
    let port = free_port();
    let mut command = Command::new("node");
    command.args(["-e", NODE, &port.to_string()]);
    let turns = turns_of(&mut command, port, 6);
    let mut of: BTreeMap<u64, &str> = BTreeMap::new();
    for (path, turns) in &turns {
        for turn in turns.iter().map(|turn| turn.expect("it is the service's")) {
            if turn != 0 {
                let before = *of.entry(turn).or_insert(path);
                assert_eq!(before, path, "one turn is two requests'");
            }
        }
    }
}

#[test]
fn one_request_at_a_time_is_known_in_an_event_loop_too() {
    let port = free_port();
    let mut command = Command::new("node");
    command.args(["-e", NODE, &port.to_string()]);
    are_exact(&turns_of(&mut command, port, 1));
}

const PHP: &str = r#"<?php
$database = fsockopen('127.0.0.1', 1);
foreach (range(1, 2) as $_) {
    fwrite($database, $_SERVER['REQUEST_URI'] . "\n");
    $answer = fgets($database);
}
echo $answer;
"#;

/// It reads the beginning of a request, and then another one, which it serves first.
#[test]
fn the_server_of_php_works_on_what_it_has_read_whole() {
    let (gate, port) = (Gate::open(), free_port());
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index.php");
    std::fs::write(&file, PHP).unwrap();
    let mut command = Command::new("php");
    command.args(["-S", &format!("127.0.0.1:{port}")]).arg(file);
    recorder.tap(&mut command);
    let service = Service::start(&mut command);
    let answered = |mut stream: std::net::TcpStream, path: &str| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&format!("{path}\n")), "{answer}");
    };
    for round in 0..3 {
        let [posted, read] = ["post", "get"].map(|name| format!("/{name}/{round}"));
        // In one piece: PHP refuses a request whose first line comes in several.
        let send = |head: String| {
            let mut stream = connect(port);
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let post = format!("POST {posted} HTTP/1.1\r\nContent-Length: 2\r\n\r\n");
        let mut slow = send(post);
        std::thread::sleep(Duration::from_millis(50));
        let other = send(format!("GET {read} HTTP/1.1\r\nHost: x\r\n\r\n"));
        answered(other, &read);
        write!(slow, "ok").unwrap();
        answered(slow, &posted);
    }
    drop(service);
    recorder.stop();
    let turns = gate.turns.lock().unwrap().clone();
    assert_eq!(turns.len(), 6);
    are_exact(&turns);
}

/// Each line that is said to the database is the turn that it is said in.
fn says_its_turns(program: &str) {
    let gate = Gate::open();
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    recorder.tap(&mut command);
    assert!(command.status().unwrap().success());
    recorder.stop();
    let turns = gate.turns.lock().unwrap();
    assert!(!turns.is_empty());
    for (said, turns) in turns.iter() {
        let expected = Some(said.parse().unwrap());
        assert!(
            turns.iter().all(|turn| *turn == expected),
            "{said}: {turns:?}"
        );
    }
}

#[test]
fn who_knows_better_says_whose_turn_it_is() {
    says_its_turns(
        r#"
import os, socket
RESERVED = 0x48494e44
s = socket.create_connection(("127.0.0.1", 1))
for turn in [7, 0, 2**40]:
    assert os.write(RESERVED, turn.to_bytes(8, "little")) == 8
    s.sendall(b"%d\n" % turn)
    s.recv(100)
assert os.read(RESERVED, 8) == bytes(8)
"#,
    );
}

#[test]
fn what_is_said_of_a_connection_counts_more_than_what_is_said_of_a_thread() {
    says_its_turns(
        r#"
import os, socket
RESERVED = 0x48494e44
one, other = [socket.create_connection(("127.0.0.1", 1)) for _ in range(2)]
def number(n): return n.to_bytes(8, "little")
def say(s, turn):
    s.sendall(b"%d\n" % turn)
    s.recv(100)
os.write(RESERVED, number(5))
os.pwrite(RESERVED, number(7), one.fileno())
say(one, 7)
say(other, 5)
os.pwrite(RESERVED, number(0), one.fileno())
say(one, 0)
os.pwrite(RESERVED, b"", one.fileno())
say(one, 5)
os.write(RESERVED, b"")
say(one, 0)
# Its descriptor is another connection's, of which nothing was said.
os.pwrite(RESERVED, number(7), one.fileno())
os.dup2(other.fileno(), one.fileno())
say(one, 0)
"#,
    );
}

#[test]
fn which_request_came_by_a_connection_can_be_asked() {
    says_its_turns(
        r#"
import os, socket
RESERVED = 0x48494e44
def asked(s): return int.from_bytes(os.pread(RESERVED, 8, s.fileno()), "little")
database = socket.create_connection(("127.0.0.1", 1))
# Otherwise what the thread asks of itself is a part of what it works on.
os.write(RESERVED, bytes(8))
listener = socket.create_server(("127.0.0.1", 0))
numbers = []
for _ in range(2):
    client = socket.create_connection(listener.getsockname())
    served, _ = listener.accept()
    assert asked(served) == 0
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    served.recv(1000)
    numbers.append((served, asked(served)))
for served, number in numbers:
    assert number != 0 and asked(served) == number
    os.pwrite(RESERVED, number.to_bytes(8, "little"), database.fileno())
    database.sendall(b"%d\n" % number)
    database.recv(100)
assert numbers[0][1] != numbers[1][1]
assert asked(database) == 0 and asked(listener) == 0
"#,
    );
}

/// As Jetty's threads do, of which any reads what has come.
#[test]
fn the_rest_of_a_request_may_be_read_for_another_thread() {
    says_its_turns(
        r#"
import os, socket, threading
RESERVED = 0x48494e44
database = socket.create_connection(("127.0.0.1", 1))
# This thread is the clients'.
os.write(RESERVED, bytes(8))
listener = socket.create_server(("127.0.0.1", 0))
def connected(): return socket.create_connection(listener.getsockname()), listener.accept()[0]
def run(*what):
    thread = threading.Thread(target=lambda: [one() for one in what])
    thread.start()
    thread.join()
(poster, posted), (getter, got) = connected(), connected()
def says():
    number = int.from_bytes(os.pread(RESERVED, 8, got.fileno()), "little")
    assert number != 0
    database.sendall(b"%d\n" % number)
    database.recv(100)
poster.sendall(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nso")
run(lambda: posted.recv(1000))
poster.sendall(b"me")
getter.sendall(b"GET / HTTP/1.1\r\n\r\n")
run(lambda: posted.recv(1000), lambda: got.recv(1000), says)
"#,
    );
}

#[test]
fn without_a_recorder_the_database_is_where_it_was() {
    let gate = Gate::open();
    let recorder = Recorder::with_board(Arc::clone(&gate.board));
    let mut command = Command::new("python3");
    command.args([
        "-c",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
    ]);
    recorder.tap(&mut command);
    recorder.stop();
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("ConnectionRefused"), "{error}");
}
