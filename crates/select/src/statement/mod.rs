//! What one statement touches, as far as its text tells.
//!
//! The text is read with Postgres' own grammar. Names are as written: the
//! [`catalog`](crate::Catalog) decides which tables they mean, and what else happens when these are
//! touched. Texts are fingerprints, with literals replaced by `$1`, `$2` …, which the parser allows
//! in most places for the sake of statistics that show such texts; in the others literals are put
//! back ([`literals`]). What is not read even so is undetermined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

mod cut;
mod literals;
mod plpgsql;
mod walk;

pub(crate) use plpgsql::{Parameter, Returns, routine, trigger};

/// A name as written, folded to lower case unless it was quoted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub schema: Option<String>,
    pub name: String,
}

/// What a statement does, before the catalog is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// Tables and views it reads from.
    pub reads: BTreeSet<Name>,
    /// Tables and views it changes or locks.
    pub writes: BTreeMap<Name, Effects>,
    pub functions: BTreeSet<Name>,
    /// Temporary tables it makes, which concern no other request.
    pub temporary: BTreeSet<Name>,
    /// Schemas it puts on the search path. Whether that changes anything, the catalog knows.
    pub search_path: Option<Vec<String>>,
    /// Why it may touch more than these.
    pub undetermined: Option<String>,
}

/// In a set of columns: all of them.
pub const ANY_COLUMN: &str = "*";

/// What happens to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub insert: bool,
    /// By column that `INSERT … VALUES` gives a value: the function without arguments that each of
    /// its rows has it from; `None`: it is given in another way. `*` means all.
    pub inserts: BTreeMap<String, Option<String>>,
    /// The columns that are set; `*` means all.
    pub update: Option<BTreeSet<String>>,
    pub delete: bool,
    pub truncate: bool,
    /// `TRUNCATE … CASCADE`.
    pub cascade: bool,
    /// `SELECT … FOR UPDATE` and its kin, `LOCK`.
    pub lock: bool,
    /// `REFRESH MATERIALIZED VIEW`.
    pub refresh: bool,
}

/// Statements by text, each parsed once.
#[derive(Debug, Default)]
pub struct Statements {
    by_text: HashMap<String, Arc<Statement>>,
}

impl Statements {
    pub fn of(&mut self, text: &str) -> Arc<Statement> {
        if let Some(statement) = self.by_text.get(text) {
            return Arc::clone(statement);
        }
        let statement = Arc::new(Statement::of(text));
        self.by_text.insert(text.to_owned(), Arc::clone(&statement));
        statement
    }
}

impl Statement {
    /// Of a text with one statement, or several. Never fails: what cannot be read is undetermined.
    pub fn of(text: &str) -> Self {
        if text.ends_with('…') {
            return Self::of_beginning(text);
        }
        match literals::restoring(text, |text| parse(text, 0)) {
            Ok(tree) => walk::statements(&tree),
            Err(reason) => Self::unread(text, &reason),
        }
    }

    fn of_beginning(text: &str) -> Self {
        let mended = cut::mended(text);
        let read = |text: String| literals::restoring(&text, |text| parse(text, 0));
        match mended.map(read) {
            Some(Ok(tree)) => {
                let mut statement = walk::statements(&tree);
                // After the rows to insert there may be an ON CONFLICT DO UPDATE.
                for effects in statement.writes.values_mut().filter(|it| it.insert) {
                    effects.update = Some(BTreeSet::from([ANY_COLUMN.to_owned()]));
                }
                statement
            }
            _ => Self::undetermined("only the beginning of its text was kept"),
        }
    }

    /// Of a function whose body is part of its definition: `CREATE FUNCTION … BEGIN ATOMIC …`.
    pub(crate) fn of_definition(text: &str) -> Self {
        match parse(text, 0) {
            Ok(tree) => walk::body(&tree),
            Err(reason) => Self::undetermined(reason),
        }
    }

    fn undetermined(reason: impl Into<String>) -> Self {
        Self {
            undetermined: Some(reason.into()),
            ..Self::default()
        }
    }

    /// Where a literal stood, the grammar does not always allow a parameter.
    fn unread(text: &str, reason: &str) -> Self {
        let mut words = text.split_whitespace().map(str::to_ascii_uppercase);
        let first = words.next().unwrap_or_default();
        let second = words.next().unwrap_or_default();
        match first.as_str() {
            "PREPARE" if second == "TRANSACTION" => Self::default(),
            "DO" => Self::undetermined("DO runs code that is not part of its recorded text"),
            "SET" | "RESET" | "SHOW" | "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK"
            | "ABORT" | "SAVEPOINT" | "RELEASE" | "LISTEN" | "UNLISTEN" | "NOTIFY" | "DISCARD"
            | "DEALLOCATE" | "FETCH" | "MOVE" | "CLOSE"
                if !text.contains(';') && !text.to_ascii_lowercase().contains("search_path") =>
            {
                Self::default()
            }
            _ => Self::undetermined(reason),
        }
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.reads.extend(other.reads);
        for (name, effects) in other.writes {
            self.writes.entry(name).or_default().absorb(effects);
        }
        self.functions.extend(other.functions);
        self.temporary.extend(other.temporary);
        self.search_path = other.search_path.or(self.search_path.take());
        self.undetermined = self.undetermined.take().or(other.undetermined);
    }
}

impl Effects {
    pub fn absorb(&mut self, other: Self) {
        self.insert_columns(other.inserts);
        if let Some(columns) = other.update {
            self.update.get_or_insert_default().extend(columns);
        }
        self.insert |= other.insert;
        self.delete |= other.delete;
        self.truncate |= other.truncate;
        self.cascade |= other.cascade;
        self.lock |= other.lock;
        self.refresh |= other.refresh;
    }

    /// What two statements give a column in different ways has no function.
    fn insert_columns(&mut self, inserts: BTreeMap<String, Option<String>>) {
        for (column, function) in inserts {
            let known = self.inserts.entry(column);
            let known = known.or_insert_with(|| function.clone());
            if *known != function {
                *known = None;
            }
        }
    }

    /// Anything but a lock.
    pub fn changes_rows(&self) -> bool {
        self.insert || self.update.is_some() || self.delete || self.truncate || self.refresh
    }
}

impl Name {
    pub fn new(schema: &str, name: &str) -> Self {
        Self {
            schema: (!schema.is_empty()).then(|| schema.to_owned()),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The tree of a text. `mode`: the parser's, 0 for whole statements.
fn parse(text: &str, mode: i32) -> Result<serde_json::Value, String> {
    let parsed = pg_query::parse(text, mode).map_err(|error| match error {
        pg_query::Error::Parse(reason) => reason,
        pg_query::Error::Decode(_) => "it is nested too deeply to be analysed".to_owned(),
        other => other.to_string(),
    })?;
    serde_json::to_value(&parsed.protobuf).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
