//! Runs recorded requests again, under the recorded concurrency, and says whether everything came
//! out the same.
//!
//! ```text
//!  trace ─▶ Plan ─▶ Recording, Schedule ─▶ Coordinator ◀─ Monitor ◀┬─ Holder (session of service)
//!                                                                  ├─ ghosts (recorded sessions)
//!                                                                  └─ Sender (requests, responses)
//! ```
//!
//! - [`plan`] says which requests are sent again, [`recording`] reads what must be known about
//!   them. [`windows`](mod@windows) divides a recording into plans that need nothing of each other.
//! - [`transaction`] has the words in which sessions and the coordinator talk.
//! - [`coordinator`] decides which transaction may go on and notices divergences. Pure.
//! - [`hold`] follows one session of the service and makes it wait. Pure.
//! - [`monitor`] is the lock around the coordinator, [`shared`] what all sessions share.
//! - [`sender`], `ghosts`, `host`, `blockers` and [`service`] do the I/O. [`run`](mod@run) starts
//!   them and watches them; [`faithful`] makes a verdict of it, [`see`] leaves the database as a
//!   transaction saw it.
//!
//! Changed code runs under other rules (`order::retroaction`): [`changes`] keeps account of what it
//! does otherwise. What becomes of that is in `hindcast-retro`.
//!
//! It deliberately does not rewind databases (`hindcast-rewind` does) and never prints: [`Verdict`]
//! is plain data.
//!
//! **Where to start reading**: [`coordinator`].
//!
//! **The invariant to keep**: a divergence is a result, and an unreadable recording is an error.
//! Whatever the service does, a replay ends with one of the two, and never hangs.

mod blockers;
mod cgi;
pub mod changes;
mod clients;
pub mod clock;
pub mod compare;
mod connect;
pub mod coordinator;
mod doors;
mod drawn;
pub mod faithful;
mod final_state;
mod ghosts;
mod guests;
pub mod hold;
mod host;
pub mod inserts;
pub mod inside;
mod known;
pub mod learned;
pub mod looks;
pub mod monitor;
mod others;
mod pins;
pub mod place;
pub mod plan;
pub mod reading;
pub mod ready;
pub mod recording;
pub mod redacted;
mod rest;
pub mod restore;
mod rules;
pub mod run;
pub mod see;
pub mod sender;
pub mod service;
pub mod setup;
pub mod shapes;
pub mod share;
pub mod shared;
mod sides;
mod stretches;
pub mod transaction;
pub mod transcript;
mod turns;
pub mod verdict;
pub mod windows;

pub use faithful::{ReplayOptions, run};
pub use plan::{Plan, PlanError};
pub use recording::{LoadError, Recording};
pub use restore::{RestoreError, Start, StartError, first_after_pruning, restore, restore_with};
pub use run::{Hooks, ReplayError, Setting};
pub use verdict::Verdict;
