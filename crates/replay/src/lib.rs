//! Runs recorded requests again, under the recorded concurrency, and says whether everything came out the same.
//!
//! ```text
//!   trace ──▶ Plan ──▶ Recording + Schedule ──▶ Coordinator ◀── Gate ◀──┬── Holder (one per session of the service)
//!                                                                      ├── ghosts (one connection per recorded session)
//!                                                                      └── Sender (requests, compares responses)
//! ```
//!
//! - [`plan`] says which requests are sent again, [`recording`] reads what must be known about them.
//! - [`coordinator`] decides who may go on and notices divergences. Pure.
//! - [`hold`] follows one session of the service and makes it wait. Pure.
//! - [`gate`], [`sender`], [`ghosts`], [`service`] and [`perform`] are the shells around them; [`run`](mod@run) makes a faithful replay of it.
//!
//! Changed code runs on the same stage under other rules (`order::retroaction`): [`changes`] keeps account of what it does otherwise. What
//! becomes of that, and everything else about retroaction, is in `hindcast-retro`.
//!
//! It deliberately does not rewind databases (`hindcast-rewind` does) and never prints: [`Verdict`] is plain data.
//!
//! **Where to start reading**: [`coordinator`].
//!
//! **The invariant to keep**: a divergence is a result. Whatever the service does, a replay ends with a verdict, and never hangs.

mod blockers;
pub mod changes;
pub mod compare;
pub mod coordinator;
mod desk;
pub mod gate;
mod ghosts;
pub mod hold;
pub mod perform;
pub mod plan;
pub mod recording;
pub mod restore;
mod rules;
pub mod run;
pub mod sender;
pub mod service;
pub mod shapes;
pub mod verdict;

pub use plan::{Plan, PlanError};
pub use recording::{LoadError, Recording};
pub use restore::{RestoreError, Start, StartError, restore};
pub use run::{Hooks, ReplayError, ReplayOptions, run};
pub use verdict::Verdict;
