//! The commits that can be read at, and the readers that read.
//!
//! Everything here is under one lock, which only readers (once per snapshot) and the snapshotter
//! take. A registry without locks would save a reader some tens of nanoseconds and cost the
//! argument that a reader can never register below a horizon that is just being computed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::log::Commit;
use crate::types::{AsOf, AsOfError, Mark};

pub(crate) struct History {
    /// In commit order, never empty. The last one is the current snapshot.
    commits: VecDeque<Past>,
    /// How many readers there are at each number.
    readers: BTreeMap<u64, usize>,
    retention_us: i64,
    /// Is the only commit there is the made-up one before the first?
    blank: bool,
}

#[derive(Clone, Copy)]
struct Past {
    commit: Commit,
    /// The latest time of this commit and all before it: real commit times step back now and then.
    time_max: i64,
}

pub(crate) const PAST_BYTES: usize = size_of::<Past>();

impl History {
    pub fn new(retention: Duration) -> History {
        History {
            commits: VecDeque::from([Past {
                commit: Commit {
                    seq: 0,
                    mark: Mark::default(),
                },
                time_max: i64::MIN,
            }]),
            readers: BTreeMap::new(),
            retention_us: i64::try_from(retention.as_micros()).unwrap_or(i64::MAX),
            blank: true,
        }
    }

    pub fn newest(&self) -> Commit {
        self.commits[self.commits.len() - 1].commit
    }

    pub fn oldest(&self) -> Commit {
        self.commits[0].commit
    }

    pub fn len(&self) -> usize {
        self.commits.len()
    }

    pub fn readers(&self) -> usize {
        self.readers.values().sum()
    }

    /// No reader reads below this, and none will.
    pub fn horizon(&self) -> u64 {
        let oldest = self.oldest().seq;
        self.readers
            .first_key_value()
            .map_or(oldest, |(&reader, _)| reader.min(oldest))
    }

    /// Is it a reader, and not the retention, that keeps the oldest versions?
    pub fn held_by_reader(&self) -> bool {
        self.horizon() < self.oldest().seq
    }

    pub fn push(&mut self, commit: Commit) {
        let before = self.commits[self.commits.len() - 1];
        if std::mem::take(&mut self.blank) {
            self.commits.clear();
        }
        self.commits.push_back(Past {
            commit,
            time_max: before.time_max.max(commit.mark.time),
        });
    }

    /// Forgets what is older than the retention.
    pub fn prune(&mut self) {
        let start = self.commits[self.commits.len() - 1]
            .time_max
            .saturating_sub(self.retention_us);
        // The commit before the start stays: it is the state at the start.
        while self.commits.len() > 1 && self.commits[1].time_max <= start {
            self.commits.pop_front();
        }
    }

    /// Forgets the older half of what could still be read at. Says whether there was something to
    /// forget.
    pub fn shorten(&mut self) -> bool {
        let half = self.commits.len() / 2;
        self.commits.drain(..half);
        half > 0
    }

    pub fn find(&self, at: AsOf) -> Result<Commit, AsOfError> {
        let newest = self.commits[self.commits.len() - 1];
        let (beyond, end) = match at {
            AsOf::Lsn(lsn) => (
                lsn > newest.commit.mark.lsn,
                self.commits
                    .partition_point(|past| past.commit.mark.lsn <= lsn),
            ),
            AsOf::Time(time) => (
                time > newest.time_max,
                self.commits.partition_point(|past| past.time_max <= time),
            ),
        };
        if beyond {
            return Err(AsOfError::NotYet {
                newest: newest.commit.mark,
            });
        }
        match end.checked_sub(1) {
            Some(last) => Ok(self.commits[last].commit),
            None => Err(AsOfError::TooOld {
                oldest: self.oldest().mark,
            }),
        }
    }

    pub fn register(&mut self, seq: u64) {
        assert!(
            seq >= self.horizon(),
            "a reader at {seq}, below the horizon"
        );
        *self.readers.entry(seq).or_default() += 1;
    }

    /// Says whether that was the oldest reader, so that the horizon can move.
    pub fn unregister(&mut self, seq: u64) {
        let count = self
            .readers
            .get_mut(&seq)
            .unwrap_or_else(|| panic!("no reader at {seq}"));
        *count -= 1;
        if *count == 0 {
            self.readers.remove(&seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(retention_us: u64, commits: &[(u64, u64, i64)]) -> History {
        let mut history = History::new(Duration::from_micros(retention_us));
        for &(seq, lsn, time) in commits {
            history.push(Commit {
                seq,
                mark: Mark { lsn, time },
            });
            history.prune();
        }
        history
    }

    #[test]
    fn a_time_means_the_longest_prefix_of_commits_not_after_it() {
        let history = history(
            1000,
            &[(1, 10, 100), (2, 20, 300), (3, 30, 200), (4, 40, 400)],
        );
        let seq = |time| history.find(AsOf::Time(time)).map(|commit| commit.seq);
        assert_eq!(seq(100), Ok(1));
        assert_eq!(
            seq(250),
            Ok(1),
            "commit 2 is not in, so neither is commit 3 behind it"
        );
        assert_eq!(seq(300), Ok(3));
        assert_eq!(seq(400), Ok(4));
        assert_eq!(
            seq(99),
            Err(AsOfError::TooOld {
                oldest: Mark { lsn: 10, time: 100 }
            })
        );
        assert_eq!(
            seq(401),
            Err(AsOfError::NotYet {
                newest: Mark { lsn: 40, time: 400 }
            })
        );
    }

    #[test]
    fn a_position_between_two_commits_means_the_first() {
        let history = history(1000, &[(1, 10, 1), (2, 20, 2)]);
        assert_eq!(history.find(AsOf::Lsn(19)).map(|commit| commit.seq), Ok(1));
        assert_eq!(history.find(AsOf::Lsn(20)).map(|commit| commit.seq), Ok(2));
    }

    #[test]
    fn the_state_at_the_start_of_the_retention_is_kept() {
        let history = history(100, &[(1, 10, 0), (2, 20, 50), (3, 30, 120), (4, 40, 151)]);
        // Retention starts at 51: the state then is commit 2's.
        assert_eq!(history.oldest().seq, 2);
        assert_eq!(history.find(AsOf::Time(51)).map(|commit| commit.seq), Ok(2));
    }

    #[test]
    fn the_horizon_is_the_oldest_reader_or_the_start_of_the_retention() {
        let mut history = history(10, &[(1, 10, 0)]);
        history.register(1);
        for n in 2..9 {
            history.push(Commit {
                seq: n,
                mark: Mark {
                    lsn: n * 10,
                    time: n as i64 * 100,
                },
            });
            history.prune();
        }
        assert_eq!(history.horizon(), 1);
        assert!(history.held_by_reader());
        history.unregister(1);
        assert_eq!(
            history.horizon(),
            7,
            "the state 10 µs ago is that of the commit before the newest"
        );
    }
}
