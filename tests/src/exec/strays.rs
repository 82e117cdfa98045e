//! Processes that a run started: found by a mark in their environment, and what they are doing.

use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every process of a scene has it in its environment, whatever group or session it made for
/// itself.
pub const MARK: &str = "HINDCAST_TEST_SCENE";

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn marked(folder: &Path) -> Vec<u32> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark)
    };
    // A process that has ended and was not waited for has no environment any more.
    pids().into_iter().filter(has_it).collect()
}

/// Ends what is left of the scene in this folder; the command lines of what it was, after a moment
/// in which it may end by itself.
pub fn end(folder: &Path) -> Vec<String> {
    let begun = Instant::now();
    while !std::thread::panicking()
        && begun.elapsed() < Duration::from_secs(2)
        && !marked(folder).is_empty()
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = marked(folder);
    let names = left.iter().map(|pid| command_line(*pid)).collect();
    for pid in left {
        let _ = Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .stderr(Stdio::null())
            .status();
    }
    names
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// A process and all that descend from it.
pub fn family(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = pids()
        .into_iter()
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat
                .rsplit_once(')')?
                .1
                .split_whitespace()
                .nth(1)?
                .parse()
                .ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

/// What descends from a process and has this name: the first fifteen letters of its program's.
pub fn named(pid: u32, name: &str) -> Option<u32> {
    family(pid)
        .into_iter()
        .skip(1)
        .find(|pid| is_named(*pid, name))
}

/// Whether a process has this name.
pub fn is_named(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim() == name)
}

/// Where each thread of a process and its descendants is: for a person who wants to know why there
/// is no end.
pub fn what_they_do(pid: u32) -> String {
    let mut text = String::new();
    for pid in family(pid) {
        let _ = writeln!(text, "{pid} {}", command_line(pid));
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let read = |file: &str| {
                fs::read_to_string(task.path().join(file))
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            };
            let state = read("stat")
                .rsplit_once(')')
                .map(|(_, rest)| rest.trim()[..1].to_owned())
                .unwrap_or_default();
            let _ = writeln!(
                text,
                "  {} {state} in {}: {}",
                task.file_name().display(),
                read("wchan"),
                read("syscall")
            );
        }
    }
    // The launcher comes first; what hangs is usually its child.
    if let Some(child) = family(pid).last()
        && let Ok(output) = Command::new("timeout")
            .args([
                "20",
                "gdb",
                "-q",
                "-batch",
                "-ex",
                "thread apply all backtrace 12",
                "-p",
                &child.to_string(),
            ])
            .stdin(Stdio::null())
            .output()
    {
        let stacks = String::from_utf8_lossy(&output.stdout);
        for line in stacks
            .lines()
            .filter(|line| line.starts_with('#') || line.starts_with("Thread"))
            .take(80)
        {
            let _ = writeln!(text, "  {}", &line[..line.len().min(160)]);
        }
    }
    text
}
