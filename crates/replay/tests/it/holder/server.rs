//! A server that answers at once, as much of one as a session's order of messages needs.

use std::collections::{HashMap, VecDeque};

use hindcast_wire::sql::{Dialect, Script};

/// What happens to statements that hold a word.
struct Fault {
    parsing: bool,
    word: String,
    /// Sqlstate and message.
    error: String,
}

pub struct Server {
    received: VecDeque<String>,
    prepared: HashMap<String, String>,
    portals: HashMap<String, String>,
    faults: Vec<Fault>,
    /// The next `Execute` stops after its first row.
    pub suspend: bool,
    /// As `ReadyForQuery` says it.
    status: char,
    /// After an error, up to the next `Sync`.
    skipping: bool,
    copying: Copying,
}

#[derive(PartialEq)]
enum Copying {
    No,
    OfQuery,
    OfExecute,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            received: VecDeque::new(),
            prepared: HashMap::new(),
            portals: HashMap::new(),
            faults: Vec::new(),
            suspend: false,
            status: 'I',
            skipping: false,
            copying: Copying::No,
        }
    }
}

impl Server {
    pub fn fail(&mut self, parsing: bool, fault: &str) {
        let (word, error) = fault.split_once(' ').expect("a word and an error");
        self.faults.push(Fault {
            parsing,
            word: word.to_owned(),
            error: error.to_owned(),
        });
    }

    pub fn receive(&mut self, lines: Vec<String>) {
        self.received.extend(lines);
    }

    /// What it answers to the next message.
    pub fn next(&mut self) -> Option<Vec<String>> {
        let message = self.received.pop_front()?;
        let (tag, rest) = message.split_once(' ').unwrap_or((&message, ""));
        let mut answers = Vec::new();
        if self.copying != Copying::No {
            self.copy(tag, &mut answers);
            return Some(answers);
        }
        match tag {
            "S" => {
                self.skipping = false;
                self.ready(&mut answers);
            }
            "Q" => {
                self.query(rest, &mut answers);
                if self.copying == Copying::No {
                    self.ready(&mut answers);
                } else {
                    self.copying = Copying::OfQuery;
                }
            }
            "F" => {
                answers.push("V 7".to_owned());
                self.ready(&mut answers);
            }
            _ if self.skipping => {}
            _ => self.extended(tag, rest, &mut answers),
        }
        Some(answers)
    }

    fn ready(&self, answers: &mut Vec<String>) {
        answers.push(format!("Z {}", self.status));
    }

    fn query(&mut self, text: &str, answers: &mut Vec<String>) {
        let script = Script::of(text.as_bytes(), Dialect::default());
        if script.statements.is_empty() {
            answers.push("I".to_owned());
        }
        for statement in &script.statements {
            let text = String::from_utf8_lossy(statement.text(text.as_bytes())).into_owned();
            if text.starts_with("SELECT") || text.starts_with("SHOW") {
                answers.push("T a".to_owned());
            }
            if !self.execute(&text, answers) {
                return;
            }
        }
    }

    fn extended(&mut self, tag: &str, rest: &str, answers: &mut Vec<String>) {
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let text = match tag {
            "P" => Some(second.to_owned()),
            "B" => self
                .prepared
                .get(second.split(' ').next().unwrap_or(""))
                .cloned(),
            "E" => self.portals.get(first).cloned(),
            _ => Some(String::new()),
        };
        let Some(text) = text else {
            self.skipping = true;
            return self.error("26000 there is no such thing", answers);
        };
        match tag {
            "P" => {
                if let Some(fault) = self.fault(&text, true) {
                    self.skipping = true;
                    return self.error(&fault, answers);
                }
                self.prepared.insert(first.to_owned(), text);
                answers.push("1".to_owned());
            }
            "B" => {
                self.portals.insert(first.to_owned(), text);
                answers.push("2".to_owned());
            }
            "D" => {
                let known = match first {
                    "S" => &self.prepared,
                    _ => &self.portals,
                };
                if first == "S" {
                    answers.push("t".to_owned());
                }
                let selects = known
                    .get(second)
                    .is_some_and(|text| text.starts_with("SELECT"));
                answers.push(if selects { "T a" } else { "n" }.to_owned());
            }
            "C" => answers.push("3".to_owned()),
            "E" if std::mem::take(&mut self.suspend) => {
                answers.extend(["D x".to_owned(), "s".to_owned()]);
            }
            "E" => {
                if !self.execute(&text, answers) {
                    self.skipping = true;
                }
                if self.copying != Copying::No {
                    self.copying = Copying::OfExecute;
                }
            }
            "H" | "X" | "p" => {}
            _ => panic!("the server does not know {tag}"),
        }
    }

    /// Whether it worked.
    fn execute(&mut self, text: &str, answers: &mut Vec<String>) -> bool {
        let mut words = text.split_whitespace().map(str::to_ascii_uppercase);
        let word = words.next().unwrap_or_default();
        let ends = matches!(&word[..], "COMMIT" | "ROLLBACK");
        if let Some(fault) = self.fault(text, false) {
            self.error(&fault, answers);
            if ends {
                self.status = 'I';
            }
            return false;
        }
        if self.status == 'E' && !ends {
            self.error("25P02 the transaction is aborted", answers);
            return false;
        }
        let tag = match &word[..] {
            "BEGIN" => {
                self.status = 'T';
                "BEGIN"
            }
            "ROLLBACK" if words.next().is_some_and(|word| word == "TO") => {
                self.status = 'T';
                "ROLLBACK"
            }
            "COMMIT" | "ROLLBACK" | "PREPARE" => {
                let failed = std::mem::replace(&mut self.status, 'I') == 'E';
                match &word[..] {
                    "COMMIT" if !failed => "COMMIT",
                    "PREPARE" => "PREPARE TRANSACTION",
                    _ => "ROLLBACK",
                }
            }
            "SELECT" if text.contains("pg_locks") => {
                answers.extend(["D 777".to_owned(), "D 778".to_owned()]);
                "SELECT 2"
            }
            "SELECT" => {
                let id = text.contains("xact_id_if_assigned");
                answers.push(if id { "D 777" } else { "D x" }.to_owned());
                "SELECT 1"
            }
            "SHOW" => {
                answers.push("D on".to_owned());
                "SHOW"
            }
            "COPY" if text.contains("FROM") => {
                self.copying = Copying::OfQuery;
                answers.push("G 1".to_owned());
                return true;
            }
            "COPY" => {
                answers.extend(["H 1", "d a", "c"].map(str::to_owned));
                "COPY 1"
            }
            "INSERT" => "INSERT 0 1",
            "UPDATE" => "UPDATE 1",
            word => word,
        };
        answers.push(format!("C {tag}"));
        true
    }

    fn copy(&mut self, tag: &str, answers: &mut Vec<String>) {
        match tag {
            "c" => answers.push("C COPY 1".to_owned()),
            "f" => self.error("57014 the client gave up", answers),
            // It takes no notice of these, and of a `Sync` that came before the data.
            "d" | "S" | "H" => return,
            _ => panic!("the server does not expect {tag} among data"),
        }
        if self.copying == Copying::OfQuery {
            self.ready(answers);
        } else {
            self.skipping = tag == "f";
        }
        self.copying = Copying::No;
    }

    fn error(&mut self, error: &str, answers: &mut Vec<String>) {
        answers.push(format!("E {error}"));
        if self.status == 'T' {
            self.status = 'E';
        }
    }

    fn fault(&mut self, text: &str, parsing: bool) -> Option<String> {
        let hit = |fault: &Fault| fault.parsing == parsing && text.contains(&fault.word);
        let at = self.faults.iter().position(hit)?;
        Some(self.faults.remove(at).error)
    }
}
