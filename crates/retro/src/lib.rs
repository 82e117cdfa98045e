//! Runs changed code on recorded requests, under the recorded concurrency, and tells what would
//! have been different.
//!
//! ```text
//!   rewind, migrate, pin ─▶ select ─▶ run (hindcast-replay) ─▶ compare ─▶ Report, correction
//! ```
//!
//! - [`run`] puts the parts together, and begins again when a run has taught it something.
//! - [`database`] is the rewound database: migrated, watched, pinned. [`selection`] says which
//!   requests are executed.
//! - [`responses`] and [`rows`] compare. [`noise`] tells differences of clocks, sequences and
//!   randomness from real ones.
//! - [`causes`] traces a row to the request that wrote it. [`correction`] writes the script.
//! - [`report`] is the result, as plain data.
//!
//! It decides nothing about order (`hindcast-order` does, by way of `hindcast-replay`), writes
//! nothing to the recorded database, and never prints.
//!
//! **Where to start reading**: [`retroact`].
//!
//! **The invariant to keep**: a difference is noise only if there is a reason for it. In doubt it
//! is real.

pub mod baseline;
pub mod causes;
pub mod checks;
mod comparison;
pub mod correction;
pub mod database;
mod dependents;
pub mod drawn;
pub mod json;
pub mod noise;
mod outcome;
mod pairing;
pub mod report;
pub mod responses;
pub mod rows;
pub mod run;
pub mod selection;

pub use run::{Options, RetroError, retroact};
