//! Statements of the holder's own, and what becomes of them.
//!
//! They are prepared once per session under names of ours and sent in the extended protocol, so
//! that they never touch the client's unnamed statement and portal.

use std::collections::{HashSet, VecDeque};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use hindcast_order::Tx;
use hindcast_rewind::pins::{SETTINGS, Settings};
use hindcast_trace::Isolation;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};

use super::answers::{Answers, Expect, Owner, Rows};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Begin(Isolation),
    /// With the isolation that the session has chosen.
    BeginAsChosen,
    /// In a transaction that the client began.
    ReadWrite(Isolation),
    /// Before a savepoint, behind which this cannot be said any more.
    Writable,
    /// In a transaction that the client began.
    ReadOnly,
    /// Asks for the ids of the transaction, if it has any.
    Identify {
        subtransactions: bool,
    },
    /// Takes the transaction's snapshot and sets what is pinned.
    Snapshot(Tx),
    /// Sets it again, after a savepoint was rolled back to, for the statements from this one on.
    PinAgain(Tx, u32),
    /// Takes down what can be seen now, which this look of it is. Its portal stays open: the
    /// server keeps what is seen by it.
    Early(Tx, u32),
    /// The statement that comes next goes on with that.
    GoOn,
    Commit,
    Rollback,
    /// Rolls back what was written outside of requests, in front of the client's commit, which
    /// finds a transaction as it expects to.
    Undo,
    /// What will be undone waits for no row for long: others may wait for what it has locked.
    Patience,
    /// For statements that run only where they are alone.
    SessionReadOnly(bool),
    /// The try for an advisory lock that comes next is in vain.
    RefuseLock,
    /// It was granted.
    GrantLock,
    /// No statement: a `Sync` of ours behind messages of the client.
    Resync,
}

const PORTAL: &[u8] = b"hindcast";
const EARLY: &[u8] = b"hindcast_early";

/// Sets each of [`SETTINGS`], for the transaction.
static SET_PINS: LazyLock<String> = LazyLock::new(|| {
    let numbered = SETTINGS.iter().zip(1..);
    let calls: Vec<String> = numbered
        .map(|(name, at)| format!("pg_catalog.set_config('{name}', ${at}, true)"))
        .collect();
    format!("SELECT {}", calls.join(", "))
});

impl Own {
    pub fn text(&self) -> &'static str {
        self.statement().1
    }

    /// Name and text of the prepared statement. SERIALIZABLE is replayed as REPEATABLE READ: what
    /// would have failed is served from the recording, and the rest must not fail for other reasons
    /// than it had.
    fn statement(&self) -> (&'static str, &'static str) {
        match self {
            Self::Begin(Isolation::ReadCommitted) => (
                "hindcast_begin_rc",
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            ),
            Self::Begin(_) => (
                "hindcast_begin",
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            ),
            Self::BeginAsChosen => ("hindcast_begin_as_chosen", "BEGIN READ WRITE"),
            Self::Writable => ("hindcast_writable", "SET TRANSACTION READ WRITE"),
            Self::ReadOnly => ("hindcast_read", "SET TRANSACTION READ ONLY"),
            Self::Identify {
                subtransactions: false,
            } => (
                "hindcast_id",
                "SELECT pg_catalog.pg_current_xact_id_if_assigned()::text",
            ),
            // A subtransaction that was released holds the lock on its id until the end.
            Self::Identify {
                subtransactions: true,
            } => (
                "hindcast_ids",
                "SELECT transactionid::text FROM pg_catalog.pg_locks \
                 WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'transactionid'",
            ),
            Self::ReadWrite(Isolation::ReadCommitted) => (
                "hindcast_write_rc",
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
            ),
            Self::ReadWrite(_) => (
                "hindcast_write",
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE",
            ),
            Self::Snapshot(_) | Self::PinAgain(..) => ("hindcast_snapshot", &SET_PINS),
            Self::Early(..) => (
                "hindcast_early",
                "SELECT pg_catalog.set_config('hindcast_pins.snapshot', \
                 pg_catalog.pg_current_snapshot()::pg_catalog.text, true) \
                 FROM pg_catalog.generate_series(1, 2)",
            ),
            Self::GoOn => (
                "hindcast_go_on",
                "SELECT pg_catalog.hindcast_next_snapshot()",
            ),
            Self::Commit => ("hindcast_commit", "COMMIT"),
            Self::Rollback => ("hindcast_rollback", "ROLLBACK"),
            Self::Undo => ("hindcast_undo", "ROLLBACK AND CHAIN"),
            Self::Patience => ("hindcast_patience", "SET LOCAL lock_timeout = '2s'"),
            Self::SessionReadOnly(true) => (
                "hindcast_read_only",
                "SET default_transaction_read_only = on",
            ),
            Self::SessionReadOnly(false) => (
                "hindcast_read_write",
                "SET default_transaction_read_only = off",
            ),
            Self::RefuseLock => ("hindcast_refuse", "SET hindcast_pins.try = 'refused'"),
            Self::GrantLock => ("hindcast_grant", "SET hindcast_pins.try = 'granted'"),
            Self::Resync => unreachable!("a Sync is sent as it is"),
        }
    }
}

/// What a statement of ours was answered.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The whole `ErrorResponse`.
    pub error: Option<Bytes>,
    /// Of its `CommandComplete`. Empty without an error: it was ignored, because the client's
    /// batch had failed before it.
    pub tag: Bytes,
    /// First column of the rows.
    pub values: Vec<Bytes>,
    /// It was prepared with it.
    prepared: bool,
}

/// Statements of ours that are under way, and what the server knows of them.
#[derive(Debug, Default)]
pub(super) struct OwnStatements {
    /// Sent and not answered, in order, each with whether it was to be prepared.
    outstanding: VecDeque<(Own, bool)>,
    /// What the first of them was answered so far.
    outcome: Outcome,
    /// By name: the server has them.
    prepared: HashSet<&'static str>,
}

impl OwnStatements {
    /// Puts a statement on the wire. `settings` are those of [`Own::Snapshot`].
    pub fn send(
        &mut self,
        own: Own,
        settings: Option<Settings>,
        answers: &mut Answers,
        bytes: &mut BytesMut,
    ) {
        if self.outstanding.is_empty() {
            // What was prepared among messages of the client is no part of this.
            self.outcome = Outcome::default();
        }
        let (name, text) = own.statement();
        let prepares = self.prepared.insert(name);
        if prepares {
            client::parse(bytes, name.as_bytes(), text.as_bytes(), &[]);
            answers.expect(Expect::Parse, Owner::Own);
        }
        let execute = Expect::Execute {
            rows: Rows::default(),
            of: None,
        };
        let expected = match (&own, &settings) {
            (Own::Early(..), _) => {
                // One row of two, so that it is not through. There may be one from before.
                client::close(bytes, client::Target::Portal(EARLY));
                client::bind(bytes, EARLY, name.as_bytes(), &[]);
                client::execute(bytes, EARLY, 1);
                [Expect::Close, Expect::Bind, execute, Expect::Sync]
            }
            (_, settings) => {
                let values = settings.iter().flatten();
                let values: Vec<_> = values.map(|value| Some(value.as_bytes())).collect();
                client::bind(bytes, PORTAL, name.as_bytes(), &values);
                client::execute(bytes, PORTAL, 0);
                client::close(bytes, client::Target::Portal(PORTAL));
                [Expect::Bind, execute, Expect::Close, Expect::Sync]
            }
        };
        client::sync(bytes);
        for expect in expected {
            answers.expect(expect, Owner::Own);
        }
        self.outstanding.push_back((own, prepares));
    }

    /// A `Sync` of ours goes with messages of the client.
    pub fn note_sync(&mut self) {
        self.outstanding.push_back((Own::Resync, false));
    }

    /// The client has the server forget all prepared statements.
    pub fn forget_prepared(&mut self) {
        self.prepared.clear();
    }

    /// Takes an answer to the first of them. Returns what it came to when that is over.
    pub fn answered(&mut self, frame: &Frame) -> Option<(Own, Outcome)> {
        match frame.tag() {
            server::ERROR_RESPONSE => self.outcome.error = Some(frame.0.clone()),
            server::COMMAND_COMPLETE => self.outcome.tag = Bytes::copy_from_slice(frame.body()),
            server::PARSE_COMPLETE => self.outcome.prepared = true,
            server::DATA_ROW => self.outcome.values.extend(first_value(frame.body())),
            server::READY_FOR_QUERY => {
                let outcome = std::mem::take(&mut self.outcome);
                let (own, prepares) = self.outstanding.pop_front()?;
                // What was prepared stays so, whatever became of it then.
                if outcome.error.is_some() && prepares && !outcome.prepared {
                    self.prepared.remove(own.statement().0);
                }
                return Some((own, outcome));
            }
            _ => {}
        }
        None
    }
}

/// The first column of a `DataRow`, if it is not NULL.
fn first_value(row: &[u8]) -> Option<Bytes> {
    let (_, rest) = row.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    rest.get(..length).map(Bytes::copy_from_slice)
}
