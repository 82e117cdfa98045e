//! What processes and threads draw outside of requests is the same in a replay, and never the same
//! as what others draw.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use hindcast_spool::SharedBoard;
use hindcast_taplog::board::{Purpose, Redirect};
use hindcast_taplog::pins::KEY;

use crate::stage::{Recorder, built, built_with};

/// By name, what each drew.
type Drawn = BTreeMap<String, String>;

fn board(purpose: Purpose, key: Option<[u8; KEY]>) -> Arc<SharedBoard> {
    let board = SharedBoard::make(purpose, &Redirect::NONE).unwrap();
    if let Some(key) = key {
        board.starts().set_key(&key);
    }
    Arc::new(board)
}

fn drawn(mut command: Command, board: &Arc<SharedBoard>) -> Drawn {
    let recorder = Recorder::with_board(Arc::clone(board));
    recorder.tap(&mut command);
    let output = command.output().unwrap();
    recorder.stop();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.split_once(' ').unwrap());
    let mut drawn = Drawn::new();
    for (name, bytes) in lines {
        let before = drawn.insert(name.to_owned(), bytes.to_owned());
        assert_eq!(before, None, "{name}");
    }
    drawn
}

fn program() -> Command {
    let mut command = Command::new(built("starts"));
    command.env_clear().env("SEEDS", libcrypto());
    command
}

/// A library that is called as OpenSSL's, and draws as it does.
fn libcrypto() -> PathBuf {
    built_with("seeds", "libcrypto-seeds.so", &["-shared", "-fPIC"])
}

fn by_shell() -> Command {
    let mut command = Command::new("/bin/sh");
    let program = built("starts");
    command
        .args(["-c", "\"$PROGRAM\" & wait $!"])
        .env("PROGRAM", program)
        .env("SEEDS", libcrypto());
    command
}

/// Nothing was drawn twice.
fn assert_different<'a>(all: impl IntoIterator<Item = &'a Drawn>) {
    let mut seen = BTreeSet::new();
    for (name, bytes) in all.into_iter().flatten() {
        assert!(seen.insert(bytes), "{name} drew what another one drew");
    }
}

const RECORD: Purpose = Purpose::Record { first: 1 };

#[test]
fn processes_and_threads_draw_again_what_they_drew_at_their_start() {
    let recorded = drawn(program(), &board(RECORD, Some([42; KEY])));
    assert_different([&recorded]);
    assert!(recorded.len() > 100, "{recorded:?}");
    for command in [program(), by_shell()] {
        let replayed = drawn(command, &board(Purpose::Replay, Some([42; KEY])));
        let names = |drawn: &Drawn| drawn.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&replayed), names(&recorded));
        for (name, bytes) in &replayed {
            let is_same = *bytes == recorded[name];
            assert_eq!(is_same, !name.starts_with("kernel"), "{name}");
        }
    }
}

#[test]
fn starts_of_one_recording_draw_nothing_that_another_one_drew() {
    let one = board(RECORD, Some([42; KEY]));
    let starts = [program, program, by_shell].map(|command| drawn(command(), &one));
    let other = drawn(program(), &board(RECORD, Some([43; KEY])));
    let without = [RECORD, Purpose::Replay].map(|purpose| drawn(program(), &board(purpose, None)));
    assert_different(starts.iter().chain([&other]).chain(&without));
}

/// What each draws, in a line.
const INTERPRETERS: [(&str, &[&str]); 6] = [
    (
        "node",
        &[
            "--require=SHIMS/node.cjs",
            "-e",
            "const c = require('crypto'); console.log('drawn', [c.randomBytes(8).toString('hex'), Math.random(), Math.random(), \
             c.randomUUID(), c.webcrypto.getRandomValues(new Uint32Array(2)), c.randomInt(1e9)].join('-'))",
        ],
    ),
    (
        "python3",
        &[
            "-c",
            "import os, random, secrets, uuid; print('drawn', '-'.join(map(str, [os.urandom(8).hex(), random.random(), \
             random.Random().random(), secrets.token_hex(8), uuid.uuid4()])))",
        ],
    ),
    (
        "ruby",
        &[
            "-rSHIMS/ruby.rb",
            "-rsecurerandom",
            "-e",
            "puts 'drawn ' + [rand, SecureRandom.hex(8), (1..50).to_a.shuffle.first(9).join('.'), 'text'.hash].join('-')",
        ],
    ),
    ("perl", &["-e", "print 'drawn ', rand(), \"\\n\""]),
    (
        "perl",
        &[
            "-ISHIMS/perl",
            "-MHindcastTurns",
            "-MList::Util=shuffle",
            "-e",
            "srand; print 'drawn ', join('-', rand, rand(9), shuffle(1 .. 50)), \"\\n\"",
        ],
    ),
    (
        "php",
        &[
            "-r",
            "echo 'drawn ', bin2hex(random_bytes(8)), '-', mt_rand(), '-', random_int(0, 1 << 40), \"\\n\";",
        ],
    ),
];

#[test]
fn interpreters_draw_again_what_they_drew_at_their_start() {
    let shims = concat!(env!("CARGO_MANIFEST_DIR"), "/shims");
    for (name, words) in INTERPRETERS {
        let command = || {
            let mut command = Command::new(name);
            command
                .args(words.iter().map(|word| word.replace("SHIMS", shims)))
                .env("PYTHONPATH", format!("{shims}/python"));
            command
        };
        let with = |purpose, key| {
            let board = board(purpose, Some([key; KEY]));
            board.pins().set_key(&[key; KEY]);
            drawn(command(), &board)
        };
        let recorded = with(RECORD, 42);
        assert_eq!(with(Purpose::Replay, 42), recorded, "{name}");
        assert_different([&recorded, &with(RECORD, 43)]);
    }
}
