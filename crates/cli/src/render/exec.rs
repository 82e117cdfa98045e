//! What the record and replay of a process look like.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use hindcast_exec::check::Checked;
use hindcast_exec::follow::{Dropped, Notice, Then};
use hindcast_exec::replay::Replayed;
use hindcast_exec::report::{Awaited, Report, Stall, ThreadView};
use hindcast_exec::run::Recorded;
use hindcast_exec::show::{Contents, EventLine, ProcessEnd, signal_name};
use hindcast_exec::warning::Warning;
use hindcast_exec::watch::Ended;
use hindcast_execlog::board::{ReportKind, State};
use hindcast_execlog::files::is_first;
use hindcast_pg::secret::masked;

use super::format::{bytes, count, is_active, thousands, time};

/// What is worth a word after a recording; nothing when all of it was recorded.
pub fn recorded(recorded: &Recorded, folder: &Path) -> String {
    let mut text = String::new();
    if let Some(report) = &recorded.report {
        text.push_str(&divergence(report, folder));
    }
    text.push_str(&warnings(&recorded.warnings, folder));
    if let Some(after) = recorded
        .completed_after
        .filter(|after| *after >= WORTH_A_WORD)
    {
        let _ = writeln!(
            text,
            "Note: the log was complete {:.2} s after the program had ended",
            after.as_secs_f64()
        );
    }
    text
}

/// Waiting for less is not noticed.
const WORTH_A_WORD: Duration = Duration::from_millis(100);

/// What has become of a follower.
pub fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Dropped {
            follower,
            why,
            left,
        } => {
            let then = match left {
                0 => "the program goes on, and nobody follows it any more".to_owned(),
                left => format!("the program goes on with {left} more"),
            };
            format!(
                "Warning: follower {follower} was dropped: {}\n         {then}\n",
                reason(why)
            )
        }
        Notice::TookOver {
            follower,
            pid,
            after,
            leader,
            then,
        } => format!(
            "Note: the program was ended by {}; follower {follower} (pid {pid}) goes on in its place after {:.1} ms\n      {}\n",
            how(*leader),
            after.as_secs_f64() * 1000.0,
            from_then_on(then)
        ),
        Notice::NotTakenOver { leader, why } => format!(
            "Warning: the program was ended by {}, and no follower goes on: {}\n",
            how(*leader),
            reason(why)
        ),
        Notice::LostConnections(count) => format!(
            "Warning: {count} connections were closed when the follower went on: the program had received from them and been killed before it was told\n"
        ),
    }
}

/// What a follower is that has gone on.
fn from_then_on(then: &Then) -> String {
    match then {
        Then::Recorded { left, new: Ok(new) } if left.is_empty() => format!(
            "It is recorded from there on. Follower {new} begins at the beginning of the recording: until it has caught up, clients wait that long if this one is killed, too."
        ),
        Then::Recorded { left, new } => {
            let left: Vec<String> = left.iter().map(u32::to_string).collect();
            let followed = match left.is_empty() {
                true => "nothing follows it".to_owned(),
                false => format!("follower {} follows it", left.join(", ")),
            };
            let new = match new {
                Ok(new) => format!("follower {new} begins at the beginning of the recording"),
                Err(why) => format!("a new follower cannot begin: {why}"),
            };
            format!("It is recorded from there on; {followed}, and {new}.")
        }
        Then::Forgotten => {
            "It is not recorded and has no follower, because what it has replayed was not kept. With --record <DIR> it is, and can be followed again. Start it again when there is time.".to_owned()
        }
        Then::Unrecorded => {
            "It is not recorded and has no follower: what a thread was in, or how the program ended, cannot be recorded from its middle on. Start it again with --follow when there is time.".to_owned()
        }
    }
}

fn reason(why: &Dropped) -> String {
    match why {
        Dropped::Ended(ended) => format!("it ended by itself ({})", how(*ended)),
        Dropped::TooSlow(patience) => format!(
            "it was not at the end of the recording after {} s",
            patience.as_secs()
        ),
        Dropped::Reported(report) => match report.kind {
            ReportKind::RecordingEnds => format!("recording ended: {}", report.expected),
            ReportKind::Unusable => report.actual.clone(),
            _ => format!(
                "it diverged at {}: expected {}, found {}",
                place(report),
                report.expected,
                report.actual
            ),
        },
    }
}

pub fn how(ended: Ended) -> String {
    match ended {
        Ended::Exited(status) => format!("exit status {status}"),
        Ended::Signalled(signal) => signal_name(signal).to_string(),
    }
}

/// What there is to say about a recording.
pub fn warnings(warnings: &[Warning], folder: &Path) -> String {
    let mut text = String::new();
    for warning in warnings {
        let _ = match warning {
            Warning::NothingRecorded => writeln!(
                text,
                "Warning: nothing was recorded: the program ran as if alone\nHint: see what `hindcast exec --check` says about it"
            ),
            Warning::Ended {
                process,
                events,
                reason,
            } => writeln!(
                text,
                "Warning: {process} was recorded up to {} and went on without: {reason}\nHint: {}",
                thousands_of_events(*events),
                what_then(reason),
            ),
            Warning::Noted {
                process,
                text: noted,
            } => writeln!(text, "Warning: {process}: {noted}"),
            Warning::StillRunning { process, pid } => {
                writeln!(
                    text,
                    "Note: {process} (pid {pid}) still runs, and is recorded until it ends"
                )
            }
            Warning::Unreadable(why) => writeln!(text, "Warning: {}: {why}", folder.display()),
            Warning::BeginsAt { checkpoint, events } => writeln!(
                text,
                "Note: begins at the checkpoint {}, {} after the start",
                checkpoint.display(),
                count(*events, "event")
            ),
            Warning::NoCheckpoints(why) => {
                writeln!(text, "Warning: no more checkpoints were taken: {why}")
            }
            Warning::FollowerEnded(ended) => writeln!(
                text,
                "Warning: the follower that writes the log ended before the program ({}): from there on the program logged what it read itself",
                how(*ended)
            ),
            Warning::FollowerGoesOn => writeln!(
                text,
                "Note: the log is not complete yet: a process of its own goes on with it"
            ),
            Warning::Incomplete { process, why } => writeln!(
                text,
                "Warning: the log of {process} refers to files, and could not be completed: {why}\nHint: make room; as long as these files are as they were, a replay completes it"
            ),
        };
    }
    text
}

fn thousands_of_events(events: u64) -> String {
    match events {
        0 => "its first event".to_owned(),
        events => format!("event {}", thousands(events)),
    }
}

fn what_then(reason: &str) -> &'static str {
    if reason.contains("disk") || reason.contains("log") {
        "make room, or record on another disk; what was recorded can be replayed"
    } else {
        "what was recorded up to there can be replayed"
    }
}

/// Whether a report says that the recording is at fault, not the replay.
pub fn is_unusable(report: &Report) -> bool {
    matches!(report.kind, ReportKind::Unusable | ReportKind::Broken)
}

/// What a replay came to; nothing when it was faithful to the end.
pub fn replayed(replayed: &Replayed, folder: &Path) -> String {
    match replayed {
        Replayed::Ended { notes, .. } => notes.iter().map(end_of_recording).collect(),
        Replayed::RecordingEnds { report, as_then } => {
            let mut text = end_of_recording(report);
            if let Some(Ended::Signalled(signal)) = as_then {
                let _ = writeln!(text, "Then it was ended by {}.", signal_name(*signal));
            }
            text
        }
        Replayed::Reported(report) => divergence(report, folder),
        Replayed::Stalled(stall) => stalled(stall),
        Replayed::Interrupted(_) => "Replay was ended.\n".to_owned(),
        Replayed::Debugged { report: None, .. } => String::new(),
        Replayed::Debugged {
            report: Some(report),
            ..
        } if report.kind == ReportKind::RecordingEnds => end_of_recording(report),
        Replayed::Debugged {
            report: Some(report),
            ..
        } => divergence(report, folder),
    }
}

fn place(report: &Report) -> String {
    format!(
        "thread {}, event {} (in {})",
        report.thread, report.event, report.process
    )
}

fn end_of_recording(report: &Report) -> String {
    format!(
        "Note: the recording ends at {}: {}\n      Everything before was replayed. Next would have been {}.\n",
        place(report),
        report.expected,
        report.actual
    )
}

fn divergence(report: &Report, folder: &Path) -> String {
    let mut text = String::new();
    let what = match report.kind {
        ReportKind::Unusable => "the recording cannot be used, by",
        ReportKind::Policy => "the policy ended the program at",
        ReportKind::Broken => "hindcast itself failed at",
        _ => "replay diverged at",
    };
    let _ = writeln!(text, "Error: {what} {}", place(report));
    if !report.expected.is_empty() {
        let _ = writeln!(text, "Expected: {}", report.expected);
    }
    let _ = writeln!(text, "Actual:   {}", report.actual);
    if !report.site.is_empty() {
        let _ = writeln!(text, "Call site:\n  {}", report.site.join("\n  "));
    }
    if !report.hint.is_empty() {
        let _ = writeln!(text, "Hint: {}", sentence(&report.hint));
    }
    if report.kind == ReportKind::Divergence {
        let follow = match is_first(&report.process) {
            true => "",
            false => " -- -ex 'set follow-fork-mode child'",
        };
        let _ = writeln!(
            text,
            "      Look at it with `hindcast exec --replay {} --gdb --break {}:{}{follow}`.",
            folder.display(),
            report.thread,
            report.event,
        );
    }
    text
}

fn sentence(text: &str) -> &str {
    text.trim_end()
}

fn stalled(stall: &Stall) -> String {
    let mut text = String::new();
    let at = match stall
        .threads
        .iter()
        .find(|view| view.state == State::Waiting)
        .or(stall.threads.first())
    {
        Some(view) => format!(
            " at thread {}, event {} (in {})",
            view.thread, view.event, view.process
        ),
        None => String::new(),
    };
    let _ = writeln!(text, "Error: replay stands still{at}");
    let _ = writeln!(
        text,
        "Cause: no thread has moved for {} s:",
        stall.still_for.as_secs()
    );
    for view in &stall.threads {
        let _ = writeln!(
            text,
            "  {} thread {} {}, since event {}",
            view.process,
            view.thread,
            waits(view),
            view.event
        );
    }
    text.push_str(
        "Hint: threads that race for memory without a lock, or wait for each other by memory alone, are not in order in replay.\n",
    );
    text
}

fn waits(view: &ThreadView) -> String {
    match (view.state, view.awaits) {
        (
            _,
            Some(Awaited::Thread {
                thread,
                acquisition,
            }),
        ) => {
            format!(
                "waits for acquisition {acquisition} of thread {thread}, in {}",
                view.doing
            )
        }
        (_, Some(Awaited::All { acquisition })) => format!(
            "waits for acquisition {acquisition} of all, in {}",
            view.doing
        ),
        (State::Blocked, None) => format!("is blocked in {}", view.doing),
        _ => format!("is in {}", view.doing),
    }
}

/// Whether a program can be recorded, and what of its imports is covered.
pub fn checked(checked: &Checked) -> String {
    let mut text = String::new();
    let path = checked.path.display();
    let _ = match checked.library {
        true => writeln!(
            text,
            "{path} is a library: it is recorded with the program that loads it"
        ),
        false => writeln!(text, "{path} can be recorded"),
    };
    if !checked.library {
        // Beside the program and what loads it.
        let libraries = checked.files.len().saturating_sub(2);
        let _ = writeln!(text, "  libraries  {libraries}");
    }
    let (covered, harmless) = (checked.covered.len() as u64, checked.harmless.len() as u64);
    let _ = writeln!(
        text,
        "  imports    {} covered, {} harmless",
        count(covered, "function"),
        thousands(harmless)
    );
    for (name, files) in &checked.missing {
        let files: Vec<_> = files
            .iter()
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy())
            .collect();
        let _ = writeln!(text, "  missing    {name} ({})", files.join(", "));
    }
    if !checked.missing.is_empty() {
        text.push_str(
            "Missing functions are not lost: the system calls that they make are caught and recorded one by one. Look at them first when a replay diverges.\n",
        );
    }
    text
}

/// A recording as a whole.
pub fn contents(contents: &Contents) -> String {
    let mut text = String::new();
    let recording = &contents.recording;
    let command: Vec<_> = recording
        .arguments
        .iter()
        .map(|argument| shell_word(&argument.lossy()))
        .collect();
    let _ = writeln!(text, "{}", masked(&command.join(" ")));
    let _ = writeln!(text, "  in       {}", recording.folder.lossy());
    let _ = writeln!(
        text,
        "  on       {}, Linux {}, {}",
        recording.machine.name, recording.machine.kernel, recording.machine.processor
    );
    let began = i64::try_from(recording.began)
        .unwrap_or_default()
        .saturating_mul(1_000_000);
    let _ = writeln!(
        text,
        "  at       {} UTC, by hindcast {}",
        time(began),
        recording.hindcast
    );
    let interfaces: Vec<_> = std::iter::once("libc")
        .chain(
            recording
                .interfaces
                .iter()
                .map(|interface| interface.name.as_str()),
        )
        .collect();
    let _ = writeln!(
        text,
        "  cut at   {}, order {}, policy {}",
        interfaces.join(", "),
        named(&recording.order),
        named(&recording.policy)
    );
    let _ = writeln!(
        text,
        "  holds    {}, {}",
        count(contents.events, "event"),
        bytes(contents.bytes)
    );
    for process in &contents.processes {
        let _ = writeln!(
            text,
            "{}  pid {}, {}",
            process.name,
            process.pid,
            end(&process.end)
        );
        for warning in &process.warnings {
            let _ = writeln!(text, "  Warning: {warning}");
        }
        for thread in &process.threads {
            let mut line = format!(
                "  t{:<4} {:>12}, {:>10}",
                thread.thread,
                count(thread.events, "event"),
                bytes(thread.bytes)
            );
            if thread.order_words > 0 {
                let _ = write!(
                    line,
                    "; {} for locks, {}",
                    count(thread.order_words, "word"),
                    bytes(thread.order_bytes)
                );
                if thread.relaxed > 0 {
                    let _ = write!(line, ", {} relaxed", count(thread.relaxed, "acquisition"));
                }
            }
            let _ = writeln!(text, "{line}");
            if thread.events > 0 {
                let _ = writeln!(
                    text,
                    "        first {}; last {}",
                    harmless(&thread.first),
                    harmless(&thread.last)
                );
            }
        }
    }
    if !contents.kinds.is_empty() {
        let _ = writeln!(text, "By function and kind:");
    }
    for tally in &contents.kinds {
        let _ = writeln!(
            text,
            "  {:<28} {:>12} {:>12}",
            tally.name,
            thousands(tally.events),
            bytes(tally.bytes)
        );
    }
    text
}

fn end(end: &ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(status) => format!("exited with status {status}"),
        ProcessEnd::Signalled(signal) => format!("ended by {}", signal_name(*signal as i32)),
        ProcessEnd::Executed => "became another program".to_owned(),
        ProcessEnd::Detached(reason) => format!("recorded until here, went on without: {reason}"),
        ProcessEnd::Killed => "killed".to_owned(),
        ProcessEnd::StillRunning => "still running".to_owned(),
    }
}

/// `p0/t2     1234  read = 5 "hello"`
pub fn event(event: &EventLine) -> String {
    let place = format!("{}/t{}", event.process, event.thread);
    let mut line = format!("{place:<8} {:>8}  {}", event.event, event.name);
    for part in [&event.what, &event.data] {
        if !part.is_empty() {
            line.push(' ');
            line.push_str(part);
        }
    }
    // Paths and reasons come from the program.
    harmless(&line)
}

/// Without what drives a terminal.
fn harmless(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        if is_active(c) {
            made.extend(c.escape_default());
        } else {
            made.push(c);
        }
    }
    made
}

/// As a flag would name it.
fn named(value: &impl serde::Serialize) -> String {
    serde_json::json!(value)
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// As one would type it in a shell.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            // What an argument says must not drive the terminal.
            c if is_active(c) => quoted.extend(c.escape_default()),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};

    use super::*;

    fn report(kind: ReportKind) -> Report {
        Report {
            kind,
            process: "p0".into(),
            pid: 7,
            thread: 2,
            event: 1234,
            expected: "read → 512, 512 bytes written".into(),
            actual: "write(7, 0x7ffff7a01000, 64)".into(),
            site: vec![
                "/usr/lib/libfancy.so.1+0x41c2 (flush_queue)".into(),
                "prog+0x1190 (main)".into(),
            ],
            hint: "Something before this was not captured.".into(),
        }
    }

    #[track_caller]
    fn check(outcome: Replayed, expected: Expect) {
        expected.assert_eq(&replayed(&outcome, Path::new("./rec")));
    }

    #[test]
    fn a_divergence_has_its_place_both_sides_and_a_next_step() {
        check(
            Replayed::Reported(report(ReportKind::Divergence)),
            expect![[r#"
                Error: replay diverged at thread 2, event 1234 (in p0)
                Expected: read → 512, 512 bytes written
                Actual:   write(7, 0x7ffff7a01000, 64)
                Call site:
                  /usr/lib/libfancy.so.1+0x41c2 (flush_queue)
                  prog+0x1190 (main)
                Hint: Something before this was not captured.
                      Look at it with `hindcast exec --replay ./rec --gdb --break 2:1234`.
            "#]],
        );
    }

    #[test]
    fn the_end_of_a_recording_is_no_error() {
        let at_the_end = |reason: &str| Report {
            expected: reason.into(),
            actual: "poll".into(),
            ..report(ReportKind::RecordingEnds)
        };
        check(
            Replayed::RecordingEnds {
                report: at_the_end("the process was killed"),
                as_then: Some(Ended::Signalled(9)),
            },
            expect![[r#"
                Note: the recording ends at thread 2, event 1234 (in p0): the process was killed
                      Everything before was replayed. Next would have been poll.
                Then it was ended by SIGKILL.
            "#]],
        );
        check(
            Replayed::Ended {
                ended: Ended::Exited(0),
                notes: Vec::new(),
            },
            expect![""],
        );
    }

    #[test]
    fn a_stall_says_who_waits_for_whom() {
        let view = |thread, state, event, awaits| ThreadView {
            process: "p0".into(),
            pid: 7,
            thread,
            state,
            doing: "edge",
            event,
            awaits,
            is_at_end: false,
        };
        let awaited = Awaited::Thread {
            thread: 2,
            acquisition: 41,
        };
        check(
            Replayed::Stalled(Stall {
                still_for: Duration::from_secs(10),
                threads: vec![
                    view(0, State::Blocked, 17, None),
                    view(1, State::Waiting, 57, Some(awaited)),
                    view(
                        2,
                        State::Waiting,
                        60,
                        Some(Awaited::All { acquisition: 900 }),
                    ),
                ],
            }),
            expect![[r#"
                Error: replay stands still at thread 1, event 57 (in p0)
                Cause: no thread has moved for 10 s:
                  p0 thread 0 is blocked in edge, since event 17
                  p0 thread 1 waits for acquisition 41 of thread 2, in edge, since event 57
                  p0 thread 2 waits for acquisition 900 of all, in edge, since event 60
                Hint: threads that race for memory without a lock, or wait for each other by memory alone, are not in order in replay.
            "#]],
        );
    }

    #[test]
    fn what_is_less_than_was_asked_for_is_said_after_a_recording() {
        let text = |warnings| {
            recorded(
                &Recorded {
                    ended: Ended::Exited(0),
                    report: None,
                    warnings,
                    completed_after: None,
                },
                Path::new("./rec"),
            )
        };
        assert_eq!(text(Vec::new()), "");
        expect![[r#"
            Warning: p0 was recorded up to event 12,345 and went on without: the disk with the recording is full
            Hint: make room, or record on another disk; what was recorded can be replayed
            Warning: p0.1: its clock is not recorded
            Note: p0.2 (pid 77) still runs, and is recorded until it ends
        "#]]
        .assert_eq(&text(vec![
            Warning::Ended {
                process: "p0".into(),
                events: 12_345,
                reason: "the disk with the recording is full".into(),
            },
            Warning::Noted { process: "p0.1".into(), text: "its clock is not recorded".into() },
            Warning::StillRunning { process: "p0.2".into(), pid: 77 },
        ]));
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let shown: Vec<_> = ["a.out", "--x=1", "two words", "it's", "", "a\nb"]
            .map(shell_word)
            .into();
        assert_eq!(
            shown,
            [
                "a.out",
                "--x=1",
                "'two words'",
                "'it'\\''s'",
                "''",
                "'a\\nb'"
            ]
        );
    }
}
