//! A recorder that is killed while much of what its service did is not in the recording yet: who
//! comes later puts it there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hindcast_tests::{Finished, Process, Stage};

use super::inside::{CLIENTS, SCHEMA, command, load, record_with, replay};
use super::inside_extension::stage;
use crate::python;

const ROUNDS: usize = 40;
/// In which parts of an undisturbed run it is killed, in percent.
const KILLS: [u32; 8] = [5, 20, 35, 50, 65, 80, 90, 97];

/// Some of it is in the trace, much is spooled and no more, and the recorder is gone.
fn killed(stage: &Stage, more: &[&str]) {
    let recorder = record_with(stage, more, &command(stage, 3));
    load(stage, ROUNDS);
    hindcast_tests::wait_for("some of it to be in the trace", || {
        let some = ls(stage, &stage.trace()).contains("POST");
        some.then_some(())
    });
    load(stage, ROUNDS);
    // The service is in its group.
    recorder.kill();
}

fn ls(stage: &Stage, trace: &Path) -> String {
    let trace = trace.display().to_string();
    let finished = stage.run("ls", &["ls", "-n", "0", "--trace", &trace]);
    finished.stdout + &finished.stderr
}

fn copy(stage: &Stage, name: &str) -> PathBuf {
    let to = stage.folder().join(name);
    let _ = std::fs::remove_dir_all(&to);
    let copied = Command::new("cp")
        .arg("-a")
        .arg(stage.trace())
        .arg(&to)
        .status();
    assert!(copied.unwrap().success());
    to
}

fn recovering(stage: &Stage, trace: &Path) -> Process {
    let mut recover = stage.hindcast(&["recover", "--trace"]);
    recover.arg(trace);
    Process::start("recover", recover, stage.folder())
}

fn recover(stage: &Stage, trace: &Path) -> Finished {
    recovering(stage, trace).wait().assert_code(0)
}

/// All that a recording holds, row by row, but for what is sealed, which never comes out the same;
/// and what is said of the whole.
fn everything(stage: &Stage, trace: &Path) -> String {
    const TABLES: &str = "
import duckdb, sys
for table in ('requests', 'transactions', 'shapes', 'gaps', 'recorders', 'bases'):
    rows = duckdb.sql(f\"SELECT * FROM '{sys.argv[1]}/{table}/*.parquet'\")
    kept = [column for column in rows.columns if column != 'secrets']
    for row in sorted(map(str, rows.select(*kept).fetchall())):
        print(table, row)
";
    let path = trace.display().to_string();
    let rows = python::print(TABLES, &path);
    rows + &ls(stage, trace).replace(&path, "TRACE")
}

fn spool(trace: &Path) -> PathBuf {
    trace.join("wal/r0.spool")
}

#[test]
fn what_a_killed_recorder_left_becomes_the_same_recording_however_often_that_is_killed() {
    let stage = stage("killed", SCHEMA, &[]);
    killed(&stage, &["--flush-interval", "1"]);
    let listed = ls(&stage, &stage.trace());
    assert!(listed.contains("Recorder 0 is gone, and put"), "{listed}");
    assert!(listed.contains("hindcast recover --trace"), "{listed}");
    assert!(listed.contains("% ("), "{listed}");
    let before = listed.matches("POST").count();

    let undisturbed = copy(&stage, "undisturbed");
    let began = Instant::now();
    let said = recover(&stage, &undisturbed).stdout;
    let mut took = began.elapsed();
    let requests = format!("{} requests", 4 * CLIENTS * ROUNDS);
    assert!(said.contains(&requests), "{said}");
    assert!(!spool(&undisturbed).exists());
    let expected = everything(&stage, &undisturbed);
    let after = ls(&stage, &undisturbed).matches("POST").count();
    // Each is there once.
    assert_eq!(after, 2 * CLIENTS * ROUNDS);
    assert!(expected.contains(&format!("{requests}, ")), "{expected}");
    assert!(before < after, "{before} of {after} were in the trace");
    assert!(!expected.contains("Nobody goes on"), "{expected}");

    let mut hits = 0;
    for percent in KILLS {
        let disturbed = copy(&stage, "disturbed");
        for nth in 0..3 {
            let mut recovering = recovering(&stage, &disturbed);
            if recovering.ended_within(took * percent / 100).is_none() {
                recovering.kill();
                hits += 1;
            } else if nth == 0 {
                // The machine had more to do when it was timed.
                took = took * percent / 100;
            }
        }
        recover(&stage, &disturbed);
        let found = everything(&stage, &disturbed);
        assert!(
            found == expected,
            "killed at {percent} %: {}",
            difference(&expected, &found)
        );
    }
    assert!(hits >= KILLS.len(), "only {hits} of them were hit");

    let mut trace = stage.trace();
    recover(&stage, &trace);
    trace.push("wal");
    let left: Vec<_> = std::fs::read_dir(&trace).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let replayed = replay(&stage, &["--to", "60"]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}

fn difference(one: &str, other: &str) -> String {
    let mut lines = one.lines().zip(other.lines());
    let differ = lines.find(|(one, other)| one != other);
    format!(
        "{differ:?}, {} and {} lines",
        one.lines().count(),
        other.lines().count()
    )
}

#[test]
fn where_a_power_failure_cut_the_spool_off_the_recording_ends_with_a_gap() {
    let stage = stage("cut-off", SCHEMA, &[]);
    killed(&stage, &["--flush-interval", "1"]);
    let whole = copy(&stage, "whole");
    recover(&stage, &whole);
    let whole = ls(&stage, &whole);
    let cut = copy(&stage, "cut");
    let files = std::fs::read_dir(spool(&cut)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let last = files
        .filter(|path| path.extension().is_some_and(|end| end == "spool"))
        .max();
    let last = std::fs::File::options()
        .write(true)
        .open(last.unwrap())
        .unwrap();
    let length = last.metadata().unwrap().len();
    last.set_len(length / 2).unwrap();
    recover(&stage, &cut);
    let cut = ls(&stage, &cut);
    assert!(
        cut.contains("Gap") && cut.contains("stopped without closing"),
        "{cut}"
    );
    let (some, all) = (cut.matches("POST").count(), whole.matches("POST").count());
    assert!(0 < some && some < all, "{some} of {all}");
    let answered = |line: &&str| line.contains("POST") && line.contains(" 200 ");
    for line in cut.lines().filter(answered) {
        assert!(whole.contains(line), "{line} is not in {whole}");
    }
}

#[test]
fn requests_beside_the_gateway_are_gone_on_with_too() {
    let stage = Stage::new("killed-gateway", SCHEMA);
    killed(
        &stage,
        &["--flush-interval", "1", "--transactions", "gateway"],
    );
    let undisturbed = copy(&stage, "undisturbed");
    let said = recover(&stage, &undisturbed).stdout;
    let requests = format!("{} requests", 4 * CLIENTS * ROUNDS);
    assert!(said.contains(&requests), "{said}");
    let expected = everything(&stage, &undisturbed);
    let mut disturbed = recovering(&stage, &stage.trace());
    disturbed.ended_within(Duration::from_millis(30));
    disturbed.kill();
    recover(&stage, &stage.trace());
    let found = everything(&stage, &stage.trace());
    assert!(found == expected, "{}", difference(&expected, &found));
}

#[test]
fn what_is_to_be_dropped_is_left_for_nobody() {
    let stage = Stage::new("killed-dropping", SCHEMA);
    let recorder = record_with(&stage, &["--drop-secrets"], &command(&stage, 1));
    assert!(!spool(&stage.trace()).exists());
    recorder.kill();
    let said = recover(&stage, &stage.trace()).stdout;
    assert!(
        said.contains("1 write-ahead file became segments"),
        "{said}"
    );
}

#[test]
fn without_the_key_of_secrets_nothing_is_lost_and_it_is_said_what_is_needed() {
    let stage = Stage::new("killed-key", SCHEMA);
    let key = stage.folder().join("own.key").display().to_string();
    let with_key = ["--secrets-key", &key];
    let recorder = record_with(&stage, &with_key, &command(&stage, 1));
    load(&stage, 2);
    recorder.kill();
    let refused = recovering(&stage, &stage.trace()).wait().assert_code(3);
    assert!(
        refused.stderr.contains("--secrets-key"),
        "{}",
        refused.stderr
    );
    assert!(spool(&stage.trace()).exists());
    let trace = stage.trace().display().to_string();
    let arguments = ["recover", "--trace", &trace, with_key[0], with_key[1]];
    let said = stage.run("recover", &arguments).assert_code(0).stdout;
    assert!(
        said.contains(&format!("{} requests", 4 * CLIENTS)),
        "{said}"
    );
}

#[test]
fn the_next_recorder_goes_on_with_what_the_last_one_left() {
    let stage = stage("killed-next", SCHEMA, &[]);
    killed(&stage, &["--flush-interval", "1"]);
    let next = record_with(&stage, &[], &command(&stage, 1));
    hindcast_tests::wait_for("what was left to be in the recording", || {
        (!spool(&stage.trace()).exists()).then_some(())
    });
    let said = next.interrupt().assert_code(0).stderr;
    assert!(said.contains("and so does this recorder"), "{said}");
    let requests = format!("{} requests", 4 * CLIENTS * ROUNDS);
    assert!(said.contains(&requests), "{said}");
    let listed = ls(&stage, &stage.trace());
    assert!(!listed.contains("Recorder 0 is gone"), "{listed}");
}
