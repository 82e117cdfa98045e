//! Sessions under replay as scripts: what the client sends, what the server gets, what has to wait,
//! and what the context is told.
//!
//! A line that begins with `>` is the client's: messages in `wire`'s notation, several in one piece
//! with `|` between them. The server of these tests answers at once, and every step is permitted at
//! once; lines with `@` change that (see [`Session::set`]). `{5}` in a text is a comment that names
//! request 5.
//!
//! In the output `»` goes to the server, `«` to the client, `?` is a step that needs permission,
//! and `!` is what the context hears. Statements of the holder's own are shown in brackets, with
//! `*` where they are prepared first.

mod at_once;
mod background;
mod batches;
mod calls;
mod changed;
mod commits;
mod copy;
mod described;
mod early;
mod extended;
#[path = "../../../wire/tests/it/support/notation.rs"]
mod notation;
mod present;
mod savepoints;
mod served;
mod server;
mod session;
mod settings;
mod simple;
mod stopped;
mod withheld;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use expect_test::Expect;
use hindcast_order::Tx;
use hindcast_replay::hold::{
    Answered, Code, Context, HoldOptions, Holder, Inserted, Next, Pins, SentAll, Unreadable,
};
use hindcast_replay::looks::Stretch;
use hindcast_replay::transaction::{
    Ask, Claim, Ended, EndedAs, MovedReads, Opening, Stop, Stopped, Yielded,
};
use hindcast_trace::{Drawn, DrawnValue, Id, Isolation, RequestId, SequenceValue};
use hindcast_wire::Direction;
use hindcast_wire::Wires;
use hindcast_wire::sql::{Dialect, Script, ScriptCache};
use hindcast_wire::text::Settings;

use server::Server;

const TRACE_PREFIX: u64 = 0xaa;

/// Knows what the script says, and writes down what it hears.
struct Told {
    claim: Claim,
    later: bool,
    /// What reads and waits goes on as it is, since nothing else does.
    present: bool,
    pins: Pins,
    recorded: Option<Answered>,
    /// What the client of a ghost sent.
    ghost: Option<Vec<u8>>,
    /// Rows that ghosts have laid.
    laid: Vec<Inserted>,
    alone: Option<RequestId>,
    yields: Option<Yielded>,
    free: bool,
    together: bool,
    unreadable: bool,
    heard: RefCell<Vec<String>>,
}

impl Told {
    fn hear(&self, what: String) {
        self.heard.borrow_mut().push(what);
    }

    fn readable(&self) -> Result<(), Unreadable> {
        match self.unreadable {
            true => Err(Unreadable),
            false => Ok(()),
        }
    }
}

impl Context for Told {
    fn claim(&mut self, request: Option<RequestId>, opening: Opening) -> Claim {
        let request = request.map_or("none".to_owned(), |request| request.to_string());
        let claim = match self.later && opening.sets_up {
            true => Claim::Later(None),
            false => self.claim,
        };
        self.hear(format!("claim of request {request}: {claim:?}"));
        claim
    }
    fn pins(&self, _tx: Tx) -> Result<Pins, Unreadable> {
        self.readable()?;
        Ok(self.pins.clone())
    }
    fn recorded_answers(&self, _tx: Tx) -> Result<Option<Answered>, Unreadable> {
        self.readable()?;
        Ok(self.recorded.clone())
    }
    fn sent_by(&self, _tx: Tx) -> Result<Option<SentAll>, Unreadable> {
        let ghost = self.ghost.as_deref();
        Ok(ghost.map(|sent| SentAll::read(sent, &ScriptCache::default())))
    }
    fn is_laid(&self, row: &Inserted) -> bool {
        self.laid.contains(row)
    }
    fn gave_back(&mut self, tx: Tx) {
        self.hear(format!("{} is given back", tx.0));
    }
    fn waits_no_more(&mut self, tx: Tx) {
        self.hear(format!("{} is not waited for", tx.0));
    }
    fn turn(&self) -> Option<RequestId> {
        None
    }
    fn alone(&self) -> Option<RequestId> {
        self.alone
    }
    fn commits_freely(&self, _tx: Tx) -> bool {
        self.free
    }
    fn sees_present(&mut self, _ask: Ask) -> bool {
        std::mem::take(&mut self.present)
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.hear(format!("{} took its snapshot", tx.0));
    }
    fn looked(&mut self, tx: Tx, nth: u32) {
        self.hear(format!("{} is through with look {nth}", tx.0));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.hear(format!("{} locked by statement {statement}", tx.0));
    }
    fn ran(&mut self, tx: Tx) {
        self.hear(format!("{} ran", tx.0));
    }
    fn ended(&mut self, claim: Claim, ended: Ended) {
        let fate = match ended.fate {
            EndedAs::Committed => "committed".to_owned(),
            EndedAs::RolledBack { error: None } => "rolled back".to_owned(),
            EndedAs::RolledBack { error: Some(error) } => format!("rolled back: {error}"),
        };
        let mut said = format!(
            "{claim:?} {fate}, shape {:08x}, digest {:08x}, {} rows",
            ended.shape.0, ended.digest, ended.rows,
        );
        for statement in &ended.statements {
            said += &format!("; {statement}");
        }
        self.hear(said);
    }
    fn came(&mut self, claim: Option<Claim>, statements: &[u64]) {
        let count = statements.len();
        self.hear(match claim {
            Some(_) => format!("{count} statements of none"),
            None => format!("{count} statements of one that is not known"),
        });
    }
    fn served(&mut self, tx: Tx, complete: bool, moved: MovedReads) {
        let how = if complete { "whole" } else { "in part" };
        let reads = match (moved.gone.len(), moved.new.len()) {
            (0, 0) => String::new(),
            (gone, new) => format!(", without {gone} reads and with {new} others"),
        };
        self.hear(format!("{} was served {how}{reads}", tx.0));
    }
    fn lost(&mut self, claim: Claim, _ended: Ended) {
        self.hear(format!("{claim:?} lost"));
    }
    fn stopped(&mut self, stopped: Stopped) {
        self.hear(match stopped {
            Stopped::Committed { .. } => "stopped".to_owned(),
            Stopped::Failed { error: None } => "stopped, and had failed".to_owned(),
            Stopped::Failed { error: Some(error) } => format!("cannot be stopped: {error}"),
            Stopped::InOneText => "cannot be stopped within a text".to_owned(),
        });
    }
    fn outside_write_refused(&mut self, statement: &str) {
        self.hear(format!("refused: {statement}"));
    }
    fn outside_write_undone(&mut self, statement: &str) {
        self.hear(format!("undone: {statement}"));
    }
    fn backend(&mut self, pid: i32) {
        self.hear(format!("backend {pid}"));
    }
    fn entered(&mut self, claim: Option<Claim>) {
        self.hear(format!("in {claim:?}"));
    }
    fn wrote(&mut self, claim: Claim, ids: Vec<u64>, statements: &[String]) {
        self.hear(format!(
            "{claim:?} wrote as {ids:?}: {}",
            statements.join("; ")
        ));
    }
    fn withholds(&mut self, _tx: Tx) -> bool {
        self.together
    }
    fn gave_answer(&mut self, tx: Tx) {
        self.hear(format!("{} was given its answer", tx.0));
    }
    fn yielded(&mut self) -> Option<Yielded> {
        self.yields.take()
    }
}

struct Session {
    holder: Holder,
    told: Told,
    server: Server,
    wires: Wires,
    /// Steps are not permitted by themselves.
    held: bool,
    shown: String,
}

impl Session {
    fn new(code: Code, running: bool) -> Self {
        Self::stopped(code, running, None)
    }

    fn stopped(code: Code, running: bool, stop: Option<Stop>) -> Self {
        let options = HoldOptions {
            trace_id_prefixes: vec![TRACE_PREFIX],
            scripts: Arc::new(ScriptCache::default()),
            pinned: true,
            imposes: true,
            code,
            stop,
        };
        Self {
            holder: match running {
                true => Holder::running(options, Settings::default()),
                false => Holder::new(options),
            },
            told: Told {
                claim: Claim::Run(Tx(3)),
                later: false,
                present: false,
                pins: Pins::default(),
                recorded: None,
                ghost: None,
                laid: Vec::new(),
                alone: None,
                yields: None,
                free: false,
                together: false,
                unreadable: false,
                heard: RefCell::default(),
            },
            server: Server::default(),
            wires: Wires::default(),
            held: false,
            shown: String::new(),
        }
    }

    fn run(&mut self, script: &str) {
        let lines = script.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            match line.split_at(1) {
                (">", messages) => {
                    let mut input = BytesMut::new();
                    for message in messages.split(" | ") {
                        notation::client(&with_comments(message.trim()), &mut input);
                    }
                    let next = self
                        .holder
                        .on_client(&mut input, &mut self.wires, &mut self.told);
                    self.go_on(next);
                }
                ("<", message) => self.answer(&[message.trim()]),
                ("@", setting) => self.set(setting.trim()),
                _ => panic!("what is this? {line}"),
            }
        }
    }

    fn set(&mut self, setting: &str) {
        let (name, value) = setting.split_once(' ').unwrap_or((setting, ""));
        match name {
            "claim" => {
                let (what, number) = value.split_once(' ').unwrap_or((value, "0"));
                let number = number.parse().expect("a number");
                self.told.claim = match what {
                    "run" => Claim::Run(Tx(number)),
                    "serve" => Claim::Serve(Tx(number)),
                    "added" => Claim::Added(number),
                    "extra" => Claim::Extra,
                    "cut" => Claim::CutOff,
                    "outside" => Claim::Outside,
                    "vain" => Claim::InVain,
                    "wait" => Claim::Wait(Tx(number)),
                    "later" => Claim::Later(Some(Tx(number))),
                    _ => panic!("no such claim: {what}"),
                };
            }
            "pins" => self.told.pins = pins(value),
            "alone" => self.told.alone = value.parse().ok().map(Id),
            // What the aborted transaction was answered originally.
            "recorded" => {
                let mut bytes = BytesMut::new();
                for message in value.split(" | ") {
                    notation::server(message, &mut bytes);
                }
                self.told.recorded = Some(Answered {
                    bytes: bytes.to_vec(),
                    ..Answered::default()
                });
            }
            // What the client of the ghost that is claimed sent.
            "ghost" => {
                let mut bytes = BytesMut::new();
                for message in value.split(" | ") {
                    notation::client(message, &mut bytes);
                }
                self.told.ghost = Some(bytes.to_vec());
            }
            // What the client of a ghost sent that the recording has done.
            "laid" => {
                let mut bytes = BytesMut::new();
                for message in value.split(" | ") {
                    notation::client(message, &mut bytes);
                }
                let sent = SentAll::read(&bytes, &ScriptCache::default());
                self.told.laid = sent.inserts;
            }
            // Which of its statements ask the catalog: a text, or `-`.
            "lookups" => {
                let hash = |text: &str| {
                    let script = Script::of(text.as_bytes(), Dialect::default());
                    (text != "-").then(|| script.statements[0].fingerprint.hash)
                };
                let recorded = self.told.recorded.as_mut().expect("it comes first");
                recorded.lookups = value.split(" | ").map(hash).collect();
            }
            // Those are no driver's, but reads of a transaction that does nothing else.
            "reads" => {
                let recorded = self.told.recorded.as_mut().expect("it comes first");
                recorded.reads = recorded.lookups.iter().flatten().copied().collect();
            }
            // What asks the catalog at the beginning of a transaction does not tell which it is.
            "later" => self.told.later = true,
            // What reads sees the present next time.
            "present" => self.told.present = true,
            // The recording cannot be read from here on.
            "unreadable" => self.told.unreadable = true,
            // The next cancelled statement was cancelled by us.
            "yields" => self.told.yields = Some(Yielded::Order),
            "ends-a-deadlock" => self.told.yields = Some(Yielded::Deadlock),
            // Statements, or what prepares them, fail if their text holds this word: word,
            // sqlstate, message.
            "fail" | "fail-parse" => self.server.fail(name == "fail-parse", value),
            "suspend" => self.server.suspend = true,
            // Nobody else has to look before the transaction commits.
            "free" => self.told.free = true,
            // Its request has asked for other things at the time.
            "together" => self.told.together = true,
            "hold" => self.held = true,
            "permit" => {
                let next = self.holder.on_permission(&mut self.wires, &mut self.told);
                self.go_on(next);
            }
            // Nothing has come behind what is kept from the server.
            "quiet" => {
                self.shown += &format!("keeps: {}\n", self.holder.keeps());
                self.holder.send_kept(&mut self.wires);
                self.go_on(Next::Continue);
            }
            "gone" => self.holder.on_gone(&mut self.told),
            "idle" => self.shown += &format!("idle: {}\n", self.holder.is_idle()),
            _ => panic!("no such setting: {setting}"),
        }
        self.show();
    }

    /// Until the server has answered everything, or something has to wait.
    fn go_on(&mut self, mut next: Next) {
        loop {
            self.show();
            match next {
                Next::Wait(ask) => {
                    self.shown += &format!("? {}\n", show_ask(ask));
                    if self.held {
                        return;
                    }
                    next = self.holder.on_permission(&mut self.wires, &mut self.told);
                    continue;
                }
                Next::Close => {
                    self.shown += "closed\n";
                    return;
                }
                Next::Continue => {}
            }
            let Some(answers) = self.server.next() else {
                return;
            };
            next = self.take(&answers);
        }
    }

    fn answer(&mut self, messages: &[&str]) {
        let messages: Vec<String> = messages.iter().map(|&message| message.to_owned()).collect();
        let next = self.take(&messages);
        self.go_on(next);
    }

    fn take(&mut self, messages: &[String]) -> Next {
        let mut input = BytesMut::new();
        for message in messages {
            notation::server(message, &mut input);
        }
        self.holder
            .on_server(&mut input, &mut self.wires, &mut self.told)
    }

    fn show(&mut self) {
        for line in self.told.heard.get_mut().drain(..) {
            self.shown += &format!("! {line}\n");
        }
        for line in notation::show(Direction::FromServer, &mut self.wires.to_client) {
            self.shown += &format!("« {line}\n");
        }
        let mut to_server = self.wires.to_server.split();
        if to_server.first() == Some(&0) {
            let startup = notation::show_startup(&to_server);
            self.shown += &format!("» {startup}\n");
            return;
        }
        let lines = notation::show(Direction::FromClient, &mut to_server);
        let mut rest = &lines[..];
        while let [first, behind @ ..] = rest {
            let prepares = first.starts_with("P hindcast_");
            let own = if prepares { behind } else { rest };
            rest = match own {
                [bind, execute, close, sync, behind @ ..]
                    if bind.starts_with("B hindcast hindcast_") =>
                {
                    assert_eq!((&execute[..], &close[..], &sync[..]), OWN_ENDS);
                    let what = bind["B hindcast hindcast_".len()..].trim_end();
                    let star = if prepares { "*" } else { "" };
                    self.shown += &format!("» [{what}{star}]\n");
                    behind
                }
                _ => {
                    self.shown += &format!("» {first}\n");
                    behind
                }
            };
        }
        self.server.receive(lines);
    }
}

/// What follows the `Bind` of a statement of the holder's own.
const OWN_ENDS: (&str, &str, &str) = ("E hindcast", "C P hindcast", "S");

fn show_ask(ask: Ask) -> String {
    match ask {
        Ask::Snapshot(tx) => format!("snapshot of {}", tx.0),
        Ask::Ghost(tx) => format!("to do {}", tx.0),
        Ask::Look(tx, nth) => format!("look {nth} of {}", tx.0),
        Ask::Lock(tx, statement) => format!("lock of {} by statement {statement}", tx.0),
        Ask::Insert(tx, statement) => format!("insert of {} by statement {statement}", tx.0),
        Ask::Change(tx, statement) => format!("change of {} by statement {statement}", tx.0),
        Ask::Act(tx) => format!("act of {}", tx.0),
        Ask::Commit(tx) => format!("commit of {}", tx.0),
        Ask::Answer(tx) => format!("answer of {}", tx.0),
        Ask::Given(tx) => format!("given answer of {}", tx.0),
        Ask::Stop(tx) => format!("stop of {}", tx.0),
    }
}

fn pins(words: &str) -> Pins {
    let mut pins = Pins::default();
    for word in words.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("reads-only", _) => pins.reads_only = true,
            ("acts-late", _) => pins.acts_late = true,
            ("inserts", statement) => pins.inserts.push(statement.parse().expect("a number")),
            ("losing", statement) => pins.losing.push(statement.parse().expect("a number")),
            ("changes", statement) => pins.changes.push(statement.parse().expect("a number")),
            ("refused", statement) => pins.refused.push(statement.parse().expect("a number")),
            // `PLACE-TEXT`, with `__` for each space.
            ("tries", words) => {
                let (place, text) = words.split_once('-').expect("PLACE-TEXT");
                let text = text.replace("__", " ");
                let script = Script::of(text.as_bytes(), Dialect::default());
                let hash = script.statements[0].fingerprint.hash;
                pins.tries.push((place.parse().expect("a number"), hash));
            }
            ("looks", "") => pins.looks = Some(Vec::new()),
            ("looks", stretches) => {
                let stretches = stretches.split(',').map(|stretch| {
                    let early = stretch.strip_prefix('!');
                    let stretch = early.unwrap_or(stretch);
                    let (first, last) = stretch.split_once('-').expect("FIRST-LAST");
                    Stretch {
                        first: first.parse().expect("it is a number"),
                        last: last.parse().expect("it is a number"),
                        early: early.is_some(),
                    }
                });
                pins.looks = Some(stretches.collect());
            }
            // With a `_` for each space.
            ("recorded", texts) => {
                let texts = texts.replace('_', " ");
                let script = Script::of(texts.as_bytes(), Dialect::default());
                let statements = script.statements.iter();
                pins.statements = statements.map(|one| one.fingerprint.hash).collect();
            }
            ("read-committed", _) => pins.isolation = Some(Isolation::ReadCommitted),
            ("now", at) => pins.now = at.parse().ok(),
            ("sequence", value) => pins.drawn.push(Drawn::shown(SequenceValue {
                sequence: 500,
                value: value.parse().expect("a value"),
            })),
            ("drawn", words) => {
                let (statement, value) = words.split_once('-').expect("STATEMENT-VALUE");
                pins.drawn.push(Drawn {
                    statement: statement.parse().ok(),
                    value: DrawnValue::Random(value.parse().expect("a value")),
                });
            }
            _ => panic!("no such pin: {word}"),
        }
    }
    pins
}

/// `{5}` is a comment that names request 5.
fn with_comments(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else {
        return text.to_owned();
    };
    let (request, after) = rest.split_once('}').expect("a closing brace");
    let comment = traceparent(request.parse().expect("a request"));
    format!(
        "{before}/*traceparent='{comment}'*/{}",
        with_comments(after)
    )
}

fn traceparent(request: u64) -> String {
    format!("00-{TRACE_PREFIX:016x}{request:016x}-00000000000000ff-01")
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    check_code(Code::Recorded, script, expected);
}

#[track_caller]
fn check_code(code: Code, script: &str, expected: Expect) {
    let mut session = Session::new(code, true);
    session.run(script);
    expected.assert_eq(&session.shown);
}
