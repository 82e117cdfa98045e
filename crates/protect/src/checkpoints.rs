//! Checkpoints of the copy on a backup: what came before one need not be kept, and a new backup
//! begins there.

use std::time::{Duration, Instant};

use hindcast_exec::apart::Follower;
use hindcast_exec::checkpoint::{BeingTaken, Checkpoint};

use crate::store::Store;

/// Taking them takes at most this part of the copy's time.
const SHARE: u32 = 20;

pub struct Checkpoints {
    /// How far apart they are at least; zero: there are none.
    every: Duration,
    due: Instant,
    begun: Instant,
    taking: Option<BeingTaken>,
    latest: Option<Checkpoint>,
}

impl Checkpoints {
    /// `first`: where the copy begins.
    pub fn new(every: Duration, first: Option<Checkpoint>) -> Checkpoints {
        let now = Instant::now();
        Checkpoints {
            every,
            due: now + every,
            begun: now,
            taking: None,
            latest: first,
        }
    }

    pub fn latest(&self) -> Option<&Checkpoint> {
        self.latest.as_ref()
    }

    /// Begins one if it is time, and takes note of one that is there: the log before it goes. Why
    /// there will be no more, if that is so.
    pub fn look(&mut self, follower: &Follower, store: &mut Store) -> Option<String> {
        if self.every.is_zero() {
            return None;
        }
        let is_done = self.taking.as_ref().is_some_and(BeingTaken::is_done);
        if let Some(done) = self.taking.take_if(|_| is_done) {
            self.due = Instant::now() + self.every.max(self.begun.elapsed() * SHARE);
            match done.end() {
                Ok(checkpoint) => {
                    store.forget_before(&checkpoint);
                    self.latest = Some(checkpoint);
                }
                Err(why) if why.is_of_this_moment() => {}
                Err(why) => return self.no_more(why.to_string()),
            }
        } else if self.taking.is_none() && Instant::now() >= self.due {
            self.begun = Instant::now();
            match follower.take() {
                Ok(taking) => self.taking = Some(taking),
                Err(error) => return self.no_more(error.to_string()),
            }
        }
        None
    }

    fn no_more(&mut self, why: String) -> Option<String> {
        self.every = Duration::ZERO;
        Some(why)
    }

    /// The copy has something else to do, or is none any more. One that was complete by now counts.
    pub fn end(&mut self, store: &mut Store) {
        if let Some(Ok(checkpoint)) = self.taking.take().map(BeingTaken::end) {
            store.forget_before(&checkpoint);
            self.latest = Some(checkpoint);
        }
    }
}
