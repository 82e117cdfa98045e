//! The client's messages: what is forwarded, and what is asked along the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use hindcast_model::RequestId;

use super::ask::{Ask, Asks};
use super::between::Between;
use super::forecast::{Block, Forecast};
use super::note::{FUNCTION_CALL, Note, QueryNote, StatementNote, Tracked, UNKNOWN, Work};
use super::observed::{Context, ObserverOptions, Problem};
use crate::Status;
use crate::frame::{Cursor, Direction, Piece};
use crate::message::frontend::{self, BindNames, Formats, Parse};
use crate::sql::{Dialect, Edits, Kind, Reach, Script, ScriptCache, Statement, trace_comment};
use crate::tracker::{Owner, Sent, Tracker};
use crate::values::values_of;

/// The observer's view of the client's stream.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub cursor: Cursor,
    pub forecast: Forecast,
    pub asks: Asks,
    pub dialect: Dialect,
    /// The session has changed its dialect, or is about to, so the dialect of texts sent now is
    /// known only when nothing is outstanding.
    pub dialect_changes: bool,
    /// The bytes have gone their way already: nothing can be asked or changed.
    passive: bool,
    scripts: Arc<ScriptCache>,
    trace_id_prefix: u64,
    /// Extended messages were sent since the last `Sync` or `Query`.
    within_batch: bool,
    /// If the block has failed, the batch will have stopped before it gets to what is sent next.
    checked: bool,
    /// What goes to the server before, instead of, and behind the message at hand.
    pub injected: BytesMut,
    pub replaced: BytesMut,
    pub following: BytesMut,
    pub between: Between,
    /// A text without its trace comment.
    stripped: Vec<u8>,
}

type Outstanding = Tracker<Note, StatementNote>;

/// A statement text on its way through.
struct Text<'a> {
    original: &'a [u8],
    /// What the server sees of it, but for our additions.
    stripped: Option<&'a [u8]>,
    script: Arc<Script>,
    request: Option<RequestId>,
    edits: Edits,
    /// Where the trace comment was, how long, and what is in its place.
    cut: Option<(usize, usize, usize)>,
    /// The server may read it otherwise than we do: nothing must be changed.
    doubtful: bool,
}

impl Text<'_> {
    fn seen(&self) -> &[u8] {
        self.stripped.unwrap_or(self.original)
    }
}

impl ClientSide {
    pub fn new(options: &ObserverOptions) -> Self {
        Self {
            cursor: Cursor::new(Direction::FromClient),
            forecast: Forecast::new(),
            asks: Asks::new(options.token, Arc::clone(&options.keeping)),
            dialect: Dialect::default(),
            dialect_changes: false,
            passive: options.passive,
            scripts: Arc::clone(&options.scripts),
            trace_id_prefix: options.trace_id_prefix,
            within_batch: false,
            checked: false,
            injected: BytesMut::new(),
            replaced: BytesMut::new(),
            following: BytesMut::new(),
            between: Between::new(options.raise_isolation),
            stripped: Vec::new(),
        }
    }

    /// Whether the client is between batches and outside of transactions.
    pub fn is_idle(&self) -> bool {
        !self.within_batch
            && self.forecast.block() == Block::Idle
            && !self.cursor.is_within_message()
    }

    /// Looks at one piece. Fills `injected` with what goes before it, and `replaced` with what goes
    /// in its place.
    pub fn piece(
        &mut self,
        piece: Piece<'_>,
        tracker: &mut Outstanding,
        cx: &Context<'_>,
    ) -> Result<(), Problem> {
        use frontend::*;
        if !piece.first {
            return Ok(());
        }
        let note = Note {
            start: self.cursor.offset() - piece.bytes.len() as u64,
            at: cx.now,
            alone: cx.alone,
            turn: cx.turn,
            gives_back: None,
            work: Work::Plain,
        };
        let body = piece.body();
        match piece.tag {
            QUERY => self.query(parse_query(body)?, tracker, note, cx)?,
            PARSE => self.parse(&Parse::parse(body)?, tracker, note)?,
            BIND => self.bind(&piece, tracker, note)?,
            EXECUTE => self.execute(parse_execute(body)?.0, tracker, note, cx)?,
            DESCRIBE => {
                self.enter_batch(tracker);
                tracker.describe(Target::parse(body)?, note)?;
            }
            CLOSE => {
                self.enter_batch(tracker);
                tracker.close(Target::parse(body)?, note)?;
            }
            SYNC => self.sync(tracker, note)?,
            FUNCTION_CALL => self.function_call(piece.is_whole(), tracker, note)?,
            COPY_DATA => tracker.copy_data(),
            COPY_DONE | COPY_FAIL => tracker.copy_end(note)?,
            TERMINATE => self.leaves(tracker, note)?,
            // Flush is not answered; a password is, but only before the session is
            // established.
            _ => {}
        }
        Ok(())
    }

    fn query(
        &mut self,
        text: &[u8],
        tracker: &mut Outstanding,
        mut note: Note,
        cx: &Context<'_>,
    ) -> Result<(), Problem> {
        let mut scratch = std::mem::take(&mut self.stripped);
        let mut text = self.read(text, tracker, &mut scratch);
        let script = Arc::clone(&text.script);
        let alone = match &script.statements[..] {
            [statement] if !script.unterminated && !text.doubtful => Some(statement),
            _ => None,
        };
        note.gives_back = alone.and_then(|alone| gives_back(alone, tracker, cx));
        self.errands_before(alone, tracker, &note)?;
        let asks = self.ask_within(&mut text, &script, tracker, &note)?;
        self.beware(script.reach, tracker, &note)?;
        let positions = (!text.edits.is_empty()).then(|| {
            frontend::query_edited(&mut self.replaced, text.original, &text.edits);
            text.edits.positions(text.original, self.dialect.encoding)
        });
        let is = |test: fn(&Kind) -> bool| {
            let kinds = script.statements.iter().map(|statement| &statement.kind);
            kinds.filter(|kind| test(kind)).count()
        };
        let splits = script.statements.len() > 1 && is(Kind::controls_transaction) > 0;
        let copies = is(|kind| *kind == Kind::CopyFromStdin);
        let copies = u32::try_from(copies).unwrap_or(u32::MAX);
        note.work = Work::Query(Box::new(QueryNote {
            request: text.request,
            positions,
            asks,
            text: splits.then(|| text.seen().into()),
            transaction: self.forecast.number(),
            script: Arc::clone(&script),
        }));
        self.stripped = scratch;
        self.leave_batch();
        let behind = note.aside();
        tracker.query(copies, note)?;
        if let Some(alone) = alone {
            self.between.executes(alone);
        }
        self.errands_behind(tracker, &behind)
    }

    /// Puts into the text of a `Query` what has to be asked within it. Returns that, with the
    /// number of the client's statements before it.
    fn ask_within(
        &mut self,
        text: &mut Text<'_>,
        script: &Script,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<Vec<(usize, Ask)>, Problem> {
        let mut asks = Vec::new();
        // The server refuses an unterminated text as a whole, and words its refusal with the text.
        if script.unterminated {
            return Ok(asks);
        }
        if text.doubtful || !self.may_inject(tracker) {
            if !tracker.is_discarding() {
                script.statements.iter().for_each(|one| self.sent(one));
                self.forecast.end_batch(None);
            }
            return Ok(asks);
        }
        for (index, statement) in script.statements.iter().enumerate() {
            if index == 0 {
                self.ask_before(statement, true, tracker, note)?;
            } else if let Some(ask) = self.forecast.before(statement) {
                let asked = format!("{}; ", ask.text());
                insert(text, statement.range.start, &asked);
                self.forecast.asked(ask);
                asks.push((index, ask));
            }
            self.sent(statement);
        }
        let alone = match &script.statements[..] {
            [statement] if !self.within_batch => Some(statement),
            _ => None,
        };
        let last = self.forecast.end_batch(alone);
        if let Some(ask) = last {
            // The line break ends a comment that the text may end with.
            let end = text.seen().len();
            insert(text, end, &format!("\n;{}", ask.text()));
            asks.push((script.statements.len(), ask));
        }
        Ok(asks)
    }

    fn parse(
        &mut self,
        parse: &Parse<'_>,
        tracker: &mut Outstanding,
        note: Note,
    ) -> Result<(), Problem> {
        let mut scratch = std::mem::take(&mut self.stripped);
        let text = self.read(parse.text, tracker, &mut scratch);
        if let Some(statement) = text.script.statements.first() {
            self.errands_before(Some(statement), tracker, &note)?;
            self.ask_before(statement, false, tracker, &note)?;
            let reach = match (text.script.reach, parse.name) {
                // It is run by an `Execute` if at all.
                (Reach::Running, b"") => Reach::None,
                // SQL's `EXECUTE` may run it too, and that text names nothing but its name.
                (Reach::Running, _) => Reach::Session,
                (reach, _) => reach,
            };
            self.beware(reach, tracker, &note)?;
        }
        self.enter_batch(tracker);
        self.check(text.script.statements.first());
        let seen = Parse {
            text: text.seen(),
            ..*parse
        };
        let positions = (!text.edits.is_empty()).then(|| {
            seen.build(&mut self.replaced);
            text.edits.positions(text.original, self.dialect.encoding)
        });
        let data = StatementNote {
            request: text.request,
            fresh: AtomicBool::new(true),
            positions,
            start: note.start,
        };
        let result = tracker.parse(&seen, Arc::clone(&text.script), data, note);
        self.stripped = scratch;
        Ok(result?)
    }

    fn bind(
        &mut self,
        piece: &Piece<'_>,
        tracker: &mut Outstanding,
        note: Note,
    ) -> Result<(), Problem> {
        let names = BindNames::parse(piece.body())?;
        let prepared = tracker.statement(names.statement).cloned();
        let statement = prepared.as_ref().and_then(|prepared| prepared.statement());
        let mut bound = (Formats::Text, None);
        if let Some(statement) = statement {
            self.errands_before(Some(statement), tracker, &note)?;
            self.ask_before(statement, false, tracker, &note)?;
            bound = match piece.is_whole() {
                true => {
                    let (values, formats) = frontend::bind_rest(piece.body())?;
                    (formats, values_of(statement, Some(values)))
                }
                false => (Formats::Unknown, None),
            };
        }
        self.enter_batch(tracker);
        self.check(statement);
        Ok(tracker.bind(names.portal, names.statement, bound, note)?)
    }

    fn execute(
        &mut self,
        portal: &[u8],
        tracker: &mut Outstanding,
        mut note: Note,
        cx: &Context<'_>,
    ) -> Result<(), Problem> {
        let portal_of = tracker.portal(portal);
        let prepared = portal_of.map(|portal| Arc::clone(&portal.prepared));
        let values = portal_of.and_then(|portal| portal.values);
        let statement = match &prepared {
            Some(prepared) => prepared.statement(),
            None => Some(&*UNKNOWN),
        };
        note.gives_back = statement.and_then(|statement| gives_back(statement, tracker, cx));
        if let Some(statement) = statement {
            self.errands_before(Some(statement), tracker, &note)?;
            self.ask_before(statement, true, tracker, &note)?;
            // What we do not know may reach anything.
            let reach = prepared.as_ref().map(|prepared| prepared.script.reach);
            self.beware(reach.unwrap_or(Reach::Running), tracker, &note)?;
        }
        self.enter_batch(tracker);
        self.check(statement);
        if let Some(statement) = statement.filter(|_| !tracker.is_discarding()) {
            self.between.executes(statement);
            self.sent(statement);
        }
        let request = prepared.as_ref().and_then(|prepared| prepared.data.request);
        let fresh =
            |prepared: &Arc<super::note::Known>| prepared.data.fresh.swap(false, Ordering::Relaxed);
        note.work = Work::Execute {
            request: request.filter(|_| prepared.as_ref().is_some_and(fresh)),
            values,
        };
        Ok(tracker.execute(portal, note)?)
    }

    fn sync(&mut self, tracker: &mut Outstanding, note: Note) -> Result<(), Problem> {
        // A server that takes in a copy swallows this; the client will send another one.
        if !tracker.may_be_copying() {
            let ask = self.forecast.end_batch(None);
            if let Some(ask) = ask.filter(|_| self.within_batch && self.may_inject(tracker)) {
                self.inject(ask, true, tracker, &note)?;
            }
            self.leave_batch();
        }
        let behind = note.aside();
        tracker.sync(note)?;
        self.errands_behind(tracker, &behind)
    }

    fn function_call(
        &mut self,
        whole: bool,
        tracker: &mut Outstanding,
        note: Note,
    ) -> Result<(), Problem> {
        self.errands_before(Some(&FUNCTION_CALL), tracker, &note)?;
        self.ask_before(&FUNCTION_CALL, true, tracker, &note)?;
        self.sent(&FUNCTION_CALL);
        if whole {
            self.between.executes(&FUNCTION_CALL);
        }
        self.forecast.end_batch(Some(&FUNCTION_CALL));
        self.leave_batch();
        let behind = note.aside();
        tracker.function_call(note)?;
        self.errands_behind(tracker, &behind)
    }

    /// Finds a text's trace comment and statements. `scratch` holds the text without the comment.
    fn read<'a>(
        &mut self,
        original: &'a [u8],
        tracker: &Outstanding,
        scratch: &'a mut Vec<u8>,
    ) -> Text<'a> {
        let mut text = Text {
            original,
            stripped: None,
            script: Arc::clone(&EMPTY),
            request: None,
            edits: Edits::new(),
            cut: None,
            doubtful: self.dialect_changes
                && !tracker.is_quiet()
                && (memchr::memchr(b'\\', original).is_some() || !original.is_ascii()),
        };
        if let Some(comment) = trace_comment(original, self.dialect) {
            let space: &[u8] = if comment.separates { b" " } else { b"" };
            scratch.clear();
            scratch.extend_from_slice(&original[..comment.range.start]);
            scratch.extend_from_slice(space);
            scratch.extend_from_slice(&original[comment.range.end..]);
            let script = self.scripts.get(scratch, self.dialect);
            let ours = comment.trace.prefix == self.trace_id_prefix;
            text.request = ours.then_some(comment.trace.request);
            if self.passive {
                text.script = script;
                self.dialect_changes |= text.script.changes_dialect;
                return text;
            }
            if !script.unterminated && !text.doubtful {
                let removed = comment.range.len();
                text.edits.replace(comment.range.start, removed, space);
                text.cut = Some((comment.range.start, removed, space.len()));
                text.stripped = Some(scratch);
                text.script = script;
                self.dialect_changes |= text.script.changes_dialect;
                return text;
            }
        }
        text.script = self.scripts.get(original, self.dialect);
        self.dialect_changes |= text.script.changes_dialect;
        text
    }

    pub(super) fn may_inject(&self, tracker: &Outstanding) -> bool {
        !self.passive
            && tracker.is_established()
            && !tracker.may_be_copying()
            && !tracker.is_discarding()
    }

    /// Asks what has to be known before a statement. `runs`: this message runs it, as opposed to
    /// preparing or binding it.
    fn ask_before(
        &mut self,
        statement: &Statement,
        runs: bool,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        let Some(ask) = self.forecast.before(statement) else {
            return Ok(());
        };
        if !self.may_inject(tracker) {
            return Ok(());
        }
        if self.within_batch {
            // Before a statement that ends the block there is time until it runs. If the block has
            // failed and nothing stops the batch before this, our failure would stop the statement
            // that was to end it.
            let ends = ends_block(&statement.kind);
            if ends && (!runs || !self.checked) {
                return Ok(());
            }
        }
        self.inject(ask, self.within_batch, tracker, note)
    }

    fn inject(
        &mut self,
        ask: Ask,
        inline: bool,
        tracker: &mut Outstanding,
        note: &Note,
    ) -> Result<(), Problem> {
        let transaction = self.forecast.number();
        let run = self.asks.choose(ask);
        self.close_left(false, inline, tracker, note)?;
        if self.asks.close_broken(&mut self.injected) {
            let work = Work::AskRest { inline };
            tracker.inject(Sent::Close, Note { work, ..*note })?;
        }
        self.asks.send(ask, run, &mut self.injected);
        for &sent in run.messages() {
            let work = match sent {
                Sent::Execute => Work::Ask {
                    ask,
                    transaction,
                    run,
                    inline,
                },
                _ => Work::AskRest { inline },
            };
            tracker.inject(sent, Note { work, ..*note })?;
        }
        if !inline {
            frontend::sync(&mut self.injected);
            tracker.inject(Sent::Sync, note.aside())?;
        }
        self.forecast.asked(ask);
        Ok(())
    }

    fn sent(&mut self, statement: &Statement) {
        self.forecast.sent(statement);
        self.between.sent(statement);
    }

    pub(super) fn is_within_batch(&self) -> bool {
        self.within_batch
    }

    fn enter_batch(&mut self, tracker: &Outstanding) {
        if !self.within_batch {
            self.within_batch = true;
            self.checked = tracker.outstanding() == tracker.injected_outstanding()
                && tracker.status() == Status::InTransaction;
        }
    }

    /// A failed block refuses everything but what ends it.
    fn check(&mut self, statement: Option<&Statement>) {
        self.checked |= statement.is_some_and(|statement| {
            !ends_block(&statement.kind)
                && !matches!(statement.kind, Kind::Rollback { .. } | Kind::RollbackTo)
        });
    }

    fn leave_batch(&mut self) {
        self.within_batch = false;
    }

    /// A message of ours failed, or was discarded because an earlier one did.
    pub fn lost(&mut self, pending: &Tracked) {
        match pending.payload.work {
            Work::Errand(errand) => {
                self.asks.broke();
                self.between.lost(errand);
            }
            Work::Ask { ask, run, .. } => self.asks.lost(ask, run),
            Work::Close { number, .. } => self.asks.kept.not_closed(number),
            _ => {}
        }
    }
}

static EMPTY: std::sync::LazyLock<Arc<Script>> = std::sync::LazyLock::new(|| {
    Arc::new(Script {
        statements: Vec::new(),
        unterminated: false,
        changes_dialect: false,
        reach: Reach::None,
    })
});

/// Where in the client's stream the part begins that the server has not dealt with yet. `end`:
/// where the stream ends so far.
pub(super) fn client_position(tracker: &Outstanding, end: u64) -> u64 {
    let next = tracker
        .pending()
        .find(|pending| pending.owner == Owner::Client);
    next.map_or(end, |pending| pending.payload.start)
}

fn ends_block(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Commit { .. } | Kind::PrepareTransaction { .. } | Kind::Release
    )
}

/// The place of a statement among the steps that lock, if it gives advisory locks back. The server
/// may give one of them to another session before this one is answered, so the place is that of the
/// moment at which it is sent. What the client has sent in front of it, and waits for, may take
/// longer than that.
fn gives_back(statement: &Statement, tracker: &Outstanding, cx: &Context<'_>) -> Option<u64> {
    let runs = |sent: Sent| matches!(sent, Sent::Query | Sent::Execute | Sent::FunctionCall);
    let mut clients = tracker.pending().filter(|one| one.owner != Owner::Injected);
    let is_next = statement.gives_back && !clients.any(|one| runs(one.sent));
    is_next.then(cx.lock_order)
}

/// Inserts at a position of the text as the server sees it.
fn insert(text: &mut Text<'_>, at: usize, inserted: &str) {
    let original = match text.cut {
        Some((start, removed, space)) if at >= start + space => at - space + removed,
        _ => at,
    };
    text.edits.insert(original, inserted.as_bytes());
}
