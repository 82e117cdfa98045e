//! Sessions as scripts: what each side sends, what the observer forwards, and what it tells.
//!
//! A line that begins with `>` is the client's, one with `<` the server's; see `notation` for how
//! messages are written. The server's answers to statements of ours need not be written down: the
//! harness gives them when their turn comes. In the output, `»` goes to the server, `«` to the
//! client, and `!` is an event.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use expect_test::Expect;
use hindcast_model::{Id, Xid};
use hindcast_wire::frame::Direction;
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{
    Context, Event, ObservedTransaction, Observer, ObserverOptions, SequenceColumns, Wires,
};

/// What the server still has to answer.
#[derive(Debug)]
enum Turn {
    /// Ours, with the answer.
    Ours(Vec<String>),
    /// The client's, by tag.
    Client(char),
}

pub struct Session {
    pub observer: Observer,
    turns: VecDeque<Turn>,
    out: Wires,
    events: Vec<Event>,
    pub shown: String,
    now: i64,
    pub locks: std::cell::Cell<u64>,
    alone: Option<Id>,
    sequences: SequenceColumns,
    xid: String,
    last_text: String,
    read_only: String,
    /// The transaction status when ours are done.
    own_status: String,
    /// The process that runs what is sent. The server has named 7.
    pub backend: u32,
    /// What is asked by statements of ours that were prepared, by name.
    prepared: HashMap<String, String>,
    /// Where the session stands, each time it is asked.
    standing: VecDeque<String>,
    ready: bool,
}

pub const STARTUP: &str = "
    > startup user=u database=d
    < R
    < S server_version 15.4
    < S standard_conforming_strings on
    < K abcd
    < Z I
";

impl Session {
    pub fn new(change: impl FnOnce(&mut ObserverOptions)) -> Self {
        let mut options = ObserverOptions::new(1, Arc::new(ScriptCache::default()));
        change(&mut options);
        let mut sequences = SequenceColumns::default();
        sequences.add_column(500, 1, 501);
        sequences.add_name("s", 502);
        Self {
            observer: Observer::new(options),
            turns: VecDeque::new(),
            out: Wires::default(),
            events: Vec::new(),
            shown: String::new(),
            now: 0,
            locks: std::cell::Cell::new(0),
            alone: None,
            sequences,
            xid: "777".to_owned(),
            last_text: String::new(),
            read_only: "off".to_owned(),
            own_status: "T".to_owned(),
            backend: 7,
            prepared: HashMap::new(),
            standing: VecDeque::new(),
            ready: false,
        }
    }

    pub fn run(&mut self, script: &str) {
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            match line.split_at(1) {
                (">", line) => self.client(line.trim_start()),
                ("<", line) => self.server(line.trim_start()),
                ("@", setting) => match setting
                    .trim()
                    .split_once(' ')
                    .unwrap_or((setting.trim(), ""))
                {
                    ("xid", xid) => self.xid = xid.to_owned(),
                    ("read-only", value) => self.read_only = value.to_owned(),
                    ("own-status", value) => self.own_status = value.to_owned(),
                    ("standing", rows) => {
                        self.standing = rows.split(", ").map(str::to_owned).collect();
                    }
                    ("client-gone", _) => {
                        let before = self.shown.len();
                        self.step(|observer, cx, out, _| {
                            observer.on_client_gone(cx, out);
                            Ok(())
                        });
                        self.expect_answers(before, '-');
                    }
                    ("alone", request) => self.alone = request.parse().ok(),
                    ("server-gone", _) => {
                        self.step(|observer, cx, _, events| {
                            observer.on_server_gone(cx, events);
                            Ok(())
                        });
                    }
                    _ => panic!("no such setting: {line}"),
                },
                _ => panic!("neither > nor <: {line}"),
            }
        }
    }

    fn step(
        &mut self,
        act: impl FnOnce(
            &mut Observer,
            &Context<'_>,
            &mut Wires,
            &mut Vec<Event>,
        ) -> Result<(), hindcast_wire::ProtocolError>,
    ) {
        self.now += 1;
        let locks = &self.locks;
        let context = Context {
            now: self.now,
            alone: self.alone,
            turn: None,
            sequences: &self.sequences,
            lock_order: &|| locks.replace(locks.get() + 1),
        };
        let result = act(
            &mut self.observer,
            &context,
            &mut self.out,
            &mut self.events,
        );
        self.show();
        if let Err(error) = result {
            self.shown += &format!("! {error}\n");
        }
    }

    fn client(&mut self, line: &str) {
        let mut input = BytesMut::new();
        super::client(line, &mut input);
        if line.starts_with("startup") {
            let length = input.len();
            self.step(|observer, cx, out, events| observer.on_client(&mut input, cx, out, events));
            assert!(self.shown.len() > length || input.is_empty());
            return;
        }
        let before = self.shown.len();
        self.step(|observer, cx, out, events| observer.on_client(&mut input, cx, out, events));
        self.expect_answers(before, line.chars().next().expect("a tag"));
    }

    /// Notes who is to be answered for what was forwarded since: ours, and the client's message
    /// with this tag.
    fn expect_answers(&mut self, before: usize, tag: char) {
        let forwarded: Vec<String> = self.shown[before..]
            .lines()
            .filter_map(|line| line.strip_prefix("» ").map(str::to_owned))
            .collect();
        let clients = match tag {
            '-' => None,
            'S' => forwarded.iter().position(|message| message == "S"),
            _ => forwarded
                .iter()
                .position(|message| message != "S" && !message.contains(" ours")),
        };
        let mut asked = String::new();
        for (index, message) in forwarded.iter().enumerate() {
            if clients == Some(index) {
                if !"HdcfXp".contains(tag) {
                    self.turns.push_back(Turn::Client(tag));
                }
                continue;
            }
            let answer = match message.split_at(1) {
                ("P", text) => {
                    let (name, text) = text.trim_start().split_once(' ').expect("a text");
                    self.prepared.insert(name.to_owned(), text.to_owned());
                    vec!["1".to_owned()]
                }
                ("B", names) => {
                    let name = names.split(' ').nth(2).expect("a statement");
                    asked = self.prepared[name].clone();
                    vec!["2".to_owned()]
                }
                ("C", _) => vec!["3".to_owned()],
                ("S", _) => vec![format!("Z {}", self.own_status)],
                ("E", _) => self.answer_to(&asked),
                _ => panic!("this is not ours: {message}"),
            };
            self.turns.push_back(Turn::Ours(answer));
        }
    }

    /// How the server answers a statement of ours, as [`shorten`] shows it.
    fn answer_to(&mut self, asked: &str) -> Vec<String> {
        let row = match asked {
            "ROLLBACK" | "DISCARD TEMP" => return vec![format!("C {asked}")],
            "<raise>" => return vec!["C SELECT 0".to_owned()],
            "<standing>" => format!("D {}", self.standing.pop_front().expect("it is set")),
            _ => {
                let words = ["snapshot", "xid", "assign", "subxids"];
                let bits = (0..4).filter(|bit| asked.contains(words[*bit]));
                let bits: u32 = bits.map(|bit| 1 << bit).sum();
                // To have an id assigned is to ask for it.
                let row = self.row(bits | (bits & 4) >> 1);
                match asked.contains("backend") {
                    true => format!("{row} {}", self.backend),
                    false => row,
                }
            }
        };
        vec![row, "C SELECT 1".to_owned()]
    }

    fn row(&self, bits: u32) -> String {
        let mut row = "D".to_owned();
        if bits & 1 != 0 {
            row += &format!(
                " 100:105:102 repeatable~read \\x0002ad22dce66000 {}",
                self.read_only
            );
        }
        if bits & 2 != 0 {
            row += &format!(" {}", self.xid);
        }
        if bits & 8 != 0 {
            row += " 777,778,780";
        }
        row
    }

    fn feed(&mut self, line: &str) {
        let mut input = BytesMut::new();
        // Values hold no spaces in this notation, but for this one.
        super::server(line, &mut input);
        let from = b"repeatable~read";
        if let Some(at) = input.windows(from.len()).position(|window| window == from) {
            input[at + 10] = b' ';
        }
        self.step(|observer, cx, out, events| observer.on_server(&mut input, cx, out, events));
    }

    /// Lets the server answer what is ours and comes first.
    fn answer_ours(&mut self) {
        while let Some(Turn::Ours(_)) = self.turns.front() {
            let Some(Turn::Ours(lines)) = self.turns.pop_front() else {
                unreachable!()
            };
            lines.iter().for_each(|line| self.feed(line));
        }
    }

    fn server(&mut self, line: &str) {
        if let Some(bits) = line.strip_prefix("ask ") {
            let row = self.row(bits.parse().expect("which"));
            ["T hindcast_ask", &row, "C SELECT 1"]
                .iter()
                .for_each(|line| self.feed(line));
            return;
        }
        if let Some(error) = line.strip_prefix("ours ") {
            self.feed(error);
            while !matches!(self.turns.front(), Some(Turn::Client('S')) | None) {
                self.turns.pop_front();
            }
            return;
        }
        // An error at a word of the text that the server saw last.
        if let Some(error) = line.strip_prefix("E-at ") {
            let (word, error) = error.split_once(' ').expect("a word");
            let at = self.last_text.find(word).expect("the word is in the text") + 1;
            let (sqlstate, text) = error.split_once(' ').expect("sqlstate and text");
            return self.server(&format!("E {sqlstate} {at} {text}"));
        }
        if line == "ours" {
            return self.answer_ours();
        }
        let tag = line.chars().next().expect("a tag");
        if !"NSA".contains(tag) && self.ready {
            self.answer_ours();
        }
        self.feed(line);
        if !self.ready {
            self.ready = tag == 'Z';
            return;
        }
        // The server swallows a Sync that comes with the Execute of a copy.
        if tag == 'G' && matches!(self.turns.get(1), Some(Turn::Client('S'))) {
            self.turns.remove(1);
        }
        let ends = match (self.turns.front(), tag) {
            (Some(Turn::Client('Q' | 'S' | 'F')), 'Z') => true,
            (Some(Turn::Client('P')), '1')
            | (Some(Turn::Client('B')), '2')
            | (Some(Turn::Client('C')), '3') => true,
            (Some(Turn::Client('E')), 'C' | 'I' | 's') | (Some(Turn::Client('D')), 'T' | 'n') => {
                true
            }
            (Some(Turn::Client('P' | 'B' | 'C' | 'D' | 'E')), 'E') => {
                while !matches!(self.turns.front(), Some(Turn::Client('S')) | None) {
                    self.turns.pop_front();
                }
                false
            }
            _ => false,
        };
        if ends {
            self.turns.pop_front();
        }
    }

    fn show(&mut self) {
        let mut to_server = self.out.to_server.split();
        if to_server.first() == Some(&0) {
            self.shown += &format!("» {}\n", super::show_startup(&to_server));
            to_server.clear();
        }
        for line in super::show(Direction::FromClient, &mut to_server) {
            self.shown += &format!("» {}\n", shorten(&line));
            if let Some(text) = line.strip_prefix("Q ") {
                self.last_text = text.to_owned();
            }
        }
        for line in super::show(Direction::FromServer, &mut self.out.to_client.split()) {
            self.shown += &format!("« {line}\n");
        }
        for event in std::mem::take(&mut self.events) {
            self.shown += &format!("! {}\n", show_event(&event));
        }
    }
}

/// Our statements by their names and by what they ask.
fn shorten(line: &str) -> String {
    let line = &line.replace("hindcast_0000000000000000", "ours");
    for (word, short) in [
        ("set_config", "<raise>"),
        ("virtualtransaction", "<standing>"),
    ] {
        if line.starts_with("P ours") && line.contains(word) {
            return format!("P ours {short}");
        }
    }
    let Some(start) = line
        .find("SELECT pg_catalog.")
        .filter(|_| line.contains("hindcast_ask"))
    else {
        return line.to_owned();
    };
    let end = line[start..]
        .find(';')
        .map_or(line.len(), |end| start + end);
    let ask = &line[start..end];
    let words = [
        ("pg_current_snapshot", "snapshot"),
        ("xact_id_if_assigned", "xid"),
        ("pg_current_xact_id()", "assign"),
        ("pg_locks", "subxids"),
        (", pg_catalog.pg_backend_pid()", "backend"),
    ];
    let asked: Vec<_> = words
        .iter()
        .filter(|(column, _)| ask.contains(column))
        .map(|(_, word)| *word)
        .collect();
    shorten(&format!(
        "{}<{}>{}",
        &line[..start],
        asked.join(" "),
        &line[end..]
    ))
}

fn show_event(event: &Event) -> String {
    match event {
        Event::Ready {
            process_id,
            cancel_key,
            server_version,
        } => format!("ready: process {process_id}, key {cancel_key:?}, {server_version}"),
        Event::TransactionBegan { began } => format!("began at {began}"),
        Event::Transaction(transaction) => show_transaction(transaction),
        Event::CommitUncertain(transaction) => {
            format!("uncertain: {}", show_transaction(transaction))
        }
        Event::UnknownTable { table } => format!("unknown table {table}"),
        Event::OwnXid { xid } => format!("own xid {xid}"),
        Event::EmptiedOnCommit { .. } => "emptied on commit".to_owned(),
        Event::Unasked {
            statement,
            began,
            ended,
            xids,
            commits_inside,
        } => {
            let what = statement.as_ref().map_or("end of session", |of| &of.text);
            let ids = xids
                .as_ref()
                .map(|xids| format!("{}..{}", xids.start, xids.end));
            let inside = if *commits_inside {
                ", commits inside"
            } else {
                ""
            };
            format!("unasked: {what} from {began} to {ended}, ids {ids:?}{inside}")
        }
        Event::Unobserved { reason } => format!("unobserved: {reason}"),
    }
}

fn show_transaction(transaction: &ObservedTransaction) -> String {
    let mut text = format!("{:?}", transaction.outcome);
    text += if transaction.explicit { " block" } else { "" };
    text += if transaction.passive { " passive" } else { "" };
    if let Some((request, how)) = transaction.request {
        text += &format!(", request {request} by {how:?}");
    }
    if let Some(snapshot) = &transaction.snapshot {
        text += &format!(
            ", snapshot {}:{}:{:?}",
            snapshot.xmin,
            snapshot.xmax,
            numbers(&snapshot.in_progress)
        );
    }
    match (transaction.xid, transaction.xid_known) {
        (Some(xid), _) => text += &format!(", xid {xid}"),
        (None, true) => {}
        (None, false) => text += ", xid unknown",
    }
    if !transaction.subxids.is_empty() {
        text += &format!(", subxids {:?}", numbers(&transaction.subxids));
    }
    text += &format!(", rows {}", transaction.result_rows);
    for lock in &transaction.locks {
        text += &format!(", lock by {} as {}", lock.statement, lock.completed);
    }
    for taken in &transaction.sequence_values {
        text += &format!(", sequence {}={}", taken.sequence, taken.value);
    }
    if transaction.cut != Default::default() {
        text += &format!(", {:?}", transaction.cut);
    }
    for statement in &transaction.statements {
        text += &format!("\n    {}", statement.text);
    }
    let bytes = [
        (Direction::FromClient, "sent", &transaction.client_bytes),
        (
            Direction::FromServer,
            "was answered",
            &transaction.server_bytes,
        ),
    ];
    for (direction, what, bytes) in bytes {
        if let Some(bytes) = bytes {
            let lines = super::show(direction, &mut BytesMut::from(&bytes[..]));
            text += &format!("\n    {what}: {}", lines.join(" | "));
        }
    }
    text
}

fn numbers(xids: &[Xid]) -> Vec<u64> {
    xids.iter().map(|xid| xid.0).collect()
}

#[track_caller]
pub fn check(script: &str, expected: Expect) {
    check_with(|_| (), script, expected);
}

#[track_caller]
pub fn check_with(change: impl FnOnce(&mut ObserverOptions), script: &str, expected: Expect) {
    let mut session = Session::new(change);
    session.run(STARTUP);
    session.shown.clear();
    session.run(script);
    expected.assert_eq(&session.shown);
}
