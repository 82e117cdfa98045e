//! What a standby is doing, for whoever looks at it from another thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hindcast_pg::Lsn;

use crate::source::compared::LeftOut;
use crate::target::TargetStatus;

/// Shared between the thread that follows and those that watch and stop it.
#[derive(Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    status: Mutex<Status>,
    changed: Condvar,
}

impl Control {
    /// Asks for an end in good order: what was received is applied, made durable and acknowledged
    /// first.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.0.stop.load(Ordering::SeqCst)
    }

    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// What somebody who watches should know, each notice once.
    pub fn note(&self, notices: &[String]) {
        self.update(|status| {
            for notice in notices {
                if !status.notices.contains(notice) {
                    status.notices.push(notice.clone());
                }
            }
        });
    }

    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.lock();
        change(&mut status);
        status.updated = Some(Instant::now());
    }

    /// Sleeps, but not past a stop. True when it is time to stop.
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut status = self.lock();
        while !self.is_stopping() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            // A stop that comes between the look and the wait is noticed a little later.
            let left = left.min(Duration::from_millis(100));
            status = self
                .0
                .changed
                .wait_timeout(status, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A moment of a standby.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub state: State,
    /// When it was changed last: many times a second while the log is followed.
    pub updated: Option<Instant>,
    /// The primary's end of WAL, as it last said.
    pub primary_end: Lsn,
    pub received: Lsn,
    pub visible: Lsn,
    pub durable: Lsn,
    pub lag: Lag,
    pub retention: Retention,
    pub target: TargetStatus,
    /// Changes as the primary made them, over the last seconds.
    pub changes_per_second: f64,
    pub reconnects: u64,
    /// Tables of the primary that are wanted, and not there yet.
    pub missing_tables: Vec<String>,
    /// Tables of the primary that are not wanted, or cannot be followed.
    pub left_out: Vec<LeftOut>,
    /// `None` if nothing is compared.
    pub check: Option<CheckStatus>,
    /// What somebody should know, each of them once.
    pub notices: Vec<String>,
}

/// What was compared with the primary while the log was followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckStatus {
    /// When all tables were through last, in µs since 1970, and the position of the last of them.
    pub complete: Option<(i64, Lsn)>,
    /// Rows compared, that differed, and that were repaired or copied again.
    pub rows: u64,
    pub differed: u64,
    pub repaired: u64,
    /// Tables that could not be compared, and why.
    pub passed_over: Vec<String>,
    /// Something differed when it was looked last.
    pub is_doubtful: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    #[default]
    Starting,
    Copying(CopyProgress),
    Following,
    /// One of the servers cannot be reached: tried again.
    Waiting {
        reason: String,
        attempt: u32,
    },
    /// Somebody promotes the backup: it is followed again if that fails.
    Promoting,
    Stopped,
}

impl State {
    /// A word for machines.
    pub fn name(&self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Copying(_) => "copying",
            State::Following => "following",
            State::Waiting { .. } => "waiting",
            State::Promoting => "promoting",
            State::Stopped => "stopped",
        }
    }
}

/// How far the initial copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    pub tables_done: usize,
    pub tables: usize,
    pub rows_done: u64,
    pub bytes_done: u64,
    /// What the primary's statistics say there is.
    pub bytes_estimate: u64,
    /// The table that was begun last.
    pub current: String,
}

/// What the primary keeps of its WAL for this standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub wal_status: WalStatus,
    /// `None` while it is not known.
    pub kept_bytes: Option<i64>,
    /// So much may be written until the slot loses what it needs; `None` where there is no limit.
    pub safe_bytes: Option<i64>,
    /// `max_slot_wal_keep_size`; `None` where there is no limit.
    pub limit_bytes: Option<i64>,
}

/// As in `pg_replication_slots`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WalStatus {
    #[default]
    Unknown,
    Reserved,
    Extended,
    Unreserved,
    Lost,
}

impl WalStatus {
    pub fn of(name: &str) -> Self {
        match name {
            "reserved" => Self::Reserved,
            "extended" => Self::Extended,
            "unreserved" => Self::Unreserved,
            "lost" => Self::Lost,
            _ => Self::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Reserved => "reserved",
            Self::Extended => "extended",
            Self::Unreserved => "unreserved",
            Self::Lost => "lost",
        }
    }
}

impl Retention {
    /// What somebody should do something about, in words that stay the same.
    pub fn warning(&self) -> Option<String> {
        self.kept_bytes?;
        let Some(limit) = self.limit_bytes else {
            return Some(
                "max_slot_wal_keep_size has no limit on the primary: while this standby is down, its WAL grows until the disk is full"
                    .to_owned(),
            );
        };
        let safe = self.safe_bytes.unwrap_or(limit);
        (safe < limit / 4 || self.wal_status == WalStatus::Unreserved).then(|| {
            format!(
                "the primary is about to remove WAL that this standby still needs: less than a quarter of max_slot_wal_keep_size ({} MB) is left",
                limit >> 20
            )
        })
    }
}

/// How far readers of the standby are behind the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Since the oldest transaction was committed that readers do not see yet. As long as that one
    /// was not sent: since we knew that there is more, or, after a start, since the last one was
    /// committed that they see, which may be too long ago. Zero when they see all.
    pub time: Duration,
    /// WAL that the primary has and readers do not see.
    pub bytes: u64,
}

/// Follows what is committed and what is visible, and says how old the oldest difference is.
///
/// Keeps a sample of commits, not all: the answer is at most [`SAMPLE`] too old.
#[derive(Debug, Default)]
pub(crate) struct LagMeter {
    /// Commits that are not visible: where they end, and when they were made by the primary's
    /// clock, in µs.
    waiting: VecDeque<(Lsn, i64)>,
    /// Where the primary's log ended when we looked, by our clock in µs: what lies between that
    /// and what is visible may not have been sent yet.
    ends: VecDeque<(Lsn, i64)>,
    /// When what readers see at the start was committed, by the primary's clock.
    seen_since: Option<i64>,
    /// The primary's clock minus ours, in µs.
    clock_offset: i64,
}

/// Commits closer together than this, in µs, count as one.
const SAMPLE: i64 = 1_000;

impl LagMeter {
    /// Readers see everything up to a transaction that was committed at `time`, by the primary's
    /// clock. What there is beyond it may be as old.
    pub fn seen(time: Option<i64>) -> Self {
        Self {
            seen_since: time,
            ..Self::default()
        }
    }

    pub fn set_clock_offset(&mut self, micros: i64) {
        self.clock_offset = micros;
    }

    /// A transaction that readers see when they see the log up to `end`. Known from its beginning,
    /// which comes when it was committed.
    pub fn committed(&mut self, end: Lsn, time: i64) {
        match self.waiting.back_mut() {
            // The sample stands for the later ones too: it goes when the last of them is visible.
            Some((last, since)) if time - *since < SAMPLE => *last = end,
            _ => self.waiting.push_back((end, time)),
        }
    }

    pub fn measure(&mut self, visible: Lsn, primary_end: Lsn, now: i64) -> Lag {
        let last = self.ends.back().map_or(Lsn(0), |(end, _)| *end);
        if primary_end > last && self.ends.len() < ENDS_MAX {
            // What there is at the first look was there before.
            let since = self.seen_since.take();
            let since = since.map_or(now, |since| now.min(since - self.clock_offset));
            self.ends.push_back((primary_end, since));
        }
        let seen = |(end, _): &(Lsn, i64)| *end <= visible;
        while self.waiting.front().is_some_and(seen) {
            self.waiting.pop_front();
        }
        while self.ends.front().is_some_and(seen) {
            self.ends.pop_front();
        }
        // Commits come in their order: what was not sent is younger than what was.
        let age = match (self.waiting.front(), self.ends.front()) {
            (Some((_, since)), _) => now + self.clock_offset - since,
            (None, Some((_, since))) => now - since,
            (None, None) => 0,
        };
        Lag {
            time: Duration::from_micros(age.max(0).unsigned_abs()),
            bytes: primary_end.0.saturating_sub(visible.0),
        }
    }
}

/// More are not remembered: those that come later are then taken for newer than they are.
const ENDS_MAX: usize = 100_000;

/// A rate over the last few seconds.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(3);
    const STEP: Duration = Duration::from_millis(100);

    pub fn per_second(&mut self, now: Instant, count: u64) -> f64 {
        let due = |(at, _): &(Instant, u64)| now.duration_since(*at) >= Self::STEP;
        if self.samples.back().is_none_or(due) {
            self.samples.push_back((now, count));
        }
        while self.samples.len() > 2
            && self
                .samples
                .get(1)
                .is_some_and(|(at, _)| now.duration_since(*at) >= Self::WINDOW)
        {
            self.samples.pop_front();
        }
        match self.samples.front() {
            Some((at, before)) if now > *at => {
                (count - before) as f64 / now.duration_since(*at).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

/// Now, in µs since 1970.
pub fn now_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_the_oldest_commit_that_nobody_sees() {
        let mut meter = LagMeter::default();
        assert_eq!(meter.measure(Lsn(9), Lsn(9), 900_000), Lag::default());
        meter.committed(Lsn(10), 1_000_000);
        meter.committed(Lsn(12), 1_000_500);
        meter.committed(Lsn(20), 3_000_000);
        let lag = |meter: &mut LagMeter, visible| meter.measure(Lsn(visible), Lsn(20), 5_000_000);
        assert_eq!(lag(&mut meter, 0).time, Duration::from_secs(4));
        // The first two are one sample, which goes with the later of them.
        assert_eq!(lag(&mut meter, 10).time, Duration::from_secs(4));
        assert_eq!(
            lag(&mut meter, 12),
            Lag {
                time: Duration::from_secs(2),
                bytes: 8
            }
        );
        assert_eq!(lag(&mut meter, 20), Lag::default());
    }

    /// The primary takes its time to decode a large transaction.
    #[test]
    fn log_that_was_not_sent_yet_counts_from_when_we_knew_of_it() {
        let mut meter = LagMeter::default();
        let mut lag = |visible, end, seconds: i64| {
            let lag = meter.measure(Lsn(visible), Lsn(end), seconds * 1_000_000);
            (lag.time.as_secs(), lag.bytes)
        };
        assert_eq!(lag(10, 10, 1), (0, 0));
        assert_eq!(lag(10, 30, 2), (0, 20));
        assert_eq!(lag(10, 40, 5), (3, 30));
        assert_eq!(lag(30, 40, 6), (1, 10));
        assert_eq!(lag(40, 40, 7), (0, 0));
    }

    #[test]
    fn after_a_start_what_was_not_sent_yet_may_be_as_old_as_what_readers_see() {
        const SECOND: i64 = 1_000_000;
        // It ended at second 100, and starts again at 600; the primary's clock is 2 s ahead.
        let mut meter = LagMeter::seen(Some(102 * SECOND));
        meter.set_clock_offset(2 * SECOND);
        let lag = |meter: &mut LagMeter, visible, now| {
            meter.measure(Lsn(visible), Lsn(90), now * SECOND).time
        };
        assert_eq!(lag(&mut meter, 10, 600), Duration::from_secs(500));
        // The oldest that is missing is known as soon as it comes.
        meter.committed(Lsn(20), 252 * SECOND);
        assert_eq!(lag(&mut meter, 10, 601), Duration::from_secs(351));
        assert_eq!(lag(&mut meter, 90, 602), Duration::ZERO);
        // Nothing is missing at the start.
        let mut meter = LagMeter::seen(Some(102 * SECOND));
        assert_eq!(lag(&mut meter, 90, 600), Duration::ZERO);
    }

    #[test]
    fn the_primary_has_a_clock_of_its_own() {
        let mut meter = LagMeter::default();
        meter.set_clock_offset(2_000_000);
        meter.committed(Lsn(10), 4_000_000);
        let lag = meter.measure(Lsn(0), Lsn(10), 3_000_000);
        assert_eq!(lag.time, Duration::from_secs(1));
        // Clocks that disagree by more than the offset known do not make a negative lag.
        assert_eq!(meter.measure(Lsn(0), Lsn(10), 0).time, Duration::ZERO);
    }

    #[test]
    fn a_slot_is_warned_about_before_it_is_lost() {
        let retention = |kept, safe, limit| Retention {
            wal_status: WalStatus::Reserved,
            kept_bytes: kept,
            safe_bytes: safe,
            limit_bytes: limit,
        };
        assert_eq!(Retention::default().warning(), None);
        assert_eq!(
            retention(Some(1), Some(300 << 20), Some(1 << 30)).warning(),
            None
        );
        let warning = retention(Some(1), Some(200 << 20), Some(1 << 30)).warning();
        assert!(warning.is_some_and(|text| text.contains("(1024 MB)")));
        let warning = retention(Some(1), None, None).warning();
        assert!(warning.is_some_and(|text| text.contains("no limit")));
    }

    #[test]
    fn a_rate_is_over_the_last_seconds() {
        let mut rate = Rate::default();
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        assert_eq!(rate.per_second(at(0), 0), 0.0);
        for tenth in 1..=100 {
            let now = rate.per_second(at(tenth), tenth * 50);
            assert!((now - 500.0).abs() < 1.0, "{now}");
        }
        for tenth in 101..=140 {
            rate.per_second(at(tenth), 5_000);
        }
        assert_eq!(rate.per_second(at(141), 5_000), 0.0);
    }
}
