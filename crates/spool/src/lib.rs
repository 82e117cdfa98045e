//! What taps tell, drained to disk and read back in order.
//!
//! ```text
//!   taps ──memory of rings──▶ Drain ──▶ Writer ──files──▶ Reader
//! ```
//!
//! A drain empties rings and gives what they told to a [`Taker`]. A [`Writer`] copies it to files
//! and does nothing else; who makes something of it reads it when there is time.
//!
//! **Where to start reading**: [`Drain`], then [`spool`].
//!
//! **What this crate does not do**: it knows neither HTTP nor Postgres, and orders nothing: what
//! several threads told stands in the order in which it was collected, with the moment of each.
//!
//! **The invariant to keep**: a tap never waits for a drain. If there is no room on disk, rings
//! fill up and taps count what they lose.

mod clock;
mod drain;
mod hello;
mod reception;
mod shared;
pub mod spool;
mod taker;

pub use clock::{Clock, now};
pub use drain::{Drain, Taken};
pub use reception::Reception;
pub use shared::SharedBoard;
pub use spool::{Entry, Fill, Key, Meter, Reader, Writer, spool};
pub use taker::{Program, Records, SpoolError, Taker};
