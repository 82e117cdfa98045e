//! Transactions whose sessions go past the recorder: what they did is told by the service's taps,
//! what they saw by the server's extension. Here both come together on their way to the sink.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hindcast_taplog::pins::Reading;
use hindcast_trace::{Micros, Outcome, SessionId, Transaction, TransactionId};

use super::join::{Ended, Joined, Joiner, Record, Seen};
use super::late::Late;
use super::ledger::Unasked;
use super::sink::Sink;
use crate::http::Witness;

/// A transaction that waits for what the server tells of it.
pub(super) struct Waiting {
    pub transaction: Transaction,
    /// Several requests were in flight when it began.
    pub crowded: bool,
    /// Unattributed transactions of its client.
    pub unattributed: Arc<AtomicU64>,
    /// It has a `CALL` or `DO`.
    pub is_procedure: bool,
}

pub(super) struct ServerSide {
    sink: Arc<Sink>,
    joining: Mutex<Joining>,
}

struct Joining {
    /// `None`: of a transaction that is not recorded.
    joiner: Joiner<Option<Waiting>>,
    /// The transaction of each session that was joined last, if it may have committed inside.
    procedures: HashMap<SessionId, Procedure>,
    /// Sessions that the wire tells nothing of any more, which was said.
    silent: HashSet<SessionId>,
    /// What requests have read behind their answers.
    late: Late,
}

#[derive(Clone, Copy)]
struct Procedure {
    transaction: TransactionId,
    began: Micros,
    ended: Micros,
    /// It was said.
    said: bool,
}

impl ServerSide {
    pub fn new(sink: Arc<Sink>) -> Self {
        sink.ledger().tell_until(Micros::MIN);
        Self {
            sink,
            joining: Mutex::new(Joining {
                joiner: Joiner::new(),
                procedures: HashMap::new(),
                silent: HashSet::new(),
                late: Late::default(),
            }),
        }
    }

    /// The server has told which process serves a session.
    pub fn opened(&self, session: SessionId, process: u32, at: Micros) {
        self.locked().joiner.opened(session, process, at);
    }

    /// A request has read the wall clock behind its answer.
    pub fn read_late(&self, request: u64, reading: Reading) {
        self.locked().late.told(request, reading);
    }

    /// The wire has told of a transaction; `None`: one that is not recorded.
    pub fn wired(&self, session: SessionId, seen: Seen, mut waiting: Option<Waiting>) {
        let mut joining = self.locked();
        if let Some(waiting) = &mut waiting {
            joining.late.keep_with(&mut waiting.transaction);
        }
        let refused = joining.joiner.wired(session, seen, waiting);
        drop(joining);
        if let Err(Some(waiting)) = refused {
            let mut untold = Untold::default();
            self.alone(waiting, &mut untold);
            untold.tell(&self.sink);
        }
    }

    /// The wire tells nothing more of a session that goes on.
    pub fn silent(&self, session: SessionId) {
        self.locked().silent.insert(session);
    }

    pub fn closed(&self, session: SessionId, at: Micros) {
        self.locked().joiner.closed(session, at);
    }

    /// The wire has told everything that was before this moment.
    pub fn wire_until(&self, moment: Micros) {
        let mut joining = self.locked();
        joining.joiner.wire_until(moment);
        self.settle(joining);
    }

    /// The server has told these, and with them all that ended before a moment.
    pub fn told(&self, records: Vec<Record>, until: Micros, slack: Micros) {
        let mut joining = self.locked();
        joining.joiner.server_until(until, slack);
        for record in records {
            joining.joiner.record(record);
        }
        self.settle(joining);
    }

    /// Processes of sessions that are open.
    pub fn processes(&self) -> Vec<u32> {
        self.locked().joiner.processes().collect()
    }

    fn settle(&self, mut joining: MutexGuard<'_, Joining>) {
        let (mut untold, mut unwired) = (Untold::default(), Unwired::default());
        let all = joining.joiner.take();
        let told = joining.joiner.told_until();
        for joined in all {
            match joined {
                Joined::Whole(waiting, record) => {
                    self.own(&record);
                    if let Some(waiting) = waiting {
                        let session = waiting.transaction.session;
                        match procedure(&waiting) {
                            Some(one) => joining.procedures.insert(session, one),
                            None => joining.procedures.remove(&session),
                        };
                        self.whole(waiting, record);
                    }
                }
                Joined::Alone(None) => {}
                Joined::Alone(Some(waiting)) => self.alone(waiting, &mut untold),
                Joined::Extra(session, record) => {
                    if !joining.silent.contains(&session) {
                        unwired.add(session, &record);
                    }
                    let procedure = joining.procedures.get_mut(&session);
                    self.extra(session, &record, procedure);
                }
            }
        }
        untold.tell(&self.sink);
        unwired.tell(&self.sink);
        // Only when the ids that were told are known.
        self.sink.ledger().tell_until(told);
    }

    fn own(&self, record: &Record) {
        let ids = record.xid.iter().chain(&record.subxids);
        let ids = ids.chain(&record.aborted_subxids);
        ids.for_each(|xid| self.sink.ledger().own(xid.0));
    }

    fn whole(&self, mut waiting: Waiting, record: Record) {
        let transaction = &mut waiting.transaction;
        if record.left_out > 0 {
            let id = transaction.id;
            let reason = format!(
                "the extension `hindcast` in the database had no room for all that transaction {id} did, or was \
                 switched off meanwhile (hindcast.enabled)"
            );
            self.sink
                .unobserved(transaction.session, transaction.began, reason);
        }
        transaction.isolation = record.isolation.unwrap_or(transaction.isolation);
        transaction.now = record.snapshot.is_some().then_some(record.now);
        transaction.snapshot = record.snapshot;
        transaction.statement_snapshots = record.statement_snapshots;
        transaction.rechecked = record.rechecked;
        transaction.drawn = record.drawn.into_iter().map(|draw| draw.drawn).collect();
        transaction.commit_lsn = record.commit_lsn;
        transaction.xid = record.xid;
        transaction.subxids = record.subxids;
        if transaction.outcome == Outcome::Unknown {
            transaction.outcome = match record.ended {
                Ended::Committed => Outcome::Committed,
                Ended::Aborted => Outcome::Aborted,
                Ended::Prepared => Outcome::Unknown,
            };
        }
        self.keep(waiting);
    }

    fn keep(&self, waiting: Waiting) {
        let Waiting {
            transaction,
            crowded,
            unattributed,
            ..
        } = waiting;
        self.sink
            .counters()
            .transaction(&transaction, crowded, &unattributed);
        self.sink.transaction(transaction);
    }

    /// The server has told nothing of it.
    fn alone(&self, waiting: Waiting, untold: &mut Untold) {
        untold.add(&waiting.transaction);
        self.keep(waiting);
    }

    /// The wire tells nothing of it. The server has transactions of its own in a session; a
    /// procedure that commits inside has others than its first.
    fn extra(&self, session: SessionId, record: &Record, procedure: Option<&mut Procedure>) {
        self.own(record);
        let Some(procedure) = procedure.filter(|one| record.ended_at <= one.ended) else {
            return;
        };
        if record.xid.is_some() && !std::mem::replace(&mut procedure.said, true) {
            let id = procedure.transaction;
            let reason = format!(
                "transaction {id} called a procedure that committed inside: what its inner transactions saw and wrote is \
                 not recorded one by one, so it cannot be replayed. To record it, let the service commit instead: one \
                 CALL per transaction, without COMMIT in the procedure"
            );
            self.sink
                .commits_inside(session, procedure.began, procedure.ended, reason);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Joining> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Transactions that statements of our sessions ran in, and of which the wire has told nothing.
#[derive(Default)]
struct Unwired {
    count: u64,
    span: Option<(Micros, Micros)>,
    session: Option<SessionId>,
}

impl Unwired {
    fn add(&mut self, session: SessionId, record: &Record) {
        // What reads leaves nothing behind that a replay would miss.
        if record.statements == 0 || record.xid.is_none() || record.ended == Ended::Aborted {
            return;
        }
        let (from, to) = self.span.unwrap_or((record.started, record.ended_at));
        self.span = Some((from.min(record.started), to.max(record.ended_at)));
        self.session = Some(self.session.map_or(session, |first| first.min(session)));
        self.count += 1;
    }

    fn tell(self, sink: &Sink) {
        let (Some((from, to)), Some(session)) = (self.span, self.session) else {
            return;
        };
        let several = match self.count {
            1 => "a transaction".to_owned(),
            count => format!("{count} transactions"),
        };
        let reason = format!(
            "the server tells of {several} in session {session} or others that the service's process did not tell of"
        );
        sink.missed(from, to, &reason);
    }
}

/// Transactions of which the server has told nothing: one gap, however many there are.
#[derive(Default)]
struct Untold {
    count: u64,
    span: Option<(Micros, Micros)>,
    first: Option<(TransactionId, SessionId)>,
}

/// Whose ids are not known because the extension has no record of it.
const UNTOLD: &str = "a transaction that the extension told nothing of";

impl Untold {
    fn add(&mut self, transaction: &Transaction) {
        let (from, to) = self.span.unwrap_or((transaction.began, transaction.ended));
        self.span = Some((from.min(transaction.began), to.max(transaction.ended)));
        // They come in no order, and a recording that is converted again is to be the same.
        let this = (transaction.id, transaction.session);
        self.first = Some(self.first.map_or(this, |first| first.min(this)));
        self.count += 1;
    }

    fn tell(self, sink: &Sink) {
        let (Some((from, to)), Some((first, session))) = (self.span, self.first) else {
            return;
        };
        let more = match self.count - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let reason = format!(
            "the extension `hindcast` in the database has no record of transaction {first}{more}, so what they saw is \
             not known. If `hindcast extension check` says that records were lost, raise hindcast.ring_size"
        );
        sink.missed(from, to, &reason);
        // What was committed then may be theirs.
        sink.ledger().unasked(Unasked {
            session,
            backend: 0,
            what: UNTOLD,
            began: from,
            ended: to,
            ids: None,
        });
    }
}

fn procedure(waiting: &Waiting) -> Option<Procedure> {
    let transaction = &waiting.transaction;
    waiting.is_procedure.then_some(Procedure {
        transaction: transaction.id,
        began: transaction.began,
        ended: transaction.ended,
        said: false,
    })
}
