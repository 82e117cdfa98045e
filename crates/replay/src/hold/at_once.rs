//! What does nothing by itself is answered at once, and sent with what comes behind it.
//!
//! A `BEGIN` takes no snapshot and no lock, and it does not fail. The `COMMIT` of a transaction
//! that only read gives back what nobody waits for. So the client is answered, and the server
//! hears of it with the next statement of the session: one answer is waited for in the place of
//! three, each of which is a change of process here, in the server and in the service.
//!
//! ```text
//!   the client sends      is answered       the server gets
//!   BEGIN                 at once
//!   SELECT …              by the server     BEGIN, SELECT …
//!   COMMIT                at once
//!   BEGIN                 at once
//!   SELECT …              by the server     COMMIT, BEGIN, SELECT …
//! ```
//!
//! A transaction that writes is begun as one that may, where its client's `BEGIN` was kept.
//!
//! A session that says nothing more has what was kept sent for it soon ([`Holder::send_kept`]):
//! the server keeps its locks on tables until then.

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::sql::Statement;
use hindcast_wire::{Status, Wires};

use super::answers::{Expect, Owner};
use super::instead::completed;
use super::names::Batch;
use super::plan::{AtOnce, Plan, Step};
use super::transaction::{Kind, Open};
use super::{Code, Context, Holder};
use crate::reading::{only_begins, only_commits};

/// What the server was not sent yet, and how much of it it has not answered.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: BytesMut,
    kept: u32,
    /// Where the last of it is, if that is a `BEGIN`.
    begins_at: Option<usize>,
    /// How often the server will say that it is ready, of which its client has heard.
    unanswered: u32,
    /// What a client hears with what it is told next: it has sent more already, and waits for the
    /// answer to that.
    said: BytesMut,
}

impl Kept {
    /// What goes to the server comes behind what was kept.
    pub fn wire<'a>(&mut self, out: &'a mut Wires) -> &'a mut BytesMut {
        if self.kept > 0 {
            out.to_server.put_slice(&self.bytes.split());
            self.unanswered += std::mem::take(&mut self.kept);
            self.begins_at = None;
        }
        &mut out.to_server
    }

    fn keep(&mut self, bytes: &[u8], begins: bool) {
        self.begins_at = begins.then_some(self.bytes.len());
        self.bytes.put_slice(bytes);
        self.kept += 1;
    }

    /// Whether the transaction is begun by this text in the place of the client's.
    pub fn begins_as(&mut self, text: &str) -> bool {
        let Some(at) = self.begins_at else {
            return false;
        };
        self.bytes.truncate(at);
        client::query(&mut self.bytes, text.as_bytes());
        true
    }

    /// Goes in front of what a client is told.
    pub fn say(&mut self, out: &mut Wires) {
        if !self.said.is_empty() && !out.to_client.is_empty() {
            let rest = std::mem::replace(&mut out.to_client, self.said.split());
            out.to_client.unsplit(rest);
        }
    }

    /// Whether this is an answer that its client has had.
    pub fn is_answered_by(&mut self, frame: &Frame) -> bool {
        const ANSWERS: [u8; 6] = [
            server::PARSE_COMPLETE,
            server::BIND_COMPLETE,
            server::NO_DATA,
            server::CLOSE_COMPLETE,
            server::COMMAND_COMPLETE,
            server::READY_FOR_QUERY,
        ];
        let is_had = self.unanswered > 0 && ANSWERS.contains(&frame.tag());
        if is_had && frame.tag() == server::READY_FOR_QUERY {
            self.unanswered -= 1;
        }
        is_had
    }
}

impl Holder {
    /// Whether something is kept from the server.
    pub fn keeps(&self) -> bool {
        self.kept.kept > 0
    }

    /// Nothing has come behind it.
    pub fn send_kept(&mut self, out: &mut Wires) {
        self.kept.wire(out);
    }

    /// What the only statement of a text is answered, if it does nothing by itself.
    pub(super) fn at_once(&self, statements: &[&Statement], plan: &Plan) -> Option<AtOnce> {
        let [statement] = statements else {
            return None;
        };
        let is_first = |open: &Open| open.kind == Kind::Explicit && open.statements() == 1;
        let begins = self.status == Status::Idle && plan.is_empty();
        match self.transaction.as_ref() {
            _ if self.is_within_split() => None,
            Some(open) if begins && is_first(open) => AtOnce::begun(statement),
            _ => self.committed(statement),
        }
    }

    /// The same of a batch of the extended protocol.
    pub(super) fn batch_at_once(&self, batch: &Batch, statements: &[&Statement]) -> Option<AtOnce> {
        match statements {
            [only] if batch.is_only_about(only) => self.committed(only),
            _ => None,
        }
    }

    fn committed(&self, statement: &Statement) -> Option<AtOnce> {
        let open = self.transaction.as_ref()?;
        let is_open = self.status == Status::InTransaction && open.kind == Kind::Explicit;
        let is_recorded = self.options.code == Code::Recorded && open.run().is_some();
        let may = is_open && is_recorded && open.reads_only && only_commits(statement);
        may.then_some(AtOnce {
            tag: b"COMMIT",
            status: Status::Idle,
        })
    }

    /// Keeps messages from the server, and answers them.
    pub(super) fn answer_at_once(
        &mut self,
        bytes: &Bytes,
        expect: Vec<(Expect, Owner)>,
        at_once: AtOnce,
        out: &mut Wires,
        cx: &mut impl Context,
    ) {
        let begins = at_once.status == Status::InTransaction;
        self.kept.keep(bytes, begins);
        self.note_sent(expect.iter().map(|(one, _)| one.statements()).sum(), cx);
        let mut answers = Vec::new();
        for (expect, owner) in expect {
            answers.extend(at_once.answers(&expect));
            self.answers.expect(expect, owner);
        }
        let says_nothing = out.to_client.is_empty();
        for answer in answers {
            self.on_answer(&answer, out, cx);
        }
        if says_nothing && !self.queue.is_empty() {
            self.kept.said.unsplit(out.to_client.split());
        }
    }
}

impl AtOnce {
    /// Of a statement that begins a transaction, and does nothing else.
    fn begun(statement: &Statement) -> Option<Self> {
        let tag = only_begins(statement)?;
        let status = Status::InTransaction;
        Some(Self { tag, status })
    }

    fn answers(self, expect: &Expect) -> Vec<Frame> {
        let framed = |write: fn(&mut BytesMut)| {
            let mut bytes = BytesMut::new();
            write(&mut bytes);
            vec![Frame(bytes.freeze())]
        };
        let ready = || {
            let mut bytes = BytesMut::new();
            server::ready_for_query(&mut bytes, self.status);
            Frame(bytes.freeze())
        };
        match expect {
            Expect::Query { .. } => vec![completed(self.tag), ready()],
            Expect::Execute { .. } => vec![completed(self.tag)],
            Expect::Sync => vec![ready()],
            Expect::Parse => framed(server::parse_complete),
            Expect::Bind => framed(server::bind_complete),
            Expect::Describe(_) => framed(server::no_data),
            Expect::Close => framed(server::close_complete),
            _ => Vec::new(),
        }
    }
}

impl Plan {
    /// Has what was sent last answered at once.
    pub(super) fn answer_at_once(&mut self, at_once: AtOnce) {
        if let Some(Step::Send { bytes, expect }) = self.steps.pop_back() {
            self.steps.push_back(Step::AtOnce {
                bytes,
                expect,
                at_once,
            });
        }
    }
}
