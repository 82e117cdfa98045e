//! A database file of DuckDB, made by the DuckDB that is installed: none is part of this program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::CliError;

/// Runs a script in the database at `path`, which is made if it is not there. What else is in it
/// stays.
pub fn make(path: &Path, script: &[u8]) -> Result<(), CliError> {
    let Some(mut duckdb) = find(path) else {
        return Err(left_as_script(path, script));
    };
    let output = feed(&mut duckdb, script).map_err(|error| {
        let program = duckdb.get_program().to_string_lossy();
        CliError::because(format!("cannot run {program}"), &error)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().map(str::to_owned).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    Err(
        CliError::failed(format!("DuckDB could not make {}", path.display()))
            .detail("it said", last)
            .hint("if the file is another program's, choose another name; views need DuckDB 1.1 or newer"),
    )
}

/// The command-line shell, or else the module of Python. The file is for its owner only, as all
/// that is made of a recording: DuckDB itself asks the umask.
fn find(path: &Path) -> Option<Command> {
    let private = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        command.args(words).arg(path);
        command
    };
    if answers("duckdb", &["--version"]) {
        return Some(private(&["duckdb", "-bail"]));
    }
    let python = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute(sys.stdin.read())";
    answers("python3", &["-c", "import duckdb"]).then(|| private(&["python3", "-c", python]))
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

fn feed(command: &mut Command, script: &[u8]) -> std::io::Result<Output> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = piped.stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // Where it stops reading it says why.
    let _ = stdin.write_all(script);
    drop(stdin);
    child.wait_with_output()
}

fn left_as_script(path: &Path, script: &[u8]) -> CliError {
    let mut name = path.as_os_str().to_owned();
    name.push(".sql");
    let left = PathBuf::from(name);
    if let Err(error) = hindcast_private::write(&left, script) {
        return CliError::because(format!("cannot write {}", left.display()), &error);
    }
    CliError::failed("there is no DuckDB here: neither the program `duckdb` nor Python's module")
        .hint(format!(
            "`pip install duckdb`, and again; or where there is one: duckdb {} <{}",
            path.display(),
            left.display()
        ))
}
