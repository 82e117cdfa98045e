//! What is known of one statement.

use std::ops::Range;
use std::sync::Arc;

use hindcast_model::Isolation;

/// The target of every advisory lock: their keys may be computed, so all count as one.
pub const ADVISORY: u32 = 0xadb1_50cc;
/// What stands in the place of [`ADVISORY`] where a try was told that another session has the lock.
/// Such a try came before the lock was given back, however late it was answered, and has done
/// nothing: it has no place among the others.
pub const ADVISORY_REFUSED: u32 = 0xadb1_50cd;

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
    /// It makes a temporary table that each later commit empties, for which the commit may assign a
    /// transaction id.
    pub empties_on_commit: bool,
    /// What it locks other than by writing rows: hashes of table names, or [`ADVISORY`].
    pub locks: Box<[u32]>,
    /// It takes an advisory lock if it can have it at once, and goes on without it otherwise.
    pub tries: bool,
    /// It gives advisory locks back, and takes none.
    pub gives_back: bool,
    /// Top-level result columns that are simply `nextval('…')`, or ask for what was drawn last.
    pub sequences: Box<[SequenceColumn]>,
    /// The table that it inserts into, as written, without quotes.
    pub inserts_into: Option<Box<str>>,
    /// Columns that a call which draws a UUID fills: of the result, or of the rows that it inserts.
    pub uuids: Box<[Box<str>]>,
    pub fingerprint: Arc<Fingerprint>,
    /// Hash of the constants for which the fingerprint has `$n`; 0: it has none.
    pub constants: u64,
}

/// A statement's text with literals replaced by `$n`, white space folded and comments removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Of the whole, even where `text` is cut.
    pub hash: u64,
    /// At most [`limits::FINGERPRINT_BYTES_MAX`] bytes. Of a longer one it is the beginning, `…h`
    /// with the hash, and the end.
    pub text: String,
}

impl Fingerprint {
    /// Whether a part of the statement is not in the text.
    pub fn is_cut(&self) -> bool {
        self.text.contains('…')
    }
}

/// A result column that shows a value of a sequence: the next one, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceColumn {
    pub column: Box<str>,
    /// As written: `order_id_seq`, `public.order_id_seq`. `None`: from which the session has drawn
    /// last.
    pub sequence: Option<Box<str>>,
    /// It was drawn before, by another statement.
    pub is_last: bool,
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
    Checkpoint,
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
    /// A second statement in the same `Query` would change what it does (`CALL` could no longer
    /// commit); a pipelined one behind it does not.
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
                | Self::Checkpoint
                // All of it: what it drops is dropped before it, by a statement of ours.
                | Self::Discard { all: true }
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

    /// Whether its result may show what the server drew for it.
    pub fn may_show_drawn(&self) -> bool {
        self.returns_new_rows() || !self.sequences.is_empty() || !self.uuids.is_empty()
    }

    /// Whether its result shows rows that it makes. `UPDATE` and `DELETE` show what was drawn
    /// before.
    pub fn returns_new_rows(&self) -> bool {
        self.returning && matches!(self.kind, Kind::Insert | Kind::Merge)
    }

    /// Whether a call fills this column of its result with a UUID.
    pub fn draws(&self, column: &[u8]) -> bool {
        self.uuids.iter().any(|one| one.as_bytes() == column)
    }
}
