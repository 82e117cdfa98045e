//! Follows one Postgres session: bytes in, bytes and events out.
//!
//! ```text
//!            ┌──────────────────────────────────────────────────────────┐
//!  client ──▶│ frame ─▶ message ─▶ sql ─┐                  (+ our asks) │──▶ server
//!            │                          ▼                               │
//!            │                       tracker: who is answered next?     │
//!            │                          ▲                               │
//!         ◀──│ (− their answers)        └─── message ◀─ frame           │◀──
//!            └──────────────────────────┬───────────────────────────────┘
//!                                       ▼ events: what each transaction saw and did
//! ```
//!
//! - [`frame`] splits streams into messages, [`message`] builds and parses the few that matter.
//! - [`sql`] reads statement texts as far as needed: where statements end, what kind they are,
//!   which request's trace they carry.
//! - [`tracker`] knows which message of the client (or of ours) the server answers next.
//! - [`spoken`] and [`answered`] tell people what a client sent and what it was answered.
//! - [`digest`] folds what a transaction was answered into 32 bits, of rows in their [`text`] form.
//! - [`values_of`] tells executions of one statement apart.
//! - [`Observer`] is the policy on top: it asks the server for snapshots and transaction ids in
//!   flights that are sent anyway, swallows the answers, and tells its host about each transaction.
//!   Start reading there.
//!
//! It deliberately does no I/O, reads no clock and draws no random number: the host hands in time,
//! what it knows about requests in flight, and the bytes. It refuses nothing and repairs nothing:
//! what it cannot follow it passes through.
//!
//! The one invariant: **a client sees exactly what it would have seen without us.** What is
//! forwarded differs from what came in only by our own statements and their answers, by trace
//! comments taken out of statement texts, and by the error positions that shift with them.

pub mod answered;
pub mod digest;
pub mod frame;
pub mod limits;
pub mod message;
mod observer;
pub mod row_order;
pub mod sent;
pub mod spoken;
pub mod sql;
pub mod text;
pub mod tracker;
mod values;

use bytes::BytesMut;

pub use digest::{ResultDigest, RowHasher, ShapeHasher};
pub use frame::Direction;
pub use message::backend::Status;
pub use observer::{
    Context, Cut, Event, FUNCTION_CALL, Failure, Keeping, Look, ObservedTransaction, Observer,
    ObserverOptions, ProtocolError, SequenceColumns, Source,
};
pub use values::{each_value, values_of};

/// Bytes of one session on their way out, in order.
#[derive(Debug, Default)]
pub struct Wires {
    pub to_server: BytesMut,
    pub to_client: BytesMut,
}
