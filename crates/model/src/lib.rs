//! What is known of a request and of a transaction: the words that observing, recording and
//! ordering share.
//!
//! ```text
//!     wire: what was observed ──┐         ┌── trace: what is written down
//!                               ▼         ▼
//!                                  model
//!                                    ▲
//!                      order: what follows for a replay
//! ```
//!
//! - [`Id`] numbers requests, transactions and sessions. A [`Traceparent`] carries a request's
//!   number through the service.
//! - [`Snapshot`] and [`Xid`] are Postgres' own; [`Isolation`], [`Outcome`], [`Attribution`],
//!   [`Lock`], [`SequenceValue`] and [`Drawn`] are the other facts about a transaction.
//!
//! **Where to start reading**: [`Snapshot`] and its neighbours, then [`Traceparent`].
//!
//! **What this crate never does**: it has no I/O, no clock and no policy, and it depends on no
//! other crate of the project.
//!
//! **The invariant to keep**: each of these types is defined here and nowhere else. Their
//! serialized form is part of the trace format (`docs/trace-format.md`): fields and variants keep
//! their order.

mod id;
mod traceparent;
mod transaction;

pub use id::{Id, IdError, RequestId, SessionId, TransactionId};
pub use traceparent::Traceparent;
pub use transaction::{
    Attribution, Drawn, DrawnAt, DrawnBytes, DrawnUuid, DrawnValue, Isolation, Lock, Outcome,
    SequenceValue, Snapshot, SnapshotError, Xid, uuid_text,
};

/// Microseconds since the Unix epoch.
pub type Micros = i64;
