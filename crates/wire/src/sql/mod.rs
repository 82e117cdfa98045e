//! Reads statement texts as far as an observer needs to.
//!
//! This is no parser of SQL. It knows the lexical rules exactly ([`lexer`]) and of the grammar only how statements begin, so it is right about
//! where statements end and what kind they are, and takes no position on the rest. [`Script::of`] does everything in one pass; [`ScriptCache`]
//! remembers the result by text.
//!
//! - [`trace`] finds the comment that names a request.
//! - [`rewrite`] changes texts and maps error positions back.

mod cache;
mod classify;
pub mod lexer;
pub mod rewrite;
pub mod trace;
mod unlock;

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

pub use cache::ScriptCache;
pub use lexer::{Dialect, Encoding};
use lexer::{Lexer, Token, TokenKind};
pub use rewrite::{Edits, PositionMap, clock_edits};
pub use trace::{TraceComment, TraceId, parse_traceparent, trace_comment};
pub use unlock::lock_edits;

use crate::Isolation;
use crate::limits;

/// The target of every advisory lock: their keys may be computed, so all count as one.
pub const ADVISORY: u32 = 0xadb1_50cc;

/// The statements of one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// As many as the server will find: empty ones do not count.
    pub statements: Vec<Statement>,
    /// The text ends within a string, a quoted name or a comment; the server will refuse all of it.
    pub unterminated: bool,
    /// It names a setting that decides how texts are read (see [`Dialect`]).
    pub changes_dialect: bool,
}

/// One statement of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// From its first token to its last, without the semicolon.
    pub range: Range<usize>,
    pub kind: Kind,
    /// Whether running it fixes the snapshot of a transaction that has none yet.
    pub takes_snapshot: bool,
    pub company: Company,
    /// It ends with a top-level `ORDER BY`, so the order of its rows counts.
    pub ordered: bool,
    /// It has a top-level `RETURNING`.
    pub returning: bool,
    /// It may queue a notification, which makes the commit assign a transaction id.
    pub notifies: bool,
    /// What it locks other than by writing rows: hashes of table names, or [`ADVISORY`].
    pub locks: Box<[u32]>,
    /// Top-level result columns that are simply `nextval('…')`.
    pub sequences: Box<[SequenceColumn]>,
    pub fingerprint: Arc<Fingerprint>,
}

/// A statement's text with literals replaced by `$n`, white space folded and comments removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Of the whole, even where `text` is cut.
    pub hash: u64,
    /// At most [`limits::FINGERPRINT_BYTES_MAX`] bytes, then `…`.
    pub text: String,
}

/// A result column that shows a sequence's next value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceColumn {
    pub column: Box<str>,
    /// As written: `order_id_seq`, `public.order_id_seq`.
    pub sequence: Box<str>,
}

/// What kind of statement it is, as far as that matters to transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Begin {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint,
    RollbackTo,
    Release,
    PrepareTransaction {
        gid: Box<[u8]>,
    },
    CommitPrepared {
        gid: Box<[u8]>,
    },
    RollbackPrepared {
        gid: Box<[u8]>,
    },
    /// `SET TRANSACTION …`, and `SET CONSTRAINTS`, which matter to the open transaction only.
    SetTransaction {
        isolation: Option<Isolation>,
        read_only: Option<bool>,
    },
    /// `SET` and `RESET`.
    Set,
    Show,
    Discard {
        all: bool,
    },
    /// `None`: all.
    Deallocate {
        name: Option<Box<[u8]>>,
    },
    /// SQL's `PREPARE name AS …`.
    Prepare,
    /// SQL's `EXECUTE name`.
    Execute,
    Listen,
    Notify,
    Lock,
    Declare,
    /// `FETCH`, `MOVE` and `CLOSE`.
    Cursor,
    CopyFromStdin,
    CopyToStdout,
    Select,
    Insert,
    Update,
    Delete,
    Merge,
    Call,
    Do,
    /// Everything else: DDL, `COPY` to and from files, `EXPLAIN`, maintenance.
    Utility,
}

/// Whether a statement can share an implicit transaction with a query of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Any,
    /// A second statement in the same `Query` would change what it does (`CALL` could no longer commit); a pipelined one behind it does not.
    Pipelined,
    /// It runs only where it is alone.
    Refused,
}

impl Kind {
    /// Opens, ends or prepares a transaction block.
    pub fn controls_transaction(&self) -> bool {
        matches!(
            self,
            Self::Begin { .. }
                | Self::Commit { .. }
                | Self::Rollback { .. }
                | Self::PrepareTransaction { .. }
        )
    }

    /// May make its transaction write: all but those that only touch the session or the block.
    pub fn may_write(&self) -> bool {
        !matches!(
            self,
            Self::Begin { .. }
                | Self::Commit { .. }
                | Self::Rollback { .. }
                | Self::PrepareTransaction { .. }
                | Self::Savepoint
                | Self::RollbackTo
                | Self::Release
                | Self::SetTransaction { .. }
                | Self::Set
                | Self::Show
                | Self::Discard { .. }
                | Self::Deallocate { .. }
                | Self::Listen
                | Self::CommitPrepared { .. }
                | Self::RollbackPrepared { .. }
        )
    }

    /// Ends a prepared transaction, which was told with its id when it was prepared.
    pub fn settles_prepared(&self) -> bool {
        matches!(
            self,
            Self::CommitPrepared { .. } | Self::RollbackPrepared { .. }
        )
    }

    /// Leaves something behind in the session that later statements of it may depend on.
    pub fn changes_session(&self) -> bool {
        matches!(
            self,
            Self::Set
                | Self::Discard { .. }
                | Self::Deallocate { .. }
                | Self::Prepare
                | Self::Listen
        )
    }
}

impl Statement {
    pub fn text<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.range.clone()]
    }

    /// Whether its result may show values of sequences.
    pub fn may_show_sequences(&self) -> bool {
        self.returning || !self.sequences.is_empty()
    }
}

impl Script {
    /// Reads a text. Never fails: what is not SQL is a [`Kind::Utility`] statement for the server to refuse.
    pub fn of(text: &[u8], dialect: Dialect) -> Self {
        let mut lexer = Lexer::new(text, dialect);
        let (mut statements, mut tokens) = (Vec::new(), Vec::new());
        let (mut parens, mut bodies) = (0usize, 0usize);
        let (mut changes_dialect, mut omitted) = (false, 0u64);
        for token in lexer.by_ref() {
            changes_dialect |= names_dialect(token, text);
            match token.kind {
                TokenKind::Space | TokenKind::Comment => continue,
                TokenKind::Semicolon if parens == 0 && bodies == 0 => {
                    statements.extend(Statement::of(text, &tokens, omitted));
                    tokens.clear();
                    omitted = 0;
                    continue;
                }
                TokenKind::Open => parens += 1,
                TokenKind::Close => parens = parens.saturating_sub(1),
                // The body of a function in standard SQL has semicolons of its own: BEGIN ATOMIC …; …; END
                TokenKind::Word if parens == 0 && classify::creates_routine(text, &tokens) => {
                    match token.text(text) {
                        word if word.eq_ignore_ascii_case(b"begin") => bodies += 1,
                        word if word.eq_ignore_ascii_case(b"case") && bodies > 0 => bodies += 1,
                        word if word.eq_ignore_ascii_case(b"end") => {
                            bodies = bodies.saturating_sub(1)
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
            tokens.push(token);
            if tokens.len() >= 2 * limits::STATEMENT_TOKENS_MAX {
                thin(&mut tokens);
                omitted += 1;
            }
        }
        statements.extend(Statement::of(text, &tokens, omitted));
        Self {
            statements,
            unterminated: lexer.is_unterminated(),
            changes_dialect,
        }
    }
}

impl Statement {
    /// `tokens` without spaces and comments; `None` if there are none. `omitted`: how often some were left out.
    fn of(text: &[u8], tokens: &[Token], omitted: u64) -> Option<Self> {
        let (first, last) = (tokens.first()?, tokens.last()?);
        let range = first.start..last.end;
        let mut statement = classify::classify(text, tokens, range);
        statement.fingerprint = Arc::new(fingerprint(text, tokens, omitted));
        Some(statement)
    }
}

fn fingerprint(text: &[u8], tokens: &[Token], omitted: u64) -> Fingerprint {
    // Constants are numbered behind the statement's own parameters, as pg_stat_statements does.
    let mut next = tokens
        .iter()
        .filter(|token| token.kind == TokenKind::Parameter)
        .map(|token| number(&token.text(text)[1..]))
        .max()
        .unwrap_or(0);
    let mut normal = Vec::with_capacity(tokens.last().map_or(0, |last| last.end - tokens[0].start));
    let mut previous_end = tokens.first().map_or(0, |token| token.start);
    for token in tokens {
        if token.start > previous_end {
            normal.push(b' ');
        }
        previous_end = token.end;
        if matches!(token.kind, TokenKind::String | TokenKind::Number) {
            next = next.saturating_add(1);
            normal.push(b'$');
            normal.extend_from_slice(next.to_string().as_bytes());
        } else {
            normal.extend_from_slice(token.text(text));
        }
    }
    let hash = xxh3_64(&normal).wrapping_add(omitted);
    let text = if normal.len() <= limits::FINGERPRINT_BYTES_MAX {
        String::from_utf8_lossy(&normal).into_owned()
    } else {
        // A character cut in two at the end becomes a replacement character, which does no harm here.
        String::from_utf8_lossy(&normal[..limits::FINGERPRINT_BYTES_MAX]).into_owned() + "…"
    };
    Fingerprint { hash, text }
}

/// `SET client_encoding`, `set_config('standard_conforming_strings', …)`, `SET NAMES`, and code that has one of these in it.
fn names_dialect(token: Token, text: &[u8]) -> bool {
    let text = token.text(text);
    match token.kind {
        TokenKind::Word => ["standard_conforming_strings", "client_encoding", "names"]
            .iter()
            .any(|name| text.eq_ignore_ascii_case(name.as_bytes())),
        TokenKind::String | TokenKind::QuotedName => ["standard_conforming", "client_encoding"]
            .iter()
            .any(|name| memchr::memmem::find(text, name.as_bytes()).is_some()),
        _ => false,
    }
}

/// Drops tokens from the middle of a statement that has very many of them (rows of values), keeping parentheses balanced.
fn thin(tokens: &mut Vec<Token>) {
    let middle = limits::STATEMENT_TOKENS_MAX / 2..tokens.len() - limits::STATEMENT_TOKENS_MAX / 4;
    let at = Token {
        kind: TokenKind::Symbol,
        start: tokens[middle.start].start,
        end: tokens[middle.start].start,
    };
    let of = |kind| {
        tokens[middle.clone()]
            .iter()
            .filter(|token| token.kind == kind)
            .count()
    };
    let (opened, closed) = (of(TokenKind::Open), of(TokenKind::Close));
    let kind = if opened > closed {
        TokenKind::Open
    } else {
        TokenKind::Close
    };
    let balance = opened
        .abs_diff(closed)
        .min(limits::STATEMENT_TOKENS_MAX / 8);
    tokens.splice(middle, std::iter::repeat_n(Token { kind, ..at }, balance));
}

fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0u32, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;
