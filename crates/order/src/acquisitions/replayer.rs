//! Whose turn it is.

use std::fmt;

use super::{Entry, Position, Recording, Thread};

/// What a thread may do that has come to an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Take the real lock, and wait for it if somebody still has it.
    Now,
    Wait(Wait),
    /// Not try at all, but be told so.
    Busy(i32),
    /// The recording ends here.
    Ended,
}

/// What has to happen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// This acquisition.
    For(Position),
    /// All acquisitions with tickets below this one.
    Ticket(u64),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(position) => write!(f, "waits for {position}"),
            Self::Ticket(ticket) => write!(f, "waits for ticket {ticket}"),
        }
    }
}

/// The replaying side: which thread may go on.
///
/// One value for all threads. What a runtime keeps of it for each thread is where it is in its log
/// and its number of acquisitions, which others read.
#[derive(Clone, Debug)]
pub struct Replayer<'a> {
    recording: &'a Recording,
    /// By thread: where it is in its log, and how many acquisitions of that entry it has made.
    places: Vec<(usize, u32)>,
    /// By thread: how many acquisitions it has made. [`Self::GONE`] if it is not there. Never goes
    /// back.
    acquired: Vec<u64>,
    next_ticket: u64,
}

impl<'a> Replayer<'a> {
    const GONE: u64 = u64::MAX;

    pub fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            places: vec![(0, 0); recording.logs.len()],
            acquired: recording.before.clone(),
            next_ticket: 0,
        }
    }

    /// What the thread's log says next.
    fn entry(&self, thread: Thread) -> Option<&'a Entry> {
        self.recording.logs[thread.index()].get(self.places[thread.index()].0)
    }

    fn has_come(&self, position: Position) -> bool {
        self.acquired[position.thread.index()] >= position.sequence
    }

    /// A thread has come to an acquisition, of whatever kind. Once it is [`Turn::Now`] it stays so.
    pub fn turn(&self, thread: Thread) -> Turn {
        let wait = match self.entry(thread) {
            None => return Turn::Ended,
            Some(Entry::Busy(code)) => return Turn::Busy(*code),
            Some(Entry::Relaxed(_)) => None,
            Some(Entry::Ticket(ticket)) => {
                (*ticket != self.next_ticket).then_some(Wait::Ticket(*ticket))
            }
            Some(Entry::Edge(previous)) => {
                (!self.has_come(*previous)).then_some(Wait::For(*previous))
            }
            Some(Entry::Clock(clock)) => {
                let mut others = clock.iter().copied();
                others
                    .find(|&position| !self.has_come(position))
                    .map(Wait::For)
            }
        };
        wait.map_or(Turn::Now, Turn::Wait)
    }

    /// The thread has taken the real lock. It must have been its turn.
    pub fn acquired(&mut self, thread: Thread) {
        assert_eq!(
            self.turn(thread),
            Turn::Now,
            "{thread} goes before its turn"
        );
        self.acquired[thread.index()] += 1;
        let place = &mut self.places[thread.index()];
        place.1 += 1;
        match self.recording.logs[thread.index()][place.0] {
            Entry::Relaxed(run) if place.1 < run => {}
            Entry::Ticket(_) => {
                self.next_ticket += 1;
                *place = (place.0 + 1, 0);
            }
            _ => *place = (place.0 + 1, 0),
        }
    }

    /// The thread was told that it did not get it.
    pub fn failed(&mut self, thread: Thread) -> i32 {
        let Turn::Busy(code) = self.turn(thread) else {
            panic!("{thread} was not told to fail");
        };
        self.places[thread.index()].0 += 1;
        code
    }

    /// How many acquisitions a thread has made.
    pub fn sequence(&self, thread: Thread) -> u64 {
        self.acquired[thread.index()]
    }

    /// The replayer of a child that this thread forks. Of the parent's threads only this one is
    /// there; the others count as having come to their ends: what they did before the fork is
    /// in the child's memory already, and of what they did after it the child knows nothing.
    pub fn fork<'child>(&self, thread: Thread, recording: &'child Recording) -> Replayer<'child> {
        let mut child = Replayer::new(recording);
        assert_eq!(
            child.sequence(thread),
            self.sequence(thread),
            "{thread} forks where it did"
        );
        for (acquired, log) in child.acquired.iter_mut().zip(&recording.logs) {
            // Numbers are not used again, so whoever else has a log was made by the child.
            if log.is_empty() {
                *acquired = Self::GONE;
            }
        }
        child.acquired[thread.index()] = self.sequence(thread);
        child
    }

    /// Whether all that was recorded has happened.
    pub fn is_finished(&self) -> bool {
        let places = self.places.iter().zip(&self.recording.logs);
        places.into_iter().all(|(place, log)| place.0 == log.len())
    }
}
