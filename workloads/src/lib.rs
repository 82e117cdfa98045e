//! Four workloads as real services: what the demo records, the tests replay and the benchmarks
//! measure.
//!
//! They are the ones of R³ (section 7.2, Table 1): the Moodle forum, WordPress options, WordPress
//! comments, and TPC-C's NewOrder and Payment, with the schemas, statement counts, sizes and mixes
//! given there, and with the three concurrency bugs of its section 6 as they were in the originals
//! (MDL-59854, WP-11437, WP-11073). Each bug's fix is a [`Variant`], so that a recording of the
//! original can be run against the changed code.
//!
//! ```text
//!   drive ──HTTP──▶ service ──▶ handlers (moodle, wp_options, wp_comments, tpcc)
//!     ▲               │              │
//!   calls             │              ▼
//!   (seeded)          │         database (pool, transactions, traceparent) ──▶ Postgres
//!                     └── traceparent of the request ──────┘
//! ```
//!
//! Start reading at [`moodle`], the smallest of the four, then [`database`], which says how a
//! transaction runs, and [`drive`], which says how latency is measured.
//!
//! The invariant to keep: a handler is a function of its request and of what the database answers.
//! No clock, no randomness, no state between requests; ids come from sequences and times from the
//! request or from `now()`. Whatever is recorded of these services can therefore be replayed.
//!
//! What this crate deliberately does not do: know anything of Hindcast. The services pass
//! `traceparent` on as any service with OpenTelemetry would, and that is all.

pub mod check;
pub mod database;
pub mod drive;
pub mod load;
pub mod moodle;
mod pool;
pub mod race;
pub mod random;
pub mod service;
pub mod tpcc;
pub mod workload;
pub mod wp_comments;
pub mod wp_options;

pub use workload::{Scale, Variant, Workload};
