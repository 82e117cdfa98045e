//! What a request draws and which time it reads is the same in a replay, and deadlines stay what
//! they are.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hindcast_spool::{SharedBoard, now};
use hindcast_taplog::board::{Purpose, Redirect};
use hindcast_taplog::pins::{KEY, Reading, Recorded};

use crate::stage::{PATIENCE, Recorder, Service, built, connect, free_port};

const SOURCES: [&str; 9] = [
    "getrandom",
    "getentropy",
    "syscall",
    "urandom",
    "random",
    "buffer",
    "uniform",
    "openssl",
    "child",
];
const CLOCKS: [&str; 6] = ["realtime", "coarse", "timespec", "time", "day", "ftime"];
const WAITS: [&str; 20] = [
    "condition",
    "clockcondition",
    "steadycondition",
    "mutex",
    "clockmutex",
    "readlock",
    "clockreadlock",
    "writelock",
    "clockwritelock",
    "join",
    "clockjoin",
    "semaphore",
    "clocksemaphore",
    "receive",
    "send",
    "sleep",
    "steadysleep",
    "timerfd",
    "timer",
    "futex",
];
pub const SECRET: [u8; KEY] = [42; KEY];
pub const DAY: i64 = 86_400_000_000_000;

/// A program with the tap, which answers requests.
pub struct Program {
    board: Arc<SharedBoard>,
    pub recorder: Recorder,
    port: u16,
    _service: Service,
}

impl Program {
    fn record(key: Option<[u8; KEY]>) -> Self {
        Self::record_program(&built("pins"), key)
    }

    pub fn record_program(program: &Path, key: Option<[u8; KEY]>) -> Self {
        let set = |board: &SharedBoard| {
            if let Some(key) = key {
                board.pins().set_key(&key);
                board.starts().set_key(&SECRET);
            }
        };
        let program = Self::start(program, Purpose::Record { first: 1 }, &[], set);
        drop(connect(program.port));
        program
    }

    /// With its wall clock so far from the real one.
    fn replay(ahead: i64) -> Self {
        Self::replay_program(&built("pins"), ahead)
    }

    pub fn replay_program(program: &Path, ahead: i64) -> Self {
        Self::replay_with(program, ahead, &[])
    }

    /// And with this in its environment.
    pub fn replay_with(program: &Path, ahead: i64, environment: &[(&str, &str)]) -> Self {
        let set = |board: &SharedBoard| {
            board.pins().set_ahead(ahead, 0);
            board.starts().set_key(&SECRET);
        };
        let mut program = Self::start(program, Purpose::Replay, environment, set);
        let begun = std::time::Instant::now();
        program.port = loop {
            if let Some(listener) = program.board.listeners().next() {
                break listener.got;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        };
        program
    }

    fn start(
        program: &Path,
        purpose: Purpose,
        environment: &[(&str, &str)],
        set: impl FnOnce(&SharedBoard),
    ) -> Self {
        let board = Arc::new(SharedBoard::make(purpose, &Redirect::NONE).unwrap());
        set(&board);
        let recorder = Recorder::with_board(Arc::clone(&board));
        let port = free_port();
        let mut command = Command::new(program);
        command.arg(port.to_string()).envs(environment.to_vec());
        recorder.tap(&mut command);
        Self {
            board,
            recorder,
            port,
            _service: Service::start(&mut command),
        }
    }

    /// Requests on one connection, and what is answered.
    pub fn ask(&self, paths: &[String]) -> Vec<String> {
        let mut stream = connect(self.port);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let ask = |(at, path): (usize, &String)| {
            let number = at + 1;
            let header = format!("hindcast-request: {number:016x}");
            let request = format!("GET /{path} HTTP/1.1\r\n{header}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap();
            answer.trim_end().to_owned()
        };
        paths.iter().enumerate().map(ask).collect()
    }

    /// The requests that [`Self::ask`] sends, as they were recorded.
    pub fn expect(&self, arrived: i64, readings: &[Vec<Reading>]) {
        for (request, readings) in (1..).zip(readings) {
            let recorded = Recorded {
                request,
                recorded_as: request,
                key: Some(&SECRET),
                arrived,
                readings,
            };
            self.board.pins().begin(&recorded, now() as i64);
        }
    }
}

pub fn paths(kind: &str, of: &[&str]) -> Vec<String> {
    of.iter().map(|one| format!("{kind}/{one}")).collect()
}

fn reading(time: i64) -> Reading {
    Reading {
        time,
        ..Reading::default()
    }
}

pub fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_nanos() as i64
}

#[test]
fn a_request_draws_again_what_it_drew_and_another_one_draws_something_else() {
    let paths = paths("draw", &[SOURCES, SOURCES].concat());
    let recorded = Program::record(Some(SECRET)).ask(&paths);
    let different: BTreeSet<_> = recorded.iter().collect();
    assert_eq!(different.len(), paths.len(), "{recorded:?}");
    for (path, drawn) in paths.iter().zip(&recorded) {
        assert_eq!(drawn.len(), 32, "{path}: {drawn}");
        assert_ne!(drawn, &"0".repeat(32), "{path}");
    }
    let replay = Program::replay(0);
    replay.expect(wall_clock(), &vec![Vec::new(); paths.len()]);
    assert_eq!(replay.ask(&paths), recorded);
    // Drawn by one function, drawn by another one.
    let sources = &recorded[..2];
    let other =
        Program::record(Some(SECRET)).ask(&["draw/getentropy".into(), "draw/urandom".into()]);
    assert_eq!(other, sources);

    let of_another_key = Program::record(Some([43; KEY])).ask(&paths);
    assert!(recorded.iter().all(|drawn| !of_another_key.contains(drawn)));
    // Without a key, and where nothing is known of a request, bytes are the kernel's.
    for program in [Program::record(None), Program::replay(0)] {
        let drawn = program.ask(&paths);
        let all: BTreeSet<_> = drawn.iter().chain(&recorded).collect();
        assert_eq!(all.len(), 2 * paths.len());
    }
}

#[test]
fn a_request_reads_again_what_the_clock_showed() {
    let paths = paths("read", &CLOCKS);
    let program = Program::record(Some(SECRET));
    let before = wall_clock();
    let recorded = program.ask(&paths);
    let readings = program.recorder.stop().readings;
    let of = |request| {
        let own = (0..2).map(|n| readings[&(request, n)]);
        own.collect::<Vec<Reading>>()
    };
    let readings: Vec<Vec<Reading>> = (1..=paths.len() as u64).map(of).collect();
    for (answer, readings) in recorded.iter().zip(&readings) {
        let shown: Vec<i64> = answer.split(' ').map(|one| one.parse().unwrap()).collect();
        // `ftime` gives less of what it reads.
        assert!(
            shown[0] <= readings[0].time && shown[0] > readings[0].time - 1_000_000,
            "{answer}"
        );
        assert!((before - 2_000_000_000..before + 60_000_000_000).contains(&shown[0]));
    }
    let replay = Program::replay(30 * DAY);
    replay.expect(before, &readings);
    assert_eq!(replay.ask(&paths), recorded);
    assert_eq!(replay.board.pins().given().beyond, 0);

    // More readings than there were.
    let replay = Program::replay(30 * DAY);
    let first: Vec<Vec<Reading>> = readings.iter().map(|own| own[..1].to_vec()).collect();
    replay.expect(before, &first);
    for (answer, own) in replay.ask(&paths).iter().zip(&first) {
        let shown: Vec<i64> = answer.split(' ').map(|one| one.parse().unwrap()).collect();
        assert!(shown[0] <= own[0].time && shown[1] >= shown[0], "{answer}");
        assert!(shown[1] < own[0].time + 60_000_000_000, "{answer}");
    }
    assert_eq!(replay.board.pins().given().beyond, paths.len() as u64);
}

#[test]
fn a_request_is_told_again_how_long_it_had_computed() {
    let paths = paths("read", &["usage"]);
    let program = Program::record(Some(SECRET));
    let recorded = program.ask(&paths);
    let readings = program.recorder.stop().readings;
    let own: Vec<Reading> = (0..4).map(|n| readings[&(1, n)]).collect();
    // Times of processes that have worked otherwise.
    let other = own.iter().map(|own| reading(own.time - 5_000_000));
    for own in [own.clone(), other.collect()] {
        let replay = Program::replay(30 * DAY);
        replay.expect(wall_clock(), std::slice::from_ref(&own));
        let kept = |at: usize| (!own[at].time + !own[at + 1].time) / 1000 * 1000;
        let again = replay.ask(&paths);
        assert_eq!(again, [format!("{} {}", kept(0), kept(2))]);
    }
    let kept = |at: usize| !own[at].time + !own[at + 1].time;
    assert_eq!(recorded, [format!("{} {}", kept(0), kept(2))]);
}

#[test]
fn who_works_on_no_request_reads_the_time_of_the_recording() {
    for ahead in [-30 * DAY, 30 * DAY] {
        let replay = Program::replay(ahead);
        for answer in replay.ask(&paths("read", &CLOCKS)) {
            let shown: i64 = answer.split(' ').next().unwrap().parse().unwrap();
            let off = shown - ahead - wall_clock();
            assert!(off.abs() < 60_000_000_000, "{answer}: {off}");
        }
    }
}

#[test]
fn deadlines_by_a_clock_that_is_moved_end_when_they_would() {
    let paths = paths("wait", &WAITS);
    let check = |program: &Program, what: &str| {
        for (path, answer) in paths.iter().zip(program.ask(&paths)) {
            let waited: i64 = answer
                .parse()
                .unwrap_or_else(|_| panic!("{what} {path}: {answer}"));
            // They are told to wait for 200 ms.
            let expected = 150_000_000..30_000_000_000;
            assert!(expected.contains(&waited), "{what} {path}: {waited} ns");
        }
    };
    check(&Program::record(Some(SECRET)), "recorded");
    for ahead in [-30 * DAY, 30 * DAY] {
        check(&Program::replay(ahead), "outside of requests");
        let program = Program::replay(-ahead);
        let then = wall_clock() + ahead;
        program.expect(
            then,
            &vec![[then, then + 5].map(reading).to_vec(); paths.len()],
        );
        check(&program, "in requests");
    }
}
