//! The server's messages: what is forwarded, what is swallowed, and what they say about
//! transactions.

use bytes::{Bytes, BytesMut};
use hindcast_model::{Micros, Outcome, RequestId, Traceparent};

use super::bracket::Bracket;
use super::client::{ClientSide, client_position};
use super::columns::DrawnColumn;
use super::note::{FUNCTION_CALL, Known, Note, QueryNote, StatementNote, Tracked, UNKNOWN, Work};
use super::observed::{Context, Event, ObserverOptions, Problem};
use super::transaction::Open;
use crate::Status;
use crate::digest::RowHasher;
use crate::frame::{Cursor, Direction, Piece};
use crate::message::backend::{self, Fields};
use crate::sql::{Encoding, Kind, PositionMap, Statement};
use crate::text::{Settings, TextForm};
use crate::tracker::{Owner, Role, Sent, Tracker};

type Outstanding = Tracker<Note, StatementNote>;

const SYNTAX_ERROR: &[u8] = b"42601";

/// What happens to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Forward,
    Swallow,
    /// [`ServerSide::replaced`] goes in its place.
    Replace,
    /// The stream is not ours to read from here on.
    Raw,
}

/// The observer's view of the server's stream.
#[derive(Debug)]
pub(super) struct ServerSide {
    pub cursor: Cursor,
    pub replaced: BytesMut,
    /// Goes to the client before the piece at hand: a `CommandComplete` that was held back.
    pub released: BytesMut,
    /// The last answer of the open transaction is the piece at hand.
    pub ends_here: bool,

    trace_id_prefix: u64,
    strip_channel_binding: bool,
    tells_all: bool,
    values_max: u64,
    /// The session is established.
    started: bool,
    pub(super) open: Option<Box<Open>>,
    /// A block is open, as of the last `ReadyForQuery` to the client, or because the last commit
    /// chained.
    pub(super) in_block: bool,
    /// Where the next transaction's bytes begin.
    pub(super) client_mark: u64,
    pub(super) server_mark: u64,
    /// Statements of the `Query` in front that were answered, the one being answered not included.
    pub(super) index: usize,
    /// A statement has begun to be answered.
    pub(super) within_statement: bool,
    ordered: bool,
    /// It is a try for an advisory lock, and was told that another session has it.
    pub(super) tries: bool,
    pub(super) refused: bool,
    /// The table into which the session has inserted last.
    pub(super) inserted_into: Option<Box<str>>,
    /// Columns of its rows that show what the server drew, in order.
    pub(super) drawn_columns: Vec<DrawnColumn>,
    /// How its rows become text, and the settings of the session that this depends on.
    pub(super) text_form: TextForm,
    pub(super) settings: Settings,
    /// The rows that come answer an ask of ours within the client's text.
    swallowing: bool,
    /// Asks of the `Query` in front that were answered.
    asks_answered: usize,
    /// The `CommandComplete` of a client's statement behind which ours was put: the server has not
    /// committed yet.
    pub(super) held: Option<Bytes>,
    /// What the parts of a long message are.
    pub(super) parts: Parts,
    pub(super) hasher: RowHasher,
    /// A row that comes in parts, to be brought into its text form.
    pub(super) collected: Vec<u8>,
    /// The request that the session's application name names.
    application: Option<RequestId>,
    pub(super) process_id: u32,
    cancel_key: Bytes,
    server_version: String,
    pub(super) unknown_tables: Vec<u32>,
    /// The statement around which we ask, from the first answer to the second.
    pub(super) bracket: Option<Bracket>,
    /// The session made temporary tables that commits empty.
    pub(super) empties_on_commit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    Forward,
    Row {
        ordered: bool,
    },
    /// Of a row that is brought into its text form when it is whole.
    Collected {
        ordered: bool,
    },
    Swallow,
}

impl ServerSide {
    pub fn new(options: &ObserverOptions) -> Self {
        Self {
            cursor: Cursor::new(Direction::FromServer),
            replaced: BytesMut::new(),
            released: BytesMut::new(),
            ends_here: false,
            trace_id_prefix: options.trace_id_prefix,
            strip_channel_binding: options.strip_channel_binding,
            tells_all: options.passive,
            values_max: options.values_max as u64,
            started: false,
            open: None,
            in_block: false,
            client_mark: 0,
            server_mark: 0,
            index: 0,
            within_statement: false,
            ordered: false,
            tries: false,
            refused: false,
            inserted_into: None,
            drawn_columns: Vec::new(),
            text_form: TextForm::default(),
            settings: Settings::default(),
            swallowing: false,
            asks_answered: 0,
            held: None,
            parts: Parts::Forward,
            hasher: RowHasher::new(),
            collected: Vec::new(),
            application: None,
            process_id: 0,
            cancel_key: Bytes::new(),
            server_version: String::new(),
            unknown_tables: Vec::new(),
            bracket: None,
            empties_on_commit: false,
        }
    }

    /// Whether nothing of a message, and no transaction, is under way.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && !self.in_block && !self.cursor.is_within_message()
    }

    /// Gives out what was held back, where the stream can be followed no further.
    pub fn give_up(&mut self) {
        if let Some(held) = self.held.take() {
            self.released.extend_from_slice(&held);
        }
    }

    /// Looks at one piece and says what is to happen to it.
    pub fn piece(
        &mut self,
        piece: Piece<'_>,
        tracker: &mut Outstanding,
        client: &mut ClientSide,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        if !piece.first {
            return Ok(self.part(piece));
        }
        self.parts = Parts::Forward;
        let (tag, body) = (piece.tag, piece.body());
        if self.held.is_some() {
            self.decide_held(tag, tracker, cx, events);
        }
        let answer = tracker.answer(tag, body)?;
        if answer.owner == Owner::Injected {
            return self.ours(piece, answer, tracker, client, events);
        }
        match answer.role {
            Role::Startup => self.startup(tag, body, client, events),
            Role::Aside => Ok(self.aside(&piece, tracker, client)),
            Role::CopyBoth => {
                events.push(Event::Unobserved {
                    reason: "a replication stream began",
                });
                Ok(Passage::Raw)
            }
            Role::Ready(status) => {
                self.ready(status, answer.done, tracker, client);
                Ok(Passage::Forward)
            }
            role => self.answered(piece, role, answer.done, tracker, client, cx, events),
        }
    }

    /// A later part of a long message.
    fn part(&mut self, piece: Piece<'_>) -> Passage {
        match self.parts {
            Parts::Swallow => return Passage::Swallow,
            Parts::Forward => {}
            Parts::Row { ordered } => self.part_of_row(piece, ordered),
            Parts::Collected { ordered } => self.collect(piece, ordered),
        }
        Passage::Forward
    }

    fn startup(
        &mut self,
        tag: u8,
        body: &[u8],
        client: &mut ClientSide,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        match tag {
            backend::AUTHENTICATION if self.strip_channel_binding => {
                if let Some(offer) = backend::without_channel_binding(body) {
                    self.replaced.extend_from_slice(&offer);
                    return Ok(Passage::Replace);
                }
            }
            backend::BACKEND_KEY_DATA => {
                let (process_id, key) = backend::parse_backend_key_data(body)?;
                self.process_id = process_id;
                self.cancel_key = Bytes::copy_from_slice(key);
            }
            backend::PARAMETER_STATUS => self.parameter(body, client),
            backend::READY_FOR_QUERY => {
                let status = backend::parse_ready_for_query(body)?;
                self.in_block = status != Status::Idle;
                self.started = true;
                // What the client sent so far was about who it is, and belongs to no transaction.
                self.ends_here = true;
                events.push(Event::Ready {
                    process_id: self.process_id,
                    cancel_key: self.cancel_key.clone(),
                    server_version: self.server_version.clone(),
                });
                if !has_snapshots(&self.server_version) {
                    events.push(Event::Unobserved {
                        reason: "the server is older than Postgres 13, or does not say what it is",
                    });
                    return Ok(Passage::Raw);
                }
            }
            _ => {}
        }
        Ok(Passage::Forward)
    }

    fn parameter(&mut self, body: &[u8], client: &mut ClientSide) {
        // One that is malformed changes nothing for us.
        let Ok((name, value)) = backend::parse_parameter_status(body) else {
            return;
        };
        if self.started && matches!(name, b"standard_conforming_strings" | b"client_encoding") {
            client.dialect_changes = true;
        }
        self.settings.note(name, value);
        match name {
            b"standard_conforming_strings" => client.dialect.standard_strings = value != b"off",
            b"client_encoding" => client.dialect.encoding = Encoding::named(value),
            b"application_name" => self.application_name(value),
            b"server_version" => {
                self.server_version = String::from_utf8_lossy(value).into_owned();
            }
            _ => {}
        }
    }

    pub fn application_name(&mut self, value: &[u8]) {
        self.application = Traceparent::request_of(value, self.trace_id_prefix);
        if let Some(open) = &mut self.open {
            open.application(self.application);
        }
    }

    fn aside(
        &mut self,
        piece: &Piece<'_>,
        tracker: &Outstanding,
        client: &mut ClientSide,
    ) -> Passage {
        match piece.tag {
            backend::PARAMETER_STATUS => self.parameter(piece.body(), client),
            backend::NOTICE_RESPONSE if piece.is_whole() => {
                let positions = tracker.front().and_then(positions);
                if let Some(positions) = positions {
                    return self.map_position(piece, positions);
                }
            }
            _ => {}
        }
        Passage::Forward
    }

    /// An answer to a message of the client's, but for `ReadyForQuery`.
    #[allow(
        clippy::too_many_arguments,
        reason = "these are the parts of an observer, borrowed apart"
    )]
    fn answered(
        &mut self,
        piece: Piece<'_>,
        role: Role,
        done: Option<Tracked>,
        tracker: &mut Outstanding,
        client: &mut ClientSide,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        match role {
            Role::Part => return Ok(self.part_of_answer(piece, tracker, client, cx, events)),
            Role::Statement => return self.statement_ended(piece, done, tracker, cx, events),
            Role::Failed => return self.failed(piece, done, tracker, client, cx, events),
            Role::Done => {
                if let Some(done) = &done
                    && piece.tag == backend::ROW_DESCRIPTION
                    && let Some(prepared) = &done.prepared
                    && keeps_description(done, prepared)
                {
                    prepared.describe(piece.body());
                }
            }
            Role::Startup | Role::Aside | Role::Ready(_) | Role::CopyBoth => {}
        }
        Ok(Passage::Forward)
    }

    /// An answer that is not complete yet.
    fn part_of_answer(
        &mut self,
        piece: Piece<'_>,
        tracker: &Outstanding,
        client: &mut ClientSide,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Passage {
        let (tag, body) = (piece.tag, piece.body());
        let Some(front) = tracker.front() else {
            return Passage::Forward;
        };
        if front.sent == Sent::DescribeStatement {
            return Passage::Forward;
        }
        if let Work::Query(query) = &front.payload.work
            && !query.asks.is_empty()
        {
            if tag == backend::ROW_DESCRIPTION && self.ours_is_next(query) {
                self.swallowing = true;
            } else if tag == backend::DATA_ROW && self.swallowing {
                let ask = query.asks.get(self.asks_answered);
                let told = ask.and_then(|(_, ask)| ask.read(backend::parse_data_row(body)));
                if let Some(told) = told {
                    self.told(told, query.transaction, front.payload.at, client);
                }
            }
            if self.swallowing {
                self.parts = Parts::Swallow;
                return Passage::Swallow;
            }
        }
        self.begin_statement(front, cx, events);
        match tag {
            backend::ROW_DESCRIPTION => self.described(front, body, cx, events),
            backend::DATA_ROW => self.row(piece, self.ordered),
            backend::COPY_DATA => self.row(piece, false),
            _ => {}
        }
        Passage::Forward
    }

    /// A statement of the client's, or of ours in the client's text, ended well.
    fn statement_ended(
        &mut self,
        piece: Piece<'_>,
        done: Option<Tracked>,
        tracker: &mut Outstanding,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        if self.swallowing {
            self.swallowing = false;
            self.asks_answered += 1;
            // Ours was the last: the server has committed.
            self.release_held(tracker, cx, events);
            return Ok(Passage::Swallow);
        }
        let Some(pending) = done.as_ref().or(tracker.front()) else {
            return Ok(Passage::Forward);
        };
        if piece.tag == backend::COMMAND_COMPLETE
            && let Work::Query(query) = &pending.payload.work
            && query.is_appended()
            && self.index + 1 == query.script.statements.len()
        {
            self.begin_statement(pending, cx, events);
            self.held = Some(Bytes::copy_from_slice(piece.bytes));
            return Ok(Passage::Swallow);
        }
        let deallocated = self.complete(pending, piece.tag, piece.body(), cx, events)?;
        if let Some(name) = deallocated {
            let sequence = pending.sequence;
            tracker.deallocate(name.as_deref(), sequence);
        }
        Ok(Passage::Forward)
    }

    fn failed(
        &mut self,
        piece: Piece<'_>,
        done: Option<Tracked>,
        tracker: &mut Outstanding,
        client: &mut ClientSide,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Passage, Problem> {
        self.swallowing = false;
        let mut skipped = None;
        for discarded in tracker.discarded() {
            if discarded.owner == Owner::Injected {
                client.lost(&discarded);
            } else {
                if discarded.sent == Sent::Execute && skipped.is_none() {
                    skipped = Some(discarded);
                }
            }
        }
        let passage = match done.as_ref().or(tracker.front()) {
            None => Passage::Forward,
            Some(pending) => {
                match pending.sent {
                    Sent::Query | Sent::Execute | Sent::FunctionCall => {
                        self.begin_statement(pending, cx, events);
                    }
                    // It failed before it ran: while it was prepared, or bound.
                    _ => {
                        if let Some(skipped) = &skipped {
                            self.begin_statement(skipped, cx, events);
                        }
                    }
                }
                match positions(pending) {
                    Some(positions) => self.map_position(&piece, positions),
                    None => Passage::Forward,
                }
            }
        };
        self.failed_outside(piece.body());
        Ok(passage)
    }

    /// The open transaction, if any, failed.
    pub(super) fn failed_outside(&mut self, error: &[u8]) {
        let within_statement = std::mem::take(&mut self.within_statement);
        self.drawn_columns.clear();
        if let Some(open) = &mut self.open {
            let sqlstate = Fields::parse(error).map_or(&b""[..], |fields| fields.sqlstate());
            open.failed(sqlstate, within_statement);
        }
    }

    /// The answers to a statement begin, unless they have.
    pub(super) fn begin_statement(
        &mut self,
        pending: &Tracked,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        if self.within_statement {
            return;
        }
        let (statement, request) = match &pending.payload.work {
            Work::Query(query) => (self.statement_of(query), query.request),
            Work::Execute { request, .. } => match &pending.prepared {
                None => (&*UNKNOWN, None),
                Some(prepared) => match prepared.statement() {
                    Some(statement) => (statement, *request),
                    // An empty text is no statement.
                    None => return,
                },
            },
            _ if pending.sent == Sent::FunctionCall => (&*FUNCTION_CALL, None),
            _ => return,
        };
        self.within_statement = true;
        self.ordered = statement.ordered;
        (self.tries, self.refused) = (statement.tries, false);
        self.empties_on_commit |= statement.empties_on_commit;
        self.drawn_columns.clear();
        self.text_form.clear();
        if self.open.is_none() {
            self.open(pending.payload.at);
            if self.index > 0
                && let Some(open) = &mut self.open
            {
                open.head = Some(self.index);
            }
        }
        let open = self.open.as_mut().expect("it was just opened");
        open.statement(
            statement,
            request,
            pending.prepared.as_ref(),
            &pending.payload,
        );
        if open.announce() {
            events.push(Event::TransactionBegan {
                began: open.began(),
            });
        }
        if pending.sent == Sent::Execute
            && let Some(prepared) = &pending.prepared
            && let Some(description) = prepared.row_description()
        {
            self.text_form.begin(description, &pending.formats);
            if statement.may_show_drawn() {
                self.find_drawn(statement, description, &pending.formats, cx, events);
            }
        }
    }

    /// Whether a result that begins now, in answer to a `Query`, is of a statement of ours. That is
    /// known by its place: statements are answered in their order, each to its end.
    fn ours_is_next(&self, query: &QueryNote) -> bool {
        let next = query.asks.get(self.asks_answered);
        let next = next.is_some_and(|(before, _)| match self.held {
            Some(_) => *before == self.index + 1,
            None => *before == self.index,
        });
        next && (self.held.is_some() || !self.within_statement)
    }

    pub(super) fn statement_of<'a>(&self, query: &'a QueryNote) -> &'a Statement {
        query.script.statements.get(self.index).unwrap_or(&UNKNOWN)
    }

    pub(super) fn open(&mut self, began: Micros) {
        let mut open = Open::new(began, self.server_mark, self.client_mark, self.application);
        open.explicit = self.in_block;
        open.tells_all = self.tells_all;
        open.values_max = self.values_max;
        self.open = Some(open);
    }

    /// A statement ended well. Returns the statements that it deallocated, if any.
    fn complete(
        &mut self,
        pending: &Tracked,
        tag: u8,
        body: &[u8],
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Option<Option<Box<[u8]>>>, Problem> {
        if tag == backend::EMPTY_QUERY_RESPONSE {
            // No statement. Pools send this to see whether the server is there.
            return Ok(None);
        }
        self.begin_statement(pending, cx, events);
        if !self.within_statement {
            return Ok(None);
        }
        self.within_statement = false;
        self.drawn_columns.clear();
        let statement = match &pending.payload.work {
            Work::Query(query) => self.statement_of(query),
            Work::Execute { .. } => match &pending.prepared {
                Some(prepared) => prepared.statement().unwrap_or(&UNKNOWN),
                None => &UNKNOWN,
            },
            _ => &FUNCTION_CALL,
        };
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        open.completed(statement, self.refused, pending.payload.gives_back, cx);
        if statement.inserts_into.is_some() {
            self.inserted_into.clone_from(&statement.inserts_into);
        }
        open.failed = false;
        if pending.sent == Sent::Query {
            self.index += 1;
        }
        match tag {
            backend::COMMAND_COMPLETE => {
                let tag = backend::parse_command_complete(body)?;
                open.digest.complete(tag);
                open.explicit |= matches!(tag, b"BEGIN" | b"START TRANSACTION");
                if let Some(outcome) = outcome(tag, &statement.kind) {
                    open.ended = Some(outcome);
                    self.in_block = matches!(
                        statement.kind,
                        Kind::Commit { chain: true } | Kind::Rollback { chain: true }
                    );
                }
            }
            backend::FUNCTION_CALL_RESPONSE => {
                open.digest.row(false, body);
                open.digest.complete(b"FUNCTION");
            }
            _ => {}
        }
        Ok(match &statement.kind {
            Kind::Deallocate { name } => Some(name.clone()),
            Kind::Discard { all: true } => Some(None),
            _ => None,
        })
    }

    /// Something follows the `CommandComplete` that was held back.
    ///
    /// The server answers the last statement of a `Query` only when it has committed. Ours is the
    /// last instead of the client's, so that is answered earlier, and if the commit then fails, it
    /// must not have been.
    fn decide_held(
        &mut self,
        tag: u8,
        tracker: &mut Outstanding,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        use backend::*;
        match tag {
            NOTICE_RESPONSE | NOTIFICATION_RESPONSE | PARAMETER_STATUS => {}
            ERROR_RESPONSE => {
                self.held = None;
                // What failed is the client's statement, as far as it can see.
                self.swallowing = false;
            }
            // The client's statements are all answered, so these rows are ours.
            ROW_DESCRIPTION => {}
            _ if self.swallowing => {}
            _ => self.release_held(tracker, cx, events),
        }
    }

    fn release_held(
        &mut self,
        tracker: &mut Outstanding,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        let Some(held) = self.held.take() else { return };
        self.released.extend_from_slice(&held);
        let Some(front) = tracker.front() else { return };
        // It was well-formed when it was held back.
        let body = &held[crate::frame::HEADER..];
        let deallocated = self.complete(front, backend::COMMAND_COMPLETE, body, cx, events);
        if let Ok(Some(name)) = deallocated {
            let sequence = front.sequence;
            tracker.deallocate(name.as_deref(), sequence);
        }
    }

    fn ready(
        &mut self,
        status: Status,
        done: Option<Tracked>,
        tracker: &Outstanding,
        client: &mut ClientSide,
    ) {
        self.swallowing = false;
        self.within_statement = false;
        self.asks_answered = 0;
        if let Some(open) = &mut self.open
            && let Some(done) = &done
            && let Work::Query(query) = &done.payload.work
        {
            let sent_behind = client_position(tracker, client.cursor.offset());
            open.query_ended(query.text.as_deref(), &query.script, sent_behind);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.ended.is_none()) {
            if status == Status::Idle {
                let outcome = match open.failed {
                    true => Outcome::Aborted,
                    false => Outcome::Committed,
                };
                open.ended = Some(outcome);
            } else {
                open.explicit = true;
            }
        }
        self.index = 0;
        self.in_block = status != Status::Idle;
        self.ends_here = true;
        if tracker.outstanding() == tracker.injected_outstanding() {
            client.forecast.settle(status);
        }
    }

    /// An error or notice about a text that the server saw changed.
    fn map_position(&mut self, piece: &Piece<'_>, positions: &PositionMap) -> Passage {
        let Ok(fields) = Fields::parse(piece.body()) else {
            return Passage::Forward;
        };
        let Some(position) = fields.position() else {
            return Passage::Forward;
        };
        // The server stumbled over the semicolon with which we go on, where the client's text ends.
        let at_end = fields.sqlstate() == SYNTAX_ERROR && positions.is_behind(position);
        // Any other position behind the client's text is one in another text: that of a prepared
        // statement which the client's `EXECUTE` runs. A client points at nothing then.
        let mapped = match () {
            _ if at_end => positions.end(),
            _ if positions.is_behind(position) => position,
            _ => positions.to_original(position),
        }
        .to_string();
        let english = fields.get(b'S') == fields.get(b'V');
        let message = fields.get(b'M').unwrap_or_default();
        let message = match message.strip_suffix(b" at or near \";\"") {
            Some(start) if at_end && english => [start, b" at end of input"].concat(),
            _ => message.to_vec(),
        };
        let fields = fields.iter().map(|(field, value)| match field {
            b'P' => (field, mapped.as_bytes()),
            b'M' => (field, &message[..]),
            _ => (field, value),
        });
        backend::error_fields(&mut self.replaced, piece.tag, fields);
        Passage::Replace
    }
}

/// Whether the description of a statement's rows may be of use when it is executed: it may show
/// values of sequences, or rows may come in binary. A statement that has a name, or is described
/// before it is bound, may be executed again without being described.
fn keeps_description(done: &Tracked, prepared: &Known) -> bool {
    let shows_sequences = || {
        let statement = prepared.statement();
        statement.is_some_and(Statement::may_show_drawn)
    };
    prepared.row_description().is_none()
        && (!prepared.name.is_empty()
            || done.sent == Sent::DescribeStatement
            || done.formats.has_binary()
            || shows_sequences())
}

/// How a transaction ended, if this statement ended it. The server's word counts, not our reading
/// of the text.
fn outcome(tag: &[u8], kind: &Kind) -> Option<Outcome> {
    match tag {
        b"COMMIT" => Some(Outcome::Committed),
        b"ROLLBACK" if *kind != Kind::RollbackTo => Some(Outcome::Aborted),
        b"PREPARE TRANSACTION" => {
            let gid = match kind {
                Kind::PrepareTransaction { gid } => String::from_utf8_lossy(gid).into_owned(),
                _ => String::new(),
            };
            Some(Outcome::Prepared { gid })
        }
        _ => None,
    }
}

/// How positions in errors about this message map back, if its text was changed.
fn positions(pending: &Tracked) -> Option<&PositionMap> {
    match &pending.payload.work {
        Work::Query(query) => query.positions.as_ref(),
        _ => pending.prepared.as_ref()?.data.positions.as_ref(),
    }
}

/// Whether a server has the functions that we ask with. On one that has not, asking would abort the
/// client's transactions.
fn has_snapshots(server_version: &str) -> bool {
    let major = server_version.split(|c: char| !c.is_ascii_digit()).next();
    major
        .and_then(|major| major.parse::<u32>().ok())
        .is_some_and(|major| major >= 13)
}
