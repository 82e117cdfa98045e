//! The SQL that the store answers: reads of one table, and of tables joined by primary key.
//!
//! ```text
//!  text ─▶ AS OF cut out ─▶ Postgres' own grammar ─▶ resolve: names, types, refusals ─▶ Statement
//!                                                                                           │
//!  rows ◀─ order, limit ◀─ group ◀─ filter ◀─ look up ◀─ point, range or table ◀─ snapshot ─┘
//! ```
//!
//! What is answered is answered as Postgres would, type by type and NULL by NULL; what might not be
//! is refused, with the construct's name. Values stay in text form from the log to the client;
//! comparisons go by [`crate::encoding`].
//!
//! Start reading at [`prepare`] and [`execute`].

mod aggregate;
mod as_of;
mod asked;
mod condition;
mod decimal;
mod execute;
mod literal;
mod output;
mod predicate;
mod resolve;
mod scope;
mod select;
mod term;
mod tree;
mod types;

use hindcast_store::Snapshot;
use hindcast_wire::sql::lexer::{Dialect, Lexer, TokenKind};

use crate::catalog::Catalog;

pub use execute::execute;

pub use as_of::AsOf;
use select::Select;
use types::TEXT;

/// A statement that was understood; can be executed any number of times.
#[derive(Clone, Debug)]
pub struct Statement {
    kind: Kind,
    plan: Plan,
    columns: Vec<OutputColumn>,
    parameters: Vec<u32>,
    as_of: Option<AsOf>,
}

/// What a session has to do about a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns rows, from a snapshot.
    Select,
    /// Returns a row, from the session.
    Show,
    Set {
        name: String,
        value: String,
        /// Until the end of the block.
        local: bool,
    },
    /// `None`: all.
    Reset {
        name: Option<String>,
    },
    Begin,
    Commit,
    Rollback,
    Savepoint {
        name: String,
    },
    Release {
        name: String,
    },
    RollbackTo {
        name: String,
    },
    Empty,
    DiscardAll,
    /// `None`: all.
    Deallocate {
        name: Option<String>,
    },
}

#[derive(Clone, Debug)]
enum Plan {
    Nothing,
    Select(Box<Select>),
    Show(String),
    Explain(Box<Select>),
    /// Columns of `hindcast.status`.
    Status(Vec<String>),
    /// What a driver asks.
    Asked(asked::Asked),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub type_oid: u32,
}

/// Why a statement is not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// The SQLSTATE.
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// In characters from 1.
    pub position: Option<u32>,
}

const SUPPORTED: &str = "this server answers SELECT over one table, or tables joined by primary key, with WHERE, GROUP BY, ORDER BY, LIMIT, count, sum, avg, min and max; \
    for everything else follow into a Postgres backup (hindcast standby --to)";

impl SqlError {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            position: None,
        }
    }

    /// Something that Postgres has and this server has not.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self {
            hint: Some(SUPPORTED.to_owned()),
            ..Self::new("0A000", format!("{what} is not supported here"))
        }
    }

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// What a statement is executed against.
pub struct View<'a> {
    pub snapshot: &'a Snapshot,
    pub catalog: &'a Catalog,
    /// What `SHOW` can show, and the columns of `hindcast.status` among it.
    pub status: &'a dyn Fn() -> Vec<(&'static str, String)>,
    /// Asked now and then while rows are looked at, also where none of them fits: an error ends
    /// the statement.
    pub interrupted: &'a dyn Fn() -> Result<(), SqlError>,
}

/// The columns of the table `hindcast.status`.
pub const STATUS_COLUMNS: [&str; 7] = [
    "visible_lsn",
    "visible_time",
    "lag_ms",
    "oldest_lsn",
    "oldest_time",
    "rows_applied",
    "deferred",
];

/// The statements of a text: by semicolons, which are nowhere else in what is supported.
///
/// # Errors
/// If one of several is none: then nothing is to be done at all.
pub fn split(text: &str) -> Result<Vec<String>, SqlError> {
    let bytes = text.as_bytes();
    let mut places = Vec::new();
    // The first and the last token of the statement under way.
    let mut part: Option<(usize, usize)> = None;
    for token in Lexer::new(bytes, Dialect::default()) {
        match token.kind {
            TokenKind::Space | TokenKind::Comment => {}
            TokenKind::Semicolon => places.extend(part.take()),
            _ => part = Some((part.map_or(token.start, |(start, _)| start), token.end)),
        }
    }
    places.extend(part);
    let statements: Vec<String> = places
        .into_iter()
        .map(|(start, end)| text[start..end].to_owned())
        .collect();
    if statements.len() > 1 {
        for statement in &statements {
            tree::parse(&as_of::cut(statement)?.0)?;
        }
    }
    Ok(statements)
}

/// Understands one statement. `declared` are the parameters' types as far as the client named them.
pub fn prepare(text: &str, declared: &[u32], catalog: &Catalog) -> Result<Statement, SqlError> {
    let (text, as_of) = as_of::cut(text)?;
    let mut statement = resolve::statement(&text, declared, catalog)?;
    if as_of.is_some() && statement.kind != Kind::Select {
        return Err(SqlError::new("42601", "AS OF belongs to a SELECT"));
    }
    if let Some(AsOf::Parameter(number)) = as_of
        && statement.parameters.len() <= number
    {
        statement.parameters.resize(number + 1, TEXT);
    }
    statement.as_of = as_of;
    Ok(statement)
}

impl Statement {
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    /// The types of the parameters.
    pub fn parameters(&self) -> &[u32] {
        &self.parameters
    }

    /// `AS OF …` of its own.
    pub fn as_of(&self) -> Option<&AsOf> {
        self.as_of.as_ref()
    }

    fn plain(kind: Kind) -> Self {
        Self {
            kind,
            plan: Plan::Nothing,
            columns: Vec::new(),
            parameters: Vec::new(),
            as_of: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn statements_end_at_semicolons_and_only_there() {
        let split = |text| split(text).unwrap();
        assert_eq!(split("SELECT 1;; SHOW x"), ["SELECT 1", "SHOW x"]);
        assert_eq!(split("SELEC -- ;\n; /* ; */ "), ["SELEC"]);
        assert_eq!(
            split("SELECT ';', $$;$$, 'ä;' AS \";\""),
            ["SELECT ';', $$;$$, 'ä;' AS \";\""]
        );
        assert!(split(" ; -- nothing").is_empty());
    }

    #[test]
    fn of_several_statements_all_must_be_statements() {
        assert!(split("SELECT 1 FROM t AS OF '0/1'; SELECT 2").is_ok());
        assert_eq!(split("SELECT 1; SELEC").unwrap_err().code, "42601");
    }
}
