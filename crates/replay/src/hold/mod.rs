//! Follows one session of the service under replay and makes it wait where the schedule says so. Pure: bytes in, bytes and waits out.
//!
//! The client's messages are taken batch by batch: up to a `Sync`, a `Flush` or a `Query`. A batch is planned as a list of [`Step`]s
//! (send this, ask that, wait for permission), which are carried out one after the other; the next batch is planned when the server has answered
//! everything. Clients that pipeline lose a little speed by that and see no difference.
//!
//! ```text
//!   recorded as      the client sends             the server gets
//!   committed        SELECT … (autocommit)        the same, once rule A holds
//!   committed        UPDATE … (autocommit)        A: BEGIN, snapshot and pins, UPDATE …   B: COMMIT
//!   committed        BEGIN; …; COMMIT             BEGIN   A: READ WRITE, snapshot and pins, …   B: COMMIT
//!   aborted          anything                     nothing, or ROLLBACK: the client gets recorded bytes
//!   (not recorded)   outside any request          the same, read-only
//! ```
//!
//! Changed code ([`Code::Changed`]) is held at the same places, and keeps the isolation and the locks that it asks for. Nothing is served: whatever it
//! does is executed. Before a commit the holder asks for the transaction's id, which tells who wrote which row.
//!
//! The holder's snapshot query runs before the transaction's first statement. So "took its snapshot" is a fact when its answer is there,
//! even where the first statement then waits for a lock.

mod answers;
mod batch;
mod enter;
mod own;
mod pins;
mod served;
mod serving;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_gateway::pg::Wires;
use hindcast_order::Tx;
use hindcast_trace::{RequestId, ShapeId};
use hindcast_wire::Status;
use hindcast_wire::digest::{ResultDigest, ShapeHasher};
use hindcast_wire::frame::{self, Direction, Frame};
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::sql::trace::parse_traceparent;
use hindcast_wire::sql::{Dialect, ScriptCache};

use crate::coordinator::{Ask, Claim, Ended, EndedAs};
use answers::{Answers, Expect, Owner};
use batch::Prepared;
use own::{Own, OwnAnswer};
pub use pins::Pins;
use served::Served;

/// Who knows the recording and the schedule.
pub trait Desk {
    /// A transaction takes its first snapshot; `opening` is the hash of that statement's fingerprint.
    fn claim(&mut self, request: Option<RequestId>, opening: u64) -> Claim;
    fn pins(&self, tx: Tx) -> Pins;
    /// What the server answered originally; `None` if that was not kept.
    fn recorded_answers(&self, tx: Tx) -> Option<Vec<u8>>;
    /// The request in flight, if there is exactly one.
    fn alone(&self) -> Option<RequestId>;
    fn took_snapshot(&mut self, tx: Tx);
    fn locked(&mut self, tx: Tx, statement: u32);
    /// All but the commit is done, or what is done next may wait for somebody else's commit.
    fn ran(&mut self, tx: Tx);
    fn ended(&mut self, claim: Claim, ended: Ended);
    fn served(&mut self, tx: Tx, complete: bool);
    fn lost(&mut self, claim: Claim);
    /// The server refused a write outside any request.
    fn outside_write_refused(&mut self, statement: &str);

    // What only changed code needs.

    /// The server process of this session.
    fn backend(&mut self, _pid: i32) {}
    /// The session's transaction is this one from here on; `None`: it has none.
    fn entered(&mut self, _claim: Option<Claim>) {}
    /// Before its commit the transaction turned out to have written, with these ids: its own, and those of its subtransactions.
    fn wrote(&mut self, _claim: Claim, _ids: Vec<u64>, _statements: &[String]) {}
    /// A statement was cancelled: whether that was ours, to make it give way.
    fn yielded(&mut self) -> bool {
        false
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The service as it was recorded.
    Recorded,
    /// The service with changes.
    Changed {
        /// Whether it may write outside any request.
        outside_writes: bool,
    },
}

#[derive(Clone, Debug)]
pub struct HoldOptions {
    /// The high halves of the recorders' trace-ids.
    pub trace_id_prefixes: Vec<u64>,
    pub scripts: Arc<ScriptCache>,
    /// The rewound database has the functions that honour pins.
    pub pinned: bool,
    pub code: Code,
}

/// How the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Continue,
    /// Call [`Holder::on_permission`] when this is permitted.
    Wait(Ask),
    /// The session cannot be followed; close it.
    Close,
}

/// One session of the service.
pub struct Holder {
    options: HoldOptions,
    dialect: Dialect,
    phase: Phase,
    /// The client's messages that are not planned yet.
    queue: VecDeque<Frame>,
    steps: VecDeque<Step>,
    waiting: bool,
    answers: Answers,
    /// Statements of ours that are not answered, in order, and what the first of them was answered so far.
    own: VecDeque<Own>,
    own_answer: OwnAnswer,
    /// A commit of ours failed: the client is told so.
    commit_error: Option<Bytes>,
    status: Status,
    transaction: Option<Open>,
    served: Option<(Tx, Served)>,
    prepared: HashMap<Bytes, Arc<Prepared>>,
    portals: HashMap<Bytes, Arc<Prepared>>,
    /// Our own prepared statements that the server has.
    own_prepared: HashSet<&'static str>,
    application: Option<RequestId>,
    copy: Copy,
    /// The last batch ended with `Flush`: an implicit transaction may be open.
    unsynced: bool,
    /// Rest of a `Query` that was split at its transaction control.
    split: Option<Split>,
    /// A statement outside any request that is being answered, for the message should it be refused.
    outside: Option<String>,
    /// The session was made read-only for what is being answered.
    secluded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Authentication,
    Running,
}

/// Whether the client's messages belong to a `COPY … FROM STDIN` that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    No,
    /// They are data.
    Data,
    /// The data has ended, or the server wants no more of it. The `Sync` that was sent before the data was taken for part of it, so the
    /// server waits for another one.
    UpToSync,
}

/// The client's transaction.
struct Open {
    kind: Kind,
    /// `None` until its first statement that takes a snapshot.
    claim: Option<Claim>,
    /// What a comment said before that, as on `BEGIN`: a named statement that follows may have none.
    request: Option<RequestId>,
    digest: ResultDigest,
    shape: ShapeHasher,
    statements: u32,
    /// Messages of the client since it began, as long as it is not claimed: if it turns out to have aborted, their recorded answers
    /// are passed over.
    before_claim: Vec<u8>,
    error: Option<String>,
    /// Of the last statement that was answered: `COMMIT` at the end of a transaction that committed.
    last_tag: Bytes,
    /// Lock steps whose completion is to be reported, by statement, in order.
    locks: VecDeque<u32>,
    /// Statements answered so far.
    answered: u32,
    /// The statement that takes the snapshot, where none of ours did before it.
    snapshot_at: Option<u32>,
    /// It must not write or lock before it is permitted; see [`Ask::Act`].
    acts_late: bool,
    /// It has set savepoints, so rows may carry ids of subtransactions.
    savepoints: bool,
    /// It only read so far, as far as its texts tell.
    only_read: bool,
    /// Texts of its statements; of changed code only.
    texts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The client's own `BEGIN`.
    Explicit,
    /// Autocommitted, in a `BEGIN` of ours.
    Wrapped,
    /// Autocommitted and left as it is.
    Direct,
}

impl Open {
    fn new(kind: Kind, claim: Option<Claim>) -> Self {
        Self {
            kind,
            claim,
            request: None,
            digest: ResultDigest::new(),
            shape: ShapeHasher::new(),
            statements: 0,
            before_claim: Vec::new(),
            error: None,
            last_tag: Bytes::new(),
            locks: VecDeque::new(),
            answered: 0,
            snapshot_at: None,
            acts_late: false,
            savepoints: false,
            only_read: true,
            texts: Vec::new(),
        }
    }

    fn into_ended(self, committed: bool) -> Ended {
        let fate = if committed {
            EndedAs::Committed
        } else {
            EndedAs::RolledBack { error: self.error }
        };
        Ended {
            shape: ShapeId(self.shape.value()),
            digest: self.digest.value(),
            rows: self.digest.rows(),
            fate,
            statements: self.texts,
        }
    }

    /// An error inside a savepoint that was rolled back to does not make the transaction fail; then a later statement succeeded.
    fn error_is_over(&self) -> bool {
        self.error.is_none() || self.last_tag == "COMMIT" || self.last_tag == "PREPARE TRANSACTION"
    }

    fn run(&self) -> Option<Tx> {
        match self.claim {
            Some(Claim::Run(tx)) => Some(tx),
            _ => None,
        }
    }

    /// Its claim, if what becomes of it is of interest.
    fn followed(&self) -> Option<Claim> {
        self.claim
            .filter(|claim| matches!(claim, Claim::Run(_) | Claim::Added(_)))
    }
}

struct Split {
    rest: VecDeque<Bytes>,
    request: Option<RequestId>,
    failed: bool,
    /// How many of its statements the client was told to be complete.
    completed: usize,
}

/// One thing to do for a batch.
#[derive(Debug)]
enum Step {
    Send {
        bytes: Bytes,
        expect: Vec<(Expect, Owner)>,
    },
    /// Statements of ours.
    Own(Own),
    /// Everything sent so far has been answered.
    Settle,
    Hold(Ask),
    /// Serve the recorded answers from here on, beginning with these messages of the client.
    Serve {
        tx: Tx,
        frames: Vec<Frame>,
        /// The client has had this many completions of the `Query` that comes first: it was split.
        completed: usize,
    },
    /// The client's autocommitted transaction is over: give it its `ReadyForQuery`.
    Ready,
    /// Tell the desk that others need not wait for what the open transaction does up to its commit.
    Ran,
}

impl Holder {
    pub fn new(options: HoldOptions) -> Self {
        Self {
            options,
            dialect: Dialect::default(),
            phase: Phase::Startup,
            queue: VecDeque::new(),
            steps: VecDeque::new(),
            waiting: false,
            answers: Answers::default(),
            own: VecDeque::new(),
            own_answer: OwnAnswer::default(),
            commit_error: None,
            status: Status::Idle,
            transaction: None,
            served: None,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            own_prepared: HashSet::new(),
            application: None,
            copy: Copy::No,
            unsynced: false,
            split: None,
            outside: None,
            secluded: false,
        }
    }

    /// A holder for a session that is past its authentication.
    pub fn running(options: HoldOptions) -> Self {
        Self {
            phase: Phase::Running,
            ..Self::new(options)
        }
    }

    /// Bytes from the client, its startup packet first.
    pub fn on_client(
        &mut self,
        input: &mut BytesMut,
        out: &mut Wires,
        desk: &mut impl Desk,
    ) -> Next {
        if self.phase == Phase::Startup {
            match frame::split_startup(input) {
                Ok(Some(packet)) => {
                    let name = client::Startup::parse(&packet)
                        .ok()
                        .and_then(|startup| startup.get("application_name"));
                    self.application = name.and_then(|name| self.request_of(name));
                    out.to_server.put_slice(&packet);
                    self.phase = Phase::Authentication;
                }
                Ok(None) => return Next::Continue,
                Err(_) => return Next::Close,
            }
        }
        if self.phase == Phase::Authentication {
            // That is between client and server. A client says nothing else before it is told that the server is ready.
            out.to_server.put_slice(&input.split());
            return Next::Continue;
        }
        loop {
            match frame::split(Direction::FromClient, input) {
                Ok(Some(frame)) => self.queue.push_back(frame),
                Ok(None) => break,
                Err(_) => return Next::Close,
            }
        }
        self.advance(out, desk)
    }

    pub fn on_permission(&mut self, out: &mut Wires, desk: &mut impl Desk) -> Next {
        self.waiting = false;
        self.advance(out, desk)
    }

    /// Bytes from the server.
    pub fn on_server(
        &mut self,
        input: &mut BytesMut,
        out: &mut Wires,
        desk: &mut impl Desk,
    ) -> Next {
        loop {
            match frame::split(Direction::FromServer, input) {
                Ok(Some(frame)) => self.on_answer(&frame, out, desk),
                Ok(None) => break,
                Err(_) => return Next::Close,
            }
        }
        if self.phase == Phase::Running {
            self.advance(out, desk)
        } else {
            Next::Continue
        }
    }

    /// The client closed its connection.
    pub fn on_client_gone(&mut self, desk: &mut impl Desk) {
        self.end_abruptly(desk);
    }

    pub fn on_server_gone(&mut self, desk: &mut impl Desk) {
        self.end_abruptly(desk);
    }

    fn end_abruptly(&mut self, desk: &mut impl Desk) {
        if let Some((tx, _)) = self.served.take() {
            desk.served(tx, false);
        } else if let Some(claim) = self.transaction.take().and_then(|open| open.followed()) {
            desk.lost(claim);
        }
        desk.entered(None);
        self.steps.clear();
    }

    pub fn is_idle(&self) -> bool {
        self.transaction.is_none()
            && self.served.is_none()
            && self.steps.is_empty()
            && self.queue.is_empty()
            && self.answers.is_empty()
    }

    fn request_of(&self, traceparent: &[u8]) -> Option<RequestId> {
        let trace = parse_traceparent(traceparent)?;
        self.options
            .trace_id_prefixes
            .contains(&trace.high)
            .then_some(hindcast_trace::Id(trace.low))
    }

    // ---- what the server answers -------------------------------------------------------------------------------

    fn on_answer(&mut self, frame: &Frame, out: &mut Wires, desk: &mut impl Desk) {
        let (tag, body) = (frame.tag(), frame.body());
        if self.phase != Phase::Running {
            self.note_parameter(tag, body);
            if let (server::BACKEND_KEY_DATA, Some(pid)) = (tag, body.first_chunk()) {
                desk.backend(i32::from_be_bytes(*pid));
            }
            self.forward(frame, out);
            if tag == server::READY_FOR_QUERY {
                self.phase = Phase::Running;
            }
            return;
        }
        let Some(answer) = self.answers.take(tag) else {
            self.note_parameter(tag, body);
            self.forward(frame, out);
            return;
        };
        if tag == server::READY_FOR_QUERY
            && let Ok(status) = server::parse_ready_for_query(body)
        {
            self.status = status;
        }
        if answer.owner == Owner::Own {
            self.on_own_answer(frame, desk);
            return;
        }
        match tag {
            server::COPY_IN_RESPONSE => self.copy = Copy::Data,
            server::ERROR_RESPONSE if self.copy == Copy::Data => {
                self.copy = match self.answers.has_sync() {
                    true => Copy::UpToSync,
                    false => Copy::No,
                }
            }
            _ => {}
        }
        if tag == server::ERROR_RESPONSE
            && let Some((_, served)) = &mut self.served
        {
            served.preparing_failed();
        }
        let yielded = self.as_yielded(frame, desk);
        let frame = yielded.as_ref().unwrap_or(frame);
        let body = frame.body();
        self.digest(tag, body, answer.ordered, desk);
        if let Some(split) = self
            .split
            .as_mut()
            .filter(|_| tag == server::ERROR_RESPONSE)
        {
            // The rest of the client's text is not run, as it would not have been in one piece.
            split.rest.clear();
            split.failed = true;
        }
        let withheld = answer.owner == Owner::Withheld && tag == server::READY_FOR_QUERY;
        // A transaction of ours has an end of its own to come, and its client is told then.
        let wrapped = self
            .transaction
            .as_ref()
            .is_some_and(|open| open.kind == Kind::Wrapped);
        if let Some(split) = &mut self.split
            && tag == server::COMMAND_COMPLETE
        {
            split.completed += 1;
        }
        if !withheld || !wrapped && self.split.as_ref().is_some_and(|split| split.failed) {
            self.forward(frame, out);
        }
        if tag == server::READY_FOR_QUERY {
            self.on_ready(desk);
        }
    }

    /// A statement that was cancelled because it stood in somebody's way has failed to serialize, as far as its client is concerned.
    fn as_yielded(&self, frame: &Frame, desk: &mut impl Desk) -> Option<Frame> {
        if frame.tag() != server::ERROR_RESPONSE
            || server::Fields::parse(frame.body()).ok()?.sqlstate() != b"57014"
        {
            return None;
        }
        if !desk.yielded() {
            return None;
        }
        let mut error = BytesMut::new();
        server::error_response(&mut error, b"ERROR", b"40001", YIELDED);
        Some(Frame(error.freeze()))
    }

    fn note_parameter(&mut self, tag: u8, body: &[u8]) {
        if tag != server::PARAMETER_STATUS {
            return;
        }
        if let Ok((b"application_name", value)) = server::parse_parameter_status(body) {
            self.application = self.request_of(value);
        }
    }

    /// Drivers that look for a server they can write to must not be put off by the read-only default, which is ours.
    fn forward(&self, frame: &Frame, out: &mut Wires) {
        if frame.tag() == server::PARAMETER_STATUS
            && let Ok((b"default_transaction_read_only", _)) =
                server::parse_parameter_status(frame.body())
        {
            server::parameter_status(&mut out.to_client, b"default_transaction_read_only", b"off");
            return;
        }
        out.to_client.put_slice(&frame.0);
    }

    fn digest(&mut self, tag: u8, body: &[u8], ordered: bool, desk: &mut impl Desk) {
        let error = (tag == server::ERROR_RESPONSE)
            .then(|| server::Fields::parse(body).ok())
            .flatten();
        if let Some(fields) = &error
            && fields.sqlstate() == b"25006"
            && let Some(statement) = self.outside.take()
        {
            desk.outside_write_refused(&statement);
        }
        let Some(open) = &mut self.transaction else {
            return;
        };
        let answers_one = matches!(tag, server::COMMAND_COMPLETE | server::ERROR_RESPONSE);
        if answers_one && open.snapshot_at.is_some_and(|at| at <= open.answered) {
            open.snapshot_at = None;
            if let Some(tx) = open.run() {
                desk.took_snapshot(tx);
            }
        }
        match tag {
            server::DATA_ROW | server::COPY_DATA | server::FUNCTION_CALL_RESPONSE => {
                open.digest.row(ordered, body)
            }
            // An empty query is no statement, so its answer says nothing.
            server::COMMAND_COMPLETE => {
                open.digest
                    .complete(body.strip_suffix(b"\0").unwrap_or(body));
                open.last_tag = Bytes::copy_from_slice(body.strip_suffix(b"\0").unwrap_or(body));
                if open.locks.front() == Some(&open.answered) {
                    open.locks.pop_front();
                    if let Some(tx) = open.run() {
                        desk.locked(tx, open.answered);
                    }
                }
                open.answered += 1;
            }
            server::ERROR_RESPONSE => {
                if let Some(fields) = error {
                    open.digest.error(fields.sqlstate());
                    open.error.get_or_insert_with(|| error_text(body));
                }
            }
            _ => {}
        }
    }

    /// The server is ready; the client may or may not have heard of it.
    fn on_ready(&mut self, desk: &mut impl Desk) {
        self.outside = None;
        self.copy = Copy::No;
        if self.status != Status::Idle {
            return;
        }
        let Some(open) = self.transaction.take_if(|open| open.kind != Kind::Wrapped) else {
            return;
        };
        desk.entered(None);
        if let Some(claim) = open.followed() {
            let committed = match open.kind {
                Kind::Direct => {
                    if let Claim::Run(tx) = claim {
                        desk.took_snapshot(tx);
                    }
                    open.error.is_none()
                }
                // COMMIT of a failed transaction is answered with ROLLBACK.
                Kind::Explicit | Kind::Wrapped => {
                    open.last_tag != "ROLLBACK" && open.error_is_over()
                }
            };
            desk.ended(claim, open.into_ended(committed));
        }
    }

    // ---- carrying out ------------------------------------------------------------------------------------------

    fn advance(&mut self, out: &mut Wires, desk: &mut impl Desk) -> Next {
        loop {
            if self.waiting {
                return Next::Continue;
            }
            if let Some(step) = self.steps.pop_front() {
                match step {
                    Step::Send { bytes, expect } => {
                        out.to_server.put_slice(&bytes);
                        expect
                            .into_iter()
                            .for_each(|(expect, owner)| self.answers.expect(expect, owner));
                    }
                    // The batch has failed before this. The server ignores the rest of it, and the client finds out by itself.
                    Step::Hold(_) | Step::Own(_) if self.answers.is_skipping() => {}
                    // What failed has nothing to commit.
                    Step::Hold(Ask::Commit(_)) | Step::Own(Own::Identify { .. })
                        if self.status == Status::Failed => {}
                    Step::Own(own) => self.send_own(own, out, desk),
                    Step::Settle if !self.answers.is_empty() => {
                        self.steps.push_front(Step::Settle);
                        self.forward_copy(out);
                        return Next::Continue;
                    }
                    Step::Settle => {}
                    Step::Hold(ask) => {
                        self.waiting = true;
                        return Next::Wait(ask);
                    }
                    Step::Serve {
                        tx,
                        frames,
                        completed,
                    } => self.serve(tx, frames, completed, desk),
                    Step::Ran => {
                        if let Some(tx) = self.transaction.as_ref().and_then(Open::run) {
                            desk.ran(tx);
                        }
                    }
                    Step::Ready => self.finish_wrapped(out, desk),
                }
                continue;
            }
            if !self.answers.is_empty() {
                self.forward_copy(out);
                return Next::Continue;
            }
            if self.served.is_some() {
                let Some(frame) = self.queue.pop_front() else {
                    return Next::Continue;
                };
                self.serve_one(&frame, out, desk);
                continue;
            }
            if !self.plan_next(out, desk) {
                return Next::Continue;
            }
        }
    }

    /// While the server takes in a `COPY`, the client's messages are data and go on at once.
    fn forward_copy(&mut self, out: &mut Wires) {
        while self.copy != Copy::No {
            let Some(frame) = self.queue.pop_front() else {
                return;
            };
            out.to_server.put_slice(&frame.0);
            self.copy = match (self.copy, frame.tag()) {
                (Copy::Data, client::COPY_DONE | client::COPY_FAIL) => {
                    if self.answers.has_sync() {
                        Copy::UpToSync
                    } else {
                        // In the extended protocol the answer would otherwise stay in the server's buffer; a Query's does not mind.
                        client::flush(&mut out.to_server);
                        Copy::No
                    }
                }
                (Copy::UpToSync, client::SYNC) => Copy::No,
                (copy, _) => copy,
            };
        }
    }

    /// The client's autocommitted transaction is over, by a commit or rollback of ours.
    fn finish_wrapped(&mut self, out: &mut Wires, desk: &mut impl Desk) {
        let Some(open) = self.transaction.take() else {
            return;
        };
        let committed = self.own_answer.last_commit_worked && open.error.is_none();
        if let Some(error) = self.commit_error.take() {
            out.to_client.put_slice(&error);
        }
        if self
            .split
            .as_ref()
            .is_none_or(|split| split.rest.is_empty())
        {
            server::ready_for_query(&mut out.to_client, Status::Idle);
        }
        desk.entered(None);
        if let Some(claim) = open.followed() {
            desk.ended(claim, open.into_ended(committed));
        }
    }
}

/// What Postgres says itself to whoever comes second to a row.
const YIELDED: &[u8] = b"could not serialize access due to concurrent update";

/// `duplicate key value … (23505)`, from the body of an `ErrorResponse`.
pub(crate) fn error_text(body: &[u8]) -> String {
    match server::Fields::parse(body) {
        Ok(fields) => {
            let text = |field| {
                fields
                    .get(field)
                    .map(String::from_utf8_lossy)
                    .unwrap_or_default()
            };
            format!("{} ({})", text(b'M'), text(b'C'))
        }
        Err(_) => "an error that cannot be read".to_owned(),
    }
}
