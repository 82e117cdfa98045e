//! One transaction, put together from its answers.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hindcast_model::{
    Attribution, DrawnAt, DrawnUuid, Isolation, Lock, Micros, Outcome, RequestId, SequenceValue,
    Snapshot, Xid,
};

use super::ask::Told;
use super::kept::Kept;
use super::note::{Known, Note, Work};
use super::observed::{Context, Cut, Failure, ObservedTransaction};
use crate::digest::{ResultDigest, ShapeHasher};
use crate::limits;
use crate::message::frontend::{self, Target};
use crate::row_order::OrderKeeper;
use crate::sql::{ADVISORY, ADVISORY_REFUSED, Fingerprint, Kind, Script, Statement};
use crate::values::values_of;

/// How a transaction ended.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub outcome: Outcome,
    pub at: Micros,
    /// Where in the client's stream that begins which comes after it, or the `Query` in the middle
    /// of which it ended.
    pub client_to: u64,
    pub tail: Option<Tail<'a>>,
}

/// The `Query` in the middle of which a transaction ended.
#[derive(Debug)]
pub(super) struct Tail<'a> {
    pub text: Option<&'a [u8]>,
    pub script: &'a Script,
    /// Index of the transaction's last statement.
    pub last: usize,
}

/// A transaction that has begun and whose end has not been told yet.
#[derive(Debug)]
pub(super) struct Open {
    began: Micros,
    alone: Option<RequestId>,
    turn: Option<RequestId>,
    comment: Option<RequestId>,
    application: Option<RequestId>,
    pub explicit: bool,
    /// Its last statement failed. An implicit transaction will be rolled back.
    pub failed: bool,
    /// How it ended, if it did.
    pub ended: Option<Outcome>,
    isolation: Option<Isolation>,
    snapshot: Option<Snapshot>,
    now: Option<Micros>,
    read_only: bool,
    xid: Option<Xid>,
    xid_answered: bool,
    subxids: Vec<Xid>,
    /// A statement took a snapshot or may have written.
    active: bool,
    took_snapshot: bool,
    may_have_written: bool,
    changes_session: bool,
    /// Its beginning was told.
    announced: bool,
    /// It is told even if it is not worth it.
    pub tells_all: bool,
    /// What its client sent is told up to this length even if it belongs to a request.
    pub values_max: u64,
    statements: Vec<Arc<Fingerprint>>,
    statement_count: u32,
    completed: u32,
    failures: Vec<Failure>,
    shape: ShapeHasher,
    pub digest: ResultDigest,
    row_order: OrderKeeper,
    locks: Vec<Lock>,
    sequence_values: Vec<SequenceValue>,
    drawn_uuids: Vec<DrawnUuid>,
    cut: Cut,
    /// Where its bytes begin in what was sent to the client, and in what came from it.
    server_from: u64,
    client_from: u64,
    /// What the client sent before `client_from` that belongs to it.
    client_prefix: BytesMut,
    /// It began with this statement of the `Query` that is being answered; an earlier transaction
    /// ended in the same `Query`.
    pub head: Option<usize>,
    /// Statements that it runs and that were prepared before it began.
    uses: Vec<Arc<Known>>,
    /// With which values the statement ran that took the snapshot.
    values: Option<u64>,
}

impl Open {
    pub fn new(
        began: Micros,
        server_from: u64,
        client_from: u64,
        application: Option<RequestId>,
    ) -> Box<Self> {
        Box::new(Self {
            began,
            alone: None,
            turn: None,
            comment: None,
            application,
            explicit: false,
            failed: false,
            ended: None,
            isolation: None,
            snapshot: None,
            now: None,
            read_only: false,
            xid: None,
            xid_answered: false,
            subxids: Vec::new(),
            active: false,
            took_snapshot: false,
            may_have_written: false,
            changes_session: false,
            announced: false,
            tells_all: false,
            values_max: 0,
            statements: Vec::new(),
            statement_count: 0,
            completed: 0,
            failures: Vec::new(),
            shape: ShapeHasher::new(),
            digest: ResultDigest::new(),
            row_order: OrderKeeper::default(),
            locks: Vec::new(),
            sequence_values: Vec::new(),
            drawn_uuids: Vec::new(),
            cut: Cut::default(),
            server_from,
            client_from,
            client_prefix: BytesMut::new(),
            head: None,
            uses: Vec::new(),
            values: None,
        })
    }

    /// A statement of it is being answered.
    pub fn statement(
        &mut self,
        statement: &Statement,
        request: Option<RequestId>,
        prepared: Option<&Arc<Known>>,
        note: &Note,
    ) {
        if self.statements.len() < limits::STATEMENTS_MAX {
            self.statements.push(Arc::clone(&statement.fingerprint));
        } else {
            self.cut.statements = true;
        }
        self.statement_count += 1;
        self.shape.add(&statement.fingerprint);
        self.comment = self.comment.or(request);
        self.turn = self.turn.or(note.turn);
        if statement.takes_snapshot && !self.took_snapshot || !self.active {
            self.alone = note.alone;
        }
        if statement.takes_snapshot && !self.took_snapshot {
            self.values = match note.work {
                Work::Execute { values, .. } => values,
                _ => values_of(statement, None),
            };
        }
        self.took_snapshot |= statement.takes_snapshot;
        self.may_have_written |= statement.kind.may_write();
        // DISCARD may drop temporary tables, and yet only touches the session.
        let writes = statement.kind.may_write() && !matches!(statement.kind, Kind::Discard { .. });
        self.active |= statement.takes_snapshot || writes || statement.kind.settles_prepared();
        self.changes_session |= statement.kind.changes_session();
        if let Some(prepared) = prepared
            && prepared.data.start < self.client_from
            && !self.uses.iter().any(|used| Arc::ptr_eq(used, prepared))
        {
            if self.uses.len() < limits::STATEMENTS_MAX {
                self.uses.push(Arc::clone(prepared));
            } else {
                self.cut.client_bytes = true;
            }
        }
    }

    /// A row of the statement that is being answered.
    pub fn row(&mut self, ordered: bool, hash: u64) {
        self.digest.row_hash(ordered, hash);
        self.row_order
            .row(self.statement_count.saturating_sub(1), hash);
    }

    /// Whether it is worth telling about and its beginning has not been told yet; then this counts
    /// as telling.
    pub fn announce(&mut self) -> bool {
        let worth = self.tells_all || self.is_worth_telling();
        worth && !std::mem::replace(&mut self.announced, true)
    }

    fn is_worth_telling(&self) -> bool {
        self.active || self.changes_session
    }

    pub fn began(&self) -> Micros {
        self.began
    }

    /// The last statement ended well. `refused`: it tried to take an advisory lock, in vain.
    /// `given_back`: its place among the steps that lock, which it had when it was sent.
    pub fn completed(
        &mut self,
        statement: &Statement,
        refused: bool,
        given_back: Option<u64>,
        cx: &Context<'_>,
    ) {
        self.completed += 1;
        for &target in &statement.locks {
            if self.locks.len() >= limits::NOTED_MAX {
                self.cut.notes = true;
                return;
            }
            self.locks.push(Lock {
                statement: self.statement_count - 1,
                target: match target {
                    ADVISORY if refused => ADVISORY_REFUSED,
                    _ => target,
                },
                completed: given_back.unwrap_or_else(cx.lock_order),
            });
        }
    }

    /// The transaction failed, and if `within_statement` its last statement did.
    pub fn failed(&mut self, sqlstate: &[u8], within_statement: bool) {
        self.digest.error(sqlstate);
        self.failed = true;
        if within_statement && self.failures.len() < limits::NOTED_MAX {
            self.failures.push(Failure {
                statement: self.statement_count - 1,
                sqlstate: sqlstate.try_into().unwrap_or_default(),
            });
        }
    }

    pub fn sequence_value(&mut self, sequence: u32, value: i64) {
        if self.sequence_values.len() < limits::NOTED_MAX {
            self.sequence_values.push(SequenceValue { sequence, value });
        } else {
            self.cut.notes = true;
        }
    }

    /// One that another statement drew. If that showed it, it is known.
    pub fn sequence_value_before(&mut self, sequence: u32, value: i64) {
        const LATELY: usize = 8;
        let drawn = SequenceValue { sequence, value };
        if !self
            .sequence_values
            .iter()
            .rev()
            .take(LATELY)
            .any(|one| *one == drawn)
        {
            self.sequence_value(sequence, value);
        }
    }

    pub fn drawn_uuid(&mut self, place: DrawnAt, value: u128) {
        if self.drawn_uuids.len() < limits::NOTED_MAX {
            self.drawn_uuids.push(DrawnUuid { place, value });
        } else {
            self.cut.notes = true;
        }
    }

    /// The server reported an application name that is a trace of ours.
    pub fn application(&mut self, request: Option<RequestId>) {
        self.application = request.or(self.application);
    }

    pub fn told(&mut self, told: Told) {
        // Preparing a statement takes a snapshot too, even if it never runs.
        self.active |= told.snapshot.is_some();
        if self.snapshot.is_none() {
            self.snapshot = told.snapshot;
            self.isolation = told.isolation;
            self.now = told.now;
        }
        self.read_only |= told.read_only == Some(true);
        self.xid_answered |= told.xid_known;
        self.xid = told.xid.or(self.xid);
        for subxid in told.subxids {
            if !self.subxids.contains(&subxid) && self.subxids.len() < limits::NOTED_MAX {
                self.subxids.push(subxid);
            }
        }
    }

    /// A `Query` is answered in full in which, perhaps, an earlier transaction ended and this one
    /// began.
    pub fn query_ended(&mut self, text: Option<&[u8]>, script: &Script, client_from: u64) {
        if let Some(first) = self.head.take() {
            self.client_from = client_from;
            if let Some(text) = part(
                text,
                script,
                first,
                script.statements.len().saturating_sub(1),
            ) {
                frontend::query(&mut self.client_prefix, text);
            } else {
                self.cut.client_bytes = true;
            }
        }
    }

    /// What is told about it; `None` if there is nothing to tell.
    pub fn finish(
        mut self: Box<Self>,
        end: End<'_>,
        client: &Kept,
        server: &Kept,
    ) -> Option<Box<ObservedTransaction>> {
        if !self.announced {
            return None;
        }
        let known = [
            (self.comment, Attribution::Comment),
            (self.application, Attribution::ApplicationName),
            (self.turn, Attribution::Turn),
            (self.alone, Attribution::Alone),
        ];
        let mut known = known.into_iter();
        let request = known.find_map(|(request, by)| Some((request?, by)));
        let is_short = end.client_to.saturating_sub(self.client_from) < self.values_max;
        let client_bytes = match request {
            Some(_) if !is_short => None,
            _ => self.client_bytes(client, &end),
        };
        self.cut.client_bytes = request.is_none() && client_bytes.is_none();
        let aborted = end.outcome == Outcome::Aborted;
        let answered = server.end().saturating_sub(self.server_from);
        let server_bytes = match aborted || answered < self.values_max {
            true => server.get(self.server_from, server.end()),
            false => None,
        };
        self.cut.server_bytes = aborted && server_bytes.is_none();
        Some(Box::new(ObservedTransaction {
            began: self.began,
            ended: end.at,
            request,
            explicit: self.explicit,
            passive: !self.active,
            is_empty: !self.is_worth_telling(),
            isolation: self.isolation,
            snapshot: self.snapshot,
            now: self.now,
            xid: self.xid,
            subxids: self.subxids,
            xid_known: self.xid_answered || !self.may_have_written || self.read_only,
            outcome: end.outcome,
            statement_count: self.statement_count,
            completed: self.completed,
            failures: self.failures,
            statements: self.statements,
            shape: self.shape.value(),
            result_digest: self.digest.value(),
            result_rows: self.digest.rows(),
            row_order: self.row_order.finish(),
            locks: self.locks,
            sequence_values: self.sequence_values,
            drawn_uuids: self.drawn_uuids,
            values: self.values,
            server_bytes,
            client_bytes,
            cut: self.cut,
        }))
    }

    fn client_bytes(&self, client: &Kept, end: &End<'_>) -> Option<Bytes> {
        if self.cut.client_bytes || (self.head.is_some() && end.tail.is_none()) {
            return None;
        }
        let mut bytes = BytesMut::new();
        for prepared in &self.uses {
            // An earlier ghost of the session may have brought it along; to close what does not
            // exist is no error.
            if !prepared.name.is_empty() {
                frontend::close(&mut bytes, Target::Statement(&prepared.name));
            }
            prepared.parse_message()?.build(&mut bytes);
            // Who runs them again has to know of which types its rows are.
            frontend::describe(&mut bytes, Target::Statement(&prepared.name));
        }
        if !self.uses.is_empty() {
            // A batch of its own: what follows may begin a block, and that must come before any
            // statement is prepared in it.
            frontend::sync(&mut bytes);
        }
        bytes.extend_from_slice(&self.client_prefix);
        if end.client_to > self.client_from {
            bytes.extend_from_slice(&client.get(self.client_from, end.client_to)?);
        }
        if let Some(Tail { text, script, last }) = end.tail {
            let first = self.head.unwrap_or(0);
            frontend::query(&mut bytes, part(text, script, first, last)?);
        }
        Some(bytes.freeze())
    }
}

/// The statements `first..=last` of a text.
fn part<'a>(
    text: Option<&'a [u8]>,
    script: &Script,
    first: usize,
    last: usize,
) -> Option<&'a [u8]> {
    let start = script.statements.get(first)?.range.start;
    let end = script.statements.get(last)?.range.end;
    text?.get(start..end)
}
