//! Statements of the holder's own, and what becomes of them.
//!
//! They are prepared once per session under names of ours and sent in the extended protocol, so that they never touch the client's unnamed
//! statement and portal.

use bytes::{Bytes, BytesMut};
use hindcast_gateway::pg::Wires;
use hindcast_order::Tx;
use hindcast_trace::Isolation;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::{backend as server, frontend as client};

use super::answers::{Expect, Owner};
use super::{Desk, Holder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Begin(Isolation),
    /// With the isolation that the session has chosen.
    BeginAsChosen,
    /// In a transaction that the client began.
    ReadWrite(Isolation),
    /// In a transaction that the client began.
    ReadOnly,
    /// Asks for the ids of the transaction, if it has any.
    Identify {
        subtransactions: bool,
    },
    /// Takes the transaction's snapshot and sets what is pinned.
    Snapshot(Tx),
    Commit,
    Rollback,
    /// For statements that run only where they are alone.
    SessionReadOnly(bool),
    /// No statement: a `Sync` of ours behind messages of the client.
    Resync,
}

/// What the statement of ours that is being answered has been answered so far.
#[derive(Debug, Default)]
pub(super) struct OwnAnswer {
    error: Option<Bytes>,
    tag: Bytes,
    /// First column of the rows.
    values: Vec<Bytes>,
    /// Whether the last commit of ours committed.
    pub last_commit_worked: bool,
}

const PORTAL: &[u8] = b"hindcast";

impl Own {
    /// Name and text of the prepared statement. SERIALIZABLE is replayed as REPEATABLE READ: what would have failed is served from the
    /// recording, and the rest must not fail for other reasons than it had.
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
            Self::Snapshot(_) => (
                "hindcast_snapshot",
                "SELECT pg_catalog.set_config('hindcast.now', $1, true), pg_catalog.set_config('hindcast.sequences', $2, true)",
            ),
            Self::Commit => ("hindcast_commit", "COMMIT"),
            Self::Rollback => ("hindcast_rollback", "ROLLBACK"),
            Self::SessionReadOnly(true) => (
                "hindcast_read_only",
                "SET default_transaction_read_only = on",
            ),
            Self::SessionReadOnly(false) => (
                "hindcast_read_write",
                "SET default_transaction_read_only = off",
            ),
            Self::Resync => unreachable!("a Sync is sent as it is"),
        }
    }
}

impl Holder {
    pub(super) fn send_own(&mut self, own: Own, out: &mut Wires, desk: &mut impl Desk) {
        let (name, text) = own.statement();
        let bytes: &mut BytesMut = &mut out.to_server;
        if self.own_prepared.insert(name) {
            client::parse(bytes, name.as_bytes(), text.as_bytes(), &[]);
            self.answers.expect(Expect::Parse, Owner::Own);
        }
        match own {
            Own::Snapshot(tx) => {
                let pins = desk.pins(tx);
                let (now, sequences) = if self.options.pinned {
                    pins.settings()
                } else {
                    Default::default()
                };
                client::bind(
                    bytes,
                    PORTAL,
                    name.as_bytes(),
                    &[Some(now.as_bytes()), Some(sequences.as_bytes())],
                );
            }
            _ => client::bind(bytes, PORTAL, name.as_bytes(), &[]),
        }
        client::execute(bytes, PORTAL, 0);
        client::close(bytes, client::Target::Portal(PORTAL));
        client::sync(bytes);
        for expect in [
            Expect::Bind,
            Expect::Execute { ordered: false },
            Expect::Close,
            Expect::Sync,
        ] {
            self.answers.expect(expect, Owner::Own);
        }
        self.own.push_back(own);
    }

    pub(super) fn on_own_answer(&mut self, frame: &Frame, desk: &mut impl Desk) {
        match frame.tag() {
            server::ERROR_RESPONSE => self.own_answer.error = Some(frame.0.clone()),
            server::COMMAND_COMPLETE => self.own_answer.tag = Bytes::copy_from_slice(frame.body()),
            server::DATA_ROW => self.own_answer.values.extend(first_value(frame.body())),
            server::READY_FOR_QUERY => {
                let error = self.own_answer.error.take();
                let tag = std::mem::take(&mut self.own_answer.tag);
                let values = std::mem::take(&mut self.own_answer.values);
                let Some(own) = self.own.pop_front() else {
                    return;
                };
                if error.is_some() && own != Own::Resync {
                    // It may have been the Parse that failed.
                    self.own_prepared.remove(own.statement().0);
                }
                match own {
                    // Without an answer of either kind it was ignored, because the client's batch had failed before it.
                    Own::Snapshot(tx) if error.is_none() => {
                        if !tag.is_empty() {
                            desk.took_snapshot(tx)
                        }
                    }
                    Own::Commit => {
                        self.own_answer.last_commit_worked = error.is_none() && tag == "COMMIT\0";
                        self.commit_error = error;
                    }
                    Own::Identify { .. } if error.is_none() => {
                        let number = |value: &Bytes| std::str::from_utf8(value).ok()?.parse().ok();
                        let ids: Vec<u64> = values.iter().filter_map(number).collect();
                        if let Some(open) = self.transaction.as_ref().filter(|_| !ids.is_empty())
                            && let Some(claim) = open.followed()
                        {
                            desk.wrote(claim, ids, &open.texts);
                        }
                    }
                    Own::Rollback | Own::Resync => {}
                    _ => {
                        if let (Some(error), Some(open)) = (error, &mut self.transaction) {
                            open.error.get_or_insert_with(|| {
                                super::error_text(error.get(5..).unwrap_or_default())
                            });
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// The first column of a `DataRow`, if it is not NULL.
fn first_value(row: &[u8]) -> Option<Bytes> {
    let (_, rest) = row.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    rest.get(..length).map(Bytes::copy_from_slice)
}
