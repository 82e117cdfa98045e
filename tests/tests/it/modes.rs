//! Who can read what a run leaves: under a umask that forbids nothing, files are 0600 and folders
//! 0700, and a server that runs as another user has what it needs.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_tests::retro::Case;
use hindcast_tests::{Finished, Process, Stage, program, wait_for};

/// Runs a command line with `hindcast` as its program, under the widest umask.
fn wide_open(stage: &Stage, name: &str, line: &str) -> Process {
    let mut command = Command::new("sh");
    let line = format!("umask 000; exec {} {line}", program("hindcast").display());
    command
        .args(["-c", &line])
        .env("NO_COLOR", "1")
        // Whatever has no place of its own comes here.
        .env("TMPDIR", temporary(stage));
    Process::start(name, command, stage.folder())
}

fn temporary(stage: &Stage) -> PathBuf {
    let folder = stage.folder().join("tmp");
    std::fs::create_dir_all(&folder).expect("the stage's folder is ours");
    // A server that runs as another user has its folder in here.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, everybody).expect("it is ours");
    folder
}

/// Everything below a path, and the path itself, that others have a right to. Returns how many
/// files and folders were looked at.
#[track_caller]
fn assert_closed(path: &Path) -> usize {
    let (mut looked_at, mut open) = (0, Vec::new());
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = std::fs::symlink_metadata(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kind = metadata.file_type();
        looked_at += 1;
        if !kind.is_symlink() && metadata.mode() & 0o077 != 0 {
            open.push(format!("{:o} {}", metadata.mode(), path.display()));
        }
        let socket = if kind.is_socket() { 0o700 } else { 0o600 };
        let expected = if kind.is_dir() { 0o700 } else { socket };
        if !kind.is_symlink() && metadata.mode() & 0o700 != expected {
            open.push(format!("{:o} {}", metadata.mode(), path.display()));
        }
        if kind.is_dir() {
            let inside = std::fs::read_dir(&path).expect("a folder of ours can be listed");
            left.extend(inside.map(|entry| entry.expect("it can be listed").path()));
        }
    }
    assert!(
        open.is_empty(),
        "not for the owner only:\n{}",
        open.join("\n")
    );
    looked_at
}

/// Whether a user who is neither root nor the owner can look into a folder. `None` where the test
/// may not become another user.
fn can_be_entered(folder: &Path, user: &str) -> Option<bool> {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .args(["ls", "-A"])
        .arg(folder)
        .current_dir("/");
    (std::fs::metadata("/proc/self").ok()?.uid() == 0)
        .then(|| command.output().ok())
        .flatten()
        .map(|output| output.status.success())
}

fn subscribe(case: &Case) {
    let answers = [1, 2, 3].map(|user| {
        let body = format!("{{\"userid\":{user},\"forum\":1}}");
        let sent = case.client().send("POST", "/subscribe", Some(&body));
        sent.expect("the service answers").status
    });
    assert!(answers.iter().all(|status| *status < 300), "{answers:?}");
}

fn loaded() -> Case {
    let case = Case {
        stage: Stage::new("modes", "SELECT 1"),
        workload: "moodle",
    };
    let mut load = Command::new(program("hindcast-workload"));
    load.args(["load", "moodle", "--scale", "0.01", "--database-url"])
        .arg(case.stage.database_url());
    Process::start("load", load, case.stage.folder())
        .wait()
        .assert_code(0);
    case
}

/// Records three subscriptions, and looks at what is there while recording and afterwards.
fn recorded() -> Case {
    let case = loaded();
    let stage = &case.stage;
    let line = format!(
        "record --base template --listen {} --app http://127.0.0.1:{} --pg-listen 127.0.0.1:{} --postgres {} --trace {}",
        stage.ingress(),
        stage.service_port,
        stage.gateway_port,
        stage.database_url(),
        stage.trace().display(),
    );
    let mut recorder = wide_open(stage, "record", &line);
    recorder.wait_until_it_listens(stage.ingress_port);
    let mut command = Command::new("sh");
    command.args(["-c", &case.service("original")]);
    let service = stage.start_service(command);
    subscribe(&case);
    // The write-ahead file and its lock.
    assert!(assert_closed(&stage.trace()) >= 6);
    service.stop();
    recorder.interrupt().assert_code(0);
    assert!(assert_closed(&stage.trace()) >= 12);
    assert_ne!(can_be_entered(&stage.trace(), "nobody"), Some(true));
    case
}

fn run_again(case: &Case, command: &str, variant: &str, more: &str) -> Finished {
    let stage = &case.stage;
    let line = format!(
        "{command} --trace {} --postgres {} --app '{}' {more}",
        stage.trace().display(),
        stage.database_url(),
        case.service(variant),
    );
    wide_open(stage, command, &line).wait()
}

#[test]
fn what_a_recording_and_its_replay_leave_is_for_its_owner_only() {
    let case = recorded();
    let folder = case.stage.folder();
    let log = folder.join("replayed.log");
    // A log that an earlier version left.
    std::fs::write(&log, "old").expect("the folder is ours");
    run_again(
        &case,
        "replay",
        "original",
        &format!("--app-log {}", log.display()),
    )
    .assert_code(0);
    assert_closed(&log);
    let (html, sql) = (folder.join("report.html"), folder.join("changes.sql"));
    let more = format!("--html {} --emit-sql {}", html.display(), sql.display());
    run_again(&case, "retro", "upsert", &more).assert_code(0);
    assert_closed(&html);
    assert_closed(&sql);
    // The service's output has no place of its own here.
    let left = std::fs::read_dir(folder.join("tmp")).expect("it can be listed");
    for entry in left {
        assert_closed(&entry.expect("it can be listed").path());
    }
    assert_closed(&case.stage.trace());
}

#[test]
fn a_backup_and_a_database_rewound_from_it_are_for_their_owners_only() {
    let case = loaded();
    let stage = &case.stage;
    let (backup, work) = (stage.folder().join("backup"), stage.folder().join("work/a"));
    let trace = stage.trace().display().to_string();
    let line = format!(
        "base --trace {trace} --postgres {} --backup {}",
        stage.database_url(),
        backup.display()
    );
    wide_open(stage, "base", &line).wait().assert_code(0);
    assert!(assert_closed(&backup) > 100);
    let mut command = Command::new("sh");
    let line = format!(
        "record --listen {} --app http://127.0.0.1:{} --pg-listen 127.0.0.1:{} --postgres {} --trace {trace}",
        stage.ingress(),
        stage.service_port,
        stage.gateway_port,
        stage.database_url(),
    );
    let mut recorder = wide_open(stage, "record", &line);
    recorder.wait_until_it_listens(stage.ingress_port);
    command.args(["-c", &case.service("original")]);
    let service = stage.start_service(command);
    subscribe(&case);
    service.stop();
    recorder.interrupt().assert_code(0);
    // Others may pass through the stage's folder, as the server's user has to.
    let through = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(stage.folder(), through).expect("it is ours");
    let line = format!(
        "rewind --json --before 1 --trace {trace} --work-folder {}",
        work.display()
    );
    let rewound = wide_open(stage, "rewind", &line).wait().assert_code(0);
    let found: serde_json::Value =
        serde_json::from_str(&rewound.stdout).expect("what rewind says is JSON");
    let closed = std::panic::catch_unwind(|| assert_closed(&work));
    // The folder is the other user's from the first one that was made: it can be entered by the
    // server, and by nobody else.
    let entered = ["postgres", "daemon"].map(|user| can_be_entered(&work, user));
    let remove = found["remove"].as_str().expect("it says how to remove it");
    let pid = remove
        .strip_prefix("kill ")
        .and_then(|rest| rest.split(';').next());
    let pid = pid.unwrap_or_else(|| panic!("no process in {remove:?}"));
    let killed = Command::new("kill").arg(pid).status();
    assert!(killed.expect("kill runs").success());
    wait_for("the server to end", || {
        (!Path::new("/proc").join(pid).exists()).then_some(())
    });
    assert!(closed.expect("everything is closed") > 100);
    assert!(
        entered == [None, None] || entered == [Some(true), Some(false)],
        "{entered:?}"
    );
}

#[test]
fn what_a_recorded_process_leaves_is_for_its_owner_only() {
    let stage = Stage::new("modes-exec", "SELECT 1");
    let recording = stage.folder().join("recording");
    let line = format!(
        "exec --record {} -- sh -c 'umask; true | cat; echo done'",
        recording.display()
    );
    let recorded = wide_open(&stage, "exec", &line).wait().assert_code(0);
    // The program has the umask that it was started with.
    assert_eq!(recorded.stdout, "0000\ndone\n");
    assert!(assert_closed(&recording) >= 6);
    let line = format!("exec --replay {}", recording.display());
    let replayed = wide_open(&stage, "replay-exec", &line)
        .wait()
        .assert_code(0);
    assert_eq!(replayed.stdout, recorded.stdout);
    assert_closed(&recording);
    let left = std::fs::read_dir(stage.folder().join("tmp")).expect("it can be listed");
    for entry in left {
        assert_closed(&entry.expect("it can be listed").path());
    }
}

#[test]
fn a_trace_that_others_can_read_is_named_with_the_command_that_closes_it() {
    let case = recorded();
    let trace = case.stage.trace();
    let open = Command::new("chmod")
        .args(["-R", "go+rX"])
        .arg(&trace)
        .status();
    assert!(open.expect("chmod runs").success());
    let list = |expected: &str| {
        let listed = wide_open(
            &case.stage,
            "ls",
            &format!("ls --trace {}", trace.display()),
        )
        .wait();
        assert!(
            listed
                .stderr
                .lines()
                .next()
                .unwrap_or_default()
                .starts_with(expected),
            "{}",
            listed.stderr
        );
        listed.stderr
    };
    let said = list("Warning: other users of this machine can read what is recorded in ");
    let fix = said.split('`').nth(1).expect("it names a command");
    let closed = Command::new("sh").args(["-c", fix]).status();
    assert!(closed.expect("sh runs").success());
    assert_closed(&trace);
    list("3 requests");
}
