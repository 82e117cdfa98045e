//! The Python programs that some tests need, in a virtual environment that is made once.

#![allow(dead_code, reason = "the tests of other crates use parts of it")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const REQUIREMENTS: &[&str] = &["moto[server]>=5.1,<6", "duckdb>=1.1,<3"];

/// Where `python` is that has what the tests need. A test that cannot get it fails: skipping would
/// hide it.
pub fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .to_owned();
    let venv = target.join("venv");
    // Several tests, in several processes.
    let lock = File::create(target.join("venv.lock")).unwrap();
    lock.lock().unwrap();
    let installed = venv.join("hindcast-requirements.txt");
    let wanted = REQUIREMENTS.join("\n");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return venv.join("bin/python");
    }
    run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv),
        "Python 3 with its module venv is needed (Debian: python3-venv)",
    );
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ])
    .args(REQUIREMENTS);
    run(
        &mut pip,
        "the Python packages for the tests cannot be installed",
    );
    fs::write(installed, wanted).unwrap();
    venv.join("bin/python")
}

fn run(command: &mut Command, problem: &str) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{problem}: {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{problem}: {command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts a script that ends when its standard input does, so that it never outlives the test.
pub fn start(script: &str) -> Child {
    let mut command = Command::new(python());
    command
        .args(["-u", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a script to its end and returns what it printed.
pub fn print(script: &str, argument: &str) -> String {
    let output = Command::new(python())
        .arg("-")
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = output.unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
