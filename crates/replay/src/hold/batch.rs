//! Plans what to do with one batch of the client's messages.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hindcast_order::Tx;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{self, Dialect, Script, Statement};
use hindcast_wire::{Status, Wires};

use super::answers::{Expect, Owner, Rows};
use super::enter::any_alone;
use super::names::{Batch, Message, Prepared, Values};
use super::own::Own;
use super::plan::{Plan, Step};
use super::split::mixes;
use super::transaction::{Kind, Open};
use super::{Advance, Code, Context, Holder, Next, Session, Unplanned};
use crate::reading::only_reads;
use crate::setup::asks_aside;
use crate::transaction::{Ask, Claim, Stop};
use crate::transcript::Transcript;

/// A portal that there is not: to close it is no error.
const NO_PORTAL: &[u8] = b"hindcast_nothing";

impl Holder {
    /// Plans the next batch, if a whole one is there.
    pub(super) fn plan_next(
        &mut self,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> Result<Advance, Unplanned> {
        let failed = self.split.as_ref().is_some_and(|split| split.failed);
        if let Some(text) = self.next_of_split() {
            self.session = Session::Running(self.plan_query(&text, cx)?);
            return Ok(Advance::More);
        }
        if failed && self.is_wrapped() {
            let mut plan = Plan::default();
            self.leave_wrapped(&[], cx, &mut plan);
            self.session = Session::Running(plan);
            return Ok(Advance::More);
        }
        let ends = |frame: &Frame| {
            !matches!(
                frame.tag(),
                client::PARSE | client::BIND | client::EXECUTE | client::DESCRIBE | client::CLOSE
            )
        };
        if self.answers.is_skipping() {
            self.drop_ignored();
        }
        let Some(end) = self.queue.iter().position(ends) else {
            return Ok(Advance::Stop(Next::Continue));
        };
        let unsynced = matches!(self.queue[end].tag(), client::QUERY | client::FUNCTION_CALL);
        if unsynced && end > 0 {
            // What comes before it has a batch of its own.
            let mut flush = BytesMut::new();
            client::flush(&mut flush);
            self.queue.insert(end, Frame(flush.freeze()));
        }
        let batch: Vec<Frame> = self.queue.drain(..=end).collect();
        let last = batch.last().expect("the batch has its end");
        let planned = match last.tag() {
            client::QUERY => {
                cx.given(last);
                self.plan_simple(last, cx)
            }
            client::SYNC | client::FLUSH => self.plan_extended(batch.clone(), cx),
            client::FUNCTION_CALL => self.plan_call(last, cx),
            // Terminate; data of a COPY that the server has given up on.
            _ => {
                out.to_server.extend_from_slice(&concat(&batch));
                return Ok(Advance::More);
            }
        };
        match planned {
            Ok(plan) => self.session = Session::Running(plan),
            Err(unplanned) => {
                if let Unplanned::Wait(_) = unplanned {
                    self.queue = batch.into_iter().chain(self.queue.drain(..)).collect();
                    self.session = Session::Waiting(Plan::default());
                }
                return Err(unplanned);
            }
        }
        Ok(Advance::More)
    }

    /// A flushed batch has failed. The server ignores what follows, a `Query` too, up to a `Sync`.
    fn drop_ignored(&mut self) {
        let heeded = |frame: &Frame| matches!(frame.tag(), client::SYNC | client::TERMINATE);
        let ignored = self.queue.iter().position(heeded);
        self.queue.drain(..ignored.unwrap_or(self.queue.len()));
    }

    // ---- simple protocol --------------------------------------------------------------------

    fn plan_simple(&mut self, query: &Frame, cx: &mut impl Context) -> Result<Plan, Unplanned> {
        let text = client::parse_query(query.body()).unwrap_or_default();
        let script = self.options.scripts.get(text, Dialect::default());
        if !mixes(&script) {
            return self.plan_query(text, cx);
        }
        let first = self.split(text, &script);
        self.plan_query(&first, cx)
    }

    fn plan_query(&mut self, text: &[u8], cx: &mut impl Context) -> Result<Plan, Unplanned> {
        let script = self.options.scripts.get(text, Dialect::default());
        let of_split = || self.split.as_ref().and_then(|split| split.request);
        let named = self.request_in(text).or_else(of_split);
        let statements: Vec<&Statement> = script.statements.iter().collect();
        let mut plan = Plan::default();
        if self.transaction.is_none() {
            self.end_implicit(&mut plan);
        }
        self.unsynced = false;
        plan.reads_once = reads_once(&statements);
        let first = statements.iter().find(|one| one.takes_snapshot);
        let values = first
            .map(|first| Values::of(first, None))
            .unwrap_or_default();
        if let Some(tx) = self.enter(&statements, values, named, cx, &mut plan)? {
            let mut message = BytesMut::new();
            client::query(&mut message, text);
            plan.steps.push_back(Step::Serve {
                tx,
                frames: vec![Frame(message.freeze())],
                completed: self.split.take().map_or(0, |split| split.completed),
            });
            return Ok(plan);
        }
        if !self.looks_within(&script) {
            return Ok(self.plan_entered(text, &script, plan, cx));
        }
        let first = self.split(text, &script);
        let script = self.options.scripts.get(&first, Dialect::default());
        Ok(self.plan_entered(&first, &script, plan, cx))
    }

    /// Plans a text of which it is known which transaction it is a part of.
    fn plan_entered(
        &mut self,
        text: &[u8],
        script: &Script,
        mut plan: Plan,
        cx: &mut impl Context,
    ) -> Plan {
        let statements: Vec<&Statement> = script.statements.iter().collect();
        let first = statements.iter().find(|one| one.takes_snapshot);
        let within_split = self.is_within_split();
        if self.stops_within(statements.len()) {
            plan.steps.push_back(Step::CannotStop);
        }
        // The server runs the text as a whole, so it is held only where it begins.
        let is_one = statements.len() == 1;
        let goes_on = first.is_some_and(|first| is_one && self.look_early(first, &mut plan));
        let look = first.and_then(|first| self.next_look(first));
        plan.steps.extend(look.map(Step::Hold));
        let of_ghost = self.text_of_ghost(&statements);
        let text = of_ghost.as_deref().unwrap_or(text);
        for statement in &statements {
            self.put_ahead(statement, goes_on, cx, &mut plan);
            plan.steps.extend(self.before(statement));
        }
        self.transcribe(|transcript| transcript.text(text));
        let wrapped = self.is_wrapped();
        let owner = match wrapped || within_split {
            true => Owner::Withheld,
            false => Owner::Client,
        };
        let rows = statements.iter().map(|one| self.rows(one)).collect();
        let text = self.rewritten(text, goes_on);
        let at_once = self.at_once(&statements, &plan);
        plan.message([(Expect::Query { rows }, owner)], |bytes| {
            client::query(bytes, &text)
        });
        plan.send();
        if let Some(at_once) = at_once {
            plan.answer_at_once(at_once);
        }
        plan.settle();
        if wrapped && !within_split {
            self.leave_wrapped(&statements, cx, &mut plan);
        }
        self.leave_company(&statements, &mut plan);
        plan
    }

    // ---- extended protocol ------------------------------------------------------------------

    fn plan_extended(
        &mut self,
        frames: Vec<Frame>,
        cx: &mut impl Context,
    ) -> Result<Plan, Unplanned> {
        // What the batch executes, and which request its texts name, must be known before the first
        // message goes out.
        let batch = self.read(frames);
        batch.note_executed();
        let statements: Vec<&Statement> = batch.executed().collect();
        let last = batch.messages.last().expect("the batch has its end");
        let synced = last.frame.tag() == client::SYNC;
        let mut plan = Plan::default();
        plan.reads_once = reads_once(&statements);
        let mut serve_from = None;
        if self.transaction.is_none() && !statements.first().is_some_and(|first| begins(first)) {
            if statements.iter().any(|statement| statement.takes_snapshot) {
                self.end_implicit(&mut plan);
            }
            let values = batch.values_from(0);
            if let Some(tx) = self.enter(&statements, values, batch.named, cx, &mut plan)? {
                serve_from = Some((tx, 0));
            }
        }
        let wrapped = self.is_wrapped();
        if serve_from.is_none() {
            serve_from = self.plan_messages(&batch, wrapped, cx, &mut plan)?;
        }
        if let Some((tx, at)) = serve_from {
            plan.steps.push_back(Step::Serve {
                tx,
                frames: batch.frames_from(at),
                completed: 0,
            });
            return Ok(plan);
        }
        plan.send();
        if synced && let Some(at_once) = self.batch_at_once(&batch, &statements) {
            plan.answer_at_once(at_once);
        }
        plan.settle();
        if synced && wrapped {
            self.leave_wrapped(&statements, cx, &mut plan);
        }
        self.leave_company(&statements, &mut plan);
        self.unsynced = !synced;
        Ok(plan)
    }

    /// Plans messages up to the first that is to be served from the recording; then what and from
    /// where on.
    fn plan_messages(
        &mut self,
        batch: &Batch,
        wrapped: bool,
        cx: &mut impl Context,
        plan: &mut Plan,
    ) -> Result<Option<(Tx, usize)>, Unplanned> {
        for (message, at) in batch.messages.iter().zip(0..) {
            let tag = message.frame.tag();
            // The snapshot of an explicit transaction: before the first message that makes the
            // server take one.
            if matches!(tag, client::PARSE | client::BIND)
                && let Some(first) = message.statement()
                && first.takes_snapshot
                && self.is_unclaimed()
                && self.status != Status::Failed
            {
                match batch.only_begins_before(at) {
                    true => plan.send(),
                    false => plan.send_and_settle(),
                }
                let values = batch.values_from(at);
                if let Some(tx) = self.enter(&[first], values, batch.named, cx, plan)? {
                    return Ok(Some((tx, at)));
                }
            }
            // A portal looks when it is bound.
            let mut goes_on = false;
            if tag == client::BIND
                && let Some(statement) = message.statement().filter(|one| one.takes_snapshot)
            {
                goes_on = self.look_early(statement, plan);
                if let Some(look) = self.next_look(statement) {
                    plan.wait(vec![Step::Hold(look)]);
                }
            }
            // What is bound would be gone after a statement of ours.
            if tag == client::BIND
                && let Some(statement) = message.statement()
            {
                self.put_ahead(statement, goes_on, cx, plan);
            }
            if tag == client::BIND {
                self.note_laid(message, cx);
                cx.given(&message.frame);
            }
            self.names.apply(message);
            if !(goes_on && self.bind_locking(message, plan)) {
                self.plan_message(message, wrapped, plan);
            }
            if let Some(open) = &mut self.transaction {
                // What a driver asks for itself is no part of what is served.
                let is_part =
                    open.claim().is_some() || !message.statement().is_some_and(asks_aside);
                open.note_sent(is_part.then_some(tag), batch.named);
            }
        }
        Ok(None)
    }

    fn plan_message(&mut self, message: &Message, wrapped: bool, plan: &mut Plan) {
        let of_ghost = match message.frame.tag() {
            client::BIND => self.bind_of_ghost(message),
            _ => None,
        };
        let frame = of_ghost.as_ref().unwrap_or(&message.frame);
        match frame.tag() {
            client::PARSE => {
                plan.message([(Expect::Parse, Owner::Client)], |bytes| {
                    self.put_parse(frame, bytes)
                });
            }
            client::EXECUTE => {
                let statement = message.statement();
                if let Some(statement) = statement {
                    if self.transaction.is_none() && begins(statement) {
                        self.transaction = Some(Open::unclaimed(None));
                    }
                    let waits = self.before(statement);
                    if let Some(about) = &message.about
                        && let Some(bind) = &about.bind
                    {
                        self.transcribe(|to| to.executed(about.prepared.parse(), bind));
                    }
                    if !waits.is_empty() {
                        plan.wait(waits);
                    }
                }
                if let Some(nothing) = self.completes_at_once(statement) {
                    let expect = (Expect::Nothing(nothing), Owner::Client);
                    plan.message([expect], |bytes| {
                        client::close(bytes, client::Target::Portal(NO_PORTAL));
                    });
                    return;
                }
                let expect = Expect::Execute {
                    rows: statement.map_or(Rows::default(), |one| self.rows(one)),
                    of: message.about.clone(),
                };
                plan.message([(expect, Owner::Client)], |bytes| {
                    bytes.extend_from_slice(&frame.0)
                });
            }
            tag => {
                let owner = match tag {
                    client::SYNC if wrapped => Owner::Withheld,
                    _ => Owner::Client,
                };
                let expect = expectation(message).map(|expect| (expect, owner));
                plan.message(expect, |bytes| bytes.extend_from_slice(&frame.0));
            }
        }
    }

    fn is_unclaimed(&self) -> bool {
        let open = self.transaction.as_ref();
        open.is_some_and(|open| open.claim().is_none())
    }

    fn prepare(&self, text: &[u8]) -> Prepared {
        let script = self.options.scripts.get(text, Dialect::default());
        Prepared::new(script, self.request_in(text))
    }

    /// What messages are about.
    pub(super) fn read(&self, frames: Vec<Frame>) -> Batch {
        Batch::of(&self.names, frames, |text| self.prepare(text))
    }

    // ---- both -------------------------------------------------------------------------------

    /// Parse and Flush opened an implicit transaction, which must not be the one that BEGIN finds.
    pub(super) fn end_implicit(&mut self, plan: &mut Plan) {
        if self.unsynced {
            self.sync(plan);
        }
    }

    pub(super) fn sync(&mut self, plan: &mut Plan) {
        plan.message([(Expect::Sync, Owner::Own)], client::sync);
        plan.send();
        plan.settle();
        self.own.note_sync();
    }

    /// Has taken down what the statement that comes next sees, if it waited originally. Returns
    /// whether it is to go on with that.
    fn look_early(&mut self, statement: &Statement, plan: &mut Plan) -> bool {
        let may = self.options.imposes && self.status != Status::Failed;
        let open = self.transaction.as_mut().filter(|_| may);
        let Some((tx, nth)) = open.and_then(|open| open.early_look(statement)) else {
            return false;
        };
        plan.send_and_settle();
        plan.hold(Ask::Look(tx, nth));
        plan.own(Own::Early(tx, nth));
        plan.settle();
        true
    }

    /// What the statement that comes next is to see, if that is not what the one before it saw.
    pub(super) fn next_look(&mut self, statement: &Statement) -> Option<Ask> {
        let is_failed = self.status == Status::Failed;
        let open = self.transaction.as_mut().filter(|_| !is_failed)?;
        open.next_look(statement)
    }

    /// Plans statements of ours without which the one that comes next would do something else.
    /// `goes_on`: see [`look_early`](Self::look_early).
    pub(super) fn put_ahead(
        &mut self,
        statement: &Statement,
        goes_on: bool,
        cx: &mut impl Context,
        plan: &mut Plan,
    ) {
        let recorded = self.options.code == Code::Recorded;
        let commits = matches!(
            statement.kind,
            sql::Kind::Commit { .. } | sql::Kind::PrepareTransaction { .. }
        );
        if commits {
            self.depart(Some(statement), cx);
        }
        if commits && self.has_tried().is_some() {
            plan.send_and_settle();
            plan.own(Own::Identify {
                subtransactions: false,
            });
            plan.settle();
            plan.own(Own::Undo);
            plan.settle();
            return;
        }
        let Some(open) = &mut self.transaction else {
            return;
        };
        let mut own = Vec::new();
        if statement.tries {
            own.extend(match open.is_granted(statement, !recorded) {
                Some(true) => Some(Own::GrantLock),
                Some(false) => Some(Own::RefuseLock),
                None => None,
            });
        }
        if statement.kind == sql::Kind::Savepoint && open.note_savepoint(statement) && recorded {
            own.push(Own::Writable);
        }
        if statement.takes_snapshot
            && let Some(tx) = open.run()
            && let Some(from) = open.pins_again(statement)
        {
            own.push(Own::PinAgain(tx, from));
        }
        if statement.kind == sql::Kind::RollbackTo {
            open.note_rollback_to(statement);
        }
        // Statements of ours have snapshots of their own.
        own.extend(goes_on.then_some(Own::GoOn));
        put_own(own, plan);
    }

    /// A statement of the open transaction is about to be sent: counts it. Returns what it has to
    /// wait for.
    pub(super) fn before(&mut self, statement: &Statement) -> Vec<Step> {
        if matches!(
            statement.kind,
            sql::Kind::Discard { all: true } | sql::Kind::Deallocate { name: None }
        ) {
            self.own.forget_prepared();
        }
        let changed = self.options.code != Code::Recorded;
        let mut steps = Vec::new();
        let Some(open) = &mut self.transaction else {
            return steps;
        };
        steps.extend(stop(open, self.options.stop));
        let index = open.note_statement(statement, changed);
        let followed = open.followed().filter(|_| self.status != Status::Failed);
        let Some(claim) = followed else {
            return steps;
        };
        if let Claim::Run(tx) = claim
            && let Some(recorded) = open.changes(index)
        {
            open.note_lock(index);
            steps.push(Step::Hold(Ask::Change(tx, recorded)));
        }
        if open.loses(index) {
            open.note_lock(index);
        }
        match claim {
            Claim::Run(tx) if changed && open.acts_late && !only_reads(statement) => {
                open.acts_late = false;
                steps.push(Step::Hold(Ask::Act(tx)));
            }
            Claim::Run(tx) if let Some(recorded) = open.inserts(index) => {
                open.note_lock(index);
                steps.push(Step::Hold(Ask::Insert(tx, recorded)));
            }
            Claim::Run(tx) if let Some(recorded) = open.locks(statement, index, changed) => {
                open.note_lock(index);
                // From here on it may wait for others, here for its turn and in the database for a
                // commit. They must not wait for this: whose snapshot is the older need not have
                // been the first to lock.
                steps.extend((!changed).then_some(Step::Ran));
                steps.push(Step::Hold(Ask::Lock(tx, recorded)));
            }
            _ => {}
        }
        if matches!(
            statement.kind,
            sql::Kind::Commit { .. } | sql::Kind::PrepareTransaction { .. }
        ) {
            steps.extend(before_commit(open, claim));
        }
        steps
    }

    /// A statement is about to be sent: what is known of its rows.
    fn rows(&mut self, statement: &Statement) -> Rows {
        let recorded = self.options.code == Code::Recorded;
        let shown = self.access.shown(statement).filter(|_| recorded);
        self.access.note(statement);
        Rows {
            ordered: statement.ordered,
            shown,
        }
    }

    /// Keeps what the client sends for its transaction.
    pub(super) fn transcribe(&mut self, keep: impl FnOnce(&mut Transcript)) {
        if let Some(open) = &mut self.transaction
            && self.options.code == Code::Recorded
        {
            keep(&mut open.transcript);
        }
    }

    /// Whether the open transaction is to be stopped between the statements of a text with so many.
    fn stops_within(&self, count: usize) -> bool {
        let open = self.transaction.as_ref();
        open.zip(self.options.stop).is_some_and(|(open, stop)| {
            let first = open.statements();
            let within = first + 1..first + count as u32;
            open.run() == Some(stop.tx) && within.contains(&stop.statement)
        })
    }

    pub(super) fn leave_wrapped(
        &mut self,
        statements: &[&Statement],
        cx: &mut impl Context,
        plan: &mut Plan,
    ) {
        self.depart(None, cx);
        // Data of a `COPY` would be taken for what follows, and the rest of a text is not run where
        // a part of it fails.
        plan.commits_at_once = self.split.is_none() && statements.iter().all(|one| is_plain(one));
        if let Some(open) = &self.transaction {
            plan.steps.extend(stop(open, self.options.stop));
        }
        if let Some(open) = &self.transaction
            && let Some(claim) = open.followed()
        {
            plan.steps.extend(before_commit(open, claim));
        }
        if self.has_tried().is_some() {
            plan.own(Own::Identify {
                subtransactions: false,
            });
            plan.settle();
            plan.own(Own::Rollback);
        }
        plan.own(Own::Commit);
        plan.settle();
        plan.steps.push_back(Step::Ready);
    }

    fn leave_company(&mut self, statements: &[&Statement], plan: &mut Plan) {
        let open = self.transaction.as_ref();
        let direct = open.is_some_and(|open| open.kind == Kind::Direct);
        let alone = self.options.code == Code::Recorded && direct && any_alone(statements);
        if plan.secluded {
            plan.own(Own::SessionReadOnly(false));
            plan.settle();
        }
        if alone {
            plan.own(Own::SessionReadOnly(true));
            plan.settle();
        }
    }

    /// A message that only prepares, in a batch that is otherwise served from the recording: the
    /// server answers it, outside of any transaction.
    pub(super) fn plan_live(&mut self, frame: &Frame) -> Plan {
        let mut plan = Plan::default();
        let batch = self.read(vec![frame.clone()]);
        let message = &batch.messages[0];
        if frame.tag() == client::PARSE {
            self.names.apply(message);
            plan.message([(Expect::Parse, Owner::Client)], |bytes| {
                self.put_parse(frame, bytes)
            });
        } else {
            let expect = expectation(message).expect("Describe and Close are answered");
            plan.message([(expect, Owner::Client)], |bytes| {
                bytes.extend_from_slice(&frame.0)
            });
        }
        self.sync(&mut plan);
        plan
    }

    /// The same of messages that bind and run one statement.
    pub(super) fn plan_live_portal(&mut self, frames: Vec<Frame>) -> Plan {
        let mut plan = Plan::default();
        for message in &self.read(frames).messages {
            self.plan_message(message, false, &mut plan);
        }
        self.sync(&mut plan);
        plan
    }

    /// The same of a text. The client does not hear yet that the server is ready.
    pub(super) fn plan_live_text(&mut self, query: &Frame) -> Plan {
        let mut plan = Plan::default();
        let rows = vec![Rows::default()];
        plan.message([(Expect::Query { rows }, Owner::Withheld)], |bytes| {
            bytes.extend_from_slice(&query.0)
        });
        plan.send();
        plan.settle();
        plan
    }
}

/// What is done where a transaction is to be stopped, if that is here.
fn stop(open: &Open, stop: Option<Stop>) -> Vec<Step> {
    let here = |stop: &Stop| open.run() == Some(stop.tx) && open.statements() == stop.statement;
    let Some(stop) = stop.filter(here) else {
        return Vec::new();
    };
    vec![
        Step::Hold(Ask::Stop(stop.tx)),
        Step::Own(Own::Commit),
        Step::Settle,
        Step::Stopped {
            shape: open.shape(),
        },
    ]
}

/// What comes before a commit, the client's or ours.
fn before_commit(open: &Open, claim: Claim) -> Vec<Step> {
    let mut steps = Vec::new();
    // Only changed code has this noted, and of that only what may have written.
    if !open.only_read {
        let subtransactions = open.savepoints;
        steps.extend([Step::Own(Own::Identify { subtransactions }), Step::Settle]);
    }
    if let Claim::Run(tx) = claim {
        steps.extend([Step::Ran, Step::Hold(Ask::Commit(tx))]);
    }
    steps
}

/// Whether a statement is answered by rows and a completion, or fails.
fn is_plain(statement: &Statement) -> bool {
    use sql::Kind::{Delete, Insert, Merge, Select, Update};
    matches!(statement.kind, Select | Insert | Update | Delete | Merge)
}

/// Whether one of these statements looks, and does nothing but read.
fn reads_once(statements: &[&Statement]) -> bool {
    let mut looking = statements.iter().filter(|one| one.takes_snapshot);
    looking.next().is_some_and(|one| only_reads(one)) && looking.next().is_none()
}

fn begins(statement: &Statement) -> bool {
    matches!(statement.kind, sql::Kind::Begin { .. })
}

fn expectation(message: &Message) -> Option<Expect> {
    match message.frame.tag() {
        client::BIND => Some(Expect::Bind),
        client::CLOSE => Some(Expect::Close),
        client::DESCRIBE => {
            let about = message.about.as_ref();
            Some(Expect::Describe(
                about.map(|about| Arc::clone(&about.prepared)),
            ))
        }
        client::SYNC => Some(Expect::Sync),
        _ => None,
    }
}

fn concat(frames: &[Frame]) -> Bytes {
    match frames {
        [one] => one.0.clone(),
        several => several
            .iter()
            .flat_map(|frame| frame.0.iter().copied())
            .collect(),
    }
}

/// Plans statements of ours in front of the client's next one.
fn put_own(own: Vec<Own>, plan: &mut Plan) {
    if !own.is_empty() {
        plan.send_and_settle();
        own.into_iter().for_each(|own| plan.own(own));
        plan.settle();
    }
}
