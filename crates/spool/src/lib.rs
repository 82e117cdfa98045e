//! What taps tell, drained to disk and read back in order.
//!
//! ```text
//!   taps ──memory of rings──▶ Drain ──blocks──▶ Segments ──files──▶ Spool ──▶ conversion
//! ```
//!
//! While the service runs, bytes are copied from rings to files and nothing else is done. What they
//! mean is found out later.
//!
//! **Where to start reading**: [`Drain`], then [`segments`].
//!
//! **What this crate does not do**: it knows neither HTTP nor Postgres, and orders nothing: what
//! several threads told stands in the order in which it was collected, with the moment of each.
//!
//! **The invariant to keep**: a tap never waits for a drain. If there is no room on disk, rings
//! fill up and taps count what they lose.

mod drain;
mod hello;
pub mod segments;

pub use drain::{Drain, Taken};
pub use segments::{Entry, Segments, Spool, SpoolError};
