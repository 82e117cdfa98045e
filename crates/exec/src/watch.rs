//! Waits for what was started: passes signals on, notices its end, and in replay looks at the
//! board.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::board::ReportKind;
use serde::{Deserialize, Serialize};

use crate::report::{self, Progress, Report, Stall, StallWatch};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Exited(i32),
    Signalled(i32),
}

impl Ended {
    /// As a shell says it.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(status) => status as u8,
            Ended::Signalled(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

/// The signals that are passed on to the program.
const PASSED_ON: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
    libc::SIGCONT,
];

/// Signals of this process are taken one by one from here on instead of having their effect. Make
/// it before the program is started, so that none is lost.
pub struct Signals {
    set: libc::sigset_t,
}

/// Something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A child ended, or the time is over.
    Look,
    /// `typed`: the terminal sent it to everybody in the foreground, so the program has it already.
    Signal { number: libc::c_int, typed: bool },
}

impl Signals {
    pub fn take_over() -> io::Result<Signals> {
        // SAFETY: builds a set of signals and blocks it in this thread, the only one there is.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in PASSED_ON {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigaddset(&mut set, libc::SIGCHLD);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(Signals { set }),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }

    /// Waits for the next one, at most so long.
    pub fn next(&self, at_most: Duration) -> Event {
        let timeout = libc::timespec {
            tv_sec: at_most.as_secs() as _,
            tv_nsec: at_most.subsec_nanos() as _,
        };
        // SAFETY: waits for signals that are blocked in this thread.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&self.set, &mut info, &timeout), info)
        };
        match number {
            libc::SIGCHLD | -1 => Event::Look,
            number => Event::Signal {
                number,
                typed: info.si_code > 0,
            },
        }
    }
}

impl Signals {
    /// Waits for something to happen, at most so long, and passes a signal on that the terminal has
    /// not given to everybody. The process has not been reaped, so the number is still its own.
    pub fn pass_on(&self, to: libc::pid_t, at_most: Duration) {
        self.pass_on_to_all(&[to], at_most);
    }

    /// As [`Signals::pass_on`], to several processes.
    pub fn pass_on_to_all(&self, to: &[libc::pid_t], at_most: Duration) {
        if let Event::Signal {
            number,
            typed: false,
        } = self.next(at_most)
        {
            for process in to {
                // SAFETY: as said above.
                unsafe { libc::kill(*process, number) };
            }
        }
    }
}

/// Collects every child that has ended; the status of `main` if it is among them.
fn reap(main: libc::pid_t) -> (Option<Ended>, bool) {
    let mut of_main = None;
    let any_left = reap_each([main], Collects::Soon, |pid, ended| {
        if pid == main {
            of_main = Some(ended);
        }
    });
    (of_main, any_left)
}

/// How soon a child that has ended is to be gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collects {
    /// Somebody waits until all are.
    Soon,
    /// Somebody waits for what goes on in its place, and needs the processors for that.
    Behind,
}

/// Children that have ended and are being collected.
static COLLECTED: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

fn collected() -> MutexGuard<'static, Vec<libc::pid_t>> {
    COLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells of every child that has ended, each once: of those that are `known`, and of others as
/// far as none before them is still being collected. Whether any are left.
///
/// Each is collected by a thread of its own: the kernel forgets what `/proc` had of a process
/// before the call returns. Where memory is being reclaimed it waits for that by turning in a
/// circle (`shrink_dcache_parent`), up to a minute and a half. Clients wait meanwhile for what is
/// to go on in its place, whose threads would wait for a processor at each of their steps; so the
/// thread comes behind all others where that is wanted.
pub(crate) fn reap_each(
    known: impl IntoIterator<Item = libc::pid_t>,
    collects: Collects,
    mut each: impl FnMut(libc::pid_t, Ended),
) -> bool {
    for pid in known {
        if let Ok(Some((pid, ended))) = an_ended_child(libc::P_PID, pid)
            && collect(pid, collects)
        {
            each(pid, ended);
        }
    }
    loop {
        match an_ended_child(libc::P_ALL, 0) {
            Ok(Some((pid, ended))) if collect(pid, collects) => each(pid, ended),
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// Begins to collect a child that has ended. False: that has begun already.
fn collect(pid: libc::pid_t, collects: Collects) -> bool {
    if collected().contains(&pid) {
        return false;
    }
    collected().push(pid);
    let wait = move || {
        // SAFETY: a child of ours that has ended, which nobody else collects.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        collected().retain(|other| *other != pid);
    };
    let in_thread = move || {
        if collects == Collects::Behind {
            come_last();
        }
        wait();
    };
    if let Err(_no_thread) = std::thread::Builder::new().spawn(in_thread) {
        wait();
    }
    true
}

/// This thread runs when no other wants to, or nearly so. The process may be one that runs before
/// all others.
fn come_last() {
    const LAST: libc::c_int = 19;
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: numbers; the thread's own attributes.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
        libc::setpriority(libc::PRIO_PROCESS, 0, LAST);
    }
}

/// A child that has ended and was not collected, of those that are asked for; an error if there is
/// no such child.
fn an_ended_child(
    which: libc::idtype_t,
    id: libc::pid_t,
) -> io::Result<Option<(libc::pid_t, Ended)>> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: writes one value, for which zeros are one.
    let (result, found) = unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(which, id as libc::id_t, &mut found, flags);
        (result, found)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: what `waitid` fills in, or zeros.
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    let ended = match found.si_code {
        libc::CLD_EXITED => Ended::Exited(status),
        _ => Ended::Signalled(status),
    };
    Ok((pid != 0).then_some((pid, ended)))
}

/// Waits until `main` has ended. What it leaves running goes on.
pub fn accompany(main: libc::pid_t, signals: &Signals) -> Ended {
    loop {
        if let (Some(ended), _) = reap(main) {
            return ended;
        }
        signals.pass_on(main, Duration::from_secs(60));
    }
}

/// Makes orphans of the program children of this process, so that none is left running unseen.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: sets an attribute of this process.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Every process, with its parent.
fn parents() -> Vec<(libc::pid_t, libc::pid_t)> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<libc::pid_t>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let parent: Option<libc::pid_t> = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            parents.push((pid, parent));
        }
    }
    parents
}

/// Whether a process has started others that have not been waited for.
pub fn has_children(process: libc::pid_t) -> bool {
    parents().iter().any(|(_, parent)| *parent == process)
}

/// Everything that descends from this process.
pub fn descendants() -> Vec<libc::pid_t> {
    let parents = parents();
    let mut found = vec![std::process::id() as libc::pid_t];
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
    found.remove(0);
    found
}

/// Ends everything that descends from this process.
pub fn end_all() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for pid in descendants() {
            // SAFETY: descendants stay ours until they are reaped, which only this thread does.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        if !reap(0).1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What watching a replay came to.
#[derive(Debug)]
pub enum Outcome {
    /// Every process of the program has ended by itself.
    Ended(Ended),
    /// The runtime reported something that is not an end of the recording, and everything was
    /// ended.
    Reported(Report),
    Stalled(Stall),
    /// The user wanted it to end.
    Interrupted(libc::c_int),
}

/// What is watched in a replay.
pub struct Supervision<'a> {
    board: &'a Board,
    program: &'a Path,
    stall: StallWatch,
    /// Processes that came to the end of their recording without having ended, in that order.
    pub ends: Vec<Report>,
}

impl<'a> Supervision<'a> {
    pub fn new(board: &'a Board, program: &'a Path, stall_timeout: Duration) -> Self {
        Supervision {
            board,
            program,
            stall: StallWatch::new(stall_timeout, Instant::now()),
            ends: Vec::new(),
        }
    }

    /// Looks at the board. A process whose recording ends ends itself, and the others go on: it may
    /// be one of many.
    fn look(&mut self) -> Option<Outcome> {
        while let Some(report) = Report::take(self.board, self.program) {
            match report.kind {
                ReportKind::RecordingEnds => self.ends.push(report),
                _ => return Some(Outcome::Reported(report)),
            }
        }
        match self
            .stall
            .look(report::threads(self.board), Instant::now(), report::runs)
        {
            Progress::Stalled(stall) => Some(Outcome::Stalled(stall)),
            Progress::AtEnd(thread) => {
                self.ends.push(Report::of_computing(&thread));
                Some(Outcome::Ended(Ended::Signalled(libc::SIGKILL)))
            }
            Progress::Moving | Progress::Computing => None,
        }
    }
}

/// How often the board is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until `main` and all that it left behind have ended, or until the board says that it is
/// over. Leaves nothing running. `each_look` is called each time that the board is looked at, and
/// says after how long it is to be called again at the latest.
pub fn supervise(
    main: libc::pid_t,
    signals: &Signals,
    supervision: &mut Supervision<'_>,
    mut each_look: impl FnMut() -> Duration,
) -> Outcome {
    let mut ended = None;
    loop {
        // Before the board is looked at: what a process reported before it ended is there then.
        let (of_main, any_left) = reap(main);
        ended = of_main.or(ended);
        if let Some(outcome) = supervision.look() {
            end_all();
            return outcome;
        }
        if let (Some(ended), false) = (ended, any_left) {
            return Outcome::Ended(ended);
        }
        match signals.next(LOOK_EVERY.min(each_look())) {
            Event::Signal {
                number: number @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT),
                ..
            } => {
                end_all();
                return Outcome::Interrupted(number);
            }
            // Recorded signals come from the recording.
            Event::Signal { .. } | Event::Look => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that has ended and was not collected.
    fn ended_child() -> libc::pid_t {
        // SAFETY: the child ends at once; the parent waits for that and leaves it.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            let mut found: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, pid as libc::id_t, &mut found, flags);
            pid
        }
    }

    #[test]
    fn one_that_is_still_being_collected_hides_none_that_is_known() {
        // In a process of its own, as children of other tests are not to be collected.
        // SAFETY: it uses what a process with one thread may, and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let (slow, known) = (ended_child(), ended_child());
            collected().push(slow);
            let mut told = Vec::new();
            reap_each([known], Collects::Behind, |pid, _| told.push(pid));
            // SAFETY: ends this process alone.
            unsafe { libc::_exit(i32::from(told != [known])) };
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}
