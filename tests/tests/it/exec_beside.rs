//! A follower that writes the log: what the program reads from large files is read once more by
//! another process, and the recording is an ordinary one.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use hindcast_execlog::{Kind, LogHeader};
use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::{Outcome, Program, Recorded, Scene, programs, strays};
use hindcast_tests::{Process, wait_for};

const FOLLOWER: &str = "hindcast-writer";

/// A file that reads may refer to: large, of bytes that differ everywhere, and not written to of
/// late.
fn large_file(scene: &Scene, bytes: u32) -> PathBuf {
    let path = scene.folder().join("large");
    let content: Vec<u8> = (0..bytes / 4)
        .flat_map(|word| (word.wrapping_mul(0x9e37_79b9)).to_ne_bytes())
        .collect();
    fs::write(&path, content).expect("the scene's folder is ours");
    wait_for("a file that is older than two seconds", || {
        let written = fs::metadata(&path).ok()?.modified().ok()?;
        let age = SystemTime::now().duration_since(written).ok()?;
        (age > Duration::from_millis(2100)).then_some(())
    });
    path
}

/// A shell's script, recorded with a follower. It gets the file as `$1`, and what it may wait at
/// as `$2`.
fn script(scene: &Scene, text: &str, file: &Path) -> Program {
    run(Command::new("mkfifo").arg(gate(scene)));
    Program::new("/bin/sh")
        .args(["-c", text, "sh"])
        .args([file.to_owned(), gate(scene)])
        .options(["--follower"])
}

fn gate(scene: &Scene) -> PathBuf {
    scene.folder().join("gate")
}

/// Lets the script go on that waits at its gate, as soon as it does.
fn tell_to_go(scene: &Scene) {
    let mut open = fs::OpenOptions::new();
    open.write(true).custom_flags(libc::O_NONBLOCK);
    let mut gate = wait_for("a script at its gate", || open.open(gate(scene)).ok());
    gate.write_all(b"go\n").expect("the script reads it");
}

/// Waits for [`tell_to_go`], in the shell itself: each process more would be recorded as well. Who
/// is at the gate again while it is still open from before finds nothing in it, and waits anew.
const WAIT: &str = r#"until read -r _ < "$2"; do :; done; "#;

fn follower(server: &Process) -> u32 {
    wait_for("the follower", || strays::named(server.pid(), FOLLOWER))
}

fn signal(pid: u32, signal: &str) {
    run(Command::new("kill").args([signal, &pid.to_string()]));
}

/// Bytes of files that the logs of a recording refer to.
fn referred(scene: &Scene) -> u64 {
    let word = |log: &PathBuf| {
        let at = std::mem::offset_of!(LogHeader, referred);
        let bytes = fs::read(log).unwrap_or_default();
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_ne_bytes)
    };
    let logs = Recorded::in_folder(scene.recording()).logs();
    logs.values().map(word).sum()
}

/// Whether an event names a file that others may refer to.
fn names_a_file(log: &Path) -> bool {
    Recorded::each(log, |event| event.kind == Kind::Given as u16).contains(&true)
}

fn wait_until_it_refers(scene: &Scene, bytes: u64) {
    wait_for("reads that refer to the file", || {
        (referred(scene) >= bytes).then_some(())
    });
}

/// No log refers to anything, and nothing of the way there is left.
fn assert_whole(scene: &Scene) {
    assert_eq!(referred(scene), 0);
    let logs = Recorded::in_folder(scene.recording()).logs();
    for (name, log) in logs {
        assert!(!log.with_extension("whole").exists(), "{name}");
        assert!(!names_a_file(&log), "{name}");
    }
}

#[test]
fn a_file_that_is_read_is_in_the_recording() {
    let scene = Scene::new("beside-whole");
    let file = large_file(&scene, 3_000_000);
    let program = script(&scene, r#"cksum < /dev/null; cksum "$1"; rm "$1""#, &file);
    let recorded = scene.record(&program);
    recorded.assert_code(0);
    assert!(recorded.text().contains(" 3000000 "), "{}", recorded.text());
    assert_whole(&scene);
    let bytes = Recorded::in_folder(scene.recording()).bytes();
    assert!(bytes > 3_000_000, "{bytes} bytes of events");
    scene.assert_replays(&recorded);
}

#[test]
fn reads_are_known_wherever_the_descriptor_stands() {
    let scene = Scene::new("beside-places");
    let file = large_file(&scene, 400_000);
    let places = Program::new(programs::compiled("follow_reads")).args([file]);
    let plain = scene.run(&places);
    let recorded = scene.record(&places.options(["--follower"]));
    if let Some(difference) = recorded.difference(&plain) {
        panic!("recorded: {difference}");
    }
    assert_whole(&scene);
    scene.assert_replays(&recorded);
}

/// It has the file already, so the file may be removed: all that is lost with the follower is its
/// copy, and the path still leads to it.
#[test]
fn the_recording_is_whole_when_the_follower_is_killed() {
    let scene = Scene::new("beside-killed");
    let file = large_file(&scene, 3_000_000);
    let text = format!(r#"{WAIT} cksum "$1"; {WAIT} cksum "$1""#);
    let server = scene.start_recording(&script(&scene, &text, &file));
    let follower = follower(&server);
    signal(follower, "-STOP");
    tell_to_go(&scene);
    wait_until_it_refers(&scene, 2_000_000);
    signal(follower, "-KILL");
    wait_for("the end of the follower", || {
        strays::named(server.pid(), FOLLOWER)
            .is_none()
            .then_some(())
    });
    tell_to_go(&scene);
    let recorded = Outcome::of_end(server);
    recorded.assert_code(0);
    recorded.assert_said(&["the follower that writes the log ended before the program (SIGKILL)"]);
    assert_whole(&scene);
    scene.assert_replays(&recorded);
}

/// Its log is completed as well, though no read refers to the file.
#[test]
fn a_file_that_is_opened_and_not_read_is_no_matter() {
    let scene = Scene::new("beside-opened");
    let file = large_file(&scene, 400_000);
    let text = format!(r#"{WAIT} exec 3< "$1"; {WAIT} echo done"#);
    let server = scene.start_recording(&script(&scene, &text, &file));
    let follower = follower(&server);
    signal(follower, "-STOP");
    tell_to_go(&scene);
    wait_for("an event that names the file", || {
        let logs = Recorded::in_folder(scene.recording()).logs();
        logs.values().any(|log| names_a_file(log)).then_some(())
    });
    signal(follower, "-KILL");
    tell_to_go(&scene);
    let recorded = Outcome::of_end(server);
    recorded.assert_code(0);
    assert_whole(&scene);
    scene.assert_replays(&recorded);
}

#[test]
fn a_program_whose_follower_is_far_behind_logs_what_it_reads() {
    let scene = Scene::new("beside-behind");
    let text = format!(r#"{WAIT} dd if=/dev/zero of=/dev/null bs=1M count=300 2> /dev/null"#);
    let server = scene.start_recording(&script(&scene, &text, Path::new("none")));
    let follower = follower(&server);
    signal(follower, "-STOP");
    tell_to_go(&scene);
    let log = wait_for("a log of bytes", || {
        let mut logs = Recorded::in_folder(scene.recording()).logs().into_values();
        logs.find(|log| fs::metadata(log).is_ok_and(|found| found.len() > 40 << 20))
    });
    let referred = referred(&scene);
    assert!(referred <= 256 << 20, "{referred}");
    signal(follower, "-CONT");
    let recorded = Outcome::of_end(server);
    recorded.assert_code(0);
    assert_whole(&scene);
    let whole = fs::metadata(log).expect("it is in its place").len();
    assert!(whole > 300 << 20, "{whole}");
    scene.replay().assert_code(0);
}

#[test]
fn a_file_that_is_changed_too_soon_ends_the_recording_there() {
    let scene = Scene::new("beside-changed");
    let file = large_file(&scene, 3_000_000);
    let (server, follower) = read_through(&scene, &file);
    let mut changed = fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .expect("the scene's folder is ours");
    changed.write_all(b"more").expect("there is room");
    signal(follower, "-CONT");
    let recorded = Outcome::of_end(server);
    recorded.assert_code(137);
    recorded.assert_said(&[
        "was recorded up to event",
        "was changed before the follower had read what the program read from it",
    ]);
    assert_whole(&scene);
    scene.replay().assert_said(&["was changed before"]);
}

/// Records a program that reads a file through while its follower stands still, and kills the
/// program.
fn read_through(scene: &Scene, file: &Path) -> (Process, u32) {
    let reads = programs::compiled("follow_reads");
    let text = format!(r#"{WAIT} exec {} pause "$1""#, reads.display());
    let server = scene.start_recording(&script(scene, &text, file));
    let follower = follower(&server);
    signal(follower, "-STOP");
    tell_to_go(scene);
    wait_for("the end of the file", || {
        server.stdout().contains("last").then_some(())
    });
    let program = wait_for("the program", || {
        strays::named(server.pid(), "follow_reads")
    });
    signal(program, "-KILL");
    (server, follower)
}

#[test]
fn the_log_of_a_program_that_is_killed_is_complete_up_to_there() {
    let scene = Scene::new("beside-leader-killed");
    let file = large_file(&scene, 3_000_000);
    let (server, follower) = read_through(&scene, &file);
    signal(follower, "-CONT");
    let recorded = Outcome::of_end(server);
    recorded.assert_code(137);
    assert_whole(&scene);
    let bytes = Recorded::in_folder(scene.recording()).bytes();
    assert!(bytes > 3_000_000, "{bytes} bytes of events");
    let replayed = scene.replay();
    assert_eq!(replayed.text(), recorded.text());
    replayed.assert_said(&["ended by SIGKILL"]);
}

/// The launcher is killed: the program and its follower come to their ends.
#[test]
fn the_recording_is_whole_when_the_launcher_is_killed() {
    let scene = Scene::new("beside-launcher-killed");
    let file = large_file(&scene, 3_000_000);
    let text = format!(r#"{WAIT} cksum "$1"; echo done"#);
    let server = scene.start_recording(&script(&scene, &text, &file));
    let follower = follower(&server);
    let [stdout, _] = server.output_files();
    signal(server.pid(), "-KILL");
    tell_to_go(&scene);
    wait_for("the end of the program", || {
        fs::read_to_string(&stdout)
            .ok()?
            .ends_with("done\n")
            .then_some(())
    });
    wait_for("the end of the follower", || {
        fs::metadata(format!("/proc/{follower}/exe"))
            .is_err()
            .then_some(())
    });
    assert_whole(&scene);
    let replayed = scene.replay();
    replayed.assert_code(0);
    assert!(replayed.text().ends_with("done\n"), "{}", replayed.text());
}

/// There is no room for what the program has read: the program does not notice, and a replay
/// completes the recording when there is.
#[test]
fn a_recording_that_found_no_room_is_completed_later() {
    let scene = Scene::new("beside-full");
    let file = large_file(&scene, 9_000_000);
    let disk = scene.folder().join("disk");
    fs::create_dir_all(&disk).expect("the scene's folder is ours");
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg(
            r#"mount -t tmpfs -o size=6m none "$2" && "$1" exec --record "$2/recording" --follower -- cksum "$3" &&
            mount -o remount,size=64m "$2" && "$1" exec --replay "$2/recording""#,
        )
        .arg("sh")
        .arg(hindcast_tests::program("hindcast"))
        .args([&disk, &file])
        .output()
        .expect("unshare is there");
    let (text, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}");
    let sums: Vec<&str> = text.lines().collect();
    assert_eq!(sums.len(), 2, "{text}{said}");
    assert_eq!(sums[0], sums[1], "{said}");
    assert!(
        said.contains("refers to files, and could not be completed"),
        "{said}"
    );
}
