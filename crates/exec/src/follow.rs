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
//!
//! Where the log is kept the one that goes on is recorded, into the same recording: it is the
//! leader of the followers that are left, and of a new one that begins at the beginning of the log.

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::board::Leader;
use hindcast_execlog::config::{Config, descriptors, follow};
use hindcast_execlog::files::End;

use crate::error::{ExecError, system};
use crate::launch::{self, Image, Interface, Manner, Stage};
use crate::log;
use crate::report::{self, Report};
use crate::watch::{self, Collects, Ended, Event, LOOK_EVERY, Signals};

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
        /// What it is from there on.
        then: Then,
    },
    /// The program was killed, and no follower could go on.
    NotTakenOver { leader: Ended, why: Dropped },
    /// Connections of the leader whose bytes are lost: they were closed.
    LostConnections(u32),
}

/// What a follower is that has gone on in its leader's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is recorded, and these follow it: those that were left, and one that begins anew.
    Recorded {
        left: Vec<u32>,
        new: Result<u32, String>,
    },
    /// It is not recorded, because the log that it has read is gone.
    Forgotten,
    /// It is not recorded, because of what its threads were in, or of how the leader ended.
    Unrecorded,
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
pub struct Crew<'a> {
    leader: Stage,
    followers: Vec<Stage>,
    is_kept: bool,
    /// What a follower is made of.
    folder: &'a Path,
    replay: Config,
    library: &'a [u8],
    interfaces: &'a [Interface],
    /// Where a follower asks for the descriptors of its leader.
    table: OwnedFd,
}

impl<'a> Crew<'a> {
    /// `record` and `replay` are what either run is configured as.
    pub fn new(
        folder: &'a Path,
        (mut record, mut replay): (Config, Config),
        library: &'a [u8],
        interfaces: &'a [Interface],
        (followers, is_kept): (u32, bool),
    ) -> Result<Crew<'a>, ExecError> {
        record.follow = follow::LEADS;
        replay.follow = follow::FOLLOWS;
        replay.follow |= match !is_kept && followers == 1 {
            true => follow::DISCARDS,
            false => follow::SUCCEEDS,
        };
        // For images that one executes which goes on in the leader's place.
        (replay.stdout, replay.stderr) = (record.stdout, record.stderr);
        let (own, table) = ends().map_err(system("no socket for descriptors can be made"))?;
        let mut leader = Stage::new(folder, record, library, interfaces)?;
        leader.hand(own, descriptors::TABLE);
        let mut crew = Crew {
            leader,
            followers: Vec::new(),
            is_kept,
            folder,
            replay,
            library,
            interfaces,
            table,
        };
        crew.own(&crew.leader);
        for _ in 0..followers {
            let stage = crew.follower()?;
            crew.followers.push(stage);
        }
        Ok(crew)
    }

    fn follower(&self) -> Result<Stage, ExecError> {
        let mut stage = Stage::new(self.folder, self.replay, self.library, self.interfaces)?;
        let end = self
            .table
            .try_clone()
            .map_err(system("no socket for descriptors can be made"))?;
        stage.hand(end, descriptors::TABLE);
        self.own(&stage);
        Ok(stage)
    }

    /// Whoever records with this stage does so for followers alone, if nobody else wants it.
    fn own(&self, stage: &Stage) {
        if !self.is_kept {
            let own = std::process::id();
            stage.board.launcher.store(own, Ordering::Relaxed);
        }
    }

    /// Runs the program to its end, in whichever process. How it ended, how the process did that
    /// was recorded last, and what that reported, if it did.
    pub fn run(
        mut self,
        image: &Image,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Result<(Ended, Ended, Option<Report>), ExecError> {
        let leader = launch::start(image, &self.leader, Manner::Free)?;
        let mut watched = Watched {
            program: image.path.clone(),
            followers: Vec::new(),
            main: leader,
            ended: None,
        };
        let mut started = 0;
        for stage in std::mem::take(&mut self.followers) {
            started += 1;
            let pid = launch::start(image, &stage, Manner::Bound)?;
            watched.followers.push(Follower {
                number: started,
                pid,
                stage,
            });
        }
        loop {
            let of_leader = watched.wait(&self.leader.board, signals, say);
            let report = Report::take(&self.leader.board, &image.path);
            if watched.followers.is_empty() || !is_lost(self.folder, of_leader) {
                end_holder(&self.leader.board);
                watched.let_followers_end(signals, say);
                return Ok((of_leader, of_leader, report));
            }
            let Some(Successor { follower, after }) = watched.replace(of_leader, signals, say)
            else {
                end_holder(&self.leader.board);
                return Ok((of_leader, of_leader, report));
            };
            let leads = follower.stage.board.leader() == Leader::Succeeded;
            let then = match leads {
                true => {
                    started += 1;
                    self.followed_on(image, started, &mut watched)
                }
                false if self.replay.follow & follow::SUCCEEDS == 0 => Then::Forgotten,
                false => Then::Unrecorded,
            };
            say(Notice::TookOver {
                follower: follower.number,
                pid: follower.pid as u32,
                after,
                leader: of_leader,
                then,
            });
            let board = &follower.stage.board;
            if leads {
                say_lost(board, say);
                self.leader = follower.stage;
                continue;
            }
            watched.end_followers();
            let ended = watched.ended;
            let ended = ended.unwrap_or_else(|| watch::accompany(follower.pid, signals));
            say_lost(board, say);
            return Ok((ended, of_leader, report));
        }
    }

    /// A new follower begins, beside those that are left.
    fn followed_on(&self, image: &Image, number: u32, watched: &mut Watched) -> Then {
        let left = watched
            .followers
            .iter()
            .map(|follower| follower.number)
            .collect();
        let begun = self.follower().and_then(|stage| {
            let pid = launch::start(image, &stage, Manner::Bound)?;
            Ok(Follower { number, pid, stage })
        });
        let new = match begun {
            Ok(follower) => {
                watched.followers.push(follower);
                Ok(number)
            }
            Err(why) => Err(why.to_string()),
        };
        Then::Recorded { left, new }
    }
}

fn say_lost(board: &Board, say: &mut dyn FnMut(Notice)) {
    let lost = board.lost_connections.load(Ordering::Relaxed);
    if lost != 0 {
        say(Notice::LostConnections(lost));
    }
}

/// A follower that runs in its leader's place.
struct Successor {
    follower: Follower,
    /// How long that took.
    after: Duration,
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
        let followers = self.followers.iter().map(|follower| follower.pid);
        let known = std::iter::once(main).chain(followers);
        watch::reap_each(known, Collects::Behind, |pid, how| {
            if pid == main {
                *ended = Some(how);
            } else {
                gone.push((pid, how));
            }
        });
        // A leader that ends has its followers end as well.
        let is_over = self.ended.is_some();
        self.drop_those(&gone, is_over, say);
    }

    /// Drops followers that are `gone`, or have reported. Not a word of those that only ended,
    /// where the leader's end `is_over`.
    fn drop_those(
        &mut self,
        gone: &[(libc::pid_t, Ended)],
        is_over: bool,
        say: &mut dyn FnMut(Notice),
    ) {
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
        self.end_followers();
    }

    fn end_followers(&mut self) {
        self.followers
            .drain(..)
            .for_each(|follower| end(follower.pid));
    }

    /// Has the follower that is furthest go on in the leader's place. The others wait for what that
    /// one writes.
    fn replace(
        &mut self,
        leader: Ended,
        signals: &Signals,
        say: &mut dyn FnMut(Notice),
    ) -> Option<Successor> {
        let begun = Instant::now();
        self.followers.sort_by_key(Follower::events);
        let chosen = self.followers.pop()?;
        let board = &chosen.stage.board;
        board.set_leader(Leader::Lost);
        (self.main, self.ended) = (chosen.pid, None);
        loop {
            // Before the board is looked at: what it wrote before it ended is there then.
            self.look(say);
            if matches!(board.leader(), Leader::Replaced | Leader::Succeeded) {
                let after = begun.elapsed();
                return Some(Successor {
                    follower: chosen,
                    after,
                });
            }
            let why = match (Report::take(board, &self.program), self.ended) {
                (Some(report), _) => Some(Dropped::Reported(Box::new(report))),
                (None, Some(how)) => Some(Dropped::Ended(how)),
                (None, None) if begun.elapsed() > PATIENCE => Some(Dropped::TooSlow(PATIENCE)),
                (None, None) => None,
            };
            if let Some(why) = why {
                if self.ended.is_none() {
                    end(chosen.pid);
                }
                say(Notice::NotTakenOver { leader, why });
                self.end_followers();
                return None;
            }
            // Soon: clients wait. A signal that comes now is for the follower.
            signals.pass_on(chosen.pid, Duration::from_millis(1));
        }
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

/// Ends the process that holds the descriptors of a leader which has ended: connections end, too.
/// It asks for nothing while this process has the other end of its socket.
fn end_holder(board: &Board) {
    let holder = board.table.load(Ordering::Acquire) as libc::pid_t;
    // SAFETY: numbers only. One that is not a child of ours, or has ended, is left alone.
    if holder > 0 && unsafe { libc::waitpid(holder, std::ptr::null_mut(), libc::WNOHANG) } == 0 {
        end(holder);
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
    let header = log::header(folder, &name);
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
