//! The coordinator as scripts: a recording, what a replay of it does, and what the coordinator
//! makes of that.
//!
//! A recording is written like this. Transactions come in the order in which they began and are
//! numbered from 0; `sees 101-100` is a snapshot with `xmax` 101 and 100 in progress, `locks 1@5`
//! an advisory lock of statement 1 that was the fifth to complete, `draws 0@7` that statement 0
//! drew 7 from a sequence, `with 7` that the first statement had this value.
//!
//! ```text
//! request 1 0..100
//! tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1; COMMIT
//! tx ghost 30..40 aborted sees 101-100: SELECT a FROM t
//! ```
//!
//! Then come questions and facts, one a line, and in the output behind each: the answer, what
//! differs now, and how many steps of the recording that was.

mod answers;
mod background;
mod changed;
mod handed;
mod let_go;
mod monitor;
mod moved;
mod recorded;
mod skipped;
mod together;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::Expect;
use hindcast_order::retroaction::Retroaction;
use hindcast_order::{Request, Schedule, Tx};
use hindcast_replay::changes::Changes;
use hindcast_replay::coordinator::{Background, Coordinator};
use hindcast_replay::hold::{Inserted, SentOpening};
use hindcast_replay::learned::Results;
use hindcast_replay::reading::only_reads;
use hindcast_replay::recording::Scope;
use hindcast_replay::setup::sets_up;
use hindcast_replay::shapes::Shapes;
use hindcast_replay::transaction::{Ask, Claim, Ended, EndedAs, MovedReads, Opening};
use hindcast_replay::transcript::Transcript;
use hindcast_replay::{Plan, Recording};
use hindcast_trace::{
    self as trace, Attribution, Digest, Id, Isolation, KeptValuesKey, Location, Outcome, Record,
    ShapeId, Snapshot, Trace, ValuesKey, Writer, WriterOptions, Xid,
};
use hindcast_wire::sql::{ADVISORY, Dialect, Script, Statement};
use hindcast_wire::{each_value, values_of};

/// A recording on disk, as its lines say.
#[derive(Default)]
pub struct Written {
    records: Vec<Record>,
    shapes: Vec<Vec<String>>,
    transactions: u64,
    values: Option<ValuesKey>,
}

impl Written {
    pub fn of(text: &str) -> Self {
        let mut written = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (what, rest) = line.split_once(' ').expect("what, and the rest");
            match what {
                "request" => written.request(rest),
                "tx" => written.transaction(rest),
                "base" => written.base(rest),
                _ => panic!("neither request, tx nor base: {line}"),
            }
        }
        written
    }

    /// When it was taken, and a dump's folder or a template's name.
    fn base(&mut self, words: &str) {
        let words: Vec<&str> = words.split_whitespace().collect();
        let [taken, kind, name] = words[..] else {
            panic!("base: {words:?}")
        };
        let name = name.to_owned();
        self.records.push(Record::Base(trace::Base {
            taken: number_of(taken) as i64,
            snapshot: snapshot("1"),
            kind: match kind {
                "dump" => trace::BaseKind::Dump { folder: name },
                "template" => trace::BaseKind::Template { database: name },
                _ => panic!("what is {kind}?"),
            },
        }));
    }

    fn request(&mut self, words: &str) {
        let mut words = words.split_whitespace();
        let id = Id(words.next().expect("an id").parse().expect("a number"));
        let (arrived, ended) = period(words.next().expect("a period"));
        let response = match words.next() {
            Some(_) => trace::Response::Broken {
                reason: "the client went away".to_owned(),
            },
            None => trace::Response::Answered {
                status: 200,
                headers: Vec::new(),
                body_digest: Digest::of(b""),
                body_bytes: 0,
                body: Some(Vec::new()),
            },
        };
        self.records.push(Record::Request(trace::Request {
            id,
            arrived,
            ended,
            method: "GET".to_owned(),
            target: format!("/{id}"),
            headers: Vec::new(),
            body: Vec::new(),
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            clock: Vec::new(),
            secrets: Default::default(),
            calls: Vec::new(),
            response,
        }));
    }

    fn transaction(&mut self, line: &str) {
        let (words, statements) = line.split_once(": ").expect("statements");
        let mut words = words.split_whitespace();
        let of = words.next().expect("a request");
        let (began, ended) = period(words.next().expect("a period"));
        let statements: Vec<String> = statements.split("; ").map(str::to_owned).collect();
        let number = self.transactions;
        self.transactions += 1;
        let mut transaction = trace::Transaction {
            id: Id(number),
            session: Id(number),
            request: of.parse().ok().map(|id| (Id(id), Attribution::Comment)),
            began,
            ended,
            isolation: Isolation::RepeatableRead,
            snapshot: None,
            xid: None,
            subxids: Vec::new(),
            outcome: Outcome::Committed,
            now: None,
            shape: self.shape(&statements),
            result_digest: Digest(number as u32),
            result_rows: 1,
            locks: Vec::new(),
            sequence_values: Vec::new(),
            drawn_uuids: Vec::new(),
            drawn: Vec::new(),
            clock: Vec::new(),
            server_bytes: None,
            secrets: Default::default(),
            client_bytes: None,
            statement_snapshots: Vec::new(),
            rechecked: Vec::new(),
            commit_lsn: None,
            values: None,
            row_order: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value");
            match word {
                "session" => transaction.session = Id(number_of(value())),
                "xid" => transaction.xid = Some(xid(value())),
                "sees" => transaction.snapshot = Some(snapshot(value())),
                "read-committed" => transaction.isolation = Isolation::ReadCommitted,
                // The server told what its statements saw, and where its commit is in the log.
                "told" => transaction.commit_lsn = Some(number_of(value())),
                "alone" => transaction.request = Some((Id(number_of(of)), Attribution::Alone)),
                "aborted" => {
                    transaction.outcome = Outcome::Aborted;
                    transaction.server_bytes = Some(Vec::new());
                }
                // With an answer of the server's, `sqlstate`.
                "failed" => {
                    transaction.outcome = Outcome::Aborted;
                    let mut bytes = bytes::BytesMut::new();
                    let sqlstate = value().as_bytes();
                    hindcast_wire::message::backend::error_response(
                        &mut bytes, b"ERROR", sqlstate, b"failed",
                    );
                    transaction.server_bytes = Some(bytes.to_vec());
                }
                "with" => {
                    let key = self.values.get_or_insert_with(ValuesKey::random);
                    let statement = format!("SELECT {}", value());
                    let script = Script::of(statement.as_bytes(), Dialect::default());
                    let values = values_of(&script.statements[0], None);
                    let (request, _) = transaction.request.expect("one of a request");
                    transaction.values = values.map(|one| key.prepared().of(request, one));
                }
                "draws" => {
                    let (statement, drawn) = value().split_once('@').expect("what");
                    let (sequence, value) = (5, number_of(drawn) as i64);
                    let first = trace::SequenceValue { sequence, value };
                    transaction.drawn.push(trace::Drawn {
                        statement: Some(number_of(statement) as u32),
                        value: trace::DrawnValue::Sequence { first, count: 1 },
                    });
                }
                "locks" => {
                    let (statement, completed) = value().split_once('@').expect("when");
                    transaction.locks.push(trace::Lock {
                        statement: number_of(statement) as u32,
                        target: ADVISORY,
                        completed: number_of(completed),
                    });
                }
                _ => panic!("what is {word}?"),
            }
        }
        self.records.push(Record::Transaction(transaction));
    }

    fn shape(&mut self, statements: &[String]) -> ShapeId {
        let known = self.shapes.iter().position(|known| known == statements);
        let at = known.unwrap_or_else(|| {
            self.shapes.push(statements.to_vec());
            self.shapes.len() - 1
        });
        ShapeId(at as u32)
    }

    pub fn trace(self, folder: &std::path::Path) -> Trace {
        let location = Location::folder(folder);
        let (writer, _) = Writer::create(&location, WriterOptions::default()).unwrap();
        for (statements, id) in self.shapes.into_iter().zip(0..) {
            let id = ShapeId(id);
            writer.record(Record::Shape(trace::Shape { id, statements }));
        }
        if let Some(key) = self.values {
            writer.record(Record::Recorder(recorder(key.plain())));
        }
        for record in self.records {
            writer.record(record);
        }
        writer.close().unwrap();
        Trace::open(&location).unwrap()
    }
}

fn recorder(key: KeptValuesKey) -> trace::Recorder {
    trace::Recorder {
        number: 0,
        started: 0,
        trace_id_prefix: 1,
        listen: String::new(),
        app: String::new(),
        pg_listen: String::new(),
        postgres: String::new(),
        database: String::new(),
        server_version: String::new(),
        system_identifier: 0,
        raised_isolation: None,
        hindcast_version: String::new(),
        redacted: Vec::new(),
        command: Vec::new(),
        directory: String::new(),
        environment: Vec::new(),
        pins_key: None,
        postgres_tls: None,
        values_key: Some(key),
    }
}

fn number_of(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is no number"))
}

fn period(word: &str) -> (i64, i64) {
    let (from, to) = word.split_once("..").expect("from..to");
    (number_of(from) as i64, number_of(to) as i64)
}

fn xid(word: &str) -> Xid {
    Xid(number_of(word))
}

fn snapshot(word: &str) -> Snapshot {
    let mut words = word.split('-');
    let xmax = xid(words.next().expect("xmax"));
    let in_progress: Vec<Xid> = words.map(xid).collect();
    Snapshot {
        xmin: in_progress.first().copied().unwrap_or(xmax),
        xmax,
        in_progress,
    }
}

/// What the service may do itself outside of requests: all ghosts, by their first statements.
fn background(recording: &Recording, shapes: &Shapes) -> Background {
    let opening = |tx: Tx| {
        let opening = SentOpening {
            hash: *shapes.openings.get(&recording.transaction(tx).shape)?,
            begun: false,
            values: Vec::new(),
            skips_locked: false,
        };
        Some((tx, opening))
    };
    let mut sessions: BTreeMap<_, Vec<Tx>> = BTreeMap::new();
    for tx in recording.ghosts() {
        let session = recording.transaction(tx).session;
        sessions.entry(session).or_default().push(tx);
    }
    let openings = recording.ghosts().filter_map(opening).collect();
    Background::new(recording, openings, &sessions)
}

struct Replay {
    coordinator: Coordinator,
    recording: Arc<Recording>,
    shapes: Vec<Vec<String>>,
    shown: String,
}

enum How {
    Recorded { sequential: bool },
    Changed,
}

impl Replay {
    fn new(recording: &str, how: How) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let written = Written::of(recording);
        let known = written.shapes.clone();
        let trace = written.trace(folder.path());
        let plan = Arc::new(Plan::new(&trace, None, None, None).unwrap());
        let shapes = Arc::new(Shapes::of(&trace));
        let scope = Scope {
            changed: matches!(how, How::Changed),
            ..Scope::ALL
        };
        let (recording, levels, locks) = Recording::load(&trace, &plan, &shapes, &scope).unwrap();
        let recording = Arc::new(recording);
        let coordinator = match how {
            How::Recorded { sequential } => Coordinator::new(
                Arc::clone(&recording),
                plan,
                Schedule::new(levels, locks),
                shapes,
                sequential,
                true,
            ),
            How::Changed => Coordinator::changed(
                Arc::clone(&recording),
                plan,
                Retroaction::new(levels, recording.past(), []),
                Changes::default(),
                shapes,
            ),
        };
        Self {
            coordinator,
            recording,
            shapes: known,
            shown: String::new(),
        }
    }

    fn run(&mut self, script: &str) {
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let steps = self.coordinator.steps();
            let (divergences, differing) = (self.divergences().len(), self.differing().len());
            let answer = self.act(line);
            self.shown += line;
            if !answer.is_empty() {
                self.shown += &format!(" => {answer}");
            }
            match self.coordinator.steps() - steps {
                0 => {}
                steps => self.shown += &format!(" +{steps}"),
            }
            self.shown += "\n";
            for new in &self.divergences()[divergences..] {
                self.shown += &format!("    {new}\n");
            }
            for new in self.differing().get(differing..).unwrap_or_default() {
                self.shown += &format!("    {new}\n");
            }
        }
    }

    fn divergences(&self) -> Vec<String> {
        let all = self.coordinator.divergences();
        all.map(|one| {
            let at = |id: Option<Id>| id.map_or("-".to_owned(), |id| id.to_string());
            let (request, transaction) = (one.position.request, one.position.transaction);
            format!("{} {} {:?}", at(request), at(transaction), one.kind)
        })
        .collect()
    }

    fn differing(&self) -> Vec<String> {
        let Some(changes) = self.coordinator.changes() else {
            return Vec::new();
        };
        let all = changes.differing.iter();
        all.map(|one| format!("{:?} {:?} {:?}", one.tx, one.request, one.kind))
            .collect()
    }

    fn request(&self, id: &str) -> Request {
        self.recording
            .find(Id(number_of(id)))
            .expect("it is recorded")
    }

    fn act(&mut self, line: &str) -> String {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let tx = || Tx(number_of(first) as u32);
        let coordinator = &mut self.coordinator;
        match what {
            "claim" => {
                let script = Script::of(second.as_bytes(), Dialect::default());
                let is_opening = |one: &&Statement| one.takes_snapshot;
                let mut looking = script.statements.iter().filter(is_opening);
                // What came before it did not tell which one it is.
                let opening = looking.next_back().expect("it takes a snapshot");
                let earlier: Vec<u64> = looking.map(|one| one.fingerprint.hash).collect();
                let request = first.parse().ok().map(Id);
                let opening = Opening {
                    text: &opening.fingerprint.text,
                    hash: opening.fingerprint.hash,
                    sets_up: sets_up(opening),
                    reads_alone: script.statements.len() == 1 && only_reads(opening),
                    begun: second.starts_with("BEGIN"),
                    earlier: &earlier,
                    values: values_of(opening, None),
                    each_value: &each_value(opening, None),
                    may_wait: false,
                    waited: false,
                };
                return format!("{:?}", coordinator.claim(request, opening));
            }
            "may" => {
                let (tx, statement) = second.split_once(' ').unwrap_or((second, "0"));
                let tx = Tx(number_of(tx) as u32);
                let ask = match first {
                    "snapshot" => Ask::Snapshot(tx),
                    "insert" => Ask::Insert(tx, number_of(statement) as u32),
                    "lock" => Ask::Lock(tx, number_of(statement) as u32),
                    "act" => Ask::Act(tx),
                    "commit" => Ask::Commit(tx),
                    "answer" => Ask::Answer(tx),
                    _ => panic!("may what? {first}"),
                };
                return if coordinator.may(ask) { "yes" } else { "no" }.to_owned();
            }
            "snapshot" => coordinator.took_snapshot(tx()),
            "locked" => coordinator.locked(tx(), number_of(second) as u32),
            "ran" => coordinator.ran(tx()),
            "ended" => {
                let (claim, ended) = self.ended(first, second);
                self.coordinator.ended(claim, &ended);
            }
            "served" => coordinator.served(tx(), second == "whole", MovedReads::default()),
            "lost" => {
                let how = if second.is_empty() {
                    "rolled-back"
                } else {
                    second
                };
                let (claim, ended) = self.ended(first, how);
                self.coordinator.lost(claim, ended);
            }
            "sent" => {
                let request = self.request(first);
                self.coordinator.request_sent(request);
            }
            "answered" => {
                let request = self.request(first);
                self.coordinator.request_ended(request);
            }
            "alone" => {
                let request = self.request(first);
                return self.coordinator.must_be_alone(request).to_string();
            }
            "begun" => {
                let request = self.request(first);
                return self.coordinator.has_begun(request).to_string();
            }
            "background" => {
                // `0 INSERT INTO t VALUES (7); …`: what the ghost lays.
                let script = Script::of(second.as_bytes(), Dialect::default());
                let rows = script.statements.iter().map(|one| (row(one), tx()));
                let background = background(&self.recording, coordinator.shapes());
                let background = background.with_rows(rows.collect());
                coordinator.set_background(background);
            }
            "is-laid" => {
                let script = Script::of(rest.as_bytes(), Dialect::default());
                return coordinator.is_laid(&row(&script.statements[0])).to_string();
            }
            "ghost-turn" => {
                let waited = Duration::from_millis(number_of(second));
                return format!("{:?}", coordinator.ghost_turn(tx(), waited, false));
            }
            "ghost" => return coordinator.claim_ghost(tx()).to_string(),
            "ghost-over" => coordinator.ghost_over(tx()),
            "ghost-failed" => coordinator.ghost_failed(tx(), second.to_owned()),
            "wrote" => {
                let statements = [second.to_owned()];
                coordinator.wrote(claim(first), &[700], &statements);
            }
            "must-yield" => {
                let holder = Tx(number_of(second) as u32);
                return coordinator.must_yield(claim(first), holder).to_string();
            }
            "let-go" => {
                let asks: Vec<Ask> = rest
                    .split_whitespace()
                    .map(|tx| Ask::Commit(Tx(number_of(tx) as u32)))
                    .collect();
                coordinator.let_go(&asks);
            }
            "nothing-moves" => {
                let (asked, all): (fn(Tx) -> Ask, &str) = match rest.strip_prefix("commit ") {
                    Some(all) => (Ask::Commit, all),
                    None => (Ask::Snapshot, rest),
                };
                let asks = all.split_whitespace();
                let asks: Vec<Ask> = asks.map(|tx| asked(Tx(number_of(tx) as u32))).collect();
                coordinator.nothing_moves(&asks);
            }
            "came" => coordinator.came(Some(Claim::Outside), &hashes(rest)),
            "turned-out-as-none" => coordinator.came(None, &hashes(rest)),
            "asks-to-see" => coordinator.asks_to_see(Ask::Snapshot(tx())),
            "sees-present" => return coordinator.sees_present(Ask::Snapshot(tx())).to_string(),
            "counts-let-go" => return coordinator.reads_let_go().to_string(),
            "withhold" => coordinator.withhold(tx()),
            "gave" => coordinator.gave_answer(tx()),
            "awaits" => return format!("{:?}", coordinator.answer_awaits(tx())),
            "in-vain" => {
                let awaited = coordinator.answer_awaits(tx()).expect("it waits");
                coordinator.waited_in_vain(awaited);
            }
            "settle" => coordinator.settle_moved(),
            "settle-changes" => {
                let changes = coordinator.take_changes().expect("the code is changed");
                let differing = changes.differing.iter();
                let differing: Vec<String> =
                    differing.map(|one| format!("{:?}", one.kind)).collect();
                return format!("{differing:?} {:?}", changes.counts);
            }
            "moved" => {
                let moved = coordinator.moved();
                let moved: Vec<String> = moved
                    .map(|(text, times)| format!("{times}× {text}"))
                    .collect();
                return moved.join(", ");
            }
            "stop" => coordinator.stop(),
            "finished" => return coordinator.is_finished().to_string(),
            "over" => return coordinator.is_over().to_string(),
            "counts" => return format!("{:?}", coordinator.counts()),
            "changes" => {
                let changes = coordinator.changes().expect("the code is changed");
                let outdated = changes.outdated().is_some();
                return format!("{:?}, outdated: {outdated}", changes.counts);
            }
            _ => panic!("no such thing: {line}"),
        }
        String::new()
    }

    /// `0` or `added-0`, and then nothing, `results`, `statements SQL`, `error text` or
    /// `rolled-back`.
    fn ended(&self, of: &str, how: &str) -> (Claim, Ended) {
        let claim = claim(of);
        let (how, rest) = how.split_once(' ').unwrap_or((how, ""));
        let (shape, digest) = match claim {
            Claim::Run(tx) => {
                let recorded = self.recording.transaction(tx);
                (recorded.shape, recorded.digest.0)
            }
            _ => (ShapeId(99), 0),
        };
        let statements = self.shapes.get(shape.0 as usize).cloned();
        let mut ended = Ended {
            shape,
            digest,
            digest_as_sent: digest,
            rows: 1,
            fate: EndedAs::Committed,
            hashes: Vec::new(),
            aside: Vec::new(),
            statements: statements.unwrap_or_default(),
            results: Results::default(),
            transcript: Transcript::default(),
        };
        match how {
            "" => {}
            "results" => {
                (ended.digest, ended.rows) = (digest + 1000, 2);
                ended.digest_as_sent = ended.digest;
            }
            // Those of the recorded transaction with this number.
            "results-of" => {
                let other = self.recording.transaction(Tx(number_of(rest) as u32));
                ended.digest = other.digest.0;
                ended.digest_as_sent = ended.digest;
            }
            "statements" => {
                ended.shape = ShapeId(99);
                ended.hashes = hashes(rest);
                ended.statements = rest.split("; ").map(str::to_owned).collect();
            }
            "error" => {
                let error = Some(rest.to_owned());
                ended.fate = EndedAs::RolledBack { error };
            }
            "rolled-back" => ended.fate = EndedAs::RolledBack { error: None },
            _ => panic!("ended how? {how}"),
        }
        (claim, ended)
    }
}

/// What a statement lays.
fn row(statement: &Statement) -> Inserted {
    (statement.fingerprint.hash, each_value(statement, None))
}

fn hashes(statements: &str) -> Vec<u64> {
    let statements = statements.split("; ");
    let scripts = statements.map(|text| Script::of(text.as_bytes(), Dialect::default()));
    let all = scripts.flat_map(|script| script.statements);
    all.map(|one| one.fingerprint.hash).collect()
}

fn claim(word: &str) -> Claim {
    match word.strip_prefix("added-") {
        Some(id) => Claim::Added(number_of(id) as u32),
        None => Claim::Run(Tx(number_of(word) as u32)),
    }
}

#[track_caller]
fn check(how: How, recording: &str, script: &str, expected: Expect) {
    let mut replay = Replay::new(recording, how);
    replay.run(script);
    expected.assert_eq(&replay.shown);
}

/// The answers to one of the questions in a script.
fn answers(how: How, recording: &str, script: &str, question: &str) -> Vec<String> {
    let mut replay = Replay::new(recording, how);
    replay.run(script);
    let lines = replay
        .shown
        .lines()
        .filter_map(|line| line.split_once(" => "));
    let asked = lines.filter(|(what, _)| what.trim() == question);
    asked.map(|(_, answer)| answer.to_owned()).collect()
}
