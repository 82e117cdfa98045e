//! Followers: second copies of a recorded program that replay its recording while it is written.
//!
//! ```text
//!   program (the leader) ─ writes ─→ DIR ─ is read by ─→ follower: the same program, in replay
//!        │                                                    │
//!        └─ shares its descriptors with a process of ours ─→ takes them when the leader is killed
//! ```
//!
//! The leader knows nothing of it. A follower that diverges is dropped and the leader goes on; a
//! leader that is killed is replaced by the follower that is furthest, with the leader's memory and
//! the leader's connections.

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hindcast_execlog::board::Leader;
use hindcast_execlog::config::{Config, descriptors, follow};
use hindcast_execlog::files::End;
use hindcast_execlog::{Board, ProcessHeader};

use crate::error::{ExecError, system};
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::report::{self, Report};
use crate::watch::{self, Ended, Event, LOOK_EVERY, Signals};

/// How long a follower may take to replay what is left once the leader is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is worth saying while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A follower is no copy of the program any more, and was ended.
    Dropped {
        follower: u32,
        why: Dropped,
        /// Followers that are left.
        left: u32,
    },
    /// The program was killed, and a follower goes on in its place.
    TookOver {
        follower: u32,
        pid: u32,
        after: Duration,
        /// How the leader ended.
        leader: Ended,
    },
    /// The program was killed, and no follower could go on.
    NotTakenOver { leader: Ended, why: Dropped },
    /// Connections of the leader whose bytes are lost: they were closed.
    LostConnections(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    Reported(Box<Report>),
    Ended(Ended),
    /// It did not come to the end of the recording in this time.
    TooSlow(Duration),
}

struct Follower {
    number: u32,
    pid: libc::pid_t,
    stage: Stage,
}

/// A leader and its followers, about to start.
pub struct Crew {
    leader: Stage,
    followers: Vec<Stage>,
    is_kept: bool,
}

impl Crew {
    /// `record` and `replay` are what either run is configured as.
    pub fn new(
        folder: &Path,
        (mut record, mut replay): (Config, Config),
        library: &[u8],
        interfaces: &[Interface],
        (followers, is_kept): (u32, bool),
    ) -> Result<Crew, ExecError> {
        record.follow = follow::LEADS;
        replay.follow = follow::FOLLOWS;
        if !is_kept && followers == 1 {
            replay.follow |= follow::DISCARDS;
        }
        let (own, theirs) = ends().map_err(system("no socket for descriptors can be made"))?;
        let mut leader = Stage::new(folder, record, library, interfaces)?;
        leader.hand(own, descriptors::TABLE);
        let mut all = Vec::new();
        for _ in 0..followers {
            let mut stage = Stage::new(folder, replay, library, interfaces)?;
            let end = theirs
                .try_clone()
                .map_err(system("no socket for descriptors can be made"))?;
            stage.hand(end, descriptors::TABLE);
            all.push(stage);
        }
        Ok(Crew {
            leader,
            followers: all,
            is_kept,
        })
    }

    /// What the leader reported, if it did.
    pub fn report(&self, image: &Image) -> Option<Report> {
        Report::take(&self.leader.board, &image.path)
    }

    /// Runs the program to its end, in whichever process. How it ended, and how the leader did.
    pub fn run(
        &mut self,
        image: &Image,
        folder: &Path,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Result<(Ended, Ended), ExecError> {
        if !self.is_kept {
            let own = std::process::id();
            self.leader.board.launcher.store(own, Ordering::Relaxed);
        }
        let leader = launch::start(image, &self.leader, Manner::Free)?;
        let mut watched = Watched {
            program: image.path.clone(),
            followers: Vec::new(),
            main: leader,
            ended: None,
        };
        for (number, stage) in (1..).zip(self.followers.drain(..)) {
            let pid = launch::start(image, &stage, Manner::Bound)?;
            watched.followers.push(Follower { number, pid, stage });
        }
        let of_leader = watched.wait(&self.leader.board, signals, say);
        if watched.followers.is_empty() || !is_lost(folder, of_leader) {
            watched.let_followers_end(signals, say);
            return Ok((of_leader, of_leader));
        }
        let Some((follower, ended)) = watched.replace(of_leader, signals, say) else {
            return Ok((of_leader, of_leader));
        };
        let ended = ended.unwrap_or_else(|| watch::accompany(follower.pid, signals));
        let lost = follower
            .stage
            .board
            .lost_connections
            .load(Ordering::Relaxed);
        if lost != 0 {
            say(Notice::LostConnections(lost));
        }
        Ok((ended, of_leader))
    }
}

/// What runs, and what has ended.
struct Watched {
    program: PathBuf,
    followers: Vec<Follower>,
    main: libc::pid_t,
    ended: Option<Ended>,
}

impl Watched {
    /// Waits until the leader has ended, and tells of followers that do before.
    fn wait(&mut self, leader: &Board, signals: &Signals, say: &mut dyn FnMut(Notice)) -> Ended {
        loop {
            self.look(say);
            if self.followers.is_empty() {
                leader.set_leader(Leader::Ended);
            }
            if let Some(ended) = self.ended {
                return ended;
            }
            signals.pass_on(self.main, LOOK_EVERY);
        }
    }

    /// Takes note of what has ended, and drops followers that are no copies any more.
    fn look(&mut self, say: &mut dyn FnMut(Notice)) {
        let mut gone = Vec::new();
        let (main, ended) = (self.main, &mut self.ended);
        watch::reap_each(|pid, how| {
            if pid == main {
                *ended = Some(how);
            } else {
                gone.push((pid, how));
            }
        });
        // A leader that ends has its followers end as well.
        let is_over = self.ended.is_some();
        let mut index = 0;
        while let Some(follower) = self.followers.get(index) {
            let how = gone.iter().find(|(pid, _)| *pid == follower.pid);
            let reported = Report::take(&follower.stage.board, &self.program);
            let why = match (reported, how) {
                (Some(report), _) => Dropped::Reported(Box::new(report)),
                (None, Some((_, how))) if !is_over => Dropped::Ended(*how),
                (None, Some(_)) => {
                    self.followers.remove(index);
                    continue;
                }
                (None, None) => {
                    index += 1;
                    continue;
                }
            };
            let follower = self.followers.remove(index);
            if how.is_none() {
                end(follower.pid);
            }
            say(Notice::Dropped {
                follower: follower.number,
                why,
                left: self.followers.len() as u32,
            });
        }
    }

    /// The leader has come to its end: so do the followers, once they have replayed it.
    fn let_followers_end(&mut self, signals: &Signals, say: &mut dyn FnMut(Notice)) {
        let begun = Instant::now();
        for follower in &self.followers {
            follower.stage.board.set_leader(Leader::Ended);
        }
        while !self.followers.is_empty() && begun.elapsed() < PATIENCE {
            self.look(say);
            if !self.followers.is_empty()
                && let Event::Signal { .. } = signals.next(LOOK_EVERY)
            {
                break;
            }
        }
        self.followers
            .drain(..)
            .for_each(|follower| end(follower.pid));
    }

    /// Has the follower that is furthest go on in the leader's place; ends the others. How it
    /// ended, if it has by then.
    fn replace(
        &mut self,
        leader: Ended,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Option<(Follower, Option<Ended>)> {
        let begun = Instant::now();
        self.followers
            .sort_by_key(|follower| std::cmp::Reverse(follower.events()));
        for other in self.followers.drain(1..) {
            end(other.pid);
        }
        let chosen = self.followers.pop()?;
        let board = &chosen.stage.board;
        board.set_leader(Leader::Lost);
        let mut ended = None;
        loop {
            // Before the board is looked at: what it wrote before it ended is there then.
            watch::reap_each(|pid, how| {
                if pid == chosen.pid {
                    ended = Some(how);
                }
            });
            if board.leader() == Leader::Replaced {
                break;
            }
            let why = match (Report::take(board, &self.program), ended) {
                (Some(report), _) => Some(Dropped::Reported(Box::new(report))),
                (None, Some(how)) => Some(Dropped::Ended(how)),
                (None, None) if begun.elapsed() > PATIENCE => Some(Dropped::TooSlow(PATIENCE)),
                (None, None) => None,
            };
            if let Some(why) = why {
                if ended.is_none() {
                    end(chosen.pid);
                }
                say(Notice::NotTakenOver { leader, why });
                return None;
            }
            // Soon: clients wait. A signal that comes now is for the follower.
            signals.pass_on(chosen.pid, Duration::from_millis(1));
        }
        say(Notice::TookOver {
            follower: chosen.number,
            pid: chosen.pid as u32,
            after: begun.elapsed(),
            leader,
        });
        Some((chosen, ended))
    }
}

impl Follower {
    /// Events replayed so far, of all threads.
    fn events(&self) -> u64 {
        report::threads(&self.stage.board)
            .iter()
            .map(|thread| thread.event)
            .sum()
    }
}

pub(crate) fn end(pid: libc::pid_t) {
    // SAFETY: a child of ours that has not been reaped.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Whether a leader that has ended so is to be replaced: it was killed without a word, or by a
/// fault of its own, which need not happen again.
pub(crate) fn is_lost(folder: &Path, ended: Ended) -> bool {
    let Ended::Signalled(signal) = ended else {
        return false;
    };
    let mut name = "p0".to_owned();
    while folder.join(format!("{name}+")).exists() {
        name.push('+');
    }
    let header = std::fs::read(folder.join(name).join("process"))
        .ok()
        .and_then(|bytes| ProcessHeader::from_bytes(&bytes));
    let is_fault = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL
    );
    header.is_some_and(|header| match header.end().0 {
        End::Running => true,
        End::Signalled => is_fault,
        End::Exited | End::Executed | End::Detached => false,
    })
}

/// Two ends of what descriptors are asked for and sent through.
pub(crate) fn ends() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: two fresh descriptors, owned from here on.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        match libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) {
            0 => Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
