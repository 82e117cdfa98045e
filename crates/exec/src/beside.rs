//! A follower that writes the log: a process beside the program that reads the large files that the
//! program reads, and makes the recording whole with them ([`fill`](crate::fill)).
//!
//! The program waits for nothing that happens here. When this process is killed, or is far behind,
//! the program logs what it reads itself. When the launcher is killed this process goes on until
//! the program has ended.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::config::{Config, descriptors, follow};

use crate::error::{ExecError, system};
use crate::fill::{self, Filling};
use crate::follow::ends;
use crate::keeper::close_all_but;
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::report::Report;
use crate::watch::{self, Collects, Ended, LOOK_EVERY, Signals};

/// A program and the follower that writes its log.
pub(crate) struct Pair<'a> {
    folder: &'a Path,
    stage: Stage,
    follower: libc::pid_t,
    /// How the follower ended, if it did.
    ended: Option<Ended>,
}

/// What a run came to.
pub(crate) struct Outcome {
    pub ended: Ended,
    pub report: Option<Report>,
    /// How long after the program the log was complete.
    pub completed_after: Duration,
    /// How the follower ended, if that was before it had done everything.
    pub follower: Option<Ended>,
    /// It still has something to do.
    pub goes_on: bool,
    /// What could not be completed, by process.
    pub incomplete: Vec<(String, std::io::Error)>,
}

impl<'a> Pair<'a> {
    pub fn new(
        folder: &'a Path,
        mut config: Config,
        library: &[u8],
        interfaces: &[Interface],
    ) -> Result<Pair<'a>, ExecError> {
        config.follow = follow::REFERS;
        let cannot = system("the follower cannot be started");
        let (programs, own) = ends().map_err(cannot)?;
        let mut stage = Stage::new(folder, config, library, interfaces)?;
        stage.hand(programs, descriptors::FILES);
        let follower =
            start(folder, own, &stage).map_err(system("the follower cannot be started"))?;
        stage.board.takes.store(1, Ordering::Relaxed);
        Ok(Pair {
            folder,
            stage,
            follower,
            ended: None,
        })
    }

    /// Runs the program to its end, and then waits until the log is complete.
    pub fn run(mut self, image: &Image, signals: &Signals) -> Result<Outcome, ExecError> {
        let program = launch::start(image, &self.stage, Manner::Free)?;
        // The follower sees that nobody has the other end any more.
        self.stage.let_go(descriptors::FILES);
        let ended = loop {
            if let Some(ended) = self.reap(program) {
                break ended;
            }
            signals.pass_on(program, Duration::from_secs(60));
        };
        let report = Report::take(&self.stage.board, &image.path);
        let begun = Instant::now();
        let was_interrupted = self.let_finish(signals);
        let is_incomplete = fill::is_incomplete(self.folder);
        let goes_on = self.ended.is_none() && (was_interrupted || is_incomplete);
        let incomplete = match is_incomplete && !goes_on {
            true => fill::complete(self.folder).err().unwrap_or_default(),
            false => Vec::new(),
        };
        Ok(Outcome {
            ended,
            report,
            completed_after: begun.elapsed(),
            follower: self.ended.filter(|how| *how != Ended::Exited(0)),
            goes_on,
            incomplete,
        })
    }

    /// Collects what has ended: how the program did, if it is among them.
    fn reap(&mut self, program: libc::pid_t) -> Option<Ended> {
        let mut of_program = None;
        watch::reap_each([program, self.follower], Collects::Soon, |pid, how| {
            if pid == program {
                of_program = Some(how);
            } else if pid == self.follower {
                self.ended = Some(how);
            }
        });
        if self.ended.is_some() {
            self.stage.board.takes.store(0, Ordering::Relaxed);
        }
        of_program
    }

    /// Waits until the follower has done all that there is. Whether it has not, because the user
    /// did not want to wait.
    fn let_finish(&mut self, signals: &Signals) -> bool {
        let rounds = || self.stage.board.rounds.load(Ordering::Acquire);
        // One may be under way that has looked at a log before the end of it.
        let enough = rounds() + 2;
        loop {
            self.reap(0);
            if self.ended.is_some() || self.stage.board.rounds.load(Ordering::Acquire) >= enough {
                return false;
            }
            if let watch::Event::Signal { .. } = signals.next(LOOK_EVERY) {
                return true;
            }
        }
    }
}

/// Starts the process. Call it while this one has one thread.
fn start(folder: &Path, socket: OwnedFd, stage: &Stage) -> std::io::Result<libc::pid_t> {
    let folder = folder.canonicalize()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            let done = std::panic::catch_unwind(|| follow(&folder, socket, &stage.board));
            // SAFETY: ends this process, without what the launcher meant to do at its end.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Ok(pid),
    }
}

/// Looks more seldom the longer there was nothing to do.
const PAUSES: std::ops::RangeInclusive<u64> = 1..=20;

fn follow(folder: &Path, socket: OwnedFd, board: &Board) {
    // SAFETY: settings of this process. What the terminal sends to the program is not for it.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"hindcast-writer".as_ptr());
    }
    close_all_but(&[socket.as_raw_fd()]);
    let files_most = raise_limit() / 2;
    let mut filling = Filling::new(folder, Some(socket));
    let mut pause = *PAUSES.start();
    loop {
        let round = filling.round();
        // Where only room is lacking the program has none either for what it would log instead.
        let mut failed = filling.failed.iter();
        let takes = filling.files() < files_most
            && failed.all(|(_, error)| error.kind() == std::io::ErrorKind::StorageFull);
        board.takes.store(takes.into(), Ordering::Relaxed);
        board.rounds.fetch_add(1, Ordering::Release);
        if round.moved {
            pause = *PAUSES.start();
            continue;
        }
        if round.is_alone {
            return;
        }
        std::thread::sleep(Duration::from_millis(pause));
        pause = (pause * 2).min(*PAUSES.end());
    }
}

/// Lets this process have as many open files as it may. How many that is.
fn raise_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on a value of this function.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
