//! Services that do what is hard to follow, under `record -- COMMAND`: each does what it does
//! without, and what cannot be recorded of it is said.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Process, Stage, program, repository};

use super::inside::{CLIENTS, SCHEMA, command, load, python, record, replay};

/// Starts a service of `tests/services` that has no use for its database.
fn serving(stage: &Stage, service: &str, tune: impl FnOnce(&mut Command)) -> Process {
    let mut command = stage.hindcast(&["record", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .arg(python())
        .arg(repository(&format!("tests/services/{service}")))
        .arg(stage.service_port.to_string())
        .env("DATABASE_URL", stage.database_url());
    tune(&mut command);
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    recorder
}

fn address(stage: &Stage) -> String {
    format!("127.0.0.1:{}", stage.service_port)
}

#[track_caller]
fn get(client: &mut Client, path: &str) -> String {
    let answer = client.send("GET", path, None).expect("it answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

#[track_caller]
fn says(finished: &Finished, what: &str) {
    assert!(finished.stderr.contains(what), "{}", finished.stderr);
}

/// A program that prints whether its user is another one than it was started by, as a child.
fn built(folder: &Path, name: &str, compiler: &[&str]) -> String {
    let (source, program) = (folder.join("child.c"), folder.join(name));
    let text = "#include <stdio.h>\n#include <unistd.h>\n\
                int main(void) { printf(\"%s\", getuid() == geteuid() ? \"same\" : \"other\"); return 3; }";
    std::fs::write(&source, text).unwrap();
    let status = Command::new(compiler[0])
        .args(&compiler[1..])
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(status.expect("there is a compiler").success());
    program.display().to_string()
}

#[test]
fn children_into_which_nothing_can_be_loaded_run_as_they_do_without() {
    let stage = Stage::new("inside-children", "");
    let folder = stage.folder();
    let other = built(folder, "set-uid", &["cc"]);
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o4755)).unwrap();
    // The way to it has to be open to another user.
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let children = serde_json::json!({
        "static": [built(folder, "static", &["cc", "-static"])],
        "musl": [built(folder, "musl", &["musl-gcc"])],
        "set-uid": ["setpriv", "--reuid=65534", "--clear-groups", other],
    });
    let recorder = serving(&stage, "hard.py", |command| {
        command.env("CHILDREN", children.to_string());
    });
    let mut client = Client::new(address(&stage));
    assert_eq!(get(&mut client, "/child/static"), "same3");
    assert_eq!(get(&mut client, "/child/musl"), "same3");
    assert_eq!(get(&mut client, "/child/set-uid"), "other3");
    // What a child is told to load in our place is loaded, and we are not.
    let maps = get(&mut client, "/maps/libm.so.6");
    assert!(
        maps.contains("libm.so") && !maps.contains("hindcast"),
        "{maps}"
    );
    says(&recorder.interrupt().assert_code(0), "4 requests");
}

#[test]
fn a_service_that_executes_itself_and_closes_all_descriptors_goes_on_being_recorded() {
    let stage = Stage::new("inside-again", "");
    let recorder = serving(&stage, "hard.py", |_| ());
    for _ in 0..3 {
        let mut client = Client::new(address(&stage));
        assert_eq!(get(&mut client, "/before"), "before");
        assert_eq!(get(&mut client, "/again"), "again");
        drop(client);
        hindcast_tests::wait_for("the program that comes after", || {
            let answer = Client::new(address(&stage)).send("GET", "/after", None);
            answer.ok().filter(|answer| answer.text() == "after")
        });
    }
    let finished = recorder.interrupt().assert_code(0);
    let listed = stage.run("ls", &["ls", "--trace", &trace(&stage)]);
    assert_eq!(
        listed.stdout.matches("/before").count(),
        3,
        "{}",
        listed.stdout
    );
    assert_eq!(
        listed.stdout.matches("/again").count(),
        3,
        "{}",
        listed.stdout
    );
    assert!(
        !finished.stderr.contains("were lost"),
        "{}",
        finished.stderr
    );
}

fn trace(stage: &Stage) -> String {
    stage.trace().display().to_string()
}

#[test]
fn another_protocol_is_left_alone_and_named() {
    let stage = Stage::new("inside-protocols", "");
    let recorder = serving(&stage, "hard.py", |_| ());
    let mut socket = TcpStream::connect(address(&stage)).unwrap();
    let upgrade =
        "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    socket.write_all(upgrade.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    for round in 0..100 {
        let sent = format!("GET /looks-like-one HTTP/1.1\r\n\r\n{round}");
        let mut received = vec![0; sent.len()];
        socket.write_all(sent.as_bytes()).unwrap();
        socket.read_exact(&mut received).unwrap();
        assert_eq!(received, sent.as_bytes());
    }
    drop(socket);
    let mut http2 = TcpStream::connect(address(&stage)).unwrap();
    http2
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    http2.shutdown(std::net::Shutdown::Write).unwrap();
    http2.read_to_end(&mut Vec::new()).unwrap();
    get(&mut Client::new(address(&stage)), "/afterwards");
    let finished = recorder.interrupt().assert_code(0);
    says(&finished, "1 connection from clients not recorded: HTTP/2");
    says(&finished, "upgraded, to WebSocket or another");
    says(&finished, "2 requests");
}

#[test]
fn a_gigabyte_that_is_uploaded_arrives_and_costs_the_recorder_no_memory() {
    const PART: usize = 1 << 20;
    const LENGTH: usize = 1 << 30;
    const MEMORY_MAX: u64 = 400 << 20;
    let stage = Stage::new("inside-upload", "");
    let recorder = serving(&stage, "hard.py", |_| ());
    let mut socket = TcpStream::connect(address(&stage)).unwrap();
    let head = format!("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: {LENGTH}\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    let part = vec![b'u'; PART];
    for _ in 0..LENGTH / PART {
        socket.write_all(&part).unwrap();
    }
    let mut answer = [0; 4096];
    let mut text = String::new();
    while !text.contains(&format!("\r\n\r\n{LENGTH} ")) {
        let length = socket.read(&mut answer).unwrap();
        assert!(length > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&answer[..length]));
    }
    drop(socket);
    // A debug build on a busy machine may need a moment to have room again.
    let mut client = Client::new(address(&stage));
    for _ in 0..30 {
        get(&mut client, "/afterwards");
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", recorder.pid())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most
        .and_then(|most| most.trim().strip_suffix(" kB"))
        .unwrap();
    let most = most.parse::<u64>().unwrap() << 10;
    let finished = recorder.interrupt().assert_code(0);
    assert!(most < MEMORY_MAX, "it had {} MB", most >> 20);
    let listed = stage.run("ls", &["ls", "--trace", &trace(&stage)]);
    assert!(
        listed.stdout.contains("/afterwards"),
        "{}{}",
        listed.stdout,
        finished.stderr
    );
}

/// Says which signals came, and ends as it is told.
const SUPERVISED: &str = r#"
import signal, sys, time
def told(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR2: sys.exit(7)
for one in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
    signal.signal(one, told)
print("ready", flush=True)
while True: time.sleep(0.01)
"#;

/// What systemd, docker and the like see of a service and send to it, with a recorder in front.
#[test]
fn who_supervises_the_recorder_supervises_the_service() {
    let stage = Stage::new("inside-supervised", "");
    let start = |service: &[&str]| {
        // Who runs the tests may ignore some, as nohup does and a shell in the background.
        let mut command = Command::new("env");
        command
            .arg("--default-signal")
            .arg(program("hindcast"))
            .args(["record", "--trace"])
            .arg(stage.trace())
            .arg("--")
            .args(service)
            .env("DATABASE_URL", stage.database_url())
            .env("HINDCAST_SECRETS_KEY", stage.folder().join("secrets.key"));
        Process::start("record", command, stage.folder())
    };
    let python = python();
    let mut recorder = start(&[&python, "-c", SUPERVISED]);
    let [out, _] = recorder.output_files();
    let said = || std::fs::read_to_string(&out).unwrap();
    let mut heard = "ready\n".to_owned();
    for signal in ["HUP", "QUIT", "USR1", "WINCH", "USR2"] {
        recorder.wait_until("it hears", || (said() == heard).then_some(()));
        recorder.signal_alone(signal);
        heard += &format!("SIG{signal}\n");
    }
    let finished = recorder.wait().assert_code(7);
    assert_eq!(finished.stdout, heard);
    says(&finished, "The service ended with exit status 7.");

    start(&["sh", "-c", "kill -KILL $$"])
        .wait()
        .assert_code(137);
    start(&["true"]).wait().assert_code(0);
    // Asked for by who sends it: nothing has failed.
    let mut recorder = start(&[&python, "-c", SUPERVISED]);
    recorder.wait_until("it is there", || (said() == "ready\n").then_some(()));
    recorder.signal_alone("TERM");
    says(&recorder.wait().assert_code(0), "by signal 15");
    // As `npm start`: what waits for another program leaves the signal to a terminal, which sends
    // it to both.
    let script = r#""$0" -c "$1"; true"#;
    let mut recorder = start(&["sh", "-c", script, &python, SUPERVISED]);
    recorder.wait_until("it is there", || (said() == "ready\n").then_some(()));
    recorder.signal_alone("INT");
    recorder.wait().assert_code(0);
}

/// Opens all connections first, then asks by each.
const MANY: &str = r#"
import asyncio, resource, sys
port, count = map(int, sys.argv[1:])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
async def main():
    gate = asyncio.Semaphore(500)
    async def opened():
        async with gate:
            return await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    connections = await asyncio.gather(*(opened() for _ in range(count)))
    async def ask(number, reader, writer):
        path = b"/%d" % number
        writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head and await reader.readexactly(len(path)) == path
    await asyncio.gather(*(ask(number, *pair) for number, pair in enumerate(connections)))
asyncio.run(main())
"#;

#[test]
fn ten_thousand_connections_at_a_time_are_recorded() {
    const COUNT: usize = 10_000;
    let stage = Stage::new("inside-many", "");
    let recorder = serving(&stage, "many.py", |_| ());
    let asked = Command::new(python())
        .args(["-c", MANY, &stage.service_port.to_string()])
        .arg(COUNT.to_string())
        .output()
        .unwrap();
    assert!(asked.status.success(), "{asked:?}");
    let finished = recorder.interrupt().assert_code(0);
    says(&finished, "10,000 requests");
    assert!(
        !finished.stderr.contains("were lost"),
        "{}",
        finished.stderr
    );
}

#[test]
fn fifty_workers_are_recorded_and_replayed() {
    const ROUNDS: usize = 5;
    let stage = Stage::new("inside-workers", SCHEMA);
    let recorder = record(&stage, &command(&stage, 50));
    load(&stage, ROUNDS);
    let requests = format!("{} requests", 2 * CLIENTS * ROUNDS);
    let recorded = recorder.interrupt().assert_code(0);
    says(&recorded, &requests);
    says(&recorded, "(0 ghosts)");
    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
}

#[test]
fn two_recordings_at_a_time_are_each_of_their_own_service() {
    let stages = [
        Stage::new("inside-one", SCHEMA),
        Stage::new("inside-two", SCHEMA),
    ];
    let recorders = stages
        .each_ref()
        .map(|stage| record(stage, &command(stage, 2)));
    std::thread::scope(|scope| {
        let [one, two] = &stages;
        scope.spawn(|| load(one, 5));
        scope.spawn(|| load(two, 7));
    });
    for (recorder, rounds) in recorders.into_iter().zip([5, 7]) {
        let requests = format!("{} requests", 2 * CLIENTS * rounds);
        let recorded = recorder.interrupt().assert_code(0);
        says(&recorded, &requests);
        says(&recorded, "(0 ghosts)");
    }
    for stage in &stages {
        let whole = replay(stage, &[]).assert_code(0);
        assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    }
}

#[test]
fn a_recorder_within_a_recorder_is_refused() {
    let stage = Stage::new("inside-within", "");
    let mut outer = stage.hindcast(&["record", "--trace"]);
    outer
        .arg(stage.trace())
        .arg("--")
        .arg(hindcast_tests::program("hindcast"))
        .args(["record", "--trace"])
        .arg(stage.folder().join("inner"))
        .args(["--", "true"])
        .env("DATABASE_URL", stage.database_url());
    let finished = Process::start("record", outer, stage.folder()).wait();
    says(&finished, "is recorded itself");
    assert!(!stage.folder().join("inner").exists());
}
