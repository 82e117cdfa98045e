//! The local page: what a recording shows, served to a browser on this machine.
//!
//! ```text
//!   browser ── Authorization: Bearer TOKEN ──▶ Server ──▶ Desk ──▶ hindcast-view
//!     │                                          │          │
//!     └── page/ (TypeScript), built into built/ ─┘          └── reads the trace as it grows
//! ```
//!
//! The page and its script hold nothing of a recording and are served to anyone who asks; every
//! answer about the recording needs the token, which is in the address behind `#` and so in no
//! request line and no log. A request whose `Host` is not this machine is refused, so that no name
//! that somebody else controls can be made to mean it.
//!
//! **What this crate does not do**: it decides nothing about what is shown (`hindcast-view` does),
//! it writes nothing, it loads nothing from elsewhere, and it listens on loopback addresses only.
//!
//! **Where to start reading**: [`Server`], then `desk.rs`, then `page/main.ts`.
//!
//! **The invariant to keep**: no answer about a recording without the token.

mod answers;
mod desk;
mod pages;
mod server;

pub use desk::Source;
pub use server::{ServeError, Server};
