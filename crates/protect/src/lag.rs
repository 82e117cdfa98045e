//! How far the copy is behind its log. Where that is too far answers wait for it: who waits asks
//! nothing new, so the primary does no more than the copy can follow.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use hindcast_exec::apart::Follower;

use crate::message::{ALIVE_EVERY, ToPrimary};

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A copy that has not moved for so long waits for something that is not there: nobody waits for
/// it.
const STANDS: Duration = Duration::from_millis(500);

pub struct Lag {
    /// Zero: nobody waits.
    limit: Duration,
    looked: Instant,
    /// How many events there were of each log, and when. The first were not all replayed.
    behind: VecDeque<(Instant, HashMap<String, u64>)>,
    /// Events that the copy had replayed, and since when.
    replayed: (u64, Instant),
    is_too_far: bool,
    /// The mark that waits.
    mark: Option<u64>,
    told: Instant,
}

impl Lag {
    pub fn new(limit: Duration) -> Lag {
        let now = Instant::now();
        Lag {
            limit,
            looked: now,
            behind: VecDeque::new(),
            replayed: (0, now),
            is_too_far: false,
            mark: None,
            told: now,
        }
    }

    /// Everything before this mark has come.
    pub fn came(&mut self, mark: Option<u64>) {
        self.mark = mark.or(self.mark);
    }

    /// What the primary is told of it now. `events` are those of each log that have come.
    pub fn look(
        &mut self,
        follower: Option<&Follower>,
        events: &HashMap<String, u64>,
    ) -> Option<ToPrimary> {
        let now = Instant::now();
        if let Some(follower) = follower.filter(|_| !self.limit.is_zero())
            && now - self.looked >= LOOK_EVERY
        {
            self.looked = now;
            self.measure(follower, events, now);
        }
        if !self.is_too_far || follower.is_none() {
            return self.mark.take().map(ToPrimary::Mark);
        }
        // The primary is to hear it though it has to wait.
        let is_due = self.mark.is_some() && now - self.told >= ALIVE_EVERY;
        is_due.then(|| {
            self.told = now;
            ToPrimary::Alive
        })
    }

    fn measure(&mut self, follower: &Follower, events: &HashMap<String, u64>, now: Instant) {
        let replayed = follower.events();
        if replayed != self.replayed.0 {
            self.replayed = (replayed, now);
        }
        let is_due = |(then, _): &(Instant, _)| now - *then >= self.limit / 10;
        if self.behind.back().is_none_or(is_due) {
            self.behind.push_back((now, events.clone()));
        }
        while let Some((_, events)) = self.behind.front()
            && follower.has_replayed(events)
        {
            self.behind.pop_front();
        }
        let since = self.behind.front().map_or(now, |(then, _)| *then);
        let moves = now - self.replayed.1 < STANDS;
        self.is_too_far = moves && now - since > self.limit;
        // One that stands is not asked about what it has missed until now.
        if !moves {
            self.behind.clear();
        }
    }
}
