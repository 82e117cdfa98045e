//! Follows one session of the service under replay and makes it wait where the schedule says so.
//! Pure: bytes in, bytes and waits out.
//!
//! The client's messages are taken batch by batch: up to a `Sync`, a `Flush` or a `Query`. A batch
//! is planned as a list of [`Step`]s (send this, ask that, wait for permission), which are taken
//! one after the other. The next batch is planned when the server has answered everything. Clients
//! that pipeline lose a little speed by that and see no difference. What does nothing by itself is
//! answered at once (`at_once`).
//!
//! ```text
//!   recorded as     the client sends           the server gets
//!   committed       SELECT … (autocommit)      the same, once rule A holds
//!   committed       UPDATE … (autocommit)      A: BEGIN, snapshot, pins, UPDATE …   B: COMMIT
//!   committed       BEGIN; …; COMMIT           A: BEGIN … READ WRITE, snapshot, pins …   B: COMMIT
//!   aborted         anything                   nothing, or ROLLBACK: answers are recorded bytes
//!   (not recorded)  outside any request        the same, and ROLLBACK AND CHAIN before its COMMIT
//! ```
//!
//! Changed code ([`Code::Changed`]) is held at the same places, and keeps the isolation and the
//! locks that it asks for. Nothing is served: whatever it does is executed. Before a commit the
//! holder asks for the transaction's id, which tells who wrote which row.
//!
//! The holder's snapshot query runs before the transaction's first statement. So "took its
//! snapshot" is a fact when its answer is there, even where the first statement then waits for a
//! lock.

mod access;
mod answers;
mod at_once;
mod background;
mod batch;
mod call;
mod context;
mod copying;
mod described;
mod enter;
mod formats;
mod instead;
mod names;
mod own;
mod pins;
mod places;
mod plan;
mod rewritten;
mod rows;
mod sent;
mod served;
mod serving;
mod split;
mod transaction;
mod withheld;

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_model::Traceparent;
use hindcast_order::Tx;
use hindcast_trace::RequestId;
use hindcast_wire::frame::{self, Direction, Frame};
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::text::Settings;
use hindcast_wire::{Status, Wires};

use crate::transaction::{Ask, Claim, Stopped};
use access::Access;
use answers::{Answers, Owner};
use at_once::Kept;
pub use context::{Code, Context, HoldOptions};
use copying::Copying;
use instead::{as_chosen, as_nothing, as_yielded, completed, forward};
use names::Names;
use own::{Outcome, Own, OwnStatements};
pub use pins::Pins;
use plan::{Plan, Step};
use rows::Fetched;
pub use sent::{Inserted, SentAll, SentOpening};
pub use served::Answered;
use served::Served;
use split::Split;
use transaction::{Kind, Open, OwnCommit};
use withheld::Withheld;

/// The recording cannot be read. The context has noted why, and the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Why a batch is not planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unplanned {
    /// The session is to be closed.
    Close,
    /// When this is permitted it is planned anew.
    Wait(Ask),
}

impl From<Unreadable> for Unplanned {
    fn from(_: Unreadable) -> Self {
        Self::Close
    }
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

/// Where a session is.
///
/// ```text
///   Starting ─▶ Authenticating ─▶ Idle ◀──▶ Running ◀──▶ Waiting
///                                  ▲         │   ▲
///                                  │         │   └─────▶ Copying
///                                  └─ Serving ◀┘
/// ```
#[derive(Debug)]
enum Session {
    /// Until the client's startup packet is whole.
    Starting,
    /// Client and server settle who the client is, and what they say passes through.
    Authenticating,
    /// Everything is answered. The next batch is planned when it is there.
    Idle,
    /// A batch is carried out.
    Running(Plan),
    /// The next step of the batch may not be taken yet.
    Waiting(Plan),
    /// The server takes in a `COPY … FROM STDIN`: the client's messages are data.
    Copying(Copying, Plan),
    /// The client's transaction aborted originally and is answered from the recording. The plan is
    /// for what only prepares: the server does that for real.
    Serving(Tx, Served, Plan),
}

impl Session {
    fn plan(&mut self) -> Option<&mut Plan> {
        match self {
            Self::Starting | Self::Authenticating | Self::Idle => None,
            Self::Running(plan)
            | Self::Waiting(plan)
            | Self::Copying(_, plan)
            | Self::Serving(_, _, plan) => Some(plan),
        }
    }

    /// Leaves the state, which is one with a plan, for another.
    fn with_plan(&mut self, next: impl FnOnce(Plan) -> Self) {
        let plan = self.plan().map(std::mem::take);
        *self = next(plan.expect("the state has a plan"));
    }
}

/// One session of the service.
pub struct Holder {
    options: HoldOptions,
    session: Session,
    /// The client's messages that are not planned yet.
    queue: VecDeque<Frame>,
    answers: Answers,
    own: OwnStatements,
    kept: Kept,
    /// As the server said last.
    status: Status,
    transaction: Option<Open>,
    names: Names,
    /// What the server has said of the session's settings.
    settings: Settings,
    access: Access,
    /// Its transactions are read-only but for those that the recording lets write.
    reads_only: bool,
    /// The request that `application_name` names.
    application: Option<RequestId>,
    /// The last batch ended with `Flush`: an implicit transaction may be open.
    unsynced: bool,
    /// Rest of a `Query` that was split.
    split: Option<Split>,
    /// A statement outside any request that is being answered, for the message should it be
    /// refused.
    outside: Option<String>,
    /// What a statement that only reads asked for, and sees when that is permitted.
    asked: Option<Ask>,
    /// The ghost that the next batch waits for, or has waited for.
    awaited: Option<Tx>,
    withheld: Withheld,
    fetched: Fetched,
}

/// Whether more can be done now.
enum Advance {
    More,
    Stop(Next),
}

impl Holder {
    pub fn new(options: HoldOptions) -> Self {
        Self {
            options,
            session: Session::Starting,
            queue: VecDeque::new(),
            answers: Answers::default(),
            own: OwnStatements::default(),
            kept: Kept::default(),
            status: Status::Idle,
            transaction: None,
            names: Names::default(),
            settings: Settings::default(),
            access: Access::default(),
            reads_only: false,
            application: None,
            unsynced: false,
            split: None,
            outside: None,
            asked: None,
            awaited: None,
            withheld: Withheld::default(),
            fetched: Fetched::default(),
        }
    }

    /// A holder for a session that is past its authentication, with what the server has said of
    /// its settings.
    pub fn running(options: HoldOptions, settings: Settings) -> Self {
        Self {
            session: Session::Idle,
            settings,
            ..Self::new(options)
        }
    }

    /// Bytes from the client, its startup packet first.
    pub fn on_client(
        &mut self,
        input: &mut BytesMut,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> Next {
        if let Session::Starting = self.session {
            match frame::split_startup(input) {
                Ok(Some(packet)) => {
                    let startup = client::Startup::parse(&packet).ok();
                    let asked = |name| startup.as_ref().and_then(|startup| startup.get(name));
                    let name = asked("application_name");
                    self.application = name.and_then(|name| self.request_named(name));
                    self.reads_only =
                        asked("default_transaction_read_only").is_some_and(|value| value == b"on");
                    out.to_server.put_slice(&packet);
                    self.session = Session::Authenticating;
                }
                Ok(None) => return Next::Continue,
                Err(_) => return Next::Close,
            }
        }
        if let Session::Authenticating = self.session {
            // A client says nothing else before it is told that the server is ready.
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
        self.go_on(out, cx)
    }

    pub fn on_permission(&mut self, out: &mut Wires, cx: &mut impl Context) -> Next {
        if let Session::Waiting(_) = self.session {
            self.session.with_plan(Session::Running);
        }
        match self.asked.take() {
            Some(Ask::Commit(tx)) => self.may_depart(tx, cx),
            Some(ask) if cx.sees_present(ask) => {
                if let Some(open) = &mut self.transaction {
                    open.present_look(ask);
                }
            }
            _ => {}
        }
        self.go_on(out, cx)
    }

    /// Bytes from the server.
    pub fn on_server(
        &mut self,
        input: &mut BytesMut,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> Next {
        loop {
            match frame::split(Direction::FromServer, input) {
                Ok(Some(frame)) if self.kept.is_answered_by(&frame) => {}
                Ok(Some(frame)) => self.on_answer(&frame, out, cx),
                Ok(None) => break,
                Err(_) => return Next::Close,
            }
        }
        self.go_on(out, cx)
    }

    /// The client or the server has closed its connection.
    pub fn on_gone(&mut self, cx: &mut impl Context) {
        if let Some(tx) = self.awaited.take() {
            cx.waits_no_more(tx);
        }
        if let Session::Serving(tx, served, _) = &mut self.session {
            let (tx, through, moved) = (*tx, served.is_through(), served.moved());
            self.session = Session::Idle;
            cx.served(tx, through, moved);
        } else if let Some(open) = self.transaction.take()
            && let Some(claim) = open.followed()
        {
            cx.lost(claim, open.into_ended());
        }
        self.drop_answer(cx);
        cx.entered(None);
        if let Some(plan) = self.session.plan() {
            plan.steps.clear();
        }
    }

    pub fn is_idle(&self) -> bool {
        let nothing_to_do = match &self.session {
            Session::Starting | Session::Authenticating | Session::Idle => true,
            Session::Running(plan) | Session::Waiting(plan) | Session::Copying(_, plan) => {
                plan.steps.is_empty()
            }
            Session::Serving(..) => false,
        };
        nothing_to_do
            && self.transaction.is_none()
            && self.queue.is_empty()
            && self.answers.is_empty()
            && self.withheld.is_empty()
    }

    fn request_named(&self, traceparent: &[u8]) -> Option<RequestId> {
        Traceparent::parse(traceparent).and_then(|trace| self.options.request_of(trace))
    }

    // ---- what the server answers ------------------------------------------------------------

    fn on_answer(&mut self, frame: &Frame, out: &mut Wires, cx: &mut impl Context) {
        let (tag, body) = (frame.tag(), frame.body());
        if let Session::Starting | Session::Authenticating = self.session {
            self.note_parameter(tag, body);
            if let (server::BACKEND_KEY_DATA, Some(pid)) = (tag, body.first_chunk()) {
                cx.backend(i32::from_be_bytes(*pid));
            }
            forward(frame, &mut out.to_client);
            if tag == server::READY_FOR_QUERY {
                self.session = Session::Idle;
            }
            return;
        }
        if rows::ends_rows(tag) {
            self.give_rows(out, cx);
        }
        let Some(answer) = self.answers.take(tag, body) else {
            self.note_parameter(tag, body);
            forward(frame, self.withheld.wire(out));
            return;
        };
        if tag == server::READY_FOR_QUERY
            && let Ok(status) = server::parse_ready_for_query(body)
        {
            self.status = status;
        }
        if answer.owner == Owner::Own {
            if let Some((own, outcome)) = self.own.answered(frame) {
                self.on_own_outcome(own, outcome, cx);
            }
            return;
        }
        match (tag, &mut self.session) {
            (server::COPY_IN_RESPONSE, Session::Running(_)) => {
                let copying = |plan| Session::Copying(Copying::Data, plan);
                self.session.with_plan(copying);
            }
            (server::ERROR_RESPONSE, Session::Copying(Copying::Data, _)) => {
                self.end_data();
            }
            (server::ERROR_RESPONSE, Session::Serving(_, served, _)) => served.preparing_failed(),
            _ => {}
        }
        if answer.served.is_some() && tag == server::PARAMETER_DESCRIPTION {
            return;
        }
        let served = answer.served.as_ref();
        let other = as_yielded(frame, cx)
            .or_else(|| as_chosen(frame, answer.row))
            .or_else(|| described::of_portal(frame, served?))
            .or_else(|| answer.empty.map(completed));
        let nothing = self.is_in_vain().then(|| as_nothing(frame)).flatten();
        let is_dropped = nothing.as_ref().is_some_and(Option::is_none);
        let other = other.or(nothing.flatten());
        let frame = other.as_ref().unwrap_or(frame);
        if !is_dropped && self.keep_row(frame, answer.row.ordered, out, cx) {
            return;
        }
        self.note_answer(frame, answer.row.ordered, cx);
        let withheld = answer.owner == Owner::Withheld && tag == server::READY_FOR_QUERY;
        if !is_dropped && (!withheld || self.is_failed_split()) {
            self.tell(frame, out, cx);
        }
        if tag == server::READY_FOR_QUERY {
            self.on_ready(cx);
        }
    }

    fn is_wrapped(&self) -> bool {
        let open = self.transaction.as_ref();
        open.is_some_and(|open| open.kind == Kind::Wrapped)
    }

    fn note_parameter(&mut self, tag: u8, body: &[u8]) {
        if tag != server::PARAMETER_STATUS {
            return;
        }
        if let Ok((name, value)) = server::parse_parameter_status(body) {
            self.settings.note(name, value);
            if name == b"application_name" {
                self.application = self.request_named(value);
            }
        }
    }

    /// An answer to the client: what it says of the transaction.
    fn note_answer(&mut self, frame: &Frame, ordered: bool, cx: &mut impl Context) {
        let (tag, body) = (frame.tag(), frame.body());
        let error = match tag {
            server::ERROR_RESPONSE => server::Fields::parse(body).ok(),
            _ => None,
        };
        if error
            .as_ref()
            .is_some_and(|error| error.sqlstate() == b"25006")
            && let Some(statement) = self.outside.take()
        {
            cx.outside_write_refused(&statement);
        }
        let recorded = self.options.code == Code::Recorded;
        if let Some(open) = &mut self.transaction {
            if matches!(
                tag,
                server::DATA_ROW | server::COPY_DATA | server::FUNCTION_CALL_RESPONSE
            ) {
                let first = recorded && open.transcript.is_at_first_row();
                let description = first.then(|| self.answers.description()).flatten();
                let text = match tag {
                    server::DATA_ROW => self.answers.row(body, &self.settings),
                    _ => body,
                };
                open.note_row(ordered, body, text);
                if recorded && tag == server::DATA_ROW {
                    open.transcript.row(description.as_deref(), text);
                }
                if tag != server::FUNCTION_CALL_RESPONSE {
                    return;
                }
            }
            // A call is through with its one answer.
            let (tag, body) = match tag {
                server::FUNCTION_CALL_RESPONSE => (server::COMMAND_COMPLETE, call::COMPLETED),
                _ => (tag, body),
            };
            if recorded {
                open.transcript.answer(tag, body);
            }
            let noted = open.note_answer(tag, body, error.as_ref());
            if let Some(tx) = open.run() {
                if noted.took_snapshot {
                    cx.took_snapshot(tx);
                }
                if noted.took_snapshot || !noted.looked.is_empty() {
                    cx.looking(open.looking());
                }
                noted.looked.for_each(|nth| cx.looked(tx, nth));
                if let Some(statement) = noted.locked {
                    cx.locked(tx, statement);
                }
            }
        }
        match (&mut self.split, tag) {
            (Some(split), server::ERROR_RESPONSE) => {
                split.rest.clear();
                split.failed = true;
            }
            (Some(split), server::COMMAND_COMPLETE) => split.completed += 1,
            _ => {}
        }
    }

    /// The server is ready; the client may or may not have heard of it.
    fn on_ready(&mut self, cx: &mut impl Context) {
        self.outside = None;
        if let Session::Copying(..) = self.session {
            self.session.with_plan(Session::Running);
        }
        if self.status != Status::Idle || self.is_wrapped() {
            return;
        }
        let Some(open) = self.transaction.take() else {
            return;
        };
        cx.entered(None);
        if let Some(claim) = open.followed() {
            if let (Kind::Direct, Claim::Run(tx)) = (open.kind, claim) {
                cx.took_snapshot(tx);
            }
            cx.ended(claim, open.into_ended());
        } else {
            cx.came(open.claim(), open.hashes());
        }
    }

    fn on_own_outcome(&mut self, own: Own, outcome: Outcome, cx: &mut impl Context) {
        let open = self.transaction.as_mut();
        match (own, outcome.error) {
            // Without an answer of either kind it was ignored, because the client's batch had
            // failed before it.
            (Own::Snapshot(tx), None) if !outcome.tag.is_empty() => {
                // Under READ COMMITTED it is not the one that the statement behind it runs with.
                if !open.is_some_and(|open| open.awaits_snapshot()) {
                    cx.took_snapshot(tx);
                }
            }
            (Own::Early(tx, nth), None) if !outcome.values.is_empty() => {
                if let Some(open) = open {
                    open.looked_early(nth);
                }
                cx.looked(tx, nth);
            }
            (Own::Commit, error) => {
                if let Some(open) = open {
                    open.own_commit = OwnCommit {
                        worked: error.is_none() && outcome.tag == "COMMIT\0",
                        error,
                    };
                }
            }
            (Own::Identify { .. }, None) => {
                let number = |value: &Bytes| std::str::from_utf8(value).ok()?.parse().ok();
                let ids: Vec<u64> = outcome.values.iter().filter_map(number).collect();
                if let Some(open) = open
                    && !is_undone(open, &ids, cx)
                    && !ids.is_empty()
                    && let Some(claim) = open.followed()
                {
                    cx.wrote(claim, ids, &open.texts);
                }
            }
            (Own::Rollback | Own::Resync, _) => {}
            (_, Some(error)) => {
                if let Some(open) = open {
                    open.note_own_error(&error);
                }
            }
            (_, None) => {}
        }
    }

    // ---- carrying out -----------------------------------------------------------------------

    fn go_on(&mut self, out: &mut Wires, cx: &mut impl Context) -> Next {
        let next = self.advance(out, cx);
        self.kept.say(out);
        next
    }

    fn advance(&mut self, out: &mut Wires, cx: &mut impl Context) -> Next {
        loop {
            let advance = match &mut self.session {
                Session::Starting | Session::Authenticating | Session::Waiting(_) => {
                    return Next::Continue;
                }
                Session::Idle if self.answers.is_empty() => match self.give_answer(out, cx) {
                    Some(wait) => Ok(Advance::Stop(wait)),
                    None => self.plan_next(out, cx),
                },
                // Of a session that has ended.
                Session::Idle => return Next::Continue,
                Session::Running(plan) | Session::Copying(_, plan) if plan.steps.is_empty() => {
                    self.session = Session::Idle;
                    Ok(Advance::More)
                }
                Session::Serving(_, _, plan) if plan.steps.is_empty() => {
                    Ok(self.serve_next(out, cx))
                }
                Session::Running(_) | Session::Copying(..) | Session::Serving(..) => {
                    self.take_step(out, cx)
                }
            };
            match advance {
                Ok(Advance::More) => {}
                Ok(Advance::Stop(next)) => return next,
                Err(Unplanned::Close) => return Next::Close,
                Err(Unplanned::Wait(ask)) => return Next::Wait(ask),
            }
        }
    }

    fn take_step(&mut self, out: &mut Wires, cx: &mut impl Context) -> Result<Advance, Unplanned> {
        let plan = self.session.plan().expect("there are steps");
        let is_answered = self.answers.is_empty();
        if !is_answered && plan.settles(|tx| cx.commits_freely(tx)) {
            self.forward_data(out);
            return Ok(Advance::Stop(Next::Continue));
        }
        match plan.steps.pop_front().expect("there is one") {
            Step::AtOnce {
                bytes,
                expect,
                at_once,
            } => self.answer_at_once(&bytes, expect, at_once, out, cx),
            Step::Send { bytes, expect } => {
                self.kept.wire(out).put_slice(&bytes);
                let statements = expect.iter().map(|(expect, _)| expect.statements()).sum();
                for (expect, owner) in expect {
                    self.answers.expect(expect, owner);
                }
                self.note_sent(statements, cx);
            }
            // The batch has failed before this. The server ignores the rest of it, and the client
            // finds out by itself.
            Step::Hold(_) | Step::Own(_) if self.answers.is_skipping() => {}
            // What failed has nothing to commit.
            Step::Hold(Ask::Commit(_)) | Step::Own(Own::Identify { .. })
                if self.status == Status::Failed => {}
            // What has written nothing is committed as it is, and what has is not.
            Step::Own(Own::Undo | Own::Rollback) if self.has_tried() == Some(false) => {}
            Step::Own(Own::Undo) if self.status == Status::Failed => {}
            Step::Own(Own::Commit) if self.has_tried() == Some(true) => {}
            Step::Own(own) => self.send_own(own, out, cx)?,
            Step::Settle => {}
            Step::Stopped { shape } => {
                let commit = self.transaction.as_ref().map(|open| &open.own_commit);
                cx.stopped(match commit {
                    Some(commit) if commit.worked => Stopped::Committed { shape },
                    commit => Stopped::Failed {
                        error: commit.and_then(OwnCommit::error_text),
                    },
                });
                return Ok(self.stop());
            }
            Step::CannotStop => {
                cx.stopped(Stopped::InOneText);
                return Ok(self.stop());
            }
            Step::Hold(ask) => {
                self.skip(ask, cx);
                self.asks_to_see(ask, cx);
                if let Ask::Commit(_) = ask {
                    self.asked = Some(ask);
                }
                self.session.with_plan(Session::Waiting);
                return Ok(Advance::Stop(Next::Wait(ask)));
            }
            Step::Serve {
                tx,
                frames,
                completed,
            } => self.serve(tx, frames, completed, cx)?,
            Step::Ran => {
                if let Some(tx) = self.transaction.as_ref().and_then(Open::run) {
                    cx.ran(tx);
                }
            }
            Step::Ready => self.finish_wrapped(out, cx),
        }
        Ok(Advance::More)
    }

    /// So many statements of the client are sent.
    fn note_sent(&mut self, statements: u32, cx: &mut impl Context) {
        if let Some(open) = &mut self.transaction {
            open.note_sent_statements(statements);
            cx.looking(open.looking());
        }
    }

    /// A step is asked for: others need not wait for looks that it has left out.
    fn skip(&mut self, ask: Ask, cx: &mut impl Context) {
        let Some(open) = &mut self.transaction else {
            return;
        };
        match ask {
            Ask::Look(tx, nth) => {
                if open.skip_snapshot() {
                    cx.took_snapshot(tx);
                }
                open.skip_to(nth).for_each(|nth| cx.looked(tx, nth));
            }
            // What takes a lock looks at nothing, and may have to come behind who looks later.
            Ask::Commit(tx) if open.asks_again() && open.skip_snapshot() => cx.took_snapshot(tx),
            Ask::Lock(tx, statement)
                if open.takes_snapshot_at(statement) && open.skip_snapshot() =>
            {
                cx.took_snapshot(tx);
            }
            Ask::Change(tx, statement) => cx.asks_to_change(tx, statement),
            _ => {}
        }
    }

    /// A step is asked for: it may be what a statement is to see that only reads.
    fn asks_to_see(&mut self, ask: Ask, cx: &mut impl Context) {
        let reads = self.session.plan().is_some_and(|plan| plan.reads_once);
        let open = self.transaction.as_ref();
        let is_own = open.is_some_and(|open| open.kind == Kind::Explicit && open.run().is_some());
        let looks = matches!(ask, Ask::Snapshot(_) | Ask::Look(..));
        if reads && is_own && looks && self.options.code == Code::Recorded {
            self.asked = Some(ask);
            cx.asks_to_see(ask);
        }
    }

    fn has_tried(&self) -> Option<bool> {
        self.transaction.as_ref().and_then(Open::has_tried)
    }

    /// The session goes no further.
    fn stop(&mut self) -> Advance {
        self.session.with_plan(Session::Waiting);
        let stop = self.options.stop.expect("a transaction is to be stopped");
        Advance::Stop(Next::Wait(Ask::Stop(stop.tx)))
    }

    fn send_own(
        &mut self,
        own: Own,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> Result<(), Unplanned> {
        if let Own::ReadWrite(isolation) = own
            && self.kept.begins_as(Own::Begin(isolation).text())
        {
            return Ok(());
        }
        let settings = match own {
            Own::Snapshot(tx) if self.options.pinned => Some(cx.pins(tx)?.settings(0)),
            Own::PinAgain(tx, from) if self.options.pinned => Some(cx.pins(tx)?.settings(from)),
            Own::Snapshot(_) | Own::PinAgain(..) => Some(Default::default()),
            _ => None,
        };
        self.own
            .send(own, settings, &mut self.answers, self.kept.wire(out));
        Ok(())
    }

    /// The client's autocommitted transaction is over, by a commit or rollback of ours.
    fn finish_wrapped(&mut self, out: &mut Wires, cx: &mut impl Context) {
        let Some(mut open) = self.transaction.take() else {
            return;
        };
        if let Some(tx) = open.run() {
            self.withheld.begin(tx, cx);
        }
        if let Some(error) = open.own_commit.error.take() {
            self.withheld.wire(out).put_slice(&error);
        }
        if !self.is_within_split() {
            server::ready_for_query(self.withheld.wire(out), Status::Idle);
        }
        cx.entered(None);
        match open.followed() {
            Some(claim) => cx.ended(claim, open.into_ended()),
            None => cx.came(open.claim(), open.hashes()),
        }
    }
}

/// Whether a transaction is one whose writes are undone. It has these ids if it wrote.
fn is_undone(open: &mut Open, ids: &[u64], cx: &mut impl Context) -> bool {
    let Some(tried) = &mut open.tried else {
        return false;
    };
    tried.wrote = !ids.is_empty();
    if tried.wrote {
        cx.outside_write_undone(&tried.statement);
    }
    true
}
