//! Where a Postgres server is and how to talk to it without a runtime.
//!
//! [`DatabaseUrl`] reads URLs as libpq does, [`client_config`] and [`ServerIdentity`] are what they mean for TLS; the gateway uses these with its own,
//! asynchronous sockets. [`Connection`] is a blocking session for whoever has a thread to spare and bytes to move: the simple protocol for
//! what is rare, [`Pipeline`]s of prepared statements and [`CopyIn`] for what is not, and [`CopyBoth`], a replication
//! stream whose messages are read where the socket put them.
//!
//! It does not know types: values go and come as the caller encodes them, results are text. It has no pool, no threads and no retries.
//!
//! Start reading at [`Connection`]. The invariant: **every wait ends**. Connecting has a deadline, a stream is read until one, and an
//! [`Interrupter`] held by another thread ends everything else; after an error that leaves a session in the middle of something, the session says so
//! ([`Connection::is_broken`]) and every later call fails instead of reading somebody else's answer.

mod connect;
mod connection;
mod copy;
mod error;
mod lsn;
mod pipeline;
mod quote;
mod replication;
mod rows;
mod tls;
mod transport;
mod url;

pub use connect::{AttemptError, ConnectError, ConnectOptions};
pub use connection::{CancelToken, Connection};
pub use copy::CopyIn;
pub use error::{Error, ServerError};
pub use lsn::Lsn;
pub use pipeline::{Outcome, Parameter, Pipeline};
pub use quote::{quote_identifier, quote_literal};
pub use replication::CopyBoth;
pub use rows::{Row, Rows};
pub use tls::{ServerIdentity, TlsError, client_config};
pub use transport::Interrupter;
pub use url::{Address, DatabaseUrl, SslMode, UrlError};
