//! Interfaces of one's own: an annotated header, and the library behind it is no longer recorded.

use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::{FAILED, Program, Scene, programs};
use hindcast_tests::{program, repository};

/// The program that plays with the library, and the folder of both sources.
fn dice() -> (PathBuf, PathBuf) {
    let folder = repository("tests/programs/dice");
    let library = programs::compiled_with(
        "cc",
        &folder.join("library.c"),
        "libdice.so",
        &["-shared", "-fPIC"],
    );
    let beside = library
        .parent()
        .expect("it is in a folder")
        .display()
        .to_string();
    let flags = [
        format!("-L{beside}"),
        "-ldice".to_owned(),
        format!("-Wl,-rpath,{beside}"),
        "-lpthread".to_owned(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    (
        programs::compiled_with("cc", &folder.join("main.c"), "dice", &flags),
        folder,
    )
}

fn header(folder: &Path, text: &str) -> String {
    let path = folder.join("annotated.h");
    std::fs::write(&path, text).expect("the scene's folder is writable");
    path.display().to_string()
}

/// What `--show` says about the recording of a scene.
fn shown(scene: &Scene) -> String {
    run(Command::new(program("hindcast"))
        .args(["exec", "--show"])
        .arg(scene.recording()))
}

#[test]
fn a_library_replays_at_libc_and_at_an_interface_of_ones_own() {
    let (program, folder) = dice();
    let annotated = folder.join("dice_annotated.h").display().to_string();
    for options in [&[][..], &["--interface", &annotated]] {
        let scene = Scene::new("dice");
        let recorded = scene.record(&Program::new(&program).options(options.iter().copied()));
        recorded.assert_code(3);
        assert!(recorded.text().contains("summary "), "{recorded:?}");
        scene.assert_replays(&recorded);
        // Its randomness is beneath the cut, or at it.
        let shown = shown(&scene);
        assert_eq!(shown.contains("getrandom"), options.is_empty(), "{shown}");
        assert_eq!(
            shown.contains("dice_summary"),
            !options.is_empty(),
            "{shown}"
        );
    }
}

#[test]
fn two_interfaces_at_once_keep_their_numbers_apart() {
    let (program, folder) = dice();
    let scene = Scene::new("dice-and-more");
    let more = header(
        scene.folder(),
        "#include \"hindcast.h\"\nint nobody_calls_this(int n);\n",
    );
    let annotated = folder.join("dice_annotated.h").display().to_string();
    let options = [
        "--interface",
        &more,
        "--interface",
        &annotated,
        "--interface",
        "sqlite3",
    ];
    let recorded = scene.record(&Program::new(&program).options(options));
    recorded.assert_code(3);
    scene.assert_replays(&recorded);
}

#[test]
fn a_header_that_is_not_understood_is_refused_with_the_line() {
    let (program, _) = dice();
    let scene = Scene::new("dice-unclear");
    let unclear = header(
        scene.folder(),
        "#include \"hindcast.h\"\n\nint dice_sum(int *values, int count);\n",
    );
    let refused = scene.record(&Program::new(&program).options(["--interface", &unclear]));
    refused.assert_code(FAILED);
    refused.assert_said(&["annotated.h:3", "`int *values`", "in, out or inout"]);
}
