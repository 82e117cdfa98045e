//! The loop: the log in, a target fed, acknowledgements out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_pg::Lsn;

use crate::pgoutput::{Begin, Change, Commit, Relation, Truncate};
use crate::status::{Control, LagMeter, Rate, Retention, State, now_micros};
use crate::target::Target;

/// How long the loop waits for the log before it looks at everything else: while readers do not
/// see all yet or somebody waits for the end, while it is not all durable, and while there is
/// nothing to do.
const TICK: Duration = Duration::from_millis(1);
const FLUSH_TICK: Duration = Duration::from_millis(10);
const IDLE_TICK: Duration = Duration::from_millis(200);
/// How many messages go by at most until then, when the log comes without a pause.
const MESSAGES_PER_TICK: u32 = 512;
/// How often watchers get a new status.
const STATUS_EVERY: Duration = Duration::from_millis(50);

/// What the log says next.
#[derive(Debug)]
pub enum Event<'a> {
    Begin(Begin),
    Change {
        relation: &'a Arc<Relation>,
        change: Change<'a>,
    },
    Commit(Commit),
    /// Before its first change, and whenever its shape changed.
    Relation(&'a Arc<Relation>),
    Truncate {
        relations: Vec<Arc<Relation>>,
        how: Truncate,
    },
    /// Somebody wants the state that the log makes up to here.
    Mark {
        at: Lsn,
        content: &'a [u8],
    },
    /// Nothing for a target: a keepalive that moved the primary's end, a message of somebody else.
    Nothing,
}

/// Where a target is, for the primary to know: it keeps WAL from `durable` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    pub received: Lsn,
    pub visible: Lsn,
    pub durable: Lsn,
}

/// A primary's log from some position on: committed transactions in commit order, one after the
/// other.
pub trait Log {
    type Error: std::error::Error + Send + Sync + 'static;

    /// `None` when nothing came until the deadline.
    fn next(&mut self, deadline: Instant) -> Result<Option<Event<'_>>, Self::Error>;
    /// Cheap to call often: it is sent when there is something to say.
    fn acknowledge(&mut self, position: Acknowledgement) -> Result<(), Self::Error>;
    /// The primary's end of WAL, as it last said.
    fn primary_end(&self) -> Lsn;
    /// Everything up to here has been handed over by [`Log::next`], also where it was nothing for
    /// us.
    fn read_to(&self) -> Lsn;
    /// The primary's clock minus ours, in µs.
    fn clock_offset(&self) -> i64;
    /// What the primary keeps for us, as it last said.
    fn retention(&self) -> Retention;
}

/// Why following ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it.
    Stopped,
    /// What was to be reached is visible and durable.
    Reached,
}

/// What whoever watches wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    GoOn,
    /// End once everything up to here is visible and durable, and nothing beyond; or at once.
    EndAt(Option<Lsn>),
}

/// Which side failed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError<L, T> {
    #[error(transparent)]
    Log(L),
    #[error(transparent)]
    Target(T),
}

/// Whether a position that is visible is durable as well.
fn is_reached<T: Target>(target: &mut T, visible: Option<Lsn>) -> Result<bool, T::Error> {
    let Some(until) = visible else {
        return Ok(false);
    };
    let reached = target.durable() >= until.min(target.received());
    if !reached {
        // Some targets make durable what is visible only when they are drained.
        target.drain()?;
    }
    Ok(reached)
}

/// Feeds `target` with `log` until it is stopped, `until` is reached, or one of them fails. No
/// transaction that was committed at or beyond `until` is handed over once that is known. `watch`
/// is called a few times a second, and may end it.
pub fn follow<L: Log, T: Target>(
    log: &mut L,
    target: &mut T,
    control: &Control,
    mut until: Option<Lsn>,
    mut watch: impl FnMut() -> Result<Wish, T::Error>,
) -> Result<Ended, FollowError<L::Error, T::Error>> {
    let mut lag = LagMeter::seen(target.status().visible_commit_time);
    let mut rate = Rate::default();
    let mut status_due = Instant::now();
    let mut place = Place::default();
    control.update(|status| status.state = State::Following);
    loop {
        let taken = take_in(log, target, control, until, &mut place, &mut lag);
        if let Err(FollowError::Log(_)) = &taken
            && !place.inside
        {
            // The primary may be gone for good: what has come of it should be there. If this fails,
            // too, it is sent again, or it is lost with the primary.
            let _ = target.drain();
        }
        taken?;
        let now = Instant::now();
        target.tick(now).map_err(FollowError::Target)?;
        let all_visible = !place.inside && target.visible() >= target.received();
        if all_visible && target.durable() >= target.received() {
            target
                .idle(log.read_to(), now)
                .map_err(FollowError::Target)?;
        }
        acknowledge(log, target)?;
        // What was read and was nothing for us is seen by readers as soon as everything else is.
        let visible = match all_visible {
            true => target.visible().max(log.read_to()),
            false => target.visible(),
        };

        if now >= status_due {
            status_due = now + STATUS_EVERY;
            match watch().map_err(FollowError::Target)? {
                Wish::GoOn => {}
                Wish::EndAt(end) => until = Some(end.unwrap_or(visible)),
            }
            lag.set_clock_offset(log.clock_offset());
            let lag = lag.measure(visible, log.primary_end(), now_micros());
            let counters = target.status();
            let per_second = rate.per_second(now, counters.changes);
            let retention = log.retention();
            control.note(retention.warning().as_slice());
            control.update(|status| {
                status.retention = retention;
                status.primary_end = log.primary_end();
                status.received = target.received();
                status.visible = visible;
                status.durable = target.durable();
                status.lag = lag;
                status.target = counters;
                status.changes_per_second = per_second;
            });
        }
        let is_visible = |&until: &Lsn| visible >= until || place.beyond && all_visible;
        let reached = is_reached(target, until.filter(is_visible));
        let reached = reached.map_err(FollowError::Target)?;
        if reached || control.is_stopping() {
            target.drain().map_err(FollowError::Target)?;
            acknowledge(log, target)?;
            return Ok(if reached {
                Ended::Reached
            } else {
                Ended::Stopped
            });
        }
    }
}

/// Where the log is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// In a transaction.
    inside: bool,
    /// At a transaction that is not to be handed over.
    beyond: bool,
    /// What it begins with, until it has something for us. There are some that have nothing but
    /// messages of others.
    begun: Option<Begin>,
}

/// How long to wait for the log when nothing comes.
fn patience<T: Target>(target: &T, place: Place, ends: bool) -> Duration {
    let received = target.received();
    if place.inside || target.visible() < received || ends {
        TICK
    } else if target.durable() < received {
        FLUSH_TICK
    } else {
        IDLE_TICK
    }
}

/// Hands over what comes until it is time to look at everything else.
fn take_in<L: Log, T: Target>(
    log: &mut L,
    target: &mut T,
    control: &Control,
    until: Option<Lsn>,
    place: &mut Place,
    lag: &mut LagMeter,
) -> Result<(), FollowError<L::Error, T::Error>> {
    let mut deadline = Instant::now() + patience(target, *place, until.is_some());
    for _ in 0..MESSAGES_PER_TICK {
        if place.beyond {
            break;
        }
        let Some(event) = log.next(deadline).map_err(FollowError::Log)? else {
            break;
        };
        deadline = deadline.min(Instant::now() + TICK);
        match &event {
            Event::Begin(begin) => {
                if until.is_some_and(|until| begin.final_lsn >= until) {
                    place.beyond = true;
                    break;
                }
                place.inside = true;
                place.begun = Some(*begin);
                lag.committed(Lsn(begin.final_lsn.0 + 1), begin.time);
                continue;
            }
            Event::Commit(_) => {
                place.inside = false;
                if place.begun.take().is_some() {
                    continue;
                }
            }
            Event::Mark { .. } | Event::Nothing => {}
            Event::Change { .. } | Event::Relation(_) | Event::Truncate { .. } => {
                if let Some(begin) = place.begun.take() {
                    target.begin(&begin).map_err(FollowError::Target)?;
                }
            }
        }
        hand_over(target, control, event).map_err(FollowError::Target)?;
    }
    Ok(())
}

fn hand_over<T: Target>(
    target: &mut T,
    control: &Control,
    event: Event<'_>,
) -> Result<(), T::Error> {
    match event {
        Event::Mark { at, content } => {
            let check = control.status().check;
            let is_doubted = check.is_some_and(|check| check.is_doubtful);
            target.mark(at, content, is_doubted)
        }
        Event::Begin(begin) => target.begin(&begin),
        Event::Change { relation, change } => target.change(relation, &change),
        Event::Commit(commit) => target.commit(&commit),
        Event::Relation(relation) => target.relation(relation),
        Event::Truncate { relations, how } => target.truncate(&relations, how),
        Event::Nothing => Ok(()),
    }
}

/// Tells the primary how far the target is.
fn acknowledge<L: Log, T: Target>(
    log: &mut L,
    target: &T,
) -> Result<(), FollowError<L::Error, T::Error>> {
    let position = Acknowledgement {
        received: target.received(),
        visible: target.visible(),
        durable: target.durable(),
    };
    log.acknowledge(position).map_err(FollowError::Log)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use super::*;
    use crate::target::TargetStatus;

    /// A log that was written down beforehand: transactions with one truncation of nothing in each,
    /// then keepalives.
    struct Scripted {
        events: VecDeque<(Lsn, Event<'static>)>,
        end: Lsn,
        read_to: Lsn,
        acknowledged: Vec<Acknowledgement>,
    }

    impl Scripted {
        fn new(transactions: u64, end: u64) -> Self {
            let mut events = VecDeque::new();
            for n in 1..=transactions {
                let lsn = Lsn(n * 10);
                events.push_back((
                    Lsn(0),
                    Event::Begin(Begin {
                        final_lsn: lsn,
                        time: 0,
                        xid: 1,
                    }),
                ));
                events.push_back((
                    Lsn(0),
                    Event::Truncate {
                        relations: Vec::new(),
                        how: Truncate::default(),
                    },
                ));
                let commit = Commit {
                    lsn,
                    end_lsn: Lsn(n * 10 + 5),
                    time: now_micros(),
                };
                events.push_back((commit.end_lsn, Event::Commit(commit)));
            }
            events.push_back((Lsn(end), Event::Nothing));
            Self {
                events,
                end: Lsn(end),
                read_to: Lsn(0),
                acknowledged: Vec::new(),
            }
        }
    }

    impl Log for Scripted {
        type Error = Infallible;

        fn next(&mut self, _: Instant) -> Result<Option<Event<'_>>, Infallible> {
            Ok(self.events.pop_front().map(|(read_to, event)| {
                self.read_to = self.read_to.max(read_to);
                event
            }))
        }

        fn acknowledge(&mut self, position: Acknowledgement) -> Result<(), Infallible> {
            if self.acknowledged.last() != Some(&position) {
                self.acknowledged.push(position);
            }
            Ok(())
        }

        fn primary_end(&self) -> Lsn {
            self.end
        }

        fn read_to(&self) -> Lsn {
            self.read_to
        }

        fn clock_offset(&self) -> i64 {
            0
        }

        fn retention(&self) -> Retention {
            Retention::default()
        }
    }

    /// Sees a transaction one tick after it was received, and flushes it two ticks later.
    #[derive(Default)]
    struct Slow {
        received: Lsn,
        stages: VecDeque<Lsn>,
        visible: Lsn,
        durable: Lsn,
        idle_at: Vec<Lsn>,
        inside: bool,
        drained: bool,
    }

    impl Target for Slow {
        type Error = std::io::Error;

        fn relation(&mut self, _: &Arc<Relation>) -> Result<(), Self::Error> {
            Ok(())
        }

        fn begin(&mut self, _: &Begin) -> Result<(), Self::Error> {
            assert!(
                !std::mem::replace(&mut self.inside, true),
                "transactions do not overlap"
            );
            Ok(())
        }

        fn change(&mut self, _: &Arc<Relation>, _: &Change<'_>) -> Result<(), Self::Error> {
            Ok(())
        }

        fn truncate(&mut self, _: &[Arc<Relation>], _: Truncate) -> Result<(), Self::Error> {
            assert!(self.inside);
            Ok(())
        }

        fn commit(&mut self, commit: &Commit) -> Result<(), Self::Error> {
            assert!(std::mem::replace(&mut self.inside, false));
            self.received = commit.end_lsn;
            Ok(())
        }

        fn tick(&mut self, _: Instant) -> Result<(), Self::Error> {
            self.stages.push_back(self.received);
            if let Some(seen) = self.stages.len().checked_sub(2) {
                self.visible = self.stages[seen];
            }
            if self.stages.len() > 3 {
                self.durable = self.stages.pop_front().expect("there are four");
            }
            Ok(())
        }

        fn idle(&mut self, read_to: Lsn, _: Instant) -> Result<(), Self::Error> {
            assert_eq!(
                self.durable, self.received,
                "idle means that nothing is under way"
            );
            self.idle_at.push(read_to);
            Ok(())
        }

        fn drain(&mut self) -> Result<(), Self::Error> {
            self.drained = true;
            (self.visible, self.durable) = (self.received, self.received);
            Ok(())
        }

        fn received(&self) -> Lsn {
            self.received
        }

        fn visible(&self) -> Lsn {
            self.visible
        }

        fn durable(&self) -> Lsn {
            self.durable
        }

        fn status(&self) -> TargetStatus {
            TargetStatus::default()
        }
    }

    #[test]
    fn nothing_is_acknowledged_before_the_target_has_it_for_good() {
        let (mut log, mut target) = (Scripted::new(300, 9_000), Slow::default());
        let control = Control::default();
        let ended = follow(&mut log, &mut target, &control, Some(Lsn(3_005)), || {
            Ok(Wish::GoOn)
        })
        .unwrap();
        assert_eq!(ended, Ended::Reached);
        for position in &log.acknowledged {
            assert!(position.durable <= position.visible && position.visible <= position.received);
        }
        assert_eq!(log.acknowledged.last().unwrap().durable, Lsn(3_005));
        assert!(target.drained);
    }

    #[test]
    fn nothing_beyond_the_end_is_handed_over() {
        let (mut log, mut target) = (Scripted::new(300, 9_000), Slow::default());
        let control = Control::default();
        // The second transaction is committed at 20, and ends at 25.
        for (until, received) in [(20, 15), (21, 25)] {
            let until = Some(Lsn(until));
            let ended = follow(&mut log, &mut target, &control, until, || Ok(Wish::GoOn));
            assert_eq!(ended.unwrap(), Ended::Reached);
            assert_eq!(target.durable(), Lsn(received));
            (log, target) = (Scripted::new(300, 9_000), Slow::default());
        }
    }

    #[test]
    fn a_transaction_that_has_nothing_for_us_is_not_handed_over() {
        let (mut log, mut target) = (Scripted::new(3, 9_000), Slow::default());
        (log.events).retain(|(_, event)| !matches!(event, Event::Truncate { .. }));
        let control = Control::default();
        let ended = follow(&mut log, &mut target, &control, Some(Lsn(9_000)), || {
            Ok(Wish::GoOn)
        });
        assert_eq!(ended.unwrap(), Ended::Reached);
        assert_eq!(target.received(), Lsn(0));
        assert_eq!(target.idle_at.last(), Some(&Lsn(9_000)));
    }

    #[test]
    fn wal_that_is_nothing_for_us_counts_as_read_once_all_else_is_durable() {
        let (mut log, mut target) = (Scripted::new(2, 9_000), Slow::default());
        let control = Control::default();
        let ended = follow(&mut log, &mut target, &control, Some(Lsn(9_000)), || {
            Ok(Wish::GoOn)
        })
        .unwrap();
        assert_eq!(ended, Ended::Reached);
        assert_eq!(target.idle_at.last(), Some(&Lsn(9_000)));
        assert_eq!(control.status().state, State::Following);
    }

    #[test]
    fn a_stop_drains_and_acknowledges() {
        let (mut log, mut target) = (Scripted::new(3, 40), Slow::default());
        let control = Control::default();
        control.stop();
        assert_eq!(
            follow(&mut log, &mut target, &control, None, || Ok(Wish::GoOn)).unwrap(),
            Ended::Stopped
        );
        assert_eq!(log.acknowledged.last().unwrap().durable, Lsn(35));
    }

    /// One that is lost when all is said.
    struct Lost(Scripted);

    impl Log for Lost {
        type Error = std::io::Error;

        fn next(&mut self, deadline: Instant) -> Result<Option<Event<'_>>, Self::Error> {
            match self.0.next(deadline) {
                Ok(Some(Event::Nothing) | None) => Err(std::io::ErrorKind::ConnectionReset.into()),
                Ok(event) => Ok(event),
            }
        }

        fn acknowledge(&mut self, _: Acknowledgement) -> Result<(), Self::Error> {
            Ok(())
        }

        fn primary_end(&self) -> Lsn {
            self.0.primary_end()
        }

        fn read_to(&self) -> Lsn {
            self.0.read_to()
        }

        fn clock_offset(&self) -> i64 {
            0
        }

        fn retention(&self) -> Retention {
            Retention::default()
        }
    }

    #[test]
    fn what_a_primary_has_sent_before_it_was_lost_is_kept() {
        for (cut, drained) in [(0, true), (1, false)] {
            let (mut log, mut target) = (Lost(Scripted::new(3, 9_000)), Slow::default());
            for _ in 0..cut {
                // Its last transaction is not complete.
                let commit = log.0.events.len() - 2;
                log.0.events.remove(commit);
            }
            let control = Control::default();
            let ended = follow(&mut log, &mut target, &control, None, || Ok(Wish::GoOn));
            assert!(matches!(ended, Err(FollowError::Log(_))));
            assert_eq!(target.drained, drained);
        }
    }
}
