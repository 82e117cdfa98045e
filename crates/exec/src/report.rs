//! What the runtime said on the board, and what the board shows when the runtime said nothing.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::board::{ReportKind, Slot, State};

use crate::elf;

/// What ended a process in replay, or in a recording under the policy `abort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    pub process: String,
    pub pid: u32,
    pub thread: u32,
    pub event: u64,
    pub expected: String,
    pub actual: String,
    /// `file+0xoffset`, with the function where a symbol tells; innermost first.
    pub site: Vec<String>,
    pub hint: String,
}

impl Report {
    /// Takes the report off the board, so that there is room for another one. The loader names
    /// `program` by its `argv[0]`.
    pub fn take(board: &Board, program: &Path) -> Option<Report> {
        let (kind, report) = board.report()?;
        let taken = Report {
            kind,
            process: report.process.as_str().to_owned(),
            pid: report.pid.load(Ordering::Relaxed),
            thread: report.thread.load(Ordering::Relaxed),
            event: report.event.load(Ordering::Relaxed),
            expected: report.expected.as_str().to_owned(),
            actual: report.actual.as_str().to_owned(),
            site: report
                .site
                .as_str()
                .lines()
                .map(|line| symbolised(line, program))
                .collect(),
            hint: report.hint.as_str().to_owned(),
        };
        report.state.store(0, Ordering::Release);
        Some(taken)
    }
}

impl Report {
    /// A thread computes what it computed when its process was killed.
    pub fn of_computing(thread: &ThreadView) -> Report {
        Report {
            kind: ReportKind::RecordingEnds,
            process: thread.process.clone(),
            pid: thread.pid,
            thread: thread.thread,
            event: thread.event,
            expected: "the process was killed while it computed".into(),
            actual: "whatever it computed".into(),
            site: Vec::new(),
            hint: String::new(),
        }
    }
}

/// `file+0xoffset` with the name of the function there, if the runtime, which sees exported names
/// only, has not found it.
fn symbolised(line: &str, program: &Path) -> String {
    let found = || {
        let (file, offset) = line.rsplit_once("+0x")?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let path = if file.contains('/') {
            Path::new(file)
        } else {
            program
        };
        elf::function_at(path, offset)
    };
    match line.ends_with(')') {
        true => line.to_owned(),
        false => found().map_or_else(|| line.to_owned(), |name| format!("{line} ({name})")),
    }
}

/// What a thread in replay is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadView {
    pub process: String,
    pub pid: u32,
    pub thread: u32,
    pub state: State,
    /// The function or kind of event that it is in.
    pub doing: &'static str,
    /// Events replayed: it has been where it is since then.
    pub event: u64,
    pub awaits: Option<Awaited>,
    /// Its log says no more, and it computes.
    pub is_at_end: bool,
}

/// Whose acquisition a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The acquisition of this number of that thread.
    Thread { thread: u64, acquisition: u64 },
    /// The one of this number in the order of all threads.
    All { acquisition: u64 },
}

/// All threads on the board that are still there.
pub fn threads(board: &Board) -> Vec<ThreadView> {
    let used = (board.slots_used.load(Ordering::Acquire) as usize).min(board.slots.len());
    board.slots[..used]
        .iter()
        .filter_map(view)
        .filter(|view| is_alive(view.pid))
        .collect()
}

/// How far the threads of a process are, by number, also those that have ended; and the folder of
/// its image.
pub fn progress(board: &Board, pid: u32) -> Option<(String, Vec<(u64, u64)>)> {
    let used = (board.slots_used.load(Ordering::Acquire) as usize).min(board.slots.len());
    let slots = &board.slots[..used];
    let of_process = |slot: &&Slot| slot.pid.load(Ordering::Relaxed) == pid;
    // An image that executed this one has slots before.
    let process = slots.iter().rfind(of_process)?.process.as_str();
    let threads = slots
        .iter()
        .filter(|slot| slot.process.as_str() == process)
        .map(|slot| {
            let thread = slot.thread.load(Ordering::Relaxed);
            (thread.into(), slot.event.load(Ordering::Relaxed))
        });
    Some((process.to_owned(), threads.collect()))
}

fn view(slot: &Slot) -> Option<ThreadView> {
    let state = slot.state();
    if matches!(state, State::Free | State::Ended) {
        return None;
    }
    let acquisition = slot.awaited_acquisition.load(Ordering::Relaxed);
    let awaits =
        (state == State::Waiting).then(|| match slot.awaited_thread.load(Ordering::Relaxed) {
            u64::MAX => Awaited::All { acquisition },
            thread => Awaited::Thread {
                thread,
                acquisition,
            },
        });
    Some(ThreadView {
        process: slot.process.as_str().to_owned(),
        pid: slot.pid.load(Ordering::Relaxed),
        thread: slot.thread.load(Ordering::Relaxed),
        state,
        doing: crate::log::name(slot.function.load(Ordering::Relaxed) as u16),
        event: slot.event.load(Ordering::Relaxed),
        awaits,
        is_at_end: slot.at_end.load(Ordering::Relaxed) != 0,
    })
}

pub(crate) fn is_alive(pid: u32) -> bool {
    // A process that has ended and was not waited for yet answers to signals.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// No thread moves any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub still_for: Duration,
    pub threads: Vec<ThreadView>,
}

/// Notices that nothing has moved for too long.
pub struct StallWatch {
    timeout: Duration,
    seen: Vec<(u32, u32, u64)>,
    since: Instant,
}

/// What there is to say about progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Moving,
    /// Somebody computes: that may take its time.
    Computing,
    /// All of them compute what they computed when they were killed: nobody knows how far.
    AtEnd(ThreadView),
    Stalled(Stall),
}

/// How long threads may compute behind the ends of their logs. The process that was recorded was
/// killed meanwhile.
const AT_END: Duration = Duration::from_secs(2);

impl StallWatch {
    pub fn new(timeout: Duration, now: Instant) -> Self {
        StallWatch {
            timeout,
            seen: Vec::new(),
            since: now,
        }
    }

    /// `runs` says whether a process is using a processor right now.
    pub fn look(
        &mut self,
        threads: Vec<ThreadView>,
        now: Instant,
        runs: impl Fn(u32) -> bool,
    ) -> Progress {
        let seen: Vec<_> = threads
            .iter()
            .map(|view| (view.pid, view.thread, view.event))
            .collect();
        if seen != self.seen || threads.is_empty() {
            self.seen = seen;
            self.since = now;
            return Progress::Moving;
        }
        let still_for = now.duration_since(self.since);
        let at_end = || threads.iter().all(|view| view.is_at_end);
        if still_for >= AT_END
            && at_end()
            && let Some(first) = threads.first()
        {
            return Progress::AtEnd(first.clone());
        }
        if still_for < self.timeout {
            return Progress::Moving;
        }
        if threads
            .iter()
            .any(|view| view.state == State::Running && runs(view.pid))
        {
            return Progress::Computing;
        }
        Progress::Stalled(Stall { still_for, threads })
    }
}

/// Whether any thread of the process wants a processor.
pub fn runs(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(['R', 'D', 't', 'T']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(thread: u32, state: State, event: u64) -> ThreadView {
        ThreadView {
            process: "p0".into(),
            pid: 7,
            thread,
            state,
            doing: "edge",
            event,
            awaits: None,
            is_at_end: false,
        }
    }

    #[test]
    fn a_stall_is_when_all_wait_and_none_has_moved_for_the_whole_time() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut watch = StallWatch::new(Duration::from_secs(10), begun);
        let idle = |_| false;
        let waiting = |event| vec![view(0, State::Blocked, 3), view(1, State::Waiting, event)];
        assert_eq!(watch.look(waiting(5), at(0), idle), Progress::Moving);
        assert_eq!(watch.look(waiting(5), at(9), idle), Progress::Moving);
        assert_eq!(watch.look(waiting(6), at(10), idle), Progress::Moving);
        assert_eq!(watch.look(waiting(6), at(19), idle), Progress::Moving);
        let stalled = Stall {
            still_for: Duration::from_secs(10),
            threads: waiting(6),
        };
        assert_eq!(
            watch.look(waiting(6), at(20), idle),
            Progress::Stalled(stalled)
        );
    }

    #[test]
    fn threads_that_compute_behind_the_ends_of_their_logs_are_not_waited_for() {
        let begun = Instant::now();
        let mut watch = StallWatch::new(Duration::from_secs(10), begun);
        let at_end = |thread| ThreadView {
            is_at_end: true,
            ..view(thread, State::Running, 3)
        };
        let later = |seconds| begun + Duration::from_secs(seconds);
        let both = || vec![at_end(0), at_end(1)];
        assert_eq!(watch.look(both(), begun, |_| true), Progress::Moving);
        assert_eq!(watch.look(both(), later(1), |_| true), Progress::Moving);
        let one = || vec![at_end(0), view(1, State::Running, 3)];
        let told = watch.look(one(), later(60), |_| true);
        assert_eq!(told, Progress::Computing, "one of them has events left");
        let told = watch.look(both(), later(60), |_| true);
        assert_eq!(told, Progress::AtEnd(at_end(0)));
    }

    #[test]
    fn a_thread_that_computes_is_given_its_time_and_one_that_sleeps_unseen_is_not() {
        let begun = Instant::now();
        let mut watch = StallWatch::new(Duration::from_secs(10), begun);
        let threads = || vec![view(0, State::Running, 3), view(1, State::Waiting, 5)];
        watch.look(threads(), begun, |_| true);
        let later = begun + Duration::from_secs(60);
        assert_eq!(watch.look(threads(), later, |_| true), Progress::Computing);
        assert!(matches!(
            watch.look(threads(), later, |_| false),
            Progress::Stalled(_)
        ));
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let board = board();
        let slot = board.take_slot().unwrap();
        slot.state.store(State::Waiting as u32, Ordering::Release);
        slot.pid.store(u32::MAX / 2, Ordering::Relaxed);
        assert_eq!(threads(&board), []);
        slot.pid.store(std::process::id(), Ordering::Relaxed);
        slot.awaited_thread.store(2, Ordering::Relaxed);
        slot.awaited_acquisition.store(41, Ordering::Relaxed);
        assert_eq!(
            threads(&board)[0].awaits,
            Some(Awaited::Thread {
                thread: 2,
                acquisition: 41
            })
        );
    }

    #[test]
    fn a_report_that_was_taken_leaves_room_for_the_next() {
        let board = board();
        assert_eq!(Report::take(&board, Path::new("")), None);
        assert!(board.begin_report());
        board
            .report
            .kind
            .store(ReportKind::Divergence as u32, Ordering::Relaxed);
        assert_eq!(
            Report::take(&board, Path::new("")),
            None,
            "not complete yet"
        );
        board.complete_report();
        assert!(!board.begin_report());
        assert_eq!(
            Report::take(&board, Path::new("")).map(|report| report.kind),
            Some(ReportKind::Divergence)
        );
        assert!(board.begin_report());
    }

    fn board() -> Box<Board> {
        // SAFETY: plain data, for which zero is a valid value.
        unsafe { Box::<Board>::new_zeroed().assume_init() }
    }
}
