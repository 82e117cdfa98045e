//! Files of PHP's sessions in a replay are its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hindcast_spool::SharedBoard;
use hindcast_taplog::board::{Purpose, Redirect};

use crate::stage::{Recorder, built_with};

/// What the program says, and what is in the files of the recorded service afterwards.
fn check(purpose: Purpose, until: i64, flags: &[&str], expected: &[&str]) {
    let theirs = tempfile::tempdir().unwrap();
    let ours = tempfile::tempdir().unwrap();
    for name in ["sess_4k2", "notes"] {
        std::fs::write(theirs.path().join(name), "recorded").unwrap();
    }
    let board = Arc::new(SharedBoard::make(purpose, &Redirect::NONE).unwrap());
    let folder = ours.path().as_os_str().as_encoded_bytes();
    if matches!(purpose, Purpose::Replay) {
        assert!(board.sessions().keep_in(folder, until));
    }
    let recorder = Recorder::with_board(board);
    let called = format!("sessions{}", flags.len());
    let mut command = Command::new(built_with("sessions", &called, flags));
    command.arg(theirs.path());
    recorder.tap(&mut command);
    let output = command.output().unwrap();
    recorder.stop();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let left = |name: &str| match std::fs::read_to_string(Path::new(theirs.path()).join(name)) {
        Ok(text) => text,
        Err(_) => "gone".to_owned(),
    };
    let left = format!("left: {}, {}", left("sess_4k2"), left("notes"));
    let all: Vec<&str> = said.lines().chain([left.as_str()]).collect();
    assert_eq!(all, expected);
}

/// As PHP's is, the symbol is one that a library finds.
const PHP: [&str; 1] = ["-rdynamic"];

#[test]
fn a_session_that_was_made_while_it_was_recorded_is_not_there() {
    check(
        Purpose::Replay,
        0,
        &PHP,
        &[
            "before: sess_4k2 is not there",
            r#"added to sess_4k2: """#,
            r#"added to sess_4k2: "+""#,
            "removed: sess_4k2 is not there",
            r#"added to sess_4k2: """#,
            r#"added to notes: "recorded""#,
            "left: recorded, recorded+",
        ],
    );
}

#[test]
fn a_session_that_was_there_before_is_copied() {
    check(
        Purpose::Replay,
        i64::MAX,
        &PHP,
        &[
            "before: sess_4k2 is there",
            r#"added to sess_4k2: "recorded""#,
            r#"added to sess_4k2: "recorded+""#,
            "removed: sess_4k2 is not there",
            r#"added to sess_4k2: """#,
            r#"added to notes: "recorded""#,
            "left: recorded, recorded+",
        ],
    );
}

#[test]
fn a_service_that_is_recorded_has_its_files_where_they_are() {
    check(
        Purpose::Record { first: 1 },
        i64::MAX,
        &PHP,
        &[
            "before: sess_4k2 is there",
            r#"added to sess_4k2: "recorded""#,
            r#"added to sess_4k2: "recorded+""#,
            "removed: sess_4k2 is not there",
            r#"added to sess_4k2: """#,
            r#"added to notes: "recorded""#,
            "left: +, recorded+",
        ],
    );
}

#[test]
fn what_is_not_php_has_its_files_where_they_are() {
    check(
        Purpose::Replay,
        0,
        &[],
        &[
            "before: sess_4k2 is there",
            r#"added to sess_4k2: "recorded""#,
            r#"added to sess_4k2: "recorded+""#,
            "removed: sess_4k2 is not there",
            r#"added to sess_4k2: """#,
            r#"added to notes: "recorded""#,
            "left: +, recorded+",
        ],
    );
}
