//! Brings together what the wire and the server tell of the same transactions.
//!
//! ```text
//!   the session's bytes:    t1        t2                  t3      what was asked and answered
//!                           │         │                   │
//!   the server's records:   1    2    3    4              5       ids, snapshots, the end
//!                                ▲         ▲
//!                                statements that were only prepared, a catch-up of the server's
//! ```
//!
//! Both are told in the order in which they were in the session, and neither tells all: the server
//! has transactions that no statement of the client's ran in, and records can be lost. So a record
//! is a transaction's only if it ended in its time, in the same way, after as many statements;
//! nothing but records without statements may be passed over for it. What does not join is said.
//!
//! It has no clock: it is told up to when either side has told everything.

mod numbers;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hindcast_trace::{
    Drawn, Isolation, Micros, Outcome, SessionId, Snapshot, StatementSnapshot, Xid,
};
use hindcast_wire::sql::Fingerprint;
use hindcast_wire::{Failure, ObservedTransaction};
use numbers::Numbers;

/// Records of a process that no session of ours turned out to be are forgotten after so long, in
/// microseconds of the recording.
const STRANGER: Micros = 5_000_000;

/// For so long it is waited until the service reads that a transaction has ended, in microseconds
/// of the recording: a loop may be busy with something else. What nobody sent, as the inner
/// transactions of a procedure, is not waited for any longer.
const UNREAD: Micros = 60_000_000;

/// How long the server may take to notice that a session is closed, in microseconds.
const PARTING: Micros = 5_000_000;

/// As the observer calls it.
const FUNCTION_CALL: &str = "FUNCTION CALL";

/// What the wire tells of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub began: Micros,
    pub ended: Micros,
    /// Statements that were answered without an error, and all that were answered.
    pub completed: u32,
    pub statements: u32,
    pub outcome: Outcome,
    /// Statements that were answered with an error.
    pub failures: Vec<Failure>,
    /// The statements that are calls of functions by the protocol.
    pub calls: Vec<u32>,
}

/// What the server tells of a transaction. Times are by the clock of the recording.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub process: u32,
    pub backend_start: Micros,
    pub ordinal: u64,
    pub xid: Option<Xid>,
    pub subxids: Vec<Xid>,
    pub aborted_subxids: Vec<Xid>,
    pub isolation: Option<Isolation>,
    /// Its `now()`, by the server's clock: a result may show it.
    pub now: Micros,
    pub started: Micros,
    pub statements: u32,
    pub snapshot: Option<Snapshot>,
    /// Under READ COMMITTED, what each statement saw; see
    /// [`hindcast_trace::Transaction::statement_snapshots`].
    pub statement_snapshots: Vec<StatementSnapshot>,
    pub rechecked: Vec<u32>,
    pub drawn: Vec<Draw>,
    pub commit_lsn: Option<u64>,
    pub ended: Ended,
    pub ended_at: Micros,
    /// Snapshots and the like that are missing in it.
    pub left_out: u32,
}

/// What the server tells of a value that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Draw {
    pub drawn: Drawn,
    /// The client rolled back to a savepoint before it.
    pub undone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Committed,
    Aborted,
    Prepared,
}

/// What came of it.
#[derive(Debug, PartialEq)]
pub(super) enum Joined<T> {
    Whole(T, Record),
    /// The server told nothing of it.
    Alone(T),
    /// Nothing that a client sent was in it.
    Extra(SessionId, Record),
}

#[derive(Debug)]
pub(super) struct Joiner<T> {
    sessions: HashMap<SessionId, Session<T>>,
    /// Records of processes that are no session of ours, as far as is known.
    unclaimed: VecDeque<Record>,
    /// Up to when either side has told everything.
    wire_until: Micros,
    server_until: Micros,
    /// How well the two clocks agree.
    slack: Micros,
}

#[derive(Debug)]
struct Session<T> {
    process: u32,
    opened: Micros,
    backend_start: Option<Micros>,
    wired: VecDeque<(Seen, T)>,
    records: VecDeque<Record>,
    closed: Option<Micros>,
}

impl<T> Joiner<T> {
    pub fn new() -> Self {
        Self {
            sessions: HashMap::new(),
            unclaimed: VecDeque::new(),
            wire_until: Micros::MIN,
            server_until: Micros::MIN,
            slack: 0,
        }
    }

    /// The server has told which process serves a session.
    pub fn opened(&mut self, session: SessionId, process: u32, at: Micros) {
        let new = Session {
            process,
            opened: at,
            backend_start: None,
            wired: VecDeque::new(),
            records: VecDeque::new(),
            closed: None,
        };
        self.sessions.insert(session, new);
        for record in std::mem::take(&mut self.unclaimed) {
            self.record(record);
        }
    }

    /// A transaction has ended on the wire.
    pub fn wired(&mut self, session: SessionId, seen: Seen, what: T) -> Result<(), T> {
        match self.sessions.get_mut(&session) {
            Some(known) => {
                known.wired.push_back((seen, what));
                Ok(())
            }
            None => Err(what),
        }
    }

    pub fn closed(&mut self, session: SessionId, at: Micros) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.closed = Some(at);
        }
    }

    /// The server has told a record; those of a process come in the order of their ordinals.
    pub fn record(&mut self, record: Record) {
        let slack = self.slack;
        let is_its = |session: &Session<T>| {
            session.process == record.process
                && match session.backend_start {
                    Some(start) => start == record.backend_start,
                    None => session.opened + slack >= record.backend_start,
                }
        };
        // A number that was given to several processes, one after the other: the first of them.
        let session = self.sessions.values_mut().filter(|one| is_its(one));
        match session.min_by_key(|one| (one.backend_start.is_none(), one.opened)) {
            Some(session) => {
                session.backend_start = Some(record.backend_start);
                session.records.push_back(record);
            }
            None => self.unclaimed.push_back(record),
        }
    }

    /// Everything has been told that was on the wire before this moment.
    pub fn wire_until(&mut self, moment: Micros) {
        self.wire_until = self.wire_until.max(moment);
        let old = self.wire_until.saturating_sub(STRANGER);
        let strange = |record: &Record| record.ended_at < old;
        while self.unclaimed.front().is_some_and(strange) {
            self.unclaimed.pop_front();
        }
    }

    /// Every record has been told of what ended before this moment. `slack`: how well the clocks
    /// agree.
    pub fn server_until(&mut self, moment: Micros, slack: Micros) {
        self.server_until = self.server_until.max(moment);
        self.slack = slack;
    }

    /// What ended before has been joined: of a transaction that has an id, the service must have
    /// read how it ended.
    pub fn told_until(&self) -> Micros {
        let old = self.wire_until.saturating_sub(UNREAD);
        let is_unread = |record: &&Record| record.xid.is_some() && record.ended_at > old;
        let sessions = self.sessions.values();
        let unread = sessions.flat_map(|session| session.records.iter().filter(is_unread));
        let ended = unread.map(|record| record.ended_at.saturating_sub(self.slack));
        let told = self.wire_until.min(self.server_until);
        ended.min().map_or(told, |first| first.min(told))
    }

    /// Processes of sessions that are open.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.sessions.values().map(|session| session.process)
    }

    /// Takes what can be told by now, the transactions of each session in their order.
    pub fn take(&mut self) -> Vec<Joined<T>> {
        let mut joined = Vec::new();
        let (wire, server, slack) = (self.wire_until, self.server_until, self.slack);
        self.sessions.retain(|&id, session| {
            session.join(id, server, slack, &mut joined);
            let over = |at: Micros| at.saturating_add(slack) < wire.min(server);
            if !session.wired.is_empty() || !session.closed.is_some_and(over) {
                return true;
            }
            let extras = session.records.drain(..);
            joined.extend(extras.map(|record| Joined::Extra(id, record)));
            false
        });
        joined
    }
}

impl<T> Session<T> {
    fn join(
        &mut self,
        id: SessionId,
        server_until: Micros,
        slack: Micros,
        joined: &mut Vec<Joined<T>>,
    ) {
        while let Some((seen, _)) = self.wired.front() {
            // A client that closes its connection in the middle of a transaction does not wait for
            // the server, which ends it when it comes to read on.
            let is_cut_off = self.closed.is_some() && self.wired.len() == 1;
            let late = match is_cut_off && seen.outcome == Outcome::Aborted {
                true => slack.saturating_add(PARTING),
                false => slack,
            };
            let all_told = seen.ended.saturating_add(late) < server_until;
            let at = self.position(|record| seen.fits(record, slack, late));
            // A count that differs is believed only if nothing better can come.
            let at = at.or_else(|| {
                let position = || self.position(|record| seen.may_be(record, slack, late));
                all_told.then(position).flatten()
            });
            if at.is_none() && !all_told {
                return;
            }
            let Some((seen, what)) = self.wired.pop_front() else {
                return;
            };
            let Some(at) = at else {
                joined.push(Joined::Alone(what));
                continue;
            };
            let passed = self.records.drain(..at);
            joined.extend(passed.map(|record| Joined::Extra(id, record)));
            if let Some(mut record) = self.records.pop_front() {
                match seen.numbers(&record) {
                    Some(numbers) => record.renumber(&numbers),
                    None => record.forget_statements(),
                }
                joined.push(Joined::Whole(what, record));
            }
        }
    }

    /// The first record that is the one, if only such are before it as no statement ran in, or as
    /// ended before.
    fn position(&self, is_it: impl Fn(&Record) -> bool) -> Option<usize> {
        let (seen, _) = self.wired.front()?;
        for (at, record) in self.records.iter().enumerate() {
            if is_it(record) {
                return Some(at);
            }
            if record.statements > 0 && record.ended_at >= seen.began {
                return None;
            }
        }
        None
    }
}

impl Record {
    fn renumber(&mut self, numbers: &Numbers) {
        let Numbers::Of { of, end } = numbers else {
            return;
        };
        let number = |at: u32| of.get(at as usize).copied().unwrap_or(*end);
        for one in &mut self.statement_snapshots {
            one.statement = number(one.statement);
        }
        for statement in &mut self.rechecked {
            *statement = number(*statement);
        }
        for draw in &mut self.drawn {
            draw.drawn.statement = draw.drawn.statement.map(number);
        }
    }

    /// Which of its statements saw and drew what is not known.
    fn forget_statements(&mut self) {
        self.statement_snapshots.clear();
        self.rechecked.clear();
        self.drawn.retain(|draw| !draw.undone);
        let drawn = self.drawn.iter_mut();
        drawn.for_each(|draw| draw.drawn.statement = None);
        self.commit_lsn = None;
    }
}

impl Seen {
    pub fn of(observed: &ObservedTransaction) -> Self {
        let is_call = |statement: &Arc<Fingerprint>| statement.text == FUNCTION_CALL;
        let numbered = observed.statements.iter().zip(0..);
        let calls = numbered.filter_map(|(one, at)| is_call(one).then_some(at));
        Self {
            began: observed.began,
            ended: observed.ended,
            completed: observed.completed,
            statements: observed.statement_count,
            outcome: observed.outcome.clone(),
            failures: observed.failures.clone(),
            calls: calls.collect(),
        }
    }

    fn fits(&self, record: &Record, slack: Micros, late: Micros) -> bool {
        let counted = |calls_count: bool| {
            let calls = if calls_count {
                0
            } else {
                self.calls.len() as u32
            };
            let completed = self.completed.saturating_sub(calls);
            let statements = self.statements.saturating_sub(calls);
            match self.completed == self.statements {
                true => record.statements == completed,
                // What failed was counted if it got as far as to run, and the end of a block that
                // had failed was not.
                false => {
                    let fewest = completed.saturating_sub(1);
                    (fewest..=statements).contains(&record.statements)
                }
            }
        };
        self.ways_to_count().any(counted) && self.may_be(record, slack, late)
    }

    /// `late`: how much later than it was over on the wire the server may have ended it.
    fn may_be(&self, record: &Record, slack: Micros, late: Micros) -> bool {
        let from = self.began.saturating_sub(slack);
        let to = self.ended.saturating_add(late);
        let ended = match (&self.outcome, record.ended) {
            (Outcome::Unknown, _) => true,
            (Outcome::Committed, ended) => ended == Ended::Committed,
            (Outcome::Aborted, ended) => ended == Ended::Aborted,
            (Outcome::Prepared { .. }, ended) => ended == Ended::Prepared,
        };
        let ran = record.statements > 0 || self.completed == 0;
        ended && ran && (from..=to).contains(&record.ended_at)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use hindcast_trace::Id;
    use proptest::prelude::*;

    use super::*;

    const SESSION: SessionId = Id(1);
    const SLACK: Micros = 100;

    pub(super) fn seen(began: Micros, completed: u32, outcome: Outcome) -> Seen {
        Seen {
            began,
            ended: began + 500,
            completed,
            statements: completed,
            outcome,
            failures: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub(super) fn record(ordinal: u64, ended_at: Micros, statements: u32, ended: Ended) -> Record {
        Record {
            process: 77,
            backend_start: 10,
            ordinal,
            xid: None,
            subxids: Vec::new(),
            aborted_subxids: Vec::new(),
            isolation: None,
            now: ended_at,
            started: ended_at,
            statements,
            snapshot: None,
            statement_snapshots: Vec::new(),
            rechecked: Vec::new(),
            drawn: Vec::new(),
            commit_lsn: None,
            ended,
            ended_at,
            left_out: 0,
        }
    }

    fn joiner() -> Joiner<u32> {
        let mut joiner = Joiner::new();
        joiner.server_until(0, SLACK);
        joiner.opened(SESSION, 77, 20);
        joiner
    }

    /// What, and which ordinal; extras have no what.
    fn brief(joined: Vec<Joined<u32>>) -> Vec<(Option<u32>, Option<u64>)> {
        let brief = |one| match one {
            Joined::Whole(what, record) => (Some(what), Some(record.ordinal)),
            Joined::Alone(what) => (Some(what), None),
            Joined::Extra(_, record) => (None, Some(record.ordinal)),
        };
        joined.into_iter().map(brief).collect()
    }

    #[test]
    fn whichever_comes_first_waits_for_the_other() {
        let mut joiner = joiner();
        joiner
            .wired(SESSION, seen(1000, 3, Outcome::Committed), 1)
            .unwrap();
        assert_eq!(brief(joiner.take()), []);
        joiner.record(record(1, 1400, 3, Ended::Committed));
        joiner.record(record(2, 2400, 1, Ended::Committed));
        assert_eq!(brief(joiner.take()), [(Some(1), Some(1))]);
        joiner
            .wired(SESSION, seen(2000, 1, Outcome::Committed), 2)
            .unwrap();
        assert_eq!(brief(joiner.take()), [(Some(2), Some(2))]);
    }

    #[test]
    fn what_ran_nothing_is_passed_over_and_said() {
        let mut joiner = joiner();
        joiner.record(record(1, 1100, 0, Ended::Committed));
        joiner.record(record(2, 1400, 2, Ended::Committed));
        joiner
            .wired(SESSION, seen(1000, 2, Outcome::Committed), 1)
            .unwrap();
        assert_eq!(brief(joiner.take()), [(None, Some(1)), (Some(1), Some(2))]);
        joiner.record(record(3, 5000, 0, Ended::Committed));
        joiner.closed(SESSION, 5000);
        joiner.wire_until(9000);
        joiner.server_until(9000, SLACK);
        assert_eq!(brief(joiner.take()), [(None, Some(3))]);
    }

    #[test]
    fn a_transaction_whose_end_the_service_has_not_read_is_not_told() {
        let mut joiner = joiner();
        let with_id = |ordinal, ended_at| Record {
            xid: Some(Xid(700 + ordinal)),
            ..record(ordinal, ended_at, 1, Ended::Committed)
        };
        joiner.record(with_id(1, 2000));
        joiner.record(record(2, 2500, 1, Ended::Committed));
        joiner.server_until(1_000_000, SLACK);
        joiner.wire_until(900_000);
        assert_eq!(brief(joiner.take()), []);
        assert_eq!(joiner.told_until(), 2000 - SLACK);
        let late = Seen {
            ended: 950_000,
            ..seen(1900, 1, Outcome::Committed)
        };
        joiner.wired(SESSION, late, 1).unwrap();
        assert_eq!(brief(joiner.take()), [(Some(1), Some(1))]);
        assert_eq!(joiner.told_until(), 900_000);
        // Nobody reads of it: it holds nothing up for ever.
        joiner.record(with_id(3, 3000));
        assert_eq!(joiner.told_until(), 3000 - SLACK);
        joiner.server_until(UNREAD + 9000, SLACK);
        joiner.wire_until(UNREAD + 8000);
        assert_eq!(joiner.told_until(), UNREAD + 8000);
    }

    #[test]
    fn a_lost_record_moves_no_other() {
        let mut joiner = joiner();
        for (what, began) in [(1, 1000), (2, 2000), (3, 3000)] {
            joiner
                .wired(SESSION, seen(began, 1, Outcome::Committed), what)
                .unwrap();
        }
        joiner.record(record(1, 1400, 1, Ended::Committed));
        joiner.record(record(3, 3400, 1, Ended::Committed));
        assert_eq!(brief(joiner.take()), [(Some(1), Some(1))]);
        joiner.server_until(3450, SLACK);
        let expected = [(Some(2), None), (Some(3), Some(3))];
        assert_eq!(brief(joiner.take()), expected);
    }

    #[test]
    fn what_ended_otherwise_is_another() {
        let mut joiner = joiner();
        joiner
            .wired(SESSION, seen(1000, 1, Outcome::Committed), 1)
            .unwrap();
        joiner.record(record(1, 1400, 1, Ended::Aborted));
        joiner.server_until(10_000, SLACK);
        assert_eq!(brief(joiner.take()), [(Some(1), None)]);
    }

    /// A client closes its connection with a transaction open.
    #[test]
    fn what_the_end_of_its_session_ends_is_ended_late_by_the_server() {
        let mut joiner = joiner();
        joiner.closed(SESSION, 1500);
        joiner
            .wired(SESSION, seen(1000, 1, Outcome::Aborted), 1)
            .unwrap();
        joiner.wire_until(100_000);
        joiner.server_until(50_000, SLACK);
        assert_eq!(brief(joiner.take()), []);
        joiner.record(record(1, 60_000, 1, Ended::Aborted));
        joiner.server_until(100_000, SLACK);
        assert_eq!(brief(joiner.take()), [(Some(1), Some(1))]);
    }

    #[test]
    fn a_count_that_differs_is_believed_once_all_is_told() {
        let mut joiner = joiner();
        joiner
            .wired(SESSION, seen(1000, 1, Outcome::Committed), 1)
            .unwrap();
        joiner.record(record(1, 1400, 2, Ended::Committed));
        assert_eq!(brief(joiner.take()), []);
        joiner.server_until(10_000, SLACK);
        assert_eq!(brief(joiner.take()), [(Some(1), Some(1))]);
    }

    #[test]
    fn a_process_number_that_is_used_again_is_another_session() {
        let mut joiner = joiner();
        joiner.record(record(1, 1400, 1, Ended::Committed));
        joiner.closed(SESSION, 2000);
        let second = Id(2);
        let again = Record {
            backend_start: 3000,
            ..record(1, 3400, 1, Ended::Committed)
        };
        joiner.record(again);
        joiner.opened(second, 77, 3010);
        joiner
            .wired(SESSION, seen(1000, 1, Outcome::Committed), 1)
            .unwrap();
        joiner
            .wired(second, seen(3000, 1, Outcome::Committed), 2)
            .unwrap();
        let mut joined = joiner.take();
        joined.sort_by_key(|one| match one {
            Joined::Whole(what, record) => (*what, record.backend_start),
            _ => panic!("{one:?}"),
        });
        assert_eq!(brief(joined), [(Some(1), Some(1)), (Some(2), Some(1))]);
    }

    #[test]
    fn strangers_are_forgotten_and_unknown_sessions_refused() {
        let mut joiner = joiner();
        joiner.record(Record {
            process: 5,
            ..record(1, 1400, 1, Ended::Committed)
        });
        assert_eq!(joiner.unclaimed.len(), 1);
        joiner.wire_until(1400 + STRANGER + 1);
        assert_eq!(joiner.unclaimed.len(), 0);
        assert_eq!(
            joiner.wired(Id(9), seen(0, 1, Outcome::Committed), 3),
            Err(3)
        );
    }

    proptest! {
        /// Transactions one right behind the other, with records between them that no statement
        /// ran in, some lost, told in pieces: each is joined with its own or with none.
        #[test]
        fn no_transaction_gets_anothers_record(
            all in prop::collection::vec((0..3u32, any::<bool>(), 0..2u32, 0..10u8), 1..60),
            pieces in prop::collection::vec(any::<bool>(), 120),
        ) {
            let mut joiner = joiner();
            let (mut wire, mut server) = (VecDeque::new(), VecDeque::new());
            let (mut at, mut ordinal, mut lost) = (1000, 0, Vec::new());
            for (what, &(count, commits, extras, loses)) in all.iter().enumerate() {
                let what = what as u32;
                for _ in 0..extras {
                    (at, ordinal) = (at + 10, ordinal + 1);
                    server.push_back(record(ordinal, at, 0, Ended::Committed));
                }
                let (outcome, ended) = match commits {
                    true => (Outcome::Committed, Ended::Committed),
                    false => (Outcome::Aborted, Ended::Aborted),
                };
                ordinal += 1;
                // Longer apart than clocks disagree: that is the promise.
                at += 2 * SLACK;
                wire.push_back((Seen { ended: at + 20, ..seen(at, count + 1, outcome) }, what));
                match loses {
                    0 => lost.push(what),
                    _ => {
                        let xid = Some(Xid(u64::from(what)));
                        server.push_back(Record { xid, ..record(ordinal, at + 10, count + 1, ended) });
                    }
                }
                at += 20;
            }
            let mut joined = Vec::new();
            for wires in pieces {
                match wires {
                    true => if let Some((seen, what)) = wire.pop_front() { joiner.wired(SESSION, seen, what).unwrap() },
                    false => if let Some(one) = server.pop_front() {
                        joiner.server_until(one.ended_at, SLACK);
                        joiner.record(one);
                    },
                }
                joined.extend(joiner.take());
            }
            wire.into_iter().for_each(|(seen, what)| joiner.wired(SESSION, seen, what).unwrap());
            server.into_iter().for_each(|one| joiner.record(one));
            joiner.server_until(at + 10 * SLACK, SLACK);
            joined.extend(joiner.take());
            let mut seen = Vec::new();
            for one in joined {
                match one {
                    Joined::Whole(what, record) => {
                        prop_assert_eq!(record.xid, Some(Xid(u64::from(what))));
                        seen.push(what);
                    }
                    Joined::Alone(what) => {
                        prop_assert!(lost.contains(&what));
                        seen.push(what);
                    }
                    Joined::Extra(_, record) => prop_assert_eq!(record.statements, 0),
                }
            }
            prop_assert_eq!(seen, (0..all.len() as u32).collect::<Vec<_>>());
        }
    }
}
