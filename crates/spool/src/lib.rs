//! What taps tell, drained to disk and read back in order.
//!
//! ```text
//!   taps ──memory of rings──▶ Drain ──▶ a Taker: Segments ──files──▶ Spool
//! ```
//!
//! A drain empties rings and gives what they told to a [`Taker`]: [`Segments`] copies it to files
//! and does nothing else, the recorder's own turns it into requests at once.
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
mod reception;
pub mod segments;
mod shared;
mod taker;

pub use drain::{Drain, Taken, now};
pub use reception::Reception;
pub use segments::{Entry, Segments, Spool};
pub use shared::SharedBoard;
pub use taker::{Program, Records, SpoolError, Taker};
