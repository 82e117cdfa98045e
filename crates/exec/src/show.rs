//! What is in a recording: sums by process, thread and function, and events one by one.

use std::collections::HashMap;
use std::path::Path;

use hindcast_execlog::event::FLAG_ECHO;
use hindcast_execlog::files::End;
use hindcast_execlog::{Event, Kind};
use serde::Serialize;

use crate::log::{self, Log, LogError, Names, Process};
use crate::recording::{OpenError, Recording};

/// A recording as a whole.
#[derive(Debug, Serialize)]
pub struct Contents {
    pub recording: Recording,
    pub events: u64,
    pub bytes: u64,
    pub processes: Vec<ProcessContents>,
    /// By what they take up, largest first.
    pub kinds: Vec<Tally>,
}

#[derive(Debug, Serialize)]
pub struct ProcessContents {
    /// Its folder in the recording.
    pub name: String,
    pub pid: u32,
    pub end: ProcessEnd,
    pub threads: Vec<ThreadContents>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    Exited(u32),
    Signalled(u32),
    /// It became the image with one `+` more.
    Executed,
    /// Recording ended before it did.
    Detached(String),
    /// It did not get to say.
    Killed,
    StillRunning,
}

#[derive(Debug, Serialize)]
pub struct ThreadContents {
    pub thread: u32,
    pub events: u64,
    pub bytes: u64,
    /// Events that are order words: what acquisitions left.
    pub order_words: u64,
    pub order_bytes: u64,
    /// Acquisitions that added nothing to wait for and were only counted.
    pub relaxed: u64,
    pub first: String,
    pub last: String,
}

/// Events of one function or kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub name: String,
    pub events: u64,
    pub bytes: u64,
}

/// One event, as it is listed.
#[derive(Debug, Serialize)]
pub struct EventLine {
    pub process: String,
    pub thread: u32,
    /// Its place in the thread's log, counted from 0: the logical time at which it happens.
    pub event: u64,
    pub name: String,
    /// The result of a call; what other events say.
    pub what: String,
    pub bytes: u64,
    /// The beginning of what the call wrote.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Opens a recording to look into it. What is damaged is shown up to there.
pub fn open(folder: &Path) -> Result<(Recording, Vec<Process>), ShowError> {
    Ok((Recording::open(folder)?, log::contents(folder)?.processes))
}

/// Adds everything up. `thread`: only threads of this number.
pub fn contents(recording: Recording, processes: &[Process], thread: Option<u32>) -> Contents {
    let names = recording.names();
    let mut kinds: HashMap<u16, Tally> = HashMap::new();
    let mut made = Vec::new();
    for process in processes {
        let logs = process
            .threads
            .iter()
            .filter(|log| thread.is_none_or(|thread| log.thread == thread));
        made.push(ProcessContents {
            name: process.name.clone(),
            pid: process.header.pid,
            end: end(process),
            threads: logs
                .map(|log| thread_contents(log, &names, &mut kinds))
                .collect(),
            warnings: process
                .header
                .warnings
                .as_str()
                .lines()
                .map(str::to_owned)
                .collect(),
        });
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    let threads = || made.iter().flat_map(|process| &process.threads);
    Contents {
        recording,
        events: threads().map(|thread| thread.events).sum(),
        bytes: threads().map(|thread| thread.bytes).sum(),
        processes: made,
        kinds,
    }
}

fn end(process: &Process) -> ProcessEnd {
    match process.header.end() {
        (End::Exited, code) => ProcessEnd::Exited(code),
        (End::Signalled, signal) => ProcessEnd::Signalled(signal),
        (End::Executed, _) => ProcessEnd::Executed,
        (End::Detached, _) => ProcessEnd::Detached(process.header.reason.as_str().to_owned()),
        (End::Running, _) if process.is_alive() => ProcessEnd::StillRunning,
        (End::Running, _) => ProcessEnd::Killed,
    }
}

fn thread_contents(log: &Log, names: &Names, kinds: &mut HashMap<u16, Tally>) -> ThreadContents {
    let mut made = ThreadContents {
        thread: log.thread,
        events: 0,
        bytes: log.len() as u64,
        order_words: 0,
        order_bytes: 0,
        relaxed: 0,
        first: String::new(),
        last: String::new(),
    };
    let mut last = None;
    for event in log.events() {
        let bytes = (event.end - event.offset) as u64;
        let tally = kinds.entry(event.kind).or_insert_with(|| Tally {
            name: names.of(event.kind).to_owned(),
            events: 0,
            bytes: 0,
        });
        tally.events += 1;
        tally.bytes += bytes;
        if log::is_order(&event) {
            made.order_words += 1;
            made.order_bytes += bytes;
        }
        if event.kind == Kind::Relaxed as u16 {
            made.relaxed += number(event.payload);
        }
        if made.events == 0 {
            made.first = summary(&event, names);
        }
        made.events += 1;
        last = Some(event);
    }
    made.last = last.map(|event| summary(&event, names)).unwrap_or_default();
    made
}

/// The events of all threads, or of one, each thread's in its order.
pub fn events<'a>(
    processes: &'a [Process],
    names: &'a Names,
    thread: Option<u32>,
) -> impl Iterator<Item = EventLine> + 'a {
    processes.iter().flat_map(move |process| {
        let logs = process
            .threads
            .iter()
            .filter(move |log| thread.is_none_or(|thread| log.thread == thread));
        logs.flat_map(move |log| {
            log.events()
                .enumerate()
                .map(move |(number, event)| EventLine {
                    process: process.name.clone(),
                    thread: log.thread,
                    event: number as u64,
                    name: names.of(event.kind).to_owned(),
                    what: what(&event, names),
                    bytes: (event.end - event.offset) as u64,
                    data: data(&event),
                })
        })
    })
}

/// A name and what it says, in one line.
fn summary(event: &Event<'_>, names: &Names) -> String {
    let what = what(event, names);
    let space = if what.is_empty() { "" } else { " " };
    format!("{}{space}{what}", names.of(event.kind))
}

/// Up to eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

/// The result of a call.
fn what_it_gave(event: &Event<'_>) -> String {
    let echo = if event.flags & FLAG_ECHO != 0 {
        ", written again in replay"
    } else {
        ""
    };
    match event.call() {
        Some((_, Ok(result), _)) => format!("= {}{echo}", readable(result)),
        Some((_, Err(code), _)) => format!("failed: {}{echo}", error_text(code)),
        None => "is damaged".into(),
    }
}

fn what(event: &Event<'_>, names: &Names) -> String {
    if event.is_call() {
        return what_it_gave(event);
    }
    let payload = event.payload;
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .trim_end_matches('\0')
            .to_owned()
    };
    match Kind::from_number(event.kind) {
        Some(Kind::Relaxed) => match number(payload) {
            1 => "1 acquisition".into(),
            count => format!("{count} acquisitions"),
        },
        Some(Kind::Edge) => format!(
            "after acquisition {} of thread {}",
            number(payload) & ((1 << 48) - 1),
            number(payload) >> 48
        ),
        Some(Kind::Ticket) => format!("number {}", number(payload)),
        Some(Kind::Clock) => {
            let clock: Vec<_> = payload
                .get(4..)
                .unwrap_or_default()
                .chunks(8)
                .map(|word| number(word).to_string())
                .collect();
            clock.join(" ")
        }
        // The heap's failures carry which attempt it was.
        Some(Kind::Busy) => match number(payload) as i32 {
            attempt @ ..0 => format!(
                "{} at growth {} of the heap",
                error_text(-attempt & 0xff),
                -attempt >> 8
            ),
            code => error_text(code),
        },
        Some(Kind::Signal | Kind::Fatal) => {
            signal_name(number(payload.get(..4).unwrap_or_default()) as i32)
        }
        Some(Kind::Fork) => format!(
            "{} as pid {}",
            text(payload.get(4..).unwrap_or_default()),
            number(payload.get(..4).unwrap_or_default())
        ),
        Some(Kind::Exec) => match payload {
            [] => "of an image that is not recorded".into(),
            folder => text(folder),
        },
        Some(Kind::Exit) => format!("status {}", number(payload) as i32),
        Some(Kind::Ended) => text(payload),
        Some(Kind::Thread) => number(payload.get(..4).unwrap_or_default()).to_string(),
        Some(Kind::Tsc) => format!("{}", number(payload)),
        Some(Kind::Mapping) => {
            format!(
                "{:#x}, {} bytes",
                number(payload.get(..8).unwrap_or_default()),
                number(payload.get(8..16).unwrap_or_default())
            )
        }
        Some(Kind::Cached) => format!(
            "{} calls of {}",
            number(payload.get(4..8).unwrap_or_default()),
            names.of(number(payload.get(..2).unwrap_or_default()) as u16)
        ),
        Some(Kind::File) => text(payload.get(4..).unwrap_or_default()),
        _ => String::new(),
    }
}

/// Small numbers as such, addresses in hexadecimal.
fn readable(value: i64) -> String {
    match value {
        -1_000_000..=4_000_000_000 => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// The beginning of what a call wrote.
fn data(event: &Event<'_>) -> String {
    const SHOWN: usize = 48;
    let Some((_, _, written)) = event.call().filter(|_| event.is_call()) else {
        return String::new();
    };
    // What was written to the terminal is in the program's memory in both runs, not here.
    if written.is_empty() || event.flags & FLAG_ECHO != 0 {
        return String::new();
    }
    let shown = &written[..written.len().min(SHOWN)];
    let more = if written.len() > SHOWN { "…" } else { "" };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// `EAGAIN (Resource temporarily unavailable)`.
fn error_text(code: i32) -> String {
    let text = std::io::Error::from_raw_os_error(code.abs()).to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => format!("{text} ({})", code.abs()),
        None => text,
    }
}

/// `SIGTERM`, where the number has a name.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 32] = [
        "",
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    match usize::try_from(signal)
        .ok()
        .and_then(|signal| NAMES.get(signal))
        .filter(|name| !name.is_empty())
    {
        Some(name) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use hindcast_execlog::event::FUNCTIONS;

    use super::*;
    use crate::log::by_hand::{call, event, log, process};

    #[test]
    fn every_event_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let edge = (3u64 << 48 | 17).to_le_bytes();
        let failed = event(FUNCTIONS, 3, &[&[0; 4][..], &11i32.to_le_bytes()].concat());
        let first = [
            event(Kind::Start as u16, 0, &[0; 19]),
            call(FUNCTIONS, 5, b"hello\n"),
            failed,
            event(Kind::Relaxed as u16, 0, &900u32.to_le_bytes()),
            event(Kind::Edge as u16, 0, &edge),
            event(
                Kind::Fork as u16,
                0,
                &[&77u32.to_le_bytes()[..], b"p0.1"].concat(),
            ),
            event(Kind::Signal as u16, 0, &[15, 0, 0, 0, 0, 0, 0, 0]),
            event(Kind::Exit as u16, 0, &3i32.to_le_bytes()),
        ];
        let second = [
            event(Kind::Busy as u16, 0, &16i32.to_le_bytes()),
            event(Kind::Ended as u16, 0, b"the disk is full"),
        ];
        process(
            folder.path(),
            "p0",
            End::Exited,
            3,
            &[log(0, &first), log(1, &second)],
        );
        let processes = log::contents(folder.path()).unwrap().processes;
        let names = Names::default();
        let mut text = String::new();
        for line in events(&processes, &names, None) {
            // Which function has the first number is not this test's business.
            let name = if line.name == names.of(FUNCTIONS) {
                "the function"
            } else {
                line.name.as_str()
            };
            text.push_str(
                format!(
                    "{}/t{} {} {name} {} {}",
                    line.process, line.thread, line.event, line.what, line.data
                )
                .trim_end(),
            );
            text.push('\n');
        }
        expect![[r#"
            p0/t0 0 start
            p0/t0 1 the function = 5 "hello\n"
            p0/t0 2 the function failed: Resource temporarily unavailable (11)
            p0/t0 3 relaxed 900 acquisitions
            p0/t0 4 edge after acquisition 17 of thread 3
            p0/t0 5 fork p0.1 as pid 77
            p0/t0 6 signal SIGTERM
            p0/t0 7 exit status 3
            p0/t1 0 busy Device or resource busy (16)
            p0/t1 1 recording ended the disk is full
        "#]]
        .assert_eq(&text);
        assert_eq!(events(&processes, &names, Some(1)).count(), 2);
    }

    #[test]
    fn the_sums_are_those_of_the_events() {
        let folder = tempfile::tempdir().unwrap();
        let events = [
            event(Kind::Start as u16, 0, &[0; 16]),
            event(Kind::Relaxed as u16, 0, &900u32.to_le_bytes()),
            event(Kind::Edge as u16, 0, &[1; 8]),
            event(Kind::Relaxed as u16, 0, &100u32.to_le_bytes()),
        ];
        process(folder.path(), "p0", End::Running, 0, &[log(0, &events)]);
        let processes = log::contents(folder.path()).unwrap().processes;
        let mut kinds = HashMap::new();
        let thread = thread_contents(&processes[0].threads[0], &Names::default(), &mut kinds);
        assert_eq!((thread.events, thread.bytes), (4, 20 + 8 + 12 + 8));
        assert_eq!(
            (thread.order_words, thread.order_bytes, thread.relaxed),
            (3, 28, 1000)
        );
        assert_eq!(
            kinds[&(Kind::Relaxed as u16)],
            Tally {
                name: "relaxed".into(),
                events: 2,
                bytes: 16
            }
        );
        assert_eq!(
            (thread.first.as_str(), thread.last.as_str()),
            ("start", "relaxed 100 acquisitions")
        );
        assert_eq!(end(&processes[0]), ProcessEnd::Killed);
    }
}
