//! What cannot be recorded or replayed is said clearly, and no program is broken by the attempt.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::{DIVERGED, FAILED, Outcome, Program, Recorded, Scene, programs};
use hindcast_tests::repository;

fn input() -> String {
    (1..=100).map(|line| format!("line {line}\n")).collect()
}

/// A recording of it is refused with these words, and leaves no recording behind that could be
/// taken for one.
#[track_caller]
fn assert_refused(name: &str, program: &Path, parts: &[&str]) -> Outcome {
    let scene = Scene::new(name);
    let refused = scene.record(&Program::new(program));
    refused
        .assert_code(FAILED)
        .assert_said(&["Error: ", "Hint: "])
        .assert_said(parts);
    assert!(refused.stdout.is_empty(), "it ran: {}", refused.text());
    refused
}

#[test]
fn a_static_program_is_refused() {
    let program = programs::compiled_as("hello", "hello-static", &["-static"]);
    assert_refused("static", &program, &["hello-static", "static"]);
    let program = programs::compiled_as("hello", "hello-static-pie", &["-static-pie"]);
    assert_refused("static-pie", &program, &["hello-static-pie", "static"]);
}

#[test]
fn a_go_program_is_refused() {
    let scene = Scene::new("go-build");
    let folder = scene.folder();
    fs::write(folder.join("main.go"), "package main\n\nimport (\n\t\"fmt\"\n\t\"time\"\n)\n\nfunc main() { fmt.Println(\"hello\", time.Now()) }\n").expect("the scene's folder is ours");
    fs::write(folder.join("go.mod"), "module hello\n\ngo 1.19\n")
        .expect("the scene's folder is ours");
    let build = |output: &str, linking: &[&str]| {
        let mut go = Command::new("go");
        let cache = std::env::temp_dir().join("hindcast-exec-go-cache");
        go.arg("build")
            .args(linking)
            .args(["-o", output, "."])
            .current_dir(folder)
            .env("GOCACHE", cache)
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local");
        assert!(
            go.output()
                .map(|output| output.status.success())
                .unwrap_or_else(|error| panic!(
                    "there is no Go ({error}): install golang-go: scripts/setup test"
                )),
            "it builds"
        );
        folder.join(output)
    };
    assert_refused("go", &build("hello-go", &[]), &["hello-go", "Go"]);
    // Linked with the system's libc as well: it still makes its system calls by itself.
    assert_refused(
        "go-dynamic",
        &build("hello-go-dynamic", &["-ldflags=-linkmode=external"]),
        &["hello-go-dynamic", "Go"],
    );
}

#[test]
fn a_set_uid_program_is_refused() {
    let folder = Scene::new("set-uid-program");
    let program = folder.folder().join("hello-set-uid");
    fs::copy(programs::compiled("hello"), &program).expect("the scene's folder is ours");
    let of_nobody = Command::new("chown")
        .arg("65534:65534")
        .arg(&program)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !of_nobody {
        // A file that gives its rights to others must be somebody else's, and only root can make
        // one.
        assert_refused(
            "set-uid",
            Path::new("/usr/bin/passwd"),
            &["passwd", "set-uid"],
        );
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("it was ours");
    assert_refused("set-uid", &program, &["hello-set-uid", "set-uid"]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).expect("it was ours");
    assert_refused("set-gid", &program, &["hello-set-uid", "set-gid"]);
}

#[test]
fn a_program_whose_library_is_missing_is_refused() {
    let folder = Scene::new("missing-library");
    let library = folder.folder().join("libgone.so");
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(repository("tests/programs/library.c")));
    let program = folder.folder().join("hello-missing");
    run(Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(repository("tests/programs/hello.c"))
        .args(["-Wl,--no-as-needed", "-L"])
        .arg(folder.folder())
        .args(["-lgone", "-Wl,-rpath"])
        .arg(folder.folder()));
    fs::remove_file(library).expect("just made");
    assert_refused("missing", &program, &["hello-missing", "libgone.so"]);
}

#[test]
fn a_program_of_another_libc_is_refused() {
    let program = programs::compiled_with(
        "musl-gcc",
        &repository("tests/programs/hello.c"),
        "hello-musl",
        &[],
    );
    assert_refused("musl", &program, &["hello-musl", "musl"]);
}

#[test]
fn what_is_no_program_is_refused() {
    let folder = Scene::new("no-programs");
    let file = |name: &str, content: &[u8], mode: u32| -> PathBuf {
        let path = folder.folder().join(name);
        fs::write(&path, content).expect("the scene's folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        path
    };
    assert_refused(
        "not-there",
        Path::new("/nowhere/program"),
        &["/nowhere/program"],
    );
    assert_refused("not-executable", &file("plain", b"text", 0o644), &["plain"]);
    assert_refused(
        "garbage",
        &file("garbage", b"\x7fELF and then nothing", 0o755),
        &["garbage"],
    );
    assert_refused(
        "bad-script",
        &file("script", b"#!/nowhere/interpreter\n", 0o755),
        &["/nowhere/interpreter"],
    );
    assert_refused("folder", folder.folder(), &["Error"]);
}

#[test]
fn a_folder_that_is_in_use_is_not_written_to() {
    let scene = Scene::new("in-use");
    let hindcast = |folder: &Path| {
        let mut command = Command::new(hindcast_tests::program("hindcast"));
        command
            .args(["exec", "--record"])
            .arg(folder)
            .args(["--", "date"])
            .output()
            .expect("it starts")
    };
    let full = scene.folder().join("full");
    fs::create_dir(&full).expect("the scene's folder is ours");
    fs::write(full.join("precious"), "do not touch").expect("the scene's folder is ours");
    let output = hindcast(&full);
    assert_eq!(output.status.code(), Some(FAILED));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("full"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fs::read_dir(&full).expect("still there").count(), 1);
    let output = hindcast(Path::new("/proc/nowhere"));
    assert_eq!(output.status.code(), Some(FAILED));
}

/// A recording of the time and some more.
fn recorded(name: &str) -> (Scene, Outcome) {
    let scene = Scene::new(name).file("input.txt", input());
    let recorded = scene.record(&Program::new(programs::compiled("files")));
    assert!(
        recorded.code() == 0 || recorded.code() == 99,
        "{recorded:?}"
    );
    (scene, recorded)
}

#[test]
fn what_is_no_recording_is_refused() {
    let scene = Scene::new("no-recording");
    let hindcast = |folder: &Path| {
        Command::new(hindcast_tests::program("hindcast"))
            .args(["exec", "--replay"])
            .arg(folder)
            .output()
            .expect("it starts")
    };
    for (what, folder) in [
        ("nothing", scene.folder().join("nothing")),
        ("empty", scene.folder().to_owned()),
    ] {
        let output = hindcast(&folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(FAILED), "{what}: {said}");
        assert!(
            said.contains("Error: ") && said.contains(&folder.display().to_string()),
            "{what}: {said}"
        );
    }
    fs::write(scene.folder().join("recording.json"), "{\"not\": \"ours\"}")
        .expect("the scene's folder is ours");
    let output = hindcast(scene.folder());
    assert_eq!(
        output.status.code(),
        Some(FAILED),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_recording_of_another_version_is_refused() {
    let (scene, _) = recorded("version");
    let description = scene.recording().join("recording.json");
    let text = fs::read_to_string(&description).expect("it is there");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    json["log_version"] = 77.into();
    fs::write(&description, json.to_string()).expect("it is ours");
    scene
        .replay()
        .assert_code(FAILED)
        .assert_said(&["Error: ", "version", "77", "Hint: "]);
    fs::write(&description, text).expect("it is ours");

    // The same when only a log is: somebody put two recordings together.
    let log = &Recorded::in_folder(scene.recording()).logs()["p0/t0"];
    Recorded::spoil(log, |bytes| bytes[8] = 77);
    let replayed = scene.replay();
    assert!(
        [FAILED, DIVERGED].contains(&replayed.code()),
        "{replayed:?}"
    );
    replayed.assert_said(&["Error: ", "version"]);
}

#[test]
fn a_recording_of_another_program_is_refused() {
    let scene = Scene::new("another-program");
    let program = scene.folder().join("greeter");
    let build = |greeting: &str| {
        run(Command::new("cc")
            .arg("-o")
            .arg(&program)
            .arg(repository("tests/programs/hello.c"))
            .arg(format!("-DGREETING=\"{greeting}\"")));
    };
    build("good morning");
    let recorded = scene.record(&Program::new(&program));
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
    build("good evening");
    let replayed = scene.replay();
    replayed
        .assert_code(FAILED)
        .assert_said(&["Error: ", "greeter", "Hint: "]);
    assert!(replayed.stdout.is_empty(), "it ran: {}", replayed.text());
    fs::remove_file(&program).expect("just made");
    scene
        .replay()
        .assert_code(FAILED)
        .assert_said(&["Error: ", "greeter", "Hint: "]);
}

#[test]
fn a_truncated_recording_is_refused() {
    let (scene, _) = recorded("truncated");
    let log = Recorded::in_folder(scene.recording()).logs()["p0/t0"].clone();
    let whole = fs::read(&log).expect("it is there");
    let ends = Recorded::each(&log, |event| event.end);
    let middle = ends[ends.len() / 2];
    // Cut between two events, within one, behind the header and within it, and to nothing.
    for keep in [64 + middle, 64 + middle + 2, 64 + ends[0] - 1, 64, 10, 0] {
        fs::write(&log, &whole[..keep]).expect("it is ours");
        let replayed = scene.replay();
        replayed
            .assert_code(FAILED)
            .assert_said(&["Error: ", "Hint: ", "p0/t0"]);
        assert!(
            replayed.stdout.is_empty(),
            "cut to {keep}: it ran, {}",
            replayed.text()
        );
    }
    fs::remove_file(&log).expect("it is ours");
    scene
        .replay()
        .assert_code(FAILED)
        .assert_said(&["Error: ", "Hint: ", "p0/t0"]);
}

/// A process that was killed while it made its log, or whose log was spoilt, does not spoil the
/// others.
#[test]
fn a_child_that_cannot_be_read_is_left_out() {
    let scene = Scene::new("child-damaged");
    let script = "for i in 1 2 3; do sh -c \"sleep 0; echo child $i; exit $i\"; echo $?; done";
    let recorded = scene.record(&Program::new("sh").args(["-c", script]));
    recorded.assert_code(0);
    let second = scene.recording().join("p0.2");
    let whole = |name: &str| fs::read(second.join(name)).expect("it is there");
    let (header, log) = (whole("process"), whole("t0"));
    let expected = recorded.text().replace("child 2\n", "");
    let spoilt = [
        ("process", header[..20].to_vec()),
        ("process", vec![0; header.len()]),
        ("process", Vec::new()),
        ("t0", log[..log.len() - 8].to_vec()),
        ("t0", log[..30].to_vec()),
    ];
    for (file, bytes) in spoilt {
        fs::write(second.join(file), bytes).expect("it is ours");
        let replayed = scene.replay();
        replayed
            .assert_code(0)
            .assert_said(&["Warning: ", "p0.2 is left out", file]);
        assert_eq!(replayed.text(), expected, "{file}");
        fs::write(second.join("process"), &header).expect("it is ours");
        fs::write(second.join("t0"), &log).expect("it is ours");
    }
    scene.assert_replays(&recorded);
}

/// The kernel follows the link before the loader looks for libraries beside the program.
#[test]
fn a_program_behind_a_link_finds_the_libraries_beside_it() {
    let scene = Scene::new("linked");
    let home = scene.folder().join("home");
    fs::create_dir(&home).expect("the scene's folder is ours");
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(home.join("libbeside.so"))
        .arg(repository("tests/programs/library.c")));
    run(Command::new("cc")
        .arg("-o")
        .arg(home.join("hello-beside"))
        .arg(repository("tests/programs/hello.c"))
        .args(["-Wl,--no-as-needed", "-L"])
        .arg(&home)
        .args(["-lbeside", "-Wl,-rpath,$ORIGIN"]));
    let (link, again) = (scene.folder().join("link"), scene.folder().join("hello"));
    std::os::unix::fs::symlink(home.join("hello-beside"), &link).expect("the folder is ours");
    std::os::unix::fs::symlink("link", &again).expect("the folder is ours");
    let recorded = scene.record(&Program::new(&again));
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
}

/// What a kill in the middle leaves behind: a log that ends with its last complete event.
#[test]
fn a_recording_that_ends_early_replays_as_far_as_it_goes() {
    let (scene, recorded) = recorded("early");
    let log = Recorded::in_folder(scene.recording()).logs()["p0/t0"].clone();
    let whole = fs::read(&log).expect("it is there");
    let ends = Recorded::each(&log, |event| event.end);
    let mut shown = 0;
    for nth in [0, 1, ends.len() / 3, ends.len() / 2, ends.len() - 2] {
        let mut bytes = whole.clone();
        bytes[24..32].copy_from_slice(&(ends[nth] as u64).to_ne_bytes());
        bytes.truncate(64 + ends[nth]);
        fs::write(&log, bytes).expect("it is ours");
        let replayed = scene.replay();
        replayed
            .assert_code(0)
            .assert_said(&["Note: the recording ends at thread 0, event "]);
        assert!(
            recorded.stdout.starts_with(&replayed.stdout),
            "after {nth} events: it shows what was never recorded\n{}",
            replayed.text()
        );
        assert!(replayed.stdout.len() >= shown, "more of it shows more");
        shown = replayed.stdout.len();
    }
}

/// Garbage in a log is a divergence or the end, never a crash of ours and never a hang.
#[test]
fn a_damaged_recording_is_reported() {
    let (scene, recorded) = recorded("damaged");
    let log = Recorded::in_folder(scene.recording()).logs()["p0/t0"].clone();
    let whole = fs::read(&log).expect("it is there");
    let offsets = Recorded::each(&log, |event| event.offset);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..24 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut bytes = whole.clone();
        let offset = 64 + offsets[(state >> 33) as usize % offsets.len()];
        match round % 3 {
            0 => bytes[offset..offset + 4].copy_from_slice(&(state as u32).to_ne_bytes()),
            1 => bytes[offset..offset + 4].fill(0xff),
            _ => bytes[offset..offset + 4].fill(0),
        }
        fs::write(&log, bytes).expect("it is ours");
        let replayed = scene.replay();
        if replayed.difference(&recorded).is_none() {
            continue; // The flags of a call whose result is not used, say.
        }
        assert!(
            [0, DIVERGED, FAILED].contains(&replayed.code()),
            "round {round}: {replayed:?}"
        );
        assert!(
            replayed.said.contains("Error: ") || replayed.said.contains("recording ends"),
            "round {round}: {replayed:?}"
        );
    }
}

/// Of data races nobody knows the outcome. A replay is the same by luck, or reported with the
/// event: never silently another, never stuck.
#[test]
fn a_data_race_is_a_divergence_with_a_name() {
    let mut diverged = 0;
    for name in ["race", "spin", "race", "spin"] {
        let scene = Scene::new(name);
        let recorded = scene.record(&Program::new(programs::compiled(name)));
        recorded.assert_code(0);
        for _ in 0..2 {
            let replayed = scene.replay();
            match replayed.code() {
                0 => assert!(
                    replayed.difference(&recorded).is_none(),
                    "a silent difference: {:?}",
                    replayed.difference(&recorded)
                ),
                _ => {
                    replayed.assert_code(DIVERGED).assert_said(&[
                        "Error: replay ",
                        "thread 0",
                        "event",
                        "Expected",
                        "Actual",
                        "Hint: ",
                    ]);
                    diverged += 1;
                }
            }
        }
    }
    assert!(
        diverged > 0,
        "not one of eight replays of a race went another way"
    );
}

/// What cannot be recorded does not stop the program: recording ends there, and both runs say so.
fn assert_recorded_until(name: &str, program: &str, arguments: &[&str], code: i32, reason: &str) {
    let scene = Scene::new(name).file("input.txt", input());
    let program = Program::new(programs::compiled(program)).args(arguments.iter().copied());
    let plain = scene.run(&program);
    let recorded = scene.record(&program);
    assert_eq!(
        recorded.same_lines().difference(&plain.same_lines()),
        None,
        "it does something else when it is recorded"
    );
    recorded
        .assert_code(code)
        .assert_said(&["recorded up to", reason]);
    for _ in 0..2 {
        let replayed = scene.replay();
        replayed.assert_said(&["recording ends", reason]);
        assert!(
            replayed.text().starts_with("~ before: "),
            "{}",
            replayed.text()
        );
        assert!(
            recorded.stdout.starts_with(&replayed.stdout),
            "{}",
            replayed.text()
        );
    }
}

#[test]
fn io_uring_ends_the_recording_not_the_program() {
    assert_recorded_until("uring", "uring", &[], 5, "io_uring");
}

/// Threads that wait go on waiting, and what they execute is not touched by what recording needed.
#[test]
fn a_program_goes_on_as_it_would_when_its_recording_has_ended() {
    assert_recorded_until("after-detach", "after_detach", &[], 5, "io_uring");
}

#[test]
fn a_filter_ends_the_recording_not_the_program() {
    for how in ["deny", "kill"] {
        assert_recorded_until(&format!("seccomp-{how}"), "seccomp", &[how], 6, "seccomp");
    }
}

#[test]
fn strict_computing_ends_the_recording_not_the_program() {
    assert_recorded_until("seccomp-strict", "seccomp", &["strict"], 6, "seccomp");
}

#[test]
fn a_shared_segment_ends_the_recording_not_the_program() {
    assert_recorded_until("sysv", "sysv", &[], 4, "System V");
}

#[test]
fn a_cancelled_thread_ends_the_recording_not_the_program() {
    assert_recorded_until("cancel", "cancel", &[], 8, "cancels a thread");
}

/// Memory that changes because a file does is warned about when it is recorded, and missed when it
/// is replayed.
#[test]
fn a_shared_mapping_of_a_file_is_warned_about() {
    let scene = Scene::new("coherent");
    let program = Program::new(programs::compiled("coherent"));
    let plain = scene.run(&program);
    let recorded = scene.record(&program);
    assert_eq!(recorded.same_lines().difference(&plain.same_lines()), None);
    recorded
        .assert_code(0)
        .assert_said(&["Warning: ", "shares writable memory through a file"]);
    let replayed = scene.replay();
    if replayed.difference(&recorded).is_some() {
        replayed
            .assert_code(DIVERGED)
            .assert_said(&["Error: replay diverged", "thread 0"]);
    }
}

/// A program that executes what cannot be recorded: the child runs on unrecorded and is named.
#[test]
fn a_child_that_cannot_be_recorded_is_named() {
    let program = programs::compiled_as("hello", "hello-static", &["-static"]);
    let scene = Scene::new("static-child");
    let script = format!("echo before; {}; echo after $?", program.display());
    let recorded = scene.record(&Program::new("sh").args(["-c", &script]));
    recorded.assert_code(0).assert_said(&["hello-static"]);
    assert!(
        recorded.text().starts_with("before\nhello\n~ at"),
        "{}",
        recorded.text()
    );
    let replayed = scene.replay();
    replayed.assert_code(0).assert_said(&["hello-static"]);
    assert_eq!(
        replayed.text(),
        "before\nafter 0\n",
        "what was not recorded is not shown"
    );
}

/// The disk is full: recording ends, the program does not notice.
#[test]
fn a_full_disk_ends_the_recording_not_the_program() {
    let scene = Scene::new("full-disk").file("input.txt", input());
    let disk = scene.folder().join("disk");
    fs::create_dir(&disk).expect("the scene's folder is ours");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(&disk)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        // Only root can make a small disk; CI is root.
        eprintln!("not tested: a tmpfs cannot be mounted by this user");
        return;
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _mounted = Mounted(&disk);
    let output = Command::new(hindcast_tests::program("hindcast"))
        .args(["exec", "--record"])
        .arg(disk.join("recording"))
        .arg("--")
        .arg(programs::compiled("large"))
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(
        output.stdout.iter().filter(|byte| **byte == b'\n').count(),
        64 + 200_000 + 1
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("recorded up to"),
        "{}",
        &said[said.len().saturating_sub(2000)..]
    );
}
