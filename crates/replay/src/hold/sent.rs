//! What the client of a ghost sent, statement by statement.

use bytes::{Bytes, BytesMut};
use hindcast_wire::each_value;
use hindcast_wire::frame::{self, Direction, Frame};
use hindcast_wire::message::frontend as client;
use hindcast_wire::sql::{self, Dialect, ScriptCache, Statement};

use super::names::{Batch, Names, Prepared};
use crate::reading::skips_locked;
use crate::setup::asks_catalog;

/// A statement that a ghost ran.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Of its fingerprint.
    pub hash: u64,
    given: Given,
}

/// With which values.
#[derive(Clone, Debug)]
enum Given {
    /// They are in its text.
    Text(Bytes),
    /// The body of its `Bind`.
    Bound(Bytes),
}

impl Given {
    fn bound(&self) -> Option<&[u8]> {
        match self {
            Self::Text(_) => None,
            Self::Bound(body) => Some(body),
        }
    }
}

impl Sent {
    /// Its text, if the client sent nothing else.
    pub fn text(&self) -> Option<&Bytes> {
        match &self.given {
            Given::Text(text) => Some(text),
            Given::Bound(_) => None,
        }
    }

    /// This `Bind` of the same statement, with the recorded values.
    pub fn rebound(&self, bind: &Frame) -> Option<Frame> {
        let recorded = self.given.bound()?;
        let bound = client::rebind(bind.body(), recorded).ok()??;
        Some(Frame(bound.freeze()))
    }
}

/// All that a ghost ran.
#[derive(Clone, Debug, Default)]
pub struct SentAll {
    pub statements: Vec<Sent>,
    /// What it begins with, to know it by; `None`: it takes no snapshot.
    pub opening: Option<SentOpening>,
    /// Statements of which each lays one row.
    pub inserts: Vec<Inserted>,
    begun: bool,
}

/// A row that a statement lays: the hash of its fingerprint, and [`each_value`] of it.
pub type Inserted = (u64, Vec<u64>);

/// The statement that made a ghost take its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentOpening {
    pub hash: u64,
    /// The client had begun its transaction.
    pub begun: bool,
    /// See [`each_value`].
    pub values: Vec<u64>,
    /// It leaves alone what others have locked: it takes something that there is to do.
    pub skips_locked: bool,
}

impl SentAll {
    /// Reads what a client sent.
    pub fn read(bytes: &[u8], scripts: &ScriptCache) -> Self {
        let mut bytes = BytesMut::from(bytes);
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = frame::split(Direction::FromClient, &mut bytes) {
            frames.push(frame);
        }
        let prepare = |text: &[u8]| Prepared::new(scripts.get(text, Dialect::default()), None);
        let batch = Batch::of(&Names::default(), frames, prepare);
        let mut all = Self::default();
        for message in &batch.messages {
            match message.frame.tag() {
                client::QUERY => {
                    let text = client::parse_query(message.frame.body()).unwrap_or_default();
                    let script = scripts.get(text, Dialect::default());
                    for statement in &script.statements {
                        let own = Bytes::copy_from_slice(statement.text(text));
                        all.add(statement, Given::Text(own));
                    }
                }
                client::EXECUTE => {
                    let bind = message.about.as_ref().and_then(|about| about.bind.clone());
                    if let (Some(statement), Some(bind)) = (message.statement(), bind) {
                        let body = bind.slice(5..);
                        all.add(statement, Given::Bound(body));
                    }
                }
                _ => {}
            }
        }
        all
    }

    fn add(&mut self, statement: &Statement, given: Given) {
        self.begun |= matches!(statement.kind, sql::Kind::Begin { .. });
        if statement.takes_snapshot && !asks_catalog(statement) && self.opening.is_none() {
            self.opening = Some(SentOpening {
                hash: statement.fingerprint.hash,
                begun: self.begun,
                values: each_value(statement, given.bound()),
                skips_locked: skips_locked(&statement.fingerprint.text),
            });
        }
        if lays_one_row(statement) {
            let values = each_value(statement, given.bound());
            self.inserts.push((statement.fingerprint.hash, values));
        }
        self.statements.push(Sent {
            hash: statement.fingerprint.hash,
            given,
        });
    }
}

/// Whether a statement lays one row, and is answered nothing but that.
pub(super) fn lays_one_row(statement: &Statement) -> bool {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let values = text.split_once("values").map(|(_, values)| values.trim());
    let is_plain = statement.kind == sql::Kind::Insert && !statement.returning;
    is_plain && values.is_some_and(is_one_group)
}

/// Whether a text is within one pair of parentheses.
fn is_one_group(text: &str) -> bool {
    let mut depth = 0;
    let ends = text.char_indices().find(|&(_, char)| {
        depth += i32::from(char == '(') - i32::from(char == ')');
        depth <= 0
    });
    ends.is_some_and(|(at, char)| char == ')' && at + 1 == text.len())
}

#[cfg(test)]
mod tests {
    use hindcast_wire::sql::Script;

    use super::*;

    #[test]
    fn a_statement_that_lays_one_row_is_known() {
        let lays = |text: &str| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            lays_one_row(&script.statements[0])
        };
        assert!(lays("INSERT INTO t (a, b) VALUES ($1, lower($2))"));
        assert!(!lays("INSERT INTO t VALUES ($1), ($2)"));
        assert!(!lays("INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING"));
        assert!(!lays("INSERT INTO t VALUES ($1) RETURNING a"));
        assert!(!lays("INSERT INTO t SELECT a FROM u"));
        assert!(!lays("UPDATE t SET a = $1"));
    }
}
