//! Plans what to do with one batch of the client's messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use hindcast_gateway::pg::Wires;
use hindcast_trace::RequestId;
use hindcast_wire::Status;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::trace::trace_comment;
use hindcast_wire::sql::{self, Company, Edits, Script, Statement};

use super::answers::{Expect, Owner};
use super::enter::Entered;
use super::own::Own;
use super::{Code, Desk, Holder, Kind, Open, Split, Step};
use crate::coordinator::{Ask, Claim};
use crate::shapes::only_reads;

/// A statement that the client prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    script: Arc<Script>,
    /// The request that its comment names. It counts for the first execution only: after that the comment is stale.
    request: Option<RequestId>,
    fresh: AtomicBool,
}

impl Prepared {
    fn statement(&self) -> Option<&Statement> {
        self.script.statements.first()
    }

    fn take_request(&self) -> Option<RequestId> {
        if self.fresh.swap(false, Ordering::Relaxed) {
            self.request
        } else {
            None
        }
    }
}

/// Collects messages for one [`Step::Send`].
#[derive(Default)]
struct Sending {
    bytes: BytesMut,
    expect: Vec<(Expect, Owner)>,
}

impl Sending {
    /// Sends what there is, in the middle of a batch, and has it answered: whether it worked must be known before what follows.
    fn settle_into(&mut self, steps: &mut Vec<Step>) {
        if !self.bytes.is_empty() {
            client::flush(&mut self.bytes);
            self.flush_into(steps);
            steps.push(Step::Settle);
        }
    }

    fn flush_into(&mut self, steps: &mut Vec<Step>) {
        if !self.bytes.is_empty() {
            steps.push(Step::Send {
                bytes: self.bytes.split().freeze(),
                expect: std::mem::take(&mut self.expect),
            });
        }
    }
}

impl Holder {
    /// Plans the next batch, if a whole one is there. False if not.
    pub(super) fn plan_next(&mut self, out: &mut Wires, desk: &mut impl Desk) -> bool {
        if let Some(text) = self.next_of_split() {
            self.plan_query(&text, desk);
            return true;
        }
        let ends = |frame: &Frame| {
            !matches!(
                frame.tag(),
                client::PARSE | client::BIND | client::EXECUTE | client::DESCRIBE | client::CLOSE
            )
        };
        let Some(end) = self.queue.iter().position(ends) else {
            return false;
        };
        let batch: Vec<Frame> = self.queue.drain(..=end).collect();
        let last = batch.last().expect("the batch has its end");
        match last.tag() {
            client::QUERY => self.plan_simple(&batch, desk),
            client::SYNC | client::FLUSH => self.plan_extended(batch, desk),
            client::FUNCTION_CALL => {
                let expect = vec![(Expect::FunctionCall, Owner::Client)];
                self.steps.extend([
                    Step::Send {
                        bytes: concat(&batch),
                        expect,
                    },
                    Step::Settle,
                ]);
            }
            // Terminate; data of a COPY that the server has given up on.
            _ => out.to_server.extend_from_slice(&concat(&batch)),
        }
        true
    }

    // ---- simple protocol ---------------------------------------------------------------------------------------

    fn plan_simple(&mut self, batch: &[Frame], desk: &mut impl Desk) {
        let query = batch.last().expect("a batch is not empty");
        let text = client::parse_query(query.body())
            .unwrap_or_default()
            .to_vec();
        let script = self.options.scripts.get(&text, self.dialect);
        let mixed = script.statements.len() > 1
            && script
                .statements
                .iter()
                .any(|statement| statement.kind.controls_transaction());
        if !mixed || script.unterminated {
            self.plan_query(&text, desk);
            return;
        }
        // BEGIN; …; COMMIT in one message: one at a time, so that there is a moment before each in which to wait.
        let rest = script
            .statements
            .iter()
            .map(|statement| Bytes::copy_from_slice(statement.text(&text)))
            .collect();
        self.split = Some(Split {
            rest,
            request: self.request_in(&text),
            failed: false,
            completed: 0,
        });
        let first = self.next_of_split().expect("there are several");
        self.plan_query(&first, desk);
    }

    fn next_of_split(&mut self) -> Option<Bytes> {
        let split = self.split.as_mut()?;
        let next = split.rest.pop_front();
        if next.is_none() {
            self.split = None;
        }
        next
    }

    fn plan_query(&mut self, text: &[u8], desk: &mut impl Desk) {
        let script = self.options.scripts.get(text, self.dialect);
        let named = self
            .request_in(text)
            .or_else(|| self.split.as_ref().and_then(|split| split.request));
        let last_of_split = self
            .split
            .as_ref()
            .is_none_or(|split| split.rest.is_empty());
        let owner = if last_of_split {
            Owner::Client
        } else {
            Owner::Withheld
        };
        let mut bytes = BytesMut::new();
        client::query(&mut bytes, &self.rewritten(text));
        let ordered = script
            .statements
            .iter()
            .map(|statement| statement.ordered)
            .collect();
        let mut steps = Vec::new();
        let statements: Vec<&Statement> = script.statements.iter().collect();

        match self.enter(&statements, named, desk, &mut steps) {
            Entered::Serve(tx) => {
                let mut message = BytesMut::new();
                client::query(&mut message, text);
                let split = self.split.take();
                steps.push(Step::Serve {
                    tx,
                    frames: vec![Frame(message.freeze())],
                    completed: split.map_or(0, |split| split.completed),
                });
            }
            entered => {
                for statement in &statements {
                    self.before(statement, &mut steps);
                }
                let owner = if entered == Entered::Wrapped {
                    Owner::Withheld
                } else {
                    owner
                };
                steps.push(Step::Send {
                    bytes: bytes.freeze(),
                    expect: vec![(Expect::Query { ordered }, owner)],
                });
                steps.push(Step::Settle);
                if entered == Entered::Wrapped {
                    self.leave_wrapped(&mut steps);
                }
            }
        }
        self.leave_company(&statements, &mut steps);
        self.steps.extend(steps);
    }

    // ---- extended protocol -------------------------------------------------------------------------------------

    fn plan_extended(&mut self, batch: Vec<Frame>, desk: &mut impl Desk) {
        let mut steps = Vec::new();
        let synced = batch
            .last()
            .is_some_and(|frame| frame.tag() == client::SYNC);
        // What the batch executes, and which request its texts name, must be known before the first message goes out.
        let (prepared_before, portals_before) = (self.prepared.clone(), self.portals.clone());
        let mut executed: Vec<(usize, Arc<Prepared>)> = Vec::new();
        let mut named = None;
        for (at, frame) in batch.iter().enumerate() {
            match frame.tag() {
                client::PARSE => {
                    let found = self.note_parse(frame);
                    named = named.or(found.as_ref().and_then(|prepared| prepared.request));
                }
                client::BIND => self.note_bind(frame),
                client::EXECUTE => {
                    if let Ok((portal, _)) = client::parse_execute(frame.body())
                        && let Some(prepared) = self.portals.get(portal)
                    {
                        let fresh = prepared.take_request();
                        named = named.or(fresh);
                        executed.push((at, Arc::clone(prepared)));
                    }
                }
                _ => {}
            }
        }
        (self.prepared, self.portals) = (prepared_before, portals_before);

        let begins = executed.first().is_some_and(|(_, prepared)| {
            prepared
                .statement()
                .is_some_and(|s| matches!(s.kind, sql::Kind::Begin { .. }))
        });
        let statements: Vec<&Statement> = executed
            .iter()
            .filter_map(|(_, prepared)| prepared.statement())
            .collect();

        let mut entered = Entered::Plain;
        if self.transaction.is_none() && !begins {
            if self.unsynced && statements.iter().any(|statement| statement.takes_snapshot) {
                // Parse and Flush opened an implicit transaction, which must not be the one that BEGIN finds.
                let mut bytes = BytesMut::new();
                client::sync(&mut bytes);
                steps.extend([
                    Step::Send {
                        bytes: bytes.freeze(),
                        expect: vec![(Expect::Sync, Owner::Own)],
                    },
                    Step::Settle,
                ]);
                self.own.push_back(Own::Resync);
            }
            entered = self.enter(&statements, named, desk, &mut steps);
        }
        if self
            .transaction
            .as_ref()
            .is_some_and(|open| open.kind == Kind::Wrapped)
        {
            entered = match entered {
                Entered::Serve(tx) => Entered::Serve(tx),
                _ => Entered::Wrapped,
            };
        }
        if let Entered::Serve(tx) = entered {
            steps.push(Step::Serve {
                tx,
                frames: batch,
                completed: 0,
            });
            self.steps.extend(steps);
            return;
        }

        let mut sending = Sending::default();
        for at in 0..batch.len() {
            let frame = &batch[at];
            let statement = self.statement_of(frame);
            // The snapshot of an explicit transaction: before the first message that makes the server take one.
            if matches!(frame.tag(), client::PARSE | client::BIND)
                && let Some(prepared) = &statement
                && prepared
                    .statement()
                    .is_some_and(|statement| statement.takes_snapshot)
                && self
                    .transaction
                    .as_ref()
                    .is_some_and(|open| open.kind == Kind::Explicit && open.claim.is_none())
                && self.status != Status::Failed
            {
                sending.settle_into(&mut steps);
                let first = prepared.statement().expect("just seen");
                match self.enter(&[first], named, desk, &mut steps) {
                    Entered::Serve(tx) => {
                        steps.push(Step::Serve {
                            tx,
                            frames: batch[at..].to_vec(),
                            completed: 0,
                        });
                        self.steps.extend(steps);
                        return;
                    }
                    Entered::Plain | Entered::Wrapped => {}
                }
            }
            match frame.tag() {
                client::PARSE => {
                    self.note_parse(frame);
                    sending.expect.push((Expect::Parse, Owner::Client));
                    self.put_parse(frame, &mut sending.bytes);
                }
                client::EXECUTE => {
                    let statement = statement.as_ref().and_then(|prepared| prepared.statement());
                    if let Some(statement) = statement {
                        let mut waits = Vec::new();
                        if self.transaction.is_none()
                            && matches!(statement.kind, sql::Kind::Begin { .. })
                        {
                            self.transaction = Some(Open::new(Kind::Explicit, None));
                        }
                        self.before(statement, &mut waits);
                        if !waits.is_empty() {
                            // Whoever waits for what was sent before must not wait for this to be over.
                            sending.settle_into(&mut steps);
                            steps.extend(waits);
                        }
                    }
                    let ordered = statement.is_some_and(|statement| statement.ordered);
                    sending
                        .expect
                        .push((Expect::Execute { ordered }, Owner::Client));
                    sending.bytes.extend_from_slice(&frame.0);
                }
                tag => {
                    if tag == client::BIND {
                        self.note_bind(frame);
                    }
                    if let Some(expect) = expectation(frame) {
                        let owner = if expect == Expect::Sync && entered == Entered::Wrapped {
                            Owner::Withheld
                        } else {
                            Owner::Client
                        };
                        sending.expect.push((expect, owner));
                    }
                    sending.bytes.extend_from_slice(&frame.0);
                }
            }
            if let Some(open) = self
                .transaction
                .as_mut()
                .filter(|open| open.claim.is_none())
            {
                open.before_claim.push(frame.tag());
                open.request = open.request.or(named);
            }
        }
        sending.flush_into(&mut steps);
        steps.push(Step::Settle);
        if synced && entered == Entered::Wrapped {
            self.leave_wrapped(&mut steps);
        }
        self.leave_company(&statements, &mut steps);
        self.unsynced = !synced;
        self.steps.extend(steps);
    }

    fn note_parse(&mut self, frame: &Frame) -> Option<Arc<Prepared>> {
        let parse = client::Parse::parse(frame.body()).ok()?;
        let prepared = Arc::new(Prepared {
            script: self.options.scripts.get(parse.text, self.dialect),
            request: self.request_in(parse.text),
            fresh: AtomicBool::new(true),
        });
        self.prepared
            .insert(Bytes::copy_from_slice(parse.name), Arc::clone(&prepared));
        Some(prepared)
    }

    fn note_bind(&mut self, frame: &Frame) {
        if let Ok(names) = client::BindNames::parse(frame.body())
            && let Some(prepared) = self.prepared.get(names.statement)
        {
            self.portals
                .insert(Bytes::copy_from_slice(names.portal), Arc::clone(prepared));
        }
    }

    /// The prepared statement that a `Parse`, `Bind` or `Execute` is about.
    fn statement_of(&self, frame: &Frame) -> Option<Arc<Prepared>> {
        match frame.tag() {
            client::PARSE => {
                let parse = client::Parse::parse(frame.body()).ok()?;
                Some(Arc::new(Prepared {
                    script: self.options.scripts.get(parse.text, self.dialect),
                    request: None,
                    fresh: AtomicBool::new(false),
                }))
            }
            client::BIND => self
                .prepared
                .get(client::BindNames::parse(frame.body()).ok()?.statement)
                .cloned(),
            client::EXECUTE => self
                .portals
                .get(client::parse_execute(frame.body()).ok()?.0)
                .cloned(),
            _ => None,
        }
    }

    fn put_parse(&self, frame: &Frame, out: &mut BytesMut) {
        match client::Parse::parse(frame.body()) {
            Ok(parse) => {
                let text = self.rewritten(parse.text);
                client::Parse {
                    text: &text,
                    ..parse
                }
                .build(out);
            }
            Err(_) => out.extend_from_slice(&frame.0),
        }
    }

    // ---- both --------------------------------------------------------------------------------------------------

    /// A statement of the open transaction is about to be sent: counts it, and plans what it has to wait for.
    fn before(&mut self, statement: &Statement, steps: &mut Vec<Step>) {
        if matches!(
            statement.kind,
            sql::Kind::Discard { all: true } | sql::Kind::Deallocate { name: None }
        ) {
            self.own_prepared.clear();
        }
        let failed = self.status == Status::Failed;
        let Some(open) = &mut self.transaction else {
            return;
        };
        open.shape.add(&statement.fingerprint);
        let index = open.statements;
        open.statements += 1;
        let changed = self.options.code != Code::Recorded;
        if changed {
            open.texts.push(statement.fingerprint.text.clone());
            open.only_read &= only_reads(statement);
            open.savepoints |= statement.kind == sql::Kind::Savepoint;
        }
        let Some(claim) = open.followed().filter(|_| !failed) else {
            return;
        };
        let commits = matches!(
            statement.kind,
            sql::Kind::Commit { .. } | sql::Kind::PrepareTransaction { .. }
        );
        if changed {
            if let Claim::Run(tx) = claim
                && open.acts_late
                && !only_reads(statement)
            {
                open.acts_late = false;
                steps.push(Step::Hold(Ask::Act(tx)));
            }
            if commits {
                steps.extend(open.before_commit(claim));
            }
            return;
        }
        let Claim::Run(tx) = claim else { return };
        if statement.locks.contains(&sql::ADVISORY) {
            open.locks.push_back(index);
            // It may wait for somebody's commit, who must not wait for this.
            steps.extend([Step::Hold(Ask::Lock(tx, index)), Step::Ran]);
        }
        if commits {
            steps.extend(open.before_commit(claim));
        }
    }

    fn leave_wrapped(&mut self, steps: &mut Vec<Step>) {
        if let Some(open) = &self.transaction
            && let Some(claim) = open.followed()
        {
            steps.extend(open.before_commit(claim));
        }
        steps.extend([Step::Own(Own::Commit), Step::Settle, Step::Ready]);
    }

    fn leave_company(&mut self, statements: &[&Statement], steps: &mut Vec<Step>) {
        if std::mem::take(&mut self.secluded) {
            steps.extend([Step::Own(Own::SessionReadOnly(false)), Step::Settle]);
        }
        if self.options.code != Code::Recorded {
            return;
        }
        let direct = self
            .transaction
            .as_ref()
            .is_some_and(|open| open.kind == Kind::Direct);
        if direct
            && statements
                .iter()
                .any(|statement| statement.company == Company::Refused)
        {
            steps.extend([Step::Own(Own::SessionReadOnly(true)), Step::Settle]);
        }
    }

    /// The request that a comment in the text names.
    fn request_in(&self, text: &[u8]) -> Option<RequestId> {
        let found = trace_comment(text, self.dialect)?;
        self.options
            .trace_id_prefixes
            .contains(&found.trace.high)
            .then_some(hindcast_trace::Id(found.trace.low))
    }

    /// As the server is to see it: without the trace comment, which it did not see originally either, without row and table locks, and with a
    /// clock that can be pinned.
    ///
    /// Whoever is replayed has committed, with the rows of its snapshot, so a lock adds nothing. But it would be taken in another order than
    /// originally, since writes lock rows too and do not wait for their turn: foreign keys lock the rows that they refer to. Changed code keeps
    /// its locks: they may be the change.
    fn rewritten(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        if let Some(found) = trace_comment(&text, self.dialect) {
            let mut edits = Edits::new();
            edits.replace(
                found.range.start,
                found.range.len(),
                if found.separates { b" " } else { b"" },
            );
            text = edited(text, &edits);
        }
        if self.options.code == Code::Recorded {
            let edits = sql::lock_edits(&text, self.dialect);
            text = edited(text, &edits);
        }
        if self.options.pinned {
            let edits = sql::clock_edits(&text, self.dialect);
            text = edited(text, &edits);
        }
        text
    }

    /// A message that only prepares, in a batch that is otherwise served from the recording: the server answers it, outside of any
    /// transaction.
    pub(super) fn prepare_live(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        let expect = if frame.tag() == client::PARSE {
            self.note_parse(frame);
            self.put_parse(frame, &mut bytes);
            Expect::Parse
        } else {
            bytes.extend_from_slice(&frame.0);
            expectation(frame).expect("Describe and Close are answered")
        };
        client::sync(&mut bytes);
        self.own.push_back(Own::Resync);
        let expect = vec![(expect, Owner::Client), (Expect::Sync, Owner::Own)];
        self.steps.extend([
            Step::Send {
                bytes: bytes.freeze(),
                expect,
            },
            Step::Settle,
        ]);
    }
}

impl Open {
    /// What comes before a commit, the client's or ours.
    fn before_commit(&self, claim: Claim) -> Vec<Step> {
        let mut steps = Vec::new();
        // Only changed code has this noted, and of that only what may have written.
        if !self.only_read {
            let subtransactions = self.savepoints;
            steps.extend([Step::Own(Own::Identify { subtransactions }), Step::Settle]);
        }
        if let Claim::Run(tx) = claim {
            steps.extend([Step::Ran, Step::Hold(Ask::Commit(tx))]);
        }
        steps
    }
}

fn expectation(frame: &Frame) -> Option<Expect> {
    match frame.tag() {
        client::BIND => Some(Expect::Bind),
        client::CLOSE => Some(Expect::Close),
        client::DESCRIBE => match client::Target::parse(frame.body()) {
            Ok(client::Target::Portal(_)) => Some(Expect::DescribePortal),
            _ => Some(Expect::DescribeStatement),
        },
        client::SYNC => Some(Expect::Sync),
        _ => None,
    }
}

fn edited(text: Vec<u8>, edits: &Edits) -> Vec<u8> {
    if edits.is_empty() {
        return text;
    }
    let mut edited = BytesMut::new();
    edits.apply(&text, &mut edited);
    edited.to_vec()
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
