//! How a run ended and what it wrote, and how two of them differ.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::strays;
use crate::Process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl Status {
    /// As a shell, and the launcher, says it.
    pub fn code(self) -> i32 {
        match self {
            Status::Code(code) => code,
            Status::Signal(signal) => 128 + signal,
        }
    }
}

impl From<ExitStatus> for Status {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Status::Code(code),
            (None, Some(signal)) => Status::Signal(signal),
            (None, None) => unreachable!("a process that was waited for exited or was killed"),
        }
    }
}

/// What is left of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: Status,
    pub stdout: Vec<u8>,
    /// What the program wrote.
    pub stderr: Vec<u8>,
    /// What Hindcast itself said: the lines at the end of standard error that are notes or an
    /// error of its own.
    pub said: String,
}

impl Outcome {
    /// Waits for the end.
    ///
    /// # Panics
    /// If it does not come; says what the threads were doing.
    #[track_caller]
    pub fn of(mut process: Process, patience: Duration) -> Self {
        let Some(status) = process.ended_within(patience) else {
            let doing = strays::what_they_do(process.pid());
            let [_, stderr] = process
                .output_files()
                .map(|file| std::fs::read(file).unwrap_or_default());
            drop(process);
            panic!(
                "no end after {} s; its threads:\n{doing}-- standard error\n{}",
                patience.as_secs(),
                shown(&stderr)
            );
        };
        let [stdout, stderr] = process
            .output_files()
            .map(|file| std::fs::read(file).unwrap_or_default());
        let status = Status::from(status);
        let (stderr, said) = split(&stderr, status);
        Self {
            status,
            stdout,
            stderr,
            said,
        }
    }

    /// Waits as long as anything may take.
    #[track_caller]
    pub fn of_end(process: Process) -> Self {
        Self::of(process, super::PATIENCE)
    }

    /// Sends a signal to the launcher, which passes it on, and waits for the end.
    #[track_caller]
    pub fn of_stopped(process: Process, signal: &str) -> Self {
        process.signal_alone(signal);
        Self::of(process, super::PATIENCE)
    }

    pub fn code(&self) -> i32 {
        self.status.code()
    }

    #[track_caller]
    pub fn assert_code(&self, expected: i32) -> &Self {
        assert!(
            self.code() == expected,
            "{:?} instead of {expected}\n-- standard output\n{}\n-- standard error\n{}\n-- hindcast said\n{}",
            self.status,
            shown(&self.stdout),
            shown(&self.stderr),
            self.said
        );
        self
    }

    /// That Hindcast said all of this.
    #[track_caller]
    pub fn assert_said(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(
                self.said.contains(part),
                "no {part:?} in what hindcast said:\n{}\n-- standard error\n{}\n-- {:?}, standard output\n{}",
                self.said,
                shown(&self.stderr),
                self.status,
                shown(&self.stdout)
            );
        }
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Only the lines that every run shows: the others are marked with `~` by the programs in
    /// tests/programs.
    #[must_use]
    pub fn same_lines(&self) -> Self {
        let keep = |bytes: &[u8]| -> Vec<u8> {
            let lines = bytes.split_inclusive(|byte| *byte == b'\n');
            lines
                .filter(|line| !line.starts_with(b"~"))
                .flatten()
                .copied()
                .collect()
        };
        Self {
            stdout: keep(&self.stdout),
            stderr: keep(&self.stderr),
            ..self.clone()
        }
    }

    #[must_use]
    pub fn sorted_lines(&self) -> Self {
        let sorted = |bytes: &[u8]| -> Vec<u8> {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            lines.sort_unstable();
            lines.concat()
        };
        Self {
            stdout: sorted(&self.stdout),
            stderr: sorted(&self.stderr),
            ..self.clone()
        }
    }

    /// What is different from what was expected, in words.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let mut found = String::new();
        if self.code() != expected.code() {
            let _ = writeln!(
                found,
                "\nended with {:?} instead of {:?}",
                self.status, expected.status
            );
        }
        for (name, actual, expected) in [
            ("standard output", &self.stdout, &expected.stdout),
            ("standard error", &self.stderr, &expected.stderr),
        ] {
            if actual != expected {
                let _ = writeln!(found, "\n{name}: {}", first_difference(actual, expected));
            }
        }
        if found.is_empty() {
            return None;
        }
        let _ = writeln!(
            found,
            "-- standard error\n{}\n-- hindcast said\n{}",
            shown(&self.stderr),
            self.said
        );
        Some(found)
    }
}

/// What Hindcast wrote at the end, apart from what the program did. Programs have errors of their
/// own, so an error is taken for Hindcast's only where it speaks of the replay, or nothing was run.
fn split(stderr: &[u8], status: Status) -> (Vec<u8>, String) {
    const OWN: [&str; 4] = [
        "Error: replay",
        "Error: the policy ended",
        "Note: ",
        "Warning: ",
    ];
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // An error of several lines begins with one of ours and goes on to the end.
    let Some(first) = lines.iter().position(|line| {
        OWN.iter().any(|own| line.starts_with(own))
            || (status == Status::Code(super::FAILED) && line.starts_with("Error: "))
    }) else {
        return (stderr.to_vec(), String::new());
    };
    let said: String = lines[first..].concat();
    (lines[..first].concat().into_bytes(), said)
}

fn first_difference(actual: &[u8], expected: &[u8]) -> String {
    let at = actual
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    let line = actual[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let around = |bytes: &[u8]| {
        let start = at
            - actual[..at]
                .iter()
                .rev()
                .take(200)
                .take_while(|byte| **byte != b'\n')
                .count();
        shown(&bytes[start.min(bytes.len())..(at + 200).min(bytes.len())])
    };
    format!(
        "differs at byte {at}, line {line} ({} bytes instead of {})\n   expected: {}\n     actual: {}",
        actual.len(),
        expected.len(),
        around(expected),
        around(actual)
    )
}

/// At most so much of it that a person can still read it.
pub fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 3000;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    if bytes.len() > MOST {
        format!("{text}… ({} bytes)", bytes.len())
    } else {
        text.into_owned()
    }
}

/// Runs a command that should need no more than a moment.
///
/// # Panics
/// If it cannot be started or fails.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n{}",
        output.status,
        shown(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
