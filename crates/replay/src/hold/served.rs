//! Answers from the recording: what an aborted transaction was told.
//!
//! A driver need not ask in the same words again. A statement that was prepared already when it was
//! recorded may have to be prepared now. So preparing is left to the server, which does it for
//! real, and the recording answers only what runs statements. It is kept as a list of *results*,
//! one per `Query` or `Execute`; everything around them is made anew.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_wire::Status;
use hindcast_wire::message::{backend as server, frontend as client};
use hindcast_wire::text::Settings;

use super::formats::{as_asked, next_message};
use super::names::Bound;
use crate::transaction::MovedReads;

/// What is left of the recorded answers of an aborted transaction.
#[derive(Debug)]
pub struct Served {
    results: VecDeque<Recorded>,
    /// It is known which of them a driver asked for itself.
    knows_lookups: bool,
    /// Those that read, where it did nothing else: services have what they read in caches, and
    /// ask for more or for less.
    reads: Vec<u64>,
    moved: MovedReads,
    /// What the next `ReadyForQuery` says.
    status: Status,
    /// After an error everything up to the next `Sync` goes unanswered.
    skipping: bool,
    copying: bool,
    /// The data belongs to a `Query`.
    copying_query: bool,
    /// What the client takes the rows for that come next, by what it has bound. `None`: it has
    /// asked what they are.
    expected: Option<Box<Bound>>,
}

/// What running something was answered, from its description or first row to its end.
#[derive(Debug, PartialEq, Eq)]
struct Recorded {
    /// `RowDescription` or `NoData`: a driver that prepared a statement when it was recorded may
    /// send it as a text now, and the other way round. `None` where a portal was not described,
    /// and for a text of several statements.
    description: Option<Bytes>,
    /// What a cursor was described as before that, which a driver asks of one that it has declared.
    cursor: Option<Bytes>,
    messages: Bytes,
    failed: bool,
    /// The server failed before anything came of it: while it prepared or bound, or as the first
    /// thing that it did for a `Query`, which its answer does not tell apart.
    bare: bool,
    /// Of the `ReadyForQuery` behind it.
    status: Status,
    /// The statement, if it is one that a driver sends for itself: the hash of its fingerprint.
    lookup: Option<u64>,
}

impl Recorded {
    fn describe(&mut self) -> Option<Bytes> {
        self.cursor.take().or_else(|| self.described())
    }

    /// What a portal is described as. A driver that has run a statement several times does not ask
    /// for that any more, as pgjdbc; on another connection it may be the first time. What writes
    /// and gave no rows has none, and what failed is not read that far.
    fn described(&self) -> Option<Bytes> {
        const NONE: &[u8] = &[server::NO_DATA, 0, 0, 0, 4];
        let only_wrote = || {
            let mut rest = self.messages.clone();
            let mut each = std::iter::from_fn(|| next_message(&mut rest));
            each.all(|message| match message[0] {
                server::COMMAND_COMPLETE => {
                    const WRITES: [&[u8]; 4] = [b"INSERT ", b"UPDATE ", b"DELETE ", b"MERGE "];
                    WRITES.iter().any(|tag| message[5..].starts_with(tag))
                }
                tag => comes_unasked(tag),
            })
        };
        let known = self.description.clone();
        known.or_else(|| (self.failed || only_wrote()).then(|| Bytes::from_static(NONE)))
    }

    /// What is not ended by a message of its own: a text's answer, or one that is cut off.
    fn rest(description: Option<Bytes>, messages: Bytes, status: Status) -> Self {
        Self {
            description,
            cursor: None,
            messages,
            failed: false,
            bare: false,
            status,
            lookup: None,
        }
    }
}

/// What was answered originally.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    pub bytes: Vec<u8>,
    /// By statement that ran: the hash of its fingerprint, if its driver asks the catalog for
    /// itself by it, for more or for less in a replay. Empty: that is not known.
    pub lookups: Vec<Option<u64>>,
    /// Which of these read what a service may have in a cache, where the transaction did nothing
    /// else.
    pub reads: Vec<u64>,
}

/// A statement that may come for more or for less in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The hash of its fingerprint.
    pub hash: u64,
    /// A driver asks the catalog by it for itself.
    pub of_driver: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Continues,
    /// The recorded transaction is over. `complete`: nothing is left.
    Ended {
        complete: bool,
    },
    /// The recording has no answer to this.
    Exhausted,
}

impl Served {
    pub fn new(answered: Answered) -> Self {
        let mut results = results(answered.bytes.into());
        // Of a text of several statements there is one result.
        let knows_lookups = results.len() == answered.lookups.len();
        if knows_lookups {
            let each = results.iter_mut().zip(answered.lookups);
            each.for_each(|(result, lookup)| result.lookup = lookup);
        }
        Self {
            results,
            knows_lookups,
            reads: answered.reads,
            moved: MovedReads::default(),
            status: Status::InTransaction,
            skipping: false,
            copying: false,
            copying_query: false,
            expected: None,
        }
    }

    /// The client has bound this, or asked what its rows are.
    pub fn expects(&mut self, bound: Option<Bound>) {
        self.expected = bound.map(Box::new);
    }

    /// The client runs what it has bound: it gets its rows in the formats that it asked for.
    pub fn put_in_format(&mut self, settings: &Settings) {
        let next = self.results.front_mut();
        if let (Some(bound), Some(next)) = (self.expected.take(), next)
            && let Some(description) = bound.prepared.description()
            && let Some(messages) = as_asked(&next.messages, description, &bound.formats, settings)
        {
            next.messages = messages;
        }
    }

    /// Whether a message is the server's to answer: it only prepares. A failed transaction refuses
    /// even that.
    pub fn is_live(&self, tag: u8, body: &[u8]) -> bool {
        match tag {
            client::PARSE => !(self.status == Status::Failed && self.fails_bare()),
            client::DESCRIBE | client::CLOSE => body.first() == Some(&b'S'),
            _ => false,
        }
    }

    /// What the rows of the statement that comes next are described as, if the recording says it.
    pub fn description(&self) -> Option<Bytes> {
        let next = self.results.front()?;
        next.cursor.clone().or_else(|| next.described())
    }

    /// The messages that were answered to the statement that comes next, if the recording does not
    /// say what its rows are.
    pub fn undescribed(&self) -> Option<Bytes> {
        let next = self.results.front()?;
        self.description().is_none().then(|| next.messages.clone())
    }

    /// The client is about to run a statement, which may be one that comes for more or for less.
    /// What was asked so here, and is not now, is passed over. Returns whether the recording has no
    /// answer to it, and the server is to give one.
    pub fn comes_anew(&mut self, asked: Option<Asked>) -> bool {
        let asked = asked.filter(|one| one.of_driver || !self.reads.is_empty());
        let lookup = asked.map(|one| one.hash);
        if !self.knows_lookups || self.skipping || self.status != Status::InTransaction {
            return false;
        }
        let mut ahead = self.results.iter().take_while(|one| one.lookup.is_some());
        let here = match lookup {
            Some(_) => ahead.position(|one| one.lookup == lookup),
            None => Some(ahead.count()),
        };
        if let Some(passed) = here {
            let passed = self.results.drain(..passed);
            let passed = passed.filter_map(|one| one.lookup);
            let reads = passed.filter(|hash| self.reads.contains(hash));
            self.moved.gone.extend(reads);
        }
        if let Some(read) = asked.filter(|one| !one.of_driver) {
            let came = match here {
                Some(_) => &mut self.moved.same,
                None => &mut self.moved.new,
            };
            came.push(read.hash);
        }
        here.is_none()
    }

    /// Whether nothing is left that has to come. Also where the session is closed: originally it
    /// was closed there, too.
    pub fn is_through(&self) -> bool {
        self.results.iter().all(|left| left.lookup.is_some())
    }

    /// The reads that have come, and those that have not.
    pub fn moved(&mut self) -> MovedReads {
        std::mem::take(&mut self.moved)
    }

    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The client was told already that so many statements of the next `Query` are complete.
    pub fn pass_over(&mut self, completed: usize) {
        let Some(next) = self.results.front_mut() else {
            return;
        };
        for _ in 0..completed {
            let mut rest = next.messages.clone();
            while let Some(message) = next_message(&mut rest) {
                if message[0] == server::COMMAND_COMPLETE {
                    next.messages = rest;
                    break;
                }
            }
        }
    }

    fn fails_bare(&self) -> bool {
        self.results.front().is_some_and(|next| next.bare)
    }

    /// The server could not prepare something.
    pub fn preparing_failed(&mut self) {
        if self.fails_bare()
            && let Some(next) = self.results.pop_front()
        {
            self.status = next.status;
        }
        self.skipping = true;
    }

    /// Puts the recorded answer to a message of the client into `out`.
    pub fn answer(&mut self, tag: u8, out: &mut BytesMut) -> Progress {
        match tag {
            client::SYNC if self.copying => Progress::Continues,
            client::SYNC => {
                self.skipping = false;
                self.ready(out)
            }
            _ if self.skipping => Progress::Continues,
            client::QUERY | client::FUNCTION_CALL => {
                let next = self.results.front();
                let description = next.and_then(|next| next.description.as_ref());
                if let Some(rows) = description.filter(|one| one[0] == server::ROW_DESCRIPTION) {
                    out.put_slice(rows);
                }
                if self.run(out) == Progress::Exhausted {
                    return Progress::Exhausted;
                }
                self.copying_query = self.copying;
                if self.copying {
                    Progress::Continues
                } else {
                    self.ready(out)
                }
            }
            client::PARSE | client::BIND if self.fails_bare() => self.run(out),
            client::BIND => {
                server::bind_complete(out);
                Progress::Continues
            }
            client::CLOSE => {
                server::close_complete(out);
                Progress::Continues
            }
            client::DESCRIBE => match self.results.front_mut().and_then(Recorded::describe) {
                Some(description) => {
                    out.put_slice(&description);
                    Progress::Continues
                }
                None => Progress::Exhausted,
            },
            client::EXECUTE => self.run(out),
            client::COPY_DONE | client::COPY_FAIL => {
                self.copying = false;
                // What the data came to is the rest of the result. In the simple protocol that ends
                // the query, too.
                let simple = std::mem::take(&mut self.copying_query);
                match self.run(out) {
                    Progress::Continues if simple => self.ready(out),
                    progress => progress,
                }
            }
            _ => Progress::Continues,
        }
    }

    fn run(&mut self, out: &mut BytesMut) -> Progress {
        let Some(next) = self.results.pop_front() else {
            return Progress::Exhausted;
        };
        out.put_slice(&next.messages);
        self.status = next.status;
        self.skipping = next.failed;
        self.copying = awaits_data(&next.messages);
        Progress::Continues
    }

    fn ready(&mut self, out: &mut BytesMut) -> Progress {
        self.skipping = false;
        server::ready_for_query(out, self.status);
        match self.status {
            Status::Idle => Progress::Ended {
                complete: self.is_through(),
            },
            _ => Progress::Continues,
        }
    }
}

fn ends_portal(tag: u8) -> bool {
    matches!(
        tag,
        server::COMMAND_COMPLETE | server::EMPTY_QUERY_RESPONSE | server::PORTAL_SUSPENDED
    )
}

/// What a portal of this text would be described as; takes it off its answer. `None` if it has
/// several statements.
fn split_description(answer: &mut Bytes) -> Option<Bytes> {
    let mut rest = answer.clone();
    let first = next_message(&mut rest)?;
    let of_rows = first[0] == server::ROW_DESCRIPTION;
    let mut behind = match of_rows {
        true => rest.clone(),
        false => answer.clone(),
    };
    let messages = std::iter::from_fn(|| next_message(&mut behind));
    let ends = messages.filter(|message| {
        matches!(
            message[0],
            server::COMMAND_COMPLETE | server::EMPTY_QUERY_RESPONSE | server::ROW_DESCRIPTION
        )
    });
    if ends.count() != 1 {
        return None;
    }
    if of_rows {
        *answer = rest;
        return Some(first);
    }
    Some(Bytes::from_static(&[server::NO_DATA, 0, 0, 0, 4]))
}

/// `CopyInResponse` ends what is sent before the data.
fn awaits_data(messages: &Bytes) -> bool {
    let mut rest = messages.clone();
    let last = std::iter::from_fn(|| next_message(&mut rest)).last();
    last.is_some_and(|message| message[0] == server::COPY_IN_RESPONSE)
}

/// What the server tells of its own accord, as that a setting is another one now. That comes behind
/// what was asked.
fn comes_unasked(tag: u8) -> bool {
    matches!(
        tag,
        server::NOTICE_RESPONSE | server::PARAMETER_STATUS | server::NOTIFICATION_RESPONSE
    )
}

fn are_unasked(mut messages: Bytes) -> bool {
    std::iter::from_fn(|| next_message(&mut messages)).all(|message| comes_unasked(message[0]))
}

/// Takes recorded answers apart.
fn results(mut bytes: Bytes) -> VecDeque<Recorded> {
    let mut found = VecDeque::new();
    let mut batch = Vec::new();
    let mut cursor = None;
    while let Some(message) = next_message(&mut bytes) {
        if message[0] != server::READY_FOR_QUERY {
            batch.push(message);
            continue;
        }
        let status = server::parse_ready_for_query(&message[5..]).unwrap_or(Status::Idle);
        match &batch[..] {
            [only] if matches!(only[0], server::ROW_DESCRIPTION | server::NO_DATA) => {
                cursor = batch.pop();
            }
            _ => {
                let mut of_batch = of_batch(std::mem::take(&mut batch), status);
                if let Some(first) = of_batch.first_mut() {
                    first.cursor = cursor.take();
                }
                found.extend(of_batch);
            }
        }
    }
    found
}

/// What one batch ran. In the simple protocol all of it is one result; in the extended protocol
/// each `Execute` has its own.
fn of_batch(messages: Vec<Bytes>, status: Status) -> Vec<Recorded> {
    let extended = messages.iter().any(|message| {
        matches!(
            message[0],
            server::PARSE_COMPLETE
                | server::BIND_COMPLETE
                | server::CLOSE_COMPLETE
                | server::PARAMETER_DESCRIPTION
                | server::NO_DATA
        )
    });
    let (mut results, mut current, mut description) = (Vec::new(), BytesMut::new(), None);
    let (mut describes_statement, mut came_of_it) = (false, false);
    for message in messages {
        match message[0] {
            server::PARSE_COMPLETE | server::CLOSE_COMPLETE => continue,
            server::BIND_COMPLETE => {
                came_of_it = true;
                continue;
            }
            server::PARAMETER_DESCRIPTION => {
                describes_statement = true;
                continue;
            }
            server::ROW_DESCRIPTION | server::NO_DATA if extended => {
                if !std::mem::take(&mut describes_statement) {
                    description = Some(message);
                }
                continue;
            }
            _ => {}
        }
        current.put_slice(&message);
        let failed = message[0] == server::ERROR_RESPONSE;
        let ends = match message[0] {
            server::COPY_IN_RESPONSE => true,
            tag => failed || extended && ends_portal(tag),
        };
        let bare = failed && !came_of_it;
        came_of_it |= message[0] != server::NOTICE_RESPONSE;
        if ends {
            results.push(Recorded {
                description: description.take(),
                cursor: None,
                messages: current.split().freeze(),
                failed,
                bare,
                status,
                lookup: None,
            });
        }
    }
    if !current.is_empty() {
        let mut messages = current.freeze();
        if extended
            && let Some(last) = results.last_mut()
            && are_unasked(messages.clone())
        {
            last.messages = [&last.messages[..], &messages].concat().into();
            return results;
        }
        if !extended {
            description = split_description(&mut messages);
        }
        results.push(Recorded::rest(description, messages, status));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// The tags of what is answered to messages with these tags, and how far the transaction is
    /// then.
    #[track_caller]
    fn check(recorded: &[Vec<u8>], asked: &[u8], answered: &[u8], progress: Progress) {
        let mut served = Served::new(Answered {
            bytes: recorded.concat(),
            ..Answered::default()
        });
        let (mut out, mut last) = (BytesMut::new(), Progress::Continues);
        for &tag in asked {
            last = served.answer(tag, &mut out);
        }
        let mut bytes = out.freeze();
        let tags: Vec<u8> = std::iter::from_fn(|| next_message(&mut bytes))
            .map(|message| message[0])
            .collect();
        assert_eq!(
            String::from_utf8_lossy(&tags),
            String::from_utf8_lossy(answered)
        );
        assert_eq!(last, progress);
    }

    #[test]
    fn a_failed_batch_is_answered_up_to_its_error_and_then_at_its_sync() {
        let recorded = [
            message(b'1', b""),
            message(b'2', b""),
            message(b'n', b""),
            message(b'E', b"C23505\0\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"BDES",
            b"2nEZ",
            Progress::Ended { complete: true },
        );
    }

    /// `set_config('role', …)`, and that it holds no more.
    #[test]
    fn that_a_setting_is_another_one_is_no_answer_of_its_own() {
        let recorded = [
            message(b'2', b""),
            message(b'T', b"\0\0"),
            message(b'D', b"\0\0"),
            message(b'C', b"SELECT 1\0"),
            message(b'S', b"is_superuser\0off\0"),
            message(b'Z', b"T"),
            message(b'2', b""),
            message(b'C', b"UPDATE 1\0"),
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'Z', b"T"),
            message(b'2', b""),
            message(b'n', b""),
            message(b'E', b"C23505\0\0"),
            message(b'S', b"is_superuser\0on\0"),
            message(b'Z', b"E"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"BDESBDESBDESQ",
            b"2TDCSZ2nCSZ2nESZCZ",
            Progress::Ended { complete: true },
        );
    }

    /// psycopg's cursors on the server's side.
    #[test]
    fn a_cursor_that_is_described_by_itself_is_described_as_it_was() {
        let recorded = [
            message(b'2', b""),
            message(b'n', b""),
            message(b'C', b"DECLARE CURSOR\0"),
            message(b'Z', b"T"),
            message(b'T', b"\0\0"),
            message(b'Z', b"T"),
            message(b'2', b""),
            message(b'n', b""),
            message(b'E', b"C40P01\0\0"),
            message(b'Z', b"E"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"BDESDSBDESQ",
            b"2nCZTZ2nEZCZ",
            Progress::Ended { complete: true },
        );
    }

    #[test]
    fn what_was_prepared_then_need_not_be_prepared_now_and_the_other_way_round() {
        let prepared_then = [
            message(b'1', b""),
            message(b't', b"\0\0"),
            message(b'T', b"\0\0"),
            message(b'Z', b"T"),
            message(b'2', b""),
            message(b'D', b"\0\0"),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"T"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        check(
            &prepared_then,
            b"BESQ",
            b"2DCZCZ",
            Progress::Ended { complete: true },
        );
        let known_then = [
            message(b'2', b""),
            message(b'D', b"\0\0"),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"T"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        // Its Parse and Describe are answered by the server; the Sync behind them is answered here.
        check(
            &known_then,
            b"SBESQ",
            b"Z2DCZCZ",
            Progress::Ended { complete: true },
        );
    }

    #[test]
    fn what_was_a_text_then_may_be_a_prepared_statement_now_and_the_other_way_round() {
        let ended = Progress::Ended { complete: true };
        let rows = |tag| {
            [
                message(tag, b"\0\0"),
                message(b'D', b"\0\0"),
                message(b'C', b"SELECT 1\0"),
            ]
        };
        let (done, ready) = (message(b'C', b"ROLLBACK\0"), |status| message(b'Z', status));
        let text = [&rows(b'T')[..], &[ready(b"T"), done.clone(), ready(b"I")]].concat();
        check(&text, b"BDESBDES", b"2TDCZ2nCZ", ended);
        check(&text, b"QQ", b"TDCZCZ", ended);
        let prepared = [
            &[message(b'2', b"")],
            &rows(b'T')[..],
            &[
                ready(b"T"),
                message(b'2', b""),
                message(b'n', b""),
                done,
                ready(b"I"),
            ],
        ];
        check(&prepared.concat(), b"QQ", b"TDCZCZ", ended);
        // Of several statements nobody can say what a portal of them is.
        let several = [&rows(b'T')[..], &rows(b'T'), &[ready(b"I")]].concat();
        check(&several, b"Q", b"TDCTDCZ", ended);
        check(&several, b"D", b"", Progress::Exhausted);
    }

    #[test]
    fn what_wrote_and_was_not_described_then_has_no_rows_now() {
        let ended = Progress::Ended { complete: true };
        let rest = [
            message(b'Z', b"T"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        let answered = |messages: &[Vec<u8>]| [&[message(b'2', b"")], messages, &rest].concat();
        let wrote = answered(&[message(b'C', b"UPDATE 0\0")]);
        check(&wrote, b"BDESQ", b"2nCZCZ", ended);
        let failed = answered(&[message(b'E', b"C23505\0\0")]);
        check(&failed, b"BDESQ", b"2nEZCZ", ended);
        // Rows have columns, which are not known.
        let read = answered(&[message(b'D', b"\0\0"), message(b'C', b"INSERT 0 1\0")]);
        check(&read, b"BD", b"2", Progress::Exhausted);
        let none = answered(&[message(b'C', b"SELECT 0\0")]);
        check(&none, b"BD", b"2", Progress::Exhausted);
    }

    #[test]
    fn a_query_is_answered_up_to_ready() {
        let recorded = [
            message(b'C', b"BEGIN\0"),
            message(b'Z', b"T"),
            message(b'E', b"C40001\0\0"),
            message(b'Z', b"E"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"QQQ",
            b"CZEZCZ",
            Progress::Ended { complete: true },
        );
        check(&recorded, b"QQ", b"CZEZ", Progress::Continues);
    }

    #[test]
    fn a_statement_that_could_not_even_be_bound_fails_when_it_is_bound() {
        let recorded = [
            message(b'C', b"BEGIN\0"),
            message(b'Z', b"T"),
            message(b'1', b""),
            message(b'E', b"C22P02\0\0"),
            message(b'Z', b"E"),
            message(b'C', b"ROLLBACK\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"QBDESQ",
            b"CZEZCZ",
            Progress::Ended { complete: true },
        );
    }

    #[test]
    fn data_of_a_copy_is_taken_in_and_its_outcome_is_as_recorded() {
        let recorded = [
            message(b'G', b"\0\0\0"),
            message(b'E', b"C22P04\0\0"),
            message(b'Z', b"I"),
        ];
        check(
            &recorded,
            b"Qddc",
            b"GEZ",
            Progress::Ended { complete: true },
        );
    }

    #[test]
    fn more_questions_than_answers_are_noticed() {
        let recorded = [message(b'C', b"BEGIN\0"), message(b'Z', b"T")];
        check(&recorded, b"QQ", b"CZ", Progress::Exhausted);
    }
}
