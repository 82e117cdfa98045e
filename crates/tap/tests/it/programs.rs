//! Small programs, each of which does what is hard to follow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use hindcast_taplog::{Direction, How};

use crate::stage::{
    Heard, PATIENCE, Recorder, Service, built, far, library, output, small_ring, with_descriptors,
};

/// Runs a program with one end of a stream as its descriptor 3. Returns what came out of the other
/// end, what was heard, and whether it ended well.
fn run(name: &str, arguments: &[&str], tune: impl Fn(&mut Command)) -> (Vec<u8>, Heard, bool) {
    let recorder = Recorder::start();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = with_descriptors(&built(name), vec![far(theirs)]);
    recorder.tap(&mut command);
    tune(&mut command);
    command.args(arguments);
    let service = Service::start(&mut command);
    drop(command);
    let mut received = Vec::new();
    (&ours).read_to_end(&mut received).unwrap();
    let status = service.wait();
    (received, recorder.stop(), status.success())
}

#[test]
fn every_function_that_carries_bytes() {
    let program = built("families");
    let direct = output(&mut Command::new(&program));
    let recorder = Recorder::start();
    let mut command = Command::new(&program);
    recorder.tap(&mut command);
    let tapped = output(&mut command);
    assert_eq!(tapped, direct, "it does not do what it does without");
    assert!(direct.status.success(), "{direct:?}");

    let heard = recorder.stop();
    let written = "writewritevsendsendtowritevwritevwritevdupdupdupdup";
    let one = heard.writing("write");
    assert_eq!(one.text(Direction::Out), written);
    assert_eq!(one.unseen, [0, 8 + 6], "sendfile and splice");
    assert_eq!(one.ended, [0, 1], "shutdown");
    let mut others = heard
        .streams
        .values()
        .filter(|s| s.text(Direction::Out) != written);
    let other = others.next().expect("the other end of the pair");
    let read = "writewritevsendsendtowritevwritevwritevsendfiledupdupdupdup";
    assert_eq!(other.text(Direction::In), read);
    assert_eq!((other.unseen, other.ended), ([6, 0], [1, 0]));
    assert_eq!(other.opened[0].0, How::Found);
    assert_eq!(others.count(), 0);
    assert_eq!((heard.lost_records, heard.refused), (0, 0));
}

/// As who gives an event loop a descriptor of its own for a connection to the database.
#[test]
fn a_stream_is_closed_with_the_last_of_its_descriptors() {
    let program = "import os, socket
one, other = socket.socketpair()
for _ in range(3):
    copy = os.dup(one.fileno())
    os.close(copy)
    one.send(b'open')
copy = os.dup(one.fileno())
one.close()
os.write(copy, b'still')
os.close(copy)
os._exit(0)";
    let recorder = Recorder::start();
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    recorder.tap(&mut command);
    assert!(output(&mut command).status.success());
    let heard = recorder.stop();
    let one = heard.writing("open");
    assert_eq!(one.text(Direction::Out), "openopenopenstill");
    assert_eq!(one.closed, 1);
}

/// One queue is full, so who connects to it without waiting has nobody at the other end yet.
#[test]
fn who_connects_without_waiting_is_told_to_whom() {
    let program = "import socket
full = socket.create_server(('127.0.0.1', 0), backlog=0)
fills = socket.create_connection(full.getsockname())
waits = socket.socket()
waits.setblocking(False)
waits.connect_ex(full.getsockname())
try: waits.getpeername()
except OSError: print(full.getsockname()[1])";
    let recorder = Recorder::start();
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    recorder.tap(&mut command);
    let done = output(&mut command);
    let port = String::from_utf8(done.stdout).unwrap();
    let expected = format!("127.0.0.1:{}", port.trim());
    assert!(expected.len() > "127.0.0.1:".len(), "it did not wait");
    let heard = recorder.stop();
    let opened = heard.streams.values().flat_map(|one| &one.opened);
    let to = opened.filter(|one| one.0 == How::Connected && one.2 == expected);
    assert_eq!(to.count(), 2);
}

#[test]
fn children_of_all_kinds_write_the_same_stream() {
    let (received, heard, ended_well) = run("processes", &[], |_| ());
    assert!(ended_well);
    let received = String::from_utf8(received).unwrap();
    assert!(received.ends_with("[closed all][executed]"), "{received}");
    assert_eq!(heard.writing("[begin]").text(Direction::Out), received);
    assert_eq!(heard.lost_records, 0);
    // Itself, 50 workers, the clone, and three that executed something.
    assert_eq!(heard.programs.len(), 1 + 50 + 1 + 3);
    let first = &heard.programs[0].command;
    assert!(first.ends_with(b"\0") && first.contains(&b'/'), "{first:?}");
}

#[test]
fn threads_have_rings_of_their_own_and_leave_them_to_the_next() {
    let (received, heard, ended_well) = run("threads", &["20", "50"], |_| ());
    assert!(ended_well);
    let stream = heard.streams.values().next().unwrap();
    let lines = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut lines: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&received), (0..1000).collect::<Vec<u32>>());
    // Two that write at the same moment may stand in either order; none is missing.
    let told = stream.bytes(Direction::Out);
    assert_eq!(told.len(), received.len());
    assert!(heard.threads.len() > 900, "{} threads", heard.threads.len());
    assert!(
        heard.rings <= 21,
        "{} rings for 20 threads at a time",
        heard.rings
    );
    assert_eq!(heard.lost_records, 0);
}

#[test]
fn what_a_full_ring_loses_is_counted_to_the_byte() {
    let (received, heard, ended_well) = run("upload", &["300"], small_ring);
    assert!(ended_well);
    assert_eq!(received.len(), 300 << 20);
    let told = heard.bytes(Direction::Out);
    assert_eq!(told + heard.lost_bytes, 300 << 20);
}

#[test]
fn a_spool_that_is_full_costs_records_and_never_the_service() {
    let recorder = Recorder::with_limit(1 << 20);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = with_descriptors(&built("upload"), vec![far(theirs)]);
    recorder.tap(&mut command);
    command.arg("100");
    let service = Service::start(&mut command);
    drop(command);
    let length = std::io::copy(&mut &ours, &mut std::io::sink()).unwrap();
    assert!(service.wait().success());
    assert_eq!(length, 100 << 20);
    let heard = recorder.stop();
    assert!(
        heard.bytes(Direction::Out) < 20 << 20,
        "it went on beyond its limit"
    );
}

#[test]
fn handlers_that_write_in_between_and_jump_away() {
    let (received, heard, ended_well) = run("signals", &[], |_| ());
    assert!(ended_well);
    // Who jumps out of a write does not learn how much it wrote.
    let told = heard.bytes(Direction::Out) + heard.lost_bytes;
    assert!(told <= received.len() as u64);
    assert!(
        told > received.len() as u64 / 2,
        "{told} of {}",
        received.len()
    );
}

#[test]
fn a_program_that_locks_itself_in_is_not_killed_for_what_we_do() {
    for how in ["prctl", "seccomp"] {
        let recorder = Recorder::start();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (more, never_seen) = UnixStream::pair().unwrap();
        let fds = vec![far(theirs), far(never_seen)];
        let mut command = with_descriptors(&built("sealed"), fds);
        recorder.tap(&mut command);
        command.arg(how);
        let service = Service::start(&mut command);
        drop(command);
        let mut received = String::new();
        (&ours).read_to_string(&mut received).unwrap();
        assert!(service.wait().success(), "{how}: {received}");
        assert_eq!(received, "firstlockedsecond");
        (&more).read_to_string(&mut received).unwrap();
        assert!(received.ends_with("second"));
        let heard = recorder.stop();
        assert_eq!(heard.writing("first").text(Direction::Out), "firstlocked");
    }
}

#[test]
fn what_was_sent_before_a_kill_is_told() {
    let recorder = Recorder::start();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = with_descriptors(&built("upload"), vec![far(theirs)]);
    recorder.tap(&mut command);
    command.arg("100000");
    let service = Service::start(&mut command);
    drop(command);
    let mut received = vec![0; 5 << 20];
    (&ours).read_exact(&mut received).unwrap();
    service.kill();
    let mut rest = Vec::new();
    (&ours).read_to_end(&mut rest).unwrap();
    let heard = recorder.stop();
    let told = heard.bytes(Direction::Out) + heard.lost_bytes;
    // The write in which it was killed was not told.
    let written = (received.len() + rest.len()) as u64;
    assert!(written - told < 2 << 20, "{told} of {written}");
}

#[test]
fn without_a_recorder_nothing_is_otherwise() {
    let program = built("families");
    let direct = output(&mut Command::new(&program));
    let gone = {
        let recorder = Recorder::start();
        let mut command = Command::new(&program);
        recorder.tap(&mut command);
        recorder.stop();
        command
    };
    let mut commands = vec![gone];
    for value in ["", "nonsense", ":", &"x".repeat(300), &"é".repeat(40)] {
        let mut command = Command::new(&program);
        command
            .env("LD_PRELOAD", library())
            .env("HINDCAST_TAP", value);
        commands.push(command);
    }
    for command in &mut commands {
        assert_eq!(output(command), direct, "{command:?}");
    }
}

#[test]
fn rings_that_prove_nothing_are_dropped() {
    let recorder = Recorder::start();
    let mut command = Command::new(built("families"));
    recorder.tap(&mut command);
    let value = command
        .get_envs()
        .find(|(name, _)| *name == "HINDCAST_TAP")
        .and_then(|(_, value)| value)
        .unwrap()
        .to_str()
        .unwrap();
    let forged = format!("{}{}", &value[..value.len() - 4], "beef");
    command.env("HINDCAST_TAP", forged);
    assert!(output(&mut command).status.success());
    let heard = recorder.stop();
    assert_eq!((heard.rings, heard.streams.len()), (0, 0));
}

#[test]
fn a_connection_passed_to_another_process_stays_one_stream() {
    let recorder = Recorder::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = with_descriptors(&built("serve"), vec![far(listener)]);
    recorder.tap(&mut command);
    let service = Service::start(&mut command);
    drop(command);
    let mut ports = Vec::new();
    const COUNT: usize = 2000;
    for number in 0..COUNT {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        ports.push(connection.local_addr().unwrap().to_string());
        let line = match number + 1 {
            COUNT => "end".to_owned(),
            _ => format!("line {number}"),
        };
        connection.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, line.to_uppercase());
    }
    assert!(service.wait().success());
    let heard = recorder.stop();
    assert_eq!(heard.lost_records, 0);
    for (port, number) in ports.iter().zip(0..COUNT - 1) {
        // The kernel may give a port to two of so many.
        let of_line = heard.streams.values().find(|stream| {
            let mut opened = stream.opened.iter();
            opened.any(|(how, _, peer)| *how == How::Accepted && peer == port)
                && stream.text(Direction::In) == format!("line {number}")
        });
        let stream = of_line.unwrap_or_else(|| panic!("line {number} of {port} was not told"));
        assert_eq!(stream.text(Direction::Out), format!("LINE {number}"));
        // In the order in which their rings were looked at.
        let found = stream.opened.iter().filter(|opened| opened.0 == How::Found);
        assert_eq!((stream.opened.len(), found.count()), (2, 1));
        let local = |opened: &(How, String, String)| opened.1 == address.to_string();
        assert!(stream.opened.iter().all(local));
        assert_eq!(stream.closed, 2);
    }
}

/// Those that the recorder of processes is tested with: what they print, and how they end.
#[test]
fn whatever_else_there_is_runs_as_it_does_without() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let folder = tempfile::tempdir().unwrap();
    let (mut compared, mut differ) = (0, Vec::new());
    for entry in std::fs::read_dir(sources).unwrap() {
        let source = entry.unwrap().path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        let program = folder.path().join(&name);
        let compiled = Command::new("cc")
            .args(["-w", "-pthread", "-o"])
            .args([&program, &source])
            .args(["-lm", "-ldl"])
            .output()
            .unwrap();
        if !compiled.status.success() {
            // It is a part of something, or needs something.
            continue;
        }
        let recorder = Recorder::start();
        let ran = |tapped: bool| {
            let cwd = tempfile::tempdir().unwrap();
            let mut command = Command::new("timeout");
            command.args(["--kill-after=1", "10"]).arg(&program);
            command.current_dir(cwd.path());
            if tapped {
                recorder.tap(&mut command);
            }
            output(&mut command)
        };
        // What says something else each time cannot be compared.
        let direct = ran(false);
        let says_the_same = |other: Output| said(&other) == said(&direct);
        if direct.status.code() != Some(124) && (0..2).all(|_| says_the_same(ran(false))) {
            compared += 1;
            if !(0..3).any(|_| says_the_same(ran(true))) {
                differ.push(name);
            }
        }
        recorder.stop();
    }
    assert_eq!(differ, <[String; 0]>::default());
    assert!(compared >= 20, "only {compared} could be compared");
}

/// How it ended, and what it printed but for lines that hang on who came first, which begin with a
/// tilde.
fn said(output: &Output) -> (ExitStatus, Vec<String>) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with('~'));
    (output.status, lines.map(str::to_owned).collect())
}
