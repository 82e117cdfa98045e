//! The one Postgres client: where a database is, and how to talk to it.
//!
//! ```text
//!   DatabaseUrl ─▶ tls ─▶ handshake (pure) ─┬─▶ Connection     for threads
//!                                           └─▶ tokio::Client  for tasks; tokio::Connector for the raw connection
//! ```
//!
//! [`DatabaseUrl`] reads URLs, conninfo strings and their environment as libpq does, and everything
//! here takes one. [`handshake`] knows what is said before the first query. [`Connection`] is for
//! whoever has a thread to spare and bytes to move: [`Pipeline`]s of prepared statements,
//! [`CopyIn`], [`CopyBoth`] for replication streams. [`tokio::Client`] is for control connections:
//! queries with text parameters and rows.
//!
//! [`scram`] is the other side of a login, for a server of ours. [`secret`] finds passwords in
//! command lines and messages, so that they are shown without.
//!
//! It does not know types: values are text, read by small typed getters ([`Row::get`]). It has no
//! pool and no retries, and starts no threads and no tasks.
//!
//! Start reading at [`DatabaseUrl`], then [`handshake`]. The invariant: **a session never reads
//! another query's answer**. An error that leaves it in the middle of something closes it
//! ([`Connection::is_broken`], [`tokio::Client::is_closed`]), and every later call fails.

mod blocking;
mod error;
pub mod handshake;
mod listen;
mod lsn;
mod quote;
mod rows;
pub mod scram;
pub mod secret;
mod text;
mod tls;
pub mod tokio;
mod url;

pub use blocking::{
    CancelToken, Connection, CopyBoth, CopyIn, Interrupter, Outcome, Parameter, Pipeline,
};
pub use error::{AttemptError, ConnectError, Error, ServerError};
pub use handshake::ConnectOptions;
pub use listen::ListenAddress;
pub use lsn::Lsn;
pub use quote::{quote_identifier, quote_literal};
pub use rows::{Row, Rows};
pub use text::{FromText, ToText};
pub use tls::{Certificate, ServerIdentity, TlsError, client_config, trusting_config};
pub use url::{
    Address, ChannelBinding, DatabaseUrl, Environment, PROCESS, SslMode, TextFile, UrlError,
};
