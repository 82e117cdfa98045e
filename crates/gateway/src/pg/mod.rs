//! Hosts Postgres sessions: accept, TLS, startup, cancel, the connection to the server, and the
//! pump between.
//!
//! A session is one task with two sockets and a [`Driver`]. The host reads, hands the bytes to the
//! driver, and writes what the driver leaves in [`Wires`](hindcast_wire::Wires). Nothing is shared
//! between sessions while bytes flow: no locks, no channels, and no wakeups other than the two
//! sockets becoming ready.
//!
//! ```text
//!            ┌──────────────────── session task ───────────────────┐
//!  client ──▶│ input ─▶ Driver::on_client ─▶ wires.to_server ──────│──▶ server
//!         ◀──│────── wires.to_client ◀─ Driver::on_server ◀─ input │◀──
//!            └─────────────────────────────────────────────────────┘
//! ```
//!
//! What the host takes care of, so that no driver has to: `SSLRequest`, `GSSENCRequest`,
//! `CancelRequest`, the choice of a server from a list of hosts, channel binding (which cannot
//! cross a gateway with a certificate of its own), backpressure in both directions, and draining at
//! shutdown. A driver sees a session from its `StartupMessage` on.
//!
//! Start reading at [`Server`], then [`Driver`], then `pump`.

mod cancel;
mod driver;
mod pump;
mod server;
mod startup;
mod tap;

pub use driver::{Driver, Flow, Host, Permission, Refusal, SessionStart};
pub use server::{Server, ServerHandle, ServerOptions};
pub use startup::Parameters;
pub(crate) use startup::{Asked, First, take_first};
