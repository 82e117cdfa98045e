//! Programs in Go, which call nothing of libc: what they carry is told, and what they draw and read
//! for a request is the same in a replay.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_taplog::Direction;
use hindcast_taplog::pins::Reading;

use crate::pins::{DAY, Program, SECRET, wall_clock};

/// Ways to link one; each has its functions at other places, or says less of them.
const WAYS: [&[&str]; 4] = [
    &[],
    &["-ldflags=-s -w"],
    &["-buildmode=pie"],
    &["-ldflags=-linkmode=external"],
];
const DRAWS: [&str; 5] = ["crypto", "rand", "order", "goroutine", "large-stack"];

fn built(way: &[&str]) -> PathBuf {
    let called = format!("serve-go{}", way.concat().replace([' ', '='], ""));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(called);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/serve.go");
    let own = target.with_extension(format!("{:?}", std::thread::current().id()));
    let status = Command::new("go")
        .arg("build")
        .args(way)
        .arg("-o")
        .args([&own, &source])
        .env("CGO_ENABLED", "1")
        .status()
        .expect("there is a Go compiler: scripts/setup test");
    assert!(status.success(), "it does not compile {way:?}");
    own
}

#[test]
fn a_request_draws_again_what_it_drew_however_the_program_is_linked() {
    for way in WAYS {
        let program = built(way);
        let paths = [DRAWS, DRAWS].concat().into_iter().map(str::to_owned);
        let paths: Vec<String> = paths.collect();
        let recording = Program::record_program(&program, Some(SECRET));
        let recorded = recording.ask(&paths);
        let different: BTreeSet<_> = recorded.iter().collect();
        assert_eq!(different.len(), paths.len(), "{way:?} {recorded:?}");
        let heard = recording.recorder.stop();
        let stream = heard.writing(&recorded[0]);
        assert_eq!(stream.text(Direction::Out), recorded.join("\n") + "\n");
        let asked = stream.text(Direction::In);
        assert_eq!(asked.matches("GET /").count(), paths.len(), "{asked}");
        assert_eq!((heard.lost_records, heard.lost_bytes), (0, 0));

        let replay = Program::replay_program(&program, 0);
        replay.expect(wall_clock(), &vec![Vec::new(); paths.len()]);
        assert_eq!(replay.ask(&paths), recorded, "{way:?}");
    }
}

/// Goroutines move from thread to thread, and each thread has a generator of its own.
#[test]
fn a_program_draws_again_what_it_drew_when_it_started() {
    let program = built(WAYS[0]);
    let paths = ["start".to_owned()];
    let recorded = Program::record_program(&program, Some(SECRET)).ask(&paths);
    for _ in 0..2 {
        let replay = Program::replay_program(&program, 0);
        replay.expect(wall_clock(), &[Vec::new()]);
        assert_eq!(replay.ask(&paths), recorded);
    }
    let other = Program::record_program(&program, None).ask(&paths);
    assert_ne!(other, recorded);
}

/// How many tables a request makes depends on what others have left in caches.
#[test]
fn tables_shift_nothing_that_a_request_draws() {
    let program = built(WAYS[0]);
    let paths = vec!["tables".to_owned(); 2];
    let recorded = Program::record_program(&program, Some(SECRET)).ask(&paths);
    assert_ne!(recorded[0], recorded[1]);
    let replay = Program::replay_with(&program, 0, &[("TABLES", "some more")]);
    replay.expect(wall_clock(), &vec![Vec::new(); paths.len()]);
    assert_eq!(replay.ask(&paths), recorded);
}

/// What proves a password is for the connection. What others draw meanwhile is for the request.
#[test]
fn goroutines_draw_while_another_one_connects() {
    let program = built(WAYS[0]);
    let paths = ["connecting".to_owned()];
    let recorded = Program::record_program(&program, Some(SECRET)).ask(&paths);
    let replay = Program::replay_program(&program, 0);
    replay.expect(wall_clock(), &[Vec::new()]);
    let again = replay.ask(&paths);
    let of = |answers: &[String]| {
        answers[0]
            .split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    };
    let ((own, nonce), (own_again, nonce_again)) = (of(&recorded).unwrap(), of(&again).unwrap());
    assert_eq!(own_again, own);
    assert_ne!(nonce_again, nonce);
}

/// Both by the wall clock, and by the one that measures.
#[test]
fn times_are_as_far_apart_as_they_were() {
    let program = built(WAYS[0]);
    let paths = ["time".to_owned()];
    let recording = Program::record_program(&program, Some(SECRET));
    let before = wall_clock();
    let recorded = recording.ask(&paths);
    let readings = recording.recorder.stop().readings;
    let own: Vec<Reading> = (0..2).map(|n| readings[&(1, n)]).collect();
    let shown = |answers: &[String]| -> Vec<i64> {
        let answer = answers[0].split(' ');
        answer.map(|one| one.parse().unwrap()).collect()
    };
    let [began, ended, took] = shown(&recorded)[..] else {
        panic!("{recorded:?}");
    };
    assert_eq!((began, ended), (own[0].time, own[1].time));
    assert!((took - (ended - began)).abs() < 1_000_000, "{recorded:?}");

    // It was much longer, by another recording.
    let later = Reading {
        time: own[1].time + 3_600_000_000_000,
        ..own[1]
    };
    for ahead in [-30 * DAY, 30 * DAY] {
        let replay = Program::replay_program(&program, ahead);
        replay.expect(before, &[vec![own[0], later]]);
        let again = shown(&replay.ask(&paths));
        assert_eq!(again[..2], [own[0].time, later.time]);
        let differs = again[2] - (later.time - own[0].time);
        assert!(differs.abs() < 1_000_000_000, "{again:?}");
    }
}

/// `time.Since` and `time.Until` read no other clock than the one that measures.
#[test]
fn what_is_compared_with_now_is_compared_with_what_now_was() {
    const HOUR: i64 = 3_600_000_000_000;
    let program = built(WAYS[1]);
    let paths = ["since".to_owned()];
    let recording = Program::record_program(&program, Some(SECRET));
    let before = wall_clock();
    let recorded = recording.ask(&paths);
    let readings = recording.recorder.stop().readings;
    let mut own: Vec<Reading> = (0..3).map(|n| readings[&(1, n)]).collect();
    let took = recorded[0].split(' ').next().unwrap().parse::<i64>();
    assert!((took.unwrap() - (own[1].time - own[0].time)).abs() < 1_000_000);

    own[1].time += HOUR;
    own[2].time += 2 * HOUR;
    let replay = Program::replay_program(&program, 30 * DAY);
    replay.expect(before, &[own]);
    let again = replay.ask(&paths);
    let hours: Vec<i64> = again[0]
        .split(' ')
        .map(|one| (one.parse::<i64>().unwrap() + HOUR / 2) / HOUR)
        .collect();
    assert_eq!(hours, [1, 46], "{again:?}");
}

/// Where all connections are taken by what waits, a replay would stand still.
#[test]
fn pools_are_as_large_as_a_replay_needs() {
    let program = built(WAYS[1]);
    let paths = ["pools".to_owned()];
    let recording = Program::record_program(&program, Some(SECRET));
    assert_eq!(recording.ask(&paths), ["0 2 100"]);
    let replay = Program::replay_with(&program, 0, &[("HINDCAST_POOL", "48")]);
    replay.expect(wall_clock(), &[Vec::new()]);
    assert_eq!(replay.ask(&paths), ["0 48 100"]);
}
