//! Hindcast on the wire: an HTTP ingress in front of a service and a Postgres gateway behind it.
//!
//! ```text
//!  clients ──HTTP──▶ http::Ingress ──HTTP──▶ the service ──▶ pg::Server ──▶ Postgres
//!                         │                                     │ one Driver per session
//!                         └───────────── record::Recording ─────┘
//!                                              │
//!                                        trace::Writer
//! ```
//!
//! - [`pg`] hosts Postgres sessions: it accepts, negotiates TLS, connects to the server, forwards
//!   cancel requests and pumps bytes. What happens to the bytes is up to a [`pg::Driver`]: the
//!   recording driver here observes, the holding driver in `hindcast-replay` makes sessions wait.
//! - [`http`] is the ingress, and the pieces of it that a re-sender needs too.
//! - [`inside`] finds requests in what a service's own process tells, where no ingress is in front
//!   of it.
//! - [`record`] puts both together and writes a trace; start reading at [`record::run`].
//! - [`redact`] leaves secrets out of what is recorded.
//!
//! It deliberately knows no protocol in depth (`hindcast-wire` does) and decides nothing about
//! replay.
//!
//! The one invariant: **the gateway never makes the service wrong.** Whatever fails on the
//! recording side, traffic goes on and what is missing is marked as a gap.

pub mod http;
pub mod inside;
mod listen;
pub mod messages;
pub mod pg;
pub mod record;
pub mod redact;

pub use hindcast_pg::ListenAddress;
pub use inside::{Gates, address_of, redirect, socket_folder, system_address};
pub use listen::{Accepted, BindError, Listener, Listeners};
