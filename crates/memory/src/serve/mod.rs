//! Serves reads of the store in memory to Postgres clients: a thread for each session.
//!
//! ```text
//!  listener ─▶ startup ─▶ session ─▶ sql::prepare ─▶ sql::execute ─▶ values ─▶ link ─▶ client
//!                           │  ▲                          │
//!                settings, portals, transaction       Snapshot of the store
//! ```
//!
//! - [`Server`] accepts connections and ends them; `link` is the socket with its buffers.
//! - `session` speaks the protocol: simple queries, transactions, cancelling; `extended` the rest
//!   of it, `answer` builds what is said.
//! - `settings` is what `SET` and `SHOW` know, `values` turns text into binary values and back,
//!   `arrays` does it for arrays, `portal` keeps results that are fetched in parts.
//! - [`sql`] understands and executes statements.
//!
//! Clients log in with SCRAM-SHA-256 where there is a password ([`Door`]). On the loopback
//! interface there need not be one; beyond it nothing is served without. With a certificate only
//! encrypted connections are accepted. It knows no roles: the password is for every user's name,
//! and who has it reads everything. It does not write, and has no cursors and no `COPY`, and
//! no functions but those by which drivers ask about their session.
//!
//! The one invariant: **a statement reads one snapshot**. Outside a transaction block that is the
//! newest one (or the one that `AS OF` names), inside a block the one that the block's first read
//! took.

mod answer;
mod arrays;
mod extended;
mod link;
mod listener;
mod place;
mod portal;
mod session;
mod settings;
pub mod sql;
mod startup;
mod values;

pub use listener::{Door, ServeError, Server};
pub use place::SESSIONS_MAX;
